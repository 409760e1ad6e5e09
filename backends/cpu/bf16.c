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

static void widen(const struct sycpu_conversion *c, int64_t begin, int64_t n)
{
    for (int64_t i = begin; i < begin + n; i++) c->full[i] = syi_bf16_to_float(c->half[i]);
}

static void narrow(const struct sycpu_conversion *c, int64_t begin, int64_t n)
{
    for (int64_t i = begin; i < begin + n; i++) c->half[i] = syi_bf16_from_float(c->full[i]);
}

/* The float32 kernels that are called, and what converts for them. */
struct variant {
    uint32_t features;
    sycpu_convert *widen, *narrow;
};

struct pieces {
    struct sycpu_conversion conversion;
    int64_t n;
    sycpu_convert *convert;
};

static void convert_piece(void *arg, int64_t task, int thread)
{
    const struct pieces *p = arg;
    int64_t begin = task * CHUNK, left = p->n - begin;
    (void)thread;
    p->convert(&p->conversion, begin, left < CHUNK ? left : CHUNK);
}

static void convert_all(const struct sy_call *call, const struct sy_tensor *given,
                        const struct sy_tensor *copy, int n, sycpu_convert *fn)
{
    for (int i = 0; i < n; i++) {
        struct pieces p = {{given[i].data, copy[i].data}, sycpu_count(&given[i]), fn};
        if (copy[i].dtype != given[i].dtype)
            sycpu_parallel(call, (p.n + CHUNK - 1) / CHUNK, convert_piece, &p);
    }
}

static uint64_t workspace(const struct sy_call *call, int threads, const struct variant *variant)
{
    struct converted c;
    const struct sy_kernel *kernel = sycpu_find_float(call->op, variant->features);
    uint64_t copies = convert(&c, call, NULL);
    return syi_add_u64(copies, kernel->workspace ? kernel->workspace(&c.call, threads) : 0);
}

/* The plan is that of the float32 kernel. */
static int prepare(void *context, const struct sy_call *call, const struct variant *variant, void **plan)
{
    struct converted c;
    const struct sy_kernel *kernel = sycpu_find_float(call->op, variant->features);
    convert(&c, call, call->workspace);
    return kernel->prepare ? kernel->prepare(context, &c.call, plan) : SY_OK;
}

static int run(void *context, const struct sy_call *call, const struct variant *variant)
{
    struct converted c;
    convert(&c, call, call->workspace);
    convert_all(call, call->in, c.call.in, call->n_in, variant->widen);
    if (call->op == SY_OP_CACHE_GATHER) /* what it does not write stays */
        convert_all(call, call->out, c.call.out, call->n_out, variant->widen);
    int status = sycpu_find_float(call->op, variant->features)->run(context, &c.call);
    if (status == SY_OK) convert_all(call, call->out, c.call.out, call->n_out, variant->narrow);
    return status;
}

#define DEFINE(name, features, widen, narrow)                                                                \
    static const struct variant name = {features, widen, narrow};                                            \
    uint64_t sycpu_converted_##name##_workspace(const struct sy_call *call, int threads)                     \
    {                                                                                                        \
        return workspace(call, threads, &name);                                                              \
    }                                                                                                        \
    int sycpu_converted_##name##_prepare(void *context, const struct sy_call *call, void **plan)             \
    {                                                                                                        \
        return prepare(context, call, &name, plan);                                                          \
    }                                                                                                        \
    int sycpu_converted_##name(void *context, const struct sy_call *call)                                    \
    {                                                                                                        \
        return run(context, call, &name);                                                                    \
    }
#define DEFINE_FAST(name, features)                                                                          \
    DEFINE(name, features, sycpu_##name##_fast_widen, sycpu_##name##_fast_narrow)

#if SYCPU_X86_64
DEFINE_FAST(avx512, SYCPU_AVX512 | SYCPU_AVX2)
DEFINE_FAST(avx2, SYCPU_AVX2)
#elif SYCPU_AARCH64
DEFINE_FAST(neon, SYCPU_NEON)
#endif
DEFINE(portable, 0, widen, narrow)
