/* SPDX-License-Identifier: Apache-2.0 */
/* Cases that read a checkpoint of another program: its folder, opened as `import` does, and engines of its model. */
#ifndef VERIFY_IMPORT_CASE_H
#define VERIFY_IMPORT_CASE_H

#include "import/import.h"
#include "train/engine/engine.h"
#include "verify/verify.h"

struct verify_import {
    const struct verify_context *context;
    const struct verify_case *item;
    struct verify_report *report;
    struct syi_import import;
    struct syi_config config; /* of the import, with the lengths and rows of the case */
};

/* Opens the checkpoint with these lengths and rows of a batch, and checks it against its model. `checkpoint`: its folder.
 * Closed by the caller, also after a failure. */
int verify_import_open(struct verify_import *v, const char *checkpoint, int64_t rows, int64_t input_length,
                       int64_t target_length, struct sy_error *err) SYI_MUST_CHECK;
void verify_import_close(struct verify_import *v);
/* An engine of v->config as it is now, with the checkpoint's weights. Freed by the caller. */
int verify_import_engine(struct verify_import *v, int use, struct syi_engine **engine,
                         struct sy_error *err) SYI_MUST_CHECK;
/* Reports `got` against the expected tensor of `width` numbers a position, where real[position] is not 0. */
void verify_import_floats(struct verify_import *v, const char *name, const float *got, const uint8_t *real,
                          int64_t positions, int64_t width);

/* The two formats' cases: kind_import_hf.c, kind_import_t5x.c. folder: of the case. */
int verify_import_hf(struct verify_import *v, const char *folder, struct sy_error *err) SYI_MUST_CHECK;
int verify_import_t5x(struct verify_import *v, const char *folder, struct sy_error *err) SYI_MUST_CHECK;

/* ---- the parts of hf cases ---- */

/* Inputs of the case. */
struct verify_hf {
    struct verify_import *v;
    int64_t rows, input_length, target_length;
    const int32_t *input_ids, *mask, *decoder_ids, *labels; /* [rows, length] */
    struct syi_batch batch;
    int32_t *targets, *lengths[2]; /* owned: labels with 0 for -100, lengths of both sides */
    int64_t *items;                /* owned: 0, 1, ... */
    float *weights;                /* owned */
    uint8_t *real[2];              /* owned: positions that are compared, of encoder and decoder */
};
/* Runs eval once with what is in the batch. logits: [rows, target_length, vocab] are copied there; loss: mean over the
 * targets; suffix: what is seen on the way is compared, logits as "logits" and the suffix, the rest where it is empty. All
 * three may be NULL. */
int verify_hf_forward(struct verify_hf *h, struct syi_engine *engine, float *logits, double *loss,
                      const char *suffix, struct sy_error *err) SYI_MUST_CHECK;
/* Every run of "generate" of expected.json. */
int verify_hf_generate(struct verify_hf *h, struct sy_error *err) SYI_MUST_CHECK;
/* "tokenizer_cases", and the texts of a case's inputs and outputs. */
int verify_hf_texts(struct verify_hf *h, struct sy_error *err) SYI_MUST_CHECK;

/* A list of numbers of a JSON array into fresh memory; *n of them. */
int verify_import_ids(const struct verify_case *c, uint32_t array, int32_t **ids, size_t *n,
                      struct sy_error *err) SYI_MUST_CHECK;

#endif
