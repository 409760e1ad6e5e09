/* SPDX-License-Identifier: Apache-2.0 */
/* Cutting, padding, the end token. Templates are template.c's, span corruption spans.c's. */
#include "config.h"

#include "data/preprocess.h"

void syi_trim(struct syi_ids *ids, int32_t length)
{
    if (length >= 0 && ids->n > (size_t)length) ids->n = (size_t)length;
}

int syi_pad(struct syi_ids *ids, int32_t length, struct sy_error *err)
{
    const int32_t pad = SYI_ID_PAD;
    int status = SY_OK;
    while (!status && length > 0 && ids->n < (size_t)length) status = syi_ids_append(ids, &pad, 1, err);
    return status;
}

int syi_append_end(struct syi_ids *ids, int32_t end, struct sy_error *err)
{
    return syi_ids_append(ids, &end, 1, err);
}

int syi_append_end_after_trim(struct syi_ids *ids, int32_t length, int32_t end, struct sy_error *err)
{
    if (length > 0) syi_trim(ids, length - 1);
    return syi_append_end(ids, end, err);
}
