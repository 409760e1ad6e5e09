/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoints: the same bytes from every mesh, read back by every other; what is damaged, of another model or
 * unfinished is never loaded; a failure leaves the earlier checkpoints. Sessions hold tensors and no ops. */
#include "config.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
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

static void make_folder(void)
{
    snprintf(folder, sizeof folder, "/tmp/sy-ckpt-XXXXXX");
    cr_assert(mkdtemp(folder) != NULL);
    snprintf(run, sizeof run, "%s/run", folder);
    cr_assert_eq(syi_make_folders(run, NULL), SY_OK);
}

static void remove_folder(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    cr_assert_eq(system(command), 0);
}

TestSuite(checkpoint, .init = make_folder, .fini = remove_folder);

static void add_tensor(struct syi_program *program, const struct syi_mesh *mesh, const struct spec *spec,
                       int mlp)
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
static struct syi_session *make_session(struct syi_comm *comm, struct syi_backend *backend,
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

static uint64_t value_at(const struct syi_shared *shared, uint64_t seed, int64_t index)
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

static int is_saved(const struct syi_shared *shared, int with_state)
{
    return shared->info.kind == SYI_PARAM || (with_state && shared->info.kind == SYI_STATE);
}

static void fill(const struct syi_session *session, uint64_t seed)
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
static int count_wrong(const struct syi_session *session, uint64_t seed, int with_state)
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
static int save_beside(struct syi_session *session, struct syi_comm *comm,
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

static int visit_rank(void *arg, struct syi_comm *comm, struct sy_error *err)
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

static int visit(struct visit *v, struct sy_error *err)
{
    int ranks = v->data * v->expert * v->model;
    if (ranks > 1) return syi_comm_thread_run(ranks, visit_rank, v, err);
    struct syi_comm self;
    syi_comm_self(&self);
    return visit_rank(v, &self, err);
}

static struct visit a_visit(enum job job, int data, int expert, int model_size, int64_t step)
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

static struct syi_checkpoint_meta save(int data, int expert, int model_size, int64_t step)
{
    struct visit v = a_visit(SAVE, data, expert, model_size, step);
    struct sy_error err = {0};
    cr_assert_eq(visit(&v, &err), SY_OK, "%s", err.text);
    return v.meta;
}

/* want: the step whose values must be there. */
static struct syi_checkpoint_meta load(enum job job, int data, int expert, int model_size, int64_t step,
                                       int64_t want)
{
    struct visit v = a_visit(job, data, expert, model_size, step);
    struct sy_error err = {0};
    v.seed = (uint64_t)want;
    cr_assert_eq(visit(&v, &err), SY_OK, "%s", err.text);
    cr_expect_eq(v.meta.step, want);
    return v.meta;
}

static void check_refused(struct visit v, int code, const char *words)
{
    struct sy_error err = {0};
    cr_expect_eq(visit(&v, &err), code, "%s", err.text);
    cr_expect(strstr(err.text, words) != NULL, "\"%s\" lacks \"%s\"", err.text, words);
}

/* ---- files ---- */

static const char *file_of(const char *name)
{
    static char path[256];
    snprintf(path, sizeof path, "%s/checkpoints/%s", run, name);
    return path;
}

static int there(const char *name)
{
    return access(file_of(name), F_OK) == 0;
}

static void rename_to(const char *from, const char *to)
{
    char old[256];
    snprintf(old, sizeof old, "%s", file_of(from));
    cr_assert_eq(rename(old, file_of(to)), 0);
}

/* The first `from` in a text file becomes `to`. */
static void edit(const char *name, const char *from, const char *to)
{
    char path[256], *text;
    size_t bytes;
    struct syi_text out = {0};
    snprintf(path, sizeof path, "%s", file_of(name));
    cr_assert_eq(syi_file_read(path, &text, &bytes, NULL), SY_OK);
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
static void make_unreadable(const char *name, const char *aside)
{
    rename_to(name, aside);
    cr_assert_eq(symlink(strrchr(file_of(name), '/') + 1, file_of(name)), 0);
}

static void flip_last_byte(const char *name)
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

static void check_same_files(const char *a, const char *b)
{
    char *x, *y;
    size_t n, m;
    cr_assert_eq(syi_file_read(file_of(a), &x, &n, NULL), SY_OK);
    cr_assert_eq(syi_file_read(file_of(b), &y, &m, NULL), SY_OK);
    cr_expect(n == m && memcmp(x, y, n) == 0, "%s and %s differ", a, b);
    syi_free(x);
    syi_free(y);
}

/* ---- what must work ---- */

static const int meshes[][3] = {{1, 1, 1}, {2, 1, 1}, {4, 1, 1}, {1, 2, 1},
                                {1, 1, 2}, {2, 2, 1}, {1, 1, 4}, {2, 2, 2}};

Test(checkpoint, the_same_bytes_from_every_mesh)
{
    struct syi_checkpoint_meta first = save(1, 1, 1, 5);
    cr_expect_eq(strlen(first.params_sha256), 64);
    cr_expect_eq(strlen(first.state_sha256), 64);
    for (size_t i = 1; i < SYI_COUNT(meshes); i++) {
        rename_to("5", "first");
        struct syi_checkpoint_meta meta = save(meshes[i][0], meshes[i][1], meshes[i][2], 5);
        cr_expect_str_eq(meta.params_sha256, first.params_sha256);
        cr_expect_str_eq(meta.state_sha256, first.state_sha256);
        check_same_files("first/params.safetensors", "5/params.safetensors");
        check_same_files("first/state.safetensors", "5/state.safetensors");
        check_same_files("first/meta.json", "5/meta.json");
        char command[512];
        snprintf(command, sizeof command, "rm -r %s", file_of("first"));
        cr_assert_eq(system(command), 0);
    }
}

Test(checkpoint, every_mesh_reads_what_another_wrote)
{
    save(2, 1, 1, 3);
    for (size_t i = 0; i < SYI_COUNT(meshes); i++) {
        load(LOAD, meshes[i][0], meshes[i][1], meshes[i][2], -1, 3);
        load(LOAD_PARAMS, meshes[i][0], meshes[i][1], meshes[i][2], 3, 3);
    }
}

Test(checkpoint, where_training_stands)
{
    static const double best[] = {0.1, INFINITY, -INFINITY, NAN};
    for (size_t i = 0; i < SYI_COUNT(best); i++) {
        struct visit v = a_visit(SAVE, 1, 1, 1, 40);
        struct sy_error err = {0};
        v.meta.best_metric = best[i];
        v.meta.best_step = 20;
        v.meta.train = syi_file_identify("a\tA\nb\tB\n", 8);
        v.meta.valid = (struct syi_file_id){0};
        v.meta.holes = (struct syi_holes){.n = 2, .hole = {{3, 5}, {40, 1}}};
        v.meta.n_actions = 2;
        v.meta.action[1] =
            (struct syi_action_state){.name = "stop-2",
                                      .watches = "max bleu of words/valid",
                                      .n = 3,
                                      .number = {{"best", best[i]}, {"step", 7}, {"odd name", -0.5}}};
        cr_assert_eq(visit(&v, &err), SY_OK, "%s", err.text);
        struct syi_checkpoint_meta back = load(LOAD, 1, 1, 1, -1, 40);
        cr_expect(back.best_metric == best[i] || (isnan(best[i]) && isnan(back.best_metric)));
        cr_expect(back.best_step == 20 && back.examples == 280);
        cr_expect_str_eq(back.params_sha256, v.meta.params_sha256);
        cr_expect_str_eq(back.state_sha256, v.meta.state_sha256);
        cr_expect(back.train.lines == 2 && back.train.bytes == 8);
        cr_expect_str_eq(back.train.sha256, v.meta.train.sha256);
        cr_expect_str_eq(back.valid.sha256, "");
        cr_expect(back.holes.n == 2 &&
                  !memcmp(back.holes.hole, v.meta.holes.hole, 2 * sizeof *back.holes.hole));
        const struct syi_action_state *state = &back.action[1];
        cr_expect(back.n_actions == 2 && !back.action[0].name[0] && !strcmp(state->name, "stop-2"));
        cr_expect(!strcmp(state->watches, "max bleu of words/valid") && state->n == 3);
        cr_expect(state->number[0].value == best[i] || (isnan(best[i]) && isnan(state->number[0].value)));
        cr_expect(state->number[1].value == 7 && state->number[2].value == -0.5);
        cr_expect(!strcmp(state->number[2].name, "odd name"));
    }
}

/* A checkpoint of step 40 with a meta.json of format 1 that has these members besides. */
static void write_format_1(const char *members)
{
    struct visit v = a_visit(SAVE, 1, 1, 1, 40);
    struct sy_error err = {0};
    char *text, *rest, *old;
    size_t bytes;
    cr_assert_eq(visit(&v, &err), SY_OK, "%s", err.text);
    const char *file = file_of("40/meta.json");
    cr_assert_eq(syi_file_read(file, &text, &bytes, &err), SY_OK, "%s", err.text);
    rest = strstr(text, "\"params_sha256\"");
    cr_assert(rest, "%s", text);
    old = syi_format("{\"format_version\":1,\"switchyard\":\"0.1.0\",\"step\":40,\"examples\":280,"
                     "\"best_metric\":0.325,\"best_step\":20,\"stale\":1,%s\"best_of\":1,\"evaluated\":40,%s",
                     members, rest);
    cr_assert(old && syi_file_write(file, old, strlen(old), &err) == SY_OK, "%s", err.text);
    syi_free(old);
    syi_free(text);
}

static double number_of(const struct syi_action_state *state, const char *name)
{
    for (int i = 0; i < state->n; i++)
        if (!strcmp(state->number[i].name, name)) return state->number[i].value;
    return -77;
}

/* Of a version that kept certain numbers of early stopping. */
Test(checkpoint, states_of_actions_of_format_1)
{
    write_format_1("\"previous_metric\":0.5,\"unbroken\":2,"
                   "\"actions\":[{\"name\":\"stop\",\"metric\":2,\"best\":null,\"best_step\":-1,\"stale\":4,"
                   "\"previous\":\"inf\",\"unbroken\":3}],");
    struct syi_checkpoint_meta back = load(LOAD, 1, 1, 1, -1, 40);
    cr_assert(back.n_actions == 2 && back.best_step == 20 && back.best_metric == 0.325 && !back.holes.n);
    const struct syi_action_state *best = &back.action[0], *stop = &back.action[1];
    cr_expect(!best->name[0] && !strcmp(best->watches, "min wer") && number_of(best, "best") == 0.325);
    cr_expect(number_of(best, "best_step") == 20 && number_of(best, "stale") == 1 &&
              number_of(best, "previous") == 0.5 && number_of(best, "unbroken") == 2);
    cr_expect(!strcmp(stop->name, "stop") && !strcmp(stop->watches, "min per") &&
              number_of(stop, "stale") == 4);
    cr_expect(isnan(number_of(stop, "best")) && isinf(number_of(stop, "previous")) &&
              number_of(stop, "unbroken") == 3);
}

/* Of the first version, which kept one best value alone. */
Test(checkpoint, without_the_states_of_actions)
{
    write_format_1("");
    struct syi_checkpoint_meta back = load(LOAD, 1, 1, 1, -1, 40);
    cr_assert(back.n_actions == 1 && back.best_step == 20);
    cr_expect(number_of(&back.action[0], "best") == 0.325 && number_of(&back.action[0], "unbroken") == 0);
    cr_expect(isnan(number_of(&back.action[0], "previous")));
}

Test(checkpoint, the_latest_of_several)
{
    cr_expect_eq(latest(), -1);
    save(1, 1, 1, 9);
    save(2, 1, 1, 100);
    save(1, 1, 1, 20);
    cr_expect_eq(latest(), 100);
    load(LOAD, 2, 2, 1, -1, 100);
    load(LOAD, 1, 1, 1, 20, 20);
    save(1, 1, 1, 0);
    load(LOAD_PARAMS, 1, 1, 1, 9, 9);
}

Test(checkpoint, old_ones_go_and_the_one_just_written_stays)
{
    for (int64_t step = 10; step <= 40; step += 10) save(1, 1, 1, step);
    struct visit v = a_visit(SAVE, 2, 1, 1, 50);
    v.keep = 2;
    cr_assert_eq(visit(&v, NULL), SY_OK);
    cr_expect(!there("10") && !there("20") && !there("30") && there("40") && there("50"));
    v = a_visit(SAVE, 1, 1, 1, 5); /* a run that went back */
    v.keep = 1;
    cr_assert_eq(visit(&v, NULL), SY_OK);
    cr_expect(there("5") && !there("40") && there("50"));
    load(LOAD, 1, 1, 1, 5, 5);
}

Test(checkpoint, the_best_one_stays_as_long_as_it_is_the_best)
{
    for (int64_t step = 10; step <= 70; step += 10) {
        struct visit v = a_visit(SAVE, 1, 1, 1, step);
        v.keep = 2;
        v.meta.best_step = step < 20 ? -1 : step < 60 ? 20 : 60;
        v.meta.best_metric = 1;
        cr_assert_eq(visit(&v, NULL), SY_OK);
        if (step == 50) {
            cr_expect(!there("10") && there("20") && !there("30") && there("40") && there("50"));
            load(LOAD_PARAMS, 2, 1, 1, SYI_CHECKPOINT_BEST, 20);
        }
    }
    cr_expect(!there("20") && !there("50") && there("60") && there("70"));
    load(LOAD, 1, 1, 1, SYI_CHECKPOINT_BEST, 60);
    rename_to("60", "60.old"); /* killed while it was replaced */
    load(LOAD, 1, 1, 1, SYI_CHECKPOINT_BEST, 60);
    rename_to("60.old", "60.gone");
    check_refused(a_visit(LOAD, 2, 1, 1, SYI_CHECKPOINT_BEST), SY_ENOENT,
                  "the best evaluation's weights are gone: ");
    save(1, 1, 1, 80);
    check_refused(a_visit(LOAD, 2, 1, 1, SYI_CHECKPOINT_BEST), SY_ENOENT, "has no best checkpoint");
}

Test(checkpoint, the_same_step_again_replaces)
{
    struct visit v = a_visit(SAVE, 2, 1, 1, 8);
    v.seed = 1234;
    cr_assert_eq(visit(&v, NULL), SY_OK);
    save(1, 2, 1, 8);
    load(LOAD, 1, 1, 1, -1, 8);
    cr_expect(!there("8.tmp") && !there("8.old"));
}

Test(checkpoint, those_of_steps_that_keep_every_divides_stay)
{
    for (int64_t step = 1; step <= 7; step++) {
        struct visit v = a_visit(SAVE, 1, 1, 1, step);
        v.keep = 1;
        v.keep_every = 3;
        cr_assert_eq(visit(&v, NULL), SY_OK);
    }
    cr_expect(!there("1") && !there("2") && there("3") && !there("4") && !there("5") && there("6") &&
              there("7"));
}

/* ---- beside training ---- */

Test(checkpoint, a_save_beside_training_has_the_values_of_its_begin)
{
    static const int meshes[][3] = {{1, 1, 1}, {2, 1, 1}, {1, 2, 2}, {4, 1, 1}};
    char *waited, *beside;
    size_t bytes, beside_bytes;
    save(1, 1, 1, 6);
    cr_assert_eq(syi_file_read(file_of("6/meta.json"), &waited, &bytes, NULL), SY_OK);
    for (size_t i = 0; i < SYI_COUNT(meshes); i++) {
        struct visit v = a_visit(SAVE_BESIDE, meshes[i][0], meshes[i][1], meshes[i][2], 6);
        struct sy_error err = {0};
        cr_assert_eq(visit(&v, &err), SY_OK, "%s", err.text);
        cr_assert_eq(syi_file_read(file_of("6/meta.json"), &beside, &beside_bytes, NULL), SY_OK);
        cr_expect(bytes == beside_bytes && !memcmp(waited, beside, bytes), "%s is not %s", beside, waited);
        syi_free(beside);
        load(LOAD, 2, 1, 1, -1, 6);
    }
    syi_free(waited);
}

Test(checkpoint, a_rank_that_fails_beside_training_ends_the_save_of_all)
{
    struct visit v = a_visit(SAVE_BESIDE, 4, 1, 1, 12);
    save(1, 1, 1, 6);
    v.odd_rank = 2;
    check_refused(v, SY_EMISMATCH, "checkpoint of step 12 was not written, earlier ones are kept");
    cr_expect(!there("12") && !there("12.tmp") && there("6"));
}

/* ---- what cannot be read is not what is not there ---- */

static void check_not_listed(const char *words)
{
    struct sy_error err = {0};
    int64_t step = 5;
    cr_expect_neq(syi_checkpoint_latest(run, &step, &err), SY_OK);
    cr_expect_eq(step, -1);
    cr_expect(strstr(err.text, run) && strstr(err.text, words), "\"%s\" lacks \"%s\"", err.text, words);
    cr_expect_neq(syi_checkpoint_clean(run, NULL), SY_OK);
    check_refused(a_visit(LOAD, 2, 1, 1, -1), err.code, words);
    check_refused(a_visit(LOAD, 2, 1, 1, SYI_CHECKPOINT_BEST), err.code, words);
    check_refused(a_visit(SAVE, 2, 1, 1, 9), err.code, "was not written");
}

Test(checkpoint, a_folder_that_cannot_be_read_is_no_empty_one)
{
    char checkpoints[128];
    cr_expect_eq(latest(), -1);
    snprintf(checkpoints, sizeof checkpoints, "%s/checkpoints", run);
    cr_assert_eq(mkdir(checkpoints, 0777), 0);
    cr_expect_eq(latest(), -1);
    cr_assert_eq(rmdir(checkpoints), 0);
    cr_assert_eq(symlink("checkpoints", checkpoints), 0);
    check_not_listed("checkpoints: Too many levels of symbolic links");
    cr_assert_eq(unlink(checkpoints), 0);
    cr_assert_eq(symlink("nowhere", checkpoints), 0); /* a file system that is not mounted now */
    check_not_listed("checkpoints: No such file");
    cr_assert_eq(unlink(checkpoints), 0);
    cr_assert_eq(syi_file_write(checkpoints, "x", 1, NULL), SY_OK);
    check_not_listed("checkpoints: Not a directory");
}

Test(checkpoint, a_checkpoint_that_cannot_be_looked_at_is_not_passed_over)
{
    save(1, 1, 1, 6);
    save(1, 1, 1, 12);
    make_unreadable("12", "aside");
    struct sy_error err = {0};
    int64_t step;
    cr_expect_eq(syi_checkpoint_latest(run, &step, &err), SY_EIO);
    cr_expect(strstr(err.text, "12/meta.json: ") != NULL, "%s", err.text);
    check_refused(a_visit(LOAD, 2, 1, 1, 12), SY_EIO, "12/meta.json: ");
}

Test(checkpoint, too_many_open_files)
{
    struct rlimit before, none;
    struct sy_error err = {0};
    int64_t step;
    save(1, 1, 1, 6);
    cr_assert_eq(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = before;
    none.rlim_cur = 0;
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &none), 0);
    int status = syi_checkpoint_latest(run, &step, &err);
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &before), 0);
    cr_expect_eq(status, SY_EIO);
    cr_expect(strstr(err.text, "checkpoints: Too many open files") != NULL, "%s", err.text);
    cr_expect_eq(latest(), 6);
}

