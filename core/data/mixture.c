/* SPDX-License-Identifier: Apache-2.0 */
/* Opens the tasks of a mixture and says which example stands at a place of the stream. */
#include "config.h"

#include <math.h>
#include <string.h>

#include "data/mixing.h"
#include "data/mixture.h"
#include "data/shuffle.h"

enum { STREAM_MAIN = 1, STREAM_WARM, STREAM_TASK = 16, STREAM_WINDOW = 64, STREAM_EXAMPLE };

/* ---- opening ---- */

static int open_task(struct syi_mixture *m, const struct syi_config *config, const struct syi_task_part *task,
                     const struct syi_vocabularies *vocabularies, const struct syi_dataset_place *place,
                     struct sy_error *err)
{
    struct syi_example_form form;
    int status = syi_example_form_make(&form, config, task, vocabularies, err);
    if (!status) status = syi_dataset_open(&m->dataset[m->n], &form, task->train, place, err);
    m->n += !status;
    return status;
}

static int open_tasks(struct syi_mixture *m, const struct syi_config *config,
                      const struct syi_vocabularies *vocabularies, const struct syi_dataset_place *place,
                      struct sy_error *err)
{
    const struct syi_mixture_part *part = syi_config_mixture(config);
    int status = SY_OK;
    if (!part) return open_task(m, config, syi_config_task(config), vocabularies, place, err);
    struct syi_dataset_place of_each = *place;
    of_each.sharers = part->tasks.n * (place->sharers ? place->sharers : 1);
    for (int i = 0; i < part->tasks.n && !status; i++)
        status = open_task(m, config, syi_config_task_named(config, syi_strings_at(&part->tasks, i)),
                           vocabularies, &of_each, err);
    return status;
}

/* What rates are proportional to, but for the temperature. */
static double weight_of(const struct syi_mixture *m, const struct syi_mixture_part *part, int task)
{
    if (!part) return 1;
    if (part->rates.n) return part->rates.values[task];
    return syi_mixing_rate((double)m->dataset[task].counts.entries, 1, (double)part->maximum, 1);
}

/* Rates of weights in this unit; returns their sum. */
static double weigh(struct syi_mixture *m, const struct syi_mixture_part *part, double unit)
{
    double temperature = part && !part->rates.n ? part->temperature : 1, sum = 0;
    for (int i = 0; i < m->n; i++) {
        m->rate[i] = syi_mixing_rate(weight_of(m, part, i) / unit, 1, 0, temperature);
        sum += m->rate[i];
    }
    return sum;
}

static void set_rates(struct syi_mixture *m, const struct syi_mixture_part *part)
{
    double sum = weigh(m, part, 1), largest = 0;
    for (int i = 0; i < m->n; i++) largest = fmax(largest, weight_of(m, part, i));
    if (!isfinite(sum)) sum = weigh(m, part, largest); /* each at most 1 */
    for (int i = 0; i < m->n; i++) {
        m->rate[i] /= sum;
        if (m->rate[i] > m->rate[m->highest]) m->highest = i;
    }
}

/* Entries whose targets have at most `most` tokens, the end token included. */
static int choose_warm(struct syi_mixture *m, int64_t most, struct sy_error *err)
{
    const struct syi_dataset *d = &m->dataset[0];
    size_t capacity = 0;
    int status = SY_OK;
    for (int64_t i = 0; i < d->counts.entries && !status; i++) {
        struct syi_pick pick = {.entry = i};
        struct syi_dataset_entry entry;
        int32_t input, target;
        status = syi_mixture_lengths(m, &pick, &entry, &input, &target, err);
        if (status || target > most) continue;
        status = SYI_GROW(m->warm, capacity, (size_t)m->n_warm + 1, err);
        if (!status) m->warm[m->n_warm++] = i;
    }
    if (!status && !m->n_warm)
        status = syi_error(err, SY_EINVAL,
                           "%s: no target of at most %lld tokens to warm up with; raise that length",
                           d->source.pattern, (long long)most);
    return status;
}

