/* SPDX-License-Identifier: Apache-2.0 */
/* T5X's tree of state: places of terms in it, what stands in counts, names of tensors, and which files hold it. */
#include "config.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "optim/state_tree.h"

struct made {
    struct syi_config config;
    struct syi_param param[3];
    struct syi_model model;
    struct syi_chain *chains;
    struct syi_program *update;
    struct syi_state_tree tree;
    struct sy_error err;
    int status;
};

/* Parameters "a/kernel" [8, 12], "b" [8] and an expert bias, which no optimizer has. */
static struct made *make(const char *text)
{
    static const char *const names[] = {"a/kernel", "b", "c/bias"};
    uint32_t leaves[SYI_AXIS_COUNT];
    struct sy_error err = {0};
    struct made *m = syi_alloc(sizeof *m, &err);
    cr_assert_not_null(m);
    for (int i = 0; i < SYI_AXIS_COUNT; i++) leaves[i] = 1;
    for (int i = 0; i < 3; i++) {
        m->param[i] =
            (struct syi_param){.id = (uint32_t)i, .rank = i ? 1 : 2, .dim = {8, i ? 1 : 12, 1, 1, 1}};
        m->param[i].init = i == 2 ? SYI_INIT_EXPERT_BIAS : SYI_INIT_NORMAL;
        snprintf(m->param[i].name, sizeof m->param[i].name, "%s", names[i]);
    }
    m->param[0].axis[0] = m->param[1].axis[0] = SYI_AXIS_EMBED;
    m->param[0].axis[1] = SYI_AXIS_MLP;
    m->model = (struct syi_model){.param = m->param, .n = 3};
    cr_assert_eq(syi_config_defaults(&m->config, &err), SY_OK);
    cr_assert_eq(syi_config_load_text(&m->config, "test", text, strlen(text), &err), SY_OK, "%s", err.text);
    cr_assert_eq(syi_config_validate(&m->config, &err), SY_OK, "%s", err.text);
    const struct syi_update_options options = {
        .config = &m->config, .model = &m->model, .leaf_count = leaves};
    cr_assert_eq(syi_record_update(&options, &m->update, &err), SY_OK, "%s", err.text);
    cr_assert_eq(syi_chains_make(&m->config, &m->chains, &err), SY_OK);
    m->status = syi_state_tree(&m->config, m->chains, &m->model, m->update, &m->tree, &m->err);
    return m;
}

static void release(struct made *m)
{
    syi_state_tree_free(&m->tree);
    syi_program_free(m->update);
    syi_chains_free(m->chains, m->config.optimizer.n);
    syi_free(m);
}

static const struct syi_leaf *leaf_of(const struct made *m, const char *path)
{
    for (size_t i = 0; i < m->tree.n; i++)
        if (!strcmp(m->tree.leaf[i].path, path)) return &m->tree.leaf[i];
    return NULL;
}

static void expect(const struct made *m, const char *path, enum syi_leaf_kind kind, const char *tensor)
{
    const struct syi_leaf *leaf = leaf_of(m, path);
    cr_assert(leaf, "%s is not there", path);
    cr_expect_eq(leaf->kind, kind, "%s", path);
    cr_expect(tensor ? leaf->tensor && !strcmp(leaf->tensor, tensor) : !leaf->tensor, "%s", path);
    if (tensor) cr_expect_geq(syi_program_find(m->update, tensor), 0, "%s", tensor);
}

/* Every tensor of state is a leaf once. */
static void expect_all_tensors(const struct made *m)
{
    for (size_t i = 0; i < m->update->n_tensors; i++) {
        const char *name = syi_program_name(m->update, m->update->tensor[i].name);
        int found = 0;
        if (m->update->tensor[i].kind != SYI_STATE) continue;
        for (size_t k = 0; k < m->tree.n; k++)
            found += m->tree.leaf[k].tensor && !strcmp(m->tree.leaf[k].tensor, name);
        cr_expect_eq(found, 1, "%s", name);
    }
}

