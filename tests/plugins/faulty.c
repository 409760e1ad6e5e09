/* SPDX-License-Identifier: Apache-2.0 */
/* A backend that works until it fails: the kernels of the CPU backend, whose library SY_FAULT_CPU names, but the
 * one for `embed` counts its calls. SY_FAULT is open, prepare or run, and "prepare 3" the third time that it is
 * called; "update 2" is the second `map` that writes a weight with its optimizer's state; "poison 125" is no failure: what is embedded together with that id is not a number. "less" is none either: the ops that
 * a backend may do without are left out. Without it nothing fails. What the host has not given back when the process ends, contexts
 * and plans, is written into the file SY_FAULT_LEFT. */
#include <dlfcn.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "switchyard/ops.h"
#include "switchyard/switchyard.h"

enum { MOST_KERNELS = 2048 };

static const struct sy_backend_desc *cpu;
static struct sy_kernel kernels[MOST_KERNELS];
static sy_kernel_fn embed, map; /* of the CPU backend */
static atomic_long contexts, plans;
static const struct sy_host *_Atomic any_host; /* ranks that are threads open it side by side */

/* Counts the calls of one kind, and is 1 for the one that SY_FAULT names. */
static int fails(const char *kind)
{
    static atomic_long calls;
    const char *text = getenv("SY_FAULT");
    size_t length = strlen(kind);
    if (!text || strncmp(text, kind, length) != 0) return 0;
    long which = text[length] ? atol(text + length) : 1;
    return atomic_fetch_add(&calls, 1) + 1 == which;
}

/* Whether the id of "poison ID" is among those of the call. */
static int is_poisoned(const struct sy_call *call)
{
    const char *text = getenv("SY_FAULT");
    const struct sy_tensor *ids = &call->in[0];
    const int32_t *id = ids->data;
    int64_t n = 1;
    if (!text || strncmp(text, "poison ", 7) != 0) return 0;
    for (int i = 0; i < ids->rank; i++) n *= ids->dim[i];
    for (int64_t i = 0; i < n; i++)
        if (id[i] == atol(text + 7)) return 1;
    return 0;
}

static int run(void *context, const struct sy_call *call)
{
    if (!fails("run")) {
        int status = embed(context, call);
        if (!status && is_poisoned(call)) *(float *)call->out[0].data = NAN;
        return status;
    }
    call->host->error(call->host->arg, "the device fell off the bus");
    return SY_EIO;
}

static int run_map(void *context, const struct sy_call *call)
{
    int moves_weight = call->n_out > 2 && call->out[0].dim[0] > 1;
    if (!moves_weight || !fails("update")) return map(context, call);
    call->host->error(call->host->arg, "the device fell off the bus");
    return SY_EIO;
}

static int prepare(void *context, const struct sy_call *call, void **plan)
{
    (void)context;
    if (fails("prepare")) {
        call->host->error(call->host->arg, "no room for tables");
        return SY_ENOMEM;
    }
    *plan = malloc(1);
    if (!*plan) return SY_ENOMEM;
    atomic_fetch_add(&plans, 1);
    return SY_OK;
}

static void release(void *context, void *plan)
{
    (void)context;
    free(plan);
    atomic_fetch_sub(&plans, 1);
}

static int open_cpu(const struct sy_host *host, const struct sy_backend_option *options, void **context,
                    uint32_t *features, char *description, size_t description_bytes)
{
    any_host = host;
    if (fails("open")) {
        host->error(host->arg, "no device answers");
        return SY_EBACKEND;
    }
    int status = cpu->open(host, options, context, features, description, description_bytes);
    if (status == SY_OK) atomic_fetch_add(&contexts, 1);
    return status;
}

static void close_cpu(void *context)
{
    cpu->close(context);
    atomic_fetch_sub(&contexts, 1);
}

SY_API extern struct sy_backend_desc sy_backend_faulty;
struct sy_backend_desc sy_backend_faulty = {SY_BACKEND_HEAD(SY_ABI_OLDEST_MINOR),
                                            .caps = SY_CAP_KERNELS,
                                            .name = "faulty",
                                            .version = "1",
                                            .build = "tests",
                                            .open = open_cpu,
                                            .close = close_cpu,
                                            .kernels = kernels};

/* Whether "less" leaves it out. */
static int is_left_out(const struct sy_kernel *kernel)
{
    const char *text = getenv("SY_FAULT");
    if (!text || strcmp(text, "less") != 0) return 0;
    return kernel->op == SY_OP_MAP_SUMS || kernel->op == SY_OP_ADD_RMS_NORM;
}

/* The plain kernels for `embed` and `map` become ours, faster ones are left out. */
__attribute__((constructor)) static void take_kernels(void)
{
    const char *path = getenv("SY_FAULT_CPU");
    void *library = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    cpu = library ? dlsym(library, "sy_backend_cpu") : NULL;
    for (uint64_t i = 0; cpu && i < cpu->n_kernels && sy_backend_faulty.n_kernels < MOST_KERNELS; i++) {
        struct sy_kernel kernel = cpu->kernels[i];
        int ours = (kernel.op == SY_OP_EMBED || kernel.op == SY_OP_MAP) && kernel.in_dtype == SY_F32 &&
                   kernel.out_dtype == SY_F32;
        if ((ours && kernel.needs) || is_left_out(&kernel)) continue;
        if (ours && kernel.op == SY_OP_MAP) {
            map = kernel.run;
            kernel.run = run_map;
        } else if (ours) {
            embed = kernel.run;
            kernel.run = run;
            kernel.prepare = prepare;
            kernel.release = release;
        }
        kernels[sy_backend_faulty.n_kernels++] = kernel;
    }
}

__attribute__((destructor)) static void tell(void)
{
    const char *path = getenv("SY_FAULT_LEFT");
    FILE *file = path && any_host ? fopen(path, "w") : NULL;
    if (!file) return;
    fprintf(file, "%ld contexts, %ld plans\n", atomic_load(&contexts), atomic_load(&plans));
    fclose(file);
}
