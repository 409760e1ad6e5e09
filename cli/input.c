/* SPDX-License-Identifier: Apache-2.0 */
/* Lines for commands that answer them. */
#include "config.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/text.h"
#include "cli/input.h"
#include "cli/work_line.h"
#include "data/vocabulary.h"

enum {
    LINE_BYTES = 1 << 20, /* of a line that is looked at, and more where the run's lengths are larger: */
    TOKEN_BYTES = 64      /* a token */
};

/* Bytes are legal input, but most often they are a mistake. */
static void look_at(struct cli_input *in, const char *text, size_t bytes)
{
    if (in->invalid || syi_utf8_valid((struct syi_span){text, bytes})) return;
    in->invalid = 1;
    cli_error("warning: %s: input line %lld is not valid UTF-8; the bytes are used as they are", in->command,
              (long long)in->n);
}

/* A line of a file of pairs, most likely: its target would be read as input. */
static void look_for_tab(struct cli_input *in, const char *text, size_t bytes)
{
    if (in->tabs || !memchr(text, '\t', bytes)) return;
    in->tabs = 1;
    cli_error(
        "warning: %s: input line %lld holds a TAB; all of the line is the input, what follows the TAB, too "
        "(cut -f 1 takes the inputs of a file of pairs)",
        in->command, (long long)in->n);
}

/* As in files of examples: another program takes it for the end of a line, so there would be fewer answers than lines. */
static int check_returns(const struct cli_input *in, const char *text, size_t bytes, struct sy_error *err)
{
    if (!bytes || !memchr(text, '\r', bytes)) return SYI_INPUT_LINE;
    return syi_error(err, SY_EFORMAT,
                     "%s: input line %lld has a carriage return within: end all lines with a line feed",
                     in->command, (long long)in->n);
}

int cli_input_next(void *input, int wait, const char **text, size_t *bytes, struct sy_error *err)
{
    static const int results[] = {[CLI_LINES_END] = SYI_INPUT_END,
                                  [CLI_LINES_LINE] = SYI_INPUT_LINE,
                                  [CLI_LINES_LATER] = SYI_INPUT_LATER,
                                  [CLI_LINES_LONG] = SYI_INPUT_LONG};
    struct cli_input *in = input;
    struct sy_error why = {0};
    int result = cli_lines_next(&in->lines, wait, text, bytes, &why);
    if (result < 0)
        return syi_error(err, result, "%s: after line %lld: %s", in->command, (long long)in->n, why.text);
    in->n += result == CLI_LINES_LONG;
    if (result != CLI_LINES_LINE) return results[result];
    size_t mark = in->n++ ? 0 : syi_utf8_mark(*text, *bytes);
    *text += mark;
    *bytes -= mark;
    look_at(in, *text, *bytes);
    look_for_tab(in, *text, *bytes);
    return check_returns(in, *text, *bytes, err);
}

/* Which share of a file the lines read so far are; -1: the input is no file, or not its bytes. */
static double share_read(const struct cli_input *in)
{
    struct stat info;
    if (in->lines.file && in->lines.file->compression != SYI_COMPRESSION_NONE) return -1;
    off_t at = lseek(in->lines.fd, 0, SEEK_CUR);
    if (at < 0 || fstat(in->lines.fd, &info) || !S_ISREG(info.st_mode) || !info.st_size) return -1;
    return (double)(at - (off_t)(in->lines.end - in->lines.begin)) / (double)info.st_size;
}

void cli_input_show(const struct cli_input *in, int64_t answered)
{
    cli_work_line_show(in->command, "lines", answered, share_read(in) * (double)answered / (double)in->n);
}

void cli_input_not_finite(struct cli_input *in, int64_t index)
{
    if (in->not_finite) return;
    in->not_finite = 1;
    cli_error(
        "%s: the score of input line %lld is not finite, and others may not be: weights of the model are not, or they "
        "are too large (switchyard ckpt show lists them)",
        in->command, (long long)index + 1);
}

/* More than the longest input and target have: a token of SentencePiece is 16 characters at most, unless it was made with
 * another limit. Only of characters that are unknown one token may be more. */
static size_t most_bytes(const struct syi_config *config)
{
    size_t bytes = (size_t)(config->data.max_input_length + config->data.max_target_length) * TOKEN_BYTES;
    return bytes > LINE_BYTES ? bytes : LINE_BYTES;
}

struct syi_lines_job cli_lines_job(const struct cli_options *options, const struct syi_config *config,
                                   void *arg)
{
    struct cli_input *input = arg;
    input->lines.most = most_bytes(config);
    return (struct syi_lines_job){.launch = cli_launch(options, config),
                                  .run_dir = options->operand[0],
                                  .checkpoint = options->checkpoint,
                                  .arg = arg,
                                  .next = cli_input_next};
}
