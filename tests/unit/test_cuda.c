/* SPDX-License-Identifier: Apache-2.0 */
/* The CUDA backend as it is emulated on the CPU (tests/cuda): which ops it has. Its kernels are compared with the
 * reference where the CPU's are: kernel_harness.h. */
#include "config.h"

#include "kernel_harness.h"

/* Ops that no kernel computes: done by the host, or still missing. */
static const struct op {
    const char *name, *types, *flags;
} ops[SY_OP_COUNT] = {
#define SY_OP(id, NAME, name, labels, split, types, attributes, flags, tolerance, help)                      \
    [id] = {#name, types, flags},
#include "switchyard/ops.def"
#undef SY_OP
};

static int is_of_the_host(int op)
{
    return strchr(ops[op].flags, 'C') || op == SY_OP_SLICE || op == SY_OP_WAIT || op == SY_OP_JOIN ||
           op == SY_OP_PART;
}

/* Panels are a layout of CPU kernels. */
static int is_left_out(int op)
{
    return strchr(ops[op].types, 'p') != NULL;
}

/* In every combination of dtypes. */
Test(cuda, has_every_op_that_the_cpu_has)
{
    const struct kh_device *d = kh_device();
    int missing = 0;
    if (!d->desc)
        cr_skip_test("the CUDA backend was not built for the CPU: no C++17 compiler, or no shared libraries");
    for (int op = 0; op < SY_OP_COUNT; op++)
        for (int dtypes = 0; dtypes < 4 && !is_of_the_host(op); dtypes++)
            if (!is_left_out(op) && !kh_device_kernel(d, op, dtypes & 1, dtypes >> 1)) {
                fprintf(stderr, "cuda has no kernel for %s\n", ops[op].name);
                missing++;
                break;
            }
    cr_expect_eq(missing, 0, "%d ops have no kernel", missing);
}
