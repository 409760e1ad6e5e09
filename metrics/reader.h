/* SPDX-License-Identifier: Apache-2.0 */
/* A run's database for a program: rows of typed values. Works beside a running writer and after a crash. */
#ifndef SYI_READER_H
#define SYI_READER_H

#include "base/base.h"

enum syi_value_kind { SYI_VALUE_NULL, SYI_VALUE_INTEGER, SYI_VALUE_REAL, SYI_VALUE_TEXT, SYI_VALUE_BYTES };

/* One value of the database. */
struct syi_value {
    enum syi_value_kind kind;
    int64_t integer;
    double real;
    const char *text; /* of TEXT, NUL-terminated, and BYTES, which are not; "" for the others */
    size_t bytes;     /* without the NUL */
};

/* Borrowed until the function it is given to returns. */
struct syi_row {
    int n; /* columns */
    const char *const *names;
    const struct syi_value *values; /* NULL: this is the head, before the first row */
};

/* Another value than SY_OK, with its reason in err, ends the reading and is returned. */
typedef int (*syi_row_fn)(void *arg, const struct syi_row *row, struct sy_error *err);

struct syi_reader;

struct syi_question {
    const char *sql;               /* one statement that only reads */
    const struct syi_value *given; /* (n_given) what stands for ?1, ?2, ...; REAL, INTEGER, TEXT or NULL */
    int n_given;
    syi_row_fn head; /* called once before the rows; NULL: not at all */
    syi_row_fn row;
    void *arg;
};

/* patience: seconds that a database locked by its writer is waited for, 0: 10. */
int syi_reader_open(const char *path, double patience, struct syi_reader **reader,
                    struct sy_error *err) SYI_MUST_CHECK;
/* The database is locked for its writer while this runs: row must not wait for anybody. 300 s at most. */
int syi_reader_ask(struct syi_reader *reader, const struct syi_question *question,
                   struct sy_error *err) SYI_MUST_CHECK;
/* *there: whether the database has a table or a view of that name. */
int syi_reader_has(struct syi_reader *reader, const char *name, int *there,
                   struct sy_error *err) SYI_MUST_CHECK;
/* The version of the schema (user_version of metrics/schema.sql). Version 2 has no column `task` in metric, no times
 * there, and no tables of parameters and examples. */
int syi_reader_version(const struct syi_reader *reader);
/* What a WHERE on metric or valid_metric needs further so that only rows of training are met: "" in version 2, where
 * all rows are. */
const char *syi_reader_training(const struct syi_reader *reader);
void syi_reader_close(struct syi_reader *reader); /* NULL: does nothing */

/* A number as double, NaN for everything else. */
double syi_value_number(const struct syi_value *value);

#endif