/* To remove it would lose a good checkpoint. */
Test(checkpoint, another_checkpoint_is_advised_of_damage_only)
{
    struct visit v = a_visit(LOAD, 2, 1, 1, -1);
    struct sy_error err = {0};
    save(1, 1, 1, 6);
    save(1, 1, 1, 12);
    make_unreadable("12/params.safetensors", "params");
    cr_expect_eq(visit(&v, &err), SY_EIO);
    cr_expect(strstr(err.text, "12/params.safetensors: Too many levels") != NULL, "%s", err.text);
    cr_expect(strstr(err.text, "another step") == NULL && strstr(err.text, "removed") == NULL, "%s",
              err.text);
    cr_assert_eq(unlink(file_of("12/params.safetensors")), 0);
    check_refused(v, SY_ENOENT, "try --checkpoint with another step: 6");
}

/* ---- interrupted ---- */

/* Killed in the middle of pruning, or of replacing; a start that saves nothing clears it away too. */
Test(checkpoint, what_a_kill_left_is_cleared_away)
{
    struct sy_error err = {0};
    cr_expect_eq(syi_checkpoint_clean(run, &err), SY_OK, "%s", err.text);
    for (int64_t step = 8; step <= 11; step++) save(1, 1, 1, step);
    rename_to("8", "8.tmp");
    cr_assert_eq(unlink(file_of("8.tmp/meta.json")), 0);
    rename_to("9", "9.old");
    rename_to("10", "11.old");
    cr_expect_eq(syi_checkpoint_clean(run, &err), SY_OK, "%s", err.text);
    cr_expect(!there("8.tmp") && !there("8") && there("9") && !there("9.old") && !there("11.old"));
    load(LOAD, 1, 1, 1, 9, 9);
    load(LOAD, 1, 1, 1, -1, 11);
}

