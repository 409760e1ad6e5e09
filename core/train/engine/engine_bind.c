/* SPDX-License-Identifier: Apache-2.0 */
/* Making an engine: the buckets, the programs of each, one session for all, and where inputs and outputs lie.
 */
#include "config.h"

#include <string.h>

#include "optim/schedule.h"
#include "train/engine/engine_internal.h"

int syi_engine_buckets(const struct syi_config *config, struct syi_bucket buckets[SYI_MAX_BUCKETS])
{
    const struct syi_ints *list = &config->data.length_buckets;
    int64_t inputs[SYI_CONFIG_INTS + 1], targets[SYI_CONFIG_INTS + 1];
    int n = 0, n_in = 0, n_out = 0;
    for (int i = 0; i < list->n; i++) {
        if (list->values[i] < config->data.max_input_length) inputs[n_in++] = list->values[i];
        if (list->values[i] < config->data.max_target_length) targets[n_out++] = list->values[i];
    }
    inputs[n_in++] = config->data.max_input_length;
    targets[n_out++] = config->data.max_target_length;
    for (int i = 0; i < n_in; i++)
        for (int j = 0; j < n_out; j++)
            if (n < SYI_MAX_BUCKETS)
                buckets[n++] = (struct syi_bucket){(int32_t)inputs[i], (int32_t)targets[j]};
    return n_in * n_out;
}

/* The shape of a bucket; a program trains, evaluates or decodes. */
static struct syi_shape bucket_shape(const struct syi_config *c, const struct syi_bucket *all, int n,
                                     int bucket, int which)
{
    const struct syi_bucket *last = &all[n - 1], *first = &all[0], *now = &all[bucket];
    struct syi_shape shape = {.rows = which <= SYI_UPDATE ? c->data.batch_size / c->train.microbatches
                                                          : syi_config_decode_rows(c),
                              .input_length = now->input_length,
                              .target_length = now->target_length};
    if (which >= SYI_ENCODE) {
        int64_t sequences = syi_engine_sequences(c);
        shape.beams = sequences > 1 ? sequences : 0;
        shape.rows *= sequences;
        shape.sampling = syi_engine_samples(c);
        shape.target_length = c->decode.max_length ? c->decode.max_length : c->data.max_target_length;
    }
    shape.longest_length =
        last->input_length > last->target_length ? last->input_length : last->target_length;
    shape.shortest_length =
        first->input_length < first->target_length ? first->input_length : first->target_length;
    return shape;
}

struct syi_shape syi_engine_shape(const struct syi_engine *e, int bucket, int which)
{
    struct syi_shape shape = bucket_shape(&e->config, e->bucket, e->n_buckets, bucket, which);
    shape.packed = (e->use & SYI_USE_PACKED) != 0;
    return shape;
}

struct syi_shape syi_config_shape(const struct syi_config *config, int which)
{
    struct syi_bucket bucket[SYI_MAX_BUCKETS];
    int n = syi_engine_buckets(config, bucket);
    if (n > SYI_MAX_BUCKETS) n = SYI_MAX_BUCKETS;
    return bucket_shape(config, bucket, n, n - 1, which);
}

static int program_index(const struct syi_engine *e, int which)
{
    if (which == SYI_UPDATE) return e->update;
    return which == SYI_WEIGHTS ? e->copying : e->bound[e->n_buckets - 1].program[which];
}

const struct syi_program *syi_engine_program(const struct syi_engine *e, int which)
{
    int index = program_index(e, which);
    return index < 0 ? NULL : syi_session_program(e->session, index);
}

const struct syi_recomputed *syi_engine_recomputed(const struct syi_engine *e, int which)
{
    return syi_session_recomputed(e->session, program_index(e, which));
}

