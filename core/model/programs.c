/* SPDX-License-Identifier: Apache-2.0 */
/* The programs of a run: which inputs each has, what it computes and what it leaves in outputs and carry
 * tensors. */
#include "config.h"

#include <string.h>

#include "base/optimizers.h"
#include "model/model.h"
#include "program/grad.h"
#include "program/record.h"

static int input(struct syi_build *b, enum syi_role role, const char *name, enum sy_dtype dtype, int rank,
                 int64_t dim0, int64_t dim1)
{
    int64_t dim[2] = {dim0, dim1};
    uint8_t axis[2] = {SYI_AXIS_BATCH, SYI_AXIS_LENGTH};
    return syi_role_set(b->p, syi_tensor_add(b->p, name, SYI_INPUT, dtype, rank, dim, axis), role, 0);
}

static int vector(struct syi_build *b, enum syi_role role, const char *name, enum sy_dtype dtype, int64_t n)
{
    return syi_role_set(b->p, syi_tensor_add(b->p, name, SYI_INPUT, dtype, 1, &n, NULL), role, 0);
}

/* Inputs are shared by name over all programs of a session, so the name of one whose shape depends on the
 * bucket carries it: "encoder_ids/64x24", without a length "encoder_lengths/64". */
static void shaped_name(char name[80], const char *what, int64_t rows, int64_t length)
{
    if (length)
        snprintf(name, 80, "%s/%lldx%lld", what, (long long)rows, (long long)length);
    else
        snprintf(name, 80, "%s/%lld", what, (long long)rows);
}

/* An input of the bucket, named after its role. length 0: a number a row. */
static int bucket_input(struct syi_build *b, enum syi_role role, enum sy_dtype dtype, int64_t length)
{
    char name[80];
    shaped_name(name, syi_role_name(role), b->shape.rows, length);
    return input(b, role, name, dtype, length ? 2 : 1, b->shape.rows, length);
}

/* The same for a program's output. */
static void bucket_output(struct syi_build *b, enum syi_role role, int tensor, int64_t length)
{
    char name[80];
    shaped_name(name, syi_role_name(role), b->shape.rows, length);
    syi_output(b->p, syi_role_set(b->p, tensor, role, 0), name);
}

int syi_uses_segments(const struct syi_config *config, const struct syi_shape *shape)
{
    return shape->packed || syi_compat(config, config->model.masked_row) ||
           syi_compat(config, config->model.padding_mask);
}

/* Real positions of the encoder's side, or the decoder's; mask: whether norms and routers need one. */
static struct syi_real real_inputs(struct syi_build *b, int decoder, int mask)
{
    static const enum syi_role role[2][3] = {
        {SYI_ROLE_ENCODER_LENGTHS, SYI_ROLE_ENCODER_SEGMENTS, SYI_ROLE_ENCODER_MASK},
        {SYI_ROLE_DECODER_LENGTHS, SYI_ROLE_DECODER_SEGMENTS, SYI_ROLE_DECODER_MASK}};
    struct syi_real real = {-1, -1, -1};
    int64_t length = decoder ? b->shape.target_length : b->shape.input_length;
    if (syi_uses_segments(b->config, &b->shape))
        real.segments = bucket_input(b, role[decoder][1], SY_I32, length);
    else
        real.lengths = bucket_input(b, role[decoder][0], SY_I32, 0);
    if (mask) real.mask = bucket_input(b, role[decoder][2], SY_F32, length);
    return real;
}

/* A batch with targets, without what sums over it are divided by. */
static struct syi_inputs batch_inputs(struct syi_build *b)
{
    const struct syi_shape *s = &b->shape;
    return (struct syi_inputs){
        .encoder_ids = bucket_input(b, SYI_ROLE_ENCODER_IDS, SY_I32, s->input_length),
        .decoder_inputs = bucket_input(b, SYI_ROLE_DECODER_INPUTS, SY_I32, s->target_length),
        .decoder_targets = bucket_input(b, SYI_ROLE_DECODER_TARGETS, SY_I32, s->target_length),
        .loss_weights = bucket_input(b, SYI_ROLE_LOSS_WEIGHTS, SY_F32, s->target_length),
        .encoder = real_inputs(b, 0, 1),
        .decoder = real_inputs(b, 1, 1),
        .loss_norm = -1,
        .input_norm = -1,
        .target_norm = -1,
        .position = -1,
        .rows = -1,
    };
}

