/* SPDX-License-Identifier: Apache-2.0 */
/* The bfloat16 copies of weights that programs of gradients read (struct syi_copy, model/model.h), made anew by the update
 * right after it has written the weights: the cast is an output of the map that moves them, so no second pass over the
 * weights is made; several packed, and those in panels, follow the last of their parts. */
#ifndef SYI_WEIGHT_COPIES_H
#define SYI_WEIGHT_COPIES_H

#include "model/model.h"

struct syi_weight_copies {
    const struct syi_model *model; /* borrowed */
    int *tensor;                   /* [parameters by id] in the program */
    int *first;                    /* [parameters by id] 3 x copy + part of a copy of it, -1: none */
    int *next;                     /* [3 x copies] the next one of the same parameter, -1: none */
    int *awaited;                  /* [copies] parts that are still to be written */
};

/* program has all parameters; moved: [by id] 1: it writes this one. */
int syi_weight_copies_new(struct syi_weight_copies *copies, const struct syi_model *model,
                          const struct syi_program *program, const uint8_t *moved,
                          struct sy_error *err) SYI_MUST_CHECK;
/* Parameter `id` has just been written: records the copies that are whole with it. */
void syi_weight_copies_follow(struct syi_weight_copies *copies, struct syi_program *program, uint32_t id);
void syi_weight_copies_free(struct syi_weight_copies *copies);

#endif
