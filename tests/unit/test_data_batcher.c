/* SPDX-License-Identifier: Apache-2.0 */
/* The stream of training batches: epochs are permutations, any step at any time gives the same batch, lengths
 * fit, short examples first, nothing allocated. */
#include "config.h"

#include "data/batcher.h"
#include "data/shuffle.h"
#include "data_support.h"

static const struct syi_bucket buckets[] = {{8, 12}, {16, 24}};
enum { N = 1000, ROWS = 8, POOL = 5 };

struct stream {
    char text[N * 64];
    struct syi_config *config;
    struct syi_vocabularies vocabularies;
    struct syi_mixture mixture;
    struct syi_batcher batcher;
    struct syi_batch batch;
    const char *path;
};

static int input_bytes(int example)
{
    return 4 + (example % 100 == 99 ? 14 : example % 11);
}

static int target_bytes(int example)
{
    return 1 + example * 7 % 23;
}

/* Of an entry of the index, which lacks what is too long. */
static int example_of(int64_t entry)
{
    return (int)(entry + entry / 99);
}

/* N examples of many lengths; every 100th (10 in all) is too long. pad: what targets end with. */
static struct stream *new_stream(const char *pad)
{
    struct stream *s = calloc(1, sizeof *s);
    size_t bytes = 0;

    for (int i = 0; i < N; i++)
        bytes += (size_t)sprintf(s->text + bytes, "w%03d%.*s\t%.*s%s\n", i, input_bytes(i) - 4,
                                 "abcdefghijklmn", target_bytes(i), "ABCDEFGHIJKLMNOPQRSTUVW", pad);
    s->path = strdup(write_fresh("task.tsv", s->text, bytes));
    s->vocabularies = byte_vocabularies();
    s->config = tsv_config(s->path, 16, 24);
    return s;
}

static void start_stream(struct stream *s)
{
    struct syi_batcher_options options = {
        .buckets = buckets, .n_buckets = 2, .batch_size = ROWS, .pool_batches = POOL};
    struct syi_dataset_place place = {0};
    struct sy_error err = {0};

    cr_assert(syi_mixture_open(&s->mixture, s->config, &s->vocabularies, &place, &err) == SY_OK, "%s",
              err.text);
    cr_assert(syi_batcher_create(&s->batcher, &s->mixture, &options, NULL) == SY_OK);
    cr_assert(syi_batch_create(&s->batch, ROWS, buckets, 2, NULL) == SY_OK);
}

static struct stream *open_stream(int64_t seed, int64_t warm_examples)
{
    struct stream *s = new_stream("");
    s->config->train.seed = seed;
    s->config->data.warm_examples = warm_examples;
    s->config->data.warm_max_target = 7;
    start_stream(s);
    return s;
}

static void close_stream(struct stream *s)
{
    syi_batch_free(&s->batch);
    syi_batcher_free(&s->batcher);
    syi_mixture_close(&s->mixture);
    remove_path(s->path);
    free((char *)s->path);
    free(s->config);
    free(s);
}

static int fetch(struct stream *s, int64_t step)
{
    return syi_batcher_fetch(&s->batcher, step, &s->batch, NULL);
}

static uint64_t hash_batch(const struct syi_batch *batch)
{
    uint64_t hash = (uint64_t)batch->bucket;
    for (int32_t i = 0; i < batch->rows; i++) hash = syi_shuffle_key(hash, (uint64_t)batch->items[i]);
    for (int32_t i = 0; i < batch->rows * batch->input_length; i++)
        hash = syi_shuffle_key(hash, (uint64_t)batch->encoder_ids[i]);
    for (int32_t i = 0; i < batch->rows * batch->target_length; i++)
        hash = syi_shuffle_key(hash, (uint64_t)batch->decoder_targets[i]);
    return hash;
}

Test(data_batcher, shuffle_is_a_bijection)
{
    static const uint64_t sizes[] = {1, 2, 3, 4, 5, 16, 17, 100, 1023, 1024, 1025, 4097};
    static unsigned char seen[4097];
    size_t fixed = 0;

    for (size_t i = 0; i < SYI_COUNT(sizes); i++) {
        for (uint64_t key = 0; key < 5; key++) {
            memset(seen, 0, sizeof(seen));
            for (uint64_t index = 0; index < sizes[i]; index++) {
                uint64_t to = syi_shuffle_index(key, sizes[i], index);
                cr_assert(to < sizes[i] && !seen[to]++);
                fixed += sizes[i] > 1000 && to == index;
            }
        }
    }
    cr_assert(fixed < 80, "%zu elements stayed where they were", fixed); /* about 20 are to be expected */
    cr_assert(syi_shuffle_index(1, UINT64_MAX / 2, UINT64_MAX / 2 - 1) < UINT64_MAX / 2);
}

