/* SPDX-License-Identifier: Apache-2.0 */
/* The fields of a record: named texts. */
#include "config.h"

#include <string.h>

#include "data/record.h"

void syi_fields_free(struct syi_fields *fields)
{
    syi_free(fields->field);
    syi_text_free(&fields->decoded);
    memset(fields, 0, sizeof *fields);
}

/* Fields of one list share their name's memory. */
size_t syi_fields_count(const struct syi_fields *fields, struct syi_span name)
{
    const struct syi_record_field *first = syi_fields_find(fields, name, 0), *end = fields->field + fields->n;
    size_t n = 0;
    while (first && first + n < end && first[n].name.text == first->name.text) n++;
    return n;
}

const struct syi_record_field *syi_fields_find(const struct syi_fields *fields, struct syi_span name,
                                               size_t k)
{
    for (size_t i = 0; i < fields->n; i++) {
        const struct syi_record_field *f = &fields->field[i];
        if (f->name.bytes != name.bytes || memcmp(f->name.text, name.text, name.bytes) != 0) continue;
        return k < fields->n - i && f[k].name.text == f->name.text ? &f[k] : NULL;
    }
    return NULL;
}

int syi_fields_add(struct syi_fields *fields, struct syi_span name, struct syi_span text,
                   struct sy_error *err)
{
    int status = SYI_GROW(fields->field, fields->capacity, fields->n + 1, err);
    if (!status) fields->field[fields->n++] = (struct syi_record_field){name, text};
    return status;
}
