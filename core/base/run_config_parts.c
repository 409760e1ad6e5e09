/* SPDX-License-Identifier: Apache-2.0 */
/* Everything that runs over kinds, parts and options: finding and adding parts, one assignment, defaults,
 * printing, comparing. Single values are read and written in run_config_value.c, files in run_config_file.c. */
#include "config.h"

#include <string.h>

#include "base/run_config.h"

/* ---- parts and their values ---- */

static char *bytes_of_part(struct syi_config *config, const struct syi_part_kind *kind, int i)
{
    return (char *)config + kind->offset + (size_t)i * kind->bytes;
}

static int32_t *count_of(struct syi_config *config, const struct syi_part_kind *kind)
{
    return (int32_t *)((char *)config + kind->count);
}

int syi_config_parts(const struct syi_config *config, const struct syi_part_kind *kind)
{
    if (kind->names == SYI_PART_ONCE) return 1;
    return *(const int32_t *)((const char *)config + kind->count);
}

const void *syi_config_part(const struct syi_config *config, const struct syi_part_kind *kind, int i)
{
    return (const char *)config + kind->offset + (size_t)i * kind->bytes;
}

const char *syi_part_name(const void *part)
{
    return part;
}

int syi_config_find_part(const struct syi_config *config, const struct syi_part_kind *kind, const char *name)
{
    for (int i = 0; i < syi_config_parts(config, kind); i++)
        if (!strcmp(syi_part_name(syi_config_part(config, kind, i)), name)) return i;
    return -1;
}

static int fill_defaults(const struct syi_part_kind *kind, char *part, char reason[SYI_REASON])
{
    int status = SY_OK;
    memset(part, 0, kind->bytes);
    for (size_t i = 0; i < kind->n_options && status == SY_OK; i++) {
        const struct syi_option *option = &kind->options[i];
        status = syi_option_parse(option, option->default_text, false, part + option->offset, reason);
    }
    return status;
}

int syi_config_add_part(struct syi_config *config, const struct syi_part_kind *kind, const char *name,
                        char reason[SYI_REASON])
{
    int i = syi_config_find_part(config, kind, name);
    if (i >= 0) return i;
    i = syi_config_parts(config, kind);
    if (i == SYI_CONFIG_PARTS) {
        snprintf(reason, SYI_REASON, "[%s.%s] is one too many: at most %d parts of a kind are possible",
                 kind->name, name, SYI_CONFIG_PARTS);
        return -1;
    }
    if (fill_defaults(kind, bytes_of_part(config, kind, i), reason) != SY_OK) return -1;
    snprintf(bytes_of_part(config, kind, i), SYI_PART_NAME, "%s", name);
    ++*count_of(config, kind);
    return i;
}

/* That the key was set, of the part without a name. */
static void note_given(struct syi_config *config, const struct syi_key *key)
{
    size_t i = (size_t)(key->option - key->kind->options);
    uint32_t *given = (uint32_t *)(void *)((char *)config + key->kind->given);
    if (key->kind->names != SYI_PART_ONCE && !*key->part && i < 32) *given |= UINT32_C(1) << i;
}

int syi_config_assign(struct syi_config *config, const struct syi_key *key, const char *text, bool bare,
                      char reason[SYI_REASON])
{
    int before = syi_config_parts(config, key->kind);
    int i = syi_config_add_part(config, key->kind, key->part, reason);
    if (i < 0) return SY_EINVAL;
    char *part = bytes_of_part(config, key->kind, i);
    int status = syi_option_parse(key->option, text, bare, part + key->option->offset, reason);
    if (status != SY_OK && i == before) {
        memset(part, 0, key->kind->bytes);
        --*count_of(config, key->kind);
    }
    if (status == SY_OK) note_given(config, key);
    return status;
}

/* ---- all parts at once ---- */

int syi_config_defaults(struct syi_config *config, struct sy_error *err)
{
    char reason[SYI_REASON];
    size_t n;
    const struct syi_part_kind *kind = syi_config_kinds(&n);
    memset(config, 0, sizeof(*config));
    for (size_t k = 0; k < n; k++) {
        if (kind[k].names == SYI_PART_NAMED) continue;
        if (fill_defaults(&kind[k], bytes_of_part(config, &kind[k], 0), reason) != SY_OK)
            return syi_error(err, SY_EINTERNAL, "defaults of [%s]: %s", kind[k].name, reason);
        if (kind[k].names == SYI_PART_BOTH) *count_of(config, &kind[k]) = 1;
    }
    return SY_OK;
}

