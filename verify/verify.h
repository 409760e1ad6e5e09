/* SPDX-License-Identifier: Apache-2.0 */
/* The golden runner: files with inputs and expected results of the reference go through the ordinary code of
 * the library, and every expected tensor is compared. A kind of case is one function in one file; the table
 * of kinds is in verify.c. Cases come from anywhere: nothing in a file is believed before it was checked, and
 * what is wrong with it is an error with its reason. */
#ifndef VERIFY_H
#define VERIFY_H

#include "base/run_config.h"
#include "base/safetensors.h"
#include "train/launch/launch.h"

/* ---- case.c: one file ---- */

/* Exactly one of real and integer is there. Names: "in/...", "param/..." are given; all others ("out/...",
 * "grad/...", "grad_in/...") are results that the kind has to report. */
struct verify_tensor {
    const char *name; /* borrowed from the case */
    int rank;
    int64_t dim[SYI_SAFETENSORS_RANK]; /* [rank] */
    int64_t n;                         /* elements, 1 for rank 0; may be 0 */
    const float *real;                 /* [n] of an F32 tensor, else NULL */
    const int32_t *integer;            /* [n] of an I32 tensor, else NULL */
};

struct verify_case {
    char path[1024];
    char kind[32], name[128];     /* "layer", "attention-cross-pad" */
    struct verify_tensor *tensor; /* [n_tensors], in the order of their names */
    size_t n_tensors;
    double rtol, atol; /* of the file; 0 where it gives none */
    double bound;      /* of the step rule below, before --tolerance */
    /* the rest belongs to case.c */
    struct syi_safetensors file; /* names of tensors, metadata */
    struct syi_json json;        /* the configuration, or the whole document of a .json case */
    uint32_t config;             /* node of the configuration object in json */
    uint8_t *known;              /* [json.n_nodes] 1: some code reads this key */
    void *data;                  /* of all tensors */
};

/* Reads what a .safetensors or .json file says about itself: kind, name, tolerances, configuration, the table
 * of tensors. verify_case_close frees it; safe on a zeroed struct and twice. */
int verify_case_open(struct verify_case *c, const char *path, struct sy_error *err) SYI_MUST_CHECK;
/* The same of a folder with expected.json, whose configuration is the whole document, and, where there are tensors,
 * expected.safetensors: a case of kind import, named like the folder. path is that of expected.safetensors. */
int verify_case_open_folder(struct verify_case *c, const char *folder, struct sy_error *err) SYI_MUST_CHECK;
/* Reads the tensors: from now on tensor[] is there. */
int verify_case_load(struct verify_case *c, struct sy_error *err) SYI_MUST_CHECK;
void verify_case_close(struct verify_case *c);

/* NULL when there is none of this name. */
const struct verify_tensor *verify_find(const struct verify_case *c, const char *name);
/* The same with an error for one that is missing, of the other type, of another rank, or whose dims are not
 * these; a dim of -1 may be anything. type: 'f' or 'i'. */
int verify_need(const struct verify_case *c, const char *name, char type, int rank, const int64_t *dim,
                const struct verify_tensor **tensor, struct sy_error *err) SYI_MUST_CHECK;

/* ---- config.c: the flat configuration ----
 * Every getter marks the key as known. A key that nothing asked for fails the case. */

int verify_has(const struct verify_case *c, const char *key);     /* there, null or not; does not mark */
int verify_is_null(const struct verify_case *c, const char *key); /* absent counts as null; marks */
/* A missing key or one of another type or outside low..high is an error. */
int verify_int(const struct verify_case *c, const char *key, int64_t low, int64_t high, int64_t *value,
               struct sy_error *err) SYI_MUST_CHECK;
int verify_real(const struct verify_case *c, const char *key, double *value,
                struct sy_error *err) SYI_MUST_CHECK;
int verify_flag(const struct verify_case *c, const char *key, int *value,
                struct sy_error *err) SYI_MUST_CHECK;
/* Borrowed from the case. */
int verify_text(const struct verify_case *c, const char *key, const char **value,
                struct sy_error *err) SYI_MUST_CHECK;
/* Keys (separated by spaces) that say nothing that is not in the tensors as well. */
void verify_ignore(const struct verify_case *c, const char *keys);
/* A key that may be absent and else must have this value, as it stands in a run file ("float32", "0"). */
int verify_only(const struct verify_case *c, const char *key, const char *value,
                struct sy_error *err) SYI_MUST_CHECK;
/* The first key that nothing asked for, or NULL. */
const char *verify_unknown_key(const struct verify_case *c);
/* Starts from the defaults with compat.preset=t5x and sets the option of each key's name, in whatever
 * section it is. null leaves the default (loss_normalizing_factor: "none"). Keys in skip (separated by
 * spaces) are left to the kind, which still has to ask for them; a key that is no option is left to the kind
 * too. Not validated: the kind does that once it has set what else it needs. */
