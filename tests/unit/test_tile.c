/* SPDX-License-Identifier: Apache-2.0 */
/* The arithmetic of TDPBF16PS as core/base/amx_tile.h writes it down: against a model in double, at its edges, and on
 * a processor with AMX against the instruction itself. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>

#include <criterion/criterion.h>

#include "base/amx.h"
#include "base/amx_tile.h"
#include "kernel_harness.h"

static uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static void expect_bits(float got, uint32_t want, const char *what)
{
    cr_expect_eq(bits_of(got), want, "%s: %08x instead of %08x", what, bits_of(got), want);
}

/* ---- against double ---- */

/* A float32 with an exponent as small as need be, the nearest to x + rest, where the rest is less than half a unit of
 * x in the last place: what x may be in the middle of. Then flushed. */
static float round_and_flush(double x, double rest)
{
    int exponent;
    double scaled = ldexp(frexp(x, &exponent), 24), whole = rint(scaled), middle = scaled - trunc(scaled);
    if (fabs(middle) == 0.5 && rest != 0) whole = trunc(scaled) + ((rest > 0) == (x > 0) ? 2 * middle : 0);
    double r = ldexp(whole, exponent - 24);
    return fabs(r) < 0x1p-126 ? (float)copysign(0, r) : (float)r;
}

/* a * b + c of finite values: the product is exact, the sum is x + rest. */
static float plain_fma(float a, float b, float c)
{
    double product = (double)tile_flush(a) * tile_flush(b), addend = tile_flush(c), x = product + addend,
           part = x - product, rest = (product - (x - part)) + (addend - part);
    return x == 0 ? (float)x : round_and_flush(x, rest);
}

static uint16_t tiny_half(void)
{
    return (uint16_t)(kh_random() & 0x8000) |
           (uint16_t)(kh_random() % 3 ? (50 + kh_random() % 30) << 7 : kh_random() % 0x100) |
           (uint16_t)(kh_random() & 0x7f);
}

Test(tile, steps_agree_with_double)
{
    for (int i = 0; i < 1000000; i++) {
        float a, b, c;
        if (i % 2) {
            a = kh_uniform(-2.0f, 2.0f), b = kh_uniform(-2.0f, 2.0f), c = kh_uniform(-2.0f, 2.0f);
            a = syi_bf16_to_float(syi_bf16_from_float(a)), b = syi_bf16_to_float(syi_bf16_from_float(b));
        } else {
            a = syi_bf16_to_float(tiny_half()), b = syi_bf16_to_float(tiny_half());
            c = tile_from_bits(
                (kh_random() & 0x80000000) |
                (kh_random() % 2 ? 0x00800000 + kh_random() % 3 : 0x00700000 + kh_random() % 0x00400000));
        }
        float got = tile_fma(a, b, c), want = plain_fma(a, b, c);
        cr_assert_eq(bits_of(got), bits_of(want), "%a * %a + %a: %a instead of %a", a, b, c, got, want);
    }
}

/* The sum of a row: chains of even and odd elements, each from +0, then both, then what was there. */
Test(tile, a_row_is_two_chains)
{
    uint16_t a[TILE_ELEMENTS], b[TILE_ELEMENTS];
    for (int round = 0; round < 1000; round++) {
        double chain[2] = {0, 0}, c = kh_uniform(-1, 1);
        for (int i = 0; i < TILE_ELEMENTS; i++) {
            a[i] = syi_bf16_from_float(kh_uniform(-2, 2)), b[i] = syi_bf16_from_float(kh_uniform(-2, 2));
            chain[i % 2] = plain_fma(syi_bf16_to_float(a[i]), syi_bf16_to_float(b[i]), (float)chain[i % 2]);
        }
        float want = (float)(c + (float)(chain[0] + chain[1]));
        expect_bits(tile_dot_element((float)c, a, b, 2), bits_of(want), "a row");
    }
}

/* ---- edges ---- */

Test(tile, denormals_count_as_zero)
{
    const float least = 0x1p-126f, half = 0x1p-127f;
    expect_bits(tile_fma(half, 1.0f, 0.0f), 0, "a denormal factor");
    expect_bits(tile_fma(1.0f, -half, -0.0f), 0x80000000, "a negative denormal factor, and -0");
    expect_bits(tile_fma(half, 0x1p127f, 1.0f), bits_of(1.0f), "a denormal times what would make it 1");
    expect_bits(tile_fma(half, INFINITY, 0.0f), 0xffc00000, "a denormal times inf is 0 times inf");
    expect_bits(tile_fma(1.0f, least, half), bits_of(least), "a denormal addend");
    expect_bits(tile_fma(0x1p-64f, 0x1p-64f, 0.0f), 0, "a denormal result");
    expect_bits(tile_fma(-0x1p-64f, 0x1p-64f, 0.0f), 0x80000000, "a negative denormal result");
    expect_bits(tile_add(1.5f * least, -least), 0, "a denormal sum");
    expect_bits(tile_add(least, -1.5f * least), 0x80000000, "a negative denormal sum");
    expect_bits(tile_add(1.0f, half), bits_of(1.0f), "a denormal term");
    expect_bits(tile_add(-half, -0.0f), 0x80000000, "a negative denormal term, and -0");
}

