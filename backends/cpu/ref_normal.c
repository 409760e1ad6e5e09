/* SPDX-License-Identifier: Apache-2.0 */
/* Reference kernel of `normal`. In double, too, its numbers are those of float: they are given like data, not
 * computed from it. */
#include "config.h"

#include "backends/cpu/normal.h"

SYCPU_REF_KERNEL(normal)
{
    (void)context;
    const struct sy_tensor *out = &call->out[0];
    const struct sy_attr_normal *attr = call->attr;
    const struct syi_normal normal = syi_normal_init(call->in[1].data, attr->site);
    int last = out->rank - 1;
    sy_real *y = out->data;
    float block[4];
    for (int64_t i = 0; i < sycpu_extent(out, last); i++) {
        uint64_t row = normal_row(out, attr, i);
        for (int64_t c = out->first[last], n = 0; n < out->dim[last]; c++, n++) {
            if (n == 0 || c % 4 == 0) syi_normal_block(&normal, row, (uint32_t)(c / 4), block);
            *y++ = (sy_real)block[c % 4];
        }
    }
    return SY_OK;
}
