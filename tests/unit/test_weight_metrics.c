/* SPDX-License-Identifier: Apache-2.0 */
/* Metrics of weights through the engine: their values against sums written out, the same on every mesh, no bit of a
 * weight changed by them; what of them a trainer gives to its sink, and its timing metrics. That T5X's come out:
 * `switchyard verify`, kinds train and weight_metrics. */
#include "config.h"

#include <math.h>

#include "data_support.h"
#include "optim/optim.h"
#include "small_course.h"
#include "train/engine/engine.h"
#include "train/engine/rates.h"
#include "train/trainer/trainer.h"

enum { STEPS = 4, MOST = 80, MOST_RANKS = 4, ELEMENTS = 16384 };

/* A training and what rank 0, or every rank, had of it. */
struct course {
    struct syi_config config;
    int ranks, spoilt; /* spoilt: step before which a weight becomes NaN, -1: none */
    size_t n;          /* parameters */
    int weighed[STEPS];
    double value[MOST_RANKS][STEPS][MOST][SYI_WEIGHT_METRICS]; /* of a parameter; NaN: it has none */
    double total[STEPS][SYI_WEIGHT_METRICS], norm[STEPS];
    float after[ELEMENTS]; /* all weights at the end, one rank */
    size_t elements;
    int check;       /* 1: values are compared with sums written out, one rank */
    char still[160]; /* name of a parameter that no optimizer moves; "": none */
};

static struct course *course_of(const char *every, const char *set, const char *more)
{
    struct course *c = calloc(1, sizeof *c);
    cr_assert(c);
    c->ranks = 1;
    c->spoilt = -1;
    c->config =
        config_of("model.vocab_size=384", "model.dropout_rate=0", "data.max_input_length=8",
                  "data.max_target_length=6", "data.batch_size=16", "decode.batch_size=16",
                  "train.microbatches=2", "moe.expert_bias=true", every, set, set ? more : NULL, NULL);
    return c;
}

/* All weights one after the other; returns how many. */
static size_t copy_weights(struct syi_engine *e, float *to)
{
    size_t at = 0;
    for (size_t i = 0; i < syi_engine_model(e)->n; i++) {
        const struct sy_tensor *t = tensor_of(e, SYI_ROLE_PARAMETER, i);
        cr_assert_lt(at + (size_t)extent(t), ELEMENTS);
        memcpy(to + at, t->data, (size_t)extent(t) * sizeof *to);
        at += (size_t)extent(t);
    }
    return at;
}

static void expect_near(double got, double want, const char *name, int m)
{
    if (!isfinite(want)) {
        cr_assert(!isfinite(got), "%s %s is %g, not %g", syi_weight_metric_name((enum syi_weight_metric)m),
                  name, got, want);
        return;
    }
    cr_assert(fabs(got - want) <= 2e-6 * fabs(want), "%s %s is %.9g, not %.9g",
              syi_weight_metric_name((enum syi_weight_metric)m), name, got, want);
}

