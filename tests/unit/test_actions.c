/* SPDX-License-Identifier: Apache-2.0 */
/* The actions: when each stops, what it keeps over a resume; and the step times and the saving beside them. */
#include "config.h"

#include <math.h>
#include <string.h>

#include <criterion/criterion.h>

#include "comm/comm.h"
#include "train/trainer/action_kind.h"
#include "train/trainer/rollback.h"
#include "train/trainer/timing.h"
#include "train/trainer/trainer_internal.h"

/* ---- a run's actions, without a run ---- */

static char told[4096]; /* events and warnings, a line each */

static void on_event(void *arg, const char *kind, const char *text)
{
    size_t used = strlen(told);
    (void)arg;
    snprintf(told + used, sizeof told - used, "%s: %s\n", kind, text);
}

static void on_warning(void *arg, const char *text)
{
    on_event(arg, "warning", text);
}

static struct syi_comm comm;

/* The actions of a configuration, which is kept by the caller. */
static struct syi_actions *open_actions(const struct syi_config *config)
{
    static struct syi_actions actions[8];
    static int n;
    struct syi_action_report report = {.event = on_event, .warning = on_warning};
    struct sy_error err = {0};
    struct syi_actions *a = &actions[n++ % (int)SYI_COUNT(actions)];
    syi_actions_close(a);
    if (!comm.table) syi_comm_self(&comm);
    cr_assert_eq(syi_actions_open(a, config, &comm, "/tmp", &report, &err), SY_OK, "%s", err.text);
    told[0] = '\0';
    return a;
}

/* A part of the action table with these keys, "kind=keep_best n=2". */
static struct syi_action_part *add_action(struct syi_config *config, const char *name, const char *keys)
{
    char set[200], copy[200];
    struct sy_error err = {0};
    snprintf(set, sizeof set, "action.%s.patience=0", name);
    cr_assert(syi_config_set(config, set, &err) == SY_OK, "%s", err.text);
    snprintf(copy, sizeof copy, "%s", keys);
    for (char *key = strtok(copy, " "); key; key = strtok(NULL, " ")) {
        snprintf(set, sizeof set, "action.%s.%s", name, key);
        cr_assert(syi_config_set(config, set, &err) == SY_OK, "%s", err.text);
    }
    return &config->action.part[config->action.n - 1];
}

static struct syi_config defaults(void)
{
    struct syi_config config;
    cr_assert(syi_config_defaults(&config, NULL) == SY_OK);
    return config;
}

/* [action.stop] and [action.nan] */
static struct syi_config config_of(const char *keys)
{
    struct syi_config config = defaults();
    add_action(&config, "stop", keys);
    add_action(&config, "nan", "kind=terminate_on_nan");
    return config;
}

static struct syi_verdict ask(struct syi_actions *actions, struct syi_moment moment)
{
    struct syi_verdict verdict;
    struct sy_error err = {0};
    cr_assert_eq(syi_actions_run(actions, &moment, &verdict, &err), SY_OK, "%s", err.text);
    return verdict;
}

static struct syi_verdict evaluated(struct syi_actions *actions, int64_t step, double loss, double wer)
{
    struct syi_eval_result result[2] = {
        {.task = "words/valid", .n = 3, .value = {{"loss", loss, 0}, {"wer", wer, 0}, {"per", 0.5, 0}}},
        {.task = "other/valid", .n = 1, .value = {{"bleu", -loss, 0}}}};
    return ask(actions, (struct syi_moment){.kind = SYI_AFTER_EVALUATION,
                                            .step = step,
                                            .rate = 0.1,
                                            .checkpoint = -1,
                                            .evaluated = result,
                                            .n_evaluated = 2});
}

static struct syi_verdict stepped(struct syi_actions *actions, int64_t step, int ok, int64_t checkpoint)
{
    struct syi_step_result result = {.ok = ok, .loss = ok ? 1 : NAN};
    return ask(actions,
               (struct syi_moment){
                   .kind = SYI_AFTER_STEP, .step = step, .checkpoint = checkpoint, .result = &result});
}

