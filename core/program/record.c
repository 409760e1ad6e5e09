/* SPDX-License-Identifier: Apache-2.0 */
/* Recording ops: the shape rule of every op. Maps have a file of their own (record_map.c). What an op means
 * stands in ops.def and doc/numerics.md; here only the extents, axes and dtypes of outputs and the attributes
 * are decided. */
#include "config.h"

#include <string.h>

#include "program/record.h"

#define BAD(p, ...) syi_program_fail(p, SY_EINVAL, __VA_ARGS__)

static struct syi_tensor *at(struct syi_program *p, int tensor)
{
    return &p->tensor[tensor];
}

/* Whether all operands exist, else the recording has failed already or fails now. */
static int have(struct syi_program *p, int n, const int *tensor)
{
    if (p->status) return 0;
    for (int i = 0; i < n; i++)
        if (tensor[i] < 0 || (size_t)tensor[i] >= p->n_tensors) {
            BAD(p, "operand %d is missing", i);
            return 0;
        }
    return 1;
}
#define HAVE(p, ...) have(p, (int)SYI_COUNT(((int[]){__VA_ARGS__})), (int[]){__VA_ARGS__})

int syi_temp(struct syi_program *p, int dtype, int rank, const int64_t *dim, const uint8_t *axis)
{
    return syi_tensor_add(p, NULL, SYI_TEMP, dtype, rank, dim, axis);
}

int syi_temp_like(struct syi_program *p, int like)
{
    if (!HAVE(p, like)) return -1;
    struct syi_tensor t = *at(p, like);
    return syi_temp(p, t.dtype, t.rank, t.dim, t.axis);
}

int syi_as(struct syi_program *p, int tensor, int dtype)
{
    if (HAVE(p, tensor)) at(p, tensor)->dtype = (uint8_t)dtype;
    return p->status ? -1 : tensor;
}

/* What products of a dtype are added up in. */
static int sum_dtype(int dtype)
{
    return dtype == SY_BF16 ? SY_F32 : dtype;
}

/* The result of a product: like `like`, the last dim is that of dim `dim` of `from`. */
static int temp_with_last(struct syi_program *p, int like, int from, int dim)
{
    struct syi_tensor t = *at(p, like);
    t.dim[t.rank - 1] = at(p, from)->dim[dim];
    t.axis[t.rank - 1] = at(p, from)->axis[dim];
    return syi_temp(p, sum_dtype(t.dtype), t.rank, t.dim, t.axis);
}

/* Length of a leaf along dim `dim`: what is not split by any rule is one leaf. */
static int64_t leaf_of(struct syi_program *p, int tensor, int dim)
{
    const struct syi_tensor *t = at(p, tensor);
    int axis = t->axis[dim];
    int64_t count = axis == SYI_AXIS_EMBED ? 1 : p->leaf_count[axis];
    if (t->dim[dim] % count) {
        BAD(p, "axis %s has %lld elements, which %lld leaves do not divide", syi_axis_name(axis),
            (long long)t->dim[dim], (long long)count);
        return 1;
    }
    return t->dim[dim] / count;
}

static int emit(struct syi_program *p, int op, int n_in, const int *in, int out, const void *attr,
                size_t bytes)
{
    if (out < 0) return -1;
    return syi_op_add(p, op, n_in, in, 1, &out, attr, bytes) ? -1 : out;
}
#define EMIT(p, op, out, attr, bytes, ...)                                                                   \
    emit(p, op, (int)SYI_COUNT(((int[]){__VA_ARGS__})), (int[]){__VA_ARGS__}, out, attr, bytes)

int syi_embed(struct syi_program *p, int ids, int table)
{
    if (!HAVE(p, ids, table)) return -1;
    struct syi_tensor t = *at(p, ids);
    t.rank = 3;
    t.dim[2] = at(p, table)->dim[1];
    t.axis[2] = at(p, table)->axis[1];
    return EMIT(p, SY_OP_EMBED, syi_temp(p, at(p, table)->dtype, 3, t.dim, t.axis), NULL, 0, ids, table);
}

