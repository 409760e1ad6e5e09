/* SPDX-License-Identifier: Apache-2.0 */
/* Contents of small files that this process keeps by name, so that they are read once, or got from the one process
 * that read them, and never opened again. Filled before threads use it, then only read. */
#ifndef SYI_HELD_FILES_H
#define SYI_HELD_FILES_H

#include "base/base.h"

/* Keeps a copy; of a name that is held already the first one stays. */
int syi_held_add(const char *name, const char *text, size_t bytes, struct sy_error *err) SYI_MUST_CHECK;
/* *text: borrowed, a NUL after its bytes. 0: nothing of this name is held. */
int syi_held_find(const char *name, const char **text, size_t *bytes);
/* Forgets all of them. */
void syi_held_free(void);

#endif
