/* SPDX-License-Identifier: Apache-2.0 */
/* embed, embed_int8: a thread copies four neighbours of a row of the table.
 *
 * embed_grad: positions are sorted by id, those of one id ascending (a radix sort of 8 bits a pass that keeps the order
 * of equals: counts of tiles, their prefix sums, places). Then a thread block adds the rows of one id, 128 columns at a
 * time; its warps share the leaves, and the tree over them is walked over those that have the id: the others are +0.
 * Rows of the table whose id does not occur are cleared before. Which id is done when does not matter, so the list of
 * ids is made with integer atomics. */
#include "backends/cuda/four.h"

/* ---- embed ---- */

/* scale: of each row of an int8 table, else NULL. */
template <class In, class Out>
__global__ void copy_table_rows(const int32_t *id, const In *table, const float *scale, Out *y,
                                int64_t positions, int64_t V, int64_t D, int64_t fours, int aligned)
{
    for (int64_t i = sycuda_first(); i < positions * fours; i += sycuda_stride()) {
        const int64_t position = i / fours, column = (i - position * fours) * SYCUDA_FOUR, row = id[position];
        const int n = D - column < SYCUDA_FOUR ? (int)(D - column) : SYCUDA_FOUR;
        sycuda_four x = {{0, 0, 0, 0}};
        if (row >= 0 && row < V) {
            x = sycuda_read_some(table + row * D + column, n, aligned);
            for (int e = 0; e < SYCUDA_FOUR && scale; e++) x.v[e] *= scale[row];
        }
        sycuda_write_some(y + position * D + column, x, n, aligned);
    }
}

template <class In, class Out>
static void launch_rows(void *context, const struct sy_call *call, const float *scale)
{
    const int64_t V = call->in[1].dim[0], D = call->in[1].dim[1], fours = sycuda_fours(D);
    const int64_t positions = sycuda_count(&call->in[0]);
    SYCUDA_LAUNCH_FREE((copy_table_rows<In, Out>), sycuda_blocks(positions * fours, SYCUDA_THREADS),
                       SYCUDA_THREADS, sycuda_stream(context), sycuda_in<int32_t>(call, 0),
                       sycuda_in<In>(call, 1), scale, sycuda_out<Out>(call, 0), positions, V, D, fours,
                       D % SYCUDA_FOUR == 0);
}

int sycuda_embed(void *context, const struct sy_call *call)
{
    sycuda_by_dtypes(call->in[1].dtype, call->out[0].dtype,
                     [&](auto a, auto b) { launch_rows<decltype(a), decltype(b)>(context, call, nullptr); });
    return sycuda_launched(context, "embed");
}

int sycuda_embed_int8(void *context, const struct sy_call *call)
{
    sycuda_by_dtype(call->out[0].dtype, [&](auto b) {
        launch_rows<int8_t, decltype(b)>(context, call, sycuda_in<float>(call, 2));
    });
    return sycuda_launched(context, "embed_int8");
}

/* ---- embed_grad: sorting ---- */

enum { DIGIT_BITS = 8, DIGITS = 1 << DIGIT_BITS, TILE = 1024, WARPS = DIGITS / 32 };

struct place {
    int32_t id, position; /* id: the number of rows for one outside the table, which comes last */
};

/* Where a pass reads: ids as they are given, or what the pass before wrote. */
struct source {
    const int32_t *ids; /* NULL: places */
    const struct place *places;
    int32_t V;
    int32_t n;
};
__device__ static inline struct place read_place(const struct source &s, int32_t i)
{
    if (!s.ids) return s.places[i];
    const int32_t id = s.ids[i];
    return {id >= 0 && id < s.V ? id : s.V, i};
}
__device__ static inline int digit_of(const struct place &p, int shift)
{
    return p.id >> shift & (DIGITS - 1);
}

/* counts[tile][digit] */
__global__ void count_digits(const struct source s, int shift, uint32_t *counts)
{
    __shared__ uint32_t count[DIGITS];
    const int32_t first = (int32_t)blockIdx.x * TILE, end = s.n - first < TILE ? s.n : first + TILE;
    count[threadIdx.x] = 0;
    __syncthreads();
    for (int32_t i = first + (int32_t)threadIdx.x; i < end; i += DIGITS)
        atomicAdd(&count[digit_of(read_place(s, i), shift)], 1u);
    __syncthreads();
    counts[blockIdx.x * DIGITS + threadIdx.x] = count[threadIdx.x];
}

