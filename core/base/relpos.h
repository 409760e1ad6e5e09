/* SPDX-License-Identifier: Apache-2.0 */
/* The bucket rule of T5's relative position bias (doc/numerics.md): near distances have a bucket each, far
 * ones share buckets that grow logarithmically up to max_distance. float32 and libm, as in Mesh TensorFlow.
 */
#ifndef SYI_RELPOS_H
#define SYI_RELPOS_H

#include <float.h>
#include <math.h>
#include <stdint.h>

/* Bucket, 0 .. buckets - 1, of a key `distance` positions behind (> 0) or before (< 0) the query. */
static inline int64_t syi_relpos_bucket(int64_t distance, int bidirectional, int64_t buckets,
                                        int64_t max_distance)
{
    int64_t n = -distance, first = 0;
    if (bidirectional) {
        buckets /= 2;
        if (n < 0) {
            first = buckets;
            n = -n;
        }
    } else if (n < 0) {
        n = 0;
    }
    int64_t exact = buckets / 2;
    if (n < exact) return first + n;
    if (n >= max_distance || exact == 0) return first + (buckets > 0 ? buckets - 1 : 0);
    float part = logf((float)n / (float)exact + FLT_EPSILON) / logf((float)max_distance / (float)exact);
    int64_t bucket = exact + (int64_t)(part * (float)(buckets - exact));
    return first + (bucket < buckets ? bucket : buckets - 1);
}

#endif
