/* SPDX-License-Identifier: Apache-2.0 */
/* map: an interpreter. A thread takes four columns of a row at a time, the grid goes on in strides of itself; without
 * broadcast rows or columns the tensor is one long row. Registers are in shared memory, each thread's own, so no
 * thread waits: run gives a register a place only while it is needed, chains of the optimizers take about ten. The
 * decoded instructions come as the kernel's parameter, which every thread reads at the same place at once.
 *
 * An instruction costs three accesses of 16 bytes a thread to shared memory, so maps of up to about twenty
 * instructions take the time of their operands. Compiling a map at bind (NVRTC) would keep registers in registers and
 * drop the decoding: worth it for longer ones only. */
#include "backends/cuda/four.h"

enum {
    THREADS = 128,
    FEW_THREADS = 64, /* of maps that need many registers at once */
    BLOCKS_A_MULTIPROCESSOR = 16,
    SHARED_BYTES = 48 << 10,
    OUTER = SY_MAX_DIMS - 1,
    REGISTERS = SY_MAX_IN + SY_MAP_MAX_INSTR
};

/* ---- what a kernel gets ---- */

struct operand {
    const void *data;
    int64_t row_step; /* elements from one row of the output to the next */
    int64_t
        stride[OUTER];   /* spread: along each dim of the output but the last, the last of them at the end */
    uint8_t spread;      /* 1: stride counts, not row_step */
    uint8_t column_step; /* 0 or 1 */
    uint8_t dtype, place;
};
struct result {
    void *data;
    uint8_t dtype, place;
};
struct step {
    uint8_t op, y, a, b, c; /* places of registers; c: or the activation */
    float s;                /* immediate; of a dropout the scale of what is kept */
    uint32_t site, threshold;
};

/* Where dropout and jitter find their addresses. */
struct addresses {
    const int64_t *rng;
    int64_t first[SY_MAX_DIMS], channel; /* of the output; first of the last dim */
    int64_t mask_rows;                   /* rows that share a mask */
    int64_t dim1;
    int rank;
};

struct program {
    int64_t rows, columns, fours; /* of the output; of a row */
    int64_t outer[OUTER];         /* extents of its dims but the last, as operand.stride */
    struct addresses addresses;
    int n_in, n_out, n_steps, any_spread, aligned;
    struct operand in[SY_MAX_IN];
    struct result out[SY_MAX_OUT];
    struct step step[SY_MAP_MAX_INSTR];
};
static_assert(sizeof(struct program) <= 4096, "a kernel's parameters are at most 4 KB");

/* ---- the kernel ---- */

/* The registers of a thread. */
struct registers {
    sycuda_four *first;
    unsigned stride;
};
__device__ static inline sycuda_four get(const struct registers &r, int place)
{
    return r.first[(unsigned)place * r.stride];
}
__device__ static inline void set(const struct registers &r, int place, const sycuda_four &value)
{
    r.first[(unsigned)place * r.stride] = value;
}

template <class Fn> __device__ static inline void one(const registers &r, const struct step &step, Fn fn)
{
    const sycuda_four a = get(r, step.a);
    sycuda_four y;
    for (int e = 0; e < SYCUDA_FOUR; e++) y.v[e] = fn(a.v[e]);
    set(r, step.y, y);
}
template <class Fn> __device__ static inline void two(const registers &r, const struct step &step, Fn fn)
{
    const sycuda_four a = get(r, step.a), b = get(r, step.b);
    sycuda_four y;
    for (int e = 0; e < SYCUDA_FOUR; e++) y.v[e] = fn(a.v[e], b.v[e]);
    set(r, step.y, y);
}
template <class Fn> __device__ static inline void three(const registers &r, const struct step &step, Fn fn)
{
    const sycuda_four a = get(r, step.a), b = get(r, step.b), c = get(r, step.c);
    sycuda_four y;
    for (int e = 0; e < SYCUDA_FOUR; e++) y.v[e] = fn(a.v[e], b.v[e], c.v[e]);
    set(r, step.y, y);
}

/* As map_mask_address of the CPU: doc/numerics.md, Random bits. */
__device__ static inline void drop(const registers &r, const struct step &step, const struct addresses &at,
                                   int64_t row, int64_t column)
{
    const struct syi_dropout dropout = {{0, step.site}, 0, step.threshold, step.s};
    const int64_t group = at.rank < 2 ? 0 : row / at.mask_rows;
    uint32_t position = 0, address;
    if (at.rank == 4) {
        address = (uint32_t)(at.first[1] + group % at.dim1 + at.rng[SY_RNG_GROUP0]);
        position = (uint32_t)(at.first[0] + group / at.dim1);
    } else {
        address = (uint32_t)((at.rank < 2 ? 0 : at.first[0]) + group + at.rng[SY_RNG_ROW0]);
    }
    const sycuda_four mask = sycuda_four_masks(dropout, at.rng, address, position, at.channel + column);
    sycuda_four y = get(r, step.a);
    for (int e = 0; e < SYCUDA_FOUR; e++) y.v[e] = SYI_DROP(y.v[e], mask.v[e]);
    set(r, step.y, y);
}

