/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks of SHA-256 by the instructions that x86-64 processors have for it. */
#include "config.h"

#include "base/sha256.h"

#if defined(__x86_64__) && defined(__GNUC__)
#    include <cpuid.h>
#    include <immintrin.h>
#    include <pthread.h>

static pthread_once_t looked = PTHREAD_ONCE_INIT;
static int have;

static void look(void)
{
    unsigned a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_SSSE3) || !(c & bit_SSE4_1)) return;
    have = __get_cpuid_count(7, 0, &a, &b, &c, &d) && b & bit_SHA;
}

int syi_sha256_x86_there(void)
{
    pthread_once(&looked, look);
    return have;
}

/* The instructions keep the working variables as (a, b, e, f) and (c, d, g, h), the first in the highest place; one of them
 * does two rounds, after which the old first half is the new second half. */
__attribute__((target("sha,sse4.1,ssse3"))) void syi_sha256_x86(uint32_t state[8], const uint8_t *at,
                                                                size_t blocks)
{
    const __m128i reverse = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
    __m128i abef = _mm_set_epi32((int)state[0], (int)state[1], (int)state[4], (int)state[5]);
    __m128i cdgh = _mm_set_epi32((int)state[2], (int)state[3], (int)state[6], (int)state[7]);
    uint32_t first[4], second[4];
    for (; blocks; blocks--, at += 64) {
        const __m128i abef_before = abef, cdgh_before = cdgh;
        __m128i w[4]; /* the last 16 words of the message schedule */
#    pragma GCC unroll 16
        for (int i = 0; i < 16; i++) {
            if (i < 4) {
                w[i] =
                    _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)(const void *)(at + 16 * i)), reverse);
            } else {
                __m128i seventh = _mm_alignr_epi8(w[(i + 3) % 4], w[(i + 2) % 4], 4); /* words t - 7 */
                __m128i sum = _mm_add_epi32(_mm_sha256msg1_epu32(w[i % 4], w[(i + 1) % 4]), seventh);
                w[i % 4] = _mm_sha256msg2_epu32(sum, w[(i + 3) % 4]);
            }
            const __m128i *constant = (const __m128i *)(const void *)(syi_sha256_constant + 4 * i);
            __m128i words = _mm_add_epi32(w[i % 4], _mm_loadu_si128(constant));
            cdgh = _mm_sha256rnds2_epu32(cdgh, abef, words);
            abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(words, 0x0e));
        }
        abef = _mm_add_epi32(abef, abef_before);
        cdgh = _mm_add_epi32(cdgh, cdgh_before);
    }
    _mm_storeu_si128((__m128i *)(void *)first, abef);
    _mm_storeu_si128((__m128i *)(void *)second, cdgh);
    for (int i = 0; i < 2; i++) {
        state[i] = first[3 - i];
        state[2 + i] = second[3 - i];
        state[4 + i] = first[1 - i];
        state[6 + i] = second[1 - i];
    }
}

#else

int syi_sha256_x86_there(void)
{
    return 0;
}

void syi_sha256_x86(uint32_t state[8], const uint8_t *at, size_t blocks)
{
    (void)state, (void)at, (void)blocks;
}

#endif
