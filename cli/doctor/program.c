/* SPDX-License-Identifier: Apache-2.0 */
/* The program itself: what it was built with, which kernels this processor takes, its plugins and libraries. */
#include "config.h"

#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#if defined(__x86_64__)
#    include <cpuid.h>
#endif

#include "base/compress.h"
#include "base/threads.h"
#include "cli/doctor/doctor.h"
#include "data/vocabulary.h"
#include "metrics/database.h"
#include "switchyard/vocabulary.h"
#include "train/launch/launch.h"

/* ---- build ---- */

#if defined(__clang__)
#    define COMPILER __VERSION__ /* begins with its name */
#else
#    define COMPILER "gcc " __VERSION__
#endif

static const char *const built_variants[] = {
#if SYCPU_HAS_AMX_BF16
    "amx_bf16",
#endif
#if SYCPU_HAS_AVX512_BF16
    "avx512_bf16",
#endif
#if SYCPU_X86_64
    "avx512",      "avx2",
#endif
#if SYCPU_AARCH64
    "neon",
#endif
    "portable",
#if SYCPU_HAS_BLAS
    "blas",
#endif
};

static void add_build(struct doctor *d)
{
    struct syi_text variants = {0};
    for (size_t i = 0; i < SYI_COUNT(built_variants); i++)
        syi_text_printf(&variants, "%s%s", i ? ", " : "", built_variants[i]);
    doctor_add(d, DOCTOR_OK, "build", NULL, "switchyard %s, plugin ABI %d.%d, %s, kernels for %s",
               sy_version(), SY_ABI_MAJOR, SY_ABI_MINOR, COMPILER, doctor_say(d, &variants, ""));
    syi_text_free(&variants);
}

/* ---- processor ---- */

/* Those that the kernels use. */
static void processor_features(struct syi_text *text)
{
#if defined(__x86_64__)
#    define FEATURE(name)                                                                                    \
        if (__builtin_cpu_supports(name)) syi_text_puts(text, " " name);
    __builtin_cpu_init();
    FEATURE("avx2")
    FEATURE("fma")
    FEATURE("avx512f")
    FEATURE("avx512bw")
    FEATURE("avx512dq")
    FEATURE("avx512vl")
    FEATURE("avx512bf16")
#    undef FEATURE
    unsigned a, b, c, d; /* the compiler's names of these are newer than some compilers */
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) d = 0;
    if (d >> 24 & 1) syi_text_puts(text, " amx-tile");
    if (d >> 22 & 1) syi_text_puts(text, " amx-bf16");
#elif defined(__aarch64__)
    syi_text_puts(text, " neon");
#endif
    if (!text->data) syi_text_puts(text, " none that kernels use");
}

static void add_processor(struct doctor *d)
{
    char name[128];
    struct utsname machine;
    struct syi_text features = {0};
    syi_cpu_name(name, sizeof name);
    if (!name[0]) snprintf(name, sizeof name, "%s", uname(&machine) < 0 ? "unknown" : machine.machine);
    processor_features(&features);
    doctor_add(d, DOCTOR_OK, "processor", NULL, "%s;%s", name, doctor_say(d, &features, ""));
    syi_text_free(&features);
}

/* Opens what a training on one process opens, with the variant that the environment asks for. */
static int open_kernels(int dtype, struct syi_alone *alone, struct sy_error *err)
{
    struct syi_config config;
    struct syi_launch launch = {.backend = "cpu", .comm = "self", .config = &config};
    int status = syi_fp_check(err);
    if (!status) status = syi_config_defaults(&config, err);
    config.model.dtype = dtype;
    return status ? status : syi_launch_open(&launch, alone, err);
}

