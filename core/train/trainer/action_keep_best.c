/* SPDX-License-Identifier: Apache-2.0 */
/* keep_best: remembers the n best evaluations, whose checkpoints stay besides the newest. Numbers "value-1" and "step-1"
 * are of the best, and so on; of equal values the older is the better. */
#include "config.h"

#include <math.h>

#include "train/trainer/action_kind.h"

enum { MOST = 16 };

struct kept {
    int n;
    double value[MOST + 1];
    int64_t step[MOST + 1];
};

static const char *name_of(const char *what, int i, char name[SYI_ACTION_NUMBER_NAME])
{
    snprintf(name, SYI_ACTION_NUMBER_NAME, "%s-%d", what, i + 1);
    return name;
}

static struct kept read_kept(const struct syi_action_state *state)
{
    struct kept kept = {0};
    char name[SYI_ACTION_NUMBER_NAME];
    while (kept.n < MOST) {
        int64_t step = syi_state_count(state, name_of("step", kept.n, name), -1);
        if (step < 0) break;
        kept.step[kept.n] = step;
        kept.value[kept.n] = syi_state_get(state, name_of("value", kept.n, name), NAN);
        kept.n++;
    }
    return kept;
}

static void write_kept(struct syi_action_state *state, const struct kept *kept, int64_t n)
{
    char name[SYI_ACTION_NUMBER_NAME];
    state->n = 0;
    for (int i = 0; i < kept->n && i < n; i++) {
        syi_state_set(state, name_of("value", i, name), kept->value[i]);
        syi_state_set(state, name_of("step", i, name), (double)kept->step[i]);
    }
}

/* Where it belongs; the last of more than n goes. */
static void insert(struct kept *kept, int mode, double value, int64_t step)
{
    int at = kept->n++;
    for (; at && syi_is_better(mode, value, kept->value[at - 1], 0); at--) {
        kept->value[at] = kept->value[at - 1];
        kept->step[at] = kept->step[at - 1];
    }
    kept->value[at] = value;
    kept->step[at] = step;
}

static int run(struct syi_action_call *call, struct sy_error *err)
{
    double value;
    struct kept kept;
    (void)err;
    if (!syi_watch_value(call, &value) || isnan(value)) return SY_OK;
    syi_watch_begin(call->state, call->part);
    kept = read_kept(call->state);
    insert(&kept, call->part->mode, value, call->moment->step);
    write_kept(call->state, &kept, call->part->n);
    return SY_OK;
}

static int steps(const struct syi_action_state *state, int64_t step[16])
{
    struct kept kept = read_kept(state);
    for (int i = 0; i < kept.n; i++) step[i] = kept.step[i];
    return kept.n;
}

const struct syi_action syi_action_keep_best = {
    .name = "keep_best", .moments = SYI_AFTER_EVALUATION, .run = run, .kept = steps};
