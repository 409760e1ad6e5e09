/* SPDX-License-Identifier: Apache-2.0 */
/* Between sha256.c and what processors have of their own; the functions that others call are in base.h. */
#ifndef SYI_SHA256_H
#define SYI_SHA256_H

#include "base/base.h"

extern const uint32_t syi_sha256_constant[64]; /* of the rounds */

/* Takes whole blocks of 64 bytes into the state: in portable C, or, where the processor has them, by its instructions. */
void syi_sha256_plain(uint32_t state[8], const uint8_t *at, size_t blocks);
int syi_sha256_x86_there(void);
void syi_sha256_x86(uint32_t state[8], const uint8_t *at, size_t blocks);

#endif
