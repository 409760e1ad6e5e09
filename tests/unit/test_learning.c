/* SPDX-License-Identifier: Apache-2.0 */
/* bench/tiny.run learns to spell words backwards: data, batches, engine and optimizer together. */
#include "config.h"

#include <stdio.h>

#include "data_support.h"
#include "model_support.h"
#include "train/engine/train_data.h"

enum { STEPS = 50 };

struct lesson {
    struct syi_config config;
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

static int train(struct lesson *lesson, struct syi_engine *engine, struct syi_train_data *data,
                 struct sy_error *err)
{
    const struct syi_batch *batch;
    int status = syi_engine_init(engine, (uint64_t)lesson->config.train.seed, err);
    for (int step = 0; !status && step < STEPS; step++) {
        struct syi_step_result result = {0};
        status = syi_train_data_get(data, step, &batch, err);
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
    static struct syi_train_data data;
    struct syi_engine *engine = NULL;
    struct syi_train_reader reader = {.ahead = 2};
    int status = syi_engine_new(&lesson->config, rank, SYI_USE_TRAIN, 0, &engine, err);
    if (!status) status = syi_train_data_open(&data, &lesson->config, &reader, err);
    if (!status) status = train(lesson, engine, &data, err);
    syi_train_data_close(&data);
    syi_engine_free(engine);
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
    char path[4300];
    const char *source = getenv("abs_top_srcdir"), *words = write_words();
    snprintf(path, sizeof path, "%s/bench/tiny.run", source ? source : ".");
    cr_assert_eq(syi_config_defaults(&lesson.config, &err), SY_OK, "%s", err.text);
    cr_assert_eq(syi_config_load(&lesson.config, path, &err), SY_OK, "%s", err.text);
    snprintf(path, sizeof path, "task.words.train=%s", words);
    cr_assert_eq(syi_config_set(&lesson.config, path, &err), SY_OK, "%s", err.text);
    struct syi_launch launch = {.backend = "cpu", .comm = "self", .config = &lesson.config};
    cr_assert_eq(syi_launch_run(&launch, learn, &lesson, &err), SY_OK, "%s", err.text);
    double first = lesson.loss[0], last = mean(lesson.loss + STEPS - 5, 5);
    cr_assert(first > 5 && first < 9, "the first loss of 384 ids is %g", first);
    cr_assert_lt(last, 1.5, "the loss fell from %g to %g only", first, last);
    cr_assert_gt(mean(lesson.accuracy + STEPS - 5, 5), 0.4);
    remove_path(words);
}
