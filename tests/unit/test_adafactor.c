/* SPDX-License-Identifier: Apache-2.0 */
/* Adafactor as recorded in the update program against the same rules written plainly in double: parameters of
 * rank 1 to 3, factored and not, over several steps. What is factored is stated here, not asked of the
 * library. And which gradients are scaled. */
#include "config.h"

#include "model_support.h"

#include "model/model.h"
#include "optim/optim.h"
#include "passes/passes.h"

enum { MOST = 256, STEPS = 5 };

/* ---- parameters ---- */

/* Roles of dims: b batch, r row, c column, n none. */
static const struct sample {
    const char *name, *roles;
    int rank;
    int64_t dim[SY_MAX_DIMS];
    uint8_t axis[SY_MAX_DIMS];
} samples[] = {
    {"embedding", "cr", 2, {16, 8}, {SYI_AXIS_VOCAB, SYI_AXIS_EMBED}},
    {"expert/wi/kernel", "brc", 3, {4, 8, 6}, {SYI_AXIS_EXPERT, SYI_AXIS_EMBED, SYI_AXIS_EXPERT_MLP}},
    {"expert/wo/kernel", "bcr", 3, {4, 6, 8}, {SYI_AXIS_EXPERT, SYI_AXIS_EXPERT_MLP, SYI_AXIS_EMBED}},
    {"mlp/wi/kernel", "rc", 2, {8, 12}, {SYI_AXIS_EMBED, SYI_AXIS_MLP}},
    {"relpos_bias", "nn", 2, {4, 9}, {SYI_AXIS_HEADS, SYI_AXIS_BUCKETS}},
    {"scale", "n", 1, {8}, {SYI_AXIS_EMBED}},
    {"square", "rc", 2, {8, 8}, {SYI_AXIS_EMBED, SYI_AXIS_HEADS}},
};

static int64_t size_of(const struct sample *s)
{
    int64_t n = 1;
    for (int i = 0; i < s->rank; i++) n *= s->dim[i];
    return n;
}

static void model_of(struct syi_model *model, struct syi_param param[SYI_COUNT(samples)])
{
    for (size_t i = 0; i < SYI_COUNT(samples); i++) {
        param[i] = (struct syi_param){.id = (uint32_t)i, .rank = samples[i].rank};
        snprintf(param[i].name, sizeof param[i].name, "%s", samples[i].name);
        for (int k = 0; k < SY_MAX_DIMS; k++) {
            param[i].dim[k] = samples[i].dim[k] ? samples[i].dim[k] : 1;
            param[i].axis[k] = samples[i].axis[k];
        }
    }
    *model = (struct syi_model){.param = param, .n = SYI_COUNT(samples)};
}

static struct syi_config config_of(const char *const *set)
{
    struct syi_config config;
    struct sy_error err = {0};
    cr_assert_eq(syi_config_defaults(&config, &err), SY_OK, "%s", err.text);
    config.optimizer.part[0].name = SYI_OPTIMIZER_ADAFACTOR;
    config.train.clip_norm = 0;
    config.optimizer.part[0].min_dim_size_to_factor = 8;
    for (; *set; set++) cr_assert_eq(syi_config_set(&config, *set, &err), SY_OK, "%s", err.text);
    return config;
}

static int record(const struct syi_config *config, struct syi_program **program, struct sy_error *err)
{
    struct syi_param param[SYI_COUNT(samples)];
    struct syi_model model;
    uint32_t leaves[SYI_AXIS_COUNT];
    for (int i = 0; i < SYI_AXIS_COUNT; i++) leaves[i] = 1;
    leaves[SYI_AXIS_EMBED] = leaves[SYI_AXIS_VOCAB] = 4;
    leaves[SYI_AXIS_EXPERT_MLP] = leaves[SYI_AXIS_MLP] = leaves[SYI_AXIS_HEADS] = 2;
    leaves[SYI_AXIS_EXPERT] = 4;
    model_of(&model, param);
    const struct syi_update_options options = {.config = config, .model = &model, .leaf_count = leaves};
    return syi_record_update(&options, program, err);
}

/* ---- the rules, plainly ---- */

