/* SPDX-License-Identifier: Apache-2.0 */
/* The entries of a zip file, from its central directory; those that are compressed or encrypted are refused. Zip64 too. */
#ifndef SYI_ZIP_H
#define SYI_ZIP_H

#include "import/stored.h"

struct syi_zip_entry {
    const char *name;       /* borrowed from the struct below */
    uint64_t bytes, header; /* of its data; where its local header is */
};

struct syi_zip {
    struct syi_zip_entry *entry; /* [n] in the order of their names */
    size_t n;
    char *directory, *names; /* the central directory as it stands, and names with a NUL each */
};

int syi_zip_open(struct syi_zip *zip, const struct syi_stored_file *file,
                 struct sy_error *err) SYI_MUST_CHECK;
void syi_zip_close(struct syi_zip *zip); /* safe when zeroed, and after a failed open */
/* NULL: there is none. */
const struct syi_zip_entry *syi_zip_find(const struct syi_zip *zip, const char *name);
/* *offset of the entry's data in the file, which holds all of it. */
int syi_zip_data(const struct syi_stored_file *file, const struct syi_zip_entry *entry, uint64_t *offset,
                 struct sy_error *err) SYI_MUST_CHECK;

#endif
