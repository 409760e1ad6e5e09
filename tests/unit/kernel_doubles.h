/* SPDX-License-Identifier: Apache-2.0 */
/* Calls of the reference in double, made of float32 ones, for gradients by differences. */
#ifndef KERNEL_DOUBLES_H
#define KERNEL_DOUBLES_H

#include "kernel_harness.h"

struct doubles {
    struct sy_host host;
    struct sy_tensor in[SY_MAX_IN], out[SY_MAX_OUT];
    struct sy_call call;
};

static inline void doubles_serial(void *arg, int64_t n, void (*fn)(void *, int64_t, int), void *fn_arg)
{
    (void)arg;
    for (int64_t i = 0; i < n; i++) fn(fn_arg, i, 0);
}

static inline void doubles_widen(struct sy_tensor *to, const struct sy_tensor *from)
{
    *to = *from;
    to->data = NULL;
    if (!from->rank) return; /* absent */
    to->data = calloc((size_t)sycpu_count(from) + 1, sizeof(double));
    cr_assert_not_null(to->data);
    if (from->data && from->dtype != SY_F32) memcpy(to->data, from->data, kh_bytes(from));
    for (int64_t i = 0; from->data && from->dtype == SY_F32 && i < sycpu_count(from); i++)
        ((double *)to->data)[i] = ((float *)from->data)[i];
}

/* What k holds. workspace: of the kernel that is to run; NULL: it needs none. */
static inline void doubles_begin(struct doubles *d, const struct kh *k, sycpu_workspace *workspace)
{
    memset(d, 0, sizeof *d);
    d->host.threads = 1;
    d->host.parallel_for = doubles_serial;
    for (int i = 0; i < k->n_in; i++) doubles_widen(&d->in[i], &k->in[i]);
    for (int i = 0; i < k->n_out; i++) doubles_widen(&d->out[i], &k->out[i]);
    d->call = (struct sy_call){.host = &d->host, .in = d->in, .out = d->out, .attr = k->attr};
    d->call.op = (uint16_t)k->op;
    d->call.n_in = (uint8_t)k->n_in;
    d->call.n_out = (uint8_t)k->n_out;
    d->call.workspace = calloc(1, (workspace ? workspace(&d->call, 1) : 0) + 1);
    cr_assert_not_null(d->call.workspace);
}

static inline void doubles_end(struct doubles *d)
{
    for (int i = 0; i < SY_MAX_IN; i++) free(d->in[i].data);
    for (int i = 0; i < SY_MAX_OUT; i++) free(d->out[i].data);
    free(d->call.workspace);
}

#endif
