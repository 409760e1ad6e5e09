/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoints: logical tensors in safetensors files, no topology in them.
 * RUN_DIR/checkpoints/STEP/{params,state}.safetensors and meta.json, written as STEP.tmp by all ranks in
 * parallel (each its own part), fsynced, checksummed, renamed. Only a folder with its final name counts.
 * Parameters are named "target/NAME", optimizer state "state/..." as T5X's state_dict. */
#ifndef SYI_CHECKPOINT_H
#define SYI_CHECKPOINT_H

#include "base/run_config.h"
#include "runtime/session.h"

/* What one action remembers, see struct syi_action_state. */
struct syi_checkpoint_action {
    char name[SYI_PART_NAME];
    int64_t metric, best_step, stale, unbroken;
    double best, previous; /* NaN: none */
};

struct syi_checkpoint_meta {
    int64_t step;       /* steps done */
    int64_t examples;   /* of the training stream consumed */
    double best_metric; /* early stopping's best value so far; NaN: none */
    int64_t best_step;
    int64_t stale;          /* evaluations since the best */
    double previous_metric; /* of the last evaluation; NaN: none */
    int64_t unbroken;       /* evaluations in a row that are no better than the one before */
    int64_t best_of;        /* which value: SYI_METRIC_* (in meta.json its number) */
    int64_t evaluated;      /* step of the last evaluation, -1: none */
    int n_actions;          /* 0 also in checkpoints made before there were several */
    struct syi_checkpoint_action action[SYI_CONFIG_PARTS];
    char params_sha256[65]; /* of the data section of params.safetensors: the hash of the weights */
    char state_sha256[65];
};

enum { SYI_CHECKPOINT_LATEST = -1, SYI_CHECKPOINT_BEST = -2 }; /* in place of a step */

/* Called by every rank (comm's barriers order them). Rank 0 fills the hashes into *meta. keep: the newest
 * checkpoints that stay, and besides them that of meta->best_step; 0 all. */
int syi_checkpoint_save(const char *run_dir, struct syi_session *session, struct syi_comm *comm,
                        struct syi_checkpoint_meta *meta, int keep, struct sy_error *err) SYI_MUST_CHECK;
/* step: a number, SYI_CHECKPOINT_LATEST or SYI_CHECKPOINT_BEST. Every rank reads its own part. with_state 0:
 * parameters only. Verifies checksums (rank 0), names, dtypes and shapes; the first difference from the model
 * is named. */
int syi_checkpoint_load(const char *run_dir, int64_t step, struct syi_session *session, struct syi_comm *comm,
                        int with_state, struct syi_checkpoint_meta *meta,
                        struct sy_error *err) SYI_MUST_CHECK;
/* The newest complete checkpoint, or -1. */
int64_t syi_checkpoint_latest(const char *run_dir);

#endif
