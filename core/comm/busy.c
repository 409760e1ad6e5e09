/* SPDX-License-Identifier: Apache-2.0 */
/* Long work of some ranks, for which the others wait: all add up, again and again, how many still work. */
#include "config.h"

#include "comm/comm.h"

enum { TELL_SECONDS = 2 };

struct syi_busy syi_busy_begin(struct syi_comm *comm)
{
    return (struct syi_busy){comm, syi_seconds()};
}

int syi_busy_tell(void *busy, struct sy_error *err)
{
    struct syi_busy *b = busy;
    int64_t working = 1;
    if (syi_seconds() - b->told < TELL_SECONDS) return SY_OK;
    b->told = syi_seconds();
    return syi_comm_sum(b->comm, &working, 1, err);
}

int syi_busy_end(struct syi_busy *busy, struct sy_error *err)
{
    int64_t working;
    int status;
    do {
        working = 0;
        status = syi_comm_sum(busy->comm, &working, 1, err);
    } while (!status && working);
    return status;
}

int syi_busy_share(void *busy, void *data, size_t bytes, struct sy_error *err)
{
    struct syi_busy *b = busy;
    int status = syi_busy_end(b, err);
    return status ? status : syi_comm_share(b->comm, data, bytes, err);
}
