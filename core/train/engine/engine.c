/* SPDX-License-Identifier: Apache-2.0 */
/* Running an engine: batches in, numbers out. Every rank is given the whole batch and copies its own rows.
 * Nothing here allocates. */
#include "config.h"

#include <math.h>
#include <string.h>

#include "train/engine/expert_metrics.h"
#include "train/engine/engine_internal.h"
#include "train/engine/step_metrics.h"

struct syi_session *syi_engine_session(struct syi_engine *e)
{
    return e->session;
}

const struct syi_model *syi_engine_model(const struct syi_engine *e)
{
    return &e->model;
}

int64_t syi_engine_parameters(const struct syi_engine *e)
{
    const struct syi_model *model = &e->model;
    int64_t sum = 0, elements;

    for (size_t i = 0; i < model->n; i++) {
        elements = 1;
        for (int d = 0; d < model->param[i].rank; d++) elements *= model->param[i].dim[d];
        sum += elements;
    }
    return sum;
}

int syi_engine_moe_layers(const struct syi_engine *e)
{
    return e->n_moe;
}

const char *syi_engine_moe_layer(const struct syi_engine *e, int layer)
{
    return e->model.layer[layer].name;
}

int syi_engine_experts(const struct syi_engine *e)
{
    return (int)e->config.moe.num_experts;
}

int32_t syi_engine_eval_rows(const struct syi_engine *e)
{
    return (int32_t)e->eval_rows;
}

int32_t syi_engine_decode_length(const struct syi_engine *e)
{
    const struct syi_config *c = &e->config;
    return (int32_t)(c->decode.max_length ? c->decode.max_length : c->data.max_target_length);
}

void syi_engine_routing(const struct syi_engine *e, int layer, int expert, int64_t *chosen, int64_t *kept)
{
    const int64_t *count = e->counts + ((int64_t)layer * e->config.moe.num_experts + expert) * 2;
    *chosen = count[0];
    *kept = count[1];
}

void syi_engine_weights_written(struct syi_engine *e)
{
    e->stale = e->stale_kept = 1;
}

/* State that begins as the parameter: the same numbers, of the share that this rank has of it. */
static void begin_as(struct syi_engine *e, enum syi_role role, const struct syi_param *param, uint64_t seed)
{
    const struct sy_tensor *t = syi_session_find_any(e->session, role, param->id);
    if (t) syi_param_init(param, seed, t, e->rank.threads);
}

int syi_engine_init(struct syi_engine *e, uint64_t seed, struct sy_error *err)
{
    for (size_t i = 0; i < e->model.n; i++) {
        const struct syi_param *param = &e->model.param[i];
        const struct sy_tensor *t = syi_session_find_any(e->session, SYI_ROLE_PARAMETER, param->id);
        if (!t) continue;
        syi_param_init(param, seed, t, e->rank.threads);
        begin_as(e, SYI_ROLE_AVERAGE, param, seed);
        begin_as(e, SYI_ROLE_ITERATE, param, seed);
    }
    e->averaged = e->torn = 0;
    syi_engine_weights_written(e);
    return syi_session_upload(e->session, SYI_PERSIST, err);
}

/* Runs a program that writes weights where they lie. */
static int move_weights(struct syi_engine *e, int program, struct sy_error *err)
{
    int status = syi_session_run(e->session, program, err);
    if (status) e->torn = 1;
    return status;
}

/* Before anything that takes the weights for those of a step. */
static int exchange(struct syi_engine *e, int averaged, struct sy_error *err)
{
    if (e->torn)
        return syi_error(
            err, SY_EBACKEND,
            "the backend failed while it changed the weights, so they are of no step: go on from the "
            "last checkpoint");
    if (e->exchanging < 0 || e->averaged == averaged) return SY_OK;
    e->averaged = averaged;
    syi_engine_weights_written(e);
    return move_weights(e, e->exchanging, err);
}

int syi_engine_average(struct syi_engine *e, struct sy_error *err)
{
    return exchange(e, 1, err);
}

void syi_engine_params_changed(struct syi_engine *e)
{
    e->averaged = 1;
    e->torn = 0;
    syi_engine_weights_written(e);
}

int syi_engine_copy_weights(struct syi_engine *e, struct sy_error *err)
{
    if (!e->stale || e->copying < 0) return SY_OK;
    int status = syi_session_run(e->session, e->copying, err);
    e->stale = status != SY_OK;
    if (!status) e->stale_kept = 0;
    return status;
}

static void put_scalar(const struct sy_tensor *to, double value)
{
    if (to) *(float *)to->data = (float)value;
}

static double get_scalar(const struct sy_tensor *from)
{
    return from ? (double)*(const float *)from->data : 0;
}

