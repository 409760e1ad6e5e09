/* SPDX-License-Identifier: Apache-2.0 */
/* The CUDA backend as it is emulated on the CPU (tests/cuda): which ops it has, and its memory. Its kernels are compared
 * with the reference where the CPU's are: kernel_harness.h. */
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

/* ---- memory ---- */

/* What CUDA says of a call that failed is not said of a launch after it. */
Test(cuda, a_refusal_of_memory_is_not_an_error_of_the_next_kernel)
{
    struct kh_device *d = kh_device();
    struct kh k;
    void *memory = NULL;
    if (!d->desc)
        cr_skip_test("the CUDA backend was not built for the CPU: no C++17 compiler, or no shared libraries");
    cr_expect_eq(d->desc->device->alloc(d->context, UINT64_C(1) << 50, &memory), SY_ENOMEM);
    kh_begin(&k, SY_OP_COUNT_SUM, NULL, 0);
    kh_in(&k, SY_I32, 2, 3, 5);
    kh_out(&k, SY_I64, 1, 3);
    kh_check(&k, "after a refusal");
    kh_end(&k);
}

/* Of weights of gigabytes rows are farther apart than CUDA copies them together. */
Test(cuda, copies_rows_that_are_far_apart)
{
    enum { ROW = 16 };
    const uint64_t far = UINT64_C(1) << 31;
    struct kh_device *d = kh_device();
    uint8_t from[2 * ROW], to[2][ROW] = {{0}};
    void *source, *memory = NULL;
    if (!d->desc)
        cr_skip_test("the CUDA backend was not built for the CPU: no C++17 compiler, or no shared libraries");
    const struct sy_device_table *device = d->desc->device;
    for (int i = 0; i < 2 * ROW; i++) from[i] = (uint8_t)(i + 1);
    source = kh_to_device(d, from, sizeof from);
    cr_assert_eq(device->alloc(d->context, far + ROW, &memory), SY_OK);
    cr_expect_eq(device->copy_rows(d->context, memory, far, source, ROW, ROW, 2), SY_OK);
    for (uint64_t i = 0; i < 2; i++)
        cr_expect_eq(device->copy(d->context, to[i], (uint8_t *)memory + i * far, ROW), SY_OK);
    cr_expect_eq(memcmp(to, from, sizeof from), 0);
    /* Two that follow one another are one piece, as is a single one. */
    cr_expect_eq(device->copy_rows(d->context, memory, ROW, source, ROW, ROW, 2), SY_OK);
    cr_expect_eq(device->copy(d->context, to, memory, sizeof to), SY_OK);
    cr_expect_eq(memcmp(to, from, sizeof from), 0);
    cr_expect_eq(device->copy_rows(d->context, memory, 2 * far, source, 2 * far, ROW, 1), SY_OK);
    device->free(d->context, memory);
    device->free(d->context, source);
}
