/* SPDX-License-Identifier: Apache-2.0 */
/* T5X's meshes, data layouts, axis rules and state axes by what has to be true of any of them; single values
 * of the reference are in the golden vectors. */
#include "config.h"

#include <string.h>

#include <criterion/criterion.h>

#include "verify/data_layout.h"
#include "verify/logical_rules.h"
#include "parallel/mesh.h"
#include "verify/state_axes.h"

static struct syi_model_parallelism partitions(int64_t n)
{
    return (struct syi_model_parallelism){.has_partitions = 1, .num_partitions = n};
}

static struct syi_model_parallelism submesh(int n, const int64_t *dim)
{
    struct syi_model_parallelism m = {.has_submesh = 1, .n_submesh = n};
    memcpy(m.submesh, dim, (size_t)n * sizeof *dim);
    return m;
}

/* A grid of at most 4 x 4 x 4 chips of 1 or 2 cores in hosts of 2 x 2 x 1 chips or less. */
static struct syi_t5x_devices tpu(int x, int y, int z, int cores)
{
    struct syi_t5x_devices d = {.platform = cores == 1 ? SYI_T5X_TPU_V4 : SYI_T5X_TPU_V3,
                                .rank = 4,
                                .grid = {x, y, z, cores},
                                .host = {x < 2 ? x : 2, y < 2 ? y : 2, 1, cores}};
    return d;
}

static struct syi_t5x_devices hosts(int n, int each)
{
    return (struct syi_t5x_devices){.platform = SYI_T5X_GPU, .rank = 2, .grid = {n, each}, .host = {1, each}};
}

/* Every device once; every host's layout covers the batch: shards 0..n-1, each with one first host. */
static void check_mesh(const struct syi_t5x_devices *d, const struct syi_t5x_mesh *mesh, int two)
{
    int64_t n = syi_t5x_devices_count(d), all_hosts = n / syi_t5x_host_devices(d);
    int seen[512] = {0}, firsts[512] = {0};
    cr_assert_eq(mesh->size[0] * mesh->size[1], n);
    for (int64_t i = 0; i < n; i++) {
        cr_assert(mesh->device[i] >= 0 && mesh->device[i] < n);
        cr_expect_eq(seen[mesh->device[i]]++, 0, "device %d twice", (int)mesh->device[i]);
    }
    for (int64_t host = 0; host < all_hosts; host++) {
        struct syi_t5x_chunks chunks;
        struct syi_data_layout layout;
        if (syi_t5x_chunks(mesh, d, host, &chunks, NULL)) return; /* no rectangle: no layout at all */
        cr_assert_eq(syi_data_layout(mesh, &chunks, two, 3 * n, &layout, NULL), SY_OK);
        cr_expect_eq(layout.batch_size, 3 * n);
        cr_expect(layout.shard_id >= 0 && layout.shard_id < layout.num_shards);
        cr_expect_eq(layout.batch_size % layout.num_shards, 0);
        firsts[layout.shard_id] += layout.is_first_host_in_replica_set;
        if (host + 1 == all_hosts)
            for (int64_t s = 0; s < layout.num_shards; s++) cr_expect_eq(firsts[s], 1, "shard %d", (int)s);
    }
}

Test(t5x_mesh, every_device_once_and_every_shard_read)
{
    static const int64_t tiles[][4] = {{1, 1, 1, 1}, {2, 1, 1, 1}, {1, 2, 1, 1}, {4, 1, 1, 1}, {1, 4, 4, 1},
                                       {4, 1, 4, 1}, {2, 2, 1, 1}, {1, 1, 4, 1}, {4, 4, 1, 1}, {4, 4, 4, 1}};
    struct syi_t5x_devices grids[] = {tpu(4, 4, 4, 1), tpu(4, 4, 1, 1), tpu(2, 2, 2, 1), tpu(4, 2, 2, 1)};
    int made = 0;
    for (size_t g = 0; g < SYI_COUNT(grids); g++)
        for (size_t i = 0; i < SYI_COUNT(tiles); i++) {
            struct syi_t5x_mesh mesh;
            struct syi_model_parallelism m = submesh(4, tiles[i]);
            if (syi_t5x_mesh_new(&mesh, &grids[g], &m, NULL)) continue;
            check_mesh(&grids[g], &mesh, 0);
            check_mesh(&grids[g], &mesh, 1);
            syi_t5x_mesh_free(&mesh);
            made++;
        }
    cr_expect(made >= 25, "only %d of the tilings are possible", made);
}

