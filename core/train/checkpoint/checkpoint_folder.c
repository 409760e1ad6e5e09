/* SPDX-License-Identifier: Apache-2.0 */
/* Folders of checkpoints: which are complete, making a new one, giving it its name, removing. A folder with a
 * plain number as its name and meta.json in it is a checkpoint. STEP.tmp is never one. While a checkpoint is
 * replaced by another of the same step, the old one is called STEP.old; it counts as long as STEP is not
 * complete. No save and no kill leaves a STEP that holds something else: what is called so may have been a
 * checkpoint, so it is an error, never an absence. */
#include "config.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/packed.h"
#include "train/checkpoint/checkpoint_parts.h"

char *syi_checkpoint_path(const char *run_dir, int64_t step, const char *suffix, struct sy_error *err)
{
    char *path = syi_format("%s/checkpoints/%" PRId64 "%s", run_dir, step, suffix);
    if (!path) syi_error(err, SY_ENOMEM, "out of memory");
    return path;
}

int syi_checkpoint_split(char *path, int64_t *step)
{
    char *name = strrchr(path, '/');
    if (!name || !syi_config_number(name + 1, step)) return 0;
    *name = '\0';
    char *folder = strrchr(path, '/');
    if (!folder || folder == path || strcmp(folder, "/checkpoints")) return 0;
    *folder = '\0';
    return 1;
}

/* Whether something of this name is there. What cannot be looked at is an error, never an absence. */
static int look(const char *path, int *there, struct sy_error *err)
{
    struct stat info;
    *there = !lstat(path, &info);
    if (*there || errno == ENOENT || errno == ENOTDIR) return SY_OK;
    return syi_error_system(err, "cannot look at %s", path);
}

static int is_complete(const char *run_dir, int64_t step, const char *suffix, int *complete,
                       struct sy_error *err)
{
    char *meta = syi_format("%s/checkpoints/%" PRId64 "%s/meta.json", run_dir, step, suffix);
    int status = meta ? look(meta, complete, err) : syi_error(err, SY_ENOMEM, "out of memory");
    syi_free(meta);
    return status;
}

/* The step of a folder's name, *suffix after it; -1: the name is none of ours. */
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

/* *folder NULL with SY_OK: there is none. A file or a link that leads nowhere in its place is an error. */
static int open_folder(const char *path, DIR **folder, struct sy_error *err)
{
    struct stat info;
    *folder = opendir(path);
    int reason = errno;
    if (*folder || ((reason == ENOENT || reason == ENOTDIR) && lstat(path, &info))) return SY_OK;
    errno = reason;
    return syi_error_system(err, "cannot read folder %s", path);
}

/* NULL: the end, or *status says why the folder cannot be read. */
static const struct dirent *next_entry(DIR *folder, const char *path, int *status, struct sy_error *err)
{
    errno = 0;
    const struct dirent *entry = readdir(folder);
    if (!entry && errno) *status = syi_error_system(err, "cannot read folder %s", path);
    return entry;
}

/* Calls fn for every folder of ours below checkpoints/; a run that has none yet is fine. */
static int each_folder(const char *run_dir,
                       int (*fn)(void *arg, const char *run_dir, int64_t step, const char *suffix,
                                 struct sy_error *err),
                       void *arg, struct sy_error *err)
{
    const struct dirent *entry;
    DIR *folder = NULL;
    char *path = syi_format("%s/checkpoints", run_dir);
    int status = path ? open_folder(path, &folder, err) : syi_error(err, SY_ENOMEM, "out of memory");
    while (folder && !status && (entry = next_entry(folder, path, &status, err))) {
        const char *suffix = "";
        int64_t step = parse_name(entry->d_name, &suffix);
        if (step >= 0) status = fn(arg, run_dir, step, suffix, err);
    }
    if (folder) closedir(folder);
    syi_free(path);
    return status;
}

/* Whether more than an empty folder is there. */
static int holds_something(const char *path, int *holds, struct sy_error *err)
{
    const struct dirent *entry = NULL;
    DIR *folder = NULL;
    struct stat info;
    if (stat(path, &info) || !S_ISDIR(info.st_mode)) return look(path, holds, err);
    int status = open_folder(path, &folder, err);
    while (folder && (entry = next_entry(folder, path, &status, err)))
        if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, "..")) break;
    if (folder) closedir(folder);
    *holds = entry != NULL;
    return status;
}

/* What has the name of a checkpoint and holds something is one: *complete becomes 1 where another process has just
 * given it that name. */
