/* SPDX-License-Identifier: Apache-2.0 */
/* Base services every layer stands on: status codes, error text, log, host memory, strings, SHA-256 and name
 * patterns. Nothing here knows programs, models or files of a run. JSON, safetensors and config have headers
 * of their own beside this one. */
#ifndef SYI_BASE_H
#define SYI_BASE_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "switchyard/switchyard.h" /* enum sy_status, struct sy_error */

#define SYI_COUNT(array) (sizeof(array) / sizeof((array)[0]))

#if defined(__GNUC__)
#    define SYI_PRINTF(f, a) __attribute__((format(printf, f, a)))
#    define SYI_MUST_CHECK   __attribute__((warn_unused_result))
#else
#    define SYI_PRINTF(f, a)
#    define SYI_MUST_CHECK
#endif

/* A piece of work that another function calls, in a thread of its own perhaps. */
typedef int (*syi_work_fn)(void *arg, struct sy_error *err);

/* ---- sizes ---- */

/* What does not fit in 64 bits stays at the largest number, so a long sum or product of sizes is checked
 * once, at its end. */
#define SYI_TOO_LARGE UINT64_MAX
static inline uint64_t syi_add_u64(uint64_t a, uint64_t b)
{
    return a > SYI_TOO_LARGE - b ? SYI_TOO_LARGE : a + b;
}
static inline uint64_t syi_mul_u64(uint64_t a, uint64_t b)
{
    return b && a > SYI_TOO_LARGE / b ? SYI_TOO_LARGE : a * b;
}

/* ---- error.c ---- */

/* Writes one line of text into err (borrowed, may be NULL) unless it already holds an error: the first error
 * wins. Returns code, so `return syi_error(err, SY_EINVAL, "...")` reads naturally. */
int syi_error(struct sy_error *err, int code, const char *format, ...) SYI_PRINTF(3, 4);
/* The same for a failed system call: appends ": " and the text of errno, and chooses the code from errno. */
int syi_error_system(struct sy_error *err, const char *format, ...) SYI_PRINTF(2, 3);
/* File names and data end up in messages; a message stays one line whatever they hold: control characters become '?'. */
void syi_keep_one_line(char *text);

/* ---- log.c ---- */

/* Sends one line to the sink set by the program (none by default: a library does not print). Thread-safe. */
void syi_log(enum sy_log_level level, const char *format, ...) SYI_PRINTF(2, 3);

/* ---- memory.c ---- */

/* Zeroed memory or NULL with SY_ENOMEM in err. 64-byte aligned. Freed by syi_free. */
void *syi_alloc(size_t bytes, struct sy_error *err) SYI_MUST_CHECK;
/* The same not zeroed and without a message; alignment: a power of two. */
void *syi_take(size_t bytes, size_t alignment) SYI_MUST_CHECK;
void syi_free(void *memory);
/* Grows *array (elements of `size` bytes, capacity *capacity) so that it holds at least `need`; contents
 * kept, new part zeroed. On failure nothing changes. */
int syi_grow(void **array, size_t *capacity, size_t need, size_t size, struct sy_error *err) SYI_MUST_CHECK;
#define SYI_GROW(array, capacity, need, err)                                                                 \
    syi_grow((void **)&(array), &(capacity), (need), sizeof(*(array)), (err))
char *syi_strdup(const char *text, struct sy_error *err) SYI_MUST_CHECK; /* owned by the caller: syi_free */
/* printf into fresh memory, owned by the caller; NULL when memory is short. */
char *syi_format(const char *format, ...) SYI_PRINTF(1, 2) SYI_MUST_CHECK;

/* ---- memory_free.c ---- */

/* Bytes that this process can still take, by what the system has available and by the limits of its control
 * groups; 0: unknown. root: "" on a real system (tests give a folder that holds proc and sys/fs/cgroup). */
uint64_t syi_memory_free(const char *root);
/* The two of which that is the smaller: of the system, and of the control groups; 0: unknown, no limit. */
uint64_t syi_memory_free_of_system(const char *root);
uint64_t syi_memory_free_of_groups(const char *root);

/* ---- sha256.c (FIPS 180-4) ---- */

struct syi_sha256 {
    uint32_t state[8];
    uint64_t bytes;    /* hashed so far */
    uint8_t block[64]; /* partly filled */
};
void syi_sha256_init(struct syi_sha256 *hash);
void syi_sha256_add(struct syi_sha256 *hash, const void *data, size_t bytes);
void syi_sha256_hex(struct syi_sha256 *hash, char hex[65]); /* finishes: hash must be initialised again */

/* ---- crc32c.c (RFC 3720 B.4) ---- */

/* The sum of data that follow others whose sum is crc; 0: they follow nothing. */
uint32_t syi_crc32c(uint32_t crc, const void *data, size_t bytes);
uint32_t syi_crc32c_plain(uint32_t crc, const void *data,
                          size_t bytes); /* the same on any processor, slower */

/* ---- pattern.c ---- */

/* Whether a shell-like pattern (`*` any run of characters, `?` one, everything else itself) matches the whole
 * name. Used to choose parameters by their path ("*expert*"). */
