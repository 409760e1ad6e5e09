/* SPDX-License-Identifier: Apache-2.0 */
/* Taking two runs through the same steps: ranks of both sides meet around every op; the last that comes
 * compares while the others wait. What is compared is in lockstep_compare.c, which ops meet in
 * lockstep_align.c. */
#include "config.h"

#include <pthread.h>
#include <string.h>

#include "optim/schedule.h"
#include "train/engine/engine.h"
#include "train/compare/lockstep.h"
#include "train/engine/train_data.h"
#include "train/init/init.h"

enum moment { OPENED, BATCH, BEFORE_OP, AFTER_OP, PROGRAM_END, STEP_END };

/* A rank of a side, and where it is. */
struct member {
    struct lockstep *lockstep;
    const struct syi_rank *rank;
    struct syi_session *session;
    int side;
    enum moment moment;
    int program; /* of the session */
    size_t op;
    const struct sy_call *call;
};

struct lockstep {
    const struct syi_lockstep_job *job;
    struct syi_lockstep_result *result;
    struct member *member; /* [n] the ranks of side 0, then those of side 1 */
    int ranks[2], n;
    pthread_mutex_t mutex; /* of all below */
    pthread_cond_t met;
    int arrived, over;             /* over: nobody meets any more */
    uint64_t meetings;             /* so far */
    struct sy_error failure;       /* of what a meeting did */
    const struct sy_tensor **part; /* [n] of the operand at hand */
    struct syi_alignment *alignment;
    size_t n_programs;
    struct syi_train_data data; /* of a run file without a task only the vocabularies: batches are made up */
    struct syi_batch made_up;
    const struct syi_batch *batch;
    int64_t step;
};

/* Two sides at the same place: their first ranks. */
static struct member *first_of(struct lockstep *l, int side)
{
    return &l->member[side ? l->ranks[0] : 0];
}

/* ---- reporting ---- */

/* The last op below `end` that writes a tensor; `end` where none does. */
static size_t writer_of(const struct syi_program *p, int tensor, size_t end)
{
    for (size_t i = end; i-- > 0;)
        for (int k = 0; k < p->op[i].n_out; k++)
            if (p->op[i].out[k] == tensor) return i;
    return end;
}

static void describe_op(const struct syi_program *p, size_t index, int tensor, struct syi_lockstep_op *to)
{
    const struct syi_op *op = &p->op[index];
    *to = (struct syi_lockstep_op){.index = index};
    if (index >= p->n_ops) return;
    snprintf(to->name, sizeof to->name, "%s", syi_op_info(op->op)->name);
    snprintf(to->layer, sizeof to->layer, "%s", syi_program_name(p, op->layer));
    snprintf(to->file, sizeof to->file, "%s", syi_program_name(p, op->file));
    to->line = op->line;
    syi_op_text(p, index, to->text, sizeof to->text);
    if (tensor < 0) return;
    syi_tensor_text(p, tensor, to->tensor, sizeof to->tensor);
    snprintf(to->shared, sizeof to->shared, "%s", syi_program_name(p, p->tensor[tensor].name));
    size_t writer = writer_of(p, tensor, index);
    if (writer < index) syi_op_text(p, writer, to->writer, sizeof to->writer);
}

static void tell_divergence(struct lockstep *l, const struct syi_program *const program[2],
                            const struct syi_divergence *divergence)
{
    struct syi_lockstep_result *r = l->result;
    r->end = SYI_LOCKSTEP_DIVERGED;
    snprintf(r->program, sizeof r->program, "%s", program[0]->title);
    for (int s = 0; s < 2; s++) describe_op(program[s], divergence->op[s], -1, &r->op[s]);
    l->over = 1;
}

static void tell_unlike(struct lockstep *l, const char *format, ...) SYI_PRINTF(2, 3);
static void tell_unlike(struct lockstep *l, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(l->result->why, sizeof l->result->why, format, args);
    va_end(args);
    l->result->end = SYI_LOCKSTEP_DIVERGED;
    l->over = 1;
}

/* ---- before the first step ---- */

static int align_program(struct lockstep *l, int i, struct sy_error *err)
{
    const struct syi_program *program[2];
    const struct syi_mesh *mesh[2];
    struct syi_divergence divergence;
    for (int s = 0; s < 2; s++) {
        program[s] = syi_session_program(first_of(l, s)->session, i);
        mesh[s] = syi_session_mesh(first_of(l, s)->session);
    }
    if (strcmp(program[0]->title, program[1]->title)) {
        tell_unlike(l, "program %d is %s on one side and %s on the other", i, program[0]->title,
                    program[1]->title);
        return SY_OK;
    }
    int status = syi_align(program, mesh, &l->alignment[i], &divergence, err);
    if (!status && divergence.diverged) tell_divergence(l, program, &divergence);
    for (int s = 0; s < 2; s++) l->result->alone[s] += l->alignment[i].alone[s];
    return status;
}

