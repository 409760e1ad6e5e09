/* SPDX-License-Identifier: Apache-2.0 */
/* The expert bias (moe.expert_bias) through the engine: each step moves it by the loads of the whole batch,
 * on every mesh alike; it evens out what is uneven; it is in every program that routes. What `route` does
 * with it: test_routing.c; that gradients do not see it: test_model.c; checkpoints: tests/cli/expert_bias.sh.
 */
#include "config.h"

#include <math.h>

#include "small_course.h"
#include "train/engine/engine.h"
#include "train/launch/launch.h"

enum { EXPERTS = 4, LAYERS = 2, MOST_STEPS = 60, MOST_RANKS = 4 };

/* A training and what was seen of it; seen[] by step, of rank 0. */
struct course {
    struct syi_config config;
    int ranks, steps;
    double learning_rate;
    float planted; /* first value of the bias of expert 0 */
    int spoilt;    /* step before which a weight becomes NaN, -1: none */
    struct {
        double loss;
        int ok;
        int64_t chosen[LAYERS][EXPERTS];
        float bias[LAYERS][EXPERTS]; /* after the step */
    } seen[MOST_STEPS];
    float last[MOST_RANKS][LAYERS][EXPERTS]; /* of each rank */
};

static struct course course_of(const char *set, double learning_rate)
{
    struct course c = {.ranks = 1, .steps = 8, .learning_rate = learning_rate, .spoilt = -1};
    c.config = config_of("model.vocab_size=384", "model.dropout_rate=0", "data.max_input_length=8",
                         "data.max_target_length=6", "data.batch_size=16", "decode.batch_size=16",
                         "train.microbatches=2", "moe.num_selected_experts=1", "moe.aux_loss_factor=0",
                         "moe.expert_bias=true", set, NULL);
    return c;
}

/* A rank's bias of a layer; zeros in a model that has none. */
static float *bias_of(struct syi_engine *engine, int layer)
{
    static _Thread_local float none[EXPERTS];
    int64_t bias = syi_engine_model(engine)->layer[layer].bias;
    if (bias < 0) return none;
    const struct sy_tensor *t =
        syi_session_find_any(syi_engine_session(engine), SYI_ROLE_PARAMETER, (uint32_t)bias);
    cr_assert_eq(t->dim[0], EXPERTS, "every rank holds all of it");
    return t->data;
}

static int follow(void *arg, const struct syi_rank *rank, struct syi_engine *engine, struct syi_batch *batch,
                  struct sy_error *err)
{
    struct course *c = arg;
    int status = SY_OK;
    for (int layer = 0; layer < LAYERS; layer++) bias_of(engine, layer)[0] = c->planted;
    for (int step = 0; !status && step < c->steps; step++) {
        struct syi_step_result r;
        float *weight = syi_session_tensor(syi_engine_session(engine), "decoder/decoder_norm/scale")->data;
        if (step == c->spoilt) *weight = NAN;
        batch_fill(batch, step % 4);
        status = syi_engine_step(engine, batch, step, c->learning_rate, &r, err);
        if (rank->rank) continue;
        c->seen[step].loss = r.loss;
        c->seen[step].ok = r.ok;
        for (int layer = 0; layer < LAYERS; layer++) {
            int64_t kept;
            memcpy(c->seen[step].bias[layer], bias_of(engine, layer), sizeof c->seen[step].bias[layer]);
            for (int e = 0; e < EXPERTS; e++)
                syi_engine_routing(engine, layer, e, &c->seen[step].chosen[layer][e], &kept);
        }
    }
    for (int layer = 0; layer < LAYERS; layer++)
        memcpy(c->last[rank->rank][layer], bias_of(engine, layer), sizeof c->last[0][0]);
    return status;
}

static void run(struct course *c)
{
    course_train(&c->config, c->ranks, follow, c);
}

