/* SPDX-License-Identifier: Apache-2.0 */
/* switchyard ckpt prune: removes checkpoints of a run that nobody trains. */
#include "config.h"

#include <string.h>

#include "cli/ckpt/ckpt.h"
#include "train/launch/run_dir.h"

struct pruning {
    const struct cli_options *options;
    const char *run;
    int64_t *there, *named; /* steps */
    size_t n_there, n_named;
    struct syi_checkpoint_meta newest;
    int64_t keep_every; /* checkpoint.keep_every of the run */
    int begun;          /* 1: while the lock was taken, as there was no room for it */
};

static int is_among(int64_t step, const int64_t *steps, size_t n)
{
    size_t i = 0;
    while (i < n && steps[i] != step) i++;
    return i < n;
}

/* Whether a keep_best of the run counts the step among its best: its numbers "step-1" and so on. */
static int is_kept_as_best(const struct syi_checkpoint_meta *meta, int64_t step)
{
    for (int i = 0; i < meta->n_actions; i++)
        for (int k = 0; k < meta->action[i].n; k++)
            if (!strncmp(meta->action[i].number[k].name, "step-", 5) &&
                meta->action[i].number[k].value == (double)step)
                return 1;
    return step == meta->best_step;
}

static int is_doomed(const struct pruning *p, size_t i)
{
    int64_t step = p->there[i];
    if (p->options->which) return is_among(step, p->named, p->n_named);
    return i + (size_t)p->options->keep < p->n_there && !is_kept_as_best(&p->newest, step) &&
           !(p->keep_every && step % p->keep_every == 0);
}

/* All that is named is there, before anything goes. */
static int check_named(const struct pruning *p, struct sy_error *err)
{
    for (size_t i = 0; i < p->n_named; i++)
        if (!is_among(p->named[i], p->there, p->n_there))
            return syi_error(err, SY_ENOENT, "%s holds no checkpoint of step %lld: nothing was removed",
                             p->run, (long long)p->named[i]);
    return SY_OK;
}

static int look(struct pruning *p, struct sy_error *err)
{
    struct syi_checkpoint_view view;
    struct syi_config *config = syi_alloc(sizeof *config, err);
    int status = config ? syi_run_dir_read_config(p->run, config, err) : SY_ENOMEM;
    if (!status) p->keep_every = config->checkpoint.keep_every;
    syi_free(config);
    if (!status) status = syi_checkpoint_list(p->run, &p->there, &p->n_there, err);
    if (!status) status = check_named(p, err);
    if (status || p->options->which || !p->n_there) return status;
    status = syi_checkpoint_view_open(p->run, SYI_CHECKPOINT_LATEST, &view, err);
    p->newest = view.meta;
    p->newest.best_step = syi_checkpoint_best_left(p->run, p->there, p->n_there, view.meta.best_step);
    syi_checkpoint_view_close(&view);
    return status;
}

/* What a killed save left would be in the way, or counted. */
static int prune(void *arg, struct sy_error *err)
{
    struct pruning *p = arg;
    p->begun = 1;
    int status = syi_checkpoint_clean(p->run, err);
    if (!status) status = look(p, err);
    for (size_t i = 0; i < p->n_there && !status; i++) {
        if (!is_doomed(p, i)) continue;
        status = syi_checkpoint_remove(p->run, p->there[i], err);
        if (!status) printf("removed the checkpoint of step %lld\n", (long long)p->there[i]);
    }
    syi_free(p->there);
    return status;
}

int ckpt_prune(const struct cli_options *o, const char *const *operand)
{
    struct pruning p = {.options = o, .run = operand[0]};
    struct sy_error err = {0};
    char taken_over[512];
    if (!o->keep == !o->which) {
        cli_error("ckpt prune: give --keep N or --steps STEP,STEP,...: how many stay, or which go");
        return CLI_USAGE;
    }
    if (!syi_run_dir_exists(p.run)) {
        cli_error("ckpt prune: %s holds no run", p.run);
        return CLI_FAILED;
    }
    if (o->which && ckpt_parse_steps(o->which, &p.named, &p.n_named, &err)) return cli_usage(&err);
    const struct syi_lock_options lock = {.make_room = prune, .arg = &p};
    int status = syi_run_lock_take(p.run, &lock, taken_over, sizeof taken_over, &err);
    if (!status && !p.begun) {
        status = prune(&p, &err);
        syi_run_lock_release(p.run);
    }
    syi_free(p.named);
    return status ? cli_fail(&err) : CLI_DONE;
}
