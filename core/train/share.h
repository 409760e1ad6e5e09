/* SPDX-License-Identifier: Apache-2.0 */
/* What only rank 0 knows (the clock, lines of an input) or any rank (a signal) made known to all ranks, so
 * that all of them do the same next. One small collective each; nothing is allocated, and a single rank does
 * nothing. */
#ifndef SYI_SHARE_H
#define SYI_SHARE_H

#include "parallel/comm.h"

struct syi_share {
    struct syi_comm *comm; /* borrowed */
    int group;             /* of all ranks */
};

/* Called by all ranks. The group ends with comm. */
int syi_share_open(struct syi_share *share, struct syi_comm *comm, struct sy_error *err) SYI_MUST_CHECK;
/* words[n]: those of rank 0 on return, bit for bit; what other ranks bring is lost. */
int syi_share_words(struct syi_share *share, int64_t *words, size_t n, struct sy_error *err) SYI_MUST_CHECK;
/* words[n]: the sums over all ranks on return. */
int syi_share_sum(struct syi_share *share, int64_t *words, size_t n, struct sy_error *err) SYI_MUST_CHECK;

#endif
