/* SPDX-License-Identifier: Apache-2.0 */
/* The training stream: shares of a mixture, packed rows, batches read ahead, and an index that is kept. */
#include "config.h"

#include <math.h>
#include <stdarg.h>

#include "data/prefetch.h"
#include "data_support.h"

enum { TASKS = 3, ROWS = 6 };
static const struct syi_bucket bucket = {40, 60};

struct stream {
    struct syi_config *config;
    struct syi_vocabularies vocabularies;
    struct syi_mixture mixture;
    struct syi_batcher batcher;
    struct syi_batch batch;
    char folder[4200];
};

static void write_task(const struct stream *s, const char *name, int lines, int longest)
{
    char path[4300];
    snprintf(path, sizeof path, "%s/%s.tsv", s->folder, name);
    FILE *file = fopen(path, "w");
    for (int i = 0; i < lines; i++)
        fprintf(file, "%s%d%.*s\t%.*s\n", name, i, i * 5 % longest, "abcdefghijklmnopqrstuvwxyz",
                1 + i * 7 % longest, "ABCDEFGHIJKLMNOPQRSTUVWXYZ");
    fclose(file);
}

static void set(struct stream *s, const char *format, ...)
{
    char text[4400];
    struct sy_error err = {0};
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    cr_assert(syi_config_set(s->config, text, &err) == SY_OK, "%s", err.text);
}

/* Three tasks of 100, 1000 and 300 examples. */
static struct stream *new_stream(void)
{
    static const int lines[TASKS] = {100, 1000, 300};
    struct stream *s = calloc(1, sizeof *s);
    const char *path = fresh_path("x");
    snprintf(s->folder, sizeof s->folder, "%.*s", (int)(strrchr(path, '/') - path), path);
    s->vocabularies = byte_vocabularies();
    s->config = calloc(1, sizeof *s->config);
    cr_assert(s->config && syi_config_defaults(s->config, NULL) == SY_OK);
    s->config->data.max_input_length = bucket.input_length;
    s->config->data.max_target_length = bucket.target_length;
    for (int i = 0; i < TASKS; i++) {
        char name[2] = {(char)('a' + i), 0};
        write_task(s, name, lines[i], 9 + 3 * i);
        set(s, "task.%s.train=%s/%s.tsv", name, s->folder, name);
    }
    return s;
}

static void open_mixture(struct stream *s)
{
    struct syi_dataset_place place = {0};
    struct sy_error err = {0};
    cr_assert(syi_config_validate(s->config, &err) == SY_OK, "%s", err.text);
    cr_assert(syi_mixture_open(&s->mixture, s->config, &s->vocabularies, &place, &err) == SY_OK, "%s",
              err.text);
}

static void open_packed(struct stream *s)
{
    struct syi_batcher_options options = {
        .buckets = &bucket, .n_buckets = 1, .batch_size = ROWS, .pool_batches = 4, .pack = 1};
    set(s, "mixture.all.tasks=[a, b, c]");
    open_mixture(s);
    cr_assert(syi_batcher_create(&s->batcher, &s->mixture, &options, NULL) == SY_OK);
    cr_assert(syi_batch_create_packed(&s->batch, ROWS, &bucket, NULL) == SY_OK);
}

static void free_stream(struct stream *s)
{
    char command[4300];
    syi_batch_free(&s->batch);
    syi_batcher_free(&s->batcher);
    syi_mixture_close(&s->mixture);
    snprintf(command, sizeof command, "rm -rf '%s'", s->folder);
    cr_assert(system(command) == 0);
    free(s->config);
    free(s);
}

/* ---- mixtures ---- */

/* Each task has its share of any number of places to within one for each window, and all of its examples come as often. */
static void check_shares(const struct stream *s, const double *share)
{
    enum { PLACES = 5 * SYI_MIXTURE_WINDOW };
    int64_t count[TASKS] = {0}, *seen[TASKS];
    for (int t = 0; t < TASKS; t++) seen[t] = calloc(1000, sizeof **seen);
    for (int64_t place = 0; place < PLACES; place++) {
        struct syi_pick pick = syi_mixture_pick(&s->mixture, place);
        count[pick.task]++;
        seen[pick.task][pick.entry]++;
    }
    for (int t = 0; t < TASKS; t++) {
        int64_t n = s->mixture.dataset[t].counts.entries, least = PLACES, most = 0;
        cr_assert_float_eq((double)count[t], share[t] * PLACES, TASKS, "task %d: %ld", t, (long)count[t]);
        for (int64_t i = 0; i < n; i++) {
            if (seen[t][i] < least) least = seen[t][i];
            if (seen[t][i] > most) most = seen[t][i];
        }
        cr_assert(most - least <= 1, "task %d: %ld to %ld times", t, (long)least, (long)most);
        free(seen[t]);
    }
}

