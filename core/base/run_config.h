/* SPDX-License-Identifier: Apache-2.0 */
/* The run file: sections of `key = value` lines (the simple part of TOML) read into one plain C structure. A
 * section is a part; parts are of kinds, a kind has its options. Kinds, keys, types, defaults and ranges come
 * from options.def alone. (Not called config.h: that is configure's.) */
#ifndef SYI_RUN_CONFIG_H
#define SYI_RUN_CONFIG_H

#include <stdbool.h>

#include "base/action_kinds.h"
#include "base/record_formats.h"
#include "base/text.h"
#include "base/vocabularies.h"

/* ---- choices: X(constant, text in a run file) ---- */

#define SYI_MLP_MAP(X)                                                                                       \
    X(SYI_MLP_GELU_LINEAR, "gelu,linear")                                                                    \
    X(SYI_MLP_RELU_LINEAR, "relu,linear")                                                                    \
    X(SYI_MLP_SILU_LINEAR, "silu,linear")                                                                    \
    X(SYI_MLP_GELU, "gelu")                                                                                  \
    X(SYI_MLP_RELU, "relu")
#define SYI_SCALE_OUTPUTS_MAP(X)                                                                             \
    X(SYI_SCALE_OUTPUTS_AUTO, "auto")                                                                        \
    X(SYI_SCALE_OUTPUTS_TRUE, "true")                                                                        \
    X(SYI_SCALE_OUTPUTS_FALSE, "false")
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
#define SYI_WEIGHTS_MAP(X)                                                                                   \
    X(SYI_WEIGHTS_FLOAT32, "float32")                                                                        \
    X(SYI_WEIGHTS_INT8, "int8")
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
#define SYI_INIT_MISSING_MAP(X)                                                                              \
    X(SYI_INIT_MISSING_ERROR, "error")                                                                       \
    X(SYI_INIT_MISSING_FRESH, "fresh")
#define SYI_INIT_VOCABULARY_MAP(X)                                                                           \
    X(SYI_INIT_VOCABULARY_SAME, "same")                                                                      \
    X(SYI_INIT_VOCABULARY_ANY, "any")
#define SYI_NAN_CHECK_MAP(X)                                                                                 \
    X(SYI_NAN_CHECK_AUTO, "auto")                                                                            \
    X(SYI_NAN_CHECK_BEFORE, "before")                                                                        \
    X(SYI_NAN_CHECK_AFTER, "after")
#define SYI_OBJECTIVE_MAP(X)                                                                                 \
    X(SYI_OBJECTIVE_PAIRS, "pairs")                                                                          \
    X(SYI_OBJECTIVE_SPAN_CORRUPTION, "span_corruption")                                                      \
    X(SYI_OBJECTIVE_PREFIX_LM, "prefix_lm")
#define SYI_TOO_LONG_MAP(X)                                                                                  \
    X(SYI_TOO_LONG_LEAVE_OUT, "leave_out")                                                                   \
    X(SYI_TOO_LONG_TRIM, "trim")
#define SYI_BAD_RECORD_MAP(X)                                                                                \
    X(SYI_BAD_RECORD_ERROR, "error")                                                                         \
    X(SYI_BAD_RECORD_SKIP, "skip")
#define SYI_SPECIAL_TOKENS_MAP(X)                                                                            \
    X(SYI_SPECIAL_TOKENS_SEQIO, "seqio")                                                                     \
    X(SYI_SPECIAL_TOKENS_HUGGINGFACE, "huggingface")
#define SYI_SCHEDULE_MAP(X)                                                                                  \
    X(SYI_SCHEDULE_CONSTANT, "constant")                                                                     \
    X(SYI_SCHEDULE_LINEAR, "linear")                                                                         \
    X(SYI_SCHEDULE_RSQRT, "rsqrt")                                                                           \
    X(SYI_SCHEDULE_COSINE, "cosine")
