/* SPDX-License-Identifier: Apache-2.0 */
/* See new_folder.h. */
#include "config.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/new_folder.h"

enum { DESCRIPTORS = 8 }; /* that walking through a folder may hold open */

static int remove_entry(const char *path, const struct stat *info, int type, struct FTW *at)
{
    (void)info, (void)type, (void)at;
    return remove(path);
}

/* what: for the message. */
static void remove_folder(const char *path, const char *what)
{
    if (nftw(path, remove_entry, DESCRIPTORS, FTW_DEPTH | FTW_PHYS))
        syi_log(SY_LOG_WARN, "%s, %s, cannot be removed: %s", path, what, strerror(errno));
}

/* ---- the place where it is made ---- */

/* A folder beside what is made. In it the file MARK says that it is ours, and is locked while a process is at work: what has
 * the text and no lock was left by one that was killed. File systems may keep locks of a host to that host, so the text has
 * its name. */
static const char MARK[] = "being-made-by-switchyard";
enum { MARK_BYTES = 512 };

struct workplace {
    char *path, *mark; /* owned */
    int lock;          /* the open mark, -1: none */
};

static void describe(char text[MARK_BYTES])
{
    char host[256] = "";
    if (gethostname(host, sizeof host - 1)) host[0] = 0;
    snprintf(
        text, MARK_BYTES,
        "switchyard on %s makes something in this folder, or was killed meanwhile: then the next that makes it here "
        "removes all that is in it\n",
        host);
}

