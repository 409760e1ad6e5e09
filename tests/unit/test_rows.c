/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels of the row family: every variant against the reference bit for bit, over extents that leave tails,
 * masks, leaves and special values; and the references against plain double arithmetic. sums have
 * test_sums.c, map has test_map.c.
 */
#include "config.h"

#include "base/philox.h"
#include "tests/unit/kernel_harness.h"

/* A mask with holes: 0, or another number than 0, for each position. */
static void random_mask(struct kh *k, int rows, int positions)
{
    float *mask = kh_in(k, SY_F32, 2, rows, positions);
    for (int i = 0; i < rows * positions; i++) mask[i] = (float)(kh_random() % 3) * 0.5f;
}

static int near(double got, double want, double tolerance)
{
    return fabs(got - want) <= tolerance * (1 + fabs(want));
}

/* ---- rms_norm ---- */

static void rms_norm(int B, int T, int D, int with_mask, int wild)
{
    struct sy_attr_rms_norm attr = {1e-6, 0};
    struct kh k;
    kh_begin(&k, SY_OP_RMS_NORM, &attr, sizeof attr);
    k.wild = wild;
    const float *x = kh_in(&k, SY_F32, 3, B, T, D), *scale = kh_in(&k, SY_F32, 1, D);
    if (with_mask)
        random_mask(&k, B, T);
    else
        kh_in_absent(&k);
    const float *mask = k.in[2].data;
    kh_out(&k, SY_F32, 3, B, T, D);
    kh_check(&k, "rms_norm");
    for (int row = 0; row < B * T && wild <= 0; row++) {
        double q = 0;
        for (int d = 0; d < D; d++) q += (double)x[row * D + d] * (double)x[row * D + d];
        for (int d = 0; d < D; d++) {
            double want = (double)x[row * D + d] / sqrt(q / D + 1e-6) * (double)scale[d];
            if (mask && mask[row] == 0) want = 0;
            cr_assert(near((double)((float *)k.want[0])[row * D + d], want, 1e-5));
        }
    }
    kh_end(&k);
}

/* The sum is x + y, and its norm what rms_norm makes of it, bit for bit; also over x. */
static void add_rms_norm(int B, int T, int D, int with_mask, int wild)
{
    struct sy_attr_rms_norm attr = {1e-6, 0};
    for (int in_place = 0; in_place < 2; in_place++) {
        struct kh k, norm;
        kh_begin(&k, SY_OP_ADD_RMS_NORM, &attr, sizeof attr);
        k.wild = wild;
        k.in_place = in_place;
        const float *x = kh_in(&k, SY_F32, 3, B, T, D), *y = kh_in(&k, SY_F32, 3, B, T, D);
        kh_in(&k, SY_F32, 1, D);
        if (with_mask)
            random_mask(&k, B, T);
        else
            kh_in_absent(&k);
        float *before = malloc(sizeof *x * (size_t)(B * T * D));
        cr_assert_not_null(before);
        memcpy(before, x, sizeof *x * (size_t)(B * T * D));
        kh_out(&k, SY_F32, 3, B, T, D);
        kh_out(&k, SY_F32, 3, B, T, D);
        kh_check(&k, "add_rms_norm");
        const float *sum = k.want[0], *normed = k.want[1];
        kh_begin(&norm, SY_OP_RMS_NORM, &attr, sizeof attr);
        float *again = kh_in(&norm, SY_F32, 3, B, T, D), *scale = kh_in(&norm, SY_F32, 1, D);
        for (int i = 0; i < B * T * D; i++) {
            float want = before[i] + y[i];
            cr_assert(sum[i] == want || (isnan(sum[i]) && isnan(want)), "element %d", i);
            again[i] = sum[i];
        }
        memcpy(scale, k.in[2].data, sizeof *scale * (size_t)D);
        if (with_mask)
            memcpy(kh_in(&norm, SY_F32, 2, B, T), k.in[3].data, sizeof *scale * (size_t)(B * T));
        else
            kh_in_absent(&norm);
        kh_out(&norm, SY_F32, 3, B, T, D);
        kh_check(&norm, "rms_norm of the sum");
        for (int i = 0; i < B * T * D; i++) {
            float want = ((const float *)norm.want[0])[i];
            cr_assert(normed[i] == want || (isnan(normed[i]) && isnan(want)), "element %d", i);
        }
        free(before);
        kh_end(&k);
        kh_end(&norm);
    }
}

