/* SPDX-License-Identifier: Apache-2.0 */
/* What a hook sees of an op that works on device memory: a call whose operands are in host memory, brought there
 * before and after the op. Slow, and exact: everything is waited for. */
#include "config.h"

#include "runtime/device.h"

enum { PAGE = 4096 };

/* Operand i of the op, inputs first; NULL: it is absent. */
static const struct syi_tensor *operand(const struct syi_bound *bound, size_t at, int i)
{
    const struct syi_op *op = &bound->program->op[at];
    int tensor = i < op->n_in ? op->in[i] : op->out[i - op->n_in];
    return tensor < 0 ? NULL : &bound->program->tensor[tensor];
}

/* Temporaries have no place on the host until a hook wants to see them. Not zeroed: all that a hook sees is brought. */
int syi_look_take(struct syi_session *session, struct sy_error *err)
{
    uint64_t bytes = session->plan.bytes[SYI_SCRATCH], most = session->options.available;
    if (!session->device || session->seen_scratch) return SY_OK;
    if (bytes <= SIZE_MAX && (!most || session->arena_bytes + bytes <= most))
        session->seen_scratch = syi_take((size_t)bytes, PAGE);
    session->segment[SYI_SCRATCH] = session->seen_scratch;
    if (session->seen_scratch) return SY_OK;
    return syi_error(err, SY_ENOMEM,
                     "the host has no memory for the %llu bytes of temporaries that are on the device",
                     (unsigned long long)bytes);
}

void syi_look_free(struct syi_session *session)
{
    if (!session->seen_scratch) return;
    syi_free(session->seen_scratch);
    session->seen_scratch = session->segment[SYI_SCRATCH] = NULL;
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
    int n = op->n_in + op->n_out,
        status = session->hook_reads ? syi_look_take(session, &session->failure) : SY_OK;
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
