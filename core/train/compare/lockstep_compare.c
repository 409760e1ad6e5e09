/* SPDX-License-Identifier: Apache-2.0 */
/* Compares a tensor of one side with that of the other, each held in parts by ranks: parts meet where they
 * cover the same elements of the whole. Equal bits, by far the most frequent case, cost one memcmp. */
#include "config.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "base/bf16.h"
#include "train/compare/lockstep.h"

/* ---- elements ---- */

static struct syi_element element(const struct sy_tensor *t, int64_t i)
{
    struct syi_element e = {0};
    switch (t->dtype) {
    case SY_F32: {
        float value = ((const float *)t->data)[i];
        int32_t bits;
        memcpy(&bits, &value, sizeof bits);
        return (struct syi_element){(double)value, bits};
    }
    case SY_BF16: {
        uint16_t bits = ((const uint16_t *)t->data)[i];
        return (struct syi_element){(double)syi_bf16_to_float(bits), (int16_t)bits};
    }
    case SY_F64:
        e.real = ((const double *)t->data)[i];
        memcpy(&e.integer, &e.real, sizeof e.integer);
        return e;
    case SY_I32: e.integer = ((const int32_t *)t->data)[i]; return e;
    default: e.integer = ((const int64_t *)t->data)[i]; return e;
    }
}

double syi_element_distance(int dtype, const struct syi_element value[2])
{
    const struct syi_element *a = &value[0], *b = &value[1];
    if (!syi_is_float((enum sy_dtype)dtype))
        return a->integer > b->integer ? (double)((uint64_t)a->integer - (uint64_t)b->integer)
                                       : (double)((uint64_t)b->integer - (uint64_t)a->integer);
    if (isnan(a->real) && isnan(b->real)) return 0;
    if (isnan(a->real) || isnan(b->real)) return INFINITY;
    return a->real == b->real ? 0 : fabs(a->real - b->real); /* equal infinities have no difference */
}

/* Numbers in the order of their values: the bits of a sign and a magnitude as one integer. */
static int64_t ordered(int dtype, int64_t bits)
{
    int64_t sign = dtype == SY_F64 ? INT64_MIN : dtype == SY_F32 ? INT32_MIN : INT16_MIN;
    return bits < 0 ? sign - bits : bits;
}

uint64_t syi_element_ulps(int dtype, const struct syi_element value[2])
{
    if (isnan(value[0].real) || isnan(value[1].real)) return UINT64_MAX;
    int64_t a = ordered(dtype, value[0].integer), b = ordered(dtype, value[1].integer);
    return a > b ? (uint64_t)a - (uint64_t)b : (uint64_t)b - (uint64_t)a;
}

/* same: both sides have this dtype; else both have a floating-point dtype and values count, not bits. */
static int differ(int dtype, int same, const struct syi_element value[2], double allowed)
{
    if (same && value[0].integer == value[1].integer) return 0;
    if (!syi_is_float((enum sy_dtype)dtype)) return 1;
    if (isnan(value[0].real) && isnan(value[1].real)) return 0;
    return same && !(allowed > 0) ? 1 : !(syi_element_distance(dtype, value) <= allowed);
}

/* ---- where two parts meet ---- */

/* Elements that both parts hold, in runs that are contiguous in both and in the whole. */
struct overlap {
    const struct sy_tensor *t[2];
    const int64_t *whole;                         /* extents of the whole */
    int64_t first[SY_MAX_DIMS], dim[SY_MAX_DIMS]; /* of the overlap, in the whole */
    int outer;                                    /* dims that are walked; those after them make a run */
    int64_t run, runs;                            /* elements of a run, how many runs */
};

static int meet(const struct sy_tensor *a, const struct sy_tensor *b, const int64_t *whole, struct overlap *o)
{
    *o = (struct overlap){.t = {a, b}, .whole = whole, .outer = a->rank, .run = 1, .runs = 1};
    for (int d = 0; d < a->rank; d++) {
        int64_t end_a = a->first[d] + a->dim[d], end_b = b->first[d] + b->dim[d];
        o->first[d] = a->first[d] > b->first[d] ? a->first[d] : b->first[d];
        o->dim[d] = (end_a < end_b ? end_a : end_b) - o->first[d];
        if (o->dim[d] <= 0) return 0;
    }
    for (int full = 1; o->outer > 0 && full;) {
        int d = --o->outer;
        o->run *= o->dim[d];
        full = a->dim[d] == o->dim[d] && b->dim[d] == o->dim[d] && whole[d] == o->dim[d];
    }
    for (int d = 0; d < o->outer; d++) o->runs *= o->dim[d];
    return 1;
}

