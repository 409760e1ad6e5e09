/* SPDX-License-Identifier: Apache-2.0 */
/* Gates, moving tokens into expert buffers and back, and the router's losses. route.cu says which expert and slot.
 *
 * A thread takes a token's choices (gate) or one probability (gate_grad). A block takes rows of the result of dispatch,
 * combine and dispatch_grad, its threads 4 columns each. Every row is written once: which choice lies at a place of a
 * buffer is found out first, into the workspace. combine_grad has 16 threads a row of the buffer, for its dot product.
 * Of the losses a thread takes the mass of one expert in a group, a chain over its tokens, which it reads BATCH at a
 * time. */
#include "backends/cuda/cuda.h"

enum { BATCH = 32 };

template <class T> __device__ static inline int is_real(const T *mask, int64_t token)
{
    return !mask || sycuda_read(mask + token) != 0;
}

/* ---- gate ---- */

/* A token's choices. */
template <class T> struct choices {
    const T *p;                   /* [e] */
    const int32_t *expert, *slot; /* [k] */
    int64_t k;

    /* Over the choices, dropped ones included. */
    __device__ float sum() const
    {
        float sum = 0;
        for (int64_t j = 0; j < k; j++)
            if (expert[j] >= 0) sum += sycuda_read(p + expert[j]);
        return sum;
    }
};

template <class In, class Out>
__global__ void gate_tokens(const In *p, const int32_t *expert, const int32_t *slot, Out *gate,
                            int64_t tokens, int64_t experts, int64_t k, int normalize)
{
    for (int64_t token = sycuda_first(); token < tokens; token += sycuda_stride()) {
        struct choices<In> c = {
            p + token *experts, expert + token *k, slot + token *k, k
        };
        float sum = normalize ? c.sum() : 1;
        for (int64_t j = 0; j < k; j++)
            sycuda_write(gate + token * k + j,
                         c.slot[j] < 0 || sum == 0 ? 0 : sycuda_read(c.p + c.expert[j]) / sum);
    }
}

int sycuda_gate(void *context, const struct sy_call *call)
{
    int64_t experts = call->in[0].dim[2], tokens = sycuda_extent(&call->in[0], 2);
    int normalize = sycuda_attr<sy_attr_gate>(call)->normalize != 0;
    sycuda_by_dtypes(call->in[0].dtype, call->out[0].dtype, [&](auto a, auto b) {
        using In = decltype(a);
        using Out = decltype(b);
        SYCUDA_LAUNCH_FREE((gate_tokens<In, Out>), sycuda_blocks(tokens, 64), 64, sycuda_stream(context),
                           sycuda_in<In>(call, 0), sycuda_in<int32_t>(call, 1), sycuda_in<int32_t>(call, 2),
                           sycuda_out<Out>(call, 0), tokens, experts, call->in[1].dim[2], normalize);
    });
    return sycuda_launched(context, "gate");
}

/* Gradient of the probability of expert e. */
template <class T>
__device__ static inline float gate_slope(const struct choices<T> &c, const T *dgate, int32_t e,
                                          int normalize)
{
    float sum = normalize ? c.sum() : 1, common = 0, slope = 0;
    if (sum == 0) return 0;
    for (int64_t j = 0; normalize && j < c.k; j++)
        if (c.slot[j] >= 0) common = fmaf(sycuda_read(dgate + j), sycuda_read(c.p + c.expert[j]), common);
    common /= sum;
    for (int64_t j = 0; j < c.k; j++) {
        if (c.expert[j] != e) continue;
        float d = c.slot[j] < 0 ? 0 : sycuda_read(dgate + j);
        if (normalize)
            slope += (d - common) / sum;
        else if (c.slot[j] >= 0)
            slope += d;
    }
    return slope;
}

