/* SPDX-License-Identifier: Apache-2.0 */
/* The part of Criterion's interface that our unit tests use, for builds with -fsanitize=thread, in which
 * Criterion itself cannot start: its memory for the processes of tests lies where that sanitizer has its own.
 * Every test is a child process; what it prints and its exit status say how it went. Found before the real one
 * with CPPFLAGS=-Itests/tsan. As many tests run at once as there are processors. Usage of the program:
 * unit-tests [--filter SUITE/NAME] (a pattern: * and ?). */
#ifndef SY_TSAN_CRITERION_H
#define SY_TSAN_CRITERION_H

#include <fnmatch.h>
#include <math.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

struct tsan_extra {
    void (*init)(void), (*fini)(void);
    double timeout; /* not used: a sanitizer's speed is not the program's */
};
struct tsan_test {
    const char *suite, *name;
    void (*run)(void);
    struct tsan_extra extra;
    struct tsan_test *next;
    pid_t child; /* while it runs */
};
struct tsan_suite {
    const char *name;
    struct tsan_extra extra;
    struct tsan_suite *next;
};

/* One copy each for the program: weak, as the header is compiled in every file of tests. */
__attribute__((weak)) struct tsan_test *tsan_tests;
__attribute__((weak)) struct tsan_suite *tsan_suites;
__attribute__((weak)) atomic_int tsan_failures; /* of the test at hand; ranks may be threads */

#define TestSuite(S, ...)                                                                                    \
    static struct tsan_suite tsan_suite_##S = {#S, {__VA_ARGS__}, NULL};                                     \
    __attribute__((constructor)) static void tsan_enter_##S(void)                                            \
    {                                                                                                        \
        tsan_suite_##S.next = tsan_suites;                                                                   \
        tsan_suites = &tsan_suite_##S;                                                                       \
    }                                                                                                        \
    extern int tsan_unused

#define Test(S, N, ...)                                                                                      \
    static void S##_##N##_run(void);                                                                         \
    static struct tsan_test S##_##N##_test = {#S, #N, S##_##N##_run, {__VA_ARGS__}, NULL, 0};                \
    __attribute__((constructor)) static void S##_##N##_enter(void)                                           \
    {                                                                                                        \
        S##_##N##_test.next = tsan_tests;                                                                    \
        tsan_tests = &S##_##N##_test;                                                                        \
    }                                                                                                        \
    static void S##_##N##_run(void)

__attribute__((weak, format(printf, 4, 5))) void tsan_failed(int fatal, const char *place, const char *what,
                                                             const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fprintf(stderr, "%s: %s: ", place, what);
    vfprintf(stderr, format, args);
    fprintf(stderr, "\n");
    va_end(args);
    tsan_failures++;
    if (fatal) _exit(1);
}

#define TSAN_TEXT_(x) #x
#define TSAN_TEXT(x)  TSAN_TEXT_(x)
/* As with Criterion, the text's arguments are computed for a check that fails only. */
#define TSAN_CHECK(fatal, good, what, ...)                                                                   \
    ((good) ? (void)0 : tsan_failed(fatal, __FILE__ ":" TSAN_TEXT(__LINE__), what, " " __VA_ARGS__))

#define cr_assert(c, ...)                TSAN_CHECK(1, c, #c, ##__VA_ARGS__)
#define cr_expect(c, ...)                TSAN_CHECK(0, c, #c, ##__VA_ARGS__)
#define cr_assert_not(c, ...)            TSAN_CHECK(1, !(c), "not " #c, ##__VA_ARGS__)
#define cr_expect_not(c, ...)            TSAN_CHECK(0, !(c), "not " #c, ##__VA_ARGS__)
#define cr_assert_fail(...)              TSAN_CHECK(1, 0, "failed", ##__VA_ARGS__)
#define cr_expect_fail(...)              TSAN_CHECK(0, 0, "failed", ##__VA_ARGS__)
#define cr_assert_eq(a, b, ...)          TSAN_CHECK(1, (a) == (b), #a " == " #b, ##__VA_ARGS__)
#define cr_expect_eq(a, b, ...)          TSAN_CHECK(0, (a) == (b), #a " == " #b, ##__VA_ARGS__)
#define cr_assert_neq(a, b, ...)         TSAN_CHECK(1, (a) != (b), #a " != " #b, ##__VA_ARGS__)
#define cr_expect_neq(a, b, ...)         TSAN_CHECK(0, (a) != (b), #a " != " #b, ##__VA_ARGS__)
#define cr_assert_lt(a, b, ...)          TSAN_CHECK(1, (a) < (b), #a " < " #b, ##__VA_ARGS__)
#define cr_expect_lt(a, b, ...)          TSAN_CHECK(0, (a) < (b), #a " < " #b, ##__VA_ARGS__)
#define cr_assert_leq(a, b, ...)         TSAN_CHECK(1, (a) <= (b), #a " <= " #b, ##__VA_ARGS__)
#define cr_expect_leq(a, b, ...)         TSAN_CHECK(0, (a) <= (b), #a " <= " #b, ##__VA_ARGS__)
#define cr_assert_gt(a, b, ...)          TSAN_CHECK(1, (a) > (b), #a " > " #b, ##__VA_ARGS__)
#define cr_expect_gt(a, b, ...)          TSAN_CHECK(0, (a) > (b), #a " > " #b, ##__VA_ARGS__)
#define cr_assert_geq(a, b, ...)         TSAN_CHECK(1, (a) >= (b), #a " >= " #b, ##__VA_ARGS__)
#define cr_expect_geq(a, b, ...)         TSAN_CHECK(0, (a) >= (b), #a " >= " #b, ##__VA_ARGS__)
#define cr_assert_null(a, ...)           TSAN_CHECK(1, !(a), #a " is NULL", ##__VA_ARGS__)
#define cr_expect_null(a, ...)           TSAN_CHECK(0, !(a), #a " is NULL", ##__VA_ARGS__)
#define cr_assert_not_null(a, ...)       TSAN_CHECK(1, a, #a " is not NULL", ##__VA_ARGS__)
#define cr_expect_not_null(a, ...)       TSAN_CHECK(0, a, #a " is not NULL", ##__VA_ARGS__)
#define cr_assert_str_eq(a, b, ...)      TSAN_CHECK(1, !strcmp(a, b), #a " == " #b, ##__VA_ARGS__)
#define cr_expect_str_eq(a, b, ...)      TSAN_CHECK(0, !strcmp(a, b), #a " == " #b, ##__VA_ARGS__)
#define cr_assert_str_neq(a, b, ...)     TSAN_CHECK(1, strcmp(a, b), #a " != " #b, ##__VA_ARGS__)
#define cr_expect_str_neq(a, b, ...)     TSAN_CHECK(0, strcmp(a, b), #a " != " #b, ##__VA_ARGS__)
#define cr_assert_arr_eq(a, b, n, ...)   TSAN_CHECK(1, !memcmp(a, b, n), #a " == " #b, ##__VA_ARGS__)
#define cr_expect_arr_eq(a, b, n, ...)   TSAN_CHECK(0, !memcmp(a, b, n), #a " == " #b, ##__VA_ARGS__)
#define cr_assert_float_eq(a, b, e, ...) TSAN_CHECK(1, fabs((a) - (b)) <= (e), #a " near " #b, ##__VA_ARGS__)
#define cr_expect_float_eq(a, b, e, ...) TSAN_CHECK(0, fabs((a) - (b)) <= (e), #a " near " #b, ##__VA_ARGS__)
#define cr_skip_test(...)                                                                                    \
    do {                                                                                                     \
        printf("skipped: " __VA_ARGS__);                                                                     \
        printf("\n");                                                                                        \
        fflush(stdout);                                                                                      \
        _exit(0);                                                                                            \
    } while (0)
