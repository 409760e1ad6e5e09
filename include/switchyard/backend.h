/* SPDX-License-Identifier: Apache-2.0 */
/* The plugin ABI between the host (libswitchyard) and a backend (switchyard-NAME.so). Compiles as C11 and as
 * C++.
 *
 * A plugin exports exactly one data symbol, `const struct sy_backend_desc sy_backend_NAME`. In C++ it is none unless it was
 * declared before as `extern "C" const struct sy_backend_desc sy_backend_NAME;`. The host reads
 * magic, versions and layout before any plugin code runs, copies the tables into its own and fills holes with
 * functions that return SY_EUNSUPPORTED. A backend sees calls, never programs. Tables begin with their own
 * size and grow only at the end. Major version 0 is free to change; tests/unit/test_abi_layout.c fails when a
 * structure changes without a bump. */
#ifndef SWITCHYARD_BACKEND_H
#define SWITCHYARD_BACKEND_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SY_ABI_MAGIC 0x53595244u /* "SYRD" */
#define SY_ABI_MAJOR 0
#define SY_ABI_MINOR 15
/* The oldest plugins that a host takes: before, glu had gate and linear in one operand always. */
#define SY_ABI_OLDEST_MINOR 13

#define SY_MAX_DIMS 5
#define SY_MAX_IN   16 /* inputs of one op */
#define SY_MAX_OUT  8  /* outputs of one op */

enum sy_dtype { SY_F32, SY_BF16, SY_F64, SY_I32, SY_I64, SY_I8, SY_DTYPE_COUNT };

/* One operand of a call: dense, row-major, no strides. An optional input that is absent has data NULL and
 * rank 0. */
struct sy_tensor {
    void *data;                 /* aligned to 64 bytes */
    int64_t dim[SY_MAX_DIMS];   /* local extents; unused ones are 1 */
    int64_t first[SY_MAX_DIMS]; /* global index of the first local element along each dim */
    uint8_t dtype;              /* enum sy_dtype */
    uint8_t rank;
    uint8_t reserved[6];
};

struct sy_host;

/* One op with its operands bound; everything in it is borrowed from the host and lives as long as the
 * program. */
struct sy_call {
    const struct sy_host *host;
    const struct sy_tensor *in;  /* [n_in] */
    const struct sy_tensor *out; /* [n_out]; may be the memory of an input where ops.def says in-place */
    const void *attr;            /* struct sy_attr_OP of switchyard/ops.h */
    void *plan;                  /* what prepare made, else NULL */
    void *workspace;             /* scratch planned by the host, aligned to 64 bytes; contents undefined */
    uint64_t workspace_bytes;
    uint32_t attr_bytes;
    uint16_t op; /* enum sy_op */
    uint8_t n_in, n_out;
};

/* Services of the host, given to a plugin at open, so a plugin never links back. */
struct sy_host {
    uint64_t bytes; /* size of this table */
    void *arg;      /* passed back as first argument */
    int threads;    /* workers of parallel_for, 1 or more */
    int reserved;
    void (*log)(void *arg, int level, const char *line);
    void (*error)(void *arg, const char *line); /* says why the running function is about to fail */
    /* Runs fn(fn_arg, task, thread) for task 0..n-1: tasks are cut into `threads` contiguous static ranges,
     * thread is 0..threads-1. Returns when all are done. Never nested. */
    void (*parallel_for)(void *arg, int64_t n, void (*fn)(void *fn_arg, int64_t task, int thread),
                         void *fn_arg);
    /* Memory for what open and prepare keep, aligned to 64 bytes, so that it comes from the allocator of the
     * program that the host is part of; from any thread. NULL: there is no more. */
    void *(*take)(void *arg, uint64_t bytes);
    void (*give_back)(void *arg, void *memory); /* of take, or NULL */
};

typedef int (*sy_kernel_fn)(void *context, const struct sy_call *call); /* returns enum sy_status */

/* A kernel for one op. The host takes the first of the list whose op and dtypes fit and whose requirement the
 * opened context has: list the fast before the plain. */
struct sy_kernel {
    uint16_t op;       /* enum sy_op */
    uint8_t in_dtype;  /* of the inputs ops.def marks f (of an op without marks, as map and pack: bf16
                          if any floating-point input is); others are as stated there */
    uint8_t out_dtype; /* of the outputs, in the same way */
    uint32_t needs;    /* feature bits of the context, 0: none */
    const char *name;  /* for explain and logs, e.g. "avx512" */
    uint64_t (*workspace)(const struct sy_call *call, int threads); /* bytes, or NULL: none */
    /* At bind, or NULL: the operands have memory but no values yet. *plan is NULL on entry. */
    int (*prepare)(void *context, const struct sy_call *call, void **plan);
    void (*release)(void *context, void *plan); /* pairs with prepare, or NULL */
    sy_kernel_fn run;
};

