/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the texts of examples and groups them by input. Token ids are made later, by batch.c. */
#include "config.h"

#include <inttypes.h>
#include <string.h>

#include "data/source.h"
#include "data/task.h"

/* ---- reading ---- */

struct loading {
    struct syi_task *task;
    const struct syi_example_form *form;
    const char *path; /* of the file at hand */
    struct syi_example_maker maker;
    size_t capacity; /* of task->examples */
    struct syi_bad_records bad;
    int64_t invalid; /* records that are no valid UTF-8 */
    char first_invalid[200];
};

/* Appends the text of a template. *at, *bytes: where it is. */
static int put_text(struct loading *l, const struct syi_template *form, size_t k, size_t *at, uint32_t *bytes,
                    struct sy_error *err)
{
    struct syi_span text;
    int status = syi_example_text(&l->maker, form, k, &text, err);
    if (status) return status;
    *at = l->task->text.length;
    *bytes = (uint32_t)text.bytes; /* a record has at most SYI_RECORD_BYTES */
    syi_text_append(&l->task->text, text.text, text.bytes);
    return syi_text_status(&l->task->text, err);
}

/* Targets of one input share its text. */
static int add_example(struct loading *l, size_t k, size_t inputs, struct sy_error *err)
{
    struct syi_task *task = l->task;
    if (task->n_examples == INT32_MAX - 1)
        return syi_error(err, SY_EFORMAT, "%s: more than 2147483646 examples; set eval_examples or take less",
                         task->path);
    int status = SYI_GROW(task->examples, l->capacity, (size_t)task->n_examples + 1, err);
    if (status) return status;
    struct syi_example *e = &task->examples[task->n_examples];
    if (k && inputs == 1)
        e->input = e[-1].input, e->input_bytes = e[-1].input_bytes;
    else
        status = put_text(l, &l->form->inputs, k, &e->input, &e->input_bytes, err);
    if (!status) status = put_text(l, &l->form->targets, k, &e->target, &e->target_bytes, err);
    task->n_examples += !status;
    return status;
}

static int refuse(struct loading *l, const struct syi_record *record, const char *why, struct sy_error *err)
{
    int skip = l->form->task->on_bad_record == SYI_BAD_RECORD_SKIP;
    return syi_record_refuse(record, l->path, why, skip, &l->bad, err);
}

static int add_record(struct loading *l, const struct syi_record *record, struct sy_error *err)
{
    struct sy_error cause = {0};
    size_t inputs;
    l->task->n_lines++;
    if (record->bad) return refuse(l, record, record->bad, err);
    int status = syi_example_begin(&l->maker, l->form, record->text, &cause);
    if (status == SY_EFORMAT) return refuse(l, record, cause.text, err);
    if (status) return syi_error(err, status, "%s:%" PRId64 ": %s", l->path, record->line, cause.text);
    if (!syi_utf8_valid(record->text) && !l->invalid++)
        snprintf(l->first_invalid, sizeof l->first_invalid, "%.160s:%" PRId64, l->path, record->line);
    status = syi_template_count(&l->form->inputs, &l->maker.fields, &inputs, err);
    for (size_t k = 0; k < l->maker.n && !status; k++) status = add_example(l, k, inputs, err);
    return status;
}

static int read_file(struct loading *l, const struct syi_source_file *file, struct sy_error *err)
{
    struct syi_scan scan;
    struct syi_record record;
    struct sy_error own = {0};
    l->path = file->path;
    int status = syi_scan_open(&scan, file->readable, l->form->format, &own);
    while (!status && !(status = syi_scan_next(&scan, &record, &own))) status = add_record(l, &record, &own);
    if (status == SY_ENOENT && !own.text[0]) {
        l->task->id = syi_file_id_join(&l->task->id, &scan.id);
        status = SY_OK;
    }
    syi_scan_close(&scan);
    return status ? syi_error(err, status, "%s", own.text) : SY_OK;
}

static int read_files(struct loading *l, const char *pattern, struct sy_error *err)
{
    struct syi_source source;
    const char *cache = l->form->config ? l->form->config->data.cache : SYI_SOURCE_TEMPORARY;
    int status = syi_source_open(&source, pattern, *cache ? cache : SYI_SOURCE_TEMPORARY, err);
    for (int i = 0; !status && i < source.n; i++) status = read_file(l, &source.file[i], err);
    syi_source_close(&source);
    if (!status && !l->task->n_lines)
        status = syi_error(err, SY_EFORMAT, "%s:1: the file is empty; %s", pattern, l->form->format->holds);
    else if (!status && !l->task->n_examples)
        status = syi_error(err, SY_EFORMAT, "%s: all records are skipped, none is left; the first: %s",
                           pattern, l->bad.first);
    return status;
}

