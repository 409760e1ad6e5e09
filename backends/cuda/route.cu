/* SPDX-License-Identifier: Apache-2.0 */
/* The two routers and the places of a buffer without gaps.
 *
 * Tokens choose: a thread takes a token and finds its experts, then a block takes a group and grants slots to its
 * tokens in their order, as many at a time as it has threads; the slot of one is the count of its expert so far, of the
 * warps before its own and, by ballots, of the lanes before its own. Experts choose: a block takes one expert of a
 * group; the keys of the first HELD tokens stay in shared memory. */
#include "backends/cuda/select.h"

enum {
    MOST_THREADS = 1024, /* that grant slots */
    HELD = 8192,         /* keys */
    SHARED_COUNTS = 8192 /* int32 of shared memory for the counts of experts: 32 KB */
};

/* Attributes and outputs that both routers have. */
struct routing {
    int32_t *expert, *slot, *chosen, *kept;
    int64_t tokens, experts, groups, selected; /* tokens of a group; selected: choices of a token */
    int64_t capacity, min_capacity;
    double capacity_factor; /* 0: `capacity` is the rule */
};

template <class Attr> static struct routing routing_of(const struct sy_call *call)
{
    const Attr *attr = sycuda_attr<Attr>(call);
    const int64_t *dim = call->in[0].dim;
    return {sycuda_out<int32_t>(call, 0), sycuda_out<int32_t>(call, 1), sycuda_out<int32_t>(call, 2),
            sycuda_out<int32_t>(call, 3), attr->group_rows * dim[1],    dim[2],
            dim[0] / attr->group_rows,    call->out[0].dim[2],          attr->capacity,
            attr->min_capacity,           attr->capacity_factor};
}

template <class T> __device__ static inline int is_real(const T *mask, int64_t token)
{
    return !mask || sycuda_read(mask + token) != 0;
}

/* Slots of an expert in a group with so many real tokens. */
__device__ static inline int64_t capacity_of(const struct routing &r, int64_t tokens)
{
    if (!(r.capacity_factor > 0)) return r.capacity;
    double slots = rint(r.capacity_factor * (double)tokens / (double)r.experts);
    if (slots < (double)r.min_capacity) slots = (double)r.min_capacity;
    return slots < (double)r.capacity ? (int64_t)slots : r.capacity;
}

/* The sum of what each thread of the block brings; all threads get it. */
__device__ static inline int32_t block_sum(int32_t own)
{
    __shared__ int32_t sum;
    if (threadIdx.x == 0) sum = 0;
    __syncthreads();
    if (own) atomicAdd(&sum, own);
    __syncthreads();
    int32_t all = sum;
    __syncthreads();
    return all;
}

/* ---- tokens choose ---- */

/* The expert of largest probability plus bias, the lowest of equals, without those in taken[0..n); -1: none is left. */
template <class T>
__device__ static inline int32_t best_expert(const T *p, const T *bias, int64_t experts, const int32_t *taken,
                                             int64_t n)
{
    int32_t best = -1;
    float most = 0;
    for (int32_t e = 0; e < experts; e++) {
        float score = bias ? sycuda_read(p + e) + sycuda_read(bias + e) : sycuda_read(p + e);
        if (best >= 0 && !(score > most)) continue;
        int is_taken = 0;
        for (int64_t i = 0; i < n; i++) is_taken |= taken[i] == e;
        if (is_taken) continue;
        best = e;
        most = score;
    }
    return best;
}

template <class T> __global__ void choose_experts(const T *p, const T *mask, const T *bias, struct routing r)
{
    for (int64_t token = sycuda_first(); token < r.groups * r.tokens; token += sycuda_stride()) {
        int32_t *expert = r.expert + token * r.selected;
        int real = is_real(mask, token);
        for (int64_t j = 0; j < r.selected; j++) {
            expert[j] = real ? best_expert(p + token * r.experts, bias, r.experts, expert, j) : -1;
            r.slot[token * r.selected + j] = -1;
        }
    }
}

/* One choice of each thread, in the order of threads; -1: none. count: [e] choices so far, with these afterwards;
 * of_warp: [warps][e] zeros. Returns how many choices of the same expert were before. All threads call it. */
__device__ static inline int32_t next_in_line(int32_t expert, int64_t experts, int32_t *count,
                                              int32_t *of_warp)
{
    int32_t *own = of_warp + threadIdx.x / 32 * experts;
    unsigned same = __ballot_sync(0xffffffffu, expert >= 0);
    for (int64_t bit = 1; bit < experts; bit *= 2) {
        unsigned set = __ballot_sync(0xffffffffu, (expert & bit) != 0);
        same &= expert & bit ? set : ~set;
    }
    int32_t before = __popc(same & ((1u << threadIdx.x % 32) - 1));
    if (expert >= 0 && before == 0) own[expert] = __popc(same);
    __syncthreads();
    for (int64_t e = threadIdx.x; e < experts; e += blockDim.x) {
        int32_t sum = count[e];
        for (int64_t w = 0; w < blockDim.x / 32; w++) {
            int32_t more = of_warp[w * experts + e];
            of_warp[w * experts + e] = sum;
            sum += more;
        }
        count[e] = sum;
    }
    __syncthreads();
    if (expert >= 0) before += own[expert];
    __syncwarp();
    for (int64_t e = threadIdx.x % 32; e < experts; e += 32) own[e] = 0;
    __syncwarp();
    return before;
}

