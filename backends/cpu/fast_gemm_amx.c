/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products of bf16 on matrix tiles (amx_tile.h): a leaf of a tile of C, which is 2 x 2 of them, and the panels of A
 * that they read. A step of theirs takes 32 elements of the contraction. Both operands of a leaf end with zeros where
 * it is no multiple of that. */
#include "config.h"

#include "backends/cpu/fast_gemm_parts.h"

#define ROW_BYTES ((int64_t)sizeof(float) * TILE_COLUMNS) /* of a panel of B and of sums */
/* Rows of a leaf before that are merged beside a step of 32 rows: 4 TILE_DOT take longer than these. */
#define MERGED 8

/* ---- a leaf ---- */

static inline void store_row(const struct sycpu_gemm_tile *tile, int64_t row, vec c0, vec c1)
{
    if (tile->how == SYCPU_GEMM_ROUND) {
        uint16_t *to = (uint16_t *)tile->c + row * tile->c_stride;
        vec_store_rounded(to, c0);
        vec_store_rounded(to + LANES, c1);
        return;
    }
    float *to = (float *)tile->c + row * tile->c_stride;
    if (tile->how == SYCPU_GEMM_STREAM) {
        vec_stream(to, c0);
        vec_stream(to + LANES, c1);
    } else {
        vec_store(to, c0);
        vec_store(to + LANES, c1);
    }
}

/* The + 0 that closes each leaf is added to the last sum alone, as in fast_gemm_tile.c. */
static inline void merge_row(const struct sycpu_gemm_tile *tile, const struct sycpu_gemm_place *place,
                             int row, const float *sum)
{
    const float *pending = tile->pending + place->top + row * TILE_COLUMNS;
    float *to = tile->pending + place->to + row * TILE_COLUMNS;
    vec c0 = vec_load(sum), c1 = vec_load(sum + LANES);
    for (int n = place->merges; n > 0; n--) {
        pending -= TILE_SIZE;
        c0 = vec_add(vec_load(pending), c0);
        c1 = vec_add(vec_load(pending + LANES), c1);
    }
    if (place->last) {
        c0 = vec_add(c0, vec_zero()), c1 = vec_add(c1, vec_zero());
        if (tile->relu) c0 = vec_max(vec_zero(), c0), c1 = vec_max(vec_zero(), c1);
        store_row(tile, row, c0, c1);
    } else {
        vec_store(to, c0);
        vec_store(to + LANES, c1);
    }
}

void fast_gemm_merge(const struct sycpu_gemm_tile *tile, int64_t leaf, int64_t leaves, const float *sum)
{
    const struct sycpu_gemm_place place = gemm_place_of(leaf, leaves);
    for (int row = 0; row < tile->height; row++, sum += TILE_COLUMNS) merge_row(tile, &place, row, sum);
}

/* At most n rows. */
static inline void merge_some(struct sycpu_gemm_rest *rest, int n)
{
    for (; n > 0 && rest->row < rest->tile.height; n--, rest->row++)
        merge_row(&rest->tile, &rest->place, rest->row, rest->sum + rest->row * TILE_COLUMNS);
}

void fast_gemm_merge_rest(struct sycpu_gemm_rest *rest)
{
    merge_some(rest, TILE_ROWS);
}

/* 32 rows: A 4 and 5, B 6 and 7. `stride`: bytes between rows of A. */
static void multiply_32(const operand *a, int64_t stride, const float *b, int64_t steps,
                        struct sycpu_gemm_rest *rest)
{
    TILE_ZERO(0);
    TILE_ZERO(1);
    TILE_ZERO(2);
    TILE_ZERO(3);
    for (; steps > 0; steps -= WHOLE, a += TILE_ELEMENTS, b += WHOLE * TILE_COLUMNS) {
        TILE_LOAD(4, a, stride);
        TILE_LOAD(6, b, ROW_BYTES);
        TILE_DOT(0, 4, 6);
        TILE_LOAD(7, b + LANES, ROW_BYTES);
        TILE_DOT(1, 4, 7);
        TILE_LOAD(5, (const char *)a + TILE_LINES * stride, stride);
        TILE_DOT(2, 5, 6);
        TILE_DOT(3, 5, 7);
        merge_some(rest, MERGED);
    }
}

