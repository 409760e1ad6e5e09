/* SPDX-License-Identifier: Apache-2.0 */
/* syi_eval_run, what `switchyard eval` does: a checkpoint on the test files of the tasks, or on one file. */
#include "config.h"

#include <string.h>

#include "train/trainer/evaluations.h"

struct eval_call {
    const struct syi_eval_job *job;
    struct syi_eval_files files;
};

static void say(const struct syi_eval_job *job, const struct syi_rank *rank, const char *text)
{
    if (rank->rank == 0 && job->report.line) job->report.line(job->report.arg, text);
}

static void say_sizes(const struct syi_eval_job *job, const struct syi_rank *rank, int64_t step,
                      const struct syi_evaluation *e)
{
    char text[SYI_CONFIG_STRING + 120];
    snprintf(text, sizeof(text), "checkpoint of step %lld; %s: %d items, %d too long and %s", (long long)step,
             e->data->name, e->data->items.n_items, syi_evaluation_cut(e),
             syi_eval_decodes(e->data) ? "counted as wrong" : "left out");
    say(job, rank, text);
}

/* One task after the other; each is handed over when it is done. */
static int evaluate_checkpoint(const struct eval_call *call, const struct syi_rank *rank,
                               struct syi_engine *engine, struct syi_evaluations *e, struct sy_error *err)
{
    const struct syi_eval_job *job = call->job;
    struct syi_checkpoint_meta meta = {0};
    int status = syi_checkpoint_load(job->run_dir, job->checkpoint, syi_engine_session(engine), rank->comm, 0,
                                     &meta, err);

    syi_engine_params_changed(engine);
    if (!status)
        status = syi_evaluations_open(e, &call->files, job->launch.config, engine, rank, &job->report, err);
    for (int i = 0; !status && i < e->n; i++) {
        say_sizes(job, rank, meta.step, &e->part[i]);
        status = syi_evaluation_run(&e->part[i], 1, NULL, NULL, &e->result[i], err);
        if (!status && rank->rank == 0) job->result(job->arg, meta.step, &e->result[i]);
    }
    return status;
}

static int eval_rank(void *arg, const struct syi_rank *rank, struct sy_error *err)
{
    struct eval_call *call = arg;
    struct syi_evaluations *evaluations;
    struct syi_engine *engine;
    char text[512];
    int use = syi_eval_files_use(&call->files);
    int status = syi_engine_new(call->job->launch.config, rank, use, 0, &engine, err);

    if (status) return status;
    syi_rank_describe(rank, text, sizeof(text));
    say(call->job, rank, text);
    evaluations = syi_alloc(sizeof(*evaluations), err);
    status = evaluations ? evaluate_checkpoint(call, rank, engine, evaluations, err) : SY_ENOMEM;
    if (evaluations) syi_evaluations_close(evaluations);
    syi_free(evaluations);
    syi_engine_free(engine);
    return status;
}

static int load_files(struct eval_call *call, struct sy_error *err)
{
    const struct syi_eval_job *job = call->job;
    const struct syi_config *config = job->launch.config;
    const struct syi_task_part *part = syi_config_task(config);

    if (!job->file)
        return syi_eval_files_load(&call->files, config, SYI_EVAL_TEST, job->task, job->launch.world, err);
    for (int i = 0; job->task && i < config->task.n; i++)
        if (!strcmp(config->task.part[i].name_of_part, job->task)) part = &config->task.part[i];
    int status =
        syi_eval_data_load(&call->files.data[0], config, part, job->file, job->file, job->launch.world, err);
    call->files.n = !status;
    return status;
}

int syi_eval_run(const struct syi_eval_job *job, struct sy_error *err)
{
    struct eval_call *call = syi_alloc(sizeof(*call), err);
    int status;

    if (!call) return SY_ENOMEM;
    call->job = job;
    status = load_files(call, err);
    if (!status && !call->files.n)
        status = syi_error(err, SY_EINVAL,
                           "no file to evaluate on; set task.NAME.test to a file of input TAB target");
    if (!status) status = syi_launch_run(&job->launch, eval_rank, call, err);
    syi_eval_files_free(&call->files);
    syi_free(call);
    return status;
}
