/* SPDX-License-Identifier: Apache-2.0 */
/* switchyard: the public interface, all that an embedding program includes. Opaque handles, status codes, one error
 * structure. Functions return SY_OK or a negative status and, where they take a struct sy_error, say why in one line (it
 * may be NULL). Nothing here prints, exits, aborts or touches signals. doc/library.md is the contract in full.
 *
 *     struct sy_error err = {0};
 *     struct sy_model *model;
 *     struct sy_answers *answers;
 *     struct sy_text word = {"switchyard", 10};
 *     if (!sy_model_open("runs/g2p", NULL, &model, &err)) {
 *         if (!sy_predict(model, NULL, &word, 1, &answers, &err)) puts(sy_answer(answers, 0, 0).text);
 *         sy_answers_free(answers);
 *         sy_model_close(model);
 *     }
 *
 * Structures that a program fills begin with `bytes`, their sizeof: what a later version adds at their end is 0 for a program
 * that does not know it. 0, or NULL, is the usual value of every field. */
#ifndef SWITCHYARD_H
#define SWITCHYARD_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#    define SY_API __attribute__((visibility("default")))
#else
#    define SY_API
#endif

/* ---- errors ---- */

/* Status codes: X(name, number, text). Numbers are final. */
#define SY_STATUS_MAP(X)                                                                                     \
    X(OK, 0, "success")                                                                                      \
    X(ENOMEM, -1, "out of memory")                                                                           \
    X(EINVAL, -2, "invalid argument or configuration")                                                       \
    X(EIO, -3, "input or output failed")                                                                     \
    X(EFORMAT, -4, "malformed file")                                                                         \
    X(ENOENT, -5, "not found")                                                                               \
    X(EEXIST, -6, "exists already")                                                                          \
    X(EBUSY, -7, "in use by another process")                                                                \
    X(EBACKEND, -8, "backend refused or failed")                                                             \
    X(EUNSUPPORTED, -9, "not supported by this build or backend")                                            \
    X(EMISMATCH, -10, "does not fit the model")                                                              \
    X(ENUMERIC, -11, "not a finite number")                                                                  \
    X(EINTERNAL, -12, "internal check failed")                                                               \
    X(ESTOPPED, -13, "stopped on request")

enum sy_status {
#define SY_STATUS_ENUM(name, number, text) SY_##name = number,
    SY_STATUS_MAP(SY_STATUS_ENUM)
#undef SY_STATUS_ENUM
};

/* What went wrong; zero it before use. The first error written stays. */
struct sy_error {
    int code;        /* enum sy_status */
    char text[1024]; /* one line: what, where, what to try */
};

SY_API const char *sy_status_text(int status);
SY_API const char *sy_version(void); /* "0.1.0" */

/* ---- of the process: log and memory ---- */

enum sy_log_level { SY_LOG_DEBUG, SY_LOG_INFO, SY_LOG_WARN };
typedef void (*sy_log_fn)(void *arg, enum sy_log_level level, const char *line);
/* Where log lines go; NULL (the start value) drops them. Not thread-safe against running work. fn is called by any thread,
 * one call at a time, and must not call the library. */
SY_API void sy_log_set(sy_log_fn fn, void *arg);

/* Where the library's memory comes from. Both are called by any thread, also at the same time. Not from there, for it has no
 * say in them: stacks of threads, and what the C library (files, dlopen, realpath) and libraries of others take (SentencePiece,
 * BLAS, zlib, zstd, SQLite); and, from malloc, what plugins other than the CPU backend keep for themselves, which is small. */
struct sy_allocator {
    void *arg;
    /* `bytes` over 0 at an address that `alignment`, a power of two, divides; NULL: there is no memory, and the call that
     * needed it returns SY_ENOMEM. */
    void *(*take)(void *arg, size_t bytes, size_t alignment);
    void (*give_back)(void *arg, void *memory); /* memory: from take, not NULL */
};
/* For all handles of the process; copied. NULL: the C library's, as at the start. SY_EBUSY: memory from the one before is in
 * use, as long as a handle is open or answers are not freed. Not thread-safe against any other call. */
SY_API int sy_allocator_set(const struct sy_allocator *allocator, struct sy_error *err);

/* ---- opening ---- */

/* Calls task(task_arg, i) for i = 0..n-1, once each, in any order and on any threads, one after the other if it likes, and
 * returns when all have returned. */
typedef void (*sy_run_tasks_fn)(void *arg, size_t n, void (*task)(void *task_arg, size_t i), void *task_arg);

