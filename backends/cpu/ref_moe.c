/* SPDX-License-Identifier: Apache-2.0 */
/* Gates, moving tokens into expert buffers and back, and the two router losses, in plain C. Which expert and
 * slot a token gets is in ref_route.c; the experts themselves are grouped matmuls; the router's logits and
 * softmax are ops of their own. */
#include "config.h"

#include "backends/cpu/moe.h"
#include "backends/cpu/ref.h"

/* ---- gate ---- */

/* One token's choices. */
struct choices {
    const sy_real *probability;   /* [e] */
    const int32_t *expert, *slot; /* [k] */
    int64_t k;
};

static struct choices choices_of(const struct sy_call *call, const sy_real *probability, int64_t experts,
                                 int64_t token)
{
    int64_t k = call->in[1].dim[2];
    struct choices c = {probability + token * experts, (const int32_t *)call->in[1].data + token * k,
                        (const int32_t *)call->in[2].data + token * k, k};
    return c;
}

/* Sum over the choices, dropped ones included. */
static sy_real chosen_sum(const struct choices *c)
{
    sy_real sum = 0;
    for (int64_t j = 0; j < c->k; j++)
        if (c->expert[j] >= 0) sum += c->probability[c->expert[j]];
    return sum;
}

SYCPU_REF_KERNEL(gate)
{
    const struct sy_attr_gate *attr = call->attr;
    int64_t experts = call->in[0].dim[2], tokens = sycpu_extent(&call->in[0], 2);
    (void)context;
    for (int64_t token = 0; token < tokens; token++) {
        struct choices c = choices_of(call, call->in[0].data, experts, token);
        sy_real *gate = (sy_real *)call->out[0].data + token * c.k,
                sum = attr->normalize ? chosen_sum(&c) : 1;
        for (int64_t j = 0; j < c.k; j++)
            gate[j] = c.slot[j] < 0 || sum == 0 ? 0 : c.probability[c.expert[j]] / sum;
    }
    return SY_OK;
}

/* dp of a normalised gate: (dg of the kept ones - sum of dg p / S) / S. */
static void normalized_grad(const struct choices *c, const sy_real *dgate, sy_real *dprobability)
{
    sy_real sum = chosen_sum(c), common = 0;
    if (sum == 0) return;
    for (int64_t j = 0; j < c->k; j++)
        if (c->slot[j] >= 0) common = syi_fma(dgate[j], c->probability[c->expert[j]], common);
    common /= sum;
    for (int64_t j = 0; j < c->k; j++)
        if (c->expert[j] >= 0) dprobability[c->expert[j]] += ((c->slot[j] < 0 ? 0 : dgate[j]) - common) / sum;
}

SYCPU_REF_KERNEL(gate_grad)
{
    const struct sy_attr_gate *attr = call->attr;
    int64_t experts = call->out[0].dim[2], tokens = sycpu_extent(&call->out[0], 2);
    (void)context;
    for (int64_t token = 0; token < tokens; token++) {
        struct choices c = choices_of(call, call->in[3].data, experts, token);
        const sy_real *dgate = (const sy_real *)call->in[0].data + token * c.k;
        sy_real *dprobability = (sy_real *)call->out[0].data + token * experts;
        for (int64_t e = 0; e < experts; e++) dprobability[e] = 0;
        if (attr->normalize)
            normalized_grad(&c, dgate, dprobability);
        else
            for (int64_t j = 0; j < c.k; j++)
                if (c.slot[j] >= 0) dprobability[c.expert[j]] += dgate[j];
    }
    return SY_OK;
}

/* ---- dispatch and combine ---- */

SYCPU_REF_KERNEL(dispatch)
{
    struct sycpu_moe moe = sycpu_moe_sizes(call, &call->out[0], &call->in[1], &call->in[2]);
    const sy_real *x = call->in[0].data;
    sy_real *buffer = call->out[0].data;
    (void)context;
    for (int64_t i = 0, all = sycpu_count(&call->out[0]); i < all; i++) buffer[i] = 0;
    for (int64_t i = 0; i < moe.rows * moe.length * moe.choices; i++) {
        int64_t place = sycpu_moe_place(&moe, i / moe.choices / moe.length, i);
        for (int64_t d = 0; place >= 0 && d < moe.dim; d++)
            buffer[place * moe.dim + d] = x[i / moe.choices * moe.dim + d];
    }
    return SY_OK;
}

