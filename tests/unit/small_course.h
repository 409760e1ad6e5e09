/* SPDX-License-Identifier: Apache-2.0 */
/* A training of the small model on ranks that are threads, for tests that look into it step by step. */
#ifndef SMALL_COURSE_H
#define SMALL_COURSE_H

#include "small_batch.h"
#include "train/engine/engine.h"

/* What a test does on each rank: the engine begins with seed 3, the batch has room. */
typedef int (*course_fn)(void *arg, const struct syi_rank *rank, struct syi_engine *engine,
                         struct syi_batch *batch, struct sy_error *err);

struct course_run {
    const struct syi_config *config;
    course_fn follow;
    void *arg;
};

static inline int course_rank(void *arg, const struct syi_rank *rank, struct sy_error *err)
{
    const struct course_run *run = arg;
    struct syi_engine *engine = NULL;
    struct syi_batch batch = {0};
    int status = syi_engine_new(run->config, rank, SYI_USE_TRAIN, 0, &engine, err);
    batch_open(&batch);
    if (!status) status = syi_engine_init(engine, 3, err);
    if (!status) status = run->follow(run->arg, rank, engine, &batch, err);
    syi_engine_free(engine);
    syi_batch_free(&batch);
    return status;
}

static inline void course_train_on(const char *backend, const struct syi_config *config, int ranks,
                                   course_fn follow, void *arg)
{
    struct sy_error err = {0};
    struct course_run run = {config, follow, arg};
    struct syi_launch launch = {.backend = backend,
                                .comm = ranks > 1 ? "thread" : "self",
                                .ranks = ranks,
                                .threads = 1,
                                .config = config};
    cr_assert_eq(syi_launch_run(&launch, course_rank, &run, &err), SY_OK, "%s", err.text);
}

static inline void course_train(const struct syi_config *config, int ranks, course_fn follow, void *arg)
{
    course_train_on("cpu", config, ranks, follow, arg);
}

/* ---- tensors of an engine ---- */

static inline int64_t extent(const struct sy_tensor *t)
{
    int64_t n = 1;
    for (int d = 0; d < t->rank; d++) n *= t->dim[d];
    return n;
}

/* What parameter number i has in that role. */
static inline const struct sy_tensor *tensor_of(struct syi_engine *e, enum syi_role role, size_t i)
{
    return syi_session_find_any(syi_engine_session(e), role, syi_engine_model(e)->param[i].id);
}

#endif
