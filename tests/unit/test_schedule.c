/* SPDX-License-Identifier: Apache-2.0 */
/* Learning rates against values worked out by hand from the formulas of schedule.h. */
#include "config.h"

#include <math.h>
#include <string.h>

#include <criterion/criterion.h>

#include "optim/optim.h"

static struct syi_config config_of(int schedule, int64_t warmup, int64_t steps)
{
    struct syi_config config;

    cr_assert(syi_config_defaults(&config, NULL) == SY_OK);
    config.train.schedule = schedule;
    config.train.warmup_steps = warmup;
    config.train.steps = steps;
    config.train.learning_rate = 0.5;
    config.train.final_learning_rate = 0.1;
    return config;
}

static void expect(const struct syi_config *config, int64_t step, double value)
{
    double rate = syi_schedule_rate(config, step);
    cr_expect(fabs(rate - value) <= 1e-15, "step %lld: %.17g instead of %.17g", (long long)step, rate, value);
}

Test(schedule, all_rise_from_zero)
{
    static const int all[] = {SYI_SCHEDULE_CONSTANT, SYI_SCHEDULE_LINEAR, SYI_SCHEDULE_RSQRT,
                              SYI_SCHEDULE_COSINE};

    for (size_t i = 0; i < SYI_COUNT(all); i++) {
        struct syi_config config = config_of(all[i], 10, 110);
        expect(&config, 0, 0);
        expect(&config, 1, 0.05);
        expect(&config, 5, 0.25);
        expect(&config, 10, 0.5);
    }
}

Test(schedule, constant)
{
    struct syi_config config = config_of(SYI_SCHEDULE_CONSTANT, 0, 100);
    expect(&config, 0, 0.5);
    expect(&config, 99, 0.5);
    expect(&config, 5000, 0.5);
}

Test(schedule, linear)
{
    struct syi_config config = config_of(SYI_SCHEDULE_LINEAR, 10, 110);
    expect(&config, 60, 0.3);
    expect(&config, 109, 0.104);
    expect(&config, 110, 0.1);
    expect(&config, 111, 0.1);
}

Test(schedule, cosine)
{
    struct syi_config config = config_of(SYI_SCHEDULE_COSINE, 10, 110);
    expect(&config, 60, 0.3);
    expect(&config, 35, 0.1 + 0.4 * (1 + sqrt(0.5)) / 2);
    expect(&config, 110, 0.1);
    expect(&config, 200, 0.1);
}

Test(schedule, rsqrt)
{
    struct syi_config config = config_of(SYI_SCHEDULE_RSQRT, 100, 1000);
    expect(&config, 100, 0.5);
    expect(&config, 400, 0.25);
    expect(&config, 900, 0.5 / 3);
    expect(&config, 1000000, 0.1); /* not below final_learning_rate */
    config.train.warmup_steps = 0;
    expect(&config, 0, 0.5);
    expect(&config, 1, 0.5);
    expect(&config, 4, 0.25);
}

Test(schedule, nothing_behind_the_warm_up)
{
    struct syi_config config = config_of(SYI_SCHEDULE_LINEAR, 10, 10);
    expect(&config, 9, 0.45);
    expect(&config, 10, 0.1);
    config.train.steps = 5;
    expect(&config, 4, 0.2);
    expect(&config, 10, 0.1);
    config.train.steps = config.train.warmup_steps = 0;
    expect(&config, 0, 0.1);
}

/* ---- train.lr_factors ---- */

static struct syi_config factors_of(const char *factors, int64_t warmup)
{
    struct syi_config config = config_of(SYI_SCHEDULE_LINEAR, warmup, 1000);
    config.train.final_learning_rate = 0; /* of train.schedule */
    cr_assert_lt(strlen(factors), sizeof config.train.lr_factors);
    memcpy(config.train.lr_factors, factors, strlen(factors) + 1);
    cr_assert_eq(syi_config_validate(&config, NULL), SY_OK, "%s", factors);
    return config;
}

