/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of checkpoint.c: folders and their names, meta.json, and a session's tensors in one file. */
#ifndef SYI_CHECKPOINT_PARTS_H
#define SYI_CHECKPOINT_PARTS_H

#include "base/safetensors.h"
#include "train/checkpoint/checkpoint.h"

/* ---- checkpoint_folder.c: checkpoints/STEP, STEP.tmp (being written), STEP.old (being replaced) ---- */

/* RUN_DIR/checkpoints/STEP + suffix, owned by the caller; NULL with an error. */
char *syi_checkpoint_path(const char *run_dir, int64_t step, const char *suffix,
                          struct sy_error *err) SYI_MUST_CHECK;
/* *folder of a complete checkpoint, owned by the caller; else NULL, and SY_ENOENT names those there are. */
int syi_checkpoint_find(const char *run_dir, int64_t step, char **folder,
                        struct sy_error *err) SYI_MUST_CHECK;
/* "; try --checkpoint with another step: 60, 40, 20 ..." for the end of a message that checkpoint `step` is
 * damaged; of one that is gone on from, which no option chooses, what else helps. */
void syi_checkpoint_advice(const char *run_dir, int64_t step, int resumed, char *text, size_t bytes);
/* Clears away what a killed process left, and makes an empty STEP.tmp. */
int syi_checkpoint_begin(const char *run_dir, int64_t step, struct sy_error *err) SYI_MUST_CHECK;
/* Gives STEP.tmp, whose files are on disk, its final name; then removes old ones beyond the newest how->keep,
 * but never that of step `best`, those of how->besides and of steps that how->keep_every divides. */
int syi_checkpoint_commit(const char *run_dir, int64_t step, int64_t best,
                          const struct syi_checkpoint_saving *how, struct sy_error *err) SYI_MUST_CHECK;
/* Removes STEP.tmp if it is there. */
void syi_checkpoint_discard(const char *run_dir, int64_t step);

/* ---- checkpoint.c ---- */

/* The step of the best evaluation, whose checkpoint is there. */
int syi_checkpoint_find_best(const char *run_dir, int64_t *step, struct sy_error *err) SYI_MUST_CHECK;

/* ---- checkpoint_meta.c ---- */

/* sums: NULL: none are written. */
int syi_checkpoint_meta_write(const char *folder, const struct syi_checkpoint_meta *meta,
                              const struct syi_checkpoint_sums *sums, struct sy_error *err) SYI_MUST_CHECK;
/* The sums that meta.json of the folder has, none in checkpoints made before there were any; freed by the caller, on
 * failure too. */
int syi_checkpoint_sums_read(const char *folder, struct syi_checkpoint_sums *sums,
                             struct sy_error *err) SYI_MUST_CHECK;
int syi_checkpoint_meta_read(const char *folder, struct syi_checkpoint_meta *meta,
                             struct sy_error *err) SYI_MUST_CHECK;

/* ---- checkpoint_sums.c ---- */

enum { SYI_CHECKPOINT_FILES = 2 };
struct syi_checkpoint_file {
    const char *name;
    enum syi_kind kind; /* of what is in it */
};
extern const struct syi_checkpoint_file
    syi_checkpoint_file[SYI_CHECKPOINT_FILES]; /* parameters, then state */
/* Reads file i of a folder once, as any reader will see it: its hashes into *meta, the sums of its tensors beside those
 * in *sums. written: of its writer, who is not yet done (base/safetensors.h); NULL: it is. */
int syi_checkpoint_hash(const char *folder, int i, struct syi_gate *written, struct syi_checkpoint_meta *meta,
                        struct syi_checkpoint_sums *sums, struct sy_error *err) SYI_MUST_CHECK;
/* Compares file i with what meta.json says of it. SY_EFORMAT says in what they differ, and names damaged tensors. */
int syi_checkpoint_check_file(const char *folder, const struct syi_safetensors *file, int i,
                              const struct syi_checkpoint_meta *meta, struct sy_error *err) SYI_MUST_CHECK;

/* ---- checkpoint_tensors.c ---- */

/* A session's tensors of one kind, under their names in a file, and what else stands there. */
struct syi_checkpoint_tensors {
    struct syi_safetensors_tensor *list; /* [n], global extents, by name; names are owned */
    struct syi_checkpoint_source {
        const struct syi_shared *shared; /* borrowed from the session; NULL: */
        const void *data;                /* all bytes, borrowed */
    } * source;                          /* [n] */
    size_t n;
    const struct syi_mesh *mesh;       /* borrowed from the session */
    const struct syi_session *session; /* borrowed */
};
/* leaves: of the state; NULL: none. */
int syi_checkpoint_tensors(const struct syi_session *session, enum syi_kind kind,
                           const struct syi_checkpoint_leaves *leaves, struct syi_checkpoint_tensors *tensors,
                           struct sy_error *err) SYI_MUST_CHECK;
void syi_checkpoint_tensors_free(struct syi_checkpoint_tensors *tensors); /* safe when zeroed */
/* Whether `rank` has anything to write. */
int syi_checkpoint_tensors_any(const struct syi_checkpoint_tensors *tensors, int rank);
/* Writes what `rank` has to write: its block of each tensor, unless a replica of lower rank does; from the session's
 * last snapshot, or as it is now. Whoever waits for it learns how far it has come. */
int syi_checkpoint_tensors_write(const struct syi_checkpoint_tensors *tensors, int rank, int snapshot,
                                 const struct syi_safetensors *file, struct sy_error *err) SYI_MUST_CHECK;
/* The first difference in names, dtypes and extents, both ways. */
int syi_checkpoint_tensors_compare(const struct syi_checkpoint_tensors *tensors,
                                   const struct syi_safetensors *file, struct sy_error *err) SYI_MUST_CHECK;
/* Reads this rank's blocks into the session's memory, bfloat16 widened. */
int syi_checkpoint_tensors_read(const struct syi_checkpoint_tensors *tensors,
                                const struct syi_safetensors *file, struct sy_error *err) SYI_MUST_CHECK;
/* The same of one tensor, whose dtype and extents fit. */
int syi_checkpoint_tensor_read(const struct syi_safetensors *file, const struct syi_safetensors_tensor *there,
                               const struct syi_shared *shared, struct sy_error *err) SYI_MUST_CHECK;

/* ---- checkpoint_packed.c ---- */

/* Compares all checksums of a packed model. step: that of the file or SYI_CHECKPOINT_LATEST, else SY_ENOENT. */
int syi_checkpoint_check_packed(const char *path, int64_t step, struct sy_error *err) SYI_MUST_CHECK;
/* Its parameters into the session; of *meta step and params_sha256. */
int syi_checkpoint_read_packed(const char *path, int64_t step, const struct syi_session *session,
                               struct syi_checkpoint_meta *meta, struct sy_error *err) SYI_MUST_CHECK;

#endif
