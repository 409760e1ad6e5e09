/* SPDX-License-Identifier: Apache-2.0 */
/* The CPU backend: its descriptor, the list of kernels made from kernels.def, and the choice of the
 * instruction set at open (cpuid, never the compiler's -march). All variants give the same bits in float32
 * (doc/numerics.md), but for blas. */
#include "config.h"

#include <stdio.h>

#include "backends/cpu/bf16.h"
#include "backends/cpu/blas.h"

/* ---- kernels ---- */

#define WORKSPACE_0(function) NULL
#define WORKSPACE_1(function) function
/* .rows and .tells_rows by the column `fast` of the lists. */
#define ROWS_1(function)     NULL, 0
#define ROWS_ROWS(function)  function, 0
#define ROWS_TELLS(function) NULL, 1
#define TYPED(NAME, in, out, function, fast, has_workspace, feature, isa)                                    \
    {SY_OP_##NAME, in,                                                                                       \
     out,          feature,                                                                                  \
     isa,          WORKSPACE_##has_workspace(function##_workspace),                                          \
     NULL,         NULL,                                                                                     \
     function,     ROWS_##fast(function##_rows)},
#define ENTRY(NAME, function, fast, has_workspace, feature, isa)                                             \
    TYPED(NAME, SY_F32, SY_F32, function, fast, has_workspace, feature, isa)
/* A float32 kernel between conversions. */
#define CONVERTED(NAME, isa, feature)                                                                        \
    TYPED(NAME, SY_BF16, SY_F32, sycpu_converted_##isa, 1, 1, feature, #isa)                                 \
    TYPED(NAME, SY_F32, SY_BF16, sycpu_converted_##isa, 1, 1, feature, #isa)                                 \
    TYPED(NAME, SY_BF16, SY_BF16, sycpu_converted_##isa, 1, 1, feature, #isa)
/* An op's fast kernel, or nothing. */
#define FAST_0(NAME, function, fast, has_workspace, feature, isa)
#define FAST_1     ENTRY
#define FAST_ROWS  ENTRY
#define FAST_TELLS ENTRY

/* Widest first: the host takes the first that the context's features allow. */
static const struct sy_kernel kernels[] = {
#if SYCPU_HAS_BLAS
#    define SYCPU_KERNEL(NAME, name, ref_workspace, fast, fast_workspace)                                    \
        {SY_OP_##NAME,       SY_F32, SY_F32, SYCPU_BLAS, "blas", sycpu_blas_workspace, NULL, NULL,           \
         sycpu_blas_product, NULL,   0},
#    include "kernels_gemm.def"
#    undef SYCPU_KERNEL
#endif
#if SYCPU_X86_64
#    define SYCPU_KERNEL(NAME, name, ref_workspace, fast, fast_workspace)                                    \
        FAST_##fast(NAME, sycpu_avx512_##name, fast, fast_workspace, SYCPU_AVX512, "avx512")
#    include "kernels.def"
#    undef SYCPU_KERNEL
#    define SYCPU_KERNEL(NAME, name, ref_workspace, fast, fast_workspace)                                    \
        FAST_##fast(NAME, sycpu_avx2_##name, fast, fast_workspace, SYCPU_AVX2, "avx2")
#    include "kernels.def"
#    undef SYCPU_KERNEL
#endif
#if SYCPU_AARCH64
#    define SYCPU_KERNEL(NAME, name, ref_workspace, fast, fast_workspace)                                    \
        FAST_##fast(NAME, sycpu_neon_##name, fast, fast_workspace, SYCPU_NEON, "neon")
#    include "kernels.def"
#    undef SYCPU_KERNEL
#endif
#define SYCPU_KERNEL(NAME, name, ref_workspace, fast, fast_workspace)                                        \
    ENTRY(NAME, sycpu_ref_##name, 1, ref_workspace, 0, "portable")
#include "backends/cpu/kernels.def"
#undef SYCPU_KERNEL
/* bf16: products by the processor's own instructions, kernels that convert as they go, conversions around. */
#if SYCPU_HAS_AVX512_BF16
#    define SYCPU_NATIVE(NAME, name, in, out, fast, workspace)                                               \
        TYPED(NAME, in, out, sycpu_avx512_bf16_##name, fast, workspace, SYCPU_AVX512_BF16, "avx512_bf16")
#    include "backends/cpu/kernels_bf16.def"
#    undef SYCPU_NATIVE
#endif
#if SYCPU_X86_64
#    define SYCPU_MIXED(NAME, name, in, out, fast, workspace)                                                \
        TYPED(NAME, in, out, sycpu_avx512_##name, fast, workspace, SYCPU_AVX512, "avx512")
#    include "backends/cpu/kernels_bf16.def"
#    undef SYCPU_MIXED
#    define SYCPU_MIXED(NAME, name, in, out, fast, workspace)                                                \
        TYPED(NAME, in, out, sycpu_avx2_##name, fast, workspace, SYCPU_AVX2, "avx2")
#    include "backends/cpu/kernels_bf16.def"
#    undef SYCPU_MIXED
#    define SYCPU_KERNEL(NAME, name, ref_workspace, fast, fast_workspace)                                    \
        CONVERTED(NAME, avx512, SYCPU_AVX512)
#    include "backends/cpu/kernels.def"
#    undef SYCPU_KERNEL
#    define SYCPU_KERNEL(NAME, name, ref_workspace, fast, fast_workspace) CONVERTED(NAME, avx2, SYCPU_AVX2)
#    include "backends/cpu/kernels.def"
#    undef SYCPU_KERNEL
#endif
#if SYCPU_AARCH64
#    define SYCPU_MIXED(NAME, name, in, out, fast, workspace)                                                \
        TYPED(NAME, in, out, sycpu_neon_##name, fast, workspace, SYCPU_NEON, "neon")
#    include "backends/cpu/kernels_bf16.def"
#    undef SYCPU_MIXED
#    define SYCPU_KERNEL(NAME, name, ref_workspace, fast, fast_workspace) CONVERTED(NAME, neon, SYCPU_NEON)
#    include "backends/cpu/kernels.def"
#    undef SYCPU_KERNEL
#endif
#define SYCPU_KERNEL(NAME, name, ref_workspace, fast, fast_workspace) CONVERTED(NAME, portable, 0)
#include "backends/cpu/kernels.def"
#undef SYCPU_KERNEL
};

const struct sy_kernel *sycpu_find_float(int op, uint32_t features)
{
    size_t i = 0; /* the list has a portable one of every op that has any */
    while (kernels[i].op != op || kernels[i].in_dtype != SY_F32 || kernels[i].out_dtype != SY_F32 ||
           kernels[i].needs & ~features)
        i++;
    return &kernels[i];
}

/* ---- variants ---- */

/* Widest first; a variant uses the kernels of those behind it where it has none of its own. */
static const struct variant {
    const char *name;
    uint32_t features; /* enum sycpu_feature: of its kernels and of the narrower ones */
} variants[] = {
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

/* NULL: unknown or not possible here, and the host was told why. */
static const struct variant *choose(const struct sy_host *host, const char *name)
{
    uint32_t features = possible();
    char line[256], have[64];
    for (int i = 0; i < VARIANTS; i++) {
        if (variants[i].features & ~features) continue;
        if (strcmp(name, "auto") == 0 || strcmp(name, variants[i].name) == 0) return &variants[i];
    }
    list_variants(features, have, sizeof(have));
    snprintf(line, sizeof(line), "variant \"%.40s\" is not possible here: this CPU and build have auto, %s%s",
             name, have, strcmp(name, "blas") ? "" : "; blas takes a build with configure --with-blas");
    host->error(host->arg, line);
    return NULL;
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
    *features = possible();
    snprintf(description, bytes, "blas: %s, else %s; not reproducible to the bit", library,
             choose(host, "auto")->name);
}
#endif

static int open(const struct sy_host *host, const struct sy_backend_option *options, void **context,
                uint32_t *features, char *description, size_t description_bytes)
{
    const char *name = "auto";
    char line[256];
    for (; options->key; options++) {
        if (strcmp(options->key, "variant") != 0) {
            snprintf(line, sizeof(line), "unknown option \"%.80s\": there is variant", options->key);
            host->error(host->arg, line);
            return SY_EINVAL;
        }
        name = options->value;
    }
    const struct variant *variant = choose(host, name);
    if (!variant) return SY_EINVAL;
    *context = NULL; /* kernels keep nothing between calls */
    *features = variant->features;
    snprintf(description, description_bytes, "%s", variant->name);
#if SYCPU_HAS_BLAS
    if (variant->features & SYCPU_BLAS) open_blas(host, features, description, description_bytes);
#endif
    return SY_OK;
}

static void close(void *context)
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
    .magic = SY_ABI_MAGIC,
    .abi_major = SY_ABI_MAJOR,
    .abi_minor = SY_ABI_MINOR,
    .min_host_minor = 4,
    .desc_bytes = sizeof(struct sy_backend_desc),
    .layout = SY_ABI_LAYOUT,
    .caps = SY_CAP_KERNELS,
    .name = "cpu",
    .version = PACKAGE_VERSION,
    .build = BUILD,
    .probe = probe,
    .open = open,
    .close = close,
    .kernels = kernels,
    .n_kernels = sizeof(kernels) / sizeof(kernels[0]),
};
