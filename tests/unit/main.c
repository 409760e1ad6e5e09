/* SPDX-License-Identifier: Apache-2.0 */
/* Criterion's own main, but for a run that finds no test: that is no success. */
#include "config.h"

#include <criterion/criterion.h>
#include <stdio.h>

enum { SKIPPED = 77 }; /* for Automake */

/* Criterion finds it by name in each process that it starts for a test. */
__attribute__((visibility("default"))) int main(int argc, char **argv)
{
    struct criterion_test_set *tests = criterion_initialize();
    int result = 0;
    if (criterion_handle_args(argc, argv, true)) result = criterion_run_all_tests(tests) ? 0 : 1;
    if (!tests->tests) {
        fputs("SKIP: Criterion finds no test, which takes /proc\n", stderr);
        result = SKIPPED;
    }
    criterion_finalize(tests);
    return result;
}
