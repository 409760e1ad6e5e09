/* SPDX-License-Identifier: Apache-2.0 */
/* One forward pass of a case: what it computes on its way, and the loss. */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "verify/import_case.h"

struct seen {
    struct verify_hf *h;
    struct syi_session *session;
    float *logits;      /* where to, or NULL */
    const char *suffix; /* of the names that logits are compared under; NULL: nothing is compared */
    struct sy_error err;
};

/* Theirs of a layer with experts: "encoder/layers_1/mlp" is "encoder.block.1.layer.1.mlp". */
static int router_name(const char *layer, const char *what, char name[160], int *decoder)
{
    int number, end = 0;
    *decoder = !strncmp(layer, "decoder/", 8);
    if (sscanf(layer, *decoder ? "decoder/layers_%d/mlp%n" : "encoder/layers_%d/mlp%n", &number, &end) != 1 ||
        !end)
        return 0;
    snprintf(name, 160, "%s/%s.block.%d.layer.%d.mlp", what, *decoder ? "decoder" : "encoder", number,
             *decoder ? 2 : 1);
    return 1;
}

static void see_router_logits(struct seen *s, const char *layer, const struct sy_tensor *probabilities)
{
    char name[160];
    int decoder;
    if (!router_name(layer, "router_logits", name, &decoder)) return;
    verify_import_floats(s->h->v, name, probabilities->data, s->h->real[decoder],
                         probabilities->dim[0] * probabilities->dim[1], probabilities->dim[2]);
}

/* Expected: 1 where a token is dispatched to the expert. Padding is routed there, and not here. */
static void see_route(struct seen *s, const char *layer, const struct sy_call *call)
{
    char name[160];
    int decoder;
    int64_t positions = call->out[0].dim[0] * call->out[0].dim[1], experts = call->in[0].dim[2];
    const int32_t *expert = call->out[0].data, *slot = call->out[1].data;
    if (!router_name(layer, "router_kept", name, &decoder)) return;
    const struct verify_tensor *want = verify_find(s->h->v->item, name);
    if (!want || !want->integer || want->n != positions * experts || call->out[0].dim[2] != 1) {
        verify_integers(s->h->v->report, name, NULL, 0);
        return;
    }
    int32_t *kept = syi_alloc((size_t)want->n * sizeof *kept, &s->err);
    for (int64_t i = 0; kept && i < positions; i++)
        for (int64_t e = 0; e < experts; e++)
            kept[i * experts + e] =
                s->h->real[decoder][i] ? expert[i] == e && slot[i] >= 0 : want->integer[i * experts + e];
    if (kept) verify_integers(s->h->v->report, name, kept, want->n);
    syi_free(kept);
}

static void look(void *arg, int program, size_t op, const struct sy_call *call, int after)
{
    struct seen *s = arg;
    struct verify_hf *h = s->h;
    int64_t in = h->rows * h->input_length, out = h->rows * h->target_length;
    const struct syi_config *c = &h->v->config;
    const struct syi_program *p = syi_session_program(s->session, program);
    const char *layer = syi_program_name(p, p->op[op].layer);
    char name[80];
    int product = call->op == SY_OP_MATMUL || call->op == SY_OP_MATMUL_NT;
    if (!after) return;
    snprintf(name, sizeof name, "logits%s", s->suffix ? s->suffix : "");
    if (product && !strcmp(layer, "decoder") && call->out[0].rank == 3 &&
        call->out[0].dim[2] == c->model.vocab_size) {
        if (s->logits)
            memcpy(s->logits, call->out[0].data, (size_t)(out * c->model.vocab_size) * sizeof *s->logits);
        if (s->suffix)
            verify_import_floats(h->v, name, call->out[0].data, h->real[1], out, c->model.vocab_size);
    }
    if (!s->suffix || *s->suffix) return;
    if (call->op == SY_OP_RMS_NORM && !strcmp(layer, "encoder/encoder_norm"))
        verify_import_floats(h->v, "encoder_output", call->out[0].data, h->real[0], in, c->model.d_model);
    if (call->op == SY_OP_ROUTE) see_route(s, layer, call);
    if (call->op == SY_OP_SOFTMAX && c->moe.num_experts &&
        call->in[0].dim[call->in[0].rank - 1] == c->moe.num_experts)
        see_router_logits(s, layer, &call->in[0]);
}

int verify_hf_forward(struct verify_hf *h, struct syi_engine *engine, float *logits, double *loss,
                      const char *suffix, struct sy_error *err)
{
    struct seen seen = {.h = h, .session = syi_engine_session(engine), .logits = logits, .suffix = suffix};
    struct syi_eval_sums sums = {0};
    syi_session_hook(seen.session, look, &seen);
    int status = syi_engine_eval(engine, &h->batch, &sums, err);
    syi_session_hook(seen.session, NULL, NULL);
    if (!status && seen.err.code) status = syi_error(err, seen.err.code, "%s", seen.err.text);
    if (loss) *loss = (sums.loss_sum - sums.z_sum) / (double)(sums.weighted ? sums.weighted : 1);
    return status;
}
