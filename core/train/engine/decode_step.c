/* SPDX-License-Identifier: Apache-2.0 */
/* One decoding step as a program: tokens in, candidates or logits out. Each rank has its own rows of the
 * inputs; what comes out is there on all ranks. */
#include "config.h"

#include <string.h>

#include "train/engine/decode_step.h"

struct syi_decode_bound syi_decode_bind(struct syi_session *session, int program)
{
    return (struct syi_decode_bound){
        .session = session,
        .program = program,
        .token = syi_session_find(session, program, SYI_ROLE_DECODE_TOKEN, 0),
        .position = syi_session_find(session, program, SYI_ROLE_DECODE_POSITION, 0),
        .lengths = syi_session_find(session, program, SYI_ROLE_DECODE_LENGTHS, 0),
        .rows = syi_session_find(session, program, SYI_ROLE_DECODE_ROWS, 0),
        .add = syi_session_find(session, program, SYI_ROLE_DECODE_ADD, 0),
        .top_value = syi_session_find(session, program, SYI_ROLE_DECODE_TOP_VALUE, 0),
        .top_id = syi_session_find(session, program, SYI_ROLE_DECODE_TOP_ID, 0),
        .logits = syi_session_find(session, program, SYI_ROLE_DECODE_LOGITS, 0),
        .next = syi_session_find(session, program, SYI_ROLE_DECODE_NEXT, 0),
    };
}

int syi_decode_bound_run(void *arg, struct syi_decode_io *io, struct sy_error *err)
{
    struct syi_decode_bound *b = arg;
    int64_t n = b->token->dim[0], first = b->token->first[0];
    int32_t *lengths = b->lengths->data;
    memcpy(b->token->data, io->token + first, (size_t)n * sizeof *io->token);
    *(int32_t *)b->position->data = io->position;
    for (int64_t i = 0; i < n; i++) lengths[i] = io->position + 1;
    for (int64_t i = 0; b->rows && i < n; i++)
        ((int32_t *)b->rows->data)[i] = (int32_t)(io->from ? io->from[first + i] : first + i);
    if (b->add) memcpy(b->add->data, io->add + first, (size_t)n * sizeof *io->add);
    int status = syi_session_run(b->session, b->program, err);
    io->top_value = b->top_value ? b->top_value->data : NULL;
    io->top_id = b->top_id ? b->top_id->data : NULL;
    io->logits = b->logits ? b->logits->data : NULL;
    return status;
}
