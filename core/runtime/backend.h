/* SPDX-License-Identifier: Apache-2.0 */
/* An opened backend: its tables, its context, and the services the host gives it. One instance a rank.
 * Finding and checking plugins: plugin.h. */
#ifndef SYI_BACKEND_H
#define SYI_BACKEND_H

#include <pthread.h>

#include "base/threads.h"
#include "comm/comm.h"
#include "runtime/plugin.h"
#include "switchyard/ops.h"

/* What joins the devices of a group of ranks. */
struct syi_link {
    uint64_t serial; /* of the group */
    void *handle;    /* of the plugin */
};

struct syi_backend {
    struct syi_plugin plugin;    /* desc and tables */
    void *context;               /* what open made */
    uint32_t features;           /* bits that kernels' needs refer to */
    char description[128];       /* variant and device, from open */
    struct sy_host host;         /* services; calls carry its address */
    struct syi_threads *threads; /* borrowed; NULL: one thread */
    struct syi_link *link;       /* [n_links] made so far, of groups of the communicator */
    size_t n_links, cap_links;
    pthread_mutex_t mutex; /* of reason: plugins may report from any thread */
    char reason[512];      /* what the plugin said through host.error since the last reported failure */
};

/* Opens backend `name`. options: ends with key NULL, or NULL. threads: borrowed, must outlive the backend. */
int syi_backend_open(const char *name, const struct sy_backend_option *options, struct syi_threads *threads,
                     struct syi_backend **backend, struct sy_error *err);
/* The same for a descriptor that is linked into the program (tests, embedding). */
int syi_backend_open_linked(const struct sy_backend_desc *desc, const struct sy_backend_option *options,
                            struct syi_threads *threads, struct syi_backend **backend, struct sy_error *err);
void syi_backend_close(struct syi_backend *backend); /* NULL is fine; the library stays loaded */

/* The first kernel of the list that computes op for these dtypes and needs nothing the context lacks; NULL:
 * none. SY_DTYPE_COUNT: the op has no floating-point operand on that side, any will do. */
const struct sy_kernel *syi_backend_find(const struct syi_backend *backend, enum sy_op op, int in_dtype,
                                         int out_dtype);

struct syi_pass_options;
/* Which ops the passes may make: those that it has kernels of; NULL: all. */
void syi_backend_choose_ops(const struct syi_backend *backend, struct syi_pass_options *options);
/* Whether it can lay weights out in panels and multiply with them: it has the kernels of all ops for that. */
int syi_backend_has_panels(const struct syi_backend *backend);
/* Whether, besides, it is for programs of gradients reading them, by the features of this context. */
int syi_backend_has_panels_in_training(const struct syi_backend *backend);

/* Turns the failed status of a plugin function into an error with the plugin's own words. `what` was being
 * done. */
int syi_backend_error(struct syi_backend *backend, int status, const char *what, struct sy_error *err);

/* The communication of this rank over the collectives of an opened backend, which must outlive comm. */
int syi_backend_comm(struct syi_backend *backend, struct syi_comm *comm, struct sy_error *err) SYI_MUST_CHECK;

/* What `switchyard backends` shows of one backend. Everything is borrowed for the call. */
struct syi_backend_info {
    const char *name, *path;
    const char *refused;         /* why it cannot be used, in one line; NULL: it can, and the rest is valid */
    const char *version, *build; /* of the plugin */
    int abi_major, abi_minor;    /* built against */
    uint32_t caps;               /* enum sy_backend_caps */
    uint64_t n_kernels;
    int score;        /* of probe; 0: it would not work here */
    const char *text; /* of probe */
};
int syi_backend_list(void (*fn)(void *arg, const struct syi_backend_info *info), void *arg,
                     struct sy_error *err);

#endif
