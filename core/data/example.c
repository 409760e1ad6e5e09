/* SPDX-License-Identifier: Apache-2.0 */
/* Records to ids: templates, tokens, trimming, and what span corruption and prefixes make of pieces of text. */
#include "config.h"

#include <string.h>

#include "data/batch.h" /* SYI_MAX_LENGTH */
#include "data/example.h"
#include "data/preprocess.h"

/* Fewest tokens of running text that can be cut in two. */
enum { LEAST_PIECE = 2 };

/* ---- the form ---- */

static int parse_template(struct syi_template *form, const char *given, const char *otherwise,
                          const struct syi_task_part *task, const char *key, struct sy_error *err)
{
    struct sy_error cause = {0};
    int status = syi_template_parse(form, *given ? given : otherwise, &cause);
    return status ? syi_error(err, status, "task.%s.%s: %s", task->name_of_part, key, cause.text) : SY_OK;
}

/* The most tokens of text whose inputs and targets fit. */
static int choose_piece(struct syi_example_form *form, struct sy_error *err)
{
    int32_t targets, input, target;
    if (form->task->objective == SYI_OBJECTIVE_PREFIX_LM) {
        /* The longest inputs or targets are all tokens but one, and the end token. */
        form->piece = form->max_input < form->max_target ? form->max_input : form->max_target;
        return SY_OK;
    }
    int status = syi_span_lengths(&form->shape, form->max_input, &form->piece, &targets, err);
    if (form->piece > SYI_MAX_LENGTH) form->piece = SYI_MAX_LENGTH; /* what the index has bits for */
    for (; !status && form->piece >= LEAST_PIECE; form->piece--) {
        syi_example_lengths(form, (struct syi_example_size){form->piece, 0}, 0, &input, &target);
        if (input <= form->max_input && target <= form->max_target) return SY_OK;
    }
    return status ? status
                  : syi_error(err, SY_EINVAL,
                              "task.%s: no piece of text fits inputs of %d and targets of %d tokens",
                              form->task->name_of_part, form->max_input, form->max_target);
}

int syi_example_form_make(struct syi_example_form *form, const struct syi_config *config,
                          const struct syi_task_part *task, const struct syi_vocabularies *vocabularies,
                          struct sy_error *err)
{
    memset(form, 0, sizeof *form);
    form->config = config;
    form->task = task;
    form->vocabularies = vocabularies;
    form->format = syi_record_format(task->format);
    form->max_input = (int32_t)config->data.max_input_length;
    form->max_target = (int32_t)config->data.max_target_length;
    form->shape = (struct syi_span_shape){task->noise_density, task->mean_noise_span_length, 1, 1};
    int pairs = task->objective == SYI_OBJECTIVE_PAIRS;
    int status =
        parse_template(&form->inputs, task->inputs, pairs ? "{input}" : "{text}", task, "inputs", err);
    if (!status && pairs)
        status = parse_template(&form->targets, task->targets, "{target}", task, "targets", err);
    return status || pairs ? status : choose_piece(form, err);
}

/* ---- a record ---- */

void syi_example_maker_free(struct syi_example_maker *maker)
{
    syi_fields_free(&maker->fields);
    syi_text_free(&maker->text);
    syi_ids_free(&maker->tokens);
    syi_free(maker->end);
    memset(maker, 0, sizeof *maker);
}

int syi_example_text(struct syi_example_maker *maker, const struct syi_template *form, size_t k,
                     struct syi_span *text, struct sy_error *err)
{
    maker->text.length = 0;
    syi_template_fill(form, &maker->fields, k, &maker->text);
    int status = syi_text_status(&maker->text, err);
    *text = (struct syi_span){maker->text.length ? maker->text.data : "", maker->text.length};
    return status;
}

/* Ids of a text, appended; at most `most` of them. *n: how many it has. */
static int append_tokens(const struct syi_vocabulary *vocabulary, struct syi_span text, size_t most,
                         struct syi_ids *ids, size_t *n, struct sy_error *err)
{
    size_t room = ids->capacity - ids->n;
    int status = syi_vocabulary_encode(vocabulary, text, ids->id ? ids->id + ids->n : NULL, room, n, err);
    if (!status && *n > room && room < most) {
        status = SYI_GROW(ids->id, ids->capacity, ids->n + (*n < most ? *n : most), err);
        if (!status)
            status =
                syi_vocabulary_encode(vocabulary, text, ids->id + ids->n, ids->capacity - ids->n, n, err);
    }
    if (!status) ids->n += *n < most ? *n : most;
    return status;
}

/* Tokens of text k of the record, cut into pieces. */
static int add_text(struct syi_example_maker *maker, const struct syi_example_form *form, size_t k,
                    struct sy_error *err)
{
    size_t at = maker->tokens.n, piece = (size_t)form->piece, n;
    struct syi_span text;
    int status = syi_example_text(maker, &form->inputs, k, &text, err);
    if (!status && !text.bytes)
        return syi_error(err, SY_EFORMAT, "a text is empty; write something there, or leave it out");
    if (!status) status = append_tokens(&form->vocabularies->input, text, SIZE_MAX, &maker->tokens, &n, err);
    while (!status && at < maker->tokens.n) {
        at = maker->tokens.n - at > piece ? at + piece : maker->tokens.n;
        status = SYI_GROW(maker->end, maker->capacity, maker->n + 1, err);
        if (!status) maker->end[maker->n++] = at;
    }
    return status;
}

