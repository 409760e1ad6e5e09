/* SPDX-License-Identifier: Apache-2.0 */
/* Cases of optimizers: parameters that a case brings, the update program of a configuration, steps on the gradients of
 * the case. Shared by the kinds optimizer, multi_optimizer and optimizer_state. */
#ifndef VERIFY_OPTIM_CASE_H
#define VERIFY_OPTIM_CASE_H

#include "model/model.h"
#include "optim/state_tree.h"
#include "verify/verify.h"

struct verify_optim {
    const struct verify_case *item;
    struct syi_config config;
    struct syi_model model; /* the parameters of the case: its tensors init/target/..., or its shapes */
    struct syi_chain *chains;
    struct syi_state_tree tree;
    struct syi_session *session;
    int64_t first_step, steps;
    int64_t examples;    /* of a step, whose gradients the case has one by one; 0: it has their sum */
    int clipping[2];     /* programs that clip an example and store it, or add it */
    const double *rates; /* [steps] of the run; owned */
};

/* ---- optim_read.c ---- */

/* A number of the configuration, or another where it is not there. */
double verify_optim_number(const struct verify_case *c, const char *key, double otherwise);
/* The trainer's learning rate of each of o->steps: one a step in the tensors, or the same for all. */
int verify_optim_rates(struct verify_optim *o, struct sy_error *err) SYI_MUST_CHECK;
/* The optimizer of that name with the arguments, chain and schedule of the case's configuration, all
 * under compat = t5x. */
int verify_optim_read(struct verify_optim *o, const char *name, struct sy_error *err) SYI_MUST_CHECK;
/* ---- optim_case.c ---- */

/* Sets option KEY of the part (a name, or "" for [optimizer]) to the case's key PREFIX + KEY for each option that the
 * case has; masks, maps of rules and patterns are taken from T5X's form. */
int verify_optim_options(struct verify_optim *o, const char *part, const char *prefix,
                         struct sy_error *err) SYI_MUST_CHECK;
/* "optimizer.PART.KEY=VALUE" */
int verify_optim_set(struct verify_optim *o, const char *part, const char *key, const char *value,
                     struct sy_error *err) SYI_MUST_CHECK;
/* Patterns of a run file, ["a", "b"], for a regular expression: alternatives of letters, digits, '_', '/', '^', '$' and
 * ".*", or the one "^(?!.*X)". */
int verify_patterns(const char *regex, struct syi_text *patterns, struct sy_error *err) SYI_MUST_CHECK;
/* Adds a parameter; NULL when there is no memory. */
struct syi_param *verify_optim_param(struct verify_optim *o, const char *name, struct sy_error *err);
/* The axis of that name, or one that has its role in Adafactor's rules. */
uint8_t verify_optim_axis(const char *name);
/* Parameters and programs, by config as it is now. */
int verify_optim_open(struct verify_optim *o, const struct verify_context *context,
                      struct sy_error *err) SYI_MUST_CHECK;
/* All steps, each compared with the tensors of the case. */
int verify_optim_run(struct verify_optim *o, struct verify_report *report,
                     struct sy_error *err) SYI_MUST_CHECK;
void verify_optim_close(struct verify_optim *o);

#endif
