/* SPDX-License-Identifier: Apache-2.0 */
/* Counts word and phoneme errors. */
#include "config.h"

#include <string.h>

#include "text_metrics/error_rate.h"

void syi_error_rate_init(struct syi_error_rate *rate)
{
    memset(rate, 0, sizeof(*rate));
}

void syi_error_rate_free(struct syi_error_rate *rate)
{
    syi_free(rate->output);
    syi_free(rate->reference);
    syi_free(rate->row);
    memset(rate, 0, sizeof(*rate));
}

static int same_span(struct syi_span a, struct syi_span b)
{
    return a.bytes == b.bytes && (a.bytes == 0 || memcmp(a.text, b.text, a.bytes) == 0);
}

static int is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* Cuts text at white space into *symbols, growing it as needed; *n symbols. */
static int split(struct syi_span text, struct syi_span **symbols, size_t *capacity, size_t *n,
                 struct sy_error *err)
{
    size_t i = 0, start;
    int status;

    for (*n = 0;; (*n)++) {
        while (i < text.bytes && is_space(text.text[i])) i++;
        if (i == text.bytes) return SY_OK;
        start = i;
        while (i < text.bytes && !is_space(text.text[i])) i++;
        status = syi_grow((void **)symbols, capacity, *n + 1, sizeof(**symbols), err);
        if (status) return status;
        (*symbols)[*n] = (struct syi_span){text.text + start, i - start};
    }
}

/* Levenshtein distance, one row of the table at a time: row[j] is the distance of the first symbols of a to
 * the first j of b. */
static int32_t symbol_distance(const struct syi_span *a, size_t n_a, const struct syi_span *b, size_t n_b,
                               int32_t *row)
{
    int32_t diagonal, best;

    for (size_t j = 0; j <= n_b; j++) row[j] = (int32_t)j;
    for (size_t i = 0; i < n_a; i++) {
        diagonal = row[0];
        row[0] = (int32_t)i + 1;
        for (size_t j = 0; j < n_b; j++) {
            best = diagonal + !same_span(a[i], b[j]);
            if (row[j] + 1 < best) best = row[j] + 1;
            if (row[j + 1] + 1 < best) best = row[j + 1] + 1;
            diagonal = row[j + 1];
            row[j + 1] = best;
        }
    }
    return row[n_b];
}

/* Where one item stands while its references are looked at. */
struct verdict {
    int right;
    int32_t distance; /* to the nearest reference, -1 before the first */
    int64_t length;   /* of that reference */
};

static int look_at(struct syi_error_rate *rate, struct syi_span output, size_t n_output,
                   struct syi_span reference, struct verdict *verdict, struct sy_error *err)
{
    size_t n_reference;
    int32_t distance;
    int status = split(reference, &rate->reference, &rate->reference_capacity, &n_reference, err);

    if (status) return status;
    status = SYI_GROW(rate->row, rate->row_capacity, n_reference + 1, err);
    if (status) return status;
    distance = symbol_distance(rate->output, n_output, rate->reference, n_reference, rate->row);
    if (verdict->distance < 0 || distance < verdict->distance) {
        verdict->distance = distance;
        verdict->length = (int64_t)n_reference;
    }
    if (same_span(output, reference)) verdict->right = 1;
    return SY_OK;
}

static void count(struct syi_error_rate *rate, const struct verdict *verdict, int *right)
{
    rate->n_items++;
    rate->n_wrong += !verdict->right;
    rate->distance += verdict->distance < 0 ? 0 : verdict->distance;
    rate->length += verdict->length;
    if (right) *right = verdict->right;
}

int syi_error_rate_add(struct syi_error_rate *rate, struct syi_span output, const struct syi_span *references,
                       int32_t n_references, int *right, struct sy_error *err)
{
    struct verdict verdict = {.distance = -1};
    size_t n_output;
    int status = split(output, &rate->output, &rate->output_capacity, &n_output, err);

    for (int32_t i = 0; i < n_references && !status; i++)
        status = look_at(rate, output, n_output, references[i], &verdict, err);
    if (!status) count(rate, &verdict, right);
    return status;
}

double syi_error_rate_wer(const struct syi_error_rate *rate)
{
    return rate->n_items ? (double)rate->n_wrong / (double)rate->n_items : 0;
}

double syi_error_rate_per(const struct syi_error_rate *rate)
{
    return rate->length ? (double)rate->distance / (double)rate->length : 0;
}
