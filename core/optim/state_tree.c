/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "optim/state_tree.h"

static const char root[] = "state/param_states";

struct walk {
    const struct syi_config *config;
    const struct syi_chain *chains;
    const struct syi_model *model;
    const struct syi_program *update;
    struct syi_state_tree *tree;
    struct sy_error *err;
    int several; /* 1: parts stand beside each other */
    int status;  /* sticky */
};

/* The term at hand. */
struct place {
    int part, term;
    char path[SYI_TERM_PATH];      /* below the root of the part, in the program's names and in the tree's */
    char root[SYI_PART_NAME + 64]; /* of the part in the tree */
};

/* ---- leaves ---- */

static int fail(struct walk *w, int status, const char *text)
{
    if (!w->status) w->status = syi_error(w->err, status, "%s", text);
    return w->status;
}

/* Adds a leaf; path and tensor become the tree's. A pointer to be filled in at once; NULL on failure. */
static struct syi_leaf *add(struct walk *w, enum syi_leaf_kind kind, char *path, char *tensor)
{
    struct syi_state_tree *tree = w->tree;
    if (!path) fail(w, SY_ENOMEM, "out of memory");
    if (!w->status) w->status = SYI_GROW(tree->leaf, tree->capacity, tree->n + 1, w->err);
    if (w->status) {
        syi_free(path);
        syi_free(tensor);
        return NULL;
    }
    struct syi_leaf *leaf = &tree->leaf[tree->n++];
    *leaf = (struct syi_leaf){
        .path = path, .tensor = tensor, .kind = kind, .dtype = SYI_SAFETENSORS_F32, .param = -1};
    return leaf;
}

/* Of a parameter whose name begins at `name` in path. */
static struct syi_leaf *add_of(struct walk *w, enum syi_leaf_kind kind, size_t param, size_t name, char *path,
                               char *tensor)
{
    struct syi_leaf *leaf = add(w, kind, path, tensor);
    if (!leaf) return NULL;
    leaf->param = (int64_t)param;
    leaf->name = name;
    leaf->name_end = name + strlen(w->model->param[param].name);
    leaf->dims = ~0u;
    return leaf;
}

/* The dims of the parameter that a tensor of its state has: the others are 1 long and have no axis. */
static unsigned dims_of(const struct syi_tensor *t, const struct syi_param *param)
{
    unsigned dims = 0;
    for (int d = 0; d < t->rank; d++)
        if (t->dim[d] == param->dim[d] && t->axis[d] == param->axis[d]) dims |= 1u << d;
    return dims;
}

/* A tensor of a parameter's state, taking over both names; NULL where the program does not have it. */
static struct syi_leaf *add_tensor(struct walk *w, size_t param, size_t name, char *path, char *tensor)
{
    int at = tensor ? syi_program_find(w->update, tensor) : -1;
    if (!tensor) fail(w, SY_ENOMEM, "out of memory");
    if (at < 0 || !path) {
        syi_free(path);
        syi_free(tensor);
        return NULL;
    }
    struct syi_leaf *leaf = add_of(w, SYI_LEAF_TENSOR, param, name, path, tensor);
    if (!leaf) return NULL;
    leaf->dims = dims_of(&w->update->tensor[at], &w->model->param[param]);
    leaf->dtype = syi_safetensors_dtype_of((enum sy_dtype)w->update->tensor[at].dtype);
    return leaf;
}

static int is_optimized(const struct walk *w, size_t param)
{
    return w->model->param[param].init != SYI_INIT_EXPERT_BIAS;
}

/* ---- chains ---- */

/* "PATH/" or "" */
static char *below(const struct place *at, const char *base, const char *name)
{
    return syi_format("%s%s%s%s%s", base, *at->path ? "/" : "", at->path, *name ? "/" : "", name);
}