template <class In, class Out>
__global__ void gate_grad_probabilities(const In *dgate, const int32_t *expert, const int32_t *slot,
                                        const In *p, Out *dp, int64_t tokens, int64_t experts, int64_t k,
                                        int normalize)
{
    for (int64_t i = sycuda_first(); i < tokens * experts; i += sycuda_stride()) {
        int64_t token = i / experts, at = token * k;
        struct choices<In> c = {
            p + token *experts, expert + at, slot + at, k
        };
        sycuda_write(dp + i, gate_slope(c, dgate + at, (int32_t)(i % experts), normalize));
    }
}

int sycuda_gate_grad(void *context, const struct sy_call *call)
{
    int64_t experts = call->out[0].dim[2], tokens = sycuda_extent(&call->out[0], 2);
    int normalize = sycuda_attr<sy_attr_gate>(call)->normalize != 0;
    sycuda_by_dtypes(call->in[0].dtype, call->out[0].dtype, [&](auto a, auto b) {
        using In = decltype(a);
        using Out = decltype(b);
        SYCUDA_LAUNCH_FREE((gate_grad_probabilities<In, Out>),
                           sycuda_blocks(tokens * experts, SYCUDA_THREADS), SYCUDA_THREADS,
                           sycuda_stream(context), sycuda_in<In>(call, 0), sycuda_in<int32_t>(call, 1),
                           sycuda_in<int32_t>(call, 2), sycuda_in<In>(call, 3), sycuda_out<Out>(call, 0),
                           tokens, experts, call->in[1].dim[2], normalize);
    });
    return sycuda_launched(context, "gate_grad");
}

/* ---- places in the buffer ---- */

/* Of choices [b,t,k] in a buffer [e,g,c,d]. */
struct moe_places {
    const int32_t *expert, *slot;
    int64_t tokens, k, group_tokens;     /* in all; of a group */
    int64_t experts, groups, slots, dim; /* of the buffer */
};

static struct moe_places places_of(const struct sy_call *call, const struct sy_tensor *buffer)
{
    const struct sy_tensor *expert = &call->in[1];
    int64_t group_rows = sycuda_attr<sy_attr_group>(call)->group_rows;
    return {sycuda_in<int32_t>(call, 1),
            sycuda_in<int32_t>(call, 2),
            expert->dim[0] * expert->dim[1],
            expert->dim[2],
            group_rows * expert->dim[1],
            buffer->dim[0],
            buffer->dim[1],
            buffer->dim[2],
            buffer->dim[3]};
}

static int64_t rows_of(const struct moe_places &p)
{
    return p.experts * p.groups * p.slots;
}

/* The row of the buffer of a token's choice, or -1; group: the token's. */
__device__ static inline int64_t place_of(const struct moe_places &p, int64_t choice, int64_t group)
{
    return p.slot[choice] < 0 ? -1 : (p.expert[choice] * p.groups + group) * p.slots + p.slot[choice];
}

/* choice_at: [e][g][c], holding -1. dgate: [b,t,k] or NULL; that of dropped choices becomes 0. */
__global__ void invert_places(struct moe_places p, int32_t *choice_at, float *dgate)
{
    for (int64_t i = sycuda_first(); i < p.tokens * p.k; i += sycuda_stride()) {
        int64_t place = place_of(p, i, i / p.k / p.group_tokens);
        if (place >= 0)
            choice_at[place] = (int32_t)i;
        else if (dgate)
            dgate[i] = 0;
    }
}

/* Fills the workspace of a call: the choice at each place, or -1. */
static int32_t *invert(void *context, const struct sy_call *call, const struct moe_places &p, float *dgate)
{
    int32_t *choice_at = static_cast<int32_t *>(call->workspace);
    (void)cudaMemsetAsync(choice_at, 0xff, (size_t)rows_of(p) * sizeof *choice_at, sycuda_stream(context));
    SYCUDA_LAUNCH_FREE(invert_places, sycuda_blocks(p.tokens * p.k, SYCUDA_THREADS), SYCUDA_THREADS,
                       sycuda_stream(context), p, choice_at, dgate);
    return choice_at;
}

