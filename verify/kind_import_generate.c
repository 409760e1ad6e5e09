/* SPDX-License-Identifier: Apache-2.0 */
/* What transformers' generate() wrote, with the arguments that stand beside it: greedily and by beams. */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "verify/import_case.h"

/* One member of "generate". */
struct run {
    struct verify_hf *h;
    const char *name;
    const struct syi_json *json;
    uint32_t node, args, ids, scores; /* scores 0: none */
    int64_t beams, decodes, length;
    int early_stopping, whole; /* whole: without a cache, all positions at each step */
    double penalty;
};

static uint32_t member(const struct run *r, uint32_t object, const char *key, int kind, struct sy_error *err)
{
    uint32_t at = syi_json_member(r->json, object, key);
    if (at != SYI_JSON_NONE && r->json->nodes[at].kind == kind) return at;
    syi_error(err, SY_EFORMAT, "generate/%s: \"%s\" is missing or of another type", r->name, key);
    return SYI_JSON_NONE;
}

static int64_t number(const struct run *r, const char *key, int64_t value)
{
    uint32_t at = syi_json_member(r->json, r->args, key);
    return at != SYI_JSON_NONE && r->json->nodes[at].is_integer ? r->json->nodes[at].integer : value;
}

static int flag(const struct run *r, const char *key, int value)
{
    uint32_t at = syi_json_member(r->json, r->args, key);
    return at == SYI_JSON_NONE ? value : r->json->nodes[at].kind == SYI_JSON_TRUE;
}

static int read_run(struct run *r, struct sy_error *err)
{
    r->args = member(r, r->node, "args", SYI_JSON_OBJECT, err);
    r->ids = member(r, r->node, "ids", SYI_JSON_ARRAY, err);
    if (!r->args || !r->ids) return SY_EFORMAT;
    r->scores = syi_json_member(r->json, r->node, "sequences_scores");
    r->beams = number(r, "num_beams", 1);
    r->decodes = number(r, "num_return_sequences", 1);
    r->length = number(r, "max_new_tokens", 0);
    r->early_stopping = flag(r, "early_stopping", 0);
    r->whole = !flag(r, "use_cache", 1) && r->beams == 1;
    uint32_t penalty = syi_json_member(r->json, r->args, "length_penalty");
    r->penalty = penalty ? r->json->nodes[penalty].number : 1;
    if (flag(r, "do_sample", 0) || r->beams < 1 || r->decodes < 1 || r->decodes > r->beams || r->length < 1 ||
        r->length > 1 << 12 || r->beams > 1 << 8)
        return syi_error(err, SY_EFORMAT, "generate/%s: arguments that nothing here does", r->name);
    return SY_OK;
}

/* ---- computing ---- */

/* Our outputs: [rows][decodes][length] with the end token, lengths with it. */
struct outputs {
    int32_t *ids, *lengths;
    float *scores;
};

static int set_config(const struct run *r, struct sy_error *err)
{
    struct syi_config *c = &r->h->v->config;
    c->decode.beams = r->beams;
    c->decode.num_decodes = r->decodes;
    c->decode.max_length = r->length;
    c->decode.alpha = r->penalty;
    if (r->beams == 1) return SY_OK;
    int status = syi_config_set(c, "decode.length_penalty=power", err);
    if (!status) status = syi_config_set(c, "decode.finished_beams=huggingface", err);
    if (!status)
        status = syi_config_set(
            c, r->early_stopping ? "decode.early_stopping=true" : "decode.early_stopping=false", err);
    return status;
}

/* With the decoder's caches, as predict does. */
static int decode(const struct run *r, struct outputs *o, struct sy_error *err)
{
    struct verify_hf *h = r->h;
    struct syi_engine *engine;
    struct syi_outputs out = {.decodes = (int32_t)r->decodes, .ids = o->ids, .lengths = o->lengths};
    if (r->beams > 1) out.scores = o->scores;
    int status = verify_import_engine(h->v, SYI_USE_DECODE, &engine, err);
    if (!status) status = syi_engine_decode(engine, &h->batch, NULL, &out, err);
    for (int64_t i = 0; !status && i < h->rows * r->decodes; i++)
        if (o->lengths[i] < r->length) o->ids[i * r->length + o->lengths[i]++] = 1;
    syi_engine_free(engine);
    return status;
}

static int32_t largest(const float *logits, int64_t n)
{
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++)
        if (logits[i] > logits[best]) best = i;
    return (int32_t)best;
}

/* The token of each row at `position`, after the ones before it. Later positions cannot change it. */
static void choose(const struct run *r, const float *logits, int64_t position, int32_t *inputs,
                   struct outputs *o)
{
    int64_t vocab = r->h->v->config.model.vocab_size, length = r->length;
    for (int64_t row = 0; row < r->h->rows; row++) {
        int32_t *ids = o->ids + row * length, *n = &o->lengths[row];
        if (*n && ids[*n - 1] == 1) continue;
        ids[(*n)++] = largest(logits + (row * length + position) * vocab, vocab);
        if (position + 1 < length) inputs[row * length + position + 1] = ids[position];
    }
}

