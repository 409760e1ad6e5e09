/* SPDX-License-Identifier: Apache-2.0 */
/* What the ways to run a fast `map` or `map_sums` share: what an instruction does to vectors, and maps that are compiled
 * whole. */
#ifndef SYCPU_FAST_MAP_H
#define SYCPU_FAST_MAP_H

#include "backends/cpu/fast_top.h"
#include "backends/cpu/map.h"

/* The result of an instruction; with a constant op it is the few machine instructions of that op. c: register, or of
 * dropout and jitter b: their mask or factors. kind: enum sy_activation. */
ALWAYS_INLINE vf map_apply(int op, int kind, vf a, vf b, vf c, vf s)
{
    const vf zero = vf_set(0.0f), one = vf_set(1.0f);
    switch (op) {
    case SY_MAP_ADD: return vf_add(a, b);
    case SY_MAP_SUB: return vf_sub(a, b);
    case SY_MAP_MUL: return vf_mul(a, b);
    case SY_MAP_DIV: return vf_div(a, b);
    case SY_MAP_FMA: return vf_fma(a, b, c);
    case SY_MAP_ADDS: return vf_add(a, s);
    case SY_MAP_MULS: return vf_mul(a, s);
    case SY_MAP_NEG: return vf_sub(vf_set(-0.0f), a);
    case SY_MAP_MAX: return vf_max(a, b);
    case SY_MAP_MIN: return vf_min(a, b);
    case SY_MAP_SQRT: return vf_sqrt(a);
    case SY_MAP_RSQRT: return vf_div(one, vf_sqrt(a));
    case SY_MAP_EXP: return vf_exp(a);
    case SY_MAP_LOG: return vf_log(a);
    case SY_MAP_TANH: return vf_tanh(a);
    case SY_MAP_SELECT: return vf_select(vf_differs(a, zero), b, c);
    case SY_MAP_FINITE: return vf_select(vf_differs(vf_sub(a, a), zero), zero, one);
    case SY_MAP_LESS: return vf_select(vf_less(a, b), one, zero);
    case SY_MAP_DROPOUT: return vf_drop(a, b);
    case SY_MAP_JITTER: return vf_mul(a, b);
    case SY_MAP_ACTIVATION: return vf_activation(a, kind);
    case SY_MAP_ACTIVATION_GRAD: return vf_mul(b, vf_activation_grad(a, kind));
    case SY_MAP_CONST: return s;
    default: return a;
    }
}

/* ---- fast_map.c ---- */

/* Where the values of a register lie for the columns at hand: element i at p[i * step]. */
struct fast_operand {
    const float *p;
    int64_t step; /* 1, or 0: p holds 16 equal values */
};
/* One instruction over `count` columns. c: a register's, or of dropout and jitter b: their mask or factors. */
void fast_map_compute(const struct sy_map_instr *instr, struct fast_operand a, struct fast_operand b,
                      struct fast_operand c, int64_t count, float *y);

/* ---- sums of blocks, of map_sums ---- */

/* What becomes of an output's values. */
enum fast_out { FAST_OUT_STORE, FAST_OUT_SUM, FAST_OUT_SQUARES, FAST_OUT_MAX };

/* A block's part of a row as it comes, 16 lanes; begins with zeros. */
struct fast_lanes {
    vf sum; /* or, of magnitudes, fast_top.h: */
    struct fast_top top;
};

/* Takes the first n lanes of x in. out: enum fast_out, a constant. */
ALWAYS_INLINE void fast_lanes_take(struct fast_lanes *lanes, int out, vf x, int64_t n)
{
    if (out == FAST_OUT_MAX) {
        fast_top_take(&lanes->top,
                      fast_magnitude(n == SYCPU_LANES ? x : vf_select(vf_first(n), x, vf_set(0.0f))));
        return;
    }
    vf more = out == FAST_OUT_SQUARES ? vf_fma(x, x, lanes->sum) : vf_add(lanes->sum, x);
    lanes->sum = n == SYCPU_LANES ? more : vf_select(vf_first(n), more, lanes->sum);
}

/* Adds the row's part to its block. */
ALWAYS_INLINE void fast_lanes_add(const struct fast_lanes *lanes, int out, float *block)
{
    if (out == FAST_OUT_MAX) {
        float row = fast_top_lane(&lanes->top), most = *block;
        *block = most != most || row < most ? most : row; /* a NaN is less than nothing */
    } else {
        *block += vf_sum(lanes->sum);
    }
}

/* Larger of two magnitudes; NaN if one is NaN. */
static inline vf fast_larger(vf a, vf b)
{
    struct fast_top top = {a, vf_select(vf_differs(a, a), a, vf_set(0.0f))};
    fast_top_take(&top, b);
    return fast_top_result(&top);
}

/* Blocks one column wide: their chains run next to each other. */
ALWAYS_INLINE void fast_narrow_add(float *blocks, int out, vf x, int64_t n)
{
    vf old = fast_load(blocks, n);
    fast_store(blocks,
               out == FAST_OUT_MAX ? fast_larger(old, fast_magnitude(x))
                                   : vf_add(old, out == FAST_OUT_SQUARES ? vf_mul(x, x) : x),
               n);
}

/* ---- fast_map_whole.c ---- */

/* Where column 0 of the row at hand lies; of an output that gathers blocks wider than one column, the block of the first
 * column that is asked for. */
struct fast_row {
    const float *in[SY_MAX_IN]; /* of input `half` bfloat16 */
    int half;                   /* the one in bfloat16; -1: none */
    float *out[SY_MAX_OUT];     /* of the float32 outputs, in their order */
    int copied;     /* that of these which the output in bfloat16 holds as well; -1: there is none */
    uint16_t *copy; /* its row */
    int64_t wide;   /* columns of such a block; a map's row is one */
};

/* Columns [begin, end) of a row, whole blocks; a flat map has one row. constant: of each register that is a single element,
 * a value a row or an immediate, by register: that value in all lanes, for this row. */
typedef void (*fast_whole_fn)(const struct fast_row *row, const vf *constant, int64_t begin, int64_t end);

enum { FAST_NARROW = 4 }; /* added to an enum fast_out: blocks are one column wide */

/* The function that does all of this map, or map_sums, with its values in registers, NULL where there is none: then
 * instructions run one after the other. kind: enum map_kind of each input. out: enum fast_out of each output; one in
 * bfloat16 must hold what a float32 one does. */
fast_whole_fn fast_map_whole(const struct sy_call *call, const uint8_t *kind, const uint8_t *out);

/* What is the same for all rows. */
void fast_whole_begin(const struct sy_call *call, const uint8_t *kind, struct fast_row *at, vf *constant);
/* Inputs, the copy and constants of a row of so many columns. shape: that of all elements. */
void fast_whole_row(const struct sy_call *call, const uint8_t *kind, const struct sy_tensor *shape,
                    int64_t row, int64_t columns, struct fast_row *at, vf *constant);

#endif
