/* SPDX-License-Identifier: Apache-2.0 */
/* Opens a dataset and reads single examples of it. The index is dataset_index.c's. */
#include "config.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "data/batch.h" /* SYI_MAX_LENGTH */
#include "data/dataset.h"

/* ---- opening ---- */

/* Running text that is cut shorter than inputs may be, since targets have less room. */
static void report_room(const struct syi_dataset *d)
{
    const struct syi_example_form *form = &d->form;
    int32_t input = form->piece, target = form->max_input, tokens;
    if (!form->piece || d->counts.longest <= form->piece) return; /* no text has more tokens than bytes */
    if (form->task->objective == SYI_OBJECTIVE_SPAN_CORRUPTION) {
        syi_example_lengths(form, (struct syi_example_size){form->piece, 0}, 0, &input, &target);
        if (syi_span_lengths(&form->shape, form->max_input, &tokens, &target, NULL)) return;
    }
    if (input >= form->max_input - form->max_input / 10 || target <= form->max_target) return;
    syi_log(SY_LOG_WARN,
            "task.%s: inputs have at most %d of data.max_input_length = %d tokens, for longer pieces of text "
            "have targets over data.max_target_length = %d: set that to %d, or data.max_input_length lower",
            form->task->name_of_part, input, form->max_input, form->max_target, target);
}

static void report(const struct syi_dataset *d)
{
    const struct syi_dataset_counts *c = &d->counts;
    const struct syi_example_form *form = &d->form;

    if (c->invalid)
        syi_log(SY_LOG_WARN, "%s: not valid UTF-8 (%lld of %lld records); the bytes are used as they are",
                c->first_invalid, (long long)c->invalid, (long long)c->records);
    report_room(d);
    syi_bad_records_warn(&c->bad);
    if (c->too_long)
        syi_log(SY_LOG_WARN, "%s: %lld of %lld examples are longer than %d x %d tokens and %s, first \"%s\"",
                d->source.pattern, (long long)c->too_long, (long long)c->examples, form->max_input,
                form->max_target, form->task->too_long == SYI_TOO_LONG_TRIM ? "cut" : "left out",
                c->first_too_long);
}

static int check_entries(const struct syi_dataset *d, struct sy_error *err)
{
    const struct syi_dataset_counts *c = &d->counts;
    if (c->entries) return SY_OK;
    if (!c->records)
        return syi_error(err, SY_EFORMAT, "%s:1: the file is empty; %s", d->source.pattern,
                         d->form.format->holds);
    if (c->bad.n == c->records)
        return syi_error(err, SY_EFORMAT, "%s: all records are skipped, none is left; the first: %s",
                         d->source.pattern, c->bad.first);
    if (!c->examples)
        return syi_error(err, SY_EFORMAT,
                         "%s: no record has two tokens of text, the fewest that can be cut in two; is "
                         "task.%s.inputs the right field, and [vocabulary] that of this text?",
                         d->source.pattern, d->form.task->name_of_part);
    return syi_error(
        err, SY_EINVAL,
        "%s: no example fits %d x %d tokens; raise data.max_input_length and data.max_target_length",
        d->source.pattern, d->form.max_input, d->form.max_target);
}

struct reading {
    struct syi_dataset *d;
    const char *pattern;
    const struct syi_dataset_place *place;
};

static int read_files(void *arg, struct sy_error *err)
{
    const struct reading *reading = arg;
    const struct syi_dataset_place *place = reading->place;
    struct syi_dataset *d = reading->d;
    int status = syi_source_open(&d->source, reading->pattern, place->cache, err);
    if (!status) status = syi_dataset_index(d, place, err);
    if (!status) status = check_entries(d, err);
    if (!status && !place->quiet) report(d);
    return status;
}

int syi_dataset_open(struct syi_dataset *d, const struct syi_example_form *form, const char *pattern,
                     const struct syi_dataset_place *place, struct sy_error *err)
{
    memset(d, 0, sizeof *d);
    d->form = *form;
    d->index = -1;
    d->most_open = SYI_DATASET_OPEN / (place->sharers ? place->sharers : 1);
    if (!d->most_open) d->most_open = 1;
    for (int i = 0; i < SYI_DATASET_OPEN; i++) d->file[i] = d->opened[i] = -1;
    struct reading reading = {d, pattern, place};
    int status = syi_share_work(place->share, read_files, &reading, err);
    if (!status && place->share) status = syi_dataset_share(d, place->share, err);
    if (!status && place->settle) status = place->settle(place->settle_arg, d, err);
    if (!status && (place->share || place->settle)) status = syi_dataset_open_index(d, err);
    if (status) syi_dataset_close(d);
    return status;
}

