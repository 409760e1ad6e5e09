/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/bf16.h"
#include "verify/optim_case.h"

/* ---- options ---- */

int verify_optim_set(struct verify_optim *o, const char *part, const char *key, const char *value,
                     struct sy_error *err)
{
    struct syi_text text = {0};
    syi_text_printf(&text, "optimizer%s%s.%s=%s", *part ? "." : "", part, key, value);
    int status = syi_text_status(&text, err);
    if (!status) status = syi_config_set(&o->config, text.data, err);
    syi_text_free(&text);
    return status;
}

/* One alternative, up to '|' or the end. */
static int put_pattern(const char *regex, struct syi_text *out, struct sy_error *err)
{
    size_t n = strcspn(regex, "|"), at = 0;
    int begins = *regex == '^', ends = n && regex[n - 1] == '$', any = !begins;
    if (begins) at += 1 + (regex[1] == '/'); /* paths begin with a '/' there */
    if (any) syi_text_puts(out, "*");
    for (; at < n - (size_t)ends; at++) {
        int star = regex[at] == '.' && regex[at + 1] == '*';
        if (!star && !isalnum((unsigned char)regex[at]) && regex[at] != '_' && regex[at] != '/')
            return syi_error(err, SY_EUNSUPPORTED, "regular expression %.80s: no pattern says this", regex);
        if (!star)
            syi_text_append(out, regex + at, 1);
        else if (!any)
            syi_text_puts(out, "*");
        at += (size_t)star;
        any = star;
    }
    if (!ends && !any) syi_text_puts(out, "*");
    return SY_OK;
}

int verify_patterns(const char *regex, struct syi_text *patterns, struct sy_error *err)
{
    static const char but[] = "^(?!.*";
    size_t n = strlen(regex);
    int status = SY_OK;
    if (!strncmp(regex, but, sizeof but - 1) && n > sizeof but && regex[n - 1] == ')') {
        syi_text_printf(patterns, "[\"!*%.*s*\", \"*\"]", (int)(n - sizeof but), regex + sizeof but - 1);
        return syi_text_status(patterns, err);
    }
    syi_text_puts(patterns, "[");
    for (const char *at = regex; at && !status; at = strchr(at, '|')) {
        at += *at == '|';
        syi_text_puts(patterns, at == regex ? "\"" : ", \"");
        status = put_pattern(at, patterns, err);
        syi_text_puts(patterns, "\"");
    }
    syi_text_puts(patterns, "]");
    return status ? status : syi_text_status(patterns, err);
}

static void put_scalar(struct syi_text *out, const struct syi_json *json, uint32_t node)
{
    const struct syi_json_node *n = &json->nodes[node];
    char number[SYI_NUMBER_BYTES];
    syi_format_double(number, n->number);
    if (n->kind == SYI_JSON_STRING)
        syi_text_puts(out, syi_json_string(json, node));
    else if (n->kind == SYI_JSON_NUMBER && n->is_integer)
        syi_text_printf(out, "%lld", (long long)n->integer);
    else if (n->kind == SYI_JSON_NUMBER)
        syi_text_puts(out, number);
    else
        syi_text_puts(out, n->kind == SYI_JSON_TRUE ? "true" : n->kind == SYI_JSON_FALSE ? "false" : "none");
}

/* ["a", "b"] */
static void put_names(struct syi_text *out, const struct syi_json *json, uint32_t list)
{
    const char *between = "[";
    for (uint32_t i = json->nodes[list].first; i != SYI_JSON_NONE; i = json->nodes[i].next, between = ", ")
        syi_text_printf(out, "%s\"%s\"", between, syi_json_string(json, i));
    syi_text_puts(out, *between == '[' ? "[]" : "]");
}

