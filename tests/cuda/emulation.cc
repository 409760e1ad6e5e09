/* SPDX-License-Identifier: Apache-2.0 */
/* Threads, barriers and warps of emulation.h. Memory, streams and graphs: emulated_runtime.cc. */
#include "tests/cuda/emulation.h"

#include <stdio.h>
#include <stdlib.h>

#include <memory>

#include "tests/cuda/context.h"
#include "tests/cuda/emulated_memory.h"

namespace
{

enum { MOST_THREADS = 1024, WARP = 32, STACK = 64 << 10 };
enum { SHARED = 48 << 10 }; /* what a block has that does not ask for more */
enum { GUARD = 64 };        /* bytes after a block's dynamic shared memory, which must stay as they are */
enum state { READY, AT_BARRIER, IN_WARP, DONE };

/* One CUDA thread. */
struct fiber {
    emulated_context context;
    emulated_position at;
    unsigned char *stack;
    enum state state;
    unsigned mask;     /* IN_WARP: the lanes that meet */
    unsigned meetings; /* warp functions so far: the parity picks one of two sets of values */
    uint64_t value[2]; /* given to the warp */
};

/* What a host thread runs kernels with; ranks of a run may be threads. */
struct machine {
    fiber *all = nullptr; /* [MOST_THREADS] */
    fiber *now = nullptr;
    emulated_context scheduler;
    const std::function<void()> *body = nullptr;
    unsigned char *shared = nullptr;
    unsigned n = 0;
    uint64_t random = 88172645463325252u;
    int predicate = 0, any = 0; /* of the barrier that threads come to, and of the one they left */
    bool free = false;          /* of the launch */
    emulated_position free_at;

    ~machine()
    {
        for (int i = 0; all && i < MOST_THREADS; i++) free_stack(all[i].stack);
        delete[] all;
        free_stack(shared);
    }
    static void free_stack(unsigned char *memory) { ::free(memory); }
};
thread_local machine *m; /* looked at for every threadIdx: nothing that must be made first */
thread_local std::unique_ptr<machine> owned;

[[noreturn]] void stop(const char *why)
{
    fprintf(stderr, "CUDA emulation: %s (thread %u of block %u)\n", why, emulated_now()->thread.x,
            emulated_now()->block.x);
    abort();
}

unsigned random_below(unsigned n)
{
    m->random = m->random * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)((m->random >> 33) % n);
}

void enter()
{
    (*m->body)();
    m->now->state = DONE;
    emulated_context_switch(&m->now->context, &m->scheduler);
}

void wait_as(enum state state)
{
    if (m->free) stop("a kernel launched as free waits for other threads");
    m->now->state = state;
    emulated_context_switch(&m->now->context, &m->scheduler);
}

void set_up()
{
    if (m->all) return;
    m->all = new fiber[MOST_THREADS]();
    m->shared = static_cast<unsigned char *>(aligned_alloc(64, SHARED + GUARD));
    for (int i = 0; i < MOST_THREADS; i++) m->all[i].stack = static_cast<unsigned char *>(malloc(STACK));
}

void begin_block(const emulated_shape &shape, unsigned block)
{
    m->n = shape.threads;
    memset(m->shared, 0xfb, shape.shared_bytes + GUARD);
    for (unsigned i = 0; i < m->n; i++) {
        fiber &f = m->all[i];
        f.at = {{i, 0, 0}, {block, 0, 0}, {shape.threads, 1, 1}, {shape.blocks, 1, 1}};
        f.state = READY;
        f.meetings = 0;
        emulated_context_make(&f.context, f.stack, STACK, enter);
    }
}

/* Runs every thread that can go on until it waits or ends, from a random one on, up or down. */
unsigned run_ready()
{
    unsigned ran = 0, first = random_below(m->n), down = random_below(2);
    for (unsigned k = 0; k < m->n; k++) {
        fiber &f = m->all[(first + (down ? m->n - k : k)) % m->n];
        if (f.state != READY) continue;
        ran++;
        m->now = &f;
        emulated_context_switch(&m->scheduler, &f.context);
    }
    return ran;
}

/* Lanes of the warp from `base` on that wait for the same mask go on when all of it are there. */
void release_warp(unsigned base)
{
    for (unsigned lane = 0; lane < WARP && base + lane < m->n; lane++) {
        fiber &f = m->all[base + lane];
        if (f.state != IN_WARP) continue;
        bool complete = true;
        for (unsigned l = 0; l < WARP; l++) {
            if (!(f.mask >> l & 1) || base + l >= m->n) continue;
            const fiber &other = m->all[base + l];
            m->now = &f;
            if (other.state == DONE) stop("a warp function names a thread that has ended");
            complete = complete && other.state == IN_WARP && other.mask == f.mask;
        }
        if (!complete) continue;
        for (unsigned l = 0; l < WARP && base + l < m->n; l++)
            if (f.mask >> l & 1) m->all[base + l].state = READY;
    }
}

