/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses named numbers of a run by pattern and steps: composes the SQL. */
#include "config.h"

#include <string.h>

#include "base/text.h"
#include "metrics/selection.h"

/* Databases of version 2 have training metrics only, and no statistics of parameters. */
static const char everything_2[] =
    "SELECT 'metric' AS kind, step, name, value FROM valid_metric "
    "UNION ALL SELECT 'evaluation', step, task || '/' || name, value FROM valid_eval";
static const char everything[] =
    "SELECT 'metric' AS kind, step, CASE task WHEN 'train' THEN name ELSE task || '/' || name END AS name, value "
    "FROM valid_metric "
    "UNION ALL SELECT 'evaluation', step, task || '/' || name, value FROM valid_eval "
    "UNION ALL SELECT 'parameter', step, name || '/' || parameter, value FROM valid_parameter";

static int read_version(const char *path, int *version, struct sy_error *err)
{
    struct syi_reader *reader;
    int status = syi_reader_open(path, 0, &reader, err);
    if (status) return status;
    *version = syi_reader_version(reader);
    syi_reader_close(reader);
    return SY_OK;
}

/* The same pattern for GLOB, to which a bracket is no plain character. */
static void put_glob(struct syi_text *out, const char *pattern)
{
    for (; *pattern; pattern++) {
        if (*pattern == '[')
            syi_text_puts(out, "[[]");
        else
            syi_text_append(out, pattern, 1);
    }
}

int syi_selection_run(const char *path, const struct syi_selection *selection, syi_query_line_fn line,
                      void *arg, struct sy_error *err)
{
    struct syi_text sql = {0}, glob = {0};
    int version = 0, status = read_version(path, &version, err);
    if (status) return status;
    put_glob(&glob, selection->pattern && *selection->pattern ? selection->pattern : "*");
    syi_text_printf(&sql, "SELECT %s FROM (%s) WHERE name GLOB ?1 AND step >= ?2 AND step <= ?3 %s",
                    selection->list
                        ? "kind, name, count(*) AS rows, min(step) AS first_step, max(step) AS last_step"
                        : "step, name, value",
                    version >= 3 ? everything : everything_2,
                    selection->list ? "GROUP BY kind, name ORDER BY kind, name" : "ORDER BY name, step");
    status = syi_text_status(&sql, err);
    if (!status) status = syi_text_status(&glob, err);
    if (!status) {
        const struct syi_value given[] = {{.kind = SYI_VALUE_TEXT, .text = glob.data, .bytes = glob.length},
                                          {.kind = SYI_VALUE_INTEGER, .integer = selection->from},
                                          {.kind = SYI_VALUE_INTEGER, .integer = selection->to}};
        const struct syi_query query = {
            .sql = sql.data, .given = given, .n_given = 3, .format = selection->format};
        status = syi_query_run(path, &query, line, arg, err);
    }
    syi_text_free(&sql);
    syi_text_free(&glob);
    return status;
}
