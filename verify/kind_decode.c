/* SPDX-License-Identifier: Apache-2.0 */
/* Kind decode: a batch is encoded, then decoded by beam search or temperature sampling, with the programs and
 * the decoder that predict uses; the encoder's output, ids and scores are compared. */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "data/masks.h"
#include "model/model.h"
#include "train/engine/decode_step.h"
#include "train/engine/pipeline.h"
#include "verify/verify.h"

struct decode {
    struct verify_context *context;
    const struct verify_case *item;
    struct syi_config config;
    struct syi_decode_options options;
    struct syi_shape shape;
    const struct verify_tensor *encoder_ids, *decoder_inputs;
    struct syi_model model;
    struct syi_session *session;
    int encode, step; /* programs of the session */
    int prompts;      /* the decoder's inputs are forced */
    struct syi_decoder *decoder;
    int32_t *ids;  /* [batch, decodes, length] */
    float *scores; /* [batch, decodes] */
};

/* ---- configuration ---- */

static int read_beams(struct decode *d, struct sy_error *err)
{
    d->options.beam_search = 1;
    d->options.length_penalty = d->config.decode.length_penalty;
    d->options.finished_beams = d->config.decode.finished_beams;
    d->options.early_stopping = d->config.decode.early_stopping;
    return verify_real(d->item, "alpha", &d->options.alpha, err);
}

static int read_sampling(struct decode *d, struct sy_error *err)
{
    const struct verify_case *c = d->item;
    struct syi_decode_options *o = &d->options;
    int64_t top_k = 0;
    int status = verify_real(c, "temperature", &o->temperature, err);
    if (!status) status = verify_int(c, "topk", 0, INT32_MAX, &top_k, err);
    if (!status) status = verify_real(c, "topp", &o->top_p, err);
    if (!status) status = verify_flag(c, "rescale_log_probs", &o->rescale_log_probs, err);
    o->top_k = (int32_t)top_k;
    return status;
}

/* What is drawn is the reference's generator's choice: only where nothing is left to chance it can agree. */
static int check_chance(const struct syi_decode_options *o, struct sy_error *err)
{
    if (o->beam_search || o->temperature <= 1e-4 || o->top_k == 1) return SY_OK;
    return syi_error(err, SY_EUNSUPPORTED,
                     "temperature=%g, topk=%d: random draws of another generator cannot be repeated",
                     o->temperature, o->top_k);
}

static int read_decoding(struct decode *d, struct sy_error *err)
{
    const struct verify_case *c = d->item;
    const char *function = "";
    int64_t batch = 0, decodes = 0, length = 0, eos = 0;
    int status = verify_text(c, "decode_fn", &function, err);
    if (!status) status = verify_int(c, "batch", 1, 1 << 20, &batch, err);
    if (!status) status = verify_int(c, "num_decodes", 1, 1 << 10, &decodes, err);
    if (!status) status = verify_int(c, "max_decode_length", 1, 1 << 20, &length, err);
    if (!status) status = verify_int(c, "eos_id", 0, INT32_MAX, &eos, err);
    if (!status) status = verify_flag(c, "prompt_with_targets", &d->prompts, err);
    if (status) return status;
    d->options = (struct syi_decode_options){.decodes = (int32_t)decodes,
                                             .batch = (int32_t)batch,
                                             .length = (int32_t)length,
                                             .vocab = (int32_t)d->config.model.vocab_size,
                                             .eos = (int32_t)eos};
    if (!strcmp(function, "beam_search"))
        status = read_beams(d, err);
    else if (!strcmp(function, "temperature_sample"))
        status = read_sampling(d, err);
    else
        status = syi_error(err, SY_EUNSUPPORTED,
                           "config key decode_fn is %.40s: not one of beam_search, "
                           "temperature_sample",
                           function);
    return status ? status : check_chance(&d->options, err);
}

static int read_config(struct decode *d, struct sy_error *err)
{
    const struct verify_case *c = d->item;
    int status = verify_config(c, "alpha temperature topk topp rescale_log_probs", &d->config, err);
    verify_ignore(c, "num_expert_partitions");
    if (!status) status = verify_only(c, "dtype", "float32", err);
    if (!status) status = verify_only(c, "mode", "eval", err);
    if (!status) status = verify_only(c, "pad_id", "0", err);
    if (!status) status = read_decoding(d, err);
    return status ? status : syi_config_validate_programs(&d->config, err);
}

static int read_inputs(struct decode *d, struct sy_error *err)
{
    int64_t batch = d->options.batch, input_length = 0;
    int status = verify_int(d->item, "encoder_length", 1, 1 << 20, &input_length, err);
    const int64_t in[2] = {batch, input_length}, out[2] = {batch, d->options.length};
    if (!status) status = verify_need(d->item, "in/encoder_input_tokens", 'i', 2, in, &d->encoder_ids, err);
    if (!status)
        status = verify_need(d->item, "in/decoder_input_tokens", 'i', 2, out, &d->decoder_inputs, err);
    d->shape = (struct syi_shape){.rows = batch * d->options.decodes,
                                  .input_length = input_length,
                                  .target_length = out[1],
                                  .longest_length = input_length > out[1] ? input_length : out[1],
                                  .shortest_length = input_length < out[1] ? input_length : out[1],
                                  .beams = d->options.decodes,
                                  .sampling = !d->options.beam_search};
    return status;
}

/* ---- programs ---- */

