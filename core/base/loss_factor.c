/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the value of loss.loss_normalizing_factor. A number is neither 0 nor infinite in float32, in
 * which sums are divided by it. */
#include "config.h"

#include <math.h>
#include <string.h>

#include "base/loss_factor.h"
#include "base/text.h"

int syi_loss_factor_parse(struct syi_loss_factor *factor, const char *text, struct sy_error *err)
{
    static const struct {
        const char *name;
        enum syi_loss_factor_kind kind;
    } names[] = {{"none", SYI_LOSS_FACTOR_NONE},
                 {"NUM_REAL_TARGET_TOKENS", SYI_LOSS_FACTOR_REAL_TOKENS},
                 {"NUM_TOTAL_TARGET_TOKENS", SYI_LOSS_FACTOR_TOTAL_TOKENS},
                 {"AVERAGE_PER_SEQUENCE", SYI_LOSS_FACTOR_PER_SEQUENCE}};
    const char *end;
    *factor = (struct syi_loss_factor){SYI_LOSS_FACTOR_NONE, 0};
    for (size_t i = 0; i < SYI_COUNT(names); i++) {
        if (strcmp(text, names[i].name)) continue;
        factor->kind = names[i].kind;
        return SY_OK;
    }
    factor->kind = SYI_LOSS_FACTOR_NUMBER;
    factor->number = syi_parse_double(text, &end);
    if (end != text && !*end && isfinite((float)factor->number) && (float)factor->number != 0) return SY_OK;
    return syi_error(err, SY_EINVAL,
                     "loss.loss_normalizing_factor: %s is none of none, a number of 1e-45 to 3.4e38 in size, "
                     "NUM_REAL_TARGET_TOKENS, NUM_TOTAL_TARGET_TOKENS, AVERAGE_PER_SEQUENCE",
                     text);
}
