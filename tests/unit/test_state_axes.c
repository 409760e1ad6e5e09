/* SPDX-License-Identifier: Apache-2.0 */
/* State tensors of recorded update programs have the axes that verify/state_axes.c gives T5X's leaves of the same names: no
 * state without a rule, whole moments with the axes of their parameter, the expert axis first where the leaf has it. */
#include "config.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "model/model.h"
#include "optim/optim.h"
#include "verify/state_axes.h"

enum { PARAMETERS = 3 };
static const struct syi_param parameters[PARAMETERS] = {
    {.name = "encoder/mlp/expert/wi/kernel",
     .id = 0,
     .rank = 3,
     .dim = {4, 8, 12, 1, 1},
     .axis = {SYI_AXIS_EXPERT, SYI_AXIS_EMBED, SYI_AXIS_EXPERT_MLP}},
    {.name = "encoder/mlp/wo/kernel",
     .id = 1,
     .rank = 2,
     .dim = {16, 8, 1, 1, 1},
     .axis = {SYI_AXIS_MLP, SYI_AXIS_EMBED}},
    {.name = "encoder/norm/scale", .id = 2, .rank = 1, .dim = {8, 1, 1, 1, 1}, .axis = {SYI_AXIS_EMBED}}};

static struct syi_program *record(const char *text)
{
    static struct syi_config config;
    struct syi_param param[PARAMETERS];
    uint32_t leaves[SYI_AXIS_COUNT];
    struct syi_model model = {.param = param, .n = PARAMETERS};
    struct syi_program *program = NULL;
    struct sy_error err = {0};
    memcpy(param, parameters, sizeof param);
    for (int i = 0; i < SYI_AXIS_COUNT; i++) leaves[i] = 1;
    cr_assert_eq(syi_config_defaults(&config, &err), SY_OK);
    cr_assert_eq(syi_config_load_text(&config, "test", text, strlen(text), &err), SY_OK, "%s", err.text);
    cr_assert_eq(syi_config_validate(&config, &err), SY_OK, "%s", err.text);
    const struct syi_update_options options = {.config = &config, .model = &model, .leaf_count = leaves};
    cr_assert_eq(syi_record_update(&options, &program, &err), SY_OK, "%s", err.text);
    return program;
}

static const struct syi_state_leaf *leaf_of(const struct syi_state_axes *axes, const char *path)
{
    for (size_t i = 0; i < axes->n; i++)
        if (!strcmp(axes->leaf[i].path, path)) return &axes->leaf[i];
    return NULL;
}

static void check_tensor(const struct syi_tensor *t, const char *name, const struct syi_state_leaf *leaf)
{
    int first = leaf->expert;
    cr_expect_eq(t->axis[0] == SYI_AXIS_EXPERT,
                 first || (leaf->param && !strcmp(leaf->param->axis[0], "expert")), "%s", name);
    if (!leaf->param) return;
    cr_assert_eq(t->rank, leaf->param->rank, "%s", name);
    for (int d = 0; d < t->rank; d++)
        cr_expect_str_eq(syi_axis_name((enum syi_axis)t->axis[d]), leaf->param->axis[d], "%s, dim %d", name,
                         d);
}

/* Every state tensor of the program against its leaf; at least `most` of them. */
static void compare(const char *text, const struct syi_state_form *form,
                    const struct syi_state_filter *filter, int most)
{
    struct syi_named_param named[PARAMETERS] = {{0}};
    struct syi_state_axes axes = {0};
    struct sy_error err = {0};
    int n = 0;
    struct syi_program *program = record(text);
    for (int i = 0; i < PARAMETERS; i++) {
        named[i] = (struct syi_named_param){.path = parameters[i].name, .rank = parameters[i].rank};
        for (int d = 0; d < parameters[i].rank; d++) {
            named[i].dim[d] = parameters[i].dim[d];
            named[i].axis[d] = syi_axis_name((enum syi_axis)parameters[i].axis[d]);
        }
    }
    cr_assert_eq(syi_state_axes(named, PARAMETERS, form, filter, &axes, &err), SY_OK, "%s", err.text);
    for (size_t i = 0; i < program->n_tensors; i++) {
        const struct syi_tensor *t = &program->tensor[i];
        const char *name = syi_program_name(program, t->name);
        if (t->kind != SYI_STATE) continue;
        const struct syi_state_leaf *leaf = leaf_of(&axes, name);
        cr_assert_not_null(leaf, "%s is no leaf", name);
        check_tensor(t, name, leaf);
        n++;
    }
    cr_expect_eq(n, most, "%d tensors of state", n);
    syi_state_axes_free(&axes);
    syi_program_free(program);
}

Test(state_axes, of_adam)
{
    static const char *const scalar[] = {"0/count", NULL}, *const slot[] = {"0/mu", "0/nu", NULL};
    static const struct syi_state_form form = {.scalar = scalar, .slot = slot};
    compare("[optimizer]\nname = \"adam\"\n", &form, &(struct syi_state_filter){0}, 2 * PARAMETERS);
}

Test(state_axes, of_adafactor)
{
    struct syi_state_form form = {.adafactor = 1, .factored = 1, .min_dim_size_to_factor = 8};
    const struct syi_state_filter filter = {.moe = 1};
    compare("[optimizer]\nname = \"adafactor\"\nmin_dim_size_to_factor = 8\n", &form, &filter, 5);
    form.has_momentum = 1;
    compare("[optimizer]\nname = \"adafactor\"\nmin_dim_size_to_factor = 8\nbeta1 = 0.9\n", &form, &filter,
            8);
}
