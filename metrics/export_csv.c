/* SPDX-License-Identifier: Apache-2.0 */
/* Every table and view of a run's database as a CSV file. Rows go to the file as they come: the file system's
 * cache takes them faster than they are read, so the writer is not kept waiting for a disk. */
#include "config.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "metrics/export.h"
#include "metrics/rows_text.h"

enum { MOST_TABLES = 256, NAME_BYTES = 64 };

struct tables {
    char name[MOST_TABLES][NAME_BYTES];
    int n;
};

struct csv_file {
    FILE *file;
    char *path;
    struct syi_text record;
    int64_t rows;
};

int syi_export_folder(const char *folder, struct sy_error *err)
{
    int status = syi_make_folders(folder, err), entries = 0;
    DIR *dir = status ? NULL : opendir(folder);
    if (status) return status;
    if (!dir) return syi_error_system(err, "metrics: cannot read %s", folder);
    for (struct dirent *entry; (entry = readdir(dir));)
        entries += strcmp(entry->d_name, ".") && strcmp(entry->d_name, "..");
    closedir(dir);
    if (!entries) return SY_OK;
    return syi_error(err, SY_EINVAL, "metrics: %s is not empty; nothing is overwritten: choose a new folder",
                     folder);
}

/* The name becomes that of a file, and who wrote the database is not known. */
static int is_plain(const char *name)
{
    size_t length = strlen(name);
    for (const char *c = name; *c; c++)
        if (!isalnum((unsigned char)*c) && *c != '_') return 0;
    return length > 0 && length < NAME_BYTES;
}

static int add_table(void *arg, const struct syi_row *row, struct sy_error *err)
{
    struct tables *tables = arg;
    const char *name = row->values[0].text;
    if (!is_plain(name))
        return syi_error(err, SY_EFORMAT, "metrics: a table is called \"%s\", which is none of switchyard",
                         name);
    if (tables->n == MOST_TABLES)
        return syi_error(err, SY_EFORMAT, "metrics: more than %d tables", MOST_TABLES);
    strcpy(tables->name[tables->n++], name);
    return SY_OK;
}

static int write_record(struct csv_file *f, struct sy_error *err)
{
    int status = syi_text_status(&f->record, err);
    if (!status && fwrite(f->record.data, 1, f->record.length, f->file) != f->record.length)
        status = syi_error_system(err, "metrics: cannot write %s", f->path);
    f->record.length = 0;
    return status;
}

static int write_head(void *arg, const struct syi_row *row, struct sy_error *err)
{
    struct csv_file *f = arg;
    syi_csv_head(&f->record, row);
    return write_record(f, err);
}

static int write_row(void *arg, const struct syi_row *row, struct sy_error *err)
{
    struct csv_file *f = arg;
    syi_csv_row(&f->record, row);
    f->rows++;
    return write_record(f, err);
}

static int write_table(struct syi_reader *reader, const char *name, struct csv_file *f, struct sy_error *err)
{
    char sql[NAME_BYTES + 32];
    snprintf(sql, sizeof sql, "SELECT * FROM \"%s\"", name);
    struct syi_question question = {.sql = sql, .head = write_head, .row = write_row, .arg = f};
    f->file = fopen(f->path, "wx");
    if (!f->file) return syi_error_system(err, "metrics: cannot make %s", f->path);
    int status = syi_reader_ask(reader, &question, err);
    if (fclose(f->file) && !status) status = syi_error_system(err, "metrics: cannot write %s", f->path);
    if (status) (void)unlink(f->path); /* a part would be taken for all */
    syi_text_free(&f->record);
    return status;
}

static int export_table(struct syi_reader *reader, const char *folder, const char *name, syi_export_fn wrote,
                        void *arg, struct sy_error *err)
{
    struct csv_file f = {.path = syi_format("%s/%s.csv", folder, name)};
    int status = f.path ? write_table(reader, name, &f, err) : syi_error(err, SY_ENOMEM, "out of memory");
    if (!status) wrote(arg, f.path, f.rows);
    syi_free(f.path);
    return status;
}

static int export_all(struct syi_reader *reader, const char *folder, struct tables *tables,
                      syi_export_fn wrote, void *arg, struct sy_error *err)
{
    const struct syi_question question = {
        .sql = "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite!_%' "
               "ESCAPE '!' ORDER BY name",
        .row = add_table,
        .arg = tables};
    int status = syi_reader_ask(reader, &question, err);
    if (!status) status = syi_export_folder(folder, err);
    for (int i = 0; !status && i < tables->n; i++)
        status = export_table(reader, folder, tables->name[i], wrote, arg, err);
    return status;
}

int syi_export_csv(const char *path, const char *folder, syi_export_fn wrote, void *arg, struct sy_error *err)
{
    struct syi_reader *reader = NULL;
    struct tables *tables = syi_alloc(sizeof *tables, err);
    int status = tables ? syi_reader_open(path, 0, &reader, err) : SY_ENOMEM;
    if (!status) status = export_all(reader, folder, tables, wrote, arg, err);
    syi_reader_close(reader);
    syi_free(tables);
    return status;
}
