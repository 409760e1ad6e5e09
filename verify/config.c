/* SPDX-License-Identifier: Apache-2.0 */
/* The flat configuration of a case: typed getters that remember which keys were asked for, and the way from
 * its keys to a run configuration, whose options have the same names. */
#include "config.h"

#include <math.h>
#include <string.h>

#include "verify/verify.h"

/* The key's node, marked as known; SYI_JSON_NONE when it is not there. */
static uint32_t ask(const struct verify_case *c, const char *key)
{
    uint32_t node = syi_json_member(&c->json, c->config, key);
    if (node != SYI_JSON_NONE) c->known[node] = 1;
    return node;
}

static const struct syi_json_node *value_of(const struct verify_case *c, const char *key,
                                            struct sy_error *err)
{
    uint32_t node = ask(c, key);
    if (node == SYI_JSON_NONE) {
        syi_error(err, SY_EFORMAT, "config has no key %s", key);
        return NULL;
    }
    return &c->json.nodes[node];
}

static int wrong(const char *key, const char *expected, struct sy_error *err)
{
    return syi_error(err, SY_EFORMAT, "config key %s: expected %s", key, expected);
}

int verify_has(const struct verify_case *c, const char *key)
{
    return syi_json_member(&c->json, c->config, key) != SYI_JSON_NONE;
}

int verify_is_null(const struct verify_case *c, const char *key)
{
    uint32_t node = ask(c, key);
    return node == SYI_JSON_NONE || c->json.nodes[node].kind == SYI_JSON_NULL;
}

int verify_int(const struct verify_case *c, const char *key, int64_t low, int64_t high, int64_t *value,
               struct sy_error *err)
{
    const struct syi_json_node *node = value_of(c, key, err);
    if (!node) return SY_EFORMAT;
    if (node->kind != SYI_JSON_NUMBER || !node->is_integer) return wrong(key, "an integer", err);
    if (node->integer < low || node->integer > high)
        return syi_error(err, SY_EFORMAT, "config key %s: %lld is outside %lld..%lld", key,
                         (long long)node->integer, (long long)low, (long long)high);
    *value = node->integer;
    return SY_OK;
}

int verify_real(const struct verify_case *c, const char *key, double *value, struct sy_error *err)
{
    const struct syi_json_node *node = value_of(c, key, err);
    if (!node) return SY_EFORMAT;
    if (node->kind != SYI_JSON_NUMBER) return wrong(key, "a number", err);
    *value = node->number;
    return SY_OK;
}

int verify_flag(const struct verify_case *c, const char *key, int *value, struct sy_error *err)
{
    const struct syi_json_node *node = value_of(c, key, err);
    if (!node) return SY_EFORMAT;
    if (node->kind != SYI_JSON_TRUE && node->kind != SYI_JSON_FALSE) return wrong(key, "true or false", err);
    *value = node->kind == SYI_JSON_TRUE;
    return SY_OK;
}

int verify_text(const struct verify_case *c, const char *key, const char **value, struct sy_error *err)
{
    const struct syi_json_node *node = value_of(c, key, err);
    if (!node) return SY_EFORMAT;
    if (node->kind != SYI_JSON_STRING) return wrong(key, "a string", err);
    *value = c->json.strings + node->string;
    return SY_OK;
}

/* Takes the next word of a list separated by spaces; 0 after the last. */
static int next_word(const char **list, char word[64])
{
    *list += strspn(*list, " ");
    size_t length = strcspn(*list, " ");
    if (!length || length >= 64) return 0;
    memcpy(word, *list, length);
    word[length] = 0;
    *list += length;
    return 1;
}

void verify_ignore(const struct verify_case *c, const char *keys)
{
    char word[64];
    while (next_word(&keys, word)) ask(c, word);
}

