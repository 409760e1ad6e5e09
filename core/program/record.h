/* SPDX-License-Identifier: Apache-2.0 */
/* Recording ops. An op whose row in ops.def says all of its outputs is recorded by its id (SYI_RECORD); one that
 * has more to work out has a function of its own, in the file of its family (ops/). Both return the (first) output
 * tensor or -1; a second one, given through a pointer, is -1 where operands are missing. The error is sticky in
 * the program, so a model reads as a list of calls and checks once at the end. Leaves of summations come from
 * program->leaf_count. Absent optional tensors are -1. */
#ifndef SYI_RECORD_H
#define SYI_RECORD_H

#include "program/program.h"

/* No operand; every field of tensors in struct syi_attention is -1. */
#define SYI_NO_ATTENTION                                                                                     \
    {                                                                                                        \
        .q = -1, .kv = -1, .q_lengths = -1, .k_lengths = -1, .bias = -1, .rng = -1, .position = -1,          \
        .q_segments = -1, .k_segments = -1, .mask = -1, .dense_bias = -1                                     \
    }

/* A tensor like `like` in dims, axes and dtype. */
int syi_temp_like(struct syi_program *p, int like);
int syi_temp(struct syi_program *p, enum sy_dtype dtype, int rank, const int64_t *dim, const uint8_t *axis);
/* Gives a temporary that was just recorded, and that nothing reads yet, another dtype; returns it. */
int syi_as(struct syi_program *p, int tensor, enum sy_dtype dtype);
/* x in another dtype: x itself where it has it already, or the cast that was recorded before. */
int syi_cast(struct syi_program *p, int x, enum sy_dtype dtype);

/* Records an op by its row. A dim of an output is that of the first input with its letter (`z`, where no input has
 * it, is 1 long); an output marked f or s has the dtype of the first input so marked. attr: the op's structure, or NULL
 * where it has none. out: NULL, or becomes the n_out outputs, -1 on failure. */
int syi_record(struct syi_program *p, enum sy_op op, const void *attr, int n_in, const int *in, int n_out,
               int *out);
/* The same of an op with one output. */
#define SYI_RECORD(p, op, attr, ...)                                                                         \
    syi_record(p, op, attr, (int)SYI_COUNT(((int[]){__VA_ARGS__})), (int[]){__VA_ARGS__}, 1, NULL)

int syi_embed_grad(struct syi_program *p, int ids, int dy, int table);
/* The functions whose names end in int8 take weights of int8 and the scales of their output channels; no gradient flows
 * through. */
int syi_embed_int8(struct syi_program *p, int ids, int table, int scales);
/* Products of bf16 operands are f32; syi_as makes them bf16 where the contraction is never split (an axis of
 * one leaf), since terms of a sum are f32. */
int syi_matmul(struct syi_program *p, int x, int w);
int syi_matmul_nt(struct syi_program *p, int x, int w);
int syi_matmul_tn(struct syi_program *p, int x, int y);
int syi_grouped_matmul(struct syi_program *p, int x, int w, int counts);
/* The same over a buffer without gaps; no gradient flows through. first: of syi_ragged_places. */
int syi_ragged_matmul(struct syi_program *p, int x, int w, int counts, int first);
/* The same with weights that syi_lay_out made; no gradient flows through. */
int syi_matmul_panels(struct syi_program *p, int x, int w);
int syi_grouped_matmul_panels(struct syi_program *p, int x, int w, int counts);
int syi_ragged_matmul_panels(struct syi_program *p, int x, int w, int counts, int first);
int syi_matmul_int8(struct syi_program *p, int x, int w, int scales);
int syi_matmul_nt_int8(struct syi_program *p, int x, int w, int scales);
int syi_grouped_matmul_int8(struct syi_program *p, int x, int w, int counts, int scales);
int syi_ragged_matmul_int8(struct syi_program *p, int x, int w, int counts, int first, int scales);
int syi_grouped_matmul_nt(struct syi_program *p, int x, int w, int counts);
int syi_grouped_matmul_tn(struct syi_program *p, int x, int y, int counts);
/* mask: float [b, t], 0 where a position is padding, or -1. */
int syi_rms_norm(struct syi_program *p, int x, int scale, int mask, double epsilon);
int syi_rms_norm_grad(struct syi_program *p, int x, int scale, int dy, int mask, double epsilon, int *dscale);
/* A gated unit of two tensors, or of a pack of both where linear is -1. */
int syi_glu(struct syi_program *p, int gate, int linear, int rng, int counts, int activation, int site,
            double rate);
