/* SPDX-License-Identifier: Apache-2.0 */
/* The public library: models that answer. One text or many, alone or from several threads, with any number of threads: the
 * same outputs, scores and encoder outputs; what is not possible is refused with a reason. */
#include "config.h"

#include <fenv.h>
#include <locale.h>
#include <math.h>
#include <pthread.h>

#include "small_run.h"

static struct small_run run;

static void begin(void)
{
    small_run_make(&run, 30);
}

static void end(void)
{
    small_run_remove(&run);
}

TestSuite(api_model, .init = begin, .fini = end);

static void expect_refused(int got, const struct sy_error *err, int code, const char *words)
{
    cr_expect_eq(got, code, "%d instead of %d: %s", got, code, err->text);
    cr_expect(strstr(err->text, words) != NULL, "\"%s\" lacks \"%s\"", err->text, words);
}

static void expect_same(const struct sy_answers *a, size_t i, const struct sy_answers *b, size_t j)
{
    for (size_t k = 0; k < sy_answers_outputs(a); k++) {
        struct sy_answer x = sy_answer(a, i, k), y = sy_answer(b, j, k);
        cr_expect_eq(x.status, y.status);
        cr_expect_str_eq(x.text, y.text, "input %zu, output %zu", i, k);
        cr_expect(x.score == y.score || (isnan(x.score) && isnan(y.score)), "%g and %g", x.score, y.score);
    }
}

/* Ways of asking, and whether they have scores. */
static const struct sy_predict_options ways[] = {
    {.bytes = sizeof ways[0]},
    {.bytes = sizeof ways[0], .method = SY_GREEDY, .scores = 1},
    {.bytes = sizeof ways[0], .method = SY_BEAMS, .outputs = 3},
    {.bytes = sizeof ways[0], .method = SY_SAMPLE, .outputs = 2, .seed = 11, .temperature = 2},
};
enum { WAYS = sizeof ways / sizeof ways[0] };

/* What an input is answered does not depend on what is asked with it. */
Test(api_model, one_by_one_as_together)
{
    struct sy_model *model = open_model(run.dir, NULL);
    for (int w = 0; w < WAYS; w++) {
        struct sy_predict_options way = ways[w];
        struct sy_answers *all = answers_of(model, &way, run.text, SMALL_WORDS);
        for (size_t i = 0; i < SMALL_WORDS; i++) {
            way.first = (int64_t)i;
            struct sy_answers *one = answers_of(model, &way, &run.text[i], 1);
            expect_same(one, 0, all, i);
            sy_answers_free(one);
        }
        cr_expect_eq(isnan(sy_answer(all, 0, 0).score) != 0, w == 0);
        sy_answers_free(all);
    }
    sy_model_close(model);
}

/* Outputs are told apart by their inputs, the best comes first, and a seed chooses the samples. */
Test(api_model, ways_of_asking)
{
    struct sy_model *model = open_model(run.dir, NULL);
    struct sy_predict_options sample = ways[3];
    struct sy_answers *greedy = answers_of(model, &ways[1], run.text, SMALL_WORDS);
    struct sy_answers *beams = answers_of(model, &ways[2], run.text, SMALL_WORDS);
    struct sy_answers *first = answers_of(model, &sample, run.text, SMALL_WORDS);
    int kinds = 0, other = 0;
    cr_assert_eq(sy_answers_outputs(beams), 3);
    for (size_t i = 0; i < SMALL_WORDS; i++) {
        kinds += strcmp(sy_answer(greedy, i, 0).text, sy_answer(greedy, (i + 1) % SMALL_WORDS, 0).text) != 0;
        cr_expect_geq(sy_answer(beams, i, 0).score, sy_answer(beams, i, 1).score);
        cr_expect_lt(sy_answer(greedy, i, 0).score, 0);
    }
    cr_expect_gt(kinds, 3, "answers are too much alike to tell inputs apart");
    sample.seed = 12;
    struct sy_answers *second = answers_of(model, &sample, run.text, SMALL_WORDS);
    for (size_t i = 0; i < SMALL_WORDS; i++)
        other += strcmp(sy_answer(first, i, 0).text, sy_answer(second, i, 0).text) != 0;
    cr_expect_gt(other, SMALL_WORDS / 2);
    cr_expect_eq(sy_answer(greedy, SMALL_WORDS, 0).status, SY_EINVAL);
    cr_expect_eq(sy_answer(greedy, 0, 1).status, SY_EINVAL);
    sy_answers_free(greedy);
    sy_answers_free(beams);
    sy_answers_free(first);
    sy_answers_free(second);
    sy_model_close(model);
}

