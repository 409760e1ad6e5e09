/* SPDX-License-Identifier: Apache-2.0 */
/* What switchyard diff found, for a reader and as JSON. */
#include "config.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "cli/diff_report.h"

/* ---- one element as text ---- */

static void put_value(struct syi_text *text, int dtype, const struct syi_element *e)
{
    char number[SYI_NUMBER_BYTES];
    if (!syi_is_float(dtype)) {
        syi_text_printf(text, "%" PRId64, e->integer);
        return;
    }
    if (dtype == SY_F64)
        syi_format_double(number, e->real);
    else
        syi_format_float(number, (float)e->real);
    syi_text_puts(text, number);
}

static void coordinate(const struct syi_lockstep_result *r, int64_t number, int64_t at[SY_MAX_DIMS])
{
    for (int d = r->rank - 1; d >= 0; d--) {
        at[d] = number % r->dim[d];
        number /= r->dim[d];
    }
}

static void put_coordinate(struct syi_text *text, const struct syi_lockstep_result *r, int64_t number)
{
    int64_t at[SY_MAX_DIMS];
    coordinate(r, number, at);
    for (int d = 0; d < r->rank; d++) syi_text_printf(text, "%s%" PRId64, d ? "," : "[", at[d]);
    syi_text_puts(text, "]");
}

/* |a - b| over the larger magnitude. */
static double relative_distance(const int dtype[2], const struct syi_element value[2])
{
    double a = fabs(value[0].real), b = fabs(value[1].real);
    double distance = syi_element_distance(dtype[0], value);
    if (!syi_is_float(dtype[0])) {
        a = fabs((double)value[0].integer);
        b = fabs((double)value[1].integer);
    }
    double larger = a > b ? a : b;
    return distance == 0 ? 0 : isfinite(distance) ? distance / larger : INFINITY;
}

/* 0: there is no such number, between NaN and anything or between two types. */
static int count_ulps(const int dtype[2], const struct syi_element value[2], uint64_t *ulps)
{
    if (dtype[0] != dtype[1] || !syi_is_float(dtype[0])) return 0;
    *ulps = syi_element_ulps(dtype[0], value);
    return *ulps != UINT64_MAX;
}

static void put_distance(struct syi_text *text, const int dtype[2], const struct syi_element value[2],
                         double largest)
{
    double distance = syi_element_distance(dtype[0], value);
    uint64_t ulps;
    syi_text_printf(text, "%.9g", distance);
    if (!syi_is_float(dtype[0])) return;
    syi_text_printf(text, ", relative %.3g", relative_distance(dtype, value));
    if (count_ulps(dtype, value, &ulps)) syi_text_printf(text, ", %" PRIu64 " ulp", ulps);
    if (largest > 0)
        syi_text_printf(text, ", %.3g of the tensor's largest value %.9g", distance / largest, largest);
}

/* ---- for a reader ---- */

/* One line, or one a side where they are not alike. */
static void put_both(struct syi_text *text, const char *what, const char *a, const char *b)
{
    if (!strcmp(a, b))
        syi_text_printf(text, "  %-8s %s\n", what, a);
    else
        syi_text_printf(text, "  %s, A: %s\n  %s, B: %s\n", what, a, what, b);
}

static void put_ops(struct syi_text *text, const struct syi_lockstep_result *r)
{
    const char *line[2];
    for (int s = 0; s < 2; s++) line[s] = *r->op[s].text ? r->op[s].text : "none: the program ends here";
    put_both(text, "op", line[0], line[1]);
}

