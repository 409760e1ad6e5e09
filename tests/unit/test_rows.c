/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels of the row family: every variant against the reference bit for bit, over extents that leave tails,
 * lengths, leaves and special values; and the references against plain double arithmetic. map has test_map.c.
 */
#include "config.h"

#include "base/philox.h"
#include "tests/unit/kernel_harness.h"

static void lengths(struct kh *k, int rows, int most)
{
    int32_t *lens = kh_in(k, SY_I32, 1, rows);
    for (int i = 0; i < rows; i++) lens[i] = (int32_t)(kh_random() % (unsigned)(most + 1));
}

static int near(double got, double want, double tolerance)
{
    return fabs(got - want) <= tolerance * (1 + fabs(want));
}

/* ---- rms_norm ---- */

static void rms_norm(int B, int T, int D, int with_lens, int wild)
{
    struct sy_attr_rms_norm attr = {1e-6, 0};
    struct kh k;
    kh_begin(&k, SY_OP_RMS_NORM, &attr, sizeof attr);
    k.wild = wild;
    const float *x = kh_in(&k, SY_F32, 3, B, T, D), *scale = kh_in(&k, SY_F32, 1, D);
    if (with_lens)
        lengths(&k, B, T);
    else
        kh_in_absent(&k);
    const int32_t *lens = k.in[2].data;
    kh_out(&k, SY_F32, 3, B, T, D);
    kh_check(&k, "rms_norm");
    for (int row = 0; row < B * T && wild <= 0; row++) {
        double q = 0;
        for (int d = 0; d < D; d++) q += (double)x[row * D + d] * (double)x[row * D + d];
        for (int d = 0; d < D; d++) {
            double want = (double)x[row * D + d] / sqrt(q / D + 1e-6) * (double)scale[d];
            if (lens && row % T >= lens[row / T]) want = 0;
            cr_assert(near((double)((float *)k.want[0])[row * D + d], want, 1e-5));
        }
    }
    kh_end(&k);
}

static void rms_norm_grad(int B, int T, int D, int leaves, int with_lens, int wild)
{
    struct sy_attr_rms_norm attr = {1e-6, B / leaves};
    struct kh k;
    kh_begin(&k, SY_OP_RMS_NORM_GRAD, &attr, sizeof attr);
    k.wild = wild;
    kh_in(&k, SY_F32, 3, B, T, D);
    kh_in(&k, SY_F32, 1, D);
    kh_in(&k, SY_F32, 3, B, T, D);
    if (with_lens)
        lengths(&k, B, T);
    else
        kh_in_absent(&k);
    kh_out(&k, SY_F32, 3, B, T, D);
    kh_out(&k, SY_F32, 1, D);
    kh_check(&k, "rms_norm_grad");
    kh_end(&k);
}

Test(rows, rms_norm)
{
    static const int sizes[] = {1, 5, 16, 31, 64, 77, 256, 300};
    for (int i = 0; i < 8; i++) {
        for (int wild = -20; wild <= 20; wild += 20) {
            rms_norm(3, 7, sizes[i], i % 2, wild);
            rms_norm(8, 5, sizes[i], 1, wild);
            rms_norm_grad(8, 5, sizes[i], 1 << i % 4, i % 2, wild);
            rms_norm_grad(8, 9, sizes[i], 1, 1, wild);
            rms_norm_grad(3, 1, sizes[i], 1, 0, wild);
        }
    }
}

/* ---- glu ---- */

struct glu_case {
    int rank, dim[4], width, kind, counts, wild; /* dim: of the output */
    double rate;
};

