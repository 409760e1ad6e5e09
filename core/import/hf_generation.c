/* SPDX-License-Identifier: Apache-2.0 */
/* What generate() of transformers does by default, as keys of [decode]. What there is nothing like here is said in a line, since
 * outputs will differ by it. */
#include "config.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "import/hf.h"

struct reading {
    struct syi_import *import;
    const struct syi_json *json;
    const char *what; /* the file */
    struct sy_error *err;
    int status; /* of the first that failed */
};

/* ---- values ---- */

static int64_t integer(struct reading *r, const char *key, int64_t value)
{
    if (!r->status) r->status = syi_hf_integer(r->json, 0, r->what, key, &value, r->err);
    return value;
}

static double real(struct reading *r, const char *key, double value)
{
    if (!r->status) r->status = syi_hf_real(r->json, 0, r->what, key, &value, r->err);
    return value;
}

static void leave_out(struct reading *r, const char *key, const char *why)
{
    syi_text_printf(&r->import->unused, "%s: \"%s\" is not taken over: %s\n", r->what, key, why);
}

/* `theirs`, where the value came from, is left out if it is none here: models are imported for their weights. */
static void take(struct reading *r, const char *theirs, const char *ours, const char *value)
{
    char text[SYI_KEY + SYI_NUMBER_BYTES];
    struct sy_error why = {0};
    if (r->status) return;
    snprintf(text, sizeof text, "%s=%s", ours, value);
    int status = syi_config_set(&r->import->config, text, &why);
    if (status == SY_EINVAL)
        leave_out(r, theirs, why.text);
    else if (status)
        r->status = syi_error(r->err, status, "%s", why.text);
}

static void take_integer(struct reading *r, const char *theirs, const char *ours, int64_t value)
{
    char text[SYI_NUMBER_BYTES];
    snprintf(text, sizeof text, "%" PRId64, value);
    take(r, theirs, ours, text);
}

static void take_real(struct reading *r, const char *theirs, const char *ours, double value)
{
    char text[SYI_NUMBER_BYTES];
    syi_format_double(text, value);
    take(r, theirs, ours, text);
}

/* ---- ids ---- */

/* A number, or a list of one. */
static int read_id(const struct syi_json *json, const char *what, const char *key, int64_t *id,
                   struct sy_error *err)
{
    const struct syi_json_node *node = syi_hf_member(json, 0, key);
    if (node && node->kind == SYI_JSON_ARRAY && node->n_children > 1)
        return syi_error(err, SY_EUNSUPPORTED, "%s: \"%s\" has %" PRIu32 " ids, here there is one", what, key,
                         node->n_children);
    if (node && node->kind == SYI_JSON_ARRAY && node->n_children == 1) node = &json->nodes[node->first];
    if (!node) return SY_OK;
    if (node->kind != SYI_JSON_NUMBER || !node->is_integer)
        return syi_error(err, SY_EFORMAT, "%s: \"%s\" is no id", what, key);
    *id = node->integer;
    return SY_OK;
}

int syi_hf_ends(const struct syi_json *json, const char *what, int64_t *start, struct sy_error *err)
{
    int64_t pad = 0, end = 1;
    int status = read_id(json, what, "pad_token_id", &pad, err);
    if (!status) status = read_id(json, what, "eos_token_id", &end, err);
    *start = pad;
    if (!status) status = read_id(json, what, "decoder_start_token_id", start, err);
    if (status || (pad == 0 && end == 1)) return status;
    return syi_error(err, SY_EUNSUPPORTED,
                     "%s: padding is id %" PRId64 " and the end %" PRId64 ": here they are 0 and 1", what,
                     pad, end);
}

/* Training and generate() may begin with different ids there. */
static void take_start(struct reading *r)
{
    int64_t trained = r->import->config.model.decoder_start_token_id, start = 0;
    if (!r->status) r->status = syi_hf_ends(r->json, r->what, &start, r->err);
    if (r->status || !syi_hf_member(r->json, 0, "decoder_start_token_id") || start == trained) return;
    syi_text_printf(&r->import->unused,
                    "%s: outputs begin with id %" PRId64 ", in config.json with %" PRId64
                    ": model.decoder_start_token_id, which is for training too, is the former\n",
                    r->what, start, trained);
    take_integer(r, "decoder_start_token_id", "model.decoder_start_token_id", start);
}

/* ---- searching, drawing ---- */

