/* SPDX-License-Identifier: Apache-2.0 */
/* The files of a source: a path, or a pattern of paths as of the shell (`*`, `?`, `[a-z]`), in the order of their names.
 * Compressed files are unpacked once, into the cache of the data, for records are read in any order. */
#ifndef SYI_SOURCE_H
#define SYI_SOURCE_H

#include "base/base.h"

enum { SYI_SOURCE_FILES = 1 << 16 };

struct syi_source_file {
    char *path;     /* as given or found, for messages */
    char *real;     /* whole and without links: what copies and indexes go by; path where it cannot be had */
    char *readable; /* path, or its unpacked copy */
    int64_t bytes, modified, device,
        inode; /* of path: what shows that it is the same file; modified in nanoseconds */
};
struct syi_source {
    char *pattern;
    struct syi_source_file *file; /* [n] */
    int n;
    int unfinished;  /* 1: the cache had copies that were not whole, perhaps abandoned */
    char *temporary; /* folder of its unpacked copies, if it was opened so and has any */
};
#define SYI_SOURCE_TEMPORARY "" /* as cache: a folder below $TMPDIR that goes with the source */

/* Opens each file to look at it: of several ranks one does so, and the others get what it found (share.h).
 * cache: folder for unpacked copies, made when the first one is; NULL: a compressed file is refused with SY_EINVAL. A copy
 * is made under another name and renamed, so it is whole; one of what the file was before (bytes, modified) is removed and
 * made anew, and what a killed process left of a copy is removed. Of what a pattern finds only regular files count; a
 * path that is there as it is written is no pattern.
 * No file: SY_ENOENT with the pattern; SY_EINVAL: too many, a path that is no regular file, or a cache whose copies the pattern
 * finds. Owned by the caller: syi_source_close. */
int syi_source_open(struct syi_source *source, const char *pattern, const char *cache,
                    struct sy_error *err) SYI_MUST_CHECK;
/* SY_EINVAL: `path`, which the pattern found, lies in the folder, and the pattern finds copies of it that are made there,
 * too. key: of the run file, which names the folder. */
int syi_source_check_folder(const char *pattern, const char *path, const char *folder, const char *key,
                            struct sy_error *err) SYI_MUST_CHECK;
void syi_source_close(struct syi_source *source); /* also of a zeroed one */
/* Removes the files of a cache that begin with the first `same` bytes of `name` and are called otherwise, but for those that another
 * process may be writing; a failure leaves them where they are. */
void syi_source_remove_stale(const char *cache, const char *name, size_t same);

#endif
