/* SPDX-License-Identifier: Apache-2.0 */
/* Under run.compat = t5x a checkpoint's state has the leaves of T5X's state_dict (optim/state_tree.h), those included
 * that are no tensors here: steps, counts, slots that are not in use. */
#ifndef SYI_STATE_LEAVES_H
#define SYI_STATE_LEAVES_H

#include "optim/state_tree.h"
#include "train/checkpoint/checkpoint.h"
#include "train/engine/engine.h"

struct syi_state_leaves {
    struct syi_checkpoint_leaves leaves; /* names are those of the tree */
    struct syi_state_tree tree;
    const struct syi_leaf **of;     /* [leaves.n] */
    const struct syi_chain *chains; /* borrowed */
};

/* The leaves of a run, whatever run.compat is: a checkpoint that it goes on from may have them. None where T5X has no such
 * optimizer or nothing is optimized. The caller frees them before the engine, after a failure too. */
int syi_state_leaves_make(struct syi_state_leaves *state, struct syi_engine *engine,
                          struct sy_error *err) SYI_MUST_CHECK;
/* Those that checkpoints of this run are written with; NULL: none. */
const struct syi_checkpoint_leaves *syi_state_leaves_written(const struct syi_state_leaves *state,
                                                             const struct syi_config *config);
void syi_state_leaves_free(struct syi_state_leaves *state); /* safe when zeroed */
/* What stands in them after so many steps; rate: the learning rate of the step to come. */
void syi_state_leaves_set(struct syi_state_leaves *state, int64_t step, double rate);

#endif
