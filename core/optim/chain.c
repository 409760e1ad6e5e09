/* SPDX-License-Identifier: Apache-2.0 */
/* Chains of transforms: from the run file to terms, from terms to ops, and what the host sets for each step. */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "optim/optim.h"
#include "program/record.h"

static const struct syi_transform *const rows[] = {
#define SY_TERM_BEGIN(name, inner, help) [SYI_TRANSFORM_##name] = &syi_transform_row_##name,
#define SY_ARGUMENT(name, key, type, value, range, help)
#define SY_TERM_END(name)
#include "base/transforms.def"
#undef SY_TERM_BEGIN
#undef SY_ARGUMENT
#undef SY_TERM_END
};

const struct syi_transform *syi_transform_of(const struct syi_term *term)
{
    size_t n;
    return rows[term->kind - syi_transform_kinds(&n)];
}

static int shares(const struct syi_term *term)
{
    const struct syi_transform *row = syi_transform_of(term);
    return row->shared && (!row->shares || row->shares(term->values));
}

/* ---- places in T5X's tree ---- */

static const char *inner_name(const struct syi_term *term)
{
    for (const struct syi_field *f = syi_transform_of(term)->state; f->name; f++)
        if (f->kind == SYI_FIELD_INNER) return f->name;
    return "";
}

void syi_term_path(const struct syi_terms *terms, int term, char path[SYI_TERM_PATH])
{
    const struct syi_term *all = terms->term;
    size_t used = 0;
    path[0] = 0;
    for (int begin = 0, end = terms->n; begin <= term;) {
        int at = begin, number = 0;
        for (; all[at].end <= term; at = all[at].end) number++;
        int alone = at == begin && all[at].end == end && (begin || all[at].kind->inner);
        const char *inner = at < term ? inner_name(&all[at]) : "";
        const char *slash = *path && !alone ? "/" : "";
        char text[16] = "";
        if (!alone) snprintf(text, sizeof text, "%d", number);
        used += (size_t)snprintf(path + used, SYI_TERM_PATH - used, "%s%s%s%s", slash, text,
                                 *inner && (*path || *text) ? "/" : "", inner);
        begin = at + 1;
        end = all[at].end;
    }
}

/* ---- from the run file ---- */

static int refuse_inner(const struct syi_chain *chain, int term, struct sy_error *err)
{
    return syi_error(
        err, SY_EMISMATCH,
        "optimizer%s%s.chain: %s stands inside another transform, but looks at all parameters: write it "
        "before that one",
        *chain->options->name_of_part ? "." : "", chain->options->name_of_part,
        chain->terms.term[term].kind->name);
}

static int read_terms(struct syi_chain *chain, struct sy_error *err)
{
    char reason[SYI_TERM_REASON];
    const char *name = chain->options->name_of_part;
    if (syi_optimizer_read_chain(chain->options, &chain->terms, reason))
        return syi_error(err, SY_EINVAL, "optimizer%s%s.chain: %s", *name ? "." : "", name, reason);
    for (int t = 0; t < chain->terms.n; t = chain->terms.term[t].end)
        for (int inner = t + 1; inner < chain->terms.term[t].end; inner++)
            if (shares(&chain->terms.term[inner])) return refuse_inner(chain, inner, err);
    return SY_OK;
}

static int compile(const struct syi_config *config, const char *product, int is_rate,
                   struct syi_schedule **schedule, struct sy_error *err)
{
    char reason[SYI_TERM_REASON];
    *schedule = syi_alloc(sizeof **schedule, err);
    if (!*schedule) return SY_ENOMEM;
    int status = is_rate ? syi_schedule_compile_rate(*schedule, config, product, reason)
                         : syi_schedule_compile(*schedule, config, product, reason);
    return status ? syi_error(err, status, "optimizer: %s", reason) : SY_OK;
}

static int compile_schedules(struct syi_chain *chain, const struct syi_config *config, struct sy_error *err)
{
    int status = SY_OK;
    if (*chain->options->lr_factors)
        status = compile(config, chain->options->lr_factors, 1, &chain->rate, err);
    for (int t = 0; t < chain->terms.n && !status; t++) {
        const struct syi_transform_scale_by_schedule *a = (const void *)chain->terms.term[t].values;
        if (syi_transform_of(&chain->terms.term[t]) == &syi_transform_row_scale_by_schedule)
            status = compile(config, a->schedule, 0, &chain->schedule[t], err);
    }
    return status;
}

static int make(struct syi_chain *chain, const struct syi_config *config, int part, struct sy_error *err)
{
    int status = SY_OK;
    struct syi_optimizer_part *resolved = syi_alloc(sizeof *resolved, err);
    if (!resolved) return SY_ENOMEM;
    *resolved = syi_optimizer_resolve(config, part);
    chain->options = &config->optimizer.part[part];
    if (resolved->name == SYI_OPTIMIZER_CHAIN)
        status = read_terms(chain, err);
    else
        syi_optimizer_chain(resolved, &chain->terms);
    syi_free(resolved);
    return status ? status : compile_schedules(chain, config, err);
}

