/* SPDX-License-Identifier: Apache-2.0 */
/* What a value of gin is as a value of a run file, each kind in its way; what cannot be one is a note. */
#include "config.h"

#include <string.h>

#include "import/gin_conversion.h"

/* ---- names ---- */

struct syi_gin_name syi_gin_take_apart(const char *name)
{
    struct syi_gin_name parts = {.parameter = ""};
    const char *slash = strrchr(name, '/'), *scope = slash, *rest = slash ? slash + 1 : name;
    if (slash) {
        while (scope > name && scope[-1] != '/') scope--;
        snprintf(parts.scope, sizeof parts.scope, "%.*s", (int)(slash - scope), scope);
    }
    const char *dot = strrchr(rest, '.'), *class = dot;
    if (dot) {
        while (class > rest && class[-1] != '.') class --;
        snprintf(parts.class, sizeof parts.class, "%.*s", (int)(dot - class), class);
        parts.parameter = dot + 1;
        rest = class;
    }
    snprintf(parts.last, sizeof parts.last, "%s", rest);
    return parts;
}

const char *syi_gin_text_of(const struct syi_gin_conversion *c, uint32_t value)
{
    return syi_gin_string(c->gin, c->gin->nodes[value].text);
}

const char *syi_gin_name_of(const struct syi_gin_conversion *c, const struct syi_gin_binding *binding)
{
    return syi_gin_string(c->gin, binding->name);
}

const struct syi_gin_binding *syi_gin_find_binding(const struct syi_gin_conversion *c, const char *class,
                                                   const char *parameter)
{
    for (size_t i = c->gin->n_bindings; i-- > 0;) {
        struct syi_gin_name name = syi_gin_take_apart(syi_gin_name_of(c, &c->gin->bindings[i]));
        if (syi_pattern_match(class, name.class) && !strcmp(name.parameter, parameter))
            return &c->gin->bindings[i];
    }
    return NULL;
}

const char *syi_gin_referred_to(const struct syi_gin_conversion *c, uint32_t value)
{
    if (value == SYI_GIN_NONE || c->gin->nodes[value].kind != SYI_GIN_REFERENCE) return "";
    const char *text = syi_gin_text_of(c, value), *end;
    while ((end = strpbrk(text, "./"))) text = end + 1;
    return text;
}

/* ---- what is said ---- */

void syi_gin_put_line(struct syi_text *out, const char *text)
{
    for (; *text; text++) syi_text_append(out, (unsigned char)*text < 32 || *text == 127 ? "?" : text, 1);
    syi_text_puts(out, "\n");
}

void syi_gin_note(struct syi_gin_conversion *c, uint32_t file, int line, const char *what, const char *why)
{
    struct syi_text text = {0};
    syi_text_printf(&text, "not converted: %s:%d: %s: %s", syi_gin_string(c->gin, file), line, what, why);
    if (text.data) syi_gin_put_line(&c->notes, text.data);
    if (text.status) c->notes.status = text.status;
    syi_text_free(&text);
}

void syi_gin_note_binding(struct syi_gin_conversion *c, const struct syi_gin_binding *binding,
                          const char *why)
{
    struct syi_text text = {0};
    syi_text_printf(&text, "%s = ", syi_gin_name_of(c, binding));
    syi_gin_print(c->gin, binding->value, &text);
    syi_gin_note(c, binding->file, binding->line, text.data ? text.data : "", why);
    if (text.status) c->notes.status = text.status;
    syi_text_free(&text);
}

/* ---- values ---- */

struct syi_gin_set_key *syi_gin_find_set(struct syi_gin_conversion *c, const char *key)
{
    for (int i = 0; i < c->n_set; i++)
        if (!strcmp(c->set[i].name, key)) return &c->set[i];
    return NULL;
}

void syi_gin_set(struct syi_gin_conversion *c, const struct syi_gin_binding *from, const char *key,
                 const char *value)
{
    char reason[SYI_REASON];
    struct syi_key parsed;
    struct syi_gin_set_key *known = syi_gin_find_set(c, key);
    int status = syi_key_parse(key, &parsed, reason);
    if (!status) status = syi_config_assign(&c->config, &parsed, value, true, reason);
    if (status == SY_ENOMEM) c->notes.status = status;
    if (status) {
        if (from) syi_gin_note_binding(c, from, reason);
        return;
    }
    if (!known && c->n_set < SYI_GIN_KEYS) known = &c->set[c->n_set++];
    if (!known) return; /* there are fewer keys in the table */
    snprintf(known->name, sizeof known->name, "%s", key);
    known->from = from;
}

int syi_gin_is_word(const struct syi_gin_conversion *c, uint32_t value, const char *word)
{
    return value != SYI_GIN_NONE && c->gin->nodes[value].kind == SYI_GIN_WORD &&
           !strcmp(syi_gin_text_of(c, value), word);
}

const char *syi_gin_plain_text(const struct syi_gin_conversion *c, uint32_t value)
{
    enum syi_gin_kind kind = c->gin->nodes[value].kind;
    if (syi_gin_is_word(c, value, "True")) return "true";
    if (syi_gin_is_word(c, value, "False")) return "false";
    return kind == SYI_GIN_NUMBER || kind == SYI_GIN_STRING ? syi_gin_text_of(c, value) : NULL;
}

/* "theirs=ours ..." looked up; a name that is not in the list is itself. Returns 0 where ours is empty: there is none. */
static int translate(const char *list, const char *name, char *out, size_t bytes)
{
    size_t length = strlen(name);
    snprintf(out, bytes, "%s", name);
    for (const char *at = list; at && *at; at += strcspn(at, " "), at += *at == ' ') {
        if (strncmp(at, name, length) || at[length] != '=') continue;
        size_t n = strcspn(at + length + 1, " ");
        snprintf(out, bytes, "%.*s", (int)n, at + length + 1);
        return n > 0;
    }
    return 1;
}

