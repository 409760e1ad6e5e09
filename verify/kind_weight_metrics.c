/* SPDX-License-Identifier: Apache-2.0 */
/* Kind weight_metrics: metrics of weights and of whole steps. A case of weights that brings the weights before and after
 * an update goes through the ops of program update_metrics; one of a training loop runs the programs of a step for a
 * model of two tensors; kind_weight_merges.c has the table of merges. */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "optim/weight_metrics.h"
#include "passes/passes.h"
#include "program/grad.h"
#include "program/record.h"
#include "train/engine/merge.h"
#include "train/engine/rates.h"
#include "train/engine/step_metrics.h"
#include "verify/optim_case.h"

enum { FIRST, NEXT, UPDATE, PROGRAMS, ROWS = 64 };

/* A metric over the steps of a loop. */
struct row {
    char name[160];
    struct syi_merged merged;
};

struct weights {
    struct verify_optim o; /* parameters, optimizer, session */
    struct verify_report *report;
    int program[PROGRAMS]; /* in the session */
    int64_t rows, length, microbatches, devices;
    double z_loss, duration;
    struct row row[ROWS];
    int n;
    struct syi_rates rates; /* of the loop */
};

/* ---- what both have ---- */

static int begin_session(struct weights *w, const struct verify_context *context, struct sy_error *err)
{
    const struct syi_rank *rank = context->rank;
    struct syi_session_options options = {
        .backend = rank->backend, .comm = rank->comm, .mesh = &rank->mesh, .reproducible = 1, .coherent = 1};
    return syi_session_new(&options, &w->o.session, err);
}

/* Hands a program to the session, which frees it. */
static int add(struct weights *w, struct syi_program *p, int which, int status, struct sy_error *err)
{
    if (!status) status = syi_program_status(p, err);
    if (!status) status = syi_program_fuse(p, err);
    if (!status) return syi_session_add(w->o.session, p, &w->program[which], err);
    syi_program_free(p);
    return status;
}

/* A parameter for each tensor PREFIX/NAME of the case. */
static int read_params(struct weights *w, const char *prefix, struct sy_error *err)
{
    const struct verify_case *c = w->o.item;
    size_t n = strlen(prefix);
    for (size_t i = 0; i < c->n_tensors; i++) {
        const struct verify_tensor *t = &c->tensor[i];
        if (strncmp(t->name, prefix, n) != 0) continue;
        if (t->rank > SY_MAX_DIMS || !t->real || t->n < 1)
            return syi_error(err, SY_EFORMAT, "%s is no weight", t->name);
        struct syi_param *param = verify_optim_param(&w->o, t->name + n, err);
        if (!param) return SY_ENOMEM;
        param->rank = t->rank ? t->rank : 1;
        for (int d = 0; d < t->rank; d++) param->dim[d] = t->dim[d];
    }
    return w->o.model.n ? SY_OK : syi_error(err, SY_EFORMAT, "the case has no %s...", prefix);
}

static int param_tensor(struct syi_program *p, const struct syi_param *param)
{
    int t = syi_tensor_add(p, param->name, SYI_PARAM, SY_F32, param->rank, param->dim, param->axis);
    return syi_role_set(p, t, SYI_ROLE_PARAMETER, param->id);
}

static const struct sy_tensor *find(const struct weights *w, int which, enum syi_role role, uint32_t of)
{
    return syi_session_find(w->o.session, w->program[which], role, of);
}

/* Values of the case's tensor PREFIX/NAME into a tensor of the session. */
static int put(struct weights *w, const char *prefix, const char *name, const struct sy_tensor *to,
               struct sy_error *err)
{
    char path[240];
    int64_t n = 1;
    snprintf(path, sizeof path, "%s%s", prefix, name);
    const struct verify_tensor *from = verify_find(w->o.item, path);
    for (int d = 0; to && d < to->rank; d++) n *= to->dim[d];
    if (!to || !from || from->n != n || !from->real != (to->dtype == SY_I32))
        return syi_error(err, SY_EFORMAT, "tensor %s is missing, of another type or of another size", path);
    memcpy(to->data, from->real ? (const void *)from->real : from->integer, (size_t)n * 4);
    verify_judge(w->report, path, 0, NULL); /* given, not computed */
    return SY_OK;
}

