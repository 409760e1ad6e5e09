/* SPDX-License-Identifier: Apache-2.0 */
/* The programs of a run: which inputs each has, what it computes and what it leaves in outputs and carry
 * tensors. */
#include "config.h"

#include <string.h>

#include "model/model.h"
#include "program/grad.h"
#include "program/record.h"

int syi_model_check(const struct syi_config *c, struct sy_error *err)
{
    if (c->moe.num_experts && c->moe.num_decoder_sparse_layers &&
        syi_router_type(c, 1) == SYI_ROUTER_EXPERTS_CHOOSE_MASKED && c->run.compat != SYI_COMPAT_T5X)
        return syi_error(
            err, SY_EINVAL,
            "moe.decoder_router_type: where experts choose, a token's output depends on later ones: "
            "take tokens_choose_masked, or run.compat = t5x to do as T5X does");
    for (int i = 0; c->moe.num_experts && c->moe.expert_bias && i < 2; i++)
        if ((i ? c->moe.num_decoder_sparse_layers : c->moe.num_encoder_sparse_layers) &&
            syi_router_type(c, i) == SYI_ROUTER_EXPERTS_CHOOSE_MASKED)
            return syi_error(err, SY_EINVAL,
                             "moe.expert_bias: where experts choose (moe.%s), all have the same load: "
                             "set it to false, or take a router by which tokens choose",
                             i ? "decoder_router_type" : "router_type");
    const int64_t layers[2] = {c->model.num_encoder_layers, c->model.num_decoder_layers};
    const int64_t sparse[2] = {c->moe.num_encoder_sparse_layers, c->moe.num_decoder_sparse_layers};
    const int layout[2] = {(int)c->moe.encoder_sparse_layout, (int)c->moe.decoder_sparse_layout};
    static const char *const stack[2] = {"encoder", "decoder"};
    for (int i = 0; c->moe.num_experts && i < 2; i++)
        if (sparse[i] > layers[i] || (layout[i] == SYI_SPARSE_MIXED && sparse[i] && layers[i] % sparse[i]))
            return syi_error(
                err, SY_EINVAL,
                "moe.num_%s_sparse_layers=%lld does not fit %lld layers (MIXED: it must divide them)",
                stack[i], (long long)sparse[i], (long long)layers[i]);
    if (c->moe.num_experts && sparse[0] + sparse[1] > SYI_MAX_MOE_LAYERS)
        return syi_error(err, SY_EINVAL, "at most %d layers can have experts", SYI_MAX_MOE_LAYERS);
    if (c->moe.num_experts && c->moe.num_selected_experts > c->moe.num_experts)
        return syi_error(err, SY_EINVAL, "moe.num_selected_experts=%lld is more than moe.num_experts=%lld",
                         (long long)c->moe.num_selected_experts, (long long)c->moe.num_experts);
    return SY_OK;
}

static int input(struct syi_build *b, const char *name, int dtype, int rank, int64_t dim0, int64_t dim1)
{
    int64_t dim[2] = {dim0, dim1};
    uint8_t axis[2] = {SYI_AXIS_BATCH, SYI_AXIS_LENGTH};
    return syi_tensor_add(b->p, name, SYI_INPUT, dtype, rank, dim, axis);
}

static int scalar(struct syi_build *b, const char *name, int dtype, int64_t n)
{
    return syi_tensor_add(b->p, name, SYI_INPUT, dtype, 1, &n, NULL);
}

void syi_input_name(char name[SYI_INPUT_NAME], const char *what, int64_t rows, int64_t length)
{
    if (length)
        snprintf(name, SYI_INPUT_NAME, "%s/%lldx%lld", what, (long long)rows, (long long)length);
    else
        snprintf(name, SYI_INPUT_NAME, "%s/%lld", what, (long long)rows);
}

static int bucket_input(struct syi_build *b, const char *what, int dtype, int64_t length)
{
    char name[SYI_INPUT_NAME];
    syi_input_name(name, what, b->shape.rows, length);
    return input(b, name, dtype, length ? 2 : 1, b->shape.rows, length);
}

