/* SPDX-License-Identifier: Apache-2.0 */
/* Packs windows of the stream, first fit. */
#include "config.h"

#include <string.h>

#include "data/packing.h"

enum { WINDOW = SYI_PACKING_WINDOW };

int syi_packing_open(struct syi_packing *p, const struct syi_mixture *mixture, struct syi_bucket row,
                     struct sy_error *err)
{
    memset(p, 0, sizeof *p);
    p->mixture = mixture;
    p->row = row;
    p->placed = syi_alloc(WINDOW * sizeof *p->placed, err);
    p->drawn = syi_alloc(WINDOW * sizeof *p->drawn, err);
    p->first = syi_alloc((WINDOW + 1) * sizeof *p->first, err);
    p->filled = syi_alloc(WINDOW * sizeof *p->filled, err);
    if (p->placed && p->drawn && p->first && p->filled) return SY_OK;
    syi_packing_close(p);
    return SY_ENOMEM;
}

void syi_packing_close(struct syi_packing *p)
{
    syi_free(p->placed);
    syi_free(p->drawn);
    syi_free(p->first);
    syi_free(p->filled);
    memset(p, 0, sizeof *p);
}

void syi_packing_seek(struct syi_packing *p, struct syi_row_position position)
{
    if (position.window == p->at.window && position.row == p->at.row) return;
    p->at = position;
    p->planned = 0;
}

/* The first row with room for the example, or a new one. */
static void place_example(struct syi_packing *p, struct syi_placed *x)
{
    int32_t row = 0;
    while (row < p->rows && (p->filled[row].input_at + x->input > p->row.input_length ||
                             p->filled[row].target_at + x->target > p->row.target_length))
        row++;
    if (row == p->rows) p->filled[p->rows++] = (struct syi_slot){.row = row};
    p->filled[row].segment++;
    x->slot = p->filled[row];
    p->filled[row].input_at += x->input;
    p->filled[row].target_at += x->target;
}

/* From the order of the stream to that of the rows. */
static void sort_by_row(struct syi_packing *p)
{
    p->first[0] = 0;
    for (int32_t r = 0; r < p->rows; r++) p->first[r + 1] = p->first[r] + p->filled[r].segment;
    for (int32_t i = 0; i < WINDOW; i++) {
        const struct syi_slot *slot = &p->drawn[i].slot;
        p->placed[p->first[slot->row] + slot->segment - 1] = p->drawn[i];
    }
}

static int plan_window(struct syi_packing *p, struct sy_error *err)
{
    int status = SY_OK;
    p->rows = 0;
    for (int32_t i = 0; i < WINDOW && !status; i++) {
        struct syi_placed *x = &p->drawn[i];
        x->pick = syi_mixture_pick(p->mixture, p->at.window * WINDOW + i);
        status = syi_mixture_lengths(p->mixture, &x->pick, &x->entry, &x->input, &x->target, err);
        if (!status) place_example(p, x);
    }
    if (!status) sort_by_row(p);
    p->planned = !status;
    return status;
}

int syi_packing_find(struct syi_packing *p, int64_t row, struct sy_error *err)
{
    int status = SY_OK;
    if (row < p->at.row) syi_packing_seek(p, (struct syi_row_position){0, 0});
    if (!p->planned) status = plan_window(p, err);
    while (!status && row >= p->at.row + p->rows) {
        p->at = (struct syi_row_position){p->at.window + 1, p->at.row + p->rows};
        status = plan_window(p, err);
    }
    return status;
}
