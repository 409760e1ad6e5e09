/* SPDX-License-Identifier: Apache-2.0 */
/* One tile of a matrix product: a chain of steps (fused multiply-adds) per element inside each leaf of the
 * contraction, and the tree over leaves. The accumulators are named variables, one for each vector of the
 * tile (an array would be written to memory at every step). Knows nothing of matrices larger than a tile. */
#include "config.h"

#include "backends/cpu/fast_gemm_pieces.h"

/* Steps from the one at hand to the one fetched: rows of an unpacked B lie too far apart for the processor to
 * guess. FAR: from memory, into the L2 cache, since of rows a power of two apart the L1 cache holds few. */
#define AHEAD 16
#define FAR   96

#if HAS_AHEAD_FLOATS
#    define ROW_ZERO(i) vec c##i##0 = vec_zero_apart(), c##i##1 = vec_zero_apart();
#else
#    define ROW_ZERO(i) vec c##i##0 = vec_zero(), c##i##1 = vec_zero();
#endif
#define ROW_LOAD(i)                                                                                          \
    c##i##0 = vec_load(from + i * TILE_COLUMNS);                                                             \
    c##i##1 = vec_load(from + i * TILE_COLUMNS + LANES);
#define ROW_MULTIPLY(i, BROADCAST)                                                                           \
    {                                                                                                        \
        vec ai = BROADCAST;                                                                                  \
        c##i##0 = vec_step(ai, b0, c##i##0);                                                                 \
        c##i##1 = vec_step(ai, b1, c##i##1);                                                                 \
    }
#define ROW_STEP(i) ROW_MULTIPLY(i, vec_broadcast(a + i))
/* Of a row where it lies (AT_0 ..: STEPS_FROM_ROWS), copied to the panel. */
#define ROW_STEP_COPIED(i) ROW_MULTIPLY(i, vec_broadcast_copied((const float *)(AT_##i), copy + i))
#define AT_0               at0
#define AT_1               (at0 + far)
#define AT_2               (at0 + 2 * far)
#define AT_3               at3
#define AT_4               (at3 + far)
#define AT_5               (at3 + 2 * far)
#define AT_6               at6
#define AT_7               (at6 + far)
#define AT_8               (at6 + 2 * far)
#define AT_9               at9
#define AT_10              (at9 + far)
#define AT_11              (at9 + 2 * far)
#define AT_12              at12
#define AT_13              (at12 + far)
#define ROW_ADD_ZERO(i)                                                                                      \
    c##i##0 = vec_add(c##i##0, vec_zero());                                                                  \
    c##i##1 = vec_add(c##i##1, vec_zero());
#define ROW_ADD_PENDING(i)                                                                                   \
    c##i##0 = vec_add(vec_load(pending + i * TILE_COLUMNS), c##i##0);                                        \
    c##i##1 = vec_add(vec_load(pending + i * TILE_COLUMNS + LANES), c##i##1);
