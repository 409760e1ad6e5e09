/* SPDX-License-Identifier: Apache-2.0 */
/* Templates, cutting, the end token. Span corruption is spans.c's. */
#include "config.h"

#include <string.h>

#include "data/preprocess.h"

static const char input_name[] = "{input}";

static int bad_bracket(const char *template_text, const char *at, struct sy_error *err)
{
    return syi_error(
        err, SY_EINVAL,
        "template \"%.80s\": at byte %zu: the only name is {input}; {{ and }} stand for brackets",
        template_text, (size_t)(at - template_text) + 1);
}

int syi_template_apply(const char *template_text, struct syi_span input, struct syi_text *out,
                       struct sy_error *err)
{
    for (const char *at = template_text; *at;) {
        size_t plain = strcspn(at, "{}");
        syi_text_append(out, at, plain);
        at += plain;
        if (!*at) break;
        if (at[0] == at[1]) {
            syi_text_append(out, at, 1);
            at += 2;
        } else if (!strncmp(at, input_name, sizeof input_name - 1)) {
            syi_text_append(out, input.text, input.bytes);
            at += sizeof input_name - 1;
        } else {
            return bad_bracket(template_text, at, err);
        }
    }
    return syi_text_status(out, err);
}

int syi_template_check(const char *template_text, struct sy_error *err)
{
    struct syi_text text = {0};
    int status = syi_template_apply(template_text, (struct syi_span){"", 0}, &text, err);
    syi_text_free(&text);
    return status;
}

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