/* Columns that a thread moves at once. */
template <class T, int N> struct alignas(N * sizeof(T)) pack {
    T at[N];
};

/* fn(integral constant N), N the columns of a pack that divide a row. */
template <int N> struct width {
    enum { value = N };
};
template <class Fn> static void by_width(int64_t dim, Fn fn)
{
    if (dim % 4 == 0)
        fn(width<4>());
    else
        fn(width<1>());
}

/* ---- dispatch and combine ---- */

template <int N, class In, class Out>
__global__ void dispatch_rows(const In *__restrict__ x, const int32_t *__restrict__ choice_at,
                              Out *__restrict__ buffer, struct moe_places p, int64_t rows)
{
    for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
        int32_t choice = choice_at[row];
        const auto *from = reinterpret_cast<const pack<In, N> *>(x + (choice < 0 ? 0 : choice / p.k * p.dim));
        auto *to = reinterpret_cast<pack<Out, N> *>(buffer + row * p.dim);
        for (int64_t c = threadIdx.x; c < p.dim / N; c += blockDim.x) {
            pack<In, N> value = {};
            pack<Out, N> y;
            if (choice >= 0) value = from[c];
            for (int i = 0; i < N; i++) sycuda_write(&y.at[i], sycuda_read(&value.at[i]));
            to[c] = y;
        }
    }
}

uint64_t sycuda_dispatch_workspace(const struct sy_call *call, int)
{
    return (uint64_t)rows_of(places_of(call, &call->out[0])) * sizeof(int32_t);
}

int sycuda_dispatch(void *context, const struct sy_call *call)
{
    struct moe_places p = places_of(call, &call->out[0]);
    const int32_t *choice_at = invert(context, call, p, nullptr);
    sycuda_by_dtypes(call->in[0].dtype, call->out[0].dtype, [&](auto a, auto b) {
        using In = decltype(a);
        using Out = decltype(b);
        by_width(p.dim, [&](auto w) {
            SYCUDA_LAUNCH_FREE((dispatch_rows<decltype(w)::value, In, Out>), sycuda_blocks(rows_of(p), 1),
                               sycuda_threads_for(p.dim / w.value, SYCUDA_THREADS), sycuda_stream(context),
                               sycuda_in<In>(call, 0), choice_at, sycuda_out<Out>(call, 0), p, rows_of(p));
        });
    });
    return sycuda_launched(context, "dispatch");
}

/* out[token] = sum over its kept choices of gate * the row of the buffer, or of the row itself where gate is NULL. */
template <int N, class In, class Out>
__global__ void gather_tokens(const In *__restrict__ buffer, const float *__restrict__ gate,
                              Out *__restrict__ out, struct moe_places p)
{
    for (int64_t token = blockIdx.x; token < p.tokens; token += gridDim.x) {
        int64_t group = token / p.group_tokens;
        for (int64_t c = threadIdx.x; c < p.dim / N; c += blockDim.x) {
            float sum[N] = {};
            for (int64_t choice = token * p.k; choice < (token + 1) * p.k; choice++) {
                int64_t place = place_of(p, choice, group);
                if (place < 0) continue;
                pack<In, N> value = reinterpret_cast<const pack<In, N> *>(buffer + place * p.dim)[c];
                for (int i = 0; i < N; i++)
                    sum[i] = gate ? fmaf(gate[choice], sycuda_read(&value.at[i]), sum[i])
                                  : sum[i] + sycuda_read(&value.at[i]);
            }
            pack<Out, N> y;
            for (int i = 0; i < N; i++) sycuda_write(&y.at[i], sum[i]);
            reinterpret_cast<pack<Out, N> *>(out + token * p.dim)[c] = y;
        }
    }
}

