/* SPDX-License-Identifier: Apache-2.0 */
/* Copies of weights that products read: in bfloat16, several side by side, in panels where the backend reads these. Programs
 * note which they read; the program "weights" makes them, and in training the update does. */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "model/model.h"
#include "program/record.h"

static const char *copy_name(const void *owner, uint32_t place)
{
    return ((const struct syi_model *)owner)->copy[place].name;
}

/* Notes a copy that a program reads, if it is not noted already; returns its number in the model. */
static uint32_t note_copy(struct syi_build *b, const struct syi_copy *copy)
{
    struct syi_model *model = b->model;
    struct sy_error err = {0};
    int64_t there = syi_index_find(&model->copy_index, copy_name, model, copy->name);
    if (there >= 0) {
        model->copy[there].trained |= copy->trained;
        return (uint32_t)there;
    }
    if (SYI_GROW(model->copy, model->copy_capacity, model->n_copies + 1, &err) ||
        syi_index_add(&model->copy_index, copy->name, (uint32_t)model->n_copies, &err))
        return (uint32_t)syi_program_fail(b->p, SY_ENOMEM, "%s", err.text);
    model->copy[model->n_copies] = *copy;
    return (uint32_t)model->n_copies++;
}

/* Whether weights fill panels: whole leaves of both dims do, so that parts on ranks do as well. */
static int fills_panels(struct syi_build *b, int n, const int *parts)
{
    for (int i = 0; i < n; i++) {
        const struct syi_tensor *t = &b->p->tensor[parts[i]];
        for (int d = t->rank - 2; d < t->rank; d++) {
            int64_t leaves = t->axis[d] == SYI_AXIS_EMBED ? 1 : b->p->leaf_count[t->axis[d]];
            if (t->dim[d] % (leaves * SY_PANEL_LEAF)) return 0;
        }
    }
    return 1;
}

/* "panels/LAYER/key/kernel+value/kernel", plain ones "bf16/...", transposed ones "panels_nt/...". */
static int copied_name(struct syi_build *b, int n, const int *parts, struct syi_copy *copy)
{
    static const char *const how[] = {
        [SYI_COPIED_PLAIN] = "bf16/", [SYI_COPIED_PANELS] = "panels/", [SYI_COPIED_PANELS_NT] = "panels_nt/"};
    const char *scope = syi_program_name(b->p, b->p->layer);
    size_t used = 0;
    for (int i = 0; i < n; i++) {
        const char *name = syi_program_name(b->p, b->p->tensor[parts[i]].name);
        size_t skip = i && !strncmp(name, scope, strlen(scope)) ? strlen(scope) + 1 : 0;
        used += (size_t)snprintf(copy->name + used, sizeof copy->name - used, "%s%s",
                                 i ? "+" : how[copy->how], name + skip);
        if (used >= sizeof copy->name) return syi_program_fail(b->p, SY_EINTERNAL, "a name is too long");
    }
    return 0;
}

/* The carry tensor with the copy of n parameters. */
static int copied_weights(struct syi_build *b, int n, const int *parts, enum syi_copied how)
{
    struct syi_copy copy = {.n = n, .how = how, .trained = b->training};
    if (b->p->status || copied_name(b, n, parts, &copy)) return -1;
    struct syi_tensor t = b->p->tensor[parts[0]];
    t.dim[t.rank - 1] = 0;
    for (int i = 0; i < n; i++) {
        t.dim[t.rank - 1] += b->p->tensor[parts[i]].dim[t.rank - 1];
        copy.part[i] = b->p->tensor[parts[i]].of;
    }
    if (how) t = syi_in_panels(&t, how == SYI_COPIED_PANELS_NT);
    uint32_t number = note_copy(b, &copy);
    int there = syi_program_find(b->p, copy.name);
    if (there >= 0) return there;
    there = syi_tensor_add(b->p, copy.name, SYI_CARRY, SY_BF16, t.rank, t.dim, t.axis);
    return syi_role_set(b->p, there, SYI_ROLE_COPY, number);
}

