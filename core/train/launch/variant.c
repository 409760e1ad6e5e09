/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <string.h>

#include "runtime/kernel_speed.h"
#include "train/launch/variant.h"

#define NAME_OF(constant, text) [constant] = text,
static const char *const names[] = {SYI_CPU_VARIANT_MAP(NAME_OF)};
#undef NAME_OF

const char *syi_variant_name(int variant)
{
    return names[variant];
}

int syi_variant_of(const char *description)
{
    size_t length = strcspn(description, ":");
    int i = 0;
    while ((size_t)i + 1 < SYI_COUNT(names) &&
           (strlen(names[i]) != length || strncmp(names[i], description, length)))
        i++;
    return i;
}

int syi_variant_bfloat16(int variant)
{
    switch (variant) {
    case SYI_CPU_VARIANT_AMX_BF16: return SYI_CPU_BFLOAT16_AMX_BF16;
    case SYI_CPU_VARIANT_AVX512_BF16: return SYI_CPU_BFLOAT16_AVX512_BF16;
    case SYI_CPU_VARIANT_PORTABLE:
    case SYI_CPU_VARIANT_AVX2:
    case SYI_CPU_VARIANT_AVX512:
    case SYI_CPU_VARIANT_NEON: return SYI_CPU_BFLOAT16_WIDENED;
    default: return SYI_CPU_BFLOAT16_AUTO;
    }
}

/* Rounds of measuring; one takes less than 0.1 ms for each variant that a run may take. */
enum { AT_START = 6, FOR_PEOPLE = 20 };

static int open_variant(const char *name, struct syi_backend **backend, struct sy_error *err)
{
    const struct sy_backend_option options[] = {{"variant", name}, {NULL, NULL}};
    *backend = NULL;
    return syi_backend_open("cpu", options, NULL, backend, err);
}

/* ---- the choice ---- */

int syi_variant_fastest(const double *flops, int n)
{
    double most = 0;
    int i = 0;
    for (int k = 0; k < n; k++) most = flops[k] > most ? flops[k] : most;
    if (!(most > 0)) return 0;
    while (flops[i] * 1.1 < most) i++;
    return i;
}

/* What may be taken, the widest first. */
struct candidates {
    int variant[SYI_VARIANTS], n;
};

/* Whether a run of this dtype may take it. Tiles multiply bfloat16 alone. */
static int suits(int variant, int dtype, int bfloat16)
{
    if (dtype != SYI_DTYPE_BFLOAT16) return variant != SYI_CPU_VARIANT_AMX_BF16;
    return bfloat16 == SYI_CPU_BFLOAT16_AUTO || syi_variant_bfloat16(variant) == bfloat16;
}

/* The widest first: the x86 sets, of which a narrower one can be faster, then what is slower than any of them. */
static const int order[] = {SYI_CPU_VARIANT_AMX_BF16, SYI_CPU_VARIANT_AVX512_BF16, SYI_CPU_VARIANT_AVX512,
                            SYI_CPU_VARIANT_AVX2,     SYI_CPU_VARIANT_NEON,        SYI_CPU_VARIANT_PORTABLE};
enum { X86_SETS = 4 };

/* None where this CPU lacks the arithmetic. */
static struct candidates candidates_of(int widest, int dtype, int bfloat16)
{
    struct candidates c = {{widest}, suits(widest, dtype, bfloat16)};
    size_t i = 0;
    while (i < X86_SETS && order[i] != widest) i++;
    if (i == X86_SETS) return c;
    for (c.n = 0; i < X86_SETS; i++)
        if (suits(order[i], dtype, bfloat16)) c.variant[c.n++] = order[i];
    return c;
}

int syi_variant_of_measured(const struct syi_variant_speed *speed, int n, int dtype, int bfloat16)
{
    int widest = 0;
    while (widest + 1 < n && syi_variant_bfloat16(speed[widest].variant) == SYI_CPU_BFLOAT16_AUTO) widest++;
    struct candidates c = candidates_of(speed[widest].variant, dtype, bfloat16);
    double flops[SYI_VARIANTS] = {0};
    for (int i = 0; i < c.n; i++)
        for (int k = 0; k < n; k++)
            if (speed[k].variant == c.variant[i]) flops[i] = speed[k].flops[dtype];
    return c.variant[syi_variant_fastest(flops, c.n)];
}

/* ---- measuring ---- */

/* A variant while it is measured. */
struct row {
    struct syi_backend *backend;
    struct syi_kernel_trial trial[2]; /* by SYI_DTYPE_...; of a kernel that a row before has: none */
};

/* The trials of row i, of the dtypes asked for. */
static int open_trials(struct row *row, struct syi_variant_speed *speed, int i, int dtypes,
                       struct sy_error *err)
{
    static const int operand[] = {[SYI_DTYPE_FLOAT32] = SY_F32, [SYI_DTYPE_BFLOAT16] = SY_BF16};
    int status = SY_OK;
    for (int dtype = 0; !status && dtype < 2; dtype++) {
        const struct sy_kernel *kernel =
            syi_backend_find(row->backend, SY_OP_MATMUL, operand[dtype], operand[dtype]);
        char *name = speed[i].kernel[dtype];
        int k = 0;
        if (!(dtypes >> dtype & 1) || !kernel) continue;
        snprintf(name, sizeof speed[i].kernel[dtype], "%s", kernel->name);
        while (k < i && strcmp(speed[k].kernel[dtype], name)) k++;
        if (k == i) status = syi_kernel_trial_open(&row->trial[dtype], row->backend, operand[dtype], err);
    }
    return status;
}

