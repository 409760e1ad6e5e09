/* SPDX-License-Identifier: Apache-2.0 */
/* Cases of kind partitioner: T5X's meshes, data layouts and logical axis rules of many devices, from their
 * numbers alone. Nothing runs on a backend. State axes are in kind_state_axes.c. */
#include "config.h"

#include <string.h>

#include "parallel/data_layout.h"
#include "verify/partitioner.h"

/* ---- shared with state axes ---- */

void verify_put_mesh_axis(struct syi_json_writer *answer, int mesh)
{
    if (!mesh) syi_json_put_null(answer);
    if (mesh == (SYI_T5X_DATA | SYI_T5X_MODEL)) syi_json_open(answer, '[');
    if (mesh & SYI_T5X_DATA) syi_json_put_string(answer, "data");
    if (mesh & SYI_T5X_MODEL) syi_json_put_string(answer, "model");
    if (mesh == (SYI_T5X_DATA | SYI_T5X_MODEL)) syi_json_close(answer, ']');
}

void verify_put_spec(struct syi_json_writer *answer, const int *spec, int n)
{
    syi_json_open(answer, '[');
    for (int i = 0; i < n; i++) verify_put_mesh_axis(answer, spec[i]);
    syi_json_close(answer, ']');
}

int verify_parallelism(const struct verify_case *c, uint32_t row, struct syi_model_parallelism *m,
                       struct sy_error *err)
{
    int none = 0;
    memset(m, 0, sizeof *m);
    int status =
        verify_member_int(c, row, "num_partitions", INT32_MIN, INT32_MAX, &none, &m->num_partitions, err);
    m->has_partitions = !none;
    uint32_t submesh = syi_json_member(&c->json, row, "model_parallel_submesh");
    if (status || submesh == SYI_JSON_NONE || c->json.nodes[submesh].kind == SYI_JSON_NULL) return status;
    m->has_submesh = 1;
    return verify_list_ints(c, submesh, SYI_T5X_SUBMESH, m->submesh, &m->n_submesh, err);
}

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
    if (!status && arg) status = verify_parallelism(c, row->input, &given, err);
    if (!status && arg)
        status = verify_member_int(c, row->input, "num_experts", 0, INT32_MAX, NULL, &experts, err);
    if (!status && arg)
        status = verify_member_int(c, row->input, "num_devices", 1, INT32_MAX, NULL, &devices, err);
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
    int status = verify_parallelism(row->item, row->input, &given, err);
    if (!status)
        status = verify_member_int(row->item, row->input, "num_experts", 0, INT32_MAX, NULL, &experts, err);
    if (!status)
        status = verify_member_int(row->item, row->input, "num_devices", 1, INT32_MAX, NULL, &devices, err);
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

/* ---- layouts ---- */

static int read_grid(const struct verify_case *c, const char *key, int64_t grid[SYI_T5X_DIMS],
                     struct sy_error *err)
{
    int n = 0;
    uint32_t list;
    int status = verify_member(c, c->config, key, SYI_JSON_ARRAY, &list, err);
    if (!status) status = verify_list_ints(c, list, SYI_T5X_DIMS, grid, &n, err);
    if (!status && n != SYI_T5X_DIMS) status = syi_error(err, SY_EFORMAT, "%s: expected 4 dims", key);
    return status;
}

static int tpu_devices(const struct verify_case *c, struct syi_t5x_devices *d, struct sy_error *err)
{
    const char *kind;
    int status = verify_text(c, "device_kind", &kind, err);
    verify_ignore(c, "global_bounds host_bounds");
    if (!status) status = read_grid(c, "global_bounds", d->grid, err);
    if (!status) status = read_grid(c, "host_bounds", d->host, err);
    if (status) return status;
    d->rank = 4;
    d->platform = !strcmp(kind, "TPU v2") || !strcmp(kind, "TPU v3") ? SYI_T5X_TPU_V3
                  : !strcmp(kind, "TPU v4")                          ? SYI_T5X_TPU_V4
                                                                     : SYI_T5X_OTHER;
    return SY_OK;
}

static int read_devices(const struct verify_case *c, struct syi_t5x_devices *d, struct sy_error *err)
{
    int64_t hosts, all;
    const char *platform;
    memset(d, 0, sizeof *d);
    int status = verify_text(c, "platform", &platform, err);
    if (!status) status = verify_int(c, "num_hosts", 1, SYI_T5X_DEVICES, &hosts, err);
    if (!status) status = verify_int(c, "num_devices", 1, SYI_T5X_DEVICES, &all, err);
    if (status) return status;
    if (!strcmp(platform, "tpu")) {
        status = tpu_devices(c, d, err);
    } else {
        verify_ignore(c, "device_kind");
        d->rank = 2;
        d->platform = !strcmp(platform, "gpu") ? SYI_T5X_GPU : SYI_T5X_CPU;
        d->grid[0] = hosts;
        d->host[0] = 1;
        status = verify_int(c, "devices_per_host", 1, SYI_T5X_DEVICES, &d->grid[1], err);
        d->host[1] = d->grid[1];
    }
    if (!status) status = syi_t5x_devices_check(d, err);
    if (!status &&
        (syi_t5x_devices_count(d) != all || syi_t5x_devices_count(d) / syi_t5x_host_devices(d) != hosts))
        status = syi_error(err, SY_EINVAL, "num_hosts and num_devices do not fit the grid of devices");
    return status;
}

