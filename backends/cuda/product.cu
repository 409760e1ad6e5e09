/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products: by cuBLASLt, with float32 sums, or by the own kernels (product_own.cu), which have those whose rows
 * the device alone knows (ragged), small ones, and all with the option products = own.
 *
 * cuBLASLt's matrices are column-major: it is given C^T = B^T A^T. One leaf: the experts are a batch and C is written at
 * once. More leaves: the leaves of a piece of C are a batch whose results go to the workspace, where a kernel adds them
 * as the tree; so do the results of float32 operands that become bfloat16, which the library does not write. Algorithms are
 * chosen in prepare by the shape of one leaf, without parts of the contraction that are added at the end (split-k). Buffers
 * of experts are multiplied whole: empty slots are set to 0 afterwards, or, where the contraction runs over slots, in copies
 * before. Pieces at the end begin earlier, so all have one shape. */
#include "config.h"

#include <stdio.h>

#include "backends/cuda/cublaslt.h"
#include "backends/cuda/product.h"

/* Leaves' results, and copies of buffers, at a time: what a GPU's cache holds. */
static const int64_t piece_bytes = INT64_C(32) << 20;
/* Products of fewer multiplications have no use for the library. */
static const int64_t small = 1 << 14;

enum {
    CUBLASLT_LINE = 256 /* alignment of its workspace */,
    CHOICES = 8,
    WIDE = 128 /* rows of a good piece */
};

/* ---- pieces ---- */

/* How a product is cut for the library, from its shape alone. */
struct product_cut {
    int64_t experts, rows; /* of C in a call */
    int64_t batch;         /* leaves, or experts */
    /* Bytes of the workspace's parts, which follow one another. leaves 0: the library writes C itself. */
    uint64_t library, leaves, x, y;
};

static int64_t element_bytes(int dtype)
{
    return dtype == SY_BF16 ? 2 : 4;
}

static int has_copies(const struct sycuda_product *p)
{
    return p->filled && p->form == SYCUDA_PRODUCT_TN;
}

static uint64_t lines(int64_t bytes)
{
    return (uint64_t)(bytes + CUBLASLT_LINE - 1) / CUBLASLT_LINE * CUBLASLT_LINE;
}

/* Of n those that fit into so many bytes, 1 at least. */
static int64_t at_most(int64_t n, int64_t each, int64_t bytes)
{
    const int64_t fit = bytes / each;
    n = n < fit ? n : fit;
    return n < 1 ? 1 : n;
}

/* Rows of C in a call, whose leaves take `each` bytes a row. A call reads all of the other operand: for a few rows, as of the
 * gradient of an output layer, that takes longer than the product, so they may have more than a cache holds. */
static int64_t rows_at_most(int64_t rows, int64_t each)
{
    const int64_t held = at_most(rows, each, piece_bytes), wide = rows < WIDE ? rows : (int64_t)WIDE;
    return held < wide ? at_most(wide, each, 8 * piece_bytes) : held;
}

static struct product_cut cut_of(const struct sycuda_product *p, int in, int out)
{
    const int64_t bytes = element_bytes(in), c_bytes = p->columns * (int64_t)sizeof(float);
    struct product_cut cut = {p->experts, p->rows, p->experts, 0, 0, 0, 0};
    if (has_copies(p))
        cut.experts = at_most(p->experts, p->depth * (p->a_width + p->columns) * bytes, piece_bytes);
    if (p->leaves > 1 || (in == SY_F32 && out == SY_BF16)) {
        cut.experts = 1;
        cut.rows = rows_at_most(p->rows, p->leaves * c_bytes);
        cut.leaves = lines(p->leaves * cut.rows * c_bytes);
    }
    cut.batch = cut.leaves ? p->leaves : cut.experts;
    cut.library = lines(cut.rows * c_bytes < piece_bytes ? cut.rows * c_bytes : piece_bytes);
    if (has_copies(p)) {
        cut.x = lines(cut.experts * p->depth * p->a_width * bytes);
        cut.y = lines(cut.experts * p->depth * p->columns * bytes);
    }
    return cut;
}

