/* SPDX-License-Identifier: Apache-2.0 */
/* What actions remember: numbers with names. */
#include "config.h"

#include <string.h>

#include "data/vocabulary.h"
#include "train/trainer/action_kind.h"

static const int64_t LARGEST = INT64_C(1) << 53; /* whole numbers up to it are exact in double */

static int find(const struct syi_action_state *state, const char *name)
{
    int i = 0;
    while (i < state->n && strcmp(state->number[i].name, name)) i++;
    return i;
}

double syi_state_get(const struct syi_action_state *state, const char *name, double otherwise)
{
    int i = find(state, name);
    return i < state->n ? state->number[i].value : otherwise;
}

int64_t syi_state_count(const struct syi_action_state *state, const char *name, int64_t otherwise)
{
    double value = syi_state_get(state, name, (double)otherwise);
    if (!(value >= 0)) return -1;
    return value < (double)LARGEST ? (int64_t)value : LARGEST;
}

int syi_state_set(struct syi_action_state *state, const char *name, double value)
{
    int i = find(state, name);
    struct syi_span text = {name, strlen(name)};
    if (!text.bytes || text.bytes >= SYI_ACTION_NUMBER_NAME || i == SYI_ACTION_NUMBERS) return SY_EINVAL;
    if (!syi_utf8_valid(text)) return SY_EINVAL; /* meta.json would have another name */
    snprintf(state->number[i].name, SYI_ACTION_NUMBER_NAME, "%s", name);
    state->number[i].value = value;
    if (i == state->n) state->n++;
    return SY_OK;
}

void syi_state_count_up(struct syi_action_state *state, const char *name)
{
    int64_t count = syi_state_count(state, name, 0);
    syi_state_set(state, name, (double)(count < LARGEST ? count + 1 : count));
}
