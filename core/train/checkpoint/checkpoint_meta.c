/* SPDX-License-Identifier: Apache-2.0 */
/* meta.json of a checkpoint: where training stands, what it read, the checksums of the other files, and as its last member
 * the hash of all its text before that. */
#include "config.h"

#include <math.h>
#include <string.h>

#include "base/json.h"
#include "base/run_config.h"
#include "train/checkpoint/checkpoint_parts.h"

/* Format 1 kept certain numbers of early stopping; it is read, see read_format_1. */
enum { FORMAT_VERSION = 2 };
static const int64_t MOST = 1000000000000; /* steps, so evaluations too: as train.steps allows */

static const char SEAL[] = ",\"meta_sha256\":\"", SEAL_END[] = "\"}\n";
enum { SEAL_BYTES = sizeof SEAL - 1 + 64 + sizeof SEAL_END - 1 };

static void hash_text(const char *text, size_t bytes, char hex[65])
{
    struct syi_sha256 hash;
    syi_sha256_init(&hash);
    syi_sha256_add(&hash, text, bytes);
    syi_sha256_hex(&hash, hex);
}

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

static void put_numbers(struct syi_json_writer *json, const char *key, const struct syi_action_state *state)
{
    syi_json_put_key(json, key);
    syi_json_open(json, '{');
    for (int i = 0; i < state->n; i++) put_metric(json, state->number[i].name, state->number[i].value);
    syi_json_close(json, '}');
}

static void put_actions(struct syi_json_writer *json, const struct syi_checkpoint_meta *meta)
{
    syi_json_put_key(json, "actions");
    syi_json_open(json, '[');
    for (int i = 0; i < meta->n_actions; i++) {
        const struct syi_action_state *state = &meta->action[i];
        syi_json_open(json, '{');
        syi_json_put_key_string(json, "name", state->name);
        syi_json_put_key_string(json, "watches", state->watches);
        put_numbers(json, "numbers", state);
        syi_json_close(json, '}');
    }
    syi_json_close(json, ']');
}

/* Only packed rows have one. */
static void put_rows(struct syi_json_writer *json, struct syi_row_position rows)
{
    if (!rows.row) return;
    syi_json_put_key_integer(json, "packed_row", rows.row);
    syi_json_put_key_integer(json, "packed_window", rows.window);
}

static void put_holes(struct syi_json_writer *json, const struct syi_holes *holes)
{
    syi_json_put_key(json, "holes");
    syi_json_open(json, '[');
    for (int i = 0; i < holes->n; i++) {
        syi_json_open(json, '{');
        syi_json_put_key_integer(json, "step", holes->hole[i].step);
        syi_json_put_key_integer(json, "batches", holes->hole[i].batches);
        syi_json_close(json, '}');
    }
    syi_json_close(json, ']');
}

static void put_sums(struct syi_json_writer *json, const struct syi_checkpoint_sums *sums)
{
    if (!sums || !sums->n) return;
    syi_json_put_key(json, "crc32c");
    syi_json_open(json, '{');
    for (size_t i = 0; i < sums->n; i++) syi_json_put_key_integer(json, sums->sum[i].name, sums->sum[i].crc);
    syi_json_close(json, '}');
}

static void print(const struct syi_checkpoint_meta *meta, const struct syi_checkpoint_sums *sums,
                  struct syi_text *out)
{
    struct syi_json_writer json;
    char hex[65];
    syi_json_begin(&json, out);
    syi_json_open(&json, '{');
    syi_json_put_key_integer(&json, "format_version", FORMAT_VERSION);
    syi_json_put_key_string(&json, "switchyard", sy_version());
    syi_json_put_key_integer(&json, "step", meta->step);
    syi_json_put_key_integer(&json, "examples", meta->examples);
    put_metric(&json, "best_metric", meta->best_metric);
    syi_json_put_key_integer(&json, "best_step", meta->best_step);
    syi_json_put_key_integer(&json, "evaluated", meta->evaluated);
    put_file(&json, "train", &meta->train);
    put_file(&json, "valid", &meta->valid);
    put_actions(&json, meta);
    if (meta->sums.n) put_numbers(&json, "sums", &meta->sums);
    put_holes(&json, &meta->holes);
    put_rows(&json, meta->rows);
    syi_json_put_key_string(&json, "params_sha256", meta->params_sha256);
    put_known(&json, "params_header_sha256", meta->params_header_sha256);
    syi_json_put_key_string(&json, "state_sha256", meta->state_sha256);
    put_known(&json, "state_header_sha256", meta->state_header_sha256);
    put_sums(&json, sums);
    if (out->status) return;
    hash_text(out->data, out->length, hex);
    syi_text_printf(out, "%s%s%s", SEAL, hex, SEAL_END);
}

