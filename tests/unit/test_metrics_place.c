/* SPDX-License-Identifier: Apache-2.0 */
/* A database that is written in another folder (metrics.dir) and copied to the run directory: evaluations beside a training, damage,
 * what killed processes and removed runs leave. */
#include "config.h"

#include <fcntl.h>
#include <glob.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "metrics_support.h"

/* Status and not assertion where it may be of a child process. host: the end of the folder's name. */
static int open_on(const char *host, const char *path, int64_t start_step, int append,
                   struct syi_metric_sink *sink)
{
    char folder[4300];
    struct syi_store_options options = {.start_step = start_step, .append = append, .folder = folder};
    struct sy_error err = {0};

    snprintf(folder, sizeof(folder), "%s.%s", path, host);
    int status = syi_store_open(path, &options, sink, &err);
    if (status) fprintf(stderr, "%s\n", err.text);
    return status;
}

static int open_local(const char *path, int64_t start_step, int append, struct syi_metric_sink *sink)
{
    return open_on("local", path, start_step, append, sink);
}

/* The one file there that ends so, "" where there is none; static. */
static const char *local_file(const char *path, const char *end)
{
    static char found[4400];
    glob_t all;

    snprintf(found, sizeof(found), "%s.local/*%s", path, end);
    int n = glob(found, 0, NULL, &all) ? 0 : (int)all.gl_pathc;
    cr_assert(n <= 1, "%d files %s", n, found);
    snprintf(found, sizeof(found), "%s", n ? all.gl_pathv[0] : "");
    globfree(&all);
    return found;
}

static void remove_local(const char *path)
{
    static const char *const ends[] = {".local/*", ".other/*", ".local", ".other", "*"};
    char pattern[4300];
    glob_t all;

    for (size_t i = 0; i < SYI_COUNT(ends); i++) {
        snprintf(pattern, sizeof(pattern), "%s%s", path, ends[i]);
        if (glob(pattern, 0, NULL, &all)) continue;
        for (size_t n = 0; n < all.gl_pathc; n++) remove(all.gl_pathv[n]);
        globfree(&all);
    }
    remove_path(path);
}

static int evaluate(const char *path, int64_t step)
{
    struct syi_metric_sink sink;
    struct sy_error err = {0};
    int status = open_local(path, step, 1, &sink);

    if (!status) status = sink.eval(sink.arg, step, "dev", "wer", 0.5, "", &err);
    if (!status) status = sink.close(sink.arg, &err);
    if (status) fprintf(stderr, "%s\n", err.text);
    return status;
}

/* A training of `steps` steps after start_step, the last of them flushed. */
static int train(const char *path, int64_t start_step, int64_t steps, struct syi_metric_sink *sink)
{
    int64_t first = start_step < 0 ? 1 : start_step + 1;
    int status = open_local(path, start_step, 0, sink);

    for (int64_t step = first; step < first + steps && !status; step++)
        status = sink->metric(sink->arg, step, "loss", 1, NULL);
    return status ? status : sink->flush(sink->arg, 60, NULL);
}

static void train_to_the_end(const char *path, int64_t start_step, int64_t steps)
{
    struct syi_metric_sink sink;

    cr_assert(train(path, start_step, steps, &sink) == SY_OK);
    cr_assert(sink.close(sink.arg, NULL) == SY_OK);
}

/* Runs in a process of its own, which then ends without closing anything. */
static void train_and_die(const char *path, int64_t start_step, int64_t steps)
{
    struct syi_metric_sink sink;
    int status;
    pid_t child = fork();

    if (child == 0) _exit(train(path, start_step, steps, &sink) != SY_OK);
    cr_assert(waitpid(child, &status, 0) == child && status == 0);
}

static void *let_go_soon(void *arg)
{
    end_transaction(arg, (struct timespec){.tv_nsec = 200000000});
    return NULL;
}

