/* SPDX-License-Identifier: Apache-2.0 */
/* Cases of kind partitioner: T5X's logical axis rules and partition specs, and the table of all its cases.
 * Nothing runs on a backend. Meshes are in kind_layout.c, state axes in kind_state_axes.c. */
#include "config.h"

#include <string.h>

#include "verify/partitioner.h"

/* ---- rules ---- */

static int mesh_axis(const struct verify_case *c, uint32_t node, int *mesh, struct sy_error *err)
{
    const struct syi_json_node *n = &c->json.nodes[node];
    int part, status = SY_OK;
    *mesh = 0;
    if (n->kind == SYI_JSON_NULL) return SY_OK;
    if (n->kind == SYI_JSON_STRING) {
        const char *name = syi_json_string(&c->json, node);
        *mesh = !strcmp(name, "data") ? SYI_T5X_DATA : !strcmp(name, "model") ? SYI_T5X_MODEL : 0;
        return *mesh ? SY_OK : syi_error(err, SY_EFORMAT, "a mesh axis that is neither data nor model");
    }
    if (n->kind != SYI_JSON_ARRAY || n->n_children != 2)
        return syi_error(err, SY_EFORMAT, "a mesh axis is a name, null or a list of both");
    for (uint32_t i = n->first; !status && i != SYI_JSON_NONE; i = c->json.nodes[i].next) {
        if (c->json.nodes[i].kind != SYI_JSON_STRING)
            return syi_error(err, SY_EFORMAT, "a mesh axis is a name");
        status = mesh_axis(c, i, &part, err);
        *mesh |= part;
    }
    return status;
}

/* A list of [axis, mesh axis]. */
static int read_rules(const struct verify_case *c, uint32_t list, struct syi_logical_rules *rules,
                      struct sy_error *err)
{
    const struct syi_json_node *node = c->json.nodes;
    int status = SY_OK;
    rules->n = 0;
    if (node[list].kind == SYI_JSON_NULL) return SY_OK;
    if (node[list].kind != SYI_JSON_ARRAY) return syi_error(err, SY_EFORMAT, "rules are no list");
    for (uint32_t i = node[list].first; !status && i != SYI_JSON_NONE; i = node[i].next) {
        if (node[i].kind != SYI_JSON_ARRAY || node[i].n_children != 2 ||
            node[node[i].first].kind != SYI_JSON_STRING || rules->n == SYI_LOGICAL_RULES)
            return syi_error(err, SY_EFORMAT, "a rule is no pair of names, or there are more than %d",
                             (int)SYI_LOGICAL_RULES);
        struct syi_logical_rule *rule = &rules->rule[rules->n++];
        rule->axis = syi_json_string(&c->json, node[i].first);
        status = mesh_axis(c, node[node[i].first].next, &rule->mesh, err);
    }
    return status;
}

static void put_rules(struct syi_json_writer *answer, const struct syi_logical_rules *rules)
{
    syi_json_open(answer, '[');
    for (int i = 0; i < rules->n; i++) {
        syi_json_open(answer, '[');
        syi_json_put_string(answer, rules->rule[i].axis);
        verify_put_mesh_axis(answer, rules->rule[i].mesh);
        syi_json_close(answer, ']');
    }
    syi_json_close(answer, ']');
}

/* arg: non-NULL for the rules of MoE models. */
static int rules_row(void *arg, const struct verify_row *row, struct syi_json_writer *answer,
                     struct sy_error *err)
{
    int64_t activation, parameter, experts = 0, devices = 0;
    struct syi_logical_rules extra, rules;
    struct syi_model_parallelism given;
    const struct verify_case *c = row->item;
    uint32_t list = syi_json_member(&c->json, row->input, "additional_rules");
    if (list == SYI_JSON_NONE) return syi_error(err, SY_EFORMAT, "there is no additional_rules");
    int status = read_rules(c, list, &extra, err);
    if (!status)
        status = verify_member_int(c, row->input, "activation_partitioning_dims", INT32_MIN, INT32_MAX, NULL,
                                   &activation, err);
    if (!status)
        status = verify_member_int(c, row->input, "parameter_partitioning_dims", INT32_MIN, INT32_MAX, NULL,
                                   &parameter, err);
    if (!status && arg) status = verify_devices(c, row->input, &given, &experts, &devices, err);
    if (!status && arg)
        status = syi_moe_rules(experts, devices, &given, activation, parameter, &extra, &rules, err);
    else if (!status)
        status = syi_standard_rules(activation, parameter, &extra, &rules, err);
    if (!status) put_rules(answer, &rules);
    return status;
}