static void glu_operands(struct kh *k, const struct glu_case *c, int grad)
{
    const int *d = c->dim;
    int packed[4] = {d[0], d[1], d[2], d[3]};
    packed[c->rank - 1] *= 2;
    k->wild = c->wild;
    kh_in(k, SY_F32, c->rank, packed[0], packed[1], packed[2], packed[3]);
    if (grad) kh_in(k, SY_F32, c->rank, d[0], d[1], d[2], d[3]);
    if (c->rate > 0) {
        int64_t *rng = kh_in(k, SY_I64, 1, 4);
        rng[SY_RNG_SEED] = 5, rng[SY_RNG_STEP] = 6, rng[SY_RNG_ROW0] = 70, rng[SY_RNG_GROUP0] = 80;
    } else {
        kh_in_absent(k);
    }
    if (c->counts) {
        int32_t *counts = kh_in(k, SY_I32, 2, d[0], d[1]);
        for (int i = 0; i < d[0] * d[1]; i++) counts[i] = (int32_t)(kh_random() % (unsigned)(d[2] + 1));
    } else {
        kh_in_absent(k);
    }
    if (grad)
        kh_out(k, SY_F32, c->rank, packed[0], packed[1], packed[2], packed[3]);
    else
        kh_out(k, SY_F32, c->rank, d[0], d[1], d[2], d[3]);
    struct sy_tensor *y = grad ? &k->in[1] : &k->out[0];
    y->first[0] = 2, y->first[1] = c->rank == 4 ? 3 : 0, y->first[c->rank - 1] = 8 * c->width;
}

/* The value by plain arithmetic of what the reference computed. */
static void glu_plain(const struct kh *k, const struct glu_case *c)
{
    const float *x = k->in[0].data, *y = k->want[0];
    const int32_t *counts = k->in[2].data;
    int columns = c->dim[c->rank - 1], inner = c->dim[c->rank - 2];
    for (int64_t i = 0; i < sycpu_count(&k->out[0]); i++) {
        int64_t row = i / columns, column = i % columns, outer = row / inner;
        const float *gate = x + row * 2 * columns + column / c->width * 2 * c->width + column % c->width;
        double g = (double)gate[0], want = g * (double)gate[c->width] / (1 + exp(-g));
        if (c->rate > 0) {
            struct syi_dropout d = syi_dropout_init(k->in[1].data, 11, c->rate);
            uint32_t address = (uint32_t)(c->rank == 4 ? 3 + 80 + outer % c->dim[1] : 2 + 70 + outer);
            float mask;
            syi_dropout_mask(&d, address, c->rank == 4 ? (uint32_t)(2 + outer / c->dim[1]) : 0,
                             8 * c->width + column, 1, &mask);
            want *= (double)mask;
        }
        if (counts && row % inner >= counts[outer]) want = 0;
        cr_assert(near((double)y[i], want, 1e-5), "glu element %lld: %g, expected %g", (long long)i,
                  (double)y[i], want);
    }
}

static void glu(struct glu_case c)
{
    struct sy_attr_glu attr = {c.width, c.kind, 11, c.rate};
    struct kh k;
    kh_begin(&k, SY_OP_GLU, &attr, sizeof attr);
    glu_operands(&k, &c, 0);
    kh_check(&k, "glu");
    if (c.wild == 0 && c.kind == SY_SILU) glu_plain(&k, &c);
    kh_end(&k);
    kh_begin(&k, SY_OP_GLU_GRAD, &attr, sizeof attr);
    glu_operands(&k, &c, 1);
    kh_check(&k, "glu_grad");
    kh_end(&k);
}

Test(rows, glu)
{
    for (int kind = SY_LINEAR; kind <= SY_SILU; kind++) {
        for (int wild = 0; wild <= 20; wild += 20) {
            glu((struct glu_case){3, {3, 5, 28, 1}, 7, kind, 0, wild, 0.1});
            glu((struct glu_case){3, {4, 3, 600, 1}, 300, kind, 0, wild, 0.1});
            glu((struct glu_case){3, {5, 2, 64, 1}, 64, kind, 0, wild, 0});
            glu((struct glu_case){3, {1, 1, 1, 1}, 1, kind, 0, wild, 0.5});
            glu((struct glu_case){4, {3, 2, 5, 48}, 24, kind, 1, wild, 0.2});
            glu((struct glu_case){4, {2, 4, 3, 40}, 10, kind, 1, wild, 0});
            glu((struct glu_case){4, {2, 2, 6, 33}, 33, kind, 0, wild, 0.3});
        }
    }
}

/* ---- softmax ---- */

