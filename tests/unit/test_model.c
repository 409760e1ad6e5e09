/* SPDX-License-Identifier: Apache-2.0 */
/* The whole model: its initial scales; the gradient program against finite differences in double; microbatches add up; padding
 * changes no bit; one expert is a dense layer. Single ops: test_gradients.c; decoding: test_decode.c. */
#include "config.h"

#include "small_course.h"

/* ---- initial values ---- */

/* Those of T5X's gin files, of [model] and [moe] in small_model.h: how each kind of parameter begins, by the end of its name. */
Test(model, begins_with_the_scales_of_t5x)
{
    static const struct {
        const char *end;
        enum syi_init init;
        double scale;
    } want[] = {
        {"token_embedder/embedding", SYI_INIT_NORMAL, 1},
        {"query/kernel", SYI_INIT_NORMAL, 0.17677669529663687}, /* sqrt(1 / 8 / head_dim) */
        {"key/kernel", SYI_INIT_NORMAL, 0.35355339059327373},
        {"attention/out/kernel", SYI_INIT_NORMAL, 0.25},
        {"extra_mlp/wi_0/kernel", SYI_INIT_TRUNCATED_NORMAL, 0.35355339059327373 / 0.87962566},
        {"shared/wo/kernel", SYI_INIT_TRUNCATED_NORMAL, 0.25 / 0.87962566},
        {"expert/wi_0/kernel", SYI_INIT_NORMAL, 0.35355339059327373},
        {"expert/wo/kernel", SYI_INIT_NORMAL, 0.25},
        {"rel_embedding", SYI_INIT_UNIFORM, 0.70710678118654752}, /* sqrt(3 / mean of 4 and 8) */
        {"w/kernel", SYI_INIT_NORMAL, 0.02},
        {"w/bias", SYI_INIT_NORMAL, 1e-6},
        {"router/expert_bias", SYI_INIT_EXPERT_BIAS, 0},
        {"logits_dense/kernel", SYI_INIT_TRUNCATED_NORMAL, 0.35355339059327373 / 0.87962566},
        {"norm/scale", SYI_INIT_ONES, 1},
    };
    struct syi_config config = config_of("moe.router_use_bias=true", "moe.expert_bias=true",
                                         "moe.extra_mlp=true", "moe.num_shared_experts=1", NULL);
    struct model model;
    size_t found[SYI_COUNT(want)] = {0};
    model_open(&model, &config, shape_of(4, 6, 5), 0);
    model_add(&model, SYI_EVAL);
    for (size_t i = 0; i < model.model.n; i++) {
        const struct syi_param *param = &model.model.param[i];
        for (size_t w = 0; w < SYI_COUNT(want); w++) {
            const char *end = strstr(param->name, want[w].end);
            if (!end || strcmp(end, want[w].end) != 0) continue;
            found[w]++;
            cr_expect(param->init == want[w].init && fabs(param->scale - want[w].scale) < 1e-12,
                      "%s: init %d, scale %.17g", param->name, (int)param->init, param->scale);
        }
    }
    for (size_t w = 0; w < SYI_COUNT(want); w++) cr_expect_gt(found[w], 0, "no %s", want[w].end);
    model_close(&model);
}

/* ---- the gradient program against finite differences ---- */

static double run_loss(void *arg)
{
    struct model *model = arg;
    model_run(model, 0);
    return ms_get(ms_tensor(&model->m, "loss_sum"), 0) / 19 +
           ms_get(ms_tensor(&model->m, "auxiliary_loss"), 0) +
           ms_get(ms_tensor(&model->m, "router_z_loss"), 0);
}

static void check_slope(struct model *model, const char *name, int64_t i, const double *gradient,
                        double largest)
{
    uint64_t routes = model->routes;
    double slope = ms_slope(ms_tensor(&model->m, name), i, 1e-5, run_loss, model);
    cr_assert_eq(model->routes, routes, "%s, element %lld: the routing changed, choose another seed", name,
                 (long long)i);
    ms_compare_slope(slope, gradient[i], largest, name, i);
}

/* The element of the largest gradient and some others. */
static void check_parameter(struct model *model, const char *name, struct ms_random *random)
{
    run_loss(model);
    const struct sy_tensor *t = gradient_of(model, name);
    int64_t n = ms_count(t), top = 0;
    double *gradient = ms_values(t), largest = ms_largest(gradient, n);
    cr_assert_gt(largest, 0, "%s: all gradients are zero", name);
    while (fabs(gradient[top]) < largest) top++;
    check_slope(model, name, top, gradient, largest);
    for (int i = 0; i < 5; i++) check_slope(model, name, ms_below(random, (int)n), gradient, largest);
    free(gradient);
}

