/* SPDX-License-Identifier: Apache-2.0 */
/* What `switchyard bench` measures the peak of the CPU by. */
#ifndef CLI_BENCH_LOOPS_H
#define CLI_BENCH_LOOPS_H

#include "cli/bench/bench.h"

struct bench_loop {
    double flops; /* of an iteration of one thread */
    int64_t iterations;
    void (*run)(int64_t iterations); /* NULL: the CPU has no such instructions */
};

/* Writes the operands; before any of them is run. */
void bench_loops_fill(void);
/* On registers alone. dtype: SY_F32 or SY_BF16. */
struct bench_loop bench_loop_on_registers(int dtype);
/* On a tile of a product whose operands come from the nearest cache: the peak of kernels. */
struct bench_loop bench_loop_near(int dtype);

#endif
