/* SPDX-License-Identifier: Apache-2.0 */
/* What switchyard diff found as text. Prints nothing itself. */
#ifndef CLI_DIFF_REPORT_H
#define CLI_DIFF_REPORT_H

#include "base/text.h"
#include "train/compare/lockstep.h"

struct cli_diff_request {
    const char *file[2]; /* run files of both sides */
    double tolerance;    /* 0: bits */
};

/* Lines for a reader; one JSON object. */
void cli_diff_report(const struct cli_diff_request *request, const struct syi_lockstep_result *result,
                     struct syi_text *text);
void cli_diff_json(const struct cli_diff_request *request, const struct syi_lockstep_result *result,
                   struct syi_text *text);

#endif
