/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products of bf16 on matrix tiles (amx_tile.h): a leaf of a tile of C, which is 2 x 2 of them, and the panels of A
 * that they read. A step of theirs takes 32 elements of the contraction. Both operands of a leaf end with zeros where
 * it is no multiple of that. */
#include "config.h"

#include "backends/cpu/fast_gemm_parts.h"

#define ROW_BYTES ((int64_t)sizeof(float) * TILE_COLUMNS) /* of a panel of B and of sums */
/* Rows of the leaf before that are merged beside a step of 32 rows: 4 TILE_DOT take longer than these. */
#define MERGED 8
/* A panel of B that is read once is fetched in so many pieces at a time, which lie in pages of their own: memory answers sooner. */
#define PIECES 8

/* ---- a leaf ---- */

/* Rows of a tile: the sums of a leaf, added to the pending tiles, go to `to`, floats or bf16. All that is no sum waits in
 * registers, for matrix tiles want the load ports. The + 0 that closes each leaf is added to the last sum alone, as in
 * fast_gemm_tile.c. */
struct rows {
    const float *sum, *pending; /* [n, TILE_COLUMNS]; pending: past the nearest tile */
    void *to;
    int64_t stride; /* elements of `to` */
    int n, merges, relu;
};
ALWAYS_INLINE void merge_rows(const struct rows *r, enum sycpu_gemm_how how, int last)
{
    const float *sum = r->sum, *pending = r->pending;
    const int64_t stride = r->stride;
    const int merges = r->merges, relu = r->relu;
    float *to = r->to;
    uint16_t *half = r->to;
    for (int n = r->n; n > 0;
         n--, sum += TILE_COLUMNS, pending += TILE_COLUMNS, to += stride, half += stride) {
        vec c0 = vec_load(sum), c1 = vec_load(sum + LANES);
        for (int64_t i = 1; i <= merges; i++) {
            c0 = vec_add(vec_load(pending - i * TILE_SIZE), c0);
            c1 = vec_add(vec_load(pending - i * TILE_SIZE + LANES), c1);
        }
        if (last) c0 = vec_add(c0, vec_zero()), c1 = vec_add(c1, vec_zero());
        if (last && relu) c0 = vec_max(vec_zero(), c0), c1 = vec_max(vec_zero(), c1);
        if (how == SYCPU_GEMM_ROUND || how == SYCPU_GEMM_ROUND_STREAM) {
            uint16_t line[TILE_COLUMNS] __attribute__((aligned(64))), *at = line;
            if (how == SYCPU_GEMM_ROUND) at = half;
            if (merges)
                vec_store_two_rounded(at, c0, c1);
            else /* no sum is a denormal: tiles flush them */
                vec_store_two_normal(at, c0, c1);
            if (how == SYCPU_GEMM_ROUND_STREAM) vec_stream((float *)half, vec_load(line));
        } else if (how == SYCPU_GEMM_STREAM) {
            vec_stream(to, c0);
            vec_stream(to + LANES, c1);
        } else {
            vec_store(to, c0);
            vec_store(to + LANES, c1);
        }
    }
}

/* Rows [row, row + n) of a tile and of `sum`. */
static void merge(const struct sycpu_gemm_tile *tile, const struct sycpu_gemm_place *place, const float *sum,
                  int row, int n)
{
    const int64_t skip = (int64_t)row * TILE_COLUMNS;
    struct rows rows = {.sum = sum + skip,
                        .pending = tile->pending + place->top + skip,
                        .to = tile->pending + place->to + skip,
                        .stride = TILE_COLUMNS,
                        .n = n,
                        .merges = place->merges,
                        .relu = tile->relu};
    if (!place->last) {
        merge_rows(&rows, SYCPU_GEMM_STORE, 0);
        return;
    }
    const int rounds = tile->how == SYCPU_GEMM_ROUND || tile->how == SYCPU_GEMM_ROUND_STREAM;
    rows.stride = tile->c_stride;
    rows.to = (char *)tile->c + row * rows.stride * (int64_t)(rounds ? sizeof(uint16_t) : sizeof(float));
    switch (tile->how) { /* each a constant for merge_rows */
    case SYCPU_GEMM_STORE: merge_rows(&rows, SYCPU_GEMM_STORE, 1); break;
    case SYCPU_GEMM_ROUND: merge_rows(&rows, SYCPU_GEMM_ROUND, 1); break;
    case SYCPU_GEMM_STREAM: merge_rows(&rows, SYCPU_GEMM_STREAM, 1); break;
    case SYCPU_GEMM_ROUND_STREAM: merge_rows(&rows, SYCPU_GEMM_ROUND_STREAM, 1); break;
    }
}

void fast_gemm_merge(const struct sycpu_gemm_tile *tile, int64_t leaf, int64_t leaves, const float *sum)
{
    const struct sycpu_gemm_place place = gemm_place_of(leaf, leaves);
    merge(tile, &place, sum, 0, tile->height);
}

