/* SPDX-License-Identifier: Apache-2.0 */
/* Initial values of parameters. Element i of a logical tensor is a pure function of (seed, name, i), so it
 * does not depend on how the tensor is split. Set-up only: libm is allowed here. */
#include "config.h"

#include <math.h>
#include <string.h>

#include "base/philox.h"
#include "base/threads.h"
#include "model/model.h"

/* FNV-1a of the name: the site of its random numbers. */
static uint32_t name_hash(const char *name)
{
    uint32_t hash = 2166136261u;
    for (; *name; name++) hash = (hash ^ (uint8_t)*name) * 16777619u;
    return hash;
}

/* Uniform in (0, 1), never 0 or 1. */
static double unit(uint32_t word)
{
    return ((double)word + 0.5) / 4294967296.0;
}

static double normal(uint32_t a, uint32_t b)
{
    return sqrt(-2 * log(unit(a))) * cos(6.283185307179586 * unit(b));
}

/* Truncated at +-2 by drawing again (16 draws fail with probability 4e-22; then the last is clamped). */
static double draw(int init, uint64_t seed, uint32_t site, uint64_t i)
{
    uint32_t word[4], key[2] = {(uint32_t)seed, site};
    double x = 0;
    for (uint32_t attempt = 0; attempt < 16; attempt++) {
        uint32_t counter[4] = {(uint32_t)i, (uint32_t)(i >> 32), attempt, 0x696e6974u};
        syi_philox(counter, key, word);
        if (init == SYI_INIT_UNIFORM) return 2 * unit(word[0]) - 1;
        x = normal(word[0], word[1]);
        if (init == SYI_INIT_NORMAL || fabs(x) <= 2) return x;
    }
    return x > 0 ? 2 : -2;
}

static float initial(const struct syi_param *param, uint64_t seed, uint32_t site, uint64_t i)
{
    switch (param->init) {
    case SYI_INIT_ONES: return 1;
    case SYI_INIT_EXPERT_BIAS: return 0;
    default: return (float)(param->scale * draw((int)param->init, seed, site, i));
    }
}

/* ---- by the pool ---- */

enum { CHUNK = 1 << 15 }; /* elements of a task */

struct filling {
    const struct syi_param *param;
    const struct sy_tensor *local;
    uint64_t seed;
    int64_t n;
};

static void fill_chunk(void *arg, int64_t task, int thread)
{
    const struct filling *f = arg;
    const struct sy_tensor *t = f->local;
    const int64_t begin = task * CHUNK, end = begin + CHUNK < f->n ? begin + CHUNK : f->n;
    const uint32_t site = name_hash(f->param->name);
    float *data = t->data;
    int64_t at[SY_MAX_DIMS], rest = begin;
    (void)thread;
    for (int d = t->rank - 1; d >= 0; rest /= t->dim[d--]) at[d] = rest % t->dim[d];
    for (int64_t i = begin; i < end; i++) {
        uint64_t index = 0;
        for (int d = 0; d < t->rank; d++)
            index = index * (uint64_t)f->param->dim[d] + (uint64_t)(t->first[d] + at[d]);
        data[i] = initial(f->param, f->seed, site, index);
        for (int d = t->rank - 1; d >= 0 && ++at[d] == t->dim[d]; d--) at[d] = 0;
    }
}

void syi_param_init(const struct syi_param *param, uint64_t seed, const struct sy_tensor *local,
                    struct syi_threads *threads)
{
    struct filling filling = {param, local, seed, 1};
    for (int d = 0; d < local->rank; d++) filling.n *= local->dim[d];
    syi_threads_for(threads, (filling.n + CHUNK - 1) / CHUNK, fill_chunk, &filling);
}