static double number(const struct syi_actions *actions, int part, const char *name)
{
    return syi_state_get(&actions->state[part], name, -77);
}

/* ---- early stopping ---- */

Test(actions, early_stopping_counts_evaluations_without_a_better_value)
{
    struct syi_config config = config_of("patience=2");
    struct syi_actions *a = open_actions(&config);
    struct syi_verdict verdict;

    cr_expect(!evaluated(a, 10, 3, 1).stop);
    cr_expect(!evaluated(a, 20, 2, 1).stop);
    cr_expect(!evaluated(a, 30, 2, 1).stop, "an equal value is no better one, but the first");
    cr_expect(!evaluated(a, 40, 1, 1).stop);
    cr_expect(number(a, 0, "best") == 1 && number(a, 0, "best_step") == 40 && number(a, 0, "stale") == 0);
    cr_expect(!evaluated(a, 50, 1.5, 1).stop);
    verdict = evaluated(a, 60, 1.2, 1);
    cr_expect(verdict.stop && verdict.end == SYI_END_STOPPED_EARLY);
    cr_expect(strcmp(verdict.action, "early_stopping") == 0);
    cr_expect(strcmp(verdict.text, "loss has not improved in 2 evaluations; best 1 at step 40") == 0, "%s",
              verdict.text);
}

Test(actions, early_stopping_watches_the_metric_asked_for)
{
    struct syi_config config = config_of("patience=1 metric=wer");
    struct syi_actions *a = open_actions(&config);

    cr_expect(!evaluated(a, 1, 1, 0.9).stop);
    cr_expect(!evaluated(a, 2, 5, 0.8).stop);
    cr_expect(evaluated(a, 3, 0.1, 0.8).stop);
}

/* Of the second evaluation, found by a pattern, and higher is better. */
Test(actions, early_stopping_of_a_task_and_upwards)
{
    struct syi_config config = config_of("patience=1 task=o*/valid metric=bleu mode=max");
    struct syi_actions *a = open_actions(&config);

    cr_expect(!evaluated(a, 1, 3, 1).stop);
    cr_expect(!evaluated(a, 2, 2, 1).stop);
    cr_expect(number(a, 0, "best") == -2);
    cr_expect(evaluated(a, 3, 2.5, 1).stop);
    cr_expect_str_eq(told, "");
}

Test(actions, better_means_by_more_than_the_tolerance)
{
    struct syi_config config = config_of("patience=2 atol=0.5 rtol=0.1");
    struct syi_actions *a = open_actions(&config);

    cr_expect(!evaluated(a, 1, 10, 1).stop);
    cr_expect(!evaluated(a, 2, 8.6, 1).stop, "1.5 less would count");
    cr_expect(number(a, 0, "stale") == 1 && number(a, 0, "best") == 10);
    cr_expect(!evaluated(a, 3, 8.4, 1).stop);
    cr_expect(number(a, 0, "stale") == 0 && number(a, 0, "best") == 8.4);
}

/* What is not there is a warning, once, and counts as no value. */
Test(actions, a_task_or_metric_that_is_not_there_is_warned_of_once)
{
    struct syi_config config = config_of("patience=1 task=nobody/valid");
    struct syi_actions *a = open_actions(&config);

    for (int i = 0; i < 5; i++) cr_expect(!evaluated(a, i, 1, 1).stop);
    cr_expect_str_eq(told, "warning: early_stopping of [action.stop]: there is no evaluation called "
                           "\"nobody/valid\" (did you mean words/valid?): it does nothing\n");
    cr_expect(syi_actions_best_step(a) == -1);
    config = config_of("patience=1 metric=chrf");
    a = open_actions(&config);
    for (int i = 0; i < 5; i++) cr_expect(!evaluated(a, i, 1, 1).stop);
    cr_expect_str_eq(told,
                     "warning: early_stopping of [action.stop]: there is no value of an evaluation called "
                     "\"chrf\": it does nothing\n");
    config = config_of("patience=1 metric=losss");
    a = open_actions(&config);
    cr_expect(!evaluated(a, 0, 1, 1).stop);
    cr_expect(strstr(told, "called \"losss\" (did you mean loss?): it does nothing") != NULL, "%s", told);
}

