/* SPDX-License-Identifier: Apache-2.0 */
/* Maps that are compiled whole: those of compiled_maps.def, which lists the updates of the named optimizers as
 * tests/compiled-maps records them. Values stay in registers from the loads to the stores, so a map goes at the speed of
 * memory. The instructions are those of fast_map.c in the same order; the bits are the same. */
#include "config.h"

#include "backends/cpu/fast_map.h"

/* ---- a function for each ---- */

#define WHOLE_BEGIN(id, n_in, n_out, n_instr)                                                                \
    static inline __attribute__((always_inline)) void map_##id(                                              \
        const struct fast_row *m, const vf *restrict constant, int64_t i, int64_t n)                         \
    {
#define WHOLE_FULL(k)             const vf r##k = fast_load(m->in[k] + i, n);
#define WHOLE_COLUMN(k)           WHOLE_FULL(k)
#define WHOLE_ONE(k)              const vf r##k = constant[k];
#define WHOLE_ROW(k)              WHOLE_ONE(k)
#define WHOLE_DO0(k, OP)          WHOLE_ONE(k)
#define WHOLE_DO1(k, OP, a)       const vf r##k = map_apply(SY_MAP_##OP, 0, r##a, r##a, r##a, constant[k]);
#define WHOLE_DO2(k, OP, a, b)    const vf r##k = map_apply(SY_MAP_##OP, 0, r##a, r##b, r##a, constant[k]);
#define WHOLE_DO3(k, OP, a, b, c) const vf r##k = map_apply(SY_MAP_##OP, 0, r##a, r##b, r##c, constant[k]);
#define WHOLE_OUT(o, k)           fast_store(m->out[o] + i, r##k, n);
#define WHOLE_END(id)                                                                                        \
    }                                                                                                        \
    static void columns_##id(const struct fast_row *row, const vf *restrict constant, int64_t begin,         \
                             int64_t end)                                                                    \
    {                                                                                                        \
        const struct fast_row m = *row;                                                                      \
        int64_t i = begin;                                                                                   \
        for (; i + SYCPU_LANES <= end; i += SYCPU_LANES) map_##id(&m, constant, i, SYCPU_LANES);             \
        if (i < end) map_##id(&m, constant, i, end - i);                                                     \
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
#define WHOLE_OUT(o, r)                       r,
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

enum { KEY = 3 + SY_MAX_IN + 4 * SY_MAP_MAX_INSTR + SY_MAX_OUT };

/* Bytes of the key, 0: a map of a kind that none of them is. */
static size_t key_of(const struct sy_call *call, const uint8_t *kind, uint8_t key[KEY])
{
    const struct sy_attr_map *attr = call->attr;
    size_t n = 0;
    if (attr->rng != 255) return 0;
    key[n++] = (uint8_t)call->n_in;
    key[n++] = (uint8_t)call->n_out;
    key[n++] = (uint8_t)attr->n_instr;
    for (int i = 0; i < call->n_in; i++) {
        if (call->in[i].dtype != SY_F32 || kind[i] == MAP_SPREAD) return 0;
        key[n++] = kind[i];
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
        if (call->out[o].dtype != SY_F32) return 0;
        key[n++] = attr->out_register[o];
    }
    return n;
}

fast_whole_fn fast_map_whole(const struct sy_call *call, const uint8_t *kind)
{
    uint8_t key[KEY];
    size_t n = key_of(call, kind, key);
    for (size_t i = 0; n && i < sizeof maps / sizeof *maps; i++)
        if (maps[i].bytes == n && !memcmp(maps[i].key, key, n)) return maps[i].columns;
    return NULL;
}
