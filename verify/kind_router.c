/* SPDX-License-Identifier: Apache-2.0 */
/* Cases of kind router: the model's router on given groups, with a capacity that is given too. The reference
 * shows its choices as dense arrays; those are built here from what the router hands on. */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/model.h"
#include "verify/verify.h"

enum { LARGEST = 1 << 20 }; /* of a dim */

struct router {
    struct syi_config config;
    struct syi_build build;
    struct syi_model model;
    struct syi_router how;
    struct syi_groups groups;
    int64_t experts, choices; /* choices: of a token */
    int prioritized;
    int scatter;      /* the case shows indices and weights of choices, not dense arrays */
    float *mask;      /* [groups, tokens] 0 where a token is all zero */
    float *cotangent; /* [groups, tokens, choices], of the gates */
    struct syi_routed routed;
};

static int64_t n_tokens(const struct router *r)
{
    return r->groups.count * r->groups.tokens;
}

/* ---- what the case says ---- */

static int read_config(const struct verify_case *c, struct router *r, struct sy_error *err)
{
    struct syi_config *config = &r->config;
    struct syi_groups *g = &r->groups;
    int status = verify_config(c, "", config, err);
    if (!status) status = verify_only(c, "dtype", "float32", err);
    if (!status) status = verify_only(c, "jitter_noise", "0", err);
    if (!status) status = verify_flag(c, "batch_prioritized_routing", &r->prioritized, err);
    if (!status) status = verify_int(c, "num_groups", 1, LARGEST, &g->count, err);
    if (!status) status = verify_int(c, "tokens_per_group", 1, LARGEST, &g->tokens, err);
    if (!status) status = verify_int(c, "expert_capacity", 1, LARGEST, &g->capacity, err);
    if (!status) status = verify_int(c, "hidden_dim", 1, LARGEST, &config->model.d_model, err);
    if (status) return status;
    r->experts = config->moe.num_experts;
    int by_experts = config->moe.router_type == SYI_ROUTER_EXPERTS_CHOOSE_MASKED;
    r->choices = by_experts ? r->experts : config->moe.num_selected_experts;
    r->scatter = config->moe.router_type == SYI_ROUTER_TOKENS_CHOOSE_SCATTER;
    if (r->experts < 1 || r->choices > r->experts)
        return syi_error(err, SY_EFORMAT, "%lld experts, of which a token has %lld", (long long)r->experts,
                         (long long)r->choices);
    if (by_experts && g->capacity > g->tokens)
        return syi_error(err, SY_EFORMAT, "experts choose %lld of %lld tokens", (long long)g->capacity,
                         (long long)g->tokens);
    g->rows = g->count;
    g->length = g->tokens;
    g->group_rows = 1;
    g->by_tokens = 1;
    g->slots = g->count * g->capacity * r->experts;
    return SY_OK;
}

/* Padding is known by its zeros, as the reference does it. */
static int find_padding(const struct verify_case *c, struct router *r, struct sy_error *err)
{
    const struct verify_tensor *x;
    int64_t width = r->config.model.d_model, dim[3] = {r->groups.count, r->groups.tokens, width};
    int status = verify_need(c, "in/token_inputs", 'f', 3, dim, &x, err);
    if (status) return status;
    r->mask = syi_alloc((size_t)n_tokens(r) * sizeof *r->mask, err);
    r->cotangent = syi_alloc((size_t)n_tokens(r) * (size_t)r->choices * sizeof *r->cotangent, err);
    if (!r->mask || !r->cotangent) return SY_ENOMEM;
    for (int64_t i = 0; i < n_tokens(r); i++)
        for (int64_t j = 0; j < width; j++)
            if (x->real[i * width + j] != 0) r->mask[i] = 1;
    return SY_OK;
}

/* ---- recording ---- */

