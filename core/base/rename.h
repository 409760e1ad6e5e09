/* SPDX-License-Identifier: Apache-2.0 */
/* Rules that choose names and give them others: "PATTERN" takes names as they are, "PATTERN -> NAME" under another
 * name, "!PATTERN" leaves them out of the rules that follow. */
#ifndef SYI_RENAME_H
#define SYI_RENAME_H

#include "base/run_config.h"

struct syi_rename {
    int excludes;                 /* 1: "!PATTERN" */
    char from[SYI_CONFIG_STRING]; /* the pattern */
    char to
        [SYI_CONFIG_STRING]; /* the new name, each `*` in it what the next one of the pattern stands for; "": the
                                     old name */
};

/* SY_EINVAL and one sentence in reason: no pattern, no name, more `*` in the name than in the pattern. */
int syi_rename_parse(const char *text, struct syi_rename *rule, char reason[SYI_REASON]) SYI_MUST_CHECK;
/* Whether the rule is about the name; *renamed, if it is not NULL: what it is called by it, owned by the caller, NULL
 * where memory is short. */
int syi_rename_match(const struct syi_rename *rule, const char *name, char **renamed);

#endif
