/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of ops.def as a table, and the reading of their labels. Checks at compile time that attribute
 * structures have as many fields as ops.def names where they are fixed. */
#include "config.h"

#include <string.h>

#include "program/program.h"

static const struct syi_op_info table[SY_OP_COUNT] = {
#define SY_OP(id, NAME, name, labels, split, types, attributes, flags, tolerance, help)                      \
    [id] = {#name, labels, split, types, attributes, flags, help, tolerance},
#include "switchyard/ops.def"
#undef SY_OP
};

const struct syi_op_info *syi_op_info(int op)
{
    return &table[op];
}

int syi_op_has_flag(int op, char flag)
{
    return strchr(table[op].flags, flag) != NULL;
}

int syi_op_is_collective(int op)
{
    return op == SY_OP_ALL_GATHER || op == SY_OP_ALL_TO_ALL || op == SY_OP_ALL_REDUCE ||
           op == SY_OP_REDUCE_SCATTER || op == SY_OP_SEND_PIECES || op == SY_OP_GATHER_PIECES;
}

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

int syi_op_letters(int op, int output, int index, int rank, char letters[SY_MAX_DIMS + 1])
{
    const char *text = find_operand(table[op].labels, output, index);
    if (!text) return 0;
    int n = 0;
    if (!strncmp(text, "...", 3)) {
        const char *leading = rank == 4 ? "ebc" : "bt";
        while (*leading) letters[n++] = *leading++;
        text += 3;
    }
    while (*text >= 'a' && *text <= 'z' && n < SY_MAX_DIMS) letters[n++] = *text++;
    letters[n] = '\0';
    return 1;
}
