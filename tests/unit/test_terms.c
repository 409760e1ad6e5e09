/* SPDX-License-Identifier: Apache-2.0 */
/* Terms: reading by name and by position, terms within terms, quotes, every error, and what is printed reads back. */
#include "config.h"

#include <stddef.h>
#include <string.h>

#include <criterion/criterion.h>

#include "base/terms.h"

/* ---- a table of kinds ---- */

struct numbers {
    double share;
    int64_t steps;
    bool on;
};
struct words {
    int mode;
    char text[SYI_CONFIG_STRING];
    struct syi_strings list;
    struct syi_ints ints;
    struct syi_floats floats;
};
struct holds {
    struct syi_strings mask;
};

#define ARGUMENT(kind, key, type, value, range)                                                              \
    {                                                                                                        \
#        key, SYI_OPTION_##type, SYI_OPTION_TRAINING, value, range, "Help of " #        key ".",             \
            offsetof(struct kind, key), sizeof(((struct kind *)0)->key)                                      \
    }
static const struct syi_option of_numbers[] = {ARGUMENT(numbers, share, FLOAT, "0.5", "0..1"),
                                               ARGUMENT(numbers, steps, INT, "3", "1..9"),
                                               ARGUMENT(numbers, on, BOOL, "false", "")};
static const struct syi_option of_words[] = {
    ARGUMENT(words, mode, ENUM, "\"fast\"", "|fast|slow"), ARGUMENT(words, text, STRING, "\"\"", ""),
    ARGUMENT(words, list, STRINGS, "[\"*\"]", ""), ARGUMENT(words, ints, INTS, "[]", "0..99"),
    ARGUMENT(words, floats, FLOATS, "[0.5]", "0..1")};
static const struct syi_option of_holds[] = {ARGUMENT(holds, mask, STRINGS, "[\"*\"]", "")};

enum { PLAIN, NUMBERS, WORDS, HOLDS, LARGE };
static const struct syi_term_kind kinds[] = {
    [PLAIN] = {"plain", "nothing", 0, 0, NULL, 0, 1},
    [NUMBERS] = {"numbers", "some numbers", 0, 0, of_numbers, SYI_COUNT(of_numbers), sizeof(struct numbers)},
    [WORDS] = {"words", "some words", 0, 0, of_words, SYI_COUNT(of_words), sizeof(struct words)},
    [HOLDS] = {"holds", "others", 1, 0, of_holds, SYI_COUNT(of_holds), sizeof(struct holds)},
    [LARGE] = {"large", "more than a term has room for", 0, 0, NULL, 0, SYI_TERM_BYTES + 1},
};

static struct syi_terms terms, again;
static char reason[SYI_TERM_REASON];

static int read_terms(struct syi_terms *into, const char *text)
{
    memset(into, 0, sizeof *into);
    return syi_terms_read(into, kinds, SYI_COUNT(kinds), text, reason);
}

static void accept(const char *text)
{
    cr_assert_eq(read_terms(&terms, text), SY_OK, "%s: %s", text, reason);
}

static void expect_numbers(int term, double share, int64_t steps, bool on)
{
    const struct numbers *n = (const void *)terms.term[term].values;
    cr_expect_eq(terms.term[term].kind, &kinds[NUMBERS]);
    cr_expect(n->share == share && n->steps == steps && n->on == on, "%g, %lld, %d", n->share,
              (long long)n->steps, n->on);
}

/* ---- reading ---- */

Test(terms, arguments_by_name_by_position_and_by_default)
{
    static const char *const same[] = {"numbers(0.25, 7, true)", "numbers(share=0.25, steps=7, on=true)",
                                       "numbers(on=true, share=0.25, steps=7)",
                                       "numbers(0.25, on=true, steps=7)",
                                       " numbers ( 0.25 ,\tsteps = 7 , true ) "};
    for (size_t i = 0; i < SYI_COUNT(same); i++) {
        accept(same[i]);
        cr_expect(terms.n == 1 && terms.term[0].end == 1, "%s", same[i]);
        expect_numbers(0, 0.25, 7, true);
    }
    accept("numbers");
    expect_numbers(0, 0.5, 3, false);
    accept("numbers()");
    expect_numbers(0, 0.5, 3, false);
    accept("numbers(steps=9)");
    expect_numbers(0, 0.5, 9, false);
}

