/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of training steps and of decoding, counted from outside: this program's own malloc, calloc, ...
 * stand before those of the C library for the whole process, opened backends included. Checked: steps 3 to 20
 * of bench/tiny.run allocate nothing, with 2 threads and with 2 ranks, nor does a decode after the first; the
 * arena is what was planned, to the byte; the peak of resident memory is the plan within 5 % and CONSTANT.
 * Exit 0 passed, 1 failed, 77 skipped (said why). */
#include "config.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train/engine/train_data.h"

enum { SKIPPED = 77, FIRST = 3, LAST = 20 }; /* steps counted, the first is 1 */

/* Program, libraries, stacks, bound programs and data: what a process has beside the arena. */
#define CONSTANT ((uint64_t)24 << 20)

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#    define SANITIZED 1
#elif defined(__has_feature)
#    if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#        define SANITIZED 1
#    endif
#endif

/* ---- counting ---- */

static atomic_int counting;        /* 1: between the first and the last counted step */
static atomic_ulong n_allocations; /* while counting, and what was given back */
static atomic_ulong n_calls;       /* ever */
static _Atomic(void *) first_caller;
static _Atomic size_t largest; /* request ever */

#if defined(__GLIBC__) && !defined(SANITIZED)
#    define COUNTED 1
void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);
void *__libc_memalign(size_t, size_t);
void __libc_free(void *);

static void count(size_t bytes, void *caller)
{
    atomic_fetch_add(&n_calls, 1);
    size_t seen = atomic_load(&largest);
    while (bytes > seen && !atomic_compare_exchange_weak(&largest, &seen, bytes)) continue;
    if (!atomic_load(&counting)) return;
    if (!atomic_fetch_add(&n_allocations, 1)) atomic_store(&first_caller, caller);
}
#    define COUNT(bytes) count(bytes, __builtin_return_address(0))
#    define EXPORTED     __attribute__((visibility("default")))

EXPORTED void *malloc(size_t bytes)
{
    COUNT(bytes);
    return __libc_malloc(bytes);
}

EXPORTED void *calloc(size_t n, size_t bytes)
{
    COUNT(n * bytes);
    return __libc_calloc(n, bytes);
}

EXPORTED void *realloc(void *memory, size_t bytes)
{
    COUNT(bytes);
    return __libc_realloc(memory, bytes);
}

EXPORTED void *memalign(size_t alignment, size_t bytes)
{
    COUNT(bytes);
    return __libc_memalign(alignment, bytes);
}

EXPORTED void *aligned_alloc(size_t alignment, size_t bytes)
{
    COUNT(bytes);
    return __libc_memalign(alignment, bytes);
}

EXPORTED int posix_memalign(void **memory, size_t alignment, size_t bytes)
{
    COUNT(bytes);
    void *got = __libc_memalign(alignment, bytes);
    if (!got) return ENOMEM;
    *memory = got;
    return 0;
}

EXPORTED void free(void *memory)
{
    if (memory && atomic_load(&counting)) COUNT(0);
    __libc_free(memory);
}
#endif

/* Why nothing can be counted here, or NULL. */
static const char *why_not(void)
{
#ifndef COUNTED
    return "this build has a sanitizer, or no glibc: its allocator stays in place";
#else
    const char *preload = getenv("LD_PRELOAD");
    return preload && strstr(preload, "vgpreload") ? "valgrind puts its own allocator in place" : NULL;
#endif
}

/* ---- data ---- */

static int fails;

static void expect(int holds, const char *what)
{
    if (!holds) fails = 1;
    if (!holds) fprintf(stderr, "FAIL %s\n", what);
}

/* Words of a to z of all lengths, so that batches of every bucket come. */
static int write_words(char *path, size_t bytes, int n_words, int longest)
{
    uint64_t state = 1;
    const char *base = getenv("TMPDIR");
    snprintf(path, bytes, "%s/sy-steps-XXXXXX", base ? base : "/tmp");
    int descriptor = mkstemp(path);
    FILE *file = descriptor < 0 ? NULL : fdopen(descriptor, "w");
    for (int i = 0; file && i < n_words; i++) {
        char word[64];
        int length = 1 + i % longest;
        for (int k = 0; k < length; k++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            word[k] = (char)('a' + (state >> 33) % 26);
        }
        fprintf(file, "%.*s\t%.*s\n", length, word, length, word);
    }
    return !file || fclose(file);
}

/* ---- a run ---- */

struct job {
    struct syi_config config;
    int steps;
    uint64_t planned; /* bytes of rank 0's arena */
};

struct run {
    struct syi_train_data data;           /* of training */
    struct syi_vocabularies vocabularies; /* of decoding */
    struct syi_batch batch;
    struct syi_engine *engine;
};

