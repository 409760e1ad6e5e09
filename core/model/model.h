/* SPDX-License-Identifier: Apache-2.0 */
/* The T5 encoder-decoder as recordings: from a run file to the programs of a run. Layers are functions that
 * record ops; parameters get T5X's names and initialisers as they are first used. Source of the architecture:
 * flaxformer architectures/t5, architectures/moe, components/; T5 (arXiv 1910.10683), Switch (2101.03961). */
#ifndef SYI_MODEL_H
#define SYI_MODEL_H

#include "base/run_config.h"
#include "base/compat.h"
#include "program/record.h"

enum syi_init {
    SYI_INIT_NORMAL,
    SYI_INIT_TRUNCATED_NORMAL,
    SYI_INIT_UNIFORM,
    SYI_INIT_ONES,
    SYI_INIT_EXPERT_BIAS /* zero, and moved by the loads of the experts: no gradient, no optimizer */
};

/* How a parameter begins. */
struct syi_param {
    char name[160]; /* T5X's path: "encoder/layers_0/attention/query/kernel" */
    int init;       /* enum syi_init */
    double scale;   /* standard deviation (before truncation), half width of uniform */
    int rank;
    int64_t dim[SY_MAX_DIMS];
    uint8_t axis[SY_MAX_DIMS];
};

/* A bfloat16 copy of weights that programs without gradients read, one or several packed. */
struct syi_copy {
    char name[256];    /* of the carry tensor */
    int n;             /* parameters */
    char part[3][160]; /* their names */
};

/* All parameters of a model, in the order of their names once a program is recorded, and what was asked for
 * in copies. */
struct syi_params {
    struct syi_param *param;
    size_t n, capacity;
    struct syi_index index; /* of param */
    int unsorted;           /* 1: some were added behind */
    struct syi_copy *copy;
    size_t n_copies, copy_capacity;
    struct syi_index copy_index;
};

/* Lengths and rows one set of programs is recorded for. */
struct syi_shape {
    int64_t rows;            /* of a microbatch, over all ranks */
    int64_t input_length;    /* padded */
    int64_t target_length;   /* padded; decoding: the most tokens of an output */
    int64_t longest_length;  /* of any bucket: routing groups are sized by it */
    int64_t shortest_length; /* of any bucket: leaves of the batch are sized by it */
    int packed;              /* 1: rows hold several examples, told apart by segments */
    int64_t beams;           /* decode_step: beams of each input (rows = inputs x beams); 0: greedy */
    int sampling;            /* decode_step: 1 yields logits instead of a choice */
};

enum { SYI_MAX_MOE_LAYERS = SYI_MAX_SPARSE_LAYERS };

/* A recording under way. */
struct syi_build {
    struct syi_program *p;
    const struct syi_config *config;
    struct syi_params *params; /* gets parameters it does not hold yet */
    struct syi_shape shape;
    int training; /* 1: dropout and training capacity */
    int decoding; /* 1: one position a run, caches in carry tensors */
    int dtype;    /* of what products read: SY_F32, or SY_BF16 with model.dtype = bfloat16 */
    int rng;      /* input int64[4], or -1 */
    int sites;    /* dropout sites given out */
    int n_moe;
    int balance[SYI_MAX_MOE_LAYERS], z[SYI_MAX_MOE_LAYERS]; /* per layer, [1], normalised */
    int64_t slots[SYI_MAX_MOE_LAYERS];                      /* places of all experts and groups */
};

/* ---- layers.c ---- */

/* Number of leaves of every axis for programs of this shape (doc/numerics.md). */
void syi_leaves(const struct syi_config *config, const struct syi_shape *shape,
                uint32_t count[SYI_AXIS_COUNT]);
/* Rows of a routing group. */
int64_t syi_group_rows(const struct syi_config *config, const struct syi_shape *shape, int training);
/* The parameter of that name, or NULL. */
const struct syi_param *syi_params_find(const struct syi_params *params, const char *name);
/* Brings them into the order of their names: what depends on the order comes after it. */
int syi_params_sort(struct syi_params *params, struct sy_error *err) SYI_MUST_CHECK;
int syi_build_param(struct syi_build *b, const char *name, int rank, const int64_t *dim, const uint8_t *axis,
                    int init, double scale);
/* Which rows of an expert buffer hold tokens: the first `counts` slots of each group of an expert, or as many
 * places from its first one on. */
struct syi_filled {
    int counts; /* int32 [experts, groups] */
    int first;  /* the same of a buffer without gaps (syi_ragged_places), or -1 */
};
/* x w in the dtype of the build, a float32 result; by experts where filled is not NULL. */
int syi_product(struct syi_build *b, int x, int w, const struct syi_filled *filled);
/* What products read of n parameters, packed if n > 1, in the dtype of the build. In bfloat16 training casts
 * them in every run; other programs read copies, which the program "weights" makes. */
int syi_weights(struct syi_build *b, int n, const int *parts);
/* x times concatenated weights (packed), one product in the dtype of the build; by experts where filled
 * is not NULL. Where x is small against the weights, in a decoding step and for many experts, the products
 * are packed instead of the weights, unless those are copies that are packed once: the same bits. */
int syi_packed_product(struct syi_build *b, int x, int n, const int *weights,
                       const struct syi_filled *filled);
double syi_build_init_scale(const struct syi_build *b);
/* mask: [b, t], 0 where y shall be 0, or -1. */
int syi_norm(struct syi_build *b, const char *name, int x, int mask);
int syi_dropped(struct syi_build *b, int x);
int syi_mlp(struct syi_build *b, const char *name, int x);
/* The same of another width. */
int syi_mlp_of(struct syi_build *b, const char *name, int x, int64_t width);
struct syi_activations {
    int gated, activation; /* activation(wi_0 x) * (wi_1 x), or activation(wi x) */
};
struct syi_activations syi_activations(int mlp); /* of model.mlp_activations */
struct syi_activations syi_expert_activations(const struct syi_config *config);

