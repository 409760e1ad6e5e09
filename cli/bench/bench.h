/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of `switchyard bench` share: the machine's limits, time and cost of ops, a measured training
 * step, small programs of a few ops, and one way to print. Of other commands `plan` takes the machine's limits. */
#ifndef BENCH_H
#define BENCH_H

#include "base/json.h"
#include "cli/cli.h"
#include "program/cost.h"
#include "train/engine/engine.h"

/* ---- out.c: the same names and numbers as text or as one JSON document ---- */

struct bench_number {
    const char *name;
    double value; /* NaN: not known, left out */
    int decimals; /* shown in text; -1: %g */
};
struct bench_out {
    int json;
    struct syi_json_writer writer;
    struct syi_text document; /* JSON */
    int in_table;             /* rows of the table at hand */
};
void bench_begin(struct bench_out *out, int json, const char *what);
void bench_put_text(struct bench_out *out, const char *name, const char *text);
void bench_put_numbers(struct bench_out *out, const char *name, const struct bench_number *number, int n);
void bench_table(struct bench_out *out, const char *name);
void bench_put_row(struct bench_out *out, const char *label, const struct bench_number *number, int n);
void bench_table_end(struct bench_out *out);
int bench_end(struct bench_out *out, struct sy_error *err) SYI_MUST_CHECK; /* frees, too */

/* ---- child.c ---- */

/* fn(arg, result) in a process of its own, which leaves this one's memory and threads as they are; `bytes` of
 * result come back. */
int bench_in_child(int (*fn)(void *arg, void *result, struct sy_error *err), void *arg, void *result,
                   size_t bytes, struct sy_error *err) SYI_MUST_CHECK;

/* ---- machine.c: what this machine can do ---- */

struct bench_machine {
    char cpu[128]; /* model name, "" where the system does not say */
    int threads;   /* that computed */
    /* Peaks of products, FLOP/s of all threads: a tile whose operands are in the nearest cache. */
    double f32;                           /* fused multiply-adds */
    double bf16;                          /* dot products of bfloat16; 0: the CPU has none */
    double registers_f32, registers_bf16; /* the same on registers alone, which no product reaches */
    double copy; /* bytes/s, read and written, of a copy of large buffers by all threads */
}; /* of another backend than cpu these are not known, and 0: what the processor can do is no limit of it */
/* Whether the ranks of a launch are processes, this one of them. */
int bench_over_processes(const struct syi_launch *launch);
/* Threads of all ranks that a launch will have in this process. */
int bench_threads(const struct syi_launch *launch);
int bench_machine(const struct syi_launch *launch, struct bench_machine *machine,
                  struct sy_error *err) SYI_MUST_CHECK;
/* The same in some hundredths of a second, less exactly, by no more threads than there are CPUs. */
int bench_machine_quick(const struct syi_launch *launch, struct bench_machine *machine,
                        struct sy_error *err) SYI_MUST_CHECK;
/* All ranks of a launch together: those of a world of processes measure at the same time. */
int bench_machine_of(const struct syi_launch *launch, struct bench_machine *machine,
                     struct sy_error *err) SYI_MUST_CHECK;
/* Measures again and keeps the better of both: something else may have run at that time. */
int bench_machine_again(struct bench_machine *machine, struct sy_error *err) SYI_MUST_CHECK;
/* Measures the peaks of products anew, in a fifth of a second: a processor changes its clock from one second to the next. */
int bench_peaks_now(struct bench_machine *machine, struct sy_error *err) SYI_MUST_CHECK;
/* Peak of products of enum sy_dtype, what shares are of; bfloat16 that is faster widened to float32: that one. */
double bench_peak(const struct bench_machine *machine, int dtype);
/* FLOP/s in percent of that, and the least seconds of an op at the machine's limits. All three are NaN where they are not known. */
double bench_share(const struct bench_machine *machine, int dtype, double rate);
double bench_roof(const struct bench_machine *machine, int dtype, double flops, double bytes);
uint64_t bench_peak_memory(void); /* most bytes this process has had in memory */
void bench_put_machine(struct bench_out *out, const struct bench_machine *machine);

/* ---- times.c ---- */

struct bench_times {
    double median, min, mean; /* seconds */
};
struct bench_times bench_times(double *seconds, int64_t n); /* sorts; n > 0 */

/* ---- profile.c: time and cost of every op, through the hook of a session ---- */

struct bench_op {
    int64_t calls;
    double seconds, least; /* of all calls, of the fastest */
    double flops, bytes;   /* of all calls */
    int product, dtype;    /* of syi_call_cost; of the first floating-point operand, else SY_F32 */
    const char *kind;      /* name of the op, static */
    char layer[96];        /* the first three parts of its path; "update" for all of that program */
    char shape[96];        /* its name, the extents of its first two operands and of its first output */
};
struct bench_profile {
    struct syi_session *session; /* borrowed */
    struct bench_op **op;        /* [program][op] */
    size_t *n_ops;               /* [program] */
    size_t n_programs;
    double begin; /* of the op at hand, seconds */
};
/* From now on until stop every op is timed. What was measured outlives the session. */
int bench_profile_start(struct bench_profile *profile, struct syi_session *session,
                        struct sy_error *err) SYI_MUST_CHECK;
void bench_profile_stop(struct bench_profile *profile);
void bench_profile_free(struct bench_profile *profile);