/* Where locks do not work the mark stays empty, and nobody takes it for one that was left. */
static int put_mark(struct workplace *w, struct sy_error *err)
{
    char text[MARK_BYTES];
    w->lock = open(w->mark, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (w->lock < 0) return syi_error_system(err, "cannot create %s", w->mark);
    describe(text);
    return flock(w->lock, LOCK_EX | LOCK_NB) ? SY_OK
                                             : syi_write_all(w->lock, w->mark, text, strlen(text), err);
}

/* Whether the locked mark says what this host writes, and still is what its name leads to, in a folder and no link to one. */
static int is_ours(const struct workplace *w)
{
    char want[MARK_BYTES], text[MARK_BYTES] = "";
    struct stat mine, there, folder;
    describe(want);
    return pread(w->lock, text, sizeof text - 1, 0) > 0 && !strcmp(text, want) && !fstat(w->lock, &mine) &&
           !lstat(w->mark, &there) && !lstat(w->path, &folder) && S_ISDIR(folder.st_mode) &&
           mine.st_dev == there.st_dev && mine.st_ino == there.st_ino;
}

static int remove_but_mark(const char *path, const struct stat *info, int type, struct FTW *at)
{
    int stays = !at->level || (at->level == 1 && !strcmp(path + at->base, MARK));
    return stays ? 0 : remove_entry(path, info, type, at);
}

/* What is in the way is emptied and used again if a process of ours left it, and no other is at work there. */
static int take_over(struct workplace *w, struct sy_error *err)
{
    int free = 0;
    w->lock = open(w->mark, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (w->lock >= 0) free = !flock(w->lock, LOCK_EX | LOCK_NB);
    if (w->lock >= 0 && !free && errno == EWOULDBLOCK)
        return syi_error(err, SY_EBUSY, "another process is at work in %s: wait for it, or give another name",
                         w->path);
    if (!free || !is_ours(w))
        return syi_error(
            err, SY_EEXIST,
            "%s is in the way, and nothing in it shows that switchyard left it on this host: remove it, or "
            "give another name",
            w->path);
    if (nftw(w->path, remove_but_mark, DESCRIPTORS, FTW_DEPTH | FTW_PHYS | FTW_MOUNT))
        return syi_error_system(err, "cannot empty %s, which a process that was killed left", w->path);
    syi_log(SY_LOG_INFO, "%s, which a process that was killed left, is emptied and used again", w->path);
    return SY_OK;
}

/* Removes it with all that is in it, and the mark last: what cannot be removed now, the next one may take over. It is closed
 * before the folder goes: network file systems keep a name in there as long. */
static void abandon(struct workplace *w)
{
    int failed = nftw(w->path, remove_but_mark, DESCRIPTORS, FTW_DEPTH | FTW_PHYS);
    if (!failed) unlink(w->mark);
    close(w->lock);
    w->lock = -1;
    if (failed || rmdir(w->path))
        syi_log(SY_LOG_WARN, "%s, where something was made, cannot be removed: %s", w->path, strerror(errno));
}

static void free_workplace(struct workplace *w)
{
    if (w->lock >= 0) close(w->lock);
    syi_free(w->path);
    syi_free(w->mark);
}

/* Beside `to`: an empty folder with its mark. Freed by the caller, also after a failure. */
static int open_workplace(struct workplace *w, const char *to, struct sy_error *err)
{
    *w = (struct workplace){.path = syi_format("%s.tmp", to), .lock = -1};
    if (w->path) w->mark = syi_format("%s/%s", w->path, MARK);
    if (!w->mark) {
        syi_error(err, SY_ENOMEM, "out of memory");
        return SY_ENOMEM;
    }
    if (!mkdir(w->path, 0777)) {
        int status = put_mark(w, err);
        if (status && w->lock >= 0)
            abandon(w);
        else if (status)
            rmdir(w->path);
        return status;
    }
    return errno == EEXIST ? take_over(w, err) : syi_error_system(err, "cannot make folder %s", w->path);
}

/* What a fill that was interrupted leaves to say. */
static int failed(int status, const char *to, struct sy_error *err)
{
    if (status != SY_ESTOPPED || !err) return status;
    *err = (struct sy_error){0};
    return syi_error(err, SY_ESTOPPED, "stopped by a signal: %s is not made, and nothing is left of it", to);
}

/* ---- a folder, a file ---- */

/* No rename puts a folder in the place of a link or of what is mounted, or calls it `.`. */
static int check_place(const char *to, struct sy_error *err)
{
    const char *slash = strrchr(to, '/'), *name = slash ? slash + 1 : to;
    struct stat info, above;
    if (!strcmp(name, ".") || !strcmp(name, ".."))
        return syi_error(err, SY_EINVAL, "%s is no name for a new folder: give one", to);
    if (lstat(to, &info)) return errno == ENOENT ? SY_OK : syi_error_system(err, "cannot write to %s", to);
    if (S_ISLNK(info.st_mode))
        return syi_error(err, SY_EINVAL, "%s is a link: give the folder itself, or another name", to);
    char *parent = syi_file_parent(to, err);
    if (!parent) return SY_ENOMEM;
    int mounted = !stat(parent, &above) && above.st_dev != info.st_dev;
    syi_free(parent);
    if (!mounted) return SY_OK;
    return syi_error(err, SY_EINVAL,
                     "%s is where a file system is mounted: give the name of a new folder in it", to);
}

/* Absent or an empty folder. What is in the way of its name is found before the work. */
static int check_folder(const char *to, struct sy_error *err)
{
    int n = 0, status = check_place(to, err);
    if (status) return status;
    DIR *folder = opendir(to);
    if (!folder && errno == ENOENT) return SY_OK;
    if (!folder) return syi_error_system(err, "cannot write to %s", to);
    while (n <= 2 && readdir(folder)) n++; /* . and .. */
    closedir(folder);
    if (n <= 2) return SY_OK;
    return syi_error(err, SY_EEXIST, "%s is not empty: give a new folder with --to", to);
}

static int make_parents(const char *path, struct sy_error *err)
{
    char *parent = syi_file_parent(path, err);
    int status = parent ? syi_make_folders(parent, err) : SY_ENOMEM;
    syi_free(parent);
    return status;
}

/* The mark must not come with what is made. */
static int name_folder(const struct workplace *w, const char *final, struct sy_error *err)
{
    if (unlink(w->mark)) return syi_error_system(err, "cannot remove %s", w->mark);
    return rename(w->path, final) ? syi_error_system(err, "cannot rename %s to %s", w->path, final) : SY_OK;
}

static int make_folder(const char *final, syi_new_fn fill, void *arg, struct sy_error *err)
{
    struct workplace w;
    int status = open_workplace(&w, final, err);
    if (!status) {
        status = fill(arg, w.path, final, err);
        if (!status) status = name_folder(&w, final, err);
        if (status) abandon(&w);
        status = failed(status, final, err);
    }
    free_workplace(&w);
    return status;
}

int syi_new_folder(const char *to, syi_new_fn fill, void *arg, struct sy_error *err)
{
    size_t length = strlen(to);
    if (!length) return syi_error(err, SY_EINVAL, "the folder to write has no name");
    while (length > 1 && to[length - 1] == '/') length--;
    char *final = syi_format("%.*s", (int)length, to);
    int status = final ? check_folder(final, err) : syi_error(err, SY_ENOMEM, "out of memory");
    if (!status) status = make_parents(final, err);
    if (!status) status = make_folder(final, fill, arg, err);
    syi_free(final);
    return status;
}

int syi_new_file_check(const char *to, struct sy_error *err)
{
    struct stat info;
    if (!lstat(to, &info))
        return syi_error(err, SY_EEXIST, "%s is there already: give another name, or remove it first", to);
    return errno == ENOENT ? SY_OK : syi_error_system(err, "cannot write %s", to);
}

/* link() and not rename(): what somebody else puts there meanwhile is not written over. File systems without hard links
 * (exFAT, some of FUSE) have the moment between a last look and the rename. */
static int name_file(const char *path, const char *to, struct sy_error *err)
{
    if (!link(path, to)) return SY_OK;
    if (errno == EPERM || errno == EOPNOTSUPP || errno == ENOSYS) {
        int status = syi_new_file_check(to, err);
        if (status) return status;
        if (!rename(path, to)) return SY_OK;
    }
    return syi_error_system(err, "cannot name %s %s", path, to);
}

static int fill_and_name(const char *path, const char *to, syi_new_fn fill, void *arg, struct sy_error *err)
{
    int status = fill(arg, path, to, err);
    return status ? status : name_file(path, to, err);
}

int syi_new_file(const char *to, syi_new_fn fill, void *arg, struct sy_error *err)
{
    struct workplace w;
    char *path = NULL;
    int status = syi_new_file_check(to, err);
    if (status) return status;
    status = open_workplace(&w, to, err);
    if (!status) {
        path = syi_format("%s/file", w.path);
        status = path ? fill_and_name(path, to, fill, arg, err) : syi_error(err, SY_ENOMEM, "out of memory");
        abandon(&w);
        status = failed(status, to, err);
    }
    syi_free(path);
    free_workplace(&w);
    return status;
}

char *syi_temporary_folder(void)
{
    const char *below = getenv("TMPDIR");
    char *path = syi_format("%s/switchyard-XXXXXX", below && *below ? below : "/tmp");
    if (path && mkdtemp(path)) return path;
    syi_free(path);
    return NULL;
}

void syi_temporary_folder_remove(const char *path)
{
    if (path) remove_folder(path, "a folder of files that are needed no more");
}
