/* SPDX-License-Identifier: Apache-2.0 */
/* Values that follow from several keys, or from the text of one: what stands for a default of 0 or "same". */
#include "config.h"

#include <string.h>

#include "base/run_config.h"

const struct syi_task_part *syi_config_task(const struct syi_config *config)
{
    static const struct syi_task_part none = {.format = SYI_FORMAT_TSV};
    return config->task.n ? &config->task.part[0] : &none;
}

int64_t syi_config_decode_rows(const struct syi_config *config)
{
    int64_t rows = config->data.batch_size / config->train.microbatches, parts = 1;
    if (config->decode.batch_size) return config->decode.batch_size;
    if (config->mesh.data) parts *= config->mesh.data;
    if (config->mesh.expert) parts *= config->mesh.expert;
    while (rows > 64 && rows % (2 * parts) == 0) rows /= 2;
    while (rows < 8) rows *= 2;
    return rows;
}

int syi_router_type(const struct syi_config *config, int decoder)
{
    int own = config->moe.decoder_router_type;
    return decoder && own != SYI_DECODER_ROUTER_SAME ? own - 1 : config->moe.router_type;
}

int syi_lr_factor_next(const char **text, const char **name, size_t *length)
{
#define FACTOR_TEXT(constant, text) text,
    static const char *const known[] = {SYI_LR_FACTOR_MAP(FACTOR_TEXT)};
#undef FACTOR_TEXT
    const char *first = *text + strspn(*text, " \t"), *end = first + strcspn(first, "*");
    *text = *end ? end + 1 : NULL;
    while (end > first && (end[-1] == ' ' || end[-1] == '\t')) end--;
    *name = first;
    *length = (size_t)(end - first);
    for (size_t i = 0; i < SYI_COUNT(known); i++)
        if (strlen(known[i]) == *length && !strncmp(known[i], first, *length)) return (int)i;
    return -1;
}
