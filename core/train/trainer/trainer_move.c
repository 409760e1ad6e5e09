/* SPDX-License-Identifier: Apache-2.0 */
/* Moving a run to another backend between two steps (doc/architecture.md). What begins with a request ends with an answer, and
 * with the run going on: all ranks on the new backend, or all on the one that they have. */
#include "config.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "train/launch/move_file.h"
#include "train/trainer/trainer_internal.h"

static const double LOOK =
    0.25; /* seconds from one look for a request to the next: a file system may be far */

int syi_trainer_is_asked(struct syi_trainer *t)
{
    double now = syi_seconds();
    if (now - t->looked < LOOK) return 0;
    t->looked = now;
    t->request = syi_move_time(t->job->dir->path);
    return t->request && t->request != t->refused;
}

/* ---- an engine on a backend, and what belongs to it ---- */

struct side {
    struct syi_rank rank;
    struct syi_engine *engine;
    struct syi_state_leaves state;
    struct syi_saver *saver;
};

static int make_side(struct syi_trainer *t, const struct syi_config *config, int use, struct side *side,
                     struct sy_error *err)
{
    const char *folder = t->job->dir->path;
    int status = syi_engine_new(config, &side->rank, use | SYI_USE_TOGETHER, 0, &side->engine, err);
    if (!status) status = syi_state_leaves_make(&side->state, side->engine, err);
    if (!status)
        status = syi_saver_new(folder, syi_engine_session(side->engine), t->rank->comm, &side->saver, err);
    return syi_comm_agree(t->rank->comm, status, err);
}

static void free_side(struct side *side)
{
    syi_saver_free(side->saver);
    syi_state_leaves_free(&side->state);
    syi_engine_free(side->engine);
    side->saver = NULL;
    side->engine = NULL;
}

/* The trainer works with this one, and the side has what it worked with. */
static void swap_side(struct syi_trainer *t, struct side *side)
{
    struct side before = {.engine = t->engine, .state = t->state, .saver = t->saver};
    t->engine = side->engine;
    t->state = side->state;
    t->saver = side->saver;
    side->engine = before.engine;
    side->state = before.state;
    side->saver = before.saver;
    if (t->engine) syi_evaluations_use(&t->evaluations, t->engine);
}

/* ---- where there is no memory for both ---- */

/* Whether giving up the engine can help at all: a plan shows it. */
static int could_fit(struct syi_trainer *t, const struct syi_config *config, const struct side *side,
                     struct sy_error *err)
{
    struct syi_engine *planned = NULL;
    int use = syi_engine_use(t->engine) | SYI_USE_TOGETHER;
    int status = syi_engine_new(config, &side->rank, use, 1, &planned, err);
    if (!status) status = syi_session_fits(syi_engine_session(planned), syi_engine_session(t->engine), err);
    syi_engine_free(planned);
    return syi_comm_agree(t->rank->comm, status, err);
}

/* *saved: a checkpoint of this step is on disk. */
static int save_here(struct syi_trainer *t, int *saved, struct sy_error *err)
{
    int status = SY_OK;
    *saved = 0;
    if (t->spoiled) return SY_OK;
    if (t->saved != t->step) status = syi_trainer_save(t, err);
    if (!status) status = syi_trainer_wait_save(t, err);
    *saved = !status && t->newest == t->step;
    return status;
}

static int load_here(struct syi_trainer *t, struct sy_error *err)
{
    struct syi_checkpoint_meta meta = {0};
    int status = syi_checkpoint_resume(t->job->dir->path, t->step, syi_engine_session(t->engine),
                                       t->rank->comm, &t->state.leaves, &meta, err);
    syi_engine_params_changed(t->engine);
    syi_engine_scale_rates(t->engine, syi_actions_rate_factor(&t->actions));
    return status;
}

/* The engine is given up for the new one, and made again where that cannot be had. before: its configuration. */
static int make_instead(struct syi_trainer *t, const struct syi_config *config,
                        const struct syi_config *before, struct side *side, struct sy_error *why,
                        struct sy_error *err)
{
    struct side old = {.rank = *t->rank};
    struct sy_error lost = {0};
    int use = syi_engine_use(t->engine), status = SY_OK;
    swap_side(t, &old);
    free_side(&old);
    *why = (struct sy_error){0};
    if (!make_side(t, config, use, side, why)) {
        swap_side(t, side);
        syi_launch_swap(t->rank, &side->rank);
    } else {
        free_side(side);
        status = make_side(t, before, use, &old, &lost);
        swap_side(t, &old);
    }
    if (!status) status = load_here(t, &lost);
    if (!status) return SY_OK;
    return syi_error(err, status,
                     "in a move after step %" PRId64 ", whose checkpoint --resume goes on from: %s", t->step,
                     lost.text);
}

/* *why: of the engine that did not fit beside the other, then of the further ways. */
static int move_over_checkpoint(struct syi_trainer *t, const struct syi_config *config, struct side *side,
                                struct sy_error *why, struct sy_error *err)
{
    struct syi_config *before = syi_alloc(sizeof *before, err);
    int saved = 0, status = syi_comm_agree(t->rank->comm, before ? SY_OK : SY_ENOMEM, err);
    struct sy_error alone = {0};
    side->rank.memory = t->rank->memory; /* as much as when the run began */
    int hopeless = !status && could_fit(t, config, side, &alone);
    if (hopeless) *why = alone;
    if (!status && !hopeless) status = save_here(t, &saved, err);
    if (!status && saved) {
        *before = *syi_engine_config(t->engine);
        status = make_instead(t, config, before, side, why, err);
    }
    syi_free(before);
    return status;
}

