/* SPDX-License-Identifier: Apache-2.0 */
/* Time and cost of every op of a session, and sums of them by kind, by layer or by shape. The clock is read directly
 * around the kernel; what an op costs is worked out afterwards. On a device the counts of tokens of experts are not seen,
 * and all slots count as filled. */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/bench/bench.h"

static int dtype_of(const struct sy_call *call)
{
    for (int i = 0; i < call->n_in; i++)
        if (call->in[i].rank && syi_is_float(call->in[i].dtype)) return call->in[i].dtype;
    return SY_F32;
}

static void on_op(void *arg, int program, size_t op, const struct sy_call *call, int after)
{
    struct bench_profile *profile = arg;
    if (!after) {
        profile->begin = syi_seconds();
        return;
    }
    double seconds = syi_seconds() - profile->begin;
    struct bench_op *o = &profile->op[program][op];
    struct syi_cost cost = syi_call_cost(call);
    o->least = o->calls ? fmin(o->least, seconds) : seconds;
    o->calls++;
    o->seconds += seconds;
    o->flops += cost.flops;
    o->bytes += cost.bytes;
    o->product = cost.product;
    o->dtype = dtype_of(call);
}

/* The first three parts of a layer's path; all of the update, which has a layer for each parameter, is one.
 */
static void layer_name(const struct syi_program *p, const struct syi_op *op, char *name, size_t bytes)
{
    const char *layer = syi_program_name(p, op->layer), *end = layer;
    if (!strcmp(p->title, "update")) layer = end = "update";
    if (!*layer) layer = end = "(none)";
    for (int parts = 0; *end; end++)
        if (*end == '/' && ++parts == 3) break;
    if (end == layer) end += strlen(end);
    snprintf(name, bytes, "%.*s", (int)(end - layer), layer);
}

static void put_extents(struct syi_text *text, const char *before, const struct syi_program *p, int tensor)
{
    if (tensor < 0) return;
    const struct syi_tensor *t = &p->tensor[tensor];
    for (int i = 0; i < t->rank; i++) syi_text_printf(text, "%s%lld", i ? "x" : before, (long long)t->dim[i]);
}

static void shape_name(const struct syi_program *p, const struct syi_op *op, char *name, size_t bytes)
{
    struct syi_text text = syi_text_in(name, bytes);
    syi_text_puts(&text, syi_op_info(op->op)->name);
    for (int i = 0; i < op->n_in && i < 2; i++) put_extents(&text, " ", p, op->in[i]);
    if (op->n_out) put_extents(&text, " -> ", p, op->out[0]);
}

static int add_program(struct bench_profile *profile, const struct syi_program *p, struct sy_error *err)
{
    size_t at = profile->n_programs;
    struct bench_op *ops = profile->op[at] = syi_alloc(p->n_ops * sizeof *ops, err);
    if (!ops) return SY_ENOMEM;
    profile->n_ops[at] = p->n_ops;
    profile->n_programs++;
    for (size_t i = 0; i < p->n_ops; i++) {
        ops[i].kind = syi_op_info(p->op[i].op)->name;
        layer_name(p, &p->op[i], ops[i].layer, sizeof ops[i].layer);
        shape_name(p, &p->op[i], ops[i].shape, sizeof ops[i].shape);
    }
    return SY_OK;
}

int bench_profile_start(struct bench_profile *profile, struct syi_session *session, struct sy_error *err)
{
    const struct syi_program *p;
    size_t n = 0;
    *profile = (struct bench_profile){.session = session};
    while (syi_session_program(session, (int)n)) n++;
    profile->op = syi_alloc(n * sizeof *profile->op, err);
    profile->n_ops = syi_alloc(n * sizeof *profile->n_ops, err);
    int status = profile->op && profile->n_ops ? SY_OK : SY_ENOMEM;
    while (!status && (p = syi_session_program(session, (int)profile->n_programs)))
        status = add_program(profile, p, err);
    if (status)
        bench_profile_free(profile);
    else
        syi_session_time(session, on_op, profile);
    return status;
}

void bench_profile_stop(struct bench_profile *profile)
{
    syi_session_hook(profile->session, NULL, NULL);
}

void bench_profile_free(struct bench_profile *profile)
{
    for (size_t i = 0; i < profile->n_programs; i++) syi_free(profile->op[i]);
    syi_free(profile->op);
    syi_free(profile->n_ops);
    *profile = (struct bench_profile){0};
}

/* ---- sums ---- */

static struct bench_row *row_of(struct bench_rows *rows, const char *name, struct sy_error *err)
{
    for (size_t i = 0; i < rows->n; i++)
        if (!strcmp(rows->row[i].name, name)) return &rows->row[i];
    if (SYI_GROW(rows->row, rows->capacity, rows->n + 1, err)) return NULL;
    struct bench_row *row = &rows->row[rows->n++];
    snprintf(row->name, sizeof row->name, "%s", name);
    return row;
}

/* The name that an op has in such a table; NULL: it is in none of its rows. */
static const char *name_in(const struct bench_op *op, int by)
{
    if (by == BENCH_BY_SHAPE) return op->product ? op->shape : NULL;
    return by == BENCH_BY_KIND ? op->kind : op->layer;
}

static void add(struct bench_row *row, const struct bench_op *op, const struct bench_machine *machine)
{
    row->calls += op->calls;
    row->seconds += op->seconds;
    row->flops += op->flops;
    row->bytes += op->bytes;
    row->least += op->least;
    row->roof += bench_roof(machine, op->dtype, op->flops, op->bytes);
}

static int slowest_first(const void *a, const void *b)
{
    double x = ((const struct bench_row *)a)->seconds, y = ((const struct bench_row *)b)->seconds;
    return (x < y) - (x > y);
}

int bench_group(const struct bench_profile *profile, const struct bench_machine *machine, int by,
                struct bench_rows *rows, struct sy_error *err)
{
    *rows = (struct bench_rows){0};
    for (size_t i = 0; i < profile->n_programs; i++) {
        for (size_t k = 0; k < profile->n_ops[i]; k++) {
            const struct bench_op *op = &profile->op[i][k];
            const char *name = name_in(op, by);
            rows->seconds += op->seconds;
            if (!op->calls || !name) continue;
            struct bench_row *row = row_of(rows, name, err);
            if (!row) return SY_ENOMEM;
            add(row, op, machine);
        }
    }
    if (rows->n) qsort(rows->row, rows->n, sizeof *rows->row, slowest_first);
    return SY_OK;
}

struct bench_row bench_find(const struct bench_rows *rows, const char *name)
{
    for (size_t i = 0; i < rows->n; i++)
        if (!strcmp(rows->row[i].name, name)) return rows->row[i];
    return (struct bench_row){0};
}

void bench_rows_free(struct bench_rows *rows)
{
    syi_free(rows->row);
    *rows = (struct bench_rows){0};
}