int syi_embed_grad(struct syi_program *p, int ids, int dy, int table)
{
    if (!HAVE(p, ids, dy, table)) return -1;
    struct sy_attr_leaf attr = {leaf_of(p, dy, 0)};
    return EMIT(p, SY_OP_EMBED_GRAD, syi_temp_like(p, table), &attr, sizeof attr, ids, dy);
}

static int matmul(struct syi_program *p, int op, int x, int w, int contract, int free)
{
    if (!HAVE(p, x, w)) return -1;
    const struct syi_tensor *tx = at(p, x), *tw = at(p, w);
    if (tx->rank != 3 || tw->rank != 2 || tx->dim[2] != tw->dim[contract])
        return BAD(p, "%s: operands of rank %d and %d, contraction %lld and %lld", syi_op_info(op)->name,
                   tx->rank, tw->rank, (long long)tx->dim[2], (long long)tw->dim[contract]);
    struct sy_attr_leaf attr = {leaf_of(p, x, 2)};
    return EMIT(p, op, temp_with_last(p, x, w, free), &attr, sizeof attr, x, w);
}

int syi_matmul(struct syi_program *p, int x, int w)
{
    return matmul(p, SY_OP_MATMUL, x, w, 0, 1);
}

int syi_matmul_nt(struct syi_program *p, int x, int w)
{
    return matmul(p, SY_OP_MATMUL_NT, x, w, 1, 0);
}

int syi_matmul_tn(struct syi_program *p, int x, int y)
{
    if (!HAVE(p, x, y)) return -1;
    const struct syi_tensor *tx = at(p, x), *ty = at(p, y);
    int64_t dim[2] = {tx->dim[2], ty->dim[2]};
    uint8_t axis[2] = {tx->axis[2], ty->axis[2]};
    struct sy_attr_leaf attr = {leaf_of(p, x, 0)};
    return EMIT(p, SY_OP_MATMUL_TN, syi_temp(p, sum_dtype(tx->dtype), 2, dim, axis), &attr, sizeof attr, x,
                y);
}

static int grouped(struct syi_program *p, int op, int x, int w, int counts, int contract, int free)
{
    if (!HAVE(p, x, w, counts)) return -1;
    const struct syi_tensor *tx = at(p, x), *tw = at(p, w);
    if (tx->rank != 4 || tw->rank != 3 || tx->dim[3] != tw->dim[contract] || tx->dim[0] != tw->dim[0])
        return BAD(p, "%s: operands do not fit", syi_op_info(op)->name);
    struct sy_attr_leaf attr = {leaf_of(p, x, 3)};
    return EMIT(p, op, temp_with_last(p, x, w, free), &attr, sizeof attr, x, w, counts);
}

int syi_grouped_matmul(struct syi_program *p, int x, int w, int counts)
{
    return grouped(p, SY_OP_GROUPED_MATMUL, x, w, counts, 1, 2);
}

int syi_ragged_matmul(struct syi_program *p, int x, int w, int counts, int first)
{
    if (!HAVE(p, x, w, counts, first)) return -1;
    const struct syi_tensor *tx = at(p, x), *tw = at(p, w);
    if (tx->rank != 4 || tw->rank != 3 || tx->dim[3] != tw->dim[1] || tx->dim[0] != 1)
        return BAD(p, "ragged_matmul: operands do not fit");
    struct sy_attr_leaf attr = {leaf_of(p, x, 3)};
    return EMIT(p, SY_OP_RAGGED_MATMUL, temp_with_last(p, x, w, 2), &attr, sizeof attr, x, w, counts, first);
}

int syi_grouped_matmul_nt(struct syi_program *p, int x, int w, int counts)
{
    return grouped(p, SY_OP_GROUPED_MATMUL_NT, x, w, counts, 2, 1);
}

