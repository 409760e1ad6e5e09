/* SPDX-License-Identifier: Apache-2.0 */
/* From the configuration of a case to that of a run: an optimizer with its arguments, its chain and its schedule. */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "verify/optim_case.h"

double verify_optim_number(const struct verify_case *c, const char *key, double otherwise)
{
    struct sy_error err = {0};
    double value = otherwise;
    if (verify_has(c, key) && verify_real(c, key, &value, &err)) return otherwise;
    return value;
}

/* ---- schedules ---- */

/* {"3": 0.5, "7": 0.1} */
static void put_boundaries(const struct verify_case *c, const char *prefix, struct syi_text *out)
{
    char key[80], text[SYI_NUMBER_BYTES];
    struct syi_text scales = {0};
    snprintf(key, sizeof key, "%sschedule_boundaries", prefix);
    uint32_t object = syi_json_member(&c->json, c->config, key);
    const char *between = "";
    verify_ignore(c, key);
    syi_text_puts(out, ", boundaries=[");
    for (uint32_t i = object == SYI_JSON_NONE ? object : c->json.nodes[object].first; i != SYI_JSON_NONE;
         i = c->json.nodes[i].next, between = ", ") {
        syi_format_double(text, c->json.nodes[i].number);
        syi_text_printf(out, "%s%s", between, syi_json_key(&c->json, i));
        syi_text_printf(&scales, "%s%s", between, text);
    }
    syi_text_printf(out, "], scales=[%s]", scales.data ? scales.data : "");
    syi_text_free(&scales);
}

/* The schedule of PREFIX + learning_rate_schedule as a factor. */
static int put_schedule(const struct verify_case *c, const char *prefix, struct syi_text *out,
                        struct sy_error *err)
{
    static const char *const keys[] = {"init_value", "end_value", "transition_steps", "decay_rate"};
    char key[80], text[SYI_NUMBER_BYTES];
    const char *name, *between = "(";
    snprintf(key, sizeof key, "%slearning_rate_schedule", prefix);
    int status = verify_text(c, key, &name, err);
    if (status) return status;
    syi_text_puts(out, name);
    for (size_t i = 0; i < SYI_COUNT(keys); i++) {
        snprintf(key, sizeof key, "%sschedule_%s", prefix, keys[i]);
        if (!verify_has(c, key)) continue;
        syi_format_double(text, verify_optim_number(c, key, 0));
        if (!strcmp(keys[i], "decay_rate") && strcmp(name, "exponential"))
            continue; /* of another kind of schedule */
        syi_text_printf(out, "%s%s=%s", between, keys[i], text);
        between = ", ";
    }
    if (!strcmp(name, "piecewise_constant")) put_boundaries(c, prefix, out);
    syi_text_puts(out, ")");
    return SY_OK;
}

static int read_schedule(struct verify_optim *o, struct sy_error *err)
{
    struct syi_text text = {0};
    if (!verify_has(o->item, "learning_rate_schedule")) return SY_OK;
    int status = put_schedule(o->item, "", &text, err);
    if (!status) status = syi_text_status(&text, err);
    if (!status) status = verify_optim_set(o, "", "lr_factors", text.data, err);
    syi_text_free(&text);
    return status;
}

/* ---- chains ---- */

static void put_argument(struct syi_text *out, const struct syi_json *json, uint32_t node)
{
    char text[SYI_NUMBER_BYTES];
    const struct syi_json_node *n = &json->nodes[node];
    if (n->kind == SYI_JSON_ARRAY) {
        const char *between = "[";
        for (uint32_t i = n->first; i != SYI_JSON_NONE; i = json->nodes[i].next, between = ", ")
            syi_text_printf(out, "%s'%s'", between, syi_json_string(json, i));
        syi_text_puts(out, "]");
        return;
    }
    syi_format_double(text, n->number);
    syi_text_puts(out, n->kind == SYI_JSON_NUMBER ? text : n->kind == SYI_JSON_TRUE ? "true" : "false");
}

