/* SPDX-License-Identifier: Apache-2.0 */
/* Which instruction set the CPU backend takes where nobody named one (cpu.variant = auto): of those that the processor
 * has the one whose products are fastest for the dtype of the run, by a timed product of each at start. In float32 all give
 * the same bits. In bfloat16 there are three arithmetics (doc/numerics.md), of which a run keeps the one it began with:
 * cpu.bfloat16 says which. */
#ifndef SYI_VARIANT_H
#define SYI_VARIANT_H

#include "base/run_config.h"
#include "runtime/backend.h"

/* "avx2" of SYI_CPU_VARIANT_AVX2. */
const char *syi_variant_name(int variant);
/* Of a backend's description, "avx2" or "amx_bf16: emulated, slow". Variants that one processor can have are numbered
 * by width, portable first. */
int syi_variant_of(const char *description);
/* SYI_CPU_BFLOAT16_... of a variant; AUTO of one that auto never takes. */
int syi_variant_bfloat16(int variant);

/* Place of the one to take among n, the widest first: the first that is within 10 % of the fastest, so that noise does
 * not decide between equals. 0: not measured, taken only where none was. */
int syi_variant_fastest(const double *flops, int n);

struct syi_variant_wish {
    int dtype;    /* SYI_DTYPE_... */
    int bfloat16; /* SYI_CPU_BFLOAT16_...; of dtype bfloat16 */
    int exact;  /* 1: an arithmetic that this CPU lacks is refused; 0: it is told, and another one is taken */
    int widest; /* 1: without measuring */
};
/* *variant: for a run. Nothing is measured where there is one to choose from; else each takes less than 1 ms. */
int syi_variant_choose(const struct syi_variant_wish *wish, int *variant,
                       struct sy_error *err) SYI_MUST_CHECK;

/* ---- for people: all of them ---- */

enum { SYI_VARIANTS = 8 };
struct syi_variant_speed {
    int variant;
    double flops[2];    /* a second and thread, by SYI_DTYPE_...; 0: not measured */
    char kernel[2][16]; /* that multiplies: variants with the same one share a measurement */
};
/* Of all variants that this CPU and build have, the widest first; *n of them. */
int syi_variant_measure(struct syi_variant_speed speed[SYI_VARIANTS], int *n,
                        struct sy_error *err) SYI_MUST_CHECK;
/* Which of them auto takes for this dtype; bfloat16: SYI_CPU_BFLOAT16_.... */
int syi_variant_of_measured(const struct syi_variant_speed *speed, int n, int dtype, int bfloat16);

#endif
