/* SPDX-License-Identifier: Apache-2.0 */
/* sy_model: the run's configuration, and lanes for the calls (lanes.h). */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "api/answers.h"
#include "api/lanes.h"

struct sy_model {
    struct syi_config config; /* of the run, for this rank */
    struct syi_lanes lanes;
};

/* ---- opening ---- */

enum { MOST_CALLS = 4096 };

/* By default as many as there are threads: then no processor has two calls. Too many threads are refused with them. */
static int most_calls(const struct sy_open_options *options, const struct syi_config *config, int *most,
                      struct sy_error *err)
{
    const char *limited_by;
    int threads = options->threads ? options->threads : (int)config->cpu.threads;
    if (options->max_calls < 0 || options->max_calls > MOST_CALLS)
        return syi_error(err, SY_EINVAL, "max_calls = %d: there are 1 to %d, and 0 for as many as threads",
                         options->max_calls, MOST_CALLS);
    *most = options->max_calls ? options->max_calls
            : threads > 0      ? threads
                               : syi_cpu_default(1, 1, &limited_by);
    if (*most > MOST_CALLS) *most = MOST_CALLS;
    return SY_OK;
}

static int open_first(struct sy_model *m, const struct syi_api_place *place,
                      const struct sy_open_options *options, struct sy_error *err)
{
    struct syi_lane *first = m->lanes.lane[0];
    int status = syi_api_launch(options, &m->config, 0, &first->alone, err);
    if (!status)
        status = syi_predictor_new(&m->config, &first->alone.rank, place->run_dir, place->checkpoint,
                                   &first->predictor, err);
    return status ? status : syi_predictor_open(first->predictor, 1, err);
}

static int open_model(struct sy_model *m, const char *path, const struct sy_open_options *given,
                      struct sy_error *err)
{
    struct sy_open_options options;
    struct syi_api_place place;
    int most = 1, status = syi_api_take(&options, sizeof options, given, "sy_open_options", err);
    if (!status) status = syi_api_find(path, options.checkpoint, &place, err);
    if (!status) status = syi_api_read_run(&place, &m->config, NULL, err);
    if (!status) status = syi_api_apply(&options, &m->config, err);
    if (!status) status = most_calls(&options, &m->config, &most, err);
    if (!status) status = syi_lanes_open(&m->lanes, most, err);
    return status ? status : open_first(m, &place, &options, err);
}

int sy_model_open(const char *path, const struct sy_open_options *options, struct sy_model **model,
                  struct sy_error *err)
{
    fenv_t before;
    *model = NULL;
    struct sy_model *m = syi_alloc(sizeof *m, err);
    if (!m) return SY_ENOMEM;
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
    syi_lanes_close(&m->lanes);
    syi_free(m);
}

/* Every call that computes begins and ends so. */
static int enter(struct sy_model *m, struct syi_lane **lane, fenv_t *before, struct sy_error *err)
{
    syi_api_enter(before);
    int status = syi_lanes_enter(&m->lanes, lane, err);
    if (status) syi_api_leave(before);
    return status;
}

static int leave(struct sy_model *m, const struct syi_lane *lane, const fenv_t *before, int status)
{
    syi_lanes_leave(&m->lanes, lane);
    syi_api_leave(before);
    return status;
}

/* ---- facts ---- */

int sy_model_facts(const struct sy_model *m, struct sy_model_facts *facts, struct sy_error *err)
{
    const struct syi_config *c = &m->config;
    const struct syi_lane *first = m->lanes.lane[0];
    const struct syi_checkpoint_meta *meta = syi_predictor_checkpoint(first->predictor);
    const struct syi_rank *rank = &first->alone.rank;
    struct sy_model_facts f = {.step = meta->step,
                               .parameters = syi_predictor_parameters(first->predictor),
                               .d_model = c->model.d_model,
                               .experts = c->moe.num_experts,
                               .max_input = c->data.max_input_length,
                               .max_output =
                                   c->decode.max_length ? c->decode.max_length : c->data.max_target_length,
                               .max_batch = syi_predictor_rows(first->predictor),
                               .threads = rank->n_threads,
                               .max_calls = m->lanes.most};
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
        char number[SYI_NUMBER_BYTES], text[64];
        syi_format_double(number, fields[i].value);
        snprintf(text, sizeof text, "decode.%s=%s", fields[i].key, number);
        if (fields[i].value != 0) status = syi_config_set(c, text, err);
    }
    if (o->scores) c->decode.scores = true;
    if (o->seed) c->train.seed = (int64_t)(o->seed & INT64_MAX);
    return status;
}