/* How a model or a trainer is opened. NULL in its place is all zeros. */
struct sy_open_options {
    size_t bytes;           /* sizeof(struct sy_open_options) */
    const char *backend;    /* "cpu" */
    const char *checkpoint; /* "latest", "best" or a step; of a path that names a checkpoint's folder: none */
    int threads;   /* of the handle; 0: cpu.threads of the run, else the CPUs that the process may use */
    int max_batch; /* most inputs computed together; 0: decode.batch_size of the run. Of a model only */
    const char *const *set; /* [n_set] "KEY=VALUE", over the values of the run file */
    size_t n_set;
    sy_run_tasks_fn run_tasks; /* NULL: threads of the library's own. Else that is called, with n = threads */
    void *run_tasks_arg;
    int max_calls; /* most calls on the handle that are worked on at the same time; 0: as many as threads. Of a model only */
};

/* ---- a model that answers ----
 * Several may be open in one process. Calls on one handle may come from any threads at the same time, and what a call returns
 * does not depend on others. Up to max_calls of them are worked on at the same time, with the weights in common: the first
 * with all threads of the handle, a call that comes during it in its caller's thread alone. More wait. What a call needs
 * beside the weights is made when calls first meet, and kept (doc/library.md says how much memory that is). A calling thread
 * needs a stack of 256 KiB. */

struct sy_model;

/* path: a run directory, the folder of a checkpoint in it (RUN_DIR/checkpoints/STEP), or a packed model (`switchyard pack`).
 * The files are read here and not touched again. A packed model that is cut short or damaged is SY_EFORMAT. *model is NULL after a failure. */
SY_API int sy_model_open(const char *path, const struct sy_open_options *options, struct sy_model **model,
                         struct sy_error *err);
SY_API void sy_model_close(struct sy_model *model); /* after the last call on it has returned; NULL is fine */

struct sy_model_facts {
    size_t bytes;       /* sizeof(struct sy_model_facts), set by the program */
    int64_t step;       /* of the checkpoint */
    int64_t parameters; /* numbers in the weights */
    int64_t d_model;    /* floats of an encoded token */
    int64_t experts;    /* 0: none */
    int64_t max_input;  /* tokens of an input, the end token included; longer ones are not answered */
    int64_t max_output; /* tokens of an output */
    int64_t max_batch;
    int64_t threads;
    char weights_sha256[65]; /* as training printed it; of a packed model: of the checkpoint it was made of */
    char backend[127];       /* "cpu: avx512" */
    int64_t max_calls;
};
SY_API int sy_model_facts(const struct sy_model *model, struct sy_model_facts *facts, struct sy_error *err);
/* The value in force of a run file's key, as text with its NUL; "" and SY_EINVAL where it has no room. */
SY_API int sy_model_value(const struct sy_model *model, const char *key, char *text, size_t bytes,
                          struct sy_error *err);

/* Bytes of a text, in UTF-8 unless the model was trained on something else; need not end in NUL. */
struct sy_text {
    const char *text;
    size_t bytes;
};

enum sy_method {
    SY_AS_RUN, /* as decode.* of the run says; fields that are not 0 count in its place */
    SY_GREEDY, /* the likeliest token, one after the other */
    SY_BEAMS,  /* the best of `beams` sequences that are continued side by side */
    SY_SAMPLE  /* drawn by chance; the same seed gives the same outputs */
};

/* How outputs are found. NULL in its place is all zeros. SY_EINVAL: a field of another method, as beams or outputs over 1 with
 * SY_GREEDY, and what is of SY_SAMPLE with it or SY_BEAMS; top_k and top_p with SY_AS_RUN where the run does not sample. */
struct sy_predict_options {
    size_t bytes;       /* sizeof(struct sy_predict_options) */
    int method;         /* enum sy_method */
    int beams;          /* 0: decode.beams, or 4 if that is 1 and the method is SY_BEAMS */
    int outputs;        /* of an input, the best first; 0: 1, as run decode.num_decodes */
    double temperature; /* of SY_SAMPLE; 0: decode.temperature, or 1 if that is 0 */
    int top_k;          /* likewise: draws from the k likeliest tokens; 0: decode.topk */
    double top_p;       /* likewise: from the fewest with this much probability; 0: decode.topp */
    uint64_t seed;      /* modulo 2^63; 0: train.seed */
    int64_t first;      /* which of all inputs inputs[0] is: with the seed it names the random numbers */
    int scores;         /* 1: scores are wanted of greedy decoding, which otherwise has none */
};