static void put_mesh(struct syi_json_writer *answer, const struct syi_t5x_mesh *mesh, int with_ids)
{
    syi_json_open(answer, '{');
    syi_json_put_key(answer, "axis_names");
    verify_put_mesh_axis(answer, SYI_T5X_DATA | SYI_T5X_MODEL);
    syi_json_put_key(answer, "shape");
    syi_json_open(answer, '[');
    for (int i = 0; i < 2; i++) syi_json_put_integer(answer, mesh->size[i]);
    syi_json_close(answer, ']');
    if (with_ids) syi_json_put_key(answer, "device_ids");
    if (with_ids) syi_json_open(answer, '[');
    for (int64_t i = 0; with_ids && i < mesh->size[0]; i++) {
        syi_json_open(answer, '[');
        for (int64_t j = 0; j < mesh->size[1]; j++)
            syi_json_put_integer(answer, mesh->device[i * mesh->size[1] + j]);
        syi_json_close(answer, ']');
    }
    if (with_ids) syi_json_close(answer, ']');
    syi_json_close(answer, '}');
}

static void put_pair(struct syi_json_writer *answer, const char *key, const int64_t value[2])
{
    syi_json_put_key(answer, key);
    syi_json_open(answer, '{');
    syi_json_put_key(answer, "data");
    syi_json_put_integer(answer, value[0]);
    syi_json_put_key(answer, "model");
    syi_json_put_integer(answer, value[1]);
    syi_json_close(answer, '}');
}

static void put_layout(struct syi_json_writer *answer, const struct syi_data_layout *layout)
{
    syi_json_open(answer, '{');
    syi_json_put_key(answer, "batch_size");
    syi_json_put_integer(answer, layout->batch_size);
    syi_json_put_key(answer, "shard_id");
    syi_json_put_integer(answer, layout->shard_id);
    syi_json_put_key(answer, "num_shards");
    syi_json_put_integer(answer, layout->num_shards);
    syi_json_put_key(answer, "is_first_host_in_replica_set");
    syi_json_put_bool(answer, layout->is_first_host_in_replica_set);
    syi_json_close(answer, '}');
}

/* A partitioner of a row, and what it made. */
struct partitioner {
    const struct syi_t5x_devices *devices;
    struct syi_model_parallelism used;
    int moe, two_data_axes;
    struct syi_t5x_mesh mesh;
};

static int put_layouts(const struct partitioner *p, const struct verify_row *row,
                       struct syi_json_writer *answer, struct sy_error *err)
{
    uint32_t sizes;
    int64_t host;
    struct syi_t5x_chunks chunks;
    struct sy_error why = {0};
    const struct syi_json_node *node = row->item->json.nodes;
    int status = verify_member(row->item, row->input, "batch_sizes", SYI_JSON_ARRAY, &sizes, err);
    if (!status)
        status =
            verify_member_int(row->item, row->input, "process_index", 0, SYI_T5X_DEVICES, NULL, &host, err);
    if (status) return status;
    int split = syi_t5x_chunks(&p->mesh, p->devices, host, &chunks, &why);
    if (split && !verify_is_answer(split)) return split;
    syi_json_put_key(answer, "local_chunker");
    if (split) {
        verify_put_error(answer, split);
    } else {
        syi_json_open(answer, '{');
        put_pair(answer, "chunk_ids", chunks.id);
        put_pair(answer, "num_chunks", chunks.n);
        syi_json_close(answer, '}');
    }
    syi_json_put_key(answer, "layouts");
    syi_json_open(answer, '[');
    for (uint32_t i = node[sizes].first; i != SYI_JSON_NONE; i = node[i].next) {
        struct syi_data_layout layout;
        if (node[i].kind != SYI_JSON_NULL && (node[i].kind != SYI_JSON_NUMBER || !node[i].is_integer))
            return syi_error(err, SY_EFORMAT, "batch_sizes: expected integers or null");
        int bad = split
                      ? split
                      : syi_data_layout(&p->mesh, &chunks, p->two_data_axes, node[i].integer, &layout, &why);
        if (bad)
            verify_put_error(answer, bad);
        else
            put_layout(answer, &layout);
    }
    syi_json_close(answer, ']');
    return SY_OK;
}

/* What the constructor decided. */
static void put_request(const struct partitioner *p, struct syi_json_writer *answer)
{
    syi_json_put_key(answer, "num_partitions");
    if (p->used.has_partitions)
        syi_json_put_integer(answer, p->used.num_partitions);
    else
        syi_json_put_null(answer);
    syi_json_put_key(answer, "model_parallel_submesh");
    if (p->used.has_submesh) syi_json_open(answer, '[');
    for (int i = 0; i < p->used.n_submesh; i++) syi_json_put_integer(answer, p->used.submesh[i]);
    if (p->used.has_submesh)
        syi_json_close(answer, ']');
    else
        syi_json_put_null(answer);
    if (!p->moe) return;
    syi_json_put_key(answer, "two_data_axes");
    syi_json_put_bool(answer, p->two_data_axes);
}

