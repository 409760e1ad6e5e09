/* SPDX-License-Identifier: Apache-2.0 */
/* What the two files of the pickle reader share. */
#ifndef SYI_PICKLE_PARTS_H
#define SYI_PICKLE_PARTS_H

#include "import/pickle.h"

enum syi_pickle_global {
    SYI_GLOBAL_NONE,
    SYI_GLOBAL_ORDERED_DICT,
    SYI_GLOBAL_REBUILD_TENSOR,
    SYI_GLOBAL_REBUILD_PARAMETER,
    SYI_GLOBAL_STORAGE
};
/* NONE for a value of another kind. */
enum syi_pickle_global syi_pickle_global_of(const struct syi_pickle_value *value);
/* Of a global that is a kind of storage. */
enum syi_safetensors_dtype syi_pickle_dtype_of(const struct syi_pickle_value *value);

#endif
