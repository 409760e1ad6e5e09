/* SPDX-License-Identifier: Apache-2.0 */
/* When a run has to stop without being asked to: after train.time_limit, and train.job_margin before the end of the batch
 * job, which Slurm gives its programs. By rank 0's clock. */
#ifndef SYI_DEADLINE_H
#define SYI_DEADLINE_H

#include "base/run_config.h"

enum syi_deadline_kind { SYI_DEADLINE_NONE, SYI_DEADLINE_LIMIT, SYI_DEADLINE_JOB };

struct syi_deadline {
    enum syi_deadline_kind kind;
    double at; /* syi_seconds() */
};

/* The earlier of the two. begin: of the run, as syi_seconds() has it. Reads SLURM_JOB_END_TIME (seconds since 1970); a job
 * that ends so soon that the margin is more than half of what is left has half of it as margin. */
struct syi_deadline syi_deadline_of(const struct syi_config *config, double begin);
/* Which of the two is over; SYI_DEADLINE_NONE: neither. */
enum syi_deadline_kind syi_deadline_passed(const struct syi_deadline *deadline);
/* Why a run stopped, for the end of its last line. */
void syi_deadline_text(const struct syi_config *config, enum syi_deadline_kind kind, char *text,
                       size_t bytes);

#endif
