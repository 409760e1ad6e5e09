/* SPDX-License-Identifier: Apache-2.0 */
/* Every transform of transforms.def as recorded in the update program against optax's formulas (0.1.2: transform.py,
 * clipping.py, wrappers.py) written plainly in double, over steps with random gradients and parameters of one, two and
 * three dims. What transforms and chains must be equal to is compared bit by bit. */
#include "config.h"

#include "model_support.h"

#include "base/optimizers.h"
#include "model/model.h"
#include "passes/passes.h"

#include "plain_transforms.h"

enum { STEPS = 10, ROWS = 4 }; /* ROWS: of a batch */
enum { LEFT_OUT = 2 };

/* ---- the chains ---- */

static const struct term plain_trace = {trace, {0.5}, NULL};
static const struct term plain_scale = {scale, {-0.3}, NULL};
static const struct term plain_adam = {adam, {0.9, 0.999, 1e-8, 0}, NULL};

#define TERM(what, ...)                                                                                      \
    {                                                                                                        \
        .apply = what, .a = __VA_ARGS__                                                                      \
    }
#define CHAIN(nan, transform, text, ...)                                                                     \
    {                                                                                                        \
#        transform, text, {__VA_ARGS__ }, nan                                                                \
    }
/* One for each transform; `chain` begins with its name, or that of a term that gives it something to do. */
static const struct sample_chain {
    const char *transform, *chain;
    struct term term[4];
    int nan; /* 1: a gradient has a NaN at steps 3 and 7; LEFT_OUT: which are not ok then */
} chains[] = {
    CHAIN(0, scale_by_adam, "scale_by_adam(b1=0.8, b2=0.97, eps=0.01, eps_root=0.02)",
          TERM(adam, {0.8, 0.97, 0.01, 0.02})),
    CHAIN(0, scale_by_adam, "scale_by_adam", TERM(adam, {0.9, 0.999, 1e-8, 0})),
    CHAIN(0, scale_by_belief, "scale_by_belief(0.8, 0.97, eps=0.01, eps_root=0.02)",
          TERM(belief, {0.8, 0.97, 0.01, 0.02})),
    CHAIN(0, scale_by_yogi,
          "scale_by_yogi(0.8, 0.97, eps=0.01, eps_root=0.02, initial_accumulator_value=0.1)",
          TERM(yogi, {0.8, 0.97, 0.01, 0.02, 0.1})),
    CHAIN(0, scale_by_radam, "scale_by_radam(0.8, 0.97, eps=0.01, eps_root=0.02)",
          TERM(radam, {0.8, 0.97, 0.01, 0.02, 5})),
    CHAIN(0, scale_by_rms, "scale_by_rms(0.8, 0.01, 0.5)", TERM(rms, {0.8, 0.01, 0.5})),
    CHAIN(0, scale_by_stddev, "scale_by_stddev(0.8, 0.01, 0.5)", TERM(stddev, {0.8, 0.01, 0.5})),
    CHAIN(0, scale_by_rss, "scale_by_rss(0.3, 0.01)", TERM(rss, {0.3, 0.01})),
    CHAIN(0, scale_by_sm3, "scale_by_sm3(0.8, 1.0, 0.01)", TERM(sm3, {0.8, 1, 0.01})),
    CHAIN(0, scale_by_sm3, "scale_by_sm3(0.8, 0.9, 0.01)", TERM(sm3, {0.8, 0.9, 0.01})),
    CHAIN(0, scale_by_lion, "scale_by_lion(0.8, 0.97)", TERM(lion, {0.8, 0.97})),
    CHAIN(0, trace, "trace(0.8)", TERM(trace, {0.8, 0})),
    CHAIN(0, trace, "trace(0.8, nesterov=true)", TERM(trace, {0.8, 1})),
    CHAIN(0, ema, "ema(0.8)", TERM(ema, {0.8, 1})),
    CHAIN(0, ema, "ema(0.8, debias=false)", TERM(ema, {0.8, 0})),
    CHAIN(0, clip, "clip(0.3)", TERM(clip, {0.3})),
    CHAIN(0, clip_by_global_norm, "trace(0.5)\", \"clip_by_global_norm(7.5)\", \"trace(0.8)",
          TERM(trace, {0.5, 0}), TERM(global_norm, {7.5}), TERM(trace, {0.8, 0})),
    CHAIN(0, clip_by_block_rms, "clip_by_block_rms(0.5)", TERM(block_rms, {0.5})),
    CHAIN(0, adaptive_grad_clip, "adaptive_grad_clip(0.8, 0.5)", TERM(adaptive, {0.8, 0.5})),
    CHAIN(1, zero_nans, "zero_nans\", \"trace(0.8)", TERM(no_nans, {0}), TERM(trace, {0.8, 0})),
    CHAIN(0, add_decayed_weights, "add_decayed_weights(0.3, mask=['!bias', '*'])",
          TERM(decay_weights, {0.3, 30})),
    CHAIN(0, scale_by_trust_ratio, "scale_by_trust_ratio", TERM(trust_ratio, {0, 1, 0, 31})),
    CHAIN(0, scale_by_trust_ratio, "scale_by_trust_ratio(2.0, 0.3, eps=0.1, mask=['dense*', 'bias'])",
          TERM(trust_ratio, {2, 0.3, 0.1, 3})),
    CHAIN(0, scale_by_fromage, "scale_by_trust_ratio(1e-6)\", \"scale_by_fromage",
          TERM(trust_ratio, {1e-6, 1, 0, 31}), TERM(fromage, {0})),
    CHAIN(0, scale, "scale(-0.7)", TERM(scale, {-0.7})),
    CHAIN(0, scale_by_learning_rate, "scale_by_learning_rate", TERM(learning_rate, {0})),
    CHAIN(0, scale_by_schedule, "scale_by_schedule('linear(transition_steps=8)', sign=-1)",
          TERM(schedule, {8, -1})),
    CHAIN(0, identity, "identity", TERM(nothing, {0})),
    CHAIN(0, add_noise, "add_noise(0.5, 0.7)", TERM(noise, {0.5, 0.7})),
    CHAIN(0, differentially_private_aggregate, "differentially_private_aggregate(0.5, 0.7)",
          TERM(aggregate, {0.5, 0.7, ROWS})),
    CHAIN(0, differentially_private_aggregate, "differentially_private_aggregate(0.5)",
          TERM(aggregate, {0.5, 0, ROWS})),
    CHAIN(0, orthogonalize, "orthogonalize(0.8, b1=0.7, b2=0.97, eps=0.01)",
          TERM(muon, {0.8, 1, 5, 0.7, 0.97, 0.01})),
    CHAIN(0, orthogonalize, "orthogonalize(0.8, nesterov=false, steps=3)",
          TERM(muon, {0.8, 0, 3, 0.9, 0.95, 1e-8})),
    CHAIN(0, masked, "masked(trace(0.5), mask=['*kernel'])", TERM(masked, {30}, &plain_trace)),
    CHAIN(0, apply_every, "apply_every(3)\", \"trace(0.5)", TERM(every, {3}), TERM(trace, {0.5, 0})),
    CHAIN(LEFT_OUT, apply_every, "apply_every(3)", TERM(every, {3})),
    CHAIN(0, multi_steps, "multi_steps(scale_by_adam, every_k=3)", TERM(multi, {3}, &plain_adam)),
    CHAIN(0, maybe_update, "maybe_update(trace(0.5), every=3)", TERM(maybe, {3}, &plain_trace)),
    CHAIN(0, maybe_update, "maybe_update(scale_by_adam, every=3)", TERM(maybe, {3}, &plain_adam)),
    CHAIN(0, schedule_free, "schedule_free(scale(-0.3), b1=0.8, weight_lr_power=1.5)",
          TERM(averaged, {0.8, 1.5}, &plain_scale)),
    CHAIN(0, schedule_free, "schedule_free(trace(0.5))", TERM(averaged, {0.9, 2}, &plain_trace)),
    CHAIN(1, apply_if_finite, "apply_if_finite(trace(0.5))", TERM(if_finite, {5}, &plain_trace)),
};
#undef TERM
#undef CHAIN