/* An evaluation that left decoding out has no word error rate, which is neither missing nor a value. */
Test(actions, what_an_evaluation_left_out_is_waited_for)
{
    struct syi_config config = config_of("patience=2 metric=wer");
    struct syi_actions *a = open_actions(&config);
    struct syi_eval_result losses = {.task = "words/valid", .left_out = 1, .n = 1, .value = {{"loss", 1, 0}}};
    struct syi_moment without = {
        .kind = SYI_AFTER_EVALUATION, .checkpoint = -1, .evaluated = &losses, .n_evaluated = 1};

    evaluated(a, 2, 1, 0.5);
    for (int64_t step = 4; step < 9; step++) {
        without.step = step;
        cr_expect(!ask(a, without).stop);
    }
    cr_expect_str_eq(told, "");
    cr_expect(!evaluated(a, 10, 1, 0.5).stop);
    cr_expect(evaluated(a, 20, 1, 0.5).stop);
    cr_expect_eq(syi_actions_best_step(a), 2);
}

static struct syi_verdict stepped_with(struct syi_actions *actions, int64_t step, double loss)
{
    struct syi_step_result result = {.ok = 1, .loss = loss};
    return ask(actions,
               (struct syi_moment){
                   .kind = SYI_AFTER_STEP, .step = step, .rate = 0.1, .checkpoint = -1, .result = &result});
}

/* task = "train": steps that have a row in the table of metrics count, evaluations do not, neither as the best one. */
Test(actions, metrics_of_training_are_watched)
{
    struct syi_config config = config_of("patience=2 task=train");
    config.metrics.every = 10;
    add_action(&config, "slow", "kind=reduce_lr_on_plateau patience=2 factor=0.5 task=train");
    add_action(&config, "none", "kind=reduce_lr_on_plateau patience=2 task=train metric=wer");
    struct syi_actions *a = open_actions(&config);
    struct syi_verdict verdict = {0};
    int64_t step = 0;

    while (step < 100 && !verdict.stop) {
        verdict = stepped_with(a, step, step == 8 ? 0.1 : step == 19 ? 2 : 3);
        step++;
        if (step == 25) evaluated(a, step, 1, 1);
    }
    cr_expect_eq(step, 40, "stopped after step %d", (int)step);
    cr_expect_str_eq(verdict.text, "loss has not improved in 2 rows of metrics; best 2 at step 20");
    cr_expect_eq(syi_actions_best_step(a), 25);
    cr_expect_str_eq(told,
                     "warning: reduce_lr_on_plateau of [action.none]: there is no value of a step called "
                     "\"wer\": it does nothing\n");
    cr_expect(!stepped_with(a, 49, 1).stop);
    stepped_with(a, 59, 1);
    cr_expect_eq(syi_actions_rate_factor(a), 1);
    config.action.part[0].patience = 0;
    stepped_with(a, 69, 1);
    stepped_with(a, 79, 1);
    cr_expect_eq(syi_actions_rate_factor(a), 0.5);
}

/* T5X's EarlyStoppingAction, word by word: a list of values, float32 comparisons. */
struct history {
    double value[64];
    int n;
};

static int t5x_stops(struct history *h, double value, int patience, int max, double atol, double rtol)
{
    int all = 1;
    h->value[h->n++] = value;
    if (h->n < patience) return 0;
    for (int i = 0; i < patience - 1; i++) {
        double before = h->value[i], delta = (atol + rtol * fabs(before)) * (max ? -1 : 1);
        float now = (float)h->value[i + 1], than = (float)(before - delta);
        all = all && (max ? now <= than : now >= than);
    }
    if (all) return 1;
    memmove(h->value, h->value + 1, (size_t)--h->n * sizeof *h->value);
    return 0;
}