/* A decoding, as calls ask for it. */
struct asked {
    struct syi_decode_part decode;
    int64_t seed;
};

/* What would make another method of it; out of range values are refused later. */
static int check_fields(const struct sy_predict_options *o, struct sy_error *err)
{
    const int greedy = o->method == SY_GREEDY;
    const char *why = greedy && o->beams > 1     ? "beams is of SY_BEAMS"
                      : greedy && o->outputs > 1 ? "it has one output: outputs is of SY_BEAMS and SY_SAMPLE"
                      : o->temperature > 0       ? "temperature is of SY_SAMPLE"
                      : o->top_k > 0             ? "top_k is of SY_SAMPLE"
                      : o->top_p > 0             ? "top_p is of SY_SAMPLE"
                                                 : NULL;
    if (!why || (!greedy && o->method != SY_BEAMS)) return SY_OK;
    return syi_error(err, SY_EINVAL, "%s; %s: leave it 0, or name that method",
                     greedy ? "SY_GREEDY takes the likeliest token" : "SY_BEAMS continues the best sequences",
                     why);
}

/* As the run says: what no draw would look at, as check_fields has it for a method that is named. */
static int check_as_run(const struct sy_predict_options *o, const struct syi_decode_part *decode,
                        struct sy_error *err)
{
    if (o->method != SY_AS_RUN || decode->temperature > 0 || !(o->top_k > 0 || o->top_p > 0)) return SY_OK;
    return syi_error(
        err, SY_EINVAL,
        "decode.temperature of the run is 0, so nothing is drawn; %s is of SY_SAMPLE: leave it 0, or "
        "name that method",
        o->top_k > 0 ? "top_k" : "top_p");
}

static int apply(struct syi_config *asked, const struct sy_predict_options *o, struct sy_error *err)
{
    if (o->method < SY_AS_RUN || o->method > SY_SAMPLE)
        return syi_error(err, SY_EINVAL,
                         "method %d: unknown; there are SY_AS_RUN, SY_GREEDY, SY_BEAMS and SY_SAMPLE",
                         o->method);
    if (o->first < 0)
        return syi_error(err, SY_EINVAL, "first = %lld: inputs count from 0", (long long)o->first);
    int status = check_fields(o, err);
    if (status) return status;
    set_method(o->method, &asked->decode);
    status = set_fields(o, asked, err);
    if (!status) status = check_as_run(o, &asked->decode, err);
    return status ? status : syi_config_validate_programs(asked, err);
}

/* A configuration is some 300 KiB, which is given back before the call computes. */
static int ask(const struct sy_model *m, const struct sy_predict_options *o, struct asked *asked,
               struct sy_error *err)
{
    struct syi_config *config = syi_config_copy(&m->config, err);
    if (!config) return SY_ENOMEM;
    int status = apply(config, o, err);
    *asked = (struct asked){config->decode, config->train.seed};
    syi_free(config);
    return status;
}

/* Before sizes are made of it. */
static int check_count(size_t n, struct sy_error *err)
{
    return n <= INT32_MAX
               ? SY_OK
               : syi_error(err, SY_EINVAL, "%zu texts in one call are too many: there are at most %d", n,
                           INT32_MAX);
}

/* Spans of the inputs and their places among all, in one piece of memory each. */
static int take_inputs(const struct sy_text *inputs, size_t n, int64_t first, struct syi_span **spans,
                       int64_t **index, struct sy_error *err)
{
    int status = check_count(n, err);
    if (status) return status;
    if (first > INT64_MAX - (int64_t)n)
        return syi_error(err, SY_EINVAL,
                         "first = %lld: with %zu inputs after it the last would have no number",
                         (long long)first, n);
    *spans = syi_alloc(n * sizeof **spans, err);
    *index = syi_alloc(n * sizeof **index, err);
    if (!*spans || !*index) return SY_ENOMEM;
    for (size_t i = 0; i < n; i++) {
        (*spans)[i] = syi_api_span(&inputs[i]);
        (*index)[i] = first + (int64_t)i;
    }
    return SY_OK;
}