/* Tokens lost to full experts in the last run. */
static int64_t overflow(struct model *model)
{
    int64_t lost = 0;
    for (uint32_t i = 0; i < model->model.n_layers; i++) {
        const struct sy_tensor *chosen = syi_session_find_any(model->m.session, SYI_ROLE_CHOSEN, i);
        const struct sy_tensor *kept = syi_session_find_any(model->m.session, SYI_ROLE_KEPT, i);
        for (int64_t e = 0; e < ms_count(chosen); e++) lost += (int64_t)(ms_get(chosen, e) - ms_get(kept, e));
    }
    return lost;
}

static void check_gradients(const struct syi_config *config)
{
    struct model model;
    struct ms_random random = {9};
    model_open(&model, config, shape_of(4, 6, 5), 1);
    model_add(&model, SYI_GRAD_FIRST);
    model_bind(&model);
    put_batch(&model, (int[]){1, 2, NO_EXAMPLE, 3}, 0);
    run_loss(&model);
    if (config->moe.num_experts) cr_assert_gt(overflow(&model), 0, "no expert is full");
    for (size_t i = 0; i < model.model.n; i++)
        if (model.model.param[i].init != SYI_INIT_EXPERT_BIAS)
            check_parameter(&model, model.model.param[i].name, &random);
    model_close(&model);
}

Test(model, gradients_with_experts)
{
    struct syi_config config = config_of(NULL);
    check_gradients(&config);
}

/* So many that their weights are not joined. */
Test(model, gradients_with_many_experts)
{
    struct syi_config config = config_of("moe.num_experts=16", "moe.min_expert_capacity=1", NULL);
    check_gradients(&config);
}

Test(model, gradients_with_prioritized_routing)
{
    struct syi_config config =
        config_of("moe.encoder_batch_prioritized_routing=true", "moe.decoder_batch_prioritized_routing=true",
                  "moe.num_encoder_sparse_layers=2", "model.mlp_activations=silu,linear", NULL);
    check_gradients(&config);
}

Test(model, gradients_where_experts_choose)
{
    struct syi_config config =
        config_of("moe.router_type=experts_choose_masked", "moe.decoder_router_type=tokens_choose_scatter",
                  "moe.extra_mlp=true", "moe.num_shared_experts=2", NULL);
    check_gradients(&config);
}

Test(model, gradients_with_router_bias_jitter_and_plain_experts)
{
    struct syi_config config =
        config_of("moe.router_use_bias=true", "moe.jitter_noise=0.05", "moe.expert_activations=gelu",
                  "moe.normalize_top_k=true", "moe.aux_loss_reduction=sum", NULL);
    check_gradients(&config);
}

Test(model, gradients_with_expert_bias)
{
    struct syi_config config = config_of("moe.expert_bias=true", "moe.normalize_top_k=true", NULL);
    check_gradients(&config);
}

Test(model, gradients_with_places_counted_in_each_row)
{
    struct syi_config config = config_of("moe.expert_capacity=1", NULL);
    check_gradients(&config);
}

Test(model, gradients_with_tied_embedding)
{
    struct syi_config config =
        config_of("model.logits_via_embedding=true", "moe.num_selected_experts=1", NULL);
    check_gradients(&config);
}

Test(model, gradients_with_a_position_bias_in_each_layer)
{
    struct syi_config config =
        config_of("model.relpos_per_layer=true", "model.scale_decoder_outputs=true", NULL);
    check_gradients(&config);
}

/* ---- microbatches ---- */

/* Gradients of all parameters, one after the other; free it. */
static double *all_gradients(struct model *model, size_t *n)
{
    double *all = NULL;
    *n = 0;
    for (size_t i = 0; i < model->model.n; i++) {
        const struct sy_tensor *t = gradient_of(model, model->model.param[i].name);
        all = realloc(all, (*n + (size_t)ms_count(t)) * sizeof *all);
        cr_assert_not_null(all);
        for (int64_t k = 0; k < ms_count(t); k++) all[(*n)++] = ms_get(t, k);
    }
    return all;
}

Test(model, microbatches_add_up)
{
    struct model model;
    struct syi_config config = config_of(NULL);
    size_t n;
    int a[] = {1, 2, 3, 4}, b[] = {5, 6, 7, NO_EXAMPLE};
    model_open(&model, &config, shape_of(4, 6, 5), 0);
    int first = model_add(&model, SYI_GRAD_FIRST), next = model_add(&model, SYI_GRAD_NEXT);
    model_bind(&model);
    put_batch(&model, a, 0);
    model_run(&model, first);
    double *of_a = all_gradients(&model, &n);
    put_batch(&model, b, 0);
    model_run(&model, first);
    double *of_b = all_gradients(&model, &n);
    put_batch(&model, a, 0);
    model_run(&model, first);
    put_batch(&model, b, 0);
    model_run(&model, next);
    double *of_both = all_gradients(&model, &n);
    for (size_t i = 0; i < n; i++)
        cr_assert_eq((float)of_a[i] + (float)of_b[i], (float)of_both[i], "gradient %zu", i);
    free(of_a);
    free(of_b);
    free(of_both);
    model_close(&model);
}

