/* SPDX-License-Identifier: Apache-2.0 */
/* What the ways to run a fast `map` or `map_sums` share: what an instruction does to vectors, and maps that are compiled
 * whole. */
#ifndef SYCPU_FAST_MAP_H
#define SYCPU_FAST_MAP_H

#include "backends/cpu/fast.h"
#include "backends/cpu/map.h"

/* The result of an instruction; with a constant op it is the few machine instructions of that op. c: register, or of
 * dropout and jitter b: their mask or factors. kind: enum sy_activation. */
static inline __attribute__((always_inline)) vf map_apply(int op, int kind, vf a, vf b, vf c, vf s)
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

/* ---- fast_map_whole.c ---- */

/* Where column 0 of the row at hand lies. */
struct fast_row {
    const float *in[SY_MAX_IN];
    float *out[SY_MAX_OUT];
};

/* Columns [begin, end) of a row; a flat map has one row. constant: of each register that is a single element, a value a
 * row or an immediate, by register: that value in all lanes, for this row. */
typedef void (*fast_whole_fn)(const struct fast_row *row, const vf *constant, int64_t begin, int64_t end);

/* The function that does all of this map, or map_sums, with its values in registers, NULL where there is none: then
 * instructions run one after the other. kind: enum map_kind of each input. */
fast_whole_fn fast_map_whole(const struct sy_call *call, const uint8_t *kind);

#endif
