/* SPDX-License-Identifier: Apache-2.0 */
/* The run directory and its small files. Checkpoints and the metrics database in it are written by others;
 * the lock is run_lock.c's. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/packed.h"
#include "train/launch/run_dir.h"

/* PATH/NAME, owned by the caller; NULL with an error. */
static char *file_in(const char *path, const char *name, struct sy_error *err)
{
    char *file = syi_format("%s/%s", path, name);
    if (!file) syi_error(err, SY_ENOMEM, "out of memory");
    return file;
}

static void time_text(const char *format, char *text, size_t bytes)
{
    time_t now = time(NULL);
    struct tm parts;
    text[0] = '\0';
    if (localtime_r(&now, &parts)) strftime(text, bytes, format, &parts);
}

/* ---- making ---- */

int syi_run_dir_make(const char *run_name, char *path, size_t bytes, struct sy_error *err)
{
    char now[32];
    time_text("%Y%m%d-%H%M%S", now, sizeof now);
    int status = syi_make_folders("runs", err);
    if (status) return status;
    for (int same = 1;; same++) {
        int length = same == 1 ? snprintf(path, bytes, "runs/%s-%s", run_name, now)
                               : snprintf(path, bytes, "runs/%s-%s-%d", run_name, now, same);
        if (length < 0 || (size_t)length >= bytes)
            return syi_error(err, SY_EINVAL, "run.name is too long for a folder: %.64s...", run_name);
        if (!mkdir(path, 0777)) return SY_OK; /* of runs that start in one second each makes its own */
        if (errno != EEXIST) return syi_error_system(err, "cannot make folder %s", path);
    }
}

int syi_run_dir_exists(const char *path)
{
    struct stat info;
    char file[PATH_MAX]; /* no memory that could be short and make a run of a new folder */
    int length = snprintf(file, sizeof file, "%s/run.conf", path);
    return length >= PATH_MAX || !stat(file, &info) || (errno != ENOENT && errno != ENOTDIR);
}

/* ---- open and close ---- */

static int open_log(const char *path, const char *name, FILE **log, struct sy_error *err)
{
    char *file = file_in(path, name, err);
    if (!file) return SY_ENOMEM;
    int fd = open(file, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666), status = SY_OK;
    *log = fd < 0 ? NULL : fdopen(fd, "a");
    if (!*log) {
        status = syi_error_system(err, "cannot open %s", file);
        if (fd >= 0) close(fd);
    }
    syi_free(file);
    return status;
}

int syi_run_dir_open_rank_log(const char *path, const char *name, FILE **log, struct sy_error *err)
{
    char file[48];
    char *folder = file_in(path, "ranks", err);
    if (!folder) return SY_ENOMEM;
    int status = syi_make_folders(folder, err);
    syi_free(folder);
    snprintf(file, sizeof file, "ranks/%s.log", name);
    return status ? status : open_log(path, file, log, err);
}

/* Where there is no run yet, what has the name of a file that a run replaces may be the user's. */
static int check_files(const char *path, struct sy_error *err)
{
    static const char *const files[][6] = {/* how what a run wrote there begins */
                                           {"status", "running\n", "done\n", "stopped\n", "failed\n"},
                                           {"init.txt", "init: "},
                                           {"move.answer", "id "}};
    int status = SY_OK;
    for (size_t i = 0; i < SYI_COUNT(files) && !status; i++) {
        char *file = file_in(path, files[i][0], err), begin[16];
        if (!file) return SY_ENOMEM;
        int ours = !syi_file_begin(file, begin, sizeof begin) || !*begin;
        for (int k = 1; files[i][k]; k++) ours |= !strncmp(begin, files[i][k], strlen(files[i][k]));
        if (!ours)
            status = syi_error(err, SY_EEXIST,
                               "%s is no file of a run, and a run would write over it: move it away, or "
                               "choose another run directory",
                               file);
        syi_free(file);
    }
    return status;
}

int syi_run_dir_open(const char *path, const struct syi_lock_options *options, struct syi_run_dir *dir,
                     struct sy_error *err)
{
    char taken_over[512];
    memset(dir, 0, sizeof *dir);
    if (!path[0]) return syi_error(err, SY_EINVAL, "the run directory has no name: give one with --run-dir");
    if (strlen(path) >= sizeof dir->path)
        return syi_error(err, SY_EINVAL, "the run directory's name is too long (%zu bytes): %.64s...",
                         strlen(path), path);
    strcpy(dir->path, path);
    int status = syi_make_folders(path, err);
    if (!status && !syi_run_dir_exists(path)) status = check_files(path, err);
    if (!status) status = syi_run_lock_take(path, options, taken_over, sizeof taken_over, err);
    if (status) return status;
    dir->locked = 1;
    dir->look = syi_seconds();
    status = syi_heartbeat_start(path, options && options->beat > 0 ? options->beat : SYI_HEARTBEAT,
                                 &dir->heartbeat, err);
    if (!status) status = open_log(path, "log", &dir->log, err);
    if (status) {
        syi_run_dir_close(dir);
        return status;
    }
    if (taken_over[0]) {
        syi_run_dir_log(dir, taken_over);
        syi_log(SY_LOG_WARN, "run directory %s: %s", path, taken_over);
    }
    return SY_OK;
}

