/* SPDX-License-Identifier: Apache-2.0 */
/* switchyard ckpt diff: two checkpoints tensor by tensor. Values are compared, so a bfloat16 and the float32 that it was
 * widened to are equal; NaN is NaN. */
#include "config.h"

#include <math.h>
#include <string.h>

#include "cli/ckpt/ckpt.h"

struct distance {
    double absolute, relative; /* the largest; relative to the larger magnitude of the two elements */
    int64_t different;         /* elements */
};

static const struct distance unknown = {NAN, NAN, 0};

static void add(struct distance *d, double a, double b)
{
    if (a == b || (isnan(a) && isnan(b))) return;
    double absolute = fabs(a - b), relative = absolute / fmax(fabs(a), fabs(b));
    d->different++;
    if (!isfinite(absolute)) absolute = relative = INFINITY; /* a NaN or infinity on one side */
    if (absolute > d->absolute) d->absolute = absolute;
    if (relative > d->relative) d->relative = relative;
}

static int measure(const struct syi_safetensors *const file[2],
                   const struct syi_safetensors_tensor *const tensor[2], struct distance *d,
                   struct sy_error *err)
{
    static double a[CKPT_CHUNK], b[CKPT_CHUNK];
    int64_t count = ckpt_count(tensor[0]);
    int status = SY_OK;
    for (int64_t first = 0; first < count && !status; first += CKPT_CHUNK) {
        int64_t n = count - first < CKPT_CHUNK ? count - first : CKPT_CHUNK;
        status = ckpt_read(file[0], tensor[0], first, n, a, err);
        if (!status) status = ckpt_read(file[1], tensor[1], first, n, b, err);
        for (int64_t i = 0; i < n && !status; i++) add(d, a[i], b[i]);
    }
    return status;
}

/* "-": there is no such number. */
static int put_number(struct ckpt_table *table, double value, struct sy_error *err)
{
    return isnan(value) ? ckpt_put(table, err, "-") : ckpt_put(table, err, "%.9g", value);
}

static int put_row(struct ckpt_table *table, const char *name, const char *what, struct distance d,
                   struct sy_error *err)
{
    int status = ckpt_put(table, err, "%s", name);
    if (!status) status = ckpt_put(table, err, "%s", what);
    if (!status) status = ckpt_put(table, err, "%lld", (long long)d.different);
    if (!status) status = put_number(table, d.absolute, err);
    return status ? status : put_number(table, d.relative, err);
}

static int compare_tensor(const struct syi_safetensors *const file[2],
                          const struct syi_safetensors_tensor *const tensor[2], struct ckpt_table *table,
                          struct sy_error *err)
{
    struct distance d = {0};
    char shape[2][128], what[280];
    if (tensor[0]->rank != tensor[1]->rank ||
        memcmp(tensor[0]->dims, tensor[1]->dims, (size_t)tensor[0]->rank * sizeof tensor[0]->dims[0])) {
        for (int i = 0; i < 2; i++) ckpt_shape(tensor[i], shape[i]);
        snprintf(what, sizeof what, "shapes %s and %s", shape[0], shape[1]);
        return put_row(table, tensor[0]->name, what, unknown, err);
    }
    int status = measure(file, tensor, &d, err);
    return status || !d.different ? status : put_row(table, tensor[0]->name, "values", d, err);
}

/* Both lists are in the order of their names. */
static int compare_files(const struct syi_safetensors *a, const struct syi_safetensors *b,
                         struct ckpt_table *table, struct sy_error *err)
{
    const struct syi_safetensors *const file[2] = {a, b};
    size_t i = 0, j = 0;
    int status = SY_OK;
    while (!status && (i < a->n_tensors || j < b->n_tensors)) {
        int order = i == a->n_tensors   ? 1
                    : j == b->n_tensors ? -1
                                        : strcmp(a->tensors[i].name, b->tensors[j].name);
        if (order < 0) {
            status = put_row(table, a->tensors[i++].name, "only in A", unknown, err);
        } else if (order > 0) {
            status = put_row(table, b->tensors[j++].name, "only in B", unknown, err);
        } else {
            const struct syi_safetensors_tensor *const tensor[2] = {&a->tensors[i++], &b->tensors[j++]};
            status = compare_tensor(file, tensor, table, err);
        }
    }
    return status;
}

int ckpt_diff(const struct cli_options *o, const char *const *operand)
{
    struct ckpt_table table = {.column = {"tensor", "difference", "elements", "largest", "relative"},
                               .numbers = 4 | 8 | 16};
    struct syi_checkpoint_view a, b;
    struct sy_error err = {0};
    int status = syi_checkpoint_view_open(operand[0], o->checkpoint, &a, &err);
    int second = status ? status : syi_checkpoint_view_open(operand[1], o->checkpoint, &b, &err);
    for (int i = 0; i < 2 && !second; i++) second = compare_files(&a.file[i], &b.file[i], &table, &err);
    if (!status) syi_checkpoint_view_close(&b);
    syi_checkpoint_view_close(&a);
    if (!second && (table.n_cells || o->json)) second = ckpt_print(&table, o, &err);
    int differ = table.n_cells != 0;
    ckpt_table_free(&table);
    return second ? cli_fail(&err) : differ ? CLI_FAILED : CLI_DONE;
}