static int wants_library(const struct sycuda_product *p)
{
    return !p->start && p->experts * p->rows * p->columns >= small / p->depth;
}

/* ---- plans ---- */

/* Without `algorithm`: own kernels. */
struct product_plan {
    const struct sycuda_cublaslt *lt;
    cublasLtMatmulDesc_t product;
    cublasLtMatrixLayout_t a, b, c; /* as the library has them: of w or y, of x, of C */
    cublasLtMatmulAlgo_t algorithm;
};

/* A matrix in the library's order, and how far its copies in a batch are apart. */
struct product_matrix {
    int64_t rows, columns, step, apart;
    int dtype;
    int64_t aligned; /* bytes that all its pieces, and all of a batch, are aligned to */
};

/* Bytes of a power of two, at most 64, that divides both. */
static int64_t aligned_to(int64_t a, int64_t b)
{
    const int64_t all = a | b | 64;
    return all & -all;
}

static void matrices_of(const struct sycuda_product *p, const struct product_cut *cut, int in, int out,
                        struct product_matrix m[3])
{
    const int64_t size = element_bytes(in), leaves = cut->leaves > 0,
                  over_slots = p->form == SYCUDA_PRODUCT_TN;
    const int64_t w_apart = p->depth * p->columns, x_row = over_slots ? 1 : p->a_width;
    const int64_t x_apart = p->groups * p->slots * p->a_width, copies = has_copies(p);
    m[0] = {p->columns, p->leaf, p->columns, leaves ? p->leaf * p->columns : w_apart, in, 0};
    if (p->form == SYCUDA_PRODUCT_NT)
        m[0] = {p->leaf, p->columns, p->depth, leaves ? p->leaf : w_apart, in, 0};
    m[1] = {p->leaf, cut->rows, p->a_width, leaves ? p->leaf : x_apart, in, 0};
    if (over_slots) m[1] = {cut->rows, p->leaf, p->a_width, leaves ? p->leaf * p->a_width : x_apart, in, 0};
    m[2] = {p->columns, cut->rows, p->columns, cut->rows * p->columns, leaves ? SY_F32 : out, 0};
    m[0].aligned = aligned_to(copies || p->experts == cut->experts ? 0 : w_apart * size, 0);
    m[1].aligned = aligned_to(copies || p->experts == cut->experts ? 0 : x_apart * size, 0);
    m[1].aligned = aligned_to(m[1].aligned, cut->rows == p->rows ? 0 : cut->rows * x_row * size);
    m[1].aligned = aligned_to(m[1].aligned, (p->rows - cut->rows) * x_row * size);
    m[2].aligned =
        leaves || p->experts == cut->experts ? 64 : aligned_to(p->rows * p->columns * element_bytes(out), 0);
    /* The library is asked about one matrix of the batch: all of them begin at such places. */
    for (int i = 0; i < 3; i++)
        m[i].aligned = aligned_to(m[i].aligned, m[i].apart * element_bytes(m[i].dtype));
}

static cudaDataType_t type_of(int dtype)
{
    return dtype == SY_BF16 ? CUDA_R_16BF : CUDA_R_32F;
}

#define TRY(call)                                                                                            \
    do {                                                                                                     \
        cublasStatus_t error_ = (call);                                                                      \
        if (error_ != CUBLAS_STATUS_SUCCESS) return error_;                                                  \
    } while (0)

static cublasStatus_t set_batch(const struct sycuda_cublaslt *lt, cublasLtMatrixLayout_t layout,
                                const struct product_matrix *m, int64_t batch)
{
    const int32_t count = (int32_t)batch;
    TRY(lt->MatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count));
    return lt->MatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &m->apart,
                                        sizeof m->apart);
}

