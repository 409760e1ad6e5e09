/* SPDX-License-Identifier: Apache-2.0 */
/* What the actions of `switchyard ckpt` share: an entry each, tables of what they print, elements of tensors as numbers. */
#ifndef CLI_CKPT_H
#define CLI_CKPT_H

#include "cli/cli.h"
#include "train/checkpoint/checkpoint.h"

struct ckpt_action {
    const char *name;
    const char *operands; /* "RUN", "A B" */
    int n_operands;       /* after the action's name */
    const char *options;  /* that it takes, separated by spaces */
    int (*run)(const struct cli_options *o, const char *const *operand); /* returns enum cli_exit */
};
int ckpt_list(const struct cli_options *o, const char *const *operand);
int ckpt_show(const struct cli_options *o, const char *const *operand);
int ckpt_check(const struct cli_options *o, const char *const *operand);
int ckpt_diff(const struct cli_options *o, const char *const *operand);
int ckpt_average(const struct cli_options *o, const char *const *operand);
int ckpt_cast(const struct cli_options *o, const char *const *operand);
int ckpt_prune(const struct cli_options *o, const char *const *operand);

/* steps.c: the steps of --steps, "20,40"; *step is owned by the caller. */
int ckpt_parse_steps(const char *text, int64_t **step, size_t *n, struct sy_error *err) SYI_MUST_CHECK;

/* ---- table.c ---- */

enum { CKPT_COLUMNS = 8, CKPT_CELL = 512 };
struct ckpt_table {
    const char *column[CKPT_COLUMNS]; /* names; NULL after the last */
    unsigned numbers;                 /* bit i: column i holds numbers, "" where there is none */
    char (*cell)[CKPT_CELL];          /* [n_cells], row by row */
    size_t n_cells, capacity;
};
/* Adds the next cell of the row at hand. */
int ckpt_put(struct ckpt_table *table, struct sy_error *err, const char *format, ...) SYI_PRINTF(3, 4);
/* Aligned columns, or as --tsv or --json say. */
int ckpt_print(const struct ckpt_table *table, const struct cli_options *o,
               struct sy_error *err) SYI_MUST_CHECK;
void ckpt_table_free(struct ckpt_table *table);

/* ---- values.c ---- */

int64_t ckpt_count(const struct syi_safetensors_tensor *tensor);              /* elements */
void ckpt_shape(const struct syi_safetensors_tensor *tensor, char text[128]); /* "[4,32]" */
/* Reads elements [first, first + n) as doubles, which hold them exactly but for int64 beyond 2^53; n is at most
 * CKPT_CHUNK. */
enum { CKPT_CHUNK = 1 << 16 };
int ckpt_read(const struct syi_safetensors *file, const struct syi_safetensors_tensor *tensor, int64_t first,
              int64_t n, double *value, struct sy_error *err) SYI_MUST_CHECK;
/* Rounds doubles to float32, that to bfloat16 where the tensor has it, and writes them there. */
int ckpt_write(const struct syi_safetensors *file, const struct syi_safetensors_tensor *tensor, int64_t first,
               int64_t n, const double *value, struct sy_error *err) SYI_MUST_CHECK;

#endif
