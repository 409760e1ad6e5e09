/* SPDX-License-Identifier: Apache-2.0 */
/* The partition pass. For every op and every mesh axis it decides which letter of the op's row in ops.def the
 * axis splits (the placement rules of doc/architecture.md), lays the inputs out accordingly, and converts
 * what the op yields to what its outputs declare by their logical axes. Runs after differentiation and
 * optimizer, so collectives need no gradient. */
#include "config.h"

#include <string.h>

#include "passes/passes.h"

/* The layout of a tensor on the mesh. */
struct layout {
    uint8_t split[SY_MAX_DIMS];
    uint8_t partial;
};

/* A conversion made before, so that two readers share one collective. */
struct cached {
    struct layout layout;
    int tensor; /* local tensor */
    int next;   /* 1 + the entry of the same global tensor before this one; 0: none */
};

struct pass {
    const struct syi_program *global;
    const struct syi_mesh *mesh;
    struct syi_program *local;
    uint8_t (*spec)[SY_MAX_DIMS]; /* [global->n_tensors] declared layout, mesh axes of each dim */
    struct cached *cache;
    size_t n_cache, cap_cache;
    int *newest; /* [global->n_tensors] 1 + the last entry of a global tensor; 0: none */
};

static int same_layout(const struct layout *a, const struct layout *b)
{
    return !memcmp(a, b, sizeof *a);
}

static struct layout declared(const struct pass *pass, int tensor)
{
    struct layout layout = {{0}, 0};
    memcpy(layout.split, pass->spec[tensor], sizeof layout.split);
    return layout;
}

/* ---- conversions ---- */

static struct layout layout_of(const struct pass *pass, int local)
{
    const struct syi_tensor *t = &pass->local->tensor[local];
    struct layout layout = {{0}, t->partial};
    memcpy(layout.split, t->split, sizeof layout.split);
    return layout;
}

/* A local temporary with the logical shape of local tensor `like`, laid out as `layout`. */
static int temp_in_layout(struct pass *pass, int like, const struct layout *layout)
{
    struct syi_tensor t = pass->local->tensor[like];
    for (int i = 0; i < t.rank; i++) {
        int64_t whole = t.dim[i] * syi_mesh_size(pass->mesh, t.split[i]);
        int pieces = syi_mesh_size(pass->mesh, layout->split[i]);
        if (whole % pieces)
            return syi_program_fail(pass->local, SY_EINVAL,
                                    "axis %s has %lld elements, which %d ranks do not divide",
                                    syi_axis_name(t.axis[i]), (long long)whole, pieces);
        t.dim[i] = whole / pieces;
    }
    int out = syi_tensor_add(pass->local, NULL, SYI_TEMP, t.dtype, t.rank, t.dim, t.axis);
    if (out < 0) return -1;
    memcpy(pass->local->tensor[out].split, layout->split, sizeof layout->split);
    pass->local->tensor[out].partial = layout->partial;
    return out;
}

/* Emits one collective from tensor `in` to layout `to`, into `target` if that is where it ends, else a
 * temporary. */
static int collective(struct pass *pass, enum sy_op op, int in, struct layout to, int64_t a, int64_t b,
                      int64_t c, int target)
{
    int out = target;
    struct layout end = {{0}, 0};
    if (target >= 0) end = layout_of(pass, target);
    if (target < 0 || !same_layout(&end, &to)) out = temp_in_layout(pass, in, &to);
    struct sy_attr_collective attr = {a, b, c};
    if (in < 0 || out < 0 || syi_op_add(pass->local, (int)op, 1, &in, 1, &out, &attr, sizeof attr)) return -1;
    return out;
}

/* Whether taking `lost` off a split leaves whole, contiguous pieces: only the minor-most axes may go, so its
 * lowest bit is above all that stay. */
static int is_minor(int split, int lost)
{
    int kept = split & ~lost;
    return (lost & -lost) > kept;
}

/* Sums partials: one reduce_scatter where the target splits exactly one dim by all of them, else all_reduce.
 */