/* A random order has no favourites: where element 0 goes, over many keys, is spread evenly. */
Test(data_batcher, shuffle_is_even)
{
    int count[10] = {0};

    for (uint64_t key = 0; key < 10000; key++)
        count[syi_shuffle_index(syi_shuffle_key(5, key), 10, key % 10)]++;
    for (int i = 0; i < 10; i++) cr_assert(count[i] > 880 && count[i] < 1120, "%d", count[i]);
}

Test(data_batcher, an_epoch_has_every_example_once)
{
    struct caught_log log = {0};
    int seen[N] = {0};

    sy_log_set(catch_line, &log);
    struct stream *stream = open_stream(3, 0);
    const struct syi_dataset_counts *counts = &stream->mixture.dataset[0].counts;
    cr_assert(counts->too_long == 10 && counts->entries == 990 && counts->examples == N);
    cr_assert(log.n == 1 && strstr(log.last, "10 of 1000 examples"), "%s", log.last);
    for (int64_t place = 0; place < 2 * 990; place++)
        seen[example_of(syi_mixture_pick(&stream->mixture, place).entry)]++;
    for (int i = 0; i < N; i++) cr_assert(seen[i] == (i % 100 == 99 ? 0 : 2), "example %d: %d", i, seen[i]);
    /* 99 whole pools hold 4 epochs: 99 * POOL * ROWS = 990 * 4 */
    memset(seen, 0, sizeof(seen));
    for (int64_t step = 0; step < 990 * 4 / ROWS; step++) {
        cr_assert(fetch(stream, step) == SY_OK);
        cr_assert(stream->batch.n_real == ROWS);
        for (int row = 0; row < ROWS; row++) seen[example_of(stream->batch.items[row])]++;
    }
    for (int i = 0; i < N; i++) cr_assert(seen[i] == (i % 100 == 99 ? 0 : 4));
    cr_assert(syi_mixture_epochs(&stream->mixture, 0, 990 * 4) == 4);
    close_stream(stream);
}

/* Pairs that are cut are counted as those that are left out are. */
Test(data_batcher, cut_pairs_are_counted)
{
    struct caught_log log = {0};
    struct stream *stream = new_stream("");

    sy_log_set(catch_line, &log);
    cr_assert(syi_config_set(stream->config, "task.t.too_long=trim", NULL) == SY_OK);
    start_stream(stream);
    const struct syi_dataset_counts *counts = &stream->mixture.dataset[0].counts;
    cr_assert(counts->too_long == 10 && counts->entries == N && counts->examples == N);
    cr_assert(log.n == 1 && strstr(log.last, "10 of 1000 examples") && strstr(log.last, " cut, first \"w099"),
              "%s", log.last);
    close_stream(stream);
}

Test(data_batcher, any_step_at_any_time)
{
    uint64_t forward[60];
    int differ = 0;
    struct stream *stream = open_stream(3, 100), *other = open_stream(4, 100);

    for (int64_t step = 0; step < 60; step++) {
        cr_assert(fetch(stream, step) == SY_OK);
        forward[step] = hash_batch(&stream->batch);
        cr_assert(fetch(other, step) == SY_OK);
        differ += hash_batch(&other->batch) != forward[step];
    }
    cr_assert(differ == 60); /* another seed, another order */
    for (int64_t step = 59; step >= 0; step--) {
        cr_assert(fetch(stream, step) == SY_OK);
        cr_assert(hash_batch(&stream->batch) == forward[step]);
    }
    cr_assert(fetch(stream, 1000000007) == SY_OK);
    cr_assert(fetch(stream, -1) == SY_EINVAL);
    cr_assert(fetch(stream, INT64_MAX) == SY_EINVAL);
    close_stream(stream);
    close_stream(other);
}

Test(data_batcher, rows_fit_the_smallest_bucket_and_are_alike)
{
    int64_t tokens = 0, padded = 0, sorted = 0;
    int order[POOL] = {0};
    struct stream *stream = open_stream(3, 0);

    for (int64_t step = 0; step < 200; step++) {
        int32_t longest_input = 0, longest_target = 0;
        cr_assert(fetch(stream, step) == SY_OK);
        for (int row = 0; row < ROWS; row++) {
            int example = example_of(stream->batch.items[row]);
            if (stream->batch.input_lengths[row] > longest_input)
                longest_input = stream->batch.input_lengths[row];
            if (stream->batch.target_lengths[row] > longest_target)
                longest_target = stream->batch.target_lengths[row];
            cr_assert(stream->batch.input_lengths[row] == input_bytes(example) + 1);
            cr_assert(stream->batch.target_lengths[row] == target_bytes(example) + 1);
            cr_assert(stream->batch.encoder_ids[row * stream->batch.input_length + 1] ==
                      3 + '0' + example / 100);
        }
        cr_assert(stream->batch.bucket == (longest_input > 8 || longest_target > 12));
        tokens += stream->batch.n_target_tokens;
        padded += ROWS * longest_target;
        /* batches do not come sorted: the longest of a pool is now here, now there */
        sorted += step % POOL && longest_target >= order[step % POOL - 1];
        order[step % POOL] = longest_target;
    }
    cr_assert(tokens > padded * 0.85, "%lld of %lld", (long long)tokens, (long long)padded);
    cr_assert(sorted > 40 && sorted < 120, "%lld of 160 go up", (long long)sorted);
    close_stream(stream);
}