/* More kinds of calls than engines are kept, over and over: answers stay, and are still there when the model is gone. */
Test(api_model, many_kinds_of_calls)
{
    enum { KINDS = 14 };
    struct sy_answers *before[KINDS];
    struct sy_model *model = open_model(run.dir, NULL);
    for (int round = 0; round < 2; round++)
        for (int kind = 0; kind < KINDS; kind++) {
            struct sy_predict_options way = {
                .bytes = sizeof way, .method = SY_BEAMS, .beams = 2 + kind / 2, .outputs = 2};
            struct sy_answers *now = answers_of(model, &way, run.text, kind % 2 ? 8 : 1);
            if (round)
                expect_same(before[kind], 0, now, 0);
            else
                before[kind] = now;
            if (round) sy_answers_free(now);
        }
    sy_model_close(model);
    for (int kind = 0; kind < KINDS; kind++) {
        cr_expect_eq(sy_answer(before[kind], 0, 0).status, SY_OK);
        sy_answers_free(before[kind]);
    }
}

/* ---- threads ---- */

enum { CALLERS = 8, CALLS = 100 };

struct caller {
    struct sy_model *model;
    const struct sy_answers *expected[WAYS];
    const double *scores;
    int number, wrong;
};

static void *call(void *arg)
{
    struct caller *c = arg;
    for (int i = 0; i < CALLS; i++) {
        int way = (i + c->number) % WAYS, n = i % 5 == 4 ? SMALL_WORDS : 1;
        size_t at = n == 1 ? (size_t)(i * 5 + c->number) % SMALL_WORDS : 0;
        struct sy_predict_options options = ways[way];
        struct sy_answers *answers;
        double score;
        options.first = (int64_t)at;
        if (sy_predict(c->model, &options, &run.text[at], (size_t)n, &answers, NULL)) {
            c->wrong++;
            continue;
        }
        for (size_t k = 0; k < (size_t)n; k++)
            c->wrong +=
                strcmp(sy_answer(answers, k, 0).text, sy_answer(c->expected[way], at + k, 0).text) != 0;
        sy_answers_free(answers);
        c->wrong += sy_score(c->model, &run.pair[at], 1, &score, NULL, NULL) || score != c->scores[at];
    }
    return NULL;
}

static void many_threads(int max_calls)
{
    double scores[SMALL_WORDS];
    struct sy_error err = {0};
    pthread_t thread[CALLERS];
    struct sy_open_options two = {.bytes = sizeof two, .threads = 2, .max_calls = max_calls};
    struct caller caller[CALLERS] = {{.model = open_model(run.dir, &two), .scores = scores}};
    for (int w = 0; w < WAYS; w++)
        caller[0].expected[w] = answers_of(caller[0].model, &ways[w], run.text, SMALL_WORDS);
    cr_assert_eq(sy_score(caller[0].model, run.pair, SMALL_WORDS, scores, NULL, &err), SY_OK, "%s", err.text);
    for (int i = 1; i < CALLERS; i++) {
        caller[i] = caller[0];
        caller[i].number = i;
    }
    for (int i = 0; i < CALLERS; i++) cr_assert_eq(pthread_create(&thread[i], NULL, call, &caller[i]), 0);
    for (int i = 0; i < CALLERS; i++) {
        pthread_join(thread[i], NULL);
        cr_expect_eq(caller[i].wrong, 0, "thread %d: %d answers are wrong", i, caller[i].wrong);
    }
    for (int w = 0; w < WAYS; w++) sy_answers_free((struct sy_answers *)caller[0].expected[w]);
    sy_model_close(caller[0].model);
}

Test(api_model, one_handle_many_threads)
{
    many_threads(0);
}

/* One call after the other, and as many at a time as there are callers. */
Test(api_model, one_handle_few_and_many_lanes)
{
    many_threads(1);
    many_threads(CALLERS);
}

