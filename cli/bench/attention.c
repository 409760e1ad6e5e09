/* SPDX-License-Identifier: Apache-2.0 */
/* bench attention: encoder, decoder and cross attention, forward and backward, with bias table, lengths and
 * dropout as a model has them. */
#include "config.h"

#include <stdio.h>

#include "cli/bench/bench.h"
#include "program/grad.h"
#include "program/record.h"

struct shape {
    const char *name;
    int64_t rows, queries, keys, heads;
    int causal, cross;
};

/* One recording: operands and how long each row is. */
struct recording {
    struct syi_program *p;
    struct shape shape;
    int of[3], n_of; /* what is differentiated */
};

static int add(struct recording *r, const char *name, int dtype, int rank, const int64_t *dim,
               const uint8_t *axis)
{
    return syi_tensor_add(r->p, name, SYI_INPUT, dtype, rank, dim, axis);
}

static struct syi_attention operands(const struct bench_micro *micro, struct recording *r)
{
    static const uint8_t axis[] = {SYI_AXIS_BATCH, SYI_AXIS_LENGTH, SYI_AXIS_HEADS};
    static const uint8_t bias_axis[] = {SYI_AXIS_HEADS, SYI_AXIS_BUCKETS};
    const struct syi_config *c = &micro->config;
    const struct shape *s = &r->shape;
    int64_t columns = s->heads * c->model.head_dim, state = 4;
    const int64_t q[] = {s->rows, s->queries, s->cross ? columns : 3 * columns};
    const int64_t kv[] = {s->rows, s->keys, 2 * columns}, bias[] = {s->heads, c->model.relpos_num_buckets};
    struct syi_attention a = SYI_NO_ATTENTION;
    a.q = a.kv = r->of[r->n_of++] = add(r, "q", micro->dtype, 3, q, axis);
    if (s->cross) a.kv = r->of[r->n_of++] = add(r, "kv", micro->dtype, 3, kv, axis);
    if (!s->cross) a.bias = r->of[r->n_of++] = add(r, "bias", SY_F32, 2, bias, bias_axis);
    a.q_lengths = add(r, "q_lengths", SY_I32, 1, &s->rows, axis);
    a.k_lengths = add(r, "k_lengths", SY_I32, 1, &s->rows, axis);
    a.rng = add(r, "rng", SY_I64, 1, &state, NULL);
    a.heads = s->heads;
    a.head_dim = c->model.head_dim;
    a.bidirectional = !s->causal;
    a.causal = s->causal;
    a.max_distance = c->model.relpos_max_distance;
    a.rate = c->model.dropout_rate;
    return a;
}

static int record(const struct bench_micro *micro, struct recording *r, struct sy_error *err)
{
    struct syi_config *c = syi_config_copy(&micro->config, err);
    const struct shape *s = &r->shape;
    int64_t shorter = s->queries < s->keys ? s->queries : s->keys;
    struct syi_shape rows = {.rows = s->rows, .longest_length = s->keys, .shortest_length = shorter};
    static const uint8_t axis[] = {SYI_AXIS_BATCH, SYI_AXIS_LENGTH, SYI_AXIS_HEADS};
    int lse, gradient[3], status = c ? syi_program_new("attention", &r->p, err) : SY_ENOMEM;
    if (!status) c->model.num_heads = s->heads;
    if (!status) syi_leaves(c, &rows, r->p->leaf_count);
    syi_free(c);
    if (status) return status;
    SYI_AT(r->p);
    struct syi_attention a = operands(micro, r);
    const int64_t dim[] = {s->rows, s->queries, s->heads * micro->config.model.head_dim};
    int weights = add(r, "weights", SY_F32, 3, dim, axis);
    int out = syi_cast(r->p, syi_attention(r->p, &a, &lse), SY_F32);
    int loss = syi_total(r->p, syi_map2(r->p, SY_MAP_MUL, out, weights));
    status = syi_program_status(r->p, err);
    if (!status) status = syi_grad(r->p, loss, r->n_of, r->of, gradient, err);
    for (int i = 0; !status && i < r->n_of; i++) {
        char name[24];
        snprintf(name, sizeof name, "gradient%d", i);
        syi_output(r->p, gradient[i], name);
    }
    if (status) syi_program_free(r->p);
    return status;
}

