/* SPDX-License-Identifier: Apache-2.0 */
/* switchyard convert-gin FILE [-o RUNFILE]: a gin file of T5X becomes a run file. */
#include "config.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "import/gin.h"

/* Each line as a message of its own. */
static void print_warnings(char *lines)
{
    while (lines && *lines) {
        char *end = strchr(lines, '\n');
        if (end) *end = 0;
        cli_error("convert-gin: %s", lines);
        lines = end ? end + 1 : NULL;
    }
}

static int write_result(const char *path, const struct syi_text *text, struct sy_error *err)
{
    if (path && !access(path, F_OK))
        return syi_error(err, SY_EINVAL, "convert-gin: %s is there already: choose another name", path);
    if (path) return syi_file_replace(path, text->data, text->length, err);
    if (fwrite(text->data, 1, text->length, stdout) == text->length && !fflush(stdout)) return SY_OK;
    return syi_error_system(err, "writing the run file");
}

int cli_convert_gin(const struct cli_options *o)
{
    struct sy_error err = {0};
    struct syi_gin gin = {0};
    struct syi_text text = {0}, warnings = {0};
    int status = syi_gin_load(&gin, o->operand[0], &err);
    if (!status) status = syi_gin_convert(&gin, o->operand[0], &text, &warnings, &err);
    if (!status) status = write_result(o->output, &text, &err);
    if (!status) print_warnings(warnings.data);
    syi_text_free(&warnings);
    syi_text_free(&text);
    syi_gin_free(&gin);
    return status ? cli_fail(&err) : CLI_DONE;
}
