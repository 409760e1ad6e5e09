/* SPDX-License-Identifier: Apache-2.0 */
/* Whole files: read at once, replaced at once, folders made and synced. Files read in parts have their own
 * code (safetensors.c, the data layer). */
#include "config.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/interrupt.h"

static int too_large(const char *path, size_t most, struct sy_error *err)
{
    return syi_error(err, SY_EFORMAT, "%s has more than the %zu bytes that are read of such a file", path,
                     most);
}

/* Reads until the end, not until st_size: pipes and files under /proc report no size. */
static int read_all(int fd, const char *path, size_t most, char **text, size_t *bytes, struct sy_error *err)
{
    char *buffer = NULL;
    size_t capacity = 0, used = 0;
    struct stat info;
    size_t want = fstat(fd, &info) == 0 && info.st_size > 0 ? (size_t)info.st_size + 2 : 4096;
    for (;;) {
        int status = SYI_GROW(buffer, capacity, used + 2 > want ? used + 2 : want, err);
        if (status != SY_OK) {
            syi_free(buffer);
            return status;
        }
        ssize_t got = read(fd, buffer + used, capacity - used - 1);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) {
            syi_free(buffer);
            return syi_error_system(err, "cannot read %s", path);
        }
        if (got == 0) break;
        used += (size_t)got;
        if (used > most) {
            syi_free(buffer);
            return too_large(path, most, err);
        }
    }
    buffer[used] = 0;
    *text = buffer;
    *bytes = used;
    return SY_OK;
}

int syi_file_read(const char *path, char **text, size_t *bytes, struct sy_error *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return syi_error_system(err, "cannot open %s", path);
    int status = read_all(fd, path, SIZE_MAX, text, bytes, err);
    close(fd);
    return status;
}

int syi_file_read_regular(const char *path, size_t most, char **text, size_t *bytes, struct sy_error *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a named pipe must not block */
    struct stat info;
    if (fd < 0) return syi_error_system(err, "cannot open %s", path);
    int status = fstat(fd, &info) ? syi_error_system(err, "cannot examine %s", path) : SY_OK;
    if (!status && !S_ISREG(info.st_mode)) status = syi_error(err, SY_EFORMAT, "%s is no regular file", path);
    if (!status && info.st_size > 0 && (uint64_t)info.st_size > most) status = too_large(path, most, err);
    if (!status) status = read_all(fd, path, most, text, bytes, err);
    close(fd);
    return status;
}

int syi_file_begin(const char *path, char *text, size_t bytes)
{
    size_t n = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    int status = fd < 0 ? SY_ENOENT : syi_read_at(fd, path, 0, text, bytes - 1, &n, NULL);
    if (fd >= 0) close(fd);
    text[n] = '\0';
    return !status;
}

int64_t syi_modified(const struct stat *info)
{
    return (int64_t)info->st_mtim.tv_sec * 1000000000 + info->st_mtim.tv_nsec;
}

void syi_file_line(const char *path, const char *key, char *text, size_t bytes)
{
    char begin[16384], *rest;
    text[0] = '\0';
    if (!syi_file_begin(path, begin, sizeof(begin))) return;
    for (char *line = strtok_r(begin, "\n", &rest); line && !text[0]; line = strtok_r(NULL, "\n", &rest))
        if (!strncmp(line, key, strlen(key))) snprintf(text, bytes, "%s", line + strlen(key));
}

struct syi_file_id syi_file_identify(const char *text, size_t bytes)
{
    struct syi_file_id id = {.bytes = (int64_t)bytes, .lines = bytes && text[bytes - 1] != '\n'};
    struct syi_sha256 hash;
    for (const char *at = text; (at = memchr(at, '\n', bytes - (size_t)(at - text))); at++) id.lines++;
    syi_sha256_init(&hash);
    syi_sha256_add(&hash, text, bytes);
    syi_sha256_hex(&hash, id.sha256);
    return id;
}

struct syi_file_id syi_file_id_join(const struct syi_file_id *first, const struct syi_file_id *second)
{
    struct syi_file_id id = *second;
    struct syi_sha256 hash;
    if (!first->sha256[0]) return id;
    id.bytes += first->bytes;
    id.lines += first->lines;
    syi_sha256_init(&hash);
    syi_sha256_add(&hash, first->sha256, sizeof first->sha256);
    syi_sha256_add(&hash, second->sha256, sizeof second->sha256);
    syi_sha256_hex(&hash, id.sha256);
    return id;
}

int syi_write_all(int fd, const char *path, const void *data, size_t bytes, struct sy_error *err)
{
    const char *at = data;
    while (bytes) {
        int status = syi_interrupted(err);
        if (status) return status;
        ssize_t put = write(fd, at, bytes);
        if (put < 0 && errno == EINTR) continue;
        if (put < 0) return syi_error_system(err, "cannot write %s", path);
        at += put;
        bytes -= (size_t)put;
    }
    return SY_OK;
}

int syi_read_at(int fd, const char *path, int64_t offset, void *to, size_t bytes, size_t *n,
                struct sy_error *err)
{
    for (*n = 0; *n < bytes;) {
        ssize_t got = pread(fd, (char *)to + *n, bytes - *n, (off_t)(offset + (int64_t)*n));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return syi_error_system(err, "cannot read %s", path);
        if (got == 0) break;
        *n += (size_t)got;
    }
    return SY_OK;
}

