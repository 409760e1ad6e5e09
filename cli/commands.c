/* SPDX-License-Identifier: Apache-2.0 */
/* All commands, in the order `switchyard --help` lists them. */
#include "config.h"

#include "cli/cli.h"

const struct cli_cmd *const cli_commands[] = {
    &cli_train, &cli_eval,     &cli_predict, &cli_metrics, &cli_tokenize, &cli_config,  &cli_explain,
    &cli_plan,  &cli_backends, &cli_verify,  &cli_diff,    &cli_bench,    &cli_version, NULL};
