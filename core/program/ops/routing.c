/* SPDX-License-Identifier: Apache-2.0 */
/* Mixture of experts but for its products: routers and their losses, gates, and the way of tokens to the
 * slots of experts and back. */
#include "config.h"

#include "program/ops/ops.h"

/* ---- recording ---- */

/* Axis of routing groups made of rows with this axis: what is not split as a batch has no leaves either. */
static uint8_t group_axis(int row_axis, int of_batch)
{
    return row_axis == SYI_AXIS_BATCH ? (uint8_t)of_batch : SYI_AXIS_NONE;
}

/* The outputs of a router that gives each token `choices` places. */
static struct syi_routing routing(struct syi_program *p, int probabilities, int64_t choices,
                                  int64_t group_rows)
{
    struct syi_tensor t = *syi_tensor_of(p, probabilities);
    int64_t choice_dim[3] = {t.dim[0], t.dim[1], choices};
    uint8_t choice_axis[3] = {t.axis[0], t.axis[1], SYI_AXIS_CHOICE};
    int64_t count_dim[2] = {t.dim[2], t.dim[0] / group_rows};
    uint8_t count_axis[2] = {SYI_AXIS_ROUTER, group_axis(t.axis[0], SYI_AXIS_GROUP)};
    uint8_t buffer_axis[2] = {SYI_AXIS_EXPERT, group_axis(t.axis[0], SYI_AXIS_EXPERT_GROUP)};
    return (struct syi_routing){
        syi_temp(p, SY_I32, 3, choice_dim, choice_axis), syi_temp(p, SY_I32, 3, choice_dim, choice_axis),
        syi_temp(p, SY_I32, 2, count_dim, count_axis), syi_temp(p, SY_I32, 2, count_dim, buffer_axis)};
}

static const struct syi_routing no_routing = {-1, -1, -1, -1};

struct syi_routing syi_route(struct syi_program *p, int probabilities, int mask, int bias,
                             const struct sy_attr_route *attr)
{
    if (!SYI_HAVE(p, probabilities)) return no_routing;
    const struct syi_tensor *t = syi_tensor_of(p, probabilities);
    if (attr->selected < 1 || attr->selected > t->dim[2] || t->dim[0] % attr->group_rows) {
        SYI_BAD(p, "routing: %lld of %lld experts, groups of %lld rows in %lld", (long long)attr->selected,
                (long long)t->dim[2], (long long)attr->group_rows, (long long)t->dim[0]);
        return no_routing;
    }
    struct syi_routing r = routing(p, probabilities, attr->selected, attr->group_rows);
    int in[3] = {probabilities, mask, bias}, out[4] = {r.expert, r.slot, r.chosen, r.kept};
    if (r.kept < 0 || syi_op_add(p, SY_OP_ROUTE, 3, in, 4, out, attr, sizeof *attr)) return no_routing;
    return r;
}

struct syi_routing syi_route_experts(struct syi_program *p, int probabilities, int mask,
                                     const struct sy_attr_route_experts *attr)
{
    if (!SYI_HAVE(p, probabilities)) return no_routing;
    const struct syi_tensor *t = syi_tensor_of(p, probabilities);
    if (t->dim[0] % attr->group_rows || attr->capacity > attr->group_rows * t->dim[1]) {
        SYI_BAD(p,
                "routing: %lld places for %lld rows of %lld tokens: capacity is above the tokens of a group",
                (long long)attr->capacity, (long long)attr->group_rows, (long long)t->dim[1]);
        return no_routing;
    }
    struct syi_routing r = routing(p, probabilities, t->dim[2], attr->group_rows);
    int in[2] = {probabilities, mask}, out[4] = {r.expert, r.slot, r.chosen, r.kept};
    if (r.kept < 0 || syi_op_add(p, SY_OP_ROUTE_EXPERTS, 2, in, 4, out, attr, sizeof *attr))
        return no_routing;
    return r;
}

