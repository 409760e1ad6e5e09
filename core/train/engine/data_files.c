/* SPDX-License-Identifier: Apache-2.0 */
/* The first rank of each node looks at the files, and copies them where that is asked for; the others wait. */
#include "config.h"

#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

#include "train/engine/data_files.h"

int syi_data_files_open(struct syi_data_files *files, const struct syi_rank *rank, const char *stage,
                        struct sy_error *err)
{
    memset(files, 0, sizeof *files);
    files->rank = rank;
    int status = *stage ? syi_staging_open(&files->stage, stage, err) : SY_OK;
    files->stage.poll = syi_busy_tell;
    files->stage.arg = &files->busy;
    return status;
}

void syi_data_files_close(struct syi_data_files *files)
{
    syi_staging_close(&files->stage);
}

/* ---- the same files? ---- */

/* As rank 0 found them: one file system, and no byte is read. */
static int is_same(const struct syi_source *source)
{
    for (int i = 0; i < source->n; i++) {
        const struct syi_source_file *f = &source->file[i];
        struct stat info;
        if (stat(f->readable, &info) != 0) return 0;
        int unpacked = strcmp(f->path, f->readable) != 0; /* its name says what it was made from */
        if (!unpacked && (info.st_size != f->bytes || syi_modified(&info) != f->modified ||
                          (int64_t)info.st_ino != f->inode))
            return 0;
    }
    return 1;
}

static int identify(const struct syi_dataset *d, int file, struct syi_busy *busy, struct syi_file_id *id,
                    struct sy_error *err)
{
    struct syi_scan scan;
    struct syi_record record;
    int status = syi_scan_open(&scan, d->source.file[file].readable, d->form.format, err);
    while (!status && !(status = syi_scan_next(&scan, &record, err))) status = syi_busy_tell(busy, err);
    if (status == SY_ENOENT && !err->text[0]) status = SY_OK;
    if (!status) *id = syi_file_id_join(id, &scan.id);
    syi_scan_close(&scan);
    return status;
}

/* A host may have files of its own, as long as they hold the same. */
static int check(struct syi_data_files *files, const struct syi_dataset *d, struct sy_error *err)
{
    struct syi_file_id id = {0};
    struct sy_error why = {0};
    int status = SY_OK;
    if (is_same(&d->source)) return SY_OK;
    for (int i = 0; i < d->source.n && !status; i++) status = identify(d, i, &files->busy, &id, &why);
    if (status) return syi_error(err, status, "rank %d: %s", files->rank->rank, why.text);
    if (!strcmp(id.sha256, d->id.sha256)) return SY_OK;
    return syi_error(
        err, SY_EMISMATCH,
        "rank %d reads another %s than rank 0: all hosts need the same file, best on a file system "
        "that they share",
        files->rank->rank, d->source.pattern);
}

/* ---- the whole ---- */

int syi_data_files_settle(void *arg, struct syi_dataset *d, struct sy_error *err)
{
    struct syi_data_files *files = arg;
    const struct syi_rank *rank = files->rank;
    int status = SY_OK, first = rank->node.place == 0;
    files->busy = syi_busy_begin(rank->comm);
    if (first && rank->rank) status = check(files, d, err);
    if (!status && first && files->stage.folder) status = syi_staging_copy(&files->stage, d, err);
    if (!status) status = syi_busy_end(&files->busy, err);
    return !status && files->stage.folder ? syi_staging_use(&files->stage, d, err) : status;
}

int syi_data_files_sharers(const struct syi_rank *rank)
{
    return strcmp(rank->comm_name, "mpi") ? rank->ranks : 1;
}

struct copied {
    double seconds;
    int64_t files, bytes, there;
};

int syi_data_files_report(struct syi_data_files *files, struct sy_error *err)
{
    const struct syi_staging *s = &files->stage;
    const struct copied mine = {s->seconds, s->files, s->bytes, s->there};
    struct copied all = {0}, *each;
    int ranks = files->rank->ranks;
    if (!s->folder) return SY_OK;
    each = syi_alloc((size_t)ranks * sizeof *each, err);
    int status = each ? syi_comm_gather(files->rank->comm, &mine, sizeof mine, each, err) : SY_ENOMEM;
    for (int i = 0; i < ranks && !status; i++) {
        all.files += each[i].files;
        all.bytes += each[i].bytes;
        all.there += each[i].there;
        if (each[i].seconds > all.seconds) all.seconds = each[i].seconds;
    }
    syi_free(each);
    if (!status)
        snprintf(files->report, sizeof files->report,
                 "data.stage: %" PRId64 " file%s of %.1f MiB copied to %d node%s in %.2f s, %" PRId64
                 " had been there before",
                 all.files, all.files == 1 ? "" : "s", (double)all.bytes / (1 << 20), files->rank->node.nodes,
                 files->rank->node.nodes == 1 ? "" : "s", all.seconds, all.there);
    return status;
}
