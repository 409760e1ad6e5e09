/* SPDX-License-Identifier: Apache-2.0 */
/* Lanes: made when calls meet, kept until the model is closed. */
#include "config.h"

#include "api/lanes.h"

static void close_lane(struct syi_lane *lane)
{
    if (!lane) return;
    syi_predictor_free(lane->predictor);
    syi_launch_close(&lane->alone);
    syi_free(lane);
}

int syi_lanes_open(struct syi_lanes *lanes, int most, struct sy_error *err)
{
    pthread_mutex_init(&lanes->mutex, NULL);
    pthread_cond_init(&lanes->left, NULL);
    lanes->most = most;
    lanes->lane = syi_alloc((size_t)most * sizeof *lanes->lane, err);
    lanes->taken = syi_alloc((size_t)most, err);
    if (!lanes->lane || !lanes->taken) return SY_ENOMEM;
    lanes->lane[0] = syi_alloc(sizeof *lanes->lane[0], err);
    return lanes->lane[0] ? SY_OK : SY_ENOMEM;
}

/* The first lane is the last to go: others read its weights. */
void syi_lanes_close(struct syi_lanes *lanes)
{
    if (!lanes->most) return;
    for (int i = lanes->lane ? lanes->most : 0; i-- > 0;) close_lane(lanes->lane[i]);
    syi_free(lanes->lane);
    syi_free(lanes->taken);
    pthread_cond_destroy(&lanes->left);
    pthread_mutex_destroy(&lanes->mutex);
}

static int open_lane(const struct syi_lane *first, struct syi_lane **out, struct sy_error *err)
{
    struct syi_lane *lane = syi_alloc(sizeof *lane, err);
    if (!lane) return SY_ENOMEM;
    int status = syi_launch_beside(&first->alone, &lane->alone, err);
    if (!status) status = syi_predictor_beside(first->predictor, &lane->alone.rank, &lane->predictor, err);
    if (status)
        close_lane(lane);
    else
        *out = lane;
    return status;
}

/* Of those that no call has the first that is open, or else one to be opened; -1: there is none. */
static int choose(const struct syi_lanes *lanes)
{
    int unopened = -1;
    for (int i = 0; i < lanes->most; i++) {
        if (lanes->taken[i]) continue;
        if (lanes->lane[i]) return i;
        if (unopened < 0) unopened = i;
    }
    return unopened;
}

static void set(struct syi_lanes *lanes, int at, struct syi_lane *lane, int taken)
{
    pthread_mutex_lock(&lanes->mutex);
    lanes->lane[at] = lane;
    lanes->taken[at] = (uint8_t)taken;
    if (!taken) pthread_cond_signal(&lanes->left);
    pthread_mutex_unlock(&lanes->mutex);
}

int syi_lanes_enter(struct syi_lanes *lanes, struct syi_lane **lane, struct sy_error *err)
{
    int at;
    pthread_mutex_lock(&lanes->mutex);
    while ((at = choose(lanes)) < 0) pthread_cond_wait(&lanes->left, &lanes->mutex);
    lanes->taken[at] = 1;
    *lane = lanes->lane[at];
    pthread_mutex_unlock(&lanes->mutex);
    if (*lane) return SY_OK;
    int status = open_lane(lanes->lane[0], lane, err);
    set(lanes, at, *lane, !status);
    return status;
}

void syi_lanes_leave(struct syi_lanes *lanes, const struct syi_lane *lane)
{
    int at = 0;
    pthread_mutex_lock(&lanes->mutex);
    while (lanes->lane[at] != lane) at++;
    lanes->taken[at] = 0;
    pthread_cond_signal(&lanes->left);
    pthread_mutex_unlock(&lanes->mutex);
}
