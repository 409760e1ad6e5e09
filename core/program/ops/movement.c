/* SPDX-License-Identifier: Apache-2.0 */
/* What moves data and computes nothing: pack and unpack, weights laid out in panels, changes of rank, and what the passes
 * insert between ranks. */
#include "config.h"

#include "program/ops/ops.h"

/* ---- recording ---- */

int syi_pack(struct syi_program *p, int n, const int *parts)
{
    if (n < 2 || n > 3 || !syi_have(p, n, parts)) return -1;
    struct syi_tensor t = *syi_tensor_of(p, parts[0]);
    int last = t.rank - 1;
    struct sy_attr_pack attr = {{0, 0, 0}};
    t.dim[last] = 0;
    for (int i = 0; i < n; i++) {
        const struct syi_tensor *part = syi_tensor_of(p, parts[i]);
        attr.width[i] = syi_leaf_length(p, parts[i], last);
        t.dim[last] += part->dim[last];
        if (part->rank != t.rank || part->dim[0] != t.dim[0])
            return SYI_BAD(p, "pack: parts of different shape");
    }
    return syi_emit(p, SY_OP_PACK, n, parts, syi_temp(p, t.dtype, t.rank, t.dim, t.axis), &attr, sizeof attr);
}

int syi_unpack(struct syi_program *p, int packed, int n, const int *like, int *parts)
{
    if (n < 2 || n > 3 || !SYI_HAVE(p, packed) || !syi_have(p, n, like)) return -1;
    struct sy_attr_pack attr = {{0, 0, 0}};
    for (int i = 0; i < n; i++) {
        attr.width[i] = syi_leaf_length(p, like[i], syi_tensor_of(p, like[i])->rank - 1);
        if ((parts[i] = syi_temp_like(p, like[i])) < 0) return -1;
    }
    return syi_op_add(p, SY_OP_UNPACK, 1, &packed, n, parts, &attr, sizeof attr) ? -1 : parts[0];
}

struct syi_tensor syi_in_panels(const struct syi_tensor *w, int transposed)
{
    struct syi_tensor t = *w;
    int n = w->rank - (transposed ? 2 : 1), k = w->rank - (transposed ? 1 : 2);
    t.dtype = SY_BF16;
    t.rank = (uint8_t)(w->rank + 1);
    t.dim[w->rank - 2] = w->dim[n] / SY_PANEL_COLUMNS;
    t.axis[w->rank - 2] = w->axis[n];
    t.dim[w->rank - 1] = w->dim[k];
    t.axis[w->rank - 1] = w->axis[k];
    t.dim[w->rank] = SY_PANEL_COLUMNS;
    t.axis[w->rank] = SYI_AXIS_NONE;
    return t;
}

static int lay_out(struct syi_program *p, enum sy_op op, int n, const int *parts)
{
    if (n < 1 || n > 3 || !syi_have(p, n, parts)) return -1;
    struct syi_tensor t = *syi_tensor_of(p, parts[0]);
    struct sy_attr_pack attr = {{0, 0, 0}};
    int in[3] = {-1, -1, -1};
    t.dim[t.rank - 1] = 0;
    for (int i = 0; i < n; i++) {
        attr.width[i] = syi_leaf_length(p, parts[i], t.rank - 1);
        t.dim[t.rank - 1] += syi_tensor_of(p, parts[i])->dim[t.rank - 1];
        in[i] = parts[i];
    }
    t = syi_in_panels(&t, op == SY_OP_LAY_OUT_NT);
    return syi_emit(p, op, 3, in, syi_temp(p, SY_BF16, t.rank, t.dim, t.axis), &attr, sizeof attr);
}

int syi_lay_out(struct syi_program *p, int n, const int *parts)
{
    return lay_out(p, SY_OP_LAY_OUT, n, parts);
}

int syi_lay_out_nt(struct syi_program *p, int n, const int *parts)
{
    return lay_out(p, SY_OP_LAY_OUT_NT, n, parts);
}

/* ---- check ---- */

static int check_reshape(struct syi_check *c)
{
    const struct syi_tensor *x = syi_check_in(c, 0), *y = syi_check_out(c, 0);
    return x->dtype == y->dtype && syi_tensor_count(x) == syi_tensor_count(y)
               ? SY_OK
               : syi_check_bad(c, "the elements are not the same");
}

