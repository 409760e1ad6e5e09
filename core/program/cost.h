/* SPDX-License-Identifier: Apache-2.0 */
/* What an op costs whoever computes it: arithmetic, memory traffic and what it takes from other ranks. Shared
 * by `plan`, `bench` and the recompute pass. Knows no kernel and no machine. */
#ifndef SYI_COST_H
#define SYI_COST_H

#include "program/program.h"

struct syi_cost {
    double flops; /* additions and multiplications; exp, tanh, division and the like count as one */
    double bytes; /* read and written, each operand once */
    int product;  /* 1: matrix products and attention, which a machine's peak is held against */
};

/* Of one call. Integers it depends on (lengths, counts of filled slots) are read where data is there; else
 * all positions and slots count. */
struct syi_cost syi_call_cost(const struct sy_call *call);
/* The same of an op of a program. */
struct syi_cost syi_op_cost(const struct syi_program *program, const struct syi_op *op);
/* Bytes that reach a rank from the others of its group of `ranks` in a collective. */
uint64_t syi_op_received(const struct syi_program *program, const struct syi_op *op, uint64_t ranks);

#endif
