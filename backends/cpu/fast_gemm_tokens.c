/* SPDX-License-Identifier: Apache-2.0 */
/* x^T y of an expert that has few tokens, with the bits of matrix tiles (amx_tile.h) but by vectors: a tile takes as long for a leaf
 * of 2 tokens as for one of 32. All is computed in the mode of tiles, where denormals count as zero; the tree over leaves knows no
 * such mode, but as long as no result is that small there is no difference, and the processor tells when one was. */
#include "config.h"

#include "backends/cpu/fast_gemm_parts.h"
#include "backends/cpu/tile_chains.h"

#define GROUP_PANELS 8 /* of B, which with a panel of A stay in the L1 cache */
#define MOST_TOKENS  (SHALLOW_TOKENS * SHALLOW_LEAVES)

/* Elements of each leaf; gives the sum, or more than there may be. */
static int64_t measure(const struct sycpu_gemm_plan *plan, int64_t expert, int64_t *length)
{
    int64_t sum = 0;
    for (int64_t leaf = 0; leaf < plan->gemm.leaves; leaf++) {
        length[leaf] = fast_gemm_leaf_length(&plan->gemm, expert, leaf);
        sum += length[leaf] > TILE_ELEMENTS ? plan->tokens + 1 : length[leaf];
    }
    return sum;
}

/* n elements as floats, `width` of them, at most two vectors, to each panel; what does not exist is zero, for what it gives must not
 * count as small. */
static void widen(const operand *from, int64_t n, int width, float *to, int64_t panel)
{
    for (; n > 0; from += width, n -= width, to += panel) {
        const __mmask32 some = n < 2 * LANES ? (1u << n) - 1 : ~0u;
        const __m512i words = _mm512_maskz_loadu_epi16(some, from),
                      low = _mm512_cvtepu16_epi32(_mm512_castsi512_si256(words)),
                      high = _mm512_cvtepu16_epi32(_mm512_extracti64x4_epi64(words, 1));
        vec_store(to, (vec)_mm512_slli_epi32(low, 16));
        vec_store(to + LANES, (vec)_mm512_slli_epi32(high, 16));
    }
}

/* In the mode of tiles. */
static void compute_panels(const struct sycpu_gemm_plan *plan, const int64_t *length, int64_t tokens,
                           int64_t rows, int64_t panels, struct sycpu_gemm_tile tile)
{
    const int64_t size = c_element(plan);
    const float *a = tile.a, *b = tile.b;
    char *c = tile.c;
    for (int64_t group = 0; group < panels; group += GROUP_PANELS) {
        for (int64_t row = 0; row < rows; row += SHALLOW_ROWS) {
            tile.a = a + row / SHALLOW_ROWS * a_token_panel(tokens);
            tile.height = (int)least(SHALLOW_ROWS, rows - row);
            tile.b = b + group * b_panel_size(tokens);
            tile.c = c + (row * tile.c_stride + group * TILE_COLUMNS) * size;
            fast_gemm_shallow(&tile, plan->gemm.leaves, length, least(GROUP_PANELS, panels - group));
        }
    }
}
static void (*const volatile compute)(const struct sycpu_gemm_plan *, const int64_t *, int64_t, int64_t,
                                      int64_t, struct sycpu_gemm_tile) = compute_panels;

int fast_gemm_compute_tokens(const struct sycpu_gemm_plan *plan, struct sycpu_gemm_worker *worker,
                             int64_t expert, int64_t row, int64_t end, int64_t panel, int64_t n)
{
    const struct sycpu_gemm *gemm = &plan->gemm;
    int64_t length[SHALLOW_LEAVES], slot[MOST_TOKENS];
    const int64_t column = panel * TILE_COLUMNS,
                  c = expert * sycpu_gemm_c_size(gemm) + row * gemm->columns + column;
    const operand *x = (const operand *)gemm->a + expert * sycpu_gemm_a_size(gemm) + row;
    const operand *y = (const operand *)gemm->b + expert * sycpu_gemm_b_size(gemm) + column;
    struct sycpu_gemm_worker part = {.slot = slot, .rows = plan->tokens ? measure(plan, expert, length) : 0};
    struct sycpu_gemm_tile tile = {.a = worker->a,
                                   .b = worker->b,
                                   .steps = part.rows,
                                   .c = (char *)gemm->c + c * c_element(plan),
                                   .c_stride = gemm->columns,
                                   .how = plan->stream    ? SYCPU_GEMM_STREAM
                                          : plan->rounded ? SYCPU_GEMM_ROUND
                                                          : SYCPU_GEMM_STORE};
    if (!part.rows || part.rows > plan->tokens) return 0;
    fast_gemm_list_slots(gemm, expert, &part);
    worker->kept_rows = 0; /* of A, in whose place the tokens go */
    for (int64_t i = 0; i < part.rows; i++) {
        widen(x + slot[i] * gemm->a_width, end - row, SHALLOW_ROWS, worker->a + i * TILE_ROWS,
              a_token_panel(part.rows));
        widen(y + slot[i] * gemm->columns, n * TILE_COLUMNS, TILE_COLUMNS, worker->b + i * TILE_COLUMNS,
              b_panel_size(part.rows));
    }
    const unsigned mode = enter_tile_mode();
    compute(plan, length, part.rows, end - row, n, tile);
    const int underflowed = tile_mode_underflowed();
    leave_tile_mode(mode);
    return !underflowed;
}
