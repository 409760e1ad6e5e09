/* SPDX-License-Identifier: Apache-2.0 */
/* From what was asked for to running ranks: which communication, how many threads, which mesh, one pool and
 * one backend a rank. Knows nothing of what the ranks do. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "train/launch/launch.h"
#include "train/launch/variant.h"

/* What all ranks have in common. */
struct team {
    const struct syi_launch *launch;
    int (*fn)(void *arg, const struct syi_rank *rank, struct sy_error *err);
    void *arg;
    const char *backend; /* name */
    int variant; /* SYI_CPU_VARIANT_...: what ranks that are threads take together; AUTO: each looks */
    const char *comm_name; /* "self", "thread" or "mpi" */
    struct syi_mesh mesh;
    int ranks, threads, cpus; /* threads: of a rank */
    const char *limited_by;   /* variable that made threads fewer than CPUs; NULL: none */
    int sharers;              /* ranks that share this process's processors */
    int together;             /* 1: a backend that one rank cannot open is none for all */
    uint64_t memory;          /* bytes that are free here for a rank; 0: unknown */
};

/* ---- communication ---- */

/* A world of processes is MPI's; else threads for several ranks. */
static int choose_auto(struct team *team, struct sy_error *err)
{
    const struct syi_world *world = team->launch->world;
    if (!world || !world->backend) {
        team->comm_name = team->ranks > 1 ? "thread" : "self";
        return SY_OK;
    }
    if (team->launch->ranks && team->launch->ranks != world->ranks)
        return syi_error(err, SY_EINVAL, "--ranks %d, but %d processes were started: leave --ranks out",
                         team->launch->ranks, world->ranks);
    team->comm_name = "mpi";
    team->ranks = world->ranks;
    return SY_OK;
}

static int choose_comm(struct team *team, struct sy_error *err)
{
    const char *name = team->launch->comm ? team->launch->comm : "auto";
    if (!strcmp(name, "auto")) return choose_auto(team, err);
    if (!strcmp(name, "thread")) {
        team->comm_name = "thread";
        return SY_OK;
    }
    if (!strcmp(name, "mpi")) {
        if (team->launch->world && team->launch->world->backend) return choose_auto(team, err);
        return syi_error(err, SY_EINVAL,
                         "--comm mpi: no MPI here, this runs in one process: take thread for several ranks");
    }
    if (!strcmp(name, "nccl"))
        return syi_error(
            err, SY_EUNSUPPORTED,
            "--comm nccl: ranks meet by auto, self (one rank), thread (ranks as threads of one process) or mpi; what "
            "GPUs exchange goes through NCCL with --set cuda.collectives=nccl");
    if (strcmp(name, "self"))
        return syi_error(err, SY_EINVAL, "--comm %s: unknown; there are auto, self, thread and mpi", name);
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
    int status = syi_fp_check(err);
    if (status) return status;
    team->backend = launch->backend ? launch->backend : "cpu";
    team->ranks = launch->ranks ? launch->ranks : 1;
    team->cpus = syi_cpu_count();
    team->threads = launch->threads ? launch->threads : (int)launch->config->cpu.threads;
    status = choose_comm(team, err);
    if (status) return status;
    team->sharers = !strcmp(team->comm_name, "mpi") ? launch->world->sharers : team->ranks;
    if (!team->threads)
        team->threads = syi_cpu_default(team->sharers, strcmp(team->comm_name, "mpi") ? team->ranks : 1,
                                        &team->limited_by);
    int neighbours = !strcmp(team->comm_name, "mpi") ? launch->world->neighbours : team->ranks;
    team->memory = syi_memory_free("") / (uint64_t)neighbours;
    return make_mesh(team, err);
}

/* ---- one rank ---- */

/* What the environment asks for, else the run file. */
static const char *named_variant(const struct team *team, int *forced)
{
    const char *name = getenv("SWITCHYARD_CPU_VARIANT");
    *forced = name && *name;
    return *forced ? name : syi_variant_name((int)team->launch->config->cpu.variant);
}

