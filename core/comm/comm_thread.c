/* SPDX-License-Identifier: Apache-2.0 */
/* N ranks as threads of one process. start publishes the addresses of a rank's buffers; wait copies what
 * belongs to this rank straight from its peers' buffers, once all have published, and returns when all have
 * finished reading, so buffers may then be used again. Every parallel test of the core runs over this. */
#include "config.h"

#include <sched.h>
#include <string.h>

#include "comm/comm.h"
#include "base/threads.h"

/* ---- barrier: arrivals, generation and stop in one word, so "complete" and "stopped" cannot both be
 * concluded ---- */

enum { MAX_RANKS = 4095 };
static const uint32_t COUNT = 0xfff, ONE_GENERATION = 0x1000, GENERATION = 0x7ffff000, STOPPED = 0x80000000u;

struct barrier {
    struct syi_gate gate;
    int n;    /* threads that meet */
    int spin; /* looks before yielding */
};

static void barrier_init(struct barrier *barrier, int n, int spin)
{
    syi_gate_init(&barrier->gate);
    barrier->n = n;
    barrier->spin = spin;
}

/* Counts the caller in without waiting; 0: it was stopped before, and the caller is not counted. */
static int arrive(struct barrier *barrier, uint32_t *generation)
{
    uint32_t old = atomic_load(&barrier->gate.word), fresh;
    do {
        if (old & STOPPED) return 0;
        fresh = (int)(old & COUNT) + 1 < barrier->n ? old + 1 : (old + ONE_GENERATION) & GENERATION;
    } while (!atomic_compare_exchange_weak(&barrier->gate.word, &old, fresh));
    *generation = old & GENERATION;
    if ((fresh & GENERATION) != *generation) syi_gate_wake(&barrier->gate);
    return 1;
}

/* Waits until all have arrived: 1. 0: stopped before that, and it will never be complete. */
static int complete(struct barrier *barrier, uint32_t generation)
{
    uint32_t word = syi_gate_wait(&barrier->gate, GENERATION | STOPPED, generation, barrier->spin);
    return (word & GENERATION) != generation;
}

static int meet(struct barrier *barrier)
{
    uint32_t generation;
    return arrive(barrier, &generation) && complete(barrier, generation);
}

static void stop(struct barrier *barrier)
{
    atomic_fetch_or(&barrier->gate.word, STOPPED);
    syi_gate_wake(&barrier->gate);
}

/* ---- world, ranks, groups ---- */

struct group;

/* One member's place in a group; the group handle of that member, and its request. */
struct slot {
    struct group *group;
    struct slot *next;                /* of the same rank */
    int index;                        /* in the group */
    int joined;                       /* the member has made the group */
    const struct sy_collective *call; /* published by start */
    uint32_t generation;              /* of the barrier that this member arrived at last */
    int parts, n_parts;               /* of the work: done so far, and how many there are */
    _Atomic int pending;              /* started and not yet waited for */
};

struct group {
    struct world *world;
    struct group *next;
    int *ranks; /* [n], world ranks */
    int n, left;
    struct barrier posted; /* all have published */
    struct barrier read;   /* all have finished reading; never stopped, since peers still use the buffers */
    struct slot slot[];
};

struct member {
    struct world *world;
    struct slot *slots; /* groups this rank is in */
    struct syi_comm comm;
    struct sy_error err; /* of fn */
    int status;          /* of fn */
    pthread_t thread;
};

struct world {
    int ranks, spin;
    syi_rank_fn fn;
    void *arg;
    struct barrier all;
    pthread_mutex_t mutex; /* of what follows */
    struct group *groups;
    int stopper; /* rank that stopped the others, -1: none */
    char reason[512];
    struct member member[];
};

static int rank_of(const struct member *member)
{
    return (int)(member - member->world->member);
}

static int world(void *context, int *rank, int *ranks)
{
    const struct member *member = context;
    *rank = rank_of(member);
    *ranks = member->world->ranks;
    return SY_OK;
}

static void group_delete(struct group *group)
{
    syi_gate_destroy(&group->posted.gate);
    syi_gate_destroy(&group->read.gate);
    syi_free(group->ranks);
    syi_free(group);
}

static struct group *group_make(struct world *world, const int *ranks, int n)
{
    struct group *group = syi_alloc(sizeof(*group) + (size_t)n * sizeof(group->slot[0]), NULL);
    int *copy = syi_alloc((size_t)n * sizeof(*copy), NULL);
    if (!group || !copy) {
        syi_free(group);
        syi_free(copy);
        return NULL;
    }
    memcpy(copy, ranks, (size_t)n * sizeof(*copy));
    group->world = world;
    group->ranks = copy;
    group->n = n;
    barrier_init(&group->posted, n, world->spin);
    barrier_init(&group->read, n, world->spin);
    for (int i = 0; i < n; i++) {
        group->slot[i].group = group;
        group->slot[i].index = i;
    }
    group->next = world->groups;
    world->groups = group;
    return group;
}

