/* SPDX-License-Identifier: Apache-2.0 */
/* map_sums, by two kernels that share out all rows, however many a block has.
 *
 * The first makes the values (map.h), a tile of at most 512 at a time, some rows of the columns that are whole blocks of every
 * output. What is stored goes to memory at once; teams of 16 lanes reduce the rows of blocks. The second adds up
 * what rows were reduced to, in order: a thread block 32 columns of blocks. So the values are made once and memory is passed over
 * once; but of blocks one column wide the values themselves are what their rows are reduced to, and are written and read
 * again. */
#include "backends/cuda/map.h"
#include "backends/cuda/reduce.h"
#include "base/common_multiple.h"

enum {
    TILE = SY_MAP_SUMS_COLUMNS, /* values */
    THREADS = TILE / SYCUDA_FOUR,
    WIDTH = 64, /* columns of a tile, where blocks leave the choice */
    CHAIN_THREADS = SYCUDA_CHAIN_COLUMNS * SYCUDA_CHAIN_TEAMS
};

enum kind { SUM, SQUARES, LARGEST };

/* An output that is not stored. */
struct summed {
    float *rows; /* [rows, columns / wide] what rows of blocks are reduced to */
    int out, kind, wide;
    int slot; /* of its values in shared memory; none for blocks one column wide */
};

struct sums {
    int64_t parts;          /* of a row: `width` columns each, the last what is left */
    int width, pitch, high; /* of a tile: columns, and with those that fill a four, rows */
    int n, slots;
    unsigned stored; /* bit o: output o is */
    struct summed of[SY_MAX_OUT];
};
static_assert(sizeof(struct sycuda_map) + sizeof(struct sums) <= 4096,
              "a kernel's parameters are at most 4 KB");

struct chain {
    const float *rows;
    float *out;            /* [bands, columns] */
    int64_t high, columns; /* rows of a block; blocks side by side */
    int64_t bands, tiles;  /* blocks one below the other; thread blocks for those side by side */
    int kind;
};

struct chains {
    int64_t blocks; /* thread blocks */
    int n;
    struct chain of[SY_MAX_OUT];
};

/* fn(the rule of a kind) */
template <class Fn> __device__ static inline void by_kind(int kind, Fn fn)
{
    switch (kind) {
    case SUM: fn(sycuda_plain_sum()); break;
    case SQUARES: fn(sycuda_square_sum()); break;
    default: fn(sycuda_largest_size());
    }
}

/* ---- values, and rows of blocks ---- */

struct tile {
    int64_t row, column;
    int rows, columns;
};

__device__ static inline struct tile tile_of(const struct sycuda_map &p, const struct sums &s, int64_t i)
{
    const int64_t row = i / s.parts * s.high, column = i % s.parts * s.width;
    const int64_t rows = p.rows - row, columns = p.columns - column;
    return {row, column, (int)(rows < s.high ? rows : s.high), (int)(columns < s.width ? columns : s.width)};
}

/* Makes the values of a tile, writes those that are stored, puts those whose rows are reduced into their slots. */
__device__ static inline void make_values(const struct sycuda_map &p, const struct sums &s,
                                          const struct tile &t, const struct sycuda_map_registers &r,
                                          float *slots)
{
    const int fours = (t.columns + SYCUDA_FOUR - 1) / SYCUDA_FOUR;
    for (int i = (int)threadIdx.x; i < t.rows * fours; i += (int)blockDim.x) {
        const int y = i / fours, x = i % fours * SYCUDA_FOUR, left = t.columns - x;
        const int n = left < SYCUDA_FOUR ? left : (int)SYCUDA_FOUR;
        const int64_t row = t.row + y, column = t.column + x;
        sycuda_map_values(p, r, row, column, n);
        for (int o = 0; o < p.n_out; o++)
            if (s.stored >> o & 1) sycuda_map_store(p, r, o, row, column, n);
        for (int k = 0; k < s.n; k++) {
            const sycuda_four value = sycuda_map_get(r, p.out[s.of[k].out].place);
            if (s.of[k].wide == 1)
                sycuda_write_some(s.of[k].rows + row * p.columns + column, value, n, p.aligned);
            else
                sycuda_write_four(slots + s.of[k].slot * TILE + y * s.pitch + x, value);
        }
    }
}

__device__ static inline void reduce_rows(const struct summed &of, const struct tile &t, int pitch,
                                          int64_t columns, const float *values)
{
    const int blocks = t.columns / of.wide, n = t.rows * blocks;
    const int teams = (int)blockDim.x / SYCUDA_LANES, team = (int)threadIdx.x / SYCUDA_LANES;
    for (int i = team; i - team % 2 < n; i += teams) {
        const int there = i < n, y = there ? i / blocks : 0, block = there ? i % blocks : 0;
        float row = 0;
        by_kind(of.kind, [&](auto rule) {
            using Rule = decltype(rule);
            row =
                Rule::result(sycuda_row_of<Rule>(values + y * pitch + block * of.wide, there ? of.wide : 0));
        });
        if (there && sycuda_lane() == 0)
            of.rows[(t.row + y) * (columns / of.wide) + t.column / of.wide + block] = row;
    }
}