/* What a user put there is not removed, hides no checkpoint and stops no save but that of its own step. */
Test(checkpoint, a_folder_that_cannot_be_cleared_away)
{
    save(1, 1, 1, 6);
    cr_assert_eq(mkdir(file_of("7.tmp"), 0777), 0);
    cr_assert_eq(mkdir(file_of("7.tmp/mine"), 0777), 0);
    cr_expect_eq(syi_checkpoint_clean(run, NULL), SY_OK);
    check_refused(a_visit(SAVE, 2, 1, 1, 7), SY_EEXIST, "checkpoint of step 7 was not written");
    save(1, 1, 1, 8);
    cr_expect(there("7.tmp/mine") && there("8"));
}

Test(checkpoint, a_kill_between_the_renames_loses_nothing)
{
    save(1, 1, 1, 8);
    rename_to("8", "8.old");
    cr_expect_eq(latest(), 8);
    load(LOAD, 2, 1, 1, -1, 8);
    save(1, 1, 1, 9); /* gives it its name back */
    cr_expect(there("8") && there("9") && !there("8.old"));
    load(LOAD, 1, 1, 1, 8, 8);
}

Test(checkpoint, an_unfinished_one_does_not_count)
{
    save(1, 1, 1, 8);
    save(1, 1, 1, 12);
    rename_to("12", "12.tmp");
    cr_assert_eq(mkdir(file_of("13"), 0777),
                 0); /* a folder without meta.json, and names that are none of ours */
    cr_assert_eq(mkdir(file_of("014"), 0777), 0);
    cr_assert_eq(mkdir(file_of("15x"), 0777), 0);
    cr_assert_eq(mkdir(file_of("99999999999999999999999"), 0777), 0);
    cr_expect_eq(latest(), 8);
    load(LOAD, 1, 1, 1, -1, 8);
    check_refused(a_visit(LOAD, 2, 1, 1, 12), SY_ENOENT, "holds no checkpoint of step 12; there are: 8");
    save(1, 1, 1, 16);
    cr_expect(!there("12.tmp") && there("13") && there("014") && there("15x"));
}

