/* SPDX-License-Identifier: Apache-2.0 */
/* Cases of kind loss: weights and normaliser as the engine makes them, then the cross-entropy op, its sums
 * and the gradient of the logits. */
#include "config.h"

#include "data/loss_weights.h"
#include "program/record.h"
#include "verify/verify.h"

enum { LARGEST = 1 << 24 }; /* of a dim */

struct loss {
    struct syi_config config;
    struct syi_loss_targets targets;
    struct syi_loss_weights in_force;
    float *weights;   /* [rows, length] */
    float normalizer; /* of the sums */
};

static int read_targets(const struct verify_case *c, struct loss *l, struct sy_error *err)
{
    int weighted = 0, packed = 0;
    int64_t vocabulary = 0, *rows = &l->targets.rows, *length = &l->targets.length;
    const struct verify_tensor *targets = NULL, *weights = NULL, *segments = NULL;
    int status = verify_int(c, "batch", 1, LARGEST, rows, err);
    if (!status) status = verify_int(c, "length", 1, LARGEST, length, err);
    if (!status) status = verify_int(c, "vocab_size", 2, LARGEST, &vocabulary, err);
    if (!status) status = verify_flag(c, "has_weights", &weighted, err);
    if (!status) status = verify_flag(c, "packed", &packed, err);
    int64_t dim[2] = {*rows, *length};
    if (!status) status = verify_need(c, "in/decoder_target_tokens", 'i', 2, dim, &targets, err);
    if (!status && weighted) status = verify_need(c, "in/decoder_loss_weights", 'f', 2, dim, &weights, err);
    if (!status && packed) status = verify_need(c, "in/decoder_segment_ids", 'i', 2, dim, &segments, err);
    if (status) return status;
    l->targets.targets = targets->integer;
    l->targets.weights = weights ? weights->real : NULL;
    l->targets.segments = segments ? segments->integer : NULL;
    l->targets.padding_targets = 1;
    l->weights = syi_alloc((size_t)targets->n * sizeof *l->weights, err);
    return l->weights ? SY_OK : SY_ENOMEM;
}

/* A file says by an absent tensor that weights or normaliser are none. */
static void judge_presence(struct verify_report *report, const char *name, int have)
{
    if (!have != !verify_find(report->item, name))
        verify_judge(report, name, 1, have ? "there is one here, the case has none" : "there is none");
}

static void report_weights(struct verify_report *report, const struct loss *l)
{
    int64_t n = l->targets.rows * l->targets.length;
    float sum = (float)l->in_force.weight_sum;
    judge_presence(report, "out/effective_weights", l->in_force.has_weights);
    judge_presence(report, "out/effective_normalizer", l->in_force.has_normalizer);
    if (l->in_force.has_weights) verify_floats(report, "out/effective_weights", l->weights, n);
    if (l->in_force.has_normalizer) verify_floats(report, "out/effective_normalizer", &l->normalizer, 1);
    verify_floats(report, "out/weight_sum", &sum, 1);
}

static void record(struct verify_run *run, const struct loss *l)
{
    struct syi_program *p = run->p;
    verify_extent(run, 'b', l->targets.rows);
    verify_extent(run, 't', l->targets.length);
    verify_extent(run, 'o', 1);
    int logits = verify_in(run, "in/logits", "btv"),
        targets = verify_in(run, "in/decoder_target_tokens", "bt");
    int weights = verify_given(run, "weights", SY_F32, "bt", l->weights);
    int normalizer = verify_given(run, "normalizer", SY_F32, "o", &l->normalizer);
    if (p->status) return;
    struct syi_xent x =
        syi_xent(p, logits, targets, weights, l->config.loss.label_smoothing, l->config.loss.z_loss);
    int loss = syi_map2(p, SY_MAP_DIV, syi_total(p, x.loss), normalizer);
    int z = syi_map2(p, SY_MAP_DIV, syi_total(p, x.z), normalizer);
    verify_differentiate(run, loss);
    verify_out(run, loss, "out/loss");
    verify_out(run, z, "out/z_loss");
}

static int compute(struct verify_context *context, const struct verify_case *c, struct loss *l,
                   struct verify_report *report, struct sy_error *err)
{
    struct verify_run run;
    struct syi_loss_factor factor;
    int status = verify_config(c, "batch length packed has_weights vocab_size", &l->config, err);
    if (!status) status = read_targets(c, l, err);
    if (!status) status = syi_loss_factor_parse(&factor, l->config.loss.loss_normalizing_factor, err);
    if (status) return status;
    l->in_force = syi_loss_weights(&factor, &l->targets, l->weights);
    l->normalizer = (float)l->in_force.normalizer;
    report_weights(report, l);
    status = verify_run_begin(&run, context, c, err);
    if (status) return status;
    record(&run, l);
    status = verify_run_execute(&run, err);
    if (!status) verify_run_report(&run, report);
    verify_run_end(&run);
    return status;
}

int verify_loss(struct verify_context *context, const struct verify_case *c, struct verify_report *report,
                struct sy_error *err)
{
    struct loss *l = syi_alloc(sizeof *l, err);
    if (!l) return SY_ENOMEM;
    int status = compute(context, c, l, report, err);
    syi_free(l->weights);
    syi_free(l);
    return status;
}