Test(actions, early_stopping_by_the_previous_value_is_t5x_s)
{
    static const double values[] = {1, 2, 2, 3, 1.0000000001, NAN, INFINITY, -INFINITY};
    int stops = 0, late = 0;
    for (uint64_t n = 0; n < 20000; n++) {
        int patience = 1 + (int)(n % 4), max = n % 3 == 0;
        char keys[120];
        double atol = n % 5 ? 0 : 1, rtol = n % 7 ? 0 : 0.5;
        snprintf(keys, sizeof keys, "patience=%d metric=wer mode=%s atol=%g rtol=%g", patience,
                 max ? "max" : "min", atol, rtol);
        struct syi_config config = config_of(keys);
        struct history history = {.n = 0};
        uint64_t random = (n + 1) * 0x9e3779b97f4a7c15u;
        config.run.compat = n % 2 ? SYI_COMPAT_T5X : SYI_COMPAT_NONE;
        if (!(n % 2)) config.action.part[0].compare = SYI_STOPPING_PREVIOUS;
        struct syi_actions *a = open_actions(&config);
        for (int i = 0; i < 10; i++) {
            random = random * 6364136223846793005u + 1442695040888963407u;
            double value = values[(random >> 33) % SYI_COUNT(values)];
            int want = t5x_stops(&history, value, patience, max, atol, rtol);
            cr_assert_eq(evaluated(a, i, 1, value).stop, want, "case %d, evaluation %d", (int)n, i);
            stops += want;
            late += want && i >= patience;
            cr_assert_eq(number(a, 0, "history"), history.n);
        }
    }
    cr_expect(stops > 5000 && late > 500, "%d stops, %d of them late: this proves little", stops, late);
}

Test(actions, early_stopping_never_takes_nan_as_best)
{
    struct syi_config config = config_of("patience=2");
    struct syi_actions *a = open_actions(&config);

    cr_expect(!evaluated(a, 1, NAN, 1).stop);
    cr_expect(!evaluated(a, 2, 4, 1).stop);
    cr_expect(number(a, 0, "best") == 4 && number(a, 0, "stale") == 0);
    cr_expect(!evaluated(a, 3, NAN, 1).stop);
    cr_expect(evaluated(a, 4, INFINITY, 1).stop);
    cr_expect(number(a, 0, "best") == 4);
}

Test(actions, early_stopping_is_off_without_patience_but_keeps_the_best)
{
    struct syi_config config = config_of("patience=0");
    struct syi_actions *a = open_actions(&config);

    for (int i = 0; i < 50; i++) cr_expect(!evaluated(a, i, 1, 1).stop);
    cr_expect(number(a, 0, "best") == 1 && number(a, 0, "best_step") == 0 && number(a, 0, "stale") == 49);
}

Test(actions, counts_end_at_the_largest_number)
{
    struct syi_config config = config_of("patience=0");
    struct syi_actions *a = open_actions(&config);
    double largest = 9007199254740992.0;

    evaluated(a, 1, 1, 1);
    syi_state_set(&a->state[0], "stale", 1e300);
    syi_state_set(&a->state[0], "unbroken", largest);
    evaluated(a, 2, 1, 1);
    cr_expect(number(a, 0, "stale") == largest && number(a, 0, "unbroken") == largest);
    syi_state_set(&a->state[0], "stale", NAN);
    cr_expect(syi_state_count(&a->state[0], "stale", 0) == -1, "what is no count is none");
}