/* Of processes rank 0 measures; the others say what they have. */
static int choose_variant(const struct team *team, int measures, int *variant, struct sy_error *err)
{
    const struct syi_config *config = team->launch->config;
    struct syi_variant_wish wish = {.dtype = (int)config->model.dtype,
                                    .bfloat16 = (int)config->cpu.bfloat16,
                                    .exact = team->launch->exact,
                                    .widest = !measures};
    int forced;
    *variant = SYI_CPU_VARIANT_AUTO;
    if (team->launch->linked || strcmp(team->backend, "cpu") || config->cpu.emulate ||
        strcmp(named_variant(team, &forced), "auto"))
        return SY_OK;
    return syi_variant_choose(&wish, variant, err);
}

/* variant: AUTO: the named one. One that the environment asked for is named so in an error: the run file does not show
 * it. */
static int open_variant(const struct team *team, int variant, struct syi_threads *threads,
                        struct syi_backend **backend, struct sy_error *err)
{
    int forced;
    const char *name = named_variant(team, &forced);
    struct sy_backend_option options[] = {
        {"variant", variant == SYI_CPU_VARIANT_AUTO ? name : syi_variant_name(variant)},
        {"emulate", team->launch->config->cpu.emulate ? "true" : "false"},
        {NULL, NULL}};
    struct sy_error why = {0};
    int status = syi_backend_open("cpu", options, threads, backend, &why);
    if (status)
        syi_error(err, status, "%s%s", why.text,
                  forced ? " (SWITCHYARD_CPU_VARIANT overrides cpu.variant)" : "");
    return status;
}

/* Where ranks are to go on after a failure, it is that of all. */
static int agree(const struct team *team, struct syi_comm *comm, int status, struct sy_error *err)
{
    return team->together ? syi_comm_agree(comm, status, err) : status;
}

/* Kernels of one kind on all ranks: the widest that every one of them has and rank 0 does not find slow. */
static int open_cpu(const struct team *team, struct syi_comm *comm, struct syi_threads *threads,
                    struct syi_backend **backend, struct sy_error *err)
{
    int32_t least, *all;
    int processes = !strcmp(team->comm_name, "mpi"), variant = team->variant, status = SY_OK;
    if (variant == SYI_CPU_VARIANT_AUTO)
        status = choose_variant(team, !processes || comm->rank == 0, &variant, err);
    if (!status) status = open_variant(team, variant, threads, backend, err);
    status = agree(team, comm, status, err);
    if (status || !processes) return status;
    const int32_t mine = least = syi_variant_of((*backend)->description);
    all = syi_alloc((size_t)comm->ranks * sizeof *all, err);
    if (!all) return SY_ENOMEM;
    status = syi_comm_gather(comm, &mine, sizeof mine, all, err);
    for (int i = 0; !status && i < comm->ranks; i++)
        if (all[i] < least) least = all[i];
    syi_free(all);
    if (status || least == mine) return status;
    syi_backend_close(*backend);
    *backend = NULL;
    return open_variant(team, least, threads, backend, err);
}

/* AUTO: another backend. */
static int rank_variant(const struct syi_rank *rank)
{
    if (strcmp(rank->backend->plugin.desc.name, "cpu")) return SYI_CPU_VARIANT_AUTO;
    return syi_variant_of(rank->backend->description);
}

int64_t syi_rank_min_leaf(const struct syi_rank *rank, const struct syi_config *config)
{
    int tiles = config->model.dtype == SYI_DTYPE_BFLOAT16 && rank_variant(rank) == SYI_CPU_VARIANT_AMX_BF16;
    if (config->reproducible.min_leaf) return config->reproducible.min_leaf;
    return tiles ? SYI_MIN_LEAF_TILES : SYI_MIN_LEAF;
}

