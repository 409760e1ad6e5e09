/* SPDX-License-Identifier: Apache-2.0 */
/* A case of test_gradients.c: inputs, y = f(inputs) recorded by the test, and the check. That multiplies y by
 * a random cotangent, sums to a scalar, differentiates, runs in double and moves elements of every input. */
#ifndef GRADIENT_CASE_H
#define GRADIENT_CASE_H

#include <stdarg.h>
#include <stdio.h>

#include "model_support.h"
#include "program/grad.h"

enum { MOST = 8 };    /* inputs of a case */
enum { SAMPLE = 64 }; /* elements of an input that are moved, all if there are fewer */

struct testcase {
    struct syi_program *p;
    int input[MOST], n;            /* real inputs that are differentiated, "x0", "x1", ... */
    const int32_t *integers[MOST]; /* values of "i0", "i1", ... */
    int n_integers, n_fixed;       /* real inputs that are not differentiated: "f0", ... */
    struct ms m;
    struct ms_random random;
};

static inline struct testcase begin(void)
{
    static const uint8_t split[] = {SYI_AXIS_BATCH, SYI_AXIS_GROUP, SYI_AXIS_EXPERT_GROUP,
                                    SYI_AXIS_HEADS, SYI_AXIS_MLP,   SYI_AXIS_EXPERT_MLP,
                                    SYI_AXIS_VOCAB, SYI_AXIS_EMBED, SYI_AXIS_EXPERT};
    struct testcase c = {.random = {1}};
    struct sy_error err = {0};
    cr_assert_eq(syi_program_new("case", &c.p, &err), SY_OK, "%s", err.text);
    for (size_t i = 0; i < SYI_COUNT(split); i++) c.p->leaf_count[split[i]] = 2;
    return c;
}

/* ---- inputs: "btd", 2, 3, 4 is a tensor [2, 3, 4] over batch, length, embed ---- */

static inline int axis_of(char letter)
{
    static const struct {
        char letter;
        int axis;
    } axes[] = {{'b', SYI_AXIS_BATCH},        {'t', SYI_AXIS_LENGTH},   {'d', SYI_AXIS_EMBED},
                {'h', SYI_AXIS_HEADS},        {'f', SYI_AXIS_MLP},      {'v', SYI_AXIS_VOCAB},
                {'e', SYI_AXIS_EXPERT},       {'u', SYI_AXIS_ROUTER},   {'m', SYI_AXIS_EXPERT_MLP},
                {'g', SYI_AXIS_EXPERT_GROUP}, {'c', SYI_AXIS_CAPACITY}, {'r', SYI_AXIS_BUCKETS},
                {'k', SYI_AXIS_CHOICE},       {'n', SYI_AXIS_NONE}};
    for (size_t i = 0; i < SYI_COUNT(axes); i++)
        if (axes[i].letter == letter) return axes[i].axis;
    cr_assert_fail("no axis %c", letter);
    return 0;
}

static inline int tensor(struct testcase *c, char kind, int number, int dtype, const char *axes, va_list dims)
{
    char name[16];
    int64_t dim[SY_MAX_DIMS];
    uint8_t axis[SY_MAX_DIMS];
    int rank = (int)strlen(axes);
    for (int i = 0; i < rank; i++) {
        dim[i] = va_arg(dims, int);
        axis[i] = (uint8_t)axis_of(axes[i]);
    }
    snprintf(name, sizeof name, "%c%d", kind, number);
    return syi_tensor_add(c->p, name, SYI_INPUT, dtype, rank, dim, axis);
}

/* Differentiated, in -1 .. 1. */
static inline int real(struct testcase *c, const char *axes, ...)
{
    va_list dims;
    va_start(dims, axes);
    c->input[c->n] = tensor(c, 'x', c->n, SY_F32, axes, dims);
    va_end(dims);
    return c->input[c->n++];
}

/* Not differentiated, in 0 .. 1. */
static inline int fixed(struct testcase *c, const char *axes, ...)
{
    va_list dims;
    va_start(dims, axes);
    int t = tensor(c, 'f', c->n_fixed++, SY_F32, axes, dims);
    va_end(dims);
    return t;
}

static inline int integers(struct testcase *c, const int32_t *value, const char *axes, ...)
{
    va_list dims;
    va_start(dims, axes);
    c->integers[c->n_integers] = value;
    int t = tensor(c, 'i', c->n_integers++, SY_I32, axes, dims);
    va_end(dims);
    return t;
}