/* The metrics of parameter i by their definition, from the weights before a step and what is there now. */
static void check_values(struct course *c, struct syi_engine *e, size_t i, const float *before, int step)
{
    const struct syi_param *param = &syi_engine_model(e)->param[i];
    const struct sy_tensor *weight = tensor_of(e, SYI_ROLE_PARAMETER, i);
    const float *new = weight->data, *gradient = tensor_of(e, SYI_ROLE_GRADIENT, i)->data;
    double sum[SYI_WEIGHT_METRICS] = {0}, top = 0, n = (double)extent(weight);
    double scale = syi_gradient_scale(&c->config, param->name);
    for (int64_t k = 0; k < extent(weight); k++) {
        double change = (double)(new[k] - before[k]), relative = (double)((new[k] - before[k]) / before[k]);
        sum[SYI_WEIGHT_RMS] += (double)new[k] * (double)new[k];
        sum[SYI_WEIGHT_GRADIENT_RMS] += scale * (double)gradient[k] * scale * (double)gradient[k];
        sum[SYI_WEIGHT_UPDATE_RMS] += change * change;
        sum[SYI_WEIGHT_RELATIVE_RMS] += relative * relative;
        top = isnan(new[k]) || isnan(top) ? NAN : fmax(top, fabs((double)new[k]));
    }
    for (int m = 0; m < SYI_WEIGHT_METRICS; m++)
        expect_near(c->value[0][step][i][m], m == SYI_WEIGHT_MAX ? top : sqrt(sum[m] / n), param->name, m);
    if (!strcmp(param->name, c->still)) cr_assert_eq(c->value[0][step][i][SYI_WEIGHT_UPDATE_RMS], 0);
    if (strcmp(param->name, c->still) && c->norm[step] > 0 && c->spoilt < 0)
        cr_assert_gt(c->value[0][step][i][SYI_WEIGHT_UPDATE_RMS], 0, "%s", param->name);
}

static void look_at_step(struct course *c, const struct syi_rank *rank, struct syi_engine *e, int step,
                         const float *before)
{
    size_t at = 0;
    for (size_t i = 0; i < syi_engine_model(e)->n; i++) {
        double *value = c->value[rank->rank][step][i];
        int is_bias = syi_engine_model(e)->param[i].init == SYI_INIT_EXPERT_BIAS;
        for (int m = 0; m < SYI_WEIGHT_METRICS; m++) value[m] = NAN;
        cr_assert_eq(syi_engine_weight_metrics(e, i, value), !is_bias);
        if (c->check && !is_bias) check_values(c, e, i, before + at, step);
        at += (size_t)extent(tensor_of(e, SYI_ROLE_PARAMETER, i));
    }
    if (!rank->rank) syi_engine_weight_totals(e, c->total[step]);
}

static int follow(void *arg, const struct syi_rank *rank, struct syi_engine *e, struct syi_batch *batch,
                  struct sy_error *err)
{
    struct course *c = arg;
    int status = SY_OK;
    static float before[ELEMENTS];
    if (!rank->rank) c->n = syi_engine_model(e)->n;
    cr_assert_leq(syi_engine_model(e)->n, MOST);
    for (int step = 0; !status && step < STEPS; step++) {
        struct syi_step_result r;
        float *weight = syi_session_tensor(syi_engine_session(e), "decoder/decoder_norm/scale")->data;
        if (step == c->spoilt) *weight = NAN;
        if (c->check) copy_weights(e, before);
        batch_fill(batch, step);
        status = syi_engine_step(e, batch, step, 3e-3, &r, err);
        if (status) break;
        if (!rank->rank) c->weighed[step] = r.weighed, c->norm[step] = r.grad_norm;
        if (r.weighed) look_at_step(c, rank, e, step, before);
    }
    if (c->ranks == 1) c->elements = copy_weights(e, c->after);
    return status;
}

static void run(struct course *c)
{
    course_train(&c->config, c->ranks, follow, c);
}

/* ---- values ---- */

static const char *const optimizers[] = {"optimizer.name=adamw", "optimizer.name=adafactor",
                                         "optimizer.name=sgd"};

Test(weight_metrics, are_those_of_their_definitions)
{
    for (size_t i = 0; i < SYI_COUNT(optimizers); i++) {
        struct course *c = course_of("metrics.weights_every=1", optimizers[i], NULL);
        c->check = 1;
        run(c);
        free(c);
    }
}

/* The expert kernels' gradients times the number of experts, and a part that keeps its weights. */
Test(weight_metrics, know_scaled_gradients_and_weights_that_stay)
{
    struct course *c = course_of("metrics.weights_every=1", "moe.scale_expert_gradients=true",
                                 "optimizer.still.match=[\"decoder/decoder_norm/scale\"]");
    struct sy_error err = {0};
    cr_assert_eq(syi_config_set(&c->config, "optimizer.still.name=none", &err), SY_OK, "%s", err.text);
    snprintf(c->still, sizeof c->still, "decoder/decoder_norm/scale");
    c->check = 1;
    run(c);
    free(c);
}