Test(schedule, factors)
{
    struct syi_config config = factors_of("constant * rsqrt_decay", 100);
    expect(&config, 0, 0.05);
    expect(&config, 100, 0.05);
    expect(&config, 400, 0.025);
    config = factors_of("constant*linear_warmup *\trsqrt_decay ", 100);
    expect(&config, 0, 1e-8);
    expect(&config, 50, 0.025);
    expect(&config, 10000, 0.005);
    config = factors_of("constant", 100);
    expect(&config, 0, 0.5);
    expect(&config, 5000, 0.5);
    config = factors_of("constant * constant * linear_warmup", 100);
    expect(&config, 99, 0.2475);
    config = factors_of("linear_warmup", 0);
    expect(&config, 0, 1);
    config = factors_of("rsqrt_decay", 0);
    expect(&config, 0, 1);
    expect(&config, 16, 0.25);
    config = factors_of("rsqrt_decay", 1);
    config.train.learning_rate = 0;
    expect(&config, 4, 0.5); /* without constant the rate does not count */
    config = factors_of("constant", 1);
    config.train.learning_rate = 0;
    expect(&config, 4, 1e-8);
}

static double value_of(const struct syi_config *config, const char *product, int64_t step)
{
    struct syi_schedule s;
    char reason[SYI_TERM_REASON] = "";
    cr_assert_eq(syi_schedule_compile(&s, config, product, reason), SY_OK, "%s: %s", product, reason);
    return syi_schedule_value(&s, step);
}

struct point {
    int64_t step;
    double value;
};

/* Up to the first point of step -1. */
static void expect_values(const char *product, const struct point points[8])
{
    struct syi_config config = config_of(SYI_SCHEDULE_LINEAR, 100, 1000);
    for (int i = 0; i < 8 && points[i].step >= 0; i++) {
        double value = value_of(&config, product, points[i].step);
        cr_expect(fabs(value - points[i].value) <= 1e-15, "%s at %lld: %.17g instead of %.17g", product,
                  (long long)points[i].step, value, points[i].value);
    }
}

/* A run with warmup_steps = 100, steps = 1000, learning_rate = 0.5. */
Test(schedule, factors_of_t5x)
{
    static const struct {
        const char *product;
        struct point points[8];
    } cases[] = {
        {"constant", {{0, 0.5}, {5000, 0.5}, {-1, 0}}},
        {"constant(value=0.25)", {{0, 0.25}, {-1, 0}}},
        {"constant(0)", {{7, 0}, {-1, 0}}},
        {"linear_warmup", {{0, 0}, {25, 0.25}, {100, 1}, {200, 1}, {-1, 0}}},
        {"linear_warmup(warmup_steps=10)", {{5, 0.5}, {10, 1}, {-1, 0}}},
        {"linear_warmup(warmup_steps=0)", {{0, 1}, {-1, 0}}},
        {"linear_decay(decay_factor=0.01)",
         {{0, 0}, {50, 0.25}, {100, 0.5}, {110, 0.45}, {200, 0}, {900, 0}, {-1, 0}}},
        {"linear_decay(1, 0, 0.25)", {{0, 1}, {1, 0.75}, {4, 0}, {-1, 0}}},
        {"rsqrt_decay", {{0, 0.1}, {100, 0.1}, {400, 0.05}, {-1, 0}}},
        {"rsqrt_normalized_decay", {{0, 1}, {100, 1}, {400, 0.5}, {-1, 0}}},
        {"rsqrt_normalized_decay(warmup_steps=0)", {{0, 1}, {1, 1}, {4, 0.5}, {-1, 0}}},
        {"decay_every(decay_factor=0.1, steps_per_decay=10)",
         {{0, 1}, {9, 1}, {10, 0.1}, {19, 0.1}, {20, 0.01}, {-1, 0}}},
        {"decay_every", {{19999, 1}, {20000, 0.5}, {60000, 0.125}, {-1, 0}}},
        {"cosine_decay(steps_per_cycle=400)",
         {{0, 1}, {100, 1}, {300, 0.5}, {400, (1 - 0.70710678118654752) / 2}, {500, 1}, {700, 0.5}, {-1, 0}}},
        {"cosine_decay", {{100, 1}, {50100, 0.5}, {100100, 1}, {-1, 0}}},
        {"constant * linear_warmup * decay_every(steps_per_decay=75)",
         {{50, 0.25}, {80, 0.2}, {100, 0.25}, {150, 0.125}, {-1, 0}}},
    };
    for (size_t i = 0; i < SYI_COUNT(cases); i++) expect_values(cases[i].product, cases[i].points);
}

