/* SPDX-License-Identifier: Apache-2.0 */
/* Going back to a checkpoint: weights, optimizer state and what actions remember are those of it, but not the place in the
 * training stream, which goes on after the batch that was bad. So a run that meets the same weights again meets other
 * data (what PaLM did by hand at spikes of the loss: arXiv 2204.02311, 5.1). */
#include "config.h"

#include <inttypes.h>
#include <string.h>

#include "train/trainer/rollback.h"

static void begin_again(struct syi_trainer *t, const struct syi_checkpoint_meta *meta)
{
    syi_actions_take_back(&t->actions, meta);
    syi_step_sums_take(&t->sums, t->config, meta);
    syi_engine_scale_rates(t->engine, syi_actions_rate_factor(&t->actions));
    t->step = t->saved = t->newest = meta->step;
    t->evaluated = meta->evaluated;
    t->spoiled = t->back = 0;
    t->loop_begin = syi_seconds();
    t->loop_step = t->step;
}

int syi_trainer_go_back(struct syi_trainer *t, int64_t taken, struct sy_error *err)
{
    struct syi_checkpoint_meta meta = {0};
    struct syi_hole hole;
    char text[SYI_HOLE_TEXT];
    int status = syi_trainer_wait_save(t, err);
    if (!status)
        status =
            syi_checkpoint_resume(t->job->dir->path, SYI_CHECKPOINT_LATEST, syi_engine_session(t->engine),
                                  t->rank->comm, &t->state.leaves, &meta, err);
    syi_engine_params_changed(t->engine);
    if (status) return status;
    hole = (struct syi_hole){.step = meta.step, .batches = taken - meta.step};
    begin_again(t, &meta);
    syi_hole_print(&hole, text);
    syi_trainer_say(t, "%s", text);
    syi_trainer_event(t, "rollback", text);
    syi_trainer_write_back(t);
    if (!syi_holes_add(&t->holes, hole.step, hole.batches)) return SY_OK;
    t->ended = 1;
    t->end = SYI_END_NAN;
    snprintf(t->what, sizeof t->what,
             "there were %d ways back to a checkpoint, more cannot be kept: try a lower "
             "train.learning_rate",
             SYI_HOLES);
    return SY_OK;
}