struct plain {
    double p[MOST], v[MOST], row[MOST], column[MOST], m[MOST];
};

/* Place of element i among those that differ in the dims whose role is in `kept`. */
static int64_t place(const struct sample *s, const char *roles, const char *kept, int64_t i)
{
    int64_t at = 0, below = size_of(s);
    for (int d = 0; d < s->rank; d++) {
        below /= s->dim[d];
        if (strchr(kept, roles[d])) at = at * s->dim[d] + i / below % s->dim[d];
    }
    return at;
}

/* out[place] = mean of x over the elements of that place. */
static void mean(const struct sample *s, const char *roles, const char *kept, const double *x, double *out)
{
    double n[MOST] = {0};
    for (int64_t i = 0; i < MOST; i++) out[i] = 0;
    for (int64_t i = 0; i < size_of(s); i++) {
        out[place(s, roles, kept, i)] += x[i];
        n[place(s, roles, kept, i)]++;
    }
    for (int64_t i = 0; i < MOST && n[i] > 0; i++) out[i] /= n[i];
}

/* out[place] = root mean square of x over all dims but the batch */
static void size_of_values(const struct sample *s, const char *roles, const double *x, double *out)
{
    double square[MOST];
    for (int64_t i = 0; i < size_of(s); i++) square[i] = x[i] * x[i];
    mean(s, roles, "b", square, out);
    for (int64_t i = 0; i < MOST; i++) out[i] = sqrt(out[i]);
}

/* The update before clipping. */
static void scale(const struct syi_config *c, const struct sample *s, const char *roles, double decay,
                  const double *g, struct plain *x, double *y)
{
    double square[MOST], rows[MOST], columns[MOST], of_row[MOST], n[MOST] = {0}, all[MOST] = {0};
    for (int64_t i = 0; i < size_of(s); i++) square[i] = g[i] * g[i] + c->optimizer.part[0].epsilon1;
    if (!strchr(roles, 'r')) {
        for (int64_t i = 0; i < size_of(s); i++) {
            x->v[i] = decay * x->v[i] + (1 - decay) * square[i];
            y[i] = g[i] / sqrt(x->v[i]);
        }
        return;
    }
    mean(s, roles, "br", square, rows);
    mean(s, roles, "bc", square, columns);
    for (int64_t i = 0; i < MOST; i++) {
        x->row[i] = decay * x->row[i] + (1 - decay) * rows[i];
        x->column[i] = decay * x->column[i] + (1 - decay) * columns[i];
    }
    for (int64_t i = 0; i < size_of(s); i++) of_row[i] = x->row[place(s, roles, "br", i)];
    for (int64_t i = 0; i < size_of(s); i++) {
        all[place(s, roles, "b", i)] += of_row[i];
        n[place(s, roles, "b", i)]++;
    }
    for (int64_t i = 0; i < size_of(s); i++) {
        int64_t b = place(s, roles, "b", i);
        y[i] = g[i] / sqrt(of_row[i] / (all[b] / n[b])) / sqrt(x->column[place(s, roles, "bc", i)]);
    }
}

static void plain_step(const struct syi_config *c, const struct sample *s, const char *roles, double decay,
                       double rate, const double *g, struct plain *x)
{
    double y[MOST], clip[MOST], size[MOST], limit = c->optimizer.part[0].clipping_threshold;
    scale(c, s, roles, decay, g, x, y);
    size_of_values(s, roles, y, clip);
    size_of_values(s, roles, x->p, size);
    for (int64_t i = 0; i < size_of(s); i++) {
        int64_t b = place(s, roles, "b", i);
        double step = rate * y[i] / (limit > 0 ? fmax(1, clip[b] / limit) : 1);
        if (c->optimizer.part[0].multiply_by_parameter_scale)
            step *= fmax(size[b], c->optimizer.part[0].epsilon2);
        if (c->optimizer.part[0].beta1 >= 0) {
            x->m[i] = c->optimizer.part[0].beta1 * x->m[i] + (1 - c->optimizer.part[0].beta1) * step;
            step = x->m[i];
        }
        x->p[i] = (1 - c->optimizer.part[0].weight_decay_rate) * x->p[i] - step;
    }
}

/* ---- both over several steps ---- */