static struct syi_inputs training_inputs(struct syi_build *b)
{
    struct syi_inputs in = batch_inputs(b);
    in.loss_norm = vector(b, SYI_ROLE_LOSS_NORM, "loss_norm", SY_F32, 1);
    in.input_norm = vector(b, SYI_ROLE_INPUT_NORM, "input_norm", SY_F32, 1);
    in.target_norm = vector(b, SYI_ROLE_TARGET_NORM, "target_norm", SY_F32, 1);
    if (b->training && (b->config->model.dropout_rate > 0 || b->config->moe.jitter_noise > 0))
        b->rng = vector(b, SYI_ROLE_RNG, "rng", SY_I64, 4);
    return in;
}

static int begin(struct syi_build *b, const char *title, const struct syi_config *config,
                 const struct syi_shape *shape, struct syi_model *model, struct sy_error *err)
{
    memset(b, 0, sizeof *b);
    b->config = config;
    b->model = model;
    b->shape = *shape;
    b->rng = -1;
    b->dtype = config->model.dtype == SYI_DTYPE_BFLOAT16 ? SY_BF16 : SY_F32;
    b->int8 = config->model.weights == SYI_WEIGHTS_INT8;
    int status = syi_program_new(title, &b->p, err);
    if (!status) syi_leaves(config, shape, b->p->leaf_count);
    return status;
}

/* Ends a recording: hands the program over, or frees it. */
static int end(struct syi_build *b, int status, struct syi_program **program, struct sy_error *err)
{
    if (!status) status = syi_program_status(b->p, err);
    if (!status) status = syi_model_sort(b->model, err);
    if (!status) status = syi_program_check(b->p, "record", err);
    if (status)
        syi_program_free(b->p);
    else
        *program = b->p;
    return status;
}

/* factor x mean (or sum) of a loss over MoE layers in their order, an output; or -1 in a dense model. */
static int join_layers(struct syi_build *b, enum syi_role loss, double factor, enum syi_step_value value)
{
    int sum = -1, n = 0;
    size_t recorded = b->p->n_tensors;
    for (size_t i = 0; i < recorded; i++) {
        if (b->p->tensor[i].role != loss) continue;
        sum = n++ ? syi_map2(b->p, SY_MAP_ADD, sum, (int)i) : (int)i;
    }
    if (!n) return -1;
    double parts = b->config->moe.aux_loss_reduction == SYI_REDUCTION_SUM ? 1 : n;
    int mean = syi_map1(b->p, SY_MAP_MULS, sum, factor / parts);
    syi_step_output(b->p, value, mean);
    return mean;
}

/* What label smoothing adds to the cross entropy, an output. sum, z: of the loss that is trained on and its z part. */
static void report_smoothing(struct syi_build *b, const struct syi_inputs *in, int logits, int sum, int z)
{
    struct syi_program *p = b->p;
    if (b->config->loss.label_smoothing == 0) return;
    int plain = syi_xent(p, logits, in->decoder_targets, in->loss_weights, 0, 0).loss;
    plain = syi_tree_sum(p, syi_block_sum(p, SY_OP_BLOCK_SUM, plain));
    syi_step_output(p, SYI_STEP_SMOOTHING, syi_map2(p, SY_MAP_SUB, syi_map2(p, SY_MAP_SUB, sum, z), plain));
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
    int auxiliary =
        join_layers(b, SYI_ROLE_LAYER_AUXILIARY_LOSS, c->moe.aux_loss_factor, SYI_STEP_AUXILIARY_LOSS);
    int router_z =
        join_layers(b, SYI_ROLE_LAYER_ROUTER_Z_LOSS, c->moe.router_z_loss_factor, SYI_STEP_ROUTER_Z_LOSS);
    SYI_AT(p);
    if (auxiliary >= 0) loss = syi_map2(p, SY_MAP_ADD, syi_map2(p, SY_MAP_ADD, loss, auxiliary), router_z);
    syi_step_output(p, SYI_STEP_TOKEN_LOSS, sum);
    syi_step_output(p, SYI_STEP_Z_LOSS, z);
    syi_step_output(p, SYI_STEP_CORRECT, correct);
    report_smoothing(b, &in, logits, sum, z);
    syi_scope_pop(p);
    return loss;
}

