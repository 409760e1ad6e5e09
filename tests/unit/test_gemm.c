/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products: every fast variant gives the bits of the reference for odd sizes, tails, leaves, special
 * values and ragged expert buffers; the reference agrees with plain sums in double. */
#include "config.h"

#include "product_case.h"

extern const struct sy_backend_desc sy_backend_cpu;

static void begin(struct kh *k, int op, const struct shape *s, const struct sy_attr_leaf *attr, int wild)
{
    kh_begin(k, op, attr, sizeof *attr);
    k->wild = wild;
    add_operands(k, s, SY_F32, SY_F32);
    if (s->experts) add_counts(k, s);
}

/* device: the CUDA backend takes part, which is slow where it is emulated. */
static void check(int op, const struct shape *s, int leaf, int wild, int device)
{
    struct sy_attr_leaf attr = {leaf};
    struct kh k;
    char what[120];
    snprintf(what, sizeof what, "op %d: experts %d, groups %d, slots %d, k %d, n %d, leaf %d, wild %d", op,
             s->experts, s->groups, s->slots, s->k, s->n, leaf, wild);
    begin(&k, op, s, &attr, wild);
    k.cpu_only = !device;
    kh_check(&k, what);
    kh_end(&k);
}

/* All leaf lengths that divide the axis into few leaves, one element a leaf included. */
static void check_leaves(int op, const struct shape *s, int wild)
{
    int axis = leaf_axis(op, s);
    for (int leaf = 1; leaf <= axis; leaf++)
        if (axis % leaf == 0 && (axis / leaf <= 16 || leaf == 1))
            check(op, s, leaf, wild, wild > 0 && axis / leaf <= 4);
}

Test(gemm, plain_products_of_all_shapes)
{
    static const struct shape shapes[] = {{0, 1, 1, 1, 1},      {0, 1, 2, 3, 5},    {0, 2, 1, 8, 16},
                                          {0, 4, 7, 16, 33},    {0, 1, 13, 17, 31}, {0, 8, 3, 32, 48},
                                          {0, 2, 43, 29, 96},   {0, 4, 25, 64, 65}, {0, 1, 1, 64, 70},
                                          {0, 16, 12, 24, 128}, {0, 3, 57, 40, 40}, {0, 1, 97, 101, 103}};
    for (int op = 0; op < 3; op++)
        for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
            for (int wild = -30; wild <= 2; wild += 16) check_leaves(plain_ops[op], &shapes[i], wild);
}

