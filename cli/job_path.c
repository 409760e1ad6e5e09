/* SPDX-License-Identifier: Apache-2.0 */
/* Names of run directories with the numbers of the batch job in them, as sbatch has them in names of files. One job array
 * so gives each of its jobs a directory. */
#include "config.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

static const struct {
    char letter;
    const char *variable;
} parts[] = {{'A', "SLURM_ARRAY_JOB_ID"},
             {'a', "SLURM_ARRAY_TASK_ID"},
             {'j', "SLURM_JOB_ID"},
             {'x', "SLURM_JOB_NAME"}};

/* Names that were made, for as long as the program runs. */
static struct made {
    struct made *next;
    struct syi_text path;
} * all;

void cli_job_paths_free(void)
{
    while (all) {
        struct made *next = all->next;
        syi_text_free(&all->path);
        syi_free(all);
        all = next;
    }
}

static int put_part(const char *what, const char *given, char letter, struct syi_text *path)
{
    size_t i = 0;
    while (i < SYI_COUNT(parts) && letter != parts[i].letter) i++;
    if (i == SYI_COUNT(parts)) {
        cli_error(
            "%s %s: there is no %%%c here: %%A and %%a are the job array and the place in it, %%j and %%x the "
            "job and its name, %%%% is %%",
            what, given, letter);
        return CLI_USAGE;
    }
    const char *value = getenv(parts[i].variable);
    if (!value || !*value) {
        cli_error("%s %s: %%%c is %s, which is not set: this is no such job", what, given, letter,
                  parts[i].variable);
        return CLI_USAGE;
    }
    syi_text_puts(path, value);
    return CLI_DONE;
}

/* A % that no letter or digit follows is itself. */
static int write_path(const char *what, const char *given, struct syi_text *path)
{
    int status = CLI_DONE;
    for (const char *at = given; *at && !status; at++) {
        if (*at == '%' && isalnum((unsigned char)at[1])) {
            status = put_part(what, given, *++at, path);
        } else {
            syi_text_append(path, at, 1);
            at += *at == '%' && at[1] == '%';
        }
    }
    return status;
}

int cli_job_path(const char *what, const char **path)
{
    struct sy_error err = {0};
    if (!strchr(*path, '%')) return CLI_DONE;
    struct made *made = syi_alloc(sizeof *made, &err);
    if (!made) return cli_fail(&err);
    *made = (struct made){.next = all};
    all = made;
    int status = write_path(what, *path, &made->path);
    if (status) return status;
    if (syi_text_status(&made->path, &err)) return cli_fail(&err);
    if (made->path.length >= SYI_CONFIG_STRING) {
        cli_error("%s is longer than %d bytes", what, SYI_CONFIG_STRING - 1);
        return CLI_USAGE;
    }
    *path = made->path.data;
    return CLI_DONE;
}
