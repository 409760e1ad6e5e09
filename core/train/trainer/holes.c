/* SPDX-License-Identifier: Apache-2.0 */
/* Holes of the training stream: batches that ways back to a checkpoint left out. */
#include "config.h"

#include <inttypes.h>

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

void syi_hole_print(const struct syi_hole *hole, char text[SYI_HOLE_TEXT])
{
    snprintf(text, SYI_HOLE_TEXT,
             "back to the checkpoint of step %" PRId64 "; the batches of %" PRId64 " steps are left out",
             hole->step, hole->batches);
}

int syi_hole_read(const char *text, struct syi_hole *hole)
{
    int n = sscanf(text, "back to the checkpoint of step %" SCNd64 "; the batches of %" SCNd64 " steps",
                   &hole->step, &hole->batches);
    return n == 2 ? SY_OK : SY_EFORMAT;
}