/* Gradients of weights rounded as they are stored, small ones included, which are no zeros. */
Test(gemm, weight_gradients_in_bfloat16)
{
    static const struct shape shapes[] = {
        {0, 2, 43, 29, 96}, {0, 4, 7, 16, 33}, {0, 1, 5, 97, 101}, {4, 4, 5, 16, 33}, {3, 8, 9, 20, 32}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        for (int small = 0; small < 2; small++) {
            const struct shape *s = &shapes[i];
            struct sy_attr_leaf attr = {1};
            struct kh k;
            kh_begin(&k, s->experts ? SY_OP_GROUPED_MATMUL_TN : SY_OP_MATMUL_TN, &attr, sizeof attr);
            add_operands(&k, s, SY_F32, SY_BF16);
            for (int64_t j = 0; small && j < sycpu_count(&k.in[1]); j++) ((float *)k.in[1].data)[j] *= 1e-39f;
            if (s->experts) add_counts(&k, s);
            kh_check_as(&k, SY_F32, SY_BF16, "a gradient of weights");
            kh_end(&k);
        }
}

Test(gemm, tails_of_rows_and_columns)
{
    for (int op = 0; op < 3; op++)
        for (int rows = 1; rows <= 30; rows++)
            for (int columns = 1; columns <= 70; columns += 1 + rows % 3) {
                struct shape s = {0, 2, rows, 18, columns};
                check(plain_ops[op], &s, is_nt(plain_ops[op]) ? columns : 2, -20, (rows + columns) % 4 == 0);
            }
}

Test(gemm, products_larger_than_one_block)
{
    static const struct shape shapes[] = {{0, 8, 43, 96, 200}, {0, 16, 19, 130, 64}};
    for (int op = 0; op < 3; op++)
        for (int i = 0; i < 2; i++) check_leaves(plain_ops[op], &shapes[i], -5);
}

/* By AVX2 these are taken in chunks, of one leaf or several, and in blocks of C. */
Test(gemm, sums_over_many_tokens)
{
    check(SY_OP_MATMUL_TN, &(struct shape){0, 8, 100, 20, 48}, 1, -20, 0);
    check(SY_OP_MATMUL_TN, &(struct shape){0, 4, 200, 515, 16}, 1, -20, 0);
    check(SY_OP_MATMUL_TN, &(struct shape){0, 4, 200, 1035, 16}, 1, -20, 0);
    check(SY_OP_MATMUL_TN, &(struct shape){0, 4, 200, 7, 272}, 1, -20, 0);
    check(SY_OP_MATMUL_TN, &(struct shape){0, 4, 200, 7, 600}, 1, -20, 0);
    check(SY_OP_MATMUL_TN, &(struct shape){0, 3, 290, 13, 281}, 1, -20, 0);
    check(SY_OP_MATMUL_TN, &(struct shape){0, 16, 50, 9, 37}, 2, -4, 0);
}

/* By AVX-512, with a large L1 cache: chunks of parts of a leaf, of one and of several, even and odd, the next one packed
 * meanwhile; blocks of columns and of rows. */
Test(gemm, sums_over_many_tokens_whose_next_are_packed)
{
    setenv("SY_TEST_L1_BYTES", "49152", 1);
    check(SY_OP_MATMUL_TN, &(struct shape){0, 4, 520, 16, 64}, 1, -20, 0);
    check(SY_OP_MATMUL_TN, &(struct shape){0, 16, 131, 17, 32}, 1, -20, 0);
    check(SY_OP_MATMUL_TN, &(struct shape){0, 16, 130, 30, 32}, 2, -20, 0);
    check(SY_OP_MATMUL_TN, &(struct shape){0, 64, 36, 18, 544}, 1, -20, 0);
    check(SY_OP_MATMUL_TN, &(struct shape){0, 8, 256, 1035, 32}, 1, -20, 0);
}

/* By AVX-512, with a large L1 cache: rows that the tiles of the first panel of columns copy, and those of a block that ends with an
 * odd one, which are packed; all columns of some rows after each other, then all rows of some columns. */
Test(gemm, rows_that_tiles_copy)
{
    setenv("SY_TEST_L1_BYTES", "49152", 1);
    for (int rows = 129; rows < 160; rows++) {
        check(SY_OP_MATMUL, &(struct shape){0, 1, rows, 34, 70}, 17, -20, 0);
        check(SY_OP_MATMUL_NT, &(struct shape){0, 1, rows, 70, 34}, 17, -20, 0);
    }
    check(SY_OP_MATMUL, &(struct shape){0, 1, 142, 1300, 320}, 325, -20, 0);
    check(SY_OP_MATMUL_NT, &(struct shape){0, 1, 142, 320, 1300}, 325, -20, 0);
}

/* On the same condition, and by AVX2: few leaves, whose sums wait until the last one, and others, which do not. */
Test(gemm, leaves_that_wait_for_the_last_one)
{
    setenv("SY_TEST_L1_BYTES", "49152", 1);
    for (int leaf = 4; leaf <= 144; leaf++)
        if (144 % leaf == 0) {
            check(SY_OP_MATMUL, &(struct shape){0, 1, 150, 144, 70}, leaf, -20, 0);
            check(SY_OP_MATMUL_NT, &(struct shape){0, 1, 75, 96, 144}, leaf, -20, 0);
        }
    for (int rows = 1; rows <= 16; rows++)
        check(SY_OP_MATMUL_TN, &(struct shape){0, rows, 50, 45, 64}, 1, -20, 0);
    for (int leaf = 8; leaf <= 128; leaf *= 2)
        check(SY_OP_MATMUL, &(struct shape){0, 1, 150, 128, 70}, leaf, -20, 0);
}

/* An expert with three rows beside one with many, over a vocabulary: few rows go by chunks there too. */
Test(gemm, few_rows_over_a_vocabulary)
{
    static const struct shape shape = {2, 1, 129, 12288, 64};
    static const struct sy_attr_leaf attr = {12288};
    struct kh k;
    begin(&k, SY_OP_GROUPED_MATMUL, &shape, &attr, -20);
    float *x = (float *)k.in[0].data + shape.slots * shape.k; /* NaN: the second expert had no row */
    for (int i = 0; i < 3 * shape.k; i++) x[i] = kh_uniform(-2.0f, 2.0f);
    ((int32_t *)k.in[2].data)[0] = 0;
    ((int32_t *)k.in[2].data)[1] = 3;
    k.cpu_only = 1;
    kh_check(&k, "three rows of the last expert");
    kh_end(&k);
}

static void check_extents(int op, const struct shape *s, int leaf)
{
    check(op, s, leaf, -20, 0);
}

Test(gemm, extents_of_any_size_together)
{
    for (int op = 0; op < 3; op++) each_order(plain_ops[op], 0, (const int[]){2, 300, 12296}, check_extents);
    for (int op = 0; op < N_GROUPED; op++)
        each_order(grouped_ops[op], 2, (const int[]){2, 200, 12296}, check_extents);
}

/* So many results that they are written past the caches, of leaves that wait and of one. */
Test(gemm, results_past_the_caches)
{
    static const struct shape shape = {0, 1, 1031, 16, 16400};
    check(SY_OP_MATMUL, &shape, 2, -20, 0);
    check(SY_OP_MATMUL, &shape, 16, -20, 0);
}

/* Rows times weights, and transposed ones, over a vocabulary, in chunks: parts of a leaf, and several leaves at a time. */
Test(gemm, contractions_over_a_vocabulary)
{
    static const struct shape nn = {0, 1, 129, 12296, 1}, nt = {0, 1, 65, 2, 12296};
    check(SY_OP_MATMUL, &nn, 1537, -20, 0);
    check(SY_OP_MATMUL, &nn, 106, -20, 0);
    check(SY_OP_MATMUL_NT, &nt, 1537, -20, 0);
    check(SY_OP_MATMUL_NT, &nt, 106, -20, 0);
    for (int rows = 300; rows <= 1500; rows += 600)
        check(SY_OP_MATMUL, &(struct shape){0, 1, rows, 12288, 1}, 1536, -20, 0);
}

/* More columns than caches hold when packed, which are taken in groups. */
Test(gemm, columns_of_a_vocabulary)
{
    check(SY_OP_MATMUL_TN, &(struct shape){0, 4, 150, 1, 14401}, 2, -20, 0);
}

/* Threads share tiles by rows, by columns or by both; shares begin and end within rows of tiles, and groups
 * of columns and experts belong to several threads. */
Test(gemm, any_number_of_threads)
{
    static const struct shape shapes[] = {{0, 1, 40, 24, 200},  {0, 4, 57, 40, 40},   {0, 2, 100, 300, 33},
                                          {0, 2, 70, 130, 160}, {1, 2, 30, 24, 200},  {2, 4, 30, 24, 150},
                                          {3, 2, 20, 70, 96},   {5, 2, 150, 70, 160}, {0, 8, 21, 5, 1},
                                          {1, 3, 90, 70, 160},  {2, 2, 150, 40, 100}};
    for (int op = 0; op < N_GROUPED; op++)
        for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
            const struct shape *s = &shapes[i];
            if (!s->experts && op >= 3) continue; /* no plain product is ragged */
            int kind = (s->experts ? grouped_ops : plain_ops)[op];
            struct sy_attr_leaf attr = {is_tn(kind) ? 1 : leaf_axis(kind, s)};
            struct kh k;
            begin(&k, kind, s, &attr, -10);
            kh_reference(&k, "any number of threads");
            const struct sy_kernel *kernel;
            for (uint64_t at = 0; (kernel = kh_next(kind, SY_F32, SY_F32, kh_features(), &at));)
                for (int threads = 2; kernel->needs && threads <= 8; threads++)
                    kh_compare(&k, kernel, threads, "any number of threads");
            kh_end(&k);
        }
}

