/* SPDX-License-Identifier: Apache-2.0 */
/* Every rule of [optimizer] and its named parts: which keys an optimizer takes and in which range, what a chain may be,
 * Adafactor's lists. */
#include "config.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/compat.h"
#include "base/optimizers.h"
#include "base/schedules.h"
#include "base/transforms.h"

/* "optimizer" or "optimizer.NAME" */
static const char *part_text(const struct syi_optimizer_part *part, char text[SYI_KEY])
{
    const char *name = part->name_of_part;
    snprintf(text, SYI_KEY, "optimizer%s%s", *name ? "." : "", name);
    return text;
}

static int refuse_key(const struct syi_optimizer_part *part, const struct syi_option *option,
                      struct sy_error *err)
{
    const struct syi_optimizer_info *info = syi_optimizer_info(part->name);
    char where[SYI_KEY];
    if (part->name == SYI_OPTIMIZER_CHAIN)
        return syi_error(err, SY_EINVAL,
                         "%s.%s: a chain takes its arguments in its transforms, as in "
                         "chain = [\"scale_by_adam(b2=0.98)\", \"scale_by_learning_rate\"]",
                         part_text(part, where), option->name);
    if (part->name == SYI_OPTIMIZER_NONE)
        return syi_error(
            err, SY_EINVAL,
            "%s.%s: the parameters of this section stay as they are (%s.name = \"none\"%s): set %s.name, or "
            "leave the key out",
            part_text(part, where), option->name, where,
            *part->name_of_part ? "" : ", which is so beside named optimizers where it is not written",
            where);
    return syi_error(err, SY_EINVAL,
                     "%s.%s means nothing to %s, which takes %s: leave it out, or give it its default, %s",
                     part_text(part, where), option->name, info->name, *info->keys ? info->keys : "no keys",
                     option->default_text);
}

/* A mask of all: the default in run directories of earlier versions. */
static int is_mask_of_all(const struct syi_option *option, const struct syi_optimizer_part *part)
{
    const struct syi_strings *list = (const void *)((const char *)part + option->offset);
    if (option->type != SYI_OPTION_STRINGS || strcmp(option->default_text, "auto") != 0) return 0;
    return list->n == 1 && !strcmp(list->text, "*");
}

/* A key that the optimizer does not take has its default. */
static int check_keys(const struct syi_optimizer_part *part, struct sy_error *err)
{
    const struct syi_part_kind *kind = syi_optimizer_kind();
    int status = SY_OK, differs;
    for (size_t i = 0; i < kind->n_options && !status; i++) {
        if (syi_optimizer_takes(part->name, kind->options[i].name)) continue;
        status = syi_option_differs(&kind->options[i], part, &differs, err);
        if (!status && differs && !is_mask_of_all(&kind->options[i], part))
            status = refuse_key(part, &kind->options[i], err);
    }
    return status;
}

static const struct syi_option *find_argument(int transform, const char *name)
{
    size_t n;
    const struct syi_term_kind *kind = &syi_transform_kinds(&n)[transform];
    for (size_t i = 0; i < kind->n_arguments; i++)
        if (!strcmp(kind->arguments[i].name, name)) return &kind->arguments[i];
    return NULL;
}

/* Keys that optimizers share have the widest range of any; here that of the optimizer's own transform, which goes into
 * `term`. */
static int check_range(const struct syi_optimizer_part *part, const struct syi_option *option,
                       const struct syi_option *argument, struct syi_term *term, struct sy_error *err)
{
    char where[SYI_KEY], reason[SYI_REASON] = "";
    struct syi_text value = {0};
    syi_option_print(option, (const char *)part + option->offset, &value);
    int status = syi_text_status(&value, err);
    if (!status && syi_option_parse(argument, value.data, false, term->values + argument->offset, reason))
        status = syi_error(err, SY_EINVAL, "%s.%s of %s: %s", part_text(part, where), option->name,
                           syi_optimizer_info(part->name)->name, reason);
    syi_text_free(&value);
    return status;
}