/* Products that fmaf rounds to 2^-126: flushed where 24 bits and any exponent would have left less. */
Test(tile, tiny_is_judged_after_rounding)
{
    const float least = 0x1p-126f;
    expect_bits(tile_fma(1.0f - 0x1p-8f, least, 0.0f), 0, "255/256 of the least");
    /* 2^-126 (1 - 2^-24) needs no rounding to 24 bits; as a denormal it would be in the middle, and go to 2^-126 */
    expect_bits(tile_fma(-0x1p-75f, 0x1p-75f, least), 0, "2^-126 - 2^-150");
    expect_bits(tile_fma(0x1p-75f, 0x1p-75f, -least), 0x80000000, "-(2^-126 - 2^-150)");
    /* 2^-126 (1 - 2^-25) lies in the middle: to even, 2^-126 */
    expect_bits(tile_fma(-0x1p-75f, 0x1p-76f, least), bits_of(least), "2^-126 - 2^-151");
    expect_bits(tile_fma(-1.5f * 0x1p-75f, 0x1p-76f, least), 0, "2^-126 - 1.5 2^-151");
    expect_bits(tile_fma(-0x1p-75f, 0x1p-78f, least), bits_of(least), "2^-126 - 2^-153");
    expect_bits(tile_fma(0x1p-63f, 0x1p-63f, 0.0f), bits_of(least), "2^-126");
}

Test(tile, nan_and_infinity)
{
    const float signaling = tile_from_bits(0xff812345), other = tile_from_bits(0x7fc00777),
                third = tile_from_bits(0x7fc00333);
    expect_bits(tile_fma(signaling, other, third), 0xffc12345, "the first of three");
    expect_bits(tile_fma(1.0f, other, third), 0x7fc00777, "the second");
    expect_bits(tile_fma(INFINITY, 0.0f, third), 0x7fc00333, "the third, before an invalid product");
    expect_bits(tile_fma(INFINITY, 0.0f, 1.0f), 0xffc00000, "inf * 0");
    expect_bits(tile_fma(INFINITY, 1.0f, -INFINITY), 0xffc00000, "inf - inf");
    expect_bits(tile_fma(0x1p100f, 0x1p100f, -0x1p127f), bits_of(INFINITY), "overflow");
    expect_bits(tile_add(signaling, other), 0xffc12345, "the first of two");
    expect_bits(tile_add(INFINITY, -INFINITY), 0xffc00000, "inf - inf");
    uint16_t a[TILE_ELEMENTS] = {0}, b[TILE_ELEMENTS] = {0};
    a[4] = 0xffc1, a[7] = 0x7fc2;
    expect_bits(tile_dot_element(1.0f, a, b, 2), 0xffc10000, "even before odd");
    expect_bits(tile_dot_element(other, a, b, 2), 0x7fc00777, "what is there before both");
}

/* Elements of C are rows of A times columns of B. */
Test(tile, a_tile_is_rows_times_columns)
{
    static uint16_t a[TILE_LINES][TILE_ELEMENTS], b[TILE_LINES][TILE_LINES][2];
    static float c[TILE_LINES][TILE_LINES];
    for (int i = 0; i < TILE_LINES; i++)
        for (int k = 0; k < TILE_ELEMENTS; k++) {
            a[i][k] = syi_bf16_from_float((float)(i == 3 ? k : 0));
            b[k / 2][i][k % 2] = syi_bf16_from_float(i == 5 ? 1.0f : i == 6 && k == 1 ? 2.0f : 0.0f);
        }
    c[3][6] = 10.0f, c[4][5] = 20.0f;
    tile_dot(c, a, b);
    for (int i = 0; i < TILE_LINES; i++)
        for (int j = 0; j < TILE_LINES; j++)
            cr_expect_eq(c[i][j], i == 3 && j == 5   ? 496.0f /* 0 + 1 + ... + 31 */
                                  : i == 3 && j == 6 ? 12.0f
                                  : i == 4 && j == 5 ? 20.0f
                                                     : 0.0f);
}

/* ---- a tile ---- */

/* What makes differences: anything, ordinary numbers, those near 2^-126, zeros and infinities. */
static uint16_t any_half(int kind)
{
    static const uint16_t special[] = {0,      0x8000, 0x7f80, 0xff80, 0x7fc1, 0xffc2,
                                       0x7f81, 1,      0x8001, 0x80,   0x8080};
    if (kind == 0) return (uint16_t)kh_random();
    if (kind == 1) return syi_bf16_from_float(kh_uniform(-2.0f, 2.0f));
    if (kind == 2 || kh_random() % 8) return tiny_half();
    return special[kh_random() % (sizeof special / sizeof special[0])];
}

