/* SPDX-License-Identifier: Apache-2.0 */
/* Plans the batches of an evaluation: bucket by bucket, by input length inside a bucket. Scores are
 * error_rate.c's. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "data/eval_batches.h"

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

/* The places of the items that fit, sorted; the others go to cut. *fits: how many fit. */
static int sort_items(struct syi_eval_batches *batches, struct place *places, int32_t *fits,
                      struct sy_error *err)
{
    const struct syi_vocabularies *v = batches->vocabularies;
    size_t input_length, target_length = 0;
    int32_t n = 0;
    int bucket;

    for (int32_t i = 0; i < batches->n_items; i++) {
        int status = syi_vocabulary_encode(&v->input, batches->inputs[i], NULL, 0, &input_length, err);
        if (!status && batches->targets)
            status = syi_vocabulary_encode(&v->target, batches->targets[i], NULL, 0, &target_length, err);
        if (status) return status;
        input_length++; /* the end token */
        bucket = syi_buckets_fit(batches->buckets, batches->n_buckets, input_length, target_length + 1);
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

int syi_eval_batches_create(struct syi_eval_batches *batches, const struct syi_vocabularies *vocabularies,
                            const struct syi_bucket *buckets, int n_buckets, int32_t rows,
                            const struct syi_span *inputs, const struct syi_span *targets, int32_t n_items,
                            struct sy_error *err)
{
    size_t n = (size_t)n_items + 1;
    struct place *places;
    int32_t fits;
    int status;

    memset(batches, 0, sizeof(*batches));
    status = syi_buckets_check(buckets, n_buckets, err);
    if (status) return status;
    if (rows < 1)
        return syi_error(err, SY_EINVAL, "an evaluation batch of %d rows; at least 1 is needed", rows);
    batches->vocabularies = vocabularies;
    batches->inputs = inputs;
    batches->targets = targets;
    memcpy(batches->buckets, buckets, (size_t)n_buckets * sizeof(*buckets));
    batches->n_buckets = n_buckets;
    batches->rows = rows;
    batches->n_items = n_items;
    places = syi_alloc(n * sizeof(*places), err);
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

void syi_eval_batches_free(struct syi_eval_batches *batches)
{
    syi_free(batches->order);
    syi_free(batches->batches);
    syi_free(batches->cut);
    memset(batches, 0, sizeof(*batches));
}

int syi_eval_batches_fetch(const struct syi_eval_batches *batches, int32_t index, struct syi_batch *out,
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
        int status = syi_batch_add(out, batches->vocabularies, item, batches->inputs[item],
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