int syi_weights_to_read(struct syi_build *b, int n, const int *parts, enum syi_copied laid)
{
    if (b->p->status) return -1;
    return copied_weights(b, n, parts,
                          b->model->panels && fills_panels(b, n, parts) ? laid : SYI_COPIED_PLAIN);
}

int syi_are_panels(const struct syi_build *b, int w)
{
    const struct syi_tensor *t = w < 0 ? NULL : &b->p->tensor[w];
    return t && t->kind == SYI_CARRY && t->role == SYI_ROLE_COPY && b->model->copy[t->of].how;
}

int syi_weights(struct syi_build *b, int n, const int *parts)
{
    if (b->dtype == SY_BF16 && !b->training) return syi_weights_to_read(b, n, parts, SYI_COPIED_PANELS);
    int cast = n == 1 ? syi_cast(b->p, parts[0], b->dtype) : syi_as(b->p, syi_pack(b->p, n, parts), b->dtype);
    int kept = b->dtype == SY_BF16 && b->model->keeps_copies; /* and numbered by syi_keep_copies */
    return kept ? syi_role_set(b->p, cast, SYI_ROLE_COPY, 0) : cast;
}

/* ---- programs of gradients read copies ----
 * They are recorded with casts, since gradients go through them. Forward products read x w, those of the gradient of x read
 * dy w^T. */

static const struct {
    enum sy_op plain, laid;
    enum syi_copied how;
} products[] = {{SY_OP_MATMUL, SY_OP_MATMUL_PANELS, SYI_COPIED_PANELS},
                {SY_OP_MATMUL_NT, SY_OP_MATMUL_PANELS, SYI_COPIED_PANELS_NT},
                {SY_OP_GROUPED_MATMUL, SY_OP_GROUPED_MATMUL_PANELS, SYI_COPIED_PANELS},
                {SY_OP_GROUPED_MATMUL_NT, SY_OP_GROUPED_MATMUL_PANELS, SYI_COPIED_PANELS_NT}};

/* Which of the products has the operand as its second; -1: another op, or its first. */
static int product_of(const struct syi_op *op, int operand)
{
    for (int i = 0; operand == 1 && i < (int)SYI_COUNT(products); i++)
        if (op->op == products[i].plain) return i;
    return -1;
}

/* The casts of a program whose copies are read instead. */
struct casts {
    size_t *op;     /* [n_tensors] one more than the op that makes the cast, 0: the tensor is none */
    uint8_t *plain; /* [n_tensors] whether something reads it that cannot read panels */
};

/* Finds them, and takes away the role that syi_weights marked them with. */
static void find_casts(const struct casts *casts, struct syi_program *p, uint8_t *is_cast)
{
    for (size_t i = 0; i < p->n_ops; i++) {
        struct syi_tensor *out = &p->tensor[p->op[i].out[0]];
        is_cast[i] = out->role == SYI_ROLE_COPY;
        if (!is_cast[i]) continue;
        out->role = SYI_ROLE_NONE;
        casts->op[p->op[i].out[0]] = i + 1;
    }
    for (size_t i = 0; i < p->n_ops; i++)
        for (int k = 0; k < p->op[i].n_in; k++)
            if (p->op[i].in[k] >= 0 && product_of(&p->op[i], k) < 0) casts->plain[p->op[i].in[k]] = 1;
}

/* Operand k of the op is the copy of the parameters that `cast` casts. */
static int read_copy(struct syi_build *b, struct syi_op *op, int k, const struct syi_op *cast, int plain,
                     struct sy_error *err)
{
    int laid = b->model->trains_panels && fills_panels(b, cast->n_in, cast->in) && !plain;
    int product = product_of(op, k);
    b->p->layer = cast->layer; /* whose names are left out */
    op->in[k] = copied_weights(b, cast->n_in, cast->in, laid ? products[product].how : SYI_COPIED_PLAIN);
    if (!laid) return SY_OK;
    op->op = (uint16_t)products[product].laid;
    return syi_panels_attr(b->p, op, SY_LINEAR, err);
}

