/* SPDX-License-Identifier: Apache-2.0 */
/* Trading arithmetic for memory: activations that are computed again in the backward pass (Chen et al.,
 * Training deep nets with sublinear memory cost, arXiv 1604.06174). */
#ifndef SYI_RECOMPUTE_H
#define SYI_RECOMPUTE_H

#include "program/program.h"

struct syi_recomputed {
    uint64_t peak; /* bytes of temporaries alive at the fullest op, workspaces left out */
    size_t ops;    /* that were added */
    double flops;  /* of these, all positions and slots filled */
};

/* Rewrites a program of one rank so that its temporaries take at most `target` bytes, or as few as possible:
 * done->peak tells. Before lowering. */
int syi_program_recompute(struct syi_program *program, uint64_t target, struct syi_recomputed *done,
                          struct sy_error *err) SYI_MUST_CHECK;

#endif