static void put_norms(struct syi_engine *e, const struct syi_norms *norms)
{
    put_scalar(e->loss_norm, norms->loss);
    put_scalar(e->input_norm, norms->input > 0 ? norms->input : 1); /* nothing to divide */
    put_scalar(e->target_norm, norms->target > 0 ? norms->target : 1);
}

static void put_rng(struct syi_engine *e, int64_t step, int64_t microbatch)
{
    if (!e->rng) return;
    int64_t *rng = e->rng->data, rows = e->train_rows;
    if (e->groups > rows) rows = e->groups; /* jitter takes groups for rows */
    rng[SY_RNG_SEED] = e->config.train.seed;
    rng[SY_RNG_STEP] = step;
    rng[SY_RNG_ROW0] = microbatch * rows;
    rng[SY_RNG_GROUP0] = microbatch * e->groups;
}

static void add_counts(struct syi_engine *e)
{
    int64_t experts = e->config.moe.num_experts;
    for (int i = 0; i < e->n_moe; i++)
        for (int64_t x = 0; x < experts; x++) {
            e->counts[((int64_t)i * experts + x) * 2] += ((const int64_t *)e->moe[i].chosen->data)[x];
            e->counts[((int64_t)i * experts + x) * 2 + 1] += ((const int64_t *)e->moe[i].kept->data)[x];
        }
}

struct syi_layer_metrics syi_engine_layer_metrics(const struct syi_engine *e, int layer)
{
    const struct syi_moe_layer *info = &e->model.layer[layer];
    const struct syi_layer_tensors *m = &e->moe[layer];
    const struct syi_places *places = &e->places[info->decoder];
    const struct syi_config *c = &e->config;
    struct syi_expert_counts counts = {.slots = places->slots,
                                       .tokens = places->tokens,
                                       .real = e->real[info->decoder],
                                       .served = *(const int64_t *)m->served->data,
                                       .choices = c->moe.num_selected_experts,
                                       .confidence = get_scalar(m->confidence)};
    for (int64_t i = 0; i < c->moe.num_experts; i++) counts.kept += ((const int64_t *)m->kept->data)[i];
    struct syi_expert_metrics metrics = syi_expert_metrics(c, info->type, &counts);
    return (struct syi_layer_metrics){(float)get_scalar(m->auxiliary_loss),
                                      (float)get_scalar(m->router_z_loss), metrics.left_behind, metrics.usage,
                                      metrics.confidence};
}

/* ---- values of a step ---- */

/* Adds a microbatch's, in double and in their order. */
static void add_values(struct syi_engine *e, double norm, double *value)
{
    const double over[SYI_OVERS] = {
        [SYI_OVER_ONE] = 1, [SYI_OVER_LOSS_NORM] = norm, [SYI_OVER_LAYERS] = e->n_moe};
    for (int v = 0; v < SYI_STEP_VALUES; v++) {
        const struct syi_step_value_info *info = syi_step_value_info((enum syi_step_value)v);
        if (e->output[v] && info->added != SYI_ADDED_LAST)
            value[v] += get_scalar(e->output[v]) / over[info->over];
    }
    for (int i = 0; i < e->n_moe; i++) {
        struct syi_layer_metrics m = syi_engine_layer_metrics(e, i);
        value[SYI_STEP_LEFT_BEHIND] += (double)m.left_behind / over[SYI_OVER_LAYERS];
        value[SYI_STEP_EXPERT_USAGE] += (double)m.usage / over[SYI_OVER_LAYERS];
        value[SYI_STEP_ROUTER_CONFIDENCE] += (double)m.confidence / over[SYI_OVER_LAYERS];
    }
    add_counts(e);
}

/* What is known when the step ends. */
static void finish_values(struct syi_engine *e, const struct syi_norms *norms, double *value)
{
    double parts = (double)e->config.train.microbatches;
    int as_t5x = syi_compat(&e->config, e->config.metrics.divide_by);
    for (int v = 0; v < SYI_STEP_VALUES; v++) {
        const struct syi_step_value_info *info = syi_step_value_info((enum syi_step_value)v);
        if (info->added == SYI_ADDED_LAST) value[v] = get_scalar(e->output[v]);
        if (info->added == SYI_ADDED_MEAN && !as_t5x) value[v] /= parts;
    }
    value[SYI_STEP_CROSS_ENTROPY] = value[SYI_STEP_TOKEN_LOSS] - value[SYI_STEP_Z_LOSS];
    value[SYI_STEP_PLAIN_ENTROPY] = value[SYI_STEP_CROSS_ENTROPY] - value[SYI_STEP_SMOOTHING];
    value[SYI_STEP_LOSS] =
        value[SYI_STEP_TOKEN_LOSS] + (value[SYI_STEP_AUXILIARY_LOSS] + value[SYI_STEP_ROUTER_Z_LOSS]);
    value[SYI_STEP_ONE] = 1;
    value[SYI_STEP_MICROBATCHES] = parts;
    value[SYI_STEP_WEIGHT_SUM] = norms->weight_sum;
    value[SYI_STEP_WEIGHTED_TARGETS] = (double)norms->weighted;
}