#define cr_skip cr_skip_test

/* Starts a test in a child process. */
__attribute__((weak)) void tsan_start(struct tsan_test *test)
{
    static const struct tsan_extra none;
    const struct tsan_extra *suite = &none;
    for (const struct tsan_suite *s = tsan_suites; s; s = s->next)
        if (!strcmp(s->name, test->suite)) suite = &s->extra;
    fflush(NULL);
    test->child = fork();
    if (test->child) return;
    if (suite->init) suite->init();
    if (test->extra.init) test->extra.init();
    test->run();
    if (test->extra.fini) test->extra.fini();
    if (suite->fini) suite->fini();
    fflush(NULL);
    exit(tsan_failures != 0); /* through exit: the sanitizer has its say */
}

struct tsan_counts {
    int failing, crashing;
};

/* Waits for one of the tests that run. */
__attribute__((weak)) void tsan_end_one(struct tsan_counts *counts)
{
    int status = 1;
    pid_t child = wait(&status);
    counts->failing += child <= 0;
    for (struct tsan_test *test = tsan_tests; test; test = test->next) {
        if (test->child != child) continue;
        test->child = 0;
        if (!status) return;
        printf("[FAIL] %s/%s (wait status %#x)\n", test->suite, test->name, (unsigned)status);
        counts->failing++;
        counts->crashing += WIFSIGNALED(status) != 0;
    }
}

/* What tests/unit/main.c calls; the library that is linked too has these as well, and these stand before its own. */
struct criterion_test_set {
    size_t tests; /* those that the filter lets through */
};
__attribute__((weak)) const char *tsan_filter = "*";

__attribute__((weak)) struct criterion_test_set *criterion_initialize(void)
{
    static struct criterion_test_set set;
    return &set;
}

__attribute__((weak)) int criterion_handle_args(int argc, char **argv, bool unknown)
{
    if (argc == 3 && !strcmp(argv[1], "--filter")) {
        tsan_filter = argv[2];
    } else if (argc > 1) {
        fprintf(stderr, "usage: %s [--filter SUITE/NAME]\n", argv[0]);
        exit(2);
    }
    return unknown;
}

__attribute__((weak)) int criterion_run_all_tests(struct criterion_test_set *set)
{
    struct tsan_counts counts = {0, 0};
    long running = 0, most = sysconf(_SC_NPROCESSORS_ONLN);
    for (struct tsan_test *test = tsan_tests; test; test = test->next) {
        char name[256];
        snprintf(name, sizeof name, "%s/%s", test->suite, test->name);
        if (fnmatch(tsan_filter, name, 0)) continue;
        if (running >= most) {
            tsan_end_one(&counts);
            running--;
        }
        tsan_start(test);
        counts.failing += test->child < 0;
        running += test->child > 0;
        set->tests++;
    }
    while (running-- > 0) tsan_end_one(&counts);
    printf("[====] Synthesis: Tested: %zu | Passing: %zu | Failing: %d | Crashing: %d\n", set->tests,
           set->tests - (size_t)counts.failing, counts.failing, counts.crashing);
    return counts.failing == 0;
}

__attribute__((weak)) void criterion_finalize(struct criterion_test_set *set)
{
    (void)set;
}

#endif
