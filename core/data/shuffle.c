/* SPDX-License-Identifier: Apache-2.0 */
/* A keyed bijection: a Feistel network over the next power of four, walked until it falls into the range. */
#include "config.h"

#include "data/shuffle.h"

enum { ROUNDS = 6 };

/* The 64-bit finaliser of SplitMix64 (Steele, Lea, Flood 2014). */
static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

uint64_t syi_shuffle_key(uint64_t key, uint64_t number)
{
    return mix(mix(key + 0x9e3779b97f4a7c15u) ^ (number + 0x9e3779b97f4a7c15u));
}

/* Halves of half_bits each; whatever the round function is, a Feistel round can be undone, so this is a
 * bijection of 0 .. 4^half_bits - 1. */
static uint64_t feistel(uint64_t key, unsigned half_bits, uint64_t x)
{
    uint64_t mask = ((uint64_t)1 << half_bits) - 1, left = x >> half_bits, right = x & mask, next;

    for (unsigned round = 0; round < ROUNDS; round++) {
        next = left ^ (syi_shuffle_key(key + round, right) & mask);
        left = right;
        right = next;
    }
    return left << half_bits | right;
}

uint64_t syi_shuffle_index(uint64_t key, uint64_t n, uint64_t index)
{
    unsigned half_bits = 1;

    while (half_bits < 32 && (uint64_t)1 << 2 * half_bits < n) half_bits++;
    /* The cycle through index comes back into the range at the latest at index itself; four steps on average
     * at most. */
    do index = feistel(key, half_bits, index);
    while (index >= n);
    return index;
}