#define SYI_DECAY_SHAPE_MAP(X)                                                                               \
    X(SYI_DECAY_LINEAR, "linear")                                                                            \
    X(SYI_DECAY_COSINE, "cosine")                                                                            \
    X(SYI_DECAY_SQRT, "sqrt")
/* Those of optimizers.def, then what has no arguments of its own. */
#define SYI_OPTIMIZER_MAP(X)                                                                                 \
    X(SYI_OPTIMIZER_ADAMW, "adamw")                                                                          \
    X(SYI_OPTIMIZER_ADAFACTOR, "adafactor")                                                                  \
    X(SYI_OPTIMIZER_ADABELIEF, "adabelief")                                                                  \
    X(SYI_OPTIMIZER_ADAGRAD, "adagrad")                                                                      \
    X(SYI_OPTIMIZER_ADAM, "adam")                                                                            \
    X(SYI_OPTIMIZER_DPSGD, "dpsgd")                                                                          \
    X(SYI_OPTIMIZER_FROMAGE, "fromage")                                                                      \
    X(SYI_OPTIMIZER_LAMB, "lamb")                                                                            \
    X(SYI_OPTIMIZER_LARS, "lars")                                                                            \
    X(SYI_OPTIMIZER_LION, "lion")                                                                            \
    X(SYI_OPTIMIZER_MUON, "muon")                                                                            \
    X(SYI_OPTIMIZER_NOISY_SGD, "noisy_sgd")                                                                  \
    X(SYI_OPTIMIZER_RADAM, "radam")                                                                          \
    X(SYI_OPTIMIZER_RMSPROP, "rmsprop")                                                                      \
    X(SYI_OPTIMIZER_SCHEDULE_FREE, "schedule_free")                                                          \
    X(SYI_OPTIMIZER_SGD, "sgd")                                                                              \
    X(SYI_OPTIMIZER_SM3, "sm3")                                                                              \
    X(SYI_OPTIMIZER_YOGI, "yogi")                                                                            \
    X(SYI_OPTIMIZER_CHAIN, "chain")                                                                          \
    X(SYI_OPTIMIZER_NONE, "none")
#define SYI_MODE_MAP(X)                                                                                      \
    X(SYI_MODE_MIN, "min")                                                                                   \
    X(SYI_MODE_MAX, "max")
#define SYI_POLICY_MAP(X)                                                                                    \
    X(SYI_POLICY_STOP, "stop")                                                                               \
    X(SYI_POLICY_SKIP, "skip")                                                                               \
    X(SYI_POLICY_ROLLBACK, "rollback")
#define SYI_ACTION_ON_MAP(X)                                                                                 \
    X(SYI_ON_START, "start")                                                                                 \
    X(SYI_ON_EVALUATION, "evaluation")                                                                       \
    X(SYI_ON_CHECKPOINT, "checkpoint")                                                                       \
    X(SYI_ON_END, "end")
/* Of decoded texts: names in task.NAME.metrics (text_metrics/text_metrics.h). */
#define SYI_TASK_METRIC_MAP(X)                                                                               \
    X(SYI_TASK_METRIC_EXACT_MATCH, "exact_match")                                                            \
    X(SYI_TASK_METRIC_ACCURACY, "accuracy")                                                                  \
    X(SYI_TASK_METRIC_WER, "wer")                                                                            \
    X(SYI_TASK_METRIC_PER, "per")                                                                            \
    X(SYI_TASK_METRIC_BLEU, "bleu")                                                                          \
    X(SYI_TASK_METRIC_CHRF, "chrf")                                                                          \
    X(SYI_TASK_METRIC_ROUGE1, "rouge1")                                                                      \
    X(SYI_TASK_METRIC_ROUGE2, "rouge2")                                                                      \
    X(SYI_TASK_METRIC_ROUGE_L, "rougeL")                                                                     \
    X(SYI_TASK_METRIC_F1, "f1")
