/* SPDX-License-Identifier: Apache-2.0 */
/* switchyard metrics RUN_DIR... [SQL]: questions to the databases of runs, and a run in files of other programs. */
#include "config.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cli.h"
#include "metrics/export.h"
#include "metrics/query.h"
#include "metrics/selection.h"

enum { PATIENCE = 360 }; /* seconds, more than SQL may take by metrics/reading.h */

/* SQLite looks at the clock between its steps. SQL of which one step takes for ever ends here. */
static void give_up(int number)
{
    static const char text[] = "switchyard: metrics: the SQL does not come to an end: ask for less\n";
    (void)number;
    if (write(STDERR_FILENO, text, sizeof text - 1) < 0) _exit(CLI_FAILED);
    _exit(CLI_FAILED);
}

/* err: struct sy_error */
static int check_output(void *err)
{
    return ferror(stdout) ? syi_error(err, SY_EIO, "standard output: cannot be written") : SY_OK;
}

static int print_line(void *err, const char *line)
{
    alarm(0); /* a pager may take its time */
    puts(line);
    return check_output(err);
}

static int print_row(void *err, const char *line)
{
    alarm(0);
    cli_print_row(line);
    return check_output(err);
}

static void print_file(void *arg, const char *file, int64_t rows)
{
    (void)arg;
    printf("%s: %lld rows\n", file, (long long)rows);
}

/* ---- options that go together ---- */

static const char *const formats[] = {[SYI_QUERY_COLUMNS] = "aligned",
                                      [SYI_QUERY_TSV] = "tsv",
                                      [SYI_QUERY_CSV] = "csv",
                                      [SYI_QUERY_JSON] = "json"};

static int choose_format(const struct cli_options *o, enum syi_query_format *format)
{
    const char *name = o->format ? o->format : o->tsv ? "tsv" : "aligned";
    if (o->format && o->tsv && strcmp(o->format, "tsv")) {
        cli_error("metrics: --tsv and --format %s: give one of them", o->format);
        return CLI_USAGE;
    }
    for (size_t i = 0; i < SYI_COUNT(formats); i++) {
        *format = (enum syi_query_format)i;
        if (!strcmp(formats[i], name)) return CLI_DONE;
    }
    cli_error("metrics: unknown format %s, did you mean %s? (aligned, tsv, csv or json)", name,
              cli_nearest(name, formats, SYI_COUNT(formats)));
    return CLI_USAGE;
}

static int selects(const struct cli_options *o)
{
    return o->list || o->name || o->from >= 0 || o->to >= 0;
}

/* What cannot be done together would leave one of the options without effect. */
static int check_options(const struct cli_options *o)
{
    if (o->export && (selects(o) || o->format || o->tsv))
        cli_error("metrics: --export writes all of the run: leave out the other options");
    else if (o->export && o->n_operands != 2)
        cli_error("metrics: --export %s takes one run and a folder: switchyard metrics %s --export %s DIR",
                  o->export, o->operand[0], o->export);
    else if (selects(o) && o->n_operands > 1)
        cli_error(
            "metrics: --list, --name, --from and --to are for one run and without SQL: put the condition into "
            "the SQL, or leave it and the other runs out");
    else if (o->from >= 0 && o->to >= 0 && o->from > o->to)
        cli_error("metrics: --from %lld is after --to %lld", (long long)o->from, (long long)o->to);
    else
        return CLI_DONE;
    return CLI_USAGE;
}

/* ---- the command ---- */

/* The last operand, unless it is a folder or could be the name of one that is not there. */
static const char *find_sql(const struct cli_options *options)
{
    struct stat info;
    const char *last = options->operand[options->n_operands - 1];
    if (options->n_operands < 2 || (!stat(last, &info) && S_ISDIR(info.st_mode))) return NULL;
    return !*last || strpbrk(last, " \t\n(;") ? last : NULL;
}

static int export_run(const struct cli_options *o, const char *path)
{
    static const char *const names[] = {"csv", "tensorboard"};
    struct sy_error err = {0};
    int status;
    if (!strcmp(o->export, "csv")) {
        status = syi_export_csv(path, o->operand[1], print_file, NULL, &err);
    } else if (!strcmp(o->export, "tensorboard")) {
        status = syi_export_tensorboard(path, o->operand[1], print_file, NULL, &err);
    } else {
        cli_error("metrics: cannot export %s, did you mean %s? (csv or tensorboard)", o->export,
                  cli_nearest(o->export, names, SYI_COUNT(names)));
        return CLI_USAGE;
    }
    return status ? cli_fail(&err) : CLI_DONE;
}

/* ---- named numbers ---- */

struct counting {
    int64_t lines;
    struct sy_error *err;
};

