/* SPDX-License-Identifier: Apache-2.0 */
/* The CPU backend: its descriptor, the list of kernels made from fast_kernels.def and ops.def, and the
 * choice of the instruction set at open (cpuid, never the compiler's -march): by name, or auto, the widest. Which of them
 * is fastest the host measures (core/train/launch/variant.h). All variants give the same bits in float32
 * (doc/numerics.md), but for blas; emulated tiles are chosen by name and option, never by auto. */
#include "config.h"

#include <errno.h>
#include <stdio.h>

#include "backends/cpu/bf16.h"
#include "backends/cpu/blas.h"
#include "base/amx.h"

/* ---- functions of the fast kernels ---- */

#if SYCPU_HAS_AMX_BF16
#    define SYCPU_ISA amx_bf16
#    include "backends/cpu/fast_kernels.h"
#    undef SYCPU_ISA
#    define SYCPU_ISA amx_emulated
#    include "backends/cpu/fast_kernels.h"
#    undef SYCPU_ISA
#endif
#if SYCPU_HAS_AVX512_BF16
#    define SYCPU_ISA avx512_bf16
#    include "backends/cpu/fast_kernels.h"
#    undef SYCPU_ISA
#endif
#if SYCPU_X86_64
#    define SYCPU_ISA avx512
#    include "backends/cpu/fast_kernels.h"
#    undef SYCPU_ISA
#    define SYCPU_ISA avx2
#    include "backends/cpu/fast_kernels.h"
#    undef SYCPU_ISA
#endif
#if SYCPU_AARCH64
#    define SYCPU_ISA neon
#    include "backends/cpu/fast_kernels.h"
#    undef SYCPU_ISA
#endif

/* Of every plan: sycpu_keep made it. */
static void release(void *context, void *plan)
{
    const struct sy_host *host;
    char *memory = (char *)plan - SYCPU_PLAN_HOST;
    (void)context;
    memcpy(&host, memory, sizeof(host));
    host->give_back(host->arg, memory);
}

/* ---- kernels ---- */

/* clang-format off */

