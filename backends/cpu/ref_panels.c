/* SPDX-License-Identifier: Apache-2.0 */
/* Weights laid out in panels, as products of bf16 read them (ops.h, backends/cpu/gemm.h): the reference. */
#include "config.h"

#include "backends/cpu/gemm.h"
#include "base/bf16.h"

struct laying {
    const sy_real *part[3];
    const int64_t *width; /* that each part gives to a block of columns */
    uint16_t *to;
    int64_t depth, columns; /* of what is laid out, of an expert */
    int64_t rows;           /* of the tensors: depth, or columns where they are transposed */
    int64_t block, blocks;  /* the widths' sum; how many there are in a row */
    int transposed;
};

/* An element of the tensors packed. */
static float element(const struct laying *l, int64_t expert, int64_t row, int64_t column)
{
    int part = 0;
    int64_t rest = column % l->block;
    while (rest >= l->width[part]) rest -= l->width[part++];
    int64_t place = (expert * l->rows + row) * l->blocks + column / l->block;
    return (float)l->part[part][place * l->width[part] + rest];
}

/* One panel. */
static void lay_panel(void *arg, int64_t task, int thread)
{
    const struct laying *l = arg;
    int64_t panels = l->columns / SY_PANEL_COLUMNS, expert = task / panels,
            first = task % panels * SY_PANEL_COLUMNS;
    uint16_t *to = l->to + task * l->depth * SY_PANEL_COLUMNS;
    (void)thread;
    for (int64_t k = 0; k < l->depth; k += 2)
        for (int64_t i = 0; i < 2 * SY_PANEL_COLUMNS; i++) {
            int64_t at = k + i % 2, column = first + i / 2;
            *to++ = syi_bf16_from_float(l->transposed ? element(l, expert, column, at)
                                                      : element(l, expert, at, column));
        }
}

static int lay_out(const struct sy_call *call, const struct sy_tensor *out, int transposed)
{
    const struct sy_tensor *first = &call->in[0];
    struct laying l = {.width = ((const struct sy_attr_pack *)call->attr)->width,
                       .to = out->data,
                       .depth = out->dim[out->rank - 2],
                       .columns = out->dim[out->rank - 3] * SY_PANEL_COLUMNS,
                       .rows = first->dim[first->rank - 2],
                       .transposed = transposed};
    l.blocks = first->dim[first->rank - 1] / l.width[0];
    for (int i = 0; i < 3 && call->in[i].data; i++) {
        l.part[i] = call->in[i].data;
        l.block += l.width[i];
    }
    sycpu_parallel(call, sycpu_extent(out, out->rank - 2), lay_panel, &l);
    return SY_OK;
}

SYCPU_REF_KERNEL(lay_out)
{
    (void)context;
    return lay_out(call, &call->out[0], 0);
}

SYCPU_REF_KERNEL(lay_out_nt)
{
    (void)context;
    return lay_out(call, &call->out[0], 1);
}

SYCPU_REF_KERNEL(lay_out_both)
{
    (void)context;
    int status = lay_out(call, &call->out[0], 0);
    return status ? status : lay_out(call, &call->out[1], 1);
}