void syi_rank_settle(const struct syi_rank *rank, struct syi_config *config)
{
    int variant = rank_variant(rank);
    config->reproducible.min_leaf = syi_rank_min_leaf(rank, config);
    if (config->model.dtype == SYI_DTYPE_BFLOAT16 && config->cpu.variant == SYI_CPU_VARIANT_AUTO &&
        variant != SYI_CPU_VARIANT_AUTO)
        config->cpu.bfloat16 = syi_variant_bfloat16(variant);
}

/* The plugin is a file of its own: it may be another one on another host, and so may the library be that
 * variant blas calls. */
static int check_plugin(const struct syi_backend *backend, struct syi_comm *comm, struct sy_error *err)
{
    struct syi_sha256 hash;
    char hex[65];
    int odd;
    syi_sha256_init(&hash);
    syi_world_hash_file(backend->plugin.path, &hash);
    if (!strcmp(backend->plugin.desc.name, "cpu"))
        syi_sha256_add(&hash, backend->description, strlen(backend->description));
    syi_sha256_hex(&hash, hex);
    int status = syi_comm_same(comm, hex, sizeof hex, &odd, err);
    if (status || odd < 0) return status;
    return syi_error(
        err, SY_EMISMATCH,
        "rank %d has another backend %s (%s) than rank 0: install the same switchyard on all hosts", odd,
        backend->plugin.desc.name, backend->description);
}

static int open_null(const struct team *team, const struct syi_comm *comm, struct syi_rank *rank,
                     struct sy_error *err)
{
    char mine[16], all[16];
    snprintf(mine, sizeof mine, "%d", comm->rank);
    snprintf(all, sizeof all, "%d", team->ranks);
    struct sy_backend_option options[] = {{"rank", mine}, {"ranks", all}, {NULL, NULL}};
    return syi_backend_open("null", options, rank->threads, &rank->backend, err);
}

/* What a backend with device memory is asked for; nothing of others. text: of the number. */
struct device_options {
    struct sy_backend_option list[5];
    char text[16];
};

static const struct sy_backend_option *device_options(const struct sy_backend_desc *desc,
                                                      const struct syi_rank *rank,
                                                      struct device_options *options)
{
    struct sy_backend_option *next = options->list;
    int given = rank->device.index >= 0;
    if (!(desc->caps & SY_CAP_DEVICE)) return NULL;
    snprintf(options->text, sizeof options->text, "%d", given ? rank->device.index : rank->node.place);
    *next++ = (struct sy_backend_option){given ? "device" : "local_rank", options->text};
    if (!strcmp(desc->name, "cuda")) {
        *next++ = (struct sy_backend_option){"products", rank->device.own_products ? "own" : "cublaslt"};
        *next++ = (struct sy_backend_option){"tf32", rank->device.tf32 ? "true" : "false"};
        *next++ = (struct sy_backend_option){"collectives", rank->device.nccl ? "nccl" : "staged"};
    }
    *next = (struct sy_backend_option){NULL, NULL};
    return options->list;
}

/* Its descriptor says whether it has device memory, before it is opened. */
static int open_other(const struct team *team, struct syi_rank *rank, struct sy_error *err)
{
    struct device_options options;
    struct syi_plugin plugin;
    int status = syi_plugin_load(team->backend, &plugin, err);
    if (status) return status;
    status = syi_backend_open(team->backend, device_options(&plugin.desc, rank, &options), rank->threads,
                              &rank->backend, err);
    syi_plugin_free(&plugin);
    return status;
}

static int open_backend(const struct team *team, struct syi_comm *comm, struct syi_rank *rank,
                        struct sy_error *err)
{
    struct device_options options;
    const struct sy_backend_desc *linked = team->launch->linked;
    if (linked)
        return syi_backend_open_linked(linked, device_options(linked, rank, &options), rank->threads,
                                       &rank->backend, err);
    if (!strcmp(team->backend, "cpu")) return open_cpu(team, comm, rank->threads, &rank->backend, err);
    return strcmp(team->backend, "null") ? open_other(team, rank, err) : open_null(team, comm, rank, err);
}

