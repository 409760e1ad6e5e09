/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoints that are damaged, of another model, unfinished or unreadable are never loaded and never taken for absent; a save
 * that fails leaves the earlier ones. */
#include "config.h"

#include <signal.h>
#include <sys/resource.h>

#include "checkpoint_visit.h"

TestSuite(checkpoint_damage, .init = make_folder, .fini = remove_folder);

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

Test(checkpoint_damage, a_folder_that_cannot_be_read_is_no_empty_one)
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

Test(checkpoint_damage, a_checkpoint_that_cannot_be_looked_at_is_not_passed_over)
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

Test(checkpoint_damage, too_many_open_files)
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
Test(checkpoint_damage, another_checkpoint_is_advised_of_damage_only)
{
    struct visit v = a_visit(LOAD, 2, 1, 1, -1);
    struct sy_error err = {0};
    save(1, 1, 1, 6);
    save(1, 1, 1, 12);
    make_unreadable("12/params.safetensors", "params");
    cr_expect_eq(visit(&v, &err), SY_EIO);
    cr_expect(strstr(err.text, "12/params.safetensors: Too many levels") != NULL, "%s", err.text);
    cr_expect(strstr(err.text, "the others") == NULL, "%s", err.text);
    cr_assert_eq(unlink(file_of("12/params.safetensors")), 0);
    check_refused(v, SY_ENOENT, "move the folder of step 12 away to go on from the newest of the others: 6");
}

/* ---- interrupted ---- */

/* Killed in the middle of pruning, or of replacing; a start that saves nothing clears it away too. */
Test(checkpoint_damage, what_a_kill_left_is_cleared_away)
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
Test(checkpoint_damage, a_folder_that_cannot_be_cleared_away)
{
    save(1, 1, 1, 6);
    cr_assert_eq(mkdir(file_of("7.tmp"), 0777), 0);
    cr_assert_eq(mkdir(file_of("7.tmp/mine"), 0777), 0);
    cr_expect_eq(syi_checkpoint_clean(run, NULL), SY_OK);
    check_refused(a_visit(SAVE, 2, 1, 1, 7), SY_EEXIST, "checkpoint of step 7 was not written");
    save(1, 1, 1, 8);
    cr_expect(there("7.tmp/mine") && there("8"));
}

Test(checkpoint_damage, a_kill_between_the_renames_loses_nothing)
{
    save(1, 1, 1, 8);
    rename_to("8", "8.old");
    cr_expect_eq(latest(), 8);
    load(LOAD, 2, 1, 1, -1, 8);
    save(1, 1, 1, 9); /* gives it its name back */
    cr_expect(there("8") && there("9") && !there("8.old"));
    load(LOAD, 1, 1, 1, 8, 8);
}

Test(checkpoint_damage, an_unfinished_one_does_not_count)
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

/* A STEP without meta.json is what no save and no kill leaves: it may be a checkpoint that somebody damaged. */
static void check_needs_meta(const char *name)
{
    struct sy_error err = {0};
    int64_t step;
    cr_expect_eq(syi_checkpoint_latest(run, &step, &err), SY_EFORMAT);
    cr_expect_eq(step, -1);
    cr_expect(strstr(err.text, name) && strstr(err.text, "put its meta.json back, or move it out of"), "%s",
              err.text);
}

Test(checkpoint_damage, one_without_meta_json_is_not_passed_over)
{
    save(1, 1, 1, 6);
    cr_assert_eq(unlink(file_of("6/meta.json")), 0);
    check_needs_meta("checkpoints/6 ");
    rename_to("6", "aside");
    cr_expect_eq(latest(), -1);
    save(1, 1, 1, 5);
    rename_to("aside", "6");
    check_needs_meta("checkpoints/6 ");
    load(LOAD, 1, 1, 1, 5, 5); /* another one that is asked for */
    check_refused(a_visit(LOAD, 2, 1, 1, 6), SY_EFORMAT, "checkpoints/6 has the name of a checkpoint");
    rename_to("6", "6.old");
    check_needs_meta("checkpoints/6.old ");
    rename_to("6.old", "5.old"); /* killed while it was removed, after its successor got the name */
    cr_expect_eq(latest(), 5);
    cr_expect_eq(syi_checkpoint_clean(run, NULL), SY_OK);
    cr_expect(there("5") && !there("5.old"));
    cr_assert_eq(symlink("nowhere", file_of("7")), 0);
    check_needs_meta("checkpoints/7 ");
    cr_assert_eq(unlink(file_of("7")), 0);
    cr_assert_eq(syi_file_write(file_of("7"), "x", 1, NULL), SY_OK);
    check_needs_meta("checkpoints/7 ");
}

Test(checkpoint_damage, an_old_one_stays_until_its_successor_is_whole)
{
    save(1, 1, 1, 4);
    rename_to("4", "4.old");
    cr_assert_eq(mkdir(file_of("4"), 0777), 0);
    cr_expect_eq(latest(), 4);
    cr_expect_eq(syi_checkpoint_clean(run, NULL), SY_OK);
    cr_expect(there("4/meta.json") && !there("4.old"));
    rename_to("4", "4.old");
    cr_assert_eq(mkdir(file_of("4"), 0777), 0);
    cr_assert_eq(syi_file_write(file_of("4/mine"), "x", 1, NULL), SY_OK);
    cr_expect_eq(syi_checkpoint_clean(run, NULL), SY_OK);
    cr_expect(there("4.old/meta.json") && there("4/mine"));
    check_needs_meta("checkpoints/4 ");
}

/* ---- refused ---- */

