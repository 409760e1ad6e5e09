/* SPDX-License-Identifier: Apache-2.0 */
/* The table of factors of a learning rate. */
#include "config.h"

#include "base/schedules.h"

#define SYI_TERMS_FILE       "base/schedules.def"
#define SYI_TERMS_NAME(name) syi_schedule_##name
#define SYI_TERMS_ID(name)   SYI_SCHEDULE_FACTOR_##name
#include "base/terms_kinds.h"

const struct syi_term_kind *syi_schedule_kinds(size_t *n)
{
    *n = SYI_COUNT(kinds);
    return kinds;
}

int syi_schedule_read(struct syi_terms *terms, const char *text, char reason[SYI_TERM_REASON])
{
    return syi_terms_read_product(terms, kinds, SYI_COUNT(kinds), text, reason);
}
