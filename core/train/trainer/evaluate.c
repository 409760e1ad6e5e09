/* SPDX-License-Identifier: Apache-2.0 */
/* Evaluation of one task: a pass over its file that decodes, if it has metrics of texts, and one that takes the loss.
 * Printing is the caller's. */
#include "config.h"

#include <math.h>
#include <string.h>

#include "base/text.h"
#include "train/engine/data_files.h"
#include "train/trainer/evaluate.h"

/* ---- loading ---- */

struct loading {
    struct syi_task *task;
    const struct syi_example_form *form;
    const char *file;
};

static int load_task(void *arg, struct sy_error *err)
{
    const struct loading *l = arg;
    return syi_task_load(l->task, l->form, l->file, err);
}

/* Texts of pairs, grouped by their inputs. share: NULL where this process is alone. */
static int load_pairs(struct syi_eval_data *data, const char *file, const struct syi_share *share,
                      struct sy_error *err)
{
    struct syi_example_form form;
    struct loading loading = {&data->task, &form, file};
    int64_t most = data->options->eval_examples;
    int status = syi_example_form_make(&form, data->config, data->options, NULL, err);

    if (!status) status = syi_share_work(share, load_task, &loading, err);
    if (!status && share) status = syi_task_share(&data->task, share, err);
    if (!status) status = syi_items_build(&data->items, &data->task, err);
    if (!status && most && most < data->items.n_items) data->items.n_items = (int32_t)most;
    return status ? status : syi_eval_spans(&data->task, &data->items, &data->inputs, &data->targets, err);
}

/* Examples made from running text: none but the ranks read them. */
static int open_dataset(const struct syi_eval_data *data, const char *file, struct syi_dataset_place *place,
                        const struct syi_vocabularies *vocabularies, struct syi_dataset *dataset,
                        struct sy_error *err)
{
    const char *cache = data->config->data.cache;
    struct syi_example_form form;
    int status = syi_example_form_make(&form, data->config, data->options, vocabularies, err);
    place->cache = *cache ? cache : NULL;
    return status ? status : syi_dataset_open(dataset, &form, file, place, err);
}

static int count_examples(struct syi_eval_data *data, const char *file, const struct syi_share *share,
                          struct sy_error *err)
{
    struct syi_dataset_place place = {.share = share};
    int64_t most = data->options->eval_examples ? data->options->eval_examples : INT32_MAX - 1;
    struct syi_vocabularies vocabularies;
    struct syi_dataset dataset;
    int status = syi_vocabularies_open(&vocabularies, data->config, err);
    if (status) return status;
    status = open_dataset(data, file, &place, &vocabularies, &dataset, err);
    if (!status) {
        data->items.n_items = (int32_t)(dataset.counts.entries < most ? dataset.counts.entries : most);
        data->task.id = dataset.id;
        syi_dataset_close(&dataset);
        data->task.path = syi_strdup(file, err);
        if (!data->task.path) status = SY_ENOMEM;
    }
    syi_vocabularies_close(&vocabularies);
    return status;
}

int syi_eval_data_load(struct syi_eval_data *data, const struct syi_config *config,
                       const struct syi_task_part *options, const char *name, const char *file,
                       struct syi_world *world, struct sy_error *err)
{
    int several = world && world->ranks > 1;
    struct syi_busy busy = syi_busy_begin(several ? &world->comm : NULL);
    struct syi_share way = {several && !world->rank, syi_busy_share, &busy, syi_busy_run};
    const struct syi_share *share = several ? &way : NULL;
    memset(data, 0, sizeof(*data));
    data->options = options;
    data->config = config;
    snprintf(data->name, sizeof(data->name), "%s", name);
    int status = options->objective == SYI_OBJECTIVE_PAIRS ? load_pairs(data, file, share, err)
                                                           : count_examples(data, file, share, err);
    if (status) syi_eval_data_free(data);
    return status;
}