Test(actions, early_stopping_goes_on_over_a_resume)
{
    struct syi_config config = config_of("patience=3");
    struct syi_actions *a = open_actions(&config);
    struct syi_moment resumed = {.kind = SYI_AFTER_RESUME, .step = 30};

    for (int i = 0; i < 3; i++) cr_expect(!evaluated(a, 5 + i, 1, 1).stop);
    cr_expect(!ask(a, resumed).stop && number(a, 0, "stale") == 2, "a resume is no evaluation");
    cr_expect(evaluated(a, 40, 1, 1).stop);
    cr_expect(ask(a, resumed).stop, "a run that was stopped stays so");
    config.action.part[0].patience = 5;
    cr_expect(!ask(a, resumed).stop, "unless it is given more patience");
    config.action.part[0].patience = 1;
    strcpy(config.action.part[0].metric, "wer");
    cr_expect(!ask(a, resumed).stop, "the count of another metric says nothing");
    cr_expect(!evaluated(a, 50, 9, 0.9).stop);
    cr_expect(number(a, 0, "best") == 0.9 && number(a, 0, "best_step") == 50 && number(a, 0, "stale") == 0);
}

/* Two parts of one kind: each counts by its own options, the first says which evaluation is the best. */
Test(actions, parts_of_a_kind_count_apart)
{
    struct syi_config config = defaults();
    struct syi_verdict verdict;

    add_action(&config, "words", "patience=3 metric=wer");
    add_action(&config, "loss", "patience=2");
    struct syi_actions *a = open_actions(&config);
    cr_expect(!evaluated(a, 1, 5, 0.9).stop);
    cr_expect(!evaluated(a, 2, 6, 0.8).stop);
    verdict = evaluated(a, 3, 6, 0.7);
    cr_expect(verdict.stop && strcmp(verdict.part, "loss") == 0);
    cr_expect(syi_state_get(&a->best, "best", 0) == 0.7 && syi_actions_best_step(a) == 3);
    cr_expect_str_eq(a->best.watches, "min wer");
    config.action.n = 0;
    a = open_actions(&config);
    cr_expect(!evaluated(a, 1, 5, 0.9).stop);
    cr_expect(syi_state_get(&a->best, "best", 0) == 5, "without any, the loss");
}

/* By name, whatever their order; what a checkpoint does not know begins anew, the first from the best so far. */
Test(actions, states_go_through_a_checkpoint)
{
    struct syi_config before = defaults(), after = before;
    static struct syi_checkpoint_meta meta;

    add_action(&before, "words", "patience=9 metric=wer");
    add_action(&before, "loss", "patience=9");
    struct syi_actions *a = open_actions(&before);
    for (int i = 0; i < 3; i++) cr_expect(!evaluated(a, i, 5 + i, 0.5).stop);
    syi_actions_put(a, &meta);
    cr_expect(meta.n_actions == 3 && meta.best_metric == 0.5 && meta.best_step == 0);
    add_action(&after, "other", "patience=9 metric=wer");
    add_action(&after, "loss", "patience=9");
    add_action(&after, "third", "patience=9 metric=wer");
    struct syi_actions *back = open_actions(&after);
    syi_actions_take(back, &meta);
    cr_expect(syi_state_get(&back->best, "best", 0) == 0.5 && syi_state_count(&back->best, "stale", 0) == 2);
    cr_expect(number(back, 0, "best") == 0.5 && number(back, 0, "stale") == 2,
              "the first goes on from the best");
    cr_expect(number(back, 1, "best") == 5 && number(back, 1, "previous") == 7 &&
              number(back, 1, "best_step") == 0);
    cr_expect(back->state[2].n == 0, "a new one begins anew");
}

/* ---- not finite ---- */

Test(actions, terminate_on_nan_stops_or_tells)
{
    struct syi_config config = config_of("patience=0");
    struct syi_actions *a = open_actions(&config);
    struct syi_verdict verdict = stepped(a, 12, 1, -1);

    cr_expect(!verdict.stop && !verdict.action && !verdict.text[0] && !told[0]);
    verdict = stepped(a, 12, 0, -1);
    cr_expect(verdict.stop && verdict.end == SYI_END_NAN);
    cr_expect(strstr(verdict.text, "step 13") != NULL, "%s", verdict.text);
    cr_expect(strcmp(verdict.action, "terminate_on_nan") == 0 && strcmp(verdict.part, "nan") == 0);
    config.action.n = 1; /* [action.stop] alone */
    cr_expect(stepped(a, 12, 0, -1).stop, "other actions do not look at it");
    config.run.compat = SYI_COMPAT_T5X;
    cr_expect(!stepped(a, 12, 0, -1).stop);
    config.run.compat = SYI_COMPAT_NONE;
    cr_expect(strstr(told, "not_finite: ") == told && strstr(told, "training goes on"), "%s", told);
    config.action.n = 0;
    verdict = stepped(a, 12, 0, -1);
    cr_expect(verdict.stop && verdict.end == SYI_END_NAN, "without any action it is there");
    cr_expect(strcmp(verdict.action, "terminate_on_nan") == 0 && !verdict.part[0]);
}

