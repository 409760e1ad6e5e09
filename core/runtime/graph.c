/* SPDX-License-Identifier: Apache-2.0 */
/* Graphs: what the kernels of a program queue is captured once and then replayed, so that a run costs the host one
 * call for all kernels between two steps of its own, which are starts and waits of collectives. */
#include "config.h"

#include "runtime/device.h"

static int is_of_host(const struct syi_step *step)
{
    return step->fn == syi_exec_start || step->fn == syi_exec_wait; /* not those of links */
}

int syi_graph_spans(const struct syi_session *session, struct syi_bound *bound, struct sy_error *err)
{
    if (!session->device->capture_begin) return SY_OK;
    bound->span = syi_alloc(bound->program->n_ops * sizeof *bound->span, err);
    if (!bound->span) return SY_ENOMEM;
    for (size_t i = 0; i < bound->program->n_ops; i++) {
        int of_host = is_of_host(&bound->step[i]);
        if (!bound->n_spans || bound->span[bound->n_spans - 1].of_host != of_host)
            bound->span[bound->n_spans++] = (struct syi_span){.first = i, .of_host = of_host};
        bound->span[bound->n_spans - 1].end = i + 1;
    }
    return SY_OK;
}

void syi_graph_free(const struct syi_session *session, struct syi_bound *bound)
{
    for (size_t i = 0; i < bound->n_spans; i++)
        if (bound->span[i].graph)
            session->device->graph_free(session->options.backend->context, bound->span[i].graph);
    syi_free(bound->span);
}

/* A failed step is the one to name; the end of the capture is asked for all the same. */
static int capture(const struct syi_session *session, const struct syi_bound *bound, struct syi_span *span,
                   char *place)
{
    void *context = session->options.backend->context, *graph = NULL;
    snprintf(place, SYI_PLACE_TEXT, "%s: capturing a graph of kernels", bound->program->title);
    int status = session->device->capture_begin(context);
    if (status) return status;
    status = syi_exec_steps(bound, span->first, span->end, place);
    int ended = session->device->capture_end(context, &graph);
    if (!ended) span->graph = graph;
    return status ? status : ended;
}

int syi_graph_run(struct syi_session *session, struct syi_bound *bound, char *place)
{
    int status = SY_OK;
    for (size_t i = 0; i < bound->n_spans && !status; i++) {
        struct syi_span *span = &bound->span[i];
        if (span->of_host || !bound->has_run) {
            status = syi_exec_steps(bound, span->first, span->end, place);
            continue;
        }
        if (!span->graph) status = capture(session, bound, span, place);
        if (status) break;
        status = session->device->replay(session->options.backend->context, span->graph);
        if (status)
            snprintf(place, SYI_PLACE_TEXT, "%s: ops %zu to %zu, replayed", bound->program->title,
                     span->first, span->end - 1);
    }
    if (!status) bound->has_run = 1;
    return status;
}