static int add(struct decode *d, enum syi_which which, int *index, struct sy_error *err)
{
    struct syi_recorded recorded;
    int status = syi_pipeline(&d->config, &d->context->rank->mesh, NULL, which, &d->shape, SYI_STAGE_FUSE,
                              &d->model, &recorded, err);
    return status ? status : syi_session_add(d->session, recorded.program, index, err);
}

/* The parameters of the case; checked before memory is taken, copied where the session has some. */
static int put_params(struct decode *d, int check_only, struct sy_error *err)
{
    for (size_t i = 0; i < d->model.n; i++) {
        const struct syi_param *param = &d->model.param[i];
        const struct verify_tensor *from;
        char name[176];
        snprintf(name, sizeof name, "param/%s", param->name);
        int status = verify_need(d->item, name, 'f', param->rank, param->dim, &from, err);
        if (status) return status;
        const struct sy_tensor *to =
            check_only ? NULL : syi_session_find_any(d->session, SYI_ROLE_PARAMETER, param->id);
        if (to) memcpy(to->data, from->real, (size_t)from->n * sizeof *from->real);
    }
    return SY_OK;
}

static int make_session(struct decode *d, struct sy_error *err)
{
    const struct syi_rank *rank = d->context->rank;
    struct syi_session_options options = {
        .backend = rank->backend, .comm = rank->comm, .mesh = &rank->mesh, .reproducible = 1, .coherent = 1};
    int status = syi_session_new(&options, &d->session, err);
    if (!status) status = add(d, SYI_ENCODE, &d->encode, err);
    if (!status) status = add(d, SYI_DECODE_STEP, &d->step, err);
    if (!status) status = put_params(d, 1, err);
    if (!status) status = syi_session_bind(d->session, err);
    if (!status) status = syi_decoder_new(&d->options, &d->decoder, err);
    if (status) return status;
    size_t rows = (size_t)d->shape.rows;
    d->ids = syi_alloc(rows * (size_t)d->options.length * sizeof *d->ids, err);
    d->scores = syi_alloc(rows * sizeof *d->scores, err);
    return d->ids && d->scores ? SY_OK : SY_ENOMEM;
}

/* ---- running ---- */

/* A tensor of the encoder's program, or NULL. */
static void *data_of(const struct decode *d, enum syi_role role)
{
    const struct sy_tensor *t = syi_session_find(d->session, d->encode, role, 0);
    return t ? t->data : NULL;
}

/* The inputs that the encoder has: by segments or by lengths. */
static void put_inputs(struct decode *d)
{
    int64_t rows = d->options.batch, length = d->shape.input_length;
    const int32_t *ids = d->encoder_ids->integer;
    int32_t *to = data_of(d, SYI_ROLE_ENCODER_IDS), *segments = data_of(d, SYI_ROLE_ENCODER_SEGMENTS);
    int32_t *lengths = data_of(d, SYI_ROLE_ENCODER_LENGTHS);
    float *mask = data_of(d, SYI_ROLE_ENCODER_MASK);
    if (to) memcpy(to, ids, (size_t)(rows * length) * sizeof *ids);
    if (segments) syi_segments(ids, NULL, rows * length, segments);
    if (mask) syi_encoder_logit_mask(ids, rows * length, mask);
    for (int64_t i = 0; lengths && i < rows; i++) {
        lengths[i] = 0;
        for (int64_t t = 0; t < length; t++)
            if (ids[i * length + t] > 0) lengths[i] = (int32_t)t + 1;
    }
}

static int run(struct decode *d, struct sy_error *err)
{
    struct syi_decode_bound bound = syi_decode_bind(d->session, d->step);
    struct syi_decode_step step = {syi_decode_bound_run, &bound};
    struct syi_decode_batch batch = {.prompt = d->prompts ? d->decoder_inputs->integer : NULL};
    put_inputs(d);
    int status = syi_session_run(d->session, d->encode, err);
    if (!status) status = syi_decoder_run(d->decoder, &step, &batch, d->ids, d->scores, err);
    return status;
}

static void compare(const struct decode *d, struct verify_report *report)
{
    const struct verify_tensor *scores = verify_find(d->item, "out/scores");
    int64_t rows = d->shape.rows, batch = d->options.batch, length = d->shape.input_length;
    verify_floats(report, "out/encoded", data_of(d, SYI_ROLE_ENCODED),
                  batch * length * d->config.model.d_model);
    verify_integers(report, "out/ids", d->ids, rows * d->options.length);
    if (scores && scores->n != rows)
        verify_judge(report, "out/scores", 0, "it has another number of elements than decodes");
    else
        verify_floats_part(report, "out/scores", 0, d->scores, rows, VERIFY_TOLERANCE);
}

int verify_decode(struct verify_context *context, const struct verify_case *c, struct verify_report *report,
                  struct sy_error *err)
{
    struct decode *d = syi_alloc(sizeof *d, err);
    if (!d) return SY_ENOMEM;
    d->context = context;
    d->item = c;
    int status = read_config(d, err);
    if (!status) status = read_inputs(d, err);
    if (!status) status = make_session(d, err);
    if (!status) status = put_params(d, 0, err);
    if (!status) status = run(d, err);
    if (!status) compare(d, report);
    syi_decoder_free(d->decoder);
    syi_session_free(d->session);
    syi_model_free(&d->model);
    syi_free(d->ids);
    syi_free(d->scores);
    syi_free(d);
    return status;
}