int syi_grouped_matmul_tn(struct syi_program *p, int x, int y, int counts)
{
    if (!HAVE(p, x, y, counts)) return -1;
    const struct syi_tensor *tx = at(p, x), *ty = at(p, y);
    int64_t dim[3] = {tx->dim[0], tx->dim[3], ty->dim[3]};
    uint8_t axis[3] = {tx->axis[0], tx->axis[3], ty->axis[3]};
    struct sy_attr_leaf attr = {leaf_of(p, x, 1)};
    return EMIT(p, SY_OP_GROUPED_MATMUL_TN, syi_temp(p, sum_dtype(tx->dtype), 3, dim, axis), &attr,
                sizeof attr, x, y, counts);
}

int syi_rms_norm(struct syi_program *p, int x, int scale, int mask, double epsilon)
{
    if (!HAVE(p, x, scale)) return -1;
    struct sy_attr_rms_norm attr = {epsilon, 0};
    return EMIT(p, SY_OP_RMS_NORM, syi_temp_like(p, x), &attr, sizeof attr, x, scale, mask);
}

int syi_rms_norm_grad(struct syi_program *p, int x, int scale, int dy, int mask, double epsilon, int *dscale)
{
    if (!HAVE(p, x, scale, dy)) return -1;
    struct sy_attr_rms_norm attr = {epsilon, leaf_of(p, x, 0)};
    int out[2] = {syi_temp_like(p, x), syi_temp_like(p, scale)}, in[4] = {x, scale, dy, mask};
    *dscale = out[1];
    return out[1] < 0 || syi_op_add(p, SY_OP_RMS_NORM_GRAD, 4, in, 2, out, &attr, sizeof attr) ? -1 : out[0];
}

int syi_glu(struct syi_program *p, int packed, int rng, int counts, int activation, int site, double rate)
{
    if (!HAVE(p, packed)) return -1;
    struct syi_tensor t = *at(p, packed);
    int last = t.rank - 1;
    t.dim[last] /= 2;
    struct sy_attr_glu attr = {t.dim[last] / p->leaf_count[t.axis[last]], activation, site, rate};
    return EMIT(p, SY_OP_GLU, syi_temp(p, t.dtype, t.rank, t.dim, t.axis), &attr, sizeof attr, packed,
                rate > 0 ? rng : -1, counts);
}

int syi_glu_grad(struct syi_program *p, int packed, int dy, int rng, int counts,
                 const struct sy_attr_glu *attr)
{
    if (!HAVE(p, packed, dy)) return -1;
    return EMIT(p, SY_OP_GLU_GRAD, syi_temp_like(p, packed), attr, sizeof *attr, packed, dy, rng, counts);
}

int syi_softmax(struct syi_program *p, int x, int *lse)
{
    if (!HAVE(p, x)) return -1;
    struct syi_tensor t = *at(p, x);
    int out[2] = {syi_temp_like(p, x), syi_temp(p, t.dtype, t.rank - 1, t.dim, t.axis)};
    *lse = out[1];
    return out[1] < 0 || syi_op_add(p, SY_OP_SOFTMAX, 1, &x, 2, out, NULL, 0) ? -1 : out[0];
}

int syi_softmax_grad(struct syi_program *p, int probabilities, int dprobabilities, int dlse)
{
    if (!HAVE(p, probabilities, dprobabilities)) return -1;
    return EMIT(p, SY_OP_SOFTMAX_GRAD, syi_temp_like(p, probabilities), NULL, 0, probabilities,
                dprobabilities, dlse);
}

