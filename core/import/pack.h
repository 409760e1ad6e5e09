/* SPDX-License-Identifier: Apache-2.0 */
/* A checkpoint of a run as one file for inference: base/packed.h says what is in it. */
#ifndef SYI_PACK_H
#define SYI_PACK_H

#include "base/safetensors.h"

struct syi_pack {
    const char *run; /* a run directory, or the folder of a checkpoint in one */
    int64_t step;    /* of a run directory, or as in train/checkpoint/checkpoint.h */
    enum syi_safetensors_dtype
        weights; /* of what matrix products read: F32, BF16 or I8; the others are F32 */
    /* of the result: */
    int64_t packed_step, parameters;
    uint64_t bytes; /* of the file */
};

/* Writes the file `to`, which must not exist: under another name first, so that there is all of it or nothing. SY_EINVAL: I8
 * is asked for, and a weight is not finite. */
int syi_pack_run(struct syi_pack *pack, const char *to, struct sy_error *err) SYI_MUST_CHECK;

#endif
