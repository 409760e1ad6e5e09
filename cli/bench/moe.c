/* SPDX-License-Identifier: Apache-2.0 */
/* bench moe: forward and backward of one sparse layer with 8, 64 and 256 experts against a dense layer of the
 * same width, and against what the machine needs at least. Each token goes to one expert, capacity factor 1.
 * The update of the layer's weights is measured apart. --profile adds a table of ops for each layer. */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/bench/bench.h"
#include "program/grad.h"
#include "program/record.h"

/* A layer and what was measured of it. experts 0: dense. */
struct layer {
    char name[32];
    struct syi_config config;
    struct syi_model model;
    struct syi_build build;
    double bytes;           /* what must be read and written: weights twice, gradients once */
    double seconds, update; /* forward and backward; optimizer; fastest */
    double flops;           /* products with the layer's weights, without the router's */
    double dispatch,
        router; /* seconds of routing, dispatch and combine; of the router's product and softmax */
    struct bench_rows rows; /* by kind of op, forward and backward */
};

/* ---- recording ---- */

static int scalar(struct syi_build *b, const char *name, int dtype, int64_t n)
{
    return syi_tensor_add(b->p, name, SYI_INPUT, dtype, 1, &n, NULL);
}

/* The layer's output times random weights, summed, and its losses: a scalar to differentiate. */
static int record_loss(struct layer *l)
{
    static const uint8_t axis[] = {SYI_AXIS_BATCH, SYI_AXIS_LENGTH, SYI_AXIS_EMBED};
    struct syi_build *b = &l->build;
    const int64_t dim[] = {b->shape.rows, b->shape.input_length, l->config.model.d_model};
    int x = syi_tensor_add(b->p, "x", SYI_INPUT, l->build.dtype, 3, dim, axis);
    int weights = syi_tensor_add(b->p, "weights", SYI_INPUT, SY_F32, 3, dim, axis);
    struct syi_router router = {.type = SYI_ROUTER_TOKENS_CHOOSE_MASKED, .mask = -1, .normalizer = -1};
    if (l->config.moe.num_experts) {
        router.mask = syi_tensor_add(b->p, "mask", SYI_INPUT, SY_F32, 2, dim, axis);
        router.normalizer = scalar(b, "tokens", SY_F32, 1);
    }
    int y = l->config.moe.num_experts ? syi_moe(b, "mlp", x, &router) : syi_mlp(b, "mlp", x);
    SYI_AT(b->p);
    int loss = syi_total(b->p, syi_map2(b->p, SY_MAP_MUL, y, weights));
    if (!l->config.moe.num_experts) return loss;
    int balance = syi_role_find(b->p, SYI_ROLE_LAYER_AUXILIARY_LOSS, 0);
    int z = syi_role_find(b->p, SYI_ROLE_LAYER_ROUTER_Z_LOSS, 0);
    return syi_map2(b->p, SY_MAP_ADD, loss, syi_map2(b->p, SY_MAP_ADD, balance, z));
}

/* Gradients of x and of all weights, kept. */
static int record_gradients(struct layer *l, int loss, struct sy_error *err)
{
    struct syi_program *p = l->build.p;
    int of[8], gradient[8], n = (int)l->model.n + 1;
    char name[200];
    of[0] = syi_program_find(p, "x");
    for (int i = 1; i < n; i++) of[i] = syi_role_find(p, SYI_ROLE_PARAMETER, l->model.param[i - 1].id);
    int status = syi_program_status(p, err);
    if (!status) status = syi_grad(p, loss, n, of, gradient, err);
    for (int i = 0; !status && i < n; i++) {
        snprintf(name, sizeof name, "grad/%s", i ? l->model.param[i - 1].name : "x");
        if (gradient[i] >= 0) syi_output(p, gradient[i], name);
    }
    return status;
}

