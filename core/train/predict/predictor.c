/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of texts through engines: which engine a call takes, its batches one after the other, and where their rows go. */
#include "config.h"

#include <math.h>
#include <string.h>

#include "base/bf16.h"
#include "train/predict/predictor.h"

/* Most engines that are kept. Ranks that exchange data make groups of the communication for each engine, of which there are
 * few. */
enum { SEATS = 8, SEATS_OF_RANKS = 2 };

/* An engine with room for a batch. */
struct seat {
    struct syi_engine *engine;
    int use;      /* SYI_USE_DECODE or SYI_USE_SCORE */
    int64_t rows; /* of a batch */
    uint64_t used;
    struct syi_batch batch;
    struct syi_outputs out; /* of decoding; decodes: as many as there is room for */
    int64_t *example;       /* (rows) */
    double *score;          /* (rows) */
};

struct syi_predictor {
    const struct syi_config *config; /* borrowed: a copy is some 300 KiB */
    const struct syi_rank *rank;
    const struct syi_predictor *lender; /* whose weights and vocabularies are read; NULL: it has its own */
    char *run_dir;
    int64_t wanted; /* checkpoint */
    int loaded;
    struct syi_checkpoint_meta meta; /* once it is loaded */
    struct syi_vocabularies vocabularies;
    struct syi_bucket buckets[SYI_MAX_BUCKETS];
    int n_buckets;
    int64_t fewest;          /* rows of a batch that the ranks can share */
    struct seat seat[SEATS]; /* [n_seats]; the first has the weights, and stays */
    int n_seats, most;
    int groups;                   /* of the communication, with those of the first engine */
    uint64_t calls;               /* so far */
    struct syi_decode_part asked; /* of the call at hand, and its seed */
    int64_t seed;
};

/* ---- making ---- */

int syi_predictor_new(const struct syi_config *config, const struct syi_rank *rank, const char *run_dir,
                      int64_t checkpoint, struct syi_predictor **predictor, struct sy_error *err)
{
    struct syi_predictor *p = syi_alloc(sizeof(*p), err);
    if (!p) return SY_ENOMEM;
    p->config = config;
    p->rank = rank;
    p->wanted = checkpoint;
    p->most = rank->ranks == 1 ? SEATS : SEATS_OF_RANKS;
    p->n_buckets = syi_engine_buckets(config, p->buckets);
    p->run_dir = syi_strdup(run_dir, err);
    int status = p->run_dir ? syi_vocabularies_open(&p->vocabularies, config, err) : SY_ENOMEM;
    if (!status) status = syi_engine_fewest_rows(config, rank, &p->fewest, err);
    if (status)
        syi_predictor_free(p);
    else
        *predictor = p;
    return status;
}

int syi_predictor_beside(const struct syi_predictor *lender, const struct syi_rank *rank,
                         struct syi_predictor **predictor, struct sy_error *err)
{
    struct syi_predictor *p = syi_alloc(sizeof(*p), err);
    if (!p) return SY_ENOMEM;
    p->config = lender->config;
    p->rank = rank;
    p->lender = lender;
    p->most = SEATS;
    p->vocabularies = lender->vocabularies;
    p->n_buckets = lender->n_buckets;
    p->fewest = lender->fewest;
    memcpy(p->buckets, lender->buckets, sizeof(p->buckets));
    *predictor = p;
    return SY_OK;
}

static void close_seat(struct seat *s)
{
    syi_engine_free(s->engine);
    syi_batch_free(&s->batch);
    syi_free(s->out.ids);
    syi_free(s->out.lengths);
    syi_free(s->out.scores);
    syi_free(s->example);
    syi_free(s->score);
    memset(s, 0, sizeof(*s));
}

void syi_predictor_free(struct syi_predictor *p)
{
    if (!p) return;
    while (p->n_seats > 0) close_seat(&p->seat[--p->n_seats]);
    if (!p->lender) syi_vocabularies_close(&p->vocabularies);
    syi_free(p->run_dir);
    syi_free(p);
}

const struct syi_vocabularies *syi_predictor_vocabularies(const struct syi_predictor *p)
{
    return &p->vocabularies;
}

struct syi_bucket syi_predictor_longest(const struct syi_predictor *p)
{
    return syi_buckets_longest(p->buckets, p->n_buckets);
}

int64_t syi_predictor_rows(const struct syi_predictor *p)
{
    return syi_config_decode_rows(p->config);
}

/* As many batches as there are lengths, so that texts of one length fill a batch. */
int32_t syi_predictor_window(const struct syi_predictor *p)
{
    return (int32_t)syi_predictor_rows(p) * (p->n_buckets < 8 ? p->n_buckets : 8);
}

