/* SPDX-License-Identifier: Apache-2.0 */
/* What decides which keys a query sees, and what is added to scores, said in two ways that must agree:
 * segments and lengths, packed and separate rows, dense masks and causality, dense biases and tables, the
 * uniform average and scores of -1e10. */
#include "config.h"

#include "attention_case.h"

/* A forward call and its gradient. */
struct pair {
    struct shape shape;
    struct sy_attr_attention attr;
    struct kh forward, backward;
};

static struct pair *pair_of(struct shape s)
{
    struct pair *p = calloc(1, sizeof *p);
    cr_assert_not_null(p);
    p->shape = s;
    p->attr = attr_of(&p->shape);
    add_forward(&p->forward, &p->shape, &p->attr, 0);
    return p;
}

static void replace_input(struct kh *k, int in, struct sy_tensor like, const void *data)
{
    free(k->in[in].data);
    k->in[in] = like;
    k->in[in].data = malloc(kh_bytes(&like) + 1);
    cr_assert_not_null(k->in[in].data);
    memcpy(k->in[in].data, data, kh_bytes(&like));
}

static void absent(struct kh *k, int in)
{
    free(k->in[in].data);
    k->in[in] = (struct sy_tensor){.dim = {1, 1, 1, 1, 1}};
}

/* Another pair whose operands in both calls are those of p. */
static struct pair *copy_of(const struct pair *p)
{
    struct pair *copy = pair_of(p->shape);
    for (int i = 0; i < copy->forward.n_in; i++)
        if (p->forward.in[i].rank) replace_input(&copy->forward, i, p->forward.in[i], p->forward.in[i].data);
    return copy;
}

/* dout: of another pair, or NULL: random. */
static void run(struct pair *p, const struct pair *dout)
{
    kh_reference(&p->forward, "forward");
    add_backward(&p->backward, &p->forward, p->shape.self);
    struct sy_tensor *own = &p->backward.in[IN_DOUT];
    if (dout) memcpy(own->data, dout->backward.in[IN_DOUT].data, kh_bytes(own));
    kh_reference(&p->backward, "backward");
}

static void expect_equal(const struct sy_tensor *t, const void *a, const void *b, const char *what)
{
    int64_t at = t->rank ? kh_differs(t, a, b) : -1;
    cr_expect_lt(at, 0, "%s differs at %lld: %a, %a", what, (long long)at,
                 (double)((float *)a)[at < 0 ? 0 : at], (double)((float *)b)[at < 0 ? 0 : at]);
}

/* Outputs, then the gradients whose bit is set: 1 of q, 2 of kv, 4 of the table. */
static void expect_same(const struct pair *a, const struct pair *b, int gradients)
{
    static const char *const name[] = {"dq", "dkv", "dtable"};
    expect_equal(&a->forward.out[0], a->forward.want[0], b->forward.want[0], "out");
    expect_equal(&a->forward.out[1], a->forward.want[1], b->forward.want[1], "lse");
    for (int i = 0; i < 3; i++)
        if (gradients >> i & 1)
            expect_equal(&a->backward.out[i], a->backward.want[i], b->backward.want[i], name[i]);
}

static void pair_free(struct pair *p)
{
    kh_end(&p->forward);
    if (p->backward.n_in) kh_end(&p->backward);
    free(p);
}

/* ---- segments ---- */

/* [b, positions] of 1 below the length and 0 from there on. */
static void segments_of_lengths(struct kh *k, int in, const int32_t *length, int rows, int positions)
{
    struct sy_tensor like = {.dim = {rows, positions, 1, 1, 1}, .rank = 2, .dtype = SY_I32};
    int32_t *segment = calloc((size_t)(rows * positions), sizeof *segment);
    cr_assert_not_null(segment);
    for (int i = 0; i < rows * positions; i++) segment[i] = i % positions < length[i / positions];
    replace_input(k, in, like, segment);
    free(segment);
}