static double scalar(const struct sy_tensor *t)
{
    return t ? (double)*(const float *)t->data : NAN;
}

static void judge_value(struct weights *w, const char *prefix, const char *name, double value)
{
    char path[240];
    float got = (float)value;
    snprintf(path, sizeof path, "%s%s", prefix, name);
    if (verify_find(w->o.item, path)) verify_floats_part(w->report, path, 0, &got, 1, VERIFY_TOLERANCE);
}

/* ---- weights before and after ---- */

static void record_update(struct weights *w, struct syi_program *p, struct syi_weighed *weighed,
                          int *gradient, int *square)
{
    const struct syi_model *model = &w->o.model;
    for (size_t i = 0; i < model->n && !p->status; i++) {
        const struct syi_param *param = &model->param[i];
        char name[SYI_GRADIENT_NAME];
        syi_gradient_name(name, param);
        gradient[i] = syi_tensor_add(p, name, SYI_INPUT, SY_F32, param->rank, param->dim, param->axis);
        syi_role_set(p, gradient[i], SYI_ROLE_GRADIENT, param->id);
    }
    syi_step_output(p, SYI_STEP_GRAD_NORM, syi_norm_and_squares(p, (int)model->n, gradient, NULL, square));
    for (size_t i = 0; i < model->n && !p->status; i++) {
        const struct syi_param *param = &model->param[i];
        char name[200];
        snprintf(name, sizeof name, "new/%s", param->name);
        int to = param_tensor(p, param);
        int from = syi_tensor_add(p, name, SYI_INPUT, SY_F32, param->rank, param->dim, param->axis);
        syi_role_set(p, from, SYI_ROLE_AVERAGE, param->id);
        syi_weigh_change(p, &weighed[i], to, from);
        syi_store(p, from, to);
        syi_weigh_blocks(p, &weighed[i]);
    }
    for (size_t i = 0; i < model->n; i++)
        syi_weigh_outputs(p, &weighed[i], model->param[i].id, model->param[i].name, square[i]);
}

static int add_update(struct weights *w, struct sy_error *err)
{
    struct syi_program *p;
    size_t n = w->o.model.n;
    int status = syi_program_new("weigh", &p, err);
    if (status) return status;
    struct syi_weighed *weighed = syi_alloc(n * sizeof *weighed, err);
    int *gradient = syi_alloc(n * sizeof *gradient, err), *square = syi_alloc(n * sizeof *square, err);
    for (int i = 0; i < SYI_AXIS_COUNT; i++) p->leaf_count[i] = 1;
    if (weighed && gradient && square)
        record_update(w, p, weighed, gradient, square);
    else
        status = SY_ENOMEM;
    syi_free(weighed);
    syi_free(gradient);
    syi_free(square);
    return add(w, p, UPDATE, status, err);
}

static int put_update(struct weights *w, struct sy_error *err)
{
    int status = SY_OK;
    for (size_t i = 0; i < w->o.model.n && !status; i++) {
        const struct syi_param *param = &w->o.model.param[i];
        status = put(w, "old/", param->name, find(w, UPDATE, SYI_ROLE_PARAMETER, param->id), err);
        if (!status)
            status = put(w, "grad/", param->name, find(w, UPDATE, SYI_ROLE_GRADIENT, param->id), err);
        if (!status) status = put(w, "new/", param->name, find(w, UPDATE, SYI_ROLE_AVERAGE, param->id), err);
    }
    return status;
}

typedef void (*weight_fn)(struct weights *w, const char *name, double value);

/* Each metric of each weight that program update_metrics left. */
static void for_weights(struct weights *w, weight_fn fn)
{
    for (size_t i = 0; i < w->o.model.n; i++)
        for (int m = 0; m < SYI_WEIGHT_METRICS; m++) {
            const struct syi_param *param = &w->o.model.param[i];
            enum syi_weight_metric metric = (enum syi_weight_metric)m;
            uint32_t of = syi_weight_metric_number(param->id, metric);
            char name[240];
            snprintf(name, sizeof name, "%s/%s", syi_weight_metric_name(metric), param->name);
            fn(w, name, scalar(find(w, UPDATE, SYI_ROLE_WEIGHT_METRIC, of)));
        }
}