#define SYI_LENGTH_PENALTY_MAP(X)                                                                            \
    X(SYI_LENGTH_PENALTY_GNMT, "gnmt")                                                                       \
    X(SYI_LENGTH_PENALTY_POWER, "power")
#define SYI_FINISHED_BEAMS_MAP(X)                                                                            \
    X(SYI_FINISHED_BEAMS_T5X, "t5x")                                                                         \
    X(SYI_FINISHED_BEAMS_HUGGINGFACE, "huggingface")
#define SYI_EARLY_STOPPING_MAP(X)                                                                            \
    X(SYI_EARLY_STOPPING_NEVER, "never")                                                                     \
    X(SYI_EARLY_STOPPING_FALSE, "false")                                                                     \
    X(SYI_EARLY_STOPPING_TRUE, "true")
#define SYI_ON_FAILURE_MAP(X)                                                                                \
    X(SYI_ON_FAILURE_CONTINUE, "continue")                                                                   \
    X(SYI_ON_FAILURE_STOP, "stop")
#define SYI_LOG_RANKS_MAP(X)                                                                                 \
    X(SYI_LOG_RANKS_FIRST, "first")                                                                          \
    X(SYI_LOG_RANKS_ALL, "all")                                                                              \
    X(SYI_LOG_RANKS_NODES, "nodes")
#define SYI_CUDA_PRODUCTS_MAP(X)                                                                             \
    X(SYI_CUDA_PRODUCTS_CUBLASLT, "cublaslt")                                                                \
    X(SYI_CUDA_PRODUCTS_OWN, "own")
#define SYI_CUDA_COLLECTIVES_MAP(X)                                                                          \
    X(SYI_CUDA_COLLECTIVES_STAGED, "staged")                                                                 \
    X(SYI_CUDA_COLLECTIVES_NCCL, "nccl")
#define SYI_CPU_VARIANT_MAP(X)                                                                               \
    X(SYI_CPU_VARIANT_AUTO, "auto")                                                                          \
    X(SYI_CPU_VARIANT_PORTABLE, "portable")                                                                  \
    X(SYI_CPU_VARIANT_AVX2, "avx2")                                                                          \
    X(SYI_CPU_VARIANT_AVX512, "avx512")                                                                      \
    X(SYI_CPU_VARIANT_AVX512_BF16, "avx512_bf16")                                                            \
    X(SYI_CPU_VARIANT_AMX_BF16, "amx_bf16")                                                                  \
    X(SYI_CPU_VARIANT_NEON, "neon")                                                                          \
    X(SYI_CPU_VARIANT_BLAS, "blas")

#define SYI_CPU_BFLOAT16_MAP(X)                                                                              \
    X(SYI_CPU_BFLOAT16_AUTO, "auto")                                                                         \
    X(SYI_CPU_BFLOAT16_WIDENED, "widened")                                                                   \
    X(SYI_CPU_BFLOAT16_AVX512_BF16, "avx512_bf16")                                                           \
    X(SYI_CPU_BFLOAT16_AMX_BF16, "amx_bf16")

