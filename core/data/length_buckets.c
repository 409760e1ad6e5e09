/* SPDX-License-Identifier: Apache-2.0 */
/* Dynamic programming over the lengths that occur: the best list of j lengths that ends at one of them is the best of j - 1
 * that ends at a shorter one, and the batches between the two. */
#include "config.h"

#include <stdlib.h>

#include "base/base.h"
#include "data/length_buckets.h"

enum { MULTIPLE = 4 };

/* Lengths that may be chosen, ascending, and how many batches of the sample fit each of them. */
struct choices {
    int64_t *length, *inputs, *targets; /* [n] */
    int n;
};

static int64_t longer(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static int64_t shorter(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int ascending(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Each length of the sample up to the next multiple, once, and the longest of all. */
static void list_lengths(const struct syi_length_sample *s, struct choices *c)
{
    int64_t longest = longer(s->most.input_length, s->most.target_length);
    int n = 0;
    for (int i = 0; i < 2 * s->n; i++) {
        const struct syi_bucket *batch = &s->batch[i / 2];
        int64_t length = longer(i % 2 ? batch->target_length : batch->input_length, s->least);
        c->length[n++] = shorter((length + MULTIPLE - 1) / MULTIPLE * MULTIPLE, longest);
    }
    c->length[n++] = longest;
    qsort(c->length, (size_t)n, sizeof *c->length, ascending);
    c->n = 0;
    for (int i = 0; i < n; i++)
        if (!c->n || c->length[i] > c->length[c->n - 1]) c->length[c->n++] = c->length[i];
}

static void count_batches(const struct syi_length_sample *s, struct choices *c)
{
    for (int k = 0; k < c->n; k++) {
        c->inputs[k] = c->targets[k] = 0;
        for (int i = 0; i < s->n; i++) {
            c->inputs[k] += s->batch[i].input_length <= c->length[k];
            c->targets[k] += s->batch[i].target_length <= c->length[k];
        }
    }
}

/* Padded positions a row of the batches longer than choice `from` (-1: of all) that fit choice `to`. */
static int64_t positions(const struct syi_length_sample *s, const struct choices *c, int from, int to)
{
    int64_t inputs = c->inputs[to] - (from < 0 ? 0 : c->inputs[from]);
    int64_t targets = c->targets[to] - (from < 0 ? 0 : c->targets[from]);
    return inputs * shorter(c->length[to], s->most.input_length) +
           targets * shorter(c->length[to], s->most.target_length);
}

/* best[j * n + k]: the fewest positions of all batches that fit choice k with j + 1 lengths, the last of them k;
 * before[j * n + k]: the length before it, -1: none. */
static void fill_tables(const struct syi_length_sample *s, const struct choices *c, int count, int64_t *best,
                        int *before)
{
    for (int k = 0; k < c->n; k++) {
        best[k] = positions(s, c, -1, k);
        before[k] = -1;
    }
    for (int at = c->n; at < count * c->n; at++) {
        int k = at % c->n;
        best[at] = INT64_MAX;
        before[at] = -1;
        for (int last = at / c->n - 1; last < k; last++) {
            int64_t sum = best[at - c->n - k + last] + positions(s, c, last, k);
            if (sum < best[at]) best[at] = sum, before[at] = last;
        }
    }
}

static void read_tables(const struct choices *c, int count, const int64_t *best, const int *before,
                        struct syi_ints *lengths)
{
    int k = c->n - 1, j = 0;
    for (int i = 1; i < count; i++)
        if (best[i * c->n + k] < best[j * c->n + k]) j = i;
    lengths->n = j + 1;
    for (; j >= 0; j--) {
        lengths->values[j] = c->length[k];
        k = before[j * c->n + k];
    }
}

int syi_length_buckets_choose(const struct syi_length_sample *sample, int count, struct syi_ints *lengths,
                              struct sy_error *err)
{
    size_t most = 2 * (size_t)sample->n + 1;
    struct choices c = {0};
    int64_t *memory = syi_alloc((3 + (size_t)count) * most * sizeof *memory, err);
    int *before = syi_alloc((size_t)count * most * sizeof *before, err);
    if (memory && before) {
        c.length = memory;
        c.inputs = memory + most;
        c.targets = memory + 2 * most;
        list_lengths(sample, &c);
        count_batches(sample, &c);
        if (count > c.n) count = c.n;
        fill_tables(sample, &c, count, memory + 3 * most, before);
        read_tables(&c, count, memory + 3 * most, before, lengths);
    }
    int status = memory && before ? SY_OK : SY_ENOMEM;
    syi_free(memory);
    syi_free(before);
    return status;
}

/* The first padded length that holds so many tokens. */
static int64_t padded(const struct syi_ints *lengths, int64_t tokens, int64_t most)
{
    int i = 0;
    while (i < lengths->n && lengths->values[i] < tokens) i++;
    return i < lengths->n ? shorter(lengths->values[i], most) : most;
}

double syi_length_buckets_positions(const struct syi_length_sample *s, const struct syi_ints *lengths)
{
    int64_t sum = 0;
    for (int i = 0; i < s->n; i++)
        sum += padded(lengths, s->batch[i].input_length, s->most.input_length) +
               padded(lengths, s->batch[i].target_length, s->most.target_length);
    return s->n ? (double)sum / s->n : 0;
}