Test(attention_masks, segments_say_what_lengths_say)
{
    static const struct shape shapes[] = {
        SHAPE(1, 5, 24, 24, 2, 16, 2, 0, 8, 1, 0),
        SHAPE(1, 8, 130, 130, 2, 5, 1, 1, 8, 0, 0),
        SHAPE(0, 5, 20, 140, 2, 5, 1, 0, 0, 1, 0),
    };
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        struct pair *lengths = pair_of(shapes[i]), *segments = copy_of(lengths);
        const struct shape *s = &lengths->shape;
        struct kh *k = &segments->forward;
        segments_of_lengths(k, IN_Q_SEGMENT, k->in[IN_Q_LENGTH].data, s->rows, s->queries);
        segments_of_lengths(k, IN_KV_SEGMENT, k->in[IN_KV_LENGTH].data, s->rows, s->keys);
        absent(k, IN_Q_LENGTH);
        absent(k, IN_KV_LENGTH);
        run(lengths, NULL);
        run(segments, lengths);
        expect_same(lengths, segments, 7);
        pair_free(lengths);
        pair_free(segments);
    }
}

/* Positions from .. from + n - 1 of a tensor [1, t, columns] in another, which has n. */
static void cut(const struct kh *from, struct kh *to, int in, int first)
{
    const float *x = (const float *)from->in[in].data + first * from->in[in].dim[2];
    memcpy(to->in[in].data, x, kh_bytes(&to->in[in]));
}

static void expect_close(const float *a, const float *b, int64_t n, float tolerance, const char *what)
{
    for (int64_t i = 0; i < n; i++)
        if (!(fabsf(a[i] - b[i]) <= tolerance)) {
            cr_expect_fail("%s, element %d: %.9g, %.9g", what, (int)i, (double)a[i], (double)b[i]);
            return;
        }
}

/* Segment 1 + second of a packed row alone, against its positions there. */
static void check_segment(const struct pair *packed_row, int second, int first, int n, float *dtable)
{
    struct shape s = packed_row->shape;
    s.queries = s.keys = n;
    s.segments = 0;
    struct pair *alone = pair_of(s);
    const int64_t columns = s.heads * s.head_dim, at = first * columns;
    cut(&packed_row->forward, &alone->forward, IN_Q, first);
    cut(&packed_row->forward, &alone->forward, IN_KV, first);
    memcpy(alone->forward.in[IN_TABLE].data, packed_row->forward.in[IN_TABLE].data,
           kh_bytes(&alone->forward.in[IN_TABLE]));
    kh_reference(&alone->forward, "alone");
    add_backward(&alone->backward, &alone->forward, 1);
    cut(&packed_row->backward, &alone->backward, IN_DOUT, first);
    kh_reference(&alone->backward, "alone");
    const float tolerance = first % 64 ? 1e-5f : 0; /* the same blocks, the same bits */
    expect_close((float *)packed_row->forward.want[0] + at, alone->forward.want[0], n * columns, tolerance,
                 second ? "out, second" : "out, first");
    expect_close((float *)packed_row->backward.want[0] + 3 * at, alone->backward.want[0], 3 * n * columns,
                 10 * tolerance, second ? "dq, second" : "dq, first");
    for (int64_t i = 0; i < sycpu_count(&alone->backward.out[2]); i++)
        dtable[i] += ((float *)alone->backward.want[2])[i];
    pair_free(alone);
}

Test(attention_masks, packed_segments_are_rows_of_their_own)
{
    static const int first_length[] = {64, 37, 1};
    for (int i = 0; i < 6; i++) {
        const int n = first_length[i % 3], m = 29, all = n + m + 5;
        struct shape s = SHAPE(1, 1, 0, 0, 2, 5, 1, 0, 8, 0, 0);
        s.queries = s.keys = all;
        s.no_lengths = s.segments = 1;
        s.causal = i / 3;
        struct pair *p = pair_of(s);
        int32_t *q = p->forward.in[IN_Q_SEGMENT].data, *k = p->forward.in[IN_KV_SEGMENT].data;
        for (int t = 0; t < all; t++) q[t] = k[t] = t < n ? 1 : t < n + m ? 2 : 0;
        run(p, NULL);
        float dtable[2 * 8] = {0};
        check_segment(p, 0, 0, n, dtable);
        check_segment(p, 1, n, m, dtable);
        expect_close(p->backward.want[2], dtable, 2 * 8, 1e-4f, "dtable");
        pair_free(p);
    }
}

/* ---- dense masks and biases ---- */

