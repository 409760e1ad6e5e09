/* SPDX-License-Identifier: Apache-2.0 */
/* Which instruction set auto takes: the rule over speeds that are made up, and what this processor answers. */
#include "config.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "runtime/kernel_speed.h"
#include "train/launch/variant.h"

enum {
    ANY = SYI_CPU_BFLOAT16_AUTO,
    WIDENED = SYI_CPU_BFLOAT16_WIDENED,
    PAIRS = SYI_CPU_BFLOAT16_AVX512_BF16,
    TILES = SYI_CPU_BFLOAT16_AMX_BF16,
    F32 = SYI_DTYPE_FLOAT32,
    BF16 = SYI_DTYPE_BFLOAT16
};

Test(variant, the_fastest_or_one_as_wide_and_nearly_as_fast)
{
    static const struct {
        double flops[4];
        int n, want;
    } cases[] = {
        {{100, 120}, 2, 1},  {{100, 109}, 2, 0},     {{100, 110}, 2, 0},     {{100, 110.1}, 2, 1},
        {{120, 100}, 2, 0},  {{99, 180, 175}, 3, 1}, {{99, 175, 180}, 3, 1}, {{100, 109, 118}, 3, 1},
        {{0, 50, 60}, 3, 2}, {{0, 100, 105}, 3, 1},  {{0, 0, 0}, 3, 0},      {{7}, 1, 0},
        {{0}, 1, 0},         {{1, 0, 0, 2}, 4, 3},
    };
    for (size_t i = 0; i < SYI_COUNT(cases); i++)
        cr_expect_eq(syi_variant_fastest(cases[i].flops, cases[i].n), cases[i].want, "case %zu", i);
}

/* ---- tables of processors, GFLOP/s in float32 and bfloat16, the widest first ---- */

#define ROW(name, f32, bf16)                                                                                 \
    {                                                                                                        \
        SYI_CPU_VARIANT_##name, {f32, bf16},                                                                 \
        {                                                                                                    \
            "", ""                                                                                           \
        }                                                                                                    \
    }
static const struct syi_variant_speed half_rate[] = {ROW(AMX_BF16, 180, 900), ROW(AVX512_BF16, 180, 99),
                                                     ROW(AVX512, 180, 170), ROW(AVX2, 95, 90),
                                                     ROW(PORTABLE, 3, 3)},
                                      slow_tiles[] = {ROW(AMX_BF16, 500, 160), ROW(AVX512_BF16, 180, 99),
                                                      ROW(AVX512, 180, 180), ROW(AVX2, 95, 90),
                                                      ROW(PORTABLE, 3, 3)},
                                      full_rate[] = {ROW(AVX512_BF16, 110, 215), ROW(AVX512, 110, 100),
                                                     ROW(AVX2, 111, 96), ROW(PORTABLE, 3, 3),
                                                     ROW(BLAS, 500, 96)},
                                      one_unit[] = {ROW(AVX512, 60, 55), ROW(AVX2, 80, 72),
                                                    ROW(PORTABLE, 3, 3)},
                                      narrow[] = {ROW(AVX2, 98, 80), ROW(PORTABLE, 300, 300)},
                                      arm[] = {ROW(NEON, 40, 38), ROW(PORTABLE, 5, 5)},
                                      none[] = {ROW(PORTABLE, 3, 3)};

