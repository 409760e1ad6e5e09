/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoints: logical tensors in safetensors files, no topology in them.
 * RUN_DIR/checkpoints/STEP/{params,state}.safetensors and meta.json, written as STEP.tmp by all ranks in
 * parallel (each its own part), fsynced, checksummed, renamed. Only a folder with its final name counts.
 * Parameters are named "target/NAME", optimizer state "state/..." as T5X's state_dict.
 *
 * A save has four stages. Ranks meet between two of them, so that a stage finds what the one before left, and a failure
 * on any rank ends the save on all:
 *
 *   MAKE   rank 0 makes STEP.tmp and both files in their full size; every rank plans what it writes
 *   WRITE  every rank writes its blocks and syncs the files
 *   HASH   rank 0 reads the files back: hashes, sums of tensors, meta.json, all synced
 *   NAME   rank 0 renames STEP.tmp to STEP, syncs the names, removes what need not stay
 *
 * A saver runs them in the caller, or in a thread of its own beside training:
 *
 *   main thread   begin: snapshot | step | advance | step | advance | ... | advance: the end
 *   its thread            MAKE ────────────► WRITE ────────► HASH ────► NAME
 *
 * The snapshot is a copy of parameters and state in memory that the plan counts (session.h). Communication is the main
 * thread's alone: each rank says with what the ranks exchange after every step anyway whether its stage has ended, and
 * the step after which all have is that at which all start the next. So no rank waits for another, and a stage starts
 * at the first meeting after the one before ended. One rank needs no meeting before NAME. Before NAME the main thread
 * calls `written`, for what is not the thread's to do.
 *
 * One checkpoint on its way, with SIGKILL at each point: in the snapshot or before MAKE nothing is on disk yet; in MAKE,
 * WRITE and HASH, and between them, there is a STEP.tmp, which no start takes for a checkpoint and the next one clears
 * away; in NAME the rename is done or not, and what is to be removed is renamed to STEP.tmp first. Before the rename the
 * run goes on from the checkpoint before, after it from this one, as it does without a thread. */
#ifndef SYI_CHECKPOINT_H
#define SYI_CHECKPOINT_H

#include "base/run_config.h"
#include "base/safetensors.h"
#include "data/batch.h"
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
    /* Numbers alone: of the steps since the last row of metrics; none in checkpoints made before there were these. */
    struct syi_action_state sums;
    struct syi_holes holes;
    struct syi_row_position
        rows; /* of packed rows: where to look for those of the next step; {0, 0}: anywhere */
    struct syi_file_id train, valid; /* the files read by the training that went on to this step; of valid,
                                        and in checkpoints made before there were these, maybe unknown */
    char params_sha256[65];          /* of the data section of params.safetensors: the hash of the weights */
    char state_sha256[65];
    char params_header_sha256[65]; /* of all before that section; "" in checkpoints made before there were
                                      these two: their headers are checked for form and fit only */
    char state_header_sha256[65];
    int is_sealed; /* read: meta.json has a hash of itself, which was compared */
};

/* The CRC-32C of the data of each tensor of both files: which one is damaged. */
struct syi_checkpoint_sums {
    struct syi_checkpoint_sum {
        char *name;
        uint32_t crc;
    } * sum; /* [n] */
    size_t n, capacity;
};
void syi_checkpoint_sums_free(struct syi_checkpoint_sums *sums); /* safe when zeroed */

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
    int64_t keep_every;     /* those of steps that it divides stay, too; 0: none */
    const int64_t *besides; /* [n_besides] steps of others that stay; at most SYI_CHECKPOINT_BESIDES */
    int n_besides;
    /* Ranks write their parts in `turns` turns, this one in `turn` from 0 on: the same `turns` on all ranks. 0: all at once. */
    int turn, turns;
    /* NULL, or called on rank 0 by the thread that saves or advances when all files are on disk, before they get the
     * name that makes them count; a failure of it is one of the save. */
    int (*written)(void *arg, struct sy_error *err);
    void *arg;
};
enum { SYI_CHECKPOINT_BESIDES = 256 };

/* Called by every rank (comm orders them). Rank 0 fills the hashes into *meta. SY_OK: all ranks have come to the
 * same end. It is a checkpoint on disk where failure->code is 0; else failure, which starts zeroed, says on every
 * rank why there is none: earlier ones stay, and the run may go on. Another status: the ranks cannot go on
 * together. */
