/* SPDX-License-Identifier: Apache-2.0 */
/* Kind weight_metrics, the table of merges: each kind of T5X's metrics over several updates, then with a duration and a
 * number of steps. Nothing runs on a backend. */
#include "config.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "train/engine/merge.h"
#include "verify/rows.h"

/* A row of the table, and what its rounding may be: the reference adds in float32. */
struct row {
    const struct syi_json *json;
    uint32_t input, expected;
    struct syi_merged merged;
    double magnitude; /* of all that was added */
};

static double number(const struct syi_json *json, uint32_t object, const char *key, double otherwise)
{
    uint32_t at = syi_json_member(json, object, key);
    return at != SYI_JSON_NONE && json->nodes[at].kind == SYI_JSON_NUMBER ? json->nodes[at].number
                                                                          : otherwise;
}

static const struct {
    const char *name;
    enum syi_merge kind;
    double count; /* of an update; 0: as many as it has values */
} metrics[] = {{"sum", SYI_MERGE_SUM, 1},
               {"sum_vector", SYI_MERGE_SUM, 1},
               {"average_per_step", SYI_MERGE_PER_STEP, 1},
               {"average_per_step_vector", SYI_MERGE_PER_STEP, 1},
               {"average_per_step_steps2", SYI_MERGE_PER_STEP, 2},
               {"time_rate", SYI_MERGE_RATE, 1},
               {"steps_per_time", SYI_MERGE_STEP_RATE, 1},
               {"time", SYI_MERGE_TIME, 1},
               {"average", SYI_MERGE_AVERAGE, 0},
               {"average_masked", SYI_MERGE_AVERAGE, 0},
               {"last_value", SYI_MERGE_LAST, 1},
               {"accuracy", SYI_MERGE_AVERAGE, 0}};

/* 1 where the first of the largest logits is the label, else 0. */
static double is_right(const struct syi_json *json, uint32_t logits, uint32_t label)
{
    int64_t best = 0, i = 0;
    double top = -INFINITY;
    for (uint32_t at = json->nodes[logits].first; at != SYI_JSON_NONE; at = json->nodes[at].next, i++)
        if (json->nodes[at].number > top) top = json->nodes[at].number, best = i;
    return best == json->nodes[label].integer;
}

/* A number, a list of them, {values, mask} or {logits, labels, mask}. */
static void add_update(struct row *r, uint32_t update, double count)
{
    const struct syi_json_node *node = r->json->nodes;
    uint32_t mask = syi_json_member(r->json, update, "mask"),
             logits = syi_json_member(r->json, update, "logits"),
             labels = syi_json_member(r->json, update, "labels"),
             values = syi_json_member(r->json, update, "values");
    double total = 0, counted = 0;
    if (node[update].kind == SYI_JSON_NUMBER) total = node[update].number, counted = 1;
    uint32_t at = node[update].kind == SYI_JSON_ARRAY ? node[update].first
                  : logits != SYI_JSON_NONE           ? node[logits].first
                  : values != SYI_JSON_NONE           ? node[values].first
                                                      : SYI_JSON_NONE;
    uint32_t keep = mask == SYI_JSON_NONE ? mask : node[mask].first,
             label = labels == SYI_JSON_NONE ? labels : node[labels].first;
    for (; at != SYI_JSON_NONE; at = node[at].next) {
        double value = logits != SYI_JSON_NONE ? is_right(r->json, at, label) : node[at].number;
        int kept = mask == SYI_JSON_NONE || node[keep].number != 0;
        if (kept) total += value, counted += 1, r->magnitude += fabs(value);
        if (keep != SYI_JSON_NONE) keep = node[keep].next;
        if (label != SYI_JSON_NONE) label = node[label].next;
    }
    r->magnitude += fabs(total);
    syi_merged_add(&r->merged, total, count > 0 ? count : counted);
}

/* 1: as expected. */
static int agrees(const struct row *r, const char *key, const struct syi_merge_span *span, double tolerance)
{
    uint32_t want = syi_json_member(r->json, r->expected, key);
    double value, scale = span->seconds > 0 && r->merged.kind == SYI_MERGE_RATE ? 1 / span->seconds : 1;
    int known = syi_merged_value(&r->merged, span, &value);
    if (want == SYI_JSON_NONE) return 0;
    if (!known || r->json->nodes[want].kind == SYI_JSON_OBJECT) {
        uint32_t error = syi_json_member(r->json, want, "error");
        return !known && error != SYI_JSON_NONE && !strcmp(syi_json_string(r->json, error), "ValueError");
    }
    if (isnan(value)) return r->json->nodes[want].kind == SYI_JSON_STRING; /* "nan" */
    double allowed =
        tolerance * (1e-6 * fabs(r->json->nodes[want].number) + 4 * FLT_EPSILON * r->magnitude * scale);
    return fabs(value - r->json->nodes[want].number) <= allowed;
}

static int judge_row(struct row *r, int64_t index, struct verify_report *report, struct sy_error *err)
{
    const struct syi_merge_span unknown = {.seconds = -1}, span = {number(r->json, r->input, "duration", -1),
                                                                   number(r->json, r->input, "num_steps", 0)};
    uint32_t name = syi_json_member(r->json, r->input, "metric"),
             list = syi_json_member(r->json, r->input, "updates");
    const char *metric = name == SYI_JSON_NONE ? "" : syi_json_string(r->json, name);
    char what[80];
    size_t k = 0;
    while (k < SYI_COUNT(metrics) && strcmp(metrics[k].name, metric)) k++;
    if (k == SYI_COUNT(metrics) || list == SYI_JSON_NONE)
        return syi_error(err, SY_EUNSUPPORTED, "row %lld: metric %.40s", (long long)index, metric);
    r->merged.kind = metrics[k].kind;
    for (uint32_t at = r->json->nodes[list].first; at != SYI_JSON_NONE; at = r->json->nodes[at].next)
        add_update(r, at, metrics[k].count);
    int merged = agrees(r, "compute_after_merge", &unknown, report->tolerance);
    int timed = agrees(r, "compute_after_duration_and_steps", &span, report->tolerance);
    snprintf(what, sizeof what, "%s row %lld", metric, (long long)index);
    verify_judge(report, what, 0,
                 !merged  ? "differs after the merge"
                 : !timed ? "differs once duration and steps are set"
                          : NULL);
    return SY_OK;
}

int verify_weight_merges(struct verify_context *context, const struct verify_case *c,
                         struct verify_report *report, struct sy_error *err)
{
    const struct syi_json_node *node = c->json.nodes;
    uint32_t inputs, expected;
    (void)context;
    int status = verify_member(c, 0, "inputs", SYI_JSON_ARRAY, &inputs, err);
    if (!status) status = verify_member(c, 0, "expected", SYI_JSON_ARRAY, &expected, err);
    if (!status && (!node[inputs].n_children || node[inputs].n_children != node[expected].n_children))
        status = syi_error(err, SY_EFORMAT, "inputs and expected are not two lists of the same length");
    if (status) return status;
    uint32_t in = node[inputs].first, want = node[expected].first;
    for (int64_t i = 0; in != SYI_JSON_NONE && !status; i++, in = node[in].next, want = node[want].next) {
        struct row r = {.json = &c->json, .input = in, .expected = want};
        status = judge_row(&r, i, report, err);
    }
    return status;
}
