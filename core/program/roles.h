/* SPDX-License-Identifier: Apache-2.0 */
/* What the tensors are for that programs share with the host and with each other. Whoever records a tensor
 * gives it its role, every pass keeps it, and a bound session finds it by role (runtime/session.h). Names are
 * there to be read and to show which tensors of two programs are one; nothing takes them apart. */
#ifndef SYI_ROLES_H
#define SYI_ROLES_H

#include <stdint.h>

/* X(NAME, name). A role and the number `of` beside it name one tensor of a program; `of` is 0 where there is
 * one of a kind. */
#define SYI_ROLE_MAP(X)                                                                                      \
    X(NONE, none)                                                                                            \
    /* of the model; of: id of the parameter, or of the copy (model/model.h) */                              \
    X(PARAMETER, parameter)                                                                                  \
    X(SCALES, scales)                   /* of a parameter in int8 */                                         \
    X(COPY, copy)                       /* in bfloat16, of one or several parameters */                      \
    X(GRADIENT, gradient)               /* of a parameter; carry, from grad programs to update */            \
    X(GRADIENT_BLOCKS, gradient_blocks) /* sums of squares of its blocks: what its norm is made of */        \
    X(DIRECTION, direction)             /* of an expert bias: where it goes, -1, 0 or 1 an expert */         \
    /* what a batch brings */                                                                                \
    X(ENCODER_IDS, encoder_ids)                                                                              \
    X(ENCODER_LENGTHS, encoder_lengths)                                                                      \
    X(ENCODER_SEGMENTS, encoder_segments)                                                                    \
    X(ENCODER_MASK, encoder_mask)                                                                            \
    X(DECODER_INPUTS, decoder_inputs)                                                                        \
    X(DECODER_TARGETS, decoder_targets)                                                                      \
    X(DECODER_LENGTHS, decoder_lengths)                                                                      \
    X(DECODER_SEGMENTS, decoder_segments)                                                                    \
    X(DECODER_MASK, decoder_mask)                                                                            \
    X(LOSS_WEIGHTS, loss_weights)                                                                            \
    X(LOSS_NORM, loss_norm)     /* what sums are divided by: of the loss, */                                 \
    X(INPUT_NORM, input_norm)   /* over tokens of the encoder, */                                            \
    X(TARGET_NORM, target_norm) /* of the decoder */                                                         \
    /* what a step brings */                                                                                 \
    X(RNG, rng)                                                                                              \
    X(OPTIM_SCALAR, optim_scalar) /* of: its number, see syi_optim_scalars (optim/optim.h) */                \
    X(AVERAGE, average)           /* of a parameter: what is evaluated and saved in its place */             \
    X(ITERATE, iterate)           /* of a parameter: begins as it, as AVERAGE does */                        \
    X(NOISE, noise)               /* normal numbers of a parameter, where they are not drawn */              \
    /* what a step yields */                                                                                 \
    X(STEP_OUTPUT, step_output)     /* of: enum syi_step_value (model/step_values.h) */                      \
    X(TOKEN_LOSS, token_loss)       /* of every target of a batch that is scored */                          \
    X(WEIGHT_METRIC, weight_metric) /* of: syi_weight_metric_number (optim/weight_metrics.h) */              \
    /* of a sparse layer; of: its number in the forward pass */                                              \
    X(CHOSEN, chosen)                                                                                        \
    X(KEPT, kept)                                                                                            \
    X(SERVED, served)                                                                                        \
    X(CONFIDENCE, confidence)                                                                                \
    X(LAYER_AUXILIARY_LOSS, layer_auxiliary_loss) /* before its factor */                                    \
    X(LAYER_ROUTER_Z_LOSS, layer_router_z_loss)                                                              \
    /* decoding */                                                                                           \
    X(ENCODED, encoded) /* the encoder's output */                                                           \
    X(DECODE_TOKEN, decode_token)                                                                            \
    X(DECODE_POSITION, decode_position)                                                                      \
    X(DECODE_LENGTHS, decode_lengths)                                                                        \
    X(DECODE_ROWS, decode_rows)                                                                              \
    X(DECODE_ADD, decode_add)                                                                                \
    X(DECODE_NEXT, decode_next)                                                                              \
    X(DECODE_TOP_VALUE, decode_top_value)                                                                    \
    X(DECODE_TOP_ID, decode_top_id)                                                                          \
    X(DECODE_LOGITS, decode_logits)

enum syi_role {
#define SYI_ROLE_ENUM(NAME, name) SYI_ROLE_##NAME,
    SYI_ROLE_MAP(SYI_ROLE_ENUM)
#undef SYI_ROLE_ENUM
        SYI_ROLE_COUNT
};
const char *syi_role_name(enum syi_role role); /* "encoder_ids" */

struct syi_program;
struct syi_op;
/* Gives tensor its role; -1, a recording that failed, is left alone. Returns the tensor. */
int syi_role_set(struct syi_program *program, int tensor, enum syi_role role, uint32_t of);
/* The tensors that have the role, by their `of` below n; -1: there is none. For many at once. */
void syi_role_list(const struct syi_program *program, enum syi_role role, int *tensor, size_t n);
/* The tensor that has it, or -1: there is none. Walks through all tensors. */
int syi_role_find(const struct syi_program *program, enum syi_role role, uint32_t of);
/* Whether an op is elementwise or sums blocks, and writes gradients or their blocks alone: what becomes of them after
 * differentiation. */
int syi_op_ends_gradients(const struct syi_program *program, const struct syi_op *op);

#endif
