/* SPDX-License-Identifier: Apache-2.0 */
/* The part of NCCL that the CUDA backend uses, between ranks that are threads of one process. What the library refuses is
 * refused: two ranks on one device, sends and receives that do not fit. A collective is one piece of work on its
 * stream, in which the members of the communicator meet: each brings what it sends, and takes what is for it. Where a member
 * does not come within SWITCHYARD_COMM_TIMEOUT seconds, the devices of the others wait for it until the communicator is
 * aborted. A communicator ends when no graph has collectives of it any more, as in the library.
 *
 * SY_EMULATED_NCCL_ABSENT: rank 1 of a communicator comes to so many collectives of the process and to none after them; -1: ranks
 * do not find each other. */
#include "tests/cuda/emulation.h"

#include <stdio.h>
#include <stdlib.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "backends/cuda/nccl.h"

namespace
{

/* A send or a receive; of a gather and a sum, all that a rank brings. */
struct message {
    const void *from;
    void *to;
    size_t bytes;
    int peer; /* -1: all */
};

/* What ranks share. */
struct clique {
    std::mutex mutex;
    std::condition_variable changed;
    int n = 0, members = 0, arrived = 0;
    unsigned long meeting = 0;
    std::vector<int> devices;
    std::vector<const std::vector<message> *> brought; /* [n] in this meeting */
};

std::mutex mutex;
std::map<uint64_t, clique *> cliques;
uint64_t named;

} // namespace

struct ncclComm {
    clique *all;
    uint64_t id;
    int rank, device;
    std::shared_ptr<int> queued; /* every collective that is queued or part of a graph has a share of it */
};

