/* SPDX-License-Identifier: Apache-2.0 */
/* Optimizers as chains of transforms, as optax composes them: a transform takes the update of one parameter
 * (at first its gradient) and records the ops that turn it into another, making state tensors as it needs them. So
 * an optimizer costs no backend code, and fuse makes one pass over memory of a whole chain.
 *
 * The data flow: a part of [optimizer] has a name, whose chain registry.c writes, or a chain of its own; chain.c records
 * the chain of each part for all parameters of the part; update.c puts norm, clipping and parts together. What depends
 * on the step alone (corrections, rates) is computed by the host, in double, and put into inputs [1] before each step. */
#ifndef SYI_OPTIM_H
#define SYI_OPTIM_H

#include "base/optimizers.h"
#include "base/transforms.h"
#include "optim/schedule.h"
#include "program/program.h"

/* ---- chains ---- */

/* A part of [optimizer], ready to be recorded. */
struct syi_chain {
    const struct syi_optimizer_part *options; /* borrowed from the configuration */
    struct syi_terms terms;                   /* by the numbers of transforms.def */
    struct syi_schedule *rate;                /* of its own; NULL: that of the run */
    struct syi_schedule *schedule[SYI_TERMS]; /* of a term scale_by_schedule, else NULL */
};

/* chain.c: one for each part of config->optimizer, in their order; config stays where it is. The caller frees *chains
 * with syi_chains_free. */
int syi_chains_make(const struct syi_config *config, struct syi_chain **chains,
                    struct sy_error *err) SYI_MUST_CHECK;
void syi_chains_free(struct syi_chain *chains, int n); /* chains may be NULL */
/* registry.c: the chain of an optimizer by name, its options resolved. */
void syi_optimizer_chain(const struct syi_optimizer_part *resolved, struct syi_terms *terms);

/* ---- what the host sets for each step ---- */

enum {
    SYI_HOST_VALUES = 4, /* most of a term */
    SYI_OPTIM_SCALARS = SYI_CONFIG_PARTS * SYI_TERMS * SYI_HOST_VALUES
};
/* The learning rate of a part at a step (from 0): its own, else that of the run, `rate`. */
double syi_chain_rate(const struct syi_chain *chain, int64_t step, double rate);
/* Values of the step (from 0) for all terms of all parts, by the numbers of their inputs (role OPTIM_SCALAR); rate:
 * that of the run; factor: of it and of the rates that parts have of their own. */
void syi_optim_scalars(const struct syi_config *config, const struct syi_chain *chains, int64_t step,
                       double rate, double factor, float value[SYI_OPTIM_SCALARS]);

struct syi_optim_time {
    int64_t step;                        /* from 0, counted as the term's own updates */
    double rate;                         /* learning rate */
    const struct syi_schedule *schedule; /* of the term, NULL: it has none */
};

/* ---- recording a transform ---- */

/* Bytes of a place in T5X's tree, see syi_term_path: "/23/inner_opt_state" for each level. */
enum { SYI_TERM_PATH = SYI_TERMS * 20 };

/* The parameters of a part, and where they are in its chain. */
struct syi_optim;
struct syi_group {
    struct syi_program *p;
    const struct syi_chain *chain;
    int part;                                      /* number of the part */
    int ok;                                        /* [1]: 0 where nothing may be written */
    int n;                                         /* parameters */
    int (*inner)(struct syi_optim *o, int update); /* records what the term at hand holds */
    int64_t rows;             /* of the batch of a step, over all ranks and microbatches */
    const int *tensor;        /* [n] the parameters */
    const uint32_t *id;       /* [n] their ids in the model */
    int *update;              /* [n] their updates at this place of the chain */
    int shared[SYI_TERMS];    /* what `shared` of a term returned, -1: nothing */
    int noise;                /* 1: normal numbers are inputs of role NOISE, and not drawn */
    int term;                 /* whose `shared` is being recorded */
    char path[SYI_TERM_PATH]; /* of that term */
};

/* One parameter's way through a chain. */
struct syi_optim {
    struct syi_group *group;
    struct syi_program *p;
    int parameter; /* tensor */
    uint32_t id;   /* of the parameter in the model */
    int ok;        /* [1]: 1 where state may be written */
    int term;      /* being recorded, index in the chain */
    char path[SYI_TERM_PATH];
};

