/* SPDX-License-Identifier: Apache-2.0 */
/* The program: finds the command, reads its options, runs it. */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "cli/cli.h"

static void print_overview(FILE *out)
{
    fprintf(out, "usage: switchyard COMMAND [OPTIONS] ...\n\n"
                 "Trains, evaluates and serves T5 models with mixture-of-experts layers.\n\n");
    for (const struct cli_cmd *const *cmd = cli_commands; *cmd; cmd++)
        fprintf(out, "  %-10s %s\n", (*cmd)->name, (*cmd)->help);
    fprintf(out, "\nswitchyard COMMAND --help tells more.\n");
}

static int unknown_command(const char *name)
{
    const char *names[32];
    size_t n = 0;
    for (const struct cli_cmd *const *cmd = cli_commands; *cmd; cmd++) names[n++] = (*cmd)->name;
    cli_error("unknown command %s, did you mean %s? (switchyard --help lists all)", name, cli_nearest(name, names, n));
    return CLI_USAGE;
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        print_overview(stderr);
        return CLI_USAGE;
    }
    const char *name = argv[1];
    if (!strcmp(name, "--help") || !strcmp(name, "-h") || !strcmp(name, "help")) {
        print_overview(stdout);
        return CLI_DONE;
    }
    if (!strcmp(name, "--version")) name = "version";
    for (const struct cli_cmd *const *cmd = cli_commands; *cmd; cmd++) {
        if (strcmp((*cmd)->name, name)) continue;
        struct cli_options options;
        int finished, status = cli_parse(*cmd, argc - 2, argv + 2, &options, &finished);
        if (status || finished) return status;
        status = (*cmd)->run(&options);
        if (fflush(stdout) || ferror(stdout)) {
            cli_error("standard output: cannot be written");
            return status ? status : CLI_FAILED;
        }
        return status;
    }
    return unknown_command(name);
}