namespace
{

double patience()
{
    const char *text = getenv("SWITCHYARD_COMM_TIMEOUT");
    return text ? atof(text) : 600;
}

/* All members come, or not in time. */
bool meet(clique *c)
{
    std::unique_lock<std::mutex> lock(c->mutex);
    unsigned long mine = c->meeting;
    if (++c->arrived == c->n) {
        c->arrived = 0;
        c->meeting++;
        c->changed.notify_all();
        return true;
    }
    return c->changed.wait_for(lock, std::chrono::duration<double>(patience()),
                               [&] { return c->meeting != mine; });
}

const char *const absent = getenv("SY_EMULATED_NCCL_ABSENT");

bool comes(const ncclComm *comm)
{
    static std::atomic<long> collectives;
    return !absent || comm->rank != 1 || collectives.fetch_add(1) < atol(absent);
}

/* All members come, or the device of this one waits for ever. */
bool meet_or_hang(const ncclComm *comm)
{
    if (meet(comm->all)) return true;
    emulated_hang(comm->device, true);
    return false;
}

/* Between two meetings: the messages of all, to this rank. k-th sends to it by a peer are its k-th receives. */
typedef void (*take_fn)(const ncclComm *comm, const std::vector<message> &mine, int type);

void take_messages(const ncclComm *comm, const std::vector<message> &mine, int)
{
    std::vector<size_t> next((size_t)comm->all->n, 0);
    for (const message &m : mine) {
        if (!m.to) continue;
        const std::vector<message> &theirs = *comm->all->brought[(size_t)m.peer];
        size_t &at = next[(size_t)m.peer];
        while (at < theirs.size() && (!theirs[at].from || theirs[at].peer != comm->rank)) at++;
        if (at == theirs.size() || theirs[at].bytes != m.bytes) {
            emulated_lose();
            return;
        }
        memcpy(m.to, theirs[at++].from, m.bytes);
    }
}

void take_all(const ncclComm *comm, const std::vector<message> &mine, int)
{
    for (int i = 0; i < comm->all->n; i++)
        memcpy(static_cast<char *>(mine[0].to) + mine[0].bytes * (size_t)i,
               (*comm->all->brought[(size_t)i])[0].from, mine[0].bytes);
}

template <class T> void add(const ncclComm *comm, const message &mine)
{
    std::vector<T> sum(mine.bytes / sizeof(T), 0);
    for (int i = 0; i < comm->all->n; i++) {
        const T *from = static_cast<const T *>((*comm->all->brought[(size_t)i])[0].from);
        for (size_t k = 0; k < sum.size(); k++) sum[k] += from[k];
    }
    if (!meet_or_hang(comm)) return; /* members may write over what they brought */
    memcpy(mine.to, sum.data(), mine.bytes);
}

void take_sum(const ncclComm *comm, const std::vector<message> &mine, int type)
{
    if (type == ncclFloat32)
        add<float>(comm, mine[0]);
    else if (type == ncclFloat64)
        add<double>(comm, mine[0]);
    else
        add<int64_t>(comm, mine[0]);
}

ncclResult_t launch(ncclComm_t comm, std::vector<message> mine, take_fn take, int type, cudaStream_t stream)
{
    emulated_launch({1, 0, 0, true}, stream, [=, queued = comm->queued] {
        (void)queued;
        if (!comes(comm)) return emulated_hang(comm->device, true);
        comm->all->brought[(size_t)comm->rank] = &mine;
        if (!meet_or_hang(comm)) return;
        take(comm, mine, type);
        (void)meet_or_hang(comm);
    });
    return ncclSuccess;
}

/* The library waits for ever; a test, not. */
void wait_for_graphs(const ncclComm *comm)
{
    for (int ms = 0; comm->queued.use_count() > 1; ms++) {
        if (ms == 30000)
            fprintf(stderr, "NCCL emulation: a communicator ends that graphs have collectives of\n");
        if (ms == 30000) abort();
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
}

ncclResult_t end(ncclComm_t comm)
{
    wait_for_graphs(comm);
    std::lock_guard<std::mutex> lock(mutex);
    if (--comm->all->members == 0) {
        cliques.erase(comm->id);
        delete comm->all;
    }
    delete comm;
    return ncclSuccess;
}

/* The group of sends and receives that this thread makes. */
struct making {
    int open = 0;
    ncclComm_t comm = nullptr;
    cudaStream_t stream = nullptr;
    std::vector<message> messages;
};
thread_local making group;

size_t bytes_of(size_t n, ncclDataType_t type)
{
    return n * (type == ncclUint8 ? 1 : type == ncclFloat32 ? 4 : 8);
}

ncclResult_t post(const message &m, ncclComm_t comm, cudaStream_t stream)
{
    if (!group.open || m.peer < 0 || m.peer >= comm->all->n) return ncclInvalidArgument;
    if (group.comm && (group.comm != comm || group.stream != stream)) return ncclInvalidUsage;
    group.comm = comm;
    group.stream = stream;
    group.messages.push_back(m);
    return ncclSuccess;
}

} // namespace

const char *ncclGetErrorString(ncclResult_t error)
{
    switch (error) {
    case ncclSuccess: return "no error";
    case ncclInvalidArgument: return "invalid argument";
    case ncclInvalidUsage: return "invalid usage";
    default: return "remote process exited or there was a network error";
    }
}

ncclResult_t ncclGetVersion(int *version)
{
    *version = 22700;
    return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    std::lock_guard<std::mutex> lock(mutex);
    memset(id, 0, sizeof *id);
    named++;
    memcpy(id, &named, sizeof named);
    return ncclSuccess;
}

ncclResult_t ncclCommInitRank(ncclComm_t *comm, int n, ncclUniqueId id, int rank)
{
    uint64_t number;
    memcpy(&number, &id, sizeof number);
    if (!number || rank < 0 || rank >= n) return ncclInvalidArgument;
    if (absent && atol(absent) < 0) return ncclRemoteError;
    mutex.lock();
    clique *&c = cliques[number];
    if (!c) c = new clique();
    clique *all = c;
    all->n = n;
    all->members++;
    all->devices.push_back(emulated_device());
    all->brought.resize((size_t)n);
    mutex.unlock();
    *comm = new ncclComm{all, number, rank, emulated_device(), std::make_shared<int>(0)};
    ncclResult_t error = meet(all) ? ncclSuccess : ncclRemoteError;
    for (size_t i = 0; error == ncclSuccess && i < all->devices.size(); i++)
        for (size_t k = 0; k < i; k++)
            if (all->devices[i] == all->devices[k]) error = ncclInvalidUsage;
    if (error != ncclSuccess) (void)meet(all); /* all have looked */
    if (error != ncclSuccess) (void)end(*comm);
    return error;
}

/* The library waits for what is queued on a device that is gone; a test, not. */
ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    if (emulated_is_lost()) {
        fprintf(stderr, "NCCL emulation: a communicator of a device that is gone is not aborted\n");
        abort();
    }
    return end(comm);
}

ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    emulated_hang(comm->device, false);
    return end(comm);
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t, ncclResult_t *error)
{
    *error = ncclSuccess;
    return ncclSuccess;
}

ncclResult_t ncclGroupStart()
{
    group.open++;
    return ncclSuccess;
}

ncclResult_t ncclGroupEnd()
{
    if (!group.open) return ncclInvalidUsage;
    if (--group.open) return ncclSuccess;
    making made;
    std::swap(made, group);
    return made.comm ? launch(made.comm, made.messages, take_messages, 0, made.stream) : ncclSuccess;
}

ncclResult_t ncclSend(const void *from, size_t n, ncclDataType_t type, int to, ncclComm_t comm,
                      cudaStream_t stream)
{
    return post({from, nullptr, bytes_of(n, type), to}, comm, stream);
}

ncclResult_t ncclRecv(void *to, size_t n, ncclDataType_t type, int from, ncclComm_t comm, cudaStream_t stream)
{
    return post({nullptr, to, bytes_of(n, type), from}, comm, stream);
}

ncclResult_t ncclAllGather(const void *from, void *to, size_t n, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream)
{
    return launch(comm, {{from, to, bytes_of(n, type), -1}}, take_all, type, stream);
}

ncclResult_t ncclAllReduce(const void *from, void *to, size_t n, ncclDataType_t type, ncclRedOp_t,
                           ncclComm_t comm, cudaStream_t stream)
{
    return launch(comm, {{from, to, bytes_of(n, type), -1}}, take_sum, type, stream);
}
