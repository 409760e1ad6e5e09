/* SPDX-License-Identifier: Apache-2.0 */
/* Which dims of a parameter Adafactor keeps means of: by a map in the run file, by logical axes, or by size (T5X
 * adafactor.py, contrib/moe/adafactor_utils.py). */
#ifndef SYI_FACTORS_H
#define SYI_FACTORS_H

#include "optim/optim.h"

/* Sets of dims, a bit each; those in none are kept in every mean too. A parameter is factored where row or column is
 * not empty. */
struct syi_factors {
    unsigned batch;       /* kept in every mean */
    unsigned row, column; /* v_row keeps row and is the mean over column; v_col the reverse */
};

/* Of the parameter at hand; a rule that does not fit it fails the recording: SY_ENOENT where there is none for an axis
 * or a name, else SY_EINVAL. */
struct syi_factors syi_factors_of(struct syi_optim *o, const struct syi_transform_adafactor *options);
/* What the rules (SYI_FACTOR_*) make of a dim by the logical axes of all: "row" and "column", only where there are both,
 * "batch", "none"; "": they do not know the axis. */
const char *syi_factor_word(int rules, int rank, const uint8_t *axis, int dim);
/* In a list of "PATTERN: TEXT", the text of the first pattern that the name matches; NULL: there is none. */
const char *syi_rule_of(const struct syi_strings *rules, const char *name);

#endif
