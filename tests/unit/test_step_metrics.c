/* SPDX-License-Identifier: Apache-2.0 */
/* The values and metrics of a step (model/step_metrics.def): which a run has, what they are divided by, and
 * how the engine adds values up over microbatches. That T5X's come out: tests/cli/verify.sh. */
#include "config.h"

#include "small_batch.h"
#include "train/engine/step_metrics.h"
#include "train/launch/launch.h"
#include "train/trainer/step_sums.h"

enum { NAMES = 900 };

/* Names of a step's metrics, each after a blank. */
static void metric_names(const struct syi_config *c, const struct syi_batch *b, char names[NAMES])
{
    struct syi_step_result r = {0};
    struct syi_step_metric metric[SYI_STEP_METRICS_MOST];
    int n = syi_step_metrics(c, b, &r, metric);
    names[0] = '\0';
    for (int i = 0; i < n; i++) {
        size_t used = strlen(names);
        snprintf(names + used, NAMES - used, " %s", metric[i].name);
        for (int k = 0; k < i; k++) cr_assert_str_neq(metric[k].name, metric[i].name);
    }
}

static int32_t one_row[] = {5, 1, 0}, one_segment[] = {1, 2, 0};
static const struct syi_batch plain_batch = {
    .rows = 1, .input_length = 3, .target_length = 3, .encoder_ids = one_row, .decoder_targets = one_row};

Test(step_metrics, which_there_are)
{
    static const struct {
        const char *set[2];
        int packed;
        const char *has, *lacks;
    } cases[] = {
        {{NULL}, 0, " experts/expert_usage", "_per_"},
        {{NULL}, 1, " experts/expert_usage", "effective_batch_size"},
        {{"loss.loss_normalizing_factor=none"}, 0, " z_loss_per_nonpadding_target_token", "_per_all_"},
        {{"metrics.divide_by=all"}, 0, " z_loss_per_all_target_tokens", " z_loss_per_nonpadding"},
        {{"moe.num_experts=0"}, 0, " effective_batch_size/encoder_input_tokens", "experts/"},
        {{"moe.num_experts=0"}, 1, " non_padding_fraction/decoder ", "encoder_input_tokens"},
        {{"moe.num_experts=0", "metrics.divide_by=all"}, 0, " non_padding_fraction/overall", "experts/"},
    };
    char names[NAMES];
    for (size_t i = 0; i < SYI_COUNT(cases); i++) {
        struct syi_config c = config_of(cases[i].set[0], cases[i].set[0] ? cases[i].set[1] : NULL, NULL);
        struct syi_batch b = plain_batch;
        if (cases[i].packed) b.encoder_segments = b.decoder_segments = one_segment;
        metric_names(&c, &b, names);
        cr_assert_not_null(strstr(names, " loss "), "case %zu:%s", i, names);
        cr_assert_not_null(strstr(names, " weight_gradient_norm"), "case %zu:%s", i, names);
        cr_assert_not_null(strstr(names, cases[i].has), "case %zu:%s", i, names);
        cr_assert_null(strstr(names, cases[i].lacks), "case %zu:%s", i, names);
    }
}

/* The value of one metric of a dense step. */
static double metric_value(const struct syi_config *c, const struct syi_batch *b,
                           const struct syi_step_result *r, const char *name)
{
    struct syi_step_metric metric[SYI_STEP_METRICS_MOST];
    int n = syi_step_metrics(c, b, r, metric);
    for (int i = 0; i < n; i++)
        if (!strcmp(metric[i].name, name)) return syi_step_metric_value(c, &metric[i]);
    cr_assert(0, "there is no %s", name);
    return 0;
}

Test(step_metrics, what_they_are_divided_by)
{
    struct syi_config c = config_of("moe.num_experts=0", "loss.loss_normalizing_factor=none", NULL);
    struct syi_step_result r = {0};
    struct syi_batch b = plain_batch;
    r.value[SYI_STEP_LOSS] = 12;
    r.value[SYI_STEP_CORRECT] = 3;
    r.value[SYI_STEP_WEIGHTED_TARGETS] = 4;
    r.value[SYI_STEP_WEIGHT_SUM] = 8;
    r.value[SYI_STEP_MICROBATCHES] = 2;
    cr_assert_eq(metric_value(&c, &b, &r, "loss"), 12, "a step's, not a microbatch's");
    cr_assert_eq(metric_value(&c, &b, &r, "accuracy"), 0.75);
    cr_assert_eq(metric_value(&c, &b, &r, "loss_per_nonpadding_target_token"), 1.5);
    cr_assert_eq(metric_value(&c, &b, &r, "non_padding_fraction/overall"), 4.0 / 6);
    cr_assert_eq(metric_value(&c, &b, &r, "effective_batch_size/encoder_input_tokens"), 1);
    b.encoder_segments = b.decoder_segments = one_segment;
    cr_assert_eq(metric_value(&c, &b, &r, "effective_batch_size/encoder"), 2, "two examples in a row");
    r.value[SYI_STEP_WEIGHTED_TARGETS] = r.value[SYI_STEP_CORRECT] = 0;
    cr_assert_eq(metric_value(&c, &b, &r, "accuracy"), 0, "nothing of nothing");
}

/* ---- over steps ---- */

static void add_step(struct syi_step_sums *sums, const struct syi_config *c, int64_t index, double loss,
                     double correct, double targets)
{
    struct syi_step_result r = {0};
    r.value[SYI_STEP_LOSS] = loss;
    r.value[SYI_STEP_CORRECT] = correct;
    r.value[SYI_STEP_WEIGHTED_TARGETS] = targets;
    r.value[SYI_STEP_MICROBATCHES] = 2;
    syi_step_sums_add(sums, c, index, &plain_batch, &r);
}