void syi_eval_data_free(struct syi_eval_data *data)
{
    syi_free(data->inputs);
    syi_free(data->targets);
    syi_items_free(&data->items);
    syi_task_free(&data->task);
    memset(data, 0, sizeof(*data));
}

int syi_eval_decodes(const struct syi_eval_data *data)
{
    return data->options->metrics.n > 0;
}

/* ---- making one ---- */

/* Of running text. */
static int open_own(struct syi_evaluation *e, struct sy_error *err)
{
    struct syi_comm *comm = e->rank->ranks > 1 ? e->comm : NULL;
    struct syi_busy busy = syi_busy_begin(comm);
    struct syi_share share = {comm && !comm->rank, syi_busy_share, &busy, syi_busy_run};
    struct syi_data_files files;
    struct syi_dataset_place place = {.quiet = 1,
                                      .sharers = syi_data_files_sharers(e->rank) * e->config->task.n,
                                      .share = comm ? &share : NULL,
                                      .settle = syi_data_files_settle,
                                      .settle_arg = &files};
    int status = syi_data_files_open(&files, e->rank, "", err);
    if (!status)
        status = open_dataset(e->data, e->data->task.path, &place, &e->vocabularies, &e->dataset, err);
    syi_data_files_close(&files);
    if (!status && strcmp(e->dataset.id.sha256, e->data->task.id.sha256) != 0)
        status = syi_error(err, SY_EMISMATCH, "%s changed since it was looked through: start again",
                           e->data->task.path);
    return status;
}

static int make_batches(struct syi_evaluation *e, struct sy_error *err)
{
    const struct syi_eval_data *data = e->data;
    struct syi_bucket buckets[SYI_MAX_BUCKETS];
    int n = syi_engine_buckets(e->config, buckets);
    int32_t rows = syi_engine_eval_rows(e->engine), n_items = data->items.n_items;
    int status = syi_vocabularies_open(&e->vocabularies, e->config, err);

    if (!status && syi_eval_decodes(data))
        status = syi_eval_batches_create(&e->decode, &e->vocabularies, buckets, n, rows, data->inputs, NULL,
                                         n_items, err);
    if (status) return status;
    if (data->inputs) {
        status = syi_eval_batches_create(&e->loss, &e->vocabularies, buckets, n, rows, data->inputs,
                                         data->targets, n_items, err);
    } else {
        status = open_own(e, err);
        if (!status)
            status = syi_eval_batches_create_of(&e->loss, &e->dataset, buckets, n, rows, n_items, err);
    }
    if (!status) status = syi_batch_create(&e->batch, rows, buckets, n, err);
    return status;
}

static int most_examples(const struct syi_evaluation *e)
{
    int64_t most = e->config->metrics.examples, n = e->data->items.n_items;
    return (int)(syi_eval_decodes(e->data) ? most < n ? most : n : 0);
}

static int take_buffers(struct syi_evaluation *e, struct sy_error *err)
{
    size_t rows = (size_t)e->batch.rows, length = (size_t)e->decode_length,
           items = (size_t)e->data->items.n_items;

    e->ids = syi_alloc(rows * length * sizeof(*e->ids), err);
    e->lengths = syi_alloc(rows * sizeof(*e->lengths), err);
    e->row_scores = syi_alloc(rows * sizeof(*e->row_scores), err);
    e->output = syi_alloc((items + 1) * sizeof(*e->output), err);
    e->example = syi_alloc(((size_t)most_examples(e) + 1) * sizeof(*e->example), err);
    if (!e->ids || !e->lengths || !e->row_scores) return SY_ENOMEM;
    return e->output && e->example ? SY_OK : SY_ENOMEM;
}

