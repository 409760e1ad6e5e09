/* SPDX-License-Identifier: Apache-2.0 */
/* The engine's own structure, shared by engine_bind.c (making it) and engine.c (running it). */
#ifndef SYI_ENGINE_INTERNAL_H
#define SYI_ENGINE_INTERNAL_H

#include "data/loss_weights.h"
#include "data/vocabulary.h"
#include "optim/optim.h"
#include "train/engine/decode_step.h"
#include "train/engine/engine.h"

/* A batch side bound for one bucket. NULL where the use does not need it. */
struct syi_bucket_inputs {
    const struct sy_tensor *encoder_ids, *decoder_inputs, *decoder_targets, *loss_weights;
    const struct sy_tensor *encoder_lengths, *decoder_lengths;
    const struct sy_tensor *encoder_segments, *decoder_segments;
    const struct sy_tensor *encoder_mask, *decoder_mask;
};

/* One bucket's programs: indices in the session, -1 where not bound. */
struct syi_bucket_programs {
    int program[SYI_WHICH_COUNT];
    struct syi_bucket_inputs train, eval;
    struct syi_decode_bound step;
    struct syi_places places[2], eval_places[2]; /* in training and in evaluation, of encoder and decoder */
    const struct sy_tensor *token_loss;          /* of the score program; NULL: there is none */
    const struct sy_tensor *encoded;             /* of the encode program; likewise */
};

/* What programs say of a layer with experts; NULL where none is bound that does. */
struct syi_layer_tensors {
    const struct sy_tensor *chosen, *kept, *served, *confidence, *auxiliary_loss, *router_z_loss;
    const struct sy_tensor *direction; /* of the update: where its expert bias goes; NULL: it has none */
};

struct syi_engine {
    struct syi_config config;
    struct syi_rank rank;
    struct syi_model model;
    struct syi_session *session;
    int32_t end; /* id that ends an output; where decoding is bound */
    struct syi_bucket bucket[SYI_MAX_BUCKETS];
    struct syi_bucket_programs bound[SYI_MAX_BUCKETS];
    int n_buckets, use;
    int update, copying;           /* programs in the session, the second is SYI_WEIGHTS; -1: none */
    int exchanging;                /* program SYI_EXCHANGE; -1: there is none */
    int weighing;                  /* program SYI_UPDATE_METRICS; -1: there is none */
    int averaged;                  /* 1: parameters are their averages now */
    int stale;                     /* 1: parameters have changed since program weights ran */
    int stale_kept;                /* 1: and not by the update, which makes the copies that training reads */
    int torn;                      /* 1: a program that moves weights broke off: they are of no step */
    double rate_factor;            /* of all learning rates */
    int64_t train_rows, eval_rows; /* of a run of a program, over all ranks */
    int64_t groups;                /* routing groups of a microbatch, the most of any bucket */
    /* (parameters, SYI_WEIGHT_METRICS) of SYI_UPDATE_METRICS; NULL: there is none */
    const struct sy_tensor **weight;
    struct syi_layer_tensors *moe; /* (n_moe) by the layers of the model */
    int n_moe;                     /* 0 where routing is not counted */
    int64_t real[2];               /* real tokens of the last microbatch, encoder and decoder */
    int64_t *counts;               /* (n_moe, experts, 2) chosen and kept of the last step */
    const struct sy_tensor *rng, *loss_norm, *input_norm, *target_norm;
    struct syi_chain *chains;                          /* of the optimizers, by the parts of config */
    const struct sy_tensor *scalar[SYI_OPTIM_SCALARS]; /* of the update, as syi_optim_scalars has them */
    const struct syi_places *places;                   /* (2) of the program that ran last */
    struct syi_loss_factor factor;
    float *weights;    /* (rows, longest target) loss weights in force of the batch at hand */
    float *mask;       /* (rows, longest length) scratch */
    int32_t *segments; /* (rows, longest length) scratch */
    const struct sy_tensor *output[SYI_STEP_VALUES]; /* NULL: no program yields it */
    uint8_t *finished;                               /* (eval_rows) decoding */
    struct syi_decoder *decoder;                     /* NULL: greedy */
    int32_t *sequences;                              /* (eval_rows, decodes, length) of the decoder */
    float *scores;                                   /* (eval_rows, decodes) */
    int64_t *example;                                /* (eval_rows) */
};

/* engine.c: makes the copies of weights that eval, encode and decode_step read, where they are not those of
 * the parameters. */
int syi_engine_copy_weights(struct syi_engine *engine, struct sy_error *err) SYI_MUST_CHECK;
/* Parameters have been written from outside the update. */
void syi_engine_weights_written(struct syi_engine *engine);

/* engine.c: the programs of a step's gradients by themselves; the numbers of the step stay as they are. */
int syi_engine_gradients(struct syi_engine *engine, const struct syi_batch *batch, int64_t step,
                         struct sy_error *err) SYI_MUST_CHECK;

/* engine_weights.c: where the metrics of weights are; whether those of a step are wanted. */
int syi_engine_find_weights(struct syi_engine *engine, struct sy_error *err) SYI_MUST_CHECK;
int syi_engine_weighs(const struct syi_engine *engine, int64_t step);

/* engine_decode.c: whether tokens are drawn or scored one by one on the host; what decoding needs that is more than the
 * program's own choice. */
int syi_engine_samples(const struct syi_decode_part *decode);
int syi_engine_decode_open(struct syi_engine *engine, struct sy_error *err) SYI_MUST_CHECK;

/* engine_batch.c: rows row0 .. row0 + n - 1 of a batch into the inputs of a program. */
struct syi_norms {
    double loss, input, target; /* what sums are divided by */
    double weight_sum;          /* of the loss weights in force */
    int64_t weighted;           /* targets of nonzero weight */
};
struct syi_norms syi_engine_norms(struct syi_engine *engine, const struct syi_batch *batch, int64_t row0,
                                  int64_t n);
void syi_engine_put(struct syi_engine *engine, const struct syi_bucket_inputs *in,
                    const struct syi_batch *batch, int64_t row0, int64_t n);
/* Loss weights as the batch has them, instead of those in force. */
void syi_engine_put_weights(const struct syi_bucket_inputs *in, const struct syi_batch *batch);

struct syi_shape syi_engine_shape(const struct syi_engine *engine, int bucket, enum syi_which which);

#endif
