/* SPDX-License-Identifier: Apache-2.0 */
/* A few buffer rows times weights with the bits of matrix tiles, but by vectors: the weights are read where they lie,
 * since packing them for tiles would take longer than multiplying them. Even and odd elements of the contraction are
 * a chain each, 32 elements of a leaf at a time, as in amx_tile.h; the thread's floating-point mode counts denormals as
 * zero meanwhile. What is left out against tiles are the zeros that end a leaf, which change no sum but the sign of a
 * zero, and a leaf's + 0 takes that back. */
#include "config.h"

#include "backends/cpu/fast_gemm_parts.h"
#include "backends/cpu/tile_chains.h"

#define AT_ONCE 6  /* rows whose chains fit into the registers */
#define AHEAD   16 /* rows of weights from the one at hand to the one fetched */

/* Both halves of 32 neighbours of a row of weights. */
ALWAYS_INLINE void load_wide(const operand *b, __mmask32 some, vec *low, vec *high)
{
    const __m512i half = _mm512_maskz_loadu_epi16(some, b);
    *low = (vec)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm512_castsi512_si256(half)), 16);
    *high = (vec)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm512_extracti64x4_epi64(half, 1)), 16);
}

#define ROW_SUMS(i)   vec c##i##0 = vec_zero(), c##i##1 = vec_zero();
#define ROW_CHAINS(i) vec e##i##0 = vec_zero(), e##i##1 = e##i##0, o##i##0 = e##i##0, o##i##1 = e##i##0;
#define ROW_EVEN(i)                                                                                          \
    {                                                                                                        \
        const vec a = vec_broadcast(x + i);                                                                  \
        e##i##0 = _mm512_fmadd_ps(a, b0, e##i##0);                                                           \
        e##i##1 = _mm512_fmadd_ps(a, b1, e##i##1);                                                           \
    }
#define ROW_ODD(i)                                                                                           \
    {                                                                                                        \
        const vec a = vec_broadcast(x + i);                                                                  \
        o##i##0 = _mm512_fmadd_ps(a, b0, o##i##0);                                                           \
        o##i##1 = _mm512_fmadd_ps(a, b1, o##i##1);                                                           \
    }
#define ROW_ADD(i)                                                                                           \
    c##i##0 = vec_add(c##i##0, vec_add(e##i##0, o##i##0));                                                   \
    c##i##1 = vec_add(c##i##1, vec_add(e##i##1, o##i##1));
