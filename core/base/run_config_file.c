/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a run file: lines of [section], key = value, comments. Values are read in run_config_value.c. A value
 * stands on one line; that is all of TOML that run files use. */
#include "config.h"

#include <ctype.h>
#include <string.h>

#include "base/run_config.h"

struct file_reader {
    struct syi_config *config; /* a copy: the caller's changes only when all is well */
    const char *path;
    int line;              /* counted from 1 */
    char section[SYI_KEY]; /* as between the brackets, "" before the first */
    int *lines;            /* that set each option of each part, see line_of; 0 while none has */
    struct sy_error *err;  /* borrowed */
};

static int fail(struct file_reader *r, const char *what, const char *detail)
{
    return syi_error(r->err, SY_EINVAL, "%s:%d: %s%s", r->path, r->line, what, detail);
}

static void trim_end(char *text)
{
    size_t length = strlen(text);
    while (length && isspace((unsigned char)text[length - 1])) text[--length] = 0;
}

/* Ends the line where a comment begins; a # inside a string is none. */
static void cut_comment(char *line)
{
    int quoted = 0;
    for (; *line; line++) {
        if (quoted && *line == '\\' && line[1])
            line++;
        else if (*line == '"')
            quoted = !quoted;
        else if (*line == '#' && !quoted)
            *line = 0;
        if (!*line) return;
    }
}

/* "%s:%d: reason" */
static int refuse(struct file_reader *r, const char *reason)
{
    return fail(r, reason, "");
}

/* Where the line that set a value is kept: options of all kinds in a row, SYI_CONFIG_PARTS places each. */
static int *line_of(struct file_reader *r, const struct syi_key *key, int part)
{
    size_t n, before = 0;
    const struct syi_part_kind *kind = syi_config_kinds(&n);
    for (; kind != key->kind; kind++) before += kind->n_options;
    before += (size_t)(key->option - kind->options);
    return &r->lines[before * SYI_CONFIG_PARTS + (size_t)part];
}

static size_t count_lines(void)
{
    size_t n, options = 0;
    const struct syi_part_kind *kind = syi_config_kinds(&n);
    for (size_t k = 0; k < n; k++) options += kind[k].n_options;
    return options * SYI_CONFIG_PARTS;
}

static int read_section(struct file_reader *r, char *line)
{
    struct syi_key key;
    char reason[SYI_REASON];
    size_t length = strlen(line);
    if (line[length - 1] != ']') return fail(r, "a section is written [name]: ", line);
    line[length - 1] = 0;
    char *name = line + 1 + strspn(line + 1, " \t");
    trim_end(name);
    if (syi_section_parse(name, &key, reason) != SY_OK) return refuse(r, reason);
    if (syi_config_add_part(r->config, key.kind, key.part, reason) < 0) return refuse(r, reason);
    snprintf(r->section, sizeof(r->section), "%s", name);
    return SY_OK;
}

static int set_value(struct file_reader *r, const char *text, const char *value)
{
    struct syi_key key;
    char reason[SYI_REASON];
    if (syi_key_parse(text, &key, reason) != SY_OK) return refuse(r, reason);
    if (syi_config_assign(r->config, &key, value, false, reason) != SY_OK)
        return syi_error(r->err, SY_EINVAL, "%s:%d: %s: %s", r->path, r->line, text, reason);
    int *seen = line_of(r, &key, syi_config_find_part(r->config, key.kind, key.part));
    if (*seen)
        return syi_error(r->err, SY_EINVAL, "%s:%d: %s is set already on line %d", r->path, r->line, text,
                         *seen);
    *seen = r->line;
    return SY_OK;
}

static int read_assignment(struct file_reader *r, char *line)
{
    char *equals = strchr(line, '=');
    if (!equals) return fail(r, "neither [section] nor key = value: ", line);
    *equals = 0;
    trim_end(line);
    if (!*line) return fail(r, "a key is missing before '='", "");
    char *key = syi_format("%s%s%s", r->section, *r->section ? "." : "", line);
    if (!key) return syi_error(r->err, SY_ENOMEM, "out of memory while reading %s", r->path);
    int status = set_value(r, key, equals + 1);
    syi_free(key);
    return status;
}

static int read_line(struct file_reader *r, char *line)
{
    cut_comment(line);
    line += strspn(line, " \t");
    trim_end(line);
    if (!*line) return SY_OK;
    return *line == '[' ? read_section(r, line) : read_assignment(r, line);
}

/* `text` is cut into lines in place. They end in a line feed, after a carriage return or not; in files without
 * one in a carriage return. One that stands in the middle of a line could hide what follows in a comment. */
static int read_lines(struct file_reader *r, char *text, size_t bytes)
{
    char *end = text + bytes, feed = memchr(text, '\n', bytes) ? '\n' : '\r';
    text += syi_utf8_mark(text, bytes);
    while (text < end) {
        char *stop = memchr(text, feed, (size_t)(end - text));
        if (!stop) stop = end;
        *stop = 0;
        r->line++;
        char *lone = memchr(text, '\r', (size_t)(stop - text));
        if (lone && lone + 1 < stop)
            return fail(r, "a carriage return within the line: end all lines with a line feed", "");
        if (strlen(text) != (size_t)(stop - text)) return fail(r, "a NUL byte: this is no run file", "");
        int status = read_line(r, text);
        if (status != SY_OK) return status;
        text = stop + 1;
    }
    return SY_OK;
}

int syi_config_load_text(struct syi_config *config, const char *path, const char *text, size_t bytes,
                         struct sy_error *err)
{
    struct file_reader r = {.path = path, .err = err};
    r.config = syi_alloc(sizeof(*config), err);
    r.lines = syi_alloc(count_lines() * sizeof(*r.lines), err);
    char *copy = syi_alloc(bytes + 1, err);
    int status = r.config && r.lines && copy ? SY_OK : SY_ENOMEM;
    if (status == SY_OK) {
        *r.config = *config;
        if (bytes) memcpy(copy, text, bytes);
        status = read_lines(&r, copy, bytes);
    }
    if (status == SY_OK) *config = *r.config;
    syi_free(copy);
    syi_free(r.lines);
    syi_free(r.config);
    return status;
}

int syi_config_load(struct syi_config *config, const char *path, struct sy_error *err)
{
    char *text;
    size_t bytes;
    int status = syi_file_read(path, &text, &bytes, err);
    if (status != SY_OK) return status;
    status = syi_config_load_text(config, path, text, bytes, err);
    syi_free(text);
    return status;
}