static int open_threads(const struct team *team, struct syi_threads **threads, struct sy_error *err)
{
    const struct syi_runner *runner = &team->launch->runner;
    if (runner->run) return syi_threads_borrow(team->threads, runner, threads, err);
    return syi_threads_new(team->threads, team->sharers, threads, err);
}

static void take_options(const struct syi_config *config, struct syi_rank *rank)
{
    rank->emulate = (int)config->cpu.emulate;
    rank->device.index = (int)config->device.index;
    rank->device.own_products = config->cuda.products == SYI_CUDA_PRODUCTS_OWN;
    rank->device.tf32 = (int)config->cuda.tf32;
    rank->device.nccl = config->cuda.collectives == SYI_CUDA_COLLECTIVES_NCCL;
}

static int open_rank(const struct team *team, struct syi_comm *comm, struct syi_rank *rank,
                     struct sy_error *err)
{
    *rank = (struct syi_rank){.rank = comm->rank,
                              .ranks = comm->ranks,
                              .comm = comm,
                              .comm_name = team->comm_name,
                              .mesh = team->mesh,
                              .n_threads = team->threads,
                              .n_cpus = team->cpus,
                              .limited_by = team->limited_by,
                              .memory = team->memory};
    take_options(team->launch->config, rank);
    int status = syi_node_find(comm, &rank->node, err);
    if (!status) status = open_threads(team, &rank->threads, err);
    if (!status) status = open_backend(team, comm, rank, err);
    if (!status && !strcmp(team->comm_name, "mpi")) status = check_plugin(rank->backend, comm, err);
    return status;
}

static void close_rank(struct syi_rank *rank)
{
    syi_backend_close(rank->backend);
    syi_threads_free(rank->threads);
}

static int run_rank(void *arg, struct syi_comm *comm, struct sy_error *err)
{
    const struct team *team = arg;
    struct syi_rank rank;
    int status = open_rank(team, comm, &rank, err);
    if (!status) status = team->fn(team->arg, &rank, err);
    close_rank(&rank);
    return status;
}

int syi_launch_open(const struct syi_launch *launch, struct syi_alone *alone, struct sy_error *err)
{
    struct team team = {.launch = launch};
    int status = prepare(&team, err);
    if (status) return status;
    syi_comm_self(&alone->comm);
    return open_rank(&team, &alone->comm, &alone->rank, err);
}

int syi_launch_beside(const struct syi_alone *first, struct syi_alone *alone, struct sy_error *err)
{
    const struct syi_backend *backend = first->rank.backend;
    char variant[sizeof backend->description];
    snprintf(variant, sizeof variant, "%.*s", (int)strcspn(backend->description, ":"), backend->description);
    struct sy_backend_option options[] = {
        {"variant", variant}, {"emulate", first->rank.emulate ? "true" : "false"}, {NULL, NULL}};
    struct device_options device;
    int is_cpu = !strcmp(backend->plugin.desc.name, "cpu");
    syi_comm_self(&alone->comm);
    alone->rank = first->rank;
    alone->rank.comm = &alone->comm;
    alone->rank.backend = NULL;
    alone->rank.threads = NULL;
    alone->rank.n_threads = 1;
    alone->rank.memory = syi_memory_free("");
    int status = syi_threads_new(1, 1, &alone->rank.threads, err);
    return status ? status
                  : syi_backend_open_linked(
                        &backend->plugin.desc,
                        is_cpu ? options : device_options(&backend->plugin.desc, &first->rank, &device),
                        alone->rank.threads, &alone->rank.backend, err);
}

void syi_launch_close(struct syi_alone *alone)
{
    close_rank(&alone->rank);
    if (alone->rank.comm) syi_comm_close(&alone->comm);
}

/* ---- another backend for a rank at work ---- */

