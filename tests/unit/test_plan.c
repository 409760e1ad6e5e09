/* SPDX-License-Identifier: Apache-2.0 */
/* The memory plan, judged by rules written down again here: what is alive at an op does not overlap, unless
 * ops.def lets an output take the place of an input that dies there; marks are exact; shared names mean one
 * place. */
#include "config.h"

#include "random_program.h"
#include "runtime/session.h"

enum { PROGRAMS = 3, OPS = 80 };

/* ---- who is alive ---- */

static int touches(const struct syi_op *op, int tensor)
{
    for (int i = 0; i < op->n_in; i++)
        if (op->in[i] == tensor) return 1;
    for (int i = 0; i < op->n_out; i++)
        if (op->out[i] == tensor) return 1;
    return 0;
}

/* Whether a collective that sends `tensor` was started at or before `at` and is not waited for before `at`.
 */
static int is_being_sent(const struct syi_program *p, int tensor, size_t at)
{
    for (size_t i = at + 1; i-- > 0;) {
        if (!p->op[i].queue || p->op[i].in[0] != tensor) continue;
        size_t wait = i + 1;
        while (p->op[wait].op != SY_OP_WAIT || p->op[wait].in[0] != p->op[i].out[0]) wait++;
        if (wait >= at) return 1;
    }
    return 0;
}

/* live[op * n_tensors + t]: temporary t must be intact during op. */
static uint8_t *find_live(const struct syi_program *p)
{
    uint8_t *live = syi_alloc(p->n_ops * p->n_tensors + 1, NULL);
    for (size_t t = 0; t < p->n_tensors; t++) {
        if (p->tensor[t].kind != SYI_TEMP) continue;
        size_t first = SIZE_MAX, last = 0;
        for (size_t at = 0; at < p->n_ops; at++)
            if (touches(&p->op[at], (int)t) || is_being_sent(p, (int)t, at)) {
                if (first == SIZE_MAX) first = at;
                last = at;
            }
        for (size_t at = first; at != SIZE_MAX && at <= last; at++) live[at * p->n_tensors + t] = 1;
    }
    return live;
}

static int is_in(const struct syi_op *op, int tensor)
{
    for (int i = 0; i < op->n_in; i++)
        if (op->in[i] == tensor) return 1;
    return 0;
}

static int is_out(const struct syi_op *op, int tensor)
{
    for (int i = 0; i < op->n_out; i++)
        if (op->out[i] == tensor) return 1;
    return 0;
}

/* Whether an output of the map other than `out` is a copy of `in`. */
static int is_copied(const struct syi_program *p, const struct syi_op *op, int in, int out)
{
    const struct sy_attr_map *attr = syi_program_attr(p, op);
    for (int o = 0; o < op->n_out; o++)
        if (op->out[o] != out && attr->out_register[o] < op->n_in && op->in[attr->out_register[o]] == in)
            return 1;
    return 0;
}

static int is_named(const struct syi_program *p, int tensor, size_t first, size_t end)
{
    for (; first < end; first++)
        if (touches(&p->op[first], tensor) || is_being_sent(p, tensor, first)) return 1;
    return 0;
}

/* Whether `out` may be on `in` at this op. */
static int in_place_allowed(const struct syi_program *p, size_t at, int in, int out)
{
    const struct syi_op *op = &p->op[at];
    const struct syi_tensor *a = &p->tensor[in], *b = &p->tensor[out];
    int dies = !is_named(p, in, at + 1, p->n_ops), born = !is_named(p, out, 0, at);
    if (!is_in(op, in) || !is_out(op, out) || !dies || !born || op->queue) return 0;
    if (!syi_op_has_flag(op->op, 'I') || a->offset != b->offset || memcmp(a->dim, b->dim, sizeof a->dim))
        return 0;
    return op->op == SY_OP_MAP ? !is_copied(p, op, in, out) : op->in[0] == in && op->out[0] == out;
}

