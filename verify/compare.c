/* SPDX-License-Identifier: Apache-2.0 */
/* What is compared how, and the report of one case. A failure does not stop a kind: every tensor is judged
 * and the worst is shown. */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "verify/verify.h"

/* ---- measures ---- */

/* NaN is equal to NaN alone, infinity to itself alone. */
static double distance(float got, float want)
{
    if (isnan(got) || isnan(want)) return isnan(got) && isnan(want) ? 0 : INFINITY;
    if (got == want) return 0;
    if (isinf(got) || isinf(want)) return INFINITY;
    return fabs((double)got - (double)want);
}

static double largest_of(const float *want, int64_t n)
{
    double largest = 0;
    for (int64_t i = 0; i < n; i++)
        if (isfinite(want[i]) && fabs((double)want[i]) > largest) largest = fabs((double)want[i]);
    return largest;
}

double verify_error_to_largest(const float *got, const float *want, int64_t n, int64_t *at)
{
    double worst = 0, largest = largest_of(want, n);
    *at = 0;
    for (int64_t i = 0; i < n; i++) {
        double d = distance(got[i], want[i]);
        if (d > worst) {
            worst = d;
            *at = i;
        }
    }
    return largest > 0 ? worst / largest : worst;
}

double verify_error_to_tolerance(const float *got, const float *want, int64_t n, double rtol, double atol,
                                 int64_t *at)
{
    double worst = 0;
    *at = 0;
    for (int64_t i = 0; i < n; i++) {
        double d = distance(got[i], want[i]), allowed = atol;
        if (isfinite(want[i])) allowed += rtol * fabs((double)want[i]);
        double share = d == 0 ? 0 : allowed > 0 ? d / allowed : INFINITY;
        if (share > worst) {
            worst = share;
            *at = i;
        }
    }
    return worst;
}

/* ---- results ---- */

static struct verify_result *append(struct verify_report *r, const char *name)
{
    if (!r->status) r->status = SYI_GROW(r->result, r->capacity, r->n + 1, NULL);
    if (r->status) return NULL;
    struct verify_result *result = &r->result[r->n++];
    memset(result, 0, sizeof *result);
    snprintf(result->name, sizeof result->name, "%s", name);
    return result;
}

static void fail(struct verify_report *r, const char *name, const char *reason)
{
    struct verify_result *result = append(r, name);
    if (!result) return;
    result->error = result->ratio = INFINITY;
    snprintf(result->reason, sizeof result->reason, "%s", reason);
}

/* "[1,0,3]" of element i. */
static void print_index(const struct verify_tensor *t, int64_t i, char text[96])
{
    int64_t at[SYI_SAFETENSORS_RANK];
    size_t used = 1;
    for (int d = t->rank - 1; d >= 0; d--) {
        at[d] = i % t->dim[d];
        i /= t->dim[d];
    }
    snprintf(text, 96, "[");
    for (int d = 0; d < t->rank && used < 90; d++)
        used += (size_t)snprintf(text + used, 96 - used, "%s%lld", d ? "," : "", (long long)at[d]);
    if (used < 95) snprintf(text + used, 96 - used, "]");
}

/* The expected tensor, once the part that is compared is known to be in it and to be of this type; else NULL
 * with the failure reported. */
static const struct verify_tensor *part_of(struct verify_report *r, const char *name, int64_t first,
                                           int64_t n, const void *got, int real)
{
    char reason[160];
    const struct verify_tensor *t = verify_find(r->item, name);
    if (!t) return NULL;
    r->covered[t - r->item->tensor] += n;
    if (!got) {
        r->covered[t - r->item->tensor] = t->n;
        fail(r, name, "there is no such result");
    } else if (real ? !t->real : !t->integer) {
        fail(r, name,
             real ? "expected is I32, the result is floating point"
                  : "expected is F32, the result is integer");
    } else if (first < 0 || n < 0 || first > t->n || n > t->n - first) {
        int64_t end;
        if (__builtin_add_overflow(first, n, &end)) end = INT64_MAX;
        snprintf(reason, sizeof reason, "expected has %lld elements, the result %lld", (long long)t->n,
                 (long long)end);
        fail(r, name, reason);
    } else {
        return t;
    }
    return NULL;
}

