/* SPDX-License-Identifier: Apache-2.0 */
/* Templates: cut into words and names once, filled for every example. */
#include "config.h"

#include <string.h>

#include "data/template.h"

enum { NAMES_SHOWN = 12, NAME_SHOWN_BYTES = 40 }; /* of a record, in a message */

static int bad(const char *text, const char *at, const char *why, struct sy_error *err)
{
    return syi_error(
        err, SY_EINVAL,
        "template \"%.80s\": at byte %zu: %s; names of fields stand in braces, {input}, and {{ and }} stand "
        "for braces",
        text, (size_t)(at - text) + 1, why);
}

static int add_part(struct syi_template *form, const char *text, size_t bytes, int field, const char *whole,
                    struct sy_error *err)
{
    if (form->n == SYI_TEMPLATE_PARTS)
        return syi_error(err, SY_EINVAL, "template \"%.80s\": more than %d names and words between them",
                         whole, SYI_TEMPLATE_PARTS);
    form->part[form->n++] = (struct syi_template_part){{text, bytes}, field};
    return SY_OK;
}

/* Bytes up to a brace that is not doubled. */
static size_t words(const char *at)
{
    size_t n = 0;
    for (;; n += 2) {
        n += strcspn(at + n, "{}");
        if (!at[n] || at[n] != at[n + 1]) return n;
    }
}

int syi_template_parse(struct syi_template *form, const char *text, struct sy_error *err)
{
    int fields = 0, status = SY_OK;
    form->n = 0;
    for (const char *at = text; *at && !status;) {
        size_t n = words(at);
        if (n) {
            status = add_part(form, at, n, 0, text, err);
            at += n;
            continue;
        }
        if (*at == '}') return bad(text, at, "this brace closes nothing", err);
        n = strcspn(at + 1, "{}");
        if (at[1 + n] != '}') return bad(text, at, "this brace is not closed", err);
        if (n == 0) return bad(text, at, "a name is missing", err);
        status = add_part(form, at + 1, n, 1, text, err);
        fields++;
        at += n + 2;
    }
    return status || fields ? status
                            : bad(text, text, "it has no field, so all examples would be the same", err);
}

/* Which names a record has, for whoever asks for another. */
static int missing(struct syi_span name, const struct syi_fields *fields, struct sy_error *err)
{
    char names[NAMES_SHOWN * (NAME_SHOWN_BYTES + 4) + 8] = "";
    size_t n = 0, shown = 0;
    for (size_t i = 0; i < fields->n; i++) {
        struct syi_span other = fields->field[i].name;
        if (i && other.text == fields->field[i - 1].name.text) continue;
        if (shown++ == NAMES_SHOWN) {
            snprintf(names + n, sizeof names - n, ", ...");
            break;
        }
        int bytes = other.bytes < NAME_SHOWN_BYTES ? (int)other.bytes : NAME_SHOWN_BYTES;
        n += (size_t)snprintf(names + n, sizeof names - n, "%s%.*s", n ? ", " : "", bytes, other.text);
    }
    return syi_error(err, SY_EFORMAT, "no field %.*s; there %s %s", (int)name.bytes, name.text,
                     shown == 0   ? "is"
                     : shown == 1 ? "is only"
                                  : "are",
                     shown ? names : "none");
}

/* How many fields of this name there are, all of them text and of one list. */
static int count_field(struct syi_span name, const struct syi_fields *fields, size_t *n, struct sy_error *err)
{
    *n = syi_fields_count(fields, name);
    if (*n == 0) return missing(name, fields, err);
    const struct syi_record_field *first = syi_fields_find(fields, name, 0);
    for (size_t i = 0; i < *n; i++)
        if (!first[i].text.text)
            return syi_error(
                err, SY_EFORMAT,
                "field %.*s is no text, nor a list of texts: it holds an object, a list or a null",
                (int)name.bytes, name.text);
    for (const struct syi_record_field *f = first + *n; f < fields->field + fields->n; f++)
        if (f->name.bytes == name.bytes && !memcmp(f->name.text, name.text, name.bytes))
            return syi_error(err, SY_EFORMAT, "field %.*s is there twice: several texts are a list",
                             (int)name.bytes, name.text);
    return SY_OK;
}

int syi_template_count(const struct syi_template *form, const struct syi_fields *fields, size_t *n,
                       struct sy_error *err)
{
    const struct syi_span *several = NULL;
    *n = 1;
    for (int i = 0; i < form->n; i++) {
        const struct syi_span *name = &form->part[i].text;
        size_t count;
        if (!form->part[i].field) continue;
        int status = count_field(*name, fields, &count, err);
        if (status) return status;
        if (several && count > 1 && count != *n)
            return syi_error(err, SY_EFORMAT,
                             "%zu of field %.*s, but %zu of field %.*s: which belong together?", *n,
                             (int)several->bytes, several->text, count, (int)name->bytes, name->text);
        if (count > 1) {
            several = name;
            *n = count;
        }
    }
    return SY_OK;
}

/* Words of a template, each doubled brace once. */
static void append_words(struct syi_span text, struct syi_text *out)
{
    for (size_t from = 0, i = 0; i < text.bytes; i++) {
        int brace = text.text[i] == '{' || text.text[i] == '}';
        if (!brace && i + 1 < text.bytes) continue;
        syi_text_append(out, text.text + from, i + 1 - from);
        i += (size_t)brace;
        from = i + 1;
    }
}

void syi_template_fill(const struct syi_template *form, const struct syi_fields *fields, size_t k,
                       struct syi_text *out)
{
    for (int i = 0; i < form->n; i++) {
        struct syi_span text = form->part[i].text;
        if (!form->part[i].field) {
            append_words(text, out);
            continue;
        }
        const struct syi_record_field *field = syi_fields_find(fields, text, k);
        if (!field) field = syi_fields_find(fields, text, 0); /* one for all examples */
        if (field) syi_text_append(out, field->text.text, field->text.bytes);
    }
}
