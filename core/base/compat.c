/* SPDX-License-Identifier: Apache-2.0 */
/* The table of compat keys: the only list of what differs from T5X by choice. */
#include "config.h"

#include "base/compat.h"

enum { AUTO, T5X = 2 }; /* values of every key in the table; 1 is switchyard's */

static const struct syi_compat_row table[] = {
    {"model.masked_row", "zero: attention gives a position that sees no key nothing, and no gradient",
     "uniform: it gets the mean of all keys, padding included (flaxformer dense_attention.py: bias -1e10)"},
    {"model.padding_mask", "targets: a decoder position is real where it has a target",
     "inputs: also where its input or the next one is a token (flaxformer get_decoder_logit_mask)"},
    {"moe.group_by", "rows: a routing group is whole rows",
     "tokens: consecutive tokens of the padded batch, a multiple of num_experts groups (moe_layers.py "
     "_num_groups)"},
    {"moe.ignore_padding_tokens", "true: padding goes to no expert and takes no place",
     "false: padding is routed and takes places (moe.gin)"},
    {"moe.capacity_tokens", "real: capacity from the real tokens of each group",
     "all: from the padded size of a group (moe_layers.py)"},
    {"moe.router_loss_tokens", "real: router losses are means over real tokens",
     "all: means over all tokens, padding included (routing.py _load_balancing_loss, _router_z_loss)"},
    {"loss.padding_targets", "ignored: padding is never a target",
     "trained: padding is a target where loss_normalizing_factor is none or a number (losses.py), of batches without "
     "loss weights; those of a run's files have them, as seqio's, so it changes nothing there"},
    {"train.microbatch_normalizer", "batch: N microbatches give the gradient of the whole batch",
     "microbatch: each is divided by its own tokens and the gradients are added (trainer.py)"},
    {"action.NAME.compare", "best: an evaluation that is no better than the best so far counts",
     "previous: one that is no better than the evaluation before counts; patience counts values, not "
     "comparisons (trainer.py EarlyStoppingAction)"},
    {"train.nan_check", "before: a step whose gradients are not finite changes no weight",
     "after: the update is made, then loss and gradients are looked at (trainer.py TerminateOnNanAction); "
     "what it made is never saved"},
    {"metrics.divide_by",
     "real: per token is per real target; experts/* are means over microbatches, count a token once and are "
     "0 "
     "where nothing was routed",
     "all: *_per_all_target_tokens counts padding (models.py); experts/* are sums over microbatches "
     "(trainer.py), a scattered token counts once for each choice, NaN where nothing was routed "
     "(moe_layers.py)"},
};

const struct syi_compat_row *syi_compat_table(size_t *n)
{
    *n = SYI_COUNT(table);
    return table;
}

int syi_compat(const struct syi_config *config, int value)
{
    return value == T5X || (value == AUTO && config->run.compat == SYI_COMPAT_T5X);
}

double syi_capacity_factor(const struct syi_config *config, int training)
{
    if (config->moe.expert_capacity) return 0;
    if (training) return config->moe.train_capacity_factor;
    if (config->moe.eval_capacity_factor >= 0) return config->moe.eval_capacity_factor;
    return config->run.compat == SYI_COMPAT_T5X ? 2 : 0;
}
