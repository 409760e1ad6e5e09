/* SPDX-License-Identifier: Apache-2.0 */
/* Weights laid out in panels, as products of bf16 read them (ops.h, backends/cpu/gemm.h). Done once for many products, so
 * all variants have this one. */
#include "config.h"

#include "backends/cpu/gemm.h"
#include "base/bf16.h"

struct laying {
    const sy_real *part[3];
    const int64_t *width; /* that each part gives to a block of columns */
    uint16_t *to;
    int64_t depth, columns; /* of what is laid out, of an expert */
    int64_t block;          /* the widths' sum */
    int64_t blocks;
};

/* Where column `at` of all comes from: the part, and its column there. */
static int find_column(const struct laying *l, int64_t at, int64_t *column)
{
    int part = 0;
    int64_t rest = at % l->block;
    while (rest >= l->width[part]) rest -= l->width[part++];
    *column = at / l->block * l->width[part] + rest;
    return part;
}

/* One panel. */
static void lay_panel(void *arg, int64_t task, int thread)
{
    const struct laying *l = arg;
    int64_t panels = l->columns / SY_PANEL_COLUMNS, expert = task / panels,
            first = task % panels * SY_PANEL_COLUMNS;
    const sy_real *from[SY_PANEL_COLUMNS];
    int64_t stride[SY_PANEL_COLUMNS];
    uint16_t *to = l->to + task * l->depth * SY_PANEL_COLUMNS;
    (void)thread;
    for (int64_t i = 0, column; i < SY_PANEL_COLUMNS; i++) {
        int part = find_column(l, first + i, &column);
        stride[i] = l->width[part] * l->blocks;
        from[i] = l->part[part] + expert * l->depth * stride[i] + column;
    }
    for (int64_t k = 0; k < l->depth; k += 2)
        for (int i = 0; i < SY_PANEL_COLUMNS; i++) {
            *to++ = syi_bf16_from_float((float)from[i][k * stride[i]]);
            *to++ = syi_bf16_from_float((float)from[i][(k + 1) * stride[i]]);
        }
}

/* One panel of a transposed matrix. */
static void lay_rows(void *arg, int64_t task, int thread)
{
    const struct laying *l = arg;
    const sy_real *from = l->part[0] + task * SY_PANEL_COLUMNS * l->depth;
    uint16_t *to = l->to + task * l->depth * SY_PANEL_COLUMNS;
    (void)thread;
    for (int64_t k = 0; k < l->depth; k += 2)
        for (int i = 0; i < SY_PANEL_COLUMNS; i++) {
            *to++ = syi_bf16_from_float((float)from[i * l->depth + k]);
            *to++ = syi_bf16_from_float((float)from[i * l->depth + k + 1]);
        }
}

static struct laying laying_of(const struct sy_call *call)
{
    const struct sy_tensor *out = &call->out[0];
    return (struct laying){.to = out->data,
                           .depth = out->dim[out->rank - 2],
                           .columns = out->dim[out->rank - 3] * SY_PANEL_COLUMNS};
}

SYCPU_REF_KERNEL(lay_out)
{
    struct laying l = laying_of(call);
    const struct sy_tensor *first = &call->in[0];
    (void)context;
    l.width = ((const struct sy_attr_pack *)call->attr)->width;
    l.blocks = first->dim[first->rank - 1] / l.width[0];
    for (int i = 0; i < 3 && call->in[i].data; i++) {
        l.part[i] = call->in[i].data;
        l.block += l.width[i];
    }
    sycpu_parallel(call, sycpu_extent(&call->out[0], call->out[0].rank - 2), lay_panel, &l);
    return SY_OK;
}

SYCPU_REF_KERNEL(lay_out_nt)
{
    struct laying l = laying_of(call);
    (void)context;
    l.part[0] = call->in[0].data;
    sycpu_parallel(call, call->out[0].dim[0], lay_rows, &l);
    return SY_OK;
}
