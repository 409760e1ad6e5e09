/* SPDX-License-Identifier: Apache-2.0 */
/* The memory of a session on a device, and what moves between it and its mirror on the host: inputs and outputs
 * with each run, weights and state when they are asked for. */
#include "config.h"

#include <stdlib.h>

#include "runtime/device.h"

/* Bytes: inputs that are no farther apart go in one copy. What lies between them is other inputs and outputs, of
 * which the mirror has what the device has. */
enum { NEAR = 4096 };

/* ---- memory ---- */

uint64_t syi_device_bytes(const struct syi_session *session)
{
    return syi_plan_device_bytes(&session->plan) -
           (session->options.weights ? session->plan.bytes[SYI_PERSIST] : 0);
}

int syi_device_take(struct syi_session *session, struct sy_error *err)
{
    static const enum syi_segment held[] = {SYI_PERSIST, SYI_IO, SYI_CARRY_SEGMENT, SYI_SCRATCH, SYI_STAGING};
    const struct syi_session *lender = session->options.weights;
    struct syi_backend *backend = session->options.backend;
    uint64_t bytes = syi_device_bytes(session);
    void *memory = NULL;
    int status = session->device->alloc(backend->context, bytes ? bytes : 1, &memory);
    if (!status && !memory) status = SY_EBACKEND; /* it says that there is memory, but gave none */
    if (status) return syi_backend_error(backend, status, "device memory of the plan", err);
    uint8_t *next = session->device_arena = memory;
    for (size_t i = 0; i < SYI_COUNT(held) - !session->links; i++) {
        enum syi_segment s = held[i];
        session->place[s] = lender && s == SYI_PERSIST ? lender->place[s] : next;
        if (session->place[s] == next) next += session->plan.bytes[s];
    }
    status = bytes ? session->device->zero(backend->context, memory, bytes) : SY_OK;
    return status ? syi_backend_error(backend, status, "zeroing device memory", err) : SY_OK;
}

void syi_device_free(struct syi_session *session)
{
    if (session->device_arena)
        session->device->free(session->options.backend->context, session->device_arena);
}

/* ---- single moves ---- */

int syi_device_copy(const struct syi_session *session, void *to, const void *from, uint64_t bytes)
{
    return bytes ? session->device->copy_async(session->options.backend->context, to, from, bytes) : SY_OK;
}

int syi_device_sync(const struct syi_session *session)
{
    return session->device->sync(session->options.backend->context);
}

static int move(struct syi_session *session, void *to, const void *from, uint64_t bytes, const char *what,
                struct sy_error *err)
{
    struct syi_backend *backend = session->options.backend;
    int status = bytes ? session->device->copy(backend->context, to, from, bytes) : SY_OK;
    return status ? syi_backend_error(backend, status, what, err) : SY_OK;
}

int syi_session_upload(struct syi_session *session, enum syi_segment segment, struct sy_error *err)
{
    if (!session->device || session->options.plan_only) return SY_OK;
    return move(session, session->place[segment], session->segment[segment], session->plan.bytes[segment],
                "copying weights or state to the device", err);
}

int syi_session_download(struct syi_session *session, enum syi_segment segment, struct sy_error *err)
{
    if (!session->device || session->options.plan_only) return SY_OK;
    return move(session, session->segment[segment], session->place[segment], session->plan.bytes[segment],
                "copying weights or state from the device", err);
}

int syi_device_snapshot(struct syi_session *session, struct sy_error *err)
{
    return move(session, session->segment[SYI_SNAPSHOT], session->place[SYI_PERSIST],
                session->plan.bytes[SYI_SNAPSHOT], "copying weights and state from the device", err);
}

/* ---- the moves of a run ---- */

static int compare_ranges(const void *a, const void *b)
{
    const struct syi_range *x = a, *y = b;
    return (x->at > y->at) - (x->at < y->at);
}

/* The tensors of a kind, near ones as one range. range: room for all of them; returns how many there are. */
static size_t find_ranges(const struct syi_program *program, enum syi_kind kind, uint64_t near,
                          struct syi_range *range)
{
    size_t n = 0, kept = 0;
    for (size_t i = 0; i < program->n_tensors; i++)
        if (program->tensor[i].kind == kind)
            range[n++] = (struct syi_range){program->tensor[i].offset, program->tensor[i].bytes};
    qsort(range, n, sizeof *range, compare_ranges);
    for (size_t i = 0; i < n; i++) {
        struct syi_range *last = &range[kept ? kept - 1 : 0];
        if (kept && range[i].at <= syi_whole_lines(last->at + last->bytes) + near)
            last->bytes = range[i].at + range[i].bytes - last->at;
        else
            range[kept++] = range[i];
    }
    return kept;
}

int syi_device_find_moves(struct syi_bound *bound, struct sy_error *err)
{
    const struct syi_program *program = bound->program;
    bound->input = syi_alloc(program->n_tensors * sizeof *bound->input, err);
    bound->output = syi_alloc(program->n_tensors * sizeof *bound->output, err);
    if (!bound->input || !bound->output) return SY_ENOMEM;
    bound->n_inputs = find_ranges(program, SYI_INPUT, NEAR, bound->input);
    bound->n_outputs = find_ranges(program, SYI_OUTPUT, 0, bound->output);
    return SY_OK;
}

/* All of a segment, for a host that works on it between runs. */
static int move_whole(struct syi_session *session, enum syi_segment segment, int to_device)
{
    uint8_t *host = session->segment[segment], *device = session->place[segment];
    return syi_device_copy(session, to_device ? device : host, to_device ? host : device,
                           session->plan.bytes[segment]);
}

int syi_device_before(struct syi_session *session, const struct syi_bound *bound)
{
    const uint8_t *from = session->segment[SYI_IO];
    uint8_t *to = session->place[SYI_IO];
    /* The first call of a run tells the backend the thread, which may have worked on another device since. */
    int status = bound->n_inputs ? SY_OK : syi_device_sync(session);
    if (!status && session->options.coherent) status = move_whole(session, SYI_PERSIST, 1);
    if (!status && session->options.coherent) status = move_whole(session, SYI_CARRY_SEGMENT, 1);
    for (size_t i = 0; i < bound->n_inputs && !status; i++)
        status = syi_device_copy(session, to + bound->input[i].at, from + bound->input[i].at,
                                 bound->input[i].bytes);
    return status;
}

int syi_device_after(struct syi_session *session, const struct syi_bound *bound)
{
    const uint8_t *from = session->place[SYI_IO];
    uint8_t *to = session->segment[SYI_IO];
    int status = SY_OK;
    for (size_t i = 0; i < bound->n_outputs && !status; i++)
        status = syi_device_copy(session, to + bound->output[i].at, from + bound->output[i].at,
                                 bound->output[i].bytes);
    if (!status && session->options.coherent) status = move_whole(session, SYI_PERSIST, 0);
    if (!status && session->options.coherent) status = move_whole(session, SYI_CARRY_SEGMENT, 0);
    return status ? status : syi_device_sync(session);
}