/* Logits and probabilities before any mask; the router itself keeps them to itself. */
static void record_unmasked(struct verify_run *run, int x, int kernel, int bias)
{
    int lse, logits = syi_matmul(run->p, x, kernel);
    if (bias >= 0) logits = syi_map2(run->p, SY_MAP_ADD, logits, bias);
    verify_out(run, logits, "out/router_logits");
    verify_out(run, syi_softmax(run->p, logits, &lse), "out/router_probs");
}

static void record(struct verify_run *run, struct router *r)
{
    struct syi_program *p = run->p;
    const char *kernel_name = "router/router_weights/w/kernel", *bias_name = "router/router_weights/w/bias";
    verify_extent(run, 'b', r->groups.count);
    verify_extent(run, 't', r->groups.tokens);
    verify_extent(run, 'd', r->config.model.d_model);
    verify_extent(run, 'e', r->experts);
    verify_extent(run, 'k', r->choices);
    verify_extent(run, 'o', 1);
    static const float one = 1;
    int x = verify_in(run, "in/token_inputs", "btd"), bias = -1;
    int kernel = verify_in_as(run, kernel_name, "param/router_weights/w/kernel", "de");
    if (r->config.moe.router_use_bias)
        bias = verify_in_as(run, bias_name, "param/router_weights/w/bias", "e");
    int cotangent = verify_given(run, "cotangent", SY_F32, "btk", r->cotangent);
    r->how = (struct syi_router){.type = r->config.moe.router_type,
                                 .prioritized = r->prioritized,
                                 .mask = verify_given(run, "mask", SY_F32, "bt", r->mask),
                                 .normalizer = verify_given(run, "normalizer", SY_F32, "o", &one)};
    if (p->status) return;
    r->build = (struct syi_build){.p = p, .config = &r->config, .model = &r->model, .rng = -1};
    r->routed = syi_route_tokens(&r->build, x, &r->how, &r->groups);
    if (p->status) return;
    int value = syi_total(p, syi_map2(p, SY_MAP_MUL, r->routed.gate, cotangent));
    value = syi_map2(p, SY_MAP_ADD, value, syi_map2(p, SY_MAP_ADD, r->routed.balance, r->routed.z));
    verify_differentiate(run, value);
    verify_out(run, value, "out/value");
    verify_out(run, r->routed.balance, "out/auxiliary_loss");
    verify_out(run, r->routed.z, "out/router_z_loss");
    record_unmasked(run, x, kernel, bias);
    verify_out(run, r->routed.gate, "gate");
    verify_out(run, r->routed.routing.expert, "expert");
    verify_out(run, r->routed.routing.slot, "slot");
}

/* ---- dense arrays [groups, tokens, experts, capacity] ---- */

/* Place of choice i (a token's k-th) in a dense array, -1 when it has no slot. */
static int64_t place(const struct router *r, const int32_t *expert, const int32_t *slot, int64_t i)
{
    int64_t capacity = r->groups.capacity;
    if (expert[i] < 0 || expert[i] >= r->experts || slot[i] < 0 || slot[i] >= capacity) return -1;
    return ((i / r->choices) * r->experts + expert[i]) * capacity + slot[i];
}

/* The cotangent of each gate, once it is known where the choice went. */
static int set_cotangent(const struct verify_case *c, struct verify_run *run, struct router *r,
                         struct sy_error *err)
{
    const struct verify_tensor *t;
    int64_t n = n_tokens(r) * r->choices, count = r->groups.count, tokens = r->groups.tokens;
    int64_t dense[4] = {count, tokens, r->experts, r->groups.capacity},
            sparse[3] = {count, tokens, r->choices};
    const int32_t *expert = verify_got(run, "expert", NULL), *slot = verify_got(run, "slot", NULL);
    int status = r->scatter ? verify_need(c, "in/combine_cotangent", 'f', 3, sparse, &t, err)
                            : verify_need(c, "in/combine_cotangent", 'f', 4, dense, &t, err);
    for (int64_t i = 0; !status && i < n; i++) {
        int64_t at = r->scatter ? i : place(r, expert, slot, i);
        r->cotangent[i] = at < 0 ? 0 : t->real[at];
    }
    return status;
}