const struct syi_checkpoint_meta *syi_predictor_checkpoint(const struct syi_predictor *p)
{
    return p->loaded ? &p->meta : NULL;
}

int64_t syi_predictor_parameters(const struct syi_predictor *p)
{
    return p->loaded ? syi_engine_parameters(p->seat[0].engine) : 0;
}

/* ---- engines ---- */

/* Batches as small as few inputs allow: a row that holds nothing costs as much as one that does. Answers do not depend on
 * it. */
static int64_t fitting_rows(const struct syi_predictor *p, size_t n)
{
    int64_t rows = syi_predictor_rows(p);
    while (rows % 2 == 0 && rows / 2 >= (int64_t)n && rows / 2 >= p->fewest) rows /= 2;
    return rows;
}

static int open_buffers(struct seat *s, const struct syi_decode_part *decode, struct sy_error *err)
{
    size_t rows = (size_t)s->rows, outputs = rows * (size_t)syi_decode_sequences(decode);
    s->score = syi_alloc(rows * sizeof(*s->score), err);
    s->example = syi_alloc(rows * sizeof(*s->example), err);
    if (!s->score || !s->example) return SY_ENOMEM;
    if (!(s->use & SYI_USE_DECODE)) return SY_OK;
    s->out.ids = syi_alloc(outputs * (size_t)syi_engine_decode_length(s->engine) * sizeof(*s->out.ids), err);
    s->out.lengths = syi_alloc(outputs * sizeof(*s->out.lengths), err);
    s->out.scores = syi_alloc(outputs * sizeof(*s->out.scores), err);
    return s->out.ids && s->out.lengths && s->out.scores ? SY_OK : SY_ENOMEM;
}

/* Of the first engine; the others read its weights. */
static int load(struct syi_predictor *p, struct syi_engine *engine, struct sy_error *err)
{
    int status = syi_checkpoint_load(p->run_dir, p->wanted, syi_engine_session(engine), p->rank->comm, 0,
                                     &p->meta, err);
    syi_engine_params_changed(engine);
    return status;
}

static int open_seat(struct syi_predictor *p, int use, int64_t rows, struct sy_error *err)
{
    struct seat *s = &p->seat[p->n_seats];
    *s = (struct seat){.use = use, .rows = rows};
    struct syi_config *config = syi_config_copy(p->config, err);
    if (!config) return SY_ENOMEM;
    config->decode = p->asked;
    config->decode.batch_size = rows;
    config->train.seed = p->seed;
    const struct syi_predictor *owner = p->lender ? p->lender : p; /* its first engine has the weights */
    int first = owner == p && !p->n_seats;
    int status = first ? syi_engine_new(config, p->rank, use, 0, &s->engine, err)
                       : syi_engine_beside(owner->seat[0].engine, p->rank, config, use, &s->engine, err);
    if (!status && first) status = load(p, s->engine, err);
    if (!status) status = syi_batch_create(&s->batch, (int32_t)rows, p->buckets, p->n_buckets, err);
    if (!status) status = open_buffers(s, &p->asked, err);
    syi_free(config);
    if (status) {
        close_seat(s);
        return status;
    }
    if (!p->n_seats++) p->groups = p->rank->comm->n_groups;
    p->loaded = 1;
    return SY_OK;
}

/* Of ranks that exchange data all but the first go, for groups of the communication end in the order opposite to that in
 * which they were made. */
static void make_room(struct syi_predictor *p)
{
    int oldest = 1;
    if (p->rank->ranks > 1) {
        while (p->n_seats > 1) close_seat(&p->seat[--p->n_seats]);
        syi_comm_keep(p->rank->comm, p->groups);
        return;
    }
    for (int i = 2; i < p->n_seats; i++)
        if (p->seat[i].used < p->seat[oldest].used) oldest = i;
    close_seat(&p->seat[oldest]);
    p->seat[oldest] = p->seat[--p->n_seats];
    memset(&p->seat[p->n_seats], 0, sizeof(p->seat[0]));
}

/* The engine with the fewest rows that are enough; NULL: there is none. */
static struct seat *find_seat(struct syi_predictor *p, int use, int64_t rows)
{
    struct seat *best = NULL;
    for (int i = 0; i < p->n_seats; i++) {
        struct seat *s = &p->seat[i];
        if (s->use != use || s->rows < rows || (best && best->rows <= s->rows)) continue;
        if (use != SYI_USE_DECODE || syi_engine_decodes_alike(s->engine, &p->asked)) best = s;
    }
    return best;
}

