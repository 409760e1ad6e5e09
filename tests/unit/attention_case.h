/* SPDX-License-Identifier: Apache-2.0 */
/* Attention calls for the tests of attention: random operands of a shape, the gradient call that belongs to a
 * forward call, the comparison of all variants, scores written down plainly. */
#ifndef ATTENTION_CASE_H
#define ATTENTION_CASE_H

#include "base/relpos.h"
#include "kernel_harness.h"

struct shape {
    int self, rows, queries, keys, heads, head_dim;
    int blocks; /* of a pack */
    int causal, buckets, dropout, position;
    int no_lengths; /* both are absent */
    int segments;   /* 1: of queries and keys, 2: of keys alone */
    int mask, dense, uniform;
};

/* The first fields in order; the others are 0. */
#define SHAPE(a, b, c, d, e, f, g, h, i, j, k)                                                               \
    {                                                                                                        \
        .self = a, .rows = b, .queries = c, .keys = d, .heads = e, .head_dim = f, .blocks = g, .causal = h,  \
        .buckets = i, .dropout = j, .position = k                                                            \
    }

/* Inputs of the forward call; the gradient has out, lse and dout in place of the position. */
enum {
    IN_Q,
    IN_KV,
    IN_Q_LENGTH,
    IN_KV_LENGTH,
    IN_TABLE,
    IN_RNG,
    IN_POSITION,
    IN_Q_SEGMENT,
    IN_KV_SEGMENT,
    IN_MASK,
    IN_DENSE,
    IN_OUT = 6,
    IN_LSE,
    IN_DOUT
};

static inline struct sy_attr_attention attr_of(const struct shape *s)
{
    struct sy_attr_attention attr = {.head_dim = s->head_dim,
                                     .width = s->heads * s->head_dim / s->blocks,
                                     .bidirectional = !s->causal,
                                     .causal = s->causal,
                                     .max_distance = 20,
                                     .site = 7,
                                     .rate = s->dropout ? 0.3 : 0,
                                     .uniform = s->uniform,
                                     .leaf = s->rows % 4 ? s->rows : s->rows / 4};
    return attr;
}

/* ---- operands ---- */

/* Lengths 0, 1, all and others. */
static inline void fill_lengths(int32_t *length, const struct sy_tensor *pack, const int32_t *same)
{
    for (int64_t row = 0; row < pack->dim[0]; row++) {
        int32_t all = (int32_t)pack->dim[1], some = (int32_t)(kh_random() % (uint32_t)(all + 1));
        length[row] = row % 5 == 0 ? all : row % 5 == 1 ? 1 : row % 5 == 2 ? 0 : some;
        if (same) length[row] = same[row];
    }
}

/* The elements past the lengths become NaN, which would show if they were read. */
static inline void spoil_padding(const struct sy_tensor *pack, const int32_t *length)
{
    int64_t row_size = pack->dim[1] * pack->dim[2];
    for (int64_t row = 0; row < pack->dim[0]; row++)
        for (int64_t i = length[row] * pack->dim[2]; i < row_size; i++)
            ((float *)pack->data)[row * row_size + i] = NAN;
}

/* 1 1 1 2 2 3 0 0, 1 2 2 2 2 2 3 3 ..., nothing but 0 in some rows. */
static inline void fill_segments(int32_t *segment, int rows, int positions)
{
    for (int row = 0; row < rows; row++) {
        int end[3];
        for (int i = 0; i < 3; i++) end[i] = (int)(kh_random() % (uint32_t)(positions + 1));
        for (int t = 0; t < positions; t++) {
            int passed = (t >= end[0]) + (t >= end[1]) + (t >= end[2]);
            segment[row * positions + t] = passed == 3 || row % 5 == 2 ? 0 : passed + 1;
        }
    }
}

static inline void add_lengths(struct kh *k, const struct shape *s)
{
    if (s->no_lengths) {
        kh_in_absent(k);
        kh_in_absent(k);
        return;
    }
    int32_t *q_length = kh_in(k, SY_I32, 1, s->rows), *kv_length = kh_in(k, SY_I32, 1, s->rows);
    fill_lengths(q_length, &k->in[IN_Q], NULL);
    fill_lengths(kv_length, &k->in[IN_KV], s->self ? q_length : NULL);
    if (s->uniform) return; /* a query without keys reads them all */
    spoil_padding(&k->in[IN_Q], q_length);
    spoil_padding(&k->in[IN_KV], kv_length);
}

