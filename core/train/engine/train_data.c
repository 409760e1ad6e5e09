/* SPDX-License-Identifier: Apache-2.0 */
/* Batches of a run file's training. Which example comes when is the batcher's business. */
#include "config.h"

#include <string.h>

#include "base/philox.h"
#include "data/length_buckets.h"
#include "train/engine/data_files.h"
#include "train/engine/engine.h"
#include "train/engine/train_data.h"

/* Batches that are sorted by length together: padding falls to a few percent. */
enum { POOL_BATCHES = 16, POOL_ROWS = 1 << 24 };

int syi_train_batch_create(const struct syi_config *c, struct syi_batch *batch, struct sy_error *err)
{
    struct syi_bucket buckets[SYI_MAX_BUCKETS];
    int n = syi_engine_buckets(c, buckets);

    return c->data.pack ? syi_batch_create_packed(batch, (int32_t)c->data.batch_size, &buckets[0], err)
                        : syi_batch_create(batch, (int32_t)c->data.batch_size, buckets, n, err);
}

/* ---- the mixture, opened by all ranks ---- */

/* The first rank reads what there is to read, the others get it. */
static int open_mixture(struct syi_train_data *data, const struct syi_config *c,
                        const struct syi_train_reader *reader, const char *cache, struct sy_error *err)
{
    struct syi_comm *comm = reader->rank && reader->rank->ranks > 1 ? reader->rank->comm : NULL;
    struct syi_busy busy = syi_busy_begin(comm);
    struct syi_share share = {
        .first = comm && !comm->rank, .bytes = syi_busy_share, .arg = &busy, .work = syi_busy_run};
    struct syi_data_files files = {0};
    struct syi_dataset_place place = {.cache = cache, .quiet = reader->quiet, .share = comm ? &share : NULL};
    int status = SY_OK;
    if (reader->rank) {
        place.sharers = syi_data_files_sharers(reader->rank);
        status = syi_data_files_open(&files, reader->rank, c->data.stage, err);
        place.settle = syi_data_files_settle, place.settle_arg = &files;
    }
    if (!status) status = syi_mixture_open(&data->mixture, c, &data->vocabularies, &place, err);
    if (!status && reader->rank) status = syi_data_files_report(&files, err);
    memcpy(data->copied, files.report, sizeof data->copied);
    syi_data_files_close(&files);
    return status;
}

/* data.cache, or data-cache in the folder of the run directory; *cache NULL: there is none. */
static int find_cache(const struct syi_config *c, const char *run_dir, char **cache, struct sy_error *err)
{
    *cache = NULL;
    if (!*c->data.cache && !run_dir) return SY_OK;
    if (*c->data.cache) {
        *cache = syi_strdup(c->data.cache, err);
    } else {
        size_t n = strlen(run_dir);
        while (n > 1 && run_dir[n - 1] == '/') n--;
        while (n && run_dir[n - 1] != '/') n--;
        *cache = syi_format("%.*sdata-cache", (int)n, run_dir);
    }
    return *cache ? SY_OK : syi_error(err, SY_ENOMEM, "out of memory");
}

/* ---- batches ---- */

static int make_batch(void *arg, struct syi_batch *batch, struct sy_error *err)
{
    return syi_train_batch_create(arg, batch, err);
}

static int open_batcher(struct syi_train_data *data, const struct syi_config *c,
                        const struct syi_train_reader *reader, struct sy_error *err)
{
    struct syi_bucket buckets[SYI_MAX_BUCKETS];
    int64_t pool = POOL_ROWS / c->data.batch_size;
    uint8_t *mine = reader->engine ? syi_alloc((size_t)c->data.batch_size, err) : NULL;
    if (reader->engine && !mine) return SY_ENOMEM;
    if (mine) syi_engine_rows(reader->engine, mine);
    struct syi_batcher_options options = {
        .buckets = buckets,
        .n_buckets = syi_engine_buckets(c, buckets),
        .batch_size = (int32_t)c->data.batch_size,
        .pool_batches = pool < POOL_BATCHES ? (int32_t)pool : POOL_BATCHES,
        .pack = c->data.pack,
        .mine = mine,
    };
    int status = syi_batcher_create(&data->batcher, &data->mixture, &options, err);
    syi_free(mine);
    return status;
}

