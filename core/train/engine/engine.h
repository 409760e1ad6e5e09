/* SPDX-License-Identifier: Apache-2.0 */
/* One rank's model ready to work: the programs of every length bucket recorded, partitioned, fused and bound
 * in one session, and functions that put a batch in and take numbers out. Knows no files and no schedule. */
#ifndef SYI_ENGINE_H
#define SYI_ENGINE_H

#include "data/batch.h"
#include "model/model.h"
#include "optim/weight_metrics.h"
#include "train/engine/pipeline.h"
#include "train/launch/launch.h"

enum syi_engine_use {
    SYI_USE_TRAIN = 1,
    SYI_USE_EVAL = 2,
    SYI_USE_DECODE = 4,
    SYI_USE_PACKED = 8,
    SYI_USE_UNFUSED = 16, /* elementwise ops one by one; the same bits, slower (for hunting) */
    SYI_USE_APART = 32,   /* every temporary in a place of its own; the same bits, more memory (likewise) */
    SYI_USE_SCORE = 64,
    SYI_USE_SNAPSHOT = 128, /* memory for checkpoints that are written beside training */
    SYI_USE_UNFOLDED =
        512, /* sums of blocks stay ops of their own, as in every program of the model (lock-step) */
    SYI_USE_TOGETHER = 1024, /* a rank that cannot have it is none for all, who go on without */
    SYI_USE_COHERENT = 256 /* the host reads and writes weights, state and gradients between runs (verify) */
};

struct syi_engine; /* of one rank */

/* Buckets of the run file as (input, target) pairs: data.length_buckets on both sides, cut at the two maxima;
 * the last holds everything. Returns how many. */
int syi_engine_buckets(const struct syi_config *config, struct syi_bucket buckets[SYI_MAX_BUCKETS]);

/* The longest bucket's shape for a program. */
struct syi_shape syi_config_shape(const struct syi_config *config, enum syi_which which);
/* Rows of the smallest batch of decoding and scores: a full one halved as long as each rank that has a part of it has whole
 * leaves of its sums. */
int syi_engine_fewest_rows(const struct syi_config *config, const struct syi_rank *rank, int64_t *rows,
                           struct sy_error *err) SYI_MUST_CHECK;

/* Records and binds the programs for `use` (bits). plan_only: no memory is taken. config is copied. */
int syi_engine_new(const struct syi_config *config, const struct syi_rank *rank, int use, int plan_only,
                   struct syi_engine **engine, struct sy_error *err) SYI_MUST_CHECK;
/* Another engine of the same model that reads the weights of `lender`, which outlives it; neither trains. rank: the lender's,
 * or, on one rank, another that works at the same time. */
int syi_engine_beside(const struct syi_engine *lender, const struct syi_rank *rank,
                      const struct syi_config *config, int use, struct syi_engine **engine,
                      struct sy_error *err) SYI_MUST_CHECK;
void syi_engine_free(struct syi_engine *engine);
/* Which copies of weights the programs of a model keep, to be said before any is recorded. An engine does so itself. */
void syi_engine_choose_copies(const struct syi_config *config, const struct syi_backend *backend, int use,
                              struct syi_model *model);
/* The longest bucket's program, or NULL where this use has none. */
const struct syi_program *syi_engine_program(const struct syi_engine *engine, enum syi_which which);
/* What memory.budget costs that program; NULL where this use has none. */
const struct syi_recomputed *syi_engine_recomputed(const struct syi_engine *engine, enum syi_which which);
struct syi_session *syi_engine_session(struct syi_engine *engine);
const struct syi_model *syi_engine_model(const struct syi_engine *engine);
int64_t syi_engine_parameters(const struct syi_engine *engine); /* numbers in all of them */
/* Fills parameters from the seed, and what of optimizer state begins as they do; the rest is as it was bound. Before the
 * first step. */
int syi_engine_init(struct syi_engine *engine, uint64_t seed, struct sy_error *err) SYI_MUST_CHECK;
/* To be called when parameters in the session were written by others, as from a checkpoint, which has averages in their
 * place. */
