/* SPDX-License-Identifier: Apache-2.0 */
/* Formulas that several transforms need, as ops. */
#include "config.h"

#include "optim/optim.h"
#include "program/record.h"

int syi_square(struct syi_program *p, int x)
{
    return syi_map2(p, SY_MAP_MUL, x, x);
}

int syi_sign(struct syi_program *p, int x)
{
    int zero = syi_constant_like(p, 0, x);
    return syi_map2(p, SY_MAP_SUB, syi_map2(p, SY_MAP_LESS, zero, x), syi_map2(p, SY_MAP_LESS, x, zero));
}

/* A NaN is neither below 1 nor above 0. */
int syi_is_number(struct syi_program *p, int x)
{
    int zero = syi_constant_like(p, 0, x), one = syi_constant_like(p, 1, x);
    return syi_map2(p, SY_MAP_MAX, syi_map2(p, SY_MAP_LESS, x, one), syi_map2(p, SY_MAP_LESS, zero, x));
}

int syi_at_least(struct syi_program *p, int x, double least)
{
    return syi_map2(p, SY_MAP_MAX, syi_constant_like(p, least, x), x);
}

int syi_at_most(struct syi_program *p, int x, double most)
{
    return syi_map2(p, SY_MAP_MIN, syi_constant_like(p, most, x), x);
}

int syi_moving_mean(struct syi_program *p, int old, int value, double decay)
{
    return syi_map2(p, SY_MAP_ADD, syi_map1(p, SY_MAP_MULS, value, 1 - decay),
                    syi_map1(p, SY_MAP_MULS, old, decay));
}

int syi_tensor_norm(struct syi_program *p, int x)
{
    return syi_norm_of_all(p, 1, &x, NULL);
}

int syi_mean_over(struct syi_program *p, enum sy_op op, int x, unsigned dims)
{
    int64_t n = 1;
    if (p->status || x < 0) return -1;
    for (int i = 0; i < p->tensor[x].rank; i++)
        if (dims >> i & 1) n *= p->tensor[x].dim[i];
    return syi_map1(p, SY_MAP_MULS, syi_sum_over(p, op, x, dims), 1.0 / (double)n);
}

int syi_root_mean_square(struct syi_program *p, int x, unsigned dims)
{
    return syi_map1(p, SY_MAP_SQRT, syi_mean_over(p, SY_OP_BLOCK_SUMSQ, x, dims), 0);
}

int syi_inverse_root(struct syi_program *p, int sum, double eps)
{
    int zero = syi_constant_like(p, 0, sum);
    int root = syi_map1(p, SY_MAP_RSQRT, syi_map1(p, SY_MAP_ADDS, sum, eps), 0);
    return syi_map3(p, SY_MAP_SELECT, syi_map2(p, SY_MAP_LESS, zero, sum), root, zero);
}

void syi_store_where(struct syi_program *p, int ok, int value, int to)
{
    syi_store(p, syi_map3(p, SY_MAP_SELECT, ok, value, to), to);
}
