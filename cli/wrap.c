/* SPDX-License-Identifier: Apache-2.0 */
/* Text in lines that fit a terminal of 80 columns. */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "cli/cli.h"

enum { WIDTH = 79 }; /* a cursor past the last column may begin a new line */

void cli_wrap(FILE *out, const char *text, size_t length, size_t column, size_t indent)
{
    const char *end = text + length;
    int first = 1;
    while (text < end) {
        size_t word = strcspn(text, " \n");
        if (text + word > end) word = (size_t)(end - text);
        if (!first && column + 1 + word > WIDTH) {
            fprintf(out, "\n%*s", (int)indent, "");
            column = indent;
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

/* Where the last column of a table's row begins: after two blanks or more; 0: it has one column. */
static size_t last_column(const char *row, size_t length)
{
    size_t last = 0, begin = strspn(row, " ");
    for (size_t i = begin; i + 2 < length; i++)
        if (row[i] == ' ' && row[i + 1] == ' ' && row[i + 2] != ' ') last = i + 2;
    return last;
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
