/* SPDX-License-Identifier: Apache-2.0 */
/* The public library: training step by step, and saving runs that can be opened, continued and are never written over. */
#include "config.h"

#include <math.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include "small_run.h"
#include "runtime/backend.h"
#include "train/checkpoint/checkpoint.h"
#include "train/launch/run_dir.h"
#include "train/trainer/action_kind.h"

static struct small_run run;

static void begin(void)
{
    small_run_begin(&run);
}

static void end(void)
{
    small_run_remove(&run);
}

TestSuite(api_trainer, .init = begin, .fini = end);

static struct sy_trainer *open_trainer(const char *path, const struct sy_open_options *options)
{
    struct sy_error err = {0};
    struct sy_trainer *trainer;
    cr_assert_eq(sy_trainer_open(path, options, &trainer, &err), SY_OK, "%s", err.text);
    return trainer;
}

static struct sy_step train(struct sy_trainer *trainer, int steps)
{
    struct sy_error err = {0};
    struct sy_step step = {.bytes = sizeof step};
    for (int i = 0; i < steps; i++)
        cr_assert_eq(sy_trainer_step(trainer, run.pair, SMALL_PAIRS, &step, &err), SY_OK, "%s", err.text);
    return step;
}

static void save(struct sy_trainer *trainer, const char *dir)
{
    struct sy_error err = {0};
    cr_assert_eq(sy_trainer_save(trainer, dir, &err), SY_OK, "%s", err.text);
}

static void weights_of(const char *dir, int64_t step, char sha256[65])
{
    struct sy_model_facts facts = {.bytes = sizeof facts};
    struct sy_model *model = open_model(dir, NULL);
    cr_assert_eq(sy_model_facts(model, &facts, NULL), SY_OK);
    cr_expect_eq(facts.step, step);
    strcpy(sha256, facts.weights_sha256);
    sy_model_close(model);
}

/* The loss falls, and a model that learned its pairs answers with them. */
Test(api_trainer, learns)
{
    struct sy_trainer *trainer = open_trainer(run.file, NULL);
    struct sy_step first = train(trainer, 1), last = train(trainer, 149);
    int right = 0;
    cr_expect(first.step == 1 && last.step == 150 && first.updated && first.rate == 5e-3);
    cr_expect(first.tokens > SMALL_PAIRS && first.grad_norm > 0 && isfinite(first.loss));
    cr_expect_lt(last.loss, first.loss / 10, "the loss fell from %g to %g", first.loss, last.loss);
    save(trainer, run.dir);
    sy_trainer_close(trainer);
    struct sy_model *model = open_model(run.dir, NULL);
    struct sy_answers *answers = answers_of(model, NULL, run.text, SMALL_PAIRS);
    for (size_t i = 0; i < SMALL_PAIRS; i++) right += !strcmp(sy_answer(answers, i, 0).text, run.target[i]);
    cr_expect_geq(right, SMALL_PAIRS * 3 / 4, "%d of %d pairs were learned", right, SMALL_PAIRS);
    sy_answers_free(answers);
    sy_model_close(model);
}

/* Pairs come alone in rows of a run that packs, too, and are worth as much there as in rows without packing. */
Test(api_trainer, pairs_in_packed_rows)
{
    const char *set[] = {"moe.num_encoder_sparse_layers=0", "moe.num_experts=0", "data.length_buckets=[]",
                         "data.pack=true"};
    double loss[2], norm[2];
    for (int packed = 0; packed < 2; packed++) {
        struct sy_open_options options = {.bytes = sizeof options, .set = set, .n_set = packed ? 4 : 3};
        struct sy_trainer *trainer = open_trainer(run.file, &options);
        struct sy_step step = train(trainer, 1);
        sy_trainer_close(trainer);
        loss[packed] = step.loss;
        norm[packed] = step.grad_norm;
    }
    cr_expect_float_eq(loss[1], loss[0], 1e-5 * loss[0], "%g packed, %g not", loss[1], loss[0]);
    cr_expect_float_eq(norm[1], norm[0], 1e-4 * norm[0], "gradient: %g packed, %g not", norm[1], norm[0]);
}

