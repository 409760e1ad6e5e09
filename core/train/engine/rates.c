/* SPDX-License-Identifier: Apache-2.0 */
/* Rates of steps. */
#include "config.h"

#include "train/engine/merge.h"
#include "train/engine/rates.h"

void syi_rates_add(struct syi_rates *rates, double seconds, int64_t sequences, int64_t targets)
{
    rates->steps += 1;
    rates->seconds += seconds;
    rates->sequences += (double)sequences;
    rates->targets += (double)targets;
}

int syi_rates_values(const struct syi_rates *r, int devices, struct syi_rate value[SYI_RATES])
{
    const struct {
        const char *name;
        struct syi_merged merged;
    } rows[SYI_RATES] = {
        {"timing/seconds", {SYI_MERGE_TIME, 0, 0}},
        {"timing/steps_per_second", {SYI_MERGE_STEP_RATE, 0, r->steps}},
        {"timing/seqs", {SYI_MERGE_SUM, r->sequences, 0}},
        {"timing/seqs_per_second", {SYI_MERGE_RATE, r->sequences, 0}},
        {"timing/seqs_per_second_per_core", {SYI_MERGE_RATE, r->sequences / devices, 0}},
        {"timing/target_tokens_per_second", {SYI_MERGE_RATE, r->targets, 0}},
        {"timing/target_tokens_per_second_per_core", {SYI_MERGE_RATE, r->targets / devices, 0}},
    };
    const struct syi_merge_span span = {.seconds = r->seconds};
    if (!(r->steps > 0 && r->seconds > 0)) return 0;
    for (int i = 0; i < SYI_RATES; i++) {
        value[i].name = rows[i].name;
        syi_merged_value(&rows[i].merged, &span, &value[i].value);
    }
    return SYI_RATES;
}
