/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "train/engine/bad_tensor.h"
#include "train/engine/engine_internal.h"

/* ---- one tensor ---- */

int64_t syi_first_not_finite(const struct sy_tensor *t)
{
    int64_t n = syi_is_float((enum sy_dtype)t->dtype) ? syi_bound_count(t) : 0;
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(syi_bound_value(t, i))) return i;
    return -1;
}

void syi_output_label(const struct syi_program *p, const struct syi_op *op, int output, char *label,
                      size_t bytes)
{
    const char *name = syi_program_name(p, p->tensor[op->out[output]].name);
    if (*name)
        snprintf(label, bytes, "%s", name);
    else if (output)
        snprintf(label, bytes, "%s:%s.%d", syi_program_name(p, op->layer), syi_op_info(op->op)->name, output);
    else
        snprintf(label, bytes, "%s:%s", syi_program_name(p, op->layer), syi_op_info(op->op)->name);
}

int64_t syi_expert_of(const struct syi_program *p, const struct syi_op *op, int output,
                      const struct sy_tensor *t, int64_t element)
{
    const struct syi_tensor *info = &p->tensor[op->out[output]];
    for (int d = t->rank - 1; d >= 0; d--) {
        if (info->axis[d] == SYI_AXIS_EXPERT) return t->first[d] + element % t->dim[d];
        element /= t->dim[d];
    }
    return -1;
}

/* ---- the first of a step ---- */

/* What a rank found. */
struct finding {
    int64_t order; /* of the op in the step, the same on all ranks; INT64_MAX: nothing */
    char text[SYI_BAD_TEXT];
};

struct search {
    struct syi_engine *engine;
    int64_t grads; /* programs of gradients begun */
    struct finding own;
};

/* "encoder/layers_1/mlp": the op's; what works on a gradient alone has none, and gets that of its parameter. */
static void layer_of(const struct syi_program *p, const struct syi_op *op, const char *label, char *layer,
                     size_t bytes)
{
    static const char *const before[] = {"grad_blocks/", "grad/"};
    const char *name = syi_program_name(p, op->layer), *end = NULL;
    for (size_t i = 0; !*name && i < SYI_COUNT(before); i++) {
        if (strncmp(label, before[i], strlen(before[i])) != 0) continue;
        name = label + strlen(before[i]);
        end = strrchr(name, '/');
    }
    snprintf(layer, bytes, "%.*s", end ? (int)(end - name) : (int)strlen(name), name);
}

static void note(struct search *s, const struct syi_program *p, size_t index, int output,
                 const struct sy_tensor *t, int64_t at)
{
    const struct syi_op *op = &p->op[index];
    int64_t expert = syi_expert_of(p, op, output, t, at);
    double value = syi_bound_value(t, at);
    char label[256], layer[128], of_expert[32] = "";
    syi_output_label(p, op, output, label, sizeof label);
    layer_of(p, op, label, layer, sizeof layer);
    if (expert >= 0) snprintf(of_expert, sizeof of_expert, ", expert %" PRId64, expert);
    s->own.order = s->grads << 32 | (int64_t)index;
    snprintf(s->own.text, sizeof s->own.text, "%s%s, of layer %s (%s, microbatch %" PRId64 ", %s)", label,
             of_expert, layer, p->title, s->grads - 1, isnan(value) ? "NaN" : "Inf");
}

static int overlap(const struct sy_tensor *a, const struct sy_tensor *b)
{
    const char *x = a->data, *y = b->data;
    int64_t x_bytes = syi_bound_count(a) * (int64_t)syi_dtype_bytes((enum sy_dtype)a->dtype),
            y_bytes = syi_bound_count(b) * (int64_t)syi_dtype_bytes((enum sy_dtype)b->dtype);
    return x && y && x < y + y_bytes && y < x + x_bytes;
}

/* Places that an op leaves as they are, as those of experts without a token, hold what other tensors left there. */
static void clear_output(const struct sy_call *call, const struct sy_tensor *out)
{
    for (int i = 0; i < call->n_in; i++)
        if (overlap(&call->in[i], out)) return;
    if (out->data)
        memset(out->data, 0, (size_t)syi_bound_count(out) * syi_dtype_bytes((enum sy_dtype)out->dtype));
}

/* A collective under way is not looked at: what it brings is found at the rank it comes from. */
static void at_op(void *arg, int program, size_t index, const struct sy_call *call, int after)
{
    struct search *s = arg;
    const struct syi_program *p = syi_session_program(s->engine->session, program);
    if (!after && !index) s->grads++;
    if (p->op[index].queue || s->own.order != INT64_MAX) return;
    for (int i = 0; i < call->n_out; i++) {
        const struct sy_tensor *out = &call->out[i];
        int64_t at = after && out->data ? syi_first_not_finite(out) : -1;
        if (!after) clear_output(call, out);
        if (at < 0) continue;
        note(s, p, index, i, out, at);
        return;
    }
}

/* The earliest of all ranks, of equal ones that of the lowest. all: room for those of every rank. */
static int choose(struct syi_comm *comm, const struct finding *own, struct finding *all, char *text,
                  struct sy_error *err)
{
    const struct finding *first = own;
    int status = comm->ranks > 1 ? syi_comm_gather(comm, own, sizeof *own, all, err) : SY_OK;
    if (status) return status;
    for (int i = 0; comm->ranks > 1 && i < comm->ranks; i++)
        if (!i || all[i].order < first->order) first = &all[i];
    if (first->order == INT64_MAX)
        snprintf(text, SYI_BAD_TEXT, "none, but their norm is not finite");
    else
        snprintf(text, SYI_BAD_TEXT, "%s", first->text);
    return SY_OK;
}

/* A rank whose host lacks the room says so before any of them runs an op: a training does not end because one cannot look. */
int syi_engine_find_bad(struct syi_engine *e, const struct syi_batch *batch, int64_t step,
                        char text[SYI_BAD_TEXT], struct sy_error *err)
{
    struct search s = {.engine = e, .own = {.order = INT64_MAX}};
    struct sy_error lack = {0};
    struct finding *all = syi_alloc((size_t)e->rank.comm->ranks * sizeof *all, &lack);
    lack.code = all ? syi_session_room_for_hook(e->session, &lack) : SY_ENOMEM;
    int status = syi_comm_failure(e->rank.comm, &lack, err);
    if (!status && !lack.code && all) {
        syi_session_hook(e->session, at_op, &s);
        status = syi_engine_gradients(e, batch, step, err);
        if (!status) status = choose(e->rank.comm, &s.own, all, text, err);
    }
    syi_session_hook(e->session, NULL, NULL);
    syi_free(all);
    if (!status && lack.code) snprintf(text, SYI_BAD_TEXT, "not looked for, %.500s", lack.text);
    return status;
}
