/* SPDX-License-Identifier: Apache-2.0 */
/* Where collectives over device memory send from and receive into: two blocks each, from the start to the wait; of host
 * memory, or with links of the device, where what they move is not in whole pieces. Blocks of collectives that are not under way at the same time share their place. */
#include "config.h"

#include "passes/place.h"
#include "runtime/device.h"

int syi_staging_plan(const struct syi_session *session, struct syi_bound *bound, uint64_t *bytes,
                     struct sy_error *err)
{
    const struct syi_program *p = bound->program;
    struct syi_block *block = syi_alloc(2 * p->n_ops * sizeof *block, err);
    uint64_t end = 0;
    size_t n = 0;
    if (!block) return SY_ENOMEM;
    for (size_t at = 0; at < p->n_ops; at++) {
        const struct syi_op *op = &p->op[at];
        if (!op->queue) continue;
        const int tensor[2] = {op->in[0], op->out[0]};
        const struct sy_collective call = syi_bound_collective(session, bound, at);
        for (int i = 0; i < 2; i++) {
            bound->transfer[at].bytes[i] = p->tensor[tensor[i]].bytes;
            if (session->links && !syi_link_packs(&call, i)) continue;
            block[n++] = (struct syi_block){.bytes = syi_whole_lines(p->tensor[tensor[i]].bytes),
                                            .first = at,
                                            .last = syi_wait_of(p, at),
                                            .to = &bound->transfer[at].stage[i]};
        }
    }
    int status = n ? syi_place_blocks(block, n, p->n_ops, &end, err) : SY_OK;
    if (!status && end > SYI_MAX_SEGMENT)
        status =
            syi_error(err, SY_EINVAL, "%s: what collectives move does not end below 2^60 bytes", p->title);
    for (size_t i = 0; i < n && !status; i++) *block[i].to = block[i].offset;
    if (!status && end > *bytes) *bytes = end;
    syi_free(block);
    return status;
}
