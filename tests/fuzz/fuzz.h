/* SPDX-License-Identifier: Apache-2.0 */
/* What every fuzz target has: one function that takes any bytes, of libFuzzer's name. It is linked with
 * libFuzzer or with mutate.c, which has a main of its own. */
#ifndef FUZZ_H
#define FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What must hold for any input; else the process aborts, which both drivers report with the input. */
#define FUZZ_REQUIRE(condition)                                                                              \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #condition);                   \
            abort();                                                                                         \
        }                                                                                                    \
    } while (0)

#endif
