/* SPDX-License-Identifier: Apache-2.0 */
/* The keys in which families of T5 differ: each against a model without it whose weights are chosen so that both
 * must compute the same. Gradients by finite differences: test_model.c; decoding: test_decode.c. */
#include "config.h"

#include "small_model.h"

static void family_open(struct model *model, const struct syi_config *config)
{
    model_open(model, config, shape_of(4, 6, 5), 0);
    model_add(model, SYI_GRAD_FIRST);
    model_bind(model);
    put_batch(model, (int[]){1, 2, 3, NO_EXAMPLE}, 0);
}

static double loss_of(struct model *model)
{
    model_run(model, 0);
    return ms_get(ms_tensor(&model->m, "loss_sum"), 0);
}

/* ---- the scale of the decoder's output ---- */

/* Loss with a head of its own or the embedding table; the head is the table transposed, times factor. */
static double loss_with_head(int tied, const char *scale, double factor)
{
    struct model model;
    struct syi_config config = config_of(tied ? "model.logits_via_embedding=true" : "model.d_model=16",
                                         "model.d_model=16", scale, NULL);
    family_open(&model, &config);
    const struct sy_tensor *table = ms_tensor(&model.m, "token_embedder/embedding");
    for (int64_t i = 0; !tied && i < 12; i++)
        for (int64_t k = 0; k < 16; k++)
            ms_set(ms_tensor(&model.m, "decoder/logits_dense/kernel"), k * 12 + i,
                   factor * ms_get(table, i * 16 + k));
    double loss = loss_of(&model);
    model_close(&model);
    return loss;
}

Test(families, outputs_are_scaled_before_either_head)
{
    static const char AUTO[] = "model.scale_decoder_outputs=auto", YES[] = "model.scale_decoder_outputs=true",
                      NO[] = "model.scale_decoder_outputs=false";
    double scaled = loss_with_head(1, YES, 1), plain = loss_with_head(1, NO, 1);
    cr_assert_gt(fabs(scaled - plain), 0.1 * fabs(plain));
    cr_assert_eq(loss_with_head(1, AUTO, 1), scaled);
    cr_assert_eq(loss_with_head(0, AUTO, 1), loss_with_head(0, NO, 1));
    cr_assert_eq(loss_with_head(0, YES, 1), loss_with_head(0, NO, 0.25)); /* 1 / sqrt(16) */
    cr_assert_float_eq(loss_with_head(0, YES, 1), scaled, 1e-6 * fabs(scaled));
    cr_assert_float_eq(loss_with_head(0, NO, 1), plain, 1e-6 * fabs(plain));
}

/* ---- relative position biases ---- */

/* "encoder/relpos_bias/rel_embedding", or that of a layer. */
static const char *bias_name(int decoder, int layer, char name[80])
{
    snprintf(name, 80, layer < 0 ? "%s/relpos_bias/rel_embedding" : "%s/layers_%d/relpos_bias/rel_embedding",
             decoder ? "decoder" : "encoder", layer);
    return name;
}

/* The gradient of a shared table is the sum of those of its copies. */
static void expect_sum_of_gradients(struct model *shared, struct model *own, int decoder)
{
    char name[80];
    const struct sy_tensor *whole = gradient_of(shared, bias_name(decoder, -1, name)),
                           *first = gradient_of(own, bias_name(decoder, 0, name)),
                           *second = gradient_of(own, bias_name(decoder, 1, name));
    for (int64_t i = 0; i < ms_count(whole); i++)
        cr_assert_float_eq(ms_get(first, i) + ms_get(second, i), ms_get(whole, i), 1e-6, "%s, element %lld",
                           name, (long long)i);
}

