/* SPDX-License-Identifier: Apache-2.0 */
/* The case of kind multi_optimizer without tensors: what T5X's MultiOptimizer refuses, and its hyper-parameters after
 * an override. A sub-optimizer is a part [optimizer.sub_K]; nothing runs. */
#include "config.h"

#include <string.h>

#include "verify/optim_tree.h"

/* ---- refusals ---- */

/* Rows with regular expressions. The sub-optimizers are Adafactor without a learning rate where nothing else is said;
 * an update is asked for only where `updates` says so. */
static const struct sub_case {
    const char *name, *optimizer;
    int updates;
} sub_cases[] = {{"overlap", "adafactor", 0},
                 {"same_twice", "adafactor", 0},
                 {"overlap_nothing_matched", "adafactor", 0},
                 {"overlap_three", "adafactor", 0},
                 {"optax_sub_optimizer", "adam", 0},
                 {"adafactor_no_learning_rate", "adafactor", 1}};

/* One element each: the case has names only. */
static int add_params(struct verify_tree *t, struct sy_error *err)
{
    const struct syi_json *json = &t->item.json;
    const int64_t one = 1;
    uint32_t paths;
    int status = verify_member(&t->item, t->item.config, "param_paths", SYI_JSON_ARRAY, &paths, err);
    if (status) return status;
    for (uint32_t i = json->nodes[paths].first; !status && i != SYI_JSON_NONE; i = json->nodes[i].next) {
        if (json->nodes[i].kind != SYI_JSON_STRING) return syi_error(err, SY_EFORMAT, "a path is no string");
        status = verify_tree_param(t, syi_json_string(json, i), 1, &one, SYI_JSON_NONE, err);
    }
    return status;
}

static int add_sub(struct verify_tree *t, int k, const char *regex, const char *optimizer,
                   struct sy_error *err)
{
    char part[24];
    struct syi_text patterns = {0};
    snprintf(part, sizeof part, "sub_%d", k);
    int status = verify_patterns(regex, &patterns, err);
    if (!status) status = verify_optim_set(&t->o, part, "match", patterns.data, err);
    if (!status) status = verify_optim_set(&t->o, part, "name", optimizer, err);
    if (!status && !strcmp(optimizer, "adafactor"))
        status = verify_optim_set(&t->o, part, "logical_factor_rules", "none", err);
    syi_text_free(&patterns);
    return status;
}

/* A run here can have any optimizer in any part, and always has a learning rate. T5X's MultiOptimizer wants states
 * that are trees of parameters, which only its own Adafactor has; and Adafactor wants a learning rate of its own or
 * one with the step, of which the rows have none. */
static int check_as_t5x(const struct verify_tree *t, const struct sub_case *what, struct sy_error *err)
{
    if (!t->o.tree.adafactor) return syi_error(err, SY_EMISMATCH, "a state that is no tree of parameters");
    for (int i = 1; what->updates && i < t->o.config.optimizer.n; i++)
        if (!t->o.chains[i].rate) return syi_error(err, SY_EMISMATCH, "no learning rate");
    return SY_OK;
}

static const struct sub_case *sub_case_of(const char *name)
{
    for (size_t i = 0; i < SYI_COUNT(sub_cases); i++)
        if (!strcmp(sub_cases[i].name, name)) return &sub_cases[i];
    return NULL;
}

static int refusal(struct verify_tree *t, const struct verify_row *row, const char *name,
                   struct syi_json_writer *answer, struct sy_error *err)
{
    const struct syi_json *json = &row->item->json;
    const struct sub_case *what = sub_case_of(name);
    uint32_t list;
    int k = 0, status = verify_member(row->item, row->input, "regexes", SYI_JSON_ARRAY, &list, err);
    if (!status && !what) status = syi_error(err, SY_EFORMAT, "case %.40s is not known here", name);
    if (!status) status = add_params(t, err);
    for (uint32_t i = status ? SYI_JSON_NONE : json->nodes[list].first; !status && i != SYI_JSON_NONE;
         i = json->nodes[i].next, k++) {
        if (json->nodes[i].kind != SYI_JSON_STRING || k == SYI_CONFIG_PARTS - 1)
            return syi_error(err, SY_EFORMAT, "a regular expression is no string, or there are too many");
        status = add_sub(t, k, syi_json_string(json, i), what->optimizer, err);
    }
    if (!status) status = verify_tree_record(t, err);
    if (status == SY_EMISMATCH) status = err->code = SY_EINVAL; /* an overlap: a wrong value in T5X */
    if (!status) status = check_as_t5x(t, what, err);
    if (!status) syi_json_put_string(answer, "ok");
    return status;
}

/* ---- hyper-parameters ---- */

enum { SETTINGS = 8 };
struct setting {
    int sub; /* -1: all */
    const char *key, *value;
};

/* As the notes of the case have them. */
static const struct setting base[SETTINGS] = {{0, "lr_factors", "constant(0.1)"},
                                              {0, "beta1", "0.9"},
                                              {1, "factored", "false"},
                                              {1, "decay_rate", "0.5"}};
