/* SPDX-License-Identifier: Apache-2.0 */
/* What the metrics database costs: the time of the training thread in the calls of a step that writes everything, and a
 * database of 100,000 steps with 12 layers of 64 experts: its size, and how long the question takes what each expert of
 * each layer dropped, from the blocks and from all rows, which must agree. Fails where they do not, or where the database
 * takes more than 400 MB. Run by `make bench-metrics`, and by `make bigcheck`. */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "metrics/query.h"
#include "metrics/store.h"

enum {
    MOST_MB = 400,
    METRICS = 18,
    STEPS = 100000,
    LAYERS = 12,
    EXPERTS = 64,
    TOKENS = 8192,
    ANSWER = 1 << 17
};

static uint32_t state = 1;

static uint32_t draw(uint32_t below)
{
    state = state * 1664525 + 1013904223;
    return (uint32_t)((uint64_t)(state >> 4) * below >> 28);
}

static int give_up(const struct sy_error *err)
{
    fprintf(stderr, "metrics-bench: %s\n", err->text);
    exit(1);
}

/* As many tokens as a router that is not quite even gives, cut at a capacity of 1.25. */
static void route(int64_t *tokens, int64_t *dropped, int experts)
{
    int64_t mean = TOKENS / experts, most = mean * 5 / 4;
    for (int i = 0; i < experts; i++) {
        int64_t sent = mean / 2 + draw((uint32_t)mean);
        tokens[i] = sent < most ? sent : most;
        dropped[i] = sent - tokens[i];
    }
}

static void put_step(struct syi_metric_sink *sink, int64_t step, int metrics, int layers, int experts)
{
    struct sy_error err = {0};
    int64_t tokens[EXPERTS], dropped[EXPERTS];
    char name[48];

    for (int i = 0; i < metrics; i++) {
        snprintf(name, sizeof name, "non_padding_fraction/of_kind_%02d", i);
        if (sink->metric(sink->arg, step, name, (double)step + i, &err)) give_up(&err);
    }
    for (int layer = 0; layer < layers; layer++) {
        snprintf(name, sizeof name, "encoder/layers_%d/mlp", 2 * layer + 1);
        route(tokens, dropped, experts);
        if (sink->routing(sink->arg, step, name, experts, tokens, dropped, &err)) give_up(&err);
    }
}

static double thread_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static struct syi_metric_sink open_store(const char *path)
{
    struct syi_store_options options = {.start_step = -1, .config = ""};
    struct syi_metric_sink sink;
    struct sy_error err = {0};
    if (syi_store_open(path, &options, &sink, &err)) give_up(&err);
    return sink;
}

static void close_store(struct syi_metric_sink *sink)
{
    struct sy_error err = {0};
    if (sink->close(sink->arg, &err)) give_up(&err);
}

/* A thousand steps of 2 ms. */
static void measure_calls(const char *path, int layers, int experts)
{
    enum { N = 1000 };
    const struct timespec pause = {.tv_nsec = 2000000};
    struct syi_metric_sink sink = open_store(path);
    double begin, cpu = 0, wall = 0, worst = 0, once;

    for (int64_t step = 1; step <= N; step++) {
        nanosleep(&pause, NULL);
        begin = syi_seconds();
        once = thread_seconds();
        put_step(&sink, step, METRICS, layers, experts);
        cpu += thread_seconds() - once;
        once = syi_seconds() - begin;
        wall += once;
        if (once > worst) worst = once;
    }
    close_store(&sink);
    unlink(path);
    printf(
        "%d metrics and %d layers of %d experts: %.1f us of the training thread's processor time a step, %.1f us in all, "
        "at most %.0f us\n",
        METRICS, layers, experts, cpu / N * 1e6, wall / N * 1e6, worst * 1e6);
}

static int add_line(void *arg, const char *line)
{
    char *answer = arg;
    strncat(answer, line, ANSWER - strlen(answer) - 2);
    strcat(answer, "\n");
    return SY_OK;
}