static int check(struct syi_engine *e, struct sy_error *err)
{
    const struct syi_config *c = &e->config;
    if (e->n_buckets > SYI_MAX_BUCKETS)
        return syi_error(err, SY_EINVAL,
                         "data.length_buckets gives %d pairs of lengths, at most %d are possible",
                         e->n_buckets, SYI_MAX_BUCKETS);
    if (c->data.batch_size % c->train.microbatches)
        return syi_error(err, SY_EINVAL, "train.microbatches=%lld does not divide data.batch_size=%lld",
                         (long long)c->train.microbatches, (long long)c->data.batch_size);
    int status = syi_schedule_check(c, err);
    if (status) return status;
    if (c->decode.beams > 1 && c->decode.temperature > 0)
        return syi_error(
            err, SY_EINVAL,
            "decode.beams=%lld and decode.temperature=%g: a beam search draws nothing, set one of "
            "them to its default",
            (long long)c->decode.beams, c->decode.temperature);
    if (c->decode.topk > c->model.vocab_size)
        return syi_error(err, SY_EINVAL, "decode.topk=%lld is more than model.vocab_size=%lld",
                         (long long)c->decode.topk, (long long)c->model.vocab_size);
    return SY_OK;
}

static int add(struct syi_engine *e, int which, int bucket, int *index, struct sy_error *err)
{
    struct syi_shape shape = syi_engine_shape(e, bucket, which);
    struct syi_program *program;
    enum syi_stage stage = (e->use & SYI_USE_UNFUSED) ? SYI_STAGE_PARTITION : SYI_STAGE_FUSE;
    int status = syi_pipeline(&e->config, &e->rank.mesh, which, &shape, stage, &e->params, &program, err);
    return status ? status : syi_session_add(e->session, program, index, err);
}

/* Decoding programs depend on the input length only: the first bucket of a length has them. */
static int same_input(const struct syi_engine *e, int bucket)
{
    for (int i = 0; i < bucket; i++)
        if (e->bucket[i].input_length == e->bucket[bucket].input_length) return i;
    return bucket;
}

static int add_bucket(struct syi_engine *e, int i, struct sy_error *err)
{
    int *program = e->bound[i].program, status = SY_OK, twin = same_input(e, i);
    for (int w = 0; w < SYI_WHICH_COUNT; w++) program[w] = -1;
    if (e->use & SYI_USE_TRAIN) status = add(e, SYI_GRAD_FIRST, i, &program[SYI_GRAD_FIRST], err);
    if (!status && (e->use & SYI_USE_TRAIN) && e->config.train.microbatches > 1)
        status = add(e, SYI_GRAD_NEXT, i, &program[SYI_GRAD_NEXT], err);
    if (!status && (e->use & SYI_USE_EVAL)) status = add(e, SYI_EVAL, i, &program[SYI_EVAL], err);
    if (!status && (e->use & SYI_USE_DECODE) && twin != i) {
        program[SYI_ENCODE] = e->bound[twin].program[SYI_ENCODE];
        program[SYI_DECODE_STEP] = e->bound[twin].program[SYI_DECODE_STEP];
    } else if (!status && (e->use & SYI_USE_DECODE)) {
        status = add(e, SYI_ENCODE, i, &program[SYI_ENCODE], err);
        if (!status) status = add(e, SYI_DECODE_STEP, i, &program[SYI_DECODE_STEP], err);
    }
    return status;
}

static const struct sy_tensor *shaped(struct syi_engine *e, const char *what, int64_t rows, int64_t length)
{
    char name[SYI_INPUT_NAME];
    syi_input_name(name, what, rows, length);
    return syi_session_tensor(e->session, name);
}

static struct syi_bucket_inputs find_inputs(struct syi_engine *e, int bucket, int64_t rows)
{
    int64_t in = e->bucket[bucket].input_length, out = e->bucket[bucket].target_length;
    return (struct syi_bucket_inputs){
        shaped(e, "encoder_ids", rows, in),      shaped(e, "decoder_inputs", rows, out),
        shaped(e, "decoder_targets", rows, out), shaped(e, "loss_weights", rows, out),
        shaped(e, "encoder_lengths", rows, 0),   shaped(e, "decoder_lengths", rows, 0),
        shaped(e, "encoder_segments", rows, in), shaped(e, "decoder_segments", rows, out),
        shaped(e, "encoder_mask", rows, in),     shaped(e, "decoder_mask", rows, out),
    };
}

static const struct sy_tensor *layer_tensor(struct syi_engine *e, const struct syi_moe_layer *layer,
                                            const char *what)
{
    char name[200];
    snprintf(name, sizeof name, "experts/%s/%s", layer->name, what);
    return syi_session_tensor(e->session, name);
}

