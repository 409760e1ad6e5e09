/* SPDX-License-Identifier: Apache-2.0 */
/* A backend whose memory is far: the reference kernels over memory that nobody else may touch. It is not accessible
 * but while this plugin works, so a host that reads or writes it crashes; and all that may be queued is done at the
 * next sync or copy, so a host that does not wait finds old numbers. Float32 only.
 *
 * SY_FAR_BYTES: the memory of a context. SY_FAR_GRAPHS=0: no graphs. SY_FAR_FAULT: "run 3", "sync 3", "copy 3" (that is
 * queued), "move 3" (that is not), "capture 3" or "alloc 3": the third such call fails; "nothing 1" gives no memory and says that it did. SY_FAR_REPORT: a file for what was replayed and what the host
 * has not given back when the process ends. */
#include "config.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>

#include "backends/cpu/cpu.h"

enum { DEVICES = 4, MOST_BLOCKS = 64 };

/* Work that is queued or captured. A kernel has run and call; else rows of bytes are copied, or zeroed (no from). */
struct item {
    sy_kernel_fn run;
    const struct sy_call *call;
    uint8_t *to;
    const uint8_t *from;
    uint64_t to_stride, from_stride, row, rows;
};

struct list {
    struct item *item;
    size_t n, capacity;
};

/* One piece of memory. All contexts share what they take: a model's weights are lent to others. */
static struct block {
    void *memory;   /* NULL: free */
    uint64_t bytes; /* whole pages */
    void *context;
} block[MOST_BLOCKS];
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* of block and at_work */
static int at_work;                                       /* contexts that may touch the memory now */

struct far {
    const struct sy_host *host;
    struct list queue;
    struct list *capturing; /* NULL: what comes is queued */
    uint64_t left;          /* bytes */
};

static atomic_long contexts, blocks, graphs; /* that are not given back */
static atomic_long replays, replayed;        /* graphs, and items of them */

static int fails(const struct far *far, const char *kind)
{
    static atomic_long calls;
    const char *text = getenv("SY_FAR_FAULT");
    char line[80];
    size_t length = strlen(kind);
    if (!text || strncmp(text, kind, length) != 0) return 0;
    if (atomic_fetch_add(&calls, 1) + 1 != atol(text + length)) return 0;
    snprintf(line, sizeof line, "the far device does not answer (%s)", kind);
    far->host->error(far->host->arg, line);
    return 1;
}

/* ---- the queue ---- */

static int append(struct list *list, const struct item *item)
{
    if (list->n == list->capacity) {
        size_t capacity = list->capacity ? 2 * list->capacity : 256;
        struct item *grown = realloc(list->item, capacity * sizeof *grown);
        if (!grown) return SY_ENOMEM;
        list->item = grown;
        list->capacity = capacity;
    }
    list->item[list->n++] = *item;
    return SY_OK;
}

static int put(struct far *far, const struct item *item)
{
    return append(far->capturing ? far->capturing : &far->queue, item);
}

/* Called with the mutex. */
static void protect(int protection)
{
    for (int i = 0; i < MOST_BLOCKS; i++)
        if (block[i].memory && mprotect(block[i].memory, block[i].bytes, protection)) abort();
}

static void begin_work(void)
{
    pthread_mutex_lock(&mutex);
    if (!at_work++) protect(PROT_READ | PROT_WRITE);
    pthread_mutex_unlock(&mutex);
}

static void end_work(void)
{
    pthread_mutex_lock(&mutex);
    if (!--at_work) protect(PROT_NONE);
    pthread_mutex_unlock(&mutex);
}

static int do_item(const struct item *item)
{
    if (item->run) return item->run(NULL, item->call);
    for (uint64_t i = 0; i < item->rows; i++) {
        uint8_t *to = item->to + i * item->to_stride;
        if (item->from)
            memcpy(to, item->from + i * item->from_stride, item->row);
        else
            memset(to, 0, item->row);
    }
    return SY_OK;
}

