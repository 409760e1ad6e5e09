/* SPDX-License-Identifier: Apache-2.0 */
/* Products with the reference's bits, and what products by cuBLASLt need around them.
 *
 * A block of SIDE * SIDE / 16 threads has a tile of SIDE x SIDE elements of C of one expert, SIDE 64 or 32, and goes over
 * the contraction in steps of 32, which lie in shared memory; thread (y, x) has rows 4 y .. 4 y + 3 and columns
 * 4 x .. 4 x + 3. After each leaf its sums enter the tree, whose pending partial sums wait in the workspace. Counts are
 * read by the kernel: tiles without a filled row write zeros. In ragged products tiles are dealt out to experts by their
 * counts, first to last, then to the places that no token has. */
#include "config.h"

#include "backends/cuda/product.h"
#include "backends/cuda/tile.h"

enum { DEPTH = 32 };

/* ---- the call ---- */

struct sycuda_product sycuda_product_of(const struct sy_call *call)
{
    const struct sy_tensor *x = &call->in[0], *w = &call->in[1];
    const int op = call->op, ragged = op == SY_OP_RAGGED_MATMUL || op == SY_OP_RAGGED_MATMUL_INT8;
    const int grouped = ragged || op == SY_OP_GROUPED_MATMUL || op == SY_OP_GROUPED_MATMUL_NT ||
                        op == SY_OP_GROUPED_MATMUL_TN || op == SY_OP_GROUPED_MATMUL_INT8;
    struct sycuda_product p = {};
    p.filled = grouped ? sycuda_in<int32_t>(call, 2) : nullptr;
    p.start = ragged ? sycuda_in<int32_t>(call, 3) : nullptr;
    p.scale = w->dtype == SY_I8 ? sycuda_in<float>(call, call->n_in - 1) : nullptr;
    p.experts = ragged ? w->dim[0] : grouped ? x->dim[0] : 1;
    p.groups = x->dim[grouped];
    p.slots = x->dim[grouped + 1];
    p.a_width = x->dim[grouped + 2];
    p.rows = p.groups * p.slots;
    p.depth = p.a_width;
    p.columns = w->dim[w->rank - 1];
    p.leaf = sycuda_attr<sy_attr_leaf>(call)->leaf;
    p.form = SYCUDA_PRODUCT_NN;
    if (op == SY_OP_MATMUL_TN || op == SY_OP_GROUPED_MATMUL_TN) {
        p.form = SYCUDA_PRODUCT_TN;
        p.rows = p.a_width;
        p.depth = p.groups * p.slots;
        p.leaf *= p.slots; /* its attribute counts groups */
    } else if (op == SY_OP_MATMUL_NT || op == SY_OP_GROUPED_MATMUL_NT || op == SY_OP_MATMUL_NT_INT8) {
        p.form = SYCUDA_PRODUCT_NT;
        p.columns = w->dim[w->rank - 2];
    }
    p.leaves = p.depth / p.leaf;
    return p;
}

/* ---- what a tile has ---- */

/* Rows of C of one tile. */
struct product_tile {
    int64_t expert,
        row; /* -1: no expert, the rows are zeros; the first row, from the expert's or C's first on */
    int n;   /* rows, at most SIDE; may be 0 */
};

__device__ static inline int32_t product_filled(const sycuda_product &p, int64_t expert, int64_t group)
{
    return p.filled[expert * p.groups + group];
}

/* Whether buffer row `row` of an expert holds a token. */
__device__ static inline int product_holds(const sycuda_product &p, int64_t expert, int64_t row)
{
    if (!p.filled || p.start) return 1;
    const unsigned slots = (unsigned)p.slots, at = (unsigned)row;
    return (int32_t)(at % slots) < product_filled(p, expert, at / slots);
}

/* Tile `tile` of a ragged group: experts have as many as their tokens fill, then the places after the last expert's. */
__device__ static inline product_tile product_ragged_tile(const sycuda_product &p, int64_t group,
                                                          int64_t tile, int side)
{
    int64_t used = 0;
    for (int64_t expert = 0; expert < p.experts; expert++) {
        const int64_t n = product_filled(p, expert, group), first = p.start[expert * p.groups + group];
        const int64_t tiles = (n + side - 1) / side, left = n - tile * side;
        if (tile < tiles)
            return {expert, group * p.slots + first + tile * side, (int)(left < side ? left : side)};
        tile -= tiles;
        used = first + n;
    }
    const int64_t left = p.slots - used - tile * side;
    return {-1, group * p.slots + used + tile * side, (int)(left < 0 ? 0 : left < side ? left : side)};
}