Test(terms, strings_in_single_or_double_quotes)
{
    static const char *const same[] = {
        "words('slow', 'a, (b)', ['x)', 'y]'], [1, 2], [0.25])",
        "words(\"slow\", \"a, (b)\", [\"x)\", \"y]\"], [1, 2], [0.25])",
        "words(floats=[0.25], mode='slow', text=\"a, (b)\", list=['x)', \"y]\"], ints=[1,2])"};
    for (size_t i = 0; i < SYI_COUNT(same); i++) {
        accept(same[i]);
        const struct words *w = (const void *)terms.term[0].values;
        cr_expect_eq(w->mode, 1);
        cr_expect_str_eq(w->text, "a, (b)");
        cr_assert_eq(w->list.n, 2);
        cr_expect_str_eq(syi_strings_at(&w->list, 0), "x)");
        cr_expect_str_eq(syi_strings_at(&w->list, 1), "y]");
        cr_expect(w->ints.n == 2 && w->ints.values[0] == 1 && w->ints.values[1] == 2);
        cr_expect(w->floats.n == 1 && w->floats.values[0] == 0.25);
    }
}

/* holds, holds, numbers, plain, words: each with the end of what it holds. */
Test(terms, terms_within_terms)
{
    static const int kind[] = {HOLDS, HOLDS, NUMBERS, PLAIN, WORDS}, end[] = {5, 4, 3, 4, 5};
    accept("holds(holds(numbers(0.75), plain), words(text='t'), mask=['m'])");
    cr_assert_eq(terms.n, 5);
    for (int i = 0; i < 5; i++)
        cr_expect(terms.term[i].kind == &kinds[kind[i]] && terms.term[i].end == end[i], "term %d", i);
    expect_numbers(2, 0.75, 3, false);
    cr_expect_str_eq(syi_strings_at(&((const struct holds *)(const void *)terms.term[0].values)->mask, 0),
                     "m");
    cr_expect_str_eq(syi_strings_at(&((const struct holds *)(const void *)terms.term[1].values)->mask, 0),
                     "*");
    accept("holds(plain, ['m'])"); /* by position after what it holds */
    cr_expect_str_eq(syi_strings_at(&((const struct holds *)(const void *)terms.term[0].values)->mask, 0),
                     "m");
}

Test(terms, texts_add_to_a_list)
{
    accept("plain");
    cr_assert_eq(syi_terms_read(&terms, kinds, SYI_COUNT(kinds), "holds(numbers)", reason), SY_OK);
    cr_assert_eq(
        syi_terms_read_product(&terms, kinds, SYI_COUNT(kinds), " numbers(0.1)*plain * words ", reason),
        SY_OK, "%s", reason);
    cr_assert_eq(terms.n, 6);
    cr_expect(terms.term[1].end == 3 && terms.term[3].kind == &kinds[NUMBERS] && terms.term[3].end == 4);
    cr_expect(terms.term[4].kind == &kinds[PLAIN] && terms.term[5].kind == &kinds[WORDS]);
    expect_numbers(3, 0.1, 3, false);
}

Test(terms, adding_gives_defaults_until_the_list_is_full)
{
    memset(&terms, 0, sizeof terms);
    memset(terms.term[0].values, 0xff, sizeof terms.term[0].values);
    cr_assert_not_null(syi_terms_add(&terms, &kinds[NUMBERS]));
    expect_numbers(0, 0.5, 3, false);
    cr_expect_null(syi_terms_add(&terms, &kinds[LARGE]));
    while (terms.n < SYI_TERMS) cr_assert_not_null(syi_terms_add(&terms, &kinds[PLAIN]));
    cr_expect_null(syi_terms_add(&terms, &kinds[PLAIN]));
    cr_expect_eq(terms.n, SYI_TERMS);
}

/* ---- what is refused ---- */

Test(terms, refuses_and_says_why)
{
    static const struct {
        const char *text, *why;
    } wrong[] = {
        {"", "a name is missing at \"\""},
        {"(0.5)", "a name is missing at \"(0.5)\""},
        {"number", "there is no number, did you mean numbers?"},
        {"holds(plian)", "holds: mask: "},
        {"holds(holds(plian()))", "there is no plian, did you mean plain?"},
        {"numbers(shares=0.1)",
         "numbers has no argument shares, did you mean share? It takes share, steps, on"},
        {"plain(share=0.1)", "plain has no argument share: it takes none"},
        {"plain(0.1)", "plain takes 0 arguments at most"},
        {"numbers(0.1, 2, true, 4)", "numbers takes 3 arguments at most"},
        {"numbers(share=2)", "numbers: share: 2 is not accepted: it takes a number in 0..1"},
        {"numbers(0.1, 0)", "numbers: steps: 0 is not accepted: it takes an integer in 1..9"},
        {"numbers(share=)", "numbers: share: "},
        {"numbers(on=1)", "numbers: on: 1 is not accepted: it takes true or false"},
        {"words('quick')", "words: mode: "},
        {"words(text=bare)", "words: text: "},
        {"words(text='open)", "words: text: "},
        {"words(ints=[1, 100])", "words: ints: "},
        {"numbers(0.1", "numbers: a ',' or a ')' is missing at \"\""},
        {"holds(plain mask=['a'])", "holds: a ',' or a ')' is missing at \"mask=['a'])\""},
        {"holds", "holds needs what it applies to, as in holds(trace(decay=0.9))"},
        {"holds(mask=['a'])", "holds needs what it applies to"},
        {"numbers(0.1) plain", "nothing was expected at \"plain\""},
        {"numbers(0.1))", "nothing was expected at \")\""},
        {"plain * plain", "nothing was expected at \"* plain\""},
    };
    for (size_t i = 0; i < SYI_COUNT(wrong); i++) {
        cr_expect_eq(read_terms(&terms, wrong[i].text), SY_EINVAL, "%s", wrong[i].text);
        cr_expect(!strncmp(reason, wrong[i].why, strlen(wrong[i].why)), "%s: %s", wrong[i].text, reason);
    }
}

