/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of inputs and answers in JSON: reading them with errors that name the key, and comparing two values.
 */
#include "config.h"

#include <string.h>

#include "verify/rows.h"

/* ---- reading ---- */

static int not_as_expected(const char *key, const char *expected, struct sy_error *err)
{
    return syi_error(err, SY_EFORMAT, "%.60s: expected %s", key, expected);
}

int verify_member(const struct verify_case *c, uint32_t object, const char *key, enum syi_json_kind kind,
                  uint32_t *node, struct sy_error *err)
{
    static const char *const names[] = {"null",     "false",  "true",     "a number",
                                        "a string", "a list", "an object"};
    *node = syi_json_member(&c->json, object, key);
    if (*node == SYI_JSON_NONE) return syi_error(err, SY_EFORMAT, "there is no %s", key);
    return c->json.nodes[*node].kind == kind ? SY_OK : not_as_expected(key, names[kind], err);
}

int verify_member_int(const struct verify_case *c, uint32_t object, const char *key, int64_t low,
                      int64_t high, int *null, int64_t *value, struct sy_error *err)
{
    uint32_t node = syi_json_member(&c->json, object, key);
    if (node == SYI_JSON_NONE) return syi_error(err, SY_EFORMAT, "there is no %s", key);
    const struct syi_json_node *n = &c->json.nodes[node];
    *value = 0;
    if (null) *null = n->kind == SYI_JSON_NULL;
    if (null && *null) return SY_OK;
    if (n->kind != SYI_JSON_NUMBER || !n->is_integer) return not_as_expected(key, "an integer", err);
    if (n->integer < low || n->integer > high)
        return syi_error(err, SY_EFORMAT, "%s: %lld is outside %lld..%lld", key, (long long)n->integer,
                         (long long)low, (long long)high);
    *value = n->integer;
    return SY_OK;
}

int verify_member_real(const struct verify_case *c, uint32_t object, const char *key, double *value,
                       struct sy_error *err)
{
    uint32_t node;
    int status = verify_member(c, object, key, SYI_JSON_NUMBER, &node, err);
    *value = status ? 0 : c->json.nodes[node].number;
    return status;
}

int verify_list_ints(const struct verify_case *c, uint32_t list, int most, int64_t *value, int *n,
                     struct sy_error *err)
{
    const struct syi_json_node *node = c->json.nodes;
    *n = 0;
    if (node[list].kind != SYI_JSON_ARRAY) return not_as_expected("list", "integers", err);
    for (uint32_t i = node[list].first; i != SYI_JSON_NONE; i = node[i].next) {
        if (node[i].kind != SYI_JSON_NUMBER || !node[i].is_integer || *n == most)
            return syi_error(err, SY_EFORMAT, "a list of dims: expected at most %d integers", most);
        value[(*n)++] = node[i].integer;
    }
    return SY_OK;
}

/* ---- errors ---- */

static const char *error_type(int status)
{
    switch (status) {
    case SY_EINVAL: return "ValueError";
    case SY_ENOENT: return "KeyError";
    case SY_EMISMATCH: return "AssertionError";
    case VERIFY_TYPE_ERROR: return "TypeError";
    case VERIFY_ARGUMENT_ERROR: return "InvalidArgumentError";
    default: return NULL;
    }
}

int verify_is_answer(int status)
{
    return error_type(status) != NULL;
}

void verify_put_error(struct syi_json_writer *answer, int status)
{
    syi_json_open(answer, '{');
    syi_json_put_key_string(answer, "error", error_type(status));
    syi_json_close(answer, '}');
}

/* ---- comparing ---- */

struct side {
    const struct syi_json *json;
    uint32_t node;
};

static const struct syi_json_node *at(struct side s)
{
    return &s.json->nodes[s.node];
}

/* Where two values differ: the innermost member or element. */
struct difference {
    char text[160];
};

static int same(struct side got, struct side want, struct difference *d);

static int differ(struct difference *d, const char *what, const char *name)
{
    snprintf(d->text, sizeof d->text, "%s%.100s", what, name);
    return 0;
}

static int is_message(const struct syi_json *json, uint32_t object, uint32_t member)
{
    return !strcmp(syi_json_key(json, member), "message") &&
           syi_json_member(json, object, "error") != SYI_JSON_NONE;
}

/* Every member of one is in the other; a message beside an error is not compared. */
static int same_object(struct side got, struct side want, struct difference *d)
{
    for (uint32_t i = at(want)->first; i != SYI_JSON_NONE; i = want.json->nodes[i].next) {
        const char *key = syi_json_key(want.json, i);
        uint32_t other = syi_json_member(got.json, got.node, key);
        if (is_message(want.json, want.node, i)) continue;
        if (other == SYI_JSON_NONE) return differ(d, "there is no ", key);
        if (!same((struct side){got.json, other}, (struct side){want.json, i}, d))
            return d->text[0] ? 0 : differ(d, "wrong: ", key);
    }
    for (uint32_t i = at(got)->first; i != SYI_JSON_NONE; i = got.json->nodes[i].next)
        if (syi_json_member(want.json, want.node, syi_json_key(got.json, i)) == SYI_JSON_NONE)
            return differ(d, "not expected: ", syi_json_key(got.json, i));
    return 1;
}