static int resolve_partial(struct pass *pass, int in, const struct layout *want, int target)
{
    struct layout now = layout_of(pass, in), to = now;
    int mesh_axes = now.partial;
    to.partial = 0;
    for (int dim = 0; dim < SY_MAX_DIMS; dim++)
        if (mesh_axes && want->split[dim] == (now.split[dim] | mesh_axes) && !(now.split[dim] & mesh_axes) &&
            is_minor(want->split[dim], mesh_axes)) {
            to.split[dim] = want->split[dim];
            return collective(pass, SY_OP_REDUCE_SCATTER, in, to, dim, mesh_axes, 0, target);
        }
    return collective(pass, SY_OP_ALL_REDUCE, in, to, mesh_axes, 0, 0, target);
}

/* One step towards `want` for dim `from`, whose split must lose axes: an all_to_all where another dim gains
 * them, else an all_gather. */
static int lose_split(struct pass *pass, int in, int from, const struct layout *want, int target)
{
    struct layout now = layout_of(pass, in), to = now;
    int lost = now.split[from] & ~want->split[from];
    if (!is_minor(now.split[from], lost)) lost = now.split[from];
    to.split[from] = (uint8_t)(now.split[from] & ~lost);
    for (int dim = 0; dim < SY_MAX_DIMS; dim++)
        if (dim != from && (want->split[dim] & ~now.split[dim]) == lost && is_minor(want->split[dim], lost)) {
            to.split[dim] = (uint8_t)(now.split[dim] | lost);
            return collective(pass, SY_OP_ALL_TO_ALL, in, to, dim, from, lost, target);
        }
    return collective(pass, SY_OP_ALL_GATHER, in, to, from, lost, 0, target);
}

static int gain_split(struct pass *pass, int in, int dim, const struct layout *want, int target)
{
    struct layout to = layout_of(pass, in);
    int gained = want->split[dim] & ~to.split[dim];
    to.split[dim] = want->split[dim];
    return collective(pass, SY_OP_SLICE, in, to, dim, gained, 0, target);
}

/* Local tensor `in` laid out as `want`; the last step writes `target` if given. */
static int convert(struct pass *pass, int in, const struct layout *want, int target)
{
    int guard = 0;
    while (in >= 0 && guard++ < 16) {
        struct layout now = layout_of(pass, in);
        if (same_layout(&now, want)) return in;
        int dim = 0;
        if (now.partial & ~want->partial) {
            in = resolve_partial(pass, in, want, target);
            continue;
        }
        for (dim = 0; dim < SY_MAX_DIMS && !(now.split[dim] & ~want->split[dim]); dim++) continue;
        if (dim < SY_MAX_DIMS) {
            in = lose_split(pass, in, dim, want, target);
            continue;
        }
        for (dim = 0; dim < SY_MAX_DIMS && now.split[dim] == want->split[dim]; dim++) continue;
        if (dim == SY_MAX_DIMS) break; /* only sums differ: terms cannot be made of a sum */
        if (!is_minor(want->split[dim], want->split[dim] & ~now.split[dim])) { /* cut again from the whole */
            struct layout whole = now;
            whole.split[dim] = 0;
            if (now.split[dim])
                in = collective(pass, SY_OP_ALL_GATHER, in, whole, dim, now.split[dim], 0, -1);
            if (in < 0) return -1;
        }
        in = gain_split(pass, in, dim, want, target);
    }
    if (in >= 0) syi_program_fail(pass->local, SY_EINTERNAL, "layout conversion does not end");
    return -1;
}

/* Global tensor `source` in layout `want`; conversions are remembered until the tensor is written again.
 * Local tensor ids of global tensors are the same: they are made first, in order. */
static int input_in_layout(struct pass *pass, int source, const struct layout *want)
{
    for (int i = pass->newest[source]; i; i = pass->cache[i - 1].next)
        if (same_layout(&pass->cache[i - 1].layout, want)) return pass->cache[i - 1].tensor;
    int tensor = convert(pass, source, want, -1);
    struct sy_error err = {0};
    if (tensor < 0 || tensor == source) return tensor;
    if (SYI_GROW(pass->cache, pass->cap_cache, pass->n_cache + 1, &err))
        return syi_program_fail(pass->local, SY_ENOMEM, "out of memory");
    pass->cache[pass->n_cache++] = (struct cached){*want, tensor, pass->newest[source]};
    pass->newest[source] = (int)pass->n_cache;
    return tensor;
}

/* ---- placement ---- */

/* The letters of an op's operands, and which mesh axes split each letter. */
struct placement {
    char letters[SY_MAX_IN + SY_MAX_OUT][SY_MAX_DIMS + 1]; /* inputs, then outputs */
    uint8_t mask[26];                                      /* mesh axes of letter 'a' + i */
};

