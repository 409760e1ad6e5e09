/* SPDX-License-Identifier: Apache-2.0 */
/* Saving and loading a session by all ranks together. Saving has stages; after each all ranks learn whether one of
 * them failed, so that none waits for it and the run can go on without this checkpoint: rank 0 makes the folder and
 * the files | all write their parts | rank 0 checks, names and prunes. A rank that fails to load stops the others
 * at their next barrier. */
#include "config.h"

#include <string.h>

#include "train/checkpoint/checkpoint_parts.h"

enum { FILES = 2 };
static const struct {
    const char *name;
    int kind;
} files[FILES] = {{"params.safetensors", SYI_PARAM}, {"state.safetensors", SYI_STATE}};

/* The others are stopped: this rank comes to no further meeting of all. */
static int give_up(struct syi_comm *comm, int status, const struct sy_error *why, struct sy_error *err)
{
    const char *text = why->code ? why->text : sy_status_text(status);
    syi_comm_abort(comm, text);
    return syi_error(err, status, "%s", text);
}

/* ---- saving ---- */

struct saving {
    const char *run_dir;
    struct syi_session *session;
    struct syi_comm *comm;
    struct syi_checkpoint_meta *meta;
    const struct syi_checkpoint_saving *how;
    char *folder; /* STEP.tmp */
    int made;     /* it is there, and this rank made it */
    struct syi_checkpoint_tensors tensors[FILES];
    struct syi_safetensors file[FILES];
};

/* fn: syi_safetensors_create or syi_safetensors_attach. */
static int open_files(struct saving *s,
                      int (*fn)(struct syi_safetensors *file, const char *path, struct sy_error *err),
                      struct sy_error *err)
{
    int status = SY_OK;
    for (int i = 0; i < FILES && !status; i++) {
        char *path = syi_format("%s/%s", s->folder, files[i].name);
        status = path ? fn(&s->file[i], path, err) : syi_error(err, SY_ENOMEM, "out of memory");
        syi_free(path);
    }
    return status;
}

/* Leaves are of the state. */
static const struct syi_checkpoint_leaves *leaves_of(int i, const struct syi_checkpoint_leaves *leaves)
{
    return files[i].kind == SYI_STATE ? leaves : NULL;
}

static int plan_files(struct saving *s, struct sy_error *err)
{
    static const struct syi_safetensors_pair metadata[] = {{"format", "pt"}};
    int status = SY_OK;
    for (int i = 0; i < FILES && !status; i++) {
        status = syi_checkpoint_tensors(s->session, files[i].kind, leaves_of(i, s->how->leaves),
                                        &s->tensors[i], err);
        if (!status)
            status = syi_safetensors_plan(&s->file[i], s->tensors[i].list, s->tensors[i].n, metadata,
                                          SYI_COUNT(metadata), err);
    }
    return status;
}

static int make_files(struct saving *s, struct sy_error *err)
{
    s->folder = syi_checkpoint_path(s->run_dir, s->meta->step, ".tmp", err);
    int status = s->folder ? plan_files(s, err) : SY_ENOMEM;
    if (status || s->comm->rank) return status;
    status = syi_checkpoint_begin(s->run_dir, s->meta->step, err);
    s->made = !status;
    return status ? status : open_files(s, syi_safetensors_create, err);
}

static int write_parts(struct saving *s, struct sy_error *err)
{
    int status = s->comm->rank ? open_files(s, syi_safetensors_attach, err) : SY_OK;
    for (int i = 0; i < FILES && !status; i++)
        status = syi_checkpoint_tensors_write(&s->tensors[i], s->comm->rank, &s->file[i], err);
    for (int i = 0; i < FILES && !status; i++) status = syi_safetensors_finish(&s->file[i], err);
    return status;
}

/* Opened anew, so that the checksums are of what any reader will see, other hosts' parts included. */
int syi_checkpoint_hash(const char *path, char data[65], char header[65], struct sy_error *err)
{
    struct syi_safetensors file;
    int status = syi_safetensors_open(&file, path, err);
    if (status) return status;
    status = syi_safetensors_hash(&file, data, err);
    if (!status) status = syi_safetensors_hash_header(&file, header, err);
    syi_safetensors_close(&file);
    return status;
}

static int hash_files(struct saving *s, struct sy_error *err)
{
    char *const data[FILES] = {s->meta->params_sha256, s->meta->state_sha256};
    char *const header[FILES] = {s->meta->params_header_sha256, s->meta->state_header_sha256};
    int status = SY_OK;
    for (int i = 0; i < FILES && !status; i++)
        status = syi_checkpoint_hash(s->file[i].path, data[i], header[i], err);
    return status;
}

static int complete(struct saving *s, struct sy_error *err)
{
    if (s->comm->rank) return SY_OK;
    int status = hash_files(s, err);
    if (!status) status = syi_checkpoint_meta_write(s->folder, s->meta, err);
    if (status) return status;
    if (s->how->written) s->how->written(s->how->arg);
    return syi_checkpoint_commit(s->run_dir, s->meta->step, s->meta->best_step, s->how, err);
}

