/* SPDX-License-Identifier: Apache-2.0 */
/* switchyard replay RUN_DIR --step N: does a step of a run again, holds its loss against the stored one, and shows the
 * tensors of the step. */
#include "config.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/new_folder.h"
#include "base/safetensors.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/replay_stored.h"
#include "train/replay/replay.h"

/* ---- tensors that were asked for ---- */

/* Copies, for a file that is written when all are known. */
struct dump {
    struct syi_safetensors_tensor *tensor; /* [n] names are owned */
    void **data;                           /* [n] owned */
    size_t n, room[2];
    int keep; /* 1: a file is wanted */
};

static void print_tensor(const struct syi_replay_tensor *seen)
{
    const struct sy_tensor *t = seen->tensor;
    double least = INFINITY, most = -INFINITY, squares = 0;
    int64_t n = syi_bound_count(t), odd = 0;
    for (int64_t i = 0; i < n; i++) {
        double value = syi_bound_value(t, i);
        odd += !isfinite(value);
        if (!isfinite(value)) continue;
        least = fmin(least, value);
        most = fmax(most, value);
        squares += value * value;
    }
    printf("%s[%" PRId64 "] %4zu  %s  %s[", seen->program, seen->microbatch, seen->op, seen->label,
           syi_dtype_name((enum sy_dtype)t->dtype));
    for (int d = 0; d < t->rank; d++) printf("%s%" PRId64, d ? "," : "", t->dim[d]);
    printf("]  ");
    if (n > odd)
        printf("least %.6g, most %.6g, root mean square %.6g", least, most,
               sqrt(squares / (double)(n - odd)));
    if (odd) printf("%s%" PRId64 " of %" PRId64 " not finite", n > odd ? ", " : "", odd, n);
    putchar('\n');
}

static int keep(struct dump *dump, const struct syi_replay_tensor *seen, struct sy_error *err)
{
    const struct sy_tensor *t = seen->tensor;
    size_t bytes = (size_t)syi_bound_count(t) * syi_dtype_bytes((enum sy_dtype)t->dtype);
    int status = SYI_GROW(dump->tensor, dump->room[0], dump->n + 1, err);
    if (!status) status = SYI_GROW(dump->data, dump->room[1], dump->n + 1, err);
    if (status) return status;
    struct syi_safetensors_tensor *to = &dump->tensor[dump->n];
    *to = (struct syi_safetensors_tensor){.dtype = syi_safetensors_dtype_of((enum sy_dtype)t->dtype),
                                          .rank = t->rank};
    memcpy(to->dims, t->dim, (size_t)t->rank * sizeof to->dims[0]);
    void *data = syi_alloc(bytes ? bytes : 1, err);
    to->name = syi_format("%s.%" PRId64 "/%zu/%s", seen->program, seen->microbatch, seen->op, seen->label);
    if (!data || !to->name) {
        syi_free(data);
        syi_free((char *)(uintptr_t)to->name);
        return syi_error(err, SY_ENOMEM, "out of memory");
    }
    memcpy(data, t->data, bytes);
    dump->data[dump->n++] = data;
    return SY_OK;
}

static int seen(void *arg, const struct syi_replay_tensor *tensor, struct sy_error *err)
{
    struct dump *dump = arg;
    print_tensor(tensor);
    return dump->keep ? keep(dump, tensor, err) : SY_OK;
}

static int write_file(void *arg, const char *path, const char *final, struct sy_error *err)
{
    static const struct syi_safetensors_pair metadata[] = {{"format", "pt"}};
    const struct dump *dump = arg;
    struct syi_safetensors file = {.fd = -1};
    (void) final;
    int status = syi_safetensors_plan(&file, dump->tensor, dump->n, metadata, 1, err);
    if (!status) status = syi_safetensors_create(&file, path, err);
    for (size_t i = 0; i < dump->n && !status; i++) {
        const struct syi_safetensors_tensor *there = syi_safetensors_find(&file, dump->tensor[i].name);
        status = syi_safetensors_write(&file, there, 0, dump->data[i], (size_t)there->bytes, err);
    }
    if (!status) status = syi_safetensors_finish(&file, err);
    syi_safetensors_close(&file);
    return status;
}

static void free_dump(struct dump *dump)
{
    for (size_t i = 0; i < dump->n; i++) {
        syi_free((char *)(uintptr_t)dump->tensor[i].name);
        syi_free(dump->data[i]);
    }
    syi_free(dump->tensor);
    syi_free(dump->data);
}

/* ---- numbers, and what is stored of them ---- */

/* A NaN has no sign here, whichever the processor gave it. */
static void print_number(const char *before, double value)
{
    char text[SYI_NUMBER_BYTES];
    syi_format_double(text, value);
    printf("%s%s", before, text);
}

