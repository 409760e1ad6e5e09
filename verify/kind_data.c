/* SPDX-License-Identifier: Apache-2.0 */
/* Cases of kind data: the table of what config.table may be, and lists of ids in JSON. Nothing runs on a backend. */
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

int verify_data_rows(const struct verify_case *c, const char *what, const char *keys, verify_row_fn fn,
                     void *arg, struct verify_report *report, struct sy_error *err)
{
    uint32_t inputs, expected;
    int status = verify_member(c, 0, "inputs", SYI_JSON_ARRAY, &inputs, err);
    if (!status) status = verify_member(c, 0, "expected", SYI_JSON_ARRAY, &expected, err);
    return status ? status : verify_rows(c, what, inputs, expected, keys, fn, arg, report, err);
}

int verify_data_ids(const struct verify_case *c, uint32_t list, struct syi_ids *ids, struct sy_error *err)
{
    const struct syi_json_node *node = c->json.nodes;
    int status = SY_OK;
    if (node[list].kind != SYI_JSON_ARRAY) return syi_error(err, SY_EFORMAT, "expected a list of ids");
    for (uint32_t i = node[list].first; i != SYI_JSON_NONE && !status; i = node[i].next) {
        int32_t id = (int32_t)node[i].integer;
        if (node[i].kind != SYI_JSON_NUMBER || !node[i].is_integer || id != node[i].integer)
            return syi_error(err, SY_EFORMAT, "an id is no 32-bit integer");
        status = syi_ids_append(ids, &id, 1, err);
    }
    return status;
}

int verify_data_member_ids(const struct verify_case *c, uint32_t object, const char *key, struct syi_ids *ids,
                           struct sy_error *err)
{
    uint32_t list;
    int status = verify_member(c, object, key, SYI_JSON_ARRAY, &list, err);
    return status ? status : verify_data_ids(c, list, ids, err);
}

void verify_data_put_ids(struct syi_json_writer *answer, const int32_t *id, size_t n)
{
    syi_json_open(answer, '[');
    for (size_t i = 0; i < n; i++) syi_json_put_integer(answer, id[i]);
    syi_json_close(answer, ']');
}