/* Calls that waited for each other would wait for ever. */
Test(api_model, calls_meet_on_one_handle, .timeout = 60)
{
    struct meeting m = {.texts = run.text, .n = SMALL_WORDS, .status = -1};
    struct sy_open_options options = {
        .bytes = sizeof options, .threads = 2, .run_tasks = run_and_meet, .run_tasks_arg = &m};
    struct sy_model_facts facts = {.bytes = sizeof facts};
    m.model = open_model(run.dir, &options);
    cr_assert_eq(sy_model_facts(m.model, &facts, NULL), SY_OK);
    cr_expect_eq(facts.max_calls, 2, "as many as threads, not %ld", (long)facts.max_calls);
    struct sy_answers *alone = answers_of(m.model, NULL, run.text, SMALL_WORDS);
    m.begins = 1;
    struct sy_answers *met = answers_of(m.model, NULL, run.text, SMALL_WORDS);
    cr_expect(!m.begins && m.status == SY_OK, "the other call: %d", m.status);
    for (size_t i = 0; i < SMALL_WORDS; i++) {
        expect_same(alone, i, met, i);
        expect_same(alone, i, m.answers, i);
    }
    sy_answers_free(m.answers);
    sy_answers_free(met);
    sy_answers_free(alone);
    sy_model_close(m.model);
}

static void expect_all(struct sy_model *model, struct sy_answers *const expected[WAYS])
{
    for (int w = 0; w < WAYS; w++) {
        struct sy_answers *now = answers_of(model, &ways[w], run.text, 1);
        expect_same(expected[w], 0, now, 0);
        sy_answers_free(now);
    }
}

/* All files are read when a model is opened: of one whose vocabulary has a file, new kinds of calls and new lanes need none. */
Test(api_model, answers_without_its_files, .timeout = 60)
{
    struct meeting m = {.texts = run.text, .n = SMALL_WORDS, .status = -1};
    struct sy_open_options options = {
        .bytes = sizeof options, .threads = 2, .run_tasks = run_and_meet, .run_tasks_arg = &m};
    struct sy_answers *expected[WAYS];
    small_run_letters(&run);
    strcat(run.dir, "-letters");
    small_run_train(&run, 10);
    struct sy_model *whole = open_model(run.dir, NULL);
    for (int w = 0; w < WAYS; w++) expected[w] = answers_of(whole, &ways[w], run.text, 1);
    sy_model_close(whole);
    m.model = open_model(run.dir, &options);
    small_run_remove(&run);
    m.begins = 1;
    expect_all(m.model, expected);
    cr_expect(!m.begins && m.status == SY_OK, "the other call: %d: %s", m.status, m.err.text);
    sy_answers_free(m.answers);
    sy_model_close(m.model);
    for (int w = 0; w < WAYS; w++) sy_answers_free(expected[w]);
}

struct runner {
    size_t tasks, calls;
};

static void run_backwards(void *arg, size_t n, void (*task)(void *task_arg, size_t i), void *task_arg)
{
    struct runner *r = arg;
    r->tasks = n;
    r->calls++;
    while (n > 0) task(task_arg, --n);
}

/* Any number of threads, of the library's own or of the program's, in any floating-point mode: the same bits. */
Test(api_model, threads_and_modes)
{
    struct runner runner = {0};
    struct sy_open_options options[3] = {
        {.bytes = sizeof options[0], .threads = 1},
        {.bytes = sizeof options[0], .threads = 3},
        {.bytes = sizeof options[0], .threads = 4, .run_tasks = run_backwards, .run_tasks_arg = &runner}};
    struct sy_answers *answers[3];
    struct sy_model *model[3];
    for (int i = 0; i < 3; i++) model[i] = open_model(run.dir, &options[i]);
    for (int i = 0; i < 3; i++) {
        if (i) fesetround(FE_UPWARD);
        answers[i] = answers_of(model[i], &ways[2], run.text, SMALL_WORDS);
        cr_expect_eq(fegetround(), i ? FE_UPWARD : FE_TONEAREST);
        fesetround(FE_TONEAREST);
    }
    for (size_t i = 0; i < SMALL_WORDS; i++) {
        expect_same(answers[0], i, answers[1], i);
        expect_same(answers[0], i, answers[2], i);
    }
    cr_expect_eq(runner.tasks, 4);
    cr_expect_gt(runner.calls, 10);
    for (int i = 0; i < 3; i++) {
        sy_answers_free(answers[i]);
        sy_model_close(model[i]);
    }
}

