/* SPDX-License-Identifier: Apache-2.0 */
/* Weights from another run: rules for names, which tensor a parameter takes and how, and the numbers that it then has,
 * on one rank and on several. */
#include "config.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bf16.h"
#include "base/rename.h"
#include "base/threads.h"
#include "small_course.h"
#include "small_model.h"
#include "train/init/init_plan.h"

/* ---- names ---- */

/* What a rule makes of a name, "-" where it is not about it; the caller frees it. */
static char *renamed(const char *rule, const char *name)
{
    struct syi_rename parsed;
    char reason[SYI_REASON], *to = NULL;
    cr_assert_eq(syi_rename_parse(rule, &parsed, reason), SY_OK, "%s", reason);
    return syi_rename_match(&parsed, name, &to) ? to : syi_strdup("-", NULL);
}

Test(init, a_rule_gives_names)
{
    static const struct {
        const char *rule, *name, *to;
    } cases[] = {{"*", "a/b", "a/b"},
                 {"a/*", "b/a", "-"},
                 {"a/* -> b/*", "a/x/y", "b/x/y"},
                 {"  a/*->b/* ", "a/x", "b/x"},
                 {"encoder/layers_*/mlp/* -> decoder/layers_*/ff/*", "encoder/layers_11/mlp/wi_0/kernel",
                  "decoder/layers_11/ff/wi_0/kernel"},
                 {"*_?/* -> *", "a_b_1/c", "a_b"},
                 {"x*y*z -> *", "xaybycz", "a"},
                 {"a* -> *b", "a", "b"},
                 {"*a -> *", "bab", "-"},
                 {"*a -> *", "baba", "bab"},
                 {"a -> b", "a", "b"},
                 {"*a -> *", "a", ""}};
    for (size_t i = 0; i < SYI_COUNT(cases); i++) {
        char *to = renamed(cases[i].rule, cases[i].name);
        cr_expect_str_eq(to, cases[i].to, "%s of %s", cases[i].rule, cases[i].name);
        syi_free(to);
    }
}

Test(init, rules_that_say_nothing_are_refused)
{
    static const char *const bad[] = {"",          "!",          "-> b",     "a ->",
                                      "!a* -> b*", "a* -> b*c*", "a? -> b?", "********* -> *********"};
    struct syi_rename rule;
    char reason[SYI_REASON];
    for (size_t i = 0; i < SYI_COUNT(bad); i++)
        cr_expect_eq(syi_rename_parse(bad[i], &rule, reason), SY_EINVAL, "%s", bad[i]);
}

/* ---- plans ---- */

static struct syi_safetensors_tensor tensor(const char *name, enum syi_safetensors_dtype dtype, int rank,
                                            int64_t a, int64_t b)
{
    return (struct syi_safetensors_tensor){.name = name, .dtype = dtype, .rank = rank, .dims = {a, b}};
}

static struct syi_param param(const char *name, int64_t a, int64_t b)
{
    struct syi_param p = {.rank = 2, .dim = {a, b}};
    snprintf(p.name, sizeof p.name, "%s", name);
    return p;
}

/* Plans for a model of two parameters, a [2,3] and b [4,5], and a file of three tensors, a, b and c. */
static int plan_small(const char *keys, enum syi_safetensors_dtype dtype, struct syi_init_plan *plan,
                      struct syi_safetensors_tensor tensors[3], struct sy_error *err)
{
    struct syi_config config;
    struct syi_param params[2] = {param("a", 2, 3), param("b", 4, 5)};
    struct syi_model model = {.param = params, .n = 2};
    struct syi_safetensors file = {.path = "file", .tensors = tensors, .n_tensors = 3};
    tensors[0] = tensor("target/a", dtype, 2, 2, 3);
    tensors[1] = tensor("target/b", SYI_SAFETENSORS_F32, 2, 4, 5);
    tensors[2] = tensor("target/c", SYI_SAFETENSORS_F32, 2, 4, 5);
    cr_assert_eq(syi_config_defaults(&config, NULL), SY_OK);
    cr_assert_eq(syi_config_load_text(&config, "keys", keys, strlen(keys), err), SY_OK, "%s", err->text);
    return syi_init_plan(&config.train, &model, &file, plan, err);
}