static int align_programs(struct lockstep *l, struct sy_error *err)
{
    size_t n[2] = {0, 0};
    for (int s = 0; s < 2; s++)
        while (syi_session_program(first_of(l, s)->session, (int)n[s])) n[s]++;
    l->n_programs = n[0] < n[1] ? n[0] : n[1];
    l->alignment = syi_alloc(l->n_programs * sizeof *l->alignment, err);
    if (!l->alignment) return SY_ENOMEM;
    int status = SY_OK;
    for (size_t i = 0; i < l->n_programs && !status && !l->over; i++) status = align_program(l, (int)i, err);
    if (!status && !l->over && n[0] != n[1])
        tell_unlike(l, "one side has %zu programs, the other %zu", n[0], n[1]);
    return status;
}

/* Programs that are alike may still be run on batches that are not. */
static void check_batches(struct lockstep *l)
{
    const struct syi_config *a = l->job->side[0].config, *b = l->job->side[1].config;
    struct syi_bucket bucket[2][SYI_MAX_BUCKETS];
    int n = syi_engine_buckets(a, bucket[0]), m = syi_engine_buckets(b, bucket[1]);
    if (n != m || memcmp(bucket[0], bucket[1], (size_t)n * sizeof **bucket))
        tell_unlike(l, "the sides have other length buckets");
    else if (a->data.batch_size != b->data.batch_size)
        tell_unlike(l, "data.batch_size is %lld on one side and %lld on the other",
                    (long long)a->data.batch_size, (long long)b->data.batch_size);
}

static int open_data(struct lockstep *l, struct sy_error *err)
{
    const struct syi_config *c = l->job->side[0].config;
    if (!*syi_config_task(c)->train) {
        int status = syi_vocabularies_make(&l->data.vocabularies, c, err);
        l->batch = &l->made_up;
        return status ? status : syi_train_batch_create(c, &l->made_up, err);
    }
    struct syi_train_reader reader = {0};
    return syi_train_data_open(&l->data, c, &reader, err);
}

static int next_batch(struct lockstep *l, struct sy_error *err)
{
    if (!l->made_up.rows) return syi_train_data_get(&l->data, l->step, &l->batch, err);
    syi_train_batch_make_up(l->job->side[0].config, &l->data.vocabularies, l->step, &l->made_up);
    return SY_OK;
}

/* ---- comparing ---- */

/* Where a difference was found: on each side an op and its operand, a tensor of that side's program. */
struct operand {
    const struct syi_program *program[2];
    size_t op[2];
    int tensor[2];
    int output, number;
};

/* The parts are in l->part. */
static void compare(struct lockstep *l, const struct operand *o)
{
    struct syi_lockstep_result *r = l->result;
    const struct syi_tensor *t = &o->program[0]->tensor[o->tensor[0]];
    struct syi_parts side[2] = {{l->part, l->ranks[0]}, {l->part + l->ranks[0], l->ranks[1]}};
    int64_t dim[SY_MAX_DIMS];
    syi_global_dims(t, syi_session_mesh(first_of(l, 0)->session), dim);
    struct syi_comparison c;
    syi_parts_compare(side, dim, l->job->tolerance, &c);
    r->elements += c.elements;
    if (!c.differing) return;
    r->end = SYI_LOCKSTEP_DIFFERENT;
    r->comparison = c;
    r->step = l->step;
    r->input_length = l->batch->input_length;
    r->target_length = l->batch->target_length;
    r->output = o->output;
    r->operand = o->number;
    for (int s = 0; s < 2; s++) r->dtype[s] = o->program[s]->tensor[o->tensor[s]].dtype;
    r->rank = t->rank;
    memcpy(r->dim, dim, sizeof r->dim);
    snprintf(r->program, sizeof r->program, "%s", o->program[0]->title);
    for (int s = 0; s < 2; s++) describe_op(o->program[s], o->op[s], o->tensor[s], &r->op[s]);
    l->over = 1;
}

/* All inputs, or all outputs, of the op that everybody stands at. A tensor that holds terms of a sum over
 * ranks has nothing to be compared with; the sum is, where it is read. */