int syi_checkpoint_save(const char *run_dir, struct syi_session *session, struct syi_comm *comm,
                        struct syi_checkpoint_meta *meta, const struct syi_checkpoint_saving *saving,
                        struct sy_error *failure, struct sy_error *err) SYI_MUST_CHECK;

/* ---- a saver: one save after the other, in the caller or beside it ---- */

struct syi_saver; /* of one rank; run_dir, session and comm are borrowed */
struct syi_saved {
    int64_t step;
    char params_sha256[65];  /* on rank 0 */
    double seconds;          /* from its begin to its end on this rank */
    struct sy_error failure; /* code 0: it is on disk; else why not, the same text on every rank */
};
int syi_saver_new(const char *run_dir, struct syi_session *session, struct syi_comm *comm,
                  struct syi_saver **saver, struct sy_error *err) SYI_MUST_CHECK;
/* Waits for the stage that its thread is in. A save that was not waited for is given up. NULL is fine. */
void syi_saver_free(struct syi_saver *saver);
/* Begins a save when none is under way; all ranks do. background: by the saver's thread, from a snapshot that is taken
 * now (the session has memory for one); else syi_saver_wait does the work, from the session's memory, which of several ranks
 * the thread does, too, while this one tells the others that it goes on. meta and *saving are
 * copied, saving->leaves and its arg are borrowed until the end. Nothing is communicated; what fails shows in the end. */
void syi_saver_begin(struct syi_saver *saver, const struct syi_checkpoint_meta *meta,
                     const struct syi_checkpoint_saving *saving, int background);
/* Step of the save under way, -1: none; the same on all ranks. */
int64_t syi_saver_step(const struct syi_saver *saver);
/* What a rank brings to the sum over all ranks, and what every rank does with the sums. */
enum { SYI_SAVER_ENDED, SYI_SAVER_FAILED, SYI_SAVER_WORDS };
void syi_saver_words(struct syi_saver *saver, int64_t word[SYI_SAVER_WORDS]);
int syi_saver_advance(struct syi_saver *saver, const int64_t sum[SYI_SAVER_WORDS],
                      struct sy_error *err) SYI_MUST_CHECK;
/* Brings the save under way to its end; all ranks call it. An error: the ranks cannot go on together. */
int syi_saver_wait(struct syi_saver *saver, struct sy_error *err) SYI_MUST_CHECK;
/* 1, once for each save that came to its end. */
int syi_saver_take(struct syi_saver *saver, struct syi_saved *saved);

/* ---- without a session ---- */

/* A checkpoint that is looked at: its files are open, their checksums not compared yet. */
struct syi_checkpoint_view {
    char *folder; /* .../checkpoints/STEP */
    int64_t step; /* in that name; -1: the folder was given, whatever it is called */
    struct syi_checkpoint_meta meta;
    struct syi_safetensors file[2]; /* parameters, state */
};
/* path: a run directory, of which `step` says which (a number, SYI_CHECKPOINT_LATEST or SYI_CHECKPOINT_BEST), or the
 * folder of a checkpoint. The caller closes the view, after a failure too. */
int syi_checkpoint_view_open(const char *path, int64_t step, struct syi_checkpoint_view *view,
                             struct sy_error *err) SYI_MUST_CHECK;
void syi_checkpoint_view_close(struct syi_checkpoint_view *view);
/* Opens one of which something is made: it is of the step that its folder is named by, and the checksums of its first n_files
 * files fit. */
int syi_checkpoint_view_take(const char *path, int64_t step, int n_files, struct syi_checkpoint_view *view,
                             struct sy_error *err) SYI_MUST_CHECK;
/* SY_EFORMAT: the folder is named by that step, and holds the checkpoint of another one. */
int syi_checkpoint_check_step(const char *folder, int64_t step, const struct syi_checkpoint_meta *meta,
                              struct sy_error *err) SYI_MUST_CHECK;
/* Compares file i with all checksums that meta.json has. */
int syi_checkpoint_view_check(const struct syi_checkpoint_view *view, int i,
                              struct sy_error *err) SYI_MUST_CHECK;

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

/* ---- loading ---- */

