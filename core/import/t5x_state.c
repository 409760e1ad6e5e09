/* SPDX-License-Identifier: Apache-2.0 */
/* Adafactor's state. Each parameter has four slots, of which those not in use are one 0: m, the momentum; v, the second
 * moments; or v_row and v_col in its place, their means over columns and rows. In T5X's rules for scanned stacks and for
 * kernels of three axes d_model is the row; we have the smaller axis of a matrix as its row, so there the two may change
 * places. What is factored is said by keys of [optimizer], which are set to what the state has. */
#include "config.h"

#include <inttypes.h>
#include <string.h>

#include "base/optimizers.h"
#include "import/t5x.h"

enum slot { M, V, V_ROW, V_COL, SLOTS };

static const char *const slot_name[SLOTS] = {"m", "v", "v_row", "v_col"};
static const char target[] = "target/", root[] = "state/param_states/";

/* A slot of a parameter, under the name it has here. */
struct part {
    size_t at; /* its array */
    int axis;  /* of the array's layers; -1: it has none */
    int used;  /* 0: one 0 */
    struct syi_t5x_shape shape;
};

/* A parameter and its state. */
struct owner {
    const struct syi_t5x_array *array;
    struct syi_t5x_name name;
    int expert, factored;
    struct syi_t5x_shape shape; /* of a layer's */
    struct part part[SLOTS];
};

struct reader {
    struct syi_import *import;
    const struct syi_t5x_checkpoint *checkpoint;
    const struct syi_t5x_blocks *blocks;
    struct owner *owner; /* [n] */
    size_t n;
    struct sy_error why; /* why a run cannot hold the state */
};

/* ---- the slots of a parameter ---- */

static int misfit(struct reader *r, const struct owner *owner, const char *why)
{
    return syi_error(&r->why, SY_EUNSUPPORTED, "%s %s", owner->array->name, why);
}

static int same_dims(const struct syi_t5x_array *array, const struct syi_t5x_shape *shape)
{
    return array->rank == shape->rank && !memcmp(array->dims, shape->dims, sizeof shape->dims);
}

static int is_one(const struct syi_t5x_array *array)
{
    return array->rank == 1 && array->dims[0] == 1;
}

static int find_parts(struct reader *r, struct owner *owner)
{
    for (int i = 0; i < SLOTS; i++) {
        char *name = syi_format("%s%s/%s", root, owner->array->name + strlen(target), slot_name[i]);
        const struct syi_t5x_array *array = name ? syi_t5x_find(r->checkpoint, name) : NULL;
        int no_memory = !name;
        syi_free(name);
        if (no_memory) return syi_error(&r->why, SY_ENOMEM, "out of memory");
        if (!array) return misfit(r, owner, "has not the four slots of Adafactor's state");
        if (array->dtype != SYI_SAFETENSORS_F32 && (i != M || array->dtype != SYI_SAFETENSORS_BF16))
            return misfit(r, owner, "has state that is not float32, nor a momentum in bfloat16");
        owner->part[i] = (struct part){.at = (size_t)(array - r->checkpoint->array),
                                       .axis = -1,
                                       .used = !is_one(array),
                                       .shape = syi_t5x_without(array, -1)};
    }
    return SY_OK;
}

/* Slots that are as large as the parameter. */
static int fit_whole(struct reader *r, struct owner *owner, struct part *part)
{
    const struct syi_t5x_shape whole = syi_t5x_without(owner->array, -1);
    if (!part->used) return SY_OK;
    if (!same_dims(&r->checkpoint->array[part->at], &whole))
        return misfit(r, owner, "has state of another shape");
    part->axis = owner->name.scanned ? 1 : -1;
    part->shape = owner->shape;
    return SY_OK;
}

/* A mean that has those axes of the array that are in `kept`, a bit each. Here it has all axes of a layer's parameter, but
 * axis `over` is 1 long. */
