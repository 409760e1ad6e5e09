/* SPDX-License-Identifier: Apache-2.0 */
/* Kind train: steps of the engine with the case's optimizer; metrics of every step, and parameters and
 * optimizer state at the end. The first step is held to the bound of a single step, all to the file's
 * tolerances. */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "optim/optim.h"
#include "optim/schedule.h"
#include "verify/model_case.h"

struct train {
    struct verify_model m;
    int64_t steps;
    int uses_schedule; /* 0: the optimizer keeps the base rate, whatever the trainer says (optax in T5X) */
    struct verify_report *report;
};

static int read_name(const struct verify_case *c, struct syi_config *config, struct sy_error *err)
{
    const char *name;
    char set[64];
    int status = verify_text(c, "optimizer", &name, err);
    if (status) return status;
    snprintf(set, sizeof set, "optimizer.name=%.40s", name);
    return syi_config_set(config, set, err);
}

/* The optimizer's keys that are no options of that name. */
static int read_optimizer(struct train *t, struct sy_error *err)
{
    const struct verify_case *c = t->m.item;
    struct syi_config *config = &t->m.config;
    struct syi_optimizer_part *optimizer = &config->optimizer.part[0];
    int64_t parts = 1, scale = 1;
    int status = read_name(c, config, err), adam = optimizer->name == SYI_OPTIMIZER_ADAMW;
    if (!status) status = verify_int(c, "num_steps", 1, 1 << 20, &t->steps, err);
    if (!status) status = verify_int(c, "num_microbatches", 1, 1 << 20, &parts, err);
    if (!status) status = verify_int(c, "scale_expert_grads_by", 1, 1 << 20, &scale, err);
    if (!status) status = verify_real(c, "base_learning_rate", &config->train.learning_rate, err);
    if (!status && adam) status = verify_real(c, "b1", &optimizer->b1, err);
    if (!status && adam) status = verify_real(c, "b2", &optimizer->b2, err);
    if (!status && adam) status = verify_real(c, "adam_epsilon", &optimizer->eps, err);
    if (!status && adam) status = verify_flag(c, "optimizer_uses_schedule", &t->uses_schedule, err);
    if (status) return status;
    config->train.microbatches = parts;
    config->metrics.weights_every = 1;
    config->moe.scale_expert_gradients = scale > 1;
    if (scale > 1 && scale != config->moe.num_experts)
        return syi_error(err, SY_EUNSUPPORTED, "scale_expert_grads_by=%lld is not the number of experts",
                         (long long)scale);
    return SY_OK;
}

/* One value of a step, by both rules. */
static void judge(struct train *t, int64_t step, const char *metric, const char *field, double value)
{
    char name[240];
    float got = (float)value;
    int once = strstr(metric, "weight_update_divided_by_weight_rms") != NULL; /* divides by nearly 0 later */
    snprintf(name, sizeof name, "out/step/%s/%s", metric, field);
    if (!verify_find(t->m.item, name)) return;
    if (once && step) return;
    verify_floats_part(t->report, name, step, &got, 1, step ? VERIFY_TOLERANCE : VERIFY_STEP);
}

static void judge_metrics(struct train *t, int64_t step, const struct syi_step_result *result, double rate)
{
    struct syi_step_metric metric[SYI_STEP_METRICS_MOST];
    int n = syi_step_metrics(&t->m.config, &t->m.batch, result, metric);
    for (int i = 0; i < n; i++) {
        judge(t, step, metric[i].name, "total", metric[i].total);
        judge(t, step, metric[i].name, metric[i].steps ? "steps" : "count", metric[i].divisor);
    }
    judge(t, step, "learning_rate", "total", rate);
    judge(t, step, "learning_rate", "count", 1);
    judge(t, step, "learning_rate/current", "value", rate);
    judge(t, step, "learning_rate/current", "total", rate);
    judge(t, step, "learning_rate/current", "count", 1);
}

static void judge_weight(struct train *t, int64_t step, const char *what, const char *parameter, double value)
{
    char name[240];
    snprintf(name, sizeof name, "%s/%s", what, parameter);
    judge(t, step, name, "total", value);
    judge(t, step, name, "steps", 1);
}

