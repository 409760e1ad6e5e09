/* SPDX-License-Identifier: Apache-2.0 */
/* Templates: text with the names of fields in braces, "question: {question} context: {context}". {{ and }} are braces. */
#ifndef SYI_TEMPLATE_H
#define SYI_TEMPLATE_H

#include "data/record.h"

enum { SYI_TEMPLATE_PARTS = 32 };
struct syi_template_part {
    struct syi_span text; /* into the template: words as they are (with braces doubled), or a field's name */
    int field;
};
struct syi_template {
    struct syi_template_part part[SYI_TEMPLATE_PARTS]; /* [n] */
    int n;
};
/* text is borrowed and stays where it is. SY_EINVAL: a brace that is not closed, an empty name, too many parts, no field at all. */
int syi_template_parse(struct syi_template *form, const char *text, struct sy_error *err) SYI_MUST_CHECK;
/* How many examples the fields give: 1, or as many as the most frequent of its fields is there. SY_EFORMAT: a field is
 * missing, or two are there several times and not equally often. */
int syi_template_count(const struct syi_template *form, const struct syi_fields *fields, size_t *n,
                       struct sy_error *err) SYI_MUST_CHECK;
/* Appends the k-th of them. */
void syi_template_fill(const struct syi_template *form, const struct syi_fields *fields, size_t k,
                       struct syi_text *out);

#endif