/* The group of this list that member `index` has not joined yet, made when it is the first. Lists that are
 * made more than once are told apart by order: the oldest comes last in the chain. */
static struct group *group_join(struct world *world, const int *ranks, int n, int index)
{
    struct group *found = NULL;
    for (struct group *group = world->groups; group; group = group->next)
        if (group->n == n && !group->slot[index].joined &&
            memcmp(group->ranks, ranks, (size_t)n * sizeof(*ranks)) == 0)
            found = group;
    if (!found) found = group_make(world, ranks, n);
    if (found) found->slot[index].joined = 1;
    return found;
}

static int group_new(void *context, const int *ranks, int n, void **handle)
{
    struct member *member = context;
    struct world *world = member->world;
    struct group *group = NULL;
    int index = 0;
    while (index < n && ranks[index] != rank_of(member)) index++;
    if (index == n) return SY_EINVAL;
    pthread_mutex_lock(&world->mutex);
    int stopped = world->stopper >= 0;
    if (!stopped) group = group_join(world, ranks, n, index);
    pthread_mutex_unlock(&world->mutex);
    if (!group) return stopped ? SY_EBACKEND : SY_ENOMEM;
    group->slot[index].next = member->slots;
    member->slots = &group->slot[index];
    *handle = &group->slot[index];
    return SY_OK;
}

static void group_free(void *context, void *handle)
{
    struct member *member = context;
    struct world *world = member->world;
    struct slot *slot = handle, **link = &member->slots;
    struct group *group = slot->group;
    while (*link && *link != slot) link = &(*link)->next;
    if (*link) *link = slot->next;
    pthread_mutex_lock(&world->mutex);
    if (++group->left == group->n) {
        struct group **at = &world->groups;
        while (*at != group) at = &(*at)->next;
        *at = group->next;
        group_delete(group);
    }
    pthread_mutex_unlock(&world->mutex);
}

/* ---- stopping ---- */

/* Nobody completes a barrier of publishing from here on; collectives that are complete are carried through.
 */
static void stop_world(struct world *world, int rank, const char *text)
{
    pthread_mutex_lock(&world->mutex);
    if (world->stopper < 0) {
        world->stopper = rank;
        snprintf(world->reason, sizeof(world->reason), "stopped by rank %d: %s", rank, text);
        for (struct group *group = world->groups; group; group = group->next) stop(&group->posted);
        stop(&world->all);
    }
    pthread_mutex_unlock(&world->mutex);
}

/* The text does not change once a rank has stopped. */
/* Says why the ranks were told to stop, if they were. */
static int fail(const struct syi_comm *comm, int status, const char *what, struct sy_error *err)
{
    const struct member *member = comm->context;
    struct world *world = member->world;
    char why[sizeof world->reason] = "";
    pthread_mutex_lock(&world->mutex);
    if (world->stopper >= 0) memcpy(why, world->reason, sizeof why);
    pthread_mutex_unlock(&world->mutex);
    return syi_error(err, status, "rank %d of %d: %s: %s", comm->rank, comm->ranks, what,
                     why[0] ? why : sy_status_text(status));
}

/* ---- collectives ---- */

/* Adds the same elements of every rank's send, ranks ascending, a block at a time: recv may be this rank's
 * send. */
#define REDUCE(type)                                                                                         \
    static void reduce_##type(const struct group *group, type *to, uint64_t begin, uint64_t end)             \
    {                                                                                                        \
        type sum[256];                                                                                       \
        for (uint64_t at = begin; at < end; at += SYI_COUNT(sum)) {                                          \
            uint64_t n = end - at < SYI_COUNT(sum) ? end - at : SYI_COUNT(sum);                              \
            memcpy(sum, (const type *)group->slot[0].call->send + at, (size_t)n * sizeof(type));             \
            for (int rank = 1; rank < group->n; rank++) {                                                    \
                const type *from = (const type *)group->slot[rank].call->send + at;                          \
                for (uint64_t i = 0; i < n; i++) sum[i] += from[i];                                          \
            }                                                                                                \
            memcpy(to + at, sum, (size_t)n * sizeof(type));                                                  \
        }                                                                                                    \
    }
REDUCE(float)
REDUCE(double)
REDUCE(int64_t)
#undef REDUCE

static void part_of(const struct slot *slot, uint64_t rank, uint64_t *begin, uint64_t *end)
{
    uint64_t n = (uint64_t)slot->group->n;
    uint64_t each = slot->call->elements / n, more = slot->call->elements % n;
    *begin = each * rank + (rank < more ? rank : more);
    *end = *begin + each + (rank < more);
}

