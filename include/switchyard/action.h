/* SPDX-License-Identifier: Apache-2.0 */
/* The plugin ABI between the trainer and an action of a user's own (switchyard_action-NAME.so, kind = "plugin" in
 * [action.NAME] of a run file). Compiles as C11 and as C++.
 *
 * A plugin exports exactly one data symbol, `const struct sy_action_desc sy_action_NAME`. In C++ it is none unless it was
 * declared before as `extern "C" const struct sy_action_desc sy_action_NAME;`. The host reads magic, versions
 * and layout before any plugin code runs, as of backends (switchyard/backend.h), and copies the descriptor into its own.
 * Structures grow only at the end. Major version 0 is free to change. doc/action-plugins.md says more. */
#ifndef SWITCHYARD_ACTION_H
#define SWITCHYARD_ACTION_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SY_ACTION_MAGIC        0x53594143u /* "SYAC" */
#define SY_ACTION_MAJOR        0
#define SY_ACTION_MINOR        1
#define SY_ACTION_OLDEST_MINOR 1 /* the oldest plugins that a host takes */

/* When an action is asked; bits of `moments`. */
enum sy_action_moment {
    SY_ACTION_AT_START = 1, /* before the first step, of a resumed run too */
    SY_ACTION_AFTER_STEP = 2,
    SY_ACTION_AFTER_EVALUATION = 4, /* once for each evaluation */
    SY_ACTION_AFTER_CHECKPOINT = 8,
    SY_ACTION_AT_END = 32 /* what it answers counts no more */
};

struct sy_action_value {
    const char *name; /* "loss", "wer", as in the metrics database */
    double value;     /* NaN is legal */
};

/* What has happened; borrowed from the host for the call. Numbers are equal on all ranks. */
struct sy_action_event {
    uint64_t bytes; /* size of this structure */
    int32_t moment; /* enum sy_action_moment */
    int32_t reserved;
    int64_t step;                        /* steps done; of a step that is looked at, those before it */
    const char *task;                    /* name of the evaluation, "" of another moment */
    const char *text;                    /* at the end: how the run ended; else "" */
    const struct sy_action_value *value; /* [n_values] of the step or the evaluation */
    uint64_t n_values;
};

/* What it answers; zeroed by the host. */
struct sy_action_verdict {
    int32_t stop;   /* 1: end the run, as early_stopping does: the checkpoint is saved, exit status 0 */
    char text[196]; /* why, one line; without stop, a line for the log and an event where it is not empty */
};

/* Services of the host, given at open and valid until close. */
struct sy_action_host {
    uint64_t bytes; /* size of this table */
    void *arg;      /* passed back as first argument */
    int32_t rank, ranks;
    const char *run_dir;
    void (*log)(void *arg, const char *line);   /* a warning, shown by rank 0 */
    void (*error)(void *arg, const char *line); /* says why the running function is about to fail */
    /* Numbers that checkpoints keep, by names of 1 to 31 bytes of UTF-8, at most 40: what is not kept there is lost when a run goes
     * on from a checkpoint. A checkpoint has those of rank 0, and all ranks go on from them. Only within run. */
    double (*get)(void *arg, const char *name, double otherwise);
    int (*set)(void *arg, const char *name, double value); /* SY_OK, or SY_EINVAL: no such name, no room */
};

struct sy_action_desc {
    uint32_t magic;                      /* SY_ACTION_MAGIC */
    uint16_t abi_major, abi_minor;       /* built against */
    uint16_t min_host_minor, reserved16; /* oldest host minor it can live with */
    uint32_t desc_bytes;                 /* sizeof(struct sy_action_desc) at build time */
    uint32_t layout;                     /* SY_ACTION_LAYOUT at build time */
    uint32_t moments;                    /* bits of enum sy_action_moment */
    const char *name;                    /* equals the NAME of the file */
    const char *version;                 /* of the plugin */
    /* Once a rank, or NULL. arguments: the texts of action.NAME.arguments; one that is not understood is an error.
     * Returns enum sy_status of switchyard/switchyard.h; so does run. */
    int (*open)(const struct sy_action_host *host, const char *const *arguments, uint64_t n_arguments,
                void **context);
    void (*close)(void *context); /* after an open that succeeded, whatever context it left; or NULL */
    /* Asked by every rank at the same moments. A verdict counts for all ranks: that of the lowest rank that stops, else
     * that of the lowest that says something. A failure is a warning, and the run goes on. */
    int (*run)(void *context, const struct sy_action_event *event, struct sy_action_verdict *verdict);
};

/* Sizes of the shared structures in one number: differs when host and plugin were built from different headers. */
#define SY_ACTION_LAYOUT                                                                                     \
    ((uint32_t)(sizeof(struct sy_action_value) + 256u * sizeof(struct sy_action_event) +                     \
                65536u * sizeof(struct sy_action_verdict) + 16777216u * sizeof(void *)))

#ifdef __cplusplus
}
#endif
#endif
