/* SPDX-License-Identifier: Apache-2.0 */
/* A result with all its cells as text, as columns for people or as TSV. */
#ifndef SYI_QUERY_TABLE_H
#define SYI_QUERY_TABLE_H

#include "metrics/query.h"
#include "metrics/reading.h"

/* All cells of a result, header row first, as text. */
struct syi_query_table {
    int n_columns;
    size_t n_rows;        /* header included */
    char **cells;         /* (n_rows, n_columns) */
    unsigned char *right; /* (n_columns) all values are numbers: align to the right */
    size_t n_cells, capacity;
};

/* On failure there is nothing to free. */
int syi_query_table_read(struct syi_reading *r, const struct syi_query *asked, const char *sql,
                         struct syi_query_table *table, struct sy_error *err) SYI_MUST_CHECK;
int syi_query_table_print(const struct syi_query_table *table, enum syi_query_format format,
                          syi_query_line_fn line, void *arg, struct sy_error *err) SYI_MUST_CHECK;
void syi_query_table_free(struct syi_query_table *table);

#endif
