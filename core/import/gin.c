/* SPDX-License-Identifier: Apache-2.0 */
/* Reads gin files: statements of lines, values over as many lines as their brackets take, blocks of a function and indented
 * parameters, includes. */
#include "config.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "import/gin.h"

struct reader {
    struct syi_gin *gin;
    const char *path, *text, *end, *at;
    const char *line_start; /* of the line that `at` is on */
    int line, depth;        /* depth: of brackets */
    int includes;
    uint32_t file; /* path as a string of gin */
    struct sy_error *err;
};

static int fail(const struct reader *r, int line, const char *what)
{
    return syi_error(r->err, SY_EFORMAT, "%s:%d: %s", r->path, line, what);
}

/* ---- what gin owns ---- */

static int put_string(struct reader *r, const char *text, size_t length, uint32_t *at)
{
    struct syi_gin *gin = r->gin;
    if (gin->string_bytes + length + 1 > UINT32_MAX / 2) return fail(r, r->line, "too large for a gin file");
    int status = SYI_GROW(gin->strings, gin->string_capacity, gin->string_bytes + length + 1, r->err);
    if (status) return status;
    *at = (uint32_t)gin->string_bytes;
    if (length) memcpy(gin->strings + gin->string_bytes, text, length);
    gin->strings[gin->string_bytes + length] = 0;
    gin->string_bytes += length + 1;
    return SY_OK;
}

static int put_node(struct reader *r, enum syi_gin_kind kind, const char *text, size_t length, uint32_t *node)
{
    struct syi_gin *gin = r->gin;
    uint32_t string = 0;
    if (gin->n_nodes >= SYI_GIN_NODES) return fail(r, r->line, "more values than a gin file has");
    int status = put_string(r, text, length, &string);
    if (!status) status = SYI_GROW(gin->nodes, gin->node_capacity, gin->n_nodes + 1, r->err);
    if (status) return status;
    gin->nodes[gin->n_nodes] = (struct syi_gin_node){kind, string, SYI_GIN_NONE, SYI_GIN_NONE, 0};
    *node = (uint32_t)gin->n_nodes++;
    return SY_OK;
}

static int put_binding(struct reader *r, const char *name, int line, uint32_t value)
{
    struct syi_gin *gin = r->gin;
    uint32_t string = 0;
    int status = put_string(r, name, strlen(name), &string);
    if (!status) status = SYI_GROW(gin->bindings, gin->binding_capacity, gin->n_bindings + 1, r->err);
    if (!status) gin->bindings[gin->n_bindings++] = (struct syi_gin_binding){string, r->file, line, value};
    return status;
}

static int put_missing(struct reader *r, const char *text, int line)
{
    struct syi_gin *gin = r->gin;
    uint32_t string = 0;
    int status = put_string(r, text, strlen(text), &string);
    if (!status) status = SYI_GROW(gin->missing, gin->missing_capacity, gin->n_missing + 1, r->err);
    if (!status) gin->missing[gin->n_missing++] = (struct syi_gin_note){r->file, string, line};
    return status;
}

/* ---- blanks, lines, names ---- */

static void next_line(struct reader *r)
{
    r->at++;
    r->line++;
    r->line_start = r->at;
}

/* The bytes before the line feed of a line that a backslash joins with the next, which may end with CR LF; 0: it is none. */
static int joined(const struct reader *r)
{
    if (*r->at != '\\') return 0;
    const int bytes = r->end - r->at > 2 && r->at[1] == '\r' ? 2 : 1;
    return r->end - r->at > bytes && r->at[bytes] == '\n' ? bytes : 0;
}

/* Blanks, comments and lines that a backslash joins; inside brackets, and with `lines`, line ends too. */
static void skip(struct reader *r, int lines)
{
    while (r->at < r->end) {
        if (*r->at == '#')
            while (r->at < r->end && *r->at != '\n') r->at++;
        else if (joined(r))
            r->at += joined(r), next_line(r);
        else if (*r->at == '\n' && (lines || r->depth))
            next_line(r);
        else if (*r->at == ' ' || *r->at == '\t' || *r->at == '\r' || *r->at == '\f')
            r->at++;
        else
            return;
    }
}

static int peek(const struct reader *r)
{
    return r->at < r->end ? (unsigned char)*r->at : 0;
}

static int end_of_statement(struct reader *r)
{
    skip(r, 0);
    if (r->at == r->end || *r->at == '\n') return SY_OK;
    return fail(r, r->line, "something after the end of the statement: one statement a line");
}

static int in_name(int c)
{
    return isalnum(c) || c == '_' || c == '.' || c == '/';
}

