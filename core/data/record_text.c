/* SPDX-License-Identifier: Apache-2.0 */
/* Formats without syntax of their own: tab-separated lines, a document a line, documents with empty lines between. */
#include "config.h"

#include <string.h>

#include "data/record.h"

#define SPAN(literal) ((struct syi_span){literal, sizeof(literal) - 1})

size_t syi_cut_line(struct syi_span text, char line_end, int ended, size_t *skip)
{
    const char *at = memchr(text.text, line_end, text.bytes);
    size_t bytes = at ? (size_t)(at - text.text) : text.bytes;
    *skip = at ? bytes + 1 : ended ? bytes : 0;
    return *skip && bytes && text.text[bytes - 1] == '\r' ? bytes - 1 : bytes;
}

/* ---- tsv ---- */

static int empty_field(size_t n, struct sy_error *err)
{
    return syi_error(err, SY_EFORMAT, "%s is empty; write `input TAB target`, or remove the line or the tab",
                     n == 0   ? "the input"
                     : n == 1 ? "the target"
                              : "a further target");
}

/* The first field is the input, each further one a target. */
static int parse_tsv(struct syi_span record, struct syi_fields *fields, struct sy_error *err)
{
    fields->n = 0;
    if (memchr(record.text, '\0', record.bytes))
        return syi_error(err, SY_EFORMAT, "NUL byte; is this a text file? UTF-16 must be converted to UTF-8");
    if (!memchr(record.text, '\t', record.bytes))
        return syi_error(err, SY_EFORMAT, "no tab in this line; %s", syi_record_tsv.holds);
    for (size_t from = 0, to; from <= record.bytes; from = to + 1) {
        const char *tab = memchr(record.text + from, '\t', record.bytes - from);
        to = tab ? (size_t)(tab - record.text) : record.bytes;
        if (to == from) return empty_field(fields->n, err);
        int status = syi_fields_add(fields, fields->n ? SPAN("target") : SPAN("input"),
                                    (struct syi_span){record.text + from, to - from}, err);
        if (status) return status;
    }
    return SY_OK;
}

const struct syi_record_format syi_record_tsv = {
    .name = "tsv",
    .holds = "each line is `input TAB target`",
    .empty_lines = 1,
    .cut = syi_cut_line,
    .parse = parse_tsv,
};

/* ---- running text ---- */

static int parse_text(struct syi_span record, struct syi_fields *fields, struct sy_error *err)
{
    fields->n = 0;
    return syi_fields_add(fields, SPAN("text"), record, err);
}

/* Where text of more than SYI_DOCUMENT_BYTES is cut: after the last blank of so many, else before a character. */
static size_t cut_long(struct syi_span text, char line_end)
{
    for (size_t at = SYI_DOCUMENT_BYTES; at > 0; at--)
        if (text.text[at - 1] == ' ' || text.text[at - 1] == '\t' || text.text[at - 1] == line_end) return at;
    for (size_t at = SYI_DOCUMENT_BYTES; at > SYI_DOCUMENT_BYTES - 4; at--)
        if ((text.text[at] & 0xc0) != 0x80) return at; /* no continuation byte of UTF-8 */
    return SYI_DOCUMENT_BYTES;
}

/* Running text up to an end that `find` gives as a cut does; longer text in part. So many bytes of line ends after the text
 * must be seen to find its end; no more are looked at, so what is cut does not depend on how much more is there. */
static size_t cut_running(struct syi_span text, char line_end, int ended, size_t line_ends,
                          size_t (*find)(struct syi_span, char, int, size_t *), size_t *skip)
{
    struct syi_span seen = {text.text, SYI_DOCUMENT_BYTES + line_ends};
    if (text.bytes < seen.bytes) seen.bytes = text.bytes;
    size_t bytes = find(seen, line_end, ended && seen.bytes == text.bytes, skip);
    if (*skip ? bytes <= SYI_DOCUMENT_BYTES : seen.bytes < SYI_DOCUMENT_BYTES + line_ends) return bytes;
    *skip = cut_long(text, line_end);
    return *skip;
}

static size_t cut_text(struct syi_span text, char line_end, int ended, size_t *skip)
{
    return cut_running(text, line_end, ended, 2, syi_cut_line, skip);
}

/* Lines up to an empty one or the end. */
static size_t find_document_end(struct syi_span text, char line_end, int ended, size_t *skip)
{
    size_t at = 0, bytes = 0, line = 0;
    do {
        at += line;
        if (at == text.bytes) break;
        size_t length =
            syi_cut_line((struct syi_span){text.text + at, text.bytes - at}, line_end, ended, &line);
        if (at && line && length == 0) break; /* the empty line is left out with the other line ends */
        bytes = at + length;
    } while (line);
    *skip = line && (at < text.bytes || ended) ? at : 0;
    return bytes;
}

static size_t cut_document(struct syi_span text, char line_end, int ended, size_t *skip)
{
    return cut_running(text, line_end, ended, 4, find_document_end, skip);
}

const struct syi_record_format syi_record_text = {
    .name = "text",
    .holds = "each line is a document",
    .runs_on = 1,
    .cut = cut_text,
    .parse = parse_text,
};

const struct syi_record_format syi_record_documents = {
    .name = "documents",
    .holds = "documents have empty lines between them",
    .runs_on = 1,
    .cut = cut_document,
    .parse = parse_text,
};
