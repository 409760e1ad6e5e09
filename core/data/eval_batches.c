/* SPDX-License-Identifier: Apache-2.0 */
/* Plans the batches of an evaluation: bucket by bucket, by input length inside a bucket. Scores are
 * error_rate.c's. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "data/eval_batches.h"
#include "data/shuffle.h"

static const uint64_t KEY = 0x5eed; /* of what is drawn for examples, the same in every run */

struct place {
    int bucket;
    int32_t item;
    size_t input_length;
};

static int compare_places(const void *a, const void *b)
{
    const struct place *p = a, *q = b;
    if (p->bucket != q->bucket) return p->bucket < q->bucket ? -1 : 1;
    if (p->input_length != q->input_length) return p->input_length < q->input_length ? -1 : 1;
    return p->item < q->item ? -1 : p->item > q->item;
}

/* What is drawn for an example of a dataset. */
static uint64_t key_of(int32_t item)
{
    return syi_shuffle_key(KEY, (uint64_t)item);
}

/* Tokens of both sides, end tokens included; of targets that there are not, 1. */
static int measure(const struct syi_eval_batches *b, int32_t item, size_t *input, size_t *target,
                   struct sy_error *err)
{
    const struct syi_vocabularies *v = b->vocabularies;
    struct syi_dataset_entry entry;
    int32_t in, out;
    int status;
    if (b->dataset) {
        status = syi_dataset_entry(b->dataset, item, &entry, err);
        if (status) return status;
        syi_example_lengths(&b->dataset->form, syi_dataset_size(&entry), key_of(item), &in, &out);
        *input = (size_t)in;
        *target = (size_t)out;
        return SY_OK;
    }
    *target = 0;
    status = syi_vocabulary_encode(&v->input, b->inputs[item], NULL, 0, input, err);
    if (!status && b->targets)
        status = syi_vocabulary_encode(&v->target, b->targets[item], NULL, 0, target, err);
    ++*input;
    ++*target;
    return status;
}

/* The places of the items that fit, sorted; the others go to cut. *fits: how many fit. */
static int sort_items(struct syi_eval_batches *batches, struct place *places, int32_t *fits,
                      struct sy_error *err)
{
    size_t input_length, target_length;
    int32_t n = 0;
    int bucket;

    for (int32_t i = 0; i < batches->n_items; i++) {
        int status = measure(batches, i, &input_length, &target_length, err);
        if (status) return status;
        bucket = syi_buckets_fit(batches->buckets, batches->n_buckets, input_length, target_length);
        if (bucket < 0)
            batches->cut[batches->n_cut++] = i;
        else
            places[n++] = (struct place){.bucket = bucket, .item = i, .input_length = input_length};
    }
    qsort(places, (size_t)n, sizeof(*places), compare_places);
    *fits = n;
    return SY_OK;
}

static void cut_batches(struct syi_eval_batches *batches, const struct place *places, int32_t n)
{
    struct syi_eval_batch *batch = NULL;

    for (int32_t i = 0; i < n; i++) {
        if (!batch || batch->n == batches->rows || batch->bucket != places[i].bucket) {
            batch = &batches->batches[batches->n_batches++];
            *batch = (struct syi_eval_batch){.first = i, .bucket = places[i].bucket};
        }
        batches->order[i] = places[i].item;
        batch->n++;
    }
}

/* Of batches whose items are set. */
static int plan(struct syi_eval_batches *batches, const struct syi_bucket *buckets, int n_buckets,
                int32_t rows, int32_t n_items, struct sy_error *err)
{
    size_t n = (size_t)n_items + 1;
    int32_t fits;
    int status = syi_buckets_check(buckets, n_buckets, err);
    if (status) return status;
    if (rows < 1)
        return syi_error(err, SY_EINVAL, "an evaluation batch of %d rows; at least 1 is needed", rows);
    memcpy(batches->buckets, buckets, (size_t)n_buckets * sizeof(*buckets));
    batches->n_buckets = n_buckets;
    batches->rows = rows;
    batches->n_items = n_items;
    struct place *places = syi_alloc(n * sizeof(*places), err);
    batches->order = syi_alloc(n * sizeof(*batches->order), err);
    batches->batches = syi_alloc(n * sizeof(*batches->batches), err);
    batches->cut = syi_alloc(n * sizeof(*batches->cut), err);
    if (!places || !batches->order || !batches->batches || !batches->cut) status = SY_ENOMEM;
    if (!status) status = sort_items(batches, places, &fits, err);
    if (!status)
        cut_batches(batches, places, fits);
    else
        syi_eval_batches_free(batches);
    syi_free(places);
    return status;
}

