/* SPDX-License-Identifier: Apache-2.0 */
/* Planning a session, and planning it within a budget: activations are recomputed until the plan is small
 * enough. The recompute pass counts live bytes; what a plan takes beyond them (workspaces, holes) is known
 * only when it is made, so plans are tried with lower and lower targets: lower by what is too much, and by twice the step before
 * where that did not change the plan. */
#include "config.h"

#include "runtime/device.h"

enum { ROUNDS = 40 };

/* The copy that a save in the background writes from. Ranks that hold only what others hold write nothing. */
static uint64_t snapshot_bytes(const struct syi_session *session)
{
    for (size_t i = 0; i < session->n_bound && session->options.snapshot; i++) {
        const struct syi_program *program = session->bound[i].program;
        for (size_t t = 0; t < program->n_tensors; t++)
            if (syi_kind_segment(program->tensor[t].kind) == SYI_PERSIST &&
                syi_mesh_is_first(&session->mesh, &program->tensor[t], session->rank))
                return session->plan.bytes[SYI_PERSIST];
    }
    return 0;
}

static int plan(struct syi_session *session, struct sy_error *err)
{
    size_t n = session->n_bound;
    int status = SY_ENOMEM;
    struct syi_program **programs = syi_alloc(n * sizeof *programs, err);
    uint64_t **workspace = syi_alloc(n * sizeof *workspace, err), **at = syi_alloc(n * sizeof *at, err);
    if (programs && workspace && at) {
        for (size_t i = 0; i < n; i++) {
            programs[i] = session->bound[i].program;
            workspace[i] = session->bound[i].workspace;
            at[i] = session->bound[i].workspace_at;
        }
        status = syi_plan(programs, n, workspace, at, !session->options.check_reuse, &session->plan, err);
        if (!status) session->plan.bytes[SYI_SNAPSHOT] = snapshot_bytes(session);
        session->plan.on_device = session->device != NULL;
        session->plan.links = session->links != NULL;
        for (size_t i = 0; session->device && i < n && !status; i++)
            status = syi_staging_plan(session, &session->bound[i], &session->plan.bytes[SYI_STAGING], err);
    }
    syi_free(programs);
    syi_free(workspace);
    syi_free(at);
    return status;
}

int syi_session_prepare(struct syi_session *session, uint64_t target, struct sy_error *err)
{
    int status = SY_OK;
    for (size_t i = 0; i < session->n_bound && !status; i++) {
        struct syi_bound *bound = &session->bound[i];
        struct syi_pass_options options = {.mesh = &session->mesh,
                                           .reproducible = session->options.reproducible,
                                           .fold = session->options.fold,
                                           .target = target};
        syi_backend_choose_ops(session->options.backend, &options);
        status = syi_passes_run(&bound->program, SYI_STAGE_FUSE, SYI_STAGE_LOWER, &options, err);
        bound->recomputed = options.recomputed;
        if (!status) status = syi_bound_prepare(session, bound, err);
    }
    return status ? status : plan(session, err);
}

/* ---- the budget ---- */

static void free_copies(struct syi_program **copy, size_t n)
{
    for (size_t i = 0; copy && i < n; i++) syi_program_free(copy[i]);
    syi_free(copy);
}

/* The programs as they were added, for every new round. */
static int copy_all(struct syi_session *session, struct syi_program ***out, struct sy_error *err)
{
    struct syi_program **copy = syi_alloc((session->n_bound + 1) * sizeof *copy, err);
    int status = copy ? SY_OK : SY_ENOMEM;
    for (size_t i = 0; i < session->n_bound && !status; i++)
        status = syi_program_copy(session->bound[i].program, &copy[i], err);
    if (status)
        free_copies(copy, session->n_bound);
    else
        *out = copy;
    return status;
}

static int start_over(struct syi_session *session, struct syi_program *const *copy, struct sy_error *err)
{
    int status = SY_OK;
    for (size_t i = 0; i < session->n_bound && !status; i++) {
        struct syi_program *program;
        status = syi_program_copy(copy[i], &program, err);
        if (status) break;
        syi_bound_free(session, &session->bound[i]);
        session->bound[i] = (struct syi_bound){.program = program};
    }
    return status;
}

/* What options.budget is for: the device's memory, where there is one. A rank that needs no snapshot counts one all the same:
 * what is computed again has to be the same on all ranks, or their programs would not exchange the same. */
static uint64_t budgeted(const struct syi_session *session)
{
    const struct syi_plan *plan = &session->plan;
    int spared = session->options.snapshot && !plan->bytes[SYI_SNAPSHOT];
    if (session->device) return syi_plan_device_bytes(plan);
    return syi_plan_bytes(plan) + (spared ? plan->bytes[SYI_PERSIST] : 0);
}

/* Two numbers become the largest of all ranks: workspaces grow with a rank's threads, and what is computed again has to be the same
 * on all ranks. */
static int most_of_ranks(const struct syi_session *session, uint64_t number[2], struct sy_error *err)
{
    struct syi_comm *comm = session->options.comm;
    uint64_t *all;
    if (session->options.plan_only || comm->ranks == 1) return SY_OK;
    all = syi_alloc((size_t)comm->ranks * sizeof(uint64_t[2]), err);
    int status = all ? syi_comm_gather(comm, number, sizeof(uint64_t[2]), all, err) : SY_ENOMEM;
    for (int i = 0; i < 2 * comm->ranks && !status; i++)
        if (all[i] > number[i % 2]) number[i % 2] = all[i];
    syi_free(all);
    return status;
}

static int too_small(const struct syi_session *session, uint64_t least, struct sy_error *err)
{
    const char *remedy = session->options.remedy;
    if (!remedy) remedy = "take more ranks, a smaller data.batch_size or more train.microbatches";
    return syi_error(
        err, SY_ENOMEM,
        "memory.budget=%llu bytes is not enough: with all that can be computed again the plan still "
        "needs %llu; give it that, or %s%s",
        (unsigned long long)session->options.budget, (unsigned long long)least, remedy,
        session->options.snapshot && !session->device ? ", or set checkpoint.background = false" : "");
}

int syi_session_fit(struct syi_session *session, struct sy_error *err)
{
    struct syi_program **copy;
    uint64_t budget = session->options.budget, least = UINT64_MAX;
    int status = copy_all(session, &copy, err);
    if (status) return status;
    status = syi_session_prepare(session, UINT64_MAX, err);
    uint64_t target = 0, before = 0, step = 0;
    for (int round = 0; !status; round++) {
        uint64_t most[2] = {budgeted(session), session->plan.bytes[SYI_SCRATCH]};
        status = most_of_ranks(session, most, err);
        if (status) break;
        const uint64_t total = most[0];
        if (round == 0) target = most[1];
        if (total < least) least = total;
        if (total <= budget) break;
        if (target == 0 || round == ROUNDS) status = too_small(session, least, err);
        step = total == before ? 2 * step : total - budget;
        before = total;
        target = target > step ? target - step : 0;
        if (!status) status = start_over(session, copy, err);
        if (!status) status = syi_session_prepare(session, target, err);
    }
    free_copies(copy, session->n_bound);
    return status;
}
