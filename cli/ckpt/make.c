/* SPDX-License-Identifier: Apache-2.0 */
/* switchyard ckpt average and cast: new parameters from checkpoints of a run, as a run directory that predict, eval, score
 * and train.init_from take. It has no optimizer state, so training cannot be resumed there. */
#include "config.h"

#include <math.h>
#include <string.h>

#include "cli/ckpt/ckpt.h"
#include "base/new_folder.h"
#include "train/launch/run_dir.h"

/* What is made: the mean of n checkpoints, in a dtype. */
struct making {
    struct syi_checkpoint_view *view; /* [n] */
    size_t n;
    enum syi_safetensors_dtype dtype;
};

/* The values of one tensor: added up in double in the order given, divided, and rounded once when they are written. */
static int fill_tensor(const struct making *m, const struct syi_safetensors *file,
                       const struct syi_safetensors_tensor *to, struct sy_error *err)
{
    static double sum[CKPT_CHUNK], value[CKPT_CHUNK];
    int64_t count = ckpt_count(to);
    int status = SY_OK;
    for (int64_t first = 0; first < count && !status; first += CKPT_CHUNK) {
        int64_t n = count - first < CKPT_CHUNK ? count - first : CKPT_CHUNK;
        memset(sum, 0, sizeof sum);
        for (size_t v = 0; v < m->n && !status; v++) {
            const struct syi_safetensors *from = &m->view[v].file[0];
            status = ckpt_read(from, syi_safetensors_find(from, to->name), first, n, value, err);
            for (int64_t i = 0; i < n; i++) sum[i] = v ? sum[i] + value[i] : value[i];
        }
        for (int64_t i = 0; i < n && m->n > 1; i++) sum[i] /= (double)m->n;
        if (!status) status = ckpt_write(file, to, first, n, sum, err);
    }
    return status;
}

static int fill(void *arg, const struct syi_safetensors *file, struct sy_error *err)
{
    int status = SY_OK;
    for (size_t i = 0; i < file->n_tensors && !status; i++)
        status = fill_tensor(arg, file, &file->tensors[i], err);
    return status;
}

/* Tensor i of the first is in all, with its shape. */
static int check_alike(const struct making *m, size_t i, struct sy_error *err)
{
    const struct syi_safetensors_tensor *first = &m->view[0].file[0].tensors[i];
    for (size_t v = 1; v < m->n; v++) {
        const struct syi_safetensors *file = &m->view[v].file[0];
        const struct syi_safetensors_tensor *other = syi_safetensors_find(file, first->name);
        if (file->n_tensors != m->view[0].file[0].n_tensors || !other || other->rank != first->rank ||
            memcmp(other->dims, first->dims, (size_t)first->rank * sizeof first->dims[0]))
            return syi_error(err, SY_EMISMATCH, "%s and %s are of different models: see %s", file->path,
                             m->view[0].file[0].path, first->name);
    }
    return SY_OK;
}

static int write_checkpoint(struct making *m, const char *to, struct sy_error *err)
{
    const struct syi_safetensors *file = &m->view[0].file[0];
    struct syi_checkpoint_list params = {0}, none = {0};
    struct syi_checkpoint_meta meta = {
        .step = m->view[m->n - 1].meta.step, .best_metric = NAN, .best_step = -1, .evaluated = -1};
    struct syi_safetensors_tensor *list = syi_alloc(file->n_tensors * sizeof *list, err);
    int status = list ? SY_OK : SY_ENOMEM;
    for (size_t i = 0; i < file->n_tensors && !status; i++) {
        list[i] = file->tensors[i];
        list[i].dtype = m->dtype;
        status = check_alike(m, i, err);
    }
    params.list = none.list = list;
    params.n = file->n_tensors;
    if (!status) status = syi_checkpoint_write(to, &meta, &params, &none, fill, m, err);
    syi_free(list);
    return status;
}

/* ---- the run directory ---- */

