/* SPDX-License-Identifier: Apache-2.0 */
/* The fuse pass: maps over one shape that pass tensors to each other, or read the same ones, become one map;
 * what only they read becomes a register. Values stay as they are: an instruction is one rounding wherever it
 * stands, so only a float32 tensor may become a register. A map joins the first of its run by moving up, over
 * ops that neither write what it reads nor touch what it writes. */
#include "config.h"

#include <string.h>

#include "passes/passes.h"

enum {
    WINDOW = 64, /* ops looked at after the first of a run: moving further up keeps tensors alive for long */
    INSTRUCTION = 128, /* register of instruction i of a run is INSTRUCTION + i until its inputs are known */
    MAX_WRITTEN = 2 * SY_MAP_MAX_INSTR,
    NO_RNG = 255
};

/* A tensor that a member of the run writes. */
struct written {
    int tensor;
    int inside;  /* operands of later members that take its register */
    uint8_t reg; /* INSTRUCTION + i, or an input */
};

/* The map that grows. */
struct run {
    int in[SY_MAX_IN];
    struct written written[MAX_WRITTEN];
    struct sy_map_instr instr[SY_MAP_MAX_INSTR];
    int n_in, n_written, n_instr, rng, members;
};

/* How ops that stay where they are, inside the window of the run that grows, use a tensor. */
struct use {
    uint32_t reads;                         /* operands of the program that read it */
    uint32_t skipped_read, skipped_written; /* number of the run in which it happened last */
    uint32_t linked;                        /* run whose tensors it belongs to */
};

struct pass {
    struct syi_program *program;
    struct use *use; /* [n_tensors] */
    uint8_t *gone;   /* [n_ops] became part of an earlier op */
    uint32_t run;    /* number of the run that grows, from 1 */
};

static int same_shape(const struct syi_program *p, const struct syi_op *a, const struct syi_op *b)
{
    const struct syi_tensor *x = &p->tensor[a->out[0]], *y = &p->tensor[b->out[0]];
    return x->rank == y->rank && !memcmp(x->dim, y->dim, sizeof x->dim) &&
           !memcmp(x->split, y->split, sizeof x->split);
}

/* ---- joining one map to the run ---- */

static struct written *find_written(struct run *run, int tensor)
{
    for (int i = 0; i < run->n_written; i++)
        if (run->written[i].tensor == tensor) return &run->written[i];
    return NULL;
}

int syi_map_add_input(int *in, int *n_in, int tensor)
{
    for (int i = 0; i < *n_in; i++)
        if (in[i] == tensor) return i;
    if (*n_in == SY_MAX_IN) return -1;
    in[*n_in] = tensor;
    return (*n_in)++;
}

/* Registers of the run for the inputs of a map; 0 when it cannot join. */
static int join_inputs(const struct syi_program *p, struct run *run, const struct syi_op *op, int rng,
                       uint8_t *reg)
{
    for (int i = 0; i < op->n_in; i++) {
        struct written *written = i == rng ? NULL : find_written(run, op->in[i]);
        if (written) {
            if (p->tensor[op->in[i]].dtype != SY_F32) return 0; /* memory would round it */
            written->inside++;
            reg[i] = written->reg;
            continue;
        }
        int input = syi_map_add_input(run->in, &run->n_in, op->in[i]);
        if (input < 0) return 0;
        reg[i] = (uint8_t)input;
        if (i == rng && run->rng != NO_RNG && run->rng != input) return 0;
        if (i == rng) run->rng = input;
    }
    return 1;
}

static int join_instructions(struct run *run, const struct sy_attr_map *attr, int n_in, uint8_t *reg)
{
    for (int i = 0; i < attr->n_instr; i++) {
        struct sy_map_instr instr = attr->instr[i];
        int arguments = syi_map_arguments(instr.op);
        if (arguments > 0) instr.a = reg[instr.a];
        if (arguments > 1) instr.b = reg[instr.b];
        if (arguments > 2) instr.c = reg[instr.c];
        if (instr.op == SY_MAP_COPY && instr.a >= INSTRUCTION) {
            reg[n_in + i] = instr.a;
            continue;
        }
        if (run->n_instr == SY_MAP_MAX_INSTR) return 0;
        reg[n_in + i] = (uint8_t)(INSTRUCTION + run->n_instr);
        run->instr[run->n_instr++] = instr;
    }
    return 1;
}

