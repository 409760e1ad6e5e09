/* SPDX-License-Identifier: Apache-2.0 */
/* Links between devices by NCCL: struct sy_link_table of the CUDA backend. Collectives run on a stream of their own,
 * beside the kernels that do not need them; events order the two. They move bytes: all to all is a group of sends
 * and receives, and floating-point sums are the host's business (all_reduce is asked for integers, and for other numbers only
 * where a run need not be reproducible). */
#include "config.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "backends/cuda/nccl.h"

struct sycuda_nccl {
    void *library; /* of dlopen */
#define FUNCTION(name, parameters) ncclResult_t(*name) parameters;
    SYCUDA_NCCL_FUNCTIONS(FUNCTION)
#undef FUNCTION
    const char *(*GetErrorString)(ncclResult_t error);
    cudaStream_t stream; /* of all groups: members start theirs in one order */
    struct group *groups;
    double patience; /* seconds to wait for the other ranks */
    int lost;        /* 1: a rank did not come or the device failed: communicators end without the others */
};

struct group {
    struct group *next;
    const struct sycuda_nccl *nccl;
    ncclComm_t comm;
    pthread_t end;             /* ends comm, without the others */
    int is_ending;             /* 1: it was begun */
    cudaEvent_t before, after; /* on the kernels' stream at the start; on the links' at the end */
    int n;
};

static struct sycuda_context *of(void *context)
{
    return static_cast<struct sycuda_context *>(context);
}

static int say(const struct sycuda_context *context, int status, const char *what, const char *why)
{
    char line[512];
    snprintf(line, sizeof line, "%s: %s", what, why);
    context->host->error(context->host->arg, line);
    return status;
}

static int report(const struct sycuda_context *context, const char *what, ncclResult_t error)
{
    char why[256];
    if (error == ncclSuccess) return SY_OK;
    snprintf(why, sizeof why, "NCCL reports \"%s\" (%d); NCCL_DEBUG=WARN makes it say more",
             context->nccl->GetErrorString(error), (int)error);
    return say(context, SY_EBACKEND, what, why);
}

static int report_cuda(const struct sycuda_context *context, const char *what, cudaError_t error)
{
    return error == cudaSuccess ? SY_OK : sycuda_fail(context->host, what, error);
}

/* ---- the library ---- */

#ifdef __CUDACC__
/* NULL: all functions are there; else what is missing. */
static const char *find_functions(struct sycuda_nccl *nccl)
{
    /* It stays in memory when it is closed: detached threads of it may still run. */
    nccl->library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!nccl->library) return dlerror();
