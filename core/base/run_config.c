/* SPDX-License-Identifier: Apache-2.0 */
/* The table of options as an array, and what runs over the whole of it: defaults, one assignment, printing,
 * comparing, cross checks. Single values are read and written in run_config_value.c, files in
 * run_config_file.c. */
#include "config.h"

#include <inttypes.h>
#include <limits.h>
#include <string.h>

#include "base/compat.h"

static const struct syi_option options[] = {
#define SY_SECTION_BEGIN(section, help)
#define SY_SECTION_END(section)
#define SY_OPTION(section, key, type, value, range, flags, help)                                             \
    {#section,                                                                                               \
     #key,                                                                                                   \
     #section "." #key,                                                                                      \
     SYI_OPTION_##type,                                                                                      \
     SYI_OPTION_##flags,                                                                                     \
     value,                                                                                                  \
     range,                                                                                                  \
     help,                                                                                                   \
     offsetof(struct syi_config, section.key),                                                               \
     sizeof(((struct syi_config *)0)->section.key)},
#include "base/options.def"
#undef SY_SECTION_BEGIN
#undef SY_SECTION_END
#undef SY_OPTION
};

static const struct {
    const char *name, *help;
} sections[] = {
#define SY_SECTION_BEGIN(section, help) {#section, help},
#define SY_SECTION_END(section)
#define SY_OPTION(section, key, type, value, range, flags, help)
#include "base/options.def"
#undef SY_SECTION_BEGIN
#undef SY_SECTION_END
#undef SY_OPTION
};

const struct syi_option *syi_config_options(size_t *n)
{
    *n = SYI_COUNT(options);
    return options;
}

const struct syi_option *syi_config_find(const char *key)
{
    int alone = !strchr(key, '.'); /* of [run] */
    for (size_t i = 0; i < SYI_COUNT(options); i++) {
        if (strcmp(options[i].key, key) == 0) return &options[i];
        if (alone && strcmp(options[i].section, "run") == 0 && strcmp(options[i].name, key) == 0)
            return &options[i];
    }
    return NULL;
}

/* A right name in a wrong or missing section is nearer than a misspelt key. */
const char *syi_config_nearest(const char *key)
{
    const char *dot = strrchr(key, '.'), *name = dot ? dot + 1 : key, *best = options[0].key;
    int least = INT_MAX;
    for (size_t i = 0; i < SYI_COUNT(options); i++) {
        int distance = syi_edit_distance(key, options[i].key);
        if (strcmp(name, options[i].name) == 0 && distance > 1) distance = 1;
        if (distance >= least) continue;
        least = distance;
        best = options[i].key;
    }
    return best;
}

static void *field_of(struct syi_config *config, const struct syi_option *option)
{
    return (char *)config + option->offset;
}

static const void *value_of(const struct syi_config *config, const struct syi_option *option)
{
    return (const char *)config + option->offset;
}

int syi_config_defaults(struct syi_config *config, struct sy_error *err)
{
    char reason[SYI_REASON];
    memset(config, 0, sizeof(*config));
    for (size_t i = 0; i < SYI_COUNT(options); i++) {
        const struct syi_option *option = &options[i];
        if (syi_option_parse(option, option->default_text, false, field_of(config, option), reason) != SY_OK)
            return syi_error(err, SY_EINTERNAL, "default of %s: %s", option->key, reason);
    }
    return SY_OK;
}

/* Before the first section of a file, and in --set, a key of [run] may stand alone: compat = "t5x". */
int syi_config_set(struct syi_config *config, const char *assignment, struct sy_error *err)
{
    char key[128], reason[SYI_REASON];
    const char *equals = strchr(assignment, '=');
    if (!equals)
        return syi_error(err, SY_EINVAL, "setting %s: write SECTION.KEY=VALUE, as in train.steps=20",
                         assignment);
    const char *start = assignment + strspn(assignment, " \t"), *end = equals;
    while (end > start && (end[-1] == ' ' || end[-1] == '\t')) end--;
    snprintf(key, sizeof(key), "%.*s", (int)(end - start < 127 ? end - start : 127), start);
    const struct syi_option *option = syi_config_find(key);
    if (!option)
        return syi_error(err, SY_EINVAL, "setting %s: unknown key %s, did you mean %s?", assignment, key,
                         syi_config_nearest(key));
    if (syi_option_parse(option, equals + 1, true, field_of(config, option), reason) != SY_OK)
        return syi_error(err, SY_EINVAL, "setting %s: %s: %s", assignment, key, reason);
    return SY_OK;
}