/* A name with its scopes and modules: letters, digits, _ . / from here on. */
static int read_name(struct reader *r, const char **name, size_t *length)
{
    const char *begin = r->at;
    while (r->at < r->end && in_name((unsigned char)*r->at)) r->at++;
    *name = begin;
    *length = (size_t)(r->at - begin);
    if (!*length) return fail(r, r->line, "a name is missing");
    if (isdigit((unsigned char)*begin) || *begin == '/' || *begin == '.' || r->at[-1] == '/' ||
        r->at[-1] == '.')
        return fail(r, r->line,
                    "a name begins with a letter or _, and ends neither with a point nor with a slash");
    return SY_OK;
}

/* ---- values ---- */

static int read_value(struct reader *r, uint32_t *value);

static int read_escape(struct reader *r, struct syi_text *out)
{
    static const char from[] = "abfnrtv\\'\"", to[] = "\a\b\f\n\r\t\v\\'\"";
    const char *which = r->at < r->end && *r->at ? strchr(from, *r->at) : NULL;
    if (r->at == r->end) return SY_OK; /* the caller finds the string open */
    if (*r->at == '\n') {
        next_line(r);
        return SY_OK;
    }
    if (which)
        syi_text_append(out, &to[which - from], 1);
    else
        syi_text_append(out, r->at - 1, 2); /* as Python: what is no escape stays */
    r->at++;
    return SY_OK;
}

/* Whether a string begins here: its quote, or r before it, after which a backslash is one. */
static int at_string(struct reader *r)
{
    int c = peek(r);
    if ((c == 'r' || c == 'R') && r->end - r->at > 1) c = (unsigned char)r->at[1];
    return c == '"' || c == '\'';
}

/* One string in quotes, of one kind or of three; appended to out. */
static int read_quoted(struct reader *r, struct syi_text *out)
{
    int raw = *r->at == 'r' || *r->at == 'R', line = r->line, status = SY_OK;
    r->at += raw;
    int quote = (unsigned char)*r->at;
    size_t n = r->end - r->at >= 3 && r->at[1] == quote && r->at[2] == quote ? 3 : 1;
    r->at += n;
    for (;;) {
        if (r->at == r->end || (n == 1 && *r->at == '\n')) return fail(r, line, "a string that does not end");
        if (*r->at == quote && (n == 1 || (r->end - r->at >= 3 && r->at[1] == quote && r->at[2] == quote)))
            break;
        if (*r->at == '\\' && raw && r->end - r->at > 1 && (r->at[1] == quote || r->at[1] == '\\')) {
            syi_text_append(out, r->at, 2); /* as Python: both stay, and the quote ends nothing */
            r->at += 2;
            continue;
        }
        if (*r->at == '\\' && !raw) {
            r->at++;
            status = read_escape(r, out);
            if (status) return status;
            continue;
        }
        if (!*r->at) return fail(r, r->line, "a NUL byte in a string");
        syi_text_append(out, r->at, 1);
        if (*r->at == '\n')
            next_line(r);
        else
            r->at++;
    }
    r->at += n;
    return syi_text_status(out, r->err);
}

/* Strings next to each other are one. */
static int read_string(struct reader *r, uint32_t *value)
{
    struct syi_text text = {0};
    int status = SY_OK;
    do {
        status = read_quoted(r, &text);
        if (!status) skip(r, 0);
    } while (!status && at_string(r));
    if (!status) status = put_node(r, SYI_GIN_STRING, text.data ? text.data : "", text.length, value);
    syi_text_free(&text);
    return status;
}

/* 0x10, 0o20 and 0b10000 with or without a sign: in decimal, as a run file has them. Others stay as they are. */
static void make_decimal(char text[64])
{
    char *digits = text + strspn(text, "+-"), *end;
    const int kind = *digits == '0' ? tolower((unsigned char)digits[1]) : 0;
    const int base = kind == 'x' ? 16 : kind == 'o' ? 8 : kind == 'b' ? 2 : 0;
    if (!base) return;
    errno = 0;
    char *begin = base == 16 ? digits : digits + 2; /* strtoll takes 0x itself */
    const long long number = strtoll(begin, &end, base);
    if (end > begin && !*end && !errno) snprintf(digits, 32, "%lld", number);
}