/* Without factoring T5X looks at no rule, so a stack of experts is one tensor, too. */
static const char *roles_of(const struct syi_config *c, const struct sample *s)
{
    return c->optimizer.part[0].factored ? s->roles : "nnn";
}

static const struct sy_tensor *named(struct ms *m, const char *format, const char *name)
{
    char text[200];
    snprintf(text, sizeof text, format, name);
    return syi_session_tensor(m->session, text);
}

static void compare(struct ms *m, const char *format, const struct sample *s, const double *value,
                    const char *what, int step)
{
    const struct sy_tensor *t = named(m, format, s->name);
    cr_assert_not_null(t, "%s: %s of %s", what, format, s->name);
    double largest = ms_largest(value, ms_count(t));
    double bound = m->precise ? 1e-6 : 2e-6; /* constants and scalars are float in both */
    for (int64_t i = 0; i < ms_count(t); i++)
        cr_assert(fabs(ms_get(t, i) - value[i]) <= bound * (fabs(value[i]) + 0.1 * largest),
                  "%s, step %d, %s of %s, element %lld: %.9g instead of %.9g", what, step, format, s->name,
                  (long long)i, ms_get(t, i), value[i]);
}

static void compare_all(struct ms *m, const struct syi_config *c, const struct plain *x, const char *what,
                        int step)
{
    for (size_t i = 0; i < SYI_COUNT(samples); i++) {
        const struct sample *s = &samples[i];
        int factored = strchr(roles_of(c, s), 'r') != NULL;
        compare(m, "%s", s, x[i].p, what, step);
        if (factored) {
            compare(m, "state/param_states/%s/v_row", s, x[i].row, what, step);
            compare(m, "state/param_states/%s/v_col", s, x[i].column, what, step);
        } else
            compare(m, "state/param_states/%s/v", s, x[i].v, what, step);
        if (c->optimizer.part[0].beta1 >= 0) compare(m, "state/param_states/%s/m", s, x[i].m, what, step);
        cr_assert_eq(named(m, "state/param_states/%s/v", s->name) == NULL, factored, "%s", s->name);
        cr_assert_eq(named(m, "state/param_states/%s/m", s->name) == NULL, c->optimizer.part[0].beta1 < 0);
    }
}

static void fill(struct ms *m, struct plain *x)
{
    struct ms_random random = {7};
    for (size_t i = 0; i < SYI_COUNT(samples); i++) {
        const struct sy_tensor *t = ms_tensor(m, samples[i].name);
        for (int64_t k = 0; k < ms_count(t); k++) {
            ms_set(t, k, 0.3 * ms_uniform(&random));
            x[i].p[k] = ms_get(t, k);
        }
    }
}

/* Gradients of very different sizes by row, and a column of zeros. */
static void gradients(struct ms *m, int step, double g[SYI_COUNT(samples)][MOST])
{
    struct ms_random random = {(uint64_t)step + 11};
    for (size_t i = 0; i < SYI_COUNT(samples); i++) {
        const struct sy_tensor *t = named(m, "grad/%s", samples[i].name);
        int64_t width = samples[i].dim[samples[i].rank - 1];
        for (int64_t k = 0; k < ms_count(t); k++) {
            double value = ms_uniform(&random) * ((k / width) % 2 ? 5 : 0.02);
            ms_set(t, k, step == 2 && k % width == 1 ? 0 : value);
            g[i][k] = ms_get(t, k);
        }
    }
}

static void run_steps(const struct syi_config *config, const char *what, int precise, int64_t first)
{
    static struct plain plain[SYI_COUNT(samples)];
    static double g[SYI_COUNT(samples)][MOST];
    struct ms m;
    struct syi_program *program;
    struct sy_error err = {0};
    memset(plain, 0, sizeof plain);
    ms_open(&m, precise);
    cr_assert_eq(record(config, &program, &err), SY_OK, "%s", err.text);
    cr_assert_eq(syi_program_fuse(program, &err), SY_OK, "%s", err.text);
    int update = ms_add(&m, program);
    ms_bind(&m);
    fill(&m, plain);
    for (int step = 0; step < STEPS; step++) {
        double t = (double)(first + step) - (double)config->optimizer.part[0].step_offset + 1;
        double rate = 0.05 / (step + 1);
        gradients(&m, step, g);
        ms_optim_scalars(&m, config, first + step, rate);
        ms_run(&m, update);
        for (size_t i = 0; i < SYI_COUNT(samples); i++)
            plain_step(config, &samples[i], roles_of(config, &samples[i]),
                       1 - pow(t, -config->optimizer.part[0].decay_rate), rate, g[i], &plain[i]);
        compare_all(&m, config, plain, what, step);
    }
    ms_close(&m);
}

