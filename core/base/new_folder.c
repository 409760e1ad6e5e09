/* SPDX-License-Identifier: Apache-2.0 */
/* See new_folder.h. */
#include "config.h"

#include <dirent.h>
#include <errno.h>
#include <ftw.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/new_folder.h"

static int remove_entry(const char *path, const struct stat *info, int type, struct FTW *at)
{
    (void)info, (void)type, (void)at;
    return remove(path);
}

/* what: for the message. */
static void remove_folder(const char *path, const char *what)
{
    enum { DESCRIPTORS = 8 };
    if (nftw(path, remove_entry, DESCRIPTORS, FTW_DEPTH | FTW_PHYS))
        syi_log(SY_LOG_WARN, "%s, %s, cannot be removed: %s", path, what, strerror(errno));
}

/* Absent or an empty folder. */
static int check_place(const char *to, struct sy_error *err)
{
    int n = 0;
    DIR *folder = opendir(to);
    if (!folder && errno == ENOENT) return SY_OK;
    if (!folder) return syi_error_system(err, "cannot write to %s", to);
    while (n <= 2 && readdir(folder)) n++; /* . and .. */
    closedir(folder);
    if (n <= 2) return SY_OK;
    return syi_error(err, SY_EEXIST, "%s is not empty: give a new folder with --to", to);
}

/* `to` without the slashes at its end, and the name it has until it is whole; owned by the caller. */
static int make_names(const char *to, char **final, char **path, struct sy_error *err)
{
    size_t length = strlen(to);
    while (length > 1 && to[length - 1] == '/') length--;
    *final = syi_format("%.*s", (int)length, to);
    *path = syi_format("%.*s.tmp", (int)length, to);
    return *final && *path ? SY_OK : syi_error(err, SY_ENOMEM, "out of memory");
}

static int make_folder(const char *path, struct sy_error *err)
{
    struct stat info;
    if (!lstat(path, &info))
        return syi_error(err, SY_EEXIST,
                         "%s is in the way, maybe left by a process that was killed: remove it", path);
    return syi_make_folders(path, err);
}

int syi_new_folder(const char *to,
                   int (*fill)(void *arg, const char *path, const char *final, struct sy_error *err),
                   void *arg, struct sy_error *err)
{
    char *final = NULL, *path = NULL;
    int made = 0, status = *to ? SY_OK : syi_error(err, SY_EINVAL, "the folder to write has no name");
    if (!status) status = make_names(to, &final, &path, err);
    if (!status) status = check_place(final, err);
    if (!status) status = make_folder(path, err);
    made = !status;
    if (!status) status = fill(arg, path, final, err);
    if (!status && rename(path, final)) status = syi_error_system(err, "cannot rename %s to %s", path, final);
    if (status && made) remove_folder(path, "what is left of an attempt that failed");
    syi_free(final);
    syi_free(path);
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
