/* SPDX-License-Identifier: Apache-2.0 */
/* int8 weights: w is stored as q = round(w / scale) in -127..127, with one float32 scale for each output channel of a
 * matrix product, scale = max |w| of the channel / 127. What is read back is q x scale: it differs from w by at most
 * scale / 2 (and rounding of float32). */
#ifndef SYI_INT8_H
#define SYI_INT8_H

#include <stddef.h>
#include <stdint.h>

/* What the name of the scales of a tensor ends in. */
#define SYI_INT8_SCALES ".scales"

/* A tensor of weights as (outer, summed, inner): channels are (outer, inner). Of a kernel (in, out) that is (1, in, out), of
 * experts' (experts, in, out), of an embedding (rows, embed, 1). */
struct syi_int8_shape {
    size_t outer, summed, inner;
};

/* Which dimension of a parameter a matrix product sums over, by its name ("encoder/layers_0/mlp/wi/kernel") and rank;
 * -1: it stays float32 (norm scales, biases, relative positions, routers). */
int syi_int8_axis(const char *name, int rank);
struct syi_int8_shape syi_int8_shape(const int64_t *dims, int rank, int axis);
static inline size_t syi_int8_channels(const struct syi_int8_shape *shape)
{
    return shape->outer * shape->inner;
}
/* q: as w; scale: (outer, inner), 0 for a channel of zeros. 0: a weight is not finite, and nothing of use is written. */
int syi_int8_quantize(const struct syi_int8_shape *shape, const float *w, int8_t *q, float *scale);
/* w may begin where q ends with: q is the last quarter of w. */
void syi_int8_expand(const struct syi_int8_shape *shape, const int8_t *q, const float *scale, float *w);

#endif
