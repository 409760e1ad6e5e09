/* SPDX-License-Identifier: Apache-2.0 */
/* The public library on an allocator of the program: all of its memory comes from there and goes back; where there is none
 * the call says so, and the handle works on. */
#include "config.h"

#include <stdatomic.h>

#include "import/pack.h"
#include "small_run.h"

static struct small_run run;

static struct {
    atomic_long pieces, takes, largest; /* largest: bytes of a piece */
    long fails;                         /* which of the takes does, 0: none */
    int lasts;                          /* 1: and those after it */
} memory;

static void *take(void *arg, size_t bytes, size_t alignment)
{
    void *piece = NULL;
    cr_assert_eq(arg, &memory);
    long number = atomic_fetch_add(&memory.takes, 1) + 1;
    if (number == memory.fails || (memory.lasts && number > memory.fails)) return NULL;
    if (posix_memalign(&piece, alignment, bytes)) return NULL;
    atomic_fetch_add(&memory.pieces, 1);
    if (memory.largest < (long)bytes) memory.largest = (long)bytes;
    return piece;
}

static void give_back(void *arg, void *piece)
{
    cr_assert_eq(arg, &memory);
    atomic_fetch_sub(&memory.pieces, 1);
    free(piece);
}

static const struct sy_allocator ours = {&memory, take, give_back};

static void begin(void)
{
    struct sy_error err = {0};
    small_run_make(&run, 5);
    cr_assert_eq(sy_allocator_set(&ours, &err), SY_OK, "%s", err.text);
}

static void end(void)
{
    cr_assert_eq(sy_allocator_set(NULL, NULL), SY_OK);
    small_run_remove(&run);
}

TestSuite(api_memory, .init = begin, .fini = end);

Test(api_memory, all_goes_back)
{
    struct sy_error err = {0};
    struct sy_model *model = open_model(run.dir, NULL);
    struct sy_answers *answers = answers_of(model, NULL, run.text, SMALL_WORDS);
    cr_expect_gt(memory.pieces, 100);
    cr_expect_eq(sy_allocator_set(NULL, &err), SY_EBUSY);
    sy_answers_free(answers);
    sy_model_close(model);
    cr_expect_eq(memory.pieces, 0, "%ld pieces were not given back", (long)memory.pieces);
}

/* Closer to each other at the beginning, and at other places from one failure to the next. */
static long next_failure(long fails)
{
    return fails + 1 + fails / 50;
}

/* Whether an allocation of the call failed. Then it failed for want of memory, and says so, or it could do without. err NULL:
 * nobody asked why. */
static int ran_short(int status, const struct sy_error *err)
{
    int failed = atomic_load(&memory.takes) >= memory.fails;
    cr_expect(status == SY_OK || (failed && status == SY_ENOMEM), "allocation %ld of %ld: %d (%s)",
              memory.fails, (long)memory.takes, status, err ? err->text : "");
    cr_expect(!status || !err || err->text[0], "allocation %ld fails without a word", memory.fails);
    return failed;
}

static int n_refused;

static int open_and_close(const char *path)
{
    struct sy_open_options options = {.bytes = sizeof options, .threads = 1};
    struct sy_error err = {0};
    struct sy_model *model;
    memory.takes = 0;
    int status = sy_model_open(path, &options, &model, &err);
    int again = ran_short(status, &err);
    cr_expect_eq(status == SY_OK, model != NULL);
    n_refused += status == SY_ENOMEM;
    sy_model_close(model);
    cr_expect_eq(memory.pieces, 0, "allocation %ld: %ld pieces were not given back", memory.fails,
                 (long)memory.pieces);
    return again;
}

Test(api_memory, opening)
{
    for (memory.fails = 1; open_and_close(run.dir);) memory.fails = next_failure(memory.fails);
    cr_expect_gt(n_refused, 100);
}

