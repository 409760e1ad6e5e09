/* SPDX-License-Identifier: Apache-2.0 */
/* Reading and printing terms; values of arguments are those of options (run_config_value.c). */
#include "config.h"

#include <ctype.h>
#include <limits.h>
#include <stdarg.h>
#include <string.h>

#include "base/terms.h"

struct reader {
    struct syi_terms *terms;
    const struct syi_term_kind *kinds;
    size_t n_kinds;
    const char *at;
    char *reason; /* [SYI_TERM_REASON] */
};

static int refuse(struct reader *r, const char *format, ...) SYI_PRINTF(2, 3);
static int refuse(struct reader *r, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(r->reason, SYI_TERM_REASON, format, args);
    va_end(args);
    return SY_EINVAL;
}

static void skip_blanks(struct reader *r)
{
    r->at += strspn(r->at, " \t");
}

static size_t name_length(const char *text)
{
    size_t n = 0;
    while (isalnum((unsigned char)text[n]) || text[n] == '_') n++;
    return n;
}

/* ---- names ---- */

enum { NAME = 48 };

/* How far a name is from a kind's, or from its end behind "scale_by_", of which it may be the first words ("rsqrt" of
 * rsqrt_decay); INT_MAX: it is no misspelling of it. */
static int kind_distance(const char *name, const char *kind)
{
    static const char before[] = "scale_by_";
    const char *end = strncmp(kind, before, sizeof before - 1) ? kind : kind + sizeof before - 1;
    size_t n = strlen(name);
    if (!strncmp(end, name, n) && end[n] == '_') return 1;
    if (syi_is_near(name, kind)) return syi_edit_distance(name, kind);
    return syi_is_near(name, end) ? syi_edit_distance(name, end) : INT_MAX;
}

static const struct syi_term_kind *find_kind(struct reader *r, const char *name)
{
    const struct syi_term_kind *nearest = NULL;
    int least = INT_MAX;
    for (size_t i = 0; i < r->n_kinds; i++) {
        int distance = kind_distance(name, r->kinds[i].name);
        if (!strcmp(name, r->kinds[i].name)) return &r->kinds[i];
        if (distance < least) least = distance, nearest = &r->kinds[i];
    }
    if (nearest)
        refuse(r, "there is no %s, did you mean %s?", name, nearest->name);
    else
        refuse(
            r,
            "there is no %s, and nothing of a name like it (`switchyard config --factors` and `--transforms` list all)",
            name);
    return NULL;
}

static void refuse_argument(struct reader *r, const struct syi_term_kind *kind, const char *name)
{
    struct syi_text known = {0};
    struct syi_nearest nearest = {.name = name};
    for (size_t i = 0; i < kind->n_arguments; i++) {
        const char *argument = kind->arguments[i].name;
        syi_nearest_offer(&nearest, argument, strlen(argument));
        syi_text_printf(&known, "%s%s", i ? ", " : "", argument);
    }
    const char *meant = nearest.known, *all = known.data ? known.data : "none";
    refuse(r, "%s has no argument %s%s%s%s takes %s", kind->name, name, *meant ? ", did you mean " : ": it",
           meant, *meant ? "? It" : "", all);
    syi_text_free(&known);
}

static const struct syi_option *find_argument(struct reader *r, const struct syi_term_kind *kind,
                                              const char *name)
{
    for (size_t i = 0; i < kind->n_arguments; i++)
        if (!strcmp(kind->arguments[i].name, name)) return &kind->arguments[i];
    refuse_argument(r, kind, name);
    return NULL;
}

/* Takes a name off the text; 0: there is none. */
static int take_name(struct reader *r, char name[NAME])
{
    size_t n = name_length(r->at);
    snprintf(name, NAME, "%.*s", (int)(n < NAME ? n : NAME - 1), r->at);
    r->at += n;
    return n > 0;
}

/* ---- arguments ---- */

/* Bytes up to the ',' or ')' that ends a value: outside of quotes and brackets. */
static size_t value_length(const char *text)
{
    char quote = 0;
    int depth = 0;
    size_t n = 0;
    for (; text[n]; n++) {
        char c = text[n];
        if (quote) {
            if (c == quote) quote = 0;
        } else if (c == '\'' || c == '"') {
            quote = c;
        } else if (c == '[' || c == '(') {
            depth++;
        } else if (depth && (c == ']' || c == ')')) {
            depth--;
        } else if (!depth && (c == ',' || c == ')')) {
            break;
        }
    }
    return n;
}

