/* SPDX-License-Identifier: Apache-2.0 */
/* Kind optimizer_state: which leaves T5X's state_dict has of an optimizer, their types, shapes and logical axes, what
 * it restores from a file, and how Adafactor factors a parameter. Programs are recorded, nothing runs. */
#include "config.h"

#include <string.h>

#include "optim/factors.h"
#include "verify/optim_tree.h"

enum { LINES = 8 };

/* What stands in a run file, line by line, for an optimizer that a case only names. */
struct settings {
    const char *name;
    const char *line[LINES];
};

static const struct settings *find(const struct settings *table, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (!strcmp(table[i].name, name)) return &table[i];
    return NULL;
}

static int apply(struct verify_tree *t, const char *const *line, struct sy_error *err)
{
    int status = SY_OK;
    for (int i = 0; i < LINES && line[i] && !status; i++) status = syi_config_set(&t->o.config, line[i], err);
    return status;
}

/* ---- states ---- */

#define ADAM "scale_by_adam, scale_by_learning_rate"
static const struct settings composed[] = {
    {"multi_steps", {"optimizer.name=chain", "optimizer.chain=[\"multi_steps(" ADAM ", every_k=2)\"]"}},
    {"apply_if_finite", {"optimizer.name=chain", "optimizer.chain=[\"apply_if_finite(" ADAM ")\"]"}},
    {"inject_hyperparams", {"optimizer.name=chain", "optimizer.chain=[\"inject_hyperparams(" ADAM ")\"]"}},
    {"maybe_update",
     {"optimizer.name=chain", "optimizer.chain=[\"maybe_update(trace, scale_by_learning_rate, every=2)\"]"}},
    {"masked_adam", {"optimizer.name=chain", "optimizer.chain=[\"masked(" ADAM ", mask=['dense/*'])\"]"}},
    {"multi_transform",
     {"optimizer.name=none", "optimizer.a.name=adam", "optimizer.a.match=[\"*kernel\"]",
      "optimizer.b.name=sgd", "optimizer.b.momentum=0.9", "optimizer.b.match=[\"gate\", \"norm/*\"]"}},
    {"zero_nans", {"optimizer.name=chain", "optimizer.chain=[\"zero_nans\", \"scale(step_size=-0.1)\"]"}},
    {"sm3", {"optimizer.name=sm3"}},
    {"ema", {"optimizer.name=chain", "optimizer.chain=[\"ema\", \"scale(step_size=-0.1)\"]"}},
    {"only_empty", {"optimizer.name=chain", "optimizer.chain=[\"clip\", \"scale(step_size=-0.1)\"]"}},
    {"no_transforms", {"optimizer.name=chain"}}};

/* Transforms of optax and of the reference's own tests whose state T5X cannot derive axes of, or that exist in Python
 * only. There are none of these here: a run file that names one is refused. */
static const char *const unknown[] = {"lookahead", "optax_adafactor_factored", "unregistered_state",
                                      "unregistered_namedtuple_not_state"};

static int refuse_unknown(struct verify_tree *t, const char *name, struct sy_error *err)
{
    char chain[96];
    snprintf(chain, sizeof chain, "optimizer.chain=[\"%.60s\"]", name);
    int status = syi_config_set(&t->o.config, "optimizer.name=chain", err);
    if (!status) status = syi_config_set(&t->o.config, chain, err);
    if (!status) status = syi_config_validate_programs(&t->o.config, err);
    if (status == SY_EINVAL) return VERIFY_LEFT_OUT;
    return status ? status : syi_error(err, SY_EFORMAT, "%s is a transform: compare its state", name);
}

static int read_optax(struct verify_tree *t, struct sy_error *err)
{
    const char *name;
    int status = verify_text(&t->item, "optimizer", &name, err);
    if (status) return status;
    const struct settings *settings = find(composed, SYI_COUNT(composed), name);
    for (size_t i = 0; i < SYI_COUNT(unknown); i++)
        if (!strcmp(unknown[i], name)) {
            status = verify_optim_read(&t->o, "none", err);
            return status ? status : refuse_unknown(t, name, err);
        }
    status = verify_optim_read(&t->o, settings ? "none" : name, err);
    if (!status && settings) status = apply(t, settings->line, err);
    return status;
}

static int restores_itself(const struct verify_tree *t)
{
    struct sy_error err = {0};
    const char **path = syi_alloc((t->o.tree.n + 1) * sizeof *path, &err);
    size_t n = 0;
    if (!path) return 0;
    for (size_t i = 0; i < t->o.tree.n; i++)
        if (t->o.tree.leaf[i].kind != SYI_LEAF_EMPTY) path[n++] = t->o.tree.leaf[i].path;
    int status = syi_state_tree_fits(&t->o.tree, path, n, &err);
    syi_free(path);
    return status == SY_OK;
}

