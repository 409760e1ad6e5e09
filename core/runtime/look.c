/* SPDX-License-Identifier: Apache-2.0 */
/* What a hook sees of an op that works on device memory: a call whose operands are in host memory, brought there
 * before and after the op. Slow, and exact: everything is waited for. */
#include "config.h"

#include "runtime/device.h"

/* Operand i of the op, inputs first; NULL: it is absent. */
static const struct syi_tensor *operand(const struct syi_bound *bound, size_t at, int i)
{
    const struct syi_op *op = &bound->program->op[at];
    int tensor = i < op->n_in ? op->in[i] : op->out[i - op->n_in];
    return tensor < 0 ? NULL : &bound->program->tensor[tensor];
}

/* Temporaries have no place on the host until a hook wants to see them. */
static int take_scratch(struct syi_session *session)
{
    if (session->segment[SYI_SCRATCH]) return SY_OK;
    session->seen_scratch = syi_alloc((size_t)session->plan.bytes[SYI_SCRATCH], &session->failure);
    session->segment[SYI_SCRATCH] = session->seen_scratch;
    return session->seen_scratch ? SY_OK : SY_ENOMEM;
}

/* Operands [first, end) of the op, between the device and the host. */
static int move_operands(const struct syi_session *session, const struct syi_bound *bound, size_t at,
                         int first, int end, int to_device)
{
    int status = SY_OK;
    for (int i = first; i < end && !status; i++) {
        const struct syi_tensor *t = operand(bound, at, i);
        if (!t) continue;
        uint8_t *host = session->segment[syi_kind_segment(t->kind)] + t->offset;
        uint8_t *device = session->place[syi_kind_segment(t->kind)] + t->offset;
        uint64_t bytes = (uint64_t)syi_tensor_count(t) * syi_dtype_bytes(t->dtype);
        status = syi_device_copy(session, to_device ? device : host, to_device ? host : device, bytes);
    }
    return status ? status : syi_device_sync(session);
}

int syi_look_before(struct syi_session *session, const struct syi_bound *bound, size_t at,
                    struct syi_view *view)
{
    const struct syi_op *op = &bound->program->op[at];
    int n = op->n_in + op->n_out, status = session->hook_reads ? take_scratch(session) : SY_OK;
    if (status) return status;
    view->call = bound->call[at];
    view->call.in = view->operand;
    view->call.out = view->operand + op->n_in;
    for (int i = 0; i < n; i++) {
        const struct syi_tensor *t = operand(bound, at, i);
        view->operand[i] = bound->call[at].in[i]; /* outputs are next to inputs */
        view->operand[i].data = NULL;
        if (t && session->hook_reads)
            view->operand[i].data = session->segment[syi_kind_segment(t->kind)] + t->offset;
    }
    return session->hook_reads ? move_operands(session, bound, at, 0, n, 0) : syi_device_sync(session);
}

int syi_look_put(struct syi_session *session, const struct syi_bound *bound, size_t at)
{
    const struct syi_op *op = &bound->program->op[at];
    return session->hook_reads ? move_operands(session, bound, at, op->n_in, op->n_in + op->n_out, 1) : SY_OK;
}

int syi_look_after(struct syi_session *session, const struct syi_bound *bound, size_t at)
{
    const struct syi_op *op = &bound->program->op[at];
    return session->hook_reads ? move_operands(session, bound, at, op->n_in, op->n_in + op->n_out, 0)
                               : syi_device_sync(session);
}