static void finish_result(struct syi_engine *e, const struct syi_batch *batch, const struct syi_norms *norms,
                          struct syi_step_result *r)
{
    finish_values(e, norms, r->value);
    r->loss = r->value[SYI_STEP_LOSS];
    r->grad_norm = r->value[SYI_STEP_GRAD_NORM];
    r->ok = r->value[SYI_STEP_OK] != 0;
    r->target_tokens = batch->n_target_tokens;
    r->input_tokens = batch->n_input_tokens;
}

void syi_engine_scale_rates(struct syi_engine *e, double factor)
{
    e->rate_factor = factor;
}

static void put_optim_scalars(struct syi_engine *e, int64_t step, double learning_rate)
{
    float value[SYI_OPTIM_SCALARS];
    syi_optim_scalars(&e->config, e->chains, step, learning_rate, e->rate_factor, value);
    for (int i = 0; i < SYI_OPTIM_SCALARS; i++) put_scalar(e->scalar[i], value[i]);
}

/* Each expert's bias goes up where its load in the step is below the mean, down where it is above. Loads are
 * integers of the whole batch, so every rank comes to the same. */
static void put_directions(struct syi_engine *e)
{
    int64_t experts = e->config.moe.num_experts;
    for (int i = 0; i < e->n_moe; i++) {
        const int64_t *count = e->counts + i * experts * 2; /* chosen, kept, ... */
        int64_t sum = 0;
        if (!e->moe[i].direction) continue;
        float *direction = e->moe[i].direction->data;
        for (int64_t x = 0; x < experts; x++) sum += count[2 * x];
        for (int64_t x = 0; x < experts; x++) {
            int64_t over = count[2 * x] * experts - sum;
            direction[x] = over < 0 ? 1.0f : over > 0 ? -1.0f : 0.0f;
        }
    }
}

/* Those that training moves, and their copies: an evaluation may have had others. */
static int take_back_weights(struct syi_engine *e, struct sy_error *err)
{
    int status = exchange(e, 0, err);
    return !status && e->stale_kept && e->model.keeps_copies ? syi_engine_copy_weights(e, err) : status;
}

/* Gradients of microbatch m, added to those of the ones before; part: what it counts of the whole batch. */
static int run_gradients(struct syi_engine *e, const struct syi_batch *batch, int64_t step, int64_t m,
                         const struct syi_norms *norms, struct syi_norms *part, struct sy_error *err)
{
    struct syi_bucket_programs *bound = &e->bound[batch->bucket];
    int whole = !syi_compat(&e->config, e->config.train.microbatch_normalizer);
    *part = e->config.train.microbatches == 1 ? *norms
                                              : syi_engine_norms(e, batch, m * e->train_rows, e->train_rows);
    put_norms(e, whole ? norms : part);
    syi_engine_put(e, &bound->train, batch, m * e->train_rows, e->train_rows);
    put_rng(e, step, m);
    return syi_session_run(e->session, bound->program[m ? SYI_GRAD_NEXT : SYI_GRAD_FIRST], err);
}

int syi_engine_gradients(struct syi_engine *e, const struct syi_batch *batch, int64_t step,
                         struct sy_error *err)
{
    struct syi_norms norms = syi_engine_norms(e, batch, 0, batch->rows), part;
    int status = take_back_weights(e, err);
    for (int64_t m = 0; !status && m < e->config.train.microbatches; m++)
        status = run_gradients(e, batch, step, m, &norms, &part, err);
    return status;
}

int syi_engine_step(struct syi_engine *e, const struct syi_batch *batch, int64_t step, double learning_rate,
                    struct syi_step_result *result, struct sy_error *err)
{
    struct syi_bucket_programs *bound = &e->bound[batch->bucket];
    int whole = !syi_compat(&e->config, e->config.train.microbatch_normalizer);
    struct syi_norms norms = syi_engine_norms(e, batch, 0, batch->rows);
    struct syi_step_result r = {0};
    e->places = bound->places;
    if (e->n_moe)
        memset(e->counts, 0, (size_t)e->n_moe * (size_t)e->config.moe.num_experts * 2 * sizeof *e->counts);
    int status = take_back_weights(e, err);
    if (status) return status;
    for (int64_t m = 0; m < e->config.train.microbatches; m++) {
        struct syi_norms part;
        status = run_gradients(e, batch, step, m, &norms, &part, err);
        if (status) return status;
        e->real[0] = (int64_t)part.input;
        e->real[1] = (int64_t)part.target;
        add_values(e, whole ? norms.loss : part.loss, r.value);
    }
    put_optim_scalars(e, step, learning_rate);
    put_directions(e);
    e->stale = 1;
    r.weighed = syi_engine_weighs(e, step);
    status = move_weights(e, r.weighed ? e->weighing : e->update, err);
    if (status) return status;
    finish_result(e, batch, &norms, &r);
    if (r.weighed) syi_engine_weight_totals(e, r.weights);
    *result = r;
    return SY_OK;
}