int syi_attention(struct syi_program *p, const struct syi_attention *a, int *lse)
{
    if (!HAVE(p, a->q, a->kv)) return -1;
    struct syi_tensor t = *at(p, a->q);
    int64_t columns = a->heads * a->head_dim, blocks = p->leaf_count[SYI_AXIS_HEADS];
    if (t.dim[2] % columns || a->heads % blocks)
        return BAD(p, "attention: %lld columns for %lld heads of %lld in %lld blocks", (long long)t.dim[2],
                   (long long)a->heads, (long long)a->head_dim, (long long)blocks);
    t.dim[2] = columns;
    int64_t lse_dim[3] = {t.dim[0], a->heads, t.dim[1]};
    uint8_t lse_axis[3] = {t.axis[0], SYI_AXIS_HEADS, t.axis[1]};
    struct sy_attr_attention attr = {a->head_dim, columns / blocks, a->bidirectional,
                                     a->causal,   a->max_distance,  a->site,
                                     a->rate,     a->uniform,       0};
    int out[2] = {syi_temp(p, t.dtype, 3, t.dim, t.axis),
                  syi_temp(p, sum_dtype(t.dtype), 3, lse_dim, lse_axis)};
    int in[11] = {
        a->q,        a->kv,         a->q_lengths,  a->k_lengths, a->bias,      a->rate > 0 ? a->rng : -1,
        a->position, a->q_segments, a->k_segments, a->mask,      a->dense_bias};
    *lse = out[1];
    return out[1] < 0 || syi_op_add(p, SY_OP_ATTENTION, 11, in, 2, out, &attr, sizeof attr) ? -1 : out[0];
}

struct syi_xent syi_xent(struct syi_program *p, int logits, int targets, int weights, double label_smoothing,
                         double z_loss)
{
    struct syi_xent x = {-1, -1, -1, -1};
    if (!HAVE(p, logits, targets, weights)) return x;
    struct sy_attr_xent attr = {label_smoothing, z_loss};
    int in[3] = {logits, targets, weights}, out[4];
    for (int i = 0; i < 4; i++) out[i] = syi_temp_like(p, weights);
    if (out[3] < 0 || syi_op_add(p, SY_OP_XENT, 3, in, 4, out, &attr, sizeof attr)) return x;
    return (struct syi_xent){out[0], out[1], out[2], out[3]};
}

int syi_xent_grad(struct syi_program *p, int logits, int targets, int weights, int lse, int dloss,
                  const struct sy_attr_xent *attr)
{
    if (!HAVE(p, logits, targets, weights, lse, dloss)) return -1;
    return EMIT(p, SY_OP_XENT_GRAD, syi_temp_like(p, logits), attr, sizeof *attr, logits, targets, weights,
                lse, dloss);
}

/* Axis of routing groups made of rows with this axis: what is not split as a batch has no leaves either. */
static uint8_t group_axis(int row_axis, int of_batch)
{
    return row_axis == SYI_AXIS_BATCH ? (uint8_t)of_batch : SYI_AXIS_NONE;
}

/* The outputs of a router that gives each token `choices` places. */
static struct syi_routing routing(struct syi_program *p, int probabilities, int64_t choices,
                                  int64_t group_rows)
{
    struct syi_tensor t = *at(p, probabilities);
    int64_t choice_dim[3] = {t.dim[0], t.dim[1], choices};
    uint8_t choice_axis[3] = {t.axis[0], t.axis[1], SYI_AXIS_CHOICE};
    int64_t count_dim[2] = {t.dim[2], t.dim[0] / group_rows};
    uint8_t count_axis[2] = {SYI_AXIS_ROUTER, group_axis(t.axis[0], SYI_AXIS_GROUP)};
    uint8_t buffer_axis[2] = {SYI_AXIS_EXPERT, group_axis(t.axis[0], SYI_AXIS_EXPERT_GROUP)};
    return (struct syi_routing){
        syi_temp(p, SY_I32, 3, choice_dim, choice_axis), syi_temp(p, SY_I32, 3, choice_dim, choice_axis),
        syi_temp(p, SY_I32, 2, count_dim, count_axis), syi_temp(p, SY_I32, 2, count_dim, buffer_axis)};
}

static const struct syi_routing no_routing = {-1, -1, -1, -1};

