/* SPDX-License-Identifier: Apache-2.0 */
/* From what was asked for to running ranks: which communication, how many threads, which mesh, one pool and
 * one backend a rank. Knows nothing of what the ranks do. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "train/launch.h"

/* What all ranks have in common. */
struct team {
    const struct syi_launch *launch;
    int (*fn)(void *arg, const struct syi_rank *rank, struct sy_error *err);
    void *arg;
    const char *backend;   /* name */
    const char *comm_name; /* "self" or "thread" */
    struct syi_mesh mesh;
    int ranks, threads, cpus; /* threads: of a rank */
};

/* ---- communication ---- */

/* How many processes a launcher says it started: 1 when there is none. `variable` names where it says so. */
static long launched_processes(const char **variable)
{
    static const struct {
        const char *size, *with; /* with: only believed beside this one, NULL: always */
    } launchers[] = {
        {"OMPI_COMM_WORLD_SIZE", NULL}, {"PMI_SIZE", NULL}, {"SLURM_STEP_NUM_TASKS", "PMIX_RANK"}};
    for (size_t i = 0; i < SYI_COUNT(launchers); i++) {
        const char *text = getenv(launchers[i].size);
        if (!text || (launchers[i].with && !getenv(launchers[i].with))) continue;
        *variable = launchers[i].size;
        long n = strtol(text, NULL, 10);
        if (n > 1) return n;
    }
    return 1;
}

/* auto: threads for several ranks, else self; a launcher that started several processes meant something else.
 */
static int choose_auto(struct team *team, struct sy_error *err)
{
    const char *variable = NULL;
    long processes = launched_processes(&variable);
    team->comm_name = team->ranks > 1 ? "thread" : "self";
    if (processes <= 1) return SY_OK;
    return syi_error(err, SY_EUNSUPPORTED,
                     "%s says that %ld processes were started as one run, but this build has no MPI "
                     "communication: start one process with --comm thread --ranks N",
                     variable, processes);
}

static int choose_comm(struct team *team, struct sy_error *err)
{
    const char *name = team->launch->comm ? team->launch->comm : "auto";
    if (!strcmp(name, "auto")) return choose_auto(team, err);
    if (!strcmp(name, "thread")) {
        team->comm_name = "thread";
        return SY_OK;
    }
    if (!strcmp(name, "mpi") || !strcmp(name, "nccl"))
        return syi_error(err, SY_EUNSUPPORTED,
                         "--comm %s: this build has no %s communication; there are auto, self (one rank) and "
                         "thread (ranks as threads of one process)",
                         name, name[0] == 'm' ? "MPI" : "NCCL");
    if (strcmp(name, "self"))
        return syi_error(err, SY_EINVAL, "--comm %s: unknown; there are auto, self and thread", name);
    if (team->ranks > 1)
        return syi_error(err, SY_EINVAL, "--comm self is one rank, but --ranks is %d: use --comm thread",
                         team->ranks);
    team->comm_name = "self";
    return SY_OK;
}

/* ---- mesh and threads ---- */

static int make_mesh(struct team *team, struct sy_error *err)
{
    const struct syi_config *config = team->launch->config;
    int64_t given = 1;
    const int64_t size[3] = {config->mesh.data, config->mesh.expert, config->mesh.model};
    for (int i = 0; i < 3; i++) given *= size[i] ? size[i] : 1; /* ranges keep it far from overflow */
    if (given > team->ranks)
        return syi_error(
            err, SY_EINVAL,
            "mesh.data=%lld, mesh.expert=%lld and mesh.model=%lld need at least %lld ranks, but there "
            "%s %d: change mesh.* or --ranks",
            (long long)size[0], (long long)size[1], (long long)size[2], (long long)given,
            team->ranks == 1 ? "is" : "are", team->ranks);
    int status = syi_mesh_new(&team->mesh, team->ranks, (int)size[0], (int)size[1], (int)size[2],
                              (int)config->moe.num_experts, err);
    team->mesh.zero = (int)config->mesh.zero;
    return status;
}

static int prepare(struct team *team, struct sy_error *err)
{
    const struct syi_launch *launch = team->launch;
    if (launch->ranks < 0 || launch->threads < 0)
        return syi_error(err, SY_EINVAL, "--ranks %d --threads %d: both must be 1 or more", launch->ranks,
                         launch->threads);
    team->backend = launch->backend ? launch->backend : "cpu";
    team->ranks = launch->ranks ? launch->ranks : 1;
    team->cpus = syi_cpu_count();
    team->threads = launch->threads ? launch->threads : (int)launch->config->cpu.threads;
    if (!team->threads) team->threads = syi_cpu_share(team->ranks);
    int status = choose_comm(team, err);
    return status ? status : make_mesh(team, err);
}

/* ---- one rank ---- */

