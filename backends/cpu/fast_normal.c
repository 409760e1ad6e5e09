/* SPDX-License-Identifier: Apache-2.0 */
/* normal, sixteen blocks of four numbers at once. */
#include "config.h"

#include "backends/cpu/fast.h"
#include "backends/cpu/normal.h"

enum { WIDE = 4 * SYCPU_LANES, PIECE = 4096 }; /* numbers made at once; of a row that one task makes */

/* Channels 4 * block to 4 * block + 63 of a row. */
static inline void make(const struct syi_normal *normal, uint64_t row, uint32_t block, float y[WIDE])
{
    static const int32_t lane[SYCPU_LANES] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    float side[4][SYCPU_LANES];
    vi c[4] = {vf_iset((int32_t)normal->step), vf_iset((int32_t)(uint32_t)row),
               vf_iset((int32_t)((uint32_t)(row >> 32) ^ SYI_NORMAL_MARK)),
               vf_iadd(vf_iset((int32_t)block), vf_iload(lane))};
    vf_philox(c, normal->key);
    for (int i = 0; i < 4; i += 2) {
        vf a, b;
        vf_normal_pair(c[i], c[i + 1], &a, &b);
        vf_store(side[i], a);
        vf_store(side[i + 1], b);
    }
    for (int i = 0; i < WIDE; i++) y[i] = side[i % 4][i / 4];
}

/* Pieces of rows. */
static void make_pieces(const struct sy_call *call, int64_t first, int64_t end)
{
    const struct sy_tensor *out = &call->out[0];
    const struct sy_attr_normal *attr = call->attr;
    const struct syi_normal normal = syi_normal_init(call->in[1].data, attr->site);
    int last = out->rank - 1;
    int64_t D = out->dim[last], pieces = (D + PIECE - 1) / PIECE;
    for (; first < end; first++) {
        int64_t at = first % pieces * PIECE, stop = at + PIECE < D ? at + PIECE : D, count;
        uint64_t row = normal_row(out, attr, first / pieces);
        float *y = (float *)out->data + first / pieces * D, some[WIDE];
        for (; at < stop; at += count) {
            int64_t channel = out->first[last] + at, skip = channel % 4;
            count = WIDE - skip < stop - at ? WIDE - skip : stop - at;
            make(&normal, row, (uint32_t)(channel / 4), some);
            memcpy(y + at, some + skip, (size_t)count * sizeof *y);
        }
    }
}

int fast_normal(void *context, const struct sy_call *call)
{
    const struct sy_tensor *out = &call->out[0];
    int64_t D = out->dim[out->rank - 1], pieces = (D + PIECE - 1) / PIECE;
    (void)context;
    fast_rows(call, sycpu_extent(out, out->rank - 1) * pieces, D < PIECE ? D : PIECE, make_pieces);
    return SY_OK;
}