/* ---- refused ---- */

Test(checkpoint, none_there)
{
    check_refused(a_visit(LOAD, 1, 1, 1, -1), SY_ENOENT, "holds no checkpoint: train first");
    check_refused(a_visit(LOAD, 2, 1, 1, 7), SY_ENOENT, "holds no checkpoint: train first");
    check_refused(a_visit(LOAD, 1, 1, 1, SYI_CHECKPOINT_BEST), SY_ENOENT, "holds no checkpoint: train first");
}

Test(checkpoint, corrupt_files)
{
    static const char *const names[] = {"60/params.safetensors", "60/state.safetensors"};
    for (size_t i = 0; i < SYI_COUNT(names); i++) {
        for (int64_t step = 20; step <= 60; step += 20) save(1, 1, 1, step);
        flip_last_byte(names[i]);
        check_refused(a_visit(LOAD, 1, 1, 1, -1), SY_EFORMAT, names[i]);
        check_refused(a_visit(LOAD, 2, 1, 1, -1), SY_EFORMAT, "is corrupt: the SHA-256");
        check_refused(a_visit(LOAD, 2, 1, 1, -1), SY_EFORMAT,
                      i ? "; damaged: state/step;" : "; damaged: target/token_embedder/embedding;");
        check_refused(a_visit(LOAD, 1, 1, 1, 60), SY_EFORMAT, "try --checkpoint with another step: 40, 20");
        load(LOAD, 1, 1, 1, 40, 40);
    }
    load(LOAD_PARAMS, 1, 1, 1, -1, 60); /* the state file is not looked at */
}

