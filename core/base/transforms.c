/* SPDX-License-Identifier: Apache-2.0 */
/* The table of transforms. */
#include "config.h"

#include "base/transforms.h"

#define SYI_TERMS_FILE       "base/transforms.def"
#define SYI_TERMS_NAME(name) syi_transform_##name
#define SYI_TERMS_ID(name)   SYI_TRANSFORM_##name
#include "base/terms_kinds.h"

const struct syi_term_kind *syi_transform_kinds(size_t *n)
{
    *n = SYI_COUNT(kinds);
    return kinds;
}