/* ---- attention.c ---- */

/* Which positions of a stack are real. Attention goes by lengths or by segments, the other is -1. */
struct syi_real {
    int lengths;  /* int32 [rows] */
    int segments; /* int32 [rows, length], 0: padding */
    int mask;     /* [rows, length], for norms and routers; -1: all are real */
};

/* Where a decoding step reads and appends keys and values. */
struct syi_cache {
    int kv;       /* [rows, length, 2 x columns] */
    int rows;     /* int32 [rows]: whose entries a row takes over first, or -1 */
    int position; /* int32 [1] */
    int lengths;  /* int32 [rows]: keys to look at */
};
int syi_relative_bias(struct syi_build *b);
int syi_self_attention(struct syi_build *b, const char *name, int x, const struct syi_real *real, int bias,
                       int causal, const struct syi_cache *cache);
/* Keys and values of the encoder's output for one decoder layer. */
int syi_cross_kv(struct syi_build *b, const char *name, int encoded);
int syi_cross_attention(struct syi_build *b, const char *name, int x, int kv, const struct syi_real *real,
                        const struct syi_real *encoded);

/* ---- moe.c ---- */

int syi_is_sparse_layer(int layout, int layer, int layers, int sparse);
/* How the tokens of a layer are routed. */
struct syi_router {
    int type;        /* enum of SYI_ROUTER_MAP */
    int prioritized; /* batch prioritised */
    int mask;        /* [b, t], 0: padding; -1: all tokens are real */
    int normalizer;  /* [1], real tokens the losses are averaged over; -1: no losses are wanted */
};
/* Outputs per layer, where losses are wanted, named experts/LAYER/: chosen, kept (int64 [experts]), tokens
 * (int64 [1], those with a place), confidence (sum of all weights), auxiliary_loss and router_z_loss (before
 * their factors). */
int syi_moe(struct syi_build *b, const char *name, int x, const struct syi_router *router);

/* ---- router.c ---- */

/* The router (of SYI_ROUTER_MAP) of a stack's sparse layers. */
int syi_router_type(const struct syi_config *config, int decoder);

/* Routing groups of a tensor [rows, length, embed] (doc/numerics.md, compat: T5X's). */
struct syi_groups {
    int by_tokens;          /* 1: regrouped to [count, tokens] */
    int64_t rows, length;   /* padded, by_tokens */
    int64_t count, tokens;  /* groups, tokens of each */
    int64_t group_rows;     /* rows of a group, after regrouping */
    int64_t capacity;       /* places of an expert in a group */
    int64_t slots;          /* of all experts and groups, before capacity is cut to what can come */
    double capacity_factor; /* the kernel computes capacity from real tokens; 0: capacity it is */
};
int syi_groups(const struct syi_build *b, int type, int64_t rows, int64_t length, struct syi_groups *groups,
               struct sy_error *err) SYI_MUST_CHECK;

struct syi_routed {
    struct syi_routing routing;
    int gate;       /* [b, t, k] */
    int balance, z; /* [1] each, normalised; -1: no losses wanted */
};
/* x: grouped tokens; the mask of `router` lies as they do. In the scope of the layer. */
struct syi_routed syi_route_tokens(struct syi_build *b, int x, const struct syi_router *router,
                                   const struct syi_groups *groups);

/* ---- t5.c ---- */

/* What batches bring; names are those of the program's inputs. */
struct syi_inputs {
    int encoder_ids, decoder_inputs, decoder_targets, loss_weights;
    struct syi_real encoder, decoder;
    int loss_norm, input_norm, target_norm; /* scalars: what sums over tokens are divided by */
};
/* Whether attention goes by segments instead of lengths. */
int syi_uses_segments(const struct syi_config *config, const struct syi_shape *shape);
int syi_encoder(struct syi_build *b, const struct syi_inputs *in);
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
/* Rows of a batch of inputs: shape->rows is inputs x beams for decode_step. */
int64_t syi_input_rows(const struct syi_shape *shape);
/* One token: inputs "decode/token" int32 [rows, 1], "decode/position" int32 [1], "decode/lengths" int32
 * [rows] (position + 1). Greedy: output "decode/next" int32 [rows, 1]. shape->sampling: "decode/logits"
 * [rows, 1, vocab]. Else, for beam search, inputs "decode/rows" int32 [rows] (whose cache a row continues)
 * and "decode/add" [rows, 1], outputs "decode/top_value" and "decode/top_id" [rows, 1, 2 x beams]: the
 * largest of add + log softmax. */
int syi_record_decode_step(const struct syi_config *config, const struct syi_shape *shape,
                           struct syi_params *params, struct syi_program **program,
                           struct sy_error *err) SYI_MUST_CHECK;
/* Writes the copies that programs recorded before with the same params read; to be run when parameters have
 * changed. Empty where params->n_copies is 0. */
int syi_record_weights(const struct syi_config *config, const struct syi_shape *shape,
                       struct syi_params *params, struct syi_program **program,
                       struct sy_error *err) SYI_MUST_CHECK;
void syi_params_free(struct syi_params *params);

/* ---- init.c ---- */

/* Writes the local part of a parameter's initial value: element i of the logical tensor is a pure function of
 * (seed, name, i). */
struct sy_tensor;
void syi_param_init(const struct syi_param *param, uint64_t seed, const struct sy_tensor *local);

#endif