static int read_number(struct reader *r, uint32_t *value)
{
    char text[64];
    const char *stop;
    size_t n = 0;
    if (*r->at == '-' || *r->at == '+') text[n++] = *r->at++;
    while (r->at < r->end && n + 1 < sizeof text) {
        int c = (unsigned char)*r->at,
            sign = (c == '-' || c == '+') && tolower((unsigned char)r->at[-1]) == 'e';
        if (!isalnum(c) && c != '.' && c != '_' && !sign) break;
        if (c != '_') text[n++] = (char)c;
        r->at++;
    }
    text[n] = 0;
    make_decimal(text);
    syi_parse_double(text, &stop);
    if (stop == text || *stop || strpbrk(text, "xXiInN")) return fail(r, r->line, "not a number");
    return put_node(r, SYI_GIN_NUMBER, text, strlen(text), value);
}

static void add_child(struct reader *r, uint32_t parent, uint32_t *last, uint32_t child)
{
    struct syi_gin_node *nodes = r->gin->nodes;
    if (*last == SYI_GIN_NONE)
        nodes[parent].first = child;
    else
        nodes[*last].next = child;
    nodes[parent].children++;
    *last = child;
}

/* An element, or a key, a colon and a value. */
static int read_element(struct reader *r, uint32_t parent, uint32_t *last)
{
    uint32_t child;
    int status = read_value(r, &child);
    if (!status) add_child(r, parent, last, child);
    if (status || r->gin->nodes[parent].kind != SYI_GIN_DICT) return status;
    skip(r, 0);
    if (peek(r) != ':') return fail(r, r->line, "a dictionary wants ':' after a key");
    r->at++;
    status = read_value(r, &child);
    if (!status) add_child(r, parent, last, child);
    return status;
}

/* A list, a tuple, a dictionary, or a value in parentheses. */
static int read_brackets(struct reader *r, uint32_t *value)
{
    int open = (unsigned char)*r->at,
        close = open == '['   ? ']'
                : open == '(' ? ')'
                              : '}',
        line = r->line, commas = 0;
    uint32_t last = SYI_GIN_NONE;
    if (++r->depth > SYI_GIN_DEPTH) return fail(r, line, "brackets that are too deep");
    r->at++;
    int status = put_node(r, open == '{' ? SYI_GIN_DICT : SYI_GIN_LIST, "", 0, value);
    while (!status) {
        skip(r, 1);
        if (r->at == r->end) return fail(r, line, "a bracket that is not closed");
        if (*r->at == close) break;
        status = read_element(r, *value, &last);
        if (!status) skip(r, 1);
        if (!status && peek(r) == ',') {
            r->at++, commas++;
        } else if (!status && peek(r) != close) {
            if (r->at == r->end) return fail(r, line, "a bracket that is not closed");
            return fail(r, r->line, "a comma or the closing bracket is missing");
        }
    }
    if (status) return status;
    r->at++, r->depth--;
    if (open != '(' || commas || last == SYI_GIN_NONE) return SY_OK;
    r->gin->nodes[*value].first = SYI_GIN_NONE, r->gin->nodes[*value].children = 0;
    *value = last; /* (x) is x */
    return SY_OK;
}

/* %NAME or @scope/function, with () or without. */
static int read_mark(struct reader *r, uint32_t *value)
{
    int macro = *r->at++ == '%';
    const char *name;
    size_t length;
    int status = read_name(r, &name, &length);
    if (!status) status = put_node(r, macro ? SYI_GIN_MACRO : SYI_GIN_REFERENCE, name, length, value);
    if (status || macro || peek(r) != '(') return status;
    r->at++;
    skip(r, 0);
    if (peek(r) != ')') return fail(r, r->line, "@function() takes no arguments");
    r->at++;
    return SY_OK;
}

static int read_word(struct reader *r, uint32_t *value)
{
    static const char *const words[] = {"True", "False", "None"};
    const char *name;
    size_t length;
    int status = read_name(r, &name, &length);
    for (size_t i = 0; i < SYI_COUNT(words) && !status; i++)
        if (length == strlen(words[i]) && !strncmp(name, words[i], length))
            return put_node(r, SYI_GIN_WORD, name, length, value);
    return status
               ? status
               : fail(
                     r, r->line,
                     "not a value: a number, a string in quotes, True, False, None, %MACRO, @function or brackets");
}

static int read_value(struct reader *r, uint32_t *value)
{
    skip(r, 0);
    int c = peek(r);
    if (c == '%' || c == '@') return read_mark(r, value);
    if (at_string(r)) return read_string(r, value);
    if (c == '[' || c == '(' || c == '{') return read_brackets(r, value);
    if (isdigit(c) || c == '-' || c == '+' || c == '.') return read_number(r, value);
    if (!c || c == '\n') return fail(r, r->line, "a value is missing");
    return read_word(r, value);
}

