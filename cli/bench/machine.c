/* SPDX-License-Identifier: Apache-2.0 */
/* What the machine can do: the rates of the loops of loops.c, on all threads, and a copy of buffers larger than any cache. */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "cli/bench/bench.h"
#include "cli/bench/loops.h"

/* How thoroughly. Buffers of a quick look may fit in the largest caches. */
struct effort {
    int rounds, copy_rounds;
    int64_t share;     /* a loop runs its iterations over this */
    size_t copy_bytes; /* of each of two buffers; 0: the peaks of products alone */
};
static const struct effort thorough = {16, 4, 1, 1 << 28}, quick = {4, 2, 16, 1 << 25}, peaks = {16, 0, 4, 0};

static void run_loop(void *arg, int64_t task, int thread)
{
    const struct bench_loop *loop = arg;
    (void)task;
    (void)thread;
    loop->run(loop->iterations);
}

/* The best of some rounds. The first half of them goes before: a clock that is high while a core was idle is not the one
 * that holds. */
static double rate_of(struct syi_threads *pool, struct bench_loop loop, int threads,
                      const struct effort *effort)
{
    double best = INFINITY;
    if (!loop.run) return 0;
    loop.iterations /= effort->share;
    for (int i = 0; i < effort->rounds; i++) {
        double begin = syi_seconds();
        syi_threads_for(pool, threads, run_loop, &loop);
        if (i >= effort->rounds / 2) best = fmin(best, syi_seconds() - begin);
    }
    return loop.flops * (double)loop.iterations * threads / best;
}

/* ---- copy ---- */

struct buffers {
    char *from, *to;
    size_t share; /* bytes of a thread */
};

static void copy_share(void *arg, int64_t task, int thread)
{
    const struct buffers *b = arg;
    (void)thread;
    memcpy(b->to + (size_t)task * b->share, b->from + (size_t)task * b->share, b->share);
}

/* Writes both, so that pages are there and near the thread that copies them. */
static void touch_share(void *arg, int64_t task, int thread)
{
    const struct buffers *b = arg;
    (void)thread;
    memset(b->from + (size_t)task * b->share, 1, b->share);
    memset(b->to + (size_t)task * b->share, 2, b->share);
}

static int measure_copy(struct syi_threads *pool, const struct effort *effort, struct bench_machine *machine,
                        struct sy_error *err)
{
    struct buffers b = {.from = syi_alloc(effort->copy_bytes, err), .to = syi_alloc(effort->copy_bytes, err)};
    double best = INFINITY;
    b.share = effort->copy_bytes / (size_t)machine->threads;
    for (int i = 0; b.from && b.to && i < effort->copy_rounds; i++) {
        if (!i) syi_threads_for(pool, machine->threads, touch_share, &b);
        double begin = syi_seconds();
        syi_threads_for(pool, machine->threads, copy_share, &b);
        best = fmin(best, syi_seconds() - begin);
    }
    machine->copy = 2.0 * (double)b.share * machine->threads / best;
    int status = b.from && b.to ? SY_OK : SY_ENOMEM;
    syi_free(b.from);
    syi_free(b.to);
    return status;
}

/* ---- the machine ---- */

static int measure(void *arg, void *result, struct sy_error *err)
{
    const struct effort *effort = arg;
    struct bench_machine *machine = result;
    struct syi_threads *pool;
    int status = syi_threads_new(machine->threads, 1, &pool, err);
    if (status) return status;
    bench_loops_fill();
    if (effort->copy_bytes) { /* first: threads may begin on one core, and leave it meanwhile */
        machine->registers_f32 = rate_of(pool, bench_loop_on_registers(SY_F32), machine->threads, effort);
        machine->registers_bf16 = rate_of(pool, bench_loop_on_registers(SY_BF16), machine->threads, effort);
        status = measure_copy(pool, effort, machine, err);
    }
    machine->f32 = rate_of(pool, bench_loop_near(SY_F32), machine->threads, effort);
    machine->bf16 = rate_of(pool, bench_loop_near(SY_BF16), machine->threads, effort);
    syi_threads_free(pool);
    return status;
}

static int measure_with(struct effort effort, struct bench_machine *machine, struct sy_error *err)
{
    return bench_in_child(measure, &effort, machine, sizeof *machine, err);
}

/* Whether there is something to measure. */
static int begin(const struct syi_launch *launch, int threads, struct bench_machine *machine)
{
    *machine = (struct bench_machine){.threads = threads};
    syi_cpu_name(machine->cpu, sizeof machine->cpu);
    return !strcmp(launch->backend, "cpu");
}

int bench_machine(const struct syi_launch *launch, struct bench_machine *machine, struct sy_error *err)
{
    return begin(launch, bench_threads(launch), machine) ? measure_with(thorough, machine, err) : SY_OK;
}

