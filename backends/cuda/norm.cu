/* SPDX-License-Identifier: Apache-2.0 */
/* rms_norm and its gradient. */
#include "backends/cuda/cuda.h"

template <class In, class Out>
__global__ void norm_rows(const In *x, const float *scale, const float *mask, Out *y, int64_t rows, int64_t D,
                          float epsilon)
{
    for (int64_t row = sycuda_row(); row - sycuda_row_of_warp() < rows; row += sycuda_row_stride()) {
        int there = row < rows, real = there && (!mask || mask[row] != 0);
        const In *from = x + row * D;
        float lane = 0;
        for (int64_t d = sycuda_lane(); real && d < D; d += SYCUDA_LANES) {
            float value = sycuda_read(from + d);
            lane = fmaf(value, value, lane);
        }
        float r = 1 / sqrtf(sycuda_lane_sum(lane) / (float)D + epsilon);
        for (int64_t d = sycuda_lane(); there && d < D; d += SYCUDA_LANES)
            sycuda_write(y + row * D + d, real ? (sycuda_read(from + d) * r) * scale[d] : 0);
    }
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