/* What is added up of layers with experts. */
static int take_layers(struct syi_evaluation *e, struct sy_error *err)
{
    int layers = syi_engine_moe_layers(e->engine), experts = syi_engine_experts(e->engine);
    size_t n = (size_t)layers + 1; /* a dense model has no layer and is no failure */

    e->sums.layer = syi_alloc(n * sizeof(*e->sums.layer), err);
    e->sums.routing = syi_alloc(n * (size_t)(experts + 1) * 2 * sizeof(*e->sums.routing), err);
    e->routing = syi_alloc(n * sizeof(*e->routing), err);
    if (!e->sums.layer || !e->sums.routing || !e->routing) return SY_ENOMEM;
    for (int i = 0; i < layers; i++) {
        const int64_t *at = e->sums.routing + (ptrdiff_t)i * 2 * experts;
        e->routing[i] = (struct syi_eval_routing){syi_engine_moe_layer(e->engine, i), at, at + experts};
    }
    return SY_OK;
}

void syi_evaluation_use(struct syi_evaluation *e, struct syi_engine *engine)
{
    e->engine = engine;
    for (int i = 0; e->routing && i < syi_engine_moe_layers(engine); i++)
        e->routing[i].layer = syi_engine_moe_layer(engine, i);
}

int syi_evaluation_open(struct syi_evaluation *e, const struct syi_eval_data *data,
                        const struct syi_config *config, struct syi_engine *engine,
                        const struct syi_rank *rank, const struct syi_report *report, struct sy_error *err)
{
    int status;

    memset(e, 0, sizeof(*e));
    e->data = data;
    e->config = config;
    e->engine = engine;
    e->rank = rank;
    e->comm = rank->comm;
    e->report = report;
    e->decode_length = syi_engine_decode_length(engine);
    syi_text_scores_open(&e->scores, &data->options->metrics);
    status = take_layers(e, err);
    if (!status) status = make_batches(e, err);
    if (!status && syi_eval_decodes(data)) status = take_buffers(e, err);
    if (status) syi_evaluation_close(e);
    return status;
}

void syi_evaluation_close(struct syi_evaluation *e)
{
    syi_text_scores_free(&e->scores);
    syi_text_free(&e->outputs);
    syi_text_free(&e->example_text);
    syi_dataset_close(&e->dataset);
    syi_vocabularies_close(&e->vocabularies);
    syi_free(e->example);
    syi_free(e->references);
    syi_free(e->output);
    syi_free(e->row_scores);
    syi_free(e->lengths);
    syi_free(e->ids);
    syi_free(e->routing);
    syi_free(e->sums.routing);
    syi_free(e->sums.layer);
    syi_batch_free(&e->batch);
    syi_eval_batches_free(&e->loss);
    syi_eval_batches_free(&e->decode);
    memset(e, 0, sizeof(*e));
}

int32_t syi_evaluation_cut(const struct syi_evaluation *e)
{
    return syi_eval_decodes(e->data) ? e->decode.n_cut : e->loss.n_cut;
}

static void report_work(const struct syi_evaluation *e, const char *what, int64_t done,
                        const struct syi_eval_batches *batches)
{
    char text[SYI_CONFIG_STRING + 16];
    if (e->comm->rank || !e->report || !e->report->work) return;
    snprintf(text, sizeof(text), "%s %s", e->data->name, what);
    e->report->work(e->report->arg, text, done, e->data->items.n_items - batches->n_cut);
}

/* ---- decoding: outputs of all items ---- */

static void keep_output(struct syi_evaluation *e, int32_t row)
{
    const int32_t *ids = e->ids + (size_t)row * (size_t)e->decode_length;
    size_t at = e->outputs.length;

    syi_vocabulary_decode(&e->vocabularies.target, ids, (size_t)e->lengths[row], &e->outputs);
    e->output[e->batch.items[row]] =
        (struct syi_eval_output){at, e->outputs.length - at, (double)e->row_scores[row]};
}

