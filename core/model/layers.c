/* SPDX-License-Identifier: Apache-2.0 */
/* What all layers share: leaves of the axes, parameters with their initialisers, norm, dropout and the dense
 * MLP. */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/int8.h"
#include "model/model.h"
#include "program/record.h"

/* The largest power of two that divides extent, is at most `most`, and leaves at least `least` elements a
 * leaf, an index counting as `weight` elements. */
static uint32_t leaves(int64_t extent, int64_t weight, int64_t most, int64_t least)
{
    int64_t n = 1;
    while (n * 2 <= most && extent % (n * 2) == 0 && extent / (n * 2) * weight >= least) n *= 2;
    return (uint32_t)n;
}

static int64_t expert_mlp_dim(const struct syi_config *c)
{
    return c->moe.expert_mlp_dim ? c->moe.expert_mlp_dim : c->model.d_ff;
}

static uint32_t batch_leaves(const struct syi_config *c, const struct syi_shape *shape)
{
    return leaves(shape->rows, shape->shortest_length, c->reproducible.blocks, c->reproducible.min_leaf);
}

void syi_leaves(const struct syi_config *c, const struct syi_shape *shape, uint32_t count[SYI_AXIS_COUNT])
{
    int64_t most = c->reproducible.blocks, least = c->reproducible.min_leaf;
    for (int i = 0; i < SYI_AXIS_COUNT; i++) count[i] = 1;
    count[SYI_AXIS_BATCH] = batch_leaves(c, shape);
    count[SYI_AXIS_GROUP] = count[SYI_AXIS_EXPERT_GROUP] = count[SYI_AXIS_BATCH];
    count[SYI_AXIS_HEADS] = leaves(c->model.num_heads, c->model.head_dim, most, least);
    count[SYI_AXIS_MLP] = leaves(c->model.d_ff, 1, most, least);
    count[SYI_AXIS_EXPERT_MLP] = leaves(expert_mlp_dim(c), 1, most, least);
    count[SYI_AXIS_VOCAB] = leaves(c->model.vocab_size, 1, most, least);
    count[SYI_AXIS_EMBED] = leaves(c->model.d_model, 1, most, least);
    count[SYI_AXIS_EXPERT] = c->moe.num_experts ? leaves(c->moe.num_experts, 1, most, 1) : 1;
}

int64_t syi_group_rows(const struct syi_config *c, const struct syi_shape *shape, int training)
{
    int64_t leaf = shape->rows / batch_leaves(c, shape), rows = 4096 / shape->longest_length;
    if (c->moe.expert_capacity) return 1;
    if (training && c->moe.group_rows) return c->moe.group_rows;
    if (rows > leaf) rows = leaf;
    while (rows > 1 && leaf % rows) rows--;
    return rows > 1 ? rows : 1;
}

double syi_build_init_scale(const struct syi_build *b)
{
    double scale = b->config->model.init_scale;
    return scale > 0 ? scale : b->config->moe.num_experts ? 0.1 : 1.0;
}

/* ---- parameters ---- */

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct syi_param *)a)->name, ((const struct syi_param *)b)->name);
}

static const char *param_name(const void *owner, uint32_t place)
{
    return ((const struct syi_model *)owner)->param[place].name;
}

static const char *copy_name(const void *owner, uint32_t place)
{
    return ((const struct syi_model *)owner)->copy[place].name;
}

/* A name that is there already stays as it is. *id: that of the parameter. */
static int params_add(struct syi_model *model, const struct syi_param *param, uint32_t *id,
                      struct sy_error *err)
{
    int64_t there = syi_index_find(&model->index, param_name, model, param->name);
    if (there >= 0) {
        *id = model->param[there].id;
        return SY_OK;
    }
    int status = SYI_GROW(model->param, model->capacity, model->n + 1, err);
    if (!status) status = syi_index_add(&model->index, param->name, (uint32_t)model->n, err);
    if (status) return status;
    struct syi_param *added = &model->param[model->n];
    *added = *param;
    *id = added->id = (uint32_t)model->n++;
    model->unsorted = 1;
    return SY_OK;
}

