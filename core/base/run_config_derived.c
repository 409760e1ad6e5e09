/* SPDX-License-Identifier: Apache-2.0 */
/* Values that follow from several keys: what stands for a default of 0 or "same"; and of one that the
 * environment may override. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "base/run_config.h"

const struct syi_mixture_part *syi_config_mixture(const struct syi_config *config)
{
    const char *name = config->data.mixture;
    for (int i = 0; i < config->mixture.n; i++)
        if (*name ? !strcmp(config->mixture.part[i].name_of_part, name) : config->mixture.n == 1)
            return &config->mixture.part[i];
    return NULL;
}

const struct syi_task_part *syi_config_task_named(const struct syi_config *config, const char *name)
{
    for (int i = 0; i < config->task.n; i++)
        if (!strcmp(config->task.part[i].name_of_part, name)) return &config->task.part[i];
    return NULL;
}

const struct syi_task_part *syi_config_task(const struct syi_config *config)
{
    static const struct syi_task_part none = {.format = SYI_FORMAT_TSV};
    const struct syi_mixture_part *mixture = syi_config_mixture(config);
    const struct syi_task_part *first =
        mixture && mixture->tasks.n ? syi_config_task_named(config, syi_strings_at(&mixture->tasks, 0))
                                    : NULL;
    if (first) return first;
    for (int i = 0; i < config->task.n; i++)
        if (*config->task.part[i].train) return &config->task.part[i];
    return config->task.n ? &config->task.part[0] : &none;
}

const struct syi_vocabulary_part *syi_config_vocabulary(const struct syi_config *config, int target)
{
    int own = target && config->vocabulary.n > 1; /* syi_config_validate lets no other name pass */
    return &config->vocabulary.part[own];
}

int syi_config_evaluates(const struct syi_config *config)
{
    int bits = 0;
    for (int i = 0; i < config->task.n; i++) {
        const struct syi_task_part *task = &config->task.part[i];
        if (*task->valid) bits |= SYI_EVALUATES | (task->metrics.n ? SYI_EVALUATES_DECODED : 0);
    }
    return bits;
}

/* Appends ", KEY VALUE" where a value is not that of a run file without the key. */
static void put_other(const struct syi_config *config, const char *key, struct syi_text *text)
{
    char name[SYI_KEY], reason[SYI_REASON];
    struct syi_key found;
    int differs = 0;
    snprintf(name, sizeof(name), "decode.%s", key);
    if (syi_key_parse(name, &found, reason) ||
        syi_option_differs(found.option, &config->decode, &differs, NULL) || !differs)
        return;
    syi_text_printf(text, ", %s ", key);
    syi_option_print(found.option, (const char *)&config->decode + found.option->offset, text);
}

int64_t syi_decode_sequences(const struct syi_decode_part *d)
{
    return d->temperature > 0 || d->num_decodes > d->beams ? d->num_decodes : d->beams;
}

void syi_config_decode_text(const struct syi_config *config, char text[SYI_DECODE_TEXT])
{
    static const char *const of_beams[] = {"length_penalty", "finished_beams", "early_stopping"},
                             *const of_draws[] = {"topk", "topp", "rescale_log_probs"};
    const struct syi_decode_part *decode = &config->decode;
    struct syi_text out = syi_text_in(text, SYI_DECODE_TEXT);
    int n = (int)syi_decode_sequences(decode), draws = decode->temperature > 0, beams = !draws && n > 1;
    if (draws) syi_text_printf(&out, "temperature %g", decode->temperature);
    if (draws && n > 1) syi_text_printf(&out, ", best of %d", n);
    if (beams) syi_text_printf(&out, "%d beams, alpha %g", n, decode->alpha);
    if (!draws && !beams) syi_text_puts(&out, "greedy");
    for (size_t i = 0; i < 3 && (draws || beams); i++)
        put_other(config, draws ? of_draws[i] : of_beams[i], &out);
    if (draws) syi_text_printf(&out, ", seed %lld", (long long)config->train.seed);
    syi_text_printf(&out, ", %lld tokens",
                    (long long)(decode->max_length ? decode->max_length : config->data.max_target_length));
}

int64_t syi_config_decode_rows(const struct syi_config *config)
{
    int64_t rows = config->data.batch_size / config->train.microbatches, parts = 1;
    if (config->decode.batch_size) return config->decode.batch_size;
    if (config->mesh.data) parts *= config->mesh.data;
    if (config->mesh.expert) parts *= config->mesh.expert;
    while (rows > 64 && rows % (2 * parts) == 0) rows /= 2;
    if (rows < 1) rows = 1; /* more microbatches than rows: refused by syi_config_validate */
    while (rows < 8) rows *= 2;
    return rows;
}

static const struct syi_ints *listed_layers(const struct syi_config *config, int decoder)
{
    return decoder ? &config->moe.decoder_sparse_layers : &config->moe.encoder_sparse_layers;
}

int64_t syi_sparse_layers(const struct syi_config *config, int decoder)
{
    const struct syi_ints *listed = listed_layers(config, decoder);
    if (!config->moe.num_experts) return 0;
    if (listed->n) return listed->n;
    return decoder ? config->moe.num_decoder_sparse_layers : config->moe.num_encoder_sparse_layers;
}

/* The layouts are those of flaxformer architectures/moe/moe_architecture.py, _is_sparse_layer. */
int syi_layout_is_sparse(int layout, int64_t layers, int64_t sparse, int64_t layer)
{
    switch (layout) {
    case SYI_SPARSE_BOTTOM: return layer < sparse;
    case SYI_SPARSE_TOP: return layer >= layers - sparse;
    case SYI_SPARSE_MIDDLE: return 2 * layer >= layers - sparse && 2 * layer < layers + sparse;
    default: return layer % (layers / sparse) == layers / sparse - 1;
    }
}

int syi_is_sparse_layer(const struct syi_config *config, int decoder, int layer)
{
    const struct syi_ints *listed = listed_layers(config, decoder);
    int64_t layers = decoder ? config->model.num_decoder_layers : config->model.num_encoder_layers,
            sparse = syi_sparse_layers(config, decoder);
    int found = 0;
    if (!sparse) return 0;
    for (int i = 0; i < listed->n; i++) found |= listed->values[i] == layer;
    if (listed->n) return found;
    int layout = decoder ? config->moe.decoder_sparse_layout : config->moe.encoder_sparse_layout;
    return syi_layout_is_sparse(layout, layers, sparse, layer);
}

int syi_router_type(const struct syi_config *config, int decoder)
{
    int own = config->moe.decoder_router_type;
    return decoder && own != SYI_DECODER_ROUTER_SAME ? own - 1 : config->moe.router_type;
}

int syi_config_log_ranks(const struct syi_config *config, int *wanted, struct sy_error *err)
{
#define NAME(constant, name) [constant] = name,
    static const char *const names[] = {SYI_LOG_RANKS_MAP(NAME)};
#undef NAME
    const char *forced = getenv("SWITCHYARD_LOG_RANKS");
    *wanted = config->log.ranks;
    if (!forced || !*forced) return SY_OK;
    for (*wanted = 0; *wanted < (int)SYI_COUNT(names); ++*wanted)
        if (!strcmp(forced, names[*wanted])) return SY_OK;
    return syi_error(err, SY_EINVAL, "SWITCHYARD_LOG_RANKS=%.40s: one of first, all, nodes", forced);
}
