/* SPDX-License-Identifier: Apache-2.0 */
/* The lists of commands that are in this build and that are not, from commands.def. */
#include "config.h"

#include "cli/cli.h"

/* clang-format off */
#define CLI_COMMAND(name, text) &cli_##name,
#if SY_TRAINING
#    define CLI_TRAINING_COMMAND CLI_COMMAND
#else
#    define CLI_TRAINING_COMMAND(name, text)
#endif
const struct cli_cmd *const cli_commands[] = {
#include "cli/commands.def"
    NULL,
};

#define CLI_COMMAND(name, text)
#if SY_TRAINING
#    define CLI_TRAINING_COMMAND CLI_COMMAND
#else
#    define CLI_TRAINING_COMMAND(name, text) text,
#endif
const char *const cli_left_out[] = {
#include "cli/commands.def"
    NULL,
};
/* clang-format on */