/* All ranks meet; *failure becomes that of the lowest rank that brought one. */
static int share_failure(struct syi_comm *comm, struct sy_error *failure, struct sy_error *err)
{
    if (comm->ranks == 1) return SY_OK;
    struct sy_error *all = syi_alloc((size_t)comm->ranks * sizeof *all, err);
    if (!all) return SY_ENOMEM;
    int status = syi_comm_gather(comm, failure, sizeof *failure, all, err);
    for (int i = comm->ranks - 1; !status && i >= 0; i--)
        if (all[i].code) *failure = all[i];
    syi_free(all);
    return status;
}

static int save(struct saving *s, struct sy_error *failure, struct sy_error *err)
{
    static int (*const stages[])(struct saving *, struct sy_error *) = {make_files, write_parts, complete};
    int status = SY_OK;
    for (size_t i = 0; i < SYI_COUNT(stages) && !status && !failure->code; i++) {
        int failed = stages[i](s, failure);
        if (failed) syi_error(failure, failed, "%s", sy_status_text(failed));
        status = share_failure(s->comm, failure, err);
    }
    return status;
}

int syi_checkpoint_save(const char *run_dir, struct syi_session *session, struct syi_comm *comm,
                        struct syi_checkpoint_meta *meta, const struct syi_checkpoint_saving *saving,
                        struct sy_error *failure, struct sy_error *err)
{
    struct saving s = {.run_dir = run_dir,
                       .session = session,
                       .comm = comm,
                       .meta = meta,
                       .how = saving,
                       .file = {{.fd = -1}, {.fd = -1}}};
    struct sy_error why = {0}, cause = {0};
    int status = save(&s, &why, &cause);
    for (int i = 0; i < FILES; i++) {
        syi_safetensors_close(&s.file[i]);
        syi_checkpoint_tensors_free(&s.tensors[i]);
    }
    if ((status || why.code) && s.made) syi_checkpoint_discard(run_dir, meta->step);
    syi_free(s.folder);
    if (why.code)
        syi_error(failure, why.code, "checkpoint of step %lld was not written, earlier ones are kept: %s",
                  (long long)meta->step, why.text);
    return status ? give_up(comm, status, &cause, err) : SY_OK;
}

/* ---- loading ---- */

struct loading {
    const char *run_dir;
    struct syi_comm *comm;
    int64_t step;
    int n_files;                                /* 1: parameters only */
    const struct syi_checkpoint_leaves *leaves; /* that it may have been written with, or NULL */
    struct syi_checkpoint_meta *meta;
    struct syi_safetensors file[FILES];
};

/* *found: a checkpoint is there, so that a file it lacks is damage. */
static int open_checkpoint(struct loading *l, int *found, struct sy_error *err)
{
    char *folder;
    int status = syi_checkpoint_find(l->run_dir, l->step, &folder, err);
    *found = !status;
    if (!status) status = syi_checkpoint_meta_read(folder, l->meta, err);
    if (!status && l->meta->step != l->step)
        status = syi_error(err, SY_EFORMAT, "%s/meta.json is of step %lld: the folder was renamed", folder,
                           (long long)l->meta->step);
    for (int i = 0; i < l->n_files && !status; i++) {
        char *path = syi_format("%s/%s", folder, files[i].name);
        status =
            path ? syi_safetensors_open(&l->file[i], path, err) : syi_error(err, SY_ENOMEM, "out of memory");
        syi_free(path);
    }
    syi_free(folder);
    return status;
}

/* fn: syi_safetensors_hash or syi_safetensors_hash_header. expected "": not known. */
static int check_hash(const struct syi_safetensors *file, const char *part, const char *expected,
                      int (*fn)(const struct syi_safetensors *file, char hex[65], struct sy_error *err),
                      struct sy_error *err)
{
    char hex[65];
    int status = expected[0] ? fn(file, hex, err) : SY_OK;
    if (status || !expected[0] || !strcmp(hex, expected)) return status;
    return syi_error(err, SY_EFORMAT,
                     "%s is corrupt: the SHA-256 of its %s is %.16s..., meta.json has %.16s...", file->path,
                     part, hex, expected);
}

static int verify(const struct loading *l, struct sy_error *err)
{
    const struct syi_checkpoint_meta *m = l->meta;
    const char *const data[FILES] = {m->params_sha256, m->state_sha256};
    const char *const header[FILES] = {m->params_header_sha256, m->state_header_sha256};
    int status = SY_OK;
    for (int i = 0; i < l->n_files && !status; i++) {
        status = check_hash(&l->file[i], "header", header[i], syi_safetensors_hash_header, err);
        if (!status) status = check_hash(&l->file[i], "data", data[i], syi_safetensors_hash, err);
    }
    return status;
}

