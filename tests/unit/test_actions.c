/* SPDX-License-Identifier: Apache-2.0 */
/* The actions: when each stops, what it keeps over a resume; and the step times beside them. */
#include "config.h"

#include <math.h>
#include <string.h>

#include <criterion/criterion.h>

#include "train/trainer/actions.h"
#include "train/trainer/timing.h"

static struct syi_action_part *add_action(struct syi_config *config, const char *name)
{
    char set[100];
    struct sy_error err = {0};

    snprintf(set, sizeof set, "action.%s.patience=0", name);
    cr_assert(syi_config_set(config, set, &err) == SY_OK, "%s", err.text);
    return &config->action.part[config->action.n - 1];
}

static void add_stopping(struct syi_config *config, const char *name, int64_t patience, int metric)
{
    struct syi_action_part *part = add_action(config, name);

    part->patience = patience;
    part->metric = metric;
}

/* [action.stop] and [action.nan] */
static struct syi_config config_of(int64_t patience, int metric)
{
    struct syi_config config;

    cr_assert(syi_config_defaults(&config, NULL) == SY_OK);
    add_stopping(&config, "stop", patience, metric);
    add_action(&config, "nan")->kind = SYI_ACTION_TERMINATE_ON_NAN;
    return config;
}

static struct syi_verdict evaluated(const struct syi_config *config, struct syi_action_states *state,
                                    int64_t step, double loss, double wer)
{
    struct syi_eval_result result = {
        .task = "valid", .n = 3, .value = {{"loss", loss}, {"wer", wer}, {"per", 0.5}}};
    struct syi_moment moment = {.kind = SYI_AFTER_EVALUATION, .step = step, .evaluated = &result};
    struct syi_verdict verdict;

    syi_actions_run(config, state, &moment, &verdict);
    return verdict;
}

static struct syi_verdict stepped(const struct syi_config *config, int ok)
{
    struct syi_step_result result = {.ok = ok, .loss = ok ? 1 : NAN};
    struct syi_moment moment = {.kind = SYI_AFTER_STEP, .step = 12, .result = &result};
    struct syi_action_states state;
    struct syi_verdict verdict;

    syi_action_states_init(&state);
    syi_actions_run(config, &state, &moment, &verdict);
    return verdict;
}

Test(actions, early_stopping_counts_evaluations_without_a_better_value)
{
    struct syi_config config = config_of(2, SYI_METRIC_LOSS);
    struct syi_action_states state;
    struct syi_verdict verdict;

    syi_action_states_init(&state);
    cr_expect(!evaluated(&config, &state, 10, 3, 1).stop);
    cr_expect(!evaluated(&config, &state, 20, 2, 1).stop);
    cr_expect(!evaluated(&config, &state, 30, 2, 1).stop, "an equal value is no better one, but the first");
    cr_expect(!evaluated(&config, &state, 40, 1, 1).stop);
    cr_expect(state.part[0].best == 1 && state.part[0].best_step == 40 && state.part[0].stale == 0);
    cr_expect(!evaluated(&config, &state, 50, 1.5, 1).stop);
    verdict = evaluated(&config, &state, 60, 1.2, 1);
    cr_expect(verdict.stop && verdict.end == SYI_END_STOPPED_EARLY);
    cr_expect(strcmp(verdict.action, "early_stopping") == 0);
    cr_expect(strcmp(verdict.text, "loss has not improved in 2 evaluations; best 1 at step 40") == 0, "%s",
              verdict.text);
}

Test(actions, early_stopping_watches_the_metric_asked_for)
{
    struct syi_config config = config_of(1, SYI_METRIC_WER);
    struct syi_action_states state;

    syi_action_states_init(&state);
    cr_expect(!evaluated(&config, &state, 1, 1, 0.9).stop);
    cr_expect(!evaluated(&config, &state, 2, 5, 0.8).stop);
    cr_expect(evaluated(&config, &state, 3, 0.1, 0.8).stop);
}

/* T5X's EarlyStoppingAction, word by word: mode min, atol and rtol 0. */
struct history {
    double value[64];
    int n;
};

static int t5x_stops(struct history *h, double value, int patience)
{
    int all = 1;
    h->value[h->n++] = value;
    if (h->n < patience) return 0;
    for (int i = 0; i < patience - 1; i++) all = all && h->value[i + 1] >= h->value[i];
    if (all) return 1;
    memmove(h->value, h->value + 1, (size_t)--h->n * sizeof *h->value);
    return 0;
}