static int far_sync(void *context)
{
    struct far *far = context;
    int status = fails(far, "sync") ? SY_EIO : SY_OK;
    if (far->capturing) abort(); /* not allowed there */
    begin_work();
    for (size_t i = 0; i < far->queue.n && !status; i++) status = do_item(&far->queue.item[i]);
    end_work();
    far->queue.n = 0;
    return status;
}

/* ---- the device table ---- */

static int far_alloc(void *context, uint64_t bytes, void **memory)
{
    struct far *far = context;
    uint64_t whole = (bytes + 4095) / 4096 * 4096;
    int i = 0;
    if (fails(far, "alloc") || whole > far->left) return SY_ENOMEM;
    if (fails(far, "nothing")) return SY_OK;
    void *taken = mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (taken == MAP_FAILED) return SY_ENOMEM;
    memset(taken, 0xa5, whole);
    pthread_mutex_lock(&mutex);
    while (block[i].memory) i++;
    block[i] = (struct block){taken, whole, context};
    if (!at_work) mprotect(taken, whole, PROT_NONE);
    pthread_mutex_unlock(&mutex);
    far->left -= whole;
    atomic_fetch_add(&blocks, 1);
    *memory = taken;
    return SY_OK;
}

static void far_free(void *context, void *memory)
{
    struct far *far = context;
    int i = 0;
    pthread_mutex_lock(&mutex);
    while (block[i].memory != memory) i++;
    if (block[i].context != context || far->queue.n) abort();
    munmap(memory, block[i].bytes);
    far->left += block[i].bytes;
    block[i].memory = NULL;
    pthread_mutex_unlock(&mutex);
    atomic_fetch_sub(&blocks, 1);
}

static int copy_rows(void *context, void *to, uint64_t to_stride, const void *from, uint64_t from_stride,
                     uint64_t row, uint64_t rows)
{
    const struct item item = {
        .to = to, .from = from, .to_stride = to_stride, .from_stride = from_stride, .row = row, .rows = rows};
    return put(context, &item);
}

static int copy_async(void *context, void *to, const void *from, uint64_t bytes)
{
    if (fails(context, "copy")) return SY_EIO;
    if (((struct far *)context)->capturing) abort(); /* not allowed there */
    return copy_rows(context, to, bytes, from, bytes, bytes, 1);
}

static int zero(void *context, void *memory, uint64_t bytes)
{
    return copy_rows(context, memory, bytes, NULL, bytes, bytes, 1);
}

static int copy(void *context, void *to, const void *from, uint64_t bytes)
{
    const struct item item = {.to = to, .from = from, .row = bytes, .rows = 1};
    int status = fails(context, "move") ? SY_EIO : put(context, &item);
    return status ? status : far_sync(context);
}

static uint64_t room(void)
{
    const char *text = getenv("SY_FAR_BYTES");
    return text ? strtoull(text, NULL, 10) : 1 << 28;
}

static int memory_info(void *context, uint64_t *free_bytes, uint64_t *total_bytes)
{
    const struct far *far = context;
    *free_bytes = far->left;
    *total_bytes = room();
    return SY_OK;
}

static int capture_begin(void *context)
{
    struct far *far = context;
    if (fails(far, "capture")) return SY_EIO;
    far->capturing = calloc(1, sizeof *far->capturing);
    return far->capturing ? SY_OK : SY_ENOMEM;
}

static int capture_end(void *context, void **graph)
{
    struct far *far = context;
    *graph = far->capturing;
    far->capturing = NULL;
    atomic_fetch_add(&graphs, 1);
    return SY_OK;
}

static int replay(void *context, void *graph)
{
    struct far *far = context;
    const struct list *list = graph;
    int status = SY_OK;
    for (size_t i = 0; i < list->n && !status; i++) status = append(&far->queue, &list->item[i]);
    atomic_fetch_add(&replays, 1);
    atomic_fetch_add(&replayed, (long)list->n);
    return status;
}