/* Each rank sums its part of the elements into its own recv, ... */
static int reduce_part(const struct slot *slot)
{
    const struct sy_collective *call = slot->call;
    uint64_t begin, end;
    part_of(slot, (uint64_t)slot->index, &begin, &end);
    if (call->dtype == SY_F32)
        reduce_float(slot->group, call->recv, begin, end);
    else if (call->dtype == SY_F64)
        reduce_double(slot->group, call->recv, begin, end);
    else
        reduce_int64_t(slot->group, call->recv, begin, end);
    return SY_OK;
}

/* ... then all collect the parts. */
static void collect_parts(const struct slot *slot)
{
    const struct sy_collective *call = slot->call;
    uint64_t size = syi_comm_reduce_bytes(call->dtype), begin, end;
    for (int rank = 0; rank < slot->group->n; rank++) {
        part_of(slot, (uint64_t)rank, &begin, &end);
        if (rank != slot->index)
            memcpy((char *)call->recv + begin * size,
                   (const char *)slot->group->slot[rank].call->recv + begin * size,
                   (size_t)((end - begin) * size));
    }
}

/* Piece `index` of every peer's send (all_to_all), or all of it (all_gather), becomes piece `peer` of recv.
 */
static int exchange(const struct slot *slot)
{
    struct group *group = slot->group;
    const struct sy_collective *to = slot->call;
    uint64_t n = (uint64_t)group->n;
    for (uint64_t peer = 0; peer < n; peer++) {
        const struct sy_collective *from = group->slot[peer].call;
        uint64_t bytes = from->send_outer * from->send_inner, inner = from->send_inner, stride = inner * n;
        const char *piece = (const char *)from->send + inner * (uint64_t)slot->index;
        if (bytes != to->recv_outer * to->recv_inner) return SY_EINTERNAL;
        if (to->kind == SY_COLLECTIVE_ALL_GATHER) {
            piece = from->send;
            inner = stride = bytes;
        }
        syi_copy_runs((char *)to->recv + to->recv_inner * peer, to->recv_inner, to->recv_inner * n, piece,
                      inner, stride, bytes);
    }
    return SY_OK;
}

/* Whether all members post the same collective; every member comes to the same answer. */
static int agree(const struct group *group)
{
    const struct sy_collective *first = group->slot[0].call;
    if (first->kind > SY_COLLECTIVE_ALL_REDUCE) return 0;
    for (int i = 1; i < group->n; i++) {
        const struct sy_collective *call = group->slot[i].call;
        if (call->kind != first->kind) return 0;
        if (call->kind == SY_COLLECTIVE_ALL_REDUCE &&
            (call->dtype != first->dtype || call->elements != first->elements))
            return 0;
    }
    return 1;
}

static int start(void *context, void *handle, const struct sy_collective *call, void **request)
{
    struct slot *slot = handle;
    (void)context;
    if (call->kind == SY_COLLECTIVE_ALL_REDUCE && !syi_comm_reduce_bytes(call->dtype)) return SY_EUNSUPPORTED;
    if (atomic_load(&slot->pending)) return SY_EINTERNAL;
    slot->call = call;
    slot->parts = 0;
    if (!arrive(&slot->group->posted, &slot->generation)) return SY_EBACKEND;
    atomic_store(&slot->pending, 1);
    *request = slot;
    return SY_OK;
}

/* One more part of the work, and the arrival at the barrier after it. */
static int work(const struct member *member, struct slot *slot)
{
    int status = SY_OK;
    if (slot->parts++) {
        collect_parts(slot);
    } else {
        int fit = agree(slot->group), sum = slot->call->kind == SY_COLLECTIVE_ALL_REDUCE;
        slot->n_parts = fit && sum ? 2 : 1;
        status = !fit ? SY_EINTERNAL : sum ? reduce_part(slot) : exchange(slot);
    }
    arrive(&slot->group->read, &slot->generation);
    if (status != SY_OK)
        stop_world(member->world, rank_of(member),
                   "the ranks of a group started collectives that do not fit");
    return status;
}

static int wait(void *context, void *request)
{
    const struct member *member = context;
    struct slot *slot = request;
    int status = SY_OK;
    /* Taken once: abort may have completed it. */
    if (!atomic_exchange(&slot->pending, 0) || !complete(&slot->group->posted, slot->generation))
        return SY_EBACKEND;
    do {
        int now = work(member, slot);
        if (now != SY_OK) status = now;
        complete(&slot->group->read, slot->generation);
    } while (slot->parts < slot->n_parts);
    return status;
}

