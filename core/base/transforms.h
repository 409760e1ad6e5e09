/* SPDX-License-Identifier: Apache-2.0 */
/* The transforms that a chain of optimizer.chain can name (transforms.def): struct syi_transform_NAME holds the
 * arguments of one, SYI_TRANSFORM_NAME is its number. */
#ifndef SYI_TRANSFORMS_H
#define SYI_TRANSFORMS_H

#include "base/terms.h"

#define SYI_TERMS_FILE       "base/transforms.def"
#define SYI_TERMS_NAME(name) syi_transform_##name
#define SYI_TERMS_ID(name)   SYI_TRANSFORM_##name
#include "base/terms_structs.h"
#undef SYI_TERMS_FILE
#undef SYI_TERMS_NAME
#undef SYI_TERMS_ID

const struct syi_term_kind *syi_transform_kinds(size_t *n); /* borrowed, static; by their numbers */

#endif
