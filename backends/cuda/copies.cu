/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels that move elements as they are, rounding where the output is bfloat16: pack, unpack, expand_dims, squeeze,
 * regroup, ungroup, cache_append, cache_gather; and kept_tokens, which counts. A thread moves four neighbours where
 * all rows begin at multiples of four, else one element; kept_tokens has 16 lanes a row. */
#include "backends/cuda/four.h"

/* Elements that a thread moves: all of `n` must be multiples of it. */
static int together(const int64_t *n, int count)
{
    for (int i = 0; i < count; i++)
        if (n[i] % SYCUDA_FOUR) return 1;
    return SYCUDA_FOUR;
}

template <class In, class Out> __device__ static inline void move(Out *to, const In *from, int each)
{
    sycuda_write_some(to, sycuda_read_some(from, each, 1), each, 1);
}

/* ---- pack, unpack ---- */

struct parts {
    void *whole, *part[3];
    int64_t width[3], row, count; /* of parts in a block; of a block; elements of the packed tensor */
    int whole_dtype, dtype[3];
    int unpack, each;
};

__global__ void interleave(const struct parts p)
{
    for (int64_t i = sycuda_first() * p.each; i < p.count; i += sycuda_stride() * p.each) {
        const int64_t block = i / p.row;
        int64_t inside = i - block * p.row;
        void *part = p.part[0];
        int64_t width = p.width[0];
        int dtype = p.dtype[0];
        for (int k = 1; k < 3; k++) {
            if (inside < width || p.width[k] == 0) break;
            inside -= width;
            part = p.part[k];
            width = p.width[k];
            dtype = p.dtype[k];
        }
        const int64_t at = block * width + inside;
        if (p.unpack)
            sycuda_write_any(part, dtype, at, sycuda_read_any(p.whole, p.whole_dtype, i, p.each, 1), p.each,
                             1);
        else
            sycuda_write_any(p.whole, p.whole_dtype, i, sycuda_read_any(part, dtype, at, p.each, 1), p.each,
                             1);
    }
}

static int run_parts(void *context, const struct sy_call *call, int unpack)
{
    const struct sy_tensor *whole = unpack ? &call->in[0] : &call->out[0],
                           *part = unpack ? call->out : call->in;
    const int n = unpack ? call->n_out : call->n_in;
    struct parts p = {};
    p.whole = whole->data;
    p.whole_dtype = whole->dtype;
    p.unpack = unpack;
    p.count = sycuda_count(whole);
    for (int i = 0; i < n; i++) {
        p.part[i] = part[i].data;
        p.dtype[i] = part[i].dtype;
        p.width[i] = sycuda_attr<sy_attr_pack>(call)->width[i];
        p.row += p.width[i];
    }
    p.each = together(p.width, 3);
    SYCUDA_LAUNCH_FREE(interleave, sycuda_blocks(p.count / p.each, SYCUDA_THREADS), SYCUDA_THREADS,
                       sycuda_stream(context), p);
    return sycuda_launched(context, unpack ? "unpack" : "pack");
}

int sycuda_pack(void *context, const struct sy_call *call)
{
    return run_parts(context, call, 0);
}

int sycuda_unpack(void *context, const struct sy_call *call)
{
    return run_parts(context, call, 1);
}

/* ---- expand_dims, squeeze, regroup, ungroup ---- */

/* Row r of `rows` is row r of `from` while r < held, its first `length` elements; the rest is 0. */
struct copied_rows {
    int64_t rows, held, length;     /* of the output; of the input; elements of a row that are copied */
    int64_t to_stride, from_stride; /* elements of a row */
    int each;
};

template <class In, class Out> __global__ void copy_rows(const In *from, Out *to, const struct copied_rows c)
{
    const sycuda_four nothing = {{0, 0, 0, 0}};
    for (int64_t i = sycuda_first() * c.each; i < c.rows * c.to_stride; i += sycuda_stride() * c.each) {
        const int64_t row = i / c.to_stride, column = i - row * c.to_stride;
        if (row < c.held && column < c.length)
            move(to + i, from + row * c.from_stride + column, c.each);
        else
            sycuda_write_some(to + i, nothing, c.each, 1);
    }
}

static int run_rows(void *context, const struct sy_call *call, struct copied_rows c, const char *op)
{
    const int64_t lengths[] = {c.length, c.to_stride, c.from_stride};
    c.each = together(lengths, 3);
    sycuda_by_dtypes(call->in[0].dtype, call->out[0].dtype, [&](auto a, auto b) {
        using In = decltype(a);
        using Out = decltype(b);
        SYCUDA_LAUNCH_FREE((copy_rows<In, Out>), sycuda_blocks(c.rows * c.to_stride / c.each, SYCUDA_THREADS),
                           SYCUDA_THREADS, sycuda_stream(context), sycuda_in<In>(call, 0),
                           sycuda_out<Out>(call, 0), c);
    });
    return sycuda_launched(context, op);
}

/* All elements: whole fours, which begin at multiples of four, or one by one. */
static int copy_all(void *context, const struct sy_call *call, const char *op)
{
    const int64_t n = sycuda_count(&call->in[0]);
    const struct copied_rows c = {1, 1, n, n, n, 1};
    return run_rows(context, call, c, op);
}

int sycuda_expand_dims(void *context, const struct sy_call *call)
{
    return copy_all(context, call, "expand_dims");
}

int sycuda_squeeze(void *context, const struct sy_call *call)
{
    return copy_all(context, call, "squeeze");
}

/* Elements of a token of [b, t, ...]. */
static int64_t token(const struct sy_tensor *rows)
{
    int64_t n = 1;
    for (int d = 2; d < rows->rank; d++) n *= rows->dim[d];
    return n;
}

