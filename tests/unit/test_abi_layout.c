/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes and offsets of everything that host and plugins share, written as numbers. When this test fails, a
 * structure of include/switchyard changed: raise SY_ABI_MINOR, and SY_ABI_OLDEST_MINOR unless it only grew at the end
 * (once major is not 0: SY_ABI_MAJOR), then write the new numbers here. */
#include "config.h"

#include <criterion/criterion.h>

#include "switchyard/action.h"
#include "switchyard/ops.h"

struct pin {
    const char *what;
    size_t is, should; /* bytes */
};

/* clang-format off */
#define SIZE(type, bytes)         {"size of " #type, sizeof(struct type), bytes}
#define FIELD(type, field, bytes) {#type "." #field, offsetof(struct type, field), bytes}
/* clang-format on */

static const struct pin pins[] = {
    SIZE(sy_tensor, 96),
    FIELD(sy_tensor, data, 0),
    FIELD(sy_tensor, dim, 8),
    FIELD(sy_tensor, first, 48),
    FIELD(sy_tensor, dtype, 88),
    FIELD(sy_tensor, rank, 89),
    FIELD(sy_tensor, reserved, 90),
    SIZE(sy_call, 64),
    FIELD(sy_call, host, 0),
    FIELD(sy_call, in, 8),
    FIELD(sy_call, out, 16),
    FIELD(sy_call, attr, 24),
    FIELD(sy_call, plan, 32),
    FIELD(sy_call, workspace, 40),
    FIELD(sy_call, workspace_bytes, 48),
    FIELD(sy_call, attr_bytes, 56),
    FIELD(sy_call, op, 60),
    FIELD(sy_call, n_in, 62),
    FIELD(sy_call, n_out, 63),
    SIZE(sy_host, 64),
    FIELD(sy_host, bytes, 0),
    FIELD(sy_host, arg, 8),
    FIELD(sy_host, threads, 16),
    FIELD(sy_host, reserved, 20),
    FIELD(sy_host, log, 24),
    FIELD(sy_host, error, 32),
    FIELD(sy_host, parallel_for, 40),
    FIELD(sy_host, take, 48),
    FIELD(sy_host, give_back, 56),
    SIZE(sy_kernel, 48),
    FIELD(sy_kernel, op, 0),
    FIELD(sy_kernel, in_dtype, 2),
    FIELD(sy_kernel, out_dtype, 3),
    FIELD(sy_kernel, needs, 4),
    FIELD(sy_kernel, name, 8),
    FIELD(sy_kernel, workspace, 16),
    FIELD(sy_kernel, prepare, 24),
    FIELD(sy_kernel, release, 32),
    FIELD(sy_kernel, run, 40),
    SIZE(sy_device_table, 104),
    FIELD(sy_device_table, bytes, 0),
    FIELD(sy_device_table, alloc, 8),
    FIELD(sy_device_table, free, 16),
    FIELD(sy_device_table, copy, 24),
    FIELD(sy_device_table, sync, 32),
    FIELD(sy_device_table, memory_info, 40),
    FIELD(sy_device_table, copy_async, 48),
    FIELD(sy_device_table, zero, 56),
    FIELD(sy_device_table, copy_rows, 64),
    FIELD(sy_device_table, capture_begin, 72),
    FIELD(sy_device_table, capture_end, 80),
    FIELD(sy_device_table, replay, 88),
    FIELD(sy_device_table, graph_free, 96),
    SIZE(sy_collective, 64),
    FIELD(sy_collective, send, 0),
    FIELD(sy_collective, recv, 8),
    FIELD(sy_collective, send_outer, 16),
    FIELD(sy_collective, send_inner, 24),
    FIELD(sy_collective, recv_outer, 32),
    FIELD(sy_collective, recv_inner, 40),
    FIELD(sy_collective, elements, 48),
    FIELD(sy_collective, kind, 56),
    FIELD(sy_collective, dtype, 57),
    FIELD(sy_collective, reserved, 58),
    SIZE(sy_collective_table, 72),
    FIELD(sy_collective_table, bytes, 0),
    FIELD(sy_collective_table, world, 8),
    FIELD(sy_collective_table, group_new, 16),
    FIELD(sy_collective_table, group_free, 24),
    FIELD(sy_collective_table, start, 32),
    FIELD(sy_collective_table, wait, 40),
    FIELD(sy_collective_table, barrier, 48),
    FIELD(sy_collective_table, abort, 56),
    FIELD(sy_collective_table, conclude, 64),
    SIZE(sy_backend_option, 16),
    FIELD(sy_backend_option, key, 0),
    FIELD(sy_backend_option, value, 8),
    SIZE(sy_backend_desc, 120),
    FIELD(sy_backend_desc, magic, 0),
    FIELD(sy_backend_desc, abi_major, 4),
    FIELD(sy_backend_desc, abi_minor, 6),
    FIELD(sy_backend_desc, min_host_minor, 8),
    FIELD(sy_backend_desc, reserved16, 10),
    FIELD(sy_backend_desc, desc_bytes, 12),
    FIELD(sy_backend_desc, layout, 16),
    FIELD(sy_backend_desc, caps, 20),
    FIELD(sy_backend_desc, name, 24),
    FIELD(sy_backend_desc, version, 32),
    FIELD(sy_backend_desc, build, 40),
    FIELD(sy_backend_desc, probe, 48),
    FIELD(sy_backend_desc, open, 56),
    FIELD(sy_backend_desc, close, 64),
    FIELD(sy_backend_desc, device, 72),
    FIELD(sy_backend_desc, kernels, 80),
    FIELD(sy_backend_desc, n_kernels, 88),
    FIELD(sy_backend_desc, collectives, 96),
    FIELD(sy_backend_desc, links, 104),
    FIELD(sy_backend_desc, panels_in_training, 112),
    SIZE(sy_link_table, 56),
    FIELD(sy_link_table, bytes, 0),
    FIELD(sy_link_table, linked, 8),
    FIELD(sy_link_table, id_new, 16),
    FIELD(sy_link_table, group_new, 24),
    FIELD(sy_link_table, group_free, 32),
    FIELD(sy_link_table, start, 40),
    FIELD(sy_link_table, wait, 48),
    SIZE(sy_attr_block, 40),
    SIZE(sy_attr_pack, 24),
    SIZE(sy_attr_leaf, 8),
    SIZE(sy_attr_panels, 16),
    FIELD(sy_attr_panels, activation, 8),
    SIZE(sy_attr_rms_norm, 16),
    FIELD(sy_attr_rms_norm, leaf, 8),
    SIZE(sy_attr_glu, 32),
    FIELD(sy_attr_glu, activation, 8),
    FIELD(sy_attr_glu, site, 16),
    FIELD(sy_attr_glu, rate, 24),
    SIZE(sy_attr_attention, 72),
    FIELD(sy_attr_attention, width, 8),
    FIELD(sy_attr_attention, bidirectional, 16),
    FIELD(sy_attr_attention, causal, 24),
    FIELD(sy_attr_attention, max_distance, 32),
    FIELD(sy_attr_attention, site, 40),
    FIELD(sy_attr_attention, rate, 48),
    FIELD(sy_attr_attention, uniform, 56),
    FIELD(sy_attr_attention, leaf, 64),
    SIZE(sy_attr_xent, 16),
    FIELD(sy_attr_xent, z_loss, 8),
    SIZE(sy_attr_route, 48),
    FIELD(sy_attr_route, group_rows, 8),
    FIELD(sy_attr_route, capacity, 16),
    FIELD(sy_attr_route, capacity_factor, 24),
    FIELD(sy_attr_route, min_capacity, 32),
    FIELD(sy_attr_route, prioritized, 40),
    SIZE(sy_attr_route_experts, 32),
    FIELD(sy_attr_route_experts, capacity, 8),
    FIELD(sy_attr_route_experts, capacity_factor, 16),
    FIELD(sy_attr_route_experts, min_capacity, 24),
    SIZE(sy_attr_gate, 8),
    SIZE(sy_attr_regroup, 16),
    FIELD(sy_attr_regroup, length, 8),
    SIZE(sy_attr_axis, 8),
    SIZE(sy_attr_relpos, 16),
    FIELD(sy_attr_relpos, max_distance, 8),
    SIZE(sy_attr_normal, 32),
    FIELD(sy_attr_normal, extent, 8),
    SIZE(sy_attr_group, 8),
    SIZE(sy_attr_collective, 24),
    SIZE(sy_map_instr, 16),
    FIELD(sy_map_instr, op, 0),
    FIELD(sy_map_instr, a, 1),
    FIELD(sy_map_instr, b, 2),
    FIELD(sy_map_instr, c, 3),
    FIELD(sy_map_instr, s, 4),
    FIELD(sy_map_instr, site, 8),
    FIELD(sy_map_instr, unused, 12),
    SIZE(sy_attr_map, 16),
    FIELD(sy_attr_map, n_instr, 0),
    FIELD(sy_attr_map, out_register, 2),
    FIELD(sy_attr_map, rng, 10),
    FIELD(sy_attr_map, instr, 16),
};

