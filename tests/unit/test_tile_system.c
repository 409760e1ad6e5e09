/* SPDX-License-Identifier: Apache-2.0 */
/* Tiles and the system, on a processor that has them: their contents survive switches between threads and signals whose
 * handlers use tiles themselves, the system is asked for them only where a variant needs them, and where it refuses, that
 * variant is refused in words. */
#include "config.h"

#include <criterion/criterion.h>

#if SYCPU_HAS_AMX_BF16
#    include <errno.h>
#    include <linux/audit.h>
#    include <linux/filter.h>
#    include <linux/seccomp.h>
#    include <pthread.h>
#    include <sched.h>
#    include <signal.h>
#    include <stdatomic.h>
#    include <stddef.h>
#    include <sys/prctl.h>
#    include <sys/syscall.h>
#    include <sys/time.h>

#    include "base/amx.h"
#    include "base/amx_tile.h"
#    include "kernel_harness.h"
#    include "runtime/backend.h"

/* ---- switches and signals ---- */

/* Operands of an owner of tiles, and what 1 to STEPS products of them add up to. */
enum { STEPS = 4, OWNERS = 4 /* three threads and the handler of signals */, ROUNDS = 1000 };
static struct owner {
    uint16_t a[TILE_LINES][TILE_ELEMENTS], b[TILE_LINES][TILE_LINES][2];
    float want[TILE_LINES][TILE_LINES], got[TILE_LINES][TILE_LINES];
} owners[OWNERS];
static atomic_int begin, wrong, signals;

static void make_owners(void)
{
    for (int n = 0; n < OWNERS; n++) {
        struct owner *o = &owners[n];
        for (int i = 0; i < TILE_LINES; i++)
            for (int k = 0; k < TILE_ELEMENTS; k++) {
                o->a[i][k] = syi_bf16_from_float(kh_uniform(-1, 1));
                o->b[i][k / 2][k % 2] = syi_bf16_from_float(kh_uniform(-1, 1));
            }
        for (int step = 0; step < STEPS; step++)
            tile_dot(o->want, o->a, (const uint16_t(*)[TILE_LINES][2])o->b);
    }
}

/* All between the first and the last instruction is in the tiles alone, through `pause` after each. */
static void use_tiles(struct owner *o, int (*pause)(void))
{
    enter_tiles();
    TILE_ZERO(7);
    TILE_LOAD(3, o->a, 64);
    TILE_LOAD(6, o->b, 64);
    for (int step = 0; step < STEPS; step++) {
        if (pause) pause();
        TILE_DOT(7, 3, 6);
    }
    TILE_STORE(7, o->got, 64);
    leave_tiles();
    if (memcmp(o->got, o->want, sizeof o->got) != 0) wrong++;
}

static void *use_often(void *owner)
{
    while (!begin) sched_yield();
    for (int round = 0; round < ROUNDS; round++) use_tiles(owner, sched_yield);
    return NULL;
}

static void on_signal(int number)
{
    (void)number;
    use_tiles(&owners[0], NULL);
    signals++;
}

Test(tile_system, threads_and_signals_leave_tiles_as_they_are)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    const struct itimerval often = {{0, 200}, {0, 200}}, never = {{0, 0}, {0, 0}};
    pthread_t thread[OWNERS];
    if (!syi_amx_possible()) cr_skip_test("this processor or system has no AMX tiles");
    make_owners();
    cr_assert_eq(pthread_create(&thread[1], NULL, use_often, &owners[1]), 0);
    cr_assert(syi_amx_request(), "the system refuses");
    for (int i = 2; i < OWNERS; i++) cr_assert_eq(pthread_create(&thread[i], NULL, use_often, &owners[i]), 0);
    cr_assert_eq(sigaction(SIGALRM, &action, NULL), 0);
    cr_assert_eq(setitimer(ITIMER_REAL, &often, NULL), 0);
    begin = 1;
    for (int i = 1; i < OWNERS; i++) cr_assert_eq(pthread_join(thread[i], NULL), 0);
    cr_assert_eq(setitimer(ITIMER_REAL, &never, NULL), 0);
    cr_expect_eq(wrong, 0, "%d of %d products and %d signals lost a tile", wrong, (OWNERS - 1) * ROUNDS,
                 signals);
    cr_expect_gt(signals, 0);
}

/* ---- what is asked for ---- */

static int has_tiles(void)
{
    enum { GET_PERMISSION = 0x1022 /* ARCH_GET_XCOMP_PERM */ };
    uint64_t states = 0;
    cr_assert_eq(syscall(SYS_arch_prctl, GET_PERMISSION, &states), 0);
    return (int)(states >> SYI_AMX_TILE_DATA & 1);
}

/* SY_OK: it opens. */
static int open_variant(const char *name, struct sy_error *err)
{
    const struct sy_backend_option options[] = {{"variant", name}, {NULL, NULL}};
    struct syi_backend *backend = NULL;
    int status = syi_backend_open("cpu", options, NULL, &backend, err);
    if (!status) syi_backend_close(backend);
    return status;
}

/* Signal stacks of a process that has asked must be larger. */
Test(tile_system, other_variants_ask_for_no_tiles)
{
    if (!syi_amx_possible()) cr_skip_test("this processor or system has no AMX tiles");
    cr_assert_eq(open_variant("avx512_bf16", NULL), SY_OK);
    cr_assert_eq(open_variant("portable", NULL), SY_OK);
    cr_expect(!has_tiles());
    cr_assert_eq(open_variant("amx_bf16", NULL), SY_OK);
    cr_expect(has_tiles());
}

Test(tile_system, a_small_signal_stack_is_said)
{
    enum { SMALL = 8192 };
    static char memory[SMALL];
    const stack_t stack = {.ss_sp = memory, .ss_size = SMALL};
    struct sy_error err = {0};
    if (!syi_amx_possible()) cr_skip_test("this processor or system has no AMX tiles");
    cr_assert_eq(sigaltstack(&stack, NULL), 0);
    cr_expect_eq(open_variant("amx_bf16", &err), SY_EINVAL);
    cr_expect(strstr(err.text, "AT_MINSIGSTKSZ") != NULL, "%s", err.text);
    cr_expect_eq(open_variant("auto", NULL), SY_OK);
}

/* ---- refusal ---- */

/* From here on arch_prctl's request for tiles fails in this process. */
static void refuse_tiles(void)
{
    enum { REQUEST = 0x1023 /* ARCH_REQ_XCOMP_PERM */ };
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_arch_prctl, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, REQUEST, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof filter[0], filter};
    cr_assert_eq(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
        cr_skip_test("this system has no filters of system calls");
}

Test(tile_system, a_refusal_is_said)
{
    struct sy_error err = {0};
    if (!syi_amx_possible()) cr_skip_test("this processor or system has no AMX tiles");
    refuse_tiles();
    cr_expect_eq(open_variant("amx_bf16", &err), SY_EINVAL);
    cr_expect(strstr(err.text, "the system refuses this process its tiles") != NULL, "%s", err.text);
    cr_assert_eq(open_variant("auto", NULL), SY_OK);
}
#else
Test(tile_system, is_tried_where_there_are_tiles)
{
    cr_skip_test("this build has no AMX: its assembler does not know the instructions");
}
#endif
