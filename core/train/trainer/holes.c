/* SPDX-License-Identifier: Apache-2.0 */
/* Holes of the training stream: batches that ways back to a checkpoint left out. */
#include "config.h"

#include "train/trainer/rollback.h"

int64_t syi_holes_place(const struct syi_holes *holes, int64_t step)
{
    int64_t place = step;
    for (int i = 0; i < holes->n && holes->hole[i].step <= step; i++) place += holes->hole[i].batches;
    return place;
}

int syi_holes_add(struct syi_holes *holes, int64_t step, int64_t batches)
{
    int last = holes->n - 1;
    if (batches < 0 || step < 0 || (last >= 0 && holes->hole[last].step > step)) return SY_EINVAL;
    if (last >= 0 && holes->hole[last].step == step) {
        holes->hole[last].batches += batches;
        return SY_OK;
    }
    if (holes->n == SYI_HOLES) return SY_EINVAL;
    if (batches) holes->hole[holes->n++] = (struct syi_hole){step, batches};
    return SY_OK;
}
