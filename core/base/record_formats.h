/* SPDX-License-Identifier: Apache-2.0 */
/* The list of formats of files of examples: one row each. The values of task.NAME.format, their help and the table in
 * data/record.c, which wants a `syi_record_NAME` for each, come from it. */
#ifndef SYI_RECORD_FORMATS_H
#define SYI_RECORD_FORMATS_H

/* ROW(X, CONSTANT, name, help); X is handed on. */
#define SYI_FORMATS(ROW, X)                                                                                  \
    ROW(X, TSV, tsv, "tsv has rows of input TAB target, more targets of the same input after more TABs; ")   \
    ROW(X, JSONL, jsonl, "jsonl a JSON object a line; ")                                                     \
    ROW(X, TEXT, text, "text a document a line; ")                                                           \
    ROW(X, DOCUMENTS, documents, "documents have blank lines between them.")

#define SYI_FORMAT_CHOICE(X, NAME, name, help)   X(SYI_FORMAT_##NAME, #name)
#define SYI_FORMAT_SENTENCE(X, NAME, name, help) help
#define SYI_FORMAT_MAP(X)                        SYI_FORMATS(SYI_FORMAT_CHOICE, X)
#define SYI_FORMAT_HELP                          SYI_FORMATS(SYI_FORMAT_SENTENCE, )

#endif