/* A number of the step beside the stored one. metrics.every leaves steps out, and a step that ended the run has none.
 * Returns 1 if it is another. */
static int print_held(const struct cli_stored *stored, int64_t step, const char *name, const char *before,
                      double value)
{
    double kept = NAN;
    int there = cli_stored_number(stored, name, step, &kept);
    int differs = there && kept != value && !(isnan(kept) && isnan(value));
    print_number(before, value);
    if (!there) printf(", which is not stored\n");
    if (differs) print_number(", but ", kept);
    if (there) printf(differs ? " is stored\n" : ", as stored\n");
    return differs;
}

/* CLI_FAILED: a number is not the stored one. */
static int print_result(const struct cli_stored *stored, int64_t step, const struct syi_replay_result *r)
{
    if (r->from < 0)
        printf("step %" PRId64 ", from the seed\n", step);
    else
        printf("step %" PRId64 ", from the checkpoint of step %" PRId64 "\n", step, r->from);
    int differs = print_held(stored, step, "loss", "loss ", r->step.loss);
    differs |= print_held(stored, step, "weight_gradient_norm", "gradient norm ", r->step.grad_norm);
    differs |= print_held(stored, step, "learning_rate", "learning rate ", r->learning_rate);
    if (!r->n_not_finite) {
        printf("all %" PRId64 " tensors that the step writes are finite\n", r->n_tensors);
        return differs ? CLI_FAILED : CLI_DONE;
    }
    printf("%" PRId64 " of %" PRId64 " tensors that the step writes are not finite; the first:\n",
           r->n_not_finite, r->n_tensors);
    printf("  %s, microbatch %" PRId64 ", %s", r->program, r->microbatch, r->label);
    if (r->expert >= 0) printf(", expert %" PRId64, r->expert);
    printf(", element %" PRId64, r->element);
    print_number(": ", r->value);
    printf("\n  %s\n", r->text);
    return differs ? CLI_FAILED : CLI_DONE;
}

/* ---- the command ---- */

static int replay(const struct cli_options *o, const struct syi_config *config, struct cli_stored *stored,
                  struct dump *dump)
{
    struct sy_error err = {0};
    struct syi_replay_result result;
    struct syi_holes holes;
    const struct syi_replay_job job = {.launch = cli_launch(o, config),
                                       .run_dir = o->operand[0],
                                       .step = o->step,
                                       .holes = &holes,
                                       .pattern = o->dump.item,
                                       .n_patterns = o->dump.n,
                                       .arg = dump,
                                       .seen = seen,
                                       .stored_arg = stored,
                                       .evaluated = cli_stored_evaluated};
    if (cli_stored_holes(stored, o->step, &holes, &err)) return cli_fail(&err);
    if (syi_replay_run(&job, &result, &err)) return cli_fail(&err);
    int status = print_result(stored, o->step, &result);
    for (int i = 0; i < o->dump.n && !result.n_seen; i++)
        cli_error("replay: no tensor is called %s", o->dump.item[i]);
    if (o->dump.n && !result.n_seen) return CLI_FAILED;
    if (!dump->keep) return status;
    cli_catch_interrupts();
    return syi_new_file(o->write, write_file, dump, &err) ? cli_fail_or_stop(&err) : status;
}

struct settings {
    const struct cli_options *options;
    const struct cli_stored *stored;
};

static int change_settings(void *arg, struct syi_config *config, struct sy_error *err)
{
    const struct settings *s = arg;
    return cli_stored_settings(s->stored, s->options->operand[0], s->options->step, config, err);
}

static int replay_stored(const struct cli_options *o, struct cli_stored *stored)
{
    struct syi_config config;
    struct sy_error err = {0};
    struct dump dump = {.keep = o->write != NULL};
    struct settings settings = {o, stored};
    if (cli_load_run_as(o->operand[0], o, change_settings, &settings, &config, &err))
        return err.code == SY_EMISMATCH ? cli_fail(&err) : cli_load_failed(&err);
    int status = cli_check_launch("replay", o, &config, 1);
    if (status) return status;
    cli_log_to_stderr(1);
    status = replay(o, &config, stored, &dump);
    free_dump(&dump);
    return status;
}

int cli_replay(const struct cli_options *o)
{
    struct cli_stored stored;
    if (o->step <= 0) {
        cli_error("replay: give the step with --step N, 1 is the first");
        return CLI_USAGE;
    }
    if (o->write && !o->dump.n) {
        cli_error("replay: --write FILE needs tensors: give them with --dump PATTERN");
        return CLI_USAGE;
    }
    struct sy_error err = {0};
    if (o->write && syi_new_file_check(o->write, &err)) return cli_fail(&err);
    cli_stored_open(&stored, o->operand[0]);
    int status = replay_stored(o, &stored);
    cli_stored_close(&stored);
    return status;
}
