/* SPDX-License-Identifier: Apache-2.0 */
/* bfloat16: rounding, and every kernel that takes bf16 operands as they are against the definition, which is
 * the float32 reference between conversions: equal bits in every variant, on any threads. Products by the
 * processor's own instructions: test_gemm_bf16.c; whole programs: tests/cli/reproducible.sh. */
#include "config.h"

#include "kernel_harness.h"

#include "backends/cpu/bf16.h"
#include "base/bf16.h"

/* ---- rounding ---- */

Test(bf16, widening_and_rounding_back_is_exact)
{
    for (uint32_t half = 0; half <= 0xffff; half++) {
        float value = syi_bf16_to_float((uint16_t)half);
        uint16_t back = syi_bf16_from_float(value);
        if (isnan(value))
            cr_assert(isnan(syi_bf16_to_float(back)), "%x is no NaN any more", half);
        else
            cr_assert_eq(back, half, "%x comes back as %x", half, back);
    }
}

/* The nearer neighbour, and the even one of two that are equally near. */
static uint16_t nearest(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint16_t low = (uint16_t)(bits >> 16), rest = (uint16_t)bits;
    if (rest == 0x8000) return (uint16_t)(low + (low & 1));
    return (uint16_t)(low + (rest > 0x8000));
}

Test(bf16, rounds_to_nearest_even)
{
    for (int i = 0; i < 1000000; i++) {
        uint32_t bits = kh_random();
        float value;
        if (i % 3 == 0) bits = (bits & 0xffff0000) | 0x8000; /* a tie */
        memcpy(&value, &bits, sizeof value);
        if (isnan(value)) continue;
        cr_assert_eq(syi_bf16_from_float(value), nearest(value), "%a", (double)value);
    }
    cr_assert(isinf(syi_bf16_to_float(syi_bf16_from_float(3.4e38f))),
              "what is nearer to infinity becomes it");
    uint32_t quiet_bits_lost = 0x7f800001; /* a NaN whose upper half alone is infinity */
    float value;
    memcpy(&value, &quiet_bits_lost, sizeof value);
    cr_assert(isnan(syi_bf16_to_float(syi_bf16_from_float(value))));
}

/* ---- kernels ---- */

/* An input of bf16 with random, sometimes special values. */
static void half_in(struct kh *k, int rank, int a, int b, int c, int d)
{
    uint16_t *x = kh_in(k, SY_BF16, rank, a, b, c, d);
    for (int64_t i = 0; i < sycpu_count(&k->in[k->n_in - 1]); i++)
        x[i] = syi_bf16_from_float(kh_random() % 50 ? kh_uniform(-2, 2) : kh_uniform(0, 1) * 1e-38f);
}

static void check(struct kh *k, int in, int out, const char *what)
{
    kh_check_as(k, in, out, what);
    kh_end(k);
}

static const int sizes[] = {1, 7, 16, 33, 128, 515};
enum { SIZES = sizeof sizes / sizeof sizes[0] };

/* Forms of operands: full, one value a row, one a column; outputs of both dtypes. */
Test(bf16, map_of_mixed_operands)
{
    union {
        struct sy_attr_map map;
        char bytes[sizeof(struct sy_attr_map) + 3 * sizeof(struct sy_map_instr)];
    } p = {.map = {.n_instr = 3, .out_register = {6, 4}, .rng = 255}};
    static const struct sy_map_instr instr[] = {{.op = SY_MAP_MUL, .a = 0, .b = 2},
                                                {.op = SY_MAP_ADD, .a = 4, .b = 3},
                                                {.op = SY_MAP_FMA, .a = 5, .b = 1, .c = 0}};
    memcpy(p.map.instr, instr, sizeof instr);
    for (int i = 0; i < SIZES; i++)
        for (int first = 0; first < 2; first++) {
            struct kh k;
            kh_begin(&k, SY_OP_MAP, &p, sizeof p.bytes);
            half_in(&k, 3, 3, 5, sizes[i], 0);
            kh_in(&k, SY_F32, 3, 3, 5, sizes[i]);
            half_in(&k, 2, 3, 5, 0, 0);
            half_in(&k, 1, sizes[i], 0, 0, 0);
            kh_out(&k, first ? SY_F32 : SY_BF16, 3, 3, 5, sizes[i]);
            kh_out(&k, first ? SY_BF16 : SY_F32, 3, 3, 5, sizes[i]);
            check(&k, SY_BF16, SY_BF16, "map");
        }
}

