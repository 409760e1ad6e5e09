/* SPDX-License-Identifier: Apache-2.0 */
/* bench RUNFILE: one configuration measured and printed, or two compared. */
#include "config.h"

#include <math.h>

#include "cli/bench/bench.h"

static void put_step(struct bench_out *out, const struct bench_step *s, const struct bench_machine *m,
                     const struct bench_step_job *job)
{
    /* the batches of data differ: sums over sums, no arithmetic of all in the time of one */
    double seconds = job->data ? s->times.mean : s->times.median, rate = s->products / seconds;
    const struct bench_number step[] = {
        {"steps", job->steps, 0},
        {"warmup", job->warmup, 0},
        {"median_seconds", s->times.median, 6},
        {"mean_seconds", job->data ? s->times.mean : NAN, 6},
        {"min_seconds", s->times.min, 6},
        {"tokens", s->tokens, 0},
        {"tokens_per_second", s->tokens / seconds, 0},
        {"product_gflop", s->products * 1e-9, 3},
        {"all_gflop", s->flops * 1e-9, 3},
        {"traffic_mib", s->bytes / 1048576, 1},
        {"product_gflops", rate * 1e-9, 2},
        {"percent_of_peak", bench_share(m, s->dtype, rate), 2},
    };
    const struct bench_number memory[] = {
        {"planned_persist_bytes", (double)s->planned.bytes[SYI_PERSIST], 0},
        {"planned_io_bytes", (double)s->planned.bytes[SYI_IO], 0},
        {"planned_carry_bytes", (double)s->planned.bytes[SYI_CARRY_SEGMENT], 0},
        {"planned_scratch_bytes", (double)s->planned.bytes[SYI_SCRATCH], 0},
        {"planned_bytes", (double)syi_plan_bytes(&s->planned), 0},
        {"peak_process_bytes", (double)s->peak_memory, 0},
    };
    bench_put_text(out, "dtype", syi_dtype_name(s->dtype));
    bench_put_numbers(out, "step", step, SYI_COUNT(step));
    bench_put_numbers(out, "memory", memory, SYI_COUNT(memory));
}

static void put_price(struct bench_out *out, const struct bench_step *s)
{
    const struct bench_number price[] = {
        {"on_seconds", s->times.median, 6},
        {"off_seconds", s->off.median, 6},
        {"price_percent", 100 * (s->times.median / s->off.median - 1), 2},
    };
    if (s->off.median > 0) bench_put_numbers(out, "reproducible", price, SYI_COUNT(price));
}

void bench_put_rows(struct bench_out *out, const char *name, const struct bench_rows *rows, double steps)
{
    bench_table(out, name);
    for (size_t i = 0; i < rows->n; i++) {
        const struct bench_row *r = &rows->row[i];
        const struct bench_number numbers[] = {
            {"calls", (double)r->calls / steps, 0},
            {"ms", 1e3 * r->seconds / steps, 3},
            {"percent", 100 * r->seconds / rows->seconds, 1},
            {"gflop", 1e-9 * r->flops / steps, 3},
            {"mib", r->bytes / steps / 1048576, 1},
            {"gflops", r->seconds > 0 ? 1e-9 * r->flops / r->seconds : 0, 1},
            {"gb_per_second", r->seconds > 0 ? 1e-9 * r->bytes / r->seconds : 0, 1},
            {"roofline", r->roof == 0 ? 0 : r->seconds / r->roof, 2},
        };
        bench_put_row(out, r->name, numbers, SYI_COUNT(numbers));
    }
    bench_table_end(out);
}

int bench_put_tables(struct bench_out *out, const struct bench_profile *profile,
                     const struct bench_machine *machine, int64_t steps, struct sy_error *err)
{
    static const char *const names[] = {
        [BENCH_BY_KIND] = "ops", [BENCH_BY_SHAPE] = "products", [BENCH_BY_LAYER] = "layers"};
    int status = SY_OK;
    for (int by = BENCH_BY_KIND; !status && by <= BENCH_BY_LAYER; by++) {
        struct bench_rows rows;
        status = bench_group(profile, machine, by, &rows, err);
        if (!status) bench_put_rows(out, names[by], &rows, (double)steps);
        bench_rows_free(&rows);
    }
    return status;
}

static int put_all(struct bench_out *out, const struct bench_step *step, const struct bench_machine *machine,
                   const struct bench_profile *profile, const struct bench_step_job *job,
                   struct sy_error *err)
{
    struct bench_machine share = *machine; /* of rank 0, whose ops the tables show */
    share.f32 /= step->ranks;
    share.bf16 /= step->ranks;
    share.copy /= step->ranks;
    bench_put_machine(out, machine);
    bench_put_text(out, "launch", step->what);
    put_step(out, step, machine, job);
    put_price(out, step);
    return job->profile ? bench_put_tables(out, profile, &share, step->profiled, err) : SY_OK;
}

static int run_one(struct bench_step_job *job, struct bench_out *out, struct sy_error *err)
{
    struct bench_machine machine;
    struct bench_step step;
    struct bench_profile profile = {0};
    int several = bench_over_processes(&job->launch); /* after the launch they only end */
    int status = bench_machine_of(&job->launch, &machine, err);
    if (!status) status = bench_step(job, &step, &profile, err);
    if (!status && !several) status = bench_machine_again(&machine, err);
    if (!status && cli_world_first()) status = put_all(out, &step, &machine, &profile, job, err);
    bench_profile_free(&profile);
    return status;
}

int bench_run_file(const char *run_file, struct bench_step_job *first, const struct bench_step_job *second,
                   int pairs, struct bench_out *out, struct sy_error *err)
{
    bench_put_text(out, "run", run_file);
    return second ? bench_compare(first, second, pairs, out, err) : run_one(first, out, err);
}