static int check_name(const char *run_dir, int64_t step, const char *suffix, int *complete,
                      struct sy_error *err)
{
    int holds;
    char *path = syi_checkpoint_path(run_dir, step, suffix, err);
    int status = path ? holds_something(path, &holds, err) : SY_ENOMEM;
    if (!status && holds) status = is_complete(run_dir, step, suffix, complete, err);
    if (!status && holds && !*complete)
        status = syi_error(
            err, SY_EFORMAT,
            "%s has the name of a checkpoint, but no meta.json, so it may be one that was damaged: put its "
            "meta.json back, or move it out of %s/checkpoints to do without it",
            path, run_dir);
    syi_free(path);
    return status;
}

struct steps {
    int64_t *step;
    size_t n, capacity;
    syi_checkpoint_damaged_fn damaged; /* NULL: damage ends the listing */
    void *arg;
};

/* What a removal that was killed left of STEP.old is no harm beside a whole STEP. */
static int note_complete(void *arg, const char *run_dir, int64_t step, const char *suffix,
                         struct sy_error *err)
{
    struct steps *steps = arg;
    int complete, replaced = 0, is_old = !strcmp(suffix, ".old");
    if (suffix[0] && !is_old) return SY_OK;
    int status = is_complete(run_dir, step, suffix, &complete, err);
    if (!status && !complete && is_old) status = is_complete(run_dir, step, "", &replaced, err);
    if (!status && !complete && !replaced) status = check_name(run_dir, step, suffix, &complete, err);
    if (status || !complete) return status;
    status = SYI_GROW(steps->step, steps->capacity, steps->n + 1, err);
    if (!status) steps->step[steps->n++] = step;
    return status;
}

