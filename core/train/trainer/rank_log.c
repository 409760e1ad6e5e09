/* SPDX-License-Identifier: Apache-2.0 */
/* The log of one rank of a training: ranks/rank-N.log in the run directory, or its lines in ranks/node-N.log. Rank 0's own
 * log, which is always there, is the run directory's. */
#include "config.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "train/trainer/rank_log.h"
#include "train/launch/run_dir.h"

static void introduce(struct syi_rank_log *log, const struct syi_rank *rank)
{
    char host[256] = "", set[256] = "", line[800];
    gethostname(host, sizeof host - 1);
    syi_cpu_set_text(set, sizeof set);
    set[strcspn(set, "\n")] = '\0';
    snprintf(line, sizeof line,
             "rank %d of %d on host %s, process %ld, %d thread%s, CPUs %s, mesh position data=%d expert=%d "
             "model=%d",
             rank->rank, rank->ranks, host, (long)getpid(), rank->n_threads, rank->n_threads == 1 ? "" : "s",
             set[0] ? set + strspn(set, " \t") : "unknown",
             syi_mesh_index(&rank->mesh, SYI_MESH_DATA, rank->rank),
             syi_mesh_index(&rank->mesh, SYI_MESH_EXPERT, rank->rank),
             syi_mesh_index(&rank->mesh, SYI_MESH_MODEL, rank->rank));
    syi_rank_log_say(log, line);
}

int syi_rank_log_open(struct syi_rank_log *log, const char *run_dir, const struct syi_rank *rank, int wanted,
                      struct sy_error *err)
{
    char name[40];
    *log = (struct syi_rank_log){0};
    if (wanted == SYI_LOG_RANKS_FIRST) return SY_OK;
    log->of_node = wanted == SYI_LOG_RANKS_NODES || rank->ranks > SYI_RANK_LOG_MOST;
    log->rank = rank->rank;
    snprintf(name, sizeof name, "%s-%d", log->of_node ? "node" : "rank",
             log->of_node ? rank->node.number : rank->rank);
    int status = syi_run_dir_open_rank_log(run_dir, name, &log->file, err);
    if (!status) introduce(log, rank);
    return status;
}

void syi_rank_log_close(struct syi_rank_log *log)
{
    if (log->file) fclose(log->file);
    log->file = NULL;
}

/* Each line is one write at the end of the file, so those of a node's ranks do not mix. */
void syi_rank_log_say(struct syi_rank_log *log, const char *line)
{
    char text[1200];
    snprintf(text, sizeof text, "rank %d: %s", log->rank, line);
    syi_log_append(log->file, log->of_node ? text : line);
}

static void set_mark(struct syi_rank_log *log, const struct syi_rank *rank, int64_t step)
{
    log->begin = syi_seconds();
    log->waited = rank->comm->waited;
    log->step = step;
}

void syi_rank_log_begin(struct syi_rank_log *log, const struct syi_rank *rank, struct syi_engine *engine,
                        int64_t step)
{
    const struct syi_session *session = syi_engine_session(engine);
    double device = (double)syi_session_device_bytes(session), host = (double)syi_session_host_bytes(session);
    char line[80];
    if (!log->file) return;
    if (device > 0)
        snprintf(line, sizeof line, "memory: %.1f MiB, %.1f MiB on the device", host / 1048576,
                 device / 1048576);
    else
        snprintf(line, sizeof line, "memory: %.1f MiB", host / 1048576);
    syi_rank_log_say(log, line);
    set_mark(log, rank, step);
}

void syi_rank_log_steps(struct syi_rank_log *log, const struct syi_rank *rank, int64_t step, int64_t steps)
{
    char line[160];
    double n = (double)(step - log->step), seconds = syi_seconds() - log->begin;
    if (!log->file || n < 1) return;
    snprintf(line, sizeof line,
             "step %" PRId64 "/%" PRId64 "  %.2f ms/step, %.2f ms of it waiting for other ranks", step, steps,
             seconds / n * 1e3, (rank->comm->waited - log->waited) / n * 1e3);
    syi_rank_log_say(log, line);
    set_mark(log, rank, step);
}
