/* SPDX-License-Identifier: Apache-2.0 */
/* Inside a session whose backend has device memory: its memory there, what moves between it and the host, graphs
 * of kernels, and what a hook sees. Without a device table nothing here is called. */
#ifndef SYI_DEVICE_H
#define SYI_DEVICE_H

#include "runtime/bound.h"

/* ---- device.c: memory and moves ---- */

/* The device's part of the plan that a session takes for itself: not the weights that another one lends it. */
uint64_t syi_device_bytes(const struct syi_session *session);
/* Takes and zeroes that memory, and sets `place`. */
int syi_device_take(struct syi_session *session, struct sy_error *err) SYI_MUST_CHECK;
void syi_device_free(struct syi_session *session);
/* Parameters and state as they are now into the host's snapshot. */
int syi_device_snapshot(struct syi_session *session, struct sy_error *err) SYI_MUST_CHECK;
/* Which parts of io a program's runs move; after the plan. */
int syi_device_find_moves(struct syi_bound *bound, struct sy_error *err) SYI_MUST_CHECK;
/* Queues the copies of a program's inputs to the device, of which there may be none: then it waits for it. Queues those of
 * its outputs back and waits for all. */
int syi_device_before(struct syi_session *session, const struct syi_bound *bound);
int syi_device_after(struct syi_session *session, const struct syi_bound *bound);
/* One copy, queued, between a place on the host and one on the device. */
int syi_device_copy(const struct syi_session *session, void *to, const void *from, uint64_t bytes);
int syi_device_sync(const struct syi_session *session);

/* ---- staging.c ---- */

/* Where the collectives of a program send from and receive into, in the staging memory; *bytes: its size, where that
 * is more. Of the host: all of them; with links it is the device's, and holds what is not in whole pieces. */
int syi_staging_plan(const struct syi_session *session, struct syi_bound *bound, uint64_t *bytes,
                     struct sy_error *err) SYI_MUST_CHECK;

/* ---- links.c: collectives on device memory, by the links of the backend ---- */

/* NULL: the backend has none, or was not asked for them. */
const struct sy_link_table *syi_links_of(const struct syi_backend *backend);
/* 1: side 0 (what is sent) or 1 (what is received) of the collective is not in whole pieces. */
int syi_link_packs(const struct sy_collective *call, int side);
/* After the memory: the buffers of a transfer whose call is described, and its link; all ranks of the group come here
 * in the same order. */
int syi_link_connect(struct syi_session *session, struct syi_transfer *transfer,
                     struct sy_error *err) SYI_MUST_CHECK;
int syi_link_start(void *transfer, const struct sy_call *call); /* struct syi_transfer */
int syi_link_wait(void *transfer, const struct sy_call *call);  /* struct syi_transfer */

/* ---- graph.c ---- */

/* Cuts the run of a program into spans of kernels and steps of the host; none where the device has no graphs. */
int syi_graph_spans(const struct syi_session *session, struct syi_bound *bound,
                    struct sy_error *err) SYI_MUST_CHECK;
void syi_graph_free(const struct syi_session *session, struct syi_bound *bound);
/* One run by spans: the first as it is, the second captured, then replayed. place: SYI_PLACE_TEXT bytes, where it
 * failed. */
int syi_graph_run(struct syi_session *session, struct syi_bound *bound, char *place);

/* ---- look.c: operands of an op as a hook sees them ---- */

struct syi_view {
    struct sy_tensor operand[SY_MAX_IN + SY_MAX_OUT];
    struct sy_call call;
};
/* The place on the host where a hook sees temporaries: taken with the first op that it reads, if not before, and given back
 * when the hook is taken away. SY_ENOMEM: the host has no room for it. */
int syi_look_take(struct syi_session *session, struct sy_error *err) SYI_MUST_CHECK;
void syi_look_free(struct syi_session *session);
/* Waits for the device and makes the view of the op: with values, where the hook reads them, else without data. */
int syi_look_before(struct syi_session *session, const struct syi_bound *bound, size_t op,
                    struct syi_view *view);
/* Gives the device what the hook wrote over outputs. */
int syi_look_put(struct syi_session *session, const struct syi_bound *bound, size_t op);
/* Waits for the op and brings its outputs. */
int syi_look_after(struct syi_session *session, const struct syi_bound *bound, size_t op);

#endif