/* Microbatches whose groups are of tokens, in the order in which they run. */
struct addresses {
    const struct sy_tensor *rng; /* of the microbatch at hand */
    int64_t next;                /* behind the groups of those before */
    int seen;
};

/* What is dropped and jittered in a group has its address: no microbatch may have one of another. */
static void look_at_addresses(void *arg, int program, size_t op, const struct sy_call *call, int after)
{
    struct addresses *a = arg;
    const int64_t *rng = a->rng->data;
    (void)program;
    (void)op;
    if (after || call->op != SY_OP_REGROUP) return;
    if (rng[SY_RNG_GROUP0] > 0)
        cr_assert(rng[SY_RNG_GROUP0] >= a->next && rng[SY_RNG_ROW0] >= a->next,
                  "groups from %lld on, rows from %lld on, after %lld groups", (long long)rng[SY_RNG_GROUP0],
                  (long long)rng[SY_RNG_ROW0], (long long)a->next);
    else if (call->out[0].dim[0] > a->next)
        a->next = call->out[0].dim[0];
    a->seen += rng[SY_RNG_GROUP0] > 0;
}

static int follow_addresses(void *arg, const struct syi_rank *rank, struct syi_engine *engine,
                            struct syi_batch *batch, struct sy_error *err)
{
    struct addresses *a = arg;
    struct syi_step_result result;
    (void)rank;
    a->rng = syi_session_find_any(syi_engine_session(engine), SYI_ROLE_RNG, 0);
    syi_session_hook(syi_engine_session(engine), look_at_addresses, a);
    batch_fill(batch, 1);
    return syi_engine_step(engine, batch, 0, 1.0, &result, err);
}

Test(model, microbatches_of_groups_of_tokens_have_random_numbers_of_their_own)
{
    struct addresses a = {0};
    struct syi_config config =
        config_of("moe.group_by=tokens", "moe.num_experts=16", "moe.jitter_noise=0.1", "data.batch_size=16",
                  "train.microbatches=2", "data.max_input_length=8", "data.max_target_length=6", NULL);
    course_train(&config, 1, follow_addresses, &a);
    cr_assert_gt(a.next, 8, "no more groups than rows: this proves little");
    cr_assert_gt(a.seen, 0);
}

/* ---- leaves ---- */

/* The axis of dense MLPs is that of the shared experts, too, of whose 6 columns 8 leaves would not be equal. */
Test(model, leaves_divide_the_width_of_shared_experts)
{
    struct syi_config config = config_of("model.d_ff=64", "moe.expert_mlp_dim=6", "moe.num_shared_experts=1",
                                         "reproducible.blocks=8", "reproducible.min_leaf=1", NULL);
    struct model model;
    model_open(&model, &config, shape_of(4, 6, 5), 0);
    model_add(&model, SYI_GRAD_FIRST);
    model_close(&model);
}

/* ---- padding ---- */

static void run_padded(struct model *model, const struct syi_config *config, struct syi_shape shape,
                       const int *numbers, int32_t filler)
{
    model_open(model, config, shape, 0);
    model_add(model, SYI_GRAD_FIRST);
    model_bind(model);
    put_batch(model, numbers, filler);
    model_run(model, 0);
}

/* Everything that a program leaves has the same bits in both models. */
static void expect_same_results(struct model *a, struct model *b)
{
    int compared = 0;
    const struct syi_shared *s;
    for (size_t i = 0; (s = syi_session_shared(a->m.session, i)) != NULL; i++) {
        if (s->info.kind == SYI_INPUT) continue;
        const struct sy_tensor *other = ms_tensor(&b->m, s->name);
        cr_assert_eq(ms_bytes(other), ms_bytes(&s->tensor), "%s", s->name);
        cr_assert_eq(memcmp(other->data, s->tensor.data, ms_bytes(other)), 0, "%s differs", s->name);
        compared++;
    }
    cr_assert_gt(compared, 2 * (int)a->model.n);
}

