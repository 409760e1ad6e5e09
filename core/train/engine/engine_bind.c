/* SPDX-License-Identifier: Apache-2.0 */
/* Making an engine: the buckets, the programs of each, one session for all, and where inputs and outputs are.
 */
#include "config.h"

#include <string.h>

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
                                     int bucket, enum syi_which which)
{
    const struct syi_bucket *last = &all[n - 1], *first = &all[0], *now = &all[bucket];
    struct syi_shape shape = {.rows = which <= SYI_UPDATE_METRICS ? c->data.batch_size / c->train.microbatches
                                                                  : syi_config_decode_rows(c),
                              .input_length = now->input_length,
                              .target_length = now->target_length,
                              .packed = which <= SYI_UPDATE_METRICS && c->data.pack};
    if (which >= SYI_ENCODE) {
        int64_t sequences = syi_decode_sequences(&c->decode);
        shape.beams = sequences > 1 ? sequences : 0;
        shape.rows *= sequences;
        shape.sampling = syi_engine_samples(&c->decode);
        shape.target_length = c->decode.max_length ? c->decode.max_length : c->data.max_target_length;
    }
    shape.longest_length =
        last->input_length > last->target_length ? last->input_length : last->target_length;
    shape.shortest_length =
        first->input_length < first->target_length ? first->input_length : first->target_length;
    return shape;
}

struct syi_shape syi_engine_shape(const struct syi_engine *e, int bucket, enum syi_which which)
{
    struct syi_shape shape = bucket_shape(&e->config, e->bucket, e->n_buckets, bucket, which);
    if (e->use & SYI_USE_PACKED) shape.packed = 1;
    return shape;
}

struct syi_shape syi_config_shape(const struct syi_config *config, enum syi_which which)
{
    struct syi_bucket bucket[SYI_MAX_BUCKETS];
    int n = syi_engine_buckets(config, bucket);
    if (n > SYI_MAX_BUCKETS) n = SYI_MAX_BUCKETS;
    return bucket_shape(config, bucket, n, n - 1, which);
}

int syi_engine_fewest_rows(const struct syi_config *config, const struct syi_rank *rank, int64_t *rows,
                           struct sy_error *err)
{
    int ranks = syi_mesh_size(&rank->mesh, rank->mesh.rule[SYI_AXIS_BATCH]);
    uint32_t leaves[SYI_AXIS_COUNT];
    struct syi_config *settled = syi_config_copy(config, err);
    if (!settled) return SY_ENOMEM;
    settled->reproducible.min_leaf = syi_rank_min_leaf(rank, config);
    struct syi_shape shape = syi_config_shape(settled, SYI_SCORE);
    *rows = shape.rows;
    while (*rows % 2 == 0) {
        shape.rows = *rows / 2;
        syi_leaves(settled, &shape, leaves);
        if (leaves[SYI_AXIS_BATCH] % (unsigned)ranks) break;
        *rows = shape.rows;
    }
    syi_free(settled);
    return SY_OK;
}

static int program_index(const struct syi_engine *e, enum syi_which which)
{
    if (which == SYI_UPDATE) return e->update;
    if (which == SYI_UPDATE_METRICS) return e->weighing;
    if (which == SYI_EXCHANGE) return e->exchanging;
    return which == SYI_WEIGHTS ? e->copying : e->bound[e->n_buckets - 1].program[which];
}

const struct syi_program *syi_engine_program(const struct syi_engine *e, enum syi_which which)
{
    int index = program_index(e, which);
    return index < 0 ? NULL : syi_session_program(e->session, index);
}

const struct syi_recomputed *syi_engine_recomputed(const struct syi_engine *e, enum syi_which which)
{
    return syi_session_recomputed(e->session, program_index(e, which));
}