__device__ static inline product_tile product_tile_of(const sycuda_product &p, int64_t index, int64_t tiles,
                                                      int side)
{
    if (p.start) return product_ragged_tile(p, index / tiles, index % tiles, side);
    const int64_t row = index % tiles * side, left = p.rows - row;
    return {index / tiles, row, (int)(left < side ? left : side)};
}

/* Tiles of rows of an expert, or of a group of a ragged product. */
static int64_t product_row_tiles(const sycuda_product *p, int side)
{
    return p->start ? p->slots / side + p->experts + 1 : (p->rows + side - 1) / side;
}

/* ---- steps of the contraction in shared memory ---- */

/* A [DEPTH][SIDE] tile of an operand whose element (step, i) lies at x + step * along + i * across; one of both is 1, and
 * neighbours in memory are read by neighbouring threads. keep(step, i): else it is +0. scale: what element (step, i) is
 * multiplied by stands at scale[i], NULL: by nothing. */
template <int SIDE, class T, class Keep>
__device__ static inline void product_load(float *tile, const T *x, int64_t along, int64_t across,
                                           const float *scale, Keep keep)
{
    for (int e = (int)threadIdx.x; e < DEPTH * SIDE; e += (int)blockDim.x) {
        const int step = along == 1 ? e % DEPTH : e / SIDE, i = along == 1 ? e / DEPTH : e % SIDE;
        float value = 0;
        if (keep(step, i)) {
            value = sycuda_read(x + step * along + i * across);
            if (scale) value *= scale[i];
        }
        tile[step * (SIDE + 4) + i] = value;
    }
}

/* Where the operands of a tile lie: element (step, i) as product_load takes it. */
template <class T, class W> struct product_operands {
    const T *a;
    const W *b;
    int64_t a_along, a_across, b_along, b_across;
    const float *scale; /* of the tile's columns, of int8 weights alone */
};

template <class T, class W>
__device__ static inline product_operands<T, W>
product_operands_of(const sycuda_product &p, const T *a, const W *b, const product_tile &tile, int64_t column)
{
    const int64_t buffer = p.start ? 0 : tile.expert * p.groups * p.slots; /* first row of the expert */
    product_operands<T, W> o = {a, b, 1, p.a_width, p.columns, 1, nullptr};
    if constexpr (sizeof(W) == 1) o.scale = p.scale + tile.expert * p.columns + column;
    if (p.form == SYCUDA_PRODUCT_TN) {
        o.a += buffer * p.a_width + tile.row;
        o.b += buffer * p.columns + column;
        o.a_along = p.a_width;
        o.a_across = 1;
        return o;
    }
    o.a += (buffer + tile.row) * p.a_width;
    o.b += tile.expert * p.depth * p.columns + (p.form == SYCUDA_PRODUCT_NT ? column * p.depth : column);
    if (p.form == SYCUDA_PRODUCT_NT) {
        o.b_along = 1;
        o.b_across = p.depth;
    }
    return o;
}

template <int SIDE>
__device__ static inline void product_step(sycuda_sums &sums, const float *a, const float *b, int steps)
{
    const int y = (int)threadIdx.x / (SIDE / 4) * 4, x = (int)threadIdx.x % (SIDE / 4) * 4;
#pragma unroll 8
    for (int step = 0; step < steps; step++) {
        const sycuda_four left = sycuda_read_four(a + step * (SIDE + 4) + y);
        const sycuda_four right = sycuda_read_four(b + step * (SIDE + 4) + x);
#pragma unroll
        for (int i = 0; i < 16; i++)
            sums.at[i / 4][i % 4] = fmaf(left.v[i / 4], right.v[i % 4], sums.at[i / 4][i % 4]);
    }
}

/* The first step from `step` on that a token of the expert has, for contractions over slots. */
__device__ static inline int64_t product_next(const sycuda_product &p, int64_t expert, int64_t step,
                                              int64_t end)
{
    if (p.form != SYCUDA_PRODUCT_TN || !p.filled) return step;
    while (step < end && step % p.slots >= product_filled(p, expert, step / p.slots))
        step = (step / p.slots + 1) * p.slots;
    return step;
}

