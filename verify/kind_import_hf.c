/* SPDX-License-Identifier: Apache-2.0 */
/* Folders of Hugging Face transformers: encoder output, logits, loss and routing of one batch, then generation and texts. */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "verify/import_case.h"

/* ---- the batch ---- */

static int need_ids(const struct verify_case *c, const char *name, int64_t *rows, int64_t *length,
                    const int32_t **ids, struct sy_error *err)
{
    const struct verify_tensor *t;
    const int64_t dim[2] = {*rows ? *rows : -1, *length ? *length : -1};
    int status = verify_need(c, name, 'i', 2, dim, &t, err);
    if (status) return status;
    *rows = t->dim[0];
    *length = t->dim[1];
    *ids = t->integer;
    return SY_OK;
}

static int read_inputs(struct verify_hf *h, struct sy_error *err)
{
    const struct verify_case *c = h->v->item;
    int status = need_ids(c, "input_ids", &h->rows, &h->input_length, &h->input_ids, err);
    if (!status) status = need_ids(c, "attention_mask", &h->rows, &h->input_length, &h->mask, err);
    if (!status) status = need_ids(c, "decoder_input_ids", &h->rows, &h->target_length, &h->decoder_ids, err);
    if (!status) status = need_ids(c, "labels", &h->rows, &h->target_length, &h->labels, err);
    if (!status && (h->rows < 1 || h->input_length < 1 || h->target_length < 1 || h->rows > 1 << 16))
        status = syi_error(err, SY_EFORMAT, "an empty batch");
    return status;
}

static int take_memory(struct verify_hf *h, struct sy_error *err)
{
    size_t rows = (size_t)h->rows, in = rows * (size_t)h->input_length, out = rows * (size_t)h->target_length;
    h->targets = syi_alloc(out * sizeof *h->targets, err);
    h->weights = syi_alloc(out * sizeof *h->weights, err);
    h->items = syi_alloc(rows * sizeof *h->items, err);
    h->lengths[0] = syi_alloc(rows * sizeof *h->lengths[0], err);
    h->lengths[1] = syi_alloc(rows * sizeof *h->lengths[1], err);
    h->real[0] = syi_alloc(in, err);
    h->real[1] = syi_alloc(out, err);
    return h->targets && h->weights && h->items && h->lengths[0] && h->lengths[1] && h->real[0] && h->real[1]
               ? SY_OK
               : SY_ENOMEM;
}

static void close_batch(struct verify_hf *h)
{
    syi_free(h->targets);
    syi_free(h->weights);
    syi_free(h->items);
    for (int i = 0; i < 2; i++) {
        syi_free(h->lengths[i]);
        syi_free(h->real[i]);
    }
}

static int make_batch(struct verify_hf *h, struct sy_error *err)
{
    int status = take_memory(h, err);
    if (status) return status;
    for (int64_t row = 0; row < h->rows; row++) {
        h->items[row] = row;
        for (int64_t t = 0; t < h->input_length; t++) {
            int64_t i = row * h->input_length + t;
            h->real[0][i] = h->mask[i] == 1;
            if (h->mask[i]) h->lengths[0][row] = (int32_t)t + 1;
        }
        for (int64_t t = 0; t < h->target_length; t++) {
            int64_t i = row * h->target_length + t;
            h->real[1][i] = h->labels[i] >= 0;
            h->targets[i] = h->labels[i] >= 0 ? h->labels[i] : 0;
            h->weights[i] = h->labels[i] >= 0;
            if (h->labels[i] >= 0) h->lengths[1][row] = (int32_t)t + 1;
        }
        h->batch.n_input_tokens += h->lengths[0][row];
        h->batch.n_target_tokens += h->lengths[1][row];
    }
    struct syi_batch *b = &h->batch;
    b->rows = b->n_real = (int32_t)h->rows;
    b->input_length = b->capacity_input = (int32_t)h->input_length;
    b->target_length = b->capacity_target = (int32_t)h->target_length;
    memcpy(&b->encoder_ids, &h->input_ids, sizeof h->input_ids); /* the engine only reads them */
    memcpy(&b->decoder_inputs, &h->decoder_ids, sizeof h->decoder_ids);
    b->decoder_targets = h->targets;
    b->loss_weights = h->weights;
    b->input_lengths = h->lengths[0];
    b->target_lengths = h->lengths[1];
    b->items = h->items;
    return SY_OK;
}

static int compare_forward(struct verify_hf *h, const char *suffix, struct sy_error *err)
{
    struct syi_engine *engine;
    double loss = 0;
    char name[80];
    int status = verify_import_engine(h->v, SYI_USE_EVAL, &engine, err);
    if (!status) status = verify_hf_forward(h, engine, NULL, &loss, suffix, err);
    syi_engine_free(engine);
    float rounded = (float)loss;
    snprintf(name, sizeof name, "loss%s", suffix);
    if (!status) verify_floats(h->v->report, name, &rounded, 1);
    return status;
}

/* Version 5 scales before a head of UMT5's own too, of files that version 4 wrote. */
static int compare_version_5(struct verify_hf *h, struct sy_error *err)
{
    struct syi_config before = h->v->config;
    if (!verify_find(h->v->item, "logits_transformers_5")) return SY_OK;
    int status = syi_config_set(&h->v->config, "model.scale_decoder_outputs=true", err);
    if (!status) status = compare_forward(h, "_transformers_5", err);
    h->v->config = before;
    return status;
}

/* ---- the case ---- */

/* Facts of expected.json that nothing here depends on, inputs, and numbers for information. */
static void pass_over(struct verify_import *v)
{
    static const char *const tensors[] = {"input_ids", "attention_mask", "decoder_input_ids", "labels",
                                          "logits_computed_in_bfloat16"};
    verify_ignore(
        v->item,
        "fixture seed made_with files_written_by files head absent f32_vs_f64_max_err pickle dtypes tensors "
        "one_storage not_used note error_of_computing_in_bfloat16 smallest_top1_top2_probability_gap routing "
        "output_router_logits tokenizer_size vocab_size");
    for (size_t i = 0; i < SYI_COUNT(tensors); i++) {
        const struct verify_tensor *t = verify_find(v->item, tensors[i]);
        if (t) v->report->covered[t - v->item->tensor] = t->n;
    }
}

int verify_import_hf(struct verify_import *v, const char *folder, struct sy_error *err)
{
    struct verify_hf h = {.v = v};
    pass_over(v);
    int status = read_inputs(&h, err);
    if (!status) status = make_batch(&h, err);
    if (!status) status = verify_import_open(v, folder, h.rows, h.input_length, h.target_length, err);
    if (!status) status = compare_forward(&h, "", err);
    if (!status) status = compare_version_5(&h, err);
    if (!status) status = verify_hf_texts(&h, err);
    if (!status) status = verify_hf_generate(&h, err);
    close_batch(&h);
    return status;
}
