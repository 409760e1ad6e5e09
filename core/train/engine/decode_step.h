/* SPDX-License-Identifier: Apache-2.0 */
/* The function that decode.h runs, over a decode_step program bound in a session (model.h). */
#ifndef SYI_DECODE_STEP_H
#define SYI_DECODE_STEP_H

#include "runtime/session.h"
#include "train/decode/decode.h"

/* Where the program's inputs and outputs are; NULL where it has none of the kind. */
struct syi_decode_bound {
    struct syi_session *session;                                     /* borrowed */
    int program;                                                     /* index in it */
    const struct sy_tensor *token, *position, *lengths, *rows, *add; /* this rank's rows */
    const struct sy_tensor *top_value, *top_id, *logits, *next;      /* all rows */
};

/* After the session was bound. */
struct syi_decode_bound syi_decode_bind(struct syi_session *session, int program);
/* As struct syi_decode_step has it; arg: struct syi_decode_bound. */
int syi_decode_bound_run(void *arg, struct syi_decode_io *io, struct sy_error *err) SYI_MUST_CHECK;

#endif
