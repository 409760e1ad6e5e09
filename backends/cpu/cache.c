/* SPDX-License-Identifier: Apache-2.0 */
/* What the system tells of this processor's caches. */
#include "config.h"

#include <stdlib.h>
#include <unistd.h>

#include "backends/cpu/cpu.h"

int64_t sycpu_l2_bytes(void)
{
    const char *text = getenv("SY_TEST_L2_BYTES");
    if (text) return strtoll(text, NULL, 10);
#ifdef _SC_LEVEL2_CACHE_SIZE
    return sysconf(_SC_LEVEL2_CACHE_SIZE);
#else
    return 0;
#endif
}
