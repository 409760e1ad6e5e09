/* SPDX-License-Identifier: Apache-2.0 */
/* x^T y of an expert that has few tokens, with the bits of matrix tiles (amx_tile.h) but by vectors: a tile takes as long for a leaf
 * of 2 tokens as for one of 32. All is computed in the mode of tiles, where denormals count as zero; the tree over leaves knows no
 * such mode, but as long as no result is that small there is no difference, and the processor tells when one was. */
#include "config.h"

#include "backends/cpu/fast_gemm_parts.h"
#include "backends/cpu/tile_chains.h"

#define BLOCK_HEIGHT (5 * SHALLOW_ROWS) /* rows of C that are written together */
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

/* n elements as float32. */
static void widen(const operand *from, int64_t n, float *to)
{
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        const __m512i half = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(from + i)));
        vec_store(to + i, (vec)_mm512_slli_epi32(half, 16));
    }
    for (; i < n; i++) to[i] = syi_bf16_to_float(from[i]);
}

/* In the mode of tiles. */
static void compute_blocks(const struct sycpu_gemm_plan *plan, const int64_t *length, int64_t rows, int64_t n,
                           struct sycpu_gemm_tile tile)
{
    const int64_t size = c_element(plan);
    const float *b = tile.b;
    for (; rows > 0; rows -= BLOCK_HEIGHT) {
        char *c = tile.c;
        tile.height = (int)least(BLOCK_HEIGHT, rows);
        for (int64_t i = 0; i < n; i++) {
            tile.b = b + i * TILE_COLUMNS;
            tile.c = c + i * TILE_COLUMNS * size;
            fast_gemm_shallow(&tile, plan->gemm.leaves, length);
        }
        tile.a += BLOCK_HEIGHT;
        tile.c = c + BLOCK_HEIGHT * tile.c_stride * size;
    }
}
static void (*const volatile compute)(const struct sycpu_gemm_plan *, const int64_t *, int64_t, int64_t,
                                      struct sycpu_gemm_tile) = compute_blocks;

int fast_gemm_compute_tokens(const struct sycpu_gemm_plan *plan, const struct sycpu_gemm_worker *worker,
                             int64_t expert, int64_t row, int64_t end, int64_t panel, int64_t n)
{
    const struct sycpu_gemm *gemm = &plan->gemm;
    int64_t length[SHALLOW_LEAVES], slot[MOST_TOKENS];
    const int64_t column = panel * TILE_COLUMNS, width = n * TILE_COLUMNS,
                  c = expert * sycpu_gemm_c_size(gemm) + row * gemm->columns + column;
    const operand *x = (const operand *)gemm->a + expert * sycpu_gemm_a_size(gemm) + row;
    const operand *y = (const operand *)gemm->b + expert * sycpu_gemm_b_size(gemm) + column;
    struct sycpu_gemm_worker part = {.slot = slot, .rows = plan->tokens ? measure(plan, expert, length) : 0};
    struct sycpu_gemm_tile tile = {.a = worker->a,
                                   .a_row = round_floats(gemm->rows + SHALLOW_ROWS),
                                   .b = worker->b,
                                   .b_stride = width + PANEL_GAP,
                                   .c = (char *)gemm->c + c * c_element(plan),
                                   .c_stride = gemm->columns,
                                   .how = plan->stream    ? SYCPU_GEMM_STREAM
                                          : plan->rounded ? SYCPU_GEMM_ROUND
                                                          : SYCPU_GEMM_STORE};
    if (!part.rows || part.rows > plan->tokens) return 0;
    fast_gemm_list_slots(gemm, expert, &part);
    for (int64_t i = 0; i < part.rows; i++) {
        float *to = worker->a + i * tile.a_row;
        widen(x + slot[i] * gemm->a_width, end - row, to);
        /* They are read too, and what they give must not count as small. */
        memset(to + end - row, 0, SHALLOW_ROWS * sizeof *to);
        widen(y + slot[i] * gemm->columns, width, worker->b + i * tile.b_stride);
    }
    const unsigned mode = enter_tile_mode();
    compute(plan, length, end - row, n, tile);
    const int underflowed = tile_mode_underflowed();
    leave_tile_mode(mode);
    return !underflowed;
}
