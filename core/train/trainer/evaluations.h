/* SPDX-License-Identifier: Apache-2.0 */
/* The evaluations of a run, one a task that has a file for it, in the order of the run file. */
#ifndef SYI_EVALUATIONS_H
#define SYI_EVALUATIONS_H

#include "train/trainer/evaluate.h"

/* The files; of a process. */
struct syi_eval_files {
    int n;
    struct syi_eval_data data[SYI_CONFIG_PARTS];
};
enum syi_eval_split { SYI_EVAL_VALID, SYI_EVAL_TEST };
/* Those of all tasks, or of the one of that name. None is no error. config is borrowed. world: as of syi_eval_data_load. */
int syi_eval_files_load(struct syi_eval_files *files, const struct syi_config *config,
                        enum syi_eval_split split, const char *task, struct syi_world *world,
                        struct sy_error *err) SYI_MUST_CHECK;
void syi_eval_files_free(struct syi_eval_files *files);
int syi_eval_files_use(const struct syi_eval_files *files); /* enum syi_engine_use */

/* One rank's part, and the results of the last time. */
struct syi_evaluations {
    int n;
    struct syi_evaluation part[SYI_CONFIG_PARTS];
    struct syi_eval_result result[SYI_CONFIG_PARTS];
};
/* files, report: borrowed; report: NULL, or what learns on rank 0 how far they are. */
int syi_evaluations_open(struct syi_evaluations *evaluations, const struct syi_eval_files *files,
                         const struct syi_config *config, struct syi_engine *engine,
                         const struct syi_rank *rank, const struct syi_report *report,
                         struct sy_error *err) SYI_MUST_CHECK;
void syi_evaluations_use(struct syi_evaluations *evaluations, struct syi_engine *engine);
void syi_evaluations_close(struct syi_evaluations *evaluations);
/* One after the other; decode 0: without what needs outputs. */
int syi_evaluations_run(struct syi_evaluations *evaluations, int decode, syi_poll_fn poll, void *poll_arg,
                        struct sy_error *err) SYI_MUST_CHECK;
/* The files of the first n evaluations, as one; of none all is 0. */
struct syi_file_id syi_evaluations_id(const struct syi_evaluations *evaluations, int n);
/* "FILE: 20 items, 1 too long and counted as wrong" */
void syi_evaluation_describe(const struct syi_evaluation *evaluation, char *text, size_t bytes);

#endif
