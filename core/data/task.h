/* SPDX-License-Identifier: Apache-2.0 */
/* The texts of a task's file, as evaluation needs them: all are in memory, examples and items are offsets into them. An
 * example is one (input, target); an item is one input with all its targets, wherever in the file they are. */
#ifndef SYI_TASK_H
#define SYI_TASK_H

#include "data/example.h"

struct syi_example {
    size_t input, target; /* byte offsets into the text */
    uint32_t input_bytes, target_bytes;
};

struct syi_task {
    char *path;                   /* as given, for messages */
    struct syi_text text;         /* all inputs and targets */
    struct syi_file_id id;        /* of the files as they were read */
    struct syi_example *examples; /* (n_examples), in file order */
    int32_t n_examples;
    int64_t n_lines; /* records */
};

/* Reads and checks the file, or the files of a pattern. form: of pairs; vocabularies are not looked at. Errors name file
 * and line; bytes that are no UTF-8 are legal and logged once. Compressed files
 * are unpacked into data.cache, or for the time of reading into a folder below $TMPDIR. */
int syi_task_load(struct syi_task *task, const struct syi_example_form *form, const char *path,
                  struct sy_error *err) SYI_MUST_CHECK;
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