/* ---- one request ---- */

/* What the run's environment forces would be taken in the place of what is asked for. */
static int check_environment(const struct syi_move *move, struct sy_error *err)
{
    const char *forced = getenv("SWITCHYARD_CPU_VARIANT");
    for (int i = 0; forced && *forced && i < move->n_sets; i++)
        if (!strncmp(move->set[i], "cpu.variant", 11))
            return syi_error(err, SY_EINVAL,
                             "the run was started with SWITCHYARD_CPU_VARIANT=%.20s, which overrides "
                             "cpu.variant: stop it, then --resume without",
                             forced);
    return SY_OK;
}

static int open_side(struct syi_trainer *t, const struct syi_move *move, struct syi_config *config,
                     struct side *side, struct sy_error *err)
{
    struct syi_launch launch = t->job->launch;
    *config = *syi_engine_config(t->engine);
    int status = syi_move_apply(move, config, err);
    if (!status) status = check_environment(move, err);
    status = syi_comm_agree(t->rank->comm, status, err);
    if (status) return status;
    launch.config = config;
    launch.linked = NULL;
    launch.backend = move->backend[0] ? move->backend : t->rank->backend->plugin.desc.name;
    return syi_launch_other(&launch, t->rank, &side->rank, err);
}

/* SY_OK: the run goes on, and where why->code is 0 it has moved. */
static int try_move(struct syi_trainer *t, const struct syi_move *move, struct sy_error *why,
                    struct sy_error *err)
{
    struct syi_config *config = syi_alloc(sizeof *config, err);
    struct side side = {.engine = NULL};
    int failed, fits = 1, status = syi_comm_agree(t->rank->comm, config ? SY_OK : SY_ENOMEM, err);
    if (status) {
        syi_free(config);
        return status;
    }
    failed = open_side(t, move, config, &side, why);
    if (!failed) {
        failed = make_side(t, config, syi_engine_use(t->engine), &side, why);
        fits = failed != SY_ENOMEM;
    }
    if (!failed) failed = syi_engine_take(side.engine, t->engine, why);
    if (!failed) {
        swap_side(t, &side);
        syi_launch_swap(t->rank, &side.rank);
    }
    if (!fits) {
        free_side(&side);
        status = move_over_checkpoint(t, config, &side, why, err);
    }
    free_side(&side);
    syi_launch_close_other(&side.rank);
    syi_free(config);
    return status;
}

/* Rank 0's, on all ranks; its id is empty where there is none to look at. */
static int receive(struct syi_trainer *t, struct syi_move *move, struct sy_error *err)
{
    struct sy_error why = {0};
    *move = (struct syi_move){0};
    if (t->rank->rank == 0) {
        int failed = syi_move_receive(t->job->dir->path, move, &why);
        if (failed) move->id[0] = '\0';
        if (failed && failed != SY_ENOENT) {
            t->refused = t->request;
            syi_trainer_warn(t, t->step, "backend", why.text);
        }
    }
    return syi_comm_share(t->rank->comm, move, sizeof *move, err);
}

static void describe(const struct syi_trainer *t, char *text, size_t bytes)
{
    const struct syi_backend *backend = t->rank->backend;
    snprintf(text, bytes, "%s (%s)", backend->plugin.desc.name, backend->description);
}

static void tell(struct syi_trainer *t, const struct syi_move *move, const char *before,
                 const struct sy_error *why, double seconds)
{
    struct sy_error err = {0};
    char text[sizeof why->text + 300], now[200];
    describe(t, now, sizeof now);
    if (why->code) {
        snprintf(text, sizeof text, "no move after step %" PRId64 ", the run goes on with backend %s: %s",
                 t->step, now, why->text);
        syi_trainer_warn(t, t->step, "backend", text);
    } else {
        snprintf(text, sizeof text, "moved from backend %s to %s after step %" PRId64 ", in %.2f s", before,
                 now, t->step, seconds);
        syi_trainer_say(t, "%s", text);
        syi_trainer_event(t, "backend", text);
        syi_rank_log_begin(&t->log, t->rank, t->engine, t->step);
    }
    if (t->rank->rank == 0 && syi_move_answer(t->job->dir, move, !why->code, text, &err))
        syi_trainer_warn(t, t->step, "backend", err.text);
}

int syi_trainer_move(struct syi_trainer *t, struct sy_error *err)
{
    struct syi_move move;
    struct sy_error why = {0};
    char before[200];
    double begin = syi_seconds();
    t->asked = 0;
    int status = syi_trainer_wait_save(t, err); /* it reads the engine */
    if (status || t->ended) return status;      /* an action that heard of the save may have ended the run */
    status = receive(t, &move, err);
    if (status || !move.id[0]) return status;
    describe(t, before, sizeof before);
    status = try_move(t, &move, &why, err);
    if (!status) tell(t, &move, before, &why, syi_seconds() - begin);
    return status;
}