#define CHAIN(text) "[optimizer]\nname = \"chain\"\nchain = [" text "]\n"
#define P           "state/param_states/"

Test(state_tree, places_are_those_of_optax)
{
    struct made *m =
        make(CHAIN("\"clip\", \"masked(trace, mask=['a*'])\", \"masked(ema, scale, mask=['a*'])\""));
    cr_assert_eq(m->status, SY_OK, "%s", m->err.text);
    expect(m, P "0", SYI_LEAF_EMPTY, NULL);
    expect(m, P "1/inner_state/trace/a/kernel", SYI_LEAF_TENSOR, P "1/inner_state/trace/a/kernel");
    expect(m, P "1/inner_state/trace/b", SYI_LEAF_NONE, NULL);
    expect(m, P "2/inner_state/0/ema/a/kernel", SYI_LEAF_TENSOR, P "2/inner_state/0/ema/a/kernel");
    expect(m, P "2/inner_state/0/count", SYI_LEAF_COUNT, NULL);
    expect(m, P "2/inner_state/1", SYI_LEAF_EMPTY, NULL);
    expect(m, "target/c/bias", SYI_LEAF_TENSOR, "c/bias");
    cr_expect_null(leaf_of(m, P "1/inner_state/trace/c/bias"));
    expect_all_tensors(m);
    release(m);
}

/* Counts of what is inside go slower. */
Test(state_tree, counts_follow_from_the_step)
{
    struct made *m = make(CHAIN("\"multi_steps(apply_every(k=2), scale_by_adam, every_k=3)\""));
    static const struct {
        const char *path;
        int64_t value;
    } want[] = {{P "mini_step", 2},
                {P "gradient_step", 3},
                {P "inner_opt_state/0/count", 1},
                {P "inner_opt_state/1/count", 3}};
    cr_assert_eq(m->status, SY_OK, "%s", m->err.text);
    expect(m, P "acc_grads/b", SYI_LEAF_TENSOR, P "acc_grads/b");
    for (size_t i = 0; i < SYI_COUNT(want); i++) {
        const struct syi_leaf *leaf = leaf_of(m, want[i].path);
        cr_assert(leaf, "%s", want[i].path);
        cr_expect_eq(syi_leaf_count(leaf, m->chains, 11), want[i].value, "%s", want[i].path);
    }
    expect_all_tensors(m);
    release(m);
}

/* Two optimizers of optax stand as in multi_transform, the tensors keep their names. */
Test(state_tree, several_optimizers)
{
    struct made *m = make(
        "[optimizer]\nname = \"adamw\"\n[optimizer.fast]\nname = \"chain\"\nchain = [\"apply_if_finite(trace)\"]\nmatch = [\"a*\"]\n");
    cr_assert_eq(m->status, SY_OK, "%s", m->err.text);
    expect(m, P "inner_states/fast/inner_state/inner_state/trace/a/kernel", SYI_LEAF_TENSOR,
           P "inner_state/trace/a/kernel");
    expect(m, P "inner_states/fast/inner_state/last_finite", SYI_LEAF_TENSOR, P "last_finite/fast");
    expect(m, P "inner_states/optimizer/inner_state/0/mu/b", SYI_LEAF_TENSOR, P "0/mu/b");
    expect(m, P "inner_states/optimizer/inner_state/0/mu/a/kernel", SYI_LEAF_NONE, NULL);
    expect_all_tensors(m);
    release(m);
}

