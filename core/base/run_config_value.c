/* SPDX-License-Identifier: Apache-2.0 */
/* One value of a run file: text to field, field to text, by the option's type; ranges and choices. */
#include "config.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/run_config.h"

/* Where the reader stands, and the sentence that says why it failed. */
struct cursor {
    const char *at; /* NUL-terminated */
    char *reason;   /* [SYI_REASON] */
};

static int refuse(struct cursor *c, const struct syi_option *option, const char *text)
{
    struct syi_text wanted = {0};
    syi_option_describe(option, &wanted);
    snprintf(c->reason, SYI_REASON, "%.80s is not accepted: it takes %s", *text ? text : "an empty value",
             wanted.data ? wanted.data : "another value");
    syi_text_free(&wanted);
    return SY_EINVAL;
}

static void skip_blanks(struct cursor *c)
{
    c->at += strspn(c->at, " \t");
}

/* ---- numbers ---- */

/* Copies a number without the underscores that stand between two digits; 0 when it is too long or they stand
 * elsewhere. */
static int copy_number(struct cursor *c, char *out, size_t bytes)
{
    size_t length = strspn(c->at, "+-.0123456789_eEinfa"), used = 0;
    for (size_t i = 0; i < length; i++) {
        if (c->at[i] == '_') {
            if (i == 0 || !isdigit((unsigned char)c->at[i - 1]) || !isdigit((unsigned char)c->at[i + 1]))
                return 0;
            continue;
        }
        if (used + 1 == bytes) return 0;
        out[used++] = c->at[i];
    }
    out[used] = 0;
    c->at += length;
    return used > 0;
}

static int read_integer(struct cursor *c, int64_t *value)
{
    char digits[64], *end;
    if (!copy_number(c, digits, sizeof(digits))) return 0;
    if (!isdigit((unsigned char)digits[*digits == '-' || *digits == '+'])) return 0;
    errno = 0;
    *value = strtoll(digits, &end, 10);
    return errno == 0 && *end == 0;
}

static int read_double(struct cursor *c, double *value)
{
    char digits[64];
    const char *end;
    if (!copy_number(c, digits, sizeof(digits))) return 0;
    *value = syi_parse_double(digits, &end);
    return *end == 0 && isfinite(*value);
}

/* An integer and a unit: nothing, KiB to TiB (1024) or kB to TB (1000). */
static int read_size(struct cursor *c, int64_t *value)
{
    static const struct {
        const char *unit;
        int64_t bytes;
    } units[] = {{"KiB", 1LL << 10}, {"MiB", 1LL << 20}, {"GiB", 1LL << 30}, {"TiB", 1LL << 40},
                 {"kB", 1000},       {"MB", 1000000},    {"GB", 1000000000}, {"TB", 1000000000000}};
    if (!read_integer(c, value)) return 0;
    skip_blanks(c);
    for (size_t i = 0; i < SYI_COUNT(units); i++) {
        size_t length = strlen(units[i].unit);
        if (strncmp(c->at, units[i].unit, length) != 0) continue;
        c->at += length;
        return !__builtin_mul_overflow(*value, units[i].bytes, value);
    }
    return 1;
}

/* "3h50m", "90" seconds. */
static int read_duration(struct cursor *c, int64_t *value)
{
    static const struct {
        char unit;
        int64_t seconds;
    } units[] = {{'d', 86400}, {'h', 3600}, {'m', 60}, {'s', 1}};
    size_t next = 0; /* units come in this order, each once */
    for (*value = 0;;) {
        int64_t part;
        size_t i = next;
        if (!read_integer(c, &part)) return 0;
        while (i < SYI_COUNT(units) && units[i].unit != *c->at) i++;
        if (i == SYI_COUNT(units) && next) return 0;
        if (i == SYI_COUNT(units)) {
            *value = part;
            break;
        }
        if (__builtin_mul_overflow(part, units[i].seconds, &part) ||
            __builtin_add_overflow(*value, part, value))
            return 0;
        c->at++;
        next = i + 1;
        if (*c->at < '0' || *c->at > '9') break;
    }
    return 1;
}

/* A value with a unit, in quotes or not. */
static int read_quotable(struct cursor *c, int (*read)(struct cursor *c, int64_t *value), int64_t *value)
{
    int quoted = *c->at == '"';
    c->at += quoted;
    if (!read(c, value)) return 0;
    return !quoted || *c->at++ == '"';
}