/* n parts, all inputs or all outputs, at least `fewest`, next to each other in blocks of the last dim of `packed`. */
static int check_parts(struct syi_check *c, int n, int fewest, const int32_t *part,
                       const struct syi_tensor *packed)
{
    const struct sy_attr_pack *attr = syi_program_attr(c->program, c->op);
    int64_t total = 0, width = 0;
    int last = packed->rank - 1;
    if (n < fewest || n > 3) return syi_check_bad(c, "%d parts", n);
    for (int i = 0; i < n; i++) {
        const struct syi_tensor *t = &c->program->tensor[part[i]];
        if (t->rank != packed->rank || !syi_is_float(t->dtype) || attr->width[i] < 1 ||
            t->dim[last] % attr->width[i] || memcmp(t->dim, packed->dim, (size_t)last * sizeof t->dim[0]))
            return syi_check_bad(c, "part %d does not fit", i);
        total += t->dim[last];
        width += attr->width[i];
        if (t->dim[last] / attr->width[i] * width != total)
            return syi_check_bad(c, "part %d has another number of blocks", i);
    }
    return total == packed->dim[last] ? SY_OK : syi_check_bad(c, "parts have %lld columns", (long long)total);
}

static int check_pack(struct syi_check *c)
{
    if (c->op->n_out != 1) return syi_check_bad(c, "%d outputs", c->op->n_out);
    return check_parts(c, c->op->n_in, 2, c->op->in, syi_check_out(c, 0));
}

static int check_unpack(struct syi_check *c)
{
    if (c->op->n_in != 1) return syi_check_bad(c, "%d inputs", c->op->n_in);
    return check_parts(c, c->op->n_out, 2, c->op->out, syi_check_in(c, 0));
}

/* The tensor that panels hold, without them. */
static struct syi_tensor out_of_panels(const struct syi_tensor *panels)
{
    struct syi_tensor t = *panels;
    t.rank = (uint8_t)(panels->rank - 1);
    t.dim[t.rank - 2] = panels->dim[t.rank - 1];
    t.dim[t.rank - 1] = panels->dim[t.rank - 2] * SY_PANEL_COLUMNS;
    t.dim[t.rank] = 1;
    return t;
}

static int check_panels(struct syi_check *c, const struct syi_tensor *panels)
{
    return panels->dim[panels->rank - 1] == SY_PANEL_COLUMNS &&
                   panels->dim[panels->rank - 2] % SY_PANEL_LEAF == 0
               ? SY_OK
               : syi_check_bad(c, "no whole panels");
}

/* Output `which` has the parts, or the transposed ones. */
static int check_laid(struct syi_check *c, int which, int transposed)
{
    struct syi_tensor packed = out_of_panels(syi_check_out(c, which));
    int n = c->op->in[1] < 0   ? 1
            : c->op->in[2] < 0 ? 2
                               : 3,
        status = check_panels(c, syi_check_out(c, which));
    if (transposed) {
        int64_t depth = packed.dim[packed.rank - 2];
        packed.dim[packed.rank - 2] = packed.dim[packed.rank - 1];
        packed.dim[packed.rank - 1] = depth;
    }
    return status ? status : check_parts(c, n, 1, c->op->in, &packed);
}

static int check_lay_out(struct syi_check *c)
{
    return check_laid(c, 0, c->op->op == SY_OP_LAY_OUT_NT);
}

static int check_lay_out_both(struct syi_check *c)
{
    int status = check_laid(c, 0, 0);
    return status ? status : check_laid(c, 1, 1);
}

/* Shapes stay but for the dims that are cut or joined; values keep their type. */
static int check_move(struct syi_check *c)
{
    const struct syi_tensor *x = syi_check_in(c, 0), *y = syi_check_out(c, 0);
    int64_t mesh = syi_op_field(c->program, c->op, "mesh", 0);
    int64_t joined = syi_op_field(c->program, c->op, "concat", -1);
    int64_t cut = syi_op_field(c->program, c->op, "dim", syi_op_field(c->program, c->op, "split", -1));
    if (mesh < 1 || mesh > 7 || cut >= x->rank || joined >= x->rank)
        return syi_check_bad(c, "dims %lld and %lld over mesh axes %lld", (long long)cut, (long long)joined,
                             (long long)mesh);
    if (x->dtype != y->dtype || x->rank != y->rank)
        return syi_check_bad(c, "operands of different type or rank");
    for (int i = 0; i < x->rank; i++) {
        int64_t more = x->dim[i] > y->dim[i] ? x->dim[i] : y->dim[i], less = x->dim[i] + y->dim[i] - more;
        if (i != cut && i != joined ? more != less : more % less != 0)
            return syi_check_bad(c, "dim %d goes from %lld to %lld", i, (long long)x->dim[i],
                                 (long long)y->dim[i]);
    }
    return SY_OK;
}

