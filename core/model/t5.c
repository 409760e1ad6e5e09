/* SPDX-License-Identifier: Apache-2.0 */
/* The two stacks of T5: pre-norm blocks with residuals, dropout where flaxformer has it, experts in the
 * layers the layout names. Residual streams are not masked; normed inputs are, by the lengths. */
#include "config.h"

#include <math.h>

#include "model/model.h"
#include "program/record.h"

static int embedding_table(struct syi_build *b)
{
    int64_t dim[2] = {b->config->model.vocab_size, b->config->model.d_model};
    uint8_t axis[2] = {SYI_AXIS_VOCAB,
                       SYI_AXIS_EMBED}; /* shared by both stacks, so it has no stack in its name */
    uint32_t scope = b->p->layer;
    b->p->layer = 0;
    int table = syi_build_param(b, "token_embedder/embedding", 2, dim, axis, SYI_INIT_NORMAL, 1);
    b->p->layer = scope;
    return table;
}

static int embed(struct syi_build *b, int ids)
{
    SYI_AT(b->p);
    int table = embedding_table(b), scales = syi_scales(b, table);
    if (scales >= 0) return syi_embed_int8(b->p, ids, table, scales);
    return syi_dropped(b, SYI_RECORD(b->p, SY_OP_EMBED, NULL, ids, table));
}

/* x + dropout(y) */
static int residual(struct syi_build *b, int x, int y)
{
    y = syi_dropped(b, y);
    SYI_AT(b->p);
    return syi_map2(b->p, SY_MAP_ADD, x, y);
}

/* The MLP of a layer: dense, or with `router` that of the experts and, in ST-MoE, a dense one after it. */
static int feed_forward(struct syi_build *b, int x, int mask, const struct syi_router *router)
{
    int h = syi_norm(b, "pre_mlp_layer_norm", x, mask);
    x = residual(b, x, router ? syi_moe(b, "mlp", h, router) : syi_mlp(b, "mlp", h));
    if (!router || !b->config->moe.extra_mlp) return x;
    h = syi_norm(b, "pre_extra_mlp_layer_norm", x, mask);
    return residual(b, x, syi_mlp(b, "extra_mlp", h));
}

static struct syi_router encoder_router(const struct syi_build *b, const struct syi_inputs *in)
{
    return (struct syi_router){.type = syi_router_type(b->config, 0),
                               .prioritized = b->config->moe.encoder_batch_prioritized_routing,
                               .mask = in->encoder.mask,
                               .normalizer = in->input_norm};
}

static struct syi_router decoder_router(const struct syi_build *b, const struct syi_inputs *in)
{
    return (struct syi_router){.type = syi_router_type(b->config, 1),
                               .decoder = 1,
                               .layer = (uint32_t)syi_sparse_layers(b->config, 0),
                               .prioritized = b->config->moe.decoder_batch_prioritized_routing,
                               .mask = in->decoder.mask,
                               .normalizer = in->target_norm};
}

/* The relative position bias of a stack; -1: each layer has its own. */
static int stack_bias(struct syi_build *b)
{
    return b->config->model.relpos_per_layer ? -1 : syi_relative_bias(b);
}

int syi_encoder(struct syi_build *b, const struct syi_inputs *in)
{
    struct syi_router router = encoder_router(b, in);
    const struct syi_real *real = &in->encoder;
    const struct syi_config *c = b->config;
    int layers = (int)c->model.num_encoder_layers;
    syi_scope_push(b->p, "encoder");
    int x = embed(b, in->encoder_ids), stack = stack_bias(b);
    for (int i = 0; i < layers; i++) {
        int sparse = syi_is_sparse_layer(c, 0, i);
        syi_scope_push(b->p, "layers_%d", i);
        int h = syi_norm(b, "pre_attention_layer_norm", x, real->mask);
        int bias = c->model.relpos_per_layer ? syi_relative_bias(b) : stack;
        x = residual(b, x, syi_self_attention(b, "attention", h, real, bias, 0, NULL));
        x = feed_forward(b, x, real->mask, sparse ? &router : NULL);
        if (sparse) router.layer++;
        syi_scope_pop(b->p);
    }
    x = syi_dropped(b, syi_norm(b, "encoder_norm", x, real->mask));
    syi_scope_pop(b->p);
    return x;
}

static int scales_outputs(const struct syi_config *c)
{
    int key = c->model.scale_decoder_outputs;
    return key == SYI_SCALE_OUTPUTS_AUTO ? c->model.logits_via_embedding : key == SYI_SCALE_OUTPUTS_TRUE;
}

