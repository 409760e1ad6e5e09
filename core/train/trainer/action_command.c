/* SPDX-License-Identifier: Apache-2.0 */
/* command: /bin/sh runs what the user wrote, on rank 0, in a process group of its own and beside the training. Each
 * step looks whether it has ended or its time is over; the next one and the end of training wait for it. A run that is
 * to stop saves first: then the next one is left out. What goes wrong is a warning. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/text.h"
#include "comm/comm.h"
#include "train/trainer/action_kind.h"

extern char **environ;

struct program {
    pid_t id;                         /* 0: none runs */
    double looked;                    /* at the clock, for the last time */
    double seconds, gap;              /* that it has run; that counted between the last two looks */
    char log[SYI_CONFIG_STRING + 80]; /* where its output goes */
};

/* ---- its environment ---- */

struct variables {
    char **text; /* [n + 1] ends with NULL; the first `borrowed` are the process's own */
    size_t n, capacity, borrowed;
    int status;
};

static void add(struct variables *v, char *text, struct sy_error *err)
{
    if (!v->status && !text) v->status = syi_error(err, SY_ENOMEM, "out of memory");
    if (!v->status) v->status = SYI_GROW(v->text, v->capacity, v->n + 2, err);
    if (v->status) {
        syi_free(text);
        return;
    }
    v->text[v->n++] = text;
    v->text[v->n] = NULL;
}

static int is_ours(const char *text)
{
    static const char *const ours[] = {"EVENT=", "STEP=", "RUN_DIR=", "TASK=", "TEXT=", "VALUE_"};
    if (strncmp(text, "SWITCHYARD_", 11)) return 0;
    for (size_t i = 0; i < SYI_COUNT(ours); i++)
        if (!strncmp(text + 11, ours[i], strlen(ours[i]))) return 1;
    return 0;
}

/* What the process itself has, but for that of an outer run. */
static void add_own(struct variables *v, struct sy_error *err)
{
    v->status = SYI_GROW(v->text, v->capacity, 1, err);
    for (char **at = environ; *at && !v->status; at++) {
        if (is_ours(*at)) continue;
        v->status = SYI_GROW(v->text, v->capacity, v->n + 2, err);
        if (!v->status) v->text[v->n++] = *at;
    }
    v->borrowed = v->n;
}

static void add_value(struct variables *v, const char *name, double value, struct sy_error *err)
{
    char number[SYI_NUMBER_BYTES];
    syi_format_double(number, value);
    char *text = syi_format("SWITCHYARD_VALUE_%s=%s", name, number);
    for (char *c = text; c && *c != '='; c++) {
        if (*c >= 'a' && *c <= 'z') *c = (char)(*c - 'a' + 'A');
        if (!(*c >= 'A' && *c <= 'Z') && !(*c >= '0' && *c <= '9')) *c = '_';
    }
    add(v, text, err);
}

static const char *event_name(enum syi_moment_kind kind)
{
    return kind == SYI_AT_START           ? "start"
           : kind == SYI_AFTER_EVALUATION ? "evaluation"
           : kind == SYI_AFTER_CHECKPOINT ? "checkpoint"
                                          : "end";
}

static int make_variables(struct variables *v, const struct syi_action_call *call,
                          const struct syi_eval_result *result, struct sy_error *err)
{
    const struct syi_moment *moment = call->moment;
    add_own(v, err);
    add(v, syi_format("SWITCHYARD_EVENT=%s", event_name(moment->kind)), err);
    add(v, syi_format("SWITCHYARD_STEP=%" PRId64, moment->step), err);
    add(v, syi_format("SWITCHYARD_RUN_DIR=%s", call->all->run_dir), err);
    add(v, syi_format("SWITCHYARD_TASK=%s", result ? result->task : ""), err);
    add(v, syi_format("SWITCHYARD_TEXT=%s", moment->text ? moment->text : ""), err);
    for (int i = 0; result && i < result->n; i++)
        add_value(v, result->value[i].name, result->value[i].value, err);
    return v->status;
}

static void free_variables(struct variables *v)
{
    for (size_t i = v->borrowed; i < v->n; i++) syi_free(v->text[i]);
    syi_free(v->text);
}

/* ---- its life ---- */

static int spawn(struct program *program, const char *command, char **variables)
{
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    sigset_t all, none;
    char text[SYI_CONFIG_STRING], shell[] = "sh", option[] = "-c";
    char *arguments[] = {shell, option, text, NULL};
    snprintf(text, sizeof text, "%s", command);
    sigfillset(&all);
    sigemptyset(&none);
    int failed = posix_spawn_file_actions_init(&files);
    if (failed) return failed;
    failed = posix_spawnattr_init(&attributes);
    if (failed) {
        posix_spawn_file_actions_destroy(&files);
        return failed;
    }
    failed = posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
    if (!failed)
        failed =
            posix_spawn_file_actions_addopen(&files, 1, program->log, O_WRONLY | O_CREAT | O_APPEND, 0666);
    if (!failed) failed = posix_spawn_file_actions_adddup2(&files, 1, 2);
    if (!failed) failed = posix_spawnattr_setsigdefault(&attributes, &all);
    if (!failed) failed = posix_spawnattr_setsigmask(&attributes, &none);
    if (!failed) failed = posix_spawnattr_setpgroup(&attributes, 0);
    if (!failed)
        failed = posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK |
                                                           POSIX_SPAWN_SETPGROUP);
    if (!failed) failed = posix_spawn(&program->id, "/bin/sh", &files, &attributes, arguments, variables);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&files);
    return failed;
}