/* What a query takes, all in all and of processor time. */
struct taken {
    double seconds, processor;
};

/* The fastest of three, opening the file included. */
static struct taken ask(const char *path, const char *sql, int times, char *answer)
{
    const struct syi_query query = {.sql = sql, .format = SYI_QUERY_TSV};
    struct taken best = {1e9, 1e9};

    for (int i = 0; i < times; i++) {
        struct sy_error err = {0};
        double begin = syi_seconds(), processor = thread_seconds();
        *answer = 0;
        if (syi_query_run(path, &query, add_line, answer, &err)) give_up(&err);
        best.seconds = fmin(best.seconds, syi_seconds() - begin);
        best.processor = fmin(best.processor, thread_seconds() - processor);
    }
    return best;
}

/* From the rows of routing, of one layer at a time: on a busy machine all of them take more than the time that SQL has. */
static struct taken ask_rows(const char *path, char *answer)
{
    static char of_layer[ANSWER];
    char sql[300];
    struct taken sum = {0, 0};

    *answer = 0;
    for (int layer = 0; layer < LAYERS; layer++) {
        snprintf(sql, sizeof sql,
                 "SELECT layer, expert, sum(tokens) AS tokens, sum(dropped) AS dropped FROM valid_routing "
                 "WHERE layer = 'encoder/layers_%d/mlp' GROUP BY layer, expert",
                 2 * layer + 1);
        struct taken t = ask(path, sql, 1, of_layer);
        sum.seconds += t.seconds;
        sum.processor += t.processor;
        strcat(answer, layer ? strchr(of_layer, '\n') + 1 : of_layer); /* one header */
    }
    return sum;
}

static int measure_database(const char *path)
{
    static char blocks[ANSWER], rows[ANSWER];
    struct syi_metric_sink sink = open_store(path);
    struct stat info = {0};
    struct taken of_blocks, of_rows, of_balance;
    double begin = syi_seconds();

    for (int64_t step = 1; step <= STEPS; step++) put_step(&sink, step, 0, LAYERS, EXPERTS);
    close_store(&sink);
    if (stat(path, &info)) return 1;
    printf("%d steps, %d layers, %d experts: %.0f MB, written in %.0f s\n", STEPS, LAYERS, EXPERTS,
           (double)info.st_size / 1e6, syi_seconds() - begin);
    of_balance = ask(path, "SELECT * FROM expert_balance", 3, blocks);
    of_blocks =
        ask(path,
            "SELECT layer, expert, tokens, dropped FROM dropped_tokens ORDER BY length(layer), layer, expert",
            3, blocks);
    of_rows = ask_rows(path, rows);
    printf(
        "drops by layer and expert: %.0f ms from the blocks, %.1f s from all rows; expert_balance %.0f ms\n",
        of_blocks.seconds * 1e3, of_rows.seconds, of_balance.seconds * 1e3);
    printf("of processor time: %.0f ms, %.1f s and %.0f ms\n", of_blocks.processor * 1e3, of_rows.processor,
           of_balance.processor * 1e3);
    int differ = strlen(blocks) < 10000 || strcmp(blocks, rows) != 0,
        large = info.st_size > MOST_MB * 1000000;
    if (differ) fprintf(stderr, "metrics-bench: the blocks and the rows differ\n");
    if (large) fprintf(stderr, "metrics-bench: the database takes more than %d MB\n", MOST_MB);
    return differ || large;
}

int main(void)
{
    char folder[] = "/tmp/sy-metrics-bench-XXXXXX", path[64];
    int failed;

    if (!mkdtemp(folder)) return 1;
    snprintf(path, sizeof path, "%s/metrics.db", folder);
    measure_calls(path, 1, 4);
    measure_calls(path, LAYERS, EXPERTS);
    failed = measure_database(path);
    unlink(path);
    rmdir(folder);
    return failed;
}
