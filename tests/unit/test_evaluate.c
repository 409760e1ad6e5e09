/* SPDX-License-Identifier: Apache-2.0 */
/* Evaluations of several tasks with a small engine of fresh weights: what is decoded and what is not, limits, the numbers
 * of sums over batches of any size on any ranks, rows and examples in a sink, and scores against the loss. */
#include "config.h"

#include <math.h>
#include <stdio.h>

#include "data_support.h"
#include "train/trainer/evaluations.h"

static const char words[] =
    "ab\tA B\nabc\tA B C\tA-B-C\nhalf\tH\nzz\tZ Z\nab\tAB\nd\tD D D D\nef\tE F\ng\tG\n";

/* ---- a run ---- */

struct lookup {
    struct syi_config config;
    struct syi_eval_files files;
    struct syi_eval_result result[SYI_CONFIG_PARTS]; /* of rank 0 */
    double score, score_alone; /* of all targets of the first task, together and one by one */
    double score_per_token;    /* of each target, added up */
    int64_t targets, items;
    struct syi_metric_sink sink; /* arg NULL: no sink */
    char example[8][300], prediction[8][300];
    int n_examples;
    int64_t routing[4][6]; /* take_routing: of two layers of two tasks */
    int n_routing;
    int decodes;  /* whether the engine had decoding programs */
    int exchange; /* embeddings of this id and of 0 are exchanged */
};

static struct syi_config run_of(const char *path, const char *const *set)
{
    static const char small[] =
        "[model]\nvocab_size = 264\nd_model = 16\nd_ff = 16\nhead_dim = 4\nnum_heads = 4\nnum_encoder_layers = 2\n"
        "num_decoder_layers = 2\nrelpos_num_buckets = 8\nrelpos_max_distance = 16\n"
        "[moe]\nnum_experts = 4\nnum_selected_experts = 2\nnum_encoder_sparse_layers = 1\n"
        "num_decoder_sparse_layers = 1\nmin_expert_capacity = 1\naux_loss_factor = 0.5\nrouter_z_loss_factor = 0.1\n"
        "[data]\nbatch_size = 4\nmax_input_length = 8\nmax_target_length = 8\nlength_buckets = [4, 8]\n"
        "[loss]\nz_loss = 0.01\nlabel_smoothing = 0.1\n[decode]\nbatch_size = 4\n[reproducible]\nblocks = 4\nmin_leaf = 4\n";
    struct syi_config config;
    struct sy_error err = {0};
    char text[4400];
    cr_assert_eq(syi_config_defaults(&config, &err), SY_OK, "%s", err.text);
    cr_assert_eq(syi_config_load_text(&config, "small", small, sizeof small - 1, &err), SY_OK, "%s",
                 err.text);
    snprintf(text, sizeof text, "task.one.valid=%s", path);
    cr_assert_eq(syi_config_set(&config, text, &err), SY_OK, "%s", err.text);
    snprintf(text, sizeof text, "task.two.valid=%s", path);
    cr_assert_eq(syi_config_set(&config, text, &err), SY_OK, "%s", err.text);
    for (; *set; set++) cr_assert_eq(syi_config_set(&config, *set, &err), SY_OK, "%s", err.text);
    cr_assert_eq(syi_config_validate(&config, &err), SY_OK, "%s", err.text);
    return config;
}

static int take_example(void *arg, int64_t step, const struct syi_sink_example *x, struct sy_error *err)
{
    struct lookup *l = arg;
    (void)err;
    cr_assert_eq(step, 7);
    cr_assert_lt(l->n_examples, 8);
    snprintf(l->example[l->n_examples++], sizeof l->example[0], "%s %lld %s|%s%s", x->task,
             (long long)x->item, x->input, x->target, isnan(x->score) ? "" : " scored");
    snprintf(l->prediction[l->n_examples - 1], sizeof l->prediction[0], "%s",
             x->prediction ? x->prediction : "");
    return x->prediction ? SY_OK : SY_EINTERNAL;
}

static int take_row(void *arg, int64_t step, const char *task, const char *name, double value,
                    const char *settings, struct sy_error *err)
{
    (void)arg, (void)step, (void)task, (void)name, (void)value, (void)settings, (void)err;
    return SY_OK;
}