static double weights_of(const struct layer *l)
{
    double sum = 0;
    for (size_t i = 0; i < l->model.n; i++) {
        const struct syi_param *param = &l->model.param[i];
        double n = 1;
        for (int d = 0; d < param->rank; d++) n *= (double)param->dim[d];
        if (!l->config.moe.num_experts || strstr(param->name, "expert/")) sum += n;
    }
    return sum;
}

static int record(struct layer *l, const struct bench_micro *micro, const struct syi_shape *shape,
                  struct sy_error *err)
{
    struct syi_build *b = &l->build;
    *b = (struct syi_build){
        .config = &l->config, .model = &l->model, .shape = *shape, .training = 1, .dtype = micro->dtype};
    int status = syi_program_new("moe", &b->p, err);
    if (status) return status;
    l->model.keeps_copies = micro->dtype == SY_BF16; /* as a training does: the update rounds the weights */
    l->model.trains_panels = syi_backend_has_panels_in_training(micro->rank->backend);
    syi_leaves(&l->config, shape, b->p->leaf_count);
    b->rng = scalar(b, "rng", SY_I64, 4);
    status = record_gradients(l, record_loss(l), err);
    if (!status) status = syi_keep_copies(b, err);
    if (status) syi_program_free(b->p);
    l->bytes = weights_of(l) * (double)(2 * syi_dtype_bytes(micro->dtype) + sizeof(float));
    return status;
}

/* ---- measuring ---- */

/* Copies of weights keep their random numbers. */
static void fill(void *arg, struct syi_session *session)
{
    struct layer *l = arg;
    const struct sy_tensor *mask = syi_session_tensor(session, "mask");
    const struct sy_tensor *tokens = syi_session_tensor(session, "tokens");
    for (size_t i = 0; i < l->model.n; i++) {
        const struct syi_param *param = &l->model.param[i];
        const struct sy_tensor *t = syi_session_find_any(session, SYI_ROLE_PARAMETER, param->id);
        if (t) syi_param_init(param, 1, t, NULL);
    }
    if (!mask || !tokens) return;
    for (int64_t i = 0; i < mask->dim[0] * mask->dim[1]; i++) ((float *)mask->data)[i] = 1;
    *(float *)tokens->data = (float)(mask->dim[0] * mask->dim[1]);
}

/* Fastest times of these kinds of ops, added. */
static double sum_of(const struct bench_rows *rows, const char *const *names, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += bench_find(rows, names[i]).least;
    return sum;
}

static void take_parts(struct layer *l)
{
    const struct bench_rows *rows = &l->rows;
    static const char *const dispatch[] = {"route",         "gate",    "gate_grad",   "dispatch",
                                           "dispatch_grad", "combine", "combine_grad"};
    static const char *const router[] = {"matmul",       "matmul_nt",   "matmul_tn",       "softmax",
                                         "softmax_grad", "router_loss", "router_loss_grad"};
    static const char *const products[2][3] = {{"matmul", "matmul_nt", "matmul_tn"},
                                               {"grouped_matmul", "grouped_matmul_nt", "grouped_matmul_tn"}};
    int sparse = l->config.moe.num_experts > 0;
    for (int i = 0; i < 3; i++) {
        l->flops += bench_find(rows, products[sparse][i]).flops / (double)rows->runs;
    }
    if (!sparse) return;
    l->dispatch = sum_of(rows, dispatch, SYI_COUNT(dispatch));
    l->router = sum_of(rows, router, SYI_COUNT(router));
}

static int measure_update(struct layer *l, const struct bench_micro *micro, struct sy_error *err)
{
    struct bench_trial trial;
    struct bench_times times;
    struct bench_rows rows;
    int status = bench_update_trial(micro, &l->model, &l->config, 0, &trial, err);
    if (!status) status = bench_try(micro, &trial, &times, &rows, err);
    if (status) return status;
    l->update = times.min;
    bench_rows_free(&rows);
    return SY_OK;
}

