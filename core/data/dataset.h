/* SPDX-License-Identifier: Apache-2.0 */
/* The examples of a task's files that fit a row: an index says where each one is and how long, so that batches are
 * planned without reading a text, and any example is read alone. The index is made by one pass over the files, in memory
 * where they are small, else kept in a folder and made anew when a file, the vocabulary or the task's keys change. */
#ifndef SYI_DATASET_H
#define SYI_DATASET_H

#include "data/example.h"
#include "data/share.h"
#include "data/source.h"

enum {
    SYI_DATASET_SMALL =
        64 << 20, /* bytes of files whose index is made at each start and kept in memory; and of an index
                                   * that several ranks keep in memory */
    SYI_DATASET_OPEN = 64, /* files that all datasets of a process keep open: at least one of each */
    SYI_DATASET_QUOTE = 48 /* bytes of an example in messages, NUL included */
};

/* An example of the index: 16 bytes in memory and in the file. */
struct syi_dataset_entry {
    uint64_t place; /* offset of its record in the file (48 bits), number of the file (16) */
    uint64_t sizes; /* struct syi_example_size (20 bits each), number of the example in its record (24) */
};

/* What the pass over the files counted. Plain data, a part of the index file. */
struct syi_dataset_counts {
    int64_t entries;  /* examples that fit */
    int64_t examples; /* all */
    int64_t too_long; /* left out, or cut where the task trims */
    int64_t records;  /* all */
    struct syi_bad_records bad;
    int64_t invalid; /* records that are no valid UTF-8 */
    int64_t longest; /* bytes of the longest record */
    char first_too_long[SYI_DATASET_QUOTE];
    char first_invalid[200]; /* "FILE:LINE" */
};

struct syi_dataset {
    struct syi_example_form form;
    struct syi_source source;
    struct syi_file_id id; /* of all files together; of a single one its own */
    struct syi_dataset_counts counts;
    struct syi_dataset_entry *entry; /* [counts.entries] in the order of the files, NULL: in the index file */
    size_t capacity;
    char *line_end;                  /* [source.n] '\n' or '\r' */
    char *index_path, made_from[65]; /* of the index file, NULL: none; what it was made from */
    int index;                       /* its descriptor, -1: none */
    int64_t index_begin;             /* of the entries in it */
    int file[SYI_DATASET_OPEN], opened[SYI_DATASET_OPEN]; /* descriptors and which files they are, -1: none */
    int most_open;                                        /* so many of them are used */
    struct syi_example_maker maker;
    char *buffer; /* of the record at hand */
    size_t buffer_bytes;
};

/* Where the index of files that are not small is, and who makes it. */
struct syi_dataset_place {
    const char
        *cache; /* folder; NULL: none, the index is always in memory and compressed files are refused */
    int quiet;  /* 1: does not log what is left out */
    /* Datasets, or mixtures, of this process that share SYI_DATASET_OPEN, for checkpoints and the database need descriptors,
     * too; 0: it is the only one. */
    int sharers;
    /* Of several ranks: the first makes the index, the others get it and look at no file. NULL: a rank for itself. */
    const struct syi_share *share;
    /* Called once it is known which files there are, before this rank opens them for its examples: may set `readable` of them
     * and index_path to other places; or NULL. */
    int (*settle)(void *arg, struct syi_dataset *dataset, struct sy_error *err);
    void *settle_arg;
};

/* form is copied; what it borrows must stay. Logs what is left out. Where
 * nothing fits: SY_EINVAL. Owned by the caller: syi_dataset_close, also of a zeroed one. */
int syi_dataset_open(struct syi_dataset *dataset, const struct syi_example_form *form, const char *pattern,
                     const struct syi_dataset_place *place, struct sy_error *err) SYI_MUST_CHECK;
void syi_dataset_close(struct syi_dataset *dataset);
/* Entry i of 0..counts.entries-1. Reads from the index file unless it is in memory. */
int syi_dataset_entry(const struct syi_dataset *dataset, int64_t i, struct syi_dataset_entry *entry,
                      struct sy_error *err) SYI_MUST_CHECK;
struct syi_example_size syi_dataset_size(const struct syi_dataset_entry *entry);
/* Reads the example's record and makes its ids (syi_example_make). One thread at a time. SY_EFORMAT: what stands in the
 * file is no longer what the index was made from. */
int syi_dataset_read(struct syi_dataset *dataset, const struct syi_dataset_entry *entry, uint64_t key,
                     struct syi_ids *inputs, struct syi_ids *targets, struct sy_error *err) SYI_MUST_CHECK;

/* ---- dataset_index.c ---- */

/* Fills counts, id, line_end and the entries, from the files or the index file. */
int syi_dataset_index(struct syi_dataset *dataset, const struct syi_dataset_place *place,
                      struct sy_error *err) SYI_MUST_CHECK;
/* Opens the index file, where the entries are not in memory, by index_path. */
int syi_dataset_open_index(struct syi_dataset *dataset, struct sy_error *err) SYI_MUST_CHECK;

#endif
