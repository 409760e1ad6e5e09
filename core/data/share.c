/* SPDX-License-Identifier: Apache-2.0 */
/* What ranks get of a dataset or a task, in the order in which it is sent. */
#include "config.h"

#include <string.h>
#include <unistd.h>

#include "data/dataset.h"
#include "data/task.h"

int syi_share_work(const struct syi_share *share, syi_work_fn fn, void *arg, struct sy_error *err)
{
    if (!share) return fn(arg, err);
    return share->first ? share->work(share->arg, fn, arg, err) : SY_OK;
}

/* *data: `bytes` of the first rank, taken by the others; one more byte, zero, follows. */
static int share_block(const struct syi_share *share, void **data, size_t bytes, struct sy_error *err)
{
    if (!share->first) {
        syi_free(*data);
        *data = syi_alloc(bytes + 1, err);
        if (!*data) return SY_ENOMEM;
    }
    return bytes ? share->bytes(share->arg, *data, bytes, err) : SY_OK;
}

/* *text NULL: there is none. */
static int share_text(const struct syi_share *share, char **text, struct sy_error *err)
{
    int64_t bytes = share->first && *text ? (int64_t)strlen(*text) : -1;
    int status = share->bytes(share->arg, &bytes, sizeof bytes, err);
    return status || bytes < 0 ? status : share_block(share, (void **)text, (size_t)bytes, err);
}

/* ---- the files of a source ---- */

/* For each file its numbers, then its path, that without links and where it is read, each with its NUL. */
static void write_files(const struct syi_source *source, struct syi_text *text)
{
    for (int i = 0; i < source->n; i++) {
        const struct syi_source_file *f = &source->file[i];
        const int64_t numbers[] = {f->bytes, f->modified, f->device, f->inode};
        syi_text_append(text, numbers, sizeof numbers);
        syi_text_append(text, f->path, strlen(f->path) + 1);
        syi_text_append(text, f->real, strlen(f->real) + 1);
        syi_text_append(text, f->readable, strlen(f->readable) + 1);
    }
}

static int read_files(struct syi_source *source, const char *at, struct sy_error *err)
{
    for (int i = 0; i < source->n; i++) {
        struct syi_source_file *f = &source->file[i];
        int64_t numbers[4];
        memcpy(numbers, at, sizeof numbers);
        f->bytes = numbers[0], f->modified = numbers[1], f->device = numbers[2], f->inode = numbers[3];
        at += sizeof numbers;
        f->path = syi_strdup(at, err);
        at += strlen(at) + 1;
        f->real = syi_strdup(at, err);
        at += strlen(at) + 1;
        f->readable = syi_strdup(at, err);
        at += strlen(at) + 1;
        if (!f->path || !f->real || !f->readable) return SY_ENOMEM;
    }
    return SY_OK;
}

static int share_source(struct syi_source *source, const struct syi_share *share, struct sy_error *err)
{
    struct syi_text text = {0};
    if (share->first) write_files(source, &text);
    int status = syi_text_status(&text, err);
    int64_t numbers[] = {source->n, (int64_t)text.length};
    if (!status) status = share->bytes(share->arg, numbers, sizeof numbers, err);
    if (!status && !share->first) source->file = syi_alloc((size_t)numbers[0] * sizeof *source->file, err);
    if (!status && !source->file) status = SY_ENOMEM;
    if (!status) status = share_block(share, (void **)&text.data, (size_t)numbers[1], err);
    if (!status && !share->first) {
        source->n = (int)numbers[0];
        status = read_files(source, text.data, err);
    }
    syi_text_free(&text);
    return status ? status : share_text(share, &source->pattern, err);
}

/* ---- a dataset ---- */

/* A small index leaves its file. */
static int hold_entries(struct syi_dataset *d, struct sy_error *err)
{
    size_t bytes = (size_t)d->counts.entries * sizeof *d->entry, got;
    if (d->entry || bytes > SYI_DATASET_SMALL) return SY_OK;
    struct syi_dataset_entry *entry = syi_alloc(bytes + 1, err);
    if (!entry) return SY_ENOMEM;
    int status = syi_read_at(d->index, d->index_path, d->index_begin, entry, bytes, &got, err);
    if (!status && got < bytes)
        status = syi_error(err, SY_EFORMAT, "%s is cut off: remove it from the data cache", d->index_path);
    if (status) {
        syi_free(entry);
        return status;
    }
    d->entry = entry;
    close(d->index);
    d->index = -1;
    return SY_OK;
}

int syi_dataset_share(struct syi_dataset *d, const struct syi_share *share, struct sy_error *err)
{
    struct {
        struct syi_dataset_counts counts;
        struct syi_file_id id;
        char made_from[65];
        int64_t held;
    } facts;
    memset(&facts, 0, sizeof facts);
    int status = share->first ? hold_entries(d, err) : SY_OK;
    if (status) return status;
    facts.counts = d->counts;
    facts.id = d->id;
    facts.held = d->entry != NULL;
    memcpy(facts.made_from, d->made_from, sizeof facts.made_from);
    status = share->bytes(share->arg, &facts, sizeof facts, err);
    if (status) return status;
    d->counts = facts.counts;
    d->id = facts.id;
    memcpy(d->made_from, facts.made_from, sizeof facts.made_from);
    status = share_source(&d->source, share, err);
    if (!status) status = share_block(share, (void **)&d->line_end, (size_t)d->source.n, err);
    if (status || !facts.held) return status ? status : share_text(share, &d->index_path, err);
    return share_block(share, (void **)&d->entry, (size_t)d->counts.entries * sizeof *d->entry, err);
}

/* ---- a task ---- */

int syi_task_share(struct syi_task *task, const struct syi_share *share, struct sy_error *err)
{
    struct {
        struct syi_file_id id;
        int64_t text, examples, lines;
    } facts;
    memset(&facts, 0, sizeof facts);
    facts.id = task->id;
    facts.text = (int64_t)task->text.length;
    facts.examples = task->n_examples;
    facts.lines = task->n_lines;
    int status = share->bytes(share->arg, &facts, sizeof facts, err);
    if (status) return status;
    task->id = facts.id;
    task->n_examples = (int32_t)facts.examples;
    task->n_lines = facts.lines;
    task->text.length = (size_t)facts.text;
    status = share_text(share, &task->path, err);
    if (!status) status = share_block(share, (void **)&task->text.data, task->text.length, err);
    if (status) return status;
    return share_block(share, (void **)&task->examples, (size_t)task->n_examples * sizeof *task->examples,
                       err);
}
