/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoints: the same bytes from every mesh, read back by every other; which ones stay; saves beside training. What is
 * refused: test_checkpoint_damage.c. */
#include "config.h"

#include "checkpoint_visit.h"

TestSuite(checkpoint, .init = make_folder, .fini = remove_folder);

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

/* Bytes of the folder's params.safetensors that are not zero. */
static size_t written(const char *name)
{
    char *text = NULL;
    size_t bytes = 0, n = 0;
    if (syi_file_read(file_of(name), &text, &bytes, NULL)) return 0;
    for (size_t i = 0; i < bytes; i++) n += text[i] != 0;
    syi_free(text);
    return n;
}

struct turns {
    int turns, growths;
    int lose; /* a file is removed once rank 0 has made it */
    struct syi_saved saved;
};

/* Each rank writes in a turn of its own; rank 0 counts the meetings after which there is more in the file. */
static int save_in_turns(void *arg, struct syi_comm *comm, struct sy_error *err)
{
    struct turns *t = arg;
    struct syi_mesh mesh;
    struct syi_backend *backend = NULL;
    struct syi_saver *saver = NULL;
    const struct syi_checkpoint_meta meta = a_visit(SAVE, 1, 4, 1, 5).meta;
    const struct syi_checkpoint_saving saving = {.turn = t->turns ? comm->rank : 0, .turns = t->turns};
    size_t before = 0;
    int status = syi_mesh_new(&mesh, comm->ranks, 1, 4, 1, 4, err);
    if (!status) status = syi_backend_open("null", NULL, NULL, &backend, err);
    if (status) return status;
    struct syi_session *session = make_session(comm, backend, &mesh, -1);
    fill(session, 5);
    status = syi_saver_new(run, session, comm, &saver, err);
    if (!status) syi_saver_begin(saver, &meta, &saving, 0);
    while (!status && syi_saver_step(saver) == 5) {
        int64_t word[SYI_SAVER_WORDS];
        syi_saver_words(saver, word);
        status = syi_comm_sum(comm, word, SYI_SAVER_WORDS, err);
        int between = word[SYI_SAVER_ENDED] == comm->ranks; /* two stages: no rank writes */
        if (between && !comm->rank && t->lose) unlink(file_of("5.tmp/params.safetensors"));
        size_t now = between && !comm->rank ? written("5.tmp/params.safetensors") : 0;
        if (now > before) t->growths++, before = now;
        if (!status) status = syi_comm_barrier(comm, err);
        if (!status) status = syi_saver_advance(saver, word, err);
    }
    if (comm->rank == 0 && !status && !syi_saver_take(saver, &t->saved))
        status = syi_error(err, SY_EINTERNAL, "nothing to take");
    syi_saver_free(saver);
    syi_session_free(session);
    syi_backend_close(backend);
    return status;
}

/* The header is there before the first part, and no file any more after the last. */
Test(checkpoint, ranks_write_in_turns)
{
    struct syi_checkpoint_meta want = save(1, 4, 1, 5);
    int growths[2];
    for (int i = 0; i < 2; i++) {
        struct turns t = {.turns = i ? 4 : 0};
        struct sy_error err = {0};
        char command[512];
        snprintf(command, sizeof command, "rm -r %s", file_of("5"));
        cr_assert_eq(system(command), 0);
        cr_assert_eq(syi_comm_thread_run(4, save_in_turns, &t, &err), SY_OK, "%s", err.text);
        cr_assert_eq(t.saved.failure.code, 0, "%s", t.saved.failure.text);
        cr_expect_str_eq(t.saved.params_sha256, want.params_sha256);
        growths[i] = t.growths;
    }
    cr_expect_eq(growths[1], growths[0] + 3, "%d and %d", growths[0], growths[1]);
}

/* Rank 0 has the file open, the others do not find it: the lowest of them is named, for its host may be the cause. */
Test(checkpoint, a_rank_that_cannot_write_is_named)
{
    struct turns t = {.lose = 1};
    struct sy_error err = {0};
    cr_assert_eq(syi_comm_thread_run(4, save_in_turns, &t, &err), SY_OK, "%s", err.text);
    cr_expect(strstr(t.saved.failure.text, "checkpoint of step 5 was not written: rank 1: cannot open ") !=
                  NULL,
              "%s", t.saved.failure.text);
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
    text[without_seal(text, bytes)] = '\0';
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

Test(checkpoint, where_the_save_of_the_best_failed_the_best_before_stays)
{
    static const int64_t saved[][2] = {{10, 10}, {20, 20}, {30, 20}, {45, 40}, {50, 40}, {60, 40}};
    for (size_t i = 0; i < SYI_COUNT(saved); i++) {
        struct visit v = a_visit(SAVE, 1, 1, 1, saved[i][0]);
        v.keep = 1;
        v.meta.best_step = saved[i][1];
        v.meta.best_metric = 1;
        cr_assert_eq(visit(&v, NULL), SY_OK);
    }
    cr_expect(!there("10") && there("20") && !there("45") && !there("50") && there("60"));
    check_refused(a_visit(LOAD, 2, 1, 1, SYI_CHECKPOINT_BEST), SY_ENOENT,
                  "are those of step 20: name that step");
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
    check_refused(v, SY_EMISMATCH, "checkpoint of step 12 was not written: ");
    cr_expect(!there("12") && !there("12.tmp") && there("6"));
}
