/* SPDX-License-Identifier: Apache-2.0 */
/* Two runs in lock-step: a difference planted in one kernel call is named to the element; equal runs are
 * equal whatever threads, ranks and variant; programs that differ are told apart from numbers that do. */
#include "config.h"

#include <math.h>

#include "small_model.h"
#include "train/engine/engine.h"
#include "train/compare/lockstep.h"

extern const struct sy_backend_desc sy_backend_cpu;

/* ---- a backend with a mistake ---- */

enum { MOST_KERNELS = 1024, WRONG = SY_OP_RMS_NORM, WRONG_ELEMENT = 77 };

static struct sy_kernel kernels[MOST_KERNELS];
static struct sy_backend_desc faulty;
static sy_kernel_fn right;
static int calls, wrong_call; /* of the op; which one is spoiled, from 1; 0: none */

static int spoil(void *context, const struct sy_call *call)
{
    int status = right(context, call);
    if (++calls == wrong_call) {
        float *value = (float *)call->out[0].data + WRONG_ELEMENT;
        *value = nextafterf(*value, INFINITY);
    }
    return status;
}

/* The CPU backend, but that one op has its plainest kernel, wrapped. */
static void make_faulty(int call)
{
    size_t n = 0;
    faulty = sy_backend_cpu;
    for (size_t i = 0; i < sy_backend_cpu.n_kernels && n < MOST_KERNELS; i++) {
        struct sy_kernel kernel = sy_backend_cpu.kernels[i];
        if (kernel.op == WRONG) {
            if (kernel.needs || kernel.in_dtype != SY_F32) continue;
            right = kernel.run;
            kernel.run = spoil;
        }
        kernels[n++] = kernel;
    }
    cr_assert(right && n < MOST_KERNELS);
    faulty.kernels = kernels;
    faulty.n_kernels = n;
    calls = 0;
    wrong_call = call;
}

/* ---- runs ---- */

static struct syi_config config[2];
static struct syi_lockstep_job job;
static struct syi_lockstep_result result;

static void prepare(void)
{
    for (int s = 0; s < 2; s++) {
        config[s] = config_of("data.batch_size=8", "data.max_input_length=8", "data.max_target_length=6",
                              "train.learning_rate=0.01", "cpu.threads=1", NULL);
        job.side[s] = (struct syi_launch){.backend = "cpu", .comm = "auto", .config = &config[s]};
    }
    job.steps = 2;
}

TestSuite(lockstep, .init = prepare);

static void set(int side, const char *assignment)
{
    struct sy_error err = {0};
    cr_assert_eq(syi_config_set(&config[side], assignment, &err), SY_OK, "%s", err.text);
}

static void run(enum syi_lockstep_end end)
{
    struct sy_error err = {0};
    cr_assert_eq(syi_lockstep_run(&job, &result, &err), SY_OK, "%s", err.text);
    cr_assert_eq(result.end, end, "end %d: %s %s op %zu %s", result.end, result.program, result.why,
                 result.op[0].index, result.op[0].text);
}

/* The program as one rank runs it, for lengths 8 and 6. */
static struct syi_program *program_of(const struct syi_config *c, int which, int stage)
{
    struct sy_error err = {0};
    struct syi_model model = {0};
    struct syi_recorded recorded;
    struct syi_mesh mesh;
    struct syi_shape shape = syi_config_shape(c, which);
    cr_assert_eq(syi_mesh_new(&mesh, 1, 1, 1, 1, 0, &err), SY_OK, "%s", err.text);
    cr_assert_eq(syi_pipeline(c, &mesh, NULL, which, &shape, stage, &model, &recorded, &err), SY_OK, "%s",
                 err.text);
    syi_model_free(&model);
    return recorded.program;
}

/* Number of the n-th such op, from 1; how many there are in *count. */
static size_t nth_op(const struct syi_program *p, int op, int n, int *count)
{
    size_t found = p->n_ops;
    *count = 0;
    for (size_t i = 0; i < p->n_ops; i++)
        if (p->op[i].op == op && ++*count == n) found = i;
    return found;
}

