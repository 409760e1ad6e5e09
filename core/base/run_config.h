/* SPDX-License-Identifier: Apache-2.0 */
/* The run file: sections of `key = value` lines (the simple part of TOML) read into one plain C structure.
 * Keys, types, defaults and ranges come from options.def alone. (Not called config.h: that is configure's.)
 */
#ifndef SYI_RUN_CONFIG_H
#define SYI_RUN_CONFIG_H

#include <stdbool.h>

#include "base/text.h"

/* ---- choices: X(constant, text in a run file) ---- */

#define SYI_MLP_MAP(X)                                                                                       \
    X(SYI_MLP_GELU_LINEAR, "gelu,linear")                                                                    \
    X(SYI_MLP_RELU_LINEAR, "relu,linear")                                                                    \
    X(SYI_MLP_SILU_LINEAR, "silu,linear")                                                                    \
    X(SYI_MLP_GELU, "gelu")                                                                                  \
    X(SYI_MLP_RELU, "relu")
#define SYI_SPARSE_MAP(X)                                                                                    \
    X(SYI_SPARSE_MIXED, "MIXED")                                                                             \
    X(SYI_SPARSE_TOP, "TOP")                                                                                 \
    X(SYI_SPARSE_BOTTOM, "BOTTOM")                                                                           \
    X(SYI_SPARSE_MIDDLE, "MIDDLE")
#define SYI_EXPERT_MLP_MAP(X)                                                                                \
    X(SYI_EXPERT_MLP_MODEL, "model")                                                                         \
    X(SYI_EXPERT_MLP_GELU_LINEAR, "gelu,linear")                                                             \
    X(SYI_EXPERT_MLP_RELU_LINEAR, "relu,linear")                                                             \
    X(SYI_EXPERT_MLP_SILU_LINEAR, "silu,linear")                                                             \
    X(SYI_EXPERT_MLP_GELU, "gelu")                                                                           \
    X(SYI_EXPERT_MLP_RELU, "relu")
#define SYI_ROUTER_MAP(X)                                                                                    \
    X(SYI_ROUTER_TOKENS_CHOOSE_MASKED, "tokens_choose_masked")                                               \
    X(SYI_ROUTER_TOKENS_CHOOSE_SCATTER, "tokens_choose_scatter")                                             \
    X(SYI_ROUTER_EXPERTS_CHOOSE_MASKED, "experts_choose_masked")
#define SYI_DECODER_ROUTER_MAP(X)                                                                            \
    X(SYI_DECODER_ROUTER_SAME, "same")                                                                       \
    X(SYI_DECODER_ROUTER_TOKENS_CHOOSE_MASKED, "tokens_choose_masked")                                       \
    X(SYI_DECODER_ROUTER_TOKENS_CHOOSE_SCATTER, "tokens_choose_scatter")                                     \
    X(SYI_DECODER_ROUTER_EXPERTS_CHOOSE_MASKED, "experts_choose_masked")
#define SYI_REDUCTION_MAP(X)                                                                                 \
    X(SYI_REDUCTION_MEAN, "mean")                                                                            \
    X(SYI_REDUCTION_SUM, "sum")
#define SYI_FACTOR_MAP(X)                                                                                    \
    X(SYI_FACTOR_NONE, "none")                                                                               \
    X(SYI_FACTOR_STANDARD, "standard")                                                                       \
    X(SYI_FACTOR_MOE, "moe")
/* Behaviours with two sides, in this order: by run.compat, switchyard's, T5X's (base/compat.h). */
#define SYI_COMPAT_MAP(X)                                                                                    \
    X(SYI_COMPAT_NONE, "none")                                                                               \
    X(SYI_COMPAT_T5X, "t5x")
#define SYI_DTYPE_MAP(X)                                                                                     \
    X(SYI_DTYPE_FLOAT32, "float32")                                                                          \
    X(SYI_DTYPE_BFLOAT16, "bfloat16")
#define SYI_MASKED_ROW_MAP(X)                                                                                \
    X(SYI_MASKED_ROW_AUTO, "auto")                                                                           \
    X(SYI_MASKED_ROW_ZERO, "zero")                                                                           \
    X(SYI_MASKED_ROW_UNIFORM, "uniform")
