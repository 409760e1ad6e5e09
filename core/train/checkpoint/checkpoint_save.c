/* SPDX-License-Identifier: Apache-2.0 */
/* Saving a session by all ranks together, in the stages that checkpoint.h describes. After each all ranks learn whether
 * one of them failed, so that none waits for it and the run can go on without this checkpoint. */
#include "config.h"

#include <string.h>

#include "base/threads.h"
#include "train/checkpoint/checkpoint_parts.h"

enum { FILES = SYI_CHECKPOINT_FILES };
enum stage { MAKE, WRITE, HASH, NAME };

struct syi_saver {
    const char *run_dir;
    struct syi_session *session;
    struct syi_comm *comm;
    struct syi_worker *worker; /* NULL: none was needed yet */
    struct syi_worker *hasher; /* the same: hashes what a lone rank writes */
    /* The owner's alone. */
    int under_way;  /* a save was begun and has not come to its end */
    int ended;      /* a save came to its end and was not taken yet */
    int background; /* from the snapshot */
    int beside; /* stages run in the worker: beside training, or while this thread tells other ranks that they do */
    /* The save under way. Its thread has all of this while it works, the owner between two stages. */
    enum stage stage; /* that runs or ended last */
    int turn;         /* of WRITE */
    double begin, end;
    struct syi_checkpoint_meta meta;
    struct syi_checkpoint_saving how; /* its list of others is the next */
    int64_t besides[SYI_CHECKPOINT_BESIDES];
    char *folder; /* STEP.tmp */
    int made;     /* it is there, and this rank made it */
    struct syi_checkpoint_tensors tensors[FILES];
    struct syi_safetensors file[FILES];
    struct sy_error failure;
    /* Of hashing, which has these and the hashes in meta. */
    struct syi_gate written[FILES];
    int behind; /* it is done by the hasher, behind the writing */
    struct syi_checkpoint_sums sums;
    struct sy_error unreadable;
};

/* ---- the stages; each runs in the worker or in the caller ---- */

/* fn: syi_safetensors_create or syi_safetensors_attach. */
static int open_file(struct syi_saver *s, int i,
                     int (*fn)(struct syi_safetensors *file, const char *path, struct sy_error *err),
                     struct sy_error *err)
{
    char *path = syi_format("%s/%s", s->folder, syi_checkpoint_file[i].name);
    int status = path ? fn(&s->file[i], path, err) : syi_error(err, SY_ENOMEM, "out of memory");
    syi_free(path);
    return status;
}

static int plan_files(struct syi_saver *s, struct sy_error *err)
{
    static const struct syi_safetensors_pair metadata[] = {{"format", "pt"}};
    int status = SY_OK;
    for (int i = 0; i < FILES && !status; i++) {
        enum syi_kind kind = syi_checkpoint_file[i].kind;
        status = syi_checkpoint_tensors(s->session, kind, kind == SYI_STATE ? s->how.leaves : NULL,
                                        &s->tensors[i], err);
        if (!status)
            status = syi_safetensors_plan(&s->file[i], s->tensors[i].list, s->tensors[i].n, metadata,
                                          SYI_COUNT(metadata), err);
    }
    return status;
}

static int make_files(struct syi_saver *s, struct sy_error *err)
{
    s->folder = syi_checkpoint_path(s->run_dir, s->meta.step, ".tmp", err);
    int status = s->folder ? plan_files(s, err) : SY_ENOMEM;
    if (status || s->comm->rank) return status;
    status = syi_checkpoint_begin(s->run_dir, s->meta.step, err);
    s->made = !status;
    for (int i = 0; i < FILES && !status; i++) status = open_file(s, i, syi_safetensors_create, err);
    return status;
}

/* The files are read back, so that the checksums are of what any reader will see, other hosts' parts included. */
static void hash_data(void *arg)
{
    struct syi_saver *s = arg;
    int status = SY_OK;
    for (int i = 0; i < FILES && !status; i++)
        status = syi_checkpoint_hash(s->folder, i, s->behind ? &s->written[i] : NULL, &s->meta, &s->sums,
                                     &s->unreadable);
}

/* A rank whose part replicas of lower rank write opens no file; rank 0 has made both. */
static int write_parts(struct syi_saver *s, struct sy_error *err)
{
    int mine[FILES], rank = s->comm->rank, status = SY_OK;
    for (int i = 0; i < FILES; i++) mine[i] = !rank || syi_checkpoint_tensors_any(&s->tensors[i], rank);
    for (int i = 0; i < FILES && !status; i++)
        if (mine[i] && rank) status = open_file(s, i, syi_safetensors_attach, err);
    for (int i = 0; i < FILES && !status; i++)
        if (mine[i])
            status = syi_checkpoint_tensors_write(&s->tensors[i], rank, s->background, &s->file[i], err);
    for (int i = 0; i < FILES && !status; i++)
        if (mine[i]) status = syi_safetensors_finish(&s->file[i], err);
    return status;
}