int syi_model_sort(struct syi_model *model, struct sy_error *err)
{
    int status = SY_OK;
    if (!model->unsorted) return SY_OK;
    qsort(model->param, model->n, sizeof *model->param, by_name);
    syi_index_free(&model->index);
    for (size_t i = 0; !status && i < model->n; i++)
        status = syi_index_add(&model->index, model->param[i].name, (uint32_t)i, err);
    model->unsorted = 0;
    return status;
}

void syi_model_free(struct syi_model *model)
{
    syi_free(model->param);
    syi_free(model->copy);
    syi_free(model->layer);
    syi_index_free(&model->index);
    syi_index_free(&model->copy_index);
    memset(model, 0, sizeof *model);
}

/* The scales of int8 weights whose dimension `summed` products sum over: "NAME.scales", without it. */
static int build_scales(struct syi_build *b, const struct syi_param *param, int summed)
{
    char name[sizeof param->name + sizeof SYI_INT8_SCALES];
    int64_t dim[SY_MAX_DIMS];
    uint8_t axis[SY_MAX_DIMS];
    for (int d = 0; d < param->rank - 1; d++) {
        dim[d] = param->dim[d + (d >= summed)];
        axis[d] = param->axis[d + (d >= summed)];
    }
    snprintf(name, sizeof name, "%s" SYI_INT8_SCALES, param->name);
    int scales = syi_tensor_add(b->p, name, SYI_PARAM, SY_F32, param->rank - 1, dim, axis);
    return syi_role_set(b->p, scales, SYI_ROLE_SCALES, param->id);
}

int syi_build_param(struct syi_build *b, const char *name, int rank, const int64_t *dim, const uint8_t *axis,
                    enum syi_init init, double scale)
{
    struct syi_param param = {.init = init, .scale = scale, .rank = rank};
    const char *scope = syi_program_name(b->p, b->p->layer);
    snprintf(param.name, sizeof param.name, "%s%s%s", scope, *scope ? "/" : "", name);
    int there = syi_program_find(b->p, param.name);
    if (there >= 0) return there;
    memcpy(param.dim, dim, (size_t)rank * sizeof *dim);
    memcpy(param.axis, axis, (size_t)rank);
    struct sy_error err = {0};
    uint32_t id;
    if (params_add(b->model, &param, &id, &err)) return syi_program_fail(b->p, SY_ENOMEM, "%s", err.text);
    param.id = id;
    int summed = b->int8 ? syi_int8_axis(param.name, rank) : -1;
    if (summed >= 0) build_scales(b, &param, summed);
    there = syi_tensor_add(b->p, param.name, SYI_PARAM, summed < 0 ? SY_F32 : SY_I8, rank, dim, axis);
    return syi_role_set(b->p, there, SYI_ROLE_PARAMETER, id);
}

/* Notes a copy that a program reads, if it is not noted already; returns its number in the model. */
static uint32_t note_copy(struct syi_build *b, const struct syi_copy *copy)
{
    struct syi_model *model = b->model;
    struct sy_error err = {0};
    int64_t there = syi_index_find(&model->copy_index, copy_name, model, copy->name);
    if (there >= 0) {
        model->copy[there].trained |= copy->trained;
        return (uint32_t)there;
    }
    if (SYI_GROW(model->copy, model->copy_capacity, model->n_copies + 1, &err) ||
        syi_index_add(&model->copy_index, copy->name, (uint32_t)model->n_copies, &err))
        return (uint32_t)syi_program_fail(b->p, SY_ENOMEM, "%s", err.text);
    model->copy[model->n_copies] = *copy;
    return (uint32_t)model->n_copies++;
}

