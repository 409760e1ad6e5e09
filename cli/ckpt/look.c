/* SPDX-License-Identifier: Apache-2.0 */
/* switchyard ckpt list, show and check: what is there, what is in one, whether it is whole. */
#include "config.h"

#include <math.h>
#include <sys/stat.h>
#include <time.h>

#include "cli/ckpt/ckpt.h"

/* ---- list ---- */

/* Bytes of all files of a checkpoint, and when it was written. */
static int measure(const struct syi_checkpoint_view *view, uint64_t *bytes, char date[32],
                   struct sy_error *err)
{
    struct stat info;
    struct tm local;
    char *meta = syi_format("%s/meta.json", view->folder);
    if (!meta) return syi_error(err, SY_ENOMEM, "out of memory");
    *bytes = 0;
    date[0] = '\0';
    for (int i = 0; i < 2; i++) *bytes += view->file[i].data_start + view->file[i].data_bytes;
    if (!stat(meta, &info)) {
        *bytes += (uint64_t)info.st_size;
        if (localtime_r(&info.st_mtime, &local)) strftime(date, 32, "%Y-%m-%d %H:%M:%S", &local);
    }
    syi_free(meta);
    return SY_OK;
}

static int list_one(const char *run, int64_t step, int is_best, int is_latest, struct ckpt_table *table,
                    struct sy_error *err)
{
    struct syi_checkpoint_view view;
    uint64_t bytes = 0;
    char date[32];
    int status = syi_checkpoint_view_open(run, step, &view, err);
    if (!status) status = measure(&view, &bytes, date, err);
    if (!status) status = ckpt_put(table, err, "%lld", (long long)step);
    if (!status) status = ckpt_put(table, err, "%llu", (unsigned long long)bytes);
    if (!status) status = ckpt_put(table, err, "%s", date);
    if (!status)
        status = ckpt_put(table, err, "%s%s%s", is_best ? "best" : "", is_best && is_latest ? "," : "",
                          is_latest ? "latest" : "");
    if (!status) status = ckpt_put(table, err, "%s", view.meta.params_sha256);
    syi_checkpoint_view_close(&view);
    return status;
}

int ckpt_list(const struct cli_options *o, const char *const *operand)
{
    struct ckpt_table table = {.column = {"step", "bytes", "date", "marks", "weights_sha256"}, .numbers = 3};
    struct sy_error err = {0};
    int64_t *steps = NULL, best = -1;
    size_t n = 0;
    int status = syi_checkpoint_list(operand[0], &steps, &n, &err);
    if (!status && !n) status = syi_checkpoint_none(operand[0], &err);
    if (!status) status = syi_checkpoint_best(operand[0], &best, &err);
    for (size_t i = 0; i < n && !status; i++)
        status = list_one(operand[0], steps[i], steps[i] == best, i + 1 == n, &table, &err);
    if (!status) status = ckpt_print(&table, o, &err);
    syi_free(steps);
    ckpt_table_free(&table);
    return status ? cli_fail(&err) : CLI_DONE;
}

/* ---- show ---- */

/* Root mean square and largest magnitude; NaN where an element is. */
static int measure_tensor(const struct syi_safetensors *file, const struct syi_safetensors_tensor *tensor,
                          double *rms, double *most, struct sy_error *err)
{
    static double value[CKPT_CHUNK];
    int64_t count = ckpt_count(tensor);
    double sum = 0;
    int status = SY_OK;
    *most = 0;
    for (int64_t first = 0; first < count && !status; first += CKPT_CHUNK) {
        int64_t n = count - first < CKPT_CHUNK ? count - first : CKPT_CHUNK;
        status = ckpt_read(file, tensor, first, n, value, err);
        for (int64_t i = 0; i < n && !status; i++) {
            sum += value[i] * value[i];
            if (!(fabs(value[i]) <= *most) && !isnan(*most)) *most = fabs(value[i]);
        }
    }
    *rms = count ? sqrt(sum / (double)count) : 0;
    return status;
}

static int show_tensor(const struct syi_safetensors *file, const struct syi_safetensors_tensor *tensor,
                       struct ckpt_table *table, struct sy_error *err)
{
    char shape[128];
    double rms, most;
    int status = measure_tensor(file, tensor, &rms, &most, err);
    ckpt_shape(tensor, shape);
    if (!status) status = ckpt_put(table, err, "%s", tensor->name);
    if (!status) status = ckpt_put(table, err, "%s", syi_safetensors_dtype_name(tensor->dtype));
    if (!status) status = ckpt_put(table, err, "%s", shape);
    if (!status) status = ckpt_put(table, err, "%lld", (long long)ckpt_count(tensor));
    if (!status) status = ckpt_put(table, err, "%.9g", rms);
    if (!status) status = ckpt_put(table, err, "%.9g", most);
    return status;
}

int ckpt_show(const struct cli_options *o, const char *const *operand)
{
    struct ckpt_table table = {.column = {"tensor", "dtype", "shape", "elements", "rms", "max"},
                               .numbers = 8 | 16 | 32};
    struct syi_checkpoint_view view;
    struct sy_error err = {0};
    int status = syi_checkpoint_view_open(operand[0], o->checkpoint, &view, &err);
    for (int f = 0; f < 2; f++)
        for (size_t i = 0; !status && i < view.file[f].n_tensors; i++)
            status = show_tensor(&view.file[f], &view.file[f].tensors[i], &table, &err);
    syi_checkpoint_view_close(&view);
    if (!status) status = ckpt_print(&table, o, &err);
    ckpt_table_free(&table);
    return status ? cli_fail(&err) : CLI_DONE;
}

/* ---- check ---- */

/* A line of what is whole; of what is not, an error each. */
static int check_one(const char *path, int64_t step)
{
    struct syi_checkpoint_view view;
    struct sy_error err = {0};
    int failed = syi_checkpoint_view_open(path, step, &view, &err) ||
                 (step >= 0 && syi_checkpoint_check_step(view.folder, step, &view.meta, &err));
    if (failed) cli_fail(&err);
    if (!failed && view.meta.is_sealed)
        printf("%s/meta.json: whole\n", view.folder);
    else if (!failed)
        printf("%s/meta.json: has no checksum of its own, as checkpoints of earlier versions\n", view.folder);
    for (int i = 0; i < 2 && view.file[i].path; i++) {
        struct sy_error why = {0};
        if (syi_checkpoint_view_check(&view, i, &why)) {
            failed = 1;
            cli_fail(&why);
        } else {
            printf("%s: whole, %zu tensors\n", view.file[i].path, view.file[i].n_tensors);
        }
    }
    syi_checkpoint_view_close(&view);
    return failed;
}

/* A folder that has the name of a checkpoint and is none; the others are checked all the same. */
static void note_damaged(void *arg, const struct sy_error *why)
{
    int *failed = arg;
    *failed = 1;
    cli_fail(why);
}

int ckpt_check(const struct cli_options *o, const char *const *operand)
{
    struct sy_error err = {0};
    int64_t *steps = NULL;
    size_t n = 0;
    int failed = 0;
    (void)o;
    if (syi_checkpoint_list_whole(operand[0], note_damaged, &failed, &steps, &n, &err)) return cli_fail(&err);
    for (size_t i = 0; i < n; i++) failed |= check_one(operand[0], steps[i]);
    if (!n && !failed) failed = check_one(operand[0], SYI_CHECKPOINT_LATEST); /* the folder of one */
    syi_free(steps);
    return failed ? CLI_FAILED : CLI_DONE;
}
