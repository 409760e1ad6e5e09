/* SPDX-License-Identifier: Apache-2.0 */
/* Optimizers of optax in files of gin: their arguments, chains of transformations, learning rates and their schedules. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "base/optimizers.h"
#include "import/gin_conversion.h"

/* The function of T5X that makes a schedule of factors. */
static const char scheduler[] = "create_learning_rate_scheduler";

/* Defaults of optax's optimizers that are others than switchyard's. */
static const struct {
    int optimizer;
    const char *key, *value;
} optax_default[] = {
    {SYI_OPTIMIZER_ADAMW, "optimizer.b2", "0.999"},
    {SYI_OPTIMIZER_ADAMW, "optimizer.weight_decay", "1e-4"},
    {SYI_OPTIMIZER_LION, "optimizer.weight_decay", "1e-3"},
    {SYI_OPTIMIZER_LAMB, "optimizer.weight_decay_mask", "[\"*\"]"},
    {SYI_OPTIMIZER_LAMB, "optimizer.trust_ratio_mask", "[\"*\"]"},
    {SYI_OPTIMIZER_LARS, "optimizer.weight_decay_mask", "[\"*\"]"},
    {SYI_OPTIMIZER_LARS, "optimizer.trust_ratio_mask", "[\"*\"]"},
};

/* One of the transformations of `chain`: the optimizer, or what clips before it. */
static void take_transformation(struct syi_gin_conversion *c, const struct syi_gin_binding *chain,
                                const char *name)
{
    char reason[SYI_REASON], why[SYI_GIN_TEXT];
    struct syi_key key;
    const struct syi_gin_binding *norm = syi_gin_find_binding(c, "clip_by_global_norm", "max_norm");
    if (norm && !strcmp(name, "clip_by_global_norm")) {
        uint32_t value = syi_gin_resolve(c->gin, norm->value);
        if (value != SYI_GIN_NONE) syi_gin_set_value(c, norm, "train.clip_norm", NULL, value);
        return;
    }
    if (*name && !syi_key_parse("optimizer.name", &key, reason) &&
        !syi_config_assign(&c->config, &key, name, true, reason)) {
        syi_gin_set(c, chain, "optimizer.name", name);
        return;
    }
    snprintf(
        why, sizeof why,
        "%.60s is left out of it: to have it, write optimizer.name = \"chain\" and optimizer.chain, whose "
        "transforms have optax's names",
        *name ? name : "what is no reference");
    syi_gin_note_binding(c, chain, why);
}

void syi_gin_take_chain(struct syi_gin_conversion *c)
{
    const struct syi_gin_binding *chain = syi_gin_find_binding(c, "chain", "transformations");
    uint32_t list = chain ? syi_gin_resolve(c->gin, chain->value) : SYI_GIN_NONE;
    if (c->config.optimizer.part[0].name != SYI_OPTIMIZER_CHAIN || list == SYI_GIN_NONE ||
        c->gin->nodes[list].kind != SYI_GIN_LIST)
        return;
    for (uint32_t i = c->gin->nodes[list].first; i != SYI_GIN_NONE; i = c->gin->nodes[i].next)
        take_transformation(c, chain, syi_gin_referred_to(c, syi_gin_resolve(c->gin, i)));
}

void syi_gin_set_optax_defaults(struct syi_gin_conversion *c)
{
    for (size_t i = 0; i < SYI_COUNT(optax_default); i++)
        if (optax_default[i].optimizer == c->config.optimizer.part[0].name)
            syi_gin_set(c, NULL, optax_default[i].key, optax_default[i].value);
}

/* A number that is bound to CLASS.PARAMETER. */
static double number_of(const struct syi_gin_conversion *c, const char *class, const char *parameter,
                        double otherwise)
{
    const struct syi_gin_binding *binding = syi_gin_find_binding(c, class, parameter);
    uint32_t value = binding ? syi_gin_resolve(c->gin, binding->value) : SYI_GIN_NONE;
    if (value == SYI_GIN_NONE || c->gin->nodes[value].kind != SYI_GIN_NUMBER) return otherwise;
    return strtod(syi_gin_text_of(c, value), NULL);
}

static void set_number(struct syi_gin_conversion *c, const struct syi_gin_binding *from, const char *key,
                       double value)
{
    char text[SYI_NUMBER_BYTES];
    syi_format_double(text, value);
    syi_gin_set(c, from, key, text);
}

