/* SPDX-License-Identifier: Apache-2.0 */
/* Finding the tensor in which numbers that are not finite begin: where an op of a step left one, and what it is called. */
#ifndef SYI_BAD_TENSOR_H
#define SYI_BAD_TENSOR_H

#include "train/engine/engine.h"

/* Row-major number of the first element that is NaN or Inf; -1: all are finite, or it holds no floats. */
int64_t syi_first_not_finite(const struct sy_tensor *tensor);
/* What an output of an op is called: the tensor's name, or "LAYER:OP" of a temporary, ".1" and so on for further outputs. */
void syi_output_label(const struct syi_program *program, const struct syi_op *op, int output, char *label,
                      size_t bytes);
/* Which expert's the element of such an output is, over all ranks; -1: the tensor has no dimension of experts. */
int64_t syi_expert_of(const struct syi_program *program, const struct syi_op *op, int output,
                      const struct sy_tensor *tensor, int64_t element);

/* After a step whose gradients were not finite and that updated nothing: computes them once more, op by op, and describes
 * the first tensor that is not finite, with its layer and expert, in one line. Called by all ranks with the batch and the
 * number of that step; all get the same text, which says so where a host has no memory to look
 * at a device's. Costs such a step once more; allocates. */
enum { SYI_BAD_TEXT = 640 };
int syi_engine_find_bad(struct syi_engine *engine, const struct syi_batch *batch, int64_t step,
                        char text[SYI_BAD_TEXT], struct sy_error *err) SYI_MUST_CHECK;

#endif
