/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the files of a source and unpacks those that are compressed. A copy is called
 * NAME-PATH-BYTES-MODIFIED, PATH being a hash of the whole path, so that a copy of what the file was before has another
 * name. */
#include "config.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <glob.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/compress.h"
#include "base/new_folder.h"
#include "base/text.h"
#include "data/source.h"

enum { PIECE = 1 << 18, PATH_DIGITS = 16, NAME_BYTES = 100 };

/* ---- unpacked copies ---- */

static int unpack(void *path, int fd, const char *name, struct sy_error *err)
{
    struct syi_inflow in;
    char *piece = syi_alloc(PIECE, err);
    size_t n = 1;
    if (!piece) return SY_ENOMEM;
    int status = syi_inflow_open(&in, path, err);
    while (!status && n) {
        status = syi_inflow_read(&in, piece, PIECE, &n, err);
        if (!status && syi_write_all(fd, name, piece, n, NULL))
            status = syi_error_system(
                err, "cannot write %s (make room, or name another folder as data.cache)", name);
    }
    syi_inflow_close(&in);
    syi_free(piece);
    return status;
}

/* Whether the cache has an unfinished file: one look does for all files of a source. */
static int has_unfinished(const char *cache)
{
    DIR *folder = opendir(cache);
    int found = 0;
    for (struct dirent *entry; folder && !found && (entry = readdir(folder));)
        found = syi_ends_with(entry->d_name, ".tmp");
    if (folder) closedir(folder);
    return found;
}

void syi_source_remove_stale(const char *cache, const char *name, size_t same)
{
    DIR *folder = opendir(cache);
    if (!folder) return;
    for (struct dirent *entry; (entry = readdir(folder));) {
        struct stat info;
        if (strncmp(entry->d_name, name, same) != 0 || !strcmp(entry->d_name, name)) continue;
        if (fstatat(dirfd(folder), entry->d_name, &info, 0) != 0) continue;
        if (syi_ends_with(entry->d_name, ".tmp") && info.st_mtime > time(NULL) - SYI_ABANDONED) continue;
        unlinkat(dirfd(folder), entry->d_name, 0);
    }
    closedir(folder);
}

/* The copy's name, owned by the caller. *same: of how many bytes all copies of this path begin alike. */
static char *copy_name(const struct syi_source_file *file, size_t *same, struct sy_error *err)
{
    char hex[65];
    const char *path = file->real, *base = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
    struct syi_sha256 hash;
    syi_sha256_init(&hash);
    syi_sha256_add(&hash, path, strlen(path));
    syi_sha256_hex(&hash, hex);
    char *name = syi_format("%.*s-%.*s-%" PRId64 "-%" PRId64, NAME_BYTES, base, PATH_DIGITS, hex, file->bytes,
                            file->modified);
    *same = (strlen(base) < NAME_BYTES ? strlen(base) : NAME_BYTES) + 1 + PATH_DIGITS + 1;
    if (!name) syi_error(err, SY_ENOMEM, "out of memory while unpacking %s", file->path);
    return name;
}

/* unfinished: the cache may have what a killed process left. */
static int find_copy(struct syi_source_file *file, const char *cache, int unfinished, struct sy_error *err)
{
    size_t same;
    struct stat info;
    char *name = copy_name(file, &same, err);
    if (!name) return SY_ENOMEM;
    int status = SY_OK;
    file->readable = syi_format("%s/%s", cache, name);
    if (!file->readable) {
        status = syi_error(err, SY_ENOMEM, "out of memory while unpacking %s", file->path);
    } else {
        int there = stat(file->readable, &info) == 0;
        if (!there || unfinished)
            syi_source_remove_stale(cache, name, same); /* other copies of the same path */
        if (!there) status = syi_make_folders(cache, err);
        if (!there && !status) status = syi_file_make(file->readable, unpack, file->path, err);
    }
    syi_free(name);
    return status;
}

/* ---- files ---- */

static int compression_of(const char *path, enum syi_compression *compression, struct sy_error *err)
{
    char begin[SYI_COMPRESSION_MAGIC];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, begin, sizeof begin);
    int status = fd < 0  ? syi_error_system(err, "cannot open %s", path)
                 : n < 0 ? syi_error_system(err, "cannot read %s", path)
                         : SY_OK;
    if (fd >= 0) close(fd);
    *compression = syi_compression_of(begin, n > 0 ? (size_t)n : 0);
    return status;
}

/* The folder for copies, which is made where it is a temporary one; NULL: there is none, or none can be made. */
static const char *place_of_copies(struct syi_source *source, const char *cache)
{
    if (!cache || *cache) return cache;
    if (!source->temporary) source->temporary = syi_temporary_folder();
    return source->temporary;
}

static char *real_path(const char *path, struct sy_error *err)
{
    char *whole = realpath(path, NULL), *real = syi_strdup(whole ? whole : path, err);
    free(whole);
    return real;
}