Test(schedule, factors_of_optax)
{
    static const struct {
        const char *product;
        struct point points[8];
    } cases[] = {
        {"linear", {{0, 1}, {250, 0.75}, {1000, 0}, {2000, 0}, {-1, 0}}},
        {"linear(init_value=0.2, end_value=0.6, transition_steps=10, transition_begin=4)",
         {{0, 0.2}, {4, 0.2}, {9, 0.4}, {14, 0.6}, {15, 0.6}, {-1, 0}}},
        {"linear(transition_begin=200)", {{200, 1}, {600, 0.5}, {1000, 0}, {-1, 0}}},
        {"linear(transition_begin=1000, end_value=0.5)", {{999, 1}, {1000, 0.5}, {-1, 0}}},
        {"polynomial(power=2)", {{0, 1}, {500, 0.25}, {1000, 0}, {-1, 0}}},
        {"polynomial(0.5, 0.25, power=2, transition_steps=4)",
         {{0, 0.5}, {2, 0.3125}, {4, 0.25}, {9, 0.25}, {-1, 0}}},
        {"exponential(transition_steps=10)",
         {{0, 1}, {5, 0.70710678118654752}, {10, 0.5}, {30, 0.125}, {-1, 0}}},
        {"exponential(transition_steps=10, staircase=true)",
         {{9, 1}, {10, 0.5}, {19, 0.5}, {20, 0.25}, {-1, 0}}},
        {"exponential(transition_steps=10, transition_begin=5, staircase=true)",
         {{4, 1}, {14, 1}, {15, 0.5}, {-1, 0}}},
        {"exponential(transition_steps=10, end_value=0.3)", {{10, 0.5}, {20, 0.3}, {500, 0.3}, {-1, 0}}},
        {"exponential(0.25, 10, 2.0, end_value=0.75)", {{10, 0.5}, {20, 0.75}, {9999, 0.75}, {-1, 0}}},
        {"exponential", {{0, 1}, {1000, 0.5}, {2000, 0.25}, {-1, 0}}},
        {"piecewise_constant(boundaries=[10, 20], scales=[0.5, 0.2], init_value=2)",
         {{0, 2}, {9, 2}, {10, 1}, {19, 1}, {20, 0.2}, {900, 0.2}, {-1, 0}}},
        {"piecewise_constant([0], [0.5])", {{0, 0.5}, {-1, 0}}},
        {"cosine(transition_begin=200)", {{200, 1}, {600, 0.5}, {1000, 0}, {-1, 0}}},
        {"polynomial(transition_begin=200)", {{200, 1}, {600, 0.5}, {1000, 0}, {-1, 0}}},
        {"exponential(transition_begin=200)", {{200, 1}, {1000, 0.5}, {-1, 0}}},
        {"exponential(transition_begin=1000)", {{1000, 1}, {1001, 0.5}, {-1, 0}}},
        {"cosine", {{0, 1}, {500, 0.5}, {1000, 0}, {1500, 0}, {-1, 0}}},
        {"cosine(init_value=2, decay_steps=100, alpha=0.1, transition_begin=50)",
         {{0, 2}, {50, 2}, {100, 1.1}, {150, 0.2}, {160, 0.2}, {-1, 0}}},
    };
    for (size_t i = 0; i < SYI_COUNT(cases); i++) expect_values(cases[i].product, cases[i].points);
}

