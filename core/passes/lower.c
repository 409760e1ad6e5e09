/* SPDX-License-Identifier: Apache-2.0 */
/* Lowering: collectives as the partition pass wrote them -> what is executed. A reproducible all-reduce
 * becomes a reduce-scatter (pieces sent to their owners and added there by a tree) and an all-gather; every
 * collective is non-blocking: it gets a queue, and a `wait` as late as the program allows. Works on a rank's
 * local program, equal on all ranks, so the order of collectives is equal too. Knows nothing of memory or
 * kernels.
 *
 * A group of ranks has SYI_LANES queues, with one collective under way in each; two masks of mesh axes that
 * differ in axes of one rank only are the same group. A collective takes a free queue of its group, else that
 * of the oldest, after a wait. The second half of a reduction stands half-way to the op that needs the sum or
 * to the SYI_LANES-th next collective of the group: sending as well as gathering overlap with compute and
 * with the reductions around, and no more halves than queues are open. */
#include "config.h"

#include <string.h>

#include "passes/passes.h"

enum {
    GROUPS = SYI_MESH_ALL + 1,
    LANES = SYI_LANES,
    ONE_TRIP = 16 * 1024 /* elements received by one rank up to which one collective beats two */
};

/* A collective in flight: its wait is not written yet. */
struct flight {
    struct syi_op op;  /* n_out 0: none */
    uint64_t position; /* in the order of starts */
};

/* The rest of a reduction whose pieces are being sent. */
struct tail {
    int active;
    size_t before; /* position of the old op that it stands before */
    int pieces;    /* tensor [ranks, piece] */
    int sum;       /* tensor of this rank's piece; equals out where nothing has to be gathered */
    int out;
    const struct syi_op *origin;
};

struct lowering {
    struct syi_program *program; /* its ops are written anew */
    const struct syi_mesh *mesh;
    const struct syi_op *old; /* [n_old] the ops before lowering */
    size_t n_old;
    struct flight flight[GROUPS][LANES];
    struct tail tail[GROUPS][LANES];
    uint64_t n_starts;
    int reproducible;
    struct sy_error *err;
};

/* ---- what ops do ---- */

int syi_collective_group(const struct syi_program *program, const struct syi_op *op,
                         const struct syi_mesh *mesh)
{
    int64_t axes = syi_op_field(program, op, "mesh", 0);
    int group = 0;
    for (int bit = SYI_MESH_DATA; bit <= SYI_MESH_MODEL; bit <<= 1)
        if ((axes & bit) && syi_mesh_size(mesh, bit) > 1) group |= bit;
    return group;
}

static int group_of(const struct lowering *l, const struct syi_op *op)
{
    return syi_collective_group(l->program, op, l->mesh);
}

/* Whether `op` cannot run while `collective` is under way. */
static int must_wait(const struct syi_op *op, const struct syi_op *collective)
{
    int out = collective->out[0];
    return syi_op_reads(op, out) || syi_op_writes(op, out) || syi_op_writes(op, collective->in[0]);
}

/* ---- writing ops ---- */

static int append(struct lowering *l, const struct syi_op *op)
{
    struct syi_program *p = l->program;
    int status = SYI_GROW(p->op, p->cap_ops, p->n_ops + 1, l->err);
    if (!status) p->op[p->n_ops++] = *op;
    return status;
}

static int append_wait(struct lowering *l, struct flight *flight)
{
    struct syi_op wait = flight->op;
    flight->op.n_out = 0;
    wait.op = SY_OP_WAIT;
    wait.queue = 0;
    wait.in[0] = wait.out[0];
    wait.out[0] = -1;
    wait.n_out = 0;
    wait.attr_bytes = 0;
    return append(l, &wait);
}

/* The free lane of a group, else the one that has been under way for the longest. */
static int choose_lane(const struct lowering *l, int group)
{
    const struct flight *flight = l->flight[group];
    int oldest = 0;
    for (int i = 0; i < LANES; i++) {
        if (!flight[i].op.n_out) return i;
        if (flight[i].position < flight[oldest].position) oldest = i;
    }
    return oldest;
}

/* Appends an op after the waits that it needs. */
static int emit(struct lowering *l, const struct syi_op *op)
{
    int status = SY_OK;
    for (int g = 0; g < GROUPS; g++)
        for (int i = 0; i < LANES && !status; i++)
            if (l->flight[g][i].op.n_out && must_wait(op, &l->flight[g][i].op))
                status = append_wait(l, &l->flight[g][i]);
    if (status || !syi_op_is_collective(op->op)) return status ? status : append(l, op);
    int group = group_of(l, op), lane = choose_lane(l, group);
    struct flight *flight = &l->flight[group][lane];
    if (flight->op.n_out) status = append_wait(l, flight);
    flight->op = *op;
    flight->op.queue = (uint8_t)(1 + lane);
    flight->position = l->n_starts++;
    return status ? status : append(l, &flight->op);
}

