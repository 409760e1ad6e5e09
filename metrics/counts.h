/* SPDX-License-Identifier: Apache-2.0 */
/* An array of counts, one an expert, as one value of the database: each count in groups of 7 bits, least significant
 * first, in bytes whose high bit says that another follows (LEB128, as in DWARF and protocol buffers). A count below
 * 128 takes one byte. */
#ifndef SYI_COUNTS_H
#define SYI_COUNTS_H

#include "base/base.h"

enum { SYI_COUNT_BYTES = 10 }; /* of one count, at most */

/* Returns the bytes written to out (n * SYI_COUNT_BYTES hold them). Counts are not negative. */
size_t syi_counts_encode(const int64_t *count, int n, unsigned char *out);
/* Reads the next count at *at, which moves on; 0: there is none, or what is there is none. */
int syi_counts_next(const unsigned char **at, const unsigned char *end, int64_t *count);

#endif
