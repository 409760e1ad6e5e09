/* SPDX-License-Identifier: Apache-2.0 */
/* The recompute pass: values that wait for the backward pass are dropped and computed again where they are
 * read next, until the temporaries alive at the fullest op take no more than was asked for. Of what is alive
 * there and idle, the one that frees the most bytes for the least work goes first. An op that is computed
 * again is a copy of its row, random numbers go by address: bits do not change. Nothing that moves between
 * ranks is repeated. */
#include "config.h"

#include <string.h>

#include "passes/passes.h"
#include "program/cost.h"

enum { MAX_CHAIN = 8 };

/* Ops that name a temporary; first is the one that writes it. */
struct span {
    size_t first, last;
    size_t next; /* the first from the fullest op on that reads it; 0: none */
    int writers;
};

struct pass {
    struct syi_program *program;
    struct span *span; /* [n_tensors] */
    uint64_t *alive;   /* [n_ops] bytes of temporaries */
    size_t cap_spans, cap_alive;
    size_t fullest; /* op */
};

/* A temporary to drop: idle between two ops, computed again before the second. */
struct candidate {
    int tensor;
    size_t next;             /* op that reads it next */
    size_t chain[MAX_CHAIN]; /* ops to repeat, in their order */
    int n_chain;
    double saved, seconds; /* bytes; of the repeated ops, roughly */
    double flops;
};

static uint64_t bytes_of(const struct syi_tensor *t)
{
    return syi_whole_lines((uint64_t)syi_tensor_count(t) * syi_dtype_bytes(t->dtype));
}

static void name_op(struct span *span, int tensor, size_t op, int writes)
{
    if (tensor < 0) return;
    struct span *s = &span[tensor];
    if (s->first == SIZE_MAX) s->first = op;
    s->last = op;
    s->writers += writes;
}

/* Spans, bytes alive at every op, and the fullest one. */
static int measure(struct pass *pass, struct sy_error *err)
{
    const struct syi_program *p = pass->program;
    int status = SYI_GROW(pass->span, pass->cap_spans, p->n_tensors, err);
    if (!status) status = SYI_GROW(pass->alive, pass->cap_alive, p->n_ops + 1, err);
    if (status) return status;
    for (size_t i = 0; i < p->n_tensors; i++) pass->span[i] = (struct span){SIZE_MAX, 0, 0, 0};
    for (size_t i = 0; i < p->n_ops; i++) {
        for (int j = 0; j < p->op[i].n_in; j++) name_op(pass->span, p->op[i].in[j], i, 0);
        for (int j = 0; j < p->op[i].n_out; j++) name_op(pass->span, p->op[i].out[j], i, 1);
    }
    memset(pass->alive, 0, (p->n_ops + 1) * sizeof *pass->alive);
    for (size_t i = 0; i < p->n_tensors; i++) {
        if (p->tensor[i].kind != SYI_TEMP || pass->span[i].first == SIZE_MAX) continue;
        pass->alive[pass->span[i].first] += bytes_of(&p->tensor[i]);
        pass->alive[pass->span[i].last + 1] -= bytes_of(&p->tensor[i]); /* wraps: the sums below do not */
    }
    pass->fullest = 0;
    for (size_t i = 1; i < p->n_ops; i++) {
        pass->alive[i] += pass->alive[i - 1];
        if (pass->alive[i] > pass->alive[pass->fullest]) pass->fullest = i;
    }
    for (size_t i = p->n_ops; i-- > pass->fullest;)
        for (int j = 0; j < p->op[i].n_in; j++)
            if (p->op[i].in[j] >= 0) pass->span[p->op[i].in[j]].next = i;
    return SY_OK;
}

/* ---- what can be computed again ---- */

static int is_repeatable(const struct syi_program *p, const struct syi_op *op)
{
    if (syi_op_is_collective(op->op)) return 0;
    for (int i = 0; i < op->n_out; i++)
        if (op->out[i] >= 0 && (p->tensor[op->out[i]].kind != SYI_TEMP || p->tensor[op->out[i]].partial))
            return 0;
    return 1;
}

/* Whether the op at c->next can read the tensor as things are. */
static int is_there(const struct pass *pass, const struct candidate *c, int tensor)
{
    int kind = pass->program->tensor[tensor].kind;
    if (kind == SYI_PARAM || kind == SYI_INPUT) return pass->span[tensor].writers == 0;
    return kind == SYI_TEMP && tensor != c->tensor && pass->span[tensor].first < c->next &&
           pass->span[tensor].last >= c->next;
}

/* Adds the op that writes the tensor, after those that write its inputs. 0: it cannot be computed again. */
static int add_to_chain(const struct pass *pass, struct candidate *c, int tensor)
{
    const struct syi_program *p = pass->program;
    size_t at = pass->span[tensor].first;
    if (p->tensor[tensor].kind != SYI_TEMP || pass->span[tensor].writers != 1) return 0;
    for (int i = 0; i < c->n_chain; i++)
        if (c->chain[i] == at) return 1;
    if (!is_repeatable(p, &p->op[at])) return 0;
    for (int i = 0; i < p->op[at].n_in; i++) {
        int in = p->op[at].in[i];
        if (in >= 0 && !is_there(pass, c, in) && !add_to_chain(pass, c, in)) return 0;
    }
    if (c->n_chain == MAX_CHAIN) return 0;
    c->chain[c->n_chain++] = at;
    return 1;
}

