/* SPDX-License-Identifier: Apache-2.0 */
/* The views that answer the usual questions, each on rows whose answer is known, and what another run adds. */
#include "config.h"

#include <math.h>

#include "metrics/query.h"
#include "metrics_support.h"

static void put_step(struct syi_metric_sink *sink, int64_t step, double loss, double norm)
{
    const struct {
        const char *name;
        double value;
    } metrics[] = {{"loss", loss},
                   {"weight_gradient_norm", norm},
                   {"learning_rate", 1e-3},
                   {"tokens_per_second", 1000},
                   {"step_seconds", 0.001}};

    for (size_t i = 0; i < SYI_COUNT(metrics); i++)
        cr_assert(sink->metric(sink->arg, step, metrics[i].name, metrics[i].value, NULL) == SY_OK);
}

/* Two attempts: 200 steps with a spike at 150 and a norm that is no number at 160; then on from 180 to 190. Evaluations
 * of task dev at 100 (saved), 180 (saved: it went on from there) and, replaced, 200. */
static const char *make_run(void)
{
    const char *path = fresh_path("metrics.db");
    struct syi_metric_sink sink = open_sink(path, -1, 0);
    static const struct {
        int64_t step;
        double loss, accuracy;
    } eval[] = {{100, 1.5, 0.5}, {180, 2.0, 0.75}, {200, 0.1, 0.99}};

    for (int64_t step = 1; step <= 200; step++) {
        put_step(&sink, step, 10.0 - (double)step / 100, step == 150 ? 50 : step == 160 ? 0.0 / 0.0 : 2);
        cr_assert(sink.routing(sink.arg, step, "x", 4, (int64_t[]){30, 10, 0, 0}, (int64_t[]){6, 0, 0, 0},
                               NULL) == SY_OK);
    }
    for (size_t i = 0; i < SYI_COUNT(eval); i++) {
        cr_assert(sink.eval(sink.arg, eval[i].step, "dev", "loss", eval[i].loss, "", NULL) == SY_OK);
        cr_assert(sink.eval(sink.arg, eval[i].step, "dev", "accuracy", eval[i].accuracy, "", NULL) == SY_OK);
        cr_assert(sink.eval(sink.arg, eval[i].step, "dev", "items", 20, "", NULL) == SY_OK);
    }
    cr_assert(sink.event(sink.arg, 100, "checkpoint", "checkpoint of step 100 saved", NULL) == SY_OK);
    cr_assert(sink.close(sink.arg, NULL) == SY_OK);
    sink = open_sink(path, 180, 0);
    for (int64_t step = 181; step <= 190; step++) put_step(&sink, step, 1, 2);
    cr_assert(sink.event(sink.arg, 190, "done", "done after 190 steps", NULL) == SY_OK);
    cr_assert(sink.event(sink.arg, 190, "note", "later", NULL) == SY_OK);
    cr_assert(sink.close(sink.arg, NULL) == SY_OK);
    return path;
}

static void expect(const char *path, const char *sql, double value)
{
    double got = ask(path, sql);
    cr_assert(got > value - 1e-9 && got < value + 1e-9, "%s: %.17g instead of %.17g", sql, got, value);
}

/* Of each task the newest step that is valid; what comes again replaces what was there. Counts are of one row an expert, also
 * where an array ends early. */
Test(metrics_views, experts_of_tasks)
{
    const char *path = fresh_path("metrics.db");
    struct syi_metric_sink sink = open_sink(path, -1, 0);
    static const int64_t none[4] = {0}, even[] = {300, 300, 300, 300}, odd[] = {0, 700, 0, 0},
                         lost[] = {0, 5, 0, 0};

    for (int64_t step = 10; step <= 30; step += 10)
        for (int again = 0; again < 2; again++)
            cr_assert(sink.eval_routing(sink.arg, step, "de/valid", "x", 4, again ? even : odd, none, NULL) ==
                      SY_OK);
    cr_assert(sink.eval_routing(sink.arg, 20, "fr/valid", "x", 4, odd, lost, NULL) == SY_OK);
    cr_assert(sink.close(sink.arg, NULL) == SY_OK);
    sink = open_sink(path, 20, 0);
    cr_assert(sink.close(sink.arg, NULL) == SY_OK);
    expect(path, "SELECT count(*) FROM eval_routing", 16);
    expect(path, "SELECT count(*) FROM valid_eval_routing WHERE time > '2026'", 12);
    expect(path, "SELECT count(*) FROM expert_tasks WHERE step = 20", 8);
    expect(path, "SELECT count(*) FROM expert_tasks", 8);
    expect(path, "SELECT sum(share = 0.25 AND tokens = 300) FROM expert_tasks WHERE task = 'de/valid'", 4);
    expect(path, "SELECT share + dropped FROM expert_tasks WHERE task = 'fr/valid' AND expert = 1", 6);
    expect(path, "SELECT sum(tokens) FROM expert_tasks WHERE task = 'fr/valid'", 700);
    remove_path(path);
}

