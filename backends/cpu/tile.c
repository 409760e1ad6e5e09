/* SPDX-License-Identifier: Apache-2.0 */
/* Whether this process may use the tiles of tile.h: the processor says what it has, and the system hands them out on
 * request, because they make the state of a thread 8 KiB larger. */
#include "config.h"

#include "backends/cpu/tile.h"

#if SYCPU_HAS_AMX_BF16
#    include <cpuid.h>
#    include <sys/syscall.h>
#    include <unistd.h>

/* Of asm/prctl.h, which may be older than the system that runs. */
enum {
    GET_POSSIBLE = 0x1021, /* ARCH_GET_XCOMP_SUPP */
    REQUEST = 0x1023,      /* ARCH_REQ_XCOMP_PERM */
    TILE_DATA = 18         /* the state that holds the tiles */
};

int sycpu_tile_possible(void)
{
    const unsigned bf16 = 1u << 22, tiles = 1u << 24;
    unsigned a, b, c, d;
    uint64_t states = 0;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || ~d & (bf16 | tiles)) return 0;
    return syscall(SYS_arch_prctl, GET_POSSIBLE, &states) == 0 && states >> TILE_DATA & 1;
}

int sycpu_tile_request(void)
{
    return sycpu_tile_possible() && syscall(SYS_arch_prctl, REQUEST, TILE_DATA) == 0;
}
#else
int sycpu_tile_possible(void)
{
    return 0;
}

int sycpu_tile_request(void)
{
    return 0;
}
#endif
