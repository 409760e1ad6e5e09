/* SPDX-License-Identifier: Apache-2.0 */
/* Decoding a token a step: caches of keys and values, the choice of the next token. */
#include "config.h"

#include "program/ops/ops.h"

/* ---- recording ---- */

int syi_cache_append(struct syi_program *p, int cache, int piece, int position)
{
    if (!SYI_HAVE(p, cache, piece, position)) return -1;
    return SYI_EMIT(p, SY_OP_CACHE_APPEND, cache, NULL, 0, cache, piece, position);
}

int syi_top_k(struct syi_program *p, int x, int64_t k, int *index)
{
    *index = -1;
    if (!SYI_HAVE(p, x)) return -1;
    struct syi_tensor t = *syi_tensor_of(p, x);
    if (t.rank != 3 || k < 1 || k > t.dim[2])
        return SYI_BAD(p, "top_k: %lld of %lld elements", (long long)k, (long long)t.dim[2]);
    t.dim[2] = k;
    t.axis[2] = SYI_AXIS_CHOICE;
    int out[2] = {syi_temp(p, t.dtype, 3, t.dim, t.axis), syi_temp(p, SY_I32, 3, t.dim, t.axis)};
    *index = out[1];
    return out[1] < 0 || syi_op_add(p, SY_OP_TOP_K, 1, &x, 2, out, NULL, 0) ? -1 : out[0];
}

/* ---- check ---- */

static int check_top_k(struct syi_check *c)
{
    const struct syi_tensor *x = syi_check_in(c, 0), *best = syi_check_out(c, 0);
    return best->dim[2] > x->dim[2] ? syi_check_bad(c, "the best %lld of %lld elements",
                                                    (long long)best->dim[2], (long long)x->dim[2])
                                    : SY_OK;
}

/* ---- cost ---- */

/* One position of the cache. */
static void cost_append(const struct sy_call *call, struct syi_cost *cost)
{
    cost->bytes = 2 * syi_operand_bytes(&call->in[1]);
}

/* ---- rules ---- */

const struct syi_op_rules syi_op_rules_cache_append = {.cost = cost_append};
const struct syi_op_rules syi_op_rules_cache_gather = {0};
const struct syi_op_rules syi_op_rules_argmax = {.flops = 1};
const struct syi_op_rules syi_op_rules_top_k = {.check = check_top_k, .flops = 1};
