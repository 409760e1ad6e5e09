/* SPDX-License-Identifier: Apache-2.0 */
/* Processes that belong together: the launcher's variables, MPI through the backend of that name, and what all
 * ranks must have in common before anything is allocated. */
#include "config.h"

#include <fenv.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/plugin_folders.h"
#include "runtime/backend.h"
#include "train/launch/world.h"

/* ---- the launcher ---- */

static const struct {
    const char *size, *rank, *with; /* with: only believed beside this one, NULL: always */
} launchers[] = {{"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", NULL},
                 {"PMI_SIZE", "PMI_RANK", NULL},
                 {"SLURM_STEP_NUM_TASKS", "PMIX_RANK", "PMIX_RANK"}};

long syi_world_launcher_size(const char **variable)
{
    for (size_t i = 0; i < SYI_COUNT(launchers); i++) {
        const char *text = getenv(launchers[i].size);
        if (!text || (launchers[i].with && !getenv(launchers[i].with))) continue;
        *variable = launchers[i].size;
        long n = strtol(text, NULL, 10);
        if (n > 1) return n;
    }
    return 1;
}

int syi_world_terminal_lent(void)
{
    for (size_t i = 0; i < SYI_COUNT(launchers); i++) {
        int shell = launchers[i].with && getenv("SLURM_PTY_PORT");
        if (!shell && getenv(launchers[i].rank)) return 1;
    }
    return 0;
}

long syi_world_tasks_apart(void)
{
    const char *tasks = getenv("SLURM_STEP_NUM_TASKS");
    for (size_t i = 0; i < SYI_COUNT(launchers); i++)
        if (getenv(launchers[i].rank)) return 0;
    return tasks ? strtol(tasks, NULL, 10) : 0;
}

int syi_world_launcher_rank(void)
{
    for (size_t i = 0; i < SYI_COUNT(launchers); i++) {
        const char *text = getenv(launchers[i].rank);
        if (text) return (int)strtol(text, NULL, 10);
    }
    const char *task = syi_world_tasks_apart() > 1 ? getenv("SLURM_PROCID") : NULL;
    return task ? (int)strtol(task, NULL, 10) : 0;
}

/* ---- open and close ---- */

static int no_backend(const char *variable, long processes, const struct sy_error *why, struct sy_error *err)
{
    if (!variable) return syi_error(err, why->code, "--comm mpi: %s", why->text);
    return syi_error(
        err, why->code,
        "%s says that %ld processes were started as one run, but MPI cannot be used: %s; or start "
        "one process with --comm thread --ranks N",
        variable, processes, why->text);
}

static int refuse_apart(long tasks, struct sy_error *err)
{
    return syi_error(
        err, SY_EINVAL,
        "srun started %ld processes as one step, but without PMI, by which they would find each "
        "other: start them with srun --mpi=pmix (srun --mpi=list shows what there is), or each for "
        "itself with --comm self",
        tasks);
}

static int check_size(const struct syi_world *world, const char *variable, long processes,
                      struct sy_error *err)
{
    if (!variable || processes <= 1 || processes == world->ranks) return SY_OK;
    return syi_error(
        err, SY_EMISMATCH,
        "%s says that %ld processes were started as one run, but MPI knows of %d: the launcher is "
        "of another MPI than the one switchyard-mpi.so was built with (%s); start with the mpirun "
        "of that one, or configure with MPICC= of the launcher's MPI and build again",
        variable, processes, world->ranks, world->backend->plugin.desc.build);
}

/* What shows which ranks share processors and memory: hashes, for there may be thousands. */
struct place {
    char host[65], cpus[65];
};

static void hash_text(const char *text, char hex[65])
{
    struct syi_sha256 hash;
    syi_sha256_init(&hash);
    syi_sha256_add(&hash, text, strlen(text));
    syi_sha256_hex(&hash, hex);
}

/* Ranks on this host, and those of them with the same set of processors: a launcher may have given each its
 * own. */
static int count_sharers(struct syi_world *world, struct sy_error *err)
{
    char host[256] = "", cpus[1024] = "";
    struct place mine, *all = syi_alloc((size_t)world->ranks * sizeof *all, err);
    if (!all) return SY_ENOMEM;
    gethostname(host, sizeof host - 1);
    syi_cpu_set_text(cpus, sizeof cpus);
    hash_text(host, mine.host);
    hash_text(cpus, mine.cpus);
    int status = syi_comm_gather(&world->comm, &mine, sizeof mine, all, err);
    for (int i = 0; !status && i < world->ranks; i++) {
        int neighbour = !strcmp(all[i].host, mine.host);
        world->neighbours += neighbour;
        world->sharers += neighbour && !strcmp(all[i].cpus, mine.cpus);
    }
    syi_free(all);
    return status;
}

