/* SPDX-License-Identifier: Apache-2.0 */
/* What tests of checkpoints share: a model of tensors without ops, visits of several ranks that save or load it, and hands on
 * the files. */
#ifndef CHECKPOINT_VISIT_H
#define CHECKPOINT_VISIT_H

#include <criterion/criterion.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/text.h"
#include "train/checkpoint/checkpoint.h"

/* ---- a model ---- */

static const struct spec {
    const char *name;
    int kind, dtype, rank;
    int64_t dim[3];
    uint8_t axis[3];
} model[] = {
    {"decoder/norm/scale", SYI_PARAM, SY_F32, 1, {10, 1, 1}, {SYI_AXIS_EMBED}},
    {"encoder/experts/wi/kernel",
     SYI_PARAM,
     SY_F32,
     3,
     {4, 6, 8},
     {SYI_AXIS_EXPERT, SYI_AXIS_EMBED, SYI_AXIS_EXPERT_MLP}},
    {"encoder/mlp/wi/kernel", SYI_PARAM, SY_F32, 2, {6, 16, 1}, {SYI_AXIS_EMBED, SYI_AXIS_MLP}},
    {"encoder/mlp/wj/kernel", SYI_PARAM, SY_F32, 2, {6, 16, 1}, {SYI_AXIS_EMBED, SYI_AXIS_MLP}},
    {"token_embedder/embedding", SYI_PARAM, SY_F32, 2, {12, 5, 1}, {SYI_AXIS_VOCAB, SYI_AXIS_EMBED}},
    {"state/param_states/0/mu/encoder/mlp/wi/kernel",
     SYI_STATE,
     SY_F32,
     2,
     {6, 16, 1},
     {SYI_AXIS_EMBED, SYI_AXIS_MLP}},
    {"state/param_states/0/nu/encoder/rows",
     SYI_STATE,
     SY_BF16,
     2,
     {8, 3, 1},
     {SYI_AXIS_BATCH, SYI_AXIS_EMBED}},
    {"state/step", SYI_STATE, SY_I64, 1, {1, 1, 1}, {0}},
    {"batch/ids", SYI_INPUT, SY_I32, 1, {4, 1, 1}, {0}},
};
enum { TENSORS = SYI_COUNT(model) };

enum job { SAVE, SAVE_BESIDE, LOAD, LOAD_PARAMS };

/* One visit of all ranks. */
struct visit {
    enum job job;
    int data, expert, model;
    int64_t step;
    int keep;
    int64_t keep_every;
    uint64_t seed;                   /* of the values written or expected */
    int odd_rank;                    /* whose model differs, -1: none, -2: all */
    int mlp;                         /* extent of the differing model's mlp axis; 0: it lacks the embedding */
    struct syi_checkpoint_meta meta; /* of rank 0 */
};

static char folder[64], run[80];

static inline void make_folder(void)
{
    snprintf(folder, sizeof folder, "/tmp/sy-ckpt-XXXXXX");
    cr_assert(mkdtemp(folder) != NULL);
    snprintf(run, sizeof run, "%s/run", folder);
    cr_assert_eq(syi_make_folders(run, NULL), SY_OK);
}

static inline void remove_folder(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    cr_assert_eq(system(command), 0);
}

static inline void add_tensor(struct syi_program *program, const struct syi_mesh *mesh,
                              const struct spec *spec, int mlp)
{
    struct syi_tensor global = {.rank = (uint8_t)spec->rank};
    int64_t dim[3];
    memcpy(global.axis, spec->axis, sizeof spec->axis);
    uint8_t split[SY_MAX_DIMS];
    syi_mesh_spec(mesh, &global, split);
    for (int d = 0; d < spec->rank; d++) {
        dim[d] = mlp && spec->axis[d] == SYI_AXIS_MLP ? mlp : spec->dim[d];
        cr_assert_eq(dim[d] % syi_mesh_size(mesh, split[d]), 0);
        dim[d] /= syi_mesh_size(mesh, split[d]);
    }
    int t = syi_tensor_add(program, spec->name, spec->kind, spec->dtype, spec->rank, dim, spec->axis);
    cr_assert_geq(t, 0);
    memcpy(program->tensor[t].split, split, sizeof split);
}

