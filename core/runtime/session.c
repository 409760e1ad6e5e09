/* SPDX-License-Identifier: Apache-2.0 */
/* A session: one rank's programs, their memory and the tensors they share. Owns everything; binding of a
 * single program is in bind.c, running in exec.c. */
#include "config.h"

#include <stdlib.h>
#include <string.h>
#if defined(__linux__)
#    include <sys/mman.h>
#endif

#include "runtime/device.h"

/* Bytes; a chunk is what one task zeroes. */
enum { PAGE = 4096, HUGE_PAGE = 2 << 20, CHUNK = 1 << 20 };
/* Less memory than this is zeroed sooner than threads wake that have just been started. */
enum { FEW_BYTES = 16 << 20 };

int syi_session_new(const struct syi_session_options *options, struct syi_session **session,
                    struct sy_error *err)
{
    int ranks = syi_mesh_ranks(options->mesh);
    if (!options->comm && !options->plan_only)
        return syi_error(err, SY_EINVAL, "a session that runs needs a communicator");
    if (options->comm && options->comm->ranks != ranks)
        return syi_error(err, SY_EINVAL,
                         "the mesh has %d ranks, the communicator %d: change mesh.* or the number of ranks",
                         ranks, options->comm->ranks);
    struct syi_session *s = syi_alloc(sizeof *s, err);
    if (!s) return SY_ENOMEM;
    s->options = *options;
    s->mesh = *options->mesh;
    s->options.mesh = &s->mesh;
    s->rank = options->comm ? options->comm->rank : 0;
    s->device = options->backend->plugin.desc.device;
    s->links = syi_links_of(options->backend);
    memset(s->group, 0xff, sizeof s->group);
    *session = s;
    return SY_OK;
}

int syi_session_add(struct syi_session *session, struct syi_program *local, int *index, struct sy_error *err)
{
    int status = session->state == 0 ? SY_OK : SY_EINVAL;
    if (status) syi_error(err, status, "%s: programs are added before bind", local->title);
    if (!status) status = SYI_GROW(session->bound, session->cap_bound, session->n_bound + 1, err);
    if (status) {
        syi_program_free(local);
        return status;
    }
    *index = (int)session->n_bound;
    session->bound[session->n_bound++].program = local;
    return SY_OK;
}

void syi_session_free(struct syi_session *session)
{
    if (!session) return;
    if (session->device_arena)
        (void)syi_device_sync(session); /* a failed run leaves work that uses all of this */
    for (size_t i = 0; i < session->n_bound; i++) syi_bound_free(session, &session->bound[i]);
    syi_free(session->bound);
    syi_free(session->shared);
    syi_device_free(session);
    syi_look_free(session);
    syi_free(session->arena);
    syi_free(session);
}

/* ---- memory ---- */

static void zero_chunk(void *arg, int64_t task, int thread)
{
    struct syi_session *session = arg;
    uint64_t begin = (uint64_t)task * CHUNK, left = session->arena_bytes - begin;
    (void)thread;
    memset(session->arena + begin, 0, (size_t)(left < CHUNK ? left : CHUNK));
}

/* Rows of weights and activations are far apart: with small pages each would need a translation of its own.
 * Only whole huge pages, so that none is larger than what was planned; a refusal costs nothing but time. */
static void ask_huge_pages(void *memory, uint64_t bytes)
{
#if defined(__linux__) && defined(MADV_HUGEPAGE)
    if (bytes >= HUGE_PAGE) (void)madvise(memory, (size_t)(bytes / HUGE_PAGE * HUGE_PAGE), MADV_HUGEPAGE);
#else
    (void)memory, (void)bytes;
#endif
}

/* where: "" or " on the device". */
static int out_of_memory(const struct syi_session *session, const char *where, uint64_t total,
                         const char *why, struct sy_error *err)
{
    const struct syi_plan *plan = &session->plan;
    const char *remedy = session->options.remedy;
    if (!remedy)
        remedy = "set memory.budget, take a smaller data.batch_size, more train.microbatches, more ranks or "
                 "mesh.zero";
    return syi_error(
        err, SY_ENOMEM,
        "out of memory%s: the plan of a rank needs %llu bytes (%llu parameters and state, %llu scratch)%s: "
        "%s%s",
        where, (unsigned long long)total, (unsigned long long)plan->bytes[SYI_PERSIST],
        (unsigned long long)plan->bytes[SYI_SCRATCH], why, remedy,
        plan->bytes[SYI_SNAPSHOT] && !*where ? ", or checkpoint.background = false" : "");
}