static void expect_planted(int step)
{
    int count;
    struct syi_program *p = program_of(&config[0], SYI_GRAD_FIRST, SYI_STAGE_FUSE);
    size_t index = nth_op(p, WRONG, 3, &count);
    const struct syi_tensor *t = &p->tensor[p->op[index].out[0]];
    make_faulty(step * count + 3);
    job.side[1].linked = &faulty;
    run(SYI_LOCKSTEP_DIFFERENT);
    const struct syi_comparison *c = &result.comparison;
    cr_expect_eq(result.step, step);
    cr_expect_eq(result.steps, step);
    cr_expect_str_eq(result.program, "grad_first");
    cr_expect_eq(result.op[0].index, index);
    cr_expect_eq(result.op[1].index, index);
    cr_expect_str_eq(result.op[0].name, "rms_norm");
    cr_expect_str_eq(result.op[0].layer, syi_program_name(p, p->op[index].layer));
    cr_expect_str_eq(result.op[0].file, syi_program_name(p, p->op[index].file));
    cr_expect_eq(result.op[0].line, p->op[index].line);
    cr_expect(result.output == 1 && result.operand == 0 && result.dtype[0] == SY_F32);
    cr_expect_eq(result.rank, t->rank);
    cr_expect_arr_eq(result.dim, t->dim, sizeof result.dim);
    cr_expect_eq(c->first, WRONG_ELEMENT);
    cr_expect_eq(c->differing, 1);
    cr_expect_eq(c->elements, syi_tensor_count(t));
    cr_expect_eq(nextafterf((float)c->first_value[0].real, INFINITY), (float)c->first_value[1].real);
    cr_expect_eq(syi_element_ulps(SY_F32, c->first_value), 1);
    syi_program_free(p);
}

Test(lockstep, a_planted_difference_is_named)
{
    expect_planted(0);
}

Test(lockstep, a_later_step_is_named)
{
    expect_planted(1);
}

Test(lockstep, tolerance_lets_small_differences_pass)
{
    job.side[1].linked = &faulty;
    make_faulty(3);
    job.tolerance = 1e-12;
    run(SYI_LOCKSTEP_DIFFERENT);
    make_faulty(3);
    job.tolerance = 1e-2;
    run(SYI_LOCKSTEP_EQUAL);
    cr_expect_eq(result.steps, 2);
    make_faulty(0);
    job.tolerance = 0;
    run(SYI_LOCKSTEP_EQUAL);
}

Test(lockstep, threads_and_variants_are_equal)
{
    int count;
    struct syi_program *grad = program_of(&config[0], SYI_GRAD_FIRST, SYI_STAGE_FUSE);
    nth_op(grad, SY_OP_COUNT, 1, &count);
    set(0, "cpu.variant=portable");
    job.side[1].threads = 3;
    run(SYI_LOCKSTEP_EQUAL);
    cr_expect_eq(result.steps, 2);
    cr_expect_gt(result.ops, 2 * (int64_t)grad->n_ops);
    cr_expect_gt(result.elements, result.ops);
    cr_expect(result.alone[0] == 0 && result.alone[1] == 0);
    cr_expect(strstr(result.launched[0], "1 rank x 1 thread on ") &&
              strstr(result.launched[0], "(portable)"));
    cr_expect(strstr(result.launched[1], "1 rank x 3 threads on "));
    syi_program_free(grad);
}

Test(lockstep, fusing_and_memory_reuse_change_nothing)
{
    job.use[0] = SYI_USE_UNFUSED;
    job.use[1] = SYI_USE_APART;
    run(SYI_LOCKSTEP_EQUAL);
    cr_expect_eq(result.steps, 2);
    cr_expect_gt(result.alone[0], result.alone[1]);
    set(1, "optimizer.b2=0.97"); /* in maps only, which are fused on one side */
    run(SYI_LOCKSTEP_DIFFERENT);
    cr_expect_str_eq(result.program, "update");
    cr_expect(strstr(result.op[0].shared, "/nu/"), "%s", result.op[0].shared);
}