static int gather(void *context, const struct sy_call *call, const float *gate, const char *op)
{
    struct moe_places p = places_of(call, &call->in[0]);
    sycuda_by_dtypes(call->in[0].dtype, call->out[0].dtype, [&](auto a, auto b) {
        using In = decltype(a);
        using Out = decltype(b);
        by_width(p.dim, [&](auto w) {
            SYCUDA_LAUNCH_FREE((gather_tokens<decltype(w)::value, In, Out>), sycuda_blocks(p.tokens, 1),
                               sycuda_threads_for(p.dim / w.value, SYCUDA_THREADS), sycuda_stream(context),
                               sycuda_in<In>(call, 0), gate, sycuda_out<Out>(call, 0), p);
        });
    });
    return sycuda_launched(context, op);
}

int sycuda_dispatch_grad(void *context, const struct sy_call *call)
{
    return gather(context, call, nullptr, "dispatch_grad");
}

int sycuda_combine(void *context, const struct sy_call *call)
{
    return gather(context, call, sycuda_in<float>(call, 3), "combine");
}

/* Rows of the buffer without a choice become 0. */
template <class In, class Out>
__global__ void combine_grad_rows(const In *__restrict__ buffer, const int32_t *__restrict__ choice_at,
                                  const float *__restrict__ gate, const float *__restrict__ dout,
                                  Out *__restrict__ dbuffer, float *__restrict__ dgate, struct moe_places p,
                                  int64_t rows)
{
    for (int64_t row = sycuda_row(); row - sycuda_row_of_warp() < rows; row += sycuda_row_stride()) {
        int64_t there = row < rows ? p.dim : 0;
        int32_t choice = there ? choice_at[row] : -1;
        const float *from = dout + (choice < 0 ? 0 : choice / p.k * p.dim);
        float lane = 0, factor = choice < 0 ? 0 : gate[choice];
        for (int64_t d = sycuda_lane(); d < there; d += SYCUDA_LANES) {
            float slope = choice < 0 ? 0 : from[d];
            if (choice >= 0) lane = fmaf(slope, sycuda_read(buffer + row * p.dim + d), lane);
            sycuda_write(dbuffer + row * p.dim + d, choice < 0 ? 0 : factor * slope);
        }
        lane = sycuda_lane_sum(lane);
        if (choice >= 0 && sycuda_lane() == 0) dgate[choice] = lane;
    }
}

uint64_t sycuda_combine_grad_workspace(const struct sy_call *call, int)
{
    return (uint64_t)rows_of(places_of(call, &call->in[0])) * sizeof(int32_t);
}

int sycuda_combine_grad(void *context, const struct sy_call *call)
{
    struct moe_places p = places_of(call, &call->in[0]);
    float *dgate = sycuda_out<float>(call, 1);
    const int32_t *choice_at = invert(context, call, p, dgate);
    sycuda_by_dtypes(call->in[0].dtype, call->out[0].dtype, [&](auto a, auto b) {
        using In = decltype(a);
        using Out = decltype(b);
        SYCUDA_LAUNCH((combine_grad_rows<In, Out>), sycuda_row_blocks(rows_of(p)), SYCUDA_THREADS, 0,
                      sycuda_stream(context), sycuda_in<In>(call, 0), choice_at, sycuda_in<float>(call, 3),
                      sycuda_in<float>(call, 4), sycuda_out<Out>(call, 0), dgate, p, rows_of(p));
    });
    return sycuda_launched(context, "combine_grad");
}

/* ---- router losses ---- */

/* Sizes of a loss, and what is found out about rows and experts first, in the workspace. */
struct losses {
    int64_t rows, length, experts, groups, group_rows;
    int32_t *real; /* [rows] real tokens */
    float *z;      /* [rows] row sums of lse^2 */
    float *mass;   /* [g][e] sums of probabilities; of the gradient, what a real token's probability gets */
};

