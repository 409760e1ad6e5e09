/* SPDX-License-Identifier: Apache-2.0 */
/* train.gradient_dtype = bfloat16 against its definition: after a step the gradient of a matrix is that of a training in
 * float32, rounded once, vectors are as there, and the weights have moved by what was rounded. Whole runs: ranks, ZeRO,
 * optimizers, resume, what is refused: tests/cli/gradient_dtype.sh. */
#include "config.h"

#include "base/bf16.h"
#include "data_support.h"
#include "optim/optim.h"
#include "small_course.h"

enum { MOST = 80, ELEMENTS = 16384 };
static const float rate = 3e-3f;

/* One step of a training. */
struct step {
    struct syi_config config;
    size_t n, at[MOST + 1]; /* parameters; where the elements of each begin */
    int rank[MOST];
    enum sy_dtype dtype[MOST]; /* of gradients */
    float scale[MOST];
    float before[ELEMENTS], after[ELEMENTS], gradient[ELEMENTS];
};

static void copy(struct syi_engine *e, size_t i, enum syi_role role, float *to)
{
    const struct sy_tensor *t = tensor_of(e, role, i);
    for (int64_t k = 0; k < extent(t); k++)
        to[k] = t->dtype == SY_BF16 ? syi_bf16_to_float(((const uint16_t *)t->data)[k])
                                    : ((const float *)t->data)[k];
}

static int follow(void *arg, const struct syi_rank *rank, struct syi_engine *e, struct syi_batch *batch,
                  struct sy_error *err)
{
    struct step *s = arg;
    const struct syi_model *model = syi_engine_model(e);
    struct syi_step_result r;
    (void)rank;
    s->n = model->n;
    cr_assert_leq(s->n, MOST);
    for (size_t i = 0; i < s->n; i++) {
        s->at[i + 1] = s->at[i] + (size_t)extent(tensor_of(e, SYI_ROLE_PARAMETER, i));
        cr_assert_leq(s->at[i + 1], ELEMENTS);
        copy(e, i, SYI_ROLE_PARAMETER, s->before + s->at[i]);
    }
    batch_fill(batch, 0);
    int status = syi_engine_step(e, batch, 0, rate, &r, err);
    for (size_t i = 0; !status && i < s->n; i++) {
        s->rank[i] = model->param[i].rank;
        s->dtype[i] = (enum sy_dtype)tensor_of(e, SYI_ROLE_GRADIENT, i)->dtype;
        s->scale[i] = (float)syi_gradient_scale(&s->config, model->param[i].name);
        copy(e, i, SYI_ROLE_GRADIENT, s->gradient + s->at[i]);
        copy(e, i, SYI_ROLE_PARAMETER, s->after + s->at[i]);
    }
    return status;
}

static struct step *train(const char *gradient_dtype, const char *dtype)
{
    struct step *s = calloc(1, sizeof *s);
    cr_assert(s);
    s->config = config_of("model.vocab_size=384", "model.dropout_rate=0", "data.max_input_length=8",
                          "data.max_target_length=6", "data.batch_size=16", "decode.batch_size=16",
                          "train.microbatches=1", "train.clip_norm=0", "optimizer.name=sgd", gradient_dtype,
                          dtype, NULL);
    course_train(&s->config, 1, follow, s);
    return s;
}

static void check(const char *dtype)
{
    struct step *whole = train("train.gradient_dtype=float32", dtype),
                *half = train("train.gradient_dtype=bfloat16", dtype);
    int rounded = 0, differ = 0;
    cr_assert_eq(whole->n, half->n);
    for (size_t i = 0; i < half->n; i++) {
        int is_matrix = half->rank[i] >= 2;
        cr_assert_eq(half->dtype[i], is_matrix ? SY_BF16 : SY_F32);
        rounded += is_matrix;
        for (size_t k = half->at[i]; k < half->at[i + 1]; k++) {
            float exact = whole->gradient[k], want = exact, moved;
            if (is_matrix) want = syi_bf16_to_float(syi_bf16_from_float(exact));
            cr_assert_eq(half->gradient[k], want, "gradient of parameter %zu, element %zu: %a, not %a", i,
                         k - half->at[i], (double)half->gradient[k], (double)want);
            differ += want != exact;
            moved = -(want * half->scale[i] * rate);
            cr_assert_eq(half->after[k], half->before[k] + moved, "weight of parameter %zu, element %zu", i,
                         k - half->at[i]);
        }
    }
    cr_assert_gt(rounded, 10);
    cr_assert_gt(differ, 1000, "rounding changed nothing: this proves nothing");
    free(whole);
    free(half);
}

Test(gradient_dtype, is_that_of_float32_rounded_once)
{
    check("model.dtype=float32");
}

Test(gradient_dtype, of_a_model_in_bfloat16)
{
    check("model.dtype=bfloat16");
}
