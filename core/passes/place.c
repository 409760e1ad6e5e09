/* SPDX-License-Identifier: Apache-2.0 */
/* First fit, the largest first, for blocks that live for some ops each: low places are used again and again, so they stay in
 * the caches. What is taken during the life of a block is asked of a
 * tree over the ops: a node knows which bytes blocks take that live through all of its ops, and which those
 * take that live in any of them. Neighbours become one range, so the answer is short where memory is full,
 * and a plan costs little more than its number of blocks. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "passes/place.h"

enum { CHUNK = 32 }; /* ops of a leaf */

struct range {
    uint64_t from, to; /* bytes; to: one past the last */
};

/* In ascending order, apart from each other, but for placing.found. */
struct ranges {
    struct range *at;
    size_t n, capacity;
};

struct node {
    struct ranges through, any;
};

/* The blocks that begin or end among the ops of a leaf. */
struct leaf {
    const struct syi_block **block;
    size_t n, capacity;
};

struct placing {
    struct node *node; /* [2 * n_leaves]: 1 is the root, the children of i are 2 i and 2 i + 1 */
    struct leaf *leaf; /* [n_leaves], a power of two */
    size_t n_leaves;
    struct ranges found, spare; /* taken during the life of the block at hand; room to merge */
    struct sy_error *err;
};

/* ---- ranges ---- */

static int append(struct ranges *ranges, const struct range *more, size_t n, struct sy_error *err)
{
    int status = SYI_GROW(ranges->at, ranges->capacity, ranges->n + n, err);
    if (status) return status;
    if (n) memcpy(ranges->at + ranges->n, more, n * sizeof *more);
    ranges->n += n;
    return SY_OK;
}

static struct range range_of(const struct syi_block *block)
{
    return (struct range){block->offset, syi_add_u64(block->offset, block->bytes)};
}

/* Adds a range, which swallows those that it meets. */
static int add_range(struct ranges *ranges, struct range range, struct sy_error *err)
{
    size_t first = 0, above = ranges->n;
    while (first < above) { /* the first that ends at or after its beginning */
        size_t middle = (first + above) / 2;
        if (ranges->at[middle].to < range.from)
            first = middle + 1;
        else
            above = middle;
    }
    size_t next = first;
    for (; next < ranges->n && ranges->at[next].from <= range.to; next++) {
        if (ranges->at[next].from < range.from) range.from = ranges->at[next].from;
        if (ranges->at[next].to > range.to) range.to = ranges->at[next].to;
    }
    int status = SYI_GROW(ranges->at, ranges->capacity, ranges->n + 1, err);
    if (status) return status;
    memmove(ranges->at + first + 1, ranges->at + next, (ranges->n - next) * sizeof range);
    ranges->at[first] = range;
    ranges->n = ranges->n - (next - first) + 1;
    return SY_OK;
}

/* ---- the tree ---- */

static int lives_in(const struct syi_block *block, size_t first, size_t last)
{
    return block->first <= last && block->last >= first;
}

static int lives_through(const struct syi_block *block, size_t first, size_t last)
{
    return block->first <= first && block->last >= last;
}

/* Enters a placed block below a node of the leaves [leaf, leaf + n). */
static int enter(struct placing *p, size_t node, size_t leaf, size_t n, const struct syi_block *block)
{
    size_t first = leaf * CHUNK, last = (leaf + n) * CHUNK - 1;
    if (!lives_in(block, first, last)) return SY_OK;
    int status = add_range(&p->node[node].any, range_of(block), p->err);
    if (status) return status;
    if (lives_through(block, first, last)) return add_range(&p->node[node].through, range_of(block), p->err);
    if (n == 1) {
        struct leaf *l = &p->leaf[leaf];
        status = SYI_GROW(l->block, l->capacity, l->n + 1, p->err);
        if (!status) l->block[l->n++] = block;
        return status;
    }
    status = enter(p, 2 * node, leaf, n / 2, block);
    return status ? status : enter(p, 2 * node + 1, leaf + n / 2, n / 2, block);
}

/* Appends to p->found what is taken below a node during the life of a block. */
static int collect(struct placing *p, size_t node, size_t leaf, size_t n, const struct syi_block *block)
{
    size_t first = leaf * CHUNK, last = (leaf + n) * CHUNK - 1;
    const struct node *here = &p->node[node];
    if (!lives_in(block, first, last)) return SY_OK;
    if (lives_through(block, first, last)) return append(&p->found, here->any.at, here->any.n, p->err);
    int status = append(&p->found, here->through.at, here->through.n, p->err);
    for (size_t i = 0; n == 1 && i < p->leaf[leaf].n && !status; i++) {
        const struct syi_block *other = p->leaf[leaf].block[i];
        struct range range = range_of(other);
        if (lives_in(other, block->first, block->last)) status = append(&p->found, &range, 1, p->err);
    }
    if (status || n == 1) return status;
    status = collect(p, 2 * node, leaf, n / 2, block);
    return status ? status : collect(p, 2 * node + 1, leaf + n / 2, n / 2, block);
}