/* ---- the program ---- */

static struct syi_config config_of(const char *optimizer)
{
    char text[4096];
    struct syi_config config;
    struct sy_error err = {0};
    snprintf(text, sizeof text,
             "[data]\nbatch_size = 4\n[train]\nclip_norm = 0.0\nnan_check = \"after\"\nmicrobatches = 4\n"
             "microbatch_normalizer = \"microbatch\"\n[optimizer]\n%s\n",
             optimizer);
    cr_assert_eq(syi_config_defaults(&config, &err), SY_OK, "%s", err.text);
    cr_assert_eq(syi_config_load_text(&config, "test", text, strlen(text), &err), SY_OK, "%s", err.text);
    cr_assert_eq(syi_config_validate(&config, &err), SY_OK, "%s", err.text);
    return config;
}

static struct syi_config config_of_chain(const char *chain)
{
    char text[3000];
    snprintf(text, sizeof text, "name = \"chain\"\nchain = [\"%s\"]", chain);
    return config_of(text);
}

static int record(const struct syi_config *config, struct syi_program **program, struct sy_error *err)
{
    struct syi_param param[PARAMETERS];
    struct syi_model model = {.param = param, .n = PARAMETERS};
    uint32_t leaves[SYI_AXIS_COUNT];
    for (int i = 0; i < SYI_AXIS_COUNT; i++) leaves[i] = 1;
    for (int i = 0; i < PARAMETERS; i++) {
        const int64_t *d = samples[i].dim;
        param[i] =
            (struct syi_param){.id = (uint32_t)i, .rank = samples[i].rank, .dim = {d[0], d[1], d[2], 1, 1}};
        memcpy(param[i].axis, samples[i].axis, sizeof samples[i].axis);
        snprintf(param[i].name, sizeof param[i].name, "%s", samples[i].name);
    }
    const struct syi_update_options options = {
        .config = config, .model = &model, .leaf_count = leaves, .noise = 1};
    return syi_record_update(&options, program, err);
}

