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

size_t syi_fields_count(const struct syi_fields *fields, struct syi_span name)
{
    const struct syi_record_field *first = syi_fields_find(fields, name, 0);
    return first ? first->n : 0;
}

const struct syi_record_field *syi_fields_find(const struct syi_fields *fields, struct syi_span name,
                                               size_t k)
{
    for (size_t i = 0; i < fields->n; i += fields->field[i].n) {
        const struct syi_record_field *f = &fields->field[i];
        if (f->name.bytes == name.bytes && memcmp(f->name.text, name.text, name.bytes) == 0)
            return k < f->n ? &f[k] : NULL;
    }
    return NULL;
}

/* Fields of one list share their name's memory. */
int syi_fields_add(struct syi_fields *fields, struct syi_span name, struct syi_span text,
                   struct sy_error *err)
{
    int status = SYI_GROW(fields->field, fields->capacity, fields->n + 1, err);
    if (status) return status;
    if (!fields->n || fields->field[fields->n - 1].name.text != name.text) fields->first = fields->n;
    fields->field[fields->n++] = (struct syi_record_field){name, text, 0};
    fields->field[fields->first].n++;
    return SY_OK;
}