Test(metrics_views, training)
{
    const char *path = make_run();

    expect(path, "SELECT count(*) FROM loss_curve", 190);
    expect(path, "SELECT smooth FROM loss_smooth WHERE step = 1", 9.99);
    expect(path, "SELECT smooth FROM loss_smooth WHERE step = 100", 10 - (51 + 100) / 200.0);
    expect(path, "SELECT high - low FROM loss_smooth WHERE step = 100", 0.49);
    expect(path, "SELECT group_concat(step) = '150,160' FROM gradient_spikes", 1);
    expect(path, "SELECT ratio FROM gradient_spikes WHERE step = 150", 25);
    expect(
        path,
        "SELECT count(*) FROM throughput WHERE tokens_per_second = 1000 AND step_seconds = 0.001 AND time > '2'",
        190);
    expect(path, "SELECT last_step - first_step FROM timing WHERE attempt = 1", 199);
    expect(path, "SELECT step_seconds FROM timing WHERE attempt = 2", 0.001);
    expect(path, "SELECT count(*) FROM timing WHERE seconds >= 0 AND seconds < 100 AND ended >= began", 2);
    change(
        path,
        "UPDATE run SET time = '2026-01-01T00:00:00.000Z' WHERE attempt = 2; UPDATE event SET "
        "time = '2026-01-01T00:00:10.000Z' WHERE attempt = 2; UPDATE metric SET time = 0 WHERE attempt = 2");
    cr_assert(ask(path,
                  "SELECT abs(share_in_steps - 0.001) < 1e-6 AND abs(seconds - 10) < 1e-3 FROM timing WHERE "
                  "attempt = 2") == 1);
    expect(path, "SELECT kind = 'none' AND step = 200 FROM stop_reason WHERE attempt = 1", 1);
    expect(
        path,
        "SELECT kind = 'done' AND step = 190 AND text = 'done after 190 steps' FROM stop_reason WHERE attempt = 2",
        1);
    remove_path(path);
}

/* What is infinite, or out of all proportion, at one step spoils no mean of the later ones. */
Test(metrics_views, means_after_an_infinity)
{
    const char *path = fresh_path("metrics.db");
    struct syi_metric_sink sink = open_sink(path, -1, 0);

    for (int64_t step = 1; step <= 300; step++) {
        double far = step == 20 ? (double)INFINITY : step == 30 ? 1e30 : 1;
        put_step(&sink, step, far, step == 200 ? 50 : far);
    }
    cr_assert(sink.close(sink.arg, NULL) == SY_OK);
    expect(path, "SELECT count(*) FROM loss_smooth WHERE smooth = 1", 300);
    expect(path, "SELECT count(*) FROM loss_smooth WHERE high > 1e300", 50);
    expect(path, "SELECT group_concat(step) = '20,30,200' FROM gradient_spikes", 1);
    expect(path, "SELECT ratio FROM gradient_spikes WHERE step = 200", 50);
    remove_path(path);
}

/* Of 180 steps: 30 and 10 tokens a step for two of four experts. */
Test(metrics_views, experts)
{
    const char *path = make_run();

    expect(path, "SELECT tokens FROM dropped_tokens WHERE layer = 'x' AND expert = 1", 1800);
    expect(path, "SELECT dropped_share FROM dropped_tokens WHERE layer = 'x' AND expert = 0", 6 / 36.0);
    expect(path, "SELECT busiest FROM expert_balance WHERE layer = 'x' AND block = 0", 3);
    expect(path, "SELECT idlest + 10 * unused + 100 * experts + 1000 * last_step FROM expert_balance",
           180420);
    expect(path, "SELECT share FROM expert_load WHERE step = 7 AND expert = 1", 0.25);
    remove_path(path);
}