/* bias + rate where an expert has less than the mean load, - rate where it has more. */
static void check_rule(const struct course *c, int step, int layer)
{
    const int64_t *load = c->seen[step].chosen[layer];
    int64_t sum = 0;
    for (int e = 0; e < EXPERTS; e++) sum += load[e];
    for (int e = 0; e < EXPERTS; e++) {
        float before = step ? c->seen[step - 1].bias[layer][e] : e ? 0 : c->planted, way = 0;
        if (c->seen[step].ok && load[e] * EXPERTS < sum) way = 1;
        if (c->seen[step].ok && load[e] * EXPERTS > sum) way = -1;
        float want = before + (float)c->config.moe.expert_bias_update_rate * way;
        cr_assert_eq(c->seen[step].bias[layer][e], want, "step %d, layer %d, expert %d: %g, not %g", step,
                     layer, e, (double)c->seen[step].bias[layer][e], (double)want);
    }
}

Test(expert_bias, moves_by_the_loads_of_the_step)
{
    struct course c = course_of("moe.expert_bias_update_rate=0.02", 3e-3);
    int64_t tokens = 0;
    run(&c);
    for (int step = 0; step < c.steps; step++)
        for (int layer = 0; layer < LAYERS; layer++) check_rule(&c, step, layer);
    for (int e = 0; e < EXPERTS; e++) tokens += c.seen[0].chosen[1][e];
    cr_assert_eq(tokens, BATCH_ROWS * BATCH_TARGETS, "the decoder's loads are those of both microbatches");
}

Test(expert_bias, stays_where_a_step_is_left_out)
{
    struct course c = course_of("moe.expert_bias_update_rate=0.02", 3e-3);
    c.spoilt = 4;
    run(&c);
    for (int step = 0; step < c.steps; step++) {
        cr_assert_eq(c.seen[step].ok, step < c.spoilt);
        for (int layer = 0; layer < LAYERS; layer++) check_rule(&c, step, layer);
    }
}

Test(expert_bias, stays_where_no_optimizer_moves_it)
{
    struct course c = course_of("optimizer.frozen.name=none", 3e-3);
    struct sy_error err = {0};
    cr_assert_eq(syi_config_set(&c.config, "optimizer.frozen.match=[\"encoder/*\"]", &err), SY_OK, "%s",
                 err.text);
    c.planted = 0.5f;
    run(&c);
    for (int step = 0; step < c.steps; step++) {
        for (int e = 0; e < EXPERTS; e++)
            cr_assert_eq(c.seen[step].bias[0][e], e ? 0 : c.planted, "step %d", step);
        check_rule(&c, step, 1);
    }
}

static double largest_share(const struct course *c, int step, int layer)
{
    int64_t sum = 0, most = 0;
    for (int e = 0; e < EXPERTS; e++) {
        int64_t n = c->seen[step].chosen[layer][e];
        sum += n;
        if (n > most) most = n;
    }
    return (double)most / (double)sum;
}

Test(expert_bias, evens_out_a_planted_imbalance)
{
    struct course c = course_of("moe.expert_bias_update_rate=0.001", 0);
    c.planted = 0.06f;
    c.steps = MOST_STEPS;
    run(&c);
    for (int layer = 0; layer < LAYERS; layer++) {
        double first = largest_share(&c, 0, layer), last = 0;
        for (int i = 1; i <= 8; i++) last += largest_share(&c, c.steps - i, layer) / 8;
        cr_assert_eq(first, 1, "layer %d: the planted bias draws %g of the tokens", layer, first);
        cr_assert_lt(last, 0.4, "layer %d: an expert still has %g of the tokens", layer, last);
    }
}

Test(expert_bias, off_is_a_bias_of_zero)
{
    struct course off = course_of("moe.expert_bias=false", 3e-3),
                  zero = course_of("moe.expert_bias_update_rate=0", 3e-3),
                  on = course_of("moe.expert_bias_update_rate=0.1", 3e-3);
    int differs = 0;
    run(&off);
    run(&zero);
    run(&on);
    for (int step = 0; step < off.steps; step++) {
        cr_assert_eq(off.seen[step].loss, zero.seen[step].loss, "step %d", step);
        differs |= off.seen[step].loss != on.seen[step].loss;
    }
    cr_assert(differs, "a bias that moves changes nothing");
}

