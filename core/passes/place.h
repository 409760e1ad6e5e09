/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks of memory that are needed for some time each: where they go, a part of the plan. */
#ifndef SYI_PLACE_H
#define SYI_PLACE_H

#include "base/base.h"

struct syi_block {
    uint64_t bytes, offset; /* both whole cache lines */
    size_t first, last;     /* ops */
    uint64_t *to;           /* where the offset is wanted; the caller's */
};

/* Sets the offsets so that blocks needed at the same op do not overlap: the largest first (of equals the
 * earlier, then that with the lower index), each at the lowest place where it fits. *end: past
 * the highest; SYI_TOO_LARGE where that leaves 64 bits. Ops are 0 to n_ops - 1. */
int syi_place_blocks(struct syi_block *block, size_t n, size_t n_ops, uint64_t *end,
                     struct sy_error *err) SYI_MUST_CHECK;

#endif
