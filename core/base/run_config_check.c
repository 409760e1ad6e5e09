/* SPDX-License-Identifier: Apache-2.0 */
/* Every rule between the keys of a configuration, each with its text, that needs no file and no number of
 * ranks. What a single value may be is in options.def. */
#include "config.h"

#include <inttypes.h>
#include <string.h>

#include "base/compat.h"
#include "base/loss_factor.h"
#include "base/optimizers.h"
#include "base/schedules.h"

/* ---- model ---- */

/* A key that has no meaning beside a list of sparse layers. */
static int refuse_beside_list(const struct syi_config *config, const char *side, const char *pattern,
                              struct sy_error *err)
{
    char name[SYI_KEY], reason[SYI_REASON];
    struct syi_key key;
    int differs;
    snprintf(name, sizeof name, pattern, side);
    int status = syi_key_parse(name, &key, reason);
    if (status) return syi_error(err, status, "%s", reason);
    status = syi_option_differs(key.option, &config->moe, &differs, err);
    if (status || !differs) return status;
    return syi_error(
        err, SY_EINVAL,
        "%s: moe.%s_sparse_layers lists the layers that have experts: leave it out, or give it its "
        "default, %s",
        name, side, key.option->default_text);
}

static int check_listed_layers(const struct syi_config *config, const char *side,
                               const struct syi_ints *listed, int64_t layers, struct sy_error *err)
{
    for (int i = 0; i < listed->n; i++) {
        int64_t layer = listed->values[i];
        if (layer >= layers)
            return syi_error(err, SY_EINVAL,
                             "moe.%s_sparse_layers: there is no layer %" PRId64
                             ", model.num_%s_layers = %" PRId64 " and the first is layer 0",
                             side, layer, side, layers);
        if (i && layer <= listed->values[i - 1])
            return syi_error(err, SY_EINVAL,
                             "moe.%s_sparse_layers must ascend: %" PRId64 " stands after %" PRId64, side,
                             layer, listed->values[i - 1]);
    }
    int status = refuse_beside_list(config, side, "moe.num_%s_sparse_layers", err);
    return status ? status : refuse_beside_list(config, side, "moe.%s_sparse_layout", err);
}

static int check_layout(const char *side, int64_t sparse, int64_t layers, int layout, struct sy_error *err)
{
    if (sparse > layers)
        return syi_error(err, SY_EINVAL,
                         "moe.num_%s_sparse_layers = %" PRId64 " is more than model.num_%s_layers = %" PRId64,
                         side, sparse, side, layers);
    if (layout == SYI_SPARSE_MIXED && sparse > 0 && layers % sparse != 0)
        return syi_error(
            err, SY_EINVAL,
            "moe.num_%s_sparse_layers = %" PRId64 " must divide model.num_%s_layers = %" PRId64
            " where moe.%s_sparse_layout = \"MIXED\"; take TOP, BOTTOM or MIDDLE, another number, or list the "
            "layers in moe.%s_sparse_layers",
            side, sparse, side, layers, side, side);
    return SY_OK;
}

static int check_sparse_layers(const struct syi_config *config, struct sy_error *err)
{
    const struct syi_moe_part *moe = &config->moe;
    if (moe->num_experts == 0) return SY_OK;
    if (syi_sparse_layers(config, 0) + syi_sparse_layers(config, 1) == 0)
        return syi_error(err, SY_EINVAL,
                         "moe.num_experts = %" PRId64
                         " but no layer has experts; set moe.num_encoder_sparse_layers "
                         "or moe.num_decoder_sparse_layers, or moe.num_experts = 0",
                         moe->num_experts);
    for (int decoder = 0; decoder < 2; decoder++) {
        const struct syi_ints *listed = decoder ? &moe->decoder_sparse_layers : &moe->encoder_sparse_layers;
        const char *side = decoder ? "decoder" : "encoder";
        int64_t layers = decoder ? config->model.num_decoder_layers : config->model.num_encoder_layers;
        int layout = decoder ? moe->decoder_sparse_layout : moe->encoder_sparse_layout;
        int status = listed->n ? check_listed_layers(config, side, listed, layers, err)
                               : check_layout(side, syi_sparse_layers(config, decoder), layers, layout, err);
        if (status) return status;
    }
    return SY_OK;
}