/* What is printed is counted: in each format, an answer without rows is one line. CSV and JSON come as a whole. */
static int count_line(void *arg, const char *line)
{
    struct counting *counting = arg;
    counting->lines += 1 + (strchr(line, '\n') != NULL);
    return print_line(counting->err, line);
}

struct names {
    const char *pattern;
    int64_t lines;
    char nearest[512];
};

/* A line of --list: kind, name, and more. The first is the header. */
static int look_at_name(void *arg, const char *line)
{
    struct names *names = arg;
    char name[sizeof names->nearest];
    const char *pair[] = {names->nearest, name}, *tab = strchr(line, '\t');
    if (!names->lines++ || !tab) return SY_OK;
    snprintf(name, sizeof name, "%.*s", (int)strcspn(tab + 1, "\t"), tab + 1);
    if (!*names->nearest || cli_nearest(names->pattern, pair, 2) == name)
        memcpy(names->nearest, name, sizeof name);
    return SY_OK;
}

/* Those of them that a pattern meets, NULL: all; whatever their steps. */
static int look_at_names(const char *path, const char *pattern, struct names *names, struct sy_error *err)
{
    const struct syi_selection of_names = {
        .pattern = pattern, .from = INT64_MIN, .to = INT64_MAX, .list = 1, .format = SYI_QUERY_TSV};
    names->lines = 0;
    return syi_selection_run(path, &of_names, look_at_name, names, err);
}

/* Steps may have no row of a name; a name that the run does not have at all is an error. */
static int check_name(const char *path, const struct cli_options *o, struct sy_error *err)
{
    struct names names = {.pattern = o->name};
    int status = look_at_names(path, o->name, &names, err);
    if (status || names.lines > 1) return status;
    status = look_at_names(path, NULL, &names, err);
    if (status) return status;
    if (strpbrk(o->name, "*?"))
        return syi_error(err, SY_ENOENT,
                         "metrics: no number of %s is called like %s (--list shows all names)", o->operand[0],
                         o->name);
    if (!*names.nearest) return syi_error(err, SY_ENOENT, "metrics: %s has no numbers yet", o->operand[0]);
    return syi_error(err, SY_ENOENT,
                     "metrics: no number of %s is called %s, did you mean %s? (--list shows all names)",
                     o->operand[0], o->name, names.nearest);
}

static int select_values(const struct cli_options *o, const char *path, enum syi_query_format format,
                         struct sy_error *err)
{
    const struct syi_selection selection = {.pattern = o->name,
                                            .from = o->from >= 0 ? o->from : INT64_MIN,
                                            .to = o->to >= 0 ? o->to : INT64_MAX,
                                            .list = o->list,
                                            .format = format};
    struct counting counting = {.err = err};
    int status = syi_selection_run(path, &selection, count_line, &counting, err);
    return status || counting.lines > 1 || !o->name ? status : check_name(path, o, err);
}

/* ---- the answer ---- */

static int ask(const struct cli_options *o, char **path, enum syi_query_format format, struct sy_error *err)
{
    const char *sql = find_sql(o);
    int n = o->n_operands - (sql != NULL);
    for (int i = 0; i < n; i++) {
        path[i] = syi_format("%s/metrics.db", o->operand[i]);
        if (!path[i]) return syi_error(err, SY_ENOMEM, "out of memory");
    }
    if (selects(o)) return select_values(o, path[0], format, err);
    struct syi_query query = {
        .sql = sql, .format = format, .others = (const char *const *)(path + 1), .n_others = n - 1};
    syi_query_line_fn print = sql || format != SYI_QUERY_COLUMNS ? print_line : print_row; /* the summary */
    return syi_query_run(path[0], &query, print, err, err);
}

static int ask_runs(const struct cli_options *o, enum syi_query_format format)
{
    struct sy_error err = {0};
    char **path = syi_alloc((size_t)o->n_operands * sizeof *path, &err);
    if (!path) return cli_fail(&err);
    signal(SIGALRM, give_up);
    alarm(PATIENCE);
    int status = ask(o, path, format, &err);
    alarm(0);
    for (int i = 0; i < o->n_operands; i++) syi_free(path[i]);
    syi_free(path);
    return status ? cli_fail(&err) : CLI_DONE;
}

int cli_metrics(const struct cli_options *options)
{
    char path[SYI_CONFIG_STRING + 16];
    enum syi_query_format format;
    int status = check_options(options);
    if (!status) status = choose_format(options, &format);
    if (status) return status;
    if ((format == SYI_QUERY_CSV || format == SYI_QUERY_JSON) && !selects(options) && !find_sql(options)) {
        cli_error("metrics: the summary is several tables: for CSV or JSON ask with SQL, --list or --name");
        return CLI_USAGE;
    }
    snprintf(path, sizeof path, "%s/metrics.db", options->operand[0]);
    return options->export ? export_run(options, path) : ask_runs(options, format);
}