Test(terms, refuses_products_and_what_is_too_long)
{
    static char text[3000];
    static const struct {
        const char *text, *why;
    } wrong[] = {{"", "a name is missing at \"\""},
                 {"plain *", "a name is missing at \"\""},
                 {"plain plain", "a '*' is missing at \"plain\""}};
    for (size_t i = 0; i < SYI_COUNT(wrong); i++) {
        memset(&terms, 0, sizeof terms);
        cr_expect_eq(syi_terms_read_product(&terms, kinds, SYI_COUNT(kinds), wrong[i].text, reason),
                     SY_EINVAL);
        cr_expect_str_eq(reason, wrong[i].why);
    }
    for (int i = 0; i < SYI_TERMS; i++) strcat(text, "holds(");
    strcat(text, "plain");
    cr_expect_eq(read_terms(&terms, text), SY_EINVAL);
    cr_expect_str_eq(reason, "there are more than 24 terms");
    memset(text, 'x', sizeof text - 1);
    cr_expect_eq(read_terms(&terms, text), SY_EINVAL, "a name of 2999 bytes");
    memcpy(text, "words(text='", 12);
    memcpy(text + 1200, "')", 3);
    cr_expect_eq(read_terms(&terms, text), SY_EINVAL);
    cr_expect_str_eq(reason, "words: a value is longer than 1023 bytes");
}

/* ---- printing ---- */

Test(terms, what_is_printed_reads_back)
{
    static const char *const pairs[][2] = {
        {"plain", "plain"},
        {"numbers", "numbers(share=0.5, steps=3, on=false)"},
        {"numbers(1e-16, on=true)", "numbers(share=1e-16, steps=3, on=true)"},
        {"words(list=[\"!*a\", 'b?'])",
         "words(mode='fast', text='', list=['!*a', 'b?'], ints=[], floats=[0.5])"},
        {"holds(plain, holds(numbers(0.1), mask=['x', 'y']))",
         "holds(plain, holds(numbers(share=0.1, steps=3, on=false), mask=['x', 'y']), mask=['*'])"},
    };
    for (size_t i = 0; i < SYI_COUNT(pairs); i++) {
        struct syi_text text = {0};
        accept(pairs[i][0]);
        syi_terms_print(&terms, 0, &text);
        cr_expect_str_eq(text.data, pairs[i][1]);
        cr_assert_eq(read_terms(&again, text.data), SY_OK, "%s", reason);
        cr_expect_eq(memcmp(&terms, &again, sizeof terms), 0, "%s", text.data);
        syi_text_free(&text);
    }
}

Test(terms, a_list_is_printed_as_a_run_file_has_it)
{
    struct syi_text text = {0};
    memset(&terms, 0, sizeof terms);
    syi_terms_print_list(&terms, &text);
    cr_expect_str_eq(text.data, "[]");
    syi_text_free(&text);
    accept("holds(plain, mask=['a'])");
    cr_assert_eq(syi_terms_read(&terms, kinds, SYI_COUNT(kinds), "plain", reason), SY_OK);
    syi_terms_print_list(&terms, &text);
    cr_expect_str_eq(text.data, "[\"holds(plain, mask=['a'])\", \"plain\"]");
    syi_text_free(&text);
}

Test(terms, describes_a_kind)
{
    struct syi_text text = {0};
    syi_term_describe(&kinds[NUMBERS], &text);
    cr_expect_str_eq(text.data, "numbers: some numbers\n"
                                "  share: Help of share.\n    (a number in 0..1; default 0.5)\n"
                                "  steps: Help of steps.\n    (an integer in 1..9; default 3)\n"
                                "  on: Help of on.\n    (true or false; default false)\n");
    syi_text_free(&text);
}
