/* SPDX-License-Identifier: Apache-2.0 */
/* Cases of .json files about an optimizer's state: parameters given by shapes and axes, the tree of their state, and
 * its leaves as the reference lists them. */
#ifndef VERIFY_OPTIM_TREE_H
#define VERIFY_OPTIM_TREE_H

#include "optim/state_tree.h"
#include "verify/optim_case.h"
#include "verify/rows.h"

enum { VERIFY_TREE_PARAMS = 64 }; /* most of a case */

struct verify_tree {
    struct verify_case item; /* the row's: its configuration in place of the file's; borrowed */
    struct verify_optim o;
    struct syi_program *update;
    /* of each parameter, T5X's: a scalar has no dims there */
    int rank[VERIFY_TREE_PARAMS];
    const char *axis[VERIFY_TREE_PARAMS][SY_MAX_DIMS]; /* borrowed from the case */
    int has_axes[VERIFY_TREE_PARAMS];
};

/* A row whose configuration is that object of the case. Large: the caller frees it with verify_tree_free. */
struct verify_tree *verify_tree_new(const struct verify_case *c, uint32_t config, struct sy_error *err);
void verify_tree_free(struct verify_tree *t); /* may be NULL */
/* A parameter. axes: a list of names in the case, SYI_JSON_NONE: it has none. */
int verify_tree_param(struct verify_tree *t, const char *name, int rank, const int64_t *dim, uint32_t axes,
                      struct sy_error *err) SYI_MUST_CHECK;
/* All parameters of an object with their shapes; axes: an object with their axes, or SYI_JSON_NONE. */
int verify_tree_params(struct verify_tree *t, uint32_t shapes, uint32_t axes,
                       struct sy_error *err) SYI_MUST_CHECK;
/* Records the update program of o.config and makes the tree. */
int verify_tree_record(struct verify_tree *t, struct sy_error *err) SYI_MUST_CHECK;

/* {PATH: {"dtype": ..., "shape": [...]}} */
void verify_tree_put_leaves(const struct verify_tree *t, struct syi_json_writer *answer);
/* {PATH: [axes] or null}, or the error of a state whose axes T5X cannot derive. */
void verify_tree_put_axes(const struct verify_tree *t, struct syi_json_writer *answer);
/* [PATH, ...] */
void verify_tree_put_paths(const struct verify_tree *t, struct syi_json_writer *answer);
/* The shape of that leaf. */
void verify_tree_put_shape(const struct verify_tree *t, const struct syi_leaf *leaf,
                           struct syi_json_writer *answer);
/* Whether the leaf is one of T5X's tree: a state without leaves is not, nor an accumulator of a scalar's only dim. */
int verify_tree_shows(const struct verify_tree *t, const struct syi_leaf *leaf);

#endif