/* Counts become the places where each tile's digits begin. One thread block, a thread a digit. */
__global__ void place_digits(uint32_t *counts, int tiles)
{
    __shared__ uint32_t sum[DIGITS];
    const int digit = (int)threadIdx.x;
    uint32_t total = 0;
    for (int t = 0; t < tiles; t++) total += counts[t * DIGITS + digit];
    sum[digit] = total;
    __syncthreads();
    for (int s = 1; s < DIGITS; s *= 2) {
        const uint32_t before = digit >= s ? sum[digit - s] : 0;
        __syncthreads();
        sum[digit] += before;
        __syncthreads();
    }
    uint32_t at = sum[digit] - total;
    for (int t = 0; t < tiles; t++) {
        const uint32_t count = counts[t * DIGITS + digit];
        counts[t * DIGITS + digit] = at;
        at += count;
    }
}

/* The lanes of the warp that are there with the same digit. */
__device__ static inline unsigned equals(int there, int digit)
{
    unsigned same = __ballot_sync(0xffffffffu, there);
    for (int b = 0; b < DIGIT_BITS; b++) {
        const unsigned set = __ballot_sync(0xffffffffu, digit >> b & 1);
        same &= digit >> b & 1 ? set : ~set;
    }
    return same;
}

/* A tile goes to its places, DIGITS positions at a time, those of equal digits in order. */
__global__ void sort_digits(const struct source s, int shift, const uint32_t *starts, struct place *to)
{
    __shared__ uint32_t start[DIGITS], count[WARPS][DIGITS];
    const int t = (int)threadIdx.x, warp = t / 32, lane = t % 32;
    const int32_t tile = (int32_t)blockIdx.x * TILE, end = s.n - tile < TILE ? s.n : tile + TILE;
    start[t] = starts[blockIdx.x * DIGITS + threadIdx.x];
    for (int w = 0; w < WARPS; w++) count[w][t] = 0;
    __syncthreads();
    for (int32_t first = tile; first < end; first += DIGITS) {
        const int there = first + t < end;
        const struct place p = there ? read_place(s, first + t) : place{0, 0};
        const int digit = digit_of(p, shift);
        const unsigned same = equals(there, digit);
        const int before = __popc(same & ((1u << lane) - 1));
        if (there && before == 0) count[warp][digit] = (uint32_t)__popc(same);
        __syncthreads();
        uint32_t at = start[digit] + (uint32_t)before;
        for (int w = 0; w < warp; w++) at += count[w][digit];
        if (there) to[at] = p;
        __syncthreads();
        for (int w = 0; w < WARPS; w++) {
            start[t] += count[w][t];
            count[w][t] = 0;
        }
        __syncthreads();
    }
}

/* ---- embed_grad: adding ---- */

/* Places of one id are next to each other: firsts[0 .. *n_ids) where they begin, in any order; ends[id]. */
__global__ void find_ids(const struct place *sorted, int32_t n, int32_t V, int32_t *firsts, int32_t *n_ids,
                         int32_t *ends)
{
    for (int64_t i = sycuda_first(); i < n; i += sycuda_stride()) {
        const int32_t id = sorted[i].id;
        if (id == V) continue;
        if (i == 0 || sorted[i - 1].id != id) firsts[atomicAdd(n_ids, 1)] = (int32_t)i;
        if (i == n - 1 || sorted[i + 1].id != id) ends[id] = (int32_t)i + 1;
    }
}

/* The first of sorted[begin .. end) at or after a position, or end. */
__device__ static inline int32_t find_position(const struct place *sorted, int32_t begin, int32_t end,
                                               int64_t position)
{
    while (begin < end) {
        const int32_t middle = begin + (end - begin) / 2;
        if (sorted[middle].position < position)
            begin = middle + 1;
        else
            end = middle;
    }
    return begin;
}

__device__ static inline sycuda_four add(const sycuda_four &a, const sycuda_four &b)
{
    sycuda_four sum;
    for (int e = 0; e < SYCUDA_FOUR; e++) sum.v[e] = a.v[e] + b.v[e];
    return sum;
}