static const struct variant {
    const char *what;
    const char *set[4];
    int64_t first; /* step */
} variants[] = {
    {"defaults", {NULL}, 0},
    {"momentum", {"optimizer.beta1=0.9", NULL}, 0},
    {"momentum of nothing", {"optimizer.beta1=0", NULL}, 0},
    {"decay of weights", {"optimizer.weight_decay_rate=0.01", NULL}, 0},
    {"momentum and decay", {"optimizer.beta1=0.8", "optimizer.weight_decay_rate=0.1", NULL}, 0},
    {"not factored", {"optimizer.factored=false", NULL}, 0},
    {"no rules", {"optimizer.factored=false", "optimizer.logical_factor_rules=none", NULL}, 0},
    {"no clipping", {"optimizer.clipping_threshold=0", NULL}, 0},
    {"much clipping", {"optimizer.clipping_threshold=0.5", NULL}, 0},
    {"no scale", {"optimizer.multiply_by_parameter_scale=false", NULL}, 0},
    {"epsilons", {"optimizer.epsilon1=1e-2", "optimizer.epsilon2=0.5", NULL}, 0},
    {"decay rate", {"optimizer.decay_rate=0.5", NULL}, 0},
    {"step offset", {"optimizer.step_offset=100", NULL}, 100},
    {"later", {"optimizer.step_offset=20", NULL}, 50},
};

Test(adafactor, gradients_of_expert_weights_are_scaled)
{
    static const char *const expert = "encoder/layers_1/mlp/expert/wi_0/kernel",
                             *const router = "encoder/layers_1/mlp/router/router_weights/w/kernel";
    struct syi_config config;
    cr_assert_eq(syi_config_defaults(&config, NULL), SY_OK);
    cr_expect(syi_gradient_scale(&config, expert) == 1, "a dense model has no experts");
    config.moe.num_experts = 8;
    cr_expect(syi_gradient_scale(&config, expert) == 8 && syi_gradient_scale(&config, router) == 1);
    strcpy(config.moe.sharded_match_fn, "*router*kernel");
    cr_expect(syi_gradient_scale(&config, expert) == 1 && syi_gradient_scale(&config, router) == 8);
    config.moe.sharded_match_fn[0] = '\0';
    cr_expect(syi_gradient_scale(&config, expert) == 1 && syi_gradient_scale(&config, router) == 1);
    strcpy(config.moe.sharded_match_fn, "*");
    config.moe.scale_expert_gradients = false;
    cr_expect(syi_gradient_scale(&config, expert) == 1);
}

Test(adafactor, computes_the_rules)
{
    for (size_t i = 0; i < SYI_COUNT(variants); i++) {
        struct syi_config config = config_of(variants[i].set);
        for (int precise = 0; precise < 2; precise++)
            run_steps(&config, variants[i].what, precise, variants[i].first);
    }
}

Test(adafactor, keeps_dims_that_are_means_as_1)
{
    struct syi_config config = config_of((const char *const[]){NULL});
    struct syi_program *p;
    struct sy_error err = {0};
    cr_assert_eq(record(&config, &p, &err), SY_OK, "%s", err.text);
    static const struct {
        const char *name;
        int64_t dim[3];
    } expected[] = {{"embedding/v_row", {1, 8, 1}},        {"embedding/v_col", {16, 1, 1}},
                    {"expert/wi/kernel/v_row", {4, 8, 1}}, {"expert/wi/kernel/v_col", {4, 1, 6}},
                    {"expert/wo/kernel/v_row", {4, 1, 8}}, {"expert/wo/kernel/v_col", {4, 6, 1}},
                    {"mlp/wi/kernel/v_row", {8, 1, 1}},    {"mlp/wi/kernel/v_col", {1, 12, 1}},
                    {"relpos_bias/v", {4, 9, 1}},          {"scale/v", {8, 1, 1}},
                    {"square/v_row", {8, 1, 1}},           {"square/v_col", {1, 8, 1}}};
    for (size_t i = 0; i < SYI_COUNT(expected); i++) {
        char name[100];
        snprintf(name, sizeof name, "state/param_states/%s", expected[i].name);
        int t = syi_program_find(p, name);
        cr_assert_geq(t, 0, "%s", name);
        for (int k = 0; k < 3; k++) cr_expect_eq(p->tensor[t].dim[k], expected[i].dim[k], "%s", name);
    }
    syi_program_free(p);
}