static int read_value(struct reader *r, const struct syi_term_kind *kind, const struct syi_option *argument,
                      unsigned char *values)
{
    char text[SYI_CONFIG_STRING], why[SYI_REASON];
    size_t n = value_length(r->at);
    if (n >= sizeof text) return refuse(r, "%s: a value is longer than 1023 bytes", kind->name);
    memcpy(text, r->at, n);
    text[n] = 0;
    for (size_t i = 0; i < n; i++)
        if (text[i] == '\'') text[i] = '"';
    while (n && (text[n - 1] == ' ' || text[n - 1] == '\t')) text[--n] = 0;
    if (syi_option_parse(argument, text, false, values + argument->offset, why) != SY_OK) {
        for (char *c = why; *c; c++) /* what stands in double quotes itself has single ones in it */
            if (*c == '"') *c = '\'';
        return refuse(r, "%s: %s: %s", kind->name, argument->name, why);
    }
    r->at += value_length(r->at);
    return SY_OK;
}

/* One argument, "key=value" or the value of number i. given: a bit for each argument that was there before. */
static int read_argument(struct reader *r, const struct syi_term_kind *kind, size_t i, uint64_t *given,
                         unsigned char *values)
{
    char name[NAME];
    size_t n = name_length(r->at);
    const char *equals = r->at + n + strspn(r->at + n, " \t");
    const struct syi_option *argument;
    if (n && *equals == '=') {
        take_name(r, name);
        argument = find_argument(r, kind, name);
        r->at = equals + 1;
        skip_blanks(r);
    } else if (i < kind->n_arguments) {
        argument = &kind->arguments[i];
    } else {
        return refuse(r, "%s takes %zu arguments at most", kind->name, kind->n_arguments);
    }
    if (!argument) return SY_EINVAL;
    uint64_t bit = UINT64_C(1) << (argument - kind->arguments);
    if (*given & bit) return refuse(r, "%s: %s is given twice", kind->name, argument->name);
    *given |= bit;
    return read_value(r, kind, argument, values);
}

/* Whether a term stands here, and not an argument: a name with '(', or that of a kind without '='. */
static int term_stands_here(const struct reader *r)
{
    size_t n = name_length(r->at);
    char next = r->at[n + strspn(r->at + n, " \t")];
    if (next == '=' || next == '(') return n && next == '(';
    for (size_t i = 0; i < r->n_kinds; i++)
        if (strlen(r->kinds[i].name) == n && !strncmp(r->kinds[i].name, r->at, n)) return 1;
    return 0;
}

/* ---- terms ---- */

static int fill_defaults(const struct syi_term_kind *kind, unsigned char *values, char why[SYI_REASON])
{
    for (size_t i = 0; i < kind->n_arguments; i++) {
        const struct syi_option *argument = &kind->arguments[i];
        int status =
            syi_option_parse(argument, argument->default_text, false, values + argument->offset, why);
        if (status != SY_OK) return status;
    }
    return SY_OK;
}

void *syi_terms_add(struct syi_terms *terms, const struct syi_term_kind *kind)
{
    char why[SYI_REASON];
    if (terms->n == SYI_TERMS || kind->bytes > SYI_TERM_BYTES) return NULL;
    struct syi_term *term = &terms->term[terms->n];
    memset(term, 0, sizeof *term);
    if (fill_defaults(kind, term->values, why) != SY_OK) return NULL;
    term->kind = kind;
    term->end = ++terms->n;
    return term->values;
}

static int read_term(struct reader *r);

/* After '(': the terms that it holds, then its arguments, up to and with ')'. */
static int read_arguments(struct reader *r, int term)
{
    const struct syi_term_kind *kind = r->terms->term[term].kind;
    uint64_t given = 0;
    size_t i = 0;
    for (skip_blanks(r); *r->at != ')'; skip_blanks(r)) {
        int inner = kind->inner && !i && term_stands_here(r);
        int status = inner ? read_term(r) : read_argument(r, kind, i++, &given, r->terms->term[term].values);
        if (status != SY_OK) return status;
        skip_blanks(r);
        if (*r->at == ',')
            r->at++;
        else if (*r->at != ')')
            return refuse(r, "%s: a ',' or a ')' is missing at \"%.40s\"", kind->name, r->at);
    }
    r->at++;
    return SY_OK;
}