static int decode_batch(struct syi_evaluation *e, int32_t index, syi_poll_fn poll, void *poll_arg,
                        struct sy_error *err)
{
    struct syi_outputs best = {.decodes = 1,
                               .ids = e->ids,
                               .lengths = e->lengths,
                               .scores = e->row_scores,
                               .poll = poll,
                               .poll_arg = poll_arg};
    int status = syi_eval_batches_fetch(&e->decode, index, &e->batch, err);

    for (int32_t row = 0; row < e->batch.rows; row++) e->row_scores[row] = NAN; /* greedy decoding has none */
    if (!status) status = syi_engine_decode(e->engine, &e->batch, NULL, &best, err);
    for (int32_t row = 0; !status && e->comm->rank == 0 && row < e->batch.n_real; row++) keep_output(e, row);
    return status;
}

/* An item that was cut has an empty output. */
static int decode_all(struct syi_evaluation *e, syi_poll_fn poll, void *poll_arg, struct sy_error *err)
{
    int64_t done = 0;
    int status = SY_OK;

    e->outputs.length = 0;
    for (int32_t i = 0; i < e->decode.n_cut; i++)
        e->output[e->decode.cut[i]] = (struct syi_eval_output){.score = NAN};
    for (int32_t i = 0; !status && i < e->decode.n_batches; i++) {
        report_work(e, "decoded", done, &e->decode);
        status = decode_batch(e, i, poll, poll_arg, err);
        done += e->batch.n_real;
    }
    return status ? status : syi_text_status(&e->outputs, err);
}

/* ---- scores of the outputs, on rank 0 ---- */

static struct syi_span output_of(const struct syi_evaluation *e, int32_t item)
{
    size_t bytes = e->output[item].bytes;
    return (struct syi_span){bytes ? e->outputs.data + e->output[item].at : "", bytes};
}

static int score_item(struct syi_evaluation *e, int32_t item, struct sy_error *err)
{
    const struct syi_items *items = &e->data->items;
    int32_t first = items->first[item], n = items->first[item + 1] - first;
    int status = SYI_GROW(e->references, e->references_capacity, (size_t)n, err);

    for (int32_t i = 0; !status && i < n; i++)
        e->references[i] = syi_task_target(&e->data->task, items->examples[first + i]);
    struct syi_text_item texts = {output_of(e, item), e->references, n};
    return status ? status : syi_text_scores_add(&e->scores, &texts, err);
}

/* As a database takes texts: UTF-8 without NUL. In place of what is not there is U+FFFD, as for an output that ended within
 * a character. */
static void put_text(struct syi_text *text, struct syi_span span)
{
    const unsigned char *from = (const unsigned char *)span.text;
    for (size_t at = 0; at < span.bytes;) at += syi_text_put_character(text, from + at, span.bytes - at);
    syi_text_append(text, "", 1);
}

/* The texts first, then where they are: the buffer moves as it grows. */
static int keep_examples(struct syi_evaluation *e, struct sy_error *err)
{
    int n = most_examples(e);
    const char *at;

    e->example_text.length = 0;
    for (int32_t i = 0; i < n; i++) {
        put_text(&e->example_text, e->data->inputs[i]);
        put_text(&e->example_text, e->data->targets[i]);
        put_text(&e->example_text, output_of(e, i));
    }
    int status = syi_text_status(&e->example_text, err);
    at = e->example_text.data;
    for (int32_t i = 0; !status && i < n; i++) {
        struct syi_sink_example *x = &e->example[i];
        *x = (struct syi_sink_example){.task = e->data->name, .item = i, .score = e->output[i].score};
        x->input = at;
        x->target = x->input + strlen(x->input) + 1;
        x->prediction = x->target + strlen(x->target) + 1;
        at = x->prediction + strlen(x->prediction) + 1;
    }
    return status;
}

static int score_all(void *evaluation, struct sy_error *err)
{
    struct syi_evaluation *e = evaluation;
    int status = SY_OK;

    syi_text_scores_clear(&e->scores);
    for (int32_t i = 0; !status && i < e->data->items.n_items; i++) status = score_item(e, i, err);
    return status ? status : keep_examples(e, err);
}