int syi_mixture_open(struct syi_mixture *m, const struct syi_config *config,
                     const struct syi_vocabularies *vocabularies, const struct syi_dataset_place *place,
                     struct sy_error *err)
{
    memset(m, 0, sizeof *m);
    m->seed = (uint64_t)config->train.seed;
    m->warm_examples = config->data.warm_examples;
    int status = open_tasks(m, config, vocabularies, place, err);
    if (!status) set_rates(m, syi_config_mixture(config));
    for (int i = 0; i < m->n; i++) m->id = syi_file_id_join(&m->id, &m->dataset[i].id);
    if (!status && m->warm_examples) status = choose_warm(m, config->data.warm_max_target, err);
    if (status) syi_mixture_close(m);
    return status;
}

void syi_mixture_close(struct syi_mixture *m)
{
    for (int i = 0; i < m->n; i++) syi_dataset_close(&m->dataset[i]);
    syi_free(m->warm);
    memset(m, 0, sizeof *m);
}

/* ---- the stream ---- */

int64_t syi_mixture_share(const struct syi_mixture *m, int task, int64_t places)
{
    int64_t others = 0;
    if (task != m->highest) return (int64_t)floor(m->rate[task] * (double)places);
    for (int i = 0; i < m->n; i++)
        if (i != task) others += syi_mixture_share(m, i, places);
    return places - others;
}

/* Which task a place after the warm start has, and the how manieth of that task it is. */
static int choose_task(const struct syi_mixture *m, int64_t place, int64_t *nth)
{
    int64_t window = place / SYI_MIXTURE_WINDOW, begin = window * SYI_MIXTURE_WINDOW;
    uint64_t key = syi_shuffle_key(syi_shuffle_key(m->seed, STREAM_WINDOW), (uint64_t)window);
    int64_t slot = (int64_t)syi_shuffle_index(key, SYI_MIXTURE_WINDOW, (uint64_t)(place - begin));
    for (int i = 0; i < m->n; i++) {
        int64_t before = syi_mixture_share(m, i, begin);
        int64_t here = syi_mixture_share(m, i, begin + SYI_MIXTURE_WINDOW) - before;
        if (slot < here) {
            *nth = before + slot;
            return i;
        }
        slot -= here;
    }
    return 0; /* shares of a window sum to its places */
}

struct syi_pick syi_mixture_pick(const struct syi_mixture *m, int64_t place)
{
    struct syi_pick pick = {0};
    int warm = place < m->warm_examples;
    int64_t nth = warm ? place : place - m->warm_examples;
    uint64_t stream = warm ? STREAM_WARM : STREAM_MAIN;

    if (m->n > 1) {
        pick.task = choose_task(m, nth, &nth);
        stream = STREAM_TASK + (uint64_t)pick.task;
    }
    uint64_t n = (uint64_t)(warm ? m->n_warm : m->dataset[pick.task].counts.entries);
    uint64_t epoch = syi_shuffle_key(syi_shuffle_key(m->seed, stream), (uint64_t)nth / n);
    pick.entry = (int64_t)syi_shuffle_index(epoch, n, (uint64_t)nth % n);
    if (warm) pick.entry = m->warm[pick.entry];
    pick.key = syi_shuffle_key(syi_shuffle_key(epoch, STREAM_EXAMPLE), (uint64_t)pick.entry);
    return pick;
}

int syi_mixture_lengths(const struct syi_mixture *m, const struct syi_pick *pick,
                        struct syi_dataset_entry *entry, int32_t *input, int32_t *target,
                        struct sy_error *err)
{
    const struct syi_dataset *d = &m->dataset[pick->task];
    int status = syi_dataset_entry(d, pick->entry, entry, err);
    if (!status) syi_example_lengths(&d->form, syi_dataset_size(entry), pick->key, input, target);
    return status;
}

double syi_mixture_epochs(const struct syi_mixture *m, int task, double places)
{
    double examples = (places - (double)m->warm_examples) * m->rate[task];
    return examples > 0 ? examples / (double)m->dataset[task].counts.entries : 0;
}
