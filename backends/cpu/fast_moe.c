/* SPDX-License-Identifier: Apache-2.0 */
/* Moving tokens into expert buffers and back, threaded and vectorised. Who writes the buffer goes over its
 * places, which first get the index of the choice that fills them: so every row is written once. Routing
 * itself is in ref_route.c. */
#include "config.h"

#include "backends/cpu/fast.h"
#include "backends/cpu/fast_far.h"
#include "backends/cpu/moe.h"

/* ---- from tokens to the buffer ---- */

static uint64_t places_bytes(const struct sy_tensor *buffer)
{
    return (uint64_t)sycpu_extent(buffer, 3) * sizeof(int32_t);
}

/* filler[place]: the choice there, or -1. dgate, where not NULL, becomes 0 for choices without a place. */
static void find_fillers(const struct sycpu_moe *moe, int32_t *filler, float *dgate)
{
    int64_t row_choices = moe->length * moe->choices;
    memset(filler, 0xff, (size_t)(moe->experts * moe->groups * moe->slots) * sizeof(int32_t));
    for (int64_t row = 0; row < moe->rows; row++)
        for (int64_t i = row * row_choices; i < (row + 1) * row_choices; i++) {
            int64_t place = sycpu_moe_place(moe, row, i);
            if (place >= 0)
                filler[place] = (int32_t)i;
            else if (dgate)
                dgate[i] = 0;
        }
}

static void dispatch_places(const struct sy_call *call, int64_t first, int64_t end)
{
    const int32_t *filler = call->workspace;
    int64_t dim = call->out[0].dim[3], choices = call->in[1].dim[2];
    size_t bytes = (size_t)dim * (fast_is_bf16(&call->out[0]) ? 2 : 4);
    for (int64_t place = first; place < end; place++) {
        void *to = fast_at(&call->out[0], place * dim);
        if (filler[place] < 0)
            fast_zero(&call->out[0], place * dim, dim);
        else
            memcpy(to, fast_at(&call->in[0], filler[place] / choices * dim), bytes);
    }
}

uint64_t fast_dispatch_workspace(const struct sy_call *call, int threads)
{
    (void)threads;
    return places_bytes(&call->out[0]);
}

int fast_dispatch(void *context, const struct sy_call *call)
{
    struct sycpu_moe moe = sycpu_moe_sizes(call, &call->out[0], &call->in[1], &call->in[2]);
    (void)context;
    find_fillers(&moe, call->workspace, NULL);
    fast_rows(call, sycpu_extent(&call->out[0], 3), moe.dim, dispatch_places);
    return SY_OK;
}

static void combine_grad_places(const struct sy_call *call, int64_t first, int64_t end)
{
    const int32_t *filler = call->workspace;
    int64_t dim = call->out[0].dim[3], choices = call->in[1].dim[2];
    const float *buffer = (const float *)call->in[0].data, *gate = call->in[3].data, *dout = call->in[4].data;
    float *dbuffer = call->out[0].data, *dgate = call->out[1].data;
    for (int64_t place = first; place < end; place++) {
        float *to = dbuffer + place * dim;
        int64_t choice = filler[place];
        if (choice < 0) {
            fast_zero(&call->out[0], place * dim, dim);
            continue;
        }
        const float *from = dout + choice / choices * dim;
        const vf factor = vf_set(gate[choice]);
        dgate[choice] = vf_row_dot(from, buffer + place * dim, dim);
#define SCALE(d, n) fast_store(to + (d), vf_mul(factor, fast_load(from + (d), (n))), (n))
        FAST_COLUMNS(d, dim, SCALE);
#undef SCALE
    }
}

uint64_t fast_combine_grad_workspace(const struct sy_call *call, int threads)
{
    (void)threads;
    return places_bytes(&call->in[0]);
}

int fast_combine_grad(void *context, const struct sy_call *call)
{
    struct sycpu_moe moe = sycpu_moe_sizes(call, &call->in[0], &call->in[1], &call->in[2]);
    (void)context;
    find_fillers(&moe, call->workspace, call->out[1].data);
    fast_rows(call, sycpu_extent(&call->in[0], 3), moe.dim, combine_grad_places);
    return SY_OK;
}

/* ---- from the buffer to tokens ---- */

/* out = sum + gate * row, or sum + row where gate is NULL; the sum is out as it was, or +0. */
static void add_row(const float *row, const float *gate, int64_t dim, int fresh, float *out)
{
    const vf zero = vf_set(0.0f), factor = vf_set(gate ? *gate : 0.0f);
#define ADD(d, n)                                                                                            \
    {                                                                                                        \
        vf sum = fresh ? zero : fast_load(out + (d), (n)), x = fast_load(row + (d), (n));                    \
        fast_store(out + (d), gate ? vf_fma(factor, x, sum) : vf_add(sum, x), (n));                          \
    }
    FAST_COLUMNS(d, dim, ADD);
#undef ADD
}

static void gather(const struct sy_call *call, const float *gate, int64_t first, int64_t end)
{
    struct sycpu_moe moe = sycpu_moe_sizes(call, &call->in[0], &call->in[1], &call->in[2]);
    const float *buffer = call->in[0].data;
    float *out = (float *)call->out[0].data + first * moe.dim;
    for (int64_t token = first; token < end; token++, out += moe.dim) {
        int fresh = 1;
        for (int64_t i = token * moe.choices; i < (token + 1) * moe.choices; i++) {
            int64_t place = sycpu_moe_place(&moe, token / moe.length, i);
            if (place < 0) continue;
            add_row(buffer + place * moe.dim, gate ? gate + i : NULL, moe.dim, fresh, out);
            fresh = 0;
        }
        if (fresh) memset(out, 0, (size_t)moe.dim * sizeof(float));
    }
}

static void dispatch_grad_tokens(const struct sy_call *call, int64_t first, int64_t end)
{
    gather(call, NULL, first, end);
}

static void combine_tokens(const struct sy_call *call, int64_t first, int64_t end)
{
    gather(call, call->in[3].data, first, end);
}

int fast_dispatch_grad(void *context, const struct sy_call *call)
{
    (void)context;
    fast_rows(call, sycpu_extent(&call->out[0], 2), call->out[0].dim[2], dispatch_grad_tokens);
    return SY_OK;
}

int fast_combine(void *context, const struct sy_call *call)
{
    (void)context;
    fast_rows(call, sycpu_extent(&call->out[0], 2), call->out[0].dim[2], combine_tokens);
    return SY_OK;
}
