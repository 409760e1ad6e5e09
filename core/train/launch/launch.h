/* SPDX-License-Identifier: Apache-2.0 */
/* From what a command asks for to running ranks: opens the backend and the communication, counts threads,
 * makes the mesh, and runs one function on every rank this process holds. */
#ifndef SYI_LAUNCH_H
#define SYI_LAUNCH_H

#include "base/run_config.h"
#include "runtime/session.h"
#include "train/launch/node.h"
#include "train/launch/world.h"

struct syi_launch {
    const char *backend;                  /* "cpu", "null" */
    const struct sy_backend_desc *linked; /* one that is linked into the program, instead of that; or NULL */
    const char *comm;                     /* "auto", "self", "thread", "mpi" */
    int ranks;                            /* of comm thread; 0: 1 */
    struct syi_world *world; /* what comm auto and mpi go over, borrowed; NULL: this process is alone */
    int threads; /* of a rank; 0: cpu.threads, and if that is 0 the CPUs the process may use, divided by ranks,
                  * or what syi_cpu_limit allows if that is less */
    const struct syi_config *config;
    int exact; /* 1: products of bfloat16 as cpu.bfloat16 says, or an error; 0: where this CPU lacks the
                * instructions, others, and a warning */
    struct syi_runner runner; /* threads of an embedding program; run NULL: ranks start their own */
};

/* One rank at work. Everything is borrowed from the launcher. */
struct syi_rank {
    int rank, ranks;
    struct syi_comm *comm;
    const char *comm_name; /* "self", "thread", "mpi" */
    struct syi_backend *backend;
    struct syi_threads *threads;
    struct syi_mesh mesh;
    struct syi_node node;
    int n_threads;          /* of this rank */
    int n_cpus;             /* the process may use */
    const char *limited_by; /* variable of the environment that made n_threads less than that; NULL: none */
    int emulate;            /* cpu.emulate */
    struct {
        int index;                    /* that the run file chose; -1: ranks of a host take turns */
        int own_products, tf32, nccl; /* cuda.* */
    } device;                         /* of backends with device memory */
    uint64_t memory; /* bytes of this host that were free for it when the launch began, shared evenly between
                        the ranks there; 0: unknown */
};

/* Runs fn(arg, rank) on every rank; returns the first error. An error on one rank stops the others at their
 * next collective. */
int syi_launch_run(const struct syi_launch *launch,
                   int (*fn)(void *arg, const struct syi_rank *rank, struct sy_error *err), void *arg,
                   struct sy_error *err) SYI_MUST_CHECK;
/* A process alone, as long as it is open: what syi_launch_run has for its ranks, without a function to run. Stays where
 * it is, for the rank points into it. */
struct syi_alone {
    struct syi_comm comm;
    struct syi_rank rank;
};
/* launch->comm is "self". alone is zeroed; close it after a failure, too. */
int syi_launch_open(const struct syi_launch *launch, struct syi_alone *alone,
                    struct sy_error *err) SYI_MUST_CHECK;
/* One more rank of a launch that is open and outlives it, to work at the same time: with the same mesh and kernels and one
 * thread, the caller's. alone is zeroed; close it after a failure, too. Looks for no file. */
int syi_launch_beside(const struct syi_alone *first, struct syi_alone *alone,
                      struct sy_error *err) SYI_MUST_CHECK;
void syi_launch_close(struct syi_alone *alone);
/* Threads that each rank of the launch will have. */
int syi_launch_threads(const struct syi_launch *launch, int *threads, struct sy_error *err) SYI_MUST_CHECK;
/* Runs fn as rank 0 of launch->ranks ranks that are not there, for sessions that only plan: no communication, and unless the launch
 * says how many threads a rank has, a machine like this one for each. */
int syi_launch_plan(const struct syi_launch *launch,
                    int (*fn)(void *arg, const struct syi_rank *rank, struct sy_error *err), void *arg,
                    struct sy_error *err) SYI_MUST_CHECK;
/* Another backend for a rank at work, and the options of it that launch->config has; launch is else that of the rank. *other is
 * the rank with it, and with the memory that is free now. All ranks call it; where one cannot open its backend it fails on
 * all. Closed by syi_launch_close_other, after a failure, too. */
int syi_launch_other(const struct syi_launch *launch, const struct syi_rank *rank, struct syi_rank *other,
                     struct sy_error *err) SYI_MUST_CHECK;
/* The rank works with the other's backend from now on, and the other has that which the rank had. */
void syi_launch_swap(const struct syi_rank *rank, struct syi_rank *other);
void syi_launch_close_other(struct syi_rank *other); /* safe when zeroed */
/* Whether this can be launched, as far as the request itself shows: communication, mesh, and a plugin of the
 * backend's name that this host can live with. Starts and opens nothing. */
int syi_launch_check(const struct syi_launch *launch, struct sy_error *err) SYI_MUST_CHECK;
/* The arithmetic of this run from now on: cpu.bfloat16 is what auto took, if it was asked, and reproducible.min_leaf what
 * syi_rank_min_leaf says. */
void syi_rank_settle(const struct syi_rank *rank, struct syi_config *config);
/* reproducible.min_leaf, or what its 0 stands for here: longer leaves with matrix tiles. */
int64_t syi_rank_min_leaf(const struct syi_rank *rank, const struct syi_config *config);
/* "1 rank x 2 threads on 2 CPUs, backend cpu (avx512), comm self, mesh data=1 expert=1 model=1" */
void syi_rank_describe(const struct syi_rank *rank, char *text, size_t bytes);

#endif