Test(metrics_views, evaluations)
{
    const char *path = make_run();

    expect(path, "SELECT count(*) FROM evaluation_history", 6);
    expect(path, "SELECT value - value_before FROM evaluation_history WHERE name = 'loss' AND step = 180",
           0.5);
    expect(path, "SELECT step + 1000 * saved FROM best_checkpoint WHERE task = 'dev' AND name = 'loss'",
           1100);
    expect(path, "SELECT step + 1000 * saved FROM best_checkpoint WHERE task = 'dev' AND name = 'accuracy'",
           1180);
    expect(path, "SELECT count(*) FROM best_checkpoint", 2);
    remove_path(path);
}

/* Where a small value is the better one, and where a large one is. */
Test(metrics_views, the_better_side)
{
    static const struct {
        const char *name;
        int is_small;
    } value[] = {{"loss", 1},
                 {"cross_ent_loss", 1},
                 {"cross_entropy", 1},
                 {"experts/fraction_tokens_left_behind", 1},
                 {"experts/router_confidence", 0},
                 {"wer", 1},
                 {"accuracy", 0},
                 {"bleu", 0}};
    const char *path = fresh_path("metrics.db");
    struct syi_metric_sink sink = open_sink(path, -1, 0);

    for (int64_t step = 1; step <= 3; step++)
        for (size_t i = 0; i < SYI_COUNT(value); i++)
            cr_assert(sink.eval(sink.arg, step, "dev", value[i].name, (double)step, "", NULL) == SY_OK);
    cr_assert(sink.close(sink.arg, NULL) == SY_OK);
    for (size_t i = 0; i < SYI_COUNT(value); i++) {
        char sql[160];
        snprintf(sql, sizeof sql, "SELECT step FROM best_checkpoint WHERE name = '%s'", value[i].name);
        expect(path, sql, value[i].is_small ? 1 : 3);
    }
    remove_path(path);
}

/* The run went back from step 9 to the checkpoint of step 4 and ended after step 6: what came of steps 5 to 9 before does
 * not count, in curves as in evaluations. */
Test(metrics_views, of_a_run_that_went_back)
{
    const char *path = fresh_path("metrics.db");
    struct syi_metric_sink sink = open_sink(path, -1, 0);

    for (int64_t i = 1; i <= 11; i++) {
        int64_t step = i <= 9 ? i : i - 5;
        put_step(&sink, step, (double)i, 1);
        if (i % 3 == 0 || i == 11)
            cr_assert(sink.eval(sink.arg, step, "dev", "loss", 1 / (double)i, "", NULL) == SY_OK);
        if (i == 4) cr_assert(sink.event(sink.arg, 4, "checkpoint", "saved", NULL) == SY_OK);
        if (i != 9) continue;
        cr_assert(sink.event(sink.arg, 4, "rollback", "back to the checkpoint of step 4", NULL) == SY_OK);
        cr_assert(sink.back(sink.arg, 4, NULL) == SY_OK);
    }
    cr_assert(sink.event(sink.arg, 6, "done", "done after 6 steps", NULL) == SY_OK);
    cr_assert(sink.close(sink.arg, NULL) == SY_OK);
    expect(path, "SELECT count(*) + 100 * max(step) FROM loss_curve", 606);
    expect(path, "SELECT loss FROM loss_curve WHERE step = 5", 10);
    expect(path, "SELECT count(*) FROM evaluation_history", 2);
    expect(path, "SELECT step FROM best_checkpoint", 6);
    expect(path, "SELECT value_before FROM evaluation_history WHERE step = 6", 1 / 3.0);
    expect(path, "SELECT kind = 'rollback' FROM stop_reason WHERE attempt = 1", 1);
    expect(path, "SELECT kind = 'done' FROM stop_reason WHERE attempt = 2", 1);
    expect(path, "SELECT start_step FROM run WHERE attempt = 2", 4);
    expect(
        path, "SELECT records FROM run WHERE attempt = 1",
        ask(path,
            "SELECT (SELECT count(*) FROM metric) + "
            "(SELECT count(*) FROM event) + (SELECT count(*) FROM eval) + (SELECT count(*) FROM routing) + 1"));
    remove_path(path);
}

/* ---- several runs ---- */

struct lines {
    char text[8192];
};