int verify_config(const struct verify_case *c, const char *skip, struct syi_config *config,
                  struct sy_error *err) SYI_MUST_CHECK;

/* ---- compare.c: results ---- */

enum verify_rule {
    VERIFY_STEP,     /* |a-b| <= bound times the largest |b| of the part compared (absolute if that is 0) */
    VERIFY_TOLERANCE /* |a-b| <= atol + rtol |b| for each element */
};

struct verify_result {
    char name[160]; /* of the tensor */
    double error; /* largest |a-b| / largest |b|, absolute where the latter is 0; integers: how many differ */
    double ratio; /* largest error as a share of what is allowed: over 1 fails */
    char reason[200]; /* why it failed; empty: it passed */
};

struct verify_report {
    const struct verify_case *item;
    double tolerance; /* factor of all bounds */
    struct verify_result *result;
    size_t n, capacity;
    int64_t *covered; /* [item->n_tensors] elements compared so far */
    int left_out;     /* rows that nothing here could answer */
    int status;       /* sticky: SY_ENOMEM */
};

/* Compares with the case's tensor of this name by VERIFY_STEP, NaN only equal to NaN; got may be NULL: there
 * is no such result. Failures are kept in the report: kinds go on. A name the case does not have is fine:
 * the file did not ask for it. */
void verify_floats(struct verify_report *r, const char *name, const float *got, int64_t n);
/* All elements must be equal. */
void verify_integers(struct verify_report *r, const char *name, const int32_t *got, int64_t n);
/* Elements [first, first + n) of the expected tensor only, under either rule. Parts are kept as results of
 * their own; a tensor is covered once its parts have as many elements as it has. */
void verify_floats_part(struct verify_report *r, const char *name, int64_t first, const float *got, int64_t n,
                        enum verify_rule rule);
void verify_integers_part(struct verify_report *r, const char *name, int64_t first, const int32_t *got,
                          int64_t n);
/* A tensor that was compared by the kind itself (reason NULL: it agrees), counted as covered. */
void verify_judge(struct verify_report *r, const char *name, double error, const char *reason);
void verify_report_free(struct verify_report *r);
/* Adds a failure for each expected tensor that is not covered, and for an unknown key. */
void verify_report_end(struct verify_report *r);
/* The result to be shown: the worst; NULL when there is none. */
const struct verify_result *verify_report_worst(const struct verify_report *r);

/* The two measures, for kinds that compare something else. at: index of the worst element. */
double verify_error_to_largest(const float *got, const float *want, int64_t n, int64_t *at);
double verify_error_to_tolerance(const float *got, const float *want, int64_t n, double rtol, double atol,
                                 int64_t *at); /* share of what is allowed */

/* ---- runner.c: a small recording, one rank ---- */

struct verify_context {
    const struct syi_rank *rank; /* backend, threads, communication of one rank, mesh without experts */
};

struct verify_put {
    int tensor; /* in the program */
    const struct verify_tensor *from;
    const void *values; /* what goes in: the case's values or the kind's own */
};

struct verify_out {
    char name[160];
    int tensor;
};

/* verify_run_begin; verify_in ...; record with run.p; verify_differentiate; verify_out ...;
 * verify_run_execute; verify_got ...; verify_run_report; verify_run_end (always). Errors of recording are
 * sticky in run.p. */
struct verify_run {
    const struct verify_context *context;
    const struct verify_case *item;
    struct syi_program *p;       /* being recorded; the session's after verify_run_execute */
    struct syi_session *session; /* NULL before verify_run_execute */
    struct verify_put put[48];
    struct verify_out out[96];
    int n_put, n_out;
    int64_t extent[128]; /* of each letter, 0: not known yet */
};

int verify_run_begin(struct verify_run *run, const struct verify_context *context,
                     const struct verify_case *c, struct sy_error *err) SYI_MUST_CHECK;
void verify_run_end(struct verify_run *run);
/* Says the extent of a letter before a tensor does (from a key of the configuration). */
void verify_extent(struct verify_run *run, char letter, int64_t extent);
/* Makes a tensor of the case an input of the program, under its own name. One letter a dimension, '-' one of
 * length 1 that is left out; the same letter must be equally long everywhere. Letters have axes: b batch,
 * t length, s length of keys (no axis), d embed, h joined heads, n heads, f mlp, v vocab, r buckets, e
 * experts of a router, k choice, c slots (no axis), g groups. Returns the tensor or -1 with the error in
 * run->p. */
int verify_in(struct verify_run *run, const char *name, const char *letters);
/* The same under another name in the program ("encoder/x" for "param/x"). */
int verify_in_as(struct verify_run *run, const char *as, const char *name, const char *letters);
/* An input with values of the kind's own (borrowed until verify_run_execute returns). */
int verify_given(struct verify_run *run, const char *name, int dtype, const char *letters,
                 const void *values);