/* Where the program takes no error. */
Test(api_memory, opening_unasked)
{
    struct sy_open_options options = {.bytes = sizeof options, .threads = 1};
    int again = 1;
    for (memory.fails = 1; again; memory.fails = next_failure(memory.fails)) {
        struct sy_model *model;
        struct sy_trainer *trainer;
        memory.takes = 0;
        again = ran_short(sy_model_open(run.dir, &options, &model, NULL), NULL);
        sy_model_close(model);
        memory.takes = 0;
        again |= ran_short(sy_trainer_open(run.dir, &options, &trainer, NULL), NULL);
        sy_trainer_close(trainer);
    }
    cr_expect_eq(memory.pieces, 0, "%ld pieces were not given back", (long)memory.pieces);
}

Test(api_memory, opening_packed)
{
    char packed[64];
    struct sy_error err = {0};
    struct syi_pack pack = {.run = run.dir, .step = -1, .weights = SYI_SAFETENSORS_I8};
    snprintf(packed, sizeof packed, "%s/model.sy", run.folder);
    memory.fails = 0;
    cr_assert_eq(syi_pack_run(&pack, packed, &err), SY_OK, "%s", err.text);
    for (memory.fails = 1; open_and_close(packed);) memory.fails++;
    cr_expect_gt(n_refused, 100);
}

/* Another engine is needed, which may fail anywhere; the handle answers as before. */
Test(api_memory, predicting)
{
    struct sy_model *model = open_model(run.dir, NULL);
    struct sy_answers *before = answers_of(model, NULL, run.text, 1);
    struct sy_predict_options beams = {.bytes = sizeof beams, .method = SY_BEAMS, .beams = 3};
    int n = 0, again = 1;
    for (memory.fails = 1; again; memory.fails = next_failure(memory.fails), n++) {
        struct sy_error err = {0};
        struct sy_answers *answers;
        memory.takes = 0;
        int status = sy_predict(model, &beams, run.text, SMALL_WORDS, &answers, &err);
        again = ran_short(status, &err);
        sy_answers_free(answers);
        memory.takes = memory.fails;
        struct sy_answers *after = answers_of(model, NULL, run.text, 1);
        cr_expect_str_eq(sy_answer(after, 0, 0).text, sy_answer(before, 0, 0).text);
        sy_answers_free(after);
    }
    cr_expect_gt(n, 50);
    sy_answers_free(before);
    sy_model_close(model);
    cr_expect_eq(memory.pieces, 0, "%ld pieces were not given back", (long)memory.pieces);
}

static void let_fail(void)
{
    memory.takes = 0;
}

/* Memory is short for a call that comes while another one computes: that one is not hurt, and what was made for the other goes
 * back. */
Test(api_memory, meeting)
{
    int n = 0, again = 1;
    for (memory.fails = 1; again; memory.fails += 1 + memory.fails / 8, n++) {
        struct meeting m = {.texts = run.text, .n = 3, .before = let_fail};
        struct sy_open_options options = {
            .bytes = sizeof options, .threads = 2, .run_tasks = run_and_meet, .run_tasks_arg = &m};
        memory.takes = memory.fails;
        m.model = open_model(run.dir, &options);
        sy_answers_free(answers_of(m.model, NULL, run.text, 3));
        m.begins = 1;
        struct sy_answers *answers = answers_of(m.model, NULL, run.text, 3);
        again = ran_short(m.status, &m.err);
        sy_answers_free(m.answers);
        sy_answers_free(answers);
        sy_model_close(m.model);
        cr_expect_eq(memory.pieces, 0, "allocation %ld: %ld pieces were not given back", memory.fails,
                     (long)memory.pieces);
    }
    cr_expect_gt(n, 20);
}