/* Alone, the hasher reads behind the writing, which takes about as long: where no thread is to be had, after it. */
static int write_alone(struct syi_saver *s, struct sy_error *err)
{
    s->behind = s->hasher || !syi_worker_new("hash", &s->hasher, NULL);
    if (!s->behind) return write_parts(s, err);
    for (int i = 0; i < FILES; i++) {
        atomic_store(&s->written[i].word, 0);
        s->file[i].written = &s->written[i];
    }
    syi_worker_start(s->hasher, hash_data, s);
    int status = write_parts(s, err);
    for (int i = 0; i < FILES; i++) syi_safetensors_wrote(&s->file[i], UINT64_MAX);
    syi_worker_wait(s->hasher);
    return status;
}

static int write_files(struct syi_saver *s, struct sy_error *err)
{
    if (s->comm->ranks == 1) return write_alone(s, err);
    return s->turn == s->how.turn ? write_parts(s, err) : SY_OK;
}

static int hash_files(struct syi_saver *s, struct sy_error *err)
{
    if (s->comm->rank) return SY_OK;
    if (!s->behind) hash_data(s);
    if (s->unreadable.code) return syi_error(err, s->unreadable.code, "%s", s->unreadable.text);
    return syi_checkpoint_meta_write(s->folder, &s->meta, &s->sums, err);
}

static int name_folder(struct syi_saver *s, struct sy_error *err)
{
    if (s->comm->rank) return SY_OK;
    return syi_checkpoint_commit(s->run_dir, s->meta.step, s->meta.best_step, &s->how, err);
}

/* One stage; those before NAME one after the other where there is nobody to meet. */
static void run_stages(void *arg)
{
    static int (*const stages[])(struct syi_saver *, struct sy_error *) = {make_files, write_files,
                                                                           hash_files, name_folder};
    struct syi_saver *s = arg;
    for (;; s->stage++) {
        int failed = stages[s->stage](s, &s->failure);
        if (failed) syi_error(&s->failure, failed, "%s", sy_status_text(failed));
        s->end = syi_seconds();
        if (failed || s->comm->ranks > 1 || s->stage + 1 >= NAME) return;
    }
}

/* ---- from stage to stage; the main thread alone ---- */

static void start_stage(struct syi_saver *s)
{
    if (s->stage == NAME && s->comm->rank == 0 && s->how.written) {
        int failed = s->how.written(s->how.arg, &s->failure);
        if (failed) syi_error(&s->failure, failed, "%s", sy_status_text(failed));
        if (failed) return;
    }
    if (s->beside)
        syi_worker_start(s->worker, run_stages, s);
    else
        run_stages(s);
}

static void close_files(struct syi_saver *s)
{
    for (int i = 0; i < FILES; i++) {
        syi_safetensors_close(&s->file[i]);
        syi_checkpoint_tensors_free(&s->tensors[i]);
    }
    syi_checkpoint_sums_free(&s->sums);
    syi_free(s->folder);
    s->folder = NULL;
}

static void end_save(struct syi_saver *s)
{
    close_files(s);
    if (s->failure.code && s->made) syi_checkpoint_discard(s->run_dir, s->meta.step);
    s->under_way = 0;
    s->ended = 1;
}

/* The stage has ended on all ranks. */
static void next_stage(struct syi_saver *s)
{
    if (s->failure.code || s->stage == NAME) {
        end_save(s);
        return;
    }
    if (s->stage == WRITE && s->turn + 1 < s->how.turns)
        s->turn++;
    else
        s->stage++;
    start_stage(s);
}

/* ---- the saver ---- */

int syi_saver_new(const char *run_dir, struct syi_session *session, struct syi_comm *comm,
                  struct syi_saver **saver, struct sy_error *err)
{
    struct syi_saver *s = syi_alloc(sizeof *s, err);
    if (!s) return SY_ENOMEM;
    s->run_dir = run_dir;
    s->session = session;
    s->comm = comm;
    for (int i = 0; i < FILES; i++) {
        s->file[i].fd = -1;
        syi_gate_init(&s->written[i]);
    }
    *saver = s;
    return SY_OK;
}

