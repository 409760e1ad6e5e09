/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "optim/optim.h"
#include "optim/schedule.h"
#include "train/engine/bad_tensor.h"
#include "train/engine/train_data.h"
#include "train/replay/replay_actions.h"
#include "train/trainer/rollback.h"
#include "train/trainer/state_leaves.h"

struct replay {
    const struct syi_replay_job *job;
    const struct syi_config *config;
    const struct syi_rank *rank;
    struct syi_replay_result *result;
    struct syi_engine *engine;
    struct syi_schedule schedule;
    struct syi_train_data data;
    struct syi_holes holes; /* of the training stream */
    struct syi_replay_actions actions;
    int64_t grads; /* programs of gradients begun in this step */
    int status;    /* of what the hook did; sticky */
    struct sy_error err;
};

/* ---- looking at tensors ---- */

static int is_wanted(const struct syi_replay_job *job, const char *label)
{
    for (int i = 0; i < job->n_patterns; i++)
        if (syi_pattern_match(job->pattern[i], label)) return 1;
    return 0;
}

static void note_not_finite(struct syi_replay_result *r, const struct syi_replay_tensor *seen, int64_t at)
{
    if (r->n_not_finite++) return;
    snprintf(r->program, sizeof r->program, "%s", seen->program);
    snprintf(r->label, sizeof r->label, "%s", seen->label);
    snprintf(r->text, sizeof r->text, "%s", seen->text);
    r->microbatch = seen->microbatch;
    r->element = at;
    r->value = syi_bound_value(seen->tensor, at);
}

static void look(struct replay *r, const struct syi_program *p, size_t index, int output,
                 const struct sy_tensor *tensor)
{
    char label[256], text[2048] = "";
    struct syi_replay_tensor seen = {
        .program = p->title, .op = index, .label = label, .text = text, .tensor = tensor};
    int64_t at = syi_first_not_finite(tensor);
    syi_output_label(p, &p->op[index], output, label, sizeof label);
    seen.microbatch = r->grads ? r->grads - 1 : 0;
    r->result->n_tensors++;
    int wanted = is_wanted(r->job, label);
    if (at < 0 && !wanted) return;
    syi_op_text(p, index, text, sizeof text);
    if (at >= 0 && !r->result->n_not_finite)
        r->result->expert = syi_expert_of(p, &p->op[index], output, tensor, at);
    if (at >= 0) note_not_finite(r->result, &seen, at);
    if (!wanted || r->status) return;
    r->result->n_seen++;
    r->status = r->job->seen(r->job->arg, &seen, &r->err);
}

static void after_op(void *arg, int program, size_t index, const struct sy_call *call, int after)
{
    struct replay *r = arg;
    const struct syi_program *p = syi_session_program(syi_engine_session(r->engine), program);
    if (!after) {
        if (!index) r->grads = strncmp(p->title, "grad", 4) ? 0 : r->grads + 1;
        return;
    }
    for (int i = 0; i < call->n_out; i++)
        if (call->out[i].data) look(r, p, index, i, &call->out[i]); /* else nobody wants it */
}

/* ---- steps ---- */

static int step(struct replay *r, int64_t index, struct sy_error *err)
{
    double rate = syi_schedule_value(&r->schedule, index), factor = syi_replay_actions_factor(&r->actions);
    const struct syi_batch *batch;
    int status = syi_train_data_get(&r->data, syi_holes_place(&r->holes, index), &batch, err);
    r->result->learning_rate = syi_chain_rate(syi_engine_chains(r->engine), index, rate) * factor;
    syi_engine_scale_rates(r->engine, factor);
    if (!status) status = syi_engine_step(r->engine, batch, index, rate, &r->result->step, err);
    return status ? status : syi_replay_actions_step(&r->actions, index, batch, &r->result->step, err);
}

/* What the checkpoint was trained on must still be what is read. */
static int check_data(const struct replay *r, const struct syi_checkpoint_meta *meta, struct sy_error *err)
{
    char what[1200];
    if (!meta->train.sha256[0] || !strcmp(meta->train.sha256, r->data.mixture.id.sha256)) return SY_OK;
    syi_train_data_name(r->config, what, sizeof(what));
    return syi_error(err, SY_EMISMATCH,
                     "%s changed since the run was trained: its steps cannot be done again", what);
}

/* Those that no checkpoint knows, for the run was killed before the next. */
static int add_holes(struct replay *r, int64_t newest, struct sy_error *err)
{
    const struct syi_holes *more = r->job->holes;
    for (int i = 0; more && i < more->n; i++)
        if (more->hole[i].step >= newest &&
            syi_holes_add(&r->holes, more->hole[i].step, more->hole[i].batches))
            return syi_error(
                err, SY_EFORMAT,
                "the ways back that the run's database and its newest checkpoint know do not fit together: "
                "step %" PRId64 " cannot be done again",
                r->job->step);
    return SY_OK;
}

