/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of typed values as text for other programs: CSV and JSON. */
#ifndef SYI_ROWS_TEXT_H
#define SYI_ROWS_TEXT_H

#include "base/text.h"
#include "metrics/reader.h"

/* One record of CSV with its CR LF (RFC 4180). NULL is an empty field, an empty text is "", bytes are
 * hexadecimal. */
void syi_csv_head(struct syi_text *out, const struct syi_row *row);
void syi_csv_row(struct syi_text *out, const struct syi_row *row);

/* One JSON object, without anything after it. Numbers that are not finite are null, which is all JSON has for
 * them; bytes are a hexadecimal string. */
void syi_json_row(struct syi_text *out, const struct syi_row *row);

#endif