static void graph_free(void *context, void *graph)
{
    struct list *list = graph;
    (void)context;
    free(list->item);
    free(list);
    atomic_fetch_sub(&graphs, 1);
}

static struct sy_device_table device = {.bytes = sizeof(device),
                                        .alloc = far_alloc,
                                        .free = far_free,
                                        .copy = copy,
                                        .sync = far_sync,
                                        .memory_info = memory_info,
                                        .copy_async = copy_async,
                                        .zero = zero,
                                        .copy_rows = copy_rows,
                                        .capture_begin = capture_begin,
                                        .capture_end = capture_end,
                                        .replay = replay,
                                        .graph_free = graph_free};

/* ---- kernels ---- */

static int queue_kernel(void *context, const struct sy_call *call, sy_kernel_fn run)
{
    const struct item item = {.run = run, .call = call};
    return fails(context, "run") ? SY_EIO : put(context, &item);
}

#define SY_HOST_OP(...)
#define SY_OP(id, NAME, name, ...)                                                                           \
    static int far_##name(void *context, const struct sy_call *call)                                         \
    {                                                                                                        \
        return queue_kernel(context, call, sycpu_ref_##name);                                                \
    }
#include "switchyard/ops.def"
#undef SY_OP

/* clang-format off */
#define SY_HOST_OP(...)
#define SY_OP(id, NAME, name, ...)                                                                           \
    {SY_OP_##NAME, SY_F32, SY_F32, 0, "far", sycpu_ref_##name##_workspace, .run = far_##name},
static const struct sy_kernel kernels[] = {
#include "switchyard/ops.def"
};
/* clang-format on */

/* ---- descriptor ---- */

static int refuse(const struct sy_host *host, const char *key, const char *value)
{
    char line[160];
    snprintf(line, sizeof line, "%.40s = %.40s: there are devices 0 to %d, and local_rank", key, value,
             DEVICES - 1);
    host->error(host->arg, line);
    return SY_EINVAL;
}

static int open_far(const struct sy_host *host, const struct sy_backend_option *options, void **context,
                    uint32_t *features, char *description, size_t description_bytes)
{
    int number = 0;
    for (; options->key; options++) {
        int is_device = !strcmp(options->key, "device"), value = atoi(options->value);
        if ((!is_device && strcmp(options->key, "local_rank")) || (is_device && value >= DEVICES))
            return refuse(host, options->key, options->value);
        number = value % DEVICES;
    }
    struct far *far = calloc(1, sizeof *far);
    if (!far) return SY_ENOMEM;
    far->host = host;
    far->left = room();
    *context = far;
    *features = 0;
    snprintf(description, description_bytes, "device %d of %d", number, DEVICES);
    atomic_fetch_add(&contexts, 1);
    return SY_OK;
}

static void close_far(void *context)
{
    struct far *far = context;
    free(far->queue.item);
    free(far);
    atomic_fetch_sub(&contexts, 1);
}

SY_API extern const struct sy_backend_desc sy_backend_far;
const struct sy_backend_desc sy_backend_far = {
    SY_BACKEND_HEAD(12), .caps = SY_CAP_KERNELS | SY_CAP_DEVICE,
    .name = "far",       .version = "1",
    .build = "tests",    .open = open_far,
    .close = close_far,  .device = &device,
    .kernels = kernels,  .n_kernels = sizeof(kernels) / sizeof(kernels[0])};

__attribute__((constructor)) static void choose_graphs(void)
{
    const char *text = getenv("SY_FAR_GRAPHS");
    if (text && !strcmp(text, "0")) device.capture_begin = NULL;
}

__attribute__((destructor)) static void tell(void)
{
    const char *path = getenv("SY_FAR_REPORT");
    FILE *file = path ? fopen(path, "w") : NULL;
    if (!file) return;
    fprintf(file, "left %ld contexts %ld blocks %ld graphs\nreplays %ld of %ld\n", atomic_load(&contexts),
            atomic_load(&blocks), atomic_load(&graphs), atomic_load(&replays), atomic_load(&replayed));
    fclose(file);
}
