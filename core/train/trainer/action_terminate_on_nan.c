/* SPDX-License-Identifier: Apache-2.0 */
/* terminate_on_nan: looks for numbers that are not finite, of steps or of an evaluation, and stops, skips the step or
 * goes back to a checkpoint. T5X (trainer.py TerminateOnNanAction) stops. */
#include "config.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/compat.h"
#include "train/trainer/action_kind.h"

int syi_step_is_bad(const struct syi_config *config, const struct syi_step_result *result)
{
    int after = syi_compat(config, config->train.nan_check);
    return !result->ok || (after && !isfinite(result->loss));
}

/* ---- what is wrong ---- */

static void describe_step(const struct syi_config *config, const struct syi_moment *moment, char *text,
                          size_t bytes)
{
    const char *update = syi_compat(config, config->train.nan_check) ? "what its update made is not saved"
                                                                     : "its update is left out";
    snprintf(text, bytes, "the gradients of step %" PRId64 " are not finite (loss %g); %s", moment->step + 1,
             moment->result->loss, update);
}

void syi_tell_bad_step(struct syi_actions *actions, const struct syi_moment *moment)
{
    char text[160], line[200];
    if (!syi_step_is_bad(actions->config, moment->result) || !actions->report.event) return;
    describe_step(actions->config, moment, text, sizeof text);
    snprintf(line, sizeof line, "%s and training goes on", text);
    actions->report.event(actions->report.arg, "not_finite", line);
}

/* 1: something is, and text says what. The loss of a step is finite where its gradients are. */
static int is_bad(const struct syi_action_call *call, char *text, size_t bytes)
{
    const struct syi_moment *moment = call->moment;
    const char *metric = call->part->metric;
    int step = moment->kind == SYI_AFTER_STEP;
    double value;
    if (step && syi_step_is_bad(call->config, moment->result)) {
        describe_step(call->config, moment, text, bytes);
        return 1;
    }
    if ((step && !strcmp(metric, "loss")) || !syi_watch_value(call, &value) || isfinite(value)) return 0;
    snprintf(text, bytes, "%s of %s %" PRId64 " is %g", metric, step ? "step" : "the evaluation after step",
             step ? moment->step + 1 : moment->step, value);
    return 1;
}

/* ---- what follows ---- */

static void stop(struct syi_action_call *call, const char *what, const char *then)
{
    call->verdict->stop = 1;
    call->verdict->end = SYI_END_NAN;
    snprintf(call->verdict->text, sizeof call->verdict->text, "%s, %s", what, then);
}

/* In a row are steps one after the other, and ways back to the same checkpoint. Returns how many. */
static int64_t count_in_row(struct syi_action_call *call, int64_t mark)
{
    if (syi_state_count(call->state, "mark", -1) == mark)
        syi_state_count_up(call->state, "in_row");
    else
        syi_state_set(call->state, "in_row", 1);
    syi_state_set(call->state, "mark", (double)mark);
    syi_state_count_up(call->state, "bad");
    return syi_state_count(call->state, "in_row", 0);
}

static void skip(struct syi_action_call *call, const char *what)
{
    int64_t step = call->moment->step, in_row = count_in_row(call, step);
    syi_state_set(call->state, "mark",
                  (double)(step + 1)); /* the next step, if it is bad, follows this one */
    if (in_row > call->part->max_skips) {
        stop(call, what, "like max_skips steps before; try a lower train.learning_rate");
        return;
    }
    call->verdict->action = "terminate_on_nan";
    syi_action_event(call, "%s and training goes on, skip %" PRId64 " of %" PRId64 " in a row", what, in_row,
                     call->part->max_skips);
}

static void go_back(struct syi_action_call *call, const char *what)
{
    const struct syi_moment *moment = call->moment;
    if (moment->checkpoint < 0)
        stop(call, what, "and there is no checkpoint to go back to");
    else if (moment->kind != SYI_AFTER_STEP && moment->checkpoint == moment->step)
        stop(call, what, "and so it is with the newest checkpoint, which has the same weights");
    else if (count_in_row(call, moment->checkpoint) > call->part->max_skips)
        stop(call, what, "as after each way back to that checkpoint (max_skips)");
    else
        call->verdict->back = 1;
    if (call->verdict->back) snprintf(call->verdict->text, sizeof call->verdict->text, "%s", what);
}

/* Of no items there is no mean. */
static const char *advice(const struct syi_action_call *call)
{
    const struct syi_moment *moment = call->moment;
    const struct syi_eval_result *result =
        moment->kind == SYI_AFTER_EVALUATION ? syi_watch_evaluation(call->part, moment) : NULL;
    if (result && result->items && result->items == result->unfit)
        return "for no item fits: raise data.max_input_length or data.max_target_length";
    return "try a lower train.learning_rate";
}

static int run(struct syi_action_call *call, struct sy_error *err)
{
    char what[150];
    int of_evaluation = *call->part->task && !syi_action_is_of_training(call->part);
    (void)err;
    if (of_evaluation != (call->moment->kind == SYI_AFTER_EVALUATION)) return SY_OK;
    if (!is_bad(call, what, sizeof what)) return SY_OK;
    if (call->part->policy == SYI_POLICY_SKIP)
        skip(call, what);
    else if (call->part->policy == SYI_POLICY_ROLLBACK)
        go_back(call, what);
    else
        stop(call, what, advice(call));
    return SY_OK;
}

const struct syi_action syi_action_terminate_on_nan = {
    .name = "terminate_on_nan", .moments = SYI_AFTER_STEP | SYI_AFTER_EVALUATION, .run = run};