/* One that is large for the work is taken where a new one would put another out. p->asked is what is asked for. */
static int take_seat(struct syi_predictor *p, int use, size_t n, struct seat **seat, struct sy_error *err)
{
    enum { LARGE = 4 }; /* times the rows that are needed */
    int64_t rows = fitting_rows(p, n);
    struct seat *s = find_seat(p, use, rows);
    int full = p->n_seats == p->most, status = SY_OK;
    if (!s || (s->rows > LARGE * rows && !full)) {
        if (full) make_room(p);
        status = open_seat(p, use, rows, err);
        if (status) return status;
        s = &p->seat[p->n_seats - 1];
    }
    if (use == SYI_USE_DECODE) status = syi_engine_decode_as(s->engine, &p->asked, p->seed, err);
    s->used = ++p->calls;
    *seat = s;
    return status;
}

static void ask(struct syi_predictor *p, const struct syi_decode_part *decode, int64_t seed)
{
    p->asked = *decode;
    p->seed = seed;
}

int syi_predictor_open(struct syi_predictor *p, size_t n, struct sy_error *err)
{
    struct seat *seat;
    ask(p, &p->config->decode, p->config->train.seed);
    return take_seat(p, SYI_USE_DECODE, n, &seat, err);
}

/* ---- texts in batches ---- */

/* A list on its way through a seat. */
struct list {
    struct syi_predictor *p;
    struct seat *seat;
    const struct syi_span *inputs, *targets; /* targets: or NULL */
    size_t n;
    const int64_t *example;        /* of decoding */
    struct syi_outcomes *outcomes; /* likewise */
    double *score;                 /* of scores */
    int32_t *target_tokens;        /* likewise */
    const int64_t *tokens;         /* of the encoder */
    float *values;                 /* likewise */
    size_t *at;                    /* likewise: where an input's values begin */
};

/* Runs `batch` on each batch of the list, `cut` on each text that is too long. */
static int walk(struct list *l, int (*batch)(struct list *l, struct sy_error *err),
                void (*cut)(struct list *l, size_t i), struct sy_error *err)
{
    struct syi_eval_batches batches;
    struct syi_predictor *p = l->p;
    if (l->n > INT32_MAX) return syi_error(err, SY_EINVAL, "%zu texts in one call are too many", l->n);
    int status = syi_eval_batches_create(&batches, &p->vocabularies, p->buckets, p->n_buckets,
                                         (int32_t)l->seat->rows, l->inputs, l->targets, (int32_t)l->n, err);
    if (status) return status;
    for (int32_t i = 0; i < batches.n_cut; i++) cut(l, (size_t)batches.cut[i]);
    for (int32_t i = 0; !status && i < batches.n_batches; i++) {
        status = syi_eval_batches_fetch(&batches, i, &l->seat->batch, err);
        if (!status) status = batch(l, err);
    }
    syi_eval_batches_free(&batches);
    return status;
}

/* ---- outputs ---- */

void syi_outcomes_free(struct syi_outcomes *o)
{
    syi_text_free(&o->text);
    syi_free(o->item);
    *o = (struct syi_outcomes){0};
}

static void cut_outcomes(struct list *l, size_t input)
{
    struct syi_outcomes *o = l->outcomes;
    for (size_t k = 0; k < o->decodes; k++)
        o->item[input * o->decodes + k] = (struct syi_outcome){.score = -INFINITY, .too_long = 1};
}

static void take_outputs(struct list *l, int32_t row)
{
    const struct seat *s = l->seat;
    struct syi_outcomes *o = l->outcomes;
    size_t width = (size_t)syi_engine_decode_length(s->engine), from = (size_t)row * o->decodes;
    struct syi_outcome *to = o->item + (size_t)s->batch.items[row] * o->decodes;
    int scored = syi_engine_searches(&l->p->asked);
    for (size_t k = 0; k < o->decodes; k++, from++, to++) {
        *to = (struct syi_outcome){.at = o->text.length, .score = scored ? s->out.scores[from] : NAN};
        syi_vocabulary_decode(&l->p->vocabularies.target, s->out.ids + from * width,
                              (size_t)s->out.lengths[from], &o->text);
        to->bytes = o->text.length - to->at;
        syi_text_append(&o->text, "", 1);
    }
}

static int decode_batch(struct list *l, struct sy_error *err)
{
    struct seat *s = l->seat;
    for (int32_t row = 0; row < s->batch.n_real; row++) s->example[row] = l->example[s->batch.items[row]];
    int status = syi_engine_decode(s->engine, &s->batch, s->example, &s->out, err);
    for (int32_t row = 0; !status && row < s->batch.n_real; row++) take_outputs(l, row);
    return status ? status : syi_text_status(&l->outcomes->text, err);
}