static int add(struct syi_engine *e, enum syi_which which, int bucket, int *index, struct sy_error *err)
{
    struct syi_shape shape = syi_engine_shape(e, bucket, which);
    struct syi_recorded recorded;
    enum syi_stage stage = (e->use & SYI_USE_UNFUSED) ? SYI_STAGE_PARTITION : SYI_STAGE_FUSE;
    int status = syi_pipeline(&e->config, &e->rank.mesh, e->rank.backend, which, &shape, stage, &e->model,
                              &recorded, err);
    if (status || !recorded.program) return status; /* none: averages, but of no parameter */
    if (which == SYI_GRAD_FIRST) memcpy(e->bound[bucket].places, recorded.places, sizeof recorded.places);
    if (which == SYI_EVAL) memcpy(e->bound[bucket].eval_places, recorded.places, sizeof recorded.places);
    return syi_session_add(e->session, recorded.program, index, err);
}

/* Decoding programs depend on the input length only: the first bucket of a length has them. */
static int same_input(const struct syi_engine *e, int bucket)
{
    for (int i = 0; i < bucket; i++)
        if (e->bucket[i].input_length == e->bucket[bucket].input_length) return i;
    return bucket;
}

static void count_groups(struct syi_engine *e, const struct syi_places places[2])
{
    for (int stack = 0; stack < 2; stack++)
        if (places[stack].groups > e->groups) e->groups = places[stack].groups;
}

static int add_bucket(struct syi_engine *e, int i, struct sy_error *err)
{
    int *program = e->bound[i].program, status = SY_OK, twin = same_input(e, i);
    for (int w = 0; w < SYI_WHICH_COUNT; w++) program[w] = -1;
    if (e->use & SYI_USE_TRAIN) status = add(e, SYI_GRAD_FIRST, i, &program[SYI_GRAD_FIRST], err);
    count_groups(e, e->bound[i].places);
    if (!status && (e->use & SYI_USE_TRAIN) && e->config.train.microbatches > 1)
        status = add(e, SYI_GRAD_NEXT, i, &program[SYI_GRAD_NEXT], err);
    if (!status && (e->use & SYI_USE_EVAL)) status = add(e, SYI_EVAL, i, &program[SYI_EVAL], err);
    if (!status && (e->use & SYI_USE_SCORE)) status = add(e, SYI_SCORE, i, &program[SYI_SCORE], err);
    if (!status && (e->use & SYI_USE_DECODE) && twin != i) {
        program[SYI_ENCODE] = e->bound[twin].program[SYI_ENCODE];
        program[SYI_DECODE_STEP] = e->bound[twin].program[SYI_DECODE_STEP];
    } else if (!status && (e->use & SYI_USE_DECODE)) {
        status = add(e, SYI_ENCODE, i, &program[SYI_ENCODE], err);
        if (!status) status = add(e, SYI_DECODE_STEP, i, &program[SYI_DECODE_STEP], err);
    }
    return status;
}

/* Where the batch of a program goes; program -1: nowhere. */
static struct syi_bucket_inputs find_inputs(const struct syi_session *s, int program)
{
    return (struct syi_bucket_inputs){
        .encoder_ids = syi_session_find(s, program, SYI_ROLE_ENCODER_IDS, 0),
        .encoder_lengths = syi_session_find(s, program, SYI_ROLE_ENCODER_LENGTHS, 0),
        .encoder_segments = syi_session_find(s, program, SYI_ROLE_ENCODER_SEGMENTS, 0),
        .encoder_mask = syi_session_find(s, program, SYI_ROLE_ENCODER_MASK, 0),
        .decoder_inputs = syi_session_find(s, program, SYI_ROLE_DECODER_INPUTS, 0),
        .decoder_targets = syi_session_find(s, program, SYI_ROLE_DECODER_TARGETS, 0),
        .decoder_lengths = syi_session_find(s, program, SYI_ROLE_DECODER_LENGTHS, 0),
        .decoder_segments = syi_session_find(s, program, SYI_ROLE_DECODER_SEGMENTS, 0),
        .decoder_mask = syi_session_find(s, program, SYI_ROLE_DECODER_MASK, 0),
        .loss_weights = syi_session_find(s, program, SYI_ROLE_LOSS_WEIGHTS, 0),
    };
}

