/* SPDX-License-Identifier: Apache-2.0 */
/* An engine from a case: configuration, parameters, batches; and what is compared alike in all its kinds. */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "verify/model_case.h"

/* Evaluation capacity with gradients: a training program of the same factor. */
static int set_mode(struct verify_model *m, struct sy_error *err)
{
    const char *mode = "train";
    int status = verify_text(m->item, "mode", &mode, err);
    if (!status && !strcmp(mode, "eval"))
        m->config.moe.train_capacity_factor = m->config.moe.eval_capacity_factor;
    return status;
}

int verify_model_config(struct verify_model *m, const struct verify_case *c, struct sy_error *err)
{
    struct syi_config *config = &m->config;
    m->item = c;
    int status = verify_config(c, "", config, err);
    if (!status) status = set_mode(m, err);
    if (!status) status = verify_int(c, "batch", 1, 1 << 20, &m->rows, err);
    if (!status) status = verify_int(c, "encoder_length", 1, 1 << 20, &m->input_length, err);
    if (!status) status = verify_int(c, "decoder_length", 1, 1 << 20, &m->target_length, err);
    if (!status) status = verify_only(c, "dtype", "float32", err);
    if (!status) status = verify_only(c, "pad_id", "0", err);
    verify_ignore(c, "eos_id num_expert_partitions packed");
    m->packed = verify_find(c, "in/decoder_segment_ids") != NULL;
    config->data.batch_size = config->decode.batch_size = m->rows;
    config->data.max_input_length = m->input_length;
    config->data.max_target_length = m->target_length;
    config->data.length_buckets.n = 0;
    config->reproducible.min_leaf = 1;
    config->train.clip_norm = 0;
    return status;
}

int verify_model_params(struct verify_model *m, struct sy_error *err)
{
    const struct syi_model *model = syi_engine_model(m->engine);
    for (size_t i = 0; i < model->n; i++) {
        char name[200];
        const struct verify_tensor *from;
        const struct syi_param *p = &model->param[i];
        snprintf(name, sizeof name, "param/%s", p->name);
        int status = verify_need(m->item, name, 'f', p->rank, p->dim, &from, err);
        if (status) return status;
        const struct sy_tensor *to =
            syi_session_find_any(syi_engine_session(m->engine), SYI_ROLE_PARAMETER, p->id);
        memcpy(to->data, from->real, (size_t)from->n * sizeof *from->real);
    }
    return SY_OK;
}

int verify_model_open(struct verify_model *m, const struct verify_context *context, struct sy_error *err)
{
    int use = SYI_USE_TRAIN | SYI_USE_COHERENT | (m->packed ? SYI_USE_PACKED : 0);
    int status = syi_config_validate_programs(&m->config, err);
    if (!status) status = syi_engine_new(&m->config, context->rank, use, 0, &m->engine, err);
    for (int i = 0; !status && i < 2; i++) {
        m->lengths[i] = syi_alloc((size_t)m->rows * sizeof *m->lengths[i], err);
        if (!m->lengths[i]) status = SY_ENOMEM;
    }
    return status ? status : verify_model_params(m, err);
}

void verify_model_close(struct verify_model *m)
{
    syi_engine_free(m->engine);
    syi_free(m->lengths[0]);
    syi_free(m->lengths[1]);
    memset(m, 0, sizeof *m);
}

/* An input [rows, length] of a step; optional ones may be missing. */
static int take(struct verify_model *m, const char *what, char type, int64_t length, int64_t step,
                int64_t steps, int optional, const void **out, struct sy_error *err)
{
    char name[64];
    const struct verify_tensor *t;
    int64_t dim[3] = {steps, m->rows, length};
    snprintf(name, sizeof name, "in/%s", what);
    *out = NULL;
    if (optional && !verify_find(m->item, name)) return SY_OK;
    int status = verify_need(m->item, name, type, steps > 1 ? 3 : 2, steps > 1 ? dim : dim + 1, &t, err);
    if (status) return status;
    int64_t at = step * m->rows * length;
    *out = type == 'f' ? (const void *)(t->real + at) : (const void *)(t->integer + at);
    return SY_OK;
}

static int64_t lengths_of(const int32_t *ids, int64_t rows, int64_t length, int32_t *out)
{
    int64_t n = 0;
    for (int64_t row = 0; row < rows; row++) {
        out[row] = 0;
        for (int64_t i = 0; i < length; i++)
            if (ids[row * length + i] > 0) out[row] = (int32_t)(i + 1), n++;
    }
    return n;
}