static int override_row(void *arg, const struct verify_row *row, struct syi_json_writer *answer,
                        struct sy_error *err)
{
    (void)arg;
    int two = 0;
    int64_t experts, devices;
    struct syi_model_parallelism given;
    int status = verify_devices(row->item, row->input, &given, &experts, &devices, err);
    if (!status) status = syi_t5x_two_data_axes(experts, devices, &given, &two, err);
    if (!status) syi_json_put_bool(answer, two);
    return status;
}

static int mapping_row(void *arg, const struct verify_row *row, struct syi_json_writer *answer,
                       struct sy_error *err)
{
    (void)arg;
    const struct verify_case *c = row->item;
    const struct syi_json_node *node = c->json.nodes;
    const char *axis[SYI_LOGICAL_AXES];
    int n = 0, spec[SYI_LOGICAL_AXES];
    struct syi_logical_rules rules;
    uint32_t set, sets, name, list;
    int status = verify_member(c, row->input, "rule_set", SYI_JSON_STRING, &name, err);
    if (!status) status = verify_member(c, c->config, "rule_sets", SYI_JSON_OBJECT, &sets, err);
    if (!status) status = verify_member(c, sets, syi_json_string(&c->json, name), SYI_JSON_ARRAY, &set, err);
    if (!status) status = read_rules(c, set, &rules, err);
    if (!status) status = verify_member(c, row->input, "axes", SYI_JSON_ARRAY, &list, err);
    if (status) return status;
    for (uint32_t i = node[list].first; i != SYI_JSON_NONE; i = node[i].next) {
        if ((node[i].kind != SYI_JSON_STRING && node[i].kind != SYI_JSON_NULL) || n == SYI_LOGICAL_AXES)
            return syi_error(err, SY_EFORMAT, "axes are names or null, at most %d", (int)SYI_LOGICAL_AXES);
        axis[n++] = node[i].kind == SYI_JSON_STRING ? syi_json_string(&c->json, i) : NULL;
    }
    status = syi_logical_to_mesh_axes(&rules, axis, n, spec, err);
    if (!status) verify_put_spec(answer, spec, n);
    return status;
}

/* ---- specs with two data axes ---- */

static void copy_value(const struct syi_json *json, uint32_t node, struct syi_json_writer *answer)
{
    const struct syi_json_node *n = &json->nodes[node];
    if (n->kind == SYI_JSON_STRING) {
        syi_json_put_string(answer, syi_json_string(json, node));
    } else if (n->kind == SYI_JSON_ARRAY) {
        syi_json_open(answer, '[');
        for (uint32_t i = n->first; i != SYI_JSON_NONE; i = json->nodes[i].next) copy_value(json, i, answer);
        syi_json_close(answer, ']');
    } else {
        syi_json_put_null(answer);
    }
}

/* As Python prints tuples of names. */
static void print_python(const struct syi_json *json, uint32_t node, struct syi_text *text)
{
    const struct syi_json_node *n = &json->nodes[node];
    if (n->kind == SYI_JSON_STRING) {
        syi_text_printf(text, "'%s'", syi_json_string(json, node));
    } else if (n->kind == SYI_JSON_ARRAY) {
        syi_text_puts(text, "(");
        for (uint32_t i = n->first; i != SYI_JSON_NONE; i = json->nodes[i].next) {
            print_python(json, i, text);
            if (i == n->first ? n->n_children == 1 : 0) syi_text_puts(text, ",");
            if (json->nodes[i].next != SYI_JSON_NONE) syi_text_puts(text, ", ");
        }
        syi_text_puts(text, ")");
    } else {
        syi_text_puts(text, "None");
    }
}

/* The mesh axis of a spec that is nothing but data or model; 0: any other spec. */
static int lone_axis(const struct syi_json *json, uint32_t node)
{
    const struct syi_json_node *n = &json->nodes[node];
    if (n->kind != SYI_JSON_ARRAY || n->n_children != 1 || json->nodes[n->first].kind != SYI_JSON_STRING)
        return 0;
    const char *name = syi_json_string(json, n->first);
    return !strcmp(name, "data") ? SYI_T5X_DATA : !strcmp(name, "model") ? SYI_T5X_MODEL : 0;
}

