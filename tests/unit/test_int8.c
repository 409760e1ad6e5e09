/* SPDX-License-Identifier: Apache-2.0 */
/* int8 weights: each channel's error bound, channels that do not touch each other, channels of zeros, weights that are not
 * finite, and which parameters have them. */
#include "config.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "base/int8.h"

enum { OUTER = 3, SUMMED = 17, INNER = 5, N = OUTER * SUMMED * INNER, CHANNELS = OUTER * INNER };

static const struct syi_int8_shape shapes[] = {
    {OUTER, SUMMED, INNER}, {1, SUMMED *OUTER, INNER}, {CHANNELS, SUMMED, 1}};

static size_t channel_of(const struct syi_int8_shape *s, size_t i)
{
    return i / (s->summed * s->inner) * s->inner + i % s->inner;
}

/* Numbers whose channels have sizes from 1e-3 to 1e+3. */
static void fill(const struct syi_int8_shape *s, float *w)
{
    uint32_t state = 12345;
    for (size_t i = 0; i < N; i++) {
        state = state * 1664525 + 1013904223;
        w[i] = (float)((double)state / 2147483648.0 - 1) * powf(10, (float)(channel_of(s, i) % 7) - 3);
    }
}

Test(int8, every_channel_has_its_bound)
{
    for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++) {
        const struct syi_int8_shape *s = &shapes[k];
        float w[N], scale[CHANNELS], largest[CHANNELS] = {0}, back[N];
        int8_t q[N];
        fill(s, w);
        cr_assert_leq(syi_int8_channels(s), CHANNELS);
        cr_assert(syi_int8_quantize(s, w, q, scale));
        syi_int8_expand(s, q, scale, back);
        for (size_t i = 0; i < N; i++)
            largest[channel_of(s, i)] = fmaxf(largest[channel_of(s, i)], fabsf(w[i]));
        for (size_t i = 0; i < N; i++) {
            size_t c = channel_of(s, i);
            cr_expect_eq(scale[c], largest[c] / 127, "shape %zu, channel %zu", k, c);
            cr_expect_leq(fabs((double)w[i] - (double)back[i]), 0.500001 * (double)scale[c],
                          "shape %zu, element %zu: %g is %g", k, i, w[i], back[i]);
            cr_expect(fabsf(w[i]) < largest[c] || abs(q[i]) == 127);
        }
    }
}

/* As a packed model is read: the int8 numbers lie in the last quarter of the place that they expand to. */
Test(int8, expands_in_place)
{
    const struct syi_int8_shape *s = &shapes[0];
    float w[N], scale[CHANNELS], back[N], place[N];
    int8_t q[N];
    fill(s, w);
    cr_assert(syi_int8_quantize(s, w, q, scale));
    syi_int8_expand(s, q, scale, back);
    memcpy((int8_t *)place + 3 * N, q, N);
    syi_int8_expand(s, (int8_t *)place + 3 * N, scale, place);
    cr_expect_arr_eq(place, back, sizeof back);
}

Test(int8, a_channel_of_zeros_or_of_the_smallest_numbers)
{
    const struct syi_int8_shape shape = {1, 3, 2};
    const float w[6] = {0, 1e-45F, -0.0F, -1e-45F, 0, 0};
    float scale[2], back[6];
    int8_t q[6];
    cr_assert(syi_int8_quantize(&shape, w, q, scale));
    cr_expect_eq(scale[0], 0);
    syi_int8_expand(&shape, q, scale, back);
    for (int i = 0; i < 6; i++) cr_expect_eq(back[i], 0, "element %d is %g", i, back[i]);
}

Test(int8, refuses_what_is_not_finite)
{
    const float bad[] = {NAN, INFINITY, -INFINITY};
    for (int b = 0; b < 3; b++)
        for (size_t i = 0; i < N; i += 11) {
            float w[N], scale[CHANNELS];
            int8_t q[N];
            fill(&shapes[0], w);
            w[i] = bad[b];
            cr_expect_not(syi_int8_quantize(&shapes[0], w, q, scale), "%g as element %zu", bad[b], i);
        }
}

Test(int8, which_parameters)
{
    static const struct {
        const char *name;
        int rank, axis;
    } cases[] = {{"target/encoder/layers_0/attention/query/kernel", 2, 0},
                 {"target/encoder/layers_1/mlp/expert/wi/kernel", 3, 1},
                 {"target/token_embedder/embedding", 2, 1},
                 {"target/decoder/logits_dense/kernel", 2, 0},
                 {"target/encoder/layers_1/mlp/router/router_weights/w/kernel", 2, -1},
                 {"target/encoder/layers_1/mlp/router/router_weights/w/bias", 1, -1},
                 {"target/encoder/relpos_bias/rel_embedding", 2, -1},
                 {"target/encoder/layers_0/pre_mlp_layer_norm/scale", 1, -1}};
    const int64_t dims[] = {4, 6, 8};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        cr_expect_eq(syi_int8_axis(cases[i].name, cases[i].rank), cases[i].axis, "%s", cases[i].name);
    struct syi_int8_shape experts = syi_int8_shape(dims, 3, 1), rows = syi_int8_shape(dims, 2, 1);
    cr_expect(experts.outer == 4 && experts.summed == 6 && experts.inner == 8);
    cr_expect(rows.outer == 4 && rows.summed == 6 && rows.inner == 1);
}
