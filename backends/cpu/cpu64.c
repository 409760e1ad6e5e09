/* SPDX-License-Identifier: Apache-2.0 */
/* The reference kernels compiled for double as a backend of their own, "cpu64": finite differences in tests
 * need its precision. Linked into test programs only, never a plugin. */
#include "config.h"

#include <stdio.h>

#include "backends/cpu/cpu.h"

#define WORKSPACE_0(function) NULL
#define WORKSPACE_1(function) function
#define SYCPU_KERNEL(NAME, title, has_workspace)                                                             \
    {.op = SY_OP_##NAME,                                                                                     \
     .in_dtype = SY_F64,                                                                                     \
     .out_dtype = SY_F64,                                                                                    \
     .name = "double",                                                                                       \
     .workspace = WORKSPACE_##has_workspace(sycpu_ref64_##title##_workspace),                                \
     .run = sycpu_ref64_##title},

static const struct sy_kernel kernels[] = {
#include "backends/cpu/ref_kernels.def"
};

static int open(const struct sy_host *host, const struct sy_backend_option *options, void **context,
                uint32_t *features, char *description, size_t description_bytes)
{
    if (options->key) {
        host->error(host->arg, "there are no options");
        return SY_EINVAL;
    }
    *context = NULL;
    *features = 0;
    snprintf(description, description_bytes, "double");
    return SY_OK;
}

extern const struct sy_backend_desc sy_backend_cpu64;
const struct sy_backend_desc sy_backend_cpu64 = {
    .magic = SY_ABI_MAGIC,
    .abi_major = SY_ABI_MAJOR,
    .abi_minor = SY_ABI_MINOR,
    .min_host_minor = 4,
    .desc_bytes = sizeof(struct sy_backend_desc),
    .layout = SY_ABI_LAYOUT,
    .caps = SY_CAP_KERNELS,
    .name = "cpu64",
    .open = open,
    .kernels = kernels,
    .n_kernels = sizeof(kernels) / sizeof(kernels[0]),
};
