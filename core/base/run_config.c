/* SPDX-License-Identifier: Apache-2.0 */
/* The table of options as an array, and what runs over the whole of it: defaults, one assignment, printing,
 * comparing. Single values are read and written in run_config_value.c, files in run_config_file.c; what must
 * hold between keys is in run_config_check.c. */
#include "config.h"

#include <limits.h>
#include <string.h>

#include "base/run_config.h"

static const struct syi_option options[] = {
#define SY_SECTION_BEGIN(section, help)
#define SY_SECTION_END(section)
#define SY_OPTION(section, key, type, value, range, flags, help)                                             \
    {#section,                                                                                               \
     #key,                                                                                                   \
     #section "." #key,                                                                                      \
     SYI_OPTION_##type,                                                                                      \
     SYI_OPTION_##flags,                                                                                     \
     value,                                                                                                  \
     range,                                                                                                  \
     help,                                                                                                   \
     offsetof(struct syi_config, section.key),                                                               \
     sizeof(((struct syi_config *)0)->section.key)},
#include "base/options.def"
#undef SY_SECTION_BEGIN
#undef SY_SECTION_END
#undef SY_OPTION
};

static const struct {
    const char *name, *help;
} sections[] = {
#define SY_SECTION_BEGIN(section, help) {#section, help},
#define SY_SECTION_END(section)
#define SY_OPTION(section, key, type, value, range, flags, help)
#include "base/options.def"
#undef SY_SECTION_BEGIN
#undef SY_SECTION_END
#undef SY_OPTION
};

const struct syi_option *syi_config_options(size_t *n)
{
    *n = SYI_COUNT(options);
    return options;
}

const struct syi_option *syi_config_find(const char *key)
{
    int alone = !strchr(key, '.'); /* of [run] */
    for (size_t i = 0; i < SYI_COUNT(options); i++) {
        if (strcmp(options[i].key, key) == 0) return &options[i];
        if (alone && strcmp(options[i].section, "run") == 0 && strcmp(options[i].name, key) == 0)
            return &options[i];
    }
    return NULL;
}

/* A right name in a wrong or missing section is nearer than a misspelt key. */
const char *syi_config_nearest(const char *key)
{
    const char *dot = strrchr(key, '.'), *name = dot ? dot + 1 : key, *best = options[0].key;
    int least = INT_MAX;
    for (size_t i = 0; i < SYI_COUNT(options); i++) {
        int distance = syi_edit_distance(key, options[i].key);
        if (strcmp(name, options[i].name) == 0 && distance > 1) distance = 1;
        if (distance >= least) continue;
        least = distance;
        best = options[i].key;
    }
    return best;
}

static void *field_of(struct syi_config *config, const struct syi_option *option)
{
    return (char *)config + option->offset;
}

static const void *value_of(const struct syi_config *config, const struct syi_option *option)
{
    return (const char *)config + option->offset;
}

int syi_config_defaults(struct syi_config *config, struct sy_error *err)
{
    char reason[SYI_REASON];
    memset(config, 0, sizeof(*config));
    for (size_t i = 0; i < SYI_COUNT(options); i++) {
        const struct syi_option *option = &options[i];
        if (syi_option_parse(option, option->default_text, false, field_of(config, option), reason) != SY_OK)
            return syi_error(err, SY_EINTERNAL, "default of %s: %s", option->key, reason);
    }
    return SY_OK;
}

/* Before the first section of a file, and in --set, a key of [run] may stand alone: compat = "t5x". */
int syi_config_set(struct syi_config *config, const char *assignment, struct sy_error *err)
{
    char key[128], reason[SYI_REASON];
    const char *equals = strchr(assignment, '=');
    if (!equals)
        return syi_error(err, SY_EINVAL, "setting %s: write SECTION.KEY=VALUE, as in train.steps=20",
                         assignment);
    const char *start = assignment + strspn(assignment, " \t"), *end = equals;
    while (end > start && (end[-1] == ' ' || end[-1] == '\t')) end--;
    snprintf(key, sizeof(key), "%.*s", (int)(end - start < 127 ? end - start : 127), start);
    const struct syi_option *option = syi_config_find(key);
    if (!option)
        return syi_error(err, SY_EINVAL, "setting %s: unknown key %s, did you mean %s?", assignment, key,
                         syi_config_nearest(key));
    if (syi_option_parse(option, equals + 1, true, field_of(config, option), reason) != SY_OK)
        return syi_error(err, SY_EINVAL, "setting %s: %s: %s", assignment, key, reason);
    return SY_OK;
}

int syi_config_get_text(const struct syi_config *config, const char *key, struct syi_text *out,
                        struct sy_error *err)
{
    const struct syi_option *option = syi_config_find(key);
    if (!option)
        return syi_error(err, SY_EINVAL, "unknown key %s, did you mean %s?", key, syi_config_nearest(key));
    syi_option_print(option, value_of(config, option), out);
    return syi_text_status(out, err);
}

static void print_help(const struct syi_option *option, struct syi_text *out)
{
    syi_text_printf(out, "# %s\n# (", option->help);
    syi_option_describe(option, out);
    syi_text_printf(out, "; default %s)\n", option->default_text);
}

void syi_config_print(const struct syi_config *config, bool help, struct syi_text *out)
{
    for (size_t s = 0; s < SYI_COUNT(sections); s++) {
        if (s) syi_text_puts(out, "\n");
        if (help) syi_text_printf(out, "# ---- %s ----\n", sections[s].help);
        syi_text_printf(out, "[%s]\n", sections[s].name);
        for (size_t i = 0; i < SYI_COUNT(options); i++) {
            const struct syi_option *option = &options[i];
            if (strcmp(option->section, sections[s].name) != 0) continue;
            if (help) print_help(option, out);
            syi_text_printf(out, "%s = ", option->name);
            syi_option_print(option, value_of(config, option), out);
            syi_text_puts(out, "\n");
        }
    }
}

int syi_config_compare(const struct syi_config *old_config, const struct syi_config *new_config,
                       syi_config_difference_fn fn, void *arg, struct sy_error *err)
{
    int status = SY_OK;
    for (size_t i = 0; i < SYI_COUNT(options) && status == SY_OK; i++) {
        struct syi_text before = {0}, after = {0};
        syi_option_print(&options[i], value_of(old_config, &options[i]), &before);
        syi_option_print(&options[i], value_of(new_config, &options[i]), &after);
        status = syi_text_status(&before, err);
        if (status == SY_OK) status = syi_text_status(&after, err);
        if (status == SY_OK && strcmp(before.data, after.data) != 0)
            status = fn(arg, &options[i], before.data, after.data);
        syi_text_free(&before);
        syi_text_free(&after);
    }
    return status;
}
