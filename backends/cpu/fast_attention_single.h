/* SPDX-License-Identifier: Apache-2.0 */
/* A head of fast_attention_single.c, as its products see it (fast_attention_single_vectors.h, or with SYCPU_TILES
 * fast_attention_single_tiles.h):
 *
 *     query_words(s)           the query as the scores read it
 *     score_keys(s, width)     s->score: the query times `width` keys, a multiple of 16; fetches pieces, as does
 *     sum_values(s, at, n)     adds n values times their weights to s->out; the first begins with element `at` */
#ifndef SYCPU_FAST_ATTENTION_SINGLE_H
#define SYCPU_FAST_ATTENTION_SINGLE_H

#include "backends/cpu/fast_attention.h"
#include "backends/cpu/fast_attention_forward.h"
#include "backends/cpu/fast_attention_rows.h"

/* A part of the next row's keys and values, which is fetched into the L2 cache in small pieces. */
struct ahead {
    const char *at, *end;
    int64_t piece; /* bytes, a multiple of 64 */
};

/* One head of one row. */
struct single {
    const struct sycpu_attention_forward *f;
    const struct sycpu_attention *a;
    int64_t row, head, dim; /* dim: K rounded up */
    int64_t step;           /* elements between keys */
    const float *query;     /* words */
    float *keys;            /* [words of K, 64] of a block of keys */
    float *widened;         /* [64, dim]: keys that are bf16 where products are of float32 */
    float *score;           /* [64], then weights, as fast_attention.c has them */
    float *out;             /* [dim] */
    vf top, sum;            /* the same in all lanes */
    struct ahead ahead;
};

/* Words of a score, and values, from one piece to the next: small ones, most of them where nothing else is read from beyond the L1
 * cache, since many at once hold up the loads that follow. */
enum { SCORED = 2, SUMMED = 4 };

ALWAYS_INLINE void fetch_piece(struct ahead *ahead)
{
    const char *end = ahead->at + ahead->piece < ahead->end ? ahead->at + ahead->piece : ahead->end;
    for (; ahead->at < end; ahead->at += 64) __builtin_prefetch(ahead->at, 0, 2);
}

#ifdef SYCPU_TILES
#    include "backends/cpu/fast_attention_single_tiles.h"
#else
#    include "backends/cpu/fast_attention_single_vectors.h"
#endif

#endif