static void put_difference(struct syi_text *text, const struct syi_lockstep_result *r)
{
    const struct syi_comparison *c = &r->comparison;
    const struct syi_lockstep_op *op = r->op;
    syi_text_printf(
        text, "first difference: step %" PRId64 ", program %s of lengths %d and %d, op %zu %s%s%s (%s:%d)\n",
        r->step, r->program, (int)r->input_length, (int)r->target_length, op->index, op->name,
        *op->layer ? " of " : "", op->layer, op->file, op->line);
    syi_text_printf(text, "  tensor   %s %d: %s", r->output ? "output" : "input", r->operand, op->tensor);
    if (strcmp(op[0].tensor, op[1].tensor)) syi_text_printf(text, ", in B %s", op[1].tensor);
    syi_text_printf(text, "%s\n  element  ", r->output ? "" : ", before the op ran");
    put_coordinate(text, r, c->first);
    if (c->first_rank[0] || c->first_rank[1])
        syi_text_printf(text, ", on rank %d of A and rank %d of B", c->first_rank[0], c->first_rank[1]);
    for (int s = 0; s < 2; s++) {
        syi_text_printf(text, "\n  %c        ", 'A' + s);
        put_value(text, r->dtype[s], &c->first_value[s]);
    }
    syi_text_puts(text, "\n  distance ");
    put_distance(text, r->dtype, c->first_value, c->largest);
    syi_text_printf(text, "\n  %" PRId64 " of %" PRId64 " elements differ", c->differing, c->elements);
    if (c->differing > 1) {
        syi_text_puts(text, "; farthest apart at ");
        put_coordinate(text, r, c->farthest);
        syi_text_puts(text, ": ");
        put_value(text, r->dtype[0], &c->farthest_value[0]);
        syi_text_puts(text, " and ");
        put_value(text, r->dtype[1], &c->farthest_value[1]);
        syi_text_puts(text, ", distance ");
        put_distance(text, r->dtype, c->farthest_value, 0);
    }
    syi_text_puts(text, "\n");
    put_ops(text, r);
    if (!r->output && (*op[0].writer || *op[1].writer)) put_both(text, "from", op[0].writer, op[1].writer);
}

void cli_diff_report(const struct cli_diff_request *request, const struct syi_lockstep_result *r,
                     struct syi_text *text)
{
    for (int s = 0; s < 2; s++)
        syi_text_printf(text, "%c: %s: %s\n", 'A' + s, request->file[s], r->launched[s]);
    if (r->end == SYI_LOCKSTEP_DIVERGED) {
        if (*r->why) {
            syi_text_printf(text, "the runs have different programs: %s\n", r->why);
            return;
        }
        syi_text_printf(text, "the runs have different programs: %s, from op %zu of A and op %zu of B on\n",
                        r->program, r->op[0].index, r->op[1].index);
        put_ops(text, r);
        return;
    }
    if (r->end == SYI_LOCKSTEP_DIFFERENT) put_difference(text, r);
    syi_text_printf(text, "%s: %" PRId64 " ops, %" PRId64 " elements; whole steps: %" PRId64,
                    r->end == SYI_LOCKSTEP_EQUAL ? "no difference" : "compared until then", r->ops,
                    r->elements, r->steps);
    if (request->tolerance > 0) syi_text_printf(text, ", tolerance %.3g", request->tolerance);
    syi_text_puts(text, "\n");
    if (r->alone[0] || r->alone[1])
        syi_text_printf(
            text,
            "on one side only, so not compared: %zu ops of A, %zu ops of B (movement between ranks, "
            "elementwise ops); what they write is compared where it is read\n",
            r->alone[0], r->alone[1]);
}

/* ---- for a program ---- */

static void put_number(struct syi_json_writer *w, int dtype, const struct syi_element *e)
{
    if (!syi_is_float(dtype))
        syi_json_put_integer(w, e->integer);
    else if (dtype == SY_F64)
        syi_json_put_double(w, e->real);
    else
        syi_json_put_float(w, (float)e->real);
}

static void put_pair(struct syi_json_writer *w, const char *key, const int dtype[2],
                     const struct syi_element value[2])
{
    syi_json_put_key(w, key);
    syi_json_open(w, '[');
    for (int s = 0; s < 2; s++) put_number(w, dtype[s], &value[s]);
    syi_json_close(w, ']');
}

static void put_key_coordinate(struct syi_json_writer *w, const char *key,
                               const struct syi_lockstep_result *r, int64_t number)
{
    int64_t at[SY_MAX_DIMS];
    coordinate(r, number, at);
    syi_json_put_key(w, key);
    syi_json_open(w, '[');
    for (int d = 0; d < r->rank; d++) syi_json_put_integer(w, at[d]);
    syi_json_close(w, ']');
}

static void put_json_op(struct syi_json_writer *w, const char *key, const struct syi_lockstep_op *op)
{
    syi_json_put_key(w, key);
    syi_json_open(w, '{');
    syi_json_put_key_integer(w, "op", (int64_t)op->index);
    if (*op->text) {
        syi_json_put_key_string(w, "name", op->name);
        syi_json_put_key_string(w, "layer", op->layer);
        syi_json_put_key_string(w, "file", op->file);
        syi_json_put_key_integer(w, "line", op->line);
        syi_json_put_key_string(w, "text", op->text);
        if (*op->tensor) syi_json_put_key_string(w, "tensor", op->tensor);
        if (*op->writer) syi_json_put_key_string(w, "writer", op->writer);
    }
    syi_json_close(w, '}');
}