/* Whether value obeys "low..high"; '<' or '>' before a bound excludes the bound itself. */
static int in_range(const char *range, double value)
{
    if (!*range) return 1;
    const char *dots = strstr(range, ".."), *end;
    if (dots != range) {
        int open = *range == '>';
        double low = syi_parse_double(range + open, &end);
        if (open ? value <= low : value < low) return 0;
    }
    if (dots[2] == 0) return 1;
    int open = dots[2] == '<';
    double high = syi_parse_double(dots + 2 + open, &end);
    return open ? value < high : value <= high;
}

/* ---- strings ---- */

/* After "\u" or "\U": 4 or 8 hexadecimal digits. */
static int read_unicode(struct cursor *c, int digits, char *out)
{
    char hex[9] = {0}, *end;
    if (strspn(c->at, "0123456789abcdefABCDEF") < (size_t)digits) return 0;
    memcpy(hex, c->at, (size_t)digits);
    c->at += digits;
    unsigned long code = strtoul(hex, &end, 16);
    return code ? syi_utf8_encode((uint32_t)code, out) : 0;
}

/* After a backslash: bytes written to out, 0 for an escape that is not known. */
static int read_escape(struct cursor *c, char out[4])
{
    static const char from[] = "\"\\bfnrt", to[] = "\"\\\b\f\n\r\t";
    char letter = *c->at;
    if (!letter) return 0;
    c->at++;
    if (letter == 'u' || letter == 'U') return read_unicode(c, letter == 'u' ? 4 : 8, out);
    const char *hit = strchr(from, letter);
    if (!hit) return 0;
    *out = to[hit - from];
    return 1;
}

static int complain(struct cursor *c, const char *why)
{
    snprintf(c->reason, SYI_REASON, "%s", why);
    return SY_EINVAL;
}

/* A string in double quotes. */
static int read_quoted(struct cursor *c, char out[SYI_CONFIG_STRING])
{
    size_t used = 0;
    c->at++;
    while (*c->at != '"') {
        char piece[4];
        int length = 1;
        if (*c->at == 0) return complain(c, "the string has no closing \" on its line");
        if (*c->at == '\\') {
            c->at++;
            length = read_escape(c, piece);
            if (length == 0)
                return complain(
                    c, "unknown escape in a string: \\\" \\\\ \\b \\f \\n \\r \\t \\uXXXX are known");
        } else {
            piece[0] = *c->at++;
        }
        if (used + (size_t)length >= SYI_CONFIG_STRING)
            return complain(c, "the string is longer than 1023 bytes");
        memcpy(out + used, piece, (size_t)length);
        used += (size_t)length;
    }
    c->at++;
    memset(out + used, 0, SYI_CONFIG_STRING - used);
    return SY_OK;
}

static int read_text(struct cursor *c, bool bare, char out[SYI_CONFIG_STRING])
{
    if (*c->at == '"') return read_quoted(c, out);
    if (!bare) return complain(c, "a string in quotes was expected, as in \"text\"");
    size_t length = strlen(c->at);
    if (length >= SYI_CONFIG_STRING) return complain(c, "the string is longer than 1023 bytes");
    memset(out, 0, SYI_CONFIG_STRING);
    memcpy(out, c->at, length);
    c->at += length;
    return SY_OK;
}

static int read_word(struct cursor *c, bool bare, char out[SYI_CONFIG_STRING])
{
    int status = read_text(c, bare, out);
    if (status == SY_OK && strlen(out) >= SYI_CONFIG_WORD)
        return complain(c, "the string is longer than 63 bytes");
    return status;
}

/* Index of the text among "|a|b|c", -1 when it is none of them. */
static int find_choice(const char *choices, const char *text)
{
    size_t length = strlen(text);
    int index = 0;
    for (const char *at = choices; at && *at == '|'; at = strchr(at + 1, '|'), index++) {
        size_t n = strcspn(at + 1, "|");
        if (n == length && strncmp(at + 1, text, n) == 0) return index;
    }
    return -1;
}

/* Of "|a|b|c" what the text may be meant for. */
static struct syi_nearest nearest_choice(const char *choices, const char *text)
{
    struct syi_nearest nearest = {.name = text};
    for (const char *at = choices; at; at = strchr(at + 1, '|'))
        syi_nearest_offer(&nearest, at + 1, strcspn(at + 1, "|"));
    return nearest;
}