static int score(struct syi_evaluation *e, struct sy_error *err)
{
    struct syi_busy busy = syi_busy_begin(e->comm);
    int status = e->comm->rank == 0 ? syi_busy_run(&busy, score_all, e, err) : SY_OK;
    return status ? status : syi_busy_end(&busy, err);
}

/* The numbers of rank 0 on all. */
static int share_scores(struct syi_evaluation *e, struct syi_eval_result *result, struct sy_error *err)
{
    double value[SYI_TASK_METRICS] = {0};
    int64_t words[SYI_TASK_METRICS];

    for (int i = 0; i < e->scores.n; i++) value[i] = syi_text_scores_value(&e->scores, i);
    memcpy(words, value, sizeof(words));
    int status = syi_comm_broadcast(e->comm, words, (size_t)e->scores.n, err);
    memcpy(value, words, sizeof(value));
    for (int i = 0; !status && i < e->scores.n; i++)
        syi_eval_result_set_mode(result, syi_text_metric(e->scores.metric[i])->result, value[i],
                                 SYI_MODE_INFER_EVAL);
    return status;
}

/* ---- the whole ---- */

/* A rank that cannot read says so when all are asked next. */
static int fetch(struct syi_evaluation *e, int32_t index, struct sy_error *err)
{
    int status = syi_eval_batches_fetch(&e->loss, index, &e->batch, e->unread ? e->unread : err);
    return e->unread ? SY_OK : status;
}

static int sum_losses(struct syi_evaluation *e, syi_poll_fn poll, void *poll_arg, struct sy_error *err)
{
    struct syi_eval_layer *layer = e->sums.layer;
    int64_t *routing = e->sums.routing, done = 0;
    size_t layers = (size_t)syi_engine_moe_layers(e->engine), experts = (size_t)syi_engine_experts(e->engine);
    int status = SY_OK;

    memset(layer, 0, layers * sizeof(*layer));
    memset(routing, 0, layers * experts * 2 * sizeof(*routing));
    e->sums = (struct syi_eval_sums){.layer = layer, .routing = routing};
    for (int32_t i = 0; !status && i < e->loss.n_batches; i++) {
        report_work(e, "loss", done, &e->loss);
        status = fetch(e, i, err);
        if (!status && poll) status = poll(poll_arg, err);
        if (!status) status = syi_engine_eval(e->engine, &e->batch, &e->sums, err);
        done += e->batch.n_real;
    }
    return status;
}

int syi_evaluation_run(struct syi_evaluation *e, int decode, syi_poll_fn poll, void *poll_arg,
                       struct syi_eval_result *result, struct sy_error *err)
{
    int decodes = decode && syi_eval_decodes(e->data), first = e->comm->rank == 0;
    int status = decodes ? decode_all(e, poll, poll_arg, err) : SY_OK;

    if (!status && decodes) status = score(e, err);
    if (!status) status = sum_losses(e, poll, poll_arg, err);
    if (status) return status;
    *result = (struct syi_eval_result){.task = e->data->name,
                                       .items = e->data->items.n_items,
                                       .cut = decodes ? e->decode.n_cut : e->loss.n_cut,
                                       .unfit = e->loss.n_cut,
                                       .left_out = !decodes && syi_eval_decodes(e->data)};
    if (decodes) syi_config_decode_text(e->config, result->settings);
    syi_eval_loss(&e->sums, result);
    if (decodes) status = share_scores(e, result, err);
    syi_eval_training_metrics(e->config, &e->sums, syi_engine_moe_layers(e->engine), result);
    result->example = e->example;
    result->n_examples = first && decodes ? most_examples(e) : 0;
    result->routing = e->routing;
    result->n_routing = syi_engine_moe_layers(e->engine);
    result->n_experts = syi_engine_experts(e->engine);
    return status;
}