int syi_eval_batches_create(struct syi_eval_batches *batches, const struct syi_vocabularies *vocabularies,
                            const struct syi_bucket *buckets, int n_buckets, int32_t rows,
                            const struct syi_span *inputs, const struct syi_span *targets, int32_t n_items,
                            struct sy_error *err)
{
    *batches = (struct syi_eval_batches){.vocabularies = vocabularies, .inputs = inputs, .targets = targets};
    return plan(batches, buckets, n_buckets, rows, n_items, err);
}

int syi_eval_batches_create_of(struct syi_eval_batches *batches, struct syi_dataset *dataset,
                               const struct syi_bucket *buckets, int n_buckets, int32_t rows, int32_t n_items,
                               struct sy_error *err)
{
    *batches = (struct syi_eval_batches){.dataset = dataset};
    return plan(batches, buckets, n_buckets, rows, n_items, err);
}

void syi_eval_batches_free(struct syi_eval_batches *batches)
{
    syi_free(batches->order);
    syi_free(batches->batches);
    syi_free(batches->cut);
    syi_ids_free(&batches->input_ids);
    syi_ids_free(&batches->target_ids);
    memset(batches, 0, sizeof(*batches));
}

/* The next row of the batch is an example of the dataset. */
static int put_example(struct syi_eval_batches *b, int32_t item, struct syi_batch *out, struct sy_error *err)
{
    struct syi_slot slot = {.row = out->n_real};
    struct syi_dataset_entry entry;
    int status = syi_dataset_entry(b->dataset, item, &entry, err);
    if (!status)
        status = syi_dataset_read(b->dataset, &entry, key_of(item), &b->input_ids, &b->target_ids, err);
    if (!status) syi_batch_put(out, &slot, item, &b->input_ids, &b->target_ids);
    return status;
}

int syi_eval_batches_fetch(struct syi_eval_batches *batches, int32_t index, struct syi_batch *out,
                           struct sy_error *err)
{
    const struct syi_eval_batch *batch;
    int32_t item;

    if (index < 0 || index >= batches->n_batches || out->rows != batches->rows)
        return syi_error(err, SY_EINTERNAL, "data: evaluation batch %d of %d in %d rows, planned for %d",
                         index, batches->n_batches, out->rows, batches->rows);
    batch = &batches->batches[index];
    syi_batch_begin(out, batches->buckets, batch->bucket);
    for (int32_t i = 0; i < batch->n; i++) {
        item = batches->order[batch->first + i];
        int status = batches->dataset ? put_example(batches, item, out, err)
                                      : syi_batch_add(out, batches->vocabularies, item, batches->inputs[item],
                                                      batches->targets ? &batches->targets[item] : NULL, err);
        if (status) return status;
    }
    return SY_OK;
}

int syi_eval_spans(const struct syi_task *task, const struct syi_items *items, struct syi_span **inputs,
                   struct syi_span **targets, struct sy_error *err)
{
    size_t bytes = ((size_t)items->n_items + 1) * sizeof(**inputs);

    *inputs = syi_alloc(bytes, err);
    if (!*inputs) return SY_ENOMEM;
    if (targets) {
        *targets = syi_alloc(bytes, err);
        if (!*targets) {
            syi_free(*inputs);
            *inputs = NULL;
            return SY_ENOMEM;
        }
    }
    for (int32_t i = 0; i < items->n_items; i++) {
        (*inputs)[i] = syi_task_input(task, items->examples[items->first[i]]);
        if (targets) (*targets)[i] = syi_task_target(task, items->examples[items->first[i]]);
    }
    return SY_OK;
}
