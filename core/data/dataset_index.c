/* SPDX-License-Identifier: Apache-2.0 */
/* The index of a dataset: made by one pass over its files, in memory or as a file of the data cache, which begins with a
 * header that says what it was made from. */
#include "config.h"

#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "data/batch.h" /* SYI_MAX_LENGTH */
#include "data/dataset.h"

enum { BUFFER_ENTRIES = 1 << 14, PART_BITS = 24 };
static const char magic[16] = "switchyard-idx3";

struct header {
    char magic[16];
    char made_from[65]; /* SHA-256 of all that the entries follow from */
    struct syi_file_id id;
    struct syi_dataset_counts counts;
};

/* ---- what it is made from ---- */

static int add_vocabulary(struct syi_text *text, const struct syi_vocabulary_part *part, struct sy_error *err)
{
    struct syi_file_id id = {0};
    char *content;
    size_t bytes;
    if (*part->file) {
        int status = syi_file_read(part->file, &content, &bytes, err);
        if (status) return status;
        id = syi_file_identify(content, bytes);
        syi_free(content);
    }
    syi_text_printf(text, "vocabulary %d %" PRId64 " %d %s\n", part->kind, part->extra_ids,
                    part->special_tokens, id.sha256);
    return SY_OK;
}

static int describe(const struct syi_dataset *d, char hex[65], struct sy_error *err)
{
    const struct syi_example_form *form = &d->form;
    const struct syi_task_part *task = form->task;
    struct syi_text text = {0};
    struct syi_sha256 hash;
    syi_text_printf(&text, "%s\n%s\n%s\n%d %d %d %d %d\n%a %a\n", form->format->name, task->inputs,
                    task->targets, task->objective, task->too_long, task->on_bad_record, form->max_input,
                    form->max_target, task->noise_density, task->mean_noise_span_length);
    int status = SY_OK;
    for (int target = 0; target < 2 && !status; target++)
        status = add_vocabulary(&text, syi_config_vocabulary(form->config, target), err);
    for (int i = 0; i < d->source.n; i++) {
        const struct syi_source_file *f = &d->source.file[i];
        syi_text_printf(&text, "%s\n%" PRId64 " %" PRId64 "\n", f->real, f->bytes, f->modified);
    }
    if (!status) status = syi_text_status(&text, err);
    syi_sha256_init(&hash);
    if (!status) syi_sha256_add(&hash, text.data, text.length);
    syi_sha256_hex(&hash, hex);
    syi_text_free(&text);
    return status;
}

/* ---- entries, in memory or on their way to the file ---- */

struct writer {
    struct syi_dataset *d;
    const struct syi_dataset_place *place;
    const char *made_from; /* of the file, as what it begins with */
    const char *path;      /* of the file being written, NULL: memory */
    int fd;
    struct syi_dataset_entry *buffer;
    size_t n; /* in buffer */
};

static int flush(struct writer *w, struct sy_error *err)
{
    int status = syi_write_all(w->fd, w->path, w->buffer, w->n * sizeof *w->buffer, err);
    w->n = 0;
    return status;
}

static int add_entry(struct writer *w, struct syi_dataset_entry entry, struct sy_error *err)
{
    struct syi_dataset *d = w->d;
    int64_t n = d->counts.entries++;
    if (w->path) {
        w->buffer[w->n++] = entry;
        return w->n == BUFFER_ENTRIES ? flush(w, err) : SY_OK;
    }
    int status = SYI_GROW(d->entry, d->capacity, (size_t)n + 1, err);
    if (!status) d->entry[n] = entry;
    return status;
}

/* ---- the pass over the files ---- */

static void quote(char *to, size_t bytes, struct syi_span text)
{
    snprintf(to, bytes, "%.*s", text.bytes < 40 ? (int)text.bytes : 40, text.text);
}

static int count_too_long(struct syi_dataset *d, size_t k, struct sy_error *err)
{
    struct syi_span text;
    if (d->counts.too_long++) return SY_OK;
    int status = syi_example_text(&d->maker, &d->form.inputs, k, &text, err);
    if (!status) quote(d->counts.first_too_long, sizeof d->counts.first_too_long, text);
    return status;
}