Test(state_tree, adafactor)
{
    int64_t dim[SY_MAX_DIMS];
    struct made *m = make("[optimizer]\nname = \"adafactor\"\nmin_dim_size_to_factor = 8\n");
    cr_assert_eq(m->status, SY_OK, "%s", m->err.text);
    expect(m, P "a/kernel/v_row", SYI_LEAF_TENSOR, P "a/kernel/v_row");
    expect(m, P "a/kernel/v", SYI_LEAF_ZERO, NULL);
    expect(m, P "b/v", SYI_LEAF_TENSOR, P "b/v");
    cr_expect_eq(syi_leaf_shape(leaf_of(m, P "a/kernel/v_row"), &m->model, dim), 1);
    cr_expect_eq(dim[0], 8);
    cr_expect_eq(syi_leaf_shape(leaf_of(m, P "a/kernel/v_col"), &m->model, dim), 1);
    cr_expect_eq(dim[0], 12);
    cr_expect_eq(syi_leaf_shape(leaf_of(m, "state/step"), &m->model, dim), 0);
    expect_all_tensors(m);
    release(m);
}

Test(state_tree, what_t5x_does_not_have)
{
    struct made *none = make("[optimizer]\nname = \"none\"\n");
    cr_expect_eq(none->status, SY_EINVAL);
    release(none);
    struct made *beside =
        make("[optimizer]\nname = \"adamw\"\n[optimizer.a]\nname = \"adafactor\"\nmatch = [\"a*\"]\n");
    cr_expect_eq(beside->status, SY_EUNSUPPORTED);
    release(beside);
    struct made *inside = make(CHAIN("\"clip\", \"adafactor(logical_factor_rules='none')\""));
    cr_expect_eq(inside->status, SY_EUNSUPPORTED);
    release(inside);
}

/* ---- files ---- */

enum { MOST = 64 };

/* The leaves of files without `drop` and with `put`. */
static int fits(const struct made *m, const char *drop, const char *put, struct sy_error *err)
{
    const char *path[MOST];
    size_t n = 0;
    for (size_t i = m->tree.n; i-- > 0;) { /* in no order */
        const struct syi_leaf *leaf = &m->tree.leaf[i];
        if (leaf->kind == SYI_LEAF_EMPTY || leaf->kind == SYI_LEAF_NONE) continue;
        if (!drop || strncmp(leaf->path, drop, strlen(drop)) != 0) path[n++] = leaf->path;
    }
    if (put) path[n++] = put;
    *err = (struct sy_error){0};
    return syi_state_tree_fits(&m->tree, path, n, err);
}

Test(state_tree, files_fit_by_their_names)
{
    static const struct {
        const char *drop, *put;
        int status;
        const char *says;
    } rows[] = {{NULL, NULL, SY_OK, ""},
                {P "0/mu/b", NULL, SY_EINVAL, "it lacks " P "0/mu/b"},
                {"target", NULL, SY_ENOENT, "target/"},
                {"state", NULL, SY_ENOENT, "state/"},
                {NULL, "target/more", SY_OK, ""},
                {NULL, P "0/nu/a/more", SY_OK, ""},
                {NULL, P "1/below/an/empty/state", SY_OK, ""},
                {NULL, P "0/count/x", SY_EINVAL, P "0/count/x"},
                {NULL, P "0/coun", SY_EINVAL, P "0/coun"},
                {NULL, P "7/count", SY_EINVAL, P "7/count"},
                {NULL, "state/more", SY_EINVAL, "state/more"},
                {NULL, "version", SY_OK, ""},
                {NULL, "zero/more", SY_OK, ""},
                {NULL, "", SY_OK, ""}};
    struct sy_error err;
    struct made *m = make("[optimizer]\nname = \"adam\"\n[train]\nlr_factors = \"constant\"\n");
    cr_assert_eq(m->status, SY_OK, "%s", m->err.text);
    for (size_t i = 0; i < SYI_COUNT(rows); i++) {
        cr_expect_eq(fits(m, rows[i].drop, rows[i].put, &err), rows[i].status, "row %zu: %s", i, err.text);
        cr_expect(strstr(err.text, rows[i].says), "row %zu: %s", i, err.text);
    }
    release(m);
}