int verify_model_batch(struct verify_model *m, int64_t step, int64_t steps, struct sy_error *err)
{
    struct syi_batch *b = &m->batch;
    const void *in[6];
    int64_t input = m->input_length, target = m->target_length;
    int status = take(m, "encoder_input_tokens", 'i', input, step, steps, 0, &in[0], err);
    if (!status) status = take(m, "decoder_input_tokens", 'i', target, step, steps, 0, &in[1], err);
    if (!status) status = take(m, "decoder_target_tokens", 'i', target, step, steps, 0, &in[2], err);
    if (!status) status = take(m, "decoder_loss_weights", 'f', target, step, steps, 1, &in[3], err);
    if (!status) status = take(m, "encoder_segment_ids", 'i', input, step, steps, 1, &in[4], err);
    if (!status) status = take(m, "decoder_segment_ids", 'i', target, step, steps, 1, &in[5], err);
    if (status) return status;
    *b = (struct syi_batch){.rows = (int32_t)m->rows,
                            .n_real = (int32_t)m->rows,
                            .input_length = (int32_t)input,
                            .target_length = (int32_t)target,
                            .encoder_segments = in[4],
                            .decoder_segments = in[5],
                            .input_lengths = m->lengths[0],
                            .target_lengths = m->lengths[1]};
    memcpy(&b->encoder_ids, &in[0], sizeof in[0]); /* the engine only reads them */
    memcpy(&b->decoder_inputs, &in[1], sizeof in[1]);
    memcpy(&b->decoder_targets, &in[2], sizeof in[2]);
    memcpy(&b->loss_weights, &in[3], sizeof in[3]);
    b->n_input_tokens = lengths_of(b->encoder_ids, m->rows, input, m->lengths[0]);
    b->n_target_tokens = lengths_of(b->decoder_targets, m->rows, target, m->lengths[1]);
    return SY_OK;
}

static const float *values_of(const struct sy_tensor *t, int64_t *n)
{
    if (!t) return NULL;
    *n = 1;
    for (int i = 0; i < t->rank; i++) *n *= t->dim[i];
    return t->data;
}

const float *verify_model_values(const struct verify_model *m, enum syi_role role,
                                 const struct syi_param *param, int64_t *n)
{
    return values_of(syi_session_find_any(syi_engine_session(m->engine), role, param->id), n);
}

const float *verify_model_state(const struct verify_model *m, const char *name, int64_t *n)
{
    return values_of(syi_session_tensor(syi_engine_session(m->engine), name), n);
}

int verify_model_gradients(struct verify_model *m, const char *prefix, double expert_scale,
                           struct verify_report *report, struct sy_error *err)
{
    const struct syi_model *model = syi_engine_model(m->engine);
    for (size_t i = 0; i < model->n; i++) {
        char name[200];
        int64_t n = 0;
        const float *gradient = verify_model_values(m, SYI_ROLE_GRADIENT, &model->param[i], &n);
        float *scaled = syi_alloc((size_t)n * sizeof *scaled, err);
        if (!scaled) return SY_ENOMEM;
        int expert = syi_pattern_match(m->config.moe.sharded_match_fn, model->param[i].name);
        float scale = expert ? (float)expert_scale : 1;
        for (int64_t j = 0; j < n; j++) scaled[j] = gradient[j] * scale;
        snprintf(name, sizeof name, "%s/%s", prefix, model->param[i].name);
        verify_floats(report, name, scaled, n);
        syi_free(scaled);
    }
    return SY_OK;
}

void verify_model_metrics(struct verify_model *m, const char *prefix, const struct syi_step_result *result,
                          struct verify_report *report)
{
    struct syi_step_metric metric[SYI_STEP_METRICS_MOST];
    int n = syi_step_metrics(&m->config, &m->batch, result, metric);
    for (int i = 0; i < n; i++) {
        char name[200];
        float total = (float)metric[i].total, divisor = (float)metric[i].divisor, computed = total / divisor;
        snprintf(name, sizeof name, "%s/%s/total", prefix, metric[i].name);
        if (!verify_find(m->item, name))
            continue; /* not T5X's; none of the case's is left out: it would show */
        verify_floats(report, name, &total, 1);
        snprintf(name, sizeof name, "%s/%s/%s", prefix, metric[i].name, metric[i].steps ? "steps" : "count");
        verify_floats(report, name, &divisor, 1);
        snprintf(name, sizeof name, "%s/%s/computed", prefix, metric[i].name);
        verify_floats(report, name, &computed, 1);
    }
}