int syi_pattern_match(const char *pattern, const char *name);
/* The same; star: where it matches, the parts of the name that the pattern's `*` stand for, of the first SYI_STARS. An
 * earlier `*` takes as little as it can. */
enum { SYI_STARS = 8 };
struct syi_star {
    const char *begin, *end;
};
int syi_pattern_stars(const char *pattern, const char *name, struct syi_star star[SYI_STARS]);
/* Edit distance of two strings of at most 255 bytes each, in bytes; two that changed places are one edit (optimal string
 * alignment). Longer ones are far apart. */
int syi_edit_distance(const char *a, const char *b);
/* Whether a name may be a misspelling of a known one: a third of its letters is wrong at most, or one of
 * several. */
int syi_is_near(const char *name, const char *known);
/* For "did you mean": of the words offered the nearest that the name may be a misspelling of. Start from {.name = ...};
 * known is "" until one is offered. */
struct syi_nearest {
    const char *name;
    char known[64];
    int distance; /* from it to the name */
};
void syi_nearest_offer(struct syi_nearest *nearest, const char *word, size_t length);

/* ---- file.c ---- */

/* Reads a whole file into fresh memory (owned by the caller, one NUL byte after the end). */
int syi_file_read(const char *path, char **text, size_t *bytes, struct sy_error *err) SYI_MUST_CHECK;
/* The same of a file that somebody else made: SY_EFORMAT where it is none, as a device or a pipe, or has over `most` bytes. */
int syi_file_read_regular(const char *path, size_t most, char **text, size_t *bytes,
                          struct sy_error *err) SYI_MUST_CHECK;
/* The first bytes - 1 of a file as text, for the small ones that the system makes; takes no memory. 0: it cannot be read. */
int syi_file_begin(const char *path, char *text, size_t bytes);
struct stat;
/* When a file was last written, in nanoseconds. */
int64_t syi_modified(const struct stat *info);
/* What the first line of it that begins with the key has after the key; "": there is none in the first 16 KiB. */
void syi_file_line(const char *path, const char *key, char *text, size_t bytes);
/* The folder that holds path, "." where path has no slash. Owned by the caller. */
char *syi_file_parent(const char *path, struct sy_error *err);
/* Whether the open file still is what path leads to. */
int syi_file_is_current(int fd, const char *path);
/* Of an open file, whose path is for messages: writes all bytes at its position; reads up to `bytes` from an offset, *n is
 * less only at the end of the file. */
int syi_write_all(int fd, const char *path, const void *data, size_t bytes,
                  struct sy_error *err) SYI_MUST_CHECK;
int syi_read_at(int fd, const char *path, int64_t offset, void *to, size_t bytes, size_t *n,
                struct sy_error *err) SYI_MUST_CHECK;
/* Writes `bytes` to path.tmp, fsyncs, renames to path and fsyncs the folder: path holds the old or the new
 * content, never a part. For a folder in which the program alone has files. */
int syi_file_write(const char *path, const void *data, size_t bytes, struct sy_error *err) SYI_MUST_CHECK;
/* Likewise where others have files, too, or other processes make the same one: what fill(arg, fd, name, err) writes to fd, which can
 * be read as well, goes to a file `name` that nobody has, and path is the name of the last that was whole. Nothing is left of it after a
 * failure. syi_file_replace writes bytes so; where path is a link, that stays and leads to them, or is an error if it leads to
 * nothing. */
typedef int syi_fill_fn(void *arg, int fd, const char *name, struct sy_error *err);
int syi_file_make(const char *path, syi_fill_fn *fill, void *arg, struct sy_error *err) SYI_MUST_CHECK;
int syi_file_replace(const char *path, const void *data, size_t bytes, struct sy_error *err) SYI_MUST_CHECK;
/* Removes the files that processes which were killed left of path in the two above: processes may be on other hosts, so those
 * that nobody has written to for SYI_ABANDONED seconds. */
enum { SYI_ABANDONED = 3600 };
void syi_file_remove_unfinished(const char *path);
int syi_file_sync_folder(const char *folder, struct sy_error *err) SYI_MUST_CHECK;
/* The folder of a file that was renamed, so that its name survives a crash. */
int syi_file_sync_parent(const char *path, struct sy_error *err) SYI_MUST_CHECK;
int syi_make_folders(const char *path, struct sy_error *err) SYI_MUST_CHECK; /* mkdir -p */

/* Which contents a file had: equal for equal bytes, whatever the file is called. */
struct syi_file_id {
    int64_t bytes, lines; /* lines: line feeds, and a last line without one */
    char sha256[65];      /* of all bytes; "": nothing is known of the file */
};
struct syi_file_id syi_file_identify(const char *text, size_t bytes);
/* Of several files one after the other; of nothing (zeroed) and one it is that one's. */
struct syi_file_id syi_file_id_join(const struct syi_file_id *first, const struct syi_file_id *second);

/* ---- clock.c ---- */
double syi_seconds(void); /* monotonic */

#endif