static void take_speeds(const struct row *row, struct syi_variant_speed *speed, int n)
{
    for (int i = 0; i < n; i++)
        for (int dtype = 0, k = 0; dtype < 2; dtype++, k = 0) {
            while (strcmp(speed[k].kernel[dtype], speed[i].kernel[dtype])) k++;
            speed[i].flops[dtype] = syi_kernel_trial_flops(&row[k].trial[dtype]);
        }
}

/* Of the candidates that are here, in rounds over all of them: what slows the processor down for a while so meets all
 * alike. dtypes: bits 1 << SYI_DTYPE_.... Gives their number. */
static int measure(const struct candidates *c, int dtypes, int rounds, struct syi_variant_speed *speed,
                   int *n, struct sy_error *err)
{
    struct row row[SYI_VARIANTS] = {0};
    int status = SY_OK;
    *n = 0;
    for (int i = 0; !status && i < c->n; i++) {
        struct sy_error why = {0};
        status = open_variant(names[c->variant[i]], &row[*n].backend, &why);
        if (status == SY_EINVAL) { /* not here */
            status = SY_OK;
            continue;
        }
        if (status) {
            syi_error(err, status, "%s", why.text);
            break;
        }
        speed[*n] = (struct syi_variant_speed){.variant = c->variant[i]};
        status = open_trials(&row[*n], speed, *n, dtypes, err);
        (*n)++;
    }
    for (int i = 0; !status && i < rounds * *n * 2; i++)
        status = syi_kernel_trial_run(&row[i / 2 % *n].trial[i % 2], err);
    if (!status) take_speeds(row, speed, *n);
    for (int i = 0; i < *n; i++) {
        for (int dtype = 0; dtype < 2; dtype++) syi_kernel_trial_close(&row[i].trial[dtype]);
        syi_backend_close(row[i].backend);
    }
    return status;
}

/* What a run that began with other instructions is told here. */
static int lacks(const struct syi_variant_wish *wish, int widest, struct sy_error *err)
{
    const char *name = wish->bfloat16 == SYI_CPU_BFLOAT16_AMX_BF16 ? "amx_bf16" : "avx512_bf16";
    if (wish->exact)
        return syi_error(
            err, SY_EUNSUPPORTED,
            "cpu.bfloat16 = %s: this CPU or build has no such instructions, %s is the widest; a run "
            "keeps the arithmetic that its products of bfloat16 began with: go on with it where they are, or set "
            "cpu.bfloat16 = widened (or cpu.variant) to go on here, with other bits",
            name, names[widest]);
    syi_log(SY_LOG_WARN,
            "cpu.bfloat16 = %s: this CPU or build has no such instructions; products are by %s: "
            "results may differ in their last digits",
            name, names[widest]);
    return SY_OK;
}

/* Of this CPU and build, for runs of this dtype: those of float32 do not ask the system for tiles. */
static int find_widest(int dtype, int *widest, struct sy_error *err)
{
    int status = SY_EINVAL;
    struct sy_error why = {0};
    for (size_t i = 0; status == SY_EINVAL && i < SYI_COUNT(order); i++) {
        struct syi_backend *backend;
        if (!suits(order[i], dtype, SYI_CPU_BFLOAT16_AUTO)) continue;
        status = open_variant(names[order[i]], &backend, &why);
        if (!status) syi_backend_close(backend);
        *widest = order[i];
    }
    return status ? syi_error(err, status, "%s", why.text) : SY_OK;
}

int syi_variant_choose(const struct syi_variant_wish *wish, int *variant, struct sy_error *err)
{
    struct syi_variant_speed speed[SYI_VARIANTS] = {0};
    int n, widest = SYI_CPU_VARIANT_PORTABLE, bfloat16 = wish->bfloat16,
           status = find_widest(wish->dtype, &widest, err);
    if (status) return status;
    struct candidates c = candidates_of(widest, wish->dtype, bfloat16);
    if (!c.n) {
        status = lacks(wish, widest, err);
        bfloat16 = SYI_CPU_BFLOAT16_AUTO;
        c = candidates_of(widest, wish->dtype, bfloat16);
    }
    *variant = c.variant[0];
    /* One answer takes less time than measuring saves: a build that only answers takes the widest. */
    if (!SY_TRAINING || status || c.n == 1 || wish->widest) return status;
    status = measure(&c, 1 << wish->dtype, AT_START, speed, &n, err);
    if (!status) *variant = syi_variant_of_measured(speed, n, wish->dtype, bfloat16);
    return status;
}

int syi_variant_measure(struct syi_variant_speed speed[SYI_VARIANTS], int *n, struct sy_error *err)
{
    struct candidates all = {.n = 0};
    for (; all.n < (int)SYI_COUNT(order); all.n++) all.variant[all.n] = order[all.n];
    all.variant[all.n++] = SYI_CPU_VARIANT_BLAS;
    return measure(&all, 1 << SYI_DTYPE_FLOAT32 | 1 << SYI_DTYPE_BFLOAT16, FOR_PEOPLE, speed, n, err);
}
