/* SPDX-License-Identifier: Apache-2.0 */
/* See zip.h (format: APPNOTE.TXT of PKWARE, sections 4.3 and 4.5.3). */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "import/zip.h"

enum {
    END_BYTES = 22,     /* end of central directory */
    LOCATOR_BYTES = 20, /* of the zip64 one */
    END64_BYTES = 56,
    ENTRY_BYTES = 46, /* of the central directory, before the name */
    LOCAL_BYTES = 30, /* local header, before the name */
    COMMENT = 65535,
    MOST_DIRECTORY = 1 << 24
};

static uint64_t number(const char *at, int bytes)
{
    uint64_t n = 0;
    for (int i = 0; i < bytes; i++) n |= (uint64_t)(unsigned char)at[i] << 8 * i;
    return n;
}

static int malformed(const struct syi_stored_file *file, const char *why, struct sy_error *err)
{
    return syi_error(err, SY_EFORMAT, "%s: malformed zip: %s", file->path, why);
}

struct place {
    uint64_t entries, bytes, offset; /* of the central directory */
};

/* Where 32 bits do not hold them, the numbers stand in a record that a locator before the end points to. */
static int read_end64(const struct syi_stored_file *file, uint64_t end, struct place *place,
                      struct sy_error *err)
{
    char locator[LOCATOR_BYTES], record[END64_BYTES];
    if (end < LOCATOR_BYTES) return malformed(file, "no zip64 record", err);
    int status = syi_stored_bytes(file, end - LOCATOR_BYTES, locator, sizeof locator, err);
    if (!status && memcmp(locator, "PK\6\7", 4)) status = malformed(file, "no zip64 record", err);
    if (!status &&
        (number(locator + 8, 8) > file->bytes || file->bytes - number(locator + 8, 8) < END64_BYTES))
        status = malformed(file, "the zip64 record is outside the file", err);
    if (!status) status = syi_stored_bytes(file, number(locator + 8, 8), record, sizeof record, err);
    if (!status && memcmp(record, "PK\6\6", 4)) status = malformed(file, "no zip64 record", err);
    if (status) return status;
    *place = (struct place){number(record + 32, 8), number(record + 40, 8), number(record + 48, 8)};
    return SY_OK;
}

/* The record is the last thing in the file but for a comment. */
static int find_end(const struct syi_stored_file *file, struct place *place, struct sy_error *err)
{
    size_t n = file->bytes < END_BYTES + COMMENT ? (size_t)file->bytes : END_BYTES + COMMENT;
    char *tail = syi_alloc(n + 1, err);
    int status = tail ? syi_stored_bytes(file, file->bytes - n, tail, n, err) : SY_ENOMEM, found = 0;
    for (size_t i = n < END_BYTES ? 0 : n - END_BYTES + 1; !status && !found && i-- > 0;) {
        if (memcmp(tail + i, "PK\5\6", 4)) continue;
        found = 1;
        *place = (struct place){number(tail + i + 10, 2), number(tail + i + 12, 4), number(tail + i + 16, 4)};
        if (place->entries == 0xffff || place->bytes == 0xffffffff || place->offset == 0xffffffff)
            status = read_end64(file, file->bytes - n + i, place, err);
    }
    syi_free(tail);
    if (!status && !found) status = malformed(file, "it has no end: it is truncated", err);
    if (!status && (place->offset > file->bytes || place->bytes > file->bytes - place->offset))
        status = malformed(file, "its directory is outside the file", err);
    if (!status && place->bytes > MOST_DIRECTORY) status = malformed(file, "its directory is too large", err);
    return status;
}

/* Replaces those of the three numbers that 32 bits do not hold by the fields of the zip64 extra, in their order. */
static int read_extra64(const char *extra, size_t n, uint64_t *fields[3])
{
    for (size_t at = 0; at + 4 <= n;) {
        size_t id = (size_t)number(extra + at, 2), bytes = (size_t)number(extra + at + 2, 2);
        at += 4;
        if (bytes > n - at) return 0;
        for (size_t used = 0, i = 0; id == 1 && i < 3; i++) {
            if (*fields[i] != 0xffffffff) continue;
            if (used + 8 > bytes) return 0;
            *fields[i] = number(extra + at + used, 8);
            used += 8;
        }
        at += bytes;
    }
    return 1;
}