/* Ops that have a name in common: a kind of op, a layer, or products of one shape. */
struct bench_row {
    char name[96];
    int64_t calls;
    double seconds, flops, bytes; /* sums over calls */
    double least;                 /* the fastest call of each op, summed */
    double roof;                  /* seconds at the machine's limits, op by op; NaN: not known */
};
struct bench_rows {
    struct bench_row *row; /* owned; slowest first */
    size_t n, capacity;
    int64_t runs;   /* of a trial's program that they sum up */
    double seconds; /* of all ops, of those too that are in no row */
};
enum bench_group { BENCH_BY_KIND, BENCH_BY_SHAPE, BENCH_BY_LAYER }; /* by shape: of products alone */
int bench_group(const struct bench_profile *profile, const struct bench_machine *machine, int by,
                struct bench_rows *rows, struct sy_error *err) SYI_MUST_CHECK;
/* The row of that name; a row of zeros when there is none. */
struct bench_row bench_find(const struct bench_rows *rows, const char *name);
void bench_rows_free(struct bench_rows *rows);

/* ---- step.c: a training step ---- */

struct bench_step_job {
    struct syi_launch launch;
    int steps, warmup, profile, data; /* as the options say */
};
struct bench_step { /* plain bytes: it may come out of a child */
    char what[256]; /* ranks, threads, backend, mesh */
    int ranks;
    struct bench_times times; /* of the slowest rank, step by step */
    struct bench_times off;   /* the same with reproducible off; 0: not measured */
    double tokens;            /* of a step, real ones; all ranks */
    double flops, products,
        bytes;               /* of a step, all ranks; products: FLOPs of matrix products and attention */
    int dtype;               /* bfloat16 if most products are, else float32 */
    struct syi_plan planned; /* on rank 0 */
    uint64_t peak_memory;    /* bytes of the largest process */
    int64_t profiled;        /* steps in the tables */
};
/* profile: gets the ops of rank 0, to be freed; NULL: not wanted. */
int bench_step(const struct bench_step_job *job, struct bench_step *step, struct bench_profile *profile,
               struct sy_error *err) SYI_MUST_CHECK;

/* Rows of random words without an end, all of the longest bucket's lengths. */
int bench_fill_batch(const struct syi_config *config, const struct syi_bucket *buckets, int n_buckets,
                     struct syi_batch *batch, struct sy_error *err) SYI_MUST_CHECK;

/* ---- decode.c ---- */

/* Decodes a batch of random words again and again as the run file says, to the longest output; prints. A
 * step of the job is one batch. */
int bench_decode(const char *run_file, const struct bench_step_job *job, struct bench_out *out,
                 struct sy_error *err) SYI_MUST_CHECK;

/* ---- trial.c: a small program ---- */

struct bench_micro {
    const struct cli_options *options;
    struct syi_config config; /* defaults and --set */
    int64_t shape[4];         /* of --shape */
    int n_shape;              /* 0: not given */
    int dtype;                /* of --dtype */
    double seconds;           /* time for each measurement */
    int places;               /* of operands and results of gemm, taken in turn */
    struct bench_machine machine;
    const struct syi_rank *rank;
    struct bench_out *out;
};
struct bench_trial {
    struct syi_program *program;                          /* owned by bench_try from the call on */
    void (*fill)(void *arg, struct syi_session *session); /* called after the random numbers; or NULL */
    void *arg;
};
/* Runs the program again and again, first as it is (times), then op by op (rows, by kind). */
int bench_try(const struct bench_micro *micro, const struct bench_trial *trial, struct bench_times *times,
              struct bench_rows *rows, struct sy_error *err) SYI_MUST_CHECK;

/* optimizer.c: a trial of the update of some parameters. whole: with all that a step may want besides, the norm from the
 * gradients and metrics of the weights. */
struct syi_model;
int bench_update_trial(const struct bench_micro *micro, const struct syi_model *model,
                       const struct syi_config *config, int whole, struct bench_trial *trial,
                       struct sy_error *err) SYI_MUST_CHECK;

/* One of the benchmarks of a few ops; prints to micro->out. */
struct bench_kind {
    const char *name, *extents; /* extents: what --shape gives */
    int n_extents;
    int (*run)(struct bench_micro *micro, struct sy_error *err);
};
extern const struct bench_kind bench_gemm, bench_attention, bench_optimizer, bench_moe;

/* ---- compare.c, run.c: what the command does ---- */

/* second: NULL, or what the first is compared with. */
int bench_run_file(const char *run_file, struct bench_step_job *first, const struct bench_step_job *second,
                   int pairs, struct bench_out *out, struct sy_error *err) SYI_MUST_CHECK;
/* A table: per step, share of all rows' time; roofline: time over the time at the machine's limits. */
void bench_put_rows(struct bench_out *out, const char *name, const struct bench_rows *rows, double steps);
/* The tables of --profile, a step of so many. */
int bench_put_tables(struct bench_out *out, const struct bench_profile *profile,
                     const struct bench_machine *machine, int64_t steps, struct sy_error *err) SYI_MUST_CHECK;
/* A list KEY=VALUE,... over a configuration and a launch. backend, comm, ranks and threads are the options
 * of these names, all others keys of the run file. text: borrowed by the launch, changed. */
int bench_apply(char *text, struct syi_config *config, struct syi_launch *launch,
                struct sy_error *err) SYI_MUST_CHECK;
/* pairs: BENCH_PAIRS at most. */
enum { BENCH_PAIRS = 64 };
int bench_compare(const struct bench_step_job *first, const struct bench_step_job *second, int pairs,
                  struct bench_out *out, struct sy_error *err) SYI_MUST_CHECK;

#endif
