/* SPDX-License-Identifier: Apache-2.0 */
/* Text that grows, and numbers as text independent of the locale. Every printer of the library (JSON, config,
 * explain) appends to a struct syi_text, so nothing in it needs a FILE. */
#ifndef SYI_TEXT_H
#define SYI_TEXT_H

#include "base/base.h"

/* Start from {0}. Appending never fails visibly: memory running out is remembered and reported by
 * syi_text_status. Or start from syi_text_in: such a text takes no memory, and what is too long is cut. */
struct syi_text {
    char *data;      /* NUL-terminated; NULL while empty. syi_text_free frees it */
    size_t length;   /* bytes without the NUL */
    size_t capacity; /* bytes */
    int status;      /* SY_OK, or SY_ENOMEM after an append was lost */
    int fixed;       /* data is the caller's, which stays valid after syi_text_free */
};

/* A text in a buffer of the caller's, of 1 byte or more; NUL-terminated at all times. */
struct syi_text syi_text_in(char *buffer, size_t bytes);

void syi_text_append(struct syi_text *text, const void *bytes, size_t length);
void syi_text_puts(struct syi_text *text, const char *string);
void syi_text_printf(struct syi_text *text, const char *format, ...) SYI_PRINTF(2, 3);
int syi_text_status(const struct syi_text *text, struct sy_error *err) SYI_MUST_CHECK;
void syi_text_free(struct syi_text *text); /* back to empty */

enum { SYI_NUMBER_BYTES = 32 }; /* enough for any number below and its NUL */
/* The shortest text that reads back as the same double or float; "nan", "inf", "-inf" for the others. */
void syi_format_double(char text[SYI_NUMBER_BYTES], double value);
void syi_format_float(char text[SYI_NUMBER_BYTES], float value);
/* The number at the start of text, decimal point '.'; *end is after it, or text when there is none. */
double syi_parse_double(const char *text, const char **end);

/* Whether text ends with `end`. */
int syi_ends_with(const char *text, const char *end);

/* Writes a code point as UTF-8, returns its bytes (1 to 4); 0 for a surrogate or a value over U+10FFFF. */
int syi_utf8_encode(uint32_t code, char out[4]);
/* Bytes of the well-formed UTF-8 sequence at the start of text (1 to 4), 0 when it is malformed. */
int syi_utf8_length(const unsigned char *text, size_t bytes);
/* Appends the first character of from, which is not empty; U+FFFD, the replacement character, in place of a malformed byte
 * and of NUL. Gives the bytes of from that this was. */
size_t syi_text_put_character(struct syi_text *text, const unsigned char *from, size_t bytes);
/* Whether the first character of text, which is not empty, is one to show: well formed, and no control character, which
 * may be an order to a terminal. *length: its bytes, 1 where it is malformed. */
int syi_utf8_is_shown(const unsigned char *text, size_t bytes, int *length);
/* Bytes of the byte order mark that a text begins with, 0 without one: it is no part of the text. */
size_t syi_utf8_mark(const char *text, size_t bytes);

#endif