/* The chains of one leaf, steps first .. first + leaf - 1, before + 0. */
template <int SIDE, class T, class W>
__device__ static inline sycuda_sums product_leaf(const sycuda_product &p, const product_operands<T, W> &o,
                                                  const product_tile &tile, int64_t columns, int64_t first,
                                                  float *shared)
{
    const int over_slots = p.form == SYCUDA_PRODUCT_TN;
    const int64_t end = first + p.leaf;
    float *b = shared + DEPTH * (SIDE + 4);
    sycuda_sums sums = {};
    for (int64_t k = product_next(p, tile.expert, first, end); k < end;
         k = product_next(p, tile.expert, k + DEPTH, end)) {
        const auto there = [&](int step) {
            return k + step < end && (!over_slots || product_holds(p, tile.expert, k + step));
        };
        __syncthreads();
        product_load<SIDE>(shared, o.a + k * o.a_along, o.a_along, o.a_across, nullptr, [&](int step, int i) {
            return i < tile.n && there(step) && (over_slots || product_holds(p, tile.expert, tile.row + i));
        });
        product_load<SIDE>(b, o.b + k * o.b_along, o.b_along, o.b_across, sizeof(W) == 1 ? o.scale : nullptr,
                           [&](int step, int i) { return i < columns && there(step); });
        __syncthreads();
        product_step<SIDE>(sums, shared, b, end - k < DEPTH ? (int)(end - k) : (int)DEPTH);
    }
    return sums;
}

/* ---- the tree over leaves ---- */

/* Leaf number `index` of element `at` of `size`; 1 with the whole sum after the last. pending: [levels, size]. */
__device__ static inline int product_push(float &sum, int64_t index, int64_t leaves, float *pending,
                                          int64_t at, int64_t size)
{
    int held = __popc((unsigned)index);
    for (unsigned bits = (unsigned)index; bits & 1; bits >>= 1) sum = pending[--held * size + at] + sum;
    if (index + 1 < leaves) {
        pending[held * size + at] = sum;
        return 0;
    }
    while (held > 0) sum = pending[--held * size + at] + sum;
    return 1;
}

static int64_t product_levels(int64_t leaves)
{
    int64_t levels = 0;
    for (int64_t i = leaves - 1; i > 0; i /= 2) levels++;
    return levels;
}

/* Blocks: (expert or ragged group, tile of rows, tile of columns). */
template <int SIDE, class In, class W, class Out>
__global__ void __launch_bounds__(SIDE *SIDE / 16)
    product_tiles(sycuda_product p, const In *a, const W *b, Out *c, float *pending, int64_t size,
                  int row_tiles, int column_tiles)
{
    SYCUDA_DYNAMIC_SHARED(float, shared);
    const product_tile tile = product_tile_of(p, blockIdx.x / column_tiles, row_tiles, SIDE);
    const int64_t column = (int64_t)(blockIdx.x % column_tiles) * SIDE;
    const int64_t columns = p.columns - column < SIDE ? p.columns - column : (int64_t)SIDE;
    const int y = (int)threadIdx.x / (SIDE / 4) * 4, x = (int)threadIdx.x % (SIDE / 4) * 4;
    const int64_t base = (p.start || tile.expert < 0 ? 0 : tile.expert * p.rows) + tile.row;
    const int64_t at = (base + y) * p.columns + column + x;
    const int by_slots = p.form != SYCUDA_PRODUCT_TN, mine = (int)threadIdx.x;
    const product_operands<In, W> o = product_operands_of(p, a, b, tile, column);
    const int some =
        tile.expert >= 0 && (!by_slots || (mine < tile.n && product_holds(p, tile.expert, tile.row + mine)));
    const int any = __syncthreads_or(some);
    for (int64_t leaf = any ? 0 : p.leaves - 1; leaf < p.leaves; leaf++) {
        sycuda_sums sums = {};
        if (any) sums = product_leaf<SIDE>(p, o, tile, columns, leaf * p.leaf, shared);
#pragma unroll
        for (int i = 0; i < 16; i++) {
            const int r = y + i / 4, w = x + i % 4;
            if (r >= tile.n || w >= columns) continue;
            const int64_t element = at + i / 4 * p.columns + i % 4;
            const int real = any && (!by_slots || product_holds(p, tile.expert, tile.row + r));
            float sum = sums.at[i / 4][i % 4] + 0.0f;
            if (!real || product_push(sum, leaf, p.leaves, pending, element, size))
                sycuda_write(c + element, real ? sum : 0);
        }
    }
}

