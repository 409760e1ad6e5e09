/* SPDX-License-Identifier: Apache-2.0 */
/* See import_case.h: what the cases of both formats share. */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "verify/import_case.h"

int verify_import_open(struct verify_import *v, const char *checkpoint, int64_t rows, int64_t input_length,
                       int64_t target_length, struct sy_error *err)
{
    int status = syi_config_defaults(&v->import.config, err);
    if (!status) status = syi_import_open(&v->import, checkpoint, NULL, err);
    if (status) return status;
    struct syi_config *c = &v->config;
    *c = v->import.config;
    c->data.max_input_length = input_length;
    c->data.max_target_length = target_length;
    c->data.length_buckets.n = 0;
    c->data.batch_size = c->decode.batch_size = rows;
    c->decode.max_length = 0;
    c->reproducible.min_leaf = 1;
    return syi_import_check(&v->import, err);
}

void verify_import_close(struct verify_import *v)
{
    syi_import_close(&v->import);
}

int verify_import_engine(struct verify_import *v, int use, struct syi_engine **engine, struct sy_error *err)
{
    *engine = NULL;
    int status = syi_config_validate_programs(&v->config, err);
    if (!status)
        status = syi_engine_new(&v->config, v->context->rank, use | SYI_USE_COHERENT, 0, engine, err);
    const struct syi_model *model = status ? NULL : syi_engine_model(*engine);
    for (size_t i = 0; !status && i < model->n; i++) {
        char name[200];
        snprintf(name, sizeof name, "target/%s", model->param[i].name);
        const struct sy_tensor *to =
            syi_session_find_any(syi_engine_session(*engine), SYI_ROLE_PARAMETER, model->param[i].id);
        const struct syi_import_tensor *from = syi_import_find(&v->import, name);
        if (to) status = syi_import_read(&v->import, from, to->data, err);
    }
    if (!status) syi_engine_params_changed(*engine);
    return status;
}

void verify_import_floats(struct verify_import *v, const char *name, const float *got, const uint8_t *real,
                          int64_t positions, int64_t width)
{
    const struct verify_tensor *want = verify_find(v->item, name);
    if (!got || !want || !want->real || want->n != positions * width) {
        verify_floats(v->report, name, got, positions * width); /* says what is wrong */
        return;
    }
    float *shown = syi_alloc((size_t)want->n * sizeof *shown, NULL);
    if (!shown) {
        v->report->status = SY_ENOMEM;
        return;
    }
    for (int64_t i = 0; i < positions; i++)
        memcpy(shown + i * width, (real[i] ? got : want->real) + i * width, (size_t)width * sizeof *shown);
    verify_floats(v->report, name, shown, want->n);
    syi_free(shown);
}

int verify_import_ids(const struct verify_case *c, uint32_t array, int32_t **ids, size_t *n,
                      struct sy_error *err)
{
    const struct syi_json_node *node = c->json.nodes;
    *ids = NULL;
    *n = 0;
    if (array == SYI_JSON_NONE || node[array].kind != SYI_JSON_ARRAY)
        return syi_error(err, SY_EFORMAT, "a list of ids is missing");
    *ids = syi_alloc((node[array].n_children + (size_t)1) * sizeof **ids, err);
    if (!*ids) return SY_ENOMEM;
    for (uint32_t i = node[array].first; i != SYI_JSON_NONE; i = node[i].next) {
        if (node[i].kind != SYI_JSON_NUMBER || !node[i].is_integer)
            return syi_error(err, SY_EFORMAT, "an id is no whole number");
        (*ids)[(*n)++] = (int32_t)node[i].integer;
    }
    return SY_OK;
}