static int logits(struct syi_build *b, int x)
{
    const struct syi_config *c = b->config;
    int64_t dim[2] = {c->model.d_model, c->model.vocab_size};
    uint8_t axis[2] = {SYI_AXIS_EMBED, SYI_AXIS_VOCAB};
    SYI_AT(b->p);
    if (scales_outputs(c)) x = syi_map1(b->p, SY_MAP_MULS, x, 1 / sqrt((double)dim[0]));
    if (c->model.logits_via_embedding) {
        int table = embedding_table(b), scales = syi_scales(b, table);
        if (scales >= 0) return syi_matmul_nt_int8(b->p, syi_cast(b->p, x, SY_F32), table, scales);
        return syi_product_nt(b, x, table);
    }
    double std = sqrt(syi_build_init_scale(b) / (double)dim[0]) / 0.87962566;
    int kernel = syi_build_param(b, "logits_dense/kernel", 2, dim, axis, SYI_INIT_TRUNCATED_NORMAL, std);
    return syi_product(b, x, kernel, NULL);
}

/* Carry tensors of a decode: they belong to one input length, so buckets do not mix. */
static int cross_cache(struct syi_build *b, int layer)
{
    char name[80];
    const struct syi_config *c = b->config;
    int64_t dim[3] = {b->decoding ? syi_input_rows(&b->shape) : b->shape.rows, b->shape.input_length,
                      2 * c->model.num_heads * c->model.head_dim};
    uint8_t axis[3] = {SYI_AXIS_BATCH, SYI_AXIS_LENGTH, SYI_AXIS_HEADS};
    snprintf(name, sizeof name, "decode/cross/%lld/%d", (long long)b->shape.input_length, layer);
    return syi_tensor_add(b->p, name, SYI_CARRY, b->dtype, 3, dim, axis);
}

static struct syi_cache self_cache(struct syi_build *b, int layer, const struct syi_inputs *in)
{
    char name[80];
    const struct syi_config *c = b->config;
    int64_t dim[3] = {b->shape.rows, b->shape.target_length, 2 * c->model.num_heads * c->model.head_dim};
    uint8_t axis[3] = {SYI_AXIS_BATCH, SYI_AXIS_LENGTH, SYI_AXIS_HEADS};
    snprintf(name, sizeof name, "decode/self/%d", layer);
    return (struct syi_cache){syi_tensor_add(b->p, name, SYI_CARRY, b->dtype, 3, dim, axis), in->rows,
                              in->position, in->decoder.lengths};
}

int syi_decoder_logits(struct syi_build *b, int ids, int encoded, const struct syi_inputs *in)
{
    const struct syi_config *c = b->config;
    int layers = (int)c->model.num_decoder_layers;
    struct syi_router router = decoder_router(b, in);
    const struct syi_real *real = &in->decoder;
    syi_scope_push(b->p, "decoder");
    int x = embed(b, ids), stack = stack_bias(b);
    for (int i = 0; i < layers; i++) {
        int sparse = syi_is_sparse_layer(c, 1, i);
        struct syi_cache cache = {-1, -1, -1, -1};
        if (b->decoding) cache = self_cache(b, i, in);
        syi_scope_push(b->p, "layers_%d", i);
        int h = syi_norm(b, "pre_self_attention_layer_norm", x, real->mask);
        int bias = c->model.relpos_per_layer ? syi_relative_bias(b) : stack;
        x = residual(b, x,
                     syi_self_attention(b, "self_attention", h, real, bias, 1, b->decoding ? &cache : NULL));
        h = syi_norm(b, "pre_cross_attention_layer_norm", x, real->mask);
        int kv = b->decoding ? cross_cache(b, i) : syi_cross_kv(b, "encoder_decoder_attention", encoded);
        x = residual(b, x, syi_cross_attention(b, "encoder_decoder_attention", h, kv, real, &in->encoder));
        x = feed_forward(b, x, real->mask, sparse ? &router : NULL);
        if (sparse) router.layer++;
        syi_scope_pop(b->p);
    }
    x = syi_dropped(b, syi_norm(b, "decoder_norm", x, real->mask));
    int y = logits(b, x);
    syi_scope_pop(b->p);
    return y;
}

void syi_encode_for_decoding(struct syi_build *b, int encoded)
{
    syi_scope_push(b->p, "decoder");
    for (int i = 0; i < b->config->model.num_decoder_layers; i++) {
        syi_scope_push(b->p, "layers_%d", i);
        int kv = syi_cross_kv(b, "encoder_decoder_attention", encoded);
        SYI_AT(b->p);
        syi_store(b->p, kv, cross_cache(b, i));
        syi_scope_pop(b->p);
    }
    syi_scope_pop(b->p);
}
