/* SPDX-License-Identifier: Apache-2.0 */
/* What T5X would keep of this run's optimizers. */
#include "config.h"

#include "optim/state_tree.h"
#include "train/engine/engine_internal.h"

const struct syi_chain *syi_engine_chains(const struct syi_engine *e)
{
    return e->chains;
}

/* The tree needs the update program as it is recorded, before it is cut for ranks. */
int syi_engine_state_tree(struct syi_engine *e, struct syi_state_tree *tree, struct sy_error *err)
{
    struct syi_shape shape = syi_engine_shape(e, 0, SYI_UPDATE);
    struct syi_recorded recorded;
    int status = syi_pipeline(&e->config, &e->rank.mesh, e->rank.backend, SYI_UPDATE, &shape,
                              SYI_STAGE_RECORD, &e->model, &recorded, err);
    if (status) return status;
    status = syi_state_tree(&e->config, e->chains, &e->model, recorded.program, tree, err);
    syi_program_free(recorded.program);
    return status;
}
