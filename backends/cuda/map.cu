/* SPDX-License-Identifier: Apache-2.0 */
/* map: each thread makes values (map.h) and writes them, the grid goes on in strides of itself; without broadcast rows or
 * columns the tensor is one long row. And the kernel's parameter, which map_sums.cu has as well. */
#include "backends/cuda/map.h"

enum {
    THREADS = 128,
    FEW_THREADS = 64, /* of maps that need many registers at once */
    BLOCKS_A_MULTIPROCESSOR = 16,
    REGISTERS = SY_MAX_IN + SY_MAP_MAX_INSTR
};

/* ---- the kernel ---- */

__global__ void map_fours(const __grid_constant__ struct sycuda_map p)
{
    SYCUDA_DYNAMIC_SHARED(sycuda_four, shared);
    const struct sycuda_map_registers r = {shared + threadIdx.x, blockDim.x};
    for (int64_t i = sycuda_first(); i < p.rows * p.fours; i += sycuda_stride()) {
        const int64_t row = p.rows > 1 ? i / p.fours : 0, column = (i - row * p.fours) * SYCUDA_FOUR;
        const int64_t left = p.columns - column;
        const int n = left < SYCUDA_FOUR ? (int)left : SYCUDA_FOUR;
        sycuda_map_values(p, r, row, column, n);
        for (int k = 0; k < p.n_out; k++) sycuda_map_store(p, r, k, row, column, n);
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
static struct sycuda_map_operand describe(const struct sy_tensor *in, const struct sy_tensor *out)
{
    const int last = out->rank - 1, ranks = in->rank;
    const int64_t n = sycuda_count(in), rows = sycuda_extent(out, last);
    struct sycuda_map_operand o = {};
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
            if (in->dim[d] > 1) o.stride[d + SYCUDA_MAP_OUTER - last] = stride;
            stride *= in->dim[d];
        }
    } else {
        o.row_step = 1;
    }
    return o;
}

static void add_inputs(struct sycuda_map *p, const struct sy_call *call, const struct sy_tensor *shape,
                       struct places *places)
{
    const struct sy_attr_map *attr = sycuda_attr<sy_attr_map>(call);
    for (int i = 0; i < call->n_in; i++) {
        if (i == attr->rng || !call->in[i].data || places->last[i] < 0) continue;
        struct sycuda_map_operand *o = &p->in[p->n_in++];
        *o = describe(&call->in[i], shape);
        o->place = places->place[i] = take_place(places);
        p->any_spread |= o->spread;
    }
}

/* An instruction's result may take the place of what it reads last. One that nothing reads is left out. */
static void add_steps(struct sycuda_map *p, const struct sy_call *call, struct places *places)
{
    const struct sy_attr_map *attr = sycuda_attr<sy_attr_map>(call);
    for (int i = 0; i < attr->n_instr; i++) {
        const struct sy_map_instr *instr = &attr->instr[i];
        const int y = call->n_in + i, reads = arguments[instr->op];
        const uint8_t registers[3] = {instr->a, instr->b, instr->c};
        struct sycuda_map_step step = {};
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
static int is_flat(const struct sycuda_map *p)
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

static void add_shape(struct sycuda_map *p, const struct sy_call *call, const struct sy_tensor *out)
{
    const struct sy_attr_map *attr = sycuda_attr<sy_attr_map>(call);
    const int last = out->rank - 1;
    p->rows = sycuda_extent(out, last);
    p->columns = out->dim[last];
    for (int d = 0; d < SYCUDA_MAP_OUTER; d++)
        p->outer[d] = d < SYCUDA_MAP_OUTER - last ? 1 : out->dim[d - SYCUDA_MAP_OUTER + last];
    p->addresses.rng = attr->rng == 255 ? nullptr : sycuda_in<int64_t>(call, attr->rng);
    for (int d = 0; d < SY_MAX_DIMS; d++) p->addresses.first[d] = out->first[d];
    p->addresses.channel = out->first[last];
    p->addresses.mask_rows = out->rank > 2 ? out->dim[out->rank - 2] : 1;
    p->addresses.dim1 = out->dim[1];
    p->addresses.rank = out->rank;
}

struct sycuda_map sycuda_map_of(const struct sy_call *call, const struct sy_tensor *shape)
{
    const struct sy_attr_map *attr = sycuda_attr<sy_attr_map>(call);
    struct places places = find_last_uses(call);
    struct sycuda_map p = {};
    add_shape(&p, call, shape);
    add_inputs(&p, call, shape, &places);
    add_steps(&p, call, &places);
    for (p.n_out = 0; p.n_out < call->n_out; p.n_out++)
        p.out[p.n_out] = {call->out[p.n_out].data, call->out[p.n_out].dtype,
                          places.place[attr->out_register[p.n_out]]};
    p.places = places.used;
    return p;
}

int sycuda_map(void *context, const struct sy_call *call)
{
    struct sycuda_map p = sycuda_map_of(call, &call->out[0]);
    if (is_flat(&p)) {
        p.columns *= p.rows;
        p.rows = 1;
    }
    p.fours = sycuda_fours(p.columns);
    p.aligned = p.rows == 1 || p.columns % SYCUDA_FOUR == 0;
    const size_t bytes = (size_t)p.places * sizeof(sycuda_four);
    const int threads = bytes * THREADS <= SYCUDA_MAP_SHARED ? THREADS : FEW_THREADS;
    const int64_t most =
        (int64_t) static_cast<sycuda_context *>(context)->multiprocessors * BLOCKS_A_MULTIPROCESSOR;
    const int64_t blocks = sycuda_blocks(p.rows * p.fours, threads);
    SYCUDA_LAUNCH_OWN(map_fours, blocks < most ? blocks : most, threads, bytes * (size_t)threads,
                      sycuda_stream(context), p);
    return sycuda_launched(context, "map");
}
