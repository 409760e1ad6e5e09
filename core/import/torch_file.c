/* SPDX-License-Identifier: Apache-2.0 */
/* Files that torch.save wrote: a zip of stored entries, one pickle and one entry a storage, or, before version 1.6, five
 * pickles in a row and the storages after them. Nothing in such a file is run: pickle.h. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "import/pickle.h"
#include "import/stored.h"
#include "import/zip.h"

enum { MOST_PICKLE = 1 << 24 }; /* bytes of all pickles of a file */

/* Where a storage's elements are: by its key. */
typedef int (*find_storage_fn)(void *arg, const struct syi_pickle_tensor *tensor, uint64_t *offset,
                               struct sy_error *err);

/* ---- the dictionary of tensors ---- */

static int add_tensor(struct syi_stored *stored, const char *name, size_t n_name,
                      const struct syi_pickle_tensor *from, uint64_t storage, struct sy_error *err)
{
    struct syi_stored_tensor to = {
        .dtype = from->dtype, .rank = from->rank, .file = (int)stored->n_files - 1, .offset = storage};
    to.offset += (uint64_t)from->offset * syi_safetensors_element_bytes(from->dtype);
    memcpy(to.dims, from->dims, sizeof to.dims);
    memcpy(to.stride, from->stride, sizeof to.stride);
    if (memchr(name, 0, n_name))
        return syi_error(err, SY_EFORMAT, "%s: the name of a tensor has a NUL in it",
                         stored->file[to.file].path);
    to.name = syi_format("%.*s", (int)n_name, name);
    return to.name ? syi_stored_add(stored, &to, err) : syi_error(err, SY_ENOMEM, "out of memory");
}

static int add_tensors(struct syi_stored *stored, const struct syi_pickle *p, find_storage_fn find, void *arg,
                       struct sy_error *err)
{
    const struct syi_pickle_value *root = &p->value[p->root];
    if (root->kind != SYI_PICKLE_DICT)
        return syi_error(err, SY_EFORMAT, "%s holds no dictionary of weights", p->what);
    int status = SY_OK;
    for (uint32_t cell = root->first; cell && !status; cell = p->cell[p->cell[cell].next].next) {
        struct syi_pickle_tensor tensor;
        size_t n;
        uint64_t storage = 0;
        const char *name = syi_pickle_text(p, p->cell[cell].value, &n);
        if (!name) return syi_error(err, SY_EFORMAT, "%s: a key of its dictionary is no text", p->what);
        status = syi_pickle_tensor(p, p->cell[p->cell[cell].next].value, &tensor, err);
        if (!status) status = find(arg, &tensor, &storage, err);
        if (!status) status = add_tensor(stored, name, n, &tensor, storage, err);
    }
    return status;
}

static uint64_t storage_bytes(const struct syi_pickle_tensor *t)
{
    return syi_mul_u64((uint64_t)t->count, syi_safetensors_element_bytes(t->dtype));
}

/* ---- zip ---- */

struct archive {
    const struct syi_stored_file *file;
    struct syi_zip zip;
    const struct syi_zip_entry *pickle; /* PREFIX/data.pkl */
    int prefix;                         /* bytes of PREFIX/ */
};

static int find_in_zip(void *arg, const struct syi_pickle_tensor *t, uint64_t *offset, struct sy_error *err)
{
    struct archive *a = arg;
    char name[512];
    int length = snprintf(name, sizeof name, "%.*sdata/%.*s", a->prefix, a->pickle->name,
                          (int)(t->n_key < 400 ? t->n_key : 400), t->key);
    const struct syi_zip_entry *entry =
        length > 0 && (size_t)length < sizeof name ? syi_zip_find(&a->zip, name) : NULL;
    if (!entry) return syi_error(err, SY_EFORMAT, "%s: storage %s is missing", a->file->path, name);
    if (entry->bytes < storage_bytes(t))
        return syi_error(err, SY_EFORMAT, "%s: storage %s is smaller than its tensors", a->file->path, name);
    return syi_zip_data(a->file, entry, offset, err);
}

/* The entry whose name ends in /data.pkl. */
static int find_pickle(struct archive *a, struct sy_error *err)
{
    static const char end[] = "/data.pkl";
    for (size_t i = 0; i < a->zip.n; i++) {
        const struct syi_zip_entry *entry = &a->zip.entry[i];
        if (!syi_ends_with(entry->name, end)) continue;
        a->pickle = entry;
        a->prefix = (int)(strlen(entry->name) - strlen(end) + 1);
        return a->prefix < 100 ? SY_OK : syi_error(err, SY_EFORMAT, "%s: names are too long", a->file->path);
    }
    return syi_error(err, SY_EFORMAT, "%s: a zip without data.pkl: torch.save did not write it",
                     a->file->path);
}

