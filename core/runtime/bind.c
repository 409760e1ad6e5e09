/* SPDX-License-Identifier: Apache-2.0 */
/* Binding one program: a call, a kernel and a step for every op, in two halves around the memory plan.
 * Everything a run needs is made here, so that a run looks nothing up and allocates nothing. */
#include "config.h"

#include <string.h>

#include "program/op_rules.h"
#include "runtime/device.h"

/* Where operands point until there is memory: a kernel that is asked for its workspace sees which of them are
 * present. */
static _Alignas(64) uint8_t nowhere[64];

/* ---- operands ---- */

struct sy_tensor syi_bound_tensor(const struct syi_session *session, const struct syi_tensor *tensor,
                                  uint8_t *const segment[SYI_SEGMENT_COUNT])
{
    uint8_t *memory = segment[syi_kind_segment(tensor->kind)];
    struct sy_tensor t = {.dtype = tensor->dtype, .rank = tensor->rank};
    for (int i = 0; i < SY_MAX_DIMS; i++) {
        t.dim[i] = tensor->dim[i];
        t.first[i] =
            tensor->split[i] ? syi_mesh_index(&session->mesh, tensor->split[i], session->rank) * t.dim[i] : 0;
    }
    if (memory) t.data = memory + tensor->offset;
    return t;
}

static struct sy_tensor absent(void)
{
    return (struct sy_tensor){.dim = {1, 1, 1, 1, 1}};
}

/* Operands of all ops, one array; calls point into it. */
static void fill_operands(struct syi_session *session, struct syi_bound *bound)
{
    const struct syi_program *program = bound->program;
    struct sy_tensor *next = bound->operand;
    for (size_t at = 0; at < program->n_ops; at++) {
        const struct syi_op *op = &program->op[at];
        struct sy_call *call = &bound->call[at];
        call->in = next;
        call->out = next + op->n_in;
        for (int i = 0; i < op->n_in + op->n_out; i++, next++) {
            int tensor = i < op->n_in ? op->in[i] : op->out[i - op->n_in];
            *next =
                tensor < 0 ? absent() : syi_bound_tensor(session, &program->tensor[tensor], session->place);
            if (tensor >= 0 && !next->data) next->data = nowhere;
        }
    }
}

/* ---- kernels ---- */

/* Of the operands that ops.def marks f; of an op without marks, whose operands may be mixed: bf16 if any is.
 * SY_DTYPE_COUNT: there is none, any kernel will do. */
static int floating_dtype(const struct sy_tensor *operand, int n, const char *types)
{
    int dtype = SY_DTYPE_COUNT;
    for (int i = 0; i < n; i++) {
        int now = operand[i].dtype;
        if (!operand[i].data || !syi_is_float((enum sy_dtype)now) || (types && types[i] != 'f')) continue;
        if (dtype == SY_DTYPE_COUNT || now == SY_BF16) dtype = now;
    }
    return dtype;
}

typedef int (*connect_fn)(struct syi_session *session, struct syi_bound *bound, size_t at,
                          struct sy_error *err);
/* How an op that the session runs itself gets its step (exec.c); NULL: it has a kernel. */
static connect_fn connect_of(const struct syi_op *op);

static int find_kernel(struct syi_session *session, struct syi_bound *bound, size_t at, struct sy_error *err)
{
    struct syi_backend *backend = session->options.backend;
    const struct sy_call *call = &bound->call[at];
    const char *types = syi_op_info(call->op)->types;
    int in = floating_dtype(call->in, call->n_in, *types ? types : NULL);
    int out = floating_dtype(call->out, call->n_out, *types ? types + call->n_in : NULL);
    const struct sy_kernel *kernel = syi_backend_find(backend, (enum sy_op)call->op, in, out);
    if (!kernel) {
        char place[SYI_PLACE_TEXT];
        syi_exec_place(bound->program, at, place, sizeof place);
        return syi_error(err, SY_EUNSUPPORTED,
                         "%s: backend %s has no kernel for %s -> %s; choose another backend or dtype", place,
                         backend->plugin.desc.name,
                         in == SY_DTYPE_COUNT ? "integers" : syi_dtype_name((enum sy_dtype)in),
                         out == SY_DTYPE_COUNT ? "integers" : syi_dtype_name((enum sy_dtype)out));
    }
    bound->kernel[at] = kernel;
    bound->step[at] = (struct syi_step){kernel->run, backend->context, call};
    if (kernel->workspace) bound->workspace[at] = kernel->workspace(call, backend->host.threads);
    return SY_OK;
}

