/* SPDX-License-Identifier: Apache-2.0 */
/* Word and phoneme error rate over items with several references. WER: the share of items whose output is not
 * equal to any reference. PER: edit distance over symbols (separated by white space) to the nearest
 * reference, summed, over the summed lengths of those references. A lower value is better; PER can exceed 1.
 */
#ifndef SYI_ERROR_RATE_H
#define SYI_ERROR_RATE_H

#include "base/base.h"
#include "data/vocabulary.h" /* struct syi_span */

struct syi_error_rate {
    int64_t n_items, n_wrong;
    int64_t distance, length;            /* symbols: edits, and of the nearest references */
    struct syi_span *output, *reference; /* scratch: symbols */
    size_t output_capacity, reference_capacity;
    int32_t *row; /* scratch: one row of the distance table */
    size_t row_capacity;
};

void syi_error_rate_init(struct syi_error_rate *rate);
void syi_error_rate_free(struct syi_error_rate *rate);
/* Counts one item. An item that was cut has an empty output: it is wrong, and all symbols of its shortest
 * reference are missing. right (may be NULL) gets the verdict. */
int syi_error_rate_add(struct syi_error_rate *rate, struct syi_span output, const struct syi_span *references,
                       int32_t n_references, int *right, struct sy_error *err) SYI_MUST_CHECK;
double syi_error_rate_wer(const struct syi_error_rate *rate); /* 0 with no items */
double syi_error_rate_per(const struct syi_error_rate *rate);

#endif
