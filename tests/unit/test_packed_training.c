/* SPDX-License-Identifier: Apache-2.0 */
/* The same examples in rows of their own and in packed rows: the same loss, and the same gradients to float32's rounding. */
#include "config.h"

#include <math.h>

#include "small_model.h"
#include "train/engine/engine.h"
#include "train/launch/launch.h"

enum { EXAMPLES = 8, PACKED_ROWS = 4, IN = 12, OUT = 14, ELEMENTS = 1 << 14 };

/* 2 examples a packed row, of 3 to 6 and 2 to 7 tokens. */
static void fill(struct syi_batch *batch, int packed)
{
    const struct syi_bucket bucket = {IN, OUT};
    struct ms_random random = {5};
    int32_t left[IN], right[OUT];
    syi_batch_begin(batch, &bucket, 0);
    for (int i = 0; i < EXAMPLES; i++) {
        struct syi_ids inputs = {left, (size_t)(3 + ms_below(&random, 4)), IN};
        struct syi_ids targets = {right, (size_t)(2 + ms_below(&random, 6)), OUT};
        struct syi_slot slot = {.row = packed ? i / 2 : i, .segment = packed ? i % 2 + 1 : 0};
        for (size_t k = 0; k < inputs.n; k++) left[k] = 2 + (int32_t)ms_below(&random, 9);
        for (size_t k = 0; k < targets.n; k++) right[k] = 2 + (int32_t)ms_below(&random, 9);
        left[inputs.n - 1] = right[targets.n - 1] = 1;
        if (packed && i % 2) {
            slot.input_at = batch->input_lengths[slot.row];
            slot.target_at = batch->target_lengths[slot.row];
        }
        syi_batch_put(batch, &slot, i, &inputs, &targets);
    }
}

struct course {
    struct syi_config config;
    struct syi_step_result result;
    float weight[ELEMENTS]; /* after a step of plain gradient descent, which is the gradients' own size */
    int64_t n;
};

static int64_t elements(const struct sy_tensor *t)
{
    int64_t n = 1;
    for (int d = 0; d < t->rank; d++) n *= t->dim[d];
    return n;
}

static void keep_weights(struct course *c, struct syi_engine *engine)
{
    const struct syi_model *model = syi_engine_model(engine);
    c->n = 0;
    for (size_t i = 0; i < model->n; i++) {
        const struct sy_tensor *t =
            syi_session_find_any(syi_engine_session(engine), SYI_ROLE_PARAMETER, (uint32_t)i);
        for (int64_t k = 0; t && k < elements(t) && c->n < ELEMENTS; k++)
            c->weight[c->n++] = ((const float *)t->data)[k];
    }
}

static int train(void *arg, const struct syi_rank *rank, struct sy_error *err)
{
    struct course *c = arg;
    const struct syi_bucket bucket = {IN, OUT};
    struct syi_engine *engine = NULL;
    struct syi_batch batch = {0};
    int status = syi_engine_new(&c->config, rank, SYI_USE_TRAIN, 0, &engine, err);
    if (!status)
        status = c->config.data.pack ? syi_batch_create_packed(&batch, PACKED_ROWS, &bucket, err)
                                     : syi_batch_create(&batch, EXAMPLES, &bucket, 1, err);
    if (!status) {
        fill(&batch, c->config.data.pack);
        status = syi_engine_init(engine, 3, err);
        if (!status) status = syi_engine_step(engine, &batch, 0, 1.0, &c->result, err);
    }
    if (!status) keep_weights(c, engine);
    syi_batch_free(&batch);
    syi_engine_free(engine);
    return status;
}

static void run(struct course *c, const char *pack, const char *rows)
{
    struct sy_error err = {0};
    c->config =
        config_of("model.dropout_rate=0", "moe.train_capacity_factor=0", "data.max_input_length=12",
                  "data.max_target_length=14", "optimizer.name=sgd", "train.clip_norm=0", pack, rows, NULL);
    struct syi_launch launch = {
        .backend = "cpu", .comm = "self", .ranks = 1, .threads = 1, .config = &c->config};
    cr_assert_eq(syi_launch_run(&launch, train, c, &err), SY_OK, "%s", err.text);
}

Test(packed_training, loss_and_gradients_are_those_of_rows_of_their_own)
{
    static struct course packed, alone;
    double most = 0, off = 0;
    run(&alone, "data.pack=false", "data.batch_size=8");
    run(&packed, "data.pack=true", "data.batch_size=4");
    cr_assert_eq(packed.result.target_tokens, alone.result.target_tokens);
    cr_assert_float_eq(packed.result.loss, alone.result.loss, 2e-6 * fabs(alone.result.loss), "%.9g and %.9g",
                       packed.result.loss, alone.result.loss);
    cr_assert_float_eq(packed.result.grad_norm, alone.result.grad_norm, 1e-5 * alone.result.grad_norm);
    cr_assert(packed.n == alone.n && packed.n > 1000);
    for (int64_t i = 0; i < packed.n; i++) {
        if (fabs((double)alone.weight[i]) > most) most = fabs((double)alone.weight[i]);
        if (fabs((double)alone.weight[i] - (double)packed.weight[i]) > off)
            off = fabs((double)alone.weight[i] - (double)packed.weight[i]);
    }
    cr_assert_lt(off, 1e-5 * most, "weights differ by %g of %g", off, most);
}