int syi_uses_segments(const struct syi_config *config, const struct syi_shape *shape)
{
    return shape->packed || syi_compat(config, config->model.masked_row) ||
           syi_compat(config, config->model.padding_mask);
}

/* Real positions of one side, "encoder" or "decoder"; mask: whether norms and routers need one. */
static struct syi_real real_inputs(struct syi_build *b, const char *side, int64_t length, int mask)
{
    struct syi_real real = {-1, -1, -1};
    char what[32];
    int segments = syi_uses_segments(b->config, &b->shape);
    snprintf(what, sizeof what, segments ? "%s_segments" : "%s_lengths", side);
    *(segments ? &real.segments : &real.lengths) = bucket_input(b, what, SY_I32, segments ? length : 0);
    snprintf(what, sizeof what, "%s_mask", side);
    if (mask) real.mask = bucket_input(b, what, SY_F32, length);
    return real;
}

static struct syi_inputs training_inputs(struct syi_build *b)
{
    const struct syi_shape *s = &b->shape;
    struct syi_inputs in = {
        .encoder_ids = bucket_input(b, "encoder_ids", SY_I32, s->input_length),
        .decoder_inputs = bucket_input(b, "decoder_inputs", SY_I32, s->target_length),
        .decoder_targets = bucket_input(b, "decoder_targets", SY_I32, s->target_length),
        .loss_weights = bucket_input(b, "loss_weights", SY_F32, s->target_length),
        .encoder = real_inputs(b, "encoder", s->input_length, 1),
        .decoder = real_inputs(b, "decoder", s->target_length, 1),
        .loss_norm = scalar(b, "loss_norm", SY_F32, 1),
        .input_norm = scalar(b, "input_norm", SY_F32, 1),
        .target_norm = scalar(b, "target_norm", SY_F32, 1),
    };
    if (b->training && (b->config->model.dropout_rate > 0 || b->config->moe.jitter_noise > 0))
        b->rng = scalar(b, "rng", SY_I64, 4);
    return in;
}

static int begin(struct syi_build *b, const char *title, const struct syi_config *config,
                 const struct syi_shape *shape, struct syi_params *params, struct sy_error *err)
{
    memset(b, 0, sizeof *b);
    b->config = config;
    b->params = params;
    b->shape = *shape;
    b->rng = -1;
    b->dtype = config->model.dtype == SYI_DTYPE_BFLOAT16 ? SY_BF16 : SY_F32;
    int status = syi_model_check(config, err);
    if (!status) status = syi_program_new(title, &b->p, err);
    if (!status) syi_leaves(config, shape, b->p->leaf_count);
    return status;
}

/* Ends a recording: hands the program over, or frees it. */
static int end(struct syi_build *b, int status, struct syi_program **program, struct sy_error *err)
{
    if (!status) status = syi_program_status(b->p, err);
    if (!status) status = syi_params_sort(b->params, err);
    if (!status) status = syi_program_check(b->p, "record", err);
    if (status)
        syi_program_free(b->p);
    else
        *program = b->p;
    return status;
}

/* factor x mean (or sum) over MoE layers, an output; or -1 in a dense model. */
static int join_layers(struct syi_build *b, const int *layer, double factor, const char *name)
{
    double parts = b->config->moe.aux_loss_reduction == SYI_REDUCTION_SUM ? 1 : b->n_moe;
    if (!b->n_moe) return -1;
    int sum = layer[0];
    for (int i = 1; i < b->n_moe; i++) sum = syi_map2(b->p, SY_MAP_ADD, sum, layer[i]);
    int mean = syi_map1(b->p, SY_MAP_MULS, sum, factor / parts);
    syi_output(b->p, mean, name);
    return mean;
}

/* Forward pass and losses. Returns the scalar that is differentiated: loss of the batch's tokens / loss_norm
 * + the auxiliary losses (T5X losses.py, contrib/moe/models.py). */