static const struct sy_tensor *tensor_of(struct ms *m, const char *format, int i)
{
    char name[64];
    snprintf(name, sizeof name, format, samples[i].name);
    return ms_tensor(m, name);
}

static void open_program(struct ms *m, const struct syi_config *config, int precise, int *update)
{
    struct syi_program *program;
    struct sy_error err = {0};
    ms_open(m, precise);
    cr_assert_eq(record(config, &program, &err), SY_OK, "%s", err.text);
    cr_assert_eq(syi_program_fuse(program, &err), SY_OK, "%s", err.text);
    *update = ms_add(m, program);
    ms_bind(m);
    const struct syi_shared *shared; /* the session itself fills float32 */
    for (size_t i = 0; precise && (shared = syi_session_shared(m->session, i)) != NULL; i++)
        for (int64_t k = 0; shared->info.kind == SYI_STATE && k < ms_count(&shared->tensor); k++)
            ms_set(&shared->tensor, k, (double)shared->info.initial);
}

/* The same random numbers, as float32 holds them, into the tensors and into x. */
static void fill(struct ms *m, const char *format, uint64_t seed, values x)
{
    struct ms_random random = {seed};
    for (int i = 0; i < PARAMETERS; i++) {
        const struct sy_tensor *t = tensor_of(m, format, i);
        for (int64_t k = 0; k < size_of(i); k++) {
            x[i][k] = (double)(float)ms_uniform(&random);
            ms_set(t, k, x[i][k]);
        }
    }
}

/* The parameters, and the state that begins as they do (core/train/engine does so in a run). */
static void fill_parameters(struct ms *m)
{
    const struct syi_shared *shared;
    fill(m, "%s", 3, now.p);
    for (size_t i = 0; (shared = syi_session_shared(m->session, i)) != NULL; i++)
        for (int64_t k = 0; k < ms_count(&shared->tensor); k++)
            if (shared->info.role == SYI_ROLE_ITERATE || shared->info.role == SYI_ROLE_AVERAGE)
                ms_set(&shared->tensor, k, now.p[shared->info.of][k]);
}

/* Gradients, and normal numbers where the program takes them. */
static void fill_step(struct ms *m, int64_t step, int nan)
{
    if (syi_session_tensor(m->session, "noise/bias")) fill(m, "noise/%s", (uint64_t)step + 31, now.noise);
    fill(m, "grad/%s", (uint64_t)step + 11, now.u);
    if (!nan || (step != 3 && step != 7)) return;
    now.u[1][6] = NAN;
    ms_set(tensor_of(m, "grad/%s", 1), 6, NAN);
}

