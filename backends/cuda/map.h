/* SPDX-License-Identifier: Apache-2.0 */
/* The interpreter of elementwise instructions that map and map_sums share. A thread takes four columns of a row at a time.
 * Its registers are in shared memory, its own ones, so no thread waits: sycuda_map_of gives a register a place only while it
 * is needed, chains of the optimizers take about ten. The decoded instructions come as the kernel's parameter, which
 * every thread reads at the same place at once.
 *
 * An instruction costs three accesses of 16 bytes a thread to shared memory, so maps of up to about twenty
 * instructions take the time of their operands. Compiling a map at bind (NVRTC) would keep registers in registers and
 * drop the decoding: worth it for longer ones only. */
#ifndef SYCUDA_MAP_H
#define SYCUDA_MAP_H

#include "backends/cuda/four.h"

enum {
    SYCUDA_MAP_SHARED = 48 << 10 /* bytes of shared memory that a block has */,
    SYCUDA_MAP_OUTER = SY_MAX_DIMS - 1
};

/* ---- what a kernel gets ---- */

struct sycuda_map_operand {
    const void *data;
    int64_t row_step; /* elements from one row of the output to the next */
    int64_t stride
        [SYCUDA_MAP_OUTER]; /* spread: along each dim of the output but the last, the last of them at the end */
    uint8_t spread;         /* 1: stride counts, not row_step */
    uint8_t column_step;    /* 0 or 1 */
    uint8_t dtype, place;
};
struct sycuda_map_result {
    void *data;
    uint8_t dtype, place;
};
struct sycuda_map_step {
    uint8_t op, y, a, b, c; /* places of registers; c: or the activation */
    float s;                /* immediate; of a dropout the scale of what is kept */
    uint32_t site, threshold;
};

/* Where dropout and jitter find their addresses. */
struct sycuda_map_addresses {
    const int64_t *rng;
    int64_t first[SY_MAX_DIMS], channel; /* of the output; first of the last dim */
    int64_t mask_rows;                   /* rows that share a mask */
    int64_t dim1;
    int rank;
};

struct sycuda_map {
    int64_t rows, columns, fours;    /* of the values; of a row */
    int64_t outer[SYCUDA_MAP_OUTER]; /* extents of their dims but the last, as operand.stride */
    struct sycuda_map_addresses addresses;
    int n_in, n_out, n_steps, any_spread;
    int aligned; /* fours begin at multiples of four elements */
    int places;  /* registers that a thread needs */
    struct sycuda_map_operand in[SY_MAX_IN];
    struct sycuda_map_result out[SY_MAX_OUT];
    struct sycuda_map_step step[SY_MAP_MAX_INSTR];
};
static_assert(sizeof(struct sycuda_map) <= 4096, "a kernel's parameters are at most 4 KB");

/* ---- values ---- */

/* The registers of a thread. */
struct sycuda_map_registers {
    sycuda_four *first;
    unsigned stride;
};
__device__ static inline sycuda_four sycuda_map_get(const struct sycuda_map_registers &r, int place)
{
    return r.first[(unsigned)place * r.stride];
}
__device__ static inline void sycuda_map_set(const struct sycuda_map_registers &r, int place,
                                             const sycuda_four &value)
{
    r.first[(unsigned)place * r.stride] = value;
}

template <class Fn>
__device__ static inline void sycuda_map_one(const struct sycuda_map_registers &r,
                                             const struct sycuda_map_step &step, Fn fn)
{
    const sycuda_four a = sycuda_map_get(r, step.a);
    sycuda_four y;
    for (int e = 0; e < SYCUDA_FOUR; e++) y.v[e] = fn(a.v[e]);
    sycuda_map_set(r, step.y, y);
}
template <class Fn>
__device__ static inline void sycuda_map_two(const struct sycuda_map_registers &r,
                                             const struct sycuda_map_step &step, Fn fn)
{
    const sycuda_four a = sycuda_map_get(r, step.a), b = sycuda_map_get(r, step.b);
    sycuda_four y;
    for (int e = 0; e < SYCUDA_FOUR; e++) y.v[e] = fn(a.v[e], b.v[e]);
    sycuda_map_set(r, step.y, y);
}
template <class Fn>
__device__ static inline void sycuda_map_three(const struct sycuda_map_registers &r,
                                               const struct sycuda_map_step &step, Fn fn)
{
    const sycuda_four a = sycuda_map_get(r, step.a), b = sycuda_map_get(r, step.b),
                      c = sycuda_map_get(r, step.c);
    sycuda_four y;
    for (int e = 0; e < SYCUDA_FOUR; e++) y.v[e] = fn(a.v[e], b.v[e], c.v[e]);
    sycuda_map_set(r, step.y, y);
}

