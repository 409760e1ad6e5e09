/* SPDX-License-Identifier: Apache-2.0 */
/* Writing a packed model: small files as they are, parameters one after the other, rounded as asked for, then the
 * checksums of all that was written. */
#include "config.h"

#include <inttypes.h>
#include <string.h>

#include "base/bf16.h"
#include "base/int8.h"
#include "base/new_folder.h"
#include "base/packed.h"
#include "import/pack.h"
#include "train/checkpoint/checkpoint.h"
#include "train/launch/run_dir.h"

/* A tensor of the file and what it is made of. */
struct item {
    char *name;                                 /* owned */
    char *text;                                 /* of a small file, owned; NULL: */
    const struct syi_safetensors_tensor *param; /* of the checkpoint; NULL: the checksums */
    int axis;                                   /* of an int8 tensor, as syi_int8_axis */
};

struct packing {
    struct syi_pack *pack;
    struct syi_checkpoint_view view;
    struct item *item; /* [n], no scales: they are written with what they belong to */
    size_t n, item_capacity;
    struct syi_safetensors_tensor *list; /* [n_list] */
    size_t n_list, list_capacity;
    struct syi_safetensors file;
    uint32_t *sum; /* [file.n_tensors] */
};

static void free_packing(struct packing *p)
{
    for (size_t i = 0; i < p->n; i++) {
        syi_free(p->item[i].name);
        syi_free(p->item[i].text);
    }
    for (size_t i = 0; i < p->n_list; i++) syi_free((char *)(uintptr_t)p->list[i].name);
    syi_free(p->item);
    syi_free(p->list);
    syi_free(p->sum);
    syi_safetensors_close(&p->file);
    syi_checkpoint_view_close(&p->view);
}

/* ---- what is in the file ---- */

static int describe(struct packing *p, const struct syi_safetensors_tensor *tensor, const char *suffix,
                    struct sy_error *err)
{
    int status = SYI_GROW(p->list, p->list_capacity, p->n_list + 1, err);
    if (status) return status;
    struct syi_safetensors_tensor *to = &p->list[p->n_list];
    *to = *tensor;
    to->name = syi_format("%s%s", tensor->name, suffix);
    if (!to->name) return syi_error(err, SY_ENOMEM, "out of memory");
    p->n_list++;
    return SY_OK;
}

/* text becomes the item's, after a failure too. */
static int add_item(struct packing *p, const char *name, char *text,
                    const struct syi_safetensors_tensor *param, struct sy_error *err)
{
    int status = SYI_GROW(p->item, p->item_capacity, p->n + 1, err);
    if (status) {
        syi_free(text);
        return status;
    }
    struct item *item = &p->item[p->n++];
    *item = (struct item){.name = syi_strdup(name, err), .text = text, .param = param, .axis = -1};
    return item->name ? SY_OK : SY_ENOMEM;
}

static int add_file(struct packing *p, const char *name, char *text, size_t bytes, struct sy_error *err)
{
    const struct syi_safetensors_tensor tensor = {
        .name = name, .dtype = SYI_SAFETENSORS_U8, .rank = 1, .dims = {(int64_t)bytes}};
    int status = add_item(p, name, text, NULL, err);
    return status ? status : describe(p, &tensor, "", err);
}

/* The folder with run.conf: the run directory itself, or that of the folder of a checkpoint. */
static char *run_of(const struct packing *p)
{
    return syi_run_dir_exists(p->pack->run) ? syi_format("%s", p->pack->run)
                                            : syi_format("%s/../..", p->view.folder);
}

static int add_config(struct packing *p, const struct syi_config *config, struct sy_error *err)
{
    struct syi_text text = {0};
    syi_config_print(config, false, &text);
    while (text.length % 8 && text.status == SY_OK)
        syi_text_puts(&text, "\n"); /* so that the weights after it lie aligned */
    int status = syi_text_status(&text, err);
    if (!status) return add_file(p, SYI_PACKED_CONFIG, text.data, text.length, err);
    syi_text_free(&text);
    return status;
}