static void plain_step(const struct sample_chain *c)
{
    for (int t = 0, slot = 0; t < (int)SYI_COUNT(c->term) && c->term[t].apply; t++) {
        c->term[t].apply(&c->term[t], &now.state[slot]);
        slot += SLOTS * (c->term[t].inner ? 2 : 1);
    }
    EACH(i, k) now.p[i][k] += now.u[i][k];
}

static void compare(struct ms *m, const struct sample_chain *c, double bound)
{
    for (int i = 0; i < PARAMETERS; i++) {
        const struct sy_tensor *t = tensor_of(m, "%s", i);
        double largest = ms_largest(now.p[i], size_of(i));
        for (int64_t k = 0; k < size_of(i); k++)
            cr_assert(fabs(ms_get(t, k) - now.p[i][k]) <= bound * largest,
                      "%s, step %lld, element %lld of %s: %.9g instead of %.9g", c->chain,
                      (long long)now.step, (long long)k, samples[i].name, ms_get(t, k), now.p[i][k]);
    }
}

static void run_chain(const struct sample_chain *c, int precise)
{
    struct syi_config config = config_of_chain(c->chain);
    struct ms m;
    int update;
    if (c->nan == LEFT_OUT) config.train.nan_check = SYI_NAN_CHECK_BEFORE;
    open_program(&m, &config, precise, &update);
    memset(&now, 0, sizeof now);
    now.on = (1u << PARAMETERS) - 1;
    fill_parameters(&m);
    for (now.step = 0; now.step < STEPS; now.step++) {
        now.rate = (double)(float)(0.05 * (double)(now.step * 7 % 10 + 1));
        fill_step(&m, now.step, c->nan);
        if (c->nan == LEFT_OUT && isnan(now.u[1][6])) memset(now.u, 0, sizeof now.u);
        ms_optim_scalars(&m, &config, now.step, now.rate);
        ms_run(&m, update);
        plain_step(c);
        compare(&m, c, precise ? 1e-6 : 1e-5);
    }
    ms_close(&m);
}

Test(transforms, compute_the_formulas)
{
    for (size_t i = 0; i < SYI_COUNT(chains); i++)
        for (int precise = 0; precise < 2; precise++) run_chain(&chains[i], precise);
}

/* A new transform needs a formula here, or a test of its own that is named here. */
Test(transforms, all_have_a_test)
{
    size_t n;
    const struct syi_term_kind *kind = syi_transform_kinds(&n);
    for (size_t i = 0; i < n; i++) {
        int found = 0;
        for (size_t k = 0; k < SYI_COUNT(chains); k++) found |= !strcmp(kind[i].name, chains[k].transform);
        found |= !strcmp(kind[i].name, "adafactor");          /* test_adafactor.c */
        found |= !strcmp(kind[i].name, "inject_hyperparams"); /* numbers_of_the_run_file_stay */
        cr_expect(found, "%s", kind[i].name);
    }
}

/* ---- what must be equal, bit by bit ---- */

/* The parameters after the steps, in `after`. */
static void run_config(const struct syi_config *config, int nan, values after)
{
    struct ms m;
    int update;
    open_program(&m, config, 0, &update);
    fill_parameters(&m);
    for (int64_t step = 0; step < STEPS; step++) {
        fill_step(&m, step, nan);
        ms_optim_scalars(&m, config, step, 0.05);
        ms_run(&m, update);
    }
    for (int i = 0; i < PARAMETERS; i++)
        for (int64_t k = 0; k < size_of(i); k++) after[i][k] = ms_get(tensor_of(&m, "%s", i), k);
    ms_close(&m);
}

static values one, other;

static int same_chains(const char *a, const char *b)
{
    struct syi_config config_a = config_of_chain(a), config_b = config_of_chain(b);
    memset(one, 0, sizeof one);
    memset(other, 0, sizeof other);
    run_config(&config_a, 0, one);
    run_config(&config_b, 0, other);
    return !memcmp(one, other, sizeof one);
}

Test(transforms, a_mean_of_one_step_is_the_gradient)
{
    cr_expect(same_chains("multi_steps(scale_by_adam, every_k=1)\", \"scale_by_learning_rate",
                          "scale_by_adam\", \"scale_by_learning_rate"));
    cr_expect(!same_chains("multi_steps(scale_by_adam, every_k=2)", "scale_by_adam"));
    cr_expect(same_chains("maybe_update(trace(0.5), every=1)", "trace(0.5)"));
    cr_expect(same_chains("apply_every(1)\", \"trace(0.5)", "trace(0.5)"));
    cr_expect(same_chains("apply_if_finite(trace(0.5))", "trace(0.5)"));
}