/* Whether weights fill panels: whole leaves of both dims do, so that parts on ranks do as well. */
static int fills_panels(struct syi_build *b, int n, const int *parts)
{
    for (int i = 0; i < n; i++) {
        const struct syi_tensor *t = &b->p->tensor[parts[i]];
        for (int d = t->rank - 2; d < t->rank; d++) {
            int64_t leaves = t->axis[d] == SYI_AXIS_EMBED ? 1 : b->p->leaf_count[t->axis[d]];
            if (t->dim[d] % (leaves * SY_PANEL_LEAF)) return 0;
        }
    }
    return 1;
}

/* "panels/LAYER/key/kernel+value/kernel", plain ones "bf16/...", transposed ones "panels_nt/...". */
static int copied_name(struct syi_build *b, int n, const int *parts, struct syi_copy *copy)
{
    static const char *const how[] = {
        [SYI_COPIED_PLAIN] = "bf16/", [SYI_COPIED_PANELS] = "panels/", [SYI_COPIED_PANELS_NT] = "panels_nt/"};
    const char *scope = syi_program_name(b->p, b->p->layer);
    size_t used = 0;
    for (int i = 0; i < n; i++) {
        const char *name = syi_program_name(b->p, b->p->tensor[parts[i]].name);
        size_t skip = i && !strncmp(name, scope, strlen(scope)) ? strlen(scope) + 1 : 0;
        used += (size_t)snprintf(copy->name + used, sizeof copy->name - used, "%s%s",
                                 i ? "+" : how[copy->how], name + skip);
        if (used >= sizeof copy->name) return syi_program_fail(b->p, SY_EINTERNAL, "a name is too long");
    }
    return 0;
}

/* The carry tensor with the copy of n parameters. */
static int copied_weights(struct syi_build *b, int n, const int *parts, enum syi_copied how)
{
    struct syi_copy copy = {.n = n, .how = how, .trained = b->training};
    if (b->p->status || copied_name(b, n, parts, &copy)) return -1;
    struct syi_tensor t = b->p->tensor[parts[0]];
    t.dim[t.rank - 1] = 0;
    for (int i = 0; i < n; i++) {
        t.dim[t.rank - 1] += b->p->tensor[parts[i]].dim[t.rank - 1];
        copy.part[i] = b->p->tensor[parts[i]].of;
    }
    if (how) t = syi_in_panels(&t, how == SYI_COPIED_PANELS_NT);
    uint32_t number = note_copy(b, &copy);
    int there = syi_program_find(b->p, copy.name);
    if (there >= 0) return there;
    there = syi_tensor_add(b->p, copy.name, SYI_CARRY, SY_BF16, t.rank, t.dim, t.axis);
    return syi_role_set(b->p, there, SYI_ROLE_COPY, number);
}

/* The same for a program without gradients: in panels, laid out so, where they are read and filled. */
static int weights_to_read(struct syi_build *b, int n, const int *parts, enum syi_copied laid)
{
    if (b->p->status) return -1;
    return copied_weights(b, n, parts,
                          b->model->panels && fills_panels(b, n, parts) ? laid : SYI_COPIED_PLAIN);
}

/* What syi_weights gave: whether it lies in panels. */
static int in_panels(const struct syi_build *b, int w)
{
    const struct syi_tensor *t = w < 0 ? NULL : &b->p->tensor[w];
    return t && t->kind == SYI_CARRY && t->role == SYI_ROLE_COPY && b->model->copy[t->of].how;
}

int syi_weights(struct syi_build *b, int n, const int *parts)
{
    if (b->dtype == SY_BF16 && !b->training) return weights_to_read(b, n, parts, SYI_COPIED_PANELS);
    int cast = n == 1 ? syi_cast(b->p, parts[0], b->dtype) : syi_as(b->p, syi_pack(b->p, n, parts), b->dtype);
    int kept = b->dtype == SY_BF16 && b->model->keeps_copies; /* and numbered by syi_keep_copies */
    return kept ? syi_role_set(b->p, cast, SYI_ROLE_COPY, 0) : cast;
}

