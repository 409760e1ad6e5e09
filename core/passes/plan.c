/* SPDX-License-Identifier: Apache-2.0 */
/* The memory plan: the place of every tensor and every workspace. Persist, io and carry tensors are laid out
 * one after the other in the order of their names, once for all programs; temporaries and workspaces share
 * scratch wherever their lifetimes allow. Offsets only: takes no memory and looks at no kernel. A plan is a
 * pure function of the programs.
 *
 * A temporary lives from the first to the last op that names it; the operand of a collective until the wait.
 * Where ops.def says that output 0 may be written over input 0 (for map: over any input of the full shape),
 * and that input dies there, the output gets its place. Then place.c lays the blocks out. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "passes/passes.h"
#include "passes/place.h"

static int too_large(const char *title, const char *what, struct sy_error *err)
{
    return syi_error(
        err, SY_EINVAL,
        "%s: the plan does not end below 2^60 bytes (%s): take a smaller model or batch, or more ranks",
        title, what);
}

/* Lowering may have asked for more bytes than the elements take; asking twice changes nothing. */
static void set_bytes(struct syi_program *program)
{
    for (size_t i = 0; i < program->n_tensors; i++) {
        struct syi_tensor *t = &program->tensor[i];
        uint64_t bytes = (uint64_t)syi_tensor_count(t) * syi_dtype_bytes(t->dtype);
        if (t->bytes < bytes) t->bytes = bytes;
    }
}

/* Kernels number ids, and tokens times the experts that each is sent to, in 32 bits. */
static int check_numbers(const struct syi_program *program, struct sy_error *err)
{
    for (size_t i = 0; i < program->n_tensors; i++) {
        const struct syi_tensor *t = &program->tensor[i];
        if (t->dtype == SY_I32 && syi_tensor_count(t) > INT32_MAX)
            return syi_error(
                err, SY_EINVAL,
                "%s: a rank has %lld token ids or choices of experts at once, and at most %d are "
                "possible: take a smaller batch, more train.microbatches or more ranks",
                program->title, (long long)syi_tensor_count(t), INT32_MAX);
    }
    return SY_OK;
}

/* ---- shared tensors ---- */

struct shared {
    struct syi_program *program;
    struct syi_tensor *tensor;
    const char *name;
    size_t order; /* of the program, to sort stably */
};

static int compare_shared(const void *a, const void *b)
{
    const struct shared *x = a, *y = b;
    int by_name = strcmp(x->name, y->name);
    return by_name ? by_name : (x->order > y->order) - (x->order < y->order);
}

static int same_tensor(const struct syi_tensor *a, const struct syi_tensor *b)
{
    return syi_kind_segment(a->kind) == syi_kind_segment(b->kind) && a->dtype == b->dtype &&
           a->rank == b->rank && !memcmp(a->dim, b->dim, sizeof a->dim) &&
           !memcmp(a->split, b->split, sizeof a->split);
}

/* One name: n entries, in the order of programs. */
static int place_shared(const struct shared *entry, size_t n, struct syi_plan *plan, struct sy_error *err)
{
    const struct syi_program *first = entry[0].program;
    uint64_t bytes = 0;
    for (size_t i = 0; i < n; i++) {
        const struct syi_program *program = entry[i].program;
        if (!entry[i].name[0])
            return syi_error(err, SY_EINTERNAL, "%s: tensor t%zu is shared between programs but has no name",
                             program->title, (size_t)(entry[i].tensor - program->tensor));
        if (i && program == entry[i - 1].program)
            return syi_error(err, SY_EINTERNAL, "%s: two shared tensors are called %s", program->title,
                             entry[i].name);
        if (!same_tensor(entry[0].tensor, entry[i].tensor))
            return syi_error(err, SY_EINTERNAL,
                             "tensor %s differs between programs %s and %s: dtype, extents or split",
                             entry[i].name, first->title, program->title);
        if (bytes < entry[i].tensor->bytes) bytes = entry[i].tensor->bytes;
    }
    uint64_t *end = &plan->bytes[syi_kind_segment(entry[0].tensor->kind)];
    if (syi_add_u64(*end, syi_whole_lines(bytes)) > SYI_MAX_SEGMENT)
        return too_large(first->title, entry[0].name, err);
    for (size_t i = 0; i < n; i++) {
        entry[i].tensor->offset = *end;
        entry[i].tensor->bytes = bytes;
    }
    *end += syi_whole_lines(bytes);
    return SY_OK;
}

