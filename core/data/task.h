/* SPDX-License-Identifier: Apache-2.0 */
/* A TSV task: lines of `input TAB target`, further tabs giving further targets of the same input. The whole
 * file is in memory once; examples and items are offsets into it. For training an example is one (input,
 * target); for evaluation an item is one input with all its targets, wherever their lines are. */
#ifndef SYI_TASK_H
#define SYI_TASK_H

#include "base/base.h"
#include "data/vocabulary.h" /* struct syi_span */

struct syi_example {
    size_t input, target; /* byte offsets into the text */
    uint32_t input_bytes, target_bytes;
};

struct syi_task {
    char *path;                   /* as given, for messages */
    char *text;                   /* the file */
    struct syi_file_id id;        /* of the file as it was read */
    struct syi_example *examples; /* (n_examples), in file order */
    int32_t n_examples;
    int32_t n_lines;
};

/* Reads and checks the file. Errors name file and line; bytes that are no UTF-8 are legal and logged once. */
int syi_task_load(struct syi_task *task, const char *path, struct sy_error *err) SYI_MUST_CHECK;
void syi_task_free(struct syi_task *task);
struct syi_span syi_task_input(const struct syi_task *task, int32_t example);
struct syi_span syi_task_target(const struct syi_task *task, int32_t example);

/* Inputs with their references, in the order of their first line. */
struct syi_items {
    int32_t n_items;
    int32_t *first;    /* (n_items + 1) the references of item i are examples[first[i] .. first[i + 1]) */
    int32_t *examples; /* (n_examples) examples in item order, in file order inside an item */
    int32_t *item_of;  /* (n_examples) example to item */
};

int syi_items_build(struct syi_items *items, const struct syi_task *task,
                    struct sy_error *err) SYI_MUST_CHECK;
void syi_items_free(struct syi_items *items);

#endif
