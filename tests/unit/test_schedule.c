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

Test(schedule, unknown_factors_are_refused)
{
    static const char *const all[] = {"constant ** linear_warmup",
                                      "constant *",
                                      "*",
                                      " ",
                                      "quadratic",
                                      "constant * cosine_decay",
                                      "constants",
                                      "constan",
                                      "constant * rsqrt_hidden_size"};
    static const char *const names[] = {"\"\"",          "\"\"",          "\"\"",
                                        "\"\"",          "\"quadratic\"", "\"cosine_decay\"",
                                        "\"constants\"", "\"constan\"",   "\"rsqrt_hidden_size\""};
    for (size_t i = 0; i < SYI_COUNT(all); i++) {
        struct syi_config config = config_of(SYI_SCHEDULE_LINEAR, 0, 1);
        struct sy_error err = {0};
        memcpy(config.train.lr_factors, all[i], strlen(all[i]) + 1);
        cr_expect_eq(syi_config_validate(&config, &err), SY_EINVAL, "%s", all[i]);
        cr_expect(strstr(err.text, names[i]) && strstr(err.text, "rsqrt_decay"), "%s", err.text);
    }
}