#define SYI_CHOICE_CONSTANT(constant, text) constant,
#define SYI_CHOICE_TEXT(constant, text)     "|" text
#define SYI_CHOICES(map)                    map(SYI_CHOICE_TEXT) /* "|gelu,linear|relu,linear|..." */
enum { SYI_MLP_MAP(SYI_CHOICE_CONSTANT) };
enum { SYI_SCALE_OUTPUTS_MAP(SYI_CHOICE_CONSTANT) };
enum { SYI_SPARSE_MAP(SYI_CHOICE_CONSTANT) };
enum { SYI_EXPERT_MLP_MAP(SYI_CHOICE_CONSTANT) };
enum { SYI_ROUTER_MAP(SYI_CHOICE_CONSTANT) };
enum { SYI_DECODER_ROUTER_MAP(SYI_CHOICE_CONSTANT) };
enum { SYI_REDUCTION_MAP(SYI_CHOICE_CONSTANT) };
enum { SYI_FACTOR_MAP(SYI_CHOICE_CONSTANT) };
enum { SYI_COMPAT_MAP(SYI_CHOICE_CONSTANT) };
enum { SYI_DTYPE_MAP(SYI_CHOICE_CONSTANT) };
enum { SYI_WEIGHTS_MAP(SYI_CHOICE_CONSTANT) };
enum { SYI_MASKED_ROW_MAP(SYI_CHOICE_CONSTANT) };
enum { SYI_PADDING_MASK_MAP(SYI_CHOICE_CONSTANT) };
enum { SYI_IGNORE_PADDING_MAP(SYI_CHOICE_CONSTANT) };
enum { SYI_GROUP_BY_MAP(SYI_CHOICE_CONSTANT) };
enum { SYI_REAL_OR_ALL_MAP(SYI_CHOICE_CONSTANT) };
enum { SYI_PADDING_TARGETS_MAP(SYI_CHOICE_CONSTANT) };
enum { SYI_NORMALIZER_MAP(SYI_CHOICE_CONSTANT) };
enum { SYI_STOPPING_MAP(SYI_CHOICE_CONSTANT) };
enum { SYI_NAN_CHECK_MAP(SYI_CHOICE_CONSTANT) };
enum { SYI_INIT_MISSING_MAP(SYI_CHOICE_CONSTANT) };
enum { SYI_INIT_VOCABULARY_MAP(SYI_CHOICE_CONSTANT) };
enum { SYI_FORMAT_MAP(SYI_CHOICE_CONSTANT) };
enum { SYI_OBJECTIVE_MAP(SYI_CHOICE_CONSTANT) };
enum { SYI_TOO_LONG_MAP(SYI_CHOICE_CONSTANT) };
enum { SYI_BAD_RECORD_MAP(SYI_CHOICE_CONSTANT) };
enum { SYI_VOCABULARY_MAP(SYI_CHOICE_CONSTANT) };
enum { SYI_SPECIAL_TOKENS_MAP(SYI_CHOICE_CONSTANT) };
enum { SYI_SCHEDULE_MAP(SYI_CHOICE_CONSTANT) };
enum { SYI_DECAY_SHAPE_MAP(SYI_CHOICE_CONSTANT) };
enum { SYI_OPTIMIZER_MAP(SYI_CHOICE_CONSTANT) };
enum { SYI_ACTION_MAP(SYI_CHOICE_CONSTANT) };
enum { SYI_TASK_METRIC_MAP(SYI_CHOICE_CONSTANT) SYI_TASK_METRICS };
enum { SYI_MODE_MAP(SYI_CHOICE_CONSTANT) };
enum { SYI_POLICY_MAP(SYI_CHOICE_CONSTANT) };
enum { SYI_ACTION_ON_MAP(SYI_CHOICE_CONSTANT) };
enum { SYI_LENGTH_PENALTY_MAP(SYI_CHOICE_CONSTANT) };
enum { SYI_FINISHED_BEAMS_MAP(SYI_CHOICE_CONSTANT) };
enum { SYI_EARLY_STOPPING_MAP(SYI_CHOICE_CONSTANT) };
enum { SYI_ON_FAILURE_MAP(SYI_CHOICE_CONSTANT) };
enum { SYI_LOG_RANKS_MAP(SYI_CHOICE_CONSTANT) };
enum { SYI_CUDA_PRODUCTS_MAP(SYI_CHOICE_CONSTANT) };
enum { SYI_CUDA_COLLECTIVES_MAP(SYI_CHOICE_CONSTANT) };
enum { SYI_CPU_VARIANT_MAP(SYI_CHOICE_CONSTANT) };
enum { SYI_CPU_BFLOAT16_MAP(SYI_CHOICE_CONSTANT) };

/* ---- the values ---- */

