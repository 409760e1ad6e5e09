/* SPDX-License-Identifier: Apache-2.0 */
/* The model as a whole: the gradient program against finite differences in double; microbatches add up; padding changes
 * no bit; decoding step by step gives the bits of the whole decoder, whatever the neighbours; one expert is a dense
 * layer; a small model learns. Single ops: test_gradients.c. */
#include "config.h"

#include <stdarg.h>
#include <stdio.h>

#include "data/batcher.h"
#include "data_support.h"
#include "model_support.h"
#include "train/engine.h"
#include "train/pipeline.h"

/* ---- a small model ---- */

/* Defaults, then assignments up to NULL. */
static struct syi_config config_of(const char *first, ...)
{
    static const char *const small[] = {
        "model.vocab_size=12",           "model.d_model=8",
        "model.d_ff=16",                 "model.head_dim=4",
        "model.num_heads=4",             "model.num_encoder_layers=2",
        "model.num_decoder_layers=2",    "model.dropout_rate=0.2",
        "model.relpos_num_buckets=8",    "model.relpos_max_distance=16",
        "moe.num_experts=4",             "moe.num_selected_experts=2",
        "moe.num_encoder_sparse_layers=1", "moe.num_decoder_sparse_layers=1",
        "moe.train_capacity_factor=1.5", "moe.min_expert_capacity=1",
        "moe.aux_loss_factor=0.5",       "moe.router_z_loss_factor=0.1",
        "loss.z_loss=0.01",              "loss.label_smoothing=0.1",
        "reproducible.blocks=4",         "reproducible.min_leaf=8",
    };
    struct syi_config config;
    struct sy_error err = {0};
    cr_assert_eq(syi_config_defaults(&config, &err), SY_OK, "%s", err.text);
    for (size_t i = 0; i < SYI_COUNT(small); i++)
        cr_assert_eq(syi_config_set(&config, small[i], &err), SY_OK, "%s", err.text);
    va_list more;
    va_start(more, first);
    for (const char *set = first; set; set = va_arg(more, const char *))
        cr_assert_eq(syi_config_set(&config, set, &err), SY_OK, "%s", err.text);
    va_end(more);
    return config;
}

/* Leaves and routing groups of 2 rows, for any number of rows and any lengths. */
static struct syi_shape shape_of(int64_t rows, int64_t input_length, int64_t target_length)
{
    return (struct syi_shape){rows, input_length, target_length, 12, 4};
}

/* ---- a model in a session ---- */

struct model {
    struct ms m;
    struct syi_config config;
    struct syi_params params;
    struct syi_shape shape;
    uint64_t routes;     /* hash of the routing decisions of the last run */
    float *logits;       /* where the operand of argmax goes, or NULL */
    int64_t n_logits;    /* elements of it */
};

/* Sees routing decisions and logits. */
static void look(void *arg, int program, size_t op, const struct sy_call *call, int after)
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

static void model_open(struct model *model, const struct syi_config *config, struct syi_shape shape, int precise)
{
    *model = (struct model){.config = *config, .shape = shape};
    ms_open(&model->m, precise);
    syi_session_hook(model->m.session, look, model);
}

static int model_add(struct model *model, int which)
{
    struct syi_program *program;
    struct sy_error err = {0};
    cr_assert_eq(syi_pipeline(&model->config, &model->m.mesh, which, &model->shape, SYI_STAGE_FUSE, &model->params,
                              &program, &err),
                 SY_OK, "%s", err.text);
    return ms_add(&model->m, program);
}

/* Binds, and sets parameters as a run would; the scales of norms get away from 1. */
static void model_bind(struct model *model)
{
    struct ms_random random = {3};
    ms_bind(&model->m);
    for (size_t i = 0; i < model->params.n; i++) {
        const struct syi_param *param = &model->params.param[i];
        const struct sy_tensor *to = ms_tensor(&model->m, param->name);
        struct sy_tensor t = *to;
        t.dtype = SY_F32;
        t.data = malloc((size_t)ms_count(to) * sizeof(float));
        cr_assert_not_null(t.data);
        syi_param_init(param, 5, &t);
        for (int64_t k = 0; k < ms_count(to); k++)
            ms_set(to, k, ms_get(&t, k) + (param->init == SYI_INIT_ONES ? 0.3 * ms_uniform(&random) : 0));
        free(t.data);
    }
}

static void model_close(struct model *model)
{
    ms_close(&model->m);
    syi_params_free(&model->params);
}