/* The numbers are of 64-bit systems; the others have their own in SY_ABI_LAYOUT. */
Test(abi, structures_lie_as_written_here)
{
    cr_assert_eq(sizeof(void *), 8, "this test has numbers for 64-bit systems only");
    cr_expect(SY_ABI_MAJOR == 0 && SY_ABI_MINOR == 15 && SY_ABI_OLDEST_MINOR == 13,
              "the version was raised: check the numbers of this test");
    for (size_t i = 0; i < sizeof(pins) / sizeof(pins[0]); i++)
        cr_expect_eq(pins[i].is, pins[i].should,
                     "%s is %zu, was %zu: raise the ABI version, write the new number here", pins[i].what,
                     pins[i].is, pins[i].should);
}

Test(abi, constants)
{
    cr_expect_eq(SY_ABI_MAGIC, 0x53595244u);
    cr_expect_eq(SY_MAX_DIMS, 5);
    cr_expect_eq(SY_MAX_IN, 16);
    cr_expect_eq(SY_MAX_OUT, 8);
    cr_expect_eq(SY_LINK_ID_BYTES, 128);
    cr_expect_eq(SY_ABI_LAYOUT, 405815397u);
    cr_expect(SY_F32 == 0 && SY_BF16 == 1 && SY_F64 == 2 && SY_I32 == 3 && SY_I64 == 4 && SY_I8 == 5 &&
              SY_DTYPE_COUNT == 6);
    cr_expect(SY_COLLECTIVE_ALL_GATHER == 0 && SY_COLLECTIVE_ALL_TO_ALL == 1 &&
              SY_COLLECTIVE_ALL_REDUCE == 2);
    cr_expect(SY_CAP_KERNELS == 1 && SY_CAP_COLLECTIVES == 2 && SY_CAP_DEVICE == 4);
}

