/* SPDX-License-Identifier: Apache-2.0 */
/* plugin: asks a library of the user's own (switchyard/action.h). Every rank has an instance of its own; their answers
 * become one. */
#include "config.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/plugin_library.h"
#include "switchyard/action.h"
#include "train/engine/step_metrics.h"
#include "train/trainer/action_kind.h"

_Static_assert((int)SY_ACTION_AT_START == (int)SYI_AT_START &&
                   (int)SY_ACTION_AFTER_STEP == (int)SYI_AFTER_STEP &&
                   (int)SY_ACTION_AFTER_EVALUATION == (int)SYI_AFTER_EVALUATION &&
                   (int)SY_ACTION_AFTER_CHECKPOINT == (int)SYI_AFTER_CHECKPOINT &&
                   (int)SY_ACTION_AT_END == (int)SYI_AT_END,
               "moments have one number");

enum { DESC_BYTES_0_1 = 64, MOST_VALUES = (int)SYI_STEP_METRICS_MOST + (int)SYI_EVAL_VALUES };

static const struct syi_library_kind library_kind = {
    .what = "action plugin",
    .prefix = "switchyard_action-",
    .symbol = "sy_action_",
    .advice = "",
    SYI_LIBRARY_VERSIONS(SY_ACTION),
    .least_bytes = DESC_BYTES_0_1,
};

/* What every rank brings of one call. */
struct answer {
    int32_t failed; /* status of run */
    struct sy_action_verdict verdict;
    char why[160];
};

struct instance {
    struct sy_action_desc desc; /* in the host's size */
    struct sy_action_host host;
    void *context;                /* of open, which may leave it NULL */
    int opened;                   /* 1: open succeeded, so close is owed */
    struct syi_action_call *call; /* the one under way; NULL: none */
    char why[160];                /* the first line of an error of it */
    int failed;                   /* 1: a failure of it was shown */
    struct answer own, *all;      /* [ranks] */
};

/* ---- what it may call ---- */

static void on_error(void *arg, const char *line)
{
    struct instance *instance = arg;
    if (*instance->why) return;
    snprintf(instance->why, sizeof instance->why, "%s", line);
    syi_keep_one_line(instance->why);
}

static void on_log(void *arg, const char *line)
{
    struct instance *instance = arg;
    char text[320];
    snprintf(text, sizeof text, "%s", line);
    syi_keep_one_line(text);
    if (instance->call)
        syi_action_warn(instance->call, "%s", text);
    else
        syi_log(SY_LOG_WARN, "%s", text);
}

static double on_get(void *arg, const char *name, double otherwise)
{
    struct instance *instance = arg;
    return instance->call ? syi_state_get(instance->call->state, name, otherwise) : otherwise;
}

static int on_set(void *arg, const char *name, double value)
{
    struct instance *instance = arg;
    return instance->call ? syi_state_set(instance->call->state, name, value) : SY_EINVAL;
}

/* ---- its life ---- */

static void close_instance(void *data)
{
    struct instance *instance = data;
    if (instance->opened && instance->desc.close) instance->desc.close(instance->context);
    syi_free(instance->all);
    syi_free(instance);
}

static int check(struct instance *instance, const char *name, const char *path, const void *found,
                 struct sy_error *err)
{
    uint32_t bytes = ((const struct syi_library_head *)found)->desc_bytes;
    const char *why = NULL;
    int status = syi_library_check(&library_kind, name, path, found, err);
    if (status) return status;
    memcpy(&instance->desc, found, bytes < sizeof instance->desc ? bytes : sizeof instance->desc);
    if (!instance->desc.name || strcmp(instance->desc.name, name))
        why = "calls itself by another name than its file";
    else if (!instance->desc.run)
        why = "has no function to run";
    return why ? syi_library_refuse(&library_kind, name, path, found, why, err) : SY_OK;
}

static int start(struct instance *instance, const struct syi_action_call *call, struct sy_error *err)
{
    const struct syi_action_part *part = call->part;
    const char *arguments[SYI_CONFIG_STRINGS];
    for (int i = 0; i < part->arguments.n; i++) arguments[i] = syi_strings_at(&part->arguments, i);
    instance->host = (struct sy_action_host){.bytes = sizeof instance->host,
                                             .arg = instance,
                                             .rank = call->all->comm->rank,
                                             .ranks = call->all->comm->ranks,
                                             .run_dir = call->all->run_dir,
                                             .log = on_log,
                                             .error = on_error,
                                             .get = on_get,
                                             .set = on_set};
    int status = instance->desc.open ? instance->desc.open(&instance->host, arguments,
                                                           (uint64_t)part->arguments.n, &instance->context)
                                     : SY_OK;
    instance->opened = !status && instance->desc.open;
    if (!status) return SY_OK;
    return syi_error(err, SY_EINVAL, "plugin %s of [action.%s] does not open: %s", part->plugin,
                     part->name_of_part, *instance->why ? instance->why : sy_status_text(status));
}

static int load(struct instance *instance, const struct syi_action_call *call, struct sy_error *err)
{
    const void *found;
    char *path;
    int status = syi_library_find(&library_kind, call->part->plugin, &path, err);
    if (!status) status = syi_library_open(&library_kind, call->part->plugin, path, &found, err);
    if (!status) status = check(instance, call->part->plugin, path, found, err);
    syi_free(path);
    return status ? status : start(instance, call, err);
}