/* State of one parameter, a tensor each or one a dim; none of either: a mask keeps it out. */
static void add_slot(struct walk *w, const struct place *at, const struct syi_field *field, size_t param)
{
    const char *name = w->model->param[param].name;
    char *path = below(at, at->root, field->name), *tensor = below(at, root, field->name);
    size_t before = path ? strlen(path) + 1 : 0;
    int found = 0, most = field->kind == SYI_FIELD_AXES ? w->model->param[param].rank : 1;
    for (int d = 0; d < most && path && tensor && !w->status; d++) {
        char tail[16] = "";
        if (field->kind == SYI_FIELD_AXES) snprintf(tail, sizeof tail, "/%d", d);
        struct syi_leaf *leaf = add_tensor(w, param, before, syi_format("%s/%s%s", path, name, tail),
                                           syi_format("%s/%s%s", tensor, name, tail));
        if (!leaf) continue;
        found = 1;
        leaf->field = field->kind;
        leaf->axes = field->kind == SYI_FIELD_SLOT;
        if (field->kind == SYI_FIELD_FLAGS) leaf->dtype = SYI_SAFETENSORS_BOOL, leaf->dims = 0;
        if (field->kind == SYI_FIELD_AXES) leaf->dims = 1u << d;
    }
    struct syi_leaf *leaf = NULL;
    if (!found)
        leaf = add_of(w, SYI_LEAF_NONE, param, before, path ? syi_format("%s/%s", path, name) : NULL, NULL);
    if (leaf) leaf->field = field->kind, leaf->axes = 1;
    syi_free(path);
    syi_free(tensor);
}

static void add_count(struct walk *w, const struct place *at, const struct syi_field *field)
{
    struct syi_leaf *leaf = add(w, SYI_LEAF_COUNT, below(at, at->root, field->name), NULL);
    if (!leaf) return;
    leaf->dtype = SYI_SAFETENSORS_I32;
    leaf->part = at->part;
    leaf->term = at->term;
    leaf->field = field->kind;
}

/* Our tensor [1] of all parameters of the part. */
static void add_scalar(struct walk *w, const struct place *at, const struct syi_field *field)
{
    const char *part = w->config->optimizer.part[at->part].name_of_part;
    char *prefix = below(at, root, field->name);
    char *tensor = prefix ? syi_format("%s%s%s", prefix, *part ? "/" : "", part) : NULL;
    struct syi_leaf *leaf = add(w, SYI_LEAF_TENSOR, below(at, at->root, field->name), tensor);
    syi_free(prefix);
    if (!leaf) return;
    leaf->field = field->kind;
    leaf->dtype = field->kind == SYI_FIELD_FLAG   ? SYI_SAFETENSORS_BOOL
                  : field->kind == SYI_FIELD_REAL ? SYI_SAFETENSORS_F32
                                                  : SYI_SAFETENSORS_I32;
}

static void add_key(struct walk *w, const struct place *at, const struct syi_field *field)
{
    struct syi_leaf *leaf = add(w, SYI_LEAF_KEY, below(at, at->root, field->name), NULL);
    if (!leaf) return;
    leaf->dtype = SYI_SAFETENSORS_U32;
    leaf->length = 2;
}

static const struct syi_term *term_of(const struct walk *w, const struct place *at, int term)
{
    return &w->chains[at->part].terms.term[term];
}

static int has_leaf(const struct walk *w, const char *path)
{
    for (size_t i = 0; i < w->tree->n; i++)
        if (!strcmp(w->tree->leaf[i].path, path)) return 1;
    return 0;
}

/* One number by its name, the first of several terms. */
static void add_number(struct walk *w, const struct place *at, const struct syi_field *field, const char *key,
                       enum syi_leaf_kind kind, double value)
{
    char *base = below(at, at->root, field->name), *path = base ? syi_format("%s/%s", base, key) : NULL;
    syi_free(base);
    if (path && has_leaf(w, path)) {
        syi_free(path);
        return;
    }
    struct syi_leaf *leaf = add(w, kind, path, NULL);
    if (leaf) leaf->number = value;
}

/* The numbers of all terms that the term at hand holds. */
static void add_numbers(struct walk *w, const struct place *at, const struct syi_field *field)
{
    for (int t = at->term + 1; t < term_of(w, at, at->term)->end; t++) {
        const struct syi_term *term = term_of(w, at, t);
        if (syi_transform_of(term) == &syi_transform_row_scale_by_learning_rate)
            add_number(w, at, field, "learning_rate", SYI_LEAF_RATE, 0);
        for (size_t i = 0; i < term->kind->n_arguments; i++) {
            const struct syi_option *a = &term->kind->arguments[i];
            if (a->type == SYI_OPTION_FLOAT)
                add_number(w, at, field, a->name, SYI_LEAF_NUMBER,
                           *(const double *)(const void *)(term->values + a->offset));
        }
    }
}