static int add_files(struct packing *p, struct syi_config *config, struct sy_error *err)
{
    char *run = run_of(p);
    int status = run ? syi_run_dir_read_config(run, config, err) : syi_error(err, SY_ENOMEM, "out of memory");
    if (!status) status = add_config(p, config, err);
    if (!status) status = syi_run_dir_use_vocabularies(run, config, err);
    for (int i = 0; i < config->vocabulary.n && !status; i++) {
        const struct syi_vocabulary_part *part = &config->vocabulary.part[i];
        char name[SYI_PACKED_NAME], *text = NULL;
        size_t bytes = 0;
        if (!*part->file) continue;
        syi_packed_vocabulary_name(part, name);
        status = syi_file_read(part->file, &text, &bytes, err);
        if (!status) status = add_file(p, name, text, bytes, err);
    }
    syi_free(run);
    return status;
}

/* The scales of an int8 tensor have its extents without the dimension that is summed over. */
static int describe_scales(struct packing *p, struct syi_safetensors_tensor scales, int axis,
                           struct sy_error *err)
{
    scales.dtype = SYI_SAFETENSORS_F32;
    scales.rank--;
    for (int d = axis; d < scales.rank; d++) scales.dims[d] = scales.dims[d + 1];
    return describe(p, &scales, SYI_INT8_SCALES, err);
}

static int add_param(struct packing *p, const struct syi_safetensors_tensor *param, struct sy_error *err)
{
    struct syi_safetensors_tensor tensor = *param;
    int axis = syi_int8_axis(param->name, param->rank), status = add_item(p, param->name, NULL, param, err);
    if (status) return status;
    tensor.dtype = axis < 0 ? SYI_SAFETENSORS_F32 : p->pack->weights;
    p->pack->parameters += (int64_t)(param->bytes / syi_safetensors_element_bytes(param->dtype));
    status = describe(p, &tensor, "", err);
    if (status || tensor.dtype != SYI_SAFETENSORS_I8) return status;
    p->item[p->n - 1].axis = axis;
    return describe_scales(p, tensor, axis, err);
}

static int collect(struct packing *p, struct sy_error *err)
{
    const struct syi_safetensors *params = &p->view.file[0];
    struct syi_config *config = syi_alloc(sizeof *config, err);
    int status = config ? add_files(p, config, err) : SY_ENOMEM;
    syi_free(config);
    for (size_t i = 0; i < params->n_tensors && !status; i++) status = add_param(p, &params->tensors[i], err);
    if (!status) status = add_item(p, SYI_PACKED_CHECKSUMS, NULL, NULL, err);
    if (status) return status;
    const struct syi_safetensors_tensor sums = {.name = SYI_PACKED_CHECKSUMS,
                                                .dtype = SYI_SAFETENSORS_U32,
                                                .rank = 1,
                                                .dims = {(int64_t)p->n_list + 1}};
    return describe(p, &sums, "", err);
}

/* ---- writing ---- */

static int write_bytes(struct packing *p, const struct syi_safetensors_tensor *to, const void *data,
                       struct sy_error *err)
{
    p->sum[to - p->file.tensors] = syi_crc32c(0, data, (size_t)to->bytes);
    return syi_safetensors_write(&p->file, to, 0, data, (size_t)to->bytes, err);
}

