/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a file has the leaves of a tree, as flax and T5X's OptaxWrapper.restore_state decide it. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "optim/state_tree.h"

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int has_below(const char *const *path, size_t n, const char *top)
{
    for (size_t i = 0; i < n; i++)
        if (!strncmp(path[i], top, strlen(top)) && path[i][strlen(top)] == '/') return 1;
    return 0;
}

/* How much of both, in whole names, is the same. */
static size_t common(const char *a, const char *b)
{
    size_t i = 0, end = 0;
    for (; a[i] == b[i] && a[i]; i++)
        if (a[i] == '/') end = i;
    return (!a[i] || a[i] == '/') && (!b[i] || b[i] == '/') ? i : end;
}

/* The leaf that has most names in common with the path: of sorted ones a neighbour. */
static const struct syi_leaf *nearest(const struct syi_state_tree *tree, const char *path)
{
    size_t low = 0, high = tree->n;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (strcmp(tree->leaf[middle].path, path) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == tree->n) return &tree->leaf[low - 1];
    if (low && common(tree->leaf[low - 1].path, path) > common(tree->leaf[low].path, path)) low--;
    return &tree->leaf[low];
}

static int is_in_files(const struct syi_leaf *leaf)
{
    return leaf->kind != SYI_LEAF_NONE && leaf->kind != SYI_LEAF_EMPTY;
}

/* A path of the file that is not looked for. Where parameters stand side by side, more of them do no harm. */
static int judge_other(const struct syi_state_tree *tree, const char *path, struct sy_error *err)
{
    const struct syi_leaf *leaf = nearest(tree, path);
    size_t same = common(leaf->path, path);
    if (!same || !strcmp(leaf->path, path)) return SY_OK;
    if (!leaf->path[same] && leaf->kind == SYI_LEAF_EMPTY) return SY_OK;
    if (leaf->name_end && same + 1 >= leaf->name && same < leaf->name_end) return SY_OK;
    return syi_error(
        err, SY_EINVAL,
        "state of another optimizer: it has %s, which the run file's has not: its place %.*s holds "
        "%s, for example",
        path, (int)same, path, leaf->path);
}

int syi_state_tree_fits(const struct syi_state_tree *tree, const char *const *path, size_t n,
                        struct sy_error *err)
{
    static const char *const tops[] = {"target", "state"};
    int status = SY_OK;
    for (int i = 0; i < 2; i++)
        if (!has_below(path, n, tops[i]))
            return syi_error(err, SY_ENOENT, "it has nothing below %s/: no checkpoint of T5X", tops[i]);
    const char **sorted = syi_alloc(n * sizeof *sorted, err);
    if (!sorted) return SY_ENOMEM;
    memcpy(sorted, path, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, by_text);
    for (size_t i = 0; i < tree->n && !status; i++) {
        const char *wanted = tree->leaf[i].path;
        if (is_in_files(&tree->leaf[i]) && !bsearch(&wanted, sorted, n, sizeof *sorted, by_text))
            status = syi_error(err, SY_EINVAL, "state of another optimizer or model: it lacks %s", wanted);
    }
    for (size_t i = 0; i < n && !status; i++) status = judge_other(tree, sorted[i], err);
    syi_free(sorted);
    return status;
}
