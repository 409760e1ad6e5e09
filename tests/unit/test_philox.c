/* SPDX-License-Identifier: Apache-2.0 */
/* Philox-4x32-10 against the known answers that its authors publish (Random123, kat_vectors), and dropout
 * masks: the share kept, the scale, addresses that do not depend on where a row is cut. */
#include "config.h"

#include <criterion/criterion.h>
#include <string.h>

#include "base/philox.h"

static void expect(const uint32_t counter[4], const uint32_t key[2], const uint32_t want[4])
{
    uint32_t got[4];
    syi_philox(counter, key, got);
    for (int i = 0; i < 4; i++)
        cr_expect_eq(got[i], want[i], "word %d: %08x, expected %08x", i, got[i], want[i]);
}

Test(philox, known_answers)
{
    expect((uint32_t[]){0, 0, 0, 0}, (uint32_t[]){0, 0},
           (uint32_t[]){0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
    expect((uint32_t[]){~0u, ~0u, ~0u, ~0u}, (uint32_t[]){~0u, ~0u},
           (uint32_t[]){0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
    expect((uint32_t[]){0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, (uint32_t[]){0xa4093822, 0x299f31d0},
           (uint32_t[]){0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

Test(philox, dropout_keeps_the_right_share)
{
    enum { ROWS = 200, COLUMNS = 1000 };
    const int64_t rng[4] = {12345, 7, 0, 0};
    struct syi_dropout d = syi_dropout_init(rng, 3, 0.1);
    float mask[COLUMNS];
    int kept = 0;
    cr_expect_eq(d.threshold, 6554u);
    cr_expect_eq(d.scale, (float)(65536.0 / (65536.0 - 6554.0)));
    for (uint32_t row = 0; row < ROWS; row++) {
        syi_dropout_mask(&d, row, 0, 0, COLUMNS, mask);
        for (int i = 0; i < COLUMNS; i++) {
            cr_assert(mask[i] == 0.0f || mask[i] == d.scale);
            kept += mask[i] != 0.0f;
        }
    }
    cr_expect_float_eq((double)kept / (ROWS * COLUMNS), 0.9, 0.004);
}

Test(philox, mask_of_a_part_is_part_of_the_mask)
{
    const int64_t rng[4] = {-1, 1 << 20, 0, 0};
    struct syi_dropout d = syi_dropout_init(rng, 1, 0.5);
    float whole[100], part[100];
    syi_dropout_mask(&d, 5, 9, 0, 100, whole);
    for (int first = 0; first < 100; first++) {
        syi_dropout_mask(&d, 5, 9, first, 100 - first, part);
        cr_assert_eq(memcmp(part, whole + first, (size_t)(100 - first) * sizeof *part), 0, "from %d on",
                     first);
    }
}

/* Channel c takes half-word c % 8 of the counter (step, row, position, c / 8). */
Test(philox, mask_bits_are_where_they_are_documented)
{
    const int64_t rng[4] = {77, 5, 0, 0};
    struct syi_dropout d = syi_dropout_init(rng, 2, 0.3);
    float mask[24];
    uint32_t words[4];
    syi_dropout_mask(&d, 11, 4, 0, 24, mask);
    for (uint32_t c = 0; c < 24; c++) {
        syi_philox((uint32_t[]){5, 11, 4, c / 8}, (uint32_t[]){77, 2}, words);
        uint32_t bits = c % 2 ? words[c % 8 / 2] >> 16 : words[c % 8 / 2] & 0xffff;
        cr_expect_eq(mask[c], bits >= 19661 ? d.scale : 0.0f, "channel %u", c);
    }
}

Test(philox, rates_at_the_ends)
{
    const int64_t rng[4] = {1, 2, 3, 4};
    float mask[16];
    cr_expect_eq(syi_dropout_init(NULL, 1, 0.0).threshold, 0u);
    struct syi_dropout all = syi_dropout_init(rng, 1, 1.0);
    syi_dropout_mask(&all, 0, 0, 0, 16, mask);
    for (int i = 0; i < 16; i++) cr_expect_eq(mask[i], 0.0f);
    cr_expect_eq(SYI_DROP(-1.0f / 0.0f, 0.0f), 0.0f, "a dropped value is 0 whatever it was");
}