Test(actions, nan_is_looked_for_in_the_loss_too_after_the_update)
{
    struct syi_config config = config_of("patience=0");
    struct syi_step_result good = {.ok = 1, .loss = 2}, odd = {.ok = 1, .loss = INFINITY};

    cr_expect(!syi_step_is_bad(&config, &good) && !syi_step_is_bad(&config, &odd));
    config.train.nan_check = SYI_NAN_CHECK_AFTER;
    cr_expect(!syi_step_is_bad(&config, &good) && syi_step_is_bad(&config, &odd));
    cr_expect(strstr(stepped(open_actions(&config), 12, 0, -1).text, "is not saved") != NULL);
    config.train.nan_check = SYI_NAN_CHECK_AUTO;
    config.run.compat = SYI_COMPAT_T5X;
    cr_expect(syi_step_is_bad(&config, &odd));
}

/* Of the evaluations of a task, as T5X does it; steps are looked at as where it is not written. */
Test(actions, nan_of_an_evaluation)
{
    struct syi_config config = defaults();
    add_action(&config, "nan", "kind=terminate_on_nan task=words/* metric=wer");
    struct syi_actions *a = open_actions(&config);

    struct syi_verdict verdict = stepped(a, 1, 0, -1);
    cr_expect(verdict.stop && !verdict.part[0]);
    cr_expect(!evaluated(a, 1, NAN, 0.5).stop);
    cr_expect(evaluated(a, 2, 1, NAN).stop);
    cr_expect(evaluated(a, 2, 1, -INFINITY).stop);
    cr_expect_str_eq(evaluated(a, 2, 1, INFINITY).text,
                     "wer of the evaluation after step 2 is inf, try a lower train.learning_rate");
}

Test(actions, skips_are_counted_in_a_row)
{
    struct syi_config config = defaults();
    add_action(&config, "nan", "kind=terminate_on_nan policy=skip max_skips=2");
    struct syi_actions *a = open_actions(&config);
    static const struct {
        int ok, stops;
    } step[] = {{0, 0}, {0, 0}, {1, 0}, {0, 0}, {0, 0}, {0, 1}};

    for (int i = 0; i < (int)SYI_COUNT(step); i++)
        cr_expect_eq(stepped(a, i, step[i].ok, -1).stop, step[i].stops, "step %d", i);
    cr_expect(number(a, 0, "bad") == 5);
    cr_expect(strstr(told, "step 5 are not finite (loss nan); its update is left out and training goes on, "
                           "skip 2 of 2 in a row"),
              "%s", told);
    cr_expect(!strstr(told, "not_finite"), "one action has dealt with it: %s", told);
}

Test(actions, ways_back_are_counted_by_their_checkpoint)
{
    struct syi_config config = defaults();
    add_action(&config, "nan", "kind=terminate_on_nan policy=rollback max_skips=2");
    struct syi_actions *a = open_actions(&config);
    static struct syi_checkpoint_meta meta;
    struct syi_verdict verdict;

    cr_expect(syi_actions_need_checkpoint(a));
    verdict = stepped(a, 12, 0, -1);
    cr_expect(verdict.stop && strstr(verdict.text, "no checkpoint to go back to"), "%s", verdict.text);
    syi_actions_put(a, &meta);
    for (int i = 0; i < 2; i++) {
        verdict = stepped(a, 12 + i, 0, 10);
        cr_expect(verdict.back && !verdict.stop);
        syi_actions_take_back(a, &meta);
    }
    cr_expect(stepped(a, 20, 0, 15).back, "a newer checkpoint counts anew");
    syi_actions_take_back(a, &meta);
    cr_expect(stepped(a, 20, 0, 15).back);
    syi_actions_take_back(a, &meta);
    verdict = stepped(a, 20, 0, 15);
    cr_expect(verdict.stop && !verdict.back && strstr(verdict.text, "max_skips"), "%s", verdict.text);
}

