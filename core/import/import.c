/* SPDX-License-Identifier: Apache-2.0 */
/* Which format a folder has; opening and closing. What its tensors are is import_tensors.c's, writing the run directory
 * import_write.c's. */
#include "config.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "import/import.h"
#include "train/launch/run_dir.h"

/* ---- formats ---- */

/* "hf, t5x" */
static void list_formats(char *text, size_t bytes)
{
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; syi_import_formats[i] && used < bytes; i++)
        used +=
            (size_t)snprintf(text + used, bytes - used, "%s%s", i ? ", " : "", syi_import_formats[i]->name);
}

/* Of what no format is: most are one folder or a word away from what was meant. */
static int refuse(const char *folder, struct sy_error *err)
{
    struct stat is;
    char known[200];
    list_formats(known, sizeof known);
    if (stat(folder, &is))
        return syi_error(err, SY_ENOENT, "cannot import \"%s\": %s", folder, strerror(errno));
    if (!S_ISDIR(is.st_mode))
        return syi_error(err, SY_EUNSUPPORTED, "%s is a file: give the folder that holds it", folder);
    if (syi_run_dir_exists(folder))
        return syi_error(err, SY_EUNSUPPORTED,
                         "%s is a run directory already: predict, eval and train.init_from take it as it is",
                         folder);
    return syi_error(
        err, SY_EUNSUPPORTED,
        "%s looks like no checkpoint of a known format (%s): give the folder that holds its files", folder,
        known);
}

static int find_format(const char *folder, const char *name, const struct syi_import_format **format,
                       struct sy_error *err)
{
    char known[200];
    for (int i = 0; syi_import_formats[i]; i++) {
        *format = syi_import_formats[i];
        if (name ? !strcmp((*format)->name, name) : (*format)->recognise(folder)) return SY_OK;
    }
    if (!name) return refuse(folder, err);
    list_formats(known, sizeof known);
    return syi_error(err, SY_EINVAL, "there is no format %s: one of %s", name, known);
}

/* ---- opening ---- */

int syi_import_open(struct syi_import *import, const char *folder, const char *format, struct sy_error *err)
{
    import->folder = syi_strdup(folder, err);
    int status = import->folder ? find_format(folder, format, &import->format, err) : SY_ENOMEM;
    if (status) {
        import->format = NULL; /* nothing of it is to be closed */
        return status;
    }
    status = import->format->open(import, err);
    if (!status) status = syi_text_status(&import->unused, err);
    return status ? status : syi_import_sort(import, err);
}

void syi_import_close(struct syi_import *import)
{
    if (import->format) import->format->close(import);
    for (size_t i = 0; i < import->n; i++) {
        syi_free(import->tensors[i].name);
        syi_free(import->tensors[i].origin);
    }
    syi_free(import->tensors);
    syi_free(import->folder);
    syi_text_free(&import->unused);
    memset(import, 0, sizeof *import);
}