static int add_example(struct writer *w, int file, const struct syi_record *record, size_t k,
                       struct sy_error *err)
{
    struct syi_dataset *d = w->d;
    struct syi_example_size size;
    struct sy_error cause = {0};
    int fits;
    int status = syi_example_measure(&d->maker, &d->form, k, &size, &fits, &cause);
    if (status)
        return syi_error(err, status, "%s:%" PRId64 ": %s", d->source.file[file].path, record->line,
                         cause.text);
    if (d->form.piece && !fits) return SY_OK; /* the last token of a text */
    d->counts.examples++;
    if (!fits) status = count_too_long(d, k, err);
    if (status || (!fits && d->form.task->too_long != SYI_TOO_LONG_TRIM)) return status;
    return add_entry(w,
                     (struct syi_dataset_entry){(uint64_t)record->offset << 16 | (uint64_t)file,
                                                (uint64_t)size.input << 44 | (uint64_t)size.target << 24 | k},
                     err);
}

static int refuse(struct writer *w, int file, const struct syi_record *record, const char *why,
                  struct sy_error *err)
{
    struct syi_dataset *d = w->d;
    int skip = d->form.task->on_bad_record == SYI_BAD_RECORD_SKIP;
    return syi_record_refuse(record, d->source.file[file].path, why, skip, &d->counts.bad, err);
}

static int add_record(struct writer *w, int file, const struct syi_record *record, struct sy_error *err)
{
    struct syi_dataset *d = w->d;
    struct sy_error cause = {0};
    d->counts.records++;
    if ((int64_t)record->text.bytes > d->counts.longest) d->counts.longest = (int64_t)record->text.bytes;
    if (record->bad) return refuse(w, file, record, record->bad, err);
    int status = syi_example_begin(&d->maker, &d->form, record->text, &cause);
    if (status == SY_EFORMAT) return refuse(w, file, record, cause.text, err);
    if (!status && d->maker.n > 1 << PART_BITS)
        return refuse(w, file, record, "more than 16777216 examples in a record", err);
    if (status) return syi_error(err, status, "%s", cause.text);
    if (!syi_utf8_valid(record->text) && !d->counts.invalid++)
        snprintf(d->counts.first_invalid, sizeof d->counts.first_invalid, "%.160s:%" PRId64,
                 d->source.file[file].path, record->line);
    for (size_t k = 0; k < d->maker.n && !status; k++) status = add_example(w, file, record, k, err);
    return status;
}

static int scan_file(struct writer *w, int file, struct sy_error *err)
{
    struct syi_dataset *d = w->d;
    struct syi_scan scan;
    struct syi_record record;
    int status = syi_scan_open(&scan, d->source.file[file].readable, d->form.format, err);
    while (!status && !(status = syi_scan_next(&scan, &record, err)))
        status = add_record(w, file, &record, err);
    if (status == SY_ENOENT && !err->text[0]) status = SY_OK;
    if (!status) {
        d->line_end[file] = scan.line_end;
        d->id = syi_file_id_join(&d->id, &scan.id);
    }
    syi_scan_close(&scan);
    return status;
}

static int scan_files(struct writer *w, struct sy_error *err)
{
    struct syi_dataset *d = w->d;
    struct sy_error own = {0};
    int status = SY_OK;
    memset(&d->counts, 0, sizeof d->counts);
    memset(&d->id, 0, sizeof d->id);
    for (int i = 0; i < d->source.n && !status; i++) status = scan_file(w, i, &own);
    return status ? syi_error(err, status, "%s", own.text) : SY_OK;
}

/* ---- the file ---- */

static int64_t entries_begin(const struct syi_dataset *d)
{
    return (int64_t)sizeof(struct header) + d->source.n;
}

/* Header and line ends; the entries come after them. */
static int write_header(const struct writer *w, struct sy_error *err)
{
    struct syi_dataset *d = w->d;
    struct header h;
    memset(&h, 0, sizeof h);
    memcpy(h.magic, magic, sizeof magic);
    memcpy(h.made_from, w->made_from, sizeof h.made_from);
    h.id = d->id;
    h.counts = d->counts;
    if (lseek(w->fd, 0, SEEK_SET) < 0) return syi_error_system(err, "cannot write %s", w->path);
    int status = syi_write_all(w->fd, w->path, &h, sizeof h, err);
    return status ? status : syi_write_all(w->fd, w->path, d->line_end, (size_t)d->source.n, err);
}

static int write_index(void *arg, int fd, const char *name, struct sy_error *err)
{
    struct writer *w = arg;
    int status = SY_OK;
    w->fd = fd;
    w->path = name;
    if (lseek(fd, (off_t)entries_begin(w->d), SEEK_SET) < 0)
        status = syi_error_system(err, "cannot write %s", name);
    if (!status) status = scan_files(w, err);
    if (!status) status = flush(w, err);
    return status ? status : write_header(w, err);
}

