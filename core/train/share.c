/* SPDX-License-Identifier: Apache-2.0 */
/* Sending rank 0's words to all: an integer sum to which the others add zeros. */
#include "config.h"

#include <string.h>

#include "train/share.h"

int syi_share_open(struct syi_share *share, struct syi_comm *comm, struct sy_error *err)
{
    int *ranks, status;

    share->comm = comm;
    if (comm->ranks == 1) return SY_OK;
    ranks = syi_alloc((size_t)comm->ranks * sizeof(*ranks), err);
    if (!ranks) return SY_ENOMEM;
    for (int i = 0; i < comm->ranks; i++) ranks[i] = i;
    status = syi_comm_group_new(comm, ranks, comm->ranks, &share->group, err);
    syi_free(ranks);
    return status;
}

int syi_share_sum(struct syi_share *share, int64_t *words, size_t n, struct sy_error *err)
{
    struct sy_collective call = {
        .send = words, .recv = words, .elements = n, .kind = SY_COLLECTIVE_ALL_REDUCE, .dtype = SY_I64};
    void *request;
    int status;

    if (share->comm->ranks == 1 || n == 0) return SY_OK;
    status = syi_comm_start(share->comm, share->group, &call, &request, err);
    return status ? status : syi_comm_wait(share->comm, request, err);
}

int syi_share_words(struct syi_share *share, int64_t *words, size_t n, struct sy_error *err)
{
    if (share->comm->rank != 0 && n)
        memset(words, 0, n * sizeof(*words)); /* without words there is no memory */
    return syi_share_sum(share, words, n, err);
}