static void judge_weights(struct train *t, int64_t step)
{
    const struct syi_model *model = syi_engine_model(t->m.engine);
    for (size_t i = 0; i < model->n; i++) {
        double value[SYI_WEIGHT_METRICS];
        if (!syi_engine_weight_metrics(t->m.engine, i, value)) continue;
        for (int m = 0; m < SYI_WEIGHT_METRICS; m++)
            judge_weight(t, step, syi_weight_metric_name((enum syi_weight_metric)m), model->param[i].name,
                         value[m]);
    }
}

static int run_steps(struct train *t, struct sy_error *err)
{
    int status = SY_OK;
    for (int64_t step = 0; !status && step < t->steps; step++) {
        struct syi_step_result result;
        double rate = syi_schedule_rate(&t->m.config, step);
        status = verify_model_batch(&t->m, step, t->steps, err);
        if (!status)
            status = syi_engine_step(t->m.engine, &t->m.batch, step,
                                     t->uses_schedule ? rate : t->m.config.train.learning_rate, &result, err);
        if (status) return status;
        judge_metrics(t, step, &result, rate);
        judge_weights(t, step);
    }
    return status;
}

/* A parameter or state as the case names it, out/NAME, from the session's; slots that are not in use are one
 * zero. */
static void judge_state(struct train *t, const char *name, const char *ours)
{
    const struct verify_tensor *want = verify_find(t->m.item, name);
    const float zero = 0;
    int64_t n = 0;
    if (!want) return;
    const float *got = verify_model_state(&t->m, ours, &n);
    if (!got && want->n == 1) got = &zero, n = 1;
    if (!got || n != want->n)
        verify_floats(t->report, name, NULL, 0);
    else
        verify_floats_part(t->report, name, 0, got, n, VERIFY_TOLERANCE);
}

static void judge_end(struct train *t)
{
    static const char *const slots[] = {"v_row", "v_col", "v", "m"};
    const struct syi_model *model = syi_engine_model(t->m.engine);
    for (size_t i = 0; i < model->n; i++) {
        const char *parameter = model->param[i].name;
        char name[260], ours[260];
        snprintf(name, sizeof name, "out/final_param/%s", parameter);
        judge_state(t, name, parameter);
        for (size_t j = 0; j < SYI_COUNT(slots); j++) {
            snprintf(name, sizeof name, "out/final_state/%s/%s", parameter, slots[j]);
            snprintf(ours, sizeof ours, "state/param_states/%s/%s", parameter, slots[j]);
            judge_state(t, name, ours);
        }
        snprintf(name, sizeof name, "out/final_state_mu/%s", parameter);
        snprintf(ours, sizeof ours, "state/param_states/0/mu/%s", parameter);
        judge_state(t, name, ours);
        snprintf(name, sizeof name, "out/final_state_nu/%s", parameter);
        snprintf(ours, sizeof ours, "state/param_states/0/nu/%s", parameter);
        judge_state(t, name, ours);
    }
}

/* Later steps of a metric that is compared once only count as compared. */
static void cover_rest(struct train *t)
{
    for (size_t i = 0; i < t->m.item->n_tensors; i++) {
        const struct verify_tensor *w = &t->m.item->tensor[i];
        if (!strncmp(w->name, "out/step/weight_update_divided_by_weight_rms/", 45))
            verify_judge(t->report, w->name, 0, NULL);
    }
}

int verify_train(struct verify_context *context, const struct verify_case *c, struct verify_report *report,
                 struct sy_error *err)
{
    struct train *t = syi_alloc(sizeof *t, err);
    if (!t) return SY_ENOMEM;
    t->report = report;
    t->uses_schedule = 1;
    int status = verify_model_config(&t->m, c, err);
    if (!status) status = read_optimizer(t, err);
    if (!status) status = verify_model_open(&t->m, context, err);
    if (!status) status = run_steps(t, err);
    if (!status) judge_end(t);
    if (!status) cover_rest(t);
    verify_model_close(&t->m);
    syi_free(t);
    return status;
}