Test(weight_metrics, of_a_step_that_is_left_out_have_no_update)
{
    struct course *c = course_of("metrics.weights_every=1", NULL, NULL);
    int others = 0;
    c->check = 1;
    c->spoilt = 2;
    run(c);
    for (size_t i = 0; i < c->n; i++) {
        if (isnan(c->value[0][2][i][SYI_WEIGHT_RMS])) continue; /* the spoilt one, and expert biases */
        cr_assert_eq(c->value[0][2][i][SYI_WEIGHT_UPDATE_RMS], 0);
        cr_assert_eq(c->value[0][2][i][SYI_WEIGHT_RELATIVE_RMS], 0);
        others++;
    }
    cr_assert_gt(others, 20);
    cr_assert(isnan(c->total[2][SYI_WEIGHT_RMS]) && isnan(c->total[2][SYI_WEIGHT_MAX]));
    free(c);
}

/* As if all weights were one tensor. */
Test(weight_metrics, totals)
{
    struct course *c = course_of("metrics.weights_every=1", "moe.expert_bias=false", NULL);
    double square = 0, top = 0;
    run(c);
    for (size_t i = 0; i < c->elements; i++) {
        square += (double)c->after[i] * (double)c->after[i];
        top = fmax(top, fabs((double)c->after[i]));
    }
    expect_near(c->total[STEPS - 1][SYI_WEIGHT_RMS], sqrt(square / (double)c->elements), "all",
                SYI_WEIGHT_RMS);
    cr_expect_eq(c->total[STEPS - 1][SYI_WEIGHT_MAX], top);
    expect_near(c->total[STEPS - 1][SYI_WEIGHT_GRADIENT_RMS], c->norm[STEPS - 1] / sqrt((double)c->elements),
                "all", SYI_WEIGHT_GRADIENT_RMS);
    free(c);
}

/* ---- what they must not do ---- */

Test(weight_metrics, change_no_weight)
{
    for (size_t i = 0; i < SYI_COUNT(optimizers); i++) {
        struct course *without = course_of("metrics.weights_every=0", optimizers[i], "train.clip_norm=0.5"),
                      *with = course_of("metrics.weights_every=2", optimizers[i], "train.clip_norm=0.5");
        run(without);
        run(with);
        for (int step = 0; step < STEPS; step++) {
            cr_assert_eq(without->weighed[step], 0);
            cr_assert_eq(with->weighed[step], step % 2, "the second and the fourth step are due");
        }
        cr_assert_eq(with->elements, without->elements);
        cr_assert_arr_eq(with->after, without->after, with->elements * sizeof(float), "%s", optimizers[i]);
        free(without);
        free(with);
    }
}

Test(weight_metrics, are_the_same_on_every_mesh)
{
    static const struct {
        int ranks;
        const char *set[3];
    } meshes[] = {{2, {"mesh.data=2", "mesh.expert=1", "mesh.zero=0"}},
                  {2, {"mesh.data=2", "mesh.expert=1", "mesh.zero=1"}},
                  {4, {"mesh.data=2", "mesh.expert=2", "mesh.zero=0"}},
                  {4, {"mesh.data=4", "mesh.expert=1", "mesh.zero=3"}},
                  {4, {"mesh.data=2", "mesh.model=2", "mesh.zero=1"}},
                  {4, {"mesh.data=2", "mesh.model=2", "mesh.zero=3"}},
                  {4, {"mesh.data=1", "mesh.expert=2", "mesh.model=2"}}};
    struct course *one = course_of("metrics.weights_every=1", NULL, NULL);
    struct sy_error err = {0};
    run(one);
    for (size_t i = 0; i < SYI_COUNT(meshes); i++) {
        struct course *many = course_of("metrics.weights_every=1", NULL, NULL);
        many->ranks = meshes[i].ranks;
        for (int k = 0; k < 3; k++)
            cr_assert_eq(syi_config_set(&many->config, meshes[i].set[k], &err), SY_OK, "%s", err.text);
        run(many);
        for (int rank = 0; rank < many->ranks; rank++)
            for (int step = 0; step < STEPS; step++)
                cr_assert_arr_eq(many->value[rank][step], one->value[0][step],
                                 one->n * sizeof one->value[0][0][0], "%s %s %s, rank %d, step %d",
                                 meshes[i].set[0], meshes[i].set[1], meshes[i].set[2], rank, step);
        free(many);
    }
    free(one);
}