/* As map_jitter_address of the CPU. */
__device__ static inline void jitter(const registers &r, const struct step &step, const struct addresses &at,
                                     int64_t row, int64_t column)
{
    const int64_t positions = at.rank == 3 ? at.dim1 : 1;
    const int64_t first = at.rank < 2 ? 0 : at.first[0];
    const uint32_t key[2] = {(uint32_t)at.rng[SY_RNG_SEED], step.site};
    const uint32_t counter[3] = {(uint32_t)at.rng[SY_RNG_STEP],
                                 (uint32_t)(first + row / positions + at.rng[SY_RNG_ROW0]),
                                 (uint32_t)(at.rank == 3 ? at.first[1] + row % positions : 0)};
    uint32_t bits[4];
    sycuda_four_bits(counter, key, at.channel + column, bits);
    sycuda_four y = get(r, step.a);
    for (int e = 0; e < SYCUDA_FOUR; e++) y.v[e] *= syi_jitter_factor(step.s, bits[e]);
    set(r, step.y, y);
}

__device__ static inline int is_finite(float a)
{
    return (syi_f32_bits(a) & 0x7f800000) != 0x7f800000;
}

__device__ static inline void execute(const registers &r, const struct step &step)
{
    const float s = step.s;
    const int kind = step.c;
    switch (step.op) {
    case SY_MAP_CONST: set(r, step.y, sycuda_four{{s, s, s, s}}); break;
    case SY_MAP_ADD: two(r, step, [](float a, float b) { return a + b; }); break;
    case SY_MAP_SUB: two(r, step, [](float a, float b) { return a - b; }); break;
    case SY_MAP_MUL: two(r, step, [](float a, float b) { return a * b; }); break;
    case SY_MAP_DIV: two(r, step, [](float a, float b) { return a / b; }); break;
    case SY_MAP_FMA: three(r, step, [](float a, float b, float c) { return fmaf(a, b, c); }); break;
    case SY_MAP_ADDS: one(r, step, [=](float a) { return a + s; }); break;
    case SY_MAP_MULS: one(r, step, [=](float a) { return a * s; }); break;
    case SY_MAP_NEG: one(r, step, [](float a) { return -a; }); break;
    case SY_MAP_MAX: two(r, step, [](float a, float b) { return a > b ? a : b; }); break;
    case SY_MAP_MIN: two(r, step, [](float a, float b) { return a < b ? a : b; }); break;
    case SY_MAP_SQRT: one(r, step, [](float a) { return sqrtf(a); }); break;
    case SY_MAP_RSQRT: one(r, step, [](float a) { return 1 / sqrtf(a); }); break;
    case SY_MAP_EXP: one(r, step, [](float a) { return syi_f32_exp(a); }); break;
    case SY_MAP_LOG: one(r, step, [](float a) { return syi_f32_log(a); }); break;
    case SY_MAP_TANH: one(r, step, [](float a) { return syi_f32_tanh(a); }); break;
    case SY_MAP_SELECT: three(r, step, [](float a, float b, float c) { return a != 0 ? b : c; }); break;
    case SY_MAP_FINITE: one(r, step, [](float a) { return is_finite(a) ? 1.0f : 0.0f; }); break;
    case SY_MAP_LESS: two(r, step, [](float a, float b) { return a < b ? 1.0f : 0.0f; }); break;
    case SY_MAP_ACTIVATION: one(r, step, [=](float a) { return syi_f32_activation(a, kind); }); break;
    case SY_MAP_ACTIVATION_GRAD:
        two(r, step, [=](float a, float b) { return b * syi_f32_activation_grad(a, kind); });
        break;
    default: one(r, step, [](float a) { return a; });
    }
}

/* Element of an operand that belongs to the first column of a row. at: the row's place in the output's outer dims. */
__device__ static inline int64_t row_begin(const struct operand &in, int64_t row, const int64_t at[OUTER])
{
    if (!in.spread) return in.row_step * row;
    int64_t begin = 0;
    for (int d = 0; d < OUTER; d++) begin += at[d] * in.stride[d];
    return begin;
}