/* Rank 0 turns counting on and off while the others wait. */
static int switch_counting(const struct syi_rank *rank, int on, struct sy_error *err)
{
    int status = syi_comm_barrier(rank->comm, err);
    if (rank->rank == 0) atomic_store(&counting, on);
    return status ? status : syi_comm_barrier(rank->comm, err);
}

static int train(struct job *job, struct run *run, const struct syi_rank *rank, struct sy_error *err)
{
    const struct syi_batch *batch;
    int status = SY_OK;
    for (int step = 1; !status && step <= job->steps; step++) {
        struct syi_step_result result;
        if (step == FIRST) status = switch_counting(rank, 1, err);
        if (!status) status = syi_train_data_get(&run->data, step - 1, &batch, err);
        if (!status) status = syi_engine_step(run->engine, batch, step - 1, 1e-3, &result, err);
        if (!status && step == LAST) status = switch_counting(rank, 0, err);
        if (!status) expect(result.ok, "a step with finite gradients");
    }
    atomic_store(&counting, 0);
    return status;
}

static int work(void *arg, const struct syi_rank *rank, struct sy_error *err)
{
    struct job *job = arg;
    static _Thread_local struct run run;
    struct syi_train_reader reader = {.rank = rank, .quiet = 1, .ahead = 2};
    memset(&run, 0, sizeof run);
    int status = syi_engine_new(&job->config, rank, SYI_USE_TRAIN, 0, &run.engine, err);
    reader.engine = run.engine;
    if (!status) status = syi_train_data_open(&run.data, &job->config, &reader, err);
    if (!status && rank->rank == 0) {
        const struct syi_plan *plan = syi_session_plan(syi_engine_session(run.engine));
        for (int i = 0; i < SYI_SEGMENT_COUNT; i++) job->planned += plan->bytes[i];
    }
    if (!status) status = syi_engine_init(run.engine, 7, err);
    if (!status) status = train(job, &run, rank, err);
    syi_train_data_close(&run.data);
    syi_engine_free(run.engine);
    return status;
}

/* Two batches of made-up inputs are decoded, the second one counted. */
static int decode(struct job *job, struct run *run, const struct syi_rank *rank, struct sy_error *err)
{
    int32_t rows = syi_engine_eval_rows(run->engine);
    size_t length = (size_t)syi_engine_decode_length(run->engine);
    struct syi_outputs out = {.decodes = 1, .whole = 1};
    int status = SY_OK;
    (void)job;
    out.ids = syi_alloc((size_t)rows * length * sizeof *out.ids, err);
    out.lengths = syi_alloc((size_t)rows * sizeof *out.lengths, err);
    if (!out.ids || !out.lengths) status = SY_ENOMEM;
    for (int i = 0; !status && i < 2; i++) {
        if (i == 1) status = switch_counting(rank, 1, err);
        if (!status) status = syi_engine_decode(run->engine, &run->batch, NULL, &out, err);
        if (!status && i == 1) status = switch_counting(rank, 0, err);
    }
    atomic_store(&counting, 0);
    syi_free(out.ids);
    syi_free(out.lengths);
    return status;
}

static int work_decode(void *arg, const struct syi_rank *rank, struct sy_error *err)
{
    struct job *job = arg;
    struct run run = {0};
    struct syi_bucket buckets[SYI_MAX_BUCKETS];
    struct syi_span input = {"abcd", 4};
    int n = syi_engine_buckets(&job->config, buckets);
    int status = syi_vocabulary_bytes(&run.vocabularies.input, 0, err);
    run.vocabularies.target = run.vocabularies.input;
    if (!status) status = syi_engine_new(&job->config, rank, SYI_USE_DECODE, 0, &run.engine, err);
    if (!status) status = syi_batch_create(&run.batch, syi_engine_eval_rows(run.engine), buckets, n, err);
    if (!status) {
        status = syi_engine_init(run.engine, 7, err);
        syi_batch_begin(&run.batch, buckets, n - 1);
        for (int32_t i = 0; !status && i < run.batch.rows; i++)
            status = syi_batch_add(&run.batch, &run.vocabularies, i, input, NULL, err);
        if (!status) status = decode(job, &run, rank, err);
    }
    syi_engine_free(run.engine);
    syi_batch_free(&run.batch);
    return status;
}

