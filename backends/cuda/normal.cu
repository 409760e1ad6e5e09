/* SPDX-License-Identifier: Apache-2.0 */
/* normal: a thread makes the four numbers of a Philox block, of which a part of a tensor may hold some only. */
#include "backends/cuda/cuda.h"

#include "base/normal.h"

struct part {
    int64_t dim[SY_MAX_DIMS], first[SY_MAX_DIMS], extent[3]; /* of the local tensor; of the whole one */
    int64_t rows, columns, blocks;                           /* local; Philox blocks that a row meets */
    int64_t channel;                                         /* of the first column */
    int rank;
};

/* The global index of local row i: all dims but the last, one after the other. */
__device__ static inline uint64_t global_row(const struct part &p, int64_t i)
{
    uint64_t row = 0, stride = 1;
    for (int d = SY_MAX_DIMS - 2; d >= 0; d--) {
        if (d > p.rank - 2) continue;
        row += (uint64_t)(p.first[d] + i % p.dim[d]) * stride;
        i /= p.dim[d];
        if (d > 0) stride *= (uint64_t)p.extent[d - 1];
    }
    return row;
}

template <class Out>
__global__ void normal_blocks(const int64_t *rng, int64_t site, Out *y, const struct part p)
{
    const struct syi_normal normal = syi_normal_init(rng, site);
    for (int64_t i = sycuda_first(); i < p.rows * p.blocks; i += sycuda_stride()) {
        const int64_t row = i / p.blocks, block = p.channel / 4 + i % p.blocks;
        float number[4];
        syi_normal_block(&normal, global_row(p, row), (uint32_t)block, number);
        for (int e = 0; e < 4; e++) {
            const int64_t column = 4 * block + e - p.channel;
            if (column >= 0 && column < p.columns) sycuda_write(y + row * p.columns + column, number[e]);
        }
    }
}

int sycuda_normal(void *context, const struct sy_call *call)
{
    const struct sy_tensor *out = &call->out[0];
    const struct sy_attr_normal *attr = sycuda_attr<sy_attr_normal>(call);
    const int last = out->rank - 1;
    struct part p = {};
    for (int d = 0; d < SY_MAX_DIMS; d++) p.dim[d] = out->dim[d], p.first[d] = out->first[d];
    for (int d = 0; d < 3; d++) p.extent[d] = attr->extent[d];
    p.rank = out->rank;
    p.rows = sycuda_extent(out, last);
    p.columns = out->dim[last];
    p.channel = out->first[last];
    p.blocks = (p.channel + p.columns + 3) / 4 - p.channel / 4;
    sycuda_by_dtype(out->dtype, [&](auto element) {
        using Out = decltype(element);
        SYCUDA_LAUNCH_FREE(normal_blocks<Out>, sycuda_blocks(p.rows * p.blocks, SYCUDA_THREADS),
                           SYCUDA_THREADS, sycuda_stream(context), sycuda_in<int64_t>(call, 1), attr->site,
                           sycuda_out<Out>(call, 0), p);
    });
    return sycuda_launched(context, "normal");
}
