/* SPDX-License-Identifier: Apache-2.0 */
/* Copies files to a folder, and finds the copies. */
#include "config.h"

#include <ctype.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "data/staging.h"

enum { PIECE = 1 << 22, NAME_BYTES = 100, PATH_DIGITS = 16 };

/* ---- the folder ---- */

/* Appends the value of the variable whose name begins after the '$' at text; returns the bytes of it all. */
static size_t put_variable(struct syi_text *folder, const char *text, const char *whole, int *status,
                           struct sy_error *err)
{
    char name[128];
    size_t braced = text[1] == '{', begin = 1 + braced, n = 0;
    while (isalnum((unsigned char)text[begin + n]) || text[begin + n] == '_') n++;
    snprintf(name, sizeof name, "%.*s", (int)n, text + begin);
    const char *value = getenv(name);
    if (!n || (braced && text[begin + n] != '}'))
        *status = syi_error(err, SY_EINVAL, "data.stage = \"%s\": after $ comes a variable's name", whole);
    else if (!value || !*value)
        *status = syi_error(err, SY_EINVAL,
                            "data.stage = \"%s\": %s is not set here: set it on all nodes, or name a folder",
                            whole, name);
    else
        syi_text_puts(folder, value);
    return begin + n + braced;
}

int syi_staging_open(struct syi_staging *stage, const char *text, struct sy_error *err)
{
    struct syi_text folder = {0};
    int status = SY_OK;
    memset(stage, 0, sizeof *stage);
    for (const char *at = text; !status && *at;) {
        size_t n = strcspn(at, "$");
        syi_text_append(&folder, at, n);
        at += n;
        if (*at) at += put_variable(&folder, at, text, &status, err);
    }
    if (!status) status = syi_text_status(&folder, err);
    if (status)
        syi_text_free(&folder);
    else
        stage->folder = folder.data;
    return status;
}

void syi_staging_close(struct syi_staging *stage)
{
    syi_free(stage->folder);
    memset(stage, 0, sizeof *stage);
}

/* ---- names ---- */

static const char *base_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* Owned by the caller. An unpacked copy and an index have names that say what they were made from. */
static char *name_of(const struct syi_staging *stage, const struct syi_source_file *f, struct sy_error *err)
{
    struct syi_sha256 hash;
    char hex[65], *name;
    const int64_t numbers[] = {f->bytes, f->modified, f->inode};
    syi_sha256_init(&hash);
    syi_sha256_add(&hash, f->real, strlen(f->real));
    syi_sha256_add(&hash, numbers, sizeof numbers);
    syi_sha256_hex(&hash, hex);
    if (strcmp(f->path, f->readable) != 0)
        name = syi_format("%s/%s", stage->folder, base_of(f->readable));
    else
        name = syi_format("%s/%.*s-%.*s-%" PRId64 "-%" PRId64, stage->folder, NAME_BYTES, base_of(f->real),
                          PATH_DIGITS, hex, f->bytes, f->modified);
    if (!name) syi_error(err, SY_ENOMEM, "out of memory while copying %s", f->path);
    return name;
}

/* A file of the dataset and its copy. */
struct item {
    const char *from; /* borrowed */
    char *to;         /* owned */
    int64_t bytes;    /* of the file; -1: nothing is to be copied */
};

struct list {
    struct item *item; /* (n) the files of examples in their order, then the index file if there is one */
    int n;
};

static void free_list(struct list *list)
{
    for (int i = 0; i < list->n; i++) syi_free(list->item[i].to);
    syi_free(list->item);
}

static int make_list(const struct syi_staging *stage, const struct syi_dataset *d, struct list *list,
                     struct sy_error *err)
{
    int has_index = d->index_path && !d->entry;
    *list = (struct list){.item = syi_alloc(((size_t)d->source.n + 1) * sizeof *list->item, err)};
    if (!list->item) return SY_ENOMEM;
    for (; list->n < d->source.n; list->n++) {
        const struct syi_source_file *f = &d->source.file[list->n];
        char *name = name_of(stage, f, err);
        if (!name) return SY_ENOMEM;
        list->item[list->n] = (struct item){.from = f->readable, .to = name};
    }
    if (!has_index) return SY_OK;
    char *name = syi_format("%s/%s", stage->folder, base_of(d->index_path));
    list->item[list->n++] = (struct item){.from = d->index_path, .to = name};
    return name ? SY_OK : syi_error(err, SY_ENOMEM, "out of memory while copying %s", d->index_path);
}

/* ---- copying ---- */

struct filling {
    struct syi_staging *stage;
    const struct item *item;
};

