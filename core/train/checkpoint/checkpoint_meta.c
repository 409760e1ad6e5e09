/* SPDX-License-Identifier: Apache-2.0 */
/* meta.json of a checkpoint: where training stands, what it read, and the checksums of the other files. */
#include "config.h"

#include <math.h>
#include <string.h>

#include "base/json.h"
#include "base/run_config.h"
#include "train/checkpoint/checkpoint_parts.h"

enum { FORMAT_VERSION = 1 };
static const int64_t MOST = 1000000000000; /* steps, so evaluations too: as train.steps allows */

/* A hash, unless it is unknown. */
static void put_known(struct syi_json_writer *json, const char *key, const char *hash)
{
    if (hash[0]) syi_json_put_key_string(json, key, hash);
}

static void put_metric(struct syi_json_writer *json, const char *key, double value)
{
    syi_json_put_key(json, key);
    if (isnan(value))
        syi_json_put_null(json);
    else
        syi_json_put_double(json, value);
}

static void put_file(struct syi_json_writer *json, const char *key, const struct syi_file_id *file)
{
    if (!file->sha256[0]) return;
    syi_json_put_key(json, key);
    syi_json_open(json, '{');
    syi_json_put_key_integer(json, "bytes", file->bytes);
    syi_json_put_key_integer(json, "lines", file->lines);
    syi_json_put_key_string(json, "sha256", file->sha256);
    syi_json_close(json, '}');
}

static void put_actions(struct syi_json_writer *json, const struct syi_checkpoint_meta *meta)
{
    syi_json_put_key(json, "actions");
    syi_json_open(json, '[');
    for (int i = 0; i < meta->n_actions; i++) {
        const struct syi_checkpoint_action *action = &meta->action[i];
        syi_json_open(json, '{');
        syi_json_put_key_string(json, "name", action->name);
        syi_json_put_key_integer(json, "metric", action->metric);
        put_metric(json, "best", action->best);
        syi_json_put_key_integer(json, "best_step", action->best_step);
        syi_json_put_key_integer(json, "stale", action->stale);
        put_metric(json, "previous", action->previous);
        syi_json_put_key_integer(json, "unbroken", action->unbroken);
        syi_json_close(json, '}');
    }
    syi_json_close(json, ']');
}

static void print(const struct syi_checkpoint_meta *meta, struct syi_text *out)
{
    struct syi_json_writer json;
    syi_json_begin(&json, out);
    syi_json_open(&json, '{');
    syi_json_put_key_integer(&json, "format_version", FORMAT_VERSION);
    syi_json_put_key_string(&json, "switchyard", sy_version());
    syi_json_put_key_integer(&json, "step", meta->step);
    syi_json_put_key_integer(&json, "examples", meta->examples);
    put_metric(&json, "best_metric", meta->best_metric);
    syi_json_put_key_integer(&json, "best_step", meta->best_step);
    syi_json_put_key_integer(&json, "stale", meta->stale);
    put_metric(&json, "previous_metric", meta->previous_metric);
    syi_json_put_key_integer(&json, "unbroken", meta->unbroken);
    syi_json_put_key_integer(&json, "best_of", meta->best_of);
    syi_json_put_key_integer(&json, "evaluated", meta->evaluated);
    put_file(&json, "train", &meta->train);
    put_file(&json, "valid", &meta->valid);
    put_actions(&json, meta);
    syi_json_put_key_string(&json, "params_sha256", meta->params_sha256);
    put_known(&json, "params_header_sha256", meta->params_header_sha256);
    syi_json_put_key_string(&json, "state_sha256", meta->state_sha256);
    put_known(&json, "state_header_sha256", meta->state_header_sha256);
    syi_json_close(&json, '}');
    syi_text_puts(out, "\n");
}

int syi_checkpoint_meta_write(const char *folder, const struct syi_checkpoint_meta *meta,
                              struct sy_error *err)
{
    struct syi_text text = {0};
    char *file = syi_format("%s/meta.json", folder);
    print(meta, &text);
    int status = file ? syi_text_status(&text, err) : syi_error(err, SY_ENOMEM, "out of memory");
    if (!status) status = syi_file_write(file, text.data, text.length, err);
    syi_text_free(&text);
    syi_free(file);
    return status;
}

/* ---- reading ---- */

struct reader {
    struct syi_json json;
    uint32_t object; /* whose members are read */
    const char *file;
    struct sy_error *err;
    int status; /* of the first member that is not as it should be */
};

static int has(const struct reader *r, const char *key)
{
    return syi_json_member(&r->json, r->object, key) != SYI_JSON_NONE;
}

/* NULL: missing or of another kind, which is remembered. */
static const struct syi_json_node *member(struct reader *r, const char *key, int kind)
{
    uint32_t at = syi_json_member(&r->json, r->object, key);
    if (at != SYI_JSON_NONE && r->json.nodes[at].kind == kind) return &r->json.nodes[at];
    if (!r->status)
        r->status = syi_error(r->err, SY_EFORMAT, "%s: \"%s\" is missing or malformed: the file is damaged",
                              r->file, key);
    return NULL;
}

/* A whole number in low..high. */
static int64_t get_integer(struct reader *r, const char *key, int64_t low, int64_t high)
{
    const struct syi_json_node *node = member(r, key, SYI_JSON_NUMBER);
    if (r->status) return 0;
    if (!node->is_integer)
        r->status = syi_error(r->err, SY_EFORMAT, "%s: \"%s\" is no whole number", r->file, key);
    else if (node->integer < low || node->integer > high)
        r->status = syi_error(r->err, SY_EFORMAT, "%s: \"%s\" is %lld, which cannot be: the file is damaged",
                              r->file, key, (long long)node->integer);
    return node->integer;
}