/* Float32 kernels between conversions. */
#define CONVERTED(NAME, in, out, needs, isa)                                                                 \
    {SY_OP_##NAME, in, out, needs, #isa, sycpu_converted_##isa##_workspace,                                  \
     sycpu_converted_##isa##_prepare, release, .run = sycpu_converted_##isa},
#define CONVERTED_ALL(NAME, needs, isa)                                                                      \
    CONVERTED(NAME, SY_BF16, SY_F32, needs, isa)                                                             \
    CONVERTED(NAME, SY_F32, SY_BF16, needs, isa)                                                             \
    CONVERTED(NAME, SY_BF16, SY_BF16, needs, isa)
#if SYCPU_X86_64
#    define CONVERTED_FAST(NAME)                                                                             \
        CONVERTED_ALL(NAME, SYCPU_AVX512, avx512) CONVERTED_ALL(NAME, SYCPU_AVX2, avx2)
#elif SYCPU_AARCH64
#    define CONVERTED_FAST(NAME) CONVERTED_ALL(NAME, SYCPU_NEON, neon)
#else
#    define CONVERTED_FAST(NAME)
#endif

/* The reference kernel, and float32 ones between conversions. Gradients are for training alone. */
#define SY_HOST_OP(...)
#if !SY_TRAINING
#    define SY_GRAD_OP(...)
#endif
#define SY_OP(id, NAME, name, ...)                                                                           \
    {SY_OP_##NAME, SY_F32, SY_F32, 0, "portable", sycpu_ref_##name##_workspace, .run = sycpu_ref_##name},    \
    CONVERTED_FAST(NAME)                                                                                     \
    CONVERTED_ALL(NAME, 0, portable)

#define BLAS SY_F32, SY_F32, SYCPU_BLAS, "blas", sycpu_blas_workspace, sycpu_blas_prepare, release,          \
             .run = sycpu_blas_product

/* Of an op and its dtypes the host takes the first that the context's features allow: widest first. */
static const struct sy_kernel kernels[] = {
#if SYCPU_HAS_BLAS
    {SY_OP_MATMUL, BLAS},
    {SY_OP_MATMUL_NT, BLAS},
    {SY_OP_MATMUL_TN, BLAS},
    {SY_OP_GROUPED_MATMUL, BLAS},
    {SY_OP_GROUPED_MATMUL_NT, BLAS},
    {SY_OP_GROUPED_MATMUL_TN, BLAS},
    {SY_OP_RAGGED_MATMUL, BLAS},
#endif
#if SYCPU_HAS_AMX_BF16
#    define SYCPU_PAIRS
#    define SYCPU_TILES
#    define SYCPU_ISA amx_bf16
#    define VARIANT   SYCPU_AMX_BF16, "amx_bf16"
#    include "backends/cpu/fast_kernels.def"
#    if SY_TRAINING /* tiles in C are for development */
#        define SYCPU_ISA amx_emulated
#        define VARIANT   SYCPU_AMX_EMULATED, "amx_bf16, emulated"
#        include "backends/cpu/fast_kernels.def"
#    endif
#    undef SYCPU_PAIRS
#    undef SYCPU_TILES
#endif
#if SYCPU_HAS_AVX512_BF16
#    define SYCPU_PAIRS
#    define SYCPU_ISA avx512_bf16
#    define VARIANT   SYCPU_AVX512_BF16, "avx512_bf16"
#    include "backends/cpu/fast_kernels.def"
#    undef SYCPU_PAIRS
#endif
#if SYCPU_X86_64
#    define SYCPU_ISA avx512
#    define VARIANT   SYCPU_AVX512, "avx512"
#    include "backends/cpu/fast_kernels.def"
#    define SYCPU_ISA avx2
#    define VARIANT   SYCPU_AVX2, "avx2"
#    include "backends/cpu/fast_kernels.def"
#endif
#if SYCPU_AARCH64
#    define SYCPU_ISA neon
#    define VARIANT   SYCPU_NEON, "neon"
#    include "backends/cpu/fast_kernels.def"
#endif
#include "switchyard/ops.def"
};
#undef SY_OP
/* clang-format on */

const struct sy_kernel *sycpu_find_float(int op, uint32_t features)
{
    size_t i = 0; /* the list has a portable one of every op that has any */
    while (kernels[i].op != op || kernels[i].in_dtype != SY_F32 || kernels[i].out_dtype != SY_F32 ||
           kernels[i].needs & ~features)
        i++;
    return &kernels[i];
}

/* ---- variants ---- */

/* Widest first; a variant uses the kernels of the next ones where it has none of its own. */
static const struct variant {
    const char *name;
    uint32_t features; /* enum sycpu_feature: of its kernels and of the narrower ones */
} variants[] = {
    {"amx_bf16", SYCPU_AMX_BF16 | SYCPU_AVX512_BF16 | SYCPU_AVX512 | SYCPU_AVX2},
    {"avx512_bf16", SYCPU_AVX512_BF16 | SYCPU_AVX512 | SYCPU_AVX2},
    {"avx512", SYCPU_AVX512 | SYCPU_AVX2},
    {"avx2", SYCPU_AVX2},
    {"neon", SYCPU_NEON},
    {"portable", 0},
    {"blas", SYCPU_BLAS}, /* never found by auto; goes with all that the processor has */
};
enum { VARIANTS = sizeof(variants) / sizeof(variants[0]) };

uint32_t sycpu_detect(void)
{
    uint32_t features = 0;
#if SYCPU_X86_64
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) features |= SYCPU_AVX2;
    if (features && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
        features |= SYCPU_AVX512;
#    if SYCPU_HAS_AVX512_BF16
    if ((features & SYCPU_AVX512) && __builtin_cpu_supports("avx512bf16")) features |= SYCPU_AVX512_BF16;
#    endif
    if ((features & SYCPU_AVX512_BF16) && syi_amx_possible()) features |= SYCPU_AMX_BF16;
#endif
#if SYCPU_AARCH64
    features |= SYCPU_NEON; /* part of every AArch64 */
#endif
    return features;
}

static uint32_t possible(void)
{
    return sycpu_detect() | (SYCPU_HAS_BLAS ? SYCPU_BLAS : 0);
}

/* "avx512, avx2, portable" */
static void list_variants(uint32_t features, char *text, size_t bytes)
{
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < VARIANTS; i++)
        if (!(variants[i].features & ~features) && used < bytes)
            used += (size_t)snprintf(text + used, bytes - used, "%s%s", used ? ", " : "", variants[i].name);
}

/* Those of a context: the system is asked for tiles where they are among them. Not otherwise, since a process that has
 * asked must give its signal handlers larger stacks (sigaltstack) from then on. */
static uint32_t permitted(uint32_t features)
{
    return features & SYCPU_AMX_BF16 && !syi_amx_request() ? features & ~(uint32_t)SYCPU_AMX_BF16 : features;
}

/* Why a variant is not possible though the name is right. */
static const char *advice(const char *name)
{
    if (strcmp(name, "blas") == 0) return "; blas takes a build with configure --with-blas";
    if (strcmp(name, "amx_bf16") == 0 && possible() & SYCPU_AMX_BF16) {
        if (!syi_amx_request() && errno == ENOSPC)
            return "; a thread's signal stack (sigaltstack) is too small: give it AT_MINSIGSTKSZ bytes";
        return "; the system refuses this process its tiles (arch_prctl, ARCH_REQ_XCOMP_PERM)";
    }
    if (strcmp(name, "amx_bf16") == 0 && possible() & SYCPU_AVX512_BF16)
        return "; option emulate (cpu.emulate = true) computes amx_bf16 in C, slowly";
    if (strcmp(name, "amx_bf16") == 0) return "; even in C (option emulate) it takes a CPU with AVX512-BF16";
    return "";
}

/* NULL: unknown or not possible here, and the host knows why. */
static const struct variant *choose(const struct sy_host *host, const char *name)
{
    const uint32_t features = possible();
    char line[256], have[64];
    for (int i = 0; i < VARIANTS; i++) {
        const uint32_t needs = variants[i].features;
        if (needs & ~features || (strcmp(name, "auto") != 0 && strcmp(name, variants[i].name) != 0)) continue;
        if (permitted(needs) == needs) return &variants[i];
    }
    list_variants(permitted(features), have, sizeof(have));
    snprintf(line, sizeof(line), "variant \"%.40s\" is not possible here: this CPU and build have auto, %s%s",
             name, have, advice(name));
    host->error(host->arg, line);
    return NULL;
}

/* With option emulate: the kernels of tiles in C in place of the instructions, even where there are these. NULL: not
 * possible, and the host knows why. */
static const struct variant *choose_emulated(const struct sy_host *host, const char *name)
{
    static const struct variant emulated = {
        "amx_bf16: emulated, slow", SYCPU_AMX_EMULATED | SYCPU_AVX512_BF16 | SYCPU_AVX512 | SYCPU_AVX2};
    const char *why = NULL;
    if (strcmp(name, "amx_bf16") != 0)
        why = "option emulate is for variant amx_bf16 alone: set both, or leave emulate out";
    else if (!SYCPU_HAS_AMX_BF16 || !SY_TRAINING)
        why =
            "this build has no emulated kernels of amx_bf16: it was made without training, or its assembler did not know AMX";
    else if (~possible() & SYCPU_AVX512_BF16)
        why =
            "amx_bf16 cannot be emulated here: its other kernels need AVX512-BF16, which this CPU does not have";
    if (why) host->error(host->arg, why);
    return why ? NULL : &emulated;
}

/* ---- descriptor ---- */

static int probe(const struct sy_host *host, int *score, char *text, size_t text_bytes)
{
    (void)host;
    *score = 10;
    list_variants(possible(), text, text_bytes);
    return SY_OK;
}

/* The library for products, all that the processor has for the rest. */
#if SYCPU_HAS_BLAS
static void open_blas(const struct sy_host *host, uint32_t *features, char *description, size_t bytes)
{
    char library[48];
    sycpu_blas_begin();
    sycpu_blas_name(library, sizeof(library));
    *features = permitted(possible());
    snprintf(description, bytes, "blas: %s, else %s; not reproducible to the bit", library,
             choose(host, "auto")->name);
}
#endif

static int open(const struct sy_host *host, const struct sy_backend_option *options, void **context,
                uint32_t *features, char *description, size_t description_bytes)
{
    const char *name = "auto", *emulate = "false";
    char line[256];
    for (; options->key; options++) {
        if (strcmp(options->key, "variant") == 0) {
            name = options->value;
        } else if (strcmp(options->key, "emulate") == 0) {
            emulate = options->value;
        } else {
            snprintf(line, sizeof(line), "unknown option \"%.80s\": there are variant and emulate",
                     options->key);
            host->error(host->arg, line);
            return SY_EINVAL;
        }
    }
    if (strcmp(emulate, "true") != 0 && strcmp(emulate, "false") != 0) {
        snprintf(line, sizeof(line), "option emulate is true or false, not \"%.80s\"", emulate);
        host->error(host->arg, line);
        return SY_EINVAL;
    }
    const struct variant *variant =
        strcmp(emulate, "true") == 0 ? choose_emulated(host, name) : choose(host, name);
    if (!variant) return SY_EINVAL;
    *context = NULL; /* kernels keep nothing between calls */
    *features = variant->features;
    snprintf(description, description_bytes, "%s", variant->name);
#if SYCPU_HAS_BLAS
    if (variant->features & SYCPU_BLAS) open_blas(host, features, description, description_bytes);
#endif
    return SY_OK;
}

static void close_backend(void *context)
{
    (void)context;
}

#if defined(__clang__)
#    define BUILD "clang " __clang_version__
#else
#    define BUILD "gcc " __VERSION__
#endif

SY_API extern const struct sy_backend_desc sy_backend_cpu;
const struct sy_backend_desc sy_backend_cpu = {
    SY_BACKEND_HEAD(14),
    .caps = SY_CAP_KERNELS,
    .name = "cpu",
    .version = PACKAGE_VERSION,
    .build = BUILD,
    .probe = probe,
    .open = open,
    .close = close_backend,
    .kernels = kernels,
    .n_kernels = sizeof(kernels) / sizeof(kernels[0]),
    .panels_in_training = SYCPU_AMX_BF16 | SYCPU_AMX_EMULATED, /* of others: doc/performance-notes.md */
};