void syi_gradient_name(char name[SYI_GRADIENT_NAME], const struct syi_param *param)
{
    snprintf(name, SYI_GRADIENT_NAME, "grad/%s", param->name);
}

int syi_store_gradient(struct syi_program *p, const struct syi_param *param, int gradient, int next)
{
    char name[SYI_GRADIENT_NAME];
    syi_gradient_name(name, param);
    if (!next) {
        syi_tensor_rename(p, gradient, name);
        p->tensor[gradient].kind = SYI_CARRY;
        return syi_role_set(p, gradient, SYI_ROLE_GRADIENT, param->id);
    }
    int sum = syi_tensor_add(p, name, SYI_CARRY, SY_F32, param->rank, param->dim, param->axis);
    syi_role_set(p, sum, SYI_ROLE_GRADIENT, param->id);
    syi_store(p, syi_map2(p, SY_MAP_ADD, sum, gradient), sum);
    return sum;
}

enum sy_dtype syi_gradient_dtype(const struct syi_config *config, const struct syi_param *param)
{
    return config->train.gradient_dtype == SYI_DTYPE_BFLOAT16 && param->rank >= 2 ? SY_BF16 : SY_F32;
}

static void blocks_name(char name[SYI_GRADIENT_NAME], const struct syi_param *param)
{
    snprintf(name, SYI_GRADIENT_NAME, "grad_blocks/%s", param->name);
}

int syi_gradient_blocks(struct syi_program *p, const struct syi_param *param)
{
    char name[SYI_GRADIENT_NAME];
    int64_t count[SY_MAX_DIMS];
    blocks_name(name, param);
    for (int i = 0; i < param->rank; i++) count[i] = p->leaf_count[param->axis[i]];
    int blocks = syi_tensor_add(p, name, SYI_CARRY, SY_F32, param->rank, count, param->axis);
    return syi_role_set(p, blocks, SYI_ROLE_GRADIENT_BLOCKS, param->id);
}

void syi_clip_example(struct syi_program *p, int n, int *x, double clip)
{
    SYI_AT(p);
    int over = syi_map1(p, SY_MAP_MULS, syi_norm_of_all(p, n, x, NULL), 1 / clip);
    int divisor = syi_map2(p, SY_MAP_MAX, syi_constant_like(p, 1, over), over);
    for (int i = 0; i < n; i++) x[i] = syi_map2(p, SY_MAP_DIV, x[i], divisor);
}

/* Where an optimizer clips each example: a microbatch is one, and so are its gradients. */
static int clip_part(struct syi_build *b, int part, double clip, int *gradient, struct sy_error *err)
{
    const struct syi_model *model = b->model;
    int n = 0, *own = syi_alloc(model->n * sizeof *own, err);
    size_t *at = syi_alloc(model->n * sizeof *at, err);
    for (size_t i = 0; own && at && i < model->n; i++) {
        const struct syi_param *param = &model->param[i];
        if (param->init == SYI_INIT_EXPERT_BIAS || syi_optimizer_of(b->config, param->name) != part) continue;
        own[n] = gradient[i];
        at[n++] = i;
    }
    int status = own && at ? SY_OK : SY_ENOMEM;
    if (n) syi_clip_example(b->p, n, own, clip);
    for (int k = 0; k < n; k++) gradient[at[k]] = own[k];
    syi_free(own);
    syi_free(at);
    return status;
}

static int clip_examples(struct syi_build *b, int *gradient, struct sy_error *err)
{
    int status = SY_OK;
    for (int i = 0; i < b->config->optimizer.n && !status; i++) {
        double clip;
        status = syi_optimizer_example_clip(&b->config->optimizer.part[i], &clip, err);
        if (!status && clip > 0) status = clip_part(b, i, clip, gradient, err);
    }
    return status;
}

