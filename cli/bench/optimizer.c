/* SPDX-License-Identifier: Apache-2.0 */
/* bench optimizer: the update program of many matrices, under each named optimizer, beside a loop that reads and writes as
 * much memory as AdamW has to and computes next to nothing. The least traffic of an optimizer reads gradients, weights and
 * state once and writes weights and state once. The norm of all gradients is made of blocks that come with them, as in
 * training. A last row has AdamW with all that a step may want besides: the norm from the gradients, which are read twice then,
 * metrics of the weights, and their copies in bfloat16. */
#include "config.h"

#include <math.h>
#include <stdio.h>

#include "cli/bench/bench.h"
#include "optim/optim.h"

static void fill(void *arg, struct syi_session *session)
{
    const struct bench_micro *micro = arg;
    float value[SYI_OPTIM_SCALARS] = {0};
    struct syi_chain *chains = NULL;
    if (!syi_chains_make(&micro->config, &chains, NULL)) /* as when it was recorded */
        syi_optim_scalars(&micro->config, chains, 0, micro->config.train.learning_rate, 1, value);
    for (int i = 0; i < SYI_OPTIM_SCALARS; i++) {
        const struct sy_tensor *t = syi_session_find_any(session, SYI_ROLE_OPTIM_SCALAR, (uint32_t)i);
        if (t) *(float *)t->data = value[i];
    }
    syi_chains_free(chains, micro->config.optimizer.n);
}

int bench_update_trial(const struct bench_micro *micro, const struct syi_model *model,
                       const struct syi_config *config, int whole, struct bench_trial *trial,
                       struct sy_error *err)
{
    struct syi_shape rows = {.rows = 1, .longest_length = 1, .shortest_length = 1};
    uint32_t leaf_count[SYI_AXIS_COUNT];
    const struct syi_update_options options = {
        .config = config, .model = model, .leaf_count = leaf_count, .carried = !whole, .weigh = whole};
    syi_leaves(config, &rows, leaf_count);
    trial->fill = fill;
    trial->arg = (void *)micro;
    return syi_record_update(&options, &trial->program, err);
}

/* ---- the plain loop ---- */

enum { STREAM_BYTES = 1 << 28, STREAM_ROUNDS = 5, VECTOR = 16 };
typedef float vector __attribute__((vector_size(VECTOR * sizeof(float)), aligned(4), may_alias));

/* Four arrays that are read, three of which are written. */
struct stream {
    float *a, *b, *c, *g;
    int64_t share; /* elements of a thread */
};

static void stream_share(void *arg, int64_t task, int thread)
{
    const struct stream *s = arg;
    (void)thread;
    for (int64_t i = task * s->share; i < (task + 1) * s->share; i += VECTOR) {
        vector g = *(const vector *)(s->g + i);
        *(vector *)(s->a + i) += g;
        *(vector *)(s->b + i) += g;
        *(vector *)(s->c + i) += g;
    }
}

static void touch_share(void *arg, int64_t task, int thread)
{
    const struct stream *s = arg;
    (void)thread;
    for (int64_t i = task * s->share; i < (task + 1) * s->share; i++)
        s->a[i] = s->b[i] = s->c[i] = s->g[i] = 1;
}

/* Bytes a second, read and written, of all threads. */
static int measure_stream(const struct bench_micro *micro, double *rate, struct sy_error *err)
{
    struct syi_threads *pool = micro->rank->threads;
    int threads = micro->machine.threads;
    struct stream s = {.share = (int64_t)(STREAM_BYTES / sizeof(float)) / threads / VECTOR * VECTOR};
    float **array[] = {&s.a, &s.b, &s.c, &s.g};
    double best = INFINITY;
    int status = SY_OK;
    for (size_t i = 0; i < SYI_COUNT(array) && !status; i++)
        if (!(*array[i] = syi_alloc(STREAM_BYTES, err))) status = SY_ENOMEM;
    for (int round = 0; round < STREAM_ROUNDS && !status; round++) {
        if (!round) syi_threads_for(pool, threads, touch_share, &s);
        double begin = syi_seconds();
        syi_threads_for(pool, threads, stream_share, &s);
        best = fmin(best, syi_seconds() - begin);
    }
    *rate = 7.0 * sizeof(float) * (double)s.share * threads / best;
    for (size_t i = 0; i < SYI_COUNT(array); i++) syi_free(*array[i]);
    return status;
}

/* ---- the optimizers ---- */

/* shape[0] matrices of shape[1] x shape[2]. */
static struct syi_param *make_matrices(const int64_t *shape, struct sy_error *err)
{
    struct syi_param *param = syi_alloc((size_t)shape[0] * sizeof *param, err);
    for (int64_t i = 0; param && i < shape[0]; i++) {
        param[i] = (struct syi_param){.id = (uint32_t)i,
                                      .rank = 2,
                                      .dim = {shape[1], shape[2], 1, 1, 1},
                                      .axis = {SYI_AXIS_EMBED, SYI_AXIS_MLP}};
        snprintf(param[i].name, sizeof param[i].name, "weights_%04lld", (long long)i);
    }
    return param;
}