/* ---- what the sink gets ---- */

struct sunk {
    int64_t step;
    char parameter[160], name[160];
    double value;
};
enum { MOST_SUNK = 4000 };
static struct sunk sunk[MOST_SUNK];
static int n_sunk;

static int sink_parameter(void *arg, int64_t step, const char *parameter, const char *name, double value,
                          struct sy_error *err)
{
    (void)arg;
    (void)err;
    cr_assert_lt(n_sunk, MOST_SUNK);
    struct sunk *s = &sunk[n_sunk++];
    s->step = step;
    s->value = value;
    snprintf(s->parameter, sizeof s->parameter, "%s", parameter);
    snprintf(s->name, sizeof s->name, "%s", name);
    return SY_OK;
}

static int sink_metric(void *arg, int64_t step, const char *name, double value, struct sy_error *err)
{
    return sink_parameter(arg, step, "", name, value, err);
}

static int sink_routing(void *arg, int64_t step, const char *layer, int n_experts, const int64_t *tokens,
                        const int64_t *dropped, struct sy_error *err)
{
    (void)arg, (void)step, (void)layer, (void)n_experts, (void)tokens, (void)dropped, (void)err;
    return SY_OK;
}

static int sink_event(void *arg, int64_t step, const char *kind, const char *text, struct sy_error *err)
{
    (void)arg, (void)step, (void)kind, (void)text, (void)err;
    return SY_OK;
}

static int sink_flush(void *arg, double seconds, struct sy_error *err)
{
    (void)arg, (void)seconds, (void)err;
    return SY_OK;
}

/* The number sunk under these names, or NaN. */
static double sunk_value(int64_t step, const char *parameter, const char *name)
{
    for (int i = 0; i < n_sunk; i++)
        if (sunk[i].step == step && !strcmp(sunk[i].parameter, parameter) && !strcmp(sunk[i].name, name))
            return sunk[i].value;
    return NAN;
}

static int open_folder(void *arg, const struct syi_rank *rank, struct sy_error *err)
{
    (void)rank;
    struct syi_train_job *job = arg;
    const struct syi_lock_options lock = {0};
    char path[1000];
    snprintf(path, sizeof path, "%.999s", job->dir->path);
    return syi_run_dir_open(path, &lock, job->dir, err);
}

static void train_with(struct syi_config *config, const struct syi_metric_sink *sink)
{
    static struct syi_run_dir dir;
    struct syi_train_result result;
    struct sy_error err = {0};
    struct syi_train_job job = {.dir = &dir, .sink = sink, .open = open_folder};
    static const char text[] = "abc\tcba\ndef\tfed\nghi\tihg\njkl\tlkj\nmno\tonm\npqr\trqp\n";
    const char *words = write_fresh("words.tsv", text, sizeof text - 1);
    char train[4300], folder[4200];
    snprintf(folder, sizeof folder, "%.*s/run", (int)(strrchr(words, '/') - words), words);
    dir = (struct syi_run_dir){0};
    snprintf(dir.path, sizeof dir.path, "%.900s", folder);
    snprintf(train, sizeof train, "task.words.train=%s", words);
    cr_assert_eq(syi_config_set(config, train, &err), SY_OK, "%s", err.text);
    job.launch = (struct syi_launch){.backend = "cpu", .comm = "self", .threads = 1, .config = config};
    job.open_arg = &job;
    n_sunk = 0;
    cr_assert_eq(syi_train(&job, &result, &err), SY_OK, "%s", err.text);
    syi_run_dir_close(&dir);
    snprintf(train, sizeof train, "rm -rf '%.4100s'", folder);
    cr_assert_eq(system(train), 0);
    remove_path(words);
}

