/* SPDX-License-Identifier: Apache-2.0 */
/* What all layers share: leaves of the axes, products with weights, norm, dropout and the dense MLP. */
#include "config.h"

#include <math.h>

#include "model/model.h"
#include "program/record.h"

/* The largest power of two that divides extent, is at most `most`, and leaves at least `least` elements a
 * leaf, an index counting as `weight` elements. */
static uint32_t leaves(int64_t extent, int64_t weight, int64_t most, int64_t least)
{
    int64_t n = 1;
    while (n * 2 <= most && extent % (n * 2) == 0 && extent / (n * 2) * weight >= least) n *= 2;
    return (uint32_t)n;
}

/* What 0 stands for is settled by the rank at work (syi_rank_min_leaf); before there is one, no tiles are expected. */
static int64_t min_leaf(const struct syi_config *c)
{
    return c->reproducible.min_leaf ? c->reproducible.min_leaf : SYI_MIN_LEAF;
}

static uint32_t batch_leaves(const struct syi_config *c, const struct syi_shape *shape)
{
    return leaves(shape->rows, shape->shortest_length, c->reproducible.blocks, min_leaf(c));
}

/* Of the axis inside dense MLPs, that of shared experts among them: leaves of both. */
static uint32_t mlp_leaves(const struct syi_config *c)
{
    int64_t shared = c->moe.num_experts ? c->moe.num_shared_experts * syi_expert_width(c) : 0;
    uint32_t n = leaves(c->model.d_ff, 1, c->reproducible.blocks, min_leaf(c));
    while (shared % n) n /= 2;
    return n;
}

void syi_leaves(const struct syi_config *c, const struct syi_shape *shape, uint32_t count[SYI_AXIS_COUNT])
{
    int64_t most = c->reproducible.blocks, least = min_leaf(c);
    for (int i = 0; i < SYI_AXIS_COUNT; i++) count[i] = 1;
    count[SYI_AXIS_BATCH] = batch_leaves(c, shape);
    count[SYI_AXIS_GROUP] = count[SYI_AXIS_EXPERT_GROUP] = count[SYI_AXIS_BATCH];
    count[SYI_AXIS_HEADS] = leaves(c->model.num_heads, c->model.head_dim, most, least);
    count[SYI_AXIS_MLP] = mlp_leaves(c);
    count[SYI_AXIS_EXPERT_MLP] = leaves(syi_expert_width(c), 1, most, least);
    count[SYI_AXIS_VOCAB] = leaves(c->model.vocab_size, 1, most, least);
    count[SYI_AXIS_EMBED] = leaves(c->model.d_model, 1, most, least);
    count[SYI_AXIS_EXPERT] = c->moe.num_experts ? leaves(c->moe.num_experts, 1, most, 1) : 1;
}

int64_t syi_group_rows(const struct syi_config *c, const struct syi_shape *shape, int training)
{
    int64_t leaf = shape->rows / batch_leaves(c, shape), rows = 4096 / shape->longest_length;
    if (c->moe.expert_capacity) return 1;
    if (training && c->moe.group_rows) return c->moe.group_rows;
    if (rows > leaf) rows = leaf;
    while (rows > 1 && leaf % rows) rows--;
    return rows > 1 ? rows : 1;
}

double syi_build_init_scale(const struct syi_build *b)
{
    double scale = b->config->model.init_scale;
    return scale > 0 ? scale : b->config->moe.num_experts ? 0.1 : 1.0;
}

/* ---- products with weights ---- */

int syi_product_nt(struct syi_build *b, int x, int table)
{
    int copies = b->dtype == SY_BF16 && !b->training;
    int w = copies ? syi_weights_to_read(b, 1, &table, SYI_COPIED_PANELS_NT) : syi_weights(b, 1, &table);
    return syi_are_panels(b, w) ? syi_matmul_panels(b->p, x, w) : syi_matmul_nt(b->p, x, w);
}

static int int8_product(struct syi_build *b, int x, int w, const struct syi_filled *filled)
{
    int scales = syi_scales(b, w);
    x = syi_cast(b->p, x, SY_F32);
    if (!filled) return syi_matmul_int8(b->p, x, w, scales);
    return filled->first < 0 ? syi_grouped_matmul_int8(b->p, x, w, filled->counts, scales)
                             : syi_ragged_matmul_int8(b->p, x, w, filled->counts, filled->first, scales);
}

static int panels_product(struct syi_build *b, int x, int w, const struct syi_filled *filled)
{
    if (!filled) return syi_matmul_panels(b->p, x, w);
    return filled->first < 0 ? syi_grouped_matmul_panels(b->p, x, w, filled->counts)
                             : syi_ragged_matmul_panels(b->p, x, w, filled->counts, filled->first);
}

/* x times what syi_weights gave. */
static int product(struct syi_build *b, int x, int w, const struct syi_filled *filled)
{
    x = syi_cast(b->p, x, b->dtype);
    if (syi_are_panels(b, w)) return panels_product(b, x, w, filled);
    if (!filled) return syi_matmul(b->p, x, w);
    return filled->first < 0 ? syi_grouped_matmul(b->p, x, w, filled->counts)
                             : syi_ragged_matmul(b->p, x, w, filled->counts, filled->first);
}

int syi_product(struct syi_build *b, int x, int w, const struct syi_filled *filled)
{
    return syi_scales(b, w) < 0 ? product(b, x, syi_weights(b, 1, &w), filled)
                                : int8_product(b, x, w, filled);
}

/* From here on the weights of all experts are more than what goes through them: a batch of 4,096 tokens of
 * 512 numbers breaks even at 8. A number that depends on the model alone, since the sum of a joined gradient
 * has another order. */
