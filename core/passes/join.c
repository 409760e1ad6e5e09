/* SPDX-License-Identifier: Apache-2.0 */
/* Small collectives of one kind and group of ranks become one (bucketed collectives): `join` copies their
 * operands one after the other into one tensor, one collective works on it, `part` copies each result out
 * again. Sums are element by element, so bits stay as they are; what is joined depends on the program only,
 * which is the same on all ranks. Runs between partition and lower, and knows nothing of queues and waits.
 *
 * First each collective moves up to the op that makes its operand: those whose results are read one by one
 * would not meet otherwise. Then a walk over the ops keeps open buckets. A bucket is closed when it is full,
 * when no other collective of its kind comes soon, or when an op needs one of its results or overwrites an
 * operand. Other ops keep their order. */
#include "config.h"

#include <string.h>

#include "passes/passes.h"

enum {
    GROUPS = SYI_MESH_ALL + 1,
    SMALL = 32 * 1024,  /* elements of the larger operand: more is worth a collective of its own */
    FULL = 256 * 1024,  /* elements of a bucket */
    UP = 512,           /* ops that a collective moves up at most */
    FOLLOWS = 32,       /* ops within which the next collective must come for a bucket to stay open */
    BATCHES = SYI_LANES /* closed buckets of which not all results have been taken out */
};

enum kind { SUM, SCATTER, GATHER, KINDS };

struct bucket {
    int n;                     /* members, 0: not open */
    size_t member[SY_MAX_IN];  /* old ops */
    int64_t at[SY_MAX_IN + 1]; /* elements before each; of all */
};

/* A result that is still in a joined tensor. */
struct held {
    int from;      /* tensor [pieces, elements] */
    int64_t at;    /* elements before it */
    size_t member; /* old op whose output it is */
    uint64_t batch;
};

struct joining {
    struct syi_program *program; /* its ops are written anew */
    const struct syi_mesh *mesh;
    struct syi_op *old; /* [n_old] */
    size_t n_old;
    struct bucket open[GROUPS][KINDS];
    struct held *held; /* in the order of batches */
    size_t n_held, cap_held;
    uint64_t batches; /* buckets closed so far */
    struct sy_error *err;
};

/* ---- what ops do ---- */

/* Whether `op` must stay after `before`. */
static int depends(const struct syi_op *op, const struct syi_op *before)
{
    for (int i = 0; i < before->n_out; i++) {
        int tensor = before->out[i];
        if (tensor >= 0 && (syi_op_reads(op, tensor) || syi_op_writes(op, tensor))) return 1;
    }
    for (int i = 0; i < before->n_in; i++)
        if (before->in[i] >= 0 && syi_op_writes(op, before->in[i])) return 1;
    return 0;
}

static int64_t count_of(const struct joining *j, int tensor)
{
    return tensor < 0 ? 0 : syi_tensor_count(&j->program->tensor[tensor]);
}

/* -1: not a collective that is joined. */
static int kind_of(const struct joining *j, const struct syi_op *op)
{
    int kind = op->op == SY_OP_ALL_REDUCE       ? SUM
               : op->op == SY_OP_REDUCE_SCATTER ? SCATTER
               : op->op == SY_OP_ALL_GATHER     ? GATHER
                                                : -1;
    if (kind < 0 || j->program->tensor[op->in[0]].dtype != SY_F32) return -1;
    return count_of(j, op->in[0]) <= SMALL && count_of(j, op->out[0]) <= SMALL ? kind : -1;
}

static int group_of(const struct joining *j, const struct syi_op *op)
{
    return syi_collective_group(j->program, op, j->mesh);
}

/* ---- writing ops ---- */

static int append(struct joining *j, const struct syi_op *op)
{
    struct syi_program *p = j->program;
    int status = SYI_GROW(p->op, p->cap_ops, p->n_ops + 1, j->err);
    if (!status) p->op[p->n_ops++] = *op;
    return status;
}

static int append_new(struct joining *j, struct syi_op op, enum sy_op kind, const void *attr, size_t bytes)
{
    void *to;
    int status = syi_attr_new(j->program, &op, bytes, &to, j->err);
    if (status) return status;
    op.op = (uint16_t)kind;
    memcpy(to, attr, bytes);
    return append(j, &op);
}