static inline void add_general(struct kh *k, const struct shape *s)
{
    int32_t *q_segment = NULL;
    if (s->segments == 1)
        fill_segments(q_segment = kh_in(k, SY_I32, 2, s->rows, s->queries), s->rows, s->queries);
    else
        kh_in_absent(k);
    if (s->segments) {
        int32_t *segment = kh_in(k, SY_I32, 2, s->rows, s->keys);
        fill_segments(segment, s->rows, s->keys);
        if (s->self && q_segment) memcpy(segment, q_segment, kh_bytes(&k->in[IN_Q_SEGMENT]));
    } else {
        kh_in_absent(k);
    }
    if (s->mask) {
        float *mask = kh_in(k, SY_F32, 3, s->rows, s->queries, s->keys);
        for (int i = 0; i < s->rows * s->queries * s->keys; i++)
            mask[i] = kh_random() % 3 && i / s->keys % 4 != 1; /* a quarter of the queries sees nothing */
    } else {
        kh_in_absent(k);
    }
    if (s->dense)
        kh_in(k, SY_F32, 3, s->heads, s->queries, s->keys);
    else
        kh_in_absent(k);
}

static inline void add_operands(struct kh *k, const struct shape *s)
{
    int columns = s->heads * s->head_dim;
    kh_in(k, SY_F32, 3, s->rows, s->queries, columns * (s->self ? 3 : 1));
    kh_in(k, SY_F32, 3, s->rows, s->keys, columns * (s->self ? 3 : 2));
    for (int i = 0; i < 2; i++)
        for (int64_t j = 0; j < sycpu_count(&k->in[i]); j++)
            ((float *)k->in[i].data)[j] *= 3.0f / (float)s->head_dim; /* scores of a size that matters */
    if (s->self) memcpy(k->in[IN_KV].data, k->in[IN_Q].data, kh_bytes(&k->in[IN_Q]));
    add_lengths(k, s);
    if (s->buckets)
        kh_in(k, SY_F32, 2, s->heads, s->buckets);
    else
        kh_in_absent(k);
    int64_t *rng = kh_in(k, SY_I64, 1, 4);
    rng[SY_RNG_SEED] = 5;
    rng[SY_RNG_STEP] = 11;
    rng[SY_RNG_ROW0] = 1000;
    if (s->position)
        *(int32_t *)kh_in(k, SY_I32, 1, 1) = s->position;
    else
        kh_in_absent(k);
    add_general(k, s);
}

static inline void add_forward(struct kh *k, const struct shape *s, const struct sy_attr_attention *attr,
                               int wild)
{
    kh_begin(k, SY_OP_ATTENTION, attr, sizeof *attr);
    k->wild = wild;
    add_operands(k, s);
    kh_out(k, SY_F32, 3, s->rows, s->queries, s->heads * s->head_dim);
    kh_out(k, SY_F32, 3, s->rows, s->heads, s->queries);
    k->out[0].first[0] = 3; /* global places move the dropout mask */
    k->out[0].first[2] = 2 * s->head_dim;
}

static inline void copy_in(struct kh *k, const struct sy_tensor *t, const void *data)
{
    struct sy_tensor *in = &k->in[k->n_in++];
    *in = *t;
    in->data = NULL;
    if (!t->rank) return;
    in->data = malloc(kh_bytes(t) + 1);
    cr_assert_not_null(in->data);
    memcpy(in->data, data, kh_bytes(t));
}

static inline void add_like(struct kh *k, const struct sy_tensor *t)
{
    k->out[k->n_out] = *t;
    k->out[k->n_out++].data = NULL;
}

/* Operands of the gradient, from a forward call that has run. */
static inline void add_backward(struct kh *k, const struct kh *forward, int self)
{
    static const struct sy_tensor none = {.dim = {1, 1, 1, 1, 1}};
    const struct sy_attr_attention *attr = forward->attr;
    kh_begin(k, SY_OP_ATTENTION_GRAD, forward->attr, forward->attr_bytes);
    for (int i = 0; i < IN_POSITION; i++) copy_in(k, &forward->in[i], forward->in[i].data);
    for (int i = 0; i < 2; i++) copy_in(k, &forward->out[i], forward->want[i]);
    const struct sy_tensor *out = &forward->out[0];
    kh_in(k, SY_F32, 3, (int)out->dim[0], (int)out->dim[1], (int)out->dim[2]);
    if (forward->in[IN_Q_LENGTH].rank && !attr->uniform) /* what comes back to padding is not read */
        spoil_padding(&k->in[IN_DOUT], k->in[IN_Q_LENGTH].data);
    for (int i = IN_Q_SEGMENT; i <= IN_DENSE; i++) copy_in(k, &forward->in[i], forward->in[i].data);
    add_like(k, &forward->in[IN_Q]);
    add_like(k, self ? &none : &forward->in[IN_KV]);
    add_like(k, forward->in[IN_TABLE].rank ? &forward->in[IN_TABLE] : &none);
    add_like(k, forward->in[IN_DENSE].rank ? &forward->in[IN_DENSE] : &none);
}