/* ---- statements ---- */

/* "= value" after a name; prefix: of the block that it stands in, "" outside. */
static int read_assignment(struct reader *r, const char *prefix, const char *name, size_t length)
{
    uint32_t value = 0;
    int line = r->line;
    r->at++; /* the = */
    int status = read_value(r, &value);
    if (!status) status = end_of_statement(r);
    if (status) return status;
    char *full = syi_format("%s%s%.*s", prefix, *prefix ? "." : "", (int)length, name);
    if (!full) return syi_error(r->err, SY_ENOMEM, "out of memory");
    status = put_binding(r, full, line, value);
    syi_free(full);
    return status;
}

/* Lines "parameter = value" that are indented more than the name of the block. */
static int read_block(struct reader *r, const char *name, size_t length)
{
    const char *parameter;
    size_t n;
    r->at++; /* the colon */
    int status = end_of_statement(r);
    char *prefix = status ? NULL : syi_format("%.*s", (int)length, name);
    if (!status && !prefix) status = syi_error(r->err, SY_ENOMEM, "out of memory");
    while (!status) {
        skip(r, 1);
        if (r->at == r->end || r->at == r->line_start) break;
        status = read_name(r, &parameter, &n);
        if (!status) skip(r, 0);
        if (!status && peek(r) != '=') status = fail(r, r->line, "a block has lines of parameter = value");
        if (!status) status = read_assignment(r, prefix, parameter, n);
    }
    syi_free(prefix);
    return status;
}

static int read_import(struct reader *r)
{
    while (r->at < r->end && *r->at != '\n') {
        if (*r->at == '#') break;
        if (!in_name((unsigned char)*r->at) && !strchr(" \t\r,*()", *r->at))
            return fail(r, r->line, "not an import");
        r->at++;
    }
    return SY_OK; /* a comment is skipped as before any statement */
}

static int parse(struct syi_gin *gin, const char *path, const char *text, size_t bytes, int includes,
                 int depth, struct sy_error *err);

static int is_file(const char *path)
{
    struct stat info;
    return !stat(path, &info) && S_ISREG(info.st_mode);
}

/* "FOLDER/name" where FOLDER is that of the file `from` or one above it, as far as its path has them. Owned; NULL: nowhere. */
static char *find_above(const char *from, const char *name)
{
    char *folder = syi_format("%s", from), *path = NULL;
    while (folder && *folder && !path) {
        char *slash = strrchr(folder, '/');
        folder[slash ? slash - folder : 0] = 0;
        path = syi_format("%s%s%s", folder, slash ? "/" : "", name);
        if (path && !is_file(path)) syi_free(path), path = NULL;
    }
    syi_free(folder);
    return path;
}

/* Where the file of an include is. Owned; NULL: nowhere. */
static char *find_include(const char *from, const char *name)
{
    if (is_file(name)) return syi_format("%s", name);
    char *path = *name == '/' ? NULL : find_above(from, name);
    char *whole =
        path || *name == '/' ? NULL : realpath(from, NULL); /* folders above the working directory */
    if (whole) path = find_above(whole, name);
    free(whole);
    return path;
}

static int follow(struct reader *r, const char *name, int depth, int line)
{
    char *text = NULL, *path = r->includes ? find_include(r->path, name) : NULL;
    size_t bytes = 0;
    if (!path) return put_missing(r, name, line);
    int status = depth >= SYI_GIN_DEPTH || r->gin->files >= SYI_GIN_FILES
                     ? fail(r, line, "too many includes: does a file include itself?")
                     : syi_file_read(path, &text, &bytes, r->err);
    if (!status) {
        status = parse(r->gin, path, text, bytes, 1, depth + 1, r->err);
        syi_free(text);
    }
    syi_free(path);
    return status;
}

static int read_include(struct reader *r, int depth)
{
    uint32_t value = 0;
    int line = r->line, status = read_value(r, &value);
    if (!status) status = end_of_statement(r);
    if (!status && r->gin->nodes[value].kind != SYI_GIN_STRING)
        status = fail(r, line, "include wants a path in quotes");
    if (status) return status;
    char *name = syi_strdup(syi_gin_string(r->gin, r->gin->nodes[value].text), r->err);
    if (!name) return SY_ENOMEM;
    status = follow(r, name, depth, line);
    syi_free(name);
    return status;
}

static int is_word(const char *name, size_t length, const char *word)
{
    return length == strlen(word) && !strncmp(name, word, length);
}

