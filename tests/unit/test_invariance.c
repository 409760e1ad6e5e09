/* SPDX-License-Identifier: Apache-2.0 */
/* What an example's losses must not depend on: its batch in evaluation, the split into microbatches and ranks
 * in training with random bits, its neighbours in a packed row. Padding: test_model.c; decoding:
 * test_decode.c. */
#include "config.h"

#include "passes/passes.h"
#include "random_program.h"
#include "small_batch.h"
#include "train/engine/engine.h"
#include "train/launch/launch.h"

/* ---- losses by token ---- */

enum { ROWS = 64, LENGTH = 40 };

/* Row and position of the whole batch; what `xent` yields for each target. */
struct losses {
    int64_t row0, rows; /* first row of the microbatch under way; its rows on all ranks, 0: there is one */
    double loss[ROWS][LENGTH], lse[ROWS][LENGTH];
};

static void keep_losses(void *arg, int program, size_t op, const struct sy_call *call, int after)
{
    struct losses *to = arg;
    (void)program;
    (void)op;
    if (!after || call->op != SY_OP_XENT) return;
    /* the model's loss is smoothed: the other one is for the metric cross_entropy */
    if (((const struct sy_attr_xent *)call->attr)->label_smoothing == 0) return;
    const struct sy_tensor *loss = &call->out[0], *lse = &call->out[2];
    for (int64_t i = 0; i < loss->dim[0]; i++)
        for (int64_t t = 0; t < loss->dim[1]; t++) {
            int64_t row = to->row0 + loss->first[0] + i;
            cr_assert(row < ROWS && t < LENGTH);
            to->loss[row][t] = ms_get(loss, i * loss->dim[1] + t);
            to->lse[row][t] = ms_get(lse, i * loss->dim[1] + t);
        }
    to->row0 += to->rows;
}

static void expect_same_losses(const struct losses *a, int row_a, int at_a, const struct losses *b, int row_b,
                               int at_b, int n, const char *what)
{
    for (int t = 0; t < n; t++) {
        cr_assert_neq(a->lse[row_a][at_a + t], 0, "%s: token %d has no loss", what, t);
        cr_assert(a->loss[row_a][at_a + t] == b->loss[row_b][at_b + t] &&
                      a->lse[row_a][at_a + t] == b->lse[row_b][at_b + t],
                  "%s: token %d of row %d and of row %d: losses %.9g and %.9g", what, t, row_a, row_b,
                  a->loss[row_a][at_a + t], b->loss[row_b][at_b + t]);
    }
}

/* ---- evaluation ---- */

static void evaluate(const struct syi_config *config, struct syi_shape shape, const int *numbers,
                     struct losses *to)
{
    struct model model;
    *to = (struct losses){0};
    model_open(&model, config, shape, 0);
    model_add(&model, SYI_EVAL);
    model_bind(&model);
    put_batch(&model, numbers, 3);
    syi_session_hook(model.m.session, keep_losses, to);
    ms_run(&model.m, 0);
    model_close(&model);
}

static void check_evaluation(const struct syi_config *config)
{
    static struct losses all, some;
    int order[ROWS], reversed[ROWS];
    for (int i = 0; i < ROWS; i++) order[i] = i + 1, reversed[i] = ROWS - i;
    evaluate(config, shape_of(ROWS, 6, 5), order, &all);
    evaluate(config, shape_of(ROWS, 9, 5), reversed, &some);
    for (int i = 0; i < ROWS; i++)
        expect_same_losses(&all, i, 0, &some, ROWS - 1 - i, 0, example_of(i + 1, 12).n_out, "reversed");
    for (int i = 0; i < 8; i++) {
        evaluate(config, shape_of(1, 6, 7), &order[i], &some);
        expect_same_losses(&all, i, 0, &some, 0, 0, example_of(i + 1, 12).n_out, "alone");
    }
    evaluate(config, shape_of(3, 12, 5), (int[]){5, NO_EXAMPLE, 2}, &some);
    expect_same_losses(&all, 4, 0, &some, 0, 0, example_of(5, 12).n_out, "three rows");
    expect_same_losses(&all, 1, 0, &some, 2, 0, example_of(2, 12).n_out, "three rows");
}

Test(invariance, evaluation_does_not_depend_on_the_batch)
{
    struct sy_error err = {0};
    for (size_t i = 0; i < SYI_COUNT(answering_routers); i++) {
        struct syi_config config = config_of_router(i);
        check_evaluation(&config);
        cr_assert_eq(syi_config_set(&config, "model.dtype=bfloat16", &err), SY_OK, "%s", err.text);
        check_evaluation(&config);
    }
}

/* Losses of a batch where one rank has all experts, and as one of several would record it; panels: copies of weights are
 * laid out, if they fill panels. Returns how many products had a buffer without gaps. */
