/* SPDX-License-Identifier: Apache-2.0 */
/* switchyard bench RUNFILE, bench decode RUNFILE, or bench KIND: which benchmark, and whether the options
 * belong to it. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/bench/bench.h"

static const double MOMENT =
    0.01; /* seconds for a measurement below which the machine is not measured thoroughly */

static const struct bench_kind *const kinds[] = {&bench_gemm, &bench_attention, &bench_optimizer, &bench_moe};

static const struct bench_kind *find_kind(const char *name)
{
    for (size_t i = 0; i < SYI_COUNT(kinds); i++)
        if (!strcmp(kinds[i]->name, name)) return kinds[i];
    return NULL;
}

/* What is measured, as bits: options belong to some of it. */
enum { STEP = 1, DECODE = 2, OPS = 4, MOE = 8, GEMM = 16 };

static const char *owners(int of)
{
    switch (of) {
    case STEP: return "the benchmark of a run file";
    case STEP | DECODE: return "the benchmark of a run file and decode";
    case STEP | DECODE | MOE: return "the benchmark of a run file, decode and moe";
    case DECODE: return "decode";
    case GEMM: return "gemm";
    default: return "gemm, attention, optimizer and moe";
    }
}

/* An option that means nothing to this benchmark is refused. CLI_DONE, or CLI_USAGE after having said so. */
static int check_options(const struct cli_options *o, int what)
{
    const struct {
        const char *name;
        int given, of;
    } list[] = {{"compare", o->compare != NULL, STEP},
                {"pairs", o->pairs, STEP},
                {"data", o->data, STEP},
                {"steps", o->steps, STEP | DECODE},
                {"warmup", o->warmup, STEP | DECODE},
                {"profile", o->profile, STEP | DECODE | MOE},
                {"beams", o->beams != NULL, DECODE},
                {"shape", o->shape != NULL, OPS},
                {"dtype", o->dtype != NULL, OPS},
                {"seconds", o->seconds > 0, OPS},
                {"places", o->places, GEMM}};
    for (size_t i = 0; i < SYI_COUNT(list); i++) {
        if (!list[i].given || (list[i].of & what)) continue;
        cli_error("bench %s: --%s belongs to %s", o->operand[0], list[i].name, owners(list[i].of));
        return CLI_USAGE;
    }
    if (o->n_operands != (what == DECODE ? 2 : 1)) {
        cli_error("bench %s: %s", o->operand[0],
                  what == DECODE ? "the run file is missing" : "takes no second operand");
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
    if (o->pairs > BENCH_PAIRS) {
        cli_error("bench: --pairs=%d: at most %d", o->pairs, BENCH_PAIRS);
        return CLI_USAGE;
    }
    if (cli_world()->backend && (what != STEP || o->compare)) {
        cli_error("bench: only the step of a run file is measured by several processes, without --compare: "
                  "start this without mpirun, with --comm thread --ranks N for several ranks");
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
    r->micro->config.reproducible.min_leaf = syi_rank_min_leaf(rank, &r->micro->config);
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
    if (o->dtype)
        micro->config.model.dtype = strcmp(o->dtype, "float32") ? SYI_DTYPE_BFLOAT16 : SYI_DTYPE_FLOAT32;
    micro->dtype =
        micro->config.model.dtype == SYI_DTYPE_BFLOAT16 && kind != &bench_optimizer ? SY_BF16 : SY_F32;
    return CLI_DONE;
}

static int run_micro(const struct cli_options *o, const struct bench_kind *kind, struct bench_out *out,
                     struct bench_micro *micro, struct sy_error *err)
{
    struct request request = {kind, micro};
    struct syi_config config = micro->config;
    struct syi_launch launch = cli_launch(o, &config);
    config.model.dtype =
        micro->dtype == SY_BF16 ? SYI_DTYPE_BFLOAT16 : SYI_DTYPE_FLOAT32; /* of the kernels */
    int in_a_moment = micro->seconds < MOMENT;
    int status = in_a_moment ? bench_machine_quick(&launch, &micro->machine, err)
                             : bench_machine(&launch, &micro->machine, err);
    if (!status && !in_a_moment) status = bench_machine_again(&micro->machine, err);
    if (status) return status;
    micro->out = out;
    bench_put_text(out, "dtype", syi_dtype_name(micro->dtype));
    bench_put_machine(out, &micro->machine);
    return syi_launch_run(&launch, run_kind, &request, err);
}

static int bench_ops(const struct cli_options *o, const struct bench_kind *kind,
                     const struct syi_config *config)
{
    struct bench_micro micro = {.options = o,
                                .config = *config,
                                .seconds = o->seconds > 0 ? o->seconds : 0.2,
                                .places = o->places ? o->places : 1};
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

static struct bench_step_job step_job(const struct cli_options *o, const struct syi_config *config)
{
    return (struct bench_step_job){.launch = cli_launch(o, config),
                                   .steps = o->steps ? o->steps : 10,
                                   .warmup = o->warmup ? o->warmup : 2,
                                   .profile = o->profile,
                                   .data = o->data};
}

static int bench_decode_of_run(const struct cli_options *o, const struct syi_config *config)
{
    struct bench_step_job job = step_job(o, config);
    struct sy_error err = {0};
    struct bench_out out;
    bench_begin(&out, o->json, "decode");
    int status = bench_decode(o->operand[1], &job, &out, &err);
    return finish(&out, status, &err);
}

static int bench_step_of_run(const struct cli_options *o, const struct syi_config *config)
{
    struct syi_config other = *config;
    struct sy_error err = {0};
    struct bench_out out;
    struct bench_step_job first = step_job(o, config), second = first;
    char *text = o->compare ? syi_strdup(o->compare, &err) : NULL;
    if (o->compare && !text) return cli_fail(&err);
    int status = text ? parse_compare(text, &second, &other) : CLI_DONE;
    if (!status && o->data && !*syi_config_task(config)->train) {
        cli_error("bench: --data takes the run's data, but task.NAME.train is not set");
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

int cli_bench(const struct cli_options *o)
{
    struct syi_config config;
    struct sy_error err = {0};
    const struct bench_kind *kind = find_kind(o->operand[0]);
    int what = kind == &bench_moe                ? OPS | MOE
               : kind == &bench_gemm             ? OPS | GEMM
               : kind                            ? OPS
               : strcmp(o->operand[0], "decode") ? STEP
                                                 : DECODE;
    int status = check_options(o, what);
    if (status) return status;
    const char *file = kind ? NULL : o->operand[what == DECODE];
    if (cli_load_config(file, o, &config, &err)) return cli_load_failed(&err);
    status = cli_check_launch("bench", o, &config, 1);
    if (status) return status;
    if (what == DECODE) return bench_decode_of_run(o, &config);
    return kind ? bench_ops(o, kind, &config) : bench_step_of_run(o, &config);
}