static cublasStatus_t describe(struct product_plan *plan, int form, const struct product_matrix m[3])
{
    const struct sycuda_cublaslt *lt = plan->lt;
    const cublasComputeType_t compute =
        lt->tf32 && m[0].dtype == SY_F32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    const cublasOperation_t a = form == SYCUDA_PRODUCT_NT ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasOperation_t b = form == SYCUDA_PRODUCT_TN ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasLtMatrixLayout_t *layout[3] = {&plan->a, &plan->b, &plan->c};
    TRY(lt->MatmulDescCreate(&plan->product, compute, CUDA_R_32F));
    TRY(lt->MatmulDescSetAttribute(plan->product, CUBLASLT_MATMUL_DESC_TRANSA, &a, sizeof a));
    TRY(lt->MatmulDescSetAttribute(plan->product, CUBLASLT_MATMUL_DESC_TRANSB, &b, sizeof b));
    for (int i = 0; i < 3; i++)
        TRY(lt->MatrixLayoutCreate(layout[i], type_of(m[i].dtype), (uint64_t)m[i].rows,
                                   (uint64_t)m[i].columns, m[i].step));
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t set_preferences(const struct sycuda_cublaslt *lt, cublasLtMatmulPreference_t preference,
                                      const struct product_matrix m[3], uint64_t workspace)
{
    static const cublasLtMatmulPreferenceAttributes_t alignment[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    const uint32_t none = CUBLASLT_REDUCTION_SCHEME_NONE;
    TRY(lt->MatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
                                         sizeof workspace));
    TRY(lt->MatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &none,
                                         sizeof none));
    for (int i = 0; i < 4; i++) {
        const uint32_t bytes = (uint32_t)m[i < 3 ? i : 2].aligned;
        TRY(lt->MatmulPreferenceSetAttribute(preference, alignment[i], &bytes, sizeof bytes));
    }
    return CUBLAS_STATUS_SUCCESS;
}

/* Whether the contraction is one run. */
static int is_whole(const struct sycuda_cublaslt *lt, const cublasLtMatmulAlgo_t *algorithm)
{
    uint32_t scheme = 0;
    int32_t parts = 0;
    size_t written;
    return lt->MatmulAlgoConfigGetAttribute(algorithm, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &parts, sizeof parts,
                                            &written) == CUBLAS_STATUS_SUCCESS &&
           lt->MatmulAlgoConfigGetAttribute(algorithm, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, &scheme,
                                            sizeof scheme, &written) == CUBLAS_STATUS_SUCCESS &&
           parts <= 1 && scheme == CUBLASLT_REDUCTION_SCHEME_NONE;
}

/* The first choice of the library for one matrix that can do the batch, too. *found 0: it has none. */
static cublasStatus_t choose(struct product_plan *plan, cublasLtMatmulPreference_t preference,
                             const struct product_matrix m[3], const struct product_cut *cut, int *found)
{
    const struct sycuda_cublaslt *lt = plan->lt;
    cublasLtMatrixLayout_t layout[3] = {plan->a, plan->b, plan->c};
    cublasLtMatmulHeuristicResult_t choice[CHOICES] = {}, checked;
    int n = 0;
    *found = 0;
    TRY(set_preferences(lt, preference, m, cut->library));
    cublasStatus_t error = lt->MatmulAlgoGetHeuristic(lt->handle, plan->product, plan->a, plan->b, plan->c,
                                                      plan->c, preference, CHOICES, choice, &n);
    if (error == CUBLAS_STATUS_NOT_SUPPORTED) return CUBLAS_STATUS_SUCCESS;
    if (error != CUBLAS_STATUS_SUCCESS) return error;
    for (int i = 0; i < 3; i++) TRY(set_batch(lt, layout[i], &m[i], cut->batch));
    for (int i = 0; i < n && !*found; i++) {
        if (choice[i].state != CUBLAS_STATUS_SUCCESS || !is_whole(lt, &choice[i].algo)) continue;
        *found = lt->MatmulAlgoCheck(lt->handle, plan->product, plan->a, plan->b, plan->c, plan->c,
                                     &choice[i].algo, &checked) == CUBLAS_STATUS_SUCCESS &&
                 checked.workspaceSize <= cut->library;
        plan->algorithm = choice[i].algo;
    }
    return CUBLAS_STATUS_SUCCESS;
}

static void plan_free(struct product_plan *plan)
{
    if (!plan) return;
    if (plan->a) (void)plan->lt->MatrixLayoutDestroy(plan->a);
    if (plan->b) (void)plan->lt->MatrixLayoutDestroy(plan->b);
    if (plan->c) (void)plan->lt->MatrixLayoutDestroy(plan->c);
    if (plan->product) (void)plan->lt->MatmulDescDestroy(plan->product);
    free(plan);
}

