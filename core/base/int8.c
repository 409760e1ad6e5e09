/* SPDX-License-Identifier: Apache-2.0 */
/* int8 weights: which parameters have them, quantisation, and back to float32. */
#include "config.h"

#include <math.h>
#include <string.h>

#include "base/int8.h"
#include "base/text.h"

/* Routers have kernels, too: small ones, whose rounding would send tokens to other experts. */
int syi_int8_axis(const char *name, int rank)
{
    if (syi_ends_with(name, "/embedding") && rank == 2) return 1;
    if (!syi_ends_with(name, "/kernel") || syi_ends_with(name, "router_weights/w/kernel")) return -1;
    return rank == 2 || rank == 3 ? rank - 2 : -1;
}

struct syi_int8_shape syi_int8_shape(const int64_t *dims, int rank, int axis)
{
    struct syi_int8_shape shape = {1, (size_t)dims[axis], 1};
    for (int d = 0; d < rank; d++) {
        if (d < axis) shape.outer *= (size_t)dims[d];
        if (d > axis) shape.inner *= (size_t)dims[d];
    }
    return shape;
}

/* The largest magnitude of each channel into scale; 0: one is not finite. */
static int find_largest(const struct syi_int8_shape *s, const float *w, float *scale)
{
    int finite = 1;
    memset(scale, 0, syi_int8_channels(s) * sizeof *scale);
    for (size_t o = 0; o < s->outer; o++, scale += s->inner)
        for (size_t k = 0; k < s->summed; k++, w += s->inner)
            for (size_t i = 0; i < s->inner; i++) {
                float size = fabsf(w[i]);
                finite &= isfinite(size) != 0;
                if (size > scale[i]) scale[i] = size;
            }
    return finite;
}

/* A channel of numbers so small that their scale is 0 becomes zeros. */
static int8_t quantize(float w, float scale)
{
    float q = scale > 0 ? nearbyintf(w / scale) : 0;
    return (int8_t)(q > 127 ? 127 : q < -127 ? -127 : q);
}

int syi_int8_quantize(const struct syi_int8_shape *s, const float *w, int8_t *q, float *scale)
{
    if (!find_largest(s, w, scale)) return 0;
    for (size_t c = 0; c < syi_int8_channels(s); c++) scale[c] /= 127;
    for (size_t o = 0; o < s->outer; o++, scale += s->inner)
        for (size_t k = 0; k < s->summed; k++, w += s->inner, q += s->inner)
            for (size_t i = 0; i < s->inner; i++) q[i] = quantize(w[i], scale[i]);
    return 1;
}

/* Element i of w ends at byte 4 i + 4, q's element i is at byte 3 n + i: what is written was read before. */
void syi_int8_expand(const struct syi_int8_shape *s, const int8_t *q, const float *scale, float *w)
{
    for (size_t o = 0; o < s->outer; o++, scale += s->inner)
        for (size_t k = 0; k < s->summed; k++, w += s->inner, q += s->inner)
            for (size_t i = 0; i < s->inner; i++) {
                int8_t value;
                memcpy(&value, q + i, 1);
                w[i] = (float)value * scale[i];
            }
}