static void judge_weight(struct weights *w, const char *name, double value)
{
    judge_value(w, "metric/", name, value);
}

static int verify_update(struct weights *w, const struct verify_context *context, struct sy_error *err)
{
    int status = begin_session(w, context, err);
    verify_ignore(w->o.item, "num_params");
    if (!status) status = read_params(w, "old/", err);
    if (!status) status = add_update(w, err);
    if (!status) status = syi_session_bind(w->o.session, err);
    if (!status) status = put_update(w, err);
    if (!status) status = syi_session_run(w->o.session, w->program[UPDATE], err);
    if (status) return status;
    judge_value(w, "metric/", "weight_gradient_norm",
                scalar(find(w, UPDATE, SYI_ROLE_STEP_OUTPUT, SYI_STEP_GRAD_NORM)));
    for_weights(w, judge_weight);
    return SY_OK;
}

/* ---- a training loop: the programs ---- */

static int batch_input(struct weights *w, struct syi_program *p, enum syi_role role, enum sy_dtype dtype)
{
    const int64_t dim[2] = {w->rows / w->microbatches, w->length};
    const uint8_t axis[2] = {SYI_AXIS_BATCH, SYI_AXIS_LENGTH};
    return syi_role_set(p, syi_tensor_add(p, syi_role_name(role), SYI_INPUT, dtype, 2, dim, axis), role, 0);
}

/* logits = embedding[ids] kernel; the loss is the sum over targets that are no padding */
static int record_loss(struct weights *w, struct syi_program *p, int next, struct sy_error *err)
{
    const struct syi_model *model = &w->o.model;
    int of[2], gradient[2];
    int ids = batch_input(w, p, SYI_ROLE_DECODER_INPUTS, SY_I32),
        targets = batch_input(w, p, SYI_ROLE_DECODER_TARGETS, SY_I32),
        weights = batch_input(w, p, SYI_ROLE_LOSS_WEIGHTS, SY_F32);
    for (int i = 0; i < 2; i++) of[i] = param_tensor(p, &model->param[i]);
    int logits = syi_matmul(p, SYI_RECORD(p, SY_OP_EMBED, NULL, ids, of[0]), of[1]);
    struct syi_xent x = syi_xent(p, logits, targets, weights, 0, w->z_loss);
    int loss = syi_total(p, x.loss), z = syi_total(p, x.z), correct = syi_total(p, x.correct);
    syi_step_output(p, SYI_STEP_TOKEN_LOSS, loss);
    syi_step_output(p, SYI_STEP_Z_LOSS, z);
    syi_step_output(p, SYI_STEP_CORRECT, correct);
    int status = syi_program_status(p, err);
    if (!status) status = syi_grad(p, loss, 2, of, gradient, err);
    for (int i = 0; i < 2 && !status; i++) syi_store_gradient(p, &model->param[i], gradient[i], next);
    return status;
}

static int add_programs(struct weights *w, struct sy_error *err)
{
    uint32_t leaf_count[SYI_AXIS_COUNT];
    const struct syi_update_options options = {
        .config = &w->o.config, .model = &w->o.model, .leaf_count = leaf_count, .weigh = 1};
    struct syi_program *p = NULL;
    int status = SY_OK;
    for (int i = 0; i < SYI_AXIS_COUNT; i++) leaf_count[i] = 1;
    for (int next = 0; next < 2 && !status; next++) {
        status = syi_program_new(next ? "grad_next" : "grad_first", &p, err);
        if (status) return status;
        memcpy(p->leaf_count, leaf_count, sizeof leaf_count);
        status = add(w, p, next ? NEXT : FIRST, record_loss(w, p, next, err), err);
    }
    if (!status) status = syi_record_update(&options, &p, err);
    return status ? status : add(w, p, UPDATE, SY_OK, err);
}

