/* SPDX-License-Identifier: Apache-2.0 */
/* A small made-up model for tests of the decoder: logits by a hash of example and prefix, caches that follow
 * their rows, and the candidates that a device would give. */
#ifndef DECODING_MODEL_H
#define DECODING_MODEL_H

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "base/philox.h"
#include "train/decode/decode.h"

enum { MAX_ROWS = 400, MAX_LENGTH = 8, MAX_VOCAB = 16, MAX_WIDTH = 256 };

struct fake {
    const struct syi_decode_options *o;
    const int64_t *example; /* of the batch, or NULL */
    float eos_bias;         /* added to the end token's logit */
    int flat;               /* all logits are equal */
    const float *fixed;     /* logits of every prefix, or NULL */
    int steps;
    int32_t prefix[2][MAX_ROWS][MAX_LENGTH];
    float logits[MAX_ROWS * MAX_VOCAB], value[MAX_ROWS * MAX_VOCAB];
    int32_t id[MAX_ROWS * MAX_VOCAB];
};

static inline void make_logits(const struct fake *f, int64_t example, const int32_t *prefix, int n,
                               float *logits)
{
    uint32_t counter[4] = {(uint32_t)example, 0, 0, 7}, key[2] = {99, (uint32_t)n}, out[4];
    for (int i = 0; i < n; i++) counter[1] = counter[1] * 31 + (uint32_t)prefix[i] + 1;
    for (int v = 0; v < f->o->vocab; v++) {
        counter[2] = (uint32_t)v;
        syi_philox(counter, key, out);
        logits[v] = f->fixed ? f->fixed[v] : f->flat ? 0 : 4 * (float)((double)out[0] * 0x1p-32);
    }
    logits[f->o->eos] += f->eos_bias;
}

static inline double log_sum(const float *x, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++) sum += exp((double)x[i]);
    return log(sum);
}

/* What the device does: add + log softmax in float, the largest first. */
static inline void make_top(struct fake *f, const struct syi_decode_io *io, int row)
{
    int vocab = f->o->vocab, width = syi_decode_width(f->o);
    const float *logits = f->logits + row * vocab;
    double lse = log_sum(logits, vocab);
    int taken[MAX_VOCAB] = {0};
    for (int k = 0; k < width; k++) {
        int best = -1;
        float most = 0;
        for (int v = 0; v < vocab; v++) {
            float x = (float)((double)logits[v] - lse) + io->add[row];
            if (taken[v] || (best >= 0 && x <= most)) continue;
            best = v;
            most = x;
        }
        taken[best] = 1;
        f->value[row * width + k] = most;
        f->id[row * width + k] = best;
    }
}

static inline int run(void *arg, struct syi_decode_io *io, struct sy_error *err)
{
    struct fake *f = arg;
    (void)err;
    int32_t(*now)[MAX_LENGTH] = f->prefix[io->position % 2],
    (*old)[MAX_LENGTH] = f->prefix[!(io->position % 2)];
    cr_assert_eq(io->position, f->steps++);
    for (int row = 0; row < f->o->batch * f->o->decodes; row++) {
        int64_t example = row / f->o->decodes;
        int from = io->from ? io->from[row] : row;
        cr_assert_eq(from / f->o->decodes, example);
        memcpy(now[row], old[from], sizeof now[row]);
        now[row][io->position] = io->token[row];
        make_logits(f, f->example ? f->example[example] : example, now[row], io->position + 1,
                    f->logits + row * f->o->vocab);
        if (io->add) make_top(f, io, row);
    }
    io->logits = f->logits;
    io->top_value = f->value;
    io->top_id = f->id;
    return SY_OK;
}

static inline void decode(struct fake *f, const struct syi_decode_options *o,
                          const struct syi_decode_batch *batch, int32_t *ids, float *scores)
{
    struct syi_decoder *decoder;
    struct sy_error err = {0};
    struct syi_decode_step step = {run, f};
    f->o = o;
    f->steps = 0;
    cr_assert_eq(syi_decoder_new(o, &decoder, &err), SY_OK, "%s", err.text);
    cr_assert_eq(syi_decoder_run(decoder, &step, batch, ids, scores, &err), SY_OK, "%s", err.text);
    syi_decoder_free(decoder);
}

static struct fake fake; /* too large for a stack */
static const struct syi_decode_batch plain;

static inline void left_align(int32_t *id, int n)
{
    int first = 0;
    while (first < n && id[first] == 0) first++;
    for (int i = 0; i < n; i++) id[i] = i + first < n ? id[i + first] : 0;
}

#endif
