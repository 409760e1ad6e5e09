/* SPDX-License-Identifier: Apache-2.0 */
/* fmath.h: errors against double libm over all exponents, special values, and the vector forms against the
 * scalar ones (through the op map, which calls them). */
#include "config.h"

#include <float.h>

#include "base/fmath.h"
#include "tests/unit/kernel_harness.h"

/* Error of `got` in units in the last place of the float nearest to `want`. */
static double ulps(float got, double want)
{
    int exponent;
    if (isinf(got) && fabs(want) > (double)FLT_MAX) return 0;
    frexp(want, &exponent);
    return fabs((double)got - want) / ldexp(1.0, (exponent < -125 ? -125 : exponent) - 24);
}

/* Largest error over every 509th float (every exponent, both signs) in [low, high]. */
static double worst(float (*fn)(float), double (*exact)(double), float low, float high)
{
    double most = 0;
    for (uint64_t i = 0; i < UINT64_C(1) << 32; i += 509) {
        float x = syi_f32_real((int32_t)(uint32_t)i);
        if (!(x >= low && x <= high)) continue;
        double error = ulps(fn(x), exact((double)x));
        if (!(error <= most)) most = error;
    }
    return most;
}

Test(fmath, errors_are_as_stated)
{
    cr_expect_leq(worst(syi_f32_exp, exp, -200.0f, 200.0f), 1.1);
    cr_expect_leq(worst(syi_f32_log, log, 0x1p-149f, FLT_MAX), 1.1);
    cr_expect_leq(worst(syi_f32_tanh, tanh, -FLT_MAX, FLT_MAX), 2.5);
}

/* Of sin and cos over all quarters; every 1021st angle, and those next to whole sixteenths of a turn. */
static double worst_of_circle(int cosine)
{
    double most = 0;
    for (uint64_t i = 0; i < (UINT64_C(1) << 32) + 16 * 2001; i += i >> 32 ? 1 : 1021) {
        uint64_t beside = i & 0xffffffff;
        uint32_t turns =
            i >> 32 ? (uint32_t)(beside / 2001 * 0x10000000 + beside % 2001 - 1000) : (uint32_t)i;
        uint32_t rest = (turns + 0x20000000) % 0x40000000; /* the angle beyond a quarter, plus an eighth */
        double angle = ((double)rest - 0x1p29) * (2 * M_PI) * 0x1p-32, want;
        int quarter = (int)((turns + 0x20000000) / 0x40000000) + cosine;
        want = quarter % 2 ? cos(angle) : sin(angle);
        if (quarter % 4 >= 2) want = -want;
        float s, c;
        syi_f32_sin_cos((int32_t)turns, &s, &c);
        double error = ulps(cosine ? c : s, want);
        if (!(error <= most)) most = error;
    }
    return most;
}

Test(fmath, errors_of_the_circle_are_as_stated)
{
    static const float at[4][2] = {{0, 1}, {1, 0}, {0, -1}, {-1, 0}};
    for (int cosine = 0; cosine < 2; cosine++) {
        double most = worst_of_circle(cosine);
        cr_expect_leq(most, 2.0, "%s: %g", cosine ? "cos" : "sin", most);
    }
    for (uint32_t quarter = 0; quarter < 4; quarter++) {
        float s, c;
        syi_f32_sin_cos((int32_t)(quarter << 30), &s, &c);
        cr_expect(s == at[quarter][0] && c == at[quarter][1], "quarter %u: %a %a", quarter, s, c);
    }
}

/* Against the formula in double, less what the rounding of u may do; where u is least and where it is 1. */
Test(fmath, normal_pairs)
{
    double worst = 0;
    float a, b;
    for (int i = 0; i < 1000000; i++) {
        uint32_t word = kh_random() >> i % 25, turns = kh_random();
        double radius = sqrt(-2 * log(((double)word + 0.5) * 0x1p-32)), angle = turns * 0x1p-32 * 2 * M_PI;
        syi_f32_normal_pair((int32_t)word, (int32_t)turns, &a, &b);
        worst = fmax(worst, fabs((double)a - radius * cos(angle)) - 0x1p-24 / radius);
        worst = fmax(worst, fabs((double)b - radius * sin(angle)) - 0x1p-24 / radius);
    }
    cr_expect_leq(worst, 1e-6, "%g", worst);
    syi_f32_normal_pair(0, 0, &a, &b);
    cr_expect_float_eq((double)a, sqrt(66 * log(2)), 1e-6, "%.9g", (double)a);
    cr_expect_eq(b, 0.0f);
    syi_f32_normal_pair(-1, 12345, &a, &b);
    cr_expect(a == 0.0f && b == 0.0f, "%a %a", a, b);
}