Test(t5x_mesh, devices_of_a_host_stand_in_one_row_outside_tpus)
{
    struct syi_t5x_mesh mesh;
    struct syi_t5x_devices d = hosts(3, 4);
    struct syi_model_parallelism m = partitions(7);
    cr_assert_eq(syi_t5x_mesh_new(&mesh, &d, &m, NULL), SY_OK);
    cr_expect_eq(mesh.size[0], 3);
    cr_expect_eq(mesh.size[1], 4);
    for (int i = 0; i < 12; i++) cr_expect_eq(mesh.device[i], i);
    check_mesh(&d, &mesh, 0);
    syi_t5x_mesh_free(&mesh);
}

Test(t5x_mesh, impossible_requests_are_named)
{
    struct sy_error err = {0};
    struct syi_t5x_mesh mesh;
    struct syi_t5x_devices d = tpu(4, 4, 1, 2);
    struct syi_model_parallelism three = submesh(4, (int64_t[]){3, 1, 1, 1}), five = partitions(5),
                                 zero = submesh(4, (int64_t[]){0, 1, 1, 1}), used;
    cr_expect_eq(syi_t5x_mesh_new(&mesh, &d, &three, &err), SY_EMISMATCH);
    cr_expect(strstr(err.text, "does not divide"), "%s", err.text);
    cr_expect_eq(syi_t5x_mesh_new(&mesh, &d, &five, NULL), SY_EINVAL);
    cr_expect_eq(syi_t5x_mesh_new(&mesh, &d, &zero, NULL), SY_EINVAL);
    struct syi_model_parallelism both = three, none = {0};
    int two;
    both.has_partitions = 1;
    cr_expect_eq(syi_t5x_partitioner(1, 4, 8, &both, &used, &two, NULL), SY_EINVAL);
    cr_expect_eq(syi_t5x_partitioner(1, 4, 8, &none, &used, &two, NULL), SY_EINVAL);
    cr_expect_eq(syi_t5x_partitioner(0, 0, 8, &none, &used, &two, NULL), SY_EINVAL);
    cr_expect_eq(syi_t5x_partitioner(0, 0, 8, &both, &used, &two, NULL), SY_OK);
    struct syi_t5x_devices huge = hosts(1 << 15, 1 << 15), hole = tpu(3, 4, 1, 1);
    cr_expect_eq(syi_t5x_devices_check(&huge, NULL), SY_EINVAL);
    cr_expect_eq(syi_t5x_devices_check(&hole, NULL), SY_EMISMATCH);
}

/* The running mesh has T5X's devices, splits experts as T5X's data axis does, and takes batches alike. */
Test(t5x_mesh, running_mesh_splits_as_t5x_does)
{
    for (int64_t devices = 1; devices <= 64; devices *= 2)
        for (int64_t experts = 0; experts <= 64; experts = experts ? experts * 2 : 1)
            for (int64_t model = 1; model <= devices; model *= 2) {
                int two, sizes[3];
                int64_t running[3], t5x[2];
                struct syi_model_parallelism given = partitions(model), used;
                cr_assert_eq(syi_t5x_partitioner(1, experts, devices, &given, &used, &two, NULL), SY_OK);
                t5x[1] = used.num_partitions;
                t5x[0] = devices / t5x[1];
                if (experts && experts % t5x[0]) continue; /* T5X itself cannot split them */
                syi_t5x_running_mesh(t5x, experts, two, running);
                struct syi_mesh mesh;
                for (int i = 0; i < 3; i++) sizes[i] = (int)running[i];
                cr_assert_eq(
                    syi_mesh_new(&mesh, (int)devices, sizes[0], sizes[1], sizes[2], (int)experts, NULL),
                    SY_OK);
                cr_expect_eq(syi_mesh_size(&mesh, mesh.rule[SYI_AXIS_BATCH]), two ? devices : t5x[0]);
                if (experts) cr_expect_eq(syi_mesh_size(&mesh, mesh.rule[SYI_AXIS_EXPERT]), t5x[0]);
                cr_expect_eq(syi_mesh_size(&mesh, mesh.rule[SYI_AXIS_MLP]), two ? 1 : t5x[1]);
            }
}