static int overlap(uint64_t a, uint64_t a_bytes, uint64_t b, uint64_t b_bytes)
{
    return a < b + b_bytes && b < a + a_bytes;
}

/* Returns how many outputs were written over inputs. */
static int check_plan(const struct syi_program *p, const uint64_t *workspace, const uint64_t *workspace_at,
                      uint64_t scratch, uint64_t *mark)
{
    uint8_t *live = find_live(p);
    int in_place = 0;
    for (size_t at = 0; at < p->n_ops; at++) {
        const uint8_t *now = live + at * p->n_tensors;
        if (workspace[at]) {
            cr_assert_eq(workspace_at[at] % 64, 0);
            if (workspace_at[at] + workspace[at] > *mark) *mark = workspace_at[at] + workspace[at];
        }
        for (size_t a = 0; a < p->n_tensors; a++) {
            const struct syi_tensor *x = &p->tensor[a];
            if (!now[a]) continue;
            cr_assert_eq(x->offset % 64, 0);
            cr_assert_geq(x->bytes, (uint64_t)syi_tensor_count(x) * syi_dtype_bytes(x->dtype));
            cr_assert_leq(x->offset + x->bytes, scratch);
            if (x->offset + x->bytes > *mark) *mark = x->offset + x->bytes;
            cr_assert_not(workspace[at] && overlap(x->offset, x->bytes, workspace_at[at], workspace[at]),
                          "op %zu: its workspace on t%zu", at, a);
            for (size_t b = a + 1; b < p->n_tensors; b++) {
                const struct syi_tensor *y = &p->tensor[b];
                if (!now[b] || !overlap(x->offset, x->bytes, y->offset, y->bytes)) continue;
                cr_assert(in_place_allowed(p, at, (int)a, (int)b) || in_place_allowed(p, at, (int)b, (int)a),
                          "op %zu %s: t%zu and t%zu overlap", at, syi_op_info(p->op[at].op)->name, a, b);
                in_place++;
            }
        }
    }
    syi_free(live);
    return in_place;
}

/* ---- random programs ---- */

struct set {
    struct syi_program *program[PROGRAMS];
    uint64_t *workspace[PROGRAMS], *workspace_at[PROGRAMS];
    struct syi_plan plan;
};

static void set_make(struct set *set, uint64_t seed, const struct syi_mesh *mesh, int reuse)
{
    struct sy_error err = {0};
    uint64_t state = seed;
    for (int i = 0; i < PROGRAMS; i++) {
        struct syi_program *p = set->program[i] = rp_program(seed * 8 + (uint64_t)i, OPS, mesh, 1);
        for (size_t t = 0; t < p->n_tensors; t++) { /* outputs differ between programs, x and c are shared */
            char name[16];
            if (p->tensor[t].kind != SYI_OUTPUT) continue;
            snprintf(name, sizeof name, "p%d.%s", i, syi_program_name(p, p->tensor[t].name));
            p->tensor[t].name = syi_program_intern(p, name);
        }
        cr_assert_eq(syi_lower(p, mesh, 1, &err), SY_OK, "%s", err.text);
        set->workspace[i] = syi_alloc(p->n_ops * sizeof(uint64_t), NULL);
        set->workspace_at[i] = syi_alloc(p->n_ops * sizeof(uint64_t), NULL);
        for (size_t at = 0; at < p->n_ops; at++) {
            state = state * 6364136223846793005u + 1;
            set->workspace[i][at] =
                p->op[at].queue == 0 && (state >> 40) % 3 == 0 ? (state >> 45) % 50000 : 0;
        }
    }
    cr_assert_eq(syi_plan(set->program, PROGRAMS, set->workspace, set->workspace_at, reuse, &set->plan, &err),
                 SY_OK, "%s", err.text);
}

static void set_free(struct set *set)
{
    for (int i = 0; i < PROGRAMS; i++) {
        syi_program_free(set->program[i]);
        syi_free(set->workspace[i]);
        syi_free(set->workspace_at[i]);
    }
}