/* A scalar as it would stand in a run file; nothing for lists and objects. */
static void print_scalar(const struct syi_json *json, const struct syi_json_node *node, struct syi_text *text)
{
    char number[SYI_NUMBER_BYTES];
    switch (node->kind) {
    case SYI_JSON_NULL: syi_text_puts(text, "none"); break;
    case SYI_JSON_FALSE: syi_text_puts(text, "false"); break;
    case SYI_JSON_TRUE: syi_text_puts(text, "true"); break;
    case SYI_JSON_STRING: syi_text_puts(text, json->strings + node->string); break;
    case SYI_JSON_NUMBER:
        syi_format_double(number, node->number);
        if (node->is_integer)
            syi_text_printf(text, "%lld", (long long)node->integer);
        else
            syi_text_puts(text, number);
        break;
    default: break;
    }
}

int verify_only(const struct verify_case *c, const char *key, const char *value, struct sy_error *err)
{
    const char *end;
    struct syi_text text = {0};
    uint32_t at = ask(c, key);
    if (at == SYI_JSON_NONE) return SY_OK;
    const struct syi_json_node *node = &c->json.nodes[at];
    double number = syi_parse_double(value, &end);
    int same = node->kind == SYI_JSON_NUMBER && end != value && !*end && node->number == number;
    print_scalar(&c->json, node, &text);
    int status = syi_text_status(&text, err);
    if (!status && !same && strcmp(text.data ? text.data : "", value))
        status = syi_error(err, SY_EUNSUPPORTED, "config key %s is %s: only %s is computed here", key,
                           text.data ? text.data : "no scalar", value);
    syi_text_free(&text);
    return status;
}

const char *verify_unknown_key(const struct verify_case *c)
{
    const struct syi_json_node *node = c->json.nodes;
    for (uint32_t i = node[c->config].first; i != SYI_JSON_NONE; i = node[i].next)
        if (!c->known[i]) return syi_json_key(&c->json, i);
    return NULL;
}

/* ---- to a run configuration ---- */

/* The key of that name, of a part without a name of its own; 0: there is none. */
static int find_name(const char *name, char key[SYI_KEY])
{
    size_t n;
    const struct syi_part_kind *kind = syi_config_kinds(&n);
    for (size_t k = 0; k < n; k++)
        for (size_t i = 0; kind[k].names != SYI_PART_NAMED && i < kind[k].n_options; i++)
            if (!strcmp(kind[k].options[i].name, name)) {
                syi_key_text(&kind[k], "", &kind[k].options[i], key);
                return 1;
            }
    return 0;
}

static int in_list(const char *list, const char *name)
{
    char word[64];
    while (next_word(&list, word))
        if (!strcmp(word, name)) return 1;
    return 0;
}

/* null keeps the default, but a normalising factor of null is a choice of its own. */
static int set_option(const struct verify_case *c, uint32_t node, const char *key, struct syi_config *config,
                      struct sy_error *err)
{
    struct syi_text text = {0};
    if (c->json.nodes[node].kind == SYI_JSON_NULL && strcmp(key, "loss.loss_normalizing_factor"))
        return SY_OK;
    syi_text_printf(&text, "%s=", key);
    print_scalar(&c->json, &c->json.nodes[node], &text);
    int status = syi_text_status(&text, err);
    if (!status) status = syi_config_set(config, text.data, err);
    syi_text_free(&text);
    return status;
}

int verify_config(const struct verify_case *c, const char *skip, struct syi_config *config,
                  struct sy_error *err)
{
    const struct syi_json_node *node = c->json.nodes;
    int status = syi_config_defaults(config, err);
    if (!status) status = syi_config_set(config, "compat=t5x", err);
    for (uint32_t i = node[c->config].first; !status && i != SYI_JSON_NONE; i = node[i].next) {
        const char *name = syi_json_key(&c->json, i);
        char key[SYI_KEY];
        if (!find_name(name, key) || in_list(skip, name)) continue;
        if (node[i].kind == SYI_JSON_ARRAY || node[i].kind == SYI_JSON_OBJECT) continue;
        c->known[i] = 1;
        status = set_option(c, i, key, config, err);
    }
    return status;
}
