/* SPDX-License-Identifier: Apache-2.0 */
/* The JSON files of a folder, their members, and keys of the run file that are set by them. */
#include "config.h"

#include <string.h>
#include <unistd.h>

#include "import/hf.h"

const struct syi_json_node *syi_hf_member(const struct syi_json *json, uint32_t object, const char *key)
{
    uint32_t at = syi_json_member(json, object, key);
    return at == SYI_JSON_NONE || json->nodes[at].kind == SYI_JSON_NULL ? NULL : &json->nodes[at];
}

static int wrong(const char *what, const char *key, const char *wanted, struct sy_error *err)
{
    return syi_error(err, SY_EFORMAT, "%s: \"%s\" is no %s", what, key, wanted);
}

int syi_hf_integer(const struct syi_json *json, uint32_t object, const char *what, const char *key,
                   int64_t *value, struct sy_error *err)
{
    const struct syi_json_node *node = syi_hf_member(json, object, key);
    if (!node) return SY_OK;
    if (node->kind != SYI_JSON_NUMBER || !node->is_integer) return wrong(what, key, "whole number", err);
    *value = node->integer;
    return SY_OK;
}

int syi_hf_real(const struct syi_json *json, uint32_t object, const char *what, const char *key,
                double *value, struct sy_error *err)
{
    const struct syi_json_node *node = syi_hf_member(json, object, key);
    if (!node) return SY_OK;
    if (node->kind != SYI_JSON_NUMBER) return wrong(what, key, "number", err);
    *value = node->number;
    return SY_OK;
}

int syi_hf_flag(const struct syi_json *json, uint32_t object, const char *what, const char *key, int *value,
                struct sy_error *err)
{
    const struct syi_json_node *node = syi_hf_member(json, object, key);
    if (!node) return SY_OK;
    if (node->kind != SYI_JSON_TRUE && node->kind != SYI_JSON_FALSE)
        return wrong(what, key, "true or false", err);
    *value = node->kind == SYI_JSON_TRUE;
    return SY_OK;
}

int syi_hf_text(const struct syi_json *json, uint32_t object, const char *what, const char *key,
                const char **value, struct sy_error *err)
{
    const struct syi_json_node *node = syi_hf_member(json, object, key);
    if (!node) return SY_OK;
    if (node->kind != SYI_JSON_STRING) return wrong(what, key, "string", err);
    *value = json->strings + node->string;
    return SY_OK;
}

/* Of JSON, many times what the tokenizer.json of the largest vocabularies has: 40 MB. */
enum { LARGEST_JSON = 1 << 28 };

int syi_hf_json(const char *folder, const char *name, struct syi_json *json, int *there, struct sy_error *err)
{
    char *path = syi_format("%s/%s", folder, name), *text = NULL;
    size_t bytes;
    int status = SY_OK;
    *there = 0;
    if (!path) return syi_error(err, SY_ENOMEM, "out of memory");
    *there = !access(path, F_OK);
    if (*there) {
        status = syi_file_read_regular(path, LARGEST_JSON, &text, &bytes, err);
        if (!status) status = syi_json_parse(json, path, text, bytes, err);
        if (!status && json->nodes[0].kind != SYI_JSON_OBJECT)
            status = syi_error(err, SY_EFORMAT, "%s holds no JSON object", path);
    }
    syi_free(text);
    syi_free(path);
    return status;
}

int syi_hf_set(struct syi_config *config, const char *what, struct sy_error *err, const char *format, ...)
{
    char text[SYI_CONFIG_STRING + SYI_KEY];
    struct sy_error why = {0};
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (length < 0 || (size_t)length >= sizeof text)
        return syi_error(err, SY_EINVAL, "%s: a value is too long for the run file: %.64s...", what, text);
    return syi_config_set(config, text, &why) ? syi_error(err, why.code, "%s: %s", what, why.text) : SY_OK;
}