static void softmax(int B, int T, int E, int wild)
{
    struct kh k;
    kh_begin(&k, SY_OP_SOFTMAX, NULL, 0);
    k.wild = wild;
    const float *x = kh_in(&k, SY_F32, 3, B, T, E);
    kh_out(&k, SY_F32, 3, B, T, E);
    kh_out(&k, SY_F32, 2, B, T);
    kh_check(&k, "softmax");
    for (int row = 0; row < B * T && wild <= 0; row++) {
        double sum = 0, total = 0;
        for (int e = 0; e < E; e++) sum += exp((double)x[row * E + e]);
        for (int e = 0; e < E; e++) total += (double)((float *)k.want[0])[row * E + e];
        cr_assert(near(total, 1, 1e-6));
        cr_assert(near((double)((float *)k.want[1])[row], log(sum), 1e-6));
    }
    kh_end(&k);
    for (int dlse = 0; dlse < 2; dlse++) {
        kh_begin(&k, SY_OP_SOFTMAX_GRAD, NULL, 0);
        k.wild = wild;
        kh_in(&k, SY_F32, 3, B, T, E);
        kh_in(&k, SY_F32, 3, B, T, E);
        if (dlse)
            kh_in(&k, SY_F32, 2, B, T);
        else
            kh_in_absent(&k);
        kh_out(&k, SY_F32, 3, B, T, E);
        kh_check(&k, "softmax_grad");
        kh_end(&k);
    }
}

Test(rows, softmax)
{
    static const int sizes[] = {1, 2, 4, 7, 16, 19, 64, 100, 257};
    for (int i = 0; i < 9; i++)
        for (int wild = -20; wild <= 20; wild += 20) softmax(3, 11, sizes[i], wild);
}

/* Products that underflow leave lanes at -0; lanes that a tail does not have must stay so. */
Test(rows, tail_leaves_missing_lanes_alone)
{
    struct kh k;
    kh_begin(&k, SY_OP_SOFTMAX_GRAD, NULL, 0);
    float *p = kh_in(&k, SY_F32, 3, 1, 1, 17), *dp = kh_in(&k, SY_F32, 3, 1, 1, 17);
    kh_in_absent(&k);
    for (int i = 0; i < 17; i++) p[i] = 1e-30f, dp[i] = -1e-30f;
    dp[16] = -0.0f;
    kh_out(&k, SY_F32, 3, 1, 1, 17);
    kh_check(&k, "underflow");
    cr_expect(!signbit(((float *)k.want[0])[16]));
    kh_end(&k);
}

/* ---- cross entropy, argmax ---- */

static void xent_inputs(struct kh *k, int B, int T, int V, int wild)
{
    k->wild = wild;
    kh_in(k, SY_F32, 3, B, T, V);
    int32_t *target = kh_in(k, SY_I32, 2, B, T);
    k->wild = 0;
    float *w = kh_in(k, SY_F32, 2, B, T);
    for (int i = 0; i < B * T; i++) {
        target[i] = (int32_t)(kh_random() % (unsigned)(V + 2)) - 1; /* now and then outside */
        if (i % 5 == 0) w[i] = 0;
    }
}

static void xent_plain(const struct kh *k, double ls, double z_loss)
{
    int64_t V = k->in[0].dim[2];
    for (int64_t row = 0; row < sycpu_count(&k->in[1]); row++) {
        const float *x = (const float *)k->in[0].data + row * V;
        double sum = 0, loss = 0, w = (double)((float *)k->in[2].data)[row], lse, p;
        int32_t t = ((int32_t *)k->in[1].data)[row];
        for (int64_t v = 0; v < V; v++) sum += exp((double)x[v]);
        lse = log(sum);
        if (t < 0 || t >= V || V < 2) continue;
        for (int64_t v = 0; v < V; v++) { /* Kullback-Leibler divergence from the smoothed target */
            p = v == t ? 1 - ls : ls / (double)(V - 1);
            if (p > 0) loss += p * (log(p) - ((double)x[v] - lse));
        }
        double want = w * (loss + z_loss * lse * lse);
        cr_assert(near((double)((float *)k->want[0])[row], want, 1e-5), "row %lld", (long long)row);
        cr_assert(near((double)((float *)k->want[1])[row], w * z_loss * lse * lse, 1e-6));
    }
}

