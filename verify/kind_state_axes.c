/* SPDX-License-Identifier: Apache-2.0 */
/* The state_axes cases of kind partitioner: logical axes and partition specs of parameters and optimizer
 * state under both of T5X's partitioners. */
#include "config.h"

#include <regex.h>
#include <string.h>

#include "verify/state_axes.h"
#include "verify/partitioner.h"

enum { PARAMS = 4096 }; /* most of a case */

struct table {
    struct syi_named_param *param; /* [n] */
    size_t n;
    int64_t min_dim_size_to_factor;
};

/* ---- the parameters ---- */

static int read_param(const struct verify_case *c, uint32_t axes, uint32_t shapes, struct syi_named_param *p,
                      struct sy_error *err)
{
    uint32_t list;
    const struct syi_json_node *node = c->json.nodes;
    p->path = syi_json_key(&c->json, axes);
    if (node[axes].kind != SYI_JSON_ARRAY) return syi_error(err, SY_EFORMAT, "logical axes are no list");
    int status = verify_member(c, shapes, p->path, SYI_JSON_ARRAY, &list, err);
    if (!status) status = verify_list_ints(c, list, SYI_STATE_RANK, p->dim, &p->rank, err);
    if (status) return status;
    if (node[axes].n_children != (uint32_t)p->rank)
        return syi_error(err, SY_EFORMAT, "%.60s: its shape and its axes differ in rank", p->path);
    int d = 0;
    for (uint32_t i = node[axes].first; i != SYI_JSON_NONE; i = node[i].next) {
        if (node[i].kind != SYI_JSON_STRING) return syi_error(err, SY_EFORMAT, "a logical axis is a name");
        p->axis[d++] = syi_json_string(&c->json, i);
    }
    return SY_OK;
}

static int read_params(const struct verify_case *c, struct table *t, struct sy_error *err)
{
    uint32_t axes, shapes;
    const struct syi_json_node *node = c->json.nodes;
    int status = verify_member(c, c->config, "param_logical_axes", SYI_JSON_OBJECT, &axes, err);
    if (!status) status = verify_member(c, c->config, "param_shapes", SYI_JSON_OBJECT, &shapes, err);
    if (!status)
        status =
            verify_int(c, "min_dim_size_to_factor", INT32_MIN, INT32_MAX, &t->min_dim_size_to_factor, err);
    verify_ignore(c, "param_logical_axes param_shapes optimizers");
    if (status) return status;
    if (node[axes].n_children > PARAMS || node[axes].n_children != node[shapes].n_children)
        return syi_error(err, SY_EFORMAT, "axes and shapes are of other parameters, or more than %d", PARAMS);
    t->param = syi_alloc((node[axes].n_children + 1) * sizeof *t->param, err);
    if (!t->param) return SY_ENOMEM;
    for (uint32_t i = node[axes].first; !status && i != SYI_JSON_NONE; i = node[i].next)
        status = read_param(c, i, shapes, &t->param[t->n++], err);
    return status;
}

/* ---- optimizers by the names of the cases ---- */

static int form_of(const char *name, const struct table *t, struct syi_state_form *form, struct sy_error *err)
{
    static const char *const count[] = {"0/count", NULL}, *const moments[] = {"0/mu", "0/nu", NULL},
                             *const trace[] = {"0/trace", NULL};
    static const struct {
        const char *name;
        struct syi_state_form form;
    } forms[] = {
        {"adafactor", {1, 1, 0, 0, NULL, NULL, 0}},
        {"adafactor_momentum", {1, 1, 1, 0, NULL, NULL, 0}},
        {"adafactor_beta1_zero", {1, 1, 0, 0, NULL, NULL, 0}},
        {"adafactor_not_factored", {1, 0, 0, 0, NULL, NULL, 0}},
        {"adafactor_not_factored_momentum", {1, 0, 1, 0, NULL, NULL, 0}},
        {"adafactor_not_factored_beta1_zero", {1, 0, 0, 0, NULL, NULL, 0}},
        {"adam", {0, 0, 0, 0, count, moments, 0}},
        {"adamw", {0, 0, 0, 0, count, moments, 0}},
        {"adamw_masked", {0, 0, 0, 0, count, moments, 0}},
        {"sgd", {0, 0, 0, 0, NULL, NULL, 0}},
        {"sgd_momentum", {0, 0, 0, 0, NULL, trace, 0}},
        {"inference", {0, 0, 0, 0, NULL, NULL, 1}},
    };
    for (size_t i = 0; i < SYI_COUNT(forms); i++) {
        if (strcmp(forms[i].name, name)) continue;
        *form = forms[i].form;
        form->min_dim_size_to_factor = t->min_dim_size_to_factor;
        return SY_OK;
    }
    return syi_error(err, SY_EUNSUPPORTED, "optimizer %.40s: its state is not known here", name);
}