/* A checkpoint does not know of ways back that came after it, the newest knows of all before: those of later steps do no
 * harm. */
static int take_holes(struct replay *r, struct sy_error *err)
{
    struct syi_checkpoint_view newest = {0};
    struct sy_error cause = {0};
    int64_t step;
    int status = syi_checkpoint_latest(r->job->run_dir, &step, err);
    if (status) return status;
    if (step >= 0) status = syi_checkpoint_view_open(r->job->run_dir, step, &newest, &cause);
    if (status)
        status = syi_error(
            err, status,
            "%s; the newest checkpoint says which batches were left out: without its folder an older one does",
            cause.text);
    if (step >= 0 && !status) r->holes = newest.meta.holes;
    if (step >= 0) syi_checkpoint_view_close(&newest);
    return status ? status : add_holes(r, step, err);
}

static int begin_at_seed(struct replay *r, struct sy_error *err)
{
    if (*r->config->train.init_from)
        return syi_error(
            err, SY_EINVAL,
            "the run began with weights of another one (train.init_from), which may have changed, and has no "
            "checkpoint before step %" PRId64 ": give a later step",
            r->job->step);
    int status = syi_replay_actions_open(&r->actions, r->job, &r->schedule, NULL, err);
    return status ? status : syi_engine_init(r->engine, (uint64_t)r->config->train.seed, err);
}

static int begin(struct replay *r, struct sy_error *err)
{
    struct syi_state_leaves state = {0};
    struct syi_checkpoint_meta meta;
    int status = syi_checkpoint_before(r->job->run_dir, r->job->step - 1, &r->result->from, err);
    if (!status) status = take_holes(r, err);
    if (status || r->result->from < 0) return status ? status : begin_at_seed(r, err);
    status = syi_state_leaves_make(&state, r->engine, err);
    if (!status)
        status = syi_checkpoint_resume(r->job->run_dir, r->result->from, syi_engine_session(r->engine),
                                       r->rank->comm, &state.leaves, &meta, err);
    syi_state_leaves_free(&state);
    syi_engine_params_changed(r->engine);
    if (status) return status;
    syi_prefetch_seek(&r->data.prefetch, meta.rows);
    status = syi_replay_actions_open(&r->actions, r->job, &r->schedule, &meta, err);
    return status ? status : check_data(r, &meta, err);
}

static int replay(struct replay *r, struct sy_error *err)
{
    int status = begin(r, err);
    for (int64_t i = r->result->from < 0 ? 0 : r->result->from; !status && i < r->job->step; i++) {
        status = syi_replay_actions_evaluation(&r->actions, i, err);
        if (i == r->job->step - 1) syi_session_hook(syi_engine_session(r->engine), after_op, r);
        if (!status) status = step(r, i, err);
    }
    if (!status && r->status) status = syi_error(err, r->status, "%s", r->err.text);
    return status;
}

static int open_replay(struct replay *r, const struct syi_rank *rank, struct sy_error *err)
{
    char reason[SYI_TERM_REASON];
    int status = syi_schedule_compile_run(&r->schedule, r->config, reason);
    if (status) return syi_error(err, status, "train.lr_factors: %s", reason);
    status =
        syi_engine_new(r->config, rank, SYI_USE_TRAIN | SYI_USE_UNFUSED | SYI_USE_APART, 0, &r->engine, err);
    struct syi_train_reader reader = {.run_dir = r->job->run_dir, .quiet = 1};
    return status ? status : syi_train_data_open(&r->data, r->config, &reader, err);
}

static int replay_rank(void *arg, const struct syi_rank *rank, struct sy_error *err)
{
    struct replay *r = arg;
    r->rank = rank;
    int status = open_replay(r, rank, err);
    if (!status) status = replay(r, err);
    syi_replay_actions_close(&r->actions);
    syi_train_data_close(&r->data);
    syi_engine_free(r->engine);
    return status;
}

int syi_replay_run(const struct syi_replay_job *job, struct syi_replay_result *result, struct sy_error *err)
{
    struct replay r = {.job = job, .config = job->launch.config, .result = result};
    memset(result, 0, sizeof *result);
    if (!r.config->train.steps)
        return syi_error(err, SY_EINVAL,
                         "%s has no steps yet (train.steps = 0): train it with --resume and more of them",
                         job->run_dir);
    if (job->step < 1 || job->step > r.config->train.steps)
        return syi_error(err, SY_EINVAL, "step %" PRId64 " is not in 1..%" PRId64 ", the steps of the run",
                         job->step, r.config->train.steps);
    return syi_launch_run(&job->launch, replay_rank, &r, err);
}