/* A file `name`, opened with `flags` besides, of what fill gives; synced, it becomes `path`. */
static int make_as(const char *path, const char *name, int flags, syi_fill_fn *fill, void *arg,
                   struct sy_error *err)
{
    int fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC | flags, 0666);
    int status = fd < 0 ? syi_error_system(err, "cannot create %s", name) : fill(arg, fd, name, err);
    if (!status && fsync(fd) != 0) status = syi_error_system(err, "cannot sync %s", name);
    if (fd >= 0 && close(fd) != 0 && !status) status = syi_error_system(err, "cannot close %s", name);
    if (!status && rename(name, path) != 0)
        status = syi_error_system(err, "cannot rename %s to %s", name, path);
    if (status && fd >= 0) unlink(name);
    return status;
}

struct bytes {
    const void *data;
    size_t n;
};
static int put_bytes(void *arg, int fd, const char *name, struct sy_error *err)
{
    const struct bytes *bytes = arg;
    return syi_write_all(fd, name, bytes->data, bytes->n, err);
}

char *syi_file_parent(const char *path, struct sy_error *err)
{
    const char *slash = strrchr(path, '/');
    char *folder = syi_strdup(slash ? path : ".", err);
    if (folder && slash) folder[slash == path ? 1 : slash - path] = 0;
    return folder;
}

int syi_file_is_current(int fd, const char *path)
{
    struct stat mine, there;
    return !fstat(fd, &mine) && !stat(path, &there) && mine.st_dev == there.st_dev &&
           mine.st_ino == there.st_ino;
}

int syi_file_sync_parent(const char *path, struct sy_error *err)
{
    char *folder = syi_file_parent(path, err);
    int status = folder ? syi_file_sync_folder(folder, err) : SY_ENOMEM;
    syi_free(folder);
    return status;
}

int syi_file_write(const char *path, const void *data, size_t bytes, struct sy_error *err)
{
    char *name = syi_format("%s.tmp", path);
    int status = name ? make_as(path, name, O_TRUNC, put_bytes, &(struct bytes){data, bytes}, err)
                      : syi_error(err, SY_ENOMEM, "out of memory while writing %s", path);
    syi_free(name);
    return status ? status : syi_file_sync_parent(path, err);
}

int syi_file_make(const char *path, syi_fill_fn *fill, void *arg, struct sy_error *err)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    char *name = syi_format("%s.%ld-%ld.tmp", path, (long)getpid(), now.tv_nsec);
    int status = name ? make_as(path, name, O_EXCL, fill, arg, err)
                      : syi_error(err, SY_ENOMEM, "out of memory while making %s", path);
    syi_free(name);
    return status;
}

/* Whether name is BASE.NUMBER-NUMBER.tmp, as syi_file_make names a file. */
static int is_unfinished(const char *name, const char *base)
{
    size_t bytes = strlen(base);
    int end = 0;
    if (strncmp(name, base, bytes) != 0) return 0;
    sscanf(name + bytes, ".%*[0-9]-%*[0-9].tmp%n", &end);
    return end && !name[bytes + (size_t)end];
}

void syi_file_remove_unfinished(const char *path)
{
    const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
    char *name = syi_file_parent(path, NULL);
    DIR *folder = name ? opendir(name) : NULL;
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        struct stat info;
        if (is_unfinished(entry->d_name, base) && !fstatat(dirfd(folder), entry->d_name, &info, 0) &&
            info.st_mtime <= time(NULL) - SYI_ABANDONED)
            unlinkat(dirfd(folder), entry->d_name, 0);
    }
    if (folder) closedir(folder);
    syi_free(name);
}

/* *file: what path leads to where it is a link, which stays one; else path. Owned by the caller. */
static int follow_link(const char *path, char **file, struct sy_error *err)
{
    struct stat info;
    int is_link = !lstat(path, &info) && S_ISLNK(info.st_mode);
    char *real = is_link ? realpath(path, NULL) : NULL;
    *file = NULL;
    if (is_link && !real) {
        syi_error(err, SY_ENOENT,
                  "%s is a link that leads to no file (%s): remove it, or choose another name", path,
                  strerror(errno));
        return SY_ENOENT;
    }
    *file = syi_strdup(real ? real : path, err);
    free(real);
    return *file ? SY_OK : SY_ENOMEM;
}

int syi_file_replace(const char *path, const void *data, size_t bytes, struct sy_error *err)
{
    char *file;
    int status = follow_link(path, &file, err);
    if (!status) status = syi_file_make(file, put_bytes, &(struct bytes){data, bytes}, err);
    if (!status) status = syi_file_sync_parent(file, err);
    syi_free(file);
    return status;
}

int syi_file_sync_folder(const char *folder, struct sy_error *err)
{
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC), status = SY_OK;
    if (fd < 0) return syi_error_system(err, "cannot open folder %s", folder);
    /* some network filesystems have no fsync for folders: they say EINVAL, and there is nothing more to do */
    if (fsync(fd) != 0 && errno != EINVAL) status = syi_error_system(err, "cannot sync folder %s", folder);
    close(fd);
    return status;
}

static int make_folder(const char *path, struct sy_error *err)
{
    struct stat info;
    if (mkdir(path, 0777) == 0) return SY_OK;
    int reason =
        errno; /* a folder that is there counts, whatever mkdir complained about (EEXIST, EROFS, EACCES) */
    if (stat(path, &info) == 0) {
        if (S_ISDIR(info.st_mode)) return SY_OK;
        return syi_error(err, SY_EEXIST, "cannot make folder %s: a file of this name is in the way", path);
    }
    errno = reason;
    return syi_error_system(err, "cannot make folder %s", path);
}

int syi_make_folders(const char *path, struct sy_error *err)
{
    int status = SY_OK;
    char *part = syi_strdup(path, err);
    if (!part) return SY_ENOMEM;
    for (char *at = part; *at && status == SY_OK; at++) {
        if (*at != '/' || at == part) continue;
        *at = 0;
        status = make_folder(part, err);
        *at = '/';
    }
    if (status == SY_OK) status = make_folder(part, err);
    syi_free(part);
    return status;
}
