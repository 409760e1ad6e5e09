/* SPDX-License-Identifier: Apache-2.0 */
/* The MoE block: grouping, dispatch, expert MLPs as products over the filled slots, combine, and what
 * is reported about a layer. Routing itself is in router.c. Source: flaxformer
 * architectures/moe/moe_layers.py. */
#include "config.h"

#include <math.h>

#include "model/model.h"

static int expert_kernel(struct syi_build *b, const char *name, int64_t rows, int64_t cols, int row_axis,
                         int col_axis)
{
    int64_t dim[3] = {b->config->moe.num_experts, rows, cols};
    uint8_t axis[3] = {SYI_AXIS_EXPERT, (uint8_t)row_axis, (uint8_t)col_axis};
    return syi_build_param(b, name, 3, dim, axis, SYI_INIT_NORMAL,
                           sqrt(syi_build_init_scale(b) / (double)rows));
}

struct syi_activations syi_expert_activations(const struct syi_config *c)
{
    return syi_activations(c->moe.expert_activations ? (int)c->moe.expert_activations - 1
                                                     : (int)c->model.mlp_activations);
}

/* Expert MLP, gated or plain, over the buffer [experts, groups, slots, embed] or [1, groups, places, embed].
 */
static int experts(struct syi_build *b, int buffer, const struct syi_filled *filled)
{
    const struct syi_config *c = b->config;
    int64_t width = syi_expert_width(c), embed = c->model.d_model;
    struct syi_activations act = syi_expert_activations(c);
    int h;
    syi_scope_push(b->p, "expert");
    SYI_AT(b->p);
    if (act.gated) {
        int parts[2] = {expert_kernel(b, "wi_0/kernel", embed, width, SYI_AXIS_EMBED, SYI_AXIS_EXPERT_MLP),
                        expert_kernel(b, "wi_1/kernel", embed, width, SYI_AXIS_EMBED, SYI_AXIS_EXPERT_MLP)};
        h = syi_gated_product(b, buffer, parts, filled, act.activation);
    } else {
        int wi = expert_kernel(b, "wi/kernel", embed, width, SYI_AXIS_EMBED, SYI_AXIS_EXPERT_MLP);
        int y = syi_as(b->p, syi_product(b, buffer, wi, filled), b->dtype);
        h = syi_dropped(b, syi_activation(b->p, y, (enum sy_activation)act.activation));
    }
    int wo = expert_kernel(b, "wo/kernel", width, embed, SYI_AXIS_EXPERT_MLP, SYI_AXIS_EMBED);
    int y = syi_product(b, h, wo, filled);
    syi_scope_pop(b->p);
    return y;
}

/* An output of a layer; what: for its name. */
static void layer_output(struct syi_build *b, enum syi_role role, const struct syi_router *router,
                         const char *what, int tensor)
{
    char name[200];
    snprintf(name, sizeof name, "experts/%s/%s", syi_program_name(b->p, b->p->layer), what);
    syi_output(b->p, syi_role_set(b->p, tensor, role, router->layer), name);
}

/* What a layer reports to the host: integer counts, summed over groups, and sums. */
static void report(struct syi_build *b, const struct syi_routed *r, const struct syi_router *router)
{
    SYI_AT(b->p);
    layer_output(b, SYI_ROLE_CHOSEN, router, "chosen",
                 SYI_RECORD(b->p, SY_OP_COUNT_SUM, NULL, r->routing.chosen));
    layer_output(b, SYI_ROLE_KEPT, router, "kept", SYI_RECORD(b->p, SY_OP_COUNT_SUM, NULL, r->routing.kept));
    int served = SYI_RECORD(b->p, SY_OP_KEPT_TOKENS, NULL, r->routing.slot); /* int32 [1, b] */
    layer_output(b, SYI_ROLE_SERVED, router, "tokens", SYI_RECORD(b->p, SY_OP_COUNT_SUM, NULL, served));
    layer_output(b, SYI_ROLE_CONFIDENCE, router, "confidence", syi_total(b->p, r->gate));
    layer_output(b, SYI_ROLE_LAYER_AUXILIARY_LOSS, router, "auxiliary_loss", r->balance);
    layer_output(b, SYI_ROLE_LAYER_ROUTER_Z_LOSS, router, "router_z_loss", r->z);
}