/* ---- split over ranks ---- */

struct split {
    struct syi_mesh mesh;
    double value[SYI_COUNT(samples)][MOST]; /* parameters after a run of one rank */
};

/* Index in the whole tensor of element i of a rank's piece. */
static int64_t whole_index(const struct sample *s, const struct sy_tensor *t, int64_t i)
{
    int64_t at = 0, below = ms_count(t);
    for (int d = 0; d < s->rank; d++) {
        below /= t->dim[d];
        at = at * s->dim[d] + t->first[d] + i / below % t->dim[d];
    }
    return at;
}

static void put_pieces(struct ms *m)
{
    for (size_t i = 0; i < SYI_COUNT(samples); i++) {
        const struct sy_tensor *p = ms_tensor(m, samples[i].name);
        const struct sy_tensor *g = named(m, "grad/%s", samples[i].name);
        for (int64_t k = 0; k < ms_count(p); k++)
            ms_set(p, k, sin(3.7 * (double)(whole_index(&samples[i], p, k) + 50 * (int64_t)i)));
        for (int64_t k = 0; k < ms_count(g); k++)
            ms_set(g, k, cos(2.3 * (double)(whole_index(&samples[i], g, k) + 70 * (int64_t)i)));
    }
}

/* Two steps on this rank; one rank alone keeps the result, others compare theirs with it. */
static int run_split(void *arg, struct syi_comm *comm, struct sy_error *err)
{
    struct split *split = arg;
    struct ms m = {.mesh = split->mesh};
    struct syi_config config = config_of((const char *const[]){"optimizer.beta1=0.9", NULL});
    struct syi_program *whole, *local;
    int update;
    cr_assert_eq(syi_backend_open("cpu", NULL, NULL, &m.backend, err), SY_OK, "%s", err->text);
    struct syi_session_options options = {
        .backend = m.backend, .comm = comm, .mesh = &m.mesh, .reproducible = 1};
    cr_assert_eq(syi_session_new(&options, &m.session, err), SY_OK, "%s", err->text);
    cr_assert_eq(record(&config, &whole, err), SY_OK, "%s", err->text);
    cr_assert_eq(syi_partition(whole, &m.mesh, &local, err), SY_OK, "%s", err->text);
    cr_assert_eq(syi_program_fuse(local, err), SY_OK, "%s", err->text);
    cr_assert_eq(syi_session_add(m.session, local, &update, err), SY_OK, "%s", err->text);
    cr_assert_eq(syi_session_bind(m.session, err), SY_OK, "%s", err->text);
    put_pieces(&m);
    int status = SY_OK;
    for (int step = 0; step < 2 && !status; step++) {
        ms_optim_scalars(&m, &config, step, 0.1);
        status = syi_session_run(m.session, update, err);
    }
    for (size_t i = 0; i < SYI_COUNT(samples) && !status; i++) {
        const struct sy_tensor *t = ms_tensor(&m, samples[i].name);
        for (int64_t k = 0; k < ms_count(t); k++) {
            double *kept = &split->value[i][whole_index(&samples[i], t, k)];
            if (syi_mesh_ranks(&m.mesh) == 1) *kept = ms_get(t, k);
            cr_assert_eq(ms_get(t, k), *kept, "%s, element %lld of rank %d", samples[i].name, (long long)k,
                         comm->rank);
        }
    }
    syi_program_free(whole);
    syi_session_free(m.session);
    syi_backend_close(m.backend);
    return status;
}