/* Programs of a bucket share what they read of a batch: grad_first with grad_next, eval and score with encode. */
static void find_bucket(struct syi_session *s, struct syi_bucket_programs *b)
{
    b->train = find_inputs(s, b->program[SYI_GRAD_FIRST]);
    int eval = b->program[SYI_EVAL] >= 0 ? SYI_EVAL : b->program[SYI_SCORE] >= 0 ? SYI_SCORE : SYI_ENCODE;
    b->eval = find_inputs(s, b->program[eval]);
    b->token_loss = syi_session_find(s, b->program[SYI_SCORE], SYI_ROLE_TOKEN_LOSS, 0);
    b->encoded = syi_session_find(s, b->program[SYI_ENCODE], SYI_ROLE_ENCODED, 0);
    b->step = syi_decode_bind(s, b->program[SYI_DECODE_STEP]);
}

static int find_layers(struct syi_engine *e, struct sy_error *err)
{
    const struct syi_session *s = e->session;
    if (!(e->use & (SYI_USE_TRAIN | SYI_USE_EVAL)) || !e->model.n_layers) return SY_OK;
    size_t n = e->model.n_layers, experts = (size_t)e->config.moe.num_experts;
    e->moe = syi_alloc(n * sizeof *e->moe, err);
    e->counts = syi_alloc(n * experts * 2 * sizeof *e->counts, err);
    if (!e->moe || !e->counts) return SY_ENOMEM;
    for (uint32_t i = 0; i < n; i++) {
        int64_t bias = e->model.layer[i].bias;
        e->moe[i] = (struct syi_layer_tensors){
            .chosen = syi_session_find_any(s, SYI_ROLE_CHOSEN, i),
            .kept = syi_session_find_any(s, SYI_ROLE_KEPT, i),
            .served = syi_session_find_any(s, SYI_ROLE_SERVED, i),
            .confidence = syi_session_find_any(s, SYI_ROLE_CONFIDENCE, i),
            .auxiliary_loss = syi_session_find_any(s, SYI_ROLE_LAYER_AUXILIARY_LOSS, i),
            .router_z_loss = syi_session_find_any(s, SYI_ROLE_LAYER_ROUTER_Z_LOSS, i),
            .direction = bias < 0 ? NULL : syi_session_find(s, e->update, SYI_ROLE_DIRECTION, (uint32_t)bias),
        };
    }
    e->n_moe = (int)n;
    return SY_OK;
}

static int find_tensors(struct syi_engine *e, struct sy_error *err)
{
    struct syi_session *s = e->session;
    e->rng = syi_session_find_any(s, SYI_ROLE_RNG, 0);
    e->loss_norm = syi_session_find_any(s, SYI_ROLE_LOSS_NORM, 0);
    e->input_norm = syi_session_find_any(s, SYI_ROLE_INPUT_NORM, 0);
    e->target_norm = syi_session_find_any(s, SYI_ROLE_TARGET_NORM, 0);
    for (uint32_t i = 0; i < SYI_STEP_VALUES; i++)
        e->output[i] = syi_session_find_any(s, SYI_ROLE_STEP_OUTPUT, i);
    for (uint32_t i = 0; i < SYI_OPTIM_SCALARS; i++)
        e->scalar[i] = syi_session_find(s, e->update, SYI_ROLE_OPTIM_SCALAR, i);
    for (int i = 0; i < e->n_buckets; i++) find_bucket(s, &e->bound[i]);
    int status = syi_engine_find_weights(e, err);
    return status ? status : find_layers(e, err);
}