struct tiles {
    uint16_t a[TILE_LINES][TILE_ELEMENTS], b[TILE_LINES][TILE_LINES][2];
    float c[TILE_LINES][TILE_LINES], want[TILE_LINES][TILE_LINES];
};

/* Another kind each round; every fourth round of them one value of another kind among ordinary numbers. */
static void fill_tiles(struct tiles *t, int round)
{
    const int kind = round % 4, rare = round / 4 % 4 == 0;
    for (int i = 0; i < TILE_LINES; i++)
        for (int k = 0; k < TILE_ELEMENTS; k++) {
            t->a[i][k] = any_half(rare ? 1 : kind), t->b[i][k / 2][k % 2] = any_half(rare ? 1 : kind);
            t->c[i][k / 2] = syi_bf16_to_float(any_half(rare ? 1 : kind));
        }
    if (rare) t->a[kh_random() % TILE_LINES][kh_random() % TILE_ELEMENTS] = any_half(kind);
    if (rare) t->b[kh_random() % TILE_LINES][kh_random() % TILE_LINES][kh_random() % 2] = any_half(kind);
    if (rare && kind == 3) t->c[kh_random() % TILE_LINES][kh_random() % TILE_LINES] = 0x1p-127f;
    memcpy(t->want, t->c, sizeof t->c);
}

static void expect_tile(const struct tiles *t, int round)
{
    for (int i = 0; i < TILE_LINES; i++)
        for (int j = 0; j < TILE_LINES; j++)
            cr_assert_eq(bits_of(t->c[i][j]), bits_of(t->want[i][j]),
                         "round %d, element %d, %d: %a instead of %a", round, i, j, t->c[i][j],
                         t->want[i][j]);
}

Test(tile, a_tile_has_the_bits_of_its_elements)
{
    static struct tiles t;
    for (int round = 0; round < 2000; round++) {
        fill_tiles(&t, round);
        for (int i = 0; i < TILE_LINES; i++)
            for (int j = 0; j < TILE_LINES; j++)
                t.want[i][j] = tile_dot_element(t.want[i][j], t.a[i], t.b[0][j], 2 * TILE_LINES);
        tile_dot(t.c, (const uint16_t(*)[TILE_ELEMENTS])t.a, (const uint16_t(*)[TILE_LINES][2])t.b);
        expect_tile(&t, round);
    }
}

/* 2^-126, less 2^-150, which one operation rounds to 2^-126. */
Test(tile, a_tile_judges_what_is_tiny_as_its_elements)
{
    static struct tiles t;
    t.a[3][0] = t.b[0][5][0] = syi_bf16_from_float(0x1p-63f);
    t.a[3][2] = syi_bf16_from_float(0x1p-75f), t.b[1][5][0] = syi_bf16_from_float(-0x1p-75f);
    tile_dot(t.c, (const uint16_t(*)[TILE_ELEMENTS])t.a, (const uint16_t(*)[TILE_LINES][2])t.b);
    expect_bits(t.c[3][5], 0, "2^-126 - 2^-150");
    t.a[3][2] = 0, t.c[3][5] = 0;
    tile_dot(t.c, (const uint16_t(*)[TILE_ELEMENTS])t.a, (const uint16_t(*)[TILE_LINES][2])t.b);
    expect_bits(t.c[3][5], bits_of(0x1p-126f), "2^-126");
}

/* ---- the instruction ---- */

#if SYCPU_HAS_AMX_BF16
static void instruction(float (*c)[TILE_LINES], const void *a, const void *b)
{
    enter_tiles();
    TILE_LOAD(0, c, 64);
    TILE_LOAD(1, a, 64);
    TILE_LOAD(2, b, 64);
    TILE_DOT(0, 1, 2);
    TILE_STORE(0, c, 64);
    leave_tiles();
}

Test(tile, the_instruction_has_these_bits)
{
    static struct tiles t;
    if (!syi_amx_request()) cr_skip_test("this processor or system has no AMX tiles");
    for (int round = 0; round < 10700;
         round++) { /* 2 million elements, and those of every fourth four rounds */
        fill_tiles(&t, round);
        tile_dot(t.want, (const uint16_t(*)[TILE_ELEMENTS])t.a, (const uint16_t(*)[TILE_LINES][2])t.b);
        instruction(t.c, t.a, t.b);
        expect_tile(&t, round);
    }
}
#else
Test(tile, the_instruction_has_these_bits)
{
    cr_skip_test("this build has no AMX: its assembler does not know the instructions");
}
#endif