struct syi_routing syi_route(struct syi_program *p, int probabilities, int mask, int bias,
                             const struct sy_attr_route *attr)
{
    if (!HAVE(p, probabilities)) return no_routing;
    const struct syi_tensor *t = at(p, probabilities);
    if (attr->selected < 1 || attr->selected > t->dim[2] || t->dim[0] % attr->group_rows) {
        BAD(p, "routing: %lld of %lld experts, groups of %lld rows in %lld", (long long)attr->selected,
            (long long)t->dim[2], (long long)attr->group_rows, (long long)t->dim[0]);
        return no_routing;
    }
    struct syi_routing r = routing(p, probabilities, attr->selected, attr->group_rows);
    int in[3] = {probabilities, mask, bias}, out[4] = {r.expert, r.slot, r.chosen, r.kept};
    if (r.kept < 0 || syi_op_add(p, SY_OP_ROUTE, 3, in, 4, out, attr, sizeof *attr)) return no_routing;
    return r;
}

struct syi_routing syi_route_experts(struct syi_program *p, int probabilities, int mask,
                                     const struct sy_attr_route_experts *attr)
{
    if (!HAVE(p, probabilities)) return no_routing;
    const struct syi_tensor *t = at(p, probabilities);
    if (t->dim[0] % attr->group_rows || attr->capacity > attr->group_rows * t->dim[1]) {
        BAD(p, "routing: %lld places for %lld rows of %lld tokens: capacity is above the tokens of a group",
            (long long)attr->capacity, (long long)attr->group_rows, (long long)t->dim[1]);
        return no_routing;
    }
    struct syi_routing r = routing(p, probabilities, t->dim[2], attr->group_rows);
    int in[2] = {probabilities, mask}, out[4] = {r.expert, r.slot, r.chosen, r.kept};
    if (r.kept < 0 || syi_op_add(p, SY_OP_ROUTE_EXPERTS, 2, in, 4, out, attr, sizeof *attr))
        return no_routing;
    return r;
}

struct syi_ragged syi_ragged_places(struct syi_program *p, const struct syi_routing *routing,
                                    int64_t group_rows)
{
    const struct syi_ragged none = {-1, -1, -1};
    if (!HAVE(p, routing->expert, routing->slot, routing->kept)) return none;
    struct sy_attr_group attr = {group_rows};
    struct syi_ragged r = {syi_temp_like(p, routing->expert), syi_temp_like(p, routing->slot),
                           syi_temp_like(p, routing->kept)};
    int in[3] = {routing->expert, routing->slot, routing->kept}, out[3] = {r.expert, r.slot, r.first};
    if (r.first < 0 || syi_op_add(p, SY_OP_RAGGED_PLACES, 3, in, 3, out, &attr, sizeof attr)) return none;
    return r;
}

int syi_gate(struct syi_program *p, int probabilities, int expert, int slot, int normalize)
{
    if (!HAVE(p, probabilities, expert, slot)) return -1;
    struct syi_tensor t = *at(p, expert);
    struct sy_attr_gate attr = {normalize};
    return EMIT(p, SY_OP_GATE, syi_temp(p, at(p, probabilities)->dtype, 3, t.dim, t.axis), &attr, sizeof attr,
                probabilities, expert, slot);
}

int syi_gate_grad(struct syi_program *p, int dgate, int expert, int slot, int probabilities, int normalize)
{
    if (!HAVE(p, dgate, expert, slot, probabilities)) return -1;
    struct sy_attr_gate attr = {normalize};
    return EMIT(p, SY_OP_GATE_GRAD, syi_temp_like(p, probabilities), &attr, sizeof attr, dgate, expert, slot,
                probabilities);
}

int syi_kept_tokens(struct syi_program *p, int slot)
{
    if (!HAVE(p, slot)) return -1;
    struct syi_tensor t = *at(p, slot);
    int64_t dim[2] = {1, t.dim[0]};
    uint8_t axis[2] = {SYI_AXIS_NONE, t.axis[0]};
    return EMIT(p, SY_OP_KEPT_TOKENS, syi_temp(p, SY_I32, 2, dim, axis), NULL, 0, slot);
}

