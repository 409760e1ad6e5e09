/* SPDX-License-Identifier: Apache-2.0 */
/* The reference kernels compiled for double as a backend of their own, "cpu64": finite differences in tests
 * need its precision. Linked into test programs only, never a plugin. */
#include "config.h"

#include <stdio.h>

#include "backends/cpu/cpu.h"

#define SY_HOST_OP(...)
#define SY_OP(id, NAME, title, ...)                                                                          \
    {.op = SY_OP_##NAME,                                                                                     \
     .in_dtype = SY_F64,                                                                                     \
     .out_dtype = SY_F64,                                                                                    \
     .name = "double",                                                                                       \
     .workspace = sycpu_ref64_##title##_workspace,                                                           \
     .run = sycpu_ref64_##title},

static const struct sy_kernel kernels[] = {
#include "switchyard/ops.def"
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
    SY_BACKEND_HEAD(12), .caps = SY_CAP_KERNELS, .name = "cpu64",
    .open = open,        .kernels = kernels,     .n_kernels = sizeof(kernels) / sizeof(kernels[0]),
};