/* The data stay as they are: only names change places. */
Test(checkpoint, two_names_of_one_shape_that_were_swapped)
{
    save(1, 1, 1, 6);
    edit("6/params.safetensors", "mlp/wi/kernel", "mlp/wX/kernel");
    edit("6/params.safetensors", "mlp/wj/kernel", "mlp/wi/kernel");
    edit("6/params.safetensors", "mlp/wX/kernel", "mlp/wj/kernel");
    check_refused(a_visit(LOAD_PARAMS, 1, 1, 1, -1), SY_EFORMAT,
                  "6/params.safetensors is corrupt: the SHA-256 of its header");
    check_refused(a_visit(LOAD, 2, 1, 1, -1), SY_EFORMAT, "there is no other checkpoint");
}

/* Made before there were hashes of headers and files of examples. */
Test(checkpoint, an_old_one_loads)
{
    save(1, 1, 1, 6);
    edit("6/meta.json", "\"params_header_sha256\"", "\"before\"");
    check_refused(a_visit(LOAD, 1, 1, 1, -1), SY_EFORMAT, "\"params_header_sha256\" is missing");
    edit("6/meta.json", "\"state_header_sha256\"", "\"after\"");
    edit("6/meta.json", "\"train\"", "\"earlier\"");
    struct syi_checkpoint_meta meta = load(LOAD, 2, 1, 1, -1, 6);
    cr_expect(!meta.params_header_sha256[0] && !meta.train.sha256[0] && meta.valid.sha256[0]);
    flip_last_byte("6/params.safetensors");
    check_refused(a_visit(LOAD, 1, 1, 1, -1), SY_EFORMAT, "is corrupt: the SHA-256 of its data");
}

