/* SPDX-License-Identifier: Apache-2.0 */
/* A small model with experts in a session, batches of made-up examples for it, and a look at its routing and
 * logits. Shared by test_model.c and test_decode.c. */
#ifndef SMALL_MODEL_H
#define SMALL_MODEL_H

#include <stdarg.h>
#include <stdio.h>

#include "model_support.h"
#include "train/engine/pipeline.h"

/* ---- a small model ---- */

/* Defaults, then assignments up to NULL. */
static inline struct syi_config config_of(const char *first, ...)
{
    static const char small[] =
        "[model]\nvocab_size = 12\nd_model = 8\nd_ff = 16\nhead_dim = 4\nnum_heads = 4\n"
        "num_encoder_layers = 2\nnum_decoder_layers = 2\ndropout_rate = 0.2\nrelpos_num_buckets = 8\n"
        "relpos_max_distance = 16\n"
        "[moe]\nnum_experts = 4\nnum_selected_experts = 2\nnum_encoder_sparse_layers = 1\n"
        "num_decoder_sparse_layers = 1\ntrain_capacity_factor = 1.5\nmin_expert_capacity = 1\n"
        "aux_loss_factor = 0.5\nrouter_z_loss_factor = 0.1\n"
        "[loss]\nz_loss = 0.01\nlabel_smoothing = 0.1\n"
        "[reproducible]\nblocks = 4\nmin_leaf = 8\n";
    struct syi_config config;
    struct sy_error err = {0};
    cr_assert_eq(syi_config_defaults(&config, &err), SY_OK, "%s", err.text);
    cr_assert_eq(syi_config_load_text(&config, "small", small, sizeof small - 1, &err), SY_OK, "%s",
                 err.text);
    va_list more;
    va_start(more, first);
    for (const char *set = first; set; set = va_arg(more, const char *))
        cr_assert_eq(syi_config_set(&config, set, &err), SY_OK, "%s", err.text);
    va_end(more);
    return config;
}

/* Every router that may be asked for answers; in the encoder experts may choose. */
static const char *const answering_routers[][4] = {
    {NULL},
    {"moe.encoder_batch_prioritized_routing=true", "moe.decoder_batch_prioritized_routing=true"},
    {"moe.router_type=tokens_choose_scatter", "moe.num_selected_experts=1"},
    {"moe.router_type=experts_choose_masked", "moe.decoder_router_type=tokens_choose_masked",
     "moe.min_expert_capacity=0"},
    {"moe.expert_bias=true", "moe.normalize_top_k=true", "moe.num_shared_experts=1"},
    {"moe.router_use_bias=true", "moe.expert_activations=relu", "moe.extra_mlp=true", "moe.jitter_noise=0.1"},
};

static inline struct syi_config config_of_router(size_t i)
{
    const char *const *set = answering_routers[i];
    return config_of(set[0], set[1], set[2], set[3], NULL);
}

/* Leaves and routing groups of 2 rows, for any number of rows and any lengths. */
static inline struct syi_shape shape_of(int64_t rows, int64_t input_length, int64_t target_length)
{
    return (struct syi_shape){rows, input_length, target_length, 12, 4, 0, 0, 0};
}

/* ---- a model in a session ---- */

struct model {
    struct ms m;
    struct syi_config config;
    struct syi_model model;
    struct syi_shape shape;
    uint64_t routes;  /* hash of the routing decisions of the last run */
    float *logits;    /* where the operand of argmax goes, or NULL */
    int64_t n_logits; /* elements of it */
};

/* Sees routing decisions and logits. */
static inline void look(void *arg, int program, size_t op, const struct sy_call *call, int after)
{
    struct model *model = arg;
    (void)program;
    (void)op;
    if (after && call->op == SY_OP_ROUTE)
        for (int o = 0; o < 2; o++)
            for (int64_t i = 0; i < ms_count(&call->out[o]); i++)
                model->routes = (model->routes ^ (uint64_t)ms_get(&call->out[o], i)) * 0x100000001b3u;
    if (after && call->op == SY_OP_ARGMAX && model->logits) {
        cr_assert_eq(ms_count(&call->in[0]), model->n_logits);
        memcpy(model->logits, call->in[0].data, ms_bytes(&call->in[0]));
    }
}

static inline void model_open(struct model *model, const struct syi_config *config, struct syi_shape shape,
                              int precise)
{
    *model = (struct model){.config = *config, .shape = shape};
    ms_open(&model->m, precise);
    model->model.panels = syi_backend_has_panels(model->m.backend);
    syi_session_hook(model->m.session, look, model);
}

static inline int model_add(struct model *model, enum syi_which which)
{
    struct syi_recorded recorded;
    struct sy_error err = {0};
    cr_assert_eq(syi_pipeline(&model->config, &model->m.mesh, NULL, which, &model->shape, SYI_STAGE_FUSE,
                              &model->model, &recorded, &err),
                 SY_OK, "%s", err.text);
    return ms_add(&model->m, recorded.program);
}

/* Binds, and sets parameters as a run would; the scales of norms get away from 1, biases of
 * experts from 0. */