struct syi_config *syi_config_copy(const struct syi_config *config, struct sy_error *err)
{
    struct syi_config *copy = syi_alloc(sizeof *copy, err);
    if (copy) *copy = *config;
    return copy;
}

/* Before the first section of a file, and in --set, a key of [run] may stand alone: compat = "t5x". */
int syi_config_set(struct syi_config *config, const char *assignment, struct sy_error *err)
{
    char text[SYI_KEY], reason[SYI_REASON];
    struct syi_key key;
    const char *equals = strchr(assignment, '=');
    if (!equals)
        return syi_error(err, SY_EINVAL, "setting %s: write SECTION.KEY=VALUE, as in train.steps=20",
                         assignment);
    const char *start = assignment + strspn(assignment, " \t"), *end = equals;
    while (end > start && (end[-1] == ' ' || end[-1] == '\t')) end--;
    snprintf(text, sizeof(text), "%.*s", (int)(end - start < SYI_KEY ? end - start : SYI_KEY - 1), start);
    if (syi_key_parse(text, &key, reason) != SY_OK)
        return syi_error(err, SY_EINVAL, "setting %s: %s", assignment, reason);
    if (syi_config_assign(config, &key, equals + 1, true, reason) != SY_OK)
        return syi_error(err, SY_EINVAL, "setting %s: %s: %s", assignment, text, reason);
    return SY_OK;
}

int syi_config_get_text(const struct syi_config *config, const char *text, struct syi_text *out,
                        struct sy_error *err)
{
    char reason[SYI_REASON];
    struct syi_key key;
    if (syi_key_parse(text, &key, reason) != SY_OK) return syi_error(err, SY_EINVAL, "%s", reason);
    int i = syi_config_find_part(config, key.kind, key.part);
    if (i < 0) return syi_error(err, SY_EINVAL, "%s: there is no [%s.%s]", text, key.kind->name, key.part);
    syi_option_print(key.option, (const char *)syi_config_part(config, key.kind, i) + key.option->offset,
                     out);
    return syi_text_status(out, err);
}

/* ---- printing ---- */

static void print_section(const struct syi_part_kind *kind, const char *name, struct syi_text *out)
{
    syi_text_printf(out, "[%s%s%s]", kind->name, *name ? "." : "", name);
}

static void print_help(const struct syi_option *option, struct syi_text *out)
{
    syi_text_printf(out, "# %s\n# (", option->help);
    syi_option_describe(option, out);
    syi_text_printf(out, "; default %s)\n", option->default_text);
}

static void print_part(const struct syi_part_kind *kind, const char *part, bool help, struct syi_text *out)
{
    print_section(kind, syi_part_name(part), out);
    syi_text_puts(out, "\n");
    for (size_t i = 0; i < kind->n_options; i++) {
        if (help) print_help(&kind->options[i], out);
        syi_text_printf(out, "%s = ", kind->options[i].name);
        syi_option_print(&kind->options[i], part + kind->options[i].offset, out);
        syi_text_puts(out, "\n");
    }
}

/* What a part of a kind that has none would be. */
static void print_template(const struct syi_part_kind *kind, struct syi_text *out)
{
    syi_text_printf(out, "# [%s.NAME]\n", kind->name);
    for (size_t i = 0; i < kind->n_options; i++) {
        print_help(&kind->options[i], out);
        syi_text_printf(out, "# %s = %s\n", kind->options[i].name, kind->options[i].default_text);
    }
}

static void print_title(const struct syi_part_kind *kind, struct syi_text *out)
{
    syi_text_printf(out, "# ---- %s ----\n", kind->help);
    if (kind->names == SYI_PART_ONCE) return;
    syi_text_puts(out, "# sections: ");
    if (kind->names == SYI_PART_BOTH) syi_text_printf(out, "[%s], ", kind->name);
    syi_text_printf(out, "[%s.NAME]; up to %d\n", kind->name, SYI_CONFIG_PARTS);
}

