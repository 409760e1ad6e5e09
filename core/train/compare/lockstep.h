/* SPDX-License-Identifier: Apache-2.0 */
/* Two runs side by side: both take the same batches, op by op, and what an op reads and writes is compared on
 * both sides before either goes on. Finds where two variants, backends, thread counts, ranks or values of a
 * key part first. Prints nothing and knows no command line. */
#ifndef SYI_LOCKSTEP_H
#define SYI_LOCKSTEP_H

#include "program/program.h"
#include "train/launch/launch.h"

/* ---- lockstep_compare.c: one tensor ---- */

/* A tensor as the ranks of a side hold it: each has its place in the whole. */
struct syi_parts {
    const struct sy_tensor *const *part; /* [n] */
    int n;                               /* ranks */
};

struct syi_element {
    double real;     /* of floating-point tensors */
    int64_t integer; /* of int32 and int64 tensors; of the others the bits, sign-extended */
};

struct syi_comparison {
    int64_t elements;  /* compared; what several ranks hold counts for each pair of ranks */
    int64_t differing; /* of these, further apart than the tolerance */
    double largest;    /* finite magnitude in either tensor; only where some element has other bits */
    int64_t first;     /* lowest row-major number of a differing element in the whole tensor */
    int first_rank[2]; /* who holds it */
    struct syi_element first_value[2];
    int64_t farthest; /* likewise of the largest distance, the first of equals */
    struct syi_element farthest_value[2];
};
/* Compares what both sides hold of a tensor whose whole has `dim`. tolerance: of floating-point elements,
 * relative to the largest magnitude; 0: the same bits, any NaN equal to any. Integers must always be equal.
 * Where both sides have floating-point elements of different dtypes, their values are compared. */
void syi_parts_compare(const struct syi_parts side[2], const int64_t dim[SY_MAX_DIMS], double tolerance,
                       struct syi_comparison *c);
/* |a - b|; infinite where one is NaN and the other is not. */
double syi_element_distance(int dtype, const struct syi_element value[2]);
/* Representable numbers from one to the other (+0 and -0 are one); UINT64_MAX where one is NaN. */
uint64_t syi_element_ulps(int dtype, const struct syi_element value[2]);

/* ---- lockstep_align.c: two programs ---- */

/* Which ops of two programs stand for each other. Movement between ranks has no counterpart on a side with
 * other ranks, and elementwise ops may be fused otherwise: such ops run alone, all others must match. */
struct syi_alignment {
    uint8_t *meets[2]; /* [ops] 1: this op has a counterpart */
    size_t n_meets;    /* on either side */
    size_t alone[2];   /* ops without one */
};
/* diverged: 1 where the programs do not fit; op is then the first that does not on each side (the number of
 * ops: there are no more). */
struct syi_divergence {
    int diverged;
    size_t op[2];
};
int syi_align(const struct syi_program *const program[2], const struct syi_mesh *const mesh[2],
              struct syi_alignment *alignment, struct syi_divergence *divergence,
              struct sy_error *err) SYI_MUST_CHECK;
void syi_alignment_free(struct syi_alignment *alignment);
/* Extents over all ranks. */
void syi_global_dims(const struct syi_tensor *tensor, const struct syi_mesh *mesh, int64_t dim[SY_MAX_DIMS]);

/* ---- lockstep.c ---- */

struct syi_lockstep_job {
    struct syi_launch side[2];
    int use[2];       /* of each side: SYI_USE_UNFUSED, SYI_USE_APART (engine.h) */
    int64_t steps;    /* at most; 1 or more */
    double tolerance; /* as of syi_parts_compare */
};

enum syi_lockstep_end {
    SYI_LOCKSTEP_EQUAL, /* no difference in all steps */
    SYI_LOCKSTEP_DIFFERENT /* a tensor differs */,
    SYI_LOCKSTEP_DIVERGED /* the programs do not fit, nothing was run */
};

/* An op of one side. */
struct syi_lockstep_op {
    size_t index; /* in its program */
    char name[32], layer[160], file[160];
    int line;          /* of file */
    char text[2048];   /* as explain prints it; "" where the program has no such op */
    char tensor[256];  /* the operand that differs: number, name, dtype, local extents */
    char shared[160];  /* its name, "" for a temporary */
    char writer[2048]; /* the op that wrote this input, as explain prints it; "": none of this program */
};

struct syi_lockstep_result {
    enum syi_lockstep_end end;
    char launched[2][256]; /* syi_rank_describe of each side */
    int64_t steps;         /* done on both sides without a difference */
    int64_t ops;           /* whose operands were compared, over all steps */
    int64_t elements;      /* of operands, each time they were compared */
    size_t alone[2];       /* ops without counterpart in all programs of each side */
    /* different or diverged: */
    char program[48]; /* title */
    char why[160];    /* diverged, and not by an op */
    struct syi_lockstep_op op[2];
    /* different: */
    int64_t step;
    int32_t input_length, target_length; /* padded, of its batch */
    int output;                          /* 1: the op wrote it; 0: it differed before the op ran */
    int operand;                         /* which input or output */
    int dtype[2], rank;
    int64_t dim[SY_MAX_DIMS]; /* of the whole tensor */
    struct syi_comparison comparison;
};

/* Runs both sides until something differs. Batches are those of side 0: of its task as training would
 * take them, or made up from its seed where that is empty. Parameters start from each side's seed. */
int syi_lockstep_run(const struct syi_lockstep_job *job, struct syi_lockstep_result *result,
                     struct sy_error *err) SYI_MUST_CHECK;

#endif