/* Device memory, and the one stream of work on it that a context has; a host-memory backend leaves the table
 * NULL. With it operands and workspaces of all kernels are device memory, which the host never touches.
 *
 * Kernels (run), copy_async, zero, copy_rows and replay are queued: they may return before they are done, and
 * are done one after the other in the order of their calls. `copy` and `sync` return when all that was queued
 * before is done, and may return the failure of any of it.
 *
 * Calls of a context come from one thread at a time, not always the same. A run of a program begins with copy_async, or with
 * sync if it has no inputs: a backend whose library goes by the calling thread sets its device there, and in alloc, free,
 * copy and memory_info, which are called outside of runs.
 *
 * The run of a kernel reads no host memory but the call, its attributes and its plan, which stay as they were
 * at bind: what changes from step to step (batch, step number, learning rate, position) is in operands. So a
 * kernel queues the same work each time, and that can be captured once and replayed. */
struct sy_device_table {
    uint64_t bytes; /* size of this table */
    /* Aligned to 64 bytes, contents undefined; SY_ENOMEM where the device has no room. */
    int (*alloc)(void *context, uint64_t bytes, void **memory);
    void (*free)(void *context, void *memory); /* nothing that uses it is queued any more */
    /* Between host and device or within the device, complete on return. */
    int (*copy)(void *context, void *to, const void *from, uint64_t bytes);
    int (*sync)(void *context); /* complete on return */
    int (*memory_info)(void *context, uint64_t *free_bytes, uint64_t *total_bytes);
    /* As copy, but queued: host memory stays as it is, or is not read, until the next sync. NULL: copy
     * is called. */
    int (*copy_async)(void *context, void *to, const void *from, uint64_t bytes);
    /* Needed by sessions; queued. */
    int (*zero)(void *context, void *memory, uint64_t bytes);
    /* Needed by sessions; queued. Within the device: `rows` rows of `row` bytes each, which begin
     * every so many bytes. Strides are at least `row`; the two places do not overlap. */
    int (*copy_rows)(void *context, void *to, uint64_t to_stride, const void *from, uint64_t from_stride,
                     uint64_t row, uint64_t rows);
    /* All four or none. Between capture_begin and capture_end kernels and copy_rows are called as
     * ever, but recorded and not done; nothing else is called. replay queues what a graph recorded, with the
     * same memory. capture_end is called in every case, also after a kernel that failed; without success
     * *graph is not used. */
    int (*capture_begin)(void *context);
    int (*capture_end)(void *context, void **graph);
    int (*replay)(void *context, void *graph);
    void (*graph_free)(void *context, void *graph);
};

enum sy_collective_kind { SY_COLLECTIVE_ALL_GATHER, SY_COLLECTIVE_ALL_TO_ALL, SY_COLLECTIVE_ALL_REDUCE };

/* A collective over one group of ranks. The buffer of a rank is cut into `n` pieces (n: ranks of the group).
 * all_gather: every rank sends its whole `send` (one piece) and receives n pieces. all_to_all: piece j of
 * send goes to rank j. A piece is `outer` runs of `inner` bytes; run o of piece j starts at (o * n + j) *
 * inner. Sender and receiver may cut the same bytes differently (another dimension), so both sides have their
 * own outer and inner. all_reduce (reproducible = false only) sums `elements` of `dtype` in any order. */
struct sy_collective {
    const void *send;
    void *recv;
    uint64_t send_outer, send_inner; /* all_gather: 1, bytes of the piece */
    uint64_t recv_outer, recv_inner;
    uint64_t elements; /* all_reduce only */
    uint8_t kind;      /* enum sy_collective_kind */
    uint8_t dtype;
    uint8_t reserved[6];
};

struct sy_collective_table {
    uint64_t bytes; /* size of this table */
    int (*world)(void *context, int *rank, int *ranks);
    /* A group of ranks of the world, in the order given; called by every member with the same list. */
    int (*group_new)(void *context, const int *ranks, int n, void **group);
    void (*group_free)(void *context, void *group);
    /* start posts and returns, wait completes; between them neither buffer may be touched. At most one
     * collective of a group is under way. All members call in the same order. `call` stays valid until wait
     * returns. */
    int (*start)(void *context, void *group, const struct sy_collective *call, void **request);
    int (*wait)(void *context, void *request);
    int (*barrier)(void *context);
    /* Tells all ranks to stop with this text; makes their pending and later waits fail. */
    void (*abort)(void *context, const char *text);
    /* All ranks meet, also after abort, and learn the same: *status and text are SY_OK where every
     * rank brought SY_OK, else those of the lowest rank that failed of itself and was not stopped by another.
     * After a failure nothing is started any more. SY_EBACKEND: not all ranks came within the time limit. */
    int (*conclude)(void *context, int *status, char *text, size_t text_bytes);
};

