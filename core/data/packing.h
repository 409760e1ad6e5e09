/* SPDX-License-Identifier: Apache-2.0 */
/* Several examples a row. The stream is cut into windows of places; each window is packed by itself: an example goes to
 * the first row of the window that has room on both sides, else it begins a new one. So rows are a function of the stream
 * alone, and to know those of a step it is enough to know the first row of some window before it. */
#ifndef SYI_PACKING_H
#define SYI_PACKING_H

#include "data/batch.h"
#include "data/mixture.h"

enum { SYI_PACKING_WINDOW = 1024 }; /* places */

/* An example at its place in a batch. */
struct syi_placed {
    struct syi_pick pick;
    struct syi_dataset_entry entry;
    int32_t input, target; /* tokens, end tokens included */
    struct syi_slot slot;  /* its row counts from the first of the window or pool */
};

struct syi_packing {
    const struct syi_mixture *mixture; /* borrowed */
    struct syi_bucket row;             /* tokens of a row */
    struct syi_row_position at;        /* the window at hand */
    int planned;                       /* 1: `placed` holds it */
    int32_t rows;                      /* of it */
    struct syi_placed *placed; /* [SYI_PACKING_WINDOW] by row, in the order of the stream inside a row */
    struct syi_placed *drawn;  /* [SYI_PACKING_WINDOW] in the order of the stream */
    int32_t *first;            /* [SYI_PACKING_WINDOW + 1] row r has placed[first[r] .. first[r + 1]) */
    struct syi_slot *filled;   /* [SYI_PACKING_WINDOW] of each row: examples and tokens so far */
};

int syi_packing_open(struct syi_packing *packing, const struct syi_mixture *mixture, struct syi_bucket row,
                     struct sy_error *err) SYI_MUST_CHECK;
void syi_packing_close(struct syi_packing *packing); /* also of a zeroed one */
/* A window from which later rows are found; one that does not come after the rows wanted saves the way from the beginning. */
void syi_packing_seek(struct syi_packing *packing, struct syi_row_position position);
/* Makes the window of a row of the stream (0, 1, ...) the one at hand. Windows between are planned on the way. */
int syi_packing_find(struct syi_packing *packing, int64_t row, struct sy_error *err) SYI_MUST_CHECK;

#endif
