/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "train/trainer/state_leaves.h"

static const char target[] = "target/";

/* What a leaf is in the file; of one that is no tensor here the values come with each checkpoint. */
static void describe(struct syi_checkpoint_leaf *to, const struct syi_leaf *leaf,
                     const struct syi_model *model)
{
    to->name = leaf->path;
    to->tensor = leaf->tensor;
    to->is_scalar = leaf->tensor && leaf->param < 0;
    to->described.dtype = leaf->dtype;
    to->described.rank = syi_leaf_shape(leaf, model, to->described.dims);
}

static int is_written(const struct syi_leaf *leaf)
{
    return leaf->kind != SYI_LEAF_NONE && leaf->kind != SYI_LEAF_EMPTY &&
           strncmp(leaf->path, target, strlen(target)) != 0;
}

static int by_tensor(const void *a, const void *b)
{
    const char *first = (*(const struct syi_leaf *const *)a)->tensor,
               *second = (*(const struct syi_leaf *const *)b)->tensor;
    return first && second ? strcmp(first, second) : (second != NULL) - (first != NULL);
}

static int collect(struct syi_state_leaves *state, const struct syi_model *model, struct sy_error *err)
{
    size_t n = state->tree.n;
    state->leaves.leaf = syi_alloc(n * sizeof *state->leaves.leaf, err);
    state->of = syi_alloc(n * sizeof *state->of, err);
    if (!state->leaves.leaf || !state->of) return SY_ENOMEM;
    for (size_t i = 0; i < n; i++)
        if (is_written(&state->tree.leaf[i])) state->of[state->leaves.n++] = &state->tree.leaf[i];
    qsort(state->of, state->leaves.n, sizeof *state->of, by_tensor);
    for (size_t i = 0; i < state->leaves.n; i++) describe(&state->leaves.leaf[i], state->of[i], model);
    return SY_OK;
}

int syi_state_leaves_make(struct syi_state_leaves *state, struct syi_engine *engine, struct sy_error *err)
{
    struct sy_error why = {0};
    memset(state, 0, sizeof *state);
    state->chains = syi_engine_chains(engine);
    int status = syi_engine_state_tree(engine, &state->tree, &why);
    if (status == SY_EINVAL || status == SY_EUNSUPPORTED) return SY_OK;
    return status ? syi_error(err, status, "%s", why.text) : collect(state, syi_engine_model(engine), err);
}

const struct syi_checkpoint_leaves *syi_state_leaves_written(const struct syi_state_leaves *state,
                                                             const struct syi_config *config)
{
    return config->run.compat == SYI_COMPAT_T5X && state->leaves.n ? &state->leaves : NULL;
}

void syi_state_leaves_free(struct syi_state_leaves *state)
{
    syi_free(state->of);
    syi_free(state->leaves.leaf);
    syi_state_tree_free(&state->tree);
    memset(state, 0, sizeof *state);
}

void syi_state_leaves_set(struct syi_state_leaves *state, int64_t step, double rate)
{
    for (size_t i = 0; i < state->leaves.n; i++) {
        const struct syi_leaf *leaf = state->of[i];
        unsigned char *data = state->leaves.leaf[i].data;
        int32_t count = 0;
        float number = 0;
        switch (leaf->kind) {
        case SYI_LEAF_STEP: count = (int32_t)step; break;
        case SYI_LEAF_COUNT: count = (int32_t)syi_leaf_count(leaf, state->chains, step); break;
        case SYI_LEAF_NUMBER: number = (float)leaf->number; break;
        case SYI_LEAF_RATE: number = (float)rate; break;
        default: continue; /* 0 */
        }
        if (leaf->dtype == SYI_SAFETENSORS_I32)
            memcpy(data, &count, sizeof count);
        else
            memcpy(data, &number, sizeof number);
    }
}
