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
    int line;             /* counted from 1 */
    char section[64];     /* "" before the first header */
    int *line_of;         /* line that set option i, 0 while none has */
    struct sy_error *err; /* borrowed */
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

static const char *nearest_section(const char *name)
{
    size_t n;
    const struct syi_option *options = syi_config_options(&n);
    const char *best = options[0].section;
    int least = syi_edit_distance(name, best);
    for (size_t i = 1; i < n; i++) {
        int distance = syi_edit_distance(name, options[i].section);
        if (distance >= least) continue;
        least = distance;
        best = options[i].section;
    }
    return best;
}

static int read_section(struct file_reader *r, char *line)
{
    size_t length = strlen(line);
    if (line[length - 1] != ']') return fail(r, "a section is written [name]: ", line);
    line[length - 1] = 0;
    char *name = line + 1 + strspn(line + 1, " \t");
    trim_end(name);
    const char *nearest = nearest_section(name);
    if (strcmp(name, nearest) != 0)
        return syi_error(r->err, SY_EINVAL, "%s:%d: unknown section [%s], did you mean [%s]?", r->path,
                         r->line, name, nearest);
    snprintf(r->section, sizeof(r->section), "%s", nearest);
    return SY_OK;
}

static int set_value(struct file_reader *r, const char *key, const char *text)
{
    char reason[SYI_REASON];
    size_t n;
    const struct syi_option *options = syi_config_options(&n), *option = syi_config_find(key);
    if (!option)
        return syi_error(r->err, SY_EINVAL, "%s:%d: unknown key %s, did you mean %s?", r->path, r->line, key,
                         syi_config_nearest(key));
    int *seen = &r->line_of[option - options];
    if (*seen)
        return syi_error(r->err, SY_EINVAL, "%s:%d: %s is set already on line %d", r->path, r->line, key,
                         *seen);
    if (syi_option_parse(option, text, false, (char *)r->config + option->offset, reason) != SY_OK)
        return syi_error(r->err, SY_EINVAL, "%s:%d: %s: %s", r->path, r->line, key, reason);
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
    size_t n;
    struct file_reader r = {.path = path, .err = err};
    syi_config_options(&n);
    r.config = syi_alloc(sizeof(*config), err);
    r.line_of = syi_alloc(n * sizeof(*r.line_of), err);
    char *copy = syi_alloc(bytes + 1, err);
    int status = r.config && r.line_of && copy ? SY_OK : SY_ENOMEM;
    if (status == SY_OK) {
        *r.config = *config;
        if (bytes) memcpy(copy, text, bytes);
        status = read_lines(&r, copy, bytes);
    }
    if (status == SY_OK) *config = *r.config;
    syi_free(copy);
    syi_free(r.line_of);
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
