/* SPDX-License-Identifier: Apache-2.0 */
/* Growing text, numbers as text, UTF-8. An embedding program may have set a locale with a decimal comma, so
 * numbers are read and written under the C locale of the calling thread. */
#include "config.h"

#include <locale.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

struct syi_text syi_text_in(char *buffer, size_t bytes)
{
    buffer[0] = 0;
    return (struct syi_text){.data = buffer, .capacity = bytes, .fixed = 1};
}

/* How many of so many more bytes there is room for, besides the NUL. */
static size_t make_room(struct syi_text *text, size_t length)
{
    size_t room = text->capacity - text->length; /* 1 or more where the text is fixed */
    if (text->fixed) return length < room ? length : room - 1;
    if (text->status == SY_OK)
        text->status = SYI_GROW(text->data, text->capacity, text->length + length + 1, NULL);
    return text->status == SY_OK ? length : 0;
}

void syi_text_append(struct syi_text *text, const void *bytes, size_t length)
{
    if (length) length = make_room(text, length);
    if (!length) return;
    memcpy(text->data + text->length, bytes, length);
    text->length += length;
    text->data[text->length] = 0;
}

void syi_text_puts(struct syi_text *text, const char *string)
{
    syi_text_append(text, string, strlen(string));
}

void syi_text_printf(struct syi_text *text, const char *format, ...)
{
    va_list args;
    if (text->status != SY_OK) return;
    va_start(args, format);
    int length = vsnprintf(NULL, 0, format, args);
    va_end(args);
    size_t room = length > 0 ? make_room(text, (size_t)length) : 0;
    if (!room) return;
    va_start(args, format);
    vsnprintf(text->data + text->length, room + 1, format, args);
    va_end(args);
    text->length += room;
}

int syi_text_status(const struct syi_text *text, struct sy_error *err)
{
    if (text->status == SY_OK) return SY_OK;
    return syi_error(err, text->status, "out of memory: a text of %zu bytes could not grow", text->length);
}

void syi_text_free(struct syi_text *text)
{
    if (!text->fixed) syi_free(text->data);
    memset(text, 0, sizeof(*text));
}

static locale_t
    c_locale; /* (locale_t)0 when the system has no memory for it: the thread's own locale is used then */

static void make_c_locale(void)
{
    c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

static locale_t enter_c_locale(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make_c_locale);
    return uselocale(c_locale); /* uselocale(0) only asks */
}

static int name_special(char *text, double value)
{
    if (isfinite(value)) return 0;
    strcpy(text, isnan(value) ? "nan" : value < 0 ? "-inf" : "inf");
    return 1;
}

void syi_format_double(char text[SYI_NUMBER_BYTES], double value)
{
    if (name_special(text, value)) return;
    locale_t before = enter_c_locale();
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, SYI_NUMBER_BYTES, "%.*g", digits, value);
        if (strtod(text, NULL) == value) break;
    }
    uselocale(before);
}

void syi_format_float(char text[SYI_NUMBER_BYTES], float value)
{
    if (name_special(text, value)) return;
    locale_t before = enter_c_locale();
    for (int digits = 6; digits <= 9; digits++) {
        snprintf(text, SYI_NUMBER_BYTES, "%.*g", digits, (double)value);
        if (strtof(text, NULL) == value) break;
    }
    uselocale(before);
}

double syi_parse_double(const char *text, const char **end)
{
    char *stop;
    locale_t before = enter_c_locale();
    double value = strtod(text, &stop);
    uselocale(before);
    *end = stop;
    return value;
}

int syi_ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);
    return n >= m && !strcmp(text + n - m, end);
}

int syi_utf8_encode(uint32_t code, char out[4])
{
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    if (code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) return 0;
    int bytes = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    static const unsigned char lead[5] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (int i = bytes - 1; i > 0; i--, code >>= 6) out[i] = (char)(0x80 | (code & 0x3f));
    out[0] = (char)(lead[bytes] | code);
    return bytes;
}

int syi_utf8_length(const unsigned char *text, size_t bytes)
{
    if (bytes == 0) return 0;
    unsigned char c = text[0];
    if (c < 0x80) return 1;
    int length = c >= 0xc2 && c < 0xe0 ? 2 : c >= 0xe0 && c < 0xf0 ? 3 : c >= 0xf0 && c < 0xf5 ? 4 : 0;
    if (length == 0 || (size_t)length > bytes) return 0;
    for (int i = 1; i < length; i++)
        if ((text[i] & 0xc0) != 0x80) return 0;
    /* overlong forms, surrogates and values over U+10FFFF show in the second byte */
    if ((c == 0xe0 && text[1] < 0xa0) || (c == 0xed && text[1] > 0x9f)) return 0;
    if ((c == 0xf0 && text[1] < 0x90) || (c == 0xf4 && text[1] > 0x8f)) return 0;
    return length;
}

size_t syi_text_put_character(struct syi_text *text, const unsigned char *from, size_t bytes)
{
    int length = *from ? syi_utf8_length(from, bytes) : 0;
    if (!length) {
        syi_text_puts(text, "\xef\xbf\xbd");
        return 1;
    }
    syi_text_append(text, from, (size_t)length);
    return (size_t)length;
}

int syi_utf8_is_shown(const unsigned char *text, size_t bytes, int *length)
{
    int n = syi_utf8_length(text, bytes);
    *length = n ? n : 1;
    return n == 1 ? text[0] >= 0x20 && text[0] != 0x7f : n > 0 && !(text[0] == 0xc2 && text[1] < 0xa0);
}

size_t syi_utf8_mark(const char *text, size_t bytes)
{
    static const char mark[] = {'\xef', '\xbb', '\xbf'};
    return bytes >= sizeof mark && !memcmp(text, mark, sizeof mark) ? sizeof mark : 0;
}