/* What the optimizers do, of which a build without training has nothing. */
static int add_updates(struct syi_engine *e, struct sy_error *err)
{
    int status = add(e, SYI_UPDATE, 0, &e->update, err);
    if (!status && e->config.metrics.weights_every) status = add(e, SYI_UPDATE_METRICS, 0, &e->weighing, err);
    if (!status && syi_chains_average(e->chains, e->config.optimizer.n))
        status = add(e, SYI_EXCHANGE, 0, &e->exchanging, err);
    int again = (e->use & SYI_USE_TOGETHER) != 0; /* the run has had one of the same model */
    if (!status && e->rank.comm->rank == 0 && !again) {
        syi_warn_of_patterns(&e->config, &e->model);
        syi_warn_of_chains(&e->config);
        syi_warn_of_rates(&e->config);
        syi_warn_of_ignored(&e->config);
    }
    return status;
}

/* Where there is no training to be made smaller. */
static const char remedy_of_answers[] =
    "take a smaller decode.batch_size (of the library max_batch), shorter lengths (data.max_input_length, "
    "data.max_target_length, decode.max_length), fewer decode.beams and decode.num_decodes, or more ranks";

static int bind(struct syi_engine *e, const struct syi_engine *lender, int plan_only, struct sy_error *err)
{
    struct syi_session_options options = {.backend = e->rank.backend,
                                          .comm = e->rank.comm,
                                          .mesh = &e->rank.mesh,
                                          .weights = lender ? lender->session : NULL,
                                          .reproducible = e->config.reproducible.enabled,
                                          .budget = (uint64_t)e->config.memory.budget,
                                          .available = e->config.memory.check ? e->rank.memory : 0,
                                          .remedy = e->use & SYI_USE_TRAIN ? NULL : remedy_of_answers,
                                          .plan_only = plan_only,
                                          .check_device = e->config.memory.check,
                                          .all_or_none = (e->use & SYI_USE_TOGETHER) != 0,
                                          .coherent = (e->use & SYI_USE_COHERENT) != 0,
                                          .fold = !(e->use & (SYI_USE_UNFUSED | SYI_USE_UNFOLDED)),
                                          .snapshot = (e->use & SYI_USE_SNAPSHOT) != 0,
                                          .check_reuse = (e->use & SYI_USE_APART) != 0};
    int status = syi_session_new(&options, &e->session, err);
    for (int i = 0; !status && i < e->n_buckets; i++) status = add_bucket(e, i, err);
    e->update = e->weighing = e->copying = e->exchanging = -1;
    if (SY_TRAINING && !status && (e->use & SYI_USE_TRAIN)) status = add_updates(e, err);
    if (!status && e->model.n_copies) status = add(e, SYI_WEIGHTS, 0, &e->copying, err);
    if (!status) status = syi_session_bind(e->session, err);
    return status ? status : find_tensors(e, err);
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

/* Decoding needs no more of the vocabulary than this. A lender that decodes knows it: its file may be gone by now. */
static int take_end(struct syi_engine *e, const struct syi_engine *lender, struct sy_error *err)
{
    struct syi_vocabulary vocabulary;
    if (lender && (lender->use & SYI_USE_DECODE)) {
        e->end = lender->end;
        return SY_OK;
    }
    int status = syi_vocabulary_make(&vocabulary, syi_config_vocabulary(&e->config, 1), err);
    if (status) return status;
    e->end = vocabulary.end;
    syi_vocabulary_close(&vocabulary);
    return SY_OK;
}

/* What trains has float32 weights; a plan of training is made of any model. */
static int check_weights(struct syi_engine *e, int plan_only, struct sy_error *err)
{
    int int8 = (e->use & SYI_USE_TRAIN) && e->config.model.weights == SYI_WEIGHTS_INT8;
    if (int8 && !plan_only)
        return syi_error(
            err, SY_EINVAL,
            "model.weights = int8 is for packed models, which answer only: leave it out to train");
    if (int8) e->config.model.weights = SYI_WEIGHTS_FLOAT32;
    return SY_OK;
}

/* What clips each example has one row of one example a microbatch, which no ranks can divide. */
static int check_examples(const struct syi_engine *e, struct sy_error *err)
{
    for (int i = 0; (e->use & SYI_USE_TRAIN) && i < e->config.optimizer.n; i++) {
        const struct syi_optimizer_part *part = &e->config.optimizer.part[i];
        const char *name = part->name_of_part;
        double clip;
        int status = syi_optimizer_example_clip(part, &clip, err);
        if (status) return status;
        if (clip > 0 && e->config.data.pack)
            return syi_error(err, SY_EINVAL,
                             "optimizer%s%s clips the gradient of each example, and a packed row has "
                             "several: set data.pack = false",
                             *name ? "." : "", name);
        if (clip > 0 && e->rank.mesh.size[0] * e->rank.mesh.size[1] > 1)
            return syi_error(
                err, SY_EMISMATCH,
                "optimizer%s%s clips the gradient of each example, so a microbatch has one row, which "
                "ranks cannot divide: set mesh.data = 1 and mesh.expert = 1, and mesh.model to the number "
                "of ranks",
                *name ? "." : "", name);
    }
    return SY_OK;
}

/* Copies that last take memory all the time. With ZeRO 3 a rank has pieces of weights, which no panels fill. Casts are seen
 * where ops are to be seen, and made where the host writes weights. */
void syi_engine_choose_copies(const struct syi_config *config, const struct syi_backend *backend, int use,
                              struct syi_model *model)
{
    int whole = config->mesh.zero < 3, casts = SYI_USE_UNFUSED | SYI_USE_UNFOLDED | SYI_USE_COHERENT;
    model->panels = whole && syi_backend_has_panels(backend);
    model->trains_panels = whole && syi_backend_has_panels_in_training(backend);
    model->keeps_copies = whole && !config->memory.budget && !(use & casts);
}

static int make(const struct syi_config *config, const struct syi_rank *rank, int use,
                const struct syi_engine *lender, int plan_only, struct syi_engine **engine,
                struct sy_error *err)
{
    struct syi_engine *e = syi_alloc(sizeof *e, err);
    if (!e) return SY_ENOMEM;
    e->config = *config;
    e->config.reproducible.min_leaf = syi_rank_min_leaf(rank, config);
    e->rank = *rank;
    e->use = use;
    syi_engine_weights_written(e);
    e->rate_factor = 1;
    syi_engine_choose_copies(config, rank->backend, use, &e->model);
    e->n_buckets = syi_engine_buckets(config, e->bucket);
    e->train_rows = config->data.batch_size / config->train.microbatches;
    e->eval_rows = syi_config_decode_rows(config);
    int status = check_weights(e, plan_only, err);
    if (!status) status = syi_loss_factor_parse(&e->factor, config->loss.loss_normalizing_factor, err);
    if (!status) status = check_examples(e, err);
    if (SY_TRAINING && !status) status = syi_chains_make(&e->config, &e->chains, err);
    if (!status) status = bind(e, lender, plan_only, err);
    if (!status && !plan_only) status = take_buffers(e, err);
    if (!status && !plan_only && (use & SYI_USE_DECODE)) status = take_end(e, lender, err);
    if (!status && !plan_only && (use & SYI_USE_DECODE) && syi_engine_searches(&config->decode))
        status = syi_engine_decode_open(e, err);
    if (status)
        syi_engine_free(e);
    else
        *engine = e;
    return status;
}

int syi_engine_new(const struct syi_config *config, const struct syi_rank *rank, int use, int plan_only,
                   struct syi_engine **engine, struct sy_error *err)
{
    return make(config, rank, use, NULL, plan_only, engine, err);
}

int syi_engine_beside(const struct syi_engine *lender, const struct syi_rank *rank,
                      const struct syi_config *config, int use, struct syi_engine **engine,
                      struct sy_error *err)
{
    return make(config, rank, use, lender, 0, engine, err);
}

void syi_engine_free(struct syi_engine *e)
{
    if (!e) return;
    syi_session_free(e->session);
    syi_model_free(&e->model);
    if (SY_TRAINING) syi_chains_free(e->chains, e->config.optimizer.n);
    syi_free(e->weight);
    syi_free(e->moe);
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
