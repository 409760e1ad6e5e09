/* SPDX-License-Identifier: Apache-2.0 */
/* One library with action plugins that are wrong in one way each; tests/cli/action_plugins.sh copies it to
 * switchyard_action-NAME.so. The functions of refused ones end the process: the host must not come to call them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "switchyard/action.h"
#include "switchyard/switchyard.h"

static int forbidden(void *context, const struct sy_action_event *event, struct sy_action_verdict *verdict)
{
    (void)context, (void)event, (void)verdict;
    abort();
}

static const struct sy_action_host *host;

static int open_it(const struct sy_action_host *given, const char *const *arguments, uint64_t n,
                   void **context)
{
    (void)arguments, (void)n, (void)context;
    host = given;
    return SY_OK;
}

/* Fails, and leaves a verdict that must not count. */
static int failing(void *context, const struct sy_action_event *event, struct sy_action_verdict *verdict)
{
    (void)context, (void)event;
    verdict->stop = 1;
    host->error(host->arg, "the device fell off the bus");
    return SY_EIO;
}

/* A text without its end, more numbers than there is room for, and names that are none. */
static int loud(void *context, const struct sy_action_event *event, struct sy_action_verdict *verdict)
{
    char name[40] = "number-";
    int refused = 0;
    (void)context, (void)event;
    for (int i = 0; i < 100; i++) {
        name[7] = (char)('!' + i / 10);
        name[8] = (char)('!' + i % 10);
        refused += host->set(host->arg, name, i) != SY_OK;
    }
    memset(name, 'x', sizeof name - 1);
    /* The last name is Latin-1, which meta.json cannot hold. */
    if (host->set(host->arg, name, 1) == SY_OK || host->set(host->arg, "", 1) == SY_OK ||
        host->set(host->arg, "caf\xe9", 1) == SY_OK || refused != 60)
        return SY_EINTERNAL;
    memset(verdict->text, 'y', sizeof verdict->text);
    return SY_OK;
}

/* A text of several lines, and a context that open left NULL. */
static int many_lines(void *context, const struct sy_action_event *event, struct sy_action_verdict *verdict)
{
    (void)context, (void)event;
    strcpy(verdict->text, "one line\nand another");
    return SY_OK;
}

static void close_it(void *context)
{
    char path[512];
    FILE *file =
        snprintf(path, sizeof path, "%s/closed", host->run_dir) < (int)sizeof path ? fopen(path, "w") : NULL;
    if (context || !file || fclose(file)) abort();
}

#define EXPORTED __attribute__((visibility("default")))
#define DESC(id, magic_, major_, newest, bytes, layout_, name_, open_, run_)                                 \
    EXPORTED extern const struct sy_action_desc sy_action_##id;                                              \
    const struct sy_action_desc sy_action_##id = {.magic = magic_,                                           \
                                                  .abi_major = major_,                                       \
                                                  .abi_minor = SY_ACTION_MINOR,                              \
                                                  .min_host_minor = newest,                                  \
                                                  .desc_bytes = bytes,                                       \
                                                  .layout = layout_,                                         \
                                                  .moments = SY_ACTION_AFTER_STEP,                           \
                                                  .name = name_,                                             \
                                                  .version = "1",                                            \
                                                  .open = open_,                                             \
                                                  .close = close_it,                                         \
                                                  .run = run_}
enum { WHOLE = sizeof(struct sy_action_desc) };

DESC(magic, 7, 0, 0, WHOLE, SY_ACTION_LAYOUT, "magic", NULL, forbidden);
DESC(major, SY_ACTION_MAGIC, 9, 0, WHOLE, SY_ACTION_LAYOUT, "major", NULL, forbidden);
DESC(newer, SY_ACTION_MAGIC, 0, 999, WHOLE, SY_ACTION_LAYOUT, "newer", NULL, forbidden);
DESC(layout, SY_ACTION_MAGIC, 0, 0, WHOLE, SY_ACTION_LAYOUT + 1, "layout", NULL, forbidden);
DESC(tiny, SY_ACTION_MAGIC, 0, 0, 8, SY_ACTION_LAYOUT, "tiny", NULL, forbidden);
DESC(renamed, SY_ACTION_MAGIC, 0, 0, WHOLE, SY_ACTION_LAYOUT, "other", NULL, forbidden);
DESC(idle, SY_ACTION_MAGIC, 0, 0, WHOLE, SY_ACTION_LAYOUT, "idle", NULL, NULL);
DESC(failing, SY_ACTION_MAGIC, 0, 0, WHOLE, SY_ACTION_LAYOUT, "failing", open_it, failing);
DESC(loud, SY_ACTION_MAGIC, 0, 0, WHOLE, SY_ACTION_LAYOUT, "loud", open_it, loud);
DESC(lines, SY_ACTION_MAGIC, 0, 0, WHOLE, SY_ACTION_LAYOUT, "lines", open_it, many_lines);