Test(bf16, pack_rounds)
{
    for (int i = 0; i < SIZES; i++) {
        struct sy_attr_pack attr = {{sizes[i], 2 * sizes[i], 1}};
        struct kh k;
        kh_begin(&k, SY_OP_PACK, &attr, sizeof attr);
        kh_in(&k, SY_F32, 2, 5, 2 * sizes[i]);
        kh_in(&k, SY_F32, 2, 5, 4 * sizes[i]);
        kh_in(&k, SY_F32, 2, 5, 2);
        kh_out(&k, SY_BF16, 2, 5, 6 * sizes[i] + 2);
        check(&k, SY_F32, SY_BF16, "pack");
    }
}

/* How a gradient that is kept in bfloat16 comes out of a joined one. */
Test(bf16, unpack_rounds)
{
    for (int i = 0; i < SIZES; i++)
        for (int in = 0; in < 2; in++) {
            struct sy_attr_pack attr = {{sizes[i], 2 * sizes[i], 1}};
            struct kh k;
            kh_begin(&k, SY_OP_UNPACK, &attr, sizeof attr);
            if (in)
                half_in(&k, 2, 5, 6 * sizes[i] + 2, 0, 0);
            else
                kh_in(&k, SY_F32, 2, 5, 6 * sizes[i] + 2);
            kh_out(&k, SY_BF16, 2, 5, 2 * sizes[i]);
            kh_out(&k, SY_BF16, 2, 5, 4 * sizes[i]);
            kh_out(&k, SY_BF16, 2, 5, 2);
            check(&k, in ? SY_BF16 : SY_F32, SY_BF16, "unpack");
        }
}

/* The norm of such gradients. */
Test(bf16, block_sumsq_widens)
{
    for (int i = 0; i < SIZES; i++)
        for (int wide = 1; wide <= sizes[i]; wide += sizes[i] > 1 ? sizes[i] - 1 : 1) {
            struct sy_attr_block attr = {{1, 3, wide, 1, 1}};
            struct kh k;
            kh_begin(&k, SY_OP_BLOCK_SUMSQ, &attr, sizeof attr);
            half_in(&k, 3, 2, 9, 2 * sizes[i], 0);
            kh_out(&k, SY_F32, 3, 2, 3, 2 * sizes[i] / wide);
            check(&k, SY_BF16, SY_F32, "block_sumsq");
        }
}

Test(bf16, norms_round)
{
    for (int i = 0; i < 2 * SIZES; i++) {
        struct sy_attr_rms_norm attr = {1e-6, 1};
        const int of_sum = i / SIZES, size = sizes[i % SIZES];
        struct kh k;
        kh_begin(&k, of_sum ? SY_OP_ADD_RMS_NORM : SY_OP_RMS_NORM, &attr, sizeof attr);
        for (int x = 0; x <= of_sum; x++) kh_in(&k, SY_F32, 3, 4, 9, size);
        kh_in(&k, SY_F32, 1, size);
        float *mask = kh_in(&k, SY_F32, 2, 4, 9);
        for (int r = 0; r < 36; r++) mask[r] = r % 4 != 0;
        if (of_sum) kh_out(&k, SY_F32, 3, 4, 9, size);
        kh_out(&k, SY_BF16, 3, 4, 9, size);
        check(&k, SY_F32, SY_BF16, of_sum ? "add_rms_norm" : "rms_norm");
    }
}

/* apart: gate and linear are two tensors. */
static void add_glu(struct kh *k, int width, int gradient, int apart)
{
    const int columns = apart ? 2 * width : 4 * width;
    half_in(k, 4, 2, 3, 5, columns);
    if (gradient) half_in(k, 4, 2, 3, 5, 2 * width);
    int64_t *rng = kh_in(k, SY_I64, 1, 4);
    for (int r = 0; r < 4; r++) rng[r] = 3 + r;
    int32_t *counts = kh_in(k, SY_I32, 2, 2, 3);
    for (int r = 0; r < 6; r++) counts[r] = r;
    if (apart)
        half_in(k, 4, 2, 3, 5, columns);
    else
        kh_in_absent(k);
    kh_out(k, SY_BF16, 4, 2, 3, 5, gradient ? columns : 2 * width);
    if (gradient && apart) kh_out(k, SY_BF16, 4, 2, 3, 5, columns);
    if (gradient && !apart) kh_out_absent(k);
}

