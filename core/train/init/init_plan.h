/* SPDX-License-Identifier: Apache-2.0 */
/* Which tensor of another run each parameter takes, and how: from names and shapes alone, the same on every rank. */
#ifndef SYI_TRAIN_INIT_PLAN_H
#define SYI_TRAIN_INIT_PLAN_H

#include "base/run_config.h"
#include "base/safetensors.h"
#include "model/model.h"

enum syi_take {
    SYI_TAKE_NOTHING, /* stays as drawn from the seed */
    SYI_TAKE_SAME,    /* the tensor */
    SYI_TAKE_COPIES,  /* the tensor, for each expert */
    SYI_TAKE_EXPERT,  /* one expert of the tensor */
    SYI_TAKE_MEAN     /* the mean of its experts */
};
struct syi_taken {
    enum syi_take how;
    /* Of the file. With SYI_TAKE_NOTHING: what has the name, but another shape; NULL: there is nothing. */
    const struct syi_safetensors_tensor *from;
    int64_t expert; /* SYI_TAKE_EXPERT: its number */
};

struct syi_init_plan {
    struct syi_taken *param; /* [model->n] as model->param */
    uint8_t *used;           /* [file->n_tensors] 1: some parameter takes it */
};

/* file: the parameters of the other run, "target/NAME" or "NAME". SY_EINVAL, SY_EMISMATCH: a rule is about no tensor, two
 * tensors come to one name, a parameter gets nothing or another shape (and train->init_missing is error), a key was
 * given for nothing. The caller frees the plan, on failure too. */
int syi_init_plan(const struct syi_train_part *train, const struct syi_model *model,
                  const struct syi_safetensors *file, struct syi_init_plan *plan,
                  struct sy_error *err) SYI_MUST_CHECK;
void syi_init_plan_free(struct syi_init_plan *plan); /* safe when zeroed */

/* NAME of "target/NAME". */
const char *syi_init_name(const struct syi_safetensors_tensor *tensor);
/* "[4,32,64]" */
enum { SYI_SHAPE_TEXT = 200 };
void syi_init_shape(int rank, const int64_t *dims, char text[SYI_SHAPE_TEXT]);

/* ---- init_read.c ---- */

/* Reads this rank's part of what parameters take, in float32, into the session's memory: the parameters, and the
 * averages and iterates of optimizers that begin as they do. */
struct syi_session;
int syi_init_read(const struct syi_init_plan *plan, const struct syi_model *model,
                  struct syi_session *session, const struct syi_safetensors *file,
                  struct sy_error *err) SYI_MUST_CHECK;

#endif
