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
    struct syi_task task;
    struct syi_vocabularies vocabularies;
    struct syi_batcher batcher;
    struct syi_batch batch;
};

/* N examples of many lengths; every 100th (10 in all) is too long. */
static void open_stream(struct stream *stream, uint64_t seed, int64_t warm_examples)
{
    struct syi_batcher_options options = {.buckets = buckets,
                                          .n_buckets = 2,
                                          .batch_size = ROWS,
                                          .pool_batches = POOL,
                                          .seed = seed,
                                          .warm_examples = warm_examples,
                                          .warm_max_target = 6};
    char *text = calloc(N, 64);
    const char *path;
    size_t bytes = 0;

    for (int i = 0; i < N; i++)
        bytes += (size_t)sprintf(text + bytes, "w%03d%.*s\t%.*s\n", i, i % 100 == 99 ? 14 : i % 11,
                                 "abcdefghijklmn", 1 + i * 7 % 23, "ABCDEFGHIJKLMNOPQRSTUVW");
    path = write_fresh("task.tsv", text, bytes);
    free(text);
    cr_assert(syi_task_load(&stream->task, path, NULL) == SY_OK);
    remove_path(path);
    stream->vocabularies = byte_vocabularies();
    cr_assert(syi_batcher_create(&stream->batcher, &stream->task, &stream->vocabularies, &options, NULL) ==
              SY_OK);
    cr_assert(syi_batch_create(&stream->batch, ROWS, buckets, 2, NULL) == SY_OK);
}

static void close_stream(struct stream *stream)
{
    syi_batch_free(&stream->batch);
    syi_batcher_free(&stream->batcher);
    syi_task_free(&stream->task);
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
    struct stream stream;
    int seen[N] = {0};

    sy_log_set(catch_line, &log);
    open_stream(&stream, 3, 0);
    cr_assert(stream.batcher.n_skipped == 10 && stream.batcher.n_candidates == 990);
    cr_assert(log.n == 1 && strstr(log.last, "10 of 1000 examples"), "%s", log.last);
    for (int64_t place = 0; place < 2 * 990; place++) seen[syi_batcher_example(&stream.batcher, place)]++;
    for (int i = 0; i < N; i++) cr_assert(seen[i] == (i % 100 == 99 ? 0 : 2), "example %d: %d", i, seen[i]);
    /* 99 whole pools hold 4 epochs: 99 * POOL * ROWS = 990 * 4 */
    memset(seen, 0, sizeof(seen));
    for (int64_t step = 0; step < 990 * 4 / ROWS; step++) {
        cr_assert(syi_batcher_fetch(&stream.batcher, step, &stream.batch, NULL) == SY_OK);
        cr_assert(stream.batch.n_real == ROWS);
        for (int row = 0; row < ROWS; row++) seen[stream.batch.items[row]]++;
    }
    for (int i = 0; i < N; i++) cr_assert(seen[i] == (i % 100 == 99 ? 0 : 4));
    cr_assert(syi_batcher_epochs(&stream.batcher, 990 * 4 / ROWS) == 4);
    close_stream(&stream);
}

Test(data_batcher, any_step_at_any_time)
{
    struct stream stream, other;
    uint64_t forward[60];
    int differ = 0;

    open_stream(&stream, 3, 100);
    open_stream(&other, 4, 100);
    for (int64_t step = 0; step < 60; step++) {
        cr_assert(syi_batcher_fetch(&stream.batcher, step, &stream.batch, NULL) == SY_OK);
        forward[step] = hash_batch(&stream.batch);
        cr_assert(syi_batcher_fetch(&other.batcher, step, &other.batch, NULL) == SY_OK);
        differ += hash_batch(&other.batch) != forward[step];
    }
    cr_assert(differ == 60); /* another seed, another order */
    for (int64_t step = 59; step >= 0; step--) {
        cr_assert(syi_batcher_fetch(&stream.batcher, step, &stream.batch, NULL) == SY_OK);
        cr_assert(hash_batch(&stream.batch) == forward[step]);
    }
    cr_assert(syi_batcher_fetch(&stream.batcher, 1000000007, &stream.batch, NULL) == SY_OK);
    cr_assert(syi_batcher_fetch(&stream.batcher, -1, &stream.batch, NULL) == SY_EINVAL);
    cr_assert(syi_batcher_fetch(&stream.batcher, INT64_MAX, &stream.batch, NULL) == SY_EINVAL);
    close_stream(&stream);
    close_stream(&other);
}

Test(data_batcher, rows_fit_the_smallest_bucket_and_are_alike)
{
    struct stream stream;
    int64_t tokens = 0, padded = 0, sorted = 0;
    int order[POOL] = {0};

    open_stream(&stream, 3, 0);
    for (int64_t step = 0; step < 200; step++) {
        int32_t longest_input = 0, longest_target = 0;
        cr_assert(syi_batcher_fetch(&stream.batcher, step, &stream.batch, NULL) == SY_OK);
        for (int row = 0; row < ROWS; row++) {
            int32_t example = stream.batch.items[row];
            if (stream.batch.input_lengths[row] > longest_input)
                longest_input = stream.batch.input_lengths[row];
            if (stream.batch.target_lengths[row] > longest_target)
                longest_target = stream.batch.target_lengths[row];
            cr_assert(stream.batch.input_lengths[row] ==
                      (int32_t)syi_task_input(&stream.task, example).bytes + 1);
            cr_assert(stream.batch.target_lengths[row] ==
                      (int32_t)syi_task_target(&stream.task, example).bytes + 1);
        }
        cr_assert(stream.batch.bucket == (longest_input > 8 || longest_target > 12));
        tokens += stream.batch.n_target_tokens;
        padded += ROWS * longest_target;
        /* batches do not come sorted: the longest of a pool is now here, now there */
        sorted += step % POOL && longest_target >= order[step % POOL - 1];
        order[step % POOL] = longest_target;
    }
    cr_assert(tokens > padded * 0.85, "%lld of %lld", (long long)tokens, (long long)padded);
    cr_assert(sorted > 40 && sorted < 120, "%lld of 160 go up", (long long)sorted);
    close_stream(&stream);
}

Test(data_batcher, short_examples_first)
{
    struct stream stream;
    int longer = 0;

    open_stream(&stream, 3, 300);
    for (int64_t place = 0; place < 300; place++)
        cr_assert(syi_task_target(&stream.task, syi_batcher_example(&stream.batcher, place)).bytes <= 6);
    for (int64_t place = 300; place < 400; place++)
        longer += syi_task_target(&stream.task, syi_batcher_example(&stream.batcher, place)).bytes > 6;
    cr_assert(longer > 50);
    cr_assert(syi_batcher_epochs(&stream.batcher, 300 / ROWS) == 0);
    close_stream(&stream);
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
    struct syi_batcher batcher;
    struct sy_error err = {0};
    struct syi_task task;

    cr_assert(syi_task_load(&task, path, NULL) == SY_OK);
    remove_path(path);
    cr_assert(syi_batcher_create(&batcher, &task, &vocabularies, &good, &err) == SY_EINVAL);
    cr_assert(strstr(err.text, "no example fits 16 x 24 tokens"), "%s", err.text);
    options = good;
    options.batch_size = 0;
    cr_assert(syi_batcher_create(&batcher, &task, &vocabularies, &options, NULL) == SY_EINVAL);
    options = good;
    options.pool_batches = 1 << 30;
    cr_assert(syi_batcher_create(&batcher, &task, &vocabularies, &options, NULL) == SY_EINVAL);
    syi_task_free(&task);
}
