/* SPDX-License-Identifier: Apache-2.0 */
/* CRC-32C (Castagnoli polynomial, RFC 3720 B.4), eight bytes a turn: by eight tables that are made at the first call, and
 * by the instruction that x86-64 processors have for it. */
#include "config.h"

#include <pthread.h>
#include <string.h>
#if defined(__x86_64__) && defined(__GNUC__)
#    include <nmmintrin.h>
#endif

#include "base/base.h"

static uint32_t table[8][256]; /* [k][byte]: what a byte does that is followed by k others */
static pthread_once_t made = PTHREAD_ONCE_INIT;

static void make_table(void)
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
        table[0][byte] = crc;
    }
    for (int k = 1; k < 8; k++)
        for (int byte = 0; byte < 256; byte++)
            table[k][byte] = table[k - 1][byte] >> 8 ^ table[0][table[k - 1][byte] & 0xff];
}

uint32_t syi_crc32c_plain(uint32_t crc, const void *data, size_t bytes)
{
    const unsigned char *at = data;
    pthread_once(&made, make_table);
    crc = ~crc;
    for (; bytes >= 8; at += 8, bytes -= 8)
        crc = table[7][at[0] ^ (crc & 0xff)] ^ table[6][at[1] ^ (crc >> 8 & 0xff)] ^
              table[5][at[2] ^ (crc >> 16 & 0xff)] ^ table[4][at[3] ^ crc >> 24] ^ table[3][at[4]] ^
              table[2][at[5]] ^ table[1][at[6]] ^ table[0][at[7]];
    for (; bytes; at++, bytes--) crc = crc >> 8 ^ table[0][(crc ^ *at) & 0xff];
    return ~crc;
}

#if defined(__x86_64__) && defined(__GNUC__)

static int have_instruction(void)
{
    return __builtin_cpu_supports("sse4.2");
}

__attribute__((target("sse4.2"))) static uint32_t by_instruction(uint32_t crc, const unsigned char *at,
                                                                 size_t bytes)
{
    uint64_t wide = (uint32_t)~crc, word;
    for (; bytes >= 8; at += 8, bytes -= 8) {
        memcpy(&word, at, sizeof(word));
        wide = _mm_crc32_u64(wide, word);
    }
    for (crc = (uint32_t)wide; bytes; at++, bytes--) crc = _mm_crc32_u8(crc, *at);
    return ~crc;
}

#else

static int have_instruction(void)
{
    return 0;
}

static uint32_t by_instruction(uint32_t crc, const unsigned char *at, size_t bytes)
{
    (void)at, (void)bytes;
    return crc;
}

#endif

uint32_t syi_crc32c(uint32_t crc, const void *data, size_t bytes)
{
    return have_instruction() ? by_instruction(crc, data, bytes) : syi_crc32c_plain(crc, data, bytes);
}
