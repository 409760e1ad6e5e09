/* SPDX-License-Identifier: Apache-2.0 */
/* Cases of kind action: T5X's EarlyStoppingAction and TerminateOnNanAction, asked about one evaluation after the
 * other. Each row is an action and the values it is shown; the answer to each value is whether training stops, what is
 * warned of, and how many values the history holds. Two of T5X's ways to be wrong cannot be written here: a metric that
 * is no number (not_scalar, plain_float) has no place in the result of an evaluation, so it is one that is missing. A
 * patience of 0, which stops at the first value as 1 does, is off here and is asked as 1. */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "comm/comm.h"
#include "train/trainer/actions.h"
#include "verify/rows.h"

struct sequence {
    const struct verify_case *item;
    const char *task, *metric;
    struct syi_config config;
    struct syi_comm comm;
    struct syi_actions actions;
    int warned; /* of the call under way */
};

static void on_warning(void *arg, const char *text)
{
    struct sequence *s = arg;
    (void)text;
    s->warned = 1;
}

/* ---- the action ---- */

static int set(struct sequence *s, const char *key, const char *value, struct sy_error *err)
{
    char *text = syi_format("action.verified.%s=%s", key, value);
    int status = text ? syi_config_set(&s->config, text, err) : syi_error(err, SY_ENOMEM, "out of memory");
    syi_free(text);
    return status;
}

/* A key that the row has; a number or a text. */
static int set_from(struct sequence *s, uint32_t row, const char *key, struct sy_error *err)
{
    const struct syi_json *json = &s->item->json;
    uint32_t node = syi_json_member(json, row, key);
    char number[SYI_NUMBER_BYTES];
    double value;
    if (node == SYI_JSON_NONE) return SY_OK;
    if (json->nodes[node].kind == SYI_JSON_STRING) return set(s, key, syi_json_string(json, node), err);
    if (json->nodes[node].kind != SYI_JSON_NUMBER)
        return syi_error(err, SY_EFORMAT, "%s: expected a number or a text", key);
    value = json->nodes[node].number;
    if (!strcmp(key, "patience"))
        snprintf(number, sizeof number, "%d", value < 1 ? 1 : value > 64 ? 64 : (int)value);
    else
        syi_format_double(number, value);
    return set(s, key, number, err);
}

static int configure(struct sequence *s, uint32_t row, struct sy_error *err)
{
    static const char *const keys[] = {"mode", "patience", "atol", "rtol"};
    const struct syi_json *json = &s->item->json;
    uint32_t action;
    int status = syi_config_defaults(&s->config, err);
    s->config.run.compat = SYI_COMPAT_T5X;
    if (!status) status = verify_member(s->item, row, "action", SYI_JSON_STRING, &action, err);
    if (!status) status = set(s, "kind", syi_json_string(json, action), err);
    if (!status) status = set(s, "task", s->task, err);
    if (!status) status = set(s, "metric", s->metric, err);
    for (size_t i = 0; i < SYI_COUNT(keys) && !status; i++) status = set_from(s, row, keys[i], err);
    return status;
}

/* ---- one call ---- */

/* NaN is a value as well. *defect: the name of what is wrong with the call, or NULL. */
static int read_value(const struct syi_json *json, uint32_t node, int rounds, double *value,
                      const char **defect, struct sy_error *err)
{
    static const char *const defects[] = {"missing_task", "missing_metric", "not_scalar", "plain_float"};
    const char *text = json->nodes[node].kind == SYI_JSON_STRING ? syi_json_string(json, node) : NULL;
    *defect = NULL;
    *value = json->nodes[node].number;
    for (size_t i = 0; text && i < SYI_COUNT(defects); i++)
        if (!strcmp(text, defects[i])) *defect = i < 2 ? defects[i] : "not_scalar";
    if (text && !*defect) {
        if (strcmp(text, "nan") && strcmp(text, "inf") && strcmp(text, "-inf"))
            return syi_error(err, SY_EFORMAT, "a value is \"%.40s\"", text);
        *value = *text == 'n' ? (double)NAN : *text == '-' ? -(double)INFINITY : (double)INFINITY;
    } else if (!text && json->nodes[node].kind != SYI_JSON_NUMBER) {
        return syi_error(err, SY_EFORMAT, "a value is neither a number nor a text");
    }
    if (rounds) *value = (double)(float)*value;
    return SY_OK;
}