/* Saved and opened again, with any number of threads: the same weights as without. */
Test(api_trainer, goes_on)
{
    char whole[65], parts[65], folder[128], other[128];
    struct sy_open_options two = {.bytes = sizeof two, .threads = 2};
    struct sy_trainer *trainer = open_trainer(run.file, NULL);
    train(trainer, 3);
    save(trainer, run.dir);
    train(trainer, 4);
    snprintf(other, sizeof other, "%s/whole", run.folder);
    save(trainer, other);
    sy_trainer_close(trainer);
    weights_of(other, 7, whole);
    trainer = open_trainer(run.dir, &two);
    cr_expect_eq(train(trainer, 4).step, 7);
    save(trainer, run.dir);
    sy_trainer_close(trainer);
    weights_of(run.dir, 7, parts);
    cr_expect_str_eq(whole, parts);
    snprintf(folder, sizeof folder, "%s/checkpoints/3", run.dir);
    trainer = open_trainer(folder, NULL);
    cr_expect_eq(train(trainer, 1).step, 4);
    sy_trainer_close(trainer);
}

static void expect_refused(int got, const struct sy_error *err, int code, const char *words)
{
    cr_expect_eq(got, code, "%d instead of %d: %s", got, code, err->text);
    cr_expect(strstr(err->text, words) != NULL, "\"%s\" lacks \"%s\"", err->text, words);
}

/* What auto took for products of bfloat16 stands in the run that is saved, and is not given up. */
Test(api_trainer, keeps_its_arithmetic)
{
    const char *half[] = {"model.dtype=bfloat16", NULL}, *pairs[] = {"cpu.bfloat16=avx512_bf16", NULL};
    struct sy_open_options options = {.bytes = sizeof options, .set = half, .n_set = 1};
    struct syi_config config;
    struct sy_error err = {0};
    struct sy_trainer *trainer = open_trainer(run.file, &options);
    train(trainer, 1);
    save(trainer, run.dir);
    sy_trainer_close(trainer);
    cr_assert_eq(syi_run_dir_read_config(run.dir, &config, &err), SY_OK, "%s", err.text);
    cr_expect_neq(config.cpu.bfloat16, SYI_CPU_BFLOAT16_AUTO);
    const struct sy_backend_option named[] = {{"variant", "avx512_bf16"}, {NULL, NULL}};
    struct syi_backend *backend = NULL;
    int here = syi_backend_open("cpu", named, NULL, &backend, NULL) == SY_OK;
    syi_backend_close(backend);
    options.set = pairs;
    int status = sy_trainer_open(run.dir, &options, &trainer, &err);
    cr_expect_eq(status, here ? SY_OK : SY_EUNSUPPORTED);
    if (!status) sy_trainer_close(trainer);
    cr_expect(!status || strstr(err.text, "set cpu.bfloat16 = widened") != NULL, "%s", err.text);
    struct sy_model *model = open_model(run.dir, &options); /* answers, perhaps with a warning */
    sy_model_close(model);
}

/* What others made stays as it is: other runs, checkpoints without a run, later steps of the same run. */
Test(api_trainer, writes_over_nothing)
{
    char before[65], after[65], folder[128], orphans[160], command[512];
    struct sy_error err = {0}, later = {0}, none = {0};
    struct sy_trainer *trainer = open_trainer(run.file, NULL);
    train(trainer, 2);
    save(trainer, run.dir);
    train(trainer, 1);
    save(trainer, run.dir);
    sy_trainer_close(trainer);
    weights_of(run.dir, 3, before);
    trainer = open_trainer(run.file, NULL);
    train(trainer, 5);
    expect_refused(sy_trainer_save(trainer, run.dir, &err), &err, SY_EEXIST, "another run");
    snprintf(orphans, sizeof orphans, "%s/orphans", run.folder);
    snprintf(command, sizeof command, "mkdir %s && cp -r %s/checkpoints %s", orphans, run.dir, orphans);
    cr_assert_eq(system(command), 0);
    expect_refused(sy_trainer_save(trainer, orphans, &none), &none, SY_EEXIST, "another run");
    sy_trainer_close(trainer);
    snprintf(folder, sizeof folder, "%s/checkpoints/2", run.dir);
    trainer = open_trainer(folder, NULL);
    train(trainer, 4);
    expect_refused(sy_trainer_save(trainer, run.dir, &later), &later, SY_EEXIST, "of step 3");
    sy_trainer_close(trainer);
    weights_of(run.dir, 3, after);
    cr_expect_str_eq(before, after);
}

