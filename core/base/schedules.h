/* SPDX-License-Identifier: Apache-2.0 */
/* The factors of a learning rate that a run file can name (schedules.def): struct syi_schedule_NAME holds the
 * arguments of one, SYI_SCHEDULE_FACTOR_NAME is its number. */
#ifndef SYI_SCHEDULES_H
#define SYI_SCHEDULES_H

#include "base/terms.h"

#define SYI_TERMS_FILE       "base/schedules.def"
#define SYI_TERMS_NAME(name) syi_schedule_##name
#define SYI_TERMS_ID(name)   SYI_SCHEDULE_FACTOR_##name
#include "base/terms_structs.h"
#undef SYI_TERMS_FILE
#undef SYI_TERMS_NAME
#undef SYI_TERMS_ID

/* Reads a product of factors, "constant * linear_warmup(warmup_steps=1000)", added to terms; as
 * syi_terms_read_product, with what must hold between the arguments of a factor. */
int syi_schedule_read(struct syi_terms *terms, const char *text, char reason[SYI_TERM_REASON]) SYI_MUST_CHECK;
/* Whether a product can be read; where: the key that it stands in, which opens the message. */
int syi_schedule_check(const char *where, const char *product, struct sy_error *err) SYI_MUST_CHECK;
const struct syi_term_kind *syi_schedule_kinds(size_t *n); /* borrowed, static */

#endif