void syi_dataset_close(struct syi_dataset *d)
{
    if (!d->form.format) return; /* zeroed: its descriptors are none */
    for (int i = 0; i < SYI_DATASET_OPEN; i++)
        if (d->file[i] >= 0) close(d->file[i]);
    if (d->index >= 0) close(d->index);
    syi_example_maker_free(&d->maker);
    syi_source_close(&d->source);
    syi_free(d->entry);
    syi_free(d->line_end);
    syi_free(d->index_path);
    syi_free(d->buffer);
    memset(d, 0, sizeof *d);
}

/* ---- reading ---- */

/* A file that there is, and lengths that rows have room for: all that reads an entry counts on it. */
static int is_whole(const struct syi_dataset *d, const struct syi_dataset_entry *entry)
{
    const struct syi_example_size size = syi_dataset_size(entry);
    const int32_t input = d->form.piece ? d->form.piece : d->form.max_input,
                  target = d->form.piece ? 0 : d->form.max_target;
    return (int64_t)(entry->place & 0xffff) < d->source.n && size.input <= input && size.target <= target;
}

int syi_dataset_entry(const struct syi_dataset *d, int64_t i, struct syi_dataset_entry *entry,
                      struct sy_error *err)
{
    int64_t at = d->index_begin + i * (int64_t)sizeof *entry;
    size_t got = sizeof *entry;
    if (d->entry)
        *entry = d->entry[i];
    else if (syi_read_at(d->index, "", at, entry, sizeof *entry, &got, NULL))
        return syi_error_system(err, "cannot read the index of %s", d->source.pattern);
    if (got == sizeof *entry && is_whole(d, entry)) return SY_OK;
    return syi_error(err, SY_EFORMAT, "the index of %s is %s: remove %s", d->source.pattern,
                     got == sizeof *entry ? "damaged" : "cut off",
                     d->index_path ? d->index_path : "it from the data cache");
}

struct syi_example_size syi_dataset_size(const struct syi_dataset_entry *entry)
{
    return (struct syi_example_size){(int32_t)(entry->sizes >> 44),
                                     (int32_t)(entry->sizes >> 24 & SYI_MAX_LENGTH)};
}

/* The descriptor of a file; one that was opened long ago may be closed for it. */
static int descriptor(struct syi_dataset *d, int file, int *fd, struct sy_error *err)
{
    int slot = file % d->most_open;
    if (d->opened[slot] != file) {
        if (d->file[slot] >= 0) close(d->file[slot]);
        d->opened[slot] = -1;
        d->file[slot] = open(d->source.file[file].readable, O_RDONLY | O_CLOEXEC);
        if (d->file[slot] < 0) return syi_error_system(err, "cannot open %s", d->source.file[file].readable);
        d->opened[slot] = file;
    }
    *fd = d->file[slot];
    return SY_OK;
}

static int changed(const struct syi_dataset *d, const char *path, int64_t offset, const char *cause,
                   struct sy_error *err)
{
    return syi_error(
        err, SY_EFORMAT,
        "%s has changed since its index was made: the example at byte %lld is another one%s%s; put "
        "the old contents back, or %s%s%sstart again",
        path, (long long)offset, *cause ? ": " : "", cause, d->index_path ? "remove the index " : "",
        d->index_path ? d->index_path : "", d->index_path ? " and " : "");
}

int syi_dataset_read(struct syi_dataset *d, const struct syi_dataset_entry *entry, uint64_t key,
                     struct syi_ids *inputs, struct syi_ids *targets, struct sy_error *err)
{
    int number = (int)(entry->place & 0xffff), fd = -1;
    int64_t offset = (int64_t)(entry->place >> 16);
    size_t k = (size_t)(entry->sizes & 0xffffff);
    const struct syi_source_file *file = &d->source.file[number];
    struct sy_error cause = {0};
    struct syi_span record;
    int32_t input, target;

    int status = descriptor(d, number, &fd, err);
    if (!status)
        status = syi_record_read(fd, file->path, d->form.format, d->line_end[number], offset, &d->buffer,
                                 &d->buffer_bytes, &record, err);
    if (status) return status;
    status = syi_example_begin(&d->maker, &d->form, record, &cause);
    if (!status && k >= d->maker.n) status = SY_EFORMAT;
    if (!status) status = syi_example_make(&d->maker, &d->form, k, key, inputs, targets, &cause);
    if (status == SY_EFORMAT) return changed(d, file->path, offset, cause.text, err);
    if (status) return syi_error(err, status, "%s", cause.text);
    syi_example_lengths(&d->form, syi_dataset_size(entry), key, &input, &target);
    if (inputs->n != (size_t)input || targets->n != (size_t)target)
        return changed(d, file->path, offset, "", err);
    return SY_OK;
}
