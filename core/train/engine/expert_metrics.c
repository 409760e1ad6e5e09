/* SPDX-License-Identifier: Apache-2.0 */
/* Expert metrics from counts; with metrics.divide_by = all as flaxformer counts. */
#include "config.h"

#include <math.h>

#include "base/compat.h"
#include "train/engine/expert_metrics.h"

/* Tokens that could have been served. flaxformer's scatter path counts real tokens once for each choice. */
static int64_t candidates(const struct syi_config *c, int type, const struct syi_expert_counts *counts)
{
    if (syi_compat(c, c->moe.ignore_padding_tokens)) return counts->tokens;
    int repeated = type == SYI_ROUTER_TOKENS_CHOOSE_SCATTER && syi_compat(c, c->metrics.divide_by);
    return counts->real * (repeated ? counts->choices : 1);
}

struct syi_expert_metrics syi_expert_metrics(const struct syi_config *c, int type,
                                             const struct syi_expert_counts *counts)
{
    int64_t all = candidates(c, type, counts);
    float none = syi_compat(c, c->metrics.divide_by) ? NAN : 0;
    return (struct syi_expert_metrics){
        .left_behind = all ? 1 - (float)counts->served / (float)all : 0,
        .usage = type == SYI_ROUTER_EXPERTS_CHOOSE_MASKED ? 1 : (float)counts->kept / (float)counts->slots,
        .confidence = counts->kept ? (float)(counts->confidence / (double)counts->kept) : none};
}
