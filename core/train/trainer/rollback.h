/* SPDX-License-Identifier: Apache-2.0 */
/* Going back to a checkpoint, and the holes that it leaves in the training stream. */
#ifndef SYI_ROLLBACK_H
#define SYI_ROLLBACK_H

#include "train/trainer/trainer_internal.h"

/* Which batch of the stream a step takes: its number and the batches of all holes up to it. */
int64_t syi_holes_place(const struct syi_holes *holes, int64_t step);
/* From `step`, the last that has a hole or a later one, the stream goes on `batches` later. SY_EINVAL: there is no room
 * for another hole, or no such place. */
int syi_holes_add(struct syi_holes *holes, int64_t step, int64_t batches);
/* A hole as the event "rollback" of the run's database has it, and back. SY_EFORMAT: the text says of no hole. */
enum { SYI_HOLE_TEXT = 160 };
void syi_hole_print(const struct syi_hole *hole, char text[SYI_HOLE_TEXT]);
int syi_hole_read(const char *text, struct syi_hole *hole);

/* Goes back to the newest checkpoint, and from there on with the batches after those of `taken` steps. Called by all
 * ranks. Where there is no room for another hole the run ends. */
int syi_trainer_go_back(struct syi_trainer *t, int64_t taken, struct sy_error *err) SYI_MUST_CHECK;

#endif