static void fill(void *arg, struct syi_session *session)
{
    const struct recording *r = arg;
    int32_t *q = syi_session_tensor(session, "q_lengths")->data;
    int32_t *k = syi_session_tensor(session, "k_lengths")->data;
    for (int64_t i = 0; i < r->shape.rows; i++) {
        q[i] = (int32_t)r->shape.queries;
        k[i] = (int32_t)r->shape.keys;
    }
}

static void put(struct bench_micro *micro, const struct shape *s, const char *pass,
                const struct bench_row *row)
{
    char label[80];
    double calls = (double)row->calls, rate = row->flops / calls / row->least;
    snprintf(label, sizeof label, "%s %lldx%lldx%lldx%lld %s", s->name, (long long)s->rows,
             (long long)s->queries, (long long)s->keys, (long long)s->heads, pass);
    const struct bench_number numbers[] = {
        {"mean_us", 1e6 * row->seconds / calls, 1},
        {"min_us", 1e6 * row->least, 1},
        {"gflops", 1e-9 * rate, 1},
        {"peak_gflops", 1e-9 * bench_peak(&micro->machine, micro->dtype), 1},
        {"percent_of_peak", bench_share(&micro->machine, micro->dtype, rate), 1},
        {"gb_per_second", 1e-9 * row->bytes / calls / row->least, 1}};
    bench_put_row(micro->out, label, numbers, SYI_COUNT(numbers));
}

static int try_shape(struct bench_micro *micro, const struct shape *s, struct sy_error *err)
{
    struct recording r = {.shape = *s};
    struct bench_times times;
    struct bench_rows rows;
    int status = bench_peaks_now(&micro->machine, err);
    if (!status) status = record(micro, &r, err);
    if (status) return status;
    struct bench_trial trial = {.program = r.p, .fill = fill, .arg = &r};
    status = bench_try(micro, &trial, &times, &rows, err);
    if (status) return status;
    struct bench_row forward = bench_find(&rows, "attention"), back = bench_find(&rows, "attention_grad");
    put(micro, s, "forward", &forward);
    put(micro, s, "backward", &back);
    bench_rows_free(&rows);
    return SY_OK;
}

static int run(struct bench_micro *micro, struct sy_error *err)
{
    struct shape shapes[] = {{"encoder", 8, 512, 512, 8, 0, 0}, {"decoder", 8, 114, 114, 8, 1, 0},
                             {"cross", 8, 114, 512, 8, 0, 1},   {"encoder", 128, 24, 24, 4, 0, 0},
                             {"decoder", 128, 24, 24, 4, 1, 0}, {"cross", 128, 24, 24, 4, 0, 1}};
    int n = (int)SYI_COUNT(shapes), status = SY_OK;
    if (micro->n_shape) {
        const int64_t *x = micro->shape; /* both stacks and what joins them */
        shapes[0] = (struct shape){"encoder", x[0], x[2], x[2], x[3], 0, 0};
        shapes[1] = (struct shape){"decoder", x[0], x[1], x[1], x[3], 1, 0};
        shapes[2] = (struct shape){"cross", x[0], x[1], x[2], x[3], 0, 1};
        n = 3;
    }
    bench_table(micro->out, "shapes");
    for (int i = 0; !status && i < n; i++) status = try_shape(micro, &shapes[i], err);
    bench_table_end(micro->out);
    return status;
}

const struct bench_kind bench_attention = {"attention", "ROWSxTARGETSxINPUTSxHEADS", 4, run};
