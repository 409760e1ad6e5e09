/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the tests of gradients and models: programs of one rank run in a session, over the kernels in
 * double (the program is turned into double first) or over the CPU backend; values in and out by tensor and
 * index. */
#ifndef MODEL_SUPPORT_H
#define MODEL_SUPPORT_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>

#include "optim/optim.h"
#include "program/record.h"
#include "runtime/session.h"

extern const struct sy_backend_desc sy_backend_cpu64;

struct ms {
    int precise; /* 1: double */
    struct syi_mesh mesh;
    struct syi_comm comm;
    struct syi_backend *backend;
    struct syi_session *session;
};

/* ---- sessions ---- */

static inline void ms_open(struct ms *m, int precise)
{
    struct sy_error err = {0};
    memset(m, 0, sizeof *m);
    m->precise = precise;
    int status = precise ? syi_backend_open_linked(&sy_backend_cpu64, NULL, NULL, &m->backend, &err)
                         : syi_backend_open("cpu", NULL, NULL, &m->backend, &err);
    cr_assert_eq(status, SY_OK, "%s", err.text);
    cr_assert_eq(syi_mesh_new(&m->mesh, 1, 1, 1, 1, 0, &err), SY_OK, "%s", err.text);
    syi_comm_self(&m->comm);
    struct syi_session_options options = {
        .backend = m->backend, .comm = &m->comm, .mesh = &m->mesh, .reproducible = 1, .fold = 1};
    cr_assert_eq(syi_session_new(&options, &m->session, &err), SY_OK, "%s", err.text);
}

static inline int ms_add(struct ms *m, struct syi_program *program)
{
    struct sy_error err = {0};
    int index;
    for (size_t i = 0; m->precise && i < program->n_tensors; i++)
        if (program->tensor[i].dtype == SY_F32) program->tensor[i].dtype = SY_F64;
    cr_assert_eq(syi_session_add(m->session, program, &index, &err), SY_OK, "%s", err.text);
    return index;
}

static inline void ms_bind(struct ms *m)
{
    struct sy_error err = {0};
    cr_assert_eq(syi_session_bind(m->session, &err), SY_OK, "%s", err.text);
}

static inline void ms_run(struct ms *m, int program)
{
    struct sy_error err = {0};
    cr_assert_eq(syi_session_run(m->session, program, &err), SY_OK, "%s", err.text);
}

static inline void ms_close(struct ms *m)
{
    syi_session_free(m->session);
    syi_comm_close(&m->comm);
    syi_backend_close(m->backend);
}

/* ---- values ---- */

static inline const struct sy_tensor *ms_tensor(const struct ms *m, const char *name)
{
    const struct sy_tensor *t = syi_session_tensor(m->session, name);
    cr_assert_not_null(t, "there is no tensor %s", name);
    return t;
}

static inline int64_t ms_count(const struct sy_tensor *t)
{
    int64_t n = 1;
    for (int i = 0; i < t->rank; i++) n *= t->dim[i];
    return n;
}

static inline size_t ms_bytes(const struct sy_tensor *t)
{
    return (size_t)ms_count(t) * syi_dtype_bytes(t->dtype);
}

static inline double ms_get(const struct sy_tensor *t, int64_t i)
{
    switch (t->dtype) {
    case SY_F32: return (double)((const float *)t->data)[i];
    case SY_F64: return ((const double *)t->data)[i];
    case SY_I32: return ((const int32_t *)t->data)[i];
    default: return (double)((const int64_t *)t->data)[i];
    }
}

static inline void ms_set(const struct sy_tensor *t, int64_t i, double value)
{
    switch (t->dtype) {
    case SY_F32: ((float *)t->data)[i] = (float)value; break;
    case SY_F64: ((double *)t->data)[i] = value; break;
    case SY_I32: ((int32_t *)t->data)[i] = (int32_t)value; break;
    default: ((int64_t *)t->data)[i] = (int64_t)value;
    }
}

/* A copy of a tensor's values in double; free it. */
static inline double *ms_values(const struct sy_tensor *t)
{
    double *value = malloc((size_t)ms_count(t) * sizeof *value);
    cr_assert_not_null(value);
    for (int64_t i = 0; i < ms_count(t); i++) value[i] = ms_get(t, i);
    return value;
}

/* A copy of a tensor's bytes; free it. */
static inline void *ms_copy(const struct sy_tensor *t)
{
    void *copy = malloc(ms_bytes(t));
    cr_assert_not_null(copy);
    return memcpy(copy, t->data, ms_bytes(t));
}

/* What the host sets for a step of the optimizers; rate: that of the run. */
static inline void ms_optim_scalars(struct ms *m, const struct syi_config *config, int64_t step, double rate)
{
    struct sy_error err = {0};
    float value[SYI_OPTIM_SCALARS];
    struct syi_chain *chains;
    cr_assert_eq(syi_chains_make(config, &chains, &err), SY_OK, "%s", err.text);
    syi_optim_scalars(config, chains, step, rate, 1, value);
    syi_chains_free(chains, config->optimizer.n);
    for (uint32_t i = 0; i < SYI_OPTIM_SCALARS; i++) {
        const struct sy_tensor *t = syi_session_find_any(m->session, SYI_ROLE_OPTIM_SCALAR, i);
        if (t) ms_set(t, 0, value[i]);
    }
}

/* ---- random numbers, the same in every run ---- */

struct ms_random {
    uint64_t state;
};

static inline uint32_t ms_next(struct ms_random *r)
{
    r->state = r->state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(r->state >> 32);
}

static inline int ms_below(struct ms_random *r, int n)
{
    return (int)(ms_next(r) % (uint32_t)n);
}

static inline double ms_uniform(struct ms_random *r)
{
    return (double)ms_next(r) * 0x1p-31 - 1;
}

/* ---- finite differences ---- */

/* d(loss)/d(element i of t) by central differences; loss(arg) runs what has to be run. */
static inline double ms_slope(const struct sy_tensor *t, int64_t i, double step, double (*loss)(void *arg),
                              void *arg)
{
    double x = ms_get(t, i);
    ms_set(t, i, x + step);
    double high = loss(arg);
    ms_set(t, i, x - step);
    double low = loss(arg);
    ms_set(t, i, x);
    return (high - low) / (2 * step);
}

/* Compares the slope at element i with gradient[i]: relative to the largest gradient element of the tensor.
 */
static inline void ms_compare_slope(double slope, double gradient, double largest, const char *what,
                                    int64_t i)
{
    double error = fabs(slope - gradient) / largest;
    cr_assert(error <= 1e-6,
              "%s, element %lld: gradient %.12g, finite difference %.12g, error %.2g of the largest", what,
              (long long)i, gradient, slope, error);
}

static inline double ms_largest(const double *value, int64_t n)
{
    double largest = 0;
    for (int64_t i = 0; i < n; i++) largest = fmax(largest, fabs(value[i]));
    return largest;
}

#endif