static int read_choice(struct cursor *c, const struct syi_option *option, bool bare, int *value)
{
    char text[SYI_CONFIG_STRING];
    const char *start = c->at;
    int status = read_text(c, bare, text);
    if (status != SY_OK) return status;
    *value = find_choice(option->range, text);
    if (*value >= 0) return SY_OK;
    struct syi_nearest nearest = nearest_choice(option->range, text);
    if (!*nearest.known) return refuse(c, option, start);
    struct syi_text wanted = {0};
    syi_option_describe(option, &wanted);
    snprintf(c->reason, SYI_REASON, "%.80s is not accepted, did you mean %s? It takes %s", start,
             nearest.known, wanted.data ? wanted.data : "another value");
    syi_text_free(&wanted);
    return SY_EINVAL;
}

/* ---- lists ---- */

union value {
    int64_t integer; /* INT and SIZE */
    double number;   /* FLOAT */
    bool truth;      /* BOOL */
    int choice;      /* ENUM */
    struct syi_ints ints;
    struct syi_floats floats;
    struct syi_strings strings;
    char text[SYI_CONFIG_STRING];
};

const char *syi_strings_at(const struct syi_strings *strings, int i)
{
    const char *at = strings->text;
    while (i-- > 0) at += strlen(at) + 1;
    return at;
}

int syi_strings_auto(const struct syi_strings *strings)
{
    return strings->n == 1 && !strcmp(strings->text, "auto");
}

/* Says which of the choices the text may be meant for, and what there is. */
static void suggest(struct cursor *c, const char *choices, const char *text)
{
    struct syi_nearest nearest = nearest_choice(choices, text);
    const char *known = nearest.known;
    snprintf(c->reason, SYI_REASON, "unknown %.60s%s%s%s There are:", text, *known ? ", did you mean " : ".",
             known, *known ? "?" : "");
    for (const char *at = choices; at; at = strchr(at + 1, '|')) {
        size_t used = strlen(c->reason);
        snprintf(c->reason + used, SYI_REASON - used, " %.*s", (int)strcspn(at + 1, "|"), at + 1);
    }
}

/* A string of a list; without quotes it ends where the next begins. */
static int read_item_text(struct cursor *c, const struct syi_option *option, bool bare,
                          struct syi_strings *list)
{
    char text[SYI_CONFIG_STRING];
    if (*c->at == '"') {
        if (read_quoted(c, text) != SY_OK) return 0;
    } else {
        size_t length = strcspn(c->at, ",]");
        if (!bare || length >= sizeof(text)) return 0;
        memcpy(text, c->at, length);
        c->at += length;
        while (length && (text[length - 1] == ' ' || text[length - 1] == '\t')) length--;
        text[length] = 0;
        if (!length) return 0;
    }
    if (*option->range && find_choice(option->range, text) < 0) {
        suggest(c, option->range, text);
        return 0;
    }
    size_t bytes = strlen(text) + 1, used = (size_t)(syi_strings_at(list, list->n) - list->text);
    if (used + bytes > sizeof(list->text)) return 0;
    memcpy(list->text + used, text, bytes);
    list->n++;
    return 1;
}

/* One value of a list, added after those there are. */
static int read_item(struct cursor *c, const struct syi_option *option, bool bare, union value *value)
{
    struct syi_ints *ints = &value->ints;
    struct syi_floats *floats = &value->floats;
    switch (option->type) {
    case SYI_OPTION_INTS:
        return ints->n < SYI_CONFIG_INTS && read_integer(c, &ints->values[ints->n]) &&
               in_range(option->range, (double)ints->values[ints->n++]);
    case SYI_OPTION_FLOATS:
        return floats->n < SYI_CONFIG_FLOATS && read_double(c, &floats->values[floats->n]) &&
               in_range(option->range, floats->values[floats->n++]);
    default: return read_item_text(c, option, bare, &value->strings);
    }
}

static int read_list(struct cursor *c, const struct syi_option *option, bool bare, union value *value)
{
    if (*c->at++ != '[') return 0;
    for (;;) {
        skip_blanks(c);
        if (*c->at == ']') break;
        if (!read_item(c, option, bare, value)) return 0;
        skip_blanks(c);
        if (*c->at == ']') break;
        if (*c->at++ != ',') return 0;
    }
    c->at++;
    return 1;
}

/* ---- any type ---- */