Test(expert_bias, is_the_same_on_every_mesh)
{
    static const char *const meshes[][2] = {{"mesh.data=4", "mesh.expert=1"},
                                            {"mesh.data=2", "mesh.expert=2"},
                                            {"mesh.data=1", "mesh.expert=4"},
                                            {"mesh.data=2", "mesh.model=2"}};
    struct course one = course_of("moe.expert_bias_update_rate=0.02", 3e-3);
    struct sy_error err = {0};
    run(&one);
    for (size_t i = 0; i < SYI_COUNT(meshes); i++) {
        struct course many = course_of("moe.expert_bias_update_rate=0.02", 3e-3);
        many.ranks = 4;
        for (int k = 0; k < 2; k++)
            cr_assert_eq(syi_config_set(&many.config, meshes[i][k], &err), SY_OK, "%s", err.text);
        run(&many);
        for (int rank = 0; rank < many.ranks; rank++)
            cr_assert_arr_eq(many.last[rank], one.last[0], sizeof one.last[0], "%s %s, rank %d", meshes[i][0],
                             meshes[i][1], rank);
    }
}

/* ---- programs ---- */

static int look_at_programs(void *arg, const struct syi_rank *rank, struct sy_error *err)
{
    struct syi_engine *engine = NULL;
    int use = SYI_USE_TRAIN | SYI_USE_EVAL | SYI_USE_SCORE | SYI_USE_DECODE;
    int status = syi_engine_new(arg, rank, use, 1, &engine, err);
    for (int which = 0; !status && which < SYI_EXCHANGE; which++) {
        const struct syi_program *p = syi_engine_program(engine, which);
        int routes = 0;
        for (size_t i = 0; i < p->n_ops; i++) {
            if (p->op[i].op != SY_OP_ROUTE) continue;
            cr_assert_geq(p->op[i].in[2], 0, "%s routes without the bias", syi_which_name(which));
            const char *name = syi_program_name(p, p->tensor[p->op[i].in[2]].name);
            cr_assert(syi_pattern_match("*coder/layers_1/mlp/router/expert_bias", name), "%s", name);
            routes++;
        }
        cr_assert_eq(routes, which == SYI_UPDATE || which == SYI_UPDATE_METRICS ? 0
                             : which == SYI_ENCODE || which == SYI_DECODE_STEP  ? 1
                                                                                : LAYERS);
    }
    syi_engine_free(engine);
    return status;
}

Test(expert_bias, every_program_that_routes_reads_it)
{
    struct course c = course_of(NULL, 0);
    struct sy_error err = {0};
    struct syi_launch launch = {.backend = "cpu", .comm = "self", .threads = 1, .config = &c.config};
    cr_assert_eq(syi_launch_run(&launch, look_at_programs, &c.config, &err), SY_OK, "%s", err.text);
}

Test(expert_bias, is_refused_where_experts_choose)
{
    struct sy_error err = {0};
    struct course c = course_of("moe.router_type=experts_choose_masked", 0);
    cr_assert_eq(syi_config_set(&c.config, "moe.decoder_router_type=tokens_choose_masked", &err), SY_OK);
    cr_assert_eq(syi_config_validate_programs(&c.config, &err), SY_EINVAL);
    cr_assert(strstr(err.text, "moe.expert_bias: where experts choose (moe.router_type)"), "%s", err.text);
    cr_assert_eq(syi_config_set(&c.config, "moe.num_encoder_sparse_layers=0", &err), SY_OK);
    cr_assert_eq(syi_config_validate_programs(&c.config, &err), SY_OK, "%s", err.text);
}
