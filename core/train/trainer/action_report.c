/* SPDX-License-Identifier: Apache-2.0 */
/* What actions say besides their verdict: events and warnings. */
#include "config.h"

#include "train/trainer/action_kind.h"

static const char *kind_name(const struct syi_action_call *call)
{
#define ACTION_TEXT(constant, text) text,
    static const char *const name[] = {SYI_ACTION_MAP(ACTION_TEXT)};
#undef ACTION_TEXT
    return name[call->part->kind];
}

void syi_action_event(const struct syi_action_call *call, const char *format, ...)
{
    const struct syi_action_report *report = &call->all->report;
    char text[320];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (report->event) report->event(report->arg, kind_name(call), text);
}

void syi_action_warn(const struct syi_action_call *call, const char *format, ...)
{
    const struct syi_action_report *report = &call->all->report;
    char text[320], line[480];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    snprintf(line, sizeof line, "%s of [action.%s]: %s", kind_name(call), call->part->name_of_part, text);
    if (report->warning) report->warning(report->arg, line);
}
