/* SPDX-License-Identifier: Apache-2.0 */
/* Which tensors ZeRO splits, and over what. The layouts are declared only; the partition pass makes them
 * true, so a gradient is reduce-scattered, and parameters are gathered where they are written (stage 1) or
 * read (stage 3). */
#include "config.h"

#include <string.h>

#include "passes/passes.h"

struct marking {
    const struct syi_program *p;
    const struct syi_mesh *mesh;
    uint8_t (*spec)[SY_MAX_DIMS];
};

static int is_root(const struct marking *m, const struct syi_tensor *t)
{
    if (t->kind == SYI_PARAM) return m->mesh->zero == 3;
    return t->kind == SYI_STATE || t->role == SYI_ROLE_GRADIENT || t->role == SYI_ROLE_GRADIENT_BLOCKS;
}

/* Adds mesh axes to the first dim that is whole and has leaves enough: a leaf is never cut. */
static int add_axes(const struct marking *m, const struct syi_tensor *t, uint8_t spec[SY_MAX_DIMS], int axes)
{
    int ranks = syi_mesh_size(m->mesh, axes);
    for (int i = 0; i < t->rank && ranks > 1; i++)
        if (!spec[i] && m->p->leaf_count[t->axis[i]] % (unsigned)ranks == 0 && t->dim[i] % ranks == 0) {
            spec[i] = (uint8_t)axes;
            return 1;
        }
    return 0;
}

/* All axes that take rows and that the tensor does not use, or at least data. */
static void mark(const struct marking *m, size_t tensor)
{
    const struct syi_tensor *t = &m->p->tensor[tensor];
    int axes = m->mesh->rule[SYI_AXIS_BATCH], used = 0;
    for (int bit = SYI_MESH_DATA; bit <= SYI_MESH_MODEL; bit <<= 1)
        if (syi_mesh_size(m->mesh, bit) < 2) axes &= ~bit;
    for (int i = 0; i < t->rank; i++) used |= m->spec[tensor][i];
    axes &= ~used;
    if (!add_axes(m, t, m->spec[tensor], axes)) add_axes(m, t, m->spec[tensor], axes & SYI_MESH_DATA);
}

/* Whether it is split further than the rules alone say. */
static int is_sharded(const struct marking *m, int tensor)
{
    uint8_t plain[SY_MAX_DIMS];
    if (tensor < 0) return 0;
    syi_mesh_spec(m->mesh, &m->p->tensor[tensor], plain);
    return memcmp(plain, m->spec[tensor], sizeof plain) != 0;
}

static int same_shape(const struct syi_tensor *a, const struct syi_tensor *b)
{
    return a->rank == b->rank && !memcmp(a->dim, b->dim, sizeof a->dim) &&
           !memcmp(a->axis, b->axis, sizeof a->axis);
}

/* A temporary of the same shape gets the layout of sharded tensor `from`. */
static void follow(const struct marking *m, int tensor, int from)
{
    if (tensor < 0 || !is_sharded(m, from) || m->p->tensor[tensor].kind != SYI_TEMP) return;
    if (same_shape(&m->p->tensor[tensor], &m->p->tensor[from]))
        memcpy(m->spec[tensor], m->spec[from], sizeof m->spec[from]);
}

/* The whole of an unpacked gradient is split as its parts are, if that is not the dim where they are side by
 * side. */
static void follow_parts(const struct marking *m, const struct syi_op *op)
{
    const struct syi_tensor *whole = &m->p->tensor[op->in[0]];
    if (whole->kind != SYI_TEMP || !is_sharded(m, op->out[0])) return;
    for (int i = 1; i < op->n_out; i++)
        if (memcmp(m->spec[op->out[i]], m->spec[op->out[0]], SY_MAX_DIMS) != 0) return;
    if (m->spec[op->out[0]][whole->rank - 1] != m->spec[op->in[0]][whole->rank - 1]) return;
    memcpy(m->spec[op->in[0]], m->spec[op->out[0]], SY_MAX_DIMS);
}

void syi_zero_specs(const struct syi_program *program, const struct syi_mesh *mesh,
                    uint8_t (*spec)[SY_MAX_DIMS])
{
    struct marking m = {program, mesh, spec};
    for (size_t i = 0; i < program->n_tensors; i++) syi_mesh_spec(mesh, &program->tensor[i], spec[i]);
    if (!mesh->zero) return;
    for (size_t i = 0; i < program->n_tensors; i++)
        if (is_root(&m, &program->tensor[i])) mark(&m, i);
    for (size_t i = program->n_ops; i-- > 0;) { /* back to where a gradient is summed */
        const struct syi_op *op = &program->op[i];
        for (int j = 0; op->op == SY_OP_MAP && j < op->n_in; j++) follow(&m, op->in[j], op->out[0]);
        if (op->op == SY_OP_UNPACK) follow_parts(&m, op);
    }
    for (size_t i = 0; i < program->n_ops; i++) { /* on to what is written */
        const struct syi_op *op = &program->op[i];
        for (int j = 0; op->op == SY_OP_MAP && j < op->n_in; j++)
            for (int k = 0; k < op->n_out; k++) follow(&m, op->out[k], op->in[j]);
    }
}