/* Takes "auto", quoted or not, off the text where it is the option's default. */
static int take_auto(struct cursor *c, const struct syi_option *option)
{
    int quoted = *c->at == '"';
    if (strcmp(option->default_text, "auto") || strncmp(c->at + quoted, "auto", 4)) return 0;
    if (quoted && c->at[5] != '"') return 0;
    c->at += quoted ? 6 : 4;
    return 1;
}

/* A number that is auto is NaN, which no number in a run file can be. */
static int read_auto(struct cursor *c, const struct syi_option *option, double *value)
{
    if (!take_auto(c, option)) return 0;
    *value = NAN;
    return 1;
}

static int read_auto_list(struct cursor *c, const struct syi_option *option, struct syi_strings *list)
{
    if (!take_auto(c, option)) return 0;
    list->n = 1;
    memcpy(list->text, "auto", sizeof "auto");
    return 1;
}

static int read_truth(struct cursor *c, bool *truth)
{
    *truth = strncmp(c->at, "true", 4) == 0;
    if (!*truth && strncmp(c->at, "false", 5) != 0) return 0;
    c->at += *truth ? 4 : 5;
    return 1;
}

static int read_by_type(struct cursor *c, const struct syi_option *option, bool bare, union value *value)
{
    const char *start = c->at;
    int good = 0;
    *c->reason = 0;
    switch (option->type) {
    case SYI_OPTION_INT:
        good = read_integer(c, &value->integer) && in_range(option->range, (double)value->integer);
        break;
    case SYI_OPTION_SIZE:
        good =
            read_quotable(c, read_size, &value->integer) && in_range(option->range, (double)value->integer);
        break;
    case SYI_OPTION_DURATION:
        good = read_quotable(c, read_duration, &value->integer) &&
               in_range(option->range, (double)value->integer);
        break;
    case SYI_OPTION_FLOAT:
        good = read_auto(c, option, &value->number) ||
               (read_double(c, &value->number) && in_range(option->range, value->number));
        break;
    case SYI_OPTION_BOOL: good = read_truth(c, &value->truth); break;
    case SYI_OPTION_STRINGS:
        good = read_auto_list(c, option, &value->strings) || read_list(c, option, bare, value);
        break;
    case SYI_OPTION_INTS:
    case SYI_OPTION_FLOATS: good = read_list(c, option, bare, value); break;
    case SYI_OPTION_STRING: return read_text(c, bare, value->text);
    case SYI_OPTION_WORD: return read_word(c, bare, value->text);
    case SYI_OPTION_ENUM: return read_choice(c, option, bare, &value->choice);
    }
    if (good) return SY_OK;
    return *c->reason ? SY_EINVAL : refuse(c, option, start);
}

int syi_option_parse(const struct syi_option *option, const char *text, bool bare, void *field,
                     char reason[SYI_REASON])
{
    struct cursor c = {.at = text, .reason = reason};
    union value value;
    memset(&value, 0, sizeof(value));
    skip_blanks(&c);
    const char *start = c.at;
    int status = read_by_type(&c, option, bare, &value);
    if (status != SY_OK) return status;
    skip_blanks(&c);
    if (*c.at) return refuse(&c, option, start);
    memcpy(field, &value, option->bytes);
    return SY_OK;
}

static void print_quoted(const char *text, struct syi_text *out)
{
    static const char from[] = "\"\\\b\f\n\r\t", to[] = "\"\\bfnrt";
    syi_text_puts(out, "\"");
    for (; *text; text++) {
        const char *hit = strchr(from, *text);
        if (hit)
            syi_text_printf(out, "\\%c", to[hit - from]);
        else if ((unsigned char)*text < 0x20)
            syi_text_printf(out, "\\u%04x", (unsigned char)*text);
        else
            syi_text_append(out, text, 1);
    }
    syi_text_puts(out, "\"");
}

static void print_choice(const char *choices, int index, struct syi_text *out)
{
    const char *at = choices;
    while (index-- > 0 && at) at = strchr(at + 1, '|');
    if (at) syi_text_printf(out, "\"%.*s\"", (int)strcspn(at + 1, "|"), at + 1);
}

static void print_double(double value, struct syi_text *out)
{
    char text[SYI_NUMBER_BYTES];
    syi_format_double(text, value);
    syi_text_puts(out, text);
    if (!strpbrk(text, ".en")) syi_text_puts(out, ".0"); /* a TOML float shows that it is one */
}