/* ---- scores and the encoder ---- */

/* The score of a greedy output is that of the pair of input and output. */
Test(api_model, scores)
{
    struct sy_model *model = open_model(run.dir, NULL);
    struct sy_answers *greedy = answers_of(model, &ways[1], run.text, SMALL_WORDS);
    struct sy_error err = {0};
    struct sy_pair pair[SMALL_WORDS];
    double score[SMALL_WORDS];
    int64_t tokens[SMALL_WORDS];
    int n = 0;
    for (size_t i = 0; i < SMALL_WORDS; i++) {
        struct sy_answer answer = sy_answer(greedy, i, 0);
        pair[i] = (struct sy_pair){run.text[i], {answer.text, answer.bytes}};
    }
    cr_assert_eq(sy_score(model, pair, SMALL_WORDS, score, tokens, &err), SY_OK, "%s", err.text);
    for (size_t i = 0; i < SMALL_WORDS; i++) {
        if (!tokens[i] || tokens[i] != (int64_t)pair[i].target.bytes + 1)
            continue; /* other bytes than tokens, or cut */
        n++;
        cr_expect_float_eq(score[i], sy_answer(greedy, i, 0).score, 1e-4);
    }
    cr_expect_gt(n, 5);
    pair[0].target = text_of("a target that is too long for the model");
    pair[1] = run.pair[1];
    cr_assert_eq(sy_score(model, pair, 2, score, tokens, &err), SY_OK, "%s", err.text);
    cr_expect(isnan(score[0]) && tokens[0] == 0 && !isnan(score[1]));
    sy_answers_free(greedy);
    sy_model_close(model);
}

Test(api_model, encoder)
{
    struct sy_model *model = open_model(run.dir, NULL);
    struct sy_model_facts facts = {.bytes = sizeof facts};
    struct sy_error err = {0};
    int64_t tokens[SMALL_WORDS], count;
    static float all[SMALL_WORDS * 12 * 32], one[12 * 32];
    cr_assert_eq(sy_model_facts(model, &facts, &err), SY_OK, "%s", err.text);
    cr_assert_eq(sy_encode(model, run.text, SMALL_WORDS, tokens, all, sizeof all / sizeof *all, &err), SY_OK,
                 "%s", err.text);
    size_t at = 0, d = (size_t)facts.d_model;
    double sum = 0;
    for (size_t i = 0; i < SMALL_WORDS; i++) {
        cr_expect_eq(tokens[i], (int64_t)run.text[i].bytes + 1);
        cr_assert_eq(sy_encode(model, &run.text[i], 1, &count, one, sizeof one / sizeof *one, &err), SY_OK);
        cr_expect_eq(count, tokens[i]);
        cr_expect_arr_eq(all + at * d, one, (size_t)count * d * sizeof *one);
        at += (size_t)count;
    }
    for (size_t i = 0; i < at * d; i++) sum += fabs((double)all[i]);
    cr_expect(sum > 1 && isfinite(sum));
    struct sy_text mixed[] = {text_of("longer than twelve tokens"), run.text[0]};
    cr_assert_eq(sy_encode(model, mixed, 2, tokens, one, sizeof one / sizeof *one, &err), SY_OK, "%s",
                 err.text);
    cr_expect(tokens[0] == 0 && tokens[1] > 0);
    cr_expect_arr_eq(one, all, (size_t)tokens[1] * d * sizeof *one);
    int status = sy_encode(model, run.text, 2, tokens, one, d, &err);
    expect_refused(status, &err, SY_EINVAL, "but there is room for 32");
    sy_model_close(model);
}