static int ascending(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static int note_folder(void *arg, const char *run_dir, int64_t step, const char *suffix, struct sy_error *err)
{
    struct steps *steps = arg;
    struct sy_error why = {0};
    int status = note_complete(steps, run_dir, step, suffix, &why);
    if (!status) return SY_OK;
    if (!steps->damaged || status == SY_ENOMEM) return syi_error(err, status, "%s", why.text);
    steps->damaged(steps->arg, &why);
    return SY_OK;
}

int syi_checkpoint_list_whole(const char *run_dir, syi_checkpoint_damaged_fn damaged, void *arg,
                              int64_t **list, size_t *n, struct sy_error *err)
{
    struct steps steps = {.damaged = damaged, .arg = arg};
    size_t kept = 0;
    int status = each_folder(run_dir, note_folder, &steps, err);
    if (steps.n) qsort(steps.step, steps.n, sizeof *steps.step, ascending);
    for (size_t i = 0; i < steps.n; i++) /* STEP and STEP.old are one */
        if (!kept || steps.step[kept - 1] != steps.step[i]) steps.step[kept++] = steps.step[i];
    if (status) syi_free(steps.step);
    *list = status ? NULL : steps.step;
    *n = status ? 0 : kept;
    return status;
}

int syi_checkpoint_list(const char *run_dir, int64_t **list, size_t *n, struct sy_error *err)
{
    return syi_checkpoint_list_whole(run_dir, NULL, NULL, list, n, err);
}

int syi_checkpoint_before(const char *run_dir, int64_t most, int64_t *step, struct sy_error *err)
{
    int64_t *steps;
    size_t n;
    int status = syi_checkpoint_list(run_dir, &steps, &n, err);
    while (!status && n && steps[n - 1] > most) n--;
    *step = !status && n ? steps[n - 1] : -1;
    syi_free(steps);
    return status;
}

int syi_checkpoint_latest(const char *run_dir, int64_t *step, struct sy_error *err)
{
    return syi_checkpoint_before(run_dir, INT64_MAX, step, err);
}

/* The newest steps but `step`, as "60, 40, 20"; "" when there are none. */
static int print_others(const char *run_dir, int64_t step, char *text, size_t bytes, struct sy_error *err)
{
    enum { MOST = 8 };
    int64_t *steps;
    size_t n, used = 0, shown = 0;
    text[0] = '\0';
    int status = syi_checkpoint_list(run_dir, &steps, &n, err);
    for (size_t i = n; i-- > 0 && used < bytes && shown < MOST;)
        if (steps[i] != step) {
            used += (size_t)snprintf(text + used, bytes - used, "%s%" PRId64, used ? ", " : "", steps[i]);
            shown++;
        }
    syi_free(steps);
    return status;
}

void syi_checkpoint_advice(const char *run_dir, int64_t step, int resumed, char *text, size_t bytes)
{
    char others[256];
    text[0] = '\0';
    if (print_others(run_dir, step, others, sizeof others, NULL)) return;
    if (!others[0])
        snprintf(text, bytes, "; there is no other checkpoint in this run");
    else if (resumed)
        snprintf(text, bytes,
                 "; move the folder of step %" PRId64 " away to go on from the newest of the others: %s",
                 step, others);
    else
        snprintf(text, bytes, "; try --checkpoint with another step: %s", others);
}

int syi_checkpoint_none(const char *run_dir, struct sy_error *err)
{
    if (access(run_dir, F_OK)) return syi_error_system(err, "run directory %s", run_dir);
    if (syi_packed_is(run_dir))
        return syi_error(
            err, SY_ENOENT,
            "%s is a packed model, which holds no checkpoint: give the run directory that it was made of",
            run_dir);
    return syi_error(err, SY_ENOENT, "%s holds no checkpoint: train first", run_dir);
}

int syi_checkpoint_find(const char *run_dir, int64_t step, char **folder, struct sy_error *err)
{
    static const char *const suffix[] = {"", ".old"};
    char others[256];
    int status = SY_OK;
    *folder = NULL;
    for (size_t i = 0; i < SYI_COUNT(suffix); i++) {
        int complete;
        status = is_complete(run_dir, step, suffix[i], &complete, err);
        if (status) return status;
        if (!complete) continue;
        *folder = syi_checkpoint_path(run_dir, step, suffix[i], err);
        return *folder ? SY_OK : SY_ENOMEM;
    }
    status = print_others(run_dir, step, others, sizeof others, err);
    if (status) return status;
    if (!others[0]) return syi_checkpoint_none(run_dir, err);
    return syi_error(err, SY_ENOENT, "%s holds no checkpoint of step %" PRId64 "; there are: %s", run_dir,
                     step, others);
}

/* ---- removing ---- */

/* A folder of files, or a link to one, which stays; what is not there is fine. */
static int remove_folder(const char *path, struct sy_error *err)
{
    const struct dirent *entry;
    struct stat info;
    if (!lstat(path, &info) && S_ISLNK(info.st_mode))
        return unlink(path) ? syi_error_system(err, "cannot remove link %s", path) : SY_OK;
    DIR *folder = opendir(path);
    int status = SY_OK;
    if (!folder) return errno == ENOENT ? SY_OK : syi_error_system(err, "cannot remove folder %s", path);
    while (!status && (entry = next_entry(folder, path, &status, err))) {
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

/* The names in checkpoints/ are on disk. */
static int sync_names(const char *run_dir, struct sy_error *err)
{
    char *folder = syi_format("%s/checkpoints", run_dir);
    int status = folder ? syi_file_sync_folder(folder, err) : syi_error(err, SY_ENOMEM, "out of memory");
    syi_free(folder);
    return status;
}

/* Loses the name of a checkpoint first, on disk too, so that a kill or a crash in the middle leaves no half of
 * one. */
int syi_checkpoint_remove(const char *run_dir, int64_t step, struct sy_error *err)
{
    char *path = syi_checkpoint_path(run_dir, step, "", err);
    char *doomed = syi_checkpoint_path(run_dir, step, ".tmp", err);
    int status = path && doomed ? move(path, doomed, err) : SY_ENOMEM;
    if (!status) status = sync_names(run_dir, err);
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

/* STEP.old goes when its successor is whole, else it gets its name back; an empty folder of that name gives
 * way. */
static int clear_old(const char *run_dir, int64_t step, const char *old, const char *name,
                     struct sy_error *err)
{
    int replaced, whole, status = is_complete(run_dir, step, "", &replaced, err);
    if (status) return status;
    if (replaced) return remove_folder(old, err);
    status = is_complete(run_dir, step, ".old", &whole, err);
    return status || !whole ? status : move(old, name, err);
}

/* What cannot be cleared away takes room and does no other harm. */
static int clear_away(void *arg, const char *run_dir, int64_t step, const char *suffix, struct sy_error *err)
{
    struct sy_error why = {0};
    int is_old = !strcmp(suffix, ".old");
    (void)arg, (void)err;
    if (!is_old && strcmp(suffix, ".tmp")) return SY_OK;
    char *path = syi_checkpoint_path(run_dir, step, suffix, &why);
    char *name = syi_checkpoint_path(run_dir, step, "", &why);
    int status = path && name ? SY_OK : SY_ENOMEM;
    if (!status) status = is_old ? clear_old(run_dir, step, path, name, &why) : remove_folder(path, &why);
    if (status) syi_log(SY_LOG_WARN, "what a save left stays: %s", why.text);
    syi_free(path);
    syi_free(name);
    return SY_OK;
}

int syi_checkpoint_clean(const char *run_dir, struct sy_error *err)
{
    return each_folder(run_dir, clear_away, NULL, err);
}

/* ---- writing ---- */

/* The folder is a new one: what stands in the way of STEP.tmp could not be cleared away. */
static int make_folder(const char *run_dir, int64_t step, struct sy_error *err)
{
    char *all = syi_format("%s/checkpoints", run_dir),
         *path = syi_checkpoint_path(run_dir, step, ".tmp", err);
    int status = all && path ? syi_make_folders(all, err) : syi_error(err, SY_ENOMEM, "out of memory");
    if (!status && mkdir(path, 0777)) status = syi_error_system(err, "cannot make folder %s", path);
    syi_free(all);
    syi_free(path);
    return status;
}

int syi_checkpoint_begin(const char *run_dir, int64_t step, struct sy_error *err)
{
    int status = syi_checkpoint_clean(run_dir, err);
    return status ? status : make_folder(run_dir, step, err);
}

/* tmp becomes final. What has that name now steps aside first, and comes back if that fails. */
static int replace(const char *tmp, const char *final, const char *old, struct sy_error *err)
{
    int there, status = look(final, &there, err);
    if (!status && there) status = move(final, old, err);
    if (status) return status;
    status = move(tmp, final, err);
    if (status && there && rename(old, final)) syi_log(SY_LOG_WARN, "%s is now called %s", final, old);
    return status;
}

static int is_among(int64_t step, const int64_t *steps, int n)
{
    int i = 0;
    while (i < n && steps[i] != step) i++;
    return i < n;
}

/* A folder without a readable meta.json was no best. */
static int was_best(const char *run_dir, int64_t step)
{
    struct sy_error why = {0};
    struct syi_checkpoint_meta meta = {.best_step = -1};
    char *folder = syi_checkpoint_path(run_dir, step, "", &why);
    int status = folder ? syi_checkpoint_meta_read(folder, &meta, &why) : SY_ENOMEM;
    syi_free(folder);
    return !status && meta.best_step == step;
}

int64_t syi_checkpoint_best_left(const char *run_dir, const int64_t *steps, size_t n, int64_t best)
{
    if (best < 0) return -1;
    for (size_t i = 0; i < n; i++)
        if (steps[i] == best) return best;
    while (n && !was_best(run_dir, steps[n - 1])) n--;
    return n ? steps[n - 1] : -1;
}

/* Keeps the newest, the one just written, the best and those beside them. What cannot be removed is no failure of
 * the new checkpoint. */
static void prune(const char *run_dir, int64_t written, int64_t best, const struct syi_checkpoint_saving *how)
{
    struct sy_error err = {0};
    int64_t *steps;
    size_t n;
    if (how->keep <= 0) return;
    int status = syi_checkpoint_list(run_dir, &steps, &n, &err);
    if (!status) best = syi_checkpoint_best_left(run_dir, steps, n, best);
    for (size_t i = 0; !status && i + (size_t)how->keep < n; i++)
        if (steps[i] != written && steps[i] != best && !is_among(steps[i], how->besides, how->n_besides) &&
            !(how->keep_every && steps[i] % how->keep_every == 0))
            status = syi_checkpoint_remove(run_dir, steps[i], &err);
    syi_free(steps);
    if (status) syi_log(SY_LOG_WARN, "old checkpoints stay: %s", err.text);
}

int syi_checkpoint_commit(const char *run_dir, int64_t step, int64_t best,
                          const struct syi_checkpoint_saving *how, struct sy_error *err)
{
    char *tmp = syi_checkpoint_path(run_dir, step, ".tmp", err);
    char *final = syi_checkpoint_path(run_dir, step, "", err);
    char *old = syi_checkpoint_path(run_dir, step, ".old", err);
    struct sy_error left = {0};
    int status = tmp && final && old ? replace(tmp, final, old, err) : SY_ENOMEM;
    if (!status) status = sync_names(run_dir, err);
    if (!status) status = syi_file_sync_folder(run_dir, err); /* checkpoints/ itself may be new */
    if (!status && remove_folder(old, &left)) syi_log(SY_LOG_WARN, "%s", left.text);
    if (!status) prune(run_dir, step, best, how);
    syi_free(tmp);
    syi_free(final);
    syi_free(old);
    return status;
}