static void put_tree(const struct verify_tree *t, int restored, struct syi_json_writer *answer)
{
    syi_json_open(answer, '{');
    syi_json_put_key(answer, "logical_axes");
    verify_tree_put_axes(t, answer);
    if (restored) {
        syi_json_put_key(answer, "restore_round_trip_same_structure");
        syi_json_put_bool(answer, restores_itself(t));
    }
    syi_json_put_key(answer, "state_dict");
    verify_tree_put_leaves(t, answer);
    syi_json_close(answer, '}');
}

/* Shapes, and axes, as members of an object. */
static int read_params(struct verify_tree *t, uint32_t object, struct sy_error *err)
{
    uint32_t shapes, axes = syi_json_member(&t->item.json, object, "param_logical_axes");
    int status = verify_member(&t->item, object, "param_shapes", SYI_JSON_OBJECT, &shapes, err);
    return status ? status : verify_tree_params(t, shapes, axes, err);
}

/* A key of the row's configuration that nothing asked for. */
static int check_keys(const struct verify_tree *t, struct sy_error *err)
{
    const char *key = verify_unknown_key(&t->item);
    return key ? syi_error(err, SY_EFORMAT, "unknown key of a row's config: %.60s", key) : SY_OK;
}

static int optax_row(void *arg, const struct verify_row *row, struct syi_json_writer *answer,
                     struct sy_error *err)
{
    uint32_t config;
    (void)arg;
    int status = verify_member(row->item, row->input, "config", SYI_JSON_OBJECT, &config, err);
    struct verify_tree *t = status ? NULL : verify_tree_new(row->item, config, err);
    if (!t) return status ? status : SY_ENOMEM;
    status = read_params(t, row->item->config, err);
    if (!status) status = read_optax(t, err);
    if (!status) status = check_keys(t, err);
    if (!status) status = verify_tree_record(t, err);
    if (!status) put_tree(t, 1, answer);
    verify_tree_free(t);
    return status;
}

static int adafactor_row(void *arg, const struct verify_row *row, struct syi_json_writer *answer,
                         struct sy_error *err)
{
    uint32_t config;
    (void)arg;
    int status = verify_member(row->item, row->input, "config", SYI_JSON_OBJECT, &config, err);
    struct verify_tree *t = status ? NULL : verify_tree_new(row->item, config, err);
    if (!t) return status ? status : SY_ENOMEM;
    status = read_params(t, row->input, err);
    if (!status) status = verify_optim_read(&t->o, "adafactor", err);
    verify_ignore(&t->item, "start_step");
    if (!status) status = check_keys(t, err);
    if (!status) status = verify_tree_record(t, err);
    if (!status) put_tree(t, 0, answer);
    verify_tree_free(t);
    return status;
}

/* ---- restoring ---- */

static const struct settings restored[] = {
    {"adam", {"optimizer.name=adam"}},
    {"sgd", {"optimizer.name=sgd"}},
    {"adamw_mask", {"optimizer.name=adamw", "optimizer.weight_decay_mask=[\"*kernel\"]"}},
    {"sgd_momentum", {"optimizer.name=sgd", "optimizer.momentum=0.9"}},
    {"adafactor",
     {"optimizer.name=adafactor", "optimizer.factored=false", "optimizer.logical_factor_rules=none"}}};

/* What happens to the list of leaves: all at or below a path go away, or one is put in. */
static const struct edit {
    const char *name, *drop, *put;
} edits[] = {{"unchanged", NULL, NULL},
             {"missing_mu_tree", "state/param_states/0/mu", NULL},
             {"missing_one_mu", "state/param_states/0/mu/gate", NULL},
             {"missing_count", "state/param_states/0/count", NULL},
             {"missing_step", "state/step", NULL},
             {"missing_target_leaf", "target/gate", NULL},
             {"missing_target", "target", NULL},
             {"missing_state", "state", NULL},
             {"extra_state_leaf", NULL, "state/param_states/0/extra"},
             {"extra_target_leaf", NULL, "target/extra"},
             {"extra_chain_entry", NULL, "state/param_states/9/extra"},
             {"wrong_shape", NULL, "state/param_states/0/mu/gate"},
             {"extra_under_empty", NULL, "state/param_states/1/count"}};

static const struct edit *edit_of(const char *name)
{
    for (size_t i = 0; i < SYI_COUNT(edits); i++)
        if (!strcmp(edits[i].name, name)) return &edits[i];
    return NULL;
}

static int is_below(const char *path, const char *top)
{
    size_t n = strlen(top);
    return !strncmp(path, top, n) && (!path[n] || path[n] == '/');
}