/* other: -1 the model above; 0: without the embedding; else with another mlp. */
static inline struct syi_session *make_session(struct syi_comm *comm, struct syi_backend *backend,
                                               const struct syi_mesh *mesh, int other)
{
    struct syi_session *session = NULL;
    struct syi_program *program;
    struct sy_error err = {0};
    struct syi_session_options options = {
        .backend = backend, .comm = comm, .mesh = mesh, .reproducible = 1, .snapshot = 1};
    int index;
    cr_assert_eq(syi_session_new(&options, &session, &err), SY_OK, "%s", err.text);
    cr_assert_eq(syi_program_new("test", &program, &err), SY_OK);
    for (int i = 0; i < TENSORS; i++)
        if (other != 0 || !strstr(model[i].name, "embedding"))
            add_tensor(program, mesh, &model[i], other > 0 ? other : 0);
    cr_assert_eq(syi_session_add(session, program, &index, &err), SY_OK);
    cr_assert_eq(syi_session_bind(session, &err), SY_OK, "%s", err.text);
    return session;
}

/* ---- values: a function of seed, tensor and global index ---- */

static inline uint64_t value_at(const struct syi_shared *shared, uint64_t seed, int64_t index)
{
    uint64_t mix = seed * 0x9e3779b97f4a7c15u + (uint64_t)index * 0xbf58476d1ce4e5b9u;
    for (const char *at = shared->name; *at; at++) mix = (mix ^ (uint64_t)*at) * 0x100000001b3u;
    return mix ^ mix >> 29;
}

static int64_t global_index(const struct syi_shared *shared, int64_t local)
{
    int64_t at[SY_MAX_DIMS] = {0}, index = 0;
    for (int d = shared->tensor.rank - 1; d >= 0; d--) {
        at[d] = local % shared->tensor.dim[d] + shared->tensor.first[d];
        local /= shared->tensor.dim[d];
    }
    for (int d = 0; d < shared->tensor.rank; d++) index = index * shared->global[d] + at[d];
    return index;
}

static inline int is_saved(const struct syi_shared *shared, int with_state)
{
    return shared->info.kind == SYI_PARAM || (with_state && shared->info.kind == SYI_STATE);
}

static inline void fill(const struct syi_session *session, uint64_t seed)
{
    const struct syi_shared *shared;
    for (size_t i = 0; (shared = syi_session_shared(session, i)); i++) {
        size_t size = syi_dtype_bytes(shared->tensor.dtype);
        for (int64_t e = 0; e < syi_tensor_count(&shared->info); e++) {
            uint64_t value = value_at(shared, seed, global_index(shared, e));
            memcpy((char *)shared->tensor.data + (size_t)e * size, &value, size);
        }
    }
}

/* Counted, not asserted: Criterion's asserts leave a thread without cleaning up. */
static inline int count_wrong(const struct syi_session *session, uint64_t seed, int with_state)
{
    const struct syi_shared *shared;
    int wrong = 0;
    for (size_t i = 0; (shared = syi_session_shared(session, i)); i++) {
        size_t size = syi_dtype_bytes(shared->tensor.dtype);
        for (int64_t e = 0; e < syi_tensor_count(&shared->info); e++) {
            uint64_t value =
                value_at(shared, is_saved(shared, with_state) ? seed : 999, global_index(shared, e));
            wrong += memcmp((char *)shared->tensor.data + (size_t)e * size, &value, size) != 0;
        }
    }
    return wrong;
}

/* ---- a visit ---- */

