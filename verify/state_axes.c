/* SPDX-License-Identifier: Apache-2.0 */
/* Logical axes of parameters and optimizer state in T5X's tree. Which parameters Adafactor factors follows
 * T5X's factor rules by axis name, MoE's included. */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "verify/state_axes.h"

/* ---- what Adafactor factors ---- */

enum role { NEITHER, ROW, COLUMN, BATCH, UNKNOWN };

static enum role role_of(const char *axis)
{
    static const struct {
        const char *axis;
        enum role role;
    } rules[] = {{"vocab", COLUMN},
                 {"embed", ROW},
                 {"mlp", COLUMN},
                 {"heads", COLUMN},
                 {"kv", COLUMN},
                 {"joined_kv", COLUMN},
                 {"relpos_buckets", NEITHER},
                 {"layers", BATCH},
                 {"stack", BATCH},
                 {"q_wi_fused", COLUMN},
                 {"o_wo_fused", COLUMN},
                 {"multiquery_heads", COLUMN},
                 {"kv_fused", COLUMN},
                 {"layer_norm_scale", NEITHER},
                 {"mlp_activations", COLUMN},
                 {"expert", BATCH},
                 {"expert_mlp", COLUMN},
                 {"unmodeled", NEITHER}};
    for (size_t i = 0; axis && i < SYI_COUNT(rules); i++)
        if (!strcmp(rules[i].axis, axis)) return rules[i].role;
    return UNKNOWN;
}

/* Matrices are factored by size, everything else by its axes: rows and columns only together. */
static int is_factored(const struct syi_named_param *p, const struct syi_state_form *form, int *factored,
                       struct sy_error *err)
{
    int has[UNKNOWN + 1] = {0};
    *factored = 0;
    if (!form->factored) return SY_OK;
    for (int i = 0; i < p->rank; i++) {
        has[role_of(p->axis[i])] = 1;
        if (has[UNKNOWN])
            return syi_error(err, SY_ENOENT, "parameter %s: no factor rule for logical axis %s", p->path,
                             p->axis[i] ? p->axis[i] : "None");
    }
    if (has[ROW] && has[COLUMN] && has[NEITHER])
        return syi_error(err, SY_EINVAL, "parameter %s has rows, columns and an axis that is neither",
                         p->path);
    if (p->rank <= 2 && !has[BATCH]) {
        int64_t smaller = p->rank == 2 ? p->dim[p->dim[1] < p->dim[0]] : 0;
        *factored = p->rank == 2 && smaller >= form->min_dim_size_to_factor;
        return SY_OK;
    }
    *factored = has[ROW] && has[COLUMN];
    return SY_OK;
}

/* ---- leaves ---- */

static int add(struct syi_state_axes *axes, const struct syi_named_param *param, struct sy_error *err,
               const char *format, ...) SYI_PRINTF(4, 5);
static int add(struct syi_state_axes *axes, const struct syi_named_param *param, struct sy_error *err,
               const char *format, ...)
{
    va_list arguments;
    int status = SYI_GROW(axes->leaf, axes->capacity, axes->n + 1, err);
    if (status) return status;
    struct syi_state_leaf *leaf = &axes->leaf[axes->n++];
    leaf->param = param;
    leaf->expert = 0;
    va_start(arguments, format);
    int length = vsnprintf(leaf->path, sizeof leaf->path, format, arguments);
    va_end(arguments);
    if (length < 0 || (size_t)length >= sizeof leaf->path)
        return syi_error(err, SY_EINVAL, "%.60s...: a path of more than %d bytes", leaf->path,
                         (int)sizeof leaf->path - 1);
    return SY_OK;
}

static int add_adafactor(struct syi_state_axes *axes, const struct syi_named_param *p,
                         const struct syi_state_form *form, struct sy_error *err)
{
    int factored;
    int status = is_factored(p, form, &factored, err);
    /* a slot of one element counts as unused, even where the parameter has no more itself */
    const struct syi_named_param *v = factored || (p->rank == 1 && p->dim[0] == 1) ? NULL : p;
    if (!status) status = add(axes, form->has_momentum ? p : NULL, err, "state/param_states/%s/m", p->path);
    if (!status) status = add(axes, v, err, "state/param_states/%s/v", p->path);
    if (!status) status = add(axes, NULL, err, "state/param_states/%s/v_col", p->path);
    if (!status) status = add(axes, NULL, err, "state/param_states/%s/v_row", p->path);
    return status;
}

static int add_state(struct syi_state_axes *axes, const struct syi_named_param *param, size_t n,
                     const struct syi_state_form *form, struct sy_error *err)
{
    int status = SY_OK;
    for (size_t i = 0; form->adafactor && !status && i < n; i++)
        status = add_adafactor(axes, &param[i], form, err);
    for (const char *const *s = form->scalar; s && *s && !status; s++)
        status = add(axes, NULL, err, "state/param_states/%s", *s);
    for (const char *const *s = form->slot; s && *s && !status; s++)
        for (size_t i = 0; !status && i < n; i++)
            status = add(axes, &param[i], err, "state/param_states/%s/%s", *s, param[i].path);
    return status;
}

/* ---- state that follows the experts ---- */

/* T5X's own choice: .*expert.*\/kernel/v_.* */
static int factored_expert_kernel(const char *path)
{
    return syi_pattern_match("*expert*/kernel/v_*", path);
}

static int apply_filter(struct syi_state_axes *axes, const struct syi_state_form *form,
                        const struct syi_state_filter *filter, struct sy_error *err)
{
    static const char prefix[] = "state/param_states/";
    int found = 0;
    if (!filter->moe || form->no_optimizer) return SY_OK;
    if (!filter->match && !form->adafactor)
        return syi_error(err, SY_EINVAL,
                         "which state follows the experts is inferred for Adafactor only: give a filter");
    if (!filter->match && !form->factored) return SY_OK; /* whole moments have the axes already */
    for (size_t i = 0; i < axes->n; i++) {
        struct syi_state_leaf *leaf = &axes->leaf[i];
        if (strncmp(leaf->path, prefix, sizeof prefix - 1)) continue;
        const char *path = leaf->path + sizeof prefix - 1;
        found = 1;
        leaf->expert = filter->match ? filter->match(filter->arg, path) : factored_expert_kernel(path);
    }
    return found ? SY_OK : syi_error(err, SY_ENOENT, "the optimizer keeps no state of parameters");
}

int syi_state_axes(const struct syi_named_param *param, size_t n, const struct syi_state_form *form,
                   const struct syi_state_filter *filter, struct syi_state_axes *axes, struct sy_error *err)
{
    memset(axes, 0, sizeof *axes);
    int status = form->no_optimizer ? SY_OK : add_state(axes, param, n, form, err);
    if (!status) status = apply_filter(axes, form, filter, err);
    if (!status) status = add(axes, NULL, err, "state/step");
    for (size_t i = 0; !status && i < n; i++) status = add(axes, &param[i], err, "target/%s", param[i].path);
    if (status) syi_state_axes_free(axes);
    return status;
}

void syi_state_axes_free(struct syi_state_axes *axes)
{
    syi_free(axes->leaf);
    memset(axes, 0, sizeof *axes);
}
