/* SPDX-License-Identifier: Apache-2.0 */
/* Attention and its gradient over extents of any size together: rows, heads, columns of a head, queries and keys of one, of few
 * and of one more than what the kernels take at a time, in all orders, for everything that may decide what a query sees. */
#include "config.h"

#include "attention_case.h"
#include "extent_case.h"

static void check_in(struct kh *k, int dtype, const char *what)
{
    struct kh half;
    if (dtype == SY_F32) {
        kh_check_fast(k, SY_F32, SY_F32, what);
        return;
    }
    cr_assert(kh_half_of(k, SY_BF16, SY_BF16, &half));
    kh_check_fast(&half, SY_BF16, SY_BF16, what);
    kh_forget(&half);
}

static void check_case(const struct shape *s)
{
    struct sy_attr_attention attr = attr_of(s);
    struct kh forward, backward;
    char what[200];
    snprintf(what, sizeof what,
             "self %d b %d tq %d tk %d h %d K %d blocks %d causal %d buckets %d drop %d position %d "
             "no lengths %d segments %d mask %d dense %d uniform %d",
             s->self, s->rows, s->queries, s->keys, s->heads, s->head_dim, s->blocks, s->causal, s->buckets,
             s->dropout, s->position, s->no_lengths, s->segments, s->mask, s->dense, s->uniform);
    add_forward(&forward, s, &attr, 0);
    check_in(&forward, SY_F32, what);
    check_in(&forward, SY_BF16, what);
    if (!s->position) {
        add_backward(&backward, &forward, s->self);
        check_in(&backward, SY_F32, what);
        check_in(&backward, SY_BF16, what);
        kh_forget(&backward);
    }
    kh_forget(&forward);
}

static const struct shape forms[] = {
    {.no_lengths = 1},
    {.buckets = 32, .dropout = 1},
    {.causal = 1, .buckets = 8},
    {.causal = 1, .no_lengths = 1, .dropout = 1},
    {.no_lengths = 1, .segments = 1, .buckets = 16, .dropout = 1},
    {.segments = 2, .causal = 1, .uniform = 1},
    {.mask = 1, .uniform = 1, .buckets = 8},
    {.mask = 1, .causal = 1, .segments = 1, .no_lengths = 1},
    {.causal = 1, .uniform = 1, .dropout = 1},
    {.dense = 1, .buckets = 8},
    {.causal = 1, .buckets = 32, .position = 40},
};
enum { FORMS = sizeof forms / sizeof *forms, MANY = 10000 };

/* All forms of one head of one row, of more half of them each, of large extents a quarter. Self-attention where it can be; packs
 * of one block and of one a head. */
static void check_forms(int rows, int heads, int head_dim, int queries, int keys)
{
    const int64_t multiplications = (int64_t)rows * heads * head_dim * queries * keys;
    int step = rows * heads > 1 ? 2 : 1;
    if (multiplications > MANY) step = 4;
    for (int i = (rows + heads + head_dim / 2 + queries / 2 + keys) % step; i < FORMS; i += step) {
        struct shape s = forms[i];
        s.rows = rows, s.heads = heads, s.head_dim = head_dim, s.queries = queries, s.keys = keys;
        s.self = queries == keys && !s.position && i % 3;
        s.blocks = i % 4 ? heads : 1;
        check_case(&s);
    }
}

/* 16 columns are a vector, four of which go together where there is one query; 6 or 8 queries go together, 16 are a tile and 64 a
 * panel of them; 64 keys are a block. */
static const int head_dims[] = {1, 3, 17, 65}, some_queries[] = {1, 3, 9, 65}, some_keys[] = {1, 3, 65, 129};
enum { SIZES = 4 };

static void check_orders(int rows, int heads)
{
    for (int i = 0; i < SIZES * SIZES * SIZES; i++)
        check_forms(rows, heads, head_dims[i % SIZES], some_queries[i / SIZES % SIZES],
                    some_keys[i / SIZES / SIZES]);
}

Test(attention_extents, of_one_head)
{
    check_orders(1, 1);
    check_orders(4, 1);
}

Test(attention_extents, of_several_heads)
{
    check_orders(1, 3);
    check_orders(3, 3);
}
