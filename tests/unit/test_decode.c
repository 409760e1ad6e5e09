/* SPDX-License-Identifier: Apache-2.0 */
/* Decoding as programs: step by step it has the bits of the whole decoder on the same tokens, and an answer
 * does not depend on what it is decoded with. */
#include "config.h"

#include "small_model.h"

enum { TOKENS = 7, ROWS = 4 };

/* Shared with the programs of the model that have it, by its name. */
static int teacher_input(struct syi_build *b, enum syi_role role, enum sy_dtype dtype, int64_t length)
{
    char name[80];
    const uint8_t axis[2] = {SYI_AXIS_BATCH, SYI_AXIS_LENGTH};
    int64_t dim[2] = {b->shape.rows, length};
    snprintf(name, sizeof name, length ? "%s/%lldx%lld" : "%s/%lld", syi_role_name(role), (long long)dim[0],
             (long long)length);
    int tensor = syi_tensor_add(b->p, name, SYI_INPUT, dtype, length ? 2 : 1, dim, axis);
    return syi_role_set(b->p, tensor, role, 0);
}

/* The whole decoder on given inputs; its argmax is the output "teacher/next". */
static struct syi_program *record_teacher(struct model *model)
{
    struct sy_error err = {0};
    const struct syi_shape *s = &model->shape;
    struct syi_build b = {.config = &model->config, .model = &model->model, .shape = *s, .rng = -1};
    if (model->config.model.dtype == SYI_DTYPE_BFLOAT16) b.dtype = SY_BF16;
    cr_assert_eq(syi_program_new("teacher", &b.p, &err), SY_OK, "%s", err.text);
    syi_leaves(b.config, &b.shape, b.p->leaf_count);
    int64_t in_length = s->input_length, out_length = s->target_length;
    struct syi_inputs in = {.encoder_ids = teacher_input(&b, SYI_ROLE_ENCODER_IDS, SY_I32, in_length),
                            .encoder = {teacher_input(&b, SYI_ROLE_ENCODER_LENGTHS, SY_I32, 0), -1,
                                        teacher_input(&b, SYI_ROLE_ENCODER_MASK, SY_F32, in_length)},
                            .decoder_inputs = teacher_input(&b, SYI_ROLE_DECODER_INPUTS, SY_I32, out_length),
                            .decoder = {teacher_input(&b, SYI_ROLE_DECODER_LENGTHS, SY_I32, 0), -1,
                                        teacher_input(&b, SYI_ROLE_DECODER_MASK, SY_F32, out_length)},
                            .input_norm = -1,
                            .target_norm = -1};
    int encoded = syi_encoder(&b, &in);
    int logits = syi_decoder_logits(&b, in.decoder_inputs, encoded, &in);
    syi_output(b.p, SYI_RECORD(b.p, SY_OP_ARGMAX, NULL, logits), "teacher/next");
    cr_assert_eq(syi_program_status(b.p, &err), SY_OK, "%s", err.text);
    return b.p;
}

/* What a greedy decoding gives, whether or not an end token comes: [rows][TOKENS]. */
struct decoded {
    int32_t token[16][TOKENS];
    float logits[16][TOKENS][12];
};

static void take_step(struct model *model, int position, int32_t previous[16], struct decoded *d)
{
    float logits[16][12];
    int64_t rows = model->shape.rows;
    const struct sy_tensor *token = input(model, SYI_ROLE_DECODE_TOKEN),
                           *next = input(model, SYI_ROLE_DECODE_NEXT);
    for (int64_t row = 0; row < rows; row++) {
        ms_set(token, row, previous[row]);
        ms_set(input(model, SYI_ROLE_DECODE_LENGTHS), row, position + 1);
    }
    put_scalar(model, SYI_ROLE_DECODE_POSITION, position);
    model->logits = &logits[0][0];
    model->n_logits = rows * 12;
    model_run(model, 1);
    for (int64_t row = 0; row < rows; row++) {
        previous[row] = d->token[row][position] = (int32_t)ms_get(next, row);
        memcpy(d->logits[row][position], logits[row], sizeof logits[row]);
    }
}

/* Programs: 0 encode, 1 decode_step, 2 teacher. */
static void decoder_open(struct model *model, const struct syi_config *config, struct syi_shape shape)
{
    model_open(model, config, shape, 0);
    model_add(model, SYI_ENCODE);
    model_add(model, SYI_DECODE_STEP);
    ms_add(&model->m, record_teacher(model));
    model_bind(model);
}

static void decode(struct model *model, const int *numbers, struct decoded *d)
{
    int32_t previous[16] = {0};
    put_batch(model, numbers, 5);
    model->logits = NULL;
    model_run(model, 0);
    for (int position = 0; position < TOKENS; position++) take_step(model, position, previous, d);
}

