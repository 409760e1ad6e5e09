/* SPDX-License-Identifier: Apache-2.0 */
/* A user's wish that this process give up what it makes, as Control-C says it. The program's signal handler notes it, what
 * reads and writes files looks, and the failure that follows removes what was half made. Where nobody notes one, as in a
 * program that uses the library, nothing changes. */
#ifndef SYI_INTERRUPT_H
#define SYI_INTERRUPT_H

#include "base/base.h"

void syi_interrupt(void); /* may be called by a signal handler */
/* SY_OK, or, once it was called, an error in err. */
int syi_interrupted(struct sy_error *err) SYI_MUST_CHECK;

#endif