Test(adafactor, splits_change_no_bit)
{
    static struct split split;
    static const int meshes[][2] = {{1, 1}, {2, 1}, {1, 2}, {2, 2}}; /* expert, model */
    for (size_t i = 0; i < SYI_COUNT(meshes); i++) {
        int ranks = meshes[i][0] * meshes[i][1];
        struct sy_error err = {0};
        cr_assert_eq(syi_mesh_new(&split.mesh, ranks, 1, meshes[i][0], meshes[i][1], 4, &err), SY_OK, "%s",
                     err.text);
        cr_assert_eq(syi_comm_thread_run(ranks, run_split, &split, &err), SY_OK, "%s", err.text);
    }
}

/* ---- what is left out and refused ---- */

Test(adafactor, a_step_that_is_not_finite_changes_nothing)
{
    static double g[SYI_COUNT(samples)][MOST];
    static struct plain plain[SYI_COUNT(samples)];
    struct syi_config config = config_of((const char *const[]){"optimizer.beta1=0.9", NULL});
    struct ms m;
    struct syi_program *program;
    struct sy_error err = {0};
    ms_open(&m, 0);
    cr_assert_eq(record(&config, &program, &err), SY_OK, "%s", err.text);
    int update = ms_add(&m, program);
    ms_bind(&m);
    fill(&m, plain);
    gradients(&m, 0, g);
    ms_optim_scalars(&m, &config, 0, 0.1);
    ms_run(&m, update);
    void *before[100] = {0};
    const struct syi_shared *shared;
    for (size_t i = 0; (shared = syi_session_shared(m.session, i)) != NULL; i++)
        before[i] = ms_copy(&shared->tensor);
    ms_set(ms_tensor(&m, "grad/scale"), 3, INFINITY);
    ms_optim_scalars(&m, &config, 1, 0.1);
    ms_run(&m, update);
    cr_assert_eq(ms_get(ms_tensor(&m, "ok"), 0), 0);
    int seen = 0;
    for (size_t i = 0; (shared = syi_session_shared(m.session, i)) != NULL; i++) {
        int kept = !strncmp(shared->name, "state/", 6) || named(&m, "grad/%s", shared->name);
        seen += kept;
        if (kept)
            cr_expect_eq(memcmp(before[i], shared->tensor.data, ms_bytes(&shared->tensor)), 0, "%s",
                         shared->name);
        free(before[i]);
    }
    cr_assert_eq(seen, 26); /* 7 parameters, 5 pairs of row and column, 2 v, 7 m */
    ms_close(&m);
}

static void expect_refused(const char *set, const char *name, int status)
{
    struct syi_config config = config_of((const char *const[]){set, NULL});
    struct syi_program *program = NULL;
    struct sy_error err = {0};
    cr_assert_eq(record(&config, &program, &err), status, "%s", set);
    cr_expect(strstr(err.text, name) && strstr(err.text, "optimizer.logical_factor_rules"), "%s", err.text);
}

Test(adafactor, refuses_what_has_no_rule)
{
    expect_refused("optimizer.logical_factor_rules=none", "expert/wi/kernel", SY_EINVAL);
    expect_refused("optimizer.logical_factor_rules=standard", "expert/wi/kernel", SY_ENOENT);
}

Test(adafactor, scalars_of_a_step)
{
    struct syi_config config = config_of((const char *const[]){"optimizer.step_offset=4", NULL});
    struct sy_error err = {0};
    struct syi_chain *chains;
    float value[SYI_OPTIM_SCALARS];
    cr_assert_eq(syi_chains_make(&config, &chains, &err), SY_OK, "%s", err.text);
    syi_optim_scalars(&config, chains, 9, 0.25, 1, value);
    cr_assert_eq(value[0], (float)(1 - pow(6, -0.8)));
    cr_assert_eq(value[1], (float)pow(6, -0.8));
    cr_assert_eq(value[2], 0.25f);
    syi_optim_scalars(&config, chains, 0, 0.25, 1, value);
    cr_assert_eq(value[0], 0); /* before the offset: as at the first step */
    syi_chains_free(chains, config.optimizer.n);
}
