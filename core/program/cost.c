/* SPDX-License-Identifier: Apache-2.0 */
/* Costs of ops: how arithmetic grows with the operands, and which operands are not touched whole. */
#include "config.h"

#include <string.h>

#include "program/cost.h"

enum rule {
    COPIES,    /* moves data only */
    ELEMENTS,  /* `flops` for each element of an operand */
    MAP,       /* instructions */
    PRODUCT,   /* 2 for each combination of the letters of ops.def */
    GROUPED,   /* the same over the filled slots */
    GATED,     /* as ELEMENTS, over the filled slots where there are counts */
    ATTENTION, /* `flops` for each visible (query, key) and column */
};

/* of: 0, 1, ... inputs, -1, -2, ... outputs, whose elements are counted; counts: input that says how many
 * slots are filled. Ops that are not listed copy. */
static const struct row {
    uint8_t rule;
    int8_t of, counts;
    uint8_t flops;
} table[SY_OP_COUNT] = {
    [SY_OP_MAP] = {MAP, -1, -1, 0},
    [SY_OP_BLOCK_SUM] = {ELEMENTS, 0, -1, 1},
    [SY_OP_BLOCK_SUMSQ] = {ELEMENTS, 0, -1, 2},
    [SY_OP_TREE_SUM] = {ELEMENTS, 0, -1, 1},
    [SY_OP_EMBED_GRAD] = {ELEMENTS, 1, -1, 1},
    [SY_OP_MATMUL] = {PRODUCT, 0, -1, 2},
    [SY_OP_MATMUL_NT] = {PRODUCT, 0, -1, 2},
    [SY_OP_MATMUL_TN] = {PRODUCT, 0, -1, 2},
    [SY_OP_GROUPED_MATMUL] = {GROUPED, 0, 2, 2},
    [SY_OP_GROUPED_MATMUL_NT] = {GROUPED, 0, 2, 2},
    [SY_OP_GROUPED_MATMUL_TN] = {GROUPED, 0, 2, 2},
    [SY_OP_RMS_NORM] = {ELEMENTS, 0, -1, 4},
    [SY_OP_RMS_NORM_GRAD] = {ELEMENTS, 0, -1, 10},
    [SY_OP_GLU] = {GATED, -1, 2, 10},
    [SY_OP_GLU_GRAD] = {GATED, 1, 3, 20},
    [SY_OP_ATTENTION] = {ATTENTION, -1, -1, 4},
    [SY_OP_ATTENTION_GRAD] = {ATTENTION, 6, -1, 10},
    [SY_OP_SOFTMAX] = {ELEMENTS, 0, -1, 5},
    [SY_OP_SOFTMAX_GRAD] = {ELEMENTS, 0, -1, 5},
    [SY_OP_XENT] = {ELEMENTS, 0, -1, 4},
    [SY_OP_XENT_GRAD] = {ELEMENTS, 0, -1, 4},
    [SY_OP_ROUTE] = {ELEMENTS, 0, -1, 1},
    [SY_OP_GATE] = {ELEMENTS, -1, -1, 2},
    [SY_OP_GATE_GRAD] = {ELEMENTS, 0, -1, 4},
    [SY_OP_DISPATCH_GRAD] = {ELEMENTS, -1, -1, 1},
    [SY_OP_COMBINE] = {ELEMENTS, -1, -1, 2},
    [SY_OP_COMBINE_GRAD] = {ELEMENTS, 4, -1, 3},
    [SY_OP_ROUTER_LOSS] = {ELEMENTS, 0, -1, 2},
    [SY_OP_ROUTER_LOSS_GRAD] = {ELEMENTS, -1, -1, 2},
    [SY_OP_ARGMAX] = {ELEMENTS, 0, -1, 1},
    [SY_OP_TREE_ADD] = {ELEMENTS, 0, -1, 1},
    [SY_OP_ROUTE_EXPERTS] = {ELEMENTS, 0, -1, 1},
    [SY_OP_COLUMN_SUM] = {ELEMENTS, 0, -1, 1},
    [SY_OP_TREE_AXIS] = {ELEMENTS, 0, -1, 1},
    [SY_OP_RELPOS_BIAS_GRAD] = {ELEMENTS, 0, -1, 1},
    [SY_OP_TOP_K] = {ELEMENTS, 0, -1, 1},
    [SY_OP_RAGGED_MATMUL] = {GROUPED, 0, 2, 2},
};