static int check_ranges(const struct syi_config *config, int i, struct sy_error *err)
{
    const struct syi_part_kind *kind = syi_optimizer_kind();
    const struct syi_optimizer_part part = syi_optimizer_resolve(config, i);
    const struct syi_optimizer_info *info = syi_optimizer_info(part.name);
    char where[SYI_KEY];
    size_t n;
    struct syi_terms *terms = syi_alloc(sizeof *terms, err);
    int status = terms ? SY_OK : SY_ENOMEM;
    if (terms) syi_terms_add(terms, &syi_transform_kinds(&n)[info->transform]);
    for (size_t k = 0; k < kind->n_options && !status; k++) {
        const struct syi_option *option = &kind->options[k], *argument;
        argument = syi_optimizer_takes(part.name, option->name) ? find_argument(info->transform, option->name)
                                                                : NULL;
        if (argument && argument->type == SYI_OPTION_FLOAT && option->type == SYI_OPTION_FLOAT)
            status = check_range(&part, option, argument, &terms->term[0], err);
    }
    if (!status)
        status = syi_transform_check_division(&terms->term[0], part_text(&part, where), info->name, err);
    syi_free(terms);
    return status;
}

/* What would be read and then not looked at. */
static int check_together(const struct syi_config *config, int i, struct sy_error *err)
{
    struct syi_optimizer_part o = syi_optimizer_resolve(config, i);
    char where[SYI_KEY];
    part_text(&o, where);
    if (o.nesterov && o.momentum == 0)
        return syi_error(err, SY_EINVAL,
                         "%s.nesterov: there is no momentum to look ahead with: set %s.momentum", where,
                         where);
    if (o.name == SYI_OPTIMIZER_ADAFACTOR && o.dtype_momentum != SYI_DTYPE_FLOAT32 && o.beta1 < 0)
        return syi_error(err, SY_EINVAL, "%s.dtype_momentum: there is no momentum to keep: set %s.beta1",
                         where, where);
    if (o.name == SYI_OPTIMIZER_NONE && *o.lr_factors)
        return syi_error(
            err, SY_EINVAL,
            "%s.lr_factors: the parameters of this section stay as they are (%s.name = \"none\"): set "
            "%s.name, or leave the key out",
            where, where, where);
    if (o.name == SYI_OPTIMIZER_MUON && o.newton_schulz_steps != floor(o.newton_schulz_steps))
        return syi_error(err, SY_EINVAL, "%s.newton_schulz_steps = %g: it takes a whole number", where,
                         o.newton_schulz_steps);
    return SY_OK;
}

/* ---- Adafactor ---- */

/* What a rule may say after its colon. */
struct rule_words {
    const char *key, *one, *many; /* words that stand alone; words one a dimension; "a b" */
};

/* Whether the first `length` bytes of text are one of the words. */
static int is_word(const char *words, const char *text, size_t length)
{
    for (const char *at = words; *at; at += strcspn(at, " "), at += *at == ' ')
        if (strcspn(at, " ") == length && !strncmp(at, text, length)) return 1;
    return 0;
}

static int refuse_word(const struct rule_words *rule, const char *where, const char *text, const char *wrong,
                       size_t length, struct sy_error *err)
{
    char word[64];
    struct syi_nearest nearest = {.name = word};
    const char *const lists[] = {rule->one, rule->many};
    snprintf(word, sizeof word, "%.*s", (int)length, wrong);
    for (int i = 0; i < 2; i++)
        for (const char *at = lists[i]; *at; at += strcspn(at, " "), at += *at == ' ')
            syi_nearest_offer(&nearest, at, strcspn(at, " "));
    const char *known = nearest.known;
    return syi_error(err, SY_EINVAL, "%s%s: \"%.200s\": there is no word %s%s%s%s It takes %s%s%s", where,
                     rule->key, text, word, *known ? ", did you mean " : "", known, *known ? "?" : ".",
                     rule->one, *rule->many ? ", or for each dimension one of " : "", rule->many);
}

static int check_rule(const struct rule_words *rule, const char *where, const char *text,
                      struct sy_error *err)
{
    const char *colon = strrchr(text, ':'), *at;
    if (!colon)
        return syi_error(err, SY_EINVAL,
                         "%s%s: \"%.200s\" has no colon: write \"PATTERN: WORD\", WORD one of %s", where,
                         rule->key, text, rule->one);
    at = colon + 1 + strspn(colon + 1, " ");
    if (is_word(rule->one, at, strlen(at))) return SY_OK;
    do {
        size_t length = strcspn(at, " ");
        if (!is_word(rule->many, at, length)) return refuse_word(rule, where, text, at, length, err);
        at += length + strspn(at + length, " ");
    } while (*at);
    return SY_OK;
}

