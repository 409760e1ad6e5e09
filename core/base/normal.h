/* SPDX-License-Identifier: Apache-2.0 */
/* Standard normal numbers by their address, as doc/numerics.md says: four of one Philox block, by the formula
 * of Box and Muller (fmath_body.h). Scalar; backends/cpu/fast_normal.c has 16 blocks at once. */
#ifndef SYI_NORMAL_H
#define SYI_NORMAL_H

#include "base/fmath.h"
#include "base/philox.h"

/* Set in counter word 2, which of dropout and jitter is a position: their bits are others, even at one
 * site. */
#define SYI_NORMAL_MARK 0x80000000u

/* What normal numbers need besides the address of an element. */
struct syi_normal {
    uint32_t key[2]; /* seed low word, site */
    uint32_t step;   /* counter word 0 */
};

/* rng: int64 seed, step, ... (enum sy_rng_field). */
SYI_INLINE struct syi_normal syi_normal_init(const int64_t *rng, int64_t site)
{
    return (struct syi_normal){{(uint32_t)rng[0], (uint32_t)site}, (uint32_t)rng[1]};
}

/* Channels 4 * block to 4 * block + 3 of a row. */
SYI_INLINE void syi_normal_block(const struct syi_normal *n, uint64_t row, uint32_t block, float y[4])
{
    const uint32_t counter[4] = {n->step, (uint32_t)row, (uint32_t)(row >> 32) ^ SYI_NORMAL_MARK, block};
    uint32_t words[4];
    syi_philox(counter, n->key, words);
    for (int i = 0; i < 4; i += 2)
        syi_f32_normal_pair((int32_t)words[i], (int32_t)words[i + 1], &y[i], &y[i + 1]);
}

#endif