static void rms_norm_grad(int B, int T, int D, int leaves, int with_mask, int wild)
{
    struct sy_attr_rms_norm attr = {1e-6, B / leaves};
    struct kh k;
    kh_begin(&k, SY_OP_RMS_NORM_GRAD, &attr, sizeof attr);
    k.wild = wild;
    kh_in(&k, SY_F32, 3, B, T, D);
    kh_in(&k, SY_F32, 1, D);
    kh_in(&k, SY_F32, 3, B, T, D);
    if (with_mask)
        random_mask(&k, B, T);
    else
        kh_in_absent(&k);
    kh_out(&k, SY_F32, 3, B, T, D);
    kh_out(&k, SY_F32, 1, D);
    kh_check(&k, "rms_norm_grad");
    kh_end(&k);
}

/* What is not masked has the bits it has without a mask; masked positions are 0 whatever they hold. */
Test(rows, rms_norm_mask)
{
    enum { B = 4, T = 6, D = 37 };
    struct sy_attr_rms_norm attr = {1e-6, 2};
    float want[2][B * T * D];
    const float *mask = NULL;
    for (int masked = 0; masked < 2; masked++) {
        for (int grad = 0; grad < 2; grad++) {
            struct kh k;
            kh_state = 5;
            kh_begin(&k, grad ? SY_OP_RMS_NORM_GRAD : SY_OP_RMS_NORM, &attr, sizeof attr);
            float *x = kh_in(&k, SY_F32, 3, B, T, D);
            kh_in(&k, SY_F32, 1, D);
            if (grad) kh_in(&k, SY_F32, 3, B, T, D);
            if (masked)
                random_mask(&k, B, T);
            else
                kh_in_absent(&k);
            mask = k.in[2 + grad].data;
            for (int i = 0; masked && i < B * T * D; i++)
                if (mask[i / D] == 0) x[i] = NAN;
            kh_out(&k, SY_F32, 3, B, T, D);
            if (grad) kh_out(&k, SY_F32, 1, D);
            kh_check(&k, "rms_norm with a mask");
            const float *got = k.want[0];
            for (int i = 0; i < B * T * D; i++) {
                if (!masked) want[grad][i] = got[i];
                if (masked) cr_assert_eq(got[i], mask[i / D] == 0 ? 0 : want[grad][i], "element %d", i);
            }
            for (int i = 0; grad && i < D; i++) cr_assert(isfinite(((float *)k.want[1])[i]));
            kh_end(&k);
        }
    }
}