/* The place of a step in the stream: each batch once or never, whatever holes there are. */
Test(actions, holes_leave_batches_out)
{
    struct syi_holes holes = {0};

    cr_expect(syi_holes_place(&holes, 7) == 7);
    cr_assert(!syi_holes_add(&holes, 5, 3));
    cr_assert(!syi_holes_add(&holes, 5, 2));
    cr_assert(!syi_holes_add(&holes, 8, 1));
    cr_expect(holes.n == 2);
    cr_expect(syi_holes_add(&holes, 7, 1) == SY_EINVAL, "steps ascend");
    for (int64_t step = 0; step < 5; step++) cr_expect(syi_holes_place(&holes, step) == step);
    for (int64_t step = 5; step < 8; step++) cr_expect(syi_holes_place(&holes, step) == step + 5);
    for (int64_t step = 8; step < 20; step++) cr_expect(syi_holes_place(&holes, step) == step + 6);
    for (int64_t step = 9; holes.n < SYI_HOLES; step++) cr_assert(!syi_holes_add(&holes, step, 1));
    cr_expect(syi_holes_add(&holes, 1000000, 1) == SY_EINVAL, "no room");
}

/* ---- the best checkpoints ---- */

Test(actions, keep_best_keeps_the_n_best)
{
    struct syi_config config = defaults();
    static const double wer[] = {0.5, 0.9, NAN, 0.4, 0.5, 0.8, 0.1};
    int64_t step[SYI_ACTIONS_KEPT];

    add_action(&config, "best", "kind=keep_best n=3 metric=wer");
    add_action(&config, "worst", "kind=keep_best n=1 metric=wer mode=max");
    struct syi_actions *a = open_actions(&config);
    cr_expect(syi_actions_kept(a, step) == 0);
    for (int i = 0; i < (int)SYI_COUNT(wer); i++) cr_expect(!evaluated(a, i + 1, 1, wer[i]).stop);
    cr_assert_eq(syi_actions_kept(a, step), 4);
    cr_expect(step[0] == 7 && step[1] == 4 && step[2] == 1 && step[3] == 2, "%d %d %d %d", (int)step[0],
              (int)step[1], (int)step[2], (int)step[3]);
    cr_expect(syi_actions_best_step(a) == 7, "the first keep_best says which is the best");
}

/* ---- the learning rate ---- */

Test(actions, reduce_lr_multiplies_after_patience_and_waits)
{
    struct syi_config config = defaults();
    static struct syi_checkpoint_meta meta;

    add_action(&config, "slow", "kind=reduce_lr_on_plateau patience=2 factor=0.5 cooldown=1");
    struct syi_actions *a = open_actions(&config);
    static const double loss[] = {3, 3, 3, 3, 3, 3, 2, 2, 2};
    static const double factor[] = {1, 1, 0.5, 0.5, 0.5, 0.25, 0.25, 0.25, 0.125};
    for (int i = 0; i < (int)SYI_COUNT(loss); i++) {
        evaluated(a, i, loss[i], 1);
        cr_expect_eq(syi_actions_rate_factor(a), factor[i], "evaluation %d: %g", i,
                     syi_actions_rate_factor(a));
    }
    cr_expect(strstr(told, "loss has not improved in 2 evaluations: the learning rate goes from 0.1 to 0.05"),
              "%s", told);
    syi_actions_put(a, &meta);
    struct syi_actions *back = open_actions(&config);
    cr_expect(syi_actions_rate_factor(back) == 1);
    syi_actions_take(back, &meta);
    cr_expect(syi_actions_rate_factor(back) == 0.125);
    strcpy(config.action.part[0].metric, "wer");
    evaluated(back, 20, 1, 1);
    cr_expect(syi_actions_rate_factor(back) == 0.125, "another metric counts anew, the factor stays");
    syi_state_set(&back->state[0], "factor", -3);
    cr_expect(syi_actions_rate_factor(back) == 1, "what a file says and cannot be is no factor");
}

