/* SPDX-License-Identifier: Apache-2.0 */
/* Mixing rates, span corruption, trimming and end tokens against seqio and t5.data. */
#include "config.h"

#include <math.h>
#include <string.h>

#include "data/mixing.h"
#include "data/preprocess.h"
#include "data/spans.h"
#include "verify/data_case.h"

/* ---- mixing rates: numbers, so not rows of equal values ---- */

static int rate_of(const struct verify_case *c, uint32_t row, double *rate, struct sy_error *err)
{
    int64_t n, maximum;
    double scale = 1, temperature = 1;
    int none, status = verify_member_int(c, row, "num_examples", 0, INT64_MAX, NULL, &n, err);
    if (!status) status = verify_member_int(c, row, "maximum", 0, INT64_MAX, &none, &maximum, err);
    if (!status) status = verify_member_real(c, row, "scale", &scale, err);
    if (!status) status = verify_member_real(c, row, "temperature", &temperature, err);
    if (!status) *rate = syi_mixing_rate((double)n, scale, (double)maximum, temperature);
    return status;
}

int verify_data_mixing(const struct verify_case *c, struct verify_report *report, struct sy_error *err)
{
    const struct syi_json_node *node = c->json.nodes;
    uint32_t inputs, expected;
    char name[40];
    int status = verify_member(c, 0, "inputs", SYI_JSON_ARRAY, &inputs, err);
    if (!status) status = verify_member(c, 0, "expected", SYI_JSON_ARRAY, &expected, err);
    if (status) return status;
    if (node[inputs].n_children != node[expected].n_children || !node[inputs].n_children)
        return syi_error(err, SY_EFORMAT, "inputs and expected are not two lists of the same length");
    uint32_t i = node[inputs].first, j = node[expected].first;
    for (int row = 0; i != SYI_JSON_NONE; row++, i = node[i].next, j = node[j].next) {
        double rate = 0, want = node[j].number;
        status = rate_of(c, i, &rate, err);
        if (status) return status;
        double error = fabs(rate - want), allowed = c->rtol * report->tolerance * fabs(want);
        snprintf(name, sizeof name, "rate row %d", row);
        verify_judge(report, name, want != 0 ? error / fabs(want) : error,
                     node[j].kind == SYI_JSON_NUMBER && error <= allowed ? NULL
                                                                         : "another rate than expected");
    }
    return SY_OK;
}

/* ---- span corruption ---- */

static int span_lengths(void *arg, const struct verify_row *row, struct syi_json_writer *answer,
                        struct sy_error *err)
{
    (void)arg;
    struct syi_span_shape shape = {0};
    int64_t length, inputs, targets;
    int32_t out[2];
    int status = verify_member_int(row->item, row->input, "inputs_length", 1, INT32_MAX, NULL, &length, err);
    if (!status)
        status = verify_member_real(row->item, row->input, "noise_density", &shape.noise_density, err);
    if (!status)
        status =
            verify_member_real(row->item, row->input, "mean_noise_span_length", &shape.mean_span_length, err);
    if (!status)
        status = verify_member_int(row->item, row->input, "extra_tokens_per_span_inputs", 0, INT32_MAX, NULL,
                                   &inputs, err);
    if (!status)
        status = verify_member_int(row->item, row->input, "extra_tokens_per_span_targets", 0, INT32_MAX, NULL,
                                   &targets, err);
    if (status) return status;
    shape.extra_inputs = (int32_t)inputs;
    shape.extra_targets = (int32_t)targets;
    status = syi_span_lengths(&shape, (int32_t)length, &out[0], &out[1], err);
    if (!status) verify_data_put_ids(answer, out, 2);
    return status;
}

int verify_data_span_lengths(const struct verify_case *c, struct verify_report *report, struct sy_error *err)
{
    verify_ignore(c, "result"); /* says what the two numbers are */
    return verify_data_rows(c, "lengths",
                            "inputs_length noise_density mean_noise_span_length extra_tokens_per_span_inputs "
                            "extra_tokens_per_span_targets",
                            span_lengths, NULL, report, err);
}

static void count_noise(const uint8_t *mask, int32_t n, int32_t *tokens, int32_t *spans)
{
    *tokens = *spans = 0;
    for (int32_t i = 0; i < n; i++) {
        *tokens += mask[i];
        *spans += mask[i] && (i == 0 || !mask[i - 1]);
    }
}