Test(attention_masks, a_dense_mask_can_say_causal)
{
    struct shape s = SHAPE(1, 4, 70, 70, 2, 5, 1, 1, 8, 1, 0);
    struct pair *causal = pair_of(s), *masked = copy_of(causal);
    struct sy_tensor like = {.dim = {4, 70, 70, 1, 1}, .rank = 3, .dtype = SY_F32};
    float *mask = calloc(4 * 70 * 70, sizeof *mask);
    cr_assert_not_null(mask);
    for (int i = 0; i < 4 * 70 * 70; i++) mask[i] = i % 70 <= i / 70 % 70 ? -0.5f : 0.0f; /* not 0: shown */
    replace_input(&masked->forward, IN_MASK, like, mask);
    masked->attr.causal = 0; /* but the buckets of causal attention */
    run(causal, NULL);
    run(masked, causal);
    expect_same(causal, masked, 7);
    pair_free(causal);
    pair_free(masked);
    free(mask);
}

/* relpos_bias of a table, and relpos_bias_grad. */
static void relpos(struct kh *k, int op, const struct sy_attr_relpos *attr, const struct sy_tensor *from,
                   const void *data, const struct sy_tensor *to)
{
    kh_begin(k, op, attr, sizeof *attr);
    copy_in(k, from, data);
    add_like(k, to);
    kh_check(k, "relative positions");
}

/* Far more elements a bucket than the small cases have. */
Test(attention_masks, a_bucket_of_thousands)
{
    struct sy_tensor table = {.dim = {2, 6, 1, 1, 1}, .rank = 2, .dtype = SY_F32};
    struct sy_tensor dense = {.dim = {2, 70, 90, 1, 1}, .rank = 3, .dtype = SY_F32};
    for (int bidirectional = 0; bidirectional < 2; bidirectional++) {
        struct sy_attr_relpos attr = {bidirectional, 20};
        struct kh gradient, bias;
        kh_begin(&gradient, SY_OP_RELPOS_BIAS_GRAD, &attr, sizeof attr);
        kh_in(&gradient, SY_F32, 3, 2, 70, 90);
        add_like(&gradient, &table);
        kh_check(&gradient, "relative positions");
        relpos(&bias, SY_OP_RELPOS_BIAS, &attr, &table, gradient.want[0], &dense);
        kh_end(&gradient);
        kh_end(&bias);
    }
}

static void check_dense_bias(struct shape s)
{
    struct pair *table = pair_of(s), *dense = copy_of(table);
    struct sy_attr_relpos attr = {table->attr.bidirectional, table->attr.max_distance};
    struct sy_tensor like = {.dim = {s.heads, s.queries, s.keys, 1, 1}, .rank = 3, .dtype = SY_F32};
    struct sy_tensor *rows = &table->forward.in[IN_TABLE];
    struct kh bias, gradient;
    relpos(&bias, SY_OP_RELPOS_BIAS, &attr, rows, rows->data, &like);
    absent(&dense->forward, IN_TABLE);
    replace_input(&dense->forward, IN_DENSE, like, bias.want[0]);
    run(table, NULL);
    run(dense, table);
    expect_same(table, dense, 3);
    relpos(&gradient, SY_OP_RELPOS_BIAS_GRAD, &attr, &like, dense->backward.want[3], rows);
    expect_close(table->backward.want[2], gradient.want[0], sycpu_count(rows), 1e-4f, "table gradient");
    kh_end(&bias);
    kh_end(&gradient);
    pair_free(table);
    pair_free(dense);
}

Test(attention_masks, a_dense_bias_can_be_that_of_a_table)
{
    static const struct shape shapes[] = {
        SHAPE(1, 5, 24, 24, 2, 16, 2, 0, 8, 1, 0),
        SHAPE(1, 16, 80, 80, 2, 5, 1, 1, 8, 0, 0),
        SHAPE(0, 8, 20, 90, 4, 5, 1, 0, 32, 0, 0),
    };
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) check_dense_bias(shapes[i]);
}

