/* SPDX-License-Identifier: Apache-2.0 */
/* Optimizers by name: which keys of [optimizer] each takes, and what stands for their "auto". */
#include "config.h"

#include <math.h>
#include <string.h>

#include "base/optimizers.h"
#include "base/transforms.h"

static const struct syi_optimizer_info table[] = {
#define SY_OPTIMIZER(NAME, name, transform, keys, help)                                                      \
    [SYI_OPTIMIZER_##NAME] = {#name, SYI_TRANSFORM_##transform, keys, help},
#include "base/optimizers.def"
#undef SY_OPTIMIZER
    [SYI_OPTIMIZER_CHAIN] = {"chain", SYI_TRANSFORM_identity, "", "the transforms of the key chain"},
    [SYI_OPTIMIZER_NONE] = {"none", SYI_TRANSFORM_identity, "", "parameters stay as they are"},
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

int syi_optimizer_is_given(const struct syi_config *config)
{
    const struct syi_option *option = syi_optimizer_kind()->options;
    int name = 0;
    while (strcmp(option[name].name, "name") != 0) name++;
    return config->optimizer.given >> name & 1;
}

void syi_optimizers_settle(struct syi_config *config)
{
    int moves = 0;
    for (int i = 1; i < config->optimizer.n; i++)
        moves |= config->optimizer.part[i].name != SYI_OPTIMIZER_NONE;
    if (moves && !syi_optimizer_is_given(config)) config->optimizer.part[0].name = SYI_OPTIMIZER_NONE;
}

/* A number that is auto is the optimizer's. */
static void resolve_number(const struct syi_option *option, const char *keys, double *field)
{
    const char *text = isnan(*field) ? find_key(keys, option->name) : NULL, *end;
    if (text) *field = syi_parse_double(text, &end);
}

/* A list that is auto is the optimizer's, or all: T5X knows no masks. */
static void resolve_list(const struct syi_option *option, const char *keys, int t5x,
                         struct syi_strings *field)
{
    const char *text = find_key(keys, option->name);
    char own[SYI_CONFIG_STRINGS], reason[SYI_REASON];
    if (!syi_strings_auto(field)) return;
    snprintf(own, sizeof own, "%.*s", text ? (int)strcspn(text, " ") : 0, text ? text : "");
    if (syi_option_parse(option, *own == '[' && !t5x ? own : "[\"*\"]", false, field, reason)) field->n = 0;
}

struct syi_optimizer_part syi_optimizer_resolve(const struct syi_config *config, int i)
{
    const struct syi_part_kind *kind = syi_optimizer_kind();
    struct syi_optimizer_part resolved = config->optimizer.part[i];
    const char *keys = table[resolved.name].keys;
    for (size_t k = 0; k < kind->n_options; k++) {
        const struct syi_option *option = &kind->options[k];
        void *field = (char *)&resolved + option->offset;
        if (strcmp(option->default_text, "auto") != 0) continue;
        if (option->type == SYI_OPTION_FLOAT) resolve_number(option, keys, field);
        if (option->type == SYI_OPTION_STRINGS)
            resolve_list(option, keys, config->run.compat == SYI_COMPAT_T5X, field);
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

int syi_optimizer_of(const struct syi_config *config, const char *parameter)
{
    for (int i = 1; i < config->optimizer.n; i++)
        if (syi_mask_match(&config->optimizer.part[i].match, parameter)) return i;
    return 0;
}

int syi_optimizer_read_chain(const struct syi_optimizer_part *part, struct syi_terms *terms,
                             char reason[SYI_TERM_REASON])
{
    size_t n;
    const struct syi_term_kind *kinds = syi_transform_kinds(&n);
    int status = SY_OK;
    for (int i = 0; i < part->chain.n && !status; i++)
        status = syi_terms_read(terms, kinds, n, syi_strings_at(&part->chain, i), reason);
    return status;
}

/* Of a chain the first transform of that kind. */
static double clip_of_chain(const struct syi_optimizer_part *part, struct syi_terms *terms)
{
    char reason[SYI_TERM_REASON];
    size_t n;
    const struct syi_term_kind *kinds = syi_transform_kinds(&n);
    if (syi_optimizer_read_chain(part, terms, reason)) return 0;
    for (int t = 0; t < terms->n; t++) {
        const struct syi_transform_differentially_private_aggregate *a = (const void *)terms->term[t].values;
        if (terms->term[t].kind == &kinds[SYI_TRANSFORM_differentially_private_aggregate])
            return a->l2_norm_clip;
    }
    return 0;
}

int syi_optimizer_example_clip(const struct syi_optimizer_part *part, double *clip, struct sy_error *err)
{
    *clip = 0;
    if (part->name == SYI_OPTIMIZER_DPSGD) *clip = isnan(part->l2_norm_clip) ? 1 : part->l2_norm_clip;
    if (part->name != SYI_OPTIMIZER_CHAIN) return SY_OK;
    struct syi_terms *terms = syi_alloc(sizeof *terms, err);
    if (!terms) return SY_ENOMEM;
    *clip = clip_of_chain(part, terms);
    syi_free(terms);
    return SY_OK;
}
