/* SPDX-License-Identifier: Apache-2.0 */
/* Weights laid out in panels (ops.h, backends/cpu/gemm.h), threaded: a task rounds 32 rows of the tensors, a block of 32
 * columns of them after the other, and writes each as 2 KiB of a panel: rows in pairs side by side, or with two neighbours
 * of a row as one word, transposed, or both. */
#include "config.h"

#include "backends/cpu/fast.h"
#include "backends/cpu/gemm_simd.h"

enum { SIDE = SY_PANEL_COLUMNS }; /* rows and columns of a block */
/* Panels of more bytes are written past the caches, which a step fills with other things before it reads them. */
#define STREAM_BYTES (1 << 20)

struct laying {
    const struct sy_call *call;
    const int64_t *width;  /* that each part gives to a block of columns */
    int64_t rows, columns; /* of an expert, of the tensors packed */
    int64_t block, blocks; /* the widths' sum; how many there are in a row */
    float *plain, *turned; /* panels of the rows as they are, and transposed; NULL: not wanted */
    int streamed;          /* 1: they go past the caches */
};

/* Column `column` of all in row `row`, counted over all experts; *n: how many follow it in that part, itself included. */
static const float *place_of(const struct laying *l, int64_t row, int64_t column, int64_t *stride, int64_t *n)
{
    int part = 0;
    int64_t rest = column % l->block;
    while (rest >= l->width[part]) rest -= l->width[part++];
    *n = l->width[part] - rest;
    *stride = l->width[part] * l->blocks;
    return (const float *)l->call->in[part].data + row * *stride + column / l->block * l->width[part] + rest;
}

/* The block of 32 rows and columns at (row, column), in one part or brought together in `scratch`. */
static const float *block_at(const struct laying *l, int64_t row, int64_t column, float *scratch,
                             int64_t *stride)
{
    int64_t n;
    const float *from = place_of(l, row, column, stride, &n);
    if (n >= SIDE) return from;
    for (int64_t done = 0; done < SIDE; done += n) {
        from = place_of(l, row, column + done, stride, &n);
        if (n > SIDE - done) n = SIDE - done;
        for (int i = 0; i < SIDE; i++)
            memcpy(scratch + i * SIDE + done, from + i * *stride, (size_t)n * sizeof *scratch);
    }
    *stride = SIDE;
    return scratch;
}

/* The block after the next one: its rows lie too far apart for the processor to guess. */
ALWAYS_INLINE void fetch_ahead(const float *from, int64_t stride)
{
    for (int i = 0; i < SIDE; i++)
        for (int j = 0; j < SIDE; j += 16) __builtin_prefetch(from + i * stride + 2 * SIDE + j);
}

/* A line of a panel, or a part of one. */
ALWAYS_INLINE void put(float *to, vf words, int streamed)
{
    float line[SYCPU_LANES] __attribute__((aligned(64)));
    vf_store(streamed ? line : to, words);
    for (int i = 0; streamed && i < SYCPU_LANES; i += LANES) vec_stream(to + i, vec_load(line + i));
}

/* Rows become steps of the contraction, two at a time. */
ALWAYS_INLINE void lay_block(const float *from, int64_t stride, float *to, int streamed)
{
    for (int k = 0; k < SIDE; k += 2, from += 2 * stride)
        for (int i = 0; i < SIDE; i += SYCPU_LANES, to += SYCPU_LANES) {
            vi early = vf_round_bf16(vf_load(from + i)), late = vf_round_bf16(vf_load(from + stride + i));
            put(to, vf_real(vf_ior(vf_upper_halves(early), vf_iand(late, vf_iset(-65536)))), streamed);
        }
}

/* Rows become columns of the panel. */
ALWAYS_INLINE void lay_transposed(const float *from, int64_t stride, float *to, int streamed)
{
    float turned[SIDE * SIDE];
    const float *row[SIDE];
    for (int i = 0; i < SIDE; i++) row[i] = from + i * stride;
    for (int k = 0; k < SIDE; k += LANES)
        for (int i = 0; i < SIDE; i += LANES) transpose(row + i, k, turned + k * SIDE + i, SIDE, LANES);
    lay_block(turned, SIDE, to, streamed);
}

static void lay_rows(void *arg, int64_t task, int thread)
{
    const struct laying *l = arg;
    int64_t tasks = l->rows / SIDE, expert = task / tasks, row = task % tasks * SIDE, stride;
    const int64_t skip = expert * l->rows * l->columns / 2;
    float scratch[SIDE * SIDE];
    (void)thread;
    for (int64_t column = 0; column < l->columns; column += SIDE) {
        const float *from = block_at(l, expert * l->rows + row, column, scratch, &stride);
        if (!l->plain || !l->turned) fetch_ahead(from, stride); /* both write more than they wait */
        if (l->plain)
            lay_block(from, stride, l->plain + skip + (column * l->rows + row * SIDE) / 2, l->streamed);
        if (l->turned)
            lay_transposed(from, stride, l->turned + skip + (row * l->columns + column * SIDE) / 2,
                           l->streamed);
    }
    finish_streams();
}

static int lay_out(const struct sy_call *call, float *plain, float *turned)
{
    const struct sy_tensor *first = &call->in[0];
    int last = first->rank - 1;
    struct laying l = {.call = call,
                       .width = ((const struct sy_attr_pack *)call->attr)->width,
                       .rows = first->dim[last - 1],
                       .plain = plain,
                       .turned = turned};
    l.blocks = first->dim[last] / l.width[0];
    for (int i = 0; i < 3 && call->in[i].data; i++) l.block += l.width[i];
    l.columns = l.block * l.blocks;
    l.streamed = sycpu_count(&call->out[0]) * (int64_t)sizeof(uint16_t) > STREAM_BYTES;
    sycpu_parallel(call, sycpu_extent(first, last) / SIDE, lay_rows, &l);
    return SY_OK;
}

int fast_lay_out(void *context, const struct sy_call *call)
{
    (void)context;
    return lay_out(call, call->out[0].data, NULL);
}

int fast_lay_out_nt(void *context, const struct sy_call *call)
{
    (void)context;
    return lay_out(call, NULL, call->out[0].data);
}

int fast_lay_out_both(void *context, const struct sy_call *call)
{
    (void)context;
    return lay_out(call, call->out[0].data, call->out[1].data);
}