/* Whether the edited leaves are restored. */
static int restore(const struct verify_tree *t, const struct edit *edit, struct sy_error *err)
{
    size_t n = 0;
    const char **path = syi_alloc((t->o.tree.n + 1) * sizeof *path, err);
    if (!path) return SY_ENOMEM;
    for (size_t i = 0; i < t->o.tree.n; i++) {
        const struct syi_leaf *leaf = &t->o.tree.leaf[i];
        int dropped = edit->drop && is_below(leaf->path, edit->drop);
        int replaced = edit->put && !strcmp(leaf->path, edit->put);
        if (verify_tree_shows(t, leaf) && !dropped && !replaced) path[n++] = leaf->path;
    }
    if (edit->put) path[n++] = edit->put;
    int status = syi_state_tree_fits(&t->o.tree, path, n, err);
    syi_free(path);
    return status;
}

static void put_restored(const struct verify_tree *t, struct syi_json_writer *answer)
{
    syi_json_open(answer, '{');
    syi_json_put_key(answer, "ok");
    syi_json_put_bool(answer, 1);
    syi_json_put_key(answer, "paths");
    verify_tree_put_paths(t, answer);
    syi_json_close(answer, '}');
}

static int restore_row(void *arg, const struct verify_row *row, struct syi_json_writer *answer,
                       struct sy_error *err)
{
    const struct syi_json *json = &row->item->json;
    uint32_t name, edit;
    (void)arg;
    int status = verify_member(row->item, row->input, "optimizer", SYI_JSON_STRING, &name, err);
    if (!status) status = verify_member(row->item, row->input, "edit", SYI_JSON_STRING, &edit, err);
    if (status) return status;
    const struct settings *settings = find(restored, SYI_COUNT(restored), syi_json_string(json, name));
    const struct edit *change = edit_of(syi_json_string(json, edit));
    if (!settings || !change) return syi_error(err, SY_EFORMAT, "an optimizer or an edit is not known here");
    struct verify_tree *t = verify_tree_new(row->item, row->item->config, err);
    if (!t) return SY_ENOMEM;
    status = read_params(t, row->item->config, err);
    if (!status) status = verify_optim_read(&t->o, "none", err);
    if (!status) status = apply(t, settings->line, err);
    if (!status) status = verify_tree_record(t, err);
    if (!status) status = restore(t, change, err);
    if (!status) put_restored(t, answer);
    verify_tree_free(t);
    return status;
}

/* ---- creating a train state ---- */

/* The model of the reference's case: a/kernel and a/bias, with names of axes for as many of them, kernel first. */
static const struct creation {
    const char *name, *optimizer;
    int named; /* parameters with axes */
} creations[] = {{"adafactor_no_axes", "adafactor", 0},
                 {"adam_no_axes", "adam", 0},
                 {"missing_axis_name", "adam", 1},
                 {"ok", "adam", 2},
                 {"base_optimizer_def_no_derive", "none", 2}}; /* an optimizer that keeps nothing */

static int add_params(struct verify_tree *t, const struct creation *creation, struct sy_error *err)
{
    static const int64_t kernel[] = {3, 4};
    int status = verify_tree_param(t, "a/bias", 1, kernel + 1, SYI_JSON_NONE, err);
    if (!status) status = verify_tree_param(t, "a/kernel", 2, kernel, SYI_JSON_NONE, err);
    if (status) return status;
    struct syi_param *param = t->o.model.param;
    if (creation->named > 0) param[1].axis[0] = SYI_AXIS_EMBED, param[1].axis[1] = SYI_AXIS_MLP;
    if (creation->named > 1) param[0].axis[0] = SYI_AXIS_MLP;
    return SY_OK;
}

/* T5X wants names of axes for all parameters or for none, and for all where Adafactor looks at them. A model of ours
 * always has them. */
static int check_axes(const struct verify_tree *t, struct sy_error *err)
{
    size_t named = 0;
    for (size_t i = 0; i < t->o.model.n; i++) named += t->o.model.param[i].axis[0] != SYI_AXIS_NONE;
    if (named && named < t->o.model.n) return syi_error(err, SY_EINVAL, "a parameter without axes");
    if (!named && t->o.tree.adafactor) return syi_error(err, SY_EINVAL, "Adafactor without axes");
    return SY_OK;
}

static int create_row(void *arg, const struct verify_row *row, struct syi_json_writer *answer,
                      struct sy_error *err)
{
    const struct creation *creation = creations;
    uint32_t name;
    (void)arg;
    int status = verify_member(row->item, row->input, "case", SYI_JSON_STRING, &name, err);
    if (status) return status;
    const char *text = syi_json_string(&row->item->json, name);
    while (creation < creations + SYI_COUNT(creations) && strcmp(creation->name, text) != 0) creation++;
    if (creation == creations + SYI_COUNT(creations))
        return syi_error(err, SY_EFORMAT, "case %.40s is not known here", text);
    struct verify_tree *t = verify_tree_new(row->item, row->item->config, err);
    if (!t) return SY_ENOMEM;
    status = add_params(t, creation, err);
    if (!status) status = verify_optim_read(&t->o, creation->optimizer, err);
    if (!status) status = verify_tree_record(t, err);
    if (!status) status = check_axes(t, err);
    if (!status) put_restored(t, answer);
    verify_tree_free(t);
    return status;
}

