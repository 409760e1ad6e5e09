/* SPDX-License-Identifier: Apache-2.0 */
/* The T5 encoder-decoder as recordings: from a run file to the programs of a run. Layers are functions that
 * record ops; parameters get T5X's names and initialisers as they are first used. Source of the architecture:
 * flaxformer architectures/t5, architectures/moe, components/; T5 (arXiv 1910.10683), Switch (2101.03961). */
#ifndef SYI_MODEL_H
#define SYI_MODEL_H

#include "base/run_config.h"
#include "base/compat.h"
#include "model/step_values.h"
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
    uint32_t id;    /* the same in all programs of the model: how many were used before it */
    enum syi_init init;
    double scale; /* standard deviation (before truncation), half width of uniform */
    int rank;
    int64_t dim[SY_MAX_DIMS];
    uint8_t axis[SY_MAX_DIMS];
};

/* How a copy lies in memory. */
enum syi_copied {
    SYI_COPIED_PLAIN,    /* as the parameters do, packed if there are several */
    SYI_COPIED_PANELS,   /* in panels, as products read it (SY_PANEL_COLUMNS) */
    SYI_COPIED_PANELS_NT /* in panels, transposed before */
};

/* A bfloat16 copy of weights that products read, one or several packed. */
struct syi_copy {
    char name[256]; /* of the carry tensor */
    enum syi_copied how;
    int trained;      /* 1: programs of gradients read it, so the update makes it anew */
    int n;            /* parameters */
    uint32_t part[3]; /* their ids */
};

/* A layer with experts. */
struct syi_moe_layer {
    char name[160]; /* module: "encoder/layers_1/mlp" */
    int decoder;    /* 1: of the decoder */
    int type;       /* of SYI_ROUTER_MAP */
    int64_t bias;   /* id of its expert bias; -1: it has none */
};

/* A model as the programs recorded so far show it: the parameters in the order of their names once a program
 * is recorded, what was asked for in copies, and the layers with experts in the order of the forward pass. */