/* As map_mask_address of the CPU: doc/numerics.md, Random bits. */
__device__ static inline void sycuda_map_drop(const struct sycuda_map_registers &r,
                                              const struct sycuda_map_step &step,
                                              const struct sycuda_map_addresses &at, int64_t row,
                                              int64_t column)
{
    const struct syi_dropout dropout = {{0, step.site}, 0, step.threshold, step.s};
    const int64_t group = at.rank < 2 ? 0 : row / at.mask_rows;
    uint32_t position = 0, address;
    if (at.rank == 4) {
        address = (uint32_t)(at.first[1] + group % at.dim1 + at.rng[SY_RNG_GROUP0]);
        position = (uint32_t)(at.first[0] + group / at.dim1);
    } else {
        address = (uint32_t)((at.rank < 2 ? 0 : at.first[0]) + group + at.rng[SY_RNG_ROW0]);
    }
    const sycuda_four mask = sycuda_four_masks(dropout, at.rng, address, position, at.channel + column);
    sycuda_four y = sycuda_map_get(r, step.a);
    for (int e = 0; e < SYCUDA_FOUR; e++) y.v[e] = SYI_DROP(y.v[e], mask.v[e]);
    sycuda_map_set(r, step.y, y);
}

/* As map_jitter_address of the CPU. */
__device__ static inline void sycuda_map_jitter(const struct sycuda_map_registers &r,
                                                const struct sycuda_map_step &step,
                                                const struct sycuda_map_addresses &at, int64_t row,
                                                int64_t column)
{
    const int64_t positions = at.rank == 3 ? at.dim1 : 1;
    const int64_t first = at.rank < 2 ? 0 : at.first[0];
    const uint32_t key[2] = {(uint32_t)at.rng[SY_RNG_SEED], step.site};
    const uint32_t counter[3] = {(uint32_t)at.rng[SY_RNG_STEP],
                                 (uint32_t)(first + row / positions + at.rng[SY_RNG_ROW0]),
                                 (uint32_t)(at.rank == 3 ? at.first[1] + row % positions : 0)};
    uint32_t bits[4];
    sycuda_four_bits(counter, key, at.channel + column, bits);
    sycuda_four y = sycuda_map_get(r, step.a);
    for (int e = 0; e < SYCUDA_FOUR; e++) y.v[e] *= syi_jitter_factor(step.s, bits[e]);
    sycuda_map_set(r, step.y, y);
}

__device__ static inline int sycuda_map_is_finite(float a)
{
    return (syi_f32_bits(a) & 0x7f800000) != 0x7f800000;
}