/* A folder that is no longer what it was when the trainer looked at it first: another run has come to it. */
Test(api_trainer, writes_over_nothing_new)
{
    char archive[128], before[65], after[65];
    struct sy_error err = {0};
    const char *set[] = {"train.keep_checkpoints=1", "train.seed=6"};
    struct sy_open_options options = {.bytes = sizeof options, .set = set, .n_set = 1};
    struct sy_trainer *trainer = open_trainer(run.file, &options);
    train(trainer, 2);
    save(trainer, run.dir);
    snprintf(archive, sizeof archive, "%s/archive", run.folder);
    cr_assert_eq(rename(run.dir, archive), 0);
    options.n_set = 2;
    struct sy_trainer *other = open_trainer(run.file, &options);
    train(other, 2);
    save(other, run.dir);
    sy_trainer_close(other);
    weights_of(run.dir, 2, before);
    train(trainer, 1);
    expect_refused(sy_trainer_save(trainer, run.dir, &err), &err, SY_EEXIST, "another run");
    weights_of(run.dir, 2, after);
    cr_expect_str_eq(before, after);
    small_run_remove_folder(run.dir);
    save(trainer, run.dir); /* nothing is in its way any more */
    save(trainer, run.dir);
    weights_of(run.dir, 3, after);
    sy_trainer_close(trainer);
}

/* The first look finds no such folder; that of the one who has the lock finds a run, as one that was saved in between. */
Test(api_trainer, looks_again_under_the_lock)
{
    char before[65], after[65], path[128];
    struct sy_error err = {0};
    struct sy_trainer *trainer = open_trainer(run.file, NULL);
    train(trainer, 1);
    save(trainer, run.dir);
    sy_trainer_close(trainer);
    weights_of(run.dir, 1, before);
    trainer = open_trainer(run.file, NULL);
    train(trainer, 2);
    snprintf(path, sizeof path, "%s/new/../run", run.folder);
    expect_refused(sy_trainer_save(trainer, path, &err), &err, SY_EEXIST, "another run");
    weights_of(run.dir, 1, after);
    cr_expect_str_eq(before, after);
    sy_trainer_close(trainer);
}

static void expect_file(const char *path, const char *expected)
{
    char *text;
    size_t bytes;
    cr_assert_eq(syi_file_read(path, &text, &bytes, NULL), SY_OK);
    cr_expect_str_eq(text, expected);
    syi_free(text);
}

/* A run is saved with the vocabulary that it was trained with, whatever has become of its file, or not at all. */
Test(api_trainer, vocabulary_that_changes)
{
    struct sy_error err = {0};
    char copy[100];
    snprintf(copy, sizeof copy, "%s/vocabulary", run.dir);
    small_run_letters(&run);
    struct sy_trainer *trainer = open_trainer(run.file, NULL);
    train(trainer, 1);
    small_file(run.letters, "w", "z\n" SMALL_LETTERS);
    save(trainer, run.dir);
    expect_file(copy, SMALL_LETTERS);
    cr_assert_eq(remove(run.letters) || remove(copy), 0);
    save(trainer, run.dir);
    expect_file(copy, SMALL_LETTERS);
    small_file(copy, "w", "z\n" SMALL_LETTERS);
    expect_refused(sy_trainer_save(trainer, run.dir, &err), &err, SY_EMISMATCH, "keeps another vocabulary");
    sy_trainer_close(trainer);
}

static double steps_summed(const char *dir)
{
    struct syi_checkpoint_view view;
    cr_assert_eq(syi_checkpoint_view_open(dir, SYI_CHECKPOINT_LATEST, &view, NULL), SY_OK);
    double steps = syi_state_get(&view.meta.sums, "steps", 0);
    syi_checkpoint_view_close(&view);
    return steps;
}