/* A model that computes in bfloat16 hands out floats too. Layer norm makes values near 1. */
Test(api_model, encoder_of_bfloat16)
{
    const char *set[] = {"model.dtype=bfloat16"};
    struct sy_open_options options = {.bytes = sizeof options, .set = set, .n_set = 1};
    struct sy_model *model[] = {open_model(run.dir, NULL), open_model(run.dir, &options)};
    struct sy_error err = {0};
    int64_t tokens[SMALL_WORDS];
    static float values[2][SMALL_WORDS * 12 * 32];
    for (int i = 0; i < 2; i++) {
        cr_assert_eq(sy_encode(model[i], run.text, SMALL_WORDS, tokens, values[i],
                               sizeof values[i] / sizeof *values[i], &err),
                     SY_OK, "%s", err.text);
        sy_model_close(model[i]);
    }
    size_t n = 0;
    double off = 0, sum = 0;
    for (size_t i = 0; i < SMALL_WORDS; i++) n += (size_t)tokens[i] * 32;
    for (size_t i = 0; i < n; i++) {
        off += fabs((double)values[1][i] - (double)values[0][i]);
        sum += fabs((double)values[0][i]);
    }
    cr_expect(off > 0 && off < 0.01 * sum, "bfloat16 is off by %g of %g", off, sum);
}

/* ---- facts, and what is refused ---- */

Test(api_model, facts)
{
    char folder[96], value[32];
    struct sy_error err = {0};
    struct sy_model_facts facts = {.bytes = sizeof facts},
                          part = {.bytes = offsetof(struct sy_model_facts, d_model)};
    const char *set[] = {"decode.beams=2", "decode.num_decodes=2"};
    struct sy_open_options options = {
        .bytes = sizeof options, .threads = 2, .max_batch = 4, .set = set, .n_set = 2};
    snprintf(folder, sizeof folder, "%s/checkpoints/30", run.dir);
    struct sy_model *model = open_model(folder, &options);
    cr_assert_eq(sy_model_facts(model, &facts, &err), SY_OK, "%s", err.text);
    cr_expect(facts.step == 30 && facts.d_model == 32 && facts.experts == 2 && facts.max_input == 12);
    cr_expect(facts.max_output == 16 && facts.max_batch == 4 && facts.threads == 2 &&
              facts.parameters > 10000);
    cr_expect_eq(strlen(facts.weights_sha256), 64);
    cr_expect_eq(strncmp(facts.backend, "cpu: ", 5), 0);
    cr_assert_eq(sy_model_facts(model, &part, &err), SY_OK);
    cr_expect(part.step == 30 && part.parameters == facts.parameters && part.d_model == 0);
    cr_assert_eq(sy_model_value(model, "train.seed", value, sizeof value, &err), SY_OK, "%s", err.text);
    cr_expect_str_eq(value, "5");
    cr_expect_eq(sy_model_value(model, "train.seed", value, 1, NULL), SY_EINVAL);
    const struct sy_predict_options late = {.bytes = sizeof late, .first = INT64_MAX};
    struct sy_answers *none = NULL;
    cr_expect_eq(sy_predict(model, &late, run.text, 2, &none, &err), SY_EINVAL);
    cr_expect(strstr(err.text, "would have no number"), "%s", err.text);
    memset(&err, 0, sizeof err);
    struct sy_answers *answers = answers_of(model, NULL, run.text, 9);
    cr_expect_eq(sy_answers_outputs(answers), 2);
    sy_answers_free(answers);
    sy_model_close(model);
    sy_model_close(NULL);
    sy_answers_free(NULL);
}

/* A run is one wherever it lies. */
Test(api_model, named_like_a_checkpoint)
{
    char folder[96], command[256];
    struct sy_model_facts facts = {.bytes = sizeof facts};
    snprintf(folder, sizeof folder, "%s/checkpoints/17", run.folder);
    snprintf(command, sizeof command, "mkdir %s/checkpoints && mv %s %s", run.folder, run.dir, folder);
    cr_assert_eq(system(command), 0);
    struct sy_model *model = open_model(folder, NULL);
    cr_assert_eq(sy_model_facts(model, &facts, NULL), SY_OK);
    cr_expect_eq(facts.step, 30);
    sy_model_close(model);
    strcat(folder, "/checkpoints/30");
    sy_model_close(open_model(folder, NULL));
}

static void expect_unopened(const char *path, const struct sy_open_options *options, int code,
                            const char *words)
{
    struct sy_error err = {0};
    struct sy_model *model = (struct sy_model *)&err;
    int status = sy_model_open(path, options, &model, &err);
    expect_refused(status, &err, code, words);
    cr_expect_null(model);
}