/* The step of the best evaluation, as the newest checkpoint has it. */
static int find_best(const char *run_dir, int64_t *step, struct sy_error *err)
{
    struct syi_checkpoint_meta newest;
    struct sy_error why = {0};
    char *folder = NULL;
    int64_t latest;
    int status = syi_checkpoint_latest(run_dir, &latest, err);
    if (!status) status = syi_checkpoint_find(run_dir, latest, &folder, err);
    if (!status) status = syi_checkpoint_meta_read(folder, &newest, err);
    syi_free(folder);
    if (status) return status;
    if (newest.best_step < 0)
        return syi_error(
            err, SY_ENOENT,
            "%s has no best checkpoint, as its training evaluated nothing: give task.NAME.valid (and "
            "train.evaluate_every) when training, or take --checkpoint latest",
            run_dir);
    status = syi_checkpoint_find(run_dir, newest.best_step, &folder, &why);
    syi_free(folder);
    if (status == SY_ENOENT)
        return syi_error(err, status, "the best evaluation's weights are gone: %s", why.text);
    if (status) return syi_error(err, status, "%s", why.text);
    *step = newest.best_step;
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
    if (status == SY_EFORMAT || (found && status == SY_ENOENT))
        syi_checkpoint_advice(l->run_dir, l->step, advice, sizeof advice);
    return status ? syi_error(err, status, "%s%s", why.text, advice) : SY_OK;
}

/* Nothing is overwritten before everything is known to fit. */
static int read_session(struct loading *l, const struct syi_session *session, struct sy_error *err)
{
    struct syi_checkpoint_tensors tensors[FILES] = {{0}};
    int status = SY_OK;
    for (int i = 0; i < l->n_files && !status; i++) {
        int has_leaves = syi_safetensors_find(&l->file[i], "state/step") != NULL;
        status = syi_checkpoint_tensors(session, files[i].kind, has_leaves ? leaves_of(i, l->leaves) : NULL,
                                        &tensors[i], err);
        if (!status) status = syi_checkpoint_tensors_compare(&tensors[i], &l->file[i], err);
    }
    for (int i = 0; i < l->n_files && !status; i++)
        status = syi_checkpoint_tensors_read(&tensors[i], &l->file[i], err);
    for (int i = 0; i < FILES; i++) syi_checkpoint_tensors_free(&tensors[i]);
    return status;
}

/* The number of the step that is meant. */
static int choose_step(const char *run_dir, int64_t *step, struct sy_error *err)
{
    if (*step == SYI_CHECKPOINT_BEST) return find_best(run_dir, step, err);
    return *step == SYI_CHECKPOINT_LATEST ? syi_checkpoint_latest(run_dir, step, err) : SY_OK;
}

static int load(struct loading *l, const struct syi_session *session, struct sy_error *err)
{
    int first = l->comm->rank == 0, status = SY_OK;
    if (first) status = choose_step(l->run_dir, &l->step, err);
    if (first && !status) status = open_and_verify(l, err);
    /* Rank 0 alone looks which is the latest: folders on a network may look different from other hosts. */
    if (!status) status = syi_comm_broadcast(l->comm, &l->step, 1, err);
    if (!status && !first) status = open_and_verify(l, err);
    if (!status) status = read_session(l, session, err);
    return status ? status : syi_comm_barrier(l->comm, err);
}

static int load_with(struct loading *l, struct syi_session *session, struct sy_error *err)
{
    struct sy_error why = {0};
    memset(l->meta, 0, sizeof *l->meta);
    int status = load(l, session, &why);
    for (int i = 0; i < FILES; i++) syi_safetensors_close(&l->file[i]);
    return status ? give_up(l->comm, status, &why, err) : SY_OK;
}

int syi_checkpoint_load(const char *run_dir, int64_t step, struct syi_session *session, struct syi_comm *comm,
                        int with_state, struct syi_checkpoint_meta *meta, struct sy_error *err)
{
    struct loading l = {.run_dir = run_dir,
                        .comm = comm,
                        .step = step,
                        .n_files = with_state ? FILES : 1,
                        .meta = meta,
                        .file = {{.fd = -1}, {.fd = -1}}};
    return load_with(&l, session, err);
}

int syi_checkpoint_resume(const char *run_dir, int64_t step, struct syi_session *session,
                          struct syi_comm *comm, const struct syi_checkpoint_leaves *leaves,
                          struct syi_checkpoint_meta *meta, struct sy_error *err)
{
    struct loading l = {.run_dir = run_dir,
                        .comm = comm,
                        .step = step,
                        .n_files = FILES,
                        .leaves = leaves,
                        .meta = meta,
                        .file = {{.fd = -1}, {.fd = -1}}};
    return load_with(&l, session, err);
}

int syi_checkpoint_open(const char *run_dir, int64_t step, struct syi_checkpoint_meta *meta,
                        struct syi_safetensors *params, struct syi_safetensors *state, struct sy_error *err)
{
    struct syi_comm alone = {.ranks = 1};
    struct loading l = {.run_dir = run_dir,
                        .comm = &alone,
                        .step = step,
                        .n_files = FILES,
                        .meta = meta,
                        .file = {{.fd = -1}, {.fd = -1}}};
    int status = choose_step(run_dir, &l.step, err);
    if (!status) status = open_and_verify(&l, err);
    *params = l.file[0];
    *state = l.file[1];
    return status;
}
