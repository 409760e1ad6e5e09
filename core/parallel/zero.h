/* SPDX-License-Identifier: Apache-2.0 */
/* ZeRO: what would lie as copies on all ranks that take rows of a batch is split over them. Stages 1 and 2:
 * optimizer state and gradients; 3: parameters too. */
#ifndef SYI_ZERO_H
#define SYI_ZERO_H

#include "parallel/mesh.h"

/* The declared layout of every tensor of a global program: the mesh's rules, and the mesh axes of the batch
 * on the first dim of state, gradients (and parameters) that no rule splits and whose leaves they divide.
 * Temporaries between them on the way of elementwise ops lie the same. spec: [program->n_tensors]. */
void syi_zero_specs(const struct syi_program *program, const struct syi_mesh *mesh,
                    uint8_t (*spec)[SY_MAX_DIMS]);

#endif