/* ---- programs of gradients read copies ----
 * They are recorded with casts, since gradients go through them. Forward products read x w, those of the gradient of x read
 * dy w^T. */

static const struct {
    enum sy_op plain, laid;
    enum syi_copied how;
} products[] = {{SY_OP_MATMUL, SY_OP_MATMUL_PANELS, SYI_COPIED_PANELS},
                {SY_OP_MATMUL_NT, SY_OP_MATMUL_PANELS, SYI_COPIED_PANELS_NT},
                {SY_OP_GROUPED_MATMUL, SY_OP_GROUPED_MATMUL_PANELS, SYI_COPIED_PANELS},
                {SY_OP_GROUPED_MATMUL_NT, SY_OP_GROUPED_MATMUL_PANELS, SYI_COPIED_PANELS_NT}};

/* Which of the products reads `weights` as its second operand; -1: another op, or another operand. */
static int product_of(const struct syi_op *op, int operand)
{
    for (int i = 0; operand == 1 && i < (int)SYI_COUNT(products); i++)
        if (op->op == products[i].plain) return i;
    return -1;
}

/* The casts of a program whose copies are read instead. */
struct casts {
    size_t *op;     /* [n_tensors] one more than the op that makes the cast, 0: the tensor is none */
    uint8_t *plain; /* [n_tensors] whether something reads it that cannot read panels */
};

/* Finds them, each with its number; they count as no copies of their own any more. */
static void find_casts(const struct casts *casts, struct syi_program *p, uint8_t *is_cast)
{
    for (size_t i = 0; i < p->n_ops; i++) {
        struct syi_tensor *out = &p->tensor[p->op[i].out[0]];
        is_cast[i] = out->role == SYI_ROLE_COPY;
        if (!is_cast[i]) continue;
        out->role = SYI_ROLE_NONE;
        casts->op[p->op[i].out[0]] = i + 1;
    }
    for (size_t i = 0; i < p->n_ops; i++)
        for (int k = 0; k < p->op[i].n_in; k++)
            if (p->op[i].in[k] >= 0 && product_of(&p->op[i], k) < 0) casts->plain[p->op[i].in[k]] = 1;
}

/* Operand k of the op is the copy of the parameters that `cast` casts. */
static void read_copy(struct syi_build *b, struct syi_op *op, int k, const struct syi_op *cast, int plain)
{
    int laid = b->model->trains_panels && fills_panels(b, cast->n_in, cast->in) && !plain;
    int product = product_of(op, k);
    b->p->layer = cast->layer; /* whose names are left out */
    op->in[k] = copied_weights(b, cast->n_in, cast->in, laid ? products[product].how : SYI_COPIED_PLAIN);
    if (laid) op->op = (uint16_t)products[product].laid;
}

static void read_copies(struct syi_build *b, const struct casts *casts)
{
    struct syi_program *p = b->p;
    size_t tensors = p->n_tensors; /* copies come after them */
    uint32_t layer = p->layer;
    for (size_t i = 0; i < p->n_ops; i++)
        for (int k = 0; k < p->op[i].n_in && !p->status; k++) {
            int in = p->op[i].in[k];
            if (in < 0 || (size_t)in >= tensors || !casts->op[in]) continue;
            read_copy(b, &p->op[i], k, &p->op[casts->op[in] - 1], casts->plain[in]);
        }
    p->layer = layer;
}

int syi_keep_copies(struct syi_build *b, struct sy_error *err)
{
    size_t n = b->p->n_tensors + 1; /* nothing is empty */
    struct casts casts = {.op = syi_alloc(n * sizeof *casts.op, err), .plain = syi_alloc(n, err)};
    uint8_t *is_cast = syi_alloc(b->p->n_ops + 1, err);
    int status = casts.op && casts.plain && is_cast ? SY_OK : SY_ENOMEM;
    if (!status) {
        find_casts(&casts, b->p, is_cast);
        read_copies(b, &casts);
        syi_program_remove(b->p, is_cast);
    }
    syi_free(casts.op);
    syi_free(casts.plain);
    syi_free(is_cast);
    return status;
}