struct sy_answers;

/* Answers n inputs, computed together in batches. *answers is NULL after a failure. */
SY_API int sy_predict(struct sy_model *model, const struct sy_predict_options *options,
                      const struct sy_text *inputs, size_t n, struct sy_answers **answers,
                      struct sy_error *err);

struct sy_answer {
    const char *text; /* borrowed from the answers, a NUL after its end; "" where status is not SY_OK */
    size_t bytes;
    /* Log-probability, of beams divided by a penalty of the length: ((5 + tokens) / 6)^decode.alpha, or tokens^decode.alpha
     * where decode.length_penalty is "power". NaN: not asked for. */
    double score;
    int status; /* SY_OK; SY_EINVAL: the input is over max_input; SY_ENOENT: fewer outputs were found */
};
SY_API size_t sy_answers_inputs(const struct sy_answers *answers);
SY_API size_t sy_answers_outputs(const struct sy_answers *answers); /* of each input */
/* Output `output`, from 0, of input `input`; SY_EINVAL in status where there is no such place. */
SY_API struct sy_answer sy_answer(const struct sy_answers *answers, size_t input, size_t output);
SY_API void sy_answers_free(struct sy_answers *answers); /* NULL is fine */

struct sy_pair {
    struct sy_text input, target;
};
/* score: [n] log-likelihood of each target: the sum over its tokens, the end token included, of the logarithm of the
 * probability that the model gives the token after those before it; NaN where a side is too long. tokens: [n] of the
 * target, without <pad> in its text, 0 where it has no score; or NULL. */
SY_API int sy_score(struct sy_model *model, const struct sy_pair *pairs, size_t n, double *score,
                    int64_t *tokens, struct sy_error *err);

/* What the encoder makes of the inputs: tokens: [n] how many each has, the end token included, 0 where it is too long.
 * values: (sum of tokens, d_model) floats, one input after the other; capacity: floats that it has room for, SY_EINVAL
 * where they are too few. values NULL: only tokens are counted. */
SY_API int sy_encode(struct sy_model *model, const struct sy_text *inputs, size_t n, int64_t *tokens,
                     float *values, size_t capacity, struct sy_error *err);

/* ---- training ----
 * One thread at a time calls with a trainer, and needs the same stack. A library that was built without training returns
 * SY_EUNSUPPORTED. */

struct sy_trainer;

/* path: a run file: a model that begins as train.seed and train.init_* say; or a run directory or the folder of a checkpoint
 * in it: training goes on there, with the optimizer's state. Nothing is written. *trainer is NULL after a failure. */
SY_API int sy_trainer_open(const char *path, const struct sy_open_options *options,
                           struct sy_trainer **trainer, struct sy_error *err);
SY_API void sy_trainer_close(struct sy_trainer *trainer); /* NULL is fine; what was not saved is gone */

struct sy_step {
    size_t bytes;     /* sizeof(struct sy_step), set by the program */
    int64_t step;     /* steps done, this one included */
    int64_t tokens;   /* of the targets, end tokens included */
    double loss;      /* what was minimised: per target token, auxiliary losses included */
    double grad_norm; /* before clipping */
    double rate;      /* learning rate */
    /* 0: the gradient was not finite, and the weights are as before; where train.nan_check is "after" they were updated all
     * the same, and are not saved any more. */
    int updated;
};
/* One step on n pairs, 1 to data.batch_size of the run file. SY_EINVAL names a pair that is too long; nothing is done then.
 * Where a backend fails while it changes the weights, they are of no step: further steps and saves are SY_EBACKEND. step may
 * be NULL. */
SY_API int sy_trainer_step(struct sy_trainer *trainer, const struct sy_pair *pairs, size_t n,
                           struct sy_step *step, struct sy_error *err);
/* Saves a checkpoint with all that the command needs (predict, eval, train --resume) to run_dir: a new folder, or a run
 * that this trainer was opened from or has saved to. Old checkpoints go as train.keep_checkpoints, checkpoint.keep_every and
 * the keep_best actions of the run say. The run gets the vocabularies as they were when the trainer was opened. SY_EEXIST: it
 * holds another run. SY_EMISMATCH: or another vocabulary. A failure leaves earlier checkpoints, and the same folder may be
 * tried again. */
SY_API int sy_trainer_save(struct sy_trainer *trainer, const char *run_dir, struct sy_error *err);

#ifdef __cplusplus
}
#endif
#endif
