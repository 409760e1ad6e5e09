/* SPDX-License-Identifier: Apache-2.0 */
/* switchyard move RUN_DIR: asks a training that runs to go on with another backend, and waits for what it says. */
#include "config.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "cli/cli.h"
#include "train/launch/move_file.h"
#include "train/launch/run_state.h"

static const double TIMEOUT = 600; /* seconds, if not given: a step, and a checkpoint, may take long */
static const double LOOK_AT_RUN = 1;

static volatile sig_atomic_t interrupted;

static void on_signal(int number)
{
    (void)number;
    interrupted = 1;
}

/* A line of the request. */
static int keep(const char *option, const char *value, char *to, size_t bytes)
{
    if (*value && strlen(value) < bytes && !strpbrk(value, "\n\r")) {
        strcpy(to, value);
        return CLI_DONE;
    }
    cli_error("move: --%s: 1 to %zu bytes of one line", option, bytes - 1);
    return CLI_USAGE;
}

static int read_request(const struct cli_options *o, struct syi_move *move)
{
    int status =
        o->to_backend ? keep("backend", o->to_backend, move->backend, sizeof move->backend) : CLI_DONE;
    if (!o->to_backend && !o->set.n) {
        cli_error("move: where to? Give --backend NAME, --set KEY=VALUE or both");
        return CLI_USAGE;
    }
    if (o->set.n > SYI_MOVE_SETS) {
        cli_error("move: --set: at most %d", SYI_MOVE_SETS);
        return CLI_USAGE;
    }
    for (; !status && move->n_sets < o->set.n; move->n_sets++)
        status = keep("set", o->set.item[move->n_sets], move->set[move->n_sets], SYI_MOVE_LINE);
    return status;
}

/* What is wrong in itself is said at once, the rest by the run. */
static int check(const char *run_dir, const struct syi_move *move)
{
    struct syi_config config;
    struct syi_run_state state;
    struct sy_error err = {0};
    if (syi_run_dir_read_config(run_dir, &config, &err) || syi_move_apply(move, &config, &err))
        return cli_usage(&err);
    syi_run_state_read(run_dir, &state);
    if (state.live) return CLI_DONE;
    cli_error("move: %s does not run (%s): `switchyard train --resume` takes --backend and --set", run_dir,
              state.text);
    return CLI_FAILED;
}

/* Of a request without an answer: it is taken back, so that it does not come to its end unseen. */
static int give_up(const char *run_dir, const struct syi_move *move, const char *why)
{
    if (syi_move_withdraw(run_dir, move))
        cli_error("move: %s; the request is withdrawn, nothing has changed", why);
    else
        cli_error(
            "move: %s; the run has taken the request: its log and `switchyard metrics` tell how it ends",
            why);
    return CLI_FAILED;
}

static int wait_for_answer(const char *run_dir, const struct syi_move *move, double timeout)
{
    double begin = syi_seconds(), looked = begin, now;
    char text[2048];
    for (int live = 1;;) {
        enum syi_move_state answer = syi_move_look(run_dir, move, text, sizeof text);
        if (answer == SYI_MOVE_DONE) printf("%s\n", text);
        if (answer == SYI_MOVE_REFUSED) cli_error("move: %s", text);
        if (answer != SYI_MOVE_WAITS) return answer == SYI_MOVE_DONE ? CLI_DONE : CLI_FAILED;
        if (!live) return give_up(run_dir, move, "the run has ended without an answer");
        if (interrupted) return give_up(run_dir, move, "interrupted");
        now = syi_seconds();
        if (now - begin >= timeout) {
            snprintf(text, sizeof text, "no answer in %.6g s", timeout);
            return give_up(run_dir, move, text);
        }
        if (now - looked >= LOOK_AT_RUN) {
            struct syi_run_state state;
            syi_run_state_read(run_dir, &state);
            live = state.live;
            looked = now;
        }
        nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
    }
}

int cli_move(const struct cli_options *o)
{
    const char *run_dir = o->operand[0];
    struct syi_move move = {.n_sets = 0};
    struct sy_error err = {0};
    int status = read_request(o, &move);
    if (!status) status = check(run_dir, &move);
    if (status) return status;
    signal(SIGINT, on_signal);
    signal(SIGTERM, on_signal);
    if (syi_move_ask(run_dir, &move, &err)) return cli_fail(&err);
    return wait_for_answer(run_dir, &move, o->seconds > 0 ? o->seconds : TIMEOUT);
}