static int present(const struct sy_tensor *t)
{
    return t->rank > 0;
}

static double elements(const struct sy_tensor *t)
{
    double n = present(t) ? 1 : 0;
    for (int i = 0; i < t->rank; i++) n *= (double)t->dim[i];
    return n;
}

static double bytes_of(const struct sy_tensor *t)
{
    return present(t) ? elements(t) * (double)syi_dtype_bytes(t->dtype) : 0;
}

static const struct sy_tensor *operand(const struct sy_call *call, int of)
{
    return of < 0 ? &call->out[-of - 1] : &call->in[of];
}

static double all_bytes(const struct sy_call *call)
{
    double sum = 0;
    for (int i = 0; i < call->n_in; i++) sum += bytes_of(&call->in[i]);
    for (int i = 0; i < call->n_out; i++) sum += bytes_of(&call->out[i]);
    return sum;
}

/* ---- products ---- */

/* The product of the extents of all letters of an op's operands. */
static double combinations(const struct sy_call *call)
{
    char letters[SY_MAX_DIMS + 1], seen[32] = "";
    double n = 1;
    for (int output = 0, filled = 0; output < 2; output++)
        for (int i = 0; i < (output ? call->n_out : call->n_in); i++) {
            const struct sy_tensor *t = output ? &call->out[i] : &call->in[i];
            if (!present(t) || !syi_op_letters(call->op, output, i, t->rank, letters)) continue;
            for (int d = 0; letters[d] && d < t->rank; d++) {
                if (strchr(seen, letters[d]) || filled >= (int)sizeof seen - 1) continue;
                seen[filled++] = letters[d];
                n *= (double)t->dim[d];
            }
        }
    return n;
}

/* Shares that take part: of pairs of an expert and a slot, of the buffer's rows, of experts. The first two
 * are one where each expert has slots of its own; not knowing the counts, all rows are filled. */
struct filling {
    double slots, rows, experts;
};

static struct filling filling_of(const struct sy_tensor *counts, const struct sy_tensor *buffer)
{
    struct filling f = {1, 1, 1};
    if (!present(counts)) return f;
    f.slots = (double)buffer->dim[0] / (double)counts->dim[0];
    if (!counts->data) return f;
    const int32_t *count = counts->data;
    int64_t experts = counts->dim[0], groups = counts->dim[1], slots = 0, busy = 0;
    for (int64_t e = 0; e < experts; e++) {
        int64_t mine = 0;
        for (int64_t g = 0; g < groups; g++) mine += count[e * groups + g];
        slots += mine;
        busy += mine > 0;
    }
    f.rows = (double)slots / (double)(buffer->dim[0] * groups * buffer->dim[2]);
    f.slots *= f.rows;
    f.experts = (double)busy / (double)experts;
    return f;
}

/* Buffers are read and written where they are filled, weights of experts without tokens not at all; their
 * gradients are written whole. */
static double filled_bytes(const struct sy_call *call, struct filling f)
{
    double sum = 0;
    for (int i = 0; i < call->n_in; i++)
        sum += bytes_of(&call->in[i]) * (call->in[i].rank == 4   ? f.rows
                                         : call->in[i].rank == 3 ? f.experts
                                                                 : 1);
    for (int i = 0; i < call->n_out; i++)
        sum += bytes_of(&call->out[i]) * (call->out[i].rank == 4 ? f.rows : 1);
    return sum;
}

/* ---- attention ---- */

static int has_lengths(const struct sy_call *call, int index)
{
    return index < call->n_in && present(&call->in[index]) && call->in[index].data;
}

/* The length of a row; input `index` holds them, where it is there. */
static int64_t length_at(const struct sy_call *call, int index, int64_t row, int64_t most)
{
    if (!has_lengths(call, index)) return most;
    int64_t n = ((const int32_t *)call->in[index].data)[row];
    return n < 0 ? 0 : n < most ? n : most;
}

