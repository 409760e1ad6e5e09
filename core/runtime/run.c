/* SPDX-License-Identifier: Apache-2.0 */
/* A run of a program: its steps one after the other, by graphs of the device where there are any, or op by op for a
 * hook; a failure names the op and stops the other ranks. */
#include "config.h"

#include "runtime/device.h"

/* Says why a step failed and stops the other ranks, which would wait for this one for ever. */
static int fail(struct syi_session *session, const char *place, int status, struct sy_error *err)
{
    struct sy_error *failure = &session->failure;
    if (failure->code) {
        struct sy_error cause = *failure;
        *failure = (struct sy_error){0};
        status = syi_error(failure, status, "%s: %s", place, cause.text);
    } else {
        status = syi_backend_error(session->options.backend, status, place, failure);
    }
    syi_comm_abort(session->options.comm, failure->text);
    return syi_error(err, status, "%s", failure->text);
}

/* Op by op, a hook before and after each. */
static int run_hooked(struct syi_session *s, int program, char *place)
{
    const struct syi_bound *bound = &s->bound[program];
    struct syi_view view;
    int status = SY_OK;
    for (size_t at = 0; at < bound->program->n_ops && !status; at++) {
        const struct syi_step *step = &bound->step[at];
        const struct sy_call *seen = s->device ? &view.call : step->call;
        if (s->device) status = syi_look_before(s, bound, at, &view);
        if (!status) s->hook(s->hook_arg, program, at, seen, 0);
        if (!status && s->device) status = syi_look_put(s, bound, at);
        if (!status) status = step->fn(step->context, step->call);
        if (!status && s->device) status = syi_look_after(s, bound, at);
        if (!status) s->hook(s->hook_arg, program, at, seen, 1);
        if (status) syi_exec_place(bound->program, at, place, SYI_PLACE_TEXT);
    }
    return status;
}

static int run(struct syi_session *s, int program, char *place)
{
    struct syi_bound *bound = &s->bound[program];
    if (s->hook) return run_hooked(s, program, place);
    return bound->n_spans ? syi_graph_run(s, bound, place)
                          : syi_exec_steps(bound, 0, bound->program->n_ops, place);
}

static int run_on_device(struct syi_session *s, int program, char *place)
{
    const struct syi_bound *bound = &s->bound[program];
    int status = syi_device_before(s, bound);
    if (status) {
        snprintf(place, SYI_PLACE_TEXT, "%s: %s", bound->program->title,
                 bound->n_inputs ? "copying inputs to the device" : "waiting for the device at its start");
        return status;
    }
    status = run(s, program, place);
    if (status) return status;
    status = syi_device_after(s, bound);
    if (status)
        snprintf(place, SYI_PLACE_TEXT, "%s: waiting for the device and its outputs", bound->program->title);
    return status;
}

int syi_session_run(struct syi_session *session, int program, struct sy_error *err)
{
    char place[SYI_PLACE_TEXT];
    if (session->state != 1 || session->options.plan_only || program < 0 ||
        (size_t)program >= session->n_bound)
        return syi_error(err, SY_EINVAL, "program %d cannot be run: %s", program,
                         session->options.plan_only ? "the session is a plan only" : "it is not bound");
    session->failure = (struct sy_error){0};
    int status = session->device ? run_on_device(session, program, place) : run(session, program, place);
    return status ? fail(session, place, status, err) : SY_OK;
}
