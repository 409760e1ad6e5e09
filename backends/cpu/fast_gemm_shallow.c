/* SPDX-License-Identifier: Apache-2.0 */
/* Tiles of a matrix product whose leaves have few steps each: the tree over up to eight leaves stays in
 * registers, where fast_gemm_leaf would write every leaf to memory. A tile is computed in pieces of some of
 * its rows and one vector of its columns. With SYCPU_TILES: the same by vectors, see fast_gemm_tokens.c; AVX2:
 * fast_gemm_strips.c. */
#include "config.h"

#include "backends/cpu/fast_gemm_parts.h"

#if !HAS_STRIPS

#    if TILE_ROWS == 14
#        define PIECE_ROWS 7
#        define PIECE(X)   ROWS_6(X) X(6)
#    else
#        define PIECE_ROWS 6 /* TILE_ROWS and SHALLOW_ROWS are multiples of it */
#        define PIECE(X)   ROWS_6(X)
#    endif

/* What a piece reads: the next step of A and B, and the length of the next leaf. */
struct reader {
    const float *a, *b;
    const int64_t *length;
};

/* The first step of a leaf, which is 1 cycle of 20 of a sum of 15 products cheaper than one that adds to +0. It may give -0 for +0,
 * but not the very first: so the sum of all is never -0, for what is added to +0 leaves it +0. */
#    if defined(SYCPU_PAIRS) && !defined(SYCPU_TILES)
#        define FIRST(a, b) vec_step(a, b, vec_zero())
#    else
#        define FIRST(a, b) (begins ? NEXT(a, b, vec_zero()) : vec_mul(a, b))
#    endif
#    ifdef SYCPU_TILES /* floats, each element of the contraction a step */
#        define NEXT(a, b, c) _mm512_fmadd_ps(a, b, c)
#    else
#        define NEXT(a, b, c) vec_step(a, b, c)
#    endif

#    define ROW_FIRST(i) v->c##i = FIRST(vec_broadcast(a + i), b);
#    define ROW_STEP(i)  v->c##i = NEXT(vec_broadcast(a + i), b, v->c##i);
#    define ROW_ZERO(i)  v->c##i = vec_zero();
#    define ROW_ADD(i)   v->c##i = vec_add(v->c##i, right->c##i);
#    define ROW_FIELD(i) vec c##i;

/* A named field for each row: an array would be written to memory. */
struct piece {
    PIECE(ROW_FIELD)
};

/* Step k from here on: the first of a leaf, or one that is added. */
ALWAYS_INLINE void read_first(const struct reader *r, int64_t k, struct piece *v, int begins)
{
    const float *a = r->a + k * TILE_ROWS;
    const vec b = vec_load(r->b + k * TILE_COLUMNS);
    (void)begins;
    PIECE(ROW_FIRST)
}
ALWAYS_INLINE void read_step(const struct reader *r, int64_t k, struct piece *v)
{
    const float *a = r->a + k * TILE_ROWS;
    const vec b = vec_load(r->b + k * TILE_COLUMNS);
    PIECE(ROW_STEP)
}

ALWAYS_INLINE void add(struct piece *v, const struct piece *right){PIECE(ROW_ADD)}

/* The next leaf; gives 0 where it is empty. begins: it is the first of all. Most have one step or two: these are no loop, for what a
 * loop counts takes the ports of multiply-adds. */
ALWAYS_INLINE int read_leaf(struct reader *r, struct piece *v, int begins)
{
    const int64_t n = *r->length++;
    if (n == 0) return 0;
    read_first(r, 0, v, begins);
#    ifdef SYCPU_TILES /* even and odd elements are a chain each */
    if (n > 1) {
        struct piece odd;
        read_first(r, 1, &odd, 0);
        if (n > 2) read_step(r, 2, v);
        for (int64_t k = 3; k < n; k += 2) {
            read_step(r, k, &odd);
            if (k + 1 < n) read_step(r, k + 1, v);
        }
        add(v, &odd);
    }
#    else
    if (n > 1) read_step(r, 1, v);
    for (int64_t k = 2; k < n; k++) read_step(r, k, v);
#    endif
    r->a += n * TILE_ROWS;
    r->b += n * TILE_COLUMNS;
    return 1;
}

ALWAYS_INLINE void read_two(struct reader *r, struct piece *v, int begins)
{
    struct piece right;
    if (!read_leaf(r, v, begins)) {
        PIECE(ROW_ZERO)
    }
    if (read_leaf(r, &right, 0)) add(v, &right);
}

ALWAYS_INLINE void read_four(struct reader *r, struct piece *v, int begins)
{
    struct piece right;
    read_two(r, v, begins);
    read_two(r, &right, 0);
    add(v, &right);
}

#    define ROW_STREAM(i)                                                                                    \
        if (i < rows) vec_stream((float *)c + i * stride, sum.c##i);
#    define ROW_STORE(i)                                                                                     \
        if (i < rows) vec_store((float *)c + i * stride, sum.c##i);
#    define ROW_ROUND(i)                                                                                     \
        if (i < rows) vec_store_rounded((uint16_t *)c + i * stride, sum.c##i);

/* length: of SHALLOW_LEAVES. The first `rows` rows go to c, whose rows are `stride` elements apart. */
ALWAYS_INLINE void compute_piece(struct reader reader, enum sycpu_gemm_how how, void *c, int64_t stride,
                                 int rows)
{
    struct piece sum, right;
    read_four(&reader, &sum, 1);
    read_four(&reader, &right, 0);
    add(&sum, &right);
    if (how == SYCPU_GEMM_STREAM) {
        PIECE(ROW_STREAM)
    } else if (how == SYCPU_GEMM_ROUND) {
        PIECE(ROW_ROUND)
    } else {
        PIECE(ROW_STORE)
    }
}

/* Some rows of all tiles, a vector at a time from left to right: memory takes it best so. */
static void compute_rows(const struct sycpu_gemm_tile *tile, const int64_t *length, int row, int64_t tiles)
{
    const int64_t stride = tile->c_stride, element = tile->how == SYCPU_GEMM_ROUND ? 2 : 4;
    const float *b = tile->b;
    char *c = (char *)tile->c + row * stride * element;
    const int rows = tile->height - row;
    for (; tiles > 0; tiles--, b += b_panel_size(tile->steps))
        for (int column = 0; column < TILE_COLUMNS; column += LANES, c += LANES * element)
            compute_piece((struct reader){tile->a + row, b + column, length}, tile->how, c, stride, rows);
}

void fast_gemm_shallow(const struct sycpu_gemm_tile *tile, int64_t leaves, const int64_t *length,
                       int64_t tiles)
{
    int64_t all[SHALLOW_LEAVES] = {0}; /* those that do not exist are empty */
    for (int64_t i = 0; i < leaves; i++) all[i] = length[i];
    for (int row = 0; row < tile->height; row += PIECE_ROWS) compute_rows(tile, all, row, tiles);
}

#endif
