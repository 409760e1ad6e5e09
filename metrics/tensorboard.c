/* SPDX-License-Identifier: Apache-2.0 */
/* Writes event files of TensorBoard: the framing of records and the few protocol buffer fields of an event. */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "metrics/tensorboard.h"

/* Wire types of protocol buffers. */
enum { VARINT = 0, FIXED64 = 1, LENGTH = 2, FIXED32 = 5 };

/* Field numbers of the messages. */
enum { EVENT_TIME = 1, EVENT_STEP = 2, EVENT_VERSION = 3, EVENT_SUMMARY = 5 };
enum { SUMMARY_VALUE = 1 };
enum { VALUE_TAG = 1, VALUE_SIMPLE = 2, VALUE_TENSOR = 8, VALUE_METADATA = 9 };
enum { METADATA_PLUGIN = 1, PLUGIN_NAME = 1 };
enum { TENSOR_TYPE = 1, TENSOR_SHAPE = 2, TENSOR_STRINGS = 8, TYPE_STRING = 7 };

struct syi_events {
    FILE *file;
    char *path;
    struct syi_text value, summary, event; /* messages as they are put together; kept for their memory */
};

/* ---- checksum ---- */

/* A checksum of data that holds checksums would be weak: TFRecord turns and shifts it. */
uint32_t syi_crc32c_masked(const void *data, size_t bytes)
{
    uint32_t crc = syi_crc32c(0, data, bytes);
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

/* ---- protocol buffers ---- */

static void put_little(struct syi_text *out, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++) {
        unsigned char byte = (unsigned char)(value >> 8 * i & 0xff);
        syi_text_append(out, &byte, 1);
    }
}

static void put_varint(struct syi_text *out, uint64_t value)
{
    for (;;) {
        unsigned char byte = (unsigned char)((value & 0x7f) | (value > 0x7f ? 0x80 : 0));
        syi_text_append(out, &byte, 1);
        value >>= 7;
        if (!value) return;
    }
}

static void put_field(struct syi_text *out, int field, int wire)
{
    put_varint(out, (uint64_t)(field << 3 | wire));
}

static void put_bytes(struct syi_text *out, int field, const void *bytes, size_t length)
{
    put_field(out, field, LENGTH);
    put_varint(out, length);
    syi_text_append(out, bytes, length);
}

static void put_message(struct syi_text *out, int field, const struct syi_text *message)
{
    put_bytes(out, field, message->data ? message->data : "", message->length);
    if (message->status) out->status = message->status;
}

static void put_integer(struct syi_text *out, int field, int64_t value)
{
    put_field(out, field, VARINT);
    put_varint(out, (uint64_t)value);
}

static void put_double(struct syi_text *out, int field, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    put_field(out, field, FIXED64);
    put_little(out, bits, 8);
}

static void put_float(struct syi_text *out, int field, double value)
{
    float single = (float)value;
    uint32_t bits;
    memcpy(&bits, &single, sizeof bits);
    put_field(out, field, FIXED32);
    put_little(out, bits, 4);
}

/* ---- records ---- */

/* Length, its checksum, the event, its checksum. */
static int write_event(struct syi_events *events, struct sy_error *err)
{
    const struct syi_text *event = &events->event;
    struct syi_text frame = {0};
    int status = syi_text_status(event, err);
    if (status) return status;
    put_little(&frame, event->length, 8);
    put_little(&frame, syi_crc32c_masked(frame.data, frame.length), 4);
    syi_text_append(&frame, event->data, event->length);
    put_little(&frame, syi_crc32c_masked(event->data, event->length), 4);
    status = syi_text_status(&frame, err);
    if (!status && fwrite(frame.data, 1, frame.length, events->file) != frame.length)
        status = syi_error_system(err, "metrics: cannot write %s", events->path);
    syi_text_free(&frame);
    return status;
}

static void begin_event(struct syi_events *events, double time, int64_t step)
{
    events->event.length = events->summary.length = events->value.length = 0;
    put_double(&events->event, EVENT_TIME, time);
    put_integer(&events->event, EVENT_STEP, step);
}

static int end_event(struct syi_events *events, struct sy_error *err)
{
    put_message(&events->summary, SUMMARY_VALUE, &events->value);
    put_message(&events->event, EVENT_SUMMARY, &events->summary);
    return write_event(events, err);
}

int syi_events_scalar(struct syi_events *events, double time, int64_t step, const char *tag, double value,
                      struct sy_error *err)
{
    begin_event(events, time, step);
    put_bytes(&events->value, VALUE_TAG, tag, strlen(tag));
    put_float(&events->value, VALUE_SIMPLE, value);
    return end_event(events, err);
}

int syi_events_text(struct syi_events *events, double time, int64_t step, const char *tag, const char *text,
                    struct sy_error *err)
{
    struct syi_text tensor = {0}, plugin = {0}, metadata = {0};
    begin_event(events, time, step);
    put_integer(&tensor, TENSOR_TYPE, TYPE_STRING);
    put_bytes(&tensor, TENSOR_SHAPE, "", 0); /* a scalar */
    put_bytes(&tensor, TENSOR_STRINGS, text, strlen(text));
    put_bytes(&plugin, PLUGIN_NAME, "text", 4);
    put_message(&metadata, METADATA_PLUGIN, &plugin);
    put_bytes(&events->value, VALUE_TAG, tag, strlen(tag));
    put_message(&events->value, VALUE_TENSOR, &tensor);
    put_message(&events->value, VALUE_METADATA, &metadata);
    syi_text_free(&tensor);
    syi_text_free(&plugin);
    syi_text_free(&metadata);
    return end_event(events, err);
}

/* ---- files ---- */

const char *syi_events_path(const struct syi_events *events)
{
    return events->path;
}

int syi_events_close(struct syi_events *events, struct sy_error *err)
{
    int status = SY_OK;
    if (!events) return status;
    if (events->file && fclose(events->file))
        status = syi_error_system(err, "metrics: cannot write %s", events->path);
    syi_text_free(&events->value);
    syi_text_free(&events->summary);
    syi_text_free(&events->event);
    syi_free(events->path);
    syi_free(events);
    return status;
}

/* The first record says which version of the format follows. */
static int write_version(struct syi_events *events, double time, struct sy_error *err)
{
    static const char version[] = "brain.Event:2";
    put_double(&events->event, EVENT_TIME, time);
    put_bytes(&events->event, EVENT_VERSION, version, sizeof version - 1);
    return write_event(events, err);
}

int syi_events_open(const char *folder, double time, struct syi_events **events, struct sy_error *err)
{
    struct syi_events *made = syi_alloc(sizeof *made, err);
    int status = made ? syi_make_folders(folder, err) : SY_ENOMEM;
    *events = NULL;
    if (!status) {
        made->path = syi_format("%s/events.out.tfevents.%010lld.switchyard", folder, (long long)time);
        if (!made->path) status = syi_error(err, SY_ENOMEM, "out of memory");
    }
    if (!status && !(made->file = fopen(made->path, "wbx")))
        status = syi_error_system(err, "metrics: cannot make %s", made->path);
    if (!status) status = write_version(made, time, err);
    if (status) {
        int ignored = syi_events_close(made, NULL);
        (void)ignored;
        return status;
    }
    *events = made;
    return SY_OK;
}