static int in_outputs(const struct placement *place, const struct syi_op *op, char letter)
{
    for (int i = 0; i < op->n_out; i++)
        if (strchr(place->letters[SY_MAX_IN + i], letter)) return 1;
    return 0;
}

/* Letter that mesh axis `bit` splits in a tensor as declared, or 0. */
static char split_letter(const struct pass *pass, int tensor, const char *letters, const char *allowed,
                         int bit)
{
    if (tensor < 0) return 0;
    struct layout layout = declared(pass, tensor);
    for (int dim = 0; letters[dim]; dim++)
        if ((layout.split[dim] & bit) && strchr(allowed, letters[dim])) return letters[dim];
    return 0;
}

/* Whether a sum over `letter` has leaves enough for one more mesh axis. The op's leaf comes from its first
 * input that has the letter; embed is one leaf (syi_leaf_length), so it is gathered. */
static int leaves_allow(const struct pass *pass, const struct syi_op *op, const struct placement *place,
                        char letter, int bit)
{
    for (int i = 0; i < op->n_in; i++) {
        const char *at = op->in[i] < 0 ? NULL : strchr(place->letters[i], letter);
        if (!at) continue;
        int axis = pass->global->tensor[op->in[i]].axis[at - place->letters[i]];
        int leaves = axis == SYI_AXIS_EMBED ? 1 : (int)pass->global->leaf_count[axis];
        return leaves % syi_mesh_size(pass->mesh, place->mask[letter - 'a'] | bit) == 0;
    }
    return 0;
}

/* Chooses the letter for one mesh axis. The rules of doc/architecture.md, Placement, in their order: a letter
 * that stays in the outputs (the other operand is gathered); a contraction split in any input whose leaves
 * allow it; what an output asks for (the inputs are sliced). 0: none. */
static char choose_letter(const struct pass *pass, const struct syi_op *op, const struct placement *place,
                          const char *allowed, int bit)
{
    char contraction = 0;
    for (int i = 0; i < op->n_in; i++) {
        char letter = split_letter(pass, op->in[i], place->letters[i], allowed, bit);
        if (letter && in_outputs(place, op, letter)) return letter;
        if (letter && !contraction && leaves_allow(pass, op, place, letter, bit)) contraction = letter;
    }
    if (contraction) return contraction;
    for (int i = 0; i < op->n_out; i++) {
        char letter = split_letter(pass, op->out[i], place->letters[SY_MAX_IN + i], allowed, bit);
        if (letter) return letter;
    }
    return 0;
}

static void place_op(const struct pass *pass, const struct syi_op *op, struct placement *place)
{
    memset(place, 0, sizeof *place);
    const char *allowed = syi_op_info(op->op)->split;
    for (int i = 0; i < op->n_in; i++)
        if (op->in[i] >= 0)
            syi_op_letters(op->op, 0, i, pass->global->tensor[op->in[i]].rank, place->letters[i]);
    for (int i = 0; i < op->n_out; i++)
        if (op->out[i] >= 0)
            syi_op_letters(op->op, 1, i, pass->global->tensor[op->out[i]].rank,
                           place->letters[SY_MAX_IN + i]);
    for (int bit = SYI_MESH_DATA; bit <= SYI_MESH_MODEL; bit <<= 1) {
        if (syi_mesh_size(pass->mesh, bit) < 2) continue;
        char letter = choose_letter(pass, op, place, allowed, bit);
        if (letter) place->mask[letter - 'a'] |= (uint8_t)bit;
    }
}

static struct layout letters_layout(const struct placement *place, const char *letters)
{
    struct layout layout = {{0}, 0};
    for (int dim = 0; letters[dim]; dim++) layout.split[dim] = place->mask[letters[dim] - 'a'];
    return layout;
}

/* Mesh axes on which an output is a term of a sum: those of letters it lacks that some input has. */
static uint8_t partial_axes(const struct placement *place, const char *letters)
{
    uint8_t partial = 0;
    for (int i = 0; i < 26; i++)
        if (place->mask[i] && !strchr(letters, 'a' + i)) partial |= place->mask[i];
    return partial;
}

/* ---- the walk ---- */

/* Ops on operands of one shape: all take the layout of one of them (broadcast operands and parts what of it
 * fits), so nothing moves where the model declared its axes consistently. */
