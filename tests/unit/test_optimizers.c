/* SPDX-License-Identifier: Apache-2.0 */
/* Several optimizers in one update program: each parameter goes exactly as it goes alone under the optimizer
 * that has it, bit for bit, and the first part of the file that has a parameter is the one. */
#include "config.h"

#include "model_support.h"

#include "model/model.h"
#include "optim/optim.h"
#include "passes/passes.h"

enum { STEPS = 4 };

static const char *const names[] = {"embedding", "mlp/wi/kernel", "scale"};
static const int64_t dims[][2] = {{16, 8}, {8, 12}, {8, 1}};
static const uint8_t axes[][2] = {
    {SYI_AXIS_VOCAB, SYI_AXIS_EMBED}, {SYI_AXIS_EMBED, SYI_AXIS_MLP}, {SYI_AXIS_EMBED, SYI_AXIS_NONE}};
enum { EMBEDDING, KERNEL, SCALE, PARAMETERS };

static struct syi_config config_of(const char *text)
{
    struct syi_config config;
    struct sy_error err = {0};
    cr_assert_eq(syi_config_defaults(&config, &err), SY_OK, "%s", err.text);
    cr_assert_eq(syi_config_load_text(&config, "test", text, strlen(text), &err), SY_OK, "%s", err.text);
    cr_assert_eq(syi_config_validate(&config, &err), SY_OK, "%s", err.text);
    return config;
}

static int record(const struct syi_config *config, struct syi_program **program, struct sy_error *err)
{
    struct syi_param param[PARAMETERS];
    struct syi_model model = {.param = param, .n = PARAMETERS};
    uint32_t leaves[SYI_AXIS_COUNT];
    for (int i = 0; i < SYI_AXIS_COUNT; i++) leaves[i] = 1;
    for (int i = 0; i < PARAMETERS; i++) {
        param[i] = (struct syi_param){.id = (uint32_t)i,
                                      .rank = i == SCALE ? 1 : 2,
                                      .dim = {dims[i][0], dims[i][1], 1, 1, 1},
                                      .axis = {axes[i][0], axes[i][1]}};
        snprintf(param[i].name, sizeof param[i].name, "%s", names[i]);
    }
    const struct syi_update_options options = {.config = config, .model = &model, .leaf_count = leaves};
    return syi_record_update(&options, program, err);
}

static void fill(struct ms *m, const char *format, uint64_t seed)
{
    struct ms_random random = {seed};
    for (int i = 0; i < PARAMETERS; i++) {
        char name[64];
        snprintf(name, sizeof name, format, names[i]);
        const struct sy_tensor *t = ms_tensor(m, name);
        for (int64_t k = 0; k < ms_count(t); k++) ms_set(t, k, ms_uniform(&random));
    }
}

/* The parameters after some steps, each to be freed. */
static void run(const char *text, void *after[PARAMETERS])
{
    struct syi_config config = config_of(text);
    struct ms m;
    struct syi_program *program;
    struct sy_error err = {0};
    ms_open(&m, 0);
    cr_assert_eq(record(&config, &program, &err), SY_OK, "%s", err.text);
    cr_assert_eq(syi_program_fuse(program, &err), SY_OK, "%s", err.text);
    int update = ms_add(&m, program);
    ms_bind(&m);
    fill(&m, "%s", 3);
    for (int step = 0; step < STEPS; step++) {
        fill(&m, "grad/%s", (uint64_t)step + 11);
        ms_optim_scalars(&m, &config, step, 0.05);
        ms_run(&m, update);
    }
    for (int i = 0; i < PARAMETERS; i++) after[i] = ms_copy(ms_tensor(&m, names[i]));
    ms_close(&m);
}

static int same(void *const a[PARAMETERS], void *const b[PARAMETERS], int i)
{
    return !memcmp(a[i], b[i], (size_t)(dims[i][0] * dims[i][1]) * sizeof(float));
}

static void release(void *after[PARAMETERS])
{
    for (int i = 0; i < PARAMETERS; i++) free(after[i]);
}

#define SLOW "b1 = 0.5\nb2 = 0.9\nweight_decay = 0.1\n"
#define ROWS "name = \"adafactor\"\nmin_dim_size_to_factor = 8\nclipping_threshold = 0.5\ndecay_rate = 0.6\n"

