/* SPDX-License-Identifier: Apache-2.0 */
/* bench/tiny.run learns to spell words backwards: data, batches, engine and optimizer together. */
#include "config.h"

#include <stdio.h>

#include "data/batcher.h"
#include "data_support.h"
#include "model_support.h"
#include "train/engine/engine.h"

enum { STEPS = 50 };

struct lesson {
    struct syi_config config;
    struct syi_task task;
    double loss[STEPS], accuracy[STEPS];
};

/* Words of a few letters and the same backwards. */
static const char *write_words(void)
{
    static char text[40000];
    struct ms_random random = {21};
    size_t n = 0;
    for (int line = 0; line < 2000; line++) {
        int length = 2 + ms_below(&random, 5);
        for (int i = 0; i < length; i++) text[n + (size_t)i] = (char)('a' + ms_below(&random, 4));
        text[n + (size_t)length] = '\t';
        for (int i = 0; i < length; i++) text[n + (size_t)(2 * length - i)] = text[n + (size_t)i];
        n += 2 * (size_t)length + 1;
        text[n++] = '\n';
    }
    return write_fresh("reverse.tsv", text, n);
}

static int train(struct lesson *lesson, struct syi_engine *engine, struct syi_batcher *batcher,
                 struct syi_batch *batch, struct sy_error *err)
{
    int status = SY_OK;
    syi_engine_init(engine, (uint64_t)lesson->config.train.seed);
    for (int step = 0; !status && step < STEPS; step++) {
        struct syi_step_result result = {0};
        status = syi_batcher_fetch(batcher, step, batch, err);
        if (!status) status = syi_engine_step(engine, batch, step, 3e-3, &result, err);
        cr_assert(status || result.ok, "step %d: the gradients are not finite", step);
        lesson->loss[step] = result.value[SYI_STEP_CROSS_ENTROPY];
        lesson->accuracy[step] = result.value[SYI_STEP_CORRECT] / result.value[SYI_STEP_WEIGHTED_TARGETS];
    }
    return status;
}

static int learn(void *arg, const struct syi_rank *rank, struct sy_error *err)
{
    struct lesson *lesson = arg;
    const struct syi_config *c = &lesson->config;
    struct syi_bucket buckets[SYI_MAX_BUCKETS];
    struct syi_vocabularies vocabularies;
    struct syi_batcher batcher = {0};
    struct syi_batch batch = {0};
    struct syi_engine *engine = NULL;
    struct syi_batcher_options options = {.buckets = buckets,
                                          .n_buckets = syi_engine_buckets(c, buckets),
                                          .batch_size = (int32_t)c->data.batch_size,
                                          .pool_batches = 4,
                                          .seed = 1};
    int status = syi_vocabulary_bytes(&vocabularies.input, 0, err);
    vocabularies.target = vocabularies.input;
    if (!status) status = syi_batcher_create(&batcher, &lesson->task, &vocabularies, &options, err);
    if (!status) status = syi_batch_create(&batch, options.batch_size, buckets, options.n_buckets, err);
    if (!status) status = syi_engine_new(c, rank, SYI_USE_TRAIN, 0, &engine, err);
    if (!status) status = train(lesson, engine, &batcher, &batch, err);
    syi_engine_free(engine);
    syi_batch_free(&batch);
    syi_batcher_free(&batcher);
    return status;
}

static double mean(const double *value, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++) sum += value[i];
    return sum / n;
}

Test(learning, a_small_model_learns)
{
    static struct lesson lesson;
    struct sy_error err = {0};
    char path[4200];
    const char *source = getenv("abs_top_srcdir"), *words = write_words();
    snprintf(path, sizeof path, "%s/bench/tiny.run", source ? source : ".");
    cr_assert_eq(syi_config_defaults(&lesson.config, &err), SY_OK, "%s", err.text);
    cr_assert_eq(syi_config_load(&lesson.config, path, &err), SY_OK, "%s", err.text);
    cr_assert_eq(syi_task_load(&lesson.task, words, &err), SY_OK, "%s", err.text);
    struct syi_launch launch = {.backend = "cpu", .comm = "self", .config = &lesson.config};
    cr_assert_eq(syi_launch_run(&launch, learn, &lesson, &err), SY_OK, "%s", err.text);
    double first = lesson.loss[0], last = mean(lesson.loss + STEPS - 5, 5);
    cr_assert(first > 5 && first < 9, "the first loss of 384 ids is %g", first);
    cr_assert_lt(last, 1.5, "the loss fell from %g to %g only", first, last);
    cr_assert_gt(mean(lesson.accuracy + STEPS - 5, 5), 0.4);
    syi_task_free(&lesson.task);
    remove_path(words);
}