int syi_product_nt(struct syi_build *b, int x, int table)
{
    int copies = b->dtype == SY_BF16 && !b->training;
    int w = copies ? weights_to_read(b, 1, &table, SYI_COPIED_PANELS_NT) : syi_weights(b, 1, &table);
    return in_panels(b, w) ? syi_matmul_panels(b->p, x, w) : syi_matmul_nt(b->p, x, w);
}

int syi_scales(struct syi_build *b, int w)
{
    char name[sizeof b->model->param->name + sizeof SYI_INT8_SCALES];
    if (w < 0 || b->p->tensor[w].dtype != SY_I8) return -1;
    snprintf(name, sizeof name, "%s" SYI_INT8_SCALES, syi_program_name(b->p, b->p->tensor[w].name));
    return syi_program_find(b->p, name);
}

static int int8_product(struct syi_build *b, int x, int w, const struct syi_filled *filled)
{
    int scales = syi_scales(b, w);
    x = syi_cast(b->p, x, SY_F32);
    if (!filled) return syi_matmul_int8(b->p, x, w, scales);
    return filled->first < 0 ? syi_grouped_matmul_int8(b->p, x, w, filled->counts, scales)
                             : syi_ragged_matmul_int8(b->p, x, w, filled->counts, filled->first, scales);
}

static int panels_product(struct syi_build *b, int x, int w, const struct syi_filled *filled)
{
    if (!filled) return syi_matmul_panels(b->p, x, w);
    return filled->first < 0 ? syi_grouped_matmul_panels(b->p, x, w, filled->counts)
                             : syi_ragged_matmul_panels(b->p, x, w, filled->counts, filled->first);
}

/* x times what syi_weights gave. */
static int product(struct syi_build *b, int x, int w, const struct syi_filled *filled)
{
    x = syi_cast(b->p, x, b->dtype);
    if (in_panels(b, w)) return panels_product(b, x, w, filled);
    if (!filled) return syi_matmul(b->p, x, w);
    return filled->first < 0 ? syi_grouped_matmul(b->p, x, w, filled->counts)
                             : syi_ragged_matmul(b->p, x, w, filled->counts, filled->first);
}

int syi_product(struct syi_build *b, int x, int w, const struct syi_filled *filled)
{
    return syi_scales(b, w) < 0 ? product(b, x, syi_weights(b, 1, &w), filled)
                                : int8_product(b, x, w, filled);
}

/* From here on the weights of all experts are more than what goes through them: a batch of 4,096 tokens of
 * 512 numbers breaks even at 8. A number that depends on the model alone, since the sum of a joined gradient
 * has another order. */
enum { MANY_EXPERTS = 16 };

/* Whether x has fewer rows than the weights it is multiplied with. Asked where no gradient is wanted, so that the answer may
 * depend on the batch. */
static int has_few_rows(const struct syi_build *b, int x)
{
    const struct syi_tensor *t = &b->p->tensor[x];
    return !b->training && syi_tensor_count(t) < t->dim[t->rank - 1] * t->dim[t->rank - 1];
}

int syi_packed_product(struct syi_build *b, int x, int n, const int *weights, const struct syi_filled *filled)
{
    int part[3], many = filled && b->config->moe.num_experts >= MANY_EXPERTS;
    int copies = b->dtype == SY_BF16 && !b->training; /* packed once, not in every run */
    if (b->p->status || x < 0 || weights[0] < 0) return -1;
    int small = b->decoding || many || has_few_rows(b, x);
    if (syi_scales(b, weights[0]) < 0 && (copies || !small))
        return syi_as(b->p, product(b, x, syi_weights(b, n, weights), filled), b->dtype);
    for (int i = 0; i < n; i++) part[i] = syi_as(b->p, syi_product(b, x, weights[i], filled), b->dtype);
    return syi_pack(b->p, n, part);
}

