/* SPDX-License-Identifier: Apache-2.0 */
/* Event files as TensorBoard reads them: records framed as TFRecord, each an Event of protocol buffers with a
 * Summary of one value. Formats: tensorflow/core/lib/io/record_writer.h, core/util/event.proto,
 * core/framework/summary.proto. */
#ifndef SYI_TENSORBOARD_H
#define SYI_TENSORBOARD_H

#include "base/base.h"

struct syi_events;

/* Makes folder/events.out.tfevents.TIME.switchyard, which must not be there; folder is made if needed. time: seconds
 * since 1970. */
int syi_events_open(const char *folder, double time, struct syi_events **events,
                    struct sy_error *err) SYI_MUST_CHECK;
int syi_events_scalar(struct syi_events *events, double time, int64_t step, const char *tag, double value,
                      struct sy_error *err) SYI_MUST_CHECK; /* value: kept as float32 */
/* Markdown, as TensorBoard's text page has it. */
int syi_events_text(struct syi_events *events, double time, int64_t step, const char *tag, const char *text,
                    struct sy_error *err) SYI_MUST_CHECK;
const char *syi_events_path(const struct syi_events *events);
/* Frees events in any case; NULL: does nothing. */
int syi_events_close(struct syi_events *events, struct sy_error *err) SYI_MUST_CHECK;

/* CRC-32C as TFRecord stores it. */
uint32_t syi_crc32c_masked(const void *data, size_t bytes);

#endif