/* Sizes of a layer's groups, by bucket. */
static int measure_layer(struct syi_engine *e, struct syi_moe_layer *layer, struct sy_error *err)
{
    const struct syi_config *c = &e->config;
    int type = syi_router_type(c, layer->decoder);
    struct syi_build *b = syi_alloc(sizeof *b, err);
    if (!b) return SY_ENOMEM;
    int which = (e->use & SYI_USE_TRAIN) ? SYI_GRAD_FIRST : SYI_EVAL, status = SY_OK;
    b->config = c;
    b->training = which == SYI_GRAD_FIRST;
    for (int i = 0; !status && i < e->n_buckets; i++) {
        struct syi_groups groups = {0};
        b->shape = syi_engine_shape(e, i, which);
        status = syi_groups(b, type, b->shape.rows,
                            layer->decoder ? b->shape.target_length : b->shape.input_length, &groups, err);
        layer->slots[i] = groups.slots;
        layer->tokens_all[i] = groups.count * groups.tokens;
    }
    syi_free(b);
    return status;
}

/* MoE layers in the order of the forward pass: the "experts/LAYER/chosen" outputs of a program. */
static int find_moe_layers(struct syi_engine *e, struct sy_error *err)
{
    int index =
        (e->use & SYI_USE_TRAIN) ? e->bound[0].program[SYI_GRAD_FIRST] : e->bound[0].program[SYI_EVAL];
    if (index < 0) return SY_OK;
    const struct syi_program *p = syi_session_program(e->session, index);
    for (size_t i = 0; i < p->n_tensors && e->n_moe < SYI_MAX_MOE_LAYERS; i++) {
        const char *name = syi_program_name(p, p->tensor[i].name);
        size_t length = strlen(name);
        if (p->tensor[i].kind != SYI_OUTPUT || !syi_pattern_match("experts/*/chosen", name)) continue;
        struct syi_moe_layer *layer = &e->moe[e->n_moe++];
        char direction[200];
        snprintf(layer->name, sizeof layer->name, "%.*s", (int)(length - 8 - 7), name + 8);
        layer->chosen = syi_session_tensor(e->session, name);
        layer->kept = layer_tensor(e, layer, "kept");
        layer->tokens = layer_tensor(e, layer, "tokens");
        layer->confidence = layer_tensor(e, layer, "confidence");
        layer->balance = layer_tensor(e, layer, "auxiliary_loss");
        layer->z = layer_tensor(e, layer, "router_z_loss");
        snprintf(direction, sizeof direction, "direction/%s/router/expert_bias", layer->name);
        layer->direction = syi_session_tensor(e->session, direction);
        layer->decoder = !strncmp(layer->name, "decoder/", 8);
        int status = measure_layer(e, layer, err);
        if (status) return status;
    }
    if (!e->n_moe) return SY_OK;
    e->counts = syi_alloc((size_t)e->n_moe * (size_t)e->config.moe.num_experts * 2 * sizeof *e->counts, err);
    return e->counts ? SY_OK : SY_ENOMEM;
}

static void find_tensors(struct syi_engine *e)
{
    struct {
        const struct sy_tensor **to;
        const char *name;
    } const list[] = {
        {&e->rng, "rng"},
        {&e->loss_norm, "loss_norm"},
        {&e->input_norm, "input_norm"},
        {&e->target_norm, "target_norm"},
        {&e->loss_sum, "loss_sum"},
        {&e->z_sum, "z_sum"},
        {&e->correct_sum, "correct_sum"},
        {&e->auxiliary_loss, "auxiliary_loss"},
        {&e->router_z_loss, "router_z_loss"},
        {&e->grad_norm, "grad_norm"},
        {&e->ok, "ok"},
        {&e->token, "decode/token"},
        {&e->position, "decode/position"},
        {&e->lengths, "decode/lengths"},
        {&e->next, "decode/next"},
    };
    for (size_t i = 0; i < SYI_COUNT(list); i++) *list[i].to = syi_session_tensor(e->session, list[i].name);
    struct syi_optim_scalar scalar[SYI_OPTIM_SCALARS];
    int n = syi_optim_scalar_list(&e->config, 0, 0, scalar, SYI_OPTIM_SCALARS);
    for (int i = 0; i < n; i++) e->scalar[i] = syi_session_tensor(e->session, scalar[i].name);
    for (int i = 0; i < e->n_buckets; i++) {
        e->bound[i].train = find_inputs(e, i, e->train_rows);
        e->bound[i].eval = find_inputs(e, i, e->eval_rows);
    }
}