static int read_loop(struct weights *w, struct sy_error *err)
{
    const struct verify_case *c = w->o.item;
    struct syi_config *config = &w->o.config;
    const char *optimizer, *sharded;
    struct syi_text patterns = {0};
    int64_t experts = 0;
    int status = verify_text(c, "optimizer", &optimizer, err);
    if (!status) status = verify_optim_read(&w->o, optimizer, err);
    if (!status) status = verify_int(c, "num_steps", 1, 1 << 20, &w->o.steps, err);
    if (!status) status = verify_int(c, "batch_size", 1, 1 << 20, &w->rows, err);
    if (!status) status = verify_int(c, "length", 1, 1 << 20, &w->length, err);
    if (!status) status = verify_int(c, "num_experts", 1, 1 << 20, &experts, err);
    if (!status) status = verify_int(c, "num_devices", 1, 1 << 20, &w->devices, err);
    if (!status) status = verify_real(c, "z_loss", &w->z_loss, err);
    if (!status) status = verify_real(c, "duration", &w->duration, err);
    w->microbatches = 1;
    if (!status && !verify_is_null(c, "num_microbatches"))
        status = verify_int(c, "num_microbatches", 1, w->rows, &w->microbatches, err);
    if (!status) status = verify_text(c, "sharded_match", &sharded, err);
    if (!status) status = verify_patterns(sharded, &patterns, err);
    if (!status && strcmp(patterns.data, "[\"*expert*\"]"))
        status = syi_error(err, SY_EUNSUPPORTED, "sharded_match=%.80s", sharded);
    syi_text_free(&patterns);
    verify_ignore(c, "vocab learning_rate");
    if (!status) status = syi_config_validate_programs(config, err);
    config->moe.num_experts = experts;
    config->moe.scale_expert_gradients = 1;
    config->train.microbatches = w->microbatches;
    config->data.batch_size = w->rows;
    return status;
}

static int open_loop(struct weights *w, const struct verify_context *context, struct sy_error *err)
{
    int status = read_loop(w, err);
    if (!status && w->rows % w->microbatches)
        status = syi_error(err, SY_EFORMAT, "num_microbatches does not divide batch_size");
    if (!status) status = read_params(w, "init/target/", err);
    if (!status && (w->o.model.n != 2 || w->o.model.param[0].rank != 2 || w->o.model.param[1].rank != 2))
        status = syi_error(err, SY_EFORMAT, "the model is not an embedding and a kernel");
    if (!status) status = syi_chains_make(&w->o.config, &w->o.chains, err);
    if (!status) status = verify_optim_rates(&w->o, err);
    if (!status) status = begin_session(w, context, err);
    if (!status) status = add_programs(w, err);
    return status ? status : syi_session_bind(w->o.session, err);
}

/* ---- a training loop: its steps ---- */

/* A number of a step, of which the value is judged, and that of all steps at the end. */
static void note(struct weights *w, int64_t step, const char *name, const struct syi_merged *own)
{
    const struct syi_merge_span unknown = {.seconds = -1};
    char prefix[40];
    double value;
    int i = 0;
    while (i < w->n && strcmp(w->row[i].name, name)) i++;
    if (i == ROWS) return;
    if (i == w->n) {
        snprintf(w->row[w->n].name, sizeof w->row[0].name, "%s", name);
        w->row[w->n++].merged.kind = own->kind;
    }
    syi_merged_add(&w->row[i].merged, own->total, own->count);
    snprintf(prefix, sizeof prefix, "step_%lld/metric/", (long long)step);
    if (syi_merged_value(own, &unknown, &value)) judge_value(w, prefix, name, value);
}

static void note_weight(struct weights *w, const char *name, double value)
{
    note(w, w->o.first_step, name, &(struct syi_merged){SYI_MERGE_PER_STEP, value, 1});
}

static double yielded(const struct weights *w, int which, enum syi_step_value value)
{
    return scalar(find(w, which, SYI_ROLE_STEP_OUTPUT, (uint32_t)value));
}

