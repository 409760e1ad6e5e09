/* SPDX-License-Identifier: Apache-2.0 */
/* Whether this process may use the matrix tiles of amx_tile.h: the processor says what it has, and the system hands them out on
 * request, because they make the state of a thread 8 KiB larger. */
#ifndef SYI_AMX_H
#define SYI_AMX_H

#include <stdint.h>

#if SYCPU_HAS_AMX_BF16
#    include <cpuid.h>
#    include <sys/syscall.h>
#    include <unistd.h>

/* Of asm/prctl.h, which may be older than the system that runs. */
enum {
    SYI_AMX_GET_POSSIBLE = 0x1021, /* ARCH_GET_XCOMP_SUPP */
    SYI_AMX_REQUEST = 0x1023,      /* ARCH_REQ_XCOMP_PERM */
    SYI_AMX_TILE_DATA = 18         /* the state that holds the tiles */
};

/* The processor has tiles of bf16 and the system can give them to a process. Changes nothing. */
static inline int syi_amx_possible(void)
{
    const unsigned bf16 = 1u << 22, tiles = 1u << 24;
    unsigned a, b, c, d;
    uint64_t states = 0;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || ~d & (bf16 | tiles)) return 0;
    return syscall(SYS_arch_prctl, SYI_AMX_GET_POSSIBLE, &states) == 0 && states >> SYI_AMX_TILE_DATA & 1;
}

/* Asks the system to let this process use them: once is enough, more does no harm. 1: it may. */
static inline int syi_amx_request(void)
{
    return syi_amx_possible() && syscall(SYS_arch_prctl, SYI_AMX_REQUEST, SYI_AMX_TILE_DATA) == 0;
}
#else
static inline int syi_amx_possible(void)
{
    return 0;
}

static inline int syi_amx_request(void)
{
    return 0;
}
#endif

#endif