static void xent(int B, int T, int V, double ls, double z_loss, int wild)
{
    struct sy_attr_xent attr = {ls, z_loss};
    struct kh k;
    kh_begin(&k, SY_OP_XENT, &attr, sizeof attr);
    xent_inputs(&k, B, T, V, wild);
    for (int i = 0; i < 4; i++) kh_out(&k, SY_F32, 2, B, T);
    kh_check(&k, "xent");
    if (wild == 0) xent_plain(&k, ls, z_loss);
    kh_end(&k);
    for (int in_place = 0; in_place < 2; in_place++) {
        kh_begin(&k, SY_OP_XENT_GRAD, &attr, sizeof attr);
        xent_inputs(&k, B, T, V, wild);
        float *lse = kh_in(&k, SY_F32, 2, B, T);
        for (int i = 0; i < B * T; i++) lse[i] += 3.0f;
        kh_in(&k, SY_F32, 2, B, T);
        kh_out(&k, SY_F32, 3, B, T, V);
        k.in_place = in_place;
        kh_check(&k, "xent_grad");
        kh_end(&k);
    }
    kh_begin(&k, SY_OP_ARGMAX, NULL, 0);
    k.wild = wild;
    kh_in(&k, SY_F32, 3, B, T, V);
    kh_out(&k, SY_I32, 2, B, T);
    kh_check(&k, "argmax");
    kh_end(&k);
}

Test(rows, xent)
{
    static const int sizes[] = {1, 2, 5, 16, 33, 259};
    for (int i = 0; i < 6; i++) {
        for (int wild = -20; wild <= 20; wild += 10) {
            xent(3, 7, sizes[i], 0, 0, wild);
            xent(4, 6, sizes[i], 0.1, 1e-4, wild);
        }
    }
}

/* The row's largest element counts as right at its lowest index only. */
Test(rows, xent_correct_takes_the_first_of_equals)
{
    struct sy_attr_xent attr = {0, 0};
    struct kh k;
    kh_begin(&k, SY_OP_XENT, &attr, sizeof attr);
    float *x = kh_in(&k, SY_F32, 3, 1, 4, 20);
    int32_t *target = kh_in(&k, SY_I32, 2, 1, 4);
    float *w = kh_in(&k, SY_F32, 2, 1, 4);
    for (int i = 0; i < 4; i++) x[i * 20 + 7] = x[i * 20 + 18] = 5, w[i] = 1;
    target[0] = 7, target[1] = 18, target[2] = 3, target[3] = 7, w[3] = 0;
    for (int i = 0; i < 4; i++) kh_out(&k, SY_F32, 2, 1, 4);
    kh_check(&k, "xent");
    const float *correct = k.want[3];
    cr_expect(correct[0] == 1 && correct[1] == 0 && correct[2] == 0 && correct[3] == 0);
    kh_end(&k);
}

/* ---- copies and embedding ---- */

static void pack(int rank, const int *rows, const int *width, int parts, int blocks)
{
    struct sy_attr_pack attr = {{width[0], width[1], parts > 2 ? width[2] : 0}};
    struct kh k, back;
    int whole = 0;
    kh_begin(&k, SY_OP_PACK, &attr, sizeof attr);
    kh_begin(&back, SY_OP_UNPACK, &attr, sizeof attr);
    for (int i = 0; i < parts; i++) {
        int d[3] = {rows[0], rows[1], rows[2]};
        d[rank - 1] = blocks * width[i];
        whole += d[rank - 1];
        kh_in(&k, SY_F32, rank, d[0], d[1], d[2]);
        kh_out(&back, SY_F32, rank, d[0], d[1], d[2]);
    }
    int d[3] = {rows[0], rows[1], rows[2]};
    d[rank - 1] = whole;
    kh_out(&k, SY_F32, rank, d[0], d[1], d[2]);
    kh_check(&k, "pack");
    memcpy(kh_in(&back, SY_F32, rank, d[0], d[1], d[2]), k.want[0], kh_bytes(&k.out[0]));
    kh_check(&back, "unpack");
    for (int i = 0; i < parts; i++)
        cr_assert_eq(memcmp(back.want[i], k.in[i].data, kh_bytes(&k.in[i])), 0,
                     "unpack is not the reverse of pack");
    if (blocks > 1) cr_assert_eq(((float *)k.want[0])[width[0]], ((float *)k.in[1].data)[0]);
    kh_end(&k);
    kh_end(&back);
}