static int measure(struct layer *l, const struct bench_micro *micro, const struct syi_shape *shape,
                   struct sy_error *err)
{
    struct bench_times times;
    int status = record(l, micro, shape, err);
    if (!status) {
        struct bench_trial trial = {.program = l->build.p, .fill = fill, .arg = l};
        status = bench_try(micro, &trial, &times, &l->rows, err);
    }
    if (!status) {
        l->seconds = times.min;
        take_parts(l);
        status = measure_update(l, micro, err);
    }
    return status;
}

static void free_layer(struct layer *l)
{
    syi_model_free(&l->model);
    bench_rows_free(&l->rows);
}

/* ---- printing ---- */

/* bound: the larger of the FLOPs at the dense layer's rate and what must be read and written at the speed of a copy. */
static void put(struct bench_micro *micro, const struct layer *l, const struct layer *dense)
{
    double arithmetic = l->flops * dense->seconds / dense->flops;
    double copy = micro->machine.copy, bound = copy > 0 ? fmax(arithmetic, l->bytes / copy) : NAN;
    double whole = (l->seconds + l->update) / (dense->seconds + dense->update);
    const struct bench_number numbers[] = {
        {"ms", 1e3 * l->seconds, 3},
        {"gflop", 1e-9 * l->flops, 3},
        {"to_dense_flops", l->seconds / arithmetic, 3},
        {"to_bound", l->seconds / bound, 3},
        {"dispatch_ms", 1e3 * l->dispatch, 3},
        {"router_ms", 1e3 * l->router, 3},
        {"update_ms", 1e3 * l->update, 3},
        {"whole_to_dense", whole, 3},
        {"update_percent", 100 * l->update / (l->seconds + l->update), 1},
    };
    bench_put_row(micro->out, l->name, numbers, SYI_COUNT(numbers));
}

static void configure(struct layer *l, const int64_t *shape, int64_t experts)
{
    struct syi_config *c = &l->config;
    if (experts)
        snprintf(l->name, sizeof l->name, "%lld experts", (long long)experts);
    else
        snprintf(l->name, sizeof l->name, "dense");
    c->model.d_model = shape[2];
    c->model.d_ff = shape[3];
    c->moe.num_experts = experts;
    c->moe.num_selected_experts = 1;
    c->moe.train_capacity_factor = 1;
}

static int run(struct bench_micro *micro, struct sy_error *err)
{
    static const int64_t experts[] = {0, 8, 64, 256};
    int64_t shape[4] = {8, 512, 512, 1024};
    struct layer *l = syi_alloc(SYI_COUNT(experts) * sizeof *l, err);
    int status = l ? SY_OK : SY_ENOMEM;
    if (micro->n_shape) memcpy(shape, micro->shape, sizeof shape);
    struct syi_shape rows = {.rows = shape[0],
                             .input_length = shape[1],
                             .target_length = shape[1],
                             .longest_length = shape[1],
                             .shortest_length = shape[1]};
    bench_table(micro->out, "layers");
    for (size_t i = 0; !status && i < SYI_COUNT(experts); i++) {
        l[i].config = micro->config;
        configure(&l[i], shape, experts[i]);
        status = measure(&l[i], micro, &rows, err);
        if (!status) put(micro, &l[i], &l[0]);
    }
    bench_table_end(micro->out);
    for (size_t i = 0; !status && micro->options->profile && i < SYI_COUNT(experts); i++)
        bench_put_rows(micro->out, l[i].name, &l[i].rows, (double)l[i].rows.runs);
    if (!status) {
        const struct bench_number numbers[] = {{"dispatch_256_to_8", l[3].dispatch / l[1].dispatch, 3}};
        bench_put_numbers(micro->out, "summary", numbers, SYI_COUNT(numbers));
    }
    for (size_t i = 0; l && i < SYI_COUNT(experts); i++) free_layer(&l[i]);
    syi_free(l);
    return status;
}

const struct bench_kind bench_moe = {"moe", "ROWSxLENGTHxEMBEDxMLP", 4, run};