int syi_config_no_places(const struct syi_config *config, int training, int64_t tokens, struct sy_error *err)
{
    return syi_error(
        err, SY_EINVAL,
        "moe.%s_capacity_factor = %g gives none of %" PRId64 " experts a place in a group of %" PRId64
        " tokens and moe.min_expert_capacity is 0: raise one of the two, or take the factor 0, which "
        "drops no token",
        training ? "train" : "eval", syi_capacity_factor(config, training), config->moe.num_experts, tokens);
}

/* No group has more tokens than a batch. */
static int check_places(const struct syi_config *config, struct sy_error *err)
{
    const int64_t rows[2] = {syi_config_decode_rows(config),
                             config->data.batch_size / config->train.microbatches};
    int64_t input = config->data.max_input_length, target = config->data.max_target_length;
    if (config->moe.num_experts == 0 || config->moe.min_expert_capacity > 0) return SY_OK;
    for (int training = 1; training >= 0; training--) {
        double factor = syi_capacity_factor(config, training);
        int64_t tokens = rows[training] * (input > target ? input : target);
        if (factor > 0 && factor * (double)tokens / (double)config->moe.num_experts <= 0.5)
            return syi_config_no_places(config, training, tokens, err);
    }
    return SY_OK;
}

/* Places are counted in each row: what says otherwise contradicts. */
static int check_capacity(const struct syi_config *config, struct sy_error *err)
{
    const struct syi_moe_part *moe = &config->moe;
    const char *instead = NULL;
    if (moe->num_experts == 0 || moe->expert_capacity == 0) return SY_OK;
    if (syi_compat(config, moe->group_by)) instead = "moe.group_by = \"rows\"";
    if (moe->group_rows > 1) instead = "moe.group_rows = 1";
    for (int i = 0; i < 2; i++)
        if (syi_sparse_layers(config, i) && syi_router_type(config, i) == SYI_ROUTER_EXPERTS_CHOOSE_MASKED)
            instead = "a router by which tokens choose";
    if (!instead) return SY_OK;
    return syi_error(
        err, SY_EINVAL,
        "moe.expert_capacity = %" PRId64
        " counts the tokens of one row that chose an expert: take %s with it, or the capacity factors",
        moe->expert_capacity, instead);
}

/* What would be ignored beside what is routed, and how. */
static int check_groups(const struct syi_config *config, struct sy_error *err)
{
    const struct syi_moe_part *moe = &config->moe;
    if (moe->num_experts == 0) return SY_OK;
    if (syi_compat(config, moe->group_by) && moe->group_rows)
        return syi_error(err, SY_EINVAL,
                         "moe.group_rows = %" PRId64
                         " is of groups of rows, and moe.group_by is tokens: leave it out, such groups "
                         "take moe.max_group_size; or set moe.group_by = \"rows\"",
                         moe->group_rows);
    const char *real = moe->capacity_tokens == SYI_TOKENS_REAL      ? "capacity_tokens"
                       : moe->router_loss_tokens == SYI_TOKENS_REAL ? "router_loss_tokens"
                                                                    : NULL;
    if (!real || !syi_compat(config, moe->ignore_padding_tokens)) return SY_OK;
    return syi_error(
        err, SY_EINVAL,
        "moe.%s = \"real\": moe.ignore_padding_tokens is false, so padding is routed and counts as "
        "tokens do: leave the first out, or set moe.ignore_padding_tokens = true",
        real);
}

/* Routers of T5X other than the masked one hand padding to experts where losses are over all tokens (core/model/router.c): it
 * counts in their capacity. */
static int check_capacity_tokens(const struct syi_config *config, struct sy_error *err)
{
    const struct syi_moe_part *moe = &config->moe;
    if (moe->num_experts == 0 || config->run.compat != SYI_COMPAT_T5X ||
        moe->capacity_tokens != SYI_TOKENS_REAL || !syi_compat(config, moe->router_loss_tokens))
        return SY_OK;
    for (int i = 0; i < 2; i++)
        if (syi_sparse_layers(config, i) && syi_router_type(config, i) != SYI_ROUTER_TOKENS_CHOOSE_MASKED)
            return syi_error(
                err, SY_EINVAL,
                "moe.capacity_tokens = \"real\": by run.compat = t5x the %s's router gives padding to "
                "experts, too, where moe.router_loss_tokens is all: leave the first out, set the last "
                "to \"real\", or take tokens_choose_masked",
                i ? "decoder" : "encoder");
    return SY_OK;
}

