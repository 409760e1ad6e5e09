/* SPDX-License-Identifier: Apache-2.0 */
/* bench gemm: x w, x w^T and x^T y at the shapes of T5 models, as shares of the machine's peak. Leaves are
 * those a model of these extents has: none along k in x w, up to reproducible.blocks in the others. */
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
    {"nn", SY_OP_MATMUL}, {"nt", SY_OP_MATMUL_NT}, {"tn", SY_OP_MATMUL_TN}};

static int input(const struct bench_micro *micro, struct syi_program *p, const char *name, int rank,
                 const int64_t *dim, const uint8_t *axis)
{
    return syi_tensor_add(p, name, SYI_INPUT, micro->dtype, rank, dim, axis);
}

static int record(const struct bench_micro *micro, int op, const int64_t *shape, struct syi_program **out,
                  struct sy_error *err)
{
    int64_t m = shape[0], k = shape[1], n = shape[2], t = m % ROW_LENGTH ? 1 : ROW_LENGTH;
    struct syi_config c = micro->config;
    struct syi_shape rows = {.rows = m / t, .longest_length = t, .shortest_length = t};
    const int64_t x[] = {m / t, t, k}, y[] = {m / t, t, n}, w[] = {k, n};
    const uint8_t x_axis[] = {SYI_AXIS_BATCH, SYI_AXIS_LENGTH, SYI_AXIS_EMBED};
    const uint8_t y_axis[] = {SYI_AXIS_BATCH, SYI_AXIS_LENGTH, SYI_AXIS_MLP};
    const uint8_t w_axis[] = {SYI_AXIS_EMBED, SYI_AXIS_MLP};
    struct syi_program *p;
    int result, status = syi_program_new("gemm", &p, err);
    if (status) return status;
    c.model.d_model = k;
    c.model.d_ff = n;
    syi_leaves(&c, &rows, p->leaf_count);
    SYI_AT(p);
    if (op == SY_OP_MATMUL)
        result = syi_matmul(p, input(micro, p, "x", 3, x, x_axis), input(micro, p, "w", 2, w, w_axis));
    else if (op == SY_OP_MATMUL_NT)
        result = syi_matmul_nt(p, input(micro, p, "y", 3, y, y_axis), input(micro, p, "w", 2, w, w_axis));
    else
        result = syi_matmul_tn(p, input(micro, p, "x", 3, x, x_axis), input(micro, p, "y", 3, y, y_axis));
    syi_output(p, result, "result");
    *out = p;
    return SY_OK;
}

/* Percent of peak of one product of one shape. */
static int try_shape(struct bench_micro *micro, const struct product *product, const int64_t *shape,
                     double *percent, struct sy_error *err)
{
    struct bench_trial trial = {0};
    struct bench_times times;
    struct bench_rows rows;
    char label[80];
    int status = record(micro, product->op, shape, &trial.program, err);
    if (!status) status = bench_try(micro, &trial, &times, &rows, err);
    if (status) return status;
    struct bench_row row = bench_find(&rows, syi_op_info(product->op)->name);
    double flops = row.flops / (double)row.calls, peak = bench_peak(&micro->machine, micro->dtype);
    *percent = 100 * flops / row.least / peak;
    snprintf(label, sizeof label, "%s %lldx%lldx%lld", product->name, (long long)shape[0],
             (long long)shape[1], (long long)shape[2]);
    const struct bench_number numbers[] = {{"median_us", times.median * 1e6, 1},
                                           {"min_us", row.least * 1e6, 1},
                                           {"gflops", flops / row.least * 1e-9, 1},
                                           {"percent_of_peak", *percent, 1}};
    bench_put_row(micro->out, label, numbers, SYI_COUNT(numbers));
    bench_rows_free(&rows);
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

static int run(struct bench_micro *micro, struct sy_error *err)
{
    int64_t shape[MOST_SHAPES][3];
    double percent[SYI_COUNT(products)][MOST_SHAPES];
    int n = list_shapes(micro, shape), status = SY_OK;
    bench_table(micro->out, "shapes");
    for (size_t i = 0; i < SYI_COUNT(products); i++)
        for (int k = 0; !status && k < n; k++)
            status = try_shape(micro, &products[i], shape[k], &percent[i][k], err);
    bench_table_end(micro->out);
    if (status) return status;
    bench_table(micro->out, "summary");
    for (size_t i = 0; i < SYI_COUNT(products); i++) {
        struct bench_times t = bench_times(percent[i], n); /* percents in place of seconds */
        const struct bench_number numbers[] = {{"median_percent", t.median, 1}, {"min_percent", t.min, 1}};
        bench_put_row(micro->out, products[i].name, numbers, SYI_COUNT(numbers));
    }
    bench_table_end(micro->out);
    return SY_OK;
}

const struct bench_kind bench_gemm = {"gemm", "MxKxN", 3, run};