/* bytes of a string, of a list of them, of a short string; NULs too */
enum { SYI_CONFIG_STRING = 1024, SYI_CONFIG_STRINGS = 1024, SYI_CONFIG_WORD = 64 };
enum { SYI_CONFIG_INTS = 16, SYI_CONFIG_FLOATS = 16 }; /* most values of a list */
enum { SYI_CONFIG_PARTS = 16, SYI_PART_NAME = 64 };    /* parts of a kind; bytes of a name with the NUL */
enum { SYI_MAX_BUCKETS = 64 };                         /* pairs of padded lengths */

struct syi_ints {
    int32_t n;                       /* values given */
    int64_t values[SYI_CONFIG_INTS]; /* [n] */
};

struct syi_floats {
    int32_t n;                        /* values given */
    double values[SYI_CONFIG_FLOATS]; /* [n] */
};

struct syi_strings {
    int32_t n;                     /* strings given */
    char text[SYI_CONFIG_STRINGS]; /* one after the other, each with its NUL */
};

#define SYI_FIELD_INT(name)      int64_t name;
#define SYI_FIELD_SIZE(name)     int64_t name;
#define SYI_FIELD_DURATION(name) int64_t name;
#define SYI_FIELD_FLOAT(name)    double name;
#define SYI_FIELD_BOOL(name)     bool name;
#define SYI_FIELD_STRING(name)   char name[SYI_CONFIG_STRING];
#define SYI_FIELD_WORD(name)     char name[SYI_CONFIG_WORD];
#define SYI_FIELD_ENUM(name)     int name;
#define SYI_FIELD_INTS(name)     struct syi_ints name;
#define SYI_FIELD_FLOATS(name)   struct syi_floats name;
#define SYI_FIELD_STRINGS(name)  struct syi_strings name;

/* A structure a kind: struct syi_model_part and so on. The name, "" of a part that has none, is the first
 * field of each. */
#define SY_SECTION_BEGIN(kind, help)                                                                         \
    struct syi_##kind##_part {                                                                               \
        char name_of_part[SYI_PART_NAME];
#define SY_PARTS_BEGIN(kind, names, help) SY_SECTION_BEGIN(kind, help)
#define SY_SECTION_END(kind)                                                                                 \
    }                                                                                                        \
    ;
#define SY_PARTS_END(kind)                                    SY_SECTION_END(kind)
#define SY_OPTION(kind, key, type, value, range, flags, help) SYI_FIELD_##type(key)
#include "base/options.def"

/* What reproducible.min_leaf = 0 stands for: with products by vectors, and on matrix tiles, which take 32 elements at a time
 * and time to begin and end a leaf. */
enum { SYI_MIN_LEAF = 64, SYI_MIN_LEAF_TILES = 256 };

/* config->model.d_model, config->optimizer.part[0].b1 and so on. Plain data: assign it, nothing to free;
 * padding is zero. Parts stand in the order of the file, that without a name first. */
struct syi_config {
#define SY_SECTION_END(kind) struct syi_##kind##_part kind;
#define SY_PARTS_END(kind)                                                                                   \
    struct {                                                                                                 \
        int32_t n;      /* parts given */                                                                    \
        uint32_t given; /* of the part without a name: a bit for each of its first keys that was set */      \
        struct syi_##kind##_part part[SYI_CONFIG_PARTS];                                                     \
    } kind;
#include "base/options.def"
};

/* ---- run_config_kinds.c: the tables; run_config.c: finding a key in them ---- */

enum syi_option_type {
    SYI_OPTION_INT,
    SYI_OPTION_SIZE,     /* bytes */
    SYI_OPTION_DURATION, /* seconds */
    SYI_OPTION_FLOAT,
    SYI_OPTION_BOOL,
    SYI_OPTION_STRING,
    SYI_OPTION_WORD,
    SYI_OPTION_ENUM,
    SYI_OPTION_INTS,
    SYI_OPTION_FLOATS,
    SYI_OPTION_STRINGS
};