/* Whether the learning rate of the part depends on the step: then it is a schedule in optax, and counts. */
static int rate_moves(struct walk *w, int part)
{
    char reason[SYI_TERM_REASON];
    struct syi_schedule run;
    if (w->chains[part].rate) return !syi_schedule_is_constant(w->chains[part].rate);
    if (syi_schedule_compile_run(&run, w->config, reason)) fail(w, SY_EINVAL, reason);
    return !w->status && !syi_schedule_is_constant(&run);
}

static void add_slots(struct walk *w, const struct place *at, const struct syi_field *field)
{
    for (size_t i = 0; i < w->model->n && !w->status; i++)
        if (is_optimized(w, i)) add_slot(w, at, field, i);
}

static void add_field(struct walk *w, const struct place *at, const struct syi_field *field)
{
    switch (field->kind) {
    case SYI_FIELD_SLOT:
    case SYI_FIELD_AXES:
    case SYI_FIELD_FLAGS: add_slots(w, at, field); break;
    case SYI_FIELD_INTEGER:
    case SYI_FIELD_REAL:
    case SYI_FIELD_FLAG: add_scalar(w, at, field); break;
    case SYI_FIELD_COUNT:
    case SYI_FIELD_INNER_COUNT: add_count(w, at, field); break;
    case SYI_FIELD_RATE_COUNT:
        if (rate_moves(w, at->part))
            add_count(w, at, field);
        else
            add(w, SYI_LEAF_EMPTY, below(at, at->root, ""), NULL);
        break;
    case SYI_FIELD_KEY: add_key(w, at, field); break;
    case SYI_FIELD_NUMBERS: add_numbers(w, at, field); break;
    case SYI_FIELD_INNER: break; /* terms of their own */
    }
}

/* Whether a mask keeps some parameters out: optax has the transform inside masked then. */
static int is_masked(const struct syi_term *term)
{
    for (size_t i = 0; i < term->kind->n_arguments; i++) {
        const struct syi_option *a = &term->kind->arguments[i];
        const struct syi_strings *mask = (const void *)(term->values + a->offset);
        if (!strcmp(a->name, "mask")) return mask->n != 1 || strcmp(syi_strings_at(mask, 0), "*") != 0;
    }
    return 0;
}

static void add_term(struct walk *w, const struct place *at)
{
    const struct syi_term *term = term_of(w, at, at->term);
    const struct syi_field *field = syi_transform_of(term)->state;
    if (!field->name) add(w, SYI_LEAF_EMPTY, below(at, at->root, is_masked(term) ? "inner_state" : ""), NULL);
    for (; field->name && !w->status; field++) add_field(w, at, field);
}

static void add_chain(struct walk *w, int part)
{
    const struct syi_terms *terms = &w->chains[part].terms;
    const char *name = w->config->optimizer.part[part].name_of_part;
    struct place at = {.part = part};
    snprintf(at.root, sizeof at.root, "%s", root);
    if (w->several)
        snprintf(at.root, sizeof at.root, "%s/inner_states/%s/inner_state", root, *name ? name : "optimizer");
    for (at.term = 0; at.term < terms->n && !w->status; at.term++) {
        syi_term_path(terms, at.term, at.path);
        add_term(w, &at);
    }
}

/* ---- Adafactor ---- */

/* A slot of a parameter; where it is not in use T5X has one zero. axes: whether T5X sees those of the parameter. */
static void add_factor(struct walk *w, size_t param, const char *slot, int axes)
{
    const char *name = w->model->param[param].name;
    struct syi_leaf *leaf = add_tensor(w, param, sizeof root, syi_format("%s/%s/%s", root, name, slot),
                                       syi_format("%s/%s/%s", root, name, slot));
    if (leaf) leaf->axes = axes;
    if (leaf || w->status) return;
    leaf = add_of(w, SYI_LEAF_ZERO, param, sizeof root, syi_format("%s/%s/%s", root, name, slot), NULL);
    if (leaf) leaf->dims = 0, leaf->length = 1;
}

/* T5X gives a momentum with beta1 = 0 no axes, though it keeps it. */
static void add_adafactor(struct walk *w)
{
    for (size_t i = 0; i < w->model->n && !w->status; i++) {
        const char *name = w->model->param[i].name;
        const struct syi_chain *chain = &w->chains[syi_optimizer_of(w->config, name)];
        const struct syi_transform_adafactor *a = (const void *)chain->terms.term[0].values;
        if (!is_optimized(w, i)) continue;
        if (!chain->terms.n) {
            add_of(w, SYI_LEAF_NONE, i, sizeof root, syi_format("%s/%s", root, name), NULL);
            continue;
        }
        add_factor(w, i, "m", a->beta1 > 0);
        add_factor(w, i, "v", 1);
        add_factor(w, i, "v_col", 0);
        add_factor(w, i, "v_row", 0);
    }
}