/* What a row of metrics of the command tells of later: the steps since the last multiple of metrics.every = 10, no others. */
Test(api_trainer, sums_of_metrics)
{
    struct sy_trainer *trainer = open_trainer(run.file, NULL);
    train(trainer, 3);
    save(trainer, run.dir);
    cr_expect_eq(steps_summed(run.dir), 3);
    sy_trainer_close(trainer);
    trainer = open_trainer(run.dir, NULL);
    train(trainer, 2);
    save(trainer, run.dir);
    cr_expect_eq(steps_summed(run.dir), 5);
    train(trainer, 7);
    save(trainer, run.dir);
    cr_expect_eq(steps_summed(run.dir), 2);
    sy_trainer_close(trainer);
}

/* Paths are of the working directory at the time of opening. */
Test(api_trainer, working_directory_that_changes)
{
    const char *set[] = {"vocabulary.file=letters"};
    struct sy_open_options options = {.bytes = sizeof options, .set = set, .n_set = 1};
    struct sy_error err = {0};
    struct syi_config config;
    small_run_letters(&run);
    for (int i = 0; i < 2; i++) {
        cr_assert_eq(chdir(run.folder), 0);
        struct sy_trainer *trainer = open_trainer(i ? "run" : "small.run", i ? NULL : &options);
        cr_assert_eq(chdir("/"), 0);
        train(trainer, 1);
        save(trainer, run.dir);
        sy_trainer_close(trainer);
        if (i) continue;
        cr_assert_eq(syi_run_dir_read_config(run.dir, &config, &err), SY_OK, "%s", err.text);
        cr_expect_str_eq(config.vocabulary.part[0].file, run.letters);
    }
}

/* A run of several ranks goes on in the library with one, and after that in the command with several. */
Test(api_trainer, keeps_the_mesh_of_a_run)
{
    struct syi_config config;
    struct syi_run_dir dir;
    struct sy_error err = {0};
    struct sy_trainer *trainer = open_trainer(run.file, NULL);
    train(trainer, 1);
    save(trainer, run.dir);
    sy_trainer_close(trainer);
    cr_assert_eq(syi_run_dir_read_config(run.dir, &config, &err), SY_OK, "%s", err.text);
    config.mesh.expert = 2;
    cr_assert_eq(syi_run_dir_open(run.dir, NULL, &dir, &err), SY_OK, "%s", err.text);
    cr_assert_eq(syi_run_dir_write_config(&dir, &config, &err), SY_OK, "%s", err.text);
    syi_run_dir_close(&dir);
    trainer = open_trainer(run.dir, NULL);
    train(trainer, 1);
    save(trainer, run.dir);
    sy_trainer_close(trainer);
    cr_assert_eq(syi_run_dir_read_config(run.dir, &config, &err), SY_OK, "%s", err.text);
    cr_expect(config.mesh.expert == 2 && config.mesh.data == 0, "data=%ld expert=%ld", (long)config.mesh.data,
              (long)config.mesh.expert);
}

static int has_step(const char *dir, int step)
{
    char folder[128];
    snprintf(folder, sizeof folder, "%s/checkpoints/%d", dir, step);
    return !access(folder, F_OK);
}

/* Checkpoints that the run file says to keep stay, and no others. */
Test(api_trainer, keeps_what_the_run_file_says)
{
    const char *set[] = {"train.keep_checkpoints=1", "checkpoint.keep_every=2"};
    struct sy_open_options options = {.bytes = sizeof options, .set = set, .n_set = 2};
    struct sy_trainer *trainer = open_trainer(run.file, &options);
    for (int i = 0; i < 3; i++) {
        train(trainer, 1);
        save(trainer, run.dir);
    }
    sy_trainer_close(trainer);
    trainer = open_trainer(run.dir, NULL);
    for (int i = 0; i < 2; i++) {
        train(trainer, 1);
        save(trainer, run.dir);
    }
    sy_trainer_close(trainer);
    for (int step = 1; step <= 5; step++)
        cr_expect_eq(has_step(run.dir, step), step % 2 == 0 || step == 5, "step %d", step);
}

