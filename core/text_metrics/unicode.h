/* SPDX-License-Identifier: Apache-2.0 */
/* Code points of UTF-8 texts and what the metrics ask of them, by the rules of Python's str, in which the packages are
 * written that they are compared with. */
#ifndef SYI_UNICODE_H
#define SYI_UNICODE_H

#include "data/vocabulary.h" /* struct syi_span */

enum { SYI_CODE_BYTE = 0x110000 }; /* added to a byte that is no part of valid UTF-8: a code of its own */

/* The code point at `at`, which is below text.bytes; *bytes: its length. */
uint32_t syi_code_at(struct syi_span text, size_t at, size_t *bytes);
int syi_code_is_space(uint32_t code);   /* str.isspace: what str.split cuts at */
int syi_code_is_word(uint32_t code);    /* str.isalnum: what \w of re takes, but for the underscore */
int syi_code_is_cased(uint32_t code);   /* of upper or lower case; none that str.lower skips beside a sigma */
uint32_t syi_code_lower(uint32_t code); /* str.lower of that one; U+0130 to i without its dot */

#endif