Test(gemm, tiny_values_keep_their_signs)
{
    for (int op = 0; op < 3; op++) {
        static const struct shape shape = {0, 8, 16, 64, 64};
        check(plain_ops[op], &shape, 4, -95, 1);
    }
}

Test(gemm, expert_buffers_with_ragged_counts)
{
    static const struct shape shapes[] = {{1, 1, 1, 1, 1},    {4, 4, 5, 16, 33},  {3, 8, 17, 20, 32},
                                          {8, 2, 30, 32, 64}, {2, 16, 3, 24, 48}, {5, 4, 40, 33, 70},
                                          {4, 8, 60, 48, 96}};
    for (int op = 0; op < N_GROUPED; op++)
        for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
            for (int wild = -30; wild <= 2; wild += 16) check_leaves(grouped_ops[op], &shapes[i], wild);
}

/* Experts of 0 to 120 rows beside each other, weights read where they lie or packed. */
Test(gemm, experts_of_few_and_many_rows)
{
    static const struct shape shapes[] = {{40, 4, 10, 128, 64}, {40, 2, 60, 64, 96}};
    for (int op = 0; op < N_GROUPED; op++)
        for (int i = 0; i < 2; i++)
            for (int leaves = 1; leaves <= 2; leaves++) {
                int kind = grouped_ops[op];
                check(kind, &shapes[i], leaf_axis(kind, &shapes[i]) / leaves, -20, 0);
            }
}

