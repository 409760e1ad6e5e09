/* SPDX-License-Identifier: Apache-2.0 */
/* T5X's tree of a run: the leaves of its state_dict, parameters below target/ and the optimizer's state below state/.
 * Our update program holds most of them as tensors; counts, keys of random numbers and slots that Adafactor does not
 * use are leaves there that are no tensors here. Source: t5x optimizers.py, adafactor.py; optax 0.1.2.
 *
 *   one optimizer               state/param_states/1/mu/PARAMETER         a chain has numbers, see syi_term_path
 *   several of optax            state/param_states/inner_states/PART/inner_state/...      optax.multi_transform
 *   Adafactor, one or several   state/param_states/PARAMETER/v_row        several: T5X's MultiOptimizer */
#ifndef SYI_STATE_TREE_H
#define SYI_STATE_TREE_H

#include "base/safetensors.h"
#include "model/model.h"
#include "optim/optim.h"

enum syi_leaf_kind {
    SYI_LEAF_TENSOR, /* a tensor of the program */
    SYI_LEAF_STEP,   /* steps done */
    SYI_LEAF_COUNT,  /* follows from the steps, see syi_leaf_count */
    SYI_LEAF_ZERO,   /* 0 always */
    SYI_LEAF_KEY,    /* of random numbers that are made otherwise here: anything may stand there */
    SYI_LEAF_NUMBER, /* an argument of the run file */
    SYI_LEAF_RATE,   /* the learning rate */
    SYI_LEAF_NONE,   /* of a parameter that has no such state: in T5X's tree, in no file */
    SYI_LEAF_EMPTY   /* a state without leaves: the same */
};

struct syi_leaf {
    char *path;   /* owned: "state/param_states/0/mu/decoder/layers_0/mlp/wi/kernel" */
    char *tensor; /* owned: its name in the program; NULL: it is none */
    enum syi_leaf_kind kind;
    enum syi_safetensors_dtype dtype; /* in files of T5X */
    int64_t param;                    /* index in the model of the parameter it belongs to; -1: to none */
    unsigned dims;                    /* those of the parameter's dims that it has, a bit each */
    int64_t length;                   /* of one that belongs to no dims: [length]; 0: it is a scalar */
    int axes;                         /* 1: T5X gives it the logical axes of the parameter, 0: none */
    size_t name, name_end;            /* where the parameter's name stands in path; both 0: nowhere */
    int part, term;                   /* of a COUNT */
    enum syi_field_kind field;        /* of a COUNT; of a tensor that is no SLOT */
    double number;                    /* of a NUMBER */
};

struct syi_state_tree {
    struct syi_leaf *leaf; /* [n] in the order of their paths */
    size_t n, capacity;
    int adafactor; /* 1: of T5X's own Adafactor, 0: of optax */
};

/* The tree of the run that config says: model with the parameters in the order of their names, chains of config and
 * the update program as syi_record_update made it. SY_EINVAL: nothing is optimized; SY_EUNSUPPORTED: T5X has no such
 * optimizer (Adafactor beside others). The caller frees the tree with syi_state_tree_free, after a failure too. */
int syi_state_tree(const struct syi_config *config, const struct syi_chain *chains,
                   const struct syi_model *model, const struct syi_program *update,
                   struct syi_state_tree *tree, struct sy_error *err) SYI_MUST_CHECK;
void syi_state_tree_free(struct syi_state_tree *tree);

/* The extents of a leaf in T5X's files; returns the rank. */
int syi_leaf_shape(const struct syi_leaf *leaf, const struct syi_model *model, int64_t dim[SY_MAX_DIMS]);
/* What stands in a COUNT after so many steps of the run. */
int64_t syi_leaf_count(const struct syi_leaf *leaf, const struct syi_chain *chains, int64_t step);

/* Whether a file with leaves of these paths holds the tree, as T5X decides it when it restores: names only. A
 * parameter more than there are in the model is ignored, as is what stands below a state without leaves; SY_ENOENT:
 * no target or no state at all, SY_EINVAL: another difference, the first by path. */
int syi_state_tree_fits(const struct syi_state_tree *tree, const char *const *path, size_t n,
                        struct sy_error *err) SYI_MUST_CHECK;

#endif