#define VARIANT_TEXT(constant, text) [constant] = text,
static const char *const variants[] = {SYI_CPU_VARIANT_MAP(VARIANT_TEXT)};
#undef VARIANT_TEXT

/* A variant that the environment asked for is named so in an error: the run file does not show it. */
static int open_cpu(const struct team *team, struct syi_threads *threads, struct syi_backend **backend,
                    struct sy_error *err)
{
    const char *forced = getenv("SWITCHYARD_CPU_VARIANT");
    if (forced && !forced[0]) forced = NULL;
    struct sy_backend_option options[] = {
        {"variant", forced ? forced : variants[team->launch->config->cpu.variant]}, {NULL, NULL}};
    struct sy_error why = {0};
    int status = syi_backend_open("cpu", options, threads, backend, &why);
    if (status)
        syi_error(err, status, "%s%s", why.text,
                  forced ? " (SWITCHYARD_CPU_VARIANT overrides cpu.variant)" : "");
    return status;
}

static int open_backend(const struct team *team, int rank, struct syi_threads *threads,
                        struct syi_backend **backend, struct sy_error *err)
{
    if (team->launch->linked)
        return syi_backend_open_linked(team->launch->linked, NULL, threads, backend, err);
    if (!strcmp(team->backend, "cpu")) return open_cpu(team, threads, backend, err);
    if (strcmp(team->backend, "null")) return syi_backend_open(team->backend, NULL, threads, backend, err);
    char mine[16], all[16];
    snprintf(mine, sizeof mine, "%d", rank);
    snprintf(all, sizeof all, "%d", team->ranks);
    struct sy_backend_option options[] = {{"rank", mine}, {"ranks", all}, {NULL, NULL}};
    return syi_backend_open("null", options, threads, backend, err);
}

static int run_rank(void *arg, struct syi_comm *comm, struct sy_error *err)
{
    const struct team *team = arg;
    struct syi_rank rank = {.rank = comm->rank,
                            .ranks = comm->ranks,
                            .comm = comm,
                            .comm_name = team->comm_name,
                            .mesh = team->mesh,
                            .n_threads = team->threads,
                            .n_cpus = team->cpus};
    int status = syi_threads_new(team->threads, team->ranks, &rank.threads, err);
    if (!status) status = open_backend(team, rank.rank, rank.threads, &rank.backend, err);
    if (!status) status = team->fn(team->arg, &rank, err);
    syi_backend_close(rank.backend);
    syi_threads_free(rank.threads);
    return status;
}

int syi_launch_run(const struct syi_launch *launch,
                   int (*fn)(void *arg, const struct syi_rank *rank, struct sy_error *err), void *arg,
                   struct sy_error *err)
{
    struct team team = {.launch = launch, .fn = fn, .arg = arg};
    int status = prepare(&team, err);
    if (status) return status;
    if (!strcmp(team.comm_name, "thread")) return syi_comm_thread_run(team.ranks, run_rank, &team, err);
    struct syi_comm self;
    syi_comm_self(&self);
    status = run_rank(&team, &self, err);
    syi_comm_close(&self);
    return status;
}

int syi_launch_plan(const struct syi_launch *launch,
                    int (*fn)(void *arg, const struct syi_rank *rank, struct sy_error *err), void *arg,
                    struct sy_error *err)
{
    struct syi_launch one = *launch;
    struct team team = {.launch = &one, .fn = fn, .arg = arg};
    if (!one.threads) one.threads = (int)launch->config->cpu.threads;
    if (!one.threads) one.threads = syi_cpu_share(1);
    int status = prepare(&team, err);
    struct syi_comm none = {.ranks = team.ranks}; /* says how many there are, and can do nothing */
    team.comm_name = "none";
    return status ? status : run_rank(&team, &none, err);
}

int syi_launch_check(const struct syi_launch *launch, struct sy_error *err)
{
    struct team team = {.launch = launch};
    struct syi_plugin plugin;
    int status = prepare(&team, err);
    if (!status) status = syi_plugin_load(team.backend, &plugin, err);
    if (!status) syi_plugin_free(&plugin);
    return status;
}

static const char *plural(int n)
{
    return n == 1 ? "" : "s";
}

void syi_rank_describe(const struct syi_rank *rank, char *text, size_t bytes)
{
    snprintf(text, bytes,
             "%d rank%s x %d thread%s on %d CPU%s, backend %s (%s), comm %s, mesh data=%d expert=%d model=%d",
             rank->ranks, plural(rank->ranks), rank->n_threads, plural(rank->n_threads), rank->n_cpus,
             plural(rank->n_cpus), rank->backend->plugin.desc.name, rank->backend->description,
             rank->comm_name, rank->mesh.size[0], rank->mesh.size[1], rank->mesh.size[2]);
}
