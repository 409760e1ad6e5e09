/* SPDX-License-Identifier: Apache-2.0 */
/* bench gemm: x w, x w^T and x^T y at the shapes of T5 models, as shares of the machine's peak; x w also of weights that lie in
 * panels beforehand, where the backend has such products. Results are of the operands' dtype, as they are between the products
 * of a layer, those of x^T y float32, as gradients of weights are. Leaves are those a model of these extents has: none along k in x w,
 * up to reproducible.blocks in the others. With --places N a run has N products of other operands and results, so that these come from
 * memory, as in a step. Where the build has a BLAS, its rates stand beside ours. */
#include "config.h"

#include <stdio.h>

#include "cli/bench/bench.h"
#include "program/record.h"

enum { MOST_SHAPES = 64, ROW_LENGTH = 32 }; /* tokens of a row, where that divides m */

struct product {
    const char *name;
    int op; /* enum sy_op */
};
static const struct product products[] = {
    {"nn", SY_OP_MATMUL}, {"np", SY_OP_MATMUL_PANELS}, {"nt", SY_OP_MATMUL_NT}, {"tn", SY_OP_MATMUL_TN}};

/* Whether there is such a product: of weights in panels not in every dtype, backend and shape. */
static int is_there(const struct bench_micro *micro, const struct product *product, const int64_t *shape)
{
    if (!syi_op_multiplies_panels(product->op)) return 1;
    return micro->dtype == SY_BF16 && syi_backend_has_panels(micro->rank->backend) &&
           shape[1] % SY_PANEL_LEAF == 0 && shape[2] % SY_PANEL_COLUMNS == 0;
}

/* An operand; no two tensors that a program shares have one name. */
static int input(const struct bench_micro *micro, struct syi_program *p, const char *name, int rank,
                 const int64_t *dim, const uint8_t *axis)
{
    char unique[32];
    snprintf(unique, sizeof unique, "%s%zu", name, p->n_tensors);
    return syi_tensor_add(p, unique, SYI_INPUT, micro->dtype, rank, dim, axis);
}

/* Weights [k, n] in panels. */
static int input_panels(const struct bench_micro *micro, struct syi_program *p, const int64_t *dim,
                        const uint8_t *axis)
{
    struct syi_tensor w = {.rank = 2, .dim = {dim[0], dim[1]}, .axis = {axis[0], axis[1]}};
    w = syi_in_panels(&w, 0);
    return input(micro, p, "w", w.rank, w.dim, w.axis);
}

/* Tokens of a row. */
static int64_t row_length(const int64_t *shape)
{
    return shape[0] % ROW_LENGTH ? 1 : ROW_LENGTH;
}

/* One product of operands of its own. */
static void record_product(const struct bench_micro *micro, int op, const int64_t *shape,
                           struct syi_program *p)
{
    const int64_t t = row_length(shape), rows = shape[0] / t, k = shape[1], n = shape[2];
    const int64_t x[] = {rows, t, k}, y[] = {rows, t, n}, w[] = {k, n};
    const uint8_t x_axis[] = {SYI_AXIS_BATCH, SYI_AXIS_LENGTH, SYI_AXIS_EMBED};
    const uint8_t y_axis[] = {SYI_AXIS_BATCH, SYI_AXIS_LENGTH, SYI_AXIS_MLP};
    const uint8_t w_axis[] = {SYI_AXIS_EMBED, SYI_AXIS_MLP};
    char name[32];
    int result;
    SYI_AT(p);
    if (op == SY_OP_MATMUL)
        result = syi_matmul(p, input(micro, p, "x", 3, x, x_axis), input(micro, p, "w", 2, w, w_axis));
    else if (op == SY_OP_MATMUL_PANELS)
        result = syi_matmul_panels(p, input(micro, p, "x", 3, x, x_axis), input_panels(micro, p, w, w_axis));
    else if (op == SY_OP_MATMUL_NT)
        result = syi_matmul_nt(p, input(micro, p, "y", 3, y, y_axis), input(micro, p, "w", 2, w, w_axis));
    else
        result = syi_matmul_tn(p, input(micro, p, "x", 3, x, x_axis), input(micro, p, "y", 3, y, y_axis));
    if (op != SY_OP_MATMUL_TN) result = syi_as(p, result, micro->dtype);
    snprintf(name, sizeof name, "result%zu", p->n_tensors);
    syi_output(p, result, name);
}

static int record(const struct bench_micro *micro, int op, const int64_t *shape, struct syi_program **out,
                  struct sy_error *err)
{
    const int64_t t = row_length(shape);
    struct syi_config *c = syi_config_copy(&micro->config, err);
    struct syi_shape rows = {.rows = shape[0] / t, .longest_length = t, .shortest_length = t};
    struct syi_program *p;
    int status = c ? syi_program_new("gemm", &p, err) : SY_ENOMEM;
    if (!status) {
        c->model.d_model = shape[1];
        c->model.d_ff = shape[2];
        syi_leaves(c, &rows, p->leaf_count);
    }
    syi_free(c);
    if (status) return status;
    for (int i = 0; i < micro->places; i++) record_product(micro, op, shape, p);
    *out = p;
    return SY_OK;
}

struct rate {
    double median, least; /* seconds: of a call in a run, of the fastest call */
    double flops, share;  /* a second; percent of the machine's peak at that time */
    double peak;
};

