/* SPDX-License-Identifier: Apache-2.0 */
/* reduce_lr_on_plateau: multiplies the learning rates after evaluations without a better value. Like
 * ReduceLROnPlateau of Keras, whose bad evaluations count from 1 to patience; here it is a factor on the schedule,
 * "factor" in its state, that goes down. */
#include "config.h"

#include <inttypes.h>
#include <math.h>

#include "train/trainer/action_kind.h"

static double factor_of(const struct syi_action_state *state)
{
    double factor = syi_state_get(state, "factor", 1);
    return factor > 0 && factor <= 1 ? factor : 1; /* what else stands in a file is no factor of ours */
}

/* The rate of the run that the schedule and all factors give now is not brought below min_lr. */
static void reduce(struct syi_action_call *call)
{
    const struct syi_action_part *part = call->part;
    double before = factor_of(call->state), rate = call->moment->rate, by = part->factor;
    if (part->min_lr > 0 && rate * by < part->min_lr) by = rate > part->min_lr ? part->min_lr / rate : 1;
    syi_state_set(call->state, "stale", 0);
    if (!(by < 1)) return;
    syi_state_set(call->state, "factor", before * by);
    syi_state_set(call->state, "cooldown", (double)part->cooldown);
    syi_action_event(call, "%s has not improved in %" PRId64 " %s: the learning rate goes from %.6g to %.6g",
                     part->metric, part->patience, syi_watch_unit(part, 1), rate, rate * by);
}

/* Another metric begins a new count; the factor stays. */
static void begin(struct syi_action_call *call)
{
    double factor = factor_of(call->state);
    syi_watch_begin(call->state, call->part);
    syi_state_set(call->state, "factor", factor);
}

static int run(struct syi_action_call *call, struct sy_error *err)
{
    double value;
    int64_t cooldown;
    (void)err;
    if (!syi_watch_is_due(call) || !syi_watch_value(call, &value)) return SY_OK;
    begin(call);
    syi_watch_best(call->state, call->part, value, syi_watch_step(call->moment));
    cooldown = syi_state_count(call->state, "cooldown", 0);
    if (cooldown > 0) {
        syi_state_set(call->state, "cooldown", (double)(cooldown - 1));
        syi_state_set(call->state, "stale", 0);
    }
    if (syi_state_count(call->state, "stale", 0) >= call->part->patience) reduce(call);
    return SY_OK;
}

const struct syi_action syi_action_reduce_lr_on_plateau = {.name = "reduce_lr_on_plateau",
                                                           .moments = SYI_AFTER_STEP | SYI_AFTER_EVALUATION,
                                                           .run = run,
                                                           .rate_factor = factor_of};