Test(data_stream, shares_by_examples)
{
    struct stream *s = new_stream();
    set(s, "mixture.all.tasks=[a, b, c]");
    open_mixture(s);
    check_shares(s, (double[]){100. / 1400, 1000. / 1400, 300. / 1400});
    free_stream(s);
}

Test(data_stream, shares_as_given_and_tempered)
{
    struct stream *s = new_stream();
    set(s, "mixture.all.tasks=[a, b, c]");
    set(s, "mixture.all.rates=[1, 1, 2]");
    open_mixture(s);
    check_shares(s, (double[]){0.25, 0.25, 0.5});
    syi_mixture_close(&s->mixture);
    set(s, "mixture.all.rates=[]");
    set(s, "mixture.all.maximum=400");
    set(s, "mixture.all.temperature=2");
    open_mixture(s);
    double sum = 10 + 20 + sqrt(300);
    check_shares(s, (double[]){10 / sum, 20 / sum, sqrt(300) / sum});
    free_stream(s);
}

/* Rates whose sum no double holds: given ones, and numbers of examples to the hundredth power. */
Test(data_stream, shares_of_rates_without_a_sum)
{
    struct stream *s = new_stream();
    double power = pow(2990. / 3000, 100);
    set(s, "mixture.all.tasks=[a, b, c]");
    set(s, "mixture.all.rates=[1e308, 1e308, 5e307]");
    open_mixture(s);
    check_shares(s, (double[]){0.4, 0.4, 0.2});
    syi_mixture_close(&s->mixture);
    write_task(s, "a", 2990, 9);
    write_task(s, "b", 3000, 12);
    set(s, "mixture.all.rates=[]");
    set(s, "mixture.all.temperature=0.01");
    open_mixture(s);
    cr_assert_float_eq(s->mixture.rate[0], power / (1 + power), 1e-12, "%g", s->mixture.rate[0]);
    cr_assert_float_eq(s->mixture.rate[1], 1 / (1 + power), 1e-12, "%g", s->mixture.rate[1]);
    cr_assert_float_eq(s->mixture.rate[2], 0, 1e-12, "%g", s->mixture.rate[2]);
    free_stream(s);
}

/* A rate so small that most windows have no place for it still gets its share of them. */
Test(data_stream, tiny_shares)
{
    struct stream *s = new_stream();
    int64_t n = 0;
    set(s, "mixture.all.tasks=[a, b, c]");
    set(s, "mixture.all.rates=[0.0001, 1, 1]");
    open_mixture(s);
    for (int64_t place = 0; place < 100 * SYI_MIXTURE_WINDOW; place++)
        n += !syi_mixture_pick(&s->mixture, place).task;
    cr_assert_eq(n, 20); /* floor(0.00005 x 409600) */
    free_stream(s);
}

/* ---- running text ---- */

/* A list of texts gives the pieces of each, in order, and an example is found again by its entry. */
Test(data_stream, pieces_of_a_list_of_texts)
{
    static const char *const pieces[] = {"abcdefgh", "ijk", "lmno", "pq", "rstuvwxy", "z0"};
    static const char line[] =
        "{\"text\": [\"abcdefghijk\", \"lmno\", \"-\", \"pq\"]}\n{\"text\": \"rstuvwxyz0\"}\n";
    const char *path = write_fresh("list.jsonl", line, sizeof line - 1);
    struct syi_config *config = tsv_config(path, 8, 8);
    struct syi_vocabularies vocabularies = byte_vocabularies();
    struct syi_mixture mixture;
    struct syi_dataset_place place = {0};
    struct syi_ids inputs = {0}, targets = {0};
    struct sy_error err = {0};
    cr_assert(syi_config_set(config, "task.t.objective=prefix_lm", &err) == SY_OK);
    cr_assert(syi_config_set(config, "task.t.format=jsonl", &err) == SY_OK);
    cr_assert(syi_mixture_open(&mixture, config, &vocabularies, &place, &err) == SY_OK, "%s", err.text);
    cr_assert_eq(mixture.dataset[0].counts.entries, SYI_COUNT(pieces));
    for (size_t i = SYI_COUNT(pieces); i-- > 0;) {
        struct syi_dataset *d = &mixture.dataset[0];
        struct syi_dataset_entry entry;
        size_t n = 0;
        char text[16] = "";
        cr_assert(syi_dataset_entry(d, (int64_t)i, &entry, NULL) == SY_OK);
        cr_assert(syi_dataset_read(d, &entry, i, &inputs, &targets, &err) == SY_OK, "%s", err.text);
        for (size_t k = 0; k + 1 < inputs.n; k++) text[n++] = (char)(inputs.id[k] - 3);
        for (size_t k = 0; k + 1 < targets.n; k++) text[n++] = (char)(targets.id[k] - 3);
        cr_assert_str_eq(text, pieces[i]);
    }
    syi_ids_free(&inputs);
    syi_ids_free(&targets);
    syi_mixture_close(&mixture);
    free(config);
    remove_path(path);
}

