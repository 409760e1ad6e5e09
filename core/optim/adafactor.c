/* SPDX-License-Identifier: Apache-2.0 */
/* The transforms of Adafactor (arXiv 1804.04235) as T5X has it: scaling by factored second moments, a bound
 * on the root mean square of an update, the learning rate relative to the parameter's size, momentum of the
 * finished step, decay of weights. Which dims are means of rows and columns is decided here, by shape or by
 * the logical axes (T5X adafactor.py, contrib/moe/adafactor_utils.py). Bounds and sizes are those of whole
 * parameters, or of each expert by itself where the rules say so. */
#include "config.h"

#include "optim/optim.h"
#include "program/record.h"

/* ---- what is factored ---- */

/* Sets of dims, a bit each. A parameter is factored where row is not empty; column is not, then, either. */
struct factors {
    unsigned batch;       /* kept in every mean */
    unsigned row, column; /* v_row keeps row and is the mean over column; v_col the reverse */
};

enum role { UNKNOWN, NEITHER, BATCH, ROW, COLUMN };

/* What the rules make of an axis. */
static enum role role_of(int rules, int axis)
{
    int moe = rules == SYI_FACTOR_MOE;
    switch (axis) {
    case SYI_AXIS_EMBED: return ROW;
    case SYI_AXIS_VOCAB:
    case SYI_AXIS_MLP:
    case SYI_AXIS_HEADS: return COLUMN;
    case SYI_AXIS_BUCKETS: return NEITHER;
    case SYI_AXIS_EXPERT: return moe ? BATCH : UNKNOWN;
    case SYI_AXIS_EXPERT_MLP: return moe ? COLUMN : UNKNOWN;
    case SYI_AXIS_ROUTER: return moe ? NEITHER : UNKNOWN;
    default: return UNKNOWN;
    }
}

/* Matrices by size: the smaller dim is the row, dim 0 of equal ones. */
static void factor_by_size(const struct syi_optim *o, const struct syi_tensor *t, struct factors *f)
{
    int row = t->dim[1] < t->dim[0];
    if (t->rank != 2 || t->dim[row] < o->options->min_dim_size_to_factor) return;
    f->row = 1u << row;
    f->column = 1u << !row;
}

static struct factors refuse(struct syi_optim *o, const char *why)
{
    const char *part = o->options->name_of_part, *dot = *part ? "." : "";
    syi_program_fail(
        o->p, SY_EINVAL,
        "adafactor: parameter %s of rank %d %s: set optimizer%s%s.logical_factor_rules to moe, or "
        "optimizer%s%s.factored to false with rules none",
        syi_program_name(o->p, o->p->tensor[o->parameter].name), o->p->tensor[o->parameter].rank, why, dot,
        part, dot, part);
    return (struct factors){0};
}

/* Rules count for what is more than a matrix and for stacks of experts; row and column only together. */
static struct factors factors_of(struct syi_optim *o)
{
    struct factors f = {0};
    if (o->p->status || o->parameter < 0) return f;
    struct syi_tensor t = o->p->tensor[o->parameter];
    int rules = o->options->logical_factor_rules, factored = o->options->factored;
    unsigned of[COLUMN + 1] = {0};
    for (int i = 0; i < t.rank; i++) of[role_of(rules, t.axis[i])] |= 1u << i;
    if (rules == SYI_FACTOR_NONE || (t.rank <= 2 && !of[BATCH])) {
        if (t.rank > 2 && factored) return refuse(o, "has no rule that says how to factor it");
        if (factored) factor_by_size(o, &t, &f);
        return f;
    }
    if (of[UNKNOWN]) return refuse(o, "has an axis that the rules do not know");
    if (of[ROW] && of[COLUMN] && of[NEITHER]) return refuse(o, "has an axis that is neither row nor column");
    f.batch = of[BATCH];
    if (factored && of[ROW] && of[COLUMN]) f.row = of[ROW], f.column = of[COLUMN];
    return f;
}

/* ---- means ---- */

static int scaled_sum(struct syi_program *p, int op, int x, unsigned dims)
{
    int64_t n = 1;
    if (p->status || x < 0) return -1;
    for (int i = 0; i < p->tensor[x].rank; i++)
        if (dims >> i & 1) n *= p->tensor[x].dim[i];
    return syi_map1(p, SY_MAP_MULS, syi_sum_over(p, (enum sy_op)op, x, dims), 1.0 / (double)n);
}