/* Bytes of an entry, owned by the caller. */
static int read_entry(const struct archive *a, const struct syi_zip_entry *entry, char **bytes,
                      struct sy_error *err)
{
    uint64_t offset;
    *bytes = NULL;
    if (entry->bytes > MOST_PICKLE)
        return syi_error(err, SY_EUNSUPPORTED, "%s: %s is larger than %d bytes", a->file->path, entry->name,
                         MOST_PICKLE);
    int status = syi_zip_data(a->file, entry, &offset, err);
    if (status) return status;
    *bytes = syi_alloc((size_t)entry->bytes + 1, err);
    if (!*bytes) return SY_ENOMEM;
    return syi_stored_bytes(a->file, offset, *bytes, (size_t)entry->bytes, err);
}

static int check_byte_order(const struct archive *a, struct sy_error *err)
{
    char name[128], *order;
    snprintf(name, sizeof name, "%.*sbyteorder", a->prefix, a->pickle->name);
    const struct syi_zip_entry *entry = syi_zip_find(&a->zip, name);
    if (!entry) return SY_OK; /* older files are of this order */
    int status = read_entry(a, entry, &order, err);
    if (!status && strcmp(order, "little"))
        status = syi_error(err, SY_EUNSUPPORTED, "%s: its numbers are not little-endian", a->file->path);
    syi_free(order);
    return status;
}

static int add_zip(struct syi_stored *stored, struct archive *a, struct sy_error *err)
{
    struct syi_pickle pickle = {0};
    char *bytes = NULL;
    int status = find_pickle(a, err);
    if (!status) status = check_byte_order(a, err);
    if (!status) status = read_entry(a, a->pickle, &bytes, err);
    if (!status) status = syi_pickle_read(&pickle, a->file->path, bytes, (size_t)a->pickle->bytes, err);
    if (!status) status = add_tensors(stored, &pickle, find_in_zip, a, err);
    syi_pickle_free(&pickle);
    syi_free(bytes);
    return status;
}

/* ---- five pickles ---- */

static const unsigned char magic[] = {0x80, 2,    0x8a, 10,   0x6c, 0xfc, 0x9c, 0x46,
                                      0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19, '.'};

struct storage {
    struct syi_pickle_tensor is; /* key, dtype and count */
    uint64_t offset;             /* of its elements in the file; 0: not in the list of keys */
};

struct row {
    const struct syi_stored_file *file;
    struct syi_pickle weights, keys;
    struct storage *storage; /* [n] by key, those that tensors have */
    size_t n;
};

static int by_key(const void *a, const void *b)
{
    const struct syi_pickle_tensor *x = &((const struct storage *)a)->is,
                                   *y = &((const struct storage *)b)->is;
    int order = memcmp(x->key, y->key, x->n_key < y->n_key ? x->n_key : y->n_key);
    return order ? order : (x->n_key > y->n_key) - (x->n_key < y->n_key);
}

static struct storage *find_storage(const struct row *r, const char *key, size_t n)
{
    const struct storage wanted = {.is = {.key = key, .n_key = n}};
    return r->n ? bsearch(&wanted, r->storage, r->n, sizeof wanted, by_key) : NULL;
}

static int find_in_row(void *arg, const struct syi_pickle_tensor *t, uint64_t *offset, struct sy_error *err)
{
    const struct row *r = arg;
    const struct storage *storage = find_storage(r, t->key, t->n_key);
    if (!storage || !storage->offset)
        return syi_error(err, SY_EFORMAT, "%s: a storage is missing in its list of keys", r->file->path);
    *offset = storage->offset;
    return SY_OK;
}

/* The storages that the weights name, each once. */
static int list_storages(struct row *r, struct sy_error *err)
{
    const struct syi_pickle *p = &r->weights;
    size_t kept = 0;
    for (size_t i = 0; i < p->n_values; i++) r->n += p->value[i].kind == SYI_PICKLE_STORAGE;
    r->storage = syi_alloc((r->n + 1) * sizeof *r->storage, err);
    if (!r->storage) return SY_ENOMEM;
    r->n = 0;
    for (uint32_t i = 0; i < p->n_values; i++) {
        if (p->value[i].kind != SYI_PICKLE_STORAGE) continue;
        int status = syi_pickle_storage(p, i, &r->storage[r->n++].is, err);
        if (status) return status;
    }
    if (r->n) qsort(r->storage, r->n, sizeof *r->storage, by_key);
    for (size_t i = 0; i < r->n; i++) {
        const struct storage *last = kept ? &r->storage[kept - 1] : NULL;
        if (!last || by_key(last, &r->storage[i]))
            r->storage[kept++] = r->storage[i];
        else if (last->is.dtype != r->storage[i].is.dtype || last->is.count != r->storage[i].is.count)
            return syi_error(err, SY_EFORMAT, "%s: a storage has two types or sizes", r->file->path);
    }
    r->n = kept;
    return SY_OK;
}