/* [[regex, rule], ...] as ["PATTERN: rule", ...]; a rule is a scalar or a list of words. */
static int put_rules(struct syi_text *out, const struct syi_json *json, uint32_t list, struct sy_error *err)
{
    const char *between = "[";
    for (uint32_t i = json->nodes[list].first; i != SYI_JSON_NONE; i = json->nodes[i].next, between = ", ") {
        uint32_t regex = json->nodes[i].first;
        if (json->nodes[i].kind != SYI_JSON_ARRAY || json->nodes[i].n_children != 2)
            return syi_error(err, SY_EFORMAT, "a rule is no pair of a regular expression and a value");
        uint32_t rule = json->nodes[regex].next;
        syi_text_printf(out, "%s\"", between);
        int status = put_pattern(syi_json_string(json, regex), out, err);
        if (status) return status;
        syi_text_puts(out, ":");
        if (json->nodes[rule].kind == SYI_JSON_ARRAY)
            for (uint32_t w = json->nodes[rule].first; w != SYI_JSON_NONE; w = json->nodes[w].next)
                syi_text_printf(out, " %s", syi_json_string(json, w));
        else
            syi_text_puts(out, " "), put_scalar(out, json, rule);
        syi_text_puts(out, "\"");
    }
    syi_text_puts(out, "]");
    return SY_OK;
}

/* The option that a key of the reference is: masks have other names here. */
static const char *option_of(const char *key)
{
    return strcmp(key, "mask") ? key : "weight_decay_mask";
}

static int set_from(struct verify_optim *o, const char *part, const char *key, uint32_t node,
                    struct sy_error *err)
{
    const struct syi_json *json = &o->item->json;
    int rules = !strcmp(key, "factor_map") || !strcmp(key, "parameter_scale_rules"), status = SY_OK;
    struct syi_text text = {0};
    if (json->nodes[node].kind == SYI_JSON_NULL && strcmp(key, "clipping_threshold")) return SY_OK;
    if (json->nodes[node].kind == SYI_JSON_NULL)
        syi_text_puts(&text, "0");
    else if (rules && json->nodes[node].kind == SYI_JSON_ARRAY)
        status = put_rules(&text, json, node, err);
    else if (json->nodes[node].kind == SYI_JSON_ARRAY)
        put_names(&text, json, node);
    else
        put_scalar(&text, json, node);
    if (!status) status = syi_text_status(&text, err);
    if (!status) status = verify_optim_set(o, part, option_of(key), text.data, err);
    syi_text_free(&text);
    return status;
}

static int is_option(const char *key)
{
    const struct syi_part_kind *kind = syi_optimizer_kind();
    for (size_t i = 0; i < kind->n_options; i++)
        if (!strcmp(kind->options[i].name, key)) return 1;
    return 0;
}

int verify_optim_options(struct verify_optim *o, const char *part, const char *prefix, struct sy_error *err)
{
    const struct syi_json_node *node = o->item->json.nodes;
    size_t n = strlen(prefix);
    int status = SY_OK;
    for (uint32_t i = node[o->item->config].first; !status && i != SYI_JSON_NONE; i = node[i].next) {
        const char *key = syi_json_key(&o->item->json, i);
        if (strncmp(key, prefix, n) != 0 || !is_option(option_of(key + n))) continue;
        o->item->known[i] = 1;
        status = set_from(o, part, key + n, i, err);
    }
    return status;
}

/* ---- parameters ---- */

/* Axes of the reference that are none of the model's stand for one of the same role in Adafactor's rules. */
uint8_t verify_optim_axis(const char *name)
{
    static const struct {
        const char *name;
        uint8_t axis;
    } others[] = {{"layer_norm_scale", SYI_AXIS_BUCKETS},
                  {"heads", SYI_AXIS_HEADS},
                  {"kv", SYI_AXIS_HEADS},
                  {"mlp_activations", SYI_AXIS_MLP},
                  {"stack", SYI_AXIS_LAYERS}};
    for (size_t i = 0; i < SYI_COUNT(others); i++)
        if (!strcmp(others[i].name, name)) return others[i].axis;
    for (int axis = 0; axis < SYI_AXIS_COUNT; axis++)
        if (!strcmp(syi_axis_name((enum syi_axis)axis), name)) return (uint8_t)axis;
    return SYI_AXIS_NONE;
}

