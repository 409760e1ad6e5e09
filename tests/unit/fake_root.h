/* SPDX-License-Identifier: Apache-2.0 */
/* A folder that stands for the root of a system, with the files of /proc and /sys that a test puts there. */
#ifndef FAKE_ROOT_H
#define FAKE_ROOT_H

#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>

#include "base/base.h"

static char root[] = "/tmp/sy-root-XXXXXX";

static void put(const char *path, const char *text)
{
    char full[512];
    snprintf(full, sizeof(full), "%s/%s", root, path);
    char *slash = strrchr(full, '/');
    *slash = '\0';
    cr_assert_eq(syi_make_folders(full, NULL), SY_OK);
    *slash = '/';
    cr_assert_eq(syi_file_write(full, text, strlen(text), NULL), SY_OK);
}

static void make_root(void)
{
    cr_assert(mkdtemp(root) != NULL);
}
static void remove_root(void)
{
    char command[64];
    snprintf(command, sizeof(command), "rm -rf %s", root);
    cr_assert_eq(system(command), 0);
}

#endif
