/* SPDX-License-Identifier: Apache-2.0 */
/* What the system tells of this processor's caches. */
#include "config.h"

#include <stdlib.h>
#include <unistd.h>

#include "backends/cpu/cpu.h"

/* Systems without these names have no such answer. */
#ifdef _SC_LEVEL1_DCACHE_SIZE
enum { L1 = _SC_LEVEL1_DCACHE_SIZE, L2 = _SC_LEVEL2_CACHE_SIZE };
#else
enum { L1 = -1, L2 = -1 };
#endif

static int64_t bytes_of(const char *variable, int name)
{
    const char *text = getenv(variable);
    return text ? strtoll(text, NULL, 10) : sysconf(name);
}

int64_t sycpu_l1_bytes(void)
{
    return bytes_of("SY_TEST_L1_BYTES", L1);
}

int64_t sycpu_l2_bytes(void)
{
    return bytes_of("SY_TEST_L2_BYTES", L2);
}
