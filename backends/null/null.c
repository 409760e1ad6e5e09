/* SPDX-License-Identifier: Apache-2.0 */
/* The null backend: a kernel for every op that counts its calls and touches no memory, and collectives among
 * any number of ranks that move nothing. With it a laptop runs a plan for a machine it has not got. What was
 * counted is logged when the backend is closed. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "switchyard/ops.h"
#include "switchyard/switchyard.h"

struct context {
    const struct sy_host *host;
    int rank, ranks;             /* from the options */
    uint64_t calls[SY_OP_COUNT]; /* of kernels, by op */
    uint64_t collectives;        /* started */
    uint64_t sent;               /* bytes that this rank would have sent, its own piece included */
};

static int count(void *context, const struct sy_call *call)
{
    if (call->op < SY_OP_COUNT) ((struct context *)context)->calls[call->op]++;
    return SY_OK;
}

/* ---- kernels ---- */

/* Those of communication ops are never asked for: the host runs these through the table below. */
#define KERNEL(NAME, in, out)                                                                                \
    {                                                                                                        \
        .op = SY_OP_##NAME, .in_dtype = in, .out_dtype = out, .name = "null", .run = count                   \
    }
#define SY_OP(id, NAME, name, labels, split, types, attributes, flags, tolerance, help)                      \
    KERNEL(NAME, SY_F32, SY_F32), KERNEL(NAME, SY_BF16, SY_F32), KERNEL(NAME, SY_F32, SY_BF16),              \
        KERNEL(NAME, SY_BF16, SY_BF16), KERNEL(NAME, SY_F64, SY_F64),
static const struct sy_kernel kernels[] = {
#include "switchyard/ops.def"
};
#undef SY_OP

#define SY_OP(id, NAME, name, labels, split, types, attributes, flags, tolerance, help) [id] = #name,
static const char *const op_names[SY_OP_COUNT] = {
#include "switchyard/ops.def"
};
#undef SY_OP

/* ---- collectives ---- */

static int world(void *context, int *rank, int *ranks)
{
    const struct context *null = context;
    *rank = null->rank;
    *ranks = null->ranks;
    return SY_OK;
}

static int group_new(void *context, const int *ranks, int n, void **group)
{
    (void)ranks, (void)n;
    *group = context;
    return SY_OK;
}

static void group_free(void *context, void *group)
{
    (void)context, (void)group;
}

static int start(void *context, void *group, const struct sy_collective *call, void **request)
{
    struct context *null = context;
    (void)group;
    null->collectives++;
    if (call->kind == SY_COLLECTIVE_ALL_REDUCE)
        null->sent += call->elements * (call->dtype == SY_F64 || call->dtype == SY_I64 ? 8 : 4);
    else
        null->sent += call->send_outer * call->send_inner;
    *request = null;
    return SY_OK;
}

static int wait(void *context, void *request)
{
    (void)context, (void)request;
    return SY_OK;
}

static int barrier(void *context)
{
    (void)context;
    return SY_OK;
}

static void stop(void *context, const char *text)
{
    const struct context *null = context;
    null->host->log(null->host->arg, SY_LOG_WARN, text);
}

static const struct sy_collective_table collectives = {
    .bytes = sizeof(collectives),
    .world = world,
    .group_new = group_new,
    .group_free = group_free,
    .start = start,
    .wait = wait,
    .barrier = barrier,
    .abort = stop,
};

/* ---- descriptor ---- */

static int probe(const struct sy_host *host, int *score, char *text, size_t text_bytes)
{
    (void)host;
    *score = 1;
    snprintf(text, text_bytes, "counts calls, computes nothing");
    return SY_OK;
}

/* rank=R and ranks=N make it rank R of N. */
static int read_options(struct context *null, const struct sy_backend_option *options)
{
    char line[256];
    for (; options->key; options++) {
        int *number = strcmp(options->key, "rank") == 0    ? &null->rank
                      : strcmp(options->key, "ranks") == 0 ? &null->ranks
                                                           : NULL;
        char *end = NULL;
        long value = number ? strtol(options->value, &end, 10) : 0;
        if (!number || end == options->value || *end || value < 0 || value > 1 << 24) {
            snprintf(line, sizeof(line), "option %.80s = \"%.80s\": there are rank and ranks, whole numbers",
                     options->key, options->value);
            null->host->error(null->host->arg, line);
            return SY_EINVAL;
        }
        *number = (int)value;
    }
    if (null->rank < null->ranks) return SY_OK;
    snprintf(line, sizeof(line), "rank %d of %d: rank must be below ranks", null->rank, null->ranks);
    null->host->error(null->host->arg, line);
    return SY_EINVAL;
}

static int open(const struct sy_host *host, const struct sy_backend_option *options, void **context,
                uint32_t *features, char *description, size_t description_bytes)
{
    struct context *null = calloc(1, sizeof(*null));
    if (!null) return SY_ENOMEM;
    null->host = host;
    null->ranks = 1;
    int status = read_options(null, options);
    if (status != SY_OK) {
        free(null);
        return status;
    }
    *context = null;
    *features = 0;
    snprintf(description, description_bytes, "rank %d of %d, computes nothing", null->rank, null->ranks);
    return SY_OK;
}

/* One line: totals, then the ops that were called. */
static void log_counts(const struct context *null)
{
    char line[960]; /* more ops than fit are left out of the line, not of the total */
    uint64_t total = 0;
    for (int op = 0; op < SY_OP_COUNT; op++) total += null->calls[op];
    int used = snprintf(line, sizeof(line),
                        "%llu kernel calls, %llu collectives (%llu bytes sent):", (unsigned long long)total,
                        (unsigned long long)null->collectives, (unsigned long long)null->sent);
    for (int op = 0; op < SY_OP_COUNT && (size_t)used < sizeof(line); op++)
        if (null->calls[op])
            used += snprintf(line + used, sizeof(line) - (size_t)used, " %s %llu", op_names[op],
                             (unsigned long long)null->calls[op]);
    null->host->log(null->host->arg, SY_LOG_INFO, line);
}

static void close(void *context)
{
    log_counts(context);
    free(context);
}

SY_API extern const struct sy_backend_desc sy_backend_null;
const struct sy_backend_desc sy_backend_null = {
    SY_BACKEND_HEAD(12),
    .caps = SY_CAP_KERNELS | SY_CAP_COLLECTIVES,
    .name = "null",
    .version = PACKAGE_VERSION,
    .build = "needs nothing",
    .probe = probe,
    .open = open,
    .close = close,
    .kernels = kernels,
    .n_kernels = sizeof(kernels) / sizeof(kernels[0]),
    .collectives = &collectives,
};