Test(api_model, refused)
{
    const char *unknown[] = {"decode.beam=2"}, *worse[] = {"decode.beams=0"};
    struct {
        struct sy_open_options options;
        int more;
    } later = {{.bytes = sizeof later}, 1};
    expect_unopened("/nowhere", NULL, SY_ENOENT, "/nowhere");
    expect_unopened(run.folder, NULL, SY_ENOENT, "holds no run");
    expect_unopened(NULL, NULL, SY_EINVAL, "no path");
    expect_unopened(run.dir, &(struct sy_open_options){.threads = 1}, SY_EINVAL,
                    "sizeof(struct sy_open_options)");
    expect_unopened(run.dir, &later.options, SY_EUNSUPPORTED, "later switchyard");
    expect_unopened(run.dir, &(struct sy_open_options){sizeof later.options, .backend = "none"}, SY_ENOENT,
                    "none");
    expect_unopened(run.dir, &(struct sy_open_options){sizeof later.options, .backend = "null"}, SY_EINVAL,
                    "computes nothing");
    expect_unopened(run.dir, &(struct sy_open_options){sizeof later.options, .checkpoint = "7"}, SY_ENOENT,
                    "7");
    expect_unopened(run.dir, &(struct sy_open_options){sizeof later.options, .checkpoint = "new"}, SY_EINVAL,
                    "latest");
    expect_unopened(run.dir, &(struct sy_open_options){sizeof later.options, .threads = -1}, SY_EINVAL,
                    "threads = -1: give 1 or more, or 0");
    expect_unopened(run.dir, &(struct sy_open_options){sizeof later.options, .max_batch = -1}, SY_EINVAL,
                    "batch_size");
    expect_unopened(run.dir, &(struct sy_open_options){sizeof later.options, .max_calls = -1}, SY_EINVAL,
                    "max_calls");
    expect_unopened(run.dir, &(struct sy_open_options){sizeof later.options, .set = unknown, .n_set = 1},
                    SY_EINVAL, "decode.beams");
    expect_unopened(run.dir, &(struct sy_open_options){sizeof later.options, .set = worse, .n_set = 1},
                    SY_EINVAL, "decode.beams");
}

static void expect_unanswered(struct sy_model *model, struct sy_predict_options options, const char *words)
{
    struct sy_error err = {0};
    struct sy_answers *answers;
    options.bytes = sizeof options;
    int status = sy_predict(model, &options, run.text, 1, &answers, &err);
    expect_refused(status, &err, SY_EINVAL, words);
    cr_expect_null(answers);
}