/* The upper half. */
static void multiply_16(const operand *a, int64_t stride, const float *b, int64_t steps,
                        struct sycpu_gemm_rest *rest)
{
    TILE_ZERO(0);
    TILE_ZERO(1);
    for (; steps > 0; steps -= WHOLE, a += TILE_ELEMENTS, b += WHOLE * TILE_COLUMNS) {
        TILE_LOAD(4, a, stride);
        TILE_LOAD(6, b, ROW_BYTES);
        TILE_DOT(0, 4, 6);
        TILE_LOAD(7, b + LANES, ROW_BYTES);
        TILE_DOT(1, 4, 7);
        merge_some(rest, MERGED / 2);
    }
}

static void store_sums(float *sum, int height)
{
    TILE_STORE(0, sum, ROW_BYTES);
    TILE_STORE(1, sum + LANES, ROW_BYTES);
    if (height <= TILE_LINES) return;
    TILE_STORE(2, sum + TILE_LINES * TILE_COLUMNS, ROW_BYTES);
    TILE_STORE(3, sum + TILE_LINES * TILE_COLUMNS + LANES, ROW_BYTES);
}

void fast_gemm_leaf(const struct sycpu_gemm_tile *tile, int64_t leaf, int64_t leaves, int64_t k,
                    int64_t length)
{
    const struct sycpu_gemm_place place = gemm_place_of(leaf, leaves);
    const int waits = !place.merges && !place.last; /* for a right neighbour, as it is */
    const operand *a = (const operand *)(tile->a + k);
    const float *b = (const float *)tile->b + k * TILE_COLUMNS;
    int64_t stride = tile->a_row * (int64_t)sizeof(float);
    struct sycpu_gemm_rest *rest = tile->rest;
    if (tile->height > TILE_LINES)
        multiply_32(a, stride, b, length, rest);
    else
        multiply_16(a, stride, b, length, rest);
    fast_gemm_merge_rest(rest);
    store_sums(waits ? tile->pending + place.to : rest->sum, tile->height);
    if (waits) return;
    rest->tile = *tile;
    rest->place = place;
    rest->row = 0;
}

/* ---- panels of A ---- */

void fast_gemm_pack_a_rows(const operand *const *row, int64_t rows, int64_t first, int64_t depth,
                           float *panels, int64_t panel_size)
{
    int64_t size = panel_size / TILE_ROWS, none = steps_of(depth) * STEP - depth;
    for (int64_t i = 0; i < rows; i++) {
        operand *to = (operand *)(panels + i / TILE_ROWS * panel_size + i % TILE_ROWS * size);
        if (!row[i / TILE_ROWS * TILE_ROWS]) continue;
        memcpy(to, row[i] + first, sizeof *to * (size_t)depth);
        memset(to + depth, 0, sizeof *to * (size_t)none);
    }
}

/* WHOLE steps of TILE_ROWS columns: words are made of pairs of rows, then turned. */
static void pack_square(const operand *const *row, int64_t column, int64_t width, float *to, int64_t size)
{
    float pairs[WHOLE][TILE_ROWS] __attribute__((aligned(64)));
    const operand *line[WHOLE];
    for (int i = 0; i < WHOLE; i++) {
        const operand *early = row[2 * i], *late = row[2 * i + 1];
        vec low, high;
        interleave(early ? early + column : NULL, late ? late + column : NULL, width - column, LANES, &low,
                   &high);
        vec_store(pairs[i], low);
        vec_store(pairs[i] + LANES, high);
        line[i] = (const operand *)pairs[i];
    }
    transpose(line, 0, to, size, LANES);
    transpose(line, TILE_ROWS, to + LANES * size, size, LANES);
}

void fast_gemm_pack_a_columns(const operand *const *row, int64_t steps, int64_t width, float *panels,
                              int64_t panel_size)
{
    for (int64_t k = 0; k < steps; k += WHOLE)
        for (int64_t column = 0; column < width; column += TILE_ROWS)
            pack_square(row + k * STEP, column, width, panels + column / TILE_ROWS * panel_size + k,
                        panel_size / TILE_ROWS);
}
