/* SPDX-License-Identifier: Apache-2.0 */
/* The library of cublaslt.h. Of its algorithms the first splits the contraction, the second is for operands aligned to 16
 * bytes and wants a workspace, the third takes what there is. That an algorithm passes the check says nothing of alignment,
 * as the library's header has it: a product of operands that lie elsewhere is refused when it is run. */
#include "tests/cuda/cublaslt.h"

#include <vector>

#include "base/bf16.h"

struct emulated_cublaslt {
    int unused;
};
struct emulated_product {
    cublasComputeType_t compute;
    cublasOperation_t transposed[2]; /* of a and b */
};
struct emulated_layout {
    cudaDataType_t type;
    uint64_t rows, columns;
    int64_t step, apart;
    int32_t batch;
};
struct emulated_preference {
    uint64_t workspace;
    uint32_t schemes, aligned[4];
};

/* Products done, for tests to see who did one. */
extern "C" __attribute__((visibility("default"))) uint64_t emulated_cublaslt_products;
uint64_t emulated_cublaslt_products;

namespace
{

enum { SPLIT, ALIGNED, ANY, ALGORITHMS };
enum : size_t { WORKSPACE_LINE = 256, WORKSPACE = 1024, VECTOR = 16 };

template <class T> cublasStatus_t make(T **made, T value)
{
    *made = new T(value);
    return CUBLAS_STATUS_SUCCESS;
}
template <class T> cublasStatus_t destroy(T *made)
{
    delete made;
    return CUBLAS_STATUS_SUCCESS;
}

/* An attribute of the size that it has. */
template <class T> cublasStatus_t set(T *to, const void *value, size_t bytes)
{
    if (bytes != sizeof *to) return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(to, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

size_t element(const emulated_layout *l)
{
    return l->type == CUDA_R_16BF ? 2 : 4;
}

/* Elements from the first to the last of the whole batch. */
int64_t extent(const emulated_layout *l)
{
    return (l->batch - 1) * l->apart + ((int64_t)l->columns - 1) * l->step + (int64_t)l->rows;
}

bool layout_is_right(const emulated_layout *l, int32_t batch, bool written)
{
    if (l->rows < 1 || l->columns < 1 || l->step < (int64_t)l->rows || l->batch != batch) return false;
    return !written || batch == 1 || l->apart >= ((int64_t)l->columns - 1) * l->step + (int64_t)l->rows;
}

bool types_are_right(const emulated_product *p, const emulated_layout *a, const emulated_layout *b,
                     const emulated_layout *c)
{
    if (a->type != b->type) return false;
    if (a->type == CUDA_R_32F) return c->type == CUDA_R_32F;
    return p->compute == CUBLAS_COMPUTE_32F;
}

uint64_t depth_of(const emulated_product *p, const emulated_layout *a)
{
    return p->transposed[0] == CUBLAS_OP_T ? a->rows : a->columns;
}

bool shapes_are_right(const emulated_product *p, const emulated_layout *a, const emulated_layout *b,
                      const emulated_layout *c)
{
    const bool ta = p->transposed[0] == CUBLAS_OP_T, tb = p->transposed[1] == CUBLAS_OP_T;
    return (ta ? a->columns : a->rows) == c->rows && (tb ? b->rows : b->columns) == c->columns &&
           depth_of(p, a) == (tb ? b->columns : b->rows) && layout_is_right(a, c->batch, false) &&
           layout_is_right(b, c->batch, false) && layout_is_right(c, c->batch, true) &&
           types_are_right(p, a, b, c);
}

bool is_vectors(const emulated_layout *l)
{
    const size_t size = element(l);
    return (size_t)l->step * size % VECTOR == 0 && (size_t)l->apart * size % VECTOR == 0;
}

/* Ten bits of mantissa, ties away from zero. */
float to_tf32(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if ((bits & 0x7f800000) != 0x7f800000) bits = (bits + 0x1000) & ~0x1fffu;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* The elements of all matrices of the batch as they are multiplied. */
std::vector<float> values(const emulated_product &p, const emulated_layout &l, const void *data)
{
    std::vector<float> x((size_t)extent(&l));
    for (size_t i = 0; i < x.size(); i++) {
        x[i] = l.type == CUDA_R_16BF ? syi_bf16_to_float(static_cast<const uint16_t *>(data)[i])
                                     : static_cast<const float *>(data)[i];
        if (p.compute == CUBLAS_COMPUTE_32F_FAST_TF32) x[i] = to_tf32(x[i]);
    }
    return x;
}

float dot(const float *a, int64_t a_step, const float *b, int64_t b_step, uint64_t depth)
{
    float sum = 0;
    for (uint64_t k = 0; k < depth; k++, a += a_step, b += b_step) sum = fmaf(*a, *b, sum);
    return sum + 0.0f;
}

void multiply(const emulated_product &p, const emulated_layout &a, const void *A, const emulated_layout &b,
              const void *B, const emulated_layout &d, void *D)
{
    const bool ta = p.transposed[0] == CUBLAS_OP_T, tb = p.transposed[1] == CUBLAS_OP_T;
    const std::vector<float> x = values(p, a, A), y = values(p, b, B);
    for (int64_t i = 0; i < d.batch; i++)
        for (int64_t column = 0; column < (int64_t)d.columns; column++)
            for (int64_t row = 0; row < (int64_t)d.rows; row++) {
                const float sum = dot(&x[(size_t)(i * a.apart + row * (ta ? a.step : 1))], ta ? 1 : a.step,
                                      &y[(size_t)(i * b.apart + column * (tb ? 1 : b.step))], tb ? b.step : 1,
                                      depth_of(&p, &a));
                const int64_t at = i * d.apart + column * d.step + row;
                if (d.type == CUDA_R_16BF)
                    static_cast<uint16_t *>(D)[at] = syi_bf16_from_float(sum);
                else
                    static_cast<float *>(D)[at] = sum;
            }
}

bool aligned(const void *memory, size_t to)
{
    return reinterpret_cast<uintptr_t>(memory) % to == 0;
}

bool overlap(const void *x, const emulated_layout *l, const void *memory, size_t bytes)
{
    const char *from = static_cast<const char *>(x), *at = static_cast<const char *>(memory);
    return from < at + bytes && at < from + (size_t)extent(l) * element(l);
}

} // namespace

const char *cublasLtGetStatusString(cublasStatus_t status)
{
    switch (status) {
    case CUBLAS_STATUS_SUCCESS: return "success";
    case CUBLAS_STATUS_ALLOC_FAILED: return "resource allocation failed";
    case CUBLAS_STATUS_NOT_SUPPORTED: return "the requested functionality is not supported";
    default: return "an unsupported value or parameter was passed to the function";
    }
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle)
{
    return make(handle, emulated_cublaslt());
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle)
{
    return destroy(handle);
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *product, cublasComputeType_t compute,
                                        cudaDataType_t scale)
{
    if (scale != CUDA_R_32F) return CUBLAS_STATUS_INVALID_VALUE;
    return make(product, emulated_product{compute, {CUBLAS_OP_N, CUBLAS_OP_N}});
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t product)
{
    return destroy(product);
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t product,
                                              cublasLtMatmulDescAttributes_t attribute, const void *value,
                                              size_t bytes)
{
    return set(&product->transposed[attribute - CUBLASLT_MATMUL_DESC_TRANSA], value, bytes);
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *layout, cudaDataType_t type, uint64_t rows,
                                          uint64_t columns, int64_t step)
{
    return make(layout, emulated_layout{type, rows, columns, step, 0, 1});
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout)
{
    return destroy(layout);
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute, const void *value,
                                                size_t bytes)
{
    return attribute == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT ? set(&layout->batch, value, bytes)
                                                           : set(&layout->apart, value, bytes);
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *preference)
{
    return make(preference, emulated_preference{0, ~0u, {256, 256, 256, 256}});
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference)
{
    return destroy(preference);
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void *value, size_t bytes)
{
    switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES: return set(&preference->workspace, value, bytes);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK: return set(&preference->schemes, value, bytes);
    default:
        return set(&preference->aligned[attribute - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES], value,
                   bytes);
    }
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t product,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t *result, int *found)
{
    bool vectors = is_vectors(a) && is_vectors(b) && is_vectors(c) && preference->workspace >= WORKSPACE;
    for (uint32_t bytes : preference->aligned) vectors = vectors && bytes >= VECTOR;
    *found = 0;
    if (c != d || !shapes_are_right(product, a, b, c)) return CUBLAS_STATUS_NOT_SUPPORTED;
    for (uint64_t i = preference->schemes ? SPLIT : ALIGNED; i < ALGORITHMS && *found < wanted; i++)
        if (i != ALIGNED || vectors)
            result[(*found)++] = {{{i + 1}}, i == ANY ? 0 : (size_t)WORKSPACE, CUBLAS_STATUS_SUCCESS, 1, {}};
    return *found ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t, cublasLtMatmulDesc_t product,
                                       cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                       cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                       const cublasLtMatmulAlgo_t *algorithm,
                                       cublasLtMatmulHeuristicResult_t *result)
{
    const uint64_t which = algorithm->data[0] - 1;
    if (c != d || !shapes_are_right(product, a, b, c) || which >= ALGORITHMS)
        return CUBLAS_STATUS_INVALID_VALUE;
    *result = {*algorithm, which == ANY ? 0 : (size_t)WORKSPACE, CUBLAS_STATUS_SUCCESS, 1, {}};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t *algorithm,
                                                    cublasLtMatmulAlgoConfigAttributes_t attribute,
                                                    void *value, size_t bytes, size_t *written)
{
    const int32_t parts = algorithm->data[0] - 1 == SPLIT ? 2 : 1, scheme = parts > 1 ? 2 : 0;
    if (bytes != sizeof parts) return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(value, attribute == CUBLASLT_ALGO_CONFIG_SPLITK_NUM ? &parts : &scheme, bytes);
    *written = bytes;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t product, const void *alpha,
                              const void *A, cublasLtMatrixLayout_t a, const void *B,
                              cublasLtMatrixLayout_t b, const void *beta, const void *C,
                              cublasLtMatrixLayout_t c, void *D, cublasLtMatrixLayout_t d,
                              const cublasLtMatmulAlgo_t *algorithm, void *workspace, size_t workspace_bytes,
                              cudaStream_t stream)
{
    cublasLtMatmulHeuristicResult_t checked;
    cublasStatus_t error = cublasLtMatmulAlgoCheck(handle, product, a, b, c, d, algorithm, &checked);
    if (error != CUBLAS_STATUS_SUCCESS) return error;
    const bool vectors = algorithm->data[0] - 1 == ALIGNED;
    const size_t line = vectors ? (size_t)VECTOR : element(a);
    if ((vectors && !(is_vectors(a) && is_vectors(b) && is_vectors(c))) || !aligned(A, line) ||
        !aligned(B, line) || !aligned(D, line) || C != D || *(const float *)alpha != 1 ||
        *(const float *)beta != 0 || checked.workspaceSize > workspace_bytes ||
        (workspace_bytes && !aligned(workspace, WORKSPACE_LINE)) ||
        overlap(A, a, D, (size_t)extent(d) * element(d)) ||
        overlap(B, b, D, (size_t)extent(d) * element(d)) || overlap(A, a, workspace, workspace_bytes) ||
        overlap(B, b, workspace, workspace_bytes) || overlap(D, d, workspace, workspace_bytes))
        return CUBLAS_STATUS_INVALID_VALUE;
    __atomic_fetch_add(&emulated_cublaslt_products, 1, __ATOMIC_RELAXED);
    const emulated_product p = *product;
    const emulated_layout la = *a, lb = *b, ld = *d;
    emulated_launch({1, 0, 0, true}, stream, [=] {
        memset(workspace, 0xfb, workspace_bytes);
        multiply(p, la, A, lb, B, ld, D);
    });
    return CUBLAS_STATUS_SUCCESS;
}