int sycuda_regroup(void *context, const struct sy_call *call)
{
    const struct sy_tensor *rows = &call->in[0];
    const struct sy_attr_regroup *attr = sycuda_attr<sy_attr_regroup>(call);
    const int64_t length = rows->dim[1] * token(rows), padded = attr->length * token(rows);
    const struct copied_rows c = {attr->rows, rows->dim[0], length, padded, length, 1};
    return run_rows(context, call, c, "regroup");
}

int sycuda_ungroup(void *context, const struct sy_call *call)
{
    const struct sy_tensor *rows = &call->out[0];
    const struct sy_attr_regroup *attr = sycuda_attr<sy_attr_regroup>(call);
    const int64_t length = rows->dim[1] * token(rows), padded = attr->length * token(rows);
    const struct copied_rows c = {rows->dim[0], rows->dim[0], length, length, padded, 1};
    return run_rows(context, call, c, "ungroup");
}

/* ---- caches of decoding ---- */

struct cache {
    int64_t rows, positions, n; /* of the cache [rows, positions, n] */
    int64_t first;              /* global index of its first row */
    int each;
};

static struct cache describe(const struct sy_call *call)
{
    const struct sy_tensor *in = &call->in[0];
    const int64_t n = in->dim[2];
    return {in->dim[0], in->dim[1], n, in->first[0], together(&n, 1)};
}

/* Writes the new rows at the position; one that the cache does not have writes nothing. */
template <class In, class Out>
__global__ void append_rows(const In *added, const int32_t *position, Out *cache, const struct cache c)
{
    const int64_t at = position[0];
    if (at < 0 || at >= c.positions) return;
    for (int64_t i = sycuda_first() * c.each; i < c.rows * c.n; i += sycuda_stride() * c.each) {
        const int64_t row = i / c.n;
        move(cache + (row * c.positions + at) * c.n + (i - row * c.n), added + i, c.each);
    }
}

int sycuda_cache_append(void *context, const struct sy_call *call)
{
    const struct cache c = describe(call);
    if (call->out[0].data != call->in[0].data) {
        int status = copy_all(context, call, "cache_append");
        if (status) return status;
    }
    sycuda_by_dtypes(call->in[1].dtype, call->out[0].dtype, [&](auto a, auto b) {
        using In = decltype(a);
        using Out = decltype(b);
        SYCUDA_LAUNCH_FREE((append_rows<In, Out>), sycuda_blocks(c.rows * c.n / c.each, SYCUDA_THREADS),
                           SYCUDA_THREADS, sycuda_stream(context), sycuda_in<In>(call, 1),
                           sycuda_in<int32_t>(call, 2), sycuda_out<Out>(call, 0), c);
    });
    return sycuda_launched(context, "cache_append");
}

template <class In, class Out>
__global__ void gather_rows(const In *from, const int32_t *rows, const int32_t *position, Out *to,
                            const struct cache c)
{
    const int64_t known = position[0] * c.n, length = c.positions * c.n;
    for (int64_t i = sycuda_first() * c.each; i < c.rows * length; i += sycuda_stride() * c.each) {
        const int64_t row = i / length, inside = i - row * length;
        if (inside >= known) continue;
        int64_t source = rows[row] - c.first;
        if (source < 0 || source >= c.rows) source = row;
        move(to + i, from + source * length + inside, c.each);
    }
}

int sycuda_cache_gather(void *context, const struct sy_call *call)
{
    const struct cache c = describe(call);
    sycuda_by_dtypes(call->in[0].dtype, call->out[0].dtype, [&](auto a, auto b) {
        using In = decltype(a);
        using Out = decltype(b);
        SYCUDA_LAUNCH_FREE((gather_rows<In, Out>),
                           sycuda_blocks(c.rows * c.positions * c.n / c.each, SYCUDA_THREADS), SYCUDA_THREADS,
                           sycuda_stream(context), sycuda_in<In>(call, 0), sycuda_in<int32_t>(call, 1),
                           sycuda_in<int32_t>(call, 2), sycuda_out<Out>(call, 0), c);
    });
    return sycuda_launched(context, "cache_gather");
}

/* ---- kept_tokens ---- */

/* slot[rows, tokens, choices] -> kept[rows] */
__global__ void count_kept(const int32_t *slot, int32_t *kept, int64_t rows, int64_t tokens, int64_t choices)
{
    for (int64_t row = sycuda_row(); row - sycuda_row_of_warp() < rows; row += sycuda_row_stride()) {
        int32_t lane = 0;
        for (int64_t t = sycuda_lane(); row < rows && t < tokens; t += SYCUDA_LANES) {
            int any = 0;
            for (int64_t j = 0; j < choices; j++) any |= slot[(row * tokens + t) * choices + j] >= 0;
            lane += any;
        }
        for (int s = SYCUDA_LANES / 2; s >= 1; s /= 2)
            lane += __shfl_xor_sync(0xffffffffu, lane, s, SYCUDA_LANES);
        if (row < rows && sycuda_lane() == 0) kept[row] = lane;
    }
}

int sycuda_kept_tokens(void *context, const struct sy_call *call)
{
    const int64_t *dim = call->in[0].dim;
    SYCUDA_LAUNCH(count_kept, sycuda_row_blocks(dim[0]), SYCUDA_THREADS, 0, sycuda_stream(context),
                  sycuda_in<int32_t>(call, 0), sycuda_out<int32_t>(call, 0), dim[0], dim[1], dim[2]);
    return sycuda_launched(context, "kept_tokens");
}
