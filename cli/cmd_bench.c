/* SPDX-License-Identifier: Apache-2.0 */
/* switchyard bench RUNFILE, or bench KIND: which benchmark, and whether the options belong to it. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/bench/bench.h"

static const struct bench_kind *const kinds[] = {&bench_gemm, &bench_attention, &bench_optimizer, &bench_moe};

static const struct bench_kind *find_kind(const char *name)
{
    for (size_t i = 0; i < SYI_COUNT(kinds); i++)
        if (!strcmp(kinds[i]->name, name)) return kinds[i];
    return NULL;
}

/* Options of runs mean nothing to the others, and the other way round. CLI_DONE, or CLI_USAGE after having
 * said so. */
static int check_options(const struct cli_options *o, int micro)
{
    const struct {
        const char *name;
        int given, of_micro;
    } list[] = {
        {"compare", o->compare != NULL, 0}, {"pairs", o->pairs, 0},         {"steps", o->steps, 0},
        {"warmup", o->warmup, 0},           {"profile", o->profile, 0},     {"data", o->data, 0},
        {"shape", o->shape != NULL, 1},     {"dtype", o->dtype != NULL, 1}, {"seconds", o->seconds > 0, 1}};
    for (size_t i = 0; i < SYI_COUNT(list); i++) {
        if (!list[i].given || list[i].of_micro == micro) continue;
        cli_error("bench %s: --%s belongs to %s", o->operand[0], list[i].name,
                  micro ? "the benchmark of a run file" : "gemm, attention, optimizer and moe");
        return CLI_USAGE;
    }
    if (o->profile && o->compare) {
        cli_error("bench: --compare measures whole steps, --profile single ops: give one of them");
        return CLI_USAGE;
    }
    if (o->pairs && !o->compare) {
        cli_error("bench: --pairs counts the measurements of --compare");
        return CLI_USAGE;
    }
    return CLI_DONE;
}

/* Half a document helps nobody: after a failure there is none. */
static int finish(struct bench_out *out, int failed, struct sy_error *err)
{
    if (failed) out->json = 0;
    return bench_end(out, err) || failed ? cli_fail(err) : CLI_DONE;
}

/* ---- a few ops ---- */

static int parse_shape(const char *text, const struct bench_kind *kind, struct bench_micro *micro)
{
    while (text && micro->n_shape < kind->n_extents) {
        char *end;
        long long n = strtoll(text, &end, 10);
        if (end == text || n < 1 || n > 65536 || (*end && *end != 'x')) return 0;
        micro->shape[micro->n_shape++] = n;
        text = *end ? end + 1 : NULL;
    }
    return !text && micro->n_shape == kind->n_extents;
}

struct request {
    const struct bench_kind *kind;
    struct bench_micro *micro;
};

static int run_kind(void *arg, const struct syi_rank *rank, struct sy_error *err)
{
    const struct request *r = arg;
    char text[256];
    r->micro->rank = rank;
    syi_rank_describe(rank, text, sizeof text);
    bench_put_text(r->micro->out, "launch", text);
    return r->kind->run(r->micro, err);
}

static int parse_micro(const struct cli_options *o, const struct bench_kind *kind, struct bench_micro *micro)
{
    if (o->shape && !parse_shape(o->shape, kind, micro)) {
        cli_error("bench %s: --shape=%s: expected %s, each 1..65536", kind->name, o->shape, kind->extents);
        return CLI_USAGE;
    }
    if (o->dtype && kind == &bench_optimizer) {
        cli_error("bench optimizer: --dtype is of gemm, attention and moe; weights and state are float32");
        return CLI_USAGE;
    }
    if (o->dtype && strcmp(o->dtype, "float32") && strcmp(o->dtype, "bfloat16")) {
        cli_error("bench: --dtype=%s: expected float32 or bfloat16", o->dtype);
        return CLI_USAGE;
    }
    micro->dtype = o->dtype && !strcmp(o->dtype, "bfloat16") ? SY_BF16 : SY_F32;
    return CLI_DONE;
}

