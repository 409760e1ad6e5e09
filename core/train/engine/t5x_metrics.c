/* SPDX-License-Identifier: Apache-2.0 */
/* T5X's metrics from a step's result and its batch. What counts padding is there with metrics.divide_by = all
 * only; else its place is taken by what counts real tokens. */
#include "config.h"

#include "base/compat.h"
#include "data/loss_weights.h"
#include "train/engine/t5x_metrics.h"

struct list {
    struct syi_t5x_metric *out;
    int n;
};

static void add(struct list *l, const char *name, double total, double divisor, int steps)
{
    l->out[l->n++] = (struct syi_t5x_metric){name, total, divisor, steps};
}

/* Tokens that are not 0. */
static int64_t tokens(const int32_t *ids, int64_t n)
{
    int64_t count = 0;
    for (int64_t i = 0; i < n; i++) count += ids[i] > 0;
    return count;
}

/* Rows with a token; of packed rows the examples in them. */
static int64_t examples(const int32_t *ids, const int32_t *segments, int64_t rows, int64_t length)
{
    int64_t count = 0;
    for (int64_t row = 0; row < rows; row++) {
        int64_t most = 0;
        for (int64_t i = row * length; i < (row + 1) * length; i++) {
            int64_t here = segments ? segments[i] : ids[i] > 0;
            if (here > most) most = here;
        }
        count += most;
    }
    return count;
}

/* How full batches are; dense models only, as T5X's MoE loss hears of no segments. */
static void add_filling(struct list *l, const struct syi_batch *b, int64_t parts)
{
    int64_t in = (int64_t)b->rows * b->input_length, out = (int64_t)b->rows * b->target_length;
    double n_in = (double)tokens(b->encoder_ids, in), n_out = (double)tokens(b->decoder_targets, out);
    double rows_in = (double)examples(b->encoder_ids, b->encoder_segments, b->rows, b->input_length);
    double rows_out = (double)examples(b->decoder_targets, b->decoder_segments, b->rows, b->target_length);
    int packed = b->decoder_segments != NULL;
    add(l, packed ? "effective_batch_size/encoder" : "effective_batch_size/encoder_input_tokens", rows_in,
        (double)parts, 1);
    add(l, packed ? "effective_batch_size/decoder" : "effective_batch_size/decoder_target_tokens", rows_out,
        (double)parts, 1);
    add(l, packed ? "non_padding_fraction/encoder" : "non_padding_fraction/encoder_input_tokens", n_in,
        (double)in, 0);
    add(l, packed ? "non_padding_fraction/decoder" : "non_padding_fraction/decoder_target_tokens", n_out,
        (double)out, 0);
    add(l, "non_padding_fraction/overall", n_in + n_out, (double)(in + out), 0);
}

/* The shares of a step are means over its microbatches; T5X's are sums, as it takes a step for one. */
static void add_experts(struct list *l, const struct syi_step_result *r, double steps, int as_t5x)
{
    double parts = as_t5x ? 1 : steps;
    add(l, "experts/auxiliary_loss", r->auxiliary_loss, steps, 1);
    add(l, "experts/router_z_loss", r->router_z_loss, steps, 1);
    add(l, "experts/fraction_tokens_left_behind", r->left_behind / parts, steps, 1);
    add(l, "experts/expert_usage", r->expert_usage / parts, steps, 1);
    add(l, "experts/router_confidence", r->router_confidence / parts, steps, 1);
}

/* all: targets with padding. */
static void add_per_token_as_t5x(struct list *l, const struct syi_step_result *r, double all)
{
    add(l, "loss_per_all_target_tokens", r->loss, all, 0);
    add(l, "loss_per_nonpadding_target_token", r->loss, r->weight_sum, 0);
    add(l, "z_loss_per_all_target_tokens", r->z_loss, all, 0);
    add(l, "cross_ent_loss_per_all_target_tokens", r->cross_entropy, all, 0);
}

/* Where the loss is a sum; else it is per token already. */
static void add_per_real_token(struct list *l, const struct syi_config *config,
                               const struct syi_step_result *r)
{
    struct syi_loss_factor factor;
    if (syi_loss_factor_parse(&factor, config->loss.loss_normalizing_factor, NULL)) return;
    if (factor.kind != SYI_LOSS_FACTOR_NONE && factor.kind != SYI_LOSS_FACTOR_NUMBER) return;
    add(l, "loss_per_nonpadding_target_token", r->loss, r->weight_sum, 0);
    add(l, "z_loss_per_nonpadding_target_token", r->z_loss, r->weight_sum, 0);
    add(l, "cross_ent_loss_per_nonpadding_target_token", r->cross_entropy, r->weight_sum, 0);
}

int syi_t5x_metrics(const struct syi_config *config, const struct syi_batch *b,
                    const struct syi_step_result *r, int64_t microbatches,
                    struct syi_t5x_metric out[SYI_T5X_METRICS])
{
    struct list l = {out, 0};
    double all = (double)b->rows * b->target_length, steps = (double)microbatches;
    int as_t5x = syi_compat(config, config->metrics.divide_by);
    add(&l, "loss", r->loss, steps, 1);
    add(&l, "cross_ent_loss", r->cross_entropy, steps, 1);
    add(&l, "z_loss", r->z_loss, steps, 1);
    add(&l, "accuracy", r->correct, (double)r->weighted, 0);
    if (as_t5x)
        add_per_token_as_t5x(&l, r, all);
    else
        add_per_real_token(&l, config, r);
    add(&l, "non_padding_fraction/loss_weights", r->weight_sum, all, 0);
    if (config->moe.num_experts)
        add_experts(&l, r, steps, as_t5x);
    else
        add_filling(&l, b, microbatches);
    return l.n;
}

double syi_t5x_metric_value(const struct syi_config *config, const struct syi_t5x_metric *metric)
{
    if (metric->steps) return metric->total;
    if (metric->divisor == 0 && !syi_compat(config, config->metrics.divide_by)) return 0;
    return metric->total / metric->divisor;
}