int syi_regroup(struct syi_program *p, int x, int64_t rows, int64_t length, int64_t groups)
{
    if (!HAVE(p, x)) return -1;
    struct syi_tensor t = *at(p, x);
    if (t.rank < 2 || t.rank > 3 || rows < t.dim[0] || length < t.dim[1] || groups < 1 ||
        rows * length % groups)
        return BAD(p, "regroup: %lld x %lld positions into %lld groups", (long long)rows, (long long)length,
                   (long long)groups);
    struct sy_attr_regroup attr = {rows, length};
    t.dim[0] = groups;
    t.dim[1] = rows * length / groups;
    t.axis[0] = t.axis[1] = SYI_AXIS_NONE;
    return EMIT(p, SY_OP_REGROUP, syi_temp(p, t.dtype, t.rank, t.dim, t.axis), &attr, sizeof attr, x);
}

int syi_ungroup(struct syi_program *p, int x, int64_t rows, int64_t length, int like)
{
    if (!HAVE(p, x, like)) return -1;
    struct sy_attr_regroup attr = {rows, length};
    return EMIT(p, SY_OP_UNGROUP, syi_as(p, syi_temp_like(p, like), at(p, x)->dtype), &attr, sizeof attr, x);
}

int syi_dispatch(struct syi_program *p, int x, int expert, int slot, int64_t experts, int64_t capacity,
                 int64_t group_rows)
{
    if (!HAVE(p, x, expert, slot)) return -1;
    struct syi_tensor t = *at(p, x);
    int64_t dim[4] = {experts, t.dim[0] / group_rows, capacity, t.dim[2]};
    uint8_t axis[4] = {SYI_AXIS_EXPERT, group_axis(t.axis[0], SYI_AXIS_EXPERT_GROUP), SYI_AXIS_CAPACITY,
                       t.axis[2]};
    struct sy_attr_group attr = {group_rows};
    return EMIT(p, SY_OP_DISPATCH, syi_temp(p, t.dtype, 4, dim, axis), &attr, sizeof attr, x, expert, slot);
}

int syi_dispatch_grad(struct syi_program *p, int dbuffer, int expert, int slot, int x, int64_t group_rows)
{
    if (!HAVE(p, dbuffer, expert, slot, x)) return -1;
    struct sy_attr_group attr = {group_rows};
    int dx = syi_as(p, syi_temp_like(p, x), at(p, dbuffer)->dtype);
    return EMIT(p, SY_OP_DISPATCH_GRAD, dx, &attr, sizeof attr, dbuffer, expert, slot);
}

int syi_combine(struct syi_program *p, int buffer, int expert, int slot, int gate, int64_t group_rows)
{
    if (!HAVE(p, buffer, expert, slot, gate)) return -1;
    struct syi_tensor t = *at(p, expert);
    t.dim[2] = at(p, buffer)->dim[3];
    t.axis[2] = at(p, buffer)->axis[3];
    struct sy_attr_group attr = {group_rows};
    return EMIT(p, SY_OP_COMBINE, syi_temp(p, at(p, gate)->dtype, 3, t.dim, t.axis), &attr, sizeof attr,
                buffer, expert, slot, gate);
}

int syi_combine_grad(struct syi_program *p, int buffer, int expert, int slot, int gate, int dout,
                     int64_t group_rows, int *dgate)
{
    if (!HAVE(p, buffer, expert, slot, gate, dout)) return -1;
    struct sy_attr_group attr = {group_rows};
    int in[5] = {buffer, expert, slot, gate, dout},
        out[2] = {syi_temp_like(p, buffer), syi_temp_like(p, gate)};
    *dgate = out[1];
    return out[1] < 0 || syi_op_add(p, SY_OP_COMBINE_GRAD, 5, in, 2, out, &attr, sizeof attr) ? -1 : out[0];
}