void syi_run_dir_close(struct syi_run_dir *dir)
{
    if (dir->log) fclose(dir->log);
    dir->log = NULL;
    syi_heartbeat_stop(&dir->heartbeat);
    if (dir->locked) syi_run_lock_release(dir->path);
    dir->locked = 0;
}

int syi_run_dir_beat(struct syi_run_dir *dir, double seconds, struct sy_error *err)
{
    double now = syi_seconds();
    if (!dir->locked || now - dir->look < seconds) return SY_OK;
    dir->look = now;
    return syi_run_lock_beat(dir->path, err);
}

/* ---- files ---- */

static int write_file(const struct syi_run_dir *dir, const char *name, const char *text, size_t bytes,
                      struct sy_error *err)
{
    if (!dir->locked)
        return syi_error(err, SY_EINTERNAL, "%s/%s is written without the lock", dir->path, name);
    int status = syi_run_lock_beat(dir->path, err);
    if (status) return status;
    char *file = file_in(dir->path, name, err);
    if (!file) return SY_ENOMEM;
    status = syi_file_write(file, text, bytes, err);
    syi_free(file);
    return status;
}

int syi_run_dir_status(const struct syi_run_dir *dir, const char *word, struct sy_error *err)
{
    char line[64];
    int length = snprintf(line, sizeof line, "%s\n", word);
    if (length < 0 || (size_t)length >= sizeof line)
        return syi_error(err, SY_EINTERNAL, "status is one word, not %.64s...", word);
    return write_file(dir, "status", line, (size_t)length, err);
}

int syi_run_dir_write_text(const struct syi_run_dir *dir, const char *name, const struct syi_text *text,
                           struct sy_error *err)
{
    int status = syi_text_status(text, err);
    return status ? status : write_file(dir, name, text->data, text->length, err);
}

/* Below a folder whose name has letters of patterns, or is too long, a path stays as it is. */
static void make_absolute(char path[SYI_CONFIG_STRING], const char *folder)
{
    char whole[SYI_CONFIG_STRING];
    if (!*path || *path == '/' || strpbrk(folder, "*?[")) return;
    int length = snprintf(whole, sizeof(whole), "%s/%s", strcmp(folder, "/") ? folder : "", path);
    if (length < SYI_CONFIG_STRING) memcpy(path, whole, (size_t)length + 1);
}

void syi_run_dir_absolute(struct syi_config *config)
{
    char folder[SYI_CONFIG_STRING];
    if (!getcwd(folder, sizeof(folder))) return;
    for (int i = 0; i < config->task.n; i++) {
        make_absolute(config->task.part[i].train, folder);
        make_absolute(config->task.part[i].valid, folder);
        make_absolute(config->task.part[i].test, folder);
    }
    for (int i = 0; i < config->vocabulary.n; i++) make_absolute(config->vocabulary.part[i].file, folder);
    make_absolute(config->data.cache, folder);
    make_absolute(config->metrics.dir, folder);
}

int syi_run_dir_write_config(const struct syi_run_dir *dir, const struct syi_config *config,
                             struct sy_error *err)
{
    struct syi_text text = {0};
    struct syi_config *stored = syi_alloc(sizeof(*stored), err);
    if (!stored) return SY_ENOMEM;
    *stored = *config;
    syi_run_dir_absolute(stored);
    syi_config_print(stored, false, &text);
    syi_free(stored);
    int status = syi_run_dir_write_text(dir, "run.conf", &text, err);
    syi_text_free(&text);
    return status;
}

static int has_file(const char *path, const char *name)
{
    char *file = file_in(path, name, NULL);
    int there = file && !access(file, F_OK);
    syi_free(file);
    return there;
}

int syi_run_dir_refuse(const char *path, const char *before, const char *others, struct sy_error *err)
{
    if (has_file(path, "config.json") || has_file(path, "checkpoint") || has_file(path, "state/checkpoint"))
        return syi_error(
            err, SY_ENOENT,
            "%s%s holds no run (it has no run.conf) but looks like a checkpoint of another program: make "
            "a run directory of it first: switchyard import %s --to RUN_DIR",
            before, path, path);
    return syi_error(err, SY_ENOENT,
                     "%s%s holds no run (it has no run.conf): give a directory that `switchyard train` or "
                     "`switchyard import` made, or %s",
                     before, path, others);
}

