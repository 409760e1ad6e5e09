/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the rules of an op: each family's structures (ops/) by id, one for every row of ops.def. */
#include "config.h"

#include "program/op_rules.h"

static const struct syi_op_rules *const rules[] = {
#define SY_OP(id, NAME, name, ...) [id] = &syi_op_rules_##name,
#include "switchyard/ops.def"
#undef SY_OP
};
_Static_assert(SYI_COUNT(rules) == SY_OP_COUNT, "an op has no rules");

const struct syi_op_rules *syi_op_rules(enum sy_op op)
{
    return rules[op];
}