Test(families, layers_with_copies_of_a_bias_compute_what_the_shared_one_gives)
{
    struct syi_config config = config_of(NULL), per_layer = config_of("model.relpos_per_layer=true", NULL);
    struct model shared, own;
    char name[80];
    family_open(&shared, &config);
    family_open(&own, &per_layer);
    cr_assert_eq(own.model.n, shared.model.n + 2);
    for (int i = 0; i < 4; i++) {
        const struct sy_tensor *to = ms_tensor(&own.m, bias_name(i / 2, i % 2, name));
        memcpy(to->data, ms_tensor(&shared.m, bias_name(i / 2, -1, name))->data, ms_bytes(to));
    }
    cr_assert_eq(loss_of(&own), loss_of(&shared));
    for (int decoder = 0; decoder < 2; decoder++) expect_sum_of_gradients(&shared, &own, decoder);
    model_close(&shared);
    model_close(&own);
}

/* ---- which layers have experts ---- */

/* The layers of a program with experts, in their order: "encoder/layers_1/mlp decoder/layers_0/mlp". */
static void expect_sparse(const char *encoder, const char *decoder, const char *wanted)
{
    struct model model;
    struct syi_config config = config_of("model.num_encoder_layers=6", "model.num_decoder_layers=5",
                                         "moe.num_encoder_sparse_layers=1", "moe.num_decoder_sparse_layers=0",
                                         encoder, decoder, NULL);
    char found[200] = "";
    size_t used = 0;
    family_open(&model, &config);
    for (size_t i = 0; i < model.model.n_layers; i++)
        used += (size_t)snprintf(found + used, sizeof found - used, "%s%s", i ? " " : "",
                                 model.model.layer[i].name);
    cr_assert_str_eq(found, wanted);
    model_close(&model);
}

Test(families, listed_layers_have_the_experts)
{
    expect_sparse("moe.encoder_sparse_layers=[1, 4]", "moe.decoder_sparse_layers=[0, 3, 4]",
                  "encoder/layers_1/mlp encoder/layers_4/mlp decoder/layers_0/mlp decoder/layers_3/mlp "
                  "decoder/layers_4/mlp");
    expect_sparse("moe.num_encoder_sparse_layers=0", "moe.decoder_sparse_layers=[1]", "decoder/layers_1/mlp");
    expect_sparse("moe.encoder_sparse_layers=[]", "moe.decoder_sparse_layers=[]", "encoder/layers_5/mlp");
    expect_sparse("moe.num_encoder_sparse_layers=2", "moe.decoder_sparse_layers=[2]",
                  "encoder/layers_2/mlp encoder/layers_5/mlp decoder/layers_2/mlp");
}

/* ---- places of an expert in a row ---- */

enum { CAPACITY = 2 };

/* Of the router's own probabilities: the largest of a token is its expert, its rank among the tokens of its row with
 * that expert its place. Counts the dropped. */
struct routing_seen {
    int layers, dropped;
};

static void expect_places(void *arg, int program, size_t op, const struct sy_call *call, int after)
{
    struct routing_seen *seen = arg;
    (void)program;
    (void)op;
    if (!after || call->op != SY_OP_ROUTE) return;
    const struct sy_tensor *p = &call->in[0], *mask = &call->in[1];
    int64_t rows = p->dim[0], tokens = p->dim[1], experts = p->dim[2];
    for (int64_t row = 0; row < rows; row++) {
        int64_t taken[16] = {0};
        for (int64_t t = row * tokens; t < (row + 1) * tokens; t++) {
            int64_t best = 0, expert = -1, place = -1;
            for (int64_t e = 1; e < experts; e++)
                if (ms_get(p, t * experts + e) > ms_get(p, t * experts + best)) best = e;
            if (ms_get(mask, t) != 0) {
                expert = best;
                place = taken[best] < CAPACITY ? taken[best] : -1;
                taken[best]++;
                seen->dropped += place < 0;
            }
            cr_assert_eq((int64_t)ms_get(&call->out[0], t), expert, "token %lld", (long long)t);
            cr_assert_eq((int64_t)ms_get(&call->out[1], t), place, "token %lld", (long long)t);
        }
    }
    seen->layers++;
}