void syi_config_print(const struct syi_config *config, bool help, struct syi_text *out)
{
    size_t n;
    const struct syi_part_kind *kind = syi_config_kinds(&n);
    for (size_t k = 0; k < n; k++) {
        int parts = syi_config_parts(config, &kind[k]);
        if (k && (parts || help)) syi_text_puts(out, "\n");
        if (help) print_title(&kind[k], out);
        for (int i = 0; i < parts; i++) {
            if (i) syi_text_puts(out, "\n");
            print_part(&kind[k], syi_config_part(config, &kind[k], i), help, out);
        }
        if (help && !parts) print_template(&kind[k], out);
    }
}

/* ---- comparing ---- */

struct comparison {
    const struct syi_config *old_config, *new_config;
    syi_config_difference_fn fn;
    void *arg;
    struct sy_error *err;
    struct syi_text before, after; /* of what is compared */
};

/* Passes the two texts on where they differ, and empties them. */
static int compare_texts(struct comparison *c, const char *key, enum syi_option_flags flags)
{
    int status = syi_text_status(&c->before, c->err);
    if (status == SY_OK) status = syi_text_status(&c->after, c->err);
    if (status == SY_OK && strcmp(c->before.data, c->after.data) != 0)
        status = c->fn(c->arg, key, flags, c->before.data, c->after.data);
    syi_text_free(&c->before);
    syi_text_free(&c->after);
    return status;
}

static int compare_part(struct comparison *c, const struct syi_part_kind *kind, const char *before,
                        const char *after)
{
    char key[SYI_KEY];
    int status = SY_OK;
    for (size_t i = 0; i < kind->n_options && status == SY_OK; i++) {
        const struct syi_option *option = &kind->options[i];
        syi_key_text(kind, syi_part_name(after), option, key);
        syi_option_print(option, before + option->offset, &c->before);
        syi_option_print(option, after + option->offset, &c->after);
        status = compare_texts(c, key, option->flags);
    }
    return status;
}

static void print_sections(const struct syi_config *config, const struct syi_part_kind *kind,
                           struct syi_text *out)
{
    int n = syi_config_parts(config, kind);
    if (!n) syi_text_puts(out, "none");
    for (int i = 0; i < n; i++) {
        if (i) syi_text_puts(out, " ");
        print_section(kind, syi_part_name(syi_config_part(config, kind, i)), out);
    }
}

/* A part that one side lacks differs as the gravest of its options would. */
static enum syi_option_flags gravest_flags(const struct syi_part_kind *kind)
{
    enum syi_option_flags flags = SYI_OPTION_RUN;
    for (size_t i = 0; i < kind->n_options; i++) {
        if (kind->options[i].flags == SYI_OPTION_MODEL) return SYI_OPTION_MODEL;
        if (kind->options[i].flags == SYI_OPTION_TRAINING) flags = SYI_OPTION_TRAINING;
    }
    return flags;
}

static int compare_kind(struct comparison *c, const struct syi_part_kind *kind)
{
    char key[SYI_KEY];
    snprintf(key, sizeof(key), "[%s.*]", kind->name);
    print_sections(c->old_config, kind, &c->before);
    print_sections(c->new_config, kind, &c->after);
    int status = compare_texts(c, key, gravest_flags(kind));
    for (int i = 0; i < syi_config_parts(c->new_config, kind) && status == SY_OK; i++) {
        const void *after = syi_config_part(c->new_config, kind, i);
        int at = syi_config_find_part(c->old_config, kind, syi_part_name(after));
        if (at >= 0) status = compare_part(c, kind, syi_config_part(c->old_config, kind, at), after);
    }
    return status;
}

int syi_config_compare(const struct syi_config *old_config, const struct syi_config *new_config,
                       syi_config_difference_fn fn, void *arg, struct sy_error *err)
{
    struct comparison c = {
        .old_config = old_config, .new_config = new_config, .fn = fn, .arg = arg, .err = err};
    size_t n;
    const struct syi_part_kind *kind = syi_config_kinds(&n);
    int status = SY_OK;
    for (size_t k = 0; k < n && status == SY_OK; k++) status = compare_kind(&c, &kind[k]);
    return status;
}
