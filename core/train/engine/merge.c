/* SPDX-License-Identifier: Apache-2.0 */
/* Merging metrics. */
#include "config.h"

#include "train/engine/merge.h"

void syi_merged_add(struct syi_merged *m, double total, double count)
{
    m->total = m->kind == SYI_MERGE_LAST ? total : m->total + total;
    m->count += count;
}

int syi_merged_value(const struct syi_merged *m, const struct syi_merge_span *span, double *value)
{
    double steps = span->steps > 0 ? span->steps : m->count;
    switch (m->kind) {
    case SYI_MERGE_SUM:
    case SYI_MERGE_LAST: *value = m->total; return 1;
    case SYI_MERGE_PER_STEP: *value = m->total / steps; return 1;
    case SYI_MERGE_AVERAGE: *value = m->total / m->count; return 1;
    case SYI_MERGE_RATE: *value = m->total / span->seconds; break;
    case SYI_MERGE_STEP_RATE: *value = steps / span->seconds; break;
    case SYI_MERGE_TIME: *value = span->seconds; break;
    }
    return span->seconds >= 0;
}
