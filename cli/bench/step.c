/* SPDX-License-Identifier: Apache-2.0 */
/* A run's training step, again and again: on random ids of full length, or on the run's data. First timed
 * whole, without a hook; then with every op timed. */
#include "config.h"

#include <math.h>
#include <string.h>

#include "base/philox.h"
#include "cli/bench/bench.h"
#include "train/engine/train_data.h"

/* Where batches come from. */
struct source {
    struct syi_batch made_up;
    struct syi_train_data data; /* of the run's files */
    const struct syi_batch *batch;
    struct syi_config *config; /* NULL: batches are made up */
};

/* first: of the vocabulary's ids that are no special ones. */
static int32_t random_id(const struct syi_config *c, int32_t first, uint32_t side, uint32_t at)
{
    const uint32_t counter[4] = {at, side, 0, 0};
    const uint32_t key[2] = {(uint32_t)c->train.seed, 0};
    uint32_t out[4];
    syi_philox(counter, key, out);
    return first + (int32_t)(out[0] % (uint32_t)(c->model.vocab_size - first));
}

static void fill_rows(const struct syi_config *c, int32_t first, struct syi_batch *b)
{
    for (int32_t row = 0; row < b->rows; row++) {
        int32_t *input = b->encoder_ids + (int64_t)row * b->input_length;
        int32_t *target = b->decoder_targets + (int64_t)row * b->target_length;
        struct syi_slot slot = {.row = row, .segment = b->segments != NULL};
        for (int32_t t = 0; t < b->input_length; t++)
            input[t] = random_id(c, first, 0, (uint32_t)(row * b->input_length + t));
        for (int32_t t = 0; t < b->target_length; t++)
            target[t] = random_id(c, first, 1, (uint32_t)(row * b->target_length + t));
        syi_batch_settle(b, &slot, row, b->input_length, b->target_length);
    }
}

int bench_fill_batch(const struct syi_config *c, const struct syi_bucket *buckets, int n_buckets,
                     struct syi_batch *b, struct sy_error *err)
{
    struct syi_vocabulary vocabulary;
    int status = syi_vocabulary_make(&vocabulary, syi_config_vocabulary(c, 0), err);
    if (status) return status;
    syi_batch_begin(b, buckets, n_buckets - 1);
    fill_rows(c, vocabulary.first, b);
    syi_vocabulary_close(&vocabulary);
    return SY_OK;
}

/* The run's stream without its short examples at the beginning, which are no measure of it. */
static int open_source(const struct bench_step_job *job, int quiet, struct source *s, struct sy_error *err)
{
    const struct syi_config *c = job->launch.config;
    struct syi_train_reader reader = {.quiet = quiet};
    struct syi_bucket buckets[SYI_MAX_BUCKETS];
    int n = syi_engine_buckets(c, buckets);
    s->batch = &s->made_up;
    s->config = job->data ? syi_alloc(sizeof *s->config, err) : NULL;
    if (job->data && !s->config) return SY_ENOMEM;
    if (s->config) {
        *s->config = *c;
        s->config->data.warm_examples = 0;
        return syi_train_data_open(&s->data, s->config, &reader, err);
    }
    int status = syi_train_batch_create(c, &s->made_up, err);
    return status ? status : bench_fill_batch(c, buckets, n, &s->made_up, err);
}

static void close_source(struct source *s)
{
    syi_train_data_close(&s->data);
    syi_batch_free(&s->made_up);
    syi_free(s->config);
}

/* ---- one rank ---- */

struct job {
    const struct bench_step_job *job;
    struct bench_step *result;
    struct bench_profile *profile; /* or NULL */
};

struct runner {
    const struct job *job;
    const struct syi_rank *rank;
    struct syi_engine *engine;
    struct source source;
    int64_t step;  /* of the stream, counted from 0 */
    double tokens; /* of all steps since it was set to 0 */
};

/* n steps; seconds[n] gets the time of each, or NULL. */
static int run_steps(struct runner *r, int n, double *seconds, struct sy_error *err)
{
    struct syi_step_result result;
    for (int i = 0; i < n; i++, r->step++) {
        int status = SY_OK;
        if (r->source.config) status = syi_train_data_get(&r->source.data, r->step, &r->source.batch, err);
        if (status) return status;
        const struct syi_batch *batch = r->source.batch;
        double begin = syi_seconds();
        status = syi_engine_step(r->engine, batch, r->step, r->job->job->launch.config->train.learning_rate,
                                 &result, err);
        double took = syi_seconds() - begin;
        if (status) return status;
        if (seconds) seconds[i] = took;
        r->tokens += (double)(batch->n_input_tokens + batch->n_target_tokens);
    }
    return SY_OK;
}

/* Of each number the sum over ranks, or the largest. */
static int over_ranks(const struct syi_rank *rank, double *number, size_t n, int largest,
                      struct sy_error *err)
{
    double *all = syi_alloc((size_t)rank->ranks * n * sizeof *all, err);
    if (!all) return SY_ENOMEM;
    int status = syi_comm_gather(rank->comm, number, n * sizeof *all, all, err);
    for (size_t i = 0; !status && i < n; i++) {
        number[i] = all[i];
        for (size_t k = 1; k < (size_t)rank->ranks; k++)
            number[i] = largest ? fmax(number[i], all[k * n + i]) : number[i] + all[k * n + i];
    }
    syi_free(all);
    return status;
}