Test(schedule, warmup_stable_decay)
{
    static const struct {
        const char *product;
        struct point points[8];
    } cases[] = {
        {"warmup_stable_decay",
         {{0, 0}, {50, 0.5}, {100, 1}, {900, 1}, {950, 0.5}, {1000, 0}, {2000, 0}, {-1, 0}}},
        {"warmup_stable_decay(0, 200, shape='cosine', final_share=0.2)",
         {{0, 1}, {800, 1}, {900, 0.6}, {1000, 0.2}, {-1, 0}}},
        {"warmup_stable_decay(decay_steps=400, shape='sqrt', final_share=0.1)",
         {{600, 1}, {700, 0.55}, {1000, 0.1}, {-1, 0}}},
        {"warmup_stable_decay(warmup_steps=10, steps=20, decay_steps=15)",
         {{9, 0.9}, {10, 1}, {15, 0.5}, {20, 0}, {-1, 0}}},
        {"warmup_stable_decay(steps=50)", {{50, 0.5}, {99, 0.99}, {100, 0}, {-1, 0}}},
    };
    for (size_t i = 0; i < SYI_COUNT(cases); i++) expect_values(cases[i].product, cases[i].points);
}

Test(schedule, offset_and_floor)
{
    struct syi_config config = factors_of("constant * linear_warmup", 100);
    config.train.lr_step_offset = 200;
    config.train.min_learning_rate = 0.01;
    expect(&config, 0, 0.01);
    expect(&config, 200, 0.01);
    expect(&config, 250, 0.25);
    expect(&config, 1000, 0.5);
    cr_expect_eq(value_of(&config, "linear_warmup", 0), 0, "a product by itself has no floor");
    cr_expect_eq(value_of(&config, "linear_warmup", 100), 1, "a product by itself has no offset");
    config.train.min_learning_rate = 0;
    expect(&config, 200, 0);
}

/* An optimizer's own factors are a learning rate as those of the run are. */
Test(schedule, offset_and_floor_of_an_optimizer)
{
    static const struct point points[] = {{0, 0.01}, {200, 0.01}, {250, 0.25}, {1000, 0.5}};
    struct syi_config config = config_of(SYI_SCHEDULE_LINEAR, 100, 1000);
    struct sy_error err = {0};
    cr_assert_eq(syi_config_set(&config, "optimizer.lr_factors=constant * linear_warmup", &err), SY_OK);
    config.train.lr_step_offset = 200;
    config.train.min_learning_rate = 0.01;
    cr_assert_eq(syi_config_validate(&config, &err), SY_OK, "%s", err.text);
    struct syi_chain *chains;
    cr_assert_eq(syi_chains_make(&config, &chains, &err), SY_OK, "%s", err.text);
    for (size_t i = 0; i < SYI_COUNT(points); i++) {
        double rate = syi_chain_rate(chains, points[i].step, 7);
        cr_expect(fabs(rate - points[i].value) <= 1e-15, "step %lld: %.17g instead of %.17g",
                  (long long)points[i].step, rate, points[i].value);
    }
    syi_chains_free(chains, config.optimizer.n);
}

/* Compiled once, it does not look at the configuration again. */
Test(schedule, compiled_is_the_run_s)
{
    struct syi_schedule s;
    char reason[SYI_TERM_REASON];
    struct syi_config config = factors_of("constant * linear_warmup * rsqrt_decay", 100);
    for (int factors = 1; factors >= 0; factors--, config.train.lr_factors[0] = 0) {
        if (!factors) config = config_of(SYI_SCHEDULE_COSINE, 10, 110);
        struct syi_config changed = config;
        cr_assert_eq(syi_schedule_compile_run(&s, &changed, reason), SY_OK);
        memset(&changed, 0, sizeof changed);
        for (int64_t step = 0; step < 300; step += 7)
            cr_expect_eq(syi_schedule_value(&s, step), syi_schedule_rate(&config, step));
    }
}