/* The counts of a real mask; those of masks of other keys are the same. */
static int put_counts(int32_t n, double density, double mean, struct syi_json_writer *answer,
                      struct sy_error *err)
{
    int32_t tokens = 0, spans = 0, noise, between;
    uint8_t *mask = syi_alloc((size_t)n, err);
    int status = mask ? SY_OK : SY_ENOMEM, first = 0;
    for (uint64_t key = 0; key < 8 && !status; key++) {
        status = syi_span_mask(n, density, mean, key, mask, err);
        if (status == SY_EINVAL) status = VERIFY_ARGUMENT_ERROR;
        if (status) break;
        count_noise(mask, n, &noise, &between);
        if (key && (noise != tokens || between != spans))
            status = syi_error(err, SY_EINTERNAL, "counts depend on the key");
        tokens = noise, spans = between, first = mask[0];
    }
    syi_free(mask);
    if (status) return status;
    syi_json_open(answer, '{');
    syi_json_put_key_integer(answer, "first_is_noise", first);
    syi_json_put_key_integer(answer, "num_noise_spans", spans);
    syi_json_put_key_integer(answer, "num_noise_tokens", tokens);
    syi_json_close(answer, '}');
    return SY_OK;
}

static int span_mask(void *arg, const struct verify_row *row, struct syi_json_writer *answer,
                     struct sy_error *err)
{
    (void)arg;
    int64_t n;
    double density = 0, mean = 0;
    int status = verify_member_int(row->item, row->input, "length", 1, 1 << 24, NULL, &n, err);
    if (!status) status = verify_member_real(row->item, row->input, "noise_density", &density, err);
    if (!status) status = verify_member_real(row->item, row->input, "mean_noise_span_length", &mean, err);
    return status ? status : put_counts((int32_t)n, density, mean, answer, err);
}

int verify_data_span_masks(const struct verify_case *c, struct verify_report *report, struct sy_error *err)
{
    return verify_data_rows(c, "mask", "length noise_density mean_noise_span_length", span_mask, NULL, report,
                            err);
}

/* ---- what becomes of noise ---- */

static int put_treatments(const struct syi_ids *tokens, const uint8_t *mask, int32_t sentinel,
                          struct syi_json_writer *answer, struct sy_error *err)
{
    static const struct {
        const char *name;
        enum syi_noise what;
    } all[] = {{"drop_noise_tokens", SYI_DROP_NOISE},
               {"drop_nonnoise_tokens", SYI_DROP_TEXT},
               {"noise_token_to_sentinel", SYI_NOISE_TO_SENTINEL},
               {"noise_span_to_sentinel", SYI_NOISE_SPAN_TO_SENTINEL},
               {"noise_span_to_unique_sentinel", SYI_NOISE_SPAN_TO_UNIQUE_SENTINEL},
               {"nonnoise_span_to_unique_sentinel", SYI_TEXT_SPAN_TO_UNIQUE_SENTINEL}};
    int32_t *out = syi_alloc((tokens->n + 1) * sizeof *out, err);
    if (!out) return SY_ENOMEM;
    syi_json_open(answer, '{');
    for (size_t i = 0; i < SYI_COUNT(all); i++) {
        int32_t n = syi_noise_apply(all[i].what, tokens->id, mask, (int32_t)tokens->n, sentinel, out);
        syi_json_put_key(answer, all[i].name);
        verify_data_put_ids(answer, out, (size_t)n);
    }
    syi_json_close(answer, '}');
    syi_free(out);
    return SY_OK;
}

static int sentinels(void *arg, const struct verify_row *row, struct syi_json_writer *answer,
                     struct sy_error *err)
{
    (void)arg;
    int64_t size = 0;
    struct syi_ids tokens = {0}, noise = {0};
    int status = verify_member_int(row->item, row->input, "vocab_size", 1, INT32_MAX, NULL, &size, err);
    if (!status) status = verify_data_member_ids(row->item, row->input, "tokens", &tokens, err);
    if (!status) status = verify_data_member_ids(row->item, row->input, "noise_mask", &noise, err);
    if (!status && tokens.n != noise.n)
        status = syi_error(err, SY_EFORMAT, "tokens and mask differ in length");
    uint8_t *mask = status ? NULL : syi_alloc(tokens.n + 1, err);
    for (size_t i = 0; mask && i < noise.n; i++) mask[i] = noise.id[i] != 0;
    if (!status) status = mask ? put_treatments(&tokens, mask, (int32_t)size - 1, answer, err) : SY_ENOMEM;
    syi_free(mask);
    syi_ids_free(&tokens);
    syi_ids_free(&noise);
    return status;
}

int verify_data_sentinels(const struct verify_case *c, struct verify_report *report, struct sy_error *err)
{
    verify_ignore(c, "sentinel_id"); /* says in words which id it is */
    return verify_data_rows(c, "noise", "noise_mask tokens vocab_size vocabulary", sentinels, NULL, report,
                            err);
}