/* A disk that is full for a while: what was begun in the folder does not stand in the way. */
Test(api_trainer, saves_again_after_a_failure)
{
    struct sy_error err = {0};
    struct rlimit whole, small;
    struct sy_trainer *trainer = open_trainer(run.file, NULL);
    train(trainer, 1);
    cr_assert_eq(getrlimit(RLIMIT_FSIZE, &whole), 0);
    small = (struct rlimit){.rlim_cur = 64 << 10, .rlim_max = whole.rlim_max}; /* enough for a run.conf */
    signal(SIGXFSZ, SIG_IGN);
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &small), 0);
    int status = sy_trainer_save(trainer, run.dir, &err);
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &whole), 0);
    cr_assert_eq(status, SY_EIO, "%d: %s", status, err.text);
    cr_expect(syi_run_dir_exists(run.dir) && !has_step(run.dir, 1), "it failed elsewhere: %s", err.text);
    save(trainer, run.dir);
    cr_expect(has_step(run.dir, 1));
    sy_trainer_close(trainer);
}

/* A backend that fails between two weights leaves some that were moved and some that were not. */
Test(api_trainer, an_update_that_breaks_off)
{
    char target[1024], path[1024];
    struct sy_open_options options = {.bytes = sizeof options, .backend = "faulty"};
    struct sy_error err = {0}, again = {0}, unsaved = {0};
    const char *plugins = getenv("SY_TEST_PLUGINS"), *usual = getenv("SWITCHYARD_BACKEND_PATH");
    if (!plugins || !*plugins) cr_skip_test("this build has no shared libraries, so no plugins");
    snprintf(target, sizeof target, "%s/faulty.so", plugins);
    snprintf(path, sizeof path, "%s/switchyard-faulty.so", run.folder);
    cr_assert_eq(symlink(target, path), 0);
    snprintf(path, sizeof path, "%.*s/switchyard-cpu.so", (int)strcspn(usual, ":"), usual);
    setenv("SY_FAULT_CPU", path, 1);
    setenv("SWITCHYARD_BACKEND_PATH", run.folder, 1);
    struct sy_trainer *trainer = open_trainer(run.file, &options);
    train(trainer, 1);
    setenv("SY_FAULT", "update 2", 1);
    cr_expect_eq(sy_trainer_step(trainer, run.pair, SMALL_PAIRS, NULL, &err), SY_EIO, "%s", err.text);
    cr_expect_eq(sy_trainer_step(trainer, run.pair, SMALL_PAIRS, NULL, &again), SY_EBACKEND);
    cr_expect_eq(sy_trainer_save(trainer, run.dir, &unsaved), SY_EBACKEND);
    cr_expect(strstr(unsaved.text, "they are of no step"), "%s", unsaved.text);
    cr_expect_neq(access(run.dir, F_OK), 0);
    sy_trainer_close(trainer);
}

/* All of them are its own, however often it goes from one to the other; what others add to one is not. */
Test(api_trainer, saves_to_several_folders)
{
    char other[128];
    struct sy_error err = {0};
    struct sy_trainer *trainer = open_trainer(run.file, NULL);
    snprintf(other, sizeof other, "%s/other", run.folder);
    for (int step = 1; step <= 4; step++) {
        train(trainer, 1);
        save(trainer, step % 2 ? run.dir : other);
    }
    struct sy_trainer *stranger = open_trainer(run.dir, NULL);
    train(stranger, 1);
    save(stranger, run.dir);
    sy_trainer_close(stranger);
    train(trainer, 1);
    expect_refused(sy_trainer_save(trainer, run.dir, &err), &err, SY_EEXIST, "has a checkpoint of step 4");
    save(trainer, other);
    sy_trainer_close(trainer);
}

static void *train_and_save(void *arg)
{
    for (int i = 0; i < 2; i++) {
        struct sy_trainer *trainer = open_trainer(i ? run.dir : run.file, NULL);
        train(trainer, 1);
        save(trainer, run.dir);
        sy_trainer_close(trainer);
    }
    return arg;
}

Test(api_trainer, small_stack)
{
    on_small_stack(train_and_save);
}