static const struct syi_metric_sink whole = {.metric = sink_metric,
                                             .parameter = sink_parameter,
                                             .routing = sink_routing,
                                             .event = sink_event,
                                             .flush = sink_flush};

Test(weight_metrics, reach_the_sink_when_they_are_due)
{
    static const char kernel[] = "decoder/layers_0/self_attention/query/kernel";
    struct course *c = course_of("metrics.weights_every=3", "train.steps=7", "metrics.every=2");
    struct sy_error err = {0};
    cr_assert_eq(syi_config_set(&c->config, "metrics.divide_by=all", &err), SY_OK, "%s", err.text);
    train_with(&c->config, &whole);
    for (int64_t step = 1; step <= 7; step++)
        for (int m = 0; m < SYI_WEIGHT_METRICS; m++) {
            const char *name = syi_weight_metric_name((enum syi_weight_metric)m);
            cr_assert_eq(!isnan(sunk_value(step, kernel, name)), step % 3 == 0, "%s at step %d", name,
                         (int)step);
            cr_assert_eq(!isnan(sunk_value(step, "", name)), step % 3 == 0, "all %s at step %d", name,
                         (int)step);
        }
    cr_expect_eq(sunk_value(4, "", "timing/seqs"), 32, "16 rows a step, 2 steps a row");
    cr_expect_eq(sunk_value(7, "", "timing/seqs"), 16, "the last row has the last step alone");
    double seconds = sunk_value(4, "", "timing/seconds"),
           rate = sunk_value(4, "", "timing/target_tokens_per_second");
    cr_expect(fabs(rate * seconds - 2 * 16 * 6) < 1e-6, "padding counts: %g", rate * seconds);
    cr_expect(fabs(sunk_value(4, "", "timing/steps_per_second") * seconds - 2) < 1e-9);
    cr_expect_eq(sunk_value(4, "", "learning_rate/current"), sunk_value(4, "", "learning_rate"));
    cr_expect(sunk_value(0, "", "timing/compilation_seconds") > 0);
    cr_expect(sunk_value(0, "", "timing/init_or_restore_seconds") > 0);
    cr_expect_geq(sunk_value(0, "", "timing/set_up_seconds"),
                  sunk_value(0, "", "timing/compilation_seconds"));
    cr_expect(sunk_value(1, "", "timing/first_step_seconds") > 0);
    cr_expect(sunk_value(7, "", "timing/checkpoint_seconds") > 0);
    cr_expect(sunk_value(7, "", "timing/uptime") >= sunk_value(4, "", "timing/uptime"));
    free(c);
}

Test(rates, of_two_steps)
{
    static const double want[SYI_RATES] = {4, 0.5, 64, 16, 8, 100, 50};
    struct syi_rates rates = {0};
    struct syi_rate value[SYI_RATES];
    cr_expect_eq(syi_rates_values(&rates, 2, value), 0, "no step, no rate");
    for (int i = 0; i < 2; i++) syi_rates_add(&rates, 2, 32, 200);
    cr_assert_eq(syi_rates_values(&rates, 2, value), SYI_RATES);
    for (int i = 0; i < SYI_RATES; i++)
        cr_expect_eq(value[i].value, want[i], "%s is %g", value[i].name, value[i].value);
}