/* Value i of a list. */
static void print_item(enum syi_option_type type, const void *field, int i, struct syi_text *out)
{
    if (type == SYI_OPTION_INTS)
        syi_text_printf(out, "%" PRId64, ((const struct syi_ints *)field)->values[i]);
    else if (type == SYI_OPTION_FLOATS)
        print_double(((const struct syi_floats *)field)->values[i], out);
    else
        print_quoted(syi_strings_at(field, i), out);
}

static void print_list(enum syi_option_type type, const void *field, struct syi_text *out)
{
    int32_t n = *(const int32_t *)field; /* the first field of each */
    syi_text_puts(out, "[");
    for (int i = 0; i < n; i++) {
        if (i) syi_text_puts(out, ", ");
        print_item(type, field, i, out);
    }
    syi_text_puts(out, "]");
}

void syi_option_print(const struct syi_option *option, const void *field, struct syi_text *out)
{
    switch (option->type) {
    case SYI_OPTION_INT:
    case SYI_OPTION_SIZE:
    case SYI_OPTION_DURATION: syi_text_printf(out, "%" PRId64, *(const int64_t *)field); break;
    case SYI_OPTION_FLOAT:
        if (isnan(*(const double *)field))
            syi_text_puts(out, "\"auto\"");
        else
            print_double(*(const double *)field, out);
        break;
    case SYI_OPTION_BOOL: syi_text_puts(out, *(const bool *)field ? "true" : "false"); break;
    case SYI_OPTION_STRING:
    case SYI_OPTION_WORD: print_quoted(field, out); break;
    case SYI_OPTION_ENUM: print_choice(option->range, *(const int *)field, out); break;
    case SYI_OPTION_STRINGS:
        if (!strcmp(option->default_text, "auto") && syi_strings_auto(field))
            syi_text_puts(out, "\"auto\"");
        else
            print_list(option->type, field, out);
        break;
    case SYI_OPTION_INTS:
    case SYI_OPTION_FLOATS: print_list(option->type, field, out); break;
    }
}

void syi_option_describe(const struct syi_option *option, struct syi_text *out)
{
    static const char *const names[] = {
        [SYI_OPTION_INT] = "an integer",
        [SYI_OPTION_SIZE] = "a number of bytes, with or without KiB, MiB, GiB",
        [SYI_OPTION_DURATION] = "seconds, or a time like 3h50m with d, h, m, s,",
        [SYI_OPTION_FLOAT] = "a number",
        [SYI_OPTION_BOOL] = "true or false",
        [SYI_OPTION_STRING] = "a string",
        [SYI_OPTION_ENUM] = "a choice",
        [SYI_OPTION_WORD] = "a string of at most 63 bytes",
        [SYI_OPTION_INTS] = "a list of up to 16 integers like [16, 32], each",
        [SYI_OPTION_FLOATS] = "a list of up to 16 numbers like [0.5, 2.0], each",
        [SYI_OPTION_STRINGS] = "a list of strings like [\"a\", \"b*\"], together at most 1024 bytes",
    };
    int choices = *option->range == '|';
    syi_text_puts(out,
                  choices ? option->type == SYI_OPTION_ENUM ? "one of " : "a list of " : names[option->type]);
    if (!choices) {
        if (*option->range) syi_text_printf(out, " in %s", option->range);
        if (!strcmp(option->default_text, "auto")) syi_text_puts(out, ", or auto");
        return;
    }
    for (const char *at = option->range; at; at = strchr(at + 1, '|'))
        syi_text_printf(out, "%s%.*s", at == option->range ? "" : " | ", (int)strcspn(at + 1, "|"), at + 1);
}

int syi_option_differs(const struct syi_option *option, const void *part, int *differs, struct sy_error *err)
{
    struct syi_text now = {0}, before = {0};
    char reason[SYI_REASON];
    union {
        struct syi_strings strings;
        char text[SYI_CONFIG_STRING];
        double number;
    } plain = {{0}};
    *differs = 0;
    if (syi_option_parse(option, option->default_text, false, &plain, reason) != SY_OK) return SY_OK;
    syi_option_print(option, (const char *)part + option->offset, &now);
    syi_option_print(option, &plain, &before);
    int status = syi_text_status(&now, err);
    if (!status) status = syi_text_status(&before, err);
    if (!status) *differs = strcmp(now.data, before.data) != 0;
    syi_text_free(&now);
    syi_text_free(&before);
    return status;
}