static void read_axes(struct verify_optim *o, struct syi_param *param)
{
    const struct syi_json *json = &o->item->json;
    uint32_t all = syi_json_member(json, o->item->config, "param_logical_axes");
    uint32_t list = all == SYI_JSON_NONE ? all : syi_json_member(json, all, param->name);
    int i = 0;
    if (list == SYI_JSON_NONE) return;
    for (uint32_t at = json->nodes[list].first; at != SYI_JSON_NONE && i < param->rank;
         at = json->nodes[at].next)
        if (json->nodes[at].kind == SYI_JSON_STRING)
            param->axis[i++] = verify_optim_axis(syi_json_string(json, at));
}

struct syi_param *verify_optim_param(struct verify_optim *o, const char *name, struct sy_error *err)
{
    struct syi_model *model = &o->model;
    if (SYI_GROW(model->param, model->capacity, model->n + 1, err)) return NULL;
    struct syi_param *param = &model->param[model->n];
    *param = (struct syi_param){.id = (uint32_t)model->n++};
    snprintf(param->name, sizeof param->name, "%s", name);
    for (int d = 0; d < SY_MAX_DIMS; d++) param->dim[d] = 1;
    return param;
}

static int read_params(struct verify_optim *o, struct sy_error *err)
{
    static const char prefix[] = "init/target/";
    const struct verify_case *c = o->item;
    verify_ignore(c, "param_logical_axes");
    for (size_t i = 0; i < c->n_tensors; i++) {
        const struct verify_tensor *t = &c->tensor[i];
        if (strncmp(t->name, prefix, sizeof prefix - 1) != 0) continue;
        if (t->rank > SY_MAX_DIMS) return syi_error(err, SY_EFORMAT, "%s: too many dims", t->name);
        struct syi_param *param = verify_optim_param(o, t->name + sizeof prefix - 1, err);
        if (!param) return SY_ENOMEM;
        param->rank = t->rank ? t->rank : 1; /* a scalar is [1] here */
        for (int d = 0; d < SY_MAX_DIMS && d < t->rank; d++) param->dim[d] = t->dim[d];
        read_axes(o, param);
    }
    return o->model.n ? SY_OK : syi_error(err, SY_EFORMAT, "the case has no init/target/...");
}

/* One example of a batch, as grad programs clip it and add it up. */
static int add_clipping(struct verify_optim *o, int next, struct sy_error *err)
{
    struct syi_program *p;
    double clip;
    int status = syi_optimizer_example_clip(&o->config.optimizer.part[0], &clip, err);
    if (!status) status = syi_program_new(next ? "clip_next" : "clip_first", &p, err);
    if (status) return status;
    int *x = syi_alloc(o->model.n * sizeof *x, err);
    for (size_t i = 0; x && i < o->model.n; i++) {
        const struct syi_param *param = &o->model.param[i];
        char name[200];
        snprintf(name, sizeof name, "example/%s", param->name);
        x[i] = syi_tensor_add(p, name, SYI_INPUT, SY_F32, param->rank, param->dim, param->axis);
    }
    if (x) syi_clip_example(p, (int)o->model.n, x, clip);
    for (size_t i = 0; x && i < o->model.n; i++) syi_store_gradient(p, &o->model.param[i], x[i], next);
    status = x ? syi_program_status(p, err) : SY_ENOMEM;
    syi_free(x);
    if (status) syi_program_free(p);
    return status ? status : syi_session_add(o->session, p, &o->clipping[next], err);
}