static int join_outputs(struct run *run, const struct syi_op *op, const struct sy_attr_map *attr,
                        const uint8_t *reg)
{
    for (int i = 0; i < op->n_out; i++) {
        struct written *written = find_written(run, op->out[i]);
        if (!written) {
            if (run->n_written == MAX_WRITTEN) return 0;
            written = &run->written[run->n_written++];
            *written = (struct written){.tensor = op->out[i]};
        }
        written->reg = reg[attr->out_register[i]];
    }
    return 1;
}

/* Whether something outside the run needs the tensor in memory. */
static int is_needed(const struct pass *pass, const struct written *written)
{
    return pass->program->tensor[written->tensor].kind != SYI_TEMP ||
           pass->use[written->tensor].reads > (uint32_t)written->inside;
}

static int count_outputs(const struct pass *pass, const struct run *run)
{
    int n = 0;
    for (int i = 0; i < run->n_written; i++) n += is_needed(pass, &run->written[i]);
    return n;
}

/* Adds a map to the run if the limits allow; leaves the run as it was otherwise. */
static int join(const struct pass *pass, struct run *run, const struct syi_op *op)
{
    struct run longer = *run;
    uint8_t reg[SY_MAX_IN + SY_MAP_MAX_INSTR] = {0};
    const struct sy_attr_map *attr = syi_program_attr(pass->program, op);
    int rng = attr->rng == NO_RNG ? -1 : attr->rng;
    if (!join_inputs(pass->program, &longer, op, rng, reg) ||
        !join_instructions(&longer, attr, op->n_in, reg) || !join_outputs(&longer, op, attr, reg) ||
        count_outputs(pass, &longer) > SY_MAX_OUT)
        return 0;
    longer.members++;
    *run = longer;
    return 1;
}

/* ---- which maps ---- */

/* Whether a map reads or writes a whole tensor that belongs to the run: others would share nothing with it
 * but scalars, and only use up its instructions. Marks all its whole tensors as belonging to the run. */
static int link(struct pass *pass, const struct syi_op *op, int always)
{
    const struct syi_program *p = pass->program;
    int64_t whole = syi_tensor_count(&p->tensor[op->out[0]]);
    int linked = always || whole == 1, found = 0;
    for (int side = 0; side < 2 && !linked; side++)
        for (int i = 0; i < (side ? op->n_out : op->n_in); i++) {
            int tensor = side ? op->out[i] : op->in[i];
            linked |= pass->use[tensor].linked == pass->run && syi_tensor_count(&p->tensor[tensor]) == whole;
        }
    for (int side = 0; side < 2 && linked; side++)
        for (int i = 0; i < (side ? op->n_out : op->n_in); i++) {
            struct use *use = &pass->use[side ? op->out[i] : op->in[i]];
            found |= use->linked != pass->run;
            use->linked = pass->run;
        }
    return found;
}

static int is_candidate(const struct pass *pass, size_t first, size_t i)
{
    const struct syi_op *op = pass->program->op;
    return !pass->gone[i] && op[i].op == SY_OP_MAP && same_shape(pass->program, &op[first], &op[i]);
}

/* Follows tensors from the first map through the candidates of the window until nothing new is found. */
static void link_window(struct pass *pass, size_t first, size_t end)
{
    link(pass, &pass->program->op[first], 1);
    for (int found = 1; found;) {
        found = 0;
        for (size_t i = first + 1; i < end; i++)
            if (is_candidate(pass, first, i)) found |= link(pass, &pass->program->op[i], 0);
    }
}

static void skip(struct pass *pass, const struct syi_op *op)
{
    for (int i = 0; i < op->n_in; i++)
        if (op->in[i] >= 0) pass->use[op->in[i]].skipped_read = pass->run;
    for (int i = 0; i < op->n_out; i++)
        if (op->out[i] >= 0) pass->use[op->out[i]].skipped_written = pass->run;
}

static int may_move(const struct pass *pass, const struct syi_op *op)
{
    int linked = syi_tensor_count(&pass->program->tensor[op->out[0]]) == 1;
    for (int i = 0; i < op->n_in; i++)
        if (pass->use[op->in[i]].skipped_written == pass->run) return 0;
    for (int i = 0; i < op->n_out; i++) {
        const struct use *use = &pass->use[op->out[i]];
        if (use->skipped_read == pass->run || use->skipped_written == pass->run) return 0;
        linked |= use->linked == pass->run;
    }
    return linked;
}