static int check_routers(const struct syi_config *config, struct sy_error *err)
{
    static const char *const key[2] = {"router_type", "decoder_router_type"};
    if (config->moe.num_experts == 0) return SY_OK;
    if (config->moe.num_selected_experts > config->moe.num_experts)
        return syi_error(err, SY_EINVAL,
                         "moe.num_selected_experts = %" PRId64 " is more than moe.num_experts = %" PRId64,
                         config->moe.num_selected_experts, config->moe.num_experts);
    for (int i = 0; i < 2; i++) {
        if (!syi_sparse_layers(config, i) || syi_router_type(config, i) != SYI_ROUTER_EXPERTS_CHOOSE_MASKED)
            continue;
        if (i && config->run.compat != SYI_COMPAT_T5X)
            return syi_error(
                err, SY_EINVAL,
                "moe.decoder_router_type: where experts choose, a token's output depends on later ones: "
                "take tokens_choose_masked, or run.compat = t5x to do as T5X does");
        if (config->moe.expert_bias)
            return syi_error(err, SY_EINVAL,
                             "moe.expert_bias: where experts choose (moe.%s), all have the same load: "
                             "set it to false, or take a router by which tokens choose",
                             key[i]);
    }
    return SY_OK;
}

static int check_ids(const struct syi_config *config, struct sy_error *err)
{
    int64_t start = config->model.decoder_start_token_id, ids = config->model.vocab_size;
    if (start < ids) return SY_OK;
    return syi_error(err, SY_EINVAL,
                     "model.decoder_start_token_id = %" PRId64 " is no id: model.vocab_size = %" PRId64,
                     start, ids);
}

static int check_positions(const struct syi_config *config, struct sy_error *err)
{
    int64_t buckets = config->model.relpos_num_buckets, distance = config->model.relpos_max_distance;
    if (buckets % 2)
        return syi_error(err, SY_EINVAL, "model.relpos_num_buckets = %" PRId64 " must be even", buckets);
    if (distance <= buckets / 2)
        return syi_error(err, SY_EINVAL,
                         "model.relpos_max_distance = %" PRId64
                         " must be more than half of model.relpos_num_buckets = %" PRId64,
                         distance, buckets);
    return SY_OK;
}

/* ---- gradients ---- */

/* Where several microbatches are added up, and where T5X's float32 is promised, gradients cannot be kept in bfloat16. */
static int check_gradients(const struct syi_config *config, struct sy_error *err)
{
    const int64_t parts = config->train.microbatches;
    if (config->train.gradient_dtype == SYI_DTYPE_FLOAT32) return SY_OK;
    if (parts > 1)
        return syi_error(err, SY_EINVAL,
                         "train.gradient_dtype = bfloat16 rounds a gradient once, when it is whole; "
                         "train.microbatches = %" PRId64
                         " would round the sum in each of them: set train.microbatches = 1, or "
                         "train.gradient_dtype = float32",
                         parts);
    if (config->run.compat == SYI_COMPAT_T5X)
        return syi_error(
            err, SY_EINVAL,
            "train.gradient_dtype = bfloat16: T5X, which run.compat = t5x follows, keeps gradients "
            "in float32: leave one of the two out");
    return SY_OK;
}

/* ---- batches ---- */

static int check_batch(const struct syi_config *config, struct sy_error *err)
{
    int64_t batch = config->data.batch_size, parts = config->train.microbatches,
            group = config->moe.group_rows;
    if (batch % parts)
        return syi_error(err, SY_EINVAL,
                         "train.microbatches = %" PRId64 " must divide data.batch_size = %" PRId64, parts,
                         batch);
    if (config->moe.num_experts && group && batch / parts % group)
        return syi_error(err, SY_EINVAL,
                         "moe.group_rows = %" PRId64 " must divide the %" PRId64
                         " rows of a microbatch (data.batch_size / train.microbatches)",
                         group, batch / parts);
    if (config->data.warm_examples && !config->data.warm_max_target)
        return syi_error(err, SY_EINVAL, "data.warm_examples = %" PRId64 " needs data.warm_max_target",
                         config->data.warm_examples);
    return SY_OK;
}

/* Padded lengths of a side: those shorter than its longest, and that. */
static int padded_lengths(const struct syi_ints *buckets, int64_t longest)
{
    int n = 1;
    for (int i = 0; i < buckets->n; i++) n += buckets->values[i] < longest;
    return n;
}