Test(init, the_first_rule_that_gives_something_decides)
{
    struct syi_init_plan plan;
    struct syi_safetensors_tensor file[3];
    struct sy_error err = {0};
    cr_assert_eq(
        plan_small("[train]\ninit_match = [\"c -> b\", \"*\"]", SYI_SAFETENSORS_BF16, &plan, file, &err),
        SY_OK, "%s", err.text);
    cr_expect_eq(plan.param[0].from, &file[0]);
    cr_expect_eq(plan.param[1].from, &file[2]);
    cr_expect(plan.used[0] && !plan.used[1] && plan.used[2]);
    syi_init_plan_free(&plan);
}

Test(init, what_does_not_fit_is_named)
{
    static const struct {
        const char *keys;
        enum syi_safetensors_dtype dtype;
        const char *text;
    } cases[] = {
        {"[train]\ninit_match = [\"a\"]", SYI_SAFETENSORS_F32, "nothing for the parameter b [4,5]"},
        {"[train]\ninit_match = [\"b -> a\", \"b\"]", SYI_SAFETENSORS_F32,
         "holds b with shape [4,5], and the parameter a of this model has [2,3]"},
        {"[train]\ninit_match = [\"? -> b\", \"*\"]", SYI_SAFETENSORS_F32, "gives both a and b to b"},
        {"[train]\ninit_match = [\"!*\", \"*\"]", SYI_SAFETENSORS_F32, "nothing for the parameter a"},
        {"[train]\ninit_match = [\"!*\", \"*\"]\ninit_missing = \"fresh\"", SYI_SAFETENSORS_F32,
         "nothing that this model could take"},
        {"[train]\ninit_match = [\"d*\", \"*\"]", SYI_SAFETENSORS_F32, "\"d*\" matches no tensor of file"},
        {"[train]\n", SYI_SAFETENSORS_F16, "holds a as F16"},
    };
    for (size_t i = 0; i < SYI_COUNT(cases); i++) {
        struct syi_init_plan plan;
        struct syi_safetensors_tensor file[3];
        struct sy_error err = {0};
        cr_expect_neq(plan_small(cases[i].keys, cases[i].dtype, &plan, file, &err), SY_OK, "%s",
                      cases[i].keys);
        cr_expect(strstr(err.text, cases[i].text), "%s: %s", cases[i].keys, err.text);
        syi_init_plan_free(&plan);
    }
}

/* ---- numbers ---- */

static char path[64];

static void make_path(void)
{
    snprintf(path, sizeof path, "/tmp/sy-init-XXXXXX");
    int fd = mkstemp(path);
    cr_assert_geq(fd, 0);
    close(fd);
}

static void remove_path(void)
{
    unlink(path);
}

/* Element i of a tensor of the file: a multiple of 1/8, exact in bfloat16. */
static float value_of(const char *name, int64_t i)
{
    uint32_t mix = 2166136261u;
    for (; *name; name++) mix = (mix ^ (uint8_t)*name) * 16777619u;
    return (float)((mix + (uint32_t)i * 7) % 64) / 8 - 4;
}

static int64_t elements(int rank, const int64_t *dims)
{
    int64_t n = 1;
    for (int d = 0; d < rank; d++) n *= dims[d];
    return n;
}

static void write_tensor(const struct syi_safetensors *file, const struct syi_safetensors_tensor *t)
{
    int64_t n = elements(t->rank, t->dims);
    uint16_t *half = malloc((size_t)n * 2);
    float *whole = malloc((size_t)n * 4);
    cr_assert(half && whole);
    for (int64_t i = 0; i < n; i++) half[i] = syi_bf16_from_float(whole[i] = value_of(syi_init_name(t), i));
    int narrow = t->dtype == SYI_SAFETENSORS_BF16;
    cr_assert_eq(
        syi_safetensors_write(file, t, 0, narrow ? (void *)half : whole, (size_t)n * (narrow ? 2 : 4), NULL),
        SY_OK);
    free(half);
    free(whole);
}