static void compare_op(struct lockstep *l, int output)
{
    struct operand o = {.output = output};
    const struct syi_op *op[2];
    for (int s = 0; s < 2; s++) {
        const struct member *m = first_of(l, s);
        o.program[s] = syi_session_program(m->session, m->program);
        o.op[s] = m->op;
        op[s] = &o.program[s]->op[m->op];
    }
    int n = output ? op[0]->n_out : op[0]->n_in;
    for (o.number = 0; o.number < n && !l->over; o.number++) {
        int partial = 0;
        for (int s = 0; s < 2; s++) {
            o.tensor[s] = output ? op[s]->out[o.number] : op[s]->in[o.number];
            partial |= o.tensor[s] < 0 || o.program[s]->tensor[o.tensor[s]].partial;
        }
        if (partial) continue;
        for (int i = 0; i < l->n; i++)
            l->part[i] = (output ? l->member[i].call->out : l->member[i].call->in) + o.number;
        compare(l, &o);
    }
    l->result->ops += output;
}

/* One output of an op of side 0, if it is still there: a tensor that programs share. */
static void compare_output(struct lockstep *l, struct operand *o)
{
    const struct syi_program *const *p = o->program;
    int tensor = o->tensor[0] = p[0]->op[o->op[0]].out[o->number];
    if (tensor < 0 || p[0]->tensor[tensor].kind == SYI_TEMP) return;
    const char *name = syi_program_name(p[0], p[0]->tensor[tensor].name);
    o->tensor[1] = syi_program_find(p[1], name);
    if (o->tensor[1] < 0) return;
    for (int i = 0; i < l->n; i++) l->part[i] = syi_session_tensor(l->member[i].session, name);
    o->op[1] = writer_of(p[1], o->tensor[1], p[1]->n_ops);
    compare(l, o);
}

/* What a program leaves in memory, in the order it was written. Where all ops were compared, so was this. */
static void compare_left(struct lockstep *l)
{
    int program = l->member[0].program;
    struct operand o = {.output = 1};
    if (!l->alignment[program].alone[0] && !l->alignment[program].alone[1]) return;
    for (int s = 0; s < 2; s++) o.program[s] = syi_session_program(first_of(l, s)->session, program);
    for (o.op[0] = 0; o.op[0] < o.program[0]->n_ops && !l->over; o.op[0]++)
        for (o.number = 0; o.number < o.program[0]->op[o.op[0]].n_out && !l->over; o.number++)
            compare_output(l, &o);
}

/* ---- meetings ---- */

/* What is done when all have come. */
static void act(struct lockstep *l, enum moment moment)
{
    struct sy_error *err = &l->failure;
    int status = SY_OK;
    for (int i = 0; i < l->n && !status; i++)
        if (l->member[i].moment != moment || l->member[i].program != l->member[0].program)
            status = syi_error(err, SY_EINTERNAL, "the two sides are at different places of a step");
    switch (status ? BATCH : moment) {
    case OPENED:
        status = align_programs(l, err);
        if (!status && !l->over) check_batches(l);
        if (!status && !l->over) status = open_data(l, err);
        break;
    case BATCH:
        if (!status) status = next_batch(l, err);
        break;
    case BEFORE_OP: compare_op(l, 0); break;
    case AFTER_OP: compare_op(l, 1); break;
    case PROGRAM_END: compare_left(l); break;
    case STEP_END: l->step = ++l->result->steps; break;
    }
    if (status) l->over = 1;
}

/* Waits until everybody has come to this moment. 0: it is over, and this rank goes on alone. */
static int meet(struct member *m, enum moment moment)
{
    struct lockstep *l = m->lockstep;
    m->moment = moment;
    pthread_mutex_lock(&l->mutex);
    uint64_t before = l->meetings;
    if (!l->over && ++l->arrived == l->n) {
        l->arrived = 0;
        l->meetings++;
        act(l, moment);
        pthread_cond_broadcast(&l->met);
    }
    while (!l->over && l->meetings == before) pthread_cond_wait(&l->met, &l->mutex);
    int go_on = !l->over;
    pthread_mutex_unlock(&l->mutex);
    return go_on;
}

/* Nobody may wait for a rank that failed. */
static void leave(struct lockstep *l)
{
    pthread_mutex_lock(&l->mutex);
    l->over = 1;
    pthread_cond_broadcast(&l->met);
    pthread_mutex_unlock(&l->mutex);
}

/* ---- a rank ---- */

static void at_op(void *arg, int program, size_t op, const struct sy_call *call, int after)
{
    struct member *m = arg;
    const struct lockstep *l = m->lockstep;
    m->program = program;
    m->op = op;
    m->call = call;
    if (l->alignment[program].meets[m->side][op]) meet(m, after ? AFTER_OP : BEFORE_OP);
    if (after && op + 1 == syi_session_program(m->session, program)->n_ops) meet(m, PROGRAM_END);
}

