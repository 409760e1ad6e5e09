/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the tests of data and metrics: files in a folder of their own, and log lines caught. */
#ifndef DATA_SUPPORT_H
#define DATA_SUPPORT_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>

#include "base/base.h"
#include "data/mixture.h"
#include "data/vocabulary.h"

/* Path of a file `name` in a fresh folder; static memory, one test (a process of its own) uses it. */
static inline const char *fresh_path(const char *name)
{
    static char path[4200];
    const char *base = getenv("TMPDIR");
    char folder[4096];

    snprintf(folder, sizeof(folder), "%s/sy-unit-XXXXXX", base ? base : "/tmp");
    cr_assert(mkdtemp(folder) != NULL, "cannot make %s", folder);
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    return path;
}

static inline void remove_path(const char *path)
{
    char folder[4200];

    remove(path);
    snprintf(folder, sizeof(folder), "%s", path);
    *strrchr(folder, '/') = 0;
    remove(folder);
}

static inline const char *write_fresh(const char *name, const void *data, size_t bytes)
{
    const char *path = fresh_path(name);
    FILE *file = fopen(path, "wb");

    cr_assert(file != NULL);
    cr_assert(fwrite(data, 1, bytes, file) == bytes);
    fclose(file);
    return path;
}

/* Bytes on both sides; nothing to close. */
static inline struct syi_vocabularies byte_vocabularies(void)
{
    struct syi_vocabularies v;
    cr_assert(syi_vocabulary_bytes(&v.input, 0, NULL) == SY_OK);
    v.target = v.input;
    return v;
}

/* A run that trains on [task.t], a TSV file, with these longest lengths. */
static inline struct syi_config *tsv_config(const char *path, int64_t max_input, int64_t max_target)
{
    struct syi_config *config = calloc(1, sizeof *config);
    char text[4200];
    struct sy_error err = {0};

    cr_assert(config && syi_config_defaults(config, NULL) == SY_OK);
    snprintf(text, sizeof(text), "task.t.train=%s", path);
    cr_assert(syi_config_set(config, text, &err) == SY_OK, "%s", err.text);
    config->data.max_input_length = max_input;
    config->data.max_target_length = max_target;
    return config;
}

/* Pairs of a TSV file, as the defaults have it. */
static inline struct syi_example_form tsv_form(void)
{
    static struct syi_config *config;
    struct syi_example_form form;
    if (!config) config = tsv_config("none", 16, 16);
    cr_assert(syi_example_form_make(&form, config, &config->task.part[0], NULL, NULL) == SY_OK);
    return form;
}

struct caught_log {
    int n;
    char last[1024];
};

static inline void catch_line(void *arg, enum sy_log_level level, const char *line)
{
    struct caught_log *log = arg;

    (void)level;
    log->n++;
    snprintf(log->last, sizeof(log->last), "%s", line);
}

#endif
