/* SPDX-License-Identifier: Apache-2.0 */
/* The masks cases of kind layer. Attention masks are what the attention op itself does: queries and keys are
 * zero, values the unit vectors, so that its output has a positive number where a query sees a key, and zeros
 * elsewhere. Segments and logit masks come from the code that makes batches. */
#include "config.h"

#include "data/masks.h"
#include "program/record.h"
#include "verify/verify.h"

/* One side of an attention: tokens of [rows, length] and their segments. */
struct side {
    const struct verify_tensor *tokens;
    int32_t *segments; /* [rows, length] */
};

static int make_side(const struct verify_case *c, const char *tokens, const char *ids, int packed,
                     struct side *s, struct sy_error *err)
{
    const struct verify_tensor *segment = NULL;
    int status = verify_need(c, tokens, 'i', 2, (int64_t[]){-1, -1}, &s->tokens, err);
    if (!status && packed) status = verify_need(c, ids, 'i', 2, s->tokens->dim, &segment, err);
    if (status) return status;
    if (s->tokens->n == 0) return syi_error(err, SY_EFORMAT, "tensor %s: it is empty", tokens);
    s->segments = syi_alloc((size_t)s->tokens->n * sizeof *s->segments, err);
    if (!s->segments) return SY_ENOMEM;
    syi_segments(s->tokens->integer, segment ? segment->integer : NULL, s->tokens->n, s->segments);
    return SY_OK;
}

/* Keys of zeros and values of unit vectors, one row [length, 2 length] a batch row. */
static float *unit_values(int64_t rows, int64_t length, struct sy_error *err)
{
    float *kv = syi_alloc((size_t)(rows * length) * (size_t)(2 * length) * sizeof *kv, err);
    for (int64_t i = 0; kv && i < rows * length; i++) kv[i * 2 * length + length + i % length] = 1;
    return kv;
}

/* Runs the op and turns its output into a predicate of 0 and 1. */
static int see(struct verify_run *run, const struct side *q, const struct side *k, int causal,
               const float *zeros, const float *kv, const char *name, struct verify_report *report,
               struct sy_error *err)
{
    struct syi_attention a = SYI_NO_ATTENTION;
    int lse;
    int64_t keys = k->tokens->dim[1], n = 0;
    verify_extent(run, 'b', q->tokens->dim[0]);
    verify_extent(run, 't', q->tokens->dim[1]);
    verify_extent(run, 's', keys);
    verify_extent(run, 'h', keys);
    verify_extent(run, 'w', 2 * keys);
    a.q = verify_given(run, "q", SY_F32, "bth", zeros);
    a.kv = verify_given(run, "kv", SY_F32, "bsw", kv);
    a.q_segments = verify_given(run, "q_segments", SY_I32, "bt", q->segments);
    a.k_segments = verify_given(run, "k_segments", SY_I32, "bs", k->segments);
    a.heads = 1;
    a.head_dim = keys;
    a.causal = causal;
    if (!run->p->status) verify_out(run, syi_attention(run->p, &a, &lse), name);
    int status = verify_run_execute(run, err);
    if (status) return status;
    const float *out = verify_got(run, name, &n);
    float *seen = syi_alloc((size_t)n * sizeof *seen, err);
    if (!seen) return SY_ENOMEM;
    for (int64_t i = 0; i < n; i++) seen[i] = out[i] > 0;
    verify_floats(report, name, seen, n);
    syi_free(seen);
    return SY_OK;
}

static int attend(struct verify_context *context, const struct verify_case *c, const struct side *q,
                  const struct side *k, int causal, const char *name, struct verify_report *report,
                  struct sy_error *err)
{
    struct verify_run run;
    int64_t rows = q->tokens->dim[0], queries = q->tokens->dim[1], keys = k->tokens->dim[1];
    if (k->tokens->dim[0] != rows) return syi_error(err, SY_EFORMAT, "inputs and targets differ in rows");
    float *zeros = syi_alloc((size_t)(rows * queries) * (size_t)keys * sizeof *zeros, err);
    float *kv = unit_values(rows, keys, err);
    int status = zeros && kv ? verify_run_begin(&run, context, c, err) : SY_ENOMEM;
    if (!status) {
        status = see(&run, q, k, causal, zeros, kv, name, report, err);
        verify_run_end(&run);
    }
    syi_free(kv);
    syi_free(zeros);
    return status;
}

/* The files hold logit masks as floating point or as integers. */
static int report_mask(const struct verify_case *c, const char *name, const float *mask, int64_t n,
                       struct verify_report *report, struct sy_error *err)
{
    const struct verify_tensor *expected = verify_find(c, name);
    if (!expected || !expected->integer) {
        verify_floats(report, name, mask, n);
        return SY_OK;
    }
    int32_t *whole = syi_alloc((size_t)n * sizeof *whole, err);
    if (!whole) return SY_ENOMEM;
    for (int64_t i = 0; i < n; i++) whole[i] = (int32_t)mask[i];
    verify_integers(report, name, whole, n);
    syi_free(whole);
    return SY_OK;
}

static int logit_masks(const struct verify_case *c, const struct side *encoder, struct verify_report *report,
                       struct sy_error *err)
{
    const struct verify_tensor *inputs;
    int status = verify_need(c, "in/decoder_input_tokens", 'i', 2, (int64_t[]){-1, -1}, &inputs, err);
    if (status) return status;
    int64_t n = encoder->tokens->n, most = n > inputs->n ? n : inputs->n;
    float *mask = syi_alloc((size_t)most * sizeof *mask, err);
    if (!mask) return SY_ENOMEM;
    syi_encoder_logit_mask(encoder->tokens->integer, n, mask);
    status = report_mask(c, "out/encoder_logit_mask", mask, n, report, err);
    syi_decoder_logit_mask(inputs->integer, inputs->dim[0], inputs->dim[1], mask);
    if (!status) status = report_mask(c, "out/decoder_logit_mask", mask, inputs->n, report, err);
    syi_free(mask);
    return status;
}

int verify_masks(struct verify_context *context, const struct verify_case *c, struct verify_report *report,
                 struct sy_error *err)
{
    int packed = 0;
    struct side encoder = {0}, decoder = {0};
    int status = verify_flag(c, "packed", &packed, err);
    if (!status)
        status = make_side(c, "in/encoder_input_tokens", "in/encoder_segment_ids", packed, &encoder, err);
    if (!status)
        status = make_side(c, "in/decoder_target_tokens", "in/decoder_segment_ids", packed, &decoder, err);
    if (!status) status = attend(context, c, &encoder, &encoder, 0, "out/encoder_mask", report, err);
    if (!status) status = attend(context, c, &decoder, &decoder, 1, "out/decoder_mask", report, err);
    if (!status) status = attend(context, c, &decoder, &encoder, 0, "out/encoder_decoder_mask", report, err);
    if (!status) status = logit_masks(c, &encoder, report, err);
    syi_free(encoder.segments);
    syi_free(decoder.segments);
    return status;
}