static int fail(const struct sycuda_context *context, const struct product_plan *plan, const char *what,
                cublasStatus_t error)
{
    char line[256];
    snprintf(line, sizeof line, "%s: cuBLASLt reports \"%s\"", what, plan->lt->GetStatusString(error));
    context->host->error(context->host->arg, line);
    return error == CUBLAS_STATUS_ALLOC_FAILED ? SY_ENOMEM : SY_EBACKEND;
}

/* *made is NULL where the own kernels do the product. */
static int prepare(const struct sycuda_context *context, const struct sy_call *call, void **made)
{
    const struct sycuda_product p = sycuda_product_of(call);
    const int in = call->in[0].dtype, out = call->out[0].dtype;
    const struct product_cut cut = cut_of(&p, in, out);
    struct product_matrix m[3];
    cublasLtMatmulPreference_t preference = nullptr;
    int found = 0;
    if (!context->cublaslt || !wants_library(&p)) return SY_OK;
    struct product_plan *plan = static_cast<product_plan *>(calloc(1, sizeof *plan));
    if (!plan) {
        context->host->error(context->host->arg, "out of memory for the plan of a product");
        return SY_ENOMEM;
    }
    plan->lt = context->cublaslt;
    matrices_of(&p, &cut, in, out, m);
    cublasStatus_t error = describe(plan, p.form, m);
    if (error == CUBLAS_STATUS_SUCCESS) error = plan->lt->MatmulPreferenceCreate(&preference);
    if (error == CUBLAS_STATUS_SUCCESS) error = choose(plan, preference, m, &cut, &found);
    if (preference) (void)plan->lt->MatmulPreferenceDestroy(preference);
    int status = error == CUBLAS_STATUS_SUCCESS ? SY_OK : fail(context, plan, "planning a product", error);
    if (found && !status)
        *made = plan;
    else
        plan_free(plan);
    return status;
}

/* ---- running ---- */

/* What a call of the library works on. */
struct product_piece {
    const char *w, *x; /* of the first expert */
    char *c;           /* of the whole product */
    char *library, *leaves;
    int64_t in, out; /* bytes of an element */
    int64_t row;     /* of C */
};

/* One piece of C: rows of one expert, or all rows of some. `expert` is where its C begins. */
static cublasStatus_t multiply(const struct sycuda_context *context, const struct product_plan *plan,
                               const struct sycuda_product *p, const struct product_cut *cut,
                               const struct product_piece *piece, int64_t expert, int out_dtype)
{
    static const float one = 1, zero = 0;
    const int64_t x_row = p->form == SYCUDA_PRODUCT_TN ? 1 : p->a_width;
    char *c = piece->c + (expert * p->rows + piece->row) * p->columns * piece->out;
    void *to = cut->leaves ? piece->leaves : c;
    TRY(plan->lt->Matmul(plan->lt->handle, plan->product, &one, piece->w, plan->a,
                         piece->x + piece->row * x_row * piece->in, plan->b, &zero, to, plan->c, to, plan->c,
                         &plan->algorithm, piece->library, cut->library, context->stream));
    if (cut->leaves)
        sycuda_product_add_leaves(context, reinterpret_cast<float *>(piece->leaves), p->leaves,
                                  cut->rows * p->columns, c, out_dtype);
    return CUBLAS_STATUS_SUCCESS;
}

/* The operands of experts expert .. expert + cut->experts - 1, copied where empty slots would count. */
static void take_experts(const struct sycuda_context *context, const struct sy_call *call,
                         const struct sycuda_product *p, const struct product_cut *cut, int64_t expert,
                         struct product_piece *piece)
{
    char *x = piece->leaves + cut->leaves, *y = x + cut->x;
    piece->x =
        static_cast<const char *>(call->in[0].data) + expert * p->groups * p->slots * p->a_width * piece->in;
    piece->w = static_cast<const char *>(call->in[1].data) + expert * p->depth * p->columns * piece->in;
    if (!has_copies(p)) return;
    struct sycuda_product some = *p;
    some.experts = cut->experts;
    some.filled += expert * p->groups;
    sycuda_product_clean(context, &some, piece->x, call->in[0].dtype, p->a_width, x);
    sycuda_product_clean(context, &some, piece->w, call->in[0].dtype, p->columns, y);
    piece->x = x;
    piece->w = y;
}