static void put_json_distance(struct syi_json_writer *w, const int dtype[2],
                              const struct syi_element value[2])
{
    uint64_t ulps;
    syi_json_put_key_double(w, "absolute", syi_element_distance(dtype[0], value));
    syi_json_put_key_double(w, "relative", relative_distance(dtype, value));
    syi_json_put_key(w, "ulp");
    if (count_ulps(dtype, value, &ulps) && ulps <= INT64_MAX)
        syi_json_put_integer(w, (int64_t)ulps);
    else
        syi_json_put_null(w);
}

static void put_json_difference(struct syi_json_writer *w, const struct syi_lockstep_result *r)
{
    const struct syi_comparison *c = &r->comparison;
    syi_json_put_key_integer(w, "step", r->step);
    syi_json_put_key_integer(w, "input_length", r->input_length);
    syi_json_put_key_integer(w, "target_length", r->target_length);
    syi_json_put_key_string(w, r->output ? "output" : "input", r->op[0].shared);
    syi_json_put_key_integer(w, "operand", r->operand);
    syi_json_put_key(w, "dtypes");
    syi_json_open(w, '[');
    for (int s = 0; s < 2; s++) syi_json_put_string(w, syi_dtype_name(r->dtype[s]));
    syi_json_close(w, ']');
    put_key_coordinate(w, "element", r, c->first);
    put_pair(w, "values", r->dtype, c->first_value);
    put_json_distance(w, r->dtype, c->first_value);
    syi_json_put_key(w, "ranks");
    syi_json_open(w, '[');
    for (int s = 0; s < 2; s++) syi_json_put_integer(w, c->first_rank[s]);
    syi_json_close(w, ']');
    syi_json_put_key_integer(w, "differing", c->differing);
    syi_json_put_key_integer(w, "elements", c->elements);
    syi_json_put_key_double(w, "largest", c->largest);
    syi_json_put_key(w, "farthest");
    syi_json_open(w, '{');
    put_key_coordinate(w, "element", r, c->farthest);
    put_pair(w, "values", r->dtype, c->farthest_value);
    put_json_distance(w, r->dtype, c->farthest_value);
    syi_json_close(w, '}');
}

void cli_diff_json(const struct cli_diff_request *request, const struct syi_lockstep_result *r,
                   struct syi_text *text)
{
    static const char *const ends[] = {[SYI_LOCKSTEP_EQUAL] = "equal",
                                       [SYI_LOCKSTEP_DIFFERENT] = "different",
                                       [SYI_LOCKSTEP_DIVERGED] = "diverged"};
    struct syi_json_writer w;
    syi_json_begin(&w, text);
    syi_json_open(&w, '{');
    syi_json_put_key_string(&w, "result", ends[r->end]);
    syi_json_put_key_string(&w, "a", request->file[0]);
    syi_json_put_key_string(&w, "a_launched", r->launched[0]);
    syi_json_put_key_string(&w, "b", request->file[1]);
    syi_json_put_key_string(&w, "b_launched", r->launched[1]);
    syi_json_put_key_double(&w, "tolerance", request->tolerance);
    syi_json_put_key_integer(&w, "steps_equal", r->steps);
    syi_json_put_key_integer(&w, "ops_compared", r->ops);
    syi_json_put_key_integer(&w, "elements_compared", r->elements);
    syi_json_put_key_integer(&w, "ops_only_a", (int64_t)r->alone[0]);
    syi_json_put_key_integer(&w, "ops_only_b", (int64_t)r->alone[1]);
    if (r->end != SYI_LOCKSTEP_EQUAL) {
        syi_json_put_key(&w, "where");
        syi_json_open(&w, '{');
        if (*r->why) {
            syi_json_put_key_string(&w, "why", r->why);
        } else {
            syi_json_put_key_string(&w, "program", r->program);
            put_json_op(&w, "a", &r->op[0]);
            put_json_op(&w, "b", &r->op[1]);
        }
        if (r->end == SYI_LOCKSTEP_DIFFERENT) put_json_difference(&w, r);
        syi_json_close(&w, '}');
    }
    syi_json_close(&w, '}');
    syi_text_puts(text, "\n");
}