Test(data_layout, batches_that_do_not_divide_are_refused)
{
    struct syi_t5x_mesh mesh;
    struct syi_t5x_chunks chunks;
    struct syi_data_layout layout;
    struct syi_t5x_devices d = hosts(2, 4);
    struct syi_model_parallelism m = submesh(2, (int64_t[]){1, 2});
    cr_assert_eq(syi_t5x_mesh_new(&mesh, &d, &m, NULL), SY_OK);
    cr_assert_eq(syi_t5x_chunks(&mesh, &d, 1, &chunks, NULL), SY_OK);
    for (int64_t batch = 1; batch < 40; batch++) {
        cr_expect_eq(syi_data_layout(&mesh, &chunks, 0, batch, &layout, NULL), batch % 4 ? SY_EINVAL : SY_OK);
        cr_expect_eq(syi_data_layout(&mesh, &chunks, 1, batch, &layout, NULL), batch % 8 ? SY_EINVAL : SY_OK);
    }
    cr_assert_eq(syi_data_layout(&mesh, &chunks, 1, 0, &layout, NULL), SY_OK);
    cr_expect_eq(layout.batch_size, 8);
    cr_expect_eq(syi_t5x_chunks(&mesh, &d, 2, &chunks, NULL), SY_EINVAL);
    syi_t5x_mesh_free(&mesh);
}

/* ---- rules ---- */

Test(logical_rules, a_mesh_axis_is_used_once)
{
    struct syi_logical_rules rules;
    const char *axis[3];
    int spec[3];
    cr_assert_eq(syi_standard_rules(2, 2, NULL, &rules, NULL), SY_OK);
    for (int i = 0; i < rules.n; i++)
        for (int j = 0; j < rules.n; j++)
            for (int k = 0; k < rules.n; k++) {
                axis[0] = rules.rule[i].axis;
                axis[1] = rules.rule[j].axis;
                axis[2] = rules.rule[k].axis;
                int twice =
                    !strcmp(axis[0], axis[1]) || !strcmp(axis[0], axis[2]) || !strcmp(axis[1], axis[2]);
                cr_assert_eq(syi_logical_to_mesh_axes(&rules, axis, 3, spec, NULL),
                             twice ? SY_EINVAL : SY_OK);
                if (!twice)
                    cr_expect_eq((spec[0] & spec[1]) | (spec[0] & spec[2]) | (spec[1] & spec[2]), 0,
                                 "%s %s %s", axis[0], axis[1], axis[2]);
            }
}

Test(logical_rules, embed_takes_the_axis_that_is_left)
{
    struct syi_logical_rules rules;
    int spec[2];
    cr_assert_eq(syi_standard_rules(2, 2, NULL, &rules, NULL), SY_OK);
    cr_assert_eq(syi_logical_to_mesh_axes(&rules, (const char *[]){"mlp", "embed"}, 2, spec, NULL), SY_OK);
    cr_expect_eq(spec[0], SYI_T5X_MODEL);
    cr_expect_eq(spec[1], SYI_T5X_DATA);
    cr_assert_eq(syi_logical_to_mesh_axes(&rules, (const char *[]){"batch", NULL}, 2, spec, NULL), SY_OK);
    cr_expect_eq(spec[1], 0);
}