/* ---- launches ---- */

uint64_t sycuda_product_own_bytes(const struct sycuda_product *p)
{
    return (uint64_t)(product_levels(p->leaves) * sycuda_product_size(p)) * sizeof(float);
}

static int64_t product_blocks(const struct sycuda_product *p, int side)
{
    return (p->start ? p->groups : p->experts) * product_row_tiles(p, side) *
           ((p->columns + side - 1) / side);
}

template <int SIDE, class In, class W, class Out>
static void product_launch(const struct sycuda_context *context, const struct sy_call *call,
                           const struct sycuda_product *p, float *pending)
{
    const int64_t column_tiles = (p->columns + SIDE - 1) / SIDE;
    SYCUDA_LAUNCH((product_tiles<SIDE, In, W, Out>), product_blocks(p, SIDE), SIDE * SIDE / 16,
                  2 * DEPTH * (SIDE + 4) * sizeof(float), context->stream, *p, sycuda_in<In>(call, 0),
                  sycuda_in<W>(call, 1), sycuda_out<Out>(call, 0), pending, sycuda_product_size(p),
                  (int)product_row_tiles(p, SIDE), (int)column_tiles);
}

template <int SIDE>
static void product_launch(const struct sycuda_context *context, const struct sy_call *call,
                           const struct sycuda_product *p, float *pending)
{
    sycuda_by_dtypes(call->in[0].dtype, call->out[0].dtype, [&](auto x, auto y) {
        using In = decltype(x);
        using Out = decltype(y);
        if (p->scale)
            product_launch<SIDE, In, int8_t, Out>(context, call, p, pending);
        else
            product_launch<SIDE, In, In, Out>(context, call, p, pending);
    });
}

void sycuda_product_own(const struct sycuda_context *context, const struct sy_call *call,
                        const struct sycuda_product *p, void *workspace)
{
    float *pending = static_cast<float *>(workspace);
    if (product_blocks(p, 64) >= 2 * context->multiprocessors)
        product_launch<64>(context, call, p, pending);
    else
        product_launch<32>(context, call, p, pending);
}

/* ---- around products by cuBLASLt ---- */

enum { MOST_FEW = 16 /* leaves that a thread reads at once */ };

/* A thread for four elements; n is a multiple of four. */
template <int LEAVES, class Out>
__global__ void __launch_bounds__(SYCUDA_THREADS) product_add_few(const float *leaf, int64_t n, Out *c)
{
    for (int64_t i = 4 * sycuda_first(); i < n; i += 4 * sycuda_stride()) {
        sycuda_four part[LEAVES], sum;
#pragma unroll
        for (int l = 0; l < LEAVES; l++) part[l] = sycuda_read_four(leaf + l * n + i);
#pragma unroll
        for (int e = 0; e < SYCUDA_FOUR; e++)
            sum.v[e] = sycuda_tree_of<LEAVES>(0, [&](int64_t l) { return part[l].v[e]; });
        sycuda_write_four(c + i, sum);
    }
}

/* Whether there are so few leaves, LEAVES at least, and elements go by four. */
template <int LEAVES, class Out>
static int add_few(cudaStream_t stream, const float *leaf, int64_t leaves, int64_t n, Out *c)
{
    if (leaves == LEAVES) {
        if (n % 4 || reinterpret_cast<uintptr_t>(c) % sizeof(sycuda_four_of<Out>)) return 0;
        SYCUDA_LAUNCH_FREE((product_add_few<LEAVES, Out>), sycuda_blocks(n / 4, SYCUDA_THREADS),
                           SYCUDA_THREADS, stream, leaf, n, c);
        return 1;
    }
    if constexpr (LEAVES < MOST_FEW) return add_few<LEAVES + 1>(stream, leaf, leaves, n, c);
    return 0;
}

/* A thread for each element. */
template <class Out> __global__ void product_add_leaves(const float *leaf, int64_t leaves, int64_t n, Out *c)
{
    for (int64_t i = sycuda_first(); i < n; i += sycuda_stride())
        sycuda_write(c + i, sycuda_tree(leaves, [=](int64_t l) { return leaf[l * n + i]; }));
}

