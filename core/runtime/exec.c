/* SPDX-License-Identifier: Apache-2.0 */
/* The run loop, and what a session does itself: chains of ops on the rows of a product, start and wait of
 * collectives, and copies between them and tensors. */
#include "config.h"

#include "program/op_rules.h"
#include "runtime/bound.h"

int syi_exec_start(void *transfer, const struct sy_call *call)
{
    struct syi_transfer *t = transfer;
    (void)call;
    return syi_comm_start(t->session->options.comm, t->group, &t->call, &t->request, &t->session->failure);
}

int syi_exec_wait(void *transfer, const struct sy_call *call)
{
    struct syi_transfer *t = transfer;
    (void)call;
    return syi_comm_wait(t->session->options.comm, t->request, &t->session->failure);
}

int syi_exec_slice(void *piece, const struct sy_call *call)
{
    const struct syi_piece *p = piece;
    (void)call;
    syi_copy_runs(p->to, p->inner, p->inner, p->from, p->inner, p->stride, p->bytes);
    return SY_OK;
}

void syi_exec_rows(void *chain, int64_t first, int64_t end)
{
    const struct syi_chain *c = chain;
    for (int i = 0; i < c->n; i++) c->kernel[i]->rows(c->context, &c->call[i], first, end);
}

int syi_exec_join(void *nothing, const struct sy_call *call)
{
    const struct sy_attr_join *attr = call->attr;
    const uint64_t pieces = (uint64_t)call->out->dim[0], row = syi_span_bytes(call->out, 1, 2);
    uint8_t *to = call->out->data;
    (void)nothing;
    for (int i = 0; i < call->n_in; i++) {
        const struct sy_tensor *t = &call->in[i];
        uint64_t inner = syi_span_bytes(t, (int)(attr->dims >> 4 * i & 15), t->rank) / pieces;
        uint64_t bytes = syi_span_bytes(t, 0, t->rank) / pieces;
        for (uint64_t p = 0; p < pieces; p++)
            syi_copy_runs(to + p * row, bytes, bytes, (const uint8_t *)t->data + p * inner, inner,
                          inner * pieces, bytes);
        to += syi_whole_lines(bytes);
    }
    return SY_OK;
}

int syi_exec_part(void *nothing, const struct sy_call *call)
{
    const struct sy_attr_part *attr = call->attr;
    const struct sy_tensor *in = call->in, *out = call->out;
    const uint64_t pieces = (uint64_t)in->dim[0], row = syi_span_bytes(in, 1, 2);
    const uint64_t inner = syi_span_bytes(out, (int)attr->dim, out->rank) / pieces;
    const uint64_t bytes = syi_span_bytes(out, 0, out->rank) / pieces;
    const uint8_t *from = (const uint8_t *)in->data + (uint64_t)attr->at * syi_dtype_bytes(in->dtype);
    (void)nothing;
    for (uint64_t p = 0; p < pieces; p++)
        syi_copy_runs((uint8_t *)out->data + p * inner, inner, inner * pieces, from + p * row, bytes, bytes,
                      bytes);
    return SY_OK;
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
static int fail(struct syi_session *session, const struct syi_program *program, size_t op, int status,
                struct sy_error *err)
{
    char place[384];
    struct sy_error *failure = &session->failure;
    syi_exec_place(program, op, place, sizeof place);
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

int syi_session_run(struct syi_session *session, int program, struct sy_error *err)
{
    if (session->state != 1 || session->options.plan_only || program < 0 ||
        (size_t)program >= session->n_bound)
        return syi_error(err, SY_EINVAL, "program %d cannot be run: %s", program,
                         session->options.plan_only ? "the session is a plan only" : "it is not bound");
    const struct syi_bound *bound = &session->bound[program];
    session->failure = (struct sy_error){0};
    const struct syi_step *step = session->hook ? bound->step : bound->run;
    const struct syi_step *end = step + (session->hook ? bound->program->n_ops : bound->n_run);
    for (; step < end; step++) {
        if (session->hook) session->hook(session->hook_arg, program, step->op, step->call, 0);
        int status = step->fn(step->context, step->call);
        if (status) return fail(session, bound->program, step->op, status, err);
        if (session->hook) session->hook(session->hook_arg, program, step->op, step->call, 1);
    }
    return SY_OK;
}
