/* SPDX-License-Identifier: Apache-2.0 */
/* What cases of kind data share: rows of a document, lists of ids in JSON. */
#include "config.h"

#include "verify/data_case.h"

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
