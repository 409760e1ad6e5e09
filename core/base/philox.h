/* SPDX-License-Identifier: Apache-2.0 */
/* Philox-4x32-10 (Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as 1, 2, 3; SC 2011), and
 * dropout and jitter made from it as doc/numerics.md says. Scalar; backends/cpu/simd.h has 16 counters at
 * once. */
#ifndef SYI_PHILOX_H
#define SYI_PHILOX_H

#include <stdint.h>

#include "base/inline.h"

#define SYI_PHILOX_M0 0xd2511f53u /* multipliers */
#define SYI_PHILOX_M1 0xcd9e8d57u
#define SYI_PHILOX_W0 0x9e3779b9u /* what each round adds to the key */
#define SYI_PHILOX_W1 0xbb67ae85u

SYI_INLINE void syi_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    uint32_t k0 = key[0], k1 = key[1];
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)SYI_PHILOX_M0 * c0, p1 = (uint64_t)SYI_PHILOX_M1 * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        k0 += SYI_PHILOX_W0;
        k1 += SYI_PHILOX_W1;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

/* The 16 bits of a channel. words: of the channel's block of 8, made anew where a block or a run begins. */
SYI_INLINE uint32_t syi_channel_bits(const uint32_t counter[3], const uint32_t key[2], int64_t channel,
                                     int run_begins, uint32_t words[4])
{
    if (run_begins || channel % 8 == 0) {
        const uint32_t whole[4] = {counter[0], counter[1], counter[2], (uint32_t)(channel / 8)};
        syi_philox(whole, key, words);
    }
    return words[channel % 8 / 2] >> (channel % 2 * 16) & 0xffffu;
}

/* What a dropout needs besides the address of an element. */
struct syi_dropout {
    uint32_t key[2];    /* seed low word, site */
    uint32_t step;      /* counter word 0 */
    uint32_t threshold; /* kept where the 16 bits are at least this; 0: nothing is dropped */
    float scale;        /* of kept values */
};

/* rng: int64 seed, step, ... (enum sy_rng_field); not read, may be NULL, where rate is 0. */
SYI_INLINE struct syi_dropout syi_dropout_init(const int64_t *rng, int64_t site, double rate)
{
    struct syi_dropout d = {{0, (uint32_t)site}, 0, (uint32_t)(rate * 65536.0 + 0.5), 1.0f};
    if (d.threshold == 0) return d;
    d.key[0] = (uint32_t)rng[0];
    d.step = (uint32_t)rng[1];
    d.scale = d.threshold < 65536 ? (float)(65536.0 / (65536.0 - d.threshold)) : 0.0f;
    return d;
}

/* mask[i] of global channels first .. first + n - 1: scale where kept, +0 where dropped. */
SYI_INLINE void syi_dropout_mask(const struct syi_dropout *d, uint32_t row, uint32_t position, int64_t first,
                                 int64_t n, float *mask)
{
    const uint32_t counter[3] = {d->step, row, position};
    uint32_t words[4];
    for (int64_t i = 0; i < n; i++)
        mask[i] =
            syi_channel_bits(counter, d->key, first + i, i == 0, words) >= d->threshold ? d->scale : 0.0f;
}

/* The only way a mask is applied: dropped values are +0, whatever they were. */
#define SYI_DROP(value, mask) ((mask) != 0 ? (value) * (mask) : 0)

/* What a jitter needs besides the address of an element. */
struct syi_jitter {
    uint32_t key[2]; /* seed low word, site */
    uint32_t step;   /* counter word 0 */
    float amount;    /* in [0, 1) */
};

SYI_INLINE struct syi_jitter syi_jitter_init(const int64_t *rng, int64_t site, float amount)
{
    return (struct syi_jitter){{(uint32_t)rng[0], (uint32_t)site}, (uint32_t)rng[1], amount};
}

/* The factor that 16 bits give: all but the product and the sum after it are exact. */
SYI_INLINE float syi_jitter_factor(float amount, uint32_t bits)
{
    return 1.0f + amount * ((float)(2 * (int32_t)bits - 65535) * 0x1p-16f);
}

/* factor[i] of global channels first .. first + n - 1. */
SYI_INLINE void syi_jitter_factors(const struct syi_jitter *j, uint32_t row, uint32_t position, int64_t first,
                                   int64_t n, float *factor)
{
    const uint32_t counter[3] = {j->step, row, position};
    uint32_t words[4];
    for (int64_t i = 0; i < n; i++)
        factor[i] = syi_jitter_factor(j->amount, syi_channel_bits(counter, j->key, first + i, i == 0, words));
}

#endif