int syi_predictor_decode(struct syi_predictor *p, const struct syi_decode_part *decode, int64_t seed,
                         const struct syi_span *inputs, const int64_t *example, size_t n,
                         struct syi_outcomes *o, struct sy_error *err)
{
    struct list l = {.p = p, .inputs = inputs, .n = n, .example = example, .outcomes = o};
    ask(p, decode, seed);
    int status = take_seat(p, SYI_USE_DECODE, n, &l.seat, err);
    o->n = n;
    o->decodes = (size_t)decode->num_decodes;
    o->text.length = 0;
    if (!status) status = SYI_GROW(o->item, o->capacity, n * o->decodes, err);
    if (status) return status;
    l.seat->out.decodes = (int32_t)o->decodes;
    return walk(&l, decode_batch, cut_outcomes, err);
}

/* ---- scores ---- */

static void cut_score(struct list *l, size_t input)
{
    l->score[input] = NAN;
    l->target_tokens[input] = 0;
}

/* Targets of a row that have a weight: <pad> in the text has none, and no part of the score. */
static int32_t scored_tokens(const struct syi_batch *b, int32_t row)
{
    const float *weight = b->loss_weights + (int64_t)row * b->target_length;
    int32_t n = 0;
    for (int32_t t = 0; t < b->target_lengths[row]; t++) n += weight[t] != 0;
    return n;
}

static int score_batch(struct list *l, struct sy_error *err)
{
    struct seat *s = l->seat;
    int status = syi_engine_score(s->engine, &s->batch, s->score, err);
    for (int32_t row = 0; !status && row < s->batch.n_real; row++) {
        l->score[s->batch.items[row]] = s->score[row];
        l->target_tokens[s->batch.items[row]] = scored_tokens(&s->batch, row);
    }
    return status;
}

int syi_predictor_score(struct syi_predictor *p, const struct syi_span *inputs,
                        const struct syi_span *targets, size_t n, double *score, int32_t *tokens,
                        struct sy_error *err)
{
    struct list l = {
        .p = p, .inputs = inputs, .targets = targets, .n = n, .score = score, .target_tokens = tokens};
    ask(p, &p->config->decode, p->config->train.seed);
    int status = take_seat(p, SYI_USE_SCORE, n, &l.seat, err);
    return status ? status : walk(&l, score_batch, cut_score, err);
}

/* ---- the encoder ---- */

int syi_predictor_count(const struct syi_predictor *p, const struct syi_span *inputs, size_t n,
                        int64_t *tokens, struct sy_error *err)
{
    int64_t most = syi_predictor_longest(p).input_length;
    int status = SY_OK;
    for (size_t i = 0; !status && i < n; i++) {
        size_t ids = 0;
        status = syi_vocabulary_encode(&p->vocabularies.input, inputs[i], NULL, 0, &ids, err);
        tokens[i] = ids < (size_t)most ? (int64_t)ids + 1 : 0;
    }
    return status;
}

static void cut_values(struct list *l, size_t input)
{
    (void)l, (void)input; /* it has no token */
}

/* n values of a model that computes in float32 or bfloat16. */
static void take_values(const struct sy_tensor *encoded, size_t from, size_t n, float *to)
{
    const float *whole = encoded->data;
    const uint16_t *half = encoded->data;
    for (size_t i = from; i < from + n; i++)
        *to++ = encoded->dtype == SY_BF16 ? syi_bf16_to_float(half[i]) : whole[i];
}

static int encode_batch(struct list *l, struct sy_error *err)
{
    const struct syi_batch *b = &l->seat->batch;
    size_t d = (size_t)l->p->config->model.d_model;
    const struct sy_tensor *encoded;
    int status = syi_engine_encode(l->seat->engine, b, &encoded, err);
    for (int32_t row = 0; !status && row < b->n_real; row++) {
        int64_t item = b->items[row];
        take_values(encoded, (size_t)row * (size_t)b->input_length * d, (size_t)l->tokens[item] * d,
                    l->values + l->at[item] * d);
    }
    return status;
}

int syi_predictor_encode(struct syi_predictor *p, const struct syi_span *inputs, const int64_t *tokens,
                         size_t n, float *values, struct sy_error *err)
{
    struct list l = {.p = p, .inputs = inputs, .n = n, .tokens = tokens, .values = values};
    if (!(l.at = syi_alloc((n + 1) * sizeof(*l.at), err))) return SY_ENOMEM;
    for (size_t i = 0; i < n; i++) l.at[i + 1] = l.at[i] + (size_t)tokens[i];
    ask(p, &p->config->decode, p->config->train.seed);
    int status = take_seat(p, SYI_USE_DECODE, n, &l.seat, err);
    if (!status) status = walk(&l, encode_batch, cut_values, err);
    syi_free(l.at);
    return status;
}
