/* SPDX-License-Identifier: Apache-2.0 */
/* bench decode RUNFILE: a batch of random words decoded as the run file says, greedily or with beams, again
 * and again: the encoder once, then a step for each position of the longest output. First timed whole,
 * without a hook; then with every op timed, if asked for. */
#include "config.h"

#include <string.h>

#include "cli/bench/bench.h"

struct measured { /* of rank 0 */
    char what[256];
    int64_t rows, beams, input_length, output_length;
    struct bench_times times, encode; /* of a batch: all of it, the encoder alone */
    double planned;                   /* bytes */
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
    int encode;      /* the longest bucket's program in the session */
    double *seconds; /* (job->steps) */
};

static int open_runner(struct runner *r, const struct syi_rank *rank, struct sy_error *err)
{
    const struct syi_config *c = r->job->launch.config;
    struct syi_bucket buckets[SYI_MAX_BUCKETS];
    const struct syi_program *p;
    int n = syi_engine_buckets(c, buckets);
    int status = syi_engine_new(c, rank, SYI_USE_DECODE, 0, &r->engine, err);
    if (!status) status = syi_batch_create(&r->batch, syi_engine_eval_rows(r->engine), buckets, n, err);
    if (!status) status = bench_fill_batch(c, buckets, n, &r->batch, err);
    if (!status) status = syi_engine_init(r->engine, (uint64_t)c->train.seed, err);
    if (status) return status;
    for (int i = 0; (p = syi_session_program(syi_engine_session(r->engine), i)); i++)
        if (!strcmp(p->title, "encode")) r->encode = i; /* buckets are in rising order */
    size_t rows = (size_t)r->batch.rows;
    r->out = (struct syi_outputs){.decodes = 1, .whole = 1};
    r->out.ids = syi_alloc(rows * (size_t)syi_engine_decode_length(r->engine) * sizeof *r->out.ids, err);
    r->out.lengths = syi_alloc(rows * sizeof *r->out.lengths, err);
    r->seconds = syi_alloc((size_t)r->job->steps * sizeof *r->seconds, err);
    return r->out.ids && r->out.lengths && r->seconds ? SY_OK : SY_ENOMEM;
}

static void close_runner(struct runner *r)
{
    syi_batch_free(&r->batch);
    syi_engine_free(r->engine);
    syi_free(r->out.ids);
    syi_free(r->out.lengths);
    syi_free(r->seconds);
}

static int decode(struct runner *r, struct sy_error *err)
{
    return syi_engine_decode(r->engine, &r->batch, NULL, &r->out, err);
}

static int encode(struct runner *r, struct sy_error *err)
{
    return syi_session_run(syi_engine_session(r->engine), r->encode, err);
}

static int time_runs(struct runner *r, int (*run)(struct runner *r, struct sy_error *err),
                     struct bench_times *times, struct sy_error *err)
{
    int status = SY_OK;
    for (int i = 0; !status && i < r->job->warmup; i++) status = run(r, err);
    for (int i = 0; !status && i < r->job->steps; i++) {
        double begin = syi_seconds();
        status = run(r, err);
        r->seconds[i] = syi_seconds() - begin;
    }
    if (!status) *times = bench_times(r->seconds, r->job->steps);
    return status;
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
    if (!status) status = time_runs(&r, decode, &m.times, err);
    if (!status) status = time_runs(&r, encode, &m.encode, err);
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
    double rows = (double)m->rows, length = (double)m->output_length, median = m->times.median;
    const struct bench_number numbers[] = {
        {"batches", job->steps, 0},
        {"warmup", job->warmup, 0},
        {"words", rows, 0},
        {"beams", (double)m->beams, 0},
        {"input_length", (double)m->input_length, 0},
        {"output_length", length, 0},
        {"median_seconds", median, 6},
        {"min_seconds", m->times.min, 6},
        {"words_per_second", rows / median, 1},
        {"tokens_per_second", rows * length / median, 0},
        {"encode_ms", 1e3 * m->encode.median, 3},
        {"step_ms", 1e3 * (m->times.min - m->encode.min) / length, 4},
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