static int check_exchange(struct syi_check *c)
{
    int status = check_move(c);
    if (status || syi_tensor_count(syi_check_in(c, 0)) == syi_tensor_count(syi_check_out(c, 0)))
        return status;
    return syi_check_bad(c, "elements are lost");
}

static int check_wait(struct syi_check *c)
{
    if (c->op->n_in == 1 && c->op->n_out == 0) return SY_OK;
    return syi_check_bad(c, "%d inputs and %d outputs", c->op->n_in, c->op->n_out);
}

/* Operands of one type, each cut in equal pieces along its dim, within the rows of the joined tensor. */
static int check_join(struct syi_check *c)
{
    const struct sy_attr_join *attr = syi_program_attr(c->program, c->op);
    const struct syi_tensor *y = syi_check_out(c, 0);
    int64_t elements = 0;
    if (c->op->n_in < 1 || c->op->n_out != 1 || y->rank != 2)
        return syi_check_bad(c, "the output is not pieces by elements");
    for (int i = 0; i < c->op->n_in; i++) {
        const struct syi_tensor *x = syi_check_in(c, i);
        int64_t dim = attr->dims >> 4 * i & 15;
        if (x->dtype != y->dtype || dim >= x->rank || x->dim[dim] % y->dim[0])
            return syi_check_bad(c, "operand %d does not fit %lld pieces along dim %lld", i,
                                 (long long)y->dim[0], (long long)dim);
        elements += syi_tensor_count(x) / y->dim[0];
    }
    return elements > y->dim[1] ? syi_check_bad(c, "%lld elements in a piece of %lld", (long long)elements,
                                                (long long)y->dim[1])
                                : SY_OK;
}

static int check_part(struct syi_check *c)
{
    const struct sy_attr_part *attr = syi_program_attr(c->program, c->op);
    const struct syi_tensor *x = syi_check_in(c, 0), *y = syi_check_out(c, 0);
    if (x->rank != 2 || x->dtype != y->dtype || attr->dim < 0 || attr->dim >= y->rank ||
        y->dim[attr->dim] % x->dim[0] || attr->at < 0 ||
        attr->at + syi_tensor_count(y) / x->dim[0] > x->dim[1])
        return syi_check_bad(c, "no part at %lld of %lld x %lld", (long long)attr->at, (long long)x->dim[0],
                             (long long)x->dim[1]);
    return SY_OK;
}

/* ---- gradients ---- */

SYI_GRAD(pack)
{
    int parts[3];
    (void)wants;
    if (syi_unpack(p, syi_grad_fitting(p, dout[0], op->in[0]), op->n_in, op->in, parts) < 0) return;
    for (int i = 0; i < op->n_in; i++) din[i] = parts[i];
}

SYI_GRAD(unpack)
{
    int parts[3];
    (void)wants;
    for (int i = 0; i < op->n_out; i++) parts[i] = dout[i] >= 0 ? dout[i] : syi_grad_zero(p, op->out[i]);
    din[0] = syi_pack(p, op->n_out, parts);
}

/* ---- exchanges between ranks ---- */

/* Runs of contiguous memory that a cut along `dim` leaves. */
static uint64_t runs(const struct sy_tensor *tensor, int64_t dim)
{
    return syi_span_bytes(tensor, 0, (int)dim) / syi_dtype_bytes(tensor->dtype);
}

static void exchange_all_gather(const struct sy_call *call, uint64_t ranks, struct sy_collective *c)
{
    const struct sy_attr_collective *attr = call->attr; /* dim mesh */
    (void)ranks;
    c->kind = SY_COLLECTIVE_ALL_GATHER;
    c->recv_outer = runs(call->out, attr->a);
    c->recv_inner = syi_span_bytes(call->in, (int)attr->a, call->in->rank);
}