/* The real tokens of the group that begins at `first`, by descending probability (without bias) of their first choice,
 * of equals the lowest first. */
template <class T>
__device__ static inline void sort_tokens(const T *p, const struct routing &r, int64_t first, int64_t real,
                                          int32_t *order)
{
    auto key = [&](int64_t i) {
        int32_t e = r.expert[(first + i) * r.selected];
        return e < 0 ? 0 : sycuda_key(sycuda_read(p + (first + i) * r.experts + e));
    };
    sycuda_select(r.tokens, real, key, [=](int64_t place, int64_t i) { order[place] = (int32_t)i; });
}

/* order: [g][tokens] scratch of prioritized routing, or NULL; far: [g][1 + warps][e] counts where they are too many for
 * shared memory, or NULL. */
template <class T>
__global__ void __launch_bounds__(MOST_THREADS)
    grant_slots(const T *p, struct routing r, int32_t *order, int32_t *far)
{
    SYCUDA_DYNAMIC_SHARED(int32_t, near);
    const int64_t group = blockIdx.x, first = group * r.tokens, warps = blockDim.x / 32;
    int32_t *count = far ? far + group * (1 + warps) * r.experts : near, own = 0;
    for (int64_t i = threadIdx.x; i < (1 + warps) * r.experts; i += blockDim.x) count[i] = 0;
    for (int64_t i = threadIdx.x; i < r.tokens; i += blockDim.x)
        own += r.expert[(first + i) * r.selected] >= 0;
    int64_t real = block_sum(own), capacity = capacity_of(r, real), n = r.tokens;
    if (order) {
        order += first;
        n = real;
        sort_tokens(p, r, first, real, order);
    }
    for (int64_t j = 0; j < r.selected; j++)
        for (int64_t base = 0; base < n; base += blockDim.x) {
            int64_t i = base + threadIdx.x, choice = 0;
            if (i < n) choice = (first + (order ? order[i] : i)) * r.selected + j;
            int32_t expert = i < n ? r.expert[choice] : -1;
            int32_t asked = next_in_line(expert, r.experts, count, count + r.experts);
            if (expert >= 0) r.slot[choice] = asked < capacity ? asked : -1;
        }
    __syncthreads();
    for (int64_t e = threadIdx.x; e < r.experts; e += blockDim.x) {
        r.chosen[e * r.groups + group] = count[e];
        r.kept[e * r.groups + group] = count[e] < capacity ? count[e] : (int32_t)capacity;
    }
}

/* Threads of a block that grants slots, so many that their counts fit into shared memory, and whether they do. */
struct granting {
    int threads;
    int is_near;
    size_t counts; /* int32 of a group */
};

static struct granting granting_of(int64_t tokens, int64_t experts)
{
    struct granting g = {sycuda_threads_for(tokens, MOST_THREADS), 1, 0};
    while (g.threads > 32 && (1 + g.threads / 32) * experts > SHARED_COUNTS) g.threads = g.threads / 64 * 32;
    g.counts = (size_t)((1 + g.threads / 32) * experts);
    g.is_near = g.counts <= SHARED_COUNTS;
    return g;
}

/* The order of tokens, then counts. */
uint64_t sycuda_route_workspace(const struct sy_call *call, int)
{
    const struct sy_attr_route *attr = sycuda_attr<sy_attr_route>(call);
    struct routing r = routing_of<sy_attr_route>(call);
    struct granting g = granting_of(r.tokens, r.experts);
    uint64_t order = attr->prioritized ? (uint64_t)r.tokens : 0, far = g.is_near ? 0 : g.counts;
    return (uint64_t)r.groups * (order + far) * sizeof(int32_t);
}

int sycuda_route(void *context, const struct sy_call *call)
{
    struct routing r = routing_of<sy_attr_route>(call);
    struct granting g = granting_of(r.tokens, r.experts);
    int32_t *scratch = static_cast<int32_t *>(call->workspace), *order = nullptr;
    if (sycuda_attr<sy_attr_route>(call)->prioritized) {
        order = scratch;
        scratch += r.groups * r.tokens;
    }
    sycuda_by_dtype(call->in[0].dtype, [&](auto element) {
        using T = decltype(element);
        const T *p = sycuda_in<T>(call, 0);
        SYCUDA_LAUNCH_FREE((choose_experts<T>), sycuda_blocks(r.groups * r.tokens, 64), 64,
                           sycuda_stream(context), p, sycuda_optional<T>(call, 1),
                           sycuda_optional<T>(call, 2), r);
        SYCUDA_LAUNCH((grant_slots<T>), r.groups, g.threads, g.is_near ? g.counts * sizeof(int32_t) : 0,
                      sycuda_stream(context), p, r, order, g.is_near ? nullptr : scratch);
    });
    return sycuda_launched(context, "route");
}