int bench_machine_quick(const struct syi_launch *launch, struct bench_machine *machine, struct sy_error *err)
{
    int cpus = syi_cpu_count(), threads = bench_threads(launch);
    return begin(launch, threads < cpus ? threads : cpus, machine) ? measure_with(quick, machine, err)
                                                                   : SY_OK;
}

int bench_machine_again(struct bench_machine *machine, struct sy_error *err)
{
    struct bench_machine second = {.threads = machine->threads};
    if (machine->f32 <= 0) return SY_OK;
    int status = measure_with(thorough, &second, err);
    if (status) return status;
    machine->f32 = fmax(machine->f32, second.f32);
    machine->bf16 = fmax(machine->bf16, second.bf16);
    machine->registers_f32 = fmax(machine->registers_f32, second.registers_f32);
    machine->registers_bf16 = fmax(machine->registers_bf16, second.registers_bf16);
    machine->copy = fmax(machine->copy, second.copy);
    return SY_OK;
}

int bench_peaks_now(struct bench_machine *machine, struct sy_error *err)
{
    return machine->f32 > 0 ? measure_with(peaks, machine, err) : SY_OK;
}

int bench_over_processes(const struct syi_launch *l)
{
    return l->world && l->world->backend;
}

int bench_threads(const struct syi_launch *l)
{
    int several = bench_over_processes(l); /* one rank each */
    int ranks = several || !l->ranks ? 1 : l->ranks;
    int threads = l->threads ? l->threads : (int)l->config->cpu.threads;
    return ranks * (threads ? threads : syi_cpu_share(several ? l->world->sharers : ranks));
}

static int add_up(struct syi_world *world, struct bench_machine *machine, struct sy_error *err)
{
    const struct bench_machine mine = *machine;
    struct bench_machine *all = syi_alloc((size_t)world->ranks * sizeof *all, err);
    if (!all) return SY_ENOMEM;
    int status = syi_comm_gather(&world->comm, &mine, sizeof mine, all, err);
    for (int i = 0; !status && i < world->ranks; i++) {
        if (i == world->rank) continue;
        machine->threads += all[i].threads;
        machine->f32 += all[i].f32;
        machine->bf16 += all[i].bf16;
        machine->registers_f32 += all[i].registers_f32;
        machine->registers_bf16 += all[i].registers_bf16;
        machine->copy += all[i].copy;
    }
    syi_free(all);
    return status;
}

int bench_machine_of(const struct syi_launch *launch, struct bench_machine *machine, struct sy_error *err)
{
    struct syi_world *world = launch->world;
    int several = bench_over_processes(launch);
    int status = several ? syi_comm_barrier(&world->comm, err) : SY_OK;
    if (!status) status = bench_machine(launch, machine, err);
    return status || !several ? status : add_up(world, machine, err);
}

double bench_peak(const struct bench_machine *machine, int dtype)
{
    if (machine->f32 <= 0) return NAN;
    return dtype == SY_BF16 ? fmax(machine->bf16, machine->f32) : machine->f32;
}

double bench_share(const struct bench_machine *machine, int dtype, double rate)
{
    return 100 * rate / bench_peak(machine, dtype);
}

double bench_roof(const struct bench_machine *machine, int dtype, double flops, double bytes)
{
    return machine->f32 > 0 ? fmax(flops / bench_peak(machine, dtype), bytes / machine->copy) : NAN;
}

uint64_t bench_peak_memory(void)
{
    struct rusage usage;
    if (getrusage(RUSAGE_SELF, &usage)) return 0;
#if defined(__APPLE__)
    return (uint64_t)usage.ru_maxrss;
#else
    return (uint64_t)usage.ru_maxrss * 1024;
#endif
}

void bench_put_machine(struct bench_out *out, const struct bench_machine *m)
{
    const struct bench_number numbers[] = {{"threads", m->threads, 0},
                                           {"peak_f32_gflops", m->f32 * 1e-9, 1},
                                           {"peak_bf16_gflops", m->bf16 * 1e-9, 1},
                                           {"registers_f32_gflops", m->registers_f32 * 1e-9, 1},
                                           {"registers_bf16_gflops", m->registers_bf16 * 1e-9, 1},
                                           {"copy_gb_per_second", m->copy * 1e-9, 1}};
    if (m->cpu[0]) bench_put_text(out, "cpu", m->cpu);
    if (m->f32 > 0)
        bench_put_text(out, "percents_of",
                       "peak_*_gflops: a tile fed by the nearest cache; registers_*: no memory read");
    bench_put_numbers(out, "machine", numbers, m->f32 > 0 ? SYI_COUNT(numbers) : 1);
}
