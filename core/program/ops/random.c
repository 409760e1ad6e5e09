/* SPDX-License-Identifier: Apache-2.0 */
/* Random numbers that are no factor of an elementwise op (map.c has dropout and jitter): normal. */
#include "config.h"

#include "program/ops/ops.h"

/* ---- recording ---- */

int syi_normal(struct syi_program *p, int like, int rng, int site)
{
    if (!SYI_HAVE(p, like, rng)) return -1;
    struct syi_tensor t = *syi_tensor_of(p, like);
    if (site < 0) return SYI_BAD(p, "normal: site %d", site);
    /* Passes cut dims; the address of an element needs them whole. */
    struct sy_attr_normal attr = {site, {t.dim[1], t.dim[2], t.dim[3]}};
    return SYI_EMIT(p, SY_OP_NORMAL, syi_temp(p, syi_sum_dtype(t.dtype), t.rank, t.dim, t.axis), &attr,
                    sizeof attr, like, rng);
}

/* ---- check ---- */

static int check_normal(struct syi_check *c)
{
    if (c->op->n_in != 2 || c->op->n_out != 1)
        return syi_check_bad(c, "%d inputs and %d outputs", c->op->n_in, c->op->n_out);
    const struct sy_attr_normal *attr = syi_program_attr(c->program, c->op);
    const struct syi_tensor *like = syi_check_in(c, 0), *rng = syi_check_in(c, 1), *y = syi_check_out(c, 0);
    if (like->rank != y->rank || memcmp(like->dim, y->dim, sizeof y->dim))
        return syi_check_bad(c, "the output has another shape");
    if (syi_tensor_count(rng) != 4) return syi_check_bad(c, "the rng state is not [4]");
    if (attr->site < 0 || attr->site > UINT32_MAX)
        return syi_check_bad(c, "site %lld", (long long)attr->site);
    for (int i = 1; i + 1 < y->rank; i++)
        if (attr->extent[i - 1] < 1 || attr->extent[i - 1] % y->dim[i])
            return syi_check_bad(c, "dim %d is %lld of %lld", i, (long long)y->dim[i],
                                 (long long)attr->extent[i - 1]);
    return SY_OK;
}

/* ---- cost ---- */

/* The values of `like` are not read. */
static void cost_written(const struct sy_call *call, struct syi_cost *cost)
{
    cost->bytes = syi_operand_bytes(&call->out[0]);
}

/* ---- rules ---- */

/* A quarter of ten rounds and half of log, sqrt, sin and cos. */
const struct syi_op_rules syi_op_rules_normal = {
    .check = check_normal, .flops = 40, .of = -1, .cost = cost_written};