int syi_train_data_open(struct syi_train_data *data, const struct syi_config *c,
                        const struct syi_train_reader *reader, struct sy_error *err)
{
    char *cache;
    memset(data, 0, sizeof *data);
    int status = find_cache(c, reader->run_dir, &cache, err);
    if (!status) status = syi_vocabularies_open(&data->vocabularies, c, err);
    if (!status) status = open_mixture(data, c, reader, cache, err);
    if (!status) status = open_batcher(data, c, reader, err);
    if (!status)
        status =
            syi_prefetch_open(&data->prefetch, &data->batcher, reader->ahead, make_batch, (void *)c, err);
    syi_free(cache);
    return status;
}

void syi_train_data_close(struct syi_train_data *data)
{
    syi_prefetch_close(&data->prefetch);
    syi_batcher_free(&data->batcher);
    syi_mixture_close(&data->mixture);
    syi_vocabularies_close(&data->vocabularies);
}

int syi_train_data_get(struct syi_train_data *data, int64_t step, const struct syi_batch **batch,
                       struct sy_error *err)
{
    return syi_prefetch_get(&data->prefetch, step, batch, err);
}

/* ---- padded lengths from the data ---- */

/* Batches that padded lengths are chosen from: some of each pool, of pools that lie evenly in the training. Sorting a pool takes
 * time, so large ones are fewer. */
enum { SAMPLE_POOLS = 16, SAMPLE_ROWS = 1 << 20 };

/* The shortest padded length with which sums over a batch have as many parts as with the longest, so that as many ranks can
 * share them. */
static int32_t least_length(const struct syi_config *c)
{
    struct syi_shape shape = syi_config_shape(c, SYI_GRAD_FIRST);
    uint32_t wanted[SYI_AXIS_COUNT], have[SYI_AXIS_COUNT];
    int64_t longest = shape.shortest_length;
    syi_leaves(c, &shape, wanted);
    for (shape.shortest_length = 1; shape.shortest_length < longest; shape.shortest_length++) {
        syi_leaves(c, &shape, have);
        if (have[SYI_AXIS_BATCH] == wanted[SYI_AXIS_BATCH]) break;
    }
    return (int32_t)shape.shortest_length;
}

static int sample_batches(struct syi_batcher *b, int64_t steps, struct syi_length_sample *sample,
                          struct sy_error *err)
{
    int64_t pool_rows = (int64_t)b->pool_batches * b->batch_size, pools = SAMPLE_ROWS / pool_rows;
    int64_t all = (steps + b->pool_batches - 1) / b->pool_batches;
    if (pools > SAMPLE_POOLS) pools = SAMPLE_POOLS;
    if (pools > all) pools = all;
    if (pools < 1) pools = 1;
    sample->n = (int)pools * b->pool_batches;
    sample->batch = syi_alloc((size_t)sample->n * sizeof *sample->batch, err);
    int status = sample->batch ? SY_OK : SY_ENOMEM;
    for (int i = 0; i < sample->n && !status; i++) {
        int64_t pool = i / b->pool_batches * all / pools;
        status = syi_batcher_longest(b, pool * b->pool_batches + i % b->pool_batches, &sample->batch[i], err);
    }
    return status;
}

