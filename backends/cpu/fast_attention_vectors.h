/* SPDX-License-Identifier: Apache-2.0 */
/* The products of attention by vectors, which lie along the columns, so each element keeps its order. Steps outside
 * a row's range or set are not touched. Included by fast_attention.h. */
#ifndef SYCPU_FAST_ATTENTION_VECTORS_H
#define SYCPU_FAST_ATTENTION_VECTORS_H

#if defined(__AVX512F__) && SY_TRAINING
#    define PRODUCT_ROWS 8
#elif defined(__AVX512F__)
/* Few kernels, for a small program; a tenth slower where under 64 keys or columns are left. */
#    define PRODUCT_ROWS 4
#else
#    define PRODUCT_ROWS 6 /* the accumulators of a tile have two or four registers each */
#endif

static inline int64_t product_bound(const struct product *p, int64_t offset, int64_t row)
{
    int64_t bound = offset + row;
    return bound < 0 ? 0 : bound > p->steps ? p->steps : bound;
}

/* One step of a chain. With SYCPU_PAIRS elements of A and B are pairs of bf16, which two steps multiply at
 * once; what is called float here is then the 32 bits of a pair. */
#ifdef SYCPU_PAIRS
static inline vf product_step(vf a, vf b, vf c)
{
    return _mm512_dpbf16_ps(c, (__m512bh)a, (__m512bh)b);
}
#else
#    define product_step vf_fma
#endif

/* Where chains go on: vector `at` of row r of a tile. */
static inline vf product_begin(const struct product *p, const float *at, int64_t r)
{
    if (p->fresh) return vf_set(0.0f);
    return p->factor ? vf_mul(vf_load(at), vf_set(p->factor[r])) : vf_load(at);
}

#define TILE_BEGIN(r) vf c##r = product_begin(p, c + r * p->c_row, row + r);
#define TILE_STEP(r)  c##r = product_step(vf_set(a[r * p->a_row]), columns, c##r);
#define TILE_END(r)   vf_store(c + r * p->c_row, c##r);

/* Rows row .. row + n - 1 of 16 columns, steps begin .. end - 1. Accumulators are named
 * variables: gcc stores arrays. */
#define TILE(n, ROWS)                                                                                        \
    static inline void tile_##n(const struct product *p, int64_t row, int64_t column, int64_t begin,         \
                                int64_t end)                                                                 \
    {                                                                                                        \
        const float *a = p->a + row * p->a_row + begin * p->a_step;                                          \
        const float *b = p->b + begin * p->b_step + column;                                                  \
        float *c = p->c + row * p->c_row + column;                                                           \
        ROWS(TILE_BEGIN)                                                                                     \
        for (int64_t i = begin; i < end; i++, a += p->a_step, b += p->b_step) {                              \
            const vf columns = vf_load(b);                                                                   \
            ROWS(TILE_STEP)                                                                                  \
        }                                                                                                    \
        ROWS(TILE_END)                                                                                       \
    }

#define ROWS_1(X) X(0)
TILE(1, ROWS_1)
TILE(2, ROWS_2)
TILE(4, ROWS_4)
#if PRODUCT_ROWS == 8
TILE(8, ROWS_8)
#    define TILE_TOP tile_8
#elif PRODUCT_ROWS == 6
TILE(6, ROWS_6)
#    define TILE_TOP tile_6
#else
#    define TILE_TOP tile_4
#endif

/* 32 columns: of 16 each multiply-add would wait for a load of its own. */
#ifdef __AVX512F__
#    define WIDE_BEGIN(r)                                                                                    \
        TILE_BEGIN(r)                                                                                        \
        vf d##r = product_begin(p, c + r * p->c_row + SYCPU_LANES, row + r);
#    define WIDE_STEP(r)                                                                                     \
        {                                                                                                    \
            const vf factor = vf_set(a[r * p->a_row]);                                                       \
            c##r = product_step(factor, left, c##r);                                                         \
            d##r = product_step(factor, right, d##r);                                                        \
        }
#    define WIDE_END(r)                                                                                      \
        TILE_END(r)                                                                                          \
        vf_store(c + r * p->c_row + SYCPU_LANES, d##r);
#    define WIDE(n, ROWS)                                                                                    \
        static inline void wide_##n(const struct product *p, int64_t row, int64_t column, int64_t begin,     \
                                    int64_t end)                                                             \
        {                                                                                                    \
            const float *a = p->a + row * p->a_row + begin * p->a_step;                                      \
            const float *b = p->b + begin * p->b_step + column;                                              \
            float *c = p->c + row * p->c_row + column;                                                       \
            ROWS(WIDE_BEGIN)                                                                                 \
            for (int64_t i = begin; i < end; i++, a += p->a_step, b += p->b_step) {                          \
                const vf left = vf_load(b), right = vf_load(b + SYCPU_LANES);                                \
                ROWS(WIDE_STEP)                                                                              \
            }                                                                                                \
            ROWS(WIDE_END)                                                                                   \
        }
