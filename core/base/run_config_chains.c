/* SPDX-License-Identifier: Apache-2.0 */
/* What chains of transforms are refused for, and warned of, because their updates could not make sense: learning rates that
 * multiply each other, examples clipped too late, divisions of 0 by 0, updates that climb; and keys that count for
 * nothing because no chain takes what they say. */
#include "config.h"

#include <math.h>
#include <string.h>

#include "base/optimizers.h"
#include "base/schedules.h"
#include "base/transforms.h"

static int is_kind(const struct syi_term *term, int transform)
{
    size_t n;
    return term->kind == &syi_transform_kinds(&n)[transform];
}

/* ---- learning rates ---- */

/* Whether a `masked` holds term a and not b: then they may be for different parameters. */
static int is_apart(const struct syi_terms *terms, int a, int b)
{
    for (int t = 0; t < a; t++)
        if (is_kind(&terms->term[t], SYI_TRANSFORM_masked) && a < terms->term[t].end &&
            (b < t || b >= terms->term[t].end))
            return 1;
    return 0;
}

/* The string of the chain, counted from 1, that the term stands in. */
static int place_of(const struct syi_terms *terms, int term)
{
    int place = 1;
    for (int t = 0; terms->term[t].end <= term; t = terms->term[t].end) place++;
    return place;
}

static int check_pair(const struct syi_terms *terms, int a, int b, const char *where, struct sy_error *err)
{
    if (is_apart(terms, a, b) && is_apart(terms, b, a)) return SY_OK;
    return syi_error(
        err, SY_EINVAL,
        "%s: %s at place %d and %s at place %d both multiply by the learning rate and turn the sign, so "
        "updates would climb: leave one out",
        where, terms->term[a].kind->name, place_of(terms, a), terms->term[b].kind->name, place_of(terms, b));
}

int syi_chain_check_rates(const struct syi_terms *terms, const char *where, struct sy_error *err)
{
    int status = SY_OK;
    for (int b = 0; b < terms->n; b++)
        for (int a = 0; a < b && !status; a++)
            if (terms->term[a].kind->rate && terms->term[b].kind->rate)
                status = check_pair(terms, a, b, where, err);
    return status;
}

static int takes_rate(const struct syi_terms *terms)
{
    for (int t = 0; t < terms->n; t++)
        if (terms->term[t].kind->rate || is_kind(&terms->term[t], SYI_TRANSFORM_schedule_free)) return 1;
    return 0;
}

/* Of a part with factors of its own. */
int syi_chain_check_factors(const struct syi_terms *terms, const char *where, struct sy_error *err)
{
    if (takes_rate(terms)) return SY_OK;
    return syi_error(
        err, SY_EINVAL,
        "%s has no learning rate that lr_factors could multiply: add \"scale_by_learning_rate\", or leave "
        "lr_factors out",
        where);
}

/* ---- examples ---- */

/* Whether the other term leaves what differentially_private_aggregate sees, and what becomes of it, as they are: it only
 * holds it, without a choice of parameters or steps. */
static int only_holds(const struct syi_terms *terms, int other, int term)
{
    return terms->term[other].end > term && (is_kind(&terms->term[other], SYI_TRANSFORM_inject_hyperparams) ||
                                             is_kind(&terms->term[other], SYI_TRANSFORM_apply_if_finite));
}

int syi_chain_check_examples(const struct syi_terms *terms, const char *where, struct sy_error *err)
{
    for (int t = 0; t < terms->n; t++)
        for (int other = 0; other < t; other++)
            if (is_kind(&terms->term[t], SYI_TRANSFORM_differentially_private_aggregate) &&
                !only_holds(terms, other, t))
                return syi_error(
                    err, SY_EINVAL,
                    "%s: differentially_private_aggregate stands %s %s, but examples are clipped before any "
                    "transform sees them: write it first, and in no other",
                    where, terms->term[other].end > t ? "inside" : "after", terms->term[other].kind->name);
    return SY_OK;
}