static int read_term(struct reader *r)
{
    char name[NAME];
    int status = SY_OK, term = r->terms->n;
    skip_blanks(r);
    if (!take_name(r, name)) return refuse(r, "a name is missing at \"%.40s\"", r->at);
    const struct syi_term_kind *kind = find_kind(r, name);
    if (!kind) return SY_EINVAL;
    if (!syi_terms_add(r->terms, kind)) return refuse(r, "there are more than %d terms", SYI_TERMS);
    skip_blanks(r);
    if (*r->at == '(') {
        r->at++;
        status = read_arguments(r, term);
    }
    r->terms->term[term].end = r->terms->n;
    if (status == SY_OK && kind->inner && r->terms->n == term + 1)
        return refuse(r, "%s needs what it applies to, as in %s(trace(decay=0.9))", name, name);
    skip_blanks(r);
    return status;
}

int syi_terms_read(struct syi_terms *terms, const struct syi_term_kind *kinds, size_t n_kinds,
                   const char *text, char reason[SYI_TERM_REASON])
{
    struct reader r = {terms, kinds, n_kinds, text, reason};
    int status = read_term(&r);
    if (status == SY_OK && *r.at) return refuse(&r, "nothing was expected at \"%.40s\"", r.at);
    return status;
}

int syi_terms_read_product(struct syi_terms *terms, const struct syi_term_kind *kinds, size_t n_kinds,
                           const char *text, char reason[SYI_TERM_REASON])
{
    struct reader r = {terms, kinds, n_kinds, text, reason};
    int status = read_term(&r);
    while (status == SY_OK && *r.at == '*') {
        r.at++;
        status = read_term(&r);
    }
    if (status == SY_OK && *r.at) return refuse(&r, "a '*' is missing at \"%.40s\"", r.at);
    return status;
}

int syi_terms_place(const struct syi_terms *terms, int begin, int term)
{
    int place = 0;
    for (int t = begin; t < term; t = terms->term[t].end) place++;
    return place;
}

/* ---- printing ---- */

static void print_argument(const struct syi_option *argument, const unsigned char *values,
                           struct syi_text *out)
{
    struct syi_text value = {0};
    syi_option_print(argument, values + argument->offset, &value);
    for (size_t i = 0; i < value.length; i++)
        if (value.data[i] == '"') value.data[i] = '\'';
    syi_text_printf(out, "%s=%s", argument->name, value.data ? value.data : "");
    if (value.status) out->status = value.status;
    syi_text_free(&value);
}

void syi_terms_print(const struct syi_terms *terms, int i, struct syi_text *out)
{
    const struct syi_term *term = &terms->term[i];
    const char *between = "(";
    syi_text_puts(out, term->kind->name);
    for (int inner = i + 1; inner < term->end; inner = terms->term[inner].end, between = ", ") {
        syi_text_puts(out, between);
        syi_terms_print(terms, inner, out);
    }
    for (size_t k = 0; k < term->kind->n_arguments; k++, between = ", ") {
        syi_text_puts(out, between);
        print_argument(&term->kind->arguments[k], term->values, out);
    }
    if (*between == ',') syi_text_puts(out, ")");
}

void syi_terms_print_list(const struct syi_terms *terms, struct syi_text *out)
{
    syi_text_puts(out, "[");
    for (int i = 0; i < terms->n; i = terms->term[i].end) {
        syi_text_puts(out, i ? ", \"" : "\"");
        syi_terms_print(terms, i, out);
        syi_text_puts(out, "\"");
    }
    syi_text_puts(out, "]");
}

void syi_term_describe(const struct syi_term_kind *kind, struct syi_text *out)
{
    syi_text_printf(out, "%s: %s\n", kind->name, kind->help);
    for (size_t k = 0; k < kind->n_arguments; k++) {
        const struct syi_option *argument = &kind->arguments[k];
        syi_text_printf(out, "  %s: %s\n    (", argument->name, argument->help);
        syi_option_describe(argument, out);
        syi_text_printf(out, "; default %s)\n", argument->default_text);
    }
}