#define SYI_PADDING_MASK_MAP(X)                                                                              \
    X(SYI_PADDING_MASK_AUTO, "auto")                                                                         \
    X(SYI_PADDING_MASK_TARGETS, "targets")                                                                   \
    X(SYI_PADDING_MASK_INPUTS, "inputs")
#define SYI_IGNORE_PADDING_MAP(X)                                                                            \
    X(SYI_IGNORE_PADDING_AUTO, "auto")                                                                       \
    X(SYI_IGNORE_PADDING_TRUE, "true")                                                                       \
    X(SYI_IGNORE_PADDING_FALSE, "false")
#define SYI_GROUP_BY_MAP(X)                                                                                  \
    X(SYI_GROUP_BY_AUTO, "auto")                                                                             \
    X(SYI_GROUP_BY_ROWS, "rows")                                                                             \
    X(SYI_GROUP_BY_TOKENS, "tokens")
#define SYI_REAL_OR_ALL_MAP(X)                                                                               \
    X(SYI_TOKENS_AUTO, "auto")                                                                               \
    X(SYI_TOKENS_REAL, "real")                                                                               \
    X(SYI_TOKENS_ALL, "all")
#define SYI_PADDING_TARGETS_MAP(X)                                                                           \
    X(SYI_PADDING_TARGETS_AUTO, "auto")                                                                      \
    X(SYI_PADDING_TARGETS_IGNORED, "ignored")                                                                \
    X(SYI_PADDING_TARGETS_TRAINED, "trained")
#define SYI_NORMALIZER_MAP(X)                                                                                \
    X(SYI_NORMALIZER_AUTO, "auto")                                                                           \
    X(SYI_NORMALIZER_BATCH, "batch")                                                                         \
    X(SYI_NORMALIZER_MICROBATCH, "microbatch")
#define SYI_STOPPING_MAP(X)                                                                                  \
    X(SYI_STOPPING_AUTO, "auto")                                                                             \
    X(SYI_STOPPING_BEST, "best")                                                                             \
    X(SYI_STOPPING_PREVIOUS, "previous")
#define SYI_NAN_CHECK_MAP(X)                                                                                 \
    X(SYI_NAN_CHECK_AUTO, "auto")                                                                            \
    X(SYI_NAN_CHECK_BEFORE, "before")                                                                        \
    X(SYI_NAN_CHECK_AFTER, "after")
#define SYI_TASK_MAP(X)       X(SYI_TASK_TSV, "tsv")
#define SYI_VOCABULARY_MAP(X) X(SYI_VOCABULARY_KIND_BYTES, "bytes")
#define SYI_SCHEDULE_MAP(X)                                                                                  \
    X(SYI_SCHEDULE_CONSTANT, "constant")                                                                     \
    X(SYI_SCHEDULE_LINEAR, "linear")                                                                         \
    X(SYI_SCHEDULE_RSQRT, "rsqrt")                                                                           \
    X(SYI_SCHEDULE_COSINE, "cosine")
#define SYI_OPTIMIZER_MAP(X)                                                                                 \
    X(SYI_OPTIMIZER_ADAMW, "adamw")                                                                          \
    X(SYI_OPTIMIZER_ADAFACTOR, "adafactor")
#define SYI_METRIC_MAP(X)                                                                                    \
    X(SYI_METRIC_LOSS, "loss")                                                                               \
    X(SYI_METRIC_WER, "wer")                                                                                 \
    X(SYI_METRIC_PER, "per")
#define SYI_LOG_RANKS_MAP(X)                                                                                 \
    X(SYI_LOG_RANKS_FIRST, "first")                                                                          \
    X(SYI_LOG_RANKS_ALL, "all")
#define SYI_CPU_VARIANT_MAP(X)                                                                               \
    X(SYI_CPU_VARIANT_AUTO, "auto")                                                                          \
    X(SYI_CPU_VARIANT_PORTABLE, "portable")                                                                  \
    X(SYI_CPU_VARIANT_AVX2, "avx2")                                                                          \
    X(SYI_CPU_VARIANT_AVX512, "avx512")                                                                      \
    X(SYI_CPU_VARIANT_AVX512_BF16, "avx512_bf16")                                                            \
    X(SYI_CPU_VARIANT_NEON, "neon")                                                                          \
    X(SYI_CPU_VARIANT_BLAS, "blas")