int syi_task_load(struct syi_task *task, const struct syi_example_form *form, const char *path,
                  struct sy_error *err)
{
    struct loading l = {.task = task, .form = form};
    memset(task, 0, sizeof *task);
    task->path = syi_strdup(path, err);
    int status = task->path ? read_files(&l, path, err) : SY_ENOMEM;
    syi_example_maker_free(&l.maker);
    if (!status) syi_bad_records_warn(&l.bad);
    if (!status && l.invalid)
        syi_log(SY_LOG_WARN,
                "%s: not valid UTF-8 (%" PRId64 " of %" PRId64 " records); the bytes are used as they are",
                l.first_invalid, l.invalid, task->n_lines);
    if (status) syi_task_free(task);
    return status;
}

void syi_task_free(struct syi_task *task)
{
    syi_free(task->path);
    syi_text_free(&task->text);
    syi_free(task->examples);
    memset(task, 0, sizeof(*task));
}

struct syi_span syi_task_input(const struct syi_task *task, int32_t example)
{
    const struct syi_example *e = &task->examples[example];
    return (struct syi_span){task->text.data + e->input, e->input_bytes};
}

struct syi_span syi_task_target(const struct syi_task *task, int32_t example)
{
    const struct syi_example *e = &task->examples[example];
    return (struct syi_span){task->text.data + e->target, e->target_bytes};
}

/* FNV-1a: short, good enough for a table that is at most half full. */
static uint64_t hash_span(struct syi_span span)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < span.bytes; i++) hash = (hash ^ (unsigned char)span.text[i]) * 0x100000001b3u;
    return hash ^ hash >> 32;
}

/* Gives every example the number of its input. table: (mask + 1) first example of an item + 1, 0 where free.
 */
static void number_inputs(struct syi_items *items, const struct syi_task *task, int32_t *table, size_t mask)
{
    struct syi_span input, other;
    size_t slot;

    for (int32_t i = 0; i < task->n_examples; i++) {
        input = syi_task_input(task, i);
        for (slot = (size_t)hash_span(input) & mask; table[slot]; slot = (slot + 1) & mask) {
            other = syi_task_input(task, table[slot] - 1);
            if (other.bytes == input.bytes && memcmp(other.text, input.text, input.bytes) == 0) break;
        }
        if (table[slot] == 0) {
            table[slot] = i + 1;
            items->item_of[i] = items->n_items++;
        } else {
            items->item_of[i] = items->item_of[table[slot] - 1];
        }
    }
}

int syi_items_build(struct syi_items *items, const struct syi_task *task, struct sy_error *err)
{
    size_t n = (size_t)task->n_examples, slots = 16;
    int32_t *table = NULL, item;

    memset(items, 0, sizeof(*items));
    while (slots < 2 * n) slots *= 2;
    table = syi_alloc(slots * sizeof(*table), err);
    items->first = syi_alloc((n + 2) * sizeof(*items->first), err);
    items->examples = syi_alloc((n + 1) * sizeof(*items->examples), err);
    items->item_of = syi_alloc((n + 1) * sizeof(*items->item_of), err);
    if (!table || !items->first || !items->examples || !items->item_of) {
        syi_free(table);
        syi_items_free(items);
        return SY_ENOMEM;
    }
    number_inputs(items, task, table, slots - 1);
    syi_free(table);
    /* Counting sort: first[i + 1] holds where item i's next example goes, and so ends as where item i + 1
     * begins. */
    for (size_t i = 0; i < n; i++) items->first[items->item_of[i] + 2]++;
    for (item = 0; item < items->n_items; item++) items->first[item + 1] += items->first[item];
    for (size_t i = 0; i < n; i++) items->examples[items->first[items->item_of[i] + 1]++] = (int32_t)i;
    return SY_OK;
}

void syi_items_free(struct syi_items *items)
{
    syi_free(items->first);
    syi_free(items->examples);
    syi_free(items->item_of);
    memset(items, 0, sizeof(*items));
}