static int call(struct sequence *s, int64_t step, double value, const char *defect,
                struct syi_verdict *verdict, struct sy_error *err)
{
    int no_task = defect && !strcmp(defect, "missing_task");
    struct syi_eval_result result = {.task = no_task ? "another" : s->task};
    struct syi_moment moment = {
        .kind = SYI_AFTER_EVALUATION, .step = step, .checkpoint = -1, .evaluated = &result, .n_evaluated = 1};
    syi_eval_result_set(&result, "another", 0);
    if (!defect) syi_eval_result_set(&result, s->metric, value);
    s->warned = s->actions.told[0] = 0;
    return syi_actions_run(&s->actions, &moment, verdict, err);
}

static void put_answer(const struct sequence *s, const struct syi_verdict *verdict, const char *defect,
                       struct syi_json_writer *answer)
{
    const struct syi_action_state *state = &s->actions.state[0];
    int stops = s->config.action.part[0].kind == SYI_ACTION_EARLY_STOPPING, n = 0;
    for (int i = 0; i < state->n; i++)
        if (!strcmp(state->number[i].name, "history")) n = (int)state->number[i].value;
    syi_json_open(answer, '{');
    if (stops) syi_json_put_key_integer(answer, "history_length", n);
    syi_json_put_key(answer, "stop");
    syi_json_put_bool(answer, verdict->stop);
    syi_json_put_key(answer, "warnings");
    syi_json_open(answer, '[');
    if (verdict->stop) syi_json_put_string(answer, "stop_requested");
    if (s->warned) syi_json_put_string(answer, defect ? defect : "a value that is there");
    if (s->warned) syi_json_put_string(answer, "action_not_run");
    syi_json_close(answer, ']');
    syi_json_close(answer, '}');
}

/* ---- one row ---- */

static int call_all(struct sequence *s, uint32_t values, int rounds, struct syi_json_writer *answer,
                    struct sy_error *err)
{
    const struct syi_json *json = &s->item->json;
    int status = SY_OK;
    int64_t step = 0;
    syi_json_open(answer, '[');
    for (uint32_t i = json->nodes[values].first; i != SYI_JSON_NONE && !status; i = json->nodes[i].next) {
        struct syi_verdict verdict;
        const char *defect;
        double value;
        status = read_value(json, i, rounds, &value, &defect, err);
        if (!status) status = call(s, ++step, value, defect, &verdict, err);
        if (!status) put_answer(s, &verdict, defect, answer);
    }
    syi_json_close(answer, ']');
    return status;
}

static int sequence_row(void *arg, const struct verify_row *row, struct syi_json_writer *answer,
                        struct sy_error *err)
{
    struct sequence *s = arg;
    struct syi_action_report report = {.arg = s, .warning = on_warning};
    uint32_t values, type;
    int status = verify_member(s->item, row->input, "sequence", SYI_JSON_ARRAY, &values, err);
    if (!status) status = verify_member(s->item, row->input, "value_type", SYI_JSON_STRING, &type, err);
    if (status) return status;
    int rounds = !strcmp(syi_json_string(&s->item->json, type), "float32");
    status = configure(s, row->input, err);
    if (!status) status = syi_actions_open(&s->actions, &s->config, &s->comm, "", &report, err);
    if (status) return status;
    status = call_all(s, values, rounds, answer, err);
    syi_actions_close(&s->actions);
    return status;
}

int verify_action(struct verify_context *context, const struct verify_case *c, struct verify_report *report,
                  struct sy_error *err)
{
    const char *default_metric;
    uint32_t inputs, expected;
    struct sequence *s = syi_alloc(sizeof *s, err);
    (void)context;
    if (!s) return SY_ENOMEM;
    s->item = c;
    syi_comm_self(&s->comm);
    int status = verify_text(c, "task", &s->task, err);
    if (!status) status = verify_text(c, "metric", &s->metric, err);
    if (!status) status = verify_text(c, "default_terminate_metric", &default_metric, err);
    if (!status) status = verify_member(c, 0, "inputs", SYI_JSON_ARRAY, &inputs, err);
    if (!status) status = verify_member(c, 0, "expected", SYI_JSON_ARRAY, &expected, err);
    if (!status) status = syi_config_defaults(&s->config, err);
    if (!status) status = syi_config_set(&s->config, "action.verified.kind=terminate_on_nan", err);
    if (!status && strcmp(s->config.action.part[0].metric, default_metric))
        verify_judge(report, "default_terminate_metric", 0, "is another one");
    if (!status)
        status =
            verify_rows(c, "sequence", inputs, expected, "action atol mode patience rtol sequence value_type",
                        sequence_row, s, report, err);
    syi_free(s);
    return status;
}