/* What a transform has in T5X's tree of state: the fields of its state in optax. */
enum syi_field_kind {
    SYI_FIELD_SLOT,        /* a tensor for each parameter, shaped like it */
    SYI_FIELD_AXES,        /* one for each dim of each parameter */
    SYI_FIELD_FLAGS,       /* a truth value for each parameter, our tensor of one element */
    SYI_FIELD_INTEGER,     /* an integer, our tensor [1] */
    SYI_FIELD_FLAG,        /* a truth value, our tensor [1] */
    SYI_FIELD_REAL,        /* a number, our tensor [1] */
    SYI_FIELD_COUNT,       /* how many updates it has made: `count` */
    SYI_FIELD_INNER_COUNT, /* how many those have made that it holds: `inner_step` */
    SYI_FIELD_RATE_COUNT,  /* as COUNT, where the learning rate depends on the step */
    SYI_FIELD_KEY,         /* of random numbers, which are made otherwise here */
    SYI_FIELD_NUMBERS,     /* the numbers that those are given that it holds */
    SYI_FIELD_INNER        /* the state of what it holds */
};
struct syi_field {
    const char *name;
    enum syi_field_kind kind;
};
enum { SYI_FIELDS = 6 }; /* most of a transform, and one more */

struct syi_transform {
    /* Records the transform of one update; returns the new one. arguments: struct syi_transform_NAME. */
    int (*record)(struct syi_optim *o, const void *arguments, int update);
    /* Values of a step for syi_optim_scalar; NULL: none. */
    void (*host)(const void *arguments, const struct syi_optim_time *time, double value[SYI_HOST_VALUES]);
    /* Recorded once for all parameters of the part, before the transform of each: what it takes of all updates together
     * (a norm); returns a tensor [1], -1 for nothing. NULL: there is no such thing. Not inside other terms. */
    int (*shared)(struct syi_group *group, const void *arguments);
    /* Whether `shared` is needed with these arguments; NULL: always. */
    int (*shares)(const void *arguments);
    /* Of what holds others: the step that they count, from that of the term itself; NULL: the same. */
    int64_t (*inner_step)(const void *arguments, int64_t step);
    struct syi_field state[SYI_FIELDS]; /* in T5X's tree, up to one without a name */
    /* What stands there as its count after so many steps; NULL: the steps. */
    int64_t (*count)(const void *arguments, int64_t step);
};
/* One for each row of transforms.def, in the file that has the transform: syi_transform_row_NAME. */
#define SY_TERM_BEGIN(name, inner, help) extern const struct syi_transform syi_transform_row_##name;
#define SY_ARGUMENT(name, key, type, value, range, help)
#define SY_TERM_END(name)
#include "base/transforms.def"
#undef SY_TERM_BEGIN
#undef SY_ARGUMENT
#undef SY_TERM_END

/* chain.c */
const struct syi_transform *syi_transform_of(const struct syi_term *term);
/* Where the state of a term stands below state/param_states in T5X's tree: "0", "1/inner_state/0". What is alone in
 * another term has no number of its own, nor has a whole chain that is one term which holds others: in optax that is
 * the optimizer itself, multi_steps(adam(...)). */
void syi_term_path(const struct syi_terms *terms, int term, char path[SYI_TERM_PATH]);
/* Records the whole chain of the group: for each parameter i, `enter` gives what the chain begins with, `leave` gets
 * what it ends with. */
void syi_record_chain(struct syi_group *group, int (*enter)(void *arg, int i),
                      void (*leave)(void *arg, int i, int update), void *arg);
/* state.c */
uint32_t syi_optim_scalar_number(int part, int term, int slot); /* of its role OPTIM_SCALAR */
/* The input [1] with host value `slot` of the term at hand. */
int syi_optim_scalar(struct syi_optim *o, int slot);
int syi_group_scalar(struct syi_group *group, int term, int slot);
const char *syi_optim_name(const struct syi_optim *o); /* of the parameter */
/* State "state/param_states/PATH/NAME/PARAMETER" (optax in T5X's tree), shaped like the parameter; every element is
 * `initial` at first. */
