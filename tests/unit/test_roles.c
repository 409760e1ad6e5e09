/* SPDX-License-Identifier: Apache-2.0 */
/* Roles of tensors: what recording gives them is there in a bound session, whatever the passes did; and what
 * a model says of itself is the same in whatever order its programs are recorded. */
#include "config.h"

#include "small_model.h"

/* ---- in a session ---- */

/* y = relu(x), y an output. */
static struct syi_program *record_small(const char *title, enum syi_role in, uint32_t of)
{
    struct syi_program *p;
    struct sy_error err = {0};
    const uint8_t axis[2] = {SYI_AXIS_BATCH, SYI_AXIS_EMBED};
    char name[32];
    cr_assert_eq(syi_program_new(title, &p, &err), SY_OK, "%s", err.text);
    p->leaf_count[SYI_AXIS_BATCH] = 4;
    snprintf(name, sizeof name, "x of %s", title);
    int x = syi_role_set(p, syi_tensor_add(p, name, SYI_INPUT, SY_F32, 2, (int64_t[]){8, 2}, axis), in, of);
    int y = syi_role_set(p, syi_activation(p, x, SY_RELU), SYI_ROLE_DECODE_LOGITS, 0);
    snprintf(name, sizeof name, "y of %s", title);
    syi_output(p, y, name);
    cr_assert_eq(syi_program_status(p, &err), SY_OK, "%s", err.text);
    return p;
}

Test(roles, a_program_finds_its_own_tensors)
{
    struct ms m;
    ms_open(&m, 0);
    int a = ms_add(&m, record_small("a", SYI_ROLE_ENCODER_IDS, 0));
    int b = ms_add(&m, record_small("b", SYI_ROLE_CHOSEN, 7));
    cr_assert_null(syi_session_find(m.session, a, SYI_ROLE_ENCODER_IDS, 0), "before bind there is none");
    ms_bind(&m);
    const struct sy_tensor *in_a = syi_session_find(m.session, a, SYI_ROLE_ENCODER_IDS, 0),
                           *in_b = syi_session_find(m.session, b, SYI_ROLE_CHOSEN, 7),
                           *out_b = syi_session_find(m.session, b, SYI_ROLE_DECODE_LOGITS, 0);
    cr_assert(in_a && in_b && out_b);
    cr_assert_eq(in_a->data, ms_tensor(&m, "x of a")->data);
    cr_assert_eq(in_b->data, ms_tensor(&m, "x of b")->data);
    cr_assert_eq(out_b->data, ms_tensor(&m, "y of b")->data);
    cr_assert_null(syi_session_find(m.session, b, SYI_ROLE_CHOSEN, 0));
    cr_assert_null(syi_session_find(m.session, b, SYI_ROLE_ENCODER_IDS, 0));
    cr_assert_null(syi_session_find(m.session, -1, SYI_ROLE_ENCODER_IDS, 0));
    cr_assert_null(syi_session_find(m.session, 2, SYI_ROLE_ENCODER_IDS, 0));
    cr_assert_eq(syi_session_find_any(m.session, SYI_ROLE_CHOSEN, 7), in_b);
    cr_assert_eq(syi_session_find_any(m.session, SYI_ROLE_DECODE_LOGITS, 0)->data,
                 ms_tensor(&m, "y of a")->data, "the first program that has one");
    cr_assert_null(syi_session_find_any(m.session, SYI_ROLE_KEPT, 7));
    ms_close(&m);
}

Test(roles, two_tensors_of_one_role_are_refused)
{
    struct ms m;
    struct sy_error err = {0};
    ms_open(&m, 0);
    ms_add(&m, record_small("twice", SYI_ROLE_DECODE_LOGITS, 0));
    cr_assert_eq(syi_session_bind(m.session, &err), SY_EINTERNAL);
    cr_assert(strstr(err.text, "twice: two tensors are decode_logits 0"), "%s", err.text);
    ms_close(&m);
}

/* Every tensor that has a role in a recorded program has it after the passes, and no other has. */
static void check_passes(const char *const *set, enum syi_which which, const int size[3], int zero)
{
    struct syi_config c = config_of(set[0], set[0] ? set[1] : NULL, NULL);
    struct syi_model model = {0};
    struct syi_shape shape = shape_of(8, 6, 5);
    struct syi_recorded before, after;
    struct syi_mesh mesh;
    struct sy_error err = {0};
    size_t roles = 0;
    cr_assert_eq(syi_mesh_new(&mesh, size[0] * size[1] * size[2], size[0], size[1], size[2], 4, &err), SY_OK,
                 "%s", err.text);
    mesh.zero = zero;
    /* shows which parameters there are */
    cr_assert_eq(
        syi_pipeline(&c, &mesh, NULL, SYI_GRAD_FIRST, &shape, SYI_STAGE_RECORD, &model, &before, &err),
        SY_OK);
    syi_program_free(before.program);
    cr_assert_eq(syi_pipeline(&c, &mesh, NULL, which, &shape, SYI_STAGE_RECORD, &model, &before, &err),
                 SY_OK);
    cr_assert_eq(syi_pipeline(&c, &mesh, NULL, which, &shape, SYI_STAGE_LOWER, &model, &after, &err), SY_OK,
                 "%s", err.text);
    const struct syi_program *p = before.program, *q = after.program;
    for (size_t i = 0; i < p->n_tensors; i++) {
        const struct syi_tensor *t = &p->tensor[i];
        if (t->kind == SYI_INPUT || t->kind == SYI_OUTPUT || t->kind == SYI_PARAM)
            cr_assert_neq(t->role, SYI_ROLE_NONE, "%s has no role", syi_program_name(p, t->name));
        if (t->role == SYI_ROLE_NONE) continue;
        roles++;
        int there = syi_role_find(q, t->role, t->of);
        cr_assert_geq(there, 0, "%s %u is lost", syi_role_name(t->role), t->of);
        cr_assert_str_eq(syi_program_name(q, q->tensor[there].name), syi_program_name(p, t->name));
    }
    for (size_t i = 0; i < q->n_tensors; i++) roles -= q->tensor[i].role != SYI_ROLE_NONE;
    cr_assert_eq(roles, 0);
    syi_program_free(before.program);
    syi_program_free(after.program);
    syi_model_free(&model);
}

