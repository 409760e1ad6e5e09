/* SPDX-License-Identifier: Apache-2.0 */
/* A run's database as event files of TensorBoard. */
#include "config.h"

#include <ctype.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"
#include "metrics/export.h"
#include "metrics/reader.h"
#include "metrics/tensorboard.h"

/* When a step was done, by the training's own clock: for rows that have no time. */
struct moment {
    int64_t attempt, step;
    double time; /* seconds since 1970 */
};

struct export
{
    struct syi_reader *reader;
    const char *folder;
    struct moment *moment; /* in the order of attempts and steps */
    size_t n_moments, capacity, at;
    struct syi_events *events; /* the file being written */
    char *task;                /* it is of, NULL: training */
    int64_t rows;
    syi_export_fn wrote;
    void *arg;
};

/* Columns as double, integer and text, whatever the database holds. */
static int64_t integer(const struct syi_row *row, int column)
{
    return row->values[column].kind == SYI_VALUE_INTEGER ? row->values[column].integer : 0;
}

static double real(const struct syi_row *row, int column)
{
    return syi_value_number(&row->values[column]);
}

/* A time that the database has as text; where it is none, 1970. */
static double time_of(const struct syi_row *row, int column)
{
    double time = real(row, column);
    return time >= 0 && time < 1e11 ? time : 0;
}

static int ask(struct export *x, const char *sql, syi_row_fn row, struct sy_error *err)
{
    const struct syi_question question = {.sql = sql, .row = row, .arg = x};
    return syi_reader_ask(x->reader, &question, err);
}

#define SECONDS(column) "(julianday(" column ") - 2440587.5) * 86400"

/* ---- times ---- */

static const char times_sql[] = "SELECT m.attempt, m.step, " SECONDS(
    "r.time") ", m.value, r.start_step FROM valid_metric m "
              "JOIN run r ON r.attempt = m.attempt WHERE m.name = 'step_seconds' ORDER BY m.attempt, m.step";

/* attempt, step, start of the attempt, mean seconds of a step since the row before, start step. */
static int add_moment(void *arg, const struct syi_row *row, struct sy_error *err)
{
    struct export *x = arg;
    struct moment now = {integer(row, 0), integer(row, 1), time_of(row, 2)};
    int64_t before = integer(row, 4) > 0 ? integer(row, 4) : 0;
    double seconds = real(row, 3);
    int status = SYI_GROW(x->moment, x->capacity, x->n_moments + 1, err);
    if (status) return status;
    if (x->n_moments && x->moment[x->n_moments - 1].attempt == now.attempt) {
        now.time = x->moment[x->n_moments - 1].time;
        before = x->moment[x->n_moments - 1].step;
    }
    if (seconds > 0 && seconds < 1e9 && now.step > before) now.time += seconds * (double)(now.step - before);
    x->moment[x->n_moments++] = now;
    return SY_OK;
}

/* Rows are asked for in the order of the moments, so looking goes on where it ended. */
static double moment_of(struct export *x, int64_t attempt, int64_t step, double start)
{
    while (x->at < x->n_moments && (x->moment[x->at].attempt < attempt ||
                                    (x->moment[x->at].attempt == attempt && x->moment[x->at].step < step)))
        x->at++;
    return x->at < x->n_moments && x->moment[x->at].attempt == attempt ? x->moment[x->at].time : start;
}

/* ---- files ---- */

/* status: of what was written to it. A file that is not whole is removed. */
static int end_file(struct export *x, int status, struct sy_error *err)
{
    char *path = x->events ? syi_strdup(syi_events_path(x->events), err) : NULL;
    int closed = syi_events_close(x->events, status ? NULL : err);
    if (!status) status = closed;
    if (path && !status) x->wrote(x->arg, path, x->rows);
    if (path && status) (void)unlink(path);
    x->events = NULL;
    x->rows = 0;
    syi_free(path);
    syi_free(x->task);
    x->task = NULL;
    return status;
}

/* A task is a name or, of `eval --file`, a path: below the folder, whatever is in it. Returns 1 where that of another task
 * might become the same. */
static int make_harmless(char *name)
{
    int replaced = 0, bytes;
    for (char *c = name; *c; c += bytes) {
        int shown = syi_utf8_is_shown((unsigned char *)c, strlen(c), &bytes);
        int dots = *c == '.' && (c == name || c[-1] == '/');
        if (bytes > 1 && shown) continue;
        bytes = 1;
        if (*c == '/' && c == name) {
            *c = '_'; /* of a whole path */
        } else if (dots || (!isalnum((unsigned char)*c) && !strchr("._-/", *c))) {
            *c = '_';
            replaced = 1;
        }
    }
    return replaced;
}

/* Of each task another. */
static char *folder_of(const struct export *x, const char *task)
{
    char *name = syi_strdup(task, NULL), *folder = NULL;
    if (name && make_harmless(name))
        folder = syi_format("%s/%s-%08x", x->folder, name, syi_crc32c(0, task, strlen(task)));
    else if (name)
        folder = syi_format("%s/%s", x->folder, name);
    syi_free(name);
    return folder;
}