/* where: what the keys stand in, "optimizer." or "optimizer.chain: adafactor: ". */
static int check_rules(const char *where, const struct syi_strings *factor_map,
                       const struct syi_strings *scale_rules, double beta1, struct sy_error *err)
{
    static const struct rule_words map = {"factor_map", "none heuristic", "row column batch none"},
                                   scale = {"parameter_scale_rules", "true false", ""};
    int status = SY_OK;
    for (int i = 0; i < factor_map->n && !status; i++)
        status = check_rule(&map, where, syi_strings_at(factor_map, i), err);
    for (int i = 0; i < scale_rules->n && !status; i++)
        status = check_rule(&scale, where, syi_strings_at(scale_rules, i), err);
    if (!status && beta1 < 0 && beta1 != -1)
        return syi_error(err, SY_EINVAL,
                         "%sbeta1: %g is not accepted: it takes -1 (no momentum) or a number in 0..<1", where,
                         beta1);
    return status;
}

/* ---- chains ---- */

/* State of these stands in one place for each parameter, wherever they stand in the chain. */
static int check_single(const struct syi_terms *terms, const char *where, struct sy_error *err)
{
    static const int single[] = {SYI_TRANSFORM_adafactor, SYI_TRANSFORM_schedule_free};
    size_t n;
    const struct syi_term_kind *kinds = syi_transform_kinds(&n);
    for (size_t i = 0; i < SYI_COUNT(single); i++) {
        int seen = 0;
        for (int t = 0; t < terms->n; t++) seen += terms->term[t].kind == &kinds[single[i]];
        if (seen > 1)
            return syi_error(err, SY_EINVAL,
                             "%s has %s %d times: a parameter has state of one, leave the others out", where,
                             kinds[single[i]].name, seen);
    }
    return SY_OK;
}

static int check_chain_rules(const struct syi_terms *terms, const char *where, struct sy_error *err)
{
    char prefix[SYI_KEY + 32];
    int status = SY_OK;
    size_t n;
    snprintf(prefix, sizeof prefix, "%s: adafactor: ", where);
    for (int t = 0; t < terms->n && !status; t++) {
        const struct syi_transform_adafactor *a = (const void *)terms->term[t].values;
        if (terms->term[t].kind == &syi_transform_kinds(&n)[SYI_TRANSFORM_adafactor])
            status = check_rules(prefix, &a->factor_map, &a->parameter_scale_rules, a->beta1, err);
    }
    return status;
}

/* Products of factors in arguments. */
static int check_schedules(const struct syi_terms *terms, const char *where, struct sy_error *err)
{
    int status = SY_OK;
    for (int t = 0; t < terms->n && !status; t++) {
        const struct syi_transform_scale_by_schedule *a = (const void *)terms->term[t].values;
        size_t n;
        if (terms->term[t].kind == &syi_transform_kinds(&n)[SYI_TRANSFORM_scale_by_schedule])
            status = syi_schedule_check(where, a->schedule, err);
    }
    return status;
}

static int check_terms(const struct syi_optimizer_part *part, const char *where, struct sy_error *err)
{
    char reason[SYI_TERM_REASON];
    struct syi_terms *terms = syi_alloc(sizeof *terms, err);
    if (!terms) return SY_ENOMEM;
    int status = syi_optimizer_read_chain(part, terms, reason);
    if (status)
        syi_error(err, status, "%s: %s", where, reason);
    else
        status = check_schedules(terms, where, err);
    if (!status) status = check_chain_rules(terms, where, err);
    if (!status) status = check_single(terms, where, err);
    if (!status) status = syi_chain_check_rates(terms, where, err);
    if (!status) status = syi_chain_check_examples(terms, where, err);
    if (!status && terms->n && *part->lr_factors) status = syi_chain_check_factors(terms, where, err);
    for (int t = 0; t < terms->n && !status; t++)
        status = syi_transform_check_division(&terms->term[t], where, terms->term[t].kind->name, err);
    syi_free(terms);
    return status;
}