static int measure(const struct bench_micro *micro, const struct product *product, const int64_t *shape,
                   struct rate *rate, struct sy_error *err)
{
    struct bench_trial trial = {0};
    struct bench_machine now = micro->machine;
    struct bench_times times;
    struct bench_rows rows;
    int status = bench_peaks_now(&now, err);
    if (!status) status = record(micro, product->op, shape, &trial.program, err);
    if (!status) status = bench_try(micro, &trial, &times, &rows, err);
    if (status) return status;
    struct bench_row row = bench_find(&rows, syi_op_info(product->op)->name);
    const double least = row.least / micro->places, flops = row.flops / (double)row.calls / least;
    *rate = (struct rate){times.median / micro->places, least, flops, bench_share(&now, micro->dtype, flops),
                          bench_peak(&now, micro->dtype)};
    bench_rows_free(&rows);
    return SY_OK;
}

/* The float32 products of the BLAS in the CPU backend, to be measured in turn with ours; *blas NULL: there is none
 * in this build, or none of these dtype. Says which. */
static int open_blas(const struct bench_micro *micro, struct syi_backend **blas, struct sy_error *err)
{
    const struct sy_backend_option options[] = {{"variant", "blas"}, {NULL, NULL}};
    struct sy_error why = {0};
    *blas = NULL;
    int status =
        micro->dtype == SY_F32 ? syi_backend_open("cpu", options, micro->rank->threads, blas, &why) : SY_OK;
    if (status == SY_ENOMEM) return syi_error(err, status, "%s", why.text);
    bench_put_text(micro->out, "library",
                   *blas    ? (*blas)->description
                   : status ? why.text
                            : "none of this dtype");
    return SY_OK;
}

/* Percents of the peak of one product of one shape, [1]: of the BLAS, if there is one. */
static int try_shape(const struct bench_micro *micro, struct syi_backend *blas, const struct product *product,
                     const int64_t *shape, double percent[2], struct sy_error *err)
{
    struct rate own, other = {0};
    struct bench_micro with_blas = *micro;
    struct syi_rank rank = *micro->rank;
    char label[80];
    with_blas.rank = &rank;
    rank.backend = blas;
    int status = measure(micro, product, shape, &own, err);
    if (!status && blas) status = measure(&with_blas, product, shape, &other, err);
    if (status) return status;
    snprintf(label, sizeof label, "%s %lldx%lldx%lld", product->name, (long long)shape[0],
             (long long)shape[1], (long long)shape[2]);
    const struct bench_number numbers[] = {
        {"median_us", own.median * 1e6, 1}, {"min_us", own.least * 1e6, 1},
        {"gflops", own.flops * 1e-9, 1},    {"peak_gflops", own.peak * 1e-9, 1},
        {"percent_of_peak", own.share, 1},  {"blas_gflops", other.flops * 1e-9, 1},
        {"blas_percent", other.share, 1}};
    bench_put_row(micro->out, label, numbers, SYI_COUNT(numbers) - (blas ? 0 : 2));
    percent[0] = own.share;
    percent[1] = other.share;
    return SY_OK;
}

static int list_shapes(const struct bench_micro *micro, int64_t shape[MOST_SHAPES][3])
{
    static const int64_t m[] = {384, 1024, 2048, 4096}, width[] = {256, 512, 1024, 2048};
    int n = 0;
    if (micro->n_shape) {
        for (int i = 0; i < 3; i++) shape[0][i] = micro->shape[i];
        return 1;
    }
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++)
            for (int k = 0; k < 4; k++, n++) {
                shape[n][0] = m[i];
                shape[n][1] = width[j];
                shape[n][2] = width[k];
            }
    return n;
}

/* Percents of the peak of all shapes of one product: ours, then the BLAS's. */
struct summary {
    double own[MOST_SHAPES], blas[MOST_SHAPES];
    int n; /* shapes; 0: there is no such product */
};

static void put_summary(const struct bench_micro *micro, const char *name, struct summary *s, int blas)
{
    struct bench_times own = bench_times(s->own, s->n),
                       other = bench_times(s->blas, s->n); /* percents, not seconds */
    const struct bench_number numbers[] = {{"median_percent", own.median, 1},
                                           {"min_percent", own.min, 1},
                                           {"blas_median", other.median, 1},
                                           {"blas_min", other.min, 1}};
    bench_put_row(micro->out, name, numbers, blas ? 4 : 2);
}

/* All shapes that the product has. */
static int try_product(const struct bench_micro *micro, struct syi_backend *blas,
                       const struct product *product, struct summary *s, struct sy_error *err)
{
    int64_t shape[MOST_SHAPES][3];
    double percent[2] = {0};
    const int shapes = list_shapes(micro, shape);
    int status = SY_OK;
    s->n = 0;
    for (int i = 0; !status && i < shapes; i++) {
        if (!is_there(micro, product, shape[i])) continue;
        status = try_shape(micro, blas, product, shape[i], percent, err);
        s->own[s->n] = percent[0];
        s->blas[s->n++] = percent[1];
    }
    return status;
}

static int run_all(const struct bench_micro *micro, struct syi_backend *blas, struct sy_error *err)
{
    struct summary summary[SYI_COUNT(products)];
    int status = SY_OK;
    bench_table(micro->out, "shapes");
    for (size_t i = 0; !status && i < SYI_COUNT(products); i++)
        status = try_product(micro, blas, &products[i], &summary[i], err);
    bench_table_end(micro->out);
    if (status || micro->machine.f32 <= 0) return status; /* the summary is of shares */
    bench_table(micro->out, "summary");
    for (size_t i = 0; i < SYI_COUNT(products); i++)
        if (summary[i].n) put_summary(micro, products[i].name, &summary[i], blas != NULL);
    bench_table_end(micro->out);
    return SY_OK;
}

static int run(struct bench_micro *micro, struct sy_error *err)
{
    struct syi_backend *blas;
    int status = open_blas(micro, &blas, err);
    if (!status) status = run_all(micro, blas, err);
    syi_backend_close(blas);
    return status;
}

const struct bench_kind bench_gemm = {"gemm", "MxKxN", 3, run};
