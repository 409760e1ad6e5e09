/* SPDX-License-Identifier: Apache-2.0 */
/* Float32 kernels between conversions, see bf16.h. Kernels that take bf16 as it is are listed before these
 * (cpu.c). */
#include "config.h"

#include "backends/cpu/bf16.h"
#include "base/bf16.h"

enum { CHUNK = 16384 }; /* elements a task converts */

/* A call whose bf16 operands are replaced by float32 copies in the workspace. */
struct converted {
    struct sy_call call;
    struct sy_tensor operand[SY_MAX_IN + SY_MAX_OUT]; /* inputs, then outputs */
};

/* The letters of ops.def, which say what stays bf16: panels. */
#define SY_HOST_OP(...)
#define SY_OP(id, NAME, name, labels, split, types, attributes, flags, tolerance, help) [id] = types,
static const char *const types_of[SY_OP_COUNT] = {
#include "switchyard/ops.def"
};
#undef SY_OP

static int is_panels(const struct sy_call *call, int operand)
{
    const char *types = types_of[call->op];
    return *types && types[operand] == 'p';
}

static uint64_t copy_bytes(const struct sy_tensor *t)
{
    return t->data && t->dtype == SY_BF16 ? ((uint64_t)sycpu_count(t) * sizeof(float) + 63) / 64 * 64 : 0;
}

/* workspace NULL: only the shapes are wanted. Returns the bytes the copies take. */
static uint64_t convert(struct converted *c, const struct sy_call *call, void *workspace)
{
    uint64_t used = 0;
    int n = call->n_in + call->n_out;
    c->call = *call;
    for (int i = 0; i < n; i++) {
        struct sy_tensor *t = &c->operand[i];
        *t = i < call->n_in ? call->in[i] : call->out[i - call->n_in];
        uint64_t bytes = is_panels(call, i) ? 0 : copy_bytes(t);
        if (bytes && workspace) t->data = (char *)workspace + used;
        if (bytes) t->dtype = SY_F32;
        used += bytes;
    }
    c->call.in = c->operand;
    c->call.out = c->operand + call->n_in;
    c->call.workspace = workspace ? (char *)workspace + used : NULL;
    return used;
}

struct pieces {
    const struct sy_tensor *half, *full;
};

static void widen(void *arg, int64_t task, int thread)
{
    const struct pieces *p = arg;
    const uint16_t *from = p->half->data;
    float *to = p->full->data;
    int64_t n = sycpu_count(p->half), end = (task + 1) * CHUNK < n ? (task + 1) * CHUNK : n;
    (void)thread;
    for (int64_t i = task * CHUNK; i < end; i++) to[i] = syi_bf16_to_float(from[i]);
}

static void narrow(void *arg, int64_t task, int thread)
{
    const struct pieces *p = arg;
    const float *from = p->full->data;
    uint16_t *to = p->half->data;
    int64_t n = sycpu_count(p->half), end = (task + 1) * CHUNK < n ? (task + 1) * CHUNK : n;
    (void)thread;
    for (int64_t i = task * CHUNK; i < end; i++) to[i] = syi_bf16_from_float(from[i]);
}

static void convert_all(const struct sy_call *call, const struct sy_tensor *given,
                        const struct sy_tensor *copy, int n, void (*fn)(void *, int64_t, int))
{
    for (int i = 0; i < n; i++) {
        struct pieces p = {&given[i], &copy[i]};
        if (copy[i].dtype != given[i].dtype)
            sycpu_parallel(call, (sycpu_count(&given[i]) + CHUNK - 1) / CHUNK, fn, &p);
    }
}

static uint64_t workspace(const struct sy_call *call, int threads, uint32_t features)
{
    struct converted c;
    const struct sy_kernel *kernel = sycpu_find_float(call->op, features);
    uint64_t copies = convert(&c, call, NULL);
    return syi_add_u64(copies, kernel->workspace ? kernel->workspace(&c.call, threads) : 0);
}

/* The plan is that of the float32 kernel. */
static int prepare(void *context, const struct sy_call *call, uint32_t features, void **plan)
{
    struct converted c;
    const struct sy_kernel *kernel = sycpu_find_float(call->op, features);
    convert(&c, call, call->workspace);
    return kernel->prepare ? kernel->prepare(context, &c.call, plan) : SY_OK;
}

static int run(void *context, const struct sy_call *call, uint32_t features)
{
    struct converted c;
    convert(&c, call, call->workspace);
    convert_all(call, call->in, c.call.in, call->n_in, widen);
    int status = sycpu_find_float(call->op, features)->run(context, &c.call);
    if (status == SY_OK) convert_all(call, call->out, c.call.out, call->n_out, narrow);
    return status;
}

#define DEFINE(name, features)                                                                               \
    uint64_t sycpu_converted_##name##_workspace(const struct sy_call *call, int threads)                     \
    {                                                                                                        \
        return workspace(call, threads, features);                                                           \
    }                                                                                                        \
    int sycpu_converted_##name##_prepare(void *context, const struct sy_call *call, void **plan)             \
    {                                                                                                        \
        return prepare(context, call, features, plan);                                                       \
    }                                                                                                        \
    int sycpu_converted_##name(void *context, const struct sy_call *call)                                    \
    {                                                                                                        \
        return run(context, call, features);                                                                 \
    }

DEFINE(avx512, SYCPU_AVX512 | SYCPU_AVX2)
DEFINE(avx2, SYCPU_AVX2)
DEFINE(neon, SYCPU_NEON)
DEFINE(portable, 0)
