/* SPDX-License-Identifier: Apache-2.0 */
/* Text in lines that fit a terminal of 80 columns. */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/work_line.h"

enum { WIDTH = 79 }; /* a cursor past the last column may begin a new line */

/* begin: what each further line begins with, before its blanks. */
static void wrap_to(size_t width, FILE *out, const char *text, size_t length, size_t column,
                    const char *begin, size_t indent)
{
    const char *end = text + length;
    int first = 1;
    while (text < end) {
        size_t word = strcspn(text, " \n");
        if (text + word > end) word = (size_t)(end - text);
        if (!first && column + 1 + word > width) {
            fprintf(out, "\n%s%*s", begin, (int)indent, "");
            column = strlen(begin) + indent;
        } else if (!first) {
            putc(' ', out);
            column++;
        }
        fwrite(text, 1, word, out);
        column += word;
        first = 0;
        text += word;
        if (text < end) text += strspn(text, " \n");
    }
    putc('\n', out);
}

static void wrap(FILE *out, const char *text, size_t length, size_t column, const char *begin, size_t indent)
{
    wrap_to(WIDTH, out, text, length, column, begin, indent);
}

void cli_wrap(FILE *out, const char *text, size_t length, size_t column, size_t indent)
{
    wrap(out, text, length, column, "", indent);
}

/* What is before the indent is printed as it is. */
void cli_print_line(const char *text, size_t indent)
{
    size_t length = strlen(text);
    size_t width = cli_terminal(stdout) ? (size_t)cli_line_width(stdout) : length;
    if (length <= width || length <= indent) {
        puts(text);
        return;
    }
    printf("%.*s", (int)indent, text);
    wrap_to(width, stdout, text + indent, length - indent, indent, "", indent);
}

/* A line of help on keys: a comment goes on as a comment, what is in a list goes on below its beginning, a key with its value
 * stays whole. */
static void print_help_line(const char *line, size_t length)
{
    size_t indent = strspn(line, " ");
    const char *value = strstr(line, " = ");
    if (length > 2 && !strncmp(line, "# ", 2)) {
        fputs("# ", stdout);
        wrap(stdout, line + 2, length - 2, 2, "# ", 0);
    } else if (length <= indent || (value && value < line + length)) {
        printf("%.*s\n", (int)length, line);
    } else {
        printf("%.*s", (int)indent, line);
        wrap(stdout, line + indent, length - indent, indent, "", indent + 2);
    }
}

void cli_print_help_lines(const char *text)
{
    while (*text) {
        size_t length = strcspn(text, "\n");
        print_help_line(text, length);
        text += length + (text[length] == '\n');
    }
}

/* Where the last column of a table's row begins: after two blanks or more; 0: it has one column. */
static size_t last_column(const char *row, size_t length)
{
    size_t last = 0, begin = strspn(row, " ");
    for (size_t i = begin; i + 2 < length; i++)
        if (row[i] == ' ' && row[i + 1] == ' ' && row[i + 2] != ' ') last = i + 2;
    return last;
}

void cli_print_row(const char *row)
{
    size_t length = strlen(row), last = last_column(row, length);
    size_t width = cli_terminal(stdout) ? (size_t)cli_line_width(stdout) : length;
    if (length <= width || !last) {
        puts(row);
        return;
    }
    printf("%.*s", (int)last, row);
    wrap_to(width, stdout, row + last, length - last, last, "", last <= width / 2 ? last : 4);
}

/* A line that begins with a blank: the last column is wrapped; one without columns, as a command, stays whole. */
static void print_row(const char *row, size_t length)
{
    size_t last = last_column(row, length);
    printf("%.*s", (int)(last ? last : length), row);
    if (last)
        cli_wrap(stdout, row + last, length - last, last, last);
    else
        putchar('\n');
}

void cli_print_paragraphs(const char *text)
{
    while (*text) {
        size_t length = strcspn(text, "\n");
        if (*text == ' ' || !length) {
            print_row(text, length);
        } else {
            while (text[length] && !strchr(" \n", text[length + 1]))
                length += 1 + strcspn(text + length + 1, "\n");
            cli_wrap(stdout, text, length, 0, 0);
        }
        text += length + (text[length] == '\n');
    }
}
