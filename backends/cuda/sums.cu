/* SPDX-License-Identifier: Apache-2.0 */
/* Sums and maxima over blocks, axes, columns and ranks, in the order of doc/numerics.md.
 *
 * - block_*: 16 lanes an output where its block has few rows; else a thread block an output, whose teams of 16 lanes sum
 *   rows into shared memory while one thread adds the rows' sums of the round before, in order.
 * - Blocks one column wide, column_sum: a thread block 32 columns; all its threads read rows into shared memory, the
 *   first warp adds them in order. column_sum has a thread block for each leaf as well, then a tree over leaves.
 * - tree_sum: one thread block. tree_axis, tree_add: a thread an output.
 * - max_axis: 16 lanes an output of the last axis, else 32 outputs a thread block, 8 threads each.
 * - count_sum: 16 lanes an output. */
#include "backends/cuda/reduce.h"

enum {
    FEW_ROWS = 16,  /* of a block that 16 lanes do alone */
    MANY_ROWS = 64, /* of a block that gets the most threads */
    MOST_THREADS = 1024,
    ROUND = 4 /* rows of a team in one round */
};

/* ---- block_sum, block_sumsq, block_max ---- */

/* Dims are aligned to the right; missing ones are 1. */
struct blocks {
    int64_t dim[SY_MAX_DIMS], leaf[SY_MAX_DIMS];
    int64_t n, rows, columns; /* blocks; rows of each, elements of such a row */
};

static struct blocks describe(const struct sy_call *call)
{
    const struct sy_tensor *in = &call->in[0];
    const int64_t *leaf = sycuda_attr<sy_attr_block>(call)->leaf;
    struct blocks b;
    b.n = sycuda_count(&call->out[0]);
    b.rows = 1;
    for (int d = 0; d < SY_MAX_DIMS; d++) {
        const int from = d + in->rank - SY_MAX_DIMS;
        b.dim[d] = from < 0 ? 1 : in->dim[from];
        b.leaf[d] = from < 0 ? 1 : leaf[from];
        if (d < SY_MAX_DIMS - 1) b.rows *= b.leaf[d];
    }
    b.columns = b.leaf[SY_MAX_DIMS - 1];
    return b;
}

/* The first element of block i. */
__device__ static inline int64_t block_begin(const struct blocks &b, int64_t i)
{
    int64_t at = 0, stride = 1;
    for (int d = SY_MAX_DIMS - 1; d >= 0; d--) {
        if (b.dim[d] > b.leaf[d]) { /* divisions are slow */
            const int64_t n = b.dim[d] / b.leaf[d];
            at += i % n * b.leaf[d] * stride;
            i /= n;
        }
        stride *= b.dim[d];
    }
    return at;
}

/* From the first element of a block to that of its row i. */
__device__ static inline int64_t block_row(const struct blocks &b, int64_t i)
{
    int64_t at = 0, stride = b.dim[SY_MAX_DIMS - 1];
    for (int d = SY_MAX_DIMS - 2; d >= 0 && i > 0; d--) {
        if (b.leaf[d] > 1) {
            at += i % b.leaf[d] * stride;
            i /= b.leaf[d];
        }
        stride *= b.dim[d];
    }
    return at;
}

template <class Rule, class In, class Out>
__global__ void blocks_of_few_rows(const In *x, Out *y, const struct blocks b)
{
    for (int64_t i = sycuda_row(); i - sycuda_row_of_warp() < b.n; i += sycuda_row_stride()) {
        const int there = i < b.n;
        const In *from = x + (there ? block_begin(b, i) : 0);
        typename Rule::value acc = 0;
        for (int64_t row = 0; row < b.rows; row++)
            acc = Rule::chain(
                acc, sycuda_row_of<Rule>(from + (there ? block_row(b, row) : 0), there ? b.columns : 0));
        if (there && sycuda_lane() == 0) sycuda_write(y + i, Rule::result(acc));
    }
}

