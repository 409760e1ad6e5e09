/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of x and y, x^T y, that are copied to panels beside the steps of tiles: fast_gemm_copied.c begins and ends it, the loop of a
 * tile (fast_gemm_tile.c) copies a piece every few steps. */
#ifndef SYCPU_FAST_GEMM_PIECES_H
#define SYCPU_FAST_GEMM_PIECES_H

#include "backends/cpu/fast_gemm_parts.h"

/* Rows that are copied together, of A and of B: a piece is a vector of each of four rows, or two of each of two, whose places in a
 * panel follow each other. */
#define A_TOGETHER 4
#define B_TOGETHER 2
/* Of `wait` and `every`: there is no next piece. */
#define NO_PIECE INT64_MAX

/* `from` and `to` stand apart, for gcc advances neighbours together in a vector, which takes longer. */
struct sycpu_gemm_pieces {
    const float *from;     /* the next piece: its first vector */
    int64_t second, third; /* words to these; from third to fourth as from first to second */
    int64_t width;         /* words to the next piece */
    int64_t jump;   /* words from what follows the last piece of some rows to the first of the next rows */
    int64_t ahead;  /* words to what is fetched for later */
    float *to;      /* the place of the next piece, */
    int64_t vector; /* words from the place of a vector to that of the next, */
    int64_t panel;  /* to the next place, */
    int64_t back;   /* and, like jump, to the next rows */
    int64_t in_rows, left; /* pieces of some rows; those that are left of these */
    int64_t rows;          /* that are copied together, how many are left; 0: nothing is copied */
    int64_t wait, every;   /* steps to the next piece; from one to the next */
    const struct sycpu_gemm_pieces *then; /* what is copied after that; NULL: nothing */
};

/* Copies the next piece, and fetches one of later rows. */
ALWAYS_INLINE void copy_piece(struct sycpu_gemm_pieces *p)
{
    const float *from = p->from, *far = from + p->ahead;
    const int64_t second = p->second, third = p->third, vector = p->vector;
    float *to = p->to;
    __builtin_prefetch(far);
    __builtin_prefetch(far + second);
    __builtin_prefetch(far + third);
    __builtin_prefetch(far + third + second);
    vec_store(to, vec_load(from));
    vec_store(to + vector, vec_load(from + second));
    vec_store(to + 2 * vector, vec_load(from + third));
    vec_store(to + 3 * vector, vec_load(from + third + second));
    p->from = from + p->width;
    p->to = to + p->panel;
    if (--p->left > 0) return;
    p->left = p->in_rows;
    p->from += p->jump;
    p->to += p->back;
    if (--p->rows > 0) return;
    p->every = NO_PIECE;
    if (p->then) *p = *p->then;
}

#endif