#define ROW_STORE(i)                                                                                         \
    vec_store(out + i * out_stride, c##i##0);                                                                \
    vec_store(out + i * out_stride + LANES, c##i##1);

#define ROW_STREAM(i)                                                                                        \
    vec_stream((float *)out + i * out_stride, c##i##0);                                                      \
    vec_stream((float *)out + i * out_stride + LANES, c##i##1);

#define ROW_STORE_ROUNDED(i)                                                                                 \
    vec_store_rounded((uint16_t *)out + i * out_stride, c##i##0);                                            \
    vec_store_rounded((uint16_t *)out + i * out_stride + LANES, c##i##1);

#define ROW_RELU(i)                                                                                          \
    c##i##0 = vec_max(vec_zero(), c##i##0);                                                                  \
    c##i##1 = vec_max(vec_zero(), c##i##1);

/* The panel after this one, fetched into the L2 cache step by step while a tile computes. All in registers: what the loop stores might
 * be the tile itself to the compiler, which would read its members again at each step. */
struct ahead {
    const char *row;    /* the next step */
    int64_t last;       /* its last byte */
    int64_t step, jump; /* bytes to what comes next; besides, after `left` steps */
    int64_t left;
};

static inline struct ahead look_ahead(const struct sycpu_gemm_tile *tile, int64_t k, int64_t element)
{
    const char *b = tile->b;
    const int64_t stride = tile->b_stride * element;
    struct ahead ahead = {.row = b + (k + FAR) * stride,
                          .last = TILE_COLUMNS * element - 1,
                          .step = stride,
                          .jump = (const char *)tile->next - (b + tile->steps * stride),
                          .left = tile->steps - k - FAR};
    if (ahead.left <= 0) ahead.row += ahead.jump, ahead.left = INT64_MAX;
    return ahead;
}

ALWAYS_INLINE void fetch_next(struct ahead *ahead)
{
    __builtin_prefetch(ahead->row, 0, 2);
    if (ahead->last >= 64) /* two lines */
        __builtin_prefetch(ahead->row + ahead->last, 0, 2);
    ahead->row += ahead->step;
    if (--ahead->left == 0) ahead->row += ahead->jump;
}

/* A step of B into the L1 cache. */
ALWAYS_INLINE void fetch_step(const void *b, int64_t bytes)
{
    __builtin_prefetch(b);
    if (bytes > 64) __builtin_prefetch((const char *)b + 64);
}

/* Whether the processor sees by itself what of B comes next, so that a step is nothing but loads and multiply-adds: where a vector
 * of C takes half a cycle each instruction beside them counts, and twice as much where another program runs on the same core. */
static inline int is_fed(const struct sycpu_gemm_tile *tile)
{
    return IS_AVX2 && tile->b_stride == TILE_COLUMNS && !tile->next && !tile->copy;
}

/* B as it is read: floats, or int8 times the scales of the columns. */
#define FLOAT_SCALES
#define FLOAT_LOAD  const vec b0 = vec_load(b), b1 = vec_load(b + LANES)
#define INT8_SCALES const vec s0 = vec_load(tile->scale), s1 = vec_load(tile->scale + LANES)
#define INT8_LOAD   const vec b0 = vec_mul(vec_load_int8(b), s0), b1 = vec_mul(vec_load_int8(b + LANES), s1)

/* Some steps of a leaf: how B is loaded, last, and what is done before and after the rows of each. */
#define STEPS(ROWS, n, stride, BEFORE, AFTER, ...)                                                           \
    for (const float *end = a + (n)*TILE_ROWS; a != end; a += TILE_ROWS) {                                   \
        __VA_ARGS__;                                                                                         \
        BEFORE;                                                                                              \
        ROWS(ROW_STEP)                                                                                       \
        AFTER;                                                                                               \
        b += stride;                                                                                         \
    }
#define FETCH(NUMBER) fetch_step(b + near, TILE_COLUMNS * sizeof(NUMBER))
#define COPY                                                                                                 \
    vec_store(copy, b0);                                                                                     \
    vec_store(copy + LANES, b1);                                                                             \
    copy += TILE_COLUMNS

/* A leaf, a piece copied beside every few steps of it. Both panels are fetched: what is copied takes their place in the L1 cache. */
#define STEPS_WITH_PIECES(ROWS, ...)                                                                         \
    const int64_t near = AHEAD * TILE_COLUMNS;                                                               \
    struct sycpu_gemm_pieces *pieces = tile->pieces;                                                         \
    for (int64_t n, left = depth; left > 0; left -= n) {                                                     \
        n = least(left, pieces->wait);                                                                       \
        STEPS(ROWS, n, TILE_COLUMNS, FETCH(float); __builtin_prefetch(a + AHEAD * TILE_ROWS), , __VA_ARGS__) \
        pieces->wait -= n;                                                                                   \
        if (pieces->wait > 0) continue;                                                                      \
        copy_piece(pieces);                                                                                  \
        pieces->wait = pieces->every;                                                                        \
    }

#if HAS_AHEAD_FLOATS
/* A leaf of rows of A that lie there unpacked and are copied to their panel. Beside each step a line of these is fetched, and one of the
 * rows after them, of which the next panel is. Rows are found from every third: a pointer to each would take every register. */
#    define STEPS_FROM_ROWS(ROWS, ...)                                                                       \
        const int64_t far = tile->row_stride * (int64_t)sizeof(float);                                       \
        const char *at0 = (const char *)(tile->unpacked + k), *at3 = at0 + 3 * far, *at6 = at3 + 3 * far,    \
                   *at9 = at6 + 3 * far, *at12 = at9 + 3 * far;                                              \
        const char *later = (const char *)(tile->unpacked + TILE_ROWS * tile->row_stride) + k * 64;          \
        float *copy = (float *)a;                                                                            \
        for (int64_t n, left = depth; left > 0; left -= n) {                                                 \
            const char *near = at0 + 64;                                                                     \
            n = least(left, 16);                                                                             \
            for (const float *end = copy + n * TILE_ROWS; copy != end; copy += TILE_ROWS) {                  \
                __VA_ARGS__;                                                                                 \
                __builtin_prefetch(near);                                                                    \
                __builtin_prefetch(later, 0, 2);                                                             \
                ROWS(ROW_STEP_COPIED)                                                                        \
                near += far, later += 64, b += TILE_COLUMNS;                                                 \
                at0 += 4, at3 += 4, at6 += 4, at9 += 4, at12 += 4;                                           \
            }                                                                                                \
        }
#else
#    define STEPS_FROM_ROWS(ROWS, ...)
#endif

/* Steps k .. k + depth - 1, one leaf, or a part of one whose sums so far are at `from`, added to the `merges` tiles below
 * `pending` (the nearest first). The + 0 that closes each leaf is added to the last sum alone: it changes nothing but the sign of
 * a zero, and the sum of zeros of any sign, closed, is +0 too. */
#define DEFINE_LEAF(name, ROWS, NUMBER, SCALES, LOAD)                                                        \
    static void name(const struct sycpu_gemm_tile *tile, int64_t k, int64_t depth, const float *from,        \
                     const float *pending, int merges, float *out, int64_t out_stride, int how, int last)    \
    {                                                                                                        \
        const float *a = tile->a + k * TILE_ROWS;                                                            \
        const NUMBER *b = (const NUMBER *)tile->b + k * tile->b_stride;                                      \
        const int64_t stride = tile->b_stride;                                                               \
        SCALES;                                                                                              \
        ROWS(ROW_ZERO)                                                                                       \
        if (from) {                                                                                          \
            ROWS(ROW_LOAD)                                                                                   \
        }                                                                                                    \
        if (IS_AVX2 && tile->lines) {                                                                        \
            struct sycpu_gemm_lines lines = *tile->lines;                                                    \
            lines.left -= depth;                                                                             \
            STEPS(ROWS, depth, TILE_COLUMNS, , copy_line(&lines), LOAD)                                      \
            *tile->lines = lines;                                                                            \
        } else if (is_fed(tile)) {                                                                           \
            STEPS(ROWS, depth, TILE_COLUMNS, , , LOAD)                                                       \
        } else if (HAS_AHEAD_FLOATS && sizeof(NUMBER) == sizeof(float) && tile->unpacked) {                  \
            STEPS_FROM_ROWS(ROWS, LOAD)                                                                      \
        } else if (HAS_COPIED && sizeof(NUMBER) == sizeof(float) && tile->pieces) {                          \
            STEPS_WITH_PIECES(ROWS, LOAD)                                                                    \
        } else if (tile->copy) {                                                                             \
            struct ahead ahead = look_ahead(tile, k, sizeof(NUMBER));                                        \
            const int64_t near = AHEAD * stride;                                                             \
            float *copy = tile->copy + k * TILE_COLUMNS;                                                     \
            STEPS(ROWS, depth, stride, FETCH(NUMBER); fetch_next(&ahead), COPY, LOAD)                        \
        } else if (tile->next) { /* which leaves no room for more */                                         \
            struct ahead ahead = look_ahead(tile, k, sizeof(NUMBER));                                        \
            STEPS(ROWS, depth, stride, fetch_next(&ahead), , LOAD)                                           \
        } else {                                                                                             \
            const int64_t near = AHEAD * stride;                                                             \
            STEPS(ROWS, depth, stride, FETCH(NUMBER), , LOAD)                                                \
        }                                                                                                    \
        for (; merges > 0; merges--) {                                                                       \
            pending -= TILE_SIZE;                                                                            \
            ROWS(ROW_ADD_PENDING)                                                                            \
        }                                                                                                    \
        if (last) {                                                                                          \
            ROWS(ROW_ADD_ZERO)                                                                               \
            if (tile->relu) {                                                                                \
                ROWS(ROW_RELU)                                                                               \
            }                                                                                                \
        }                                                                                                    \
        if (how == SYCPU_GEMM_STREAM) {                                                                      \
            ROWS(ROW_STREAM)                                                                                 \
        } else if (how == SYCPU_GEMM_ROUND) {                                                                \
            ROWS(ROW_STORE_ROUNDED)                                                                          \
        } else {                                                                                             \
            ROWS(ROW_STORE)                                                                                  \
        }                                                                                                    \
    }

/* X(height) of each that a tile has. */
#if TILE_ROWS >= 14
#    define EACH_HEIGHT(X) X(2) X(4) X(6) X(8) X(10) X(12) X(14)
#elif TILE_ROWS >= 12
#    define EACH_HEIGHT(X) X(2) X(4) X(6) X(8) X(10) X(12)
#else
#    define EACH_HEIGHT(X) X(2) X(4) X(6)
#endif
typedef void leaf_fn(const struct sycpu_gemm_tile *, int64_t, int64_t, const float *, const float *, int,
                     float *, int64_t, int, int);

#define FLOAT_LEAF(height) DEFINE_LEAF(leaf_##height, ROWS_##height, float, FLOAT_SCALES, FLOAT_LOAD)
#define FLOAT_NAME(height) leaf_##height,
EACH_HEIGHT(FLOAT_LEAF)
static leaf_fn *const leaf_of[] = {NULL, EACH_HEIGHT(FLOAT_NAME)}; /* by half the height */

#ifndef SYCPU_PAIRS
#    define INT8_LEAF(height)   DEFINE_LEAF(int8_leaf_##height, ROWS_##height, int8_t, INT8_SCALES, INT8_LOAD)
#    define INT8_NAME(height)   int8_leaf_##height,
#    define EACH_INT8_HEIGHT(X) X(2) X(4) X(6)
EACH_INT8_HEIGHT(INT8_LEAF)
static leaf_fn *const int8_leaf_of[INT8_ROWS / 2 + 1] = {NULL, EACH_INT8_HEIGHT(INT8_NAME)};
#else
#    define int8_leaf_of leaf_of /* no product of bf16 has int8 weights */
#endif

void fast_gemm_leaf(const struct sycpu_gemm_tile *tile, int64_t leaf, int64_t leaves, int64_t k,
                    int64_t length)
{
    const struct sycpu_gemm_place place = gemm_place_of(leaf, leaves);
    float *top = tile->pending + place.top, *from = tile->begun ? top : NULL;
    leaf_fn *compute = (tile->scale ? int8_leaf_of : leaf_of)[tile->height / 2];
    if (tile->open)
        compute(tile, k, length, from, top, 0, top, TILE_COLUMNS, SYCPU_GEMM_STORE, 0);
    else if (place.last)
        compute(tile, k, length, from, top, place.merges, tile->c, tile->c_stride, tile->how, 1);
    else
        compute(tile, k, length, from, top, place.merges, tile->pending + place.to, TILE_COLUMNS,
                SYCPU_GEMM_STORE, 0);
}

/* ---- a whole tile of few leaves ----
 * The sum of each leaf waits until the last one, and then all are added as the tree says: so there is no branch that goes another way
 * from leaf to leaf, which the processor would guess wrong when the multiply-adds behind it should begin. */

#if HAS_WAITING
#    if IS_AVX2
#        define ALL_ROWS ROWS_6
#        define FETCH_B  /* is_fed */
#    else
#        define ALL_ROWS ROWS_14
#        define FETCH_B  fetch_step(b + AHEAD * TILE_COLUMNS, TILE_COLUMNS * sizeof(float))
#    endif

#    define SUM(leaf, i, half)    vec_load(sums + (leaf)*TILE_SIZE + (i)*TILE_COLUMNS + (half)*LANES)
#    define PAIR(leaf, i, half)   vec_add(SUM(leaf, i, half), SUM(leaf + 1, i, half))
#    define LAST_2(leaf, i, half) vec_add(SUM(leaf, i, half), c##i##half)
#    define LAST_4(leaf, i, half) vec_add(PAIR(leaf, i, half), LAST_2(leaf + 2, i, half))
#    define LAST_8(leaf, i, half)                                                                            \
        vec_add(vec_add(PAIR(leaf, i, half), PAIR(leaf + 2, i, half)), LAST_4(leaf + 4, i, half))
#    define ROW_ADD_SUMS(i, LAST)                                                                            \
        c##i##0 = LAST(0, i, 0);                                                                             \
        c##i##1 = LAST(0, i, 1);
#    define ROW_ADD_2(i) ROW_ADD_SUMS(i, LAST_2)
#    define ROW_ADD_4(i) ROW_ADD_SUMS(i, LAST_4)
#    define ROW_ADD_8(i) ROW_ADD_SUMS(i, LAST_8)
_Static_assert(WAITING_LEAVES == 8, "so many are added at most");

/* Whether a tile is as high as can be and nothing but read from panels and written. Past the caches, by AVX-512, was not measured. */
static inline int is_plain(const struct sycpu_gemm_tile *tile)
{
    const int special = tile->scale || tile->next || tile->copy || tile->pieces || tile->unpacked;
    return !special && tile->b_stride == TILE_COLUMNS && tile->height == TILE_ROWS &&
           (tile->how == SYCPU_GEMM_STORE || (IS_AVX2 && tile->how == SYCPU_GEMM_STREAM));
}

/* Sums of leaves are stored by code of their own, whose places are known when compiling. */
int fast_gemm_whole_tile(const struct sycpu_gemm_tile *tile, int64_t leaves, const int64_t *length,
                         int64_t early, int64_t share)
{
    const float *a = tile->a, *b = tile->b, *const sums = tile->pending;
    if (!is_plain(tile) || leaves > WAITING_LEAVES || leaves & (leaves - 1)) return 0;
    for (int64_t leaf = 0, row = 0; leaf < leaves; leaf++) {
        for (const int64_t end = leaf < early ? 0 : least(row + share, TILE_ROWS); row < end; row++)
            fetch_step((const float *)tile->c + row * tile->c_stride, TILE_COLUMNS * sizeof(float));
        ALL_ROWS(ROW_ZERO)
        STEPS(ALL_ROWS, length[leaf], TILE_COLUMNS, FETCH_B, , FLOAT_LOAD)
        if (leaf + 1 < leaves) {
            float *const out = tile->pending + leaf * TILE_SIZE;
            const int64_t out_stride = TILE_COLUMNS;
            ALL_ROWS(ROW_STORE)
            continue;
        }
        float *const out = tile->c;
        const int64_t out_stride = tile->c_stride;
        if (leaves == 8) {
            ALL_ROWS(ROW_ADD_8)
        } else if (leaves == 4) {
            ALL_ROWS(ROW_ADD_4)
        } else if (leaves == 2) {
            ALL_ROWS(ROW_ADD_2)
        }
        ALL_ROWS(ROW_ADD_ZERO)
        if (tile->relu) {
            ALL_ROWS(ROW_RELU)
        }
        if (IS_AVX2 && tile->how == SYCPU_GEMM_STREAM) {
            ALL_ROWS(ROW_STREAM)
        } else {
            ALL_ROWS(ROW_STORE)
        }
    }
    return 1;
}

#endif
