/* SPDX-License-Identifier: Apache-2.0 */
/* Whether the file of a plugin is whole, and, for root, only root's to change. dlopen maps what the headers name and trusts them: a file that was
 * cut short, by a full disk or a copy that broke off, would end the process with SIGBUS. Checks ELF files;
 * elsewhere the loader decides alone. */
#include "config.h"

#include "base/plugin_folders.h"

#if defined(__ELF__) && defined(__linux__)

#    include <fcntl.h>
#    include <limits.h>
#    include <link.h>
#    include <stdio.h>
#    include <stdlib.h>
#    include <string.h>
#    include <sys/stat.h>
#    include <unistd.h>

enum { MAX_HEADERS = 256 }; /* a library has about ten */

static int read_at(int file, void *data, size_t bytes, uint64_t at)
{
    return pread(file, data, bytes, (off_t)at) == (ssize_t)bytes;
}

/* Of this process, whose loader it would be. */
static int own_machine(void)
{
#    if defined(__x86_64__)
    return EM_X86_64;
#    elif defined(__aarch64__)
    return EM_AARCH64;
#    else
    return EM_NONE;
#    endif
}

/* What is wrong with the headers and the size of what they name; NULL: nothing. */
static const char *file_fault(int file, uint64_t size)
{
    static const char cut[] = "the file is cut short; rebuild it here";
    ElfW(Ehdr) head;
    ElfW(Phdr) segment;
    if (!read_at(file, &head, sizeof head, 0)) return "the file is too short for a library; rebuild it here";
    if (memcmp(head.e_ident, ELFMAG, SELFMAG)) return "it is not a library; rebuild it here";
    if (head.e_ident[EI_CLASS] != (sizeof(void *) == 8 ? ELFCLASS64 : ELFCLASS32) || head.e_type != ET_DYN ||
        (own_machine() != EM_NONE && head.e_machine != own_machine()))
        return "it is not a library of this kind of machine; rebuild it here";
    if (head.e_phentsize != sizeof segment || head.e_phnum == 0 || head.e_phnum > MAX_HEADERS)
        return "its headers are damaged; rebuild it here";
    for (int i = 0; i < head.e_phnum; i++) {
        if (head.e_phoff > size ||
            !read_at(file, &segment, sizeof segment, head.e_phoff + (uint64_t)i * sizeof segment))
            return cut;
        if (segment.p_type != PT_LOAD) continue;
        if (segment.p_offset > size || segment.p_filesz > size - segment.p_offset) return cut;
    }
    return NULL;
}

/* Who may put another file in this one's place? In a folder with the sticky bit only the owners of both. */
static int is_in_open_folder(const char *path)
{
    char folder[PATH_MAX];
    struct stat info;
    const char *slash = strrchr(path, '/');
    int length =
        snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - path + 1) : 1, slash ? path : ".");
    return length >= PATH_MAX || stat(folder, &info) ||
           ((info.st_mode & S_IWOTH) && !(info.st_mode & S_ISVTX));
}

/* Root of a user namespace, as in a container that an ordinary user started, has the rights of that user, and sees the host's
 * root as nobody. */
static int is_root_of_host(void)
{
    unsigned long inside, outside, count;
    FILE *map = fopen("/proc/self/uid_map", "re");
    int mapped = map && fscanf(map, "%lu %lu %lu", &inside, &outside, &count) == 3 &&
                 (inside || outside || count < UINT32_MAX);
    if (map) fclose(map);
    return !mapped;
}

/* Why root does not run the file; NULL: it does. Others run what they may run anyway. */
static const char *trust_fault(const char *path, const struct stat *info)
{
    char real[PATH_MAX];
    if (geteuid() != 0 || !is_root_of_host()) return NULL;
    if (info->st_uid != 0) return "root runs no file that is somebody else's (chown root)";
    if (info->st_mode & S_IWOTH) return "everybody may write this file, so root does not run it (chmod o-w)";
    if ((info->st_mode & S_IWGRP) && info->st_gid != 0)
        return "its group, which is not root's, may write this file, so root does not run it (chmod g-w)";
    if (is_in_open_folder(path) || !realpath(path, real) || is_in_open_folder(real))
        return "everybody may write its folder, so root does not run it (chmod o-w of the folder)";
    return NULL;
}

const char *syi_plugin_file_fault(const char *path)
{
    struct stat status;
    const char *why = NULL;
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file < 0) return NULL; /* dlopen says it better */
    if (fstat(file, &status) != 0 || !S_ISREG(status.st_mode))
        why = "it is not a file";
    else
        why = trust_fault(path, &status);
    if (!why) why = file_fault(file, (uint64_t)status.st_size);
    close(file);
    return why;
}

#else

const char *syi_plugin_file_fault(const char *path)
{
    (void)path;
    return NULL;
}

#endif
