/* SPDX-License-Identifier: Apache-2.0 */
/* Functions of SQL over arrays of counts (counts.h). */
#ifndef SYI_EXPERT_COUNTS_H
#define SYI_EXPERT_COUNTS_H

#include <sqlite3.h>

/* Makes known to a connection:
 *   expert_counts(tokens, dropped)  a table: expert, tokens, dropped, one row an expert
 *   counts_sum(array)               the sum of its counts
 *   counts_array(expert, count)     an aggregate: the array of them; experts that do not come have 0
 * What is no array of counts is an error of the SQL. Returns a result code of SQLite. */
int syi_expert_counts_register(sqlite3 *db);

#endif