static int64_t dim_of(const struct joining *j, const struct syi_op *op)
{
    return syi_op_field(j->program, op, "dim", 0);
}

static int take_out(struct joining *j, const struct held *held)
{
    const struct syi_op *member = &j->old[held->member];
    struct syi_op op = *member;
    struct sy_attr_part attr = {held->at, member->op == SY_OP_ALL_GATHER ? dim_of(j, member) : 0};
    op.in[0] = held->from;
    return append_new(j, op, SY_OP_PART, &attr, sizeof attr);
}

/* Takes out the results that `op` must find in their places (NULL: all), and those of old batches. */
static int take_out_for(struct joining *j, const struct syi_op *op)
{
    size_t kept = 0;
    int status = SY_OK;
    for (size_t i = 0; i < j->n_held; i++) {
        const struct held held = j->held[i];
        int out = j->old[held.member].out[0];
        int needed = !op || syi_op_reads(op, out) || syi_op_writes(op, out);
        if (needed || held.batch + BATCHES < j->batches) {
            if (!status) status = take_out(j, &held);
        } else {
            j->held[kept++] = held;
        }
    }
    j->n_held = kept;
    return status;
}

static int emit(struct joining *j, const struct syi_op *op)
{
    int status = j->n_held ? take_out_for(j, op) : SY_OK;
    return status ? status : append(j, op);
}

/* ---- buckets ---- */

static int joined_tensor(struct joining *j, int64_t pieces, int64_t elements, int partial)
{
    const int64_t dim[] = {pieces, elements};
    int tensor = syi_tensor_add(j->program, NULL, SYI_TEMP, SY_F32, 2, dim, NULL);
    if (tensor >= 0)
        j->program->tensor[tensor].partial = (uint8_t)partial;
    else if (!syi_program_status(j->program, j->err))
        syi_error(j->err, SY_EINTERNAL, "%s: joining made no tensor", j->program->title);
    return tensor;
}

/* join and the collective of a bucket: tensors from -> to. */
static int emit_joined(struct joining *j, const struct bucket *b, int from, int to)
{
    const struct syi_op *first = &j->old[b->member[0]];
    const struct sy_attr_collective old =
        *(const struct sy_attr_collective *)syi_program_attr(j->program, first);
    struct syi_op op = *first;
    struct sy_attr_join attr = {0};
    int status = SY_OK;
    op.n_in = (uint8_t)b->n;
    op.out[0] = from;
    for (int i = 0; i < b->n; i++) {
        const struct syi_op *member = &j->old[b->member[i]];
        op.in[i] = member->in[0];
        attr.dims |= (member->op == SY_OP_REDUCE_SCATTER ? dim_of(j, member) : 0) << 4 * i;
    }
    if (j->n_held) status = take_out_for(j, &op);
    if (!status) status = append_new(j, op, SY_OP_JOIN, &attr, sizeof attr);
    op.n_in = 1;
    op.in[0] = from;
    op.out[0] = to;
    struct sy_attr_collective new = {0, old.b, 0};
    if (first->op == SY_OP_ALL_REDUCE) new = old;
    return status ? status : append_new(j, op, first->op, &new, sizeof new);
}

static int close_bucket(struct joining *j, struct bucket *b)
{
    int n = b->n;
    if (n < 2) {
        b->n = 0;
        return n ? emit(j, &j->old[b->member[0]]) : SY_OK;
    }
    const struct syi_op *first = &j->old[b->member[0]];
    int64_t ranks = syi_mesh_size(j->mesh, group_of(j, first)), all = b->at[n];
    int scatter = first->op == SY_OP_REDUCE_SCATTER, gather = first->op == SY_OP_ALL_GATHER;
    int from = joined_tensor(j, scatter ? ranks : 1, all, j->program->tensor[first->in[0]].partial);
    int to = from < 0 ? -1 : joined_tensor(j, gather ? ranks : 1, all, 0);
    int status = to < 0 ? j->err->code : emit_joined(j, b, from, to);
    if (!status) status = SYI_GROW(j->held, j->cap_held, j->n_held + (size_t)n, j->err);
    for (int i = 0; !status && i < n; i++)
        j->held[j->n_held++] = (struct held){to, b->at[i], b->member[i], j->batches};
    j->batches++;
    b->n = 0;
    return status;
}