/* Experts of 1 to 70 rows: tiles of every height, weights that are read where they lie and copied on the way,
 * transposed tiles, of one to four vectors, ends of rows of weights and of C that fill no vector. */
Test(gemm, experts_of_few_rows)
{
    for (int op = 0; op < N_GROUPED; op++)
        for (int rows = 1; rows <= 70; rows++) {
            struct shape s = {3, 1, rows, 70 + rows % 5, 64 + rows % 7 * (rows % 2)};
            check(grouped_ops[op], &s, leaf_axis(grouped_ops[op], &s), -20, 1);
        }
}

/* Experts of up to 86 rows, whose weights are read row by row if the L1 cache is large: rows in one to three parts, or too many for it,
 * where the L2 cache is large too, in one part where it is not; leaves of one strip and more, the last of fewer rows; columns in two
 * blocks. */
Test(gemm, experts_whose_weights_are_read_row_by_row)
{
    static const struct shape shapes[] = {{4, 1, 0, 72, 64}, {3, 2, 0, 48, 96}, {2, 1, 0, 33, 1056}};
    static const int slots[] = {2, 14, 17, 43, 84, 86};
    static const int ops[] = {SY_OP_GROUPED_MATMUL, SY_OP_RAGGED_MATMUL};
    static const char *const l2[] = {"1048576", "4194304"};
    setenv("SY_TEST_L1_BYTES", "49152", 1);
    for (int large = 0; large < 2; large++) {
        setenv("SY_TEST_L2_BYTES", l2[large], 1);
        for (int i = 0; i < 3; i++)
            for (int j = 0; j < (i < 2 ? 6 : 3); j++)
                for (int leaves = 1; leaves <= 3; leaves += 2) {
                    struct shape s = shapes[i];
                    s.slots = slots[j];
                    check(ops[i == 1], &s, s.k / leaves, -20, 0);
                }
    }
    setenv("SY_TEST_L1_BYTES", "0", 1);
    for (int j = 0; j < 6; j++) {
        struct shape s = shapes[0];
        s.slots = slots[j];
        check(ops[0], &s, s.k, -20, 0);
    }
}

/* Transposed weights of experts where the L1 cache is large: as many rows as are taken by one kernel, and one more, whose rows of weights
 * fall into one set of that cache or not. */
Test(gemm, transposed_weights_by_the_set_of_their_rows)
{
    static const int64_t depth[] = {512, 1024}, slots[] = {11, 12, 13, 26, 27, 40};
    static const char *const l2[] = {"1048576", "4194304"};
    setenv("SY_TEST_L1_BYTES", "49152", 1);
    for (int i = 0; i < 24; i++) {
        struct shape s = {2, 1, slots[i % 6], 32, depth[i / 6 % 2]};
        setenv("SY_TEST_L2_BYTES", l2[i / 12], 1);
        check(SY_OP_GROUPED_MATMUL_NT, &s, s.n / 8, -20, 0);
    }
}

/* Weights that are packed in two buffers in turn: more columns than one holds, leaves that are no multiple of what it holds, experts
 * with one to five panels of rows beside each other, so that what the first part of the next will be is guessed wrong at times. */