__device__ static inline sycuda_four load(const struct operand &in, int64_t begin, int64_t column, int n,
                                          int aligned)
{
    if (in.column_step) return sycuda_read_any(in.data, in.dtype, begin + column, n, aligned);
    const float x = sycuda_read_any(in.data, in.dtype, begin, 1, 0).v[0];
    return sycuda_four{{x, x, x, x}};
}

__global__ void map_fours(const __grid_constant__ struct program p)
{
    SYCUDA_DYNAMIC_SHARED(sycuda_four, shared);
    const struct registers r = {shared + threadIdx.x, blockDim.x};
    for (int64_t i = sycuda_first(); i < p.rows * p.fours; i += sycuda_stride()) {
        const int64_t row = p.rows > 1 ? i / p.fours : 0, column = (i - row * p.fours) * SYCUDA_FOUR;
        const int64_t left = p.columns - column;
        const int n = left < SYCUDA_FOUR ? (int)left : SYCUDA_FOUR;
        int64_t at[OUTER] = {0}, rest = row;
        for (int d = OUTER - 1; d >= 0 && p.any_spread; d--) {
            at[d] = rest % p.outer[d];
            rest /= p.outer[d];
        }
        for (int k = 0; k < p.n_in; k++)
            set(r, p.in[k].place, load(p.in[k], row_begin(p.in[k], row, at), column, n, p.aligned));
        for (int k = 0; k < p.n_steps; k++) {
            if (p.step[k].op == SY_MAP_DROPOUT)
                drop(r, p.step[k], p.addresses, row, column);
            else if (p.step[k].op == SY_MAP_JITTER)
                jitter(r, p.step[k], p.addresses, row, column);
            else
                execute(r, p.step[k]);
        }
        for (int k = 0; k < p.n_out; k++)
            sycuda_write_any(p.out[k].data, p.out[k].dtype, row * p.columns + column, get(r, p.out[k].place),
                             n, p.aligned);
    }
}

/* ---- places of registers ---- */

/* Registers that an instruction reads: a; a and b; a, b and c. */
static const uint8_t arguments[SY_MAP_COUNT] = {
#define SY_MAP(id, NAME, name, arguments, help) arguments,
#include "switchyard/maps.def"
#undef SY_MAP
};

struct places {
    int last[REGISTERS];      /* instruction that reads a register last; -1: none */
    uint8_t place[REGISTERS]; /* of a register */
    uint8_t busy[REGISTERS];  /* by place */
    int used;                 /* places */
};

static uint8_t take_place(struct places *places)
{
    int place = 0;
    while (places->busy[place]) place++;
    places->busy[place] = 1;
    if (place >= places->used) places->used = place + 1;
    return (uint8_t)place;
}

static struct places find_last_uses(const struct sy_call *call)
{
    const struct sy_attr_map *attr = sycuda_attr<sy_attr_map>(call);
    struct places places = {};
    for (int i = 0; i < REGISTERS; i++) places.last[i] = -1;
    for (int i = 0; i < attr->n_instr; i++) {
        const struct sy_map_instr *instr = &attr->instr[i];
        const uint8_t reads[3] = {instr->a, instr->b, instr->c};
        for (int k = 0; k < arguments[instr->op]; k++) places.last[reads[k]] = i;
    }
    for (int i = 0; i < call->n_out; i++) places.last[attr->out_register[i]] = attr->n_instr;
    return places;
}

/* ---- making the parameter ---- */

/* The kinds of broadcasts are those of struct sy_attr_map. */
static struct operand describe(const struct sy_tensor *in, const struct sy_tensor *out)
{
    const int last = out->rank - 1, ranks = in->rank;
    const int64_t n = sycuda_count(in), rows = sycuda_extent(out, last);
    struct operand o = {};
    o.data = in->data;
    o.dtype = in->dtype;
    if (n == sycuda_count(out)) {
        o.row_step = out->dim[last];
        o.column_step = 1;
    } else if (n == 1) {
        o.row_step = 0;
    } else if ((ranks == 1 || ranks == out->rank) && in->dim[ranks - 1] == n && n == out->dim[last]) {
        o.column_step = 1;
    } else if (ranks == out->rank && (in->dim[last] > 1 || n != rows)) {
        o.spread = 1;
        o.column_step = in->dim[last] > 1;
        int64_t stride = in->dim[last];
        for (int d = last - 1; d >= 0; d--) {
            if (in->dim[d] > 1) o.stride[d + OUTER - last] = stride;
            stride *= in->dim[d];
        }
    } else {
        o.row_step = 1;
    }
    return o;
}

