/* SPDX-License-Identifier: Apache-2.0 */
/* Loops that do nothing but multiply and add, by the widest instructions of the CPU, whatever the kernels use: fused
 * multiply-adds of float32; dot products of bfloat16, or matrix tiles of them where the CPU has these. */
#include "config.h"

#include "cli/bench/loops.h"

#include "base/amx.h"
#include "base/amx_tile.h"

enum { CHAINS = 16, STEPS = 128 }; /* STEPS: of the contraction of a tile */

static volatile float sink;

/* Panels of a tile of up to 8 rows and two vectors, 20 KiB, which all threads read: float32, and pairs of bfloat16. */
static _Alignas(64) float near_a[STEPS * CHAINS / 2], near_b[STEPS * 2 * 16];
static _Alignas(64) uint32_t pairs_a[STEPS * CHAINS / 2], pairs_b[STEPS * 2 * 16];

#define EACH_CHAIN(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14) X(15)

/* Every index is a constant, so that the accumulators are registers; each starts at another number, so that
 * no two are one to the compiler. */
#define CHAIN_LOOP(type, start, step)                                                                        \
    type c[CHAINS];                                                                                          \
    EACH_CHAIN(CHAIN_START_##start)                                                                          \
    for (int64_t k = 0; k < iterations; k++) {                                                               \
        EACH_CHAIN(step)                                                                                     \
    }                                                                                                        \
    EACH_CHAIN(CHAIN_ADD)
/* The same accumulators as a tile of C: a step takes two vectors of B and a number of each row of A. */
#define TILE_LOOP(type, start, a_panel, rows, b_panel, lanes, LOAD, STEP)                                    \
    type c[CHAINS];                                                                                          \
    EACH_CHAIN(CHAIN_START_##start)                                                                          \
    for (int64_t k = 0; k < iterations; k++) {                                                               \
        for (int s = 0; s < STEPS; s++) {                                                                    \
            const __typeof__(a_panel[0]) *a = (a_panel) + s * (rows), *b = (b_panel) + s * 2 * (lanes);      \
            const __typeof__(LOAD(b)) b0 = LOAD(b), b1 = LOAD(b + (lanes));                                  \
            EACH_CHAIN(STEP)                                                                                 \
        }                                                                                                    \
    }                                                                                                        \
    EACH_CHAIN(CHAIN_ADD)
#define CHAIN_START_512(i)   c[i] = _mm512_set1_ps((float)i);
#define CHAIN_START_256(i)   c[i] = _mm256_set1_ps((float)i);
#define CHAIN_START_neon(i)  c[i] = vdupq_n_f32((float)i);
#define CHAIN_START_plain(i) c[i] = (float)i;
#define CHAIN_ADD(i)                                                                                         \
    if (i) c[0] += c[i];

#if defined(__x86_64__)
#    include <immintrin.h>
#    define STEP512(i) c[i] = _mm512_fmadd_ps(x, y, c[i]);
__attribute__((target("avx512f"))) static void fma512(int64_t iterations)
{
    __m512 x = _mm512_set1_ps(1.5f), y = _mm512_set1_ps(1e-9f);
    CHAIN_LOOP(__m512, 512, STEP512)
    sink = c[0][0];
}

#    define TILE512(i) c[i] = _mm512_fmadd_ps(_mm512_set1_ps(a[(i) / 2]), (i) % 2 ? b1 : b0, c[i]);
__attribute__((target("avx512f"))) static void tile512(int64_t iterations)
{
    TILE_LOOP(__m512, 512, near_a, 8, near_b, 16, _mm512_load_ps, TILE512)
    sink = c[0][0];
}

/* Twelve chains are enough for two units of latency five, and fit 16 registers beside x and y. */
#    define STEP256(i) c[i] = i < 12 ? _mm256_fmadd_ps(x, y, c[i]) : c[i];
__attribute__((target("avx2,fma"))) static void fma256(int64_t iterations)
{
    __m256 x = _mm256_set1_ps(1.5f), y = _mm256_set1_ps(1e-9f);
    CHAIN_LOOP(__m256, 256, STEP256)
    sink = c[0][0];
}

#    define TILE256(i)                                                                                       \
        c[i] = (i) < 12 ? _mm256_fmadd_ps(_mm256_broadcast_ss(a + (i) / 2), (i) % 2 ? b1 : b0, c[i]) : c[i];
__attribute__((target("avx2,fma"))) static void tile256(int64_t iterations)
{
    TILE_LOOP(__m256, 256, near_a, 8, near_b, 8, _mm256_load_ps, TILE256)
    sink = c[0][0];
}

#    if defined(__clang__) || __GNUC__ >= 10 /* others lack the type */
#        define BF16_DOTS
#        define STEPBF16(i) c[i] = _mm512_dpbf16_ps(c[i], x, y);
__attribute__((target("avx512f,avx512bw,avx512bf16"))) static void dot_bf16(int64_t iterations)
{
    __m512bh x = (__m512bh)_mm512_set1_epi16(0x3fc0), y = (__m512bh)_mm512_set1_epi16(0x3080);
    CHAIN_LOOP(__m512, 512, STEPBF16)
    sink = c[0][0];
}

#        define LOAD_PAIRS(p) ((__m512bh)_mm512_load_si512(p))
#        define TILE_PAIRS(i)                                                                                \
            c[i] = _mm512_dpbf16_ps(c[i], (__m512bh)_mm512_set1_epi32((int)a[(i) / 2]), (i) % 2 ? b1 : b0);
__attribute__((target("avx512f,avx512bw,avx512bf16"))) static void tile_pairs(int64_t iterations)
{
    TILE_LOOP(__m512, 512, pairs_a, 8, pairs_b, 16, LOAD_PAIRS, TILE_PAIRS)
    sink = c[0][0];
}
#    endif

#    if SYCPU_HAS_AMX_BF16
/* 2 x 2 matrix tiles of C, as in products. The panels of both operands are 16 KiB each. */
enum { TILE_STEPS = 8, TILE_WORDS = 16 * TILE_LINES };
static _Alignas(64) uint32_t tiles_a[TILE_STEPS * 2 * TILE_WORDS], tiles_b[TILE_STEPS * 2 * TILE_WORDS];

static void fill_tiles(void)
{
    for (int i = 0; i < TILE_STEPS * 2 * TILE_WORDS; i++) {
        tiles_a[i] = pairs_a[i % SYI_COUNT(pairs_a)] ^ (uint32_t)i % 32;
        tiles_b[i] = pairs_b[i % SYI_COUNT(pairs_b)] ^ (uint32_t)i % 64 << 16;
    }
}

/* Sums grow with the iterations, as those of a product do not: they begin at 0 again with each panel. */
static void begin_sums(void)
{
    TILE_ZERO(0);
    TILE_ZERO(1);
    TILE_ZERO(2);
    TILE_ZERO(3);
}

static void end_sums(void)
{
    float sum[TILE_LINES][TILE_LINES] = {{0}};
    TILE_STORE(0, sum, 64);
    sink = sum[0][0];
    leave_tiles();
}

/* An iteration does what one of near_tiles does. */
static void register_tiles(int64_t iterations)
{
    enter_tiles();
    TILE_LOAD(4, tiles_a, 64);
    TILE_LOAD(5, tiles_a + TILE_WORDS, 64);
    TILE_LOAD(6, tiles_b, 64);
    TILE_LOAD(7, tiles_b + TILE_WORDS, 64);
    for (int64_t k = 0; k < iterations; k++) {
        begin_sums();
        for (int s = 0; s < TILE_STEPS; s++) {
            TILE_DOT(0, 4, 6);
            TILE_DOT(1, 4, 7);
            TILE_DOT(2, 5, 6);
            TILE_DOT(3, 5, 7);
        }
    }
    end_sums();
}

static void near_tiles(int64_t iterations)
{
    enter_tiles();
    for (int64_t k = 0; k < iterations; k++) {
        begin_sums();
        for (int s = 0; s < TILE_STEPS; s++) {
            const uint32_t *a = tiles_a + s * 2 * TILE_WORDS, *b = tiles_b + s * 2 * TILE_WORDS;
            TILE_LOAD(4, a, 64);
            TILE_LOAD(6, b, 64);
            TILE_DOT(0, 4, 6);
            TILE_LOAD(7, b + TILE_WORDS, 64);
            TILE_DOT(1, 4, 7);
            TILE_LOAD(5, a + TILE_WORDS, 64);
            TILE_DOT(2, 5, 6);
            TILE_DOT(3, 5, 7);
        }
    }
    end_sums();
}

static struct bench_loop on_tiles(void (*run)(int64_t iterations))
{
    const double flops = 2.0 * TILE_STEPS * 4 * TILE_LINES * TILE_LINES * TILE_ELEMENTS;
    return (struct bench_loop){flops, 200000, run};
}
#    endif
#elif defined(__aarch64__)
#    include <arm_neon.h>
#    define STEPNEON(i) c[i] = vfmaq_f32(c[i], x, y);
static void fma_neon(int64_t iterations)
{
    float32x4_t x = vdupq_n_f32(1.5f), y = vdupq_n_f32(1e-9f);
    CHAIN_LOOP(float32x4_t, neon, STEPNEON)
    sink = vgetq_lane_f32(c[0], 0);
}

#    define TILE_NEON(i) c[i] = vfmaq_n_f32(c[i], (i) % 2 ? b1 : b0, a[(i) / 2]);
static void tile_neon(int64_t iterations)
{
    TILE_LOOP(float32x4_t, neon, near_a, 8, near_b, 4, vld1q_f32, TILE_NEON)
    sink = vgetq_lane_f32(c[0], 0);
}
#endif

#if !defined(__aarch64__)
/* What the compiler makes of plain C, where there is no better. */
#    define STEPPLAIN(i) c[i] = c[i] * x + y;
static void plain(int64_t iterations)
{
    volatile float source = 0.999f;
    float x = source, y = 1e-9f;
    CHAIN_LOOP(float, plain, STEPPLAIN)
    sink = c[0];
}
#endif

/* ---- which to run ---- */

/* Numbers of 0.5 to 2, their bits mixed: some processors multiply what changes little at a higher clock. */
void bench_loops_fill(void)
{
    uint32_t bits = 1;
    for (int i = 0; i < STEPS * 2 * 16; i++) {
        bits = bits * 1664525u + 1013904223u;
        near_b[i] = 0.5f + 1.5f * (float)(bits >> 8) * 0x1p-24f;
        pairs_b[i] = 0x3f003f00u | (bits >> 8 & 0x00ff00ffu);
        if (i >= STEPS * CHAINS / 2) continue;
        near_a[i] = 2.5f - near_b[i];
        pairs_a[i] = pairs_b[i] ^ 0x00550055u;
    }
#if SYCPU_HAS_AMX_BF16
    fill_tiles();
#endif
}

static struct bench_loop registers_f32(void)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f")) return (struct bench_loop){2.0 * 16 * CHAINS, 4000000, fma512};
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return (struct bench_loop){2.0 * 8 * 12, 8000000, fma256};
#elif defined(__aarch64__)
    return (struct bench_loop){2.0 * 4 * CHAINS, 4000000, fma_neon};
#endif
#if !defined(__aarch64__)
    return (struct bench_loop){2.0 * CHAINS, 4000000, plain};
#endif
}

static struct bench_loop registers_bf16(void)
{
#if SYCPU_HAS_AMX_BF16
    if (syi_amx_request()) return on_tiles(register_tiles);
#endif
#if defined(BF16_DOTS)
    if (__builtin_cpu_supports("avx512bf16"))
        return (struct bench_loop){2.0 * 32 * CHAINS, 4000000, dot_bf16};
#endif
    return (struct bench_loop){0, 0, NULL};
}

/* A loop on registers with the tile in place of its iterations; the plain one has no other. */
static struct bench_loop near_of(struct bench_loop registers, void (*run)(int64_t iterations))
{
    if (!run) return registers;
    return (struct bench_loop){registers.flops * STEPS, registers.iterations / STEPS, run};
}

static struct bench_loop near_f32(void)
{
    void (*run)(int64_t) = NULL;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) run = tile256;
    if (__builtin_cpu_supports("avx512f")) run = tile512;
#elif defined(__aarch64__)
    run = tile_neon;
#endif
    return near_of(registers_f32(), run);
}

static struct bench_loop near_bf16(void)
{
    void (*run)(int64_t) = NULL;
#if SYCPU_HAS_AMX_BF16
    if (syi_amx_request()) return on_tiles(near_tiles);
#endif
#if defined(BF16_DOTS)
    if (__builtin_cpu_supports("avx512bf16")) run = tile_pairs;
#endif
    return near_of(registers_bf16(), run);
}

struct bench_loop bench_loop_on_registers(int dtype)
{
    return dtype == SY_BF16 ? registers_bf16() : registers_f32();
}

struct bench_loop bench_loop_near(int dtype)
{
    return dtype == SY_BF16 ? near_bf16() : near_f32();
}