void syi_saver_free(struct syi_saver *s)
{
    if (!s) return;
    syi_worker_free(s->worker);
    syi_worker_free(s->hasher);
    close_files(s);
    for (int i = 0; i < FILES; i++) syi_gate_destroy(&s->written[i]);
    if (s->under_way && s->made) syi_checkpoint_discard(s->run_dir, s->meta.step);
    syi_free(s);
}

void syi_saver_begin(struct syi_saver *s, const struct syi_checkpoint_meta *meta,
                     const struct syi_checkpoint_saving *how, int background)
{
    s->begin = syi_seconds();
    s->under_way = 1;
    s->stage = MAKE;
    s->turn = 0;
    s->made = s->ended = s->behind = 0;
    s->failure = s->unreadable = (struct sy_error){0};
    s->meta = *meta;
    s->how = *how;
    s->how.n_besides = how->n_besides < SYI_CHECKPOINT_BESIDES ? how->n_besides : SYI_CHECKPOINT_BESIDES;
    if (how->n_besides) memcpy(s->besides, how->besides, (size_t)s->how.n_besides * sizeof *s->besides);
    s->how.besides = s->besides;
    s->background = background;
    s->beside = background || s->comm->ranks > 1;
    if (s->beside && !s->worker && syi_worker_new("save", &s->worker, background ? &s->failure : NULL))
        s->beside = 0;
    if (s->failure.code) return;
    int status = background ? syi_session_snapshot(s->session, &s->failure)
                            : syi_session_download(s->session, SYI_PERSIST, &s->failure);
    if (!status) start_stage(s);
}

int64_t syi_saver_step(const struct syi_saver *s)
{
    return s->under_way ? s->meta.step : -1;
}

static int has_ended(const struct syi_saver *s)
{
    return s->under_way && (!s->beside || syi_worker_is_idle(s->worker));
}

void syi_saver_words(struct syi_saver *s, int64_t word[SYI_SAVER_WORDS])
{
    word[SYI_SAVER_ENDED] = has_ended(s);
    word[SYI_SAVER_FAILED] = word[SYI_SAVER_ENDED] && s->failure.code;
}

int syi_saver_advance(struct syi_saver *s, const int64_t sum[SYI_SAVER_WORDS], struct sy_error *err)
{
    if (!s->under_way || sum[SYI_SAVER_ENDED] < s->comm->ranks) return SY_OK;
    int status = sum[SYI_SAVER_FAILED] ? syi_comm_failure(s->comm, &s->failure, err) : SY_OK;
    if (!status) next_stage(s);
    return status;
}

int syi_saver_wait(struct syi_saver *s, struct sy_error *err)
{
    int status = SY_OK;
    while (s->under_way && !status) {
        struct syi_busy busy = syi_busy_begin(s->comm);
        if (s->beside) status = syi_busy_await(&busy, s->worker, err);
        if (!status) status = syi_busy_end(&busy, err);
        if (!status) status = syi_comm_failure(s->comm, &s->failure, err);
        if (!status) next_stage(s);
    }
    return status;
}

int syi_saver_take(struct syi_saver *s, struct syi_saved *saved)
{
    if (!s->ended) return 0;
    s->ended = 0;
    *saved = (struct syi_saved){.step = s->meta.step, .seconds = s->end - s->begin};
    memcpy(saved->params_sha256, s->meta.params_sha256, sizeof saved->params_sha256);
    if (s->failure.code)
        syi_error(&saved->failure, s->failure.code, "checkpoint of step %lld was not written: %s",
                  (long long)s->meta.step, s->failure.text);
    return 1;
}

/* ---- in one call ---- */

int syi_checkpoint_save(const char *run_dir, struct syi_session *session, struct syi_comm *comm,
                        struct syi_checkpoint_meta *meta, const struct syi_checkpoint_saving *saving,
                        struct sy_error *failure, struct sy_error *err)
{
    struct syi_saver *s = NULL;
    struct syi_saved saved;
    struct sy_error why = {0};
    int status = syi_saver_new(run_dir, session, comm, &s, &why);
    if (!status) {
        syi_saver_begin(s, meta, saving, 0);
        status = syi_saver_wait(s, &why);
    }
    if (status) {
        syi_comm_abort(comm, why.code ? why.text : sy_status_text(status));
        syi_error(err, status, "%s", why.code ? why.text : sy_status_text(status));
    } else if (syi_saver_take(s, &saved)) {
        *meta = s->meta;
        if (saved.failure.code) *failure = saved.failure;
    }
    syi_saver_free(s);
    return status;
}