Test(checkpoint, numbers_that_cannot_be)
{
    static const char *const odd[][2] = {
        {"\"step\":6", "\"step\":-6"},
        {"\"step\":6", "\"step\":9223372036854775807"},
        {"\"examples\":42", "\"examples\":-1"},
        {"\"best_step\":-1", "\"best_step\":7"},
        {"\"best_step\":-1", "\"best_step\":-2"},
        {"\"evaluated\":0", "\"evaluated\":7"},
        {"\"lines\":1", "\"lines\":-1"},
        {"\"holes\":[]", "\"holes\":[{\"step\":7,\"batches\":1}]"},
        {"\"holes\":[]", "\"holes\":[{\"step\":5,\"batches\":0}]"},
        {"\"holes\":[]", "\"holes\":[{\"step\":5,\"batches\":1},{\"step\":5,\"batches\":1}]"},
    };
    for (size_t i = 0; i < SYI_COUNT(odd); i++) {
        save(1, 1, 1, 6);
        edit("6/meta.json", odd[i][0], odd[i][1]);
        check_refused(a_visit(LOAD, 1, 1, 1, 6), SY_EFORMAT, "which cannot be: the file is damaged");
    }
}

Test(checkpoint, files_cut_short_or_missing)
{
    save(1, 1, 1, 6);
    cr_assert_eq(truncate(file_of("6/params.safetensors"), 700), 0);
    check_refused(a_visit(LOAD, 1, 1, 1, -1), SY_EFORMAT, "6/params.safetensors");
    check_refused(a_visit(LOAD, 4, 1, 1, -1), SY_EFORMAT, "there is no other checkpoint in this run");
    save(1, 1, 1, 7);
    cr_assert_eq(unlink(file_of("7/state.safetensors")), 0);
    check_refused(a_visit(LOAD, 2, 1, 1, -1), SY_ENOENT, "7/state.safetensors");
    cr_assert_eq(truncate(file_of("7/meta.json"), 20), 0);
    check_refused(a_visit(LOAD, 2, 1, 1, -1), SY_EFORMAT, "7/meta.json");
    cr_assert_eq(
        syi_file_write(file_of("7/meta.json"), "{\"format_version\": 3, \"switchyard\": \"9.9\"}", 42, NULL),
        SY_OK);
    check_refused(a_visit(LOAD, 1, 1, 1, -1), SY_EUNSUPPORTED,
                  "checkpoint format 3, written by switchyard 9.9");
    cr_assert_eq(syi_file_write(file_of("7/meta.json"), "{\"format_version\": 1, \"step\": 7.5}", 34, NULL),
                 SY_OK);
    check_refused(a_visit(LOAD, 1, 1, 1, -1), SY_EFORMAT, "\"step\" is no whole number");
}