/* ---- what is refused ---- */

Test(schedule, bad_factors_are_refused)
{
    static const struct {
        const char *factors, *wanted;
    } cases[] = {
        {"constant ** linear_warmup", "a name is missing at \"* linear_warmup\""},
        {"constant *", "a name is missing at \"\""},
        {"*", "a name is missing at \"*\""},
        {" ", "a name is missing at \"\""},
        {"quadratic", "there is no quadratic, and nothing of a name like it"},
        {"constant * cosine_decai", "there is no cosine_decai, did you mean cosine_decay?"},
        {"constant * rsqrt_hidden_size", "there is no rsqrt_hidden_size"},
        {"constant linear_warmup", "a '*' is missing at \"linear_warmup\""},
        {"linear_warmup(steps=10)", "linear_warmup has no argument steps: it takes warmup_steps"},
        {"constant(value=-0.5)", "constant: value: -0.5 is not accepted: it takes a number in 0..1000"},
        {"constant(-1)", "constant: value: -1 is not accepted"},
        {"constant(value=nan)", "constant: value: nan is not accepted"},
        {"constant(value=inf)", "constant: value: inf is not accepted"},
        {"constant(value=1e400)", "constant: value: 1e400 is not accepted"},
        {"linear(end_value=-1)", "linear: end_value: -1 is not accepted"},
        {"linear(transition_steps=0)", "linear: transition_steps: 0 is not accepted"},
        {"linear(init_value=auto)", "linear: init_value: auto is not accepted"},
        {"decay_every(steps_per_decay=0)", "decay_every: steps_per_decay: 0 is not accepted"},
        {"exponential(decay_rate=0)", "exponential: decay_rate: 0 is not accepted"},
        {"cosine(alpha=2)", "cosine: alpha: 2 is not accepted"},
        {"warmup_stable_decay(shape=exp)", "warmup_stable_decay: shape: "},
        {"piecewise_constant", "piecewise_constant: boundaries are missing"},
        {"piecewise_constant(boundaries=[10, 20], scales=[0.5])",
         "2 boundaries need as many scales, there are 1"},
        {"constant * piecewise_constant([10, 30, 20], [1, 1, 1])",
         "boundaries must ascend: 20 stands after 30"},
        {"piecewise_constant([10, 10], [1, 1])", "boundaries must ascend: 10 stands after 10"},
        {"piecewise_constant([10], [-1])", "piecewise_constant: scales: [-1] is not accepted"},
    };
    for (size_t i = 0; i < SYI_COUNT(cases); i++) {
        struct syi_config config = config_of(SYI_SCHEDULE_LINEAR, 0, 1);
        struct sy_error err = {0};
        memcpy(config.train.lr_factors, cases[i].factors, strlen(cases[i].factors) + 1);
        cr_expect_eq(syi_config_validate(&config, &err), SY_EINVAL, "%s", cases[i].factors);
        cr_expect(strstr(err.text, "train.lr_factors: ") && strstr(err.text, cases[i].wanted), "%s: %s",
                  cases[i].factors, err.text);
    }
}

Test(schedule, a_rate_that_grows_without_end_is_refused)
{
    struct syi_config config = config_of(SYI_SCHEDULE_LINEAR, 0, 1000);
    struct syi_schedule s;
    char reason[SYI_TERM_REASON] = "";
    cr_expect_eq(syi_schedule_compile(&s, &config, "exponential(transition_steps=1, decay_rate=10)", reason),
                 SY_EINVAL);
    cr_expect(strstr(reason, "the product is inf at step 1000"), "%s", reason);
    cr_expect_eq(syi_schedule_compile(&s, &config, "", reason), SY_EINVAL);
    cr_expect(strstr(reason, "a name is missing"), "%s", reason);
}
