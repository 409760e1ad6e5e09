/* SPDX-License-Identifier: Apache-2.0 */
/* bench optimizer: the update program of one large matrix: norm of its gradient, the finite check and the
 * optimizer's pass over memory. */
#include "config.h"

#include <stdio.h>

#include "cli/bench/bench.h"
#include "optim/optim.h"

static void fill(void *arg, struct syi_session *session)
{
    const struct bench_micro *micro = arg;
    struct sy_error ignored = {0};
    float value[SYI_OPTIM_SCALARS] = {0};
    struct syi_chain *chains =
        syi_chains_make(&micro->config, &ignored); /* as when the program was recorded */
    if (chains) syi_optim_scalars(&micro->config, chains, 0, micro->config.train.learning_rate, value);
    for (int i = 0; i < SYI_OPTIM_SCALARS; i++) {
        const struct sy_tensor *t = syi_session_find_any(session, SYI_ROLE_OPTIM_SCALAR, (uint32_t)i);
        if (t) *(float *)t->data = value[i];
    }
    syi_chains_free(chains, micro->config.optimizer.n);
}

int bench_update_trial(const struct bench_micro *micro, const struct syi_model *model,
                       const struct syi_config *config, struct bench_trial *trial, struct sy_error *err)
{
    struct syi_shape rows = {.rows = 1, .longest_length = 1, .shortest_length = 1};
    uint32_t leaf_count[SYI_AXIS_COUNT];
    const struct syi_update_options options = {.config = config, .model = model, .leaf_count = leaf_count};
    syi_leaves(config, &rows, leaf_count);
    trial->fill = fill;
    trial->arg = (void *)micro;
    return syi_record_update(&options, &trial->program, err);
}

/* One matrix. */
static int record(const struct bench_micro *micro, const int64_t *shape, struct bench_trial *trial,
                  struct sy_error *err)
{
    struct syi_config c = micro->config;
    struct syi_param param = {.name = "weights",
                              .rank = 2,
                              .dim = {shape[0], shape[1], 1, 1, 1},
                              .axis = {SYI_AXIS_EMBED, SYI_AXIS_MLP}};
    struct syi_model model = {.param = &param, .n = 1};
    c.model.d_model = shape[0];
    c.model.d_ff = shape[1];
    return bench_update_trial(micro, &model, &c, trial, err);
}

static void put(struct bench_micro *micro, const char *name, double seconds, double bytes, double elements)
{
    const struct bench_number numbers[] = {
        {"min_ms", 1e3 * seconds, 3},
        {"ns_per_element", 1e9 * seconds / elements, 4},
        {"gb_per_second", 1e-9 * bytes / seconds, 1},
        {"percent_of_copy", 100 * bytes / seconds / micro->machine.copy, 1},
    };
    bench_put_row(micro->out, name, numbers, SYI_COUNT(numbers));
}

static int run(struct bench_micro *micro, struct sy_error *err)
{
    int64_t shape[2] = {4096, 4096};
    struct bench_trial trial;
    struct bench_times times;
    struct bench_rows rows;
    double bytes = 0;
    for (int i = 0; i < micro->n_shape; i++) shape[i] = micro->shape[i];
    int status = record(micro, shape, &trial, err);
    if (!status) status = bench_try(micro, &trial, &times, &rows, err);
    if (status) return status;
    double elements = (double)shape[0] * (double)shape[1];
    bench_table(micro->out, "ops");
    for (size_t i = 0; i < rows.n; i++) {
        const struct bench_row *r = &rows.row[i];
        double traffic = r->bytes / (double)rows.runs;
        bytes += traffic;
        put(micro, r->name, r->least, traffic, elements);
    }
    put(micro, "all", times.min, bytes, elements);
    bench_table_end(micro->out);
    bench_rows_free(&rows);
    return SY_OK;
}

const struct bench_kind bench_optimizer = {"optimizer", "ROWSxCOLUMNS", 2, run};