Test(actions, early_stopping_by_the_previous_value_is_t5x_s)
{
    static const double values[] = {1, 2, 2, 3, NAN, INFINITY, -INFINITY};
    int stops = 0, late = 0;
    for (uint64_t n = 0; n < 20000; n++) {
        int patience = 1 + (int)(n % 4);
        struct syi_config config = config_of(patience, SYI_METRIC_WER);
        struct syi_action_states state;
        struct history history = {.n = 0};
        uint64_t random = (n + 1) * 0x9e3779b97f4a7c15u;
        config.run.compat = n % 2 ? SYI_COMPAT_T5X : SYI_COMPAT_NONE;
        if (!(n % 2)) config.action.part[0].compare = SYI_STOPPING_PREVIOUS;
        syi_action_states_init(&state);
        for (int i = 0; i < 10; i++) {
            random = random * 6364136223846793005u + 1442695040888963407u;
            double value = values[(random >> 33) % SYI_COUNT(values)];
            int want = t5x_stops(&history, value, patience);
            cr_assert_eq(evaluated(&config, &state, i, 1, value).stop, want, "case %d, evaluation %d", (int)n,
                         i);
            stops += want;
            late += want && i >= patience;
            if (want) break;
        }
    }
    cr_expect(stops > 5000 && late > 500, "%d stops, %d of them late: this proves little", stops, late);
}

Test(actions, early_stopping_never_takes_nan_as_best)
{
    struct syi_config config = config_of(2, SYI_METRIC_LOSS);
    struct syi_action_states state;

    syi_action_states_init(&state);
    cr_expect(!evaluated(&config, &state, 1, NAN, 1).stop);
    cr_expect(!evaluated(&config, &state, 2, 4, 1).stop);
    cr_expect(state.part[0].best == 4 && state.part[0].stale == 0);
    cr_expect(!evaluated(&config, &state, 3, NAN, 1).stop);
    cr_expect(evaluated(&config, &state, 4, INFINITY, 1).stop);
    cr_expect(state.part[0].best == 4);
}

Test(actions, early_stopping_is_off_without_patience_but_keeps_the_best)
{
    struct syi_config config = config_of(0, SYI_METRIC_LOSS);
    struct syi_action_states state;

    syi_action_states_init(&state);
    for (int i = 0; i < 50; i++) cr_expect(!evaluated(&config, &state, i, 1, 1).stop);
    cr_expect(state.part[0].best == 1 && state.part[0].best_step == 0 && state.part[0].stale == 49);
}

Test(actions, counts_end_at_the_largest_number)
{
    struct syi_config config = config_of(0, SYI_METRIC_LOSS);
    struct syi_action_states state;

    syi_action_states_init(&state);
    evaluated(&config, &state, 1, 1, 1);
    state.part[0].stale = state.part[0].unbroken = INT64_MAX;
    evaluated(&config, &state, 2, 1, 1);
    cr_expect(state.part[0].stale == INT64_MAX && state.part[0].unbroken == INT64_MAX);
}

Test(actions, early_stopping_goes_on_over_a_resume)
{
    struct syi_config config = config_of(3, SYI_METRIC_LOSS);
    struct syi_action_states state = {
        .part = {{.metric = SYI_METRIC_LOSS, .best = 1, .best_step = 5, .stale = 2}}};
    struct syi_moment moment = {.kind = SYI_AFTER_RESUME, .step = 30};
    struct syi_verdict verdict;

    syi_actions_run(&config, &state, &moment, &verdict);
    cr_expect(!verdict.stop && state.part[0].stale == 2, "a resume is no evaluation");
    cr_expect(evaluated(&config, &state, 40, 1, 1).stop);
    syi_actions_run(&config, &state, &moment, &verdict);
    cr_expect(verdict.stop, "a run that was stopped stays so");
    config.action.part[0].patience = 5;
    syi_actions_run(&config, &state, &moment, &verdict);
    cr_expect(!verdict.stop, "unless it is given more patience");
    config.action.part[0].patience = 1;
    config.action.part[0].metric = SYI_METRIC_WER;
    syi_actions_run(&config, &state, &moment, &verdict);
    cr_expect(!verdict.stop, "the count of another metric says nothing");
    cr_expect(!evaluated(&config, &state, 50, 9, 0.9).stop);
    cr_expect(state.part[0].best == 0.9 && state.part[0].best_step == 50 && state.part[0].stale == 0);
}

/* Two parts of one kind: each counts by its own options, the first says which evaluation is the best. */
Test(actions, parts_of_a_kind_count_apart)
{
    struct syi_config config;
    struct syi_action_states state;
    struct syi_verdict verdict;

    cr_assert(syi_config_defaults(&config, NULL) == SY_OK);
    add_stopping(&config, "words", 3, SYI_METRIC_WER);
    add_stopping(&config, "loss", 2, SYI_METRIC_LOSS);
    syi_action_states_init(&state);
    cr_expect(!evaluated(&config, &state, 1, 5, 0.9).stop);
    cr_expect(!evaluated(&config, &state, 2, 6, 0.8).stop);
    verdict = evaluated(&config, &state, 3, 6, 0.7);
    cr_expect(verdict.stop && strcmp(verdict.part, "loss") == 0);
    cr_expect(state.best.best == 0.7 && state.best.best_step == 3 && state.best.metric == SYI_METRIC_WER);
    config.action.n = 0;
    syi_action_states_init(&state);
    cr_expect(!evaluated(&config, &state, 1, 5, 0.9).stop);
    cr_expect(state.best.best == 5 && state.best.metric == SYI_METRIC_LOSS, "without any, the loss");
}

