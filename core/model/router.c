/* SPDX-License-Identifier: Apache-2.0 */
/* Routers: what is a group, how many places an expert has in it, which tokens get them, the weights of the
 * choices and the router's losses. Sources: flaxformer architectures/moe/{routing,moe_layers}.py; DeepSeek-V3
 * (arXiv 2412.19437) for the balancing bias. What padding does: base/compat.h. */
#include "config.h"

#include <math.h>

#include "model/model.h"

/* ---- groups ---- */

static int64_t common_divisor(int64_t a, int64_t b)
{
    while (b) {
        int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* The smallest x >= n for which `multiple` divides x * factor. */
static int64_t padded(int64_t n, int64_t factor, int64_t multiple)
{
    int64_t step = multiple / common_divisor(multiple, factor);
    return (n + step - 1) / step * step;
}

/* T5X's padding: rows or positions, whichever adds fewer tokens, until `multiple` divides the tokens. */
static void pad_tokens(int64_t multiple, struct syi_groups *g)
{
    int64_t rows = padded(g->rows, g->length, multiple), length = padded(g->length, g->rows, multiple);
    if ((rows - g->rows) * g->length < (length - g->length) * g->rows)
        g->rows = rows;
    else
        g->length = length;
}

/* The smallest divisor of n that is at least `least`, which is at most n. */
static int64_t divisor_from(int64_t n, int64_t least)
{
    int64_t best = n;
    for (int64_t d = 1; d * d <= n; d++) {
        if (n % d) continue;
        if (d >= least) return d < best ? d : best;
        if (n / d >= least) best = n / d;
    }
    return best;
}

/* The first number of groups from tokens / max_group_size on that divides the tokens and is a multiple. */
static void count_groups(const struct syi_config *c, struct syi_groups *g)
{
    int64_t multiple = c->moe.num_experts * c->moe.replicas;
    pad_tokens(multiple, g);
    int64_t tokens = g->rows * g->length, least = tokens / c->moe.max_group_size;
    g->count = multiple * divisor_from(tokens / multiple, (least + multiple - 1) / multiple);
    g->tokens = tokens / g->count;
    g->group_rows = 1;
}

/* Places from the factor and all tokens of a group; round half to even. */
static int64_t places(const struct syi_config *c, double factor, int64_t tokens)
{
    int64_t n = (int64_t)nearbyint(factor * (double)tokens / (double)c->moe.num_experts);
    return n < c->moe.min_expert_capacity ? c->moe.min_expert_capacity : n;
}

static int set_capacity(const struct syi_build *b, int type, struct syi_groups *g, struct sy_error *err)
{
    const struct syi_config *c = b->config;
    double factor = syi_capacity_factor(c, b->training);
    if (type == SYI_ROUTER_EXPERTS_CHOOSE_MASKED && factor == 0) factor = c->moe.train_capacity_factor;
    g->capacity = c->moe.expert_capacity ? c->moe.expert_capacity
                  : factor > 0           ? places(c, factor, g->tokens)
                                         : g->tokens;
    if (g->capacity == 0) return syi_config_no_places(c, b->training, g->tokens, err);
    uint64_t slots =
        syi_mul_u64(syi_mul_u64((uint64_t)g->capacity, (uint64_t)g->count), (uint64_t)c->moe.num_experts);
    if (slots > SYI_MAX_ELEMENTS)
        return syi_error(err, SY_EINVAL,
                         "%lld places of %lld experts in %lld groups are more than 2^46: lower "
                         "moe.min_expert_capacity, moe.num_experts, the capacity factor or the batch",
                         (long long)g->capacity, (long long)c->moe.num_experts, (long long)g->count);
    g->slots = (int64_t)slots;
    g->capacity_factor = syi_compat(c, c->moe.capacity_tokens) ? 0 : factor;
    if (g->capacity > g->tokens && (g->capacity_factor > 0 || type != SYI_ROUTER_EXPERTS_CHOOSE_MASKED))
        g->capacity = g->tokens; /* no more can come */
    return SY_OK;
}

/* A group lies within one part of the batch that is summed by itself, which no number of ranks cuts. */
static int check_rows(const struct syi_build *b, int64_t rows, int64_t group, struct sy_error *err)
{
    uint32_t leaves[SYI_AXIS_COUNT];
    syi_leaves(b->config, &b->shape, leaves);
    int64_t parts = leaves[SYI_AXIS_BATCH], part = rows / parts, nearest = group < part ? group : part;
    if (part % group == 0) return SY_OK;
    while (part % nearest) nearest--;
    while (parts > 1 && rows / parts % group) parts /= 2;
    return syi_error(
        err, SY_EINVAL,
        "moe.group_rows = %lld does not divide the %lld rows of each part that a batch is summed in: "
        "take %lld, or reproducible.blocks = %lld",
        (long long)group, (long long)part, (long long)nearest, (long long)parts);
}

int syi_groups(const struct syi_build *b, int type, int64_t rows, int64_t length, struct syi_groups *g,
               struct sy_error *err)
{
    const struct syi_config *c = b->config;
    int status;
    *g = (struct syi_groups){.rows = rows, .length = length, .by_tokens = syi_compat(c, c->moe.group_by)};
    if (g->by_tokens) {
        count_groups(c, g);
    } else {
        g->group_rows = syi_group_rows(c, &b->shape, b->training);
        if (type == SYI_ROUTER_EXPERTS_CHOOSE_MASKED && !b->training)
            g->group_rows = 1; /* an answer must not depend on its batch */
        status = check_rows(b, rows, g->group_rows, err);
        if (status) return status;
        g->count = rows / g->group_rows;
        g->tokens = g->group_rows * length;
    }
    status = set_capacity(b, type, g, err);
    if (status) return status;
    if (type == SYI_ROUTER_EXPERTS_CHOOSE_MASKED && g->capacity > g->tokens)
        return syi_error(
            err, SY_EINVAL,
            "experts choose %lld of the %lld tokens of a group: lower moe.train_capacity_factor, "
            "moe.eval_capacity_factor or moe.min_expert_capacity, or raise moe.max_group_size",
            (long long)g->capacity, (long long)g->tokens);
    return SY_OK;
}

/* ---- the router ---- */

/* How padding is treated, by the keys of base/compat.h. */
struct padding {
    int hidden; /* mask of tokens kept from experts, or -1 */
    int zeroed; /* mask that logits and probabilities are multiplied by: losses over all tokens; or -1 */
    int losses; /* mask of tokens the losses are averaged over, or -1: all */
};

static struct padding padding_of(const struct syi_build *b, const struct syi_router *router)
{
    const struct syi_config *c = b->config;
    struct padding p = {-1, -1, -1};
    int all = syi_compat(c, c->moe.router_loss_tokens),
        ignored = !syi_compat(c, c->moe.ignore_padding_tokens);
    if (!all && ignored) p.losses = router->mask; /* else over all that is routed */
    if (ignored) p.hidden = router->mask;
    if (ignored && all) p.zeroed = router->mask;
    return p;
}

static int logits(struct syi_build *b, int x)
{
    const struct syi_config *c = b->config;
    int64_t dim[2] = {c->model.d_model, c->moe.num_experts};
    uint8_t axis[2] = {SYI_AXIS_EMBED, SYI_AXIS_ROUTER};
    if (b->training && c->moe.jitter_noise > 0)
        x = syi_jitter(b->p, x, b->rng, b->sites++, c->moe.jitter_noise);
    int kernel = syi_build_param(b, "router/router_weights/w/kernel", 2, dim, axis, SYI_INIT_NORMAL, 0.02);
    int y = syi_matmul(b->p, x, kernel);
    if (!c->moe.router_use_bias) return y;
    /* moe.gin's bias_init: no expert is preferred at first */
    int bias =
        syi_build_param(b, "router/router_weights/w/bias", 1, dim + 1, axis + 1, SYI_INIT_NORMAL, 1e-6);
    return syi_map2(b->p, SY_MAP_ADD, y, bias);
}

/* Added to probabilities for the choice alone (moe.expert_bias), or -1. */
static int expert_bias(struct syi_build *b)
{
    const struct syi_config *c = b->config;
    uint8_t axis = SYI_AXIS_ROUTER;
    if (!c->moe.expert_bias) return -1;
    return syi_build_param(b, "router/expert_bias", 1, &c->moe.num_experts, &axis, SYI_INIT_EXPERT_BIAS, 0);
}

/* bias: syi_routed's. Routers of flaxformer but for the masked one hand padding, whose probabilities are 0, to the
 * first experts: so they do here where T5X's arithmetic is asked for, and not for the sake of an average. */
static struct syi_routing choose(struct syi_build *b, int probabilities, int bias,
                                 const struct syi_router *router, const struct padding *padding,
                                 const struct syi_groups *g)
{
    const struct syi_config *c = b->config;
    int quirk = c->run.compat == SYI_COMPAT_T5X && padding->zeroed >= 0 &&
                router->type != SYI_ROUTER_TOKENS_CHOOSE_MASKED;
    int mask = quirk ? -1 : padding->hidden;
    if (router->type == SYI_ROUTER_EXPERTS_CHOOSE_MASKED) {
        struct sy_attr_route_experts attr = {g->group_rows, g->capacity, g->capacity_factor,
                                             c->moe.min_expert_capacity};
        return syi_route_experts(b->p, probabilities, mask, &attr);
    }
    struct sy_attr_route attr = {
        c->moe.num_selected_experts, g->group_rows,      g->capacity, g->capacity_factor,
        c->moe.min_expert_capacity,  router->prioritized};
    return syi_route(b->p, probabilities, mask, bias, &attr);
}

/* Sum over groups / tokens: those of `normalizer`, or all. */
static int mean_over_tokens(struct syi_build *b, int per_group, int mask, int normalizer,
                            const struct syi_groups *g)
{
    const struct syi_config *c = b->config;
    int sum = syi_total(b->p, per_group);
    if (mask >= 0) return syi_map2(b->p, SY_MAP_DIV, sum, normalizer);
    double parts =
        syi_compat(c, c->train.microbatch_normalizer) || !b->training ? 1 : (double)c->train.microbatches;
    return syi_map1(b->p, SY_MAP_MULS, sum, 1 / ((double)(g->count * g->tokens) * parts));
}

static void losses(struct syi_build *b, int probabilities, int lse, const struct syi_router *router,
                   const struct padding *padding, const struct syi_groups *g, struct syi_routed *r)
{
    int z;
    SYI_AT(b->p);
    int balance =
        syi_router_loss(b->p, probabilities, lse, r->routing.chosen, padding->losses, g->group_rows, &z);
    r->z = mean_over_tokens(b, z, padding->losses, router->normalizer, g);
    r->balance = router->type == SYI_ROUTER_EXPERTS_CHOOSE_MASKED
                     ? syi_constant_like(b->p, 0, r->z) /* balanced by construction */
                     : mean_over_tokens(b, balance, padding->losses, router->normalizer, g);
}

struct syi_routed syi_route_tokens(struct syi_build *b, int x, const struct syi_router *router,
                                   const struct syi_groups *g)
{
    struct syi_program *p = b->p;
    struct padding padding = padding_of(b, router);
    struct syi_routed r = {.bias = -1, .balance = -1, .z = -1};
    struct sy_attr_gate gate = {b->config->moe.normalize_top_k};
    int lse;
    SYI_AT(p);
    int y = logits(b, syi_cast(p, x, SY_F32));
    if (padding.zeroed >= 0) y = syi_map2(p, SY_MAP_MUL, y, padding.zeroed);
    int probabilities = syi_softmax(p, y, &lse);
    if (padding.zeroed >= 0) probabilities = syi_map2(p, SY_MAP_MUL, probabilities, padding.zeroed);
    SYI_AT(p);
    if (router->type != SYI_ROUTER_EXPERTS_CHOOSE_MASKED) r.bias = expert_bias(b);
    r.routing = choose(b, probabilities, r.bias, router, &padding, g);
    r.gate = SYI_RECORD(p, SY_OP_GATE, &gate, probabilities, r.routing.expert, r.routing.slot);
    if (router->normalizer >= 0) losses(b, probabilities, lse, router, &padding, g, &r);
    return r;
}
