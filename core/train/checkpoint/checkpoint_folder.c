/* SPDX-License-Identifier: Apache-2.0 */
/* Folders of checkpoints: which are complete, making a new one, giving it its name, removing. A folder with a
 * plain number as its name and meta.json in it is a checkpoint. STEP.tmp is never one. While a checkpoint is
 * replaced by another of the same step, the old one is called STEP.old; it counts as long as STEP is not
 * there. */
#include "config.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "train/checkpoint/checkpoint_parts.h"

static char *format_failed(struct sy_error *err)
{
    syi_error(err, SY_ENOMEM, "out of memory");
    return NULL;
}

char *syi_checkpoint_path(const char *run_dir, int64_t step, const char *suffix, struct sy_error *err)
{
    char *path = syi_format("%s/checkpoints/%" PRId64 "%s", run_dir, step, suffix);
    return path ? path : format_failed(err);
}

static int exists(const char *path)
{
    struct stat info;
    return !lstat(path, &info);
}

static int is_complete(const char *run_dir, int64_t step, const char *suffix)
{
    char *meta = syi_format("%s/checkpoints/%" PRId64 "%s/meta.json", run_dir, step, suffix);
    int complete = meta && exists(meta);
    syi_free(meta);
    return complete;
}

/* The step of a folder's name, *suffix behind it; -1: the name is none of ours. */
static int64_t parse_name(const char *name, const char **suffix)
{
    char *end = NULL;
    if (name[0] < '0' || name[0] > '9' || (name[0] == '0' && name[1] >= '0' && name[1] <= '9')) return -1;
    errno = 0;
    long long step = strtoll(name, &end, 10);
    *suffix = end;
    return errno ? -1 : step;
}

/* ---- listing ---- */

/* Calls fn for every folder of ours below checkpoints/; a run that has none yet is fine. */
static int each_folder(const char *run_dir,
                       int (*fn)(void *arg, const char *run_dir, int64_t step, const char *suffix,
                                 struct sy_error *err),
                       void *arg, struct sy_error *err)
{
    char *path = syi_format("%s/checkpoints", run_dir);
    if (!path) return syi_error(err, SY_ENOMEM, "out of memory");
    DIR *folder = opendir(path);
    int status = folder || errno == ENOENT ? SY_OK : syi_error_system(err, "cannot read folder %s", path);
    syi_free(path);
    if (!folder) return status;
    for (struct dirent *entry; !status && (entry = readdir(folder));) {
        const char *suffix = "";
        int64_t step = parse_name(entry->d_name, &suffix);
        if (step >= 0) status = fn(arg, run_dir, step, suffix, err);
    }
    closedir(folder);
    return status;
}

struct steps {
    int64_t *step;
    size_t n, capacity;
};

static int note_complete(void *arg, const char *run_dir, int64_t step, const char *suffix,
                         struct sy_error *err)
{
    struct steps *steps = arg;
    if (suffix[0] && strcmp(suffix, ".old")) return SY_OK;
    if (!is_complete(run_dir, step, suffix)) return SY_OK;
    int status = SYI_GROW(steps->step, steps->capacity, steps->n + 1, err);
    if (!status) steps->step[steps->n++] = step;
    return status;
}