static int predict(const struct sy_model *m, struct syi_predictor *predictor,
                   const struct sy_predict_options *given, const struct sy_text *inputs, size_t n,
                   struct sy_answers *answers, struct sy_error *err)
{
    struct sy_predict_options options;
    struct asked asked = {.seed = 0};
    struct syi_span *spans = NULL;
    int64_t *index = NULL;
    int status = syi_api_take(&options, sizeof options, given, "sy_predict_options", err);
    if (!status) status = ask(m, &options, &asked, err);
    if (!status) status = take_inputs(inputs, n, options.first, &spans, &index, err);
    if (!status)
        status = syi_predictor_decode(predictor, &asked.decode, asked.seed, spans, index, n,
                                      &answers->outcomes, err);
    syi_free(spans);
    syi_free(index);
    return status;
}

int sy_predict(struct sy_model *m, const struct sy_predict_options *options, const struct sy_text *inputs,
               size_t n, struct sy_answers **answers, struct sy_error *err)
{
    fenv_t before;
    struct syi_lane *lane;
    *answers = NULL;
    struct sy_answers *a = syi_alloc(sizeof *a, err);
    if (!a) return SY_ENOMEM;
    int status = enter(m, &lane, &before, err);
    if (!status) status = leave(m, lane, &before, predict(m, lane->predictor, options, inputs, n, a, err));
    if (status)
        sy_answers_free(a);
    else
        *answers = a;
    return status;
}

/* ---- scores ---- */

static int score(struct syi_predictor *predictor, const struct sy_pair *pairs, size_t n, double *scores,
                 int64_t *tokens, struct sy_error *err)
{
    int status = check_count(n, err);
    if (status) return status;
    struct syi_span *spans = syi_alloc(2 * n * sizeof *spans, err); /* inputs, then targets */
    int32_t *counts = syi_alloc(n * sizeof *counts, err);
    status = spans && counts ? SY_OK : SY_ENOMEM;
    for (size_t i = 0; !status && i < n; i++) {
        spans[i] = syi_api_span(&pairs[i].input);
        spans[n + i] = syi_api_span(&pairs[i].target);
    }
    if (!status) status = syi_predictor_score(predictor, spans, spans + n, n, scores, counts, err);
    for (size_t i = 0; !status && tokens && i < n; i++) tokens[i] = counts[i];
    syi_free(spans);
    syi_free(counts);
    return status;
}

int sy_score(struct sy_model *m, const struct sy_pair *pairs, size_t n, double *scores, int64_t *tokens,
             struct sy_error *err)
{
    fenv_t before;
    struct syi_lane *lane;
    int status = enter(m, &lane, &before, err);
    return status ? status : leave(m, lane, &before, score(lane->predictor, pairs, n, scores, tokens, err));
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

static int encode(const struct sy_model *m, struct syi_predictor *predictor, const struct sy_text *inputs,
                  size_t n, int64_t *tokens, float *values, size_t capacity, struct sy_error *err)
{
    struct syi_span *spans = NULL;
    int64_t *index = NULL;
    int status = take_inputs(inputs, n, 0, &spans, &index, err);
    if (!status) status = syi_predictor_count(predictor, spans, n, tokens, err);
    if (!status && values) status = check_room(m, tokens, n, capacity, err);
    if (!status && values) status = syi_predictor_encode(predictor, spans, tokens, n, values, err);
    syi_free(spans);
    syi_free(index);
    return status;
}

int sy_encode(struct sy_model *m, const struct sy_text *inputs, size_t n, int64_t *tokens, float *values,
              size_t capacity, struct sy_error *err)
{
    fenv_t before;
    struct syi_lane *lane;
    int status = enter(m, &lane, &before, err);
    return status ? status
                  : leave(m, lane, &before,
                          encode(m, lane->predictor, inputs, n, tokens, values, capacity, err));
}