static int run_microbatch(struct weights *w, const struct verify_tensor *ids,
                          const struct verify_tensor *targets, int64_t m, struct syi_step_result *r,
                          struct sy_error *err)
{
    int which = m ? NEXT : FIRST;
    int64_t n = w->rows / w->microbatches * w->length;
    float *weight = find(w, which, SYI_ROLE_LOSS_WEIGHTS, 0)->data;
    memcpy(find(w, which, SYI_ROLE_DECODER_INPUTS, 0)->data, ids->integer + m * n,
           (size_t)n * sizeof(int32_t));
    memcpy(find(w, which, SYI_ROLE_DECODER_TARGETS, 0)->data, targets->integer + m * n,
           (size_t)n * sizeof(int32_t));
    for (int64_t i = 0; i < n; i++) {
        weight[i] = targets->integer[m * n + i] > 0;
        r->value[SYI_STEP_WEIGHT_SUM] += (double)weight[i];
    }
    int status = syi_session_run(w->o.session, w->program[which], err);
    r->value[SYI_STEP_TOKEN_LOSS] += yielded(w, which, SYI_STEP_TOKEN_LOSS);
    r->value[SYI_STEP_Z_LOSS] += yielded(w, which, SYI_STEP_Z_LOSS);
    r->value[SYI_STEP_CORRECT] += yielded(w, which, SYI_STEP_CORRECT);
    return status;
}

static int run_update(struct weights *w, int64_t step, double rate, struct sy_error *err)
{
    float value[SYI_OPTIM_SCALARS];
    syi_optim_scalars(&w->o.config, w->o.chains, step, rate, 1, value);
    for (uint32_t i = 0; i < SYI_OPTIM_SCALARS; i++) {
        const struct sy_tensor *t = find(w, UPDATE, SYI_ROLE_OPTIM_SCALAR, i);
        if (t) *(float *)t->data = value[i];
    }
    return syi_session_run(w->o.session, w->program[UPDATE], err);
}

/* Tensors PREFIX/NAME of the case against those of a role. An element of a gradient may be the small sum of large terms:
 * its error is one of the tensor's largest. */
static void judge_tensors(struct weights *w, int64_t step, const char *what, enum syi_role role)
{
    for (size_t i = 0; i < w->o.model.n; i++) {
        const struct syi_param *param = &w->o.model.param[i];
        const struct sy_tensor *got = find(w, UPDATE, role, param->id);
        char name[240];
        snprintf(name, sizeof name, "step_%lld/%s/%s", (long long)step, what, param->name);
        verify_floats_part(w->report, name, 0, got->data, param->dim[0] * param->dim[1],
                           role == SYI_ROLE_GRADIENT ? VERIFY_STEP : VERIFY_TOLERANCE);
    }
}

static void note_timing(struct weights *w, int64_t step)
{
    struct syi_rates one = {0};
    struct syi_rate value[SYI_RATES];
    char prefix[40];
    double seconds = w->duration / (double)w->o.steps;
    syi_rates_add(&one, seconds, w->rows, w->rows * w->length);
    syi_rates_add(&w->rates, seconds, w->rows, w->rows * w->length);
    snprintf(prefix, sizeof prefix, "step_%lld/metric/", (long long)step);
    int n = syi_rates_values(&one, (int)w->devices, value);
    for (int i = 0; i < n; i++) judge_value(w, prefix, value[i].name, value[i].value);
}

/* The metrics of a step, all of which the run file's compat = t5x gives. */
static void note_step(struct weights *w, int64_t step, const struct syi_batch *batch, double rate,
                      struct syi_step_result *r)
{
    struct syi_step_metric metric[SYI_STEP_METRICS_MOST];
    r->value[SYI_STEP_LOSS] = r->value[SYI_STEP_TOKEN_LOSS];
    r->value[SYI_STEP_CROSS_ENTROPY] = r->value[SYI_STEP_TOKEN_LOSS] - r->value[SYI_STEP_Z_LOSS];
    r->value[SYI_STEP_WEIGHTED_TARGETS] = r->value[SYI_STEP_WEIGHT_SUM];
    r->value[SYI_STEP_MICROBATCHES] = (double)w->microbatches;
    r->value[SYI_STEP_ONE] = 1;
    r->value[SYI_STEP_GRAD_NORM] = yielded(w, UPDATE, SYI_STEP_GRAD_NORM);
    int n = syi_step_metrics(&w->o.config, batch, r, metric);
    for (int i = 0; i < n; i++) {
        enum syi_merge kind = metric[i].steps ? SYI_MERGE_PER_STEP : SYI_MERGE_AVERAGE;
        int renamed = !strcmp(metric[i].name, "non_padding_fraction/loss_weights"); /* in later versions */
        note(w, step, renamed ? "nonpadding_fraction" : metric[i].name,
             &(struct syi_merged){kind, metric[i].total, metric[i].divisor});
    }
    note(w, step, "learning_rate", &(struct syi_merged){SYI_MERGE_AVERAGE, rate, 1});
    note(w, step, "learning_rate/current", &(struct syi_merged){SYI_MERGE_LAST, rate, 1});
    w->o.first_step = step;
    for_weights(w, note_weight);
    note_timing(w, step);
    judge_tensors(w, step, "grad_accum", SYI_ROLE_GRADIENT);
    judge_tensors(w, step, "target", SYI_ROLE_PARAMETER);
}

