/* SPDX-License-Identifier: Apache-2.0 */
/* One rank's programs, bound to memory and kernels and ready to run: lower -> plan -> bind -> run.
 *
 * A session owns one arena with five segments. persist, io and carry tensors are shared by name between the
 * programs of the session; scratch is laid out per program and overlaid; snapshot is there where one was asked for.
 * Nothing is allocated and no name is looked up in a run.
 *
 * Where the backend has device memory, kernels work there, and what these functions hand out is the host's mirror.
 * A run takes the inputs of its program from it and leaves the outputs in it. Parameters and state, and what is
 * carried, move only when they are asked to: syi_session_upload, syi_session_download. */
#ifndef SYI_SESSION_H
#define SYI_SESSION_H

#include "comm/comm.h"
#include "passes/passes.h"
#include "runtime/backend.h"

/* ---- session.c ---- */

struct syi_session; /* one rank */

struct syi_session_options {
    struct syi_backend *backend; /* borrowed */
    struct syi_comm *comm;       /* borrowed; ranks = those of the mesh */
    const struct syi_mesh *mesh; /* copied */
    /* Its parameters and state are those of this one, which is bound and outlives it; NULL: it has its own. */
    const struct syi_session *weights;
    int reproducible;
    int plan_only;   /* 1: no memory is taken, programs cannot run (for `switchyard plan`) */
    int snapshot;    /* 1: memory for a copy of persist, on ranks that hold a block first (parallel/mesh.h) */
    int fold;        /* 1: the fold pass, as far as the backend has kernels for its ops */
    int check_reuse; /* 1: every temporary has its own place (tests, hunting) */
    /* 1: every run moves parameters, state and what is carried both ways, so that the host may read and write them
     * between runs as on host memory (verify). */
    int coherent;
    /* 1: where one rank cannot take its memory or prepare a kernel, bind fails on all with its error, and they may go on
     * together without this session. 0: the others are stopped when that rank ends. */
    int all_or_none;
    int check_device; /* 1: a plan larger than what is free on the device is SY_ENOMEM before it is taken */
    uint64_t budget;  /* most bytes of the arena, by computing activations again; 0: any */
    /* Bytes of the host that this rank can take: a larger plan is SY_ENOMEM; 0: unknown, tried. */
    uint64_t available;
    const char
        *remedy; /* what to try where memory is short, for the message; NULL: what makes training smaller */
};
int syi_session_new(const struct syi_session_options *options, struct syi_session **session,
                    struct sy_error *err) SYI_MUST_CHECK;
/* Takes over a local program (owned by the session from now on, also on failure); returns its index in
 * *index. Before bind. */
int syi_session_add(struct syi_session *session, struct syi_program *local, int *index,
                    struct sy_error *err) SYI_MUST_CHECK;
/* Lowers, plans, takes the memory (zeroed, first touched by the pool), finds the kernels (an op without
 * kernel is an error that names op, layer and source line), prepares them, makes communication groups. */
int syi_session_bind(struct syi_session *session, struct sy_error *err) SYI_MUST_CHECK;
int syi_session_run(struct syi_session *session, int program, struct sy_error *err) SYI_MUST_CHECK;
void syi_session_free(struct syi_session *session);

/* The tensor of a program that has a role (program/roles.h), as this rank holds it: memory, local extents,
 * global index of its first element; NULL: it has none. After bind. */
const struct sy_tensor *syi_session_find(const struct syi_session *session, int program, enum syi_role role,
                                         uint32_t of);
/* The same of the first program that has one: for what all programs share. */
const struct sy_tensor *syi_session_find_any(const struct syi_session *session, enum syi_role role,
                                             uint32_t of);
/* The shared tensor of a name that a user or a file gives, or NULL. */
const struct sy_tensor *syi_session_tensor(const struct syi_session *session, const char *name);
/* All shared tensors in the order of their names: i from 0; NULL after the last. kind, axes, split and
 * global extents in *info. */
struct syi_shared {
    const char *name;
    struct syi_tensor info; /* local extents, split, kind, axis */
    int64_t global[SY_MAX_DIMS];
    struct sy_tensor tensor;
};
const struct syi_shared *syi_session_shared(const struct syi_session *session, size_t i);
const struct syi_mesh *syi_session_mesh(const struct syi_session *session);
const struct syi_plan *syi_session_plan(const struct syi_session *session);
/* Bytes of the plan that are memory of the host, and of the device (0: there is none). */
uint64_t syi_session_host_bytes(const struct syi_session *session);
/* Bytes of the device that are free now; 0: there is no device, or it does not say. */
uint64_t syi_session_device_free(const struct syi_session *session);
uint64_t syi_session_device_bytes(const struct syi_session *session);
/* Whether a session that was only planned would fit in the place of another, by what its options say is available: SY_ENOMEM
 * says why not. Memory of another device than its own is taken for its own. */
int syi_session_fits(const struct syi_session *planned, const struct syi_session *instead,
                     struct sy_error *err) SYI_MUST_CHECK;
const struct syi_program *syi_session_program(const struct syi_session *session, int index);
/* What the budget cost this program; all zero without one, or where it is kept anyway. */
const struct syi_recomputed *syi_session_recomputed(const struct syi_session *session, int index);

/* Bring a segment (SYI_PERSIST, SYI_CARRY_SEGMENT) to the device after the host wrote it, and to the host before it
 * reads: all of it, complete on return. The host that writes parts of a segment has it first. Nothing is done where
 * kernels work on host memory. */
int syi_session_upload(struct syi_session *session, enum syi_segment segment,
                       struct sy_error *err) SYI_MUST_CHECK;
int syi_session_download(struct syi_session *session, enum syi_segment segment,
                         struct sy_error *err) SYI_MUST_CHECK;

/* Copies all parameters and state as they are now, by the pool or from the device. Needs options.snapshot. */
int syi_session_snapshot(struct syi_session *session, struct sy_error *err) SYI_MUST_CHECK;
/* What a parameter or state that this rank holds first was at the last snapshot; its local extents. */
const void *syi_session_snapshot_of(const struct syi_session *session, const struct syi_shared *shared);

/* Called around every op when set (diff, finding the first bad tensor); NULL: none. With a hook every op runs by
 * itself and is done when the hook is called after it. Operands of call are host memory; a hook may
 * write over outputs before the op. */
typedef void (*syi_op_hook)(void *arg, int program, size_t op, const struct sy_call *call, int after);
void syi_session_hook(struct syi_session *session, syi_op_hook hook, void *arg);
/* Before it, for a caller that can do without a hook: takes the host memory in which one sees the temporaries of a device, else
 * taken by the first op, whose run then fails where there is none. Given back when the hook is set to NULL. */
int syi_session_room_for_hook(struct syi_session *session, struct sy_error *err) SYI_MUST_CHECK;
/* The same for a hook that looks at the clock and at shapes: of device memory it is shown no data. */
void syi_session_time(struct syi_session *session, syi_op_hook hook, void *arg);

#endif