/* Collectives on device memory, since 0.11: queued on the device, between the kernels, without a copy to the host. Of
 * backends with a device table; NULL in the descriptor: the host copies what is sent to its own memory, and the
 * communication of the run moves it. That communication also shares the ids here, and joins ranks for all else. */
#define SY_LINK_ID_BYTES 128
struct sy_link_table {
    uint64_t bytes; /* size of this table */
    /* 1: the options of open asked for links, and the library that makes them is there. */
    int (*linked)(void *context);
    /* Made by one rank of a group to be, and handed to all of them. id[SY_LINK_ID_BYTES] */
    int (*id_new)(void *context, void *id);
    /* Called by all n members, who wait for each other in it; `rank` is the place in the group. */
    int (*group_new)(void *context, const void *id, int rank, int n, void **group);
    void (*group_free)(void *context, void *group);
    /* start queues a collective behind what was queued before it, and wait puts what is queued later behind the
     * collective; neither waits. Buffers are device memory, and pieces are whole: outer is 1 on both sides. At most one
     * collective of a group is under way, and members of all groups start theirs in one order. Both may be captured. */
    int (*start)(void *context, void *group, const struct sy_collective *call);
    int (*wait)(void *context, void *group);
};

enum sy_backend_caps { SY_CAP_KERNELS = 1, SY_CAP_COLLECTIVES = 2, SY_CAP_DEVICE = 4 };

/* Text pairs; the list ends with key NULL; an unknown key is an error of open. A backend with a device table is
 * given one of two: `device`, the index of the device that the user chose, or `local_rank`, the
 * number of this rank among those on its host, by which ranks take turns among the devices there. */
struct sy_backend_option {
    const char *key, *value;
};

struct sy_backend_desc {
    uint32_t magic;                      /* SY_ABI_MAGIC */
    uint16_t abi_major, abi_minor;       /* built against */
    uint16_t min_host_minor, reserved16; /* oldest host minor it can live with */
    uint32_t desc_bytes;                 /* sizeof(struct sy_backend_desc) at build time */
    uint32_t layout;                     /* SY_ABI_LAYOUT at build time */
    uint32_t caps;                       /* enum sy_backend_caps */
    const char *name;                    /* equals the NAME of the file */
    const char *version;                 /* of the plugin */
    const char *build;                   /* compiler and libraries, for logs */
    /* Whether it could work here, without side effects: score 0 no (text says why), higher is better. */
    int (*probe)(const struct sy_host *host, int *score, char *text, size_t text_bytes);
    /* features: bits that kernels' `needs` refer to. description: variant and device in a few words. */
    int (*open)(const struct sy_host *host, const struct sy_backend_option *options, void **context,
                uint32_t *features, char *description, size_t description_bytes);
    void (*close)(void *context);
    const struct sy_device_table *device;
    const struct sy_kernel *kernels;
    uint64_t n_kernels;
    const struct sy_collective_table *collectives;
    const struct sy_link_table *links; /* since 0.11; used with SY_CAP_DEVICE */
    /* Since 0.12. Feature bits; with any of them the context has programs of gradients read weights in panels too: its products
     * gain more by it than laying all weights out in every step takes. 0: never. */
    uint64_t panels_in_training;
};

/* Sizes of the shared structures in one number: differs when host and plugin were built from different
 * headers. */
#define SY_ABI_LAYOUT                                                                                        \
    ((uint32_t)(sizeof(struct sy_tensor) + 256u * sizeof(struct sy_call) +                                   \
                65536u * sizeof(struct sy_kernel) + 4194304u * sizeof(struct sy_collective) +                \
                16777216u * sizeof(void *) + SY_MAX_DIMS))

/* In C: the first fields of a descriptor, of what was there when it was compiled. oldest: min_host_minor. */
#define SY_BACKEND_HEAD(oldest)                                                                              \
    .magic = SY_ABI_MAGIC, .abi_major = SY_ABI_MAJOR, .abi_minor = SY_ABI_MINOR, .min_host_minor = (oldest), \
    .desc_bytes = sizeof(struct sy_backend_desc), .layout = SY_ABI_LAYOUT

#ifdef __cplusplus
}
#endif
#endif