/* What the experts of a layer took and dropped together, then what each took. */
static int take_routing(void *arg, int64_t step, const char *task, const char *layer, int n_experts,
                        const int64_t *tokens, const int64_t *dropped, struct sy_error *err)
{
    struct lookup *l = arg;
    (void)err;
    cr_assert(step == 7 && n_experts == 4 && l->n_routing < 4);
    int64_t *sum = l->routing[l->n_routing++];
    for (int i = 0; i < n_experts; i++) sum[0] += tokens[i], sum[1] += dropped[i], sum[2 + i] = tokens[i];
    cr_assert(!strcmp(task, l->n_routing <= 2 ? "one/valid" : "two/valid"), "%s", task);
    cr_assert(!strcmp(layer, l->n_routing % 2 ? "encoder/layers_1/mlp" : "decoder/layers_1/mlp"), "%s",
              layer);
    return SY_OK;
}

static struct syi_metric_sink sink_of(struct lookup *l)
{
    return (struct syi_metric_sink){
        .arg = l, .example = take_example, .eval = take_row, .eval_routing = take_routing};
}

/* Log-likelihoods of the targets of the first task, in its batches and each in one of its own. */
static int score_targets(struct lookup *l, struct syi_engine *engine, struct syi_evaluation *e,
                         struct sy_error *err)
{
    double score[16];
    int status = SY_OK;
    for (int32_t i = 0; !status && i < e->loss.n_batches; i++) {
        status = syi_eval_batches_fetch(&e->loss, i, &e->batch, err);
        if (!status) status = syi_engine_score(engine, &e->batch, score, err);
        for (int32_t row = 0; !status && row < e->batch.n_real; row++) {
            l->score += score[row];
            l->score_per_token += score[row] / e->batch.target_lengths[row];
            l->items++;
        }
        l->targets += e->batch.n_target_tokens;
    }
    for (int32_t i = 0; !status && i < e->data->items.n_items; i++) {
        syi_batch_begin(&e->batch, e->loss.buckets, e->loss.n_buckets - 1);
        status = syi_batch_add(&e->batch, &e->vocabularies, i, e->data->inputs[i], &e->data->targets[i], err);
        if (!status) status = syi_engine_score(engine, &e->batch, score, err);
        l->score_alone += status ? 0 : score[0];
    }
    return status;
}

static void exchange_embeddings(struct syi_engine *engine, int id)
{
    const struct sy_tensor *t = syi_session_tensor(syi_engine_session(engine), "token_embedder/embedding");
    float *zero = t->data, *other = zero + id * t->dim[1];
    for (int64_t i = 0; i < t->dim[1]; i++) {
        float kept = zero[i];
        zero[i] = other[i];
        other[i] = kept;
    }
    syi_engine_params_changed(engine);
}

static int look(void *arg, const struct syi_rank *rank, struct sy_error *err)
{
    struct lookup *l = arg;
    struct syi_evaluations *e = syi_alloc(sizeof *e, err);
    struct syi_engine *engine = NULL;
    int use = syi_eval_files_use(&l->files) | SYI_USE_SCORE;
    int status = e ? syi_engine_new(&l->config, rank, use, 0, &engine, err) : SY_ENOMEM;
    if (!status) status = syi_engine_init(engine, 3, err);
    if (!status && l->exchange) exchange_embeddings(engine, l->exchange);
    if (!status) status = syi_evaluations_open(e, &l->files, &l->config, engine, rank, NULL, err);
    if (!status) status = syi_evaluations_run(e, 1, NULL, NULL, err);
    for (int i = 0; !status && rank->rank == 0 && i < e->n; i++) {
        l->result[i] = e->result[i];
        if (l->sink.arg) status = syi_eval_result_write(&e->result[i], &l->sink, 7, err);
    }
    struct lookup other = {0};
    if (!status) status = score_targets(rank->rank ? &other : l, engine, &e->part[0], err);
    if (rank->rank == 0 && engine) l->decodes = syi_engine_program(engine, SYI_DECODE_STEP) != NULL;
    if (e) syi_evaluations_close(e);
    syi_engine_free(engine);
    syi_free(e);
    return status;
}

