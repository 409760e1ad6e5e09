/* SPDX-License-Identifier: Apache-2.0 */
/* Evaluation: two passes over a file, one that decodes and scores, one that takes the loss. Printing is the
 * caller's. */
#include "config.h"

#include <math.h>
#include <string.h>

#include "train/launch/common_files.h"
#include "train/trainer/evaluate.h"

int syi_eval_data_load(struct syi_eval_data *data, const char *name, const char *file, struct sy_error *err)
{
    int status;

    memset(data, 0, sizeof(*data));
    data->name = name;
    status = syi_task_load(&data->task, file, err);
    if (!status) status = syi_items_build(&data->items, &data->task, err);
    if (!status) status = syi_eval_spans(&data->task, &data->items, &data->inputs, &data->targets, err);
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

static int make_batches(struct syi_evaluation *e, const struct syi_config *config, struct sy_error *err)
{
    const struct syi_eval_data *data = e->data;
    struct syi_bucket buckets[SYI_MAX_BUCKETS];
    int n = syi_engine_buckets(config, buckets);
    int32_t rows = syi_engine_eval_rows(e->engine), n_items = data->items.n_items;
    int status = syi_vocabularies_open(&e->vocabularies, config, err);

    if (!status)
        status = syi_eval_batches_create(&e->decode, &e->vocabularies, buckets, n, rows, data->inputs, NULL,
                                         n_items, err);
    if (!status)
        status = syi_eval_batches_create(&e->loss, &e->vocabularies, buckets, n, rows, data->inputs,
                                         data->targets, n_items, err);
    if (!status) status = syi_batch_create(&e->batch, rows, buckets, n, err);
    return status;
}

int syi_evaluation_open(struct syi_evaluation *e, const struct syi_eval_data *data,
                        const struct syi_config *config, struct syi_engine *engine, struct syi_comm *comm,
                        struct sy_error *err)
{
    int status;

    memset(e, 0, sizeof(*e));
    e->data = data;
    e->engine = engine;
    e->comm = comm;
    e->scores = comm->rank == 0;
    e->decode_length = syi_engine_decode_length(engine);
    syi_error_rate_init(&e->rate);
    status = make_batches(e, config, err);
    if (!status) {
        size_t rows = (size_t)e->batch.rows, length = (size_t)e->decode_length;
        e->ids = syi_alloc(rows * length * sizeof(*e->ids), err);
        e->lengths = syi_alloc(rows * sizeof(*e->lengths), err);
        if (!e->ids || !e->lengths) status = SY_ENOMEM;
    }
    if (status) syi_evaluation_close(e);
    return status;
}

void syi_evaluation_close(struct syi_evaluation *e)
{
    syi_error_rate_free(&e->rate);
    syi_vocabularies_close(&e->vocabularies);
    syi_text_free(&e->text);
    syi_free(e->lengths);
    syi_free(e->ids);
    syi_batch_free(&e->batch);
    syi_eval_batches_free(&e->loss);
    syi_eval_batches_free(&e->decode);
    memset(e, 0, sizeof(*e));
}

static int score_item(struct syi_evaluation *e, int32_t item, const int32_t *ids, int32_t length,
                      struct sy_error *err)
{
    e->text.length = 0;
    syi_vocabulary_decode(&e->vocabularies.target, ids, (size_t)length, &e->text);
    struct syi_span output = {e->text.length ? e->text.data : "", e->text.length};
    int status = syi_text_status(&e->text, err);
    if (status) return status;
    return syi_error_rate_add_item(&e->rate, output, &e->data->task, &e->data->items, item, NULL, err);
}

static int decode_batch(struct syi_evaluation *e, int32_t index, syi_poll_fn poll, void *poll_arg,
                        struct sy_error *err)
{
    struct syi_outputs best = {
        .decodes = 1, .ids = e->ids, .lengths = e->lengths, .poll = poll, .poll_arg = poll_arg};
    int status = syi_eval_batches_fetch(&e->decode, index, &e->batch, err);

    if (!status) status = syi_engine_decode(e->engine, &e->batch, NULL, &best, err);
    for (int32_t row = 0; !status && e->scores && row < e->batch.n_real; row++)
        status = score_item(e, e->batch.items[row], e->ids + (size_t)row * (size_t)e->decode_length,
                            e->lengths[row], err);
    return status;
}

static int decode_all(struct syi_evaluation *e, syi_poll_fn poll, void *poll_arg, struct sy_error *err)
{
    int status = SY_OK;

    e->rate.n_items = e->rate.n_wrong = e->rate.distance = e->rate.length = 0;
    for (int32_t i = 0; !status && i < e->decode.n_batches; i++)
        status = decode_batch(e, i, poll, poll_arg, err);
    for (int32_t i = 0; !status && e->scores && i < e->decode.n_cut; i++)
        status = score_item(e, e->decode.cut[i], NULL, 0, err);
    return status;
}

static int sum_losses(struct syi_evaluation *e, syi_poll_fn poll, void *poll_arg, struct syi_eval_sums *sums,
                      struct sy_error *err)
{
    int status = SY_OK;

    for (int32_t i = 0; !status && i < e->loss.n_batches; i++) {
        if (poll) status = poll(poll_arg, err);
        if (!status) status = syi_eval_batches_fetch(&e->loss, i, &e->batch, err);
        if (!status) status = syi_engine_eval(e->engine, &e->batch, sums, err);
    }
    return status;
}

int syi_evaluation_run(struct syi_evaluation *e, syi_poll_fn poll, void *poll_arg,
                       struct syi_eval_result *result, struct sy_error *err)
{
    struct syi_eval_sums sums = {0};
    double scores[2];
    int64_t words[2];
    int status = decode_all(e, poll, poll_arg, err);

    if (!status) status = sum_losses(e, poll, poll_arg, &sums, err);
    if (status) return status;
    scores[0] = syi_error_rate_wer(&e->rate);
    scores[1] = syi_error_rate_per(&e->rate);
    memcpy(words, scores, sizeof(words));
    status = syi_comm_broadcast(e->comm, words, SYI_COUNT(words), err);
    memcpy(scores, words, sizeof(scores));
    *result = (struct syi_eval_result){
        .task = e->data->name, .items = e->data->items.n_items, .cut = e->decode.n_cut};
    syi_eval_result_set(result, "loss",
                        sums.target_tokens ? sums.loss_sum / (double)sums.target_tokens : NAN);
    syi_eval_result_set(result, "wer", scores[0]);
    syi_eval_result_set(result, "per", scores[1]);
    return status;
}

/* ---- results ---- */

void syi_eval_result_set(struct syi_eval_result *result, const char *name, double value)
{
    for (int i = 0; i < result->n; i++)
        if (!strcmp(result->value[i].name, name)) {
            result->value[i].value = value;
            return;
        }
    if (result->n < SYI_EVAL_VALUES) result->value[result->n++] = (struct syi_eval_value){name, value};
}

const double *syi_eval_result_find(const struct syi_eval_result *result, const char *name)
{
    for (int i = 0; i < result->n; i++)
        if (!strcmp(result->value[i].name, name)) return &result->value[i].value;
    return NULL;
}

/* ---- switchyard eval ---- */

struct eval_call {
    const struct syi_eval_job *job;
    struct syi_eval_data data;
    struct syi_eval_result *result; /* of rank 0 */
};

static void say(const struct syi_eval_job *job, const struct syi_rank *rank, const char *text)
{
    if (rank->rank == 0 && job->report.line) job->report.line(job->report.arg, text);
}

static int evaluate_checkpoint(struct eval_call *call, const struct syi_rank *rank, struct syi_engine *engine,
                               struct sy_error *err)
{
    const struct syi_eval_job *job = call->job;
    struct syi_checkpoint_meta meta = {0};
    struct syi_evaluation evaluation;
    struct syi_eval_result result;
    char text[256];
    int status = syi_checkpoint_load(job->run_dir, job->checkpoint, syi_engine_session(engine), rank->comm, 0,
                                     &meta, err);

    syi_engine_params_changed(engine);
    if (!status)
        status = syi_evaluation_open(&evaluation, &call->data, job->launch.config, engine, rank->comm, err);
    if (status) return status;
    snprintf(text, sizeof(text), "checkpoint of step %lld; %d items, %d too long and counted as wrong",
             (long long)meta.step, call->data.items.n_items, evaluation.decode.n_cut);
    say(job, rank, text);
    status = syi_evaluation_run(&evaluation, NULL, NULL, &result, err);
    syi_evaluation_close(&evaluation);
    if (status || rank->rank != 0) return status;
    *call->result = result;
    if (job->step) *job->step = meta.step;
    return SY_OK;
}

static int eval_rank(void *arg, const struct syi_rank *rank, struct sy_error *err)
{
    struct eval_call *call = arg;
    struct syi_engine *engine;
    char text[512];
    int status = syi_common_task(rank, &call->data.task, err);

    if (!status)
        status =
            syi_engine_new(call->job->launch.config, rank, SYI_USE_EVAL | SYI_USE_DECODE, 0, &engine, err);
    if (status) return status;
    syi_rank_describe(rank, text, sizeof(text));
    say(call->job, rank, text);
    status = evaluate_checkpoint(call, rank, engine, err);
    syi_engine_free(engine);
    return status;
}

int syi_eval_run(const struct syi_eval_job *job, struct syi_eval_result *result, struct sy_error *err)
{
    struct eval_call call = {.job = job, .result = result};
    int status;

    if (!*job->file)
        return syi_error(err, SY_EINVAL,
                         "no file to evaluate on; set task.NAME.test to a file of input TAB target");
    status = syi_eval_data_load(&call.data, job->task, job->file, err);
    if (status) return status;
    status = syi_launch_run(&job->launch, eval_rank, &call, err);
    syi_eval_data_free(&call.data);
    if (!status) result->task = job->task;
    return status;
}
