/* SPDX-License-Identifier: Apache-2.0 */
/* Draws the weights that training begins with from the seed, then writes over those that another run has, and says
 * which these were. */
#include "config.h"

#include <inttypes.h>
#include <string.h>

#include "train/init/init.h"
#include "train/init/init_plan.h"
#include "train/init/init_source.h"

struct taking {
    struct syi_engine *engine;
    const struct syi_config *config;
    const struct syi_rank *rank;
    struct syi_init_source source;
    struct syi_init_report *report;
};

/* ---- the report ---- */

static void list_parameter(struct syi_text *out, const struct syi_param *param, const struct syi_taken *taken)
{
    static const char *const kind[] = {[SYI_TAKE_NOTHING] = "fresh",
                                       [SYI_TAKE_SAME] = "taken",
                                       [SYI_TAKE_COPIES] = "copies",
                                       [SYI_TAKE_EXPERT] = "expert",
                                       [SYI_TAKE_MEAN] = "mean"};
    char shape[SYI_SHAPE_TEXT];
    syi_init_shape(param->rank, param->dim, shape);
    syi_text_printf(out, "%s\t%s\t%s", kind[taken->how], param->name, shape);
    if (taken->from) {
        syi_init_shape(taken->from->rank, taken->from->dims, shape);
        syi_text_printf(out, "\t%s\t%s", syi_init_name(taken->from), shape);
    }
    syi_text_puts(out, "\n");
}

/* Of the other run's tensors those that no parameter took. */
static size_t list_left(struct syi_text *out, const struct syi_init_plan *plan,
                        const struct syi_safetensors *file)
{
    char shape[SYI_SHAPE_TEXT];
    size_t left = 0;
    for (size_t i = 0; i < file->n_tensors; i++) {
        if (plan->used[i]) continue;
        left++;
        syi_init_shape(file->tensors[i].rank, file->tensors[i].dims, shape);
        syi_text_printf(out, "left\t\t\t%s\t%s\n", syi_init_name(&file->tensors[i]), shape);
    }
    return left;
}

/* Whether upcycled layers give what the dense ones gave: doc/fine-tuning.md. */
static void note_upcycling(const struct syi_config *config, size_t copies, struct syi_text *notes)
{
    syi_text_printf(notes, "init: %zu of them are those of a dense MLP, copied into experts\n", copies);
    if (!config->moe.normalize_top_k)
        syi_text_puts(
            notes, "init: moe.normalize_top_k is false, so the router scales what the copied experts give: "
                   "the loss begins higher than that of the run they are from\n");
}

static void report_plan(const struct taking *t, const struct syi_init_plan *plan,
                        const struct syi_safetensors *file, const struct syi_checkpoint_meta *meta)
{
    const struct syi_model *model = syi_engine_model(t->engine);
    struct syi_init_report *report = t->report;
    size_t n = 0, copies = 0, left;
    for (size_t i = 0; i < model->n; i++) {
        n += plan->param[i].how != SYI_TAKE_NOTHING;
        copies += plan->param[i].how == SYI_TAKE_COPIES;
        list_parameter(&report->tensors, &model->param[i], &plan->param[i]);
    }
    left = list_left(&report->tensors, plan, file);
    syi_text_printf(&report->notes,
                    "init: %zu of %zu parameters are from %s, step %" PRId64
                    " (weights %.16s); %zu are drawn from the seed; %zu of its %zu tensors are left out\n",
                    n, model->n, t->source.run_dir, meta->step, meta->params_sha256, model->n - n, left,
                    file->n_tensors);
    if (copies) note_upcycling(t->config, copies, &report->notes);
}

void syi_init_report_free(struct syi_init_report *report)
{
    syi_text_free(&report->notes);
    syi_text_free(&report->tensors);
}

int syi_init_report_write(const struct syi_init_report *report, const struct syi_run_dir *dir,
                          struct sy_error *err)
{
    struct syi_text text = {0};
    if (report->notes.data) syi_text_puts(&text, report->notes.data);
    if (report->tensors.data) syi_text_puts(&text, report->tensors.data);
    int status = syi_text_status(&text, err);
    if (!status) status = syi_run_dir_write_text(dir, "init.txt", &text, err);
    syi_text_free(&text);
    return status;
}