struct syi_model {
    struct syi_param *param;
    size_t n, capacity;
    struct syi_index index; /* of param */
    int unsorted;           /* 1: some were added at the end */
    int panels;             /* 1, set before recording: the backend reads panels, so copies are laid out */
    int trains_panels;      /* 1, set before recording: so are those that programs of gradients read */
    int keeps_copies; /* 1, set before recording: programs of gradients read copies that the update leaves; else they
                               cast weights in every run */
    struct syi_copy *copy;
    size_t n_copies, copy_capacity;
    struct syi_index copy_index;
    struct syi_moe_layer *layer;
    size_t n_layers, layer_capacity;
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
/* Rows of a batch of inputs: shape->rows is inputs x beams for decode_step. */
static inline int64_t syi_input_rows(const struct syi_shape *shape)
{
    return shape->beams > 1 ? shape->rows / shape->beams : shape->rows;
}

/* What the sparse layers of a stack have in one program: all route the same tokens in the same groups. */
struct syi_places {
    int64_t slots;  /* places of all experts and groups */
    int64_t tokens; /* routed or not, padding included */
    int64_t groups;
};

/* A program, and what recording it showed besides. */
struct syi_recorded {
    struct syi_program *program; /* the receiver's */
    struct syi_places places[2]; /* of encoder and decoder in grad and eval programs; 0: no sparse layers */
};

/* A recording under way. */
struct syi_build {
    struct syi_program *p;
    const struct syi_config *config;
    struct syi_model *model; /* gets what it does not hold yet */
    struct syi_shape shape;
    int training;        /* 1: dropout and training capacity */
    int decoding;        /* 1: one position a run, caches in carry tensors */
    enum sy_dtype dtype; /* of what products read: SY_F32, or SY_BF16 with model.dtype = bfloat16 */
    int int8;            /* 1: weights of products are int8, and what is multiplied with them is float32 */
    int rng;             /* input int64[4], or -1 */
    int sites;           /* dropout sites given out */
    struct syi_places places[2];
};

/* ---- parameters.c ---- */

/* Brings the parameters into the order of their names: what depends on the order comes after it. */
int syi_model_sort(struct syi_model *model, struct sy_error *err) SYI_MUST_CHECK;
/* The parameter `name` of the scope at hand, made when it is first used. */
int syi_build_param(struct syi_build *b, const char *name, int rank, const int64_t *dim, const uint8_t *axis,
                    enum syi_init init, double scale);
/* The scales of a parameter in int8; -1: it is not. */
int syi_scales(struct syi_build *b, int w);
void syi_model_free(struct syi_model *model);

/* ---- copies.c ---- */

/* What products read of n parameters, packed if n > 1, in the dtype of the build. In bfloat16 these are copies, which the
 * program "weights" makes: in panels where the model says so and leaves fill them, else as the parameters lie. In training
 * they are casts until syi_keep_copies, and stay so where the model keeps no copies. */
int syi_weights(struct syi_build *b, int n, const int *parts);
/* The same for a program without gradients: in panels, laid out so, where the backend reads them and leaves fill them. */
int syi_weights_to_read(struct syi_build *b, int n, const int *parts, enum syi_copied laid);
/* Whether what these gave lies in panels. */
int syi_are_panels(const struct syi_build *b, int w);
/* After the gradients of a program that called syi_weights in training: it reads copies that the model keeps and the update
 * makes anew, in panels where only products read them; the casts go. */
int syi_keep_copies(struct syi_build *b, struct sy_error *err) SYI_MUST_CHECK;
/* Records copy `number` of the model, made of the tensors `part`: a carry tensor with role COPY. */
void syi_record_copy(struct syi_program *p, const struct syi_model *model, uint32_t number, const int *part);
/* Records all copies that the model notes. */
int syi_record_copies(struct syi_build *b, struct sy_error *err) SYI_MUST_CHECK;

/* ---- layers.c ---- */

/* Number of leaves of every axis for programs of this shape (doc/numerics.md). */
void syi_leaves(const struct syi_config *config, const struct syi_shape *shape,
                uint32_t count[SYI_AXIS_COUNT]);
/* Columns inside the MLP of an expert. */
static inline int64_t syi_expert_width(const struct syi_config *config)
{
    return config->moe.expert_mlp_dim ? config->moe.expert_mlp_dim : config->model.d_ff;
}
/* Rows of a routing group. */
int64_t syi_group_rows(const struct syi_config *config, const struct syi_shape *shape, int training);
/* Which rows of an expert buffer hold tokens: the first `counts` slots of each group of an expert, or as many
 * places from its first one on. */
struct syi_filled {
    int counts; /* int32 [experts, groups] */
    int first;  /* the same of a buffer without gaps (syi_ragged_places), or -1 */
};
/* x w in the dtype of the build, a float32 result; by experts where filled is not NULL. */
int syi_product(struct syi_build *b, int x, int w, const struct syi_filled *filled);
/* x times the transposed table [vocab, embed] in the dtype of the build, a float32 result. */
int syi_product_nt(struct syi_build *b, int x, int table);
/* x times concatenated weights (packed), one product in the dtype of the build; by experts where filled
 * is not NULL. Where x is small against the weights, in a decoding step, for many experts and for short inputs, and
 * where weights are int8, the products are packed instead of the weights, unless those are copies that are packed once: the
 * same bits. */
int syi_packed_product(struct syi_build *b, int x, int n, const int *weights,
                       const struct syi_filled *filled);
/* A gated unit of x times two weights, by experts where filled is not NULL, in the dtype of the build; dropout in training.
 * Where syi_packed_product would pack the products, these are two operands. */
int syi_gated_product(struct syi_build *b, int x, const int *weights, const struct syi_filled *filled,
                      int activation);
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

/* How the tokens of a layer are routed. */
struct syi_router {
    int type;        /* enum of SYI_ROUTER_MAP */
    int decoder;     /* 1: of the decoder */
    uint32_t layer;  /* which of the model's layers with experts */
    int prioritized; /* batch prioritised */
    int mask;        /* [b, t], 0: padding; -1: all tokens are real */
    int normalizer;  /* [1], real tokens the losses are averaged over; -1: no losses are wanted */
};
/* Outputs per layer, where losses are wanted, by role: CHOSEN, KEPT (int64 [experts]), SERVED (int64 [1],
 * tokens with a place), CONFIDENCE (sum of all weights), LAYER_AUXILIARY_LOSS and LAYER_ROUTER_Z_LOSS
 * (normalised, before their factors). */
int syi_moe(struct syi_build *b, const char *name, int x, const struct syi_router *router);

/* ---- router.c ---- */

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
    int bias;       /* the parameter that is added for the choice alone, or -1 */
    int balance, z; /* [1] each, normalised; -1: no losses wanted */
};
/* x: grouped tokens; the mask of `router` has their layout. In the scope of the layer. */
struct syi_routed syi_route_tokens(struct syi_build *b, int x, const struct syi_router *router,
                                   const struct syi_groups *groups);

/* ---- t5.c ---- */

