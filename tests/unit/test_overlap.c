/* SPDX-License-Identifier: Apache-2.0 */
/* Sums of gradients over ranks overlap with compute and with each other: what stands between start and wait
 * in the programs of a model, and that slow collectives change no bit. Times are bench/overlap_bench.c's. */
#include "config.h"

#include "delayed_comm.h"
#include "small_batch.h"
#include "train/engine/engine.h"

enum { RANKS = 2, STEPS = 3 };

struct slow_run {
    struct syi_config config;
    int64_t delay; /* ns of every collective */
    double loss[STEPS], grad_norm[STEPS];
    int most;        /* collectives under way at a time */
    int sums, alone; /* collectives of gradient sums in grad_next; those with no op between start and wait */
};

/* Ops of compute between the start at `at` and its wait. */
static int overlapped(const struct syi_program *p, size_t at)
{
    int n = 0;
    for (size_t i = at + 1; i < p->n_ops; i++) {
        if (p->op[i].op == SY_OP_WAIT && p->op[i].in[0] == p->op[at].out[0]) return n;
        n += p->op[i].queue == 0 && p->op[i].op != SY_OP_WAIT;
    }
    cr_assert_fail("nobody waits for op %zu of %s", at, p->title);
    return n;
}

static void count_sums(struct slow_run *run, const struct syi_program *p)
{
    for (size_t at = 0; at < p->n_ops; at++) {
        if (p->op[at].op != SY_OP_SEND_PIECES && p->op[at].op != SY_OP_GATHER_PIECES) continue;
        run->sums++;
        run->alone += overlapped(p, at) == 0;
    }
}

static int train(void *arg, const struct syi_rank *rank, struct sy_error *err)
{
    struct slow_run *run = arg;
    struct syi_rank slow = *rank;
    struct delayed delayed;
    struct syi_engine *engine = NULL;
    struct syi_batch batch;
    struct syi_step_result result = {.ok = 0};
    delayed_open(&delayed, rank->comm);
    delayed.selected = 1;
    slow.comm = &delayed.comm;
    batch_open(&batch);
    int status = syi_engine_new(&run->config, &slow, SYI_USE_TRAIN, 0, &engine, err);
    if (!status) status = syi_engine_init(engine, 3, err);
    delayed.delay = run->delay;
    for (int step = 0; step < STEPS && !status; step++) {
        batch_fill(&batch, step);
        status = syi_engine_step(engine, &batch, step, 1e-2, &result, err);
        if (rank->rank) continue;
        run->loss[step] = result.loss;
        run->grad_norm[step] = result.grad_norm;
    }
    if (!status && rank->rank == 0) {
        run->most = delayed.most;
        count_sums(run, syi_engine_program(engine, SYI_GRAD_NEXT));
    }
    syi_engine_free(engine);
    syi_batch_free(&batch);
    syi_comm_close(&delayed.comm);
    return status;
}

/* Weights of 192 x 192 are summed each for itself (core/passes/join.c). */
static struct slow_run run_with(int64_t delay, const char *mesh)
{
    struct sy_error err = {0};
    struct slow_run run = {.config = config_of("model.vocab_size=384", "model.d_model=192", "model.d_ff=192",
                                               "model.head_dim=96", "data.max_input_length=8",
                                               "data.max_target_length=6", "data.batch_size=16",
                                               "decode.batch_size=16", "train.microbatches=4",
                                               "moe.group_rows=1", "reproducible.min_leaf=1", mesh, NULL),
                           .delay = delay};
    struct syi_launch launch = {
        .backend = "cpu", .comm = "thread", .ranks = RANKS, .threads = 1, .config = &run.config};
    cr_assert_eq(syi_launch_run(&launch, train, &run, &err), SY_OK, "%s", err.text);
    return run;
}

Test(overlap, gradient_sums_run_beside_compute, .timeout = 60)
{
    struct slow_run run = run_with(0, "mesh.data=2");
    cr_assert_gt(run.sums, 20);
    cr_assert_leq(run.alone * 10, run.sums, "%d of %d collectives have nothing beside them", run.alone,
                  run.sums);
    cr_assert_eq(run.most, SYI_LANES);
}

Test(overlap, slow_collectives_change_no_bit, .timeout = 60)
{
    static const char *const meshes[] = {"mesh.data=2", "mesh.expert=2", "mesh.model=2"};
    struct slow_run first = run_with(0, meshes[0]);
    for (size_t i = 0; i < SYI_COUNT(meshes); i++) {
        struct slow_run slow = run_with(200000, meshes[i]);
        for (int step = 0; step < STEPS; step++)
            cr_assert(slow.loss[step] == first.loss[step] && slow.grad_norm[step] == first.grad_norm[step],
                      "%s, step %d: loss %.17g, not %.17g", meshes[i], step, slow.loss[step],
                      first.loss[step]);
    }
}