static void expect_no_spans(const char *text, int32_t sentinels, const char *setting, const char *want)
{
    const char *path = write_fresh("list.txt", text, strlen(text));
    struct syi_config *config = tsv_config(path, 64, 64);
    struct syi_vocabularies vocabularies;
    struct syi_mixture mixture;
    struct syi_dataset_place place = {0};
    struct sy_error err = {0};
    cr_assert(syi_vocabulary_bytes(&vocabularies.input, sentinels, NULL) == SY_OK);
    vocabularies.target = vocabularies.input;
    cr_assert(syi_config_set(config, "task.t.objective=span_corruption", &err) == SY_OK);
    cr_assert(syi_config_set(config, "task.t.format=text", &err) == SY_OK);
    cr_assert(syi_config_set(config, setting, &err) == SY_OK, "%s", err.text);
    cr_assert(syi_mixture_open(&mixture, config, &vocabularies, &place, &err) == SY_EINVAL);
    cr_assert(strstr(err.text, want), "%s", err.text);
    free(config);
    remove_path(path);
}

/* Text that spans cannot be cut out of is an error of its line before a run begins, not at the step that draws it. */
Test(data_stream, text_without_room_for_spans)
{
    expect_no_spans("ab\nabcdefgh\nabcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyzabcdefgh\n", 2,
                    "task.t.mean_noise_span_length=3",
                    "list.txt:3: span corruption: an example of 60 tokens needs 3 sentinels, the vocabulary "
                    "has 2");
    expect_no_spans(
        "abcd\nabcdefghij\n", 100, "task.t.noise_density=0.9",
        "list.txt:2: span corruption: 10 tokens at a noise density of 0.9 have no room for 3 spans");
}

/* ---- packed rows ---- */

/* What a row says it holds is one example after the other, each whole. */
static void check_row(const struct syi_batch *b, int row, int *examples)
{
    const int32_t *ids = b->encoder_ids + row * b->input_length,
                  *out = b->decoder_targets + row * b->target_length;
    const int32_t *in = b->decoder_inputs + row * b->target_length;
    const int32_t *left = b->encoder_segments + row * b->input_length,
                  *right = b->decoder_segments + row * b->target_length;
    int32_t segment = 0;
    for (int i = 0; i < b->input_length; i++) {
        cr_assert((ids[i] > 0) == (left[i] > 0));
        if (left[i] > segment) cr_assert(left[i] == ++segment && (i == 0 || ids[i - 1] == 1));
    }
    *examples += segment;
    for (int i = 0, now = 0; i < b->target_length; i++) {
        int first = right[i] > now;
        cr_assert((out[i] > 0) == (right[i] > 0));
        if (first) now = right[i];
        cr_assert(in[i] == (first || !right[i] ? 0 : out[i - 1]));
        cr_assert(b->loss_weights[row * b->target_length + i] == (right[i] > 0));
        if (i + 1 == b->target_length) cr_assert(now == segment);
    }
}

Test(data_stream, packed_rows_hold_every_example_once)
{
    struct stream *s = new_stream();
    struct sy_error err = {0};
    int64_t tokens = 0, wanted = 0;
    int examples = 0, steps = 0;
    open_packed(s);
    for (; examples < 3 * SYI_PACKING_WINDOW; steps++) {
        cr_assert(syi_batcher_fetch(&s->batcher, steps, &s->batch, &err) == SY_OK, "%s", err.text);
        cr_assert(s->batch.n_real == ROWS);
        for (int row = 0; row < ROWS; row++) check_row(&s->batch, row, &examples);
        tokens += s->batch.n_input_tokens;
    }
    /* Windows are packed by themselves: those that are finished have the tokens of their places. */
    for (int64_t place = 0; place < 3 * SYI_PACKING_WINDOW; place++) {
        struct syi_pick pick = syi_mixture_pick(&s->mixture, place);
        struct syi_dataset_entry entry;
        int32_t input, target;
        cr_assert(syi_mixture_lengths(&s->mixture, &pick, &entry, &input, &target, NULL) == SY_OK);
        wanted += input;
    }
    cr_assert(tokens >= wanted && tokens < wanted + 2 * ROWS * bucket.input_length);
    cr_assert((double)tokens > 0.8 * steps * ROWS * bucket.input_length, "%ld tokens", (long)tokens);
    free_stream(s);
}