static int write_int8(struct packing *p, const struct item *item, const struct syi_safetensors_tensor *to,
                      const float *values, struct sy_error *err)
{
    struct syi_int8_shape shape = syi_int8_shape(to->dims, to->rank, item->axis);
    char *name = syi_format("%s%s", item->name, SYI_INT8_SCALES);
    float *scale = syi_alloc(syi_int8_channels(&shape) * sizeof *scale, err);
    int8_t *q = syi_alloc((size_t)to->bytes, err);
    int status = name && scale && q ? SY_OK : syi_error(err, SY_ENOMEM, "out of memory");
    if (!status && !syi_int8_quantize(&shape, values, q, scale))
        status =
            syi_error(err, SY_EINVAL,
                      "%s has a weight that is not finite, which int8 cannot hold: take another checkpoint",
                      item->name);
    if (!status) status = write_bytes(p, to, q, err);
    if (!status) status = write_bytes(p, syi_safetensors_find(&p->file, name), scale, err);
    syi_free(q);
    syi_free(scale);
    syi_free(name);
    return status;
}

static int write_param(struct packing *p, const struct item *item, const struct syi_safetensors_tensor *to,
                       struct sy_error *err)
{
    const struct syi_safetensors_tensor *from = item->param;
    size_t n = (size_t)(from->bytes / syi_safetensors_element_bytes(from->dtype));
    float *values = syi_alloc(n * sizeof *values, err);
    if (!values) return SY_ENOMEM;
    int status = syi_safetensors_read_floats(&p->view.file[0], from, 0, values, n, err);
    if (!status && to->dtype == SYI_SAFETENSORS_BF16) syi_bf16_narrow(values, n);
    if (!status)
        status = item->axis >= 0 ? write_int8(p, item, to, values, err) : write_bytes(p, to, values, err);
    syi_free(values);
    return status;
}

static int write_items(struct packing *p, struct sy_error *err)
{
    int status = SY_OK;
    const struct syi_safetensors_tensor *sums = syi_safetensors_find(&p->file, SYI_PACKED_CHECKSUMS);
    for (size_t i = 0; i < p->n && !status; i++) {
        const struct syi_safetensors_tensor *to = syi_safetensors_find(&p->file, p->item[i].name);
        if (p->item[i].text) status = write_bytes(p, to, p->item[i].text, err);
        if (p->item[i].param) status = write_param(p, &p->item[i], to, err);
    }
    p->sum[sums - p->file.tensors] = syi_packed_header_sum(&p->file);
    if (!status) status = syi_safetensors_write(&p->file, sums, 0, p->sum, (size_t)sums->bytes, err);
    return status ? status : syi_safetensors_finish(&p->file, err);
}

static int plan_file(struct packing *p, struct sy_error *err)
{
    char step[24];
    snprintf(step, sizeof step, "%" PRId64, p->view.meta.step);
    const struct syi_safetensors_pair metadata[] = {{"format", SYI_PACKED_FORMAT},
                                                    {"step", step},
                                                    {"switchyard", sy_version()},
                                                    {"weights", syi_safetensors_dtype_name(p->pack->weights)},
                                                    {"weights_sha256", p->view.meta.params_sha256}};
    int status = syi_safetensors_plan(&p->file, p->list, p->n_list, metadata, SYI_COUNT(metadata), err);
    if (!status && !(p->sum = syi_alloc(p->n_list * sizeof *p->sum, err))) status = SY_ENOMEM;
    return status;
}

static int write_file(void *arg, const char *path, const char *final, struct sy_error *err)
{
    struct packing *p = arg;
    (void) final;
    int status = plan_file(p, err);
    if (!status) status = syi_safetensors_create(&p->file, path, err);
    return status ? status : write_items(p, err);
}

int syi_pack_run(struct syi_pack *pack, const char *to, struct sy_error *err)
{
    struct packing p = {.pack = pack, .file = {.fd = -1}};
    pack->parameters = 0;
    int status = syi_new_file_check(to, err);
    if (status) return status;
    status = syi_checkpoint_view_take(pack->run, pack->step, 1, &p.view, err);
    if (!status) status = collect(&p, err);
    if (!status) status = syi_new_file(to, write_file, &p, err);
    pack->packed_step = p.view.meta.step;
    pack->bytes = p.file.data_start + p.file.data_bytes;
    free_packing(&p);
    return status;
}