static void check_steps(const struct syi_config *config)
{
    struct model model;
    static struct decoded d;
    static float logits[ROWS][TOKENS][12];
    int different = 0;
    decoder_open(&model, config, shape_of(ROWS, 9, TOKENS));
    decode(&model, (int[]){1, 2, 3, 4}, &d);
    for (int row = 0; row < ROWS; row++) {
        int32_t inputs[TOKENS] = {0};
        memcpy(inputs + 1, d.token[row], sizeof inputs - sizeof *inputs);
        put_ids(&model, SYI_ROLE_DECODER_INPUTS, TOKENS, row, TOKENS, inputs, 0);
        ms_set(input(&model, SYI_ROLE_DECODER_LENGTHS), row, TOKENS);
        put_mask(input(&model, SYI_ROLE_DECODER_MASK), row, TOKENS, TOKENS);
    }
    model.logits = &logits[0][0][0];
    model.n_logits = ROWS * TOKENS * 12;
    model_run(&model, 2);
    const struct sy_tensor *next = ms_tensor(&model.m, "teacher/next");
    for (int row = 0; row < ROWS; row++)
        for (int i = 0; i < TOKENS; i++) {
            cr_assert_eq(memcmp(logits[row][i], d.logits[row][i], sizeof logits[row][i]), 0,
                         "row %d, token %d", row, i);
            cr_assert_eq((int32_t)ms_get(next, row * TOKENS + i), d.token[row][i], "row %d, token %d", row,
                         i);
            different += d.token[row][i] != d.token[0][0];
        }
    if (!config->model.logits_via_embedding) /* which repeats what it reads as long as it learnt nothing */
        cr_assert_gt(different, 0, "all tokens are the same: this proves little");
    model_close(&model);
}

static void set(struct syi_config *config, const char *text)
{
    struct sy_error err = {0};
    cr_assert_eq(syi_config_set(config, text, &err), SY_OK, "%s", err.text);
}

/* In float32, in bfloat16, and with heads that its own kernel of attention takes. */
static void check_dtypes(struct syi_config config, void (*check)(const struct syi_config *config))
{
    check(&config);
    set(&config, "model.dtype=bfloat16");
    check(&config);
    set(&config, "model.head_dim=32");
    check(&config);
}

Test(decode, decoding_step_by_step_has_the_bits_of_the_whole_decoder)
{
    for (size_t i = 0; i < SYI_COUNT(answering_routers); i++) check_dtypes(config_of_router(i), check_steps);
    check_dtypes(config_of("model.logits_via_embedding=true", "model.mlp_activations=gelu", NULL),
                 check_steps);
    check_dtypes(config_of("model.relpos_per_layer=true", "model.scale_decoder_outputs=true", NULL),
                 check_steps);
}

/* Example 2 with other neighbours, in another row, at another padded length, beside fewer or more rows. */
static void check_batches(const struct syi_config *config)
{
    static const struct {
        struct syi_shape shape;
        int numbers[16], row;
    } batches[] = {
        {{4, 9, TOKENS, 12, 4, 0, 0, 0}, {5, 2, 5, 6}, 1},
        {{4, 9, TOKENS, 12, 4, 0, 0, 0}, {-1, -1, 7, 2}, 3},
        {{4, 12, TOKENS, 12, 4, 0, 0, 0}, {2, 2, 8, -1}, 0},
        {{1, 6, TOKENS, 12, 4, 0, 0, 0}, {2}, 0},
        {{16, 7, TOKENS, 12, 4, 0, 0, 0}, {9, 8, 7, 6, 5, 4, 3, 2, 1, 10, 11, 12, 13, 14, 15, 16}, 7}};
    static struct decoded alone, d;
    struct model model;
    decoder_open(&model, config, shape_of(ROWS, 9, TOKENS));
    decode(&model, (int[]){2, -1, -1, -1}, &alone);
    model_close(&model);
    for (size_t i = 0; i < SYI_COUNT(batches); i++) {
        int row = batches[i].row;
        decoder_open(&model, config, batches[i].shape);
        decode(&model, batches[i].numbers, &d);
        cr_assert_eq(memcmp(alone.token[0], d.token[row], sizeof d.token[row]), 0, "batch %zu", i);
        cr_assert_eq(memcmp(alone.logits[0], d.logits[row], sizeof d.logits[row]), 0, "batch %zu", i);
        model_close(&model);
    }
}

Test(decode, an_answer_does_not_depend_on_its_batch)
{
    for (size_t i = 0; i < SYI_COUNT(answering_routers); i++)
        check_dtypes(config_of_router(i), check_batches);
    check_dtypes(config_of("moe.expert_capacity=1", NULL), check_batches);
}

/* A step has one token of each row, so an expert has a place for it, whatever came before. */
Test(decode, a_step_drops_no_token_where_places_are_counted_in_each_row)
{
    static struct decoded limited, unlimited;
    static const char *const capacity[] = {"moe.expert_capacity=1", "moe.eval_capacity_factor=0"};
    for (size_t i = 0; i < 2; i++) {
        struct syi_config config =
            config_of(capacity[i], "moe.num_encoder_sparse_layers=0", "moe.num_selected_experts=1", NULL);
        struct model model;
        decoder_open(&model, &config, shape_of(ROWS, 9, TOKENS));
        decode(&model, (int[]){1, 2, 3, 4}, i ? &unlimited : &limited);
        model_close(&model);
    }
    cr_assert_eq(memcmp(&limited, &unlimited, sizeof limited), 0);
}
