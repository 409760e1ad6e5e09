/* SPDX-License-Identifier: Apache-2.0 */
/* One tile of a matrix product whose leaves have few steps each: the tree over up to eight leaves stays in
 * registers, where fast_gemm_leaf would write every leaf to memory. The tile is computed in pieces of some of
 * its rows and one vector of its columns. With SYCPU_TILES: the same by vectors, see fast_gemm_tokens.c. */
#include "config.h"

#include "backends/cpu/fast_gemm_parts.h"

#ifdef SYCPU_TILES
#    define PIECE_ROWS SHALLOW_ROWS
#    define PIECE(X)   ROWS_6(X)
#    define A_STRIDE   r->tile->a_row
#    define B_STRIDE   r->tile->b_stride
#else
#    define PIECE_ROWS (TILE_ROWS / 2)
#    if TILE_ROWS == 14
#        define PIECE(X) ROWS_6(X) X(6)
#    elif TILE_ROWS == 12
#        define PIECE(X) ROWS_6(X)
#    else
#        define PIECE(X) ROWS_2(X) X(2)
#    endif
#    define A_STRIDE TILE_ROWS
#    define B_STRIDE TILE_COLUMNS
#endif

/* What a piece reads: the next step of A and B, and the leaves that are left. */
struct reader {
    const struct sycpu_gemm_tile *tile;
    const float *a, *b;
    const int64_t *length, *end;
};

/* The first step of a leaf, which is 1 cycle of 20 of a sum of 15 products cheaper than one that adds to +0. It may give -0
 * for +0: compute_piece closes the sum of all. */
#if defined(SYCPU_PAIRS) && !defined(SYCPU_TILES)
#    define FIRST(a, b) vec_step(a, b, vec_zero())
#else
#    define FIRST(a, b) vec_mul(a, b)
#endif
#ifdef SYCPU_TILES /* floats, each element of the contraction a step */
#    define NEXT(a, b, c) _mm512_fmadd_ps(a, b, c)
#else
#    define NEXT(a, b, c) vec_step(a, b, c)
#endif

#define ROW_FIRST(i) v->c##i = FIRST(vec_broadcast(r->a + i), b);
#define ROW_STEP(i)  v->c##i = NEXT(vec_broadcast(r->a + i), b, v->c##i);
#define ROW_ZERO(i)  v->c##i = vec_zero();
#define ROW_ADD(i)   v->c##i = vec_add(v->c##i, right->c##i);
#define ROW_FIELD(i) vec c##i;

/* A named field for each row: an array would be written to memory. */
struct piece {
    PIECE(ROW_FIELD)
};

/* The next step of a leaf: its first, or one that is added. */
ALWAYS_INLINE void read_first(struct reader *r, struct piece *v)
{
    const vec b = vec_load(r->b);
    PIECE(ROW_FIRST)
    r->a += A_STRIDE;
    r->b += B_STRIDE;
}
ALWAYS_INLINE void read_step(struct reader *r, struct piece *v)
{
    const vec b = vec_load(r->b);
    PIECE(ROW_STEP)
    r->a += A_STRIDE;
    r->b += B_STRIDE;
}

ALWAYS_INLINE void add(struct piece *v, const struct piece *right){PIECE(ROW_ADD)}

/* The next leaf; zeros where there is none or where it is empty. */
ALWAYS_INLINE void read_leaf(struct reader *r, struct piece *v)
{
    int64_t n = r->length < r->end ? *r->length++ : 0;
    if (n == 0) {
        PIECE(ROW_ZERO)
        return;
    }
    read_first(r, v);
#ifdef SYCPU_TILES /* even and odd elements are a chain each */
    struct piece odd;
    if (--n == 0) return;
    read_first(r, &odd);
    while (n > 2) {
        read_step(r, v);
        read_step(r, &odd);
        n -= 2;
    }
    if (n == 2) read_step(r, v);
    add(v, &odd);
#else
    while (--n > 0) read_step(r, v);
#endif
}

ALWAYS_INLINE void read_two(struct reader *r, struct piece *v)
{
    struct piece right;
    read_leaf(r, v);
    read_leaf(r, &right);
    add(v, &right);
}

ALWAYS_INLINE void read_four(struct reader *r, struct piece *v)
{
    struct piece right;
    read_two(r, v);
    read_two(r, &right);
    add(v, &right);
}

#define ROW_CLOSE(i) sum.c##i = vec_add(sum.c##i, vec_zero());
#define ROW_STREAM(i)                                                                                        \
    if (i < rows) vec_stream(c + i * tile->c_stride, sum.c##i);
#define ROW_STORE(i)                                                                                         \
    if (i < rows) vec_store(c + i * tile->c_stride, sum.c##i);

#define ROW_ROUND(i)                                                                                         \
    if (i < rows) vec_store_rounded(half + i * tile->c_stride, sum.c##i);

static void compute_piece(const struct sycpu_gemm_tile *tile, int64_t leaves, const int64_t *length, int row,
                          int column)
{
    struct reader reader = {tile, tile->a + row, (const float *)tile->b + column, length, length + leaves};
    struct piece sum, right;
    int rows = tile->height - row;
    float *c = (float *)tile->c + row * tile->c_stride + column;
    uint16_t *half = (uint16_t *)tile->c + row * tile->c_stride + column;
    read_four(&reader, &sum);
    read_four(&reader, &right);
    add(&sum, &right);
    PIECE(ROW_CLOSE)
    if (tile->how == SYCPU_GEMM_STREAM) {
        PIECE(ROW_STREAM)
    } else if (tile->how == SYCPU_GEMM_ROUND) {
        PIECE(ROW_ROUND)
    } else {
        PIECE(ROW_STORE)
    }
}

void fast_gemm_shallow(const struct sycpu_gemm_tile *tile, int64_t leaves, const int64_t *length)
{
    for (int row = 0; row < tile->height; row += PIECE_ROWS)
        for (int column = 0; column < TILE_COLUMNS; column += LANES)
            compute_piece(tile, leaves, length, row, column);
}