int syi_optim_state(struct syi_optim *o, const char *name, double initial);
/* The same with the dims of `ones` 1 long; tail: after the parameter's name, "" or "/0". */
int syi_optim_state_of(struct syi_optim *o, const char *name, const char *tail, unsigned ones,
                       double initial);
/* State [1] of the term for all parameters, "state/param_states/PATH/NAME". */
int syi_group_state(struct syi_group *group, const char *name);
/* Writes `value` to persistent tensor `to` if the step is ok, else keeps it. */
void syi_optim_store(struct syi_optim *o, int value, int to);
void syi_group_store(struct syi_group *group, int value, int to);

/* ---- arithmetic that transforms share (arithmetic.c) ---- */

int syi_square(struct syi_program *p, int x);
int syi_sign(struct syi_program *p, int x);      /* -1, 0 or 1 */
int syi_is_number(struct syi_program *p, int x); /* 0 where it is NaN, else 1 */
/* max(x, least) and min(x, most); NaN stays NaN */
int syi_at_least(struct syi_program *p, int x, double least);
int syi_at_most(struct syi_program *p, int x, double most);
/* decay old + (1 - decay) value */
int syi_moving_mean(struct syi_program *p, int old, int value, double decay);
int syi_tensor_norm(struct syi_program *p, int x); /* [1], over the whole tensor */
/* Over the dims, which become 1 long; op: SY_OP_BLOCK_SUM, or SY_OP_BLOCK_SUMSQ for the mean of squares. */
int syi_mean_over(struct syi_program *p, enum sy_op op, int x, unsigned dims);
int syi_root_mean_square(struct syi_program *p, int x, unsigned dims);
/* 1 / sqrt(sum + eps), 0 where the sum is 0: nothing came yet */
int syi_inverse_root(struct syi_program *p, int sum, double eps);
/* Writes `value` to persistent tensor `to` where ok [1] is 1, else keeps it. */
void syi_store_where(struct syi_program *p, int ok, int value, int to);

/* ---- update.c ---- */

/* The program of a step: gradient norm over all parameters, finite check, clipping, the chain of each part, the
 * parameters. Two parts that match the same parameter are refused (SY_EMISMATCH). By role: GRADIENT, GRADIENT_BLOCKS where
 * these are carried, DIRECTION of expert biases and OPTIM_SCALAR come in; the values GRAD_NORM and OK of the step come out. */
struct syi_model;
struct syi_update_options {
    const struct syi_config *config;
    const struct syi_model *model;
    const uint32_t *leaf_count; /* [SYI_AXIS_COUNT] */
    int noise;                  /* as of struct syi_group */
    int carried; /* 1: grad programs leave the blocks of the norm; 0: it is summed from the gradients */
    int weigh;   /* 1: program update_metrics, which leaves the outputs of weight_metrics.h besides */
};
int syi_record_update(const struct syi_update_options *options, struct syi_program **program,
                      struct sy_error *err) SYI_MUST_CHECK;

/* The program that lets parameters and their averages (role AVERAGE of the update program) change places; NULL where
 * there is no average. The caller frees it. */
int syi_record_exchange(const struct syi_program *update, struct syi_program **program,
                        struct sy_error *err) SYI_MUST_CHECK;

/* Whether there may be one, without recording anything: an optimizer that averages may have no parameter. */
int syi_chains_average(const struct syi_chain *chains, int n);

/* ---- patterns.c ---- */

/* A parameter that two named optimizers match: SY_EMISMATCH names it and both patterns. */
int syi_check_overlaps(const struct syi_config *config, const struct syi_model *model,
                       struct sy_error *err) SYI_MUST_CHECK;
/* Logs a warning for each pattern of [optimizer], also in masks, rules and chains, that no parameter has, with the nearest
 * names. */
void syi_warn_of_patterns(const struct syi_config *config, const struct syi_model *model);

/* What the gradient of a parameter is multiplied by before anything else: 1, or as MoeTrainer (T5X,
 * contrib/moe/trainer.py) the number of experts for expert weights. */
double syi_gradient_scale(const struct syi_config *config, const char *name);

#endif