WIDE(1, ROWS_1)
WIDE(2, ROWS_2)
WIDE(4, ROWS_4)
#    if PRODUCT_ROWS == 8
WIDE(8, ROWS_8)
#        define WIDE_TOP wide_8
#    else
#        define WIDE_TOP wide_4
#    endif

/* 4 rows of 64 columns, which takes fewest loads: element (r, 16 c + lane) is in s<r><c>. */
#    define FOUR_OF(X, r)   X(r, 0) X(r, 1) X(r, 2) X(r, 3)
#    define EACH_OF_FOUR(X) FOUR_OF(X, 0) FOUR_OF(X, 1) FOUR_OF(X, 2) FOUR_OF(X, 3)

/* The compiler would load it once for each multiply-add. */
static inline vf load_once(const float *p)
{
    vf v = vf_load(p);
    __asm__("" : "+v"(v));
    return v;
}

/* Adds n steps. */
#    define FOUR_ADD(r, c) s##r##c = product_step(row##r, column##c, s##r##c);
#    define FOUR_ROW(r)                                                                                      \
        {                                                                                                    \
            const vf row##r = vf_set(four_a[r * four_row]);                                                  \
            FOUR_OF(FOUR_ADD, r)                                                                             \
        }
#    define FOUR_STEPS(a, a_row, a_step, b, b_step, n, ROWS)                                                 \
        const float *four_a = (a), *four_b = (b);                                                            \
        const int64_t four_row = (a_row);                                                                    \
        for (int64_t i = 0; i < (n); i++, four_a += (a_step), four_b += (b_step)) {                          \
            const vf column0 = load_once(four_b), column1 = load_once(four_b + SYCPU_LANES);                 \
            const vf column2 = load_once(four_b + 2 * SYCPU_LANES);                                          \
            const vf column3 = load_once(four_b + 3 * SYCPU_LANES);                                          \
            ROWS(FOUR_ROW)                                                                                   \
        }

/* Step i, where there is one, of some of the rows. */
#    define FOUR_STEP(i, ROWS)                                                                               \
        if ((i) >= 0 && (i) < p->steps) {                                                                    \
            FOUR_STEPS(a + (i)*p->a_step, p->a_row, 0, b + (i)*p->b_step, 0, 1, ROWS)                        \
        }
#    define FIRST_2(X) X(0) X(1)
#    define FIRST_3(X) X(0) X(1) X(2)
#    define LAST_3(X)  X(1) X(2) X(3)
#    define LAST_2(X)  X(2) X(3)
#    define LAST_1(X)  X(3)

#    define FOUR_LOAD(r, c)  vf s##r##c = product_begin(p, to + r * p->c_row + c * SYCPU_LANES, row + r);
#    define FOUR_STORE(r, c) vf_store(to + r * p->c_row + c * SYCPU_LANES, s##r##c);
/* Rows row .. row + 3 of 64 columns, from their first steps to their last. */
static __attribute__((noinline)) void four_rows(const struct product *p, int64_t row, int64_t column)
{
    const int64_t low = product_bound(p, p->begin, row + 3), high = product_bound(p, p->end, row);
    const float *a = p->a + row * p->a_row, *b = p->b + column;
    float *to = p->c + row * p->c_row + column;
    EACH_OF_FOUR(FOUR_LOAD)
    if (p->begin > -NO_LIMIT) { /* each row begins one step after the row before */
        FOUR_STEP(p->begin + row, ROWS_1)
        FOUR_STEP(p->begin + row + 1, FIRST_2)
        FOUR_STEP(p->begin + row + 2, FIRST_3)
    }
    {
        FOUR_STEPS(a + low * p->a_step, p->a_row, p->a_step, b + low * p->b_step, p->b_step, high - low,
                   ROWS_4)
    }
    if (p->end < NO_LIMIT) { /* and ends so */
        FOUR_STEP(p->end + row, LAST_3)
        FOUR_STEP(p->end + row + 1, LAST_2)
        FOUR_STEP(p->end + row + 2, LAST_1)
    }
    EACH_OF_FOUR(FOUR_STORE)
}
#endif

/* One row after the other, where their common range is left. */
static inline void product_single(const struct product *p, int64_t row, int64_t columns, int64_t begin,
                                  int64_t end)
{
    for (int64_t column = 0; begin < end && column < columns; column += SYCPU_LANES)
        tile_1(p, row, column, begin, end);
}

/* `height` rows: what only some have before their common range, that range together, and the rest. Bounds
 * grow with the row and only one of them is limited, so the common range does not end before it begins. */