int syi_checkpoint_meta_write(const char *folder, const struct syi_checkpoint_meta *meta,
                              const struct syi_checkpoint_sums *sums, struct sy_error *err)
{
    struct syi_text text = {0};
    char *file = syi_format("%s/meta.json", folder);
    print(meta, sums, &text);
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

/* Checkpoints made before there was one have no hash of meta.json. */
static void check_seal(struct reader *r, const char *text, size_t bytes)
{
    char hex[65];
    if (!has(r, "meta_sha256")) return;
    const char *seal = bytes < SEAL_BYTES ? NULL : text + bytes - SEAL_BYTES;
    if (seal) hash_text(text, bytes - SEAL_BYTES, hex);
    if (seal && !memcmp(seal, SEAL, sizeof SEAL - 1) && !memcmp(seal + sizeof SEAL - 1, hex, 64) &&
        !memcmp(seal + sizeof SEAL - 1 + 64, SEAL_END, sizeof SEAL_END - 1))
        return;
    r->status = syi_error(r->err, SY_EFORMAT,
                          "%s is corrupt: its text has another SHA-256 than the one at its end, so it was "
                          "damaged or edited by hand",
                          r->file);
}

/* null: there is none yet. A loss may be infinite, which JSON holds as text. */
static double get_metric(struct reader *r, const char *key)
{
    uint32_t at = syi_json_member(&r->json, r->object, key);
    int kind = at == SYI_JSON_NONE ? -1 : r->json.nodes[at].kind;
    if (kind == SYI_JSON_NULL) return NAN;
    const char *text = kind == SYI_JSON_STRING ? syi_json_string(&r->json, at) : "";
    if (!strcmp(text, "inf")) return INFINITY;
    if (!strcmp(text, "-inf")) return -INFINITY;
    const struct syi_json_node *node = member(r, key, SYI_JSON_NUMBER);
    return node ? node->number : NAN;
}

static int64_t check_version(struct reader *r)
{
    int64_t version = get_integer(r, "format_version", 1, INT64_MAX);
    if (r->status || version <= FORMAT_VERSION) return version;
    const struct syi_json_node *by = member(r, "switchyard", SYI_JSON_STRING);
    r->status = syi_error(
        r->err, SY_EUNSUPPORTED,
        "%s: checkpoint format %lld, written by switchyard %s; this is %s, which reads formats up to %d",
        r->file, (long long)version, by ? r->json.strings + by->string : "?", sy_version(), FORMAT_VERSION);
    return version;
}

/* The elements of a list, at most `most` of them: *first, or NULL. */
static const struct syi_json_node *get_list(struct reader *r, const char *key, uint32_t most)
{
    const struct syi_json_node *list = member(r, key, SYI_JSON_ARRAY);
    if (list && list->n_children > most)
        r->status = syi_error(r->err, SY_EFORMAT, "%s: there are more than %u \"%s\": the file is damaged",
                              r->file, most, key);
    return r->status ? NULL : list;
}

/* A text of fewer than `bytes`. */
static void get_text(struct reader *r, const char *key, char *text, size_t bytes)
{
    const struct syi_json_node *node = member(r, key, SYI_JSON_STRING);
    int length = snprintf(text, bytes, "%s", node ? r->json.strings + node->string : "");
    if (!r->status && (size_t)length >= bytes)
        r->status =
            syi_error(r->err, SY_EFORMAT, "%s: \"%s\" is too long: the file is damaged", r->file, key);
}

static void add_number(struct reader *r, struct syi_action_state *state, const char *key)
{
    double value = get_metric(r, key);
    if (r->status) return;
    int at = 0;
    while (at < state->n && strcmp(state->number[at].name, key)) at++;
    if (at == SYI_ACTION_NUMBERS || strlen(key) >= SYI_ACTION_NUMBER_NAME) {
        r->status = syi_error(r->err, SY_EFORMAT,
                              "%s: the numbers of %s%s are too many or have names "
                              "that are too long: the file is damaged",
                              r->file, *state->name ? "action." : "steps", state->name);
        return;
    }
    snprintf(state->number[at].name, SYI_ACTION_NUMBER_NAME, "%s", key);
    state->number[at].value = value;
    if (at == state->n) state->n++;
}

/* Those of one member of the object that is read, which stays so. */
static void read_numbers(struct reader *r, const char *key, struct syi_action_state *state)
{
    const struct syi_json_node *numbers = member(r, key, SYI_JSON_OBJECT);
    uint32_t object = r->object;
    if (!numbers) return;
    r->object = syi_json_member(&r->json, object, key);
    for (uint32_t i = numbers->first; i != SYI_JSON_NONE && !r->status; i = r->json.nodes[i].next)
        add_number(r, state, syi_json_key(&r->json, i));
    r->object = object;
}

static void read_actions(struct reader *r, struct syi_checkpoint_meta *meta)
{
    const struct syi_json_node *list = get_list(r, "actions", SYI_COUNT(meta->action));
    for (uint32_t i = list ? list->first : SYI_JSON_NONE; i != SYI_JSON_NONE && !r->status;
         i = r->json.nodes[i].next) {
        struct syi_action_state *state = &meta->action[meta->n_actions++];
        r->object = i;
        get_text(r, "name", state->name, sizeof state->name);
        get_text(r, "watches", state->watches, sizeof state->watches);
        read_numbers(r, "numbers", state);
    }
    r->object = 0;
}

static void read_holes(struct reader *r, struct syi_checkpoint_meta *meta)
{
    struct syi_holes *holes = &meta->holes;
    const struct syi_json_node *list = get_list(r, "holes", SYI_HOLES);
    int64_t least = 0, sum = 0;
    for (uint32_t i = list ? list->first : SYI_JSON_NONE; i != SYI_JSON_NONE && !r->status;
         i = r->json.nodes[i].next) {
        struct syi_hole *hole = &holes->hole[holes->n++];
        r->object = i;
        hole->step = get_integer(r, "step", least, meta->step);
        hole->batches = get_integer(r, "batches", 1, MOST - sum);
        least = hole->step + 1;
        sum += hole->batches;
    }
    r->object = 0;
}

/* ---- format 1: numbers of early stopping alone, of the loss, wer or per, of which lower is better ---- */

/* Of the object that is read; metric, value, previous: what these are called there. */
static void read_format_1_state(struct reader *r, int64_t step, struct syi_action_state *state,
                                const char *metric, const char *value, const char *previous)
{
    static const char *const metrics[] = {"min loss", "min wer", "min per"};
    const struct {
        const char *key;
        double value;
    } numbers[] = {{"best", get_metric(r, value)},
                   {"best_step", (double)get_integer(r, "best_step", -1, step)},
                   {"stale", (double)get_integer(r, "stale", 0, MOST)},
                   {"previous", has(r, "unbroken") ? get_metric(r, previous) : NAN},
                   {"unbroken", has(r, "unbroken") ? (double)get_integer(r, "unbroken", 0, MOST) : 0}};
    int64_t index = get_integer(r, metric, 0, SYI_COUNT(metrics) - 1);
    if (r->status) return;
    snprintf(state->watches, sizeof state->watches, "%s", metrics[index]);
    for (size_t i = 0; i < SYI_COUNT(numbers); i++) {
        snprintf(state->number[i].name, SYI_ACTION_NUMBER_NAME, "%s", numbers[i].key);
        state->number[i].value = numbers[i].value;
    }
    state->n = SYI_COUNT(numbers);
}

/* The oldest kept one state alone. */
static void read_format_1(struct reader *r, struct syi_checkpoint_meta *meta)
{
    const struct syi_json_node *list = has(r, "actions") ? get_list(r, "actions", SYI_CONFIG_PARTS) : NULL;
    read_format_1_state(r, meta->step, &meta->action[meta->n_actions++], "best_of", "best_metric",
                        "previous_metric");
    for (uint32_t i = list ? list->first : SYI_JSON_NONE; i != SYI_JSON_NONE && !r->status;
         i = r->json.nodes[i].next) {
        struct syi_action_state *state = &meta->action[meta->n_actions++];
        r->object = i;
        get_text(r, "name", state->name, sizeof state->name);
        read_format_1_state(r, meta->step, state, "metric", "best", "previous");
    }
    r->object = 0;
}

/* Where to begin looking. Earlier versions kept the place of a run that went on with smaller batches, which is behind the
 * rows of its next step and says nothing of them. */
static void read_rows(struct reader *r, struct syi_checkpoint_meta *meta)
{
    meta->rows.row = get_integer(r, "packed_row", 1, INT64_MAX);
    meta->rows.window = get_integer(r, "packed_window", 1, meta->rows.row);
    if (meta->rows.row > meta->examples) meta->rows = (struct syi_row_position){0, 0};
}

static void read_members(struct reader *r, void *into)
{
    struct syi_checkpoint_meta *meta = into;
    int64_t version = check_version(r);
    meta->step = get_integer(r, "step", 0, MOST);
    meta->examples = get_integer(r, "examples", 0, INT64_MAX);
    meta->best_metric = get_metric(r, "best_metric");
    meta->best_step = get_integer(r, "best_step", -1, meta->step);
    meta->evaluated = get_integer(r, "evaluated", -1, meta->step);
    if (version == 1) {
        read_format_1(r, meta);
    } else {
        read_actions(r, meta);
        read_holes(r, meta);
        if (has(r, "sums")) read_numbers(r, "sums", &meta->sums);
    }
    if (has(r, "packed_row")) read_rows(r, meta);
    get_hash(r, "params_sha256", meta->params_sha256);
    get_hash(r, "state_sha256", meta->state_sha256);
    get_file(r, "train", &meta->train);
    get_file(r, "valid", &meta->valid);
    meta->is_sealed = has(r, "meta_sha256");
    /* Checkpoints made before there were these lack them. */
    if (has(r, "params_header_sha256") || has(r, "state_header_sha256")) {
        get_hash(r, "params_header_sha256", meta->params_header_sha256);
        get_hash(r, "state_header_sha256", meta->state_header_sha256);
    }
}

static void read_sums(struct reader *r, void *into)
{
    struct syi_checkpoint_sums *sums = into;
    const struct syi_json_node *list = has(r, "crc32c") ? member(r, "crc32c", SYI_JSON_OBJECT) : NULL;
    for (uint32_t i = list ? list->first : SYI_JSON_NONE; i != SYI_JSON_NONE && !r->status;
         i = r->json.nodes[i].next) {
        const struct syi_json_node *node = &r->json.nodes[i];
        const char *name = syi_json_key(&r->json, i);
        if (!node->is_integer || node->integer < 0 || node->integer > UINT32_MAX) {
            r->status = syi_error(r->err, SY_EFORMAT, "%s: the sum of %s cannot be: the file is damaged",
                                  r->file, name);
            return;
        }
        r->status = SYI_GROW(sums->sum, sums->capacity, sums->n + 1, r->err);
        if (r->status) return;
        struct syi_checkpoint_sum *sum = &sums->sum[sums->n];
        sum->crc = (uint32_t)node->integer;
        sum->name = syi_strdup(name, r->err);
        if (!sum->name) r->status = SY_ENOMEM;
        sums->n += sum->name != NULL;
    }
}

/* What `take` reads of the folder's meta.json, into *into. */
static int read_meta(const char *folder, void (*take)(struct reader *r, void *into), void *into,
                     struct sy_error *err)
{
    char *text = NULL, *file = syi_format("%s/meta.json", folder);
    size_t bytes = 0;
    struct reader r = {.file = file, .err = err};
    if (!file) return syi_error(err, SY_ENOMEM, "out of memory");
    int status = syi_file_read(file, &text, &bytes, err);
    if (!status) status = syi_json_parse(&r.json, file, text, bytes, err);
    if (!status) {
        check_seal(&r, text, bytes);
        if (!r.status) take(&r, into);
        status = r.status;
        syi_json_free(&r.json);
    }
    syi_free(text);
    syi_free(file);
    return status;
}

int syi_checkpoint_sums_read(const char *folder, struct syi_checkpoint_sums *sums, struct sy_error *err)
{
    memset(sums, 0, sizeof *sums);
    return read_meta(folder, read_sums, sums, err);
}

int syi_checkpoint_meta_read(const char *folder, struct syi_checkpoint_meta *meta, struct sy_error *err)
{
    memset(meta, 0, sizeof *meta);
    return read_meta(folder, read_members, meta, err);
}

int syi_checkpoint_check_step(const char *folder, int64_t step, const struct syi_checkpoint_meta *meta,
                              struct sy_error *err)
{
    return meta->step == step
               ? SY_OK
               : syi_error(err, SY_EFORMAT, "%s/meta.json is of step %lld: the folder was renamed", folder,
                           (long long)meta->step);
}