Test(lockstep, ranks_are_compared_piece_by_piece)
{
    for (int s = 0; s < 2; s++) set(s, "reproducible.min_leaf=2");
    set(1, "mesh.expert=2");
    set(1, "mesh.model=2");
    job.side[1].ranks = 4;
    run(SYI_LOCKSTEP_EQUAL);
    cr_expect_eq(result.steps, 2);
    cr_expect_gt(result.alone[1], 0);
    int64_t ops = result.ops;
    job.side[0].ranks = 2;
    run(SYI_LOCKSTEP_EQUAL);
    cr_expect_gt(result.ops, ops / 2);
    set(1, "train.learning_rate=0.02");
    run(SYI_LOCKSTEP_DIFFERENT);
    cr_expect_str_eq(result.program, "update");
}

Test(lockstep, what_goes_in_is_compared_before_the_op)
{
    set(1, "train.seed=1");
    run(SYI_LOCKSTEP_DIFFERENT);
    cr_expect_eq(result.step, 0);
    cr_expect_eq(result.op[0].index, 0);
    cr_expect_str_eq(result.op[0].name, "embed");
    cr_expect_eq(result.output, 0);
    cr_expect_str_eq(result.op[0].shared, "token_embedder/embedding");
    cr_expect_eq(result.comparison.first, 0);
}

Test(lockstep, a_key_of_the_update_differs_where_it_is_used)
{
    set(1, "optimizer.weight_decay=0.25"); /* an op more in each update */
    run(SYI_LOCKSTEP_DIFFERENT);
    cr_expect_eq(result.step, 0);
    cr_expect_str_eq(result.program, "update");
    cr_expect_eq(result.output, 1);
    cr_expect(strstr(result.op[1].file, "core/optim/"), "%s", result.op[1].file);
}

Test(lockstep, other_programs_are_told)
{
    set(1, "model.d_ff=32");
    run(SYI_LOCKSTEP_DIVERGED);
    cr_expect_str_eq(result.program, "grad_first");
    cr_expect_eq(result.op[0].index, result.op[1].index);
    cr_expect(strstr(result.op[0].layer, "/mlp") && strcmp(result.op[0].text, result.op[1].text));
    set(1, "model.d_ff=16");
    set(1, "data.batch_size=16");
    run(SYI_LOCKSTEP_DIVERGED);
    cr_expect_eq(result.op[0].index, 0);
    set(1, "train.microbatches=2"); /* rows of 8 again, but two runs of them */
    run(SYI_LOCKSTEP_DIVERGED);
    cr_expect(strstr(result.why, "grad_next"), "%s", result.why);
}

Test(lockstep, a_side_that_fails_ends_both)
{
    struct sy_error err = {0};
    set(1, "model.num_heads=3"); /* 12 columns of heads beside leaves of 8 */
    set(1, "mesh.model=2");
    job.side[1].ranks = 2;
    cr_assert_neq(syi_lockstep_run(&job, &result, &err), SY_OK);
    cr_expect(strstr(err.text, "side B: "), "%s", err.text);
    prepare();
    set(0, "task.words.train=nowhere.tsv");
    cr_assert_neq(syi_lockstep_run(&job, &result, &err), SY_OK);
}

Test(lockstep, bfloat16_is_compared_by_value)
{
    set(1, "model.dtype=bfloat16");
    run(SYI_LOCKSTEP_DIFFERENT);
    cr_expect(result.dtype[0] == SY_F32 && result.dtype[1] == SY_BF16);
    cr_expect_str_eq(result.op[0].name, "rms_norm"); /* the first that rounds */
}

/* ---- alignment ---- */

