/* SPDX-License-Identifier: Apache-2.0 */
/* What the system tells of this processor's caches. */
#include "config.h"

#include <stdlib.h>
#include <unistd.h>

#include "backends/cpu/cpu.h"

static int64_t bytes_of(const char *variable, int name)
{
    const char *text = getenv(variable);
    if (text) return strtoll(text, NULL, 10);
    return name < 0 ? 0 : sysconf(name);
}

int64_t sycpu_l1_bytes(void)
{
#ifdef _SC_LEVEL1_DCACHE_SIZE
    return bytes_of("SY_TEST_L1_BYTES", _SC_LEVEL1_DCACHE_SIZE);
#else
    return bytes_of("SY_TEST_L1_BYTES", -1);
#endif
}

int64_t sycpu_l2_bytes(void)
{
#ifdef _SC_LEVEL2_CACHE_SIZE
    return bytes_of("SY_TEST_L2_BYTES", _SC_LEVEL2_CACHE_SIZE);
#else
    return bytes_of("SY_TEST_L2_BYTES", -1);
#endif
}