static void run_with(struct lookup *l, int ranks, const char *const *set, const char *text, size_t bytes)
{
    const char *path = write_fresh("words.tsv", text, bytes);
    struct sy_error err = {0};
    l->config = run_of(path, set);
    struct syi_launch launch = {.backend = "cpu",
                                .comm = ranks > 1 ? "thread" : "self",
                                .ranks = ranks,
                                .threads = 1,
                                .config = &l->config};
    cr_assert_eq(syi_eval_files_load(&l->files, &l->config, SYI_EVAL_VALID, NULL, NULL, &err), SY_OK, "%s",
                 err.text);
    remove_path(path);
    cr_assert_eq(syi_launch_run(&launch, look, l, &err), SY_OK, "%s", err.text);
}

static void run(struct lookup *l, int ranks, const char *const *set)
{
    run_with(l, ranks, set, words, sizeof words - 1);
}

static double value(const struct syi_eval_result *r, const char *name)
{
    const double *v = syi_eval_result_find(r, name);
    cr_assert_not_null(v, "%s has no %s", r->task, name);
    return *v;
}

/* ---- tests ---- */

Test(evaluate, tasks_have_their_own_metrics_and_limits)
{
    static struct lookup l;
    run(&l, 1,
        (const char *const[]){"task.two.metrics=[]", "task.two.eval_examples=3",
                              "task.one.metrics=[bleu,per]", NULL});
    cr_assert_eq(l.files.n, 2);
    cr_assert_str_eq(l.result[0].task, "one/valid");
    cr_assert_str_eq(l.result[1].task, "two/valid");
    cr_assert_eq(l.result[0].items, 7); /* ab is one, with both its targets */
    cr_assert_eq(l.result[1].items, 3);
    cr_assert_eq(l.result[0].modes, SYI_MODE_TRAIN_EVAL | SYI_MODE_INFER_EVAL);
    cr_assert_eq(l.result[1].modes, SYI_MODE_TRAIN_EVAL);
    cr_assert_str_eq(l.result[0].value[0].name, "loss");
    cr_assert_str_eq(l.result[0].value[1].name, "bleu");
    cr_assert_str_eq(l.result[0].value[2].name, "per");
    cr_assert_eq(l.result[0].value[2].mode, SYI_MODE_INFER_EVAL);
    cr_assert_null(syi_eval_result_find(&l.result[0], "wer"));
    cr_assert_null(syi_eval_result_find(&l.result[1], "per"));
    cr_assert_eq(l.decodes, 1);
    cr_assert_gt(value(&l.result[1], "experts/expert_usage"), 0);
    syi_eval_files_free(&l.files);
}

Test(evaluate, without_metrics_nothing_is_decoded)
{
    static struct lookup l;
    run(&l, 1, (const char *const[]){"task.two.metrics=[]", "task.one.metrics=[]", NULL});
    cr_assert_eq(l.decodes, 0);
    cr_assert_eq(l.result[0].n_examples, 0);
    cr_assert_gt(value(&l.result[0], "loss"), 0);
    syi_eval_files_free(&l.files);
}

/* Loss without smoothing and z-loss is the scores' mean over tokens, or over each target's mean, whatever the batch
 * a target is scored in. */
Test(evaluate, scores_are_the_loss)
{
    static struct lookup l, plain;
    run(&plain, 1, (const char *const[]){"loss.z_loss=0", "loss.label_smoothing=0", NULL});
    cr_assert_float_eq(plain.score / (double)plain.targets, -value(&plain.result[0], "loss"), 1e-5);
    cr_assert_eq(plain.score, plain.score_alone);
    run(&l, 1, (const char *const[]){"loss.loss_normalizing_factor=AVERAGE_PER_SEQUENCE", NULL});
    cr_assert_eq(l.score, plain.score); /* z-loss, smoothing and weights of the loss are not in it */
    cr_assert_gt(value(&l.result[0], "z_loss"), 0);
    cr_assert_float_eq(l.score_per_token / (double)l.items, -value(&l.result[0], "cross_entropy"), 1e-5);
    syi_eval_files_free(&l.files);
    syi_eval_files_free(&plain.files);
}