Test(bf16, glu_and_its_gradient)
{
    for (int kind = SY_LINEAR; kind <= SY_SILU; kind++)
        for (int i = 0; i < SIZES; i++)
            for (int form = 0; form < 4; form++) {
                const int gradient = form & 1, apart = form >> 1;
                struct sy_attr_glu attr = {apart ? 0 : sizes[i], kind, 7, kind % 2 ? 0.25 : 0};
                struct kh k;
                kh_begin(&k, gradient ? SY_OP_GLU_GRAD : SY_OP_GLU, &attr, sizeof attr);
                add_glu(&k, sizes[i], gradient, apart);
                check(&k, SY_BF16, SY_BF16, "glu");
            }
}

Test(bf16, dispatch_copies)
{
    struct sy_attr_group attr = {2};
    struct kh k;
    kh_begin(&k, SY_OP_DISPATCH, &attr, sizeof attr);
    half_in(&k, 3, 4, 3, 37, 0);
    int32_t *expert = kh_in(&k, SY_I32, 3, 4, 3, 1), *slot = kh_in(&k, SY_I32, 3, 4, 3, 1);
    for (int i = 0; i < 12; i++) {
        expert[i] = i % 6 / 3;
        slot[i] = i % 6 == 5 ? -1 : i % 3;
    }
    kh_out(&k, SY_BF16, 4, 2, 2, 3, 37);
    check(&k, SY_BF16, SY_BF16, "dispatch");
}

Test(bf16, cache_append_and_gather_copy)
{
    static const int32_t rows[4] = {2, 0, 3, 3};
    for (int gather = 0; gather < 2; gather++) {
        struct kh k;
        kh_begin(&k, gather ? SY_OP_CACHE_GATHER : SY_OP_CACHE_APPEND, NULL, 0);
        half_in(&k, 3, 4, 5, 37, 0);
        if (gather)
            memcpy(kh_in(&k, SY_I32, 1, 4), rows, sizeof rows);
        else
            half_in(&k, 3, 4, 1, 37, 0);
        *(int32_t *)kh_in(&k, SY_I32, 1, 1) = gather ? 5 : 3;
        kh_out(&k, SY_BF16, 3, 4, 5, 37);
        check(&k, SY_BF16, SY_BF16, "cache");
    }
}

/* Positions that it does not gather stay, by conversion too. */
Test(bf16, cache_gather_leaves_the_rest)
{
    enum { B = 4, T = 5, N = 37, POSITION = 3, FILLED = 0xa6a6 /* by the harness, for 1 thread */ };
    static const int32_t rows[B] = {2, 0, 3, 3};
    const struct sy_kernel *kernel;
    struct kh k;
    void *got[SY_MAX_OUT];
    kh_begin(&k, SY_OP_CACHE_GATHER, NULL, 0);
    half_in(&k, 3, B, T, N, 0);
    memcpy(kh_in(&k, SY_I32, 1, B), rows, sizeof rows);
    *(int32_t *)kh_in(&k, SY_I32, 1, 1) = POSITION;
    kh_out(&k, SY_BF16, 3, B, T, N);
    for (uint64_t at = 0; (kernel = kh_next(k.op, SY_BF16, SY_BF16, kh_widening_features(), &at));) {
        kh_run(&k, kernel, 1, got, "cache_gather");
        for (int i = 0; i < B * T * N; i++) {
            const uint16_t *cache = (const uint16_t *)k.in[0].data + rows[i / (T * N)] * T * N;
            const uint16_t want = i / N % T < POSITION ? cache[i % (T * N)] : FILLED;
            cr_assert_eq(((uint16_t *)got[0])[i], want, "%s: element %d", kernel->name, i);
        }
        kh_free_guarded(got[0]);
    }
    kh_end(&k);
}

/* An op that no kernel takes in bf16. */
Test(bf16, any_op_by_conversion)
{
    struct kh k;
    kh_begin(&k, SY_OP_SOFTMAX, NULL, 0);
    half_in(&k, 3, 4, 9, 37, 0);
    kh_out(&k, SY_BF16, 3, 4, 9, 37);
    kh_out(&k, SY_BF16, 2, 4, 9);
    check(&k, SY_BF16, SY_BF16, "softmax");
}