Test(transforms, numbers_of_the_run_file_stay)
{
    cr_expect(same_chains("inject_hyperparams(trace(0.5), scale(2.0))", "trace(0.5)\", \"scale(2.0)"));
    cr_expect(!same_chains("inject_hyperparams(trace(0.5))", "identity"));
}

Test(transforms, a_mask_that_nothing_matches_leaves_updates)
{
    cr_expect(same_chains("masked(trace(0.5), mask=['none*'])", "identity"));
    cr_expect(same_chains("masked(trace(0.5), mask=['!*', '*'])", "identity"));
    cr_expect(!same_chains("masked(trace(0.5), mask=['bias'])", "identity"));
    cr_expect(same_chains("masked(trace(0.5), scale(2.0))", "trace(0.5)\", \"scale(2.0)"));
    cr_expect(same_chains("add_decayed_weights(0.3, mask=['none*'])", "identity"));
}

/* RAdam's longest average is 4 where b2 = 0.6, and there it has no rectification, whatever the threshold. */
Test(transforms, an_average_of_length_4_is_not_rectified)
{
    struct syi_config config = config_of_chain("scale_by_radam(b2=0.6, threshold=4)");
    struct sy_error err = {0};
    struct syi_chain *made;
    float value[SYI_OPTIM_SCALARS];
    cr_assert_eq(syi_chains_make(&config, &made, &err), SY_OK, "%s", err.text);
    syi_optim_scalars(&config, made, 1000, 0.1, 1, value);
    cr_expect(isfinite(value[2]) && value[3] == 0, "%g %g", (double)value[2], (double)value[3]);
    syi_chains_free(made, config.optimizer.n);
}

/* A NaN in one parameter is kept from all of them; after too many in a row it is not. */
Test(transforms, a_nan_in_one_parameter)
{
    static const struct {
        const char *chain;
        int kept;
    } cases[] = {{"apply_if_finite(trace(0.5))", 1},
                 {"apply_if_finite(trace(0.5), max_consecutive_errors=0)", 0},
                 {"zero_nans\", \"trace(0.5)", 1},
                 {"trace(0.5)", 0}};
    for (size_t c = 0; c < SYI_COUNT(cases); c++) {
        struct syi_config config = config_of_chain(cases[c].chain);
        int finite = 1;
        run_config(&config, 1, one);
        for (int i = 0; i < PARAMETERS; i++)
            for (int64_t k = 0; k < size_of(i); k++) finite &= isfinite(one[i][k]) != 0;
        cr_expect_eq(finite, cases[c].kept, "%s", cases[c].chain);
    }
}

/* ---- optimizers by name ---- */