/* train.init_* are as in a training of the command: of a run that begins, and of that alone. */
Test(api_trainer, begins_with_another_run)
{
    char from[128], other[128], init[192], command[512];
    const char *set[] = {from, "train.init_state=true"}, *none[] = {"train.init_from=/nowhere"};
    struct sy_open_options options = {.bytes = sizeof options, .set = set, .n_set = 1};
    struct sy_error err = {0}, gone = {0};
    struct sy_trainer *trainer = open_trainer(run.file, NULL);
    train(trainer, 20);
    save(trainer, run.dir);
    struct sy_step next = train(trainer, 1), step;
    sy_trainer_close(trainer);
    snprintf(from, sizeof from, "train.init_from=%s", run.dir);
    snprintf(other, sizeof other, "%s/other", run.folder);
    trainer = open_trainer(run.file, &options);
    step = train(trainer, 1);
    cr_expect(step.step == 1 && step.loss == next.loss, "loss %g instead of %g", step.loss, next.loss);
    save(trainer, other);
    sy_trainer_close(trainer);
    snprintf(init, sizeof init, "%s/init.txt", other);
    snprintf(command, sizeof command, "grep -q 'from %s, step 20' %s", run.dir, init);
    cr_expect_eq(system(command), 0, "init.txt does not say where the weights are from");
    options.n_set = 2;
    trainer = open_trainer(run.file, &options);
    step = train(trainer, 1);
    cr_expect(step.step == 21 && step.grad_norm == next.grad_norm);
    sy_trainer_close(trainer);
    options = (struct sy_open_options){.bytes = sizeof options, .set = none, .n_set = 1};
    expect_refused(sy_trainer_open(run.file, &options, &trainer, &gone), &gone, SY_ENOENT,
                   "train.init_from = \"/nowhere\"");
    cr_assert_eq(sy_trainer_open(other, &options, &trainer, &err), SY_OK, "%s", err.text);
    cr_expect_eq(train(trainer, 1).step, 2);
    sy_trainer_close(trainer);
}

Test(api_trainer, refused)
{
    struct sy_error err[10] = {{0}};
    struct sy_open_options best = {.bytes = sizeof best, .checkpoint = "best"};
    struct sy_open_options rows = {.bytes = sizeof rows, .max_batch = 3};
    struct sy_open_options ranks = {
        .bytes = sizeof ranks, .set = (const char *const[]){"mesh.expert=2"}, .n_set = 1};
    struct sy_trainer *trainer;
    expect_refused(sy_trainer_open("/nowhere", NULL, &trainer, &err[0]), &err[0], SY_ENOENT, "/nowhere");
    cr_expect_null(trainer);
    expect_refused(sy_trainer_open(run.file, &best, &trainer, &err[1]), &err[1], SY_EINVAL, "no checkpoints");
    expect_refused(sy_trainer_open(run.file, &rows, &trainer, &err[2]), &err[2], SY_EINVAL,
                   "data.batch_size");
    expect_refused(sy_trainer_open(NULL, NULL, &trainer, &err[7]), &err[7], SY_EINVAL, "no path");
    expect_refused(sy_trainer_open(run.folder, NULL, &trainer, &err[8]), &err[8], SY_ENOENT,
                   "`switchyard import` made, or a run file");
    expect_refused(sy_trainer_open(run.file, &ranks, &trainer, &err[9]), &err[9], SY_EINVAL,
                   "put 1 for each into `set`");
    trainer = open_trainer(run.file, NULL);
    struct sy_pair pairs[SMALL_PAIRS + 1];
    struct sy_step step = {0};
    for (int i = 0; i <= SMALL_PAIRS; i++) pairs[i] = run.pair[i];
    expect_refused(sy_trainer_step(trainer, pairs, SMALL_PAIRS + 1, NULL, &err[3]), &err[3], SY_EINVAL,
                   "batch_size=16");
    expect_refused(sy_trainer_step(trainer, pairs, 0, NULL, &err[4]), &err[4], SY_EINVAL, "on 0 pairs");
    pairs[2].input = text_of("longer than twelve tokens");
    expect_refused(sy_trainer_step(trainer, pairs, 3, NULL, &err[5]), &err[5], SY_EINVAL, "pair 2 is over");
    expect_refused(sy_trainer_step(trainer, pairs, 1, &step, &err[6]), &err[6], SY_EINVAL,
                   "sizeof(struct sy_step)");
    step.bytes = sizeof step;
    cr_expect_eq(sy_trainer_step(trainer, pairs, 1, &step, NULL), SY_OK);
    cr_expect_eq(step.step, 1, "a step that was refused counted");
    sy_trainer_close(trainer);
    sy_trainer_close(NULL);
}
