/* SPDX-License-Identifier: Apache-2.0 */
/* One library with many descriptors, each wrong in one way, and a few odd but right ones. test_backend.c
 * links it under the names switchyard-NAME.so. Loading it also switches flush-to-zero on, as a library linked
 * with -ffast-math does. The functions of refused ones end the process: the host must not come to call them.
 */
#include <stdlib.h>
#include <string.h>
#if defined(__x86_64__)
#    include <xmmintrin.h>
#endif

#include "switchyard/ops.h"
#include "switchyard/switchyard.h"

#if defined(__x86_64__)
__attribute__((constructor)) static void flush_to_zero(void)
{
    _mm_setcsr(_mm_getcsr() | 0x8040);
}
#endif

static int forbidden_probe(const struct sy_host *host, int *score, char *text, size_t text_bytes)
{
    (void)host, (void)score, (void)text, (void)text_bytes;
    abort();
}
static int forbidden_open(const struct sy_host *host, const struct sy_backend_option *options, void **context,
                          uint32_t *features, char *description, size_t description_bytes)
{
    (void)host, (void)options, (void)context, (void)features, (void)description, (void)description_bytes;
    abort();
}
static void forbidden_close(void *context)
{
    (void)context;
    abort();
}

static int run(void *context, const struct sy_call *call)
{
    (void)context;
    call->host->error(call->host->arg, "the kernel gives up");
    return SY_ENUMERIC;
}

#define KERNEL(id, features, called, function)                                                               \
    {                                                                                                        \
        .op = id, .needs = features, .name = called, .run = function                                         \
    }

static const struct sy_kernel kernels[] = {
    KERNEL(60000, 0, "of the future", run), /* an op this host does not know */
    KERNEL(SY_OP_MATMUL, 4, "needs what is not there", run),
    KERNEL(SY_OP_MATMUL, 2, "second", run),
    KERNEL(SY_OP_MATMUL, 0, "plain", run),
    KERNEL(SY_OP_ROUTE, 0, "route", run),
};
static const struct sy_kernel no_function[] = {KERNEL(SY_OP_MATMUL, 0, "none", NULL)};
static const struct sy_collective_table short_collectives = {.bytes = 16};
static const struct sy_collective_table empty_collectives = {.bytes = sizeof(empty_collectives)};
static const struct sy_device_table short_device = {.bytes = 8};
static int capture_begin(void *context)
{
    (void)context;
    return 0;
}
static const struct sy_device_table empty_device = {.bytes = sizeof(empty_device),
                                                    .capture_begin = capture_begin};

#define HEAD      SY_BACKEND_HEAD(12), .version = "1.2", .build = "tests"
#define FORBIDDEN .probe = forbidden_probe, .open = forbidden_open, .close = forbidden_close
#define KERNELS   .caps = SY_CAP_KERNELS, .kernels = kernels, .n_kernels = sizeof(kernels) / sizeof(kernels[0])

#define BACKEND(id)                                                                                          \
    SY_API extern const struct sy_backend_desc sy_backend_##id;                                              \
    const struct sy_backend_desc sy_backend_##id

/* ---- refused ---- */

#pragma GCC diagnostic ignored "-Woverride-init"
#if defined(__clang__)
#    pragma GCC diagnostic ignored "-Winitializer-overrides"
#endif
BACKEND(magic) = {HEAD, FORBIDDEN, KERNELS, .name = "magic", .magic = 0x464c457f};
BACKEND(major) = {HEAD, FORBIDDEN, KERNELS, .name = "major", .abi_major = SY_ABI_MAJOR + 7};
BACKEND(minor) = {HEAD, FORBIDDEN, KERNELS, .name = "minor", .abi_minor = 99, .min_host_minor = 99};
BACKEND(older) = {HEAD, FORBIDDEN, KERNELS, .name = "older", .abi_minor = 1, .min_host_minor = 1};
BACKEND(layout) = {HEAD, FORBIDDEN, KERNELS, .name = "layout", .layout = SY_ABI_LAYOUT + 8};
BACKEND(truncated) = {HEAD, FORBIDDEN, KERNELS, .name = "truncated", .desc_bytes = 24};
BACKEND(renamed) = {HEAD, FORBIDDEN, KERNELS, .name = "original"};
BACKEND(nameless) = {HEAD, FORBIDDEN, KERNELS};
BACKEND(nothing) = {HEAD, FORBIDDEN, .name = "nothing"};
BACKEND(kernelless) = {HEAD, FORBIDDEN, .name = "kernelless", .caps = SY_CAP_KERNELS};
BACKEND(nofunction) = {
    HEAD, FORBIDDEN, .name = "nofunction", .caps = SY_CAP_KERNELS, .kernels = no_function, .n_kernels = 1};
BACKEND(shorttable) = {HEAD, FORBIDDEN, .name = "shorttable", .caps = SY_CAP_COLLECTIVES,
                       .collectives = &short_collectives};
BACKEND(notable) = {HEAD, FORBIDDEN, .name = "notable", .caps = SY_CAP_COLLECTIVES};
BACKEND(shortdevice) = {HEAD, FORBIDDEN, .name = "shortdevice", .caps = SY_CAP_DEVICE,
                        .device = &short_device};

/* ---- accepted ---- */

static int good_open(const struct sy_host *host, const struct sy_backend_option *options, void **context,
                     uint32_t *features, char *description, size_t description_bytes)
{
    for (; options->key; options++) {
        if (strcmp(options->key, "fail") != 0) continue;
        host->error(host->arg, "asked to fail");
        host->error(host->arg, "an echo");
        return 12345; /* no status of the host */
    }
    host->log(host->arg, 77, "opened\nand more");
    *context = (void *)host;
    *features = 3;
    memset(description, 'x', description_bytes); /* no NUL at the end */
    description[5] = '\n';
    return SY_OK;
}

static int long_probe(const struct sy_host *host, int *score, char *text, size_t text_bytes)
{
    (void)host;
    *score = 42;
    memset(text, 'y', text_bytes);
    text[5] = '\n';
    return SY_OK;
}

BACKEND(good) = {HEAD, KERNELS, .name = "good", .probe = long_probe, .open = good_open};
/* All functions left out. */
BACKEND(holes) = {HEAD,
                  .name = "holes",
                  .caps = SY_CAP_DEVICE | SY_CAP_COLLECTIVES,
                  .open = good_open,
                  .device = &empty_device,
                  .collectives = &empty_collectives};
BACKEND(closed) = {HEAD, KERNELS, .name = "closed"};
/* Of a later minor version that has grown: the host reads what it knows. */
struct grown_desc {
    struct sy_backend_desc desc;
    void *more[4];
};
SY_API extern const struct grown_desc sy_backend_grown;
const struct grown_desc sy_backend_grown = {
    .desc = {HEAD, KERNELS, .name = "grown", .open = good_open, .abi_minor = SY_ABI_MINOR + 5,
             .desc_bytes = sizeof(struct sy_backend_desc) + 4 * sizeof(void *)},
    .more = {(void *)8, (void *)8, (void *)8, (void *)8}};