static int run_steps(struct member *m, struct syi_engine *engine, struct sy_error *err)
{
    const struct lockstep *l = m->lockstep;
    const struct syi_config *config = l->job->side[m->side].config;
    struct syi_step_result ignored;
    int status = SY_OK;
    for (int64_t step = 0; !status && step < l->job->steps && meet(m, BATCH); step++) {
        status = syi_engine_step(engine, l->batch, step, syi_schedule_rate(config, step), &ignored, err);
        if (!status && !meet(m, STEP_END)) break;
    }
    return status;
}

struct side {
    struct lockstep *lockstep;
    int number, status;
    struct sy_error err;
};

/* The sides go from step 0 on, on batches that are the same for both. */
static int begin_weights(struct syi_engine *engine, const struct syi_config *config,
                         const struct syi_rank *rank, struct sy_error *err)
{
    struct syi_init_report report = {0};
    if (config->train.init_state)
        return syi_error(err, SY_EINVAL,
                         "train.init_state: runs are compared from step 0 on: leave it out, the weights of "
                         "train.init_from are taken without it");
    int status = syi_init_weights(engine, config, rank, NULL, &report, err);
    syi_init_report_free(&report);
    return status;
}

static int run_rank(void *arg, const struct syi_rank *rank, struct sy_error *err)
{
    const struct side *side = arg;
    struct lockstep *l = side->lockstep;
    const struct syi_config *config = l->job->side[side->number].config;
    struct member *m = first_of(l, side->number) + rank->rank;
    struct syi_engine *engine = NULL;
    *m = (struct member){.lockstep = l, .rank = rank, .side = side->number};
    if (rank->rank == 0)
        syi_rank_describe(rank, l->result->launched[side->number], sizeof l->result->launched[0]);
    int status = syi_engine_new(config, rank, SYI_USE_TRAIN | SYI_USE_UNFOLDED | l->job->use[side->number], 0,
                                &engine, err);
    if (!status) {
        m->session = syi_engine_session(engine);
        status = begin_weights(engine, config, rank, err);
        if (!status && meet(m, OPENED)) {
            syi_session_hook(m->session, at_op, m);
            status = run_steps(m, engine, err);
        }
    }
    if (status) leave(l);
    syi_engine_free(engine);
    return status;
}

static void *run_side(void *arg)
{
    struct side *side = arg;
    syi_fp_reset();
    side->status = syi_launch_run(&side->lockstep->job->side[side->number], run_rank, side, &side->err);
    if (side->status) leave(side->lockstep);
    return NULL;
}

/* ---- the whole ---- */

static int run_sides(struct lockstep *l, struct sy_error *err)
{
    struct side side[2] = {{.lockstep = l}, {.lockstep = l, .number = 1}};
    pthread_t thread;
    int status = syi_thread_start(&thread, "sy-side-b", run_side, &side[1], err);
    if (status) return status;
    run_side(&side[0]);
    pthread_join(thread, NULL);
    if (l->failure.code) return syi_error(err, l->failure.code, "%s", l->failure.text);
    for (int s = 0; s < 2; s++)
        if (side[s].status) return syi_error(err, side[s].status, "side %c: %s", 'A' + s, side[s].err.text);
    return SY_OK;
}

int syi_lockstep_run(const struct syi_lockstep_job *job, struct syi_lockstep_result *result,
                     struct sy_error *err)
{
    struct lockstep l = {.job = job, .result = result};
    *result = (struct syi_lockstep_result){0};
    for (int s = 0; s < 2; s++) l.ranks[s] = job->side[s].ranks > 0 ? job->side[s].ranks : 1;
    l.n = l.ranks[0] + l.ranks[1];
    pthread_mutex_init(&l.mutex, NULL);
    pthread_cond_init(&l.met, NULL);
    l.member = syi_alloc((size_t)l.n * sizeof *l.member, err);
    l.part = syi_alloc((size_t)l.n * sizeof *l.part, err);
    int status = l.member && l.part ? run_sides(&l, err) : SY_ENOMEM;
    for (size_t i = 0; i < l.n_programs && l.alignment; i++) syi_alignment_free(&l.alignment[i]);
    syi_free(l.alignment);
    syi_batch_free(&l.made_up);
    syi_train_data_close(&l.data);
    syi_free(l.part);
    syi_free(l.member);
    pthread_cond_destroy(&l.met);
    pthread_mutex_destroy(&l.mutex);
    return status;
}
