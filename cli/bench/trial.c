/* SPDX-License-Identifier: Apache-2.0 */
/* A small program on one rank: partitioned, fused and bound as a run's are, given random numbers, run for a
 * while, then run with every op timed. */
#include "config.h"

#include <string.h>

#include "base/philox.h"
#include "cli/bench/bench.h"
#include "passes/passes.h"

enum { FEWEST_RUNS = 3, MOST_RUNS = 65536 };

/* ---- random numbers in -0.5 .. 0.5 ---- */

struct noise {
    const struct sy_tensor *tensor;
    int64_t elements;
    uint32_t key;
};

static void put(const struct sy_tensor *t, int64_t at, float value)
{
    uint32_t bits;
    if (t->dtype == SY_F32) {
        ((float *)t->data)[at] = value;
    } else if (t->dtype == SY_BF16) {
        memcpy(&bits, &value, sizeof bits);
        ((uint16_t *)t->data)[at] = (uint16_t)(bits >> 16);
    }
}

/* A task is 1,024 elements. */
static void fill_part(void *arg, int64_t task, int thread)
{
    const struct noise *n = arg;
    const uint32_t key[2] = {n->key, 0};
    (void)thread;
    for (int64_t at = task * 1024; at < n->elements && at < (task + 1) * 1024; at += 4) {
        const uint32_t counter[4] = {(uint32_t)at, (uint32_t)(at >> 32), 0, 0};
        uint32_t out[4];
        syi_philox(counter, key, out);
        for (int i = 0; i < 4 && at + i < n->elements; i++)
            put(n->tensor, at + i, (float)(out[i] >> 8) * 0x1p-24f - 0.5f);
    }
}

/* Everything the program reads but optimizer state. */
static void fill_all(const struct bench_micro *micro, struct syi_session *session)
{
    const struct syi_shared *s;
    for (size_t i = 0; (s = syi_session_shared(session, i)); i++) {
        struct noise noise = {&s->tensor, 1, (uint32_t)i};
        if (s->info.kind == SYI_STATE) continue;
        for (int d = 0; d < s->tensor.rank; d++) noise.elements *= s->tensor.dim[d];
        syi_threads_for(micro->rank->threads, (noise.elements + 1023) / 1024, fill_part, &noise);
    }
}

/* ---- running ---- */

static int open_session(const struct bench_micro *micro, struct syi_program *program,
                        struct syi_session **session, struct sy_error *err)
{
    struct syi_session_options options = {.backend = micro->rank->backend,
                                          .comm = micro->rank->comm,
                                          .mesh = &micro->rank->mesh,
                                          .reproducible = micro->config.reproducible.enabled,
                                          .fold = 1};
    struct syi_pass_options passes = {.mesh = &micro->rank->mesh};
    int index, status = syi_program_status(program, err);
    if (!status) status = syi_program_check(program, "record", err);
    if (!status) status = syi_passes_run(&program, SYI_STAGE_RECORD, SYI_STAGE_FUSE, &passes, err);
    if (!status) status = syi_session_new(&options, session, err);
    if (status) {
        syi_program_free(program);
        return status;
    }
    status = syi_session_add(*session, program, &index, err);
    return status ? status : syi_session_bind(*session, err);
}

/* For `seconds`, the first run apart: it touches what the others find warm. */
static int run_for(struct syi_session *session, double seconds, struct bench_times *times, int64_t *runs,
                   struct sy_error *err)
{
    double *sample = syi_alloc(MOST_RUNS * sizeof *sample, err);
    if (!sample) return SY_ENOMEM;
    int status = syi_session_run(session, 0, err);
    int64_t n = 0;
    for (double begin = syi_seconds(); !status && n < MOST_RUNS; n++) {
        double now = syi_seconds();
        if (n >= FEWEST_RUNS && now - begin > seconds) break;
        status = syi_session_run(session, 0, err);
        sample[n] = syi_seconds() - now;
    }
    if (!status) *times = bench_times(sample, n);
    *runs = n + 1;
    syi_free(sample);
    return status;
}

static int measure(const struct bench_micro *micro, struct syi_session *session, struct bench_times *times,
                   struct bench_rows *rows, struct sy_error *err)
{
    struct bench_profile profile;
    struct bench_times hooked;
    int64_t runs;
    int status = run_for(session, micro->seconds, times, &runs, err);
    if (!status) status = bench_profile_start(&profile, session, err);
    if (status) return status;
    status = run_for(session, micro->seconds, &hooked, &runs, err);
    bench_profile_stop(&profile);
    if (!status) status = bench_group(&profile, &micro->machine, BENCH_BY_KIND, rows, err);
    rows->runs = runs;
    bench_profile_free(&profile);
    return status;
}

int bench_try(const struct bench_micro *micro, const struct bench_trial *trial, struct bench_times *times,
              struct bench_rows *rows, struct sy_error *err)
{
    struct syi_session *session = NULL;
    *rows = (struct bench_rows){0};
    int status = open_session(micro, trial->program, &session, err);
    if (!status) {
        fill_all(micro, session);
        if (trial->fill) trial->fill(trial->arg, session);
        status = syi_session_upload(session, SYI_PERSIST, err);
        if (!status) status = syi_session_upload(session, SYI_CARRY_SEGMENT, err);
    }
    if (!status) {
        status = measure(micro, session, times, rows, err);
    }
    syi_session_free(session);
    return status;
}
