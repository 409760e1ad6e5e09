/* SPDX-License-Identifier: Apache-2.0 */
/* Length buckets, filling of rows, and the batches of an evaluation. */
#include "config.h"

#include "data/batch.h"
#include "data/eval_batches.h"
#include "data_support.h"

static const struct syi_bucket buckets[] = {{8, 8}, {4, 6}, {8, 6}};

Test(data_batch, buckets)
{
    static const struct syi_bucket crossed[] = {{8, 32}, {32, 8}}, zero[] = {{0, 4}};
    struct sy_error err = {0};

    cr_assert(syi_buckets_check(buckets, 3, NULL) == SY_OK);
    cr_assert(syi_buckets_fit(buckets, 3, 1, 1) == 1);
    cr_assert(syi_buckets_fit(buckets, 3, 4, 6) == 1);
    cr_assert(syi_buckets_fit(buckets, 3, 5, 6) == 2);
    cr_assert(syi_buckets_fit(buckets, 3, 5, 7) == 0);
    cr_assert(syi_buckets_fit(buckets, 3, 9, 1) == -1);
    cr_assert(syi_buckets_check(crossed, 2, &err) == SY_EINVAL && strstr(err.text, "add 32 x 32"));
    cr_assert(syi_buckets_check(zero, 1, NULL) == SY_EINVAL);
    cr_assert(syi_buckets_check(zero, 0, NULL) == SY_EINVAL);
}

/* Rows as seqio's EncDecFeatureConverter without packing makes them: the end token is fed at the first pad.
 */
Test(data_batch, rows)
{
    static const int32_t encoder[] = {100, 101, 1, 0, 102, 1, 0, 0, 0, 0, 0, 0};
    static const int32_t targets[] = {103, 1, 0, 0, 0, 0, 103, 104, 105, 106, 107, 1, 0, 0, 0, 0, 0, 0};
    static const int32_t inputs[] = {0, 103, 1, 0, 0, 0, 0, 103, 104, 105, 106, 107, 0, 0, 0, 0, 0, 0};
    struct syi_vocabularies vocabularies = byte_vocabularies();
    struct syi_span d = {"d", 1}, defgh = {"defgh", 5};
    struct syi_batch batch;

    cr_assert(syi_batch_create(&batch, 3, buckets, 3, NULL) == SY_OK);
    for (int round = 0; round < 2; round++) { /* the second time over old contents */
        syi_batch_begin(&batch, buckets, 1);
        cr_assert(syi_batch_add(&batch, &vocabularies, 7, (struct syi_span){"ab", 2}, &d, NULL) == SY_OK);
        cr_assert(syi_batch_add(&batch, &vocabularies, 9, (struct syi_span){"c", 1}, &defgh, NULL) == SY_OK);
        cr_assert(batch.input_length == 4 && batch.target_length == 6 && batch.n_real == 2);
        cr_assert(memcmp(batch.encoder_ids, encoder, sizeof(encoder)) == 0);
        cr_assert(memcmp(batch.decoder_targets, targets, sizeof(targets)) == 0);
        cr_assert(memcmp(batch.decoder_inputs, inputs, sizeof(inputs)) == 0);
        for (int i = 0; i < 18; i++) cr_assert(batch.loss_weights[i] == (targets[i] > 0));
        cr_assert(batch.input_lengths[0] == 3 && batch.input_lengths[1] == 2 && batch.input_lengths[2] == 0);
        cr_assert(batch.target_lengths[0] == 2 && batch.target_lengths[1] == 6 &&
                  batch.target_lengths[2] == 0);
        cr_assert(batch.items[0] == 7 && batch.items[1] == 9 && batch.items[2] == -1);
        cr_assert(batch.n_input_tokens == 5 && batch.n_target_tokens == 8);
        syi_batch_begin(&batch, buckets, 0);
        for (int i = 0; i < 3; i++)
            cr_assert(syi_batch_add(&batch, &vocabularies, i, (struct syi_span){"abcdefg", 7}, &defgh,
                                    NULL) == SY_OK);
    }
    syi_batch_free(&batch);
}

/* Every item that fits is in one row, the others are cut, whatever the number of rows. */
static void check_evaluation(const struct syi_span *inputs, const struct syi_span *targets, int32_t n,
                             int32_t rows, int32_t expected_cut)
{
    struct syi_eval_batches batches;
    struct syi_vocabularies vocabularies = byte_vocabularies();
    struct syi_batch batch;
    int seen[64] = {0};
    int32_t n_seen = 0;

    cr_assert(syi_eval_batches_create(&batches, &vocabularies, buckets, 3, rows, inputs, targets, n, NULL) ==
              SY_OK);
    cr_assert(syi_batch_create(&batch, rows, buckets, 3, NULL) == SY_OK);
    cr_assert(batches.n_cut == expected_cut);
    for (int32_t i = 0; i < batches.n_batches; i++) {
        cr_assert(syi_eval_batches_fetch(&batches, i, &batch, NULL) == SY_OK);
        cr_assert(batch.n_real >= 1);
        for (int32_t row = 0; row < rows; row++) {
            if (batch.items[row] < 0) {
                cr_assert(row >= batch.n_real && batch.input_lengths[row] == 0);
                continue;
            }
            cr_assert(batch.input_lengths[row] == (int32_t)inputs[batch.items[row]].bytes + 1);
            cr_assert(batch.target_lengths[row] ==
                      (targets ? (int32_t)targets[batch.items[row]].bytes + 1 : 0));
            seen[batch.items[row]]++;
            n_seen++;
        }
    }
    for (int32_t i = 0; i < batches.n_cut; i++) seen[batches.cut[i]]++;
    for (int32_t i = 0; i < n; i++) cr_assert(seen[i] == 1, "item %d", i);
    cr_assert(n_seen + batches.n_cut == n);
    cr_assert(syi_eval_batches_fetch(&batches, batches.n_batches, &batch, NULL) == SY_EINTERNAL);
    syi_batch_free(&batch);
    syi_eval_batches_free(&batches);
}

Test(data_batch, evaluation_covers_every_item_once)
{
    static const char text[] = "abcdefghijkl";
    struct syi_span inputs[40], targets[40];

    for (size_t i = 0; i < 40; i++) {
        inputs[i] = (struct syi_span){text, 1 + i * 7 % 9};
        targets[i] = (struct syi_span){text, 1 + i * 5 % 8};
    }
    for (int32_t rows = 1; rows <= 41; rows += 5) {
        check_evaluation(inputs, NULL, 40, rows, 9); /* inputs of 8 and 9 bytes */
        check_evaluation(inputs, targets, 40, rows, 13);
        check_evaluation(inputs, NULL, 0, rows, 0);
    }
}

Test(data_batch, spans_of_a_task)
{
    const char *path = write_fresh("task.tsv", "a\t1\nb\t2\na\t3\n", 12);
    struct syi_span *inputs, *targets;
    struct syi_example_form form = tsv_form();
    struct syi_items items;
    struct syi_task task;

    cr_assert(syi_task_load(&task, &form, path, NULL) == SY_OK);
    remove_path(path);
    cr_assert(syi_items_build(&items, &task, NULL) == SY_OK);
    cr_assert(syi_eval_spans(&task, &items, &inputs, &targets, NULL) == SY_OK);
    cr_assert(items.n_items == 2 && *inputs[0].text == 'a' && *inputs[1].text == 'b' &&
              *targets[0].text == '1');
    syi_free(inputs);
    syi_free(targets);
    syi_items_free(&items);
    syi_task_free(&task);
}