Test(checkpoint_damage, none_there)
{
    check_refused(a_visit(LOAD, 1, 1, 1, -1), SY_ENOENT, "holds no checkpoint: train first");
    check_refused(a_visit(LOAD, 2, 1, 1, 7), SY_ENOENT, "holds no checkpoint: train first");
    check_refused(a_visit(LOAD, 1, 1, 1, SYI_CHECKPOINT_BEST), SY_ENOENT, "holds no checkpoint: train first");
}

Test(checkpoint_damage, corrupt_files)
{
    static const char *const names[] = {"60/params.safetensors", "60/state.safetensors"};
    for (size_t i = 0; i < SYI_COUNT(names); i++) {
        for (int64_t step = 20; step <= 60; step += 20) save(1, 1, 1, step);
        flip_last_byte(names[i]);
        check_refused(a_visit(LOAD, 1, 1, 1, -1), SY_EFORMAT, names[i]);
        check_refused(a_visit(LOAD, 2, 1, 1, -1), SY_EFORMAT, "is corrupt: the SHA-256");
        check_refused(a_visit(LOAD, 2, 1, 1, -1), SY_EFORMAT,
                      i ? "; damaged: state/step;" : "; damaged: target/token_embedder/embedding;");
        check_refused(a_visit(LOAD, 1, 1, 1, 60), SY_EFORMAT,
                      "move the folder of step 60 away to go on from the newest of the others: 40, 20");
        load(LOAD, 1, 1, 1, 40, 40);
    }
    load(LOAD_PARAMS, 1, 1, 1, -1, 60); /* the state file is not looked at */
}

/* The data stay as they are: only names change places. */
Test(checkpoint_damage, two_names_of_one_shape_that_were_swapped)
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
Test(checkpoint_damage, an_old_one_loads)
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

Test(checkpoint_damage, numbers_that_cannot_be)
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

static void check_edited(size_t at, char to)
{
    char *text;
    size_t bytes;
    save(1, 1, 1, 6);
    cr_assert_eq(syi_file_read(file_of("6/meta.json"), &text, &bytes, NULL), SY_OK);
    text[at < bytes ? at : bytes - 4] = to; /* else a digit of the hash itself */
    cr_assert_eq(syi_file_write(file_of("6/meta.json"), text, bytes, NULL), SY_OK);
    syi_free(text);
    check_refused(a_visit(LOAD, 1, 1, 1, 6), SY_EFORMAT, "it was damaged or edited by hand");
}

/* Numbers that could be, but are not those that were written. */
Test(checkpoint_damage, an_edited_meta_json)
{
    struct syi_checkpoint_meta meta;
    char *text;
    size_t bytes;
    save(1, 1, 1, 6);
    cr_assert_eq(syi_file_read(file_of("6/meta.json"), &text, &bytes, NULL), SY_OK);
    size_t examples = (size_t)(strstr(text, "\"examples\":42") - text) + 11;
    size_t key = (size_t)(strstr(text, "\"train\":") - text) + 1;
    syi_free(text);
    check_edited(examples, '3');
    check_edited(key, 'T');
    check_edited(SIZE_MAX, '-');
    save(1, 1, 1, 6);
    meta = load(LOAD, 1, 1, 1, 6, 6);
    cr_expect(meta.is_sealed);
    edit("6/meta.json", "\"examples\":42", "\"examples\":43"); /* an earlier version's: nothing tells */
    meta = load(LOAD, 1, 1, 1, 6, 6);
    cr_expect(!meta.is_sealed && meta.examples == 43);
    edit("6/meta.json", "\"best_metric\":null", "\"best_metric\":\"0.5\"");
    check_refused(a_visit(LOAD, 1, 1, 1, 6), SY_EFORMAT, "\"best_metric\" is missing or malformed");
}

/* Earlier versions wrote it when a run went on with smaller batches: the weights are as good as ever. */
Test(checkpoint_damage, a_row_position_behind_the_examples)
{
    save(1, 1, 1, 6);
    edit("6/meta.json", "\"examples\":42", "\"examples\":42,\"packed_row\":43,\"packed_window\":3");
    struct syi_checkpoint_meta meta = load(LOAD, 1, 1, 1, 6, 6);
    cr_expect(!meta.rows.row && !meta.rows.window);
    edit("6/meta.json", "\"packed_row\":43", "\"packed_row\":42");
    meta = load(LOAD, 1, 1, 1, 6, 6);
    cr_expect(meta.rows.row == 42 && meta.rows.window == 3);
}

Test(checkpoint_damage, files_cut_short_or_missing)
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

Test(checkpoint_damage, a_renamed_folder)
{
    save(1, 1, 1, 6);
    rename_to("6", "7");
    check_refused(a_visit(LOAD, 1, 1, 1, -1), SY_EFORMAT, "is of step 6: the folder was renamed");
}

Test(checkpoint_damage, of_another_model)
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

Test(checkpoint_damage, one_rank_that_fails_stops_all_and_leaves_no_trace)
{
    struct visit v = a_visit(SAVE, 4, 1, 1, 12);
    save(1, 1, 1, 6);
    v.odd_rank = 2; /* its plan does not fit the file that rank 0 made */
    check_refused(v, SY_EMISMATCH, "checkpoint of step 12 was not written: ");
    cr_expect(!there("12") && !there("12.tmp") && there("6"));
    load(LOAD, 1, 1, 1, -1, 6);
}

Test(checkpoint_damage, a_full_disk)
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

Test(checkpoint_damage, a_folder_that_cannot_be_made)
{
    char path[128];
    snprintf(path, sizeof path, "%s/checkpoints", run);
    cr_assert_eq(syi_file_write(path, "x", 1, NULL), SY_OK);
    check_refused(a_visit(SAVE, 2, 1, 1, 12), SY_ENOENT, path); /* ENOTDIR */
}