static int check_buckets(const struct syi_config *config, struct sy_error *err)
{
    const struct syi_ints *buckets = &config->data.length_buckets;
    int64_t input = config->data.max_input_length, target = config->data.max_target_length;
    int64_t longest = input > target ? input : target;
    int pairs = padded_lengths(buckets, input) * padded_lengths(buckets, target);
    for (int i = 1; i < buckets->n; i++)
        if (buckets->values[i] <= buckets->values[i - 1])
            return syi_error(err, SY_EINVAL,
                             "data.length_buckets must ascend: %" PRId64 " stands after %" PRId64,
                             buckets->values[i], buckets->values[i - 1]);
    if (buckets->n && buckets->values[buckets->n - 1] < longest)
        return syi_error(err, SY_EINVAL,
                         "data.length_buckets end at %" PRId64
                         ", shorter than the longest of data.max_input_length = "
                         "%" PRId64 " and data.max_target_length = %" PRId64,
                         buckets->values[buckets->n - 1], input, target);
    if (pairs > SYI_MAX_BUCKETS)
        return syi_error(err, SY_EINVAL,
                         "data.length_buckets gives %d pairs of lengths, at most %d are possible", pairs,
                         SYI_MAX_BUCKETS);
    return SY_OK;
}

/* ---- training and decoding ---- */

static int check_loss(const struct syi_config *config, struct sy_error *err)
{
    struct syi_loss_factor factor;
    return syi_loss_factor_parse(&factor, config->loss.loss_normalizing_factor, err);
}

/* What counts for a learning rate of factors only. */
static int check_no_factors(const struct syi_config *config, struct sy_error *err)
{
    const char *key = config->train.lr_step_offset              ? "lr_step_offset"
                      : config->train.min_learning_rate != 1e-8 ? "min_learning_rate"
                                                                : NULL;
    if (!key) return SY_OK;
    for (int i = 0; i < config->optimizer.n; i++)
        if (*config->optimizer.part[i].lr_factors) return SY_OK;
    return syi_error(err, SY_EINVAL,
                     "train.%s is of a learning rate of factors: set train.lr_factors or lr_factors of an "
                     "optimizer, or leave it out",
                     key);
}

/* What counts for a course only. */
static int check_no_course(const struct syi_config *config, struct sy_error *err)
{
    const char *key = config->train.schedule != SYI_SCHEDULE_LINEAR ? "schedule"
                      : config->train.final_learning_rate > 0       ? "final_learning_rate"
                                                                    : NULL;
    if (!key) return SY_OK;
    return syi_error(err, SY_EINVAL,
                     "train.%s counts for nothing beside train.lr_factors: leave one of the two out, or set "
                     "train.%s to its default",
                     key, key);
}

static int check_factors(const struct syi_config *config, struct sy_error *err)
{
    if (!*config->train.lr_factors) return check_no_factors(config, err);
    int status = syi_schedule_check("train.lr_factors", config->train.lr_factors, err);
    return status ? status : check_no_course(config, err);
}

static int check_decoding(const struct syi_config *config, struct sy_error *err)
{
    if (config->decode.beams > 1 && config->decode.temperature > 0)
        return syi_error(err, SY_EINVAL,
                         "decode.beams = %" PRId64
                         " and decode.temperature = %g: a beam search draws nothing, set one of "
                         "them to its default",
                         config->decode.beams, config->decode.temperature);
    if (config->decode.topk > config->model.vocab_size)
        return syi_error(err, SY_EINVAL, "decode.topk = %" PRId64 " is more than model.vocab_size = %" PRId64,
                         config->decode.topk, config->model.vocab_size);
    return SY_OK;
}

/* ---- the run ---- */

/* Line feeds and their like, by which names break scripts. */
static int has_control(const char *text)
{
    while ((unsigned char)*text >= 0x20 && *text != 0x7f) text++;
    return *text != 0;
}