#define SYI_CHOICE_CONSTANT(constant, text) constant,
#define SYI_CHOICE_TEXT(constant, text)     "|" text
#define SYI_CHOICES(map)                    map(SYI_CHOICE_TEXT) /* "|gelu,linear|relu,linear|..." */
enum { SYI_MLP_MAP(SYI_CHOICE_CONSTANT) };
enum { SYI_SPARSE_MAP(SYI_CHOICE_CONSTANT) };
enum { SYI_EXPERT_MLP_MAP(SYI_CHOICE_CONSTANT) };
enum { SYI_ROUTER_MAP(SYI_CHOICE_CONSTANT) };
enum { SYI_DECODER_ROUTER_MAP(SYI_CHOICE_CONSTANT) };
enum { SYI_REDUCTION_MAP(SYI_CHOICE_CONSTANT) };
enum { SYI_FACTOR_MAP(SYI_CHOICE_CONSTANT) };
enum { SYI_COMPAT_MAP(SYI_CHOICE_CONSTANT) };
enum { SYI_DTYPE_MAP(SYI_CHOICE_CONSTANT) };
enum { SYI_MASKED_ROW_MAP(SYI_CHOICE_CONSTANT) };
enum { SYI_PADDING_MASK_MAP(SYI_CHOICE_CONSTANT) };
enum { SYI_IGNORE_PADDING_MAP(SYI_CHOICE_CONSTANT) };
enum { SYI_GROUP_BY_MAP(SYI_CHOICE_CONSTANT) };
enum { SYI_REAL_OR_ALL_MAP(SYI_CHOICE_CONSTANT) };
enum { SYI_PADDING_TARGETS_MAP(SYI_CHOICE_CONSTANT) };
enum { SYI_NORMALIZER_MAP(SYI_CHOICE_CONSTANT) };
enum { SYI_STOPPING_MAP(SYI_CHOICE_CONSTANT) };
enum { SYI_NAN_CHECK_MAP(SYI_CHOICE_CONSTANT) };
enum { SYI_TASK_MAP(SYI_CHOICE_CONSTANT) };
enum { SYI_VOCABULARY_MAP(SYI_CHOICE_CONSTANT) };
enum { SYI_SCHEDULE_MAP(SYI_CHOICE_CONSTANT) };
enum { SYI_OPTIMIZER_MAP(SYI_CHOICE_CONSTANT) };
enum { SYI_METRIC_MAP(SYI_CHOICE_CONSTANT) };
enum { SYI_LOG_RANKS_MAP(SYI_CHOICE_CONSTANT) };
enum { SYI_CPU_VARIANT_MAP(SYI_CHOICE_CONSTANT) };

/* ---- the values ---- */

enum { SYI_CONFIG_STRING = 1024, SYI_CONFIG_INTS = 16 }; /* bytes with the NUL; longest list */

struct syi_ints {
    int32_t n;                       /* values given */
    int64_t values[SYI_CONFIG_INTS]; /* [n] */
};

#define SYI_FIELD_INT(name)    int64_t name;
#define SYI_FIELD_SIZE(name)   int64_t name;
#define SYI_FIELD_FLOAT(name)  double name;
#define SYI_FIELD_BOOL(name)   bool name;
#define SYI_FIELD_STRING(name) char name[SYI_CONFIG_STRING];
#define SYI_FIELD_ENUM(name)   int name;
#define SYI_FIELD_INTS(name)   struct syi_ints name;

/* config->model.d_model and so on. Plain data: assign it, nothing to free. */
struct syi_config {
#define SY_SECTION_BEGIN(section, help)                          struct {
#define SY_OPTION(section, key, type, value, range, flags, help) SYI_FIELD_##type(key)
#define SY_SECTION_END(section)                                                                              \
    }                                                                                                        \
    section;
#include "base/options.def"
#undef SY_SECTION_BEGIN
#undef SY_OPTION
#undef SY_SECTION_END
};