/* By optax's alias.py, with keys that are not their defaults, as terms are printed. */
static const struct named {
    const char *name, *keys, *chain;
} named[] = {
    {"adamw",
     "b1 = 0.5\nb2 = 0.7\neps = 0.1\neps_root = 0.2\nweight_decay = 0.3\nweight_decay_mask = [\"d*\"]",
     "\"scale_by_adam(b1=0.5, b2=0.7, eps=0.1, eps_root=0.2)\", \"add_decayed_weights(weight_decay=0.3, mask=['d*'])\", \"scale_by_learning_rate\""},
    {"adafactor",
     "min_dim_size_to_factor = 2\nbeta1 = 0.5\ndecay_rate = 0.7\nfactor_map = [\"h*: none\", \"e*: none\", \"*: heuristic\"]\nskip_nan_updates = true",
     "\"adafactor(factored=true, min_dim_size_to_factor=2, logical_factor_rules='moe', factor_map=['h*: none', 'e*: none', '*: heuristic'], decay_rate=0.7, step_offset=0, clipping_threshold=1.0, global_norm_clip_threshold=0.0, epsilon1=1e-30, epsilon2=0.001, multiply_by_parameter_scale=true, parameter_scale_rules=[], max_parameter_scale=0.0, beta1=0.5, dtype_momentum='float32', weight_decay_rate=0.0, weight_decay_rate_lr_exponent=0.0, skip_nan_updates=true)\""},
    {"adabelief", "b1 = 0.5\nb2 = 0.7\neps = 0.1\neps_root = 0.2",
     "\"scale_by_belief(b1=0.5, b2=0.7, eps=0.1, eps_root=0.2)\", \"scale_by_learning_rate\""},
    {"adagrad", "initial_accumulator_value = 0.5\neps = 0.2",
     "\"scale_by_rss(initial_accumulator_value=0.5, eps=0.2)\", \"scale_by_learning_rate\""},
    {"adam", "b1 = 0.5\nb2 = 0.7\neps = 0.1\neps_root = 0.2",
     "\"scale_by_adam(b1=0.5, b2=0.7, eps=0.1, eps_root=0.2)\", \"scale_by_learning_rate\""},
    {"dpsgd", "l2_norm_clip = 0.5\nnoise_multiplier = 0.3\nmomentum = 0.7\nnesterov = true",
     "\"differentially_private_aggregate(l2_norm_clip=0.5, noise_multiplier=0.3)\", \"trace(decay=0.7, nesterov=true)\", \"scale_by_learning_rate\""},
    {"fromage", "min_norm = 0.5",
     "\"scale_by_trust_ratio(min_norm=0.5, trust_coefficient=1.0, eps=0.0, mask=['*'])\", \"scale_by_fromage\""},
    {"lamb",
     "b1 = 0.5\nb2 = 0.7\neps = 0.1\neps_root = 0.2\nweight_decay = 0.3\nweight_decay_mask = [\"d*\"]\ntrust_ratio_mask = [\"h*\"]",
     "\"scale_by_adam(b1=0.5, b2=0.7, eps=0.1, eps_root=0.2)\", \"add_decayed_weights(weight_decay=0.3, mask=['d*'])\", \"scale_by_trust_ratio(min_norm=0.0, trust_coefficient=1.0, eps=0.0, mask=['h*'])\", \"scale_by_learning_rate\""},
    {"lars",
     "weight_decay = 0.3\nweight_decay_mask = [\"d*\"]\ntrust_coefficient = 0.5\neps = 0.2\ntrust_ratio_mask = [\"h*\"]\nmomentum = 0.7\nnesterov = true",
     "\"add_decayed_weights(weight_decay=0.3, mask=['d*'])\", \"scale_by_trust_ratio(min_norm=0.0, trust_coefficient=0.5, eps=0.2, mask=['h*'])\", \"scale_by_learning_rate\", \"trace(decay=0.7, nesterov=true)\""},
    {"lion", "b1 = 0.5\nb2 = 0.7\nweight_decay = 0.3\nweight_decay_mask = [\"d*\"]",
     "\"scale_by_lion(b1=0.5, b2=0.7)\", \"add_decayed_weights(weight_decay=0.3, mask=['d*'])\", \"scale_by_learning_rate\""},
    {"muon",
     "momentum = 0.5\nnewton_schulz_steps = 3.0\nweight_decay = 0.3\nweight_decay_mask = [\"d*\"]\nb1 = 0.6\nb2 = 0.7\neps = 0.1",
     "\"orthogonalize(beta=0.5, nesterov=true, steps=3, b1=0.6, b2=0.7, eps=0.1)\", \"add_decayed_weights(weight_decay=0.3, mask=['d*'])\", \"scale_by_learning_rate\""},
    {"noisy_sgd", "eta = 0.5\ngamma = 0.7", "\"scale_by_learning_rate\", \"add_noise(eta=0.5, gamma=0.7)\""},
    {"radam", "b1 = 0.5\nb2 = 0.7\neps = 0.1\neps_root = 0.2\nthreshold = 4.5",
     "\"scale_by_radam(b1=0.5, b2=0.7, eps=0.1, eps_root=0.2, threshold=4.5)\", \"scale_by_learning_rate\""},
    {"rmsprop", "decay = 0.5\neps = 0.1\ninitial_scale = 0.2",
     "\"scale_by_rms(decay=0.5, eps=0.1, initial_scale=0.2)\", \"scale_by_learning_rate\", \"identity\""},
    {"rmsprop",
     "decay = 0.5\neps = 0.1\ninitial_scale = 0.2\ncentered = true\nmomentum = 0.7\nnesterov = true",
     "\"scale_by_stddev(decay=0.5, eps=0.1, initial_scale=0.2)\", \"scale_by_learning_rate\", \"trace(decay=0.7, nesterov=true)\""},
    {"schedule_free",
     "b1 = 0.5\nb2 = 0.7\neps = 0.1\nweight_decay = 0.3\nweight_decay_mask = [\"d*\"]\nweight_lr_power = 1.5",
     "\"schedule_free(scale_by_adam(b1=0.0, b2=0.7, eps=0.1, eps_root=0.0), add_decayed_weights(weight_decay=0.3, mask=['d*']), scale_by_learning_rate, b1=0.5, weight_lr_power=1.5)\""},
    {"sgd", "", "\"identity\", \"scale_by_learning_rate\""},
    {"sgd", "momentum = 0.7\nnesterov = true",
     "\"trace(decay=0.7, nesterov=true)\", \"scale_by_learning_rate\""},
    {"sm3", "b1 = 0.5\nb2 = 0.7\neps = 0.1",
     "\"scale_by_sm3(b1=0.5, b2=0.7, eps=0.1)\", \"scale_by_learning_rate\""},
    {"yogi", "b1 = 0.5\nb2 = 0.7\neps = 0.1",
     "\"scale_by_yogi(b1=0.5, b2=0.7, eps=0.1, eps_root=0.0, initial_accumulator_value=1e-06)\", \"scale_by_learning_rate\""},
};