static int fill_run(struct making *m, const char *from, struct syi_run_dir *dir, struct sy_error *err)
{
    struct syi_config *config = syi_alloc(sizeof *config, err), *own = NULL;
    int status = config ? syi_run_dir_read_config(from, config, err) : SY_ENOMEM;
    if (!status) own = syi_config_copy(config, err);
    if (!status) status = own ? syi_run_dir_use_vocabularies(from, own, err) : SY_ENOMEM;
    if (!status) status = syi_run_dir_keep_vocabularies(dir, own, err);
    if (!status) status = write_checkpoint(m, dir->path, err);
    if (!status) status = syi_run_dir_status(dir, "done", err);
    if (!status) status = syi_run_dir_write_config(dir, config, err);
    syi_free(config);
    syi_free(own);
    return status;
}

struct run_making {
    struct making *making;
    const char *from;
};

static int write_run(void *arg, const char *path, const char *final, struct sy_error *err)
{
    const struct run_making *r = arg;
    struct syi_run_dir dir;
    (void) final;
    int status = syi_run_dir_open(path, NULL, &dir, err);
    if (status) return status;
    status = fill_run(r->making, r->from, &dir, err);
    syi_run_dir_close(&dir);
    return status;
}

/* The run is there when it is whole; of an attempt that failed nothing is. */
static int make_run(struct making *m, const char *from, const char *to)
{
    struct sy_error err = {0};
    struct run_making r = {m, from};
    if (syi_new_folder(to, write_run, &r, &err)) return cli_fail_or_stop(&err);
    printf("run directory %s\n", to);
    return CLI_DONE;
}

/* ---- the actions ---- */

/* Every file is compared with its checksum first: what is made of a damaged one would have sums of its own. */
static int open_views(struct making *m, const char *run, const int64_t *step, size_t n, struct sy_error *err)
{
    int status = SY_OK;
    m->view = syi_alloc(n * sizeof *m->view, err);
    if (!m->view) return SY_ENOMEM;
    for (; m->n < n && !status; m->n++)
        status = syi_checkpoint_view_take(run, step[m->n], 1, &m->view[m->n], err);
    return status;
}

static int make(struct making *m, const char *run, const int64_t *step, size_t n, const char *to)
{
    struct sy_error err = {0};
    cli_catch_interrupts();
    int result = open_views(m, run, step, n, &err) ? cli_fail_or_stop(&err) : make_run(m, run, to);
    for (size_t i = 0; i < m->n; i++) syi_checkpoint_view_close(&m->view[i]);
    syi_free(m->view);
    return result;
}

int ckpt_average(const struct cli_options *o, const char *const *operand)
{
    struct making m = {.dtype = SYI_SAFETENSORS_F32};
    struct sy_error err = {0};
    int64_t *step = NULL;
    size_t n = 0;
    if (!o->which || !o->folder) {
        cli_error("ckpt average: of which checkpoints, and where to? switchyard ckpt average RUN --steps "
                  "STEP,STEP,... --to DIR");
        return CLI_USAGE;
    }
    if (ckpt_parse_steps(o->which, &step, &n, &err)) return cli_usage(&err);
    int result = make(&m, operand[0], step, n, o->folder);
    syi_free(step);
    return result;
}

int ckpt_cast(const struct cli_options *o, const char *const *operand)
{
    static const char *const names[] = {"float32", "bfloat16"};
    struct making m = {.dtype = SYI_SAFETENSORS_F32};
    if (!o->dtype || !o->folder) {
        cli_error(
            "ckpt cast: to what, and where to? switchyard ckpt cast RUN --dtype bfloat16|float32 --to DIR");
        return CLI_USAGE;
    }
    if (strcmp(o->dtype, names[0]) && strcmp(o->dtype, names[1])) {
        cli_error("ckpt cast: unknown dtype %s, did you mean %s? (float32 or bfloat16)", o->dtype,
                  cli_nearest(o->dtype, names, 2));
        return CLI_USAGE;
    }
    if (!strcmp(o->dtype, "bfloat16")) m.dtype = SYI_SAFETENSORS_BF16;
    return make(&m, operand[0], &o->checkpoint, 1, o->folder);
}