Test(gemm, experts_whose_weights_take_turns_in_buffers)
{
    static const struct shape shapes[] = {{4, 3, 11, 100, 64}, {3, 2, 9, 40, 1072}, {2, 2, 6, 296, 48}};
    for (int i = 0; i < 3; i++)
        for (int leaves = 1; leaves <= 4; leaves += leaves)
            check(SY_OP_GROUPED_MATMUL, &shapes[i], shapes[i].k / leaves, -20, 0);
}

/* The same times transposed weights whose rows and columns fill vectors, up to more rows than are read in place; of
 * 2048 elements they lie a multiple of a page apart. */
Test(gemm, experts_of_few_rows_times_whole_vectors)
{
    static const struct shape shapes[] = {{3, 1, 0, 112, 128}, {2, 2, 0, 48, 2048}};
    for (int i = 0; i < 2; i++)
        for (int slots = 1; slots <= 112; slots += (slots < 17 ? 1 : 15) * (i ? 3 : 1))
            for (int leaves = 1; leaves <= 4; leaves *= 4) {
                struct shape s = shapes[i];
                s.slots = slots;
                check(SY_OP_GROUPED_MATMUL_NT, &s, s.n / leaves, -20, 0);
            }
}

/* Many groups, of which most are nearly empty: trees over leaves of a few steps each, or none. */
Test(gemm, experts_with_leaves_of_few_steps)
{
    static const struct shape shapes[] = {{4, 8, 4, 140, 96}, {3, 16, 2, 33, 70}, {5, 6, 5, 28, 64}};
    for (int op = 0; op < N_GROUPED; op++)
        for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
            for (int wild = -30; wild <= 2; wild += 16) check_leaves(grouped_ops[op], &shapes[i], wild);
}

/* Sums over few tokens, more columns than are packed together. */
Test(gemm, gradients_of_few_tokens_have_many_columns)
{
    static const struct shape s = {3, 8, 4, 20, 600};
    check_leaves(SY_OP_GROUPED_MATMUL_TN, &s, -20);
}

/* As many steps as are few for eight leaves by AVX2, in more parts of four than equal leaves would have. */
Test(gemm, gradients_of_uneven_leaves)
{
    static const struct shape s = {2, 8, 21, 7, 40};
    static const int32_t counts[] = {13, 13, 13, 13, 13, 13, 13, 21, 21, 0, 9, 17, 1, 5, 4, 2};
    struct sy_attr_leaf attr = {1};
    struct kh k;
    begin(&k, SY_OP_GROUPED_MATMUL_TN, &s, &attr, 0);
    memcpy(k.in[2].data, counts, sizeof counts);
    kh_check(&k, "uneven leaves");
    kh_end(&k);
}

/* By AVX2 up to three rows are a strip, of up to 1,024 columns. */
Test(gemm, rows_of_a_strip)
{
    for (int rows = 1; rows <= 4; rows++) {
        check_leaves(SY_OP_MATMUL, &(struct shape){0, 1, rows, 22, 1072}, -20);
        check_leaves(SY_OP_GROUPED_MATMUL, &(struct shape){3, 2, rows, 24, 48}, -20);
    }
}

/* Over 64 MiB, which go past the caches. */
Test(gemm, gradients_larger_than_the_caches)
{
    static const struct shape s = {33, 2, 1, 517, 1024};
    check(SY_OP_GROUPED_MATMUL_TN, &s, 1, 0, 0);
}

/* The same of rows times weights, as logits are; the last tiles have fewer rows. */
Test(gemm, results_larger_than_the_caches)
{
    check(SY_OP_MATMUL, &(struct shape){0, 11, 47, 2, 32832}, 1, -20, 0);
    check(SY_OP_MATMUL_NT, &(struct shape){0, 11, 47, 32832, 2}, 1, -20, 0);
}

/* Over 8 MiB, whose zeros in empty slots go past the caches. */
Test(gemm, large_buffers_have_zeros_in_empty_slots)
{
    static const struct shape shapes[] = {{4, 8, 64, 2, 1056}, {4, 8, 64, 1056, 2}};
    check(SY_OP_GROUPED_MATMUL, &shapes[0], 2, 0, 0);
    check(SY_OP_GROUPED_MATMUL_NT, &shapes[1], 2, 0, 0);
}

