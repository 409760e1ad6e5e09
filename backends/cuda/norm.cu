/* SPDX-License-Identifier: Apache-2.0 */
/* rms_norm, also of a sum, and its gradient. 16 threads take a row; how the sum over rows is divided is said below. */
#include "backends/cuda/cuda.h"

template <class In, class Out>
__global__ void norm_rows(const In *__restrict__ x, const float *__restrict__ scale, const float *mask,
                          Out *__restrict__ y, int64_t rows, int64_t D, float epsilon)
{
    for (int64_t row = sycuda_row(); row - sycuda_row_of_warp() < rows; row += sycuda_row_stride()) {
        int there = row < rows, real = there && (!mask || mask[row] != 0);
        const In *from = x + row * D;
        const int64_t n = there ? D : 0, read = real ? D : 0;
        float lane = 0;
#pragma unroll 8
        for (int64_t d = sycuda_lane(); d < read; d += SYCUDA_LANES) {
            float value = sycuda_read(from + d);
            lane = fmaf(value, value, lane);
        }
        float r = 1 / sqrtf(sycuda_lane_sum(lane) / (float)D + epsilon);
#pragma unroll 8
        for (int64_t d = sycuda_lane(); d < n; d += SYCUDA_LANES)
            sycuda_write(y + row * D + d, real ? (sycuda_read(from + d) * r) * scale[d] : 0);
    }
}

/* Each element of a sum is read again by the thread that wrote it. */
template <class Out>
__global__ void add_norm_rows(const float *x, const float *y, const float *scale, const float *mask,
                              float *sum, Out *out, int64_t rows, int64_t D, float epsilon)
{
    for (int64_t row = sycuda_row(); row - sycuda_row_of_warp() < rows; row += sycuda_row_stride()) {
        int there = row < rows, real = there && (!mask || mask[row] != 0);
        float lane = 0;
        for (int64_t d = sycuda_lane(); there && d < D; d += SYCUDA_LANES) {
            float value = x[row * D + d] + y[row * D + d];
            sum[row * D + d] = value;
            if (real) lane = fmaf(value, value, lane);
        }
        float r = 1 / sqrtf(sycuda_lane_sum(lane) / (float)D + epsilon);
        for (int64_t d = sycuda_lane(); there && d < D; d += SYCUDA_LANES)
            sycuda_write(out + row * D + d, real ? (sum[row * D + d] * r) * scale[d] : 0);
    }
}

int sycuda_add_rms_norm(void *context, const struct sy_call *call)
{
    int64_t D = call->in[0].dim[2], rows = sycuda_extent(&call->in[0], 2);
    float epsilon = (float)sycuda_attr<sy_attr_rms_norm>(call)->epsilon;
    sycuda_by_dtypes(SY_F32, call->out[1].dtype, [&](auto, auto b) {
        using Out = decltype(b);
        SYCUDA_LAUNCH((add_norm_rows<Out>), sycuda_row_blocks(rows), SYCUDA_THREADS, 0,
                      sycuda_stream(context), sycuda_in<float>(call, 0), sycuda_in<float>(call, 1),
                      sycuda_in<float>(call, 2), sycuda_optional<float>(call, 3), sycuda_out<float>(call, 0),
                      sycuda_out<Out>(call, 1), rows, D, epsilon);
    });
    return sycuda_launched(context, "add_rms_norm");
}

int sycuda_rms_norm(void *context, const struct sy_call *call)
{
    int64_t D = call->in[0].dim[2], rows = sycuda_extent(&call->in[0], 2);
    float epsilon = (float)sycuda_attr<sy_attr_rms_norm>(call)->epsilon;
    sycuda_by_dtypes(call->in[0].dtype, call->out[0].dtype, [&](auto a, auto b) {
        using In = decltype(a);
        using Out = decltype(b);
        SYCUDA_LAUNCH((norm_rows<In, Out>), sycuda_row_blocks(rows), SYCUDA_THREADS, 0,
                      sycuda_stream(context), sycuda_in<In>(call, 0), sycuda_in<float>(call, 1),
                      sycuda_optional<float>(call, 2), sycuda_out<Out>(call, 0), rows, D, epsilon);
    });
    return sycuda_launched(context, "rms_norm");
}

/* ---- gradient ----
 * Two passes over x and dy: rows give dx and their 1 / rms, then a thread takes a column of a leaf of b, whose chain
 * is the order of the sum; its rows are read BATCH at a time. */

enum { BATCH = 32, COLUMNS = 32 /* threads of a block: few, so that it may have many registers */ };