/* One entry of the directory; *at goes on to the next. */
static int read_entry(const struct syi_stored_file *file, struct syi_zip *zip, size_t bytes, size_t *at,
                      char **name, struct sy_error *err)
{
    const char *e = zip->directory + *at;
    if (bytes - *at < ENTRY_BYTES || memcmp(e, "PK\1\2", 4))
        return malformed(file, "an entry is damaged", err);
    size_t n_name = (size_t)number(e + 28, 2), n_extra = (size_t)number(e + 30, 2);
    size_t n_all = ENTRY_BYTES + n_name + n_extra + (size_t)number(e + 32, 2);
    uint64_t full = number(e + 24, 4), packed = number(e + 20, 4), header = number(e + 42, 4);
    uint64_t *fields[3] = {&full, &packed, &header};
    if (bytes - *at < n_all || memchr(e + ENTRY_BYTES, 0, n_name))
        return malformed(file, "an entry is damaged", err);
    if (!read_extra64(e + ENTRY_BYTES + n_name, n_extra, fields))
        return malformed(file, "an entry is damaged", err);
    if (number(e + 10, 2) || number(e + 8, 2) & 1 || full != packed)
        return syi_error(err, SY_EUNSUPPORTED,
                         "%s: an entry is compressed or encrypted: torch.save stores them", file->path);
    memcpy(*name, e + ENTRY_BYTES, n_name);
    zip->entry[zip->n++] = (struct syi_zip_entry){.name = *name, .bytes = full, .header = header};
    *name += n_name + 1; /* the memory is zeroed */
    *at += n_all;
    return SY_OK;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct syi_zip_entry *)a)->name, ((const struct syi_zip_entry *)b)->name);
}

int syi_zip_open(struct syi_zip *zip, const struct syi_stored_file *file, struct sy_error *err)
{
    struct place place = {0};
    memset(zip, 0, sizeof *zip);
    int status = find_end(file, &place, err);
    if (status) return status;
    if (place.entries > place.bytes / ENTRY_BYTES) return malformed(file, "more entries than fit", err);
    zip->directory = syi_alloc((size_t)place.bytes + 1, err);
    zip->names = syi_alloc((size_t)place.bytes + 1, err); /* an entry is longer than its name and a NUL */
    zip->entry = syi_alloc(((size_t)place.entries + 1) * sizeof *zip->entry, err);
    if (!zip->directory || !zip->names || !zip->entry) return SY_ENOMEM;
    status = syi_stored_bytes(file, place.offset, zip->directory, (size_t)place.bytes, err);
    char *name = zip->names;
    for (size_t i = 0, at = 0; i < place.entries && !status; i++)
        status = read_entry(file, zip, (size_t)place.bytes, &at, &name, err);
    if (zip->n) qsort(zip->entry, zip->n, sizeof *zip->entry, by_name);
    return status;
}

void syi_zip_close(struct syi_zip *zip)
{
    syi_free(zip->directory);
    syi_free(zip->names);
    syi_free(zip->entry);
    memset(zip, 0, sizeof *zip);
}

const struct syi_zip_entry *syi_zip_find(const struct syi_zip *zip, const char *name)
{
    const struct syi_zip_entry key = {.name = name};
    return zip->n ? bsearch(&key, zip->entry, zip->n, sizeof key, by_name) : NULL;
}

int syi_zip_data(const struct syi_stored_file *file, const struct syi_zip_entry *entry, uint64_t *offset,
                 struct sy_error *err)
{
    char local[LOCAL_BYTES];
    if (entry->header > file->bytes || file->bytes - entry->header < LOCAL_BYTES)
        return malformed(file, "an entry is outside the file", err);
    int status = syi_stored_bytes(file, entry->header, local, sizeof local, err);
    if (!status && memcmp(local, "PK\3\4", 4)) status = malformed(file, "an entry is damaged", err);
    if (status) return status;
    *offset = entry->header + LOCAL_BYTES + number(local + 26, 2) + number(local + 28, 2);
    if (*offset > file->bytes || entry->bytes > file->bytes - *offset)
        return malformed(file, "an entry is outside the file", err);
    return SY_OK;
}
