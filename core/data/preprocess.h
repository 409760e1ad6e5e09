/* SPDX-License-Identifier: Apache-2.0 */
/* What is done to an example's ids before they become a row, as pure functions: the end token, cutting to a length.
 * Behaviour: seqio's preprocessors.py (append_eos, append_eos_after_trim) and utils.py (trim_dataset). */
#ifndef SYI_PREPROCESS_H
#define SYI_PREPROCESS_H

#include "data/vocabulary.h"

enum { SYI_NO_LENGTH = -1 }; /* in place of a length: no limit */

/* Cuts to `length` ids; SYI_NO_LENGTH leaves all. */
void syi_trim(struct syi_ids *ids, int32_t length);
/* Appends padding up to `length` ids. */
int syi_pad(struct syi_ids *ids, int32_t length, struct sy_error *err) SYI_MUST_CHECK;
/* Appends the end token, whatever the length. */
int syi_append_end(struct syi_ids *ids, int32_t end, struct sy_error *err) SYI_MUST_CHECK;
/* Cuts to length - 1 ids first, so that the end token is kept; length at least 1 or SYI_NO_LENGTH. */
int syi_append_end_after_trim(struct syi_ids *ids, int32_t length, int32_t end,
                              struct sy_error *err) SYI_MUST_CHECK;

#endif
