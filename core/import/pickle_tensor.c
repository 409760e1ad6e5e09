/* SPDX-License-Identifier: Apache-2.0 */
/* What the values of a pickle mean: texts, dictionaries, storages and the tensors in them. */
#include "config.h"

#include <string.h>

#include "import/pickle_parts.h"

const char *syi_pickle_text(const struct syi_pickle *p, uint32_t value, size_t *n)
{
    const struct syi_pickle_value *v = &p->value[value];
    *n = v->kind == SYI_PICKLE_TEXT ? v->n : 0;
    return v->kind == SYI_PICKLE_TEXT ? (const char *)p->bytes + v->integer : NULL;
}

int64_t syi_pickle_member(const struct syi_pickle *p, uint32_t dict, const char *key)
{
    uint32_t cell = p->value[dict].kind == SYI_PICKLE_DICT ? p->value[dict].first : 0;
    for (; cell; cell = p->cell[p->cell[cell].next].next) {
        size_t n;
        const char *text = syi_pickle_text(p, p->cell[cell].value, &n);
        if (text && strlen(key) == n && !memcmp(text, key, n)) return p->cell[p->cell[cell].next].value;
    }
    return -1;
}

static int malformed(const struct syi_pickle *p, const char *why, struct sy_error *err)
{
    return syi_error(err, SY_EFORMAT, "%s: a tensor is malformed: %s", p->what, why);
}

/* The value of the i-th cell from `cell` on; there are as many. */
static const struct syi_pickle_value *item(const struct syi_pickle *p, uint32_t cell, int i)
{
    while (i--) cell = p->cell[cell].next;
    return &p->value[p->cell[cell].value];
}

int syi_pickle_storage(const struct syi_pickle *p, uint32_t value, struct syi_pickle_tensor *tensor,
                       struct sy_error *err)
{
    enum { KIND, TYPE, KEY, DEVICE, COUNT, VIEW };
    const struct syi_pickle_value *v = &p->value[value];
    if (v->kind != SYI_PICKLE_STORAGE) return malformed(p, "it has no storage", err);
    const struct syi_pickle_value *kind = item(p, v->first, KIND), *type = item(p, v->first, TYPE),
                                  *key = item(p, v->first, KEY), *count = item(p, v->first, COUNT);
    if (kind->kind != SYI_PICKLE_TEXT || kind->n != 7 || memcmp(p->bytes + kind->integer, "storage", 7))
        return malformed(p, "its persistent id is of another kind", err);
    if (syi_pickle_global_of(type) != SYI_GLOBAL_STORAGE) return malformed(p, "its storage has no type", err);
    if (key->kind != SYI_PICKLE_TEXT) return malformed(p, "its storage has no key", err);
    if (count->kind != SYI_PICKLE_INTEGER || count->integer < 0)
        return malformed(p, "its storage has no number of elements", err);
    if (v->n > VIEW && item(p, v->first, VIEW)->kind != SYI_PICKLE_NONE)
        return syi_error(err, SY_EUNSUPPORTED, "%s: a storage is a view of another one", p->what);
    tensor->key = (const char *)p->bytes + key->integer;
    tensor->n_key = key->n;
    tensor->dtype = syi_pickle_dtype_of(type);
    tensor->count = count->integer;
    return SY_OK;
}

/* A tuple of numbers from 0 on into [rank]. */
static int read_numbers(const struct syi_pickle *p, const struct syi_pickle_value *tuple, int64_t *numbers,
                        int *n, struct sy_error *err)
{
    if (tuple->kind != SYI_PICKLE_TUPLE || tuple->n > SYI_PICKLE_RANK)
        return malformed(p, "its sizes are no tuple of at most 8 numbers", err);
    *n = 0;
    for (uint32_t cell = tuple->first; cell; cell = p->cell[cell].next) {
        const struct syi_pickle_value *v = &p->value[p->cell[cell].value];
        if (v->kind != SYI_PICKLE_INTEGER || v->integer < 0)
            return malformed(p, "a size is no number from 0 on", err);
        numbers[(*n)++] = v->integer;
    }
    return SY_OK;
}

/* Whether all elements lie in the storage. */
static int check_extent(const struct syi_pickle *p, const struct syi_pickle_tensor *t, struct sy_error *err)
{
    uint64_t last = (uint64_t)t->offset, n = 1;
    for (int d = 0; d < t->rank; d++) n = syi_mul_u64(n, (uint64_t)t->dims[d]);
    for (int d = 0; d < t->rank && n; d++)
        last = syi_add_u64(last, syi_mul_u64((uint64_t)t->dims[d] - 1, (uint64_t)t->stride[d]));
    if (n > (uint64_t)INT64_MAX || (n && last >= (uint64_t)t->count))
        return malformed(p, "it goes over the end of its storage", err);
    return SY_OK;
}

int syi_pickle_tensor(const struct syi_pickle *p, uint32_t value, struct syi_pickle_tensor *t,
                      struct sy_error *err)
{
    enum { STORAGE, OFFSET, SIZE, STRIDE };
    const struct syi_pickle_value *v = &p->value[value];
    int strides;
    memset(t, 0, sizeof *t);
    if (v->kind != SYI_PICKLE_TENSOR) return malformed(p, "another value stands in its place", err);
    const struct syi_pickle_value *offset = item(p, v->first, OFFSET);
    int status = syi_pickle_storage(p, p->cell[v->first].value, t, err);
    if (!status && (offset->kind != SYI_PICKLE_INTEGER || offset->integer < 0))
        status = malformed(p, "its offset is no number from 0 on", err);
    if (!status) status = read_numbers(p, item(p, v->first, SIZE), t->dims, &t->rank, err);
    if (!status) status = read_numbers(p, item(p, v->first, STRIDE), t->stride, &strides, err);
    if (!status && strides != t->rank) status = malformed(p, "it has not as many strides as sizes", err);
    t->offset = offset->integer;
    return status ? status : check_extent(p, t, err);
}