static int fit_mean(struct reader *r, struct owner *owner, struct part *part, unsigned kept, int over)
{
    const struct syi_t5x_array *array = owner->array;
    struct syi_t5x_shape expected = {0};
    for (int d = 0; d < array->rank; d++)
        if (kept >> d & 1) expected.dims[expected.rank++] = array->dims[d];
    if (!same_dims(&r->checkpoint->array[part->at], &expected))
        return misfit(r, owner, "has means of squares of another shape");
    part->axis = owner->name.scanned ? (int)(kept & 1) : -1;
    part->shape = owner->shape;
    part->shape.dims[over] = 1;
    return SY_OK;
}

/* The smaller axis of a matrix, the first of equal ones. */
static int row_of(const struct syi_t5x_shape *matrix)
{
    return matrix->dims[1] < matrix->dims[0];
}

static int fit_means(struct reader *r, struct owner *owner)
{
    const struct syi_t5x_array *array = owner->array;
    int expert = owner->expert, is_output = syi_t5x_is_output(&owner->name), row = is_output;
    int by_size = !owner->name.scanned && array->rank == 2;
    if (owner->shape.rank != 2 + expert) return misfit(r, owner, "has means of squares, but is no matrix");
    if (by_size) row = row_of(&owner->shape);
    /* its axis in the array: after experts and layers, heads and their width may be two */
    int axis = row ? array->rank - 1 : expert ? 1 + owner->name.scanned : 0;
    unsigned batch = (unsigned)expert | (owner->name.scanned ? 2u : 0), all = (1u << array->rank) - 1;
    int status = fit_mean(r, owner, &owner->part[V_ROW], batch | 1u << axis, expert + !row);
    if (!status) status = fit_mean(r, owner, &owner->part[V_COL], all & ~(1u << axis), expert + row);
    if (status || expert || row == row_of(&owner->shape)) return status;
    struct part column = owner->part[V_COL];
    owner->part[V_COL] = owner->part[V_ROW];
    owner->part[V_ROW] = column;
    return SY_OK;
}

static int fit(struct reader *r, struct owner *owner, const struct syi_t5x_array *array)
{
    owner->array = array;
    owner->name = syi_t5x_name_parse(array->name + strlen(target));
    owner->expert = syi_t5x_has_experts(&owner->name);
    owner->shape = syi_t5x_parameter_shape(array, &owner->name);
    int status = find_parts(r, owner);
    if (status) return status;
    const struct part *part = owner->part;
    owner->factored = part[V_ROW].used || part[V_COL].used;
    if (owner->factored && part[V].used) return misfit(r, owner, "has squares and means of them");
    status = fit_whole(r, owner, &owner->part[M]);
    if (!status) status = fit_whole(r, owner, &owner->part[V]);
    return status || !owner->factored ? status : fit_means(r, owner);
}

static int fit_all(struct reader *r)
{
    const struct syi_t5x_checkpoint *checkpoint = r->checkpoint;
    int status = SY_OK;
    r->owner = syi_alloc(checkpoint->n * sizeof *r->owner, &r->why);
    if (!r->owner) return SY_ENOMEM;
    for (size_t i = 0; i < checkpoint->n && !status; i++)
        if (!strncmp(checkpoint->array[i].name, target, strlen(target)))
            status = fit(r, &r->owner[r->n++], &checkpoint->array[i]);
    return status;
}

/* ---- keys of [optimizer] ---- */

static int64_t smaller(const struct owner *owner)
{
    return owner->shape.dims[row_of(&owner->shape)];
}