static size_t evaluate_recorded(const struct syi_config *config, int expert_axis, int panels,
                                struct losses *to)
{
    struct model model;
    struct syi_recorded global;
    struct syi_program *local;
    struct sy_error err = {0};
    int order[ROWS];
    for (int i = 0; i < ROWS; i++) order[i] = i + 1;
    *to = (struct losses){0};
    model_open(&model, config, shape_of(ROWS, 6, 5), 0);
    model.config.mesh.expert = expert_axis;
    model.model.panels &= panels;
    cr_assert_eq(syi_record_eval(&model.config, &model.shape, &model.model, &global, &err), SY_OK, "%s",
                 err.text);
    cr_assert_eq(syi_partition(global.program, &model.m.mesh, &local, &err), SY_OK, "%s", err.text);
    cr_assert_eq(syi_program_fuse(local, &err), SY_OK, "%s", err.text);
    size_t ragged = count_ops(global.program, SY_OP_RAGGED_MATMUL) +
                    count_ops(global.program, SY_OP_RAGGED_MATMUL_PANELS);
    int program = ms_add(&model.m, local);
    model_bind(&model);
    put_batch(&model, order, 3);
    syi_session_hook(model.m.session, keep_losses, to);
    ms_run(&model.m, program);
    syi_program_free(global.program);
    model_close(&model);
    return ragged;
}

Test(invariance, gaps_between_experts_change_no_bit)
{
    static struct losses with_gaps, without;
    struct sy_error err = {0};
    for (size_t i = 0; i < 2 * SYI_COUNT(answering_routers); i++) {
        struct syi_config config = config_of_router(i / 2);
        if (i % 2) cr_assert_eq(syi_config_set(&config, "model.dtype=bfloat16", &err), SY_OK, "%s", err.text);
        if (i / 2 % 2) /* a choice may have no place */
            cr_assert_eq(syi_config_set(&config, "moe.eval_capacity_factor=2.5", &err), SY_OK, "%s",
                         err.text);
        cr_expect_eq(evaluate_recorded(&config, 2, 1, &with_gaps), 0);
        cr_expect_gt(evaluate_recorded(&config, 1, 1, &without), 0);
        for (int row = 0; row < ROWS; row++)
            expect_same_losses(&with_gaps, row, 0, &without, row, 0, example_of(row + 1, 12).n_out, "gaps");
    }
}

/* In bfloat16, with weights that fill panels; logits of every second one by the embedding. */
static struct syi_config config_of_panels(size_t router)
{
    static const char *const sets[] = {"model.dtype=bfloat16", "model.d_model=64", "model.d_ff=128",
                                       "model.head_dim=32", "model.vocab_size=128"};
    struct sy_error err = {0};
    struct syi_config config = config_of_router(router);
    for (size_t k = 0; k < SYI_COUNT(sets); k++)
        cr_assert_eq(syi_config_set(&config, sets[k], &err), SY_OK, "%s", err.text);
    config.model.logits_via_embedding = router % 2;
    return config;
}

/* Copies of weights in panels, and as they are: the same bits, with gaps between experts and without. */
Test(invariance, panels_change_no_bit)
{
    static struct losses laid_out, plain;
    for (size_t i = 0; i < 2 * SYI_COUNT(answering_routers); i++) {
        struct syi_config config = config_of_panels(i / 2);
        evaluate_recorded(&config, i % 2 ? 2 : 1, 1, &laid_out);
        evaluate_recorded(&config, i % 2 ? 2 : 1, 0, &plain);
        for (int row = 0; row < ROWS; row++)
            expect_same_losses(&laid_out, row, 0, &plain, row, 0, example_of(row + 1, 12).n_out, "panels");
    }
}

/* What programs of gradients read: casts, copies as weights are, copies in panels. */
enum { CASTS, PLAIN, PANELS };

static void count_panels(void *arg, int program, size_t op, const struct sy_call *call, int after)
{
    (void)program, (void)op;
    *(size_t *)arg += after && (call->op == SY_OP_MATMUL_PANELS || call->op == SY_OP_GROUPED_MATMUL_PANELS);
}

