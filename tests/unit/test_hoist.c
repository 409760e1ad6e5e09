/* SPDX-License-Identifier: Apache-2.0 */
/* Hoisting: every op reads what it read before, gradients are added and summed where they have just been written, and what a
 * collective brings is waited for where it was. */
#include "config.h"

#include "small_model.h"

/* ---- programs ---- */

static struct syi_program *program_at(const struct syi_config *c, const int size[3], int zero,
                                      enum syi_which which, enum syi_stage stage)
{
    struct syi_model model = {0};
    struct syi_shape shape = shape_of(8, 6, 5);
    struct syi_recorded r;
    struct syi_mesh mesh;
    struct sy_error err = {0};
    cr_assert_eq(syi_mesh_new(&mesh, size[0] * size[1] * size[2], size[0], size[1], size[2], 4, &err), SY_OK,
                 "%s", err.text);
    mesh.zero = zero;
    cr_assert_eq(syi_pipeline(c, &mesh, NULL, which, &shape, stage, &model, &r, &err), SY_OK, "%s", err.text);
    syi_model_free(&model);
    return r.program;
}

static uint64_t mixed(uint64_t hash, const void *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++) hash = (hash ^ ((const uint8_t *)bytes)[i]) * 0x100000001b3u;
    return hash;
}

/* What each tensor holds at the end: a hash of the op that wrote it and of what that op read. [n_tensors], freed by the caller. */
static uint64_t *values(const struct syi_program *p)
{
    uint64_t *value = calloc(p->n_tensors, sizeof *value);
    cr_assert_not_null(value);
    for (size_t i = 0; i < p->n_tensors; i++) value[i] = i + 1;
    for (size_t at = 0; at < p->n_ops; at++) {
        const struct syi_op *op = &p->op[at];
        uint64_t hash = mixed(0xcbf29ce484222325u, &op->op, sizeof op->op);
        hash = mixed(hash, syi_program_attr(p, op), op->attr_bytes);
        for (int i = 0; i < op->n_in; i++)
            if (op->in[i] >= 0) hash = mixed(hash, &value[op->in[i]], sizeof *value);
        for (int i = 0; i < op->n_out; i++)
            if (op->out[i] >= 0) value[op->out[i]] = mixed(hash, &i, sizeof i);
    }
    return value;
}

static const int meshes[][4] = {{1, 1, 1, 0}, {2, 1, 1, 0}, {2, 2, 1, 0}, {2, 1, 1, 1}, {1, 1, 2, 0}};

Test(hoist, every_op_reads_what_it_read_before)
{
    const struct syi_config c =
        config_of("train.microbatches=2", "data.batch_size=16", "model.vocab_size=16", NULL);
    for (size_t m = 0; m < SYI_COUNT(meshes); m++)
        for (int which = SYI_GRAD_FIRST; which <= SYI_GRAD_NEXT; which++) {
            struct syi_program *before =
                program_at(&c, meshes[m], meshes[m][3], (enum syi_which)which, SYI_STAGE_FOLD);
            struct syi_program *after =
                program_at(&c, meshes[m], meshes[m][3], (enum syi_which)which, SYI_STAGE_HOIST);
            uint64_t *x = values(before), *y = values(after);
            cr_assert_eq(before->n_ops, after->n_ops);
            for (size_t i = 0; i < before->n_tensors; i++)
                cr_expect_eq(x[i], y[i], "mesh %zu, %s: tensor %zu %s", m, before->title, i,
                             syi_program_name(before, before->tensor[i].name));
            free(x);
            free(y);
            syi_program_free(before);
            syi_program_free(after);
        }
}

/* ---- places ---- */

static int is_of_gradients(const struct syi_program *p, const struct syi_op *op)
{
    for (int i = 0; i < op->n_out; i++)
        if (op->out[i] >= 0 && (p->tensor[op->out[i]].role == SYI_ROLE_GRADIENT ||
                                p->tensor[op->out[i]].role == SYI_ROLE_GRADIENT_BLOCKS))
            return 1;
    return 0;
}

/* Ops between the last one that writes what op `at` reads and the op itself, but for others of gradients. */
static int distance(const struct syi_program *p, size_t at)
{
    const struct syi_op *op = &p->op[at];
    int n = 0;
    for (size_t i = at; i-- > 0;) {
        for (int k = 0; k < op->n_in; k++)
            if (syi_op_writes(&p->op[i], op->in[k])) return n;
        n += !is_of_gradients(p, &p->op[i]);
    }
    return n;
}

/* How many ops add or sum gradients; the sum of their distances. */
static int count(const struct syi_program *p, int *far)
{
    int n = 0;
    *far = 0;
    for (size_t at = 0; at < p->n_ops; at++) {
        int kind = p->op[at].op;
        if (kind != SY_OP_MAP && kind != SY_OP_MAP_SUMS && kind != SY_OP_BLOCK_SUMSQ) continue;
        if (!is_of_gradients(p, &p->op[at])) continue;
        *far += distance(p, at);
        n++;
    }
    return n;
}

Test(hoist, gradients_are_added_and_summed_where_they_are_written)
{
    static const char *const batches[][2] = {{"train.microbatches=1", "data.batch_size=8"},
                                             {"train.microbatches=2", "data.batch_size=16"}};
    for (int which = SYI_GRAD_FIRST; which <= SYI_GRAD_NEXT; which++) {
        const struct syi_config c = config_of(batches[which][0], batches[which][1], NULL);
        struct syi_program *before = program_at(&c, meshes[0], 0, (enum syi_which)which, SYI_STAGE_FOLD);
        struct syi_program *after = program_at(&c, meshes[0], 0, (enum syi_which)which, SYI_STAGE_HOIST);
        int far_before, far_after;
        cr_assert_geq(count(before, &far_before), 30);
        count(after, &far_after);
        cr_expect_gt(far_before, 100, "%s: the test would see nothing", before->title);
        cr_expect_eq(far_after, 0, "%s", after->title);
        syi_program_free(before);
        syi_program_free(after);
    }
}

/* Two ranks sum gradients: what reads the sum stays behind all that was recorded, so that there is work beside it. */
Test(hoist, what_a_collective_brings_is_read_where_it_was)
{
    const struct syi_config c = config_of("train.microbatches=2", "data.batch_size=16", NULL);
    struct syi_program *before = program_at(&c, meshes[1], 0, SYI_GRAD_NEXT, SYI_STAGE_FOLD);
    struct syi_program *after = program_at(&c, meshes[1], 0, SYI_GRAD_NEXT, SYI_STAGE_HOIST);
    int far_before, far_after;
    cr_assert_geq(count(before, &far_before), 30);
    count(after, &far_after);
    cr_expect_gt(far_after, far_before / 2);
    syi_program_free(before);
    syi_program_free(after);
}