/* The smallest matrix that is factored decides; 0: none is, and one over the largest that is not. */
static int64_t choose_min_dim(const struct reader *r)
{
    int64_t factored = 0, whole = 0, has = r->import->config.optimizer.part[0].min_dim_size_to_factor;
    for (size_t i = 0; i < r->n; i++) {
        const struct owner *owner = &r->owner[i];
        if (owner->shape.rank != 2) continue;
        if (owner->factored && (!factored || smaller(owner) < factored)) factored = smaller(owner);
        if (!owner->factored && smaller(owner) > whole) whole = smaller(owner);
    }
    if (whole < has && (!factored || has <= factored)) return has;
    return factored ? factored : whole + 1;
}

/* Whether size, or the rules for experts, say otherwise than the state. */
static int is_exception(const struct owner *owner, int64_t min_dim)
{
    return !owner->factored && (owner->expert || (owner->shape.rank == 2 && smaller(owner) >= min_dim));
}

static void put_rule(struct syi_text *rules, const char *pattern, const char *rule)
{
    struct syi_text text = {0};
    syi_text_printf(&text, "\"%s: %s\"", pattern, rule);
    if (text.data && (!rules->data || !strstr(rules->data, text.data)))
        syi_text_printf(rules, "%s%s", rules->length ? ", " : "[", text.data);
    if (text.status) rules->status = text.status;
    syi_text_free(&text);
}

/* The pattern of all layers' parameters of this name; none of them may be factored. */
static int put_exception(struct reader *r, const struct owner *owner, struct syi_text *rules)
{
    char pattern[200];
    snprintf(pattern, sizeof pattern, "%s%s", *owner->name.stack ? "*/" : "", owner->name.rest);
    for (size_t i = 0; i < r->n; i++)
        if (r->owner[i].factored && syi_pattern_match(pattern, r->owner[i].array->name + strlen(target)))
            return misfit(r, owner, "is not factored, but is in other layers");
    put_rule(rules, pattern, "none");
    return SY_OK;
}

/* *rules: the text of factor_map; empty where size and the rules for experts are enough. */
static int list_exceptions(struct reader *r, int64_t min_dim, struct syi_text *rules)
{
    int experts = 0, status = SY_OK;
    for (size_t i = 0; i < r->n && !status; i++) {
        experts |= r->owner[i].expert && r->owner[i].factored;
        if (is_exception(&r->owner[i], min_dim)) status = put_exception(r, &r->owner[i], rules);
    }
    if (status || !rules->length) return status;
    if (experts) put_rule(rules, "*/mlp/expert/wi*/kernel", "batch row column");
    if (experts) put_rule(rules, "*/mlp/expert/wo/kernel", "batch column row");
    put_rule(rules, "*", "heuristic");
    syi_text_puts(rules, "]");
    return syi_text_status(rules, &r->why);
}

/* A run has its momentum in one dtype. */
static int set_momentum(struct reader *r)
{
    const struct syi_t5x_array *first = NULL;
    for (size_t i = 0; i < r->n; i++) {
        const struct syi_t5x_array *array = &r->checkpoint->array[r->owner[i].part[M].at];
        if (!r->owner[i].part[M].used) continue;
        if (first && array->dtype != first->dtype)
            return misfit(r, &r->owner[i], "has a momentum of another dtype than others");
        first = array;
    }
    if (!first) return SY_OK;
    int half = first->dtype == SYI_SAFETENSORS_BF16;
    int status = syi_t5x_set(r->import, "optimizer.dtype_momentum", half ? "bfloat16" : "float32", &r->why);
    if (status || r->import->config.optimizer.part[0].beta1 >= 0) return status;
    syi_log(SY_LOG_INFO, "the optimizer has a momentum; its decay is taken to be optimizer.beta1 = 0.9");
    return syi_t5x_set(r->import, "optimizer.beta1", "0.9", &r->why);
}

