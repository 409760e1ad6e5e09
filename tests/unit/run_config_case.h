/* SPDX-License-Identifier: Apache-2.0 */
/* Configurations from texts of run files. */
#ifndef SY_RUN_CONFIG_CASE_H
#define SY_RUN_CONFIG_CASE_H

#include <criterion/criterion.h>
#include <string.h>

#include "base/run_config.h"

static struct syi_config defaults(void)
{
    static struct syi_config config;
    struct sy_error err = {0};
    cr_assert_eq(syi_config_defaults(&config, &err), SY_OK, "%s", err.text);
    return config;
}

static int load(struct syi_config *config, const char *text, struct sy_error *err)
{
    memset(err, 0, sizeof(*err));
    return syi_config_load_text(config, "t.run", text, strlen(text), err);
}

#endif