enum syi_option_flags {
    SYI_OPTION_TRAINING = 0, /* changes the course of training: listed on resume */
    SYI_OPTION_MODEL = 1,    /* another value is another model: refused on resume */
    SYI_OPTION_RUN = 2       /* may differ on resume */
};

struct syi_option {
    const char *name; /* "d_model" */
    enum syi_option_type type;
    enum syi_option_flags flags;
    const char *default_text; /* as in a run file */
    const char *range;        /* see options.def */
    const char *help;         /* one sentence or two */
    size_t offset, bytes;     /* of the field in its part */
};

enum syi_part_names {
    SYI_PART_ONCE, /* [kind], always there */
    SYI_PART_BOTH, /* [kind], always there, then [kind.NAME] */
    SYI_PART_NAMED /* [kind.NAME] */
};

struct syi_part_kind {
    const char *name; /* "model" */
    const char *help;
    enum syi_part_names names;
    const struct syi_option *options; /* [n_options] */
    size_t n_options;
    size_t offset, bytes; /* of the first part in struct syi_config; of a part */
    size_t count; /* of the int32_t that counts the parts in struct syi_config; not of SYI_PART_ONCE */
    size_t given; /* of its uint32_t `given`; not of SYI_PART_ONCE */
};

/* A key taken apart. */
struct syi_key {
    const struct syi_part_kind *kind;
    const struct syi_option *option; /* NULL: of a section */
    char part[SYI_PART_NAME];        /* "" without a name */
};

enum {
    SYI_REASON = 320,
    SYI_KEY = 160
}; /* bytes of the text that says why something was refused; of a key */

const struct syi_part_kind *syi_config_kinds(size_t *n); /* borrowed, static; in the order of options.def */
/* "model.d_model", "optimizer.NAME.b1", or the name alone of a key of [run]. Else SY_EINVAL and one sentence
 * in reason: an unknown key and the nearest known one, the new name of an old key, a name that is missing or
 * one too many. */
int syi_key_parse(const char *text, struct syi_key *key, char reason[SYI_REASON]) SYI_MUST_CHECK;
/* "model" or "optimizer.NAME", what stands between the brackets of a section; as syi_key_parse. */
int syi_section_parse(const char *text, struct syi_key *key, char reason[SYI_REASON]) SYI_MUST_CHECK;
/* The key in full. part: "" without a name. */
void syi_key_text(const struct syi_part_kind *kind, const char *part, const struct syi_option *option,
                  char text[SYI_KEY]);
/* run_config_nearest.c: the known key most like this one. 0: none is like it, and nearest is "". */
int syi_key_nearest(const char *text, char nearest[SYI_KEY]);
/* What to mind of the value where the nearest key counts otherwise than the name given: a sentence after a blank, or "". */
const char *syi_key_note(const char *text);

/* ---- run_config_parts.c: parts and their values ---- */

int syi_config_parts(const struct syi_config *config, const struct syi_part_kind *kind); /* how many */
/* Part i of the kind, borrowed: its options' fields are at their offsets; its name is syi_part_name. */
const void *syi_config_part(const struct syi_config *config, const struct syi_part_kind *kind, int i);
const char *syi_part_name(const void *part);
/* Index of the part of that name, -1: there is none. */
int syi_config_find_part(const struct syi_config *config, const struct syi_part_kind *kind, const char *name);
/* The same; a part that is not there is added with defaults. -1 and a sentence where there is no room. */
int syi_config_add_part(struct syi_config *config, const struct syi_part_kind *kind, const char *name,
                        char reason[SYI_REASON]);
/* Sets the key to the value that stands in text, see syi_option_parse; adds its part where it is new. On
 * failure SY_EINVAL, config unchanged, one sentence in reason. */
int syi_config_assign(struct syi_config *config, const struct syi_key *key, const char *text, bool bare,
                      char reason[SYI_REASON]) SYI_MUST_CHECK;