static int run_micro(const struct cli_options *o, const struct bench_kind *kind, struct bench_out *out,
                     struct bench_micro *micro, struct sy_error *err)
{
    struct request request = {kind, micro};
    struct syi_launch launch = cli_launch(o, &micro->config);
    int status = bench_machine(bench_threads(&launch), &micro->machine, err);
    if (!status) status = bench_machine_again(&micro->machine, err);
    if (status) return status;
    micro->out = out;
    bench_put_text(out, "dtype", syi_dtype_name(micro->dtype));
    bench_put_machine(out, &micro->machine);
    return syi_launch_run(&launch, run_kind, &request, err);
}

static int bench_ops(const struct cli_options *o, const struct bench_kind *kind,
                     const struct syi_config *config)
{
    struct bench_micro micro = {.config = *config, .seconds = o->seconds > 0 ? o->seconds : 0.2};
    struct sy_error err = {0};
    struct bench_out out;
    int status = parse_micro(o, kind, &micro);
    if (status) return status;
    if (o->ranks > 1) {
        cli_error("bench %s: one rank, not %d", kind->name, o->ranks);
        return CLI_USAGE;
    }
    bench_begin(&out, o->json, kind->name);
    status = run_micro(o, kind, &out, &micro, &err);
    return finish(&out, status, &err);
}

/* ---- a run ---- */

/* The second configuration: *job over `config`, a copy of the first one's; text is changed. */
static int parse_compare(char *text, struct bench_step_job *job, struct syi_config *config)
{
    struct sy_error err = {0};
    job->launch.config = config;
    int status = bench_apply(text, config, &job->launch, &err);
    if (!status) status = syi_launch_check(&job->launch, &err);
    return status ? cli_usage(&err) : CLI_DONE;
}

static int bench_step_of_run(const struct cli_options *o, const struct syi_config *config)
{
    struct syi_config other = *config;
    struct sy_error err = {0};
    struct bench_out out;
    struct bench_step_job first = {.launch = cli_launch(o, config),
                                   .steps = o->steps ? o->steps : 10,
                                   .warmup = o->warmup ? o->warmup : 2,
                                   .profile = o->profile,
                                   .data = o->data};
    struct bench_step_job second = first;
    char *text = o->compare ? syi_strdup(o->compare, &err) : NULL;
    if (o->compare && !text) return cli_fail(&err);
    int status = text ? parse_compare(text, &second, &other) : CLI_DONE;
    if (!status && o->data && !*config->data.train) {
        cli_error("bench: --data takes the run's data, but data.train is not set");
        status = CLI_USAGE;
    }
    if (!status) {
        bench_begin(&out, o->json, "run");
        status =
            bench_run_file(o->operand[0], &first, text ? &second : NULL, o->pairs ? o->pairs : 5, &out, &err);
        status = finish(&out, status, &err);
    }
    syi_free(text);
    return status;
}

/* ---- the command ---- */

static int run(const struct cli_options *o)
{
    struct syi_config config;
    struct sy_error err = {0};
    const struct bench_kind *kind = find_kind(o->operand[0]);
    int status = check_options(o, kind != NULL);
    if (status) return status;
    if (cli_load_config(kind ? NULL : o->operand[0], o, &config, &err)) return cli_usage(&err);
    status = cli_check_launch("bench", o, &config, 1);
    if (status) return status;
    return kind ? bench_ops(o, kind, &config) : bench_step_of_run(o, &config);
}

const struct cli_cmd cli_bench = {
    "bench",
    "RUNFILE|gemm|attention|optimizer|moe",
    "backend comm ranks threads set json steps warmup profile data compare pairs shape dtype seconds",
    "Measures a training step of a run, or a few ops, against what the machine can do.",
    "A run file is measured on random words of full length; it needs no data. With --compare a second\n"
    "configuration runs in turn with the first, each time in a process of its own; the ratio is the time of\n"
    "the first over that of the second. gemm, attention, optimizer and moe measure ops at the shapes of T5\n"
    "models; --shape gives one of your own: MxKxN, ROWSxTARGETSxINPUTSxHEADS, ROWSxCOLUMNS,\n"
    "ROWSxLENGTHxEMBEDxMLP.",
    run};