static int check_run(const struct syi_config *config, struct sy_error *err)
{
    int64_t blocks = config->reproducible.blocks;
    const char *name = config->run.name;
    if (!*name || strchr(name, '/') || *name == '.' || has_control(name))
        return syi_error(err, SY_EINVAL,
                         "run.name = \"%s\" cannot be part of a folder's name: no '/', no leading '.', no "
                         "control characters, not empty",
                         name);
    if (blocks & (blocks - 1))
        return syi_error(err, SY_EINVAL, "reproducible.blocks = %" PRId64 " must be a power of two", blocks);
    if (config->mesh.expert > 1 && config->moe.num_experts == 0)
        return syi_error(err, SY_EINVAL,
                         "mesh.expert = %" PRId64 ", but moe.num_experts = 0: leave mesh.expert out",
                         config->mesh.expert);
    return SY_OK;
}

static int check_task(const struct syi_task_part *task, const struct syi_config *config, struct sy_error *err)
{
    const char *name = task->name_of_part;
    int text = task->format == SYI_FORMAT_TEXT || task->format == SYI_FORMAT_DOCUMENTS;
    if (task->objective == SYI_OBJECTIVE_PAIRS && text && (!*task->inputs || !*task->targets))
        return syi_error(
            err, SY_EINVAL,
            "task.%s: files of running text have no pairs: set task.%s.objective to span_corruption or "
            "prefix_lm",
            name, name);
    if (task->objective == SYI_OBJECTIVE_PAIRS) return SY_OK;
    if (*task->targets)
        return syi_error(err, SY_EINVAL,
                         "task.%s.targets: this objective makes targets from the text itself: leave "
                         "it out, and give the text as task.%s.inputs",
                         name, name);
    if (config->vocabulary.n > 1)
        return syi_error(err, SY_EINVAL,
                         "task.%s.objective: inputs and targets are parts of one text: "
                         "[vocabulary.targets] cannot be another vocabulary",
                         name);
    if (task->objective == SYI_OBJECTIVE_SPAN_CORRUPTION && !syi_config_vocabulary(config, 0)->extra_ids)
        return syi_error(err, SY_EINVAL,
                         "task.%s.objective = \"span_corruption\" needs sentinels: set "
                         "vocabulary.extra_ids (T5: 100)",
                         name);
    if ((*task->valid || *task->test) && task->metrics.n)
        return syi_error(err, SY_EINVAL,
                         "task.%s.metrics: text that is hidden at random has no outputs to compare: "
                         "set task.%s.metrics = []",
                         name, name);
    return SY_OK;
}

/* Which tasks are trained on follows from the mixture, or there is one. A name of no mixture is check_mixtures' to refuse. */
static int check_tasks(const struct syi_config *config, struct sy_error *err)
{
    const struct syi_task_part *first = NULL;
    int mixed = *config->data.mixture || syi_config_mixture(config), status = SY_OK;
    for (int i = 0; i < config->task.n && !status; i++) {
        const struct syi_task_part *task = &config->task.part[i];
        status = check_task(task, config, err);
        if (!status && !mixed && *task->train && first)
            return syi_error(
                err, SY_EINVAL,
                "[task.%s] and [task.%s]: training on several tasks needs a [mixture.NAME] of them%s",
                first->name_of_part, task->name_of_part,
                config->mixture.n > 1 ? ": name one as data.mixture" : "");
        if (*task->train) first = task;
    }
    return status;
}

static int check_mixture(const struct syi_mixture_part *mixture, const struct syi_config *config,
                         struct sy_error *err)
{
    const char *name = mixture->name_of_part;
    if (!mixture->tasks.n)
        return syi_error(err, SY_EINVAL, "mixture.%s.tasks is empty: name the tasks that it is made of",
                         name);
    if (mixture->tasks.n > SYI_CONFIG_PARTS)
        return syi_error(err, SY_EINVAL, "mixture.%s.tasks: at most %d are possible", name, SYI_CONFIG_PARTS);
    if (mixture->rates.n && mixture->rates.n != mixture->tasks.n)
        return syi_error(err, SY_EINVAL,
                         "mixture.%s.rates: %d rates for %d tasks: give one for each, or none", name,
                         mixture->rates.n, mixture->tasks.n);
    for (int i = 0; i < mixture->tasks.n; i++) {
        const char *task = syi_strings_at(&mixture->tasks, i);
        const struct syi_task_part *part = syi_config_task_named(config, task);
        if (!part || !*part->train)
            return syi_error(err, SY_EINVAL, "mixture.%s.tasks: %s%s%s", name,
                             part ? "task." : "there is no [task.", task, part ? ".train is not set" : "]");
        for (int k = 0; k < i; k++)
            if (!strcmp(task, syi_strings_at(&mixture->tasks, k)))
                return syi_error(err, SY_EINVAL, "mixture.%s.tasks: %s is there twice", name, task);
    }
    return SY_OK;
}