/* ---- run_config_value.c ---- */

/* Reads a value as it stands in a run file (a quoted string, a number, ...) into the option's field; `bare`
 * also takes strings without quotes, as from a command line. On failure: SY_EINVAL, the field unchanged, one
 * sentence in reason. */
int syi_option_parse(const struct syi_option *option, const char *text, bool bare, void *field,
                     char reason[SYI_REASON]) SYI_MUST_CHECK;
/* The value as it stands in a run file; for messages and comparisons too. */
void syi_option_print(const struct syi_option *option, const void *field, struct syi_text *out);
/* "integer in 1..65536", "one of gelu,linear | relu" */
void syi_option_describe(const struct syi_option *option, struct syi_text *out);

/* *differs: whether the option's value in the part is another than its default. */
int syi_option_differs(const struct syi_option *option, const void *part, int *differs,
                       struct sy_error *err) SYI_MUST_CHECK;

/* String i of the list, borrowed; i = n gives the end of the last. */
const char *syi_strings_at(const struct syi_strings *strings, int i);
/* Whether the list is "auto", of an option whose default that is: one string "auto". */
int syi_strings_auto(const struct syi_strings *strings);

/* ---- run_config_parts.c: all parts at once ---- */

int syi_config_defaults(struct syi_config *config, struct sy_error *err) SYI_MUST_CHECK;
/* Too large for a stack: one of the caller's own, syi_free; NULL: no memory. */
struct syi_config *syi_config_copy(const struct syi_config *config, struct sy_error *err);
/* "model.d_model=512", as from --set. On failure config is unchanged. */
int syi_config_set(struct syi_config *config, const char *assignment, struct sy_error *err) SYI_MUST_CHECK;
/* Text of the value in force, appended to out. */
int syi_config_get_text(const struct syi_config *config, const char *key, struct syi_text *out,
                        struct sy_error *err) SYI_MUST_CHECK;
/* The values as a run file that loads again; with `help`, each key under its description, type, range and
 * default, and a kind without parts as comments. */
void syi_config_print(const struct syi_config *config, bool help, struct syi_text *out);

/* key: in full; of parts that only one side has, or that stand in another order, "[kind.*]", and the texts
 * are the sections of both sides. */
typedef int (*syi_config_difference_fn)(void *arg, const char *key, enum syi_option_flags flags,
                                        const char *old_text, const char *new_text);
/* Calls fn for each key whose values differ, until one call does not return SY_OK; returns that. Parts are
 * compared with those of the same name. */
int syi_config_compare(const struct syi_config *old_config, const struct syi_config *new_config,
                       syi_config_difference_fn fn, void *arg, struct sy_error *err) SYI_MUST_CHECK;

/* ---- run_config_check.c ---- */

/* All rules between keys that need no file and no number of ranks: the first that is broken is the error.
 * Every command checks what it was given; what is recorded, bound and run relies on it. What follows from other keys
 * where it is not written gets its value first (syi_optimizers_settle). */
int syi_config_validate(struct syi_config *config, struct sy_error *err) SYI_MUST_CHECK;
/* Of them, those that recording and running programs rely on: model, batches, schedule, decoding. */
int syi_config_validate_programs(const struct syi_config *config, struct sy_error *err) SYI_MUST_CHECK;

/* The error where an expert has no place in a group of so many tokens. Returns SY_EINVAL. */
int syi_config_no_places(const struct syi_config *config, int training, int64_t tokens, struct sy_error *err);

/* ---- run_config_ignored.c ---- */

/* Of keys that are set and count for nothing beside others. Where memory is short it says nothing. */
void syi_warn_of_ignored(const struct syi_config *config);

/* ---- run_config_optimizers.c ---- */

/* The rules of [optimizer] and its named parts, a part of syi_config_validate_programs. */
int syi_config_check_optimizers(const struct syi_config *config, struct sy_error *err) SYI_MUST_CHECK;