Test(lockstep, fused_maps_do_not_hide_the_rest)
{
    struct sy_error err = {0};
    struct syi_program *fused = program_of(&config[0], SYI_GRAD_FIRST, SYI_STAGE_FUSE);
    struct syi_program *plain = program_of(&config[0], SYI_GRAD_FIRST, SYI_STAGE_PARTITION);
    struct syi_mesh mesh;
    struct syi_alignment alignment;
    struct syi_divergence divergence;
    const struct syi_program *programs[2] = {plain, fused};
    int maps[2];
    cr_assert_eq(syi_mesh_new(&mesh, 1, 1, 1, 1, 0, &err), SY_OK);
    cr_assert_eq(
        syi_align(programs, (const struct syi_mesh *[2]){&mesh, &mesh}, &alignment, &divergence, &err),
        SY_OK);
    cr_assert_eq(divergence.diverged, 0);
    cr_assert_gt(alignment.alone[0], alignment.alone[1]);
    for (int s = 0; s < 2; s++) {
        size_t n = 0;
        nth_op(programs[s], SY_OP_MAP, 1, &maps[s]);
        for (size_t i = 0; i < programs[s]->n_ops; i++) {
            n += alignment.meets[s][i];
            cr_assert(alignment.meets[s][i] || programs[s]->op[i].op == SY_OP_MAP ||
                      syi_op_ends_gradients(programs[s], &programs[s]->op[i]));
        }
        cr_assert_eq(n, alignment.n_meets);
    }
    cr_assert_lt(maps[1], maps[0]);
    syi_alignment_free(&alignment);
    syi_program_free(fused);
    syi_program_free(plain);
}

/* ---- tensors ---- */

static struct sy_tensor tensor_of(void *data, int dtype, int64_t rows, int64_t columns)
{
    return (struct sy_tensor){
        .data = data, .dim = {rows, columns, 1, 1, 1}, .dtype = (uint8_t)dtype, .rank = 2};
}

static struct syi_comparison compare(struct sy_tensor a, struct sy_tensor b, double tolerance)
{
    const struct sy_tensor *pa = &a, *pb = &b;
    struct syi_parts side[2] = {{&pa, 1}, {&pb, 1}};
    struct syi_comparison c;
    syi_parts_compare(side, a.dim, tolerance, &c);
    return c;
}

Test(compare_parts, bits_and_numbers)
{
    float a[6] = {1, -0.0f, NAN, INFINITY, 5, -100}, b[6] = {1, 0.0f, -NAN, INFINITY, 5, -100};
    struct syi_comparison c = compare(tensor_of(a, SY_F32, 2, 3), tensor_of(b, SY_F32, 2, 3), 0);
    cr_expect(c.differing == 1 && c.first == 1 && c.elements == 6);
    cr_expect_eq(syi_element_ulps(SY_F32, c.first_value), 0); /* zeros of two signs */
    cr_expect_eq(syi_element_distance(SY_F32, c.first_value), 0);
    cr_expect_eq(compare(tensor_of(a, SY_F32, 2, 3), tensor_of(b, SY_F32, 2, 3), 1e-9).differing, 0);
    b[4] = 4;
    c = compare(tensor_of(a, SY_F32, 2, 3), tensor_of(b, SY_F32, 2, 3), 0.02);
    cr_expect_eq(c.differing, 0); /* 1 of 100 */
    c = compare(tensor_of(a, SY_F32, 2, 3), tensor_of(b, SY_F32, 2, 3), 0.009);
    cr_expect(c.differing == 1 && c.first == 4 && c.largest == 100);
    b[3] = -INFINITY;
    b[5] = NAN;
    c = compare(tensor_of(a, SY_F32, 2, 3), tensor_of(b, SY_F32, 2, 3), 0.5);
    cr_expect(c.differing == 2 && c.first == 3 && c.farthest == 3);
    cr_expect_eq(syi_element_distance(SY_F32, c.first_value), INFINITY);
}

