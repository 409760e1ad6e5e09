/* SPDX-License-Identifier: Apache-2.0 */
/* All commands, in the order `switchyard --help` lists them. */
#include "config.h"

#include "cli/cli.h"

/* One a line. */
/* clang-format off */
#if SY_TRAINING
const struct cli_cmd *const cli_commands[] = {
    &cli_train,
    &cli_eval,
    &cli_predict,
    &cli_score,
    &cli_tokenize,
    &cli_metrics,
    &cli_top,
    &cli_report,
    &cli_ckpt,
    &cli_config,
    &cli_explain,
    &cli_plan,
    &cli_import,
    &cli_convert_gin,
    &cli_export,
    &cli_pack,
    &cli_backends,
    &cli_doctor,
    &cli_verify,
    &cli_diff,
    &cli_replay,
    &cli_bench,
    &cli_version,
    NULL,
};
const char *const cli_left_out[] = {NULL};
#else
const struct cli_cmd *const cli_commands[] = {
    &cli_predict,
    &cli_score,
    &cli_tokenize,
    &cli_config,
    &cli_backends,
    &cli_version,
    NULL,
};
const char *const cli_left_out[] = {"train", "eval", "metrics", "top", "report", "ckpt", "explain", "plan", "import",
                                    "convert-gin", "export", "pack", "doctor", "verify", "diff", "replay", "bench", NULL};
#endif
/* clang-format on */
