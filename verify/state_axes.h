/* SPDX-License-Identifier: Apache-2.0 */
/* Logical axes of everything T5X saves of a run: parameters under target/, the optimizer's state under
 * state/. Named and split as T5X does it, factored second moments of experts included. */
#ifndef SYI_STATE_AXES_H
#define SYI_STATE_AXES_H

#include "base/base.h"

enum { SYI_STATE_RANK = 8, SYI_STATE_PATH = 256 };

struct syi_named_param {
    const char *path; /* "decoder/layers_0/mlp/wi/kernel", borrowed, as the axes are */
    int rank;
    int64_t dim[SYI_STATE_RANK];
    const char *axis[SYI_STATE_RANK];
};

/* What an optimizer keeps. */
struct syi_state_form {
    int adafactor;              /* v_row, v_col, v and m of each parameter; else the slots below */
    int factored, has_momentum; /* of Adafactor: factored, and beta1 is neither None nor 0 */
    int64_t min_dim_size_to_factor;
    const char *const *scalar; /* one value each, NULL-terminated; "0/count" */
    const char *const *slot;   /* one array like each parameter, NULL-terminated; "0/mu" */
    int no_optimizer;          /* parameters and the step only: T5X's InferenceState */
};

/* One leaf. Axes are those of a parameter (or none), with expert in front where `expert` is set. */
struct syi_state_leaf {
    char path[SYI_STATE_PATH];
    const struct syi_named_param *param; /* NULL: None */
    int expert;
};

struct syi_state_axes {
    struct syi_state_leaf *leaf;
    size_t n, capacity;
};

/* Which state is split over experts although its own axes do not say so: MoePjitPartitioner's filter. */
struct syi_state_filter {
    int moe;                                   /* 0: no filter at all (PjitPartitioner) */
    int (*match)(void *arg, const char *path); /* path below state/param_states; NULL: T5X's own choice,
                                                  factored moments of expert kernels */
    void *arg;
};

/* Parameters have unique paths. Errors of the reference: SY_EINVAL for a state without an inferred filter or
 * a parameter that no factor rule fits, SY_ENOENT for an axis without factor rule and for state that is not
 * there. On success the caller frees axes. */
int syi_state_axes(const struct syi_named_param *param, size_t n, const struct syi_state_form *form,
                   const struct syi_state_filter *filter, struct syi_state_axes *axes,
                   struct sy_error *err) SYI_MUST_CHECK;
void syi_state_axes_free(struct syi_state_axes *axes);

#endif