__global__ void map_and_reduce(const __grid_constant__ struct sycuda_map p,
                               const __grid_constant__ struct sums s)
{
    SYCUDA_DYNAMIC_SHARED(sycuda_four, shared);
    const struct sycuda_map_registers r = {shared + threadIdx.x, blockDim.x};
    float *slots = shared[(unsigned)p.places * blockDim.x].v;
    const int64_t tiles = (p.rows + s.high - 1) / s.high * s.parts;
    for (int64_t i = blockIdx.x; i < tiles; i += gridDim.x) {
        const struct tile t = tile_of(p, s, i);
        make_values(p, s, t, r, slots);
        __syncthreads();
        for (int k = 0; k < s.n; k++)
            if (s.of[k].wide > 1) reduce_rows(s.of[k], t, s.pitch, p.columns, slots + s.of[k].slot * TILE);
        __syncthreads();
    }
}

/* ---- blocks ---- */

__global__ void chain_rows(const __grid_constant__ struct chains c)
{
    for (int64_t i = blockIdx.x; i < c.blocks; i += gridDim.x) {
        int k = 0;
        int64_t at = i;
        while (at >= c.of[k].bands * c.of[k].tiles) {
            at -= c.of[k].bands * c.of[k].tiles;
            k++;
        }
        const struct chain &of = c.of[k];
        const int64_t band = at / of.tiles;
        const int64_t column = at % of.tiles * SYCUDA_CHAIN_COLUMNS + threadIdx.x % SYCUDA_CHAIN_COLUMNS;
        const int there = column < of.columns;
        const float *from = of.rows + band * of.high * of.columns + (there ? column : 0);
        by_kind(of.kind, [&](auto rule) {
            using Rule = decltype(rule);
            const typename Rule::value acc = sycuda_chain_columns<Rule>(
                of.high, [&](int64_t row) { return there ? from[row * of.columns] : 0.0f; });
            if (there && threadIdx.x < SYCUDA_CHAIN_COLUMNS)
                of.out[band * of.columns + column] = Rule::result(acc);
        });
    }
}

/* ---- the call ---- */

/* Adds output `out`, whose part of the workspace begins at *bytes. What one row of a block is reduced to is the result. */
static void add_output(const struct sy_call *call, int out, struct sums *s, struct chains *c, uint64_t *bytes)
{
    const struct sy_attr_map *attr = sycuda_attr<sy_attr_map>(call);
    const struct sy_tensor *shape = &call->in[0], *y = &call->out[out];
    const int last = shape->rank - 1;
    const int64_t rows = sycuda_extent(shape, last), columns = y->dim[last],
                  high = rows / sycuda_extent(y, last);
    const int wide = (int)(shape->dim[last] / columns);
    const int kind = attr->squares >> out & 1 ? SQUARES : attr->maxima >> out & 1 ? LARGEST : SUM;
    float *to = static_cast<float *>(y->data);
    if (high > 1 || wide == 1) {
        const int64_t tiles = (columns + SYCUDA_CHAIN_COLUMNS - 1) / SYCUDA_CHAIN_COLUMNS;
        float *part = reinterpret_cast<float *>(static_cast<char *>(call->workspace) + *bytes);
        c->of[c->n++] = {
            part, to, high, columns, rows / high, tiles, wide > 1 && kind == SQUARES ? (int)SUM : kind};
        c->blocks += rows / high * tiles;
        *bytes += ((uint64_t)(rows * columns) * sizeof(float) + 63) / 64 * 64;
        to = part;
    }
    s->of[s->n++] = {to, out, kind, wide, wide > 1 ? s->slots++ : 0};
}

/* What both kernels get of the outputs; bytes of the workspace. */
static uint64_t describe(const struct sy_call *call, struct sums *s, struct chains *c)
{
    const int64_t columns = call->in[0].dim[call->in[0].rank - 1];
    int64_t together = 1;
    uint64_t bytes = 0;
    *s = {};
    *c = {};
    s->stored = sycuda_attr<sy_attr_map>(call)->stored;
    for (int o = 0; o < call->n_out; o++)
        if (!(s->stored >> o & 1)) add_output(call, o, s, c, &bytes);
    for (int k = 0; k < s->n; k++) together = syi_common_multiple(together, s->of[k].wide);
    if (together < WIDTH) together *= WIDTH / together;
    s->width = (int)(together < columns ? together : columns);
    s->pitch = (int)sycuda_fours(s->width) * SYCUDA_FOUR;
    s->high = TILE / s->pitch;
    s->parts = (columns + s->width - 1) / s->width;
    return bytes;
}

uint64_t sycuda_map_sums_workspace(const struct sy_call *call, int)
{
    struct sums s;
    struct chains c;
    return describe(call, &s, &c);
}

int sycuda_map_sums(void *context, const struct sy_call *call)
{
    struct sums s;
    struct chains c;
    struct sycuda_map p = sycuda_map_of(call, &call->in[0]);
    (void)describe(call, &s, &c);
    p.aligned = p.columns % SYCUDA_FOUR == 0 && s.width % SYCUDA_FOUR == 0;
    const size_t slots = (size_t)s.slots * TILE * sizeof(float),
                 registers = (size_t)p.places * sizeof(sycuda_four);
    int threads = THREADS;
    while (registers * (size_t)threads + slots > SYCUDA_MAP_SHARED) threads /= 2;
    SYCUDA_LAUNCH(map_and_reduce, sycuda_blocks((p.rows + s.high - 1) / s.high * s.parts, 1), threads,
                  registers * (size_t)threads + slots, sycuda_stream(context), p, s);
    if (c.n)
        SYCUDA_LAUNCH(chain_rows, sycuda_blocks(c.blocks, 1), CHAIN_THREADS, 0, sycuda_stream(context), c);
    return sycuda_launched(context, "map_sums");
}