/* A file with all parameters of the engine's model, every second one in bfloat16. */
static int write_source(void *arg, const struct syi_rank *rank, struct syi_engine *engine,
                        struct syi_batch *batch, struct sy_error *err)
{
    const struct syi_model *model = syi_engine_model(engine);
    struct syi_safetensors_tensor *list = calloc(model->n, sizeof *list);
    char(*name)[200] = calloc(model->n, sizeof *name);
    struct syi_safetensors file;
    (void)arg, (void)rank, (void)batch;
    cr_assert(list && name);
    for (size_t i = 0; i < model->n; i++) {
        const struct syi_param *p = &model->param[i];
        snprintf(name[i], sizeof name[i], "target/%s", p->name);
        list[i] = (struct syi_safetensors_tensor){
            .name = name[i], .dtype = i % 2 ? SYI_SAFETENSORS_BF16 : SYI_SAFETENSORS_F32, .rank = p->rank};
        memcpy(list[i].dims, p->dim, (size_t)p->rank * sizeof *p->dim);
    }
    cr_assert_eq(syi_safetensors_plan(&file, list, model->n, NULL, 0, err), SY_OK, "%s", err->text);
    cr_assert_eq(syi_safetensors_create(&file, path, err), SY_OK, "%s", err->text);
    for (size_t i = 0; i < file.n_tensors; i++) write_tensor(&file, &file.tensors[i]);
    cr_assert_eq(syi_safetensors_finish(&file, err), SY_OK);
    syi_safetensors_close(&file);
    free(list);
    free(name);
    return SY_OK;
}

/* What element `index` of a parameter must be. */
static float expected(const struct syi_param *p, const struct syi_taken *taken, int64_t index)
{
    const char *name = syi_init_name(taken->from);
    int64_t n = elements(p->rank, p->dim);
    float sum = 0;
    switch (taken->how) {
    case SYI_TAKE_SAME: return value_of(name, index);
    case SYI_TAKE_COPIES: return value_of(name, index % (n / p->dim[0]));
    case SYI_TAKE_EXPERT: return value_of(name, taken->expert * n + index);
    default:
        for (int64_t e = 0; e < taken->from->dims[0]; e++) sum += value_of(name, e * n + index);
        return sum / (float)taken->from->dims[0];
    }
}

static void check_tensor(const struct syi_param *p, const struct syi_taken *taken, const struct sy_tensor *t)
{
    int64_t at[SY_MAX_DIMS] = {0};
    for (int64_t i = 0; i < elements(t->rank, t->dim); i++) {
        int64_t index = 0;
        for (int d = 0; d < t->rank; d++) index = index * p->dim[d] + t->first[d] + at[d];
        cr_assert_eq(((const float *)t->data)[i], expected(p, taken, index), "%s, element %lld", p->name,
                     (long long)index);
        for (int d = t->rank - 1; d >= 0 && ++at[d] == t->dim[d]; d--) at[d] = 0;
    }
}

struct reading {
    const struct syi_train_part *train;
    int taken[SYI_TAKE_MEAN + 1]; /* parameters of each way, on rank 0 */
};

