/* SPDX-License-Identifier: Apache-2.0 */
/* What the reference and the fast `map` share: how an operand is broadcast, and where dropout and jitter
 * find their addresses. */
#ifndef SYCPU_MAP_H
#define SYCPU_MAP_H

#include "backends/cpu/cpu.h"

#define MAP_MAX_REGISTERS (SY_MAX_IN + SY_MAP_MAX_INSTR)

/* Registers an instruction reads: a; a and b; a, b and c. */
static const uint8_t map_arguments[SY_MAP_COUNT] = {
#define SY_MAP(id, NAME, name, arguments, help) [id] = (arguments),
#include "switchyard/maps.def"
#undef SY_MAP
};

enum map_kind {
    MAP_FULL,   /* the shape of the output */
    MAP_ONE,    /* one element */
    MAP_ROW,    /* one value a row: all dims but the last (or the last one is 1) */
    MAP_COLUMN, /* one value a column: the last dim only; wins over MAP_ROW where both fit, [n] with [n, n] */
    MAP_SPREAD  /* any other tensor of the output's rank whose extents are the output's or 1 */
};

static inline enum map_kind map_kind(const struct sy_tensor *in, const struct sy_tensor *out)
{
    int64_t n = sycpu_count(in);
    if (n == sycpu_count(out)) return MAP_FULL;
    if (n == 1) return MAP_ONE;
    int last = out->rank - 1, ranks = in->rank;
    if ((ranks == 1 || ranks == out->rank) && in->dim[ranks - 1] == n && n == out->dim[last])
        return MAP_COLUMN;
    if (ranks == out->rank && (in->dim[last] > 1 || n != sycpu_extent(out, last))) return MAP_SPREAD;
    return MAP_ROW;
}

/* What an operand is within a row: MAP_SPREAD is one of the others there. */
static inline enum map_kind map_kind_in_row(const struct sy_tensor *in, int kind)
{
    if (kind != MAP_SPREAD) return (enum map_kind)kind;
    return in->dim[in->rank - 1] > 1 ? MAP_COLUMN : MAP_ROW;
}

/* Element of a MAP_SPREAD operand that belongs to the first column of a row of the output. */
static inline int64_t map_spread_begin(const struct sy_tensor *in, const struct sy_tensor *out, int64_t row)
{
    int64_t at = 0, stride = in->dim[in->rank - 1];
    for (int d = out->rank - 2; d >= 0; d--) {
        if (in->dim[d] > 1) at += row % out->dim[d] * stride;
        row /= out->dim[d];
        stride *= in->dim[d];
    }
    return at;
}

/* Rows of the last dim that share one dropout mask: those that differ in the dim before it only. */
static inline int64_t map_mask_rows(const struct sy_tensor *out)
{
    return out->rank > 2 ? out->dim[out->rank - 2] : 1;
}

/* Address of the mask of group i of such rows. */
static inline void map_mask_address(const struct sy_tensor *out, const int64_t *rng, int64_t i, uint32_t *row,
                                    uint32_t *position)
{
    int64_t g = out->rank < 2 ? 0 : i;
    *position = 0;
    if (out->rank == 4) {
        *row = (uint32_t)(out->first[1] + g % out->dim[1] + rng[SY_RNG_GROUP0]);
        *position = (uint32_t)(out->first[0] + g / out->dim[1]);
    } else {
        *row = (uint32_t)((out->rank < 2 ? 0 : out->first[0]) + g + rng[SY_RNG_ROW0]);
    }
}

/* Address of the factors of a row; unlike a mask's it has the position. The rank is at most 3. */
static inline void map_jitter_address(const struct sy_tensor *out, const int64_t *rng, int64_t i,
                                      uint32_t *row, uint32_t *position)
{
    int64_t positions = out->rank == 3 ? out->dim[1] : 1;
    *row = (uint32_t)((out->rank < 2 ? 0 : out->first[0]) + i / positions + rng[SY_RNG_ROW0]);
    *position = (uint32_t)(out->rank == 3 ? out->first[1] + i % positions : 0);
}

#endif