SYCPU_REF_KERNEL(ragged_places)
{
    const struct sy_attr_group *attr = call->attr;
    const struct sy_tensor *expert = &call->in[0], *kept = &call->in[2];
    const int32_t *of = expert->data, *slot = call->in[1].data, *count = kept->data;
    int32_t *none = call->out[0].data, *place = call->out[1].data, *first = call->out[2].data;
    int64_t groups = kept->dim[1], choices = attr->group_rows * expert->dim[1] * expert->dim[2];
    (void)context;
    for (int64_t group = 0; group < groups; group++) {
        int32_t sum = 0;
        for (int64_t e = 0; e < kept->dim[0]; sum += count[e++ * groups + group])
            first[e * groups + group] = sum;
        for (int64_t i = group * choices; i < (group + 1) * choices; i++) {
            none[i] = 0;
            place[i] = slot[i] < 0 ? -1 : first[of[i] * groups + group] + slot[i];
        }
    }
    return SY_OK;
}

/* Sum over the kept choices of each token: gate * slot, or the slot itself where gate is NULL. */
static void gather(const struct sycpu_moe *moe, const sy_real *buffer, const sy_real *gate, sy_real *out)
{
    for (int64_t token = 0; token < moe->rows * moe->length; token++)
        for (int64_t d = 0; d < moe->dim; d++) {
            sy_real sum = 0;
            for (int64_t i = token * moe->choices; i < (token + 1) * moe->choices; i++) {
                int64_t place = sycpu_moe_place(moe, token / moe->length, i);
                if (place < 0) continue;
                sy_real value = buffer[place * moe->dim + d];
                sum = gate ? syi_fma(gate[i], value, sum) : sum + value;
            }
            out[token * moe->dim + d] = sum;
        }
}

SYCPU_REF_KERNEL(dispatch_grad)
{
    struct sycpu_moe moe = sycpu_moe_sizes(call, &call->in[0], &call->in[1], &call->in[2]);
    (void)context;
    gather(&moe, call->in[0].data, NULL, call->out[0].data);
    return SY_OK;
}

SYCPU_REF_KERNEL(combine)
{
    struct sycpu_moe moe = sycpu_moe_sizes(call, &call->in[0], &call->in[1], &call->in[2]);
    (void)context;
    gather(&moe, call->in[0].data, call->in[3].data, call->out[0].data);
    return SY_OK;
}

SYCPU_REF_KERNEL(combine_grad)
{
    struct sycpu_moe moe = sycpu_moe_sizes(call, &call->in[0], &call->in[1], &call->in[2]);
    const sy_real *buffer = call->in[0].data, *gate = call->in[3].data, *dout = call->in[4].data;
    sy_real *dbuffer = call->out[0].data, *dgate = call->out[1].data;
    (void)context;
    for (int64_t i = 0, all = sycpu_count(&call->out[0]); i < all; i++) dbuffer[i] = 0;
    for (int64_t i = 0; i < moe.rows * moe.length * moe.choices; i++) {
        int64_t place = sycpu_moe_place(&moe, i / moe.choices / moe.length, i);
        const sy_real *row = dout + i / moe.choices * moe.dim;
        dgate[i] = place < 0 ? 0 : ref_row_dot(row, buffer + place * moe.dim, moe.dim);
        for (int64_t d = 0; place >= 0 && d < moe.dim; d++) dbuffer[place * moe.dim + d] = gate[i] * row[d];
    }
    return SY_OK;
}

/* ---- router losses ---- */

struct loss {
    const sy_real *probability, *lse, *mask; /* [b, t, e], [b, t], [b, t] or NULL */
    const int32_t *chosen;                   /* [e, g] */
    int64_t length, experts, groups, rows;   /* t, e, g, rows of a group */
    sy_real *balance, *z;                    /* [g] */
    sy_real *scratch;                        /* [threads][e] */
};

static int64_t count_real(const sy_real *mask, int64_t first, int64_t end)
{
    int64_t n = 0;
    for (int64_t token = first; token < end; token++) n += sycpu_is_real(mask, token);
    return n;
}