static int put_partitioner(struct partitioner *p, const struct verify_row *row,
                           struct syi_json_writer *answer, struct sy_error *err)
{
    const struct syi_json *json = &row->item->json;
    uint32_t expected = syi_json_member(json, row->expected, "mesh");
    int with_ids = syi_json_member(json, expected, "device_ids") != SYI_JSON_NONE;
    int spec = syi_data_spec(p->two_data_axes);
    struct sy_error why = {0};
    syi_json_open(answer, '{');
    put_request(p, answer);
    int status = syi_t5x_mesh_new(&p->mesh, p->devices, &p->used, &why);
    if (status && !verify_is_answer(status)) return syi_error(err, status, "%s", why.text);
    syi_json_put_key(answer, "mesh");
    if (status) {
        verify_put_error(answer, status);
        syi_json_close(answer, '}');
        return SY_OK;
    }
    put_mesh(answer, &p->mesh, with_ids);
    syi_json_put_key(answer, "data_axis");
    verify_put_mesh_axis(answer, spec);
    syi_json_put_key(answer, "data_partition_spec");
    verify_put_spec(answer, &spec, 1);
    if (p->moe) syi_json_put_key(answer, "trainer_data_partition_spec");
    if (p->moe) verify_put_spec(answer, &spec, 1);
    status = put_layouts(p, row, answer, err);
    syi_json_close(answer, '}');
    return status;
}

static int layout_row(void *arg, const struct verify_row *row, struct syi_json_writer *answer,
                      struct sy_error *err)
{
    uint32_t name;
    int64_t experts;
    struct syi_model_parallelism given;
    struct partitioner p = {.devices = arg};
    int status = verify_member(row->item, row->input, "partitioner", SYI_JSON_STRING, &name, err);
    if (!status) status = verify_parallelism(row->item, row->input, &given, err);
    if (!status)
        status = verify_member_int(row->item, row->input, "num_experts", 0, INT32_MAX, NULL, &experts, err);
    if (status) return status;
    const char *partitioner = syi_json_string(&row->item->json, name);
    p.moe = !strcmp(partitioner, "moe");
    if (!p.moe && strcmp(partitioner, "pjit"))
        return syi_error(err, SY_EFORMAT, "partitioner: expected moe or pjit");
    status = syi_t5x_partitioner(p.moe, experts, syi_t5x_devices_count(p.devices), &given, &p.used,
                                 &p.two_data_axes, err);
    if (!status) status = put_partitioner(&p, row, answer, err);
    syi_t5x_mesh_free(&p.mesh);
    return status;
}

/* ---- specs with two data axes ---- */

/* Copies a value; `python`: as Python's repr of tuples, into text. */
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
    static const struct {
        const char *name, *keys;
        verify_row_fn fn;
    } tables[] = {{"layout",
                   "partitioner num_experts num_partitions model_parallel_submesh process_index batch_sizes",
                   layout_row},
                  {"override_model_axis", "num_experts num_devices num_partitions model_parallel_submesh",
                   override_row},
                  {"t5x_standard_logical_axis_rules",
                   "activation_partitioning_dims parameter_partitioning_dims additional_rules", rules_row},
                  {"moe_standard_logical_axis_rules",
                   "activation_partitioning_dims parameter_partitioning_dims additional_rules num_experts "
                   "num_devices num_partitions model_parallel_submesh",
                   rules_row},
                  {"logical_to_mesh_axes", "rule_set axes", mapping_row}};
    (void)context;
    struct syi_t5x_devices devices;
    const char *table;
    void *arg = NULL;
    uint32_t inputs = syi_json_member(&c->json, 0, "inputs"),
             expected = syi_json_member(&c->json, 0, "expected");
    int status = verify_text(c, "table", &table, err);
    if (status) return status;
    if (inputs == SYI_JSON_NONE || expected == SYI_JSON_NONE)
        return syi_error(err, SY_EFORMAT, "there are no inputs, or nothing is expected");
    if (!strcmp(table, "state_axes")) return verify_state_axes(c, inputs, expected, report, err);
    if (!strcmp(table, "override_partition_specs")) return override_specs(c, inputs, expected, report, err);
    size_t i = 0;
    while (i < SYI_COUNT(tables) && strcmp(tables[i].name, table)) i++;
    if (i == SYI_COUNT(tables)) return syi_error(err, SY_EFORMAT, "unknown table of partitioner cases");
    if (!strcmp(table, "layout")) {
        status = read_devices(c, &devices, err);
        arg = &devices;
    } else if (!strcmp(table, "moe_standard_logical_axis_rules")) {
        arg = &devices; /* says so to rules_row */
    } else if (!strcmp(table, "logical_to_mesh_axes")) {
        verify_ignore(c, "rule_sets");
    }
    return status ? status
                  : verify_rows(c, table, inputs, expected, tables[i].keys, tables[i].fn, arg, report, err);
}
