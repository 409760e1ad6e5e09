/* SPDX-License-Identifier: Apache-2.0 */
/* Feature converters against seqio's: all rows of a list of examples. */
#include "config.h"

#include <string.h>

#include "data/converter.h"
#include "data/preprocess.h"
#include "verify/data_case.h"

enum { LONGEST = 1 << 16 };

struct conversion {
    const struct verify_case *item;
    enum syi_converter converter;
    int packed, trims;
    int64_t inputs_length, targets_length;
    struct syi_rows rows;
};

static int read_config(struct conversion *v, struct sy_error *err)
{
    const char *name = "";
    int status = verify_text(v->item, "converter", &name, err);
    if (!status && strcmp(name, "encdec") && strcmp(name, "lm"))
        status = syi_error(err, SY_EFORMAT, "converter %.60s: encdec and lm are there", name);
    if (!status) status = verify_flag(v->item, "pack", &v->packed, err);
    if (!status) status = verify_int(v->item, "inputs_length", 1, LONGEST, &v->inputs_length, err);
    if (!status) status = verify_int(v->item, "targets_length", 1, LONGEST, &v->targets_length, err);
    v->converter = strcmp(name, "lm") ? SYI_CONVERT_ENCDEC : SYI_CONVERT_LM;
    /* By their notes, cases of this name leave the trimming out, so that the converter refuses. */
    v->trims = !strstr(v->item->name, "overlong");
    return status;
}

static int add_example(struct conversion *v, uint32_t inputs, uint32_t targets, struct sy_error *err)
{
    struct syi_ids a = {0}, b = {0};
    int status = verify_data_ids(v->item, inputs, &a, err);
    if (!status) status = verify_data_ids(v->item, targets, &b, err);
    if (!status) {
        if (v->trims) syi_trim(&a, (int32_t)v->inputs_length), syi_trim(&b, (int32_t)v->targets_length);
        struct syi_id_example example = {a.id, b.id, (int32_t)a.n, (int32_t)b.n};
        status = syi_rows_add(&v->rows, &example, err);
        if (status == SY_EINVAL) status = VERIFY_ARGUMENT_ERROR;
    }
    syi_ids_free(&a);
    syi_ids_free(&b);
    return status;
}

static int add_examples(struct conversion *v, struct sy_error *err)
{
    const struct syi_json_node *node = v->item->json.nodes;
    uint32_t lists, inputs = 0, targets = 0;
    int status = verify_member(v->item, 0, "inputs", SYI_JSON_OBJECT, &lists, err);
    if (!status) status = verify_member(v->item, lists, "inputs", SYI_JSON_ARRAY, &inputs, err);
    if (!status) status = verify_member(v->item, lists, "targets", SYI_JSON_ARRAY, &targets, err);
    if (status) return status;
    if (node[inputs].n_children != node[targets].n_children || !node[inputs].n_children)
        return syi_error(err, SY_EFORMAT, "inputs and targets are not two lists of the same length");
    status = syi_rows_create(&v->rows, v->converter, v->packed, (int32_t)v->inputs_length,
                             (int32_t)v->targets_length, (int32_t)node[inputs].n_children, err);
    uint32_t i = node[inputs].first, j = node[targets].first;
    for (; !status && i != SYI_JSON_NONE; i = node[i].next, j = node[j].next)
        status = add_example(v, i, j, err);
    return status;
}

static void put_rows(struct syi_json_writer *w, const char *side, const char *what, const int32_t *ids,
                     int32_t rows, int32_t length)
{
    char key[48];
    if (!ids) return;
    snprintf(key, sizeof key, "%s_%s", side, what);
    syi_json_put_key(w, key);
    syi_json_open(w, '[');
    for (int32_t i = 0; i < rows; i++)
        verify_data_put_ids(w, ids + (size_t)i * (size_t)length, (size_t)length);
    syi_json_close(w, ']');
}

static void put_side(struct syi_json_writer *w, const char *name, const char *tokens,
                     const struct syi_side *side, int32_t rows)
{
    put_rows(w, name, tokens, side->tokens, rows, side->length);
    put_rows(w, name, "segment_ids", side->segments, rows, side->length);
    put_rows(w, name, "positions", side->positions, rows, side->length);
}

static int put_answer(const struct conversion *v, struct syi_json_writer *w, struct sy_error *err)
{
    const struct syi_rows *r = &v->rows;
    size_t n = (size_t)r->n * (size_t)r->decoder.length;
    int32_t *weights = syi_alloc((n + 1) * sizeof *weights, err);
    if (!weights) return SY_ENOMEM;
    for (size_t i = 0; i < n; i++) weights[i] = (int32_t)r->loss_weights[i];
    syi_json_open(w, '{');
    put_side(w, "encoder", "input_tokens", &r->encoder, r->n);
    put_side(w, "decoder", "target_tokens", &r->decoder, r->n);
    put_rows(w, "decoder", "input_tokens", r->decoder_inputs, r->n, r->decoder.length);
    put_rows(w, "decoder", "loss_weights", weights, r->n, r->decoder.length);
    syi_json_close(w, '}');
    syi_free(weights);
    return SY_OK;
}

int verify_data_converter(const struct verify_case *c, struct verify_report *report, struct sy_error *err)
{
    struct conversion v = {.item = c};
    struct syi_text text = {0};
    struct syi_json_writer writer;
    struct sy_error why = {0};
    uint32_t expected = syi_json_member(&c->json, 0, "expected");
    int status = read_config(&v, err);
    if (expected == SYI_JSON_NONE) status = syi_error(err, SY_EFORMAT, "nothing is expected");
    if (status) return status;
    syi_json_begin(&writer, &text);
    status = add_examples(&v, &why);
    if (verify_is_answer(status)) {
        verify_put_error(&writer, status);
        status = SY_OK;
    } else {
        status = status ? syi_error(err, status, "%s", why.text) : put_answer(&v, &writer, err);
    }
    if (!status) status = verify_value(c, expected, "rows", &text, report, err);
    syi_text_free(&text);
    syi_rows_free(&v.rows);
    return status;
}
