/* SPDX-License-Identifier: Apache-2.0 */
/* A program as text, one op a line: what a newcomer reads, and what two builds can be compared by. Prints
 * only what the arrays hold; it computes nothing. */
#include "config.h"

#include <string.h>

#include "program/op_rules.h"

enum { LAYER_WIDTH = 44, OP_WIDTH = 18 }; /* columns at most, at least */

const char *syi_split_letters(int axes)
{
    static const char *const letters[8] = {"", "d", "e", "de", "m", "dm", "em", "dem"};
    return letters[axes & 7];
}

/* ---- tensors ---- */

static void put_tensor(struct syi_text *text, const struct syi_program *p, int tensor)
{
    if (tensor < 0 || (size_t)tensor >= p->n_tensors) {
        syi_text_puts(text, "-");
        return;
    }
    const struct syi_tensor *t = &p->tensor[tensor];
    syi_text_printf(text, "t%d", tensor);
    if (t->name) syi_text_printf(text, "(%s)", syi_program_name(p, t->name));
}

static void put_shape(struct syi_text *text, const struct syi_tensor *t)
{
    syi_text_printf(text, " %s[", syi_dtype_name(t->dtype));
    for (int i = 0; i < t->rank && i < SY_MAX_DIMS; i++)
        syi_text_printf(text, "%s%lld%s", i ? "," : "", (long long)t->dim[i], syi_split_letters(t->split[i]));
    syi_text_puts(text, "]");
    if (t->partial) syi_text_printf(text, " sum over %s", syi_split_letters(t->partial));
}

void syi_tensor_text(const struct syi_program *program, int tensor, char *text, size_t bytes)
{
    struct syi_text line = syi_text_in(text, bytes);
    put_tensor(&line, program, tensor);
    if (tensor >= 0 && (size_t)tensor < program->n_tensors) put_shape(&line, &program->tensor[tensor]);
}

static void put_place(struct syi_text *text, const struct syi_tensor *t)
{
    static const char *const segments[SYI_SEGMENT_COUNT] = {"persist", "io",       "carry",
                                                            "scratch", "snapshot", "staging"};
    if (t->bytes)
        syi_text_printf(text, "  %s+0x%llx", segments[syi_kind_segment(t->kind)],
                        (unsigned long long)t->offset);
}

/* ---- attributes ---- */

static void put_number(struct syi_text *text, double value)
{
    char number[SYI_NUMBER_BYTES];
    syi_format_double(number, value);
    syi_text_puts(text, number);
}

/* Field by field, named as ops.def names them: "leaf=32 rate=0.1". */
static void put_fields(struct syi_text *text, const char *names, const uint8_t *attr, size_t bytes)
{
    const char *gap = "  ";
    for (size_t at = 0; *names && at + 8 <= bytes; at += 8) {
        size_t length = strcspn(names, ","), is_double = length > 2 && !strncmp(names + length - 2, ":f", 2);
        int64_t integer;
        double real;
        memcpy(&integer, attr + at, sizeof integer);
        memcpy(&real, attr + at, sizeof real);
        if (*names != '-') {
            syi_text_printf(text, "%s%.*s=", gap, (int)(length - 2 * is_double), names);
            gap = " ";
            if (is_double)
                put_number(text, real);
            else if (!strncmp(names, "mesh", length))
                syi_text_puts(text, syi_split_letters((int)integer));
            else
                syi_text_printf(text, "%lld", (long long)integer);
        }
        names += length + strspn(names + length, ", ");
    }
}

static void put_attributes(struct syi_text *text, const struct syi_program *p, const struct syi_op *op)
{
    const struct syi_op_rules *rules = syi_op_rules(op->op);
    const void *attr = syi_program_attr(p, op);
    if (rules->explain)
        rules->explain(text, op, attr);
    else if (op->attr_bytes)
        put_fields(text, syi_op_info(op->op)->attributes, attr, op->attr_bytes);
}

/* ---- lines ---- */

static size_t layer_width(const struct syi_program *p)
{
    size_t width = 1;
    for (size_t i = 0; i < p->n_ops; i++) {
        size_t length = strlen(syi_program_name(p, p->op[i].layer));
        if (length > width && length <= LAYER_WIDTH) width = length;
    }
    return width;
}

static void put_op(struct syi_text *text, const struct syi_program *p, size_t index, size_t width)
{
    const struct syi_op *op = &p->op[index];
    int known = op->op < SY_OP_COUNT;
    syi_text_printf(text, "%5zu q%d %-*s %-*s", index, op->queue, (int)width, syi_program_name(p, op->layer),
                    OP_WIDTH, known ? syi_op_info(op->op)->name : "?");
    for (int i = 0; i < op->n_out && i < SY_MAX_OUT; i++) {
        syi_text_puts(text, i ? ", " : " ");
        put_tensor(text, p, op->out[i]);
        if (op->out[i] >= 0 && (size_t)op->out[i] < p->n_tensors) put_shape(text, &p->tensor[op->out[i]]);
    }
    syi_text_puts(text, " <-");
    for (int i = 0; i < op->n_in && i < SY_MAX_IN; i++) {
        syi_text_puts(text, " ");
        put_tensor(text, p, op->in[i]);
    }
    if (known) put_attributes(text, p, op);
    for (int i = 0; i < op->n_out && i < SY_MAX_OUT; i++)
        if (op->out[i] >= 0 && (size_t)op->out[i] < p->n_tensors) put_place(text, &p->tensor[op->out[i]]);
    if (op->file) syi_text_printf(text, "  %s:%u", syi_program_name(p, op->file), op->line);
}

static int send_line(struct syi_text *text, syi_line_fn line, void *arg, struct sy_error *err)
{
    int status = syi_text_status(text, err);
    if (!status) line(arg, text->data ? text->data : "");
    syi_text_free(text);
    return status;
}

void syi_op_text(const struct syi_program *program, size_t op, char *text, size_t bytes)
{
    struct syi_text line = syi_text_in(text, bytes);
    put_op(&line, program, op, 1);
    size_t blanks = strspn(text, " ");
    memmove(text, text + blanks, line.length - blanks + 1);
}

int syi_program_explain(const struct syi_program *program, syi_line_fn line, void *arg, struct sy_error *err)
{
    struct syi_text text = {0};
    size_t width = layer_width(program);
    syi_text_printf(&text, "program %s: %zu ops, %zu tensors", program->title, program->n_ops,
                    program->n_tensors);
    int status = send_line(&text, line, arg, err);
    for (size_t i = 0; i < program->n_ops && !status; i++) {
        put_op(&text, program, i, width);
        status = send_line(&text, line, arg, err);
    }
    return status;
}