/* Row sum of lse^2 over the real tokens of a row. */
static sy_real row_z(const struct loss *l, int64_t row)
{
    sy_real lane[16] = {0};
    for (int64_t t = 0; t < l->length; t++) {
        int64_t token = row * l->length + t;
        if (sycpu_is_real(l->mask, token)) lane[t % 16] = syi_fma(l->lse[token], l->lse[token], lane[t % 16]);
    }
    return ref_lane_sum(lane);
}

static void loss_group(void *arg, int64_t group, int thread)
{
    const struct loss *l = arg;
    sy_real *mass = l->scratch + thread * l->experts, z = 0, sum = 0;
    int64_t first = group * l->rows * l->length, end = first + l->rows * l->length,
            n = count_real(l->mask, first, end);
    for (int64_t e = 0; e < l->experts; e++) mass[e] = 0;
    for (int64_t token = first; token < end; token++) {
        if (!sycpu_is_real(l->mask, token)) continue;
        for (int64_t e = 0; e < l->experts; e++) mass[e] += l->probability[token * l->experts + e];
    }
    for (int64_t row = group * l->rows; row < (group + 1) * l->rows; row++) z += row_z(l, row);
    for (int64_t e = 0; e < l->experts; e++)
        sum = syi_fma((sy_real)l->chosen[e * l->groups + group], mass[e], sum);
    l->balance[group] = n ? (sy_real)l->experts * sum / (sy_real)n : 0;
    l->z[group] = z;
}

uint64_t SYCPU_REF(router_loss_workspace)(const struct sy_call *call, int threads)
{
    return (uint64_t)threads * (uint64_t)call->in[0].dim[2] * sizeof(sy_real);
}

int SYCPU_REF(router_loss)(void *context, const struct sy_call *call)
{
    const struct sy_attr_group *attr = call->attr;
    const int64_t *dim = call->in[0].dim;
    (void)context;
    struct loss l = {.probability = call->in[0].data,
                     .lse = call->in[1].data,
                     .chosen = call->in[2].data,
                     .mask = call->in[3].data,
                     .length = dim[1],
                     .experts = dim[2],
                     .groups = dim[0] / attr->group_rows,
                     .rows = attr->group_rows,
                     .balance = call->out[0].data,
                     .z = call->out[1].data,
                     .scratch = call->workspace};
    sycpu_parallel(call, l.groups, loss_group, &l);
    return SY_OK;
}

static void loss_grad_group(void *arg, int64_t group, int thread)
{
    const struct sy_call *call = arg;
    const struct sy_attr_group *attr = call->attr;
    const int32_t *chosen = call->in[1].data;
    const sy_real *lse = call->in[0].data, *mask = call->in[2].data,
                  dz = ((sy_real *)call->in[4].data)[group], dbalance = ((sy_real *)call->in[3].data)[group];
    sy_real *dprobability = call->out[0].data, *dlse = call->out[1].data;
    const int64_t *dim = call->out[0].dim, experts = dim[2], groups = dim[0] / attr->group_rows,
                  first = group * attr->group_rows * dim[1], end = first + attr->group_rows * dim[1],
                  n = count_real(mask, first, end);
    const sy_real *same = NULL; /* all real tokens of a group have one gradient */
    (void)thread;
    for (int64_t token = first; token < end; token++) {
        sy_real *row = dprobability + token * experts;
        int real = sycpu_is_real(mask, token);
        dlse[token] = real ? 2 * lse[token] * dz : 0;
        if (!real) {
            for (int64_t e = 0; e < experts; e++) row[e] = 0;
        } else if (same) {
            memcpy(row, same, (size_t)experts * sizeof *row);
        } else {
            for (int64_t e = 0; e < experts; e++)
                row[e] = (sy_real)experts * (sy_real)chosen[e * groups + group] / (sy_real)n * dbalance;
            same = row;
        }
    }
}

SYCPU_REF_KERNEL(router_loss_grad)
{
    const struct sy_attr_group *attr = call->attr;
    (void)context;
    sycpu_parallel(call, call->out[0].dim[0] / attr->group_rows, loss_grad_group, (void *)call);
    return SY_OK;
}