static int mean_over(struct syi_program *p, int x, unsigned dims)
{
    return scaled_sum(p, SY_OP_BLOCK_SUM, x, dims);
}

/* Root mean square over all dims but those of the batch. */
static int root_mean_square(struct syi_optim *o, int x)
{
    return syi_map1(o->p, SY_MAP_SQRT, scaled_sum(o->p, SY_OP_BLOCK_SUMSQ, x, ~factors_of(o).batch), 0);
}

/* max(x, least) */
static int at_least(struct syi_program *p, int x, double least)
{
    return syi_map2(p, SY_MAP_MAX, x, syi_constant_like(p, least, x));
}

/* ---- state ---- */

/* A slot of T5X's state, shaped like the parameter with the dims of `means` 1 long. */
static int slot(struct syi_optim *o, const char *name, unsigned means)
{
    char full[256];
    if (o->p->status || o->parameter < 0) return -1;
    struct syi_tensor t = o->p->tensor[o->parameter];
    for (int i = 0; i < t.rank; i++)
        if (means >> i & 1) t.dim[i] = 1, t.axis[i] = SYI_AXIS_NONE;
    snprintf(full, sizeof full, "state/param_states/%s/%s", syi_program_name(o->p, t.name), name);
    return syi_tensor_add(o->p, full, SYI_STATE, t.dtype, t.rank, t.dim, t.axis);
}

/* decay * v + (1 - decay) * value, stored in the slot of that name; returns the new v. */
static int second_moment(struct syi_optim *o, const char *name, unsigned means, int value)
{
    struct syi_program *p = o->p;
    int v = slot(o, name, means);
    int kept = syi_map2(p, SY_MAP_MUL, v, syi_optim_part_input(o, "decay_rate"));
    int mixed = syi_map2(p, SY_MAP_MUL, value, syi_optim_part_input(o, "mixing_rate"));
    int moved = syi_map2(p, SY_MAP_ADD, kept, mixed);
    syi_optim_store(o, moved, v);
    return moved;
}

/* ---- the transforms ---- */

int syi_scale_by_factored_rms(struct syi_optim *o, int update)
{
    struct syi_program *p = o->p;
    struct factors f = factors_of(o);
    SYI_AT(p);
    int square = syi_map1(p, SY_MAP_ADDS, syi_map2(p, SY_MAP_MUL, update, update), o->options->epsilon1);
    if (!f.row) {
        int v = second_moment(o, "v", 0, square);
        return syi_map2(p, SY_MAP_MUL, update, syi_map1(p, SY_MAP_RSQRT, v, 0));
    }
    int row = second_moment(o, "v_row", f.column, mean_over(p, square, f.column));
    int column = second_moment(o, "v_col", f.row, mean_over(p, square, f.row));
    int share = syi_map2(p, SY_MAP_DIV, row, mean_over(p, row, f.row));
    int scaled = syi_map2(p, SY_MAP_MUL, update, syi_map1(p, SY_MAP_RSQRT, share, 0));
    return syi_map2(p, SY_MAP_MUL, scaled, syi_map1(p, SY_MAP_RSQRT, column, 0));
}

int syi_clip_by_rms(struct syi_optim *o, int update)
{
    double threshold = o->options->clipping_threshold;
    if (threshold == 0) return update;
    SYI_AT(o->p);
    int over = syi_map1(o->p, SY_MAP_MULS, root_mean_square(o, update), 1 / threshold);
    return syi_map2(o->p, SY_MAP_DIV, update, at_least(o->p, over, 1));
}

int syi_scale_by_parameter_rms(struct syi_optim *o, int update)
{
    if (!o->options->multiply_by_parameter_scale) return update;
    SYI_AT(o->p);
    int size = at_least(o->p, root_mean_square(o, o->parameter), o->options->epsilon2);
    return syi_map2(o->p, SY_MAP_MUL, update, size);
}

int syi_add_momentum(struct syi_optim *o, int update)
{
    double beta1 = o->options->beta1;
    if (beta1 < 0) return update;
    SYI_AT(o->p);
    int m = slot(o, "m", 0);
    int moved = syi_moving_mean(o->p, m, update, beta1);
    syi_optim_store(o, moved, m);
    return moved;
}

int syi_decay_weights(struct syi_optim *o, int update)
{
    if (o->options->weight_decay_rate == 0) return update;
    SYI_AT(o->p);
    return syi_map2(o->p, SY_MAP_ADD, update,
                    syi_map1(o->p, SY_MAP_MULS, o->parameter, -o->options->weight_decay_rate));
}
