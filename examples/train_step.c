/* SPDX-License-Identifier: Apache-2.0 */
/* train_step RUN_FILE_OR_RUN_DIR STEPS NEW_RUN_DIR: trains on lines of input TAB target from stdin, all of them in each step,
 * and saves a run that `switchyard predict` takes.
 *
 *     cc train_step.c $(pkg-config --cflags --libs switchyard) -o train_step */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <switchyard/switchyard.h>

enum { PAIRS = 32, BYTES = 256 };

/* Lines without a tab are left out. What does not fit is refused, not cut. 0: it is, with a message. */
static int read_pairs(char text[PAIRS + 1][BYTES], struct sy_pair pairs[PAIRS], size_t *n)
{
    *n = 0;
    while (fgets(text[*n], BYTES, stdin)) {
        char *line = text[*n], *tab = strchr(line, '\t');
        if (strlen(line) == BYTES - 1 && line[BYTES - 2] != '\n') {
            fprintf(stderr, "train_step: a line has more than %d bytes\n", BYTES - 2);
            return 0;
        }
        if (!tab) continue;
        if (*n == PAIRS) {
            fprintf(stderr, "train_step: there are more than %d pairs\n", PAIRS);
            return 0;
        }
        pairs[*n].input = (struct sy_text){line, (size_t)(tab - line)};
        pairs[*n].target = (struct sy_text){tab + 1, strcspn(tab + 1, "\r\n")};
        ++*n;
    }
    return 1;
}

static int train(struct sy_trainer *trainer, const struct sy_pair *pairs, size_t n, int steps,
                 struct sy_error *err)
{
    struct sy_step step = {.bytes = sizeof step};
    int status = 0;
    for (int i = 0; !status && i < steps; i++) {
        status = sy_trainer_step(trainer, pairs, n, &step, err);
        if (!status) printf("step %lld, loss %.4f\n", (long long)step.step, step.loss);
    }
    return status;
}

int main(int argc, char **argv)
{
    static char text[PAIRS + 1][BYTES];
    struct sy_pair pairs[PAIRS];
    struct sy_trainer *trainer = NULL;
    struct sy_error err = {0};

    if (argc != 4) {
        fputs("usage: train_step RUN_FILE_OR_RUN_DIR STEPS NEW_RUN_DIR <PAIRS\n", stderr);
        return 2;
    }
    size_t n;
    if (!read_pairs(text, pairs, &n)) return 1;
    int status = sy_trainer_open(argv[1], NULL, &trainer, &err);
    if (!status) status = train(trainer, pairs, n, atoi(argv[2]), &err);
    if (!status) status = sy_trainer_save(trainer, argv[3], &err);
    if (status) fprintf(stderr, "train_step: %s\n", err.text);
    sy_trainer_close(trainer);
    return status ? 1 : 0;
}
