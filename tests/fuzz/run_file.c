/* SPDX-License-Identifier: Apache-2.0 */
/* The run-file parser on any bytes: what it refuses leaves the values alone, what it takes is printed as a
 * run file that gives the same values. */
#include "config.h"

#include <float.h>
#include <string.h>

#include "base/compat.h"
#include "fuzz.h"
#include "optim/schedule.h"

static struct syi_text print(const struct syi_config *config)
{
    struct syi_text text = {0};
    syi_config_print(config, false, &text);
    FUZZ_REQUIRE(syi_text_status(&text, NULL) == SY_OK);
    return text;
}

static int same(const struct syi_text *a, const struct syi_text *b)
{
    return a->length == b->length && !memcmp(a->data, b->data, a->length);
}

/* A schedule of a checked run file is refused only for what it grows to, and its rates are none below 0. */
static void take_schedule(const struct syi_config *config)
{
    char reason[SYI_TERM_REASON] = "";
    static struct syi_schedule s;
    if (syi_schedule_compile_run(&s, config, reason)) {
        FUZZ_REQUIRE(strstr(reason, "more than a float32 holds"));
        return;
    }
    for (int64_t step = 1; step < config->train.steps; step *= 3)
        FUZZ_REQUIRE(!(syi_schedule_value(&s, step) < 0));
    FUZZ_REQUIRE(syi_schedule_value(&s, config->train.steps) <= FLT_MAX);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct syi_config defaults, config, again;
    static struct syi_text unchanged;
    struct sy_error err = {0};
    if (!unchanged.data) {
        FUZZ_REQUIRE(syi_config_defaults(&defaults, NULL) == SY_OK);
        unchanged = print(&defaults);
    }
    config = again = defaults;
    int status = syi_config_load_text(&config, "input", (const char *)data, size, &err);
    FUZZ_REQUIRE(status == SY_OK || (status == SY_EINVAL && err.text[0]));
    struct syi_text text = print(&config);
    FUZZ_REQUIRE(!status || same(&text, &unchanged));
    if (!status) {
        FUZZ_REQUIRE(syi_config_load_text(&again, "output", text.data, text.length, &err) == SY_OK);
        struct syi_text second = print(&again);
        FUZZ_REQUIRE(same(&text, &second));
        syi_text_free(&second);
        status = syi_config_validate(&config, &err);
        FUZZ_REQUIRE(status == SY_OK || status == SY_EINVAL);
        if (!status) take_schedule(&config);
    }
    syi_text_free(&text);
    return 0;
}