/* What was summed is rounded here if it is kept in bfloat16; the blocks are those of what is kept, and of the last microbatch: of
 * more than one, those of the first are nobody's. */
static void store_gradient(struct syi_build *b, const struct syi_param *param, int gradient, int next)
{
    char name[SYI_GRADIENT_NAME];
    SYI_AT(b->p);
    gradient = syi_cast(b->p, gradient, syi_gradient_dtype(b->config, param));
    int stored = syi_store_gradient(b->p, param, gradient, next);
    if (!next && b->config->train.microbatches > 1) return;
    int blocks = syi_block_sum(b->p, SY_OP_BLOCK_SUMSQ, stored);
    if (blocks < 0) return;
    blocks_name(name, param);
    syi_tensor_rename(b->p, blocks, name);
    b->p->tensor[blocks].kind = SYI_CARRY;
    syi_role_set(b->p, blocks, SYI_ROLE_GRADIENT_BLOCKS, param->id);
}

static int store_gradients(struct syi_build *b, int loss, int next, struct sy_error *err)
{
    const struct syi_model *model = b->model;
    size_t n = model->n;
    int *tensor = syi_alloc(n * sizeof *tensor, err), *of = syi_alloc(n * sizeof *of, err),
        *gradient = syi_alloc(n * sizeof *gradient, err);
    int status = tensor && of && gradient ? SY_OK : SY_ENOMEM;
    if (!status) syi_role_list(b->p, SYI_ROLE_PARAMETER, tensor, n);
    for (size_t i = 0; !status && i < n; i++) of[i] = tensor[model->param[i].id];
    if (!status) status = syi_grad(b->p, loss, (int)n, of, gradient, err);
    if (!status) status = clip_examples(b, gradient, err);
    for (size_t i = 0; !status && i < n; i++) {
        const struct syi_param *param = &model->param[i];
        if (param->init == SYI_INIT_EXPERT_BIAS) continue;
        if (gradient[i] < 0)
            status = syi_error(err, SY_EINTERNAL, "the loss does not depend on %s", param->name);
        else
            store_gradient(b, param, gradient[i], next);
    }
    syi_free(tensor);
    syi_free(of);
    syi_free(gradient);
    return status;
}

/* Ends the recording of a program with losses. */
static int end_recorded(struct syi_build *b, int status, struct syi_recorded *recorded, struct sy_error *err)
{
    memcpy(recorded->places, b->places, sizeof recorded->places);
    return end(b, status, &recorded->program, err);
}

int syi_record_grad(const struct syi_config *config, const struct syi_shape *shape, int next,
                    struct syi_model *model, struct syi_recorded *recorded, struct sy_error *err)
{
    struct syi_build b;
    int status = begin(&b, next ? "grad_next" : "grad_first", config, shape, model, err);
    if (status) return status;
    b.training = 1;
    b.int8 = 0; /* what is trained is float32 */
    int loss = forward_loss(&b);
    status = syi_program_status(b.p, err);
    if (!status) status = syi_model_sort(b.model, err);
    if (!status) status = store_gradients(&b, loss, next, err);
    if (!status) status = syi_keep_copies(&b, err);
    return end_recorded(&b, status, recorded, err);
}

int syi_record_eval(const struct syi_config *config, const struct syi_shape *shape, struct syi_model *model,
                    struct syi_recorded *recorded, struct sy_error *err)
{
    struct syi_build b;
    int status = begin(&b, "eval", config, shape, model, err);
    if (status) return status;
    forward_loss(&b);
    return end_recorded(&b, SY_OK, recorded, err);
}

int syi_record_score(const struct syi_config *config, const struct syi_shape *shape, struct syi_model *model,
                     struct syi_program **program, struct sy_error *err)
{
    struct syi_build b;
    int status = begin(&b, "score", config, shape, model, err);
    if (status) return status;
    struct syi_inputs in = batch_inputs(&b);
    int logits = syi_decoder_logits(&b, in.decoder_inputs, syi_encoder(&b, &in), &in);
    syi_scope_push(b.p, "loss");
    SYI_AT(b.p);
    int loss = syi_xent(b.p, logits, in.decoder_targets, in.loss_weights, 0, 0).loss;
    syi_scope_pop(b.p);
    bucket_output(&b, SYI_ROLE_TOKEN_LOSS, loss, shape->target_length);
    return end(&b, SY_OK, program, err);
}

