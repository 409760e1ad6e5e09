/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of x and y, x^T y, that are copied to panels beside the steps of tiles: fast_gemm_copied.c begins and ends it, the loop of a
 * tile (fast_gemm_tile.c) copies a piece every few steps. */
#ifndef SYCPU_FAST_GEMM_PIECES_H
#define SYCPU_FAST_GEMM_PIECES_H

#include "backends/cpu/fast_gemm_parts.h"

/* Steps that are copied together, of A and of B: a piece is a vector of each of four steps, or two of each of two, whose places in a
 * panel follow each other. With SYCPU_PAIRS a step is two rows, of which a vector is made. */
#define A_TOGETHER 4
#define B_TOGETHER 2
/* Of `wait` and `every`: there is no next piece. */
#define NO_PIECE INT64_MAX

/* `from` and `to` stand apart, for gcc advances neighbours together in a vector, which takes longer. */
struct sycpu_gemm_pieces {
    const operand *from;   /* the next piece: its first vector */
    int64_t second, third; /* elements to these; from third to fourth as from first to second */
    int64_t below;         /* elements from a row to the next */
    int64_t width;         /* elements to the next piece */
    int64_t jump; /* elements from what follows the last piece of some steps to the first of the next steps */
    int64_t ahead;         /* elements to what is fetched for later */
    float *to;             /* the place of the next piece, */
    int64_t vector;        /* words from the place of a vector to that of the next, */
    int64_t panel;         /* to the next place, */
    int64_t back;          /* and, like jump, to the next steps */
    int64_t in_rows, left; /* pieces of some steps; those that are left of these */
    int64_t steps;         /* that are copied together, how many are left; 0: nothing is copied */
    int64_t wait, every;   /* steps to the next piece; from one to the next */
    const struct sycpu_gemm_pieces *then; /* what is copied after that; NULL: nothing */
};

/* Fetches what a vector is made of. */
ALWAYS_INLINE void fetch_vector(const operand *from, int64_t below)
{
    __builtin_prefetch(from);
    if (STEP > 1) __builtin_prefetch(from + below);
}

/* Copies the next piece, and fetches one of later steps. */
ALWAYS_INLINE void copy_piece(struct sycpu_gemm_pieces *p)
{
    const operand *from = p->from, *far = from + p->ahead;
    const int64_t second = p->second, third = p->third, below = p->below, vector = p->vector;
    float *to = p->to;
    fetch_vector(far, below);
    fetch_vector(far + second, below);
    fetch_vector(far + third, below);
    fetch_vector(far + third + second, below);
    vec_store(to, vec_load_step(from, below));
    vec_store(to + vector, vec_load_step(from + second, below));
    vec_store(to + 2 * vector, vec_load_step(from + third, below));
    vec_store(to + 3 * vector, vec_load_step(from + third + second, below));
    p->from = from + p->width;
    p->to = to + p->panel;
    if (--p->left > 0) return;
    p->left = p->in_rows;
    p->from += p->jump;
    p->to += p->back;
    if (--p->steps > 0) return;
    p->every = NO_PIECE;
    if (p->then) *p = *p->then;
}

#endif