static void expect(const char *what, const struct syi_variant_speed *speed, size_t n, int dtype, int bfloat16,
                   int want)
{
    int got = syi_variant_of_measured(speed, (int)n, dtype, bfloat16);
    cr_expect_eq(got, want, "%s: %s, not %s", what, syi_variant_name(got), syi_variant_name(want));
}
#define EXPECT(table, dtype, bfloat16, want)                                                                 \
    expect(#table " " #dtype " " #bfloat16, table, SYI_COUNT(table), dtype, bfloat16, SYI_CPU_VARIANT_##want)

Test(variant, of_a_processor_by_dtype)
{
    EXPECT(half_rate, F32, ANY, AVX512_BF16);
    EXPECT(half_rate, BF16, ANY, AMX_BF16);
    EXPECT(slow_tiles, BF16, ANY, AVX512);
    EXPECT(slow_tiles, F32, ANY, AVX512_BF16); /* tiles multiply bfloat16 alone */
    EXPECT(full_rate, F32, ANY, AVX512_BF16);
    EXPECT(full_rate, BF16, ANY, AVX512_BF16);
    EXPECT(one_unit, F32, ANY, AVX2);
    EXPECT(one_unit, BF16, ANY, AVX2);
    EXPECT(narrow, F32, ANY, AVX2); /* portable is no candidate */
    EXPECT(arm, BF16, ANY, NEON);
    EXPECT(none, F32, ANY, PORTABLE);
}

Test(variant, of_a_run_that_keeps_its_arithmetic)
{
    EXPECT(half_rate, BF16, PAIRS, AVX512_BF16);
    EXPECT(slow_tiles, BF16, TILES, AMX_BF16);
    EXPECT(half_rate, F32, TILES, AVX512_BF16);
    EXPECT(half_rate, BF16, WIDENED, AVX512);
    EXPECT(full_rate, BF16, WIDENED, AVX512);
    EXPECT(full_rate, F32, WIDENED, AVX512_BF16); /* float32 has one arithmetic */
    EXPECT(one_unit, BF16, WIDENED, AVX2);
    EXPECT(narrow, BF16, WIDENED, AVX2);
    EXPECT(arm, BF16, WIDENED, NEON);
    EXPECT(none, BF16, WIDENED, PORTABLE);
}

Test(variant, names_and_arithmetics)
{
    cr_expect_eq(syi_variant_of("avx512"), SYI_CPU_VARIANT_AVX512);
    cr_expect_eq(syi_variant_of("amx_bf16: emulated, slow"), SYI_CPU_VARIANT_AMX_BF16);
    cr_expect_str_eq(syi_variant_name(SYI_CPU_VARIANT_AVX512_BF16), "avx512_bf16");
    cr_expect_eq(syi_variant_bfloat16(SYI_CPU_VARIANT_AVX512_BF16), PAIRS);
    cr_expect_eq(syi_variant_bfloat16(SYI_CPU_VARIANT_NEON), WIDENED);
    cr_expect_eq(syi_variant_bfloat16(SYI_CPU_VARIANT_AMX_BF16), TILES);
    cr_expect_eq(syi_variant_bfloat16(SYI_CPU_VARIANT_BLAS), ANY);
}

/* ---- this processor ---- */

/* What a run gets that keeps the arithmetic of `variant`: it where this processor has it; else a refusal of one that goes on,
 * and of one that answers another arithmetic. */
static void keep(int variant, int is_here)
{
    struct sy_error err = {0};
    struct syi_variant_wish wish = {.dtype = BF16, .bfloat16 = syi_variant_bfloat16(variant), .exact = 1};
    int got = 0, status = syi_variant_choose(&wish, &got, &err);
    if (is_here) {
        cr_expect_eq(status, SY_OK, "%s", err.text);
        cr_expect_eq(got, variant, "%s", syi_variant_name(got));
        return;
    }
    cr_expect_eq(status, SY_EUNSUPPORTED);
    cr_expect(strstr(err.text, syi_variant_name(variant)) != NULL, "%s", err.text);
    cr_expect(strstr(err.text, "cpu.bfloat16 = widened (or cpu.variant) to go on here") != NULL, "%s",
              err.text);
    wish.exact = 0;
    cr_expect_eq(syi_variant_choose(&wish, &got, &err), SY_OK);
    cr_expect_neq(syi_variant_bfloat16(got), wish.bfloat16);
}

Test(variant, here)
{
    struct syi_variant_speed speed[SYI_VARIANTS];
    struct sy_error err = {0};
    int n, pairs = 0, tiles = 0, got, first;
    cr_assert_eq(syi_variant_measure(speed, &n, &err), SY_OK, "%s", err.text);
    cr_assert(n >= 1 && n <= SYI_VARIANTS);
    for (int i = 0; i < n; i++) {
        const char *name = syi_variant_name(speed[i].variant);
        pairs |= speed[i].variant == SYI_CPU_VARIANT_AVX512_BF16;
        tiles |= speed[i].variant == SYI_CPU_VARIANT_AMX_BF16;
        for (int dtype = 0; dtype < 2; dtype++)
            cr_expect(speed[i].flops[dtype] > 1e6 && speed[i].flops[dtype] < 1e15, "%s: %g", name,
                      speed[i].flops[dtype]);
    }
    keep(SYI_CPU_VARIANT_AVX512_BF16, pairs);
    keep(SYI_CPU_VARIANT_AMX_BF16, tiles);
    struct syi_variant_wish wish = {.dtype = BF16, .bfloat16 = WIDENED, .exact = 1, .widest = 1};
    cr_assert_eq(syi_variant_choose(&wish, &first, &err), SY_OK);
    cr_expect_eq(syi_variant_bfloat16(first), WIDENED);
    wish.widest = 0;
    cr_assert_eq(syi_variant_choose(&wish, &got, &err), SY_OK);
    cr_expect(syi_variant_bfloat16(got) == WIDENED && got <= first);
}

Test(variant, speed_of_what_is_not_there)
{
    struct syi_backend *backend;
    struct syi_kernel_trial trial = {0};
    struct sy_error err = {0};
    cr_assert_eq(syi_backend_open("cpu", NULL, NULL, &backend, &err), SY_OK, "%s", err.text);
    cr_expect_eq(syi_kernel_trial_open(&trial, backend, SY_F64, &err), SY_OK);
    cr_expect_eq(syi_kernel_trial_run(&trial, &err), SY_OK);
    cr_expect_eq(syi_kernel_trial_flops(&trial), 0);
    syi_kernel_trial_close(&trial);
    syi_backend_close(backend);
}