/* Beams and their scores as generate() has them. */
static void take_beams(struct reading *r, int64_t beams)
{
    const struct syi_json_node *early = syi_hf_member(r->json, 0, "early_stopping");
    take(r, "", "decode.length_penalty", "power");
    take(r, "", "decode.finished_beams", "huggingface");
    take(r, "early_stopping", "decode.early_stopping",
         early && early->kind == SYI_JSON_TRUE     ? "true"
         : early && early->kind == SYI_JSON_STRING ? "never"
                                                   : "false");
    take_real(r, "length_penalty", "decode.alpha", real(r, "length_penalty", 1.0));
    take_integer(r, "num_beams", "decode.beams", beams);
}

/* Of the `top_k` most probable tokens, of which there are at most 50 if nothing else is said, those that have the
 * probability `top_p` together, but one at least. Here one of both decides. */
static void take_draws(struct reading *r)
{
    int64_t top_k = integer(r, "top_k", 50);
    double top_p = real(r, "top_p", 1.0);
    take_real(r, "temperature", "decode.temperature", real(r, "temperature", 1.0));
    if (top_p == 0) top_k = 1;
    if (top_p != 0 && top_p < 1) take_real(r, "top_p", "decode.topp", top_p);
    if (r->import->config.decode.topp > 0) {
        if (top_k > 0)
            leave_out(r, "top_k", "one of decode.topk and decode.topp counts, and there is \"top_p\"");
    } else if (top_k < r->import->config.model.vocab_size) {
        take_integer(r, "top_k", "decode.topk", top_k);
    }
}

/* Whether a member changes outputs. `neutral`: the number that does not, NAN where there is none. */
static int is_asked_for(const struct syi_json_node *node, double neutral)
{
    if (!node || node->kind == SYI_JSON_FALSE) return 0;
    if (node->kind == SYI_JSON_ARRAY) return node->n_children > 0;
    return node->kind != SYI_JSON_NUMBER || node->number != neutral;
}

/* What there is nothing like here. */
struct left {
    const char *key;
    double neutral;
};

static void leave_out_all(struct reading *r, const struct left *left, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (is_asked_for(syi_hf_member(r->json, 0, left[i].key), left[i].neutral))
            leave_out(r, left[i].key, "there is nothing like it here");
}

static const struct left of_draws[] = {
    {"typical_p", 1}, {"epsilon_cutoff", 0}, {"eta_cutoff", 0}, {"min_p", 0}, {"top_h", NAN}};
static const struct left of_all[] = {{"repetition_penalty", 1},
                                     {"encoder_repetition_penalty", 1},
                                     {"no_repeat_ngram_size", 0},
                                     {"encoder_no_repeat_ngram_size", 0},
                                     {"min_length", 0},
                                     {"min_new_tokens", 0},
                                     {"num_beam_groups", 1},
                                     {"diversity_penalty", 0},
                                     {"penalty_alpha", 0},
                                     {"guidance_scale", 1},
                                     {"bad_words_ids", NAN},
                                     {"force_words_ids", NAN},
                                     {"constraints", NAN},
                                     {"forced_bos_token_id", NAN},
                                     {"forced_eos_token_id", NAN},
                                     {"suppress_tokens", NAN},
                                     {"begin_suppress_tokens", NAN},
                                     {"sequence_bias", NAN},
                                     {"exponential_decay_length_penalty", NAN},
                                     {"stop_strings", NAN}};

static void take_generation(struct reading *r)
{
    const char *longest = syi_hf_member(r->json, 0, "max_new_tokens") ? "max_new_tokens" : "max_length";
    int64_t beams = integer(r, "num_beams", 1), length = integer(r, longest, 0);
    int draws = 0;
    if (!r->status) r->status = syi_hf_flag(r->json, 0, r->what, "do_sample", &draws, r->err);
    take_beams(r, beams);
    if (draws && beams > 1)
        leave_out(r, "do_sample", "beams are searched here, not drawn");
    else if (draws)
        take_draws(r), leave_out_all(r, of_draws, SYI_COUNT(of_draws));
    take_integer(r, "num_return_sequences", "decode.num_decodes", integer(r, "num_return_sequences", 1));
    if (!strcmp(longest, "max_length") && length > INT64_MIN) length--; /* of the decoder's first id */
    if (syi_hf_member(r->json, 0, longest)) take_integer(r, longest, "decode.max_length", length);
    leave_out_all(r, of_all, SYI_COUNT(of_all));
}

int syi_hf_generation(struct syi_import *import, const struct syi_json *config, const char *what,
                      struct sy_error *err)
{
    static const char name[] = "generation_config.json";
    struct reading r = {.import = import, .json = config, .what = what, .err = err};
    struct syi_json json = {0};
    int there = 0;
    r.status = syi_hf_json(import->folder, name, &json, &there, err);
    if (there) r.json = &json, r.what = name;
    if (!r.status) take_generation(&r);
    if (there) take_start(&r);
    syi_json_free(&json);
    return r.status;
}