static int begin_file(struct export *x, const char *task, double time, struct sy_error *err)
{
    int status = SY_OK;
    char *folder;
    if (task && !(x->task = syi_strdup(task, err))) return SY_ENOMEM;
    if (!task) return syi_events_open(x->folder, time, &x->events, err);
    folder = folder_of(x, task);
    if (!folder) return syi_error(err, SY_ENOMEM, "out of memory");
    status = syi_events_open(folder, time, &x->events, err);
    syi_free(folder);
    return status;
}

/* ---- rows ---- */

/* Version 2 has no times of rows. */
static const char metrics_sql_2[] = "SELECT m.attempt, m.step, " SECONDS(
    "r.time") ", m.name, m.value, NULL FROM valid_metric m "
              "JOIN run r ON r.attempt = m.attempt ORDER BY m.attempt, m.step, m.name";
static const char metrics_sql[] = "SELECT m.attempt, m.step, " SECONDS(
    "r.time") ", CASE m.task WHEN 'train' THEN m.name ELSE m.task || '/' || m.name "
              "END, m.value, " SECONDS(
                  "m.time") " FROM valid_metric m JOIN run r ON r.attempt = m.attempt UNION ALL "
                            "SELECT p.attempt, p.step, " SECONDS("r.time") ", p.name || '/' || p.parameter, p.value, " SECONDS(
                                "p.time") " "
                                          "FROM valid_parameter p JOIN run r ON r.attempt = p.attempt ORDER BY 1, 2, 4";

static int write_metric(void *arg, const struct syi_row *row, struct sy_error *err)
{
    struct export *x = arg;
    double time = time_of(row, 5);
    if (!(time > 0)) time = moment_of(x, integer(row, 0), integer(row, 1), time_of(row, 2));
    x->rows++;
    return syi_events_scalar(x->events, time, integer(row, 1), row->values[3].text, real(row, 4), err);
}

static const char events_sql[] = "SELECT step, " SECONDS("time") ", kind, text FROM event ORDER BY rowid";

/* A text of a row; takes tag and text, NULL where memory ran out. */
static int write_text(struct export *x, const struct syi_row *row, char *tag, char *text,
                      struct sy_error *err)
{
    int status = tag && text ? SY_OK : syi_error(err, SY_ENOMEM, "out of memory");
    if (!status) status = syi_events_text(x->events, time_of(row, 1), integer(row, 0), tag, text, err);
    x->rows++;
    syi_free(tag);
    syi_free(text);
    return status;
}

/* Four blanks make the text plain to Markdown: what stands in it is nobody's markup. */
static int write_event(void *arg, const struct syi_row *row, struct sy_error *err)
{
    return write_text(arg, row, syi_format("event/%s", row->values[2].text),
                      syi_format("    %s", row->values[3].text), err);
}

static const char examples_sql[] = "SELECT step, " SECONDS(
    "time") ", task, item, input, target, prediction FROM valid_example ORDER BY step, item";

static int write_example(void *arg, const struct syi_row *row, struct sy_error *err)
{
    const struct syi_value *v = row->values;
    return write_text(arg, row, syi_format("example/%s/%lld", v[2].text, (long long)integer(row, 3)),
                      syi_format("    input      %s\n    target     %s\n    prediction %s", v[4].text,
                                 v[5].text, v[6].text),
                      err);
}

static const char evaluations_sql[] =
    "SELECT step, " SECONDS("time") ", task, name, value FROM valid_eval ORDER BY task, id";

static int write_evaluation(void *arg, const struct syi_row *row, struct sy_error *err)
{
    struct export *x = arg;
    const char *task = row->values[2].text;
    int status = SY_OK;
    if (x->task && strcmp(x->task, task)) status = end_file(x, SY_OK, err);
    if (!status && !x->events) status = begin_file(x, task, time_of(row, 1), err);
    x->rows++;
    if (status) return status;
    return syi_events_scalar(x->events, time_of(row, 1), integer(row, 0), row->values[3].text, real(row, 4),
                             err);
}

static int begin_training(void *arg, const struct syi_row *row, struct sy_error *err)
{
    return begin_file(arg, NULL, time_of(row, 0), err);
}

static int write_all(struct export *x, struct sy_error *err)
{
    int is_old = syi_reader_version(x->reader) < 3, status = ask(x, times_sql, add_moment, err);
    if (!status) status = syi_export_folder(x->folder, err);
    if (!status) status = ask(x, "SELECT " SECONDS("min(time)") " FROM run", begin_training, err);
    if (!status) status = ask(x, is_old ? metrics_sql_2 : metrics_sql, write_metric, err);
    if (!status) status = ask(x, events_sql, write_event, err);
    if (!status && !is_old) status = ask(x, examples_sql, write_example, err);
    if (!status) status = end_file(x, SY_OK, err);
    if (!status) status = ask(x, evaluations_sql, write_evaluation, err);
    return end_file(x, status, err);
}

int syi_export_tensorboard(const char *path, const char *folder, syi_export_fn wrote, void *arg,
                           struct sy_error *err)
{
    struct export x = {.folder = folder, .wrote = wrote, .arg = arg};
    int status = syi_reader_open(path, 0, &x.reader, err);
    if (status) return status;
    status = write_all(&x, err);
    syi_reader_close(x.reader);
    syi_free(x.moment);
    return status;
}