/* Gradients of a batch, all after each other; *n: how many elements, *products: how many read panels. */
static float *gradients_of(const struct syi_config *config, int read, size_t *n, size_t *products)
{
    struct model model;
    int order[ROWS];
    float *all = NULL;
    for (int i = 0; i < ROWS; i++) order[i] = i + 1;
    model_open(&model, config, shape_of(ROWS, 6, 5), 0);
    model.model.keeps_copies = read != CASTS;
    model.model.trains_panels = read == PANELS;
    int program = model_add(&model, SYI_GRAD_FIRST);
    model_bind(&model);
    put_batch(&model, order, 3);
    *products = *n = 0;
    syi_session_hook(model.m.session, count_panels, products);
    ms_run(&model.m, program);
    for (size_t i = 0; i < model.model.n; i++) {
        if (model.model.param[i].init == SYI_INIT_EXPERT_BIAS) continue;
        const struct sy_tensor *t = gradient_of(&model, model.model.param[i].name);
        all = realloc(all, (*n + (size_t)ms_count(t)) * sizeof *all);
        cr_assert_not_null(all);
        memcpy(all + *n, t->data, ms_bytes(t));
        *n += (size_t)ms_count(t);
    }
    model_close(&model);
    return all;
}

/* Of every product that reads weights one forward and one for the gradient of x, of dense layers and of experts. */
Test(invariance, panels_in_training_change_no_bit)
{
    for (size_t i = 0; i < SYI_COUNT(answering_routers); i++) {
        struct syi_config config = config_of_panels(i);
        size_t n[3], products[3];
        float *gradient[3];
        for (int read = CASTS; read <= PANELS; read++)
            gradient[read] = gradients_of(&config, read, &n[read], &products[read]);
        cr_expect(products[CASTS] == 0 && products[PLAIN] == 0 && products[PANELS] >= 40, "%zu",
                  products[PANELS]);
        for (int read = PLAIN; read <= PANELS; read++)
            cr_assert(n[read] == n[CASTS] &&
                          !memcmp(gradient[read], gradient[CASTS], n[CASTS] * sizeof(float)),
                      "router %zu: %s change bits", i, read == PANELS ? "panels" : "copies");
        for (int read = CASTS; read <= PANELS; read++) free(gradient[read]);
    }
}

/* ---- random bits in training ---- */

enum { MOST_RANKS = 4 };

struct course {
    struct syi_config config;
    struct losses seen[MOST_RANKS]; /* by each rank: its rows of every microbatch */
};

static int train(void *arg, const struct syi_rank *rank, struct sy_error *err)
{
    struct course *c = arg;
    struct syi_engine *engine = NULL;
    struct syi_batch batch;
    struct syi_step_result result;
    batch_open(&batch);
    batch_fill(&batch, 1);
    c->seen[rank->rank].rows = BATCH_ROWS / c->config.train.microbatches;
    int status = syi_engine_new(&c->config, rank, SYI_USE_TRAIN, 0, &engine, err);
    if (!status) {
        status = syi_engine_init(engine, 3, err);
        syi_session_hook(syi_engine_session(engine), keep_losses, &c->seen[rank->rank]);
        if (!status) status = syi_engine_step(engine, &batch, 5, 1e-3, &result, err);
    }
    syi_engine_free(engine);
    syi_batch_free(&batch);
    return status;
}

/* One step with jitter, dropout and places that overflow, groups of 2 rows. */
static void run(struct course *c, int ranks, const char *const sets[3])
{
    struct sy_error err = {0};
    *c = (struct course){.config = config_of("model.vocab_size=384", "moe.jitter_noise=0.3",
                                             "moe.group_rows=2", "data.max_input_length=8",
                                             "data.max_target_length=6", "data.batch_size=16",
                                             "decode.batch_size=16", sets[0], sets[1], sets[2], NULL)};
    struct syi_launch launch = {.backend = "cpu",
                                .comm = ranks > 1 ? "thread" : "self",
                                .ranks = ranks,
                                .threads = 1,
                                .config = &c->config};
    cr_assert_eq(syi_launch_run(&launch, train, c, &err), SY_OK, "%s", err.text);
}

/* The rank that saw the row: model ranks see the same. */
static const struct losses *rank_of(const struct course *c, int row)
{
    for (int rank = 0; rank < MOST_RANKS; rank++)
        if (c->seen[rank].lse[row][0] != 0) return &c->seen[rank];
    cr_assert(0, "no rank has row %d", row);
    return NULL;
}

Test(invariance, random_bits_do_not_depend_on_microbatches_and_ranks)
{
    static const struct {
        int ranks;
        const char *sets[3];
    } ways[] = {{1, {"train.microbatches=2"}},
                {1, {"train.microbatches=4"}},
                {2, {"mesh.data=2"}},
                {4, {"mesh.data=4"}},
                {4, {"mesh.data=2", "mesh.expert=2"}},
                {4, {"mesh.data=2", "mesh.expert=2", "train.microbatches=2"}},
                {4, {"mesh.expert=2", "mesh.model=2", "train.microbatches=4"}}};
    static struct course one, other;
    run(&one, 1, (const char *const[3]){NULL});
    for (size_t i = 0; i < SYI_COUNT(ways); i++) {
        run(&other, ways[i].ranks, ways[i].sets);
        for (int row = 0; row < BATCH_ROWS; row++)
            expect_same_losses(&one.seen[0], row, 0, rank_of(&other, row), row, 0, BATCH_TARGETS,
                               ways[i].sets[0]);
    }
    run(&other, 1, (const char *const[3]){"moe.jitter_noise=0"});
    cr_assert_neq(memcmp(one.seen[0].lse, other.seen[0].lse, sizeof other.seen[0].lse), 0,
                  "jitter changes nothing: this proves nothing");
}