static int allocate(struct syi_bound *bound, struct sy_error *err)
{
    size_t n = bound->program->n_ops, operands = 0;
    for (size_t i = 0; i < n; i++)
        operands += (size_t)bound->program->op[i].n_in + bound->program->op[i].n_out;
    bound->operand = syi_alloc(operands * sizeof *bound->operand, err);
    bound->call = syi_alloc(n * sizeof *bound->call, err);
    bound->step = syi_alloc(n * sizeof *bound->step, err);
    bound->kernel = syi_alloc(n * sizeof *bound->kernel, err);
    bound->transfer = syi_alloc(n * sizeof *bound->transfer, err);
    bound->piece = syi_alloc(n * sizeof *bound->piece, err);
    bound->workspace = syi_alloc(n * sizeof *bound->workspace, err);
    bound->workspace_at = syi_alloc(n * sizeof *bound->workspace_at, err);
    int complete = bound->operand && bound->call && bound->step && bound->kernel && bound->transfer &&
                   bound->piece && bound->workspace && bound->workspace_at;
    return complete ? SY_OK : SY_ENOMEM;
}

int syi_bound_prepare(struct syi_session *session, struct syi_bound *bound, struct sy_error *err)
{
    const struct syi_program *program = bound->program;
    int status = allocate(bound, err);
    if (status) return status;
    for (size_t at = 0; at < program->n_ops; at++) {
        const struct syi_op *op = &program->op[at];
        bound->call[at] = (struct sy_call){.host = &session->options.backend->host,
                                           .attr = syi_program_attr(program, op),
                                           .attr_bytes = op->attr_bytes,
                                           .op = op->op,
                                           .n_in = op->n_in,
                                           .n_out = op->n_out};
    }
    fill_operands(session, bound);
    for (size_t at = 0; at < program->n_ops && !status; at++)
        if (!connect_of(&program->op[at])) status = find_kernel(session, bound, at, err);
    return status;
}

/* ---- collectives and slices ---- */

struct sy_collective syi_bound_collective(const struct syi_session *session, const struct syi_bound *bound,
                                          size_t at)
{
    const struct sy_call *call = &bound->call[at];
    int axes = syi_collective_group(bound->program, &bound->program->op[at], &session->mesh);
    struct sy_collective c = {.send = call->in->data,
                              .recv = call->out->data,
                              .dtype = call->in->dtype,
                              .kind = SY_COLLECTIVE_ALL_TO_ALL};
    c.send_outer = c.recv_outer = 1;
    c.send_inner = c.recv_inner = syi_span_bytes(call->in, 0, call->in->rank);
    if (syi_op_rules(call->op)->exchange)
        syi_op_rules(call->op)->exchange(call, (uint64_t)syi_mesh_size(&session->mesh, axes), &c);
    return c;
}

/* The communicator's group for a queue and a set of mesh axes, made once for all sessions. All ranks come here in the
 * same order. */
static int find_group(struct syi_session *session, int queue, int axes, int *group, struct sy_error *err)
{
    int *ranks, status = SY_OK, *made = &session->group[queue - 1][axes];
    if (*made < 0) {
        ranks = syi_alloc((size_t)syi_mesh_size(&session->mesh, axes) * sizeof *ranks, err);
        if (!ranks) return SY_ENOMEM;
        int n = syi_mesh_group(&session->mesh, axes, session->rank, ranks);
        status = syi_comm_group_shared(session->options.comm, queue, ranks, n, made, err);
        syi_free(ranks);
    }
    *group = *made;
    return status;
}

static int connect_collective(struct syi_session *session, struct syi_bound *bound, size_t at,
                              struct sy_error *err)
{
    struct syi_transfer *transfer = &bound->transfer[at];
    int axes = syi_collective_group(bound->program, &bound->program->op[at], &session->mesh);
    if (!syi_op_rules(bound->program->op[at].op)->exchange)
        return syi_error(err, SY_EINTERNAL, "%s: op %zu is a collective that was not lowered",
                         bound->program->title, at);
    transfer->session = session;
    transfer->call = syi_bound_collective(session, bound, at);
    if (session->device && !session->links) {
        transfer->call.send = session->segment[SYI_STAGING] + transfer->stage[0];
        transfer->call.recv = session->segment[SYI_STAGING] + transfer->stage[1];
    }
    bound->step[at] =
        (struct syi_step){session->links ? syi_link_start : syi_exec_start, transfer, &bound->call[at]};
    int status = find_group(session, bound->program->op[at].queue, axes, &transfer->group, err);
    return status || !session->links ? status : syi_link_connect(session, transfer, err);
}

