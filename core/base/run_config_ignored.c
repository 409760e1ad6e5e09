/* SPDX-License-Identifier: Apache-2.0 */
/* Warns of keys that are set and count for nothing beside others. They are not refused: a run file that is tried with another
 * objective, router or schedule by --set need not be rewritten for it. */
#include "config.h"

#include <string.h>

#include "base/compat.h"
#include "base/run_config.h"

/* What a key needs to count. */
enum need {
    CHOICE, /* of tokens, in either stack */
    ENCODER_CHOICE,
    DECODER_CHOICE,
    DECODER_EXPERTS,
    EXPERT_BIAS,
    TOKEN_GROUPS,
    SCALED_GRADIENTS,
    LAST_RATE,
    SPANS,
    PAIRS,
    NO_RATES,
};

static const struct rule {
    const char *kind, *option;
    enum need need;
} rules[] = {
    {"moe", "num_selected_experts", CHOICE},
    {"moe", "encoder_batch_prioritized_routing", ENCODER_CHOICE},
    {"moe", "decoder_batch_prioritized_routing", DECODER_CHOICE},
    {"moe", "decoder_router_type", DECODER_EXPERTS},
    {"moe", "expert_bias_update_rate", EXPERT_BIAS},
    {"moe", "max_group_size", TOKEN_GROUPS},
    {"moe", "replicas", TOKEN_GROUPS},
    {"moe", "sharded_match_fn", SCALED_GRADIENTS},
    {"train", "final_learning_rate", LAST_RATE},
    {"task", "noise_density", SPANS},
    {"task", "mean_noise_span_length", SPANS},
    {"task", "too_long", PAIRS},
    {"mixture", "maximum", NO_RATES},
    {"mixture", "temperature", NO_RATES},
};

/* Why tokens of the stack choose no experts; NULL: they do. */
static const char *why_no_choice(const struct syi_config *config, int decoder)
{
    if (!syi_sparse_layers(config, decoder))
        return decoder ? "no decoder layer has experts" : "no encoder layer has experts";
    return syi_router_type(config, decoder) == SYI_ROUTER_EXPERTS_CHOOSE_MASKED ? "experts choose the tokens"
                                                                                : NULL;
}

/* Why tokens of neither stack choose experts; NULL: they do in one. */
static const char *why_no_choice_at_all(const struct syi_config *config)
{
    const char *encoder = why_no_choice(config, 0), *decoder = why_no_choice(config, 1);
    return !encoder || !decoder ? NULL : syi_sparse_layers(config, 0) ? encoder : decoder;
}

/* Why a key with that need counts for nothing in its part; NULL: it counts. */
static const char *why(enum need need, const struct syi_config *config, const void *part)
{
    const struct syi_task_part *task = part;       /* of SPANS and PAIRS */
    const struct syi_mixture_part *mixture = part; /* of NO_RATES */
    const struct syi_moe_part *moe = &config->moe;
    switch (need) {
    case CHOICE: return why_no_choice_at_all(config);
    case ENCODER_CHOICE: return why_no_choice(config, 0);
    case DECODER_CHOICE: return why_no_choice(config, 1);
    case DECODER_EXPERTS: return syi_sparse_layers(config, 1) ? NULL : why_no_choice(config, 1);
    case EXPERT_BIAS: return moe->expert_bias ? NULL : "moe.expert_bias is false";
    case TOKEN_GROUPS: return syi_compat(config, moe->group_by) ? NULL : "moe.group_by is rows";
    case SCALED_GRADIENTS: return moe->scale_expert_gradients ? NULL : "moe.scale_expert_gradients is false";
    case LAST_RATE:
        return config->train.schedule == SYI_SCHEDULE_CONSTANT ? "train.schedule is constant" : NULL;
    case SPANS:
        return task->objective == SYI_OBJECTIVE_SPAN_CORRUPTION ? NULL : "objective is not span_corruption";
    case PAIRS:
        return task->objective == SYI_OBJECTIVE_PAIRS ? NULL : "running text is cut into pieces that fit";
    case NO_RATES: return mixture->rates.n ? "rates are given" : NULL;
    }
    return NULL;
}

static void warn_of(const struct syi_config *config, const struct syi_part_kind *kind,
                    const struct syi_option *option, enum need need)
{
    for (int i = 0; i < syi_config_parts(config, kind); i++) {
        const void *part = syi_config_part(config, kind, i);
        const char *reason = why(need, config, part);
        char key[SYI_KEY];
        int differs = 0;
        if (!reason || syi_option_differs(option, part, &differs, NULL) || !differs) continue;
        syi_key_text(kind, kind->names == SYI_PART_ONCE ? "" : syi_part_name(part), option, key);
        syi_log(SY_LOG_WARN, "%s counts for nothing: %s; change that, or leave the key out", key, reason);
    }
}

void syi_warn_of_ignored(const struct syi_config *config)
{
    for (size_t i = 0; i < SYI_COUNT(rules); i++) {
        size_t n;
        const struct syi_part_kind *kind = syi_config_kinds(&n);
        if (!config->moe.num_experts && !strcmp(rules[i].kind, "moe"))
            continue; /* a dense model beside others */
        while (strcmp(kind->name, rules[i].kind)) kind++;
        for (size_t k = 0; k < kind->n_options; k++)
            if (!strcmp(kind->options[k].name, rules[i].option))
                warn_of(config, kind, &kind->options[k], rules[i].need);
    }
}