/* Whichever optimizers the others have: gradients are clipped by the norm of all, here as in each run alone. */
Test(optimizers, each_parameter_goes_as_it_goes_alone)
{
    void *plain[PARAMETERS], *slow[PARAMETERS], *rows[PARAMETERS], *mixed[PARAMETERS];
    run("", plain);
    run("[optimizer]\n" SLOW, slow);
    run("[optimizer]\n" ROWS, rows);
    for (int i = 0; i < PARAMETERS; i++)
        cr_assert(!same(plain, slow, i) && !same(plain, rows, i) && !same(slow, rows, i), "%s", names[i]);
    run("[optimizer]\nname = \"adamw\"\n[optimizer.slow]\nmatch = [\"emb*\"]\n" SLOW
        "[optimizer.rows]\nmatch = [\"*wi*\", \"*kernel\"]\n" ROWS,
        mixed);
    cr_expect(same(mixed, slow, EMBEDDING), "a pattern");
    cr_expect(same(mixed, rows, KERNEL), "a pattern after the first");
    cr_expect(same(mixed, plain, SCALE), "no named one has it");
    release(mixed);
    release(plain);
    release(slow);
    release(rows);
}

static void keep_line(void *arg, enum sy_log_level level, const char *line)
{
    if (level == SY_LOG_WARN) snprintf(arg, 300, "%s", line);
}

Test(optimizers, a_pattern_that_no_parameter_has_is_warned_of)
{
    struct syi_config config = config_of("[optimizer.slow]\nmatch = [\"emb*\", \"!mlp/wi/kernels\"]\n");
    struct syi_param param[] = {{.name = "embedding"}, {.name = "mlp/wi/kernel"}};
    struct syi_model model = {.param = param, .n = 2};
    char line[300] = "";
    sy_log_set(keep_line, line);
    syi_warn_of_patterns(&config, &model);
    sy_log_set(NULL, NULL);
    cr_expect(strstr(line, "optimizer.slow.match: \"mlp/wi/kernels\" matches no parameter"), "%s", line);
    cr_expect(strstr(line, ", the nearest: mlp/wi/kernel; `switchyard plan --tensors`"), "%s", line);
}

static void keep_lines(void *arg, enum sy_log_level level, const char *line)
{
    if (level == SY_LOG_WARN) syi_text_printf(arg, "%s\n", line);
}

/* Every list of patterns, and names that are near in their parts, not as a whole. */
Test(optimizers, patterns_of_every_list_are_looked_for)
{
    static const char *const wanted[] = {
        "optimizer.weight_decay_mask: \"*skale\" matches no parameter of the model, the nearest: encoder/norm/scale;",
        "optimizer.a.factor_map: \"*kernels\" matches no parameter of the model, the nearest: encoder/mlp/wi/kernel, "
        "decoder/mlp/wi/kernel;",
        "optimizer.a.parameter_scale_rules: \"*zzzzzz\" matches no parameter of the model; `switchyard",
        "optimizer.b.chain: masked: mask: \"decodr/*\" matches no parameter of the model, the nearest: "
        "decoder/mlp/wi/kernel;",
        "optimizer.b.chain: add_decayed_weights: mask: \"nrom/*\" matches"};
    struct syi_config config = config_of(
        "[optimizer]\nname = \"adamw\"\nweight_decay_mask = [\"!*skale\", \"*\"]\n"
        "[optimizer.a]\nmatch = [\"*kernel\"]\nname = \"adafactor\"\n"
        "factor_map = [\"*kernels: none\", \"*: none\"]\nparameter_scale_rules = [\"*zzzzzz: true\"]\n"
        "[optimizer.b]\nmatch = [\"*embedding\"]\nname = \"chain\"\n"
        "chain = [\"masked(trace, mask=['decodr/*'])\", \"add_decayed_weights(mask=['nrom/*', '*'])\"]\n");
    struct syi_param param[] = {{.name = "encoder/mlp/wi/kernel"},
                                {.name = "decoder/mlp/wi/kernel"},
                                {.name = "encoder/norm/scale"},
                                {.name = "token_embedder/embedding"}};
    struct syi_model model = {.param = param, .n = SYI_COUNT(param)};
    struct syi_text lines = {0};
    int n = 0;
    sy_log_set(keep_lines, &lines);
    syi_warn_of_patterns(&config, &model);
    sy_log_set(NULL, NULL);
    for (size_t i = 0; i < SYI_COUNT(wanted); i++)
        cr_expect(strstr(lines.data, wanted[i]), "%s: wanted %s", lines.data, wanted[i]);
    for (const char *at = lines.data; *at; at++) n += *at == '\n';
    cr_expect_eq(n, (int)SYI_COUNT(wanted), "%s", lines.data);
    syi_text_free(&lines);
}

