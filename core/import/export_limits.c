/* SPDX-License-Identifier: Apache-2.0 */
/* What a form of export cannot hold: refused by the key of the run file that asks for it. */
#include "config.h"

#include <string.h>

#include "import/export.h"

/* The key's value as a run file has it, freed by the caller. */
static int value_of(const struct syi_config *config, const char *key, struct syi_text *value,
                    struct sy_error *err)
{
    int status = syi_config_get_text(config, key, value, err);
    return status ? status : syi_text_status(value, err);
}

int syi_export_refuse(const struct syi_config *config, const char *program, const char *key, const char *why,
                      struct sy_error *err)
{
    struct syi_text value = {0};
    int status = value_of(config, key, &value, err);
    if (!status)
        status = syi_error(err, SY_EUNSUPPORTED, "%s = %s: %s has no such model: %s", key, value.data,
                           program, why);
    syi_text_free(&value);
    return status;
}

int syi_export_limits(const struct syi_config *config, const char *program,
                      const struct syi_export_limit *limits, size_t n, struct sy_error *err)
{
    int status = SY_OK;
    for (size_t i = 0; i < n && !status; i++) {
        struct syi_text value = {0};
        status = value_of(config, limits[i].key, &value, err);
        if (!status && strcmp(value.data, limits[i].value))
            status = syi_export_refuse(config, program, limits[i].key, limits[i].why, err);
        syi_text_free(&value);
    }
    return status;
}

int syi_export_is_scaled(const struct syi_config *config)
{
    return config->model.scale_decoder_outputs == SYI_SCALE_OUTPUTS_AUTO
               ? config->model.logits_via_embedding
               : config->model.scale_decoder_outputs == SYI_SCALE_OUTPUTS_TRUE;
}