Test(gemm, experts_without_tokens_give_zeros)
{
    static const struct shape s = {3, 4, 6, 16, 40};
    for (int op = 0; op < N_GROUPED; op++) {
        struct sy_attr_leaf attr = {2};
        struct kh k;
        begin(&k, grouped_ops[op], &s, &attr, 0);
        memset(k.in[2].data, 0, kh_bytes(&k.in[2]));
        if (k.n_in > 3) memset(k.in[3].data, 0, kh_bytes(&k.in[3]));
        kh_check(&k, "no tokens");
        for (int64_t i = 0; i < sycpu_count(&k.out[0]); i++) cr_assert(((uint32_t *)k.want[0])[i] == 0);
        kh_end(&k);
    }
}

/* Kernels whose chains begin with a product and not with +0 would give -0. */
Test(gemm, gradients_of_nothing_are_positive_zeros)
{
    static const struct shape shapes[] = {{0, 8, 2, 20, 40}, {3, 8, 3, 20, 40}};
    for (int i = 0; i < 2; i++) {
        struct sy_attr_leaf attr = {1};
        struct kh k;
        begin(&k, shapes[i].experts ? SY_OP_GROUPED_MATMUL_TN : SY_OP_MATMUL_TN, &shapes[i], &attr, 0);
        memset(k.in[0].data, 0, kh_bytes(&k.in[0]));
        for (int64_t j = 0; j < sycpu_count(&k.in[1]); j++) ((float *)k.in[1].data)[j] = -1.0f;
        kh_check(&k, "zeros times negative numbers");
        for (int64_t j = 0; j < sycpu_count(&k.out[0]); j++) cr_assert(((uint32_t *)k.want[0])[j] == 0);
        kh_end(&k);
    }
}

/* Products that are too small for float32 are -0 here. */
Test(gemm, sums_that_vanish_are_positive_zeros)
{
    static const struct shape s = {3, 4, 4, 64, 96};
    for (int op = 0; op < N_GROUPED; op++) {
        struct sy_attr_leaf attr = {leaf_axis(grouped_ops[op], &s) / 2};
        struct kh k;
        begin(&k, grouped_ops[op], &s, &attr, 0);
        for (int64_t j = 0; j < sycpu_count(&k.in[0]); j++) ((float *)k.in[0].data)[j] = 1e-30f;
        for (int64_t j = 0; j < sycpu_count(&k.in[1]); j++) ((float *)k.in[1].data)[j] = -1e-30f;
        kh_check(&k, "products that vanish");
        for (int64_t j = 0; j < sycpu_count(&k.out[0]); j++) cr_assert(((uint32_t *)k.want[0])[j] == 0);
        kh_end(&k);
    }
}

/* ---- the reference against sums in double, written without the description of gemm.h ---- */

/* Element (m, i) of x times weights (i, n) in double for a plain product; TN contracts rows. */
static double naive(const struct kh *k, int64_t m, int64_t n, double *size)
{
    const float *x = k->in[0].data, *w = k->in[1].data;
    int64_t x_width = k->in[0].dim[2], w_width = k->in[1].dim[k->in[1].rank - 1],
            rows = sycpu_extent(&k->in[0], 2);
    double sum = 0;
    *size = 0;
    for (int64_t i = 0; i < (is_tn(k->op) ? rows : x_width); i++) {
        double a = is_tn(k->op) ? x[i * x_width + m] : x[m * x_width + i];
        double b = is_nt(k->op) ? w[n * w_width + i] : w[i * w_width + n];
        sum += a * b;
        *size += fabs(a * b);
    }
    return sum;
}

Test(gemm, reference_agrees_with_double)
{
    static const struct shape s = {0, 4, 9, 40, 24};
    for (int op = 0; op < 3; op++) {
        struct sy_attr_leaf attr = {is_tn(plain_ops[op]) ? 2 : 8};
        struct kh k;
        begin(&k, plain_ops[op], &s, &attr, 0);
        kh_reference(&k, "reference");
        int64_t columns = k.out[0].dim[k.out[0].rank - 1];
        for (int64_t i = 0; i < sycpu_count(&k.out[0]); i++) {
            double size, want = naive(&k, i / columns, i % columns, &size);
            cr_assert(fabs(((float *)k.want[0])[i] - want) <= 1e-6 * size, "op %d element %lld", k.op,
                      (long long)i);
        }
        kh_end(&k);
    }
}

