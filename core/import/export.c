/* SPDX-License-Identifier: Apache-2.0 */
/* What is common to all forms of export: the checkpoint, the table of forms, the folder. */
#include "config.h"

#include <string.h>

#include "import/export.h"
#include "base/new_folder.h"
#include "import/import.h"
#include "train/checkpoint/checkpoint.h"

static const struct syi_export_format *const formats[] = {&syi_export_hf, &syi_export_safetensors,
                                                          &syi_export_t5x};

static int find_format(const char *name, const struct syi_export_format **format, struct sy_error *err)
{
    char known[200] = "";
    size_t used = 0;
    for (size_t i = 0; i < SYI_COUNT(formats); i++) {
        *format = formats[i];
        if (!strcmp(name, formats[i]->name)) return SY_OK;
        if (used < sizeof known)
            used +=
                (size_t)snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "", formats[i]->name);
    }
    return syi_error(err, SY_EINVAL, "there is no format %s: one of %s", name, known);
}

int syi_export_check(const char *format, struct sy_error *err)
{
    const struct syi_export_format *found;
    return find_format(format, &found, err);
}

struct writing {
    struct syi_export *export;
    const struct syi_export_format *format;
};

static int fill(void *arg, const char *path, const char *final, struct sy_error *err)
{
    struct writing *w = arg;
    (void) final;
    return w->format->write(w->export, path, err);
}

/* The files of a checkpoint, with all their checksums compared. */
static int open_checkpoint(struct syi_export *export, int64_t step, struct sy_error *err)
{
    const struct syi_safetensors none = {.fd = -1};
    struct syi_checkpoint_view view;
    int status = syi_checkpoint_view_take(export->run_dir, step, 2, &view, err);
    if (!status) {
        export->step = view.meta.step;
        export->params = view.file[0];
        export->state = view.file[1];
        view.file[0] = view.file[1] = none;
    }
    syi_checkpoint_view_close(&view);
    return status;
}

/* Whether a parameter of the model is there with its shape. */
static int has_parameter(const struct syi_export *export, const struct syi_param *param)
{
    char name[sizeof param->name + 8];
    snprintf(name, sizeof name, "target/%s", param->name);
    const struct syi_safetensors_tensor *tensor = syi_safetensors_find(&export->params, name);
    return tensor && tensor->rank == param->rank &&
           !memcmp(tensor->dims, param->dim, (size_t)param->rank * sizeof param->dim[0]);
}

/* Keys that were changed for the export must leave the model one that has these weights, no fewer and no others. */
static int check_weights(const struct syi_export *export, struct sy_error *err)
{
    struct syi_model model = {0};
    size_t i = 0;
    int status = syi_import_model(&export->config, &model, err);
    while (i < model.n && has_parameter(export, &model.param[i])) i++;
    if (!status && i < model.n)
        status =
            syi_error(err, SY_EMISMATCH,
                      "%s has other weights than this model, the first is %s: leave out --set of keys that "
                      "make another model",
                      export->run_dir, model.param[i].name);
    else if (!status && model.n != export->params.n_tensors)
        status = syi_error(
            err, SY_EMISMATCH,
            "%s has %zu parameters and this model %zu: leave out --set of keys that make another model",
            export->run_dir, export->params.n_tensors, model.n);
    syi_model_free(&model);
    return status;
}

int syi_export_run(struct syi_export *export, const char *run_dir, int64_t step, const char *format,
                   const char *to, struct sy_error *err)
{
    struct writing w = {.export = export};
    export->run_dir = run_dir;
    export->params.fd = export->state.fd = -1;
    int status = find_format(format, &w.format, err);
    if (!status) status = open_checkpoint(export, step, err);
    if (!status) status = check_weights(export, err);
    if (status) return status;
    status = syi_new_folder(to, fill, &w, err);
    return status ? status : syi_text_status(&export->said, err);
}

void syi_export_free(struct syi_export *export)
{
    syi_safetensors_close(&export->params);
    syi_safetensors_close(&export->state);
    syi_text_free(&export->said);
}