static int read_source(void *arg, const struct syi_rank *rank, struct syi_engine *engine,
                       struct syi_batch *batch, struct sy_error *err)
{
    static const enum syi_role roles[] = {SYI_ROLE_PARAMETER, SYI_ROLE_AVERAGE, SYI_ROLE_ITERATE};
    struct reading *r = arg;
    const struct syi_model *model = syi_engine_model(engine);
    struct syi_session *session = syi_engine_session(engine);
    struct syi_safetensors file;
    struct syi_init_plan plan;
    (void)batch;
    cr_assert_eq(syi_safetensors_open(&file, path, err), SY_OK, "%s", err->text);
    cr_assert_eq(syi_init_plan(r->train, model, &file, &plan, err), SY_OK, "%s", err->text);
    cr_assert_eq(syi_init_read(&plan, model, session, &file, err), SY_OK, "%s", err->text);
    for (size_t i = 0; i < model->n; i++) {
        if (rank->rank == 0) r->taken[plan.param[i].how]++;
        for (size_t k = 0; k < SYI_COUNT(roles); k++) {
            const struct sy_tensor *t = syi_session_find_any(session, roles[k], model->param[i].id);
            cr_assert(t != NULL);
            if (plan.param[i].from) check_tensor(&model->param[i], &plan.param[i], t);
        }
    }
    syi_init_plan_free(&plan);
    syi_safetensors_close(&file);
    return SY_OK;
}

/* From a model with so many experts into another one: all that is taken has its numbers. */
static void transfer(const char *from_experts, const char *to_experts, const char *key, enum syi_take how,
                     int many, const char *mesh)
{
    struct syi_config from = config_of(from_experts, "model.vocab_size=16", NULL),
                      to = config_of(to_experts, "model.vocab_size=16", "optimizer.name=schedule_free", key,
                                     mesh, NULL);
    struct reading reading = {.train = &to.train};
    make_path();
    course_train(&from, 1, write_source, NULL);
    course_train(&to, mesh ? 2 : 1, read_source, &reading);
    remove_path();
    cr_expect_eq(reading.taken[how], many, "%d parameters instead of %d", reading.taken[how], many);
    cr_expect_gt(reading.taken[SYI_TAKE_SAME], 20);
}

Test(init, numbers_of_the_file)
{
    static const char *const meshes[] = {NULL, "mesh.data=2", "mesh.model=2", "mesh.expert=2", "mesh.zero=3"};
    for (size_t i = 0; i < SYI_COUNT(meshes); i++) {
        const char *mesh = meshes[i], *dense = mesh && strstr(mesh, "expert") ? NULL : mesh;
        transfer("moe.num_experts=4", "moe.num_experts=4", "train.init_step=latest", SYI_TAKE_COPIES, 0,
                 mesh);
        transfer("moe.num_experts=0", "moe.num_experts=4", "train.init_upcycle=true", SYI_TAKE_COPIES, 6,
                 mesh);
        transfer("moe.num_experts=4", "moe.num_experts=0", "train.init_expert=2", SYI_TAKE_EXPERT, 6, dense);
        transfer("moe.num_experts=4", "moe.num_experts=0", "train.init_expert=mean", SYI_TAKE_MEAN, 6, dense);
    }
}

/* ---- random numbers ---- */

Test(init, random_numbers_belong_to_elements_whatever_the_part_and_the_threads)
{
    static float all[2 * 300 * 200], part[2 * 250 * 120]; /* a part of more than one task */
    const struct syi_param param = {
        .name = "w", .rank = 3, .dim = {2, 300, 200}, .init = SYI_INIT_NORMAL, .scale = 1};
    const struct sy_tensor whole = {.data = all, .rank = 3, .dim = {2, 300, 200}};
    const struct sy_tensor piece = {.data = part, .rank = 3, .dim = {2, 250, 120}, .first = {0, 40, 70}};
    struct syi_threads *pool = NULL;
    cr_assert_eq(syi_threads_new(3, 1, &pool, NULL), SY_OK);
    syi_param_init(&param, 5, &whole, NULL);
    syi_param_init(&param, 5, &piece, pool);
    syi_threads_free(pool);
    for (int a = 0; a < 2; a++)
        for (int b = 0; b < 250; b++)
            for (int c = 0; c < 120; c++)
                cr_assert_eq(part[(a * 250 + b) * 120 + c], all[(a * 300 + b + 40) * 200 + c + 70]);
    cr_assert_neq(all[0], all[1]);
}