static void get_hash(struct reader *r, const char *key, char hex[65])
{
    const struct syi_json_node *node = member(r, key, SYI_JSON_STRING);
    const char *text = node ? r->json.strings + node->string : "";
    if (node && strlen(text) != 64 && !r->status)
        r->status = syi_error(r->err, SY_EFORMAT, "%s: \"%s\" is no SHA-256", r->file, key);
    snprintf(hex, 65, "%s", text);
}

static void get_file(struct reader *r, const char *key, struct syi_file_id *file)
{
    if (!has(r, key) || !member(r, key, SYI_JSON_OBJECT)) return;
    r->object = syi_json_member(&r->json, 0, key);
    file->bytes = get_integer(r, "bytes", 0, INT64_MAX);
    file->lines = get_integer(r, "lines", 0, INT64_MAX);
    get_hash(r, "sha256", file->sha256);
    r->object = 0;
}

/* null: there is none yet. A loss may be infinite, which JSON holds as text. */
static double get_metric(struct reader *r, const char *key)
{
    uint32_t at = syi_json_member(&r->json, r->object, key);
    int kind = at == SYI_JSON_NONE ? -1 : r->json.nodes[at].kind;
    if (kind == SYI_JSON_NULL) return NAN;
    if (kind == SYI_JSON_STRING) return syi_json_string(&r->json, at)[0] == '-' ? -INFINITY : INFINITY;
    const struct syi_json_node *node = member(r, key, SYI_JSON_NUMBER);
    return node ? node->number : NAN;
}

static void check_version(struct reader *r)
{
    int64_t version = get_integer(r, "format_version", 1, INT64_MAX);
    if (r->status || version == FORMAT_VERSION) return;
    const struct syi_json_node *by = member(r, "switchyard", SYI_JSON_STRING);
    r->status = syi_error(
        r->err, SY_EUNSUPPORTED,
        "%s: checkpoint format %lld, written by switchyard %s; this is %s, which reads format %d", r->file,
        (long long)version, by ? r->json.strings + by->string : "?", sy_version(), FORMAT_VERSION);
}

static void read_actions(struct reader *r, struct syi_checkpoint_meta *meta)
{
    const struct syi_json_node *list = has(r, "actions") ? member(r, "actions", SYI_JSON_ARRAY) : NULL;
    if (list && list->n_children > SYI_CONFIG_PARTS)
        r->status =
            syi_error(r->err, SY_EFORMAT, "%s: there are more than %d \"actions\": the file is damaged",
                      r->file, SYI_CONFIG_PARTS);
    if (!list || r->status) return;
    for (r->object = list->first; r->object != SYI_JSON_NONE; r->object = r->json.nodes[r->object].next) {
        struct syi_checkpoint_action *action = &meta->action[meta->n_actions++];
        const struct syi_json_node *name = member(r, "name", SYI_JSON_STRING);
        snprintf(action->name, sizeof action->name, "%s", name ? r->json.strings + name->string : "");
        action->metric = get_integer(r, "metric", 0, SYI_METRIC_COUNT - 1);
        action->best = get_metric(r, "best");
        action->best_step = get_integer(r, "best_step", -1, meta->step);
        action->stale = get_integer(r, "stale", 0, MOST);
        action->previous = get_metric(r, "previous");
        action->unbroken = get_integer(r, "unbroken", 0, MOST);
    }
    r->object = 0;
}

static void read_members(struct reader *r, struct syi_checkpoint_meta *meta)
{
    check_version(r);
    meta->step = get_integer(r, "step", 0, MOST);
    meta->examples = get_integer(r, "examples", 0, INT64_MAX);
    meta->best_metric = get_metric(r, "best_metric");
    meta->best_step = get_integer(r, "best_step", -1, meta->step);
    meta->stale = get_integer(r, "stale", 0, MOST);
    meta->previous_metric = NAN;
    meta->best_of = get_integer(r, "best_of", 0, SYI_METRIC_COUNT - 1);
    meta->evaluated = get_integer(r, "evaluated", -1, meta->step);
    read_actions(r, meta);
    get_hash(r, "params_sha256", meta->params_sha256);
    get_hash(r, "state_sha256", meta->state_sha256);
    /* Checkpoints made before there were these lack them. */
    if (has(r, "unbroken")) {
        meta->previous_metric = get_metric(r, "previous_metric");
        meta->unbroken = get_integer(r, "unbroken", 0, MOST);
    }
    get_file(r, "train", &meta->train);
    get_file(r, "valid", &meta->valid);
    if (has(r, "params_header_sha256") || has(r, "state_header_sha256")) {
        get_hash(r, "params_header_sha256", meta->params_header_sha256);
        get_hash(r, "state_header_sha256", meta->state_header_sha256);
    }
}

int syi_checkpoint_meta_read(const char *folder, struct syi_checkpoint_meta *meta, struct sy_error *err)
{
    char *text = NULL, *file = syi_format("%s/meta.json", folder);
    size_t bytes = 0;
    struct reader r = {.file = file, .err = err};
    memset(meta, 0, sizeof *meta);
    if (!file) return syi_error(err, SY_ENOMEM, "out of memory");
    int status = syi_file_read(file, &text, &bytes, err);
    if (!status) status = syi_json_parse(&r.json, file, text, bytes, err);
    if (!status) {
        read_members(&r, meta);
        status = r.status;
        syi_json_free(&r.json);
    }
    syi_free(text);
    syi_free(file);
    return status;
}