/* ---- first fit ---- */

/* The union of two ascending lists; returns its length. */
static size_t merge(const struct range *a, size_t n_a, const struct range *b, size_t n_b, struct range *out)
{
    size_t n = 0;
    for (size_t i = 0, j = 0; i < n_a || j < n_b;) {
        struct range next = j == n_b || (i < n_a && a[i].from <= b[j].from) ? a[i++] : b[j++];
        if (!n || next.from > out[n - 1].to)
            out[n++] = next;
        else if (next.to > out[n - 1].to)
            out[n - 1].to = next.to;
    }
    return n;
}

static size_t run_end(const struct ranges *ranges, size_t at)
{
    while (++at < ranges->n && ranges->at[at - 1].from <= ranges->at[at].from) continue;
    return at < ranges->n ? at : ranges->n;
}

/* Brings what was found, some ascending lists one after the other, into one. */
static int merge_found(struct placing *p)
{
    int status = SYI_GROW(p->spare.at, p->spare.capacity, p->found.capacity, p->err);
    if (status) return status;
    for (size_t lists = 2; lists > 1;) {
        size_t n = 0;
        lists = 0;
        for (size_t i = 0, middle, end; i < p->found.n; i = end, lists++) {
            middle = run_end(&p->found, i);
            end = middle < p->found.n ? run_end(&p->found, middle) : middle;
            n += merge(p->found.at + i, middle - i, p->found.at + middle, end - middle, p->spare.at + n);
        }
        struct ranges merged = p->spare;
        p->spare = p->found;
        p->found = merged;
        p->found.n = n;
    }
    return SY_OK;
}

/* The lowest hole for so many bytes, else the end of all. */
static uint64_t first_fit(const struct ranges *taken, uint64_t bytes)
{
    uint64_t end = 0;
    for (size_t i = 0; i < taken->n; i++) {
        const struct range *range = &taken->at[i];
        if (range->from > end && range->from - end >= bytes) return end;
        if (range->to > end) end = range->to;
    }
    return end;
}

static int place(struct placing *p, struct syi_block *block)
{
    p->found.n = 0;
    int status = collect(p, 1, 0, p->n_leaves, block);
    if (status) return status;
    status = merge_found(p);
    if (status) return status;
    block->offset = first_fit(&p->found, block->bytes);
    return enter(p, 1, 0, p->n_leaves, block);
}

static int compare_blocks(const void *a, const void *b)
{
    const struct syi_block *x = *(struct syi_block *const *)a, *y = *(struct syi_block *const *)b;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? 1 : -1;
    if (x->first != y->first) return x->first < y->first ? -1 : 1;
    return (x > y) - (x < y);
}

static void free_placing(struct placing *p)
{
    for (size_t i = 0; p->node && i < 2 * p->n_leaves; i++) {
        syi_free(p->node[i].through.at);
        syi_free(p->node[i].any.at);
    }
    for (size_t i = 0; p->leaf && i < p->n_leaves; i++) syi_free(p->leaf[i].block);
    syi_free(p->node);
    syi_free(p->leaf);
    syi_free(p->found.at);
    syi_free(p->spare.at);
}

int syi_place_blocks(struct syi_block *block, size_t n, size_t n_ops, uint64_t *end, struct sy_error *err)
{
    struct placing p = {.n_leaves = 1, .err = err};
    while (p.n_leaves * CHUNK < n_ops) p.n_leaves *= 2;
    p.node = syi_alloc(2 * p.n_leaves * sizeof *p.node, err);
    p.leaf = syi_alloc(p.n_leaves * sizeof *p.leaf, err);
    struct syi_block **order = syi_alloc(n * sizeof *order, err);
    int status = p.node && p.leaf && order ? SY_OK : SY_ENOMEM;
    for (size_t i = 0; !status && i < n; i++) order[i] = &block[i];
    if (!status) qsort(order, n, sizeof *order, compare_blocks);
    *end = 0;
    for (size_t i = 0; !status && i < n; i++) {
        status = place(&p, order[i]);
        uint64_t after = range_of(order[i]).to;
        if (after > *end) *end = after;
    }
    syi_free(order);
    free_placing(&p);
    return status;
}
