/* SPDX-License-Identifier: Apache-2.0 */
/* Products of four rows with a whole block of 64 columns that stay in registers for what follows them: macros that put element
 * (r, 16 c + lane) into s<r><c>, and sums over the lanes of four vectors at once. By vectors of 512 bits. */
#ifndef SYCPU_FAST_ATTENTION_FOUR_H
#define SYCPU_FAST_ATTENTION_FOUR_H

#include "backends/cpu/fast_attention.h"
#include "backends/cpu/fast_attention_rows.h"

struct four {
    const float *rows; /* r at rows + r * row */
    int64_t row;
    const float *columns; /* [steps, 64] */
    int64_t steps;
};

#define FOUR_BEGIN(r, c) vf s##r##c = vf_set(0.0f);
#define FOUR_PRODUCT(p)                                                                                      \
    EACH_OF_FOUR(FOUR_BEGIN)                                                                                 \
    FOUR_STEPS((p)->rows, (p)->row, 1, (p)->columns, SYCPU_KEY_BLOCK, (p)->steps, ROWS_4)

/* + 0, then the bias of each distance, which begins one before in each row. */
#define FOUR_PLUS_ZERO(r, c) s##r##c = vf_add(s##r##c, vf_set(0.0f));
#define FOUR_PLUS_BIAS(r, c) s##r##c = vf_add(s##r##c, vf_load(bias - r + c * SYCPU_LANES));
#define FOUR_SCORES(bias)                                                                                    \
    EACH_OF_FOUR(FOUR_PLUS_ZERO)                                                                             \
    if (bias) {                                                                                              \
        EACH_OF_FOUR(FOUR_PLUS_BIAS)                                                                         \
    }

/* ---- what four rows have each, in four lanes a row ---- */

static inline vf four_load(const float *p)
{
    const vi row = _mm512_set_epi32(3, 3, 3, 3, 2, 2, 2, 2, 1, 1, 1, 1, 0, 0, 0, 0);
    return _mm512_permutexvar_ps(row, _mm512_castps128_ps512(_mm_loadu_ps(p)));
}
static inline void four_store(float *p, vf v)
{
    const vi lane = _mm512_set_epi32(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 12, 8, 4, 0);
    _mm_storeu_ps(p, _mm512_castps512_ps128(_mm512_permutexvar_ps(lane, v)));
}

/* Over the lanes of each of four rows, in the order of rows_sum. */
#define FOUR_FOLD(name, op)                                                                                  \
    static inline vf name(vf a, vf b, vf c, vf d)                                                            \
    {                                                                                                        \
        vf ab = op(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee));                      \
        vf cd = op(_mm512_shuffle_f32x4(c, d, 0x44), _mm512_shuffle_f32x4(c, d, 0xee));                      \
        vf all = op(_mm512_shuffle_f32x4(ab, cd, 0x88), _mm512_shuffle_f32x4(ab, cd, 0xdd));                 \
        all = op(all, _mm512_permute_ps(all, 0x4e));                                                         \
        return op(all, _mm512_permute_ps(all, 0xb1));                                                        \
    }
FOUR_FOLD(four_sum, vf_add)
FOUR_FOLD(four_top, vf_max)
#undef FOUR_FOLD

#endif