Test(rows, pack)
{
    pack(3, (int[]){3, 5, 0}, (int[]){4, 4, 4}, 3, 2);
    pack(3, (int[]){30, 7, 0}, (int[]){64, 64, 64}, 3, 4);
    pack(2, (int[]){9, 0, 0}, (int[]){5, 2, 0}, 2, 3);
    pack(2, (int[]){1, 0, 0}, (int[]){1, 1, 0}, 2, 1);
}

static void embed(int B, int T, int V, int D, int leaves)
{
    struct sy_attr_leaf attr = {B / leaves};
    struct kh k;
    kh_begin(&k, SY_OP_EMBED, NULL, 0);
    int32_t *id = kh_in(&k, SY_I32, 2, B, T);
    for (int i = 0; i < B * T; i++) id[i] = (int32_t)(kh_random() % (unsigned)(V + 2)) - 1;
    const float *table = kh_in(&k, SY_F32, 2, V, D);
    kh_out(&k, SY_F32, 3, B, T, D);
    kh_check(&k, "embed");
    for (int i = 0; i < B * T; i++)
        cr_assert_eq(((float *)k.want[0])[i * D], id[i] < 0 || id[i] >= V ? 0 : table[id[i] * D]);
    kh_end(&k);

    kh_begin(&k, SY_OP_EMBED_GRAD, &attr, sizeof attr);
    k.wild = leaves > 1 ? 10 : 0;
    id = kh_in(&k, SY_I32, 2, B, T);
    for (int i = 0; i < B * T; i++) id[i] = (int32_t)(kh_random() % (unsigned)(V + 2)) - 1;
    const float *dy = kh_in(&k, SY_F32, 3, B, T, D);
    kh_out(&k, SY_F32, 2, V, D);
    kh_check(&k, "embed_grad");
    for (int v = 0; v < V && !k.wild; v++) {
        double sum = 0;
        for (int i = 0; i < B * T; i++) sum += id[i] == v ? (double)dy[i * D] : 0;
        cr_assert(near((double)((float *)k.want[0])[v * D], sum, 1e-5));
    }
    kh_end(&k);
}

Test(rows, embed)
{
    for (int leaves = 1; leaves <= 8; leaves *= 2) {
        embed(8, 5, 11, 33, leaves);
        embed(16, 3, 100, 130, leaves);
        embed(8, 9, 1, 1, leaves);
    }
}

Test(rows, cache_append)
{
    for (int at = 0; at < 5; at += 2) {
        for (int in_place = 0; in_place < 2; in_place++) {
            struct kh k;
            kh_begin(&k, SY_OP_CACHE_APPEND, NULL, 0);
            const float *cache = kh_in(&k, SY_F32, 3, 3, 5, 7), *row = kh_in(&k, SY_F32, 3, 3, 1, 7);
            *(int32_t *)kh_in(&k, SY_I32, 1, 1) = at;
            kh_out(&k, SY_F32, 3, 3, 5, 7);
            k.in_place = in_place;
            kh_check(&k, "cache_append");
            for (int i = 0; i < 105; i++) {
                float want = i / 7 % 5 == at ? row[i / 35 * 7 + i % 7] : cache[i];
                cr_assert_eq(((float *)k.want[0])[i], want);
            }
            kh_end(&k);
        }
    }
}

/* ---- sums ---- */

static void blocks(int rank, const int *dim, const int *leaf, int wild)
{
    struct sy_attr_block attr;
    int n[5];
    for (int i = 0; i < 5; i++) {
        attr.leaf[i] = i < rank ? leaf[i] : 1;
        n[i] = i < rank ? dim[i] / leaf[i] : 1;
    }
    for (int square = 0; square < 2; square++) {
        struct kh k;
        double total = 0, got = 0;
        kh_begin(&k, square ? SY_OP_BLOCK_SUMSQ : SY_OP_BLOCK_SUM, &attr, sizeof attr);
        k.wild = wild;
        const float *x = kh_in(&k, SY_F32, rank, dim[0], dim[1], dim[2], dim[3], dim[4]);
        kh_out(&k, SY_F32, rank, n[0], n[1], n[2], n[3], n[4]);
        kh_check(&k, "block_sum");
        for (int64_t i = 0; i < sycpu_count(&k.in[0]); i++) total += (double)(square ? x[i] * x[i] : x[i]);
        for (int64_t i = 0; i < sycpu_count(&k.out[0]); i++) got += (double)((float *)k.want[0])[i];
        if (wild <= 0) cr_assert(near(got, total, 1e-4));
        kh_end(&k);
    }
}