/* Other processes may make the same file at the same time. */
static int make_file(struct syi_dataset *d, const struct syi_dataset_place *place, const char *path,
                     const char *made_from, struct sy_error *err)
{
    struct writer w = {.d = d, .place = place, .made_from = made_from};
    w.buffer = syi_alloc(BUFFER_ENTRIES * sizeof *w.buffer, err);
    if (!w.buffer) return SY_ENOMEM;
    int status = syi_file_make(path, write_index, &w, err);
    syi_free(w.buffer);
    return status;
}

/* Whether a text ends within its bytes. */
static int ends(const char *text, size_t bytes)
{
    return memchr(text, '\0', bytes) != NULL;
}

/* 1: the file is there, whole and made from what is there now; its descriptor and counts are the dataset's then. */
static int open_file(struct syi_dataset *d, const char *path, const char *made_from)
{
    struct header h;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return 0;
    int64_t begin = entries_begin(d);
    off_t end = lseek(fd, 0, SEEK_END);
    int good = pread(fd, &h, sizeof h, 0) == (ssize_t)sizeof h && !memcmp(h.magic, magic, sizeof magic) &&
               !memcmp(h.made_from, made_from, sizeof h.made_from) &&
               (end - begin) % (int64_t)sizeof(struct syi_dataset_entry) == 0 &&
               h.counts.entries == (end - begin) / (int64_t)sizeof(struct syi_dataset_entry) &&
               ends(h.counts.first_too_long, sizeof h.counts.first_too_long) &&
               ends(h.counts.first_invalid, sizeof h.counts.first_invalid) &&
               ends(h.counts.bad.first, sizeof h.counts.bad.first) &&
               pread(fd, d->line_end, (size_t)d->source.n, (off_t)sizeof h) == (ssize_t)d->source.n;
    if (!good) {
        close(fd);
        return 0;
    }
    d->index = fd;
    d->index_begin = begin;
    d->id = h.id;
    d->counts = h.counts;
    return 1;
}

static int use_file(struct syi_dataset *d, const struct syi_dataset_place *place, struct sy_error *err)
{
    char made_from[65];
    int status = describe(d, made_from, err);
    if (status) return status;
    char *path = syi_format("%s/%s-%.16s.index", place->cache, d->form.task->name_of_part, made_from);
    if (!path) return syi_error(err, SY_ENOMEM, "out of memory");
    const char *name = strrchr(path, '/') + 1;
    syi_source_remove_stale(place->cache, name, strlen(name)); /* what a killed process left */
    if (!open_file(d, path, made_from)) {
        status = syi_make_folders(place->cache, err);
        if (!status) status = make_file(d, place, path, made_from, err);
        if (!status && !open_file(d, path, made_from))
            status = syi_error(err, SY_EIO, "%s cannot be read after it was written", path);
    }
    d->index_path = path;
    memcpy(d->made_from, made_from, sizeof made_from);
    return status;
}

int syi_dataset_open_index(struct syi_dataset *d, struct sy_error *err)
{
    if (d->entry) return SY_OK;
    if (d->index >= 0) close(d->index);
    d->index = -1;
    if (open_file(d, d->index_path, d->made_from)) return SY_OK;
    return syi_error(err, SY_ENOENT,
                     "%s: rank 0 made this index, and it is not there: the data cache has to be on a file "
                     "system that all hosts share",
                     d->index_path);
}

/* ---- the whole ---- */

static int is_small(const struct syi_source *source)
{
    int64_t bytes = 0;
    for (int i = 0; i < source->n; i++) {
        if (source->file[i].path != source->file[i].readable &&
            strcmp(source->file[i].path, source->file[i].readable))
            return 0; /* unpacked: larger than it looks */
        bytes += source->file[i].bytes;
    }
    return bytes <= SYI_DATASET_SMALL;
}

int syi_dataset_index(struct syi_dataset *d, const struct syi_dataset_place *place, struct sy_error *err)
{
    struct writer w = {.d = d, .place = place};
    d->line_end = syi_alloc((size_t)d->source.n + 1, err);
    if (!d->line_end) return SY_ENOMEM;
    if (place->cache && !is_small(&d->source)) return use_file(d, place, err);
    return scan_files(&w, err);
}