/* Without caches: a token is chosen from the logits of all positions together, in which experts may be full. */
static int decode_whole(const struct run *r, struct outputs *o, struct sy_error *err)
{
    struct verify_hf wide = *r->h;
    size_t n = (size_t)(wide.rows * r->length);
    struct syi_engine *engine = NULL;
    int32_t *inputs = syi_alloc(n * sizeof *inputs, err), *targets = syi_alloc(n * sizeof *targets, err);
    float *weights = syi_alloc(n * sizeof *weights, err);
    float *logits = syi_alloc(n * (size_t)wide.v->config.model.vocab_size * sizeof *logits, err);
    int32_t *lengths = syi_alloc((size_t)wide.rows * sizeof *lengths, err);
    int status = inputs && targets && weights && logits && lengths ? SY_OK : SY_ENOMEM;
    for (size_t i = 0; !status && i < n; i++) targets[i] = 1, weights[i] = 1;
    for (int64_t i = 0; !status && i < wide.rows; i++) lengths[i] = (int32_t)r->length;
    wide.target_length = r->length;
    wide.batch.target_length = wide.batch.capacity_target = (int32_t)r->length;
    wide.batch.decoder_inputs = inputs;
    wide.batch.decoder_targets = targets;
    wide.batch.loss_weights = weights;
    wide.batch.target_lengths = lengths;
    wide.v->config.data.max_target_length = r->length;
    if (!status) status = verify_import_engine(wide.v, SYI_USE_EVAL, &engine, err);
    for (int64_t t = 0; !status && t < r->length; t++) {
        status = verify_hf_forward(&wide, engine, logits, NULL, NULL, err);
        if (!status) choose(r, logits, t, inputs, o);
    }
    syi_engine_free(engine);
    syi_free(inputs);
    syi_free(targets);
    syi_free(weights);
    syi_free(logits);
    syi_free(lengths);
    return status;
}

/* ---- comparing ---- */

/* Expected begins with the start token, and ends with the first 1 or at its length. */
static int compare_ids(const struct run *r, uint32_t array, const int32_t *got, int32_t length,
                       char reason[200], struct sy_error *err)
{
    int32_t *want;
    size_t n, end = 1;
    int status = verify_import_ids(r->h->v->item, array, &want, &n, err);
    while (!status && end < n && want[end] != 1) end++;
    if (end < n) end++;
    int same =
        !status && n && (size_t)length + 1 == end && !memcmp(got, want + 1, (size_t)length * sizeof *got);
    size_t first = 1;
    while (!status && !same && first < end && first <= (size_t)length && got[first - 1] == want[first])
        first++;
    if (!status && !same)
        snprintf(reason, 200, "token %zu is %d, expected %d (%d tokens, expected %zu)", first,
                 first <= (size_t)length ? got[first - 1] : -1, first < end ? want[first] : -1, length,
                 end - 1);
    syi_free(want);
    return status;
}

static int compare(const struct run *r, const struct outputs *o, struct sy_error *err)
{
    const struct syi_json_node *node = r->json->nodes;
    uint32_t row = node[r->ids].first, score = r->scores ? node[r->scores].first : SYI_JSON_NONE;
    int64_t outputs = r->h->rows * r->decodes, i = 0;
    int status = SY_OK;
    for (; row != SYI_JSON_NONE && i < outputs && !status; row = node[row].next, i++) {
        char name[160], reason[200] = "";
        double error = 0;
        snprintf(name, sizeof name, "generate/%s/%lld", r->name, (long long)i);
        status = compare_ids(r, row, o->ids + i * r->length, o->lengths[i], reason, err);
        if (score != SYI_JSON_NONE) {
            error = fabs(node[score].number - (double)o->scores[i]);
            if (!*reason && !(error <= 1e-4 * r->h->v->report->tolerance))
                snprintf(reason, sizeof reason, "its score is %.7g, expected %.7g", (double)o->scores[i],
                         node[score].number);
            score = node[score].next;
        }
        verify_judge(r->h->v->report, name, error, *reason ? reason : NULL);
    }
    if (!status && (row != SYI_JSON_NONE || i != outputs))
        status = syi_error(err, SY_EFORMAT, "generate/%s: expected has another number of outputs than %lld",
                           r->name, (long long)outputs);
    return status;
}

static int check_run(struct run *r, struct sy_error *err)
{
    struct outputs o = {0};
    struct syi_config before = r->h->v->config;
    int status = read_run(r, err);
    if (status) return status;
    size_t n = (size_t)(r->h->rows * r->decodes);
    o.ids = syi_alloc(n * (size_t)r->length * sizeof *o.ids, err);
    o.lengths = syi_alloc(n * sizeof *o.lengths, err);
    o.scores = syi_alloc(n * sizeof *o.scores, err);
    status = o.ids && o.lengths && o.scores ? set_config(r, err) : SY_ENOMEM;
    if (!status) status = r->whole ? decode_whole(r, &o, err) : decode(r, &o, err);
    if (!status) status = compare(r, &o, err);
    r->h->v->config = before;
    syi_free(o.ids);
    syi_free(o.lengths);
    syi_free(o.scores);
    return status;
}

int verify_hf_generate(struct verify_hf *h, struct sy_error *err)
{
    const struct syi_json *json = &h->v->item->json;
    uint32_t all = syi_json_member(json, h->v->item->config, "generate");
    int status = SY_OK;
    verify_ignore(h->v->item, "generate");
    if (all == SYI_JSON_NONE) return SY_OK;
    for (uint32_t i = json->nodes[all].first; i != SYI_JSON_NONE && !status; i = json->nodes[i].next) {
        struct run run = {.h = h, .name = syi_json_key(json, i), .json = json, .node = i};
        status = check_run(&run, err);
    }
    return status;
}