int syi_record_encode(const struct syi_config *config, const struct syi_shape *shape, struct syi_model *model,
                      struct syi_program **program, struct sy_error *err)
{
    struct syi_build b;
    struct syi_shape inputs = *shape;
    inputs.rows = syi_input_rows(shape);
    inputs.beams = 0;
    int status = begin(&b, "encode", config, &inputs, model, err);
    if (status) return status;
    struct syi_inputs in = {.encoder_ids =
                                bucket_input(&b, SYI_ROLE_ENCODER_IDS, SY_I32, shape->input_length),
                            .encoder = real_inputs(&b, 0, 1),
                            .input_norm = -1};
    int encoded = syi_encoder(&b, &in);
    syi_encode_for_decoding(&b, encoded);
    bucket_output(&b, SYI_ROLE_ENCODED, encoded, shape->input_length);
    return end(&b, SY_OK, program, err);
}

static void decode_output(struct syi_build *b, enum syi_role role, const char *name, int tensor)
{
    syi_output(b->p, syi_role_set(b->p, tensor, role, 0), name);
}

/* What a step leaves to the host: a choice, candidates, or logits. */
static void decode_outputs(struct syi_build *b, int logits)
{
    struct syi_program *p = b->p;
    int lse, id;
    SYI_AT(p);
    if (b->shape.sampling) {
        decode_output(b, SYI_ROLE_DECODE_LOGITS, "decode/logits", logits);
    } else if (b->shape.beams) {
        int add = input(b, SYI_ROLE_DECODE_ADD, "decode/add", SY_F32, 2, b->shape.rows, 1);
        int64_t most = b->config->model.vocab_size, k = 2 * b->shape.beams < most ? 2 * b->shape.beams : most;
        syi_softmax(p, logits, &lse);
        int score = syi_map2(p, SY_MAP_ADD, syi_map2(p, SY_MAP_SUB, logits, lse), add);
        decode_output(b, SYI_ROLE_DECODE_TOP_VALUE, "decode/top_value", syi_top_k(p, score, k, &id));
        decode_output(b, SYI_ROLE_DECODE_TOP_ID, "decode/top_id", id);
    } else {
        decode_output(b, SYI_ROLE_DECODE_NEXT, "decode/next", SYI_RECORD(p, SY_OP_ARGMAX, NULL, logits));
    }
}

int syi_record_decode_step(const struct syi_config *config, const struct syi_shape *shape,
                           struct syi_model *model, struct syi_program **program, struct sy_error *err)
{
    struct syi_build b;
    int64_t rows = shape->rows;
    int status = begin(&b, "decode_step", config, shape, model, err);
    if (status) return status;
    b.decoding = 1;
    int token = input(&b, SYI_ROLE_DECODE_TOKEN, "decode/token", SY_I32, 2, rows, 1);
    struct syi_inputs in = {.target_norm = -1, .rows = -1};
    in.position = vector(&b, SYI_ROLE_DECODE_POSITION, "decode/position", SY_I32, 1);
    if (shape->beams && !shape->sampling)
        in.rows = input(&b, SYI_ROLE_DECODE_ROWS, "decode/rows", SY_I32, 1, rows, 0);
    int lengths = input(&b, SYI_ROLE_DECODE_LENGTHS, "decode/lengths", SY_I32, 1, rows, 0);
    in.decoder = (struct syi_real){lengths, -1, -1};
    b.shape.rows = syi_input_rows(shape);
    in.encoder = real_inputs(&b, 0, 0);
    b.shape.rows = rows;
    decode_outputs(&b, syi_decoder_logits(&b, token, -1, &in));
    return end(&b, SY_OK, program, err);
}

int syi_record_weights(const struct syi_config *config, const struct syi_shape *shape,
                       struct syi_model *model, struct syi_program **program, struct sy_error *err)
{
    struct syi_build b;
    int status = begin(&b, "weights", config, shape, model, err);
    if (status) return status;
    status = syi_record_copies(&b, err);
    return end(&b, status, program, err);
}
