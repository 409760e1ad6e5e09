/* SPDX-License-Identifier: Apache-2.0 */
/* sy_model: a predictor with threads and a backend of its own. One call at a time works with it; the others wait. */
#include "config.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "api/answers.h"
#include "train/predict/predictor.h"

struct sy_model {
    pthread_mutex_t mutex; /* around all below but config */
    struct syi_alone alone;
    struct syi_predictor *predictor;
    struct syi_config config; /* of the run, for this rank */
    struct syi_config asked;  /* the same with the decoding of a call, to be checked */
};

/* ---- opening ---- */

static int open_model(struct sy_model *m, const char *path, const struct sy_open_options *given,
                      struct sy_error *err)
{
    struct sy_open_options options;
    struct syi_api_place place;
    int status = syi_api_take(&options, sizeof options, given, "sy_open_options", err);
    if (!status) status = syi_api_find(path, options.checkpoint, &place, err);
    if (!status) status = syi_api_read_run(&place, &m->config, err);
    if (!status) status = syi_api_apply(&options, &m->config, err);
    if (!status) status = syi_api_launch(&options, &m->config, &m->alone, err);
    if (!status)
        status = syi_predictor_new(&m->config, &m->alone.rank, place.run_dir, place.checkpoint, &m->predictor,
                                   err);
    m->asked = m->config;
    return status ? status : syi_predictor_open(m->predictor, 1, err);
}

int sy_model_open(const char *path, const struct sy_open_options *options, struct sy_model **model,
                  struct sy_error *err)
{
    fenv_t before;
    *model = NULL;
    struct sy_model *m = syi_alloc(sizeof *m, err);
    if (!m) return SY_ENOMEM;
    pthread_mutex_init(&m->mutex, NULL);
    syi_api_enter(&before);
    int status = open_model(m, path, options, err);
    syi_api_leave(&before);
    if (status)
        sy_model_close(m);
    else
        *model = m;
    return status;
}

void sy_model_close(struct sy_model *m)
{
    if (!m) return;
    syi_predictor_free(m->predictor);
    syi_launch_close(&m->alone);
    pthread_mutex_destroy(&m->mutex);
    syi_free(m);
}

/* Every call that computes begins and ends so. */
static void enter(struct sy_model *m, fenv_t *before)
{
    pthread_mutex_lock(&m->mutex);
    syi_api_enter(before);
}

static int leave(struct sy_model *m, const fenv_t *before, int status)
{
    syi_api_leave(before);
    pthread_mutex_unlock(&m->mutex);
    return status;
}

/* ---- facts ---- */

int sy_model_facts(const struct sy_model *m, struct sy_model_facts *facts, struct sy_error *err)
{
    const struct syi_config *c = &m->config;
    const struct syi_checkpoint_meta *meta = syi_predictor_checkpoint(m->predictor);
    const struct syi_rank *rank = &m->alone.rank;
    struct sy_model_facts f = {.step = meta->step,
                               .parameters = syi_predictor_parameters(m->predictor),
                               .d_model = c->model.d_model,
                               .experts = c->moe.num_experts,
                               .max_input = c->data.max_input_length,
                               .max_output =
                                   c->decode.max_length ? c->decode.max_length : c->data.max_target_length,
                               .max_batch = syi_predictor_rows(m->predictor),
                               .threads = rank->n_threads};
    memcpy(f.weights_sha256, meta->params_sha256, sizeof f.weights_sha256);
    snprintf(f.backend, sizeof f.backend, "%.30s: %.90s", rank->backend->plugin.desc.name,
             rank->backend->description);
    return syi_api_give(facts, &f, sizeof f, "sy_model_facts", err);
}

int sy_model_value(const struct sy_model *m, const char *key, char *text, size_t bytes, struct sy_error *err)
{
    struct syi_text value = {0};
    if (bytes) *text = '\0';
    int status = syi_config_get_text(&m->config, key, &value, err);
    if (!status) status = syi_text_status(&value, err);
    if (!status && value.length + 1 > bytes)
        status = syi_error(err, SY_EINVAL, "%s has a value of %zu bytes, but there is room for %zu", key,
                           value.length + 1, bytes);
    if (!status) memcpy(text, value.data ? value.data : "", value.length + 1);
    syi_text_free(&value);
    return status;
}

/* ---- predicting ---- */

/* What a method means, before the fields that are given. */
static void set_method(int method, struct syi_decode_part *decode)
{
    if (method == SY_AS_RUN) return;
    decode->num_decodes = 1;
    if (method != SY_BEAMS) decode->beams = 1;
    if (method != SY_SAMPLE) decode->temperature = 0;
    if (method == SY_BEAMS && decode->beams == 1) decode->beams = 4;
    if (method == SY_SAMPLE && decode->temperature == 0) decode->temperature = 1;
}

/* Fields that are 0 keep their value; one of top_k and top_p takes the place of the other. */
static int set_fields(const struct sy_predict_options *o, struct syi_config *c, struct sy_error *err)
{
    const struct {
        const char *key;
        double value;
    } fields[] = {{"beams", o->beams},
                  {"num_decodes", o->outputs},
                  {"temperature", o->temperature},
                  {"topk", o->top_k},
                  {"topp", o->top_p}};
    int status = SY_OK;
    if (o->top_k) c->decode.topp = 0;
    if (o->top_p != 0) c->decode.topk = 0;
    for (size_t i = 0; !status && i < SYI_COUNT(fields); i++) {
        char text[64];
        snprintf(text, sizeof text, "decode.%s=%.17g", fields[i].key, fields[i].value);
        if (fields[i].value != 0) status = syi_config_set(c, text, err);
    }
    if (o->scores) c->decode.scores = true;
    if (o->seed) c->train.seed = (int64_t)(o->seed & INT64_MAX);
    return status;
}