static int open_instance(const struct syi_action_call *call, void **data, struct sy_error *err)
{
    struct instance *instance = syi_alloc(sizeof *instance, err);
    int status = instance ? SY_OK : SY_ENOMEM;
    if (status) return status;
    instance->all = syi_alloc((size_t)call->all->comm->ranks * sizeof *instance->all, err);
    status = instance->all ? load(instance, call, err) : SY_ENOMEM;
    if (status)
        close_instance(instance);
    else
        *data = instance;
    return status;
}

/* ---- asking ---- */

static uint64_t values_of_step(const struct syi_action_call *call, struct sy_action_value value[MOST_VALUES])
{
    const struct syi_moment *moment = call->moment;
    struct syi_step_metric metric[SYI_STEP_METRICS_MOST];
    uint64_t n = 0;
    int metrics = moment->batch ? syi_step_metrics(call->config, moment->batch, moment->result, metric) : 0;
    for (int i = 0; i < metrics; i++)
        value[n++] =
            (struct sy_action_value){metric[i].name, syi_step_metric_value(call->config, &metric[i])};
    if (!metrics) value[n++] = (struct sy_action_value){"loss", moment->result->loss};
    value[n++] = (struct sy_action_value){"learning_rate", moment->rate};
    for (int m = 0; moment->result->weighed && m < SYI_WEIGHT_METRICS; m++)
        value[n++] = (struct sy_action_value){syi_weight_metric_name((enum syi_weight_metric)m),
                                              moment->result->weights[m]};
    return n;
}

/* The lowest rank that stops, else the lowest that says something, else the lowest that failed; NULL: none. */
static const struct answer *choose(const struct answer *all, int ranks)
{
    const struct answer *says = NULL, *failed = NULL;
    for (int i = ranks - 1; i >= 0; i--) {
        if (all[i].verdict.text[0]) says = &all[i];
        if (all[i].failed) failed = &all[i];
    }
    for (int i = 0; i < ranks; i++)
        if (all[i].verdict.stop) return &all[i];
    return says ? says : failed;
}

static void obey(struct syi_action_call *call, const struct answer *answer)
{
    struct instance *instance = call->data;
    const char *name = call->part->plugin;
    if (answer->failed && !instance->failed)
        syi_action_warn(call, "%s failed: %s", name,
                        *answer->why ? answer->why : sy_status_text(answer->failed));
    instance->failed |= answer->failed != 0;
    if (answer->verdict.stop) {
        call->verdict->stop = 1;
        call->verdict->end = SYI_END_STOPPED_EARLY;
        snprintf(call->verdict->text, sizeof call->verdict->text, "%.190s",
                 *answer->verdict.text ? answer->verdict.text : name);
    } else if (*answer->verdict.text) {
        syi_action_event(call, "%.190s", answer->verdict.text);
    }
}

static int ask(struct syi_action_call *call, const struct sy_action_event *event, struct sy_error *err)
{
    struct instance *instance = call->data;
    struct answer *own = &instance->own;
    int ranks = call->all->comm->ranks, status = SY_OK;
    memset(own, 0, sizeof *own);
    *instance->why = '\0';
    instance->call = call;
    own->failed = instance->desc.run(instance->context, event, &own->verdict);
    instance->call = NULL;
    own->verdict.text[sizeof own->verdict.text - 1] = '\0';
    syi_keep_one_line(own->verdict.text);
    if (own->failed) memset(&own->verdict, 0, sizeof own->verdict);
    snprintf(own->why, sizeof own->why, "%s", instance->why);
    instance->all[0] = *own;
    if (ranks > 1) status = syi_comm_gather(call->all->comm, own, sizeof *own, instance->all, err);
    const struct answer *answer = status ? NULL : choose(instance->all, ranks);
    if (answer) obey(call, answer);
    return status;
}

static int run(struct syi_action_call *call, struct sy_error *err)
{
    struct instance *instance = call->data;
    const struct syi_moment *moment = call->moment;
    struct sy_action_value value[MOST_VALUES];
    struct sy_action_event event = {.bytes = sizeof event,
                                    .moment = (int32_t)moment->kind,
                                    .step = moment->step,
                                    .task = "",
                                    .text = moment->text ? moment->text : "",
                                    .value = value};
    if (!(instance->desc.moments & (uint32_t)moment->kind)) return SY_OK;
    if (moment->kind == SYI_AFTER_STEP) event.n_values = values_of_step(call, value);
    if (moment->kind != SYI_AFTER_EVALUATION) return ask(call, &event, err);
    for (int i = 0; i < moment->n_evaluated && !call->verdict->stop; i++) {
        const struct syi_eval_result *result = &moment->evaluated[i];
        for (int j = 0; j < result->n; j++)
            value[j] = (struct sy_action_value){result->value[j].name, result->value[j].value};
        event.task = result->task;
        event.n_values = (uint64_t)result->n;
        int status = ask(call, &event, err);
        if (status) return status;
    }
    return SY_OK;
}

const struct syi_action syi_action_plugin = {.name = "plugin",
                                             .moments = SYI_AT_START | SYI_AFTER_STEP | SYI_AFTER_EVALUATION |
                                                        SYI_AFTER_CHECKPOINT | SYI_AT_END,
                                             .open = open_instance,
                                             .close = close_instance,
                                             .run = run};
