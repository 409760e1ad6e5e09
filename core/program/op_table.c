/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of ops.def as a table, and the reading of labels, fields and flags. What can be held against each
 * other is, when this file is compiled: ids, the size of the table, and the fields a row names against its
 * attribute structure. */
#include "config.h"

#include <string.h>

#include "program/program.h"

/* ---- held against each other ---- */

/* Ids count the rows: none is left out, none stands twice, none has moved. */
enum {
#define SY_OP(id, NAME, ...) ROW_##NAME,
#include "switchyard/ops.def"
#undef SY_OP
};
#define SY_OP(id, NAME, ...)                                                                                 \
    _Static_assert(ROW_##NAME == id, "the id of " #NAME " is not its place in ops.def");
#include "switchyard/ops.def"
#undef SY_OP

/* The number of fields; more than nine do not compile. */
#define TENTH(a, b, c, d, e, f, g, h, i, count, ...) count
#define FIELDS(...)                                  TENTH(__VA_ARGS__, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0)
#define SY_NO_ATTR
#define SY_ATTR(type, ...)                                                                                   \
    _Static_assert(sizeof(struct sy_attr_##type) == 8 * (FIELDS(__VA_ARGS__)),                               \
                   "a row of ops.def names other fields than struct sy_attr_" #type " has");
#define SY_OP(id, NAME, name, labels, split, types, attributes, flags, tolerance, help) attributes
#include "switchyard/ops.def"
#undef SY_OP
#undef SY_ATTR
#undef SY_NO_ATTR

/* ---- the table ---- */

#define SY_NO_ATTR         "", 0
#define SY_ATTR(type, ...) #__VA_ARGS__, sizeof(struct sy_attr_##type)
#define SY_OP(id, NAME, name, labels, split, types, attributes, flags, tolerance, help)                      \
    [id] = {#name, labels, split, types, flags, help, tolerance, attributes},
static const struct syi_op_info table[] = {
#include "switchyard/ops.def"
};
#undef SY_OP
#undef SY_ATTR
#undef SY_NO_ATTR

_Static_assert(SYI_COUNT(table) == SY_OP_COUNT, "an op has no row");

const struct syi_op_info *syi_op_info(enum sy_op op)
{
    return &table[op];
}

int syi_op_has_flag(enum sy_op op, char flag)
{
    return strchr(table[op].flags, flag) != NULL;
}

int syi_op_is_collective(enum sy_op op)
{
    return syi_op_has_flag(op, 'C');
}

int syi_op_multiplies_panels(enum sy_op op)
{
    return table[op].types[0] && table[op].types[1] == 'p';
}

/* ---- operands ---- */

int syi_op_reads(const struct syi_op *op, int tensor)
{
    for (int i = 0; i < op->n_in; i++)
        if (op->in[i] == tensor) return 1;
    return 0;
}

int syi_op_writes(const struct syi_op *op, int tensor)
{
    for (int i = 0; i < op->n_out; i++)
        if (op->out[i] == tensor) return 1;
    return 0;
}

/* ---- fields ---- */

/* The place of a field in the attribute structure, -1: the op has none of that name. */
static int find_field(enum sy_op op, const char *name)
{
    const char *field = table[op].attributes;
    size_t length = strlen(name);
    for (int i = 0; *field; i++) {
        if (strcspn(field, ",:") == length && !strncmp(field, name, length)) return i;
        field += strcspn(field, ",");
        field += strspn(field, ", ");
    }
    return -1;
}

int syi_op_has_field(enum sy_op op, const char *name)
{
    return find_field(op, name) >= 0;
}

int64_t syi_op_field(const struct syi_program *program, const struct syi_op *op, const char *name,
                     int64_t otherwise)
{
    int place = find_field(op->op, name);
    int64_t value = otherwise;
    if (place >= 0 && (size_t)place * sizeof value + sizeof value <= op->attr_bytes)
        memcpy(&value, (const uint8_t *)syi_program_attr(program, op) + (size_t)place * sizeof value,
               sizeof value);
    return value;
}

int syi_panels_attr(struct syi_program *program, struct syi_op *op, enum sy_activation activation,
                    struct sy_error *err)
{
    struct sy_attr_panels attr = {syi_op_field(program, op, "leaf", 0), activation};
    void *to;
    int status = syi_attr_new(program, op, sizeof attr, &to, err);
    if (!status) memcpy(to, &attr, sizeof attr);
    return status;
}

/* ---- labels ---- */

/* The text of operand `index` on one side of "->", or NULL. */
static const char *find_operand(const char *labels, int output, int index)
{
    const char *arrow = strstr(labels, "->");
    const char *text = output ? (arrow ? arrow + 2 : NULL) : labels;
    if (!text || !*text) return NULL;
    while (index > 0) {
        text = strchr(text, ',');
        if (!text || (!output && arrow && text > arrow)) return NULL;
        text++;
        index--;
    }
    return text;
}

int syi_op_operands(enum sy_op op, int output, unsigned *optional)
{
    int n = 0;
    *optional = 0;
    for (const char *side = find_operand(table[op].labels, output, 0);; side++) {
        if (!*side || *side == '-') return n + 1;
        if (*side == ',') n++;
        if (*side == '?') *optional |= 1u << n;
    }
}

int syi_op_letters(enum sy_op op, int output, int index, int rank, char letters[SY_MAX_DIMS + 1])
{
    const char *text = find_operand(table[op].labels, output, index);
    if (!text) return 0;
    int n = 0;
    if (!strncmp(text, "...", 3)) {
        static const char *const leading[] = {"", "e", "bt", "ebc"};
        int dims = rank - (int)strspn(text += 3, "abcdefghijklmnopqrstuvwxyz");
        for (const char *c = dims > 0 && dims < (int)SYI_COUNT(leading) ? leading[dims] : ""; *c; c++)
            letters[n++] = *c;
    }
    while (*text >= 'a' && *text <= 'z' && n < SY_MAX_DIMS) letters[n++] = *text++;
    letters[n] = '\0';
    return 1;
}
