/* SPDX-License-Identifier: Apache-2.0 */
/* After a step that is not finite: the tensor in which it begins is named, with its layer and expert, on every mesh alike. */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "small_course.h"
#include "train/engine/bad_tensor.h"

struct course {
    const char *tensor; /* a weight of which an element is made infinite before the second step */
    int64_t expert;     /* in whose part; -1: in the first element */
    int ok[2];
    char text[4][SYI_BAD_TEXT];
};

/* Nothing where the rank does not hold it. */
static void spoil(struct syi_engine *engine, const struct course *c)
{
    const struct sy_tensor *t = syi_session_tensor(syi_engine_session(engine), c->tensor);
    int64_t i = c->expert < 0 ? 0 : c->expert - t->first[0];
    int64_t each = syi_bound_count(t) / t->dim[0];
    if (i >= 0 && i < t->dim[0]) ((float *)t->data)[i * each] = INFINITY;
}

static int follow(void *arg, const struct syi_rank *rank, struct syi_engine *engine, struct syi_batch *batch,
                  struct sy_error *err)
{
    struct course *c = arg;
    int status = SY_OK;
    for (int step = 0; step < 2 && !status; step++) {
        struct syi_step_result result;
        batch_fill(batch, step);
        if (step && c->tensor) spoil(engine, c);
        status = syi_engine_step(engine, batch, step, 1e-3, &result, err);
        if (!rank->rank) c->ok[step] = result.ok;
    }
    return status ? status : syi_engine_find_bad(engine, batch, 1, c->text[rank->rank], err);
}

static void expect_text(const char *tensor, int64_t expert, const char *text)
{
    static const struct {
        int ranks;
        const char *set;
    } meshes[] = {{1, "mesh.data=1"}, {2, "mesh.data=2"}, {2, "mesh.expert=2"}, {4, "mesh.expert=4"}};
    for (size_t i = 0; i < SYI_COUNT(meshes); i++) {
        struct syi_config config =
            config_of("model.vocab_size=384", "model.dropout_rate=0.1", "data.max_input_length=8",
                      "data.max_target_length=6", "data.batch_size=16", "decode.batch_size=16",
                      "train.microbatches=2", meshes[i].set, NULL);
        struct course c = {.tensor = tensor, .expert = expert};
        course_train(&config, meshes[i].ranks, follow, &c);
        cr_expect(c.ok[0] && c.ok[1] == !tensor);
        for (int rank = 0; rank < meshes[i].ranks; rank++)
            cr_expect_str_eq(c.text[rank], text, "%s, rank %d: %s", meshes[i].set, rank, c.text[rank]);
    }
}

Test(bad_tensor, of_an_expert)
{
    expect_text("encoder/layers_1/mlp/expert/wo/kernel", 2,
                "encoder/layers_1/mlp/expert:grouped_matmul, expert 2, of layer encoder/layers_1/mlp/expert "
                "(grad_first, microbatch 0, Inf)");
}

Test(bad_tensor, of_a_layer)
{
    expect_text(
        "decoder/decoder_norm/scale", -1,
        "decoder/decoder_norm:rms_norm, of layer decoder/decoder_norm (grad_first, microbatch 0, Inf)");
}

Test(bad_tensor, is_none_where_all_is_finite)
{
    expect_text(NULL, -1, "none, but their norm is not finite");
}

/* ---- a device, whose temporaries the host has to have room for ---- */

/* Of the thread of a rank: the size of pieces that are watched, whether there are none, and how many are out. */
static _Thread_local struct {
    uint64_t bytes;
    int is_refused, out;
    void *piece;
} watched;

static void *take(void *arg, size_t bytes, size_t alignment)
{
    void *piece = NULL;
    (void)arg;
    if (bytes == watched.bytes && watched.is_refused) return NULL;
    if (posix_memalign(&piece, alignment, bytes)) return NULL;
    if (bytes == watched.bytes) watched.piece = piece, watched.out++;
    return piece;
}

static void give_back(void *arg, void *piece)
{
    (void)arg;
    if (piece == watched.piece) watched.piece = NULL, watched.out--;
    free(piece);
}

/* The second rank has no room at first, and the run goes on; then it has. */
static int look_twice(void *arg, const struct syi_rank *rank, struct syi_engine *engine,
                      struct syi_batch *batch, struct sy_error *err)
{
    struct course *c = arg;
    struct syi_session *session = syi_engine_session(engine);
    int status = SY_OK;
    batch_fill(batch, 0);
    spoil(engine, c);
    status = syi_session_upload(session, SYI_PERSIST, err);
    watched.bytes = syi_session_plan(session)->bytes[SYI_SCRATCH];
    for (int round = 0; round < 2 && !status; round++) {
        watched.is_refused = rank->rank == 1 && !round;
        status = syi_engine_find_bad(engine, batch, 0, c->text[2 * round + rank->rank], err);
        cr_expect_eq(watched.out, 0, "rank %d keeps a copy of the device's temporaries", rank->rank);
    }
    watched.bytes = 0;
    return status;
}

Test(bad_tensor, is_not_looked_for_without_memory_on_the_host)
{
    static const struct sy_allocator allocator = {NULL, take, give_back};
    const char *plugins = getenv("SY_TEST_PLUGINS"), *others = getenv("SWITCHYARD_BACKEND_PATH");
    char path[2048];
    struct course c = {.tensor = "decoder/decoder_norm/scale", .expert = -1};
    if (!plugins || !*plugins) cr_skip_test("this build has no shared libraries");
    snprintf(path, sizeof path, "%s:%s", plugins, others ? others : "");
    setenv("SWITCHYARD_BACKEND_PATH", path, 1);
    cr_assert_eq(sy_allocator_set(&allocator, NULL), SY_OK);
    struct syi_config config =
        config_of("model.vocab_size=384", "data.max_input_length=8", "data.max_target_length=6",
                  "data.batch_size=16", "decode.batch_size=16", "mesh.data=2", NULL);
    course_train_on("far", &config, 2, look_twice, &c);
    for (int i = 0; i < 4; i++)
        cr_expect(strstr(c.text[i], i < 2 ? "not looked for, rank 1: the host has no memory for the "
                                          : "decoder/decoder_norm:rms_norm, of layer "),
                  "text %d: %s", i, c.text[i]);
}
