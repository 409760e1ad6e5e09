/* SPDX-License-Identifier: Apache-2.0 */
/* How much of the time of slow collectives a training step hides: every collective takes 10 ms more than it
 * does, first those that sum over ranks, then all others; 2 ranks of one thread in this process, 4
 * microbatches. Prints what the step grows by, against the sum of all delays. Run by `make bench-overlap`. */
#include "config.h"

#include <stdio.h>

#include "data/vocabulary.h"
#include "tests/unit/delayed_comm.h"
#include "train/engine/engine.h"

enum { RANKS = 2, STEPS = 2, WORD = 20 };
static const int64_t DELAY = 10000000; /* ns */

enum { NOTHING, SUMS, OTHERS, CASES };

struct job {
    struct syi_config config;
    double seconds[CASES]; /* of a step, the fastest of STEPS */
    int64_t delayed[CASES];
};

struct run {
    struct delayed delayed;
    struct syi_session *session;
    int which;
};

/* Sums over ranks are send_pieces and gather_pieces, see core/passes/lower.c. */
static void select_op(void *arg, int program, size_t op, const struct sy_call *call, int after)
{
    struct run *run = arg;
    (void)op, (void)program;
    if (after) return;
    int sum = call->op == SY_OP_SEND_PIECES || call->op == SY_OP_GATHER_PIECES;
    run->delayed.selected = run->which == SUMS ? sum : run->which == OTHERS && !sum;
}

static void fill(struct syi_batch *batch, const struct syi_bucket *bucket)
{
    struct syi_vocabularies v;
    struct sy_error err = {0};
    uint64_t state = 1;
    if (syi_vocabulary_bytes(&v.input, 0, &err)) return;
    v.target = v.input;
    syi_batch_begin(batch, bucket, 0);
    for (int32_t row = 0; row < batch->rows; row++) {
        char text[WORD];
        for (int i = 0; i < WORD; i++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            text[i] = (char)('a' + (state >> 33) % 26);
        }
        struct syi_span word = {text, WORD};
        if (syi_batch_add(batch, &v, row, word, &word, &err)) return;
    }
}

static int time_step(struct job *job, struct run *run, struct syi_engine *engine,
                     const struct syi_batch *batch, struct sy_error *err)
{
    struct syi_step_result result;
    run->delayed.n_delayed = 0;
    int64_t begin = delayed_now();
    int status = syi_engine_step(engine, batch, 1, 1e-3, &result, err);
    double seconds = 1e-9 * (double)(delayed_now() - begin);
    if (run->delayed.comm.rank) return status;
    double *best = &job->seconds[run->which];
    if (*best == 0 || seconds < *best) *best = seconds;
    job->delayed[run->which] = run->delayed.n_delayed;
    return status;
}

/* The cases in turn: what else happens on the machine meets all of them. */
static int measure(struct job *job, struct run *run, struct syi_engine *engine, const struct syi_batch *batch,
                   struct sy_error *err)
{
    struct syi_step_result result;
    int status = syi_engine_step(engine, batch, 0, 1e-3, &result, err); /* warm */
    for (int step = 0; step < STEPS; step++)
        for (run->which = NOTHING; run->which < CASES && !status; run->which++)
            status = time_step(job, run, engine, batch, err);
    return status;
}

static int work(void *arg, const struct syi_rank *rank, struct sy_error *err)
{
    struct job *job = arg;
    struct run run;
    struct syi_rank slow = *rank;
    struct syi_engine *engine = NULL;
    struct syi_batch batch;
    const struct syi_bucket bucket = {(int32_t)job->config.data.max_input_length,
                                      (int32_t)job->config.data.max_target_length};
    delayed_open(&run.delayed, rank->comm);
    run.delayed.delay = DELAY;
    run.which = NOTHING;
    slow.comm = &run.delayed.comm;
    int status = syi_batch_create(&batch, (int32_t)job->config.data.batch_size, &bucket, 1, err);
    if (status) return status;
    fill(&batch, &bucket);
    status = syi_engine_new(&job->config, &slow, SYI_USE_TRAIN, 0, &engine, err);
    if (!status) {
        status = syi_engine_init(engine, 1, err);
        syi_session_hook(syi_engine_session(engine), select_op, &run);
        if (!status) status = measure(job, &run, engine, &batch, err);
    }
    syi_engine_free(engine);
    syi_batch_free(&batch);
    syi_comm_close(&run.delayed.comm);
    return status;
}

static void print(const struct job *job, int which, const char *name)
{
    double injected = 1e-9 * (double)(job->delayed[which] * DELAY);
    double grown = job->seconds[which] - job->seconds[NOTHING];
    printf("  %-22s %5lld collectives, %7.3f s injected: the step grows by %7.3f s, %5.1f %%\n", name,
           (long long)job->delayed[which], injected, grown, injected > 0 ? 100 * grown / injected : 0);
}

int main(int argc, char **argv)
{
    static const char *const meshes[] = {"mesh.data=2", "mesh.expert=2", "mesh.model=2"};
    struct sy_error err = {0};
    int status = argc < 2 ? syi_error(&err, SY_EINVAL, "usage: overlap-bench RUNFILE [KEY=VALUE...]") : SY_OK;
    for (size_t i = 0; i < SYI_COUNT(meshes) && !status; i++) {
        struct job job;
        memset(&job, 0, sizeof job);
        status = syi_config_defaults(&job.config, &err);
        if (!status) status = syi_config_load(&job.config, argv[1], &err);
        if (!status) status = syi_config_set(&job.config, "train.microbatches=4", &err);
        if (!status) status = syi_config_set(&job.config, meshes[i], &err);
        for (int k = 2; k < argc && !status; k++) status = syi_config_set(&job.config, argv[k], &err);
        struct syi_launch launch = {
            .backend = "cpu", .comm = "thread", .ranks = RANKS, .threads = 1, .config = &job.config};
        if (!status) status = syi_launch_run(&launch, work, &job, &err);
        if (status) break;
        printf("%s, 4 microbatches, step of %.3f s, 10 ms for each of\n", meshes[i], job.seconds[NOTHING]);
        print(&job, SUMS, "sums over ranks");
        print(&job, OTHERS, "the other collectives");
        fflush(stdout);
    }
    if (status) fprintf(stderr, "overlap-bench: %s\n", err.text);
    return status != 0;
}