/* ---- experts choose ---- */

/* Key of a token for an expert; 0: it is not real. */
template <class T>
__device__ static inline uint32_t token_key(const T *p, const T *mask, const struct routing &r, int64_t token,
                                            int64_t e)
{
    return is_real(mask, token) ? sycuda_key(sycuda_read(p + token * r.experts + e)) : 0;
}

/* expert and slot hold -1. */
template <class T> __global__ void choose_tokens(const T *p, const T *mask, struct routing r)
{
    SYCUDA_DYNAMIC_SHARED(uint32_t, held);
    const int64_t group = blockIdx.x / r.experts, e = blockIdx.x % r.experts, first = group * r.tokens;
    int32_t own = 0;
    for (int64_t i = threadIdx.x; i < r.tokens; i += blockDim.x) {
        uint32_t key = token_key(p, mask, r, first + i, e);
        own += key != 0;
        if (i < HELD) held[i] = key;
    }
    int64_t real = block_sum(own), capacity = capacity_of(r, real), n = real < capacity ? real : capacity;
    sycuda_select(
        r.tokens, n, [&](int64_t i) { return i < HELD ? held[i] : token_key(p, mask, r, first + i, e); },
        [&](int64_t place, int64_t i) {
            r.expert[(first + i) * r.experts + e] = (int32_t)e;
            r.slot[(first + i) * r.experts + e] = (int32_t)place;
        });
    if (threadIdx.x == 0) r.chosen[e * r.groups + group] = r.kept[e * r.groups + group] = (int32_t)n;
}

int sycuda_route_experts(void *context, const struct sy_call *call)
{
    struct routing r = routing_of<sy_attr_route_experts>(call);
    cudaStream_t stream = sycuda_stream(context);
    size_t bytes = (size_t)sycuda_count(&call->out[0]) * sizeof(int32_t);
    (void)cudaMemsetAsync(r.expert, 0xff, bytes, stream);
    (void)cudaMemsetAsync(r.slot, 0xff, bytes, stream);
    sycuda_by_dtype(call->in[0].dtype, [&](auto element) {
        using T = decltype(element);
        SYCUDA_LAUNCH((choose_tokens<T>), r.groups * r.experts, sycuda_threads_for(r.tokens, SYCUDA_THREADS),
                      (size_t)(r.tokens < HELD ? r.tokens : (int64_t)HELD) * sizeof(uint32_t), stream,
                      sycuda_in<T>(call, 0), sycuda_optional<T>(call, 1), r);
    });
    return sycuda_launched(context, "route_experts");
}

/* ---- a buffer without gaps ---- */

/* A warp a group: first[e][g] = sum of kept[i][g] over i < e. */
__global__ void first_places(const int32_t *kept, int32_t *first, int64_t experts, int64_t groups)
{
    const int lane = (int)(threadIdx.x % 32);
    for (int64_t group = blockIdx.x; group < groups; group += gridDim.x) {
        int32_t sum = 0; /* of the experts before these 32 */
        for (int64_t base = 0; base < experts; base += 32) {
            int64_t at = (base + lane) * groups + group;
            int32_t own = base + lane < experts ? kept[at] : 0, with = own;
            for (int s = 1; s < 32; s *= 2) {
                int32_t other = __shfl_up_sync(0xffffffffu, with, (unsigned)s);
                if (lane >= s) with += other;
            }
            if (base + lane < experts) first[at] = sum + with - own;
            sum += __shfl_sync(0xffffffffu, with, 31);
        }
    }
}

/* choices: of a group. */
__global__ void places_of_choices(const int32_t *expert, const int32_t *slot, const int32_t *first,
                                  int32_t *none, int32_t *place, int64_t choices, int64_t groups)
{
    for (int64_t i = sycuda_first(); i < choices * groups; i += sycuda_stride()) {
        none[i] = 0;
        place[i] = slot[i] < 0 ? -1 : first[expert[i] * groups + i / choices] + slot[i];
    }
}

int sycuda_ragged_places(void *context, const struct sy_call *call)
{
    const struct sy_tensor *expert = &call->in[0], *kept = &call->in[2];
    int64_t choices = sycuda_attr<sy_attr_group>(call)->group_rows * expert->dim[1] * expert->dim[2];
    int64_t experts = kept->dim[0], groups = kept->dim[1];
    int32_t *first = sycuda_out<int32_t>(call, 2);
    SYCUDA_LAUNCH(first_places, sycuda_blocks(groups, 1), 32, 0, sycuda_stream(context),
                  sycuda_in<int32_t>(call, 2), first, experts, groups);
    SYCUDA_LAUNCH_FREE(places_of_choices, sycuda_blocks(choices * groups, SYCUDA_THREADS), SYCUDA_THREADS,
                       sycuda_stream(context), sycuda_in<int32_t>(call, 0), sycuda_in<int32_t>(call, 1),
                       first, sycuda_out<int32_t>(call, 0), sycuda_out<int32_t>(call, 1), choices, groups);
    return sycuda_launched(context, "ragged_places");
}