Test(checkpoint, a_renamed_folder)
{
    save(1, 1, 1, 6);
    rename_to("6", "7");
    check_refused(a_visit(LOAD, 1, 1, 1, -1), SY_EFORMAT, "is of step 6: the folder was renamed");
}

Test(checkpoint, of_another_model)
{
    struct visit v = a_visit(LOAD, 2, 1, 1, -1);
    save(1, 1, 1, 6);
    v.odd_rank = -2;
    v.seed = 999;
    check_refused(v, SY_EMISMATCH,
                  "checkpoint of another model: target/encoder/mlp/wi/kernel has shape F32 [6,16], the run "
                  "file's model "
                  "wants F32 [6,32]");
    v.mlp = 0;
    check_refused(v, SY_EMISMATCH,
                  "it has target/token_embedder/embedding, which the run file's model lacks");
    v.job = SAVE;
    v.meta = a_visit(SAVE, 2, 1, 1, 10).meta;
    cr_assert_eq(visit(&v, NULL), SY_OK);
    check_refused(a_visit(LOAD, 1, 1, 1, -1), SY_EMISMATCH,
                  "it lacks target/token_embedder/embedding, which the run file's model has");
}

/* ---- failing while saving ---- */

Test(checkpoint, one_rank_that_fails_stops_all_and_leaves_no_trace)
{
    struct visit v = a_visit(SAVE, 4, 1, 1, 12);
    save(1, 1, 1, 6);
    v.odd_rank = 2; /* its plan does not fit the file that rank 0 made */
    check_refused(v, SY_EMISMATCH, "checkpoint of step 12 was not written, earlier ones are kept");
    cr_expect(!there("12") && !there("12.tmp") && there("6"));
    load(LOAD, 1, 1, 1, -1, 6);
}

Test(checkpoint, a_full_disk)
{
    struct rlimit limit = {600, RLIM_INFINITY}, before;
    save(1, 1, 1, 6);
    save(1, 1, 1, 12);
    cr_assert_eq(getrlimit(RLIMIT_FSIZE, &before), 0);
    limit.rlim_max = before.rlim_max;
    signal(SIGXFSZ, SIG_IGN);
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    struct visit v = a_visit(SAVE, 2, 1, 1, 12);
    struct sy_error err = {0};
    int status = visit(&v, &err);
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &before), 0);
    cr_expect_eq(status, SY_EIO);
    cr_expect(strstr(err.text, "params.safetensors") != NULL, "%s", err.text);
    cr_expect(there("12") && there("6") && !there("12.tmp"));
    load(LOAD, 1, 1, 1, -1, 12);
}

Test(checkpoint, a_folder_that_cannot_be_made)
{
    char path[128];
    snprintf(path, sizeof path, "%s/checkpoints", run);
    cr_assert_eq(syi_file_write(path, "x", 1, NULL), SY_OK);
    check_refused(a_visit(SAVE, 2, 1, 1, 12), SY_ENOENT, path); /* ENOTDIR */
}
