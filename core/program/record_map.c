/* SPDX-License-Identifier: Apache-2.0 */
/* Recording elementwise instructions: each call records a map op of one instruction; fuse.c joins them later.
 */
#include "config.h"

#include <string.h>

#include "program/record.h"

/* A map attribute of one instruction, with room for it (the structure ends in a flexible array). */
union one {
    struct sy_attr_map attr;
    uint8_t bytes[sizeof(struct sy_attr_map) + sizeof(struct sy_map_instr)];
};

/* The operand with the most elements: the others are broadcast to its shape. */
static int largest(const struct syi_program *p, int n, const int *in)
{
    int best = in[0];
    for (int i = 1; i < n; i++)
        if (syi_tensor_count(&p->tensor[in[i]]) > syi_tensor_count(&p->tensor[best])) best = in[i];
    return best;
}

/* f32 where any operand is, else that of the operands. */
static int result_dtype(const struct syi_program *p, int n, const int *in, int dtype)
{
    for (int i = 0; i < n; i++)
        if (p->tensor[in[i]].dtype == SY_F32) return SY_F32;
    return dtype;
}

static int record(struct syi_program *p, struct sy_map_instr instr, int n_in, const int *in, int rng, int out)
{
    if (p->status) return -1;
    union one one;
    memset(&one, 0, sizeof one);
    one.attr.n_instr = 1;
    one.attr.rng = (uint8_t)(rng >= 0 ? rng : 255);
    one.attr.out_register[0] = (uint8_t)n_in;
    memcpy(one.bytes + sizeof one.attr, &instr, sizeof instr);
    for (int i = 0; i < n_in; i++)
        if (in[i] < 0) return syi_program_fail(p, SY_EINVAL, "map: operand %d is missing", i);
    if (out < 0) {
        int n = n_in - (rng >= 0), like = largest(p, n, in);
        out = syi_as(p, syi_temp_like(p, like), result_dtype(p, n, in, p->tensor[like].dtype));
    }
    if (out < 0) return -1;
    return syi_op_add(p, SY_OP_MAP, n_in, in, 1, &out, &one, sizeof one.bytes) ? -1 : out;
}

int syi_map1(struct syi_program *p, int op, int a, double s)
{
    struct sy_map_instr instr = {.op = (uint8_t)op, .s = (float)s};
    return record(p, instr, 1, &a, -1, -1);
}

int syi_cast(struct syi_program *p, int x, int dtype)
{
    if (p->status || x < 0 || p->tensor[x].dtype == dtype) return x;
    int there = p->tensor[x].cast - 1;
    if (there >= 0 && p->tensor[there].kind == SYI_TEMP && p->tensor[there].dtype == dtype) return there;
    struct sy_map_instr instr = {.op = SY_MAP_COPY};
    int cast = record(p, instr, 1, &x, -1, syi_as(p, syi_temp_like(p, x), dtype));
    if (cast >= 0) p->tensor[x].cast = 1 + cast;
    return cast;
}

int syi_map2(struct syi_program *p, int op, int a, int b)
{
    struct sy_map_instr instr = {.op = (uint8_t)op, .a = 0, .b = 1};
    return record(p, instr, 2, (int[]){a, b}, -1, -1);
}

int syi_map3(struct syi_program *p, int op, int a, int b, int c)
{
    struct sy_map_instr instr = {.op = (uint8_t)op, .a = 0, .b = 1, .c = 2};
    return record(p, instr, 3, (int[]){a, b, c}, -1, -1);
}

int syi_dropout(struct syi_program *p, int x, int rng, int site, double rate)
{
    if (rate <= 0) return x;
    struct sy_map_instr instr = {.op = SY_MAP_DROPOUT, .s = (float)rate, .site = (uint32_t)site};
    return record(p, instr, 2, (int[]){x, rng}, 1, -1);
}

int syi_jitter(struct syi_program *p, int x, int rng, int site, double amount)
{
    if (amount <= 0) return x;
    struct sy_map_instr instr = {.op = SY_MAP_JITTER, .s = (float)amount, .site = (uint32_t)site};
    return record(p, instr, 2, (int[]){x, rng}, 1, -1);
}

int syi_activation(struct syi_program *p, int x, int activation)
{
    struct sy_map_instr instr = {.op = SY_MAP_ACTIVATION, .c = (uint8_t)activation};
    return record(p, instr, 1, &x, -1, -1);
}

int syi_activation_grad(struct syi_program *p, int x, int dy, int activation)
{
    struct sy_map_instr instr = {.op = SY_MAP_ACTIVATION_GRAD, .a = 0, .b = 1, .c = (uint8_t)activation};
    return record(p, instr, 2, (int[]){x, dy}, -1, -1);
}

int syi_constant_like(struct syi_program *p, double value, int like)
{
    struct sy_map_instr instr = {.op = SY_MAP_CONST, .s = (float)value};
    return record(p, instr, 0, NULL, -1, syi_temp_like(p, like));
}

int syi_fill_like(struct syi_program *p, int scalar, int like)
{
    struct sy_map_instr instr = {.op = SY_MAP_COPY};
    int out = syi_temp_like(p, like);
    if (out < 0 || scalar < 0) return -1;
    p->tensor[out].dtype = p->tensor[scalar].dtype;
    return record(p, instr, 1, &scalar, -1, out);
}

void syi_store(struct syi_program *p, int a, int to)
{
    struct sy_map_instr instr = {.op = SY_MAP_COPY};
    if (to < 0) {
        syi_program_fail(p, SY_EINVAL, "store: no destination");
        return;
    }
    record(p, instr, 1, &a, -1, to);
}
