/* SPDX-License-Identifier: Apache-2.0 */
/* What chains of transforms are refused for, and warned of, because their updates could not make sense: learning rates that
 * multiply each other, divisions of 0 by 0, updates that climb. */
#include "config.h"

#include <string.h>

#include "base/optimizers.h"
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

/* Of a part with factors of its own. */
int syi_chain_check_factors(const struct syi_terms *terms, const char *where, struct sy_error *err)
{
    for (int t = 0; t < terms->n; t++)
        if (terms->term[t].kind->rate || is_kind(&terms->term[t], SYI_TRANSFORM_schedule_free)) return SY_OK;
    return syi_error(
        err, SY_EINVAL,
        "%s has no learning rate that lr_factors could multiply: add \"scale_by_learning_rate\", or leave "
        "lr_factors out",
        where);
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

void syi_warn_of_chains(const struct syi_config *config)
{
    char reason[SYI_TERM_REASON];
    struct syi_terms *terms = syi_alloc(sizeof *terms, NULL);
    for (int i = 0; terms && i < config->optimizer.n; i++) {
        const struct syi_optimizer_part *part = &config->optimizer.part[i];
        terms->n = 0;
        if (part->name != SYI_OPTIMIZER_CHAIN || syi_optimizer_read_chain(part, terms, reason) ||
            !climbs(terms))
            continue;
        syi_log(
            SY_LOG_WARN,
            "optimizer%s%s.chain adds gradients to weights, so the loss climbs: no transform turns the sign; end it with "
            "\"scale_by_learning_rate\", or \"scale(-STEP)\"",
            *part->name_of_part ? "." : "", part->name_of_part);
    }
    syi_free(terms);
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
