/* SPDX-License-Identifier: Apache-2.0 */
/* Loading a session by all ranks together. A rank that fails to load stops the others at their next meeting. */
#include "config.h"

#include <inttypes.h>
#include <string.h>

#include "base/packed.h"
#include "train/checkpoint/checkpoint_parts.h"

enum { FILES = SYI_CHECKPOINT_FILES };

/* The others are stopped: this rank comes to no further meeting of all. */
static int give_up(struct syi_comm *comm, int status, const struct sy_error *why, struct sy_error *err)
{
    const char *text = why->code ? why->text : sy_status_text(status);
    syi_comm_abort(comm, text);
    return syi_error(err, status, "%s", text);
}

struct loading {
    const char *run_dir;
    struct syi_comm *comm;
    int64_t step;
    int n_files;                                /* 1: parameters only */
    const struct syi_checkpoint_leaves *leaves; /* that it may have been written with, or NULL */
    struct syi_checkpoint_meta *meta;
    int packed;   /* run_dir is a packed model */
    char *folder; /* found */
    struct syi_safetensors file[FILES];
    struct syi_session *session; /* that takes what is read; NULL: `visit` does */
    const struct syi_checkpoint_visit *visit;
};

/* *found: a checkpoint is there, so that a file it lacks is damage. */
static int open_checkpoint(struct loading *l, int *found, struct sy_error *err)
{
    int status = syi_checkpoint_find(l->run_dir, l->step, &l->folder, err);
    *found = !status;
    if (!status) status = syi_checkpoint_meta_read(l->folder, l->meta, err);
    if (!status) status = syi_checkpoint_check_step(l->folder, l->step, l->meta, err);
    for (int i = 0; i < l->n_files && !status; i++) {
        char *path = syi_format("%s/%s", l->folder, syi_checkpoint_file[i].name);
        status =
            path ? syi_safetensors_open(&l->file[i], path, err) : syi_error(err, SY_ENOMEM, "out of memory");
        syi_free(path);
    }
    return status;
}

static int verify(const struct loading *l, struct sy_error *err)
{
    int status = SY_OK;
    for (int i = 0; i < l->n_files && !status; i++)
        status = syi_checkpoint_check_file(l->folder, &l->file[i], i, l->meta, err);
    return status;
}

int syi_checkpoint_best(const char *run_dir, int64_t *step, struct sy_error *err)
{
    struct syi_checkpoint_meta newest;
    char *folder = NULL;
    int64_t latest;
    int status = syi_checkpoint_latest(run_dir, &latest, err);
    if (!status) status = syi_checkpoint_find(run_dir, latest, &folder, err);
    if (!status) status = syi_checkpoint_meta_read(folder, &newest, err);
    syi_free(folder);
    *step = status ? -1 : newest.best_step;
    return status;
}

/* What is left where the best evaluation's weights are gone. */
static int say_gone(const char *run_dir, int64_t best, const struct sy_error *why, struct sy_error *err)
{
    struct sy_error ignored = {0};
    int64_t *steps = NULL;
    size_t n = 0;
    int unlisted = syi_checkpoint_list(run_dir, &steps, &n, &ignored);
    int64_t left = unlisted ? -1 : syi_checkpoint_best_left(run_dir, steps, n, best);
    syi_free(steps);
    if (left < 0) return syi_error(err, SY_ENOENT, "the best evaluation's weights are gone: %s", why->text);
    return syi_error(
        err, SY_ENOENT,
        "the best evaluation's weights are gone: %s; the newest that were the best before are those "
        "of step %" PRId64 ": name that step",
        why->text, left);
}

int syi_checkpoint_find_best(const char *run_dir, int64_t *step, struct sy_error *err)
{
    struct sy_error why = {0};
    char *folder = NULL;
    int64_t best;
    int status = syi_checkpoint_best(run_dir, &best, err);
    if (status) return status;
    if (best < 0)
        return syi_error(
            err, SY_ENOENT,
            "%s has no best checkpoint: its training evaluated nothing, or nothing that has the metric that "
            "says which is best: take the checkpoint \"latest\", or give task.NAME.valid (and "
            "train.evaluate_every), with that metric in task.NAME.metrics, when training",
            run_dir);
    status = syi_checkpoint_find(run_dir, best, &folder, &why);
    syi_free(folder);
    if (status == SY_ENOENT) return say_gone(run_dir, best, &why, err);
    if (status) return syi_error(err, status, "%s", why.text);
    *step = best;
    return SY_OK;
}

/* Of a checkpoint that is damaged, the message ends with those that may still be good; one that cannot be read
 * now (permissions, memory, too many open files) may be good itself. */
static int open_and_verify(struct loading *l, struct sy_error *err)
{
    struct sy_error why = {0};
    char advice[448] = "";
    int found, status = open_checkpoint(l, &found, &why);
    if (!status && l->comm->rank == 0) status = verify(l, &why);
    if (l->session && (status == SY_EFORMAT || (found && status == SY_ENOENT)))
        syi_checkpoint_advice(l->run_dir, l->step, l->n_files == FILES, advice, sizeof advice);
    return status ? syi_error(err, status, "%s%s", why.text, advice) : SY_OK;
}

/* What was imported, averaged or cast has parameters alone. */
static int check_state(const struct loading *l, const struct syi_checkpoint_tensors *state,
                       struct sy_error *err)
{
    if (!state->n || l->file[1].n_tensors) return SY_OK;
    return syi_error(
        err, SY_EMISMATCH,
        "%s has no optimizer state, so training cannot go on from it: begin with its weights in a "
        "new run directory, by train.init_from = \"%s\" without train.init_state",
        l->folder, l->run_dir);
}