static inline int rng(struct testcase *c)
{
    return syi_tensor_add(c->p, "rng", SYI_INPUT, SY_I64, 1, (int64_t[]){4}, NULL);
}

/* ---- the check ---- */

/* Sum of y * cotangent over n tensors. */
static inline int scalar_of(struct testcase *c, int n, const int *y)
{
    int loss = -1;
    for (int i = 0; i < n; i++) {
        char name[16];
        cr_assert_geq(y[i], 0, "%s", c->p->error.text);
        struct syi_tensor like = c->p->tensor[y[i]];
        snprintf(name, sizeof name, "c%d", i);
        int cotangent = syi_tensor_add(c->p, name, SYI_INPUT, SY_F32, like.rank, like.dim, like.axis);
        int term = syi_total(c->p, syi_map2(c->p, SY_MAP_MUL, y[i], cotangent));
        loss = loss < 0 ? term : syi_map2(c->p, SY_MAP_ADD, loss, term);
    }
    return loss;
}

/* Appends the backward pass; outputs "loss" and "d0", "d1", ... */
static inline void differentiate(struct testcase *c, const char *what, int loss)
{
    struct sy_error err = {0};
    int gradient[MOST];
    cr_assert_eq(syi_grad(c->p, loss, c->n, c->input, gradient, &err), SY_OK, "%s: %s", what, err.text);
    for (int i = 0; i < c->n; i++) {
        char name[16];
        cr_assert_geq(gradient[i], 0, "%s: input %d gets no gradient", what, i);
        snprintf(name, sizeof name, "d%d", i);
        syi_output(c->p, syi_map1(c->p, SY_MAP_COPY, gradient[i], 0), name);
    }
    syi_output(c->p, syi_map1(c->p, SY_MAP_COPY, loss, 0), "loss");
    cr_assert_eq(syi_program_status(c->p, &err), SY_OK, "%s: %s", what, err.text);
    cr_assert_eq(syi_program_check(c->p, "record", &err), SY_OK, "%s: %s", what, err.text);
}

static inline const struct sy_tensor *numbered(struct testcase *c, char kind, int number)
{
    char name[16];
    snprintf(name, sizeof name, "%c%d", kind, number);
    return syi_session_tensor(c->m.session, name);
}

static inline void fill(struct testcase *c)
{
    static const int64_t state[4] = {7, 3, 0, 0};
    const struct sy_tensor *t;
    for (const char *kind = "xcf"; *kind; kind++)
        for (int i = 0; (t = numbered(c, *kind, i)) != NULL; i++)
            for (int64_t k = 0; k < ms_count(t); k++) {
                double value = ms_uniform(&c->random);
                ms_set(t, k, *kind == 'f' ? fabs(value) : value);
            }
    for (int i = 0; (t = numbered(c, 'i', i)) != NULL; i++) memcpy(t->data, c->integers[i], ms_bytes(t));
    if ((t = syi_session_tensor(c->m.session, "rng")) != NULL) memcpy(t->data, state, sizeof state);
}

static inline double run_loss(void *arg)
{
    struct testcase *c = arg;
    ms_run(&c->m, 0);
    return ms_get(ms_tensor(&c->m, "loss"), 0);
}

static inline void check_input(struct testcase *c, const char *what, int i)
{
    char text[96];
    const struct sy_tensor *x = numbered(c, 'x', i);
    run_loss(c);
    double *gradient = ms_values(numbered(c, 'd', i)), largest = ms_largest(gradient, ms_count(x));
    int64_t n = ms_count(x);
    snprintf(text, sizeof text, "%s, input %d", what, i);
    cr_assert_gt(largest, 0, "%s: all gradients are zero", text);
    for (int64_t k = 0; k < (n < SAMPLE ? n : SAMPLE); k++) {
        int64_t at = n <= SAMPLE ? k : ms_below(&c->random, (int)n);
        ms_compare_slope(ms_slope(x, at, 1e-5, run_loss, c), gradient[at], largest, text, at);
    }
    free(gradient);
}

static inline void check_n(struct testcase *c, const char *what, int n, const int *y)
{
    differentiate(c, what, scalar_of(c, n, y));
    ms_open(&c->m, 1);
    ms_add(&c->m, c->p);
    ms_bind(&c->m);
    fill(c);
    for (int i = 0; i < c->n; i++) check_input(c, what, i);
    ms_close(&c->m);
}

static inline void check(struct testcase *c, const char *what, int y)
{
    check_n(c, what, 1, &y);
}

#endif