static uint64_t round_up(uint64_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

/* Most bytes that any op needs at once: no plan can be smaller. An output in the place of an input counts
 * once. */
static uint64_t least_scratch(const struct syi_program *p, const uint64_t *workspace)
{
    uint8_t *live = find_live(p);
    uint64_t most = 0;
    for (size_t at = 0; at < p->n_ops; at++) {
        uint64_t bytes = round_up(workspace[at]);
        for (size_t t = 0; t < p->n_tensors; t++) {
            if (!live[at * p->n_tensors + t]) continue;
            int counted = 0;
            for (size_t b = 0; b < t; b++)
                counted |= live[at * p->n_tensors + b] && p->tensor[b].offset == p->tensor[t].offset;
            if (!counted) bytes += round_up(p->tensor[t].bytes);
        }
        if (bytes > most) most = bytes;
    }
    syi_free(live);
    return most;
}

Test(plan, what_is_alive_lies_apart)
{
    struct syi_mesh meshes[] = {mesh_of(1, 1, 1), mesh_of(2, 1, 2), mesh_of(2, 2, 2)};
    int in_place = 0;
    uint64_t planned = 0, least = 0;
    for (uint64_t seed = 1; seed <= 40; seed++) {
        struct set set, again, apart;
        const struct syi_mesh *mesh = &meshes[seed % SYI_COUNT(meshes)];
        set_make(&set, seed, mesh, 1);
        set_make(&again, seed, mesh, 1);
        set_make(&apart, seed, mesh, 0);
        uint64_t mark = 0, mark_apart = 0, floor = 0;
        for (int i = 0; i < PROGRAMS; i++) {
            in_place += check_plan(set.program[i], set.workspace[i], set.workspace_at[i],
                                   set.plan.bytes[SYI_SCRATCH], &mark);
            cr_assert_eq(check_plan(apart.program[i], apart.workspace[i], apart.workspace_at[i],
                                    apart.plan.bytes[SYI_SCRATCH], &mark_apart),
                         0, "without reuse nothing shares a place");
            for (size_t t = 0; t < set.program[i]->n_tensors; t++)
                cr_assert_eq(set.program[i]->tensor[t].offset, again.program[i]->tensor[t].offset,
                             "a plan is a function");
            uint64_t needs = least_scratch(set.program[i], set.workspace[i]);
            if (needs > floor) floor = needs;
        }
        cr_assert_eq(set.plan.bytes[SYI_SCRATCH], round_up(mark), "the mark is what is used");
        cr_assert_eq(apart.plan.bytes[SYI_SCRATCH], round_up(mark_apart));
        cr_assert_lt(set.plan.bytes[SYI_SCRATCH], apart.plan.bytes[SYI_SCRATCH]);
        cr_assert_leq(floor, set.plan.bytes[SYI_SCRATCH]);
        planned += set.plan.bytes[SYI_SCRATCH];
        least += floor;
        set_free(&set);
        set_free(&again);
        set_free(&apart);
    }
    cr_assert_gt(in_place, 100, "%d outputs in place", in_place);
    cr_assert_leq((double)planned, 1.1 * (double)least, "%.3f of the least possible",
                  (double)planned / (double)least);
}

Test(plan, shared_names_have_one_place_in_their_segment)
{
    struct syi_mesh mesh = mesh_of(2, 1, 2);
    struct set set;
    set_make(&set, 5, &mesh, 1);
    const char *const names[] = {"x0", "x1", "x2", "c0", "c1", "c2"};
    uint64_t offset[6], bytes[6];
    for (int n = 0; n < 6; n++)
        for (int i = 0; i < PROGRAMS; i++) {
            const struct syi_tensor *t = &set.program[i]->tensor[syi_program_find(set.program[i], names[n])];
            if (i == 0) offset[n] = t->offset, bytes[n] = t->bytes;
            cr_assert_eq(t->offset, offset[n]);
            cr_assert_eq(t->bytes, bytes[n], "padding that one program asks for counts in all");
        }
    uint64_t carry = 0, io = 0;
    for (int n = 0; n < 3; n++) carry += round_up(bytes[3 + n]);
    for (size_t t = 0; t < set.program[0]->n_tensors; t++)
        if (set.program[0]->tensor[t].kind == SYI_INPUT) io += round_up(set.program[0]->tensor[t].bytes);
    for (int i = 0; i < PROGRAMS; i++)
        for (size_t t = 0; t < set.program[i]->n_tensors; t++)
            if (set.program[i]->tensor[t].kind == SYI_OUTPUT) io += round_up(set.program[i]->tensor[t].bytes);
    cr_assert_eq(set.plan.bytes[SYI_CARRY_SEGMENT], carry);
    cr_assert_eq(set.plan.bytes[SYI_IO], io);
    cr_assert_eq(set.plan.bytes[SYI_PERSIST], 0);
    set_free(&set);
}

static struct syi_program *with_tensor(const char *title, const char *name, int kind, int dtype, int64_t n)
{
    struct syi_program *p;
    struct sy_error err = {0};
    cr_assert_eq(syi_program_new(title, &p, &err), SY_OK);
    syi_tensor_add(p, name, kind, dtype, 1, &n, NULL);
    return p;
}

static void expect_refused(struct syi_program *a, struct syi_program *b, const char *words)
{
    struct syi_plan plan;
    struct sy_error err = {0};
    struct syi_program *both[2] = {a, b};
    cr_assert_eq(syi_plan(both, b ? 2 : 1, NULL, NULL, 1, &plan, &err), SY_EINTERNAL);
    cr_assert(strstr(err.text, words), "%s", err.text);
    syi_program_free(a);
    syi_program_free(b);
}

Test(plan, a_name_means_one_tensor)
{
    expect_refused(with_tensor("a", "w", SYI_PARAM, SY_F32, 4), with_tensor("b", "w", SYI_PARAM, SY_F32, 5),
                   "tensor w");
    expect_refused(with_tensor("a", "w", SYI_PARAM, SY_F32, 4), with_tensor("b", "w", SYI_PARAM, SY_I32, 4),
                   "a and b");
    expect_refused(with_tensor("a", "w", SYI_PARAM, SY_F32, 4), with_tensor("b", "w", SYI_CARRY, SY_F32, 4),
                   "tensor w");
    expect_refused(with_tensor("a", NULL, SYI_PARAM, SY_F32, 4), NULL, "no name");
    struct syi_program *twice = with_tensor("a", "w", SYI_PARAM, SY_F32, 4);
    syi_tensor_add(twice, "w", SYI_PARAM, SY_F32, 1, (int64_t[]){4}, NULL);
    expect_refused(twice, NULL, "two shared tensors");
}

/* The largest graphs have tens of thousands of ops: planning them must not take minutes. */
Test(plan, a_long_chain_is_planned_quickly, .timeout = 20)
{
    struct syi_program *p;
    struct syi_plan plan;
    struct sy_error err = {0};
    int64_t dim = 1000;
    cr_assert_eq(syi_program_new("chain", &p, &err), SY_OK);
    int x = syi_tensor_add(p, "x", SYI_INPUT, SY_F32, 1, &dim, NULL), y = x, z = x;
    for (int i = 0; i < 20000; i++) {
        int next = syi_map2(p, SY_MAP_ADD, y, z);
        z = y;
        y = next;
    }
    cr_assert_eq(syi_plan(&p, 1, NULL, NULL, 1, &plan, &err), SY_OK, "%s", err.text);
    cr_assert_eq(plan.bytes[SYI_SCRATCH], 2 * round_up(4000), "%llu",
                 (unsigned long long)plan.bytes[SYI_SCRATCH]);
    syi_program_free(p);
}
