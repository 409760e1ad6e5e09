/* SPDX-License-Identifier: Apache-2.0 */
/* Which copies follow which parameters of an update. */
#include "config.h"

#include "optim/weight_copies.h"
#include "program/record.h"

enum { PARTS = SYI_COUNT(((struct syi_copy *)0)->part) };

static void add_part(struct syi_weight_copies *c, uint32_t copy, int part)
{
    uint32_t id = c->model->copy[copy].part[part];
    int use = PARTS * (int)copy + part;
    c->next[use] = c->first[id];
    c->first[id] = use;
    c->awaited[copy]++;
}

int syi_weight_copies_new(struct syi_weight_copies *c, const struct syi_model *model,
                          const struct syi_program *program, const uint8_t *moved, struct sy_error *err)
{
    size_t n = model->n + 1, copies = model->n_copies + 1; /* nothing is empty */
    *c = (struct syi_weight_copies){.model = model,
                                    .tensor = syi_alloc(n * sizeof *c->tensor, err),
                                    .first = syi_alloc(n * sizeof *c->first, err),
                                    .next = syi_alloc(PARTS * copies * sizeof *c->next, err),
                                    .awaited = syi_alloc(copies * sizeof *c->awaited, err)};
    if (!c->tensor || !c->first || !c->next || !c->awaited) return SY_ENOMEM;
    syi_role_list(program, SYI_ROLE_PARAMETER, c->tensor, model->n);
    for (size_t i = 0; i < n; i++) c->first[i] = -1;
    for (uint32_t copy = 0; copy < model->n_copies; copy++)
        for (int part = 0; model->copy[copy].trained && part < model->copy[copy].n; part++)
            if (moved[model->copy[copy].part[part]]) add_part(c, copy, part);
    return SY_OK;
}

void syi_weight_copies_follow(struct syi_weight_copies *c, struct syi_program *p, uint32_t id)
{
    for (int use = c->first[id]; use >= 0; use = c->next[use]) {
        uint32_t copy = (uint32_t)(use / PARTS);
        int part[PARTS] = {0};
        if (--c->awaited[copy]) continue;
        for (int k = 0; k < c->model->copy[copy].n; k++) part[k] = c->tensor[c->model->copy[copy].part[k]];
        syi_record_copy(p, c->model, copy, part);
    }
}

void syi_weight_copies_free(struct syi_weight_copies *c)
{
    syi_free(c->tensor);
    syi_free(c->first);
    syi_free(c->next);
    syi_free(c->awaited);
}