#    define FUNCTION(name, parameters)                                                                       \
        nccl->name = reinterpret_cast<decltype(nccl->name)>(dlsym(nccl->library, "nccl" #name));             \
        if (!nccl->name) return "it lacks nccl" #name;
    SYCUDA_NCCL_FUNCTIONS(FUNCTION)
    FUNCTION(GetErrorString, )
#    undef FUNCTION
    return nullptr;
}
#else
static const char *find_functions(struct sycuda_nccl *nccl)
{
    if (getenv("SY_EMULATED_NCCL_MISSING")) return "libnccl.so.2: cannot open shared object file";
#    define FUNCTION(name, parameters) nccl->name = nccl##name;
    SYCUDA_NCCL_FUNCTIONS(FUNCTION)
    FUNCTION(GetErrorString, )
#    undef FUNCTION
    return nullptr;
}
#endif

/* The seconds that ranks wait for each other, as for all communication of a run: what the mpi backend refuses is refused. */
static int read_timeout(struct sycuda_context *context)
{
    const char *text = getenv("SWITCHYARD_COMM_TIMEOUT");
    char *end, line[120];
    context->nccl->patience = SYCUDA_PATIENCE;
    if (!text || !*text) return SY_OK;
    long seconds = strtol(text, &end, 10);
    if (*end || seconds < 1 || seconds > 1000000000) {
        snprintf(line, sizeof line, "SWITCHYARD_COMM_TIMEOUT=%.40s", text);
        return say(context, SY_EINVAL, line, "a whole number of seconds, 1 to 1000000000");
    }
    context->nccl->patience = (double)seconds;
    return SY_OK;
}

int sycuda_nccl_open(struct sycuda_context *context)
{
    enum { OLDEST = 21400 }; /* sends and receives in graphs */
    int version = 0;
    struct sycuda_nccl *nccl = static_cast<struct sycuda_nccl *>(calloc(1, sizeof *nccl));
    if (!nccl) return say(context, SY_ENOMEM, "links", "out of memory");
    context->nccl = nccl;
    int status = read_timeout(context);
    if (status) return status;
    const char *why = find_functions(nccl);
    if (why) {
        char text[400];
        snprintf(text, sizeof text,
                 "NCCL cannot be used (%s); install libnccl.so.2 where the linker looks, or open the backend "
                 "with collectives = staged",
                 why);
        return say(context, SY_EUNSUPPORTED, "collectives = nccl", text);
    }
    status = report(context, "asking for the version", nccl->GetVersion(&version));
    if (!status && version < OLDEST)
        return say(
            context, SY_EUNSUPPORTED, "collectives = nccl",
            "this NCCL is older than 2.14; install a newer one, or open the backend with collectives = staged");
    if (status) return status;
    return report_cuda(context, "making a stream for links",
                       cudaStreamCreateWithFlags(&nccl->stream, cudaStreamNonBlocking));
}

void sycuda_nccl_close(struct sycuda_context *context)
{
    struct sycuda_nccl *nccl = context->nccl;
    if (!nccl) return;
    if (nccl->stream) (void)cudaStreamDestroy(nccl->stream);
    if (nccl->library) (void)dlclose(nccl->library);
    free(nccl);
    context->nccl = nullptr;
}

/* ---- groups ---- */

static int linked(void *context)
{
    return of(context)->nccl != nullptr;
}

static int id_new(void *context, void *id)
{
    ncclUniqueId made;
    int status = report(of(context), "naming a group", of(context)->nccl->GetUniqueId(&made));
    if (!status) memcpy(id, &made, sizeof made);
    return status;
}

static void group_free(void *context, void *handle)
{
    struct sycuda_nccl *nccl = of(context)->nccl;
    struct group *group = static_cast<struct group *>(handle), **link = &nccl->groups;
    while (*link && *link != group) link = &(*link)->next;
    if (*link) *link = group->next;
    (void)cudaSetDevice(of(context)->device);
    if (group->is_ending)
        (void)pthread_join(group->end, nullptr);
    else if (group->comm)
        (void)(nccl->lost ? nccl->CommAbort(group->comm) : nccl->CommDestroy(group->comm));
    if (group->before) (void)cudaEventDestroy(group->before);
    if (group->after) (void)cudaEventDestroy(group->after);
    free(group);
}

static int group_new(void *opened, const void *id, int rank, int n, void **handle)
{
    struct sycuda_context *context = of(opened);
    struct sycuda_nccl *nccl = context->nccl;
    struct group *group = static_cast<struct group *>(calloc(1, sizeof *group));
    ncclUniqueId given;
    if (!group) return say(context, SY_ENOMEM, "links", "out of memory");
    memcpy(&given, id, sizeof given);
    group->n = n;
    group->nccl = nccl;
    group->next = nccl->groups;
    nccl->groups = group;
    cudaError_t error = cudaSetDevice(context->device);
    if (error == cudaSuccess) error = cudaEventCreateWithFlags(&group->before, cudaEventDisableTiming);
    if (error == cudaSuccess) error = cudaEventCreateWithFlags(&group->after, cudaEventDisableTiming);
    int status = report_cuda(context, "making events", error);
    if (!status) {
        ncclResult_t joined = nccl->CommInitRank(&group->comm, n, given, rank);
        const char *hint = joined == ncclInvalidUsage ? " (two ranks cannot share one)" : "";
        char what[80];
        snprintf(what, sizeof what, "joining the devices of a group%s", hint);
        status = report(context, what, joined);
    }
    if (status) group->comm = nullptr; /* NCCL has freed it */
    if (status)
        group_free(context, group);
    else
        *handle = group;
    return status;
}

/* ---- collectives ---- */

static ncclResult_t all_to_all(const struct sycuda_nccl *nccl, const struct group *group,
                               const struct sy_collective *call)
{
    const char *send = static_cast<const char *>(call->send);
    char *recv = static_cast<char *>(call->recv);
    ncclResult_t error = nccl->GroupStart(), ended;
    if (error != ncclSuccess) return error;
    for (int i = 0; i < group->n && error == ncclSuccess; i++) {
        error = nccl->Send(send + call->send_inner * (uint64_t)i, call->send_inner, ncclUint8, i, group->comm,
                           nccl->stream);
        if (error == ncclSuccess)
            error = nccl->Recv(recv + call->recv_inner * (uint64_t)i, call->recv_inner, ncclUint8, i,
                               group->comm, nccl->stream);
    }
    ended = nccl->GroupEnd(); /* also after a failure */
    return error == ncclSuccess ? ended : error;
}

static ncclResult_t run(const struct sycuda_nccl *nccl, const struct group *group,
                        const struct sy_collective *call)
{
    ncclDataType_t type = call->dtype == SY_F32   ? ncclFloat32
                          : call->dtype == SY_F64 ? ncclFloat64
                                                  : ncclInt64;
    switch (call->kind) {
    case SY_COLLECTIVE_ALL_GATHER:
        return nccl->AllGather(call->send, call->recv, call->send_inner, ncclUint8, group->comm,
                               nccl->stream);
    case SY_COLLECTIVE_ALL_TO_ALL: return all_to_all(nccl, group, call);
    default:
        return nccl->AllReduce(call->send, call->recv, call->elements, type, ncclSum, group->comm,
                               nccl->stream);
    }
}

static int start(void *opened, void *handle, const struct sy_collective *call)
{
    struct sycuda_context *context = of(opened);
    struct sycuda_nccl *nccl = context->nccl;
    const struct group *group = static_cast<const struct group *>(handle);
    if (call->kind == SY_COLLECTIVE_ALL_REDUCE && call->dtype != SY_F32 && call->dtype != SY_F64 &&
        call->dtype != SY_I64)
        return say(context, SY_EUNSUPPORTED, "a sum over devices", "of another type than f32, f64 and i64");
    cudaError_t error = cudaSetDevice(context->device);
    if (error == cudaSuccess) error = cudaEventRecord(group->before, context->stream);
    if (error == cudaSuccess) error = cudaStreamWaitEvent(nccl->stream, group->before, 0);
    int status = report_cuda(context, "starting a collective", error);
    if (!status) status = report(context, "starting a collective", run(nccl, group, call));
    return status
               ? status
               : report_cuda(context, "starting a collective", cudaEventRecord(group->after, nccl->stream));
}

static int wait(void *opened, void *handle)
{
    const struct group *group = static_cast<const struct group *>(handle);
    return report_cuda(of(opened), "ordering a collective",
                       cudaStreamWaitEvent(of(opened)->stream, group->after, 0));
}

/* ---- waiting for the device ---- */

static double now()
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* A link that has failed; ncclSuccess: none, or they are ended already. */
static ncclResult_t failed_link(const struct sycuda_nccl *nccl)
{
    for (const struct group *group = nccl->groups; group && !nccl->lost; group = group->next) {
        ncclResult_t error = ncclSuccess, asked = nccl->CommGetAsyncError(group->comm, &error);
        if (asked != ncclSuccess) return asked;
        if (error != ncclSuccess && error != ncclInProgress) return error;
    }
    return ncclSuccess;
}

static void *end_group(void *opened)
{
    const struct group *group = static_cast<const struct group *>(opened);
    (void)group->nccl->CommAbort(group->comm);
    return nullptr;
}

/* What is queued waits on the device for ranks that do not come, or for ever if the device is gone: without the communicators it
 * ends. Each is ended in a thread of its own, for NCCL returns only when no graph has collectives of it any more, and the host
 * frees graphs after this. */
static int give_up(struct sycuda_context *context, int status)
{
    struct sycuda_nccl *nccl = context->nccl;
    nccl->lost = 1;
    for (struct group *group = nccl->groups; group; group = group->next)
        if (group->comm && !group->is_ending)
            group->is_ending = pthread_create(&group->end, nullptr, end_group, group) == 0;
    return status;
}

int sycuda_nccl_sync(struct sycuda_context *context)
{
    static const double SPIN = 1e-3; /* seconds without rest */
    static const double LONGEST_GAP =
        1; /* that counts between two looks: a suspended job does not wait meanwhile */
    static const struct timespec nap = {0, 50000};
    struct sycuda_nccl *nccl = context->nccl;
    double looked = now(), waited = 0;
    char late[200];
    for (int looks = 1;; looks++) {
        cudaError_t error = cudaStreamQuery(context->stream);
        if (error == cudaSuccess) return SY_OK;
        if (error != cudaErrorNotReady)
            return give_up(context, report_cuda(context, "waiting for the device", error));
        double gap = now() - looked;
        looked += gap;
        waited += gap < LONGEST_GAP ? gap : LONGEST_GAP;
        if (waited < SPIN) {
            sched_yield();
            continue;
        }
        nanosleep(&nap, nullptr);
        if (looks % 64) continue;
        int status = report(context, "a collective between devices", failed_link(nccl));
        if (!status && waited > nccl->patience) {
            snprintf(
                late, sizeof late,
                "not done after %.0f s: a rank hangs, died or does something else (SWITCHYARD_COMM_TIMEOUT "
                "sets the seconds)",
                nccl->patience);
            status = say(context, SY_EBACKEND, "waiting for the device and other ranks", late);
        }
        if (status) return give_up(context, status);
    }
}

const struct sy_link_table sycuda_link_table = {
    sizeof sycuda_link_table, linked, id_new, group_new, group_free, start, wait,
};