/* Emits `kind` from in to out at the place of `origin`. */
static int emit_new(struct lowering *l, const struct syi_op *origin, enum sy_op kind, int in, int out,
                    const struct sy_attr_collective *attr)
{
    struct syi_op op = *origin;
    const size_t bytes = attr ? sizeof *attr : 0;
    void *to;
    int status = syi_attr_new(l->program, &op, bytes, &to, l->err);
    if (status) return status;
    if (attr) memcpy(to, attr, bytes);
    op.op = (uint16_t)kind;
    op.in[0] = in;
    op.out[0] = out;
    return emit(l, &op);
}

/* ---- reductions ---- */

/* The op by which the rest of reduction old[at] must stand: the first one after `at` that needs its result
 * or changes its operand, or the LANES-th of the same group. */
static size_t forced_at(const struct lowering *l, size_t at)
{
    size_t next = at + 1;
    int group = group_of(l, &l->old[at]), followers = 0;
    for (; next < l->n_old && !must_wait(&l->old[next], &l->old[at]); next++)
        if (syi_op_is_collective(l->old[next].op) && group_of(l, &l->old[next]) == group &&
            ++followers == LANES)
            break;
    return next;
}

/* Notes the rest of the reduction at `at`; one of the group's places is free, see forced_at. */
static void add_tail(struct lowering *l, struct tail tail)
{
    struct tail *place = l->tail[group_of(l, tail.origin)];
    while (place->active) place++;
    *place = tail;
}

static int temporary(struct lowering *l, int dtype, int rank, const int64_t *dim)
{
    int tensor = syi_tensor_add(l->program, NULL, SYI_TEMP, (enum sy_dtype)dtype, rank, dim, NULL);
    if (tensor < 0 && !syi_program_status(l->program, l->err))
        syi_error(l->err, SY_EINTERNAL, "%s: lowering made no tensor", l->program->title);
    return tensor;
}

/* The collective works on whole pieces: memory after the elements of `tensor` so that `elements` can be
 * touched. */
static void pad(struct lowering *l, int tensor, int64_t elements)
{
    struct syi_tensor *t = &l->program->tensor[tensor];
    uint64_t bytes = (uint64_t)elements * syi_dtype_bytes(t->dtype);
    if (t->bytes < bytes) t->bytes = bytes;
}

/* A small sum: everybody gets all terms and adds them, one collective in place of two and the same bits. */
static int reduce_small(struct lowering *l, size_t at, int ranks)
{
    const struct syi_op *op = &l->old[at];
    struct syi_tensor term = l->program->tensor[op->in[0]];
    int64_t mesh_axes = ((const struct sy_attr_collective *)syi_program_attr(l->program, op))->a;
    int terms = temporary(l, term.dtype, 2, (int64_t[]){ranks, syi_tensor_count(&term)});
    if (terms < 0) return l->err->code;
    add_tail(l, (struct tail){1, forced_at(l, at), terms, op->out[0], op->out[0], op});
    return emit_new(l, op, SY_OP_GATHER_PIECES, op->in[0], terms,
                    &(struct sy_attr_collective){mesh_axes, 0, 0});
}

/* all_reduce: flat pieces of whole cache lines, the last ones short or empty, the operands padded to whole
 * pieces. */
static int reduce_all(struct lowering *l, size_t at)
{
    const struct syi_op *op = &l->old[at];
    int64_t mesh_axes = ((const struct sy_attr_collective *)syi_program_attr(l->program, op))->a;
    struct syi_tensor term = l->program->tensor[op->in[0]];
    int64_t n = syi_tensor_count(&term), ranks = syi_mesh_size(l->mesh, (int)mesh_axes);
    if (n <= ONE_TRIP / ranks) return reduce_small(l, at, (int)ranks);
    int64_t piece = ((n + ranks - 1) / ranks + SYI_LINE_FLOATS - 1) / SYI_LINE_FLOATS * SYI_LINE_FLOATS;
    int pieces = temporary(l, term.dtype, 2, (int64_t[]){ranks, piece});
    int sum = pieces < 0 ? -1 : temporary(l, term.dtype, 1, &piece);
    if (sum < 0) return l->err->code;
    pad(l, op->in[0], ranks * piece);
    pad(l, op->out[0], ranks * piece);
    size_t half_way = at + 1 + (forced_at(l, at) - at - 1) / 2;
    add_tail(l, (struct tail){1, half_way, pieces, sum, op->out[0], op});
    return emit_new(l, op, SY_OP_SEND_PIECES, op->in[0], pieces,
                    &(struct sy_attr_collective){mesh_axes, -1, 0});
}