static void model_run(struct model *model, int program)
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
static struct example example_of(int number, int vocabulary)
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

static const struct sy_tensor *input(struct model *model, const char *what, int64_t length)
{
    char name[SYI_INPUT_NAME];
    syi_input_name(name, what, model->shape.rows, length);
    return syi_session_tensor(model->m.session, name);
}

static void put_ids(struct model *model, const char *what, int64_t length, int64_t row, int n, const int32_t *ids,
                    int32_t filler)
{
    const struct sy_tensor *t = input(model, what, length);
    for (int64_t i = 0; t && i < length; i++) ms_set(t, row * length + i, i < n ? ids[i] : filler);
}

/* filler: the id that stands in the padding. */
static void put_row(struct model *model, int64_t row, const struct example *e, int32_t filler)
{
    int64_t in = model->shape.input_length, out = model->shape.target_length;
    int32_t shifted[MOST_TOKENS] = {0};
    const struct sy_tensor *weights = input(model, "loss_weights", out), *n_in = input(model, "input_lengths", 0),
                           *n_out = input(model, "target_lengths", 0);
    memcpy(shifted + 1, e->out, sizeof shifted - sizeof *shifted);
    put_ids(model, "encoder_ids", in, row, e->n_in, e->in, filler);
    put_ids(model, "decoder_inputs", out, row, e->n_out, shifted, filler);
    put_ids(model, "decoder_targets", out, row, e->n_out, e->out, filler);
    for (int64_t i = 0; weights && i < out; i++) ms_set(weights, row * out + i, i < e->n_out);
    ms_set(n_in, row, e->n_in);
    if (n_out) ms_set(n_out, row, e->n_out);
}

static void put_scalar(struct model *model, const char *name, double value)
{
    const struct sy_tensor *t = syi_session_tensor(model->m.session, name);
    if (t) ms_set(t, 0, value);
}

/* One example a row. Normalisers are those of a larger batch, the same for all. */
static void put_batch(struct model *model, const int *numbers, int32_t filler)
{
    static const int64_t state[4] = {11, 2, 4, 2};
    for (int64_t row = 0; row < model->shape.rows; row++) {
        struct example e = example_of(numbers[row], (int)model->config.model.vocab_size);
        put_row(model, row, &e, filler);
    }
    put_scalar(model, "loss_norm", 19);
    put_scalar(model, "target_norm", 19);
    put_scalar(model, "input_norm", 23);
    const struct sy_tensor *rng = syi_session_tensor(model->m.session, "rng");
    if (rng) memcpy(rng->data, state, sizeof state);
}

static const struct sy_tensor *gradient_of(struct model *model, const char *parameter)
{
    char name[200];
    snprintf(name, sizeof name, "grad/%s", parameter);
    return ms_tensor(&model->m, name);
}

/* ---- the gradient program against finite differences ---- */

static double run_loss(void *arg)
{
    struct model *model = arg;
    model_run(model, 0);
    return ms_get(ms_tensor(&model->m, "loss_sum"), 0) / 19 + ms_get(ms_tensor(&model->m, "auxiliary_loss"), 0) +
           ms_get(ms_tensor(&model->m, "router_z_loss"), 0);
}