Test(rows, rms_norm)
{
    static const int sizes[] = {1, 5, 16, 31, 64, 77, 256, 300};
    for (int i = 0; i < 8; i++) {
        for (int wild = -20; wild <= 20; wild += 20) {
            rms_norm(3, 7, sizes[i], i % 2, wild);
            rms_norm(8, 5, sizes[i], 1, wild);
            add_rms_norm(3, 7, sizes[i], i % 2, wild);
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
    int apart; /* gate and linear are two tensors */
};

/* An operand with gate, or with gate and linear. */
static void glu_extents(const struct glu_case *c, int *dim)
{
    memcpy(dim, c->dim, sizeof c->dim);
    if (!c->apart) dim[c->rank - 1] *= 2;
}

static void glu_operands(struct kh *k, const struct glu_case *c, int grad)
{
    const int *d = c->dim;
    int x[4];
    glu_extents(c, x);
    k->wild = c->wild;
    kh_in(k, SY_F32, c->rank, x[0], x[1], x[2], x[3]);
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
    if (c->apart)
        kh_in(k, SY_F32, c->rank, x[0], x[1], x[2], x[3]);
    else
        kh_in_absent(k);
    kh_out(k, SY_F32, c->rank, grad ? x[0] : d[0], grad ? x[1] : d[1], grad ? x[2] : d[2],
           grad ? x[3] : d[3]);
    if (grad && c->apart) kh_out(k, SY_F32, c->rank, x[0], x[1], x[2], x[3]);
    if (grad && !c->apart) kh_out_absent(k);
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
        const float *linear = c->apart ? (const float *)k->in[3].data + i : gate + c->width;
        double g = (double)(c->apart ? x[i] : *gate), want = g * (double)*linear / (1 + exp(-g));
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

static void glu_of(struct glu_case c)
{
    struct sy_attr_glu attr = {c.apart ? 0 : c.width, c.kind, 11, c.rate};
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

static void glu(struct glu_case c)
{
    glu_of(c);
    c.apart = 1;
    glu_of(c);
}

/* Over 8 MiB, which goes past the caches, zeros in empty slots as well. */
Test(rows, glu_of_a_large_buffer)
{
    glu((struct glu_case){4, {4, 8, 64, 1056}, 1056, SY_RELU, 1, 0, 0, 0});
    glu((struct glu_case){3, {160, 7, 2112, 1}, 704, SY_GELU, 0, 0, 0.1, 0});
    glu((struct glu_case){
        3, {130, 7, 2640, 1}, 264, SY_RELU, 0, 0, 0.1, 0}); /* blocks that are no whole vectors */
}

Test(rows, glu)
{
    for (int kind = SY_LINEAR; kind <= SY_SILU; kind++) {
        for (int wild = 0; wild <= 20; wild += 20) {
            glu((struct glu_case){3, {3, 5, 28, 1}, 7, kind, 0, wild, 0.1, 0});
            glu((struct glu_case){3, {4, 3, 600, 1}, 300, kind, 0, wild, 0.1, 0});
            glu((struct glu_case){3, {5, 2, 64, 1}, 64, kind, 0, wild, 0, 0});
            glu((struct glu_case){3, {1, 1, 1, 1}, 1, kind, 0, wild, 0.5, 0});
            glu((struct glu_case){4, {3, 2, 5, 48}, 24, kind, 1, wild, 0.2, 0});
            glu((struct glu_case){4, {2, 4, 3, 40}, 10, kind, 1, wild, 0, 0});
            glu((struct glu_case){4, {2, 2, 6, 33}, 33, kind, 0, wild, 0.3, 0});
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
    for (int wild = -20; wild <= 20; wild += 20) { /* as long as a vocabulary */
        softmax(1, 2, 1025, wild);
        softmax(1, 3, 8209, wild);
    }
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
    for (int wild = -20; wild <= 20; wild += 20) { /* as long as a vocabulary */
        xent(1, 3, 4099, 0, 1e-4, wild);
        xent(1, 3, 8209, 0.1, 1e-4, wild);
    }
}

/* Few different values: equals, zeros of both signs, infinities and NaN in any lane and in front. */
Test(rows, argmax_takes_the_first_of_equals)
{
    static const float values[] = {-1, 0.0f, -0.0f, 1, 1, NAN, INFINITY, -INFINITY};
    for (int V = 1; V < 120; V += 1 + V / 8) {
        for (int most = 1; most <= 8; most++) {
            struct kh k;
            kh_begin(&k, SY_OP_ARGMAX, NULL, 0);
            float *x = kh_in(&k, SY_F32, 3, 3, 41, V);
            for (int i = 0; i < 3 * 41 * V; i++) x[i] = values[8 - most + kh_random() % (unsigned)most];
            kh_out(&k, SY_I32, 2, 3, 41);
            kh_check(&k, "argmax");
            kh_end(&k);
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
    pack(2, (int[]){2100, 0, 0}, (int[]){64, 64, 0}, 2, 16); /* over 8 MiB: past the caches */
    pack(2, (int[]){2100, 0, 0}, (int[]){40, 32, 0}, 2, 30); /* blocks that are no whole vectors */
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
    embed(32, 50, 300, 8, 32); /* ids and positions that a radix sort takes in several passes and tiles */
    embed(32, 70, 3, 5, 2);
    embed(1, 1030, 70000, 1, 1);
}

static void cache_append(int n)
{
    for (int at = 0; at < 5; at += 2) {
        for (int in_place = 0; in_place < 2; in_place++) {
            struct kh k;
            kh_begin(&k, SY_OP_CACHE_APPEND, NULL, 0);
            const float *cache = kh_in(&k, SY_F32, 3, 3, 5, n), *row = kh_in(&k, SY_F32, 3, 3, 1, n);
            *(int32_t *)kh_in(&k, SY_I32, 1, 1) = at;
            kh_out(&k, SY_F32, 3, 3, 5, n);
            k.in_place = in_place;
            kh_check(&k, "cache_append");
            for (int i = 0; i < 15 * n; i++) {
                float want = i / n % 5 == at ? row[i / (5 * n) * n + i % n] : cache[i];
                cr_assert_eq(((float *)k.want[0])[i], want);
            }
            kh_end(&k);
        }
    }
}

Test(rows, cache_append)
{
    cache_append(7);
    cache_append(8);
}

/* On the CUDA backend: what is not known stays as it was. */
static void gather_on_device(const struct kh *k, const int32_t *from, int position)
{
    const struct sy_kernel *kernel = kh_device_kernel(kh_device(), k->op, SY_F32, SY_F32);
    const int64_t T = k->in[0].dim[1], N = k->in[0].dim[2];
    const uint32_t *cache = k->in[0].data;
    void *got[SY_MAX_OUT];
    if (!kernel) return;
    kh_run_device(k, kh_device(), kernel, got, "cache_gather");
    for (int64_t i = 0; i < sycpu_count(&k->out[0]); i++) {
        uint32_t want = i / N % T < position ? cache[from[i / (T * N)] * T * N + i % (T * N)] : 0xa5a5a5a5u;
        cr_assert_eq(((uint32_t *)got[0])[i], want, "cuda: position %d element %lld", position, (long long)i);
    }
    kh_free_guarded(got[0]);
}

/* Rows of the output come from the local rows named; positions from `position` on stay. */
Test(rows, cache_gather)
{
    enum { B = 4, T = 5, N = 7, FIRST = 8 };
    static const int32_t rows[B] = {FIRST + 2, FIRST, FIRST - 1, FIRST + B}, from[B] = {2, 0, 2, 3};
    for (int position = 0; position <= T; position++) {
        struct kh k;
        void *got[SY_MAX_OUT], *threaded[SY_MAX_OUT];
        float rest;
        kh_begin(&k, SY_OP_CACHE_GATHER, NULL, 0);
        const float *cache = kh_in(&k, SY_F32, 3, B, T, N);
        k.in[0].first[0] = FIRST;
        memcpy(kh_in(&k, SY_I32, 1, B), rows, sizeof rows);
        *(int32_t *)kh_in(&k, SY_I32, 1, 1) = position;
        kh_out(&k, SY_F32, 3, B, T, N);
        const struct sy_kernel *kernel;
        for (uint64_t at = 0; (kernel = kh_next(k.op, SY_F32, SY_F32, kh_features(), &at));) {
            kh_run(&k, kernel, 1, got, "cache_gather");
            kh_run(&k, kernel, 3, threaded, "cache_gather");
            memset(&rest, 0xa6, sizeof rest); /* what the harness fills outputs with, for 1 thread */
            for (int i = 0; i < B * T * N; i++) {
                int b = i / (T * N), known = i / N % T < position;
                float want = cache[from[b] * T * N + i % (T * N)];
                cr_assert_eq(((float *)got[0])[i], known ? want : rest, "%s: position %d element %d",
                             kernel->name, position, i);
                if (known) cr_assert_eq(((float *)threaded[0])[i], want);
            }
            kh_free_guarded(got[0]);
            kh_free_guarded(threaded[0]);
        }
        gather_on_device(&k, from, position);
        kh_end(&k);
    }
}

/* ---- top_k ---- */

static int is_before(const float *x, int i, int j)
{
    if (isnan(x[i]) || isnan(x[j])) return isnan(x[i]) == isnan(x[j]) ? i < j : !isnan(x[i]);
    return x[i] == x[j] ? i < j : x[i] > x[j];
}

static void top_k(int B, int T, int V, int K, int values, int wild)
{
    struct kh k;
    kh_begin(&k, SY_OP_TOP_K, NULL, 0);
    k.wild = wild;
    float *x = kh_in(&k, SY_F32, 3, B, T, V);
    for (int i = 0; i < B * T * V && values; i++) x[i] = (float)(kh_random() % (unsigned)values);
    kh_out(&k, SY_F32, 3, B, T, K);
    kh_out(&k, SY_I32, 3, B, T, K);
    kh_check(&k, "top_k");
    for (int row = 0; row < B * T; row++, x += V) {
        const float *value = (float *)k.want[0] + row * K;
        const int32_t *index = (int32_t *)k.want[1] + row * K;
        for (int i = 0; i < V; i++) {
            int rank = 0;
            for (int j = 0; j < V; j++) rank += is_before(x, j, i);
            if (rank >= K) continue;
            cr_assert_eq(index[rank], i, "row %d: choice %d is %d, expected %d", row, rank, index[rank], i);
            cr_assert_eq(memcmp(&value[rank], &x[i], sizeof x[i]), 0);
        }
        for (int i = V; i < K; i++) cr_assert(index[i] == -1 && value[i] == -INFINITY);
    }
    kh_end(&k);
}

Test(rows, top_k)
{
    static const int sizes[] = {1, 2, 5, 16, 100, 300};
    for (int i = 0; i < 6; i++) {
        for (int K = 1; K <= 16; K = 2 * K + 1) {
            top_k(2, 3, sizes[i], K, 0, 0);
            top_k(2, 3, sizes[i], K, 0, 60);
            top_k(1, 5, sizes[i], K, 4, 0);
            top_k(1, 2, sizes[i], K, 1, 0);
        }
        top_k(1, 2, sizes[i], sizes[i], 7, 0);
    }
    for (int K = 8; K <= 1500; K = K == 8 ? 1100 : K + 400) { /* as long as a vocabulary */
        top_k(1, 2, 1500, K, 0, 0);
        top_k(1, 1, 1500, K, 0, 60);
        top_k(1, 1, 1500, K, 3, 0);
        top_k(1, 1, 1500, K, 1, 0);
    }
}