static int same_list(struct side got, struct side want, struct difference *d)
{
    uint32_t i = at(got)->first, j = at(want)->first;
    if (at(got)->n_children != at(want)->n_children) return 0;
    for (; i != SYI_JSON_NONE; i = got.json->nodes[i].next, j = want.json->nodes[j].next)
        if (!same((struct side){got.json, i}, (struct side){want.json, j}, d)) return 0;
    return 1;
}

static int same(struct side got, struct side want, struct difference *d)
{
    if (at(got)->kind != at(want)->kind) return 0;
    switch (at(want)->kind) {
    case SYI_JSON_OBJECT: return same_object(got, want, d);
    case SYI_JSON_ARRAY: return same_list(got, want, d);
    case SYI_JSON_STRING:
        return !strcmp(syi_json_string(got.json, got.node), syi_json_string(want.json, want.node));
    case SYI_JSON_NUMBER:
        return at(got)->number == at(want)->number &&
               (!at(got)->is_integer || !at(want)->is_integer || at(got)->integer == at(want)->integer);
    default: return 1;
    }
}

/* ---- rows ---- */

static int known_keys(const struct verify_row *row, const char *keys, struct sy_error *err)
{
    const struct syi_json_node *node = row->item->json.nodes;
    if (!keys) return SY_OK;
    if (node[row->input].kind != SYI_JSON_OBJECT)
        return syi_error(err, SY_EFORMAT, "a row of the inputs is no object");
    for (uint32_t i = node[row->input].first; i != SYI_JSON_NONE; i = node[i].next) {
        const char *key = syi_json_key(&row->item->json, i), *found = keys;
        size_t length = strlen(key);
        while ((found = strstr(found, key)) &&
               ((found > keys && found[-1] != ' ') || (found[length] && found[length] != ' ')))
            found++;
        if (!found || !length) return syi_error(err, SY_EFORMAT, "unknown key of a row: %.60s", key);
    }
    return SY_OK;
}

int verify_value(const struct verify_case *c, uint32_t expected, const char *name,
                 const struct syi_text *text, struct verify_report *report, struct sy_error *err)
{
    struct syi_json json = {0};
    struct difference d = {""};
    int status = syi_text_status(text, err);
    if (!status) status = syi_json_parse(&json, "answer", text->data, text->length, err);
    if (status) return status;
    int equal = same((struct side){&json, 0}, (struct side){&c->json, expected}, &d);
    verify_judge(report, name, 0, equal ? NULL : d.text[0] ? d.text : "another value than expected");
    syi_json_free(&json);
    return SY_OK;
}

static void leave_out(const char *name, const char *why, struct verify_report *report)
{
    char text[160];
    snprintf(text, sizeof text, "%.40s left out: %.100s", name, why);
    verify_judge(report, text, 0, NULL);
    report->left_out++;
}

static int answer_row(const struct verify_row *row, const char *name, verify_row_fn fn, void *arg,
                      struct verify_report *report, struct sy_error *err)
{
    struct syi_text text = {0};
    struct syi_json_writer writer;
    struct sy_error why = {0};
    syi_json_begin(&writer, &text);
    int status = fn(arg, row, &writer, &why);
    if (verify_is_answer(status)) {
        syi_text_free(&text);
        syi_json_begin(&writer, &text);
        verify_put_error(&writer, status);
        status = SY_OK;
    }
    if (status == VERIFY_LEFT_OUT)
        leave_out(name, why.text, report);
    else if (status)
        syi_error(err, status, "%s: %s", name, why.text);
    else
        status = verify_value(row->item, row->expected, name, &text, report, err);
    syi_text_free(&text);
    return status == VERIFY_LEFT_OUT ? SY_OK : status;
}

int verify_rows(const struct verify_case *c, const char *what, uint32_t inputs, uint32_t expected,
                const char *keys, verify_row_fn fn, void *arg, struct verify_report *report,
                struct sy_error *err)
{
    char name[64];
    int status = SY_OK;
    const struct syi_json_node *node = c->json.nodes;
    if (node[inputs].kind != SYI_JSON_ARRAY || node[expected].kind != SYI_JSON_ARRAY ||
        node[inputs].n_children != node[expected].n_children || !node[inputs].n_children)
        return syi_error(err, SY_EFORMAT, "%s: inputs and expected are not two lists of the same length",
                         what);
    struct verify_row row = {c, node[inputs].first, node[expected].first};
    for (int i = 0; !status && row.input != SYI_JSON_NONE; i++) {
        snprintf(name, sizeof name, "%.30s row %d", what, i);
        status = known_keys(&row, keys, err);
        if (!status) status = answer_row(&row, name, fn, arg, report, err);
        row.input = node[row.input].next;
        row.expected = node[row.expected].next;
    }
    return status;
}