Test(optimizers, two_parts_that_match_the_same_are_refused)
{
    struct syi_config config =
        config_of("[optimizer.a]\nmatch = [\"mlp*\"]\n[optimizer.b]\nmatch = [\"*scale\", \"*kernel\"]\n");
    struct syi_program *program = NULL;
    struct sy_error err = {0};
    cr_assert_eq(record(&config, &program, &err), SY_EMISMATCH);
    cr_expect(
        strstr(
            err.text,
            "parameter mlp/wi/kernel is matched by optimizer.a.match (\"mlp*\") and by optimizer.b.match (\"*kernel\")"),
        "%s", err.text);
}

Test(optimizers, what_no_optimizer_updates_stays)
{
    void *before[PARAMETERS], *after[PARAMETERS];
    run("[optimizer]\nname = \"none\"\n", before);
    run("[optimizer.a]\nmatch = [\"*kernel\"]\n", after);
    cr_expect(same(before, after, EMBEDDING) && same(before, after, SCALE) && !same(before, after, KERNEL));
    release(before);
    release(after);
}

Test(optimizers, errors_name_the_part)
{
    struct syi_config config = config_of("[optimizer.rows]\nmatch = [\"*kernel\"]\nname = \"adafactor\"\n"
                                         "logical_factor_rules = \"standard\"\n");
    struct syi_model model = {.n = 1};
    struct syi_param param = {.name = "expert/wi/kernel",
                              .rank = 3,
                              .dim = {4, 8, 6, 1, 1},
                              .axis = {SYI_AXIS_EXPERT, SYI_AXIS_EMBED, SYI_AXIS_EXPERT_MLP}};
    uint32_t leaves[SYI_AXIS_COUNT];
    struct syi_program *program = NULL;
    struct sy_error err = {0};
    model.param = &param;
    for (int i = 0; i < SYI_AXIS_COUNT; i++) leaves[i] = 1;
    const struct syi_update_options options = {.config = &config, .model = &model, .leaf_count = leaves};
    cr_assert_eq(syi_record_update(&options, &program, &err), SY_ENOENT);
    cr_expect(strstr(err.text, "set optimizer.rows.logical_factor_rules to moe"), "%s", err.text);
}

/* ---- Muon ---- */

enum { ROWS_OF_KERNEL = 8, COLUMNS_OF_KERNEL = 12 };

/* Five Newton-Schulz iterations in double, plainly. */
static void plain_orthogonal(double x[ROWS_OF_KERNEL][COLUMNS_OF_KERNEL])
{
    for (int step = 0; step < 5; step++) {
        double g[ROWS_OF_KERNEL][ROWS_OF_KERNEL], f[ROWS_OF_KERNEL][ROWS_OF_KERNEL],
            y[ROWS_OF_KERNEL][COLUMNS_OF_KERNEL];
        for (int i = 0; i < ROWS_OF_KERNEL; i++)
            for (int j = 0; j < ROWS_OF_KERNEL; j++) {
                g[i][j] = 0;
                for (int k = 0; k < COLUMNS_OF_KERNEL; k++) g[i][j] += x[i][k] * x[j][k];
            }
        for (int i = 0; i < ROWS_OF_KERNEL; i++)
            for (int j = 0; j < ROWS_OF_KERNEL; j++) {
                f[i][j] = -4.7750 * g[i][j];
                for (int k = 0; k < ROWS_OF_KERNEL; k++) f[i][j] += 2.0315 * g[i][k] * g[k][j];
            }
        for (int i = 0; i < ROWS_OF_KERNEL; i++)
            for (int j = 0; j < COLUMNS_OF_KERNEL; j++) {
                y[i][j] = 3.4445 * x[i][j];
                for (int k = 0; k < ROWS_OF_KERNEL; k++) y[i][j] += f[i][k] * x[k][j];
            }
        memcpy(x, y, sizeof y);
    }
}

