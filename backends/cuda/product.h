/* SPDX-License-Identifier: Apache-2.0 */
/* One description for all matrix products, made from a call: C = A' B' for each expert, where the rows of buffers lie in
 * groups of slots; of a group the first slots are filled, or (ragged) those of all experts one after the other. A plain
 * product is one expert with all slots filled. Kernels get it by value. */
#ifndef SYCUDA_PRODUCT_H
#define SYCUDA_PRODUCT_H

#include "backends/cuda/cuda.h"

enum sycuda_product_form {
    SYCUDA_PRODUCT_NN, /* buffer rows [x] times w [depth, columns] */
    SYCUDA_PRODUCT_NT, /* buffer rows [x] times w [columns, depth] transposed */
    SYCUDA_PRODUCT_TN  /* x^T y: the contraction runs over the filled buffer rows */
};

struct sycuda_product {
    const int32_t *filled; /* [experts, groups] slots in use, NULL: all */
    const int32_t *start;  /* ragged, else NULL: [experts, groups] where they begin */
    const float *scale;    /* of int8 weights, else NULL: [experts, columns] */
    int form;              /* enum sycuda_product_form */
    int64_t experts;       /* 1 for plain products */
    int64_t groups, slots; /* buffer rows of an expert, or of all in ragged products, are groups * slots */
    int64_t a_width;       /* elements in a row of x */
    int64_t rows, columns; /* of C for an expert; ragged: of C */
    int64_t depth;         /* of the contraction for an expert, all slots counted */
    int64_t leaf, leaves;  /* steps of the contraction in a leaf; how many */
};

struct sycuda_product sycuda_product_of(const struct sy_call *call);

/* Elements of C. */
static inline int64_t sycuda_product_size(const struct sycuda_product *p)
{
    return (p->start ? 1 : p->experts) * p->rows * p->columns;
}

/* ---- own kernels: the reference's bits in float32 (product_own.cu) ---- */

/* Bytes of scratch: the partial sums of trees. */
uint64_t sycuda_product_own_bytes(const struct sycuda_product *p);
void sycuda_product_own(const struct sycuda_context *context, const struct sy_call *call,
                        const struct sycuda_product *p, void *workspace);

/* C [n] of out_dtype: trees over the leaves' results, [leaves, n] float32. Leaves are any number. */
void sycuda_product_add_leaves(const struct sycuda_context *context, const float *leaf, int64_t leaves,
                               int64_t n, void *c, int out_dtype);
/* Rows of C (not TN) that no token fills become 0. */
void sycuda_product_clear(const struct sycuda_context *context, const struct sycuda_product *p, void *c,
                          int out_dtype);
/* Copies x [experts, groups, slots, width] with 0 in the slots that no token fills. */
void sycuda_product_clean(const struct sycuda_context *context, const struct sycuda_product *p, const void *x,
                          int dtype, int64_t width, void *copy);

/* ---- cuBLASLt (product.cu) ---- */

struct sycuda_cublaslt; /* the library, opened */

/* tf32: float32 products may round their operands to TF32. *library is for sycuda_cublaslt_close. */
int sycuda_cublaslt_open(const struct sy_host *host, int tf32, struct sycuda_cublaslt **library);
void sycuda_cublaslt_close(struct sycuda_cublaslt *library);

#endif