/* An expert's rows without the gaps, as a plain product, must be the grouped result. */
Test(gemm, grouped_equals_plain_without_gaps)
{
    static const struct shape grouped = {2, 3, 5, 12, 20};
    struct sy_attr_leaf attr = {4};
    struct kh g, p;
    begin(&g, SY_OP_GROUPED_MATMUL, &grouped, &attr, 0);
    kh_reference(&g, "grouped");
    for (int e = 0; e < 2; e++) {
        static const struct shape plain = {0, 3, 5, 12, 20};
        const int32_t *counts = (int32_t *)g.in[2].data + e * 3;
        begin(&p, SY_OP_MATMUL, &plain, &attr, 0);
        memcpy(p.in[0].data, (float *)g.in[0].data + e * 180, 180 * sizeof(float));
        memcpy(p.in[1].data, (float *)g.in[1].data + e * 240, 240 * sizeof(float));
        kh_reference(&p, "plain");
        for (int row = 0; row < 15; row++) {
            float *got = (float *)g.want[0] + (e * 15 + row) * 20, *want = (float *)p.want[0] + row * 20;
            for (int n = 0; n < 20; n++) cr_assert(got[n] == (row % 5 < counts[row / 5] ? want[n] : 0.0f));
        }
        kh_end(&p);
    }
    kh_end(&g);
}

/* Without gaps between the experts the same tokens have the same results. */
Test(gemm, ragged_equals_grouped)
{
    static const struct shape shape = {5, 3, 11, 12, 20};
    struct sy_attr_leaf attr = {4};
    struct kh r, g;
    begin(&r, SY_OP_RAGGED_MATMUL, &shape, &attr, 0);
    begin(&g, SY_OP_GROUPED_MATMUL, &shape, &attr, 0);
    memcpy(g.in[1].data, r.in[1].data, kh_bytes(&r.in[1]));
    memcpy(g.in[2].data, r.in[2].data, kh_bytes(&r.in[2]));
    const int32_t *counts = r.in[2].data, *first = r.in[3].data;
    for (int i = 0; i < shape.experts * shape.groups; i++)
        memcpy((float *)g.in[0].data + i * 11 * 12,
               (float *)r.in[0].data + (i % shape.groups * 11 + first[i]) * 12,
               (size_t)counts[i] * 12 * sizeof(float));
    kh_reference(&r, "ragged");
    kh_reference(&g, "grouped");
    int compared = 0;
    for (int i = 0; i < shape.experts * shape.groups; i++, compared += counts[i - 1])
        cr_assert_arr_eq((float *)r.want[0] + (i % shape.groups * 11 + first[i]) * 20,
                         (float *)g.want[0] + i * 11 * 20, (size_t)counts[i] * 20 * sizeof(float));
    cr_assert_gt(compared, 10);
    kh_end(&r);
    kh_end(&g);
}

/* The gradient of weights over filled slots in double, counts and all. */
Test(gemm, grouped_tn_agrees_with_double)
{
    static const struct shape s = {3, 4, 7, 10, 6};
    struct sy_attr_leaf attr = {2};
    struct kh k;
    begin(&k, SY_OP_GROUPED_MATMUL_TN, &s, &attr, 0);
    kh_reference(&k, "grouped_tn");
    const int32_t *counts = k.in[2].data;
    for (int e = 0; e < 3; e++)
        for (int i = 0; i < 10; i++)
            for (int n = 0; n < 6; n++) {
                double sum = 0;
                for (int row = 0; row < 28; row++) {
                    if (row % 7 >= counts[e * 4 + row / 7]) continue;
                    sum += (double)((float *)k.in[0].data)[(e * 28 + row) * 10 + i] *
                           ((float *)k.in[1].data)[(e * 28 + row) * 6 + n];
                }
                cr_assert_float_eq(((float *)k.want[0])[(e * 10 + i) * 6 + n], sum, 1e-4);
            }
    kh_end(&k);
}

/* ---- variant blas, in builds that have it: within the tolerance of the op table ---- */