static struct losses losses_of(const struct sy_call *call, const struct sy_tensor *probability)
{
    struct losses l = {};
    l.rows = probability->dim[0];
    l.length = probability->dim[1];
    l.experts = probability->dim[2];
    l.group_rows = sycuda_attr<sy_attr_group>(call)->group_rows;
    l.groups = l.rows / l.group_rows;
    l.real = static_cast<int32_t *>(call->workspace);
    l.z = reinterpret_cast<float *>(l.real + l.rows);
    l.mass = l.z + l.rows;
    return l;
}

static uint64_t losses_bytes(const struct losses &l)
{
    return (uint64_t)(2 * l.rows + l.groups * l.experts) * sizeof(float);
}

/* 16 threads a row: l.real and, unless lse is NULL, l.z. */
template <class T> __global__ void loss_rows(const T *mask, const T *lse, struct losses l)
{
    for (int64_t row = sycuda_row(); row - sycuda_row_of_warp() < l.rows; row += sycuda_row_stride()) {
        int64_t there = row < l.rows ? l.length : 0;
        int real = 0;
        float lane = 0;
        for (int64_t t = sycuda_lane(); t < there; t += SYCUDA_LANES) {
            if (!is_real(mask, row * l.length + t)) continue;
            float value = lse ? sycuda_read(lse + row * l.length + t) : 0;
            lane = fmaf(value, value, lane);
            real++;
        }
        lane = sycuda_lane_sum(lane);
        for (unsigned s = SYCUDA_LANES / 2; s >= 1; s /= 2)
            real += __shfl_down_sync(0xffffffffu, real, s, SYCUDA_LANES);
        if (there && sycuda_lane() == 0) {
            l.real[row] = real;
            l.z[row] = lane;
        }
    }
}

/* What a token adds to the mass of an expert. */
template <class T>
__device__ static inline float mass_of(const T *p, const T *mask, const struct losses &l, int64_t token,
                                       int64_t e)
{
    return is_real(mask, token) ? sycuda_read(p + token * l.experts + e) : 0;
}

/* l.mass; adding +0 for tokens that are not real changes no sum that began at +0. */
template <class T>
__global__ void loss_mass(const T *__restrict__ p, const T *__restrict__ mask, struct losses l)
{
    for (int64_t i = sycuda_first(); i < l.groups * l.experts; i += sycuda_stride()) {
        int64_t tokens = l.group_rows * l.length, token = i / l.experts * tokens, end = token + tokens,
                e = i % l.experts;
        float sum = 0;
        for (; token + BATCH <= end; token += BATCH) {
            float value[BATCH];
            for (int j = 0; j < BATCH; j++) value[j] = mass_of(p, mask, l, token + j, e);
            for (int j = 0; j < BATCH; j++) sum += value[j];
        }
        for (; token < end; token++) sum += mass_of(p, mask, l, token, e);
        l.mass[i] = sum;
    }
}

__device__ static inline int64_t real_of_group(const struct losses &l, int64_t group)
{
    int64_t real = 0;
    for (int64_t row = 0; row < l.group_rows; row++) real += l.real[group * l.group_rows + row];
    return real;
}

/* A thread a group. */
template <class Out> __global__ void loss_groups(const int32_t *chosen, struct losses l, Out *balance, Out *z)
{
    for (int64_t group = sycuda_first(); group < l.groups; group += sycuda_stride()) {
        int64_t real = real_of_group(l, group);
        float sum = 0, squares = 0;
        for (int64_t row = 0; row < l.group_rows; row++) squares += l.z[group * l.group_rows + row];
        for (int64_t e = 0; e < l.experts; e++)
            sum = fmaf((float)chosen[e * l.groups + group], l.mass[group * l.experts + e], sum);
        sycuda_write(balance + group, real ? (float)l.experts * sum / (float)real : 0);
        sycuda_write(z + group, squares);
    }
}

uint64_t sycuda_router_loss_workspace(const struct sy_call *call, int)
{
    return losses_bytes(losses_of(call, &call->in[0]));
}