/* Rows of a round are reduced into one half of `sums` while thread 0 takes those of the round before from the other. */
template <class Rule, class In, class Out>
__global__ void __launch_bounds__(MOST_THREADS)
    blocks_of_many_rows(const In *x, Out *y, const struct blocks b)
{
    __shared__ typename Rule::value sums[2][ROUND * MOST_THREADS / SYCUDA_LANES];
    const int teams = (int)blockDim.x / SYCUDA_LANES, team = (int)threadIdx.x / SYCUDA_LANES;
    const int64_t round = (int64_t)ROUND * teams;
    for (int64_t i = blockIdx.x; i < b.n; i += gridDim.x) {
        const In *from = x + block_begin(b, i);
        typename Rule::value acc = 0;
        int half = 0;
        for (int64_t first = 0; first < b.rows + round; first += round, half ^= 1) {
            for (int k = 0; k < ROUND && first < b.rows; k++) {
                const int64_t row = first + k * teams + team;
                const int there = row < b.rows;
                const typename Rule::value sum =
                    sycuda_row_of<Rule>(from + (there ? block_row(b, row) : 0), there ? b.columns : 0);
                if (sycuda_lane() == 0) sums[half][k * teams + team] = sum;
            }
            const int64_t left = b.rows - (first - round), n = left < round ? left : round;
            for (int64_t k = 0; k < n && first > 0 && threadIdx.x == 0; k++)
                acc = Rule::chain(acc, sums[half ^ 1][k]);
            __syncthreads();
        }
        if (threadIdx.x == 0) sycuda_write(y + i, Rule::result(acc));
    }
}

/* tiles: of 32 columns in a row. The row sum of one element is that element plus 0. */
template <class Rule, class In, class Out>
__global__ void blocks_of_one_column(const In *x, Out *y, const struct blocks b, int64_t tiles)
{
    const int64_t D = b.dim[SY_MAX_DIMS - 1];
    for (int64_t i = blockIdx.x; i < b.n / D * tiles; i += gridDim.x) {
        const int64_t column = i % tiles * SYCUDA_CHAIN_COLUMNS + threadIdx.x % SYCUDA_CHAIN_COLUMNS,
                      block = i / tiles * D + column;
        const int there = column < D;
        const In *from = x + (there ? block_begin(b, block) : 0);
        const typename Rule::value acc = sycuda_chain_columns<Rule>(
            b.rows, [&](int64_t row) { return there ? sycuda_read(from + block_row(b, row)) : 0; });
        if (there && threadIdx.x < SYCUDA_CHAIN_COLUMNS) sycuda_write(y + block, Rule::result(acc));
    }
}

template <class Rule, class In, class Out>
static void launch_blocks(cudaStream_t stream, const In *x, Out *y, const struct blocks &b)
{
    const int64_t D = b.dim[SY_MAX_DIMS - 1], tiles = (D + SYCUDA_CHAIN_COLUMNS - 1) / SYCUDA_CHAIN_COLUMNS;
    const int threads = b.rows < MANY_ROWS ? (int)SYCUDA_THREADS : (int)MOST_THREADS;
    if (b.columns == 1 && b.n > 0)
        SYCUDA_LAUNCH((blocks_of_one_column<Rule, In, Out>), sycuda_blocks(b.n / D * tiles, 1),
                      SYCUDA_CHAIN_COLUMNS * SYCUDA_CHAIN_TEAMS, 0, stream, x, y, b, tiles);
    else if (b.rows < FEW_ROWS)
        SYCUDA_LAUNCH((blocks_of_few_rows<Rule, In, Out>), sycuda_row_blocks(b.n), SYCUDA_THREADS, 0, stream,
                      x, y, b);
    else
        SYCUDA_LAUNCH((blocks_of_many_rows<Rule, In, Out>), sycuda_blocks(b.n, 1), threads, 0, stream, x, y,
                      b);
}

template <class Rule> static int run_blocks(void *context, const struct sy_call *call, const char *op)
{
    const struct blocks b = describe(call);
    sycuda_by_dtypes(call->in[0].dtype, call->out[0].dtype, [&](auto in, auto out) {
        using In = decltype(in);
        using Out = decltype(out);
        launch_blocks<Rule>(sycuda_stream(context), sycuda_in<In>(call, 0), sycuda_out<Out>(call, 0), b);
    });
    return sycuda_launched(context, op);
}

int sycuda_block_sum(void *context, const struct sy_call *call)
{
    return run_blocks<sycuda_plain_sum>(context, call, "block_sum");
}

int sycuda_block_sumsq(void *context, const struct sy_call *call)
{
    return run_blocks<sycuda_square_sum>(context, call, "block_sumsq");
}

int sycuda_block_max(void *context, const struct sy_call *call)
{
    return run_blocks<sycuda_largest_size>(context, call, "block_max");
}

/* ---- tree_sum ---- */

/* A tensor padded with +0 to powers of two is one balanced tree over its elements: extents by their logarithm. */
struct padded {
    int64_t dim[SY_MAX_DIMS];
    int bits[SY_MAX_DIMS], rank;
    int64_t n; /* padded elements, a power of two */
};