Test(compare_parts, every_type)
{
    int32_t i[2] = {7, 1 << 30}, j[2] = {7, (1 << 30) + 1};
    struct syi_comparison c = compare(tensor_of(i, SY_I32, 1, 2), tensor_of(j, SY_I32, 1, 2), 0.5);
    cr_expect(c.differing == 1 && c.first == 1 && c.first_value[1].integer == (1 << 30) + 1);
    int64_t k[2] = {INT64_MAX, -1}, l[2] = {INT64_MAX - 1, -1};
    c = compare(tensor_of(k, SY_I64, 1, 2), tensor_of(l, SY_I64, 1, 2), 0.5);
    cr_expect(c.differing == 1 && c.first_value[1].integer == INT64_MAX - 1);
    uint16_t x[2] = {0x3f80, 0x8001}, y[2] = {0x3f82, 0x0001}; /* 1, the smallest negative number */
    c = compare(tensor_of(x, SY_BF16, 1, 2), tensor_of(y, SY_BF16, 1, 2), 0);
    cr_expect(c.differing == 2 && c.first_value[0].real == 1 && c.first_value[1].real == 1 + 2.0 / 128);
    cr_expect_eq(syi_element_ulps(SY_BF16, c.first_value), 2);
    struct syi_element far[2] = {{0, (int16_t)0x8001}, {0, 1}};
    cr_expect_eq(syi_element_ulps(SY_BF16, far), 2);
    double d[1] = {1}, e[1] = {nextafter(1, 2)};
    c = compare(tensor_of(d, SY_F64, 1, 1), tensor_of(e, SY_F64, 1, 1), 0);
    cr_expect(c.differing == 1 && syi_element_ulps(SY_F64, c.first_value) == 1);
    float f[2] = {1, 1.001f};
    uint16_t g[2] = {0x3f80, 0x3f80};
    c = compare(tensor_of(f, SY_F32, 1, 2), tensor_of(g, SY_BF16, 1, 2), 0); /* by value */
    cr_expect(c.differing == 1 && c.first == 1 && c.first_value[1].real == 1);
    cr_expect_eq(compare(tensor_of(f, SY_F32, 1, 2), tensor_of(g, SY_BF16, 1, 2), 2e-3).differing, 0);
    struct syi_element ends[2] = {{INFINITY, 0}, {-INFINITY, 0}};
    float up = INFINITY, down = -INFINITY;
    int32_t bits[2];
    memcpy(&bits[0], &up, 4);
    memcpy(&bits[1], &down, 4);
    ends[0].integer = bits[0];
    ends[1].integer = bits[1];
    cr_expect_eq(syi_element_ulps(SY_F32, ends), 2 * (uint64_t)0x7f800000);
}

/* A 4 x 6 tensor in rows on one side and columns on the other. */
Test(compare_parts, parts_of_other_cuts_meet)
{
    float rows[2][12], columns[3][8];
    struct sy_tensor row[2], column[3];
    const struct sy_tensor *a[2], *b[3];
    for (int i = 0; i < 24; i++) rows[i / 12][i % 12] = columns[i % 6 / 2][i / 6 * 2 + i % 2] = (float)i;
    for (int p = 0; p < 2; p++) {
        row[p] = tensor_of(rows[p], SY_F32, 2, 6);
        row[p].first[0] = 2 * p;
        a[p] = &row[p];
    }
    for (int p = 0; p < 3; p++) {
        column[p] = tensor_of(columns[p], SY_F32, 4, 2);
        column[p].first[1] = 2 * p;
        b[p] = &column[p];
    }
    struct syi_parts side[2] = {{a, 2}, {b, 3}};
    const int64_t dim[SY_MAX_DIMS] = {4, 6, 1, 1, 1};
    struct syi_comparison c;
    syi_parts_compare(side, dim, 0, &c);
    cr_expect(c.differing == 0 && c.elements == 24);
    columns[1][7] = -1;    /* row 3, column 3 */
    columns[0][5] = 13.5f; /* row 2, column 1 */
    syi_parts_compare(side, dim, 0, &c);
    cr_expect_eq(c.differing, 2);
    cr_expect(c.first == 2 * 6 + 1 && c.first_rank[0] == 1 && c.first_rank[1] == 0);
    cr_expect_eq(c.first_value[1].real, 13.5);
    cr_expect_eq(c.farthest, 3 * 6 + 3);
    cr_expect_eq(c.largest, 23);
}
