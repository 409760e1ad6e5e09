/* SPDX-License-Identifier: Apache-2.0 */
/* Kinds model and microbatch: one step of the engine. Encoder output and logits are seen by a hook on the
 * program as it runs; gradients, loss and metrics are the engine's. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "verify/model_case.h"

/* What the hook copies: the first result of an op of a layer. */
struct seen {
    struct syi_session *session;
    float *encoded, *logits;
    int64_t n_encoded, n_logits;
    int64_t vocab;
    int failed; /* out of memory */
};

static void keep(struct seen *s, const struct sy_tensor *t, float **to, int64_t *n)
{
    struct sy_error err = {0};
    if (*to) return;
    *n = 1;
    for (int i = 0; i < t->rank; i++) *n *= t->dim[i];
    *to = syi_alloc((size_t)*n * sizeof **to, &err);
    if (*to)
        memcpy(*to, t->data, (size_t)*n * sizeof **to);
    else
        s->failed = 1;
}

static void look(void *arg, int program, size_t op, const struct sy_call *call, int after)
{
    struct seen *s = arg;
    if (!after) return;
    const struct syi_program *p = syi_session_program(s->session, program);
    const char *layer = syi_program_name(p, p->op[op].layer);
    if (call->op == SY_OP_RMS_NORM && !strcmp(layer, "encoder/encoder_norm"))
        keep(s, &call->out[0], &s->encoded, &s->n_encoded);
    if ((call->op == SY_OP_MATMUL || call->op == SY_OP_MATMUL_NT) && !strcmp(layer, "decoder") &&
        call->out[0].rank == 3 && call->out[0].dim[2] == s->vocab)
        keep(s, &call->out[0], &s->logits, &s->n_logits);
}

static void report_layers(struct verify_model *m, struct verify_report *report)
{
    for (int i = 0; i < syi_engine_moe_layers(m->engine); i++) {
        struct syi_layer_metrics got = syi_engine_layer_metrics(m->engine, i);
        const struct {
            const char *name;
            float value;
        } rows[] = {{"auxiliary_loss", got.auxiliary_loss},
                    {"router_z_loss", got.router_z_loss},
                    {"fraction_tokens_left_behind", got.left_behind},
                    {"expert_usage", got.usage},
                    {"router_confidence", got.confidence}};
        for (size_t j = 0; j < SYI_COUNT(rows); j++) {
            char name[240];
            snprintf(name, sizeof name, "out/intermediates/%s/%s", syi_engine_moe_layer(m->engine, i),
                     rows[j].name);
            verify_floats(report, name, &rows[j].value, 1);
        }
    }
}

static int run_model(struct verify_model *m, struct seen *seen, struct verify_report *report,
                     struct sy_error *err)
{
    struct syi_step_result result;
    *seen = (struct seen){.session = syi_engine_session(m->engine), .vocab = m->config.model.vocab_size};
    syi_session_hook(seen->session, look, seen);
    int status = verify_model_batch(m, 0, 1, err);
    if (!status) status = syi_engine_step(m->engine, &m->batch, 0, 0, &result, err);
    if (!status && seen->failed) status = syi_error(err, SY_ENOMEM, "out of memory");
    if (status) return status;
    float loss = (float)result.loss;
    verify_floats(report, "out/encoded", seen->encoded, seen->n_encoded);
    verify_floats(report, "out/logits", seen->logits, seen->n_logits);
    verify_floats(report, "out/loss", &loss, 1);
    verify_model_metrics(m, "out/metric", &result, report);
    report_layers(m, report);
    return verify_model_gradients(m, "grad", 1, report, err);
}

int verify_model(struct verify_context *context, const struct verify_case *c, struct verify_report *report,
                 struct sy_error *err)
{
    struct verify_model m = {0};
    struct seen seen = {0};
    int status = verify_model_config(&m, c, err);
    if (!status) status = verify_model_open(&m, context, err);
    if (!status) status = run_model(&m, &seen, report, err);
    syi_free(seen.encoded);
    syi_free(seen.logits);
    verify_model_close(&m);
    return status;
}

/* ---- microbatch ---- */

static int run_parts(struct verify_context *context, const struct verify_case *c, int64_t parts, double scale,
                     struct verify_report *report, struct sy_error *err)
{
    struct verify_model m = {0};
    struct syi_step_result result;
    char prefix[64];
    int status = verify_model_config(&m, c, err);
    m.config.train.microbatches = parts;
    if (!status && m.rows % parts)
        status = syi_error(err, SY_EFORMAT, "%lld parts do not divide the batch", (long long)parts);
    if (!status) status = verify_model_open(&m, context, err);
    if (!status) status = verify_model_batch(&m, 0, 1, err);
    if (!status) status = syi_engine_step(m.engine, &m.batch, 0, 0, &result, err);
    if (!status) {
        snprintf(prefix, sizeof prefix, "out/mb%lld/metric", (long long)parts);
        verify_model_metrics(&m, prefix, &result, report);
        snprintf(prefix, sizeof prefix, "grad_mb%lld", (long long)parts);
        status = verify_model_gradients(&m, prefix, 1, report, err);
        if (!status && parts == 1) status = verify_model_gradients(&m, "grad_scaled_mb1", scale, report, err);
    }
    verify_model_close(&m);
    return status;
}

int verify_microbatch(struct verify_context *context, const struct verify_case *c,
                      struct verify_report *report, struct sy_error *err)
{
    const char *list = "";
    int64_t scale = 1;
    int status = verify_text(c, "num_microbatches_list", &list, err);
    if (!status) status = verify_int(c, "scale_expert_grads_by", 1, 1 << 20, &scale, err);
    if (!status) status = verify_only(c, "sharded_match_regex", "^.*expert.*", err);
    while (!status && *list) {
        char *end;
        long long parts = strtoll(list, &end, 10);
        if (end == list || parts < 1) return syi_error(err, SY_EFORMAT, "num_microbatches_list: %s", list);
        status = run_parts(context, c, parts, (double)scale, report, err);
        list = *end == ',' ? end + 1 : end;
    }
    return status;
}
