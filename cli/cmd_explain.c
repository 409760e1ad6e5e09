/* SPDX-License-Identifier: Apache-2.0 */
/* switchyard explain RUNFILE: a program of the run after any stage, one op a line. */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "train/engine/engine.h"
#include "train/engine/pipeline.h"

struct request {
    struct syi_config *config;
    enum syi_stage stage;
    enum syi_which which;
};

static void print_line(void *arg, const char *line)
{
    (void)arg;
    puts(line);
}

static int no_program(enum syi_which which, struct sy_error *err)
{
    return syi_error(err, SY_EINVAL, "explain: this run has no program %s (%s)", syi_which_name(which),
                     which == SYI_WEIGHTS          ? "model.dtype is float32"
                     : which == SYI_EXCHANGE       ? "no optimizer keeps averages"
                     : which == SYI_UPDATE_METRICS ? "metrics.weights_every is 0"
                                                   : "train.microbatches is 1");
}

/* Records the programs from which the one asked for learns which parameters there are and which are read. */
static int record_before(const struct request *r, const struct syi_mesh *mesh, struct syi_model *model,
                         struct sy_error *err)
{
    int updates = r->which == SYI_UPDATE || r->which == SYI_UPDATE_METRICS || r->which == SYI_EXCHANGE;
    int first = updates ? SYI_GRAD_FIRST : r->which == SYI_WEIGHTS ? SYI_EVAL : r->which;
    int status = SY_OK, end = updates ? SYI_GRAD_NEXT : r->which == SYI_WEIGHTS ? SYI_EXCHANGE : r->which;
    for (int which = first; !status && which < end; which++) {
        struct syi_recorded recorded;
        struct syi_shape shape = syi_config_shape(r->config, which);
        status = syi_pipeline(r->config, mesh, NULL, which, &shape, SYI_STAGE_RECORD, model, &recorded, err);
        if (!status) syi_program_free(recorded.program);
    }
    if (!status && r->which == SYI_WEIGHTS && !model->n_copies) status = no_program(r->which, err);
    return status;
}

/* A stage before the session: recorded anew for the longest bucket. */
static int explain_stage(const struct request *r, const struct syi_rank *rank, struct sy_error *err)
{
    struct syi_recorded recorded;
    struct syi_model model = {0};
    const struct syi_mesh *mesh = &rank->mesh;
    struct syi_shape shape = syi_config_shape(r->config, r->which);
    int status = SY_OK;
    if (r->stage >= SYI_STAGE_RECOMPUTE && r->config->memory.budget)
        return syi_error(err, SY_EINVAL,
                         "explain: with memory.budget, what is computed again is known when all programs are "
                         "planned: take --after plan, or --after fuse for the program before it");
    if (r->which == SYI_GRAD_NEXT && r->config->train.microbatches == 1) return no_program(r->which, err);
    syi_engine_choose_copies(r->config, rank->backend, 0, &model);
    status = record_before(r, mesh, &model, err);
    if (!status)
        status =
            syi_pipeline(r->config, mesh, rank->backend, r->which, &shape, r->stage, &model, &recorded, err);
    if (!status && !recorded.program) status = no_program(r->which, err);
    if (!status) {
        status = syi_program_explain(recorded.program, print_line, NULL, err);
        syi_program_free(recorded.program);
    }
    syi_model_free(&model);
    return status;
}

static int explain_plan(const struct request *r, const struct syi_rank *rank, struct sy_error *err)
{
    struct syi_engine *engine;
    int trains = r->which <= SYI_UPDATE_METRICS || r->which == SYI_EXCHANGE;
    int use = trains                    ? SYI_USE_TRAIN
              : r->which == SYI_EVAL    ? SYI_USE_EVAL
              : r->which == SYI_SCORE   ? SYI_USE_SCORE
              : r->which == SYI_WEIGHTS ? SYI_USE_EVAL | SYI_USE_DECODE
                                        : SYI_USE_DECODE;
    int status = syi_engine_new(r->config, rank, use, 1, &engine, err);
    if (status) return status;
    const struct syi_program *program = syi_engine_program(engine, r->which);
    if (program)
        status = syi_program_explain(program, print_line, NULL, err);
    else
        status = no_program(r->which, err);
    syi_engine_free(engine);
    return status;
}

static int explain(void *arg, const struct syi_rank *rank, struct sy_error *err)
{
    const struct request *r = arg;
    if (rank->rank) return SY_OK;
    r->config->reproducible.min_leaf = syi_rank_min_leaf(rank, r->config);
    return r->stage == SYI_STAGE_PLAN ? explain_plan(r, rank, err) : explain_stage(r, rank, err);
}

static int index_of(const char *word, const char *const *words, int n, const char *what)
{
    for (int i = 0; i < n; i++)
        if (!strcmp(word, words[i])) return i;
    cli_error("explain: unknown %s %s, did you mean %s?", what, word, cli_nearest(word, words, (size_t)n));
    return -1;
}

int cli_explain(const struct cli_options *o)
{
    const char *programs[SYI_WHICH_COUNT], *stages[SYI_STAGE_COUNT];
    struct syi_config config;
    struct sy_error err = {0};
    int stage = SYI_STAGE_PLAN, which = SYI_GRAD_FIRST;
    for (int i = 0; i < SYI_STAGE_COUNT; i++) stages[i] = syi_stage_name((enum syi_stage)i);
    for (int i = 0; i < SYI_WHICH_COUNT; i++) programs[i] = syi_which_name((enum syi_which)i);
    if (o->after) stage = index_of(o->after, stages, SYI_STAGE_COUNT, "stage");
    if (o->program) which = index_of(o->program, programs, SYI_WHICH_COUNT, "program");
    if (stage < 0 || which < 0) return CLI_USAGE;
    struct request r = {&config, (enum syi_stage)stage, (enum syi_which)which};
    if (cli_load_config(o->operand[0], o, &config, &err)) return cli_load_failed(&err);
    int status = cli_check_launch("explain", o, &config, 0);
    if (status) return status;
    struct syi_launch launch = cli_launch(o, &config);
    status = syi_launch_run(&launch, explain, &r, &err);
    if (status == SY_EMISMATCH) return cli_usage(&err); /* optimizers that contradict each other */
    return status ? cli_fail(&err) : CLI_DONE;
}
