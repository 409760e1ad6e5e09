/* SPDX-License-Identifier: Apache-2.0 */
/* many_calls RUN_DIR ANSWERS CALLS MAX_CALLS [BACKEND]: 8 threads make CALLS predictions in all on one handle, of 1 to 5 words
 * each, and compare what they get with ANSWERS, lines "word TAB output" of the command. Only the public library. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <switchyard/switchyard.h>

enum { THREADS = 8, LINES = 1000, BYTES = 256 };

static struct {
    char line[LINES][BYTES];
    struct sy_text word[LINES];
    const char *output[LINES];
    size_t n;
} known;

static struct sy_model *model;
static atomic_long left, wrong;

static int read_known(const char *path)
{
    FILE *file = fopen(path, "r");
    if (!file) return 0;
    while (known.n < LINES && fgets(known.line[known.n], BYTES, file)) {
        char *line = known.line[known.n], *tab = strchr(line, '\t');
        if (!tab) break;
        *tab = '\0';
        tab[1 + strcspn(tab + 1, "\n")] = '\0';
        known.word[known.n] = (struct sy_text){line, (size_t)(tab - line)};
        known.output[known.n++] = tab + 1;
    }
    fclose(file);
    return known.n > 10;
}

static void *call(void *arg)
{
    unsigned at = *(unsigned *)arg;
    while (atomic_fetch_sub(&left, 1) > 0) {
        struct sy_error err = {0};
        struct sy_answers *answers;
        size_t n = 1 + at % 5, from = (at = at * 1664525u + 1013904223u) % (known.n - 5);
        if (sy_predict(model, NULL, known.word + from, n, &answers, &err)) {
            fprintf(stderr, "many_calls: %s\n", err.text);
            atomic_fetch_add(&wrong, 1);
            continue;
        }
        for (size_t i = 0; i < n; i++)
            if (strcmp(sy_answer(answers, i, 0).text, known.output[from + i])) atomic_fetch_add(&wrong, 1);
        sy_answers_free(answers);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    struct sy_open_options options = {.bytes = sizeof options};
    struct sy_error err = {0};
    pthread_t thread[THREADS];
    unsigned seed[THREADS];
    if (argc < 5 || argc > 6 || !read_known(argv[2])) {
        fputs("usage: many_calls RUN_DIR ANSWERS CALLS MAX_CALLS [BACKEND]\n", stderr);
        return 2;
    }
    atomic_store(&left, atol(argv[3]));
    options.max_calls = atoi(argv[4]);
    if (argc == 6) options.backend = argv[5];
    if (sy_model_open(argv[1], &options, &model, &err)) {
        fprintf(stderr, "many_calls: %s\n", err.text);
        return 1;
    }
    for (unsigned i = 0; i < THREADS; i++) {
        seed[i] = i * 7919 + 1;
        if (pthread_create(&thread[i], NULL, call, &seed[i])) return 1;
    }
    for (int i = 0; i < THREADS; i++) pthread_join(thread[i], NULL);
    sy_model_close(model);
    printf("%ld predictions, %ld wrong\n", atol(argv[3]), (long)wrong);
    return wrong != 0;
}
