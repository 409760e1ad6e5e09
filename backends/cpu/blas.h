/* SPDX-License-Identifier: Apache-2.0 */
/* Variant blas: matrix products of float32 by the CBLAS that configure was given. All of this is there in
 * builds --with-blas only. */
#ifndef SYCPU_BLAS_H
#define SYCPU_BLAS_H

#include "backends/cpu/cpu.h"

/* ---- blas.c ---- */

/* For all products: a call says which. Workspace and plan are those of our own kernel, which takes what is not
 * worth a call of the library. */
sycpu_run sycpu_blas_product;
sycpu_workspace sycpu_blas_workspace;
sycpu_prepare sycpu_blas_prepare;

/* ---- blas_library.c ---- */

/* Once, at open: from now on the library computes in the calling thread alone, where it has a call for that. */
void sycpu_blas_begin(void);
/* The same for libraries that keep it by thread: in each thread, before it calls the library. */
void sycpu_blas_begin_thread(void);
/* "OpenBLAS 0.3.21 SkylakeX": name, version and what it has chosen for this processor, as far as it reports that. */
void sycpu_blas_name(char *text, size_t bytes);

#endif
