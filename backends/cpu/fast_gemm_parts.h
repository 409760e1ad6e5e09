/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the fast matrix products share; compiled once for each instruction set.
 *
 * C is cut into tiles that stay in registers. Both operands are packed into panels: a panel of A holds
 * TILE_ROWS rows, one of B TILE_COLUMNS columns, the steps of the contraction outermost, so a tile reads both
 * as streams. A leaf of bf16 that has no partner for its last element gets a zero. There are no k-blocks: a
 * tile walks the whole contraction, leaf by leaf; a long one may be taken in chunks (fast_gemm_chunks.c).
 * Each thread takes an equal share of C, rows of groups of columns, and packs all that it reads for
 * itself: the columns of a group once, the rows of A block by block, or tiles copy these while they multiply them (plan->from_rows).
 * Some is packed twice for that, but nothing is read that another core wrote, which is slow where the two
 * have no cache in common (up to a quarter of a product's time between core complexes of an EPYC);
 * column_groups in fast_gemm.c keeps it least. Of experts each thread takes whole columns: it packs an
 * expert's A once and B in groups that it uses at once, since weights that a few tokens read are worth no
 * copy in memory. Where the tokens are fewer still, B is not packed beforehand at all: fast_gemm_grouped.c
 * and fast_gemm_pair.c read it where it lies, or fast_gemm_streamed.c some rows side by side, and transposed weights are
 * transposed in registers (fast_gemm_columns.c) or become the operand that is not vectorised (fast_gemm_few.c); sums over few
 * tokens: fast_gemm_shallow.c, on matrix tiles by way of fast_gemm_tokens.c, by AVX2 fast_gemm_strips.c. By AVX2 weights of up to
 * three rows are read in their order (fast_gemm_rows.c), of a few more packed while others are multiplied (fast_gemm_buffered.c), and
 * transposed ones are broadcast from where they lie (fast_gemm_broadcast.c). Tiles of a block are taken panel of B by panel of B,
 * so the block stays in the L2 cache and a panel of B is fetched once for it. */
#ifndef SYCPU_FAST_GEMM_PARTS_H
#define SYCPU_FAST_GEMM_PARTS_H

#include "backends/cpu/fast_kernels.h"
#include "backends/cpu/gemm.h"
#include "backends/cpu/gemm_simd.h"

#define TILE_SIZE (TILE_ROWS * TILE_COLUMNS)
/* What is done otherwise by AVX2, for its 16 registers and its many instructions for each product. */
#define IS_AVX2 (LANES == 8)
/* Leaves of fast_gemm_shallow, or of strips; so many steps each on average are few. */
#define SHALLOW_LEAVES 8
#define SHALLOW_STEPS  (IS_AVX2 ? 14 : 16)
/* With SYCPU_TILES: elements a leaf, on average, that are few; rows of a tile that fast_gemm_shallow takes, at most. */
#define SHALLOW_TOKENS 5
#define SHALLOW_ROWS   30
/* Of at most so many vectors of rows of an expert, times transposed weights, fast_gemm_compute_few is faster;
 * 0: never. */
#if defined(SYCPU_PAIRS) || LANES < 8
#    define TURNED_VECTORS 0
#else
#    define TURNED_VECTORS 4
#endif
/* The same of float32, fast_gemm_compute_broadcast. */
#if IS_AVX2
#    define BROADCAST_VECTORS 12
#else
#    define BROADCAST_VECTORS 0
#endif
/* Of at most so many vectors of rows of an expert fast_gemm_compute_columns is faster than packing; 0: there is none. */
#if defined(__AVX512F__) && !defined(SYCPU_TILES)
#    ifdef SYCPU_PAIRS
#        define COLUMN_VECTORS 3
#    else
#        define COLUMN_VECTORS 12
#    endif
#else
#    define COLUMN_VECTORS 0
#endif
/* Buffer rows whose sums it has in registers at a time, at most. */
#define COLUMN_ROWS (SY_TRAINING ? 26 : 24)
/* Rows of weights a multiple of so many words apart fall into one set of the L1 cache, which does not hold LANES lines: of them
 * fast_gemm_compute_columns reads a line once and copies it. */
#define COLUMN_SET 1024
/* Whether sums over all tokens are taken in chunks. By vectors of AVX-512 not (on Zen 4 it was slower), but with plan->copied. */
#if defined(SYCPU_TILES) || IS_AVX2
#    define CHUNKED_SUMS 1
#else
#    define CHUNKED_SUMS 0
#endif
/* Whether strips (fast_gemm_strips.h) take the place of fast_gemm_shallow, and so few rows times weights. A strip has so many
 * rows, which divide TILE_ROWS. */
#if IS_AVX2
#    define HAS_STRIPS 1
#else
#    define HAS_STRIPS 0
#endif
#define STRIP_ROWS 3
/* Whether fast_gemm_shallow takes packed operands of any kind. */
#if !defined(SYCPU_TILES) && !HAS_STRIPS
#    define HAS_SHALLOW 1
#else
#    define HAS_SHALLOW 0
#endif
/* Whether there is fast_gemm_compute_pair. */
#if defined(__AVX512F__) && !defined(SYCPU_TILES)
#    define PAIRED_PANELS 1
#else
#    define PAIRED_PANELS 0
#endif
/* Fewer buffer rows of an expert, times weights, go to fast_gemm_compute_direct; 0: none. Weights in panels need no packing, so tiles
 * pay earlier. */
#ifdef SYCPU_TILES
#    define DIRECT_LEAST        16
#    define DIRECT_PANELS_LEAST 5
#else
#    define DIRECT_LEAST        0
#    define DIRECT_PANELS_LEAST 0
#endif
/* By vectors of AVX-512 where the L1 cache has so many bytes: such cores multiply and add twice a cycle, so that what a tile waits for
 * counts twice as much. On them the next chunk of x^T y is copied meanwhile (plan->copied). Of float32 the sums of at most so many leaves
 * of a tile, as by AVX2, wait until the last one (fast_gemm_whole_tile), and the first tiles copy rows of A (plan->from_rows). */
#if defined(__AVX512F__) && !defined(SYCPU_TILES)
#    define HAS_AHEAD 1
#else
#    define HAS_AHEAD 0
#endif
#if HAS_AHEAD && !defined(SYCPU_PAIRS)
#    define HAS_AHEAD_FLOATS 1
#else
#    define HAS_AHEAD_FLOATS 0
#endif
/* Whether there is fast_gemm_compute_copied: a program that only answers has no sums over all tokens. */
#define HAS_COPIED (HAS_AHEAD && SY_TRAINING)
/* Whether there is fast_gemm_compute_streamed; of bf16 a program that only answers does without, to be small. */
#if HAS_AHEAD_FLOATS || (HAS_AHEAD && SY_TRAINING)
#    define HAS_STREAMED 1
#else
#    define HAS_STREAMED 0
#endif
#define AHEAD_L1       (48 << 10)
#define LARGE_L2       (2 << 20) /* bytes of the L2 cache of some of them */
#define HAS_WAITING    (HAS_AHEAD_FLOATS || IS_AVX2)
#define WAITING_LEAVES 8
/* Of an expert of at most so many rows, so many of them at a time, B may be read row by row there as well (fast_gemm_streamed.c), so many
 * columns of it side by side: they and the next stay in a L2 cache of LARGE_L2 beside the sums. In a smaller one those of rows that
 * are taken at a time do; of float32 rows of one tile it takes as fast without. */
#define STREAMED_ROWS    84
#define STREAMED_HEIGHT  28
#define STREAMED_COLUMNS 1024
/* Of experts of at most so many panels of A, B is packed into two buffers in turn (fast_gemm_buffered.c), so many rows and panels of it
 * at most; so many words hold sums. 0: never. */
#define BUFFERED_PANELS  (IS_AVX2 ? 4 : 0)
#define BUFFERED_STEPS   32
#define BUFFERED_COLUMNS 64
#define BUFFERED_SUMS    (96 * 1024)
/* Tiles of more rows read int8 weights from a panel, widened: what that takes is little then. */
#define INT8_ROWS    6
#define BLOCK_PANELS (BLOCK_ROWS / TILE_ROWS)
#define OWN_PANELS   (WHOLE == 1 ? 42 : 16) /* panels of A that a thread packs of an expert, at most */
/* Words between panels beyond their contents: keeps panels of a power-of-two size out of the same cache sets,
 * and takes what the last step of a panel writes past its rows. */
#define PANEL_GAP 16

static inline int64_t divide_up(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}
static inline int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}
static inline int64_t greatest(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* The size of parts of `all`, equal but for the last, that have at most `most` each. */
static inline int64_t equal_parts(int64_t all, int64_t most)
{
    return divide_up(all, divide_up(all, most));
}

/* To a multiple of 64 bytes. */
static inline int64_t round_floats(int64_t n)
{
    return divide_up(n, 16) * 16;
}

/* Of the tree over so many leaves, at most. */
static inline int pending_tiles(int64_t leaves)
{
    int n = 1;
    for (; leaves > 1; leaves /= 2) n++;
    return n;
}

/* Words from a step of a panel of A to the next; with SYCPU_TILES rows follow each other. */
#define A_STEP (WHOLE == 1 ? TILE_ROWS : 1)

/* Words from one row of a panel of A to the next, with SYCPU_TILES. Rows 2 KiB apart share too few cache sets. */
static inline int64_t a_row_size(int64_t steps)
{
    return steps % 512 ? steps : steps + 16;
}
/* Words from one panel to the next. */
static inline int64_t a_panel_size(int64_t steps)
{
    if (WHOLE > 1) return TILE_ROWS * a_row_size(steps);
    return divide_up(steps * TILE_ROWS, 16) * 16 + PANEL_GAP;
}
static inline int64_t b_panel_size(int64_t steps)
{
    return steps * TILE_COLUMNS + PANEL_GAP;
}

/* With SYCPU_TILES: words from one panel of A of so few tokens to the next, for fast_gemm_shallow. */
static inline int64_t a_token_panel(int64_t tokens)
{
    return tokens * TILE_ROWS + PANEL_GAP;
}

/* Without SYCPU_TILES: whether fast_gemm_shallow, or fast_gemm_compute_strips, takes so many leaves, of so many steps together. */
static inline int gemm_is_shallow(const struct sycpu_gemm *gemm, int64_t leaves, int64_t steps)
{
    return SY_TRAINING && gemm->form == SYCPU_GEMM_TN && leaves > 1 && leaves <= SHALLOW_LEAVES &&
           steps <= SHALLOW_STEPS * leaves;
}

/* How a tile is written. */
enum sycpu_gemm_how {
    SYCPU_GEMM_STORE,
    SYCPU_GEMM_ROUND,       /* to bf16 */
    SYCPU_GEMM_STREAM,      /* past the caches; rows are aligned to vectors */
    SYCPU_GEMM_ROUND_STREAM /* with SYCPU_TILES: both, in whole lines */
};

/* With SYCPU_TILES: what is read next, fetched from memory while what is before is multiplied. */
struct sycpu_gemm_ahead {
    const char *b; /* NULL: nothing is fetched */
    int64_t size;  /* bytes beside each WHOLE steps, in whole lines */
    int64_t done;  /* steps of the tiles before */
};

/* Rows of B that are copied to panels of BUFFERED_STEPS steps, a line of TILE_COLUMNS words beside each step of a tile. */
struct sycpu_gemm_lines {
    const float *from; /* the next line */
    float *to;         /* its place */
    int64_t ahead;     /* words from a line to the one that is fetched for later */
    int64_t stride;    /* words of B from a row to the next */
    int64_t panels;    /* lines in a row */
    int64_t in_row;    /* that are left in this row */
    int64_t left;      /* in all */
};

/* Copies the next line. */
ALWAYS_INLINE void copy_line(struct sycpu_gemm_lines *lines)
{
    const int64_t size = b_panel_size(BUFFERED_STEPS);
    __builtin_prefetch(lines->from + lines->ahead, 0, 2);
    for (int i = 0; i < TILE_COLUMNS; i += LANES) vec_store(lines->to + i, vec_load(lines->from + i));
    lines->from += TILE_COLUMNS;
    lines->to += size;
    if (--lines->in_row == 0) {
        lines->in_row = lines->panels;
        lines->from += lines->stride - lines->panels * TILE_COLUMNS;
        lines->to += TILE_COLUMNS - lines->panels * size;
    }
}

/* One tile of C. */
struct sycpu_gemm_tile {
    const float *a; /* panel [steps, TILE_ROWS], with SYCPU_TILES [TILE_ROWS, steps] */
    int64_t a_row;  /* with SYCPU_TILES: words between its rows */
    const void
        *b; /* panel of floats, or of int8 where there are scales; step k begins at element k * b_stride */
    int64_t b_stride;   /* elements */
    const float *scale; /* of the columns of int8 */
    const void *next;   /* the panel of B after this one, to be fetched in time; NULL: B is near */
    int64_t steps;      /* of a panel of B, with next, and of those of fast_gemm_shallow */
    struct sycpu_gemm_ahead ahead;
    struct sycpu_gemm_pieces *pieces; /* with plan->copied: what is copied beside its steps, else NULL */
    struct sycpu_gemm_lines *lines;   /* at least as many as the tile has steps; NULL: none */
    const float *unpacked;            /* with plan->from_rows: rows of A that are copied to `a`, else NULL */
    int64_t row_stride;               /* words from one of them to the next */
    float *copy;                      /* with next: gets the panel, packed; NULL: not wanted */
    float *
        pending; /* scratch: tiles [log2(leaves) + 1] that wait for a right neighbour in the tree, or sums of all leaves */
    void *c;          /* result */
    int64_t c_stride; /* elements between its rows */
    enum sycpu_gemm_how how;
    int relu;                     /* 1: what is below 0 is written as 0 */
    int fetches_c;                /* 1: the rows of C that it writes are fetched before */
    int height;                   /* rows computed and written, from gemm_height */
    struct sycpu_gemm_rest *rest; /* with SYCPU_TILES: what the leaf before left to do, then this one */
    int a_passes; /* 1: with SYCPU_TILES, of over 16 rows: A passes the L1 cache by, B stays in it; else the other way round */
    int begun,
        open; /* 1: a part of a leaf, whose sums so far lie at the top of the tree; which goes on after it */
};

/* What prepare decides of a product, from its shapes, its operands' places and the number of threads. */
struct sycpu_gemm_plan {
    struct sycpu_gemm gemm;
    int direct;             /* 1: full panels of B are not packed */
    int in_place;           /* 1: with SYCPU_TILES, rows of A that fit together are not packed */
    int own;                /* 1: a thread takes whole columns of an expert and packs what it needs of B */
    int rounded;            /* 1: C is bf16 */
    int stream;             /* 1: C is written past the caches */
    int64_t run;            /* elements of the contraction that a panel holds without padding between */
    int64_t steps;          /* of the contraction that are packed together of B, padding included, at most */
    int64_t a_steps;        /* of A likewise */
    int64_t panels;         /* of B for an expert, the last may be narrower */
    int64_t block_panels;   /* of A that a thread packs together */
    int kept;               /* 1: all of A, TN, for all its groups of columns */
    int64_t groups;         /* of columns of C of an expert: a thread packs the B of one at a time */
    int64_t group_panels;   /* panels of B in each of them but the last */
    int64_t width;          /* panels of columns of a block of C, with chunks */
    int64_t b_panels;       /* of B that a thread takes at a time */
    int64_t a_words;        /* of scratch for panels of A */
    int64_t b_words;        /* of scratch where it packs them; 0: they are read where they lie */
    int64_t turned_rows;    /* of an expert, at most, that fast_gemm_compute_few takes */
    int64_t column_rows;    /* likewise fast_gemm_compute_columns, which goes first; 0: none */
    int64_t broadcast_rows; /* likewise fast_gemm_compute_broadcast */
    int64_t tokens;         /* of an expert, at most, that fast_gemm_compute_tokens takes */
    int64_t strip_rows;     /* likewise fast_gemm_compute_rows */
    int64_t chunk;          /* steps of a chunk of the contraction, at most; 0: there are none */
    int blocks;             /* 1: both operands of a block of C are packed chunk by chunk, if they are */
    int waits;              /* 1: sums of few leaves wait until the last one */
    int ahead;              /* 1: a core as said at AHEAD_L1 */
    int from_rows;          /* 1: of these tiles with the first panel of B copy rows of A to panels */
    int copied;             /* 1: of these the next chunk is packed beside the tiles of the one at hand */
    int rows_stay; /* 1: with chunks, a block of rows stays in the L2 cache, else a group of columns */
    int buffered;  /* 1: fast_gemm_compute_buffered takes experts of few panels of A */
    int64_t streamed_over; /* rows of an expert that fast_gemm_compute_streamed takes: more than these */
    int64_t streamed_most; /* and at most these; 0: none */
    int64_t tree;          /* words of the pending tiles of one tile of C, with chunks or buffered, else 0 */
    int64_t tree_rows, tree_panels; /* of A and B, the tiles whose trees grow together */
    int64_t worker_size;            /* words of scratch of a thread */
    int threads;
    float *workers; /* [threads, worker_size] */
};

/* Rows of an expert in scratch, with plan->streamed_most: those that fill each part of them up included. */
static inline int64_t streamed_rows(const struct sycpu_gemm_plan *plan)
{
    const int64_t rows = least(plan->gemm.rows, plan->streamed_most);
    return rows + HALF_LANES * divide_up(rows, STREAMED_HEIGHT);
}

/* Words of a thread's trees over leaves: of a tile, or its leaves that wait, in chunks of a block of C, streamed of all rows of an
 * expert. */
static inline int64_t pending_size(const struct sycpu_gemm_plan *plan)
{
    const int64_t leaves = plan->gemm.leaves, tiles = pending_tiles(leaves);
    const int64_t tile = greatest(tiles, plan->waits ? least(leaves, WAITING_LEAVES) : 0) * TILE_SIZE;
    if (plan->tree) return plan->tree * plan->tree_rows * plan->tree_panels;
    if (!plan->streamed_most) return tile;
    return greatest(tile, tiles * streamed_rows(plan) * least(STREAMED_COLUMNS, plan->panels * TILE_COLUMNS));
}

/* With plan->buffered: words of each of the two buffers of B, at most. */
static inline int64_t buffer_size(const struct sycpu_gemm_plan *plan)
{
    return least(BUFFERED_COLUMNS, plan->panels) * b_panel_size(BUFFERED_STEPS);
}

/* What a buffer of B holds: the first rows of some panels of an expert. */
struct sycpu_gemm_held {
    int64_t expert, panel, panels; /* panels: 0 where it holds nothing of use */
    int buffer;                    /* 0 or 1 */
};

/* Scratch of a thread while it computes tiles of one expert. */
struct sycpu_gemm_worker {
    int64_t *length; /* [leaves] steps in each leaf */
    int64_t *slot;   /* [block_panels * TILE_ROWS] buffer row (or row of C for TN) of each row of the block */
    float *a;        /* [block_panels] packed panels of the block */
    float *b;        /* [b_panels] packed panels of B, if they are packed */
    int64_t first_b; /* number of the first of them */
    int64_t first_panel; /* with chunks: of columns of the block of C, its number */
    int direct;          /* 1: full panels of B are read in place, and copied to b for the next panels of A */
    const float *unpacked;         /* with plan->from_rows: first row of the block in A; NULL: it is packed */
    const void *next_b;            /* with direct: the panel that follows */
    struct sycpu_gemm_ahead ahead; /* with chunks: what is fetched */
    struct sycpu_gemm_pieces *pieces; /* with plan->copied: what is copied, else NULL */
    int64_t tree;                     /* plan->tree where the trees of a block grow together, else 0 */
    float *pending;                   /* tiles of the tree of leaves */
    float *edge;                      /* a tile that cannot be written to C directly */
    struct sycpu_gemm_rest *rest;     /* with SYCPU_TILES: what the last tile left to do */
    struct sycpu_gemm_held held;      /* with plan->buffered */
    int64_t rows;                     /* of C that the expert has */
    int64_t depth;                    /* of the contraction that the expert has, in steps */
    int64_t leaves;                   /* 1 where the contraction is empty */
    int64_t from, taken;              /* steps of the contraction at hand: all, but in chunks */
    int64_t first_leaf, end_leaf;     /* the leaves of these steps */
    int begun, open;                  /* 1: they are a part of a leaf, not its first; not its last */
    int64_t row_panels;               /* panels of A in all */
    int64_t panel_rows;               /* rows in each of them but the last */
    int64_t block_rows;               /* of A that are packed */
    int64_t kept_expert, kept_row, kept_rows; /* with plan->kept: of whom, from where on, how many; 0: none */
};

/* Of a leaf, what it ends with included. */
static inline int64_t steps_of(int64_t elements)
{
    return divide_up(elements, STEP * WHOLE) * WHOLE;
}

/* Bytes. */
static inline int64_t c_element(const struct sycpu_gemm_plan *plan)
{
    return plan->rounded ? 2 : sizeof(float);
}

/* Whether tiles read panels of B where the call has them. */
static inline int b_in_panels(const struct sycpu_gemm *gemm)
{
    return STEP > 1 && gemm->panels;
}

/* Whether fast_gemm_compute_direct takes so many rows of an expert. */
static inline int goes_direct(const struct sycpu_gemm *gemm, int64_t rows)
{
    return gemm->form == SYCPU_GEMM_NN && rows < (gemm->panels ? DIRECT_PANELS_LEAST : DIRECT_LEAST);
}

/* A vector of sums to element i of C and those after it. */
static inline void fast_gemm_put(const struct sycpu_gemm_plan *plan, int64_t i, vec v)
{
    if (plan->rounded)
        vec_store_rounded((uint16_t *)plan->gemm.c + i, v);
    else
        vec_store((float *)plan->gemm.c + i, v);
}

#ifndef SYCPU_PAIRS
/* Sums [rows, width], of rows of weights, to n rows of C that `slot` has, the first `columns` of each from c on. */
ALWAYS_INLINE void write_turned(const float *sums, int rows, int64_t width, const int64_t *slot, int64_t n,
                                float *c, int64_t stride, int columns)
{
    const float *row[LANES];
    float turned[LANES * LANES];
    for (int64_t first = 0; first < n; first += LANES) {
        for (int i = 0; i < LANES; i++) row[i] = sums + i % rows * width + first;
        transpose(row, 0, turned, LANES, LANES);
        for (int64_t i = 0; i < least(n - first, LANES); i++)
            memcpy(c + slot[first + i] * stride, turned + i * LANES, sizeof(float) * (size_t)columns);
    }
}
#endif

/* Panel of B of an expert, of a call that has them. */
static inline const float *b_panel_of(const struct sycpu_gemm *gemm, int64_t expert, int64_t panel)
{
    return (const float *)gemm->b +
           (expert * sycpu_gemm_b_size(gemm) + panel * SY_PANEL_COLUMNS * gemm->depth) / 2;
}

/* Bytes of an element of B as the call has it. */
static inline int64_t b_element(const struct sycpu_gemm *gemm)
{
    return gemm->scale ? 1 : sizeof(operand);
}

/* Which of n items that follow `base`, each of this weight, begin in [from, to). */
static inline void items_between(int64_t from, int64_t to, int64_t base, int64_t weight, int64_t n,
                                 int64_t *first, int64_t *end)
{
    *first = from <= base ? 0 : least(n, divide_up(from - base, weight));
    *end = least(n, divide_up(to - base, weight));
}

/* The lowest height of a tile that holds so many rows. */
static inline int gemm_height(int64_t rows)
{
    return WHOLE == 1 ? (int)(rows + 1) / 2 * 2 : (int)divide_up(rows, 16) * 16;
}

/* Where a leaf stands in the tree over leaves, which is walked as binary counting: one tile is pending for
 * each one bit of its number, and as many neighbours are complete as that ends in ones; at the end everything
 * pending is. */
struct sycpu_gemm_place {
    int64_t top, to; /* floats: end of the pending tiles; where the sum goes if this is not the last */
    int merges;      /* pending tiles that are added */
    int last;
};
static inline struct sycpu_gemm_place gemm_place_of(int64_t leaf, int64_t leaves)
{
    int waiting = __builtin_popcountll((uint64_t)leaf), last = leaf == leaves - 1;
    int merges = last ? waiting : __builtin_ctzll(~(uint64_t)leaf);
    return (struct sycpu_gemm_place){(int64_t)waiting * TILE_SIZE, (int64_t)(waiting - merges) * TILE_SIZE,
                                     merges, last};
}

/* With SYCPU_TILES, what a leaf left to do: its sums wait in the matrix tiles to be stored, then to be merged. Between the steps
 * of the next leaf, which may be another tile's, that takes no time. */
struct sycpu_gemm_rest {
#ifdef SYCPU_TILES
    float sum[TILE_SIZE] __attribute__((aligned(64)));  /* [height, TILE_COLUMNS] */
    float none[TILE_SIZE] __attribute__((aligned(64))); /* where matrix tiles go that hold nothing */
#endif
    float *to;                     /* where the sums in the matrix tiles belong */
    int held;                      /* their rows; 0: there are none */
    struct sycpu_gemm_tile tile;   /* whose rows are merged from `sum` */
    struct sycpu_gemm_place place; /* of the leaf */
    int row;                       /* the first that waits; of the height of the tile: none does */
};

/* Leaf number `leaf` of a tile, steps k .. k + length - 1; to be called for all leaves in ascending order.
 * Merges it into the tree; the last one leaves the sum in tile->c. With SYCPU_TILES only after fast_gemm_merge_rest. */
void fast_gemm_leaf(const struct sycpu_gemm_tile *tile, int64_t leaf, int64_t leaves, int64_t k,
                    int64_t length);

/* With plan->waits: all leaves of a tile at once. From leaf `early` on rows of C are fetched, `share` of them before each leaf. Gives 0,
 * with nothing done, where the tile is none that it takes: less high, of other leaves than 1, 2, 4 or WAITING_LEAVES, or of operands that
 * are more than read from panels. */
int fast_gemm_whole_tile(const struct sycpu_gemm_tile *tile, int64_t leaves, const int64_t *length,
                         int64_t early, int64_t share);

/* The same of a leaf whose sums are there: [height, TILE_COLUMNS]. With SYCPU_TILES. */
void fast_gemm_merge(const struct sycpu_gemm_tile *tile, int64_t leaf, int64_t leaves, const float *sum);
/* All that waits. */
#ifdef SYCPU_TILES
void fast_gemm_merge_rest(struct sycpu_gemm_rest *rest);
#else
static inline void fast_gemm_merge_rest(struct sycpu_gemm_rest *rest)
{
    (void)rest;
}
#endif

/* All leaves, at most SHALLOW_LEAVES, of a tile and its right neighbours, so many in all, in panels of B of tile->steps steps. For
 * leaves of few steps. With SYCPU_TILES of floats, at most SHALLOW_ROWS of tile->a [elements, TILE_ROWS], and lengths in elements, at
 * most TILE_ELEMENTS. */
void fast_gemm_shallow(const struct sycpu_gemm_tile *tile, int64_t leaves, const int64_t *length,
                       int64_t tiles);

/* Panels of A from `rows` row pointers (a multiple of TILE_ROWS): elements [first, first + depth) of each. With
 * SYCPU_TILES a panel whose first is NULL is left out. */
void fast_gemm_pack_a_rows(const operand *const *row, int64_t rows, int64_t first, int64_t depth,
                           float *panels, int64_t panel_size);
/* Panels of A from rows along its columns, STEP rows for each step, NULL: a row of zeros; the last panel is
 * filled with zeros. */
void fast_gemm_pack_a_columns(const operand *const *row, int64_t steps, int64_t width, float *panels,
                              int64_t panel_size);
/* One panel of B from rows of a transposed matrix, at most TILE_COLUMNS of them. */
void fast_gemm_pack_b_rows(const operand *from, int64_t stride, int64_t rows, int64_t depth, float *panel);
/* One panel of `width` rows, whole rows; a multiple of HALF_LANES, at most 3 vectors. Pointers for whole
 * vectors. */
void fast_gemm_pack_vectors(const operand *const *row, int64_t width, int64_t depth, float *panel);
/* Panels of B, as fast_gemm_pack_a_columns. */
void fast_gemm_pack_b_columns(const operand *const *row, int64_t steps, int64_t width, float *panels,
                              int64_t panel_size);

/* ---- fast_gemm_int8.c: n panels of B of an expert from `panel` on, int8 times their scales ---- */

void fast_gemm_pack_int8(const struct sycpu_gemm_plan *plan, int64_t expert, int64_t panel, int64_t n,
                         float *to);

/* ---- fast_gemm_widen.c: the same of bf16 in panels ---- */

void fast_gemm_widen_panels(const struct sycpu_gemm_plan *plan, int64_t expert, int64_t panel, int64_t n,
                            float *to);

/* ---- fast_gemm_operands.c ---- */

/* Filled slots of groups [first, end). */
int64_t fast_gemm_filled_slots(const struct sycpu_gemm *gemm, int64_t expert, int64_t first, int64_t end);
/* Filled rows of a leaf, TN: its products. */
int64_t fast_gemm_leaf_length(const struct sycpu_gemm *gemm, int64_t expert, int64_t leaf);
/* Fetches a part of the buffer rows that an expert reads, if these are few; none of an expert past the last. What is
 * multiplied before hides how long memory takes. */
void fast_gemm_fetch_rows(const struct sycpu_gemm *gemm, int64_t expert, int64_t part, int64_t parts);
/* Of the contraction of a TN product, in steps. */
int64_t fast_gemm_filled_steps(const struct sycpu_gemm *gemm, int64_t expert);
/* `n` panels of B of an expert from `panel` on, to worker->b. */
void fast_gemm_pack_columns(const struct sycpu_gemm_plan *plan, int64_t expert,
                            struct sycpu_gemm_worker *worker, int64_t panel, int64_t n);
/* Rows [first, first + n) of C: their panels of A; with plan->from_rows where they lie, if tiles can copy them. */
void fast_gemm_pack_block(const struct sycpu_gemm_plan *plan, int64_t expert,
                          struct sycpu_gemm_worker *worker, int64_t first, int64_t n);

/* All filled rows of the expert to worker->slot. */
void fast_gemm_list_slots(const struct sycpu_gemm *gemm, int64_t expert, struct sycpu_gemm_worker *worker);
/* `width` rows of worker->slot from `first` on, at most 3 vectors, as one panel; past the last it is
 * repeated. */
void fast_gemm_pack_turned(const struct sycpu_gemm_plan *plan, int64_t expert,
                           const struct sycpu_gemm_worker *worker, int64_t first, int width, float *to);
/* Columns of such a panel that has room for so many rows. */
static inline int64_t turned_width(int64_t rows)
{
    return divide_up(rows, HALF_LANES) * HALF_LANES;
}
/* All rows of the expert in such panels, `rows` to each, one after the other, and to worker->slot. Gives their width. */
int64_t fast_gemm_pack_parts(const struct sycpu_gemm_plan *plan, int64_t expert,
                             struct sycpu_gemm_worker *worker, int64_t rows, float *to);

/* Whether n slots follow each other. */
static inline int slots_follow(const int64_t *slot, int64_t n)
{
    return slot[n - 1] - slot[0] == n - 1;
}

/* Where the rows of a tile lie in A, if they can be read there as a panel of `rows` rows: the slots are neighbours.
 * NULL: they cannot. */
static inline const operand *fast_gemm_in_place(const struct sycpu_gemm_plan *plan, int64_t expert,
                                                const int64_t *slot, int64_t rows)
{
    if (WHOLE == 1 || !plan->in_place || rows % 16 || !slots_follow(slot, rows)) return NULL;
    return (const operand *)plan->gemm.a + expert * sycpu_gemm_a_size(&plan->gemm) +
           slot[0] * plan->gemm.a_width;
}

/* ---- fast_gemm_chunks.c, with plan->chunk ---- */

/* Rows [row, row + rows) of C by n panels of columns from `panel` on. */
struct sycpu_gemm_block {
    int64_t row, rows, panel, n;
};
/* Rows [row, end) of C by `panels` panels from `panel` on, cut into `all` blocks, of equal size but for those at the edges; row by row
 * of them. */
struct sycpu_gemm_blocks {
    int64_t row, end, panel, panels;
    int64_t height, width; /* of a block: rows, panels */
    int64_t across, all;   /* blocks in a row of them; in all */
};
static inline struct sycpu_gemm_blocks gemm_blocks(const struct sycpu_gemm_plan *plan, int64_t row,
                                                   int64_t end, int64_t panel, int64_t panels)
{
    struct sycpu_gemm_blocks b = {.row = row, .end = end, .panel = panel, .panels = panels};
    b.height = equal_parts(divide_up(end - row, TILE_ROWS), plan->block_panels) * TILE_ROWS;
    b.width = plan->rows_stay ? panels : equal_parts(panels, plan->width);
    b.across = divide_up(panels, b.width);
    b.all = divide_up(end - row, b.height) * b.across;
    return b;
}
static inline struct sycpu_gemm_block gemm_block(const struct sycpu_gemm_blocks *b, int64_t i)
{
    const int64_t below = i / b->across * b->height, right = i % b->across * b->width;
    return (struct sycpu_gemm_block){b->row + below, least(b->height, b->end - b->row - below),
                                     b->panel + right, least(b->width, b->panels - right)};
}
/* To the first chunk of the contraction, or to the next one; 0: there is none. left: scratch of the caller. */
int fast_gemm_take_chunk(const struct sycpu_gemm_plan *plan, struct sycpu_gemm_worker *worker, int first,
                         int64_t *left);
/* Rows [row, end) of C of an expert: `panels` panels of columns from `panel` on, which NN and NT have packed. */
void fast_gemm_compute_chunks(const struct sycpu_gemm_plan *plan, struct sycpu_gemm_worker *worker,
                              int64_t expert, int64_t row, int64_t end, int64_t panel, int64_t panels);

/* ---- fast_gemm_copied.c, with HAS_COPIED and plan->copied ---- */

/* The same, TN. */
void fast_gemm_compute_copied(const struct sycpu_gemm_plan *plan, struct sycpu_gemm_worker *worker,
                              int64_t expert, int64_t row, int64_t end, int64_t panel, int64_t panels);

/* ---- fast_gemm_strips.c, with HAS_STRIPS ---- */

/* All rows of the block by n panels of columns from `panel` on, TN, where gemm_is_shallow. Meanwhile rows of the expert `next` are
 * fetched; of one past the last none. */
void fast_gemm_compute_strips(const struct sycpu_gemm_plan *plan, const struct sycpu_gemm_worker *worker,
                              int64_t expert, int64_t panel, int64_t n, int64_t next);

/* ---- fast_gemm_rows.c, with HAS_STRIPS ---- */

/* Rows [row, end) of an expert, at most plan->strip_rows, NN, by n panels of columns from `panel` on. */
void fast_gemm_compute_rows(const struct sycpu_gemm_plan *plan, struct sycpu_gemm_worker *worker,
                            int64_t expert, int64_t row, int64_t end, int64_t panel, int64_t n);

/* ---- fast_gemm_streamed.c, with HAS_STREAMED and plan->streamed_most ---- */

/* All rows of an expert that plan->streamed_over and streamed_most say, panels [first, end) of columns. */
void fast_gemm_compute_streamed(const struct sycpu_gemm_plan *plan, struct sycpu_gemm_worker *worker,
                                int64_t expert, int64_t first, int64_t end);

/* ---- fast_gemm_buffered.c, with plan->buffered ---- */

/* All rows of an expert that has at most BUFFERED_PANELS of A, panels [first, end) of columns. */
void fast_gemm_compute_buffered(const struct sycpu_gemm_plan *plan, struct sycpu_gemm_worker *worker,
                                int64_t expert, int64_t first, int64_t end);

/* ---- fast_gemm_tokens.c, with SYCPU_TILES ---- */

/* Rows [row, end) of C of an expert, n panels of columns from `panel` on, TN, if they are sums over few tokens. Gives 0 where they are
 * not, or where C is yet to be computed otherwise, for some result was very small. */
int fast_gemm_compute_tokens(const struct sycpu_gemm_plan *plan, struct sycpu_gemm_worker *worker,
                             int64_t expert, int64_t row, int64_t end, int64_t panel, int64_t n);

/* ---- fast_gemm_few.c ---- */

/* Columns [first, end) of C of an expert; end may lie past the last. NT, at most plan->turned_rows rows. */
void fast_gemm_compute_few(const struct sycpu_gemm_plan *plan, struct sycpu_gemm_worker *worker,
                           int64_t expert, int64_t first, int64_t end);

/* ---- fast_gemm_broadcast.c ---- */

/* The same of float32, at most plan->broadcast_rows rows; end is not past the last column. */
void fast_gemm_compute_broadcast(const struct sycpu_gemm_plan *plan, struct sycpu_gemm_worker *worker,
                                 int64_t expert, int64_t first, int64_t end);

/* ---- fast_gemm_columns.c ---- */

/* The same of at most plan->column_rows rows; end is not past the last column. */
void fast_gemm_compute_columns(const struct sycpu_gemm_plan *plan, struct sycpu_gemm_worker *worker,
                               int64_t expert, int64_t first, int64_t end);

/* ---- fast_gemm_pair.c ---- */

/* All rows of an expert that has one panel of A, or two, times a whole panel of B. */
void fast_gemm_compute_pair(const struct sycpu_gemm_plan *plan, const struct sycpu_gemm_worker *worker,
                            int64_t expert, int64_t panel);

/* ---- fast_gemm_direct.c ---- */

/* Rows [row, end) of C of an expert with fewer than DIRECT_LEAST, NN: n panels from `first` on. */
void fast_gemm_compute_direct(const struct sycpu_gemm_plan *plan, const struct sycpu_gemm_worker *worker,
                              int64_t expert, int64_t row, int64_t end, int64_t first, int64_t n);

/* ---- fast_gemm_narrow.c ---- */

/* The share of a thread of rows times weights of at most LANES columns: floats, one leaf, neither experts nor int8. */
void fast_gemm_compute_narrow(void *arg, int64_t share, int thread);

/* ---- fast_gemm_worker.c ---- */

/* rest: of this thread, while the worker is used; fast_gemm_merge_rest ends that. */
struct sycpu_gemm_worker fast_gemm_make_worker(const struct sycpu_gemm_plan *plan, int thread,
                                               struct sycpu_gemm_rest *rest);
/* Sizes of an expert. */
void fast_gemm_enter_expert(const struct sycpu_gemm_plan *plan, struct sycpu_gemm_worker *worker,
                            int64_t expert);
void fast_gemm_measure_leaves(const struct sycpu_gemm *gemm, struct sycpu_gemm_worker *worker,
                              int64_t expert);
/* Tiles of panel_a of the block and n panels of the expert from panel_b on. */
void fast_gemm_compute_tiles(const struct sycpu_gemm_plan *plan, const struct sycpu_gemm_worker *worker,
                             int64_t expert, int64_t panel_a, int64_t panel_b, int64_t n);

/* All tiles of the block with one panel of B. */
void fast_gemm_compute_column(const struct sycpu_gemm_plan *plan, const struct sycpu_gemm_worker *worker,
                              int64_t expert, int64_t panel_b);

/* worker->edge to the first `rows` rows of that tile. */
void fast_gemm_copy_edge(const struct sycpu_gemm_plan *plan, const struct sycpu_gemm_worker *worker,
                         int64_t expert, int64_t panel_a, int64_t panel_b, int64_t rows);

/* ---- fast_gemm_grouped.c; tasks of parallel_for over a struct sycpu_gemm_plan ---- */

void fast_gemm_compute_own(void *plan, int64_t share, int thread);
void fast_gemm_zero_empty_slots(void *plan, int64_t task, int thread);

#endif
