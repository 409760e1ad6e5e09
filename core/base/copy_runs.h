/* SPDX-License-Identifier: Apache-2.0 */
/* A copy between two ways of cutting a piece into runs. A header of its own, for plugins have no core to link
 * with. */
#ifndef SYI_COPY_RUNS_H
#define SYI_COPY_RUNS_H

#include <stdint.h>
#include <string.h>

/* Copies `bytes` cut into runs of from_inner (every from_stride bytes) to runs of to_inner (every to_stride).
 */
static inline void syi_copy_runs(void *to, uint64_t to_inner, uint64_t to_stride, const void *from,
                                 uint64_t from_inner, uint64_t from_stride, uint64_t bytes)
{
    char *out = to;
    const char *in = from;
    uint64_t out_left = to_inner, in_left = from_inner; /* bytes left of the run at hand */
    while (bytes > 0) {
        uint64_t n = out_left < in_left ? out_left : in_left;
        if (n > bytes) n = bytes;
        if (n == 0) return; /* runs of no bytes */
        if (out != in) memcpy(out, in, (size_t)n);
        bytes -= n;
        out_left -= n;
        in_left -= n;
        out += n;
        in += n;
        if (out_left == 0) {
            out += to_stride - to_inner;
            out_left = to_inner;
        }
        if (in_left == 0) {
            in += from_stride - from_inner;
            in_left = from_inner;
        }
    }
}

#endif