static int run_step(struct weights *w, int64_t step, struct sy_error *err)
{
    const struct verify_tensor *ids, *targets;
    const int64_t dim[2] = {w->rows, w->length};
    const int adafactor = w->o.config.optimizer.part[0].name == SYI_OPTIMIZER_ADAFACTOR;
    struct syi_step_result r = {0};
    char name[64];
    snprintf(name, sizeof name, "step_%lld/batch/decoder_input_tokens", (long long)step);
    int status = verify_need(w->o.item, name, 'i', 2, dim, &ids, err);
    snprintf(name, sizeof name, "step_%lld/batch/decoder_target_tokens", (long long)step);
    if (!status) status = verify_need(w->o.item, name, 'i', 2, dim, &targets, err);
    for (int64_t m = 0; m < w->microbatches && !status; m++)
        status = run_microbatch(w, ids, targets, m, &r, err);
    /* optax has its own rate and ignores that of the trainer */
    double rate = w->o.rates[step], own = verify_optim_number(w->o.item, "learning_rate", 0);
    if (!status) status = run_update(w, step, adafactor ? rate : own, err);
    if (status) return status;
    /* the table only reads */
    const struct syi_batch batch = {.rows = (int32_t)w->rows,
                                    .target_length = (int32_t)w->length,
                                    .decoder_targets = (int32_t *)(uintptr_t)targets->integer};
    note_step(w, step, &batch, rate, &r);
    return SY_OK;
}

static void judge_summary(struct weights *w)
{
    const struct syi_merge_span span = {w->duration, (double)w->o.steps};
    struct syi_rate rate[SYI_RATES];
    int n = syi_rates_values(&w->rates, (int)w->devices, rate);
    for (int i = 0; i < n; i++) judge_value(w, "summary/", rate[i].name, rate[i].value);
    for (int i = 0; i < w->n; i++) {
        double value;
        if (syi_merged_value(&w->row[i].merged, &span, &value))
            judge_value(w, "summary/", w->row[i].name, value);
    }
}

static int verify_loop(struct weights *w, const struct verify_context *context, struct sy_error *err)
{
    int status = open_loop(w, context, err);
    for (size_t i = 0; i < w->o.model.n && !status; i++) {
        const struct syi_param *param = &w->o.model.param[i];
        status = put(w, "init/target/", param->name, find(w, UPDATE, SYI_ROLE_PARAMETER, param->id), err);
    }
    for (int64_t step = 0; step < w->o.steps && !status; step++) status = run_step(w, step, err);
    if (!status) judge_summary(w);
    return status;
}

/* ---- the kind ---- */

int verify_weight_metrics(struct verify_context *context, const struct verify_case *c,
                          struct verify_report *report, struct sy_error *err)
{
    const char *test;
    int status = verify_text(c, "test", &test, err);
    if (status) return status;
    if (!strcmp(test, "merge_table")) return verify_weight_merges(context, c, report, err);
    struct weights *w = syi_alloc(sizeof *w, err);
    if (!w) return SY_ENOMEM;
    w->o.item = c;
    w->report = report;
    if (!strcmp(test, "weight_metrics"))
        status = verify_update(w, context, err);
    else if (!strcmp(test, "train_loop"))
        status = verify_loop(w, context, err);
    else
        status = syi_error(err, SY_EUNSUPPORTED, "test=%.80s", test);
    verify_optim_close(&w->o);
    syi_free(w);
    return status;
}