int syi_softmax(struct syi_program *p, int x, int *lse);

struct syi_attention {
    int q, kv;                /* packs; the same tensor for self-attention */
    int q_lengths, k_lengths; /* int32 [b], or -1: all positions */
    int bias;                 /* table [heads, buckets], or -1 */
    int rng, position;        /* or -1 */
    int q_segments,
        k_segments; /* int32 [b, t], [b, s]: a query sees keys of its own, positive segment; or -1 */
    int mask;       /* [b, t, s], 0 hides a key; or -1 */
    int dense_bias; /* [heads, t, s], or -1 */
    int64_t heads, head_dim;
    int bidirectional, causal;
    int uniform; /* a query that sees no key averages all of them */
    int64_t max_distance;
    int site;
    double rate;
};
int syi_attention(struct syi_program *p, const struct syi_attention *a, int *lse);

struct syi_xent {
    int loss, z, lse, correct; /* [b, t] each */
};
struct syi_xent syi_xent(struct syi_program *p, int logits, int targets, int weights, double label_smoothing,
                         double z_loss);

struct syi_routing {
    int expert, slot; /* int32 [b, t, k] */
    int chosen, kept; /* int32 [experts, groups]; kept has the axes of an expert buffer */
};
/* mask: float [b, t], 0: not routed, or -1; bias: float [experts], added for the choice alone, or -1. */
struct syi_routing syi_route(struct syi_program *p, int probabilities, int mask, int bias,
                             const struct sy_attr_route *attr);
struct syi_routing syi_route_experts(struct syi_program *p, int probabilities, int mask,
                                     const struct sy_attr_route_experts *attr);
/* The choices' places in a buffer [1, groups, places, ...] where the kept tokens of all experts of a group
 * are one after the other, as of one expert. */
struct syi_ragged {
    int expert, slot; /* int32 [b, t, k], for dispatch and combine */
    int first;        /* int32 [experts, groups]: the first place of each */
};
struct syi_ragged syi_ragged_places(struct syi_program *p, const struct syi_routing *routing,
                                    int64_t group_rows);
/* [b, t, ...] -> [groups, tokens, ...] of the tensor padded by zeros to rows x length, and back to b, t. */
int syi_regroup(struct syi_program *p, int x, int64_t rows, int64_t length, int64_t groups);
int syi_ungroup(struct syi_program *p, int x, int64_t rows, int64_t length, int like);
int syi_dispatch(struct syi_program *p, int x, int expert, int slot, int64_t experts, int64_t capacity,
                 int64_t group_rows);
int syi_dispatch_grad(struct syi_program *p, int dbuffer, int expert, int slot, int x, int64_t group_rows);
int syi_combine(struct syi_program *p, int buffer, int expert, int slot, int gate, int64_t group_rows);
int syi_combine_grad(struct syi_program *p, int buffer, int expert, int slot, int gate, int dout,
                     int64_t group_rows, int *dgate);
int syi_router_loss(struct syi_program *p, int probabilities, int lse, int chosen, int mask,
                    int64_t group_rows, int *z);
int syi_block_sum(struct syi_program *p, enum sy_op op,
                  int x); /* op: SY_OP_BLOCK_SUM, SY_OP_BLOCK_SUMSQ or SY_OP_BLOCK_MAX, of absolute values */