static const char *const training_metrics[] = {"loss",
                                               "accuracy",
                                               "cross_ent_loss",
                                               "z_loss",
                                               "experts/auxiliary_loss",
                                               "experts/router_z_loss",
                                               "experts/fraction_tokens_left_behind",
                                               "experts/expert_usage",
                                               "experts/router_confidence"};

Test(evaluate, ranks_do_not_show)
{
    static struct lookup one, other;
    static const char *const mesh[] = {"mesh.data=2", "mesh.expert=2", "mesh.model=2"};
    run(&one, 1, (const char *const[]){NULL});
    for (size_t m = 0; m < SYI_COUNT(mesh); m++) {
        memset(&other, 0, sizeof other);
        run(&other, 2, (const char *const[]){mesh[m], NULL});
        for (size_t i = 0; i < SYI_COUNT(training_metrics); i++)
            cr_expect_eq(value(&one.result[0], training_metrics[i]),
                         value(&other.result[0], training_metrics[i]), "%s with %s: %.17g and %.17g",
                         training_metrics[i], mesh[m], value(&one.result[0], training_metrics[i]),
                         value(&other.result[0], training_metrics[i]));
        cr_expect_eq(one.score, other.score, "%s", mesh[m]);
        syi_eval_files_free(&other.files);
    }
    syi_eval_files_free(&one.files);
}

/* Running text that is rewritten between the first look and the second is another file, not fewer items of the first. */
Test(evaluate, a_file_that_changes_while_a_run_starts)
{
    static struct lookup l;
    static const char *const text[] = {"task.one.objective=prefix_lm", "task.one.format=text",
                                       "task.one.metrics=[]", NULL};
    const char *path = write_fresh("words.txt", words, sizeof words - 1);
    struct sy_error err = {0};
    l.config = run_of(path, text);
    struct syi_launch launch = {
        .backend = "cpu", .comm = "self", .ranks = 1, .threads = 1, .config = &l.config};
    cr_assert_eq(syi_eval_files_load(&l.files, &l.config, SYI_EVAL_VALID, NULL, NULL, &err), SY_OK, "%s",
                 err.text);
    FILE *file = fopen(path, "w");
    cr_assert(file && fputs("ab\tA B\n", file) >= 0 && !fclose(file));
    cr_assert_eq(syi_launch_run(&launch, look, &l, &err), SY_EMISMATCH, "%s", err.text);
    cr_assert_not_null(strstr(err.text, "words.txt changed since it was looked through: start again"), "%s",
                       err.text);
    syi_eval_files_free(&l.files);
    remove_path(path);
}

/* Counts are the same, sums but for rounding; what routing groups make of their tokens is not compared. */
Test(evaluate, sizes_of_batches_do_not_show)
{
    static struct lookup one, other;
    static const char *const same[] = {"accuracy", "experts/fraction_tokens_left_behind", "bleu", "f1",
                                       "rougeL"};
    static const char *const close[] = {"loss", "cross_ent_loss", "z_loss", "experts/router_z_loss",
                                        "experts/router_confidence"};
    run(&one, 1, (const char *const[]){"task.one.metrics=[bleu,f1,rougeL]", NULL});
    run(&other, 1, (const char *const[]){"task.one.metrics=[bleu,f1,rougeL]", "decode.batch_size=8", NULL});
    for (size_t i = 0; i < SYI_COUNT(same); i++)
        cr_expect_eq(value(&one.result[0], same[i]), value(&other.result[0], same[i]), "%s", same[i]);
    for (size_t i = 0; i < SYI_COUNT(close); i++)
        cr_expect_float_eq(value(&one.result[0], close[i]), value(&other.result[0], close[i]),
                           2e-6 * fabs(value(&one.result[0], close[i])), "%s: %.9g and %.9g", close[i],
                           value(&one.result[0], close[i]), value(&other.result[0], close[i]));
    cr_expect_eq(one.score, other.score);
    syi_eval_files_free(&one.files);
    syi_eval_files_free(&other.files);
}