Test(api_model, refused_calls)
{
    struct sy_model *model = open_model(run.dir, NULL);
    struct sy_text mixed[] = {text_of("longer than twelve tokens"), run.text[0], {NULL, 0}};
    expect_unanswered(model, (struct sy_predict_options){.method = 9}, "method 9");
    expect_unanswered(model, (struct sy_predict_options){.beams = -1}, "decode.beams");
    expect_unanswered(model, (struct sy_predict_options){.top_k = 5}, "top_k is of SY_SAMPLE");
    expect_unanswered(model, (struct sy_predict_options){.beams = 2, .top_p = 0.5}, "top_p is of SY_SAMPLE");
    expect_unanswered(model, (struct sy_predict_options){.method = SY_BEAMS, .beams = 500}, "decode.beams");
    expect_unanswered(model, (struct sy_predict_options){.method = SY_SAMPLE, .top_k = 3, .top_p = 0.5},
                      "decode.topk=3");
    expect_unanswered(model, (struct sy_predict_options){.method = SY_GREEDY, .beams = 4}, "beams is of");
    expect_unanswered(model, (struct sy_predict_options){.method = SY_GREEDY, .outputs = 2}, "outputs is of");
    expect_unanswered(model, (struct sy_predict_options){.method = SY_GREEDY, .temperature = 1},
                      "temperature is of");
    for (int method = SY_GREEDY; method <= SY_BEAMS; method++) {
        expect_unanswered(model, (struct sy_predict_options){.method = method, .top_k = 5}, "top_k is of");
        expect_unanswered(model, (struct sy_predict_options){.method = method, .top_p = 0.5}, "top_p is of");
    }
    const size_t many[] = {SIZE_MAX, SIZE_MAX / 8 + 2,
                           (size_t)INT32_MAX + 1}; /* the second is few bytes, modulo 2^64 */
    for (int i = 0; i < 3; i++) {
        struct sy_error err[3] = {{0}};
        struct sy_answers *answers;
        int64_t tokens;
        double score;
        expect_refused(sy_predict(model, NULL, run.text, many[i], &answers, err), err, SY_EINVAL, "too many");
        expect_refused(sy_score(model, run.pair, many[i], &score, NULL, err + 1), err + 1, SY_EINVAL,
                       "too many");
        expect_refused(sy_encode(model, run.text, many[i], &tokens, NULL, 0, err + 2), err + 2, SY_EINVAL,
                       "too many");
    }
    struct sy_predict_options ones = {.bytes = sizeof ones, .method = SY_GREEDY, .beams = 1, .outputs = 1};
    sy_answers_free(answers_of(model, &ones, run.text, 1));
    struct sy_predict_options draws = {.bytes = sizeof draws, .temperature = 1, .top_k = 5};
    sy_answers_free(answers_of(model, &draws, run.text, 1));
    struct sy_answers *answers = answers_of(model, NULL, mixed, 3), *none = answers_of(model, NULL, NULL, 0);
    cr_expect_eq(sy_answer(answers, 0, 0).status, SY_EINVAL);
    cr_expect_str_eq(sy_answer(answers, 0, 0).text, "");
    cr_expect_eq(sy_answer(answers, 1, 0).status, SY_OK);
    cr_expect_eq(sy_answer(answers, 2, 0).status, SY_OK);
    cr_expect_eq(sy_answers_inputs(none), 0);
    sy_answers_free(answers);
    sy_answers_free(none);
    sy_model_close(model);
}

/* A locale whose numbers have a decimal comma; 0: the system has no program to make one. */
static int set_comma(void)
{
    char command[512];
    snprintf(
        command, sizeof command,
        "cd %s && printf 'LC_NUMERIC\\ndecimal_point \",\"\\nthousands_sep \"\"\\ngrouping -1\\nEND LC_NUMERIC\\n' "
        ">source && localedef -c -i ./source -f ANSI_X3.4-1968 ./comma >warnings 2>&1",
        run.folder);
    if (system(command) < 0 || setenv("LOCPATH", run.folder, 1)) return 0;
    return setlocale(LC_NUMERIC, "comma") != NULL;
}

/* Numbers are the same in the locale of any program. */
Test(api_model, decimal_comma)
{
    char text[16];
    struct sy_predict_options way = {
        .bytes = sizeof way, .method = SY_SAMPLE, .temperature = 0.75, .top_p = 0.9, .seed = 3};
    struct sy_model *model = open_model(run.dir, NULL);
    struct sy_answers *before = answers_of(model, &way, run.text, SMALL_WORDS);
    if (set_comma()) {
        snprintf(text, sizeof text, "%g", 0.5);
        cr_assert_str_eq(text, "0,5");
        struct sy_model *other = open_model(run.dir, NULL);
        struct sy_answers *after = answers_of(other, &way, run.text, SMALL_WORDS);
        for (size_t i = 0; i < SMALL_WORDS; i++) expect_same(before, i, after, i);
        sy_answers_free(after);
        sy_model_close(other);
        setlocale(LC_NUMERIC, "C");
    } else {
        printf("not tested: a decimal comma; localedef makes no locale here\n");
    }
    sy_answers_free(before);
    sy_model_close(model);
}

/* Two models at a time, opened and closed by a thread with a small stack. */
static void *open_beside(void *arg)
{
    struct sy_model *a = open_model(run.dir, NULL), *b = open_model(run.dir, NULL);
    struct sy_answers *x = answers_of(a, NULL, run.text, 3);
    sy_model_close(a);
    struct sy_answers *y = answers_of(b, NULL, run.text, 3);
    for (size_t i = 0; i < 3; i++) expect_same(x, i, y, i);
    sy_answers_free(x);
    sy_answers_free(y);
    sy_model_close(b);
    return arg;
}

Test(api_model, small_stack)
{
    on_small_stack(open_beside);
}