struct syi_ragged syi_ragged_places(struct syi_program *p, const struct syi_routing *routing,
                                    int64_t group_rows)
{
    const struct syi_ragged none = {-1, -1, -1};
    if (!SYI_HAVE(p, routing->expert, routing->slot, routing->kept)) return none;
    struct sy_attr_group attr = {group_rows};
    struct syi_ragged r = {syi_temp_like(p, routing->expert), syi_temp_like(p, routing->slot),
                           syi_temp_like(p, routing->kept)};
    int in[3] = {routing->expert, routing->slot, routing->kept}, out[3] = {r.expert, r.slot, r.first};
    if (r.first < 0 || syi_op_add(p, SY_OP_RAGGED_PLACES, 3, in, 3, out, &attr, sizeof attr)) return none;
    return r;
}

int syi_regroup(struct syi_program *p, int x, int64_t rows, int64_t length, int64_t groups)
{
    if (!SYI_HAVE(p, x)) return -1;
    struct syi_tensor t = *syi_tensor_of(p, x);
    if (t.rank < 2 || t.rank > 3 || rows < t.dim[0] || length < t.dim[1] || groups < 1 ||
        rows * length % groups)
        return SYI_BAD(p, "regroup: %lld x %lld positions into %lld groups", (long long)rows,
                       (long long)length, (long long)groups);
    struct sy_attr_regroup attr = {rows, length};
    t.dim[0] = groups;
    t.dim[1] = rows * length / groups;
    t.axis[0] = t.axis[1] = SYI_AXIS_NONE;
    return SYI_EMIT(p, SY_OP_REGROUP, syi_temp(p, t.dtype, t.rank, t.dim, t.axis), &attr, sizeof attr, x);
}

int syi_ungroup(struct syi_program *p, int x, int64_t rows, int64_t length, int like)
{
    if (!SYI_HAVE(p, x, like)) return -1;
    struct sy_attr_regroup attr = {rows, length};
    return SYI_EMIT(p, SY_OP_UNGROUP, syi_as(p, syi_temp_like(p, like), syi_tensor_of(p, x)->dtype), &attr,
                    sizeof attr, x);
}

int syi_dispatch(struct syi_program *p, int x, int expert, int slot, int64_t experts, int64_t capacity,
                 int64_t group_rows)
{
    if (!SYI_HAVE(p, x, expert, slot)) return -1;
    struct syi_tensor t = *syi_tensor_of(p, x);
    int64_t dim[4] = {experts, t.dim[0] / group_rows, capacity, t.dim[2]};
    uint8_t axis[4] = {SYI_AXIS_EXPERT, group_axis(t.axis[0], SYI_AXIS_EXPERT_GROUP), SYI_AXIS_CAPACITY,
                       t.axis[2]};
    struct sy_attr_group attr = {group_rows};
    return SYI_EMIT(p, SY_OP_DISPATCH, syi_temp(p, t.dtype, 4, dim, axis), &attr, sizeof attr, x, expert,
                    slot);
}

int syi_dispatch_grad(struct syi_program *p, int dbuffer, int expert, int slot, int x, int64_t group_rows)
{
    if (!SYI_HAVE(p, dbuffer, expert, slot, x)) return -1;
    struct sy_attr_group attr = {group_rows};
    int dx = syi_as(p, syi_temp_like(p, x), syi_tensor_of(p, dbuffer)->dtype);
    return SYI_EMIT(p, SY_OP_DISPATCH_GRAD, dx, &attr, sizeof attr, dbuffer, expert, slot);
}

int syi_combine(struct syi_program *p, int buffer, int expert, int slot, int gate, int64_t group_rows)
{
    if (!SYI_HAVE(p, buffer, expert, slot, gate)) return -1;
    struct syi_tensor t = *syi_tensor_of(p, expert);
    t.dim[2] = syi_tensor_of(p, buffer)->dim[3];
    t.axis[2] = syi_tensor_of(p, buffer)->axis[3];
    struct sy_attr_group attr = {group_rows};
    return SYI_EMIT(p, SY_OP_COMBINE, syi_temp(p, syi_tensor_of(p, gate)->dtype, 3, t.dim, t.axis), &attr,
                    sizeof attr, buffer, expert, slot, gate);
}