/* The layer in the model, the same in whatever program it is recorded, and its places in this one. */
static void note_layer(struct syi_build *b, const struct syi_routed *r, const struct syi_router *router,
                       const struct syi_groups *groups)
{
    struct syi_model *model = b->model;
    struct syi_moe_layer *layer;
    struct sy_error err = {0};
    if (b->p->status) return;
    if (SYI_GROW(model->layer, model->layer_capacity, router->layer + 1, &err)) {
        syi_program_fail(b->p, SY_ENOMEM, "%s", err.text);
        return;
    }
    if (model->n_layers <= router->layer) model->n_layers = router->layer + 1;
    layer = &model->layer[router->layer];
    snprintf(layer->name, sizeof layer->name, "%s", syi_program_name(b->p, b->p->layer));
    layer->decoder = router->decoder;
    layer->type = router->type;
    layer->bias = r->bias < 0 ? -1 : (int64_t)b->p->tensor[r->bias].of;
    b->places[router->decoder] =
        (struct syi_places){groups->slots, groups->count * groups->tokens, groups->count};
}

/* Whether the tokens of all experts are in one buffer without gaps: it takes a place for each choice where
 * one with slots takes experts x capacity. Only where one rank has all experts, and no gradient is wanted. */
static int is_ragged(const struct syi_build *b, const struct syi_router *router, const struct syi_groups *g)
{
    const struct syi_config *c = b->config;
    return !b->training && c->mesh.expert == 1 && router->type != SYI_ROUTER_EXPERTS_CHOOSE_MASKED &&
           c->moe.num_selected_experts * g->tokens < c->moe.num_experts * g->capacity;
}

/* Dispatch, experts and combine. */
static int through_experts(struct syi_build *b, int tokens, const struct syi_routed *r,
                           const struct syi_router *router, const struct syi_groups *g)
{
    const struct syi_config *c = b->config;
    struct syi_ragged at = {r->routing.expert, r->routing.slot, -1};
    int64_t parts = c->moe.num_experts, slots = g->capacity;
    SYI_AT(b->p);
    if (is_ragged(b, router, g)) {
        at = syi_ragged_places(b->p, &r->routing, g->group_rows);
        parts = 1, slots = c->moe.num_selected_experts * g->tokens;
    }
    struct syi_filled filled = {r->routing.kept, at.first};
    int buffer = syi_dispatch(b->p, tokens, at.expert, at.slot, parts, slots, g->group_rows);
    int out = experts(b, buffer, &filled);
    SYI_AT(b->p);
    return syi_combine(b->p, out, at.expert, at.slot, r->gate, g->group_rows);
}

int syi_moe(struct syi_build *b, const char *name, int x, const struct syi_router *given)
{
    const struct syi_config *c = b->config;
    struct syi_program *p = b->p;
    struct syi_router router = *given;
    struct syi_groups g;
    struct sy_error err = {0};
    if (p->status || x < 0) return -1;
    int status = syi_groups(b, router.type, p->tensor[x].dim[0], p->tensor[x].dim[1], &g, &err);
    if (status) return syi_program_fail(p, status, "%s", err.text);
    syi_scope_push(p, "%s", name);
    SYI_AT(p);
    int tokens = g.by_tokens ? syi_regroup(p, x, g.rows, g.length, g.count) : x;
    if (g.by_tokens && router.mask >= 0) router.mask = syi_regroup(p, router.mask, g.rows, g.length, g.count);
    struct syi_routed r = syi_route_tokens(b, tokens, &router, &g);
    int y = through_experts(b, tokens, &r, &router, &g);
    if (g.by_tokens) y = syi_ungroup(p, y, g.rows, g.length, x);
    if (router.normalizer >= 0) report(b, &r, &router);
    note_layer(b, &r, &router, &g);
    if (c->moe.num_shared_experts)
        y = syi_map2(p, SY_MAP_ADD, y,
                     syi_mlp_of(b, "shared", x, c->moe.num_shared_experts * syi_expert_width(c)));
    syi_scope_pop(p);
    return y;
}