/* Weighted by tokens: a batch that is not full counts for what is in it. */
static void add_layers(struct syi_engine *e, struct syi_eval_layer *layer)
{
    for (int i = 0; i < e->n_moe; i++) {
        double tokens = (double)e->real[e->model.layer[i].decoder];
        struct syi_layer_metrics m = syi_engine_layer_metrics(e, i);
        layer[i].tokens += tokens;
        layer[i].auxiliary_loss += tokens * (double)m.auxiliary_loss;
        layer[i].router_z_loss += tokens * (double)m.router_z_loss;
        layer[i].left_behind += tokens * (double)m.left_behind;
        layer[i].usage += tokens * (double)m.usage;
        layer[i].confidence += tokens * (double)m.confidence;
    }
}

/* What T5X's metrics are made of that go by batches. */
static void add_batch(struct syi_engine *e, const struct syi_batch *batch, const struct syi_norms *norms,
                      struct syi_eval_sums *sums)
{
    double loss = get_scalar(e->output[SYI_STEP_TOKEN_LOSS]), z = get_scalar(e->output[SYI_STEP_Z_LOSS]);
    double value[SYI_STEP_VALUES] = {[SYI_STEP_LOSS] = loss / norms->loss,
                                     [SYI_STEP_Z_LOSS] = z / norms->loss,
                                     [SYI_STEP_CROSS_ENTROPY] = (loss - z) / norms->loss,
                                     [SYI_STEP_MICROBATCHES] = 1,
                                     [SYI_STEP_WEIGHT_SUM] = norms->weight_sum};
    syi_step_count_batch(batch, value);
    for (int i = 0; i < SYI_STEP_VALUES; i++) sums->value[i] += value[i];
    sums->packed |= batch->decoder_segments != NULL;
}

/* Of all ranks, as the counts of a training step are. */
static void add_routing(struct syi_engine *e, int64_t *routing)
{
    int64_t experts = e->config.moe.num_experts;
    for (int i = 0; i < e->n_moe; i++, routing += 2 * experts) {
        const int64_t *chosen = e->moe[i].chosen->data, *kept = e->moe[i].kept->data;
        for (int64_t x = 0; x < experts; x++) {
            routing[x] += kept[x];
            routing[experts + x] += chosen[x] - kept[x];
        }
    }
}

int syi_engine_eval(struct syi_engine *e, const struct syi_batch *batch, struct syi_eval_sums *sums,
                    struct sy_error *err)
{
    struct syi_bucket_programs *bound = &e->bound[batch->bucket];
    struct syi_norms norms = syi_engine_norms(e, batch, 0, e->eval_rows);
    put_norms(e, &norms);
    syi_engine_put(e, &bound->eval, batch, 0, e->eval_rows);
    int status = syi_engine_copy_weights(e, err);
    if (!status) status = syi_session_run(e->session, bound->program[SYI_EVAL], err);
    if (status) return status;
    sums->loss_sum += get_scalar(e->output[SYI_STEP_TOKEN_LOSS]);
    sums->z_sum += get_scalar(e->output[SYI_STEP_Z_LOSS]);
    sums->smoothing_sum += get_scalar(e->output[SYI_STEP_SMOOTHING]);
    sums->correct_sum += get_scalar(e->output[SYI_STEP_CORRECT]);
    sums->weighted += norms.weighted;
    e->places = bound->eval_places;
    e->real[0] = (int64_t)norms.input;
    e->real[1] = (int64_t)norms.target;
    add_batch(e, batch, &norms, sums);
    if (sums->layer) add_layers(e, sums->layer);
    if (sums->routing) add_routing(e, sums->routing);
    return SY_OK;
}

int syi_engine_score(struct syi_engine *e, const struct syi_batch *batch, double *score, struct sy_error *err)
{
    struct syi_bucket_programs *bound = &e->bound[batch->bucket];
    int status = syi_engine_copy_weights(e, err);

    if (status) return status;
    syi_engine_put(e, &bound->eval, batch, 0, e->eval_rows);
    syi_engine_put_weights(&bound->eval, batch);
    status = syi_session_run(e->session, bound->program[SYI_SCORE], err);
    if (status) return status;
    const float *loss = bound->token_loss->data;
    for (int64_t row = 0; row < e->eval_rows; row++) {
        score[row] = 0;
        for (int64_t i = 0; i < batch->target_length; i++)
            score[row] -= (double)loss[row * batch->target_length + i];
    }
    return SY_OK;
}
