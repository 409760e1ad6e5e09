/* SPDX-License-Identifier: Apache-2.0 */
/* Maps that are compiled whole: those of compiled_maps.def, which lists the updates of the named optimizers as
 * tests/compiled-maps records them. Values stay in registers from the loads to the stores and to the sums of map_sums, so a
 * map goes at the speed of memory. The instructions are those of fast_map.c in the same order; the bits are the same. */
#include "config.h"

#include "backends/cpu/fast_map.h"

/* ---- a function for each: first what it does with the sums of blocks at their end ---- */

#define WHOLE_BEGIN(id, n_in, n_out, n_instr)                                                                \
    ALWAYS_INLINE void end_##id(const struct fast_row *m, const struct fast_lanes lanes[SY_MAX_OUT],         \
                                int64_t block)                                                               \
    {                                                                                                        \
        (void)m, (void)lanes, (void)block;
#define WHOLE_BLOCKS(o, r, OUT) fast_lanes_add(&lanes[o], FAST_OUT_##OUT, m->out[o] + block);
#define WHOLE_END(id)           }
#include "backends/cpu/compiled_maps.def"

#define WHOLE_BEGIN(id, n_in, n_out, n_instr)                                                                \
    static inline                                                                                            \
        __attribute__((always_inline)) void map_##id(const struct fast_row *m, const vf *restrict constant,  \
                                                     struct fast_lanes *lanes, int64_t i, int64_t n)         \
    {                                                                                                        \
        (void)lanes;
#define WHOLE_FULL(k)             const vf r##k = fast_get(m->in[k], m->half == (k), i, n);
#define WHOLE_COLUMN(k)           const vf r##k = fast_load(m->in[k] + i, n);
#define WHOLE_ONE(k)              const vf r##k = constant[k];
#define WHOLE_ROW(k)              WHOLE_ONE(k)
#define WHOLE_DO0(k, OP)          WHOLE_ONE(k)
#define WHOLE_DO1(k, OP, a)       const vf r##k = map_apply(SY_MAP_##OP, 0, r##a, r##a, r##a, constant[k]);
#define WHOLE_DO2(k, OP, a, b)    const vf r##k = map_apply(SY_MAP_##OP, 0, r##a, r##b, r##a, constant[k]);
#define WHOLE_DO3(k, OP, a, b, c) const vf r##k = map_apply(SY_MAP_##OP, 0, r##a, r##b, r##c, constant[k]);
#define WHOLE_OUT(o, k)                                                                                      \
    fast_store(m->out[o] + i, r##k, n);                                                                      \
    if (m->copied == (o)) fast_put(m->copy, 1, i, r##k, n);
#define WHOLE_BLOCKS(o, k, OUT) fast_lanes_take(&lanes[o], FAST_OUT_##OUT, r##k, n);
#define WHOLE_NARROW(o, k, OUT) fast_narrow_add(m->out[o] + i, FAST_OUT_##OUT, r##k, n);
#define WHOLE_END(id)                                                                                        \
    }                                                                                                        \
    static void columns_##id(const struct fast_row *row, const vf *restrict constant, int64_t begin,         \
                             int64_t end)                                                                    \
    {                                                                                                        \
        const struct fast_row m = *row;                                                                      \
        for (int64_t i = begin, block = 0; i < end; block++) {                                               \
            struct fast_lanes lanes[SY_MAX_OUT] = {0};                                                       \
            const int64_t stop = end - i < m.wide ? end : i + m.wide;                                        \
            for (; i + SYCPU_LANES <= stop; i += SYCPU_LANES) map_##id(&m, constant, lanes, i, SYCPU_LANES); \
            if (i < stop) map_##id(&m, constant, lanes, i, stop - i);                                        \
            i = stop;                                                                                        \
            end_##id(&m, lanes, block);                                                                      \
        }                                                                                                    \
    }

#include "backends/cpu/compiled_maps.def"

/* ---- what each is for: all that a map is but its immediates ---- */

#define WHOLE_BEGIN(id, n_in, n_out, n_instr) static const uint8_t key_##id[] = {n_in, n_out, n_instr,
#define WHOLE_FULL(r)                         MAP_FULL,
#define WHOLE_COLUMN(r)                       MAP_COLUMN,
#define WHOLE_ONE(r)                          MAP_ONE,
#define WHOLE_ROW(r)                          MAP_ROW,
#define WHOLE_DO0(r, OP)                      SY_MAP_##OP, 0, 0, 0,
#define WHOLE_DO1(r, OP, a)                   SY_MAP_##OP, a, 0, 0,
#define WHOLE_DO2(r, OP, a, b)                SY_MAP_##OP, a, b, 0,
#define WHOLE_DO3(r, OP, a, b, c)             SY_MAP_##OP, a, b, c,
#define WHOLE_OUT(o, r)                       r, FAST_OUT_STORE,
#define WHOLE_BLOCKS(o, r, OUT)               r, FAST_OUT_##OUT,
#define WHOLE_NARROW(o, r, OUT)               r, FAST_OUT_##OUT + FAST_NARROW,
#define WHOLE_END(id)                                                                                        \
    }                                                                                                        \
    ;
#include "backends/cpu/compiled_maps.def"