int syi_chains_make(const struct syi_config *config, struct syi_chain **chains, struct sy_error *err)
{
    int n = config->optimizer.n, status = SY_OK;
    struct syi_chain *made = syi_alloc((size_t)n * sizeof *made, err);
    if (!made) return SY_ENOMEM;
    for (int i = 0; i < n && !status; i++) status = make(&made[i], config, i, err);
    if (status)
        syi_chains_free(made, n);
    else
        *chains = made;
    return status;
}

void syi_chains_free(struct syi_chain *chains, int n)
{
    for (int i = 0; chains && i < n; i++) {
        syi_free(chains[i].rate);
        for (int t = 0; t < SYI_TERMS; t++) syi_free(chains[i].schedule[t]);
    }
    syi_free(chains);
}

int syi_chains_average(const struct syi_chain *chains, int n)
{
    for (int i = 0; i < n; i++)
        for (int t = 0; t < chains[i].terms.n; t++)
            if (syi_transform_of(&chains[i].terms.term[t]) == &syi_transform_row_schedule_free) return 1;
    return 0;
}

/* ---- what the host sets ---- */

static void term_scalars(const struct syi_chain *chain, int begin, int end, const struct syi_optim_time *time,
                         float *value)
{
    for (int t = begin; t < end; t = chain->terms.term[t].end) {
        const struct syi_term *term = &chain->terms.term[t];
        const struct syi_transform *row = syi_transform_of(term);
        struct syi_optim_time own = {.step = time->step, .rate = time->rate, .schedule = chain->schedule[t]};
        double values[SYI_HOST_VALUES] = {0};
        if (row->host) row->host(term->values, &own, values);
        for (int slot = 0; slot < SYI_HOST_VALUES; slot++)
            value[t * SYI_HOST_VALUES + slot] = (float)values[slot];
        if (row->inner_step) own.step = row->inner_step(term->values, time->step);
        term_scalars(chain, t + 1, term->end, &own, value);
    }
}

double syi_chain_rate(const struct syi_chain *chain, int64_t step, double rate)
{
    return chain->rate ? syi_schedule_value(chain->rate, step) : rate;
}

void syi_optim_scalars(const struct syi_config *config, const struct syi_chain *chains, int64_t step,
                       double rate, double factor, float value[SYI_OPTIM_SCALARS])
{
    for (int i = 0; i < config->optimizer.n; i++) {
        struct syi_optim_time time = {.step = step, .rate = syi_chain_rate(&chains[i], step, rate) * factor};
        term_scalars(&chains[i], 0, chains[i].terms.n, &time, value + syi_optim_scalar_number(i, 0, 0));
    }
}

/* ---- recording ---- */

/* Terms begin to end, those beside each other, on one update. */
static int record_terms(const struct syi_optim *o, int begin, int end, int update)
{
    const struct syi_terms *terms = &o->group->chain->terms;
    struct syi_optim each = *o;
    for (int t = begin; t < end; t = terms->term[t].end) {
        each.term = t;
        syi_term_path(terms, t, each.path);
        update = syi_transform_of(&terms->term[t])->record(&each, terms->term[t].values, update);
    }
    return update;
}

static int record_inner(struct syi_optim *o, int update)
{
    return record_terms(o, o->term + 1, o->group->chain->terms.term[o->term].end, update);
}

static int record_range(struct syi_group *group, int i, int begin, int end)
{
    struct syi_optim o = {
        .group = group, .p = group->p, .parameter = group->tensor[i], .id = group->id[i], .ok = group->ok};
    return record_terms(&o, begin, end, group->update[i]);
}

static void go_to_layer(struct syi_group *group, int i)
{
    const struct syi_tensor *parameter = &group->p->tensor[group->tensor[i]];
    group->p->layer = syi_program_intern(group->p, syi_program_name(group->p, parameter->name));
}

/* What stands before a term that looks at all parameters is recorded for all of them first; then, and at the end,
 * parameter by parameter, so that few values live at a time. */
void syi_record_chain(struct syi_group *group, int (*enter)(void *arg, int i),
                      void (*leave)(void *arg, int i, int update), void *arg)
{
    const struct syi_terms *terms = &group->chain->terms;
    int begin = 0, entered = 0;
    group->inner = record_inner;
    for (int t = 0; t < terms->n; t = terms->term[t].end) {
        group->shared[t] = -1;
        if (!shares(&terms->term[t])) continue;
        for (int i = 0; i < group->n && !group->p->status; i++) {
            go_to_layer(group, i);
            if (!entered) group->update[i] = enter(arg, i);
            group->update[i] = record_range(group, i, begin, t);
        }
        entered = 1;
        group->p->layer = syi_program_intern(group->p, terms->term[t].kind->name);
        group->term = t;
        syi_term_path(terms, t, group->path);
        group->shared[t] = syi_transform_of(&terms->term[t])->shared(group, terms->term[t].values);
        begin = t;
    }
    for (int i = 0; i < group->n && !group->p->status; i++) {
        go_to_layer(group, i);
        if (!entered) group->update[i] = enter(arg, i);
        leave(arg, i, record_range(group, i, begin, terms->n));
    }
}