/* Nothing is overwritten before everything is known to fit. */
static int read_session(struct loading *l, struct sy_error *err)
{
    struct syi_checkpoint_tensors tensors[FILES] = {{0}};
    int status = SY_OK;
    for (int i = 0; i < l->n_files && !status; i++) {
        int has_leaves = syi_safetensors_find(&l->file[i], "state/step") != NULL;
        enum syi_kind kind = syi_checkpoint_file[i].kind;
        status = syi_checkpoint_tensors(l->session, kind, has_leaves && kind == SYI_STATE ? l->leaves : NULL,
                                        &tensors[i], err);
        if (!status && kind == SYI_STATE) status = check_state(l, &tensors[i], err);
        if (!status) status = syi_checkpoint_tensors_compare(&tensors[i], &l->file[i], err);
    }
    for (int i = 0; i < l->n_files && !status; i++)
        status = syi_checkpoint_tensors_read(&tensors[i], &l->file[i], err);
    if (!status) status = syi_session_upload(l->session, SYI_PERSIST, err);
    for (int i = 0; i < FILES; i++) syi_checkpoint_tensors_free(&tensors[i]);
    return status;
}

static int take(struct loading *l, struct sy_error *err)
{
    return l->session ? read_session(l, err) : l->visit->take(l->visit->arg, &l->file[0], l->meta, err);
}

static int read_packed(const struct loading *l, struct sy_error *err)
{
    int status = syi_checkpoint_read_packed(l->run_dir, l->step, l->session, l->meta, err);
    return status ? status : syi_session_upload(l->session, SYI_PERSIST, err);
}

/* What rank 0 alone looks for: folders on a network may look different from other hosts. */
static int look(void *arg, struct sy_error *err)
{
    struct loading *l = arg;
    int status = SY_OK;
    l->packed = l->session && l->n_files == 1 && syi_packed_is(l->run_dir);
    if (l->packed) return syi_checkpoint_check_packed(l->run_dir, l->step, err);
    if (l->step == SYI_CHECKPOINT_BEST) status = syi_checkpoint_find_best(l->run_dir, &l->step, err);
    if (l->step == SYI_CHECKPOINT_LATEST) status = syi_checkpoint_latest(l->run_dir, &l->step, err);
    return status ? status : open_and_verify(l, err);
}

/* What every rank does, as fast as its disk is. */
static int read_own(void *arg, struct sy_error *err)
{
    struct loading *l = arg;
    int status = l->comm->rank && !l->packed ? open_and_verify(l, err) : SY_OK;
    if (status) return status;
    return l->packed ? read_packed(l, err) : take(l, err);
}

static int load(struct loading *l, struct sy_error *err)
{
    struct syi_busy busy = syi_busy_begin(l->comm);
    int first = l->comm->rank == 0, status = first ? syi_busy_run(&busy, look, l, err) : SY_OK;
    int64_t found[] = {l->step, l->packed};
    if (!status) status = syi_busy_end(&busy, err);
    if (!status) status = syi_comm_broadcast(l->comm, found, SYI_COUNT(found), err);
    if (status) return status;
    l->step = found[0];
    l->packed = found[1] != 0;
    busy = syi_busy_begin(l->comm);
    status = syi_busy_run(&busy, read_own, l, err);
    return status ? status : syi_busy_end(&busy, err);
}

static int load_with(struct loading *l, struct sy_error *err)
{
    struct sy_error why = {0};
    memset(l->meta, 0, sizeof *l->meta);
    int status = load(l, &why);
    for (int i = 0; i < FILES; i++) syi_safetensors_close(&l->file[i]);
    syi_free(l->folder);
    return status ? give_up(l->comm, status, &why, err) : SY_OK;
}

int syi_checkpoint_load(const char *run_dir, int64_t step, struct syi_session *session, struct syi_comm *comm,
                        int with_state, struct syi_checkpoint_meta *meta, struct sy_error *err)
{
    struct loading l = {.run_dir = run_dir,
                        .comm = comm,
                        .session = session,
                        .step = step,
                        .n_files = with_state ? FILES : 1,
                        .meta = meta,
                        .file = {{.fd = -1}, {.fd = -1}}};
    return load_with(&l, err);
}

int syi_checkpoint_resume(const char *run_dir, int64_t step, struct syi_session *session,
                          struct syi_comm *comm, const struct syi_checkpoint_leaves *leaves,
                          struct syi_checkpoint_meta *meta, struct sy_error *err)
{
    struct loading l = {.run_dir = run_dir,
                        .comm = comm,
                        .session = session,
                        .step = step,
                        .n_files = FILES,
                        .leaves = leaves,
                        .meta = meta,
                        .file = {{.fd = -1}, {.fd = -1}}};
    return load_with(&l, err);
}

int syi_checkpoint_visit(const struct syi_checkpoint_visit *visit, struct sy_error *err)
{
    struct syi_checkpoint_meta meta;
    struct loading l = {.run_dir = visit->run_dir,
                        .comm = visit->comm,
                        .visit = visit,
                        .step = visit->step,
                        .n_files = 1,
                        .meta = &meta,
                        .file = {{.fd = -1}, {.fd = -1}}};
    return load_with(&l, err);
}
