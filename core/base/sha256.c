/* SPDX-License-Identifier: Apache-2.0 */
/* SHA-256 as FIPS 180-4 defines it: in portable C, and where processors have instructions for blocks, by these. */
#include "config.h"

#include <string.h>

#include "base/sha256.h"

static uint32_t rotate(uint32_t value, int by)
{
    return value >> by | value << (32 - by);
}

static uint32_t load_big_endian(const uint8_t *bytes)
{
    return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
}

/* One round; the caller rotates the names of the working variables instead of moving their values. */
static inline void round_step(uint32_t a, uint32_t b, uint32_t c, uint32_t *d, uint32_t e, uint32_t f,
                              uint32_t g, uint32_t *h, uint32_t word)
{
    uint32_t s1 = rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25), choice = (e & f) ^ (~e & g);
    uint32_t s0 = rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22), majority = (a & b) ^ (a & c) ^ (b & c);
    uint32_t t1 = *h + s1 + choice + word;
    *d += t1;
    *h = t1 + s0 + majority;
}

static void compress_block(uint32_t state[8], const uint8_t *block)
{
    uint32_t w[64]; /* message schedule with the round constants added afterwards */
    for (int i = 0; i < 16; i++) w[i] = load_big_endian(block + 4 * i);
    for (int i = 16; i < 64; i++) {
        uint32_t s0 = rotate(w[i - 15], 7) ^ rotate(w[i - 15], 18) ^ w[i - 15] >> 3;
        uint32_t s1 = rotate(w[i - 2], 17) ^ rotate(w[i - 2], 19) ^ w[i - 2] >> 10;
        w[i] = w[i - 16] + s0 + w[i - 7] + s1;
    }
    for (int i = 0; i < 64; i++) w[i] += syi_sha256_constant[i];
    uint32_t a = state[0], b = state[1], c = state[2], d = state[3];
    uint32_t e = state[4], f = state[5], g = state[6], h = state[7];
    for (int i = 0; i < 64; i += 8) {
        round_step(a, b, c, &d, e, f, g, &h, w[i]);
        round_step(h, a, b, &c, d, e, f, &g, w[i + 1]);
        round_step(g, h, a, &b, c, d, e, &f, w[i + 2]);
        round_step(f, g, h, &a, b, c, d, &e, w[i + 3]);
        round_step(e, f, g, &h, a, b, c, &d, w[i + 4]);
        round_step(d, e, f, &g, h, a, b, &c, w[i + 5]);
        round_step(c, d, e, &f, g, h, a, &b, w[i + 6]);
        round_step(b, c, d, &e, f, g, h, &a, w[i + 7]);
    }
    const uint32_t worked[8] = {a, b, c, d, e, f, g, h};
    for (int i = 0; i < 8; i++) state[i] += worked[i];
}

void syi_sha256_plain(uint32_t state[8], const uint8_t *at, size_t blocks)
{
    for (; blocks; blocks--, at += 64) compress_block(state, at);
}

static void compress(uint32_t state[8], const uint8_t *at, size_t blocks)
{
    (syi_sha256_x86_there() ? syi_sha256_x86 : syi_sha256_plain)(state, at, blocks);
}

void syi_sha256_init(struct syi_sha256 *hash)
{
    static const uint32_t start[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    memset(hash, 0, sizeof(*hash));
    memcpy(hash->state, start, sizeof(start));
}

void syi_sha256_add(struct syi_sha256 *hash, const void *data, size_t bytes)
{
    const uint8_t *at = data;
    while (bytes) {
        size_t used = hash->bytes % 64, part = 64 - used < bytes ? 64 - used : bytes;
        if (!used && bytes >= 64) {
            part = bytes / 64 * 64;
            compress(hash->state, at, part / 64);
        } else {
            memcpy(hash->block + used, at, part);
            if (used + part == 64) compress(hash->state, hash->block, 1);
        }
        hash->bytes += part;
        at += part;
        bytes -= part;
    }
}

void syi_sha256_hex(struct syi_sha256 *hash, char hex[65])
{
    static const uint8_t padding[64] = {0x80};
    uint8_t length[8]; /* bits hashed, big endian */
    for (int i = 0; i < 8; i++) length[i] = (uint8_t)(hash->bytes * 8 >> (56 - 8 * i));
    size_t used = hash->bytes % 64;
    syi_sha256_add(hash, padding, used < 56 ? 56 - used : 120 - used);
    syi_sha256_add(hash, length, sizeof(length));
    for (int i = 0; i < 8; i++) snprintf(hex + 8 * i, 9, "%08x", hash->state[i]);
}
