/* SPDX-License-Identifier: Apache-2.0 */
/* Two configurations in turn, each measurement in a process of its own. */
#include "config.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/bench/bench.h"

/* ---- KEY=VALUE,... ---- */

/* The comma after which the next KEY= begins, or NULL: values may hold commas. */
static char *next_comma(char *text)
{
    for (char *comma = strchr(text, ','); comma; comma = strchr(comma + 1, ',')) {
        const char *c = comma + 1;
        while (isalnum((unsigned char)*c) || (*c && strchr("_-.", *c))) c++;
        if (*c == '=' && c > comma + 1) return comma;
    }
    return NULL;
}

static int apply_number(const char *name, const char *value, int *field, struct sy_error *err)
{
    char *end;
    long n = strtol(value, &end, 10);
    if (end == value || *end || n < 1 || n > 65536)
        return syi_error(err, SY_EINVAL, "--compare %s=%s: expected a whole number in 1..65536", name, value);
    *field = (int)n;
    return SY_OK;
}

static int apply_one(char *assignment, struct syi_config *config, struct syi_launch *launch,
                     struct sy_error *err)
{
    char *equals = strchr(assignment, '=');
    if (!equals) return syi_error(err, SY_EINVAL, "--compare %s: expected KEY=VALUE", assignment);
    size_t length = (size_t)(equals - assignment);
    if (cli_sets_threads(assignment)) launch->threads = 0; /* --threads is that of both */
    if (memchr(assignment, '.', length)) return syi_config_set(config, assignment, err);
    *equals = '\0';
    if (!strcmp(assignment, "threads")) return apply_number("threads", equals + 1, &launch->threads, err);
    if (!strcmp(assignment, "ranks")) return apply_number("ranks", equals + 1, &launch->ranks, err);
    if (!strcmp(assignment, "backend"))
        launch->backend = equals + 1;
    else if (!strcmp(assignment, "comm"))
        launch->comm = equals + 1;
    else
        return syi_error(err, SY_EINVAL,
                         "--compare %s: a key of the run file has a dot; else there are backend, comm, ranks "
                         "and threads",
                         assignment);
    return SY_OK;
}

int bench_apply(char *text, struct syi_config *config, struct syi_launch *launch, struct sy_error *err)
{
    int status = SY_OK;
    while (!status && text) {
        char *comma = next_comma(text);
        if (comma) *comma = '\0';
        status = apply_one(text, config, launch, err);
        text = comma ? comma + 1 : NULL;
    }
    return status ? status : syi_config_validate(config, err);
}

/* ---- pairs ---- */

static int measure(void *arg, void *result, struct sy_error *err)
{
    return bench_step(arg, result, NULL, err);
}

static void put_pair(struct bench_out *out, int pair, const struct bench_step *first,
                     const struct bench_step *second)
{
    char label[32];
    snprintf(label, sizeof label, "pair %d", pair + 1);
    const struct bench_number numbers[] = {{"first_seconds", first->times.median, 6},
                                           {"second_seconds", second->times.median, 6},
                                           {"ratio", first->times.median / second->times.median, 3}};
    bench_put_row(out, label, numbers, SYI_COUNT(numbers));
}

/* ratio: time of the first over time of the second, so how many times faster the second is. */
static void put_ratio(struct bench_out *out, double *first, double *second, int pairs, double low,
                      double high, const struct bench_step *a, const struct bench_step *b)
{
    double x = bench_times(first, pairs).median, y = bench_times(second, pairs).median;
    const struct bench_number numbers[] = {
        {"first_median_seconds", x, 6},
        {"second_median_seconds", y, 6},
        {"ratio", x / y, 3},
        {"ratio_low", low, 3},
        {"ratio_high", high, 3},
        {"first_peak_memory_mib", (double)a->peak_memory / 1048576, 1},
        {"second_peak_memory_mib", (double)b->peak_memory / 1048576, 1},
    };
    bench_put_numbers(out, "compare", numbers, SYI_COUNT(numbers));
}

int bench_compare(const struct bench_step_job *first, const struct bench_step_job *second, int pairs,
                  struct bench_out *out, struct sy_error *err)
{
    double seconds[2][BENCH_PAIRS], low = INFINITY, high = 0;
    struct bench_step step[2];
    struct bench_step_job job[2] = {*first, *second};
    bench_table(out, "pairs");
    for (int i = 0; i < pairs; i++) {
        for (int side = 0; side < 2; side++) {
            int status = bench_in_child(measure, &job[side], &step[side], sizeof step[side], err);
            if (status) return status;
            seconds[side][i] = step[side].times.median;
        }
        low = fmin(low, seconds[0][i] / seconds[1][i]);
        high = fmax(high, seconds[0][i] / seconds[1][i]);
        put_pair(out, i, &step[0], &step[1]);
    }
    bench_table_end(out);
    bench_put_text(out, "first", step[0].what);
    bench_put_text(out, "second", step[1].what);
    put_ratio(out, seconds[0], seconds[1], pairs, low, high, &step[0], &step[1]);
    return SY_OK;
}