int syi_train_find_buckets(struct syi_config *c, const char *run_dir, double positions[2],
                           struct sy_error *err)
{
    struct syi_train_data *data = syi_alloc(sizeof *data, err);
    struct syi_train_reader reader = {.run_dir = run_dir, .quiet = 1};
    if (!data) return SY_ENOMEM;
    c->data.length_buckets.n = 0;
    struct syi_length_sample sample = {
        .most = {(int32_t)c->data.max_input_length, (int32_t)c->data.max_target_length},
        .least = least_length(c)};
    int status = syi_train_data_open(data, c, &reader, err);
    if (!status) status = sample_batches(&data->batcher, c->train.steps, &sample, err);
    if (!status) {
        positions[1] = syi_length_buckets_positions(&sample, &c->data.length_buckets);
        status = syi_length_buckets_choose(&sample, (int)c->data.auto_buckets, &c->data.length_buckets, err);
    }
    if (!status) positions[0] = syi_length_buckets_positions(&sample, &c->data.length_buckets);
    syi_free(sample.batch);
    syi_train_data_close(data);
    syi_free(data);
    return status;
}

/* ---- made up ---- */

/* Which random number of a batch: of `row`, on one side, `index` 0 for the length and then the tokens. */
struct draw {
    uint64_t seed;
    uint32_t step, row, side;
};

static uint32_t draw_below(const struct draw *d, uint32_t index, uint32_t n)
{
    uint32_t counter[4] = {d->step, d->row, d->side, index},
             key[2] = {(uint32_t)d->seed, (uint32_t)(d->seed >> 32)};
    uint32_t out[4];
    syi_philox(counter, key, out);
    return out[0] % n;
}

/* 1 token or more, of ids below n_ids, and the end token; returns the length. */
static int32_t make_up_row(const struct draw *d, const struct syi_vocabulary *vocabulary, int64_t n_ids,
                           int32_t *ids, int32_t longest)
{
    int32_t n = 1 + (int32_t)draw_below(d, 0, (uint32_t)longest - 1);
    uint32_t choices = n_ids > vocabulary->first ? (uint32_t)(n_ids - vocabulary->first) : 1;

    for (int32_t i = 0; i < n; i++)
        ids[i] = vocabulary->first + (int32_t)draw_below(d, (uint32_t)i + 1, choices);
    ids[n] = vocabulary->end;
    return n + 1;
}

void syi_train_batch_make_up(const struct syi_config *c, const struct syi_vocabularies *vocabularies,
                             int64_t step, struct syi_batch *b)
{
    struct syi_bucket buckets[SYI_MAX_BUCKETS];
    int n_buckets = syi_engine_buckets(c, buckets);

    syi_batch_begin(b, buckets, (int)(step % n_buckets));
    for (int32_t row = 0; row < b->rows; row++) {
        struct draw d = {(uint64_t)c->train.seed, (uint32_t)step, (uint32_t)row, 0};
        struct syi_slot slot = {.row = row, .segment = b->segments != NULL};
        int32_t n_inputs =
            make_up_row(&d, &vocabularies->input, c->model.vocab_size,
                        b->encoder_ids + (size_t)row * (size_t)b->input_length, b->input_length);
        d.side = 1;
        int32_t n_targets =
            make_up_row(&d, &vocabularies->target, c->model.vocab_size,
                        b->decoder_targets + (size_t)row * (size_t)b->target_length, b->target_length);
        syi_batch_settle(b, &slot, row, n_inputs, n_targets);
    }
}

void syi_train_data_name(const struct syi_config *config, char *text, size_t bytes)
{
    const struct syi_task_part *task = syi_config_task(config);
    size_t used = 0;
    int n = 0;
    for (int i = 0; i < config->task.n; i++) n += *config->task.part[i].train != '\0';
    if (n < 2) {
        snprintf(text, bytes, "task.%s.train: %s has", task->name_of_part, task->train);
        return;
    }
    for (int i = 0; i < config->task.n && used < bytes; i++)
        if (*config->task.part[i].train)
            used += (size_t)snprintf(text + used, bytes - used, "%s task.%s.train",
                                     used ? "," : "one or more of", config->task.part[i].name_of_part);
    if (used < bytes) snprintf(text + used, bytes - used, ", which count as one file here,");
}