static int barrier(void *context)
{
    struct member *member = context;
    return meet(&member->world->all) ? SY_OK : SY_EBACKEND;
}

/* One step of a collective that abort carries through, without waiting. 0: nothing is left. */
static int carry_on(const struct member *member, struct slot *slot)
{
    struct barrier *barrier = slot->parts ? &slot->group->read : &slot->group->posted;
    uint32_t word = atomic_load(&barrier->gate.word);
    if (!atomic_load(&slot->pending)) return 0;
    int met = (word & GENERATION) != slot->generation, stopped = (word & STOPPED) != 0;
    if (!met && !stopped) return 1;
    if (met && (!slot->parts || slot->parts < slot->n_parts))
        work(member, slot);
    else
        atomic_store(&slot->pending, 0);
    return 1;
}

/* Peers may be reading this rank's buffers: what is under way is carried through, all at once, because every
 * peer has an order of its own in which it waits. */
static void abort_all(void *context, const char *text)
{
    const struct member *member = context;
    stop_world(member->world, rank_of(member), text);
    for (int busy = 1; busy;) {
        busy = 0;
        for (struct slot *slot = member->slots; slot; slot = slot->next) busy |= carry_on(member, slot);
        if (busy) sched_yield();
    }
}

static const struct sy_collective_table table = {
    .bytes = sizeof(table),
    .world = world,
    .group_new = group_new,
    .group_free = group_free,
    .start = start,
    .wait = wait,
    .barrier = barrier,
    .abort = abort_all,
};

/* ---- launcher ---- */

static void *run_rank(void *arg)
{
    struct member *member = arg;
    struct world *world = member->world;
    member->status = world->fn(world->arg, &member->comm, &member->err);
    if (member->status != SY_OK)
        abort_all(member, member->err.code ? member->err.text : sy_status_text(member->status));
    syi_comm_close(&member->comm);
    return NULL;
}

static void *run_thread(void *arg)
{
    syi_fp_reset();
    return run_rank(arg);
}

static struct world *world_new(int ranks, syi_rank_fn fn, void *arg, struct sy_error *err)
{
    struct world *world = syi_alloc(sizeof(*world) + (size_t)ranks * sizeof(world->member[0]), err);
    if (!world) return NULL;
    world->ranks = ranks;
    world->spin = syi_gate_spin(ranks);
    world->fn = fn;
    world->arg = arg;
    world->stopper = -1;
    barrier_init(&world->all, ranks, world->spin);
    pthread_mutex_init(&world->mutex, NULL);
    for (int i = 0; i < ranks; i++) {
        struct member *member = &world->member[i];
        member->world = world;
        member->comm =
            (struct syi_comm){.table = &table, .context = member, .fail = fail, .rank = i, .ranks = ranks};
    }
    return world;
}

static void world_free(struct world *world)
{
    while (world->groups) { /* those that a member never made or freed */
        struct group *group = world->groups;
        world->groups = group->next;
        group_delete(group);
    }
    syi_gate_destroy(&world->all.gate);
    pthread_mutex_destroy(&world->mutex);
    syi_free(world);
}

/* The rank that stopped the others knows the cause. */
static int first_error(const struct world *world, struct sy_error *err)
{
    const struct member *failed = NULL;
    for (int i = world->ranks - 1; i >= 0; i--)
        if (world->member[i].status != SY_OK) failed = &world->member[i];
    if (world->stopper >= 0 && world->member[world->stopper].status != SY_OK)
        failed = &world->member[world->stopper];
    if (!failed) return SY_OK;
    return syi_error(err, failed->status, "%s",
                     failed->err.code ? failed->err.text : sy_status_text(failed->status));
}

int syi_comm_thread_run(int ranks, syi_rank_fn fn, void *arg, struct sy_error *err)
{
    if (ranks < 1 || ranks > MAX_RANKS)
        return syi_error(err, SY_EINVAL, "%d ranks as threads: 1 to %d are possible", ranks, MAX_RANKS);
    struct world *world = world_new(ranks, fn, arg, err);
    if (!world) return SY_ENOMEM;
    int started = 1, status = SY_OK;
    for (; started < ranks && status == SY_OK; started += status == SY_OK) {
        char name[32];
        struct member *member = &world->member[started];
        snprintf(name, sizeof(name), "sy-rank-%d", started);
        status = syi_thread_start(&member->thread, name, run_thread, member, err);
    }
    if (status == SY_OK)
        run_rank(&world->member[0]);
    else
        stop_world(world, 0, "not all ranks could be started");
    for (int i = 1; i < started; i++) pthread_join(world->member[i].thread, NULL);
    if (status == SY_OK) status = first_error(world, err);
    world_free(world);
    return status;
}
