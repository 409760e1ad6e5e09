/* SPDX-License-Identifier: Apache-2.0 */
/* Optimizers by name: which keys of [optimizer] each takes, and what stands for their "auto". */
#include "config.h"

#include <math.h>
#include <string.h>

#include "base/optimizers.h"
#include "base/transforms.h"

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
        double *field = (void *)((char *)&resolved + option->offset);
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