/* ---- the filter: a regular expression for the start of a path ---- */

static int matches(void *arg, const char *path)
{
    return !regexec(arg, path, 0, NULL, 0);
}

static int compile(regex_t *regex, const char *pattern, struct sy_error *err)
{
    char *anchored = syi_format("^(%s)", pattern);
    if (!anchored) return syi_error(err, SY_ENOMEM, "out of memory");
    int bad = regcomp(regex, anchored, REG_EXTENDED | REG_NOSUB);
    syi_free(anchored);
    return bad ? syi_error(err, SY_EFORMAT, "state_filter: no regular expression") : SY_OK;
}

static int matches_nothing(void *arg, const char *path)
{
    (void)arg;
    (void)path;
    return 0;
}

/* ---- answers ---- */

/* Axes of a leaf as flax writes them back. A spec that T5X put expert in front of is a plain tuple by then
 * and becomes one leaf a name, whose axes are the name's letters. */
struct leaf {
    char path[SYI_STATE_PATH + 16];
    int n; /* -1: None */
    const char *axis[SYI_LOGICAL_AXES];
};

static const char *letter(char c)
{
    static const char text[] = "a\0b\0c\0d\0e\0f\0g\0h\0i\0j\0k\0l\0m\0n\0o\0p\0q\0r\0s\0t\0u\0v\0w\0x\0y\0z";
    static const char digits[] = "0\0"
                                 "1\0"
                                 "2\0"
                                 "3\0"
                                 "4\0"
                                 "5\0"
                                 "6\0"
                                 "7\0"
                                 "8\0"
                                 "9";
    if (c >= 'a' && c <= 'z') return text + 2 * (c - 'a');
    if (c >= '0' && c <= '9') return digits + 2 * (c - '0');
    return c == '_' ? "_" : "?";
}

static int is_split(const struct syi_state_leaf *from)
{
    return from->expert && from->param && from->param->rank > 0;
}

/* Leaf i of those that one state leaf becomes; 0 when there is none. */
static int expand(const struct syi_state_leaf *from, int i, struct leaf *to)
{
    int rank = from->param ? from->param->rank : -1;
    to->n = rank;
    if (i > (is_split(from) ? rank : 0)) return 0;
    snprintf(to->path, sizeof to->path, "%s", from->path);
    if (!is_split(from)) {
        if (from->expert) to->n = 1, to->axis[0] = "expert";
        for (int d = 0; !from->expert && d < rank; d++) to->axis[d] = from->param->axis[d];
        return 1;
    }
    const char *name = i ? from->param->axis[i - 1] : "expert";
    snprintf(to->path, sizeof to->path, "%s/%d", from->path, i);
    for (to->n = 0; name[to->n] && to->n < SYI_LOGICAL_AXES; to->n++) to->axis[to->n] = letter(name[to->n]);
    return 1;
}

static void put_logical(const struct syi_state_axes *axes, struct syi_json_writer *answer)
{
    struct leaf leaf;
    syi_json_open(answer, '{');
    for (size_t i = 0; i < axes->n; i++)
        for (int part = 0; expand(&axes->leaf[i], part, &leaf); part++) {
            syi_json_put_key(answer, leaf.path);
            if (leaf.n < 0) syi_json_put_null(answer);
            if (leaf.n >= 0) syi_json_open(answer, '[');
            for (int d = 0; d < leaf.n; d++) syi_json_put_string(answer, leaf.axis[d]);
            if (leaf.n >= 0) syi_json_close(answer, ']');
        }
    syi_json_close(answer, '}');
}

/* The first leaf that cannot be mapped decides. */
static int check_mapping(const struct syi_state_axes *axes, const struct syi_logical_rules *rules)
{
    struct leaf leaf;
    int spec[SYI_LOGICAL_AXES], status = SY_OK;
    for (size_t i = 0; !status && i < axes->n; i++)
        for (int part = 0; !status && expand(&axes->leaf[i], part, &leaf); part++)
            if (leaf.n >= 0) status = syi_logical_to_mesh_axes(rules, leaf.axis, leaf.n, spec, NULL);
    return status;
}

