/* SPDX-License-Identifier: Apache-2.0 */
/* The named numbers of a run without SQL: which there are, and their values. */
#ifndef SYI_SELECTION_H
#define SYI_SELECTION_H

#include "metrics/query.h"

struct syi_selection {
    const char *pattern; /* of names, as in syi_pattern_match; NULL: all */
    int64_t from, to;    /* steps, both included */
    int list;            /* 1: kind, name, rows, first_step, last_step; 0: step, name, value */
    enum syi_query_format format;
};

/* Valid rows only. Metrics have their name, evaluations TASK/NAME, statistics of parameters NAME/PARAMETER. */
int syi_selection_run(const char *path, const struct syi_selection *selection, syi_query_line_fn line,
                      void *arg, struct sy_error *err) SYI_MUST_CHECK;

#endif