static int forward_loss(struct syi_build *b)
{
    struct syi_program *p = b->p;
    const struct syi_config *c = b->config;
    struct syi_inputs in = training_inputs(b);
    int encoded = syi_encoder(b, &in);
    int logits = syi_decoder_logits(b, in.decoder_inputs, encoded, &in);
    syi_scope_push(p, "loss");
    SYI_AT(p);
    struct syi_xent x =
        syi_xent(p, logits, in.decoder_targets, in.loss_weights, c->loss.label_smoothing, c->loss.z_loss);
    int blocks[] = {x.loss, x.z, x.correct}; /* first the blocks of all: ranks gather them together */
    for (int i = 0; i < 3; i++) blocks[i] = syi_block_sum(p, SY_OP_BLOCK_SUM, blocks[i]);
    int sum = syi_tree_sum(p, blocks[0]), z = syi_tree_sum(p, blocks[1]),
        correct = syi_tree_sum(p, blocks[2]);
    int loss = syi_map2(p, SY_MAP_DIV, sum, in.loss_norm);
    int auxiliary = join_layers(b, b->balance, c->moe.aux_loss_factor, "auxiliary_loss");
    int router_z = join_layers(b, b->z, c->moe.router_z_loss_factor, "router_z_loss");
    SYI_AT(p);
    if (auxiliary >= 0) loss = syi_map2(p, SY_MAP_ADD, syi_map2(p, SY_MAP_ADD, loss, auxiliary), router_z);
    syi_output(p, sum, "loss_sum");
    syi_output(p, z, "z_sum");
    syi_output(p, correct, "correct_sum");
    syi_scope_pop(p);
    return loss;
}

/* Gradients end in carry tensors "grad/NAME": written by the first microbatch, added to by the next ones. */
static int store_gradients(struct syi_build *b, int loss, int next, struct sy_error *err)
{
    struct syi_program *p = b->p;
    size_t n = b->params->n;
    int *of = syi_alloc(n * sizeof *of, err), *gradient = syi_alloc(n * sizeof *gradient, err);
    int status = of && gradient ? syi_params_sort(b->params, err) : SY_ENOMEM;
    for (size_t i = 0; !status && i < n; i++) of[i] = syi_program_find(p, b->params->param[i].name);
    if (!status) status = syi_grad(p, loss, (int)n, of, gradient, err);
    for (size_t i = 0; !status && i < n; i++) {
        char name[176];
        if (b->params->param[i].init == SYI_INIT_EXPERT_BIAS) continue;
        snprintf(name, sizeof name, "grad/%s", b->params->param[i].name);
        if (gradient[i] < 0)
            status = syi_error(err, SY_EINTERNAL, "the loss does not depend on %s", b->params->param[i].name);
        else if (next) {
            struct syi_tensor t = p->tensor[of[i]];
            int sum = syi_tensor_add(p, name, SYI_CARRY, t.dtype, t.rank, t.dim, t.axis);
            syi_store(p, syi_map2(p, SY_MAP_ADD, sum, gradient[i]), sum);
        } else {
            syi_tensor_rename(p, gradient[i], name);
            p->tensor[gradient[i]].kind = SYI_CARRY;
        }
    }
    syi_free(of);
    syi_free(gradient);
    return status;
}

int syi_record_grad(const struct syi_config *config, const struct syi_shape *shape, int next,
                    struct syi_params *params, struct syi_program **program, struct sy_error *err)
{
    struct syi_build b;
    int status = begin(&b, next ? "grad_next" : "grad_first", config, shape, params, err);
    if (status) return status;
    b.training = 1;
    int loss = forward_loss(&b);
    status = syi_program_status(b.p, err);
    if (!status) status = store_gradients(&b, loss, next, err);
    return end(&b, status, program, err);
}

int syi_record_eval(const struct syi_config *config, const struct syi_shape *shape, struct syi_params *params,
                    struct syi_program **program, struct sy_error *err)
{
    struct syi_build b;
    int status = begin(&b, "eval", config, shape, params, err);
    if (status) return status;
    forward_loss(&b);
    return end(&b, SY_OK, program, err);
}