/* ---- the whole ---- */

static int is_adafactor(const struct syi_terms *terms, int term)
{
    return syi_transform_of(&terms->term[term]) == &syi_transform_row_adafactor;
}

/* Which of the two the optimizers are. */
static void look(struct walk *w)
{
    int parts = 0, adafactor = 0, inside = 0;
    for (int i = 0; i < w->config->optimizer.n; i++) {
        const struct syi_terms *terms = &w->chains[i].terms;
        int alone = terms->n == 1 && is_adafactor(terms, 0);
        parts += terms->n > 0;
        adafactor += alone;
        for (int t = 0; t < terms->n && !alone; t++) inside |= is_adafactor(terms, t);
    }
    if (!parts) fail(w, SY_EINVAL, "optimizer.name is none: there is no state of an optimizer");
    if (inside || (adafactor && adafactor != parts))
        fail(w, SY_EUNSUPPORTED, "T5X has no state for Adafactor in a chain or beside other optimizers");
    w->several = parts > 1 || w->config->optimizer.n > 1;
    w->tree->adafactor = adafactor > 0;
}

static int by_path(const void *a, const void *b)
{
    return strcmp(((const struct syi_leaf *)a)->path, ((const struct syi_leaf *)b)->path);
}

int syi_state_tree(const struct syi_config *config, const struct syi_chain *chains,
                   const struct syi_model *model, const struct syi_program *update,
                   struct syi_state_tree *tree, struct sy_error *err)
{
    struct walk w = {
        .config = config, .chains = chains, .model = model, .update = update, .tree = tree, .err = err};
    memset(tree, 0, sizeof *tree);
    look(&w);
    for (int i = 0; i < config->optimizer.n && !tree->adafactor && !w.status; i++) add_chain(&w, i);
    if (tree->adafactor && !w.status) add_adafactor(&w);
    struct syi_leaf *step = w.status ? NULL : add(&w, SYI_LEAF_STEP, syi_format("state/step"), NULL);
    if (step) step->dtype = SYI_SAFETENSORS_I32;
    for (size_t i = 0; i < model->n && !w.status; i++) {
        struct syi_leaf *leaf =
            add_tensor(&w, i, sizeof "target", syi_format("target/%s", model->param[i].name),
                       syi_format("%s", model->param[i].name));
        if (leaf) leaf->axes = 1;
    }
    if (tree->n) qsort(tree->leaf, tree->n, sizeof *tree->leaf, by_path);
    return w.status;
}

void syi_state_tree_free(struct syi_state_tree *tree)
{
    for (size_t i = 0; i < tree->n; i++) {
        syi_free(tree->leaf[i].path);
        syi_free(tree->leaf[i].tensor);
    }
    syi_free(tree->leaf);
    memset(tree, 0, sizeof *tree);
}

int syi_leaf_shape(const struct syi_leaf *leaf, const struct syi_model *model, int64_t dim[SY_MAX_DIMS])
{
    int rank = 0;
    if (leaf->length) dim[rank++] = leaf->length;
    for (int d = 0; leaf->param >= 0 && d < model->param[leaf->param].rank; d++)
        if (leaf->dims >> d & 1) dim[rank++] = model->param[leaf->param].dim[d];
    return rank;
}

/* From the outermost term inwards each says what its inner ones count. */
int64_t syi_leaf_count(const struct syi_leaf *leaf, const struct syi_chain *chains, int64_t step)
{
    const struct syi_terms *terms = &chains[leaf->part].terms;
    const struct syi_transform *row = syi_transform_of(&terms->term[leaf->term]);
    const void *arguments = terms->term[leaf->term].values;
    for (int t = 0; t < leaf->term; t++) {
        const struct syi_transform *outer = syi_transform_of(&terms->term[t]);
        if (terms->term[t].end > leaf->term && outer->inner_step)
            step = outer->inner_step(terms->term[t].values, step);
    }
    if (leaf->field == SYI_FIELD_INNER_COUNT)
        return row->inner_step ? row->inner_step(arguments, step) : step;
    return row->count ? row->count(arguments, step) : step;
}
