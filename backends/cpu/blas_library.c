/* SPDX-License-Identifier: Apache-2.0 */
/* What CBLAS libraries offer next to CBLAS: how many threads they start, and their names. Includes no header
 * of theirs, because which of them it will be is known when the backend is loaded. */
#include "config.h"

#if SYCPU_HAS_BLAS

#    include <stdio.h>

#    include "backends/cpu/blas.h"

/* NULL where the library has no such function. */
#    define OPTIONAL __attribute__((weak)) extern
OPTIONAL void openblas_set_num_threads(int threads);
OPTIONAL char *openblas_get_config(void);
OPTIONAL char *openblas_get_corename(void);
OPTIONAL void bli_thread_set_num_threads(int64_t threads);
OPTIONAL const char *bli_info_get_version_str(void);
OPTIONAL int bli_arch_query_id(void);
OPTIONAL const char *bli_arch_string(int id);
OPTIONAL void MKL_Set_Num_Threads(int threads);

void sycpu_blas_begin(void)
{
    if (openblas_set_num_threads) openblas_set_num_threads(1);
    if (MKL_Set_Num_Threads) MKL_Set_Num_Threads(1);
}

void sycpu_blas_begin_thread(void)
{
    if (bli_thread_set_num_threads) bli_thread_set_num_threads(1);
}

/* Bytes of the first n words. */
static int words(const char *text, int n)
{
    size_t length = 0;
    while (n-- > 0) {
        length += strspn(text + length, " ");
        length += strcspn(text + length, " ");
    }
    return (int)length;
}

void sycpu_blas_name(char *text, size_t bytes)
{
    if (openblas_get_config && openblas_get_corename) { /* OpenBLAS 0.3.21 and how it was built */
        const char *config = openblas_get_config();
        snprintf(text, bytes, "%.*s %s", words(config, 2), config, openblas_get_corename());
    } else if (bli_info_get_version_str && bli_arch_query_id && bli_arch_string) {
        snprintf(text, bytes, "BLIS %s %s", bli_info_get_version_str(), bli_arch_string(bli_arch_query_id()));
    } else if (MKL_Set_Num_Threads) {
        snprintf(text, bytes, "MKL");
    } else {
        snprintf(text, bytes, "%s", SYCPU_BLAS_LIBS);
    }
}

#endif
