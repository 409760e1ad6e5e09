/* SPDX-License-Identifier: Apache-2.0 */
/* Masks and segments from token ids, on the host. Padding is id 0; ids below 0 count as padding too. What the
 * masks do is up to the ops that take them. */
#include "config.h"

#include "data/masks.h"

void syi_decoder_logit_mask(const int32_t *inputs, int64_t rows, int64_t length, float *mask)
{
    for (int64_t i = 0; i < rows; i++) {
        const int32_t *row = inputs + i * length;
        for (int64_t t = 0; t < length; t++)
            mask[i * length + t] = t == 0 || row[t] > 0 || (t + 1 < length && row[t + 1] > 0);
    }
}

void syi_encoder_logit_mask(const int32_t *ids, int64_t n, float *mask)
{
    for (int64_t i = 0; i < n; i++) mask[i] = ids[i] > 0;
}

void syi_segments(const int32_t *tokens, const int32_t *segment_ids, int64_t n, int32_t *out)
{
    for (int64_t i = 0; i < n; i++) out[i] = tokens[i] <= 0 ? 0 : segment_ids ? segment_ids[i] : 1;
}
