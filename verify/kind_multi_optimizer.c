/* SPDX-License-Identifier: Apache-2.0 */
/* Kind multi_optimizer: several optimizers beside each other, steps as of kind optimizer. */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "verify/optim_case.h"
#include "verify/rows.h"

/* Sub-optimizer k is [optimizer.sub_k]; the rate that the trainer gives replaces its own. */
static int read_sub(struct verify_optim *o, int k, struct sy_error *err)
{
    const struct verify_case *c = o->item;
    char part[16], prefix[32], key[64], rate[SYI_NUMBER_BYTES], factor[48];
    struct syi_text patterns = {0};
    const char *regex;
    snprintf(part, sizeof part, "sub_%d", k);
    snprintf(prefix, sizeof prefix, "sub_%d_", k);
    snprintf(key, sizeof key, "sub_%d_regex", k);
    int status = verify_text(c, key, &regex, err);
    if (!status) status = verify_patterns(regex, &patterns, err);
    if (!status) status = verify_optim_set(o, part, "match", patterns.data, err);
    syi_text_free(&patterns);
    if (!status) status = verify_optim_set(o, part, "name", "adafactor", err);
    if (!status) status = verify_optim_set(o, part, "logical_factor_rules", "none", err);
    if (!status) status = verify_optim_options(o, part, prefix, err);
    snprintf(key, sizeof key, "sub_%d_learning_rate", k);
    double value = verify_optim_number(c, key, 0);
    uint32_t list = syi_json_member(&c->json, c->config, "hyper_params_learning_rates"), at = SYI_JSON_NONE;
    if (list != SYI_JSON_NONE) at = c->json.nodes[list].first;
    for (int i = 0; i < k && at != SYI_JSON_NONE; i++) at = c->json.nodes[at].next;
    if (at != SYI_JSON_NONE) value = c->json.nodes[at].number;
    verify_ignore(c, key);
    if (at == SYI_JSON_NONE && !verify_has(c, key)) return status; /* that of the step */
    syi_format_double(rate, value);
    snprintf(factor, sizeof factor, "constant(%s)", rate);
    return status ? status : verify_optim_set(o, part, "lr_factors", factor, err);
}

static int read_multi(struct verify_optim *o, struct sy_error *err)
{
    const struct verify_case *c = o->item;
    int64_t n = 0;
    int status = verify_optim_read(o, "none", err);
    if (!status) status = verify_int(c, "num_sub_optimizers", 1, SYI_CONFIG_PARTS - 1, &n, err);
    for (int k = 0; k < n && !status; k++) status = read_sub(o, k, err);
    if (!status) status = verify_int(c, "n_steps", 1, 1 << 20, &o->steps, err);
    verify_ignore(c, "no_override hyper_params_learning_rates");
    return status ? status : verify_optim_rates(o, err);
}

static const char *param_of(const struct verify_optim *o, const struct syi_leaf *leaf)
{
    return o->model.param[leaf->param].name;
}

/* Parameters that no optimizer has. */
static void put_none_states(const struct verify_optim *o, struct syi_json_writer *out)
{
    syi_json_open(out, '[');
    for (size_t i = 0; i < o->tree.n; i++)
        if (o->tree.leaf[i].kind == SYI_LEAF_NONE) syi_json_put_string(out, param_of(o, &o->tree.leaf[i]));
    syi_json_close(out, ']');
}

/* Axes of the state of parameters by the case's axes of these. */
static void put_state_axes(const struct verify_optim *o, struct syi_json_writer *out)
{
    const struct syi_json *json = &o->item->json;
    uint32_t all = syi_json_member(json, o->item->config, "param_logical_axes");
    syi_json_open(out, '{');
    for (size_t i = 0; i < o->tree.n; i++) {
        const struct syi_leaf *leaf = &o->tree.leaf[i];
        if (leaf->param < 0 || !strncmp(leaf->path, "target/", 7)) continue;
        uint32_t list = all == SYI_JSON_NONE ? all : syi_json_member(json, all, param_of(o, leaf));
        syi_json_put_key(out, leaf->path + leaf->name);
        if (!leaf->axes || list == SYI_JSON_NONE) {
            syi_json_put_null(out);
            continue;
        }
        syi_json_open(out, '[');
        for (uint32_t k = json->nodes[list].first; k != SYI_JSON_NONE; k = json->nodes[k].next)
            syi_json_put_string(out, syi_json_string(json, k));
        syi_json_close(out, ']');
    }
    syi_json_close(out, '}');
}

static int compare_trees(const struct verify_optim *o, struct verify_report *report, struct sy_error *err)
{
    static const struct {
        const char *key;
        void (*put)(const struct verify_optim *o, struct syi_json_writer *out);
    } answers[] = {{"none_states", put_none_states}, {"state_logical_axes", put_state_axes}};
    int status = SY_OK;
    for (size_t i = 0; i < SYI_COUNT(answers) && !status; i++) {
        struct syi_text text = {0};
        struct syi_json_writer out;
        uint32_t expected = syi_json_member(&o->item->json, o->item->config, answers[i].key);
        verify_ignore(o->item, answers[i].key);
        if (expected == SYI_JSON_NONE) continue;
        syi_json_begin(&out, &text);
        answers[i].put(o, &out);
        status = verify_value(o->item, expected, answers[i].key, &text, report, err);
        syi_text_free(&text);
    }
    return status;
}

int verify_multi_optimizer(struct verify_context *context, const struct verify_case *c,
                           struct verify_report *report, struct sy_error *err)
{
    if (!c->n_tensors) return verify_multi_errors(context, c, report, err);
    struct verify_optim *o = syi_alloc(sizeof *o, err);
    if (!o) return SY_ENOMEM;
    o->item = c;
    int status = read_multi(o, err);
    if (!status) status = verify_optim_open(o, context, err);
    if (!status) status = compare_trees(o, report, err);
    if (!status) status = verify_optim_run(o, report, err);
    verify_optim_close(o);
    syi_free(o);
    return status;
}
