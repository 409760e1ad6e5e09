/* SPDX-License-Identifier: Apache-2.0 */
/* Steps, and those that a session does itself: start and wait of collectives, and copies between them and tensors. Runs
 * are made of them in run.c. */
#include "config.h"

#include "program/op_rules.h"
#include "runtime/device.h"

int syi_exec_start(void *transfer, const struct sy_call *call)
{
    struct syi_transfer *t = transfer;
    struct syi_session *s = t->session;
    if (s->device) {
        int status = syi_device_copy(s, s->segment[SYI_STAGING] + t->stage[0], call->in->data, t->bytes[0]);
        if (!status) status = syi_device_sync(s);
        if (status) return status;
    }
    return syi_comm_start(s->options.comm, t->group, &t->call, &t->request, &s->failure);
}

/* What was received is queued for the device, and stays in place until another start has waited for the device. */
int syi_exec_wait(void *transfer, const struct sy_call *call)
{
    struct syi_transfer *t = transfer;
    struct syi_session *s = t->session;
    int status = syi_comm_wait(s->options.comm, t->request, &s->failure);
    if (status || !s->device) return status;
    return syi_device_copy(s, call->in->data, s->segment[SYI_STAGING] + t->stage[1], t->bytes[1]);
}

/* `rows` rows of `row` bytes that begin every so many bytes. */
static int copy_rows(const struct syi_session *s, void *to, uint64_t to_stride, const void *from,
                     uint64_t from_stride, uint64_t row, uint64_t rows)
{
    if (s->device)
        return s->device->copy_rows(s->options.backend->context, to, to_stride, from, from_stride, row, rows);
    syi_copy_runs(to, row, to_stride, from, row, from_stride, row * rows);
    return SY_OK;
}

int syi_exec_slice(void *piece, const struct sy_call *call)
{
    const struct syi_piece *p = piece;
    (void)call;
    return copy_rows(p->session, p->to, p->inner, p->from, p->stride, p->inner, p->bytes / p->inner);
}

int syi_exec_join(void *session, const struct sy_call *call)
{
    const struct sy_attr_join *attr = call->attr;
    const uint64_t pieces = (uint64_t)call->out->dim[0], row = syi_span_bytes(call->out, 1, 2);
    uint8_t *to = call->out->data;
    int status = SY_OK;
    for (int i = 0; i < call->n_in && !status; i++) {
        const struct sy_tensor *t = &call->in[i];
        uint64_t inner = syi_span_bytes(t, (int)(attr->dims >> 4 * i & 15), t->rank) / pieces;
        uint64_t bytes = syi_span_bytes(t, 0, t->rank) / pieces;
        for (uint64_t p = 0; p < pieces && !status; p++)
            status = copy_rows(session, to + p * row, inner, (const uint8_t *)t->data + p * inner,
                               inner * pieces, inner, bytes / inner);
        to += syi_whole_lines(bytes);
    }
    return status;
}

int syi_exec_part(void *session, const struct sy_call *call)
{
    const struct sy_attr_part *attr = call->attr;
    const struct sy_tensor *in = call->in, *out = call->out;
    const uint64_t pieces = (uint64_t)in->dim[0], row = syi_span_bytes(in, 1, 2);
    const uint64_t inner = syi_span_bytes(out, (int)attr->dim, out->rank) / pieces;
    const uint64_t bytes = syi_span_bytes(out, 0, out->rank) / pieces;
    const uint8_t *from = (const uint8_t *)in->data + (uint64_t)attr->at * syi_dtype_bytes(in->dtype);
    int status = SY_OK;
    for (uint64_t p = 0; p < pieces && !status; p++)
        status = copy_rows(session, (uint8_t *)out->data + p * inner, inner * pieces, from + p * row, inner,
                           inner, bytes / inner);
    return status;
}

void syi_exec_place(const struct syi_program *program, size_t op, char *text, size_t bytes)
{
    const struct syi_op *o = &program->op[op];
    const char *layer = syi_program_name(program, o->layer);
    snprintf(text, bytes, "%s: op %zu %s%s%s (recorded at %s:%u)", program->title, op,
             syi_op_info(o->op)->name, *layer ? " of " : "", layer, syi_program_name(program, o->file),
             o->line);
}

int syi_exec_steps(const struct syi_bound *bound, size_t first, size_t end, char *place)
{
    int status = SY_OK;
    for (size_t at = first; at < end && !status; at++) {
        const struct syi_step *step = &bound->step[at];
        status = step->fn(step->context, step->call);
        if (status) syi_exec_place(bound->program, at, place, SYI_PLACE_TEXT);
    }
    return status;
}
