/* SPDX-License-Identifier: Apache-2.0 */
/* switchyard verify PATH...: golden files of the reference against what this build computes. */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "verify/verify.h"

static void print_line(void *arg, const char *text)
{
    (void)arg;
    puts(text);
}

struct job {
    struct verify_options options;
    struct verify_summary summary;
};

static int run_rank(void *arg, const struct syi_rank *rank, struct sy_error *err)
{
    struct job *job = arg;
    return verify_paths(rank, &job->options, &job->summary, err);
}

/* Backends that a build may lack: then cases are skipped, and that is no failure. */
static int is_optional(const char *backend)
{
    return !strcmp(backend, "cuda");
}

static int run_job(struct job *job, const struct cli_options *o, const struct syi_config *config)
{
    struct sy_error err = {0}, missing = {0};
    struct syi_launch launch = cli_launch(o, config);
    int status;
    launch.comm = "self";
    if (is_optional(o->backend) && syi_launch_check(&launch, &missing) == SY_ENOENT) {
        job->options.no_backend = missing.text;
        status = verify_paths(NULL, &job->options, &job->summary, &err);
    } else {
        status = cli_check_launch("verify", o, config, 1);
        if (status) return status;
        status = syi_launch_run(&launch, run_rank, job, &err);
    }
    return status ? cli_fail(&err) : CLI_DONE;
}

int cli_verify(const struct cli_options *o)
{
    static struct syi_config config;
    struct sy_error err = {0};
    struct job job = {.options = {.path = o->operand,
                                  .n_paths = o->n_operands,
                                  .tolerance = o->tolerance > 0 ? o->tolerance : 1,
                                  .verbose = o->verbose,
                                  .line = print_line}};
    if (syi_config_defaults(&config, &err)) return cli_fail(&err);
    int status = run_job(&job, o, &config);
    if (status) return status;
    const struct verify_summary *s = &job.summary;
    if (s->passed + s->failed + s->skipped == 0) {
        cli_error("verify: no case was found");
        return CLI_FAILED;
    }
    return s->failed || s->refused ? CLI_FAILED : CLI_DONE;
}
