/* SPDX-License-Identifier: Apache-2.0 */
/* Speed of the fast matrix products as a share of what the cores reach in a loop of fused multiply-adds on
 * registers. Both are measured in turns, the best of many short runs each, so a busy machine does not distort
 * the share much. gemm_bench avx2|avx512 THREADS [SECONDS_PER_SHAPE] [FILTER] Not built by default: link it
 * with the objects of the CPU backend. */
#include "config.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <immintrin.h>

#include "cpu.h"

#define MOST_THREADS 16

struct shape {
    const char *name;
    int op, experts, rows, slots, k, n, leaves; /* slots: t; rows * slots = m; experts 0: plain */
};

#define NN SY_OP_MATMUL
#define NT SY_OP_MATMUL_NT
#define TN SY_OP_MATMUL_TN
static const struct shape shapes[] = {
    {"nn qkv", NN, 0, 128, 24, 512, 1152, 1},       {"nn wi", NN, 0, 128, 24, 512, 2048, 1},
    {"nn wo", NN, 0, 128, 24, 1024, 512, 8},        {"nn o", NN, 0, 128, 24, 384, 512, 6},
    {"nn 256", NN, 0, 128, 24, 256, 256, 1},        {"nn 256/2", NN, 0, 128, 24, 256, 256, 2},
    {"nn 768", NN, 0, 128, 24, 768, 768, 8},        {"nn 2048", NN, 0, 128, 24, 2048, 512, 8},
    {"nn 512 leaf64", NN, 0, 128, 24, 512, 512, 8}, {"nn 512 leaf1", NN, 0, 128, 24, 512, 512, 1},
    {"nn m384", NN, 0, 16, 24, 512, 512, 1},        {"nn m384 2048", NN, 0, 16, 24, 512, 2048, 1},
    {"nn m4096", NN, 0, 128, 32, 1024, 1024, 8},    {"nt 512", NT, 0, 128, 24, 512, 512, 8},
    {"nt wi", NT, 0, 128, 24, 512, 2048, 8},        {"nt wo", NT, 0, 128, 24, 1024, 512, 1},
    {"nt 256", NT, 0, 128, 24, 256, 256, 1},        {"nt m384", NT, 0, 16, 24, 512, 2048, 8},
    {"tn 512", TN, 0, 128, 24, 512, 512, 8},        {"tn wi", TN, 0, 128, 24, 512, 2048, 8},
    {"tn wo", TN, 0, 128, 24, 1024, 512, 8},        {"tn 256", TN, 0, 128, 24, 256, 256, 8},
    {"tn long", TN, 0, 512, 32, 512, 1024, 8},      {"quick qkv", NN, 0, 64, 20, 128, 384, 1},
    {"quick wi", NN, 0, 64, 20, 128, 512, 1},       {"quick wo", NN, 0, 64, 20, 256, 128, 4},
    {"quick o", NN, 0, 64, 20, 128, 128, 2},        {"quick nt", NT, 0, 64, 20, 128, 512, 8},
    {"quick nt o", NT, 0, 64, 20, 128, 128, 1},     {"quick tn", TN, 0, 64, 20, 128, 512, 8},
    {"quick tn o", TN, 0, 64, 20, 128, 128, 8},     {"experts nn", NN, 4, 8, 64, 128, 512, 1},
    {"experts nt", NT, 4, 8, 64, 128, 512, 4},      {"experts tn", TN, 4, 8, 64, 128, 512, 8},
    {"experts8 nn", NN, 8, 16, 48, 512, 2048, 8},   {"experts8 tn", TN, 8, 16, 48, 512, 2048, 8},
    {"decode 1", NN, 0, 1, 1, 512, 512, 1},         {"decode 8", NN, 0, 8, 1, 512, 512, 1},
    {"decode 28", NN, 0, 28, 1, 512, 512, 1},       {"decode 64", NN, 0, 64, 1, 512, 512, 1},
    {"decode 128", NN, 0, 128, 1, 512, 2048, 8},
};

/* ---- threads that wait by spinning ---- */

static struct {
    int threads;
    atomic_long turn, left;
    atomic_int stop;
    int64_t n;
    void (*fn)(void *, int64_t, int);
    void *arg;
} pool;

