/* SPDX-License-Identifier: Apache-2.0 */
/* The counts of experts added up over blocks of 1,000 steps: the table routing_block. */
#ifndef SYI_ROLLUP_H
#define SYI_ROLLUP_H

#include "metrics/database.h"
#include "metrics/queue.h"

/* What rows of routing that are being written add to the block of one layer. */
struct syi_rollup_layer {
    char *name;
    int64_t attempt, block, first, last, steps; /* steps 0: nothing yet */
    int64_t *tokens, *dropped;                  /* (n) */
    size_t n, tokens_room, dropped_room;
};

struct syi_rollup {
    struct syi_rollup_layer *layer; /* (n) */
    size_t n, room;
    sqlite3_stmt *add;
};

int syi_rollup_open(struct syi_rollup *rollup, const struct syi_database *database,
                    struct sy_error *err) SYI_MUST_CHECK;
void syi_rollup_close(struct syi_rollup *rollup); /* zeroed: does nothing */
/* Adds a row of routing. May write what is there of an earlier block or attempt. */
int syi_rollup_add(struct syi_rollup *rollup, const struct syi_database *database,
                   const struct syi_queue_record *record, struct sy_error *err) SYI_MUST_CHECK;
/* Writes all that was added since, before the transaction ends. */
int syi_rollup_write(struct syi_rollup *rollup, const struct syi_database *database,
                     struct sy_error *err) SYI_MUST_CHECK;
/* Forgets it: the transaction did not come about. */
void syi_rollup_reset(struct syi_rollup *rollup);

/* A new attempt goes on from start_step: rows of routing_block that count steps on both sides of it become two, so
 * that each is valid as a whole or not at all. Within the caller's transaction. */
int syi_rollup_split(const struct syi_database *database, int64_t start_step,
                     struct sy_error *err) SYI_MUST_CHECK;

#endif
