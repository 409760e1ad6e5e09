/* SPDX-License-Identifier: Apache-2.0 */
/* The MoE block: router, tokens-choose routing, dispatch, expert MLPs as grouped matmuls over the filled
 * slots, combine, and the auxiliary losses. Sources: flaxformer architectures/moe/{routing,moe_layers}.py;
 * the corrected treatment of padding is doc/numerics.md's. */
#include "config.h"

#include <math.h>

#include "model/model.h"
#include "program/record.h"

/* flaxformer architectures/moe/moe_architecture.py, _is_sparse_layer. */
int syi_is_sparse_layer(int layout, int layer, int layers, int sparse)
{
    switch (layout) {
    case SYI_SPARSE_BOTTOM: return layer < sparse;
    case SYI_SPARSE_TOP: return layer >= layers - sparse;
    case SYI_SPARSE_MIDDLE: return 2 * layer >= layers - sparse && 2 * layer < layers + sparse;
    default: return sparse > 0 && layer % (layers / sparse) == layers / sparse - 1;
    }
}

static struct sy_attr_route route_attr(const struct syi_build *b, int64_t tokens_a_row)
{
    const struct syi_config *c = b->config;
    double factor = b->training ? c->moe.train_capacity_factor : c->moe.eval_capacity_factor;
    struct sy_attr_route attr = {.selected = c->moe.num_selected_experts,
                                 .group_rows = syi_group_rows(c, &b->shape, b->training),
                                 .capacity_factor = factor,
                                 .min_capacity = c->moe.min_expert_capacity,
                                 .prioritized = c->moe.batch_prioritized_routing};
    int64_t tokens = attr.group_rows * tokens_a_row; /* no expert can get more than all of them */
    attr.capacity = tokens;
    if (factor > 0) {
        int64_t most = (int64_t)nearbyint(factor * (double)tokens / (double)c->moe.num_experts);
        if (most < attr.min_capacity) most = attr.min_capacity;
        if (most < tokens) attr.capacity = most;
    }
    return attr;
}

static int expert_kernel(struct syi_build *b, const char *name, int64_t rows, int64_t cols, int row_axis,
                         int col_axis)
{
    int64_t dim[3] = {b->config->moe.num_experts, rows, cols};
    uint8_t axis[3] = {SYI_AXIS_EXPERT, (uint8_t)row_axis, (uint8_t)col_axis};
    return syi_build_param(b, name, 3, dim, axis, SYI_INIT_NORMAL,
                           sqrt(syi_build_init_scale(b) / (double)rows));
}

/* Gated expert MLP over the buffer [experts, groups, slots, embed]. */
static int experts(struct syi_build *b, int buffer, int kept)
{
    const struct syi_config *c = b->config;
    int64_t width = c->moe.expert_mlp_dim ? c->moe.expert_mlp_dim : c->model.d_ff, embed = c->model.d_model;
    int activation = c->model.mlp_activations == SYI_MLP_GELU_LINEAR   ? SY_GELU
                     : c->model.mlp_activations == SYI_MLP_RELU_LINEAR ? SY_RELU
                                                                       : SY_SILU;
    syi_scope_push(b->p, "expert");
    SYI_AT(b->p);
    int parts[2] = {expert_kernel(b, "wi_0/kernel", embed, width, SYI_AXIS_EMBED, SYI_AXIS_EXPERT_MLP),
                    expert_kernel(b, "wi_1/kernel", embed, width, SYI_AXIS_EMBED, SYI_AXIS_EXPERT_MLP)};
    int packed = syi_packed_product(b, buffer, 2, parts, kept);
    int h =
        syi_glu(b->p, packed, b->rng, kept, activation, b->sites++, b->training ? c->model.dropout_rate : 0);
    int wo = expert_kernel(b, "wo/kernel", width, embed, SYI_AXIS_EXPERT_MLP, SYI_AXIS_EMBED);
    int y = syi_grouped_matmul(b->p, h, wo, kept);
    syi_scope_pop(b->p);
    return y;
}

/* Routing counts by expert leave as outputs, summed over groups as integers. */
static void count_output(struct syi_build *b, const char *what, int counts)
{
    char name[200];
    snprintf(name, sizeof name, "experts/%s/%s", syi_program_name(b->p, b->p->layer), what);
    syi_output(b->p, syi_count_sum(b->p, counts), name);
}

int syi_moe(struct syi_build *b, const char *name, int x, int lengths, int normaliser)
{
    const struct syi_config *c = b->config;
    struct syi_program *p = b->p;
    if (p->status || x < 0) return -1;
    int64_t dim[2] = {c->model.d_model, c->moe.num_experts};
    uint8_t axis[2] = {SYI_AXIS_EMBED, SYI_AXIS_ROUTER};
    struct sy_attr_route attr = route_attr(b, p->tensor[x].dim[1]);
    int lse, z;
    syi_scope_push(p, "%s", name);
    SYI_AT(p);
    int router = syi_build_param(b, "router/router_weights/w/kernel", 2, dim, axis, SYI_INIT_NORMAL, 0.02);
    int probabilities = syi_softmax(p, syi_matmul(p, x, router), &lse);
    struct syi_routing r = syi_route(p, probabilities, lengths, &attr);
    int gate = syi_gate(p, probabilities, r.expert, r.slot);
    SYI_AT(p);
    int buffer = syi_dispatch(p, x, r.expert, r.slot, c->moe.num_experts, attr.capacity, attr.group_rows);
    int out = experts(b, buffer, r.kept);
    SYI_AT(p);
    int y = syi_combine(p, out, r.expert, r.slot, gate, attr.group_rows);
    if (normaliser >= 0 && b->n_moe < SYI_MAX_MOE_LAYERS) {
        SYI_AT(p);
        int balance = syi_router_loss(p, probabilities, lse, r.chosen, lengths, attr.group_rows, &z);
        b->balance[b->n_moe] = syi_map2(p, SY_MAP_DIV, syi_total(p, balance), normaliser);
        b->z[b->n_moe++] = syi_map2(p, SY_MAP_DIV, syi_total(p, z), normaliser);
        count_output(b, "chosen", r.chosen);
        count_output(b, "kept", r.kept);
    }
    syi_scope_pop(p);
    return y;
}