/* Goes over the data: a count and the elements of each storage, in the order of the list of keys. */
static int place_storages(struct row *r, uint64_t at, struct sy_error *err)
{
    const struct syi_pickle *p = &r->keys;
    const struct syi_pickle_value *list = &p->value[p->root];
    if (list->kind != SYI_PICKLE_LIST)
        return syi_error(err, SY_EFORMAT, "%s: no list of storages", r->file->path);
    for (uint32_t cell = list->first; cell; cell = p->cell[cell].next) {
        size_t n;
        int64_t count = 0;
        const char *key = syi_pickle_text(p, p->cell[cell].value, &n);
        struct storage *storage = key ? find_storage(r, key, n) : NULL;
        if (!storage)
            return syi_error(err, SY_EFORMAT, "%s: no tensor has a storage of its list of keys",
                             r->file->path);
        int status = syi_stored_bytes(r->file, at, &count, sizeof count, err);
        if (status) return status;
        if (count != storage->is.count)
            return syi_error(err, SY_EFORMAT, "%s: a storage has another size than its tensors say",
                             r->file->path);
        storage->offset = at + sizeof count;
        at = syi_add_u64(storage->offset, storage_bytes(&storage->is));
        if (at > r->file->bytes)
            return syi_error(err, SY_EFORMAT, "%s ends too early: it is truncated", r->file->path);
    }
    return SY_OK;
}

static int check_system(const struct syi_pickle *p, struct sy_error *err)
{
    int64_t little = syi_pickle_member(p, p->root, "little_endian");
    if (little >= 0 && p->value[little].kind == SYI_PICKLE_BOOL && p->value[little].integer) return SY_OK;
    return syi_error(err, SY_EUNSUPPORTED, "%s: its numbers are not little-endian", p->what);
}

static int add_row(struct syi_stored *stored, struct row *r, const char *bytes, size_t n,
                   struct sy_error *err)
{
    struct syi_pickle protocol = {0}, system = {0};
    size_t at = sizeof magic;
    int status = syi_pickle_read(&protocol, r->file->path, bytes + at, n - at, err);
    at += protocol.used;
    if (!status) status = syi_pickle_read(&system, r->file->path, bytes + at, n - at, err);
    at += system.used;
    if (!status) status = check_system(&system, err);
    if (!status) status = syi_pickle_read(&r->weights, r->file->path, bytes + at, n - at, err);
    at += r->weights.used;
    if (!status) status = syi_pickle_read(&r->keys, r->file->path, bytes + at, n - at, err);
    at += r->keys.used;
    if (!status) status = list_storages(r, err);
    if (!status) status = place_storages(r, at, err);
    if (!status) status = add_tensors(stored, &r->weights, find_in_row, r, err);
    syi_pickle_free(&protocol);
    syi_pickle_free(&system);
    syi_pickle_free(&r->weights);
    syi_pickle_free(&r->keys);
    syi_free(r->storage);
    return status;
}

/* ---- both ---- */

static int add_legacy(struct syi_stored *stored, const struct syi_stored_file *file, struct sy_error *err)
{
    struct row row = {.file = file};
    size_t n = file->bytes < MOST_PICKLE ? (size_t)file->bytes : MOST_PICKLE;
    char *bytes = syi_alloc(n + 1, err);
    int status = bytes ? syi_stored_bytes(file, 0, bytes, n, err) : SY_ENOMEM;
    if (!status) status = add_row(stored, &row, bytes, n, err);
    syi_free(bytes);
    return status;
}

int syi_stored_add_torch(struct syi_stored *stored, const char *path, struct sy_error *err)
{
    unsigned char begin[sizeof magic] = {0};
    int status = syi_stored_open(stored, path, err);
    if (status) return status;
    const struct syi_stored_file *file = &stored->file[stored->n_files - 1];
    if (file->bytes >= sizeof begin) status = syi_stored_bytes(file, 0, begin, sizeof begin, err);
    if (status) return status;
    if (!memcmp(begin, magic, sizeof magic)) return add_legacy(stored, file, err);
    if (memcmp(begin, "PK\3\4", 4))
        return syi_error(err, SY_EFORMAT, "%s: neither of the forms in which torch.save writes", path);
    struct archive archive = {.file = file};
    status = syi_zip_open(&archive.zip, file, err);
    if (!status) status = add_zip(stored, &archive, err);
    syi_zip_close(&archive.zip);
    return status;
}