int sycuda_router_loss(void *context, const struct sy_call *call)
{
    struct losses l = losses_of(call, &call->in[0]);
    cudaStream_t stream = sycuda_stream(context);
    sycuda_by_dtypes(call->in[0].dtype, call->out[0].dtype, [&](auto a, auto b) {
        using In = decltype(a);
        using Out = decltype(b);
        const In *mask = sycuda_optional<In>(call, 3);
        SYCUDA_LAUNCH((loss_rows<In>), sycuda_row_blocks(l.rows), SYCUDA_THREADS, 0, stream, mask,
                      sycuda_in<In>(call, 1), l);
        SYCUDA_LAUNCH_FREE((loss_mass<In>), sycuda_blocks(l.groups * l.experts, 32), 32, stream,
                           sycuda_in<In>(call, 0), mask, l);
        SYCUDA_LAUNCH_FREE((loss_groups<Out>), sycuda_blocks(l.groups, 32), 32, stream,
                           sycuda_in<int32_t>(call, 2), l, sycuda_out<Out>(call, 0),
                           sycuda_out<Out>(call, 1));
    });
    return sycuda_launched(context, "router_loss");
}

/* l.mass from l.real: one thread an expert of a group. */
template <class T> __global__ void loss_slopes(const int32_t *chosen, const T *dbalance, struct losses l)
{
    for (int64_t i = sycuda_first(); i < l.groups * l.experts; i += sycuda_stride()) {
        int64_t group = i / l.experts, e = i % l.experts;
        float real = (float)real_of_group(l, group), count = (float)chosen[e * l.groups + group];
        l.mass[i] = (float)l.experts * count / real * sycuda_read(dbalance + group);
    }
}

template <class In, class Out>
__global__ void loss_grad_tokens(const In *lse, const In *mask, const In *dz, struct losses l, Out *dp,
                                 Out *dlse)
{
    for (int64_t i = sycuda_first(); i < l.rows * l.length * l.experts; i += sycuda_stride()) {
        int64_t token = i / l.experts, e = i % l.experts, group = token / (l.group_rows * l.length);
        int real = is_real(mask, token);
        sycuda_write(dp + i, real ? l.mass[group * l.experts + e] : 0);
        if (e == 0)
            sycuda_write(dlse + token, real ? 2 * sycuda_read(lse + token) * sycuda_read(dz + group) : 0);
    }
}

uint64_t sycuda_router_loss_grad_workspace(const struct sy_call *call, int)
{
    return losses_bytes(losses_of(call, &call->out[0]));
}

int sycuda_router_loss_grad(void *context, const struct sy_call *call)
{
    struct losses l = losses_of(call, &call->out[0]);
    cudaStream_t stream = sycuda_stream(context);
    sycuda_by_dtypes(call->in[0].dtype, call->out[0].dtype, [&](auto a, auto b) {
        using In = decltype(a);
        using Out = decltype(b);
        const In *mask = sycuda_optional<In>(call, 2), *none = nullptr;
        SYCUDA_LAUNCH((loss_rows<In>), sycuda_row_blocks(l.rows), SYCUDA_THREADS, 0, stream, mask, none, l);
        SYCUDA_LAUNCH_FREE((loss_slopes<In>), sycuda_blocks(l.groups * l.experts, 32), 32, stream,
                           sycuda_in<int32_t>(call, 1), sycuda_in<In>(call, 3), l);
        SYCUDA_LAUNCH_FREE((loss_grad_tokens<In, Out>),
                           sycuda_blocks(l.rows * l.length * l.experts, SYCUDA_THREADS), SYCUDA_THREADS,
                           stream, sycuda_in<In>(call, 0), mask, sycuda_in<In>(call, 4), l,
                           sycuda_out<Out>(call, 0), sycuda_out<Out>(call, 1));
    });
    return sycuda_launched(context, "router_loss_grad");
}