static void expect_places_in(enum syi_which which, struct syi_shape shape)
{
    struct model model;
    struct routing_seen seen = {0};
    struct syi_config config =
        config_of("moe.expert_capacity=2", "moe.num_selected_experts=1", "moe.train_capacity_factor=0.5",
                  "moe.eval_capacity_factor=0.5", NULL);
    model_open(&model, &config, shape, 0);
    syi_session_hook(model.m.session, expect_places, &seen);
    model_add(&model, which);
    model_bind(&model);
    put_batch(&model, (int[]){1, 2, 3, 4, NO_EXAMPLE, 5, 6, 7}, 0);
    ms_run(&model.m, 0);
    cr_assert_eq(seen.layers, 2);
    cr_assert_gt(seen.dropped, 0, "nothing is dropped: this proves little");
    model_close(&model);
}

Test(families, an_expert_has_its_places_in_each_row)
{
    static const enum syi_which programs[] = {SYI_GRAD_FIRST, SYI_EVAL};
    for (size_t i = 0; i < SYI_COUNT(programs); i++) {
        expect_places_in(programs[i], shape_of(4, 6, 5));
        expect_places_in(programs[i], shape_of(8, 11, 7));
    }
}

/* Padding stands last in its row, so whether it is routed too does not matter to real tokens. */
Test(families, padding_takes_no_place_of_a_row_from_a_token)
{
    struct syi_config ignored = config_of("moe.expert_capacity=2", "moe.num_selected_experts=1", NULL);
    struct syi_config routed = config_of("moe.expert_capacity=2", "moe.num_selected_experts=1",
                                         "moe.ignore_padding_tokens=false", NULL);
    struct model a, b;
    family_open(&a, &ignored);
    family_open(&b, &routed);
    cr_assert_eq(loss_of(&a), loss_of(&b));
    model_close(&a);
    model_close(&b);
}

/* ---- what the router's losses are averaged over ---- */

/* Padding that is routed is counted among what experts were chosen by, so the losses are means over it, too: over real
 * tokens alone they grew with it. */
Test(families, losses_of_routers_are_means_over_what_is_routed)
{
    static const char *const names[] = {"auxiliary_loss", "router_z_loss"};
    struct syi_config config = config_of("moe.ignore_padding_tokens=false", NULL);
    struct syi_config all = config_of("moe.ignore_padding_tokens=false", "moe.router_loss_tokens=all", NULL);
    struct model a, b;
    family_open(&a, &config);
    family_open(&b, &all);
    cr_assert_eq(loss_of(&a), loss_of(&b));
    for (size_t i = 0; i < SYI_COUNT(names); i++) {
        cr_assert_gt(ms_get(ms_tensor(&a.m, names[i]), 0), 0);
        cr_expect_eq(ms_get(ms_tensor(&a.m, names[i]), 0), ms_get(ms_tensor(&b.m, names[i]), 0), "%s",
                     names[i]);
    }
    model_close(&a);
    model_close(&b);
}

/* An average, not the routing; places are so few that padding would take those of tokens. */
Test(families, losses_over_all_tokens_route_as_those_over_real_ones)
{
    static const char *const routers[] = {"moe.router_type=tokens_choose_scatter",
                                          "moe.router_type=experts_choose_masked"};
    for (size_t i = 0; i < SYI_COUNT(routers); i++) {
        struct syi_config real = config_of(routers[i], "moe.decoder_router_type=tokens_choose_scatter",
                                           "moe.train_capacity_factor=0.5", NULL);
        struct syi_config all = real;
        struct sy_error err = {0};
        struct model a, b;
        cr_assert_eq(syi_config_set(&all, "moe.router_loss_tokens=all", &err), SY_OK, "%s", err.text);
        family_open(&a, &real);
        family_open(&b, &all);
        cr_expect_eq(loss_of(&a), loss_of(&b), "%s", routers[i]);
        model_close(&a);
        model_close(&b);
    }
}
