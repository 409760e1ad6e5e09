/* SPDX-License-Identifier: Apache-2.0 */
/* Launching: which communication, how many ranks and threads, which mesh and variant, and what is refused. */
#include "config.h"

#include <criterion/criterion.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "train/launch/launch.h"

static struct syi_config config;
static struct syi_launch launch;

/* What the ranks saw; -1 at first. */
static struct {
    atomic_int ranks, calls;
    int fails;      /* rank that fails, -1: none */
    char text[512]; /* of rank 0 */
} seen;

static void prepare(void)
{
    static const char *const variables[] = {
        "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS", "PMIX_RANK", "SWITCHYARD_CPU_VARIANT",
        "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PTY_PORT"};
    for (size_t i = 0; i < SYI_COUNT(variables); i++) unsetenv(variables[i]);
    cr_assert_eq(syi_config_defaults(&config, NULL), SY_OK);
    launch = (struct syi_launch){.backend = "null", .comm = "auto", .config = &config};
    seen.fails = -1;
}

TestSuite(launch, .init = prepare);

static int look(void *arg, const struct syi_rank *rank, struct sy_error *err)
{
    cr_expect_eq(arg, &seen);
    cr_expect(rank->comm && rank->backend && rank->threads);
    cr_expect_eq(syi_threads_count(rank->threads), rank->n_threads);
    cr_expect_eq(syi_mesh_ranks(&rank->mesh), rank->ranks);
    atomic_fetch_or(&seen.ranks, 1 << rank->rank);
    atomic_fetch_add(&seen.calls, 1);
    if (rank->rank == 0) syi_rank_describe(rank, seen.text, sizeof seen.text);
    if (rank->rank == seen.fails) return syi_error(err, SY_EIO, "rank %d has had it", rank->rank);
    return syi_comm_barrier(rank->comm, err);
}

static void check_runs(int ranks, const char *words)
{
    struct sy_error err = {0};
    cr_assert_eq(syi_launch_run(&launch, look, &seen, &err), SY_OK, "%s", err.text);
    cr_expect_eq(seen.calls, ranks);
    cr_expect_eq(seen.ranks, (1 << ranks) - 1);
    cr_expect(strstr(seen.text, words) != NULL, "\"%s\" lacks \"%s\"", seen.text, words);
    seen.calls = seen.ranks = 0;
}

static void check_refused(int code, const char *words)
{
    struct sy_error err = {0};
    cr_expect_eq(syi_launch_run(&launch, look, &seen, &err), code, "%s", err.text);
    cr_expect(strstr(err.text, words) != NULL, "\"%s\" lacks \"%s\"", err.text, words);
    cr_expect_eq(seen.calls, 0);
}

static void set(const char *assignment)
{
    struct sy_error err = {0};
    cr_assert_eq(syi_config_set(&config, assignment, &err), SY_OK, "%s", err.text);
}

Test(launch, one_rank)
{
    launch.threads = 2;
    check_runs(1, "1 rank x 2 threads on ");
    check_runs(1, "backend null (rank 0 of 1, computes nothing), comm self, mesh data=1 expert=1 model=1");
    launch.comm = "self";
    check_runs(1, "comm self");
    launch.comm = NULL;
    check_runs(1, "comm self");
    launch.comm = "thread";
    check_runs(1, "comm thread");
}

Test(launch, several_ranks_are_threads)
{
    launch.threads = 1;
    launch.ranks = 4;
    check_runs(4, "4 ranks x 1 thread on ");
    check_runs(4, "comm thread, mesh data=4 expert=1 model=1");
    set("moe.num_experts=4");
    set("mesh.expert=2");
    check_runs(4, "mesh data=2 expert=2 model=1");
    launch.comm = "thread";
    check_runs(4, "rank 0 of 4");
}

Test(launch, threads_of_a_rank)
{
    char words[64];
    set("cpu.threads=3");
    check_runs(1, "1 rank x 3 threads");
    launch.threads = 2;
    check_runs(1, "1 rank x 2 threads");
    launch.threads = 0;
    set("cpu.threads=0");
    launch.ranks = 2;
    snprintf(words, sizeof words, "2 ranks x %d thread", syi_cpu_share(2));
    check_runs(2, words);
}

Test(launch, a_rank_that_fails_stops_the_others)
{
    struct sy_error err = {0};
    launch.ranks = 4;
    launch.threads = 1;
    seen.fails = 2;
    cr_assert_eq(syi_launch_run(&launch, look, &seen, &err), SY_EIO);
    cr_expect_str_eq(err.text, "rank 2 has had it");
}

