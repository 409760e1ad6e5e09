/* SPDX-License-Identifier: Apache-2.0 */
/* Shuffling by computation: the place of every element follows from a key, so any element of any epoch can be
 * asked for without the others, and nothing needs to be stored or replayed. */
#ifndef SYI_SHUFFLE_H
#define SYI_SHUFFLE_H

#include <stdint.h>

/* One well-mixed key out of a key and a number; chain it for several numbers. */
uint64_t syi_shuffle_key(uint64_t key, uint64_t number);
/* Where element `index` of 0..n-1 goes: for each key a bijection of 0..n-1. n at least 1, index below n. */
uint64_t syi_shuffle_index(uint64_t key, uint64_t n, uint64_t index);

#endif