/* A save in the background, with other values in the session from its begin on: "steps" that ranks meet after. */
static inline int save_beside(struct syi_session *session, struct syi_comm *comm,
                              const struct syi_checkpoint_saving *saving, struct syi_checkpoint_meta *meta,
                              struct sy_error *err)
{
    struct syi_saver *saver = NULL;
    struct syi_saved saved = {0};
    int status = syi_saver_new(run, session, comm, &saver, err);
    if (!status) {
        syi_saver_begin(saver, meta, saving, 1);
        fill(session, 12345);
    }
    while (!status && syi_saver_step(saver) == meta->step) {
        int64_t word[SYI_SAVER_WORDS];
        syi_saver_words(saver, word);
        status = syi_comm_sum(comm, word, SYI_SAVER_WORDS, err);
        if (!status) status = syi_saver_advance(saver, word, err);
    }
    if (!status && !syi_saver_take(saver, &saved)) status = syi_error(err, SY_EINTERNAL, "nothing to take");
    if (!status && (saved.step != meta->step || syi_saver_take(saver, &saved)))
        status = syi_error(err, SY_EINTERNAL, "taken twice, or of another step");
    memcpy(meta->params_sha256, saved.params_sha256, sizeof meta->params_sha256);
    if (!status && saved.failure.code) status = syi_error(err, saved.failure.code, "%s", saved.failure.text);
    syi_saver_free(saver);
    return status;
}

static inline int visit_rank(void *arg, struct syi_comm *comm, struct sy_error *err)
{
    struct visit *v = arg;
    struct syi_mesh mesh;
    struct syi_backend *backend = NULL;
    struct syi_checkpoint_meta meta = v->meta;
    int status = syi_mesh_new(&mesh, comm->ranks, v->data, v->expert, v->model, 4, err);
    if (!status) status = syi_backend_open("null", NULL, NULL, &backend, err);
    if (status) return status;
    int odd = v->odd_rank == -2 || v->odd_rank == comm->rank;
    struct syi_session *session = make_session(comm, backend, &mesh, odd ? v->mlp : -1);
    int saves = v->job == SAVE || v->job == SAVE_BESIDE;
    fill(session, saves ? v->seed : 999);
    struct sy_error failure = {0};
    const struct syi_checkpoint_saving saving = {.keep = v->keep, .keep_every = v->keep_every};
    if (v->job == SAVE_BESIDE) {
        status = save_beside(session, comm, &saving, &meta, err);
    } else if (v->job == SAVE) {
        status = syi_checkpoint_save(run, session, comm, &meta, &saving, &failure, err);
        if (!status && failure.code) status = syi_error(err, failure.code, "%s", failure.text);
    } else
        status = syi_checkpoint_load(run, v->step, session, comm, v->job == LOAD, &meta, err);
    int wrong = status ? 0 : count_wrong(session, v->seed, v->job != LOAD_PARAMS);
    if (status && !saves) wrong = count_wrong(session, 999, 1); /* a refused load changes nothing */
    if (wrong && !saves) status = syi_error(err, SY_EINTERNAL, "%d elements are wrong", wrong);
    if (comm->rank == 0) v->meta = meta;
    syi_session_free(session);
    syi_backend_close(backend);
    return status;
}

static inline int visit(struct visit *v, struct sy_error *err)
{
    int ranks = v->data * v->expert * v->model;
    if (ranks > 1) return syi_comm_thread_run(ranks, visit_rank, v, err);
    struct syi_comm self;
    syi_comm_self(&self);
    return visit_rank(v, &self, err);
}

static inline struct visit a_visit(enum job job, int data, int expert, int model_size, int64_t step)
{
    return (struct visit){.job = job,
                          .data = data,
                          .expert = expert,
                          .model = model_size,
                          .step = step,
                          .seed = (uint64_t)(step > 0 ? step : 1),
                          .odd_rank = -1,
                          .mlp = 32,
                          .meta = {.step = step,
                                   .examples = 7 * step,
                                   .best_metric = NAN,
                                   .best_step = -1,
                                   .train = syi_file_identify("a\tA\n", 4),
                                   .valid = syi_file_identify("b\tB", 3)}};
}

static int64_t latest(void)
{
    struct sy_error err = {0};
    int64_t step;
    cr_expect_eq(syi_checkpoint_latest(run, &step, &err), SY_OK, "%s", err.text);
    return step;
}