static cublasStatus_t multiply_all(const struct sycuda_context *context, const struct sy_call *call,
                                   const struct sycuda_product *p)
{
    const struct product_plan *plan = static_cast<const product_plan *>(call->plan);
    const struct product_cut cut = cut_of(p, call->in[0].dtype, call->out[0].dtype);
    const uintptr_t memory = reinterpret_cast<uintptr_t>(call->workspace);
    struct product_piece piece = {};
    piece.c = static_cast<char *>(call->out[0].data);
    piece.library =
        static_cast<char *>(call->workspace) + (CUBLASLT_LINE - memory % CUBLASLT_LINE) % CUBLASLT_LINE;
    piece.leaves = piece.library + cut.library;
    piece.in = element_bytes(call->in[0].dtype);
    piece.out = element_bytes(call->out[0].dtype);
    for (int64_t e = 0; e < p->experts; e += cut.experts) {
        const int64_t last = p->experts - cut.experts, expert = e < last ? e : last;
        take_experts(context, call, p, &cut, expert, &piece);
        for (int64_t r = 0; r < p->rows; r += cut.rows) {
            piece.row = r < p->rows - cut.rows ? r : p->rows - cut.rows;
            TRY(multiply(context, plan, p, &cut, &piece, expert, call->out[0].dtype));
        }
    }
    return CUBLAS_STATUS_SUCCESS;
}

static int run(void *opened, const struct sy_call *call, const char *name)
{
    const struct sycuda_context *context = static_cast<const sycuda_context *>(opened);
    const struct sycuda_product p = sycuda_product_of(call);
    const struct product_plan *plan = static_cast<const product_plan *>(call->plan);
    if (!plan) {
        sycuda_product_own(context, call, &p, call->workspace);
        return sycuda_launched(opened, name);
    }
    cublasStatus_t error = multiply_all(context, call, &p);
    if (error != CUBLAS_STATUS_SUCCESS) return fail(context, plan, name, error);
    if (p.filled && p.form != SYCUDA_PRODUCT_TN)
        sycuda_product_clear(context, &p, call->out[0].data, call->out[0].dtype);
    return sycuda_launched(opened, name);
}

/* For whichever does the product. */
static uint64_t workspace(const struct sy_call *call)
{
    const struct sycuda_product p = sycuda_product_of(call);
    const struct product_cut cut = cut_of(&p, call->in[0].dtype, call->out[0].dtype);
    const uint64_t own = sycuda_product_own_bytes(&p);
    const uint64_t library = CUBLASLT_LINE + cut.library + cut.leaves + cut.x + cut.y;
    return wants_library(&p) && library > own ? library : own;
}

/* ---- the ops ---- */

#define PRODUCT(name)                                                                                        \
    int sycuda_##name##_prepare(void *context, const struct sy_call *call, void **plan)                      \
    {                                                                                                        \
        return prepare(static_cast<const sycuda_context *>(context), call, plan);                            \
    }                                                                                                        \
    void sycuda_##name##_release(void *, void *plan)                                                         \
    {                                                                                                        \
        plan_free(static_cast<product_plan *>(plan));                                                        \
    }                                                                                                        \
    uint64_t sycuda_##name##_workspace(const struct sy_call *call, int)                                      \
    {                                                                                                        \
        return workspace(call);                                                                              \
    }                                                                                                        \
    int sycuda_##name(void *context, const struct sy_call *call)                                             \
    {                                                                                                        \
        return run(context, call, #name);                                                                    \
    }

PRODUCT(matmul)
PRODUCT(matmul_nt)
PRODUCT(matmul_tn)
PRODUCT(grouped_matmul)
PRODUCT(grouped_matmul_nt)
PRODUCT(grouped_matmul_tn)
PRODUCT(ragged_matmul)