/* No piece goes from one text into the next. */
static int begin_texts(struct syi_example_maker *maker, const struct syi_example_form *form,
                       struct sy_error *err)
{
    size_t texts;
    int status = syi_template_count(&form->inputs, &maker->fields, &texts, err);
    maker->tokens.n = 0;
    for (size_t k = 0; !status && k < texts; k++) status = add_text(maker, form, k, err);
    return status;
}

static int begin_pairs(struct syi_example_maker *maker, const struct syi_example_form *form,
                       struct sy_error *err)
{
    size_t inputs, targets;
    int status = syi_template_count(&form->inputs, &maker->fields, &inputs, err);
    if (!status) status = syi_template_count(&form->targets, &maker->fields, &targets, err);
    if (status) return status;
    if (inputs > 1 && targets > 1 && inputs != targets)
        return syi_error(err, SY_EFORMAT, "%zu inputs for %zu targets", inputs, targets);
    maker->n = inputs > targets ? inputs : targets;
    return SY_OK;
}

int syi_example_begin(struct syi_example_maker *maker, const struct syi_example_form *form,
                      struct syi_span record, struct sy_error *err)
{
    maker->n = 0;
    int status = form->format->parse(record, &maker->fields, err);
    if (status) return status;
    return form->piece ? begin_texts(maker, form, err) : begin_pairs(maker, form, err);
}

/* ---- its examples ---- */

/* Tokens of piece k. */
static int32_t piece_of(const struct syi_example_maker *maker, size_t k, const int32_t **ids)
{
    size_t from = k ? maker->end[k - 1] : 0;
    *ids = maker->tokens.id + from;
    return (int32_t)(maker->end[k] - from);
}

/* Tokens of a side of pair k after trimming, the end token included. */
static int measure_side(struct syi_example_maker *maker, const struct syi_example_form *form, int target,
                        size_t k, int32_t *length, int *fits, struct sy_error *err)
{
    const struct syi_vocabularies *v = form->vocabularies;
    int32_t most = target ? form->max_target : form->max_input;
    struct syi_span text;
    size_t n = 0;
    int status = syi_example_text(maker, target ? &form->targets : &form->inputs, k, &text, err);
    if (!status) status = syi_vocabulary_encode(target ? &v->target : &v->input, text, NULL, 0, &n, err);
    if (n >= (size_t)most) {
        *fits = 0;
        n = (size_t)most - 1;
    }
    *length = (int32_t)n + 1;
    return status;
}

int syi_example_measure(struct syi_example_maker *maker, const struct syi_example_form *form, size_t k,
                        struct syi_example_size *size, int *fits, struct sy_error *err)
{
    const int32_t *ids;
    *fits = 1;
    if (form->piece) {
        *size = (struct syi_example_size){piece_of(maker, k, &ids), 0};
        *fits = size->input >= LEAST_PIECE;
        if (!*fits || form->task->objective != SYI_OBJECTIVE_SPAN_CORRUPTION) return SY_OK;
        return syi_span_check(&form->vocabularies->input, &form->shape, size->input, err);
    }
    int status = measure_side(maker, form, 0, k, &size->input, fits, err);
    return status ? status : measure_side(maker, form, 1, k, &size->target, fits, err);
}

void syi_example_lengths(const struct syi_example_form *form, struct syi_example_size size, uint64_t key,
                         int32_t *input, int32_t *target)
{
    *input = size.input;
    *target = size.target;
    if (form->task->objective == SYI_OBJECTIVE_SPAN_CORRUPTION) {
        syi_span_sides(&form->shape, size.input, input, target);
    } else if (form->task->objective == SYI_OBJECTIVE_PREFIX_LM) {
        *input = syi_prefix_length(size.input, key) + 1;
        *target = size.input - *input + 2;
    }
}

/* The ids of a side of pair k, cut to its row. */
static int make_side(struct syi_example_maker *maker, const struct syi_example_form *form, int target,
                     size_t k, struct syi_ids *ids, struct sy_error *err)
{
    const struct syi_vocabularies *v = form->vocabularies;
    const struct syi_vocabulary *vocabulary = target ? &v->target : &v->input;
    int32_t most = target ? form->max_target : form->max_input;
    struct syi_span text;
    size_t n;
    int status = syi_example_text(maker, target ? &form->targets : &form->inputs, k, &text, err);
    if (!status) status = append_tokens(vocabulary, text, (size_t)most - 1, ids, &n, err);
    return status ? status : syi_append_end(ids, vocabulary->end, err);
}

static int make_piece(struct syi_example_maker *maker, const struct syi_example_form *form, size_t k,
                      uint64_t key, struct syi_ids *inputs, struct syi_ids *targets, struct sy_error *err)
{
    const int32_t *ids;
    int32_t n = piece_of(maker, k, &ids);
    struct syi_ids tokens = {(int32_t *)ids, (size_t)n, (size_t)n}; /* only read from */
    int status =
        form->task->objective == SYI_OBJECTIVE_SPAN_CORRUPTION
            ? syi_span_corrupt(&form->vocabularies->input, &form->shape, &tokens, key, inputs, targets, err)
            : syi_prefix_split(&tokens, key, inputs, targets, err);
    if (!status) status = syi_append_end(inputs, form->vocabularies->input.end, err);
    return status ? status : syi_append_end(targets, form->vocabularies->target.end, err);
}

int syi_example_make(struct syi_example_maker *maker, const struct syi_example_form *form, size_t k,
                     uint64_t key, struct syi_ids *inputs, struct syi_ids *targets, struct sy_error *err)
{
    inputs->n = targets->n = 0;
    if (form->piece) return make_piece(maker, form, k, key, inputs, targets, err);
    int status = make_side(maker, form, 0, k, inputs, err);
    return status ? status : make_side(maker, form, 1, k, targets, err);
}