void sycuda_product_add_leaves(const struct sycuda_context *context, const float *leaf, int64_t leaves,
                               int64_t n, void *c, int out_dtype)
{
    sycuda_by_dtype(out_dtype, [&](auto y) {
        using Out = decltype(y);
        Out *to = static_cast<Out *>(c);
        if (add_few<1>(context->stream, leaf, leaves, n, to)) return;
        SYCUDA_LAUNCH_FREE((product_add_leaves<Out>), sycuda_blocks(n, SYCUDA_THREADS), SYCUDA_THREADS,
                           context->stream, leaf, leaves, n, to);
    });
}

/* A row of n elements by a warp, from NULL: zeros. Rows of a multiple of four elements begin at such places. */
template <class T> __device__ static inline void product_put_row(T *to, const T *from, int64_t n)
{
    typedef sycuda_four_of<T> four;
    const int64_t lane = threadIdx.x % SYCUDA_WARP;
    if (n % 4 == 0)
        for (int64_t i = lane; i < n / 4; i += SYCUDA_WARP)
            reinterpret_cast<four *>(to)[i] = from ? reinterpret_cast<const four *>(from)[i] : four{};
    else
        for (int64_t i = lane; i < n; i += SYCUDA_WARP) to[i] = from ? from[i] : T();
}

/* A warp for each row; those that stay are not read. */
template <class T> __global__ void product_clear(sycuda_product p, T *c)
{
    const int64_t rows = p.experts * p.rows;
    for (int64_t row = sycuda_first() / SYCUDA_WARP; row < rows; row += sycuda_stride() / SYCUDA_WARP)
        if (!product_holds(p, row / p.rows, row % p.rows))
            product_put_row<T>(c + row * p.columns, nullptr, p.columns);
}

void sycuda_product_clear(const struct sycuda_context *context, const struct sycuda_product *p, void *c,
                          int out_dtype)
{
    sycuda_by_dtype(out_dtype, [&](auto y) {
        using T = decltype(y);
        SYCUDA_LAUNCH_FREE((product_clear<T>),
                           sycuda_blocks(p->experts * p->rows, SYCUDA_THREADS / SYCUDA_WARP), SYCUDA_THREADS,
                           context->stream, *p, static_cast<T *>(c));
    });
}

/* A warp for each row. */
template <class T> __global__ void product_clean(sycuda_product p, const T *x, int64_t width, T *copy)
{
    const int64_t rows = p.groups * p.slots;
    for (int64_t row = sycuda_first() / SYCUDA_WARP; row < p.experts * rows;
         row += sycuda_stride() / SYCUDA_WARP)
        product_put_row(copy + row * width,
                        product_holds(p, row / rows, row % rows) ? x + row * width : nullptr, width);
}

void sycuda_product_clean(const struct sycuda_context *context, const struct sycuda_product *p, const void *x,
                          int dtype, int64_t width, void *copy)
{
    const int64_t rows = p->experts * p->groups * p->slots;
    sycuda_by_dtype(dtype, [&](auto y) {
        using T = decltype(y);
        SYCUDA_LAUNCH_FREE((product_clean<T>), sycuda_blocks(rows, SYCUDA_THREADS / SYCUDA_WARP),
                           SYCUDA_THREADS, context->stream, *p, static_cast<const T *>(x), width,
                           static_cast<T *>(copy));
    });
}

/* ---- int8 weights, which the library does not multiply by float32 ---- */

#define PRODUCT_INT8(name)                                                                                   \
    uint64_t sycuda_##name##_workspace(const struct sy_call *call, int)                                      \
    {                                                                                                        \
        const struct sycuda_product p = sycuda_product_of(call);                                             \
        return sycuda_product_own_bytes(&p);                                                                 \
    }                                                                                                        \
    int sycuda_##name(void *context, const struct sy_call *call)                                             \
    {                                                                                                        \
        const struct sycuda_product p = sycuda_product_of(call);                                             \
        sycuda_product_own(static_cast<const sycuda_context *>(context), call, &p, call->workspace);         \
        return sycuda_launched(context, #name);                                                              \
    }

PRODUCT_INT8(matmul_int8)
PRODUCT_INT8(matmul_nt_int8)
PRODUCT_INT8(grouped_matmul_int8)
PRODUCT_INT8(ragged_matmul_int8)