/* What a session takes of the host for a segment: not the weights that another one lends it, nor the device's. */
static uint64_t host_bytes(const struct syi_session *session, int segment)
{
    int elsewhere = segment == SYI_PERSIST   ? session->options.weights != NULL
                    : segment == SYI_SCRATCH ? session->device != NULL
                    : segment == SYI_STAGING ? session->links != NULL
                                             : 0;
    return elsewhere ? 0 : session->plan.bytes[segment];
}

static uint64_t own_bytes(const struct syi_session *session)
{
    uint64_t sum = 0;
    for (int i = 0; i < SYI_SEGMENT_COUNT; i++) sum += host_bytes(session, i);
    return sum;
}

/* Refused before memory is taken: systems hand out more than they have, and end the process when it is used.
 */
static int check_available(const struct syi_session *session, const char *where, uint64_t total,
                           uint64_t available, struct sy_error *err)
{
    char why[160];
    if (total > available) {
        snprintf(why, sizeof why, ", %llu are free here for a rank (memory.check = false tries it)",
                 (unsigned long long)available);
        return out_of_memory(session, where, total, why, err);
    }
    if (total > available / 10 * 9 && session->rank == 0)
        syi_log(SY_LOG_WARN, "the plan of a rank needs %llu bytes%s of the %llu that are free here for it",
                (unsigned long long)total, where, (unsigned long long)available);
    return SY_OK;
}

static const char on_device[] = " on the device";

/* given_back: bytes that will be free besides. */
static int check_device(const struct syi_session *session, uint64_t given_back, struct sy_error *err)
{
    struct syi_backend *backend = session->options.backend;
    uint64_t left = 0, all = 0;
    int status = session->device->memory_info(backend->context, &left, &all);
    if (status) return syi_backend_error(backend, status, "asking how much device memory is free", err);
    return check_available(session, on_device, syi_device_bytes(session), left + given_back, err);
}

static int check_memory(const struct syi_session *session, uint64_t given_back, struct sy_error *err)
{
    const struct syi_session_options *options = &session->options;
    int status = options->available
                     ? check_available(session, "", own_bytes(session), options->available, err)
                     : SY_OK;
    return !status && session->device && options->check_device ? check_device(session, given_back, err)
                                                               : status;
}

int syi_session_fits(const struct syi_session *planned, const struct syi_session *instead,
                     struct sy_error *err)
{
    return check_memory(planned, instead->device ? syi_device_bytes(instead) : 0, err);
}

/* The arena: exactly the bytes of the plan. Zeroed by the pool, so pages are near the threads that work on
 * them. */
static int take_host(struct syi_session *session, struct sy_error *err)
{
    const struct syi_session *lender = session->options.weights;
    uint64_t total = own_bytes(session);
    void *memory = total > SIZE_MAX ? NULL : syi_take((size_t)total, total >= HUGE_PAGE ? HUGE_PAGE : PAGE);
    if (!memory) return out_of_memory(session, "", total, "", err);
    session->arena = memory;
    session->arena_bytes = total;
    ask_huge_pages(memory, total);
    uint8_t *next = memory;
    for (int i = 0; i < SYI_SEGMENT_COUNT; i++) {
        session->segment[i] = lender && i == SYI_PERSIST ? lender->segment[i] : next;
        next += host_bytes(session, i);
    }
    if (total <= FEW_BYTES)
        memset(memory, 0, (size_t)total);
    else
        syi_threads_for(session->options.backend->threads, (int64_t)((total + CHUNK - 1) / CHUNK), zero_chunk,
                        session);
    return SY_OK;
}

/* Kernels work on the arena, or on the device's, whose scratch the host does not see. */
static int take_memory(struct syi_session *session, struct sy_error *err)
{
    struct sy_error why = {0};
    int status = take_host(session, err);
    if (status) return status;
    if (!session->device) {
        memcpy(session->place, session->segment, sizeof session->place);
        return SY_OK;
    }
    session->segment[SYI_SCRATCH] = NULL;
    status = syi_device_take(session, &why);
    if (status != SY_ENOMEM) return status ? syi_error(err, status, "%s", why.text) : SY_OK;
    return out_of_memory(session, on_device, syi_device_bytes(session), "", err);
}

static void copy_chunk(void *arg, int64_t task, int thread)
{
    struct syi_session *session = arg;
    uint64_t begin = (uint64_t)task * CHUNK, left = session->plan.bytes[SYI_SNAPSHOT] - begin;
    (void)thread;
    memcpy(session->segment[SYI_SNAPSHOT] + begin, session->segment[SYI_PERSIST] + begin,
           (size_t)(left < CHUNK ? left : CHUNK));
}