static int check_mixtures(const struct syi_config *config, struct sy_error *err)
{
    int status = SY_OK;
    for (int i = 0; i < config->mixture.n && !status; i++)
        status = check_mixture(&config->mixture.part[i], config, err);
    if (!status && *config->data.mixture && !syi_config_mixture(config))
        status = syi_error(err, SY_EINVAL, "data.mixture = \"%s\": there is no [mixture.%s]",
                           config->data.mixture, config->data.mixture);
    if (!status && config->data.warm_examples && syi_config_mixture(config))
        status = syi_error(err, SY_EINVAL,
                           "data.warm_examples: a mixture has no short examples first: set it to 0");
    if (!status && config->data.warm_examples &&
        syi_config_task(config)->objective == SYI_OBJECTIVE_PREFIX_LM)
        status = syi_error(err, SY_EINVAL,
                           "data.warm_examples: a prefix ends somewhere else in each epoch: set it to 0");
    return status;
}

/* Packed rows are all as long as the longest. */
static int check_packing(const struct syi_config *config, struct sy_error *err)
{
    if (!config->data.pack) return SY_OK;
    if (config->data.length_buckets.n)
        return syi_error(err, SY_EINVAL,
                         "data.length_buckets: packed rows have one length: leave the buckets out, "
                         "or set data.pack = false");
    if (config->data.auto_buckets)
        return syi_error(err, SY_EINVAL,
                         "data.auto_buckets: packed rows have one length: set it to 0, or data.pack = false");
    if (config->data.warm_examples)
        return syi_error(err, SY_EINVAL,
                         "data.warm_examples: packed rows have no short examples first: set it to 0");
    return SY_OK;
}

static int check_vocabulary(const struct syi_vocabulary_part *part, struct sy_error *err)
{
    static const char has_file[] = {SYI_VOCABULARY_FILES};
    const char *name = part->name_of_part, *dot = *name ? "." : "";
    if (!has_file[part->kind] && *part->file)
        return syi_error(
            err, SY_EINVAL,
            "vocabulary%s%s.file: this kind has no file: leave it out, or set vocabulary%s%s.kind", dot, name,
            dot, name);
    if (has_file[part->kind] && !*part->file)
        return syi_error(err, SY_EINVAL,
                         "vocabulary%s%s.file is empty: this kind of vocabulary is read from a file", dot,
                         name);
    return SY_OK;
}

static int check_vocabularies(const struct syi_config *config, struct sy_error *err)
{
    int status = SY_OK;
    for (int i = 0; i < config->vocabulary.n && !status; i++) {
        const char *name = config->vocabulary.part[i].name_of_part;
        if (*name && strcmp(name, "targets") != 0)
            return syi_error(
                err, SY_EINVAL,
                "[vocabulary.%s]: there is [vocabulary], and [vocabulary.targets] for targets that "
                "have another one: take one of these names",
                name);
        status = check_vocabulary(&config->vocabulary.part[i], err);
    }
    return status;
}

/* ---- all ---- */

typedef int (*check_fn)(const struct syi_config *config, struct sy_error *err);

static int run_checks(const check_fn *checks, size_t n, const struct syi_config *config, struct sy_error *err)
{
    int status = SY_OK;
    for (size_t i = 0; i < n && status == SY_OK; i++) status = checks[i](config, err);
    return status;
}

int syi_config_validate_programs(const struct syi_config *config, struct sy_error *err)
{
    static const check_fn checks[] = {check_ids,           check_positions,
                                      check_sparse_layers, check_capacity,
                                      check_groups,        check_capacity_tokens,
                                      check_routers,       check_batch,
                                      check_gradients,     check_places,
                                      check_buckets,       check_loss,
                                      check_factors,       syi_config_check_optimizers,
                                      check_decoding};
    return run_checks(checks, SYI_COUNT(checks), config, err);
}

int syi_config_validate(struct syi_config *config, struct sy_error *err)
{
    static const check_fn checks[] = {
        check_run,          check_tasks,           check_mixtures,           check_packing,
        check_vocabularies, syi_config_check_init, syi_config_check_actions, syi_config_validate_programs};
    syi_optimizers_settle(config);
    return run_checks(checks, SYI_COUNT(checks), config, err);
}