void syi_gin_set_choice(struct syi_gin_conversion *c, const struct syi_gin_binding *from, const char *key,
                        const char *names, uint32_t value)
{
    char ours[SYI_GIN_TEXT];
    const char *text = syi_gin_text_of(c, value), *end;
    enum syi_gin_kind kind = c->gin->nodes[value].kind;
    if (kind == SYI_GIN_LIST || kind == SYI_GIN_DICT) {
        syi_gin_note_binding(c, from, "a name was expected");
        return;
    }
    /* of a name the last part */
    while (kind != SYI_GIN_NUMBER && (end = strpbrk(text, "./"))) text = end + 1;
    if (translate(names, text, ours, sizeof ours))
        syi_gin_set(c, from, key, ours);
    else
        syi_gin_note_binding(c, from, "see vocabulary.kind and vocabulary.file");
}

void syi_gin_set_activations(struct syi_gin_conversion *c, const struct syi_gin_binding *from,
                             const char *key, uint32_t value)
{
    char joined[SYI_GIN_TEXT] = "";
    size_t n = 0;
    const struct syi_gin_node *node = &c->gin->nodes[value];
    if (node->kind == SYI_GIN_STRING) snprintf(joined, sizeof joined, "%s", syi_gin_text_of(c, value));
    for (uint32_t child = node->first; child != SYI_GIN_NONE && n < sizeof joined;
         child = c->gin->nodes[child].next) {
        uint32_t item = syi_gin_resolve(c->gin, child);
        const char *text = item == SYI_GIN_NONE ? NULL : syi_gin_plain_text(c, item);
        if (text && !strcmp(text, "swish")) text = "silu"; /* JAX has both names */
        n += (size_t)snprintf(joined + n, sizeof joined - n, "%s%s", n ? "," : "", text ? text : "?");
    }
    syi_gin_set(c, from, key, joined);
}

/* One entry of {'inputs': 512, 'targets': 114}. */
static void set_length(struct syi_gin_conversion *c, const struct syi_gin_binding *from, uint32_t key,
                       uint32_t value)
{
    const char *name = key == SYI_GIN_NONE ? NULL : syi_gin_plain_text(c, key);
    const char *length = value == SYI_GIN_NONE ? NULL : syi_gin_plain_text(c, value);
    int inputs = name && !strcmp(name, "inputs"), targets = name && !strcmp(name, "targets");
    char why[SYI_GIN_TEXT];
    if (length && (inputs || targets)) {
        syi_gin_set(c, from, inputs ? "data.max_input_length" : "data.max_target_length", length);
        return;
    }
    if (inputs || targets)
        snprintf(why, sizeof why, "the length of %s is no number", name);
    else
        snprintf(why, sizeof why, "%.100s is no feature with a length: those are inputs and targets",
                 name ? name : "this");
    syi_gin_note_binding(c, from, why);
}

void syi_gin_set_lengths(struct syi_gin_conversion *c, const struct syi_gin_binding *from, uint32_t value)
{
    const struct syi_gin *gin = c->gin;
    if (gin->nodes[value].kind != SYI_GIN_DICT) {
        syi_gin_note_binding(c, from, "a dictionary of features and lengths was expected");
        return;
    }
    for (uint32_t key = gin->nodes[value].first; key != SYI_GIN_NONE;
         key = gin->nodes[gin->nodes[key].next].next)
        set_length(c, from, syi_gin_resolve(gin, key), syi_gin_resolve(gin, gin->nodes[key].next));
}

void syi_gin_set_value(struct syi_gin_conversion *c, const struct syi_gin_binding *from, const char *key,
                       const char *none, uint32_t value)
{
    const char *text = syi_gin_plain_text(c, value);
    if (syi_gin_is_word(c, value, "None")) {
        if (none) syi_gin_set(c, from, key, none);
        return;
    }
    if (text)
        syi_gin_set(c, from, key, text);
    else
        syi_gin_note_binding(c, from, "a number, a string, True or False was expected");
}

static void put_factor(struct syi_gin_conversion *c, const char *key, const char *text)
{
    int i = 0;
    while (i < c->n_factors && strcmp(c->factor[i].factor, key)) i++;
    if (i == c->n_factors) c->n_factors++;
    c->factor[i].factor = key;
    c->factor[i].argument = strchr(key, '.') + 1;
    snprintf(c->factor[i].value, sizeof c->factor[i].value, "%s", text);
}

void syi_gin_set_factor(struct syi_gin_conversion *c, const struct syi_gin_binding *from, const char *key,
                        const char *other, uint32_t value)
{
    const char *text = syi_gin_plain_text(c, value);
    if (!text || c->gin->nodes[value].kind != SYI_GIN_NUMBER) {
        syi_gin_note_binding(c, from, "a number was expected");
        return;
    }
    put_factor(c, key, text);
    if (other) put_factor(c, other, text);
}

int syi_gin_is_nothing(const struct syi_gin_conversion *c, uint32_t value)
{
    const struct syi_gin_node *node = &c->gin->nodes[value];
    if (node->kind == SYI_GIN_LIST || node->kind == SYI_GIN_DICT) return !node->children;
    return syi_gin_is_word(c, value, "None") || syi_gin_is_word(c, value, "False") ||
           (node->kind == SYI_GIN_STRING && !*syi_gin_text_of(c, value));
}