/* What batches bring, and what a decoding step does. */
struct syi_inputs {
    int encoder_ids, decoder_inputs, decoder_targets, loss_weights;
    struct syi_real encoder, decoder;
    int loss_norm, input_norm, target_norm; /* scalars: what sums over tokens are divided by */
    int position, rows;                     /* of the caches (struct syi_cache), when decoding */
};
/* Whether attention goes by segments instead of lengths. */
int syi_uses_segments(const struct syi_config *config, const struct syi_shape *shape);
int syi_encoder(struct syi_build *b, const struct syi_inputs *in);
/* Leaves what every decoding step reads of the encoder's output in carry tensors. */
void syi_encode_for_decoding(struct syi_build *b, int encoded);
int syi_decoder_logits(struct syi_build *b, int ids, int encoded, const struct syi_inputs *in);

/* ---- programs.c: one function a program ---- */

/* Name of the gradient of a parameter, which grad programs and update share. */
enum { SYI_GRADIENT_NAME = 176 };
void syi_gradient_name(char name[SYI_GRADIENT_NAME], const struct syi_param *param);
/* What it is kept in (train.gradient_dtype). */
enum sy_dtype syi_gradient_dtype(const struct syi_config *config, const struct syi_param *param);
/* Leaves the gradient of a parameter in a carry tensor, which it returns: written by the first microbatch (next 0), added to by
 * the next ones. */
int syi_store_gradient(struct syi_program *p, const struct syi_param *param, int gradient, int next);
/* The carry tensor of the sums of the squares of the blocks of a gradient (role GRADIENT_BLOCKS), for the program that makes
 * a norm of them. */
int syi_gradient_blocks(struct syi_program *p, const struct syi_param *param);
/* x / max(1, norm / clip), norm that of all n together (optax per_example_global_norm_clip). */
void syi_clip_example(struct syi_program *p, int n, int *x, double clip);
/* Training: loss, gradients into carry tensors (role GRADIENT); `next` adds to them. What may run for the last microbatch
 * leaves the blocks of their norm too. Outputs: the values of a step (step_metrics.def), and those of syi_moe. */
int syi_record_grad(const struct syi_config *config, const struct syi_shape *shape, int next,
                    struct syi_model *model, struct syi_recorded *recorded,
                    struct sy_error *err) SYI_MUST_CHECK;
/* The same outputs without gradients, dropout off, evaluation capacity. */
int syi_record_eval(const struct syi_config *config, const struct syi_shape *shape, struct syi_model *model,
                    struct syi_recorded *recorded, struct sy_error *err) SYI_MUST_CHECK;
/* Output TOKEN_LOSS [rows, target_length]: -log softmax of the logits at each target times its loss weight, without
 * z-loss and label smoothing; else as syi_record_eval (T5X models.py, EncoderDecoderModel.score_batch). */
int syi_record_score(const struct syi_config *config, const struct syi_shape *shape, struct syi_model *model,
                     struct syi_program **program, struct sy_error *err) SYI_MUST_CHECK;
/* Encodes into carry tensors and empties nothing: a decode starts at position 0. Output ENCODED. */
int syi_record_encode(const struct syi_config *config, const struct syi_shape *shape, struct syi_model *model,
                      struct syi_program **program, struct sy_error *err) SYI_MUST_CHECK;
/* One token. By role: inputs DECODE_TOKEN int32 [rows, 1], DECODE_POSITION int32 [1], DECODE_LENGTHS int32
 * [rows] (position + 1). Greedy: output DECODE_NEXT int32 [rows, 1]. shape->sampling: DECODE_LOGITS [rows, 1,
 * vocab]. Else, for beam search, inputs DECODE_ROWS int32 [rows] (whose cache a row continues) and DECODE_ADD
 * [rows, 1], outputs DECODE_TOP_VALUE and DECODE_TOP_ID [rows, 1, 2 x beams]: the largest of add + log
 * softmax. */
int syi_record_decode_step(const struct syi_config *config, const struct syi_shape *shape,
                           struct syi_model *model, struct syi_program **program,
                           struct sy_error *err) SYI_MUST_CHECK;
/* Writes the copies that programs recorded before with the same model read; to be run when parameters have
 * changed. Empty where model->n_copies is 0. */
int syi_record_weights(const struct syi_config *config, const struct syi_shape *shape,
                       struct syi_model *model, struct syi_program **program,
                       struct sy_error *err) SYI_MUST_CHECK;

/* ---- init.c ---- */

/* Writes the local part of a parameter's initial value: element i of the logical tensor is a pure function of
 * (seed, name, i). threads: NULL: the caller alone. */
struct sy_tensor;
struct syi_threads;
void syi_param_init(const struct syi_param *param, uint64_t seed, const struct sy_tensor *local,
                    struct syi_threads *threads);

#endif