void syi_engine_params_changed(struct syi_engine *engine);

/* Puts the averages of an optimizer that keeps them in the place of parameters, for evaluations and checkpoints; the next
 * step takes them back. Nothing where there are none. */
int syi_engine_average(struct syi_engine *engine, struct sy_error *err) SYI_MUST_CHECK;

/* T5X's tree of this run's state (optim/state_tree.h), and the chains that its counts go by. Freed by the caller, also
 * after a failure. */
struct syi_state_tree;
struct syi_chain;
int syi_engine_state_tree(struct syi_engine *engine, struct syi_state_tree *tree,
                          struct sy_error *err) SYI_MUST_CHECK;
const struct syi_chain *syi_engine_chains(const struct syi_engine *engine); /* borrowed */

/* Parameters, optimizer state and the factor of learning rates of another engine of the same model, mesh and ranks, bound to
 * any backend; between two steps. Nothing is taken where it fails on a rank: the same error on all. */
int syi_engine_take(struct syi_engine *engine, const struct syi_engine *from,
                    struct sy_error *err) SYI_MUST_CHECK;
const struct syi_config *syi_engine_config(const struct syi_engine *engine);
int syi_engine_use(const struct syi_engine *engine); /* as it was made for */

struct syi_step_result {
    double loss; /* what is differentiated, microbatches added: sums over targets / normalizer (by default a
                         mean over targets), z-loss and auxiliary losses included */
    double grad_norm; /* of all gradients, before clipping */
    int ok; /* 0: the gradient norm is not finite and, unless train.nan_check is after, nothing was updated */
    int weighed; /* 1: a step of metrics.weights_every, whose weight metrics the engine has until the next */
    double weights[SYI_WEIGHT_METRICS]; /* with weighed: of all weights as if they were one tensor */
    int64_t target_tokens, input_tokens;
    double
        value[SYI_STEP_VALUES]; /* all of model/step_metrics.def, those that only count the batch left out */
};

/* What the learning rates of the steps that follow are multiplied by, that of the run and those that optimizers have of
 * their own; 1 at first. */
void syi_engine_scale_rates(struct syi_engine *engine, double factor);
/* Marks the rows of a training batch whose ids this rank reads; of others only lengths and weights count.
 * mine: [data.batch_size], zeroed. */
void syi_engine_rows(const struct syi_engine *engine, uint8_t *mine);
/* One training step on a global batch (all rows; each rank takes its own), microbatch by microbatch; step
 * counts from 0. */
int syi_engine_step(struct syi_engine *engine, const struct syi_batch *batch, int64_t step,
                    double learning_rate, struct syi_step_result *result,
                    struct sy_error *err) SYI_MUST_CHECK;
/* Metrics of weight tensor `param` of the model in the last weighed step; 0: it has none (an expert bias). */
int syi_engine_weight_metrics(const struct syi_engine *engine, size_t param,
                              double value[SYI_WEIGHT_METRICS]);
/* The same of all weights as if they were one tensor. */
void syi_engine_weight_totals(const struct syi_engine *engine, double value[SYI_WEIGHT_METRICS]);
/* Routing counts of the last step: layer i ("encoder/layers_1/mlp"), expert e; tokens that chose it and
 * tokens it kept. */
int syi_engine_moe_layers(const struct syi_engine *engine);
const char *syi_engine_moe_layer(const struct syi_engine *engine, int layer);
int syi_engine_experts(const struct syi_engine *engine);
/* Metrics of a layer of the last microbatch, T5X's names; auxiliary losses before their factors. */
struct syi_layer_metrics {
    float auxiliary_loss, router_z_loss, left_behind, usage, confidence;
};
struct syi_layer_metrics syi_engine_layer_metrics(const struct syi_engine *engine, int layer);
void syi_engine_routing(const struct syi_engine *engine, int layer, int expert, int64_t *chosen,
                        int64_t *kept);