static inline struct syi_checkpoint_meta save(int data, int expert, int model_size, int64_t step)
{
    struct visit v = a_visit(SAVE, data, expert, model_size, step);
    struct sy_error err = {0};
    cr_assert_eq(visit(&v, &err), SY_OK, "%s", err.text);
    return v.meta;
}

/* want: the step whose values must be there. */
static inline struct syi_checkpoint_meta load(enum job job, int data, int expert, int model_size,
                                              int64_t step, int64_t want)
{
    struct visit v = a_visit(job, data, expert, model_size, step);
    struct sy_error err = {0};
    v.seed = (uint64_t)want;
    cr_assert_eq(visit(&v, &err), SY_OK, "%s", err.text);
    cr_expect_eq(v.meta.step, want);
    return v.meta;
}

static inline void check_refused(struct visit v, int code, const char *words)
{
    struct sy_error err = {0};
    cr_expect_eq(visit(&v, &err), code, "%s", err.text);
    cr_expect(strstr(err.text, words) != NULL, "\"%s\" lacks \"%s\"", err.text, words);
}

/* ---- files ---- */

static inline const char *file_of(const char *name)
{
    static char path[256];
    snprintf(path, sizeof path, "%s/checkpoints/%s", run, name);
    return path;
}

static inline int there(const char *name)
{
    return access(file_of(name), F_OK) == 0;
}

static inline void rename_to(const char *from, const char *to)
{
    char old[256];
    snprintf(old, sizeof old, "%s", file_of(from));
    cr_assert_eq(rename(old, file_of(to)), 0);
}

/* The first `from` in a text file becomes `to`. */
/* A meta.json as of an earlier version, which has no hash of its own: so a test may change one thing. */
static inline size_t without_seal(char *text, size_t bytes)
{
    char *seal = memmem(text, bytes, ",\"meta_sha256\"", 14);
    if (!seal) return bytes;
    memcpy(seal, "}\n", 2);
    return (size_t)(seal - text) + 2;
}

static inline void edit(const char *name, const char *from, const char *to)
{
    char path[256], *text;
    size_t bytes;
    struct syi_text out = {0};
    snprintf(path, sizeof path, "%s", file_of(name));
    cr_assert_eq(syi_file_read(path, &text, &bytes, NULL), SY_OK);
    bytes = without_seal(text, bytes);
    const char *at = memmem(text, bytes, from, strlen(from));
    cr_assert(at != NULL, "%s lacks %s", name, from);
    syi_text_append(&out, text, (size_t)(at - text));
    syi_text_puts(&out, to);
    syi_text_append(&out, at + strlen(from), bytes - (size_t)(at - text) - strlen(from));
    cr_assert_eq(syi_file_write(path, out.data, out.length, NULL), SY_OK);
    syi_text_free(&out);
    syi_free(text);
}

/* The name becomes a link to itself: opening it fails, and not because nothing is there. */
static inline void make_unreadable(const char *name, const char *aside)
{
    rename_to(name, aside);
    cr_assert_eq(symlink(strrchr(file_of(name), '/') + 1, file_of(name)), 0);
}

static inline void flip_last_byte(const char *name)
{
    int fd = open(file_of(name), O_RDWR);
    struct stat info;
    char byte;
    cr_assert_geq(fd, 0);
    cr_assert_eq(fstat(fd, &info), 0);
    cr_assert_eq(pread(fd, &byte, 1, info.st_size - 1), 1);
    byte ^= 1;
    cr_assert_eq(pwrite(fd, &byte, 1, info.st_size - 1), 1);
    close(fd);
}

static inline void check_same_files(const char *a, const char *b)
{
    char *x, *y;
    size_t n, m;
    cr_assert_eq(syi_file_read(file_of(a), &x, &n, NULL), SY_OK);
    cr_assert_eq(syi_file_read(file_of(b), &y, &m, NULL), SY_OK);
    cr_expect(n == m && memcmp(x, y, n) == 0, "%s and %s differ", a, b);
    syi_free(x);
    syi_free(y);
}

#endif