Test(evaluate, the_first_examples_go_to_the_sink)
{
    static struct lookup l;
    static const char *const expected[] = {"one/valid 0 ab|A B", "one/valid 1 abc|A B C",
                                           "two/valid 0 ab|A B scored", "two/valid 1 abc|A B C scored"};
    for (int scored = 0; scored < 2; scored++) { /* greedy decoding has no scores, what searches has */
        memset(&l, 0, sizeof l);
        l.sink = sink_of(&l);
        run(&l, 1,
            (const char *const[]){"metrics.examples=2", scored ? "decode.beams=2" : "decode.beams=1", NULL});
        cr_assert_eq(l.n_examples, 4);
        for (int i = 0; i < 4; i++) {
            cr_expect(!strncmp(l.example[i], expected[i], strlen(expected[i]) - (i < 2 ? 0 : 7)), "%s",
                      l.example[i]);
            cr_expect_eq(strstr(l.example[i], " scored") != NULL, scored, "%s", l.example[i]);
        }
        syi_eval_files_free(&l.files);
    }
    memset(&l, 0, sizeof l);
    run(&l, 1, (const char *const[]){NULL}); /* as many as a run keeps, where no sink takes them */
    cr_assert_eq(l.result[0].n_examples, 5);
    syi_eval_files_free(&l.files);
}

/* Others that read the database refuse texts that are not. Fresh weights write any bytes. */
Test(evaluate, examples_are_utf8_whatever_the_bytes)
{
    static const char bytes[] = "a\xc3\tB\n\xffg\t\xe2\x82 \xe2\x82\xac\n";
    static struct lookup l;
    l.sink = sink_of(&l);
    run_with(&l, 1, (const char *const[]){"data.max_target_length=16", "data.length_buckets=[16]", NULL},
             bytes, sizeof bytes - 1);
    cr_assert_eq(l.n_examples, 4);
    cr_expect_str_eq(l.example[0], "one/valid 0 a\ufffd|B");
    cr_expect_str_eq(l.example[1], "one/valid 1 \ufffdg|\ufffd\ufffd \u20ac");
    for (int i = 0; i < 4; i++)
        cr_expect(syi_utf8_valid((struct syi_span){l.prediction[i], strlen(l.prediction[i])}), "%s",
                  l.prediction[i]);
    syi_eval_files_free(&l.files);
}

/* Where metrics are T5X's, evaluations have those that count padding, too; 30 is the number of targets. */
Test(evaluate, padding_is_counted_as_t5x_does)
{
    static struct lookup l;
    run(&l, 1, (const char *const[]){"metrics.divide_by=all", "loss.loss_normalizing_factor=none", NULL});
    const struct syi_eval_result *r = &l.result[0];
    double share = value(r, "non_padding_fraction/loss_weights"), places = 30 / share;
    cr_expect(share > 0 && share < 1 && fabs(places - 16 * round(places / 16)) < 1e-9, "%.17g", share);
    cr_expect_float_eq(value(r, "loss_per_nonpadding_target_token"), value(r, "loss"), 1e-12);
    cr_expect_float_eq(value(r, "loss_per_all_target_tokens"), share * value(r, "loss"), 1e-12);
    cr_expect_float_eq(value(r, "z_loss_per_all_target_tokens"), share * value(r, "z_loss"), 1e-12);
    cr_expect_float_eq(value(r, "cross_ent_loss_per_all_target_tokens"), share * value(r, "cross_ent_loss"),
                       1e-12);
    cr_expect_null(syi_eval_result_find(r, "effective_batch_size/encoder_input_tokens"));
    syi_eval_files_free(&l.files);
    run(&l, 1, (const char *const[]){"metrics.divide_by=all", "moe.num_experts=0", NULL});
    /* seven items in two batches, or three where lengths part them */
    double rows = value(&l.result[0], "effective_batch_size/encoder_input_tokens");
    cr_expect(rows == 7 / 2.0 || rows == 7 / 3.0, "%g", rows);
    cr_expect(value(&l.result[0], "non_padding_fraction/overall") > 0);
    syi_eval_files_free(&l.files);
    run(&l, 1, (const char *const[]){NULL});
    cr_expect_null(syi_eval_result_find(&l.result[0], "non_padding_fraction/loss_weights"));
    syi_eval_files_free(&l.files);
}

