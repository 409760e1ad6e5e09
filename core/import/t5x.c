/* SPDX-License-Identifier: Apache-2.0 */
/* The format t5x of import.h: a checkpoint's arrays become tensors, in t5x_names.c and t5x_state.c, and are read here. */
#include "config.h"

#include <string.h>

#include "base/copy_runs.h"
#include "import/t5x.h"

/* Elements of an array that several tensors are cut from: read once, and kept until as many cuts were taken. */
struct kept {
    void *data;
    int64_t taken;
};

struct state {
    struct syi_t5x_checkpoint checkpoint;
    struct kept *kept; /* [checkpoint.n] */
};

static int add_parameters(struct syi_import *import, const struct syi_t5x_checkpoint *checkpoint,
                          const struct syi_t5x_blocks *blocks, struct sy_error *err)
{
    int status = SY_OK;
    for (size_t i = 0; i < checkpoint->n && !status; i++) {
        const char *name = checkpoint->array[i].name;
        if (!strncmp(name, "target/", 7))
            status = syi_t5x_add_parameter(import, checkpoint, blocks, i, err);
        else if (strncmp(name, "state/", 6) != 0)
            syi_text_printf(&import->unused, "%s: neither a parameter nor state of the optimizer\n", name);
    }
    if (!status && !import->n)
        return syi_error(err, SY_EFORMAT,
                         "%s has no parameters (target/...): it is no checkpoint of a T5X model",
                         import->folder);
    return status;
}

static int open_checkpoint(struct syi_import *import, struct sy_error *err)
{
    struct state *state = import->state = syi_alloc(sizeof *state, err);
    if (!state) return SY_ENOMEM;
    int status = syi_t5x_checkpoint_open(&state->checkpoint, import->folder, err);
    if (status) return status;
    struct syi_t5x_blocks blocks = syi_t5x_count_blocks(&state->checkpoint);
    import->step = state->checkpoint.step;
    state->kept = syi_alloc(state->checkpoint.n * sizeof *state->kept, err);
    if (!state->kept) return SY_ENOMEM;
    status = add_parameters(import, &state->checkpoint, &blocks, err);
    if (!status) status = syi_t5x_set_model(import, err);
    return status ? status : syi_t5x_add_state(import, &state->checkpoint, &blocks, err);
}

static int read_cut(struct state *state, const struct syi_import_tensor *tensor, void *to,
                    struct sy_error *err)
{
    const struct syi_t5x_array *array = &state->checkpoint.array[tensor->place[SYI_T5X_ARRAY]];
    struct kept *kept = &state->kept[tensor->place[SYI_T5X_ARRAY]];
    uint64_t cuts = (uint64_t)tensor->place[SYI_T5X_CUTS], cut = (uint64_t)tensor->place[SYI_T5X_CUT];
    uint64_t inner = (uint64_t)tensor->place[SYI_T5X_INNER] * syi_safetensors_element_bytes(tensor->dtype);
    size_t bytes = syi_t5x_array_bytes(array);
    int status = SY_OK;
    if (!kept->data) {
        kept->data = syi_alloc(bytes, err);
        status = kept->data ? syi_t5x_array_read(array, kept->data, err) : SY_ENOMEM;
    }
    if (!status)
        syi_copy_runs(to, inner, inner, (char *)kept->data + cut * inner, inner, cuts * inner, bytes / cuts);
    if (status || ++kept->taken % (int64_t)cuts == 0) {
        syi_free(kept->data);
        kept->data = NULL;
    }
    return status;
}

static int read_tensor(struct syi_import *import, const struct syi_import_tensor *tensor, void *to,
                       struct sy_error *err)
{
    struct state *state = import->state;
    if (tensor->place[SYI_T5X_CUTS]) return read_cut(state, tensor, to, err);
    return syi_t5x_array_read(&state->checkpoint.array[tensor->place[SYI_T5X_ARRAY]], to, err);
}

static void close_checkpoint(struct syi_import *import)
{
    struct state *state = import->state;
    if (!state) return;
    for (size_t i = 0; state->kept && i < state->checkpoint.n; i++) syi_free(state->kept[i].data);
    syi_free(state->kept);
    syi_t5x_checkpoint_close(&state->checkpoint);
    syi_free(state);
    import->state = NULL;
}

const struct syi_import_format syi_import_t5x = {.name = "t5x",
                                                 .help = "a checkpoint of T5X: the folder checkpoint_N",
                                                 .recognise = syi_t5x_is_checkpoint,
                                                 .open = open_checkpoint,
                                                 .read = read_tensor,
                                                 .close = close_checkpoint};
