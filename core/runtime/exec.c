/* SPDX-License-Identifier: Apache-2.0 */
/* The run loop, and what a session does itself: chains of ops on the rows of a product, start and wait of
 * collectives, and copies between them and tensors. */
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

void syi_exec_rows(void *chain, int64_t first, int64_t end)
{
    const struct syi_chain *c = chain;
    for (int i = 0; i < c->n; i++) c->kernel[i]->rows(c->context, &c->call[i], first, end);
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

/* Says why a step failed and stops the other ranks, which would wait for this one for ever. */
static int fail(struct syi_session *session, const char *place, int status, struct sy_error *err)
{
    struct sy_error *failure = &session->failure;
    if (failure->code) {
        struct sy_error cause = *failure;
        *failure = (struct sy_error){0};
        status = syi_error(failure, status, "%s: %s", place, cause.text);
    } else {
        status = syi_backend_error(session->options.backend, status, place, failure);
    }
    syi_comm_abort(session->options.comm, failure->text);
    return syi_error(err, status, "%s", failure->text);
}

int syi_exec_steps(const struct syi_bound *bound, size_t first, size_t end, char *place)
{
    int status = SY_OK;
    for (const struct syi_step *step = bound->run + first; step < bound->run + end && !status; step++) {
        status = step->fn(step->context, step->call);
        if (status) syi_exec_place(bound->program, step->op, place, SYI_PLACE_TEXT);
    }
    return status;
}

/* Op by op, a hook before and after each. */
static int run_hooked(struct syi_session *s, int program, char *place)
{
    const struct syi_bound *bound = &s->bound[program];
    struct syi_view view;
    int status = SY_OK;
    for (size_t at = 0; at < bound->program->n_ops && !status; at++) {
        const struct syi_step *step = &bound->step[at];
        const struct sy_call *seen = s->device ? &view.call : step->call;
        if (s->device) status = syi_look_before(s, bound, at, &view);
        if (!status) s->hook(s->hook_arg, program, at, seen, 0);
        if (!status && s->device) status = syi_look_put(s, bound, at);
        if (!status) status = step->fn(step->context, step->call);
        if (!status && s->device) status = syi_look_after(s, bound, at);
        if (!status) s->hook(s->hook_arg, program, at, seen, 1);
        if (status) syi_exec_place(bound->program, at, place, SYI_PLACE_TEXT);
    }
    return status;
}

static int run(struct syi_session *s, int program, char *place)
{
    struct syi_bound *bound = &s->bound[program];
    if (s->hook) return run_hooked(s, program, place);
    return bound->n_spans ? syi_graph_run(s, bound, place) : syi_exec_steps(bound, 0, bound->n_run, place);
}

static int run_on_device(struct syi_session *s, int program, char *place)
{
    const struct syi_bound *bound = &s->bound[program];
    int status = syi_device_before(s, bound);
    if (status) {
        snprintf(place, SYI_PLACE_TEXT, "%s: copying inputs to the device", bound->program->title);
        return status;
    }
    status = run(s, program, place);
    if (status) return status;
    status = syi_device_after(s, bound);
    if (status)
        snprintf(place, SYI_PLACE_TEXT, "%s: waiting for the device and its outputs", bound->program->title);
    return status;
}

int syi_session_run(struct syi_session *session, int program, struct sy_error *err)
{
    char place[SYI_PLACE_TEXT];
    if (session->state != 1 || session->options.plan_only || program < 0 ||
        (size_t)program >= session->n_bound)
        return syi_error(err, SY_EINVAL, "program %d cannot be run: %s", program,
                         session->options.plan_only ? "the session is a plan only" : "it is not bound");
    session->failure = (struct sy_error){0};
    int status = session->device ? run_on_device(session, program, place) : run(session, program, place);
    return status ? fail(session, place, status, err) : SY_OK;
}