static void exchange_gather_pieces(const struct sy_call *call, uint64_t ranks, struct sy_collective *c)
{
    (void)call, (void)ranks;
    c->kind = SY_COLLECTIVE_ALL_GATHER;
}

static void exchange_all_reduce(const struct sy_call *call, uint64_t ranks, struct sy_collective *c)
{
    (void)ranks;
    c->kind = SY_COLLECTIVE_ALL_REDUCE;
    c->elements = runs(call->in, call->in->rank);
}

static void exchange_all_to_all(const struct sy_call *call, uint64_t ranks, struct sy_collective *c)
{
    const struct sy_attr_collective *attr = call->attr; /* split concat mesh */
    c->send_outer = runs(call->in, attr->a);
    c->send_inner = syi_span_bytes(call->in, (int)attr->a, call->in->rank) / ranks;
    c->recv_outer = runs(call->out, attr->b);
    c->recv_inner = syi_span_bytes(call->out, (int)attr->b, call->out->rank) / ranks;
}

static void exchange_send_pieces(const struct sy_call *call, uint64_t ranks, struct sy_collective *c)
{
    const struct sy_attr_collective *attr = call->attr; /* mesh dim */
    c->recv_inner = c->send_inner = syi_span_bytes(call->out, 1, call->out->rank);
    if (attr->b < 0) return;
    c->send_outer = runs(call->in, attr->b);
    c->send_inner = syi_span_bytes(call->in, (int)attr->b, call->in->rank) / ranks;
}

/* ---- cost ---- */

static uint64_t received_by_gathering(uint64_t in, uint64_t out, uint64_t ranks)
{
    (void)out;
    return in * (ranks - 1);
}

static uint64_t received_by_scattering(uint64_t in, uint64_t out, uint64_t ranks)
{
    (void)in;
    return out * (ranks - 1);
}

/* What its two halves take. */
static uint64_t received_by_reducing(uint64_t in, uint64_t out, uint64_t ranks)
{
    (void)in;
    return 2 * (out - out / ranks);
}

/* The piece alone is read. */
static void cost_piece(const struct sy_call *call, struct syi_cost *cost)
{
    cost->bytes = 2 * syi_operand_bytes(&call->out[0]);
}

static void cost_nothing(const struct sy_call *call, struct syi_cost *cost)
{
    (void)call;
    cost->bytes = 0;
}

/* ---- rules ---- */

const struct syi_op_rules syi_op_rules_pack = {.check = check_pack, .grad = grad_pack};
const struct syi_op_rules syi_op_rules_unpack = {.check = check_unpack, .grad = grad_unpack};
const struct syi_op_rules syi_op_rules_lay_out = {.check = check_lay_out};
const struct syi_op_rules syi_op_rules_lay_out_nt = {.check = check_lay_out};
const struct syi_op_rules syi_op_rules_lay_out_both = {.check = check_lay_out_both};
const struct syi_op_rules syi_op_rules_all_gather = {
    .check = check_move, .exchange = exchange_all_gather, .received = received_by_gathering};
const struct syi_op_rules syi_op_rules_all_to_all = {.check = check_exchange,
                                                     .exchange = exchange_all_to_all};
const struct syi_op_rules syi_op_rules_all_reduce = {
    .check = check_move, .exchange = exchange_all_reduce, .received = received_by_reducing};
const struct syi_op_rules syi_op_rules_reduce_scatter = {.check = check_move,
                                                         .received = received_by_scattering};
const struct syi_op_rules syi_op_rules_slice = {.check = check_move, .cost = cost_piece};
const struct syi_op_rules syi_op_rules_send_pieces = {.exchange = exchange_send_pieces};
const struct syi_op_rules syi_op_rules_gather_pieces = {.exchange = exchange_gather_pieces,
                                                        .received = received_by_gathering};
const struct syi_op_rules syi_op_rules_wait = {.check = check_wait, .cost = cost_nothing};
const struct syi_op_rules syi_op_rules_join = {.check = check_join};
const struct syi_op_rules syi_op_rules_part = {.check = check_part, .cost = cost_piece};
const struct syi_op_rules syi_op_rules_expand_dims = {.check = check_reshape};
const struct syi_op_rules syi_op_rules_squeeze = {.check = check_reshape};