/* inverse: [rows] 1 / rms, which is never below 0, so -1 marks a row that the mask leaves out. */
template <class T>
__global__ void norm_grad_rows(const float *__restrict__ x, const float *__restrict__ scale,
                               const T *__restrict__ dy, const float *mask, float *__restrict__ dx,
                               float *inverse, int64_t rows, int64_t D, float epsilon)
{
    for (int64_t row = sycuda_row(); row - sycuda_row_of_warp() < rows; row += sycuda_row_stride()) {
        int there = row < rows, real = there && (!mask || mask[row] != 0);
        const float *xs = x + row * D;
        const T *dys = dy + row * D;
        const int64_t n = there ? D : 0, read = real ? D : 0;
        float q = 0, c = 0;
#pragma unroll 8
        for (int64_t d = sycuda_lane(); d < read; d += SYCUDA_LANES) {
            q = fmaf(xs[d], xs[d], q);
            c = fmaf(sycuda_read(dys + d) * scale[d], xs[d], c);
        }
        float r = 1 / sqrtf(sycuda_lane_sum(q) / (float)D + epsilon);
        float t = ((sycuda_lane_sum(c) * r) * r) / (float)D;
#pragma unroll 8
        for (int64_t d = sycuda_lane(); d < n; d += SYCUDA_LANES)
            dx[row * D + d] = real ? r * fmaf(-xs[d], t, sycuda_read(dys + d) * scale[d]) : 0;
        if (there && sycuda_lane() == 0) inverse[row] = real ? r : -1;
    }
}

/* What one position adds to a column of dscale; nothing where it is masked. It is read there, too: reads that depend on the
 * mask would wait for it, one after the other. */
template <class T> struct norm_term {
    float dy, y; /* y: x / rms */
    __device__ void read(const float *x, const T *from, float r)
    {
        const float to = sycuda_read(from), value = *x;
        dy = r < 0 ? 0 : to;
        y = r < 0 ? 0 : value * r;
    }
};

/* part: [leaves][D]; positions: rows of a leaf times the length. */
template <class T>
__global__ void __launch_bounds__(COLUMNS, 1)
    norm_scale_leaves(const float *__restrict__ x, const T *__restrict__ dy,
                      const float *__restrict__ inverse, float *__restrict__ part, int64_t leaves,
                      int64_t positions, int64_t D)
{
    for (int64_t i = sycuda_first(); i < leaves * D; i += sycuda_stride()) {
        int64_t row = i / D * positions, end = row + positions, d = i % D;
        float sum = 0;
        for (; row + BATCH <= end; row += BATCH) {
            norm_term<T> term[BATCH];
#pragma unroll
            for (int j = 0; j < BATCH; j++)
                term[j].read(x + (row + j) * D + d, dy + (row + j) * D + d, inverse[row + j]);
#pragma unroll
            for (int j = 0; j < BATCH; j++) sum = fmaf(term[j].dy, term[j].y, sum);
        }
        for (; row < end; row++) {
            norm_term<T> term;
            term.read(x + row * D + d, dy + row * D + d, inverse[row]);
            sum = fmaf(term.dy, term.y, sum);
        }
        part[i] = sum + 0.0f;
    }
}

__global__ void norm_scale_tree(const float *part, float *dscale, int64_t leaves, int64_t D)
{
    for (int64_t d = sycuda_first(); d < D; d += sycuda_stride())
        dscale[d] = sycuda_tree(leaves, [=](int64_t leaf) { return part[leaf * D + d]; });
}

static int64_t norm_leaves(const struct sy_call *call)
{
    return call->in[0].dim[0] / sycuda_attr<sy_attr_rms_norm>(call)->leaf;
}

/* 1 / rms of every row, then the leaves. */
uint64_t sycuda_rms_norm_grad_workspace(const struct sy_call *call, int)
{
    int64_t floats = sycuda_extent(&call->in[0], 2) + norm_leaves(call) * call->in[0].dim[2];
    return (uint64_t)floats * sizeof(float);
}

int sycuda_rms_norm_grad(void *context, const struct sy_call *call)
{
    int64_t D = call->in[0].dim[2], rows = sycuda_extent(&call->in[0], 2), leaves = norm_leaves(call);
    float epsilon = (float)sycuda_attr<sy_attr_rms_norm>(call)->epsilon;
    float *inverse = static_cast<float *>(call->workspace), *part = inverse + rows;
    const float *x = sycuda_in<float>(call, 0);
    cudaStream_t stream = sycuda_stream(context);
    sycuda_by_dtype(call->in[2].dtype, [&](auto element) {
        using T = decltype(element);
        SYCUDA_LAUNCH((norm_grad_rows<T>), sycuda_row_blocks(rows), SYCUDA_THREADS, 0, stream, x,
                      sycuda_in<float>(call, 1), sycuda_in<T>(call, 2), sycuda_optional<float>(call, 3),
                      sycuda_out<float>(call, 0), inverse, rows, D, epsilon);
        SYCUDA_LAUNCH_FREE((norm_scale_leaves<T>), sycuda_blocks(leaves * D, COLUMNS), COLUMNS, stream, x,
                           sycuda_in<T>(call, 2), inverse, part, leaves, rows / leaves, D);
    });
    SYCUDA_LAUNCH_FREE(norm_scale_tree, sycuda_blocks(D, 32), 32, stream, part, sycuda_out<float>(call, 1),
                       leaves, D);
    return sycuda_launched(context, "rms_norm_grad");
}