/* ---- run_config_actions.c ---- */

/* Keys of [action.NAME] besides kind that a kind takes, separated by spaces. */
const char *syi_action_keys(int kind);
/* Whether it watches the metrics of training instead of an evaluation, by T5X's name for them: task = "train". */
int syi_action_is_of_training(const struct syi_action_part *part);
/* The rules of all [action.NAME], a part of syi_config_validate. */
int syi_config_check_actions(const struct syi_config *config, struct sy_error *err) SYI_MUST_CHECK;

/* ---- run_config_init.c ---- */

/* The rules of train.init_*, a part of syi_config_validate. */
int syi_config_check_init(const struct syi_config *config, struct sy_error *err) SYI_MUST_CHECK;
/* A whole number from 0 on that stands in text alone; 0: it does not. */
int syi_config_number(const char *text, int64_t *number);

/* ---- run_config_derived.c ---- */

/* The task that is trained on, the first of them where it is a mixture; else the first there is; never NULL: without
 * one, a part of defaults with the name "". */
const struct syi_task_part *syi_config_task(const struct syi_config *config);
/* The mixture that is trained on: data.mixture, or the only one; NULL: a single task. */
const struct syi_mixture_part *syi_config_mixture(const struct syi_config *config);
/* The task of that name, NULL: there is none. */
const struct syi_task_part *syi_config_task_named(const struct syi_config *config, const char *name);
/* The vocabulary of inputs (target 0), [vocabulary], or of targets (1), [vocabulary.targets] if it is there. Never
 * NULL. */
const struct syi_vocabulary_part *syi_config_vocabulary(const struct syi_config *config, int target);
/* What evaluations during training take: a pass that decodes where a task with a file `valid` has metrics. */
enum syi_evaluates { SYI_EVALUATES = 1, SYI_EVALUATES_DECODED = 2 };
int syi_config_evaluates(const struct syi_config *config); /* bits, 0: no task has such a file */
/* decode.batch_size, or what stands for its 0. */
int64_t syi_config_decode_rows(const struct syi_config *config);
/* Sequences of an input that are decoded together: beams, or draws. */
int64_t syi_decode_sequences(const struct syi_decode_part *decode);
/* How evaluations decode: "greedy, 24 tokens", "4 beams, alpha 0.6, 24 tokens", "temperature 0.7, best of 8, topk 40, seed 1,
 * 24 tokens": what the outputs depend on besides the model and the input, what has its default left out. */
enum { SYI_DECODE_TEXT = 200 };
void syi_config_decode_text(const struct syi_config *config, char text[SYI_DECODE_TEXT]);
/* How many layers of the encoder (decoder 0) or the decoder (1) have experts, and whether this one has. */
int64_t syi_sparse_layers(const struct syi_config *config, int decoder);
int syi_is_sparse_layer(const struct syi_config *config, int decoder, int layer);
/* The same of a layout (SYI_SPARSE_*) that spreads `sparse` > 0 of so many layers. */
int syi_layout_is_sparse(int layout, int64_t layers, int64_t sparse, int64_t layer);
/* SYI_ROUTER_* of the encoder's or the decoder's sparse layers. */
int syi_router_type(const struct syi_config *config, int decoder);
/* *wanted: log.ranks, or SWITCHYARD_LOG_RANKS over it (SYI_LOG_RANKS_MAP). */
int syi_config_log_ranks(const struct syi_config *config, int *wanted, struct sy_error *err) SYI_MUST_CHECK;

/* ---- run_config_file.c ---- */

/* Reads a run file over the values in config; on failure config is unchanged. */
int syi_config_load(struct syi_config *config, const char *path, struct sy_error *err) SYI_MUST_CHECK;
/* The same from memory; `path` opens messages. */
int syi_config_load_text(struct syi_config *config, const char *path, const char *text, size_t bytes,
                         struct sy_error *err) SYI_MUST_CHECK;

#endif
