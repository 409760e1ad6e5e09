/* SPDX-License-Identifier: Apache-2.0 */
/* The lists of commands that are in this build and that are not, from commands.def. */
#include "config.h"

#include "cli/cli.h"

/* clang-format off */
#define CLI_COMMAND(name, text, operands, options, help, details) {text, operands, options, help, details, cli_##name},
#if SY_TRAINING
#    define CLI_TRAINING_COMMAND CLI_COMMAND
#else
#    define CLI_TRAINING_COMMAND(...)
#endif
const struct cli_cmd cli_commands[] = {
#include "cli/commands.def"
    {0},
};

#define CLI_COMMAND(...)
#if SY_TRAINING
#    define CLI_TRAINING_COMMAND CLI_COMMAND
#else
#    define CLI_TRAINING_COMMAND(name, text, ...) text,
#endif
const char *const cli_left_out[] = {
#include "cli/commands.def"
    NULL,
};
/* clang-format on */