static void put_mesh_axes(const struct syi_state_axes *axes, const struct syi_logical_rules *rules,
                          struct syi_json_writer *answer)
{
    struct leaf leaf;
    int spec[SYI_LOGICAL_AXES], status = check_mapping(axes, rules);
    if (status) {
        verify_put_error(answer, status);
        return;
    }
    syi_json_open(answer, '{');
    for (size_t i = 0; i < axes->n; i++)
        for (int part = 0; expand(&axes->leaf[i], part, &leaf); part++) {
            syi_json_put_key(answer, leaf.path);
            if (leaf.n < 0 || syi_logical_to_mesh_axes(rules, leaf.axis, leaf.n, spec, NULL))
                syi_json_put_null(answer);
            else
                verify_put_spec(answer, spec, leaf.n);
        }
    syi_json_close(answer, '}');
}

/* ---- a row ---- */

/* PjitPartitioner's rows use the rules of MoE models without the override. */
static int rules_of(const struct verify_row *row, int moe, struct syi_logical_rules *rules,
                    struct sy_error *err)
{
    int64_t experts, devices;
    struct syi_model_parallelism given;
    int status = verify_devices(row->item, row->input, &given, &experts, &devices, err);
    return status ? status : syi_moe_rules(moe ? experts : devices, devices, &given, 1, 1, NULL, rules, err);
}

static int read_filter(const struct verify_row *row, regex_t *regex, int *compiled,
                       struct syi_state_filter *filter, struct sy_error *err)
{
    const struct syi_json *json = &row->item->json;
    uint32_t name, pattern = syi_json_member(json, row->input, "state_filter");
    int status = verify_member(row->item, row->input, "partitioner", SYI_JSON_STRING, &name, err);
    if (status) return status;
    filter->moe = !strcmp(syi_json_string(json, name), "moe");
    if (!filter->moe && strcmp(syi_json_string(json, name), "pjit"))
        return syi_error(err, SY_EFORMAT, "partitioner: expected moe or pjit");
    if (pattern == SYI_JSON_NONE || json->nodes[pattern].kind == SYI_JSON_NULL) return SY_OK;
    if (json->nodes[pattern].kind != SYI_JSON_STRING)
        return syi_error(err, SY_EFORMAT, "state_filter: expected a string or null");
    const char *text = syi_json_string(json, pattern);
    filter->match = *text ? matches : matches_nothing;
    filter->arg = regex;
    if (*text) status = compile(regex, text, err);
    *compiled = *text && !status;
    return status;
}

static int state_row(void *arg, const struct verify_row *row, struct syi_json_writer *answer,
                     struct sy_error *err)
{
    const struct table *t = arg;
    int compiled = 0;
    uint32_t optimizer;
    regex_t regex;
    struct syi_state_filter filter = {0};
    struct syi_state_form form;
    struct syi_state_axes axes = {0};
    struct syi_logical_rules rules;
    struct sy_error why = {0};
    int status = verify_member(row->item, row->input, "optimizer", SYI_JSON_STRING, &optimizer, err);
    if (!status) status = form_of(syi_json_string(&row->item->json, optimizer), t, &form, err);
    if (!status) status = read_filter(row, &regex, &compiled, &filter, err);
    if (!status) status = rules_of(row, filter.moe, &rules, err);
    int made = status ? SY_OK : syi_state_axes(t->param, t->n, &form, &filter, &axes, &why);
    if (!status && made && !verify_is_answer(made)) status = syi_error(err, made, "%s", why.text);
    if (!status) {
        int intended =
            syi_json_member(&row->item->json, row->expected, "mesh_axes_intended") != SYI_JSON_NONE;
        static const char *const keys[] = {"logical_axes", "mesh_axes", "mesh_axes_intended"};
        syi_json_open(answer, '{');
        for (int i = 0; i < (intended ? 3 : 2); i++) {
            syi_json_put_key(answer, keys[i]);
            if (made)
                verify_put_error(answer, made);
            else if (i == 0)
                put_logical(&axes, answer);
            else
                put_mesh_axes(&axes, &rules, answer);
        }
        syi_json_close(answer, '}');
    }
    if (compiled) regfree(&regex);
    syi_state_axes_free(&axes);
    return status;
}

int verify_state_axes(const struct verify_case *c, uint32_t inputs, uint32_t expected,
                      struct verify_report *report, struct sy_error *err)
{
    struct table t = {0};
    int status = read_params(c, &t, err);
    if (!status)
        status = verify_rows(c, "state_axes", inputs, expected,
                             "num_devices num_experts num_partitions optimizer partitioner state_filter",
                             state_row, &t, report, err);
    syi_free(t.param);
    return status;
}