Test(rows, block_sums)
{
    for (int wild = -20; wild <= 20; wild += 20) {
        blocks(1, (int[]){1, 1, 1, 1, 1}, (int[]){1}, wild);
        blocks(1, (int[]){1000, 1, 1, 1, 1}, (int[]){125}, wild);
        blocks(2, (int[]){12, 34, 1, 1, 1}, (int[]){3, 17}, wild);
        blocks(3, (int[]){4, 6, 40, 1, 1}, (int[]){1, 3, 20}, wild);
        blocks(5, (int[]){2, 4, 2, 6, 21}, (int[]){2, 2, 1, 3, 7}, wild);
    }
}

Test(rows, block_sum_lanes_are_those_of_the_contract)
{
    struct sy_attr_block attr = {{2, 18, 1, 1, 1}};
    struct kh k;
    kh_begin(&k, SY_OP_BLOCK_SUM, &attr, sizeof attr);
    const float *x = kh_in(&k, SY_F32, 2, 2, 18);
    kh_out(&k, SY_F32, 2, 1, 1);
    kh_check(&k, "block_sum");
    float row[2];
    for (int i = 0; i < 2; i++, x += 18) {
        float a[8], b[4];
        for (int l = 0; l < 8; l++) a[l] = (x[l] + (l < 2 ? x[16 + l] : 0.0f)) + x[l + 8];
        for (int l = 0; l < 4; l++) b[l] = a[l] + a[l + 4];
        row[i] = (b[0] + b[2]) + (b[1] + b[3]);
    }
    cr_expect_eq(*(float *)k.want[0], row[0] + row[1]);
    kh_end(&k);
}

Test(rows, tree_sum)
{
    struct kh k;
    kh_begin(&k, SY_OP_TREE_SUM, NULL, 0);
    const float *x = kh_in(&k, SY_F32, 2, 2, 3);
    kh_out(&k, SY_F32, 1, 1);
    kh_check(&k, "tree_sum");
    cr_expect_eq(*(float *)k.want[0], ((x[0] + x[1]) + x[2]) + ((x[3] + x[4]) + x[5]));
    kh_end(&k);
    for (int n = 1; n < 40; n++) {
        double sum = 0;
        kh_begin(&k, SY_OP_TREE_SUM, NULL, 0);
        x = kh_in(&k, SY_F32, 3, n, 1, 41 - n);
        kh_out(&k, SY_F32, 1, 1);
        kh_check(&k, "tree_sum");
        for (int i = 0; i < n * (41 - n); i++) sum += (double)x[i];
        cr_expect(near((double)*(float *)k.want[0], sum, 1e-5));
        kh_end(&k);
    }
}

Test(rows, tree_add)
{
    for (int ranks = 1; ranks <= 8; ranks *= 2) {
        for (int n = 1; n < 9000; n = n * 7 + 2) {
            struct kh k;
            kh_begin(&k, SY_OP_TREE_ADD, NULL, 0);
            k.wild = 10 * (n % 2);
            const float *x = kh_in(&k, SY_F32, 2, ranks, n);
            kh_out(&k, SY_F32, 1, n);
            kh_check(&k, "tree_add");
            if (ranks == 4 && !k.wild)
                cr_expect_eq(((float *)k.want[0])[0], (x[0] + x[n]) + (x[2 * n] + x[3 * n]));
            kh_end(&k);
        }
    }
}

Test(rows, count_sum)
{
    struct kh k;
    kh_begin(&k, SY_OP_COUNT_SUM, NULL, 0);
    int32_t *count = kh_in(&k, SY_I32, 2, 3, 5);
    for (int i = 0; i < 15; i++) count[i] = INT32_MAX - i;
    kh_out(&k, SY_I64, 1, 3);
    kh_check(&k, "count_sum");
    for (int e = 0; e < 3; e++)
        cr_expect_eq(((int64_t *)k.want[0])[e], 5 * (int64_t)INT32_MAX - (25 * e + 10));
    kh_end(&k);
}