int syi_router_loss(struct syi_program *p, int probabilities, int lse, int chosen, int mask,
                    int64_t group_rows, int *z)
{
    if (!HAVE(p, probabilities, lse, chosen)) return -1;
    struct syi_tensor counts = *at(p, chosen);
    struct sy_attr_group attr = {group_rows};
    int dtype = at(p, probabilities)->dtype, in[4] = {probabilities, lse, chosen, mask};
    int out[2] = {syi_temp(p, dtype, 1, counts.dim + 1, counts.axis + 1),
                  syi_temp(p, dtype, 1, counts.dim + 1, counts.axis + 1)};
    *z = out[1];
    return out[1] < 0 || syi_op_add(p, SY_OP_ROUTER_LOSS, 4, in, 2, out, &attr, sizeof attr) ? -1 : out[0];
}

int syi_count_sum(struct syi_program *p, int counts)
{
    if (!HAVE(p, counts)) return -1;
    struct syi_tensor t = *at(p, counts);
    return EMIT(p, SY_OP_COUNT_SUM, syi_temp(p, SY_I64, 1, t.dim, t.axis), NULL, 0, counts);
}

/* Blocks along the dims whose bit is set; the others stay as they are. */
static int block_sum(struct syi_program *p, int op, int x, unsigned dims)
{
    if (!HAVE(p, x)) return -1;
    struct syi_tensor t = *at(p, x);
    struct sy_attr_block attr;
    for (int i = 0; i < SY_MAX_DIMS; i++) {
        int64_t count = i >= t.rank ? 1 : dims >> i & 1 ? p->leaf_count[t.axis[i]] : t.dim[i];
        if (t.dim[i] % count)
            return BAD(p, "block sum: dim %d does not divide into %lld leaves", i, (long long)count);
        attr.leaf[i] = t.dim[i] / count;
        t.dim[i] = count;
    }
    return EMIT(p, op, syi_temp(p, t.dtype, t.rank, t.dim, t.axis), &attr, sizeof attr, x);
}

int syi_block_sum(struct syi_program *p, int op, int x)
{
    return block_sum(p, op, x, ~0u);
}

int syi_sum_over(struct syi_program *p, int op, int x, unsigned dims)
{
    int sum = block_sum(p, op, x, dims);
    for (int64_t i = SY_MAX_DIMS - 1; sum >= 0 && i >= 0; i--) {
        struct syi_tensor t = *at(p, sum);
        if (i >= t.rank || !(dims >> i & 1) || t.dim[i] == 1) continue;
        struct sy_attr_axis attr = {i};
        t.dim[i] = 1;
        t.axis[i] = SYI_AXIS_NONE;
        sum = EMIT(p, SY_OP_TREE_AXIS, syi_temp(p, t.dtype, t.rank, t.dim, t.axis), &attr, sizeof attr, sum);
    }
    return sum;
}

int syi_column_sum(struct syi_program *p, int x, int like)
{
    if (!HAVE(p, x, like)) return -1;
    struct sy_attr_leaf attr = {leaf_of(p, x, 0)};
    return EMIT(p, SY_OP_COLUMN_SUM, syi_temp_like(p, like), &attr, sizeof attr, x);
}

int syi_tree_sum(struct syi_program *p, int blocks)
{
    if (!HAVE(p, blocks)) return -1;
    return EMIT(p, SY_OP_TREE_SUM, syi_temp(p, at(p, blocks)->dtype, 1, (int64_t[]){1}, NULL), NULL, 0,
                blocks);
}

int syi_total(struct syi_program *p, int x)
{
    return syi_tree_sum(p, syi_block_sum(p, SY_OP_BLOCK_SUM, x));
}