int syi_combine_grad(struct syi_program *p, int buffer, int expert, int slot, int gate, int dout,
                     int64_t group_rows, int *dgate)
{
    *dgate = -1;
    if (!SYI_HAVE(p, buffer, expert, slot, gate, dout)) return -1;
    struct sy_attr_group attr = {group_rows};
    int in[5] = {buffer, expert, slot, gate, dout},
        out[2] = {syi_temp_like(p, buffer), syi_temp_like(p, gate)};
    *dgate = out[1];
    return out[1] < 0 || syi_op_add(p, SY_OP_COMBINE_GRAD, 5, in, 2, out, &attr, sizeof attr) ? -1 : out[0];
}

int syi_router_loss(struct syi_program *p, int probabilities, int lse, int chosen, int mask,
                    int64_t group_rows, int *z)
{
    *z = -1;
    if (!SYI_HAVE(p, probabilities, lse, chosen)) return -1;
    struct syi_tensor counts = *syi_tensor_of(p, chosen);
    struct sy_attr_group attr = {group_rows};
    int dtype = syi_tensor_of(p, probabilities)->dtype, in[4] = {probabilities, lse, chosen, mask};
    int out[2] = {syi_temp(p, (enum sy_dtype)dtype, 1, counts.dim + 1, counts.axis + 1),
                  syi_temp(p, (enum sy_dtype)dtype, 1, counts.dim + 1, counts.axis + 1)};
    *z = out[1];
    return out[1] < 0 || syi_op_add(p, SY_OP_ROUTER_LOSS, 4, in, 2, out, &attr, sizeof attr) ? -1 : out[0];
}

/* ---- check ---- */

/* Rows of a batch against groups of them, where the op has both. */
static int check_groups(struct syi_check *c)
{
    const int64_t *by_axis = &c->extent[SYI_EXTENT_OF_AXIS], rows = by_axis[SYI_AXIS_BATCH];
    int64_t groups = by_axis[SYI_AXIS_GROUP], buffer_groups = by_axis[SYI_AXIS_EXPERT_GROUP];
    int64_t group_rows = syi_op_field(c->program, c->op, "group_rows", 0);
    if (!rows)
        return group_rows == 1 ? SY_OK : syi_check_bad(c, "groups of %lld rows", (long long)group_rows);
    if (group_rows < 1) return syi_check_bad(c, "groups of %lld rows", (long long)group_rows);
    if (!groups) groups = buffer_groups;
    if ((rows && groups && groups * group_rows != rows) || (buffer_groups && groups != buffer_groups))
        return syi_check_bad(c, "%lld or %lld groups of %lld rows in %lld rows", (long long)groups,
                             (long long)buffer_groups, (long long)group_rows, (long long)rows);
    return SY_OK;
}

static int check_regroup(struct syi_check *c, const struct syi_tensor *plain,
                         const struct syi_tensor *grouped)
{
    const struct sy_attr_regroup *attr = syi_program_attr(c->program, c->op);
    if (plain->rank != grouped->rank || plain->rank < 2 || attr->rows < plain->dim[0] ||
        attr->length < plain->dim[1] || grouped->dim[0] * grouped->dim[1] != attr->rows * attr->length ||
        plain->dim[2] != grouped->dim[2])
        return syi_check_bad(c, "groups do not fit %lld x %lld positions", (long long)attr->rows,
                             (long long)attr->length);
    return SY_OK;
}

static int check_grouping(struct syi_check *c)
{
    return check_regroup(c, syi_check_in(c, 0), syi_check_out(c, 0));
}