static int read_copies(struct syi_build *b, const struct casts *casts, struct sy_error *err)
{
    struct syi_program *p = b->p;
    size_t tensors = p->n_tensors; /* copies come after them */
    uint32_t layer = p->layer;
    int status = SY_OK;
    for (size_t i = 0; i < p->n_ops; i++)
        for (int k = 0; k < p->op[i].n_in && !p->status && !status; k++) {
            int in = p->op[i].in[k];
            if (in < 0 || (size_t)in >= tensors || !casts->op[in]) continue;
            status = read_copy(b, &p->op[i], k, &p->op[casts->op[in] - 1], casts->plain[in], err);
        }
    p->layer = layer;
    return status;
}

int syi_keep_copies(struct syi_build *b, struct sy_error *err)
{
    size_t n = b->p->n_tensors + 1; /* nothing is empty */
    struct casts casts = {.op = syi_alloc(n * sizeof *casts.op, err), .plain = syi_alloc(n, err)};
    uint8_t *is_cast = syi_alloc(b->p->n_ops + 1, err);
    int status = casts.op && casts.plain && is_cast ? SY_OK : SY_ENOMEM;
    if (!status) {
        find_casts(&casts, b->p, is_cast);
        status = read_copies(b, &casts, err);
        syi_program_remove(b->p, is_cast);
    }
    syi_free(casts.op);
    syi_free(casts.plain);
    syi_free(is_cast);
    return status;
}

/* ---- making them ---- */

void syi_record_copy(struct syi_program *p, const struct syi_model *model, uint32_t number, const int *part)
{
    const struct syi_copy *copy = &model->copy[number];
    SYI_AT(p);
    int to = copy->how == SYI_COPIED_PANELS_NT ? syi_lay_out_nt(p, copy->n, part)
             : copy->how == SYI_COPIED_PANELS  ? syi_lay_out(p, copy->n, part)
             : copy->n == 1                    ? syi_cast(p, part[0], SY_BF16)
                                               : syi_as(p, syi_pack(p, copy->n, part), SY_BF16);
    if (to < 0) return;
    syi_tensor_rename(p, to, copy->name);
    p->tensor[to].kind = SYI_CARRY;
    syi_role_set(p, to, SYI_ROLE_COPY, number);
}

/* One copy; tensor: [parameters by id], -1 where there is none yet; param: by id. */
static void record_copy(struct syi_build *b, uint32_t number, const struct syi_param **param, int *tensor)
{
    const struct syi_copy *copy = &b->model->copy[number];
    int part[3] = {0};
    for (int k = 0; k < copy->n; k++) {
        uint32_t id = copy->part[k];
        const struct syi_param *of = param[id];
        if (tensor[id] < 0)
            tensor[id] = syi_role_set(
                b->p, syi_tensor_add(b->p, of->name, SYI_PARAM, SY_F32, of->rank, of->dim, of->axis),
                SYI_ROLE_PARAMETER, id);
        part[k] = tensor[id];
    }
    syi_record_copy(b->p, b->model, number, part);
}

int syi_record_copies(struct syi_build *b, struct sy_error *err)
{
    const struct syi_model *model = b->model;
    const struct syi_param **param = syi_alloc(model->n * sizeof *param, err);
    int *tensor = syi_alloc(model->n * sizeof *tensor, err);
    int status = param && tensor ? SY_OK : SY_ENOMEM;
    for (size_t i = 0; !status && i < model->n; i++) {
        param[model->param[i].id] = &model->param[i];
        tensor[i] = -1;
    }
    for (uint32_t i = 0; !status && !b->p->status && i < model->n_copies; i++)
        record_copy(b, i, param, tensor);
    syi_free(param);
    syi_free(tensor);
    return status;
}