#define ROW_STORE(i)                                                                                         \
    vec_store(sum + i * TILE_COLUMNS, c##i##0);                                                              \
    vec_store(sum + i * TILE_COLUMNS + LANES, c##i##1);
/* Elements of B, b0 and b1, of a row of weights, and of a step of a panel, whose words are pairs. */
#define PLAIN_EVEN                                                                                           \
    load_wide(b, some, &b0, &b1);                                                                            \
    __builtin_prefetch(b + AHEAD * stride);                                                                  \
    b += stride;
#define PLAIN_ODD PLAIN_EVEN
#define PANEL_EVEN                                                                                           \
    b0 = even_of(vec_load(b));                                                                               \
    b1 = even_of(vec_load(b + 2 * LANES));
#define PANEL_ODD                                                                                            \
    b0 = odd_of(vec_load(b));                                                                                \
    b1 = odd_of(vec_load(b + 2 * LANES));                                                                    \
    b += 2 * TILE_COLUMNS;
/* The next element of the contraction. */
#define ELEMENT(ROWS, ROW_OF, LOAD)                                                                          \
    {                                                                                                        \
        vec b0, b1;                                                                                          \
        LOAD ROWS(ROW_OF) x += width;                                                                        \
    }

/* A leaf of neighbouring rows: x [depth, width], widened; columns of b as the mask says; to sum. Leaves of panels are
 * even. */
#define DEFINE_LEAF(name, ROWS, B)                                                                           \
    static void name(const float *x, int64_t width, const operand *b, int64_t stride, int64_t depth,         \
                     __mmask32 some, float *sum)                                                             \
    {                                                                                                        \
        ROWS(ROW_SUMS)                                                                                       \
        (void)stride, (void)some;                                                                            \
        while (depth > 0) {                                                                                  \
            int64_t n = least(depth, TILE_ELEMENTS);                                                         \
            depth -= n;                                                                                      \
            ROWS(ROW_CHAINS)                                                                                 \
            for (; n > 1; n -= 2) {                                                                          \
                ELEMENT(ROWS, ROW_EVEN, B##_EVEN)                                                            \
                ELEMENT(ROWS, ROW_ODD, B##_ODD)                                                              \
            }                                                                                                \
            if (n) ELEMENT(ROWS, ROW_EVEN, B##_EVEN)                                                         \
            ROWS(ROW_ADD)                                                                                    \
        }                                                                                                    \
        ROWS(ROW_STORE)                                                                                      \
    }
DEFINE_LEAF(leaf_2, ROWS_2, PLAIN)
DEFINE_LEAF(leaf_4, ROWS_4, PLAIN)
DEFINE_LEAF(leaf_6, ROWS_6, PLAIN)
DEFINE_LEAF(panel_leaf_2, ROWS_2, PANEL)
DEFINE_LEAF(panel_leaf_4, ROWS_4, PANEL)
DEFINE_LEAF(panel_leaf_6, ROWS_6, PANEL)

typedef void leaf_fn(const float *, int64_t, const operand *, int64_t, int64_t, __mmask32, float *);

/* Of plain weights and of panels, by half the rows. A variable, so that the compiler moves no arithmetic out of the calls to
 * where the mode is another. */
static leaf_fn *const volatile leaf_of[2][4] = {{NULL, leaf_2, leaf_4, leaf_6},
                                                {NULL, panel_leaf_2, panel_leaf_4, panel_leaf_6}};

/* stride 0: b is a panel. */
static void compute_leaf(const float *x, int64_t width, const operand *b, int64_t stride, int64_t depth,
                         __mmask32 some, float *sum)
{
    const unsigned mode = enter_tile_mode();
    for (int64_t i = 0; i < width; i += AT_ONCE)
        leaf_of[stride == 0][least(AT_ONCE, width - i) / 2](x + i, width, b, stride, depth, some,
                                                            sum + i * TILE_COLUMNS);
    leave_tile_mode(mode);
}

/* One panel of C: the tree over leaves, then to its rows. */
static void compute_panel(const struct sycpu_gemm_plan *plan, const struct sycpu_gemm_worker *worker,
                          int64_t expert, int64_t rows, int64_t width, int64_t panel)
{
    float sum[DIRECT_LEAST * TILE_COLUMNS] __attribute__((aligned(64)));
    const struct sycpu_gemm *gemm = &plan->gemm;
    int64_t column = panel * TILE_COLUMNS, n = gemm->columns - column;
    const operand *b = gemm->panels ? (const operand *)b_panel_of(gemm, expert, panel)
                                    : (const operand *)gemm->b + expert * sycpu_gemm_b_size(gemm) + column;
    int64_t stride = gemm->panels ? 0 : gemm->columns, next = gemm->panels ? TILE_COLUMNS : stride;
    struct sycpu_gemm_tile tile = {.pending = worker->pending,
                                   .c = worker->edge,
                                   .c_stride = TILE_COLUMNS,
                                   .how = plan->rounded ? SYCPU_GEMM_ROUND : SYCPU_GEMM_STORE,
                                   .relu = gemm->relu,
                                   .height = (int)rows};
    for (int64_t leaf = 0; leaf < gemm->leaves; leaf++) {
        int64_t k = leaf * gemm->leaf;
        compute_leaf(worker->a + k * width, width, b + k * next, stride, gemm->leaf,
                     n < TILE_COLUMNS ? (1u << n) - 1 : ~0u, sum);
        fast_gemm_merge(&tile, leaf, gemm->leaves, sum);
    }
    fast_gemm_copy_edge(plan, worker, expert, 0, panel, rows);
}

void fast_gemm_compute_direct(const struct sycpu_gemm_plan *plan, const struct sycpu_gemm_worker *worker,
                              int64_t expert, int64_t row, int64_t end, int64_t first, int64_t n)
{
    const struct sycpu_gemm *gemm = &plan->gemm;
    struct sycpu_gemm_worker part = *worker;
    int64_t rows = end - row, width = divide_up(rows, 2) * 2;
    fast_gemm_merge_rest(worker->rest); /* it has the scratch that is used here */
    fast_gemm_list_slots(gemm, expert, &part);
    part.slot += row;
    for (int64_t i = 0; i < width; i++) {
        const operand *x = (const operand *)gemm->a + expert * sycpu_gemm_a_size(gemm) +
                           part.slot[least(i, rows - 1)] * gemm->a_width;
        for (int64_t k = 0; k < gemm->depth; k++) part.a[k * width + i] = syi_bf16_to_float(x[k]);
    }
    for (int64_t panel = first; panel < first + n; panel++)
        compute_panel(plan, &part, expert, rows, width, panel);
}
