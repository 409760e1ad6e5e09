/* SPDX-License-Identifier: Apache-2.0 */
/* One rank's programs, bound to memory and kernels and ready to run: lower -> plan -> bind -> run.
 *
 * A session owns one arena with four segments. persist, io and carry tensors are shared by name between the
 * programs of the session; scratch is laid out per program and overlaid. Nothing is allocated and no name is
 * looked up in a run. */
#ifndef SYI_SESSION_H
#define SYI_SESSION_H

#include "parallel/comm.h"
#include "parallel/mesh.h"
#include "program/recompute.h"
#include "runtime/backend.h"
#include "runtime/threads.h"

/* ---- join.c ---- */

/* Rewrites a local program: small collectives become one, between join and part, which are copies. */
int syi_join(struct syi_program *program, const struct syi_mesh *mesh, struct sy_error *err) SYI_MUST_CHECK;

/* ---- lower.c ---- */

/* Rewrites a local program for execution. Floating-point all_reduce (when `reproducible`) becomes
 * send_pieces, tree_add, gather_pieces, or gather_pieces, tree_add where that is one short trip;
 * reduce_scatter becomes send_pieces, tree_add. Integer sums stay all_reduce: any order gives the same bits.
 * Collectives go to queues 1 to SYI_LANES of their group of ranks, one under way in each; a `wait` (in: the
 * result of a collective, no output) stands before the first op that reads or writes the result, overwrites
 * the operand or needs the queue, and at the end. bytes of tensors that collectives work on in whole pieces
 * is set to what the pieces need. */
enum { SYI_LANES = 4 };
int syi_lower(struct syi_program *program, const struct syi_mesh *mesh, int reproducible,
              struct sy_error *err) SYI_MUST_CHECK;
/* The mesh axes of more than one rank that a collective works over: names its group of ranks. */
int syi_collective_group(const struct syi_program *program, const struct syi_op *op,
                         const struct syi_mesh *mesh);

/* ---- chain.c ---- */

/* Marks the ops of a lowered program that may run on the rows of the matrix product before them. */
void syi_chain(struct syi_program *program);
/* The op behind the chain that begins at `at`; the next op where none does. */
size_t syi_chain_end(const struct syi_program *program, size_t at);

/* ---- plan.c ---- */

struct syi_plan {
    uint64_t bytes[SYI_SEGMENT_COUNT]; /* high-water mark of each segment */
};
/* Where every tensor lies: sets offset and bytes of the tensors of n programs. Persist, io and carry are laid
 * out once by name (the same name must mean the same dtype and extents); scratch per program by lifetimes,
 * including each op's workspace (workspace[program][op], bytes). reuse = 0 gives every temporary its own
 * place (for tests). Alignment 64. Offsets of workspaces are returned in workspace_at[program][op]. */
int syi_plan(struct syi_program *const *programs, size_t n, uint64_t *const *workspace,
             uint64_t *const *workspace_at, int reuse, struct syi_plan *plan,
             struct sy_error *err) SYI_MUST_CHECK;

/* ---- session.c ---- */

struct syi_session; /* one rank */

struct syi_session_options {
    struct syi_backend *backend; /* borrowed */
    struct syi_comm *comm;       /* borrowed; ranks = those of the mesh */
    const struct syi_mesh *mesh; /* copied */
    int reproducible;
    int plan_only;   /* 1: no memory is taken, programs cannot run (for `switchyard plan`) */
    int check_reuse; /* 1: every temporary has its own place (tests, hunting) */
    uint64_t budget; /* most bytes of the arena, by computing activations again; 0: any */
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

/* The shared tensor of that name as this rank holds it (memory, local extents, global index of its first
 * element), or NULL. */
const struct sy_tensor *syi_session_tensor(const struct syi_session *session, const char *name);
/* All shared tensors in the order of their names: i from 0; NULL behind the last. kind, axes, split and
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
const struct syi_program *syi_session_program(const struct syi_session *session, int index);
/* What the budget cost this program; all zero without one, or where it is kept anyway. */
const struct syi_recomputed *syi_session_recomputed(const struct syi_session *session, int index);

/* Called around every op when set (timers, diff, finding the first bad tensor); NULL: none. With a hook every
 * op runs by itself, without chains. */
typedef void (*syi_op_hook)(void *arg, int program, size_t op, const struct sy_call *call, int after);
void syi_session_hook(struct syi_session *session, syi_op_hook hook, void *arg);

#endif