__device__ static inline void sycuda_map_execute(const struct sycuda_map_registers &r,
                                                 const struct sycuda_map_step &step)
{
    const float s = step.s;
    const int kind = step.c;
    switch (step.op) {
    case SY_MAP_CONST: sycuda_map_set(r, step.y, sycuda_four{{s, s, s, s}}); break;
    case SY_MAP_ADD: sycuda_map_two(r, step, [](float a, float b) { return a + b; }); break;
    case SY_MAP_SUB: sycuda_map_two(r, step, [](float a, float b) { return a - b; }); break;
    case SY_MAP_MUL: sycuda_map_two(r, step, [](float a, float b) { return a * b; }); break;
    case SY_MAP_DIV: sycuda_map_two(r, step, [](float a, float b) { return a / b; }); break;
    case SY_MAP_FMA:
        sycuda_map_three(r, step, [](float a, float b, float c) { return fmaf(a, b, c); });
        break;
    case SY_MAP_ADDS: sycuda_map_one(r, step, [=](float a) { return a + s; }); break;
    case SY_MAP_MULS: sycuda_map_one(r, step, [=](float a) { return a * s; }); break;
    case SY_MAP_NEG: sycuda_map_one(r, step, [](float a) { return -a; }); break;
    case SY_MAP_MAX: sycuda_map_two(r, step, [](float a, float b) { return a > b ? a : b; }); break;
    case SY_MAP_MIN: sycuda_map_two(r, step, [](float a, float b) { return a < b ? a : b; }); break;
    case SY_MAP_SQRT: sycuda_map_one(r, step, [](float a) { return sqrtf(a); }); break;
    case SY_MAP_RSQRT: sycuda_map_one(r, step, [](float a) { return 1 / sqrtf(a); }); break;
    case SY_MAP_EXP: sycuda_map_one(r, step, [](float a) { return syi_f32_exp(a); }); break;
    case SY_MAP_LOG: sycuda_map_one(r, step, [](float a) { return syi_f32_log(a); }); break;
    case SY_MAP_TANH: sycuda_map_one(r, step, [](float a) { return syi_f32_tanh(a); }); break;
    case SY_MAP_SELECT:
        sycuda_map_three(r, step, [](float a, float b, float c) { return a != 0 ? b : c; });
        break;
    case SY_MAP_FINITE:
        sycuda_map_one(r, step, [](float a) { return sycuda_map_is_finite(a) ? 1.0f : 0.0f; });
        break;
    case SY_MAP_LESS: sycuda_map_two(r, step, [](float a, float b) { return a < b ? 1.0f : 0.0f; }); break;
    case SY_MAP_ACTIVATION:
        sycuda_map_one(r, step, [=](float a) { return syi_f32_activation(a, kind); });
        break;
    case SY_MAP_ACTIVATION_GRAD:
        sycuda_map_two(r, step, [=](float a, float b) { return b * syi_f32_activation_grad(a, kind); });
        break;
    default: sycuda_map_one(r, step, [](float a) { return a; });
    }
}

/* Element of an operand that belongs to the first column of a row. at: the row's place in the output's outer dims. */
__device__ static inline int64_t sycuda_map_row_begin(const struct sycuda_map_operand &in, int64_t row,
                                                      const int64_t at[SYCUDA_MAP_OUTER])
{
    if (!in.spread) return in.row_step * row;
    int64_t begin = 0;
    for (int d = 0; d < SYCUDA_MAP_OUTER; d++) begin += at[d] * in.stride[d];
    return begin;
}

__device__ static inline sycuda_four sycuda_map_load(const struct sycuda_map_operand &in, int64_t begin,
                                                     int64_t column, int n, int aligned)
{
    if (in.column_step) return sycuda_read_any(in.data, in.dtype, begin + column, n, aligned);
    const float x = sycuda_read_any(in.data, in.dtype, begin, 1, 0).v[0];
    return sycuda_four{{x, x, x, x}};
}

/* The values of n columns from `column` on of a row, at most four: the instructions leave them in the registers. */
__device__ static inline void sycuda_map_values(const struct sycuda_map &p,
                                                const struct sycuda_map_registers &r, int64_t row,
                                                int64_t column, int n)
{
    int64_t at[SYCUDA_MAP_OUTER] = {0}, rest = row;
    for (int d = SYCUDA_MAP_OUTER - 1; d >= 0 && p.any_spread; d--) {
        at[d] = rest % p.outer[d];
        rest /= p.outer[d];
    }
    for (int k = 0; k < p.n_in; k++)
        sycuda_map_set(
            r, p.in[k].place,
            sycuda_map_load(p.in[k], sycuda_map_row_begin(p.in[k], row, at), column, n, p.aligned));
    for (int k = 0; k < p.n_steps; k++) {
        if (p.step[k].op == SY_MAP_DROPOUT)
            sycuda_map_drop(r, p.step[k], p.addresses, row, column);
        else if (p.step[k].op == SY_MAP_JITTER)
            sycuda_map_jitter(r, p.step[k], p.addresses, row, column);
        else
            sycuda_map_execute(r, p.step[k]);
    }
}
/* Writes the values of output `out` after sycuda_map_values. */
__device__ static inline void sycuda_map_store(const struct sycuda_map &p,
                                               const struct sycuda_map_registers &r, int out, int64_t row,
                                               int64_t column, int n)
{
    sycuda_write_any(p.out[out].data, p.out[out].dtype, row * p.columns + column,
                     sycuda_map_get(r, p.out[out].place), n, p.aligned);
}

/* ---- making the parameter (map.cu) ---- */

/* Of a call whose values have this shape; `fours` and `aligned` are the caller's. */
struct sycuda_map sycuda_map_of(const struct sy_call *call, const struct sy_tensor *shape);

#endif