static inline void model_bind(struct model *model)
{
    struct ms_random random = {3};
    int weights = model->model.n_copies ? model_add(model, SYI_WEIGHTS) : -1;
    ms_bind(&model->m);
    for (size_t i = 0; i < model->model.n; i++) {
        const struct syi_param *param = &model->model.param[i];
        const struct sy_tensor *to = ms_tensor(&model->m, param->name);
        struct sy_tensor t = *to;
        t.dtype = SY_F32;
        t.data = malloc((size_t)ms_count(to) * sizeof(float));
        cr_assert_not_null(t.data);
        syi_param_init(param, 5, &t, NULL);
        for (int64_t k = 0; k < ms_count(to); k++)
            ms_set(to, k,
                   ms_get(&t, k) + (param->init == SYI_INIT_ONES          ? 0.3 * ms_uniform(&random)
                                    : param->init == SYI_INIT_EXPERT_BIAS ? 0.1 * ms_uniform(&random)
                                                                          : 0));
        free(t.data);
    }
    if (weights >= 0) ms_run(&model->m, weights);
}

static inline void model_close(struct model *model)
{
    ms_close(&model->m);
    syi_model_free(&model->model);
}

static inline void model_run(struct model *model, int program)
{
    model->routes = 0xcbf29ce484222325u;
    ms_run(&model->m, program);
}

/* ---- batches of made-up examples ---- */

enum { NO_EXAMPLE = -1, MOST_TOKENS = 16 };

struct example {
    int n_in, n_out; /* tokens */
    int32_t in[MOST_TOKENS], out[MOST_TOKENS];
};

/* A pure function of its number; up to 6 tokens in, up to 5 out. */
static inline struct example example_of(int number, int vocabulary)
{
    struct example e = {0};
    struct ms_random random = {(uint64_t)number * 77 + 13};
    if (number == NO_EXAMPLE) return e;
    for (int i = 0; i < 5; i++) ms_next(&random);
    e.n_in = 2 + ms_below(&random, 5);
    e.n_out = 1 + ms_below(&random, 5);
    for (int i = 0; i < e.n_in; i++) e.in[i] = 3 + ms_below(&random, vocabulary - 3);
    for (int i = 0; i < e.n_out; i++) e.out[i] = 3 + ms_below(&random, vocabulary - 3);
    return e;
}

static inline const struct sy_tensor *input(struct model *model, enum syi_role role)
{
    return syi_session_find_any(model->m.session, role, 0);
}

static inline void put_ids(struct model *model, enum syi_role role, int64_t length, int64_t row, int n,
                           const int32_t *ids, int32_t filler)
{
    const struct sy_tensor *t = input(model, role);
    for (int64_t i = 0; t && i < length; i++) ms_set(t, row * length + i, i < n ? ids[i] : filler);
}

static inline void put_mask(const struct sy_tensor *t, int64_t row, int64_t length, int n)
{
    for (int64_t i = 0; t && i < length; i++) ms_set(t, row * length + i, i < n);
}

/* filler: the id that stands in the padding. */
static inline void put_row(struct model *model, int64_t row, const struct example *e, int32_t filler)
{
    int64_t in = model->shape.input_length, out = model->shape.target_length;
    int32_t shifted[MOST_TOKENS] = {0};
    const struct sy_tensor *weights = input(model, SYI_ROLE_LOSS_WEIGHTS),
                           *n_in = input(model, SYI_ROLE_ENCODER_LENGTHS),
                           *n_out = input(model, SYI_ROLE_DECODER_LENGTHS);
    memcpy(shifted + 1, e->out, sizeof shifted - sizeof *shifted);
    put_ids(model, SYI_ROLE_ENCODER_IDS, in, row, e->n_in, e->in, filler);
    put_ids(model, SYI_ROLE_DECODER_INPUTS, out, row, e->n_out, shifted, filler);
    put_ids(model, SYI_ROLE_DECODER_TARGETS, out, row, e->n_out, e->out, filler);
    for (int64_t i = 0; weights && i < out; i++) ms_set(weights, row * out + i, i < e->n_out);
    put_mask(input(model, SYI_ROLE_ENCODER_MASK), row, in, e->n_in);
    put_mask(input(model, SYI_ROLE_DECODER_MASK), row, out, e->n_out);
    ms_set(n_in, row, e->n_in);
    if (n_out) ms_set(n_out, row, e->n_out);
}

static inline void put_scalar(struct model *model, enum syi_role role, double value)
{
    const struct sy_tensor *t = input(model, role);
    if (t) ms_set(t, 0, value);
}

/* One example a row. Normalisers are those of a larger batch, the same for all. */
static inline void put_batch(struct model *model, const int *numbers, int32_t filler)
{
    static const int64_t state[4] = {11, 2, 4, 2};
    for (int64_t row = 0; row < model->shape.rows; row++) {
        struct example e = example_of(numbers[row], (int)model->config.model.vocab_size);
        put_row(model, row, &e, filler);
    }
    put_scalar(model, SYI_ROLE_LOSS_NORM, 19);
    put_scalar(model, SYI_ROLE_TARGET_NORM, 19);
    put_scalar(model, SYI_ROLE_INPUT_NORM, 23);
    const struct sy_tensor *rng = input(model, SYI_ROLE_RNG);
    if (rng) memcpy(rng->data, state, sizeof state);
}

static inline const struct sy_tensor *gradient_of(struct model *model, const char *parameter)
{
    char name[200];
    snprintf(name, sizeof name, "grad/%s", parameter);
    return ms_tensor(&model->m, name);
}

#endif
