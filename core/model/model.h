/* SPDX-License-Identifier: Apache-2.0 */
/* The T5 encoder-decoder as recordings: from a run file to the programs of a run. Layers are functions that
 * record ops; parameters get T5X's names and initialisers as they are first used. Source of the architecture:
 * flaxformer architectures/t5, architectures/moe, components/; T5 (arXiv 1910.10683), Switch (2101.03961). */
#ifndef SYI_MODEL_H
#define SYI_MODEL_H

#include "base/run_config.h"
#include "program/program.h"

enum syi_init { SYI_INIT_NORMAL, SYI_INIT_TRUNCATED_NORMAL, SYI_INIT_UNIFORM, SYI_INIT_ONES };

/* How a parameter begins. */
struct syi_param {
    char name[160]; /* T5X's path: "encoder/layers_0/attention/query/kernel" */
    int init;       /* enum syi_init */
    double scale;   /* standard deviation (before truncation), half width of uniform */
    int rank;
    int64_t dim[SY_MAX_DIMS];
    uint8_t axis[SY_MAX_DIMS];
};

/* All parameters of a model, in the order of their names. */
struct syi_params {
    struct syi_param *param;
    size_t n, capacity;
};

/* Lengths and rows one set of programs is recorded for. */
struct syi_shape {
    int64_t rows;            /* of a microbatch, over all ranks */
    int64_t input_length;    /* padded */
    int64_t target_length;   /* padded; decoding: the most tokens of an output */
    int64_t longest_length;  /* of any bucket: routing groups are sized by it */
    int64_t shortest_length; /* of any bucket: leaves of the batch are sized by it */
};

enum { SYI_MAX_MOE_LAYERS = 256 };

/* A recording under way. */
struct syi_build {
    struct syi_program *p;
    const struct syi_config *config;
    struct syi_params *params; /* gets parameters it does not hold yet */
    struct syi_shape shape;
    int training; /* 1: dropout and training capacity */
    int decoding; /* 1: one position a run, caches in carry tensors */
    int rng;      /* input int64[4], or -1 */
    int sites;    /* dropout sites given out */
    int n_moe;
    int balance[SYI_MAX_MOE_LAYERS], z[SYI_MAX_MOE_LAYERS]; /* per layer, [1], normalised */
};

/* ---- layers.c ---- */

/* Number of leaves of every axis for programs of this shape (doc/numerics.md). */
void syi_leaves(const struct syi_config *config, const struct syi_shape *shape,
                uint32_t count[SYI_AXIS_COUNT]);
/* Rows of a routing group. */
int64_t syi_group_rows(const struct syi_config *config, const struct syi_shape *shape, int training);
int syi_build_param(struct syi_build *b, const char *name, int rank, const int64_t *dim, const uint8_t *axis,
                    int init, double scale);
/* x times concatenated weights (packed), one product; grouped by experts when counts >= 0. A decoding step,
 * whose x is small, packs the products instead of the weights: the same bits. */
int syi_packed_product(struct syi_build *b, int x, int n, const int *weights, int counts);
double syi_build_init_scale(const struct syi_build *b);
int syi_norm(struct syi_build *b, const char *name, int x, int lengths);
int syi_dropped(struct syi_build *b, int x);
int syi_mlp(struct syi_build *b, const char *name, int x);

/* ---- attention.c ---- */

/* Where a decoding step reads and appends keys and values. */
struct syi_cache {
    int kv;       /* [rows, length, 2 x columns] */
    int position; /* int32 [1] */
    int lengths;  /* int32 [rows]: keys to look at */
};
int syi_relative_bias(struct syi_build *b);
int syi_self_attention(struct syi_build *b, const char *name, int x, int lengths, int bias, int causal,
                       const struct syi_cache *cache);
/* Keys and values of the encoder's output for one decoder layer. */
int syi_cross_kv(struct syi_build *b, const char *name, int encoded);
int syi_cross_attention(struct syi_build *b, const char *name, int x, int kv, int x_lengths,
                        int encoded_lengths);

/* ---- moe.c ---- */

int syi_is_sparse_layer(int layout, int layer, int layers, int sparse);
/* normaliser: scalar [1], tokens over which the auxiliary losses are averaged; -1 where no losses are wanted.
 */
int syi_moe(struct syi_build *b, const char *name, int x, int lengths, int normaliser);

/* ---- t5.c ---- */

/* What batches bring; names are those of the program's inputs. */
struct syi_inputs {
    int encoder_ids, decoder_inputs, decoder_targets, loss_weights, input_lengths, target_lengths;
    int loss_norm, input_norm, target_norm; /* scalars: tokens of the whole batch */
};
int syi_encoder(struct syi_build *b, int ids, int lengths, int normaliser);
/* Leaves what every decoding step reads of the encoder's output in carry tensors. */
void syi_encode_for_decoding(struct syi_build *b, int encoded);
int syi_decoder_logits(struct syi_build *b, int ids, int encoded, const struct syi_inputs *in);

/* ---- programs.c: one function a program ---- */

/* Inputs are shared by name over all programs of a session, so those that depend on the shape carry it:
 * "encoder_ids/64x24", "input_lengths/64" (length 0). */
enum { SYI_INPUT_NAME = 80 };
void syi_input_name(char name[SYI_INPUT_NAME], const char *what, int64_t rows, int64_t length);

/* Checks dims that only the model knows (heads, layouts). */
int syi_model_check(const struct syi_config *config, struct sy_error *err) SYI_MUST_CHECK;
/* Training: loss, gradients into carry tensors "grad/NAME"; `next` adds to them. Outputs "loss_sum", "z_sum",
 * "correct_sum", "auxiliary_loss", "router_z_loss" ([1] each), "experts/LAYER/chosen" and ".../kept" (int64
 * [experts]). */
int syi_record_grad(const struct syi_config *config, const struct syi_shape *shape, int next,
                    struct syi_params *params, struct syi_program **program,
                    struct sy_error *err) SYI_MUST_CHECK;
/* The same outputs without gradients, dropout off, evaluation capacity. */
int syi_record_eval(const struct syi_config *config, const struct syi_shape *shape, struct syi_params *params,
                    struct syi_program **program, struct sy_error *err) SYI_MUST_CHECK;
/* Encodes into carry tensors and empties nothing: a decode starts at position 0. */
int syi_record_encode(const struct syi_config *config, const struct syi_shape *shape,
                      struct syi_params *params, struct syi_program **program,
                      struct sy_error *err) SYI_MUST_CHECK;
/* One token: inputs "decode/token" int32 [rows, 1], "decode/position" int32 [1], "decode/lengths" int32
 * [rows] (position + 1); output "decode/next" int32 [rows, 1]. */
int syi_record_decode_step(const struct syi_config *config, const struct syi_shape *shape,
                           struct syi_params *params, struct syi_program **program,
                           struct sy_error *err) SYI_MUST_CHECK;
void syi_params_free(struct syi_params *params);

/* ---- init.c ---- */

/* Writes the local part of a parameter's initial value: element i of the logical tensor is a pure function of
 * (seed, name, i). */
struct sy_tensor;
void syi_param_init(const struct syi_param *param, uint64_t seed, const struct sy_tensor *local);

#endif
