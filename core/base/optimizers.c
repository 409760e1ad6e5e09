/* SPDX-License-Identifier: Apache-2.0 */
/* Optimizers by name: which keys of [optimizer] each takes, and what stands for their "auto". */
#include "config.h"

#include <math.h>
#include <string.h>

#include "base/optimizers.h"

static const struct syi_optimizer_info table[] = {
#define SY_OPTIMIZER(NAME, name, keys, help) [SYI_OPTIMIZER_##NAME] = {#name, keys, help},
#include "base/optimizers.def"
#undef SY_OPTIMIZER
    [SYI_OPTIMIZER_CHAIN] = {"chain", "", "the transforms of the key chain"},
    [SYI_OPTIMIZER_NONE] = {"none", "", "parameters stay as they are"},
};

const struct syi_optimizer_info *syi_optimizer_info(int optimizer)
{
    return &table[optimizer];
}

const struct syi_part_kind *syi_optimizer_kind(void)
{
    size_t n;
    const struct syi_part_kind *kind = syi_config_kinds(&n);
    while (strcmp(kind->name, "optimizer") != 0) kind++;
    return kind;
}

/* The text after "key" or "key=" among keys, NULL where the key is none of them. */
static const char *find_key(const char *keys, const char *key)
{
    size_t n = strlen(key);
    for (const char *at = keys; at; at = strchr(at, ' ')) {
        at += *at == ' ';
        if (!strncmp(at, key, n) && (at[n] == '=' || at[n] == ' ' || at[n] == 0))
            return at + n + (at[n] == '=');
    }
    return NULL;
}

int syi_optimizer_takes(int optimizer, const char *key)
{
    static const char always[] = "match name chain lr_factors";
    return find_key(always, key) || find_key(table[optimizer].keys, key);
}

struct syi_optimizer_part syi_optimizer_resolve(const struct syi_optimizer_part *part)
{
    const struct syi_part_kind *kind = syi_optimizer_kind();
    struct syi_optimizer_part resolved = *part;
    for (size_t i = 0; i < kind->n_options; i++) {
        const struct syi_option *option = &kind->options[i];
        double *field = (double *)((char *)&resolved + option->offset);
        if (option->type != SYI_OPTION_FLOAT || !isnan(*field)) continue;
        const char *text = find_key(table[part->name].keys, option->name), *end;
        if (text) *field = syi_parse_double(text, &end);
    }
    return resolved;
}

int syi_mask_match(const struct syi_strings *mask, const char *name)
{
    for (int i = 0; i < mask->n; i++) {
        const char *pattern = syi_strings_at(mask, i);
        int excludes = *pattern == '!';
        if (syi_pattern_match(pattern + excludes, name)) return !excludes;
    }
    return 0;
}
