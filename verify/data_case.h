/* SPDX-License-Identifier: Apache-2.0 */
/* Cases of kind data: what config.table names, each a function, and what they share. */
#ifndef VERIFY_DATA_CASE_H
#define VERIFY_DATA_CASE_H

#include "data/vocabulary.h"
#include "verify/rows.h"

/* ---- the tables ---- */

typedef int (*verify_data_fn)(const struct verify_case *c, struct verify_report *report,
                              struct sy_error *err);
int verify_data_bytes(const struct verify_case *c, struct verify_report *report, struct sy_error *err);
int verify_data_sentencepiece(const struct verify_case *c, struct verify_report *report,
                              struct sy_error *err);
int verify_data_converter(const struct verify_case *c, struct verify_report *report, struct sy_error *err);
int verify_data_mixing(const struct verify_case *c, struct verify_report *report, struct sy_error *err);
int verify_data_span_lengths(const struct verify_case *c, struct verify_report *report, struct sy_error *err);
int verify_data_span_masks(const struct verify_case *c, struct verify_report *report, struct sy_error *err);
int verify_data_sentinels(const struct verify_case *c, struct verify_report *report, struct sy_error *err);
int verify_data_ends(const struct verify_case *c, struct verify_report *report, struct sy_error *err);

/* ---- data_case.c ---- */

/* The lists `inputs` and `expected` of the document through fn, row by row; keys as of verify_rows. */
int verify_data_rows(const struct verify_case *c, const char *what, const char *keys, verify_row_fn fn,
                     void *arg, struct verify_report *report, struct sy_error *err) SYI_MUST_CHECK;
/* The integers of a list, appended. */
int verify_data_ids(const struct verify_case *c, uint32_t list, struct syi_ids *ids,
                    struct sy_error *err) SYI_MUST_CHECK;
/* Writes them as a list. */
void verify_data_put_ids(struct syi_json_writer *answer, const int32_t *id, size_t n);
/* A member of a row that is a list of integers, appended. */
int verify_data_member_ids(const struct verify_case *c, uint32_t object, const char *key, struct syi_ids *ids,
                           struct sy_error *err) SYI_MUST_CHECK;

#endif