static int check_chain(const struct syi_optimizer_part *part, struct sy_error *err)
{
    char name[SYI_KEY], where[SYI_KEY + 16];
    int is_chain = part->name == SYI_OPTIMIZER_CHAIN;
    snprintf(where, sizeof where, "%s.chain", part_text(part, name));
    if (is_chain && !part->chain.n)
        return syi_error(err, SY_EINVAL, "%s is empty: say which transforms it has", where);
    if (!is_chain && part->chain.n)
        return syi_error(err, SY_EINVAL, "%s is there, but name = \"%s\": a chain needs name = \"chain\"",
                         where, syi_optimizer_info(part->name)->name);
    int status = check_terms(part, where, err);
    snprintf(where, sizeof where, "%s.lr_factors", name);
    return status || !*part->lr_factors ? status : syi_schedule_check(where, part->lr_factors, err);
}

static int check_values(const struct syi_config *config, int i, struct sy_error *err)
{
    const struct syi_optimizer_part *part = &config->optimizer.part[i];
    char where[SYI_KEY + 1];
    int status = check_keys(part, err);
    if (!status) status = check_ranges(config, i, err);
    if (!status) status = check_together(config, i, err);
    if (status || part->name != SYI_OPTIMIZER_ADAFACTOR) return status;
    size_t length = strlen(part_text(part, where));
    snprintf(where + length, sizeof where - length, ".");
    return check_rules(where, &part->factor_map, &part->parameter_scale_rules, part->beta1, err);
}

/* Adds a setting to the list of those that are missing. */
static void require(int there, const char *setting, struct syi_text *missing)
{
    if (!there) syi_text_printf(missing, "%s%s", missing->length ? ", " : "", setting);
}

/* What clips each example sees one example a microbatch, and nothing may change its gradients before or after. */
static void list_missing(const struct syi_config *config, struct syi_text *missing)
{
    require(config->train.microbatches == config->data.batch_size,
            "train.microbatches = data.batch_size (a row each: a step takes that many forward and backward "
            "passes)",
            missing);
    require(config->train.clip_norm == 0, "train.clip_norm = 0", missing);
    require(syi_compat(config, config->train.microbatch_normalizer),
            "train.microbatch_normalizer = \"microbatch\"", missing);
    require(!config->moe.num_experts || !config->moe.scale_expert_gradients,
            "moe.scale_expert_gradients = false", missing);
    require(config->train.gradient_dtype == SYI_DTYPE_FLOAT32,
            "train.gradient_dtype = \"float32\" (rounding may lift a norm over what it was clipped to)",
            missing);
}

static int check_examples(const struct syi_config *config, const struct syi_optimizer_part *part,
                          struct sy_error *err)
{
    char name[SYI_KEY];
    double clip;
    struct syi_text missing = {0};
    int status = syi_optimizer_example_clip(part, &clip, err);
    if (status || clip == 0) return status;
    list_missing(config, &missing);
    status = syi_text_status(&missing, err);
    if (!status && missing.length)
        status = syi_error(err, SY_EINVAL, "%s clips the gradients of each example: set %s",
                           part_text(part, name), missing.data);
    syi_text_free(&missing);
    return status;
}

/* Its rate is the metric learning_rate/NAME. */
static int check_name(const struct syi_optimizer_part *part, struct sy_error *err)
{
    if (strcmp(part->name_of_part, "current") || !*part->lr_factors) return SY_OK;
    return syi_error(
        err, SY_EINVAL,
        "[optimizer.current] has lr_factors, and the metric learning_rate/current is the rate of "
        "[optimizer]: take another name");
}

int syi_config_check_optimizers(const struct syi_config *config, struct sy_error *err)
{
    int status = SY_OK;
    if (config->optimizer.part[0].match.n)
        return syi_error(
            err, SY_EINVAL,
            "optimizer.match: [optimizer] updates all parameters that no named one matches: leave the key out, or give the "
            "section a name, as [optimizer.some]; with name = \"none\" in it these parameters stay as they are");
    for (int i = 1; i < config->optimizer.n; i++)
        if (!config->optimizer.part[i].match.n)
            return syi_error(err, SY_EINVAL,
                             "optimizer.%s.match is empty: say which parameters it updates, as in "
                             "[\"*embedding*\"]",
                             config->optimizer.part[i].name_of_part);
    for (int i = 0; i < config->optimizer.n && !status; i++) {
        status = check_name(&config->optimizer.part[i], err);
        if (!status) status = check_chain(&config->optimizer.part[i], err);
        if (!status) status = check_values(config, i, err);
        if (!status) status = check_examples(config, &config->optimizer.part[i], err);
    }
    return status;
}