static int plan_shared(struct syi_program *const *programs, size_t n, struct syi_plan *plan,
                       struct sy_error *err)
{
    size_t count = 0, used = 0;
    for (size_t p = 0; p < n; p++) count += programs[p]->n_tensors;
    struct shared *entry = syi_alloc(count * sizeof *entry, err);
    if (!entry) return SY_ENOMEM;
    for (size_t p = 0; p < n; p++)
        for (size_t i = 0; i < programs[p]->n_tensors; i++) {
            struct syi_tensor *t = &programs[p]->tensor[i];
            if (t->kind != SYI_TEMP)
                entry[used++] = (struct shared){programs[p], t, syi_program_name(programs[p], t->name), p};
        }
    qsort(entry, used, sizeof *entry, compare_shared);
    int status = SY_OK;
    for (size_t i = 0, next; i < used && !status; i = next) {
        for (next = i + 1; next < used && !strcmp(entry[i].name, entry[next].name); next++) continue;
        status = place_shared(entry + i, next - i, plan, err);
    }
    syi_free(entry);
    return status;
}

/* ---- lifetimes of temporaries ---- */

/* Ops [first, last] that a temporary must survive; first > last: no op names it. */
struct life {
    size_t first, last;
    int root; /* temporary whose place it has: itself, or what it overwrites */
};

static void extend(struct life *life, int tensor, size_t op)
{
    if (tensor < 0) return;
    if (op < life[tensor].first) life[tensor].first = op;
    if (op > life[tensor].last || life[tensor].last == SIZE_MAX) life[tensor].last = op;
}

size_t syi_wait_of(const struct syi_program *program, size_t at)
{
    size_t i = at + 1;
    while (i < program->n_ops &&
           !(program->op[i].op == SY_OP_WAIT && program->op[i].in[0] == program->op[at].out[0]))
        i++;
    return i < program->n_ops ? i : program->n_ops - 1;
}

static void find_lives(const struct syi_program *program, struct life *life)
{
    for (size_t i = 0; i < program->n_tensors; i++) life[i] = (struct life){SIZE_MAX, SIZE_MAX, (int)i};
    for (size_t at = 0; at < program->n_ops; at++) {
        const struct syi_op *op = &program->op[at];
        for (int i = 0; i < op->n_in; i++) extend(life, op->in[i], at);
        for (int i = 0; i < op->n_out; i++) extend(life, op->out[i], at);
        if (op->queue) extend(life, op->in[0], syi_wait_of(program, at));
    }
}

/* ---- in-place ---- */

static int is_named_once(const struct syi_op *op, int tensor)
{
    int n = 0;
    for (int i = 0; i < op->n_in; i++) n += op->in[i] == tensor;
    for (int i = 0; i < op->n_out; i++) n += op->out[i] == tensor;
    return n == 1;
}

/* Whether an output other than `out` of a map is a plain copy of input number i: kernels store outputs one
 * after the other, so that input must outlive the first of them. */
static int is_passed_on(const struct syi_op *op, const struct sy_attr_map *attr, int i, int out)
{
    for (int o = 0; o < op->n_out; o++) {
        int from = attr->out_register[o];
        if (op->out[o] != out && from < op->n_in && op->in[from] == op->in[i]) return 1;
    }
    return 0;
}

/* Whether output `out` of the op at `at` may take the place of input number i: both temporaries, the same
 * elements, born and dying here. A map reads an element before it writes it, so there an input may even be
 * named twice. */
static int may_overwrite(const struct syi_program *program, const struct life *life, size_t at, int i,
                         int out)
{
    const struct syi_op *op = &program->op[at];
    const struct syi_tensor *from = &program->tensor[op->in[i]], *to = &program->tensor[out];
    if (from->kind != SYI_TEMP || to->kind != SYI_TEMP) return 0;
    if (life[op->in[i]].last != at || life[out].first != at || !is_named_once(op, out)) return 0;
    if (from->dtype != to->dtype || from->rank != to->rank || memcmp(from->dim, to->dim, sizeof from->dim))
        return 0;
    if (op->op != SY_OP_MAP) return is_named_once(op, op->in[i]);
    const struct sy_attr_map *attr = syi_program_attr(program, op);
    return i != attr->rng && !is_passed_on(op, attr, i, out);
}

/* Gives each output at most one dying input and each input to at most one output. */
static void overwrite(const struct syi_program *program, struct life *life, size_t at)
{
    const struct syi_op *op = &program->op[at];
    int taken[SY_MAX_IN], n_taken = 0;
    int n_in = op->op == SY_OP_MAP ? op->n_in : 1, n_out = op->op == SY_OP_MAP ? op->n_out : 1;
    for (int o = 0; o < n_out; o++)
        for (int i = 0; i < n_in && op->out[o] >= 0; i++) {
            int free = op->in[i] >= 0 && may_overwrite(program, life, at, i, op->out[o]);
            for (int k = 0; k < n_taken; k++) free &= taken[k] != op->in[i];
            if (!free) continue;
            taken[n_taken++] = op->in[i];
            life[op->out[o]].root = life[op->in[i]].root;
            break;
        }
}

/* ---- scratch ---- */

/* Every block has a place of its own. Returns the end of all. */
static uint64_t place_apart(struct syi_block *block, size_t n)
{
    uint64_t end = 0;
    for (size_t i = 0; i < n; i++) {
        block[i].offset = end;
        end = syi_add_u64(end, block[i].bytes);
    }
    return end;
}

