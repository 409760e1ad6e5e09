/* SPDX-License-Identifier: Apache-2.0 */
/* T5X's metrics from a step's result and its batch. Unlike switchyard's own they count padding where T5X
 * does. */
#include "config.h"

#include "train/t5x_metrics.h"

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

static void add_experts(struct list *l, const struct syi_step_result *r, double steps)
{
    add(l, "experts/auxiliary_loss", r->auxiliary_loss, steps, 1);
    add(l, "experts/router_z_loss", r->router_z_loss, steps, 1);
    add(l, "experts/fraction_tokens_left_behind", r->left_behind, steps, 1);
    add(l, "experts/expert_usage", r->expert_usage, steps, 1);
    add(l, "experts/router_confidence", r->router_confidence, steps, 1);
}

int syi_t5x_metrics(const struct syi_config *config, const struct syi_batch *b,
                    const struct syi_step_result *r, int64_t microbatches,
                    struct syi_t5x_metric out[SYI_T5X_METRICS])
{
    struct list l = {out, 0};
    double all = (double)b->rows * b->target_length, steps = (double)microbatches;
    add(&l, "accuracy", r->correct, (double)r->weighted, 0);
    add(&l, "loss", r->loss, steps, 1);
    add(&l, "loss_per_all_target_tokens", r->loss, all, 0);
    add(&l, "loss_per_nonpadding_target_token", r->loss, r->weight_sum, 0);
    add(&l, "z_loss", r->z_loss, steps, 1);
    add(&l, "z_loss_per_all_target_tokens", r->z_loss, all, 0);
    add(&l, "cross_ent_loss", r->cross_entropy, steps, 1);
    add(&l, "cross_ent_loss_per_all_target_tokens", r->cross_entropy, all, 0);
    add(&l, "non_padding_fraction/loss_weights", r->weight_sum, all, 0);
    if (config->moe.num_experts)
        add_experts(&l, r, steps);
    else
        add_filling(&l, b, microbatches);
    return l.n;
}