/* A save that fails leaves the run as it was, and the trainer can save again. */
Test(api_memory, saving)
{
    struct sy_error err = {0};
    struct sy_trainer *trainer;
    struct sy_model_facts facts = {.bytes = sizeof facts};
    int n = 0, again = 1, saved = 0;
    cr_assert_eq(sy_trainer_open(run.dir, NULL, &trainer, &err), SY_OK, "%s", err.text);
    cr_assert_eq(sy_trainer_step(trainer, run.pair, 4, NULL, &err), SY_OK, "%s", err.text);
    for (memory.fails = 1; again; memory.fails = next_failure(memory.fails), n++) {
        err = (struct sy_error){0};
        long pieces = memory.pieces;
        memory.takes = 0;
        int status = sy_trainer_save(trainer, run.dir, &err);
        again = ran_short(status, &err);
        cr_expect(!status || memory.pieces == pieces, "allocation %ld: %ld pieces more", memory.fails,
                  (long)memory.pieces - pieces);
        memory.takes = memory.fails;
        saved |= !status;
        struct sy_model *model = open_model(run.dir, NULL);
        cr_assert_eq(sy_model_facts(model, &facts, NULL), SY_OK);
        cr_expect_eq(facts.step, saved ? 6 : 5);
        sy_model_close(model);
    }
    cr_expect_gt(n, 10);
    sy_trainer_close(trainer);
}

/* The same of a new folder, which is nobody else's run. */
Test(api_memory, saving_to_a_new_folder)
{
    char dir[80];
    struct sy_trainer *trainer;
    int n = 0, again = 1;
    cr_assert_eq(sy_trainer_open(run.dir, NULL, &trainer, NULL), SY_OK);
    for (memory.fails = 1; again && memory.fails < 20; memory.fails++, n++) {
        struct sy_error err = {0};
        snprintf(dir, sizeof dir, "%s/new-%d", run.folder, n);
        memory.takes = 0;
        int status = sy_trainer_save(trainer, dir, &err);
        again = ran_short(status, &err);
        memory.takes = memory.fails;
        cr_expect(!status || !sy_trainer_save(trainer, dir, &(struct sy_error){0}));
    }
    cr_expect_gt(n, 10);
    sy_trainer_close(trainer);
}

/* Memory that stays short, to the end of a call that has just given its checkpoint its name: the folder may be tried again. */
Test(api_memory, saving_while_it_stays_short)
{
    char dir[80];
    struct sy_trainer *trainer;
    cr_assert_eq(sy_trainer_open(run.dir, NULL, &trainer, NULL), SY_OK);
    snprintf(dir, sizeof dir, "%s/new", run.folder);
    memory.takes = 0;
    cr_assert_eq(sy_trainer_save(trainer, dir, NULL), SY_OK);
    long most = memory.takes;
    for (memory.fails = most - 9; memory.fails <= most; memory.fails++) {
        struct sy_error err = {0}, again = {0};
        snprintf(dir, sizeof dir, "%s/new-%ld", run.folder, memory.fails);
        memory.takes = 0;
        memory.lasts = 1;
        ran_short(sy_trainer_save(trainer, dir, &err), &err);
        memory.lasts = 0;
        cr_expect_eq(sy_trainer_save(trainer, dir, &again), SY_OK, "allocation %ld of %ld: %s", memory.fails,
                     most, again.text);
    }
    sy_trainer_close(trainer);
}

/* More threads than there can be are refused before there is room for their calls. */
Test(api_memory, too_many_threads)
{
    struct sy_open_options options = {.bytes = sizeof options, .threads = 200000000};
    struct sy_error err = {0};
    struct sy_model *model;
    cr_expect_eq(sy_model_open(run.dir, &options, &model, &err), SY_EINVAL);
    cr_expect(strstr(err.text, "threads") != NULL, "%s", err.text);
    cr_expect_lt(memory.largest, 64 << 20, "a piece of %ld bytes", (long)memory.largest);
}

Test(api_memory, refused)
{
    struct sy_error err = {0};
    struct sy_allocator half = {&memory, take, NULL};
    cr_expect_eq(sy_allocator_set(&half, &err), SY_EINVAL);
    cr_expect(strstr(err.text, "both functions"));
}
