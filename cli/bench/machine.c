/* SPDX-License-Identifier: Apache-2.0 */
/* What the machine can do, by loops that do nothing else: fused multiply-adds or bfloat16 dot products, on registers
 * alone and on a tile of a product whose operands come from the nearest cache, which is the peak of kernels; a copy of
 * buffers larger than any cache. The widest instructions of the CPU, whatever the kernels use. */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "cli/bench/bench.h"

enum { CHAINS = 16, STEPS = 128 }; /* STEPS: of the contraction of a tile */

/* How thoroughly. Buffers of a quick look may fit in the largest caches. */
struct effort {
    int rounds, copy_rounds;
    int64_t share;     /* a loop runs its iterations over this */
    size_t copy_bytes; /* of each of two buffers */
};
static const struct effort thorough = {16, 4, 1, 1 << 28}, quick = {4, 2, 16, 1 << 25};

static volatile float sink;

/* Panels of a tile of up to 8 rows and two vectors, 20 KiB, which all threads read: float32, and pairs of bfloat16. */
static _Alignas(64) float near_a[STEPS * CHAINS / 2], near_b[STEPS * 2 * 16];
static _Alignas(64) uint32_t pairs_a[STEPS * CHAINS / 2], pairs_b[STEPS * 2 * 16];

/* Numbers of 0.5 to 2, their bits mixed: some processors multiply what changes little at a higher clock. */
static void fill_panels(void)
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
}

/* CHAINS accumulators that depend on themselves only. */
struct loop {
    double flops; /* of an iteration of one thread */
    int64_t iterations;
    void (*run)(int64_t iterations);
};

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

static struct loop registers_f32(void)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f")) return (struct loop){2.0 * 16 * CHAINS, 4000000, fma512};
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return (struct loop){2.0 * 8 * 12, 8000000, fma256};
#elif defined(__aarch64__)
    return (struct loop){2.0 * 4 * CHAINS, 4000000, fma_neon};
#endif
#if !defined(__aarch64__)
    return (struct loop){2.0 * CHAINS, 4000000, plain};
#endif
}

static struct loop registers_bf16(void)
{
#if defined(BF16_DOTS)
    if (__builtin_cpu_supports("avx512bf16")) return (struct loop){2.0 * 32 * CHAINS, 4000000, dot_bf16};
#endif
    return (struct loop){0, 0, NULL};
}

/* A loop on registers with the tile in place of its iterations; the plain one has no other. */
static struct loop tile_of(struct loop registers, void (*run)(int64_t iterations))
{
    if (!run) return registers;
    return (struct loop){registers.flops * STEPS, registers.iterations / STEPS, run};
}

static struct loop tile_f32(void)
{
    void (*run)(int64_t) = NULL;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) run = tile256;
    if (__builtin_cpu_supports("avx512f")) run = tile512;
#elif defined(__aarch64__)
    run = tile_neon;
#endif
    return tile_of(registers_f32(), run);
}

static struct loop tile_bf16(void)
{
    void (*run)(int64_t) = NULL;
#if defined(BF16_DOTS)
    if (__builtin_cpu_supports("avx512bf16")) run = tile_pairs;
#endif
    return tile_of(registers_bf16(), run);
}

static void run_loop(void *arg, int64_t task, int thread)
{
    const struct loop *loop = arg;
    (void)task;
    (void)thread;
    loop->run(loop->iterations);
}

/* The best of some rounds. The first half of them goes before: a clock that is high while a core was idle is not the one
 * that holds. */
static double rate_of(struct syi_threads *pool, struct loop loop, int threads, const struct effort *effort)
{
    double best = INFINITY;
    if (!loop.run) return 0;
    loop.iterations /= effort->share;
    for (int i = 0; i < effort->rounds; i++) {
        double begin = syi_seconds();
        syi_threads_for(pool, threads, run_loop, &loop);
        if (i >= effort->rounds / 2) best = fmin(best, syi_seconds() - begin);
    }
    return loop.flops * (double)loop.iterations * threads / best;
}

/* ---- copy ---- */

struct buffers {
    char *from, *to;
    size_t share; /* bytes of a thread */
};

static void copy_share(void *arg, int64_t task, int thread)
{
    const struct buffers *b = arg;
    (void)thread;
    memcpy(b->to + (size_t)task * b->share, b->from + (size_t)task * b->share, b->share);
}

/* Writes both, so that pages are there and near the thread that copies them. */
static void touch_share(void *arg, int64_t task, int thread)
{
    const struct buffers *b = arg;
    (void)thread;
    memset(b->from + (size_t)task * b->share, 1, b->share);
    memset(b->to + (size_t)task * b->share, 2, b->share);
}

static int measure_copy(struct syi_threads *pool, const struct effort *effort, struct bench_machine *machine,
                        struct sy_error *err)
{
    struct buffers b = {.from = syi_alloc(effort->copy_bytes, err), .to = syi_alloc(effort->copy_bytes, err)};
    double best = INFINITY;
    b.share = effort->copy_bytes / (size_t)machine->threads;
    for (int i = 0; b.from && b.to && i < effort->copy_rounds; i++) {
        if (!i) syi_threads_for(pool, machine->threads, touch_share, &b);
        double begin = syi_seconds();
        syi_threads_for(pool, machine->threads, copy_share, &b);
        best = fmin(best, syi_seconds() - begin);
    }
    machine->copy = 2.0 * (double)b.share * machine->threads / best;
    int status = b.from && b.to ? SY_OK : SY_ENOMEM;
    syi_free(b.from);
    syi_free(b.to);
    return status;
}

/* ---- the machine ---- */