/* The stream's steps after those of the warm-up. A step lasts until the slowest rank has done it. */
static int time_steps(struct runner *r, struct bench_step *out, struct sy_error *err)
{
    int n = r->job->job->steps;
    double *seconds = syi_alloc((size_t)n * sizeof *seconds, err), memory;
    if (!seconds) return SY_ENOMEM;
    r->step = 0;
    int status = run_steps(r, r->job->job->warmup, NULL, err);
    r->tokens = 0;
    if (!status) status = run_steps(r, n, seconds, err);
    memory = (double)bench_peak_memory();
    if (!status) status = over_ranks(r->rank, seconds, (size_t)n, 1, err);
    if (!status) status = over_ranks(r->rank, &memory, 1, 1, err);
    if (!status) {
        out->times = bench_times(seconds, n);
        out->tokens = r->tokens / n;
        out->peak_memory = (uint64_t)memory;
    }
    syi_free(seconds);
    return status;
}

static int sum_ops(const struct syi_rank *rank, const struct bench_profile *profile, int64_t steps,
                   struct bench_step *out, struct sy_error *err)
{
    enum { FLOPS, PRODUCTS, BF16, BYTES, SUMS };
    double sum[SUMS] = {0};
    for (size_t i = 0; i < profile->n_programs; i++) {
        for (size_t k = 0; k < profile->n_ops[i]; k++) {
            const struct bench_op *op = &profile->op[i][k];
            sum[FLOPS] += op->flops / (double)steps;
            sum[BYTES] += op->bytes / (double)steps;
            if (!op->product) continue;
            sum[PRODUCTS] += op->flops / (double)steps;
            if (op->dtype == SY_BF16) sum[BF16] += op->flops / (double)steps;
        }
    }
    int status = over_ranks(rank, sum, SUMS, 0, err);
    out->flops = sum[FLOPS];
    out->products = sum[PRODUCTS];
    out->bytes = sum[BYTES];
    out->dtype = sum[BF16] * 2 > sum[PRODUCTS] ? SY_BF16 : SY_F32;
    out->profiled = steps;
    return status;
}

/* The steps that were timed: batches of data differ. One of them without --profile where all are alike but for their
 * routing, on which costs depend. */
static int profile_steps(struct runner *r, struct bench_step *out, struct sy_error *err)
{
    const struct job *job = r->job;
    struct bench_profile profile = {0};
    int n = job->job->profile || job->job->data ? job->job->steps : 1;
    r->step = job->job->warmup;
    int status = bench_profile_start(&profile, syi_engine_session(r->engine), err);
    if (!status) status = run_steps(r, n, NULL, err);
    if (profile.session) bench_profile_stop(&profile);
    if (!status) status = sum_ops(r->rank, &profile, n, out, err);
    if (!status && r->rank->rank == 0 && job->profile)
        *job->profile = profile;
    else
        bench_profile_free(&profile);
    return status;
}

/* What equal bits on any number of ranks cost: the same steps with reproducible off, and with no more leaves
 * than ranks. On a device a leaf is a product of its own, which costs one rank something, too. */
static int time_without(struct runner *r, struct bench_times *times, struct sy_error *err)
{
    struct syi_config config = *r->job->job->launch.config;
    struct bench_step without = {0};
    int64_t leaves = 1;
    int is_free = r->rank->ranks == 1 && !r->rank->backend->plugin.desc.device;
    if (!config.reproducible.enabled || is_free) return SY_OK;
    while (leaves < r->rank->ranks) leaves *= 2;
    config.reproducible.enabled = false;
    if (leaves < config.reproducible.blocks) config.reproducible.blocks = leaves;
    syi_engine_free(r->engine);
    r->engine = NULL;
    int status = syi_engine_new(&config, r->rank, SYI_USE_TRAIN, 0, &r->engine, err);
    if (status) return status;
    status = syi_engine_init(r->engine, (uint64_t)config.train.seed, err);
    if (!status) status = time_steps(r, &without, err);
    *times = without.times;
    return status;
}

static int measure_rank(void *arg, const struct syi_rank *rank, struct sy_error *err)
{
    const struct job *job = arg;
    const struct syi_config *c = job->job->launch.config;
    struct runner r = {.job = job, .rank = rank};
    struct bench_step out = {.ranks = rank->ranks};
    int status = syi_engine_new(c, rank, SYI_USE_TRAIN, 0, &r.engine, err);
    if (!status) status = open_source(job->job, rank->rank != 0, &r.source, err);
    if (!status) status = syi_engine_init(r.engine, (uint64_t)c->train.seed, err);
    if (!status) status = time_steps(&r, &out, err);
    if (!status) status = profile_steps(&r, &out, err);
    if (!status && rank->rank == 0) {
        out.planned = *syi_session_plan(syi_engine_session(r.engine));
        syi_rank_describe(rank, out.what, sizeof out.what);
    }
    if (!status) status = time_without(&r, &out.off, err);
    if (!status && rank->rank == 0) *job->result = out;
    close_source(&r.source);
    syi_engine_free(r.engine);
    return status;
}

int bench_step(const struct bench_step_job *job, struct bench_step *step, struct bench_profile *profile,
               struct sy_error *err)
{
    struct job all = {job, step, profile};
    return syi_launch_run(&job->launch, measure_rank, &all, err);
}