/* The tree over leaves of which only some have a term. pending[l]: a left part that a right one follows at level l. */
struct sparse_tree {
    sycuda_four pending[32];
    uint32_t held;
};
__device__ static inline sycuda_four join(struct sparse_tree &tree, sycuda_four sum, uint32_t levels)
{
    while (tree.held & levels) {
        const int level = __ffs((int)tree.held) - 1;
        sum = add(tree.pending[level], sum);
        tree.held &= tree.held - 1;
    }
    return sum;
}
/* Closes leaf `leaf`; the next one with a term is `next`. */
__device__ static inline void close_leaf(struct sparse_tree &tree, const sycuda_four &acc, int32_t leaf,
                                         int32_t next)
{
    const int level = 31 - __clz(leaf ^ next);
    const sycuda_four nothing = {{0, 0, 0, 0}};
    tree.pending[level] = join(tree, add(acc, nothing), (1u << level) - 1);
    tree.held |= 1u << level;
}

/* What the gradient is made of. */
struct table_grad {
    const struct place *sorted;
    const int32_t *firsts, *n_ids, *ends;
    int64_t D, tiles;       /* columns; tiles of 128 of them */
    int64_t leaf_positions; /* of one leaf */
    int32_t leaves, aligned;
};

/* The part of the tree that places [from, to) make, four columns from `column` on; n of them are there. */
template <class In>
__device__ static inline sycuda_four add_places(const struct table_grad &g, const In *dy, int32_t from,
                                                int32_t to, int64_t column, int n)
{
    enum { TOGETHER = 8 }; /* rows that are under way at once */
    const sycuda_four nothing = {{0, 0, 0, 0}};
    if (from == to || n <= 0) return nothing;
    sycuda_four acc = nothing;
    struct sparse_tree tree;
    tree.held = 0;
    int32_t leaf = (int32_t)(g.sorted[from].position / g.leaf_positions);
    for (int32_t i = from; i < to; i += TOGETHER) {
        int32_t position[TOGETHER];
        sycuda_four x[TOGETHER];
        for (int k = 0; k < TOGETHER; k++) position[k] = i + k < to ? g.sorted[i + k].position : -1;
        for (int k = 0; k < TOGETHER; k++)
            x[k] =
                position[k] < 0 ? nothing : sycuda_read_some(dy + position[k] * g.D + column, n, g.aligned);
        for (int k = 0; k < TOGETHER; k++) {
            if (position[k] < 0) continue;
            if (position[k] >= (leaf + 1) * g.leaf_positions) {
                const int32_t next = (int32_t)(position[k] / g.leaf_positions);
                close_leaf(tree, acc, leaf, next);
                acc = nothing;
                leaf = next;
            }
            acc = add(acc, x[k]);
        }
    }
    return join(tree, add(acc, nothing), 0xffffffffu);
}

template <class In, class Out> __global__ void add_ids(const struct table_grad g, const In *dy, Out *y)
{
    __shared__ sycuda_four sums[WARPS][32];
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    const int warps = g.leaves < WARPS ? g.leaves : (int)WARPS; /* both are powers of two */
    for (int64_t i = blockIdx.x; i < *g.n_ids * g.tiles; i += gridDim.x) {
        const int32_t begin = g.firsts[i / g.tiles], id = g.sorted[begin].id, end = g.ends[id];
        const int64_t column = (i % g.tiles * 32 + lane) * SYCUDA_FOUR, left = g.D - column;
        const int n = left < 0 ? 0 : left < SYCUDA_FOUR ? (int)left : SYCUDA_FOUR;
        const int64_t positions = g.leaves / warps * g.leaf_positions;
        if (warp < warps)
            sums[warp][lane] =
                add_places(g, dy, find_position(g.sorted, begin, end, warp * positions),
                           find_position(g.sorted, begin, end, (warp + 1) * positions), column, n);
        __syncthreads();
        if (warp == 0 && n > 0) {
            for (int s = 1; s < warps; s *= 2)
                for (int w = 0; w < warps; w += 2 * s) sums[w][lane] = add(sums[w][lane], sums[w + s][lane]);
            sycuda_write_some(y + id * g.D + column, sums[0][lane], n, g.aligned);
        }
        __syncthreads();
    }
}

/* ---- embed_grad ---- */

/* The parts of the workspace. */
struct scratch {
    struct place *places[2]; /* [n] */
    uint32_t *counts;        /* [tiles][DIGITS] */
    int32_t *firsts;         /* [n] */
    int32_t *ends;           /* [V] */
    int32_t *n_ids;          /* [1] */
    uint64_t bytes;
};

static void *part(char *memory, uint64_t *used, uint64_t bytes)
{
    void *at = memory + *used;
    *used += (bytes + 63) / 64 * 64;
    return at;
}

static int sort_tiles(int64_t n)
{
    return (int)((n + TILE - 1) / TILE);
}