/* Names a tensor of the program as a result. Recorded last: its axes go. */
void verify_out(struct verify_run *run, int tensor, const char *name);
/* Differentiates the scalar ([1]) with respect to every input that the case has a gradient of ("grad/X" of
 * "param/X", "grad_in/X" of "in/X") and makes that a result of the same name. */
void verify_differentiate(struct verify_run *run, int scalar);
/* Sum of y times the case's cotangent. letters: as of verify_in. */
int verify_against(struct verify_run *run, int y, const char *cotangent, const char *letters);
int verify_run_execute(struct verify_run *run, struct sy_error *err) SYI_MUST_CHECK;
/* Copies the inputs again and runs again: the kind has changed values that it gave. */
int verify_run_again(struct verify_run *run, struct sy_error *err) SYI_MUST_CHECK;
/* Values of a result after the run; NULL when there is none of this name. n may be NULL. */
const void *verify_got(const struct verify_run *run, const char *name, int64_t *n);
/* Reports all results whose names the case has. */
void verify_run_report(const struct verify_run *run, struct verify_report *r);

/* ---- kinds: one file each ----
 * A failure to compute is a status with err; SY_EUNSUPPORTED counts the case as skipped, VERIFY_NOT_BUILT too, for a
 * plugin that a build may lack: that is no failure. */
enum { VERIFY_NOT_BUILT = 1100 };

typedef int (*verify_kind_fn)(struct verify_context *context, const struct verify_case *c,
                              struct verify_report *report, struct sy_error *err);
int verify_layer(struct verify_context *context, const struct verify_case *c, struct verify_report *report,
                 struct sy_error *err);
int verify_masks(struct verify_context *context, const struct verify_case *c, struct verify_report *report,
                 struct sy_error *err); /* a layer of its own file */
int verify_loss(struct verify_context *context, const struct verify_case *c, struct verify_report *report,
                struct sy_error *err);
int verify_router(struct verify_context *context, const struct verify_case *c, struct verify_report *report,
                  struct sy_error *err);
int verify_moe_layer(struct verify_context *context, const struct verify_case *c,
                     struct verify_report *report, struct sy_error *err);
int verify_model(struct verify_context *context, const struct verify_case *c, struct verify_report *report,
                 struct sy_error *err);
int verify_microbatch(struct verify_context *context, const struct verify_case *c,
                      struct verify_report *report, struct sy_error *err);
int verify_train(struct verify_context *context, const struct verify_case *c, struct verify_report *report,
                 struct sy_error *err);
int verify_decode(struct verify_context *context, const struct verify_case *c, struct verify_report *report,
                  struct sy_error *err);
int verify_optimizer(struct verify_context *context, const struct verify_case *c,
                     struct verify_report *report, struct sy_error *err);
int verify_multi_optimizer(struct verify_context *context, const struct verify_case *c,
                           struct verify_report *report, struct sy_error *err);
int verify_optimizer_state(struct verify_context *context, const struct verify_case *c,
                           struct verify_report *report, struct sy_error *err);
int verify_multi_errors(struct verify_context *context, const struct verify_case *c,
                        struct verify_report *report,
                        struct sy_error *err); /* a multi_optimizer of its own file */
int verify_partitioner(struct verify_context *context, const struct verify_case *c,
                       struct verify_report *report, struct sy_error *err);
int verify_action(struct verify_context *context, const struct verify_case *c, struct verify_report *report,
                  struct sy_error *err);
int verify_weight_metrics(struct verify_context *context, const struct verify_case *c,
                          struct verify_report *report, struct sy_error *err);
int verify_weight_merges(struct verify_context *context, const struct verify_case *c,
                         struct verify_report *report,
                         struct sy_error *err); /* weight_metrics of its own file */
int verify_schedule(struct verify_context *context, const struct verify_case *c, struct verify_report *report,
                    struct sy_error *err);
int verify_import(struct verify_context *context, const struct verify_case *c, struct verify_report *report,
                  struct sy_error *err);
int verify_data(struct verify_context *context, const struct verify_case *c, struct verify_report *report,
                struct sy_error *err);

/* ---- verify.c: paths, lines, summary ---- */

struct verify_options {
    const char *const *path; /* [n_paths] files and folders */
    int n_paths;
    double tolerance;       /* factor of all bounds, 1 */
    int verbose;            /* every tensor */
    const char *no_backend; /* why an optional backend is missing: skips every case; NULL */
    void (*line)(void *arg, const char *text); /* gets each line of output */
    void *arg;
};

struct verify_summary {
    int64_t passed, failed, skipped; /* cases */
    int64_t refused;                 /* skipped for another reason than a missing backend */
};

/* rank: NULL with no_backend. The return value says only whether the walk itself went well. */
int verify_paths(const struct syi_rank *rank, const struct verify_options *options,
                 struct verify_summary *summary, struct sy_error *err) SYI_MUST_CHECK;

#endif
