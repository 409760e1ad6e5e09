/* SPDX-License-Identifier: Apache-2.0 */
/* Cases of .json files: a list of inputs and the reference's answer to each. A kind writes its own answer as
 * JSON, and the two values must be the same; an error stands as {"error": TYPE}, of which the type counts and
 * the message does not. */
#ifndef VERIFY_ROWS_H
#define VERIFY_ROWS_H

#include "verify/verify.h"

struct verify_row {
    const struct verify_case *item;
    uint32_t input, expected; /* nodes of item->json */
};

/* Statuses of a row besides those of the library. */
enum {
    VERIFY_TYPE_ERROR = 1000, /* an answer: a value or an argument that nothing takes (TypeError) */
    VERIFY_ARGUMENT_ERROR,    /* an answer: what TensorFlow refuses (InvalidArgumentError) */
    VERIFY_LEFT_OUT           /* nothing here could answer it: why is in err, and in the list of --verbose */
};

/* Writes the answer to a row. SY_EINVAL, SY_ENOENT and SY_EMISMATCH are answers as well (ValueError,
 * KeyError, AssertionError), whatever was written before; another failure ends the case. */
typedef int (*verify_row_fn)(void *arg, const struct verify_row *row, struct syi_json_writer *answer,
                             struct sy_error *err);

/* Goes over two lists of the same length (nodes of the case) and reports "WHAT row I" of each. keys: all
 * that a row may have, separated by spaces; NULL: rows are no objects. */
int verify_rows(const struct verify_case *c, const char *what, uint32_t inputs, uint32_t expected,
                const char *keys, verify_row_fn fn, void *arg, struct verify_report *report,
                struct sy_error *err) SYI_MUST_CHECK;
/* Compares a value, written as JSON, with that of a node of the case, and reports it as `name`. */
int verify_value(const struct verify_case *c, uint32_t expected, const char *name,
                 const struct syi_text *text, struct verify_report *report,
                 struct sy_error *err) SYI_MUST_CHECK;
/* A member of the document: an error when it is not there or of another kind. */
int verify_member(const struct verify_case *c, uint32_t object, const char *key, enum syi_json_kind kind,
                  uint32_t *node, struct sy_error *err) SYI_MUST_CHECK;
/* An integer that is there and in range; null where `null` is not NULL sets *null. */
int verify_member_int(const struct verify_case *c, uint32_t object, const char *key, int64_t low,
                      int64_t high, int *null, int64_t *value, struct sy_error *err) SYI_MUST_CHECK;
/* A number that is there. */
int verify_member_real(const struct verify_case *c, uint32_t object, const char *key, double *value,
                       struct sy_error *err) SYI_MUST_CHECK;
/* The integers of a list, at most `most`. */
int verify_list_ints(const struct verify_case *c, uint32_t list, int most, int64_t *value, int *n,
                     struct sy_error *err) SYI_MUST_CHECK;
/* {"error": TYPE} of a status that is an answer. */
void verify_put_error(struct syi_json_writer *answer, int status);
int verify_is_answer(int status);

#endif