Test(optimizers, muon_makes_matrices_orthogonal)
{
    struct syi_config config = config_of("[train]\nclip_norm = 0.0\n[optimizer]\nname = \"muon\"\n");
    struct ms m;
    struct syi_program *program;
    struct sy_error err = {0};
    double x[ROWS_OF_KERNEL][COLUMNS_OF_KERNEL], norm = 0, largest = 0;
    ms_open(&m, 0);
    cr_assert_eq(record(&config, &program, &err), SY_OK, "%s", err.text);
    int update = ms_add(&m, program);
    ms_bind(&m);
    fill(&m, "%s", 3);
    fill(&m, "grad/%s", 11);
    ms_optim_scalars(&m, &config, 0, 0.05);
    const struct sy_tensor *weights = ms_tensor(&m, names[KERNEL]),
                           *gradient = ms_tensor(&m, "grad/mlp/wi/kernel");
    float *before = ms_copy(weights);
    for (int i = 0; i < ROWS_OF_KERNEL * COLUMNS_OF_KERNEL; i++)
        norm += ms_get(gradient, i) * ms_get(gradient, i);
    for (int i = 0; i < ROWS_OF_KERNEL * COLUMNS_OF_KERNEL; i++)
        x[i / COLUMNS_OF_KERNEL][i % COLUMNS_OF_KERNEL] = ms_get(gradient, i) / sqrt(norm);
    plain_orthogonal(x);
    ms_run(&m, update);
    for (int i = 0; i < ROWS_OF_KERNEL * COLUMNS_OF_KERNEL; i++) {
        double want = x[i / COLUMNS_OF_KERNEL][i % COLUMNS_OF_KERNEL];
        double got = ((double)before[i] - ms_get(weights, i)) / (0.05 * 0.2 * sqrt(COLUMNS_OF_KERNEL));
        cr_expect_float_eq(got, want, 2e-5, "element %d: %g instead of %g", i, got, want);
        largest = fmax(largest, fabs(want));
    }
    cr_expect(largest < 1.3, "%g", largest);
    free(before);
    ms_close(&m);
}

/* ---- schedule-free ---- */

static void copy_values(struct ms *m, const char *to, const char *from)
{
    const struct sy_tensor *t = ms_tensor(m, to), *f = ms_tensor(m, from);
    for (int64_t k = 0; k < ms_count(t); k++) ms_set(t, k, ms_get(f, k));
}

/* Gradient descent between its iterates z and their average x, and both in each other's place after an exchange. */
Test(optimizers, schedule_free_averages_iterates)
{
    struct syi_config config = config_of("[train]\nclip_norm = 0.0\n[optimizer]\nname = \"chain\"\n"
                                         "chain = [\"schedule_free(scale_by_learning_rate, b1=0.75)\"]\n");
    static const double rates[STEPS] = {0.05, 0.2, 0.1, 0.3};
    struct ms m;
    struct syi_program *program, *exchange;
    struct sy_error err = {0};
    double z, x, y, most = 0, sum = 0;
    ms_open(&m, 0);
    cr_assert_eq(record(&config, &program, &err), SY_OK, "%s", err.text);
    cr_assert_eq(syi_record_exchange(program, &exchange, &err), SY_OK, "%s", err.text);
    int update = ms_add(&m, program), exchanging = ms_add(&m, exchange);
    ms_bind(&m);
    fill(&m, "%s", 3);
    copy_values(&m, "state/param_states/x/scale", "scale");
    copy_values(&m, "state/param_states/z/scale", "scale");
    z = x = y = ms_get(ms_tensor(&m, "scale"), 2);
    for (int step = 0; step < STEPS; step++) {
        fill(&m, "grad/%s", (uint64_t)step + 11);
        ms_optim_scalars(&m, &config, step, rates[step]);
        z -= rates[step] * ms_get(ms_tensor(&m, "grad/scale"), 2);
        most = fmax(most, rates[step]);
        sum += most * most;
        x += most * most / sum * (z - x);
        y = 0.75 * x + 0.25 * z;
        ms_run(&m, update);
        cr_expect_float_eq(ms_get(ms_tensor(&m, "scale"), 2), y, 1e-6, "step %d", step);
    }
    float *before = ms_copy(ms_tensor(&m, "scale"));
    ms_run(&m, exchanging);
    cr_expect_float_eq(ms_get(ms_tensor(&m, "scale"), 2), x, 1e-6);
    ms_run(&m, exchanging);
    cr_expect_eq(memcmp(before, ms_tensor(&m, "scale")->data, ms_bytes(ms_tensor(&m, "scale"))), 0);
    free(before);
    ms_close(&m);
}

Test(optimizers, without_averages_there_is_nothing_to_exchange)
{
    struct syi_config config = config_of("");
    struct syi_program *program, *exchange;
    struct sy_error err = {0};
    cr_assert_eq(record(&config, &program, &err), SY_OK, "%s", err.text);
    cr_expect_eq(syi_record_exchange(program, &exchange, &err), SY_OK, "%s", err.text);
    cr_expect_null(exchange);
    syi_program_free(program);
}