/* ---- updates that climb ---- */

/* A step size of 0 is a wish that nothing moves; a schedule may be below 0 itself. */
static int may_turn(const struct syi_term *term)
{
    const struct syi_transform_scale *a = (const void *)term->values;
    return term->kind->rate || is_kind(term, SYI_TRANSFORM_scale_by_schedule) ||
           (is_kind(term, SYI_TRANSFORM_scale) && a->step_size <= 0);
}

static int climbs(const struct syi_terms *terms)
{
    int begin = 0, end = terms->n;
    for (int t = 0; t < terms->n; t++) /* what it holds moves the weights by itself */
        if (is_kind(&terms->term[t], SYI_TRANSFORM_schedule_free)) begin = t + 1, end = terms->term[t].end;
    for (int t = begin; t < end; t++)
        if (may_turn(&terms->term[t])) return 0;
    return 1;
}

static void warn_of_climbing(const struct syi_optimizer_part *part)
{
    syi_log(
        SY_LOG_WARN,
        "optimizer%s%s.chain adds gradients to weights, so the loss climbs: no transform turns the sign; end it with "
        "\"scale_by_learning_rate\", or \"scale(-STEP)\"",
        *part->name_of_part ? "." : "", part->name_of_part);
}

/* Where no optimizer takes a learning rate. */
static void warn_of_reductions(const struct syi_config *config)
{
    for (int i = 0; i < config->action.n; i++)
        if (config->action.part[i].kind == SYI_ACTION_REDUCE_LR)
            syi_log(
                SY_LOG_WARN,
                "action.%s: reduce_lr_on_plateau changes nothing: no optimizer of this run multiplies by a "
                "learning rate; end its chain with \"scale_by_learning_rate\", or leave the action out",
                config->action.part[i].name_of_part);
}

void syi_warn_of_chains(const struct syi_config *config)
{
    char reason[SYI_TERM_REASON];
    struct syi_terms *terms = syi_alloc(sizeof *terms, NULL);
    int rated = 0;
    for (int i = 0; terms && i < config->optimizer.n; i++) {
        const struct syi_optimizer_part *part = &config->optimizer.part[i];
        terms->n = 0;
        if (part->name != SYI_OPTIMIZER_CHAIN || syi_optimizer_read_chain(part, terms, reason)) {
            rated |= part->name != SYI_OPTIMIZER_NONE;
            continue;
        }
        rated |= takes_rate(terms);
        if (climbs(terms)) warn_of_climbing(part);
    }
    if (terms && !rated) warn_of_reductions(config);
    syi_free(terms);
}

/* ---- keys of [train] that no factor takes ---- */

/* Whether a factor of the product has no value of its own for that argument, and so takes the key of [train]. */
static int takes_key(const char *product, const char *argument, struct syi_terms *terms)
{
    char reason[SYI_TERM_REASON];
    terms->n = 0;
    if (syi_schedule_read(terms, product, reason)) return 1; /* refused elsewhere */
    for (int t = 0; t < terms->n; t++)
        for (size_t i = 0; i < terms->term[t].kind->n_arguments; i++) {
            const struct syi_option *option = &terms->term[t].kind->arguments[i];
            double value;
            if (strcmp(option->name, argument) != 0 || option->type != SYI_OPTION_FLOAT) continue;
            memcpy(&value, terms->term[t].values + option->offset, sizeof value);
            if (isnan(value)) return 1;
        }
    return 0;
}

/* Whether one of the schedules in the part's chain does. */
static int chain_takes_key(const struct syi_optimizer_part *part, const char *argument,
                           struct syi_terms *terms, struct syi_terms *product)
{
    char reason[SYI_TERM_REASON];
    terms->n = 0;
    if (syi_optimizer_read_chain(part, terms, reason)) return 1;
    for (int t = 0; t < terms->n; t++) {
        const struct syi_transform_scale_by_schedule *a = (const void *)terms->term[t].values;
        if (is_kind(&terms->term[t], SYI_TRANSFORM_scale_by_schedule) &&
            takes_key(a->schedule, argument, product))
            return 1;
    }
    return 0;
}