/* At most n rows. */
static inline void merge_some(struct sycpu_gemm_rest *rest, int n)
{
    const int row = rest->row, left = rest->tile.height - row;
    if (left <= 0) return;
    if (n > left) n = left;
    rest->row = row + n;
    merge(&rest->tile, &rest->place, rest->sum, row, n);
}

/* The quarter that matrix tile q computes. */
static inline float *quarter(float *sum, int q)
{
    return sum + q / 2 * TILE_LINES * TILE_COLUMNS + q % 2 * LANES;
}

/* What waits in the matrix tiles goes where it belongs. */
static inline void store_held(struct sycpu_gemm_rest *rest)
{
    if (rest->held) {
        TILE_STORE(0, quarter(rest->to, 0), ROW_BYTES);
        TILE_STORE(1, quarter(rest->to, 1), ROW_BYTES);
    }
    if (rest->held > TILE_LINES) {
        TILE_STORE(2, quarter(rest->to, 2), ROW_BYTES);
        TILE_STORE(3, quarter(rest->to, 3), ROW_BYTES);
    }
    rest->held = 0;
}

void fast_gemm_merge_rest(struct sycpu_gemm_rest *rest)
{
    store_held(rest);
    merge_some(rest, TILE_ROWS);
}

/* Sums of the leaf before leave matrix tile q for `to`, those of this one begin: at 0, or as they were left at `from`.
 * Between two steps a store takes no time; four one after the other hold up the multiplier for longer than a step. */
#define CHANGE(q)                                                                                            \
    TILE_STORE(q, quarter(to, q), ROW_BYTES);                                                                \
    if (from)                                                                                                \
        TILE_LOAD(q, quarter(from, q), ROW_BYTES);                                                           \
    else                                                                                                     \
        TILE_ZERO(q);
#define GO_ON(q)
/* A step: A in tiles 4 and 5, B in 6 and 7. One of both, that passes, comes from the L2 cache and is read once for 32 rows or
 * columns of the other one, so the L1 cache has no room for it. Its first tile is there; that of the next step is loaded as
 * soon as this one has been used. `stride`: bytes between rows of A; more: there is a next step. */
#define A_FIRST(LOAD)  LOAD(4, a, stride);
#define A_SECOND(LOAD) LOAD(5, (const char *)a + TILE_LINES * stride, stride);
#define A_NEXT         TILE_LOAD_ONCE(4, a + TILE_ELEMENTS, stride);
#define B_FIRST(LOAD)  LOAD(6, b, ROW_BYTES);
#define B_SECOND(LOAD) LOAD(7, b + LANES, ROW_BYTES);
#define B_NEXT         TILE_LOAD_ONCE(6, b + WHOLE * TILE_COLUMNS, ROW_BYTES);
#define DOT_0          TILE_DOT(0, 4, 6);
#define DOT_1          TILE_DOT(1, 4, 7);
#define DOT_2          TILE_DOT(2, 5, 6);
#define DOT_3          TILE_DOT(3, 5, 7);
#define DOT(q)         DOT_##q
/* i: the tile of C that reads the first tile of what passes and the second of what stays; j: the other way round. */
#define STEP_32(BEFORE, STAYS_FIRST, PASSES_SECOND, STAYS_SECOND, i, PASSES_NEXT, j)                         \
    STAYS_FIRST                                                                                              \
    BEFORE(0)                                                                                                \
    DOT(0)                                                                                                   \
    PASSES_SECOND                                                                                            \
    STAYS_SECOND                                                                                             \
    BEFORE(i)                                                                                                \
    DOT(i)                                                                                                   \
    if (more) PASSES_NEXT                                                                                    \
    BEFORE(j)                                                                                                \
    DOT(j)                                                                                                   \
    BEFORE(3)                                                                                                \
    DOT(3)
#define A_PASSES_32(BEFORE)                                                                                  \
    STEP_32(BEFORE, B_FIRST(TILE_LOAD), A_SECOND(TILE_LOAD_ONCE), B_SECOND(TILE_LOAD), 1, A_NEXT, 2)
#define B_PASSES_32(BEFORE)                                                                                  \
    STEP_32(BEFORE, A_FIRST(TILE_LOAD), B_SECOND(TILE_LOAD_ONCE), A_SECOND(TILE_LOAD), 2, B_NEXT, 1)
/* 16 rows: B passes, for all rows but the last few are in tiles of 32. */
#define B_PASSES_16(BEFORE)                                                                                  \
    A_FIRST(TILE_LOAD)                                                                                       \
    BEFORE(0)                                                                                                \
    DOT(0)                                                                                                   \
    B_SECOND(TILE_LOAD_ONCE)                                                                                 \
    if (more) B_NEXT                                                                                         \
    BEFORE(1)                                                                                                \
    DOT(1)

