/* SPDX-License-Identifier: Apache-2.0 */
/* Saving and loading a session by all ranks together. Who waits for whom: rank 0 makes the folder and the
 * files | all write their parts | rank 0 checks, names and prunes | done. A rank that fails stops the others
 * at their next barrier, and rank 0 clears the unfinished folder away. */
#include "config.h"

#include <string.h>

#include "train/checkpoint/checkpoint_parts.h"

enum { FILES = 2 };
static const struct {
    const char *name;
    int kind;
} files[FILES] = {{"params.safetensors", SYI_PARAM}, {"state.safetensors", SYI_STATE}};

static const char *expected_hash(const struct syi_checkpoint_meta *meta, int file)
{
    return file ? meta->state_sha256 : meta->params_sha256;
}

/* The end of every work of all ranks: a failure is told to the others. */
static int end_together(struct syi_comm *comm, int status, const struct sy_error *err)
{
    if (status) syi_comm_abort(comm, err->code ? err->text : sy_status_text(status));
    return status;
}

/* ---- saving ---- */

struct saving {
    const char *run_dir;
    struct syi_comm *comm;
    struct syi_checkpoint_meta *meta;
    char *folder; /* STEP.tmp */
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

static int plan_files(struct saving *s, const struct syi_session *session, struct sy_error *err)
{
    static const struct syi_safetensors_pair metadata[] = {{"format", "pt"}};
    int status = SY_OK;
    for (int i = 0; i < FILES && !status; i++) {
        status = syi_checkpoint_tensors(session, files[i].kind, &s->tensors[i], err);
        if (!status)
            status = syi_safetensors_plan(&s->file[i], s->tensors[i].list, s->tensors[i].n, metadata,
                                          SYI_COUNT(metadata), err);
    }
    return status;
}

static int write_parts(struct saving *s, struct sy_error *err)
{
    int status = SY_OK;
    for (int i = 0; i < FILES && !status; i++)
        status = syi_checkpoint_tensors_write(&s->tensors[i], s->comm->rank, &s->file[i], err);
    for (int i = 0; i < FILES && !status; i++) status = syi_safetensors_finish(&s->file[i], err);
    return status;
}

/* Opened anew, so that the checksums are of what any reader will see, other hosts' parts included. */
static int hash_files(struct saving *s, struct sy_error *err)
{
    int status = SY_OK;
    for (int i = 0; i < FILES && !status; i++) {
        struct syi_safetensors file;
        char *hex = i ? s->meta->state_sha256 : s->meta->params_sha256;
        status = syi_safetensors_open(&file, s->file[i].path, err);
        if (status) break;
        status = syi_safetensors_hash(&file, hex, err);
        syi_safetensors_close(&file);
    }
    return status;
}

static int save(struct saving *s, int keep, struct sy_error *err)
{
    int first = s->comm->rank == 0;
    int status = first ? syi_checkpoint_begin(s->run_dir, s->meta->step, err) : SY_OK;
    if (!status && first) status = open_files(s, syi_safetensors_create, err);
    if (!status) status = syi_comm_barrier(s->comm, err);
    if (!status && !first) status = open_files(s, syi_safetensors_attach, err);
    if (!status) status = write_parts(s, err);
    if (!status) status = syi_comm_barrier(s->comm, err);
    if (!status && first) status = hash_files(s, err);
    if (!status && first) status = syi_checkpoint_meta_write(s->folder, s->meta, err);
    if (!status && first)
        status = syi_checkpoint_commit(s->run_dir, s->meta->step, keep, s->meta->best_step, err);
    return status ? status : syi_comm_barrier(s->comm, err);
}

int syi_checkpoint_save(const char *run_dir, struct syi_session *session, struct syi_comm *comm,
                        struct syi_checkpoint_meta *meta, int keep, struct sy_error *err)
{
    struct saving s = {.run_dir = run_dir, .comm = comm, .meta = meta, .file = {{.fd = -1}, {.fd = -1}}};
    struct sy_error why = {0}, full = {0};
    s.folder = syi_checkpoint_path(run_dir, meta->step, ".tmp", &why);
    int status = s.folder ? plan_files(&s, session, &why) : SY_ENOMEM;
    if (!status) status = save(&s, keep, &why);
    for (int i = 0; i < FILES; i++) {
        syi_safetensors_close(&s.file[i]);
        syi_checkpoint_tensors_free(&s.tensors[i]);
    }
    if (status && comm->rank == 0) syi_checkpoint_discard(run_dir, meta->step);
    syi_free(s.folder);
    if (!status) return SY_OK;
    syi_error(&full, status, "checkpoint of step %lld was not written, earlier ones are kept: %s",
              (long long)meta->step, why.text);
    end_together(comm, status, &full);
    return syi_error(err, status, "%s", full.text);
}

/* ---- loading ---- */

struct loading {
    const char *run_dir;
    struct syi_comm *comm;
    int64_t step;
    int n_files; /* 1: parameters only */
    struct syi_checkpoint_meta *meta;
    struct syi_safetensors file[FILES];
};

static int open_checkpoint(struct loading *l, struct sy_error *err)
{
    char *folder = syi_checkpoint_find(l->run_dir, l->step, err);
    int status = folder ? syi_checkpoint_meta_read(folder, l->meta, err) : SY_ENOENT;
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

static int verify(const struct loading *l, struct sy_error *err)
{
    char hex[65];
    for (int i = 0; i < l->n_files; i++) {
        int status = syi_safetensors_hash(&l->file[i], hex, err);
        if (status) return status;
        if (strcmp(hex, expected_hash(l->meta, i)))
            return syi_error(err, SY_EFORMAT,
                             "%s is corrupt: the SHA-256 of its data is %.16s..., meta.json has %.16s...",
                             l->file[i].path, hex, expected_hash(l->meta, i));
    }
    return SY_OK;
}

/* The step of the best evaluation, as the newest checkpoint has it. */
static int find_best(const char *run_dir, int64_t *step, struct sy_error *err)
{
    struct syi_checkpoint_meta newest;
    struct sy_error why = {0};
    char *folder = syi_checkpoint_find(run_dir, syi_checkpoint_latest(run_dir), err);
    int status = folder ? syi_checkpoint_meta_read(folder, &newest, err) : SY_ENOENT;
    syi_free(folder);
    if (status) return status;
    if (newest.best_step < 0)
        return syi_error(
            err, SY_ENOENT,
            "%s has no best checkpoint, as its training evaluated nothing: give task.NAME.valid (and "
            "train.evaluate_every) when training, or take --checkpoint latest",
            run_dir);
    folder = syi_checkpoint_find(run_dir, newest.best_step, &why);
    if (!folder) return syi_error(err, why.code, "the best evaluation's weights are gone: %s", why.text);
    syi_free(folder);
    *step = newest.best_step;
    return SY_OK;
}

/* Of a file that cannot be read, the message ends with the checkpoints that may still be good. */
static int open_and_verify(struct loading *l, struct sy_error *err)
{
    struct sy_error why = {0};
    char advice[448] = "";
    int status = open_checkpoint(l, &why), there = l->meta->params_sha256[0] || status == SY_EFORMAT;
    if (!status && l->comm->rank == 0) status = verify(l, &why);
    if (status && there) syi_checkpoint_advice(l->run_dir, l->step, advice, sizeof advice);
    return status ? syi_error(err, status, "%s%s", why.text, advice) : SY_OK;
}

/* Nothing is overwritten before everything is known to fit. */
static int read_session(struct loading *l, const struct syi_session *session, struct sy_error *err)
{
    struct syi_checkpoint_tensors tensors[FILES] = {{0}};
    int status = SY_OK;
    for (int i = 0; i < l->n_files && !status; i++) {
        status = syi_checkpoint_tensors(session, files[i].kind, &tensors[i], err);
        if (!status) status = syi_checkpoint_tensors_compare(&tensors[i], &l->file[i], err);
    }
    for (int i = 0; i < l->n_files && !status; i++)
        status = syi_checkpoint_tensors_read(&tensors[i], &l->file[i], err);
    for (int i = 0; i < FILES; i++) syi_checkpoint_tensors_free(&tensors[i]);
    return status;
}

static int load(struct loading *l, const struct syi_session *session, struct sy_error *err)
{
    int first = l->comm->rank == 0, status = SY_OK;
    if (first && l->step == SYI_CHECKPOINT_BEST) status = find_best(l->run_dir, &l->step, err);
    if (first && l->step == SYI_CHECKPOINT_LATEST) l->step = syi_checkpoint_latest(l->run_dir);
    if (first && !status) status = open_and_verify(l, err);
    /* Rank 0 alone looks which is the latest: folders on a network may look different from other hosts. */
    if (!status) status = syi_comm_broadcast(l->comm, &l->step, 1, err);
    if (!status && !first) status = open_and_verify(l, err);
    if (!status) status = read_session(l, session, err);
    return status ? status : syi_comm_barrier(l->comm, err);
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
    struct sy_error why = {0};
    memset(meta, 0, sizeof *meta);
    int status = load(&l, session, &why);
    for (int i = 0; i < FILES; i++) syi_safetensors_close(&l.file[i]);
    if (!status) return SY_OK;
    end_together(comm, status, &why);
    return syi_error(err, status, "%s", why.text);
}
