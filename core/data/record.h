/* SPDX-License-Identifier: Apache-2.0 */
/* Files of examples as records: how a file is cut into them, and which fields a record has. A record is found by its
 * offset, so any one can be read without those before it. base/record_formats.h lists the formats. */
#ifndef SYI_DATA_RECORD_H
#define SYI_DATA_RECORD_H

#include "base/base.h"
#include "data/vocabulary.h" /* struct syi_span */

enum {
    SYI_RECORD_BYTES = 64 << 20, /* most of a record of fields: a longer line is an error */
    SYI_DOCUMENT_BYTES =
        16 << 10 /* most of a record of running text: longer ones are cut in several, after a blank or at
                                     least between characters */
};

/* Named texts of a record; a name may be there several times (targets of one input). Names are those of the format:
 * tsv has input and target, text and documents have text, jsonl has the keys of its objects: strings as they are,
 * numbers, true and false as they stand there, lists of such as one field each, null left out. An object inside, or a list
 * or null in a list, is no text: it is refused only when asked for. Of a key that an object has twice the first counts. */
struct syi_record_field {
    struct syi_span name,
        text; /* into the record or `decoded`; text.text NULL: there is one, but it is no text */
    size_t
        n; /* of the first of a list: how many it has, so that whoever looks for another need not go through it */
};
struct syi_fields {
    struct syi_record_field *field; /* [n] owned */
    size_t n, capacity, first;      /* first: of the list that was added last */
    struct syi_text decoded;        /* texts that do not stand in the record as they are */
};
void syi_fields_free(struct syi_fields *fields); /* also of zeroed ones */
/* The k-th field of this name, from 0; NULL: there are not so many. */
const struct syi_record_field *syi_fields_find(const struct syi_fields *fields, struct syi_span name,
                                               size_t k);
/* How many there are. */
size_t syi_fields_count(const struct syi_fields *fields, struct syi_span name);
/* For `parse`: adds one; several of a name follow one another, with the same name.text. */
int syi_fields_add(struct syi_fields *fields, struct syi_span name, struct syi_span text,
                   struct sy_error *err) SYI_MUST_CHECK;

struct syi_record {
    int64_t offset; /* of its first byte in the file */
    int64_t line;   /* of its first byte, from 1; of a bad one where it is bad */
    struct syi_span
        text;        /* without the end of its line; until the next call; of a line that is too long none */
    const char *bad; /* why it is no record that can be used, the place left out; NULL: it can */
};

enum { SYI_BAD_RECORD_TEXT = 800 }; /* so that more of a message follows it */
/* Records that are skipped. */
struct syi_bad_records {
    int64_t n;
    char first[SYI_BAD_RECORD_TEXT]; /* "FILE:LINE: why" */
};
/* A record that is not as it should be: SY_EFORMAT or, with skip, it is counted. */
int syi_record_refuse(const struct syi_record *record, const char *path, const char *why, int skip,
                      struct syi_bad_records *bad, struct sy_error *err) SYI_MUST_CHECK;
/* A warning, where there are any. */
void syi_bad_records_warn(const struct syi_bad_records *bad);

struct syi_record_format {
    const char *name;  /* of task.NAME.format */
    const char *holds; /* what a file has, for messages: "each line is `input TAB target`" */
    int runs_on;       /* 1: records are running text, cut at SYI_DOCUMENT_BYTES */
    int empty_lines;   /* 1: a line of nothing is a record as others are; 0: between records it is left out */
    /* Bytes of the record at the beginning of text, which is not empty, and in *skip those up to what follows it (the end of
     * its line); ended: the file has no more after text. *skip 0: not all of the record is in text. */
    size_t (*cut)(struct syi_span text, char line_end, int ended, size_t *skip);
    /* Fills fields. SY_EFORMAT: the record is not as it should be; the message has no place in it, the caller adds it. */
    int (*parse)(struct syi_span record, struct syi_fields *fields, struct sy_error *err);
};
#define SYI_FORMAT_DECLARE(X, NAME, name, help) extern const struct syi_record_format syi_record_##name;
SYI_FORMATS(SYI_FORMAT_DECLARE, )
#undef SYI_FORMAT_DECLARE
/* A line, up to line_end; of CR LF both are left out. As syi_record_format.cut. */
size_t syi_cut_line(struct syi_span text, char line_end, int ended, size_t *skip);
/* By task.NAME.format (SYI_FORMAT_MAP). */
const struct syi_record_format *syi_record_format(int format);

/* Reads the records of one file from its beginning, in constant memory. Lines end in LF or CR LF, in files without LF in
 * CR; a record with a CR within a line of the former is bad, and so is a line of over SYI_RECORD_BYTES: the scan goes on
 * after it. A byte order mark at the beginning is no part of the text. NUL bytes and broken UTF-8 stay in it: whoever
 * reads decides. */
struct syi_scan {
    const struct syi_record_format *format;
    int fd;
    char *path;
    char *buffer;
    size_t begin, end, capacity;
    size_t piece;   /* fewest bytes that are read at once; records do not depend on it */
    int64_t offset; /* of buffer[begin] */
    int64_t line;
    int ended;
    char line_end;          /* '\n' or '\r' */
    char last;              /* the last byte that was read */
    struct syi_sha256 hash; /* of all bytes read so far */
    struct syi_file_id id;  /* complete once SY_ENOENT was returned: that of syi_file_identify */
};
/* Owned by the caller: syi_scan_close, also of a zeroed one and after a failure here. SY_EINVAL: no regular file. */
int syi_scan_open(struct syi_scan *scan, const char *path, const struct syi_record_format *format,
                  struct sy_error *err) SYI_MUST_CHECK;
void syi_scan_close(struct syi_scan *scan);
/* The next record, which may be bad; SY_ENOENT, without a message: there are no more. */
int syi_scan_next(struct syi_scan *scan, struct syi_record *record, struct sy_error *err) SYI_MUST_CHECK;

/* The record at an offset of an open file, into *buffer, which grows; `text` is inside it. line_end: as the scan found
 * it. SY_EFORMAT: no record is there any more, the file has changed. */
int syi_record_read(int fd, const char *path, const struct syi_record_format *format, char line_end,
                    int64_t offset, char **buffer, size_t *capacity, struct syi_span *text,
                    struct sy_error *err) SYI_MUST_CHECK;

#endif
