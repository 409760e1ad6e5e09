/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of the fold pass share (fold.c says what it does): the state of the pass, and instructions that are put
 * together before an op is made of them. */
#ifndef SYI_PASSES_FOLD_H
#define SYI_PASSES_FOLD_H

#include "passes/passes.h"

enum { SYI_FOLD_WINDOW = 64 }; /* ops looked at after an op for others to join it */

struct syi_folding {
    struct syi_program *program;
    int *writer;     /* [n_tensors] the op that writes it, -1: none, -2: several */
    uint32_t *reads; /* [n_tensors] operands that read it */
    uint8_t *gone;   /* [n_ops] */
};

/* Instructions that grow, over inputs that are numbered when they end: register of instruction i is SY_MAX_IN + i. */
struct syi_made {
    int in[SY_MAX_IN];
    struct sy_map_instr instr[SY_MAP_MAX_INSTR];
    int n_in, n_instr;
};

/* What outputs of a map_sums are, bits as in sy_attr_map. */
struct syi_sum_kinds {
    uint8_t squares, maxima, stored;
};

/* ---- fold.c ---- */

/* Counts who reads and writes. End it also where this fails. */
int syi_folding_begin(struct syi_folding *pass, struct sy_error *err);
/* Takes the ops away that are gone, and checks the program; status: of what went before, returned if it is an error. */
int syi_folding_end(struct syi_folding *pass, int status, struct sy_error *err);

static inline const struct sy_attr_map *syi_map_attr(const struct syi_folding *pass, const struct syi_op *op)
{
    return syi_program_attr(pass->program, op);
}

/* ---- fold_instructions.c ---- */

/* The one instruction of a map over n whole tensors, with one output of their shape; NULL: it is another map, or none. */
const struct sy_map_instr *syi_fold_only_instruction(const struct syi_program *p, const struct syi_op *op,
                                                     int n);

/* Adds an instruction whose registers are now reg[old]; its register, -1: no room. */
int syi_made_mapped(struct syi_made *m, struct sy_map_instr instr, const int *reg);
/* The instructions of a map whose inputs are reg[0 .. n_in); the registers of its outputs. 0: no room. */
int syi_made_map(struct syi_made *m, const struct sy_attr_map *attr, const struct syi_op *op, int *reg,
                 int *out_register);
/* Makes an op of the instructions. out_register: of the op's outputs, as registers of `m`. */
int syi_fold_write(struct syi_folding *pass, size_t at, enum sy_op kind, const struct syi_made *m,
                   const int *out_register, struct syi_sum_kinds kinds, struct sy_error *err);

/* ---- fold_values.c ---- */

/* Folds values that are read at `at` or later: all readers make them anew, or none. */
int syi_fold_value(struct syi_folding *pass, int tensor, size_t at, struct sy_error *err);

/* ---- fold_sums.c ---- */

int syi_is_block_sum(const struct syi_op *op);
/* Whether map_sums takes blocks like these. */
int syi_are_blocks_narrow(const struct syi_folding *pass, const struct syi_op *op);
/* Whether ops compute with the tensor in float32. */
int syi_is_widened(const struct syi_folding *pass, int tensor);
/* Sums and maxima of blocks of what the map at `first` writes become outputs of it. */
int syi_fold_gather(struct syi_folding *pass, size_t first, struct sy_error *err);
/* Sums over the tensor that those at `first` read join them. */
int syi_fold_meet_same(struct syi_folding *pass, size_t first, struct sy_error *err);
/* So do sums over other tensors of its shape, which memory brings while the first is in the cache. */
int syi_fold_meet_alike(struct syi_folding *pass, size_t first, struct sy_error *err);

/* ---- fold_rounding.c ---- */

/* What the op at `first` leaves in float32 that maps only round to gradients in bfloat16 is written rounded. */
void syi_fold_rounding(struct syi_folding *pass, size_t first);

#endif
