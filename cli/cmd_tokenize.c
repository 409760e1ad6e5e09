/* SPDX-License-Identifier: Apache-2.0 */
/* switchyard tokenize: lines of text to ids and pieces by a run's vocabulary, and ids back to text. */
#include "config.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/lines.h"
#include "data/vocabulary.h"

struct work {
    struct syi_vocabulary vocabulary;
    struct cli_lines input;
    struct syi_ids ids;
    struct syi_text out;
    int64_t n; /* lines read */
};

/* A piece stands between blanks: what would look like one is shown by its number. */
static void put_piece(struct work *w, int32_t id)
{
    size_t from = w->out.length;
    syi_vocabulary_piece(&w->vocabulary, id, &w->out);
    if (w->out.status) return;
    for (size_t i = from; i < w->out.length; i++) {
        unsigned char c = (unsigned char)w->out.data[i];
        if (c > ' ' && c != 127) continue;
        w->out.length = from;
        syi_text_printf(&w->out, "<0x%02X>", (unsigned)c);
        return;
    }
}

/* IDS TAB PIECES */
static int encode_line(struct work *w, const char *text, size_t bytes, struct sy_error *err)
{
    struct syi_span span = {text, bytes};
    size_t n;
    int status = syi_vocabulary_encode(&w->vocabulary, span, w->ids.id, w->ids.capacity, &n, err);
    if (!status && n > w->ids.capacity) {
        status = SYI_GROW(w->ids.id, w->ids.capacity, n, err);
        if (!status)
            status = syi_vocabulary_encode(&w->vocabulary, span, w->ids.id, w->ids.capacity, &n, err);
    }
    if (status) return status;
    for (size_t i = 0; i < n; i++) syi_text_printf(&w->out, "%s%d", i ? " " : "", w->ids.id[i]);
    syi_text_puts(&w->out, "\t");
    for (size_t i = 0; i < n; i++) {
        if (i) syi_text_puts(&w->out, " ");
        put_piece(w, w->ids.id[i]);
    }
    return SY_OK;
}

/* An id at *at, which then stands after it; 0: there is none. The line may end where its memory does. */
static int take_id(const char **at, const char *end, int32_t *id)
{
    const char *digit = *at + (*at < end && **at == '-');
    int64_t value = 0;
    if (digit == end || *digit < '0' || *digit > '9') return 0;
    for (const char *first = digit; digit < end && *digit >= '0' && *digit <= '9'; digit++) {
        if (digit - first == 10) return 0;
        value = 10 * value + (*digit - '0');
    }
    if (**at == '-') value = -value;
    *id = (int32_t)value;
    *at = digit;
    return *id == value && (digit == end || *digit == ' ');
}

/* What follows a TAB are pieces, so that output of this command can be its input. */
static int decode_line(struct work *w, const char *text, size_t bytes, struct sy_error *err)
{
    const char *tab = memchr(text, '\t', bytes), *end = tab ? tab : text + bytes;
    int32_t id;
    w->ids.n = 0;
    for (const char *at = text; at < end;) {
        const char *word = at;
        if (*at == ' ') {
            at++;
            continue;
        }
        if (!take_id(&at, end, &id))
            return syi_error(err, SY_EFORMAT, "line %lld: \"%.*s\" is no id; a line is ids between blanks",
                             (long long)w->n, (int)(end - word < 20 ? end - word : 20), word);
        int status = syi_ids_append(&w->ids, &id, 1, err);
        if (status) return status;
    }
    syi_vocabulary_decode(&w->vocabulary, w->ids.id, w->ids.n, &w->out);
    for (size_t i = 0; !w->out.status && i < w->out.length; i++)
        if (w->out.data[i] == '\n' || w->out.data[i] == '\r') w->out.data[i] = ' ';
    return SY_OK;
}

static int write_line(struct work *w, struct sy_error *err)
{
    int status = syi_text_status(&w->out, err);
    if (status) return status;
    syi_text_puts(&w->out, "\n");
    status = syi_text_status(&w->out, err);
    if (!status && fwrite(w->out.data, 1, w->out.length, stdout) != w->out.length)
        status = syi_error_system(err, "the output cannot be written");
    w->out.length = 0;
    return status;
}

static int do_lines(struct work *w, int decode, struct sy_error *err)
{
    const char *text;
    size_t bytes;
    for (;;) {
        int got = cli_lines_next(&w->input, 0, &text, &bytes, err);
        if (got == CLI_LINES_LATER) { /* whoever asked line by line waits for the answers */
            if (fflush(stdout)) return syi_error_system(err, "the output cannot be written");
            got = cli_lines_next(&w->input, -1, &text, &bytes, err);
        }
        if (got == CLI_LINES_END) break;
        if (got < 0) return got;
        size_t mark = w->n++ || decode ? 0 : syi_utf8_mark(text, bytes);
        text += mark;
        bytes -= mark;
        int status = decode ? decode_line(w, text, bytes, err) : encode_line(w, text, bytes, err);
        if (!status) status = write_line(w, err);
        if (status) return status;
    }
    return fflush(stdout) ? syi_error_system(err, "the output cannot be written") : SY_OK;
}

int cli_tokenize(const struct cli_options *o)
{
    static struct syi_config config;
    struct sy_error err = {0};
    struct work work = {.input = {.fd = STDIN_FILENO}};
    const char *operand = o->n_operands ? o->operand[0] : NULL;
    if (cli_load_config(operand, o, &config, &err)) return cli_load_failed(&err);
    int status = syi_vocabulary_make(&work.vocabulary, syi_config_vocabulary(&config, o->targets), &err);
    if (status) return cli_fail(&err);
    status = do_lines(&work, o->decode, &err);
    cli_lines_free(&work.input);
    syi_ids_free(&work.ids);
    syi_text_free(&work.out);
    syi_vocabulary_close(&work.vocabulary);
    if (!status) return CLI_DONE;
    cli_error("tokenize: %s", err.text);
    return CLI_FAILED;
}
