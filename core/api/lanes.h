/* SPDX-License-Identifier: Apache-2.0 */
/* Calls on a model that run at the same time: each has a lane of its own, with a predictor, threads and a backend. All
 * lanes read the weights of the first one. */
#ifndef SYI_LANES_H
#define SYI_LANES_H

#include <pthread.h>

#include "train/launch/launch.h"
#include "train/predict/predictor.h"

/* What one call at a time works with. */
struct syi_lane {
    struct syi_alone alone;
    struct syi_predictor *predictor;
};

struct syi_lanes {
    pthread_mutex_t mutex;  /* around what follows; not around what a lane has */
    pthread_cond_t left;    /* a call gave its lane back */
    struct syi_lane **lane; /* [most] the first has the weights and is always there; NULL: not opened yet */
    uint8_t *taken;         /* [most] by a call */
    int most;
};

/* Room for `most` lanes, from 1 on, and the first of them, without predictor and threads: the caller opens these. Closed by
 * the caller, also after a failure. */
int syi_lanes_open(struct syi_lanes *lanes, int most, struct sy_error *err) SYI_MUST_CHECK;
void syi_lanes_close(struct syi_lanes *lanes);
/* *lane: one that no other call has: the first that is free, or a new one, or, when there are `most`, the next that is given
 * back. A new lane has one thread, the caller's. */
int syi_lanes_enter(struct syi_lanes *lanes, struct syi_lane **lane, struct sy_error *err) SYI_MUST_CHECK;
void syi_lanes_leave(struct syi_lanes *lanes, const struct syi_lane *lane);

#endif