/* By name, whatever their order; what a checkpoint does not know begins anew, the first from the best so far. */
Test(actions, states_go_through_a_checkpoint)
{
    struct syi_config before, after;
    struct syi_action_states state, back;
    struct syi_checkpoint_meta meta = {0};

    cr_assert(syi_config_defaults(&before, NULL) == SY_OK);
    after = before;
    add_stopping(&before, "words", 9, SYI_METRIC_WER);
    add_stopping(&before, "loss", 9, SYI_METRIC_LOSS);
    syi_action_states_init(&state);
    for (int i = 0; i < 3; i++) cr_expect(!evaluated(&before, &state, i, 5 + i, 0.5).stop);
    syi_action_states_put(&before, &state, &meta);
    cr_expect(meta.n_actions == 2 && meta.best_metric == 0.5 && meta.best_of == SYI_METRIC_WER);
    add_stopping(&after, "other", 9, SYI_METRIC_WER);
    add_stopping(&after, "loss", 9, SYI_METRIC_LOSS);
    add_stopping(&after, "third", 9, SYI_METRIC_WER);
    syi_action_states_take(&after, &meta, &back);
    cr_expect(back.best.best == 0.5 && back.best.stale == 2 && back.best.unbroken == 3);
    cr_expect(back.part[0].best == 0.5 && back.part[0].stale == 2, "the first goes on from the best");
    cr_expect(back.part[1].best == 5 && back.part[1].previous == 7 && back.part[1].best_step == 0);
    cr_expect(isnan(back.part[2].best) && back.part[2].stale == 0, "a new one begins anew");
}

Test(actions, terminate_on_nan_stops_or_tells)
{
    struct syi_config config = config_of(0, SYI_METRIC_LOSS);
    struct syi_verdict verdict = stepped(&config, 1);

    cr_expect(!verdict.stop && !verdict.action && !verdict.text[0]);
    verdict = stepped(&config, 0);
    cr_expect(verdict.stop && verdict.end == SYI_END_NAN);
    cr_expect(strstr(verdict.text, "step 13") != NULL, "%s", verdict.text);
    cr_expect(strcmp(verdict.action, "terminate_on_nan") == 0 && strcmp(verdict.part, "nan") == 0);
    config.action.n = 1; /* [action.stop] alone */
    verdict = stepped(&config, 0);
    cr_expect(!verdict.stop);
    cr_expect(strcmp(verdict.action, "not_finite") == 0 && strstr(verdict.text, "training goes on"), "%s",
              verdict.text);
    config.action.n = 0;
    verdict = stepped(&config, 0);
    cr_expect(verdict.stop && verdict.end == SYI_END_NAN, "without any action it is there");
    cr_expect(strcmp(verdict.action, "terminate_on_nan") == 0 && !verdict.part[0]);
}

Test(actions, nan_is_looked_for_in_the_loss_too_after_the_update)
{
    struct syi_config config = config_of(0, SYI_METRIC_LOSS);
    struct syi_step_result good = {.ok = 1, .loss = 2}, odd = {.ok = 1, .loss = INFINITY};

    cr_expect(!syi_step_is_bad(&config, &good) && !syi_step_is_bad(&config, &odd));
    config.train.nan_check = SYI_NAN_CHECK_AFTER;
    cr_expect(!syi_step_is_bad(&config, &good) && syi_step_is_bad(&config, &odd));
    cr_expect(strstr(stepped(&config, 0).text, "is not saved") != NULL);
    config.train.nan_check = SYI_NAN_CHECK_AUTO;
    config.run.compat = SYI_COMPAT_T5X;
    cr_expect(syi_step_is_bad(&config, &odd));
}

Test(actions, table)
{
    size_t n;
    const struct syi_action *action = syi_actions(&n);

    cr_assert(n >= 2);
    for (size_t i = 0; i < n; i++) {
        cr_expect(action[i].name && action[i].run && action[i].moments);
        for (size_t j = 0; j < i; j++) cr_expect(strcmp(action[i].name, action[j].name) != 0);
    }
}

Test(timing, median_and_rates)
{
    static struct syi_timing timing;
    double seconds, rate;

    syi_timing_init(&timing);
    cr_expect(syi_timing_median(&timing) == 0 && syi_timing_tokens_per_second(&timing) == 0);
    for (int i = 0; i < 101; i++) syi_timing_add(&timing, i < 51 ? 0.010 : 1, 100);
    cr_expect(fabs(syi_timing_median(&timing) / 0.010 - 1) < 0.003, "%g", syi_timing_median(&timing));
    syi_timing_row(&timing, &seconds, &rate);
    cr_expect(fabs(seconds - 50.51 / 101) < 1e-12 && fabs(rate - 10100 / 50.51) < 1e-9);
    syi_timing_row(&timing, &seconds, &rate);
    cr_expect(seconds == 0 && rate == 0);
    for (int i = 0; i < 1000; i++) syi_timing_add(&timing, 0.5, 100);
    cr_expect(fabs(syi_timing_tokens_per_second(&timing) - 200) < 1e-3);
    syi_timing_add(&timing, 0, 0);
    syi_timing_add(&timing, 1e9, 0);
    cr_expect(syi_timing_median(&timing) > 0.4);
}
