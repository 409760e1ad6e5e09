/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of examples: whatever the examples, they can be read back from the rows, packed tight and in order. The
 * reference's own rows are in tests/golden/data. */
#include "config.h"

#include "data/converter.h"
#include "data_support.h"

enum { INPUTS = 16, TARGETS = 12, EXAMPLES = 200, END = 1 };

static int32_t input_ids[EXAMPLES][INPUTS], target_ids[EXAMPLES][TARGETS];
static struct syi_id_example examples[EXAMPLES];

static void make_side(int32_t *ids, int32_t n, int i)
{
    for (int32_t t = 0; t < n; t++) ids[t] = 2 + (i * 31 + t * 7) % 50;
    ids[n - 1] = END;
}

static void make_examples(void)
{
    for (int i = 0; i < EXAMPLES; i++) {
        struct syi_id_example *e = &examples[i];
        *e = (struct syi_id_example){input_ids[i], target_ids[i], 1 + i * 5 % INPUTS,
                                     1 + i * 7 % (TARGETS / 2)};
        make_side(input_ids[i], e->n_inputs, i);
        make_side(target_ids[i], e->n_targets, i + 1);
    }
}

/* Where example `segment` (from 1) of a row begins; of rows with one, all of it is the first. */
static int32_t find_segment(const struct syi_side *side, int32_t row, int32_t segment, int32_t *n)
{
    int32_t first = -1;
    *n = 0;
    for (int32_t t = 0; t < side->filled[row]; t++) {
        int32_t here = side->segments ? side->segments[row * side->length + t] : 1;
        if (here == segment && first < 0) first = t;
        *n += here == segment;
        if (side->segments && here == segment)
            cr_assert_eq(side->positions[row * side->length + t], t - first);
    }
    return first;
}

static void check_side(const struct syi_side *side, int32_t row, int32_t segment, const int32_t *ids,
                       int32_t n)
{
    int32_t found, first = find_segment(side, row, segment, &found);
    cr_assert(found == n && first >= 0, "row %d: %d tokens of %d", row, found, n);
    cr_assert(!memcmp(side->tokens + row * side->length + first, ids, (size_t)n * 4));
}

/* Decoder inputs and weights follow from the targets alone. */
static void check_shift(const struct syi_rows *r, int32_t row)
{
    const struct syi_side *d = &r->decoder;
    for (int32_t t = 0, at = row * d->length; t < d->length; t++, at++) {
        int begins = t == 0 || (r->packed && d->segments[at] != d->segments[at - 1]) ||
                     (r->packed && !d->segments[at]);
        cr_assert_eq(r->decoder_inputs[at], begins ? 0 : d->tokens[at - 1], "row %d, token %d", row, t);
        cr_assert_eq(r->loss_weights[at], d->tokens[at] != 0);
    }
}

static int32_t check_rows(const struct syi_rows *r)
{
    int32_t i = 0;
    for (int32_t row = 0; row < r->n; row++) {
        for (int32_t s = 1; s <= r->examples[row]; s++, i++) {
            if (r->encoder.length) check_side(&r->encoder, row, s, examples[i].inputs, examples[i].n_inputs);
            check_side(&r->decoder, row, s, examples[i].targets, examples[i].n_targets);
        }
        check_shift(r, row);
        if (!r->packed) cr_assert_eq(r->examples[row], 1);
        if (!r->packed || row == r->n - 1) continue;
        /* No room was left for the example that begins the next row. */
        cr_assert(r->decoder.filled[row] + examples[i].n_targets > r->decoder.length ||
                  (r->encoder.length && r->encoder.filled[row] + examples[i].n_inputs > r->encoder.length));
    }
    return i;
}

static void convert(enum syi_converter converter, int packed)
{
    struct syi_rows rows;
    int32_t before = 0;
    make_examples();
    cr_assert(syi_rows_create(&rows, converter, packed, INPUTS, TARGETS, EXAMPLES, NULL) == SY_OK);
    for (int round = 0; round < 2; round++) { /* the second time over old rows */
        for (int i = 0; i < EXAMPLES; i++) cr_assert(syi_rows_add(&rows, &examples[i], NULL) == SY_OK);
        cr_assert(check_rows(&rows) == EXAMPLES);
        cr_assert(!round || rows.n == before);
        cr_assert(packed ? rows.n < EXAMPLES : rows.n == EXAMPLES);
        before = rows.n;
        syi_rows_clear(&rows);
        cr_assert(rows.n == 0 && rows.decoder.filled[0] == 0);
    }
    syi_rows_free(&rows);
}

Test(data_converter, encoder_and_decoder)
{
    convert(SYI_CONVERT_ENCDEC, 0);
    convert(SYI_CONVERT_ENCDEC, 1);
}

Test(data_converter, language_model)
{
    convert(SYI_CONVERT_LM, 0);
    convert(SYI_CONVERT_LM, 1);
}

/* What does not fit is refused and leaves the rows as they are. */
Test(data_converter, refuses)
{
    struct syi_rows rows;
    struct sy_error err = {0};
    struct syi_id_example e;
    make_examples();
    cr_assert(syi_rows_create(&rows, SYI_CONVERT_ENCDEC, 1, 0, TARGETS, 1, NULL) == SY_EINVAL);
    cr_assert(syi_rows_create(&rows, SYI_CONVERT_ENCDEC, 1, INPUTS, 1 << 30, 1, NULL) == SY_EINVAL);
    cr_assert(syi_rows_create(&rows, SYI_CONVERT_ENCDEC, 1, INPUTS - 1, TARGETS, 1, NULL) == SY_OK);
    e = examples[3]; /* of 16 inputs */
    cr_assert(e.n_inputs == INPUTS && syi_rows_add(&rows, &e, &err) == SY_EINVAL);
    cr_assert(strstr(err.text, "inputs have 16 tokens, a row has 15"), "%s", err.text);
    cr_assert(rows.n == 0);
    e.n_inputs = INPUTS - 1;
    cr_assert(syi_rows_add(&rows, &e, NULL) == SY_OK && !syi_rows_joins(&rows, &e));
    cr_assert(syi_rows_add(&rows, &e, NULL) == SY_ENOENT && rows.n == 1 && rows.examples[0] == 1);
    syi_rows_free(&rows);
}