static int sequence_row(void *arg, const struct verify_row *row, struct syi_json_writer *answer,
                        struct sy_error *err)
{
    (void)arg;
    const struct syi_json *json = &row->item->json;
    if (json->nodes[row->input].kind != SYI_JSON_ARRAY)
        return syi_error(err, SY_EFORMAT, "a sequence is a list of specs");
    syi_json_open(answer, '[');
    for (uint32_t i = json->nodes[row->input].first; i != SYI_JSON_NONE; i = json->nodes[i].next) {
        int none = 0, lone = lone_axis(json, i), spec = syi_override_spec(lone, &none);
        if (!lone)
            copy_value(json, i, answer);
        else if (none)
            syi_json_put_null(answer);
        else
            verify_put_spec(answer, &spec, 1);
    }
    syi_json_close(answer, ']');
    return SY_OK;
}

/* T5X takes a spec by itself for a sequence of specs: only a tuple in it can be one, nothing else changes. */
static int single_row(void *arg, const struct verify_row *row, struct syi_json_writer *answer,
                      struct sy_error *err)
{
    (void)arg;
    struct syi_text text = {0};
    const struct syi_json *json = &row->item->json;
    for (uint32_t i = json->nodes[row->input].first; i != SYI_JSON_NONE; i = json->nodes[i].next)
        if (lone_axis(json, i))
            return syi_error(err, SY_EUNSUPPORTED, "a spec inside a spec is not computed here");
    print_python(json, row->input, &text);
    int status = syi_text_status(&text, err);
    if (!status) syi_json_put_string(answer, text.data);
    syi_text_free(&text);
    return status;
}

static int override_specs(const struct verify_case *c, uint32_t inputs, uint32_t expected,
                          struct verify_report *report, struct sy_error *err)
{
    static const struct {
        const char *key;
        verify_row_fn fn;
    } parts[] = {{"sequence", sequence_row}, {"single", single_row}};
    int status = SY_OK;
    verify_ignore(c, "singles");
    for (size_t i = 0; !status && i < SYI_COUNT(parts); i++) {
        uint32_t in, out;
        status = verify_member(c, inputs, parts[i].key, SYI_JSON_ARRAY, &in, err);
        if (!status) status = verify_member(c, expected, parts[i].key, SYI_JSON_ARRAY, &out, err);
        if (!status) status = verify_rows(c, parts[i].key, in, out, NULL, parts[i].fn, NULL, report, err);
    }
    return status;
}

/* ---- tables ---- */

int verify_partitioner(struct verify_context *context, const struct verify_case *c,
                       struct verify_report *report, struct sy_error *err)
{
    static char moe[] = "moe";
    static const struct {
        const char *name, *keys;
        verify_row_fn fn;
        void *arg;
    } tables[] = {{"override_model_axis", "num_experts num_devices num_partitions model_parallel_submesh",
                   override_row, NULL},
                  {"t5x_standard_logical_axis_rules",
                   "activation_partitioning_dims parameter_partitioning_dims additional_rules", rules_row,
                   NULL},
                  {"moe_standard_logical_axis_rules",
                   "activation_partitioning_dims parameter_partitioning_dims additional_rules num_experts "
                   "num_devices num_partitions model_parallel_submesh",
                   rules_row, moe},
                  {"logical_to_mesh_axes", "rule_set axes", mapping_row, NULL}};
    (void)context;
    const char *table;
    uint32_t inputs = syi_json_member(&c->json, 0, "inputs"),
             expected = syi_json_member(&c->json, 0, "expected");
    int status = verify_text(c, "table", &table, err);
    if (status) return status;
    if (inputs == SYI_JSON_NONE || expected == SYI_JSON_NONE)
        return syi_error(err, SY_EFORMAT, "there are no inputs, or nothing is expected");
    if (!strcmp(table, "layout")) return verify_layout(c, inputs, expected, report, err);
    if (!strcmp(table, "state_axes")) return verify_state_axes(c, inputs, expected, report, err);
    if (!strcmp(table, "override_partition_specs")) return override_specs(c, inputs, expected, report, err);
    if (!strcmp(table, "logical_to_mesh_axes")) verify_ignore(c, "rule_sets");
    for (size_t i = 0; i < SYI_COUNT(tables); i++)
        if (!strcmp(tables[i].name, table))
            return verify_rows(c, table, inputs, expected, tables[i].keys, tables[i].fn, tables[i].arg,
                               report, err);
    return syi_error(err, SY_EFORMAT, "unknown table of partitioner cases");
}