template <class In>
__device__ static inline float padded_element(const In *x, const struct padded &p, int64_t i)
{
    int64_t at = 0, stride = 1;
    int inside = 1;
    for (int d = SY_MAX_DIMS - 1; d >= 0; d--) {
        if (d >= p.rank) continue;
        const int64_t index = i & (((int64_t)1 << p.bits[d]) - 1);
        inside = inside && index < p.dim[d];
        at += index * stride;
        stride *= p.dim[d];
        i >>= p.bits[d];
    }
    return inside ? sycuda_read(x + at) : 0;
}

/* The tree over the first n of the block's threads, n a power of two; thread 0 gets it. */
__device__ static inline float tree_of_block(float value, int n)
{
    __shared__ float warps[SYCUDA_THREADS / 32];
    for (int s = 1; s < 32 && s < n; s *= 2) value += __shfl_down_sync(0xffffffffu, value, (unsigned)s);
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = value;
    __syncthreads();
    if (threadIdx.x == 0 && n > 32) value = sycuda_tree(n / 32, [&](int64_t i) { return warps[i]; });
    __syncthreads();
    return value;
}

/* Pieces of a block's threads are leaves of the rest of the tree, which is walked as in sycuda_tree. */
template <class In, class Out> __global__ void tree_of_all(const In *x, Out *y, const struct padded p)
{
    const int piece = p.n < SYCUDA_THREADS ? (int)p.n : (int)SYCUDA_THREADS;
    const float all = sycuda_tree(p.n / piece, [&](int64_t i) {
        const float leaf = (int)threadIdx.x < piece ? padded_element(x, p, i * piece + threadIdx.x) : 0;
        return tree_of_block(leaf, piece);
    });
    if (threadIdx.x == 0) sycuda_write(y, all);
}

int sycuda_tree_sum(void *context, const struct sy_call *call)
{
    const struct sy_tensor *in = &call->in[0];
    struct padded p = {};
    p.rank = in->rank;
    p.n = 1;
    for (int d = 0; d < in->rank; d++) {
        p.dim[d] = in->dim[d];
        while ((int64_t)1 << p.bits[d] < in->dim[d]) p.bits[d]++;
        p.n <<= p.bits[d];
    }
    sycuda_by_dtypes(in->dtype, call->out[0].dtype, [&](auto a, auto b) {
        using In = decltype(a);
        using Out = decltype(b);
        SYCUDA_LAUNCH((tree_of_all<In, Out>), 1, SYCUDA_THREADS, 0, sycuda_stream(context),
                      sycuda_in<In>(call, 0), sycuda_out<Out>(call, 0), p);
    });
    return sycuda_launched(context, "tree_sum");
}

/* ---- tree_axis, tree_add ---- */

/* n: a power of two. */
template <class Leaf> __device__ static inline float tree(int64_t n, Leaf leaf)
{
    switch (n) {
    case 1: return leaf(0);
    case 2: return sycuda_tree_of<2>(0, leaf);
    case 4: return sycuda_tree_of<4>(0, leaf);
    default: return sycuda_tree(n / 8, [&](int64_t i) { return sycuda_tree_of<8>(8 * i, leaf); });
    }
}

/* x[outer, n, inner] -> y[outer, inner], outputs = outer * inner; padded: n up to a power of two. */
template <class In, class Out>
__global__ void tree_lines(const In *x, Out *y, int64_t outputs, int64_t n, int64_t inner, int64_t padded)
{
    for (int64_t i = sycuda_first(); i < outputs; i += sycuda_stride()) {
        const int64_t outer = i / inner;
        const In *line = x + outer * n * inner + (i - outer * inner);
        const float sum =
            tree(padded, [=](int64_t k) { return k < n ? sycuda_read(line + k * inner) : 0.0f; });
        sycuda_write(y + i, sum);
    }
}

template <class In, class Out>
static void launch_lines(cudaStream_t stream, const In *x, Out *y, int64_t outputs, int64_t n, int64_t inner)
{
    int64_t padded = 1;
    while (padded < n) padded *= 2;
    SYCUDA_LAUNCH_FREE((tree_lines<In, Out>), sycuda_blocks(outputs, SYCUDA_THREADS), SYCUDA_THREADS, stream,
                       x, y, outputs, n, inner, padded);
}