static void run_part(int thread)
{
    for (int64_t i = pool.n * thread / pool.threads; i < pool.n * (thread + 1) / pool.threads; i++)
        pool.fn(pool.arg, i, thread);
}

static void *worker(void *arg)
{
    int thread = *(int *)arg;
    for (long seen = 0; !atomic_load(&pool.stop);) {
        if (atomic_load(&pool.turn) == seen) {
            _mm_pause();
            continue;
        }
        seen++;
        run_part(thread);
        atomic_fetch_sub(&pool.left, 1);
    }
    return NULL;
}

static void parallel(void *unused, int64_t n, void (*fn)(void *, int64_t, int), void *arg)
{
    (void)unused;
    pool.n = n, pool.fn = fn, pool.arg = arg;
    atomic_store(&pool.left, pool.threads - 1);
    atomic_fetch_add(&pool.turn, 1);
    run_part(0);
    while (atomic_load(&pool.left)) _mm_pause();
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

/* ---- peak ---- */

#define PEAK_STEPS 20000
#define TWELVE(X)  X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11)
static volatile float sink;

#define DEFINE_PEAK(name, isa, type, set1)                                                                   \
    __attribute__((target(isa))) static void name(void *arg, int64_t task, int thread)                       \
    {                                                                                                        \
        type x = set1(0.5f), y = set1(1.0f), s;                                                              \
        TWELVE(PEAK_START_##name)                                                                            \
        (void)arg, (void)task, (void)thread;                                                                 \
        for (int i = 0; i < PEAK_STEPS; i++) {                                                               \
            TWELVE(PEAK_FMA_##name)                                                                          \
            __asm__ volatile("" : "+x"(x));                                                                  \
        }                                                                                                    \
        s = y;                                                                                               \
        TWELVE(PEAK_SUM_##name)                                                                              \
        sink = ((float *)&s)[0];                                                                             \
    }
#define PEAK_START_peak_avx2(i)   __m256 c##i = _mm256_set1_ps(i);
#define PEAK_FMA_peak_avx2(i)     c##i = _mm256_fmadd_ps(x, y, c##i);
#define PEAK_SUM_peak_avx2(i)     s = _mm256_fmadd_ps(c##i, y, s);
#define PEAK_START_peak_avx512(i) __m512 c##i = _mm512_set1_ps(i);
#define PEAK_FMA_peak_avx512(i)   c##i = _mm512_fmadd_ps(x, y, c##i);
#define PEAK_SUM_peak_avx512(i)   s = _mm512_fmadd_ps(c##i, y, s);
DEFINE_PEAK(peak_avx2, "avx2,fma", __m256, _mm256_set1_ps)
DEFINE_PEAK(peak_avx512, "avx512f", __m512, _mm512_set1_ps)

/* Floating-point operations a second of all threads. */
static double peak(int wide)
{
    double start = now();
    parallel(NULL, pool.threads, wide ? peak_avx512 : peak_avx2, NULL);
    return 2.0 * 12 * (wide ? 16 : 8) * PEAK_STEPS * pool.threads / (now() - start);
}

/* ---- one shape ---- */

static const struct {
    sy_kernel_fn run;
    uint64_t (*workspace)(const struct sy_call *, int);
} kernels[2][SY_OP_COUNT] = {
#define SYCPU_KERNEL(NAME, name, ref_workspace, fast, fast_workspace)                                        \
    [SY_OP_##NAME] = {sycpu_avx2_##name, sycpu_avx2_##name##_workspace},
    {
#include "kernels_gemm.def"
    },
#undef SYCPU_KERNEL
#define SYCPU_KERNEL(NAME, name, ref_workspace, fast, fast_workspace)                                        \
    [SY_OP_##NAME] = {sycpu_avx512_##name, sycpu_avx512_##name##_workspace},
    {
#include "kernels_gemm.def"
    },
#undef SYCPU_KERNEL
};

static struct sy_tensor tensor(int rank, int a, int b, int c, int d)
{
    int64_t dims[4] = {a, b, c, d};
    struct sy_tensor t = {.rank = (uint8_t)rank, .dim = {1, 1, 1, 1, 1}};
    for (int i = 0; i < rank; i++) t.dim[i] = dims[i + 4 - rank];
    t.data = aligned_alloc(64, ((size_t)sycpu_count(&t) * 4 + 63) / 64 * 64);
    for (int64_t i = 0; i < sycpu_count(&t); i++)
        ((float *)t.data)[i] = (float)rand() / (float)RAND_MAX - 0.5f;
    return t;
}

static double measure(const struct shape *s, int wide, double seconds, double *best_peak)
{
    int nt = s->op == NT, tn = s->op == TN, grouped = s->experts > 0, rank = 3 + grouped;
    int x_width = nt ? s->n : s->k, experts = grouped ? s->experts : 1;
    struct sy_tensor in[3] = {tensor(rank, experts, s->rows, s->slots, x_width)}, out[1];
    in[1] = tn ? tensor(rank, experts, s->rows, s->slots, s->n) : tensor(rank - 1, 0, experts, s->k, s->n);
    out[0] = tn ? tensor(rank - 1, 0, experts, s->k, s->n)
                : tensor(rank, experts, s->rows, s->slots, nt ? s->k : s->n);
    in[2] = tensor(2, 0, 0, experts, s->rows);
    double work = 0;
    for (int i = 0; i < experts * s->rows; i++) {
        int filled = grouped ? s->slots - (i * 7 % s->slots) / 2 : s->slots;
        ((int32_t *)in[2].data)[i] = filled;
        work += 2.0 * filled * s->k * s->n;
    }
    struct sy_attr_leaf attr = {(tn ? s->rows : nt ? s->n : s->k) / s->leaves};
    struct sy_host host = {.bytes = sizeof host, .threads = pool.threads, .parallel_for = parallel};
    static const int grouped_op[] = {
        [NN] = SY_OP_GROUPED_MATMUL, [NT] = SY_OP_GROUPED_MATMUL_NT, [TN] = SY_OP_GROUPED_MATMUL_TN};
    int op = grouped ? grouped_op[s->op] : s->op;
    struct sy_call call = {
        .host = &host, .in = in, .out = out, .attr = &attr, .attr_bytes = sizeof attr, .op = (uint16_t)op};
    call.workspace_bytes = kernels[wide][op].workspace(&call, pool.threads);
    call.workspace = aligned_alloc(64, (call.workspace_bytes + 63) / 64 * 64);
    memset(call.workspace, 0, call.workspace_bytes);
    double best = 1e9, end = now() + seconds;
    *best_peak = 0;
    while (now() < end) {
        double flops = peak(wide), start = now();
        kernels[wide][op].run(NULL, &call);
        double took = now() - start;
        if (took < best) best = took;
        if (flops > *best_peak) *best_peak = flops;
    }
    for (int i = 0; i < 3; i++) free(in[i].data);
    free(out[0].data), free(call.workspace);
    return work / best;
}

int main(int argc, char **argv)
{
    static int number[MOST_THREADS];
    static pthread_t id[MOST_THREADS];
    int wide = argc > 1 && !strcmp(argv[1], "avx512");
    double seconds = argc > 3 ? atof(argv[3]) : 0.3;
    pool.threads = argc > 2 ? atoi(argv[2]) : 1;
    if (pool.threads < 1 || pool.threads > MOST_THREADS) return 2;
    for (int i = 1; i < pool.threads; i++) {
        number[i] = i;
        if (pthread_create(&id[i], NULL, worker, &number[i])) return 1;
    }
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        const struct shape *s = &shapes[i];
        double best_peak;
        if (argc > 4 && !strstr(s->name, argv[4])) continue;
        double flops = measure(s, wide, seconds, &best_peak);
        printf("%-14s %2dx%4d k %4d n %4d leaves %d  %6.1f GFLOP/s  %5.1f %% of %.0f\n", s->name, s->experts,
               s->rows * s->slots, s->k, s->n, s->leaves, flops * 1e-9, 100 * flops / best_peak,
               best_peak * 1e-9);
    }
    atomic_store(&pool.stop, 1);
    for (int i = 1; i < pool.threads; i++) pthread_join(id[i], NULL);
    return 0;
}
