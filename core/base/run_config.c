/* SPDX-License-Identifier: Apache-2.0 */
/* Finding a key, or a section, in the tables of kinds. */
#include "config.h"

#include <stdarg.h>
#include <string.h>

#include "base/run_config.h"

/* Keys of former versions. */
static const struct {
    const char *key, *now;
} renamed[] = {
    {"data.task", "task.NAME.format"},
    {"data.train", "task.NAME.train"},
    {"data.valid", "task.NAME.valid"},
    {"data.test", "task.NAME.test"},
    {"data.vocabulary", "vocabulary.kind"},
    {"optimizer.parameters", "optimizer.NAME.match"},
    {"train.optimizer", "optimizer.name"},
    {"train.adam_b1", "optimizer.b1"},
    {"train.adam_b2", "optimizer.b2"},
    {"train.adam_eps", "optimizer.eps"},
    {"train.weight_decay", "optimizer.weight_decay"},
    {"train.factored", "optimizer.factored"},
    {"train.min_dim_size_to_factor", "optimizer.min_dim_size_to_factor"},
    {"train.logical_factor_rules", "optimizer.logical_factor_rules"},
    {"train.decay_rate", "optimizer.decay_rate"},
    {"train.step_offset", "optimizer.step_offset"},
    {"train.clipping_threshold", "optimizer.clipping_threshold"},
    {"train.epsilon1", "optimizer.epsilon1"},
    {"train.epsilon2", "optimizer.epsilon2"},
    {"train.multiply_by_parameter_scale", "optimizer.multiply_by_parameter_scale"},
    {"train.beta1", "optimizer.beta1"},
    {"train.weight_decay_rate", "optimizer.weight_decay_rate"},
    {"train.early_stopping_patience", "patience of an [action.NAME] of kind early_stopping"},
    {"train.early_stopping_metric", "metric of an [action.NAME] of kind early_stopping"},
    {"train.early_stopping_compare", "compare of an [action.NAME] of kind early_stopping"},
    {"train.terminate_on_nan",
     "an [action.NAME] of kind terminate_on_nan, which runs where no action is written"},
};

/* ---- lookup ---- */

static int refuse(char reason[SYI_REASON], const char *format, ...) SYI_PRINTF(2, 3);
static int refuse(char reason[SYI_REASON], const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(reason, SYI_REASON, format, args);
    va_end(args);
    return SY_EINVAL;
}

static const struct syi_part_kind *find_kind(const char *name, size_t length)
{
    size_t n;
    const struct syi_part_kind *kinds = syi_config_kinds(&n);
    for (size_t i = 0; i < n; i++)
        if (strlen(kinds[i].name) == length && !strncmp(kinds[i].name, name, length)) return &kinds[i];
    return NULL;
}

static const struct syi_option *find_option(const struct syi_part_kind *kind, const char *name)
{
    for (size_t i = 0; i < kind->n_options; i++)
        if (!strcmp(kind->options[i].name, name)) return &kind->options[i];
    return NULL;
}

/* The `length` bytes at name become the part's name; name NULL: it has none. */
static int take_name(struct syi_key *key, const char *name, size_t length, char reason[SYI_REASON])
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-";
    const char *kind = key->kind->name;
    if (!name && key->kind->names == SYI_PART_NAMED)
        return refuse(reason, "[%s] needs a name of its own: write [%s.NAME]", kind, kind);
    if (!name) return SY_OK;
    if (key->kind->names == SYI_PART_ONCE)
        return refuse(reason, "there is one [%s], which has no name: leave .%.*s out", kind,
                      (int)(length < 80 ? length : 80), name);
    if (!length || length >= SYI_PART_NAME || strspn(name, letters) < length)
        return refuse(reason, "[%s.%.*s]: a name is 1 to %d letters, digits, '_' or '-'", kind,
                      (int)(length < 80 ? length : 80), name, SYI_PART_NAME - 1);
    memcpy(key->part, name, length);
    return SY_OK;
}

int syi_key_parse(const char *text, struct syi_key *key, char reason[SYI_REASON])
{
    const char *first = strchr(text, '.'), *last = strrchr(text, '.');
    memset(key, 0, sizeof(*key));
    for (size_t i = 0; i < SYI_COUNT(renamed); i++)
        if (!strcmp(text, renamed[i].key)) return refuse(reason, "%s is now %s", text, renamed[i].now);
    key->kind = first ? find_kind(text, (size_t)(first - text)) : find_kind("run", 3);
    if (key->kind) key->option = find_option(key->kind, last ? last + 1 : text);
    if (!key->option) {
        char nearest[SYI_KEY];
        if (!syi_key_nearest(text, nearest))
            return refuse(reason, "unknown key %.100s (`switchyard config` lists all)", text);
        return refuse(reason, "unknown key %.100s, did you mean %s?%s", text, nearest, syi_key_note(text));
    }
    return first == last ? take_name(key, NULL, 0, reason)
                         : take_name(key, first + 1, (size_t)(last - first - 1), reason);
}

/* What "[text]" was meant to be, of all that may stand there with the name of a part that text has. */
static struct syi_nearest nearest_kind(const char *name)
{
    size_t n;
    const struct syi_part_kind *kinds = syi_config_kinds(&n);
    struct syi_nearest nearest = {.name = name};
    for (size_t i = 0; i < n; i++) syi_nearest_offer(&nearest, kinds[i].name, strlen(kinds[i].name));
    return nearest;
}

int syi_section_parse(const char *text, struct syi_key *key, char reason[SYI_REASON])
{
    const char *dot = strchr(text, '.');
    size_t length = dot ? (size_t)(dot - text) : strlen(text);
    memset(key, 0, sizeof(*key));
    key->kind = find_kind(text, length);
    if (!key->kind) {
        char name[SYI_PART_NAME];
        snprintf(name, sizeof(name), "%.*s", (int)(length < sizeof(name) ? length : sizeof(name) - 1), text);
        struct syi_nearest nearest = nearest_kind(name);
        if (!*nearest.known)
            return refuse(reason, "unknown section [%.100s] (`switchyard config` lists all)", text);
        return refuse(reason, "unknown section [%.100s], did you mean [%s%.63s]?", text, nearest.known,
                      dot ? dot : "");
    }
    return take_name(key, dot ? dot + 1 : NULL, dot ? strlen(dot + 1) : 0, reason);
}