static struct layout fitted(const struct pass *pass, const struct layout *full, int full_rank, int tensor,
                            const struct syi_tensor *shape)
{
    const struct syi_tensor *t = &pass->global->tensor[tensor];
    struct layout layout = {{0}, 0};
    if (t->dtype == SY_I64 || syi_tensor_count(t) == 1) return layout; /* rng state, scalars */
    if (t->rank == full_rank) {
        for (int i = 0; i < t->rank; i++) /* an extent of 1 beside more is broadcast: one value a row */
            layout.split[i] = t->dim[i] == 1 && shape->dim[i] > 1 ? 0 : full->split[i];
    } else if (t->rank == 1) {
        layout.split[0] = full->split[full_rank - 1];
    } else if (t->rank == full_rank - 1) {
        memcpy(layout.split, full->split, (size_t)t->rank);
    }
    return layout;
}

/* Emits the op with inputs laid out as in want[0..n_in) and outputs yielding want[SY_MAX_IN..]. */
static int emit_op(struct pass *pass, const struct syi_op *op, const struct layout *want)
{
    int in[SY_MAX_IN], out[SY_MAX_OUT], raw[SY_MAX_OUT];
    struct syi_program *local = pass->local;
    for (int i = 0; i < op->n_in; i++) {
        in[i] = op->in[i] < 0 ? -1 : input_in_layout(pass, op->in[i], &want[i]);
        if (local->status) return local->status;
    }
    for (int i = 0; i < op->n_out; i++) {
        out[i] = raw[i] = op->out[i];
        if (out[i] < 0) continue;
        pass->newest[out[i]] = 0;
        struct layout target = layout_of(pass, out[i]);
        if (!same_layout(&target, &want[SY_MAX_IN + i]))
            raw[i] = temp_in_layout(pass, out[i], &want[SY_MAX_IN + i]);
    }
    int status = syi_op_add(local, op->op, op->n_in, in, op->n_out, raw, syi_program_attr(pass->global, op),
                            op->attr_bytes);
    for (int i = 0; !status && i < op->n_out; i++)
        if (raw[i] != out[i]) {
            struct layout target = layout_of(pass, out[i]);
            convert(pass, raw[i], &target, out[i]);
            status = local->status;
        }
    return status;
}

/* A parameter that is computed from shards (ZeRO) is computed in shards, and gathered when it is new. */
static struct layout of_shards(const struct pass *pass, const struct syi_op *op, struct layout full)
{
    const struct syi_tensor *out = &pass->global->tensor[op->out[0]];
    for (int i = 0; pass->mesh->zero && out->kind == SYI_PARAM && i < op->n_in; i++) {
        const struct syi_tensor *t = &pass->global->tensor[op->in[i]];
        if (t->kind == SYI_TEMP && t->rank == out->rank && !memcmp(t->dim, out->dim, sizeof t->dim))
            return declared(pass, op->in[i]);
    }
    return full;
}

/* `like`: the split column of a row without letters, "in", "in-dim" or "out". */
static int partition_alike(struct pass *pass, const struct syi_op *op, const char *like)
{
    struct layout want[SY_MAX_IN + SY_MAX_OUT];
    int out = !strcmp(like, "out"), from = out ? op->out[0] : op->in[0];
    const struct syi_tensor *shape = &pass->global->tensor[from];
    struct layout full = declared(pass, from);
    if (out) full = of_shards(pass, op, full);
    if (!strcmp(like, "in-dim")) full.split[syi_op_field(pass->global, op, "dim", 0)] = 0;
    for (int i = 0; i < op->n_in; i++)
        if (op->in[i] >= 0) want[i] = fitted(pass, &full, shape->rank, op->in[i], shape);
    for (int i = 0; i < op->n_out; i++) want[SY_MAX_IN + i] = full;
    return emit_op(pass, op, want);
}

/* By letters; without any, every operand whole. */
static int partition_letters(struct pass *pass, const struct syi_op *op)
{
    struct layout want[SY_MAX_IN + SY_MAX_OUT];
    struct placement place;
    place_op(pass, op, &place);
    for (int i = 0; i < op->n_in; i++)
        if (op->in[i] >= 0) want[i] = letters_layout(&place, place.letters[i]);
    for (int i = 0; i < op->n_out; i++) {
        if (op->out[i] < 0) continue;
        want[SY_MAX_IN + i] = letters_layout(&place, place.letters[SY_MAX_IN + i]);
        want[SY_MAX_IN + i].partial = partial_axes(&place, place.letters[SY_MAX_IN + i]);
    }
    return emit_op(pass, op, want);
}