int syi_norm(struct syi_build *b, const char *name, int x, int mask)
{
    int64_t dim[1] = {b->config->model.d_model};
    uint8_t axis[1] = {SYI_AXIS_EMBED};
    syi_scope_push(b->p, "%s", name);
    SYI_AT(b->p);
    int scale = syi_build_param(b, "scale", 1, dim, axis, SYI_INIT_ONES, 1);
    int y = syi_as(b->p, syi_rms_norm(b->p, x, scale, mask, b->config->model.layer_norm_epsilon), b->dtype);
    syi_scope_pop(b->p);
    return y;
}

int syi_dropped(struct syi_build *b, int x)
{
    if (!b->training || b->config->model.dropout_rate <= 0) return x;
    SYI_AT(b->p);
    return syi_dropout(b->p, x, b->rng, b->sites++, b->config->model.dropout_rate);
}

struct syi_activations syi_activations(int mlp)
{
    static const struct syi_activations of[] = {[SYI_MLP_GELU_LINEAR] = {1, SY_GELU},
                                                [SYI_MLP_RELU_LINEAR] = {1, SY_RELU},
                                                [SYI_MLP_SILU_LINEAR] = {1, SY_SILU},
                                                [SYI_MLP_GELU] = {0, SY_GELU},
                                                [SYI_MLP_RELU] = {0, SY_RELU}};
    return of[mlp];
}

/* Gated (wi_0, wi_1) or plain (wi) by model.mlp_activations; dropout inside, as flaxformer's MlpBlock. */
int syi_mlp_of(struct syi_build *b, const char *name, int x, int64_t width)
{
    const struct syi_config *c = b->config;
    int64_t in[2] = {c->model.d_model, width}, out[2] = {width, c->model.d_model};
    uint8_t in_axis[2] = {SYI_AXIS_EMBED, SYI_AXIS_MLP}, out_axis[2] = {SYI_AXIS_MLP, SYI_AXIS_EMBED};
    double scale = syi_build_init_scale(b);
    double in_std = sqrt(scale / (double)in[0]) / 0.87962566,
           out_std = sqrt(scale / (double)out[0]) / 0.87962566;
    double rate = b->training ? c->model.dropout_rate : 0;
    struct syi_activations act = syi_activations((int)c->model.mlp_activations);
    int h;
    syi_scope_push(b->p, "%s", name);
    SYI_AT(b->p);
    if (act.gated) {
        int parts[2] = {syi_build_param(b, "wi_0/kernel", 2, in, in_axis, SYI_INIT_TRUNCATED_NORMAL, in_std),
                        syi_build_param(b, "wi_1/kernel", 2, in, in_axis, SYI_INIT_TRUNCATED_NORMAL, in_std)};
        int packed = syi_packed_product(b, x, 2, parts, NULL);
        h = syi_glu(b->p, packed, b->rng, -1, act.activation, b->sites++, rate);
    } else {
        int wi = syi_build_param(b, "wi/kernel", 2, in, in_axis, SYI_INIT_TRUNCATED_NORMAL, in_std);
        int y = syi_as(b->p, syi_product(b, x, wi, NULL), b->dtype);
        h = syi_dropped(b, syi_activation(b->p, y, (enum sy_activation)act.activation));
    }
    SYI_AT(b->p);
    int wo = syi_build_param(b, "wo/kernel", 2, out, out_axis, SYI_INIT_TRUNCATED_NORMAL, out_std);
    int y = syi_product(b, h, wo, NULL);
    syi_scope_pop(b->p);
    return y;
}

int syi_mlp(struct syi_build *b, const char *name, int x)
{
    return syi_mlp_of(b, name, x, b->config->model.d_ff);
}