int verify_optim_open(struct verify_optim *o, const struct verify_context *context, struct sy_error *err)
{
    const struct syi_rank *rank = context->rank;
    struct syi_session_options options = {
        .backend = rank->backend, .comm = rank->comm, .mesh = &rank->mesh, .reproducible = 1, .coherent = 1};
    uint32_t leaf_count[SYI_AXIS_COUNT];
    struct syi_update_options update = {
        .config = &o->config, .model = &o->model, .leaf_count = leaf_count, .noise = 1};
    struct syi_program *program = NULL;
    int index;
    for (int i = 0; i < SYI_AXIS_COUNT; i++) leaf_count[i] = 1;
    int status = read_params(o, err);
    if (!status) status = syi_config_validate_programs(&o->config, err);
    if (!status) status = syi_chains_make(&o->config, &o->chains, err);
    if (!status) status = syi_record_update(&update, &program, err);
    if (!status) status = syi_state_tree(&o->config, o->chains, &o->model, program, &o->tree, err);
    if (!status) status = syi_program_fuse(program, err);
    if (status) syi_program_free(program);
    if (!status) status = syi_session_new(&options, &o->session, err);
    if (!status) status = syi_session_add(o->session, program, &index, err);
    for (int next = 0; next < 2 && o->examples && !status; next++) status = add_clipping(o, next, err);
    return status ? status : syi_session_bind(o->session, err);
}

/* ---- steps ---- */

static int64_t count(const struct sy_tensor *t)
{
    int64_t n = 1;
    for (int i = 0; i < t->rank; i++) n *= t->dim[i];
    return n;
}

/* Copies a tensor of the case to what the session has of that role. */
static int put(struct verify_optim *o, const char *name, enum syi_role role, uint32_t of, int needed,
               struct sy_error *err)
{
    const struct verify_tensor *from = verify_find(o->item, name);
    const struct sy_tensor *to = syi_session_find(o->session, 0, role, of);
    if (!to) return SY_OK;
    if (!from && !needed) return SY_OK;
    if (!from || !from->real || from->n != count(to))
        return syi_error(err, SY_EFORMAT, "tensor %s is missing or has another size", name);
    memcpy(to->data, from->real, (size_t)from->n * sizeof(float));
    return SY_OK;
}

static int put_all(struct verify_optim *o, const char *prefix, enum syi_role role, int needed,
                   struct sy_error *err)
{
    int status = SY_OK;
    for (size_t i = 0; i < o->model.n && !status; i++) {
        char name[240];
        snprintf(name, sizeof name, "%s/%s", prefix, o->model.param[i].name);
        status = put(o, name, role, o->model.param[i].id, needed, err);
    }
    return status;
}

/* The gradients of a step: tensors PREFIX/grad/..., or one part of each an example. */
static int put_gradients(struct verify_optim *o, const char *prefix, struct sy_error *err)
{
    char name[240];
    int status = SY_OK;
    snprintf(name, sizeof name, "%.40s/grad", prefix);
    if (!o->examples) return put_all(o, name, SYI_ROLE_GRADIENT, 1, err);
    for (int64_t e = 0; e < o->examples && !status; e++) {
        for (size_t i = 0; i < o->model.n; i++) {
            snprintf(name, sizeof name, "%.40s/grad/%s", prefix, o->model.param[i].name);
            const struct verify_tensor *from = verify_find(o->item, name);
            snprintf(name, sizeof name, "example/%s", o->model.param[i].name);
            const struct sy_tensor *to = syi_session_tensor(o->session, name);
            if (!to || !from || !from->real || from->n != count(to) * o->examples)
                return syi_error(err, SY_EFORMAT, "%s: missing or of another size", name);
            memcpy(to->data, from->real + e * count(to), (size_t)count(to) * sizeof(float));
        }
        status = syi_session_run(o->session, o->clipping[e > 0], err);
    }
    return status;
}

static void put_scalars(struct verify_optim *o, int64_t step, double rate)
{
    float value[SYI_OPTIM_SCALARS];
    syi_optim_scalars(&o->config, o->chains, step, rate, 1, value);
    for (uint32_t i = 0; i < SYI_OPTIM_SCALARS; i++) {
        const struct sy_tensor *t = syi_session_find(o->session, 0, SYI_ROLE_OPTIM_SCALAR, i);
        if (t) *(float *)t->data = value[i];
    }
}

/* ---- comparing ---- */

static void judge_number(const struct verify_tensor *want, double here, struct verify_report *report)
{
    char reason[80] = "";
    if (want->n != 1 || want->integer[0] != here)
        snprintf(reason, sizeof reason, "%d there, %g here", want->n ? want->integer[0] : 0, here);
    verify_judge(report, want->name, 0, *reason ? reason : NULL);
}