static int ascending(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

int syi_checkpoint_list(const char *run_dir, int64_t **list, size_t *n, struct sy_error *err)
{
    struct steps steps = {0};
    size_t kept = 0;
    int status = each_folder(run_dir, note_complete, &steps, err);
    if (steps.n) qsort(steps.step, steps.n, sizeof *steps.step, ascending);
    for (size_t i = 0; i < steps.n; i++) /* STEP and STEP.old are one */
        if (!kept || steps.step[kept - 1] != steps.step[i]) steps.step[kept++] = steps.step[i];
    if (status) syi_free(steps.step);
    *list = status ? NULL : steps.step;
    *n = status ? 0 : kept;
    return status;
}

int64_t syi_checkpoint_latest(const char *run_dir)
{
    int64_t *steps;
    size_t n;
    if (syi_checkpoint_list(run_dir, &steps, &n, NULL)) return -1;
    int64_t latest = n ? steps[n - 1] : -1;
    syi_free(steps);
    return latest;
}

/* The newest steps but `step`, as "60, 40, 20"; "" when there are none. */
static void print_others(const char *run_dir, int64_t step, char *text, size_t bytes)
{
    enum { MOST = 8 };
    int64_t *steps;
    size_t n, used = 0, shown = 0;
    text[0] = '\0';
    if (syi_checkpoint_list(run_dir, &steps, &n, NULL)) return;
    for (size_t i = n; i-- > 0 && used < bytes && shown < MOST;)
        if (steps[i] != step) {
            used += (size_t)snprintf(text + used, bytes - used, "%s%" PRId64, used ? ", " : "", steps[i]);
            shown++;
        }
    syi_free(steps);
}

void syi_checkpoint_advice(const char *run_dir, int64_t step, char *text, size_t bytes)
{
    char others[256];
    print_others(run_dir, step, others, sizeof others);
    if (others[0])
        snprintf(
            text, bytes,
            "; try --checkpoint with another step: %s (--resume goes on from the newest once the folder of "
            "step %" PRId64 " is removed)",
            others, step);
    else
        snprintf(text, bytes, "; there is no other checkpoint in this run");
}

char *syi_checkpoint_find(const char *run_dir, int64_t step, struct sy_error *err)
{
    char others[256];
    if (is_complete(run_dir, step, "")) return syi_checkpoint_path(run_dir, step, "", err);
    if (is_complete(run_dir, step, ".old")) return syi_checkpoint_path(run_dir, step, ".old", err);
    print_others(run_dir, step, others, sizeof others);
    if (!others[0])
        syi_error(err, SY_ENOENT, "%s holds no checkpoint: train first", run_dir);
    else
        syi_error(err, SY_ENOENT, "%s holds no checkpoint of step %" PRId64 "; there are: %s", run_dir, step,
                  others);
    return NULL;
}

/* ---- removing ---- */

/* A folder of files. */
static int remove_folder(const char *path, struct sy_error *err)
{
    DIR *folder = opendir(path);
    int status = SY_OK;
    if (!folder) return errno == ENOENT ? SY_OK : syi_error_system(err, "cannot remove folder %s", path);
    for (struct dirent *entry; !status && (entry = readdir(folder));) {
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..")) continue;
        if (unlinkat(dirfd(folder), entry->d_name, 0))
            status = syi_error_system(err, "cannot remove %s/%s", path, entry->d_name);
    }
    closedir(folder);
    if (!status && rmdir(path)) status = syi_error_system(err, "cannot remove folder %s", path);
    return status;
}

static int move(const char *from, const char *to, struct sy_error *err)
{
    return rename(from, to) ? syi_error_system(err, "cannot rename %s to %s", from, to) : SY_OK;
}

/* Loses the name of a checkpoint first, so that a kill in the middle leaves no half of one. */
static int remove_checkpoint(const char *run_dir, int64_t step, const char *suffix, struct sy_error *err)
{
    char *path = syi_checkpoint_path(run_dir, step, suffix, err);
    char *doomed = syi_checkpoint_path(run_dir, step, ".tmp", err);
    int status = path && doomed ? move(path, doomed, err) : SY_ENOMEM;
    if (!status) status = remove_folder(doomed, err);
    syi_free(path);
    syi_free(doomed);
    return status;
}

void syi_checkpoint_discard(const char *run_dir, int64_t step)
{
    struct sy_error err = {0};
    char *path = syi_checkpoint_path(run_dir, step, ".tmp", &err);
    if (!path || remove_folder(path, &err)) syi_log(SY_LOG_WARN, "%s", err.text);
    syi_free(path);
}

/* ---- writing ---- */

/* What a killed process left: *.tmp goes; STEP.old gets its name back, or goes when its successor is there.
 */
static int clear_away(void *arg, const char *run_dir, int64_t step, const char *suffix, struct sy_error *err)
{
    (void)arg;
    int is_old = !strcmp(suffix, ".old"), status = SY_OK;
    if (!is_old && strcmp(suffix, ".tmp")) return SY_OK;
    char *path = syi_checkpoint_path(run_dir, step, suffix, err);
    char *name = syi_checkpoint_path(run_dir, step, "", err);
    if (!path || !name)
        status = SY_ENOMEM;
    else if (is_old && !exists(name))
        status = move(path, name, err);
    else
        status = remove_folder(path, err);
    syi_free(path);
    syi_free(name);
    return status;
}

int syi_checkpoint_begin(const char *run_dir, int64_t step, struct sy_error *err)
{
    int status = each_folder(run_dir, clear_away, NULL, err);
    char *path = status ? NULL : syi_checkpoint_path(run_dir, step, ".tmp", err);
    if (!status) status = path ? syi_make_folders(path, err) : SY_ENOMEM;
    syi_free(path);
    return status;
}

/* tmp becomes final. What has that name now steps aside first, and comes back if that fails. */
static int replace(const char *tmp, const char *final, const char *old, struct sy_error *err)
{
    if (!exists(final)) return move(tmp, final, err);
    int status = move(final, old, err);
    if (status) return status;
    status = move(tmp, final, err);
    if (status && rename(old, final)) syi_log(SY_LOG_WARN, "%s is now called %s", final, old);
    return status;
}

/* Keeps the newest, the one just written and the best. What cannot be removed is no failure of the new
 * checkpoint. */
static void prune(const char *run_dir, int64_t written, int keep, int64_t best)
{
    struct sy_error err = {0};
    int64_t *steps;
    size_t n;
    int status = keep > 0 ? syi_checkpoint_list(run_dir, &steps, &n, &err) : SY_OK;
    if (keep > 0 && !status) {
        for (size_t i = 0; !status && i + (size_t)keep < n; i++)
            if (steps[i] != written && steps[i] != best)
                status = remove_checkpoint(run_dir, steps[i], "", &err);
        syi_free(steps);
    }
    if (status) syi_log(SY_LOG_WARN, "old checkpoints stay: %s", err.text);
}

static int commit(const char *run_dir, const char *tmp, const char *final, const char *old,
                  struct sy_error *err)
{
    int status = replace(tmp, final, old, err);
    char *folder = syi_format("%s/checkpoints", run_dir);
    if (!status)
        status = folder ? syi_file_sync_folder(folder, err) : syi_error(err, SY_ENOMEM, "out of memory");
    if (!status) status = syi_file_sync_folder(run_dir, err); /* checkpoints/ itself may be new */
    syi_free(folder);
    return status;
}

int syi_checkpoint_commit(const char *run_dir, int64_t step, int keep, int64_t best, struct sy_error *err)
{
    char *tmp = syi_checkpoint_path(run_dir, step, ".tmp", err);
    char *final = syi_checkpoint_path(run_dir, step, "", err);
    char *old = syi_checkpoint_path(run_dir, step, ".old", err);
    struct sy_error left = {0};
    int status = tmp && final && old ? commit(run_dir, tmp, final, old, err) : SY_ENOMEM;
    if (!status && exists(old) && remove_folder(old, &left)) syi_log(SY_LOG_WARN, "%s", left.text);
    if (!status) prune(run_dir, step, keep, best);
    syi_free(tmp);
    syi_free(final);
    syi_free(old);
    return status;
}