/* Pairs in a row of t queries and s keys. */
static double pairs(const struct sy_call *call, int64_t t, int64_t s)
{
    if (!((const struct sy_attr_attention *)call->attr)->causal || call->in[0].dim[1] == 1)
        return (double)t * (double)s;
    /* query i sees min(i + 1, s) keys */
    return t <= s ? (double)t * (double)(t + 1) / 2
                  : (double)s * (double)(s + 1) / 2 + (double)(t - s) * (double)s;
}

/* Pairs of a query and a key it may see; segments and dense masks hide none here. */
static double visible_pairs(const struct sy_call *call)
{
    int64_t rows = call->in[0].dim[0], queries = call->in[0].dim[1], keys = call->in[1].dim[1];
    double sum = 0;
    if (!has_lengths(call, 2) && !has_lengths(call, 3))
        return (double)rows * pairs(call, queries, keys); /* a plan may be of millions of rows */
    for (int64_t b = 0; b < rows; b++)
        sum += pairs(call, length_at(call, 2, b, queries), length_at(call, 3, b, keys));
    return sum;
}

/* A pack may hold more than is read of it: one h columns for q, two for k and v. */
static double attention_bytes(const struct sy_call *call, double columns)
{
    const struct sy_tensor *q = &call->in[0], *kv = &call->in[1];
    double positions = (double)q->dim[0] * ((double)q->dim[1] + 2 * (double)kv->dim[1]);
    return all_bytes(call) - bytes_of(q) - bytes_of(kv) +
           positions * columns * (double)syi_dtype_bytes(q->dtype);
}

/* ---- bytes of ops that do not touch an operand whole ---- */

static double traffic(const struct sy_call *call)
{
    switch (call->op) {
    case SY_OP_EMBED: return bytes_of(&call->in[0]) + 2 * bytes_of(&call->out[0]);
    case SY_OP_SLICE:
    case SY_OP_PART: return 2 * bytes_of(&call->out[0]);
    case SY_OP_CACHE_APPEND: return 2 * bytes_of(&call->in[1]);
    case SY_OP_WAIT: return 0;
    default: return all_bytes(call);
    }
}

struct syi_cost syi_call_cost(const struct sy_call *call)
{
    const struct row *row = &table[call->op];
    struct syi_cost cost = {.bytes = traffic(call),
                            .product =
                                row->rule == PRODUCT || row->rule == GROUPED || row->rule == ATTENTION};
    double columns = (double)operand(call, row->of)->dim[2]; /* of attention */
    struct filling f = {1, 1, 1};
    if (row->rule == GROUPED || (row->rule == GATED && call->n_in > row->counts)) {
        f = filling_of(&call->in[row->counts], &call->in[0]);
        cost.bytes = filled_bytes(call, f);
    }
    switch (row->rule) {
    case ELEMENTS:
    case GATED: cost.flops = row->flops * elements(operand(call, row->of)) * f.slots; break;
    case MAP: cost.flops = ((const struct sy_attr_map *)call->attr)->n_instr * elements(&call->out[0]); break;
    case PRODUCT:
    case GROUPED: cost.flops = row->flops * combinations(call) * f.slots; break;
    case ATTENTION:
        cost.flops = row->flops * visible_pairs(call) * columns;
        cost.bytes = attention_bytes(call, columns);
        break;
    default: break;
    }
    return cost;
}

struct syi_cost syi_op_cost(const struct syi_program *program, const struct syi_op *op)
{
    struct sy_tensor side[SY_MAX_IN + SY_MAX_OUT] = {0};
    for (int i = 0; i < op->n_in + op->n_out; i++) {
        int index = i < op->n_in ? op->in[i] : op->out[i - op->n_in];
        if (index < 0) continue;
        const struct syi_tensor *t = &program->tensor[index];
        side[i].dtype = t->dtype;
        side[i].rank = t->rank;
        memcpy(side[i].dim, t->dim, sizeof side[i].dim);
    }
    struct sy_call call = {.in = side,
                           .out = side + op->n_in,
                           .attr = syi_program_attr(program, op),
                           .attr_bytes = op->attr_bytes,
                           .op = op->op,
                           .n_in = op->n_in,
                           .n_out = op->n_out};
    return syi_call_cost(&call);
}
