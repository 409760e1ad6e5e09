/* SPDX-License-Identifier: Apache-2.0 */
/* glu and its gradient: a thread takes four columns of the output inside one block of `width`. */
#include "backends/cuda/four.h"

struct glu {
    int64_t rows, inner;    /* rows of the output; positions or slots that share one mask */
    int64_t columns, width; /* of the output; of a block */
    int packed;             /* 1: gate and linear are blocks of one tensor, of 2 * columns */
    int64_t fours, each;    /* of a row; of a block */
    int64_t first0, first1, dim1, channel;
    const int64_t *rng;    /* NULL: no dropout */
    const int32_t *counts; /* NULL: all slots are filled */
    struct syi_dropout dropout;
    int kind, rank, aligned;
};

/* Four columns of a row. */
struct glu_place {
    int64_t x, y; /* element of gate and linear; of the output */
    sycuda_four mask;
    int n, filled;
};

__device__ static inline sycuda_four masks(const struct glu &g, int64_t outer, int64_t column)
{
    if (!g.rng) return sycuda_four{{1, 1, 1, 1}};
    int64_t row = g.first0 + outer + g.rng[SY_RNG_ROW0], position = 0;
    if (g.rank == 4) {
        row = g.first1 + outer % g.dim1 + g.rng[SY_RNG_GROUP0];
        position = g.first0 + outer / g.dim1;
    }
    return sycuda_four_masks(g.dropout, g.rng, (uint32_t)row, (uint32_t)position, g.channel + column);
}

__device__ static inline struct glu_place find(const struct glu &g, int64_t i)
{
    const int64_t row = i / g.fours, four = i - row * g.fours, block = four / g.each;
    const int64_t inside = (four - block * g.each) * SYCUDA_FOUR, column = block * g.width + inside;
    struct glu_place at;
    at.y = row * g.columns + column;
    at.x = g.packed ? 2 * row * g.columns + column + block * g.width : at.y;
    at.n = g.width - inside < SYCUDA_FOUR ? (int)(g.width - inside) : SYCUDA_FOUR;
    const int64_t outer = g.rng || g.counts ? row / g.inner : 0;
    at.filled = !g.counts || row - outer * g.inner < g.counts[outer];
    at.mask = masks(g, outer, column);
    return at;
}

template <class In, class Out>
__global__ void glu_fours(const In *gates, const In *linears, Out *y, const struct glu g)
{
    for (int64_t i = sycuda_first(); i < g.rows * g.fours; i += sycuda_stride()) {
        const struct glu_place at = find(g, i);
        sycuda_four out = {{0, 0, 0, 0}};
        if (at.filled) {
            const sycuda_four gate = sycuda_read_some(gates + at.x, at.n, g.aligned);
            const sycuda_four linear = sycuda_read_some(linears + at.x, at.n, g.aligned);
            for (int e = 0; e < SYCUDA_FOUR; e++) {
                const float value = syi_f32_activation(gate.v[e], g.kind) * linear.v[e];
                out.v[e] = SYI_DROP(value, at.mask.v[e]);
            }
        }
        sycuda_write_some(y + at.y, out, at.n, g.aligned);
    }
}

template <class In, class Out>
__global__ void glu_grad_fours(const In *gates, const In *linears, const In *dy, Out *dgates, Out *dlinears,
                               const struct glu g)
{
    for (int64_t i = sycuda_first(); i < g.rows * g.fours; i += sycuda_stride()) {
        const struct glu_place at = find(g, i);
        sycuda_four dgate = {{0, 0, 0, 0}}, dlinear = dgate;
        if (at.filled) {
            const sycuda_four gate = sycuda_read_some(gates + at.x, at.n, g.aligned);
            const sycuda_four linear = sycuda_read_some(linears + at.x, at.n, g.aligned);
            const sycuda_four given = sycuda_read_some(dy + at.y, at.n, g.aligned);
            for (int e = 0; e < SYCUDA_FOUR; e++) {
                const float d = SYI_DROP(given.v[e], at.mask.v[e]);
                float value, slope = syi_f32_activation_both(gate.v[e], g.kind, &value);
                dlinear.v[e] = d * value;
                dgate.v[e] = (d * linear.v[e]) * slope;
            }
        }
        sycuda_write_some(dgates + at.x, dgate, at.n, g.aligned);
        sycuda_write_some(dlinears + at.x, dlinear, at.n, g.aligned);
    }
}

/* y: the tensor [...f]. Input `rng` is followed by the counts and linear. */
static struct glu describe(const struct sy_call *call, const struct sy_tensor *y, int rng)
{
    const struct sy_attr_glu *attr = sycuda_attr<sy_attr_glu>(call);
    struct glu g = {};
    g.rank = y->rank;
    g.rows = sycuda_extent(y, y->rank - 1);
    g.inner = y->dim[y->rank - 2];
    g.columns = y->dim[y->rank - 1];
    g.packed = attr->width > 0;
    g.width = g.packed ? attr->width : g.columns;
    g.each = sycuda_fours(g.width);
    g.fours = g.columns / g.width * g.each;
    g.first0 = y->first[0];
    g.first1 = y->first[1];
    g.dim1 = y->dim[1];
    g.channel = y->first[y->rank - 1];
    g.dropout = sycuda_dropout(attr->site, attr->rate);
    g.rng = g.dropout.threshold ? sycuda_in<int64_t>(call, rng) : nullptr;
    g.counts = sycuda_optional<int32_t>(call, rng + 1);
    g.kind = (int)attr->activation;
    g.aligned = g.width % SYCUDA_FOUR == 0;
    return g;
}

/* Where linear is read or written from the same element on as gate. */
template <class T> static T *linear_of(const struct glu &g, T *gate, T *linear)
{
    return g.packed ? gate + g.width : linear;
}

int sycuda_glu(void *context, const struct sy_call *call)
{
    const struct glu g = describe(call, &call->out[0], 1);
    sycuda_by_dtypes(call->in[0].dtype, call->out[0].dtype, [&](auto a, auto b) {
        using In = decltype(a);
        using Out = decltype(b);
        SYCUDA_LAUNCH_FREE((glu_fours<In, Out>), sycuda_blocks(g.rows * g.fours, SYCUDA_THREADS),
                           SYCUDA_THREADS, sycuda_stream(context), sycuda_in<In>(call, 0),
                           linear_of(g, sycuda_in<In>(call, 0), sycuda_optional<In>(call, 3)),
                           sycuda_out<Out>(call, 0), g);
    });
    return sycuda_launched(context, "glu");
}

int sycuda_glu_grad(void *context, const struct sy_call *call)
{
    const struct glu g = describe(call, &call->in[1], 2);
    sycuda_by_dtypes(call->in[0].dtype, call->out[0].dtype, [&](auto a, auto b) {
        using In = decltype(a);
        using Out = decltype(b);
        SYCUDA_LAUNCH_FREE((glu_grad_fours<In, Out>), sycuda_blocks(g.rows * g.fours, SYCUDA_THREADS),
                           SYCUDA_THREADS, sycuda_stream(context), sycuda_in<In>(call, 0),
                           linear_of(g, sycuda_in<In>(call, 0), sycuda_optional<In>(call, 4)),
                           sycuda_in<In>(call, 1), sycuda_out<Out>(call, 0),
                           linear_of(g, sycuda_out<Out>(call, 0), static_cast<Out *>(call->out[1].data)), g);
    });
    return sycuda_launched(context, "glu_grad");
}
