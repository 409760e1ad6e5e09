/* SPDX-License-Identifier: Apache-2.0 */
/* The program: finds the command, reads its options, runs it. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cli.h"

static void print_overview(FILE *out)
{
    fprintf(out, "usage: switchyard COMMAND [OPTIONS] ...\n\n"
                 "Trains, evaluates and serves T5 models with mixture-of-experts layers.\n\n");
    for (const struct cli_cmd *cmd = cli_commands; cmd->name; cmd++) {
        size_t column = (size_t)fprintf(out, "  %-12s ", cmd->name);
        cli_wrap(out, cmd->help, strlen(cmd->help), column, column);
    }
    fprintf(out, "\nswitchyard COMMAND --help says more.\n");
}

static int unknown_command(const char *name)
{
    const char *names[CLI_MOST_COMMANDS];
    size_t n = 0;
    if (!*name) {
        cli_error("the command is empty (is a variable of the script not set?)");
        return CLI_USAGE;
    }
    if (*name == '-') {
        cli_error(
            "%s: options come after the command, as in switchyard train --help (switchyard --help lists the "
            "commands, switchyard --version says the version)",
            name);
        return CLI_USAGE;
    }
    for (const char *const *left_out = cli_left_out; *left_out; left_out++)
        if (!strcmp(*left_out, name)) {
            cli_error(
                "%s: this switchyard was built without training and has no such command (switchyard --help lists "
                "those it has): build it without --disable-training",
                name);
            return CLI_USAGE;
        }
    for (const struct cli_cmd *cmd = cli_commands; cmd->name; cmd++) names[n++] = cmd->name;
    cli_error("unknown command %s, did you mean %s? (switchyard --help lists all)", name,
              cli_nearest(name, names, n));
    return CLI_USAGE;
}

/* A file must not take the number of a stream that was closed: output would go into it. What stands in for
 * the stream fails when it is used. */
static void keep_streams_apart(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        if (fcntl(fd, F_GETFD) >= 0 || errno != EBADF) continue;
        if (open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) < 0) return;
    }
}

static int open_world(const struct cli_cmd *cmd, const struct cli_options *options)
{
    char command[CLI_COMMAND_BYTES];
    int status = cli_world_open(cmd, options);
    if (status) return status;
    cli_print_command(cmd, options, command);
    status = cli_world_same_command(command);
    return status ? cli_world_close(status) : CLI_DONE;
}

static int run_command(const char *name, int argc, char **argv)
{
    for (const struct cli_cmd *cmd = cli_commands; cmd->name; cmd++) {
        struct cli_options options;
        int finished;
        if (strcmp(cmd->name, name)) continue;
        cli_world_begin(cmd);
        int status = cli_parse(cmd, argc, argv, &options, &finished);
        if (status) return cli_world_give_up(cmd, status);
        if (!finished) status = open_world(cmd, &options);
        if (status || finished) return status;
        if (!options.quiet) cli_check_environment();
        return cli_world_close(cmd->run(&options));
    }
    return unknown_command(name);
}

/* Signals that whoever starts the program has blocked would not arrive: no batch system could ask a run to save. */
static void let_signals_in(void)
{
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

/* The help of the commands that are named, or of all in short. */
static int help(int n, char **names)
{
    static char option[] = "--help";
    char *options[] = {option, NULL};
    int status = CLI_DONE;
    if (!n) print_overview(stdout);
    for (int i = 0; i < n && !status; i++) status = run_command(names[i], 1, options);
    return status;
}

int main(int argc, char **argv)
{
    int status = CLI_DONE;
    keep_streams_apart();
    let_signals_in();
    /* nothing that is made may be changed by everybody, whatever the shell allows */
    umask(umask(0) | S_IWOTH);
    signal(SIGXFSZ,
           SIG_IGN); /* a write beyond the limit of file sizes is an error that is reported, as any other */
    if (argc < 2) {
        print_overview(stderr);
        return CLI_USAGE;
    }
    const char *name = argv[1];
    if (!strcmp(name, "--help") || !strcmp(name, "-h") || !strcmp(name, "help"))
        status = help(argc - 2, argv + 2);
    else
        status = run_command(strcmp(name, "--version") ? name : "version", argc - 2, argv + 2);
    cli_job_paths_free();
    /* a failure has been reported; the same status without a message says that things differ */
    if ((!fflush(stdout) && !ferror(stdout)) || (status == CLI_FAILED && *cli_error_last())) return status;
    cli_error("standard output: cannot be written");
    return status ? status : CLI_FAILED;
}
