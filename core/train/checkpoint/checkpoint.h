/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoints: logical tensors in safetensors files, no topology in them.
 * RUN_DIR/checkpoints/STEP/{params,state}.safetensors and meta.json, written as STEP.tmp by all ranks in
 * parallel (each its own part), fsynced, checksummed, renamed. Only a folder with its final name counts.
 * Parameters are named "target/NAME", optimizer state "state/..." as T5X's state_dict. */
#ifndef SYI_CHECKPOINT_H
#define SYI_CHECKPOINT_H

#include "base/run_config.h"
#include "base/safetensors.h"
#include "runtime/session.h"

/* What one action remembers: numbers with names. */
enum { SYI_ACTION_NUMBERS = 40, SYI_ACTION_NUMBER_NAME = 32, SYI_ACTION_WATCHES = 160 };
struct syi_action_number {
    char name[SYI_ACTION_NUMBER_NAME];
    double value; /* NaN and infinities too; a count or a step is exact up to 2^53 */
};
struct syi_action_state {
    char name[SYI_PART_NAME]; /* of its part; "": the best of all evaluations */
    char
        watches[SYI_ACTION_WATCHES]; /* what the numbers are of, as "min loss": of another they say nothing */
    int n;
    struct syi_action_number number[SYI_ACTION_NUMBERS]; /* [n], each name once */
};

/* From `step` on the training stream goes on so many batches later; they were never trained on, or undone. */
struct syi_hole {
    int64_t step, batches;
};
enum { SYI_HOLES = 256 };
struct syi_holes {
    int n;
    struct syi_hole hole[SYI_HOLES]; /* [n], steps ascend */
};

struct syi_checkpoint_meta {
    int64_t step;       /* steps done */
    int64_t examples;   /* of the training stream consumed or left out */
    double best_metric; /* the best value of an evaluation so far; NaN: none */
    int64_t best_step;  /* of it, -1: none */
    int64_t evaluated;  /* step of the last evaluation, -1: none */
    int n_actions;
    struct syi_action_state action[SYI_CONFIG_PARTS + 1];
    struct syi_holes holes;
    struct syi_file_id train, valid; /* the files read by the training that went on to this step; of valid,
                                        and in checkpoints made before there were these, maybe unknown */
    char params_sha256[65];          /* of the data section of params.safetensors: the hash of the weights */
    char state_sha256[65];
    char params_header_sha256[65]; /* of all before that section; "" in checkpoints made before there were
                                      these two: their headers are checked for form and fit only */
    char state_header_sha256[65];
};

/* A leaf of state.safetensors as another program names it: a tensor of the session's state under another name, or a
 * few bytes that the session has no tensor for. */
struct syi_checkpoint_leaf {
    const char *name;                        /* in the file, borrowed */
    const char *tensor;                      /* of the session, borrowed; NULL: `data` is written */
    int is_scalar;                           /* 1: a tensor [1] that has no dims in the file */
    struct syi_safetensors_tensor described; /* of data: dtype and extents */
    unsigned char data[8];
};
struct syi_checkpoint_leaves {
    struct syi_checkpoint_leaf *leaf; /* [n] in the order of `tensor`, those without at the end */
    size_t n;
};

enum { SYI_CHECKPOINT_LATEST = -1, SYI_CHECKPOINT_BEST = -2 }; /* in place of a step */

/* What belongs to saving besides the tensors. */
struct syi_checkpoint_saving {
    int keep; /* the newest checkpoints that stay, and besides them that of meta->best_step; 0 all */
    const struct syi_checkpoint_leaves
        *leaves;            /* borrowed; NULL: state has the session's names, and nothing else */
    const int64_t *besides; /* [n_besides] steps of others that stay */
    int n_besides;
    /* NULL, or called on rank 0 when all files are on disk, before they get the name that makes them count. */
    void (*written)(void *arg);
    void *arg;
};

/* Called by every rank (comm orders them). Rank 0 fills the hashes into *meta. SY_OK: all ranks have come to the
 * same end. It is a checkpoint on disk where failure->code is 0; else failure, which starts zeroed, says on every
 * rank why there is none: earlier ones stay, and the run may go on. Another status: the ranks cannot go on
 * together. */
int syi_checkpoint_save(const char *run_dir, struct syi_session *session, struct syi_comm *comm,
                        struct syi_checkpoint_meta *meta, const struct syi_checkpoint_saving *saving,
                        struct sy_error *failure, struct sy_error *err) SYI_MUST_CHECK;
/* Tensors of one file of a checkpoint that no session holds. */
struct syi_checkpoint_list {
    const struct syi_safetensors_tensor *list; /* [n] */
    size_t n;
};
/* Writes every tensor of the file, which is params.safetensors or state.safetensors. */
typedef int (*syi_checkpoint_fill_fn)(void *arg, const struct syi_safetensors *file, struct sy_error *err);
/* The checkpoint of meta->step, by this process alone, from lists instead of a session; fills the hashes into *meta.
 * Nothing is left of it after a failure. */
int syi_checkpoint_write(const char *run_dir, struct syi_checkpoint_meta *meta,
                         const struct syi_checkpoint_list *params, const struct syi_checkpoint_list *state,
                         syi_checkpoint_fill_fn fill, void *arg, struct sy_error *err) SYI_MUST_CHECK;
/* step: a number, SYI_CHECKPOINT_LATEST or SYI_CHECKPOINT_BEST. Every rank reads its own part. with_state 0:
 * parameters only. Verifies checksums (rank 0), names, dtypes and shapes; the first difference from the model
 * is named. */
int syi_checkpoint_load(const char *run_dir, int64_t step, struct syi_session *session, struct syi_comm *comm,
                        int with_state, struct syi_checkpoint_meta *meta,
                        struct sy_error *err) SYI_MUST_CHECK;
/* The same with the state, which may have been written with these leaves or without; what has no tensor is not read. */
int syi_checkpoint_resume(const char *run_dir, int64_t step, struct syi_session *session,
                          struct syi_comm *comm, const struct syi_checkpoint_leaves *leaves,
                          struct syi_checkpoint_meta *meta, struct sy_error *err) SYI_MUST_CHECK;
/* The files of a checkpoint for reading, verified as for loading, by this process alone. Closed by the caller, also after a
 * failure (syi_safetensors_close). */
int syi_checkpoint_open(const char *run_dir, int64_t step, struct syi_checkpoint_meta *meta,
                        struct syi_safetensors *params, struct syi_safetensors *state,
                        struct sy_error *err) SYI_MUST_CHECK;
/* *step: of the newest complete checkpoint, -1: there is none. Only a folder that is missing or empty has none;
 * one that cannot be read is an error. */
int syi_checkpoint_latest(const char *run_dir, int64_t *step, struct sy_error *err) SYI_MUST_CHECK;
/* *step: of the newest complete checkpoint of at most step `most`, -1: there is none. */
int syi_checkpoint_before(const char *run_dir, int64_t most, int64_t *step,
                          struct sy_error *err) SYI_MUST_CHECK;
/* Clears away what a killed process left of a checkpoint that it wrote, replaced or removed. By the holder of the
 * run directory's lock only. */
int syi_checkpoint_clean(const char *run_dir, struct sy_error *err) SYI_MUST_CHECK;

#endif