static int target_at(const struct stream *stream, int64_t place)
{
    return target_bytes(example_of(syi_mixture_pick(&stream->mixture, place).entry));
}

Test(data_batcher, short_examples_first)
{
    struct stream *stream = open_stream(3, 300);
    int longer = 0;

    for (int64_t place = 0; place < 300; place++) cr_assert(target_at(stream, place) <= 6);
    for (int64_t place = 300; place < 400; place++) longer += target_at(stream, place) > 6;
    cr_assert(longer > 50);
    cr_assert(syi_mixture_epochs(&stream->mixture, 0, 300) == 0);
    close_stream(stream);
}

/* Rows of other ranks have the lengths of their examples, and nothing is read for them. */
Test(data_batcher, reads_its_own_rows_only)
{
    struct stream *whole = open_stream(3, 0), *part = open_stream(3, 0);
    uint8_t mine[ROWS] = {0, 0, 1, 1, 0, 0, 0, 1};

    part->batcher.mine = syi_alloc(ROWS, NULL);
    memcpy(part->batcher.mine, mine, ROWS);
    for (int64_t step = 0; step < 20; step++) {
        cr_assert(fetch(whole, step) == SY_OK && fetch(part, step) == SY_OK);
        const struct syi_batch *a = &whole->batch, *b = &part->batch;
        cr_assert(a->bucket == b->bucket && a->n_input_tokens == b->n_input_tokens);
        cr_assert(
            !memcmp(a->loss_weights, b->loss_weights, (size_t)(ROWS * a->target_length) * sizeof(float)));
        for (int row = 0; row < ROWS; row++) {
            const int32_t *x = a->encoder_ids + row * a->input_length,
                          *y = b->encoder_ids + row * a->input_length;
            const int32_t *u = a->decoder_inputs + row * a->target_length,
                          *v = b->decoder_inputs + row * a->target_length;
            cr_assert(mine[row] == !memcmp(x, y, (size_t)a->input_length * sizeof *x));
            for (int i = 0; i < a->input_length; i++) cr_assert(!x[i] == !y[i]);
            for (int i = 0; i < a->target_length; i++) cr_assert(!u[i] == !v[i]);
        }
    }
    close_stream(whole);
    close_stream(part);
}

/* Padding that stands in a text has no weight, whichever rank the row is of. */
Test(data_batcher, padding_in_texts_of_other_rows)
{
    struct stream *whole = new_stream("<pad>"), *part = new_stream("<pad>");
    whole->vocabularies.target.special_text = part->vocabularies.target.special_text = 1;
    start_stream(whole);
    start_stream(part);
    part->batcher.mine = syi_alloc(ROWS, NULL);
    for (int64_t step = 0; step < 20; step++) {
        cr_assert(fetch(whole, step) == SY_OK && fetch(part, step) == SY_OK);
        const struct syi_batch *a = &whole->batch, *b = &part->batch;
        cr_assert_eq(a->loss_weights[a->target_lengths[0] - 2], 0);
        cr_assert(
            !memcmp(a->loss_weights, b->loss_weights, (size_t)(ROWS * a->target_length) * sizeof(float)));
    }
    close_stream(whole);
    close_stream(part);
}

Test(data_batcher, refuses)
{
    struct syi_batcher_options good = {.buckets = buckets,
                                       .n_buckets = 2,
                                       .batch_size = 4,
                                       .pool_batches = 2},
                               options;
    const char *path = write_fresh("task.tsv", "abcdefghijklmnopqrst\tx\n", 23);
    struct syi_vocabularies vocabularies = byte_vocabularies();
    struct syi_dataset_place place = {0};
    struct syi_config *config = tsv_config(path, 16, 24);
    struct syi_batcher batcher;
    struct sy_error err = {0};
    static struct syi_mixture mixture;

    cr_assert(syi_mixture_open(&mixture, config, &vocabularies, &place, &err) == SY_EINVAL);
    cr_assert(strstr(err.text, "no example fits 16 x 24 tokens"), "%s", err.text);
    remove_path(path);
    free(config);
    options = good;
    options.batch_size = 0;
    cr_assert(syi_batcher_create(&batcher, &mixture, &options, NULL) == SY_EINVAL);
    options = good;
    options.pool_batches = 1 << 30;
    cr_assert(syi_batcher_create(&batcher, &mixture, &options, NULL) == SY_EINVAL);
}
