/* SPDX-License-Identifier: Apache-2.0 */
/* Self- and cross-attention with relative position bias, in training and, with a cache, in decoding. q, k, v
 * are one matmul with concatenated weights. No biases, no 1/sqrt(head_dim): it is in the query's initialiser
 * (flaxformer). */
#include "config.h"

#include <math.h>

#include "model/model.h"
#include "program/record.h"

static int64_t columns(const struct syi_build *b)
{
    return b->config->model.num_heads * b->config->model.head_dim;
}

static int projection(struct syi_build *b, const char *name, double factor)
{
    int64_t dim[2] = {b->config->model.d_model, columns(b)};
    uint8_t axis[2] = {SYI_AXIS_EMBED, SYI_AXIS_HEADS};
    return syi_build_param(b, name, 2, dim, axis, SYI_INIT_NORMAL,
                           factor * sqrt(syi_build_init_scale(b) / (double)dim[0]));
}

static int query(struct syi_build *b)
{
    return projection(b, "query/kernel", 1 / sqrt((double)b->config->model.head_dim));
}

static int output(struct syi_build *b, int x)
{
    int64_t dim[2] = {columns(b), b->config->model.d_model};
    uint8_t axis[2] = {SYI_AXIS_HEADS, SYI_AXIS_EMBED};
    double std = sqrt(syi_build_init_scale(b) / (double)dim[0]);
    SYI_AT(b->p);
    return syi_product(b, x, syi_build_param(b, "out/kernel", 2, dim, axis, SYI_INIT_NORMAL, std), NULL);
}

static int key_value(struct syi_build *b, int x)
{
    int parts[2] = {projection(b, "key/kernel", 1), projection(b, "value/kernel", 1)};
    SYI_AT(b->p);
    return syi_packed_product(b, x, 2, parts, NULL);
}

/* The table of the scope at hand: that of a stack, or of a layer with model.relpos_per_layer. */
int syi_relative_bias(struct syi_build *b)
{
    int64_t dim[2] = {b->config->model.num_heads, b->config->model.relpos_num_buckets};
    uint8_t axis[2] = {SYI_AXIS_HEADS, SYI_AXIS_BUCKETS};
    double width = sqrt(3 * syi_build_init_scale(b) / ((double)(dim[0] + dim[1]) / 2));
    return syi_build_param(b, "relpos_bias/rel_embedding", 2, dim, axis, SYI_INIT_UNIFORM, width);
}

static struct syi_attention common(struct syi_build *b)
{
    const struct syi_config *c = b->config;
    struct syi_attention a = SYI_NO_ATTENTION;
    a.rng = b->rng;
    a.heads = c->model.num_heads;
    a.head_dim = c->model.head_dim;
    a.max_distance = c->model.relpos_max_distance;
    a.uniform = syi_compat(c, c->model.masked_row);
    a.site = b->sites++;
    a.rate = b->training ? c->model.dropout_rate : 0;
    return a;
}

int syi_self_attention(struct syi_build *b, const char *name, int x, const struct syi_real *real, int bias,
                       int causal, const struct syi_cache *cache)
{
    struct syi_attention a = common(b);
    int lse;
    syi_scope_push(b->p, "%s", name);
    a.q_lengths = a.k_lengths = real->lengths;
    a.q_segments = a.k_segments = real->segments;
    a.bias = bias;
    a.causal = causal;
    a.bidirectional = !causal;
    if (cache) {
        SYI_AT(b->p);
        a.q = syi_as(b->p, syi_product(b, x, query(b), NULL), b->dtype);
        if (cache->rows >= 0)
            syi_store(b->p,
                      SYI_RECORD(b->p, SY_OP_CACHE_GATHER, NULL, cache->kv, cache->rows, cache->position),
                      cache->kv);
        a.kv = syi_cache_append(b->p, cache->kv, key_value(b, x), cache->position);
        a.position = cache->position;
        a.k_lengths = a.q_lengths = cache->lengths;
    } else {
        int parts[3] = {query(b), projection(b, "key/kernel", 1), projection(b, "value/kernel", 1)};
        SYI_AT(b->p);
        a.q = a.kv = syi_packed_product(b, x, 3, parts, NULL);
    }
    SYI_AT(b->p);
    int y = output(b, syi_attention(b->p, &a, &lse));
    syi_scope_pop(b->p);
    return y;
}

int syi_cross_kv(struct syi_build *b, const char *name, int encoded)
{
    syi_scope_push(b->p, "%s", name);
    int kv = key_value(b, encoded);
    syi_scope_pop(b->p);
    return kv;
}

int syi_cross_attention(struct syi_build *b, const char *name, int x, int kv, const struct syi_real *real,
                        const struct syi_real *encoded)
{
    struct syi_attention a = common(b);
    int lse;
    syi_scope_push(b->p, "%s", name);
    SYI_AT(b->p);
    int q = syi_as(b->p, syi_product(b, x, query(b), NULL), b->dtype),
        beams = b->decoding && b->shape.beams > 1;
    a.q = beams ? syi_regroup(b->p, q, b->shape.rows, 1, syi_input_rows(&b->shape)) : q;
    a.kv = kv;
    a.q_lengths = b->decoding ? -1 : real->lengths;
    a.q_segments = real->segments;
    a.k_lengths = encoded->lengths;
    a.k_segments = encoded->segments;
    int seen = syi_attention(b->p, &a, &lse);
    int y = output(b, beams ? syi_ungroup(b->p, seen, b->shape.rows, 1, q) : seen);
    syi_scope_pop(b->p);
    return y;
}