Test(roles, passes_keep_them)
{
    static const int one[3] = {1, 1, 1}, many[3] = {2, 2, 1};
    static const char *const sets[][2] = {
        {NULL}, {"moe.expert_bias=true", "model.dtype=bfloat16"}, {"model.weights=int8"}};
    for (size_t i = 0; i < SYI_COUNT(sets); i++)
        for (int which = SYI_GRAD_FIRST; which <= SYI_DECODE_STEP; which++) {
            check_passes(sets[i], (enum syi_which)which, one, 0);
            check_passes(sets[i], (enum syi_which)which, many, 3);
        }
}

/* ---- the model ---- */

static struct syi_program *recorded(struct syi_model *model, const struct syi_config *c, enum syi_which which)
{
    struct syi_mesh mesh;
    struct syi_shape shape = shape_of(8, 6, 5);
    struct syi_recorded r;
    struct sy_error err = {0};
    cr_assert_eq(syi_mesh_new(&mesh, 1, 1, 1, 1, 0, &err), SY_OK, "%s", err.text);
    cr_assert_eq(syi_pipeline(c, &mesh, NULL, which, &shape, SYI_STAGE_RECORD, model, &r, &err), SY_OK, "%s",
                 err.text);
    return r.program;
}

/* Parameters of a program have the ids of the model's under the same names. */
static void check_ids(const struct syi_program *p, const struct syi_model *model)
{
    size_t n = 0;
    for (size_t i = 0; i < model->n; i++) {
        int t = syi_role_find(p, SYI_ROLE_PARAMETER, model->param[i].id);
        if (i) cr_assert_lt(strcmp(model->param[i - 1].name, model->param[i].name), 0, "names are in order");
        if (t < 0) continue;
        cr_assert_str_eq(syi_program_name(p, p->tensor[t].name), model->param[i].name, "%s", p->title);
        n++;
    }
    for (size_t i = 0; i < p->n_tensors; i++) n -= p->tensor[i].kind == SYI_PARAM;
    cr_assert_eq(n, 0, "%s", p->title);
}

/* A program recorded early does not know the parameters of a later one, whose names come between its own. */
Test(roles, parameters_keep_their_ids)
{
    struct syi_config c = config_of("moe.expert_bias=true", "model.dtype=bfloat16", NULL);
    struct syi_model model = {0};
    static const enum syi_which order[] = {SYI_ENCODE,     SYI_DECODE_STEP, SYI_EVAL,   SYI_SCORE,
                                           SYI_GRAD_FIRST, SYI_UPDATE,      SYI_WEIGHTS};
    struct syi_program *p[SYI_COUNT(order)];
    for (size_t i = 0; i < SYI_COUNT(order); i++) p[i] = recorded(&model, &c, order[i]);
    for (size_t i = 0; i < SYI_COUNT(order); i++) {
        check_ids(p[i], &model);
        syi_program_free(p[i]);
    }
    syi_model_free(&model);
}

static void check_layers(const struct syi_model *model)
{
    static const char *const name[] = {"encoder/layers_1/mlp", "decoder/layers_1/mlp"};
    cr_assert_eq(model->n_layers, 2);
    for (int i = 0; i < 2; i++) {
        char bias[200];
        const struct syi_moe_layer *layer = &model->layer[i];
        cr_assert_str_eq(layer->name, name[i]);
        cr_assert_eq(layer->decoder, i);
        cr_assert_eq(layer->type, SYI_ROUTER_TOKENS_CHOOSE_MASKED);
        snprintf(bias, sizeof bias, "%s/router/expert_bias", name[i]);
        for (size_t k = 0; k < model->n; k++)
            cr_assert_eq(model->param[k].id == layer->bias, !strcmp(model->param[k].name, bias));
    }
}

Test(roles, a_model_lists_its_sparse_layers)
{
    struct syi_config c = config_of("moe.expert_bias=true", NULL);
    for (int i = 0; i < 2; i++) { /* in one program, and one stack after the other */
        struct syi_model model = {0};
        syi_program_free(recorded(&model, &c, i ? SYI_ENCODE : SYI_GRAD_FIRST));
        syi_program_free(recorded(&model, &c, SYI_DECODE_STEP));
        check_layers(&model);
        syi_model_free(&model);
    }
}

/* There is no most number of sparse layers. */
Test(roles, hundreds_of_sparse_layers)
{
    struct syi_config c =
        config_of("model.num_encoder_layers=300", "moe.num_encoder_sparse_layers=300", NULL);
    struct syi_model model = {0};
    struct syi_program *p = recorded(&model, &c, SYI_EVAL);
    cr_assert_eq(model.n_layers, 301);
    cr_assert_str_eq(model.layer[299].name, "encoder/layers_299/mlp");
    cr_assert_str_eq(model.layer[300].name, "decoder/layers_1/mlp");
    cr_assert_geq(syi_role_find(p, SYI_ROLE_CHOSEN, 300), 0);
    cr_assert_lt(syi_role_find(p, SYI_ROLE_CHOSEN, 301), 0);
    syi_program_free(p);
    syi_model_free(&model);
}