static int read_statement(struct reader *r, int depth)
{
    const char *name;
    size_t length;
    if (r->at != r->line_start) return fail(r, r->line, "an indented line outside a block");
    int status = read_name(r, &name, &length);
    if (status) return status;
    skip(r, 0);
    if (peek(r) == '=') return read_assignment(r, "", name, length);
    if (peek(r) == ':') return read_block(r, name, length);
    if (is_word(name, length, "include")) return read_include(r, depth);
    if (is_word(name, length, "import") || is_word(name, length, "from")) return read_import(r);
    return fail(r, r->line, "not a statement of gin: name = value, name:, include or import");
}

static int parse(struct syi_gin *gin, const char *path, const char *text, size_t bytes, int includes,
                 int depth, struct sy_error *err)
{
    struct reader r = {.gin = gin,
                       .path = path,
                       .text = text,
                       .end = text + bytes,
                       .line = 1,
                       .includes = includes,
                       .err = err};
    r.at = r.line_start = text + syi_utf8_mark(text, bytes);
    gin->files++;
    int status = put_string(&r, path, strlen(path), &r.file);
    for (skip(&r, 1); !status && r.at < r.end; skip(&r, 1)) status = read_statement(&r, depth);
    return status;
}

int syi_gin_parse(struct syi_gin *gin, const char *path, const char *text, size_t bytes, int includes,
                  struct sy_error *err)
{
    return parse(gin, path, text, bytes, includes, 0, err);
}

int syi_gin_load(struct syi_gin *gin, const char *path, struct sy_error *err)
{
    char *text;
    size_t bytes;
    int status = syi_file_read(path, &text, &bytes, err);
    if (status) return status;
    status = parse(gin, path, text, bytes, 1, 0, err);
    syi_free(text);
    return status;
}

void syi_gin_free(struct syi_gin *gin)
{
    syi_free(gin->nodes);
    syi_free(gin->bindings);
    syi_free(gin->missing);
    syi_free(gin->strings);
    *gin = (struct syi_gin){0};
}

/* ---- looking at values ---- */

/* The last binding of that name, SYI_GIN_NONE: there is none. */
static uint32_t find_macro(const struct syi_gin *gin, const char *name)
{
    for (size_t i = gin->n_bindings; i--;)
        if (!strcmp(syi_gin_string(gin, gin->bindings[i].name), name)) return gin->bindings[i].value;
    return SYI_GIN_NONE;
}

uint32_t syi_gin_follow(const struct syi_gin *gin, uint32_t value)
{
    for (int i = 0; value != SYI_GIN_NONE && gin->nodes[value].kind == SYI_GIN_MACRO; i++) {
        uint32_t next = find_macro(gin, syi_gin_string(gin, gin->nodes[value].text));
        if (next == SYI_GIN_NONE) return value;
        if (i == SYI_GIN_DEPTH) return SYI_GIN_NONE;
        value = next;
    }
    return value;
}

uint32_t syi_gin_resolve(const struct syi_gin *gin, uint32_t value)
{
    uint32_t last = syi_gin_follow(gin, value);
    return last != SYI_GIN_NONE && gin->nodes[last].kind == SYI_GIN_MACRO ? SYI_GIN_NONE : last;
}

static void print_string(const char *text, struct syi_text *out)
{
    syi_text_puts(out, "'");
    for (; *text; text++) {
        if ((unsigned char)*text < 32 || *text == 127)
            syi_text_printf(out, "\\x%02x", (unsigned char)*text);
        else
            syi_text_append(out, text, 1);
    }
    syi_text_puts(out, "'");
}

void syi_gin_print(const struct syi_gin *gin, uint32_t value, struct syi_text *out)
{
    const struct syi_gin_node *node = &gin->nodes[value];
    const char *text = syi_gin_string(gin, node->text);
    int dict = node->kind == SYI_GIN_DICT, i = 0;
    switch (node->kind) {
    case SYI_GIN_STRING: print_string(text, out); return;
    case SYI_GIN_MACRO: syi_text_printf(out, "%%%s", text); return;
    case SYI_GIN_REFERENCE: syi_text_printf(out, "@%s", text); return;
    case SYI_GIN_NUMBER:
    case SYI_GIN_WORD: syi_text_puts(out, text); return;
    case SYI_GIN_LIST:
    case SYI_GIN_DICT: break;
    }
    syi_text_puts(out, dict ? "{" : "(");
    for (uint32_t child = node->first; child != SYI_GIN_NONE; child = gin->nodes[child].next, i++) {
        if (i) syi_text_puts(out, dict && i % 2 ? ": " : ", ");
        syi_gin_print(gin, child, out);
    }
    syi_text_puts(out, dict ? "}" : ")");
}