static int read_stored(const char *path, struct syi_config *config, struct sy_error *err)
{
    char *file = file_in(path, "run.conf", err);
    if (!file) return SY_ENOMEM;
    int status = syi_config_defaults(config, err);
    if (!status) status = syi_config_load(config, file, err);
    syi_free(file);
    return status;
}

/* Runs of earlier versions may have a course beside factors: it counted for nothing, and is refused now. */
static void drop_course(struct syi_config *config)
{
    if (!*config->train.lr_factors) return;
    config->train.schedule = SYI_SCHEDULE_LINEAR;
    config->train.final_learning_rate = 0;
}

int syi_run_dir_read_config(const char *path, struct syi_config *config, struct sy_error *err)
{
    struct stat info;
    if (stat(path, &info)) return syi_error_system(err, "run directory %s", path);
    int packed = syi_packed_is(path);
    if (!packed && S_ISREG(info.st_mode)) return syi_packed_refuse(path, err);
    if (!packed && !syi_run_dir_exists(path))
        return syi_run_dir_refuse(path, "", "a file that `switchyard pack` made", err);
    int status = packed ? syi_packed_config(path, config, err) : read_stored(path, config, err);
    if (!status) drop_course(config);
    return status;
}

/* "vocabulary" or "vocabulary.targets": as its section is called. */
static char *copy_of(const char *path, const struct syi_vocabulary_part *part, struct sy_error *err)
{
    char name[SYI_PACKED_NAME];
    syi_packed_vocabulary_name(part, name);
    return file_in(path, name, err);
}

int syi_run_dir_keep_vocabulary(const struct syi_run_dir *dir, const struct syi_vocabulary_part *part,
                                const char *text, size_t bytes, struct sy_error *err)
{
    char *file = copy_of(dir->path, part, err), *before = NULL;
    size_t bytes_before;
    int status = file ? SY_OK : SY_ENOMEM;
    if (!status && access(file, F_OK))
        status = write_file(dir, strrchr(file, '/') + 1, text, bytes, err);
    else if (!status) {
        status = syi_file_read(file, &before, &bytes_before, err);
        if (!status && (bytes != bytes_before || memcmp(text, before, bytes)))
            status =
                syi_error(err, SY_EMISMATCH,
                          "%s is not the vocabulary that the run was trained with, which is kept in %s: put "
                          "the old contents back, or set vocabulary%s%s.file to the copy",
                          part->file, file, *part->name_of_part ? "." : "", part->name_of_part);
    }
    syi_free(before);
    syi_free(file);
    return status;
}

int syi_run_dir_keep_vocabularies(const struct syi_run_dir *dir, const struct syi_config *config,
                                  struct sy_error *err)
{
    int status = SY_OK;
    for (int i = 0; i < config->vocabulary.n && !status; i++) {
        const struct syi_vocabulary_part *part = &config->vocabulary.part[i];
        char *text = NULL;
        size_t bytes;
        if (!*part->file) continue;
        status = syi_packed_read_vocabulary(part, &text, &bytes, err);
        if (!status) status = syi_run_dir_keep_vocabulary(dir, part, text, bytes, err);
        syi_free(text);
    }
    return status;
}

int syi_run_dir_use_vocabularies(const char *path, struct syi_config *config, struct sy_error *err)
{
    if (syi_packed_is(path)) return SY_OK; /* they name it */
    for (int i = 0; i < config->vocabulary.n; i++) {
        struct syi_vocabulary_part *part = &config->vocabulary.part[i];
        char *file = *part->file ? copy_of(path, part, err) : NULL;
        int there = file && !access(file, F_OK), long_name = file && strlen(file) >= sizeof part->file;
        if (there && !long_name) strcpy(part->file, file);
        syi_free(file);
        if (*part->file && !file) return SY_ENOMEM;
        if (there && long_name)
            return syi_error(err, SY_EINVAL, "the run directory's name is too long: %.64s...", path);
    }
    return SY_OK;
}

void syi_log_append(FILE *log, const char *line)
{
    char now[32];
    if (!log) return;
    int missing = ferror(log); /* and what is there of the first of them has no end */
    clearerr(log);
    time_text("%Y-%m-%d %H:%M:%S", now, sizeof now);
    if (missing) fprintf(log, "\n%s lines are missing here, which could not be written\n", now);
    fprintf(log, "%s %s\n", now, line);
    fflush(log);
}

void syi_run_dir_log(struct syi_run_dir *dir, const char *line)
{
    syi_log_append(dir->log, line);
}