/* Whether a collective of that kind and group comes within the next ops. */
static int is_followed(const struct joining *j, size_t at, int kind, int group)
{
    for (size_t i = at + 1; i < j->n_old && i <= at + FOLLOWS; i++)
        if (kind_of(j, &j->old[i]) == kind && group_of(j, &j->old[i]) == group) return 1;
    return 0;
}

static int add_member(struct joining *j, size_t at, int kind)
{
    const struct syi_op *op = &j->old[at];
    int group = group_of(j, op), status = SY_OK;
    int64_t n = count_of(j, kind == SCATTER ? op->out[0] : op->in[0]);
    struct bucket *b = &j->open[group][kind];
    n = (int64_t)syi_whole_lines((uint64_t)n * sizeof(float)) /
        (int64_t)sizeof(float); /* see syi_exec_join */
    if (b->n == SY_MAX_IN || (b->n && b->at[b->n] + n > FULL)) status = close_bucket(j, b);
    if (!status && j->n_held) status = take_out_for(j, op);
    if (status) return status;
    if (b->n == 0) b->at[0] = 0;
    b->member[b->n++] = at;
    b->at[b->n] = b->at[b->n - 1] + n;
    return is_followed(j, at, kind, group) ? SY_OK : close_bucket(j, b);
}

/* ---- the walk ---- */

static int must_follow(const struct joining *j, const struct syi_op *op, const struct bucket *b)
{
    for (int i = 0; i < b->n; i++)
        if (depends(op, &j->old[b->member[i]])) return 1;
    return 0;
}

/* Closes the buckets that must come before `op` (NULL: all). */
static int close_before(struct joining *j, const struct syi_op *op)
{
    int status = SY_OK;
    for (int g = 0; g < GROUPS; g++)
        for (int k = 0; k < KINDS && !status; k++)
            if (!op || must_follow(j, op, &j->open[g][k])) status = close_bucket(j, &j->open[g][k]);
    return status;
}

static void move_up(struct joining *j)
{
    for (size_t at = 0; at < j->n_old; at++) {
        const struct syi_op op = j->old[at];
        size_t to = at;
        if (kind_of(j, &op) < 0 || j->program->tensor[op.in[0]].kind != SYI_TEMP) continue;
        while (to > 0 && at - to < UP && !depends(&op, &j->old[to - 1])) to--;
        memmove(j->old + to + 1, j->old + to, (at - to) * sizeof op);
        j->old[to] = op;
    }
}

static int join_op(struct joining *j, size_t at)
{
    const struct syi_op *op = &j->old[at];
    int kind = kind_of(j, op), status = close_before(j, op);
    if (status) return status;
    return kind < 0 ? emit(j, op) : add_member(j, at, kind);
}

int syi_join(struct syi_program *program, const struct syi_mesh *mesh, struct sy_error *err)
{
    struct sy_error own = {0};
    struct syi_op *old = program->op;
    if (syi_mesh_ranks(mesh) == 1) return SY_OK;
    struct joining *j = syi_alloc(sizeof *j, err);
    if (!j) return SY_ENOMEM;
    *j = (struct joining){.program = program, .mesh = mesh, .old = old, .n_old = program->n_ops, .err = &own};
    program->op = NULL;
    program->n_ops = program->cap_ops = 0;
    int status = SY_OK;
    move_up(j);
    for (size_t at = 0; at < j->n_old && !status; at++) status = join_op(j, at);
    if (!status) status = close_before(j, NULL);
    if (!status) status = take_out_for(j, NULL);
    if (status) syi_error(err, status, "%s", own.text);
    syi_free(j->held);
    syi_free(old);
    syi_free(j);
    return status ? status : syi_program_check(program, "join", err);
}