static double mean_of(const struct syi_config *c, const struct syi_step_sums *sums, const char *name)
{
    struct syi_step_metric metric[SYI_STEP_METRICS_MOST];
    int n = syi_step_means(c, sums, metric);
    for (int i = 0; i < n; i++)
        if (!strcmp(metric[i].name, name)) return syi_step_metric_value(c, &metric[i]);
    return -1;
}

/* What counts by steps is a mean over them, shares of tokens go by the tokens of each, as T5X merges both; a checkpoint
 * between two rows keeps what there is. */
Test(step_metrics, rows_of_several_steps)
{
    struct syi_config c = config_of("moe.num_experts=0", "metrics.every=3", NULL);
    struct syi_step_sums sums = {0}, again = {0};
    struct syi_checkpoint_meta meta = {.step = 2};
    add_step(&sums, &c, 0, 6, 1, 2);
    add_step(&sums, &c, 1, 3, 0, 6);
    syi_step_sums_put(&sums, &c, &meta);
    syi_step_sums_take(&again, &c, &meta);
    for (int i = 0; i < 2; i++) {
        struct syi_step_sums *s = i ? &again : &sums;
        cr_assert_eq(mean_of(&c, s, "mean/loss"), 4.5);
        add_step(s, &c, 2, 3, 3, 8);
        cr_assert_eq(mean_of(&c, s, "mean/loss"), 4);
        cr_assert_eq(mean_of(&c, s, "mean/accuracy"), 0.25);
        cr_assert_eq(mean_of(&c, s, "mean/non_padding_fraction/overall"), 4.0 / 6);
    }
    meta.step = 3; /* as where a row was just written, or metrics.every was changed: of no use to the next */
    syi_step_sums_take(&again, &c, &meta);
    cr_assert_eq(again.steps, 0);
    add_step(&sums, &c, 3, 8, 3, 8);
    cr_assert_eq(mean_of(&c, &sums, "mean/loss"), 8, "the row after is of the steps after");
    c.metrics.every = 1;
    add_step(&again, &c, 4, 8, 3, 8);
    cr_assert_eq(mean_of(&c, &again, "mean/loss"), -1, "the row is of one step");
}

/* ---- over microbatches ---- */

struct step {
    struct syi_config config;
    struct syi_step_result result;
};

static int take_step(void *arg, const struct syi_rank *rank, struct sy_error *err)
{
    struct step *s = arg;
    struct syi_engine *engine = NULL;
    struct syi_batch batch;
    batch_open(&batch);
    batch_fill(&batch, 1);
    int status = syi_engine_new(&s->config, rank, SYI_USE_TRAIN, 0, &engine, err);
    if (!status) status = syi_engine_init(engine, 3, err);
    if (!status) status = syi_engine_step(engine, &batch, 0, 1e-3, &s->result, err);
    syi_engine_free(engine);
    syi_batch_free(&batch);
    return status;
}

/* One step without dropout, in two microbatches; a place for every token, so that parts route as the whole. */
static void step_of(struct step *s, const char *set)
{
    struct sy_error err = {0};
    struct syi_launch launch = {.backend = "cpu", .comm = "self", .threads = 1, .config = &s->config};
    *s = (struct step){.config = config_of("model.vocab_size=384", "model.dropout_rate=0",
                                           "data.max_input_length=8", "data.max_target_length=6",
                                           "data.batch_size=16", "decode.batch_size=16",
                                           "train.microbatches=2", "moe.train_capacity_factor=0", set, NULL)};
    cr_assert_eq(syi_launch_run(&launch, take_step, s, &err), SY_OK, "%s", err.text);
}

Test(step_metrics, values_are_added_over_microbatches)
{
    static struct step two, one, all;
    step_of(&two, NULL);
    step_of(&one, "train.microbatches=1");
    step_of(&all, "metrics.divide_by=all");
    const double *v = two.result.value, *w = one.result.value;
    cr_assert_eq(v[SYI_STEP_MICROBATCHES], 2);
    cr_assert_eq(v[SYI_STEP_GRAD_NORM], two.result.grad_norm);
    cr_assert_eq(v[SYI_STEP_OK], 1);
    cr_assert_gt(v[SYI_STEP_GRAD_NORM], 0);
    cr_assert_eq(v[SYI_STEP_LOSS], v[SYI_STEP_CROSS_ENTROPY] + v[SYI_STEP_Z_LOSS] +
                                       v[SYI_STEP_AUXILIARY_LOSS] + v[SYI_STEP_ROUTER_Z_LOSS]);
    /* sums over tokens, and means: the same of the whole batch but for rounding */
    static const enum syi_step_value alike[] = {SYI_STEP_TOKEN_LOSS, SYI_STEP_Z_LOSS, SYI_STEP_ROUTER_Z_LOSS,
                                                SYI_STEP_EXPERT_USAGE};
    for (size_t i = 0; i < SYI_COUNT(alike); i++) {
        cr_assert_gt(w[alike[i]], 0);
        cr_assert(fabs(v[alike[i]] - w[alike[i]]) <= 1e-5 * w[alike[i]], "value %d: %g, of the whole %g",
                  (int)alike[i], v[alike[i]], w[alike[i]]);
    }
    cr_assert_eq(v[SYI_STEP_CORRECT], w[SYI_STEP_CORRECT]);
    cr_assert_eq(all.result.value[SYI_STEP_EXPERT_USAGE], 2 * v[SYI_STEP_EXPERT_USAGE], "T5X adds shares up");
}