static int bind(struct syi_engine *e, int plan_only, struct sy_error *err)
{
    struct syi_session_options options = {.backend = e->rank.backend,
                                          .comm = e->rank.comm,
                                          .mesh = &e->rank.mesh,
                                          .reproducible = e->config.reproducible.enabled,
                                          .budget = (uint64_t)e->config.memory.budget,
                                          .available = e->config.memory.check ? e->rank.memory : 0,
                                          .plan_only = plan_only,
                                          .check_reuse = (e->use & SYI_USE_APART) != 0};
    int status = syi_session_new(&options, &e->session, err);
    for (int i = 0; !status && i < e->n_buckets; i++) status = add_bucket(e, i, err);
    e->update = e->copying = -1;
    if (!status && (e->use & SYI_USE_TRAIN)) status = add(e, SYI_UPDATE, 0, &e->update, err);
    if (!status && e->params.n_copies) status = add(e, SYI_WEIGHTS, 0, &e->copying, err);
    if (!status) status = syi_session_bind(e->session, err);
    if (!status) status = find_moe_layers(e, err);
    if (!status) find_tensors(e);
    return status;
}

static int take_buffers(struct syi_engine *e, struct sy_error *err)
{
    struct syi_shape shape = syi_engine_shape(e, e->n_buckets - 1, SYI_GRAD_FIRST);
    size_t rows = (size_t)(e->train_rows > e->eval_rows ? e->train_rows : e->eval_rows);
    size_t n = rows * (size_t)shape.longest_length;
    e->finished = syi_alloc((size_t)e->eval_rows, err);
    e->weights = syi_alloc(n * sizeof *e->weights, err);
    e->mask = syi_alloc(n * sizeof *e->mask, err);
    e->segments = syi_alloc(n * sizeof *e->segments, err);
    return e->finished && e->weights && e->mask && e->segments ? SY_OK : SY_ENOMEM;
}

int syi_engine_new(const struct syi_config *config, const struct syi_rank *rank, int use, int plan_only,
                   struct syi_engine **engine, struct sy_error *err)
{
    struct syi_engine *e = syi_alloc(sizeof *e, err);
    if (!e) return SY_ENOMEM;
    e->config = *config;
    e->rank = *rank;
    e->use = use;
    e->stale = 1;
    e->n_buckets = syi_engine_buckets(config, e->bucket);
    e->train_rows = config->data.batch_size / config->train.microbatches;
    e->eval_rows = syi_config_decode_rows(config);
    int status = check(e, err);
    if (!status) {
        struct syi_shape shape = syi_engine_shape(e, 0, SYI_GRAD_FIRST);
        e->groups = shape.rows / syi_group_rows(config, &shape, 1);
    }
    if (!status) status = syi_loss_factor_parse(&e->factor, config->loss.loss_normalizing_factor, err);
    if (!status) status = bind(e, plan_only, err);
    if (!status && !plan_only) status = take_buffers(e, err);
    if (!status && !plan_only && (use & SYI_USE_DECODE) && syi_engine_searches(config))
        status = syi_engine_decode_open(e, err);
    if (status)
        syi_engine_free(e);
    else
        *engine = e;
    return status;
}

void syi_engine_free(struct syi_engine *e)
{
    if (!e) return;
    syi_session_free(e->session);
    syi_params_free(&e->params);
    syi_free(e->counts);
    syi_decoder_free(e->decoder);
    syi_free(e->sequences);
    syi_free(e->scores);
    syi_free(e->example);
    syi_free(e->finished);
    syi_free(e->weights);
    syi_free(e->mask);
    syi_free(e->segments);
    syi_free(e);
}
