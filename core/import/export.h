/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoints of a run in the forms of other programs. What is common, finding the run's checkpoint and making the folder,
 * is export.c's; a form is a row of its table. */
#ifndef SYI_EXPORT_H
#define SYI_EXPORT_H

#include "base/run_config.h"
#include "base/safetensors.h"

struct syi_export {
    const char *run_dir;
    struct syi_config config; /* of the run, vocabularies with their copies in the run directory */
    int64_t step;
    struct syi_safetensors params, state; /* of the checkpoint, verified */
    enum syi_safetensors_dtype dtype;     /* of weights in the output: F32 or BF16 */
    struct syi_text said;                 /* a line for each thing that a user should know of the output */
    int32_t end, unknown;                 /* form hf: ids of the vocabulary of targets */
};

struct syi_export_format {
    const char *name; /* hf, safetensors: --format */
    const char *help;
    /* Fills the folder `to`, which is there and empty. What the form cannot hold is SY_EUNSUPPORTED and names the key. */
    int (*write)(struct syi_export *export, const char *to, struct sy_error *err);
};

extern const struct syi_export_format syi_export_hf;
extern const struct syi_export_format syi_export_safetensors;
extern const struct syi_export_format syi_export_t5x;

/* Whether there is such a format. */
int syi_export_check(const char *format, struct sy_error *err) SYI_MUST_CHECK;
/* step: a number, or as in train/checkpoint/checkpoint.h. export holds config and dtype, all else is zero. Makes the
 * folder `to`, which must not exist or be empty; nothing is left of it after a failure. Freed by syi_export_free, also
 * then. */
int syi_export_run(struct syi_export *export, const char *run_dir, int64_t step, const char *format,
                   const char *to, struct sy_error *err) SYI_MUST_CHECK;
void syi_export_free(struct syi_export *export);

/* For forms: keys of which a form knows one value alone. */
struct syi_export_limit {
    const char *key, *value, *why; /* value: as a run file has it */
};
/* SY_EUNSUPPORTED: names the key, its value, the program ("transformers") and why. */
int syi_export_refuse(const struct syi_config *config, const char *program, const char *key, const char *why,
                      struct sy_error *err) SYI_MUST_CHECK;
/* The same of the first of the keys that has another value. */
int syi_export_limits(const struct syi_config *config, const char *program,
                      const struct syi_export_limit *limits, size_t n, struct sy_error *err) SYI_MUST_CHECK;
/* Whether the decoder's output is scaled before the head. */
int syi_export_is_scaled(const struct syi_config *config);

/* For forms: writes FOLDER/model.safetensors. Each tensor is part `part` of the first dimension of a parameter (parts 0:
 * all of it), transposed if it is a matrix and that is asked for. */
struct syi_export_tensor {
    char *name;       /* in the file, owned by the caller */
    const char *from; /* in params */
    int64_t part, parts;
    int transposed;
};
int syi_export_tensors(const struct syi_export *export, const char *folder,
                       const struct syi_export_tensor *list, size_t n, struct sy_error *err) SYI_MUST_CHECK;

#endif
