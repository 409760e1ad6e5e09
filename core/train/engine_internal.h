/* SPDX-License-Identifier: Apache-2.0 */
/* The engine's own structure, shared by engine_bind.c (making it) and engine.c (running it). */
#ifndef SYI_ENGINE_INTERNAL_H
#define SYI_ENGINE_INTERNAL_H

#include "train/engine.h"
#include "train/pipeline.h"

/* A batch side bound for one bucket. NULL where the use does not need it. */
struct syi_bucket_inputs {
    const struct sy_tensor *encoder_ids, *decoder_inputs, *decoder_targets, *loss_weights;
    const struct sy_tensor *input_lengths, *target_lengths;
};

/* One bucket's programs: indices in the session, -1 where not bound. */
struct syi_bucket_programs {
    int program[SYI_WHICH_COUNT];
    struct syi_bucket_inputs train, eval;
};

struct syi_moe_layer {
    char name[160];
    const struct sy_tensor *chosen, *kept;
};

struct syi_engine {
    struct syi_config config;
    struct syi_rank rank;
    struct syi_params params;
    struct syi_session *session;
    struct syi_bucket bucket[SYI_MAX_BUCKETS];
    struct syi_bucket_programs bound[SYI_MAX_BUCKETS];
    int n_buckets, use, update;
    int64_t train_rows, eval_rows; /* of a run of a program, over all ranks */
    int64_t groups;                /* routing groups of a microbatch */
    struct syi_moe_layer moe[SYI_MAX_MOE_LAYERS];
    int n_moe;
    int64_t *counts; /* (n_moe, experts, 2) chosen and kept of the last step */
    const struct sy_tensor *rng, *loss_norm, *input_norm, *target_norm, *learning_rate, *correction1,
        *correction2;
    const struct sy_tensor *loss_sum, *z_sum, *correct_sum, *auxiliary_loss, *router_z_loss, *grad_norm, *ok;
    const struct sy_tensor *token, *position, *lengths, *next;
    uint8_t *finished; /* (eval_rows) decoding */
};

struct syi_shape syi_engine_shape(const struct syi_engine *engine, int bucket, int which);

#endif