static const struct sy_kernel *blas_kernel(int op)
{
    static const struct sy_backend_option blas[] = {{"variant", "blas"}, {NULL, NULL}};
    struct sy_host host = {.bytes = sizeof host};
    void *context;
    uint32_t features;
    char text[128];
    for (uint64_t i = 0; i < sy_backend_cpu.n_kernels; i++) {
        const struct sy_kernel *k = &sy_backend_cpu.kernels[i];
        if (k->op != op || !(k->needs & SYCPU_BLAS)) continue;
        cr_assert_eq(sy_backend_cpu.open(&host, blas, &context, &features, text, sizeof text), SY_OK);
        cr_assert_eq(features & k->needs, k->needs);
        return k;
    }
    cr_skip_test("this build has no BLAS (configure --with-blas)");
    return NULL;
}

/* Relative to the sum of the products' magnitudes; an empty slot is exactly 0. */
static void check_blas(int op, const struct shape *s, int leaf)
{
    const struct sy_kernel *blas = blas_kernel(op);
    struct sy_attr_leaf attr = {leaf};
    struct kh k, size;
    void *got[SY_MAX_OUT];
    begin(&k, op, s, &attr, 0);
    begin(&size, op, s, &attr, 0);
    for (int in = 0; in < k.n_in; in++) memcpy(size.in[in].data, k.in[in].data, kh_bytes(&k.in[in]));
    for (int in = 0; in < 2; in++)
        for (int64_t i = 0; i < sycpu_count(&k.in[in]); i++) {
            float *x = (float *)size.in[in].data + i;
            *x = fabsf(*x);
        }
    kh_reference(&k, "blas: reference");
    kh_reference(&size, "blas: magnitudes");
    for (int threads = 1; threads <= 3; threads++) {
        kh_run(&k, blas, threads, got, "blas");
        for (int64_t i = 0; i < sycpu_count(&k.out[0]); i++) {
            double a = ((float *)got[0])[i], b = ((float *)k.want[0])[i];
            cr_assert(fabs(a - b) <= syi_op_info(op)->tolerance * ((float *)size.want[0])[i],
                      "op %d, %d experts, %d threads: element %lld: %a, the reference has %a", op, s->experts,
                      threads, (long long)i, a, b);
        }
        kh_free_guarded(got[0]);
    }
    kh_end(&k);
    kh_end(&size);
}

Test(gemm, blas_agrees_with_the_reference)
{
    static const struct shape plain[] = {{0, 1, 1, 1, 1},    {0, 4, 7, 16, 33},    {0, 2, 43, 29, 96},
                                         {0, 8, 64, 64, 48}, {0, 1, 97, 101, 103}, {0, 1, 2, 40, 500}};
    for (int op = 0; op < 3; op++)
        for (size_t i = 0; i < sizeof plain / sizeof plain[0]; i++) check_blas(plain_ops[op], &plain[i], 1);
}

/* Long runs of filled slots, which the library gets, and short ones, which it does not. */
Test(gemm, blas_agrees_with_the_reference_on_expert_buffers)
{
    static const struct shape grouped[] = {
        {1, 1, 1, 1, 1}, {4, 4, 90, 48, 96}, {3, 2, 200, 20, 33}, {2, 1, 64, 33, 70}, {5, 16, 3, 24, 48}};
    for (int op = 0; op < N_GROUPED; op++)
        for (size_t i = 0; i < sizeof grouped / sizeof grouped[0]; i++)
            check_blas(grouped_ops[op], &grouped[i], 1);
}

/* What nobody thought of. */
Test(gemm, shapes_drawn_at_random)
{
    static const char *const l1[] = {"0", "32768", "49152", "65536"}, *const l2[] = {"0", "524288", "2097152",
                                                                                     "8388608"};
    for (int n = draw_begin(60); n > 0; n--) {
        struct shape s;
        int op = draw_product(&s, 3e5), leaf = draw_leaf(leaf_axis(op, &s));
        setenv("SY_TEST_L1_BYTES", l1[kh_random() % 4], 1);
        setenv("SY_TEST_L2_BYTES", l2[kh_random() % 4], 1);
        check(op, &s, leaf, kh_random() % 4 ? -(int)(kh_random() % 20) : 2, 0);
    }
}
