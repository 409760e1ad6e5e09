/* SPDX-License-Identifier: Apache-2.0 */
/* A small run in a folder of its own, made through the public library, and words for it. Shared by test_api_*.c, which
 * include nothing of the library but its public header. */
#ifndef SMALL_RUN_H
#define SMALL_RUN_H

#include <criterion/criterion.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "switchyard/switchyard.h"

static const char small_run_file[] =
    "[run]\nname = \"small\"\n"
    "[model]\nvocab_size = 384\nd_model = 32\nd_ff = 64\nhead_dim = 8\nnum_heads = 4\n"
    "num_encoder_layers = 1\nnum_decoder_layers = 1\ndropout_rate = 0.0\ninit_scale = 1.0\n"
    "[moe]\nnum_experts = 2\nnum_encoder_sparse_layers = 1\n"
    "[data]\nmax_input_length = 12\nmax_target_length = 16\nlength_buckets = [8, 16]\nbatch_size = 16\n"
    "[train]\nsteps = 40\nseed = 5\nlearning_rate = 5e-3\nwarmup_steps = 0\nschedule = \"constant\"\nclip_norm = 1.0\n"
    "[decode]\nbatch_size = 8\n"
    "[reproducible]\nblocks = 2\nmin_leaf = 8\n";

enum { SMALL_WORDS = 24, SMALL_PAIRS = 16 };

struct small_run {
    char folder[32], file[64], dir[64]; /* file: a run file; dir: a run directory */
    char letters[64];                   /* file of its vocabulary; "": bytes */
    char word[SMALL_WORDS][12], target[SMALL_WORDS][24];
    struct sy_text text[SMALL_WORDS];
    struct sy_pair pair[SMALL_WORDS];
};

static inline struct sy_text text_of(const char *string)
{
    return (struct sy_text){string, strlen(string)};
}

static inline void small_words(struct small_run *run)
{
    for (unsigned i = 0; i < SMALL_WORDS; i++) {
        unsigned n = 2 + i % 5;
        for (unsigned k = 0; k < n; k++) {
            run->word[i][k] = (char)('a' + (i * 7 + k * (i + 3)) % 8);
            run->target[i][2 * k] = (char)(run->word[i][k] - 'a' + 'A');
            run->target[i][2 * k + 1] = ' ';
        }
        run->target[i][2 * n - 1] = '\0';
        run->text[i] = text_of(run->word[i]);
        run->pair[i] = (struct sy_pair){run->text[i], text_of(run->target[i])};
    }
}

static inline void small_file(const char *path, const char *mode, const char *text)
{
    FILE *file = fopen(path, mode);
    cr_assert_not_null(file);
    fputs(text, file);
    cr_assert_eq(fclose(file), 0);
}

/* Folder and run file. */
static inline void small_run_begin(struct small_run *run)
{
    memset(run, 0, sizeof *run);
    strcpy(run->folder, "/tmp/sy-api-XXXXXX");
    cr_assert_not_null(mkdtemp(run->folder));
    snprintf(run->file, sizeof run->file, "%s/small.run", run->folder);
    snprintf(run->dir, sizeof run->dir, "%s/run", run->folder);
    small_file(run->file, "w", small_run_file);
    small_words(run);
}

/* The run file gets a vocabulary of letters, in the file LETTERS of its folder. */
#define SMALL_LETTERS " \na\nb\nc\nd\ne\nf\ng\nh\nA\nB\nC\nD\nE\nF\nG\nH\n"
static inline void small_run_letters(struct small_run *run)
{
    char text[128];
    snprintf(run->letters, sizeof run->letters, "%s/letters", run->folder);
    small_file(run->letters, "w", SMALL_LETTERS);
    snprintf(text, sizeof text, "[vocabulary]\nkind = \"characters\"\nfile = \"%s\"\n", run->letters);
    small_file(run->file, "a", text);
}

/* A run in run->dir that is trained a little, so that outputs differ from each other. */
static inline void small_run_train(struct small_run *run, int steps)
{
    struct sy_error err = {0};
    struct sy_trainer *trainer;
    cr_assert_eq(sy_trainer_open(run->file, NULL, &trainer, &err), SY_OK, "%s", err.text);
    for (int i = 0; i < steps; i++)
        cr_assert_eq(sy_trainer_step(trainer, run->pair, SMALL_PAIRS, NULL, &err), SY_OK, "%s", err.text);
    cr_assert_eq(sy_trainer_save(trainer, run->dir, &err), SY_OK, "%s", err.text);
    sy_trainer_close(trainer);
}

static inline void small_run_make(struct small_run *run, int steps)
{
    small_run_begin(run);
    small_run_train(run, steps);
}

static inline void small_run_remove_folder(const char *folder)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    cr_assert_eq(system(command), 0);
}

static inline void small_run_remove(struct small_run *run)
{
    small_run_remove_folder(run->folder);
}

static inline struct sy_model *open_model(const char *path, const struct sy_open_options *options)
{
    struct sy_error err = {0};
    struct sy_model *model;
    cr_assert_eq(sy_model_open(path, options, &model, &err), SY_OK, "%s", err.text);
    return model;
}

/* The least stack that switchyard.h asks for; frames of sanitizers are larger. */
#if defined(__SANITIZE_THREAD__)
enum { SMALL_STACK = 4 << 20 };
#elif defined(__SANITIZE_ADDRESS__)
enum { SMALL_STACK = 1 << 20 };
#else
enum { SMALL_STACK = 256 << 10 };
#endif

static inline void on_small_stack(void *(*fn)(void *arg))
{
    pthread_attr_t attributes;
    pthread_t thread;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, SMALL_STACK);
    cr_assert_eq(pthread_create(&thread, &attributes, fn, NULL), 0);
    pthread_join(thread, NULL);
    pthread_attr_destroy(&attributes);
}

/* Answers of all words; freed by the caller. */
static inline struct sy_answers *answers_of(struct sy_model *model, const struct sy_predict_options *options,
                                            const struct sy_text *texts, size_t n)
{
    struct sy_error err = {0};
    struct sy_answers *answers;
    cr_assert_eq(sy_predict(model, options, texts, n, &answers, &err), SY_OK, "%s", err.text);
    cr_assert_eq(sy_answers_inputs(answers), n);
    return answers;
}

/* A call on a handle that comes while another one computes: the model is opened with run_and_meet and this as its argument. */
struct meeting {
    struct sy_model *model;
    const struct sy_text *texts;
    size_t n;
    void (*before)(void); /* the other call; or NULL */
    int begins;           /* 1: the next piece of work meets the other call */
    int status;
    struct sy_answers *answers; /* of the other call; freed by the caller */
    struct sy_error err;
};

static inline void *meet(void *arg)
{
    struct meeting *m = arg;
    m->status = sy_predict(m->model, NULL, m->texts, m->n, &m->answers, &m->err);
    return NULL;
}

static inline void run_and_meet(void *arg, size_t n, void (*task)(void *task_arg, size_t i), void *task_arg)
{
    struct meeting *m = arg;
    pthread_t thread;
    if (m->begins) {
        m->begins = 0;
        if (m->before) m->before();
        cr_assert_eq(pthread_create(&thread, NULL, meet, m), 0);
        pthread_join(thread, NULL);
    }
    for (size_t i = 0; i < n; i++) task(task_arg, i);
}

#endif