/* The decoding that is asked for, in m->asked. */
static int ask(struct sy_model *m, const struct sy_predict_options *o, struct sy_error *err)
{
    m->asked.decode = m->config.decode;
    m->asked.train.seed = m->config.train.seed;
    if (o->method < SY_AS_RUN || o->method > SY_SAMPLE)
        return syi_error(err, SY_EINVAL,
                         "method %d: unknown; there are SY_AS_RUN, SY_GREEDY, SY_BEAMS and SY_SAMPLE",
                         o->method);
    if (o->first < 0)
        return syi_error(err, SY_EINVAL, "first = %lld: inputs count from 0", (long long)o->first);
    set_method(o->method, &m->asked.decode);
    int status = set_fields(o, &m->asked, err);
    return status ? status : syi_config_validate_programs(&m->asked, err);
}

/* Spans of the inputs and their places among all, in one piece of memory each. */
static int take_inputs(const struct sy_text *inputs, size_t n, int64_t first, struct syi_span **spans,
                       int64_t **index, struct sy_error *err)
{
    *spans = syi_alloc(n * sizeof **spans, err);
    *index = syi_alloc(n * sizeof **index, err);
    if (!*spans || !*index) return SY_ENOMEM;
    for (size_t i = 0; i < n; i++) {
        (*spans)[i] = syi_api_span(&inputs[i]);
        (*index)[i] = first + (int64_t)i;
    }
    return SY_OK;
}

static int predict(struct sy_model *m, const struct sy_predict_options *given, const struct sy_text *inputs,
                   size_t n, struct sy_answers *answers, struct sy_error *err)
{
    struct sy_predict_options options;
    struct syi_span *spans = NULL;
    int64_t *index = NULL;
    int status = syi_api_take(&options, sizeof options, given, "sy_predict_options", err);
    if (!status) status = ask(m, &options, err);
    if (!status) status = take_inputs(inputs, n, options.first, &spans, &index, err);
    if (!status)
        status = syi_predictor_decode(m->predictor, &m->asked.decode, m->asked.train.seed, spans, index, n,
                                      &answers->outcomes, err);
    syi_free(spans);
    syi_free(index);
    return status;
}

int sy_predict(struct sy_model *m, const struct sy_predict_options *options, const struct sy_text *inputs,
               size_t n, struct sy_answers **answers, struct sy_error *err)
{
    fenv_t before;
    *answers = NULL;
    struct sy_answers *a = syi_alloc(sizeof *a, err);
    if (!a) return SY_ENOMEM;
    enter(m, &before);
    int status = leave(m, &before, predict(m, options, inputs, n, a, err));
    if (status)
        sy_answers_free(a);
    else
        *answers = a;
    return status;
}

/* ---- scores ---- */

static int score(struct sy_model *m, const struct sy_pair *pairs, size_t n, double *scores, int64_t *tokens,
                 struct sy_error *err)
{
    struct syi_span *spans = syi_alloc(2 * n * sizeof *spans, err); /* inputs, then targets */
    int32_t *counts = syi_alloc(n * sizeof *counts, err);
    int status = spans && counts ? SY_OK : SY_ENOMEM;
    for (size_t i = 0; !status && i < n; i++) {
        spans[i] = syi_api_span(&pairs[i].input);
        spans[n + i] = syi_api_span(&pairs[i].target);
    }
    if (!status) status = syi_predictor_score(m->predictor, spans, spans + n, n, scores, counts, err);
    for (size_t i = 0; !status && tokens && i < n; i++) tokens[i] = counts[i];
    syi_free(spans);
    syi_free(counts);
    return status;
}

int sy_score(struct sy_model *m, const struct sy_pair *pairs, size_t n, double *scores, int64_t *tokens,
             struct sy_error *err)
{
    fenv_t before;
    enter(m, &before);
    return leave(m, &before, score(m, pairs, n, scores, tokens, err));
}

/* ---- the encoder ---- */

static int check_room(const struct sy_model *m, const int64_t *tokens, size_t n, size_t capacity,
                      struct sy_error *err)
{
    size_t need = 0;
    for (size_t i = 0; i < n; i++) need += (size_t)tokens[i] * (size_t)m->config.model.d_model;
    if (need <= capacity) return SY_OK;
    return syi_error(err, SY_EINVAL, "the inputs have %zu floats, but there is room for %zu", need, capacity);
}

static int encode(struct sy_model *m, const struct sy_text *inputs, size_t n, int64_t *tokens, float *values,
                  size_t capacity, struct sy_error *err)
{
    struct syi_span *spans = NULL;
    int64_t *index = NULL;
    int status = take_inputs(inputs, n, 0, &spans, &index, err);
    if (!status) status = syi_predictor_count(m->predictor, spans, n, tokens, err);
    if (!status && values) status = check_room(m, tokens, n, capacity, err);
    if (!status && values) status = syi_predictor_encode(m->predictor, spans, tokens, n, values, err);
    syi_free(spans);
    syi_free(index);
    return status;
}

int sy_encode(struct sy_model *m, const struct sy_text *inputs, size_t n, int64_t *tokens, float *values,
              size_t capacity, struct sy_error *err)
{
    fenv_t before;
    enter(m, &before);
    return leave(m, &before, encode(m, inputs, n, tokens, values, capacity, err));
}