static int connect_wait(struct syi_session *session, struct syi_bound *bound, size_t at, struct sy_error *err)
{
    const struct syi_program *program = bound->program;
    for (size_t i = at; i-- > 0;)
        if (program->op[i].queue && program->op[i].out[0] == program->op[at].in[0]) {
            bound->step[at] = (struct syi_step){session->links ? syi_link_wait : syi_exec_wait,
                                                &bound->transfer[i], &bound->call[at]};
            return SY_OK;
        }
    return syi_error(err, SY_EINTERNAL, "%s: op %zu waits for a collective that no op starts", program->title,
                     at);
}

static int connect_slice(struct syi_session *session, struct syi_bound *bound, size_t at,
                         struct sy_error *err)
{
    (void)err;
    const struct sy_call *call = &bound->call[at];
    const struct sy_attr_collective *attr = call->attr;
    struct syi_piece *piece = &bound->piece[at];
    uint64_t index = (uint64_t)syi_mesh_index(&session->mesh, (int)attr->b, session->rank);
    piece->session = session;
    piece->inner = syi_span_bytes(call->out, (int)attr->a, call->out->rank);
    piece->stride = syi_span_bytes(call->in, (int)attr->a, call->in->rank);
    piece->bytes = syi_span_bytes(call->out, 0, call->out->rank);
    piece->from = (const uint8_t *)call->in->data + index * piece->inner;
    piece->to = call->out->data;
    bound->step[at] = (struct syi_step){syi_exec_slice, piece, call};
    return SY_OK;
}

static int connect_join(struct syi_session *session, struct syi_bound *bound, size_t at, struct sy_error *err)
{
    (void)err;
    bound->step[at] = (struct syi_step){syi_exec_join, session, &bound->call[at]};
    return SY_OK;
}

static int connect_part(struct syi_session *session, struct syi_bound *bound, size_t at, struct sy_error *err)
{
    (void)err;
    bound->step[at] = (struct syi_step){syi_exec_part, session, &bound->call[at]};
    return SY_OK;
}

static connect_fn connect_of(const struct syi_op *op)
{
    static const connect_fn own[SY_OP_COUNT] = {[SY_OP_WAIT] = connect_wait,
                                                [SY_OP_SLICE] = connect_slice,
                                                [SY_OP_JOIN] = connect_join,
                                                [SY_OP_PART] = connect_part};
    return op->queue ? connect_collective : own[op->op];
}

/* ---- after the plan ---- */

static int prepare_kernel(struct syi_session *session, struct syi_bound *bound, size_t at,
                          struct sy_error *err)
{
    const struct sy_kernel *kernel = bound->kernel[at];
    struct sy_call *call = &bound->call[at];
    if (bound->workspace[at]) {
        call->workspace = session->place[SYI_SCRATCH] + bound->workspace_at[at];
        call->workspace_bytes = bound->workspace[at];
    }
    if (!kernel->prepare) return SY_OK;
    int status = kernel->prepare(session->options.backend->context, call, &call->plan);
    if (!status) return SY_OK;
    char place[SYI_PLACE_TEXT];
    call->plan = NULL;
    syi_exec_place(bound->program, at, place, sizeof place);
    return syi_backend_error(session->options.backend, status, place, err);
}

int syi_bound_kernels(struct syi_session *session, struct syi_bound *bound, struct sy_error *err)
{
    int status = SY_OK;
    fill_operands(session, bound);
    for (size_t at = 0; at < bound->program->n_ops && !status; at++)
        if (bound->kernel[at]) status = prepare_kernel(session, bound, at, err);
    return status;
}

int syi_bound_connect(struct syi_session *session, struct syi_bound *bound, struct sy_error *err)
{
    int status = SY_OK;
    for (size_t at = 0; at < bound->program->n_ops && !status; at++) {
        connect_fn connect = connect_of(&bound->program->op[at]);
        if (connect) status = connect(session, bound, at, err);
    }
    if (!status && session->device) status = syi_device_find_moves(bound, err);
    if (!status && session->device) status = syi_graph_spans(session, bound, err);
    return status;
}

void syi_bound_free(struct syi_session *session, struct syi_bound *bound)
{
    for (size_t at = 0; bound->call && bound->kernel && at < bound->program->n_ops; at++)
        if (bound->call[at].plan && bound->kernel[at]->release)
            bound->kernel[at]->release(session->options.backend->context, bound->call[at].plan);
    syi_graph_free(session, bound);
    syi_free(bound->input);
    syi_free(bound->output);
    syi_free(bound->found);
    syi_free(bound->operand);
    syi_free(bound->call);
    syi_free(bound->step);
    syi_free(bound->kernel);
    syi_free(bound->transfer);
    syi_free(bound->piece);
    syi_free(bound->workspace);
    syi_free(bound->workspace_at);
    syi_program_free(bound->program);
}