/* The machine that this is weighed for: any whose arithmetic is ten times faster than its memory. */
static double seconds_of(struct syi_cost cost)
{
    return cost.flops * 1e-11 + cost.bytes * 1e-10;
}

/* Whether the tensor may be dropped, and at what price. What is repeated must itself find room. */
static int consider(const struct pass *pass, int tensor, struct candidate *c)
{
    const struct syi_program *p = pass->program;
    const struct span *span = &pass->span[tensor];
    uint64_t room = 0;
    *c = (struct candidate){.tensor = tensor};
    if (p->tensor[tensor].kind != SYI_TEMP || span->first == SIZE_MAX || span->first >= pass->fullest ||
        span->last <= pass->fullest)
        return 0;
    c->next = span->next; /* what the fullest op reads itself cannot go */
    if (c->next <= pass->fullest || !add_to_chain(pass, c, tensor)) return 0;
    for (int i = 0; i < c->n_chain; i++) {
        const struct syi_op *op = &p->op[c->chain[i]];
        struct syi_cost cost = syi_op_cost(p, op);
        c->seconds += seconds_of(cost);
        c->flops += cost.flops;
        for (int j = 0; j < op->n_out; j++)
            if (op->out[j] >= 0 && op->out[j] != tensor) room += bytes_of(&p->tensor[op->out[j]]);
    }
    c->saved = (double)bytes_of(&p->tensor[tensor]);
    return pass->alive[c->next] + room < pass->alive[pass->fullest];
}

static int choose(const struct pass *pass, struct candidate *best)
{
    int found = 0;
    for (size_t i = 0; i < pass->program->n_tensors; i++) {
        struct candidate c;
        if (!consider(pass, (int)i, &c)) continue;
        if (found && c.saved * best->seconds <= best->saved * c.seconds) continue;
        *best = c;
        found = 1;
    }
    return found;
}

/* ---- computing again ---- */

/* A copy of a tensor for an op that is repeated; -1: out of memory. */
static int copy_tensor(struct syi_program *p, int tensor)
{
    struct syi_tensor t = p->tensor[tensor];
    int copy = syi_tensor_add(p, NULL, SYI_TEMP, t.dtype, t.rank, t.dim, t.axis);
    if (copy >= 0) memcpy(p->tensor[copy].split, t.split, sizeof t.split);
    return copy;
}

static void rename_inputs(struct syi_op *op, int from, int to)
{
    for (int i = 0; i < op->n_in; i++)
        if (op->in[i] == from) op->in[i] = to;
}

/* Inserts the chain before c->next; ops from there on read its results. */
static int repeat(struct pass *pass, const struct candidate *c, struct sy_error *err)
{
    struct syi_program *p = pass->program;
    size_t n = (size_t)c->n_chain, end = p->n_ops + n;
    int status = SYI_GROW(p->op, p->cap_ops, end, err);
    if (status) return status;
    memmove(p->op + c->next + n, p->op + c->next, (p->n_ops - c->next) * sizeof *p->op);
    for (size_t i = 0; i < n; i++) p->op[c->next + i] = p->op[c->chain[i]];
    p->n_ops = end;
    for (size_t i = 0; i < n; i++) {
        struct syi_op *op = &p->op[c->next + i];
        for (int j = 0; j < op->n_out; j++) {
            int from = op->out[j], to = from < 0 ? -1 : copy_tensor(p, from);
            if (from < 0) continue;
            if (to < 0) return syi_program_status(p, err);
            op->out[j] = to;
            size_t last = from == c->tensor ? end : c->next + n;
            for (size_t k = c->next + i + 1; k < last; k++) rename_inputs(&p->op[k], from, to);
        }
    }
    return SY_OK;
}

int syi_program_recompute(struct syi_program *program, uint64_t target, struct syi_recomputed *done,
                          struct sy_error *err)
{
    struct pass pass = {.program = program};
    struct candidate c = {0};
    size_t most = 4 * program->n_ops;
    *done = (struct syi_recomputed){0};
    int status = syi_program_status(program, err);
    if (!status) status = measure(&pass, err);
    while (!status && pass.alive[pass.fullest] > target && done->ops < most && choose(&pass, &c)) {
        status = repeat(&pass, &c, err);
        done->ops += (size_t)c.n_chain;
        done->flops += c.flops;
        if (!status) status = measure(&pass, err);
    }
    if (!status && program->n_ops) done->peak = pass.alive[pass.fullest];
    syi_free(pass.span);
    syi_free(pass.alive);
    return status ? status : syi_program_check(program, "recompute", err);
}
