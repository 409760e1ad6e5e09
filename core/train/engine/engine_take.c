/* SPDX-License-Identifier: Apache-2.0 */
/* From one engine of a model to another: what a run has between two steps. Activations, gradients and copies of weights are
 * made anew by every step, so parameters and optimizer state are all of it. */
#include "config.h"

#include <string.h>

#include "train/engine/engine_internal.h"

const struct syi_config *syi_engine_config(const struct syi_engine *e)
{
    return &e->config;
}

int syi_engine_use(const struct syi_engine *e)
{
    return e->use;
}

/* By name: the places of tensors may differ. */
static int copy_tensors(struct syi_session *to, const struct syi_session *from, struct sy_error *err)
{
    const struct syi_shared *mine;
    for (size_t i = 0; (mine = syi_session_shared(to, i)); i++) {
        if (syi_kind_segment(mine->info.kind) != SYI_PERSIST) continue;
        const struct sy_tensor *theirs = syi_session_tensor(from, mine->name);
        int same = theirs && theirs->dtype == mine->tensor.dtype && theirs->rank == mine->tensor.rank &&
                   !memcmp(theirs->dim, mine->tensor.dim, sizeof theirs->dim);
        if (!same) return syi_error(err, SY_EINTERNAL, "%s is not the same in both engines", mine->name);
        memcpy(mine->tensor.data, theirs->data,
               (size_t)syi_bound_count(theirs) * syi_dtype_bytes((enum sy_dtype)theirs->dtype));
    }
    return SY_OK;
}

int syi_engine_take(struct syi_engine *e, const struct syi_engine *from, struct sy_error *err)
{
    int status = syi_session_download(from->session, SYI_PERSIST, err);
    if (!status) status = copy_tensors(e->session, from->session, err);
    if (!status) status = syi_session_upload(e->session, SYI_PERSIST, err);
    e->averaged = from->averaged;
    syi_engine_weights_written(e);
    e->rate_factor = from->rate_factor;
    return syi_comm_agree(e->rank.comm, status, err);
}
