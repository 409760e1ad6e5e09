/* SPDX-License-Identifier: Apache-2.0 */
/* Opening backends, the host's services to them, and choosing kernels. */
#include "config.h"

#include <string.h>

#include "passes/passes.h"
#include "program/program.h"
#include "runtime/backend.h"

/* ---- services of the host ---- */

static void host_log(void *arg, int level, const char *line)
{
    const struct syi_backend *backend = arg;
    if (level < SY_LOG_DEBUG) level = SY_LOG_DEBUG;
    if (level > SY_LOG_WARN) level = SY_LOG_WARN;
    syi_log((enum sy_log_level)level, "backend %s: %s", backend->plugin.desc.name, line ? line : "");
}

/* The first words stay until they are reported: a kernel that fails in several threads names the cause, not
 * the echo. */
static void host_error(void *arg, const char *line)
{
    struct syi_backend *backend = arg;
    pthread_mutex_lock(&backend->mutex);
    if (!backend->reason[0]) snprintf(backend->reason, sizeof(backend->reason), "%s", line ? line : "");
    pthread_mutex_unlock(&backend->mutex);
}

static void host_parallel_for(void *arg, int64_t n, void (*fn)(void *fn_arg, int64_t task, int thread),
                              void *fn_arg)
{
    const struct syi_backend *backend = arg;
    syi_threads_for(backend->threads, n, fn, fn_arg);
}

static void *host_take(void *arg, uint64_t bytes)
{
    (void)arg;
    return bytes > SIZE_MAX ? NULL : syi_alloc((size_t)bytes, NULL);
}

static void host_give_back(void *arg, void *memory)
{
    (void)arg;
    syi_free(memory);
}

static int backend_new(struct syi_threads *threads, struct syi_backend **out, struct sy_error *err)
{
    struct syi_backend *backend = syi_alloc(sizeof(*backend), err);
    if (!backend) return SY_ENOMEM;
    pthread_mutex_init(&backend->mutex, NULL);
    backend->threads = threads;
    backend->host = (struct sy_host){
        .bytes = sizeof(struct sy_host),
        .arg = backend,
        .threads = syi_threads_count(threads),
        .log = host_log,
        .error = host_error,
        .parallel_for = host_parallel_for,
        .take = host_take,
        .give_back = host_give_back,
    };
    *out = backend;
    return SY_OK;
}

static void backend_free(struct syi_backend *backend)
{
    syi_free(backend->link);
    syi_plugin_free(&backend->plugin);
    pthread_mutex_destroy(&backend->mutex);
    syi_free(backend);
}

/* ---- open and close ---- */

/* A plugin may return any number; only ours leave the host. */
static int known_status(int status)
{
    switch (status) {
#define STATUS_CASE(name, number, text) case number:
        SY_STATUS_MAP(STATUS_CASE)
#undef STATUS_CASE
        return status;
    }
    return SY_EBACKEND;
}

int syi_backend_error(struct syi_backend *backend, int status, const char *what, struct sy_error *err)
{
    char reason[sizeof(backend->reason)];
    status = known_status(status);
    pthread_mutex_lock(&backend->mutex);
    memcpy(reason, backend->reason, sizeof(reason));
    backend->reason[0] = '\0';
    pthread_mutex_unlock(&backend->mutex);
    return syi_error(err, status, "backend %s: %s: %s", backend->plugin.desc.name, what,
                     reason[0] ? reason : sy_status_text(status));
}

/* The plugin is loaded: calls its open. */
static int comm_fail(const struct syi_comm *comm, int status, const char *what, struct sy_error *err)
{
    return syi_backend_error(comm->owner, status, what, err);
}

int syi_backend_comm(struct syi_backend *backend, struct syi_comm *comm, struct sy_error *err)
{
    *comm = (struct syi_comm){.table = backend->plugin.desc.collectives,
                              .context = backend->context,
                              .fail = comm_fail,
                              .owner = backend};
    if (!comm->table)
        return syi_error(err, SY_EUNSUPPORTED, "backend %s has no collectives: choose another --comm",
                         backend->plugin.desc.name);
    int status = comm->table->world(comm->context, &comm->rank, &comm->ranks);
    return status == SY_OK ? SY_OK : syi_backend_error(backend, status, "number of ranks", err);
}

static int open_context(struct syi_backend *backend, const struct sy_backend_option *options,
                        struct sy_error *err)
{
    static const struct sy_backend_option none[] = {{NULL, NULL}};
    int status =
        backend->plugin.desc.open(&backend->host, options ? options : none, &backend->context,
                                  &backend->features, backend->description, sizeof(backend->description));
    backend->description[sizeof(backend->description) - 1] = '\0';
    syi_keep_one_line(backend->description);
    return status == SY_OK ? SY_OK : syi_backend_error(backend, status, "cannot be opened", err);
}

