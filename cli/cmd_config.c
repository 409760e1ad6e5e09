/* SPDX-License-Identifier: Apache-2.0 */
/* switchyard config [RUNFILE]: all keys with their help, or the values in force. */
#include "config.h"

#include <stdio.h>

#include "cli/cli.h"

static int run(const struct cli_options *options)
{
    struct syi_config config;
    struct sy_error err = {0};
    struct syi_text text = {0};
    const char *file = options->n_operands ? options->operand[0] : NULL;
    int status = cli_load_config(file, options, &config, &err);
    if (status) return cli_usage(&err);
    syi_config_print(&config, file == NULL, &text);
    status = syi_text_status(&text, &err);
    if (!status && text.data) fputs(text.data, stdout);
    syi_text_free(&text);
    return status ? cli_fail(&err) : CLI_DONE;
}

const struct cli_cmd cli_config = {
    "config",
    "[RUNFILE]",
    "set",
    "Prints every key of a run file with its default and help, or the values in force.",
    "With a run file: the values in force, a run file that loads again. Without: all keys with their\n"
    "types, ranges, defaults and help.",
    run};
