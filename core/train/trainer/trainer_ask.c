/* SPDX-License-Identifier: Apache-2.0 */
/* Asking the actions about a moment, and what follows from their verdict: the run ends or turns back. */
#include "config.h"

#include "train/trainer/trainer_internal.h"

int64_t syi_trainer_newest(const struct syi_trainer *t)
{
    int64_t under_way = syi_saver_step(t->saver);
    return under_way >= 0 ? under_way : t->newest;
}

void syi_trainer_end(struct syi_trainer *t, enum syi_end end, const char *format, ...)
{
    va_list args;

    t->ended = 1;
    t->end = end;
    va_start(args, format);
    vsnprintf(t->what, sizeof(t->what), format, args);
    va_end(args);
}

static void obey(struct syi_trainer *t, const struct syi_verdict *verdict)
{
    if (t->ended) return;
    if (verdict->stop && *verdict->part)
        syi_trainer_end(t, verdict->end, "%s of [action.%s]: %s", verdict->action, verdict->part,
                        verdict->text);
    else if (verdict->stop)
        syi_trainer_end(t, verdict->end, "%s: %s", verdict->action, verdict->text);
    if (!verdict->back) return;
    t->back = 1;
    syi_trainer_say(t, "%s: %s", verdict->action, verdict->text);
    syi_trainer_event(t, verdict->action, verdict->text);
}

int syi_trainer_ask(struct syi_trainer *t, int64_t step, struct syi_moment *moment, struct sy_error *err)
{
    struct syi_verdict verdict;
    int status;

    moment->step = step;
    moment->checkpoint = syi_trainer_newest(t);
    moment->rate = syi_schedule_value(&t->schedule, step) * syi_actions_rate_factor(&t->actions);
    status = syi_actions_run(&t->actions, moment, &verdict, err);
    if (status) return status;
    obey(t, &verdict);
    syi_engine_scale_rates(t->engine, syi_actions_rate_factor(&t->actions));
    return SY_OK;
}