/* ---- the fused op ---- */

static uint8_t final_register(const struct run *run, uint8_t reg)
{
    return (uint8_t)(reg >= INSTRUCTION ? run->n_in + reg - INSTRUCTION : reg);
}

static void write_attr(const struct pass *pass, const struct run *run, struct sy_attr_map *attr,
                       struct syi_op *op)
{
    attr->n_instr = (uint16_t)run->n_instr;
    attr->rng = (uint8_t)run->rng;
    for (int i = 0; i < run->n_instr; i++) {
        struct sy_map_instr instr = run->instr[i];
        int arguments = syi_map_arguments(instr.op);
        if (arguments > 0) instr.a = final_register(run, instr.a);
        if (arguments > 1) instr.b = final_register(run, instr.b);
        if (arguments > 2) instr.c = final_register(run, instr.c);
        attr->instr[i] = instr;
    }
    op->n_out = 0;
    for (int i = 0; i < run->n_written; i++) {
        int last = i == run->n_written - 1 && !op->n_out; /* a run that nobody reads still writes something */
        if (!is_needed(pass, &run->written[i]) && !last) continue;
        attr->out_register[op->n_out] = final_register(run, run->written[i].reg);
        op->out[op->n_out++] = run->written[i].tensor;
    }
}

/* Puts the run in the place of its first map. */
static int replace(struct pass *pass, const struct run *run, size_t first, struct sy_error *err)
{
    struct syi_program *p = pass->program;
    struct syi_op *op = &p->op[first];
    size_t bytes = sizeof(struct sy_attr_map) + (size_t)run->n_instr * sizeof(struct sy_map_instr);
    void *attr;
    int status = syi_attr_new(p, op, bytes, &attr, err);
    if (status) return status;
    for (int i = 0; i < SY_MAX_IN; i++) op->in[i] = i < run->n_in ? run->in[i] : -1;
    for (int i = 0; i < SY_MAX_OUT; i++) op->out[i] = -1;
    op->n_in = (uint8_t)run->n_in;
    write_attr(pass, run, attr, op);
    return SY_OK;
}

/* ---- the walk ---- */

/* Grows a run from map `first` and replaces it when others joined. */
static int fuse_from(struct pass *pass, size_t first, struct sy_error *err)
{
    struct syi_program *p = pass->program;
    struct run run = {.rng = NO_RNG};
    size_t end = first + 1, looked_at = 0;
    pass->run++;
    if (!join(pass, &run, &p->op[first])) return SY_OK;
    for (; end < p->n_ops && looked_at < WINDOW; end++) looked_at += !pass->gone[end];
    link_window(pass, first, end);
    for (size_t i = first + 1; i < end; i++) {
        if (pass->gone[i]) continue;
        if (is_candidate(pass, first, i) && may_move(pass, &p->op[i]) && join(pass, &run, &p->op[i]))
            pass->gone[i] = 1;
        else
            skip(pass, &p->op[i]);
    }
    return run.members > 1 ? replace(pass, &run, first, err) : SY_OK;
}

static int count_reads(struct pass *pass, struct sy_error *err)
{
    const struct syi_program *p = pass->program;
    pass->use = syi_alloc((p->n_tensors + 1) * sizeof *pass->use, err);
    pass->gone = syi_alloc(p->n_ops + 1, err);
    if (!pass->use || !pass->gone) return SY_ENOMEM;
    for (size_t i = 0; i < p->n_ops; i++)
        for (int j = 0; j < p->op[i].n_in; j++)
            if (p->op[i].in[j] >= 0) pass->use[p->op[i].in[j]].reads++;
    return SY_OK;
}

int syi_program_fuse(struct syi_program *program, struct sy_error *err)
{
    struct pass pass = {.program = program};
    int status = syi_program_status(program, err);
    if (!status) status = count_reads(&pass, err);
    for (size_t i = 0; !status && i < program->n_ops; i++)
        if (!pass.gone[i] && program->op[i].op == SY_OP_MAP) status = fuse_from(&pass, i, err);
    if (!status) syi_program_remove(program, pass.gone);
    syi_free(pass.use);
    syi_free(pass.gone);
    return status ? status : syi_program_check(program, "fuse", err);
}
