/* SPDX-License-Identifier: Apache-2.0 */
/* Cases of kind schedule: T5X's create_learning_rate_scheduler. Nothing runs on a backend. */
#include "config.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "optim/schedule.h"
#include "verify/rows.h"

struct schedule {
    const struct verify_case *item;
    uint32_t steps, expected; /* lists of the document */
    struct syi_config config; /* what is auto in a factor */
    struct syi_text product;  /* of train.lr_factors */
    double decay_factor;      /* T5X has these once, a run file once a factor */
    int64_t steps_per_decay, steps_per_cycle;
};

/* ---- the case ---- */

/* A factor with those of the keys that it has. */
static void put_factor(struct schedule *s, const char *name, size_t length)
{
    char number[SYI_NUMBER_BYTES];
    syi_format_double(number, s->decay_factor);
    syi_text_append(&s->product, name, length);
    if (length == 12 && !strncmp(name, "linear_decay", length))
        syi_text_printf(&s->product, "(decay_factor=%s)", number);
    else if (length == 11 && !strncmp(name, "decay_every", length))
        syi_text_printf(&s->product, "(decay_factor=%s, steps_per_decay=%lld)", number,
                        (long long)s->steps_per_decay);
    else if (length == 12 && !strncmp(name, "cosine_decay", length))
        syi_text_printf(&s->product, "(steps_per_cycle=%lld)", (long long)s->steps_per_cycle);
}

/* What stands between names, stars and blanks, is kept as it is. */
static void put_product(struct schedule *s, const char *factors)
{
    while (*factors) {
        size_t between = strspn(factors, " *"), name = strcspn(factors + between, " *");
        syi_text_append(&s->product, factors, between);
        if (name) put_factor(s, factors + between, name);
        factors += between + name;
    }
}

static int read_keys(struct schedule *s, const char **factors, struct sy_error *err)
{
    const struct verify_case *c = s->item;
    int status = syi_config_defaults(&s->config, err);
    const int64_t most = INT64_C(1000000000000);
    if (!status) status = verify_text(c, "factors", factors, err);
    if (!status) status = verify_real(c, "base_learning_rate", &s->config.train.learning_rate, err);
    if (!status) status = verify_real(c, "min_learning_rate", &s->config.train.min_learning_rate, err);
    if (!status) status = verify_int(c, "warmup_steps", 0, most, &s->config.train.warmup_steps, err);
    if (!status) status = verify_int(c, "step_offset", 0, most, &s->config.train.lr_step_offset, err);
    if (!status) status = verify_real(c, "decay_factor", &s->decay_factor, err);
    if (!status) status = verify_int(c, "steps_per_decay", 1, most, &s->steps_per_decay, err);
    if (!status) status = verify_int(c, "steps_per_cycle", 1, most, &s->steps_per_cycle, err);
    return status;
}

static int read_case(struct schedule *s, struct sy_error *err)
{
    uint32_t inputs;
    const char *factors;
    int status = read_keys(s, &factors, err);
    if (!status) status = verify_member(s->item, 0, "inputs", SYI_JSON_OBJECT, &inputs, err);
    if (!status) status = verify_member(s->item, inputs, "steps", SYI_JSON_ARRAY, &s->steps, err);
    if (status) return status;
    s->expected = syi_json_member(&s->item->json, 0, "expected");
    if (s->expected == SYI_JSON_NONE) return syi_error(err, SY_EFORMAT, "nothing is expected");
    put_product(s, factors);
    return syi_text_status(&s->product, err);
}

/* ---- comparing ---- */

/* The reference computes in float32, in which a step and the share of a cycle that it has come are not exact: what the
 * rate changes by in so much of a step is allowed besides the case's rtol. */
static double rounding(const struct schedule *s, const struct syi_schedule *compiled, int64_t step)
{
    double here = syi_schedule_value(compiled, step), t = (double)(step - s->config.train.lr_step_offset);
    double before = step ? fabs(here - syi_schedule_value(compiled, step - 1)) : 0;
    double after = fabs(here - syi_schedule_value(compiled, step + 1));
    return fmax(before, after) * fmax(t, 0) * FLT_EPSILON;
}

struct comparison {
    double difference, largest, share; /* largest so far: |a - b|, |b|, share of what is allowed */
    char reason[160];
};

static void compare_step(const struct schedule *s, const struct syi_schedule *compiled, int64_t step,
                         float want, double tolerance, struct comparison *all)
{
    float got = (float)syi_schedule_value(compiled, step);
    int64_t at;
    double allowed = rounding(s, compiled, step) * tolerance;
    double share = verify_error_to_tolerance(&got, &want, 1, s->item->rtol * tolerance, allowed, &at);
    all->difference = fmax(all->difference, fabs((double)got - (double)want));
    all->largest = fmax(all->largest, fabs((double)want));
    if (share <= all->share) return;
    all->share = share;
    snprintf(all->reason, sizeof all->reason, "at step %lld it is %.9g, expected %.9g", (long long)step,
             (double)got, (double)want);
}

static int compare(const struct schedule *s, const struct syi_schedule *compiled,
                   struct verify_report *report, struct sy_error *err)
{
    const struct syi_json_node *node = s->item->json.nodes;
    struct comparison all = {0};
    uint32_t step = node[s->steps].first, value = node[s->expected].first;
    if (node[s->expected].kind != SYI_JSON_ARRAY || !node[s->steps].n_children ||
        node[s->expected].n_children != node[s->steps].n_children)
        return syi_error(err, SY_EFORMAT, "steps and expected are not two lists of the same length");
    for (; step != SYI_JSON_NONE; step = node[step].next, value = node[value].next) {
        if (!node[step].is_integer || node[step].integer < 0 || node[step].integer > INT32_MAX ||
            node[value].kind != SYI_JSON_NUMBER)
            return syi_error(err, SY_EFORMAT, "a step is no int32 from 0 on, or what is expected no number");
        compare_step(s, compiled, node[step].integer, (float)node[value].number, report->tolerance, &all);
    }
    verify_judge(report, "rate", all.largest > 0 ? all.difference / all.largest : all.difference,
                 all.share <= 1 ? NULL : all.reason);
    return SY_OK;
}

/* An error is an answer, too: its type counts and its message does not. */
static int compare_error(const struct schedule *s, int status, const char *reason,
                         struct verify_report *report, struct sy_error *err)
{
    uint32_t error = syi_json_member(&s->item->json, s->expected, "error");
    if (error == SYI_JSON_NONE || !status) {
        verify_judge(report, "rate", 0, status ? reason : "is accepted, an error was expected");
        return SY_OK;
    }
    if (status != SY_EINVAL) return syi_error(err, status, "%s", reason);
    int same = !strcmp(syi_json_string(&s->item->json, error), "ValueError");
    verify_judge(report, "error", 0, same ? NULL : "is a ValueError, another one was expected");
    return SY_OK;
}

int verify_schedule(struct verify_context *context, const struct verify_case *c, struct verify_report *report,
                    struct sy_error *err)
{
    (void)context;
    char reason[SYI_TERM_REASON] = "";
    struct syi_schedule compiled;
    struct schedule s = {.item = c};
    int status = read_case(&s, err);
    if (!status) {
        int refused =
            syi_schedule_compile_rate(&compiled, &s.config, s.product.length ? s.product.data : "", reason);
        if (refused || c->json.nodes[s.expected].kind == SYI_JSON_OBJECT)
            status = compare_error(&s, refused, reason, report, err);
        else
            status = compare(&s, &compiled, report, err);
    }
    syi_text_free(&s.product);
    return status;
}