static int set_keys(struct reader *r)
{
    struct syi_text rules = {0};
    int64_t min_dim = choose_min_dim(r);
    int status = list_exceptions(r, min_dim, &rules);
    char number[32];
    snprintf(number, sizeof number, "%" PRId64, min_dim);
    if (!status) status = set_momentum(r);
    if (!status) status = syi_t5x_set(r->import, "optimizer.name", "adafactor", &r->why);
    if (!status) status = syi_t5x_set(r->import, "optimizer.min_dim_size_to_factor", number, &r->why);
    if (!status && rules.length) status = syi_t5x_set(r->import, "optimizer.factor_map", rules.data, &r->why);
    syi_text_free(&rules);
    return status;
}

/* ---- tensors ---- */

static int add_parts(struct reader *r, const struct owner *owner, const char *path, int64_t cut,
                     struct sy_error *err)
{
    int status = SY_OK;
    for (int i = 0; i < SLOTS && !status; i++) {
        const struct part *part = &owner->part[i];
        char *name = syi_format("%s%s/%s", root, path, slot_name[i]);
        status = name ? syi_t5x_add(r->import, r->checkpoint, part->at, part->axis, part->axis < 0 ? 0 : cut,
                                    &part->shape, name, err)
                      : syi_error(err, SY_ENOMEM, "out of memory");
        syi_free(name);
    }
    return status;
}

static int add_owner(struct reader *r, const struct owner *owner, struct sy_error *err)
{
    int64_t layers = owner->name.scanned ? owner->array->dims[1] : 1;
    int status = SY_OK;
    for (int64_t i = 0; i < layers && !status; i++) {
        char *path = syi_t5x_cut_name(&owner->name, r->blocks, i, err);
        status = path ? add_parts(r, owner, path, i, err) : SY_ENOMEM;
        syi_free(path);
    }
    return status;
}

static int add_step(struct reader *r, struct sy_error *err)
{
    const struct syi_t5x_array *step = syi_t5x_find(r->checkpoint, "state/step");
    const struct syi_t5x_shape scalar = {0};
    return syi_t5x_add(r->import, r->checkpoint, (size_t)(step - r->checkpoint->array), -1, 0, &scalar,
                       step->name, err);
}

/* State of T5X's Adafactor belongs to no other optimizer that --set or the run file asked for. */
static int check_choice(struct reader *r)
{
    const struct syi_config *config = &r->import->config;
    const int name = config->optimizer.part[0].name;
    if (config->optimizer.n > 1)
        return syi_error(&r->why, SY_EUNSUPPORTED, "the run is to have several optimizers");
    if (!syi_optimizer_is_given(config) || name == SYI_OPTIMIZER_ADAFACTOR) return SY_OK;
    return syi_error(&r->why, SY_EUNSUPPORTED, "the run is to have optimizer.name = %s",
                     syi_optimizer_info(name)->name);
}

static int has_state(const struct syi_t5x_checkpoint *checkpoint)
{
    for (size_t i = 0; i < checkpoint->n; i++)
        if (!strncmp(checkpoint->array[i].name, root, strlen(root))) return 1;
    return 0;
}

int syi_t5x_add_state(struct syi_import *import, const struct syi_t5x_checkpoint *checkpoint,
                      const struct syi_t5x_blocks *blocks, struct sy_error *err)
{
    struct reader r = {.import = import, .checkpoint = checkpoint, .blocks = blocks};
    if (!has_state(checkpoint)) return SY_OK;
    int status = check_choice(&r);
    if (!status)
        status = syi_t5x_find(checkpoint, "state/step")
                     ? fit_all(&r)
                     : syi_error(&r.why, SY_EUNSUPPORTED, "there is no state/step");
    if (!status) status = set_keys(&r);
    if (status == SY_EUNSUPPORTED) {
        syi_text_printf(&import->unused, "state of the optimizer left out: %s\n", r.why.text);
        syi_free(r.owner);
        return SY_OK;
    }
    if (status) syi_error(err, status, "%s", r.why.text);
    for (size_t i = 0; i < r.n && !status; i++) status = add_owner(&r, &r.owner[i], err);
    if (!status) status = add_step(&r, err);
    syi_free(r.owner);
    return status;
}