int syi_record_encode(const struct syi_config *config, const struct syi_shape *shape,
                      struct syi_params *params, struct syi_program **program, struct sy_error *err)
{
    struct syi_build b;
    struct syi_shape inputs = *shape;
    inputs.rows = syi_input_rows(shape);
    inputs.beams = 0;
    int status = begin(&b, "encode", config, &inputs, params, err);
    if (status) return status;
    struct syi_inputs in = {.encoder_ids = bucket_input(&b, "encoder_ids", SY_I32, shape->input_length),
                            .encoder = real_inputs(&b, "encoder", shape->input_length, 1),
                            .input_norm = -1};
    int encoded = syi_encoder(&b, &in);
    syi_encode_for_decoding(&b, encoded);
    char name[SYI_INPUT_NAME];
    syi_input_name(name, "encoded", inputs.rows, shape->input_length);
    syi_output(b.p, encoded, name);
    return end(&b, SY_OK, program, err);
}

int64_t syi_input_rows(const struct syi_shape *shape)
{
    return shape->beams > 1 ? shape->rows / shape->beams : shape->rows;
}

/* What a step leaves to the host: a choice, candidates, or logits. */
static void decode_outputs(struct syi_build *b, int logits)
{
    struct syi_program *p = b->p;
    int lse, id;
    SYI_AT(p);
    if (b->shape.sampling) {
        syi_output(p, logits, "decode/logits");
    } else if (b->shape.beams) {
        int add = input(b, "decode/add", SY_F32, 2, b->shape.rows, 1);
        int64_t most = b->config->model.vocab_size, k = 2 * b->shape.beams < most ? 2 * b->shape.beams : most;
        syi_softmax(p, logits, &lse);
        int score = syi_map2(p, SY_MAP_ADD, syi_map2(p, SY_MAP_SUB, logits, lse), add);
        syi_output(p, syi_top_k(p, score, k, &id), "decode/top_value");
        syi_output(p, id, "decode/top_id");
    } else {
        syi_output(p, syi_argmax(p, logits), "decode/next");
    }
}

int syi_record_decode_step(const struct syi_config *config, const struct syi_shape *shape,
                           struct syi_params *params, struct syi_program **program, struct sy_error *err)
{
    struct syi_build b;
    struct syi_shape inputs = *shape;
    int status = begin(&b, "decode_step", config, shape, params, err);
    if (status) return status;
    b.decoding = 1;
    int token = input(&b, "decode/token", SY_I32, 2, shape->rows, 1);
    scalar(&b, "decode/position", SY_I32, 1);
    if (shape->beams && !shape->sampling) input(&b, "decode/rows", SY_I32, 1, shape->rows, 0);
    struct syi_inputs in = {.decoder = {input(&b, "decode/lengths", SY_I32, 1, shape->rows, 0), -1, -1},
                            .target_norm = -1};
    b.shape.rows = syi_input_rows(&inputs);
    in.encoder = real_inputs(&b, "encoder", shape->input_length, 0);
    b.shape.rows = shape->rows;
    decode_outputs(&b, syi_decoder_logits(&b, token, -1, &in));
    return end(&b, SY_OK, program, err);
}

static int param_of(struct syi_build *b, const char *name)
{
    const struct syi_param *param = syi_params_find(b->params, name);
    if (!param) return syi_program_fail(b->p, SY_EINTERNAL, "there is no parameter %s", name);
    int there = syi_program_find(b->p, name);
    return there >= 0 ? there
                      : syi_tensor_add(b->p, name, SYI_PARAM, SY_F32, param->rank, param->dim, param->axis);
}

int syi_record_weights(const struct syi_config *config, const struct syi_shape *shape,
                       struct syi_params *params, struct syi_program **program, struct sy_error *err)
{
    struct syi_build b;
    int status = begin(&b, "weights", config, shape, params, err);
    if (status) return status;
    for (size_t i = 0; !b.p->status && i < params->n_copies; i++) {
        const struct syi_copy *copy = &params->copy[i];
        int part[3];
        for (int k = 0; k < copy->n; k++) part[k] = param_of(&b, copy->part[k]);
        SYI_AT(b.p);
        int to = copy->n == 1 ? syi_cast(b.p, part[0], SY_BF16)
                              : syi_as(b.p, syi_pack(b.p, copy->n, part), SY_BF16);
        if (to < 0) break;
        syi_tensor_rename(b.p, to, copy->name);
        b.p->tensor[to].kind = SYI_CARRY;
    }
    return end(&b, SY_OK, program, err);
}
