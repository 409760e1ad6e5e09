/* SPDX-License-Identifier: Apache-2.0 */
/* See interrupt.h. */
#include "config.h"

#include <stdatomic.h>

#include "base/interrupt.h"

static atomic_int noted;

void syi_interrupt(void)
{
    atomic_store(&noted, 1);
}

int syi_interrupted(struct sy_error *err)
{
    return atomic_load_explicit(&noted, memory_order_relaxed)
               ? syi_error(err, SY_ESTOPPED, "stopped by a signal")
               : SY_OK;
}
