/* SPDX-License-Identifier: Apache-2.0 */
/* Learning rates against values worked out by hand from the formulas of schedule.h. */
#include "config.h"

#include <math.h>
#include <string.h>

#include <criterion/criterion.h>

#include "optim/schedule.h"

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
        {"quadratic", "there is no quadratic, did you mean constant?"},
        {"constant * cosine_decai", "there is no cosine_decai, did you mean cosine_decay?"},
        {"constant * rsqrt_hidden_size", "there is no rsqrt_hidden_size, did you mean "},
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