/* The order of the sum over rows: chains in leaves of 2 rows, then the tree over 4 leaves. */
Test(attention_masks, the_gradient_of_a_dense_bias_is_a_tree_over_leaves)
{
    struct shape s = SHAPE(0, 8, 7, 9, 2, 3, 1, 0, 0, 0, 0), one = s;
    one.rows = 1;
    s.dense = one.dense = 1;
    struct pair *all = pair_of(s);
    const int64_t n = s.heads * s.queries * s.keys;
    float *leaf = calloc((size_t)(4 * n), sizeof *leaf);
    cr_assert_not_null(leaf);
    run(all, NULL);
    for (int row = 0; row < s.rows; row++) {
        struct pair *p = pair_of(one);
        for (int i = 0; i <= IN_DENSE; i++) {
            struct sy_tensor *from = &all->forward.in[i], *to = &p->forward.in[i];
            size_t skip = from->rank && to->rank && i < IN_TABLE ? (size_t)row * kh_bytes(to) : 0;
            if (to->rank) memcpy(to->data, (char *)from->data + skip, kh_bytes(to));
        }
        kh_reference(&p->forward, "row");
        add_backward(&p->backward, &p->forward, 0);
        memcpy(p->backward.in[IN_DOUT].data,
               (float *)all->backward.in[IN_DOUT].data + row * s.queries * s.heads * s.head_dim,
               kh_bytes(&p->backward.in[IN_DOUT]));
        kh_reference(&p->backward, "row");
        for (int64_t i = 0; i < n; i++) leaf[row / 2 * n + i] += ((float *)p->backward.want[3])[i];
        pair_free(p);
    }
    for (int64_t i = 0; i < n; i++) leaf[i] = (leaf[i] + leaf[n + i]) + (leaf[2 * n + i] + leaf[3 * n + i]);
    expect_equal(&all->backward.out[3], leaf, all->backward.want[3], "gradient of the dense bias");
    free(leaf);
    pair_free(all);
}

/* ---- queries that see nothing ---- */

/* T5X adds -1e10 to the scores of hidden keys in float32, which leaves nothing of them: the same outputs. */
Test(attention_masks, uniform_is_what_minus_1e10_does)
{
    struct shape s = SHAPE(0, 1, 40, 150, 2, 5, 1, 0, 0, 1, 0);
    s.no_lengths = s.mask = s.uniform = 1;
    struct pair *uniform = pair_of(s), *added = copy_of(uniform);
    struct sy_tensor like = {.dim = {2, 40, 150, 1, 1}, .rank = 3, .dtype = SY_F32};
    float *dense = calloc(2 * 40 * 150, sizeof *dense), *mask = added->forward.in[IN_MASK].data;
    cr_assert_not_null(dense);
    for (int i = 0; i < 2 * 40 * 150; i++) dense[i] = mask[i % (40 * 150)] != 0 ? 0.0f : -1e10f;
    absent(&added->forward, IN_MASK);
    replace_input(&added->forward, IN_DENSE, like, dense);
    kh_reference(&uniform->forward, "uniform");
    kh_reference(&added->forward, "added");
    expect_close(uniform->forward.want[0], added->forward.want[0], 40 * 2 * 5, 0, "out");
    pair_free(uniform);
    pair_free(added);
    free(dense);
}

/* Without uniform such queries give 0 and nothing flows through them. */
Test(attention_masks, otherwise_nothing_flows)
{
    struct shape s = SHAPE(0, 2, 3, 5, 2, 4, 1, 0, 0, 0, 0);
    s.no_lengths = s.mask = s.dense = 1;
    struct pair *p = pair_of(s);
    memset(p->forward.in[IN_MASK].data, 0, kh_bytes(&p->forward.in[IN_MASK]));
    for (int i = IN_Q; i <= IN_KV; i++)
        for (int64_t j = 0; j < sycpu_count(&p->forward.in[i]); j++)
            ((float *)p->forward.in[i].data)[j] = NAN;
    run(p, NULL);
    for (int i = 0; i < 2; i++)
        for (int64_t j = 0; j < sycpu_count(&p->forward.out[i]); j++)
            cr_assert_eq(((float *)p->forward.want[i])[j], 0);
    for (int i = 0; i < 4; i++)
        for (int64_t j = 0; p->backward.out[i].rank && j < sycpu_count(&p->backward.out[i]); j++)
            cr_assert_eq(((float *)p->backward.want[i])[j], 0);
    pair_free(p);
}

/* uniform changes nothing where every query sees a key: then the fast kernels compute it. */
Test(attention_masks, uniform_without_hidden_keys_changes_nothing)
{
    struct shape s = SHAPE(1, 5, 70, 70, 2, 8, 1, 1, 8, 1, 0);
    s.no_lengths = 1;
    struct pair *plain = pair_of(s), *uniform = copy_of(plain);
    uniform->attr.uniform = 1;
    run(plain, NULL);
    run(uniform, plain);
    expect_same(plain, uniform, 7);
    check(&uniform->forward, "uniform");
    check(&uniform->backward, "uniform");
    pair_free(plain);
    pair_free(uniform);
}
