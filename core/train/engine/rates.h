/* SPDX-License-Identifier: Apache-2.0 */
/* How fast steps are, under the names of T5X's timing metrics (models.py, compute_base_metrics). */
#ifndef SYI_RATES_H
#define SYI_RATES_H

#include <stdint.h>

/* Of steps so far; zeros at first. */
struct syi_rates {
    double steps, seconds, sequences, targets;
};
/* A step: rows of its batch, target tokens. */
void syi_rates_add(struct syi_rates *rates, double seconds, int64_t sequences, int64_t targets);

struct syi_rate {
    const char *name; /* "timing/seconds" */
    double value;
};
enum { SYI_RATES = 7 };
/* Their metrics; a device (T5X: core) is a rank. Returns how many: none before the first step. */
int syi_rates_values(const struct syi_rates *rates, int devices, struct syi_rate value[SYI_RATES]);

#endif