/* Sets up and runs a job; settings end with NULL. */
static void run_job(struct job *job, int (*run)(void *arg, const struct syi_rank *rank, struct sy_error *err),
                    const char *words, const char *const *settings, struct syi_launch launch)
{
    char path[4200];
    struct sy_error err = {0};
    const char *source = getenv("abs_top_srcdir");
    snprintf(path, sizeof path, "%s/bench/tiny.run", source ? source : ".");
    int status = syi_config_defaults(&job->config, &err);
    if (!status) status = syi_config_load(&job->config, path, &err);
    for (; !status && *settings; settings++) status = syi_config_set(&job->config, *settings, &err);
    snprintf(path, sizeof path, "task.words.train=%s", words);
    if (!status) status = syi_config_set(&job->config, path, &err);
    launch.config = &job->config;
    if (!status) status = syi_launch_run(&launch, run, job, &err);
    expect(status == SY_OK, status ? err.text : "");
}

/* ---- what is checked ---- */

static void check_steps(const char *words, struct syi_launch launch, const char *what)
{
    static const char *const none[] = {NULL};
    static struct job job;
    memset(&job, 0, sizeof job);
    job.steps = LAST;
    atomic_store(&n_allocations, 0);
    run_job(&job, work, words, none, launch);
    printf("%s: %lu allocations in steps %d to %d\n", what, atomic_load(&n_allocations), FIRST, LAST);
    if (atomic_load(&n_allocations)) fprintf(stderr, "the first came from %p\n", atomic_load(&first_caller));
    expect(atomic_load(&n_allocations) == 0, "no allocation in a step");
}

static void check_decoding(const char *words, const char *setting, struct syi_launch launch, const char *what)
{
    const char *const settings[] = {setting, NULL};
    static struct job job;
    memset(&job, 0, sizeof job);
    atomic_store(&n_allocations, 0);
    run_job(&job, work_decode, words, settings, launch);
    printf("decoding, %s: %lu allocations\n", what, atomic_load(&n_allocations));
    if (atomic_load(&n_allocations)) fprintf(stderr, "the first came from %p\n", atomic_load(&first_caller));
    expect(atomic_load(&n_allocations) == 0, "no allocation in a decode");
}

/* Peak of resident memory in bytes, or 0 where the system does not say. */
static uint64_t peak_memory(void)
{
    char line[256];
    uint64_t peak = 0;
    FILE *file = fopen("/proc/self/status", "r");
    while (file && fgets(line, sizeof line, file))
        if (!strncmp(line, "VmHWM:", 6)) peak = strtoull(line + 6, NULL, 10) << 10;
    if (file) fclose(file);
    return peak;
}

/* A model so large that the constant matters little. */
static void check_plan(const char *words)
{
    static const char *const settings[] = {"model.d_model=256",
                                           "model.d_ff=1024",
                                           "model.head_dim=64",
                                           "moe.num_experts=8",
                                           "train.microbatches=1",
                                           "data.length_buckets=[]",
                                           "data.batch_size=128",
                                           "reproducible.min_leaf=64",
                                           "reproducible.blocks=8",
                                           "moe.num_selected_experts=1",
                                           NULL};
    static struct job job;
    job.steps = 2;
    atomic_store(&largest, 0);
    run_job(&job, work, words, settings, (struct syi_launch){.backend = "cpu", .comm = "self", .threads = 2});
    uint64_t peak = peak_memory(), arena = atomic_load(&largest);
    printf("planned %llu bytes, arena %llu, peak of the process %llu\n", (unsigned long long)job.planned,
           (unsigned long long)arena, (unsigned long long)peak);
    expect(arena == job.planned, "the arena has the planned bytes");
    expect(job.planned > 10 * CONSTANT, "the plan is large beside the constant");
    if (!peak) return;
    expect(peak >= job.planned - job.planned / 20,
           "the arena is used: the peak is at least the plan less 5 %");
    expect(peak <= job.planned + job.planned / 20 + CONSTANT,
           "the peak is at most the plan, 5 % and the constant");
}

static int counts(void)
{
    unsigned long before = atomic_load(&n_calls);
    syi_free(syi_format("%d", 1));
    return atomic_load(&n_calls) > before;
}

int main(void)
{
    char words[4200];
    const char *reason = why_not();
    if (reason) {
        printf("skipped: %s\n", reason);
        return SKIPPED;
    }
    expect(counts(), "allocations of the process come through this program");
    if (write_words(words, sizeof words, 3000, 15)) {
        perror(words);
        return 1;
    }
    check_steps(words, (struct syi_launch){.backend = "cpu", .comm = "self", .threads = 2}, "2 threads");
    check_steps(words, (struct syi_launch){.backend = "cpu", .comm = "thread", .ranks = 2, .threads = 1},
                "2 ranks");
    struct syi_launch one = {.backend = "cpu", .comm = "self", .threads = 2};
    check_decoding(words, "decode.beams=1", one, "greedy");
    check_decoding(words, "decode.beams=4", one, "4 beams");
    check_decoding(words, "decode.temperature=1", one, "sampling");
    check_plan(words);
    remove(words);
    return fails;
}