/* ---- comparing ---- */

/* kh_check without devices. */
static inline void check(struct kh *k, const char *what)
{
    const struct sy_kernel *kernel;
    kh_reference(k, what);
    for (uint64_t at = 0; (kernel = kh_next(k->op, SY_F32, SY_F32, kh_features(), &at));)
        for (int threads = 1; threads <= 3; threads += 2) kh_compare(k, kernel, threads, what);
}

/* The CUDA backend, emulated, alone. */
static inline void check_device(struct kh *k, const char *what)
{
    kh_reference(k, what);
    kh_check_device(k, what);
}

static inline void check_shape_by(const struct shape *s, int wild, void (*compare)(struct kh *, const char *))
{
    struct sy_attr_attention attr = attr_of(s);
    struct kh forward, backward;
    char what[200];
    snprintf(what, sizeof what,
             "self %d b %d tq %d tk %d h %d K %d blocks %d causal %d buckets %d drop %d wild %d no lengths "
             "%d segments %d mask %d dense %d uniform %d",
             s->self, s->rows, s->queries, s->keys, s->heads, s->head_dim, s->blocks, s->causal, s->buckets,
             s->dropout, wild, s->no_lengths, s->segments, s->mask, s->dense, s->uniform);
    add_forward(&forward, s, &attr, wild);
    compare(&forward, what);
    if (!s->position) {
        add_backward(&backward, &forward, s->self);
        compare(&backward, what);
        kh_end(&backward);
    }
    kh_end(&forward);
}

static inline void check_shape(const struct shape *s, int wild)
{
    check_shape_by(s, wild, check);
}

/* ---- written down plainly ---- */

/* Element (t, part, head, d) of a row of a pack. */
static inline double packed(const struct kh *k, const struct shape *s, int in, int row, int t, int part,
                            int head, int d)
{
    const struct sy_tensor *pack = &k->in[in];
    int parts = (int)pack->dim[2] / (s->heads * s->head_dim), width = s->heads / s->blocks; /* in heads */
    int column = ((head / width * parts + part) * width + head % width) * s->head_dim + d;
    return ((float *)pack->data)[(row * pack->dim[1] + t) * pack->dim[2] + column];
}

static inline double plain_score(const struct kh *k, const struct shape *s, int row, int head, int q, int t)
{
    double sum = 0;
    for (int d = 0; d < s->head_dim; d++)
        sum += packed(k, s, IN_Q, row, q, 0, head, d) * packed(k, s, IN_KV, row, t, s->self ? 1 : 0, head, d);
    int64_t bucket = syi_relpos_bucket(t - q - s->position, !s->causal, s->buckets, 20);
    if (s->buckets) sum += ((float *)k->in[IN_TABLE].data)[head * s->buckets + bucket];
    if (s->dense) sum += ((float *)k->in[IN_DENSE].data)[(head * s->queries + q) * s->keys + t];
    return sum;
}

static inline int plain_sees(const struct kh *k, const struct shape *s, int row, int q, int t)
{
    const int32_t *q_segment = k->in[IN_Q_SEGMENT].data, *segment = k->in[IN_KV_SEGMENT].data;
    const float *mask = k->in[IN_MASK].data;
    if (!s->no_lengths && t >= ((int32_t *)k->in[IN_KV_LENGTH].data)[row]) return 0;
    if (!s->no_lengths && q >= ((int32_t *)k->in[IN_Q_LENGTH].data)[row]) return 0;
    if (s->causal && t > q + s->position) return 0;
    if (segment && segment[row * s->keys + t] <= 0) return 0;
    if (q_segment && q_segment[row * s->queries + q] != segment[row * s->keys + t]) return 0;
    return !mask || mask[(row * s->queries + q) * s->keys + t] != 0;
}

#endif