/* One block for each place: temporaries that overwrite each other in turn (as long as any of them lasts, as
 * large as the largest), then workspaces. of: [n_tensors], the block of a root. Returns how many blocks. */
static size_t make_blocks(struct syi_program *program, const struct life *life, const uint64_t *workspace,
                          uint64_t *workspace_at, size_t *of, struct syi_block *block)
{
    size_t n = 0;
    for (size_t i = 0; i < program->n_tensors; i++) {
        struct syi_tensor *t = &program->tensor[i];
        if (t->kind != SYI_TEMP || life[i].first == SIZE_MAX) continue;
        if (life[i].root == (int)i) {
            of[i] = n;
            block[n++] = (struct syi_block){0, 0, life[i].first, life[i].last, &t->offset};
        }
    }
    for (size_t i = 0; i < program->n_tensors; i++) {
        if (program->tensor[i].kind != SYI_TEMP || life[i].first == SIZE_MAX) continue;
        struct syi_block *b = &block[of[life[i].root]];
        uint64_t bytes = syi_whole_lines(program->tensor[i].bytes);
        if (bytes > b->bytes) b->bytes = bytes;
        if (life[i].last > b->last) b->last = life[i].last;
    }
    for (size_t i = 0; workspace && i < program->n_ops; i++) {
        workspace_at[i] = 0;
        if (workspace[i])
            block[n++] = (struct syi_block){syi_whole_lines(workspace[i]), 0, i, i, &workspace_at[i]};
    }
    return n;
}

static int plan_scratch(struct syi_program *program, const uint64_t *workspace, uint64_t *workspace_at,
                        int reuse, uint64_t *bytes, struct sy_error *err)
{
    uint64_t end;
    struct life *life = syi_alloc(program->n_tensors * sizeof *life, err);
    struct syi_block *block = syi_alloc((program->n_tensors + program->n_ops) * sizeof *block, err);
    size_t *of = syi_alloc(program->n_tensors * sizeof *of, err);
    int status = life && block && of ? SY_OK : SY_ENOMEM;
    if (status) goto done;
    find_lives(program, life);
    for (size_t at = 0; reuse && at < program->n_ops; at++)
        if (syi_op_has_flag(program->op[at].op, 'I')) overwrite(program, life, at);
    size_t n = make_blocks(program, life, workspace, workspace_at, of, block);
    if (reuse)
        status = syi_place_blocks(block, n, program->n_ops + 1, &end, err);
    else
        end = place_apart(block, n);
    if (!status && end > SYI_MAX_SEGMENT)
        status = too_large(program->title, "temporaries and workspaces", err);
    if (status) goto done;
    for (size_t i = 0; i < n; i++) *block[i].to = block[i].offset;
    for (size_t i = 0; i < program->n_tensors; i++)
        if (program->tensor[i].kind == SYI_TEMP)
            program->tensor[i].offset = program->tensor[life[i].root].offset;
    if (end > *bytes) *bytes = end;
done:
    syi_free(life);
    syi_free(block);
    syi_free(of);
    return status;
}

static uint64_t shared_bytes(const struct syi_plan *plan)
{
    return plan->bytes[SYI_PERSIST] + plan->bytes[SYI_IO] + plan->bytes[SYI_CARRY_SEGMENT];
}

uint64_t syi_plan_device_bytes(const struct syi_plan *plan)
{
    uint64_t staging = plan->links ? plan->bytes[SYI_STAGING] : 0;
    return plan->on_device ? shared_bytes(plan) + plan->bytes[SYI_SCRATCH] + staging : 0;
}

uint64_t syi_plan_host_bytes(const struct syi_plan *plan)
{
    uint64_t scratch = plan->on_device ? 0 : plan->bytes[SYI_SCRATCH];
    uint64_t staging = plan->links ? 0 : plan->bytes[SYI_STAGING];
    return shared_bytes(plan) + scratch + plan->bytes[SYI_SNAPSHOT] + staging;
}

uint64_t syi_plan_bytes(const struct syi_plan *plan)
{
    return syi_plan_host_bytes(plan) + syi_plan_device_bytes(plan);
}

int syi_plan(struct syi_program *const *programs, size_t n, uint64_t *const *workspace,
             uint64_t *const *workspace_at, int reuse, struct syi_plan *plan, struct sy_error *err)
{
    *plan = (struct syi_plan){0};
    int status = SY_OK;
    for (size_t p = 0; p < n && !status; p++) {
        set_bytes(programs[p]);
        status = check_numbers(programs[p], err);
    }
    if (!status) status = plan_shared(programs, n, plan, err);
    for (size_t p = 0; p < n && !status; p++)
        status = plan_scratch(programs[p], workspace ? workspace[p] : NULL,
                              workspace ? workspace_at[p] : NULL, reuse, &plan->bytes[SYI_SCRATCH], err);
    for (size_t p = 0; p < n && !status; p++) status = syi_program_check(programs[p], "plan", err);
    return status;
}
