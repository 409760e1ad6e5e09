/* SPDX-License-Identifier: Apache-2.0 */
/* What both algorithms begin with: the forced tokens of an example, and how many candidates a row has. */
#include "config.h"

#include <string.h>

#include "train/decode/decode_internal.h"

int32_t syi_decode_prompt(const struct syi_decode_options *o, const struct syi_decode_batch *batch,
                          int64_t example, int32_t *sequence)
{
    int32_t n = 0;
    memset(sequence, 0, ((size_t)o->length + 1) * sizeof *sequence);
    sequence[0] = o->start;
    if (!batch->prompt || (batch->active && !batch->active[example])) return 0;
    for (int32_t i = 0; i < o->length; i++) {
        int32_t id = batch->prompt[example * o->length + i];
        sequence[i] = id == o->eos ? 0 : id;
        n += sequence[i] != 0;
    }
    if (sequence[0] == 0) sequence[0] = o->start;
    return n;
}

int32_t syi_decode_width(const struct syi_decode_options *o)
{
    return 2 * o->decodes < o->vocab ? 2 * o->decodes : o->vocab;
}