/* All threads stand at the barrier, or none is left. */
bool release_block()
{
    unsigned waiting = 0, done = 0;
    for (unsigned i = 0; i < m->n; i++) {
        waiting += m->all[i].state == AT_BARRIER;
        done += m->all[i].state == DONE;
    }
    if (done == m->n) return false;
    if (waiting == m->n) {
        m->any = m->predicate;
        m->predicate = 0;
        for (unsigned i = 0; i < m->n; i++) m->all[i].state = READY;
        return true;
    }
    for (unsigned i = 0; i < m->n; i++) {
        m->now = &m->all[i];
        if (m->now->state != DONE) stop("waits for threads that wait elsewhere or have ended");
    }
    return false;
}

void run_block(const emulated_shape &shape, unsigned block)
{
    begin_block(shape, block);
    for (;;) {
        if (run_ready()) {
            for (unsigned base = 0; base < m->n; base += WARP) release_warp(base);
            continue;
        }
        if (!release_block()) break;
    }
    for (int i = 0; i < GUARD; i++)
        if (m->shared[shape.shared_bytes + (size_t)i] != 0xfb) stop("wrote beyond its shared memory");
}

/* Threads one after the other, up or down. */
void run_free(const emulated_shape &shape)
{
    uint64_t n = (uint64_t)shape.blocks * shape.threads;
    unsigned down = random_below(2);
    if (shape.shared_bytes) set_up();
    if (shape.shared_bytes) memset(m->shared, 0xfb, shape.shared_bytes);
    m->free = true;
    for (uint64_t k = 0; k < n; k++) {
        uint64_t i = down ? n - 1 - k : k;
        m->free_at = {{(unsigned)(i % shape.threads), 0, 0},
                      {(unsigned)(i / shape.threads), 0, 0},
                      {shape.threads, 1, 1},
                      {shape.blocks, 1, 1}};
        (*m->body)();
    }
    m->free = false;
}

} // namespace

const emulated_position *emulated_now()
{
    return m->free || !m->now ? &m->free_at : &m->now->at;
}

int emulated_lane()
{
    return (int)(emulated_now()->thread.x % WARP);
}

void emulated_barrier()
{
    wait_as(AT_BARRIER);
}

int emulated_barrier_or(int predicate)
{
    m->predicate |= predicate != 0;
    wait_as(AT_BARRIER);
    return m->any;
}

void emulated_gather(unsigned mask, uint64_t value, uint64_t all[32])
{
    if (m->free) stop("a kernel launched as free exchanges values");
    unsigned lane = (unsigned)emulated_lane(), base = m->now->at.thread.x - lane;
    if (!(mask >> lane & 1)) stop("a warp function leaves out the thread that calls it");
    int parity = (int)(m->now->meetings++ & 1);
    m->now->mask = mask;
    m->now->value[parity] = value;
    wait_as(IN_WARP);
    for (unsigned l = 0; l < WARP; l++)
        all[l] = mask >> l & 1 && base + l < m->n ? m->all[base + l].value[parity] : 0;
}

uint64_t emulated_shuffle(unsigned mask, uint64_t value, int source)
{
    uint64_t all[WARP];
    emulated_gather(mask, value, all);
    return all[source];
}

unsigned emulated_ballot(unsigned mask, int predicate)
{
    uint64_t all[WARP];
    unsigned set = 0;
    emulated_gather(mask, predicate != 0, all);
    for (unsigned l = 0; l < WARP; l++) set |= (unsigned)all[l] << l;
    return set;
}

void *emulated_dynamic_shared()
{
    return m->shared;
}

void emulated_run(const emulated_shape &shape, const std::function<void()> &body)
{
    if (!m) m = (owned = std::make_unique<machine>()).get();
    emulated_open_memory();
    m->body = &body;
    if (shape.threads == 0) {
        body();
    } else if (shape.threads > MOST_THREADS || shape.shared_bytes > SHARED) {
        stop("a launch of more threads or shared memory than a block can have");
    } else if (shape.free) {
        run_free(shape);
    } else {
        set_up();
        for (unsigned block = 0; block < shape.blocks; block++) run_block(shape, block);
        m->now = nullptr;
    }
    emulated_close_memory();
}