Test(logical_rules, with_two_data_axes_weights_are_copied_along_model)
{
    struct syi_logical_rules rules;
    struct syi_model_parallelism one = partitions(1);
    cr_assert_eq(syi_moe_rules(4, 16, &one, 1, 1, NULL, &rules, NULL), SY_OK);
    for (int i = 0; i < rules.n; i++) {
        int batch = !strcmp(rules.rule[i].axis, "batch"),
            copies = !strcmp(rules.rule[i].axis, "expert_replicas");
        if (batch) cr_expect_eq(rules.rule[i].mesh, SYI_T5X_DATA | SYI_T5X_MODEL);
        if (!batch && !copies) cr_expect_eq(rules.rule[i].mesh & SYI_T5X_MODEL, 0, "%s", rules.rule[i].axis);
    }
    cr_expect_eq(syi_moe_rules(4, 16, &one, 1, 2, NULL, &rules, NULL), SY_EINVAL);
    cr_expect_eq(syi_standard_rules(3, 1, NULL, &rules, NULL), SY_EINVAL);
}

/* ---- state ---- */

static const struct syi_named_param params[] = {
    {"norm/scale", 1, {8}, {"embed"}},
    {"layer/mlp/wi/kernel", 2, {8, 16}, {"embed", "mlp"}},
    {"layer/mlp/expert/wi/kernel", 3, {4, 8, 16}, {"expert", "embed", "expert_mlp"}},
};

static const struct syi_state_leaf *leaf_of(const struct syi_state_axes *axes, const char *path)
{
    for (size_t i = 0; i < axes->n; i++)
        if (!strcmp(axes->leaf[i].path, path)) return &axes->leaf[i];
    cr_assert_fail("there is no leaf %s", path);
    return NULL;
}

Test(state_axes, factored_moments_of_experts_follow_the_experts)
{
    struct syi_state_axes axes;
    struct syi_state_filter moe = {.moe = 1}, plain = {0};
    struct syi_state_form form = {.adafactor = 1, .factored = 1, .min_dim_size_to_factor = 8};
    cr_assert_eq(syi_state_axes(params, 3, &form, &moe, &axes, NULL), SY_OK);
    cr_expect_eq(axes.n, 3 * 5 + 1);
    cr_expect(leaf_of(&axes, "state/param_states/layer/mlp/expert/wi/kernel/v_row")->expert);
    cr_expect(leaf_of(&axes, "state/param_states/layer/mlp/expert/wi/kernel/v_col")->expert);
    cr_expect_not(leaf_of(&axes, "state/param_states/layer/mlp/expert/wi/kernel/v")->expert);
    cr_expect_not(leaf_of(&axes, "state/param_states/layer/mlp/wi/kernel/v_row")->expert);
    cr_expect_null(leaf_of(&axes, "state/param_states/layer/mlp/wi/kernel/v")->param);
    cr_expect_eq(leaf_of(&axes, "state/param_states/norm/scale/v")->param, &params[0]);
    syi_state_axes_free(&axes);
    cr_assert_eq(syi_state_axes(params, 3, &form, &plain, &axes, NULL), SY_OK);
    cr_expect_not(leaf_of(&axes, "state/param_states/layer/mlp/expert/wi/kernel/v_row")->expert);
    syi_state_axes_free(&axes);
}

Test(state_axes, errors_are_those_of_the_reference)
{
    static const char *const slots[] = {"0/mu", NULL};
    struct syi_state_axes axes;
    struct syi_state_filter moe = {.moe = 1};
    struct syi_state_form adam = {.slot = slots}, sgd = {0},
                          factored = {.adafactor = 1, .factored = 1, .min_dim_size_to_factor = 8};
    struct syi_named_param odd = {"x", 3, {2, 2, 2}, {"embed", "mlp", "relpos_buckets"}},
                           unknown = {"x", 1, {2}, {"nothing"}};
    cr_expect_eq(syi_state_axes(params, 3, &adam, &moe, &axes, NULL), SY_EINVAL);
    cr_expect_eq(syi_state_axes(&odd, 1, &factored, &moe, &axes, NULL), SY_EINVAL);
    cr_expect_eq(syi_state_axes(&unknown, 1, &factored, &moe, &axes, NULL), SY_ENOENT);
    moe.moe = 0;
    cr_assert_eq(syi_state_axes(params, 3, &sgd, &moe, &axes, NULL), SY_OK);
    cr_expect_eq(axes.n, 4);
    syi_state_axes_free(&axes);
}