/* ---- rules of Adafactor ---- */

static void put_slots(const struct verify_tree *t, struct syi_json_writer *answer)
{
    for (size_t i = 0; i < t->o.tree.n; i++) {
        const struct syi_leaf *leaf = &t->o.tree.leaf[i];
        if (strncmp(leaf->path, "state/param_states/", 19) != 0) continue;
        syi_json_put_key(answer, leaf->path + leaf->name_end + 1);
        verify_tree_put_shape(t, leaf, answer);
    }
}

/* {PARAMETER: [a word for each dim]}, null without rules for axes. */
static void put_map(const struct verify_tree *t, struct syi_json_writer *answer)
{
    const struct syi_param *param = t->o.model.param;
    int rules = t->o.config.optimizer.part[0].logical_factor_rules;
    syi_json_put_key(answer, "factor_map");
    if (rules == SYI_FACTOR_NONE) {
        syi_json_put_null(answer);
        return;
    }
    syi_json_open(answer, '{');
    syi_json_put_key(answer, param->name);
    syi_json_open(answer, '[');
    for (int d = 0; d < param->rank; d++)
        syi_json_put_string(answer, syi_factor_word(rules, param->rank, param->axis, d));
    syi_json_close(answer, ']');
    syi_json_close(answer, '}');
}

static int read_rules(struct verify_tree *t, const struct verify_row *row, struct sy_error *err)
{
    const char *path;
    int64_t dim[SY_MAX_DIMS];
    int rank;
    uint32_t shape, axes = syi_json_member(&row->item->json, row->input, "logical_axes");
    int status = verify_text(row->item, "param_path", &path, err);
    if (!status) status = verify_member(row->item, row->input, "shape", SYI_JSON_ARRAY, &shape, err);
    if (!status) status = verify_list_ints(row->item, shape, SY_MAX_DIMS, dim, &rank, err);
    return status ? status : verify_tree_param(t, path, rank, dim, axes, err);
}

/* A value that the run file does not take for the option is one of another type in Python. */
static int rules_row(void *arg, const struct verify_row *row, struct syi_json_writer *answer,
                     struct sy_error *err)
{
    uint32_t options;
    (void)arg;
    int status = verify_member(row->item, row->input, "options", SYI_JSON_OBJECT, &options, err);
    struct verify_tree *t = status ? NULL : verify_tree_new(row->item, options, err);
    if (!t) return status ? status : SY_ENOMEM;
    status = read_rules(t, row, err);
    if (!status) status = verify_optim_read(&t->o, "adafactor", err);
    if (status == SY_EINVAL) status = VERIFY_TYPE_ERROR;
    if (!status) status = check_keys(t, err);
    if (!status) status = verify_tree_record(t, err);
    if (!status) {
        syi_json_open(answer, '{');
        put_map(t, answer);
        put_slots(t, answer);
        syi_json_close(answer, '}');
    }
    verify_tree_free(t);
    return status;
}

/* ---- the kind ---- */

int verify_optimizer_state(struct verify_context *context, const struct verify_case *c,
                           struct verify_report *report, struct sy_error *err)
{
    static const struct {
        const char *name, *keys;
        verify_row_fn fn;
    } lists[] = {{"optax_states", "case config", optax_row},
                 {"adafactor_states", "case config param_logical_axes param_shapes", adafactor_row},
                 {"restore", "edit optimizer", restore_row},
                 {"train_state_create", "case", create_row},
                 {"adafactor_rules", "case logical_axes options shape", rules_row}};
    uint32_t inputs = syi_json_member(&c->json, 0, "inputs"),
             expected = syi_json_member(&c->json, 0, "expected");
    (void)context;
    verify_ignore(c, "param_logical_axes param_shapes adafactor rules_moe rules_standard");
    if (inputs == SYI_JSON_NONE || expected == SYI_JSON_NONE)
        return syi_error(err, SY_EFORMAT, "there are no inputs, or nothing is expected");
    for (size_t i = 0; i < SYI_COUNT(lists); i++)
        if (!strcmp(lists[i].name, c->name))
            return verify_rows(c, lists[i].name, inputs, expected, lists[i].keys, lists[i].fn, NULL, report,
                               err);
    return syi_error(err, SY_EUNSUPPORTED, "a list of rows that is not known here");
}