static void judge_tensor(struct verify_optim *o, const struct verify_tensor *want,
                         const struct syi_leaf *leaf, struct verify_report *report)
{
    const struct sy_tensor *got = syi_session_tensor(o->session, leaf->tensor);
    float *wide = NULL;
    struct sy_error err = {0};
    int fits = got && count(got) == want->n;
    if (fits && want->integer && want->n == 1) {
        judge_number(want, (double)*(float *)got->data, report);
        return;
    }
    if (fits && got->dtype == SY_BF16) {
        wide = syi_alloc((size_t)want->n * sizeof *wide, &err);
        for (int64_t i = 0; wide && i < want->n; i++) wide[i] = syi_bf16_to_float(((uint16_t *)got->data)[i]);
    }
    if (fits)
        verify_floats_part(report, want->name, 0, wide ? wide : got->data, want->n, VERIFY_TOLERANCE);
    else
        verify_judge(report, want->name, 0, "it has another size here");
    syi_free(wide);
}

/* A leaf of T5X's tree after so many steps; those of a tensor that the case does not have are not there. */
static void judge_leaf(struct verify_optim *o, const struct verify_tensor *want, const struct syi_leaf *leaf,
                       int64_t steps, struct verify_report *report)
{
    const float zero = 0;
    switch (leaf->kind) {
    case SYI_LEAF_TENSOR: judge_tensor(o, want, leaf, report); break;
    case SYI_LEAF_ZERO: verify_floats_part(report, want->name, 0, &zero, 1, VERIFY_TOLERANCE); break;
    case SYI_LEAF_KEY: verify_judge(report, want->name, 0, NULL); break;
    case SYI_LEAF_STEP:
    case SYI_LEAF_COUNT:
        if (want->integer)
            judge_number(
                want, (double)(leaf->kind == SYI_LEAF_STEP ? steps : syi_leaf_count(leaf, o->chains, steps)),
                report);
        break;
    default: break; /* a failure: it is not computed */
    }
}

/* All tensors "PREFIX/target/..." and "PREFIX/state/..." of the case, leaf by leaf. */
static void judge_step(struct verify_optim *o, const char *prefix, int64_t steps,
                       struct verify_report *report)
{
    char name[512];
    for (size_t i = 0; i < o->tree.n; i++) {
        const struct syi_leaf *leaf = &o->tree.leaf[i];
        if (leaf->kind == SYI_LEAF_EMPTY || leaf->kind == SYI_LEAF_NONE) continue;
        snprintf(name, sizeof name, "%s/%s", prefix, leaf->path);
        const struct verify_tensor *want = verify_find(o->item, name);
        if (want)
            judge_leaf(o, want, leaf, steps, report);
        else
            verify_judge(report, name, 0, "the reference has no such state");
    }
}

int verify_optim_run(struct verify_optim *o, struct verify_report *report, struct sy_error *err)
{
    char prefix[32], name[64];
    int status = put_all(o, "init/target", SYI_ROLE_PARAMETER, 1, err);
    if (!status) judge_step(o, "init", o->first_step, report);
    for (int64_t i = 0; i < o->steps && !status; i++) {
        snprintf(prefix, sizeof prefix, "step_%lld", (long long)i);
        status = put_gradients(o, prefix, err);
        snprintf(name, sizeof name, "%s/noise", prefix);
        if (!status) status = put_all(o, name, SYI_ROLE_NOISE, 1, err);
        put_scalars(o, o->first_step + i, o->rates[i]);
        if (!status) status = syi_session_run(o->session, 0, err);
        if (!status) judge_step(o, prefix, o->first_step + i + 1, report);
    }
    return status;
}

void verify_optim_close(struct verify_optim *o)
{
    syi_session_free(o->session);
    syi_state_tree_free(&o->tree);
    syi_chains_free(o->chains, o->config.optimizer.n);
    syi_free(o->model.param);
    syi_free((void *)o->rates);
}