/* file->path is set. */
static int look_at(struct syi_source *source, struct syi_source_file *file, const struct stat *info,
                   const char *cache, struct sy_error *err)
{
    enum syi_compression compression;
    file->bytes = info->st_size;
    file->modified = syi_modified(info);
    file->device = (int64_t)info->st_dev;
    file->inode = (int64_t)info->st_ino;
    file->real = real_path(file->path, err);
    if (!file->real) return SY_ENOMEM;
    int status = compression_of(file->path, &compression, err);
    if (status) return status;
    if (compression != SYI_COMPRESSION_NONE) cache = place_of_copies(source, cache);
    if (compression != SYI_COMPRESSION_NONE && cache) return find_copy(file, cache, source->unfinished, err);
    if (compression != SYI_COMPRESSION_NONE)
        return syi_error(err, SY_EINVAL,
                         "%s is compressed with %s, and there is no folder to unpack it into: name one as "
                         "data.cache, or unpack it first",
                         file->path, compression == SYI_COMPRESSION_GZIP ? "gzip" : "zstd");
    file->readable = syi_strdup(file->path, err);
    return file->readable ? SY_OK : SY_ENOMEM;
}

int syi_source_check_folder(const char *pattern, const char *path, const char *folder, const char *key,
                            struct sy_error *err)
{
    const char *slash = strrchr(path, '/');
    struct stat of_files, of_copies;
    char *copy = syi_format("%s-copy", path);
    char *parent = syi_format("%.*s.", slash ? (int)(slash + 1 - path) : 0, path);
    int status = SY_OK;
    if (!copy || !parent)
        status = syi_error(err, SY_ENOMEM, "out of memory while looking at %s", path);
    else if (!fnmatch(pattern, copy, FNM_PATHNAME | FNM_PERIOD) && !stat(parent, &of_files) &&
             !stat(folder, &of_copies) && of_files.st_dev == of_copies.st_dev &&
             of_files.st_ino == of_copies.st_ino)
        status = syi_error(err, SY_EINVAL,
                           "%s = %s is the folder of %s, and the next start would take the copies made there "
                           "for files of %s: name another folder as %s",
                           key, folder, path, pattern, key);
    syi_free(copy);
    syi_free(parent);
    return status;
}

/* All that have been found; what is no regular file is left out where a pattern has found it. */
static int add_files(struct syi_source *source, char *const *paths, size_t n, int found, const char *cache,
                     struct sy_error *err)
{
    if (n > SYI_SOURCE_FILES)
        return syi_error(err, SY_EINVAL, "%s: %zu files, but at most %d are possible: join some",
                         source->pattern, n, SYI_SOURCE_FILES);
    source->file = syi_alloc(n * sizeof *source->file, err);
    if (!source->file) return SY_ENOMEM;
    int status = SY_OK;
    for (size_t i = 0; i < n && !status; i++) {
        struct syi_source_file *file = &source->file[source->n];
        struct stat info;
        if (stat(paths[i], &info) != 0) return syi_error_system(err, "cannot open %s", paths[i]);
        if (!S_ISREG(info.st_mode) && found) continue;
        if (!S_ISREG(info.st_mode))
            return syi_error(err, SY_EINVAL, "%s is no regular file, as files of examples are", paths[i]);
        file->path = syi_strdup(paths[i], err);
        source->n++;
        status = file->path ? SY_OK : SY_ENOMEM;
        if (!status && found && cache && *cache)
            status = syi_source_check_folder(source->pattern, file->path, cache, "data.cache", err);
        if (!status) status = look_at(source, file, &info, cache, err);
    }
    return status;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The order of glob is that of the locale, so it is left to us. */
static int match(struct syi_source *source, const char *cache, struct sy_error *err)
{
    glob_t found = {0};
    int result = glob(source->pattern, GLOB_ERR | GLOB_NOSORT, NULL, &found), status = SY_OK;
    if (result == GLOB_NOSPACE)
        status = syi_error(err, SY_ENOMEM, "%s: out of memory for its files", source->pattern);
    if (result == GLOB_ABORTED)
        status = syi_error_system(err, "%s: cannot look for its files", source->pattern);
    if (result == 0) {
        qsort(found.gl_pathv, found.gl_pathc, sizeof *found.gl_pathv, by_name);
        status = add_files(source, found.gl_pathv, found.gl_pathc, 1, cache, err);
    }
    globfree(&found);
    if (!status && !source->n)
        status = syi_error(err, SY_ENOENT, "%s: there is no such file", source->pattern);
    return status;
}

int syi_source_open(struct syi_source *source, const char *pattern, const char *cache, struct sy_error *err)
{
    struct stat info;
    memset(source, 0, sizeof *source);
    source->pattern = syi_strdup(pattern, err);
    if (!source->pattern) return SY_ENOMEM;
    source->unfinished = cache && *cache && has_unfinished(cache);
    /* A file that is called like a pattern is that file. */
    int status = stat(pattern, &info) == 0 || !strpbrk(pattern, "*?[")
                     ? add_files(source, &source->pattern, 1, 0, cache, err)
                     : match(source, cache, err);
    if (status) syi_source_close(source);
    return status;
}

void syi_source_close(struct syi_source *source)
{
    for (int i = 0; i < source->n; i++) {
        syi_free(source->file[i].path);
        syi_free(source->file[i].real);
        syi_free(source->file[i].readable);
    }
    syi_temporary_folder_remove(source->temporary);
    syi_free(source->temporary);
    syi_free(source->file);
    syi_free(source->pattern);
    memset(source, 0, sizeof *source);
}
