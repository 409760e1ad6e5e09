/* SPDX-License-Identifier: Apache-2.0 */
/* Which ops of two programs stand for each other. Movement between ranks is left out; so is, in programs that differ else, what
 * stands earlier where no rank has to be waited for (passes/hoist.c). Runs of elementwise ops may differ. Everything else must be
 * the same op on the same shapes, recorded by the same line; floating-point dtypes may differ. Looks at programs only, not
 * at numbers. */
#include "config.h"

#include <string.h>

#include "parallel/mesh.h"
#include "train/compare/lockstep.h"

void syi_global_dims(const struct syi_tensor *tensor, const struct syi_mesh *mesh, int64_t dim[SY_MAX_DIMS])
{
    for (int d = 0; d < SY_MAX_DIMS; d++)
        dim[d] = tensor->dim[d] * (tensor->split[d] ? syi_mesh_size(mesh, tensor->split[d]) : 1);
}

/* ---- one op ---- */

/* Two programs, and where each is looked at. */
struct pair {
    const struct syi_program *program[2];
    const struct syi_mesh *mesh[2];
    int without_hoisted; /* 1: what hoist moves is left out, since it stands elsewhere in the other */
};

static int same_text(const struct pair *p, uint32_t a, uint32_t b)
{
    return !strcmp(syi_program_name(p->program[0], a), syi_program_name(p->program[1], b));
}

static int same_operand(const struct pair *p, int a, int b)
{
    int64_t dim[2][SY_MAX_DIMS];
    if (a < 0 || b < 0) return a < 0 && b < 0;
    const struct syi_tensor *x = &p->program[0]->tensor[a], *y = &p->program[1]->tensor[b];
    syi_global_dims(x, p->mesh[0], dim[0]);
    syi_global_dims(y, p->mesh[1], dim[1]);
    int like = x->dtype == y->dtype || (syi_is_float(x->dtype) && syi_is_float(y->dtype));
    return like && x->rank == y->rank && !memcmp(dim[0], dim[1], sizeof dim[0]);
}

static int same_op(const struct pair *p, size_t a, size_t b)
{
    const struct syi_op *x = &p->program[0]->op[a], *y = &p->program[1]->op[b];
    if (x->op != y->op || x->n_in != y->n_in || x->n_out != y->n_out || x->line != y->line) return 0;
    if (!same_text(p, x->layer, y->layer) || !same_text(p, x->file, y->file)) return 0;
    for (int i = 0; i < x->n_in; i++)
        if (!same_operand(p, x->in[i], y->in[i])) return 0;
    for (int i = 0; i < x->n_out; i++)
        if (!same_operand(p, x->out[i], y->out[i])) return 0;
    return 1;
}

/* ---- the walk ---- */

/* What partition, join and lower insert between ops, and what hoist moves. */
static int is_left_out(const struct pair *p, int side, size_t at)
{
    const struct syi_program *program = p->program[side];
    const struct syi_op *op = &program->op[at];
    return syi_op_has_flag(op->op, 'M') || (p->without_hoisted && syi_op_ends_gradients(program, op));
}

/* The first op from `at` on that is not left out. */
static size_t skip_left_out(const struct pair *p, int side, size_t at)
{
    while (at < p->program[side]->n_ops && is_left_out(p, side, at)) at++;
    return at;
}

/* The first one that every program of the same model has, in the same order. */
static size_t next_anchor(const struct pair *p, int side, size_t at)
{
    const struct syi_program *program = p->program[side];
    while (at < program->n_ops && (program->op[at].op == SY_OP_MAP || is_left_out(p, side, at))) at++;
    return at;
}

/* Elementwise ops before the anchors at end[]: matched one by one if all of them are the same. */
static size_t match_maps(const struct pair *p, const size_t begin[2], const size_t end[2], uint8_t *meets[2])
{
    size_t n = 0;
    for (int mark = 0; mark < 2; mark++) {
        size_t a = skip_left_out(p, 0, begin[0]), b = skip_left_out(p, 1, begin[1]);
        for (; a < end[0] && b < end[1]; n += (size_t)mark) {
            if (!same_op(p, a, b)) return 0;
            if (mark) meets[0][a] = meets[1][b] = 1;
            a = skip_left_out(p, 0, a + 1);
            b = skip_left_out(p, 1, b + 1);
        }
        if (a < end[0] || b < end[1]) return 0;
    }
    return n;
}

static void match(const struct pair *p, struct syi_alignment *alignment, struct syi_divergence *divergence)
{
    size_t at[2] = {0, 0}, end[2];
    *divergence = (struct syi_divergence){0};
    alignment->n_meets = 0;
    for (int s = 0; s < 2; s++) memset(alignment->meets[s], 0, p->program[s]->n_ops);
    for (;;) {
        for (int s = 0; s < 2; s++) end[s] = next_anchor(p, s, at[s]);
        alignment->n_meets += match_maps(p, at, end, alignment->meets);
        int done = (end[0] == p->program[0]->n_ops) + (end[1] == p->program[1]->n_ops);
        if (done == 2) return;
        if (done || !same_op(p, end[0], end[1])) {
            *divergence = (struct syi_divergence){1, {end[0], end[1]}};
            return;
        }
        for (int s = 0; s < 2; s++) {
            alignment->meets[s][end[s]] = 1;
            at[s] = end[s] + 1;
        }
        alignment->n_meets++;
    }
}

int syi_align(const struct syi_program *const program[2], const struct syi_mesh *const mesh[2],
              struct syi_alignment *alignment, struct syi_divergence *divergence, struct sy_error *err)
{
    struct pair p = {{program[0], program[1]}, {mesh[0], mesh[1]}, 0};
    *alignment = (struct syi_alignment){0};
    for (int s = 0; s < 2; s++) {
        alignment->meets[s] = syi_alloc(program[s]->n_ops + 1, err);
        if (!alignment->meets[s]) {
            syi_alignment_free(alignment);
            return SY_ENOMEM;
        }
    }
    match(&p, alignment, divergence);
    p.without_hoisted = divergence->diverged;
    if (p.without_hoisted) match(&p, alignment, divergence);
    for (int s = 0; s < 2; s++) alignment->alone[s] = program[s]->n_ops - alignment->n_meets;
    return SY_OK;
}

void syi_alignment_free(struct syi_alignment *alignment)
{
    for (int s = 0; s < 2; s++) syi_free(alignment->meets[s]);
    *alignment = (struct syi_alignment){0};
}