/* What is fetched into the L2 cache beside each step: some bytes of each of some pieces. */
struct fetched {
    const char *at;
    int64_t bytes;
    int64_t pieces, apart; /* apart: bytes from a piece to the next */
    int64_t step;          /* bytes to what is fetched beside the next step */
};
ALWAYS_INLINE void fetch_share(struct fetched *f)
{
    for (int64_t i = 0; i < f->bytes; i += 64)
        for (int64_t piece = 0; piece < f->pieces; piece++)
            __builtin_prefetch(f->at + piece * f->apart + i, 0, 2);
    f->at += f->step;
}

/* Rows of C that the tile writes, in so many steps. */
static inline struct fetched rows_of_c(const struct sycpu_gemm_tile *tile, int64_t steps)
{
    const int64_t element = tile->how == SYCPU_GEMM_ROUND ? 2 : sizeof(float),
                  rows = divide_up(tile->height, steps), apart = tile->c_stride * element;
    return (struct fetched){tile->c, TILE_COLUMNS * element, rows, apart, rows * apart};
}

/* Beside steps from k on: where B comes from memory and no other tile has read it just now a part of the panel that follows; beside the
 * last leaf of a tile C. */
static inline struct fetched fetched_by(const struct sycpu_gemm_tile *tile, int64_t k, int64_t length,
                                        int last)
{
    const struct sycpu_gemm_ahead *ahead = &tile->ahead;
    const int64_t bytes = WHOLE * ROW_BYTES / PIECES;
    if (tile->next)
        return (struct fetched){(const char *)tile->next + k / WHOLE * bytes, bytes, PIECES,
                                tile->steps / WHOLE * bytes, bytes};
    if (ahead->b)
        return (struct fetched){ahead->b + ahead->done / WHOLE * ahead->size, ahead->size, 1, 0, ahead->size};
    if (last && tile->fetches_c && length) return rows_of_c(tile, length / WHOLE);
    return (struct fetched){NULL, 0, 0, 0, 0};
}

#define DEFINE_MULTIPLY(name, FIRST, STEP_OF, MERGED_ROWS)                                                   \
    static void name(const operand *a, int64_t stride, const float *b, int64_t steps, float *from,           \
                     float *to, struct sycpu_gemm_rest *rest, struct fetched fetched)                        \
    {                                                                                                        \
        int more = steps > WHOLE;                                                                            \
        FIRST                                                                                                \
        fetch_share(&fetched);                                                                               \
        STEP_OF(CHANGE)                                                                                      \
        while (more) {                                                                                       \
            steps -= WHOLE;                                                                                  \
            more = steps > WHOLE;                                                                            \
            a += TILE_ELEMENTS;                                                                              \
            b += WHOLE * TILE_COLUMNS;                                                                       \
            fetch_share(&fetched);                                                                           \
            STEP_OF(GO_ON)                                                                                   \
            merge_some(rest, MERGED_ROWS);                                                                   \
        }                                                                                                    \
    }
DEFINE_MULTIPLY(a_passes_32, A_FIRST(TILE_LOAD_ONCE), A_PASSES_32, MERGED)
DEFINE_MULTIPLY(b_passes_32, B_FIRST(TILE_LOAD_ONCE), B_PASSES_32, MERGED)
DEFINE_MULTIPLY(b_passes_16, B_FIRST(TILE_LOAD_ONCE), B_PASSES_16, MERGED / 2)

/* A leaf without elements. */
static void multiply_nothing(struct sycpu_gemm_rest *rest)
{
    store_held(rest);
    TILE_ZERO(0);
    TILE_ZERO(1);
    TILE_ZERO(2);
    TILE_ZERO(3);
}

void fast_gemm_leaf(const struct sycpu_gemm_tile *tile, int64_t leaf, int64_t leaves, int64_t k,
                    int64_t length)
{
    const struct sycpu_gemm_place place = gemm_place_of(leaf, leaves);
    const int waits =
        tile->open || (!place.merges && !place.last); /* for its rest, or for a right neighbour */
    const operand *a = (const operand *)(tile->a + k);
    const float *b = (const float *)tile->b + k * TILE_COLUMNS;
    float *top = tile->pending + place.top, *from = tile->begun ? top : NULL;
    int64_t stride = tile->a_row * (int64_t)sizeof(float);
    struct sycpu_gemm_rest *rest = tile->rest;
    if (rest->held != tile->height) fast_gemm_merge_rest(rest);
    float *to = rest->held ? rest->to : rest->none;
    const struct fetched fetched = fetched_by(tile, k, length, place.last && !tile->open);
    if (!length)
        multiply_nothing(rest);
    else if (tile->height <= TILE_LINES)
        b_passes_16(a, stride, b, length, from, to, rest, fetched);
    else if (tile->a_passes)
        a_passes_32(a, stride, b, length, from, to, rest, fetched);
    else
        b_passes_32(a, stride, b, length, from, to, rest, fetched);
    merge_some(rest, TILE_ROWS);
    rest->held = tile->height;
    rest->to = waits ? top : rest->sum;
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