/* Without factors the course of train.schedule takes all keys; where nothing moves, none is asked for. */
static void warn_of_key(const struct syi_config *config, const char *key, const char *argument,
                        const char *factor, struct syi_terms room[2])
{
    int moves = 0;
    for (int i = 0; i < config->optimizer.n; i++) {
        const struct syi_optimizer_part *part = &config->optimizer.part[i];
        const char *product = *part->lr_factors ? part->lr_factors : config->train.lr_factors;
        if (part->name == SYI_OPTIMIZER_NONE) continue;
        moves = 1;
        if (!*product || takes_key(product, argument, &room[0]) ||
            chain_takes_key(part, argument, &room[0], &room[1]))
            return;
    }
    if (!moves) return;
    syi_log(
        SY_LOG_WARN,
        "train.%s counts for nothing: no factor of lr_factors takes it; add %s without a value of its own, "
        "or leave the key out",
        key, factor);
}

void syi_warn_of_rates(const struct syi_config *config)
{
    struct syi_terms *room = syi_alloc(2 * sizeof *room, NULL);
    if (room && config->train.warmup_steps)
        warn_of_key(config, "warmup_steps", "warmup_steps", "linear_warmup", room);
    if (room && config->train.learning_rate != 1e-3)
        warn_of_key(config, "learning_rate", "value", "constant", room);
    syi_free(room);
}

/* ---- divisions ---- */

/* Arguments of which one must be above 0, or an element whose gradients were all 0, as of a token that has not been seen, is
 * 0 / 0. (scale_by_rss and scale_by_sm3 are 0 there.) */
static const struct {
    int transform;
    const char *keys[3];
} divisors[] = {
    {SYI_TRANSFORM_scale_by_adam, {"eps", "eps_root"}},
    {SYI_TRANSFORM_scale_by_belief, {"eps", "eps_root"}},
    {SYI_TRANSFORM_scale_by_yogi, {"eps", "eps_root", "initial_accumulator_value"}},
    {SYI_TRANSFORM_scale_by_radam, {"eps", "eps_root"}},
    {SYI_TRANSFORM_scale_by_rms, {"eps"}},
    {SYI_TRANSFORM_scale_by_stddev, {"eps"}},
    {SYI_TRANSFORM_orthogonalize, {"eps"}},
    {SYI_TRANSFORM_adafactor, {"epsilon1"}},
};

/* As the ops compute with it; 0 where the key is NULL. */
static float value_of(const struct syi_term *term, const char *key)
{
    double value = 0;
    for (size_t i = 0; key && i < term->kind->n_arguments; i++)
        if (!strcmp(term->kind->arguments[i].name, key))
            memcpy(&value, term->values + term->kind->arguments[i].offset, sizeof value);
    return (float)value;
}

int syi_transform_check_division(const struct syi_term *term, const char *where, const char *name,
                                 struct sy_error *err)
{
    for (size_t i = 0; i < SYI_COUNT(divisors); i++) {
        const char *const *keys = divisors[i].keys;
        float sum = 0;
        for (size_t k = 0; k < SYI_COUNT(divisors[i].keys); k++) sum += value_of(term, keys[k]);
        if (!is_kind(term, divisors[i].transform) || sum > 0) continue;
        return syi_error(
            err, SY_EINVAL,
            "%s: %s with %s = 0%s%s%s%s divides 0 by 0 where a gradient has always been 0, as of a token "
            "that was not seen: set %s to 1e-37 or more",
            where, name, keys[0], keys[1] ? ", " : "", keys[1] ? keys[1] : "", keys[1] ? " = 0" : "",
            keys[2] ? " and a start at 0" : "", keys[0]);
    }
    return SY_OK;
}