/* step: a number, SYI_CHECKPOINT_LATEST or SYI_CHECKPOINT_BEST. Every rank reads its own part. with_state 0:
 * parameters only, and run_dir may be a packed model (base/packed.h). Verifies checksums (rank 0), names, dtypes and shapes; every tensor of the files must be one of the
 * model and every one of the model there, and the first difference is named. Parameters may be stored as bfloat16, which
 * is widened. */
int syi_checkpoint_load(const char *run_dir, int64_t step, struct syi_session *session, struct syi_comm *comm,
                        int with_state, struct syi_checkpoint_meta *meta,
                        struct sy_error *err) SYI_MUST_CHECK;
/* The same with the state, which may have been written with these leaves or without; what has no tensor is not read. */
int syi_checkpoint_resume(const char *run_dir, int64_t step, struct syi_session *session,
                          struct syi_comm *comm, const struct syi_checkpoint_leaves *leaves,
                          struct syi_checkpoint_meta *meta, struct sy_error *err) SYI_MUST_CHECK;
/* Opens and verifies a checkpoint as syi_checkpoint_load does, and calls `take` on every rank with its file of parameters,
 * which is open until it returns, and its meta.json; on a thread beside the rank's where there are several ranks, so it
 * communicates nothing. */
struct syi_checkpoint_visit {
    const char *run_dir;
    int64_t step; /* or SYI_CHECKPOINT_LATEST, SYI_CHECKPOINT_BEST */
    struct syi_comm *comm;
    int (*take)(void *arg, const struct syi_safetensors *params, const struct syi_checkpoint_meta *meta,
                struct sy_error *err);
    void *arg;
};
int syi_checkpoint_visit(const struct syi_checkpoint_visit *visit, struct sy_error *err) SYI_MUST_CHECK;
/* Takes RUN_DIR/checkpoints/STEP apart: path becomes RUN_DIR. 0: it is no such path. */
int syi_checkpoint_split(char *path, int64_t *step);
/* *step: of the newest complete checkpoint, -1: there is none. Only a folder that is missing or empty has none;
 * one that cannot be read is an error, and one named by a step that holds something but is not complete. */
int syi_checkpoint_latest(const char *run_dir, int64_t *step, struct sy_error *err) SYI_MUST_CHECK;
/* *step: of the newest complete checkpoint of at most step `most`, -1: there is none. */
int syi_checkpoint_before(const char *run_dir, int64_t most, int64_t *step,
                          struct sy_error *err) SYI_MUST_CHECK;
/* Steps of all complete checkpoints, ascending; *steps is owned by the caller. A run without any has none. Errors as of
 * syi_checkpoint_latest. */
int syi_checkpoint_list(const char *run_dir, int64_t **steps, size_t *n, struct sy_error *err) SYI_MUST_CHECK;
/* The same, but what is an error of one folder, which may have been a checkpoint, is given to `damaged`, and the others are
 * listed. NULL: it is an error of the listing. */
typedef void (*syi_checkpoint_damaged_fn)(void *arg, const struct sy_error *why);
int syi_checkpoint_list_whole(const char *run_dir, syi_checkpoint_damaged_fn damaged, void *arg,
                              int64_t **steps, size_t *n, struct sy_error *err) SYI_MUST_CHECK;
/* The error of a run without a checkpoint, or of one that is not there. */
int syi_checkpoint_none(const char *run_dir, struct sy_error *err);
/* *step: of the best evaluation as the newest checkpoint has it, -1: nothing was evaluated. */
int syi_checkpoint_best(const char *run_dir, int64_t *step, struct sy_error *err) SYI_MUST_CHECK;
/* The step of `steps`, ascending, that has the weights of the evaluation `best`; where they are gone (their save failed),
 * the newest that was the best when it was saved; -1: none. */
int64_t syi_checkpoint_best_left(const char *run_dir, const int64_t *steps, size_t n, int64_t best);
/* Removes a complete checkpoint; a kill in the middle leaves no half of one. By the holder of the lock only. */
int syi_checkpoint_remove(const char *run_dir, int64_t step, struct sy_error *err) SYI_MUST_CHECK;
/* Clears away what a killed process left of a checkpoint that it wrote, replaced or removed. By the holder of the
 * run directory's lock only. */
int syi_checkpoint_clean(const char *run_dir, struct sy_error *err) SYI_MUST_CHECK;

#endif
