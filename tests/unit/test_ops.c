/* SPDX-License-Identifier: Apache-2.0 */
/* The op table and the rules of the families: that they speak of the same operands, that fields are found by
 * their names, and what the check refuses of ops without letters. */
#include "config.h"

#include <string.h>

#include <criterion/criterion.h>

#include "program/op_rules.h"
#include "program/record.h"

#define DIMS(...) ((const int64_t[]){__VA_ARGS__}), NULL

static struct syi_program *fresh(void)
{
    struct syi_program *p = NULL;
    cr_assert_eq(syi_program_new("test", &p, NULL), SY_OK);
    return p;
}

static int input(struct syi_program *p, const char *name, int64_t rows, int64_t columns)
{
    return syi_tensor_add(p, name, SYI_INPUT, SY_F32, 2, DIMS(rows, columns));
}

static int temporary(struct syi_program *p, int64_t rows, int64_t columns)
{
    return syi_temp(p, SY_F32, 2, DIMS(rows, columns));
}

/* ---- rows and rules ---- */

/* `of` counts elements of an operand that is always there; a row without labels has one each at least. */
static int names_an_operand(enum sy_op op, int of)
{
    const char *labels = syi_op_info(op)->labels, *arrow = strstr(labels, "->");
    const char *at = of < 0 ? arrow + 2 : labels;
    if (!*labels) return of == 0 || of == -1;
    for (int i = of < 0 ? -of - 1 : of; i > 0; i--) {
        at = strchr(at, ',');
        if (!at || (of >= 0 && at > arrow)) return 0;
        at++;
    }
    return at[strcspn(at, ",?-")] != '?';
}

Test(ops, rules_speak_of_operands_that_the_row_has)
{
    char letters[SY_MAX_DIMS + 1];
    for (int op = 0; op < SY_OP_COUNT; op++) {
        const struct syi_op_rules *rules = syi_op_rules(op);
        const char *name = syi_op_info(op)->name;
        cr_expect(names_an_operand(op, rules->of), "%s: no operand %d", name, rules->of);
        cr_expect(rules->flops || !rules->of, "%s: an operand is named and not counted", name);
        if (syi_op_has_field(op, "leaf")) {
            cr_assert(syi_op_letters(op, 0, 0, 3, letters), "%s", name);
            cr_expect_lt(rules->leaf_dim, (int)strlen(letters), "%s: no dim %d", name, rules->leaf_dim);
        } else {
            cr_expect_eq(rules->leaf_dim, 0, "%s: a dimension for a leaf it has not", name);
        }
    }
}

/* reduce_scatter is the one collective that the lower pass always replaces. */
Test(ops, collectives_can_be_executed)
{
    for (int op = 0; op < SY_OP_COUNT; op++) {
        int collective = syi_op_is_collective(op), executed = collective && op != SY_OP_REDUCE_SCATTER;
        const char *name = syi_op_info(op)->name;
        cr_expect_eq(syi_op_rules(op)->exchange != NULL, executed, "%s", name);
        cr_expect(collective || !syi_op_rules(op)->received, "%s", name);
        cr_expect(!collective || (syi_op_has_field(op, "mesh") && syi_op_has_flag(op, 'M')), "%s", name);
    }
}

/* ---- fields ---- */

static int64_t field(enum sy_op op, const char *name)
{
    static const struct sy_attr_collective attr = {3, 5, 7};
    struct syi_program *p = fresh();
    int x = input(p, "x", 2, 2), y = temporary(p, 2, 2);
    cr_assert_eq(syi_op_add(p, op, 1, &x, 1, &y, &attr, sizeof attr), SY_OK);
    int64_t value = syi_op_field(p, &p->op[0], name, -9);
    syi_program_free(p);
    return value;
}

Test(ops, fields_are_found_by_name)
{
    cr_expect_eq(field(SY_OP_ALL_GATHER, "dim"), 3);
    cr_expect_eq(field(SY_OP_ALL_GATHER, "mesh"), 5);
    cr_expect_eq(field(SY_OP_SEND_PIECES, "mesh"), 3);
    cr_expect_eq(field(SY_OP_SEND_PIECES, "dim"), 5);
    cr_expect_eq(field(SY_OP_ALL_TO_ALL, "mesh"), 7);
    cr_expect_eq(field(SY_OP_ALL_TO_ALL, "dim"), -9, "it has split and concat");
    cr_expect_eq(field(SY_OP_ALL_REDUCE, "me"), -9, "part of a name");
    cr_expect(syi_op_has_field(SY_OP_RMS_NORM, "epsilon") && !syi_op_has_field(SY_OP_RMS_NORM, "leaf"));
}

/* ---- ops without letters ---- */

static void expect(struct syi_program *p, const char *refusal)
{
    struct sy_error err = {0};
    int status = syi_program_check(p, "test", &err);
    cr_expect_eq(status, refusal ? SY_EINTERNAL : SY_OK, "%s %s", refusal ? refusal : "", err.text);
    if (refusal) cr_expect(strstr(err.text, refusal), "expected '%s' in '%s'", refusal, err.text);
    syi_program_free(p);
}

Test(ops, operands_are_one_each_where_no_letters_say_more)
{
    struct syi_program *p = fresh();
    int in[] = {input(p, "x", 4, 8), input(p, "y", 4, 8)};
    syi_block_sum(p, SY_OP_BLOCK_SUM, in[0]);
    p->op[0].n_in = 2;
    p->op[0].in[1] = in[1];
    expect(p, "2 inputs and 1 outputs");
    p = fresh();
    struct sy_attr_join join = {0x11};
    int x[] = {input(p, "x", 4, 8), input(p, "y", 4, 8)}, out = temporary(p, 2, 32);
    syi_op_add(p, SY_OP_JOIN, 2, x, 1, &out, &join, sizeof join);
    expect(p, NULL);
    p = fresh();
    int waited = input(p, "x", 4, 8), y = temporary(p, 4, 8);
    syi_op_add(p, SY_OP_WAIT, 1, &waited, 0, NULL, NULL, 0);
    syi_op_add(p, SY_OP_WAIT, 1, &waited, 1, &y, NULL, 0);
    expect(p, "op 1 wait");
}

Test(ops, a_maximum_leaves_out_one_axis)
{
    for (int64_t dim = -1; dim <= 2; dim++) {
        struct syi_program *p = fresh();
        struct sy_attr_axis attr = {dim};
        int x = input(p, "x", 4, 8), y = temporary(p, 4, 1);
        syi_op_add(p, SY_OP_MAX_AXIS, 1, &x, 1, &y, &attr, sizeof attr);
        expect(p, dim == 0 ? "dim 0 does not fit" : dim == 1 ? NULL : "no such axis");
    }
}

Test(ops, attributes_are_as_long_as_their_structure)
{
    struct syi_program *p = fresh();
    struct sy_attr_collective attr = {1, 0, 0};
    int x = input(p, "x", 4, 8), y = temporary(p, 4, 8);
    syi_op_add(p, SY_OP_ALL_REDUCE, 1, &x, 1, &y, &attr, sizeof attr);
    p->op[0].attr_bytes = sizeof attr - 8;
    expect(p, "attribute of 16 bytes");
}
