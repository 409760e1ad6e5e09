/* SPDX-License-Identifier: Apache-2.0 */
/* The hoist pass: code motion. Recording ends with what becomes of the gradients: the sum over microbatches, the blocks of their
 * norm. Each such op moves up to where its operands have just been written: there they are in the cache still, and a
 * gradient that was added to its sum is gone before others are made. What reads the result of a collective stays where it is,
 * or all would wait for it earlier. The order of ops changes, no value. Runs after fold. */
#include "config.h"

#include <string.h>

#include "passes/passes.h"

/* Places are numbers: op i of the old order has number i + 1; 0 is the begin. An op that moves has the number of the one
 * that it comes after. */
struct pass {
    struct syi_program *program;
    size_t *place;    /* [n_ops] */
    size_t *begin;    /* [n_ops + 2] then the new position of the first op of each place */
    size_t *written;  /* [n_tensors] the last place so far where it is written */
    size_t *named;    /* [n_tensors] written or read */
    uint8_t *arrives; /* [n_tensors] a collective wrote it */
};

static int may_move(const struct pass *pass, const struct syi_op *op)
{
    if (!syi_op_ends_gradients(pass->program, op)) return 0;
    for (int i = 0; i < op->n_in; i++)
        if (pass->arrives[op->in[i]]) return 0;
    return 1;
}

static size_t later(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* Where op `at` belongs that may move. */
static size_t place_of(const struct pass *pass, size_t at)
{
    const struct syi_program *p = pass->program;
    const struct syi_op *op = &p->op[at];
    size_t place = 0;
    for (int i = 0; i < op->n_in; i++) place = later(place, pass->written[op->in[i]]);
    for (int i = 0; i < op->n_out; i++) place = later(place, pass->named[op->out[i]]);
    return place;
}

static void note(struct pass *pass, const struct syi_op *op, size_t place)
{
    for (int i = 0; i < op->n_in; i++)
        if (op->in[i] >= 0) pass->named[op->in[i]] = later(pass->named[op->in[i]], place);
    for (int i = 0; i < op->n_out; i++) {
        int out = op->out[i];
        if (out < 0) continue;
        pass->written[out] = pass->named[out] = later(pass->named[out], place);
        pass->arrives[out] = syi_op_is_collective(op->op) != 0;
    }
}

static void choose_places(struct pass *pass)
{
    for (size_t at = 0; at < pass->program->n_ops; at++) {
        const struct syi_op *op = &pass->program->op[at];
        pass->place[at] = may_move(pass, op) ? place_of(pass, at) : at + 1;
        note(pass, op, pass->place[at]);
    }
}

/* Ops of one place keep their order. */
static void reorder(struct pass *pass, struct syi_op *ordered)
{
    struct syi_program *p = pass->program;
    for (size_t at = 0; at < p->n_ops; at++) pass->begin[pass->place[at] + 1]++;
    for (size_t place = 1; place <= p->n_ops; place++) pass->begin[place] += pass->begin[place - 1];
    for (size_t at = 0; at < p->n_ops; at++) ordered[pass->begin[pass->place[at]]++] = p->op[at];
    memcpy(p->op, ordered, p->n_ops * sizeof *ordered);
}

int syi_hoist(struct syi_program *program, struct sy_error *err)
{
    size_t n = program->n_ops, tensors = program->n_tensors;
    if (!n) return SY_OK;
    struct pass pass = {.program = program,
                        .place = syi_alloc(n * sizeof *pass.place, err),
                        .begin = syi_alloc((n + 2) * sizeof *pass.begin, err),
                        .written = syi_alloc(tensors * sizeof *pass.written, err),
                        .named = syi_alloc(tensors * sizeof *pass.named, err),
                        .arrives = syi_alloc(tensors * sizeof *pass.arrives, err)};
    struct syi_op *ordered = syi_alloc(n * sizeof *ordered, err);
    int room = pass.place && pass.begin && pass.written && pass.named && pass.arrives && ordered;
    if (room) choose_places(&pass);
    if (room) reorder(&pass, ordered);
    syi_free(pass.place);
    syi_free(pass.begin);
    syi_free(pass.written);
    syi_free(pass.named);
    syi_free(pass.arrives);
    syi_free(ordered);
    return room ? syi_program_check(program, "hoist", err) : SY_ENOMEM;
}