static void add_inputs(struct program *p, const struct sy_call *call, struct places *places)
{
    const struct sy_attr_map *attr = sycuda_attr<sy_attr_map>(call);
    for (int i = 0; i < call->n_in; i++) {
        if (i == attr->rng || !call->in[i].data || places->last[i] < 0) continue;
        struct operand *o = &p->in[p->n_in++];
        *o = describe(&call->in[i], &call->out[0]);
        o->place = places->place[i] = take_place(places);
        p->any_spread |= o->spread;
    }
}

/* An instruction's result may take the place of what it reads last. One that nothing reads is left out. */
static void add_steps(struct program *p, const struct sy_call *call, struct places *places)
{
    const struct sy_attr_map *attr = sycuda_attr<sy_attr_map>(call);
    for (int i = 0; i < attr->n_instr; i++) {
        const struct sy_map_instr *instr = &attr->instr[i];
        const int y = call->n_in + i, reads = arguments[instr->op];
        const uint8_t registers[3] = {instr->a, instr->b, instr->c};
        struct step step = {};
        step.op = instr->op;
        step.s = instr->s;
        step.site = instr->site;
        step.a = reads > 0 ? places->place[instr->a] : 0;
        step.b = reads > 1 ? places->place[instr->b] : 0;
        step.c = reads > 2 ? places->place[instr->c] : instr->c;
        for (int k = 0; k < reads; k++)
            if (places->last[registers[k]] == i) places->busy[places->place[registers[k]]] = 0;
        if (places->last[y] < 0) continue;
        step.y = places->place[y] = take_place(places);
        if (instr->op == SY_MAP_DROPOUT) {
            const struct syi_dropout dropout = sycuda_dropout(instr->site, (double)instr->s);
            step.threshold = dropout.threshold;
            step.s = dropout.scale;
            if (!dropout.threshold) step.op = SY_MAP_COPY;
        }
        p->step[p->n_steps++] = step;
    }
}

/* 1: no operand and no instruction asks for the row or the column of an element. */
static int is_flat(const struct program *p)
{
    for (int i = 0; i < p->n_in; i++) {
        const int full = p->in[i].row_step == p->columns && p->in[i].column_step;
        const int one = p->in[i].row_step == 0 && !p->in[i].column_step;
        if (p->in[i].spread || !(full || one)) return 0;
    }
    for (int i = 0; i < p->n_steps; i++)
        if (p->step[i].op == SY_MAP_DROPOUT || p->step[i].op == SY_MAP_JITTER) return 0;
    return 1;
}

static void add_shape(struct program *p, const struct sy_call *call)
{
    const struct sy_attr_map *attr = sycuda_attr<sy_attr_map>(call);
    const struct sy_tensor *out = &call->out[0];
    const int last = out->rank - 1;
    p->rows = sycuda_extent(out, last);
    p->columns = out->dim[last];
    for (int d = 0; d < OUTER; d++) p->outer[d] = d < OUTER - last ? 1 : out->dim[d - OUTER + last];
    p->addresses.rng = attr->rng == 255 ? nullptr : sycuda_in<int64_t>(call, attr->rng);
    for (int d = 0; d < SY_MAX_DIMS; d++) p->addresses.first[d] = out->first[d];
    p->addresses.channel = out->first[last];
    p->addresses.mask_rows = out->rank > 2 ? out->dim[out->rank - 2] : 1;
    p->addresses.dim1 = out->dim[1];
    p->addresses.rank = out->rank;
}

int sycuda_map(void *context, const struct sy_call *call)
{
    const struct sy_attr_map *attr = sycuda_attr<sy_attr_map>(call);
    struct places places = find_last_uses(call);
    struct program p = {};
    add_shape(&p, call);
    add_inputs(&p, call, &places);
    add_steps(&p, call, &places);
    for (p.n_out = 0; p.n_out < call->n_out; p.n_out++)
        p.out[p.n_out] = {call->out[p.n_out].data, call->out[p.n_out].dtype,
                          places.place[attr->out_register[p.n_out]]};
    if (is_flat(&p)) {
        p.columns *= p.rows;
        p.rows = 1;
    }
    p.fours = sycuda_fours(p.columns);
    p.aligned = p.rows == 1 || p.columns % SYCUDA_FOUR == 0;
    const size_t bytes = (size_t)places.used * sizeof(sycuda_four);
    const int threads = bytes * THREADS <= SHARED_BYTES ? THREADS : FEW_THREADS;
    const int64_t most =
        (int64_t) static_cast<sycuda_context *>(context)->multiprocessors * BLOCKS_A_MULTIPROCESSOR;
    const int64_t blocks = sycuda_blocks(p.rows * p.fours, threads);
    SYCUDA_LAUNCH_OWN(map_fours, blocks < most ? blocks : most, threads, bytes * (size_t)threads,
                      sycuda_stream(context), p);
    return sycuda_launched(context, "map");
}