static int check_ungrouping(struct syi_check *c)
{
    return check_regroup(c, syi_check_out(c, 0), syi_check_in(c, 0));
}

/* ---- gradients ---- */

SYI_GRAD(gate)
{
    SYI_ATTR_COPY(p, op, sy_attr_gate);
    if (wants[0]) din[0] = SYI_RECORD(p, SY_OP_GATE_GRAD, &attr, dout[0], op->in[1], op->in[2], op->in[0]);
}

SYI_GRAD(dispatch)
{
    SYI_ATTR_COPY(p, op, sy_attr_group);
    if (wants[0]) din[0] = syi_dispatch_grad(p, dout[0], op->in[1], op->in[2], op->in[0], attr.group_rows);
}

SYI_GRAD(combine)
{
    SYI_ATTR_COPY(p, op, sy_attr_group);
    (void)wants;
    int dy = syi_grad_fitting(p, dout[0], op->in[3]);
    din[0] = syi_combine_grad(p, op->in[0], op->in[1], op->in[2], op->in[3], dy, attr.group_rows, &din[3]);
}

SYI_GRAD(router_loss)
{
    SYI_ATTR_COPY(p, op, sy_attr_group);
    (void)wants;
    int dbalance = dout[0] >= 0 ? dout[0] : syi_grad_zero(p, dout[1]),
        dz = dout[1] >= 0 ? dout[1] : syi_grad_zero(p, dout[0]);
    int in[5] = {op->in[1], op->in[2], op->in[3], dbalance, dz};
    int out[2] = {syi_temp_like(p, op->in[0]), syi_temp_like(p, op->in[1])};
    if (syi_op_add(p, SY_OP_ROUTER_LOSS_GRAD, 5, in, 2, out, &attr, sizeof attr)) return;
    din[0] = out[0];
    din[1] = out[1];
}

SYI_GRAD(regroup)
{
    SYI_ATTR_COPY(p, op, sy_attr_regroup);
    if (wants[0]) din[0] = syi_ungroup(p, dout[0], attr.rows, attr.length, op->in[0]);
}

SYI_GRAD(ungroup)
{
    SYI_ATTR_COPY(p, op, sy_attr_regroup);
    if (wants[0]) din[0] = syi_regroup(p, dout[0], attr.rows, attr.length, p->tensor[op->in[0]].dim[0]);
}

/* ---- rules ---- */

const struct syi_op_rules syi_op_rules_route = {.check = check_groups, .flops = 1};
const struct syi_op_rules syi_op_rules_route_experts = {.check = check_groups, .flops = 1};
const struct syi_op_rules syi_op_rules_ragged_places = {.check = check_groups};
const struct syi_op_rules syi_op_rules_kept_tokens = {0};
const struct syi_op_rules syi_op_rules_gate = {.grad = grad_gate, .flops = 2, .of = -1};
const struct syi_op_rules syi_op_rules_gate_grad = {.flops = 4};
const struct syi_op_rules syi_op_rules_dispatch = {.check = check_groups, .grad = grad_dispatch};
const struct syi_op_rules syi_op_rules_dispatch_grad = {.check = check_groups, .flops = 1, .of = -1};
const struct syi_op_rules syi_op_rules_combine = {
    .check = check_groups, .grad = grad_combine, .flops = 2, .of = -1};
const struct syi_op_rules syi_op_rules_combine_grad = {.check = check_groups, .flops = 3, .of = 4};
const struct syi_op_rules syi_op_rules_router_loss = {
    .check = check_groups, .grad = grad_router_loss, .flops = 2};
const struct syi_op_rules syi_op_rules_router_loss_grad = {.check = check_groups, .flops = 2, .of = -1};
const struct syi_op_rules syi_op_rules_regroup = {.check = check_grouping, .grad = grad_regroup};
const struct syi_op_rules syi_op_rules_ungroup = {.check = check_ungrouping, .grad = grad_ungroup};