/* ---- trimming and end tokens ---- */

struct feature {
    const char *name;
    int there, adds_end;
    int32_t length; /* or SYI_NO_LENGTH */
    uint32_t next;  /* node of its next example */
};

static int read_length(const struct verify_row *row, const char *key, struct feature *f, struct sy_error *err)
{
    const struct syi_json *json = &row->item->json;
    uint32_t lengths = syi_json_member(json, row->input, key);
    int64_t length;
    if (lengths == SYI_JSON_NONE || syi_json_member(json, lengths, f->name) == SYI_JSON_NONE) return SY_OK;
    int status = verify_member_int(row->item, lengths, f->name, 1, INT32_MAX, NULL, &length, err);
    if (!status) f->length = (int32_t)length;
    return status;
}

static int read_feature(const struct verify_row *row, const char *end, struct feature *f,
                        struct sy_error *err)
{
    const struct syi_json *json = &row->item->json;
    uint32_t list = syi_json_member(json, row->input, f->name), adds;
    f->length = SYI_NO_LENGTH;
    f->there = list != SYI_JSON_NONE && json->nodes[list].kind == SYI_JSON_ARRAY;
    if (!f->there) return SY_OK;
    f->next = json->nodes[list].first;
    adds = end ? syi_json_member(json, row->input, end) : SYI_JSON_NONE;
    f->adds_end = adds != SYI_JSON_NONE && json->nodes[adds].kind == SYI_JSON_TRUE;
    int status = read_length(row, "sequence_length", f, err);
    return status ? status : read_length(row, "feature_lengths", f, err);
}

static int treat(const char *op, const struct feature *f, int32_t end, struct syi_ids *ids,
                 struct sy_error *err)
{
    if (!strcmp(op, "append_eos")) return f->adds_end ? syi_append_end(ids, end, err) : SY_OK;
    if (!strcmp(op, "append_eos_after_trim"))
        return f->adds_end ? syi_append_end_after_trim(ids, f->length, end, err) : SY_OK;
    syi_trim(ids, f->length);
    if (!strcmp(op, "trim_dataset")) return SY_OK;
    if (!strcmp(op, "trim_and_pad_dataset")) return syi_pad(ids, f->length, err);
    return syi_error(err, SY_EFORMAT, "op %.60s is none that this program knows", op);
}

static int put_feature(const struct verify_row *row, const char *op, struct feature *f, int32_t end,
                       struct syi_json_writer *answer, struct sy_error *err)
{
    struct syi_ids ids = {0};
    if (f->next == SYI_JSON_NONE)
        return syi_error(err, SY_EFORMAT, "%s has fewer examples than others", f->name);
    int status = verify_data_ids(row->item, f->next, &ids, err);
    if (!status) status = treat(op, f, end, &ids, err);
    if (!status) {
        syi_json_put_key(answer, f->name);
        verify_data_put_ids(answer, ids.id, ids.n);
    }
    f->next = row->item->json.nodes[f->next].next;
    syi_ids_free(&ids);
    return status;
}

static int ends(void *arg, const struct verify_row *row, struct syi_json_writer *answer, struct sy_error *err)
{
    const int32_t *end = arg;
    struct feature feature[] = {{.name = "inputs"}, {.name = "targets"}, {.name = "other"}};
    static const char *const adds[] = {"inputs_add_eos", "targets_add_eos", NULL};
    uint32_t node, first;
    int status = verify_member(row->item, row->input, "op", SYI_JSON_STRING, &node, err);
    for (size_t i = 0; !status && i < SYI_COUNT(feature); i++)
        status = read_feature(row, adds[i], &feature[i], err);
    if (!status) status = verify_member(row->item, row->input, "inputs", SYI_JSON_ARRAY, &first, err);
    if (status) return status;
    syi_json_open(answer, '[');
    while (!status && feature[0].next != SYI_JSON_NONE) {
        syi_json_open(answer, '{');
        for (size_t i = 0; !status && i < SYI_COUNT(feature); i++)
            if (feature[i].there)
                status =
                    put_feature(row, syi_json_string(&row->item->json, node), &feature[i], *end, answer, err);
        syi_json_close(answer, '}');
    }
    syi_json_close(answer, ']');
    return status;
}

int verify_data_ends(const struct verify_case *c, struct verify_report *report, struct sy_error *err)
{
    int64_t id;
    int status = verify_int(c, "eos_id", 0, INT32_MAX, &id, err);
    int32_t end = (int32_t)id;
    if (status) return status;
    return verify_data_rows(c, "ends",
                            "op inputs targets other inputs_add_eos targets_add_eos sequence_length "
                            "feature_lengths",
                            ends, &end, report, err);
}
