/* SPDX-License-Identifier: Apache-2.0 */
/* The training stream: at each place 0, 1, 2, ... one example of one task, a pure function of (seed, tasks, place), so a run
 * goes on anywhere without replaying anything. A task's examples come in epochs, each a computed permutation; several
 * tasks take turns in windows of places that each has its exact share of. */
#ifndef SYI_MIXTURE_H
#define SYI_MIXTURE_H

#include "data/dataset.h"

/* Places of a window. A task of rate r (of a sum of 1) has floor(r P) of the first P places, P a multiple of it, and the
 * task of the highest rate those that are left; inside a window places are shuffled. */
enum { SYI_MIXTURE_WINDOW = 4096 };

struct syi_mixture {
    struct syi_dataset dataset[SYI_CONFIG_PARTS]; /* [n] */
    double rate[SYI_CONFIG_PARTS];                /* [n] sums to 1 */
    int n, highest; /* highest: the task of the highest rate, the first of such */
    uint64_t seed;
    int64_t warm_examples; /* the stream begins with that many short examples */
    int64_t *warm;         /* [n_warm] entries that count as short */
    int64_t n_warm;
    struct syi_file_id id; /* of the data of all tasks */
};

/* Opens the tasks that config trains on; what it borrows must stay. Warm-up examples are chosen by
 * data.warm_max_target. Owned by the caller: syi_mixture_close, also of a zeroed one. */
int syi_mixture_open(struct syi_mixture *mixture, const struct syi_config *config,
                     const struct syi_vocabularies *vocabularies, const struct syi_dataset_place *place,
                     struct sy_error *err) SYI_MUST_CHECK;
void syi_mixture_close(struct syi_mixture *mixture);

/* One example of the stream. */
struct syi_pick {
    int task;      /* dataset of the mixture */
    int64_t entry; /* of its index */
    uint64_t key;  /* of what is drawn for it: other in each epoch */
};
struct syi_pick syi_mixture_pick(const struct syi_mixture *mixture, int64_t place);
/* Places of a task among the first `places`, a multiple of SYI_MIXTURE_WINDOW where there are several tasks. */
int64_t syi_mixture_share(const struct syi_mixture *mixture, int task, int64_t places);
/* The entry of a pick and the lengths of its example, end tokens included. */
int syi_mixture_lengths(const struct syi_mixture *mixture, const struct syi_pick *pick,
                        struct syi_dataset_entry *entry, int32_t *input, int32_t *target,
                        struct sy_error *err) SYI_MUST_CHECK;
/* Passes over the examples of a task that are finished after so many places, the warm start not counted. */
double syi_mixture_epochs(const struct syi_mixture *mixture, int task, double places);

#endif