enum { MANY_EXPERTS = 16 };

/* Whether x has fewer rows than the weights it is multiplied with. Asked where no gradient is wanted, so that the answer may
 * depend on the batch. */
static int has_few_rows(const struct syi_build *b, int x)
{
    const struct syi_tensor *t = &b->p->tensor[x];
    return !b->training && syi_tensor_count(t) < t->dim[t->rank - 1] * t->dim[t->rank - 1];
}

/* x times each of n weights, or, which gives 1, times all of them packed. 0 after an error. */
static int products(struct syi_build *b, int x, int n, const int *weights, const struct syi_filled *filled,
                    int *out)
{
    int many = filled && b->config->moe.num_experts >= MANY_EXPERTS;
    int copies = b->dtype == SY_BF16 && !b->training; /* packed once, not in every run */
    if (b->p->status || x < 0 || weights[0] < 0) return 0;
    int small = b->decoding || many || has_few_rows(b, x);
    int packed = syi_scales(b, weights[0]) < 0 && (copies || !small);
    if (packed) out[0] = syi_as(b->p, product(b, x, syi_weights(b, n, weights), filled), b->dtype);
    for (int i = 0; !packed && i < n; i++)
        out[i] = syi_as(b->p, syi_product(b, x, weights[i], filled), b->dtype);
    return packed ? 1 : n;
}

int syi_packed_product(struct syi_build *b, int x, int n, const int *weights, const struct syi_filled *filled)
{
    int part[3], made = products(b, x, n, weights, filled, part);
    return made == 0 ? -1 : made == 1 ? part[0] : syi_pack(b->p, n, part);
}

int syi_gated_product(struct syi_build *b, int x, const int *weights, const struct syi_filled *filled,
                      int activation)
{
    int part[2], made = products(b, x, 2, weights, filled, part);
    double rate = b->training ? b->config->model.dropout_rate : 0;
    if (made == 0) return -1;
    return syi_glu(b->p, part[0], made == 2 ? part[1] : -1, b->rng,
                   filled && filled->first < 0 ? filled->counts : -1, activation, b->sites++, rate);
}

/* ---- layers ---- */

int syi_norm(struct syi_build *b, const char *name, int x, int mask)
{
    int64_t dim[1] = {b->config->model.d_model};
    uint8_t axis[1] = {SYI_AXIS_EMBED};
    syi_scope_push(b->p, "%s", name);
    SYI_AT(b->p);
    int scale = syi_build_param(b, "scale", 1, dim, axis, SYI_INIT_ONES, 1);
    int y = syi_as(b->p, syi_rms_norm(b->p, x, scale, mask, b->config->model.layer_norm_epsilon), b->dtype);
    syi_scope_pop(b->p);
    return y;
}

int syi_dropped(struct syi_build *b, int x)
{
    if (!b->training || b->config->model.dropout_rate <= 0) return x;
    SYI_AT(b->p);
    return syi_dropout(b->p, x, b->rng, b->sites++, b->config->model.dropout_rate);
}

struct syi_activations syi_activations(int mlp)
{
    static const struct syi_activations of[] = {[SYI_MLP_GELU_LINEAR] = {1, SY_GELU},
                                                [SYI_MLP_RELU_LINEAR] = {1, SY_RELU},
                                                [SYI_MLP_SILU_LINEAR] = {1, SY_SILU},
                                                [SYI_MLP_GELU] = {0, SY_GELU},
                                                [SYI_MLP_RELU] = {0, SY_RELU}};
    return of[mlp];
}

/* Gated (wi_0, wi_1) or plain (wi) by model.mlp_activations; dropout inside, as flaxformer's MlpBlock. */
int syi_mlp_of(struct syi_build *b, const char *name, int x, int64_t width)
{
    const struct syi_config *c = b->config;
    int64_t in[2] = {c->model.d_model, width}, out[2] = {width, c->model.d_model};
    uint8_t in_axis[2] = {SYI_AXIS_EMBED, SYI_AXIS_MLP}, out_axis[2] = {SYI_AXIS_MLP, SYI_AXIS_EMBED};
    double scale = syi_build_init_scale(b);
    double in_std = sqrt(scale / (double)in[0]) / 0.87962566,
           out_std = sqrt(scale / (double)out[0]) / 0.87962566;
    struct syi_activations act = syi_activations((int)c->model.mlp_activations);
    int h;
    syi_scope_push(b->p, "%s", name);
    SYI_AT(b->p);
    if (act.gated) {
        int parts[2] = {syi_build_param(b, "wi_0/kernel", 2, in, in_axis, SYI_INIT_TRUNCATED_NORMAL, in_std),
                        syi_build_param(b, "wi_1/kernel", 2, in, in_axis, SYI_INIT_TRUNCATED_NORMAL, in_std)};
        h = syi_gated_product(b, x, parts, NULL, act.activation);
    } else {
        int wi = syi_build_param(b, "wi/kernel", 2, in, in_axis, SYI_INIT_TRUNCATED_NORMAL, in_std);
        int y = syi_as(b->p, syi_product(b, x, wi, NULL), b->dtype);
        h = syi_dropped(b, syi_activation(b->p, y, (enum sy_activation)act.activation));
    }
    SYI_AT(b->p);
    int wo = syi_build_param(b, "wo/kernel", 2, out, out_axis, SYI_INIT_TRUNCATED_NORMAL, out_std);
    int y = syi_product(b, h, wo, NULL);
    syi_scope_pop(b->p);
    return y;
}

int syi_mlp(struct syi_build *b, const char *name, int x)
{
    return syi_mlp_of(b, name, x, b->config->model.d_ff);
}