/* An evaluation does not take a file that is locked for one that it may replace: training has it open. */
Test(metrics_place, an_evaluation_waits_for_a_local_file)
{
    const char *path = fresh_path("metrics.db");
    struct syi_metric_sink training;
    pthread_t reader;

    cr_assert(train(path, -1, 5, &training) == SY_OK);
    sqlite3 *db = open_reader(local_file(path, ".db"));
    cr_assert(sqlite3_exec(db, "BEGIN EXCLUSIVE", NULL, NULL, NULL) == SQLITE_OK);
    cr_assert(pthread_create(&reader, NULL, let_go_soon, db) == 0);
    cr_assert(evaluate(path, 5) == SY_OK);
    pthread_join(reader, NULL);
    cr_assert(ask(path, "SELECT count(*) FROM valid_eval") == 1);
    cr_assert(training.metric(training.arg, 6, "loss", 1, NULL) == SY_OK);
    cr_assert(training.close(training.arg, NULL) == SY_OK);
    cr_assert(ask(path, "SELECT count(*) FROM valid_metric") == 6);
    cr_assert(ask(path, "SELECT count(*) FROM valid_eval") == 1);
    cr_assert(*local_file(path, "") == 0, "%s is left", local_file(path, ""));
    remove_local(path);
}

static int evaluate_often(const char *path, int n)
{
    int status = SY_OK;
    while (n-- && !status) status = evaluate(path, 5);
    return status;
}

/* A training that ends and evaluations, all at once: each finds what the others wrote, and the last leaves no file. */
Test(metrics_place, evaluations_at_once_lose_nothing, .timeout = 60)
{
    enum { PROCESSES = 4, EVALUATIONS = 3 };
    const char *path = fresh_path("metrics.db");
    struct syi_metric_sink training;
    pid_t child[PROCESSES];
    int status, failed = 0;

    train_to_the_end(path, -1, 5);
    for (int i = 0; i < PROCESSES; i++) {
        child[i] = fork();
        if (child[i]) continue;
        if (i) _exit(evaluate_often(path, EVALUATIONS) != SY_OK);
        _exit(train(path, 5, 5, &training) || training.close(training.arg, NULL));
    }
    for (int i = 0; i < PROCESSES; i++) failed += waitpid(child[i], &status, 0) != child[i] || status;
    cr_assert(failed == 0 && *local_file(path, "") == 0, "%d fail, %s is left", failed, local_file(path, ""));
    cr_assert(ask(path, "SELECT count(*) FROM eval") == (PROCESSES - 1) * EVALUATIONS, "%g evaluations",
              ask(path, "SELECT count(*) FROM eval"));
    cr_assert(ask(path, "SELECT count(*) FROM valid_metric") == 10);
    remove_local(path);
}

/* Makes a page of a table one that SQLite refuses. */
static void damage(const char *path, const char *table)
{
    char sql[100], page[512];
    FILE *file;

    snprintf(sql, sizeof(sql), "SELECT rootpage FROM sqlite_master WHERE name = '%s'", table);
    long number = (long)ask(path, sql), bytes = (long)ask(path, "PRAGMA page_size");
    memset(page, 0xff, sizeof(page));
    file = fopen(path, "r+b");
    cr_assert(file && fseek(file, (number - 1) * bytes, SEEK_SET) == 0);
    cr_assert(fwrite(page, sizeof(page), 1, file) == 1);
    fclose(file);
}

/* The copy in the run directory is sound and takes its place; only where it is damaged, too, a new one begins. Each damaged
 * file is kept. */
Test(metrics_place, a_damaged_local_file_comes_again_from_its_copy)
{
    const char *path = fresh_path("metrics.db");
    struct caught_log log = {0};
    char aside[4300];

    sy_log_set(catch_line, &log);
    train_and_die(path, -1, 5);
    damage(local_file(path, ".db"), "routing_block");
    train_and_die(path, 5, 5);
    cr_assert(ask(path, "SELECT count(*) FROM valid_metric") == 10);
    cr_assert(*local_file(path, ".db.corrupt-1"));
    damage(local_file(path, ".db"), "routing_block");
    damage(path, "routing_block");
    train_to_the_end(path, 10, 5);
    cr_assert(ask(path, "SELECT count(*) FROM valid_metric") == 5);
    cr_assert(*local_file(path, ".db.corrupt-2"));
    snprintf(aside, sizeof(aside), "%s.corrupt-1", path);
    cr_assert(ask(aside, "SELECT count(*) FROM valid_metric") == 10);
    remove_local(path);
}