static void start(struct syi_action_call *call, struct program *program, const struct syi_eval_result *result)
{
    struct variables variables = {0};
    struct sy_error err = {0};
    int failed;
    if (make_variables(&variables, call, result, &err)) {
        syi_action_warn(call, "cannot be run: %s", err.text);
    } else {
        failed = spawn(program, call->part->command, variables.text);
        if (failed) program->id = 0;
        if (failed) syi_action_warn(call, "cannot be run: %s", strerror(failed));
        program->looked = syi_seconds();
        program->seconds = program->gap = 0;
    }
    free_variables(&variables);
}

static void kill_program(struct program *program)
{
    kill(-program->id, SIGKILL);
    while (waitpid(program->id, NULL, 0) < 0 && errno == EINTR) continue;
    program->id = 0;
}

static void tell_end(const struct syi_action_call *call, const struct program *program, int status)
{
    if (WIFEXITED(status) && WEXITSTATUS(status))
        syi_action_warn(call, "exit status %d; see %s", WEXITSTATUS(status), program->log);
    if (WIFSIGNALED(status))
        syi_action_warn(call, "ended by signal %d; see %s", WTERMSIG(status), program->log);
}

/* A job that is suspended does not run meanwhile, nor do its programs: of the time between two looks, a step or a nap, counts
 * twice that of the time before at most, or a second. */
static void look_at_clock(struct program *program)
{
    double now = syi_seconds(), most = fmax(1, 2 * program->gap);
    program->gap = fmin(now - program->looked, most);
    program->looked = now;
    program->seconds += program->gap;
}

/* Whether it has ended, is 0 here; one whose time is over is ended. */
static void look(struct syi_action_call *call, struct program *program)
{
    int status;
    look_at_clock(program);
    pid_t ended = program->id ? waitpid(program->id, &status, WNOHANG) : 0;
    if (ended == program->id && ended) {
        tell_end(call, program, status);
        program->id = 0;
    } else if (ended < 0 && errno != EINTR) {
        program->id = 0;
    } else if (program->id && program->seconds > (double)call->part->time_limit) {
        kill_program(program);
        syi_action_warn(call, "ended after time_limit = %" PRId64 " s; see %s", call->part->time_limit,
                        program->log);
    }
}

/* At the end all is saved, and there is time. */
static int is_in_haste(const struct syi_action_call *call)
{
    const struct syi_action_report *report = &call->all->report;
    return call->moment->kind != SYI_AT_END && report->is_to_stop && report->is_to_stop(report->arg);
}

/* The other ranks wait meanwhile. */
static int wait_for_it(struct syi_action_call *call, struct program *program, struct syi_busy *busy,
                       struct sy_error *err)
{
    int status = SY_OK;
    for (look(call, program); !status && program->id && !is_in_haste(call); look(call, program)) {
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
        status = syi_busy_tell(busy, err);
    }
    return status;
}

/* ---- the action ---- */

static int open_program(const struct syi_action_call *call, void **data, struct sy_error *err)
{
    struct program *program;
    if (call->all->comm->rank) return SY_OK;
    program = syi_alloc(sizeof *program, err);
    if (!program) return SY_ENOMEM;
    snprintf(program->log, sizeof program->log, "%s/action-%s.log", call->all->run_dir,
             call->part->name_of_part);
    *data = program;
    return SY_OK;
}

static void close_program(void *data)
{
    struct program *program = data;
    if (program->id) kill_program(program);
    syi_free(program);
}

static int is_wanted(const struct syi_action_part *part, enum syi_moment_kind kind)
{
    static const int moment[] = {[SYI_ON_START] = SYI_AT_START,
                                 [SYI_ON_EVALUATION] = SYI_AFTER_EVALUATION,
                                 [SYI_ON_CHECKPOINT] = SYI_AFTER_CHECKPOINT,
                                 [SYI_ON_END] = SYI_AT_END};
    return moment[part->on] == (int)kind;
}

/* After the one before, which has ended or is waited for. */
static int run_next(struct syi_action_call *call, struct program *program,
                    const struct syi_eval_result *result, struct syi_busy *busy, struct sy_error *err)
{
    int status = wait_for_it(call, program, busy, err);
    if (!status && program->id)
        syi_action_warn(call, "not run: the one before still runs, and the run is asked to stop");
    else if (!status)
        start(call, program, result);
    return status;
}

static int run(struct syi_action_call *call, struct sy_error *err)
{
    struct program *program = call->data; /* NULL but on rank 0 */
    const enum syi_moment_kind kind = call->moment->kind;
    const struct syi_eval_result *result = syi_watch_evaluation(call->part, call->moment);
    int wanted = is_wanted(call->part, kind) && (kind != SYI_AFTER_EVALUATION || result), status = SY_OK;
    if (program) look(call, program);
    if (!wanted && kind != SYI_AT_END) return SY_OK;
    struct syi_busy busy = syi_busy_begin(call->all->comm);
    if (program && wanted) status = run_next(call, program, result, &busy, err);
    if (program && !status && kind == SYI_AT_END) status = wait_for_it(call, program, &busy, err);
    return status ? status : syi_busy_end(&busy, err);
}

const struct syi_action syi_action_command = {
    .name = "command",
    .moments = SYI_AT_START | SYI_AFTER_STEP | SYI_AFTER_EVALUATION | SYI_AFTER_CHECKPOINT | SYI_AT_END,
    .open = open_program,
    .close = close_program,
    .run = run};