static void check_slope(struct model *model, const char *name, int64_t i, const double *gradient, double largest)
{
    uint64_t routes = model->routes;
    double slope = ms_slope(ms_tensor(&model->m, name), i, 1e-5, run_loss, model);
    cr_assert_eq(model->routes, routes, "%s, element %lld: the routing changed, choose another seed", name, (long long)i);
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
    const struct syi_shared *s;
    for (size_t i = 0; (s = syi_session_shared(model->m.session, i)) != NULL; i++)
        for (int64_t e = 0; e < ms_count(&s->tensor); e++) {
            if (syi_pattern_match("experts/*/chosen", s->name)) lost += (int64_t)ms_get(&s->tensor, e);
            if (syi_pattern_match("experts/*/kept", s->name)) lost -= (int64_t)ms_get(&s->tensor, e);
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
    for (size_t i = 0; i < model.params.n; i++) check_parameter(&model, model.params.param[i].name, &random);
    model_close(&model);
}

Test(model, gradients_with_experts)
{
    struct syi_config config = config_of(NULL);
    check_gradients(&config);
}

Test(model, gradients_with_prioritized_routing)
{
    struct syi_config config = config_of("moe.batch_prioritized_routing=true", "moe.num_encoder_sparse_layers=2",
                                         "model.mlp_activations=silu,linear", NULL);
    check_gradients(&config);
}

Test(model, gradients_with_tied_embedding)
{
    struct syi_config config = config_of("model.logits_via_embedding=true", "moe.num_selected_experts=1", NULL);
    check_gradients(&config);
}

/* ---- microbatches ---- */

/* Gradients of all parameters, one behind the other; free it. */
static double *all_gradients(struct model *model, size_t *n)
{
    double *all = NULL;
    *n = 0;
    for (size_t i = 0; i < model->params.n; i++) {
        const struct sy_tensor *t = gradient_of(model, model->params.param[i].name);
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
    for (size_t i = 0; i < n; i++) cr_assert_eq((float)of_a[i] + (float)of_b[i], (float)of_both[i], "gradient %zu", i);
    free(of_a);
    free(of_b);
    free(of_both);
    model_close(&model);
}

/* ---- padding ---- */

static void run_padded(struct model *model, const struct syi_config *config, struct syi_shape shape, const int *numbers,
                       int32_t filler)
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
    cr_assert_gt(compared, 2 * (int)a->params.n);
}

Test(model, padding_changes_no_bit)
{
    static const struct {
        struct syi_shape shape;
        int32_t filler;
    } padded[] = {{{4, 6, 5, 12, 4}, 7}, {{4, 12, 5, 12, 4}, 0}, {{4, 6, 11, 12, 4}, 7},
                  {{8, 6, 5, 12, 4}, 0}, {{16, 11, 12, 12, 4}, 7}};
    static const int numbers[16] = {1, 2, 3, 4, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1};
    struct syi_config config = config_of("reproducible.blocks=8", NULL);
    struct model plain, other;
    run_padded(&plain, &config, shape_of(4, 6, 5), numbers, 0);
    cr_assert_gt(overflow(&plain), 0);
    for (size_t i = 0; i < SYI_COUNT(padded); i++) {
        run_padded(&other, &config, padded[i].shape, numbers, padded[i].filler);
        expect_same_results(&plain, &other);
        model_close(&other);
    }
    model_close(&plain);
}

/* ---- decoding ---- */

enum { TOKENS = 7, ROWS = 4 };

/* The whole decoder on given inputs; its argmax is the output "teacher/next". */
static struct syi_program *record_teacher(struct model *model)
{
    struct sy_error err = {0};
    char name[5][SYI_INPUT_NAME];
    const struct syi_shape *s = &model->shape;
    struct syi_build b = {.config = &model->config, .params = &model->params, .shape = *s, .rng = -1};
    const uint8_t axis[2] = {SYI_AXIS_BATCH, SYI_AXIS_LENGTH};
    int64_t in_dim[2] = {s->rows, s->input_length}, out_dim[2] = {s->rows, s->target_length};
    cr_assert_eq(syi_program_new("teacher", &b.p, &err), SY_OK, "%s", err.text);
    syi_build_leaves(&b);
    syi_input_name(name[0], "encoder_ids", s->rows, s->input_length);
    syi_input_name(name[1], "input_lengths", s->rows, 0);
    syi_input_name(name[2], "decoder_inputs", s->rows, s->target_length);
    syi_input_name(name[3], "target_lengths", s->rows, 0);
    struct syi_inputs in = {.encoder_ids = syi_tensor_add(b.p, name[0], SYI_INPUT, SY_I32, 2, in_dim, axis),
                            .input_lengths = syi_tensor_add(b.p, name[1], SYI_INPUT, SY_I32, 1, in_dim, axis),
                            .decoder_inputs = syi_tensor_add(b.p, name[2], SYI_INPUT, SY_I32, 2, out_dim, axis),
                            .target_lengths = syi_tensor_add(b.p, name[3], SYI_INPUT, SY_I32, 1, out_dim, axis),
                            .target_norm = -1};
    int encoded = syi_encoder(&b, in.encoder_ids, in.input_lengths, -1);
    int logits = syi_decoder_logits(&b, in.decoder_inputs, encoded, &in);
    syi_output(b.p, syi_argmax(b.p, logits), "teacher/next");
    cr_assert_eq(syi_program_status(b.p, &err), SY_OK, "%s", err.text);
    return b.p;
}

/* What a greedy decoding gives, whether or not an end token comes: [rows][TOKENS]. */
struct decoded {
    int32_t token[16][TOKENS];
    float logits[16][TOKENS][12];
};

static void take_step(struct model *model, int position, int32_t previous[16], struct decoded *d)
{
    float logits[16][12];
    int64_t rows = model->shape.rows;
    const struct sy_tensor *token = ms_tensor(&model->m, "decode/token"), *next = ms_tensor(&model->m, "decode/next");
    for (int64_t row = 0; row < rows; row++) {
        ms_set(token, row, previous[row]);
        ms_set(ms_tensor(&model->m, "decode/lengths"), row, position + 1);
    }
    put_scalar(model, "decode/position", position);
    model->logits = &logits[0][0];
    model->n_logits = rows * 12;
    model_run(model, 1);
    for (int64_t row = 0; row < rows; row++) {
        previous[row] = d->token[row][position] = (int32_t)ms_get(next, row);
        memcpy(d->logits[row][position], logits[row], sizeof logits[row]);
    }
}

/* Programs: 0 encode, 1 decode_step, 2 teacher. */
static void decoder_open(struct model *model, struct syi_shape shape)
{
    struct syi_config config = config_of(NULL);
    model_open(model, &config, shape, 0);
    model_add(model, SYI_ENCODE);
    model_add(model, SYI_DECODE_STEP);
    ms_add(&model->m, record_teacher(model));
    model_bind(model);
}

static void decode(struct model *model, const int *numbers, struct decoded *d)
{
    int32_t previous[16] = {0};
    put_batch(model, numbers, 5);
    model->logits = NULL;
    model_run(model, 0);
    for (int position = 0; position < TOKENS; position++) take_step(model, position, previous, d);
}

Test(model, decoding_step_by_step_has_the_bits_of_the_whole_decoder)
{
    struct model model;
    static struct decoded d;
    static float logits[ROWS][TOKENS][12];
    int different = 0;
    decoder_open(&model, shape_of(ROWS, 9, TOKENS));
    decode(&model, (int[]){1, 2, 3, 4}, &d);
    for (int row = 0; row < ROWS; row++) {
        int32_t inputs[TOKENS] = {0};
        memcpy(inputs + 1, d.token[row], sizeof inputs - sizeof *inputs);
        put_ids(&model, "decoder_inputs", TOKENS, row, TOKENS, inputs, 0);
        ms_set(input(&model, "target_lengths", 0), row, TOKENS);
    }
    model.logits = &logits[0][0][0];
    model.n_logits = ROWS * TOKENS * 12;
    model_run(&model, 2);
    const struct sy_tensor *next = ms_tensor(&model.m, "teacher/next");
    for (int row = 0; row < ROWS; row++)
        for (int i = 0; i < TOKENS; i++) {
            cr_assert_eq(memcmp(logits[row][i], d.logits[row][i], sizeof logits[row][i]), 0, "row %d, token %d", row, i);
            cr_assert_eq((int32_t)ms_get(next, row * TOKENS + i), d.token[row][i], "row %d, token %d", row, i);
            different += d.token[row][i] != d.token[0][0];
        }
    cr_assert_gt(different, 0, "all tokens are the same: this proves little");
    model_close(&model);
}

/* Example 2 with other neighbours, in another row, at another padded length, beside fewer or more rows. */
Test(model, an_answer_does_not_depend_on_its_batch)
{
    static const struct {
        struct syi_shape shape;
        int numbers[16], row;
    } batches[] = {{{4, 9, TOKENS, 12, 4}, {5, 2, 5, 6}, 1},
                   {{4, 9, TOKENS, 12, 4}, {-1, -1, 7, 2}, 3},
                   {{4, 12, TOKENS, 12, 4}, {2, 2, 8, -1}, 0},
                   {{1, 6, TOKENS, 12, 4}, {2}, 0},
                   {{16, 7, TOKENS, 12, 4}, {9, 8, 7, 6, 5, 4, 3, 2, 1, 10, 11, 12, 13, 14, 15, 16}, 7}};
    static struct decoded alone, d;
    struct model model;
    decoder_open(&model, shape_of(ROWS, 9, TOKENS));
    decode(&model, (int[]){2, -1, -1, -1}, &alone);
    model_close(&model);
    for (size_t i = 0; i < SYI_COUNT(batches); i++) {
        int row = batches[i].row;
        decoder_open(&model, batches[i].shape);
        decode(&model, batches[i].numbers, &d);
        cr_assert_eq(memcmp(alone.token[0], d.token[row], sizeof d.token[row]), 0, "batch %zu", i);
        cr_assert_eq(memcmp(alone.logits[0], d.logits[row], sizeof d.logits[row]), 0, "batch %zu", i);
        model_close(&model);
    }
}

/* ---- one expert ---- */

/* The sparse model's name of a parameter of the dense one: ".../mlp/wi_0/kernel" is ".../mlp/expert/wi_0/kernel". */
static const char *sparse_name(const char *dense, char name[200])
{
    const char *inside = strstr(dense, "mlp/w");
    if (inside) snprintf(name, 200, "%.*sexpert/%s", (int)(inside + 4 - dense), dense, inside + 4);
    else snprintf(name, 200, "%s", dense);
    return name;
}

static void expect_equal_gradients(struct model *dense, struct model *sparse)
{
    char name[200];
    for (size_t i = 0; i < dense->params.n; i++) {
        const char *parameter = dense->params.param[i].name;
        const struct sy_tensor *a = gradient_of(dense, parameter), *b = gradient_of(sparse, sparse_name(parameter, name));
        cr_assert_eq(ms_count(a), ms_count(b), "%s", parameter);
        for (int64_t k = 0; k < ms_count(a); k++)
            cr_assert_eq(ms_get(a, k), ms_get(b, k), "%s, element %lld", parameter, (long long)k);
    }
}

Test(model, one_dropless_expert_is_a_dense_layer)
{
    struct syi_config config = config_of("model.dropout_rate=0", "moe.num_selected_experts=1", "moe.num_experts=1",
                                         "moe.train_capacity_factor=0", "moe.aux_loss_factor=0",
                                         "moe.router_z_loss_factor=0", "moe.num_encoder_sparse_layers=2",
                                         "moe.num_decoder_sparse_layers=2", NULL);
    struct model dense, sparse;
    char name[200];
    int numbers[4] = {1, 2, 3, NO_EXAMPLE};
    run_padded(&sparse, &config, shape_of(4, 6, 5), numbers, 0);
    cr_assert_eq(overflow(&sparse), 0);
    config.moe.num_experts = 0;
    run_padded(&dense, &config, shape_of(4, 6, 5), numbers, 0);
    for (size_t i = 0; i < dense.params.n; i++) {
        const char *parameter = dense.params.param[i].name;
        const struct sy_tensor *t = ms_tensor(&dense.m, parameter);
        memcpy(t->data, ms_tensor(&sparse.m, sparse_name(parameter, name))->data, ms_bytes(t));
    }
    model_run(&dense, 0);
    cr_assert_eq(ms_get(ms_tensor(&dense.m, "loss_sum"), 0), ms_get(ms_tensor(&sparse.m, "loss_sum"), 0));
    expect_equal_gradients(&dense, &sparse);
    model_close(&dense);
    model_close(&sparse);
}

/* ---- learning ---- */

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

static int train(struct lesson *lesson, struct syi_engine *engine, struct syi_batcher *batcher, struct syi_batch *batch,
                 struct sy_error *err)
{
    int status = SY_OK;
    syi_engine_init(engine, (uint64_t)lesson->config.train.seed);
    for (int step = 0; !status && step < STEPS; step++) {
        struct syi_step_result result = {0};
        status = syi_batcher_fetch(batcher, step, batch, err);
        if (!status) status = syi_engine_step(engine, batch, step, 3e-3, &result, err);
        cr_assert(status || result.ok, "step %d: the gradients are not finite", step);
        lesson->loss[step] = result.cross_entropy;
        lesson->accuracy[step] = result.accuracy;
    }
    return status;
}

static int learn(void *arg, const struct syi_rank *rank, struct sy_error *err)
{
    struct lesson *lesson = arg;
    const struct syi_config *c = &lesson->config;
    struct syi_bucket buckets[SYI_MAX_BUCKETS];
    struct syi_vocabulary vocabulary;
    struct syi_batcher batcher = {0};
    struct syi_batch batch = {0};
    struct syi_engine *engine = NULL;
    struct syi_batcher_options options = {.buckets = buckets,
                                          .n_buckets = syi_engine_buckets(c, buckets),
                                          .batch_size = (int32_t)c->data.batch_size,
                                          .pool_batches = 4,
                                          .seed = 1};
    int status = syi_vocabulary_bytes(&vocabulary, 0, err);
    if (!status) status = syi_batcher_create(&batcher, &lesson->task, &vocabulary, &options, err);
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

Test(model, a_small_model_learns)
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
