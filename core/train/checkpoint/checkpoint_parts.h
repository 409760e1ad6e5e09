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
/* Steps of all complete checkpoints, ascending; *steps is owned by the caller. A run without any has none. */
int syi_checkpoint_list(const char *run_dir, int64_t **steps, size_t *n, struct sy_error *err) SYI_MUST_CHECK;
/* *folder of a complete checkpoint, owned by the caller; else NULL, and SY_ENOENT names those there are. */
int syi_checkpoint_find(const char *run_dir, int64_t step, char **folder,
                        struct sy_error *err) SYI_MUST_CHECK;
/* "; try --checkpoint with another step: 60, 40, 20 ..." for the end of a message that checkpoint `step` is
 * damaged. */
void syi_checkpoint_advice(const char *run_dir, int64_t step, char *text, size_t bytes);
/* Clears away what a killed process left, and makes an empty STEP.tmp. */
int syi_checkpoint_begin(const char *run_dir, int64_t step, struct sy_error *err) SYI_MUST_CHECK;
/* Gives STEP.tmp, whose files are on disk, its final name; then removes old ones beyond the newest how->keep,
 * but never that of step `best` or those of how->besides. */
int syi_checkpoint_commit(const char *run_dir, int64_t step, int64_t best,
                          const struct syi_checkpoint_saving *how, struct sy_error *err) SYI_MUST_CHECK;
/* Removes STEP.tmp if it is there. */
void syi_checkpoint_discard(const char *run_dir, int64_t step);

/* ---- checkpoint_meta.c ---- */

int syi_checkpoint_meta_write(const char *folder, const struct syi_checkpoint_meta *meta,
                              struct sy_error *err) SYI_MUST_CHECK;
int syi_checkpoint_meta_read(const char *folder, struct syi_checkpoint_meta *meta,
                             struct sy_error *err) SYI_MUST_CHECK;

/* ---- checkpoint_tensors.c ---- */

/* A session's tensors of one kind, under their names in a file, and what else stands there. */
struct syi_checkpoint_tensors {
    struct syi_safetensors_tensor *list; /* [n], global extents, by name; names are owned */
    struct syi_checkpoint_source {
        const struct syi_shared *shared; /* borrowed from the session; NULL: */
        const void *data;                /* all bytes, borrowed */
    } * source;                          /* [n] */
    size_t n;
    const struct syi_mesh *mesh; /* borrowed from the session */
};
/* leaves: of the state; NULL: none. */
int syi_checkpoint_tensors(const struct syi_session *session, int kind,
                           const struct syi_checkpoint_leaves *leaves, struct syi_checkpoint_tensors *tensors,
                           struct sy_error *err) SYI_MUST_CHECK;
void syi_checkpoint_tensors_free(struct syi_checkpoint_tensors *tensors); /* safe when zeroed */
/* Writes what `rank` has to write: its block of each tensor, unless a replica of lower rank does. */
int syi_checkpoint_tensors_write(const struct syi_checkpoint_tensors *tensors, int rank,
                                 const struct syi_safetensors *file, struct sy_error *err) SYI_MUST_CHECK;
/* The first difference in names, dtypes and extents, both ways. */
int syi_checkpoint_tensors_compare(const struct syi_checkpoint_tensors *tensors,
                                   const struct syi_safetensors *file, struct sy_error *err) SYI_MUST_CHECK;
/* Reads this rank's blocks into the session's memory. */
int syi_checkpoint_tensors_read(const struct syi_checkpoint_tensors *tensors,
                                const struct syi_safetensors *file, struct sy_error *err) SYI_MUST_CHECK;

/* ---- checkpoint.c ---- */

/* The hashes that meta.json keeps of a file: of its data section, and of all before that. */
int syi_checkpoint_hash(const char *path, char data[65], char header[65],
                        struct sy_error *err) SYI_MUST_CHECK;

#endif
