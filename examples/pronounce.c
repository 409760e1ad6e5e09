/* SPDX-License-Identifier: Apache-2.0 */
/* pronounce RUN_DIR WORD...: what a trained model answers, the best three outputs of each word with their scores.
 *
 *     cc pronounce.c $(pkg-config --cflags --libs switchyard) -o pronounce */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <switchyard/switchyard.h>

static void print(const struct sy_answers *answers, char **words)
{
    for (size_t i = 0; i < sy_answers_inputs(answers); i++)
        for (size_t k = 0; k < sy_answers_outputs(answers); k++) {
            struct sy_answer answer = sy_answer(answers, i, k);
            if (answer.status)
                printf("%s: %s\n", words[i], sy_status_text(answer.status));
            else
                printf("%s\t%s\t%.6g\n", words[i], answer.text, answer.score);
        }
}

int main(int argc, char **argv)
{
    struct sy_predict_options options = {.bytes = sizeof options, .method = SY_BEAMS, .outputs = 3};
    struct sy_error err = {0};
    struct sy_model *model = NULL;
    struct sy_answers *answers = NULL;
    size_t n = argc > 2 ? (size_t)argc - 2 : 0;

    if (!n) {
        fputs("usage: pronounce RUN_DIR WORD...\n", stderr);
        return 2;
    }
    struct sy_text *words = calloc(n, sizeof *words);
    if (!words) return 1;
    for (size_t i = 0; i < n; i++) words[i] = (struct sy_text){argv[i + 2], strlen(argv[i + 2])};

    int status = sy_model_open(argv[1], NULL, &model, &err);
    if (!status) status = sy_predict(model, &options, words, n, &answers, &err);
    if (!status) print(answers, argv + 2);
    if (status) fprintf(stderr, "pronounce: %s\n", err.text);
    sy_answers_free(answers);
    sy_model_close(model);
    free(words);
    return status ? 1 : 0;
}