/* Of a file that is gone only the journal is left, here and in the run directory: it is rolled back into no other. */
Test(metrics_place, a_journal_without_its_file_is_not_rolled_back)
{
    const char *path = fresh_path("metrics.db");

    train_and_die(path, -1, 5);
    write_and_die(local_file(path, ".db"));
    cr_assert(*local_file(path, ".db-journal"));
    cr_assert(remove(local_file(path, ".db")) == 0);
    change(
        path,
        "INSERT INTO event (attempt, time, step, kind, text) SELECT 1, '', 1, 'note', hex(zeroblob(99000))");
    train_and_die(path, 5, 5);
    cr_assert(ask(path, "SELECT sum(length(text)) FROM event") == 198000);
    cr_assert(ask(path, "SELECT count(*) FROM valid_metric") == 10);
    write_and_die(path);
    cr_assert(remove(path) == 0);
    train_to_the_end(path, 10, 5);
    cr_assert(ask(path, "SELECT count(*) FROM valid_metric") == 15);
    cr_assert(ask(path, "SELECT count(*) FROM pragma_integrity_check WHERE integrity_check = 'ok'") == 1);
    remove_local(path);
}

static int stays(const char *path, const char *end, time_t age)
{
    char name[4400];
    struct timespec then[2] = {{.tv_sec = time(NULL) - age}, {.tv_sec = time(NULL) - age}};

    snprintf(name, sizeof(name), "%s%s", path, end);
    close(open(name, O_CREAT | O_WRONLY, 0600));
    cr_assert(utimensat(AT_FDCWD, name, then, 0) == 0);
    train_to_the_end(path, 1, 1);
    return !access(name, F_OK);
}

/* What a process that was killed left of a copy goes once nobody can be writing it; no other file does. */
Test(metrics_place, an_unfinished_copy_is_removed)
{
    const char *path = fresh_path("metrics.db");

    train_to_the_end(path, -1, 1);
    cr_assert(!stays(path, ".17-4711.tmp", 7200));
    cr_assert(stays(path, ".17-4712.tmp", 60));
    cr_assert(stays(path, ".17-4713.tmp.mine", 7200));
    cr_assert(stays(path, ".mine.tmp", 7200));
    remove_local(path);
}

/* The file of a run that was killed and whose directory was removed: its rows are not those of the next run there. */
Test(metrics_place, a_removed_run_leaves_no_rows)
{
    const char *path = fresh_path("metrics.db");
    struct caught_log log = {0};

    sy_log_set(catch_line, &log);
    train_and_die(path, -1, 5);
    cr_assert(remove(path) == 0);
    train_to_the_end(path, -1, 3);
    cr_assert(ask(path, "SELECT count(*) FROM run") == 1 && ask(path, "SELECT count(*) FROM metric") == 3);
    cr_assert(log.n == 1 && strstr(log.last, ".db.removed-1"), "%s", log.last);
    cr_assert(ask(local_file(path, ".db.removed-1"), "SELECT count(*) FROM metric") == 5);
    remove_local(path);
}

/* A host that stood still while another took its run over goes on, and ends: the rows of the other one stay in the run directory,
 * its own where they were written. */
Test(metrics_place, a_run_taken_over_does_not_replace_what_went_on)
{
    const char *path = fresh_path("metrics.db");
    struct syi_metric_sink slow, next;
    struct sy_error err = {0};

    cr_assert(train(path, -1, 5, &slow) == SY_OK);
    cr_assert(open_on("other", path, 0, 0, &next) == SY_OK);
    cr_assert(next.metric(next.arg, 1, "loss", 2, NULL) == SY_OK && next.close(next.arg, NULL) == SY_OK);
    cr_assert(ask(path, "SELECT count(*) FROM run") == 2);
    cr_assert(slow.metric(slow.arg, 6, "loss", 1, NULL) == SY_OK && slow.close(slow.arg, &err) == SY_EEXIST);
    cr_assert(strstr(err.text, "took this run over; all rows are in "), "%s", err.text);
    cr_assert(ask(path, "SELECT count(*) FROM run") == 2);
    cr_assert(ask(local_file(path, ".db"), "SELECT count(*) FROM metric") == 6);
    remove_local(path);
}
