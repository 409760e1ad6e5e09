/* SPDX-License-Identifier: Apache-2.0 */
/* Op ids and attribute structures, made from ops.def and maps.def. Part of the plugin ABI. */
#ifndef SWITCHYARD_OPS_H
#define SWITCHYARD_OPS_H

#include "switchyard/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

enum sy_op {
#define SY_OP(id, NAME, name, labels, split, types, attributes, flags, tolerance, help) SY_OP_##NAME = id,
#include "switchyard/ops.def"
#undef SY_OP
    SY_OP_COUNT
};

enum sy_map_op {
#define SY_MAP(id, NAME, name, arguments, help) SY_MAP_##NAME = id,
#include "switchyard/maps.def"
#undef SY_MAP
    SY_MAP_COUNT
};

enum sy_activation { SY_LINEAR, SY_RELU, SY_GELU, SY_SILU }; /* gelu: the tanh approximation */

/* Weights in panels: [.., k, n] as [.., n / SY_PANEL_COLUMNS, k, SY_PANEL_COLUMNS] of bf16, which is [.., n /
 * SY_PANEL_COLUMNS, k / 2, SY_PANEL_COLUMNS, 2] in memory: of each column two neighbours along the contraction k. n and the
 * leaves of k are multiples of SY_PANEL_LEAF, so that nothing is padded. */
enum { SY_PANEL_COLUMNS = 32, SY_PANEL_LEAF = 32 };

/* Attributes: 8-byte fields in the order of ops.def. A leaf is the length of one block of a summation that
 * must not depend on how it is split (doc/numerics.md); it is counted in what the row of ops.def says. */
struct sy_attr_block {
    int64_t leaf[5]; /* elements of a block along each dim; 1 for dims beyond the rank */
};
struct sy_attr_pack {
    int64_t width[3]; /* columns that operand i gives to one block; 0: no such operand */
};
struct sy_attr_leaf {
    int64_t
        leaf; /* embed_grad, matmul*, grouped_matmul*, ragged_matmul, column_sum; in panels: sy_attr_panels */
};
struct sy_attr_panels {
    int64_t leaf;       /* elements of the contraction */
    int64_t activation; /* of the sum, before it is rounded: SY_LINEAR or SY_RELU */
};
struct sy_attr_rms_norm {
    double epsilon;
    int64_t leaf; /* rms_norm_grad only */
};
struct sy_attr_glu {
    int64_t width; /* columns of gate in one block, followed by as many of linear; 0: these are two tensors */
    int64_t activation; /* enum sy_activation */
    int64_t site;       /* of the dropout mask */
    double rate;        /* 0: no dropout, rng not read */
};
struct sy_attr_attention {
    int64_t head_dim;      /* columns of one head */
    int64_t width;         /* columns of one part in one block of a pack (a multiple of head_dim) */
    int64_t bidirectional; /* buckets of the bias table: 1 encoder, 0 decoder */
    int64_t causal;        /* key index at most the query's */
    int64_t max_distance;  /* of the bucket rule */
    int64_t site;          /* of the dropout mask over (key row, key position, head) */
    double rate;
    int64_t uniform; /* a query that sees no key: 1 averages all keys, 0 gives 0 */
    int64_t leaf;    /* attention_grad: rows of b, for dbias */
};
struct sy_attr_relpos {
    int64_t bidirectional, max_distance;
};
struct sy_attr_xent {
    double label_smoothing, z_loss;
};
struct sy_attr_route {
    int64_t selected;       /* experts a token chooses (k) */
    int64_t group_rows;     /* rows of a routing group */
    int64_t capacity;       /* slots planned for each expert and group */
    double capacity_factor; /* 0: dropless, capacity is all there is */
    int64_t min_capacity;
    int64_t prioritized; /* 1: batch prioritised routing */
};
struct sy_attr_route_experts {
    int64_t group_rows, capacity;
    double capacity_factor; /* as in route */
    int64_t min_capacity;
};
struct sy_attr_gate {
    int64_t normalize; /* 1: by the sum over the token's choices, dropped ones included */
};
struct sy_attr_regroup {
    int64_t rows, length; /* of the padded tensor */
};
struct sy_attr_axis {
    int64_t dim;
};
struct sy_attr_normal {
    int64_t site;
    int64_t extent[3]; /* of dims 1, 2 and 3 of the whole tensor; those after the last but one are not used */
};
struct sy_attr_group {
    int64_t group_rows;
};
struct sy_attr_collective {
    int64_t a, b, c; /* in the order of ops.def: dim mesh | split concat mesh | mesh */
};

struct sy_attr_join {
    int64_t dims; /* 4 bits an operand, the lowest first */
};
struct sy_attr_part {
    int64_t at, dim; /* elements of a piece in front of it; dim that the pieces are joined along */
};

struct sy_map_instr {
    uint8_t op;      /* enum sy_map_op */
    uint8_t a, b;    /* registers: inputs are 0..n_in-1, instruction i writes register n_in + i */
    uint8_t c;       /* register, or enum sy_activation */
    float s;         /* immediate */
    uint32_t site;   /* dropout */
    uint32_t unused; /* 0 */
};

#define SY_MAP_MAX_INSTR    32
#define SY_MAP_SUMS_COLUMNS 512

/* Attribute of `map`: n instructions follow. Operands have the shape of output 0, or are broadcast to it: one
 * element; the same rank where every extent is the output's or 1; the last dim only (one value a column); all
 * dims but the last (one value a row; not next to rank 2, where it would look like a column). Of `map_sums` the shape is that
 * of input 0. An output is stored as of `map`, or has one element a block: the sum of the block's values, of their squares, or
 * the largest magnitude (as block_sum, block_sumsq, block_max). A block has the extent of input 0 divided by the output's
 * elements along each dim: at most SY_MAP_SUMS_COLUMNS along the last one, any number along the one before it, 1 along
 * others. An output that is stored may be an input, as of `map`: each element is read before it is written. */
struct sy_attr_map {
    uint16_t n_instr;
    uint8_t out_register[SY_MAX_OUT]; /* what each output stores */
    uint8_t rng;     /* input that holds the rng state int64[4], 255: none; it is not a register */
    uint8_t squares; /* map_sums: bit i: output i sums squares */
    uint8_t maxima;  /* map_sums: bit i: output i is of largest magnitudes */
    uint8_t stored;  /* map_sums: bit i: output i holds the values themselves */
    uint8_t unused[2];
    struct sy_map_instr instr[];
};

/* rng state, input of ops with random bits, int64[4]. */
enum sy_rng_field { SY_RNG_SEED, SY_RNG_STEP, SY_RNG_ROW0, SY_RNG_GROUP0 };

#ifdef __cplusplus
}
#endif
#endif