static inline void product_rows(const struct product *p, int64_t row, int height, int64_t columns)
{
    int64_t low = product_bound(p, p->begin, row + height - 1), high = product_bound(p, p->end, row);
    for (int64_t r = row; r < row + height; r++)
        product_single(p, r, columns, product_bound(p, p->begin, r), low);
    int64_t column = 0;
#ifdef __AVX512F__
    for (; column + 2 * SYCPU_LANES <= columns; column += 2 * SYCPU_LANES) {
        if (height == PRODUCT_ROWS) WIDE_TOP(p, row, column, low, high);
        if (height == 4 && PRODUCT_ROWS > 4) wide_4(p, row, column, low, high);
        if (height == 2) wide_2(p, row, column, low, high);
        if (height == 1) wide_1(p, row, column, low, high);
    }
#endif
    for (; column < columns; column += SYCPU_LANES) {
        if (height == PRODUCT_ROWS) TILE_TOP(p, row, column, low, high);
        if (height == 4 && PRODUCT_ROWS > 4) tile_4(p, row, column, low, high);
        if (height == 2) tile_2(p, row, column, low, high);
        if (height == 1) tile_1(p, row, column, low, high);
    }
    for (int64_t r = row; r < row + height; r++)
        product_single(p, r, columns, high, product_bound(p, p->end, r));
}

static inline int height_of(int64_t rows)
{
    return rows >= PRODUCT_ROWS ? PRODUCT_ROWS : rows >= 4 ? 4 : rows >= 2 ? 2 : 1;
}

/* Rows row .. end - 1. */
static inline void multiply_rows(const struct product *p, int64_t row, int64_t end, int64_t columns)
{
#ifdef __AVX512F__
    for (; columns % (4 * SYCPU_LANES) == 0 && row + 4 <= end; row += 4)
        for (int64_t column = 0; column < columns; column += 4 * SYCPU_LANES) four_rows(p, row, column);
#endif
    for (int height; row < end; row += height) {
        height = height_of(end - row);
        product_rows(p, row, height, columns);
    }
}

static inline void multiply(const struct product *p, int64_t rows, int64_t columns)
{
    multiply_rows(p, 0, rows, columns);
}

/* ---- rows that have a set of steps each, 64 at most ---- */

/* Steps 0 .. n - 1. */
static inline uint64_t below(int n)
{
    return n > 63 ? ~UINT64_C(0) : (UINT64_C(1) << n) - 1;
}

/* The first run of neighbours in a set that is not empty. */
struct run {
    int begin, end;
};
static inline struct run first_run(uint64_t set)
{
    struct run run = {__builtin_ctzll(set), 64};
    uint64_t gaps = ~set >> run.begin;
    if (gaps) run.end = run.begin + __builtin_ctzll(gaps);
    return run;
}

/* Empty where the set is. */
static inline struct run longest_run(uint64_t set)
{
    struct run longest = {0, 0};
    for (struct run run; set; set &= ~below(run.end)) {
        run = first_run(set);
        if (run.end - run.begin > longest.end - longest.begin) longest = run;
    }
    return longest;
}

/* A row for itself, run by run. */
static inline void product_set(const struct product *p, int64_t row, int64_t columns, uint64_t set)
{
    while (set) {
        struct run run = first_run(set);
        product_single(p, row, columns, run.begin, run.end);
        set &= ~below(run.end);
    }
}

/* As multiply, but row r has the steps whose bits are set in set[r]; not fresh. The longest run that the rows
 * of a tile share goes together. */
static inline void multiply_sets(const struct product *p, int64_t rows, int64_t columns, const uint64_t *set)
{
    struct product tile = *p;
    tile.begin = -NO_LIMIT;
    tile.end = NO_LIMIT;
    for (int64_t row = 0; row < rows;) {
        const int height = height_of(rows - row);
        uint64_t shared = set[row];
        for (int r = 1; r < height; r++) shared &= set[row + r];
        const struct run run = longest_run(shared);
        for (int r = 0; r < height; r++) product_set(p, row + r, columns, set[row + r] & below(run.begin));
        tile.a = p->a + run.begin * p->a_step;
        tile.b = p->b + run.begin * p->b_step;
        tile.steps = run.end - run.begin;
        if (tile.steps) multiply_rows(&tile, row, row + height, columns);
        for (int r = 0; r < height; r++) product_set(p, row + r, columns, set[row + r] & ~below(run.end));
        row += height;
    }
}

/* set NULL: the ranges of the product. */
static inline void multiply_part(const struct product *p, int64_t rows, int64_t columns, const uint64_t *set)
{
    if (set)
        multiply_sets(p, rows, columns, set);
    else
        multiply(p, rows, columns);
}

#endif