int syi_launch_other(const struct syi_launch *launch, const struct syi_rank *rank, struct syi_rank *other,
                     struct sy_error *err)
{
    struct team team = {.launch = launch, .together = 1};
    int status = prepare(&team, err);
    if (status) return status;
    *other = *rank;
    other->backend = NULL;
    other->memory = team.memory;
    take_options(launch->config, other);
    status = agree(&team, rank->comm, open_backend(&team, rank->comm, other, err), err);
    if (!status && !strcmp(team.comm_name, "mpi")) status = check_plugin(other->backend, rank->comm, err);
    return status;
}

/* Ranks are made here; what works with one sees it as const. */
void syi_launch_swap(const struct syi_rank *rank, struct syi_rank *other)
{
    struct syi_rank *mine = (struct syi_rank *)rank, before = *mine;
    mine->backend = other->backend;
    mine->emulate = other->emulate;
    mine->device = other->device;
    other->backend = before.backend;
    other->emulate = before.emulate;
    other->device = before.device;
}

void syi_launch_close_other(struct syi_rank *other)
{
    syi_backend_close(other->backend);
    other->backend = NULL;
}

/* This process is one rank of several. A failure is reported to the others while the buffers they send to are
 * still there: it is then the failure of all. */
static int run_process(struct team *team, struct syi_world *world, struct sy_error *err)
{
    struct sy_error why = {0};
    int groups = world->comm.n_groups, status = run_rank(team, &world->comm, &why);
    if (status && !why.code) syi_error(&why, status, "%s", sy_status_text(status));
    status = syi_world_agree(world, status, &why);
    world->finished = !status;
    if (!status) syi_comm_keep(&world->comm, groups);
    return status ? syi_error(err, status, "%s", why.text) : SY_OK;
}

int syi_launch_run(const struct syi_launch *launch,
                   int (*fn)(void *arg, const struct syi_rank *rank, struct sy_error *err), void *arg,
                   struct sy_error *err)
{
    struct team team = {.launch = launch, .fn = fn, .arg = arg};
    int status = prepare(&team, err);
    if (status) return status;
    if (!strcmp(team.comm_name, "thread")) {
        status = choose_variant(&team, 1, &team.variant, err);
        return status ? status : syi_comm_thread_run(team.ranks, run_rank, &team, err);
    }
    if (!strcmp(team.comm_name, "mpi")) return run_process(&team, launch->world, err);
    struct syi_comm self;
    syi_comm_self(&self);
    status = run_rank(&team, &self, err);
    syi_comm_close(&self);
    return status;
}

int syi_launch_threads(const struct syi_launch *launch, int *threads, struct sy_error *err)
{
    struct team team = {.launch = launch};
    int status = prepare(&team, err);
    *threads = team.threads;
    return status;
}

int syi_launch_plan(const struct syi_launch *launch,
                    int (*fn)(void *arg, const struct syi_rank *rank, struct sy_error *err), void *arg,
                    struct sy_error *err)
{
    struct syi_launch one = *launch;
    struct team team = {.launch = &one, .fn = fn, .arg = arg};
    if (!one.threads) one.threads = (int)launch->config->cpu.threads;
    if (!one.threads) one.threads = syi_cpu_default(1, 1, &team.limited_by);
    int status = prepare(&team, err);
    struct syi_comm none = {.ranks = team.ranks}; /* says how many there are, and can do nothing */
    team.comm_name = "none";
    team.memory = syi_memory_free("");
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
    snprintf(
        text, bytes,
        "%d rank%s x %d thread%s on %d CPU%s%s%s%s, backend %s (%s), comm %s, mesh data=%d expert=%d model=%d",
        rank->ranks, plural(rank->ranks), rank->n_threads, plural(rank->n_threads), rank->n_cpus,
        plural(rank->n_cpus), rank->limited_by ? " (threads: " : "", rank->limited_by ? rank->limited_by : "",
        rank->limited_by ? ")" : "", rank->backend->plugin.desc.name, rank->backend->description,
        rank->comm_name, rank->mesh.size[0], rank->mesh.size[1], rank->mesh.size[2]);
}