int syi_session_snapshot(struct syi_session *session, struct sy_error *err)
{
    uint64_t bytes = session->plan.bytes[SYI_SNAPSHOT];
    if (session->device) return syi_device_snapshot(session, err);
    syi_threads_for(session->options.backend->threads, (int64_t)((bytes + CHUNK - 1) / CHUNK), copy_chunk,
                    session);
    return SY_OK;
}

const void *syi_session_snapshot_of(const struct syi_session *session, const struct syi_shared *shared)
{
    return session->segment[SYI_SNAPSHOT] + shared->info.offset;
}

/* ---- shared tensors ---- */

static int compare_names(const void *a, const void *b)
{
    return strcmp(((const struct syi_shared *)a)->name, ((const struct syi_shared *)b)->name);
}

static struct syi_shared describe(const struct syi_session *session, const struct syi_program *program,
                                  const struct syi_tensor *tensor)
{
    struct syi_shared shared = {.name = syi_program_name(program, tensor->name), .info = *tensor};
    for (int i = 0; i < SY_MAX_DIMS; i++)
        shared.global[i] = tensor->dim[i] * syi_mesh_size(&session->mesh, tensor->split[i]);
    shared.tensor = syi_bound_tensor(session, tensor, session->segment);
    return shared;
}

/* All shared tensors by name, once each. Of programs that differ in kind (one writes what another reads) the
 * first counts. */
static int list_shared(struct syi_session *session, struct sy_error *err)
{
    size_t most = 0, n = 0, kept = 0;
    for (size_t p = 0; p < session->n_bound; p++) most += session->bound[p].program->n_tensors;
    struct syi_shared *list = session->shared = syi_alloc(most * sizeof *list, err);
    if (!list) return SY_ENOMEM;
    for (size_t p = 0; p < session->n_bound; p++) {
        const struct syi_program *program = session->bound[p].program;
        for (size_t i = 0; i < program->n_tensors; i++)
            if (program->tensor[i].kind != SYI_TEMP)
                list[n++] = describe(session, program, &program->tensor[i]);
    }
    qsort(list, n, sizeof *list, compare_names);
    for (size_t i = 0; i < n; i++)
        if (!kept || strcmp(list[kept - 1].name, list[i].name)) list[kept++] = list[i];
    session->n_shared = kept;
    return SY_OK;
}

/* Weights that are lent lie where this session looks for them: the same names, each in the same place. */
static int check_weights(const struct syi_session *session, struct sy_error *err)
{
    const struct syi_session *lender = session->options.weights;
    int same = !lender || lender->plan.bytes[SYI_PERSIST] == session->plan.bytes[SYI_PERSIST];
    for (size_t i = 0; same && lender && i < session->n_shared; i++) {
        const struct syi_shared *shared = &session->shared[i];
        const struct sy_tensor *theirs = syi_session_tensor(lender, shared->name);
        if (syi_kind_segment(shared->info.kind) != SYI_PERSIST) continue;
        same = theirs && theirs->data == shared->tensor.data;
    }
    return same ? SY_OK
                : syi_error(err, SY_EINTERNAL, "a session cannot lend its weights to one of another model");
}

/* State that does not begin at 0. */
static void fill_state(struct syi_session *session)
{
    for (size_t i = 0; i < session->n_shared; i++) {
        const struct syi_shared *shared = &session->shared[i];
        float *value = shared->tensor.data;
        if (shared->info.kind != SYI_STATE || shared->info.initial == 0 || shared->info.dtype != SY_F32)
            continue;
        for (int64_t k = 0; k < syi_tensor_count(&shared->info); k++) value[k] = shared->info.initial;
    }
}

const struct sy_tensor *syi_session_tensor(const struct syi_session *session, const char *name)
{
    struct syi_shared key = {.name = name};
    const struct syi_shared *found =
        session->n_shared ? bsearch(&key, session->shared, session->n_shared, sizeof key, compare_names)
                          : NULL;
    return found ? &found->tensor : NULL;
}

const struct syi_shared *syi_session_shared(const struct syi_session *session, size_t i)
{
    return i < session->n_shared ? &session->shared[i] : NULL;
}

/* ---- bind ---- */

/* Ranks that would start different collectives wait for each other for ever: refused before memory is taken.
 */