int syi_pack(struct syi_program *p, int n, const int *parts)
{
    if (n < 2 || n > 3 || !have(p, n, parts)) return -1;
    struct syi_tensor t = *at(p, parts[0]);
    int last = t.rank - 1;
    struct sy_attr_pack attr = {{0, 0, 0}};
    t.dim[last] = 0;
    for (int i = 0; i < n; i++) {
        const struct syi_tensor *part = at(p, parts[i]);
        attr.width[i] = leaf_of(p, parts[i], last);
        t.dim[last] += part->dim[last];
        if (part->rank != t.rank || part->dim[0] != t.dim[0]) return BAD(p, "pack: parts of different shape");
    }
    return emit(p, SY_OP_PACK, n, parts, syi_temp(p, t.dtype, t.rank, t.dim, t.axis), &attr, sizeof attr);
}

int syi_unpack(struct syi_program *p, int packed, int n, const int *like, int *parts)
{
    if (n < 2 || n > 3 || !HAVE(p, packed) || !have(p, n, like)) return -1;
    struct sy_attr_pack attr = {{0, 0, 0}};
    for (int i = 0; i < n; i++) {
        attr.width[i] = leaf_of(p, like[i], at(p, like[i])->rank - 1);
        if ((parts[i] = syi_temp_like(p, like[i])) < 0) return -1;
    }
    return syi_op_add(p, SY_OP_UNPACK, 1, &packed, n, parts, &attr, sizeof attr) ? -1 : parts[0];
}

int syi_cache_append(struct syi_program *p, int cache, int piece, int position)
{
    if (!HAVE(p, cache, piece, position)) return -1;
    return EMIT(p, SY_OP_CACHE_APPEND, cache, NULL, 0, cache, piece, position);
}

int syi_top_k(struct syi_program *p, int x, int64_t k, int *index)
{
    *index = -1;
    if (!HAVE(p, x)) return -1;
    struct syi_tensor t = *at(p, x);
    if (t.rank != 3 || k < 1 || k > t.dim[2])
        return BAD(p, "top_k: %lld of %lld elements", (long long)k, (long long)t.dim[2]);
    t.dim[2] = k;
    t.axis[2] = SYI_AXIS_CHOICE;
    int out[2] = {syi_temp(p, t.dtype, 3, t.dim, t.axis), syi_temp(p, SY_I32, 3, t.dim, t.axis)};
    *index = out[1];
    return out[1] < 0 || syi_op_add(p, SY_OP_TOP_K, 1, &x, 2, out, NULL, 0) ? -1 : out[0];
}

int syi_cache_gather(struct syi_program *p, int cache, int rows, int position)
{
    if (!HAVE(p, cache, rows, position)) return -1;
    return EMIT(p, SY_OP_CACHE_GATHER, syi_temp_like(p, cache), NULL, 0, cache, rows, position);
}

int syi_relpos_bias(struct syi_program *p, int table, int64_t queries, int64_t keys, int bidirectional,
                    int64_t max_distance)
{
    if (!HAVE(p, table)) return -1;
    struct syi_tensor t = *at(p, table);
    int64_t dim[3] = {t.dim[0], queries, keys};
    uint8_t axis[3] = {t.axis[0], SYI_AXIS_LENGTH, SYI_AXIS_LENGTH};
    struct sy_attr_relpos attr = {bidirectional, max_distance};
    return EMIT(p, SY_OP_RELPOS_BIAS, syi_temp(p, t.dtype, 3, dim, axis), &attr, sizeof attr, table);
}

int syi_argmax(struct syi_program *p, int logits)
{
    if (!HAVE(p, logits)) return -1;
    struct syi_tensor t = *at(p, logits);
    return EMIT(p, SY_OP_ARGMAX, syi_temp(p, SY_I32, t.rank - 1, t.dim, t.axis), NULL, 0, logits);
}

void syi_output(struct syi_program *p, int tensor, const char *name)
{
    if (!HAVE(p, tensor)) return;
    struct syi_tensor *t = at(p, tensor);
    if (t->kind != SYI_TEMP) {
        BAD(p, "output %s: not a temporary", name);
        return;
    }
    t->kind = SYI_OUTPUT;
    syi_tensor_rename(p, tensor, name);
    memset(t->axis, SYI_AXIS_NONE, sizeof t->axis);
}
