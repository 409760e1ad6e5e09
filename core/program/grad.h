/* SPDX-License-Identifier: Apache-2.0 */
/* Reverse-mode differentiation: appends the ops that compute d(loss)/d(parameter) to the program that
 * computes the loss. */
#ifndef SYI_GRAD_H
#define SYI_GRAD_H

#include "program/program.h"

/* Differentiates scalar tensor `loss` ([1]) with respect to n tensors; gradient[i] gets the tensor, or -1
 * when the loss does not depend on it. Contributions are added in the reverse order of the ops that read the
 * tensor, so the order of summation belongs to the program. */
int syi_grad(struct syi_program *program, int loss, int n, const int *of, int *gradient,
             struct sy_error *err) SYI_MUST_CHECK;

#endif
