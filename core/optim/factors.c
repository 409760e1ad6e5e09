/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <string.h>

#include "optim/factors.h"

enum role { UNKNOWN, NEITHER, BATCH, ROW, COLUMN };

/* What the rules make of a logical axis: T5X's standard_logical_factor_rules, and moe_logical_factor_rules, which know
 * the axes of experts besides. */
static enum role role_of(int rules, int axis)
{
    int moe = rules == SYI_FACTOR_MOE;
    switch (axis) {
    case SYI_AXIS_EMBED: return ROW;
    case SYI_AXIS_VOCAB:
    case SYI_AXIS_MLP:
    case SYI_AXIS_HEADS: return COLUMN;
    case SYI_AXIS_BUCKETS: return NEITHER;
    case SYI_AXIS_LAYERS: return BATCH;
    case SYI_AXIS_EXPERT: return moe ? BATCH : UNKNOWN;
    case SYI_AXIS_EXPERT_MLP: return moe ? COLUMN : UNKNOWN;
    case SYI_AXIS_ROUTER: return moe ? NEITHER : UNKNOWN;
    default: return UNKNOWN;
    }
}

static const char *const word[] = {
    [UNKNOWN] = "", [NEITHER] = "none", [BATCH] = "batch", [ROW] = "row", [COLUMN] = "column"};

static void roles_of(int rules, int rank, const uint8_t *axis, unsigned of[COLUMN + 1])
{
    memset(of, 0, (COLUMN + 1) * sizeof *of);
    for (int i = 0; i < rank; i++) of[role_of(rules, axis[i])] |= 1u << i;
}

const char *syi_factor_word(int rules, int rank, const uint8_t *axis, int dim)
{
    unsigned of[COLUMN + 1];
    int role = COLUMN;
    roles_of(rules, rank, axis, of);
    while (role > UNKNOWN && !(of[role] >> dim & 1)) role--;
    return word[role >= ROW && !(of[ROW] && of[COLUMN]) ? NEITHER : role];
}

static struct syi_factors refuse(struct syi_optim *o, int status, const char *why)
{
    const char *part = o->group->chain->options->name_of_part, *dot = *part ? "." : "";
    syi_program_fail(
        o->p, status,
        "adafactor: parameter %s of rank %d %s: set optimizer%s%s.logical_factor_rules to moe, or "
        "optimizer%s%s.factored to false with rules none",
        syi_optim_name(o), o->p->tensor[o->parameter].rank, why, dot, part, dot, part);
    return (struct syi_factors){0};
}

/* Matrices by size: the smaller dim is the row, dim 0 of equal ones. */
static struct syi_factors by_size(struct syi_optim *o, const struct syi_tensor *t,
                                  const struct syi_transform_adafactor *options)
{
    struct syi_factors f = {0};
    int row = t->dim[1] < t->dim[0];
    if (!options->factored) return f;
    if (t->rank > 2) return refuse(o, SY_EINVAL, "has no rule that says how to factor it");
    if (t->rank != 2 || t->dim[row] < options->min_dim_size_to_factor) return f;
    f.row = 1u << row;
    f.column = 1u << !row;
    return f;
}

/* Rules count for what is more than a matrix and for stacks of experts; row and column only together. Without factoring
 * T5X looks at no rule but to refuse it, so a stack is one tensor. */
static struct syi_factors by_roles(struct syi_optim *o, const struct syi_tensor *t,
                                   const struct syi_transform_adafactor *options,
                                   const unsigned of[COLUMN + 1])
{
    struct syi_factors f = {0};
    if (t->rank <= 2 && !of[BATCH]) return by_size(o, t, options);
    if (of[UNKNOWN]) return refuse(o, SY_ENOENT, "has an axis that the rules do not know");
    if (of[ROW] && of[COLUMN] && of[NEITHER])
        return refuse(o, SY_EINVAL, "has an axis that is neither row nor column");
    if (!options->factored) return f;
    f.batch = of[BATCH];
    if (of[ROW] && of[COLUMN]) f.row = of[ROW], f.column = of[COLUMN];
    return f;
}

const char *syi_rule_of(const struct syi_strings *rules, const char *name)
{
    for (int i = 0; i < rules->n; i++) {
        char pattern[SYI_CONFIG_STRING];
        const char *rule = syi_strings_at(rules, i), *colon = strrchr(rule, ':');
        if (!colon) continue;
        snprintf(pattern, sizeof pattern, "%.*s", (int)(colon - rule), rule);
        if (syi_pattern_match(pattern, name)) return colon + 1 + strspn(colon + 1, " ");
    }
    return NULL;
}

/* "row column batch": a word a dimension. */
static struct syi_factors by_words(struct syi_optim *o, const struct syi_tensor *t,
                                   const struct syi_transform_adafactor *options, const char *words)
{
    unsigned of[COLUMN + 1] = {0};
    int dim = 0;
    for (; *words; words += strspn(words, " "), dim++) {
        size_t n = strcspn(words, " ");
        int role = COLUMN;
        while (role > UNKNOWN && (strlen(word[role]) != n || strncmp(word[role], words, n) != 0)) role--;
        of[role] |= 1u << dim;
        words += n;
    }
    if (dim != t->rank) return refuse(o, SY_EINVAL, "has a rule in factor_map of another rank");
    if (of[UNKNOWN])
        return refuse(o, SY_EINVAL,
                      "has a rule in factor_map with a word that is not row, column, batch or none");
    if (t->rank <= 2 && !of[BATCH]) return by_size(o, t, options);
    return (struct syi_factors){.batch = of[BATCH], .row = of[ROW], .column = of[COLUMN]};
}

struct syi_factors syi_factors_of(struct syi_optim *o, const struct syi_transform_adafactor *options)
{
    unsigned of[COLUMN + 1];
    if (o->p->status || o->parameter < 0) return (struct syi_factors){0};
    struct syi_tensor t = o->p->tensor[o->parameter];
    if (options->factor_map.n) {
        const char *rule = syi_rule_of(&options->factor_map, syi_optim_name(o));
        if (!options->factored) return refuse(o, SY_EINVAL, "has factor_map, but factored is false");
        if (!rule) return refuse(o, SY_ENOENT, "matches no pattern of factor_map");
        if (!strcmp(rule, "none")) return (struct syi_factors){0};
        return strcmp(rule, "heuristic") ? by_words(o, &t, options, rule) : by_size(o, &t, options);
    }
    if (options->logical_factor_rules == SYI_FACTOR_NONE) return by_size(o, &t, options);
    roles_of(options->logical_factor_rules, t.rank, t.axis, of);
    return by_roles(o, &t, options, of);
}