Test(launch, communication_that_is_not_there)
{
    launch.comm = "mpi";
    check_refused(SY_EINVAL, "--comm mpi: no MPI here");
    launch.comm = "nccl";
    check_refused(SY_EUNSUPPORTED, "goes through NCCL with --set cuda.collectives=nccl");
    launch.comm = "pigeon";
    check_refused(SY_EINVAL, "--comm pigeon: unknown; there are auto, self, thread and mpi");
    launch.comm = "self";
    launch.ranks = 2;
    check_refused(SY_EINVAL, "--comm self is one rank, but --ranks is 2");
    launch.ranks = -1;
    check_refused(SY_EINVAL, "--ranks -1");
}

/* ---- processes that a launcher started: what its variables say, where MPI is not there ---- */

static void check_world(const char *comm, int code, const char *words)
{
    struct syi_world world;
    struct sy_error err = {0};
    cr_expect_eq(syi_world_open(comm, &world, &err), code, "%s", err.text);
    cr_expect(strstr(err.text, words) != NULL, "\"%s\" lacks \"%s\"", err.text, words);
    if (!code) cr_expect(!world.backend && world.ranks == 1 && world.rank == 0);
    syi_world_close(&world);
}

Test(launch, a_launcher_of_processes)
{
    setenv("SWITCHYARD_BACKEND_PATH", "/nonexistent", 1);
    check_world("auto", SY_OK, "");
    check_world("mpi", SY_ENOENT, "--comm mpi: backend mpi: no switchyard-mpi.so in /nonexistent");
    setenv("OMPI_COMM_WORLD_SIZE", "1", 1);
    check_world("auto", SY_OK, "");
    setenv("OMPI_COMM_WORLD_SIZE", "4", 1);
    setenv("OMPI_COMM_WORLD_RANK", "3", 1);
    check_world("auto", SY_ENOENT,
                "OMPI_COMM_WORLD_SIZE says that 4 processes were started as one run, but MPI");
    check_world("auto", SY_ENOENT, "start one process with --comm thread --ranks N");
    cr_expect_eq(syi_world_launcher_rank(), 3);
    check_world("self", SY_OK, "");
    check_world("thread", SY_OK, "");
    unsetenv("OMPI_COMM_WORLD_SIZE");
    unsetenv("OMPI_COMM_WORLD_RANK");
    setenv("PMI_SIZE", "2", 1);
    check_world("auto", SY_ENOENT, "PMI_SIZE says");
    unsetenv("PMI_SIZE");
    setenv("SLURM_STEP_NUM_TASKS", "8", 1); /* without PMI: eight runs of their own, which nobody wants */
    check_world("auto", SY_EINVAL, "srun started 8 processes as one step, but without PMI");
    check_world("self", SY_OK, "");
    setenv("SLURM_STEP_NUM_TASKS", "1", 1);
    check_world("auto", SY_OK, "");
    setenv("SLURM_STEP_NUM_TASKS", "8", 1);
    setenv("PMIX_RANK", "0", 1);
    check_world("auto", SY_ENOENT, "SLURM_STEP_NUM_TASKS says that 8 processes");
}

Test(launch, a_terminal_that_a_launcher_lends)
{
    cr_expect_eq(syi_world_terminal_lent(), 0);
    setenv("OMPI_COMM_WORLD_RANK", "0", 1); /* mpirun -n 1 */
    cr_expect_eq(syi_world_terminal_lent(), 1);
    unsetenv("OMPI_COMM_WORLD_RANK");
    setenv("PMIX_RANK", "0", 1);
    cr_expect_eq(syi_world_terminal_lent(), 1);
    setenv("SLURM_PTY_PORT", "40000", 1); /* srun --pty: the user's */
    cr_expect_eq(syi_world_terminal_lent(), 0);
    setenv("OMPI_COMM_WORLD_RANK", "0", 1); /* mpirun in there */
    cr_expect_eq(syi_world_terminal_lent(), 1);
}

Test(launch, a_mesh_that_does_not_fit)
{
    set("mesh.data=2");
    check_refused(SY_EINVAL, "there is 1: change mesh.*");
    set("mesh.data=1048576");
    set("mesh.expert=65536");
    set("mesh.model=65536");
    check_refused(SY_EINVAL, "4503599627370496 ranks");
    set("mesh.data=3");
    set("mesh.expert=0");
    set("mesh.model=0");
    launch.ranks = 4;
    check_refused(SY_EINVAL, "mesh");
}

Test(launch, backends_and_variants)
{
    launch.backend = "nosuch";
    check_refused(SY_ENOENT, "nosuch");
    launch.backend = "cpu";
    launch.threads = 1;
    set("cpu.variant=portable");
    check_runs(1, "backend cpu (portable)");
    setenv("SWITCHYARD_CPU_VARIANT", "auto", 1);
    check_runs(1, "backend cpu (");
    setenv("SWITCHYARD_CPU_VARIANT", "quantum", 1);
    check_refused(SY_EINVAL, "SWITCHYARD_CPU_VARIANT overrides cpu.variant");
    check_refused(SY_EINVAL, "quantum");
    setenv("SWITCHYARD_CPU_VARIANT", "", 1);
    check_runs(1, "backend cpu (portable)");
}
