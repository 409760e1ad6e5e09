/* SPDX-License-Identifier: Apache-2.0 */
/* Reverse-mode differentiation: appends the ops that compute d(loss)/d(parameter) to the program that
 * computes the loss. */
#ifndef SYI_GRAD_H
#define SYI_GRAD_H

#include "program/program.h"

/* Gradient rule of an op: given the gradients of its outputs (-1: none flows), records ops and sets din[i]
 * for inputs that want one (wants[i]); din[i] stays -1 where nothing flows. */
typedef void (*syi_grad_fn)(struct syi_program *p, const struct syi_op *op, const int *dout,
                            const uint8_t *wants, int *din);
/* gradients.c: the rule of an op, or NULL when it has none. */
syi_grad_fn syi_grad_rule(int op);

/* Differentiates scalar tensor `loss` ([1]) with respect to n tensors; gradient[i] gets the tensor, or -1
 * when the loss does not depend on it. Contributions are added in the reverse order of the ops that read the
 * tensor, so the order of summation belongs to the program. */
int syi_grad(struct syi_program *program, int loss, int n, const int *of, int *gradient,
             struct sy_error *err) SYI_MUST_CHECK;

#endif