Test(fmath, special_values)
{
    cr_expect_eq(syi_f32_exp(0.0f), 1.0f);
    cr_expect_eq(syi_f32_exp(-0.0f), 1.0f);
    cr_expect_eq(syi_f32_exp(INFINITY), INFINITY);
    cr_expect_eq(syi_f32_exp(89.0f), INFINITY);
    cr_expect_eq(syi_f32_exp(-INFINITY), 0.0f);
    cr_expect_gt(syi_f32_exp(-103.0f), 0.0f, "denormal results are there");
    cr_expect_eq(syi_f32_exp(-104.0f), 0.0f);
    cr_expect(isnan(syi_f32_exp(NAN)));
    cr_expect_eq(syi_f32_log(1.0f), 0.0f);
    cr_expect_eq(syi_f32_log(0.0f), -INFINITY);
    cr_expect_eq(syi_f32_log(-0.0f), -INFINITY);
    cr_expect_eq(syi_f32_log(INFINITY), INFINITY);
    cr_expect(isnan(syi_f32_log(-1.0f)) && isnan(syi_f32_log(-INFINITY)) && isnan(syi_f32_log(NAN)));
    cr_expect_eq(syi_f32_tanh(INFINITY), 1.0f);
    cr_expect_eq(syi_f32_tanh(-INFINITY), -1.0f);
    cr_expect_eq(syi_f32_tanh(1e-42f), 1e-42f);
    cr_expect(signbit(syi_f32_tanh(-0.0f)) && isnan(syi_f32_tanh(NAN)));
    for (int kind = SY_LINEAR; kind <= SY_SILU; kind++) {
        cr_expect(isnan(syi_f32_activation(NAN, kind)), "activation %d loses NaN", kind);
        cr_expect_eq(syi_f32_activation(INFINITY, kind), INFINITY);
        cr_expect_eq(syi_f32_activation_grad(INFINITY, kind), 1.0f);
        cr_expect_eq(syi_f32_activation_grad(-INFINITY, kind), kind == SY_LINEAR ? 1.0f : 0.0f);
    }
}

static double exact_activation(double x, int kind)
{
    double u = sqrt(2 / M_PI) * (x + 0.044715 * x * x * x);
    return kind == SY_RELU ? fmax(x, 0) : kind == SY_GELU ? x / (1 + exp(-2 * u)) : x / (1 + exp(-x));
}

static double exact_slope(double x, int kind)
{
    double u = sqrt(2 / M_PI) * (x + 0.044715 * x * x * x), du = sqrt(2 / M_PI) * (1 + 3 * 0.044715 * x * x);
    double s = 1 / (1 + exp(kind == SY_GELU ? -2 * u : -x));
    if (kind == SY_RELU) return x > 0;
    return s + x * s * (1 - s) * (kind == SY_GELU ? 2 * du : 1);
}

Test(fmath, activations)
{
    cr_expect_float_eq(exact_activation(0.7, SY_GELU),
                       0.7 / 2 * (1 + tanh(sqrt(2 / M_PI) * (0.7 + 0.044715 * 0.343))), 1e-12,
                       "the form with the logistic function is the one with tanh");
    for (int kind = SY_RELU; kind <= SY_SILU; kind++) {
        double value = 0, tail = 0, slope = 0;
        for (float x = -30.0f; x < 30.0f; x += 0.000371f) {
            float y = syi_f32_activation(x, kind), both, grad = syi_f32_activation_both(x, kind, &both);
            double want = exact_activation((double)x, kind);
            cr_assert_eq(y, both, "activation_both gives other bits at %a", x);
            if (fabs(want) > 1e-35) tail = fmax(tail, fabs(y - want) / fabs(want));
            if (x > -3.0f) value = fmax(value, fabs(y - want) / fmax(fabs(want), 1e-35));
            slope = fmax(slope, fabs(grad - exact_slope((double)x, kind)));
        }
        cr_expect_leq(slope, 3e-6, "slope of activation %d: %g", kind, slope);
        cr_expect_leq(value,
                      kind == SY_RELU   ? 0
                      : kind == SY_SILU ? 3e-7
                                        : 1e-6,
                      "activation %d: %g", kind, value);
        cr_expect_leq(tail, kind == SY_RELU ? 0 : 2e-5, "tail of activation %d: %g", kind, tail);
    }
}

/* One instruction over samples of all floats, every variant against the reference. */
static void same_in_all_variants(int op, int kind, uint32_t start)
{
    enum { N = 1 << 20 };
    union {
        struct sy_attr_map map;
        char bytes[sizeof(struct sy_attr_map) + sizeof(struct sy_map_instr)];
    } attr = {.map = {.n_instr = 1, .out_register = {2}, .rng = 255}};
    struct kh k;
    attr.map.instr[0] = (struct sy_map_instr){.op = (uint8_t)op, .b = 1, .c = (uint8_t)kind};
    kh_begin(&k, SY_OP_MAP, &attr, sizeof attr);
    float *x = kh_in(&k, SY_F32, 1, N), *one = kh_in(&k, SY_F32, 1, 1);
    for (uint32_t i = 0; i < N; i++) x[i] = syi_f32_real((int32_t)(start + i * 4096));
    *one = 1.0f;
    kh_out(&k, SY_F32, 1, N);
    k.cpu_only = start > 0;
    kh_check(&k, "a function of fmath.h");
    kh_end(&k);
}

Test(fmath, vectors_have_the_bits_of_scalars)
{
    for (uint32_t start = 0; start < 4096; start += 1000) {
        same_in_all_variants(SY_MAP_EXP, 0, start);
        same_in_all_variants(SY_MAP_LOG, 0, start);
        same_in_all_variants(SY_MAP_TANH, 0, start);
        for (int kind = SY_LINEAR; kind <= SY_SILU; kind++) {
            same_in_all_variants(SY_MAP_ACTIVATION, kind, start);
            same_in_all_variants(SY_MAP_ACTIVATION_GRAD, kind, start);
        }
    }
}