/* ---- taking ---- */

static int takes_tokens(const struct syi_model *model, const struct syi_init_plan *plan)
{
    for (size_t i = 0; i < model->n; i++)
        if (plan->param[i].how != SYI_TAKE_NOTHING &&
            memchr(model->param[i].axis, SYI_AXIS_VOCAB, (size_t)model->param[i].rank))
            return 1;
    return 0;
}

/* Rank 0 alone compares and reports: it has the checkpoint's run before it. */
static int take_parameters(void *arg, const struct syi_safetensors *file,
                           const struct syi_checkpoint_meta *meta, struct sy_error *err)
{
    const struct taking *t = arg;
    const struct syi_model *model = syi_engine_model(t->engine);
    struct syi_init_plan plan;
    int status = syi_init_plan(&t->config->train, model, file, &plan, err);
    if (status == SY_EMISMATCH) syi_init_name_differences(&t->source, t->config, err);
    if (!status && t->rank->rank == 0)
        status = syi_init_compare(&t->source, t->config, takes_tokens(model, &plan), &t->report->notes, err);
    if (!status) status = syi_init_read(&plan, model, syi_engine_session(t->engine), file, err);
    if (!status && t->rank->rank == 0) report_plan(t, &plan, file, meta);
    syi_init_plan_free(&plan);
    return status;
}

/* All of the other run, as if it were resumed here. */
static int take_state(struct taking *t, const struct syi_checkpoint_leaves *leaves, struct sy_error *err)
{
    struct syi_checkpoint_meta *meta = syi_alloc(sizeof *meta, err);
    int status = meta ? SY_OK : SY_ENOMEM;
    if (!status && t->rank->rank == 0)
        status = syi_init_compare(&t->source, t->config, 1, &t->report->notes, err);
    if (!status)
        status = syi_checkpoint_resume(t->source.run_dir, t->source.step, syi_engine_session(t->engine),
                                       t->rank->comm, leaves, meta, err);
    if (status == SY_EMISMATCH) syi_init_name_differences(&t->source, t->config, err);
    syi_engine_params_changed(t->engine);
    if (!status && meta->step >= t->config->train.steps)
        status = syi_error(err, SY_EINVAL,
                           "training would go on from step %" PRId64 " of %s, and train.steps = %" PRId64
                           " ends it before: steps count from the first of that run",
                           meta->step, t->source.run_dir, t->config->train.steps);
    if (!status) t->report->step = meta->step;
    if (!status && t->rank->rank == 0)
        syi_text_printf(&t->report->notes,
                        "init: parameters and the optimizer's state are from %s, step %" PRId64
                        " (weights %.16s), and training goes on from that step\n",
                        t->source.run_dir, meta->step, meta->params_sha256);
    syi_free(meta);
    return status;
}

static int take(struct taking *t, const struct syi_checkpoint_leaves *leaves, struct sy_error *err)
{
    struct syi_checkpoint_visit visit = {.comm = t->rank->comm, .take = take_parameters, .arg = t};
    int status = syi_init_locate(&t->config->train, &t->source, err);
    if (status) return status;
    visit.run_dir = t->source.run_dir;
    visit.step = t->source.step;
    return t->config->train.init_state ? take_state(t, leaves, err) : syi_checkpoint_visit(&visit, err);
}

int syi_init_weights(struct syi_engine *engine, const struct syi_config *config, const struct syi_rank *rank,
                     const struct syi_checkpoint_leaves *leaves, struct syi_init_report *report,
                     struct sy_error *err)
{
    struct taking t = {.engine = engine, .config = config, .rank = rank, .report = report};
    struct sy_error why = {0};
    int status = syi_engine_init(engine, (uint64_t)config->train.seed, err);
    if (status || !*config->train.init_from) return status;
    status = take(&t, leaves, &why);
    if (status)
        return syi_error(err, status, "%s%s", strncmp(why.text, "train.", 6) ? "train.init_from: " : "",
                         why.text);
    status = syi_text_status(&report->notes, err);
    return status ? status : syi_text_status(&report->tensors, err);
}
