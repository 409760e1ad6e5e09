/* SPDX-License-Identifier: Apache-2.0 */
/* Kind import: a folder with a checkpoint of another program and what that program computes with it. */
#include "config.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "verify/import_case.h"

/* The folder of the case: its path is that of expected.safetensors in it. */
static void folder_of(const struct verify_case *c, char folder[sizeof c->path])
{
    char *slash;
    memcpy(folder, c->path, sizeof c->path);
    slash = strrchr(folder, '/');
    if (slash) *slash = '\0';
}

int verify_import(struct verify_context *context, const struct verify_case *c, struct verify_report *report,
                  struct sy_error *err)
{
    char folder[sizeof c->path], config[sizeof c->path + 16];
    struct verify_import *v = syi_alloc(sizeof *v, err);
    if (!v) return SY_ENOMEM;
    v->context = context;
    v->item = c;
    v->report = report;
    folder_of(c, folder);
    snprintf(config, sizeof config, "%s/config.json", folder);
    int status = access(config, F_OK) ? verify_import_t5x(v, folder, err) : verify_import_hf(v, folder, err);
    verify_import_close(v);
    syi_free(v);
    return status;
}