/* ---- the table ---- */

enum syi_option_type {
    SYI_OPTION_INT,
    SYI_OPTION_SIZE,
    SYI_OPTION_FLOAT,
    SYI_OPTION_BOOL,
    SYI_OPTION_STRING,
    SYI_OPTION_ENUM,
    SYI_OPTION_INTS
};

enum syi_option_flags {
    SYI_OPTION_TRAINING = 0, /* changes the course of training: listed on resume */
    SYI_OPTION_MODEL = 1,    /* another value is another model: refused on resume */
    SYI_OPTION_RUN = 2       /* may differ on resume */
};

struct syi_option {
    const char *section, *name; /* "model", "d_model" */
    const char *key;            /* "model.d_model" */
    enum syi_option_type type;
    enum syi_option_flags flags;
    const char *default_text; /* as in a run file */
    const char *range;        /* see options.def */
    const char *help;         /* one sentence or two */
    size_t offset, bytes;     /* of the field in struct syi_config */
};

const struct syi_option *syi_config_options(size_t *n);    /* borrowed, static; in the order of options.def */
const struct syi_option *syi_config_find(const char *key); /* NULL when unknown */
/* The known key most like this one; never NULL. */
const char *syi_config_nearest(const char *key);

/* ---- run_config_value.c ---- */

enum { SYI_REASON = 320 }; /* bytes of the text that says why a value was refused */
/* Reads a value as it stands in a run file (a quoted string, a number, ...) into the option's field; `bare`
 * also takes strings without quotes, as from a command line. On failure: SY_EINVAL, the field unchanged, one
 * sentence in reason. */
int syi_option_parse(const struct syi_option *option, const char *text, bool bare, void *field,
                     char reason[SYI_REASON]) SYI_MUST_CHECK;
/* The value as it stands in a run file; for messages and comparisons too. */
void syi_option_print(const struct syi_option *option, const void *field, struct syi_text *out);
/* "integer in 1..65536", "one of gelu,linear | relu" */
void syi_option_describe(const struct syi_option *option, struct syi_text *out);

/* ---- run_config.c ---- */

int syi_config_defaults(struct syi_config *config, struct sy_error *err) SYI_MUST_CHECK;
/* "model.d_model=512", as from --set. */
int syi_config_set(struct syi_config *config, const char *assignment, struct sy_error *err) SYI_MUST_CHECK;
/* Text of the value in force, appended to out. */
int syi_config_get_text(const struct syi_config *config, const char *key, struct syi_text *out,
                        struct sy_error *err) SYI_MUST_CHECK;
/* The values as a run file that loads again; with `help`, each key under its description, type, range and
 * default. */
void syi_config_print(const struct syi_config *config, bool help, struct syi_text *out);

typedef int (*syi_config_difference_fn)(void *arg, const struct syi_option *option, const char *old_text,
                                        const char *new_text);
/* Calls fn for each key whose values differ, until one call does not return SY_OK; returns that. */
int syi_config_compare(const struct syi_config *old_config, const struct syi_config *new_config,
                       syi_config_difference_fn fn, void *arg, struct sy_error *err) SYI_MUST_CHECK;
/* decode.batch_size, or what stands for its 0. */
int64_t syi_config_decode_rows(const struct syi_config *config);
/* Layers with experts that programs keep numbers of. */
enum { SYI_MAX_SPARSE_LAYERS = 256 };
/* The error where an expert has no place in a group of so many tokens. Returns SY_EINVAL. */
int syi_config_no_places(const struct syi_config *config, int training, int64_t tokens, struct sy_error *err);
/* What can be said from keys together (no file, no model): the first contradiction is the error. */
int syi_config_validate(const struct syi_config *config, struct sy_error *err) SYI_MUST_CHECK;

/* ---- run_config_file.c ---- */

/* Reads a run file over the values in config; on failure config is unchanged. */
int syi_config_load(struct syi_config *config, const char *path, struct sy_error *err) SYI_MUST_CHECK;
/* The same from memory; `path` opens messages. */
int syi_config_load_text(struct syi_config *config, const char *path, const char *text, size_t bytes,
                         struct sy_error *err) SYI_MUST_CHECK;

#endif