/* Leaves are always a power of two, so other numbers of ranks divide none, however many elements there are. */
static int refuse_leaves(const struct syi_program *global, uint8_t axis, int pieces, struct sy_error *err)
{
    char advice[160] = "use a number of ranks there that is a power of two";
    if (!(pieces & (pieces - 1)))
        snprintf(
            advice, sizeof advice,
            "raise reproducible.blocks to %d where it is less, lower reproducible.min_leaf, or use fewer ranks there",
            pieces);
    return syi_error(err, SY_EINVAL, "%s: axis %s has %u leaves, which %d ranks do not divide: %s",
                     global->title, syi_axis_name(axis), global->leaf_count[axis], pieces, advice);
}

static int add_tensors(struct pass *pass, struct sy_error *err)
{
    const struct syi_program *global = pass->global;
    for (size_t i = 0; i < global->n_tensors; i++) {
        struct syi_tensor t = global->tensor[i];
        struct layout layout = declared(pass, (int)i);
        for (int dim = 0; dim < t.rank; dim++) {
            int pieces = syi_mesh_size(pass->mesh, layout.split[dim]);
            uint32_t leaves = global->leaf_count[t.axis[dim]];
            if (pieces & (pieces - 1)) return refuse_leaves(global, t.axis[dim], pieces, err);
            if (t.dim[dim] % pieces)
                return syi_error(err, SY_EINVAL,
                                 "%s: axis %s has %lld elements, which %d ranks do not divide: change "
                                 "mesh.*, the number of ranks, or "
                                 "(axis batch) data.batch_size, train.microbatches, decode.batch_size",
                                 global->title, syi_axis_name(t.axis[dim]), (long long)t.dim[dim], pieces);
            if (leaves % (unsigned)pieces && t.kind == SYI_TEMP)
                return refuse_leaves(global, t.axis[dim], pieces, err);
            t.dim[dim] /= pieces;
        }
        const char *name = t.name ? syi_program_name(global, t.name) : NULL;
        int local = syi_tensor_add(pass->local, name, t.kind, t.dtype, t.rank, t.dim, t.axis);
        if (local < 0) return syi_program_status(pass->local, err);
        memcpy(pass->local->tensor[local].split, layout.split, sizeof layout.split);
        pass->local->tensor[local].initial = t.initial;
        syi_role_set(pass->local, local, t.role, t.of);
    }
    return SY_OK;
}

static int partition_op(struct pass *pass, const struct syi_op *op)
{
    struct syi_program *local = pass->local;
    local->file = syi_program_intern(local, syi_program_name(pass->global, op->file));
    local->line = op->line;
    local->layer = syi_program_intern(local, syi_program_name(pass->global, op->layer));
    const struct syi_op_info *info = syi_op_info(op->op);
    return *info->labels || !*info->split ? partition_letters(pass, op)
                                          : partition_alike(pass, op, info->split);
}

int syi_partition(const struct syi_program *global, const struct syi_mesh *mesh, struct syi_program **local,
                  struct sy_error *err)
{
    struct pass pass = {.global = global, .mesh = mesh};
    int status = syi_program_new(global->title, &pass.local, err);
    if (status) return status;
    memcpy(pass.local->leaf_count, global->leaf_count, sizeof global->leaf_count);
    pass.spec = syi_alloc((global->n_tensors + 1) * sizeof *pass.spec, err);
    pass.newest = syi_alloc((global->n_tensors + 1) * sizeof *pass.newest, err);
    status = pass.spec && pass.newest ? SY_OK : SY_ENOMEM;
    if (!status) syi_zero_specs(global, mesh, pass.spec);
    if (!status) status = add_tensors(&pass, err);
    for (size_t i = 0; !status && i < global->n_ops; i++) {
        status = partition_op(&pass, &global->op[i]);
        if (status) status = syi_program_status(pass.local, err);
    }
    syi_free(pass.cache);
    syi_free(pass.spec);
    syi_free(pass.newest);
    if (!status) status = syi_program_check(pass.local, "partition", err);
    if (status) {
        syi_program_free(pass.local);
        return status;
    }
    *local = pass.local;
    return SY_OK;
}