/* ---- rows of ops.def and maps.def ---- */

static const int n_ops = 77, n_instructions = 24; /* of this version; more may follow */

static const char *const ops[] = {
#define SY_OP(id, NAME, name, labels, split, types, attributes, flags, tolerance, help)                      \
    [id] = #NAME " " labels " " types " " #attributes,
#include "switchyard/ops.def"
#undef SY_OP
};

static const char *const instructions[] = {
#define SY_MAP(id, NAME, name, arguments, help) [id] = #NAME " " #arguments,
#include "switchyard/maps.def"
#undef SY_MAP
};

/* FNV-1a of n texts and the zeros between them. */
static uint64_t hash_of(const char *const *text, int n)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (int i = 0; i < n; i++) {
        const char *c = text[i];
        do hash = (hash ^ (uint8_t)*c) * 0x100000001b3u;
        while (*c++);
    }
    return hash;
}

/* clang-format off */
static const struct pin action_pins[] = {
    SIZE(sy_action_value, 16),
    FIELD(sy_action_value, value, 8),
    SIZE(sy_action_event, 56),
    FIELD(sy_action_event, moment, 8),
    FIELD(sy_action_event, step, 16),
    FIELD(sy_action_event, task, 24),
    FIELD(sy_action_event, text, 32),
    FIELD(sy_action_event, value, 40),
    FIELD(sy_action_event, n_values, 48),
    SIZE(sy_action_verdict, 200),
    FIELD(sy_action_verdict, text, 4),
    SIZE(sy_action_host, 64),
    FIELD(sy_action_host, arg, 8),
    FIELD(sy_action_host, rank, 16),
    FIELD(sy_action_host, ranks, 20),
    FIELD(sy_action_host, run_dir, 24),
    FIELD(sy_action_host, log, 32),
    FIELD(sy_action_host, error, 40),
    FIELD(sy_action_host, get, 48),
    FIELD(sy_action_host, set, 56),
    SIZE(sy_action_desc, 64),
    FIELD(sy_action_desc, abi_major, 4),
    FIELD(sy_action_desc, abi_minor, 6),
    FIELD(sy_action_desc, min_host_minor, 8),
    FIELD(sy_action_desc, desc_bytes, 12),
    FIELD(sy_action_desc, layout, 16),
    FIELD(sy_action_desc, moments, 20),
    FIELD(sy_action_desc, name, 24),
    FIELD(sy_action_desc, version, 32),
    FIELD(sy_action_desc, open, 40),
    FIELD(sy_action_desc, close, 48),
    FIELD(sy_action_desc, run, 56),
};
/* clang-format on */

/* Of action.h, with a version of its own. */
Test(abi, actions)
{
    for (size_t i = 0; i < sizeof action_pins / sizeof *action_pins; i++)
        cr_expect_eq(action_pins[i].is, action_pins[i].should, "%s is %zu, not %zu: raise SY_ACTION_MINOR",
                     action_pins[i].what, action_pins[i].is, action_pins[i].should);
}

/* Ids are append-only, operands and attributes of an op stay. */
Test(abi, ops)
{
    cr_assert(SY_OP_COUNT >= n_ops && SY_MAP_COUNT >= n_instructions);
    cr_expect_eq(hash_of(ops, n_ops), 0x8fa6a199777a0266u,
                 "a row of ops.def changed (0x%llx): raise the ABI version, write the new hash here",
                 (unsigned long long)hash_of(ops, n_ops));
    cr_expect_eq(hash_of(instructions, n_instructions), 0x319e334189027341u,
                 "a row of maps.def changed (0x%llx)",
                 (unsigned long long)hash_of(instructions, n_instructions));
}
