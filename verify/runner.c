/* SPDX-License-Identifier: Apache-2.0 */
/* A recording of a few ops over the tensors of a case: inputs by name, letters that tie extents together,
 * gradients of everything the case has a gradient of, one rank, one program. */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "program/grad.h"
#include "program/record.h"
#include "verify/verify.h"

static const struct {
    char letter;
    uint8_t axis;
} axes[] = {{'b', SYI_AXIS_BATCH},  {'t', SYI_AXIS_LENGTH}, {'d', SYI_AXIS_EMBED}, {'h', SYI_AXIS_HEADS},
            {'n', SYI_AXIS_HEADS},  {'f', SYI_AXIS_MLP},    {'v', SYI_AXIS_VOCAB}, {'r', SYI_AXIS_BUCKETS},
            {'e', SYI_AXIS_ROUTER}, {'k', SYI_AXIS_CHOICE}, {'g', SYI_AXIS_GROUP}};

static uint8_t axis_of(char letter)
{
    for (size_t i = 0; i < SYI_COUNT(axes); i++)
        if (axes[i].letter == letter) return axes[i].axis;
    return SYI_AXIS_NONE;
}

int verify_run_begin(struct verify_run *run, const struct verify_context *context,
                     const struct verify_case *c, struct sy_error *err)
{
    memset(run, 0, sizeof *run);
    run->context = context;
    run->item = c;
    return syi_program_new("verify", &run->p, err);
}

void verify_run_end(struct verify_run *run)
{
    if (run->session)
        syi_session_free(run->session); /* owns the program */
    else if (run->p)
        syi_program_free(run->p);
    memset(run, 0, sizeof *run);
}

void verify_extent(struct verify_run *run, char letter, int64_t extent)
{
    run->extent[letter & 127] = extent;
}

/* ---- inputs ---- */

static int fail(struct verify_run *run, const char *name, const char *reason)
{
    return syi_program_fail(run->p, SY_EFORMAT, "tensor %s: %s", name, reason);
}

static int remember(struct verify_run *run, int tensor, const struct verify_tensor *from, const void *values)
{
    if (tensor >= 0) run->put[run->n_put++] = (struct verify_put){tensor, from, values};
    return tensor;
}

/* Ties a dim to its letter; 0 after having failed the recording. */
static int tie(struct verify_run *run, const char *name, char letter, int64_t extent)
{
    int64_t *known = &run->extent[letter & 127];
    if (extent < 1) fail(run, name, "it is empty");
    if (*known && *known != extent)
        syi_program_fail(run->p, SY_EFORMAT, "tensor %s: a dim is %lld, elsewhere it is %lld", name,
                         (long long)extent, (long long)*known);
    *known = extent;
    return !run->p->status;
}

/* Extents and axes of a tensor without the dims that are left out; its rank, or -1. */
static int layout(struct verify_run *run, const struct verify_tensor *t, const char *letters,
                  int64_t dim[SY_MAX_DIMS], uint8_t axis[SY_MAX_DIMS])
{
    int rank = 0;
    if (t->rank != (int)strlen(letters)) return fail(run, t->name, "it has another number of dims");
    for (int i = 0; i < t->rank; i++) {
        if (letters[i] == '-') {
            if (t->dim[i] != 1) return fail(run, t->name, "a dim that is 1 elsewhere is longer");
            continue;
        }
        if (rank == SY_MAX_DIMS) return fail(run, t->name, "it has too many dims");
        if (!tie(run, t->name, letters[i], t->dim[i])) return -1;
        dim[rank] = t->dim[i];
        axis[rank++] = axis_of(letters[i]);
    }
    return rank;
}

int verify_in_as(struct verify_run *run, const char *as, const char *name, const char *letters)
{
    int64_t dim[SY_MAX_DIMS];
    uint8_t axis[SY_MAX_DIMS];
    if (run->p->status) return -1;
    int there = syi_program_find(run->p, as);
    if (there >= 0) return there;
    const struct verify_tensor *t = verify_find(run->item, name);
    if (!t) return fail(run, name, "it is missing");
    if (run->n_put == (int)SYI_COUNT(run->put)) return fail(run, name, "too many inputs");
    int rank = layout(run, t, letters, dim, axis);
    if (rank < 0) return -1;
    int dtype = t->real ? SY_F32 : SY_I32;
    const void *values = t->real ? (const void *)t->real : t->integer;
    return remember(run, syi_tensor_add(run->p, as, SYI_INPUT, dtype, rank, dim, axis), t, values);
}

int verify_in(struct verify_run *run, const char *name, const char *letters)
{
    return verify_in_as(run, name, name, letters);
}

