/* SPDX-License-Identifier: Apache-2.0 */
/* Cases of kind data: the table of what config.table may be. Nothing runs on a backend. */
#include "config.h"

#include <string.h>

#include "verify/data_case.h"

static const struct {
    const char *name;
    verify_data_fn fn;
} tables[] = {{"byte_vocabulary", verify_data_bytes},
              {"sentencepiece", verify_data_sentencepiece},
              {"feature_converter", verify_data_converter},
              {"mixing_rate", verify_data_mixing},
              {"random_spans_helper", verify_data_span_lengths},
              {"noise_mask_counts", verify_data_span_masks},
              {"sentinels", verify_data_sentinels},
              {"trim_and_eos", verify_data_ends}};

int verify_data(struct verify_context *context, const struct verify_case *c, struct verify_report *report,
                struct sy_error *err)
{
    (void)context;
    const char *table;
    int status = verify_text(c, "table", &table, err);
    if (status) return status;
    for (size_t i = 0; i < SYI_COUNT(tables); i++)
        if (!strcmp(tables[i].name, table)) return tables[i].fn(c, report, err);
    return syi_error(err, SY_EFORMAT, "table %.60s: nothing here is of that name", table);
}