int syi_config_get_text(const struct syi_config *config, const char *key, struct syi_text *out,
                        struct sy_error *err)
{
    const struct syi_option *option = syi_config_find(key);
    if (!option)
        return syi_error(err, SY_EINVAL, "unknown key %s, did you mean %s?", key, syi_config_nearest(key));
    syi_option_print(option, value_of(config, option), out);
    return syi_text_status(out, err);
}

static void print_help(const struct syi_option *option, struct syi_text *out)
{
    syi_text_printf(out, "# %s\n# (", option->help);
    syi_option_describe(option, out);
    syi_text_printf(out, "; default %s)\n", option->default_text);
}

void syi_config_print(const struct syi_config *config, bool help, struct syi_text *out)
{
    for (size_t s = 0; s < SYI_COUNT(sections); s++) {
        if (s) syi_text_puts(out, "\n");
        if (help) syi_text_printf(out, "# ---- %s ----\n", sections[s].help);
        syi_text_printf(out, "[%s]\n", sections[s].name);
        for (size_t i = 0; i < SYI_COUNT(options); i++) {
            const struct syi_option *option = &options[i];
            if (strcmp(option->section, sections[s].name) != 0) continue;
            if (help) print_help(option, out);
            syi_text_printf(out, "%s = ", option->name);
            syi_option_print(option, value_of(config, option), out);
            syi_text_puts(out, "\n");
        }
    }
}

int syi_config_compare(const struct syi_config *old_config, const struct syi_config *new_config,
                       syi_config_difference_fn fn, void *arg, struct sy_error *err)
{
    int status = SY_OK;
    for (size_t i = 0; i < SYI_COUNT(options) && status == SY_OK; i++) {
        struct syi_text before = {0}, after = {0};
        syi_option_print(&options[i], value_of(old_config, &options[i]), &before);
        syi_option_print(&options[i], value_of(new_config, &options[i]), &after);
        status = syi_text_status(&before, err);
        if (status == SY_OK) status = syi_text_status(&after, err);
        if (status == SY_OK && strcmp(before.data, after.data) != 0)
            status = fn(arg, &options[i], before.data, after.data);
        syi_text_free(&before);
        syi_text_free(&after);
    }
    return status;
}

/* ---- cross checks ---- */

static int check_layers(const char *side, int64_t sparse, int64_t layers, int layout, struct sy_error *err)
{
    if (sparse > layers)
        return syi_error(err, SY_EINVAL,
                         "moe.num_%s_sparse_layers = %" PRId64 " is more than model.num_%s_layers = %" PRId64,
                         side, sparse, side, layers);
    if (layout == SYI_SPARSE_MIXED && sparse > 0 && layers % sparse != 0)
        return syi_error(
            err, SY_EINVAL,
            "moe.num_%s_sparse_layers = %" PRId64 " must divide model.num_%s_layers = %" PRId64
            " where moe.%s_sparse_layout = \"MIXED\"; take TOP, BOTTOM or MIDDLE, or another number",
            side, sparse, side, layers, side);
    return SY_OK;
}