static int open_any(const char *name, const struct sy_backend_desc *desc,
                    const struct sy_backend_option *options, struct syi_threads *threads,
                    struct syi_backend **out, struct sy_error *err)
{
    struct syi_backend *backend;
    int status = backend_new(threads, &backend, err);
    if (status != SY_OK) return status;
    status = desc ? syi_plugin_check(name, "built in", desc, &backend->plugin, err)
                  : syi_plugin_load(name, &backend->plugin, err);
    if (status == SY_OK) status = open_context(backend, options, err);
    if (status == SY_OK)
        *out = backend;
    else
        backend_free(backend);
    return status;
}

int syi_backend_open(const char *name, const struct sy_backend_option *options, struct syi_threads *threads,
                     struct syi_backend **backend, struct sy_error *err)
{
    return open_any(name, NULL, options, threads, backend, err);
}

int syi_backend_open_linked(const struct sy_backend_desc *desc, const struct sy_backend_option *options,
                            struct syi_threads *threads, struct syi_backend **backend, struct sy_error *err)
{
    return open_any(desc->name, desc, options, threads, backend, err);
}

void syi_backend_close(struct syi_backend *backend)
{
    if (!backend) return;
    for (size_t i = backend->n_links; i-- > 0;)
        backend->plugin.desc.links->group_free(backend->context, backend->link[i].handle);
    backend->plugin.desc.close(backend->context);
    backend_free(backend);
}

/* ---- kernels ---- */

const struct sy_kernel *syi_backend_find(const struct syi_backend *backend, enum sy_op op, int in_dtype,
                                         int out_dtype)
{
    const struct sy_backend_desc *desc = &backend->plugin.desc;
    for (uint64_t i = 0; i < desc->n_kernels; i++) {
        const struct sy_kernel *kernel = &desc->kernels[i];
        if (kernel->op == op && (in_dtype == SY_DTYPE_COUNT || kernel->in_dtype == in_dtype) &&
            (out_dtype == SY_DTYPE_COUNT || kernel->out_dtype == out_dtype) &&
            !(kernel->needs & ~backend->features))
            return kernel;
    }
    return NULL;
}

void syi_backend_choose_ops(const struct syi_backend *backend, struct syi_pass_options *options)
{
    options->map_sums = !backend || syi_backend_find(backend, SY_OP_MAP_SUMS, SY_F32, SY_F32);
    options->add_rms_norm = !backend || syi_backend_find(backend, SY_OP_ADD_RMS_NORM, SY_F32, SY_BF16);
    options->lay_out_both = !backend || syi_backend_find(backend, SY_OP_LAY_OUT_BOTH, SY_F32, SY_DTYPE_COUNT);
}

int syi_backend_has_panels(const struct syi_backend *backend)
{
    enum { KNOWN = 14 }; /* minor version since which products in panels have an activation */
    int has = backend->plugin.desc.abi_minor >= KNOWN &&
              syi_backend_find(backend, SY_OP_LAY_OUT, SY_F32, SY_DTYPE_COUNT) &&
              syi_backend_find(backend, SY_OP_LAY_OUT_NT, SY_F32, SY_DTYPE_COUNT);
    for (enum sy_op op = 0; has && op < SY_OP_COUNT; op++)
        if (syi_op_multiplies_panels(op))
            has = syi_backend_find(backend, op, SY_BF16, SY_F32) &&
                  syi_backend_find(backend, op, SY_BF16, SY_BF16);
    return has;
}

int syi_backend_has_panels_in_training(const struct syi_backend *backend)
{
    return (backend->plugin.desc.panels_in_training & backend->features) && syi_backend_has_panels(backend);
}

/* ---- list ---- */

struct list {
    void (*fn)(void *arg, const struct syi_backend_info *info);
    void *arg;
};

static void list_one(void *arg, const char *name, const char *path, const struct syi_plugin *plugin,
                     const char *why)
{
    struct list *list = arg;
    struct syi_backend_info info = {.name = name, .path = path, .refused = why};
    struct syi_backend *backend = NULL;
    struct sy_error failed = {0};
    char text[256] = "";

    if (plugin && backend_new(NULL, &backend, &failed) == SY_OK) {
        const struct sy_backend_desc *desc = &plugin->desc;
        info.version = desc->version;
        info.build = desc->build;
        info.abi_major = desc->abi_major;
        info.abi_minor = desc->abi_minor;
        info.caps = desc->caps;
        info.n_kernels = desc->n_kernels;
        info.text = text;
        backend->plugin.desc.name = desc->name; /* for lines it logs */
        int status = desc->probe(&backend->host, &info.score, text, sizeof(text));
        text[sizeof(text) - 1] = '\0';
        syi_keep_one_line(text);
        if (status != SY_OK) syi_backend_error(backend, status, "cannot be probed", &failed);
    }
    if (failed.code) info.refused = failed.text;
    list->fn(list->arg, &info);
    if (backend) backend_free(backend);
}

int syi_backend_list(void (*fn)(void *arg, const struct syi_backend_info *info), void *arg,
                     struct sy_error *err)
{
    struct list list = {.fn = fn, .arg = arg};
    return syi_plugin_each(list_one, &list, err);
}
