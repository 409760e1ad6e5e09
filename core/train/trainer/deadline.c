/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <inttypes.h>
#include <stdlib.h>
#include <time.h>

#include "train/trainer/deadline.h"

/* Seconds from now to the end of the batch job; not above 0: there is none. */
static double seconds_of_job(void)
{
    const char *text = getenv("SLURM_JOB_END_TIME");
    char *end = NULL;
    if (!text || !*text) return 0;
    long long at = strtoll(text, &end, 10);
    if (!*end && at > 0) return (double)(at - (long long)time(NULL));
    syi_log(SY_LOG_WARN, "SLURM_JOB_END_TIME=%.40s is not a time in seconds: the end of the job is not known",
            text);
    return 0;
}

struct syi_deadline syi_deadline_of(const struct syi_config *config, double begin)
{
    struct syi_deadline deadline = {.kind = SYI_DEADLINE_NONE};
    double margin = (double)config->train.job_margin, left = margin > 0 ? seconds_of_job() : 0;
    if (config->train.time_limit)
        deadline = (struct syi_deadline){SYI_DEADLINE_LIMIT, begin + (double)config->train.time_limit};
    if (left <= 0) return deadline;
    double at = syi_seconds() + (margin > left / 2 ? left / 2 : left - margin);
    if (deadline.kind && deadline.at <= at) return deadline;
    return (struct syi_deadline){SYI_DEADLINE_JOB, at};
}

enum syi_deadline_kind syi_deadline_passed(const struct syi_deadline *deadline)
{
    return deadline->kind && syi_seconds() >= deadline->at ? deadline->kind : SYI_DEADLINE_NONE;
}

void syi_deadline_text(const struct syi_config *config, enum syi_deadline_kind kind, char *text, size_t bytes)
{
    if (kind == SYI_DEADLINE_JOB)
        snprintf(text, bytes, "the batch job ends soon (train.job_margin)");
    else
        snprintf(text, bytes, "train.time_limit of %" PRId64 " s reached", config->train.time_limit);
}