static int add_line(void *arg, const char *line)
{
    struct lines *lines = arg;
    strncat(lines->text, line, sizeof(lines->text) - strlen(lines->text) - 2);
    strcat(lines->text, "\n");
    return SY_OK;
}

static int ask_all(const char *const *path, int n, const char *sql, struct lines *lines, struct sy_error *err)
{
    const struct syi_query query = {
        .sql = sql, .format = SYI_QUERY_TSV, .others = path + 1, .n_others = n - 1};
    *lines = (struct lines){0};
    return syi_query_run(path[0], &query, add_line, lines, err);
}

/* A run of this version, one of version 2 and one that is not there. */
Test(metrics_views, several_runs)
{
    char folder[] = "/tmp/sy-unit-XXXXXX", path[4][64], command[8400], *top = getenv("abs_top_srcdir");
    static const char *const names[] = {"one", "two", "it's", "none"};
    const char *all[4];
    struct lines lines;
    struct sy_error err = {0}, missing = {0}, change_error = {0};

    cr_assert(top && mkdtemp(folder));
    for (int i = 0; i < 4; i++) {
        snprintf(path[i], sizeof(path[i]), "%s/%s/metrics.db", folder, names[i]);
        all[i] = path[i];
    }
    const char *made = make_run();
    snprintf(command, sizeof(command),
             "cd %s && mkdir one two \"it's\" && cp %s one && cp one/metrics.db \"it's\" && "
             "cp %s/tests/golden/metrics/version-2.db two/metrics.db",
             folder, made, top);
    cr_assert(system(command) == 0);
    remove_path(made);
    cr_assert(ask_all(all, 3, "SELECT run, count(*), max(step) FROM all_loss GROUP BY run ORDER BY run",
                      &lines, &err) == SY_OK,
              "%s", err.text);
    cr_assert_str_eq(lines.text, "run\tcount(*)\tmax(step)\nit's\t190\t190\none\t190\t190\ntwo\t8\t8\n");
    cr_assert(ask_all(all, 3,
                      "SELECT count(*), count(time) FROM all_metric WHERE run = 'two' AND task = 'train'",
                      &lines, &err) == SY_OK);
    cr_assert_str_eq(lines.text, "count(*)\tcount(time)\n112\t0\n");
    cr_assert(ask_all(all, 3, "SELECT DISTINCT run FROM all_eval JOIN all_run USING (run) ORDER BY 1", &lines,
                      &err) == SY_OK);
    cr_assert_str_eq(lines.text, "run\nit's\none\ntwo\n");
    cr_assert(ask_all(all, 3, "SELECT count(*) FROM run_2.run", &lines, &err) == SY_OK);
    cr_assert_str_eq(lines.text, "count(*)\n2\n");
    cr_assert(ask_all(all, 3, NULL, &lines, &err) == SY_OK, "%s", err.text);
    cr_assert(strstr(lines.text, "\none\t2\t190\t1\t1\t1000\tdone\n"), "%s", lines.text);
    change(all[0],
           "UPDATE metric SET value = 5000 WHERE attempt = 2 AND step = 190 AND name = 'tokens_per_second';"
           "INSERT INTO metric SELECT attempt, step, time, task, 'timing/seconds', CASE step WHEN 190 THEN "
           "189 ELSE 1 END FROM metric WHERE name = 'loss'");
    cr_assert(ask_all(all, 3, NULL, &lines, &err) == SY_OK, "%s", err.text);
    cr_assert(strstr(lines.text, "\none\t2\t190\t1\t1\t3000\tdone\n"), "a mean over time: %s", lines.text);
    cr_assert(strstr(lines.text, "\ndev\taccuracy\tone\t180\t0.75\t0.5\t0.75\t\n"), "%s", lines.text);
    cr_assert(ask_all(all, 4, NULL, &lines, &missing) == SY_ENOENT &&
              strstr(missing.text, "none/metrics.db"));
    cr_assert(ask_all(all, 3, "DELETE FROM run_2.metric", &lines, &change_error) == SY_EINVAL);
    cr_assert(ask_all(all, 1, "SELECT count(*) FROM all_loss WHERE run = 'one'", &lines, &err) == SY_OK);
    cr_assert_str_eq(lines.text, "count(*)\n190\n");
    snprintf(command, sizeof(command), "rm -r %s", folder);
    cr_assert(system(command) == 0);
}