/* Of a layer with experts: its numbers (struct syi_layer_metrics) times the batch's real tokens on its side, added up
 * over batches. */
struct syi_eval_layer {
    double tokens, auxiliary_loss, router_z_loss, left_behind, usage, confidence;
};
/* Sums over the batches of an evaluation. */
struct syi_eval_sums {
    double loss_sum, z_sum, smoothing_sum,
        correct_sum;              /* loss_sum: z-loss and what label smoothing adds included */
    int64_t weighted;             /* targets of nonzero weight */
    struct syi_eval_layer *layer; /* [syi_engine_moe_layers], the caller's; NULL: not wanted */
    /* T5X's values of its batches, added up: of the loss as each batch divides it, and what counts the batch */
    double value[SYI_STEP_VALUES];
    int packed;
    /* (layers, 2, experts), the caller's: tokens that each expert took, and those it dropped; NULL: not wanted */
    int64_t *routing;
};
/* Adds a batch of at most the bound rows. */
int syi_engine_eval(struct syi_engine *engine, const struct syi_batch *batch, struct syi_eval_sums *sums,
                    struct sy_error *err) SYI_MUST_CHECK;
/* score: [rows] log-likelihood of each row's target: the sum over its tokens, the end token included, of loss weight x
 * log softmax of the logits at the token, without z-loss and label smoothing (T5X models.py, score_batch). Float32
 * logarithms, added up in double in their order: a row's number does not depend on the others. Needs SYI_USE_SCORE. */
int syi_engine_score(struct syi_engine *engine, const struct syi_batch *batch, double *score,
                     struct sy_error *err) SYI_MUST_CHECK;
/* Asked by all ranks at the same places; another status than SY_OK ends the work and is returned. */
typedef int (*syi_poll_fn)(void *arg, struct sy_error *err);
/* Outputs of a batch, those of an input from best to worst. */
struct syi_outputs {
    int32_t decodes;  /* wanted of each input, at most decode.num_decodes */
    int32_t *ids;     /* [rows][decodes][syi_engine_decode_length] */
    int32_t *lengths; /* [rows][decodes] without the end token */
    float *scores;    /* [rows][decodes] -infinity: a search found no so many ends; or NULL (with a value,
                         decode.scores or more than greedy decoding is asked for in the run file) */
    int whole;        /* 1: all positions are computed, also after the last end (to measure) */
    syi_poll_fn poll; /* asked between positions, often in a second as far as they allow it; or NULL */
    void *poll_arg;
};
/* Decodes a batch as the run file says. example: [rows] index of each input among all, which names its random
 * numbers; NULL: batch->items has it. Rows of a batch are syi_engine_eval_rows (decode.batch_size). */
int syi_engine_decode(struct syi_engine *engine, const struct syi_batch *batch, const int64_t *example,
                      const struct syi_outputs *out, struct sy_error *err) SYI_MUST_CHECK;
/* Whether decoding is more than the program's own choice, and so has scores. */
int syi_engine_searches(const struct syi_decode_part *decode);
/* Whether the engine's programs decode so, whatever the seed and the odds of sampling are. */
int syi_engine_decodes_alike(const struct syi_engine *engine, const struct syi_decode_part *decode);
/* From now on decodes so; needs syi_engine_decodes_alike. */
int syi_engine_decode_as(struct syi_engine *engine, const struct syi_decode_part *decode, int64_t seed,
                         struct sy_error *err) SYI_MUST_CHECK;
/* What the encoder makes of a batch: *encoded, borrowed until the next call, (rows, batch->input_length, d_model) of
 * model.dtype, on one rank. Needs SYI_USE_DECODE. */
int syi_engine_encode(struct syi_engine *engine, const struct syi_batch *batch,
                      const struct sy_tensor **encoded, struct sy_error *err) SYI_MUST_CHECK;
int32_t syi_engine_eval_rows(const struct syi_engine *engine);
int32_t syi_engine_decode_length(const struct syi_engine *engine);

#endif