int syi_tree_sum(struct syi_program *p, int blocks);
/* Norm of n tensors together, [1]. Block sums of all come first, so that what ranks gather of them travels together.
 * scale: a factor of each, or NULL. */
int syi_norm_of_all(struct syi_program *p, int n, const int *x, const double *scale);
/* The same; square[i] becomes the sum of the squares of scale[i] x[i], [1]. */
int syi_norm_and_squares(struct syi_program *p, int n, const int *x, const double *scale, int *square);
/* The same of n tensors whose block sums of squares are square[i] before. */
int syi_norm_of_blocks(struct syi_program *p, int n, int *square, const double *scale);
int syi_total(struct syi_program *p, int x); /* tree_sum of block_sum: a scalar [1] */
/* Interleaves along the last axis in leaf_count blocks of that axis. */
int syi_pack(struct syi_program *p, int n, const int *parts);
/* Panels of a tensor [.., k, n], or of what syi_pack makes of n, and of a transposed one [.., n, k]; bf16 whatever the operands
 * are. Extents and leaves fill panels (SY_PANEL_LEAF). */
struct syi_tensor syi_in_panels(const struct syi_tensor *w,
                                int transposed); /* the result: dims, axes, dtype */
int syi_lay_out(struct syi_program *p, int n, const int *parts);
int syi_lay_out_nt(struct syi_program *p, int n, const int *parts);
int syi_unpack(struct syi_program *p, int packed, int n, const int *like, int *parts);
int syi_cache_append(struct syi_program *p, int cache, int piece, int position);
int syi_top_k(struct syi_program *p, int x, int64_t k, int *index); /* values; int32 indices */
int syi_column_sum(struct syi_program *p, int x, int like);         /* like: the [n] result's axis */
/* Sums over the dims whose bit is set, each becomes 1 long; op: SY_OP_BLOCK_SUM or SY_OP_BLOCK_SUMSQ. */
int syi_sum_over(struct syi_program *p, enum sy_op op, int x, unsigned dims);
/* Maxima over the dims whose bit is set, each becomes 1 long; x itself where all of them are. */
int syi_max_over(struct syi_program *p, int x, unsigned dims);
int syi_relpos_bias(struct syi_program *p, int table, int64_t queries, int64_t keys, int bidirectional,
                    int64_t max_distance); /* [heads, queries, keys] */

/* Elementwise: the result has the shape of the operand with most elements (the first of equals); the others
 * have that shape or are broadcast to it: one element; the same rank with extents that are the result's or 1;
 * the last dim alone (a value a column); all dims but the last (a value a row; not next to rank 2). */
int syi_map1(struct syi_program *p, enum sy_map_op op, int a, double s);
int syi_map2(struct syi_program *p, enum sy_map_op op, int a, int b);
int syi_map3(struct syi_program *p, enum sy_map_op op, int a, int b, int c);
int syi_dropout(struct syi_program *p, int x, int rng, int site, double rate);
int syi_jitter(struct syi_program *p, int x, int rng, int site, double amount);
/* Standard normal numbers of the shape of `like`, whose values do not matter, in float32; each by its index in
 * the whole tensor, so microbatches (rng fields after the step) do not change them. */
int syi_normal(struct syi_program *p, int like, int rng, int site);
int syi_activation(struct syi_program *p, int x, enum sy_activation activation);
int syi_activation_grad(struct syi_program *p, int x, int dy, enum sy_activation activation);
int syi_constant_like(struct syi_program *p, double value, int like); /* in every element */
int syi_fill_like(struct syi_program *p, int scalar, int like);       /* the scalar in every element */
/* Makes a temporary an output of that name, whole on every rank. */
void syi_output(struct syi_program *p, int tensor, const char *name);
/* Copies a into tensor `to` (output, carry, state or parameter). */
void syi_store(struct syi_program *p, int a, int to);

#endif