/* Row-major number of the first element of run `r` in the whole; in both parts: at. */
static int64_t place(const struct overlap *o, int64_t r, int64_t at[2])
{
    int64_t index[SY_MAX_DIMS], number = 0;
    int rank = o->t[0]->rank;
    for (int d = rank - 1; d >= 0; d--) {
        index[d] = o->first[d];
        if (d >= o->outer) continue;
        index[d] += r % o->dim[d];
        r /= o->dim[d];
    }
    at[0] = at[1] = 0;
    for (int d = 0; d < rank; d++) {
        for (int s = 0; s < 2; s++) at[s] = at[s] * o->t[s]->dim[d] + index[d] - o->t[s]->first[d];
        number = number * o->whole[d] + index[d];
    }
    return number;
}

static int same_bits(const struct overlap *o)
{
    if (o->t[0]->dtype != o->t[1]->dtype) return 0;
    size_t size = syi_dtype_bytes(o->t[0]->dtype);
    int64_t at[2];
    for (int64_t r = 0; r < o->runs; r++) {
        place(o, r, at);
        if (memcmp((const uint8_t *)o->t[0]->data + (size_t)at[0] * size,
                   (const uint8_t *)o->t[1]->data + (size_t)at[1] * size, (size_t)o->run * size))
            return 0;
    }
    return 1;
}

/* ---- what differs ---- */

/* An element that differs; what was found before is in c. */
static void note(int dtype, const struct syi_element value[2], const int rank[2], int64_t number,
                 struct syi_comparison *c)
{
    if (!c->differing || number < c->first) {
        c->first = number;
        memcpy(c->first_value, value, sizeof c->first_value);
        memcpy(c->first_rank, rank, sizeof c->first_rank);
    }
    double distance = syi_element_distance(dtype, value);
    double before = c->differing ? syi_element_distance(dtype, c->farthest_value) : -1;
    if (distance > before || (distance == before && number < c->farthest)) {
        c->farthest = number;
        memcpy(c->farthest_value, value, sizeof c->farthest_value);
    }
    c->differing++;
}

static void judge_all(const struct overlap *o, const int rank[2], double allowed, struct syi_comparison *c)
{
    int dtype = o->t[0]->dtype, same = dtype == o->t[1]->dtype;
    for (int64_t r = 0; r < o->runs; r++) {
        int64_t at[2], number = place(o, r, at);
        for (int64_t i = 0; i < o->run; i++) {
            struct syi_element value[2] = {element(o->t[0], at[0] + i), element(o->t[1], at[1] + i)};
            if (differ(dtype, same, value, allowed)) note(dtype, value, rank, number + i, c);
        }
    }
}

static double largest_magnitude(const struct syi_parts *parts)
{
    double largest = 0;
    for (int p = 0; p < parts->n; p++) {
        const struct sy_tensor *t = parts->part[p];
        int64_t n = 1;
        for (int d = 0; d < t->rank; d++) n *= t->dim[d];
        for (int64_t i = 0; i < n; i++) {
            struct syi_element e = element(t, i);
            double magnitude = syi_is_float(t->dtype) ? fabs(e.real) : fabs((double)e.integer);
            if (magnitude > largest && magnitude <= DBL_MAX) largest = magnitude;
        }
    }
    return largest;
}

/* Calls judge_all for all pairs, or (c NULL) returns whether any pair has other bits. */
static int walk(const struct syi_parts side[2], const int64_t dim[SY_MAX_DIMS], double allowed,
                struct syi_comparison *c, int64_t *elements)
{
    int other = 0;
    struct overlap o;
    for (int a = 0; a < side[0].n; a++)
        for (int b = 0; b < side[1].n; b++) {
            if (!meet(side[0].part[a], side[1].part[b], dim, &o)) continue;
            if (elements) *elements += o.run * o.runs;
            if (c)
                judge_all(&o, (const int[2]){a, b}, allowed, c);
            else if (!other)
                other = !same_bits(&o);
        }
    return other;
}

void syi_parts_compare(const struct syi_parts side[2], const int64_t dim[SY_MAX_DIMS], double tolerance,
                       struct syi_comparison *c)
{
    *c = (struct syi_comparison){0};
    if (!walk(side, dim, 0, NULL, &c->elements)) return;
    double a = largest_magnitude(&side[0]), b = largest_magnitude(&side[1]);
    c->largest = a > b ? a : b;
    walk(side, dim, tolerance * c->largest, c, NULL);
}