static int report_dense(const struct verify_run *run, const struct router *r, struct verify_report *report,
                        struct sy_error *err)
{
    const int32_t *expert = verify_got(run, "expert", NULL), *slot = verify_got(run, "slot", NULL);
    const float *gate = verify_got(run, "gate", NULL);
    int64_t n = n_tokens(r) * r->experts * r->groups.capacity;
    float *combine = syi_alloc((size_t)n * sizeof *combine, err);
    int32_t *dispatch = syi_alloc((size_t)n * sizeof *dispatch, err);
    for (int64_t i = 0; combine && dispatch && i < n_tokens(r) * r->choices; i++) {
        int64_t at = place(r, expert, slot, i);
        if (at < 0) continue;
        combine[at] = gate[i];
        dispatch[at] = 1;
    }
    if (combine && dispatch) {
        verify_floats(report, "out/combine_array", combine, n);
        verify_integers(report, "out/dispatch_mask", dispatch, n);
    }
    int status = combine && dispatch ? SY_OK : SY_ENOMEM;
    syi_free(combine);
    syi_free(dispatch);
    return status;
}

/* Expert and slot of each choice; the reference's slot of a dropped choice is any at or over the capacity. */
static int report_indices(const struct verify_case *c, const struct verify_run *run, const struct router *r,
                          struct verify_report *report, struct sy_error *err)
{
    char reason[160] = "";
    const struct verify_tensor *want;
    const int32_t *expert = verify_got(run, "expert", NULL), *slot = verify_got(run, "slot", NULL);
    int64_t n = n_tokens(r) * r->choices, wrong = 0;
    int64_t dim[4] = {r->groups.count, r->groups.tokens, r->choices, 2};
    int status = verify_need(c, "out/dispatch_indices", 'i', 4, dim, &want, err);
    if (status) return status;
    for (int64_t i = 0; i < n; i++) {
        int32_t e = want->integer[2 * i], s = want->integer[2 * i + 1];
        if (s >= r->groups.capacity) s = -1;
        if (expert[i] == e && slot[i] == s) continue;
        if (!wrong++)
            snprintf(reason, sizeof reason, "choice %lld is expert %d slot %d, expected %d and %d",
                     (long long)i, (int)expert[i], (int)slot[i], (int)e, (int)s);
    }
    verify_judge(report, "out/dispatch_indices", (double)wrong, wrong ? reason : NULL);
    int64_t gates = 0;
    const float *gate = verify_got(run, "gate", &gates);
    verify_floats(report, "out/combine_weights", gate, gates);
    return SY_OK;
}

/* ---- all ---- */

static int compute(struct verify_run *run, const struct verify_case *c, struct router *r,
                   struct verify_report *report, struct sy_error *err)
{
    record(run, r);
    int status = verify_run_execute(run, err); /* where choices go */
    if (!status) status = set_cotangent(c, run, r, err);
    if (!status) status = verify_run_again(run, err);
    if (status) return status;
    verify_run_report(run, report);
    return r->scatter ? report_indices(c, run, r, report, err) : report_dense(run, r, report, err);
}

int verify_router(struct verify_context *context, const struct verify_case *c, struct verify_report *report,
                  struct sy_error *err)
{
    struct verify_run run;
    struct router *r = syi_alloc(sizeof *r, err);
    if (!r) return SY_ENOMEM;
    int status = read_config(c, r, err);
    if (!status) status = find_padding(c, r, err);
    if (!status) status = verify_run_begin(&run, context, c, err);
    if (!status) {
        status = compute(&run, c, r, report, err);
        verify_run_end(&run);
    }
    syi_model_free(&r->model);
    syi_free(r->mask);
    syi_free(r->cotangent);
    syi_free(r);
    return status;
}
