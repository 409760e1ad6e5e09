/* SPDX-License-Identifier: Apache-2.0 */
/* Inside a session: a program bound to memory, kernels and groups. Shared by session.c (owns), bind.c (fills)
 * exec.c (steps) and run.c (runs). */
#ifndef SYI_BOUND_H
#define SYI_BOUND_H

#include "runtime/session.h"

/* A collective that is started by one op and completed by another. */
struct syi_transfer {
    struct syi_session *session; /* borrowed */
    struct sy_collective call;
    void *request; /* between start and wait */
    int group;     /* of the communicator */
    /* With device memory `call` works on host memory: what is sent, then what is received. */
    uint64_t stage[2]; /* offsets in the staging memory */
    uint64_t bytes[2]; /* of the operands */
    /* With links `call` works on device memory, and `link` runs `linked`, its pieces whole. */
    void *link;
    struct sy_collective linked;
    uint64_t ranks; /* of the group */
};

/* This rank's piece of a tensor: runs of `inner` bytes, one every `stride`, the first at `at`. */
struct syi_piece {
    const struct syi_session *session; /* borrowed */
    const uint8_t *from;
    uint8_t *to;
    uint64_t inner, stride, bytes;
};

/* One op, ready to run: fn(context, call). */
struct syi_step {
    sy_kernel_fn fn;
    void *context;
    const struct sy_call *call;
};

/* A tensor that has a role, as this rank holds it. */
struct syi_found {
    enum syi_role role;
    uint32_t of;
    struct sy_tensor tensor;
};

/* Bytes of io that a run moves between host and device. */
struct syi_range {
    uint64_t at, bytes;
};

/* Steps [first, end): kernels, which a graph replays, or steps of the host. */
struct syi_span {
    size_t first, end;
    int of_host;
    void *graph; /* NULL: not captured */
};

struct syi_bound {
    struct syi_program *program; /* owned */
    struct syi_found *found;     /* [n_found] by role */
    size_t n_found;
    struct sy_tensor *operand;        /* inputs, then outputs, op by op */
    struct sy_call *call;             /* [n_ops] */
    struct syi_step *step;            /* [n_ops] */
    const struct sy_kernel **kernel;  /* [n_ops], NULL: done by the session */
    struct syi_transfer *transfer;    /* [n_ops], used by collectives */
    struct syi_piece *piece;          /* [n_ops], used by slices */
    uint64_t *workspace;              /* [n_ops] bytes */
    uint64_t *workspace_at;           /* [n_ops] offsets in scratch */
    struct syi_recomputed recomputed; /* for options.budget */
    /* With device memory only. */
    struct syi_range *input, *output; /* [n_inputs], [n_outputs] */
    size_t n_inputs, n_outputs;
    struct syi_span *span; /* [n_spans] all steps in turn; none: the device has no graphs */
    size_t n_spans;
    int has_run; /* 1: by spans, once or more */
};

struct syi_session {
    struct syi_session_options options; /* mesh points to the copy below */
    struct syi_mesh mesh;
    int rank;
    int state; /* 0 programs are added, 1 bound, -1 bind failed */
    struct syi_bound *bound;
    size_t n_bound, cap_bound;
    struct syi_plan plan;
    uint8_t *arena; /* the segments that are host memory, one after the other */
    uint64_t arena_bytes;
    uint8_t *segment[SYI_SEGMENT_COUNT];  /* what the host sees: in the arena */
    uint8_t *place[SYI_SEGMENT_COUNT];    /* what kernels work on: the same, or device memory */
    const struct sy_device_table *device; /* NULL: the backend works on host memory */
    const struct sy_link_table *links;    /* NULL: collectives go through the host */
    uint8_t *device_arena;     /* of the device: persist, io, carry and scratch, with links staging */
    uint8_t *seen_scratch;     /* of the host, as large as scratch: what hooks see of the device's */
    struct syi_shared *shared; /* [n_shared] by name */
    size_t n_shared;
    int group[SYI_LANES][SYI_MESH_ALL + 1]; /* of each queue and set of mesh axes, -1: not made */
    struct sy_error failure;                /* of a collective in the run at hand */
    syi_op_hook hook;
    void *hook_arg;
    int hook_reads; /* 1: operands; 0: only the clock */
};

/* ---- bind.c ---- */

/* Arrays, operands (without memory), kernels and workspace sizes of a lowered program. */
int syi_bound_prepare(struct syi_session *session, struct syi_bound *bound,
                      struct sy_error *err) SYI_MUST_CHECK;
/* Memory of every operand, plans of kernels. After the plan; needs no other rank. */
int syi_bound_kernels(struct syi_session *session, struct syi_bound *bound,
                      struct sy_error *err) SYI_MUST_CHECK;
/* Then the ops that the session runs itself, with the groups of their collectives. */
int syi_bound_connect(struct syi_session *session, struct syi_bound *bound,
                      struct sy_error *err) SYI_MUST_CHECK;
void syi_bound_free(struct syi_session *session, struct syi_bound *bound);
/* Extents and place in the whole of a tensor as this rank holds it; data in `segment`, the session's own or `place`,
 * NULL where there is no memory. */
struct sy_tensor syi_bound_tensor(const struct syi_session *session, const struct syi_tensor *tensor,
                                  uint8_t *const segment[SYI_SEGMENT_COUNT]);

/* What a collective moves, by the extents of its operands; its buffers where they have memory. */
struct sy_collective syi_bound_collective(const struct syi_session *session, const struct syi_bound *bound,
                                          size_t op);

/* ---- find.c ---- */

/* The index of a program's roles. After the plan and the memory. */
int syi_bound_index(const struct syi_session *session, struct syi_bound *bound,
                    struct sy_error *err) SYI_MUST_CHECK;

/* ---- budget.c ---- */

/* Lowers, finds kernels and plans; target: most bytes of temporaries of a program, recomputing what does not
 * fit, UINT64_MAX: any. Leaves the plan in the session. */
int syi_session_prepare(struct syi_session *session, uint64_t target, struct sy_error *err) SYI_MUST_CHECK;
/* The same within options.budget, or an error that names the least that is possible. */
int syi_session_fit(struct syi_session *session, struct sy_error *err) SYI_MUST_CHECK;

/* ---- exec.c ---- */

int syi_exec_start(void *transfer, const struct sy_call *call); /* struct syi_transfer */
int syi_exec_wait(void *transfer, const struct sy_call *call);  /* struct syi_transfer */
int syi_exec_slice(void *piece, const struct sy_call *call);    /* struct syi_piece */
int syi_exec_join(void *session, const struct sy_call *call);   /* struct syi_session */
int syi_exec_part(void *session, const struct sy_call *call);   /* struct syi_session */
/* Steps [first, end), without a hook. place: SYI_PLACE_TEXT bytes, the op that failed. */
enum { SYI_PLACE_TEXT = 384 };
int syi_exec_steps(const struct syi_bound *bound, size_t first, size_t end, char *place);
/* "op 12 matmul of encoder/layers_0/mlp (recorded at layers.c:80)" */
void syi_exec_place(const struct syi_program *program, size_t op, char *text, size_t bytes);

#endif