int syi_world_open(const char *comm, struct syi_world *world, struct sy_error *err)
{
    const char *variable = NULL;
    struct sy_error why = {0};
    fenv_t before;
    long processes = syi_world_launcher_size(&variable);
    long apart = syi_world_tasks_apart(); /* before MPI begins, which sets variables as a launcher does */
    memset(world, 0, sizeof *world);
    world->ranks = 1;
    if (!strcmp(comm, "auto") && apart > 1) return refuse_apart(apart, err);
    if (strcmp(comm, "mpi") && (strcmp(comm, "auto") || processes <= 1)) return SY_OK;
    fegetenv(&before);
    int status = syi_backend_open("mpi", NULL, NULL, &world->backend, &why);
    fesetenv(&before); /* an MPI may load libraries that change it */
    if (status) return no_backend(processes > 1 ? variable : NULL, processes, &why, err);
    status = syi_backend_comm(world->backend, &world->comm, err);
    if (!status) {
        world->rank = world->comm.rank;
        world->ranks = world->comm.ranks;
        status = apart > 1 && apart != world->ranks ? refuse_apart(apart, err)
                                                    : check_size(world, variable, processes, err);
    }
    return status ? status : count_sharers(world, err);
}

void syi_world_close(struct syi_world *world)
{
    if (!world->backend) return;
    syi_comm_close(&world->comm);
    syi_backend_close(world->backend);
    world->backend = NULL;
}

/* ---- doing the same ---- */

int syi_world_agree(struct syi_world *world, int status, struct sy_error *err)
{
    int complete;
    if (!world->backend) return status;
    status = syi_comm_conclude(&world->comm, status, &complete, err);
    world->alone = !complete;
    world->failed = status != SY_OK;
    return status;
}

int syi_world_share(struct syi_world *world, void *data, size_t bytes, struct sy_error *err)
{
    return world->ranks == 1 ? SY_OK : syi_comm_share(&world->comm, data, bytes, err);
}

void syi_world_hash_file(const char *path, struct syi_sha256 *hash)
{
    char block[16384];
    size_t n;
    FILE *file = fopen(path, "rb");
    if (!file) return;
    while ((n = fread(block, 1, sizeof block, file)) > 0) syi_sha256_add(hash, block, n);
    fclose(file);
}

static int compare_programs(struct syi_world *world, struct sy_error *err)
{
    static const char version[] = PACKAGE_VERSION;
    const uint32_t abi[] = {SY_ABI_MAJOR, SY_ABI_MINOR, SY_ABI_LAYOUT};
    struct syi_sha256 hash;
    char hex[65];
    int odd;
    syi_sha256_init(&hash);
    syi_sha256_add(&hash, version, sizeof version);
    syi_sha256_add(&hash, abi, sizeof abi);
    syi_world_hash_file(syi_program_file(), &hash);
    syi_sha256_hex(&hash, hex);
    int status = syi_comm_same(&world->comm, hex, sizeof hex, &odd, err);
    if (status || odd < 0) return status;
    return syi_error(err, SY_EMISMATCH,
                     "rank %d runs another switchyard than rank 0 (version or file): install the same one on "
                     "all hosts",
                     odd);
}

struct difference {
    int rank;
    struct sy_error *err;
};

static int tell_first(void *arg, const char *key, enum syi_option_flags flags, const char *first,
                      const char *here)
{
    (void)flags;
    const struct difference *d = arg;
    return syi_error(d->err, SY_EMISMATCH,
                     "rank %d has %s = %s where rank 0 has %s: all ranks need the same run file and options",
                     d->rank, key, here, first);
}

/* Which key differs is known where it does: that rank fails, and the others hear of it when they agree. */
static int same_values(struct syi_world *world, const struct syi_config *config, struct sy_error *err)
{
    struct syi_text text = {0};
    struct syi_sha256 hash;
    struct difference difference = {world->rank, err};
    char hex[65];
    int odd = -1;
    struct syi_config *first = syi_config_copy(config, err);
    syi_config_print(config, false, &text);
    int status = syi_world_agree(world, first ? syi_text_status(&text, err) : SY_ENOMEM, err);
    if (!status) {
        syi_sha256_init(&hash);
        syi_sha256_add(&hash, text.data, strlen(text.data));
        syi_sha256_hex(&hash, hex);
        status = syi_comm_same(&world->comm, hex, sizeof hex, &odd, err);
    }
    syi_text_free(&text);
    if (!status && odd >= 0) {
        status = syi_world_share(world, first, sizeof *first, err);
        if (!status) status = syi_config_compare(first, config, tell_first, &difference, err);
    }
    syi_free(first);
    return status;
}

int syi_world_same_program(struct syi_world *world, struct sy_error *err)
{
    if (world->ranks == 1 || world->same) return SY_OK;
    int status = syi_world_agree(world, compare_programs(world, err), err);
    world->same = !status;
    return status;
}

int syi_world_same(struct syi_world *world, const struct syi_config *config, struct sy_error *err)
{
    if (world->ranks == 1) return SY_OK;
    int status = syi_world_same_program(world, err);
    if (!status) status = syi_world_agree(world, same_values(world, config, err), err);
    return status;
}
