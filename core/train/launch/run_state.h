/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a run goes on or how it ended, in words, as its directory says it. */
#ifndef SYI_RUN_STATE_H
#define SYI_RUN_STATE_H

#include "base/base.h"

struct syi_run_state {
    int live;       /* a process is training it, as far as can be told from here */
    char text[400]; /* "running, process 12 on this host", "done", ... */
};

/* Only reads; what cannot be read is said in the text. */
void syi_run_state_read(const char *path, struct syi_run_state *state);

#endif