void verify_floats_part(struct verify_report *r, const char *name, int64_t first, const float *got, int64_t n,
                        enum verify_rule rule)
{
    int64_t at;
    char index[96];
    const struct verify_tensor *t = part_of(r, name, first, n, got, 1);
    struct verify_result *result = t ? append(r, name) : NULL;
    if (!result) return;
    const float *want = t->real + first;
    double bound = r->item->bound * r->tolerance;
    result->error = verify_error_to_largest(got, want, n, &at);
    result->ratio = result->error / bound;
    if (rule == VERIFY_TOLERANCE)
        result->ratio = verify_error_to_tolerance(got, want, n, r->item->rtol * r->tolerance,
                                                  r->item->atol * r->tolerance, &at);
    if (result->ratio <= 1) return;
    print_index(t, first + at, index);
    int used = snprintf(result->reason, sizeof result->reason, "%s is %.9g, expected %.9g, ", index,
                        (double)got[at], (double)want[at]);
    if (rule == VERIFY_TOLERANCE)
        snprintf(result->reason + used, sizeof result->reason - (size_t)used, "%.3g times the tolerance",
                 result->ratio);
    else
        snprintf(result->reason + used, sizeof result->reason - (size_t)used, "bound %.2e", bound);
}

void verify_integers_part(struct verify_report *r, const char *name, int64_t first, const int32_t *got,
                          int64_t n)
{
    char index[96];
    int64_t at = -1;
    const struct verify_tensor *t = part_of(r, name, first, n, got, 0);
    struct verify_result *result = t ? append(r, name) : NULL;
    if (!result) return;
    for (int64_t i = 0; i < n; i++) {
        if (got[i] == t->integer[first + i]) continue;
        if (at < 0) at = i;
        result->error += 1;
    }
    if (at < 0) return;
    result->ratio = INFINITY;
    print_index(t, first + at, index);
    snprintf(result->reason, sizeof result->reason, "%s is %d, expected %d, %.0f of %lld differ", index,
             (int)got[at], (int)t->integer[first + at], result->error, (long long)n);
}

/* A whole tensor: another number of elements is a failure of its own. */
static int whole(struct verify_report *r, const char *name, int64_t n)
{
    char reason[160];
    const struct verify_tensor *t = verify_find(r->item, name);
    if (!t || t->n == n) return 1;
    r->covered[t - r->item->tensor] = t->n;
    snprintf(reason, sizeof reason, "expected has %lld elements, the result %lld", (long long)t->n,
             (long long)n);
    fail(r, name, reason);
    return 0;
}

void verify_floats(struct verify_report *r, const char *name, const float *got, int64_t n)
{
    if (!got || whole(r, name, n)) verify_floats_part(r, name, 0, got, n, VERIFY_STEP);
}

void verify_integers(struct verify_report *r, const char *name, const int32_t *got, int64_t n)
{
    if (!got || whole(r, name, n)) verify_integers_part(r, name, 0, got, n);
}

void verify_judge(struct verify_report *r, const char *name, double error, const char *reason)
{
    const struct verify_tensor *t = verify_find(r->item, name);
    if (t) r->covered[t - r->item->tensor] = t->n;
    struct verify_result *result = append(r, name);
    if (!result) return;
    result->error = error;
    if (!reason) return;
    result->ratio = INFINITY;
    snprintf(result->reason, sizeof result->reason, "%s", reason);
}

/* ---- the report ---- */

/* Inputs of a case; of the steps of an optimizer what comes from outside. */
static int is_given(const char *name)
{
    const char *rest = strncmp(name, "step_", 5) ? "" : name + strcspn(name, "/");
    return !strncmp(name, "in/", 3) || !strncmp(name, "param/", 6) || !strncmp(rest, "/grad/", 6) ||
           !strncmp(rest, "/noise/", 7) || !strncmp(rest, "/batch/", 7) || !strcmp(rest, "/learning_rate");
}

void verify_report_end(struct verify_report *r)
{
    const struct verify_case *c = r->item;
    for (size_t i = 0; i < c->n_tensors; i++)
        if (!is_given(c->tensor[i].name) && r->covered[i] < c->tensor[i].n)
            fail(r, c->tensor[i].name,
                 r->covered[i] ? "only a part of it is computed" : "it is not computed");
    const char *key = verify_unknown_key(c);
    if (key) fail(r, key, "unknown key of config");
    if (!r->n && !r->status) fail(r, "case", "it expects nothing");
}

const struct verify_result *verify_report_worst(const struct verify_report *r)
{
    const struct verify_result *worst = NULL;
    for (size_t i = 0; i < r->n; i++) {
        const struct verify_result *x = &r->result[i];
        if (!worst || (x->reason[0] && !worst->reason[0]) ||
            (!x->reason[0] == !worst->reason[0] && x->error > worst->error))
            worst = x;
    }
    return worst;
}

void verify_report_free(struct verify_report *r)
{
    syi_free(r->result);
    syi_free(r->covered);
    memset(r, 0, sizeof *r);
}