/* ---- packed rows ---- */

/* An example of a packed row, and where it begins on both sides. */
struct place {
    int example, input_at, target_at;
};

static void put(struct model *model, enum syi_role role, int64_t at, double value)
{
    const struct sy_tensor *t = input(model, role);
    cr_assert_not_null(t, "%s", syi_role_name(role));
    ms_set(t, at, value);
}

static void put_packed(struct model *model, const struct place *places, int n)
{
    for (int i = 0; i < n; i++) {
        struct example e = example_of(places[i].example, 12);
        for (int k = 0; k < e.n_in; k++) {
            put(model, SYI_ROLE_ENCODER_IDS, places[i].input_at + k, e.in[k]);
            put(model, SYI_ROLE_ENCODER_SEGMENTS, places[i].input_at + k, i + 1);
            put(model, SYI_ROLE_ENCODER_MASK, places[i].input_at + k, 1);
        }
        for (int k = 0; k < e.n_out; k++) {
            put(model, SYI_ROLE_DECODER_INPUTS, places[i].target_at + k, k ? e.out[k - 1] : 0);
            put(model, SYI_ROLE_DECODER_TARGETS, places[i].target_at + k, e.out[k]);
            put(model, SYI_ROLE_DECODER_SEGMENTS, places[i].target_at + k, i + 1);
            put(model, SYI_ROLE_DECODER_MASK, places[i].target_at + k, 1);
            put(model, SYI_ROLE_LOSS_WEIGHTS, places[i].target_at + k, 1);
        }
    }
    put_scalar(model, SYI_ROLE_LOSS_NORM, 1);
    put_scalar(model, SYI_ROLE_TARGET_NORM, 1);
    put_scalar(model, SYI_ROLE_INPUT_NORM, 1);
}

/* One packed row of the places. */
static void evaluate_packed(int precise, const struct place *places, int n, struct losses *to)
{
    struct model model;
    struct syi_config config = config_of("moe.decoder_batch_prioritized_routing=true", NULL);
    struct syi_shape shape = {1, LENGTH, LENGTH, LENGTH, LENGTH, 1, 0, 0};
    *to = (struct losses){0};
    model_open(&model, &config, shape, precise);
    model_add(&model, SYI_EVAL);
    model_bind(&model);
    put_packed(&model, places, n);
    syi_session_hook(model.m.session, keep_losses, to);
    ms_run(&model.m, 0);
    model_close(&model);
}

Test(invariance, packed_examples_do_not_see_each_other)
{
    static struct losses alone, packed;
    static const struct place place = {2, 7, 9}, others[][3] = {{{2, 7, 9}, {3, 0, 0}, {4, 20, 20}},
                                                                {{2, 7, 9}, {5, 1, 2}, {6, 13, 14}},
                                                                {{2, 7, 9}, {7, 30, 25}, {8, 14, 15}}};
    int n = example_of(2, 12).n_out;
    evaluate_packed(0, &place, 1, &alone);
    for (size_t i = 0; i < SYI_COUNT(others); i++) {
        evaluate_packed(0, others[i], 3, &packed);
        expect_same_losses(&alone, 0, 9, &packed, 0, 9, n, "neighbours");
    }
}

/* Sums over keys have 16 lanes by index: a multiple of 16 away they are the same sums. */
Test(invariance, a_packed_example_has_the_losses_it_has_alone)
{
    static struct losses alone, packed;
    int n = example_of(2, 12).n_out;
    evaluate_packed(0, (const struct place[]){{2, 0, 0}}, 1, &alone);
    evaluate_packed(0, (const struct place[]){{3, 0, 0}, {2, 16, 32}}, 2, &packed);
    expect_same_losses(&alone, 0, 0, &packed, 0, 32, n, "16 and 32 positions on");
    for (int precise = 0; precise <= 1; precise++) {
        evaluate_packed(precise, (const struct place[]){{2, 0, 0}}, 1, &alone);
        evaluate_packed(precise, (const struct place[]){{3, 0, 0}, {2, 9, 7}}, 2, &packed);
        for (int t = 0; t < n; t++)
            cr_assert_float_eq(packed.loss[0][7 + t], alone.loss[0][t], precise ? 1e-14 : 2e-6, "token %d",
                               t);
    }
}
