/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold between the keys train.init_*, which say what weights training begins with. */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/rename.h"

int syi_config_number(const char *text, int64_t *number)
{
    char *end;
    if (*text < '0' || *text > '9') return 0;
    errno = 0;
    *number = strtoll(text, &end, 10);
    return !errno && !*end;
}

/* Calls fn for the options train.init_* other than init_from that have another value than their default. */
static int each_given(const struct syi_config *config,
                      int (*fn)(const struct syi_option *option, struct sy_error *err), struct sy_error *err)
{
    size_t n;
    const struct syi_part_kind *kind = syi_config_kinds(&n);
    while (strcmp(kind->name, "train")) kind++;
    int status = SY_OK;
    for (size_t i = 0; !status && i < kind->n_options; i++) {
        const struct syi_option *option = &kind->options[i];
        int differs = 0;
        if (strncmp(option->name, "init_", 5) || !strcmp(option->name, "init_from")) continue;
        status = syi_option_differs(option, &config->train, &differs, err);
        if (!status && differs) status = fn(option, err);
    }
    return status;
}

static int refuse_alone(const struct syi_option *option, struct sy_error *err)
{
    return syi_error(err, SY_EINVAL,
                     "train.%s is about weights of another run, and train.init_from names none: set it too",
                     option->name);
}

static int refuse_with_state(const struct syi_option *option, struct sy_error *err)
{
    if (!strcmp(option->name, "init_state") || !strcmp(option->name, "init_step") ||
        !strcmp(option->name, "init_vocabulary"))
        return SY_OK;
    return syi_error(
        err, SY_EINVAL,
        "train.init_state = true takes all of another run, with the state of its optimizer: leave "
        "train.%s out, or train.init_state",
        option->name);
}

int syi_config_check_init(const struct syi_config *config, struct sy_error *err)
{
    const struct syi_train_part *t = &config->train;
    struct syi_rename rule;
    char reason[SYI_REASON];
    int64_t number;
    int status = *t->init_from ? SY_OK : each_given(config, refuse_alone, err);
    if (!status && t->init_state) status = each_given(config, refuse_with_state, err);
    if (status) return status;
    if (strcmp(t->init_step, "latest") && strcmp(t->init_step, "best") &&
        !syi_config_number(t->init_step, &number))
        return syi_error(err, SY_EINVAL, "train.init_step = \"%s\": expected \"latest\", \"best\" or a step",
                         t->init_step);
    if (*t->init_expert && strcmp(t->init_expert, "mean") && !syi_config_number(t->init_expert, &number))
        return syi_error(
            err, SY_EINVAL,
            "train.init_expert = \"%s\": expected the number of an expert, from 0 on, or \"mean\"",
            t->init_expert);
    for (int i = 0; i < t->init_match.n; i++)
        if (syi_rename_parse(syi_strings_at(&t->init_match, i), &rule, reason))
            return syi_error(err, SY_EINVAL, "train.init_match: %s", reason);
    return t->init_match.n ? SY_OK
                           : syi_error(err, SY_EINVAL, "train.init_match is empty, so nothing is taken");
}