/* dim: the axis of input 0. */
static int run_lines(void *context, const struct sy_call *call, int dim, const char *op)
{
    const struct sy_tensor *in = &call->in[0];
    const int64_t outputs = sycuda_count(&call->out[0]), outer = sycuda_extent(in, dim);
    sycuda_by_dtypes(in->dtype, call->out[0].dtype, [&](auto a, auto b) {
        using In = decltype(a);
        using Out = decltype(b);
        launch_lines(sycuda_stream(context), sycuda_in<In>(call, 0), sycuda_out<Out>(call, 0), outputs,
                     in->dim[dim], outputs / (outer > 0 ? outer : 1));
    });
    return sycuda_launched(context, op);
}

int sycuda_tree_axis(void *context, const struct sy_call *call)
{
    return run_lines(context, call, (int)sycuda_attr<sy_attr_axis>(call)->dim, "tree_axis");
}

int sycuda_tree_add(void *context, const struct sy_call *call)
{
    return run_lines(context, call, 0, "tree_add");
}

/* ---- column_sum ---- */

/* Leaves of `rows` rows: x[leaves * rows, D] -> y[leaves, D]. */
template <class In, class Out>
__global__ void column_leaves(const In *x, Out *y, int64_t leaves, int64_t rows, int64_t D, int64_t tiles)
{
    for (int64_t i = blockIdx.x; i < leaves * tiles; i += gridDim.x) {
        const int64_t leaf = i / tiles,
                      column = i % tiles * SYCUDA_CHAIN_COLUMNS + threadIdx.x % SYCUDA_CHAIN_COLUMNS;
        const int there = column < D;
        const In *from = x + leaf * rows * D + (there ? column : 0);
        const float sum = sycuda_chain_columns<sycuda_plain_sum>(
            rows, [&](int64_t row) { return there ? sycuda_read(from + row * D) : 0; });
        if (there && threadIdx.x < SYCUDA_CHAIN_COLUMNS) sycuda_write(y + leaf * D + column, sum + 0.0f);
    }
}

uint64_t sycuda_column_sum_workspace(const struct sy_call *call, int)
{
    const int64_t leaves = call->in[0].dim[0] / sycuda_attr<sy_attr_leaf>(call)->leaf;
    return leaves > 1 ? (uint64_t)(leaves * call->in[0].dim[2]) * sizeof(float) : 0;
}

int sycuda_column_sum(void *context, const struct sy_call *call)
{
    const int64_t *dim = call->in[0].dim, leaf = sycuda_attr<sy_attr_leaf>(call)->leaf, D = dim[2];
    const int64_t leaves = dim[0] / leaf, rows = leaf * dim[1],
                  tiles = (D + SYCUDA_CHAIN_COLUMNS - 1) / SYCUDA_CHAIN_COLUMNS;
    float *sums = static_cast<float *>(call->workspace);
    sycuda_by_dtypes(call->in[0].dtype, call->out[0].dtype, [&](auto a, auto b) {
        using In = decltype(a);
        using Out = decltype(b);
        const In *x = sycuda_in<In>(call, 0);
        Out *y = sycuda_out<Out>(call, 0);
        if (leaves == 1) {
            SYCUDA_LAUNCH((column_leaves<In, Out>), sycuda_blocks(tiles, 1),
                          SYCUDA_CHAIN_COLUMNS * SYCUDA_CHAIN_TEAMS, 0, sycuda_stream(context), x, y, leaves,
                          rows, D, tiles);
        } else {
            SYCUDA_LAUNCH((column_leaves<In, float>), sycuda_blocks(leaves * tiles, 1),
                          SYCUDA_CHAIN_COLUMNS * SYCUDA_CHAIN_TEAMS, 0, sycuda_stream(context), x, sums,
                          leaves, rows, D, tiles);
            launch_lines(sycuda_stream(context), static_cast<const float *>(sums), y, D, leaves, D);
        }
    });
    return sycuda_launched(context, "column_sum");
}

/* ---- max_axis ---- */

/* NaN stays; the sign of a zero and the payload of a NaN are lost at the end, so any order gives the same bits. */
__device__ static inline float larger(float top, float x)
{
    return x > top || x != x ? x : top;
}
__device__ static inline float largest_result(float top)
{
    return top != top ? sycuda_nan() : top + 0.0f;
}