int syi_config_no_places(const struct syi_config *config, int training, int64_t tokens, struct sy_error *err)
{
    return syi_error(
        err, SY_EINVAL,
        "moe.%s_capacity_factor = %g gives none of %" PRId64 " experts a place in a group of %" PRId64
        " tokens and moe.min_expert_capacity is 0: raise one of them, or take the factor 0, which "
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

static int check_moe(const struct syi_config *config, struct sy_error *err)
{
    if (config->moe.num_experts == 0) return SY_OK;
    if (config->moe.num_selected_experts > config->moe.num_experts)
        return syi_error(err, SY_EINVAL,
                         "moe.num_selected_experts = %" PRId64 " is more than moe.num_experts = %" PRId64,
                         config->moe.num_selected_experts, config->moe.num_experts);
    if (config->moe.num_encoder_sparse_layers + config->moe.num_decoder_sparse_layers == 0)
        return syi_error(err, SY_EINVAL,
                         "moe.num_experts = %" PRId64
                         " but no layer has experts; set moe.num_encoder_sparse_layers "
                         "or moe.num_decoder_sparse_layers, or moe.num_experts = 0",
                         config->moe.num_experts);
    int64_t sparse = config->moe.num_encoder_sparse_layers + config->moe.num_decoder_sparse_layers;
    if (sparse > SYI_MAX_SPARSE_LAYERS)
        return syi_error(err, SY_EINVAL,
                         "moe.num_encoder_sparse_layers + moe.num_decoder_sparse_layers = %" PRId64
                         ": at most %d layers can have experts",
                         sparse, SYI_MAX_SPARSE_LAYERS);
    int status = check_layers("encoder", config->moe.num_encoder_sparse_layers,
                              config->model.num_encoder_layers, config->moe.encoder_sparse_layout, err);
    if (status != SY_OK) return status;
    return check_layers("decoder", config->moe.num_decoder_sparse_layers, config->model.num_decoder_layers,
                        config->moe.decoder_sparse_layout, err);
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

/* Byte ids are the 256 bytes behind padding, end and unknown (core/data/vocabulary.h). */
static int check_vocabulary(const struct syi_config *config, struct sy_error *err)
{
    if (config->model.vocab_size >= 259) return SY_OK;
    return syi_error(err, SY_EINVAL,
                     "model.vocab_size=%" PRId64 " is less than the 259 ids of the byte vocabulary",
                     config->model.vocab_size);
}

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

static int check_buckets(const struct syi_config *config, struct sy_error *err)
{
    const struct syi_ints *buckets = &config->data.length_buckets;
    int64_t input = config->data.max_input_length, target = config->data.max_target_length;
    int64_t longest = input > target ? input : target;
    for (int i = 1; i < buckets->n; i++)
        if (buckets->values[i] <= buckets->values[i - 1])
            return syi_error(err, SY_EINVAL,
                             "data.length_buckets must ascend: %" PRId64 " stands behind %" PRId64,
                             buckets->values[i], buckets->values[i - 1]);
    if (buckets->n && buckets->values[buckets->n - 1] < longest)
        return syi_error(err, SY_EINVAL,
                         "data.length_buckets end at %" PRId64
                         ", shorter than the longest of data.max_input_length = "
                         "%" PRId64 " and data.max_target_length = %" PRId64,
                         buckets->values[buckets->n - 1], input, target);
    return SY_OK;
}

static int check_run(const struct syi_config *config, struct sy_error *err)
{
    int64_t blocks = config->reproducible.blocks;
    const char *name = config->run.name;
    if (!*name || strchr(name, '/') || *name == '.')
        return syi_error(
            err, SY_EINVAL,
            "run.name = \"%s\" cannot be part of a folder's name: no '/', no leading '.', not empty", name);
    if (blocks & (blocks - 1))
        return syi_error(err, SY_EINVAL, "reproducible.blocks = %" PRId64 " must be a power of two", blocks);
    if (config->train.early_stopping_patience && !*config->data.valid)
        return syi_error(err, SY_EINVAL, "train.early_stopping_patience needs a file in data.valid");
    return SY_OK;
}

int64_t syi_config_decode_rows(const struct syi_config *config)
{
    int64_t rows = config->data.batch_size / config->train.microbatches, parts = 1;
    if (config->decode.batch_size) return config->decode.batch_size;
    if (config->mesh.data) parts *= config->mesh.data;
    if (config->mesh.expert) parts *= config->mesh.expert;
    while (rows > 64 && rows % (2 * parts) == 0) rows /= 2;
    while (rows < 8) rows *= 2;
    return rows;
}

int syi_config_validate(const struct syi_config *config, struct sy_error *err)
{
    int (*const checks[])(const struct syi_config *, struct sy_error *) = {
        check_run, check_vocabulary, check_positions, check_moe, check_batch, check_buckets, check_places};
    for (size_t i = 0; i < SYI_COUNT(checks); i++) {
        int status = checks[i](config, err);
        if (status != SY_OK) return status;
    }
    return SY_OK;
}