static void add_kernels(struct doctor *d)
{
    struct sy_error err = {0};
    struct syi_alone single = {0}, half = {0};
    int status = open_kernels(SYI_DTYPE_FLOAT32, &single, &err);
    if (!status) status = open_kernels(SYI_DTYPE_BFLOAT16, &half, &err);
    if (status) {
        doctor_add_error(d, DOCTOR_PROBLEM, "kernels", NULL, &err);
    } else {
        const char *name = single.rank.backend->description, *of_half = half.rank.backend->description;
        int same = !strcmp(name, of_half), threads = single.rank.n_threads;
        doctor_add(d, DOCTOR_OK, "kernels", NULL, "a run takes %s here%s%s%s, with %d thread%s", name,
                   same ? "" : " (", same ? "" : of_half, same ? "" : " in bfloat16)", threads,
                   threads == 1 ? "" : "s");
        doctor_number(d, "threads", threads);
    }
    syi_launch_close(&half);
    syi_launch_close(&single);
}

/* ---- plugins ---- */

struct backends {
    struct doctor *doctor;
    struct syi_text usable;
};

/* cpu is opened by add_kernels, which says when it cannot be; mpi has a line of its own. */
static void add_refused(void *arg, const struct syi_backend_info *info)
{
    struct backends *backends = arg;
    if (info->refused) {
        doctor_add(backends->doctor, DOCTOR_NOTE, "backends", NULL, "%s (%s) is refused: %s", info->name,
                   info->path, info->refused);
        return;
    }
    syi_text_printf(&backends->usable, "%s%s (%s%s)", backends->usable.data ? "; " : "", info->name,
                    info->score > 0 ? "" : "not here: ", info->text);
}

static void add_backends(struct doctor *d)
{
    struct backends backends = {.doctor = d};
    struct sy_error err = {0};
    if (syi_backend_list(add_refused, &backends, &err))
        doctor_add_error(d, DOCTOR_PROBLEM, "backends", NULL, &err);
    else if (*doctor_say(d, &backends.usable, ""))
        doctor_add(d, DOCTOR_OK, "backends", NULL, "%s", backends.usable.data);
    syi_text_free(&backends.usable);
}

static void add_vocabularies(struct doctor *d)
{
    const struct sy_vocabulary_desc *desc;
    struct sy_error err = {0};
    int status = syi_sentencepiece_load(&desc, &err);
    if (!status)
        doctor_add(d, DOCTOR_OK, "vocabulary", NULL, "SentencePiece %s, by its plugin",
                   desc->version ? desc->version : "");
    else if (status == SY_EUNSUPPORTED)
        doctor_add(d, DOCTOR_NOTE, "vocabulary",
                   "bytes, words and characters work; for its models install libsentencepiece-dev, "
                   "configure and build again",
                   "no SentencePiece plugin");
    else
        doctor_add_error(d, DOCTOR_NOTE, "vocabulary", NULL, &err);
}

/* ---- libraries ---- */

static void add_sqlite(struct doctor *d)
{
    struct syi_database_library sqlite = syi_database_library();
    struct sy_error err = {0};
    if (syi_database_check_library(&err))
        doctor_add_error(d, DOCTOR_PROBLEM, "sqlite", NULL, &err);
    else
        doctor_add(d, DOCTOR_OK, "sqlite", NULL, "compiled with %s, running with %s", sqlite.compiled,
                   sqlite.running);
}

static void add_compression(struct doctor *d)
{
    const char *have = syi_compression_libraries();
    int gzip = strstr(have, "gzip") != NULL, zstd = strstr(have, "zstd") != NULL;
    doctor_add(d, gzip && zstd ? DOCTOR_OK : DOCTOR_NOTE, "compressed",
               gzip && zstd
                   ? NULL
                   : "to read the others install zlib1g-dev and libzstd-dev, configure and build again",
               "files that are read: %s", have);
}

void doctor_program(struct doctor *d)
{
    add_build(d);
    add_processor(d);
    add_kernels(d);
    add_backends(d);
    add_vocabularies(d);
    add_sqlite(d);
    add_compression(d);
}