static struct scratch divide(void *workspace, const struct sy_call *call)
{
    const uint64_t n = (uint64_t)sycuda_count(&call->in[0]), V = (uint64_t)call->out[0].dim[0];
    char *memory = static_cast<char *>(workspace);
    struct scratch s = {};
    for (int i = 0; i < 2; i++)
        s.places[i] = static_cast<struct place *>(part(memory, &s.bytes, n * sizeof(struct place)));
    s.counts = static_cast<uint32_t *>(
        part(memory, &s.bytes, (uint64_t)sort_tiles((int64_t)n) * DIGITS * sizeof(uint32_t)));
    s.firsts = static_cast<int32_t *>(part(memory, &s.bytes, n * sizeof(int32_t)));
    s.ends = static_cast<int32_t *>(part(memory, &s.bytes, V * sizeof(int32_t)));
    s.n_ids = static_cast<int32_t *>(part(memory, &s.bytes, sizeof(int32_t)));
    return s;
}

uint64_t sycuda_embed_grad_workspace(const struct sy_call *call, int)
{
    return divide(nullptr, call).bytes;
}

/* Returns the sorted places. */
static const struct place *sort(cudaStream_t stream, const struct sy_call *call,
                                const struct scratch &scratch)
{
    const int64_t n = sycuda_count(&call->in[0]);
    const int tiles = sort_tiles(n);
    struct source s = {sycuda_in<int32_t>(call, 0), nullptr, (int32_t)call->out[0].dim[0], (int32_t)n};
    for (int shift = 0, to = 0; shift == 0 || (shift < 32 && s.V >> shift); shift += DIGIT_BITS, to ^= 1) {
        SYCUDA_LAUNCH(count_digits, tiles, DIGITS, 0, stream, s, shift, scratch.counts);
        SYCUDA_LAUNCH(place_digits, 1, DIGITS, 0, stream, scratch.counts, tiles);
        SYCUDA_LAUNCH(sort_digits, tiles, DIGITS, 0, stream, s, shift, scratch.counts, scratch.places[to]);
        s.ids = nullptr;
        s.places = scratch.places[to];
    }
    return s.places;
}

int sycuda_embed_grad(void *context, const struct sy_call *call)
{
    const cudaStream_t stream = sycuda_stream(context);
    const struct scratch scratch = divide(call->workspace, call);
    const int64_t n = sycuda_count(&call->in[0]), leaf = sycuda_attr<sy_attr_leaf>(call)->leaf;
    const size_t element = call->out[0].dtype == SY_BF16 ? sizeof(sycuda_bf16) : sizeof(float);
    struct table_grad g = {};
    (void)cudaMemsetAsync(call->out[0].data, 0, (size_t)sycuda_count(&call->out[0]) * element, stream);
    (void)cudaMemsetAsync(scratch.n_ids, 0, sizeof(int32_t), stream);
    if (n == 0) return sycuda_launched(context, "embed_grad");
    g.sorted = sort(stream, call, scratch);
    g.firsts = scratch.firsts;
    g.n_ids = scratch.n_ids;
    g.ends = scratch.ends;
    g.D = call->out[0].dim[1];
    g.tiles = (g.D + 32 * SYCUDA_FOUR - 1) / (32 * SYCUDA_FOUR);
    g.leaf_positions = leaf * call->in[0].dim[1];
    g.leaves = (int32_t)(call->in[0].dim[0] / leaf);
    g.aligned = g.D % SYCUDA_FOUR == 0;
    SYCUDA_LAUNCH_FREE(find_ids, sycuda_blocks(n, SYCUDA_THREADS), SYCUDA_THREADS, stream, g.sorted,
                       (int32_t)n, (int32_t)call->out[0].dim[0], scratch.firsts, scratch.n_ids, scratch.ends);
    const int64_t blocks = sycuda_blocks(n * g.tiles, 1);
    const int64_t most = (int64_t) static_cast<sycuda_context *>(context)->multiprocessors * 8;
    sycuda_by_dtypes(call->in[1].dtype, call->out[0].dtype, [&](auto a, auto b) {
        using In = decltype(a);
        using Out = decltype(b);
        SYCUDA_LAUNCH((add_ids<In, Out>), blocks < most ? blocks : most, WARPS * 32, 0, stream, g,
                      sycuda_in<In>(call, 1), sycuda_out<Out>(call, 0));
    });
    return sycuda_launched(context, "embed_grad");
}