int verify_given(struct verify_run *run, const char *name, int dtype, const char *letters, const void *values)
{
    int64_t dim[SY_MAX_DIMS];
    uint8_t axis[SY_MAX_DIMS];
    int rank = (int)strlen(letters);
    if (run->p->status) return -1;
    if (run->n_put == (int)SYI_COUNT(run->put) || rank > SY_MAX_DIMS)
        return fail(run, name, "too many inputs or dims");
    for (int i = 0; i < rank; i++) {
        dim[i] = run->extent[letters[i] & 127];
        axis[i] = axis_of(letters[i]);
        if (dim[i] < 1) return fail(run, name, "the length of a dim is not known yet");
    }
    return remember(run, syi_tensor_add(run->p, name, SYI_INPUT, dtype, rank, dim, axis), NULL, values);
}

/* ---- results ---- */

void verify_out(struct verify_run *run, int tensor, const char *name)
{
    if (run->p->status) return;
    if (tensor < 0 || run->n_out == (int)SYI_COUNT(run->out)) {
        fail(run, name, tensor < 0 ? "it is not recorded" : "too many results");
        return;
    }
    struct verify_out *out = &run->out[run->n_out++];
    snprintf(out->name, sizeof out->name, "%s", name);
    out->tensor = tensor;
}

int verify_against(struct verify_run *run, int y, const char *cotangent, const char *letters)
{
    return syi_total(run->p, syi_map2(run->p, SY_MAP_MUL, y, verify_in(run, cotangent, letters)));
}

/* The name of an input's gradient; 0 when the case has none. */
static int gradient_name(const struct verify_run *run, const struct verify_tensor *from, char name[160])
{
    if (!from || !from->real) return 0;
    if (!strncmp(from->name, "param/", 6))
        snprintf(name, 160, "grad/%s", from->name + 6);
    else if (!strncmp(from->name, "in/", 3))
        snprintf(name, 160, "grad_in/%s", from->name + 3);
    else
        return 0;
    return verify_find(run->item, name) != NULL;
}

void verify_differentiate(struct verify_run *run, int scalar)
{
    enum { MOST = SYI_COUNT(run->put) };
    char name[MOST][160];
    int of[MOST], gradient[MOST], n = 0;
    struct sy_error err = {0};
    if (run->p->status) return;
    for (int i = 0; i < run->n_put; i++)
        if (gradient_name(run, run->put[i].from, name[n])) of[n++] = run->put[i].tensor;
    if (!n || syi_grad(run->p, scalar, n, of, gradient, &err)) return; /* the recording keeps the error */
    for (int i = 0; i < n; i++) {
        if (gradient[i] < 0) gradient[i] = syi_constant_like(run->p, 0, of[i]);
        verify_out(run, gradient[i], name[i]);
    }
}

/* Results are copies, as a tensor may be an input or have two names; integers are what they are. */
static void name_results(struct verify_run *run)
{
    for (int i = 0; i < run->n_out && !run->p->status; i++) {
        int t = run->out[i].tensor;
        if (run->p->tensor[t].dtype == SY_F32) t = syi_map1(run->p, SY_MAP_COPY, t, 0);
        syi_output(run->p, t, run->out[i].name);
    }
}

/* ---- running ---- */

static int64_t count(const struct sy_tensor *t)
{
    int64_t n = 1;
    for (int i = 0; i < t->rank; i++) n *= t->dim[i];
    return n;
}

int verify_run_again(struct verify_run *run, struct sy_error *err)
{
    for (int i = 0; i < run->n_put; i++) {
        const struct syi_tensor *info = &run->p->tensor[run->put[i].tensor];
        const struct sy_tensor *t = syi_session_tensor(run->session, syi_program_name(run->p, info->name));
        if (t) memcpy(t->data, run->put[i].values, (size_t)count(t) * syi_dtype_bytes(info->dtype));
    }
    return syi_session_run(run->session, 0, err);
}

int verify_run_execute(struct verify_run *run, struct sy_error *err)
{
    const struct syi_rank *rank = run->context->rank;
    struct syi_session_options options = {
        .backend = rank->backend, .comm = rank->comm, .mesh = &rank->mesh, .reproducible = 1};
    int index;
    name_results(run);
    int status = syi_program_status(run->p, err);
    if (!status) status = syi_program_check(run->p, "record", err);
    if (!status) status = syi_session_new(&options, &run->session, err);
    if (!status) status = syi_session_add(run->session, run->p, &index, err);
    if (!status) status = syi_session_bind(run->session, err);
    return status ? status : verify_run_again(run, err);
}

const void *verify_got(const struct verify_run *run, const char *name, int64_t *n)
{
    const struct sy_tensor *t = run->session ? syi_session_tensor(run->session, name) : NULL;
    if (t && n) *n = count(t);
    return t ? t->data : NULL;
}

void verify_run_report(const struct verify_run *run, struct verify_report *r)
{
    for (int i = 0; i < run->n_out; i++) {
        int64_t n = 0;
        const void *got = verify_got(run, run->out[i].name, &n);
        if (run->p->tensor[run->out[i].tensor].dtype == SY_I32)
            verify_integers(r, run->out[i].name, got, n);
        else
            verify_floats(r, run->out[i].name, got, n);
    }
}