/* The model with a copy in bfloat16 of each matrix, which its programs of gradients are said to read. */
static struct syi_copy *make_copies(const struct syi_model *model, struct sy_error *err)
{
    struct syi_copy *copy = syi_alloc(model->n * sizeof *copy, err);
    for (uint32_t i = 0; copy && i < model->n; i++) {
        copy[i] = (struct syi_copy){.trained = 1, .n = 1, .part = {i}};
        snprintf(copy[i].name, sizeof copy[i].name, "bf16/%s", model->param[i].name);
    }
    return copy;
}

/* Elements of state of a program. */
static double state_elements(const struct syi_program *p)
{
    double n = 0;
    for (size_t i = 0; i < p->n_tensors; i++)
        if (p->tensor[i].kind == SYI_STATE) n += (double)syi_tensor_count(&p->tensor[i]);
    return n;
}

/* A row. whole: with all that a step may want besides. */
static int measure(struct bench_micro *micro, const struct syi_model *model, const int64_t *shape, int whole,
                   double stream, struct sy_error *err)
{
    const char *name =
        whole ? "adamw_norm_metrics_copies" : syi_optimizer_info(micro->config.optimizer.part[0].name)->name;
    struct syi_config *c = syi_config_copy(&micro->config, err);
    struct bench_trial trial;
    struct bench_times times;
    struct bench_rows rows;
    if (!c) return SY_ENOMEM;
    c->model.d_model = shape[1];
    c->model.d_ff = shape[2];
    int status = bench_update_trial(micro, model, c, whole, &trial, err);
    syi_free(c);
    if (status) return status;
    double elements = (double)(shape[0] * shape[1] * shape[2]);
    double least = sizeof(float) * (3 * elements + 2 * state_elements(trial.program)), moved = 0;
    if (whole) least += (sizeof(float) + sizeof(uint16_t)) * elements;
    status = bench_try(micro, &trial, &times, &rows, err);
    if (status) return status;
    for (size_t i = 0; i < rows.n; i++) moved += rows.row[i].bytes / (double)rows.runs;
    const struct bench_number numbers[] = {
        {"median_ms", 1e3 * times.median, 2},
        {"min_ms", 1e3 * times.min, 2},
        {"ns_per_element", 1e9 * times.median / elements, 3},
        {"least_gb", 1e-9 * least, 3},
        {"traffic_to_least", moved / least, 2},
        {"percent_of_stream", 100 * least / times.median / stream, 1},
    };
    bench_put_row(micro->out, name, numbers, SYI_COUNT(numbers));
    bench_rows_free(&rows);
    return SY_OK;
}

/* AdamW with all that a step may want besides. */
static int measure_whole(struct bench_micro *micro, const struct syi_model *model, const int64_t *shape,
                         double stream, struct sy_error *err)
{
    struct syi_model copied = *model;
    copied.copy = make_copies(model, err);
    copied.n_copies = model->n;
    micro->config.optimizer.part[0].name = SYI_OPTIMIZER_ADAMW;
    int status = copied.copy ? measure(micro, &copied, shape, 1, stream, err) : SY_ENOMEM;
    syi_free(copied.copy);
    return status;
}

/* Of all that need no further keys; a given one alone. */
static int measure_all(struct bench_micro *micro, const struct syi_model *model, const int64_t *shape,
                       double stream, struct sy_error *err)
{
    struct syi_optimizer_part *part = &micro->config.optimizer.part[0];
    int chosen = part->name != SYI_OPTIMIZER_ADAMW || micro->config.optimizer.n > 1, status = SY_OK;
    if (chosen) return measure(micro, model, shape, 0, stream, err);
    for (int name = 0; name < SYI_OPTIMIZER_CHAIN && !status; name++) {
        if (name == SYI_OPTIMIZER_DPSGD) continue;
        part->name = name;
        status = measure(micro, model, shape, 0, stream, err);
    }
    return status ? status : measure_whole(micro, model, shape, stream, err);
}

static int run(struct bench_micro *micro, struct sy_error *err)
{
    int64_t shape[3] = {95, 512, 1024};
    double stream;
    for (int i = 0; i < micro->n_shape; i++) shape[i] = micro->shape[i];
    int status = measure_stream(micro, &stream, err);
    if (status) return status;
    struct syi_model model = {.param = make_matrices(shape, err), .n = (size_t)shape[0]};
    if (!model.param) return SY_ENOMEM;
    const struct bench_number number = {"gb_per_second", 1e-9 * stream, 1};
    bench_put_numbers(micro->out, "stream", &number, 1);
    bench_table(micro->out, "optimizers");
    status = measure_all(micro, &model, shape, stream, err);
    if (!status) bench_table_end(micro->out);
    syi_free(model.param);
    return status;
}

const struct bench_kind bench_optimizer = {"optimizer", "TENSORSxROWSxCOLUMNS", 3, run};
