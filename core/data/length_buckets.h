/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses the padded lengths that leave the least padding in a sample of batches. */
#ifndef SYI_LENGTH_BUCKETS_H
#define SYI_LENGTH_BUCKETS_H

#include "data/batch.h"

/* So many lengths on both sides never make more than SYI_MAX_BUCKETS pairs. */
enum { SYI_MAX_AUTO_BUCKETS = 8 };

/* What the lengths are chosen from. */
struct syi_length_sample {
    struct syi_bucket
        *batch; /* [n] the longest input and the longest target of each, at most those of `most` */
    int n;
    struct syi_bucket most; /* the longest that there may be; they are padded lengths in any case */
    int32_t least;          /* no padded length is shorter */
};

/* Into *lengths at most `count` (1..SYI_MAX_AUTO_BUCKETS) padded lengths for both sides, ascending, the last the longer one of
 * `most`: of all such lists of multiples of 4 one with the fewest padded positions in the sample, input and target positions
 * counting alike. Fewer than `count` where more would change nothing. */
int syi_length_buckets_choose(const struct syi_length_sample *sample, int count, struct syi_ints *lengths,
                              struct sy_error *err) SYI_MUST_CHECK;
/* Positions of both sides that a row has in these padded lengths, on average over the sample. */
double syi_length_buckets_positions(const struct syi_length_sample *sample, const struct syi_ints *lengths);

#endif