/* Each token goes to two experts: 22 of inputs and 30 of targets, of the second task 12 and 12. Ranks do not show. What
 * has no place is dropped. */
Test(evaluate, experts_of_each_task_are_counted)
{
    static struct lookup l[3];
    static const char *const ways[] = {"mesh.data=1", "mesh.expert=2", "moe.eval_capacity_factor=0.5"};
    for (int i = 0; i < 3; i++) {
        l[i].sink = sink_of(&l[i]);
        run(&l[i], i == 1 ? 2 : 1, (const char *const[]){"task.two.eval_examples=3", ways[i], NULL});
        cr_assert_eq(l[i].n_routing, 4);
        for (int k = 0; k < 4; k++) {
            int64_t *sum = l[i].routing[k];
            cr_expect_eq(sum[0] + sum[1],
                         2 * (k == 0   ? 22
                              : k == 1 ? 30
                                       : 12),
                         "%d, %d: %lld", i, k, (long long)(sum[0] + sum[1]));
            cr_expect(i == 2 ? sum[1] > 0 : sum[1] == 0);
        }
        syi_eval_files_free(&l[i].files);
    }
    cr_expect(!memcmp(l[0].routing, l[1].routing, sizeof l[0].routing));
}

Test(evaluate, the_task_with_examples_to_train_on_is_the_one_trained)
{
    struct syi_config c;
    struct sy_error err = {0};
    cr_assert_eq(syi_config_defaults(&c, NULL), SY_OK);
    cr_assert_eq(syi_config_set(&c, "task.a.valid=v", NULL), SY_OK);
    cr_assert_eq(syi_config_set(&c, "task.b.train=t", NULL), SY_OK);
    cr_assert_str_eq(syi_config_task(&c)->name_of_part, "b");
    cr_assert_eq(syi_config_evaluates(&c), SYI_EVALUATES | SYI_EVALUATES_DECODED);
    cr_assert_eq(syi_config_set(&c, "task.a.metrics=[]", NULL), SY_OK);
    cr_assert_eq(syi_config_evaluates(&c), SYI_EVALUATES);
    cr_assert_eq(syi_config_validate(&c, &err), SY_OK, "%s", err.text);
    err = (struct sy_error){0};
    cr_assert_eq(syi_config_set(&c, "task.a.train=t", NULL), SY_OK);
    cr_assert_eq(syi_config_validate(&c, &err), SY_EINVAL);
    cr_assert_not_null(strstr(err.text, "[task.a] and [task.b]"), "%s", err.text);
    err = (struct sy_error){0};
    cr_assert_eq(syi_config_set(&c, "task.a.metrics=[\"blue\"]", &err), SY_EINVAL);
    cr_assert_not_null(strstr(err.text, "unknown blue, did you mean bleu? There are: exact_match"), "%s",
                       err.text);
}

/* Starting with another id is starting with 0 that is embedded as that id is: in the loss, in scores and in outputs,
 * greedy ones and those of searches, on any ranks. */
Test(evaluate, sequences_begin_with_the_start_token)
{
    static struct lookup zero, other;
    static const char *const decoding[] = {"decode.beams=1", "decode.beams=3", "decode.scores=true"};
    for (size_t i = 0; i < SYI_COUNT(decoding); i++)
        for (int ranks = 1; ranks < 3; ranks++) {
            memset(&zero, 0, sizeof zero);
            memset(&other, 0, sizeof other);
            zero.exchange = 5;
            zero.sink = sink_of(&zero);
            other.sink = sink_of(&other);
            run(&zero, 1, (const char *const[]){"metrics.examples=4", decoding[i], NULL});
            run(&other, ranks,
                (const char *const[]){"metrics.examples=4", "model.decoder_start_token_id=5", decoding[i],
                                      NULL});
            cr_assert_eq(zero.score, other.score);
            cr_assert_eq(value(&zero.result[0], "loss"), value(&other.result[0], "loss"));
            cr_assert_eq(other.n_examples, 8);
            for (int k = 0; k < 8; k++) cr_assert_str_eq(zero.prediction[k], other.prediction[k]);
            syi_eval_files_free(&zero.files);
            syi_eval_files_free(&other.files);
        }
}