static const struct {
    const char *name;
    struct setting setting[SETTINGS];
} overrides[] = {{"none", {{0}}},
                 {"learning_rate", {{-1, "lr_factors", "constant(0.7)"}}},
                 {"two", {{-1, "lr_factors", "constant(0.2)"}, {-1, "beta1", "0.5"}}},
                 /* all of each set to the other's */
                 {"hyper_params",
                  {{0, "lr_factors", ""},
                   {0, "beta1", "-1"},
                   {0, "factored", "false"},
                   {0, "decay_rate", "0.5"},
                   {1, "lr_factors", "constant(0.1)"},
                   {1, "beta1", "0.9"},
                   {1, "factored", "true"},
                   {1, "decay_rate", "0.8"}}},
                 {"hyper_params_and_lr", {{-1, "lr_factors", "constant(0.3)"}, {-1, "beta1", "0.1"}}},
                 {"unknown", {{-1, "momentum", "0.9"}}}};

/* A key that the optimizer does not take is an argument too many in Python. */
static int set(struct verify_tree *t, const struct setting *setting, struct sy_error *err)
{
    int status = SY_OK;
    for (int i = 0; i < SETTINGS && setting[i].key && !status; i++)
        for (int k = 0; k < 2 && !status; k++) {
            char part[24];
            snprintf(part, sizeof part, "sub_%d", k);
            if (setting[i].sub >= 0 && setting[i].sub != k) continue;
            if (!syi_optimizer_takes(t->o.config.optimizer.part[k + 1].name, setting[i].key))
                return VERIFY_TYPE_ERROR;
            status = verify_optim_set(&t->o, part, setting[i].key, setting[i].value, err);
        }
    return status;
}

/* What stands for None here, or the number. */
static void put_number(struct syi_json_writer *answer, const char *key, int there, double value)
{
    syi_json_put_key(answer, key);
    if (there)
        syi_json_put_double(answer, value);
    else
        syi_json_put_null(answer);
}

static void put_hyper_params(const struct verify_tree *t, int part, struct syi_json_writer *answer)
{
    const struct syi_transform_adafactor *a = (const void *)t->o.chains[part].terms.term[0].values;
    const struct syi_schedule *rate = t->o.chains[part].rate;
    syi_json_open(answer, '{');
    put_number(answer, "beta1", a->beta1 >= 0, a->beta1);
    put_number(answer, "clipping_threshold", a->clipping_threshold > 0, a->clipping_threshold);
    put_number(answer, "decay_rate", 1, a->decay_rate);
    syi_json_put_key(answer, "factored");
    syi_json_put_bool(answer, a->factored);
    put_number(answer, "learning_rate", rate != NULL, rate ? syi_schedule_value(rate, 0) : 0);
    syi_json_put_key_integer(answer, "step_offset", a->step_offset);
    syi_json_close(answer, '}');
}

static int hyper_params(struct verify_tree *t, const struct verify_row *row, struct syi_json_writer *answer,
                        struct sy_error *err)
{
    size_t i = 0;
    uint32_t name;
    int status = verify_member(row->item, row->input, "override", SYI_JSON_STRING, &name, err);
    if (status) return status;
    const char *text = syi_json_string(&row->item->json, name);
    while (i < SYI_COUNT(overrides) && strcmp(overrides[i].name, text) != 0) i++;
    if (i == SYI_COUNT(overrides))
        return syi_error(err, SY_EFORMAT, "override %.40s is not known here", text);
    status = add_params(t, err);
    if (!status) status = add_sub(t, 0, "encoder", "adafactor", err);
    if (!status) status = add_sub(t, 1, "head", "adafactor", err);
    if (!status) status = set(t, base, err);
    if (!status) status = set(t, overrides[i].setting, err);
    if (!status) status = verify_tree_record(t, err);
    if (status) return status;
    syi_json_open(answer, '[');
    for (int part = 1; part < t->o.config.optimizer.n; part++) put_hyper_params(t, part, answer);
    syi_json_close(answer, ']');
    return SY_OK;
}

/* ---- the case ---- */

static int row_fn(void *arg, const struct verify_row *row, struct syi_json_writer *answer,
                  struct sy_error *err)
{
    uint32_t name;
    (void)arg;
    int status = verify_member(row->item, row->input, "case", SYI_JSON_STRING, &name, err);
    struct verify_tree *t = status ? NULL : verify_tree_new(row->item, row->item->config, err);
    if (!t) return status ? status : SY_ENOMEM;
    const char *text = syi_json_string(&row->item->json, name);
    status = verify_optim_read(&t->o, "none", err);
    if (!status && !strcmp(text, "update_hyper_params"))
        status = hyper_params(t, row, answer, err);
    else if (!status)
        status = refusal(t, row, text, answer, err);
    verify_tree_free(t);
    return status;
}

int verify_multi_errors(struct verify_context *context, const struct verify_case *c,
                        struct verify_report *report, struct sy_error *err)
{
    uint32_t inputs = syi_json_member(&c->json, 0, "inputs"),
             expected = syi_json_member(&c->json, 0, "expected");
    (void)context;
    verify_ignore(c, "param_paths");
    if (inputs == SYI_JSON_NONE || expected == SYI_JSON_NONE)
        return syi_error(err, SY_EFORMAT, "there are no inputs, or nothing is expected");
    return verify_rows(c, "multi_optimizer", inputs, expected, "case override regexes", row_fn, NULL, report,
                       err);
}
