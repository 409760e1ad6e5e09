/* SPDX-License-Identifier: Apache-2.0 */
/* The evaluations of several tasks. */
#include "config.h"

#include <string.h>

#include "train/trainer/evaluations.h"

int syi_eval_files_load(struct syi_eval_files *files, const struct syi_config *config,
                        enum syi_eval_split split, const char *task, struct syi_world *world,
                        struct sy_error *err)
{
    char name[SYI_PART_NAME + 8];
    int status = SY_OK;

    memset(files, 0, sizeof(*files));
    for (int i = 0; !status && i < config->task.n; i++) {
        const struct syi_task_part *part = &config->task.part[i];
        const char *file = split == SYI_EVAL_VALID ? part->valid : part->test;
        if (!*file || (task && strcmp(task, part->name_of_part))) continue;
        snprintf(name, sizeof(name), "%s/%s", part->name_of_part, split == SYI_EVAL_VALID ? "valid" : "test");
        status = syi_eval_data_load(&files->data[files->n], config, part, name, file, world, err);
        files->n += !status;
    }
    if (status) syi_eval_files_free(files);
    return status;
}

void syi_eval_files_free(struct syi_eval_files *files)
{
    for (int i = 0; i < files->n; i++) syi_eval_data_free(&files->data[i]);
    files->n = 0;
}

int syi_eval_files_use(const struct syi_eval_files *files)
{
    int use = files->n ? SYI_USE_EVAL : 0;
    for (int i = 0; i < files->n; i++)
        if (syi_eval_decodes(&files->data[i])) use |= SYI_USE_DECODE;
    return use;
}

int syi_evaluations_open(struct syi_evaluations *e, const struct syi_eval_files *files,
                         const struct syi_config *config, struct syi_engine *engine,
                         const struct syi_rank *rank, const struct syi_report *report, struct sy_error *err)
{
    int status = SY_OK;

    e->n = 0;
    for (int i = 0; !status && i < files->n; i++) {
        status = syi_evaluation_open(&e->part[i], &files->data[i], config, engine, rank, report, err);
        e->n += !status;
    }
    if (status) syi_evaluations_close(e);
    return status;
}

void syi_evaluations_use(struct syi_evaluations *e, struct syi_engine *engine)
{
    for (int i = 0; i < e->n; i++) syi_evaluation_use(&e->part[i], engine);
}

void syi_evaluations_close(struct syi_evaluations *e)
{
    for (int i = 0; i < e->n; i++) syi_evaluation_close(&e->part[i]);
    e->n = 0;
}

int syi_evaluations_run(struct syi_evaluations *e, int decode, syi_poll_fn poll, void *poll_arg,
                        struct sy_error *err)
{
    int status = SY_OK;
    for (int i = 0; !status && i < e->n; i++)
        status = syi_evaluation_run(&e->part[i], decode, poll, poll_arg, &e->result[i], err);
    return status;
}

struct syi_file_id syi_evaluations_id(const struct syi_evaluations *e, int n)
{
    struct syi_file_id id = {0};
    for (int i = 0; i < n; i++) id = syi_file_id_join(&id, &e->part[i].data->task.id);
    return id;
}

void syi_evaluation_describe(const struct syi_evaluation *e, char *text, size_t bytes)
{
    snprintf(text, bytes, "%s: %d items, %d too long and %s", e->data->task.path, e->data->items.n_items,
             syi_evaluation_cut(e), syi_eval_decodes(e->data) ? "counted as wrong" : "left out");
}