/* Transform k with its keys transform_k_ARGUMENT. */
static int put_transform(const struct verify_case *c, int k, const char *name, struct syi_text *out,
                         struct sy_error *err)
{
    const struct syi_json *json = &c->json;
    const char *between = "(";
    char prefix[32], schedule[64];
    int n = snprintf(prefix, sizeof prefix, "transform_%d_", k), status = SY_OK;
    syi_text_puts(out, name);
    snprintf(schedule, sizeof schedule, "%slearning_rate_schedule", prefix);
    if (verify_has(c, schedule)) {
        syi_text_puts(out, "(schedule='");
        status = put_schedule(c, prefix, out, err);
        syi_text_puts(out, "'");
        between = ", ";
    }
    for (uint32_t i = json->nodes[c->config].first; i != SYI_JSON_NONE; i = json->nodes[i].next) {
        const char *key = syi_json_key(json, i);
        if (strncmp(key, prefix, (size_t)n) != 0 || strstr(key, "schedule")) continue;
        c->known[i] = 1;
        syi_text_printf(out, "%s%s=", between, key + n);
        put_argument(out, json, i);
        between = ", ";
    }
    if (*between == ',') syi_text_puts(out, ")");
    return status;
}

static int read_chain(struct verify_optim *o, struct sy_error *err)
{
    struct syi_text text = {0};
    int status = SY_OK;
    for (int k = 0; !status; k++) {
        char key[32];
        const char *name;
        snprintf(key, sizeof key, "transform_%d", k);
        if (!verify_has(o->item, key)) break;
        status = verify_text(o->item, key, &name, err);
        syi_text_puts(&text, k ? ", \"" : "[\"");
        if (!status) status = put_transform(o->item, k, name, &text, err);
        syi_text_puts(&text, "\"");
    }
    syi_text_puts(&text, "]");
    if (!status) status = syi_text_status(&text, err);
    if (!status) status = verify_optim_set(o, "", "chain", text.data, err);
    syi_text_free(&text);
    return status;
}

/* ---- the whole ---- */

int verify_optim_read(struct verify_optim *o, const char *name, struct sy_error *err)
{
    int status = syi_config_defaults(&o->config, err);
    if (!status) status = syi_config_set(&o->config, "compat=t5x", err);
    if (!status) status = syi_config_set(&o->config, "train.clip_norm=0", err);
    if (!status) status = syi_config_set(&o->config, "moe.scale_expert_gradients=false", err);
    if (!status)
        status = syi_config_set(&o->config, "train.lr_factors=constant", err); /* rates come from the case */
    if (!status) status = verify_optim_set(o, "", "name", name, err);
    if (!status && !strcmp(name, "adamw"))
        status = syi_config_set(&o->config, "optimizer.weight_decay=1e-4", err);
    if (!status && !strcmp(name, "adamw")) status = syi_config_set(&o->config, "optimizer.b2=0.999", err);
    if (!status && !strcmp(name, "adafactor"))
        status = syi_config_set(&o->config, "optimizer.logical_factor_rules=none", err);
    if (!status && !strcmp(name, "chain")) status = read_chain(o, err);
    if (!status) status = verify_optim_options(o, "", "", err);
    if (!status) status = read_schedule(o, err);
    o->first_step = (int64_t)verify_optim_number(o->item, "start_step", 0);
    o->examples = (int64_t)verify_optim_number(o->item, "batch_size", 0);
    if (o->examples) o->config.data.batch_size = o->config.train.microbatches = o->examples;
    verify_ignore(o->item, "seed stored_noise zero_params ignored_learning_rate resolved_factor_map "
                           "nan_grad_step learning_rate optimizer _rtol");
    return status;
}

/* ---- the rates of the trainer ---- */

/* One a step in the tensors, or the same for all. */
int verify_optim_rates(struct verify_optim *o, struct sy_error *err)
{
    double *rate = syi_alloc((size_t)o->steps * sizeof *rate, err),
           all = verify_optim_number(o->item, "learning_rate", 0);
    if (!rate) return SY_ENOMEM;
    o->rates = rate;
    verify_ignore(o->item, "learning_rates");
    for (int64_t i = 0; i < o->steps; i++) {
        char name[40];
        snprintf(name, sizeof name, "step_%lld/learning_rate", (long long)i);
        const struct verify_tensor *t = verify_find(o->item, name);
        rate[i] = t && t->real && t->n ? (double)t->real[0] : all;
    }
    return SY_OK;
}