/* A step's rows do not depend on which were asked for before, nor on where one began to look. */
Test(data_stream, packed_rows_of_any_step)
{
    struct stream *s = new_stream();
    enum { STEPS = 150 };
    int32_t *ids = calloc(STEPS * ROWS * 40, sizeof *ids);
    struct syi_row_position position[STEPS];
    const size_t bytes = ROWS * 40 * sizeof *ids;
    open_packed(s);
    for (int step = 0; step < STEPS; step++) {
        cr_assert(syi_batcher_fetch(&s->batcher, step, &s->batch, NULL) == SY_OK);
        memcpy(ids + step * ROWS * 40, s->batch.encoder_ids, bytes);
        position[step] = s->batch.position;
    }
    cr_assert(position[STEPS - 1].window > 0 && position[STEPS - 1].row <= (STEPS - 1) * ROWS);
    for (int i = 0; i < STEPS; i += 7) {
        int step = i * 31 % STEPS;
        cr_assert(syi_batcher_fetch(&s->batcher, step, &s->batch, NULL) == SY_OK);
        cr_assert(!memcmp(ids + step * ROWS * 40, s->batch.encoder_ids, bytes), "step %d", step);
        syi_batcher_seek(&s->batcher, position[STEPS - 1]);
        cr_assert(syi_batcher_fetch(&s->batcher, STEPS - 1, &s->batch, NULL) == SY_OK);
        cr_assert(!memcmp(ids + (STEPS - 1) * ROWS * 40, s->batch.encoder_ids, bytes), "after step %d", step);
    }
    free(ids);
    free_stream(s);
}

/* ---- reading ahead ---- */

static int make(void *arg, struct syi_batch *batch, struct sy_error *err)
{
    (void)arg;
    return syi_batch_create_packed(batch, ROWS, &bucket, err);
}

Test(data_stream, batches_read_ahead_are_the_same)
{
    struct stream *s = new_stream(), *other = new_stream();
    static const int jumps[] = {0, 1, 2, 3, 40, 41, 42, 5, 6, 6,  200, 0,
                                1, 2, 3, 4, 5,  6,  7,  8, 9, 10, 12,  13};
    open_packed(s);
    open_packed(other);
    for (int ahead = 0; ahead < 4; ahead++) {
        struct syi_prefetch prefetch;
        const struct syi_batch *batch;
        struct sy_error err = {0};
        cr_assert(syi_prefetch_open(&prefetch, &s->batcher, ahead, make, NULL, &err) == SY_OK);
        for (size_t i = 0; i < SYI_COUNT(jumps); i++) {
            cr_assert(syi_prefetch_get(&prefetch, jumps[i], &batch, &err) == SY_OK, "%s", err.text);
            cr_assert(syi_batcher_fetch(&other->batcher, jumps[i], &other->batch, NULL) == SY_OK);
            cr_assert(!memcmp(batch->encoder_ids, other->batch.encoder_ids, ROWS * 40 * sizeof(int32_t)),
                      "step %d, %d ahead", jumps[i], ahead);
        }
        syi_prefetch_close(&prefetch);
    }
    free_stream(s);
    free_stream(other);
}

/* What a batch could not be read for is said at its step, not before. */
Test(data_stream, a_file_that_changes_is_an_error_of_its_step)
{
    struct stream *s = new_stream();
    struct syi_prefetch prefetch;
    const struct syi_batch *batch;
    struct sy_error err = {0};
    int status = SY_OK, steps = 0;
    open_packed(s);
    write_task(s, "a", 3, 9);
    cr_assert(syi_prefetch_open(&prefetch, &s->batcher, 2, make, NULL, &err) == SY_OK);
    while (!status && steps < 100) status = syi_prefetch_get(&prefetch, steps++, &batch, &err);
    cr_assert_eq(status, SY_EFORMAT);
    cr_assert(strstr(err.text, "/a.tsv") && strstr(err.text, "has changed"), "%s", err.text);
    syi_prefetch_close(&prefetch);
    free_stream(s);
}
