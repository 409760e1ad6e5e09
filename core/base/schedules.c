/* SPDX-License-Identifier: Apache-2.0 */
/* The table of factors of a learning rate. */
#include "config.h"

#include <inttypes.h>
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

/* What must hold between the arguments of one factor. */
static int check_boundaries(const struct syi_schedule_piecewise_constant *f, char reason[SYI_TERM_REASON])
{
    const int64_t *at = f->boundaries.values;
    int n = f->boundaries.n, i = 1;
    while (i < n && at[i] > at[i - 1]) i++;
    if (!n)
        snprintf(reason, SYI_TERM_REASON,
                 "piecewise_constant: boundaries are missing, as in (boundaries=[1000], scales=[0.1])");
    else if (n != f->scales.n)
        snprintf(reason, SYI_TERM_REASON,
                 "piecewise_constant: %d boundaries need as many scales, there are %d", n, f->scales.n);
    else if (i < n)
        snprintf(reason, SYI_TERM_REASON,
                 "piecewise_constant: boundaries must ascend: %" PRId64 " stands after %" PRId64, at[i],
                 at[i - 1]);
    return n && n == f->scales.n && i == n ? SY_OK : SY_EINVAL;
}

int syi_schedule_read(struct syi_terms *terms, const char *text, char reason[SYI_TERM_REASON])
{
    int first = terms->n, status = syi_terms_read_product(terms, kinds, SYI_COUNT(kinds), text, reason);
    for (int i = first; !status && i < terms->n; i++)
        if (terms->term[i].kind == &kinds[SYI_SCHEDULE_FACTOR_piecewise_constant])
            status = check_boundaries((const void *)terms->term[i].values, reason);
    return status;
}

int syi_schedule_check(const char *where, const char *product, struct sy_error *err)
{
    char reason[SYI_TERM_REASON];
    struct syi_terms *terms = syi_alloc(sizeof *terms, err);
    if (!terms) return SY_ENOMEM;
    int status = syi_schedule_read(terms, product, reason);
    if (status) syi_error(err, status, "%s: %s", where, reason);
    syi_free(terms);
    return status;
}