static int measure(void *arg, void *result, struct sy_error *err)
{
    const struct effort *effort = arg;
    struct bench_machine *machine = result;
    struct syi_threads *pool;
    int status = syi_threads_new(machine->threads, 1, &pool, err);
    if (status) return status;
    fill_panels();
    machine->registers_f32 = rate_of(pool, registers_f32(), machine->threads, effort);
    machine->f32 = rate_of(pool, tile_f32(), machine->threads, effort);
    machine->registers_bf16 = rate_of(pool, registers_bf16(), machine->threads, effort);
    machine->bf16 = rate_of(pool, tile_bf16(), machine->threads, effort);
    status = measure_copy(pool, effort, machine, err);
    syi_threads_free(pool);
    return status;
}

static int measure_with(struct effort effort, struct bench_machine *machine, struct sy_error *err)
{
    return bench_in_child(measure, &effort, machine, sizeof *machine, err);
}

/* Whether there is something to measure. */
static int begin(const struct syi_launch *launch, int threads, struct bench_machine *machine)
{
    *machine = (struct bench_machine){.threads = threads};
    syi_cpu_name(machine->cpu, sizeof machine->cpu);
    return !strcmp(launch->backend, "cpu");
}

int bench_machine(const struct syi_launch *launch, struct bench_machine *machine, struct sy_error *err)
{
    return begin(launch, bench_threads(launch), machine) ? measure_with(thorough, machine, err) : SY_OK;
}

int bench_machine_quick(const struct syi_launch *launch, struct bench_machine *machine, struct sy_error *err)
{
    int cpus = syi_cpu_count(), threads = bench_threads(launch);
    return begin(launch, threads < cpus ? threads : cpus, machine) ? measure_with(quick, machine, err)
                                                                   : SY_OK;
}

int bench_machine_again(struct bench_machine *machine, struct sy_error *err)
{
    struct bench_machine second = {.threads = machine->threads};
    if (machine->f32 <= 0) return SY_OK;
    int status = measure_with(thorough, &second, err);
    if (status) return status;
    machine->f32 = fmax(machine->f32, second.f32);
    machine->bf16 = fmax(machine->bf16, second.bf16);
    machine->registers_f32 = fmax(machine->registers_f32, second.registers_f32);
    machine->registers_bf16 = fmax(machine->registers_bf16, second.registers_bf16);
    machine->copy = fmax(machine->copy, second.copy);
    return SY_OK;
}

int bench_over_processes(const struct syi_launch *l)
{
    return l->world && l->world->backend;
}

int bench_threads(const struct syi_launch *l)
{
    int several = bench_over_processes(l); /* one rank each */
    int ranks = several || !l->ranks ? 1 : l->ranks;
    int threads = l->threads ? l->threads : (int)l->config->cpu.threads;
    return ranks * (threads ? threads : syi_cpu_share(several ? l->world->sharers : ranks));
}

static int add_up(struct syi_world *world, struct bench_machine *machine, struct sy_error *err)
{
    const struct bench_machine mine = *machine;
    struct bench_machine *all = syi_alloc((size_t)world->ranks * sizeof *all, err);
    if (!all) return SY_ENOMEM;
    int status = syi_comm_gather(&world->comm, &mine, sizeof mine, all, err);
    for (int i = 0; !status && i < world->ranks; i++) {
        if (i == world->rank) continue;
        machine->threads += all[i].threads;
        machine->f32 += all[i].f32;
        machine->bf16 += all[i].bf16;
        machine->registers_f32 += all[i].registers_f32;
        machine->registers_bf16 += all[i].registers_bf16;
        machine->copy += all[i].copy;
    }
    syi_free(all);
    return status;
}

int bench_machine_of(const struct syi_launch *launch, struct bench_machine *machine, struct sy_error *err)
{
    struct syi_world *world = launch->world;
    int several = bench_over_processes(launch);
    int status = several ? syi_comm_barrier(&world->comm, err) : SY_OK;
    if (!status) status = bench_machine(launch, machine, err);
    return status || !several ? status : add_up(world, machine, err);
}

double bench_peak(const struct bench_machine *machine, int dtype)
{
    return dtype == SY_BF16 ? fmax(machine->bf16, machine->f32) : machine->f32;
}

double bench_share(const struct bench_machine *machine, int dtype, double rate)
{
    return machine->f32 > 0 ? 100 * rate / bench_peak(machine, dtype) : NAN;
}

double bench_roof(const struct bench_machine *machine, int dtype, double flops, double bytes)
{
    return machine->f32 > 0 ? fmax(flops / bench_peak(machine, dtype), bytes / machine->copy) : NAN;
}

uint64_t bench_peak_memory(void)
{
    struct rusage usage;
    if (getrusage(RUSAGE_SELF, &usage)) return 0;
#if defined(__APPLE__)
    return (uint64_t)usage.ru_maxrss;
#else
    return (uint64_t)usage.ru_maxrss * 1024;
#endif
}

void bench_put_machine(struct bench_out *out, const struct bench_machine *m)
{
    const struct bench_number numbers[] = {{"threads", m->threads, 0},
                                           {"peak_f32_gflops", m->f32 * 1e-9, 1},
                                           {"peak_bf16_gflops", m->bf16 * 1e-9, 1},
                                           {"registers_f32_gflops", m->registers_f32 * 1e-9, 1},
                                           {"registers_bf16_gflops", m->registers_bf16 * 1e-9, 1},
                                           {"copy_gb_per_second", m->copy * 1e-9, 1}};
    if (m->cpu[0]) bench_put_text(out, "cpu", m->cpu);
    if (m->f32 > 0)
        bench_put_text(out, "percents_of",
                       "peak_*_gflops: a tile fed by the nearest cache; registers_*: no memory read");
    bench_put_numbers(out, "machine", numbers, m->f32 > 0 ? SYI_COUNT(numbers) : 1);
}
