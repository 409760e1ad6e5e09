/* SPDX-License-Identifier: Apache-2.0 */
/* Variables of the environment: those that look like ours and are not, most often a misspelling, which else would do
 * nothing without a word; and one that holds seconds. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

extern char **environ;

/* Those that the program reads, that its tests and scripts do, and that actions give to the programs they start. */
static const char *const known[] = {
    "SWITCHYARD_BACKEND_PATH",  "SWITCHYARD_COMM_TIMEOUT", "SWITCHYARD_CPU_VARIANT", "SWITCHYARD_LOCK_WAIT",
    "SWITCHYARD_LOG_RANKS",     "SWITCHYARD_NODE_RANKS",   "SWITCHYARD_ARM64_ROOT",  "SWITCHYARD_GOLDENS",
    "SWITCHYARD_VERIFY_MODELS", "SWITCHYARD_SRUN_MPI",     "SWITCHYARD_ROOT",        "SWITCHYARD_EVENT",
    "SWITCHYARD_RUN_DIR",       "SWITCHYARD_STEP",         "SWITCHYARD_TASK",        "SWITCHYARD_TEXT",
};
enum { READ = 6 }; /* the first ones, which a misspelling can have meant */

static const char prefix[] = "SWITCHYARD_"; /* which makes all of them alike */

/* "": none is like it. */
static const char *nearest_known(const char *name)
{
    const char *nearest = cli_nearest(name, known, READ);
    return syi_is_near(name + strlen(prefix), nearest + strlen(prefix)) ? nearest : "";
}

static int is_known(const char *name)
{
    if (!strncmp(name, "SWITCHYARD_VALUE_", strlen("SWITCHYARD_VALUE_"))) return 1;
    for (size_t i = 0; i < SYI_COUNT(known); i++)
        if (!strcmp(name, known[i])) return 1;
    return 0;
}

void cli_each_variable(cli_variable_fn fn, void *arg)
{
    for (char **at = environ; at && *at; at++) {
        char name[64];
        size_t length = strcspn(*at, "=");
        if (strncmp(*at, prefix, strlen(prefix)) || length >= sizeof name) continue;
        memcpy(name, *at, length);
        name[length] = '\0';
        fn(arg, name, *at + length + ((*at)[length] == '='), is_known(name) ? NULL : nearest_known(name));
    }
}

static void warn(void *arg, const char *name, const char *value, const char *nearest)
{
    (void)arg;
    (void)value;
    if (nearest)
        cli_error("warning: %s is set, which means nothing here%s%s%s", name,
                  *nearest ? ", did you mean " : "", nearest, *nearest ? "?" : "");
}

void cli_check_environment(void)
{
    cli_each_variable(warn, NULL);
}

int cli_read_seconds(const char *variable, long least, double *seconds, struct sy_error *err)
{
    const long most = 1000000000; /* as the backends say, too */
    const char *text = getenv(variable);
    char *end;
    if (!text || !*text) return SY_OK;
    long read = strtol(text, &end, 10);
    if (end == text || *end || read < least || read > most)
        return syi_error(err, SY_EINVAL, "%s=%.40s: a whole number of seconds, %ld to %ld", variable, text,
                         least, most);
    *seconds = (double)read;
    return SY_OK;
}
