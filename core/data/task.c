/* SPDX-License-Identifier: Apache-2.0 */
/* Loads a TSV file into offsets and groups its lines by input. Token ids are made later, by batch.c. */
#include "config.h"

#include <string.h>

#include "base/text.h" /* syi_utf8_mark */
#include "data/task.h"

static size_t count_byte(const char *text, size_t bytes, char byte)
{
    size_t n = 0;
    for (size_t i = 0; i < bytes; i++) n += text[i] == byte;
    return n;
}

static int field_error(const struct syi_task *task, int field, struct sy_error *err)
{
    return syi_error(err, SY_EFORMAT,
                     "%s:%d: %s is empty; write `input TAB target`, or remove the line or the tab",
                     task->path, task->n_lines,
                     field == 0   ? "the input"
                     : field == 1 ? "the target"
                                  : "a further target");
}

/* One line without its end: field 0 is the input, each further field a target, so an example. */
static int add_line(struct syi_task *task, size_t start, size_t end, struct sy_error *err)
{
    const char *tab = memchr(task->text + start, '\t', end - start);
    size_t input_end, from, to;

    if (end - start > INT32_MAX)
        return syi_error(err, SY_EFORMAT, "%s:%d: line of %zu bytes; at most 2 GiB are possible", task->path,
                         task->n_lines, end - start);
    if (memchr(task->text + start, '\0', end - start))
        return syi_error(err, SY_EFORMAT,
                         "%s:%d: NUL byte; is this a text file? UTF-16 must be converted to UTF-8",
                         task->path, task->n_lines);
    if (!tab)
        return syi_error(err, SY_EFORMAT, "%s:%d: no tab in this line; each line is `input TAB target`",
                         task->path, task->n_lines);
    input_end = (size_t)(tab - task->text);
    if (input_end == start) return field_error(task, 0, err);
    for (from = input_end + 1; from <= end; from = to + 1) {
        tab = memchr(task->text + from, '\t', end - from);
        to = tab ? (size_t)(tab - task->text) : end;
        if (to == from) return field_error(task, from == input_end + 1 ? 1 : 2, err);
        task->examples[task->n_examples++] =
            (struct syi_example){.input = start,
                                 .target = from,
                                 .input_bytes = (uint32_t)(input_end - start),
                                 .target_bytes = (uint32_t)(to - from)};
    }
    return SY_OK;
}

static void report_invalid(const struct syi_task *task, int32_t n_invalid, int32_t first_invalid)
{
    if (n_invalid > 0)
        syi_log(SY_LOG_WARN, "%s:%d: not valid UTF-8 (%d of %d lines); the bytes are used as they are",
                task->path, first_invalid, n_invalid, task->n_lines);
}

/* What ends lines: a line feed, after a carriage return or not; in files without one the carriage return. */
static char line_end(const char *text, size_t bytes)
{
    return memchr(text, '\n', bytes) ? '\n' : '\r';
}

static int add_lines(struct syi_task *task, size_t bytes, struct sy_error *err)
{
    int32_t n_invalid = 0, first_invalid = 0;
    const char *found, stop = line_end(task->text, bytes);
    size_t start = syi_utf8_mark(task->text, bytes), end, next;
    int status;

    for (; start < bytes; start = next) {
        found = memchr(task->text + start, stop, bytes - start);
        end = found ? (size_t)(found - task->text) : bytes;
        next = end + 1;
        task->n_lines++;
        if (end > start && task->text[end - 1] == '\r') end--;
        status = add_line(task, start, end, err);
        if (status) return status;
        if (!syi_utf8_valid((struct syi_span){task->text + start, end - start}) && n_invalid++ == 0)
            first_invalid = task->n_lines;
    }
    report_invalid(task, n_invalid, first_invalid);
    return SY_OK;
}

int syi_task_load(struct syi_task *task, const char *path, struct sy_error *err)
{
    size_t bytes, n_tabs;
    int status;

    memset(task, 0, sizeof(*task));
    status = syi_file_read(path, &task->text, &bytes, err);
    if (status) return status;
    task->id = syi_file_identify(task->text, bytes);
    status = SY_ENOMEM;
    task->path = syi_strdup(path, err);
    if (!task->path) goto fail;
    if (bytes == syi_utf8_mark(task->text, bytes)) {
        status = syi_error(err, SY_EFORMAT, "%s:1: the file is empty; each line is `input TAB target`", path);
        goto fail;
    }
    n_tabs = count_byte(task->text, bytes, '\t'); /* every tab begins a target, so an example */
    if (n_tabs > INT32_MAX - 1 ||
        count_byte(task->text, bytes, line_end(task->text, bytes)) > INT32_MAX - 1) {
        status =
            syi_error(err, SY_EFORMAT, "%s: %zu examples; at most 2147483646 fit one file", path, n_tabs);
        goto fail;
    }
    task->examples = syi_alloc((n_tabs + 1) * sizeof(*task->examples), err);
    if (!task->examples) goto fail;
    status = add_lines(task, bytes, err);
    if (status) goto fail;
    return SY_OK;
fail:
    syi_task_free(task);
    return status;
}

void syi_task_free(struct syi_task *task)
{
    syi_free(task->path);
    syi_free(task->text);
    syi_free(task->examples);
    memset(task, 0, sizeof(*task));
}

struct syi_span syi_task_input(const struct syi_task *task, int32_t example)
{
    const struct syi_example *e = &task->examples[example];
    return (struct syi_span){task->text + e->input, e->input_bytes};
}

struct syi_span syi_task_target(const struct syi_task *task, int32_t example)
{
    const struct syi_example *e = &task->examples[example];
    return (struct syi_span){task->text + e->target, e->target_bytes};
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
        for (slot = hash_span(input) & mask; table[slot]; slot = (slot + 1) & mask) {
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
