/* SPDX-License-Identifier: Apache-2.0 */
/* What a batch's token ids say about positions: which ones layers see, and which positions may attend to each
 * other (their segment). */
#ifndef SYI_MASKS_H
#define SYI_MASKS_H

#include <stdint.h>

/* mask[rows x length]: 1 where the decoder has something to read: an input token, or one that follows (the
 * position in front of a token after padding), or the first position, whose input is always 0; else 0. */
void syi_decoder_logit_mask(const int32_t *inputs, int64_t rows, int64_t length, float *mask);
/* mask[n]: 1 where there is a token, 0 for padding. */
void syi_encoder_logit_mask(const int32_t *ids, int64_t n, float *mask);
/* out[n]: the segment of each token, 1 when segment_ids is NULL (rows are not packed); 0 for padding, which
 * nobody attends to and which attends to nothing. */
void syi_segments(const int32_t *tokens, const int32_t *segment_ids, int64_t n, int32_t *out);

#endif