/* reduce_scatter: pieces along a dim, whose sum is the result. */
static int reduce_scatter(struct lowering *l, size_t at)
{
    const struct syi_op *op = &l->old[at];
    struct sy_attr_collective attr = *(const struct sy_attr_collective *)syi_program_attr(l->program, op);
    struct syi_tensor piece = l->program->tensor[op->out[0]];
    int64_t dim[SY_MAX_DIMS] = {syi_mesh_size(l->mesh, (int)attr.b)};
    if (piece.rank == SY_MAX_DIMS)
        return syi_error(l->err, SY_EUNSUPPORTED, "%s: reduce_scatter of a tensor of %d dims (%s:%u)",
                         l->program->title, SY_MAX_DIMS, syi_program_name(l->program, op->file), op->line);
    memcpy(dim + 1, piece.dim, piece.rank * sizeof *dim);
    int pieces = temporary(l, piece.dtype, piece.rank + 1, dim);
    if (pieces < 0) return l->err->code;
    add_tail(l, (struct tail){1, forced_at(l, at), pieces, op->out[0], op->out[0], op});
    return emit_new(l, op, SY_OP_SEND_PIECES, op->in[0], pieces,
                    &(struct sy_attr_collective){attr.b, attr.a, 0});
}

/* Integers: the order does not matter, so the library's sum and this rank's piece of it. */
static int reduce_scatter_integers(struct lowering *l, size_t at)
{
    const struct syi_op *op = &l->old[at];
    struct sy_attr_collective attr = *(const struct sy_attr_collective *)syi_program_attr(l->program, op);
    struct syi_tensor term = l->program->tensor[op->in[0]];
    int sum = temporary(l, term.dtype, term.rank, term.dim);
    if (sum < 0) return l->err->code;
    int status =
        emit_new(l, op, SY_OP_ALL_REDUCE, op->in[0], sum, &(struct sy_attr_collective){attr.b, 0, 0});
    return status ? status : emit_new(l, op, SY_OP_SLICE, sum, op->out[0], &attr);
}

static int emit_tail(struct lowering *l, const struct tail *tail)
{
    int status = emit_new(l, tail->origin, SY_OP_TREE_ADD, tail->pieces, tail->sum, NULL);
    if (status || tail->sum == tail->out) return status;
    int64_t mesh_axes = ((const struct sy_attr_collective *)syi_program_attr(l->program, tail->origin))->a;
    return emit_new(l, tail->origin, SY_OP_GATHER_PIECES, tail->sum, tail->out,
                    &(struct sy_attr_collective){mesh_axes, 0, 0});
}

/* Writes the second halves of reductions that stand before old op `at`. */
static int emit_tails(struct lowering *l, size_t at)
{
    int status = SY_OK;
    for (int g = 0; g < GROUPS; g++)
        for (int i = 0; i < LANES && !status; i++) {
            struct tail tail = l->tail[g][i];
            if (!tail.active || tail.before != at) continue;
            l->tail[g][i].active = 0;
            status = emit_tail(l, &tail);
        }
    return status;
}

static int lower_op(struct lowering *l, size_t at)
{
    const struct syi_op *op = &l->old[at];
    int dtype = op->n_in && op->in[0] >= 0 ? l->program->tensor[op->in[0]].dtype : SY_F32;
    int integer = dtype == SY_I32 || dtype == SY_I64;
    if (op->op == SY_OP_ALL_REDUCE && !integer && l->reproducible) return reduce_all(l, at);
    if (op->op == SY_OP_REDUCE_SCATTER)
        return integer ? reduce_scatter_integers(l, at) : reduce_scatter(l, at);
    return emit(l, op);
}

static int lower_ops(struct lowering *l)
{
    int status = SY_OK;
    for (size_t at = 0; at < l->n_old && !status; at++) {
        status = emit_tails(l, at);
        if (!status) status = lower_op(l, at);
    }
    if (!status) status = emit_tails(l, l->n_old);
    for (int g = 0; g < GROUPS; g++)
        for (int i = 0; i < LANES && !status; i++)
            if (l->flight[g][i].op.n_out) status = append_wait(l, &l->flight[g][i]);
    return status;
}

int syi_lower(struct syi_program *program, const struct syi_mesh *mesh, int reproducible,
              struct sy_error *err)
{
    struct sy_error own = {0};
    struct syi_op *old = program->op;
    struct lowering *l = syi_alloc(sizeof *l, err);
    if (!l) return SY_ENOMEM;
    l->program = program;
    l->mesh = mesh;
    l->old = old;
    l->n_old = program->n_ops;
    l->reproducible = reproducible;
    l->err = &own;
    program->op = NULL;
    program->n_ops = program->cap_ops = 0;
    int status = lower_ops(l);
    if (status) syi_error(err, status, "%s", own.text);
    syi_free(old);
    syi_free(l);
    return status ? status : syi_program_check(program, "lower", err);
}