static int copy_bytes(struct syi_staging *stage, const struct item *item, int from, int to, char *piece,
                      struct sy_error *err)
{
    int64_t at = 0;
    size_t n = 1;
    int status = SY_OK;
    while (!status && n) {
        status = syi_read_at(from, item->from, at, piece, PIECE, &n, err);
        if (!status) status = syi_write_all(to, item->to, piece, n, err);
        if (!status && stage->poll) status = stage->poll(stage->arg, err);
        at += (int64_t)n;
    }
    if (!status && at != item->bytes)
        status = syi_error(err, SY_EIO, "%s changed while it was copied to %s", item->from, item->to);
    return status;
}

static int fill(void *arg, int fd, const char *name, struct sy_error *err)
{
    struct filling *f = arg;
    char *piece = syi_alloc(PIECE, err);
    if (!piece) return SY_ENOMEM;
    int from = open(f->item->from, O_RDONLY | O_CLOEXEC);
    (void)name;
    int status = from < 0 ? syi_error_system(err, "cannot open %s", f->item->from)
                          : copy_bytes(f->stage, f->item, from, fd, piece, err);
    if (from >= 0) close(from);
    syi_free(piece);
    return status;
}

/* *missing: bytes of what is not there yet. */
static int look_for_copies(struct syi_staging *stage, struct list *list, int64_t *missing,
                           struct sy_error *err)
{
    *missing = 0;
    for (int i = 0; i < list->n; i++) {
        struct item *item = &list->item[i];
        struct stat original, copy;
        if (stat(item->from, &original) != 0) return syi_error_system(err, "cannot open %s", item->from);
        int there = !stat(item->to, &copy) && copy.st_size == original.st_size;
        item->bytes = there ? -1 : original.st_size;
        if (there)
            stage->there++;
        else
            *missing += original.st_size;
    }
    return SY_OK;
}

static int check_folder(const struct syi_staging *stage, const struct syi_source *source,
                        struct sy_error *err)
{
    int status = SY_OK;
    for (int i = 0; i < source->n && !status; i++)
        status =
            syi_source_check_folder(source->pattern, source->file[i].path, stage->folder, "data.stage", err);
    return status;
}

static int check_room(const struct syi_staging *stage, int64_t missing, struct sy_error *err)
{
    struct statvfs disk;
    char host[256] = "";
    if (statvfs(stage->folder, &disk) != 0)
        return syi_error_system(err, "data.stage: cannot look at %s", stage->folder);
    double room = (double)disk.f_bavail * (double)disk.f_frsize;
    if ((double)missing <= room) return SY_OK;
    gethostname(host, sizeof host - 1);
    return syi_error(err, SY_EIO,
                     "data.stage: %s on host %s has room for %.1f MiB, and %.1f MiB of data are to be copied "
                     "there: make room, name another folder, or leave data.stage out",
                     stage->folder, host, room / (1 << 20), (double)missing / (1 << 20));
}

static int copy_list(struct syi_staging *stage, const struct list *list, struct sy_error *err)
{
    int status = SY_OK;
    for (int i = 0; i < list->n && !status; i++) {
        const struct item *item = &list->item[i];
        struct filling filling = {stage, item};
        if (item->bytes < 0) continue;
        status = syi_file_make(item->to, fill, &filling, err);
        stage->files += !status;
        stage->bytes += status ? 0 : item->bytes;
    }
    return status;
}

int syi_staging_copy(struct syi_staging *stage, const struct syi_dataset *d, struct sy_error *err)
{
    struct list list;
    int64_t missing;
    double begin = syi_seconds();
    int status = make_list(stage, d, &list, err);
    if (!status) status = check_folder(stage, &d->source, err);
    if (!status) status = syi_make_folders(stage->folder, err);
    if (!status) status = look_for_copies(stage, &list, &missing, err);
    if (!status) status = check_room(stage, missing, err);
    if (!status) status = copy_list(stage, &list, err);
    free_list(&list);
    stage->seconds += syi_seconds() - begin;
    return status;
}

/* ---- reading there ---- */

int syi_staging_use(const struct syi_staging *stage, struct syi_dataset *d, struct sy_error *err)
{
    struct list list;
    int status = make_list(stage, d, &list, err);
    for (int i = 0; i < list.n && !status; i++) {
        char **at = i < d->source.n ? &d->source.file[i].readable : &d->index_path, *to = list.item[i].to;
        if (access(to, R_OK) != 0) {
            status = syi_error_system(
                err,
                "cannot read %s, which the first rank of this node copied: data.stage has to be one folder for "
                "all ranks of a node",
                to);
        } else {
            list.item[i].to = *at;
            *at = to;
        }
    }
    free_list(&list);
    return status;
}