static void compare_named(const struct named *n)
{
    char text[512], brackets[1200];
    struct sy_error err = {0};
    struct syi_text chain = {0};
    snprintf(text, sizeof text, "name = \"%s\"\n%s", n->name, n->keys);
    struct syi_config by_name = config_of(text);
    struct syi_chain *made;
    cr_assert_eq(syi_chains_make(&by_name, &made, &err), SY_OK, "%s", err.text);
    syi_terms_print_list(&made->terms, &chain);
    syi_chains_free(made, by_name.optimizer.n);
    snprintf(brackets, sizeof brackets, "[%s]", n->chain);
    cr_expect_str_eq(chain.data, brackets, "%s", n->name);
    syi_text_free(&chain);
    snprintf(brackets, sizeof brackets, "name = \"chain\"\nchain = [%s]", n->chain);
    struct syi_config by_chain = config_of(brackets);
    memset(one, 0, sizeof one);
    memset(other, 0, sizeof other);
    run_config(&by_name, 0, one);
    run_config(&by_chain, 0, other);
    cr_expect_eq(memcmp(one, other, sizeof one), 0, "%s", n->name);
}

/* What decays and what is scaled by its trust ratio where the run file does not say it. */
Test(transforms, masks_follow_the_sources)
{
    static const char some[] = "mask=['!*scale', '!*bias', '*']", all[] = "mask=['*']";
    static const struct {
        const char *name;
        int compat;
        const char *wanted, *other;
    } cases[] = {{"lamb", SYI_COMPAT_NONE, some, all},  {"lars", SYI_COMPAT_NONE, some, all},
                 {"lamb", SYI_COMPAT_T5X, all, some},   {"lars", SYI_COMPAT_T5X, all, some},
                 {"adamw", SYI_COMPAT_NONE, all, some}, {"muon", SYI_COMPAT_NONE, all, some}};
    for (size_t i = 0; i < SYI_COUNT(cases); i++) {
        char text[64];
        struct sy_error err = {0};
        struct syi_text chain = {0};
        snprintf(text, sizeof text, "name = \"%s\"\n", cases[i].name);
        struct syi_config config = config_of(text);
        config.run.compat = cases[i].compat;
        struct syi_chain *made;
        cr_assert_eq(syi_chains_make(&config, &made, &err), SY_OK, "%s", err.text);
        syi_terms_print_list(&made->terms, &chain);
        cr_expect(strstr(chain.data, cases[i].wanted) && !strstr(chain.data, cases[i].other), "%s",
                  chain.data);
        syi_chains_free(made, config.optimizer.n);
        syi_text_free(&chain);
    }
}

Test(transforms, a_named_optimizer_is_its_chain)
{
    for (size_t i = 0; i < SYI_COUNT(named); i++) compare_named(&named[i]);
    for (int i = 0; i < SYI_OPTIMIZER_CHAIN; i++) {
        int found = 0;
        for (size_t k = 0; k < SYI_COUNT(named); k++)
            found |= !strcmp(named[k].name, syi_optimizer_info(i)->name);
        cr_expect(found, "%s has no chain here", syi_optimizer_info(i)->name);
    }
}