Test(actions, reduce_lr_stops_at_its_least)
{
    struct syi_config config = defaults();

    add_action(&config, "slow", "kind=reduce_lr_on_plateau patience=1 factor=0.1 min_lr=0.08");
    struct syi_actions *a = open_actions(&config);
    evaluated(a, 1, 1, 1);
    evaluated(a, 2, 1, 1); /* the rate is 0.1 */
    cr_expect(fabs(syi_actions_rate_factor(a) - 0.8) < 1e-12, "%g", syi_actions_rate_factor(a));
}

/* ---- what a run file may say ---- */

static void expect_refused(const char *name, const char *keys, const char *why)
{
    struct syi_config config = defaults();
    struct sy_error err = {0};
    cr_assert(syi_config_set(&config, "task.words.valid=some.tsv", &err) == SY_OK);
    add_action(&config, name, keys);
    int status = syi_config_validate(&config, &err);
    if (!why)
        cr_expect(status == SY_OK, "%s: %s", keys, err.text);
    else
        cr_expect(status == SY_EINVAL && strstr(err.text, why), "%s: \"%s\"", keys, err.text);
}

Test(actions, keys_that_a_kind_does_not_take_are_refused)
{
    expect_refused("a", "kind=early_stopping policy=skip", "action.a.policy means nothing to early_stopping");
    expect_refused("a", "kind=terminate_on_nan patience=3",
                   "action.a.patience means nothing to terminate_on_nan");
    expect_refused("a", "kind=keep_best command=x", "which takes task metric mode n");
    expect_refused("a", "kind=command", "action.a.command is empty");
    expect_refused("a", "kind=command command=true on=end task=words/valid", "task means something with on");
    expect_refused("a", "kind=plugin", "action.a.plugin is empty");
    expect_refused("a", "kind=reduce_lr_on_plateau", "action.a.patience is 0");
    expect_refused("a", "kind=terminate_on_nan policy=skip metric=wer task=words/valid", "take \"rollback\"");
    expect_refused("a", "kind=terminate_on_nan policy=rollback metric=wer task=words/valid", NULL);
    expect_refused("a", "kind=reduce_lr_on_plateau patience=1 metric=wer mode=max min_lr=1e-5", NULL);
    expect_refused("a", "kind=command command=true on=end", NULL);
    expect_refused("a", "kind=keep_best task=train", "task = \"train\" is no evaluation");
    expect_refused("a", "kind=command command=true task=train", "task = \"train\" is no evaluation");
    expect_refused("a", "kind=terminate_on_nan policy=skip task=train", NULL);
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

/* A disk that had no room may have some again long before the steps have come that a save is tried again after. */
Test(saving, a_save_that_failed_is_tried_again_by_time_as_well)
{
    static struct syi_config config;
    static struct syi_trainer t;
    cr_assert_eq(syi_config_defaults(&config, NULL), SY_OK);
    cr_assert_eq(syi_saver_new("/tmp", NULL, &comm, &t.saver, NULL), SY_OK);
    t.config = &config;
    t.actions = *open_actions(&config);
    t.step = 100;
    t.saved = -1;
    t.newest = 50;
    t.retry_steps = 1024;
    t.retry = 1100;
    cr_expect_eq(syi_trainer_is_save_due(&t), 0);
    t.overdue = 1;
    cr_expect_eq(syi_trainer_is_save_due(&t), 1);
    t.overdue = 0;
    t.retry = 100;
    cr_expect_eq(syi_trainer_is_save_due(&t), 1);
    syi_saver_free(t.saver);
}
