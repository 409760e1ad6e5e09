/* SPDX-License-Identifier: Apache-2.0 */
/* The rules of an op: what the check, differentiation, the cost and the runtime know of it beyond its row in
 * ops.def. A family of ops (core/program/ops/) defines one `struct syi_op_rules` for each of its ops, under
 * the op's name; a row of ops.def without one does not link.
 *
 * grouped_matmul as an example, all of it in ops/products.c: syi_grouped_matmul records it with the leaf of
 * its contraction; letters and types of its row say which operands fit, and leaf_dim which dimension the leaf
 * divides, so it has no check of its own; grad_grouped_matmul records the two products of its gradient;
 * cost_grouped counts what is filled. */
#ifndef SYI_OP_RULES_H
#define SYI_OP_RULES_H

#include "base/text.h"
#include "program/cost.h"
#include "program/program.h"

/* ---- check ---- */

/* Extents by letter; `b` by its logical axis, too, since it stands for rows and for groups of rows. */
enum { SYI_EXTENT_OF_AXIS = 26, SYI_EXTENTS = SYI_EXTENT_OF_AXIS + SYI_AXIS_COUNT };

/* The check of a program, at one op. */
struct syi_check {
    const struct syi_program *program;
    const struct syi_op *op;     /* looked at now; NULL: the tensors */
    uint8_t *written;            /* [n_tensors] 1: an op before this one wrote it */
    int64_t extent[SYI_EXTENTS]; /* of this op's operands, where its row has letters that tie them; 0: none */
    char what[200];              /* the mistake */
};
/* Notes the mistake and returns SY_EINTERNAL. */
int syi_check_bad(struct syi_check *check, const char *format, ...) SYI_PRINTF(2, 3);
/* Operand i of the op, NULL where it is absent. */
const struct syi_tensor *syi_check_in(const struct syi_check *check, int i);
const struct syi_tensor *syi_check_out(const struct syi_check *check, int i);

/* ---- gradients ---- */

/* Given the gradients of the outputs of `op` (-1: none flows), records ops and sets din[i] for inputs that
 * want one (wants[i]); din[i] stays -1 where nothing flows. op is a copy. Runs before the fuse pass, so a map
 * has one instruction. */
typedef void (*syi_grad_fn)(struct syi_program *p, const struct syi_op *op, const int *dout,
                            const uint8_t *wants, int *din);

/* ---- cost ---- */

static inline int syi_operand_present(const struct sy_tensor *operand)
{
    return operand->rank > 0;
}
double syi_operand_elements(const struct sy_tensor *operand); /* 0 where it is absent */
double syi_operand_bytes(const struct sy_tensor *operand);
/* Makes a cost that counts the whole expert buffer call->in[0] that of its filled slots. Buffers are read and
 * written where they are filled, weights of experts without tokens not at all; their gradients are written
 * whole. counts: int32 [experts, groups]; absent or without data, all slots are filled. */
void syi_cost_filled(const struct sy_call *call, const struct sy_tensor *counts, struct syi_cost *cost);

/* ---- the rules ---- */

/* A member that is 0 or NULL is the default said here. */
struct syi_op_rules {
    /* Whether operands and attributes fit beyond the row of ops.def; a status, with syi_check_bad. With
     * labels it comes after letters, types and the leaf, without before the types. NULL: the row says all. */
    int (*check)(struct syi_check *check);
    int leaf_dim;     /* dimension of input 0 that the attribute `leaf` divides, where the op has one */
    syi_grad_fn grad; /* NULL: no gradient flows (flag Z) */
    /* Arithmetic: `flops` for each element of operand `of` (inputs 0, 1, ..., outputs -1, -2, ...). */
    int flops, of;
    /* Where that, and the bytes of all operands once, is not the cost: changes *cost, which holds them. */
    void (*cost)(const struct sy_call *call, struct syi_cost *cost);
    /* The attribute as text after the operands. NULL: field by field, as ops.def names them. */
    void (*explain)(struct syi_text *text, const struct syi_op *op, const void *attr);
    /* Of a collective that is executed (NULL: passes replace it): fills in the exchange in *c, which has the
     * operands, the whole input as one piece and the kind all-to-all. ranks: of its group. */
    void (*exchange)(const struct sy_call *call, uint64_t ranks, struct sy_collective *c);
    /* Of a collective: bytes that reach a rank from others, of operands of so many bytes. NULL: all of the
     * output but the piece that it has already. */
    uint64_t (*received)(uint64_t in, uint64_t out, uint64_t ranks);
};

#define SY_OP(id, NAME, name, labels, split, types, attributes, flags, tolerance, help)                      \
    extern const struct syi_op_rules syi_op_rules_##name;
#include "switchyard/ops.def"
#undef SY_OP

const struct syi_op_rules *syi_op_rules(enum sy_op op); /* op_rules.c */

/* Bytes of dims [from, to) of a tensor's shape. */
static inline uint64_t syi_span_bytes(const struct sy_tensor *tensor, int from, int to)
{
    uint64_t bytes = syi_dtype_bytes(tensor->dtype);
    for (int i = from; i < to; i++) bytes *= (uint64_t)tensor->dim[i];
    return bytes;
}

#endif