/* Added columns of padding, other ids in it, added rows; with dropout, and with places that overflow. */
static void check_padding(const struct syi_config *config)
{
    static const struct {
        struct syi_shape shape;
        int32_t filler;
    } padded[] = {{{4, 6, 5, 12, 4, 0, 0, 0}, 7},
                  {{4, 12, 5, 12, 4, 0, 0, 0}, 0},
                  {{4, 6, 11, 12, 4, 0, 0, 0}, 7},
                  {{8, 6, 5, 12, 4, 0, 0, 0}, 0},
                  {{16, 11, 12, 12, 4, 0, 0, 0}, 7}};
    static const int numbers[16] = {1, 2, 3, 4, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1};
    struct model plain, other;
    run_padded(&plain, config, shape_of(4, 6, 5), numbers, 0);
    if (config->moe.router_type != SYI_ROUTER_EXPERTS_CHOOSE_MASKED) cr_assert_gt(overflow(&plain), 0);
    for (size_t i = 0; i < SYI_COUNT(padded); i++) {
        run_padded(&other, config, padded[i].shape, numbers, padded[i].filler);
        expect_same_results(&plain, &other);
        model_close(&other);
    }
    model_close(&plain);
}

Test(model, padding_changes_no_bit)
{
    struct syi_config config = config_of("reproducible.blocks=8", NULL);
    check_padding(&config);
}

Test(model, padding_changes_no_bit_of_other_routers)
{
    static const char *const sets[][4] = {
        {"moe.router_type=tokens_choose_scatter", "moe.encoder_batch_prioritized_routing=true",
         "moe.decoder_batch_prioritized_routing=true", "moe.jitter_noise=0.1"},
        {"moe.router_type=experts_choose_masked", "moe.decoder_router_type=tokens_choose_masked",
         "moe.num_shared_experts=1", "moe.extra_mlp=true"},
        {"moe.router_use_bias=true", "moe.normalize_top_k=true", "moe.expert_activations=relu",
         "moe.aux_loss_reduction=sum"},
        {"moe.expert_bias=true", "moe.normalize_top_k=true", "moe.jitter_noise=0.1"},
        {"moe.expert_capacity=1", "moe.num_selected_experts=1"}};
    for (size_t i = 0; i < SYI_COUNT(sets); i++) {
        struct syi_config config =
            config_of("reproducible.blocks=8", sets[i][0], sets[i][1], sets[i][2], sets[i][3], NULL);
        check_padding(&config);
    }
}

/* ---- one expert ---- */

/* The sparse model's name of a parameter of the dense one: ".../mlp/wi_0/kernel" is
 * ".../mlp/expert/wi_0/kernel". */
static const char *sparse_name(const char *dense, char name[200])
{
    const char *inside = strstr(dense, "mlp/w");
    if (inside)
        snprintf(name, 200, "%.*sexpert/%s", (int)(inside + 4 - dense), dense, inside + 4);
    else
        snprintf(name, 200, "%s", dense);
    return name;
}

static void expect_equal_gradients(struct model *dense, struct model *sparse)
{
    char name[200];
    for (size_t i = 0; i < dense->model.n; i++) {
        const char *parameter = dense->model.param[i].name;
        const struct sy_tensor *a = gradient_of(dense, parameter),
                               *b = gradient_of(sparse, sparse_name(parameter, name));
        cr_assert_eq(ms_count(a), ms_count(b), "%s", parameter);
        for (int64_t k = 0; k < ms_count(a); k++)
            cr_assert_eq(ms_get(a, k), ms_get(b, k), "%s, element %lld", parameter, (long long)k);
    }
}

Test(model, one_dropless_expert_is_a_dense_layer)
{
    struct syi_config config =
        config_of("model.dropout_rate=0", "moe.num_selected_experts=1", "moe.num_experts=1",
                  "moe.train_capacity_factor=0", "moe.aux_loss_factor=0", "moe.router_z_loss_factor=0",
                  "moe.num_encoder_sparse_layers=2", "moe.num_decoder_sparse_layers=2", NULL);
    struct model dense, sparse;
    char name[200];
    int numbers[4] = {1, 2, 3, NO_EXAMPLE};
    run_padded(&sparse, &config, shape_of(4, 6, 5), numbers, 0);
    cr_assert_eq(overflow(&sparse), 0);
    config.moe.num_experts = 0;
    run_padded(&dense, &config, shape_of(4, 6, 5), numbers, 0);
    for (size_t i = 0; i < dense.model.n; i++) {
        const char *parameter = dense.model.param[i].name;
        const struct sy_tensor *t = ms_tensor(&dense.m, parameter);
        memcpy(t->data, ms_tensor(&sparse.m, sparse_name(parameter, name))->data, ms_bytes(t));
    }
    model_run(&dense, 0);
    cr_assert_eq(ms_get(ms_tensor(&dense.m, "loss_sum"), 0), ms_get(ms_tensor(&sparse.m, "loss_sum"), 0));
    expect_equal_gradients(&dense, &sparse);
    model_close(&dense);
    model_close(&sparse);
}
