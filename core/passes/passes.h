/* SPDX-License-Identifier: Apache-2.0 */
/* All passes of a program, in the order in which they run. The first makes a program of one rank out of the
 * recorded one; the others rewrite it. Each is one file, and each checks what it leaves. */
#ifndef SYI_PASSES_H
#define SYI_PASSES_H

#include "parallel/mesh.h"

/* ---- passes.c: the list ---- */

/* A program as recorded, then after each pass. The order of this enum is the order of the passes. */
enum syi_stage {
    SYI_STAGE_RECORD,
    SYI_STAGE_PARTITION, /* one rank's extents, collectives */
    SYI_STAGE_FUSE,      /* runs of map ops become one */
    SYI_STAGE_FOLD,      /* sums of blocks of values that one tensor makes take them as they come */
    SYI_STAGE_HOIST,     /* what becomes of gradients follows where they are written */
    SYI_STAGE_RECOMPUTE, /* activations computed again; only under memory.budget */
    SYI_STAGE_JOIN,      /* small collectives become one: bucketed collectives */
    SYI_STAGE_LOWER,     /* ordered sums, start and wait of collectives */
    SYI_STAGE_PLAN,      /* memory: of all programs of a session together, so it is no row of the list */
    SYI_STAGE_COUNT
};
const char *syi_stage_name(enum syi_stage stage); /* "record", "partition", ... */

struct syi_recomputed {
    uint64_t peak; /* bytes of temporaries alive at the fullest op, workspaces left out */
    size_t ops;    /* that were added */
    double flops;  /* of these, all positions and slots filled */
};

struct syi_pass_options {
    const struct syi_mesh *mesh;              /* borrowed */
    int reproducible;                         /* lower: sums over ranks in one order */
    int fold;                                 /* fold: 1: run it */
    int map_sums, add_rms_norm, lay_out_both; /* fold: 1: the backend has a kernel of this op */
    uint64_t target; /* recompute: most bytes of temporaries; UINT64_MAX: any, nothing is done */
    struct syi_recomputed recomputed; /* what recompute did; zero where it did nothing */
};

/* Runs the passes after stage `from` up to `to`, which is not SYI_STAGE_PLAN. *program is owned by the
 * caller before and after, also on failure; partition replaces it. */
int syi_passes_run(struct syi_program **program, enum syi_stage from, enum syi_stage to,
                   struct syi_pass_options *options, struct sy_error *err) SYI_MUST_CHECK;

/* ---- partition.c ---- */

/* Makes a new program: local extents, split set on every tensor, collective ops where what an op yields is
 * not what its output declares or an input is not laid out as the op demands. All ranks get the same program;
 * what differs (the global index of a shard's first element) is bound later. Refuses with one error what
 * leaves or extents do not allow. */
int syi_partition(const struct syi_program *global, const struct syi_mesh *mesh, struct syi_program **local,
                  struct sy_error *err) SYI_MUST_CHECK;

/* ---- zero.c: ZeRO, a part of partition ---- */

/* The declared layout of every tensor of a global program: the mesh's rules, and the mesh axes of the batch
 * on the first dim of state, gradients (and parameters) that no rule splits and whose leaves they divide.
 * Temporaries between them on the way of elementwise ops have the same layout. spec: [program->n_tensors].
 * Stages 1 and 2: optimizer state and gradients; 3: parameters too (Rajbhandari et al., arXiv 1910.02054). */
void syi_zero_specs(const struct syi_program *program, const struct syi_mesh *mesh,
                    uint8_t (*spec)[SY_MAX_DIMS]);

/* ---- fuse.c ---- */

/* Merges runs of map ops over one shape into one map op. Bits do not change. */
int syi_program_fuse(struct syi_program *program, struct sy_error *err) SYI_MUST_CHECK;

/* Index of a tensor among the inputs in[0 .. *n_in) of a map that grows, added where it is none of them; -1: there is no
 * room. in: [SY_MAX_IN]. */
int syi_map_add_input(int *in, int *n_in, int tensor);

/* ---- fold.c ---- */

/* Sums of blocks of what a map writes become outputs of it, where it writes what stays. Those of a temporary whose values
 * follow from one tensor that stays in memory, as a gradient, become map_sums, which make the values anew; so do the maps
 * that read it, and nobody writes it any more. Those over one tensor become one. Bits do not change. */
int syi_fold(struct syi_program *program, struct sy_error *err) SYI_MUST_CHECK;

/* ---- fold_maps.c ---- */

/* Maps become part of the op before or after them: relu of a product of weights in panels, and, with `sums`, what a norm is taken
 * of (add_rms_norm). */
int syi_fold_maps(struct syi_program *program, int sums, struct sy_error *err) SYI_MUST_CHECK;

/* ---- fold_copies.c ---- */

/* lay_out and lay_out_nt of the same tensors become lay_out_both. Bits do not change. */
int syi_fold_copies(struct syi_program *program, struct sy_error *err) SYI_MUST_CHECK;

/* ---- hoist.c ---- */

/* Moves the elementwise ops and sums that write gradients, or blocks of their norm, up to where their operands are written. Bits do
 * not change. */
int syi_hoist(struct syi_program *program, struct sy_error *err) SYI_MUST_CHECK;

/* ---- recompute.c ---- */

/* Rewrites a program of one rank so that its temporaries take at most `target` bytes, or as few as possible:
 * see done->peak. Activations are computed again in the backward pass (Chen et al., Training deep nets with
 * sublinear memory cost, arXiv 1604.06174). */
int syi_program_recompute(struct syi_program *program, uint64_t target, struct syi_recomputed *done,
                          struct sy_error *err) SYI_MUST_CHECK;

/* ---- join.c ---- */

/* Bucketed collectives: small ones become one, between join and part, which are copies. */
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

/* ---- plan.c ---- */

/* Most bytes of a segment: their sum, and offsets of what is in them, stay below 2^63. */
#define SYI_MAX_SEGMENT (UINT64_C(1) << 60)
struct syi_plan {
    uint64_t bytes[SYI_SEGMENT_COUNT]; /* high-water mark of each segment */
    /* 1: persist, io, carry and scratch are device memory, and the host has a mirror of them but scratch. */
    int on_device;
    int links; /* 1: staging, too, and the host has no mirror of it: ranks exchange on the device */
};
uint64_t syi_plan_device_bytes(const struct syi_plan *plan); /* 0: there is no device */
uint64_t syi_plan_host_bytes(const struct syi_plan *plan);
uint64_t syi_plan_bytes(const struct syi_plan *plan); /* of both */
/* The op that waits for the collective at `at`. */
size_t syi_wait_of(const struct syi_program *program, size_t at);
/* Places every tensor: sets offset and bytes of the tensors of n programs. Persist, io and carry are laid
 * out once by name (the same name must mean the same dtype and extents); scratch per program by lifetimes,
 * including each op's workspace (workspace[program][op], bytes). reuse = 0 gives every temporary its own
 * place (for tests). Alignment 64. A segment that is too large is SY_EINVAL. Offsets of workspaces are
 * returned in workspace_at[program][op]. */
int syi_plan(struct syi_program *const *programs, size_t n, uint64_t *const *workspace,
             uint64_t *const *workspace_at, int reuse, struct syi_plan *plan,
             struct sy_error *err) SYI_MUST_CHECK;

#endif