static int check_alike(struct syi_session *session, struct sy_error *err)
{
    struct syi_sha256 hash;
    char hex[65];
    int odd;
    if (session->options.plan_only || session->options.comm->ranks == 1) return SY_OK;
    syi_sha256_init(&hash);
    for (size_t p = 0; p < session->n_bound; p++) {
        const struct syi_program *program = session->bound[p].program;
        for (size_t i = 0; i < program->n_ops; i++) {
            const struct syi_op *op = &program->op[i];
            if (!op->queue) continue;
            const struct syi_tensor *in = &program->tensor[op->in[0]];
            const int64_t words[] = {(int64_t)p, (int64_t)i, op->op, op->queue, in->dtype};
            syi_sha256_add(&hash, words, sizeof words);
            syi_sha256_add(&hash, in->dim, sizeof in->dim);
            syi_sha256_add(&hash, syi_program_attr(program, op), op->attr_bytes);
        }
    }
    syi_sha256_hex(&hash, hex);
    int status = syi_comm_same(session->options.comm, hex, sizeof hex, &odd, err);
    if (status || odd < 0) return status;
    return syi_error(err, SY_EMISMATCH,
                     "rank %d would exchange other data than rank 0: the ranks have different programs", odd);
}

/* The memory and the kernels: what one rank may lack that others have. */
static int take(struct syi_session *session, struct sy_error *err)
{
    int status = check_memory(session, 0, err);
    if (!status) status = take_memory(session, err);
    if (!status) status = list_shared(session, err);
    if (!status) status = check_weights(session, err);
    if (!status && !session->options.weights) {
        fill_state(session);
        status = syi_session_upload(session, SYI_PERSIST, err);
    }
    for (size_t i = 0; i < session->n_bound && !status; i++)
        status = syi_bound_index(session, &session->bound[i], err);
    for (size_t i = 0; i < session->n_bound && !status; i++)
        status = syi_bound_kernels(session, &session->bound[i], err);
    return status;
}

static int index_plan(struct syi_session *session, struct sy_error *err)
{
    int status = list_shared(session, err);
    for (size_t i = 0; i < session->n_bound && !status; i++)
        status = syi_bound_index(session, &session->bound[i], err);
    return status;
}

static int bind(struct syi_session *session, struct sy_error *err)
{
    int status = session->options.budget ? syi_session_fit(session, err)
                                         : syi_session_prepare(session, UINT64_MAX, err);
    if (!status) status = check_alike(session, err);
    if (status) return status;
    if (session->options.plan_only) return index_plan(session, err);
    status = take(session, err);
    if (session->options.all_or_none) status = syi_comm_agree(session->options.comm, status, err);
    for (size_t i = 0; i < session->n_bound && !status; i++)
        status = syi_bound_connect(session, &session->bound[i], err);
    return status;
}

int syi_session_bind(struct syi_session *session, struct sy_error *err)
{
    if (session->state != 0) return syi_error(err, SY_EINVAL, "a session is bound once");
    int status = bind(session, err);
    session->state = status ? -1 : 1;
    return status;
}

/* ---- looking in ---- */

const struct syi_mesh *syi_session_mesh(const struct syi_session *session)
{
    return &session->mesh;
}

const struct syi_plan *syi_session_plan(const struct syi_session *session)
{
    return &session->plan;
}

uint64_t syi_session_host_bytes(const struct syi_session *session)
{
    return syi_plan_host_bytes(&session->plan);
}

uint64_t syi_session_device_bytes(const struct syi_session *session)
{
    return syi_plan_device_bytes(&session->plan);
}

uint64_t syi_session_device_free(const struct syi_session *session)
{
    uint64_t left = 0, all = 0;
    if (!session->device) return 0;
    int status = session->device->memory_info(session->options.backend->context, &left, &all);
    return status ? 0 : left;
}

const struct syi_program *syi_session_program(const struct syi_session *session, int index)
{
    return index >= 0 && (size_t)index < session->n_bound ? session->bound[index].program : NULL;
}

const struct syi_recomputed *syi_session_recomputed(const struct syi_session *session, int index)
{
    return index >= 0 && (size_t)index < session->n_bound ? &session->bound[index].recomputed : NULL;
}

void syi_session_hook(struct syi_session *session, syi_op_hook hook, void *arg)
{
    session->hook = hook;
    session->hook_arg = arg;
    session->hook_reads = 1;
    if (!hook) syi_look_free(session);
}

int syi_session_room_for_hook(struct syi_session *session, struct sy_error *err)
{
    return syi_look_take(session, err);
}

void syi_session_time(struct syi_session *session, syi_op_hook hook, void *arg)
{
    syi_session_hook(session, hook, arg);
    session->hook_reads = 0;
}
