/* SPDX-License-Identifier: Apache-2.0 */
/* bench decode RUNFILE: a batch of random words decoded as the run file says, greedily or with beams, again
 * and again: the encoder once, then a step for each position of the longest output. First timed without a hook, the
 * encoder and the steps apart by one clock; then with every op timed, if asked for. */
#include "config.h"

#include <string.h>

#include "cli/bench/bench.h"

struct measured { /* of rank 0 */
    char what[256];
    int64_t rows, beams, input_length, output_length;
    struct bench_times whole, encode, steps; /* of a batch: all of it, until it is encoded, the rest */
    double planned;                          /* bytes */
    struct bench_profile profile;
};

struct job {
    const struct bench_step_job *job;
    struct measured *result;
};

struct runner { /* one rank */
    const struct bench_step_job *job;
    struct syi_engine *engine;
    struct syi_batch batch;
    struct syi_outputs out;
    double encoded;                 /* when the batch was encoded, seconds; 0: not yet */
    double *whole, *encode, *steps; /* (job->steps) seconds of each batch */
};

/* Asked before the first position, and now and then after it. */
static int note_encoded(void *arg, struct sy_error *err)
{
    struct runner *r = arg;
    (void)err;
    if (r->encoded == 0) r->encoded = syi_seconds();
    return SY_OK;
}

static int open_runner(struct runner *r, const struct syi_rank *rank, struct sy_error *err)
{
    const struct syi_config *c = r->job->launch.config;
    struct syi_bucket buckets[SYI_MAX_BUCKETS];
    size_t batches = (size_t)r->job->steps;
    int n = syi_engine_buckets(c, buckets);
    int status = syi_engine_new(c, rank, SYI_USE_DECODE, 0, &r->engine, err);
    if (!status) status = syi_batch_create(&r->batch, syi_engine_eval_rows(r->engine), buckets, n, err);
    if (!status) status = bench_fill_batch(c, buckets, n, &r->batch, err);
    if (!status) status = syi_engine_init(r->engine, (uint64_t)c->train.seed, err);
    if (status) return status;
    size_t rows = (size_t)r->batch.rows;
    r->out = (struct syi_outputs){.decodes = 1, .whole = 1, .poll = note_encoded, .poll_arg = r};
    r->out.ids = syi_alloc(rows * (size_t)syi_engine_decode_length(r->engine) * sizeof *r->out.ids, err);
    r->out.lengths = syi_alloc(rows * sizeof *r->out.lengths, err);
    r->whole = syi_alloc(3 * batches * sizeof *r->whole, err);
    if (!r->out.ids || !r->out.lengths || !r->whole) return SY_ENOMEM;
    r->encode = r->whole + batches;
    r->steps = r->encode + batches;
    return SY_OK;
}

static void close_runner(struct runner *r)
{
    syi_batch_free(&r->batch);
    syi_engine_free(r->engine);
    syi_free(r->out.ids);
    syi_free(r->out.lengths);
    syi_free(r->whole);
}

static int decode(struct runner *r, struct sy_error *err)
{
    r->encoded = 0;
    return syi_engine_decode(r->engine, &r->batch, NULL, &r->out, err);
}

static int time_runs(struct runner *r, struct measured *m, struct sy_error *err)
{
    int status = SY_OK, n = r->job->steps;
    for (int i = 0; !status && i < r->job->warmup; i++) status = decode(r, err);
    for (int i = 0; !status && i < n; i++) {
        double begin = syi_seconds();
        status = decode(r, err);
        double end = syi_seconds();
        r->whole[i] = end - begin;
        r->encode[i] = r->encoded - begin;
        r->steps[i] = end - r->encoded;
    }
    if (status) return status;
    m->whole = bench_times(r->whole, n);
    m->encode = bench_times(r->encode, n);
    m->steps = bench_times(r->steps, n);
    return SY_OK;
}

/* All ranks decode, rank 0 with the hook. */
static int profile_runs(struct runner *r, int first, struct bench_profile *profile, struct sy_error *err)
{
    int status = first ? bench_profile_start(profile, syi_engine_session(r->engine), err) : SY_OK;
    for (int i = 0; !status && i < r->job->steps; i++) status = decode(r, err);
    if (profile->session) bench_profile_stop(profile);
    return status;
}

static int measure_rank(void *arg, const struct syi_rank *rank, struct sy_error *err)
{
    const struct job *job = arg;
    const struct syi_config *c = job->job->launch.config;
    struct runner r = {.job = job->job};
    struct measured m = {.beams = c->decode.beams};
    int status = open_runner(&r, rank, err);
    if (!status) status = time_runs(&r, &m, err);
    if (!status && job->job->profile) status = profile_runs(&r, rank->rank == 0, &m.profile, err);
    if (!status && rank->rank == 0) {
        m.planned = (double)syi_plan_bytes(syi_session_plan(syi_engine_session(r.engine)));
        m.rows = r.batch.rows;
        m.input_length = r.batch.input_length;
        m.output_length = syi_engine_decode_length(r.engine);
        syi_rank_describe(rank, m.what, sizeof m.what);
        *job->result = m;
    } else {
        bench_profile_free(&m.profile);
    }
    close_runner(&r);
    return status;
}

static void put(struct bench_out *out, const struct bench_step_job *job, const struct measured *m)
{
    double rows = (double)m->rows, length = (double)m->output_length, median = m->whole.median;
    const struct bench_number numbers[] = {
        {"batches", job->steps, 0},
        {"warmup", job->warmup, 0},
        {"words", rows, 0},
        {"beams", (double)m->beams, 0},
        {"input_length", (double)m->input_length, 0},
        {"output_length", length, 0},
        {"median_seconds", median, 6},
        {"min_seconds", m->whole.min, 6},
        {"words_per_second", rows / median, 1},
        {"tokens_per_second", rows * length / median, 0},
        {"encode_ms", 1e3 * m->encode.median, 3},
        {"step_ms", 1e3 * m->steps.median / length, 4},
        {"planned_bytes", m->planned, 0},
        {"peak_process_bytes", (double)bench_peak_memory(), 0},
    };
    bench_put_text(out, "launch", m->what);
    bench_put_numbers(out, "decode", numbers, SYI_COUNT(numbers));
}

int bench_decode(const char *run_file, const struct bench_step_job *job, struct bench_out *out,
                 struct sy_error *err)
{
    struct bench_machine machine;
    struct measured m = {.rows = 0};
    struct job all = {job, &m};
    bench_put_text(out, "run", run_file);
    int status = bench_machine(&job->launch, &machine, err);
    if (!status) status = syi_launch_run(&job->launch, measure_rank, &all, err);
    if (!status) status = bench_machine_again(&machine, err);
    if (!status) {
        bench_put_machine(out, &machine);
        put(out, job, &m);
        if (job->profile) status = bench_put_tables(out, &m.profile, &machine, job->steps, err);
    }
    bench_profile_free(&m.profile);
    return status;
}