/* T5X's own schedule has no say where the optimizer's rate is taken over: what a file says of it is left out. */
static void note_scheduler(struct syi_gin_conversion *c)
{
    for (size_t i = 0; i < c->gin->n_bindings; i++) {
        const struct syi_gin_binding *binding = &c->gin->bindings[i];
        struct syi_gin_name name = syi_gin_take_apart(syi_gin_name_of(c, binding));
        uint32_t value = syi_gin_resolve(c->gin, binding->value);
        if (!strcmp(name.class, scheduler) && value != SYI_GIN_NONE && !syi_gin_is_word(c, value, "None"))
            syi_gin_note_binding(c, binding, "the optimizer has a learning_rate of its own, which holds");
    }
}

/* The rate is that of the optimizer: what T5X's own schedule would be counts for nothing. */
static void set_rate(struct syi_gin_conversion *c, const struct syi_gin_binding *from, double rate,
                     double warmup, const char *factors)
{
    c->n_factors = 0;
    note_scheduler(c);
    set_number(c, from, "train.learning_rate", rate);
    set_number(c, from, "train.warmup_steps", warmup);
    syi_gin_set(c, from, "train.lr_factors", factors);
    syi_gin_set(c, from, "train.min_learning_rate", "0");
    if (syi_gin_find_set(c, "train.lr_step_offset")) syi_gin_set(c, from, "train.lr_step_offset", "0");
}

/* As optax: a straight line from 0 to the peak, then half a cosine down to the end. */
static int set_warmup_cosine(struct syi_gin_conversion *c, const struct syi_gin_binding *from)
{
    static const char name[] = "warmup_cosine_decay_schedule";
    double peak = number_of(c, name, "peak_value", 0), warmup = number_of(c, name, "warmup_steps", -1);
    double steps = number_of(c, name, "decay_steps", 0), end = number_of(c, name, "end_value", 0);
    char factors[SYI_GIN_TEXT];
    if (number_of(c, name, "init_value", 1) != 0 || number_of(c, name, "exponent", 1) != 1) return 0;
    if (!(peak > 0) || !(warmup >= 0) || !(steps > warmup) || !(end >= 0 && end <= peak)) return 0;
    snprintf(factors, sizeof factors,
             "constant * linear_warmup * cosine(decay_steps=%.0f, alpha=%.9g, transition_begin=%.0f)",
             steps - warmup, end / peak, warmup);
    set_rate(c, from, peak, warmup, factors);
    return 1;
}

void syi_gin_take_rate(struct syi_gin_conversion *c)
{
    int optimizer = c->config.optimizer.part[0].name;
    const struct syi_gin_binding *rate =
        syi_gin_find_binding(c, syi_optimizer_info(optimizer)->name, "learning_rate");
    uint32_t value = rate ? syi_gin_resolve(c->gin, rate->value) : SYI_GIN_NONE;
    const char *schedule = syi_gin_referred_to(c, value);
    if (!rate || optimizer == SYI_OPTIMIZER_ADAFACTOR || !strcmp(schedule, scheduler)) return;
    if (value != SYI_GIN_NONE && c->gin->nodes[value].kind == SYI_GIN_NUMBER)
        set_rate(c, rate, strtod(syi_gin_text_of(c, value), NULL), 0, "constant");
    else if (strcmp(schedule, "warmup_cosine_decay_schedule") || !set_warmup_cosine(c, rate))
        syi_gin_note_binding(c, rate,
                             "write it as factors of train.lr_factors, among which are those of optax");
}

int syi_gin_convert_optax(struct syi_gin_conversion *c, const struct syi_gin_binding *binding,
                          const struct syi_gin_name *name, uint32_t value)
{
    char key[SYI_GIN_TEXT];
    int optimizer = c->config.optimizer.part[0].name;
    if (optimizer == SYI_OPTIMIZER_ADAFACTOR || strcmp(syi_optimizer_info(optimizer)->name, name->class))
        return 0;
    if (!strcmp(name->parameter, "learning_rate")) return 1; /* take_rate */
    if (!syi_optimizer_takes(optimizer, name->parameter)) return 0;
    snprintf(key, sizeof key, "optimizer.%s", name->parameter);
    syi_gin_set_value(c, binding, key, NULL, value);
    return 1;
}