#define WHOLE_BEGIN(id, n_in, n_out, n_instr) {key_##id, sizeof key_##id, columns_##id},
static const struct {
    const uint8_t *key;
    size_t bytes;
    fast_whole_fn columns;
} maps[] = {
#include "backends/cpu/compiled_maps.def"
};

/* ---- finding one ---- */

enum { KEY = 3 + SY_MAX_IN + 4 * SY_MAP_MAX_INSTR + 2 * SY_MAX_OUT };

static int is_copy(const struct sy_call *call, int output)
{
    return call->out[output].dtype == SY_BF16;
}

/* Number among the float32 outputs of the one that holds what output `copy` does, -1: none does. */
static int copied_by(const struct sy_call *call, int copy)
{
    const struct sy_attr_map *attr = call->attr;
    int stores_all = call->op == SY_OP_MAP;
    for (int o = 0, number = 0; o < call->n_out; o++) {
        if (is_copy(call, o)) continue;
        if (attr->out_register[o] == attr->out_register[copy] && (stores_all || attr->stored >> o & 1))
            return number;
        number++;
    }
    return -1;
}

/* The input in bfloat16, one of all elements (a gradient). */
enum { HALF_NONE = -1, HALF_OTHERS = -2 /* more than one, or values of another kind */ };
static int half_input(const struct sy_call *call, const uint8_t *kind)
{
    int half = HALF_NONE;
    for (int i = 0; i < call->n_in; i++) {
        if (call->in[i].dtype == SY_F32) continue;
        if (half != HALF_NONE || !fast_is_bf16(&call->in[i]) || kind[i] != MAP_FULL) return HALF_OTHERS;
        half = i;
    }
    return half;
}

/* Bytes of the key, 0: a map of a kind that none of them is. */
static size_t key_of(const struct sy_call *call, const uint8_t *kind, const uint8_t *out, uint8_t key[KEY])
{
    const struct sy_attr_map *attr = call->attr;
    size_t n = 0;
    int copies = 0;
    if (attr->rng != 255) return 0;
    for (int o = 0; o < call->n_out; o++) copies += is_copy(call, o);
    if (half_input(call, kind) == HALF_OTHERS) return 0;
    key[n++] = (uint8_t)call->n_in;
    key[n++] = (uint8_t)(call->n_out - copies);
    key[n++] = (uint8_t)attr->n_instr;
    for (int i = 0; i < call->n_in; i++) {
        key[n++] = (uint8_t)map_kind_in_row(&call->in[i], kind[i]);
    }
    for (int i = 0; i < attr->n_instr; i++) {
        const struct sy_map_instr *instr = &attr->instr[i];
        int reads = map_arguments[instr->op];
        if (instr->op == SY_MAP_ACTIVATION || instr->op == SY_MAP_ACTIVATION_GRAD) return 0;
        key[n++] = instr->op;
        key[n++] = reads > 0 ? instr->a : 0;
        key[n++] = reads > 1 ? instr->b : 0;
        key[n++] = reads > 2 ? instr->c : 0;
    }
    for (int o = 0; o < call->n_out; o++) {
        if (is_copy(call, o)) {
            if (copies > 1 || copied_by(call, o) < 0) return 0;
            continue;
        }
        key[n++] = attr->out_register[o];
        key[n++] = out[o];
    }
    return n;
}

fast_whole_fn fast_map_whole(const struct sy_call *call, const uint8_t *kind, const uint8_t *out)
{
    uint8_t key[KEY];
    size_t n = key_of(call, kind, out, key);
    for (size_t i = 0; n && i < sizeof maps / sizeof *maps; i++)
        if (maps[i].bytes == n && !memcmp(maps[i].key, key, n)) return maps[i].columns;
    return NULL;
}

/* ---- where its values lie ---- */

static vf value_at(const struct sy_tensor *in, int64_t i)
{
    return vf_set(((const float *)in->data)[i]);
}

void fast_whole_begin(const struct sy_call *call, const uint8_t *kind, struct fast_row *at, vf *constant)
{
    const struct sy_attr_map *attr = call->attr;
    at->copied = -1;
    at->half = half_input(call, kind);
    for (int o = 0; o < call->n_out; o++)
        if (is_copy(call, o)) at->copied = copied_by(call, o);
    for (int i = 0; i < call->n_in; i++)
        if (kind[i] == MAP_ONE) constant[i] = value_at(&call->in[i], 0);
    for (int i = 0; i < attr->n_instr; i++) constant[call->n_in + i] = vf_set(attr->instr[i].s);
}

void fast_whole_row(const struct sy_call *call, const uint8_t *kind, const struct sy_tensor *shape,
                    int64_t row, int64_t columns, struct fast_row *at, vf *constant)
{
    for (int i = 0; i < call->n_in; i++) {
        const struct sy_tensor *in = &call->in[i];
        int64_t first = kind[i] == MAP_FULL     ? row * columns
                        : kind[i] == MAP_SPREAD ? map_spread_begin(in, shape, row)
                        : kind[i] == MAP_ROW    ? row
                                                : 0;
        int in_row = map_kind_in_row(in, kind[i]);
        if (in_row == MAP_ROW)
            constant[i] = value_at(in, first);
        else
            at->in[i] = fast_at(in, first);
    }
    for (int o = 0; at->copied >= 0 && o < call->n_out; o++)
        if (is_copy(call, o)) at->copy = (uint16_t *)call->out[o].data + row * columns;
}