/* x[lines, n] -> y[lines] */
template <class In, class Out> __global__ void max_of_lines(const In *x, Out *y, int64_t lines, int64_t n)
{
    for (int64_t i = sycuda_row(); i - sycuda_row_of_warp() < lines; i += sycuda_row_stride()) {
        float top = -INFINITY;
        for (int64_t k = sycuda_lane(); i < lines && k < n; k += SYCUDA_LANES)
            top = larger(top, sycuda_read(x + i * n + k));
        for (int s = SYCUDA_LANES / 2; s >= 1; s /= 2)
            top = larger(top, __shfl_xor_sync(0xffffffffu, top, s, SYCUDA_LANES));
        if (i < lines && sycuda_lane() == 0) sycuda_write(y + i, largest_result(top));
    }
}

/* x[outer, n, inner] -> y[outer, inner]; tiles: of 32 outputs of one outer index. */
template <class In, class Out>
__global__ void max_of_columns(const In *x, Out *y, int64_t outer, int64_t n, int64_t inner, int64_t tiles)
{
    __shared__ float tops[SYCUDA_CHAIN_TEAMS][SYCUDA_CHAIN_COLUMNS];
    const int column = (int)threadIdx.x % SYCUDA_CHAIN_COLUMNS,
              team = (int)threadIdx.x / SYCUDA_CHAIN_COLUMNS;
    for (int64_t i = blockIdx.x; i < outer * tiles; i += gridDim.x) {
        const int64_t o = i / tiles, at = i % tiles * SYCUDA_CHAIN_COLUMNS + column;
        float top = -INFINITY;
        for (int64_t k = team; at < inner && k < n; k += SYCUDA_CHAIN_TEAMS)
            top = larger(top, sycuda_read(x + (o * n + k) * inner + at));
        tops[team][column] = top;
        __syncthreads();
        for (int t = 1; t < SYCUDA_CHAIN_TEAMS && team == 0; t++) top = larger(top, tops[t][column]);
        if (team == 0 && at < inner) sycuda_write(y + o * inner + at, largest_result(top));
        __syncthreads();
    }
}

int sycuda_max_axis(void *context, const struct sy_call *call)
{
    const struct sy_tensor *in = &call->in[0];
    const int dim = (int)sycuda_attr<sy_attr_axis>(call)->dim;
    const int64_t outer = sycuda_extent(in, dim), n = in->dim[dim];
    const int64_t inner = sycuda_count(&call->out[0]) / (outer > 0 ? outer : 1);
    const int64_t tiles = (inner + SYCUDA_CHAIN_COLUMNS - 1) / SYCUDA_CHAIN_COLUMNS;
    sycuda_by_dtypes(in->dtype, call->out[0].dtype, [&](auto a, auto b) {
        using In = decltype(a);
        using Out = decltype(b);
        const In *x = sycuda_in<In>(call, 0);
        Out *y = sycuda_out<Out>(call, 0);
        if (inner == 1)
            SYCUDA_LAUNCH((max_of_lines<In, Out>), sycuda_row_blocks(outer), SYCUDA_THREADS, 0,
                          sycuda_stream(context), x, y, outer, n);
        else
            SYCUDA_LAUNCH((max_of_columns<In, Out>), sycuda_blocks(outer * tiles, 1),
                          SYCUDA_CHAIN_COLUMNS * SYCUDA_CHAIN_TEAMS, 0, sycuda_stream(context), x, y, outer,
                          n, inner, tiles);
    });
    return sycuda_launched(context, "max_axis");
}

/* ---- integers ---- */

/* count[e, groups] -> sum[e] */
__global__ void count_rows(const int32_t *count, int64_t *sum, int64_t rows, int64_t groups)
{
    for (int64_t i = sycuda_row(); i - sycuda_row_of_warp() < rows; i += sycuda_row_stride()) {
        int64_t lane = 0;
        for (int64_t g = sycuda_lane(); i < rows && g < groups; g += SYCUDA_LANES)
            lane += count[i * groups + g];
        for (int s = SYCUDA_LANES / 2; s >= 1; s /= 2)
            lane += __shfl_xor_sync(0xffffffffu, lane, s, SYCUDA_LANES);
        if (i < rows && sycuda_lane() == 0) sum[i] = lane;
    }
}

int sycuda_count_sum(void *context, const struct sy_call *call)
{
    const int64_t *dim = call->in[0].dim;
    SYCUDA_LAUNCH(count_rows, sycuda_row_blocks(dim[0]), SYCUDA_THREADS, 0, sycuda_stream(context),
                  sycuda_in<int32_t>(call, 0), sycuda_out<int64_t>(call, 0), dim[0], dim[1]);
    return sycuda_launched(context, "count_sum");
}
